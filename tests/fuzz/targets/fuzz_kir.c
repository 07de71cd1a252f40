/* libFuzzer: a kernel's text is refused with a message, or read. */
#include "fusion/kir/kir.h"
#include "tests/fuzz/targets/coverage.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    Arena *a = arena_create();
    DiagSink *d = diag_create(a, "x.kir");
    const char *end;
    Kernel *k = kir_parse(a, expr_pool_create(a), d, as_text(bytes, size, a), &end);
    check_said(d, k != NULL);
    arena_destroy(a);
    return 0;
}
