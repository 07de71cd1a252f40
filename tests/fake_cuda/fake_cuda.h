/* A CUDA driver without a GPU: memory is the host's, copies are done, kernels are not run. One call
 * can be made to fail. */
#ifndef TESTS_FAKE_CUDA_H
#define TESTS_FAKE_CUDA_H

typedef struct FakeCuda {
    const char *fail; /* name of the function that fails; NULL: none */
    int skip;         /* how many of its calls succeed before */
    int result;       /* what it returns then; fatal codes are returned by all later calls, too */
    int devices;
    int calls; /* of any function */
    int live;  /* objects made and not freed */
} FakeCuda;

#define FAKE_CUDA_STATE "fake_cuda"

#endif
