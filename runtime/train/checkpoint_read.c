#include "runtime/base/file.h"
#include "runtime/base/map.h"
#include "runtime/train/checkpoint_internal.h"
#include "runtime/train/json_read.h"
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool checkpoint_is_name(const char *name) {
    return strncmp(name, "step-", 5) == 0 && name[5] && strlen(name) < sizeof(CheckpointName) &&
           strspn(name + 5, "0123456789") == strlen(name + 5);
}

bool checkpoint_pointer(const char *root, const char *which, CheckpointName *out) {
    FileMap m = {0};
    char why[256], *path = folder_join(root, which);
    bool ok = path && file_map(path, &m, why) == GRAPHC_OK && m.size > 1 &&
              m.size <= sizeof out->text && m.data[m.size - 1] == '\n';
    *out = (CheckpointName){""};
    if (ok) memcpy(out->text, m.data, m.size - 1);
    if (m.data) file_unmap(&m);
    free(path);
    return ok && checkpoint_is_name(out->text);
}

/* The checkpoint of the most steps; false: there is none. */
static bool find_newest(const char *root, CheckpointName *out) {
    unsigned long long most = 0;
    DIR *d = opendir(root);
    *out = (CheckpointName){""};
    for (const struct dirent *f; d && (f = readdir(d));) {
        if (!checkpoint_is_name(f->d_name)) continue;
        unsigned long long step = strtoull(f->d_name + 5, NULL, 10);
        if (*out->text && step < most) continue;
        most = step;
        memcpy(out->text, f->d_name, strlen(f->d_name) + 1); /* a checkpoint's name fits */
    }
    if (d) closedir(d);
    return *out->text;
}

bool checkpoint_any(const char *root) {
    CheckpointName name;
    return checkpoint_pointer(root, "latest", &name) || find_newest(root, &name);
}

/* --- checkpoint.json ------------------------------------------------------------------------ */

typedef struct Reading {
    Checkpoint *out;
    JsonRead json;
    size_t text_used;
    unsigned seen;
    ErrorText e;
    graphc_status status; /* of what is wrong beyond JSON */
} Reading;

static void take_u64(JsonRead *r, uint64_t *out) {
    int64_t v = 0;
    if (jr_i64(r, &v)) *out = (uint64_t)v;
}

static void take_loss(JsonRead *r, double *out) {
    *out = (double)NAN;
    if (jr_kind(r) == JR_null)
        jr_null(r);
    else
        jr_f64(r, out);
}

static const char *take_text(Reading *g, JsonSpan s) {
    char *p = g->out->text + g->text_used;
    g->text_used += jr_decode_to(s, p) + 1;
    return p;
}

static void take_options(Reading *g) {
    JsonSpan key, value;
    Checkpoint *c = g->out;
    for (jr_object(&g->json); jr_key(&g->json, &key) && jr_string(&g->json, &value);) {
        SafePair *more = reallocarray(c->options, c->info.noptions + 1, sizeof *more);
        if (!more) {
            g->status = error_set(g->e, GRAPHC_NO_MEMORY, "not enough memory for a checkpoint");
            return;
        }
        c->options = more;
        const char *name = take_text(g, key);
        c->options[c->info.noptions++] = (SafePair){name, take_text(g, value)};
    }
    c->info.options = c->options;
}

static graphc_status check_file(Reading *g, const char *name, uint64_t bytes, const char *hash) {
    FileMap m;
    char why[256], got[32], *path = folder_join(g->out->folder, name);
    if (!path) return error_set(g->e, GRAPHC_NO_MEMORY, "not enough memory for a checkpoint");
    graphc_status st = strchr(name, '/') ? GRAPHC_INVALID : file_map(path, &m, why);
    free(path);
    if (strchr(name, '/')) return error_set(g->e, st, "a file \"%s\"", safe_name(name).text);
    if (st != GRAPHC_OK) return error_set(g->e, st, "%s %s", safe_name(name).text, why);
    snprintf(got, sizeof got, CHECKPOINT_HEX, (unsigned long long)hash_bytes(m.data, m.size, 0));
    if (m.size != bytes || strcmp(got, hash))
        st = error_set(g->e, GRAPHC_INVALID,
                       "%s is damaged: it has %llu bytes with checksum %s, not %llu with %.16s",
                       safe_name(name).text, (unsigned long long)m.size, got,
                       (unsigned long long)bytes, hash);
    file_unmap(&m);
    return st;
}

static void take_files(Reading *g) {
    JsonRead *r = &g->json;
    JsonSpan name, key;
    for (jr_object(r); g->status == GRAPHC_OK && jr_key(r, &name);) {
        JsonSpan value = {"", 0};
        uint64_t bytes = UINT64_MAX;
        for (jr_object(r); jr_key(r, &key);)
            if (jr_is(key, "bytes"))
                take_u64(r, &bytes);
            else
                jr_string(r, &value);
        size_t before = g->text_used;
        if (r->fault) return;
        const char *text = take_text(g, name), *hash = take_text(g, value);
        g->status = check_file(g, text, bytes, hash);
        g->text_used = before;
    }
}

static void take_member(Reading *g, JsonSpan key, int64_t *version) {
    CheckpointInfo *info = &g->out->info;
    static const char *const names[] = {"version",  "step",    "tokens",  "epoch",
                                        "position", "waiting", "options", "files"};
    enum { VERSION, STEP, TOKENS, EPOCH, POSITION, WAITING, OPTIONS, FILES, COUNT };
    uint64_t *const numbers[] = {NULL,         &info->step,     &info->tokens,
                                 &info->epoch, &info->position, &info->waiting};
    int k = 0;
    while (k < COUNT && !jr_is(key, names[k])) k++;
    if (k < COUNT) g->seen |= 1u << k;
    if (k == VERSION)
        jr_i64(&g->json, version);
    else if (k < OPTIONS)
        take_u64(&g->json, numbers[k]);
    else if (k == OPTIONS)
        take_options(g);
    else if (k == FILES)
        take_files(g);
    else if (jr_is(key, "held_out"))
        take_u64(&g->json, &info->held);
    else if (jr_is(key, "unmeasured"))
        jr_bool(&g->json, &info->unmeasured);
    else if (jr_is(key, "loss"))
        take_loss(&g->json, &info->loss);
    else if (jr_is(key, "best_loss"))
        take_loss(&g->json, &info->best_loss);
    else
        jr_skip(&g->json);
}

static graphc_status read_json(Reading *g, const char *text, size_t n) {
    enum { ALL = 0xff };
    JsonSpan key;
    int64_t version = 0;
    for (jr_init(&g->json, text, n), jr_object(&g->json);
         g->status == GRAPHC_OK && jr_key(&g->json, &key);)
        take_member(g, key, &version);
    if (g->status != GRAPHC_OK) return g->status;
    if (!jr_end(&g->json))
        return error_set(g->e, GRAPHC_INVALID, CHECKPOINT_JSON " is not valid at byte %zu: %s",
                         jr_offset(&g->json), g->json.fault);
    if (version != CHECKPOINT_VERSION)
        return error_set(g->e, GRAPHC_UNSUPPORTED, CHECKPOINT_JSON " is of version %lld, not %d",
                         (long long)version, CHECKPOINT_VERSION);
    if (g->seen != ALL) return error_set(g->e, GRAPHC_INVALID, CHECKPOINT_JSON " is not whole");
    return GRAPHC_OK;
}

static graphc_status check_first(const FileMap *m, ErrorText e) {
    char first[64];
    if (m->size > CHECKPOINT_FIRST_BYTES) {
        uint64_t hash =
            hash_bytes(m->data + CHECKPOINT_FIRST_BYTES, m->size - CHECKPOINT_FIRST_BYTES, 0);
        snprintf(first, sizeof first, CHECKPOINT_FIRST, (unsigned long long)hash);
        if (memcmp(m->data, first, CHECKPOINT_FIRST_BYTES) == 0) return GRAPHC_OK;
    }
    return error_set(e, GRAPHC_INVALID, CHECKPOINT_JSON " is damaged: its checksum does not fit");
}

static graphc_status read_folder(Checkpoint *out, ErrorText e) {
    FileMap m = {0};
    Reading g = {.out = out, .e = e};
    char why[256], *path = folder_join(out->folder, CHECKPOINT_JSON);
    graphc_status st = path ? file_map(path, &m, why) : GRAPHC_NO_MEMORY;
    free(path);
    if (st != GRAPHC_OK)
        return error_set(e, st, CHECKPOINT_JSON " %s", path ? why : "needs more memory");
    st = check_first(&m, e);
    if (st == GRAPHC_OK && !(out->text = malloc(2 * m.size)))
        st = error_set(e, GRAPHC_NO_MEMORY, "not enough memory for a checkpoint");
    if (st == GRAPHC_OK) st = read_json(&g, (const char *)m.data, m.size);
    file_unmap(&m);
    return st;
}

graphc_status checkpoint_open(const char *root, const char *which, Checkpoint *out, ErrorText e) {
    CheckpointName name;
    char inner[512] = "";
    *out = (Checkpoint){.info = {.loss = (double)NAN, .best_loss = (double)NAN}};
    if (checkpoint_is_name(which))
        snprintf(name.text, sizeof name.text, "%s", which);
    else if (!checkpoint_pointer(root, which, &name) &&
             (strcmp(which, "latest") || !find_newest(root, &name)))
        return error_set(e, GRAPHC_IO, "%s has no %s checkpoint", root, which);
    out->folder = folder_join(root, name.text);
    if (!out->folder) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory for a checkpoint");
    graphc_status st = read_folder(out, (ErrorText){inner, sizeof inner});
    if (st != GRAPHC_OK) {
        (void)error_set(e, st, "%s: %s", out->folder, inner);
        checkpoint_close(out);
    }
    return st;
}

void checkpoint_close(Checkpoint *c) {
    free(c->folder);
    free(c->text);
    free(c->options);
    *c = (Checkpoint){0};
}

static const char *option_of(const Checkpoint *c, const char *key) {
    for (uint32_t i = 0; i < c->info.noptions; i++)
        if (strcmp(c->options[i].key, key) == 0) return c->options[i].value;
    return NULL;
}

graphc_status checkpoint_match(const Checkpoint *c, const SafePair *options, uint32_t n,
                               ErrorText e) {
    size_t used = 0;
    graphc_status st = GRAPHC_OK;
    for (uint32_t i = 0; i < n; i++) {
        const char *was = option_of(c, options[i].key), *is = options[i].value;
        if (was && is && strcmp(was, is) == 0) continue;
        ErrorText rest = {e.text ? e.text + used : NULL, e.size - used};
        st =
            error_set(rest, GRAPHC_MISMATCH, "%s%s was %s, is %s", used ? "; " : "", options[i].key,
                      was && *was ? was : "not given", is && *is ? is : "not given");
        used += e.text ? strlen(e.text + used) : 0;
    }
    return st;
}
