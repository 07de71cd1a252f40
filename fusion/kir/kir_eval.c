/* Reference interpreter of kernels.
 *
 * Folded values (reduce, scan, sort) are computed whole, in op order, into tensors over their
 * domains; then every group of stores with one domain runs as one loop nest. Within a nest an op is
 * evaluated again only when an axis it depends on has moved. */
#include "fusion/kir/kir_internal.h"
#include "graph/eval/eval_scalar.h"
#include <math.h>
#include <string.h>

typedef struct Whole {
    EvalScalar *v; /* NULL: not a folded value */
    uint32_t axes;
} Whole;

typedef struct Interp {
    const Kernel *k;
    ExprPool *p;
    void *const *bufs, *const *from; /* parameters, as they are stored to and loaded from */
    int64_t *sym;                    /* all symbol values, axes and indirect ones included */
    Arena *a;
    uint32_t *domains;
    int64_t extent[K_MAX_AXES], numel[K_MAX_PARAMS];
    EvalScalar *val; /* current value of every op */
    Whole *whole;
    graphc_status status;
} Interp;

/* One loop nest: axes from outermost to innermost, the ops to evaluate with the depth (1 + loop
 * position, 0 = outside) at which each changes. */
typedef struct Nest {
    uint32_t naxes, nops;
    uint8_t axis[K_MAX_AXES];
    KVal *ops;
    uint8_t *depth;
} Nest;

static int64_t points(const Interp *c, uint32_t axes) {
    int64_t n = 1;
    for (uint32_t i = 0; i < c->k->naxes; i++)
        if (axes >> i & 1) n *= c->extent[i];
    return n;
}

/* Row-major position of the current point among `axes`. */
static int64_t position(const Interp *c, uint32_t axes) {
    int64_t at = 0;
    for (uint32_t i = 0; i < c->k->naxes; i++)
        if (axes >> i & 1) at = at * c->extent[i] + c->sym[c->k->axes[i].sym];
    return at;
}

static void eval_load(Interp *c, const KOp *o, EvalScalar *out) {
    if (o->mask && !expr_eval(c->p, o->mask, c->sym)) {
        *out = o->in[0] ? c->val[o->in[0]] : (EvalScalar){0};
        return;
    }
    int64_t i = expr_eval(c->p, o->index, c->sym);
    if (i < 0 || i >= c->numel[o->buf]) {
        c->status = GRAPHC_RUNTIME;
        *out = (EvalScalar){0};
    } else if (dtype_is_float((DType)o->dtype)) {
        out->f = dtype_load_f64((DType)o->dtype, c->from[o->buf], (size_t)i);
    } else {
        out->i = dtype_load_i64((DType)o->dtype, c->from[o->buf], (size_t)i);
    }
}

static EvalScalar eval_join(DType t, KFold fold, EvalScalar a, EvalScalar b) {
    return eval_scalar(kir_join(fold), t, t, (EvalScalar[]){a, b, {0}});
}

static EvalScalar join_mode(DType t, ScatterMode mode, EvalScalar a, EvalScalar b) {
    static const uint8_t op[] = {0, OP_add, OP_mul, OP_min, OP_max};
    return mode == SCATTER_set ? b : eval_scalar((Op)op[mode], t, t, (EvalScalar[]){a, b, {0}});
}

static void eval_store(Interp *c, const KOp *o) {
    if (o->mask && !expr_eval(c->p, o->mask, c->sym)) return;
    DType t = (DType)o->dtype;
    int64_t i = expr_eval(c->p, o->index, c->sym);
    EvalScalar v = c->val[o->in[0]], old = {0};
    if (i < 0 || i >= c->numel[o->buf]) {
        c->status = GRAPHC_RUNTIME;
        return;
    }
    bool f = dtype_is_float(t);
    if (o->op == K_katomic) {
        if (f)
            old.f = dtype_load_f64(t, c->bufs[o->buf], (size_t)i);
        else
            old.i = dtype_load_i64(t, c->bufs[o->buf], (size_t)i);
        v = join_mode(t, (ScatterMode)o->fold, old, v);
    }
    if (f)
        dtype_store_f64(t, c->bufs[o->buf], (size_t)i, v.f);
    else
        dtype_store_i64(t, c->bufs[o->buf], (size_t)i, v.i);
}

static void eval_op(Interp *c, KVal v) {
    const KOp *o = &c->k->ops[v];
    EvalScalar *out = &c->val[v];
    if (c->whole[v].v) {
        *out = c->whole[v].v[position(c, c->whole[v].axes)];
        return;
    }
    switch (o->op) {
    case K_konst:
        if (dtype_is_float((DType)o->dtype))
            out->f = o->imm.f;
        else
            out->i = o->imm.i;
        return;
    case K_kexpr: out->i = expr_eval(c->p, o->index, c->sym); return;
    case K_kload: eval_load(c, o, out); return;
    case K_kbind: c->sym[o->sym] = c->val[o->in[0]].i; return;
    case K_kstore:
    case K_katomic: eval_store(c, o); return;
    default: {
        EvalScalar x[3] = {c->val[o->in[0]], c->val[o->in[1]], c->val[o->in[2]]};
        uint32_t typed = o->in[o->op == OP_select ? 1 : 0];
        *out = eval_scalar((Op)o->op, (DType)c->k->ops[typed].dtype, (DType)o->dtype, x);
    }
    }
}

typedef struct Mark {
    Interp *c;
    bool *need;
    KVal at;
} Mark;

static void mark_sym(void *ctx, uint32_t sym) {
    Mark *m = ctx;
    KVal bind = kir_axis_of(m->c->k, sym) < 0 ? kir_bind_of(m->c->k, sym, m->at) : 0;
    if (bind) m->need[bind] = true;
}

/* Marks what the marked ops need, down to folded values. */
static void mark_needed(Interp *c, bool *need) {
    for (KVal v = c->k->nops; v-- > 1;) {
        const KOp *o = &c->k->ops[v];
        if (!need[v] || c->whole[v].v) continue;
        for (int i = 0; i < 3; i++)
            if (o->in[i]) need[o->in[i]] = true;
        Mark m = {c, need, v};
        if (o->index) expr_each_sym(c->p, o->index, mark_sym, &m);
        if (o->mask) expr_each_sym(c->p, o->mask, mark_sym, &m);
    }
}

/* A nest over `axes` (outer ones first: those of `outer`, then the rest) for the marked ops. */
static Nest nest_make(Interp *c, uint32_t outer, uint32_t inner, bool *need) {
    Nest n = {.ops = ARENA_ARRAY(c->a, KVal, c->k->nops),
              .depth = ARENA_ARRAY(c->a, uint8_t, c->k->nops)};
    for (uint32_t i = 0; i < c->k->naxes; i++)
        if (outer >> i & 1) n.axis[n.naxes++] = (uint8_t)i;
    for (uint32_t i = 0; i < c->k->naxes; i++)
        if ((inner & ~outer) >> i & 1) n.axis[n.naxes++] = (uint8_t)i;
    mark_needed(c, need);
    for (KVal v = 1; v < c->k->nops; v++) {
        if (!need[v]) continue;
        uint8_t depth = 0;
        for (uint32_t l = 0; l < n.naxes; l++)
            if (c->domains[v] >> n.axis[l] & 1) depth = (uint8_t)(l + 1);
        /* Effects happen at every point. */
        if (c->k->ops[v].op == K_katomic) depth = (uint8_t)n.naxes;
        n.depth[n.nops] = depth;
        n.ops[n.nops++] = v;
    }
    return n;
}

static void nest_eval(Interp *c, const Nest *n, uint32_t from_depth) {
    for (uint32_t i = 0; i < n->nops; i++)
        if (n->depth[i] >= from_depth) eval_op(c, n->ops[i]);
}

/* Moves to the next point; the result is the depth that moved, or UINT32_MAX at the end. */
static uint32_t nest_next(Interp *c, const Nest *n) {
    for (uint32_t l = n->naxes; l-- > 0;) {
        int64_t *at = &c->sym[c->k->axes[n->axis[l]].sym];
        if (++*at < c->extent[n->axis[l]]) return l + 1;
        *at = 0;
    }
    return UINT32_MAX;
}

static bool nest_begin(Interp *c, const Nest *n) {
    bool any = true;
    for (uint32_t l = 0; l < n->naxes; l++) {
        c->sym[c->k->axes[n->axis[l]].sym] = 0;
        if (c->extent[n->axis[l]] <= 0) any = false;
    }
    return any;
}

static EvalScalar identity(DType t, KFold fold) {
    int64_t lo = 0;
    uint64_t hi = 0;
    bool f = dtype_is_float(t);
    if (!f) dtype_int_range(t, &lo, &hi);
    switch (fold) {
    case FOLD_sum: return f ? (EvalScalar){.f = 0} : (EvalScalar){.i = 0};
    case FOLD_prod: return f ? (EvalScalar){.f = 1} : (EvalScalar){.i = 1};
    case FOLD_max: return f ? (EvalScalar){.f = -INFINITY} : (EvalScalar){.i = lo};
    default: return f ? (EvalScalar){.f = INFINITY} : (EvalScalar){.i = (int64_t)hi};
    }
}

static bool is_nan(DType t, EvalScalar x) {
    return dtype_is_float(t) && isnan(x.f);
}

static bool less(DType t, EvalScalar a, EvalScalar b) {
    return eval_scalar(OP_lt, t, DT_bool, (EvalScalar[]){a, b, {0}}).i != 0;
}

/* True if x takes the place of the best so far in an argmax or argmin; a NaN beats all numbers. */
static bool beats(DType t, KFold fold, EvalScalar x, EvalScalar best) {
    bool last = fold == FOLD_argmax_last || fold == FOLD_argmin_last;
    if (is_nan(t, best)) return last && is_nan(t, x);
    if (is_nan(t, x)) return true;
    bool max = fold == FOLD_argmax || fold == FOLD_argmax_last;
    if (max ? less(t, best, x) : less(t, x, best)) return true;
    return last && !less(t, x, best) && !less(t, best, x);
}

static void eval_reduce(Interp *c, KVal v, EvalScalar *out) {
    const KOp *o = &c->k->ops[v];
    DType t = (DType)c->k->ops[o->in[0]].dtype;
    uint32_t dom = c->domains[v];
    bool arg = o->fold >= FOLD_argmax;
    uint32_t axis = o->axes ? (uint32_t)__builtin_ctz(o->axes) : 0;
    int64_t n = points(c, dom);
    EvalScalar *best = arg ? ARENA_ARRAY(c->a, EvalScalar, (size_t)n) : NULL;
    for (int64_t i = 0; i < n; i++)
        out[i] = arg ? (EvalScalar){.i = -1} : identity(t, (KFold)o->fold);
    bool *need = ARENA_ARRAY(c->a, bool, c->k->nops);
    need[o->in[0]] = true;
    Nest nest = nest_make(c, dom, o->axes, need);
    if (!nest_begin(c, &nest)) return;
    for (uint32_t moved = 0; moved != UINT32_MAX; moved = nest_next(c, &nest)) {
        nest_eval(c, &nest, moved);
        int64_t at = position(c, dom);
        EvalScalar x = c->val[o->in[0]];
        if (!arg) {
            out[at] = eval_join(t, (KFold)o->fold, out[at], x);
        } else if (out[at].i < 0 || beats(t, (KFold)o->fold, x, best[at])) {
            out[at].i = c->sym[c->k->axes[axis].sym];
            best[at] = x;
        }
    }
}

/* The values of op v along its axis at the nest's outer point. */
static void row_gather(Interp *c, const Nest *n, KVal v, uint32_t axis, EvalScalar *row) {
    int64_t *at = &c->sym[c->k->axes[axis].sym];
    for (*at = 0; *at < c->extent[axis]; ++*at) {
        nest_eval(c, n, 0);
        row[*at] = c->val[v];
    }
    *at = 0;
}

static void scan_row(const KOp *o, DType t, EvalScalar *row, int64_t n) {
    bool exclusive = o->imm.i & 1, reverse = o->imm.i & 2;
    EvalScalar acc = identity(t, (KFold)o->fold);
    for (int64_t s = 0; s < n; s++) {
        EvalScalar *x = &row[reverse ? n - 1 - s : s];
        EvalScalar next = eval_join(t, (KFold)o->fold, acc, *x);
        *x = exclusive ? acc : next;
        acc = next;
    }
}

/* Whether a comes before b; NaN is last in either direction. */
static bool before(DType t, bool descending, EvalScalar a, EvalScalar b) {
    if (is_nan(t, a) || is_nan(t, b)) return !is_nan(t, a) && is_nan(t, b);
    return descending ? less(t, b, a) : less(t, a, b);
}

/* Stable merge sort of the positions order[0..n) by row value; tmp has n slots. */
static void sort_row(DType t, bool descending, const EvalScalar *row, EvalScalar *order,
                     EvalScalar *tmp, int64_t n) {
    for (int64_t i = 0; i < n; i++) order[i].i = i;
    for (int64_t w = 1; w < n; w *= 2) {
        for (int64_t lo = 0; lo < n; lo += 2 * w) {
            int64_t mid = lo + w < n ? lo + w : n, hi = lo + 2 * w < n ? lo + 2 * w : n;
            int64_t i = lo, j = mid;
            for (int64_t at = lo; at < hi; at++) {
                bool right =
                    i == mid || (j < hi && before(t, descending, row[order[j].i], row[order[i].i]));
                tmp[at] = order[right ? j++ : i++];
            }
        }
        memcpy(order, tmp, (size_t)n * sizeof *order);
    }
}

static void eval_rows(Interp *c, KVal v, EvalScalar *out) {
    const KOp *o = &c->k->ops[v];
    DType t = (DType)c->k->ops[o->in[0]].dtype;
    uint32_t axis = (uint32_t)__builtin_ctz(o->axes), outer = c->domains[v] & ~o->axes;
    int64_t n = c->extent[axis];
    EvalScalar *row = ARENA_ARRAY(c->a, EvalScalar, (size_t)(n > 0 ? 3 * n : 0));
    bool *need = ARENA_ARRAY(c->a, bool, c->k->nops);
    need[o->in[0]] = true;
    Nest all = nest_make(c, outer, o->axes, need);
    Nest rows = all;
    rows.naxes--; /* the row itself is walked by row_gather */
    if (!nest_begin(c, &all)) return;
    for (uint32_t moved = 0; moved != UINT32_MAX; moved = nest_next(c, &rows)) {
        row_gather(c, &all, o->in[0], axis, row);
        EvalScalar *result = row;
        if (o->op == K_kscan) {
            scan_row(o, t, row, n);
        } else {
            sort_row(t, (o->imm.i & 2) != 0, row, row + n, row + 2 * n, n);
            result = row + n;
            for (int64_t i = o->imm.i >> 2 ? o->imm.i >> 2 : n; i < n; i++) result[i].i = 0;
        }
        int64_t *at = &c->sym[c->k->axes[axis].sym];
        for (*at = 0; *at < n; ++*at) out[position(c, c->domains[v])] = result[*at];
        *at = 0;
    }
}

/* Writes the positions of true values to buf, and their number where it belongs. */
static void eval_compact(Interp *c, KVal v) {
    const KOp *o = &c->k->ops[v];
    uint32_t axis = (uint32_t)__builtin_ctz(o->axes);
    bool *need = ARENA_ARRAY(c->a, bool, c->k->nops);
    need[o->in[0]] = true;
    Nest nest = nest_make(c, 0, o->axes, need);
    int64_t n = 0;
    if (nest_begin(c, &nest))
        for (uint32_t moved = 0; moved != UINT32_MAX; moved = nest_next(c, &nest)) {
            nest_eval(c, &nest, moved);
            if (c->val[o->in[0]].i)
                dtype_store_i64((DType)c->k->params[o->buf].dtype, c->bufs[o->buf], (size_t)n++,
                                c->sym[c->k->axes[axis].sym]);
        }
    c->sym[o->sym] = n;
    dtype_store_i64(DT_i64, c->bufs[kir_count_param(o)], 0, n);
}

static bool folded(const KOp *o) {
    return o->op == K_kreduce || o->op == K_kscan || o->op == K_ksort;
}

static bool effect(const KOp *o) {
    return o->op == K_kstore || o->op == K_katomic;
}

static void eval_folded(Interp *c) {
    for (KVal v = 1; v < c->k->nops; v++) {
        const KOp *o = &c->k->ops[v];
        if (!folded(o)) continue;
        EvalScalar *out = ARENA_ARRAY(c->a, EvalScalar, (size_t)points(c, c->domains[v]));
        if (o->op == K_kreduce)
            eval_reduce(c, v, out);
        else
            eval_rows(c, v, out);
        c->whole[v] = (Whole){out, c->domains[v]};
    }
}

/* Stores of one domain run together, so that an in-place store is seen by none of their loads. */
static void eval_stores(Interp *c) {
    bool *done = ARENA_ARRAY(c->a, bool, c->k->nops);
    for (KVal v = 1; v < c->k->nops; v++) {
        if (c->k->ops[v].op == K_kcompact) eval_compact(c, v);
        if (!effect(&c->k->ops[v]) || done[v]) continue;
        bool *need = ARENA_ARRAY(c->a, bool, c->k->nops);
        for (KVal w = v; w < c->k->nops; w++)
            if (effect(&c->k->ops[w]) && c->domains[w] == c->domains[v]) need[w] = done[w] = true;
        Nest nest = nest_make(c, c->domains[v], 0, need);
        if (!nest_begin(c, &nest)) continue;
        for (uint32_t moved = 0; moved != UINT32_MAX; moved = nest_next(c, &nest))
            nest_eval(c, &nest, moved);
    }
}

static graphc_status eval_once(const Kernel *k, ExprPool *p, void *const *bufs, void *const *from,
                               const int64_t *sym_values, Arena *a) {
    uint32_t nsym = expr_sym_count(p);
    Interp c = {.k = k,
                .p = p,
                .bufs = bufs,
                .from = from,
                .a = a,
                .sym = ARENA_ARRAY(a, int64_t, nsym),
                .domains = ARENA_ARRAY(a, uint32_t, k->nops + 1),
                .val = ARENA_ARRAY(a, EvalScalar, k->nops + 1),
                .whole = ARENA_ARRAY(a, Whole, k->nops + 1)};
    for (uint32_t i = 0; i < nsym; i++)
        if (expr_sym_info(p, i)->kind != SYM_AXIS) c.sym[i] = sym_values[i];
    kir_domains(k, p, c.domains);
    for (uint32_t i = 0; i < k->naxes; i++) {
        c.extent[i] = expr_eval(p, k->axes[i].extent, c.sym);
        if (c.extent[i] < 0) return GRAPHC_RUNTIME;
    }
    for (uint32_t i = 0; i < kir_body_params(k); i++)
        c.numel[i] = expr_eval(p, k->params[i].numel, c.sym);
    eval_folded(&c);
    eval_stores(&c);
    return c.status;
}

/* Each turn loads what is carried as it was before. */
static graphc_status eval_turns(const Kernel *k, ExprPool *p, void *const *bufs,
                                const int64_t *sym_values, Arena *a) {
    int64_t *sym = arena_copy(a, sym_values, expr_sym_count(p) * sizeof *sym);
    const int64_t turns = expr_eval(p, k->turns, sym);
    graphc_status st = GRAPHC_OK;
    for (sym[k->turn] = 0; sym[k->turn] < turns && st == GRAPHC_OK; sym[k->turn]++) {
        Arena *turn = arena_create();
        void *from[K_MAX_PARAMS];
        for (uint32_t i = 0; i < k->nparams; i++) {
            const int64_t n = expr_eval(p, k->params[i].numel, sym);
            const size_t bytes = (size_t)n * dtype_bytes(k->params[i].dtype);
            from[i] = kir_carries(k, i) ? arena_copy(turn, bufs[i], bytes) : bufs[i];
        }
        st = eval_once(k, p, bufs, from, sym, turn);
        arena_destroy(turn);
    }
    return st;
}

graphc_status kir_eval(const Kernel *k, ExprPool *p, void *const *bufs, const int64_t *sym_values,
                       Arena *a) {
    graphc_status st = GRAPHC_OK;
    if (k->turns) return eval_turns(k, p, bufs, sym_values, a);
    for (uint32_t i = 0; i <= k->more && st == GRAPHC_OK; i++) {
        void *const *of = bufs + i * kir_body_params(k);
        st = eval_once(k, p, of, of, sym_values, a);
    }
    return st;
}
