#include "frontend/driver/cli/json.h"
#include "frontend/driver/cli/session.h"
#include "frontend/driver/tensors/npy.h"
#include "runtime/base/file.h"

#include <stdio.h>
#include <string.h>

static char *output_file(CliSession *s, uint32_t i) {
    return cli_file_name(s->cli->arena, graphc_plan_output(s->plan, i).name);
}

/* Outputs whose names differ only in characters that file names do not keep cannot lie in one
 * folder. */
static graphc_status check_names(CliSession *s) {
    uint32_t n = graphc_plan_outputs(s->plan);
    char **file = ARENA_ARRAY(s->cli->arena, char *, n);
    for (uint32_t i = 0; i < n; i++) {
        file[i] = output_file(s, i);
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(file[i], file[k]) == 0)
                return diag(s->cli->diags, D_UNSUPPORTED, "--output-dir",
                            "outputs \"%s\" and \"%s\" would both be the file %s",
                            graphc_plan_output(s->plan, k).name,
                            graphc_plan_output(s->plan, i).name, file[i]);
    }
    return GRAPHC_OK;
}

/* Unless the form is given: .npy, but .pb for the types that .npy has no name for. */
static bool as_pb(const Cli *c, DType t) {
    return c->output_format ? strcmp(c->output_format, "pb") == 0 : !*dtype_info[t].npy;
}

static const char *output_path(CliSession *s, uint32_t i, bool pb) {
    if (strcmp(s->cli->output_dir, "-") == 0) return "-";
    return arena_printf(s->cli->arena, "%s/%s.%s", s->cli->output_dir, output_file(s, i),
                        pb ? "pb" : "npy");
}

static graphc_status write_output(CliSession *s, uint32_t i) {
    Cli *c = s->cli;
    EvalTensor t;
    GC_TRY(cli_session_output(s, i, &t));
    bool pb = as_pb(c, t.dtype);
    const char *name = graphc_plan_output(s->plan, i).name;
    const char *path = output_path(s, i, pb);
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

/* ---- --json ---- */

static json_t *tensor_json(const char *name, const EvalTensor *t) {
    json_t *j = json_object(), *shape = json_add(j, "shape", json_array());
    json_add(j, "name", json_string(name));
    json_add(j, "dtype", json_string(dtype_name(t->dtype)));
    for (int d = 0; d < t->rank; d++)
        json_array_append_new(shape, json_integer((json_int_t)t->dim[d]));
    return j;
}

static graphc_status report_json(CliSession *s) {
    const Cli *c = s->cli;
    json_t *j = json_begin(c->verb->name);
    json_add(j, "device", json_string(s->device));
    json_add(j, "code", json_string(graphc_session_code(s->session)));
    json_add(j, "threads", json_integer(graphc_session_threads(s->session)));
    json_add(j, "sizes", cli_sizes_json(s));
    json_t *in = json_add(j, "inputs", json_array()), *out = json_add(j, "outputs", json_array());
    for (uint32_t i = 0; i < graphc_plan_inputs(s->plan); i++) {
        json_t *t = tensor_json(graphc_plan_input(s->plan, i).name, &s->inputs[i]);
        json_add(t, "from", json_string(s->drawn[i] ? "seed" : "file"));
        json_array_append_new(in, t);
    }
    graphc_status st = GRAPHC_OK;
    for (uint32_t i = 0; i < graphc_plan_outputs(s->plan) && st == GRAPHC_OK; i++) {
        EvalTensor t;
        st = cli_session_output(s, i, &t);
        if (st != GRAPHC_OK) break;
        json_t *o = tensor_json(graphc_plan_output(s->plan, i).name, &t);
        json_add(o, "file", json_string(output_path(s, i, as_pb(c, t.dtype))));
        json_array_append_new(out, o);
    }
    json_finish(j, stdout);
    return st;
}

graphc_status cli_session_run(CliSession *s) {
    Cli *c = s->cli;
    GC_TRY(check_format(s));
    char why[256];
    bool to_stdout = strcmp(c->output_dir, "-") == 0;
    if (!to_stdout) GC_TRY(check_names(s));
    GC_TRY(cli_session_bind(s));
    graphc_status st = graphc_run(s->session);
    if (st != GRAPHC_OK) return cli_session_failed(s, st);
    if (!to_stdout && folder_make(c->output_dir, why) != GRAPHC_OK)
        return diag(c->diags, D_IO, c->output_dir, "%s", why);
    for (uint32_t i = 0; i < graphc_plan_outputs(s->plan); i++) GC_TRY(write_output(s, i));
    if (c->json) return report_json(s);
    if (c->verbose)
        cli_print(stderr, "graphc: %u outputs in %s\n", graphc_plan_outputs(s->plan),
                  c->output_dir);
    return GRAPHC_OK;
}

graphc_status cli_check_outputs(Cli *c) {
    if (!c->output_dir) return cli_usage(c, "--output-dir is missing");
    if (c->json && strcmp(c->output_dir, "-") == 0)
        return cli_usage(c, "standard output takes --json or the outputs, not both");
    if (c->output_format && strcmp(c->output_format, "pb") && strcmp(c->output_format, "npy"))
        return diag(c->diags, D_USAGE, "--output-format", "\"%s\" is neither npy nor pb",
                    c->output_format);
    return GRAPHC_OK;
}

graphc_status cmd_run(Cli *c) {
    GC_TRY(cli_check_outputs(c));
    CliSession s;
    graphc_status st = cli_session_open(&s, c, c->args.v[0]);
    if (st == GRAPHC_OK) st = cli_session_run(&s);
    cli_session_close(&s);
    return st;
}
