#include "runtime/train/json_write.h"
#include "runtime/train/safetensors.h"
#include "runtime/train/safetensors_hash.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, LENGTH = sizeof(uint64_t) };

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static graphc_status check_names(const SafeTensor *t, uint32_t n, ErrorText e) {
    const char **names = malloc(((size_t)n + 1) * sizeof *names);
    graphc_status st = names ? GRAPHC_OK : error_set(e, GRAPHC_NO_MEMORY, "not enough memory");
    for (uint32_t i = 0; names && i < n; i++) names[i] = t[i].name;
    if (names) qsort(names, n, sizeof *names, by_text);
    for (uint32_t i = 0; st == GRAPHC_OK && i < n; i++)
        if (strcmp(names[i], "__metadata__") == 0 || (i && strcmp(names[i], names[i - 1]) == 0))
            st = error_set(e, GRAPHC_USAGE, "tensor name \"%s\" is reserved or there twice",
                           safe_name(names[i]).text);
    free(names);
    return st;
}

static graphc_status check_types(const SafeTensor *t, uint32_t n, ErrorText e) {
    uint64_t bytes;
    for (uint32_t i = 0; i < n; i++) {
        if (!*dtype_info[t[i].dtype].st)
            return error_set(e, GRAPHC_UNSUPPORTED, "tensor \"%s\": safetensors has no type for %s",
                             safe_name(t[i].name).text, dtype_name(t[i].dtype));
        if (!safetensors_bytes(t[i].dtype, t[i].rank, t[i].dim, &bytes))
            return error_set(e, GRAPHC_INVALID, "tensor \"%s\": the shape is not valid",
                             safe_name(t[i].name).text);
    }
    return GRAPHC_OK;
}

/* Larger elements first, so that each tensor lies at a multiple of its element's size: the format
 * allows no room between them. Otherwise as given. */
static uint32_t *file_order(const SafeTensor *t, uint32_t n) {
    static const uint8_t sizes[] = {8, 4, 2, 1};
    uint32_t *order = malloc(((size_t)n + 1) * sizeof *order), k = 0;
    for (size_t s = 0; order && s < sizeof sizes; s++)
        for (uint32_t i = 0; i < n; i++)
            if (dtype_bytes(t[i].dtype) == sizes[s]) order[k++] = i;
    return order;
}

static void put_metadata(JsonWrite *j, SafetensorsWriter *w, const SafePair *pairs, uint32_t n,
                         bool checksum) {
    if (!n && !checksum) return;
    jw_object(j, "__metadata__");
    for (uint32_t i = 0; i < n; i++) jw_string(j, pairs[i].key, pairs[i].value);
    if (checksum) {
        jw_string(j, SAFETENSORS_HASH_KEY, SAFETENSORS_HASH_ZEROS);
        w->hash_at = j->text.n - 1 - SAFETENSORS_HASH_DIGITS;
    }
    jw_end(j);
}

static void put_tensor(JsonWrite *j, SafetensorsWriter *w, const SafeTensor *t) {
    uint64_t bytes = 0;
    (void)safetensors_bytes(t->dtype, t->rank, t->dim, &bytes);
    jw_object(j, t->name);
    jw_string(j, "dtype", dtype_info[t->dtype].st);
    jw_array(j, "shape");
    for (uint32_t k = 0; k < t->rank; k++) jw_i64(j, NULL, t->dim[k]);
    jw_end(j);
    jw_array(j, "data_offsets");
    jw_i64(j, NULL, (int64_t)w->due);
    jw_i64(j, NULL, (int64_t)(w->due += bytes));
    jw_end(j);
    jw_end(j);
}

static bool make_header(SafetensorsWriter *w, const SafeTensor *t, uint32_t n,
                        const SafePair *pairs, uint32_t npairs, bool checksum) {
    JsonWrite j = {0};
    text_putn(&j.text, "\0\0\0\0\0\0\0\0", LENGTH);
    jw_object(&j, NULL);
    put_metadata(&j, w, pairs, npairs, checksum);
    for (uint32_t i = 0; i < n; i++) put_tensor(&j, w, &t[w->order[i]]);
    jw_end(&j);
    while (j.text.n % ALIGN && !j.text.failed) text_put(&j.text, " ");
    w->header = j.text.p;
    w->header_size = j.text.n;
    uint64_t length = j.text.n - LENGTH;
    if (!j.text.failed) memcpy(w->header, &length, LENGTH);
    return !j.text.failed;
}

static graphc_status begin(SafetensorsWriter *w, const char *path, const SafeTensor *t, uint32_t n,
                           const SafePair *pairs, uint32_t npairs, bool checksum, ErrorText e) {
    char why[256];
    GC_TRY(check_names(t, n, e));
    GC_TRY(check_types(t, n, e));
    w->order = file_order(t, n);
    w->hash = checksum ? hash_stream_create() : NULL;
    if (!w->order || (checksum && !w->hash) || !make_header(w, t, n, pairs, npairs, checksum))
        return error_set(e, GRAPHC_NO_MEMORY, "not enough memory for the header");
    if (w->header_size - LENGTH > SAFETENSORS_MAX_HEADER)
        return error_set(e, GRAPHC_UNSUPPORTED, "the header would have more than 100 MB");
    graphc_status st = file_begin(path, &w->file, why);
    if (st == GRAPHC_OK) st = file_put(&w->file, w->header, w->header_size, why);
    return st == GRAPHC_OK ? st : error_set(e, st, "%s", why);
}

graphc_status safetensors_begin(SafetensorsWriter *w, const char *path, const SafeTensor *tensors,
                                uint32_t ntensors, const SafePair *pairs, uint32_t npairs,
                                bool checksum, ErrorText e) {
    *w = (SafetensorsWriter){.file.fd = -1};
    graphc_status st = begin(w, path, tensors, ntensors, pairs, npairs, checksum, e);
    if (st != GRAPHC_OK) safetensors_abandon(w);
    return st;
}

graphc_status safetensors_put(SafetensorsWriter *w, const void *data, size_t n, ErrorText e) {
    char why[256];
    if (n > w->due) return error_set(e, GRAPHC_USAGE, "more bytes than the tensors have");
    graphc_status st = file_put(&w->file, data, n, why);
    if (st != GRAPHC_OK) return error_set(e, st, "%s", why);
    if (w->hash) hash_stream_add(w->hash, data, n);
    w->due -= n;
    return GRAPHC_OK;
}

graphc_status safetensors_commit(SafetensorsWriter *w, ErrorText e) {
    char why[256] = "fewer bytes than the tensors have";
    graphc_status st = w->due ? GRAPHC_USAGE : GRAPHC_OK;
    if (st == GRAPHC_OK && w->hash) {
        SafeHash h = safetensors_hash_end(w->hash, w->header, w->header_size, w->hash_at);
        st = file_patch(&w->file, w->hash_at, h.digits, SAFETENSORS_HASH_DIGITS, why);
    }
    if (st == GRAPHC_OK) st = file_commit(&w->file, why);
    safetensors_abandon(w);
    return st == GRAPHC_OK ? st : error_set(e, st, "%s", why);
}

void safetensors_abandon(SafetensorsWriter *w) {
    file_abandon(&w->file);
    hash_stream_destroy(w->hash);
    free(w->order);
    free(w->header);
    *w = (SafetensorsWriter){.file.fd = -1};
}

graphc_status safetensors_write(const char *path, const SafeTensor *tensors, uint32_t ntensors,
                                const SafePair *pairs, uint32_t npairs, bool checksum,
                                ErrorText e) {
    SafetensorsWriter w;
    GC_TRY(safetensors_begin(&w, path, tensors, ntensors, pairs, npairs, checksum, e));
    for (uint32_t i = 0; i < ntensors; i++) {
        const SafeTensor *t = &tensors[w.order[i]];
        uint64_t bytes = 0;
        (void)safetensors_bytes(t->dtype, t->rank, t->dim, &bytes);
        graphc_status st = safetensors_put(&w, t->data, (size_t)bytes, e);
        if (st == GRAPHC_OK) continue;
        safetensors_abandon(&w);
        return st;
    }
    return safetensors_commit(&w, e);
}
