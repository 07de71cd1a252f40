#include "runtime/train/json_write.h"
#include <inttypes.h>
#include <math.h>

static void line(JsonWrite *w) {
    if (!w->indent) return;
    text_put(&w->text, "\n");
    for (uint32_t i = 0; i < w->depth * w->indent; i++) text_put(&w->text, " ");
}

static void quoted(Text *t, const char *s) {
    text_put(t, "\"");
    for (const char *run = s;; s++) {
        unsigned char c = (unsigned char)*s;
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        text_putn(t, run, (size_t)(s - run));
        run = s + 1;
        if (!c) break;
        if (c == '"' || c == '\\')
            text_printf(t, "\\%c", c);
        else
            text_printf(t, "\\u%04x", c);
    }
    text_put(t, "\"");
}

/* What stands in front of a value. */
static void start(JsonWrite *w, const char *key) {
    if (w->more) text_put(&w->text, w->indent ? "," : ", ");
    if (w->depth) line(w);
    if (key) {
        quoted(&w->text, key);
        text_put(&w->text, ": ");
    }
    w->more = true;
}

static void open(JsonWrite *w, const char *key, bool object) {
    start(w, key);
    text_put(&w->text, object ? "{" : "[");
    uint64_t bit = UINT64_C(1) << w->depth++;
    w->objects = object ? w->objects | bit : w->objects & ~bit;
    w->more = false;
}

void jw_object(JsonWrite *w, const char *key) {
    open(w, key, true);
}
void jw_array(JsonWrite *w, const char *key) {
    open(w, key, false);
}

void jw_end(JsonWrite *w) {
    bool filled = w->more;
    w->depth--;
    if (filled) line(w);
    text_put(&w->text, w->objects >> w->depth & 1 ? "}" : "]");
    w->more = true;
}

void jw_string(JsonWrite *w, const char *key, const char *s) {
    if (!s) {
        jw_null(w, key);
        return;
    }
    start(w, key);
    quoted(&w->text, s);
}

void jw_i64(JsonWrite *w, const char *key, int64_t v) {
    start(w, key);
    text_printf(&w->text, "%" PRId64, v);
}

void jw_f64(JsonWrite *w, const char *key, double v) {
    if (!isfinite(v)) {
        jw_null(w, key);
        return;
    }
    start(w, key);
    text_f64(&w->text, v);
}

void jw_bool(JsonWrite *w, const char *key, bool v) {
    start(w, key);
    text_put(&w->text, v ? "true" : "false");
}

void jw_null(JsonWrite *w, const char *key) {
    start(w, key);
    text_put(&w->text, "null");
}
