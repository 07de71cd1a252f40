#include "frontend/import/prescan.h"
#include "onnx.pb-c.h"
#include "runtime/base/check.h"
#include <stdlib.h>
#include <string.h>

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };
#define RAW_DATA_FIELD 9
#define MAX_MESSAGES   (1u << 24)

/* A message that is open: its end in the input, and where its length must be patched in the output.
 * The patched length is written in as many bytes as the input used (varints may be padded), so the
 * content can shrink without anything moving. */
typedef struct Frame {
    const ProtobufCMessageDescriptor *type;
    uint64_t end;
    size_t length_at, length_width, content_at;
    uint64_t seen; /* singular fields with numbers below 64 that have occurred */
} Frame;

typedef struct Scan {
    const uint8_t *in;
    uint64_t pos, size;
    uint8_t *out;
    size_t n;
    Frame frame[PRESCAN_MAX_DEPTH];
    uint32_t depth, messages;
    DiagSink *diags;
    graphc_status status;
} Scan;

static bool scan_fail(Scan *s, DiagId id, const char *what) {
    s->status = diag(s->diags, id, "", "invalid ONNX protobuf at byte %llu: %s",
                     (unsigned long long)s->pos, what);
    return false;
}

static bool read_varint(Scan *s, uint64_t end, uint64_t *out) {
    uint64_t v = 0;
    for (uint32_t shift = 0; shift < 70; shift += 7) {
        if (s->pos >= end) return scan_fail(s, D_WIRE, "a number is cut short");
        uint8_t b = s->in[s->pos++];
        if (shift == 63 && b > 1) return scan_fail(s, D_WIRE, "a number exceeds 64 bits");
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *out = v;
            return true;
        }
    }
    return scan_fail(s, D_WIRE, "a number exceeds 64 bits");
}

static void emit(Scan *s, const uint8_t *p, size_t n) {
    if (n) memcpy(s->out + s->n, p, n);
    s->n += n;
}

static void write_padded(uint8_t *p, size_t width, uint64_t v) {
    for (size_t i = 0; i < width; i++) {
        p[i] = (uint8_t)((v & 0x7f) | (i + 1 < width ? 0x80u : 0));
        v >>= 7;
    }
}

/* Accepts exactly the well-formed UTF-8 of the Unicode standard, without NUL. */
static bool valid_utf8(const uint8_t *p, uint64_t n) {
    for (uint64_t i = 0; i < n;) {
        uint8_t b = p[i++];
        if (b == 0) return false;
        if (b < 0x80) continue;
        uint32_t more = b >= 0xf0 ? 3 : b >= 0xe0 ? 2 : 1;
        if (b < 0xc2 || b > 0xf4 || n - i < more) return false;
        uint32_t code = b & (0x3fu >> more);
        for (uint32_t k = 0; k < more; k++) {
            if ((p[i] & 0xc0) != 0x80) return false;
            code = code << 6 | (p[i++] & 0x3fu);
        }
        if (more == 2 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) return false;
        if (more == 3 && (code < 0x10000 || code > 0x10ffff)) return false;
    }
    return true;
}

static bool is_fixed32(ProtobufCType t) {
    return t == PROTOBUF_C_TYPE_FLOAT || t == PROTOBUF_C_TYPE_FIXED32 ||
           t == PROTOBUF_C_TYPE_SFIXED32;
}

static bool is_fixed64(ProtobufCType t) {
    return t == PROTOBUF_C_TYPE_DOUBLE || t == PROTOBUF_C_TYPE_FIXED64 ||
           t == PROTOBUF_C_TYPE_SFIXED64;
}

static bool is_length_delimited(ProtobufCType t) {
    return t == PROTOBUF_C_TYPE_STRING || t == PROTOBUF_C_TYPE_BYTES ||
           t == PROTOBUF_C_TYPE_MESSAGE;
}

/* The wire type a field must have; packed repeated scalars may also be length-delimited. */
static bool wire_fits(const ProtobufCFieldDescriptor *f, uint32_t wire) {
    if (is_length_delimited(f->type)) return wire == WIRE_BYTES;
    if (wire == WIRE_BYTES) return f->label == PROTOBUF_C_LABEL_REPEATED;
    if (is_fixed32(f->type)) return wire == WIRE_FIXED32;
    if (is_fixed64(f->type)) return wire == WIRE_FIXED64;
    return wire == WIRE_VARINT;
}

static bool check_single(Scan *s, Frame *fr, const ProtobufCFieldDescriptor *f) {
    if (f->label == PROTOBUF_C_LABEL_REPEATED || f->id >= 64) return true;
    if (fr->seen >> f->id & 1) return scan_fail(s, D_WIRE, "a singular field occurs twice");
    fr->seen |= (uint64_t)1 << f->id;
    return true;
}

/* Packed scalars: the payload must hold whole elements. */
static bool check_packed(Scan *s, const ProtobufCFieldDescriptor *f, uint64_t len) {
    const uint64_t end = s->pos + len, start = s->pos;
    if (is_fixed32(f->type) || is_fixed64(f->type)) {
        if (len % (is_fixed32(f->type) ? 4 : 8))
            return scan_fail(s, D_WIRE, "a packed list ends inside an element");
        return true;
    }
    for (uint64_t v; s->pos < end;)
        if (!read_varint(s, end, &v)) return false;
    s->pos = start;
    return true;
}

static void emit_handle(Scan *s, size_t length_at, size_t width, uint64_t len) {
    uint8_t handle[PRESCAN_HANDLE] = {0};
    memcpy(handle, &s->pos, 8);
    memcpy(handle + 8, &len, 8);
    write_padded(s->out + length_at, width, PRESCAN_HANDLE);
    emit(s, handle, sizeof handle);
}

static bool open_message(Scan *s, const ProtobufCFieldDescriptor *f, uint64_t len,
                         size_t length_at) {
    if (s->depth == PRESCAN_MAX_DEPTH)
        return scan_fail(s, D_LIMIT, "messages nest more than 100 deep");
    if (++s->messages > MAX_MESSAGES)
        return scan_fail(s, D_LIMIT, "the file holds more than 16,777,216 messages");
    s->frame[s->depth++] = (Frame){.type = f->descriptor,
                                   .end = s->pos + len,
                                   .length_at = length_at,
                                   .length_width = s->n - length_at,
                                   .content_at = s->n};
    return true;
}

/* A length-delimited field; tag and length have been read, only the tag has been emitted. */
static bool scan_bytes(Scan *s, const Frame *fr, const ProtobufCFieldDescriptor *f,
                       uint64_t length_from, uint64_t len) {
    const size_t length_at = s->n;
    emit(s, s->in + length_from, (size_t)(s->pos - length_from));
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) return open_message(s, f, len, length_at);
    if (!is_length_delimited(f->type) && !check_packed(s, f, len)) return false;
    if (f->type == PROTOBUF_C_TYPE_STRING && !valid_utf8(s->in + s->pos, len))
        return scan_fail(s, D_WIRE, "a string is not valid UTF-8 or holds a NUL");
    if (fr->type == &onnx__tensor_proto__descriptor && f->id == RAW_DATA_FIELD &&
        len >= PRESCAN_HANDLE)
        emit_handle(s, length_at, s->n - length_at, len);
    else
        emit(s, s->in + s->pos, (size_t)len);
    s->pos += len;
    return true;
}

/* Reads one field's value, which ends at or before fr->end. f is NULL for unknown fields: they are
 * checked for length and dropped. */
static bool scan_value(Scan *s, Frame *fr, const ProtobufCFieldDescriptor *f, uint32_t wire) {
    const uint64_t from = s->pos;
    uint64_t v = 0;
    if (wire == WIRE_VARINT || wire == WIRE_BYTES) {
        if (!read_varint(s, fr->end, &v)) return false;
    } else if (wire == WIRE_FIXED64 || wire == WIRE_FIXED32) {
        uint64_t width = wire == WIRE_FIXED64 ? 8 : 4;
        if (fr->end - s->pos < width) return scan_fail(s, D_WIRE, "a number is cut short");
        s->pos += width;
    } else {
        return scan_fail(s, D_WIRE, "a group or an unknown wire type");
    }
    if (wire != WIRE_BYTES) {
        if (f) emit(s, s->in + from, (size_t)(s->pos - from));
        return true;
    }
    if (v > fr->end - s->pos) return scan_fail(s, D_WIRE, "a field is longer than its message");
    if (f) return scan_bytes(s, fr, f, from, v);
    s->pos += v;
    return true;
}

static bool scan_field(Scan *s) {
    Frame *fr = &s->frame[s->depth - 1];
    const uint64_t from = s->pos;
    uint64_t tag;
    if (!read_varint(s, fr->end, &tag)) return false;
    const uint64_t number = tag >> 3;
    const uint32_t wire = (uint32_t)(tag & 7);
    if (number == 0 || number > 0x1fffffff) return scan_fail(s, D_WIRE, "a bad field number");
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field(fr->type, (unsigned)number);
    if (f) {
        if (!wire_fits(f, wire)) return scan_fail(s, D_WIRE, "a field has the wrong wire type");
        if (!check_single(s, fr, f)) return false;
        emit(s, s->in + from, (size_t)(s->pos - from));
    }
    return scan_value(s, fr, f, wire);
}

static void close_frame(Scan *s) {
    const Frame *fr = &s->frame[--s->depth];
    if (fr->length_width)
        write_padded(s->out + fr->length_at, fr->length_width, s->n - fr->content_at);
}

graphc_status prescan(const ProtobufCMessageDescriptor *root, const uint8_t *data, uint64_t size,
                      DiagSink *d, Prescan *out) {
    /* The result is never longer than the input. Pages that stay untouched cost nothing. */
    *out = (Prescan){.data = malloc(size ? (size_t)size : 1), .file_size = size};
    if (!out->data)
        return diag(d, D_NO_MEMORY, "", "no memory to read %llu bytes", (unsigned long long)size);
    Scan s = {.in = data, .size = size, .out = out->data, .depth = 1, .diags = d};
    s.frame[0] = (Frame){.type = root, .end = size};
    while (s.depth > 0) {
        if (s.pos == s.frame[s.depth - 1].end) {
            close_frame(&s);
        } else if (!scan_field(&s)) {
            prescan_free(out);
            return s.status;
        }
    }
    out->size = s.n;
    return GRAPHC_OK;
}

void prescan_free(Prescan *p) {
    free(p->data);
    p->data = NULL;
}

/* protobuf-c's memory: one bump list with a budget, freed as a whole, which is also much faster
 * than one malloc per string. */
typedef struct Chunk {
    struct Chunk *next;
    size_t used, cap;
    max_align_t mem[];
} Chunk;

struct PrescanMessage {
    Chunk *chunks;
    uint64_t used, budget;
    bool no_memory; /* malloc gave none */
    ProtobufCAllocator allocator;
    ProtobufCMessage *root;
};

#define CHUNK_BYTES ((size_t)1 << 16)

static void *message_alloc(void *data, size_t n) {
    PrescanMessage *m = data;
    if (n > SIZE_MAX - sizeof(max_align_t)) return NULL;
    n = (n + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (n > m->budget - m->used) return NULL;
    Chunk *c = m->chunks;
    if (!c || c->cap - c->used < n) {
        size_t cap = n > CHUNK_BYTES ? n : CHUNK_BYTES;
        c = malloc(sizeof *c + cap);
        m->no_memory = !c;
        if (!c) return NULL;
        *c = (Chunk){.next = m->chunks, .cap = cap};
        m->chunks = c;
    }
    void *p = (char *)c->mem + c->used;
    c->used += n;
    m->used += n;
    return p;
}

static void message_free_nothing(void *data, void *p) {
    (void)data;
    (void)p;
}

PrescanMessage *prescan_unpack(const Prescan *p, const ProtobufCMessageDescriptor *root,
                               DiagSink *d) {
    PrescanMessage *m = calloc(1, sizeof *m);
    if (!m) return (void)diag(d, D_NO_MEMORY, "", "no memory to read the model"), NULL;
    m->budget = ((uint64_t)64 << 20) + 32 * p->file_size;
    m->allocator = (ProtobufCAllocator){message_alloc, message_free_nothing, m};
    m->root = protobuf_c_message_unpack(root, &m->allocator, p->size, p->data);
    if (m->root) return m;
    if (m->no_memory)
        diag(d, D_NO_MEMORY, "", "no memory to read the model");
    else if (m->budget - m->used < CHUNK_BYTES)
        diag(d, D_LIMIT, "", "decoding needs more than %llu bytes", (unsigned long long)m->budget);
    else
        diag(d, D_WIRE, "", "protobuf-c cannot decode the %s", root->short_name);
    prescan_message_free(m);
    return NULL;
}

ProtobufCMessage *prescan_root(PrescanMessage *m) {
    return m->root;
}

void prescan_message_free(PrescanMessage *m) {
    if (!m) return;
    for (Chunk *c = m->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(m);
}
