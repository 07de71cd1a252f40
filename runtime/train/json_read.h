/* Reading JSON where it lies: a cursor over text that is trusted in nothing. It allocates nothing,
 * does not recurse, and takes strict JSON (RFC 8259) in UTF-8, nested at most 64 deep, without
 * NUL characters in strings.
 *
 *   JsonRead r;
 *   JsonSpan key;
 *   jr_init(&r, text, n);
 *   for (jr_object(&r); jr_key(&r, &key);)
 *       if (jr_is(key, "rank")) jr_i64(&r, &rank);
 *       else jr_skip(&r);
 *   if (!jr_end(&r)) ... r.fault, jr_offset(&r) ...
 *
 * Every call after a fault fails, so that one check at the end is enough. A value that is not of
 * the wanted kind is a fault. */
#ifndef TRAIN_JSON_READ_H
#define TRAIN_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct JsonRead {
    const char *start, *at, *end;
    const char *fault; /* what is wrong at `at`; NULL while nothing is */
    uint64_t fresh;    /* bit d: nothing was taken yet from the container at depth d */
    uint64_t objects;  /* bit d: it is an object */
    uint32_t depth;
} JsonRead;

/* A string as it stands between its quotes, escapes and all; checked already. */
typedef struct JsonSpan {
    const char *p;
    size_t n;
} JsonSpan;

typedef enum JsonKind {
    JR_none, /* there is no value, or a fault */
    JR_null,
    JR_bool,
    JR_number,
    JR_string,
    JR_array,
    JR_object
} JsonKind;

void jr_init(JsonRead *r, const char *text, size_t n);
JsonKind jr_kind(JsonRead *r); /* of the value that comes next; takes nothing */

bool jr_object(JsonRead *r);             /* enters */
bool jr_key(JsonRead *r, JsonSpan *key); /* the next member's; false: that was all, and left */
bool jr_array(JsonRead *r);              /* enters */
bool jr_item(JsonRead *r);               /* there is another one; false: that was all, and left */

bool jr_string(JsonRead *r, JsonSpan *out);
bool jr_i64(JsonRead *r, int64_t *out); /* a number without fraction and exponent */
bool jr_f64(JsonRead *r, double *out);
bool jr_bool(JsonRead *r, bool *out);
bool jr_null(JsonRead *r);
bool jr_skip(JsonRead *r); /* any value */
bool jr_end(JsonRead *r);  /* nothing but white space is left, and nothing was wrong */

/* Makes what was just read a fault. */
bool jr_refuse(JsonRead *r, const char *fault);
size_t jr_offset(const JsonRead *r); /* of `at` in the text */

bool jr_is(JsonSpan s, const char *text);
/* Without escapes, with a NUL, from malloc; NULL: not enough memory. Never longer than the span. */
char *jr_decode(JsonSpan s);
/* The same into room for s.n + 1 bytes; its length. */
size_t jr_decode_to(JsonSpan s, char *out);

#endif
