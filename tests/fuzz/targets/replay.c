/* A target of libFuzzer without libFuzzer: every file of the folders, and what the target's
 * mutator, or a plain one, makes of it.
 *
 *   replay_FORMAT MUTANTS FOLDER ...      MUTANTS: how many of each file
 *
 * An input that crashes, or takes longer than SECONDS, ends the program; its name and number are
 * the last line. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 1 << 18, SECONDS = 60 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t most);
__attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t most,
                                                     unsigned seed);

static unsigned state;

static unsigned draw(unsigned n) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

/* A byte is another, comes twice, or goes. */
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t most) {
    if (!size) return 0;
    const size_t at = draw((unsigned)size);
    switch (draw(4)) {
    case 0:
        if (size == most) return size;
        memmove(bytes + at + 1, bytes + at, size - at);
        return size + 1;
    case 1: memmove(bytes + at, bytes + at + 1, size - at - 1); return size - 1;
    default: bytes[at] = (uint8_t)draw(256); return size;
    }
}

/* In memory of its own size: what reads past it is seen. */
static void run(const uint8_t *bytes, size_t size) {
    uint8_t *exact = malloc(size + !size);
    if (!exact) abort();
    memcpy(exact, bytes, size);
    alarm(SECONDS);
    LLVMFuzzerTestOneInput(exact, size);
    alarm(0);
    free(exact);
}

static void replay(const char *path, int mutants) {
    static uint8_t whole[MOST], changed[MOST];
    FILE *f = fopen(path, "rb");
    if (!f) return;
    const size_t size = fread(whole, 1, MOST, f);
    fclose(f);
    state = (unsigned)size;
    for (int i = 0; i <= mutants; i++) {
        size_t n = size;
        printf("\r%s %d", path, i);
        fflush(stdout);
        memcpy(changed, whole, size);
        if (i > 0)
            n = LLVMFuzzerCustomMutator ? LLVMFuzzerCustomMutator(changed, n, MOST, draw(1u << 24))
                                        : LLVMFuzzerMutate(changed, n, MOST);
        run(changed, n);
    }
    printf("\n");
}

int main(int argc, char **argv) {
    int files = 0;
    for (int i = 2; i < argc; i++) {
        struct dirent **names;
        const int n = scandir(argv[i], &names, NULL, alphasort);
        for (int k = 0; k < n; k++) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", argv[i], names[k]->d_name);
            if (names[k]->d_name[0] != '.') replay(path, atoi(argv[1])), files++;
            free(names[k]);
        }
        if (n >= 0) free(names);
    }
    return files == 0;
}
