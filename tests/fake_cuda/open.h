/* The stand-in driver for a test of this process, before the runtime asks for a driver. */
#ifndef TESTS_FAKE_CUDA_OPEN_H
#define TESTS_FAKE_CUDA_OPEN_H

#include "tests/fake_cuda/fake_cuda.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* It is built beside the test's program. NULL if it is not there. */
static inline FakeCuda *fake_cuda_open(void) {
    char path[512];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    path[n < 0 ? 0 : n] = 0;
    char *slash = strrchr(path, '/');
    snprintf(slash ? slash : path, 64, "/cuda_fake/libcuda.so.1");
    void *lib = dlopen(path, RTLD_NOW);
    return lib ? dlsym(lib, FAKE_CUDA_STATE) : NULL;
}

#endif
