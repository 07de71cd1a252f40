/* TensorProto -> Constant. Payloads that already have graphc's memory form stay where they are: in
 * the model's mapping or in that of an external data file. Everything else is converted into the
 * arena. */
#include "frontend/import/import_impl.h"
#include "runtime/base/check.h"
#include <stdio.h>
#include <string.h>

#define MAX_ELEMENTS ((uint64_t)1 << 48)
/* Misaligned payloads up to this size are copied to aligned memory; larger ones stay mapped. */
#define COPY_LIMIT ((uint64_t)1 << 20)

typedef struct TensorReader {
    Model *model;
    Arena *arena;
    DiagSink *diags;
    const Onnx__TensorProto *t;
    const char *what;
    DType dtype;
    uint64_t count;  /* elements */
    uint64_t packed; /* bytes of raw_data */
    bool ok;
} TensorReader;

static bool tensor_fail(TensorReader *r, DiagId id, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static bool tensor_fail(TensorReader *r, DiagId id, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *text = arena_vprintf(r->arena, fmt, ap);
    va_end(ap);
    diag(r->diags, id, r->what, "%s", text);
    return false;
}

static bool read_shape(TensorReader *r, uint32_t *rank, int64_t *dim) {
    const Onnx__TensorProto *t = r->t;
    if (!dtype_from_onnx(t->data_type, &r->dtype))
        return tensor_fail(r, D_UNSUPPORTED_TYPE, "element type %s (%d) is not supported",
                           dtype_onnx_name(t->data_type), t->data_type);
    if (t->n_dims > GRAPH_MAX_RANK)
        return tensor_fail(r, D_LIMIT, "rank %zu exceeds %d", t->n_dims, GRAPH_MAX_RANK);
    if (t->segment) return tensor_fail(r, D_UNSUPPORTED, "segmented tensors are not supported");
    r->count = 1;
    for (size_t i = 0; i < t->n_dims; i++) {
        if (t->dims[i] < 0) return tensor_fail(r, D_TENSOR, "dimension %zu is negative", i);
        if (!check_mul(r->count, (uint64_t)t->dims[i], &r->count) || r->count > MAX_ELEMENTS)
            return tensor_fail(r, D_LIMIT, "the shape has more than 2^48 elements");
        dim[i] = t->dims[i];
    }
    *rank = (uint32_t)t->n_dims;
    r->packed = (r->count * dtype_info[r->dtype].bits + 7) / 8;
    return true;
}

static bool is_sub_byte(DType t) {
    return dtype_info[t].bits < 8;
}

/* Packed elements, lowest bits first, to one element per byte. Signed types are sign-extended. */
static void unpack(DType t, const uint8_t *p, uint64_t count, uint8_t *out) {
    const uint32_t bits = dtype_info[t].bits, per = 8 / bits, mask = (1u << bits) - 1;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t v = (uint32_t)p[i / per] >> (i % per * bits) & mask;
        if (dtype_is_signed(t) && v >> (bits - 1)) v |= ~mask & 0xffu;
        out[i] = (uint8_t)v;
    }
}

/* Payload bytes as they lie in a file. */
static bool use_raw(TensorReader *r, const uint8_t *p, uint64_t n, Constant *out) {
    if (n != r->packed)
        return tensor_fail(r, D_TENSOR, "the data has %llu bytes, the shape and type need %llu",
                           (unsigned long long)n, (unsigned long long)r->packed);
    const uint64_t bytes = r->count * dtype_bytes(r->dtype);
    out->bytes = bytes;
    if (is_sub_byte(r->dtype)) {
        uint8_t *q = arena_alloc(r->arena, (size_t)bytes);
        unpack(r->dtype, p, r->count, q);
        out->data = q;
        out->file = 0;
    } else if (out->file == 0 && bytes <= COPY_LIMIT) {
        out->data = n ? arena_copy(r->arena, p, (size_t)bytes) : arena_alloc(r->arena, 0);
    } else {
        out->data = p;
    }
    return true;
}

static bool parse_u64(const char *s, uint64_t *out) {
    uint64_t v = 0;
    if (!*s) return false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9') return false;
        if (!check_mul(v, 10, &v) || !check_add(v, (uint64_t)(*s - '0'), &v)) return false;
    }
    *out = v;
    return true;
}

typedef struct ExternalPlace {
    const char *location;
    uint64_t offset, length;
    bool has_offset, has_length, has_checksum;
} ExternalPlace;

static bool read_number(TensorReader *r, const char *key, const char *text, bool *seen,
                        uint64_t *out) {
    if (*seen) return tensor_fail(r, D_EXTERNAL, "external data key \"%s\" occurs twice", key);
    *seen = true;
    if (!parse_u64(text, out))
        return tensor_fail(r, D_EXTERNAL, "external data %s is not a number", key);
    return true;
}

/* Free-form keys have been an attack on other readers: only these four are known. */
static bool read_place(TensorReader *r, ExternalPlace *p) {
    *p = (ExternalPlace){0};
    for (size_t i = 0; i < r->t->n_external_data; i++) {
        const char *key = text_or_empty(r->t->external_data[i]->key);
        const char *value = text_or_empty(r->t->external_data[i]->value);
        if (!strcmp(key, "location")) {
            if (p->location) return tensor_fail(r, D_EXTERNAL, "two external data locations");
            p->location = value;
        } else if (!strcmp(key, "offset")) {
            if (!read_number(r, key, value, &p->has_offset, &p->offset)) return false;
        } else if (!strcmp(key, "length")) {
            if (!read_number(r, key, value, &p->has_length, &p->length)) return false;
        } else if (!strcmp(key, "checksum") && !p->has_checksum) {
            p->has_checksum = true;
        } else {
            return tensor_fail(r, D_EXTERNAL, "unknown external data key");
        }
    }
    if (!p->location || !*p->location)
        return tensor_fail(r, D_EXTERNAL, "external data without a location");
    return true;
}

/* Bytes of external data that the caller gives. */
static graphc_status side_given(const Model *m, const char *location, FileMap *out, char why[256]) {
    const char *fault = file_path_fault(location);
    const void *data = NULL;
    size_t size = 0;
    graphc_status s = GRAPHC_INVALID;
    if (!fault && !m->from.external)
        fault = "the model lies in memory, and nothing says where its external data is";
    if (!fault) s = m->from.external(m->from.ctx, location, &data, &size);
    if (!fault && s != GRAPHC_OK) fault = "was not given";
    if (!fault && !data && size) fault = "was given without bytes", s = GRAPHC_INVALID;
    if (fault) snprintf(why, 256, "%s", fault);
    *out = (FileMap){.data = data, .size = size, .lent = true};
    return s;
}

static graphc_status side_open(const Model *m, const char *location, FileMap *out, char why[256]) {
    if (m->from.external || m->from.bytes) return side_given(m, location, out, why);
    FileLinks links = m->from.links;
    links.of_base = true;
    return file_map_beneath(m->path, location, links, out, why);
}

/* 1-based number of a side file, opened at its first use; 0 after an error, which is reported once.
 */
static uint32_t side_file(TensorReader *r, const char *location) {
    Model *m = r->model;
    FileMap map;
    uint32_t known;
    if (!m->side_index) m->side_index = mapstr_create(r->arena);
    if (mapstr_get(m->side_index, location, &known)) return known;
    char why[256];
    graphc_status s = side_open(m, location, &map, why);
    if (s != GRAPHC_OK) {
        DiagId id = s == GRAPHC_IO          ? D_IO
                    : s == GRAPHC_NO_MEMORY ? D_NO_MEMORY
                    : s == GRAPHC_CANCELLED ? D_CANCELLED
                                            : D_EXTERNAL;
        tensor_fail(r, id, "external data \"%s\": %s", location, why);
        if (strstr(why, "symbolic link"))
            diag_hint(r->diags, "--weights-root DIR allows files in that folder, --allow-links all "
                                "(weights_root, allow_links)");
        mapstr_put(m->side_index, location, 0);
        return 0;
    }
    vec_push(r->arena, &m->side, map);
    vec_push(r->arena, &m->side_names, arena_strdup(r->arena, location));
    mapstr_put(m->side_index, location, m->side.n);
    return m->side.n;
}

/* Said of one tensor: of a file that was cut short all behind it lack theirs. */
static bool too_short(TensorReader *r, const ExternalPlace *p, uint64_t length, size_t size) {
    tensor_fail(r, D_EXTERNAL,
                "external data \"%s\" has %llu bytes; %llu at offset %llu are needed", p->location,
                (unsigned long long)size, (unsigned long long)length,
                (unsigned long long)p->offset);
    diag_hint(r->diags, "is the file whole, and this model's?");
    mapstr_put(r->model->side_index, p->location, 0);
    return false;
}

static bool use_external(TensorReader *r, Constant *out) {
    ExternalPlace p;
    if (!r->model) return tensor_fail(r, D_EXTERNAL, "external data is not allowed here");
    if (!read_place(r, &p)) return false;
    const uint32_t file = side_file(r, p.location);
    if (!file) return false;
    const FileMap *map = &r->model->side.v[file - 1];
    const uint64_t length = p.has_length ? p.length : r->packed;
    if (!check_span(p.offset, length, map->size)) return too_short(r, &p, length, map->size);
    out->file = file;
    out->offset = p.offset;
    out->file_size = map->size;
    return use_raw(r, map->data + p.offset, length, out);
}

static bool use_raw_field(TensorReader *r, Constant *out) {
    const ProtobufCBinaryData *raw = &r->t->raw_data;
    if (raw->len != PRESCAN_HANDLE) return use_raw(r, raw->data, raw->len, out);
    uint64_t offset, length;
    memcpy(&offset, raw->data, 8);
    memcpy(&length, raw->data + 8, 8);
    return use_raw(r, r->model->file.data + offset, length, out);
}

static bool expect_count(TensorReader *r, const char *field, size_t have, uint64_t want) {
    if (have == want) return true;
    return tensor_fail(r, D_TENSOR, "%s has %zu values, the shape and type need %llu", field, have,
                       (unsigned long long)want);
}

/* int32_data holds every type of at most 32 bits: integers as values, 16-bit and 8-bit floats as
 * bit patterns, sub-byte types as packed bytes. */
static bool use_int32(TensorReader *r, uint8_t *out) {
    const Onnx__TensorProto *t = r->t;
    const size_t bytes = dtype_bytes(r->dtype);
    if (is_sub_byte(r->dtype)) {
        if (!expect_count(r, "int32_data", t->n_int32_data, r->packed)) return false;
        uint8_t *packed = arena_alloc(r->arena, (size_t)r->packed);
        for (uint64_t i = 0; i < r->packed; i++) packed[i] = (uint8_t)t->int32_data[i];
        unpack(r->dtype, packed, r->count, out);
        return true;
    }
    if (!expect_count(r, "int32_data", t->n_int32_data, r->count)) return false;
    for (uint64_t i = 0; i < r->count; i++) {
        uint32_t v = (uint32_t)t->int32_data[i]; /* low bytes first: the host is little-endian */
        if (r->dtype == DT_bool) v = v != 0;
        memcpy(out + i * bytes, &v, bytes);
    }
    return true;
}

static bool use_uint64(TensorReader *r, uint8_t *out) {
    const size_t bytes = dtype_bytes(r->dtype);
    if (!expect_count(r, "uint64_data", r->t->n_uint64_data, r->count)) return false;
    for (uint64_t i = 0; i < r->count; i++) memcpy(out + i * bytes, &r->t->uint64_data[i], bytes);
    return true;
}

static bool copy_field(TensorReader *r, const char *name, const void *p, size_t n, uint8_t *out) {
    if (!expect_count(r, name, n, r->count)) return false;
    if (n) memcpy(out, p, n * dtype_bytes(r->dtype));
    return true;
}

static bool use_typed(TensorReader *r, Constant *out) {
    const Onnx__TensorProto *t = r->t;
    /* No allocation before it is known that the file has that many values. */
    const uint64_t have = (uint64_t)t->n_float_data + t->n_int32_data + t->n_int64_data +
                          t->n_double_data + t->n_uint64_data;
    if (r->count > 4 * have) return expect_count(r, "the tensor", (size_t)have, r->count);
    out->bytes = r->count * dtype_bytes(r->dtype);
    uint8_t *p = arena_alloc(r->arena, (size_t)out->bytes);
    out->data = p;
    switch (r->dtype) {
    case DT_f32: return copy_field(r, "float_data", t->float_data, t->n_float_data, p);
    case DT_f64: return copy_field(r, "double_data", t->double_data, t->n_double_data, p);
    case DT_i64: return copy_field(r, "int64_data", t->int64_data, t->n_int64_data, p);
    case DT_u64:
    case DT_u32: return use_uint64(r, p);
    default: return use_int32(r, p);
    }
}

bool tensor_constant(Model *m, Arena *a, DiagSink *d, const Onnx__TensorProto *t, const char *what,
                     DType *dtype, uint32_t *rank, int64_t dim[GRAPH_MAX_RANK], Constant *out) {
    TensorReader r = {.model = m, .arena = a, .diags = d, .t = t, .what = what};
    *out = (Constant){.name = arena_strdup(a, text_or_empty(t->name))};
    if (!read_shape(&r, rank, dim)) return false;
    *dtype = r.dtype;
    const bool typed = t->n_float_data || t->n_int32_data || t->n_int64_data || t->n_double_data ||
                       t->n_uint64_data || t->n_string_data;
    const bool raw = t->has_raw_data && t->raw_data.len;
    if (t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
        if (raw || typed)
            return tensor_fail(&r, D_TENSOR, "both external and embedded data are present");
        return use_external(&r, out);
    }
    if (raw && typed) return tensor_fail(&r, D_TENSOR, "both raw_data and typed data are present");
    return raw ? use_raw_field(&r, out) : use_typed(&r, out);
}

bool tensor_build(Importer *im, Graph *g, const Onnx__TensorProto *t, const char *what,
                  Value *out) {
    Type type = {0};
    uint32_t rank;
    int64_t dim[GRAPH_MAX_RANK];
    Constant c;
    *out = 0;
    if (!tensor_constant(im->model, im->arena, im->diags, t, what, &type.dtype, &rank, dim, &c))
        return false;
    type.rank = (uint8_t)rank;
    for (uint32_t i = 0; i < rank; i++) type.dim[i] = expr_const(im->exprs, dim[i]);
    *out = build_const(g, type, c);
    return *out != 0;
}
