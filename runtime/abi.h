/* The contract between compiled kernels and the runtime. Standalone.
 *
 * CPU: a kernel runs work items [begin, end) of its outermost parallel extent. Pointers are to the
 * first element of each buffer and aligned to it, no more: buffers may be parts of others, or the
 * caller's. `dims` are the values the kernel asked for. `scratch` is private to the calling thread,
 * 64-byte aligned, of the kernel's scratch size. Kernels touch nothing else: no libc, no
 * thread-local storage, no global state, not a byte before or behind a buffer or the scratch.
 * Nothing is to be had there: there may be no memory. A pointer to no bytes may lead anywhere.
 *
 * GPU: the parameters are the buffer pointers in order; a pointer to zeroed memory if the kernel
 * has some; its tensor maps by value, 128 bytes each at multiples of 64 (the driver's CUtensorMap);
 * then the dims as 64-bit integers. */
#ifndef RUNTIME_ABI_H
#define RUNTIME_ABI_H

#include <stdint.h>

typedef void graphc_cpu_kernel(void *const *bufs, const int64_t *dims, int64_t begin, int64_t end,
                               void *scratch);

#define GRAPHC_ABI_VERSION 2

#endif
