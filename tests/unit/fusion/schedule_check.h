/* Runs a schedule with the kernel interpreter and compares with the graph evaluator: fusion is
 * tested without any code generation. */
#ifndef TESTS_SCHEDULE_CHECK_H
#define TESTS_SCHEDULE_CHECK_H

#include "fusion/schedule/schedule.h"
#include "graph/build/build.h"
#include "graph/eval/eval.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int64_t check_numel(const EvalTensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}

/* Repeatable values: floats in [-1, 1), integers in [0, below). */
static inline void check_fill(EvalTensor *t, uint64_t seed, int64_t below) {
    int64_t n = check_numel(t);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t r = seed >> 33;
        if (dtype_is_float(t->dtype))
            dtype_store_f64(t->dtype, t->data, (size_t)i, (double)(r % 2000) / 1000.0 - 1.0);
        else
            dtype_store_i64(t->dtype, t->data, (size_t)i,
                            t->dtype == DT_bool ? (int64_t)(r & 1)
                                                : (int64_t)(r % (uint64_t)below));
    }
}

typedef struct CheckRun {
    const Schedule *s;
    Arena *a;
    void **mem;
    int64_t *sym;
} CheckRun;

static inline void *check_mem(CheckRun *r, uint32_t b) {
    const SBuffer *s = &r->s->buffers.v[b];
    if (s->alias) {
        int64_t off = expr_eval(r->s->exprs, s->alias_offset, r->sym);
        return (char *)check_mem(r, s->alias - 1) + off * (int64_t)dtype_bytes(s->dtype);
    }
    if (!r->mem[b]) {
        int64_t n = expr_eval(r->s->exprs, s->numel, r->sym);
        size_t bytes = (size_t)(n > 0 ? n : 0) * dtype_bytes(s->dtype);
        r->mem[b] = arena_alloc(r->a, bytes + 64);
        memset(r->mem[b], 0x7f, bytes + 64); /* what nobody wrote shows */
        if (s->kind == BUF_const)
            memcpy(r->mem[b], graph_node(s->graph, s->node)->attr.constant.data, bytes);
        if (s->kind == BUF_state)
            memcpy(r->mem[b], eval_initial(s->graph, s->index, r->a).data, bytes);
    }
    return r->mem[b];
}

/* A kernel that counted elements has told the interpreter only; later steps need the number. */
static inline void check_counts(CheckRun *r, const SStep *t) {
    for (uint32_t i = 1; i < t->kernel->nops; i++) {
        const KOp *o = &t->kernel->ops[i];
        if (o->op == K_kcompact)
            r->sym[o->sym] = dtype_load_i64(DT_i64, check_mem(r, t->bufs[kir_count_param(o)]), 0);
    }
}

static inline graphc_status check_kernel(CheckRun *r, const SStep *t) {
    void *bufs[K_MAX_PARAMS];
    for (uint32_t k = 0; k < t->kernel->nparams; k++) bufs[k] = check_mem(r, t->bufs[k]);
    Arena *tmp = arena_create();
    graphc_status s = kir_eval(t->kernel, r->s->exprs, bufs, r->sym, tmp);
    arena_destroy(tmp);
    if (s != GRAPHC_OK) printf("%s: %s\n", t->kernel->name, status_name(s));
    check_counts(r, t);
    return s;
}

/* Does the loop at step i go on? */
static inline bool check_goes_on(CheckRun *r, const SStep *t) {
    int64_t trip = t->trip_buf ? dtype_load_i64(DT_i64, check_mem(r, t->trip_buf - 1), 0)
                               : expr_eval(r->s->exprs, t->trip, r->sym);
    bool cond = !t->cond_buf || *(uint8_t *)check_mem(r, t->cond_buf - 1);
    return r->sym[t->iter] < trip && cond;
}

static inline graphc_status check_steps(CheckRun *r, uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++) {
        const SStep *t = &r->s->steps.v[i];
        switch (t->kind) {
        case STEP_kernel: GC_TRY(check_kernel(r, t)); break;
        case STEP_loop_end:
            i = t->match;
            t = &r->s->steps.v[i];
            r->sym[t->iter]++;
            if (!check_goes_on(r, t)) i = t->match;
            break;
        case STEP_loop_begin:
            r->sym[t->iter] = 0;
            if (!check_goes_on(r, t)) i = t->match;
            break;
        case STEP_if_begin:
            if (!*(uint8_t *)check_mem(r, t->cond_buf - 1)) i = t->match;
            break;
        case STEP_if_else: i = t->match; break;
        default: break;
        }
    }
    return GRAPHC_OK;
}

/* Largest difference relative to 1 + |expected|. */
static inline double check_difference(DType t, const void *got, const EvalTensor *want) {
    double worst = 0;
    int64_t n = check_numel(want);
    for (int64_t k = 0; k < n; k++) {
        double x = dtype_load_f64(t, got, (size_t)k);
        double y = dtype_load_f64(want->dtype, want->data, (size_t)k);
        if (isnan(x) && isnan(y)) continue;
        double e = x == y ? 0 : fabs(x - y) / (1 + fabs(y));
        if (!dtype_is_float(t) && e != 0) e = INFINITY;
        if (!(e <= worst)) worst = isnan(e) ? INFINITY : e;
    }
    return worst;
}

/* A run of one entry: the largest over its outputs and what all states hold afterwards. */
static inline double check_entry(const Graph *g, const Schedule *s, const EvalTensor *in,
                                 uint32_t e, Arena *a) {
    CheckRun r = {.s = s, .a = a};
    r.mem = ARENA_ARRAY(a, void *, s->buffers.n);
    r.sym = ARENA_ARRAY(a, int64_t, expr_sym_count(g->exprs));
    EvalTensor *want = ARENA_ARRAY(a, EvalTensor, g->outputs.n);
    EvalTensor *next = ARENA_ARRAY(a, EvalTensor, g->states.n);
    EvalOptions opt = {.next = next, .entry = e};
    uint32_t nprepare = 0;
    while (nprepare < s->steps.n && s->steps.v[nprepare].prepare) nprepare++;
    if (eval_bind(g, in, r.sym) != GRAPHC_OK) return -1;
    if (eval_run(g, in, &opt, a, want) != GRAPHC_OK) return -1;
    for (uint32_t i = 0; i < g->inputs.n; i++) r.mem[i] = in[i].data;
    if (check_steps(&r, 0, nprepare) != GRAPHC_OK) return -1;
    if (check_steps(&r, e ? s->ends.v[e - 1] : nprepare, s->ends.v[e]) != GRAPHC_OK) return -1;
    double worst = 0;
    for (uint32_t i = 0; i < g->outputs.n + g->states.n; i++) {
        bool out = i < g->outputs.n;
        if (out && !entries_meet(g->outputs.v[i].entries, 1u << e)) continue;
        const EvalTensor *w = out ? &want[i] : &next[i - g->outputs.n];
        DType t = out ? g->outputs.v[i].type.dtype : g->states.v[i - g->outputs.n].type.dtype;
        worst = fmax(worst, check_difference(t, check_mem(&r, g->inputs.n + i), w));
    }
    return worst;
}

/* The largest over all entries; -1 when something failed. */
static inline double check_schedule(const Graph *g, const Schedule *s, const EvalTensor *in,
                                    Arena *a) {
    double worst = 0;
    if (s->ends.v[s->ends.n - 1] != s->steps.n) return -1;
    for (uint32_t e = 0; e < s->ends.n; e++) {
        double d = check_entry(g, s, in, e, a);
        if (d < 0) return -1;
        worst = fmax(worst, d);
    }
    return worst;
}

#endif
