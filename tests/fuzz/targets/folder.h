/* A folder of small files in memory, the same one for every input; removed at the end. */
#ifndef TESTS_FUZZ_FOLDER_H
#define TESTS_FUZZ_FOLDER_H
#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder_root[] = "/dev/shm/graphc-fuzz-XXXXXX";
static bool folder_made;

static int folder_drop(const char *path, const struct stat *s, int kind, struct FTW *where) {
    (void)s, (void)kind, (void)where;
    return remove(path);
}

static void folder_end(void) {
    nftw(folder_root, folder_drop, 8, FTW_DEPTH | FTW_PHYS);
}

static inline const char *folder_path(void) {
    if (!folder_made && !mkdtemp(folder_root)) abort();
    if (!folder_made) atexit(folder_end);
    folder_made = true;
    return folder_root;
}

static inline void folder_inner(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder_path(), name);
    (void)mkdir(path, 0700);
}

static inline void folder_file(const char *name, const void *bytes, size_t size) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder_path(), name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size) abort();
    close(fd);
}
#endif
