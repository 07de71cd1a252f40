#include "frontend/driver/cli/session.h"
#include "frontend/driver/npy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* NAME as a file name: characters outside A-Za-z0-9._- become _ . */
static char *file_name(Arena *a, const char *name) {
    char *s = arena_strdup(a, name);
    for (char *p = s; *p; p++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", *p))
            *p = '_';
    return s;
}

/* Unless the form is given: .npy, but .pb for the types that .npy has no name for. */
static bool as_pb(const Cli *c, DType t) {
    return c->output_format ? strcmp(c->output_format, "pb") == 0 : !*dtype_info[t].npy;
}

static graphc_status write_output(CliSession *s, uint32_t i) {
    Cli *c = s->cli;
    EvalTensor t;
    GC_TRY(cli_session_output(s, i, &t));
    bool pb = as_pb(c, t.dtype);
    const char *name = graphc_plan_output(s->plan, i).name;
    bool to_stdout = strcmp(c->output_dir, "-") == 0;
    const char *path = to_stdout ? "-"
                                 : arena_printf(c->arena, "%s/%s.%s", c->output_dir,
                                                file_name(c->arena, name), pb ? "pb" : "npy");
    return pb ? tensor_file_write_pb(c->arena, c->diags, path, name, &t)
              : tensor_file_write_npy(c->arena, c->diags, path, &t);
}

/* Said before the run, not after it. */
static graphc_status check_format(CliSession *s) {
    Cli *c = s->cli;
    for (uint32_t i = 0; i < graphc_plan_outputs(s->plan); i++) {
        graphc_io_info io = graphc_plan_output(s->plan, i);
        DType t = cli_dtype(io.dtype_name);
        if (!as_pb(c, t)) GC_TRY(npy_has_type(c->diags, io.name, t));
    }
    return GRAPHC_OK;
}

static graphc_status run_session(CliSession *s) {
    Cli *c = s->cli;
    GC_TRY(check_format(s));
    GC_TRY(cli_session_bind(s));
    graphc_status st = graphc_run(s->session);
    if (st != GRAPHC_OK) return cli_session_failed(s, st);
    for (uint32_t i = 0; i < graphc_plan_outputs(s->plan); i++) GC_TRY(write_output(s, i));
    if (c->verbose)
        fprintf(stderr, "graphc: %u outputs in %s\n", graphc_plan_outputs(s->plan), c->output_dir);
    return GRAPHC_OK;
}

graphc_status cmd_run(Cli *c) {
    if (c->args.n != 1 || !c->output_dir)
        return diag(c->diags, D_USAGE, "",
                    "usage: graphc run PLAN --output-dir DIR [--input NAME=FILE ...]");
    if (c->output_format && strcmp(c->output_format, "pb") && strcmp(c->output_format, "npy"))
        return diag(c->diags, D_USAGE, "--output-format", "\"%s\" is neither npy nor pb",
                    c->output_format);
    if (strcmp(c->output_dir, "-") != 0 && mkdir(c->output_dir, 0777) != 0 && errno != EEXIST)
        return diag(c->diags, D_IO, c->output_dir, "cannot make the folder: %s", strerror(errno));
    CliSession s;
    graphc_status st = cli_session_open(&s, c, c->args.v[0]);
    if (st == GRAPHC_OK) st = run_session(&s);
    cli_session_close(&s);
    return st;
}
