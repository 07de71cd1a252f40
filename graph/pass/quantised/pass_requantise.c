/* requantise: what stands between integers costs as little as integer kernels have it cost.
 *
 *   round((x c + b) / s)          =  round(x (c/s) + b/s)        x an integer; c, b, s constants
 *   min(max(n + z, lo), hi)       =  min(max(n, lo-z), hi-z) + z   n, z, lo, hi whole
 *   (n + a) + b                   =  n + (a + b)                  n, a, b whole
 *   (f32)(u8)n                    =  n                            n whole, and within the type
 *   is n a number                 =  yes                          n made of integers and constants
 *
 * The first is the usual form of requantisation, with all scales in one constant that is made at
 * load: it rounds once less, and moves a result by one step where it was at the middle of two, as
 * quads does; it is for what becomes an integer of few bits and nothing else. All others are exact,
 * for integers below 2^24.
 *
 * Needs: to run behind quads, whose sums of integers these are. Keeps: meaning, up to that
 * rounding. Breaks: nothing; leaves dead nodes. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"
#include <float.h>
#include <math.h>

enum { MAX_VISITS = 64, MAX_ELEMENTS = 1 << 16, EXACT = 1 << 24 };
enum { MAX_TERMS = 16 }; /* of a sum that is divided, constants included */

/* --- What a value may be ---------------------------------------------------------------------- */

typedef struct Range {
    double lo, hi;
    bool nan;   /* it may be none of the numbers between them */
    bool whole; /* it has no fraction */
} Range;

typedef struct Walk {
    const Graph *g;
    int visits; /* left: bounds the work on shared operands */
} Walk;

static Range of(Walk *w, Value v);

static Range anything(void) {
    return (Range){-INFINITY, INFINITY, true, false};
}

static Range of_integer(DType t) {
    int64_t lo;
    uint64_t hi;
    dtype_int_range(t, &lo, &hi);
    return (Range){(double)lo, (double)hi, false, true};
}

static Range of_const(const Graph *g, const Node *n) {
    int64_t count;
    const DType t = n->type.dtype;
    if (!expr_is_const(g->exprs, type_numel(g->exprs, &n->type), &count)) return anything();
    if (count < 1 || count > MAX_ELEMENTS) return anything();
    Range r = {INFINITY, -INFINITY, false, true};
    for (int64_t i = 0; i < count; i++) {
        const double x = dtype_load_f64(t, n->attr.constant.data, (size_t)i);
        if (isnan(x)) return anything();
        r.lo = fmin(r.lo, x);
        r.hi = fmax(r.hi, x);
        r.whole &= x == rint(x);
    }
    return r;
}

/* What f32 leaves of it. */
static Range rounded(Range r) {
    if (!(r.lo >= -FLT_MAX)) r.lo = -INFINITY;
    if (!(r.hi <= FLT_MAX)) r.hi = INFINITY;
    return r;
}

static bool is_finite(Range r) {
    return !r.nan && r.lo >= -FLT_MAX && r.hi <= FLT_MAX;
}

static Range of_product(Range a, Range b) {
    if (!is_finite(a) || !is_finite(b)) return anything();
    const double x[4] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
    return rounded((Range){fmin(fmin(x[0], x[1]), fmin(x[2], x[3])),
                           fmax(fmax(x[0], x[1]), fmax(x[2], x[3])), false, a.whole && b.whole});
}

static Range of_quotient(Range a, Range b) {
    if (!is_finite(b) || !(b.lo > 0)) return anything();
    Range r = of_product(a, (Range){1 / b.hi, 1 / b.lo, false, false});
    r.whole = false;
    return r;
}

static Range of_binary(Op op, Range a, Range b) {
    const bool whole = a.whole && b.whole, nan = a.nan || b.nan;
    switch (op) {
    case OP_add:
        if (!is_finite(a) || !is_finite(b)) return anything();
        return rounded((Range){a.lo + b.lo, a.hi + b.hi, false, whole});
    case OP_sub: return of_binary(OP_add, a, (Range){-b.hi, -b.lo, b.nan, b.whole});
    case OP_mul: return of_product(a, b);
    case OP_div: return of_quotient(a, b);
    case OP_min: return (Range){fmin(a.lo, b.lo), fmin(a.hi, b.hi), nan, whole};
    case OP_max: return (Range){fmax(a.lo, b.lo), fmax(a.hi, b.hi), nan, whole};
    default: return anything();
    }
}

static Range either(Range a, Range b) {
    return (Range){fmin(a.lo, b.lo), fmax(a.hi, b.hi), a.nan || b.nan, a.whole && b.whole};
}

static Range of_float(Walk *w, const Node *n) {
    Range r;
    switch ((Op)n->op) {
    case OP_const: return of_const(w->g, n);
    case OP_cast: return rounded(of(w, n->in[0]));
    case OP_reshape:
    case OP_permute:
    case OP_expand:
    case OP_window:
    case OP_slice: return of(w, n->in[0]);
    case OP_reduce_max: /* of nothing: -inf */
        r = of(w, n->in[0]);
        return (Range){-INFINITY, r.hi, r.nan, r.whole};
    case OP_pad: return either(of(w, n->in[0]), of(w, n->in[1]));
    case OP_round: r = of(w, n->in[0]); return (Range){rint(r.lo), rint(r.hi), r.nan, true};
    case OP_select: return either(of(w, n->in[1]), of(w, n->in[2]));
    case OP_add:
    case OP_sub:
    case OP_mul:
    case OP_div:
    case OP_min:
    case OP_max: return of_binary((Op)n->op, of(w, n->in[0]), of(w, n->in[1]));
    default: return anything();
    }
}

static Range of(Walk *w, Value v) {
    const Node *n = graph_node(w->g, v);
    const DType t = n->type.dtype;
    if (w->visits-- <= 0 || t == DT_bool) return anything();
    if (!dtype_is_float(t)) return of_integer(t);
    return t == DT_f32 ? of_float(w, n) : anything();
}

static Range range_of(const Graph *g, Value v) {
    Walk w = {g, MAX_VISITS};
    return of(&w, v);
}

/* Whole, and so small that sums with others like it are exact in f32. */
static bool is_small(Range r) {
    return r.whole && !r.nan && r.lo > -EXACT / 4 && r.hi < EXACT / 4;
}

/* --- What is known of the old graph ----------------------------------------------------------- */

typedef struct Facts {
    bool *drop;      /* an integer as f32 that need not have been one */
    bool *quantised; /* all that is made of it is an integer of few bits */
} Facts;

/* Between what is rounded and that integer: zero points, clamps, and what is no number. */
static bool is_of_quantiser(const Node *n) {
    switch ((Op)n->op) {
    case OP_add:
    case OP_sub:
    case OP_min:
    case OP_max:
    case OP_select:
    case OP_isnan: return true;
    default: return op_info[n->op].cls == OPC_VIEW;
    }
}

static bool is_few_bits(DType t) {
    return dtype_is_int(t) && dtype_bytes(t) <= 2;
}

/* Readers stand behind what they read. */
static void find_quantised(const Graph *g, const uint32_t *uses, bool *quantised) {
    uint32_t *ends = ARENA_ARRAY(g->own, uint32_t, g->nodes.n); /* uses that end in integers */
    for (Value v = g->nodes.n; --v > 0;) {
        const Node *n = graph_node(g, v);
        quantised[v] = uses[v] && ends[v] == uses[v];
        const bool ends_here = n->op == OP_cast && is_few_bits(n->type.dtype);
        if (!ends_here && !(quantised[v] && is_of_quantiser(n))) continue;
        for (uint32_t i = 0; i < n->nin; i++) ends[n->in[i]]++;
    }
}

/* --- One number as often as it likes ---------------------------------------------------------- */

static bool is_number(const Graph *g, Value v, double *c) {
    while (graph_node(g, v)->op == OP_expand) v = graph_node(g, v)->in[0];
    return build_const_f64(g, v, c) && isfinite(*c);
}

static bool is_small_number(const Graph *g, Value v, double *c) {
    return is_number(g, v, c) && *c == rint(*c) && fabs(*c) < EXACT / 4;
}

/* n + c, or x itself. */
typedef struct Shifted {
    Value n;
    double c;
} Shifted;

static Shifted shifted_of(const Graph *g, Value x) {
    const Node *n = graph_node(g, x);
    double c;
    if (n->op == OP_sub && is_small_number(g, n->in[1], &c)) return (Shifted){n->in[0], -c};
    for (int i = 0; n->op == OP_add && i < 2; i++)
        if (is_small_number(g, n->in[i], &c)) return (Shifted){n->in[1 - i], c};
    return (Shifted){x, 0};
}

static Value plus(Graph *g, Value x, double c) {
    return c == 0 ? x : build_binary_f(g, OP_add, x, c);
}

/* --- Exact rules, on a node as it was copied ------------------------------------------------- */

static Value sum_of_shifts(Graph *g, Value v) {
    const Shifted outer = shifted_of(g, v);
    if (outer.n == v) return 0;
    const Shifted inner = shifted_of(g, outer.n);
    if (inner.n == outer.n) return outer.c == 0 ? inner.n : 0;
    return is_small(range_of(g, inner.n)) ? plus(g, inner.n, inner.c + outer.c) : 0;
}

/* The other operand of min or max, if one is a number. */
static Value limited(const Graph *g, const Node *n, double *limit) {
    for (int i = 0; i < 2; i++)
        if (is_small_number(g, n->in[i], limit)) return n->in[1 - i];
    return 0;
}

/* min(max(n + z, lo), hi), whatever the size of n: what is not exact about n + z lies outside. */
static Value clamp_below_shift(Graph *g, Value v) {
    double lo, hi;
    const Node *min = graph_node(g, v);
    Value x = limited(g, min, &hi);
    if (!x || graph_node(g, x)->op != OP_max) return 0;
    x = limited(g, graph_node(g, x), &lo);
    if (!x) return 0;
    const Shifted s = shifted_of(g, x);
    if (s.n == x || !range_of(g, s.n).whole) return 0;
    Value y = build_binary_f(g, OP_max, s.n, lo - s.c);
    return plus(g, build_binary_f(g, OP_min, y, hi - s.c), s.c);
}

static Value number_for_sure(const Graph *g, Value v) {
    const Node *n = graph_node(g, v), *cond = graph_node(g, n->in[0]);
    return cond->op == OP_isnan && !range_of(g, cond->in[0]).nan ? n->in[2] : 0;
}

/* Through an integer and back. */
static Value as_it_was(const Graph *g, Value v) {
    const Node *n = graph_node(g, v), *narrow = graph_node(g, n->in[0]);
    if (narrow->op != OP_cast || dtype_is_float(narrow->type.dtype)) return 0;
    const Value x = narrow->in[0];
    if (graph_type(g, x)->dtype != DT_f32 || narrow->type.dtype == DT_bool) return 0;
    const Range have = range_of(g, x), fits = of_integer(narrow->type.dtype);
    return is_small(have) && have.lo >= fits.lo && have.hi <= fits.hi ? x : 0;
}

/* --- x / s ----------------------------------------------------------------------------------- */

/* Made of constants by a few views and products. */
static bool is_constant(const Graph *g, Value v, int depth) {
    const Node *n = graph_node(g, v);
    if (n->op == OP_const || !depth) return n->op == OP_const;
    const bool view = n->op == OP_reshape || n->op == OP_expand || n->op == OP_permute;
    if (!view && n->op != OP_mul && n->op != OP_div) return false;
    for (uint32_t i = 0; i < n->nin; i++)
        if (!is_constant(g, n->in[i], depth - 1)) return false;
    return true;
}

/* Constant c / s, divided before it is repeated. */
static Value constant_quotient(Graph *g, Value c, double s) {
    const Node n = *graph_node(g, c);
    if (n.op != OP_reshape && n.op != OP_expand && n.op != OP_permute)
        return build_binary_f(g, OP_div, c, s);
    Value in = constant_quotient(g, n.in[0], s);
    return build_like(g, &n, &in, 1);
}

typedef struct Division {
    Rewrite *r;
    double by;
    int terms; /* left */
} Division;

static Value divided(Division *d, Value v);

/* Both operands of a node of the old graph divided, as the same node. */
static Value divided_both(Division *d, const Node *n, uint32_t first) {
    Value in[3] = {d->r->map[n->in[0]]};
    for (uint32_t i = first; i < n->nin; i++) {
        in[i] = divided(d, n->in[i]);
        if (!in[i]) return 0;
    }
    return build_like(d->r->to, n, in, n->nin);
}

/* x c, x an integer as it came from memory or a contraction. */
static Value divided_product(Division *d, const Node *n) {
    Graph *g = d->r->to;
    for (int i = 0; i < 2; i++) {
        const Value c = d->r->map[n->in[i]], x = d->r->map[n->in[1 - i]];
        const Range r = range_of(g, x);
        if (is_constant(g, c, 6) && r.whole && is_finite(r))
            return build_binary(g, OP_mul, x, constant_quotient(g, c, d->by));
    }
    return 0;
}

/* v / by, v of the old graph, in the new one; 0 where it is no sum of integers times constants. */
static Value divided(Division *d, Value v) {
    const Node *n = graph_node(d->r->from, v);
    if (d->terms-- <= 0) return 0;
    if (is_constant(d->r->to, d->r->map[v], 6))
        return constant_quotient(d->r->to, d->r->map[v], d->by);
    if (n->op == OP_mul) return divided_product(d, n);
    if (d->r->uses[v] > 1) return 0; /* it would be there twice */
    switch ((Op)n->op) {
    case OP_add:
    case OP_sub:
    case OP_min:
    case OP_max: return divided_both(d, n, 0);
    case OP_select: return divided_both(d, n, 1);
    case OP_reshape:
    case OP_permute:
    case OP_window: /* as pools have them */
    case OP_pad:
    case OP_reduce_max: return divided_both(d, n, 0);
    default: return 0;
    }
}

/* What is rounded to integers of few bits. */
static Value requantised(Rewrite *r, Value v) {
    const Value q = graph_node(r->from, v)->in[0];
    const Node *n = graph_node(r->from, q);
    double s;
    if (n->op != OP_div || n->type.dtype != DT_f32 || r->uses[q] > 1) return 0;
    if (!((const Facts *)r->facts)->quantised[v]) return 0;
    if (!is_number(r->to, r->map[n->in[1]], &s) || s < 0x1p-64 || s > 0x1p64) return 0;
    Division d = {r, s, MAX_TERMS};
    Value x = divided(&d, n->in[0]);
    return x ? build_unary(r->to, OP_round, x) : 0;
}

/* --- Integers that no kernel stores ------------------------------------------------------------
 *
 * What is requantised is computed behind the latest contraction among its operands
 * (fusion/analyse), and what was quantised there on the way need not be an integer in between.
 * Other operands come from memory, where they had better be integers. */

typedef struct Latest {
    const Graph *g;
    const uint32_t *uses;
    Value contraction, cast; /* so far; f32 from the integer behind it */
    int visits;
} Latest;

static Value contraction_of(const Graph *g, Value v) {
    for (int i = 0; i < MAX_VISITS; i++) {
        const Node *n = graph_node(g, v);
        if (n->op == OP_dot || n->op == OP_conv) return v;
        Value in = 0;
        for (uint32_t j = 0; j < n->nin; j++) {
            const Op op = (Op)graph_node(g, n->in[j])->op;
            if (op != OP_expand && op != OP_const && n->in[j] > in) in = n->in[j];
        }
        if (!in) return 0;
        v = in;
    }
    return 0;
}

static void look_for_latest(Latest *l, Value v) {
    const Node *n = graph_node(l->g, v);
    if (l->uses[v] != 1 || l->visits-- <= 0) return;
    if (n->op == OP_cast && n->type.dtype == DT_f32 && l->uses[n->in[0]] == 1 &&
        graph_node(l->g, n->in[0])->op == OP_cast) {
        const Value c = contraction_of(l->g, n->in[0]);
        if (c > l->contraction) l->contraction = c, l->cast = v;
        return;
    }
    switch ((Op)n->op) {
    case OP_add:
    case OP_sub:
    case OP_mul:
    case OP_div:
    case OP_min:
    case OP_max:
    case OP_reshape:
    case OP_permute:
        for (uint32_t i = 0; i < n->nin; i++) look_for_latest(l, n->in[i]);
        return;
    default: return;
    }
}

static void find_casts_to_drop(const Graph *g, const uint32_t *uses, bool *drop) {
    for (Value v = 1; v < g->nodes.n; v++) {
        if (graph_node(g, v)->op != OP_round) continue;
        Latest l = {.g = g, .uses = uses, .visits = MAX_VISITS};
        look_for_latest(&l, graph_node(g, v)->in[0]);
        if (l.cast) drop[l.cast] = true;
    }
}

static void *facts(const Graph *g, void *ctx) {
    Facts *f = ARENA_NEW(g->arena, Facts);
    const uint32_t *uses = graph_uses(g);
    f->drop = ARENA_ARRAY(g->own, bool, g->nodes.n);
    f->quantised = ARENA_ARRAY(g->own, bool, g->nodes.n);
    find_casts_to_drop(g, uses, f->drop);
    find_quantised(g, uses, f->quantised);
    return (void)ctx, f;
}

/* --- The pass -------------------------------------------------------------------------------- */

static bool may_be_simpler(Op op) {
    return op == OP_add || op == OP_sub || op == OP_min || op == OP_select || op == OP_cast;
}

/* Node v of the new graph; 0: nothing is simpler. */
static Value simpler(Graph *g, Value v) {
    switch ((Op)graph_node(g, v)->op) {
    case OP_add:
    case OP_sub: return sum_of_shifts(g, v);
    case OP_min: return clamp_below_shift(g, v);
    case OP_select: return number_for_sure(g, v);
    case OP_cast: return as_it_was(g, v);
    default: return 0; /* folded */
    }
}

static Value requantise(Rewrite *r, Value v) {
    const Node *n = graph_node(r->from, v);
    const Facts *f = r->facts;
    if (n->op == OP_round) return requantised(r, v);
    if (n->type.dtype != DT_f32 || !may_be_simpler((Op)n->op)) return 0;
    if (n->op == OP_cast && !f->drop[v]) return 0;
    const Value x = rewrite_copy(r, v), y = simpler(r->to, x);
    return y ? y : x;
}

Graph *pass_requantise(Graph *g) {
    return rewrite_graph(g, requantise, facts, NULL);
}
