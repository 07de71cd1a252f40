/* libFuzzer: a model is refused with a message, or imported and optimised. */
#include "frontend/driver/pipeline.h"
#include "tests/fuzz/targets/coverage.h"
#include "tests/fuzz/targets/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    Pipeline p;
    graphc_compile_options o = GRAPHC_COMPILE_OPTIONS_INIT;
    const char *path = as_file(bytes, size);
    o.threads = 1;
    pipeline_init(&p, path);
    graphc_status st = pipeline_import(&p, path, &o);
    if (st == GRAPHC_OK) st = pipeline_optimise(&p, &o);
    check_messages(p.diags, st == GRAPHC_OK, p.arena);
    pipeline_free(&p);
    return 0;
}
