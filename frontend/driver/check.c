#include "frontend/driver/check.h"
#include "graph/eval/eval_scalar.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a buffer held when its last writer was done. */
typedef struct Kept {
    uint32_t buffer, step; /* the last kernel that writes it */
    uint32_t ready;        /* the step after which it is whole: the end of an outermost loop */
    void *bytes;
    uint64_t n;
} Kept;

struct Check {
    Arena *arena;
    const Schedule *s;
    graphc_session *session;
    Kept *kept; /* by `ready` */
    uint32_t nkept, next;
    uint32_t *of; /* per value: 1 + its number in kept */
    uint8_t *look;
    /* check_rows */
    double rtol, atol;
    CheckRow *rows;
    uint32_t nrows;
    EvalTensor other; /* what the evaluator goes on with */
};

/* ---- During the run ---- */

static graphc_status keep(void *ctx, graphc_session *s, uint32_t step, uint32_t next) {
    Check *c = ctx;
    (void)step;
    for (; c->next < c->nkept && c->kept[c->next].ready < next; c->next++) {
        Kept *k = &c->kept[c->next];
        k->n = watch_bytes(s, k->buffer);
        if (!k->n) continue;
        k->bytes = malloc(k->n + 1);
        if (!k->bytes) return GRAPHC_NO_MEMORY;
        GC_TRY(watch_read(s, k->buffer, k->bytes, k->n));
    }
    return GRAPHC_OK;
}

/* For each step the step after which what it writes is whole. */
static uint32_t *ready_after(const Schedule *s, Arena *a) {
    uint32_t *ready = ARENA_ARRAY(a, uint32_t, s->steps.n + 1), depth = 0, end = 0;
    for (uint32_t i = s->steps.n; i-- > 0;) {
        StepKind k = s->steps.v[i].kind;
        if ((k == STEP_loop_end || k == STEP_if_end) && !depth++) end = i;
        ready[i] = depth ? end : i;
        if (k == STEP_loop_begin || k == STEP_if_begin) depth--;
    }
    return ready;
}

static int by_ready(const void *a, const void *b) {
    const Kept *x = a, *y = b;
    return x->ready != y->ready ? (x->ready < y->ready ? -1 : 1)
                                : (x->step > y->step) - (x->step < y->step);
}

static void find_kept(Check *c) {
    const Schedule *s = c->s;
    const uint32_t *ready = ready_after(s, c->arena);
    uint32_t *writer = ARENA_ARRAY(c->arena, uint32_t, s->buffers.n + 1); /* 1 + the last */
    for (uint32_t i = 0; i < s->steps.n; i++)
        for (uint32_t k = 0; s->steps.v[i].kernel && k < s->steps.v[i].kernel->nparams; k++)
            if (s->steps.v[i].kernel->params[k].written) writer[s->steps.v[i].bufs[k]] = i + 1;
    c->kept = ARENA_ARRAY(c->arena, Kept, s->buffers.n + 1);
    for (uint32_t b = 0; b < s->buffers.n; b++)
        if (s->buffers.v[b].holds && writer[b])
            c->kept[c->nkept++] = (Kept){b, writer[b] - 1, ready[writer[b] - 1], NULL, 0};
    qsort(c->kept, c->nkept, sizeof *c->kept, by_ready);
}

/* Inside of attention casts to half types are left out: what it computes, up to what others stored.
 */
static void loosen(Check *c, Value v) {
    const Node *n = graph_node(c->s->graph, v);
    if (c->look[v] & EVAL_LOOSE) return;
    c->look[v] |= EVAL_LOOSE;
    for (uint32_t i = 0; i < n->nin; i++)
        if (!c->of[n->in[i]]) loosen(c, n->in[i]);
}

Check *check_begin(const Schedule *s, graphc_session *session) {
    Arena *a = arena_create();
    Check *c = ARENA_NEW(a, Check);
    *c = (Check){.arena = a, .s = s, .session = session};
    c->of = ARENA_ARRAY(a, uint32_t, s->graph->nodes.n);
    c->look = ARENA_ARRAY(a, uint8_t, s->graph->nodes.n);
    find_kept(c);
    for (uint32_t i = 0; i < c->nkept; i++) {
        Value v = s->buffers.v[c->kept[i].buffer].holds;
        c->of[v] = i + 1;
        c->look[v] |= EVAL_LOOK;
    }
    for (uint32_t i = 0; i < c->nkept; i++)
        if (s->steps.v[c->kept[i].step].kernel->tem == TEM_attention)
            loosen(c, s->buffers.v[c->kept[i].buffer].holds);
    watch_steps(session, keep, c);
    return c;
}

void check_end(Check *c) {
    if (!c) return;
    watch_steps(c->session, NULL, NULL);
    for (uint32_t i = 0; i < c->nkept; i++) free(c->kept[i].bytes);
    free(c->other.data);
    arena_destroy(c->arena);
}

/* ---- After it ---- */

static uint64_t count_of(const EvalTensor *t) {
    uint64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= (uint64_t)t->dim[i];
    return n;
}

/* The buffer's elements in the order of the value's own dimensions: takes over what was kept. */
static bool take(Kept *k, const SBuffer *b, const Type *type, const EvalTensor *want,
                 EvalTensor *out) {
    uint64_t n = count_of(want);
    size_t size = dtype_bytes(type->dtype);
    *out = *want;
    out->dtype = type->dtype;
    if (n > k->n / size) return false;
    out->data = k->bytes;
    k->bytes = NULL;
    if (!b->order || !n) return true;
    int64_t stride[GRAPH_MAX_RANK], step = 1, at[GRAPH_MAX_RANK] = {0}, from = 0;
    for (int i = want->rank - 1; i >= 0; i--) {
        stride[b->order[i]] = step;
        step *= want->dim[b->order[i]];
    }
    char *turned = malloc((size_t)n * size), *in = out->data;
    if (!turned) return false;
    for (uint64_t i = 0; i < n; i++) {
        memcpy(turned + i * size, in + (uint64_t)from * size, size);
        for (int d = want->rank - 1; d >= 0; d--) {
            from += stride[d];
            if (++at[d] < want->dim[d]) break;
            from -= stride[d] * want->dim[d];
            at[d] = 0;
        }
    }
    free(in);
    out->data = turned;
    return true;
}

typedef struct Tolerance {
    double rtol, atol;
    bool exact; /* the value is rounded as the reference rounds it */
} Tolerance;

static void compare_float(CheckRow *r, const Tolerance *t, double g, double w, double error) {
    double unit = eval_unit(r->dtype), bound = error, d;
    w = eval_round_to(r->dtype, w);
    if (error == INFINITY || g == w || (isnan(g) && isnan(w))) return;
    d = isfinite(g) && isfinite(w) ? fabs(g - w) : INFINITY;
    if (!t->exact && (error > 0 || dtype_bytes(r->dtype) >= 4)) bound += 2 * unit * fabs(w);
    if (isfinite(d)) {
        r->mean_abs += d;
        if (d > r->max_abs) r->max_abs = d;
    }
    double of = bound > 0 ? d / bound : INFINITY;
    if (of > r->of_bound) r->of_bound = of;
    r->bad += of > 1 && !(d <= t->atol + t->rtol * fabs(w));
}

static void compare_int(CheckRow *r, int64_t g, int64_t w, double error) {
    if (g == w) return;
    double d = fabs((double)g - (double)w), of = error > 0 ? d / error : INFINITY;
    r->mean_abs += d;
    if (d > r->max_abs) r->max_abs = d;
    if (of > r->of_bound) r->of_bound = of;
    r->bad += of > 1;
}

static void compare(const Check *c, CheckRow *r, const EvalTensor *got, const EvalTensor *want,
                    const double *error) {
    Tolerance t = {c->rtol, c->atol, graph_node(c->s->graph, r->value)->op == OP_cast};
    r->count = count_of(want);
    for (uint64_t i = 0; i < r->count; i++)
        if (dtype_is_float(r->dtype))
            compare_float(r, &t, dtype_load_f64(got->dtype, got->data, i),
                          dtype_load_f64(want->dtype, want->data, i), error ? error[i] : 0);
        else
            compare_int(r, dtype_load_i64(got->dtype, got->data, i),
                        dtype_load_i64(want->dtype, want->data, i), error ? error[i] : 0);
    if (r->count) r->mean_abs /= (double)r->count;
}

static const EvalTensor *look(void *ctx, Value v, const EvalTensor *want, const double *error) {
    Check *c = ctx;
    Kept *k = &c->kept[c->of[v] - 1];
    const Type *type = graph_type(c->s->graph, v);
    const SStep *st = &c->s->steps.v[k->step];
    free(c->other.data);
    c->other.data = NULL;
    if (!k->bytes) return NULL; /* empty, or of prepare steps alone */
    CheckRow *r = &c->rows[c->nrows++];
    *r = (CheckRow){.kernel = st->kernel->name, .step = k->step, .value = v, .dtype = type->dtype};
    r->loc = graph_node(c->s->graph, v)->loc;
    r->prepared = st->prepare;
    if (!take(k, &c->s->buffers.v[k->buffer], type, want, &c->other)) {
        r->bad = r->count = count_of(want);
        r->of_bound = INFINITY;
        return NULL;
    }
    compare(c, r, &c->other, want, error);
    return &c->other;
}

static int by_step(const void *a, const void *b) {
    const CheckRow *x = a, *y = b;
    return x->step != y->step ? (x->step < y->step ? -1 : 1)
                              : (x->value > y->value) - (x->value < y->value);
}

graphc_status check_rows(Check *c, const EvalTensor *inputs, double rtol, double atol,
                         const EvalOptions *opt, Arena *a, CheckRow **rows, uint32_t *n) {
    const Graph *g = c->s->graph;
    EvalOptions o = *opt;
    EvalWatch watch = {c->look, look, c};
    o.round_halves = true;
    c->rtol = rtol;
    c->atol = atol;
    c->rows = ARENA_ARRAY(a, CheckRow, c->nkept + 1);
    Arena *outputs = arena_create();
    graphc_status s =
        eval_run(g, inputs, &o, outputs, ARENA_ARRAY(outputs, EvalTensor, g->outputs.n), &watch);
    arena_destroy(outputs);
    qsort(c->rows, c->nrows, sizeof *c->rows, by_step);
    *rows = c->rows;
    *n = c->nrows;
    return s;
}
