/* Text under construction, in an arena. */
#ifndef BASE_STRBUF_H
#define BASE_STRBUF_H

#include "runtime/base/arena.h"

typedef struct StrBuf {
    Arena *arena;
    char *p; /* NUL-terminated once anything was written */
    size_t n, cap;
} StrBuf;

void sb_init(StrBuf *s, Arena *a);
void sb_put(StrBuf *s, const char *text);
void sb_putn(StrBuf *s, const char *text, size_t n);
void sb_printf(StrBuf *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *sb_str(const StrBuf *s); /* "" when empty */

#endif
