/* Text under construction, for the runtime: running out of memory is remembered, not fatal, and
 * asked for once at the end. */
#ifndef TRAIN_TEXT_H
#define TRAIN_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Text {
    char *p; /* NUL-terminated once anything was put */
    size_t n, cap;
    bool failed; /* memory ran out: the text is not whole */
} Text;

void text_put(Text *t, const char *s);
void text_putn(Text *t, const char *s, size_t n);
void text_printf(Text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A number with a decimal point whatever the locale, in as few digits as give it back. */
void text_f64(Text *t, double v);
void text_free(Text *t);

#endif
