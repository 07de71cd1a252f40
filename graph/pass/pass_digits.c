/* digits: a large product of f32 matrices becomes one of f16 numbers, two for every f32, which
 * matrix units multiply:
 *
 *   x s = high + low      s: the power of two that brings the largest of x's row to [2^14, 2^15)
 *   a b = (high low + low high + high high) / (s of a's row, s of b's column)
 *
 * Both together keep at least 22 bits of all that is above 2^-18 of its row's largest, and 2^-40 of
 * the largest of what is below; low low would be less than that. A row with an infinity gives NaN.
 *
 * Every digit is stored once, and read as the parts that it has in the sum, by views:
 *
 *   a [.., M, K] -> [.., M, 2, K] -> [.., M, 3 K]
 *   b [.., K, N] -> [.., N, 2, K] or [.., 2, K, N] -> [.., 3 K, N]
 *
 * The parts are outside of k in that sum, so that a kernel can take those of one k together. Small
 * ones come first.
 *
 * high_digits leaves it at high high: 11 bits of what is above 2^-29 of its row's largest, as tf32
 * has them, at the speed of f16.
 *
 * What kernels of attention and its gradient compute inside stays f32.
 *
 * Needs: to be the last pass, for targets that ask (Machine.digits). Keeps: meaning, within the
 * rounding of f32. Breaks: nothing; leaves dead nodes. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

enum { DIGITS = 2, PARTS = 3 };
/* Sizes below which other kernels are as fast, or as near to what memory allows. */
enum { ROWS_LEAST = 65, COLS_LEAST = 32, SUM_LEAST = 32, PRODUCT_LEAST = 1 << 26 };
enum { ALIGN = 8 }; /* f16 elements in 16 bytes, which rows in memory are multiples of */

/* --- Digits ----------------------------------------------------------------------------------- */

enum { ONE = 1 << 23, EXPONENT = 0xff * ONE }; /* of the bits of an f32: 2^1, and all of them */
enum { BIAS = 127, TOP = 14, LEAST = TOP + 1 };

typedef struct Scaled {
    Value x, back; /* by a power of two for each row; the inverse of that */
} Scaled;

/* 2^(TOP - e) and its inverse for rows along axis `at` whose largest has exponent e; rows of zeros
 * and the like count as if e was the least for which both are normal numbers. */
static Scaled scale_rows(Graph *g, Value x, int at) {
    Value most = build_reduce(g, OP_reduce_max, build_unary(g, OP_abs, x), 1u << at, true);
    Value e = build_binary_f(g, OP_and, build_bitcast(g, most, DT_i32), EXPONENT);
    e = build_binary_f(g, OP_max, e, (double)LEAST * ONE);
    Value above = build_binary_f(g, OP_sub, e, (double)LEAST * ONE);
    Value highest = build_scalar_i(g, DT_i32, (int64_t)(2 * BIAS + TOP - LEAST) * ONE);
    Value up = build_bitcast(g, build_binary(g, OP_sub, highest, above), DT_f32);
    Value back = build_binary_f(g, OP_sub, e, (double)TOP * ONE);
    return (Scaled){build_binary(g, OP_mul, x, up), build_bitcast(g, back, DT_f32)};
}

/* High and low, along a new axis `at`. */
static Value digits_of(Graph *g, Value x, int at) {
    Value high = build_cast(g, x, DT_f16);
    Value rest = build_binary(g, OP_sub, x, build_cast(g, high, DT_f32));
    Value both[DIGITS] = {build_unsqueeze(g, high, at),
                          build_unsqueeze(g, build_cast(g, rest, DT_f16), at)};
    return build_concat(g, both, DIGITS, at);
}

/* Digits along axis `at` as the parts of a sum, joined with the axis behind: of parts 2, 1, 0, each
 * digit in turns, or the same one twice. */
static Value parts_of(Graph *g, Value x, int at, bool in_turns) {
    ExprPool *p = g->exprs;
    const Type t = *graph_type(g, x);
    Expr dim[GRAPH_MAX_RANK];
    x = build_unsqueeze(g, x, in_turns ? at : at + 1);
    Type wide = *graph_type(g, x);
    wide.dim[in_turns ? at : at + 1] = expr_const(p, DIGITS);
    x = build_expand(g, x, wide.rank, wide.dim);
    for (int i = 0; i < t.rank; i++) dim[i] = t.dim[i];
    dim[at] = expr_const(p, DIGITS * DIGITS);
    x = build_reshape(g, x, t.rank, dim);
    x = build_slice_axis(g, x, at, expr_const(p, PARTS - 1), expr_const(p, PARTS), -1);
    dim[at] = expr_muli(p, t.dim[at + 1], PARTS);
    for (int i = at + 1; i + 1 < t.rank; i++) dim[i] = t.dim[i + 1];
    return build_reshape(g, x, (uint8_t)(t.rank - 1), dim);
}

/* --- Operands --------------------------------------------------------------------------------- */

typedef struct Facts {
    /* By value of the old graph. */
    bool *constant;
    bool *weighs; /* exponentials, and what maps and views make of them */
    bool *inside; /* of an attention or its gradient, as far as maps and views go: never stored */
    bool one;     /* the high digit alone */
} Facts;

static Value swap_last(Graph *g, Value x) {
    uint8_t perm[GRAPH_MAX_RANK], rank = graph_type(g, x)->rank;
    for (uint8_t i = 0; i < rank; i++) perm[i] = i;
    perm[rank - 2] = (uint8_t)(rank - 1);
    perm[rank - 1] = (uint8_t)(rank - 2);
    return build_permute(g, x, perm);
}

/* Zeros behind axis `at`, up to what rows in memory have to be. */
static Value pad_rows(Graph *g, Value x, int at) {
    ExprPool *p = g->exprs;
    const Type *t = graph_type(g, x);
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK];
    int64_t k = expr_value(p, t->dim[at]), rest = (ALIGN - k % ALIGN) % ALIGN;
    if (!rest) return x;
    for (int i = 0; i < t->rank; i++) lo[i] = hi[i] = expr_const(p, 0);
    hi[at] = expr_const(p, rest);
    return build_pad(g, x, build_scalar_f(g, DT_f32, 0), lo, hi, NULL);
}

static bool lies_across(const Graph *g, Value v) {
    const Node *n = graph_node(g, v);
    uint8_t last = (uint8_t)(n->type.rank - 1);
    return n->op == OP_permute && n->attr.perm.axis[last] != last;
}

/* b [.., K, N] lies in memory by columns, or may as well: then its digits do, too. */
static bool by_columns(const Rewrite *r, Value v) {
    const Facts *f = r->facts;
    Value b = graph_node(r->from, v)->in[1];
    const Type *t = graph_type(r->from, b);
    return f->constant[b] || lies_across(r->from, b) ||
           expr_divisor(r->from->exprs, t->dim[t->rank - 1]) % ALIGN != 0;
}

/* What is multiplied of x, which is summed along axis k. */
static Value factor_of(const Facts *f, Graph *g, Value x, int k, bool left) {
    return f->one ? build_cast(g, x, DT_f16) : parts_of(g, digits_of(g, x, k), k, left);
}

static Value left_factor(const Facts *f, Graph *g, Value a, Value *back) {
    int k = graph_type(g, a)->rank - 1;
    Scaled s = scale_rows(g, pad_rows(g, a, k), k);
    *back = s.back;
    return factor_of(f, g, s.x, k, true);
}

static Value right_factor(const Facts *f, Graph *g, Value b, bool columns, Value *back) {
    int k = graph_type(g, b)->rank - 2;
    Scaled s = scale_rows(g, pad_rows(g, b, k), k);
    *back = s.back;
    if (!columns) return factor_of(f, g, s.x, k, false);
    return swap_last(g, factor_of(f, g, swap_last(g, s.x), k + 1, false));
}

/* --- Products --------------------------------------------------------------------------------- */

static bool at_least(const Graph *g, Expr size, int64_t least) {
    return expr_hint(g->exprs, size) >= least;
}

static bool is_large(const Graph *g, const Node *n) {
    const Type *a = graph_type(g, n->in[0]);
    Expr m = n->type.dim[n->type.rank - 2], cols = n->type.dim[n->type.rank - 1];
    Expr k = a->dim[a->rank - 1];
    int64_t known;
    if (!expr_is_const(g->exprs, k, &known) || a->rank + 2 > GRAPH_MAX_RANK) return false;
    if (!at_least(g, m, ROWS_LEAST) || !at_least(g, cols, COLS_LEAST) || known < SUM_LEAST)
        return false;
    double all = (double)expr_hint(g->exprs, type_numel(g->exprs, &n->type)) * (double)known;
    return all >= PRODUCT_LEAST;
}

static bool is_made(const Node *n) {
    return op_info[n->op].cls == OPC_MAP || op_info[n->op].cls == OPC_VIEW;
}

/* Kernels of attention compute contractions of scores themselves, those of its gradient the ones
 * that weights are made of, too; they multiply f32. */
static void find_inside(const Graph *g, Facts *f) {
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        f->weighs[v] = n->op == OP_exp;
        for (uint32_t i = 0; is_made(n) && i < n->nin; i++) f->weighs[v] |= f->weighs[n->in[i]];
    }
    for (Value v = g->nodes.n; v-- > 1;) {
        const Node *n = graph_node(g, v);
        bool scores = n->op == OP_attention || n->op == OP_logsumexp;
        for (uint32_t i = 0; i < n->nin; i++) {
            bool weights = n->op == OP_dot && f->weighs[n->in[i]];
            f->inside[v] |= weights;
            f->inside[n->in[i]] |= weights || (scores && !i) || (is_made(n) && f->inside[v]);
        }
    }
}

static Value split_product(Rewrite *r, Value v) {
    const Facts *f = r->facts;
    const Node *n = graph_node(r->from, v);
    Graph *g = r->to;
    if (n->op != OP_dot || n->type.dtype != DT_f32 || f->constant[v] || f->inside[v]) return 0;
    if (graph_type(r->from, n->in[0])->dtype != DT_f32 || !is_large(r->from, n)) return 0;
    Value back_a, back_b;
    Value a = left_factor(f, g, rewrite_in(r, v, 0), &back_a);
    Value b = right_factor(f, g, rewrite_in(r, v, 1), by_columns(r, v), &back_b);
    Value y = build_binary(g, OP_mul, build_dot(g, a, b, DT_f32), back_a);
    return build_binary(g, OP_mul, y, back_b);
}

static void *make_facts(const Graph *g, void *ctx) {
    Facts *f = ARENA_NEW(g->arena, Facts);
    f->constant = ARENA_ARRAY(g->own, bool, g->nodes.n);
    f->weighs = ARENA_ARRAY(g->own, bool, g->nodes.n);
    f->inside = ARENA_ARRAY(g->own, bool, g->nodes.n);
    find_inside(g, f);
    graph_mark_constant(g, f->constant);
    f->one = *(const bool *)ctx;
    return f;
}

Graph *pass_digits(Graph *g) {
    bool one = false;
    return rewrite_graph(g, split_product, make_facts, &one);
}

Graph *pass_high_digits(Graph *g) {
    bool one = true;
    return rewrite_graph(g, split_product, make_facts, &one);
}
