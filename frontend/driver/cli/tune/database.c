#include "frontend/driver/cli/tune/database.h"
#include "codegen/target.h"
#include "runtime/base/file.h"
#include "runtime/base/map.h"
#include "runtime/base/strbuf.h"
#include "runtime/base/vec.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_LINE "graphc-tuned "
enum { VERSION = 1, MOST_BYTES = 64 << 20 };

typedef struct Entry {
    const char *key, *way; /* key: "MACHINE<tab>SIGNATURE" */
} Entry;

struct Tuned {
    Arena *arena;
    MapStr *index; /* of entries by key */
    VEC(Entry) entries;
};

Tuned *tuned_create(Arena *a) {
    Tuned *t = ARENA_NEW(a, Tuned);
    *t = (Tuned){.arena = a, .index = mapstr_create(a)};
    return t;
}

const char *tuned_machine(Arena *a, const char *target, uint32_t processors) {
    return arena_printf(a, "%s/%u", target, processors);
}

static void put(Tuned *t, const char *key, const char *way) {
    uint32_t at;
    if (!mapstr_get(t->index, key, &at)) {
        at = t->entries.n;
        mapstr_put(t->index, key, at);
        vec_push(t->arena, &t->entries, ((Entry){key, NULL}));
    }
    t->entries.v[at].way = way;
}

void tuned_put(Tuned *t, const char *machine, const char *signature, const char *way) {
    put(t, arena_printf(t->arena, "%s\t%s", machine, signature), arena_strdup(t->arena, way));
}

const char *tuned_way(void *tuned, const char *target, const char *signature) {
    const Tuned *t = tuned;
    const Target *row = target_find(target, strlen(target));
    char key[1024];
    uint32_t at;
    int n = snprintf(key, sizeof key, "%s/%u\t%s", target, row ? row->machine.processors : 0,
                     signature);
    if (n < 0 || (size_t)n >= sizeof key || !mapstr_get(t->index, key, &at)) return NULL;
    return t->entries.v[at].way;
}

/* --- Files ------------------------------------------------------------------------------------ */

typedef struct Reader {
    Tuned *t;
    const char *path;
    DiagSink *d;
    uint32_t line, foreign;
} Reader;

static graphc_status bad(const Reader *r, const char *what) {
    (void)diag(r->d, D_TUNE_DB, r->path, "line %u: %s", r->line, what);
    diag_hint(r->d, "graphc tune --tune-db FILE writes such a file");
    return GRAPHC_INVALID;
}

/* "sm_90a/132" is what a target of this graphc is made for. */
static bool is_known(const char *machine, size_t n) {
    const char *slash = memchr(machine, '/', n);
    const Target *row = slash ? target_find(machine, (size_t)(slash - machine)) : NULL;
    char *end;
    return row && strtoul(slash + 1, &end, 10) == row->machine.processors && end == machine + n;
}

/* All are kept, so that a database of several machines can be written again. */
static graphc_status read_line(Reader *r, const char *line) {
    const char *first = strchr(line, '\t'), *second = first ? strchr(first + 1, '\t') : NULL;
    if (!second || first == line || second == first + 1 || !second[1] || strchr(second + 1, '\t'))
        return bad(r, "not a machine, a kernel and a way, with tabs between them");
    put(r->t, arena_strndup(r->t->arena, line, (size_t)(second - line)),
        arena_strdup(r->t->arena, second + 1));
    r->foreign += !is_known(line, (size_t)(first - line));
    return GRAPHC_OK;
}

/* *ours: the first line says that the others are as here. */
static graphc_status read_head(Reader *r, const char *line, bool *ours) {
    size_t n = sizeof FIRST_LINE - 1;
    char *end;
    r->line = 1;
    if (strncmp(line, FIRST_LINE, n) != 0) return bad(r, "no database of graphc tune");
    unsigned long version = strtoul(line + n, &end, 10);
    if (end == line + n || *end) return bad(r, "no version");
    *ours = version == VERSION;
    if (!*ours)
        (void)!diag(r->d, D_TUNED, r->path,
                    "it is of version %lu, this graphc has %d: nothing of it counts", version,
                    VERSION);
    return GRAPHC_OK;
}

static graphc_status read_lines(Reader *r, char *text) {
    bool ours = false;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        if (!r->line)
            GC_TRY(read_head(r, line, &ours));
        else if (!ours)
            break;
        else if (r->line++, *line && *line != '#')
            GC_TRY(read_line(r, line));
    }
    if (r->foreign)
        (void)!diag(r->d, D_TUNED, r->path, "%u lines are for other machines", r->foreign);
    return GRAPHC_OK;
}

graphc_status tuned_read(Tuned *t, const char *path, bool may_lack, DiagSink *d) {
    Reader r = {.t = t, .path = path, .d = d};
    FileMap m = {0};
    char why[256];
    if (may_lack && access(path, F_OK) != 0) return GRAPHC_OK;
    if (file_map(path, &m, why) != GRAPHC_OK) return diag(d, D_IO, path, "%s", why);
    graphc_status st = GRAPHC_OK;
    r.line = 1;
    if (m.size > MOST_BYTES || memchr(m.data, 0, m.size))
        st = bad(&r, "no database of graphc tune");
    r.line = 0;
    if (st == GRAPHC_OK) st = read_lines(&r, arena_strndup(t->arena, (const char *)m.data, m.size));
    file_unmap(&m);
    return st;
}

static int by_key(const void *a, const void *b) {
    const Entry *x = a, *y = b;
    return strcmp(x->key, y->key);
}

graphc_status tuned_write(const Tuned *t, const char *path, DiagSink *d) {
    Arena *a = arena_create();
    Entry *e = ARENA_ARRAY(a, Entry, t->entries.n + 1);
    StrBuf s;
    char why[256];
    sb_init(&s, a);
    sb_printf(&s, FIRST_LINE "%d\n", VERSION);
    for (uint32_t i = 0; i < t->entries.n; i++) e[i] = t->entries.v[i];
    qsort(e, t->entries.n, sizeof *e, by_key);
    for (uint32_t i = 0; i < t->entries.n; i++) sb_printf(&s, "%s\t%s\n", e[i].key, e[i].way);
    graphc_status st = file_write(path, sb_str(&s), s.n, why);
    if (st != GRAPHC_OK) st = diag(d, D_IO, path, "%s", why);
    arena_destroy(a);
    return st;
}
