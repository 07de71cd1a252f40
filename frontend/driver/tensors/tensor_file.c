#include "frontend/driver/tensors/tensor_file.h"
#include "frontend/driver/tensors/npy.h"
#include "frontend/driver/tensors/npz.h"
#include "frontend/import/import.h"
#include "onnx.pb-c.h"
#include "runtime/base/file.h"
#include "runtime/base/strbuf.h"
#include "runtime/train/safetensors.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* The file's errors, each with its name. */
static graphc_status read_pb(Arena *a, DiagSink *d, const char *path, const FileMap *m,
                             EvalTensor *out) {
    DiagSink *own = diag_create(a, NULL);
    ImportTensor t;
    const ImportSource from = {.bytes = m->size ? m->data : (const uint8_t *)"", .size = m->size};
    if (import_tensor(a, own, path, &from, &t) != GRAPHC_OK) {
        for (uint32_t i = 0; i < diag_count(own); i++) {
            const Diag *e = diag_at(own, i);
            (void)diag(d, e->id, path, "%s%s",
                       e->id == D_WIRE ? "neither .npy nor an ONNX tensor: " : "", e->text);
        }
        return diag_status(own);
    }
    *out = (EvalTensor){.dtype = t.dtype, .rank = (uint8_t)t.rank};
    memcpy(out->dim, t.dim, sizeof out->dim);
    out->data = arena_copy(a, t.data, (size_t)tensor_numel(out) * dtype_bytes(t.dtype));
    return GRAPHC_OK;
}

/* --- Files of several tensors --------------------------------------------------------------- */

static graphc_status failed(DiagSink *d, const char *path, graphc_status s, const char *why) {
    return diag(d, s == GRAPHC_UNSUPPORTED ? D_UNSUPPORTED_TYPE : D_TENSOR, path, "%s", why);
}

/* Which of n names is meant: `name`, or the only one. */
static graphc_status choose(Arena *a, DiagSink *d, const char *path, const char *name,
                            const char *const *names, uint32_t n, uint32_t *out) {
    enum { SHOWN = 32 };
    StrBuf list;
    sb_init(&list, a);
    for (uint32_t i = 0; i < n; i++) {
        if (n == 1 || strcmp(names[i], name) == 0) return *out = i, GRAPHC_OK;
        if (i < SHOWN) sb_printf(&list, "%s\"%s\"", i ? ", " : "", names[i]);
    }
    (void)diag(d, D_TENSOR, path, "holds %u tensors, and none is called \"%s\"", n, name);
    if (n) diag_hint(d, "it has %s%s", sb_str(&list), n > SHOWN ? " ..." : "");
    return diag_info[D_TENSOR].status;
}

static graphc_status read_npz(Arena *a, DiagSink *d, const char *path, const char *name,
                              const FileMap *m, EvalTensor *out) {
    char why[256];
    const ErrorText e = {why, sizeof why};
    NpzEntries list = {0};
    uint32_t i;
    const uint8_t *bytes;
    graphc_status s = npz_list(a, m->data, m->size, &list, e);
    if (s != GRAPHC_OK) return failed(d, path, s, why);
    const char **names = ARENA_ARRAY(a, const char *, list.n);
    for (uint32_t k = 0; k < list.n; k++) names[k] = list.v[k].name;
    GC_TRY(choose(a, d, path, name, names, list.n, &i));
    s = npz_unpack(a, &list.v[i], &bytes, e);
    if (s != GRAPHC_OK) return failed(d, path, s, why);
    return npy_decode(a, d, path, bytes, (size_t)list.v[i].size, out);
}

static bool is_safetensors(const FileMap *m) {
    uint64_t n = 0;
    if (m->size < 10) return false;
    memcpy(&n, m->data, sizeof n);
    return n >= 2 && n <= m->size - 8 && m->data[8] == '{';
}

static graphc_status read_safetensors(Arena *a, DiagSink *d, const char *path, const char *name,
                                      const FileMap *m, EvalTensor *out) {
    char why[256];
    Safetensors f;
    uint32_t i = 0;
    graphc_status s = safetensors_parse(m->data, m->size, &f, (ErrorText){why, sizeof why});
    if (s != GRAPHC_OK) return failed(d, path, s, why);
    const char **names = ARENA_ARRAY(a, const char *, f.ntensors);
    for (uint32_t k = 0; k < f.ntensors; k++) names[k] = arena_strdup(a, f.tensors[k].name);
    s = choose(a, d, path, name, names, f.ntensors, &i);
    const SafeTensor *t = s == GRAPHC_OK ? &f.tensors[i] : NULL;
    if (t && t->rank > GRAPH_MAX_RANK) {
        s = diag(d, D_LIMIT, path, "rank %u exceeds %d", t->rank, GRAPH_MAX_RANK);
    } else if (t) {
        *out = (EvalTensor){.dtype = t->dtype, .rank = (uint8_t)t->rank};
        memcpy(out->dim, t->dim, sizeof *t->dim * t->rank);
        out->data = arena_copy(a, t->data, (size_t)t->bytes);
    }
    safetensors_close(&f);
    return s;
}

/* --- Any file ------------------------------------------------------------------------------- */

/* All of standard input, in the arena. */
static graphc_status read_stdin(Arena *a, FileMap *out, char why[256]) {
    size_t room = 1 << 16, n = 0;
    uint8_t *p = arena_alloc(a, room);
    for (size_t got; (got = fread(p + n, 1, room - n, stdin)) > 0;) {
        n += got;
        if (n < room) continue;
        uint8_t *more = arena_array(a, 2, room);
        memcpy(more, p, n);
        p = more;
        room *= 2;
    }
    *out = (FileMap){.data = p, .size = n, .lent = true};
    if (!ferror(stdin) && n) return GRAPHC_OK;
    snprintf(why, 256, "standard input %s", n ? "cannot be read" : "holds nothing");
    return GRAPHC_IO;
}

graphc_status tensor_file_read(Arena *a, DiagSink *d, const char *path, const char *name,
                               EvalTensor *out) {
    char why[256];
    FileMap m;
    graphc_status s = strcmp(path, "-") ? file_map(path, &m, why) : read_stdin(a, &m, why);
    if (s != GRAPHC_OK) return diag(d, D_IO, path, "%s", why);
    if (npy_is(m.data, m.size))
        s = npy_decode(a, d, path, m.data, m.size, out);
    else if (npz_is(m.data, m.size))
        s = read_npz(a, d, path, name, &m, out);
    else if (is_safetensors(&m))
        s = read_safetensors(a, d, path, name, &m, out);
    else
        s = read_pb(a, d, path, &m, out);
    file_unmap(&m);
    return s;
}

static graphc_status write_file(DiagSink *d, const char *path, const void *bytes, size_t n) {
    char why[256];
    if (file_write(path, bytes, n, why) == GRAPHC_OK) return GRAPHC_OK;
    return diag(d, D_IO, path, "%s", why);
}

graphc_status tensor_file_write_npy(Arena *a, DiagSink *d, const char *path, const EvalTensor *t) {
    void *bytes;
    size_t n;
    GC_TRY(npy_encode(a, d, path, t, &bytes, &n));
    return write_file(d, path, bytes, n);
}

/* Sub-byte elements lowest bits first, the last byte filled with zeros. */
static uint8_t *pack_elements(Arena *a, const EvalTensor *t, size_t *n) {
    uint64_t count = tensor_numel(t);
    uint32_t bits = dtype_info[t->dtype].bits, per = 8 / bits, mask = (1u << bits) - 1;
    const uint8_t *in = t->data;
    *n = (size_t)((count + per - 1) / per);
    uint8_t *out = arena_alloc(a, *n);
    for (uint64_t i = 0; i < count; i++)
        out[i / per] = (uint8_t)(out[i / per] | (in[i] & mask) << (i % per * bits));
    return out;
}

graphc_status tensor_file_write_pb(Arena *a, DiagSink *d, const char *path, const char *name,
                                   const EvalTensor *t) {
    Onnx__TensorProto p = ONNX__TENSOR_PROTO__INIT;
    size_t n = (size_t)tensor_numel(t) * dtype_bytes(t->dtype);
    p.has_data_type = 1;
    p.data_type = dtype_info[t->dtype].onnx;
    p.n_dims = t->rank;
    p.dims = arena_copy(a, t->dim, t->rank * sizeof *t->dim);
    p.name = arena_strdup(a, name);
    p.has_raw_data = 1;
    p.raw_data.data = dtype_info[t->dtype].bits < 8 ? pack_elements(a, t, &n) : t->data;
    p.raw_data.len = n;
    size_t size = onnx__tensor_proto__get_packed_size(&p);
    uint8_t *bytes = arena_alloc(a, size);
    onnx__tensor_proto__pack(&p, bytes);
    return write_file(d, path, bytes, size);
}

/* SplitMix64: the state is a counter, so element i needs no history.
 * Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014. */
static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t draw(uint64_t key, uint64_t i) {
    return mix(key + (i + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

/* Box and Muller's transform of two uniform draws. */
static double draw_normal(uint64_t key, uint64_t i) {
    double u = ((double)(draw(key, 2 * i) >> 11) + 1) * 0x1p-53;
    double v = (double)(draw(key, 2 * i + 1) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* A thread's part of a tensor. */
typedef struct Fill {
    const EvalTensor *t;
    uint64_t key, lo, hi;
    int64_t high;
} Fill;

static void *fill_part(void *ctx) {
    const Fill *f = ctx;
    const DType t = f->t->dtype;
    void *data = f->t->data;
    for (uint64_t i = f->lo; i < f->hi; i++) {
        if (t == DT_bool)
            dtype_store_i64(t, data, i, (int64_t)(draw(f->key, i) >> 63));
        else if (dtype_is_float(t))
            dtype_store_f64(t, data, i, draw_normal(f->key, i));
        else
            dtype_store_i64(t, data, i, (int64_t)(draw(f->key, i) % (uint64_t)(f->high + 1)));
    }
    return NULL;
}

/* Elements are drawn each for itself, so that it is all the same who draws which. A part that gets
 * no thread is drawn by the caller's. */
void tensor_fill_random(EvalTensor *t, uint64_t seed, uint64_t stream, int64_t hi,
                        uint32_t threads) {
    enum { MOST = 64, LEAST = 1 << 16 }; /* elements that pay for a thread */
    const uint64_t n = tensor_numel(t), key = mix(seed ^ mix(stream + 1));
    uint64_t parts = n / LEAST < threads ? n / LEAST : threads;
    parts = parts < 1 ? 1 : parts > MOST ? MOST : parts;
    Fill f[MOST];
    pthread_t thread[MOST];
    bool started[MOST] = {false};
    sigset_t all, before;
    sigfillset(&all); /* signals are for the caller's thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (uint64_t k = 0; k < parts; k++) {
        f[k] = (Fill){t, key, n / parts * k, k + 1 < parts ? n / parts * (k + 1) : n, hi};
        if (k) started[k] = pthread_create(&thread[k], NULL, fill_part, &f[k]) == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (uint64_t k = 0; k < parts; k++)
        if (!started[k]) fill_part(&f[k]);
    for (uint64_t k = 0; k < parts; k++)
        if (started[k]) pthread_join(thread[k], NULL);
}
