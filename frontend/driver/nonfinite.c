#include "frontend/driver/nonfinite.h"
#include "runtime/base/dtype.h"
#include "runtime/watch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Count {
    uint64_t nans, infs, all;
} Count;

static Count count(DType t, const void *data, uint64_t bytes) {
    Count c = {.all = bytes / dtype_bytes(t)};
    for (uint64_t i = 0; i < c.all; i++) {
        const double x = dtype_load_f64(t, data, i);
        c.nans += isnan(x) ? 1 : 0;
        c.infs += x == (double)INFINITY ? 1 : 0;
    }
    return c;
}

/* The last node of the model that the kernel computes on the way to what is of none: a loss, a
 * step. */
static const char *on_the_way(const Graph *g, Loc own, const Kernel *k, Arena *a) {
    Loc last = 0;
    for (uint32_t i = 0; i < k->ncomputed; i++)
        if (g->locs.v[k->locs[i]].node >= 0) last = k->locs[i];
    if (!last || g->locs.v[own].node >= 0) return "";
    return arena_printf(a, ", with %s", graph_place(g, last, a));
}

static void tell(const NonFinite *n, const SStep *st, const SBuffer *b, const Count *c) {
    const Graph *g = b->graph ? b->graph : n->schedule->graph;
    const Value v = b->holds ? b->holds : b->node;
    Arena *a = arena_create();
    const Loc l = v ? graph_node(g, v)->loc : 0;
    snprintf(n->out, n->size,
             "first in kernel %s: %llu NaN and %llu inf among %llu numbers of %s%s",
             st->kernel->name, (unsigned long long)c->nans, (unsigned long long)c->infs,
             (unsigned long long)c->all, v ? graph_place(g, l, a) : "what it computes",
             on_the_way(n->schedule->graph, l, st->kernel, a));
    arena_destroy(a);
}

static graphc_status look(void *ctx, graphc_session *s, uint32_t step, uint32_t next) {
    NonFinite *n = ctx;
    (void)next;
    const SStep *st = &n->schedule->steps.v[step];
    for (uint32_t i = 0; !*n->out && st->kernel && i < st->kernel->nparams; i++) {
        const SBuffer *b = &n->schedule->buffers.v[st->bufs[i]];
        const uint64_t bytes = watch_bytes(s, st->bufs[i]);
        if (!st->kernel->params[i].written || !dtype_is_float(b->dtype) || !bytes) continue;
        void *data = malloc(bytes);
        if (!data) return GRAPHC_NO_MEMORY;
        graphc_status status = watch_read(s, st->bufs[i], data, bytes);
        const Count c = status == GRAPHC_OK ? count(b->dtype, data, bytes) : (Count){0};
        free(data);
        GC_TRY(status);
        if (c.nans || c.infs) tell(n, st, b, &c);
    }
    return GRAPHC_OK;
}

void nonfinite_look(void *context, graphc_session *s, char *out, size_t size) {
    NonFinite *n = context;
    n->out = out;
    n->size = size;
    if (out) *out = 0;
    watch_steps(s, out ? look : NULL, n);
}
