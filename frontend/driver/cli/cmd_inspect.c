#include "frontend/driver/cli/planview.h"

#include "frontend/driver/cli/json.h"
#include <stdio.h>
#include <string.h>

static json_t *io_json(const PlanView *v, const PlanIo *io) {
    json_t *j = json_object();
    json_object_set_new(j, "name", json_string(plan_str(&v->plan, io->name)));
    json_object_set_new(j, "dtype", json_string(dtype_name(plan_dtype(io->dtype))));
    json_t *shape = json_add(j, "shape", json_array());
    for (uint32_t d = 0; d < io->rank; d++) {
        const PlanExpr *e = &v->plan.exprs[v->plan.lists[io->dims + d]];
        json_array_append_new(
            shape, e->op == PLAN_EX_const
                       ? json_integer((json_int_t)e->value)
                       : json_string(plan_str(&v->plan, v->plan.lists[io->dim_text + d])));
    }
    return j;
}

static json_t *symbols_json(const PlanView *v) {
    json_t *list = json_array();
    for (uint64_t i = 0; i < v->plan.nsymbols; i++) {
        const PlanSymbol *s = &v->plan.symbols[i];
        json_t *j = json_object();
        json_object_set_new(j, "name", json_string(plan_str(&v->plan, s->name)));
        json_object_set_new(j, "min", json_integer((json_int_t)s->lo));
        json_object_set_new(j, "max", json_integer((json_int_t)s->hi));
        json_array_append_new(list, j);
    }
    return list;
}

/* The covered nodes stand one a line in the plan. */
static json_t *nodes_json(const char *text) {
    json_t *list = json_array();
    while (*text) {
        size_t n = strcspn(text, "\n");
        json_array_append_new(list, json_stringn(text, n));
        text += n + (text[n] == '\n');
    }
    return list;
}

static json_t *kernels_json(const PlanView *v, const PlanTarget *t, uint32_t from, uint32_t to) {
    json_t *list = json_array();
    PLANVIEW_EACH_KERNEL(v, t, from, to, step) {
        const PlanKernel *k = planview_kernel(v, t, step);
        json_t *j = json_object();
        json_object_set_new(j, "name", json_string(plan_str(&v->plan, k->name)));
        json_object_set_new(j, "kind", json_string(plan_str(&v->plan, k->kind)));
        json_object_set_new(j, "nodes", nodes_json(plan_str(&v->plan, k->nodes)));
        json_array_append_new(list, j);
    }
    return list;
}

static void target_json(Cli *c, const PlanView *v, const PlanTarget *t, json_t *into) {
    PlanMemory m = planview_memory(c, v, t);
    json_object_set_new(into, "kernels", kernels_json(v, t, t->nprepare, t->nsteps));
    json_object_set_new(into, "prepare", kernels_json(v, t, 0, t->nprepare));
    json_t *mem = json_add(into, "memory", json_object());
    json_object_set_new(mem, "arena", json_integer((json_int_t)m.arena));
    json_object_set_new(mem, "largest_live_set", json_integer((json_int_t)m.live));
    json_object_set_new(mem, "constants", json_integer((json_int_t)m.constants));
    json_object_set_new(mem, "prepared", json_integer((json_int_t)m.prepared));
    json_object_set_new(mem, "scratch_per_thread", json_integer((json_int_t)m.scratch));
}

static json_t *plan_json(Cli *c, const PlanView *v) {
    const Plan *p = &v->plan;
    json_t *j = json_object();
    json_t *in = json_add(j, "inputs", json_array()), *out = json_add(j, "outputs", json_array());
    for (uint64_t i = 0; i < p->ninputs; i++) json_array_append_new(in, io_json(v, &p->inputs[i]));
    for (uint64_t i = 0; i < p->noutputs; i++)
        json_array_append_new(out, io_json(v, &p->outputs[i]));
    json_object_set_new(j, "symbols", symbols_json(v));
    json_object_set_new(j, "plan_bytes", json_integer((json_int_t)v->size));
    /* The first target's facts stand at the top, so that plans of one target read simply. */
    if (p->ntargets) target_json(c, v, &p->targets[0], j);
    json_t *targets = json_add(j, "targets", json_object());
    for (uint64_t i = 0; i < p->ntargets; i++)
        target_json(c, v, &p->targets[i],
                    json_add(targets, plan_str(p, p->targets[i].name), json_object()));
    return j;
}

static void print_io(const PlanView *v, const char *what, const PlanIo *io) {
    cli_print(stdout, "%s %s  %s[", what, plan_str(&v->plan, io->name),
              dtype_name(plan_dtype(io->dtype)));
    for (uint32_t d = 0; d < io->rank; d++)
        cli_print(stdout, "%s%s", d ? ", " : "",
                  plan_str(&v->plan, v->plan.lists[io->dim_text + d]));
    cli_print(stdout, "]\n");
}

static void print_target(Cli *c, const PlanView *v, const PlanTarget *t) {
    uint32_t kernels = 0, prepare = 0;
    PLANVIEW_EACH_KERNEL(v, t, 0, t->nprepare, a) prepare++;
    PLANVIEW_EACH_KERNEL(v, t, t->nprepare, t->nsteps, b) kernels++;
    PlanMemory m = planview_memory(c, v, t);
    cli_print(stdout, "target %s  %u kernels a run, %u at load\n", plan_str(&v->plan, t->name),
              kernels, prepare);
    cli_print(
        stdout,
        "  memory: arena %.2f MB (largest live set %.2f MB), prepared %.2f MB, constants %.2f MB\n",
        (double)m.arena / 1e6, (double)m.live / 1e6, (double)m.prepared / 1e6,
        (double)m.constants / 1e6);
    PLANVIEW_EACH_KERNEL(v, t, t->nprepare, t->nsteps, step) {
        const PlanKernel *k = planview_kernel(v, t, step);
        cli_print(stdout, "  %s\n", plan_str(&v->plan, k->name));
    }
}

static void print_text(Cli *c, const PlanView *v) {
    const Plan *p = &v->plan;
    for (uint64_t i = 0; i < p->ninputs; i++) print_io(v, "input ", &p->inputs[i]);
    for (uint64_t i = 0; i < p->noutputs; i++) print_io(v, "output", &p->outputs[i]);
    for (uint64_t i = 0; i < p->nsymbols; i++)
        cli_print(stdout, "symbol %s in %lld..%lld (memory is given for %lld)\n",
                  plan_str(p, p->symbols[i].name), (long long)p->symbols[i].lo,
                  (long long)p->symbols[i].hi, (long long)v->symbols[i]);
    cli_print(stdout, "plan %.2f MB\n", (double)v->size / 1e6);
    for (uint64_t i = 0; i < p->ntargets; i++) print_target(c, v, &p->targets[i]);
}

graphc_status cmd_inspect(Cli *c) {
    PlanView v;
    GC_TRY(planview_open(c, c->args.v[0], &v));
    if (c->json) {
        json_finish(plan_json(c, &v), stdout);
    } else {
        print_text(c, &v);
    }
    planview_close(&v);
    return GRAPHC_OK;
}
