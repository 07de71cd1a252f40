/* Writing JSON: commas, escapes and indentation are done here.
 *
 *   JsonWrite w = {.indent = 2};
 *   jw_object(&w, NULL);
 *   jw_i64(&w, "r", 16);
 *   jw_array(&w, "target_modules");
 *   jw_string(&w, NULL, "q_proj");
 *   jw_end(&w);
 *   jw_end(&w);
 *   if (w.text.failed) ... else w.text.p, w.text.n ...
 *   text_free(&w.text);
 *
 * key: the member's in an object, NULL for an item of an array and for the outermost value. */
#ifndef TRAIN_JSON_WRITE_H
#define TRAIN_JSON_WRITE_H

#include "runtime/train/text.h"

typedef struct JsonWrite {
    Text text;
    uint32_t indent;  /* spaces a level; 0: all in one line */
    uint32_t depth;   /* at most 64 */
    uint64_t objects; /* bit d: the container at depth d is an object */
    bool more;        /* the innermost container holds something already */
} JsonWrite;

void jw_object(JsonWrite *w, const char *key);
void jw_array(JsonWrite *w, const char *key);
void jw_end(JsonWrite *w);                                    /* of the innermost object or array */
void jw_string(JsonWrite *w, const char *key, const char *s); /* NULL: null */
void jw_i64(JsonWrite *w, const char *key, int64_t v);
void jw_f64(JsonWrite *w, const char *key, double v); /* null where JSON has no such number */
void jw_bool(JsonWrite *w, const char *key, bool v);
void jw_null(JsonWrite *w, const char *key);

#endif
