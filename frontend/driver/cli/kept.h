/* Files that a command reads are none of those that it writes. */
#ifndef CLI_KEPT_H
#define CLI_KEPT_H

#include "frontend/driver/cli/cli.h"

/* D_USAGE where `written` is the same file as `read`: "WRITTEN: WHAT would replace CALLED". */
graphc_status cli_keep(Cli *c, const char *read, const char *called, const char *written,
                       const char *what);
/* The same of the model and, with a graph, of each file that its weights lie in. */
graphc_status cli_keep_model(Cli *c, const Graph *g, const char *written, const char *what);

#endif
