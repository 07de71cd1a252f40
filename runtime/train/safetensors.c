/* Reading safetensors, and what reading and writing share. */
#include "runtime/train/safetensors.h"
#include "runtime/base/check.h"
#include "runtime/train/json_read.h"
#include "runtime/train/safetensors_hash.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SafeName safe_name(const char *name) {
    SafeName s;
    size_t n = 0;
    for (; name[n] && n + 4 < sizeof s.text; n++)
        s.text[n] = (unsigned char)name[n] < 0x20 || name[n] == 0x7f ? '?' : name[n];
    strcpy(s.text + n, name[n] ? "..." : "");
    return s;
}

SafeShape safe_shape(uint32_t rank, const int64_t *dim) {
    SafeShape s = {"["};
    size_t n = 1;
    for (uint32_t i = 0; i < rank && n < sizeof s.text - 32; i++)
        n += (size_t)snprintf(s.text + n, sizeof s.text - n, "%s%lld", i ? ", " : "",
                              (long long)dim[i]);
    strcpy(s.text + n, "]");
    return s;
}

bool safetensors_bytes(DType t, uint32_t rank, const int64_t *dim, uint64_t *out) {
    uint64_t n = dtype_bytes(t);
    for (uint32_t i = 0; i < rank; i++)
        if (dim[i] < 0 || dim[i] > SAFETENSORS_MAX_DIM || !check_mul(n, (uint64_t)dim[i], &n))
            return false;
    *out = n;
    return true;
}

SafeHash safetensors_hash_end(HashStream *h, const void *file, uint64_t header_size,
                              uint64_t hash_at) {
    const char *p = file;
    size_t rest = (size_t)hash_at + SAFETENSORS_HASH_DIGITS;
    SafeHash out;
    hash_stream_add(h, p, (size_t)hash_at);
    hash_stream_add(h, SAFETENSORS_HASH_ZEROS, SAFETENSORS_HASH_DIGITS);
    hash_stream_add(h, p + rest, (size_t)header_size - rest);
    snprintf(out.digits, sizeof out.digits, "%016" PRIx64, hash_stream_value(h));
    return out;
}

/* --- the header ----------------------------------------------------------------------------- */

/* Goes over the header twice: to count, with `out` NULL, and to fill. */
typedef struct Header {
    JsonRead json;
    const uint8_t *file;
    uint64_t header_size, data_size;
    Safetensors *out;
    uint32_t ntensors, npairs;
    size_t ndims, nnames; /* taken of the pools */
    uint64_t hash_at;
    ErrorText e;
    graphc_status status; /* of what is wrong beyond JSON */
} Header;

static const char *take_text(Header *h, JsonSpan s) {
    if (!h->out) {
        h->nnames += s.n + 1;
        return "";
    }
    char *p = h->out->names + h->nnames;
    h->nnames += jr_decode_to(s, p) + 1;
    return p;
}

static void take_metadata(Header *h) {
    JsonRead *r = &h->json;
    JsonSpan key, value;
    for (jr_object(r); jr_key(r, &key) && jr_string(r, &value); h->npairs++) {
        SafePair p = {take_text(h, key), take_text(h, value)};
        if (h->out) h->out->pairs[h->npairs] = p;
        if (jr_is(key, SAFETENSORS_HASH_KEY) && value.n == SAFETENSORS_HASH_DIGITS)
            h->hash_at = (uint64_t)(value.p - (const char *)h->file);
    }
}

static void take_shape(Header *h, SafeTensor *t) {
    JsonRead *r = &h->json;
    t->rank = 0;
    t->dim = h->out ? h->out->dims + h->ndims : NULL;
    for (jr_array(r); jr_item(r);) {
        int64_t v = -1;
        if (jr_i64(r, &v) && (v < 0 || v > SAFETENSORS_MAX_DIM))
            jr_refuse(r, "a dimension that is negative or beyond 2^48");
        if (h->out) h->out->dims[h->ndims] = v;
        h->ndims++;
        t->rank++;
    }
}

static void take_offsets(JsonRead *r, int64_t at[2]) {
    uint32_t n = 0;
    for (jr_array(r); jr_item(r); n++) {
        int64_t v = -1;
        if (jr_i64(r, &v) && n < 2) at[n] = v;
    }
    if (n != 2) jr_refuse(r, "not two data_offsets");
}

static DType dtype_of(JsonSpan name) {
    for (int t = 1; t < DT_COUNT; t++)
        if (*dtype_info[t].st && jr_is(name, dtype_info[t].st)) return (DType)t;
    return DT_none;
}

static void refuse(Header *h, graphc_status st) {
    h->status = st;
    jr_refuse(&h->json, "a tensor that is refused");
}

/* The second time: types and sizes. */
static void place_tensor(Header *h, SafeTensor *t, JsonSpan type, const int64_t at[2]) {
    SafeName name = safe_name(t->name);
    uint64_t want = 0;
    t->dtype = dtype_of(type);
    if (t->dtype == DT_none)
        refuse(h, error_set(h->e, GRAPHC_UNSUPPORTED,
                            "tensor \"%s\": element type %.*s is not supported", name.text,
                            type.n < 40 ? (int)type.n : 40, type.p));
    else if (at[0] < 0 || at[0] > at[1] || (uint64_t)at[1] > h->data_size)
        refuse(h, error_set(h->e, GRAPHC_INVALID,
                            "tensor \"%s\": bytes %lld to %lld are not within the data's %llu",
                            name.text, (long long)at[0], (long long)at[1],
                            (unsigned long long)h->data_size));
    else if (!safetensors_bytes(t->dtype, t->rank, t->dim, &want) ||
             want != (uint64_t)(at[1] - at[0]))
        refuse(h, error_set(h->e, GRAPHC_INVALID,
                            "tensor \"%s\": holds %lld bytes, which are not those of its shape",
                            name.text, (long long)(at[1] - at[0])));
    if (h->status != GRAPHC_OK) return;
    t->data = h->out->bytes + h->out->header_size + at[0];
    t->bytes = want;
    h->out->tensors[h->ntensors] = *t;
}

static void take_tensor(Header *h, JsonSpan name) {
    JsonRead *r = &h->json;
    JsonSpan key, type = {0};
    SafeTensor t = {.name = take_text(h, name)};
    int64_t at[2] = {-1, -1};
    unsigned seen = 0;
    for (jr_object(r); jr_key(r, &key);) {
        unsigned field = jr_is(key, "dtype")   ? 1
                         : jr_is(key, "shape") ? 2
                                               : 4 * jr_is(key, "data_offsets");
        if (seen & field) jr_refuse(r, "a key that is there twice");
        seen |= field;
        if (field == 1)
            jr_string(r, &type);
        else if (field == 2)
            take_shape(h, &t);
        else if (field == 4)
            take_offsets(r, at);
        else
            jr_skip(r);
    }
    if (!r->fault && seen != 7) jr_refuse(r, "a tensor without dtype, shape or data_offsets");
    if (!r->fault && h->out) place_tensor(h, &t, type, at);
    h->ntensors++;
}

static graphc_status read_header(Header *h) {
    JsonSpan key;
    JsonRead *r = &h->json;
    bool metadata = false;
    size_t length = sizeof(uint64_t);
    jr_init(r, (const char *)h->file + length, (size_t)h->header_size - length);
    h->nnames = h->ndims = 0;
    h->ntensors = h->npairs = 0;
    for (jr_object(r); jr_key(r, &key);) {
        if (!jr_is(key, "__metadata__")) {
            take_tensor(h, key);
            continue;
        }
        if (metadata) jr_refuse(r, "\"__metadata__\" is there twice");
        metadata = true;
        take_metadata(h);
    }
    if (jr_end(r)) return GRAPHC_OK;
    if (h->status != GRAPHC_OK) return h->status;
    return error_set(h->e, GRAPHC_INVALID, "the header is not valid at byte %zu: %s",
                     jr_offset(r) + length, r->fault);
}

/* --- what the tensors must be to each other ------------------------------------------------- */

static int by_place(const void *a, const void *b) {
    const SafeTensor *x = a, *y = b;
    if (x->data != y->data) return (const char *)x->data < (const char *)y->data ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b, void *tensors) {
    const SafeTensor *t = tensors;
    return strcmp(t[*(const uint32_t *)a].name, t[*(const uint32_t *)b].name);
}

static graphc_status check_cover(const Safetensors *s, ErrorText e) {
    const uint8_t *base = s->bytes + s->header_size, *at = base;
    for (uint32_t i = 0; i < s->ntensors; i++) {
        const SafeTensor *t = &s->tensors[i];
        if ((const uint8_t *)t->data < at)
            return error_set(e, GRAPHC_INVALID, "tensors \"%s\" and \"%s\" overlap",
                             safe_name(t[-1].name).text, safe_name(t->name).text);
        if ((const uint8_t *)t->data > at)
            return error_set(e, GRAPHC_INVALID, "bytes %lld to %lld of the data are of no tensor",
                             (long long)(at - base), (long long)((const uint8_t *)t->data - base));
        at = (const uint8_t *)t->data + t->bytes;
    }
    uint64_t rest = s->size - (uint64_t)(at - s->bytes);
    if (!rest) return GRAPHC_OK;
    return error_set(e, GRAPHC_INVALID, "%llu bytes after the last tensor",
                     (unsigned long long)rest);
}

static graphc_status check_names(const Safetensors *s, ErrorText e) {
    for (uint32_t i = 0; i < s->ntensors; i++) s->by_name[i] = i;
    qsort_r(s->by_name, s->ntensors, sizeof *s->by_name, by_name, s->tensors);
    for (uint32_t i = 1; i < s->ntensors; i++) {
        const char *name = s->tensors[s->by_name[i]].name;
        if (strcmp(name, s->tensors[s->by_name[i - 1]].name) == 0)
            return error_set(e, GRAPHC_INVALID, "tensor \"%s\" is there twice",
                             safe_name(name).text);
    }
    for (uint32_t i = 0; i < s->npairs; i++)
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(s->pairs[i].key, s->pairs[k].key) == 0)
                return error_set(e, GRAPHC_INVALID, "metadata \"%s\" is there twice",
                                 safe_name(s->pairs[i].key).text);
    return GRAPHC_OK;
}

/* -------------------------------------------------------------------------------------------- */

static bool make_room(Safetensors *s, const Header *h) {
    s->ntensors = h->ntensors;
    s->npairs = h->npairs;
    s->tensors = calloc((size_t)h->ntensors + 1, sizeof *s->tensors);
    s->by_name = calloc((size_t)h->ntensors + 1, sizeof *s->by_name);
    s->pairs = calloc((size_t)h->npairs + 1, sizeof *s->pairs);
    s->names = malloc(h->nnames + 1);
    s->dims = calloc(h->ndims + 1, sizeof *s->dims);
    return s->tensors && s->by_name && s->pairs && s->names && s->dims;
}

static graphc_status fill(Safetensors *s, ErrorText e) {
    enum { MAX_PAIRS = 1024 }; /* they are compared with each other */
    Header h = {.file = s->bytes,
                .header_size = s->header_size,
                .data_size = s->size - s->header_size,
                .e = e};
    GC_TRY(read_header(&h));
    if (h.npairs > MAX_PAIRS)
        return error_set(e, GRAPHC_INVALID, "%u metadata; at most 1024 are read", h.npairs);
    if (!make_room(s, &h))
        return error_set(e, GRAPHC_NO_MEMORY, "not enough memory for the header");
    h.out = s;
    GC_TRY(read_header(&h));
    s->hash_at = h.hash_at;
    qsort(s->tensors, s->ntensors, sizeof *s->tensors, by_place);
    GC_TRY(check_cover(s, e));
    return check_names(s, e);
}

graphc_status safetensors_parse(const void *bytes, uint64_t size, Safetensors *out, ErrorText e) {
    uint64_t n, length = sizeof n;
    *out = (Safetensors){.bytes = bytes, .size = size};
    if (size < length) return error_set(e, GRAPHC_INVALID, "is shorter than 8 bytes");
    memcpy(&n, bytes, length);
    if (n > SAFETENSORS_MAX_HEADER)
        return error_set(e, GRAPHC_INVALID, "the header would have %llu bytes; 100 MB are allowed",
                         (unsigned long long)n);
    if (n > size - length)
        return error_set(e, GRAPHC_INVALID, "ends within its header of %llu bytes",
                         (unsigned long long)n);
    if (!n || out->bytes[length] != '{')
        return error_set(e, GRAPHC_INVALID, "the header does not begin with {");
    out->header_size = length + n;
    graphc_status st = fill(out, e);
    if (st != GRAPHC_OK) safetensors_close(out);
    return st;
}

graphc_status safetensors_open(const char *path, Safetensors *out, ErrorText e) {
    FileMap m;
    char why[256];
    *out = (Safetensors){0};
    graphc_status st = file_map(path, &m, why);
    if (st != GRAPHC_OK) return error_set(e, st, "%s", why);
    st = safetensors_parse(m.data, m.size, out, e);
    if (st == GRAPHC_OK)
        out->map = m;
    else
        file_unmap(&m);
    return st;
}

void safetensors_close(Safetensors *s) {
    free(s->tensors);
    free(s->by_name);
    free(s->pairs);
    free(s->names);
    free(s->dims);
    if (s->map.data) file_unmap(&s->map);
    *s = (Safetensors){0};
}

const SafeTensor *safetensors_find(const Safetensors *s, const char *name) {
    uint32_t lo = 0, hi = s->ntensors;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const SafeTensor *t = &s->tensors[s->by_name[mid]];
        int c = strcmp(name, t->name);
        if (c == 0) return t;
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

const char *safetensors_value(const Safetensors *s, const char *key) {
    for (uint32_t i = 0; i < s->npairs; i++)
        if (strcmp(s->pairs[i].key, key) == 0) return s->pairs[i].value;
    return NULL;
}

graphc_status safetensors_check(const Safetensors *s, bool required, ErrorText e) {
    if (!s->hash_at) return required ? error_set(e, GRAPHC_INVALID, "has no checksum") : GRAPHC_OK;
    HashStream *hash = hash_stream_create();
    if (!hash) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory for a checksum");
    hash_stream_add(hash, s->bytes + s->header_size, s->size - s->header_size);
    SafeHash want = safetensors_hash_end(hash, s->bytes, s->header_size, s->hash_at);
    hash_stream_destroy(hash);
    if (memcmp(s->bytes + s->hash_at, want.digits, SAFETENSORS_HASH_DIGITS) == 0) return GRAPHC_OK;
    return error_set(e, GRAPHC_INVALID, "is damaged: its checksum is %s, it says %.16s",
                     want.digits, (const char *)s->bytes + s->hash_at);
}
