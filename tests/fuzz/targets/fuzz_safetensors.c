/* libFuzzer: a file of weights is refused with a reason, or every tensor is found by its name. */
#include "runtime/train/safetensors.h"
#include "tests/fuzz/targets/coverage.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    uint8_t *exact = malloc(size + !size);
    char why[256] = "";
    Safetensors s;
    memcpy(exact, bytes, size);
    if (safetensors_parse(exact, size, &s, (ErrorText){why, sizeof why}) == GRAPHC_OK) {
        for (uint32_t i = 0; i < s.ntensors; i++)
            if (safetensors_find(&s, s.tensors[i].name) != &s.tensors[i]) abort();
        safetensors_close(&s);
    } else if (!why[0])
        abort();
    free(exact);
    return 0;
}
