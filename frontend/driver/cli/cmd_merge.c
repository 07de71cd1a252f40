/* graphc merge: a model and an adapter become one model. */
#include "frontend/driver/cli/kept.h"
#include "frontend/driver/merge/merge.h"

#include <string.h>

static bool ends_in(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n > k && strcmp(s + n - k, end) == 0;
}

static graphc_status check_args(Cli *c) {
    if (!c->output) return cli_usage(c, "-o is missing");
    if (!c->adapter.n) return cli_usage(c, "--adapter is missing");
    if (c->adapter.n > 1) return cli_usage(c, "--adapter is given twice: one is merged at a time");
    if (!ends_in(c->output, ".onnx") && !ends_in(c->output, ".safetensors"))
        return diag(c->diags, D_USAGE, "-o", "\"%s\" ends neither in .onnx nor in .safetensors",
                    c->output);
    return GRAPHC_OK;
}

/* The model, and what goes beside it. */
static graphc_status check_kept(Cli *c, const Graph *g) {
    static const char what[] = "the merged model";
    const char *side = arena_printf(c->arena, "%s" MERGE_SIDE, c->output);
    const char *adapter = arena_printf(c->arena, "%s/" ADAPTER_MODEL, cli_adapter_folder(c));
    GC_TRY(cli_keep(c, adapter, "the adapter", c->output, what));
    GC_TRY(cli_keep_model(c, g, c->output, what));
    return ends_in(c->output, ".onnx") ? cli_keep_model(c, g, side, what) : GRAPHC_OK;
}

static graphc_status merge(Cli *c, Pipeline *p, const Adapter *a) {
    const ImportOptions options = {.weights = true};
    Merge all;
    GC_TRY(import_model(p->arena, p->diags, c->args.v[0], &options, &p->model, &p->imported));
    GC_TRY(check_kept(c, p->imported));
    GC_TRY(merge_collect(p->imported, a, &all));
    GC_TRY(ends_in(c->output, ".onnx") ? merge_write_onnx(&all, c->args.v[0], c->output)
                                       : merge_write_safetensors(&all, c->output));
    cli_print(stdout, "%s: %u parameters changed\n", c->output, all.nchanged);
    return GRAPHC_OK;
}

graphc_status cmd_merge(Cli *c) {
    GC_TRY(check_args(c));
    GC_TRY(cli_adapter_read(c));
    Pipeline p;
    cli_pipeline_init(c, &p, c->args.v[0]);
    graphc_status st = merge(c, &p, cli_adapter_first(c));
    cli_print_diags(p.diags);
    pipeline_free(&p);
    return st;
}
