/* libFuzzer: a file of a tensor (.npy, .npz, .pb, .safetensors: its bytes say which) is refused
 * with a message, or has all its elements. */
#include "frontend/driver/tensors/tensor_file.h"
#include "tests/fuzz/targets/coverage.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    Arena *a = arena_create();
    const char *path = as_file(bytes, size);
    DiagSink *d = diag_create(a, path);
    EvalTensor e;
    graphc_status st = tensor_file_read(a, d, path, "x", &e);
    check_messages(d, st == GRAPHC_OK, a);
    if (st == GRAPHC_OK)
        for (uint64_t i = 0, n = tensor_numel(&e); i < n; i++)
            (void)dtype_load_f64(e.dtype, e.data, i);
    arena_destroy(a);
    return 0;
}
