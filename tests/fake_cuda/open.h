/* The stand-in driver for a test of this process, before the runtime asks for a driver. */
#ifndef TESTS_FAKE_CUDA_OPEN_H
#define TESTS_FAKE_CUDA_OPEN_H

#include "runtime/graphc.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/unit/test.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* It is built beside the test's program, which ends if it is not there. */
static inline FakeCuda *fake_cuda_open(void) {
    char path[512];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    path[n < 0 ? 0 : n] = 0;
    char *slash = strrchr(path, '/');
    snprintf(slash ? slash : path, 64, "/cuda_fake/libcuda.so.1");
    void *lib = dlopen(path, RTLD_NOW);
    if (!CHECK(lib)) exit(1);
    return dlsym(lib, FAKE_CUDA_STATE);
}

/* stream: NULL, or the caller's. */
static inline graphc_session *fake_cuda_session(const graphc_plan *p, void *stream) {
    char why[512] = "";
    graphc_session *s = NULL;
    graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
    o.device = GRAPHC_CUDA;
    o.cuda_stream = stream;
    if (!CHECK(graphc_session_create(p, &o, &s, why, sizeof why) == GRAPHC_OK))
        fprintf(stderr, "    %s\n", why);
    return s;
}

#endif
