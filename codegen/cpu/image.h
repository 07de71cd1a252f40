/* Objects that LLVM emitted for the CPU become one position-independent image: code and read-only
 * data in one block that runs wherever it is mapped, with no libc and no linker at run time.
 *
 * Refused, with the kernel named: undefined symbols (a call that LLVM made to libc), writable data,
 * thread-local storage and relocations other than PC-relative ones inside the object. */
#ifndef CODEGEN_HOST_IMAGE_H
#define CODEGEN_HOST_IMAGE_H

#include "runtime/base/diag.h"

typedef struct ImageObject {
    const void *data; /* x86-64 ELF relocatable object */
    size_t size;
    const char *name; /* for messages */
} ImageObject;

typedef struct Image {
    uint8_t *bytes;
    uint64_t size;
} Image;

/* Objects are laid out in order, so equal objects give equal images. symbols[i] names a global
 * function of object i whose offset in the image goes to entries[i]. */
graphc_status image_link(Arena *a, DiagSink *d, const ImageObject *objects, uint32_t n,
                         const char *const *symbols, uint64_t *entries, Image *out);

#endif
