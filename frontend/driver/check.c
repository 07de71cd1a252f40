#include "frontend/driver/check.h"
#include "graph/eval/eval_scalar.h"
#include "runtime/base/dtype_rows.h"
#include "runtime/base/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A buffer that kernels fill with a value, and what it held when the last of them was done. */
typedef struct Kept {
    uint32_t buffer, step; /* the last kernel that writes it */
    uint32_t ready;        /* the step after which it is whole: the end of an outermost loop */
    uint32_t due;          /* the step after which all that it is computed from is, too */
    uint32_t intact;       /* the last step up to which its buffer keeps it */
    uint32_t need;         /* the step after which all is due that is computed from it */
    bool lasting;          /* a run's kernels read what a prepare step wrote: as long as it is there
                              it stays as it is */
    void *bytes;           /* NULL: as yet in its buffer */
    uint64_t n;
} Kept;

struct Check {
    Arena *arena;
    const Schedule *s;
    graphc_session *session;
    CheckOptions opt;
    Kept *kept; /* by `ready` */
    Kept **due; /* by `due` */
    uint32_t nkept, next, next_due;
    uint32_t *of; /* per value: 1 + its number in kept */
    uint8_t *look;
    EvalWatch watch;
    EvalRun *run;
    graphc_status status;
    CheckRow *rows;
    uint32_t nrows;
    CheckRow *row;   /* of the value at hand, NULL: none */
    EvalOther other; /* what the evaluator goes on with in its place */
};

void check_used(const Constant *c) {
    if (c->file) file_rest(c->data, c->bytes);
}

/* ---- During the run ---- */

/* Whether its bytes lie in this process until the evaluator is through with them: then they are
 * never copied. */
static bool stays(const Check *c, const Kept *k) {
    return k->need <= k->intact && watch_host(c->session, k->buffer);
}

static graphc_status no_copy(const Check *c, uint64_t bytes) {
    return diag(c->s->graph->diags, D_NO_MEMORY, "", "a copy of %llu bytes of a stored value",
                (unsigned long long)bytes);
}

static graphc_status copy_out(Check *c, Kept *k) {
    if (k->bytes || !k->n || stays(c, k)) return GRAPHC_OK;
    k->bytes = malloc(k->n + 1);
    return k->bytes ? watch_read(c->session, k->buffer, k->bytes, k->n) : no_copy(c, k->n);
}

/* What waits for others is copied before its buffer is used again. What lasts waits until something
 * that is computed from it is due, or its end. */
static graphc_status keep_up(Check *c, uint32_t next) {
    for (; c->next < c->nkept && c->kept[c->next].ready < next; c->next++) {
        Kept *k = &c->kept[c->next];
        k->n = watch_bytes(c->session, k->buffer);
        if (k->lasting ? k->need > k->intact : k->due >= next) GC_TRY(copy_out(c, k));
    }
    for (; c->next_due < c->nkept && c->due[c->next_due]->due < next; c->next_due++) {
        const Kept *k = c->due[c->next_due];
        GC_TRY(eval_reach(c->run, c->s->buffers.v[k->buffer].holds));
    }
    return GRAPHC_OK;
}

static graphc_status keep(void *ctx, graphc_session *s, uint32_t step, uint32_t next) {
    Check *c = ctx;
    (void)s, (void)step;
    graphc_status status = keep_up(c, next);
    if (c->status == GRAPHC_OK) c->status = status;
    return c->status;
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

static int by_number(uint32_t a, uint32_t b) {
    return (a > b) - (a < b);
}

static int by_ready(const void *a, const void *b) {
    const Kept *x = a, *y = b;
    return x->ready != y->ready ? by_number(x->ready, y->ready) : by_number(x->step, y->step);
}

static int by_due(const void *a, const void *b) {
    const Kept *x = *(Kept *const *)a, *y = *(Kept *const *)b;
    if (x->due != y->due) return by_number(x->due, y->due);
    if (x->lasting != y->lasting) return x->lasting ? 1 : -1;
    return x < y ? -1 : x > y;
}

static uint32_t owner_of(const Schedule *s, uint32_t b) {
    while (s->buffers.v[b].alias) b = s->buffers.v[b].alias - 1;
    return b;
}

/* For each buffer the last step up to which it keeps what the last of its writers left. */
static uint32_t *intact_until(const Schedule *s, Arena *a) {
    uint32_t *until = ARENA_ARRAY(a, uint32_t, s->buffers.n + 1);
    uint32_t *written = ARENA_ARRAY(a, uint32_t, s->buffers.n + 1); /* owners: 1 + next step */
    bool *seen = ARENA_ARRAY(a, bool, s->buffers.n + 1);
    for (uint32_t i = s->steps.n; i-- > 0;) {
        const SStep *st = &s->steps.v[i];
        for (int note = 0; note < 2; note++)
            for (uint32_t k = 0; st->kernel && k < st->kernel->nparams; k++) {
                const uint32_t b = st->bufs[k], root = owner_of(s, b);
                if (!st->kernel->params[k].written) continue;
                if (note) written[root] = i + 1;
                if (note || seen[b]) continue;
                seen[b] = true;
                until[b] = s->buffers.v[root].last;
                if (written[root] && written[root] - 2 < until[b]) until[b] = written[root] - 2;
            }
    }
    return until;
}

/* Of a lean session it comes behind the first step that needs it, and goes. */
static void last(const Check *c, Kept *k) {
    uint32_t from;
    watch_prepared(c->session, k->buffer, &from, &k->intact);
    if (from > k->ready) k->ready = from;
}

static void find_kept(Check *c) {
    const Schedule *s = c->s;
    const uint32_t *ready = ready_after(s, c->arena), *until = intact_until(s, c->arena);
    uint32_t *writer = ARENA_ARRAY(c->arena, uint32_t, s->buffers.n + 1); /* 1 + the last */
    bool *read = ARENA_ARRAY(c->arena, bool, s->buffers.n + 1);           /* by a run */
    for (uint32_t i = 0; i < s->steps.n; i++)
        for (uint32_t k = 0; s->steps.v[i].kernel && k < s->steps.v[i].kernel->nparams; k++)
            if (s->steps.v[i].kernel->params[k].written)
                writer[s->steps.v[i].bufs[k]] = i + 1;
            else if (!s->steps.v[i].prepare)
                read[s->steps.v[i].bufs[k]] = true;
    /* What a loop carries is written last by the step that leaves the next in its place. */
    for (uint32_t b = 0; b < s->buffers.n; b++) {
        const uint32_t root = owner_of(s, b);
        if (!s->buffers.v[b].holds && writer[root] && writer[root] < writer[b])
            writer[root] = writer[b];
    }
    c->kept = ARENA_ARRAY(c->arena, Kept, s->buffers.n + 1);
    for (uint32_t b = 0; b < s->buffers.n; b++) {
        if (!s->buffers.v[b].holds || !writer[b]) continue;
        Kept *k = &c->kept[c->nkept++];
        *k = (Kept){.buffer = b, .step = writer[b] - 1, .ready = ready[writer[b] - 1]};
        k->lasting = s->steps.v[k->step].prepare && read[b];
        k->intact = until[b];
        if (k->lasting) last(c, k);
    }
    qsort(c->kept, c->nkept, sizeof *c->kept, by_ready);
}

/* What is computed from a value reads it until it is due itself, or, if it is not looked at, until
 * all is that is computed from it. */
static void find_need(Check *c, const uint32_t *due) {
    const Graph *g = c->s->graph;
    uint32_t *need = ARENA_ARRAY(c->arena, uint32_t, g->nodes.n);
    for (Value v = g->nodes.n; --v > 0;) {
        const Node *n = graph_node(g, v);
        Kept *k = c->of[v] ? &c->kept[c->of[v] - 1] : NULL;
        if (due[v] > need[v]) need[v] = due[v];
        if (k) k->need = need[v];
        const uint32_t until = k ? due[v] : need[v];
        for (uint32_t i = 0; i < n->nin; i++)
            if (need[n->in[i]] < until) need[n->in[i]] = until;
    }
}

/* A stored value may be computed anew in a kernel that runs before the one which stores it. */
static void find_due(Check *c) {
    const Graph *g = c->s->graph;
    uint32_t *due = ARENA_ARRAY(c->arena, uint32_t, g->nodes.n), sizes = 0;
    c->due = ARENA_ARRAY(c->arena, Kept *, c->nkept + 1);
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        Kept *k = c->of[v] ? &c->kept[c->of[v] - 1] : NULL;
        due[v] = k && k->ready > sizes ? k->ready : sizes;
        for (uint32_t i = 0; i < n->nin; i++)
            if (due[n->in[i]] > due[v]) due[v] = due[n->in[i]];
        if (eval_sizes(g, v)) sizes = due[v];
        if (k) k->due = k->lasting && k->intact > due[v] ? k->intact : due[v];
    }
    find_need(c, due);
    for (uint32_t i = 0; i < c->nkept; i++) c->due[i] = &c->kept[i];
    qsort(c->due, c->nkept, sizeof(Kept *), by_due);
}

/* Inside of attention casts to half types are left out: what it computes, up to what others stored.
 */
static void loosen(Check *c, Value v) {
    const Node *n = graph_node(c->s->graph, v);
    for (uint32_t i = 0; i < n->nin; i++) {
        const Value x = n->in[i];
        if (c->of[x] || c->look[x] & EVAL_LOOSE) continue;
        c->look[x] |= EVAL_LOOSE;
        loosen(c, x);
    }
}

/* ---- One value ---- */

static uint64_t count_of(const EvalTensor *t) {
    uint64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= (uint64_t)t->dim[i];
    return n;
}

/* What the kernel stored, as it lies there; of what was copied the copy. */
static bool take(const Check *c, Kept *k, const Type *type, const EvalTensor *shape,
                 EvalOther *out) {
    const uint8_t *order = c->s->buffers.v[k->buffer].order;
    const size_t size = dtype_bytes(type->dtype);
    int64_t step = 1;
    if (count_of(shape) > k->n / size) return false;
    out->bytes = k->bytes ? k->n : 0;
    out->data = k->bytes ? k->bytes : watch_host(c->session, k->buffer);
    k->bytes = NULL;
    for (int i = shape->rank - 1; i >= 0; i--) {
        const int d = order ? order[i] : i;
        out->stride[d] = step;
        step *= shape->dim[d];
    }
    return true;
}

typedef struct Tolerance {
    double rtol, atol, unit, least;
    bool exact; /* the value is rounded as the reference rounds it */
} Tolerance;

/* w is rounded to the type. */
static void compare_float(CheckRow *r, const Tolerance *t, double g, double w, double error) {
    double bound = error, d;
    if (error == INFINITY || g == w || (isnan(g) && isnan(w))) return;
    d = isfinite(g) && isfinite(w) ? fabs(g - w) : INFINITY;
    if (!t->exact && (error > 0 || dtype_bytes(r->dtype) >= 4))
        bound += 2 * fmax(t->unit * fabs(w), t->least);
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

enum { COMPARE_ROW = 256 };

/* n elements of `other` from offset `at`, `stride` apart, and as many of `want` from w on. */
static void compare_row(const Check *c, const Tolerance *t, int64_t at, int64_t stride, int64_t n,
                        const EvalTensor *want, int64_t w, const double *error) {
    CheckRow *r = c->row;
    const bool is_float = dtype_is_float(r->dtype);
    union {
        double f[COMPARE_ROW];
        int64_t i[COMPARE_ROW];
    } g, x;
    for (int64_t i = 0, m; i < n; i += m, at += m * stride, w += m) {
        m = n - i < COMPARE_ROW ? n - i : COMPARE_ROW;
        if (is_float) {
            dtype_load_row(r->dtype, c->other.data, at, stride, m, g.f);
            dtype_load_row(want->dtype, want->data, w, 1, m, x.f);
            eval_round_row(r->dtype, m, x.f);
        } else {
            dtype_load_ints(r->dtype, c->other.data, at, stride, m, g.i);
            dtype_load_ints(want->dtype, want->data, w, 1, m, x.i);
        }
        for (int64_t k = 0; k < m; k++)
            if (is_float)
                compare_float(r, t, g.f[k], x.f[k], error ? error[w + k] : 0);
            else
                compare_int(r, g.i[k], x.i[k], error ? error[w + k] : 0);
    }
}

/* The part's axes, of which neighbours are one where `other` has no gaps. */
static int join_axes(const EvalTensor *want, const int64_t *stride, int64_t *dim, int64_t *step) {
    int n = 0;
    for (int i = 0; i < want->rank; i++) {
        if (want->dim[i] == 1) continue;
        if (n && step[n - 1] == stride[i] * want->dim[i]) {
            dim[n - 1] *= want->dim[i];
        } else {
            dim[n++] = want->dim[i];
        }
        step[n - 1] = stride[i];
    }
    if (!n) dim[0] = step[0] = 1;
    return n ? n : 1;
}

static void compare(const Check *c, EvalPart part, const EvalTensor *want, const double *error) {
    CheckRow *r = c->row;
    const uint64_t count = count_of(want);
    int64_t dim[GRAPH_MAX_RANK + 1], step[GRAPH_MAX_RANK + 1], at[GRAPH_MAX_RANK + 1] = {0};
    Tolerance t = {.rtol = c->opt.rtol,
                   .atol = c->opt.atol,
                   .unit = dtype_is_float(r->dtype) ? eval_unit(r->dtype) : 0,
                   .exact = graph_node(c->s->graph, r->value)->op == OP_cast};
    t.least = t.unit > 0 ? eval_least_unit(r->dtype) : 0;
    const int rank = join_axes(want, c->other.stride, dim, step), last = rank - 1;
    int64_t from = want->rank ? part.first * c->other.stride[part.axis] : 0;
    for (int64_t w = 0; w < (int64_t)count; w += dim[last]) {
        compare_row(c, &t, from, step[last], dim[last], want, w, error);
        for (int d = last - 1; d >= 0; d--) {
            from += step[d];
            if (++at[d] < dim[d]) break;
            from -= step[d] * dim[d];
            at[d] = 0;
        }
    }
    r->count += count;
}

static bool other(void *ctx, Value v, const EvalTensor *shape, EvalOther *out) {
    Check *c = ctx;
    Kept *k = &c->kept[c->of[v] - 1];
    const Type *type = graph_type(c->s->graph, v);
    const SStep *st = &c->s->steps.v[k->step];
    c->row = NULL;
    if (!k->n) return false; /* empty, or of prepare steps alone */
    if ((c->status = copy_out(c, k)) != GRAPHC_OK) return false;
    CheckRow *r = &c->rows[c->nrows++];
    *r = (CheckRow){.kernel = st->kernel->name, .step = k->step, .value = v, .dtype = type->dtype};
    r->loc = graph_node(c->s->graph, v)->loc;
    r->prepared = st->prepare;
    if (!take(c, k, type, shape, &c->other)) {
        r->bad = r->count = count_of(shape);
        r->of_bound = INFINITY;
        return false;
    }
    c->row = r;
    *out = c->other;
    return true;
}

static void look(void *ctx, Value v, EvalPart part, const EvalTensor *want, const double *error) {
    const Check *c = ctx;
    (void)v;
    if (c->row) compare(c, part, want, error);
}

/* ---- A run ---- */

static void find_looks(Check *c) {
    const Schedule *s = c->s;
    c->of = ARENA_ARRAY(c->arena, uint32_t, s->graph->nodes.n);
    c->look = ARENA_ARRAY(c->arena, uint8_t, s->graph->nodes.n);
    for (uint32_t i = 0; i < c->nkept; i++) {
        Value v = s->buffers.v[c->kept[i].buffer].holds;
        c->of[v] = i + 1;
        c->look[v] |= EVAL_LOOK;
    }
    for (uint32_t i = 0; i < c->nkept; i++)
        if (s->steps.v[c->kept[i].step].kernel->tem == TEM_attention)
            loosen(c, s->buffers.v[c->kept[i].buffer].holds);
}

Check *check_begin(const Schedule *s, graphc_session *session, const EvalTensor *inputs,
                   const CheckOptions *opt) {
    Arena *a = arena_create();
    Check *c = ARENA_NEW(a, Check);
    *c = (Check){.arena = a, .s = s, .session = session, .opt = *opt};
    EvalOptions o = {
        .round_halves = true, .progress = opt->progress, .ctx = opt->ctx, .used = check_used};
    find_kept(c);
    find_looks(c);
    find_due(c);
    c->rows = ARENA_ARRAY(a, CheckRow, c->nkept + 1);
    c->watch = (EvalWatch){.what = c->look, .other = other, .look = look, .ctx = c};
    c->status = eval_open(s->graph, inputs, &o, a, &c->watch, &c->run);
    if (c->status == GRAPHC_OK) watch_steps(session, keep, c);
    return c;
}

void check_end(Check *c) {
    watch_steps(c->session, NULL, NULL);
    eval_close(c->run);
    for (uint32_t i = 0; i < c->nkept; i++) free(c->kept[i].bytes);
    arena_destroy(c->arena);
}

static int by_step(const void *a, const void *b) {
    const CheckRow *x = a, *y = b;
    return x->step != y->step ? by_number(x->step, y->step) : by_number(x->value, y->value);
}

graphc_status check_rows(Check *c, Arena *a, CheckRow **rows, uint32_t *n) {
    GC_TRY(c->status);
    for (uint32_t i = 0; i < c->nkept; i++) /* what lasts, and nothing was computed from */
        if (c->kept[i].lasting)
            GC_TRY(eval_reach(c->run, c->s->buffers.v[c->kept[i].buffer].holds));
    GC_TRY(c->status);
    for (uint32_t i = 0; i < c->nrows; i++)
        if (c->rows[i].count) c->rows[i].mean_abs /= (double)c->rows[i].count;
    qsort(c->rows, c->nrows, sizeof *c->rows, by_step);
    *rows = arena_copy(a, c->rows, c->nrows * sizeof *c->rows);
    *n = c->nrows;
    return GRAPHC_OK;
}
