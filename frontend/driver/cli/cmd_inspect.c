#include "frontend/driver/cli/planview.h"

#include "frontend/driver/cli/json.h"
#include "frontend/driver/cli/units.h"
#include "frontend/driver/origin.h"
#include <stdio.h>
#include <stdlib.h>
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

/* entry: NULL, or of which one they are. */
static void kernels_json(const PlanView *v, const PlanTarget *t, PlanRange r, const char *entry,
                         json_t *list) {
    PLANVIEW_EACH_KERNEL(v, t, r.from, r.to, step) {
        const PlanKernel *k = planview_kernel(v, t, step);
        json_t *j = json_object();
        json_object_set_new(j, "name", json_string(plan_str(&v->plan, k->name)));
        json_object_set_new(j, "kind", json_string(plan_str(&v->plan, k->kind)));
        json_object_set_new(j, "nodes", json_lines(plan_str(&v->plan, k->nodes)));
        if (entry) json_object_set_new(j, "entry", json_string(entry));
        json_array_append_new(list, j);
    }
}

static json_t *states_json(const PlanView *v) {
    json_t *list = json_array();
    for (uint64_t i = 0; i < v->plan.nstates; i++) {
        const PlanState *s = &v->plan.states[i];
        json_t *j = io_json(v, &s->io);
        json_object_set_new(j, "starts_as", json_string(s->initial ? "given" : "zeros"));
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *names_json(const Plan *p, const char *(*name)(const Plan *p, uint64_t i),
                          PlanList list, uint32_t n) {
    json_t *j = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(j, json_string(name(p, p->lists[list + i])));
    return j;
}

static json_t *entries_json(const Plan *p) {
    json_t *list = json_array();
    for (uint64_t i = 0; i < p->nentries; i++) {
        const PlanEntry *e = &p->entries[i];
        json_t *j = json_object();
        json_object_set_new(j, "name", json_string(plan_str(p, e->name)));
        json_object_set_new(j, "inputs", names_json(p, plan_input_name, e->inputs, e->ninputs));
        json_object_set_new(j, "outputs", names_json(p, plan_output_name, e->outputs, e->noutputs));
        json_object_set_new(j, "states", names_json(p, plan_state_name, e->states, e->nstates));
        json_array_append_new(list, j);
    }
    return list;
}

static void target_json(Cli *c, const PlanView *v, const PlanTarget *t, json_t *into) {
    PlanMemory m = planview_memory(c, v, t);
    json_t *kernels = json_add(into, "kernels", json_array());
    for (uint32_t e = 0; e < v->plan.nentries; e++)
        kernels_json(v, t, plan_range(&v->plan, t, e), planview_entry(v, e), kernels);
    kernels_json(v, t, (PlanRange){0, t->nprepare}, NULL, json_add(into, "prepare", json_array()));
    json_t *mem = json_add(into, "memory", json_object());
    json_object_set_new(mem, "arena", json_integer((json_int_t)m.arena));
    json_object_set_new(mem, "largest_live_set", json_integer((json_int_t)m.live));
    json_object_set_new(mem, "constants", json_integer((json_int_t)m.constants));
    json_object_set_new(mem, "prepared", json_integer((json_int_t)m.prepared));
    json_object_set_new(mem, "states", json_integer((json_int_t)m.states));
    json_object_set_new(mem, "scratch_per_thread", json_integer((json_int_t)m.scratch));
}

static json_t *plan_json(Cli *c, const PlanView *v) {
    const Plan *p = &v->plan;
    json_t *j = json_begin(c->verb->name);
    json_t *in = json_add(j, "inputs", json_array()), *out = json_add(j, "outputs", json_array());
    for (uint64_t i = 0; i < p->ninputs; i++) json_array_append_new(in, io_json(v, &p->inputs[i]));
    for (uint64_t i = 0; i < p->noutputs; i++)
        json_array_append_new(out, io_json(v, &p->outputs[i]));
    json_object_set_new(j, "symbols", symbols_json(v));
    json_object_set_new(j, "states", states_json(v));
    json_object_set_new(j, "entries", entries_json(p));
    json_object_set_new(j, "plan_bytes", json_integer((json_int_t)v->size));
    json_object_set_new(
        j, "plan_hash",
        json_string(arena_printf(c->arena, "%016llx", (unsigned long long)p->header->hash)));
    json_object_set_new(j, "made_by", json_string(planview_note(v, ORIGIN_MADE_BY)));
    json_object_set_new(j, "model_hash", json_string(planview_note(v, ORIGIN_MODEL)));
    const char *level = planview_said(v, ORIGIN_LEVEL);
    if (level) json_object_set_new(j, "accuracy_level", json_integer(strtol(level, NULL, 10)));
    /* The first target's facts stand at the top, so that plans of one target read simply. */
    if (p->ntargets) target_json(c, v, &p->targets[0], j);
    json_t *targets = json_add(j, "targets", json_array());
    for (uint64_t i = 0; i < p->ntargets; i++) {
        json_t *t = json_object();
        json_add(t, "target", json_string(plan_str(p, p->targets[i].name)));
        target_json(c, v, &p->targets[i], t);
        json_array_append_new(targets, t);
    }
    return j;
}

static void print_io(const PlanView *v, const char *what, const PlanIo *io, const char *more) {
    cli_print(stdout, "%s %s  %s[", what, plan_str(&v->plan, io->name),
              dtype_name(plan_dtype(io->dtype)));
    for (uint32_t d = 0; d < io->rank; d++)
        cli_print(stdout, "%s%s", d ? ", " : "",
                  plan_str(&v->plan, v->plan.lists[io->dim_text + d]));
    cli_print(stdout, "]%s\n", more);
}

static void print_names(const PlanView *v, const char *what,
                        const char *(*name)(const Plan *p, uint64_t i), PlanList list, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        cli_print(stdout, "%s %s", i ? "," : what, name(&v->plan, v->plan.lists[list + i]));
}

/* Of the only one, "run", there is nothing to say beside what it writes. */
static void print_entries(const PlanView *v) {
    const Plan *p = &v->plan;
    for (uint64_t i = 0; i < p->nentries && p->nentries > 1; i++) {
        const PlanEntry *e = &p->entries[i];
        cli_print(stdout, "entry  %s", plan_str(p, e->name));
        print_names(v, "  takes", plan_input_name, e->inputs, e->ninputs);
        print_names(v, "  gives", plan_output_name, e->outputs, e->noutputs);
        print_names(v, "  writes", plan_state_name, e->states, e->nstates);
        cli_print(stdout, "\n");
    }
}

static void print_target(Cli *c, const PlanView *v, const PlanTarget *t) {
    uint32_t kernels = 0, prepare = 0;
    PLANVIEW_EACH_KERNEL(v, t, 0, t->nprepare, a) prepare++;
    PLANVIEW_EACH_KERNEL(v, t, t->nprepare, t->nsteps, b) kernels++;
    PlanMemory m = planview_memory(c, v, t);
    cli_print(stdout, "target %s  %u kernels a run, %u at load\n", plan_str(&v->plan, t->name),
              kernels, prepare);
    Arena *a = c->arena;
    cli_print(stdout, "  memory: arena %s (largest live set %s), prepared %s, constants %s\n",
              unit_bytes(a, (double)m.arena), unit_bytes(a, (double)m.live),
              unit_bytes(a, (double)m.prepared), unit_bytes(a, (double)m.constants));
    if (m.states) cli_print(stdout, "  a session's states %s\n", unit_bytes(a, (double)m.states));
    for (uint32_t e = 0; e < v->plan.nentries; e++) {
        PlanRange r = plan_range(&v->plan, t, e);
        if (planview_entry(v, e)) cli_print(stdout, " entry %s\n", planview_entry(v, e));
        PLANVIEW_EACH_KERNEL(v, t, r.from, r.to, step) {
            const PlanKernel *k = planview_kernel(v, t, step);
            cli_print(stdout, "  %s\n", plan_str(&v->plan, k->name));
        }
    }
}

static void print_text(Cli *c, const PlanView *v) {
    const Plan *p = &v->plan;
    for (uint64_t i = 0; i < p->ninputs; i++) print_io(v, "input ", &p->inputs[i], "");
    for (uint64_t i = 0; i < p->noutputs; i++) print_io(v, "output", &p->outputs[i], "");
    for (uint64_t i = 0; i < p->nstates; i++)
        print_io(v, "state ", &p->states[i].io, p->states[i].initial ? "" : "  starts as zeros");
    print_entries(v);
    for (uint64_t i = 0; i < p->nsymbols; i++)
        cli_print(stdout, "symbol %s in %lld..%lld (memory is given for %lld)\n",
                  plan_str(p, p->symbols[i].name), (long long)p->symbols[i].lo,
                  (long long)p->symbols[i].hi, (long long)v->symbols[i]);
    cli_print(stdout, "plan %s, %016llx, made by %s from model %s\n",
              unit_bytes(c->arena, (double)v->size), (unsigned long long)p->header->hash,
              planview_note(v, ORIGIN_MADE_BY), planview_note(v, ORIGIN_MODEL));
    const char *level = planview_said(v, ORIGIN_LEVEL);
    if (level) cli_print(stdout, "weights of few bits at accuracy level %s\n", level);
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
