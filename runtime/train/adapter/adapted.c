#include "runtime/train/adapter/adapted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tensors of one module, their elements still in the session. */
typedef struct Part {
    int32_t state;
    int64_t dim[2];
    float *data;
} Part;

static graphc_status find_part(const graphc_plan *plan, const char *path, const char *which,
                               Part *out, ErrorText e) {
    char name[1024];
    snprintf(name, sizeof name, "%s.lora_%s.weight", path, which);
    out->state = graphc_plan_find_state(plan, name);
    if (out->state < 0) return error_set(e, GRAPHC_INVALID, "the plan has no state \"%s\"", name);
    graphc_io_info io = graphc_plan_state(plan, (uint32_t)out->state);
    for (int i = 0; i < 2; i++) out->dim[i] = strtoll(io.dims[i], NULL, 10);
    return GRAPHC_OK;
}

static graphc_tensor part_tensor(const Part *p, void *data) {
    return (graphc_tensor){.data = data,
                           .device = GRAPHC_CPU,
                           .dtype = {2, 32, 1},
                           .rank = 2,
                           .shape = {p->dim[0], p->dim[1]}};
}

static graphc_status read_part(const graphc_plan *plan, graphc_session *s, const char *path,
                               const char *which, Part *out, SafeTensor *t, ErrorText e) {
    GC_TRY(find_part(plan, path, which, out, e));
    size_t n = (size_t)(out->dim[0] * out->dim[1]);
    out->data = malloc(n * sizeof *out->data + 1);
    if (!out->data) return error_set(e, GRAPHC_NO_MEMORY, "the adapter of %s", path);
    graphc_tensor x = part_tensor(out, out->data);
    graphc_status st = graphc_state_read(s, (uint32_t)out->state, &x);
    if (st != GRAPHC_OK) return error_set(e, st, "%s", graphc_session_error(s));
    *t = (SafeTensor){.dtype = DT_f32,
                      .rank = 2,
                      .dim = out->dim,
                      .data = out->data,
                      .bytes = n * sizeof *out->data};
    return GRAPHC_OK;
}

static graphc_status read_modules(const graphc_plan *plan, graphc_session *s,
                                  const char *const *paths, uint32_t n, Part *parts,
                                  AdapterModule *modules, ErrorText e) {
    for (uint32_t i = 0; i < n; i++) {
        modules[i].path = paths[i];
        GC_TRY(read_part(plan, s, paths[i], "A", &parts[2 * i], &modules[i].a, e));
        GC_TRY(read_part(plan, s, paths[i], "B", &parts[2 * i + 1], &modules[i].b, e));
    }
    return GRAPHC_OK;
}

graphc_status adapted_write(const char *folder, const AdapterConfig *c, const char *const *paths,
                            uint32_t npaths, const graphc_plan *plan, graphc_session *s,
                            ErrorText e) {
    Part *parts = calloc((size_t)npaths * 2 + 1, sizeof *parts);
    AdapterModule *modules = calloc((size_t)npaths + 1, sizeof *modules);
    const char **targets = calloc((size_t)npaths + 1, sizeof *targets);
    graphc_status st =
        parts && modules && targets ? GRAPHC_OK : error_set(e, GRAPHC_NO_MEMORY, "the adapter");
    if (st == GRAPHC_OK) st = read_modules(plan, s, paths, npaths, parts, modules, e);
    if (st == GRAPHC_OK) {
        AdapterConfig all = *c;
        memcpy(targets, paths, npaths * sizeof *targets);
        all.targets = (AdapterList){targets, npaths};
        st = adapter_write(folder, &all, modules, npaths, NULL, 0, e);
    }
    for (uint32_t i = 0; parts && i < 2 * npaths; i++) free(parts[i].data);
    free(parts);
    free(modules);
    free(targets);
    return st;
}

/* --- From a folder
 * -------------------------------------------------------------------------------- */

static graphc_status fitting_part(const AdapterModule *m, const char *which, const SafeTensor *t,
                                  const graphc_plan *plan, Part *p, ErrorText e) {
    GC_TRY(find_part(plan, m->path, which, p, e));
    if (t->rank == 2 && t->dim[0] == p->dim[0] && t->dim[1] == p->dim[1]) return GRAPHC_OK;
    return error_set(e, GRAPHC_INVALID, "%s: lora_%s has another size than the model's layer",
                     m->path, which);
}

static graphc_status load_part(const AdapterModule *m, const char *which, const SafeTensor *t,
                               double factor, const graphc_plan *plan, graphc_session *s,
                               ErrorText e) {
    Part p;
    GC_TRY(fitting_part(m, which, t, plan, &p, e));
    size_t n = (size_t)(p.dim[0] * p.dim[1]);
    float *data = malloc(n * sizeof *data + 1);
    if (!data) return error_set(e, GRAPHC_NO_MEMORY, "the adapter of %s", m->path);
    for (size_t i = 0; i < n; i++) data[i] = (float)(factor * dtype_load_f64(t->dtype, t->data, i));
    graphc_tensor x = part_tensor(&p, data);
    graphc_status st = graphc_state_write(s, (uint32_t)p.state, &x);
    free(data);
    return st == GRAPHC_OK ? st : error_set(e, st, "%s", graphc_session_error(s));
}

static graphc_status check(const Adapter *a, const graphc_plan *plan, ErrorText e) {
    Part p;
    for (uint32_t i = 0; i < a->nmodules; i++) {
        const AdapterModule *m = &a->modules[i];
        if (m->kind != ADAPTER_linear || m->magnitude.dtype != DT_none || m->bias.dtype != DT_none)
            return error_set(e, GRAPHC_UNSUPPORTED,
                             "%s: only adapters of linear layers, without magnitude and bias",
                             m->path);
        GC_TRY(fitting_part(m, "A", &m->a, plan, &p, e));
        GC_TRY(fitting_part(m, "B", &m->b, plan, &p, e));
    }
    return GRAPHC_OK;
}

graphc_status adapted_load(const Adapter *a, double scale, const graphc_plan *plan,
                           graphc_session *s, ErrorText e) {
    GC_TRY(check(a, plan, e));
    for (uint32_t i = 0; i < a->nmodules; i++) {
        const AdapterModule *m = &a->modules[i];
        GC_TRY(load_part(m, "A", &m->a, 1, plan, s, e));
        GC_TRY(load_part(m, "B", &m->b, m->scale / scale, plan, s, e));
    }
    return GRAPHC_OK;
}

static bool adapts(const Adapter *a, const char *path) {
    for (uint32_t i = 0; a && i < a->nmodules; i++)
        if (strcmp(a->modules[i].path, path) == 0) return true;
    return false;
}

/* B of zeros: the module is the base model's again. */
static graphc_status silence(const char *path, const graphc_plan *plan, graphc_session *s,
                             ErrorText e) {
    Part p;
    GC_TRY(find_part(plan, path, "B", &p, e));
    void *zeros = calloc((size_t)(p.dim[0] * p.dim[1]) + 1, sizeof(float));
    if (!zeros) return error_set(e, GRAPHC_NO_MEMORY, "the adapter of %s", path);
    graphc_tensor x = part_tensor(&p, zeros);
    graphc_status st = graphc_state_write(s, (uint32_t)p.state, &x);
    free(zeros);
    return st == GRAPHC_OK ? st : error_set(e, st, "%s", graphc_session_error(s));
}

graphc_status adapted_switch(const Adapter *a, const AdapterConfig *plans, const graphc_plan *plan,
                             graphc_session *s, ErrorText e) {
    int64_t rank;
    double scale;
    if (a) GC_TRY(check(a, plan, e));
    for (uint32_t i = 0; i < plans->targets.n; i++)
        if (!adapts(a, plans->targets.v[i])) GC_TRY(silence(plans->targets.v[i], plan, s, e));
    if (!a) return GRAPHC_OK;
    GC_TRY(adapter_scale(plans, "", &rank, &scale, e));
    return adapted_load(a, scale, plan, s, e);
}
