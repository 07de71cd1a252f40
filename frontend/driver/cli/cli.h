/* The graphc command line: one row per verb, one row per option (options.c), one file per verb. */
#ifndef FRONTEND_DRIVER_CLI_H
#define FRONTEND_DRIVER_CLI_H

#include "frontend/driver/pipeline.h"

typedef struct NamedFile {
    const char *name, *file;
} NamedFile;

typedef struct Cli {
    Arena *arena;
    DiagSink *diags;        /* of the command line itself */
    VEC(const char *) args; /* what is not an option */
    const char *output, *target, *precision, *dump_ir, *device, *output_dir, *output_format, *data;
    const char *cache_dir, *weights;
    VEC(NamedFile) inputs;
    VEC(graphc_compile_dim) dims;
    uint64_t seed, threads, runs, isa;
    bool json, verbose, embed, help, version;
} Cli;

typedef struct Verb {
    const char *name;
    graphc_status (*run)(Cli *c);
    const char *usage, *summary, *examples;
} Verb;

extern const Verb cli_verbs[]; /* ends with a NULL name; the first is compiling, without a verb */

graphc_status cli_parse(Cli *c, const Verb *verb, int argc, char **argv);
void cli_help(const Verb *verb); /* NULL: the overview */
void cli_print_diags(const DiagSink *d);

graphc_status cmd_compile(Cli *c);
graphc_status cmd_run(Cli *c);
graphc_status cmd_bench(Cli *c);
graphc_status cmd_explain(Cli *c);
graphc_status cmd_inspect(Cli *c);
graphc_status cmd_verify(Cli *c);
graphc_status cmd_doctor(Cli *c);

graphc_compile_options cli_compile_options(const Cli *c);
/* The plan of the first argument: read as it is, or compiled when it is a model (NAME.onnx).
 * base: where its external constants lie. */
graphc_status cli_load_plan(Cli *c, const char *path, const void **bytes, size_t *size);

#endif
