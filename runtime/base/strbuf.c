/* Text under construction. */
#include "runtime/base/strbuf.h"
#include <stdio.h>
#include <string.h>

void sb_init(StrBuf *s, Arena *a) {
    *s = (StrBuf){.arena = a};
}

static void reserve(StrBuf *s, size_t more) {
    size_t need = s->n + more + 1;
    if (need <= s->cap) return;
    size_t cap = s->cap ? s->cap : 64;
    while (cap < need) cap *= 2;
    char *p = arena_alloc(s->arena, cap);
    if (s->n) memcpy(p, s->p, s->n);
    s->p = p;
    s->cap = cap;
}

void sb_putn(StrBuf *s, const char *text, size_t n) {
    reserve(s, n);
    if (n) memcpy(s->p + s->n, text, n);
    s->n += n;
    s->p[s->n] = 0;
}

void sb_put(StrBuf *s, const char *text) {
    sb_putn(s, text, strlen(text));
}

void sb_printf(StrBuf *s, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n > 0) {
        reserve(s, (size_t)n);
        vsnprintf(s->p + s->n, (size_t)n + 1, fmt, again);
        s->n += (size_t)n;
    }
    va_end(again);
}

const char *sb_str(const StrBuf *s) {
    return s->p ? s->p : "";
}
