#include "frontend/driver/cli/planview.h"
#include "frontend/driver/cli/session.h"
#include "fusion/kir/kir.h"
#include "runtime/memory.h"

#include <string.h>

static graphc_status check_dims(Cli *c, const PlanView *v) {
    for (uint32_t k = 0; k < c->dims.n; k++) {
        const PlanSymbol *found = NULL;
        TextList known = {0};
        for (uint64_t i = 0; i < v->plan.nsymbols; i++) {
            const char *name = plan_str(&v->plan, v->plan.symbols[i].name);
            vec_push(c->arena, &known, name);
            if (strcmp(c->dims.v[k].name, name) == 0) found = &v->plan.symbols[i];
        }
        GC_TRY(cli_check_dim(c, &c->dims.v[k], found ? plan_str(&v->plan, found->name) : NULL,
                             found ? found->lo : 0, found ? found->hi : 0, &known));
    }
    return GRAPHC_OK;
}

static int64_t symbol_value(const Cli *c, const PlanView *v, const PlanSymbol *s) {
    for (uint32_t i = 0; i < c->dims.n; i++)
        if (strcmp(c->dims.v[i].name, plan_str(&v->plan, s->name)) == 0) return c->dims.v[i].lo;
    int64_t value = s->hint ? s->hint : 1;
    return value < s->lo ? s->lo : value > s->hi ? s->hi : value;
}

graphc_status planview_make(Cli *c, const char *path, const void *bytes, size_t size, PlanView *v) {
    char error[256] = "";
    *v = (PlanView){.size = size};
    /* plan_parse wants 64-byte alignment, an arena gives 16. */
    uintptr_t room = (uintptr_t)arena_alloc(c->arena, size + PLAN_ALIGN);
    void *aligned = (void *)((room + PLAN_ALIGN - 1) & ~(uintptr_t)(PLAN_ALIGN - 1));
    if (size) memcpy(aligned, bytes, size);
    graphc_status s = plan_parse(aligned, size, &v->plan, (ErrorText){error, sizeof error});
    if (s != GRAPHC_OK) return cli_load_failed(c, path, s, error);
    s = cli_is_model(path) ? GRAPHC_OK : check_dims(c, v);
    if (s != GRAPHC_OK) {
        planview_close(v);
        return s;
    }
    v->symbols = ARENA_ARRAY(c->arena, int64_t, v->plan.nsymbols + 1);
    v->slots = ARENA_ARRAY(c->arena, int64_t, v->plan.nexprs + 1);
    PlanWide *wide = ARENA_ARRAY(c->arena, PlanWide, v->plan.nexprs + 1);
    for (uint64_t i = 0; i < v->plan.nsymbols; i++)
        v->symbols[i] = symbol_value(c, v, &v->plan.symbols[i]);
    plan_eval(&v->plan, v->symbols, wide, v->slots, PLAN_STAGE_plan);
    return GRAPHC_OK;
}

graphc_status planview_open(Cli *c, const char *path, PlanView *v) {
    const void *bytes;
    size_t size;
    *v = (PlanView){0};
    if (!cli_is_model(path)) GC_TRY(cli_check_plan_options(c));
    GC_TRY(cli_load_plan(c, path, &bytes, &size));
    return planview_make(c, path, bytes, size, v);
}

const char *planview_said(const PlanView *v, const char *key) {
    for (uint64_t i = 0; i < v->plan.nnotes; i++)
        if (strcmp(plan_str(&v->plan, v->plan.notes[i].key), key) == 0)
            return plan_str(&v->plan, v->plan.notes[i].text);
    return NULL;
}

const char *planview_note(const PlanView *v, const char *key) {
    const char *said = planview_said(v, key);
    return said ? said : "unknown";
}

void planview_close(PlanView *v) {
    plan_release(&v->plan);
}

double planview_least(const Machine *m, const char *kind, double bytes, double flops,
                      bool *memory) {
    bool matrix =
        strcmp(kind, kir_kind_name[KERNEL_tem]) == 0 && m->matrix_flops_per_s > m->flops_per_s;
    double by_math = flops / (matrix ? m->matrix_flops_per_s : m->flops_per_s);
    double by_memory = bytes / m->bytes_per_s;
    *memory = by_memory > by_math;
    return *memory ? by_memory : by_math;
}

MemoryPlan *planview_layout(Cli *c, const PlanView *v, const PlanTarget *t) {
    char error[256] = "out of memory";
    PlanRange all = {t->nprepare, t->nsteps};
    MemoryPlan *m = memory_create(&v->plan, t);
    if (m && memory_assign(m, all, v->slots, (ErrorText){error, sizeof error}) == GRAPHC_OK)
        return m;
    (void)diag(c->diags, D_NO_MEMORY, "", "%s", error);
    memory_destroy(m);
    return NULL;
}

PlanMemory planview_memory(Cli *c, const PlanView *v, const PlanTarget *t) {
    PlanRange all = {t->nprepare, t->nsteps};
    PlanMemory r = {.scratch = memory_scratch(&v->plan, t, all, v->slots)};
    MemoryPlan *m = planview_layout(c, v, t);
    if (m) {
        r.arena = memory_arena(m);
        r.live = memory_live(m);
    }
    memory_destroy(m);
    for (uint64_t i = 0; i < v->plan.nconstants; i++) r.constants += v->plan.constants[i].length;
    for (uint32_t i = 0; i < t->nbuffers; i++) {
        const PlanBuffer *b = &v->plan.buffers[t->buffers + i];
        if (b->kind == PLAN_BUF_state) r.states += (uint64_t)v->slots[b->bytes];
        if (b->kind == PLAN_BUF_prepared && !b->alias) r.prepared += (uint64_t)v->slots[b->bytes];
    }
    return r;
}
