#include "frontend/driver/cli/kept.h"

#include <string.h>
#include <sys/stat.h>

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

graphc_status cli_keep(Cli *c, const char *read, const char *called, const char *written,
                       const char *what) {
    if (!same_file(read, written)) return GRAPHC_OK;
    return diag(c->diags, D_USAGE, written, "%s would replace %s", what, called);
}

graphc_status cli_keep_model(Cli *c, const Graph *g, const char *written, const char *what) {
    const char *model = c->args.v[0], *slash = strrchr(model, '/');
    const int folder = slash ? (int)(slash + 1 - model) : 0;
    GC_TRY(cli_keep(c, model, "the model", written, what));
    for (uint32_t i = 0; g && i < g->files.n; i++) {
        const char *file = arena_printf(c->arena, "%.*s%s", folder, model, g->files.v[i]);
        GC_TRY(cli_keep(c, file, "the model's weights", written, what));
    }
    return GRAPHC_OK;
}
