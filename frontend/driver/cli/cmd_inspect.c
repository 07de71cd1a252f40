#include "frontend/driver/cli/planview.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

static cJSON *io_json(const PlanView *v, const PlanIo *io) {
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "name", plan_str(&v->plan, io->name));
    cJSON_AddStringToObject(j, "dtype", dtype_name(plan_dtype(io->dtype)));
    cJSON *shape = cJSON_AddArrayToObject(j, "shape");
    for (uint32_t d = 0; d < io->rank; d++) {
        const PlanExpr *e = &v->plan.exprs[v->plan.lists[io->dims + d]];
        cJSON_AddItemToArray(
            shape, e->op == PLAN_EX_const
                       ? cJSON_CreateNumber((double)e->value)
                       : cJSON_CreateString(plan_str(&v->plan, v->plan.lists[io->dim_text + d])));
    }
    return j;
}

static cJSON *symbols_json(const PlanView *v) {
    cJSON *list = cJSON_CreateArray();
    for (uint64_t i = 0; i < v->plan.nsymbols; i++) {
        const PlanSymbol *s = &v->plan.symbols[i];
        cJSON *j = cJSON_CreateObject();
        cJSON_AddStringToObject(j, "name", plan_str(&v->plan, s->name));
        cJSON_AddNumberToObject(j, "min", (double)s->lo);
        cJSON_AddNumberToObject(j, "max", (double)s->hi);
        cJSON_AddItemToArray(list, j);
    }
    return list;
}

/* The covered nodes stand one a line in the plan. */
static cJSON *nodes_json(const char *text) {
    cJSON *list = cJSON_CreateArray();
    while (*text) {
        size_t n = strcspn(text, "\n");
        char line[512];
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        cJSON_AddItemToArray(list, cJSON_CreateString(line));
        text += n + (text[n] == '\n');
    }
    return list;
}

static cJSON *kernels_json(const PlanView *v, const PlanTarget *t, uint32_t from, uint32_t to) {
    cJSON *list = cJSON_CreateArray();
    PLANVIEW_EACH_KERNEL(v, t, from, to, step) {
        const PlanKernel *k = planview_kernel(v, t, step);
        cJSON *j = cJSON_CreateObject();
        cJSON_AddStringToObject(j, "name", plan_str(&v->plan, k->name));
        cJSON_AddStringToObject(j, "kind", plan_str(&v->plan, k->kind));
        cJSON_AddItemToObject(j, "nodes", nodes_json(plan_str(&v->plan, k->nodes)));
        cJSON_AddItemToArray(list, j);
    }
    return list;
}

static void target_json(Cli *c, const PlanView *v, const PlanTarget *t, cJSON *into) {
    PlanMemory m = planview_memory(c, v, t);
    cJSON_AddItemToObject(into, "kernels", kernels_json(v, t, t->nprepare, t->nsteps));
    cJSON_AddItemToObject(into, "prepare", kernels_json(v, t, 0, t->nprepare));
    cJSON *mem = cJSON_AddObjectToObject(into, "memory");
    cJSON_AddNumberToObject(mem, "arena", (double)m.arena);
    cJSON_AddNumberToObject(mem, "largest_live_set", (double)m.live);
    cJSON_AddNumberToObject(mem, "constants", (double)m.constants);
    cJSON_AddNumberToObject(mem, "prepared", (double)m.prepared);
    cJSON_AddNumberToObject(mem, "scratch_per_thread", (double)m.scratch);
}

static cJSON *plan_json(Cli *c, const PlanView *v) {
    const Plan *p = &v->plan;
    cJSON *j = cJSON_CreateObject();
    cJSON *in = cJSON_AddArrayToObject(j, "inputs"), *out = cJSON_AddArrayToObject(j, "outputs");
    for (uint64_t i = 0; i < p->ninputs; i++) cJSON_AddItemToArray(in, io_json(v, &p->inputs[i]));
    for (uint64_t i = 0; i < p->noutputs; i++)
        cJSON_AddItemToArray(out, io_json(v, &p->outputs[i]));
    cJSON_AddItemToObject(j, "symbols", symbols_json(v));
    cJSON_AddNumberToObject(j, "plan_bytes", (double)v->size);
    /* The first target's facts stand at the top, so that plans of one target read simply. */
    if (p->ntargets) target_json(c, v, &p->targets[0], j);
    cJSON *targets = cJSON_AddObjectToObject(j, "targets");
    for (uint64_t i = 0; i < p->ntargets; i++)
        target_json(c, v, &p->targets[i],
                    cJSON_AddObjectToObject(targets, plan_str(p, p->targets[i].name)));
    return j;
}

static void print_io(const PlanView *v, const char *what, const PlanIo *io) {
    printf("%s %s  %s[", what, plan_str(&v->plan, io->name), dtype_name(plan_dtype(io->dtype)));
    for (uint32_t d = 0; d < io->rank; d++)
        printf("%s%s", d ? ", " : "", plan_str(&v->plan, v->plan.lists[io->dim_text + d]));
    printf("]\n");
}

static void print_target(Cli *c, const PlanView *v, const PlanTarget *t) {
    uint32_t kernels = 0, prepare = 0;
    PLANVIEW_EACH_KERNEL(v, t, 0, t->nprepare, a) prepare++;
    PLANVIEW_EACH_KERNEL(v, t, t->nprepare, t->nsteps, b) kernels++;
    PlanMemory m = planview_memory(c, v, t);
    printf("target %s  %u kernels a run, %u at load\n", plan_str(&v->plan, t->name), kernels,
           prepare);
    printf(
        "  memory: arena %.2f MB (largest live set %.2f MB), prepared %.2f MB, constants %.2f MB\n",
        (double)m.arena / 1e6, (double)m.live / 1e6, (double)m.prepared / 1e6,
        (double)m.constants / 1e6);
    PLANVIEW_EACH_KERNEL(v, t, t->nprepare, t->nsteps, step) {
        const PlanKernel *k = planview_kernel(v, t, step);
        printf("  %s\n", plan_str(&v->plan, k->name));
    }
}

static void print_text(Cli *c, const PlanView *v) {
    const Plan *p = &v->plan;
    for (uint64_t i = 0; i < p->ninputs; i++) print_io(v, "input ", &p->inputs[i]);
    for (uint64_t i = 0; i < p->noutputs; i++) print_io(v, "output", &p->outputs[i]);
    for (uint64_t i = 0; i < p->nsymbols; i++)
        printf("symbol %s in %lld..%lld (memory is given for %lld)\n",
               plan_str(p, p->symbols[i].name), (long long)p->symbols[i].lo,
               (long long)p->symbols[i].hi, (long long)v->symbols[i]);
    printf("plan %.2f MB\n", (double)v->size / 1e6);
    for (uint64_t i = 0; i < p->ntargets; i++) print_target(c, v, &p->targets[i]);
}

graphc_status cmd_inspect(Cli *c) {
    if (c->args.n != 1) return diag(c->diags, D_USAGE, "", "usage: graphc inspect PLAN|MODEL.onnx");
    PlanView v;
    GC_TRY(planview_open(c, c->args.v[0], &v));
    if (c->json) {
        cJSON *j = plan_json(c, &v);
        char *text = cJSON_Print(j);
        printf("%s\n", text);
        cJSON_free(text);
        cJSON_Delete(j);
    } else {
        print_text(c, &v);
    }
    planview_close(&v);
    return GRAPHC_OK;
}
