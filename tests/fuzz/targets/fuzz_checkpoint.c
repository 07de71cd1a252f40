/* libFuzzer: what a checkpoint knows about itself, its checksum made right so that what is behind
 * it is seen, is refused with a reason, or read; the name in `latest`, up to the first end of line,
 * too. */
#include "runtime/base/map.h"
#include "runtime/train/checkpoint_internal.h"
#include "tests/fuzz/targets/coverage.h"
#include "tests/fuzz/targets/folder.h"

static void put(const uint8_t *bytes, size_t size) {
    uint8_t *all = malloc(CHECKPOINT_FIRST_BYTES + size + 1);
    snprintf((char *)all, CHECKPOINT_FIRST_BYTES + 1, CHECKPOINT_FIRST,
             (unsigned long long)hash_bytes(bytes, size, 0));
    if (size) memcpy(all + CHECKPOINT_FIRST_BYTES, bytes, size);
    folder_file("step-00000007/" CHECKPOINT_JSON, all, CHECKPOINT_FIRST_BYTES + size);
    free(all);
}

static void look(const char *which) {
    static const SafePair options[] = {{"lr", "0.1"}, {"batch", "8"}};
    char why[256] = "";
    const ErrorText e = {why, sizeof why};
    Checkpoint c;
    if (checkpoint_open(folder_path(), which, &c, e) == GRAPHC_OK) {
        if (checkpoint_match(&c, options, 2, e) != GRAPHC_OK && !why[0]) abort();
        checkpoint_close(&c);
    } else if (!why[0])
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    const uint8_t *end = size ? memchr(bytes, '\n', size) : NULL;
    const size_t line = end ? (size_t)(end - bytes) + 1 : 0;
    folder_inner("step-00000007");
    folder_file("latest", bytes, line);
    put(bytes + line, size - line);
    look("latest");
    look("step-00000007");
    return 0;
}
