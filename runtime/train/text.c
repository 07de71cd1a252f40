#include "runtime/train/text.h"
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(Text *t, size_t more) {
    size_t need, cap = t->cap ? t->cap : 256;
    if (t->failed || __builtin_add_overflow(t->n, more, &need) || need >= SIZE_MAX / 2) {
        t->failed = true;
        return false;
    }
    while (cap <= need) cap *= 2;
    if (cap == t->cap) return true;
    char *p = realloc(t->p, cap);
    if (!p) {
        t->failed = true;
        return false;
    }
    t->p = p;
    t->cap = cap;
    return true;
}

void text_putn(Text *t, const char *s, size_t n) {
    if (!reserve(t, n)) return;
    if (n) memcpy(t->p + t->n, s, n);
    t->n += n;
    t->p[t->n] = 0;
}

void text_put(Text *t, const char *s) {
    text_putn(t, s, strlen(s));
}

void text_printf(Text *t, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0 && reserve(t, (size_t)n)) {
        vsnprintf(t->p + t->n, (size_t)n + 1, fmt, again);
        t->n += (size_t)n;
    }
    va_end(again);
}

void text_f64(Text *t, double v) {
    enum { EXACT = 17 };
    char s[64];
    for (int digits = 6; digits <= EXACT; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, v);
        if (strtod(s, NULL) == v) break;
    }
    const char *point = localeconv()->decimal_point;
    char *at = strstr(s, point);
    text_putn(t, s, at ? (size_t)(at - s) : strlen(s));
    if (!at) return;
    text_put(t, ".");
    text_put(t, at + strlen(point));
}

void text_free(Text *t) {
    free(t->p);
    *t = (Text){0};
}
