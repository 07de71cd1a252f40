#include "graph/grad/update/blockwise.h"
#include "graph/build/build.h"

#include <float.h>
#include <math.h>

enum { DECADES = 7, CODES = 256, ZERO = 127 /* the code of 0 where there are signs */ };

/* One decade [scale / 10, scale]: in `parts` equal parts. `before`: codes above 0 of those below */
typedef struct Decade {
    double scale, parts, before;
} Decade;

static Decade decade(int i, bool signs) {
    const double first = signs ? 1 : 2, parts = ldexp(first, i);
    return (Decade){pow(10, i - DECADES + 1), parts, parts - first};
}

/* The middle of part k. */
static double middle(const Decade *d, double k) {
    return d->scale * (0.1 + 0.9 * (k + 0.5) / d->parts);
}

Expr blockwise_blocks(ExprPool *p, const Type *t) {
    return expr_div(p, expr_addi(p, type_numel(p, t), BLOCKWISE_BLOCK - 1),
                    expr_const(p, BLOCKWISE_BLOCK));
}

Value blockwise_rows(Graph *g, Value x) {
    if (!x) return 0;
    ExprPool *p = g->exprs;
    const Type t = *graph_type(g, x);
    const Expr blocks = blockwise_blocks(p, &t), n = type_numel(p, &t);
    const Expr all = expr_muli(p, blocks, BLOCKWISE_BLOCK), none = expr_const(p, 0);
    const Expr rest = expr_sub(p, all, n);
    const Expr dim[] = {blocks, expr_const(p, BLOCKWISE_BLOCK)};
    Value flat = build_reshape(g, x, 1, &n);
    if (rest != none) flat = build_pad(g, flat, build_scalar_f(g, t.dtype, 0), &none, &rest, NULL);
    return build_reshape(g, flat, 2, dim);
}

Value blockwise_unrow(Graph *g, Value rows, const Type *t) {
    ExprPool *p = g->exprs;
    const Expr all = expr_muli(p, blockwise_blocks(p, t), BLOCKWISE_BLOCK), n = type_numel(p, t);
    Value flat = build_reshape(g, rows, 1, &all);
    if (all != n) flat = build_slice_axis(g, flat, 0, expr_const(p, 0), n, 1);
    return build_reshape(g, flat, t->rank, t->dim);
}

/* --- From codes ------------------------------------------------------------------------------- */

static Value table(Graph *g, bool signs) {
    float *v = ARENA_ARRAY(g->arena, float, CODES);
    const int zero = signs ? ZERO : 0;
    for (int i = 0; i < DECADES; i++) {
        const Decade d = decade(i, signs);
        for (int k = 0; k < (int)d.parts; k++) {
            const int at = (int)d.before + k + 1;
            v[zero + at] = (float)middle(&d, k);
            if (signs) v[zero - at] = -v[zero + at];
        }
    }
    v[CODES - 1] = 1;
    const Type t = {.dtype = DT_f32, .rank = 1, .dim = {expr_const(g->exprs, CODES)}};
    return build_const(g, t, (Constant){.data = v, .bytes = CODES * sizeof *v, .name = ""});
}

Value blockwise_unpack(Graph *g, Blockwise x, bool signs) {
    static const int8_t from_index = -1;
    const Value codes = build_cast(g, x.code, DT_i32);
    if (!codes) return 0;
    const Type t = *graph_type(g, codes);
    Value unit = build_gather(g, table(g, signs), &from_index, &codes, 1, t.rank, t.dim);
    return build_binary(g, OP_mul, unit, build_unsqueeze(g, x.scale, 1));
}

/* --- To codes --------------------------------------------------------------------------------- */

static Value above(Graph *g, Value x, double bound, double then, Value otherwise) {
    Value bounded = build_binary(g, OP_lt, build_scalar_f(g, DT_f32, bound), x);
    return build_select(g, bounded, build_scalar_f(g, DT_f32, then), otherwise);
}

/* How many codes lie between 0 and the one nearest to a magnitude, that one included. In a decade
 * that is floor(slope x + start), held within its codes. */
static Value nearest(Graph *g, Value x, bool signs) {
    Value slope = 0, start = 0, least = 0, most = 0;
    Decade below = decade(0, signs);
    const double least_half = middle(&below, 0) / 2;
    for (int i = 0; i < DECADES; i++) {
        const Decade d = decade(i, signs);
        const double a = d.parts / (0.9 * d.scale), b = d.before + 1 - d.parts / 9;
        const double lo = d.before + 1, hi = d.before + d.parts;
        const double bound = (middle(&below, below.parts - 1) + middle(&d, 0)) / 2;
        slope = i ? above(g, x, bound, a, slope) : build_scalar_f(g, DT_f32, a);
        start = i ? above(g, x, bound, b, start) : build_scalar_f(g, DT_f32, b);
        least = i ? above(g, x, bound, lo, least) : build_scalar_f(g, DT_f32, lo);
        most = i ? above(g, x, bound, hi, most) : build_scalar_f(g, DT_f32, hi);
        below = d;
    }
    Value at = build_binary(g, OP_add, build_binary(g, OP_mul, x, slope), start);
    at = build_binary(g, OP_max, build_unary(g, OP_floor, at), least);
    at = build_binary(g, OP_min, at, most);
    at = above(g, x, (middle(&below, below.parts - 1) + 1) / 2, below.before + below.parts + 1, at);
    Value some = build_binary(g, OP_lt, build_scalar_f(g, DT_f32, least_half), x);
    return build_select(g, some, at, build_scalar_f(g, DT_f32, 0));
}

Blockwise blockwise_pack(Graph *g, Value rows, bool signs) {
    Value size = build_unary(g, OP_abs, rows);
    Value scale = build_reduce(g, OP_reduce_max, size, 1u << 1, false);
    Value divisor = build_unsqueeze(g, build_binary_f(g, OP_max, scale, FLT_MIN), 1);
    Value at = nearest(g, build_binary(g, OP_div, size, divisor), signs);
    if (signs) { /* below 0 there is no code for -1, and 0 is not below 0 */
        Value low = build_binary(g, OP_lt, rows, build_scalar_f(g, DT_f32, 0));
        Value down = build_binary_f(g, OP_min, build_binary_f(g, OP_max, at, 1), ZERO);
        Value zero = build_scalar_f(g, DT_f32, ZERO);
        at = build_select(g, low, build_binary(g, OP_sub, zero, down),
                          build_binary(g, OP_add, zero, at));
    }
    return (Blockwise){build_cast(g, at, DT_u8), scale};
}
