#include "frontend/driver/cli/json.h"
#include "frontend/driver/cli/tune/database.h"
#include "frontend/driver/cli/tune/tune.h"
#include "frontend/driver/cli/units.h"
#include "runtime/base/file.h"

#include <stdlib.h>
#include <string.h>

enum { WAYS = 4, SECONDS = 60 };

/* ---- What came of it ---- */

static void report_json(const TuneRun *r) {
    json_t *j = json_begin("tune"), *list = json_add(j, "kernels", json_array());
    json_add(j, "before_ms", json_real(r->before * 1e3));
    json_add(j, "after_ms", json_real(r->after * 1e3));
    json_add(j, "untried", json_integer(r->left));
    for (uint32_t i = 0; i < r->kernels.n; i++) {
        const TuneKernel *k = &r->kernels.v[i];
        json_t *o = json_object(), *failed = json_array();
        json_add(o, "name", json_string(k->name));
        json_add(o, "signature", json_string(k->signature));
        json_add(o, "launches", json_integer(k->steps.n));
        json_add(o, "ways", json_integer(k->nways));
        json_add(o, "before", json_string(k->way[k->was]));
        json_add(o, "after", json_string(k->way[k->now]));
        json_add(o, "failed", failed);
        for (uint32_t w = 0; w < k->nways; w++)
            if (k->failed[w]) json_array_append_new(failed, json_string(k->way[w]));
        json_array_append_new(list, o);
    }
    json_finish(j, stdout);
}

static void report_text(const TuneRun *r) {
    Arena *a = r->arena;
    uint32_t changed = 0;
    for (uint32_t i = 0; i < r->kernels.n; i++) {
        const TuneKernel *k = &r->kernels.v[i];
        for (uint32_t w = 0; w < k->nways; w++)
            if (k->failed[w]) cli_print(stdout, "%s: %s does not run\n", k->name, k->way[w]);
        if (k->now == k->was) continue;
        cli_print(stdout, "%s (%u launches): %s instead of %s\n", k->name, k->steps.n,
                  k->way[k->now], k->way[k->was]);
        changed++;
    }
    cli_print(stdout,
              "%u of %u kernels with several ways changed%s; a run takes %s instead of %s\n",
              changed, r->kernels.n,
              r->left ? arena_printf(a, ", %u not tried for lack of time", r->left) : "",
              unit_seconds(a, r->after), unit_seconds(a, r->before));
}

/* ---- Where it goes ---- */

static graphc_status write_plan(TuneRun *r, const Plan *p, const char *path) {
    Cli *c = r->session->cli;
    const PlanTarget *t = &p->targets[tune_target(r->session->session)];
    uint32_t *variant = ARENA_ARRAY(c->arena, uint32_t, p->nsteps + 1);
    for (uint64_t i = 0; i < p->nsteps; i++) variant[i] = UINT32_MAX;
    for (uint32_t i = 0; i < r->kernels.n; i++)
        for (uint32_t n = 0; n < r->kernels.v[i].steps.n; n++)
            variant[t->steps + r->kernels.v[i].steps.v[n]] = r->kernels.v[i].now;
    void *bytes;
    uint64_t size;
    char why[256];
    graphc_status st = plan_choose(p, variant, &bytes, &size);
    if (st != GRAPHC_OK) return diag(c->diags, D_NO_MEMORY, path, "the tuned plan does not fit");
    st = file_write(path, bytes, size, why);
    free(bytes);
    return st == GRAPHC_OK ? GRAPHC_OK : diag(c->diags, D_IO, path, "%s", why);
}

static graphc_status write_database(TuneRun *r, const Plan *p) {
    Cli *c = r->session->cli;
    graphc_session *s = r->session->session;
    const char *target = plan_str(p, p->targets[tune_target(s)].name);
    const char *machine = tuned_machine(c->arena, target, tune_processors(s));
    for (uint32_t i = 0; i < r->kernels.n; i++) {
        const TuneKernel *k = &r->kernels.v[i];
        if (k->tried) tuned_put(c->tuned, machine, k->signature, k->way[k->now]);
    }
    return tuned_write(c->tuned, c->tune_db, c->diags);
}

/* ---- The verb ---- */

static graphc_status nothing_to_tune(Cli *c, const char *path) {
    (void)diag(c->diags, D_NO_WAYS, path, "none of its kernels has several ways at known sizes");
    diag_hint(c->diags, "compile it with --variants N for the GPU, sizes fixed by --dim NAME=N");
    return GRAPHC_UNSUPPORTED;
}

static graphc_status tune(CliSession *s, const Plan *p, const char *path, const char *output) {
    Cli *c = s->cli;
    TuneRun r = {
        .session = s, .arena = c->arena, .limit = c->seconds ? (double)c->seconds : SECONDS};
    tune_find(&r, p);
    if (!r.kernels.n) return nothing_to_tune(c, path);
    GC_TRY(cli_session_bind(s));
    graphc_hold_inputs(s->session, true);
    GC_TRY(tune_search(&r));
    if (output) GC_TRY(write_plan(&r, p, output));
    if (c->tune_db) GC_TRY(write_database(&r, p));
    (c->json ? report_json : report_text)(&r);
    return GRAPHC_OK;
}

/* Where a plan may be used in place. */
static const void *placed(Arena *a, const void *bytes, size_t size) {
    uint8_t *to = arena_alloc(a, size + PLAN_ALIGN);
    to += (PLAN_ALIGN - (uintptr_t)to % PLAN_ALIGN) % PLAN_ALIGN;
    return memcpy(to, bytes, size);
}

static graphc_status tune_bytes(Cli *c, const char *path, const char *output, const void *bytes,
                                size_t size, bool compiled) {
    CliSession s = {0};
    Plan p;
    char why[256];
    bytes = placed(c->arena, bytes, size);
    graphc_status st = cli_session_make(&s, c, output && compiled ? output : path, bytes, size);
    s.compiled = compiled;
    if (st == GRAPHC_OK) {
        st = plan_parse(bytes, size, &p, (ErrorText){why, sizeof why});
        if (st == GRAPHC_OK) {
            st = tune(&s, &p, path, output);
            plan_release(&p);
        } else {
            st = diag(c->diags, D_PLAN, path, "%s", why);
        }
    }
    cli_session_close(&s);
    return st;
}

static graphc_status read_plan(Cli *c, const char *path, const void **bytes, size_t *size) {
    GC_TRY(cli_check_plan_options(c));
    return cli_load_plan(c, path, bytes, size);
}

graphc_status cmd_tune(Cli *c) {
    const char *path = c->args.v[0], *output = c->output;
    bool model = cli_is_model(path);
    graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
    CliSession on = {.cli = c};
    const void *bytes;
    size_t size;
    if (model && !output && !c->tune_db)
        return cli_usage(c, "neither -o nor --tune-db says where what is found goes");
    if (!model && !output) output = path;
    GC_TRY(cli_session_device(&on, &o));
    if (!model) GC_TRY(read_plan(c, path, &bytes, &size));
    if (!model) return tune_bytes(c, path, output, bytes, size, false);
    Cli compile = cli_for_device(c, &o);
    if (!compile.variants) compile.variants = WAYS;
    GC_TRY(cli_compile(&compile, path, output, &bytes, &size));
    return tune_bytes(c, path, output, bytes, size, true);
}
