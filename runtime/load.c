/* graphc_plan: loading and asking. */
#include "runtime/session.h"
#include <stdlib.h>
#include <string.h>

static ErrorText clear(char *error, size_t size) {
    if (error && size) error[0] = 0;
    return (ErrorText){error, size};
}

static void plan_free(graphc_plan *p) {
    if (!p) return;
    plan_release(&p->plan);
    if (p->map.data) file_unmap(&p->map);
    free(p->copy);
    free(p->base_path);
    free((void *)p->dim_text);
    free(p->sizes);
    free(p);
}

/* Dimensions of the n tensors that stand at `at` among inputs, outputs and states. */
static void fill_dims(graphc_plan *p, const PlanIo *v, uint64_t n, uint64_t at) {
    for (uint64_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < v[i].rank; k++) {
            size_t place = (at + i) * PLAN_MAX_RANK + k;
            const PlanExpr *e = &p->plan.exprs[p->plan.lists[v[i].dims + k]];
            p->dim_text[place] = plan_str(&p->plan, p->plan.lists[v[i].dim_text + k]);
            p->sizes[place] = e->op == PLAN_EX_const ? e->value : -1;
        }
}

/* Takes p over; bytes are p->map or p->copy. */
static graphc_status finish_load(graphc_plan *p, const void *bytes, uint64_t size,
                                 const char *base_path, graphc_plan **out, ErrorText e) {
    graphc_status st = plan_parse(bytes, size, &p->plan, e);
    if (st == GRAPHC_OK) {
        size_t nio = p->plan.ninputs + p->plan.noutputs + p->plan.nstates;
        p->dim_text = calloc((nio + 1) * PLAN_MAX_RANK, sizeof *p->dim_text);
        p->sizes = calloc((nio + 1) * PLAN_MAX_RANK, sizeof *p->sizes);
        p->base_path = base_path ? strdup(base_path) : NULL;
        if (!p->dim_text || !p->sizes || (base_path && !p->base_path) ||
            pthread_mutex_init(&p->lock, NULL) != 0)
            st = error_set(e, GRAPHC_NO_MEMORY, "not enough memory to load the plan");
    }
    if (st != GRAPHC_OK) {
        plan_free(p);
        return st;
    }
    fill_dims(p, p->plan.inputs, p->plan.ninputs, 0);
    fill_dims(p, p->plan.outputs, p->plan.noutputs, p->plan.ninputs);
    for (uint64_t i = 0; i < p->plan.nstates; i++)
        fill_dims(p, &p->plan.states[i].io, 1, p->plan.ninputs + p->plan.noutputs + i);
    *out = p;
    return GRAPHC_OK;
}

graphc_status graphc_plan_load(const char *path, graphc_plan **out, char *error,
                               size_t error_size) {
    ErrorText e = clear(error, error_size);
    if (!path || !out)
        return error_set(e, GRAPHC_USAGE, "graphc_plan_load needs a path and a place");
    *out = NULL;
    graphc_plan *p = calloc(1, sizeof *p);
    if (!p) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory to load the plan");
    char why[256];
    graphc_status st = file_map(path, &p->map, why);
    if (st != GRAPHC_OK) {
        plan_free(p);
        return error_set(e, st, "%s: %s", path, why);
    }
    return finish_load(p, p->map.data, p->map.size, path, out, e);
}

graphc_status graphc_plan_load_memory(const void *bytes, size_t size, const char *base_path,
                                      graphc_plan **out, char *error, size_t error_size) {
    ErrorText e = clear(error, error_size);
    if ((!bytes && size) || !out)
        return error_set(e, GRAPHC_USAGE, "graphc_plan_load_memory needs bytes and a place");
    *out = NULL;
    graphc_plan *p = calloc(1, sizeof *p);
    size_t room = (size + PLAN_ALIGN) / PLAN_ALIGN * PLAN_ALIGN;
    if (p && room > size) p->copy = aligned_alloc(PLAN_ALIGN, room);
    if (!p || !p->copy) {
        plan_free(p);
        return error_set(e, GRAPHC_NO_MEMORY, "not enough memory to load the plan");
    }
    if (size) memcpy(p->copy, bytes, size);
    return finish_load(p, p->copy, size, base_path, out, e);
}

void graphc_plan_destroy(graphc_plan *p) {
    if (!p) return;
    pthread_mutex_destroy(&p->lock);
    plan_free(p);
}

uint32_t graphc_plan_inputs(const graphc_plan *p) {
    return (uint32_t)p->plan.ninputs;
}
uint32_t graphc_plan_outputs(const graphc_plan *p) {
    return (uint32_t)p->plan.noutputs;
}
uint32_t graphc_plan_states(const graphc_plan *p) {
    return (uint32_t)p->plan.nstates;
}
uint32_t graphc_plan_entries(const graphc_plan *p) {
    return (uint32_t)p->plan.nentries;
}
uint32_t graphc_plan_symbols(const graphc_plan *p) {
    return (uint32_t)p->plan.nsymbols;
}

/* at: its number among inputs, outputs and states. */
static graphc_io_info io_info(const graphc_plan *p, const PlanIo *v, uint64_t at) {
    DType t = plan_dtype(v->dtype);
    return (graphc_io_info){.name = plan_str(&p->plan, v->name),
                            .dtype = {dtype_info[t].dlcode, dtype_info[t].dlbits, 1},
                            .dtype_name = dtype_name(t),
                            .rank = (int32_t)v->rank,
                            .dims = p->dim_text + at * PLAN_MAX_RANK,
                            .sizes = p->sizes + at * PLAN_MAX_RANK};
}

graphc_io_info graphc_plan_input(const graphc_plan *p, uint32_t i) {
    if (i >= p->plan.ninputs) return (graphc_io_info){0};
    return io_info(p, &p->plan.inputs[i], i);
}

graphc_io_info graphc_plan_output(const graphc_plan *p, uint32_t i) {
    if (i >= p->plan.noutputs) return (graphc_io_info){0};
    return io_info(p, &p->plan.outputs[i], p->plan.ninputs + i);
}

graphc_io_info graphc_plan_state(const graphc_plan *p, uint32_t i) {
    if (i >= p->plan.nstates) return (graphc_io_info){0};
    return io_info(p, &p->plan.states[i].io, p->plan.ninputs + p->plan.noutputs + i);
}

_Static_assert((int)PLAN_ROLE_parameter == GRAPHC_STATE_PARAMETER &&
                   (int)PLAN_ROLE_moment == GRAPHC_STATE_MOMENT &&
                   (int)PLAN_ROLE_gradient == GRAPHC_STATE_GRADIENT &&
                   (int)PLAN_ROLE_buffer == GRAPHC_STATE_BUFFER,
               "the file's roles are the header's");

graphc_state_info graphc_plan_state_info(const graphc_plan *p, uint32_t i) {
    if (i >= p->plan.nstates) return (graphc_state_info){.parameter = -1};
    const PlanState *s = &p->plan.states[i];
    return (graphc_state_info){(graphc_state_role)s->role, (int32_t)s->of - 1, (double)s->spread};
}

const char *graphc_plan_note(const graphc_plan *p, const char *key) {
    for (uint64_t i = 0; key && i < p->plan.nnotes; i++)
        if (strcmp(plan_str(&p->plan, p->plan.notes[i].key), key) == 0)
            return plan_str(&p->plan, p->plan.notes[i].text);
    return NULL;
}

graphc_entry_info graphc_plan_entry(const graphc_plan *p, uint32_t i) {
    if (i >= p->plan.nentries) return (graphc_entry_info){0};
    const PlanEntry *e = &p->plan.entries[i];
    return (graphc_entry_info){.name = plan_str(&p->plan, e->name),
                               .inputs = p->plan.lists + e->inputs,
                               .outputs = p->plan.lists + e->outputs,
                               .states = p->plan.lists + e->states,
                               .ninputs = e->ninputs,
                               .noutputs = e->noutputs,
                               .nstates = e->nstates};
}

graphc_symbol_info graphc_plan_symbol(const graphc_plan *p, uint32_t i) {
    if (i >= p->plan.nsymbols) return (graphc_symbol_info){0};
    const PlanSymbol *s = &p->plan.symbols[i];
    return (graphc_symbol_info){plan_str(&p->plan, s->name), s->lo, s->hi};
}

static int32_t find_io(const Plan *p, const PlanIo *v, uint64_t n, const char *name) {
    for (uint64_t i = 0; name && i < n; i++)
        if (strcmp(plan_str(p, v[i].name), name) == 0) return (int32_t)i;
    return -1;
}

int32_t graphc_plan_find_input(const graphc_plan *p, const char *name) {
    return find_io(&p->plan, p->plan.inputs, p->plan.ninputs, name);
}
int32_t graphc_plan_find_output(const graphc_plan *p, const char *name) {
    return find_io(&p->plan, p->plan.outputs, p->plan.noutputs, name);
}

int32_t graphc_plan_find_state(const graphc_plan *p, const char *name) {
    for (uint64_t i = 0; name && i < p->plan.nstates; i++)
        if (strcmp(plan_state_name(&p->plan, i), name) == 0) return (int32_t)i;
    return -1;
}

int32_t graphc_plan_find_entry(const graphc_plan *p, const char *name) {
    for (uint64_t i = 0; name && i < p->plan.nentries; i++)
        if (strcmp(plan_str(&p->plan, p->plan.entries[i].name), name) == 0) return (int32_t)i;
    return -1;
}

/* --- What a plan says of itself -------------------------------------------------------------- */

static const PlanTarget *target_at(const graphc_plan *p, uint32_t i) {
    return i < p->plan.ntargets ? &p->plan.targets[i] : NULL;
}

uint32_t graphc_plan_targets(const graphc_plan *p) {
    return (uint32_t)p->plan.ntargets;
}

const char *graphc_plan_target(const graphc_plan *p, uint32_t target) {
    const PlanTarget *t = target_at(p, target);
    return t ? plan_str(&p->plan, t->name) : "";
}

const char *graphc_plan_refusals(const graphc_plan *p, uint32_t target) {
    const PlanTarget *t = target_at(p, target);
    return t ? plan_str(&p->plan, t->notes) : "";
}

const char *graphc_plan_uncovered(const graphc_plan *p, uint32_t target) {
    const PlanTarget *t = target_at(p, target);
    return t ? plan_str(&p->plan, t->apart) : "";
}

/* Number of the step that launches kernel i, or nsteps; *count, if asked for: of all that do. */
static uint32_t kernel_step(const Plan *p, const PlanTarget *t, uint32_t i, uint32_t *count) {
    uint32_t n = 0, found = t->nsteps;
    for (uint32_t s = 0; s < t->nsteps; s++)
        if (p->steps[t->steps + s].kind == PLAN_STEP_kernel && n++ == i) found = s;
    if (count) *count = n;
    return found;
}

uint32_t graphc_plan_kernels(const graphc_plan *p, uint32_t target) {
    const PlanTarget *t = target_at(p, target);
    uint32_t n = 0;
    if (t) (void)kernel_step(&p->plan, t, 0, &n);
    return n;
}

static const char *entry_of(const Plan *p, const PlanTarget *t, uint32_t step) {
    for (uint32_t e = 0; e < p->nentries; e++) {
        PlanRange r = plan_range(p, t, e);
        if (step >= r.from && step < r.to) return plan_str(p, p->entries[e].name);
    }
    return "";
}

graphc_kernel_info graphc_plan_kernel(const graphc_plan *p, uint32_t target, uint32_t i) {
    const PlanTarget *t = target_at(p, target);
    uint32_t step = t ? kernel_step(&p->plan, t, i, NULL) : 0;
    if (!t || step == t->nsteps) return (graphc_kernel_info){"", "", "", ""};
    const PlanKernel *k = &p->plan.kernels[t->kernels + p->plan.steps[t->steps + step].kernel];
    return (graphc_kernel_info){plan_str(&p->plan, k->name), plan_str(&p->plan, k->kind),
                                entry_of(&p->plan, t, step), plan_str(&p->plan, k->nodes)};
}
