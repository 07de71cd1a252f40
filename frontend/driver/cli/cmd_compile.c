#include "frontend/driver/cli/cli.h"
#include "runtime/base/file.h"

#include "frontend/driver/cli/json.h"
#include "frontend/driver/cli/kept.h"
#include "frontend/driver/cli/session.h"
#include "frontend/driver/cli/units.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Kernels of a run, and those at load, of which --prepared leaves none to a CPU. */
static void count_steps(const Cli *c, const PlanTargetInput *t, uint32_t *kernels,
                        uint32_t *prepare) {
    const Schedule *s = t->schedule;
    *kernels = *prepare = 0;
    for (uint32_t i = 0; i < s->steps.n; i++) {
        const SStep *step = &s->steps.v[i];
        if (step->kind == STEP_kernel) ++*(step->prepare ? prepare : kernels);
    }
    if (c->prepared && t->target->device == PLAN_cpu) *prepare = 0;
}

static void summary_json(const Cli *c, const Pipeline *p, double took, FILE *to) {
    json_t *j = json_begin("compile"), *targets = json_add(j, "targets", json_array());
    for (uint32_t i = 0; i < p->ntargets; i++) {
        uint32_t kernels, prepare;
        count_steps(c, &p->targets[i], &kernels, &prepare);
        json_t *t = json_object();
        json_add(t, "target", json_string(p->targets[i].target->name));
        json_add(t, "kernels", json_integer(kernels));
        json_add(t, "prepare", json_integer(prepare));
        json_add(t, "refused_fusions", json_integer(p->targets[i].schedule->refusals.n));
        const char *assembler = p->targets[i].code->assembler;
        if (assembler) json_add(t, "assembler", json_string(assembler));
        json_array_append_new(targets, t);
    }
    json_add(j, "plan_bytes", json_integer((json_int_t)p->plan_size));
    json_add(j, "seconds", json_real(took));
    json_finish(j, to);
}

static void print_summary(Cli *c, const Pipeline *p, double took) {
    FILE *to = strcmp(c->output, "-") == 0 ? stderr : stdout;
    if (c->json) {
        summary_json(c, p, took, to);
        return;
    }
    for (uint32_t i = 0; i < p->ntargets; i++) {
        uint32_t kernels, prepare;
        count_steps(c, &p->targets[i], &kernels, &prepare);
        const char *assembler = p->targets[i].code->assembler;
        fprintf(to, "%s: %u kernels a run, %u at load, %u fusions refused (graphc explain)%s%s\n",
                p->targets[i].target->name, kernels, prepare, p->targets[i].schedule->refusals.n,
                assembler ? ", assembled by " : "", assembler ? assembler : "");
    }
    cli_print(to, "%s: %s in %s\n", c->output, unit_bytes(c->arena, (double)p->plan_size),
              unit_seconds(c->arena, took));
}

/* With weights beside it that are prepared now. */
static graphc_status write_prepared(Cli *c, Pipeline *p) {
    CliSession s = {0};
    struct stat file;
    graphc_status st = cli_session_make(&s, c, c->output, p->plan, p->plan_size);
    if (st == GRAPHC_OK) {
        st = graphc_prepared_save(s.session, c->output);
        if (st != GRAPHC_OK) st = cli_session_failed(&s, st);
    }
    if (st == GRAPHC_OK && stat(c->output, &file) == 0) p->plan_size = (size_t)file.st_size;
    cli_session_close(&s);
    return st;
}

static graphc_status write_result(Cli *c, Pipeline *p) {
    char why[256];
    if (c->prepared) return write_prepared(c, p);
    if (file_write(c->output, p->plan, p->plan_size, why) == GRAPHC_OK) return GRAPHC_OK;
    return diag(p->diags, D_IO, c->output, "%s", why);
}

graphc_status cmd_compile(Cli *c) {
    if (!c->output) return cli_usage(c, "-o is missing");
    if (c->prepared && strcmp(c->output, "-") == 0)
        return diag(c->diags, D_USAGE, "--prepared", "needs a file: weights lie beside the plan");
    if (c->train.lora && !c->adapters)
        return diag(c->diags, D_USAGE, "--lora",
                    "says which layers --adapters are for, and how many is not said");
    GC_TRY(cli_keep_model(c, NULL, c->output, "the plan"));
    graphc_compile_options o = cli_compile_options(c);
    o.weights_dir = cli_weights_dir(c->arena, c->args.v[0], c->output);
    Pipeline p;
    cli_pipeline_init(c, &p, c->args.v[0]);
    double start = seconds();
    graphc_status s = cli_pipeline_run(c, &p, c->args.v[0], o);
    if (s == GRAPHC_OK) s = cli_keep_model(c, p.imported, c->output, "the plan");
    if (s == GRAPHC_OK) s = write_result(c, &p);
    cli_print_diags(p.diags);
    if (s == GRAPHC_OK) print_summary(c, &p, seconds() - start);
    pipeline_free(&p);
    return s;
}
