/* Models on the command line: how they are compiled, for the verb and for those that run them. */
#include "frontend/driver/cli/cli.h"
#include "frontend/driver/cli/progress.h"
#include "frontend/driver/cli/tune/database.h"
#include "runtime/base/file.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

graphc_compile_options cli_compile_options(const Cli *c) {
    graphc_compile_options o = GRAPHC_COMPILE_OPTIONS_INIT;
    if (c->target) o.target = c->target;
    if (c->precision) o.precision = c->precision;
    o.accuracy_level = (uint32_t)c->accuracy_level;
    o.dims = c->dims.v;
    o.ndims = c->dims.n;
    o.states = c->states.v;
    o.nstates = c->states.n;
    o.dump_dir = c->dump_ir;
    o.cache_dir = c->cache_dir;
    o.threads = (uint32_t)c->threads;
    o.embed = c->embed;
    o.weights_root = c->weights_root;
    o.allow_links = c->allow_links;
    o.adapters = (uint32_t)c->adapters;
    if (c->adapters) o.lora = c->train.lora;
    return o;
}

void cli_pipeline_init(const Cli *c, Pipeline *p, const char *model) {
    pipeline_init(p, model);
    p->fuse_at_most = (uint32_t)c->fuse_at_most;
    p->lora = cli_adapter_spec(c);
    p->forms = c->forms;
    p->variants = (uint32_t)c->variants;
    if (c->tuned) p->tuned = tuned_way;
    p->tuned_ctx = c->tuned;
}

bool cli_is_model(const char *path) {
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".onnx") == 0;
}

static bool show_stage(void *progress, const char *stage, uint32_t done, uint32_t of) {
    Progress *p = progress;
    p->what = stage;
    progress_show(p, done, of);
    return true;
}

graphc_status cli_pipeline_run(const Cli *c, Pipeline *p, const char *model,
                               graphc_compile_options o) {
    Progress progress = {.quiet = c->json};
    o.progress = show_stage;
    o.progress_ctx = &progress;
    graphc_status s = pipeline_run(p, model, &o);
    progress_end(&progress);
    return s;
}

graphc_status cli_load_plan(Cli *c, const char *path, const void **bytes, size_t *size) {
    char why[256];
    if (cli_is_model(path)) return cli_compile(c, path, NULL, bytes, size);
    FileMap m;
    if (file_map(path, &m, why) != GRAPHC_OK) return diag(c->diags, D_IO, path, "%s", why);
    *bytes = arena_copy(c->arena, m.data, *size = m.size);
    file_unmap(&m);
    return GRAPHC_OK;
}

static graphc_status unknown_dim(Cli *c, const char *name, const TextList *known) {
    StrBuf list;
    sb_init(&list, c->arena);
    for (uint32_t i = 0; i < known->n; i++)
        sb_printf(&list, "%s\"%s\"", i ? ", " : "", known->v[i]);
    (void)diag(c->diags, D_USAGE, "--dim", "the plan has no symbol \"%s\"", name);
    diag_hint(c->diags, known->n ? "its symbols are %s" : "all its sizes are fixed%s",
              sb_str(&list));
    return GRAPHC_USAGE;
}

graphc_status cli_check_dim(Cli *c, const graphc_compile_dim *dim, const char *name, int64_t lo,
                            int64_t hi, const TextList *known) {
    if (!name) return unknown_dim(c, dim->name, known);
    if (dim->lo != dim->hi)
        return diag(c->diags, D_USAGE, "--dim", "a plan needs one value of \"%s\", not a range",
                    name);
    if (dim->lo >= lo && dim->lo <= hi) return GRAPHC_OK;
    return diag(c->diags, D_USAGE, "--dim", "%s is %lld, but the plan was made for %lld to %lld",
                name, (long long)dim->lo, (long long)lo, (long long)hi);
}

/* The folder of `path`, resolved; NULL if there is none. */
static char *folder_of(Arena *a, const char *path) {
    const char *slash = strrchr(path, '/');
    const char *dir = slash ? arena_strndup(a, path, (size_t)(slash - path) + 1) : ".";
    char real[PATH_MAX];
    return realpath(dir, real) ? arena_strdup(a, real) : NULL;
}

const char *cli_weights_dir(Arena *a, const char *model, const char *plan) {
    const char *from = folder_of(a, plan), *to = folder_of(a, model);
    if (!from || !to || strcmp(plan, "-") == 0 || strcmp(from, to) == 0) return NULL;
    size_t common = 0;
    for (size_t i = 0; from[i] && from[i] == to[i]; i++)
        if (from[i] == '/') common = i;
    size_t n = strlen(from), m = strlen(to);
    if (strncmp(from, to, n) == 0 && to[n] == '/') common = n;
    if (strncmp(from, to, m) == 0 && from[m] == '/') common = m;
    StrBuf s;
    sb_init(&s, a);
    for (const char *p = from + common; *p; p++)
        if (*p == '/' && p[1]) sb_put(&s, s.n ? "/.." : "..");
    if (to[common] && to[common + 1]) sb_printf(&s, "%s%s", s.n ? "/" : "", to + common + 1);
    return sb_str(&s);
}

graphc_status cli_compile(Cli *c, const char *model, const char *output, const void **bytes,
                          size_t *size) {
    graphc_compile_options o = cli_compile_options(c);
    if (output) o.weights_dir = cli_weights_dir(c->arena, model, output);
    Pipeline p;
    cli_pipeline_init(c, &p, model);
    graphc_status s = cli_pipeline_run(c, &p, model, o);
    cli_print_diags(p.diags);
    if (s == GRAPHC_OK) *bytes = arena_copy(c->arena, p.plan, *size = p.plan_size);
    pipeline_free(&p);
    return s;
}
