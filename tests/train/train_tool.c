/* Parts of runtime/train as a program, for scripts that compare them with other tools:
 *
 *     train_tool safetensors IN OUT    copies through graphc's reader and writer, with a checksum
 */
#include "runtime/train/safetensors.h"
#include <stdio.h>
#include <string.h>

static char why[512];
static const ErrorText e = {why, sizeof why};

static graphc_status copy_safetensors(char **arg) {
    Safetensors s;
    GC_TRY(safetensors_open(arg[0], &s, e));
    graphc_status st = safetensors_check(&s, false, e);
    if (st == GRAPHC_OK)
        st = safetensors_write(arg[1], s.tensors, s.ntensors, s.pairs, s.npairs, !s.hash_at, e);
    safetensors_close(&s);
    return st;
}

static const struct {
    const char *name;
    int arguments;
    graphc_status (*run)(char **arg);
} verbs[] = {{"safetensors", 2, copy_safetensors}};

int main(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(argv[1], verbs[i].name) || argc != verbs[i].arguments + 2) continue;
        graphc_status st = verbs[i].run(argv + 2);
        if (st != GRAPHC_OK) fprintf(stderr, "train_tool: %s\n", why);
        return (int)st;
    }
    fprintf(stderr, "train_tool: unknown verb or number of arguments\n");
    return GRAPHC_USAGE;
}
