/* From states to a folder. */
#include "runtime/train/adapter/adapted.h"
#include "runtime/train/adapter/names.h"
#include "runtime/train/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Everything that is written, while its elements are out of the session. */
typedef struct Writing {
    const AdapterConfig *plans;
    const graphc_plan *plan;
    graphc_session *s;
    ErrorText e;
    AdapterModule *modules;
    SafeTensor *whole;
    void **data;                      /* of each tensor, */
    int64_t (*dims)[GRAPHC_MAX_RANK]; /* and its shape */
    uint32_t n, nwhole;
} Writing;

static graphc_status take(Writing *w, uint32_t i, SafeTensor *t) {
    graphc_io_info io = graphc_plan_state(w->plan, i);
    graphc_tensor x = tensor_of_state(w->plan, i);
    int64_t *dim = memcpy(w->dims[w->n], x.shape, sizeof x.shape);
    *t = (SafeTensor){.name = io.name, .rank = (uint32_t)io.rank, .dim = dim};
    (void)dtype_from_name(io.dtype_name, &t->dtype);
    (void)safetensors_bytes(t->dtype, t->rank, t->dim, &t->bytes);
    t->data = x.data = w->data[w->n] = malloc(t->bytes + 1);
    if (!x.data) return error_set(w->e, GRAPHC_NO_MEMORY, "not enough memory for %s", io.name);
    w->n++;
    graphc_status st = graphc_state_read(w->s, i, &x);
    return st == GRAPHC_OK ? st : error_set(w->e, st, "%s", graphc_session_error(w->s));
}

static AdapterModule *module_at(Writing *w, const char *path, size_t n) {
    for (uint32_t i = 0; i < w->plans->targets.n; i++) {
        const char *target = w->plans->targets.v[i];
        if (strncmp(target, path, n) || target[n]) continue;
        w->modules[i].path = target;
        return &w->modules[i];
    }
    return NULL;
}

static graphc_status take_state(Writing *w, uint32_t i) {
    const char *name = graphc_plan_state(w->plan, i).name;
    size_t n;
    const AdapterPart *part = adapter_part_of(name, &n);
    if (!part)
        return graphc_plan_state_info(w->plan, i).role == GRAPHC_STATE_PARAMETER
                   ? take(w, i, &w->whole[w->nwhole++])
                   : GRAPHC_OK;
    AdapterModule *m = module_at(w, name, n);
    if (!m) return error_set(w->e, GRAPHC_INVALID, "the plan does not say that it adapts %s", name);
    if (part->kind == ADAPTER_embedding) m->kind = ADAPTER_embedding;
    return take(w, i, adapter_tensor(m, part->part));
}

graphc_status adapted_write(const char *folder, const AdapterConfig *plans, graphc_session *s,
                            ErrorText e) {
    Writing w = {.plans = plans, .plan = graphc_session_plan(s), .s = s, .e = e};
    const uint32_t n = graphc_plan_states(w.plan), m = plans->targets.n;
    w.modules = calloc((size_t)m + 1, sizeof *w.modules);
    w.whole = calloc((size_t)n + 1, sizeof *w.whole);
    w.data = calloc((size_t)n + 1, sizeof *w.data);
    w.dims = calloc((size_t)n + 1, sizeof *w.dims);
    bool room = w.modules && w.whole && w.data && w.dims;
    graphc_status st =
        room ? GRAPHC_OK : error_set(e, GRAPHC_NO_MEMORY, "not enough memory for the adapter");
    for (uint32_t i = 0; st == GRAPHC_OK && i < n; i++) st = take_state(&w, i);
    for (uint32_t i = 0; st == GRAPHC_OK && i < m; i++) /* a module that no gradient reaches */
        if (!w.modules[i].path)
            st = error_set(e, GRAPHC_INVALID, "the plan has no states of %s", plans->targets.v[i]);
    if (st == GRAPHC_OK) st = adapter_write(folder, plans, w.modules, m, w.whole, w.nwhole, e);
    for (uint32_t i = 0; i < w.n; i++) free(w.data[i]);
    free(w.modules);
    free(w.whole);
    free(w.data);
    free(w.dims);
    return st;
}
