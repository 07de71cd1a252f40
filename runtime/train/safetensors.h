/* The safetensors format: a length (u64), a JSON header, the tensors' bytes. Every size, offset and
 * name is checked before use; tensors cover the data exactly, in whatever order the header lists
 * them. Elements are little-endian, row-major. */
#ifndef TRAIN_SAFETENSORS_H
#define TRAIN_SAFETENSORS_H

#include "runtime/base/dtype.h"
#include "runtime/base/file.h"
#include "runtime/train/hash_stream.h"
#include "runtime/error.h"

#define SAFETENSORS_MAX_HEADER 100000000 /* bytes; the format's own bound */
#define SAFETENSORS_MAX_DIM    (INT64_C(1) << 48)

typedef struct SafeTensor {
    const char *name;
    DType dtype;
    uint32_t rank;
    const int64_t *dim;
    const void *data; /* at any address: files of others align nothing */
    uint64_t bytes;
} SafeTensor;

typedef struct SafePair { /* of the header's "__metadata__" */
    const char *key, *value;
} SafePair;

/* --- reading -------------------------------------------------------------------------------- */

/* Everything in it lives until safetensors_close. */
typedef struct Safetensors {
    FileMap map; /* empty if the bytes are the caller's */
    const uint8_t *bytes;
    uint64_t size, header_size;
    SafeTensor *tensors; /* as they lie in the file */
    SafePair *pairs;
    uint32_t ntensors, npairs;
    uint32_t *by_name; /* numbers of tensors, sorted */
    char *names;
    int64_t *dims;
    uint64_t hash_at; /* where the file holds its checksum's 16 digits; 0: nowhere */
} Safetensors;

/* GRAPHC_IO: cannot be read; GRAPHC_INVALID: breaks a rule of the format; GRAPHC_UNSUPPORTED: holds
 * an element type without a row in dtype.def. The message has no path. */
GRAPHC_MUST_USE graphc_status safetensors_open(const char *path, Safetensors *out, ErrorText e);
/* The same on bytes that stay the caller's. */
GRAPHC_MUST_USE graphc_status safetensors_parse(const void *bytes, uint64_t size, Safetensors *out,
                                                ErrorText e);
void safetensors_close(Safetensors *s); /* also one that failed to open */

const SafeTensor *safetensors_find(const Safetensors *s,
                                   const char *name);                 /* NULL: there is none */
const char *safetensors_value(const Safetensors *s, const char *key); /* NULL: there is none */
/* Reads the whole file against the checksum that graphc's writer put into it: GRAPHC_INVALID if it
 * differs, or if there is none and `required`. */
GRAPHC_MUST_USE graphc_status safetensors_check(const Safetensors *s, bool required, ErrorText e);

/* --- writing -------------------------------------------------------------------------------- */

/* Begin with names, types and shapes of all tensors, put their bytes one after the other in the
 * order that `order` says, in pieces of any size, then commit: the file appears whole or not at
 * all. Tensors lie at multiples of their element's size. After a failure, or to give up: abandon */
typedef struct SafetensorsWriter {
    FileWriter file;
    uint32_t *order;  /* numbers of tensors: which one is next in the file */
    uint64_t due;     /* bytes that are still to be put */
    HashStream *hash; /* NULL: without checksum */
    char *header;     /* with its length in front */
    size_t header_size, hash_at;
} SafetensorsWriter;

/* tensors[i].data and .bytes are not looked at. checksum: the header gets one of the whole file. */
GRAPHC_MUST_USE graphc_status safetensors_begin(SafetensorsWriter *w, const char *path,
                                                const SafeTensor *tensors, uint32_t ntensors,
                                                const SafePair *pairs, uint32_t npairs,
                                                bool checksum, ErrorText e);
GRAPHC_MUST_USE graphc_status safetensors_put(SafetensorsWriter *w, const void *data, size_t n,
                                              ErrorText e);
/* Ends the writer, whatever its status. */
GRAPHC_MUST_USE graphc_status safetensors_commit(SafetensorsWriter *w, ErrorText e);
void safetensors_abandon(SafetensorsWriter *w); /* also one that is over */

/* All at once, from tensors[i].data. */
GRAPHC_MUST_USE graphc_status safetensors_write(const char *path, const SafeTensor *tensors,
                                                uint32_t ntensors, const SafePair *pairs,
                                                uint32_t npairs, bool checksum, ErrorText e);

/* Bytes of that many elements; false if a dimension is negative or too large, or their product is.
 */
bool safetensors_bytes(DType t, uint32_t rank, const int64_t *dim, uint64_t *out);
/* A name from a file, fit to be printed: control characters replaced, cut to size. */
typedef struct SafeName {
    char text[96];
} SafeName;
SafeName safe_name(const char *name);
/* "[2, 3]"; of many axes the first ones. */
typedef struct SafeShape {
    char text[128];
} SafeShape;
SafeShape safe_shape(uint32_t rank, const int64_t *dim);

#endif
