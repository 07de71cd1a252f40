/* From an adapter to states. */
#include "runtime/train/adapter/adapted.h"
#include "runtime/train/adapter/names.h"
#include "runtime/train/tensor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A state of an adapter's, and what it is to hold. */
typedef struct Place {
    uint32_t state;
    const char *name;
    DType type;
    graphc_tensor whole; /* the state's shape */
    uint64_t elements;
    const AdapterPart *part;     /* NULL: a parameter of the model */
    const AdapterModule *module; /* NULL: the adapter has none there */
    const SafeTensor *from;      /* NULL: nothing */
    int64_t slots, dim[2];       /* of one slot; a vector's dim[0] is 1 */
} Place;

typedef struct Placing {
    const Adapter *a; /* NULL: none is to be there */
    const AdapterConfig *plans;
    uint32_t slot;
    graphc_session *s;
    const graphc_plan *plan;
    ErrorText e;
} Placing;

static const AdapterModule *module_at(const Adapter *a, const char *path, size_t n) {
    for (uint32_t i = 0; a && i < a->nmodules; i++)
        if (strncmp(a->modules[i].path, path, n) == 0 && !a->modules[i].path[n])
            return &a->modules[i];
    return NULL;
}

static const SafeTensor *whole_named(const Adapter *a, const char *name) {
    for (uint32_t i = 0; a && i < a->nwhole; i++)
        if (strcmp(a->whole[i].name, name) == 0) return &a->whole[i];
    return NULL;
}

/* --- What goes where -------------------------------------------------------------------------- */

static void find_part(const Placing *w, size_t path_size, Place *out) {
    const int32_t rank = out->whole.rank;
    out->slots = rank == 3 ? out->whole.shape[0] : 1;
    out->dim[0] = out->dim[1] = 1;
    for (int32_t k = 0; k < 2 && k < rank; k++) out->dim[1 - k] = out->whole.shape[rank - 1 - k];
    out->module = module_at(w->a, out->name, path_size);
    if (out->module)
        out->from = adapter_tensor((AdapterModule *)(uintptr_t)out->module, out->part->part);
    if (out->from && out->from->dtype == DT_none) out->from = NULL;
}

/* false: the state is none of adapters. */
static bool find_place(const Placing *w, uint32_t i, Place *out) {
    const graphc_io_info io = graphc_plan_state(w->plan, i);
    size_t n;
    *out = (Place){.state = i, .name = io.name, .whole = tensor_of_state(w->plan, i)};
    (void)dtype_from_name(io.dtype_name, &out->type);
    out->elements = tensor_elements(&out->whole);
    out->part = adapter_part_of(io.name, &n);
    if (out->part)
        find_part(w, n, out);
    else
        out->from = whole_named(w->a, io.name);
    return out->part || graphc_plan_state_info(w->plan, i).role == GRAPHC_STATE_PARAMETER;
}

static graphc_status check_matrix(const Placing *w, const Place *p) {
    const SafeTensor *t = p->from;
    const int rank = p->part->part == PART_a ? 0 : 1; /* which axis it is */
    if (t->rank != 2 || t->dim[!rank] != p->dim[!rank])
        return error_set(w->e, GRAPHC_INVALID, "%s is of %lld in the adapter, of %lld in the model",
                         p->name, (long long)(t->rank == 2 ? t->dim[!rank] : -1),
                         (long long)p->dim[!rank]);
    if (t->dim[rank] <= p->dim[rank]) return GRAPHC_OK;
    return error_set(w->e, GRAPHC_INVALID, "%s has rank %lld, the plan has room for %lld", p->name,
                     (long long)t->dim[rank], (long long)p->dim[rank]);
}

/* A parameter of the model: as many elements in another shape would be others' elements. */
static graphc_status check_shape(const Placing *w, const Place *p) {
    const SafeTensor *t = p->from;
    if (!t) return GRAPHC_OK;
    bool same = t->rank == (uint32_t)p->whole.rank;
    for (uint32_t i = 0; i < t->rank && same; i++) same = t->dim[i] == p->whole.shape[i];
    if (same) return GRAPHC_OK;
    return error_set(w->e, GRAPHC_INVALID, "%s is of the shape %s in the adapter, %s in the model",
                     p->name, safe_shape(t->rank, t->dim).text,
                     safe_shape((uint32_t)p->whole.rank, p->whole.shape).text);
}

/* A narrower type holds them: it has no room for what is large. */
static graphc_status check_range(const Placing *w, const Place *p) {
    const SafeTensor *t = p->from;
    if (!t || t->dtype == p->type) return GRAPHC_OK;
    const size_t n = t->bytes / dtype_bytes(t->dtype);
    for (size_t i = 0; i < n; i++) {
        double x;
        dtype_store_f64(p->type, &x, 0, dtype_load_f64(t->dtype, t->data, i));
        if (!isfinite(dtype_load_f64(p->type, &x, 0)))
            return error_set(w->e, GRAPHC_INVALID, "%s: element %zu is too large for %s", p->name,
                             i, dtype_name(p->type));
    }
    return GRAPHC_OK;
}

/* What takes the adapter's elements as they are, and the model's where it has none. */
static bool is_whole(const Place *p) {
    return !p->part || p->part->part == PART_magnitude;
}

static graphc_status check_place(const Placing *w, const Place *p) {
    if (is_whole(p)) GC_TRY(check_range(w, p));
    if (!p->part) return check_shape(w, p);
    bool matrix = p->part->part == PART_a || p->part->part == PART_b;
    if (!is_whole(p) && p->type != DT_f32)
        return error_set(w->e, GRAPHC_INVALID, "%s is of %s in the plan, not of f32", p->name,
                         dtype_name(p->type));
    if (w->slot >= p->slots)
        return error_set(w->e, GRAPHC_USAGE,
                         "the plan has places for %lld adapters, there is no %u",
                         (long long)p->slots, w->slot);
    if (matrix) return p->from ? check_matrix(w, p) : GRAPHC_OK;
    if (!p->from && w->a && p->part->part == PART_magnitude)
        return error_set(w->e, GRAPHC_INVALID, "the plan has %s, the adapter does not", p->name);
    uint64_t n = p->from ? p->from->bytes / dtype_bytes(p->from->dtype) : p->elements;
    if (n == p->elements) return GRAPHC_OK;
    return error_set(w->e, GRAPHC_INVALID, "%s has %llu elements in the adapter, %llu in the model",
                     p->name, (unsigned long long)n, (unsigned long long)p->elements);
}

static graphc_status no_place(const Placing *w, const char *path, const char *suffix) {
    return error_set(w->e, GRAPHC_INVALID, "the plan has no place for %s%s", safe_name(path).text,
                     suffix);
}

/* Everything that the adapter has is a state of the plan; but for copies of the base's weights. */
static graphc_status check_all_placed(const Placing *w) {
    char name[1024];
    for (uint32_t i = 0; w->a && i < w->a->nmodules; i++) {
        AdapterModule *m = &w->a->modules[i];
        for (int k = 0; k < PART_COUNT; k++) {
            const char *suffix = adapter_suffix((AdapterPartKind)k, m->kind);
            snprintf(name, sizeof name, "%s%s", m->path, suffix);
            if (adapter_tensor(m, (AdapterPartKind)k)->dtype != DT_none &&
                graphc_plan_find_state(w->plan, name) < 0)
                return no_place(w, m->path, suffix);
        }
    }
    for (uint32_t i = 0; w->a && i < w->a->nwhole; i++)
        if (adapter_trains(&w->a->config, w->a->whole[i].name) &&
            graphc_plan_find_state(w->plan, w->a->whole[i].name) < 0)
            return no_place(w, w->a->whole[i].name, "");
    return GRAPHC_OK;
}

/* --- Into states ------------------------------------------------------------------------------ */

static void put_matrix(const Place *p, double factor, float *to) {
    const SafeTensor *t = p->from;
    const int64_t columns = p->dim[1];
    memset(to, 0, (size_t)(p->dim[0] * columns) * sizeof *to);
    if (!t) return;
    const int64_t n = t->dim[t->rank - 1], rows = t->rank > 1 ? t->dim[0] : 1;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < n; k++)
            to[i * columns + k] =
                (float)(factor * dtype_load_f64(t->dtype, t->data, (size_t)(i * n + k)));
}

static void put_elements(const Place *p, void *to) {
    const SafeTensor *t = p->from;
    const size_t n = t->bytes / dtype_bytes(t->dtype);
    for (size_t i = 0; i < n; i++)
        dtype_store_f64(p->type, to, i, dtype_load_f64(t->dtype, t->data, i));
}

/* What B, and its bias, are multiplied by for a plan that multiplies their products by its own
 * scale. */
static graphc_status factor_of(const Placing *w, const Place *p, double *out) {
    int64_t rank;
    double scale;
    *out = 1;
    if (!p->module || p->part->part == PART_a) return GRAPHC_OK;
    GC_TRY(adapter_scale(w->plans, p->module->path, &rank, &scale, w->e));
    *out = p->module->scale / scale;
    return GRAPHC_OK;
}

static graphc_status failed(const Placing *w, graphc_status st) {
    return st == GRAPHC_OK ? st : error_set(w->e, st, "%s", graphc_session_error(w->s));
}

/* The state's new elements, of the other slots as they are. */
static graphc_status fill(const Placing *w, Place *p) {
    double factor;
    if (is_whole(p)) return put_elements(p, p->whole.data), GRAPHC_OK;
    GC_TRY(factor_of(w, p, &factor));
    if (p->slots > 1) GC_TRY(failed(w, graphc_state_read(w->s, p->state, &p->whole)));
    put_matrix(p, factor, (float *)p->whole.data + (int64_t)w->slot * p->dim[0] * p->dim[1]);
    return GRAPHC_OK;
}

static graphc_status load(const Placing *w, Place *p) {
    if (is_whole(p) && !p->from) return failed(w, graphc_state_reset(w->s, p->state));
    p->whole.data = malloc(p->elements * dtype_bytes(p->type) + 1);
    if (!p->whole.data)
        return error_set(w->e, GRAPHC_NO_MEMORY, "not enough memory for %s", p->name);
    graphc_status st = fill(w, p);
    if (st == GRAPHC_OK) st = failed(w, graphc_state_write(w->s, p->state, &p->whole));
    free(p->whole.data);
    return st;
}

graphc_status adapted_switch(const Adapter *a, const AdapterConfig *plans, uint32_t slot,
                             graphc_session *s, ErrorText e) {
    const Placing w = {a, plans, slot, s, graphc_session_plan(s), e};
    const uint32_t n = graphc_plan_states(w.plan);
    Place p;
    for (uint32_t i = 0; i < n; i++)
        if (find_place(&w, i, &p)) GC_TRY(check_place(&w, &p));
    GC_TRY(check_all_placed(&w));
    for (uint32_t i = 0; i < n; i++)
        if (find_place(&w, i, &p)) GC_TRY(load(&w, &p));
    return GRAPHC_OK;
}
