/* The graphc command line: one row per verb, one row per option (options.c), one file per verb. */
#ifndef FRONTEND_DRIVER_CLI_H
#define FRONTEND_DRIVER_CLI_H

#include "frontend/driver/pipeline.h"

#include <stdio.h>

typedef struct NamedFile {
    const char *name, *file;
} NamedFile;

typedef VEC(const char *) TextList;

/* What train and finetune ask for. Numbers that were not given are negative, counts 0. */
typedef struct TrainArgs {
    const char *optimizer, *schedule, *learn, *freeze, *lora, *config, *token_type, *no_decay,
        *on_nan;
    uint64_t end_token; /* UINT64_MAX: not given */
    const char *batch_norm, *dropout, *checkpoint, *memory_budget;
    TextList data, eval_data; /* FILE, or NAME=FILE for arrays */
    uint64_t patience;
    bool resume;
    double lr, min_lr, warmup, decay, epochs, hold_out, beta1, beta2, eps, weight_decay, momentum,
        clip, loss_scale;
    uint64_t budget; /* of memory, in bytes; 0: none */
    uint64_t batch, seq, steps, accumulate, eval_every, save_every, scale_every, head_rows;
    bool plan_only, nesterov, no_packing, no_shuffle, any_order;
} TrainArgs;

/* An option as it was given, under its long name; value NULL: a flag. */
typedef struct GivenOption {
    const char *name, *value;
    bool several; /* may be given more than once */
} GivenOption;
typedef VEC(GivenOption) GivenOptions;

typedef struct Cli {
    const struct Verb *verbs, *verb; /* all; the one at hand */
    Arena *arena;
    DiagSink *diags;        /* of the command line itself */
    VEC(const char *) args; /* what is not an option */
    const char *output, *target, *precision, *dump_ir, *device, *output_dir, *output_format, *data;
    const char *cache_dir, *weights, *weights_root, *loss, *wrt, *cotangent, *against;
    double rtol, atol; /* negative: not given */
    VEC(NamedFile) inputs;
    VEC(graphc_compile_dim) dims;
    VEC(graphc_compile_state) states;
    const char *tune_db;
    struct Tuned *tuned; /* what is in it, or NULL */
    uint64_t seed, threads, runs, isa, fuse_at_most, variants, seconds, accuracy_level;
    uint32_t forms; /* of code for a CPU that is made, as in CodeOptions */
    TrainArgs train;
    GivenOptions given;
    const char *trace, *html, *dot, *profile; /* files: what is written, what was measured */
    TextList adapter;                         /* --adapter: DIR or NAME=DIR, */
    const char *adapter_rows;                 /* names, with commas, */
    struct CliAdapter *adapted;               /* and what was read there */
    bool percentiles, csv;                    /* bench */
    uint64_t adapters;                        /* places for others */
    bool lean; /* the verb's sessions run once, and memory counts more than their time */
    bool json, verbose, embed, prepared, allow_links, help, version, bisect;
} Cli;

typedef struct CliAdapter CliAdapter;

typedef struct Verb {
    const char *name;
    graphc_status (*run)(Cli *c);
    uint32_t min_args, max_args; /* what is not an option */
    const char *usage, *summary, *examples;
} Verb;

graphc_status cli_parse(Cli *c, int argc, char **argv);
/* Sets an option by its long name, said to stand in `file`; value NULL: none is given. */
/* Whether an option may be given more than once; also of one that there is not. */
bool cli_option_repeats(const Cli *c, const char *name);
graphc_status cli_option_set(Cli *c, const char *file, const char *name, const char *value);
/* --config: options that the command line does not give. */
graphc_status cli_config_read(Cli *c);
/* All options that were given, as --config reads them, but --config and --resume; NULL: not enough
 * memory. */
const char *cli_config_text(Cli *c);
/* "WHAT; usage: ..." of the verb. */
graphc_status cli_usage(Cli *c, const char *what);
void cli_help(const Verb *verbs, const Verb *verb); /* NULL: the overview of all */
void cli_print_diags(const DiagSink *d);
/* printf for text that holds names from files: control characters come out as \xNN, so that no file
 * writes commands to a terminal. */
void cli_print(FILE *to, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

graphc_status cmd_compile(Cli *c);
graphc_status cmd_run(Cli *c);
graphc_status cmd_bench(Cli *c);
graphc_status cmd_explain(Cli *c);
graphc_status cmd_inspect(Cli *c);
graphc_status cmd_verify(Cli *c);
graphc_status cmd_grad(Cli *c);
graphc_status cmd_merge(Cli *c);
graphc_status cmd_train(Cli *c); /* train and finetune */
graphc_status cmd_doctor(Cli *c);
graphc_status cmd_tune(Cli *c);

/* Whether --dim, one value, fits a plan's symbol of that range; name NULL: it has no such symbol,
 * but those in the list. */
graphc_status cli_check_dim(Cli *c, const graphc_compile_dim *dim, const char *name, int64_t lo,
                            int64_t hi, const TextList *known);
/* Refuses options of compiling where the file is a plan already. */
graphc_status cli_check_plan_options(Cli *c);
graphc_compile_options cli_compile_options(const Cli *c);
void cli_pipeline_init(const Cli *c, Pipeline *p,
                       const char *model); /* with what is no such option */
/* The whole pipeline, with its progress on a terminal. */
graphc_status cli_pipeline_run(const Cli *c, Pipeline *p, const char *model,
                               graphc_compile_options o);
/* The model's folder seen from the plan's, so that a plan finds weights by reference wherever the
 * two lie together; NULL when they are one folder. */
const char *cli_weights_dir(Arena *a, const char *model, const char *plan);
/* Reads what --adapter names, if anything. */
graphc_status cli_adapter_read(Cli *c);
const LoraSpec *cli_adapter_spec(const Cli *c); /* NULL: there is none */
const struct Adapter *cli_adapter_first(const Cli *c);
const char *cli_adapter_folder(const Cli *c); /* where the first one lies */
/* The bytes of a plan: read as they are, or compiled when the path is a model's (NAME.onnx). */
bool cli_is_model(const char *path);
graphc_status cli_load_plan(Cli *c, const char *path, const void **bytes, size_t *size);
/* The plan of a model, to lie at `output`, from where its weights are found; NULL: beside the
 * model. */
graphc_status cli_compile(Cli *c, const char *model, const char *output, const void **bytes,
                          size_t *size);

#endif
