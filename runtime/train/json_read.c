#include "runtime/train/json_read.h"
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_NUMBER = 400 };

void jr_init(JsonRead *r, const char *text, size_t n) {
    *r = (JsonRead){.start = text, .at = text, .end = text + n};
}

bool jr_refuse(JsonRead *r, const char *fault) {
    if (!r->fault) r->fault = fault;
    return false;
}

size_t jr_offset(const JsonRead *r) {
    return (size_t)(r->at - r->start);
}

/* The next character that is no white space; 0 at the end, where a NUL in the text is a fault too.
 */
static char peek(JsonRead *r) {
    if (r->fault) return 0;
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t'))
        r->at++;
    return r->at < r->end ? *r->at : 0;
}

static bool expect(JsonRead *r, char c, const char *fault) {
    if (peek(r) != c) return jr_refuse(r, fault);
    r->at++;
    return true;
}

JsonKind jr_kind(JsonRead *r) {
    switch (peek(r)) {
    case 'n': return JR_null;
    case 't':
    case 'f': return JR_bool;
    case '"': return JR_string;
    case '[': return JR_array;
    case '{': return JR_object;
    case '-': return JR_number;
    default: return r->at < r->end && *r->at >= '0' && *r->at <= '9' ? JR_number : JR_none;
    }
}

/* --- containers ----------------------------------------------------------------------------- */

static bool enter(JsonRead *r, bool object) {
    if (!expect(r, object ? '{' : '[', object ? "no object" : "no array")) return false;
    if (r->depth == MAX_DEPTH) return jr_refuse(r, "nested deeper than 64 levels");
    uint64_t bit = UINT64_C(1) << r->depth++;
    r->fresh |= bit;
    r->objects = object ? r->objects | bit : r->objects & ~bit;
    return true;
}

bool jr_object(JsonRead *r) {
    return enter(r, true);
}
bool jr_array(JsonRead *r) {
    return enter(r, false);
}

static bool in_object(const JsonRead *r) {
    return r->objects >> (r->depth - 1) & 1;
}

/* To the next member or item of the innermost container; false after leaving it. */
static bool next(JsonRead *r) {
    uint64_t bit = UINT64_C(1) << (r->depth - 1);
    bool first = r->fresh & bit;
    char c = peek(r);
    r->fresh &= ~bit;
    if (r->fault) return false;
    if (c == (in_object(r) ? '}' : ']')) {
        r->at++;
        r->depth--;
        return false;
    }
    return first || expect(r, ',', "no comma between values");
}

bool jr_item(JsonRead *r) {
    return !r->fault && r->depth && next(r);
}

bool jr_key(JsonRead *r, JsonSpan *key) {
    return !r->fault && r->depth && next(r) && jr_string(r, key) &&
           expect(r, ':', "no colon after a key");
}

/* --- strings -------------------------------------------------------------------------------- */

static int hex4(const char *p, const char *end) {
    int v = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i], low = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            v = v * 16 + (c - '0');
        else if (low >= 'a' && low <= 'f')
            v = v * 16 + (low - 'a' + 10);
        else
            return -1;
    }
    return v;
}

/* Bytes of the \u escape (or pair of them) at p and its code point; 0 if there is none. */
static size_t unicode_escape(const char *p, const char *end, uint32_t *code) {
    int high = hex4(p + 2, end), low;
    if (high <= 0 || (high >= 0xdc00 && high < 0xe000)) return 0;
    *code = (uint32_t)high;
    if (high < 0xd800 || high >= 0xe000) return 6;
    if (end - p < 12 || p[6] != '\\' || p[7] != 'u') return 0;
    low = hex4(p + 8, end);
    if (low < 0xdc00 || low >= 0xe000) return 0;
    *code = 0x10000 + (((uint32_t)high - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
    return 12;
}

/* Bytes of the UTF-8 character at p; 0 if it is none, too long a form or a surrogate. */
static size_t utf8_size(const char *text, const char *end) {
    const unsigned char *p = (const unsigned char *)text;
    size_t n = *p < 0x80 ? 1 : *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;
    if (!n || (size_t)(end - text) < n) return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    bool bad = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
               (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f);
    return bad ? 0 : n;
}

/* Bytes of the character or escape at p; 0: there is no valid one. */
static size_t char_size(const char *p, const char *end) {
    uint32_t code;
    if ((unsigned char)*p < 0x20) return 0;
    if (*p != '\\') return utf8_size(p, end);
    if (end - p < 2) return 0;
    if (p[1] == 'u') return unicode_escape(p, end, &code);
    return strchr("\"\\/bfnrt", p[1]) && p[1] ? 2 : 0;
}

bool jr_string(JsonRead *r, JsonSpan *out) {
    if (!expect(r, '"', "no string")) return false;
    const char *p = r->at;
    while (r->at < r->end && *r->at != '"') {
        size_t n = char_size(r->at, r->end);
        if (!n) return jr_refuse(r, "no valid character of a string");
        r->at += n;
    }
    if (r->at == r->end) return jr_refuse(r, "a string without its end");
    *out = (JsonSpan){p, (size_t)(r->at - p)};
    r->at++;
    return true;
}

static size_t put_utf8(uint32_t c, char *out) {
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[n] | c);
    return n;
}

size_t jr_decode_to(JsonSpan s, char *out) {
    const char *p = s.p, *end = s.p + s.n, from[] = "bfnrt", to[] = "\b\f\n\r\t";
    char *q = out;
    while (p < end) {
        uint32_t code;
        if (*p != '\\') {
            *q++ = *p++;
        } else if (p[1] == 'u') {
            p += unicode_escape(p, end, &code);
            q += put_utf8(code, q);
        } else {
            const char *at = strchr(from, p[1]);
            *q++ = at ? to[at - from] : p[1];
            p += 2;
        }
    }
    *q = 0;
    return (size_t)(q - out);
}

char *jr_decode(JsonSpan s) {
    char *out = malloc(s.n + 1);
    if (out) jr_decode_to(s, out);
    return out;
}

bool jr_is(JsonSpan s, const char *text) {
    char plain[256];
    if (!memchr(s.p, '\\', s.n)) return strlen(text) == s.n && memcmp(s.p, text, s.n) == 0;
    if (s.n >= sizeof plain) return false; /* longer than any name that is asked for */
    jr_decode_to(s, plain);
    return strcmp(plain, text) == 0;
}

/* --- numbers and the rest ------------------------------------------------------------------- */

static void digits(JsonRead *r) {
    if (r->at == r->end || *r->at < '0' || *r->at > '9') jr_refuse(r, "no digit of a number");
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
}

static bool at_any(const JsonRead *r, const char *set) {
    return r->at < r->end && *r->at && strchr(set, *r->at);
}

/* Takes a number's text. */
static bool number(JsonRead *r, JsonSpan *out, bool *whole) {
    const char *p;
    if (jr_kind(r) != JR_number) return jr_refuse(r, "no number");
    p = r->at;
    if (*r->at == '-') r->at++;
    if (at_any(r, "0"))
        r->at++;
    else
        digits(r);
    *whole = !at_any(r, ".eE");
    if (at_any(r, ".")) {
        r->at++;
        digits(r);
    }
    if (at_any(r, "eE")) {
        r->at++;
        if (at_any(r, "+-")) r->at++;
        digits(r);
    }
    *out = (JsonSpan){p, (size_t)(r->at - p)};
    return !r->fault;
}

bool jr_i64(JsonRead *r, int64_t *out) {
    JsonSpan s;
    bool whole;
    if (!number(r, &s, &whole)) return false;
    bool negative = *s.p == '-';
    int64_t v = 0;
    for (size_t i = negative; whole && i < s.n; i++) {
        int digit = s.p[i] - '0';
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, negative ? -digit : digit, &v))
            return jr_refuse(r, "a number beyond 64 bits");
    }
    if (!whole) return jr_refuse(r, "no whole number");
    *out = v;
    return true;
}

/* strtod reads the point of the process's locale. */
bool jr_f64(JsonRead *r, double *out) {
    JsonSpan s;
    bool whole;
    char text[MAX_NUMBER + 16];
    if (!number(r, &s, &whole)) return false;
    if (s.n > MAX_NUMBER) return jr_refuse(r, "a number of more than 400 characters");
    const char *dot = memchr(s.p, '.', s.n);
    size_t n = dot ? (size_t)(dot - s.p) : s.n;
    snprintf(text, sizeof text, "%.*s%.8s%.*s", (int)n, s.p, dot ? localeconv()->decimal_point : "",
             dot ? (int)(s.n - n - 1) : 0, dot ? dot + 1 : "");
    *out = strtod(text, NULL);
    return isfinite(*out) || jr_refuse(r, "a number beyond the range of double");
}

static bool word(JsonRead *r, const char *w) {
    size_t n = strlen(w);
    if (peek(r) != *w || (size_t)(r->end - r->at) < n || memcmp(r->at, w, n)) return false;
    r->at += n;
    return true;
}

bool jr_bool(JsonRead *r, bool *out) {
    *out = word(r, "true");
    return *out || word(r, "false") || jr_refuse(r, "neither true nor false");
}

bool jr_null(JsonRead *r) {
    return word(r, "null") || jr_refuse(r, "not null");
}

static bool skip_scalar(JsonRead *r) {
    JsonSpan s;
    bool any;
    switch (jr_kind(r)) {
    case JR_null: return jr_null(r);
    case JR_bool: return jr_bool(r, &any);
    case JR_number: return number(r, &s, &any);
    case JR_string: return jr_string(r, &s);
    default: return jr_refuse(r, "no value");
    }
}

bool jr_skip(JsonRead *r) {
    uint32_t from = r->depth;
    JsonSpan key;
    do {
        JsonKind k = jr_kind(r);
        if (k == JR_object || k == JR_array)
            enter(r, k == JR_object);
        else
            skip_scalar(r);
        while (!r->fault && r->depth > from && !(in_object(r) ? jr_key(r, &key) : jr_item(r))) {}
    } while (!r->fault && r->depth > from);
    return !r->fault;
}

bool jr_end(JsonRead *r) {
    if (r->fault) return false;
    if (peek(r) || r->at < r->end) return jr_refuse(r, "more text after the value");
    return !r->depth || jr_refuse(r, "a value without its end");
}
