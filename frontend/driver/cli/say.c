/* What users read: messages, text that may come from a file, how a verb is used. */
#include "frontend/driver/cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void cli_print_diags(const DiagSink *d) {
    Arena *a = arena_create();
    bool color = isatty(STDERR_FILENO) && !getenv("NO_COLOR");
    for (uint32_t i = 0; i < diag_count(d); i++)
        fprintf(stderr, "%s\n", diag_render(d, diag_at(d, i), a, color));
    arena_destroy(a);
}

void cli_print(FILE *to, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    Arena *a = arena_create();
    for (const char *c = arena_vprintf(a, fmt, ap); *c; c++) {
        unsigned char u = (unsigned char)*c;
        if ((u < 0x20 && u != '\n') || u == 0x7f)
            fprintf(to, "\\x%02x", u);
        else
            putc(u, to);
    }
    arena_destroy(a);
    va_end(ap);
}

graphc_status cli_usage(Cli *c, const char *what) {
    return diag(c->diags, D_USAGE, "", "%s; usage: %s", what, c->verb->usage);
}
