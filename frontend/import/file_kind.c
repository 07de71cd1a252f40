/* What a file is that was taken for another. */
#include "frontend/import/import.h"

#include <stddef.h>
#include <string.h>

static const struct Beginning {
    uint32_t at, n;
    const char *bytes, *what;
} beginnings[] = {
    {0, 8, "\x89GRAPHC\n", "a graphc plan"},
    {0, 7, "version https://git-lfs",
     "a Git LFS pointer; \"git lfs pull\" fetches the file itself"},
    {0, 2, "\x1f\x8b", "a gzip file; unpack it first"},
    {0, 4, "PK\x03\x04", "a zip file (as .npz and PyTorch's .pt are)"},
    {0, 6, "\x93NUMPY", "a NumPy array"},
    {0, 4, "GGUF", "a GGUF file"},
    {0, 4, "\x28\xb5\x2f\xfd", "a zstd file; unpack it first"},
    {0, 4, "TFL3", "a TensorFlow Lite model"},
    {4, 4, "TFL3", "a TensorFlow Lite model"},
    {0, 14, "<!DOCTYPE html", "an HTML page: the download was not the file"},
    {0, 14, "<!doctype html", "an HTML page: the download was not the file"},
    {0, 5, "<html", "an HTML page: the download was not the file"},
    {8, 1, "{", "a safetensors file (weights, no graph)"},
};

/* Eight bytes of length in front, and a name in the object: a model could begin with such bytes,
 * too. */
static int is_safetensors(const uint8_t *data, uint64_t size) {
    uint64_t n = 0;
    if (size < 16) return 0;
    memcpy(&n, data, 8);
    return n >= 2 && n <= size - 8 && data[8] == '{' && (data[9] == '"' || data[9] == '}');
}

const char *file_kind(const uint8_t *data, uint64_t size) {
    if (!size) return "an empty one";
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
        const struct Beginning *b = &beginnings[i];
        if (size < b->at + b->n || memcmp(data + b->at, b->bytes, b->n) != 0) continue;
        if (b->bytes[0] != '{' || is_safetensors(data, size)) return b->what;
    }
    return NULL;
}
