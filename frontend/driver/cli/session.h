/* What run, bench and verify share: a plan in a session with every input bound. */
#ifndef FRONTEND_DRIVER_CLI_SESSION_H
#define FRONTEND_DRIVER_CLI_SESSION_H

#include "frontend/driver/cli/cli.h"
#include "frontend/driver/tensors/tensor_file.h"
#include "runtime/graphc.h"

typedef struct CliSession {
    Cli *cli;
    graphc_plan *plan;
    graphc_session *session;
    const char *device; /* "cpu", "cuda:0" */
    bool compiled;      /* from a model just now: --dim has already been applied */
    EvalTensor *inputs; /* one per input of the plan */
    bool *drawn;        /* of each: it comes from the seed */
    uint64_t plan_hash; /* recognises the plan: of all its bytes */
} CliSession;

/* What a size of the inputs is. */
typedef struct CliSize {
    const char *name;
    int64_t value;
    bool assumed; /* nothing that was given says so */
} CliSize;

/* Fills in what --device says; compiling then targets it unless --target says otherwise. */
graphc_status cli_session_device(CliSession *s, graphc_session_options *o);
/* What is compiled to run here at once, and not kept, has code for this processor alone. */
Cli cli_for_device(const Cli *c, const graphc_session_options *o);
/* Loads a plan (compiling a model first) and makes a session on --device. */
graphc_status cli_session_open(CliSession *s, Cli *c, const char *path);
/* The same of a plan's bytes that were made from the model at `path` just now. */
graphc_status cli_session_make(CliSession *s, Cli *c, const char *path, const void *plan,
                               size_t size);
/* Reads --input files and draws the others from the seed, at sizes from --dim and files. */
graphc_status cli_session_bind(CliSession *s);
/* Once inputs are bound: the sizes that they have in symbols, and those that --dim fixed. */
uint32_t cli_session_sizes(const CliSession *s, CliSize **out);
struct json_t *cli_sizes_json(const CliSession *s);
/* adapter.c: the session's states become what --adapter holds. */
graphc_status cli_adapter_load(CliSession *s);
/* adapter.c: which adapter each of so many rows goes through becomes an input. */
graphc_status cli_adapter_bind(CliSession *s, int64_t rows);
void cli_session_close(CliSession *s);

/* Reports why a plan could not be loaded, and how a model is recognised where one may have been
 * meant. */
graphc_status cli_load_failed(Cli *c, const char *path, graphc_status status, const char *text);
/* Reports what the runtime said about a failed call on this session. */
graphc_status cli_session_failed(CliSession *s, graphc_status status);
/* cmd_run.c: what --output-dir and --output-format say. */
graphc_status cli_check_outputs(Cli *c);
/* cmd_run.c: binds, runs, and writes each output to --output-dir. */
graphc_status cli_session_run(CliSession *s);
/* Copies output i to the host. */
graphc_status cli_session_output(CliSession *s, uint32_t i, EvalTensor *out);
DType cli_dtype(const char *name);
/* NAME as a file name: characters outside A-Za-z0-9._- become _ . */
char *cli_file_name(Arena *a, const char *name);

#endif
