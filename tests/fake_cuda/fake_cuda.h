/* A CUDA driver without a GPU: memory is the host's, copies are done, kernels are not run but take
 * a microsecond a block. One call can be made to fail. */
#ifndef TESTS_FAKE_CUDA_H
#define TESTS_FAKE_CUDA_H

#include <stdint.h>

typedef struct FakeLaunch {
    const char *name;
    uint32_t grid[3], cluster[3], shared;
    int dependent;
    void **params; /* valid in on_launch */
} FakeLaunch;

typedef struct FakeMap {
    int type, swizzle, promotion;
    uint32_t rank, box[5], step[5], channels, pixels;
    void *p;
    uint64_t size[5], stride[4];
    int32_t lower[3], upper[3];
} FakeMap;

typedef struct FakeCuda {
    const char *fail; /* name of the function that fails; NULL: none */
    int skip;         /* how many of its calls succeed before */
    int fail_once;    /* only one call fails, then fail is NULL */
    int result;       /* what it returns then; fatal codes are returned by all later calls, too */
    int devices;
    int major;                                        /* compute capability */
    int calls;                                        /* of any function */
    int live;                                         /* objects made and not freed */
    int capturing;                                    /* what the driver says of every stream */
    int launches, replays, updates, encoded, memsets; /* how many there were; updates: of nodes */
    int copies;                                       /* cuMemcpyAsync */
    int locked;                                       /* ranges of host memory */
    FakeLaunch launch;                                /* the last launch or update */
    FakeMap map;                                      /* the last one encoded */
    const void *image;                                /* the last module's code */
    void (*on_launch)(const FakeLaunch *l);
} FakeCuda;

#define FAKE_CUDA_STATE "fake_cuda"

#endif
