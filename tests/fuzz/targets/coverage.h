/* What targets of libFuzzer share. */
#ifndef TESTS_FUZZ_COVERAGE_H
#define TESTS_FUZZ_COVERAGE_H
#include "graph/ir/ir.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Whoever says no says why. */
static inline void check_said(const DiagSink *d, bool ok) {
    if (ok != (diag_errors(d) == 0)) abort();
}

/* And never that graphc is at fault. */
static inline void check_messages(const DiagSink *d, bool ok, Arena *a) {
    for (uint32_t i = 0; i < diag_count(d); i++) {
        const DiagId id = diag_at(d, i)->id;
        if (diag_info[id].severity != SEV_error || diag_info[id].status != GRAPHC_RUNTIME) continue;
        fprintf(stderr, "%s\n", diag_render(d, diag_at(d, i), a, false));
        abort();
    }
    check_said(d, ok);
}

/* The bytes as a file: the same one for every input. */
static inline const char *as_file(const uint8_t *bytes, size_t size) {
    static char path[32];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("input", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) != 0 || pwrite(fd, bytes, size, 0) != (ssize_t)size) abort();
    return path;
}

static inline char *as_text(const uint8_t *bytes, size_t size, Arena *a) {
    char *text = arena_array(a, size + 1, 1);
    memcpy(text, bytes, size);
    return text;
}
#endif
