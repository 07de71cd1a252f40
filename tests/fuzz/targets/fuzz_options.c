/* libFuzzer: a file of options in YAML is refused with a line and a reason, or an object; a
 * database of tune is refused with a message, or written and read the same again. */
#include "frontend/driver/cli/config/yaml.h"
#include "frontend/driver/cli/tune/database.h"
#include "tests/fuzz/targets/coverage.h"
#include "tests/fuzz/targets/folder.h"

static void yaml(const uint8_t *bytes, size_t size) {
    char *exact = malloc(size + !size);
    YamlError e = {0, NULL};
    if (size) memcpy(exact, bytes, size);
    json_t *all = yaml_load(exact, size, &e);
    if (all ? !json_is_object(all) : !e.text || e.line < 1) abort();
    json_decref(all);
    free(exact);
}

static char *written(const Tuned *t, DiagSink *d, Arena *a) {
    char path[128];
    static char text[1 << 20];
    snprintf(path, sizeof path, "%s/tuned", folder_path());
    if (tuned_write(t, path, d) != GRAPHC_OK) abort();
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = read(fd, text, sizeof text);
    close(fd);
    return arena_strndup(a, text, n > 0 ? (size_t)n : 0);
}

static void tuned(const uint8_t *bytes, size_t size) {
    Arena *a = arena_create();
    char path[128];
    DiagSink *d = diag_create(a, "tuned");
    Tuned *t = tuned_create(a), *again = tuned_create(a);
    const bool ok = tuned_read(t, as_file(bytes, size), false, d) == GRAPHC_OK;
    check_messages(d, ok, a);
    if (ok) {
        const char *first = written(t, d, a);
        snprintf(path, sizeof path, "%s/tuned", folder_path());
        (void)tuned_way(t, "sm_90a", "gemm");
        if (tuned_read(again, path, false, d) != GRAPHC_OK) abort();
        if (strcmp(first, written(again, d, a)) != 0) abort();
    }
    arena_destroy(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    yaml(bytes, size);
    tuned(bytes, size);
    return 0;
}
