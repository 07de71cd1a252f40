/* Diagnostics: collection and rendering. */
#include "runtime/base/diag.h"
#include "runtime/base/strbuf.h"
#include "runtime/base/vec.h"

const DiagInfo diag_info[D_COUNT] = {
#define DIAG(id, number, severity, status, summary)                                                \
    [D_##id] = {#id, number, SEV_##severity, GRAPHC_##status, summary},
#include "runtime/base/diag.def"
#undef DIAG
};

enum { MAX_KEPT_ERRORS = 64 };

struct DiagSink {
    Arena *arena;
    const char *file;
    VEC(Diag) d;
    uint32_t errors;
    graphc_status first;
    bool last_kept; /* a hint for a dropped diagnostic is dropped too */
};

DiagSink *diag_create(Arena *a, const char *file) {
    DiagSink *s = ARENA_NEW(a, DiagSink);
    s->arena = a;
    s->file = file ? arena_strdup(a, file) : NULL;
    return s;
}

graphc_status diag(DiagSink *s, DiagId id, const char *place, const char *fmt, ...) {
    const DiagInfo *info = &diag_info[id];
    bool error = info->severity == SEV_error;
    if (error && s->errors++ == 0) s->first = info->status;
    s->last_kept = !error || s->errors <= MAX_KEPT_ERRORS;
    if (!s->last_kept) {
        Diag more = {D_MORE, "", "", NULL}; /* rendered with the number of all that follow */
        if (s->errors == MAX_KEPT_ERRORS + 1) vec_push(s->arena, &s->d, more);
        return info->status;
    }
    va_list ap;
    va_start(ap, fmt);
    const char *text = arena_vprintf(s->arena, fmt, ap);
    va_end(ap);
    Diag d = {id, place && *place ? arena_strdup(s->arena, place) : "", text, NULL};
    vec_push(s->arena, &s->d, d);
    return info->status;
}

void diag_hint(DiagSink *s, const char *fmt, ...) {
    if (!s->last_kept || !s->d.n) return;
    va_list ap;
    va_start(ap, fmt);
    s->d.v[s->d.n - 1].hint = arena_vprintf(s->arena, fmt, ap);
    va_end(ap);
}

void diag_rewind(DiagSink *s, uint32_t count) {
    s->d.n = count;
    s->errors = 0;
    s->first = GRAPHC_OK;
    s->last_kept = false;
}

uint32_t diag_count(const DiagSink *s) {
    return s->d.n;
}
uint32_t diag_errors(const DiagSink *s) {
    return s->errors;
}
const Diag *diag_at(const DiagSink *s, uint32_t i) {
    return &s->d.v[i];
}
graphc_status diag_status(const DiagSink *s) {
    return s->first;
}

/* Text from files may hold terminal control characters: they are shown as \xNN. */
static void put_clean(StrBuf *b, const char *text) {
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c >= 0x20 && *c != 0x7f)
            sb_putn(b, (const char *)c, 1);
        else if (*c == '\n' || *c == '\t')
            sb_put(b, " ");
        else
            sb_printf(b, "\\x%02x", *c);
    }
}

const char *diag_render(const DiagSink *s, const Diag *d, Arena *a, bool color) {
    static const char *const name[] = {"note", "warning", "error"};
    static const char *const shade[] = {"\033[36m", "\033[33m", "\033[1;31m"};
    const DiagInfo *info = &diag_info[d->id];
    StrBuf b;
    sb_init(&b, a);
    sb_printf(&b, "graphc: %s%s[G%04d]%s: ", color ? shade[info->severity] : "",
              name[info->severity], info->number, color ? "\033[0m" : "");
    if (s->file) {
        put_clean(&b, s->file);
        sb_put(&b, ": ");
    }
    if (*d->place) {
        put_clean(&b, d->place);
        sb_put(&b, ": ");
    }
    if (d->id == D_MORE)
        sb_printf(&b, "%u more errors", s->errors - MAX_KEPT_ERRORS);
    else
        put_clean(&b, *d->text ? d->text : info->summary);
    if (d->hint) {
        sb_put(&b, "\n  hint: ");
        put_clean(&b, d->hint);
    }
    return sb_str(&b);
}
