/* libFuzzer changes protobuf messages field by field, so that the lengths around a change stay
 * right: bytes changed at random end a message's reading at the first length that no longer fits */
#ifndef TESTS_FUZZ_WIRE_H
#define TESTS_FUZZ_WIRE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t most, unsigned seed);

enum { WIRE_FIELDS = 512, WIRE_DEPTH = 12, WIRE_MOST = 4096, WIRE_VARINT = 0, WIRE_LENGTH = 2 };

typedef struct WireField {
    size_t start, content, end; /* offsets: of the tag, of what follows tag and length, behind it */
    unsigned type;
} WireField;

/* A place in the message: fields that lie around it, outermost first, and the fields at it. */
typedef struct Wire {
    uint8_t *bytes;
    size_t size, most;
    WireField around[WIRE_DEPTH], field[WIRE_FIELDS];
    unsigned depth, fields;
    unsigned state; /* of the random numbers */
} Wire;

static unsigned wire_draw(Wire *w, unsigned n) {
    w->state = w->state * 1664525u + 1013904223u;
    return (w->state >> 8) % n;
}

static bool wire_varint(const uint8_t *b, size_t end, size_t *at, uint64_t *v) {
    *v = 0;
    for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
        const uint8_t byte = b[(*at)++];
        *v |= (uint64_t)(byte & 127) << shift;
        if (!(byte & 128)) return true;
    }
    return false;
}

static size_t wire_put(uint8_t *to, uint64_t v) {
    size_t n = 0;
    for (; v > 127; v >>= 7) to[n++] = (uint8_t)(v | 128);
    to[n++] = (uint8_t)v;
    return n;
}

/* One field from *at on. */
static bool wire_field(const uint8_t *b, size_t end, size_t *at, WireField *f) {
    uint64_t tag, n = 0;
    f->start = *at;
    if (!wire_varint(b, end, at, &tag) || tag >> 3 == 0) return false;
    f->type = (unsigned)tag & 7;
    f->content = *at;
    if (f->type == WIRE_VARINT) {
        if (!wire_varint(b, end, at, &n)) return false;
        n = 0;
    } else if (f->type == WIRE_LENGTH) {
        if (!wire_varint(b, end, at, &n)) return false;
        f->content = *at;
    } else if (f->type == 1 || f->type == 5)
        n = f->type == 1 ? 8 : 4;
    else
        return false;
    if (n > end - *at) return false;
    f->end = *at += (size_t)n;
    return true;
}

/* Whether the bytes are a message: then its fields are the place's. */
static bool wire_parse(Wire *w, size_t start, size_t end) {
    w->fields = 0;
    for (size_t at = start; at < end && w->fields < WIRE_FIELDS;)
        if (!wire_field(w->bytes, end, &at, &w->field[w->fields++])) return false;
    return w->fields > 0;
}

/* Goes into fields that are messages, however deep chance leads. */
static void wire_descend(Wire *w) {
    while (w->depth < WIRE_DEPTH && wire_draw(w, 5) != 0) {
        const WireField f = w->field[wire_draw(w, w->fields)];
        const size_t end = w->depth ? w->around[w->depth - 1].end : w->size,
                     start = w->depth ? w->around[w->depth - 1].content : 0;
        if (f.type == WIRE_LENGTH && wire_parse(w, f.content, f.end)) {
            w->around[w->depth++] = f;
            continue;
        }
        wire_parse(w, start, end);
        if (wire_draw(w, 2)) return;
    }
}

/* Bytes start to end become n others; false when there is no room. */
static bool wire_replace(Wire *w, size_t start, size_t end, const uint8_t *with, size_t n) {
    if (w->size - (end - start) + n > w->most) return false;
    memmove(w->bytes + start + n, w->bytes + end, w->size - end);
    if (n) memcpy(w->bytes + start, with, n);
    w->size = w->size - (end - start) + n;
    return true;
}

/* The same within the place, and the lengths of what lies around it follow. */
static bool wire_change(Wire *w, size_t start, size_t end, const uint8_t *with, size_t n) {
    ptrdiff_t grown = (ptrdiff_t)n - (ptrdiff_t)(end - start);
    if (!wire_replace(w, start, end, with, n)) return false;
    for (unsigned i = w->depth; i-- > 0;) {
        const WireField *f = &w->around[i];
        uint8_t length[10];
        uint64_t tag;
        size_t at = f->start; /* then where the length begins */
        wire_varint(w->bytes, f->content, &at, &tag);
        const size_t k = wire_put(length, (uint64_t)((ptrdiff_t)(f->end - f->content) + grown));
        if (!wire_replace(w, at, f->content, length, k)) return false;
        grown += (ptrdiff_t)k - (ptrdiff_t)(f->content - at);
    }
    return true;
}

static uint64_t wire_number(Wire *w, uint64_t old) {
    static const uint64_t odd[] = {
        0,         1,          2,         UINT64_MAX,          127,        128,        255,
        INT32_MAX, UINT32_MAX, INT64_MAX, (uint64_t)INT64_MIN, 1ull << 31, 1ull << 32, 1ull << 62,
        1ull << 20};
    switch (wire_draw(w, 4)) {
    case 0: return old + 1;
    case 1: return old - 1;
    case 2: return wire_draw(w, 20);
    default: return odd[wire_draw(w, sizeof odd / sizeof *odd)];
    }
}

/* The content of field f, which is of WIRE_LENGTH, becomes n bytes. */
static bool wire_fill(Wire *w, const WireField *f, const uint8_t *with, size_t n) {
    uint8_t all[WIRE_MOST + 10];
    uint64_t tag;
    size_t at = f->start;
    wire_varint(w->bytes, f->content, &at, &tag);
    const size_t k = wire_put(all, n);
    memcpy(all + k, with, n);
    return wire_change(w, at, f->end, all, k + n);
}

/* Short contents seen before: names of operators, attributes and values. */
static bool wire_remembered(Wire *w, const WireField *f) {
    static struct { uint8_t size, bytes[32]; } seen[512];
    const size_t n = f->end - f->content;
    if (n > 0 && n <= sizeof seen[0].bytes) {
        const unsigned i = wire_draw(w, 512);
        memcpy(seen[i].bytes, w->bytes + f->content, n);
        seen[i].size = (uint8_t)n;
    }
    const unsigned i = wire_draw(w, 512);
    return seen[i].size && wire_fill(w, f, seen[i].bytes, seen[i].size);
}

/* The content of a field: a number, or bytes as libFuzzer changes them. */
static bool wire_content(Wire *w, const WireField *f) {
    uint8_t with[WIRE_MOST];
    size_t n = f->end - f->content, at = f->content;
    if (f->type == WIRE_VARINT) {
        uint64_t v = 0;
        wire_varint(w->bytes, f->end, &at, &v);
        return wire_change(w, f->content, f->end, with, wire_put(with, wire_number(w, v)));
    }
    if (n > sizeof with) return false;
    memcpy(with, w->bytes + f->content, n);
    if (f->type == WIRE_LENGTH)
        return wire_fill(w, f, with, LLVMFuzzerMutate(with, n, sizeof with));
    return LLVMFuzzerMutate(with, n, n) == n && wire_change(w, f->content, f->end, with, n);
}

static bool wire_mutate(Wire *w) {
    if (!wire_parse(w, 0, w->size)) return false;
    wire_descend(w);
    if (!w->fields) return false;
    const WireField f = w->field[wire_draw(w, w->fields)], g = w->field[wire_draw(w, w->fields)];
    const size_t n = g.end - g.start;
    uint8_t *copy = malloc(n + 1);
    bool ok = copy != NULL;
    if (ok) memcpy(copy, w->bytes + g.start, n);
    switch (ok ? wire_draw(w, 8) : 0) {
    case 0: ok = ok && wire_change(w, f.start, f.end, NULL, 0); break;
    case 1: ok = wire_change(w, f.start, f.start, copy, n); break; /* one more */
    case 2: ok = wire_change(w, f.start, f.end, copy, n); break;   /* in its place */
    case 3:
    case 4: ok = f.type == WIRE_LENGTH && wire_remembered(w, &f); break;
    default: ok = wire_content(w, &f);
    }
    free(copy);
    return ok;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t most, unsigned seed) {
    static Wire w;
    w.bytes = bytes, w.size = size, w.most = most, w.state = seed, w.depth = 0;
    if (wire_draw(&w, 8) == 0 || !wire_mutate(&w)) return LLVMFuzzerMutate(bytes, w.size, most);
    return w.size;
}
#endif
