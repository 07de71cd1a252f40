/* Short forms for writing lowerings as formulas. Broadcasting follows NumPy; a number takes the
 * element type of the other operand. Like the builders they give 0 for a 0 operand. */
#ifndef FRONTEND_FORMULA_H
#define FRONTEND_FORMULA_H

#include "frontend/import/onnx_op.h"

static inline Value v_add(Graph *g, Value x, Value y) {
    return build_binary(g, OP_add, x, y);
}
static inline Value v_sub(Graph *g, Value x, Value y) {
    return build_binary(g, OP_sub, x, y);
}
static inline Value v_mul(Graph *g, Value x, Value y) {
    return build_binary(g, OP_mul, x, y);
}
static inline Value v_div(Graph *g, Value x, Value y) {
    return build_binary(g, OP_div, x, y);
}
static inline Value v_min(Graph *g, Value x, Value y) {
    return build_binary(g, OP_min, x, y);
}
static inline Value v_max(Graph *g, Value x, Value y) {
    return build_binary(g, OP_max, x, y);
}
static inline Value v_and(Graph *g, Value x, Value y) {
    return build_binary(g, OP_and, x, y);
}
static inline Value v_or(Graph *g, Value x, Value y) {
    return build_binary(g, OP_or, x, y);
}
static inline Value v_lt(Graph *g, Value x, Value y) {
    return build_binary(g, OP_lt, x, y);
}
static inline Value v_le(Graph *g, Value x, Value y) {
    return build_binary(g, OP_le, x, y);
}
static inline Value v_eq(Graph *g, Value x, Value y) {
    return build_binary(g, OP_eq, x, y);
}
static inline Value v_addf(Graph *g, Value x, double c) {
    return build_binary_f(g, OP_add, x, c);
}
static inline Value v_mulf(Graph *g, Value x, double c) {
    return build_binary_f(g, OP_mul, x, c);
}
static inline Value v_divf(Graph *g, Value x, double c) {
    return build_binary_f(g, OP_div, x, c);
}
static inline Value v_minf(Graph *g, Value x, double c) {
    return build_binary_f(g, OP_min, x, c);
}
static inline Value v_maxf(Graph *g, Value x, double c) {
    return build_binary_f(g, OP_max, x, c);
}
static inline Value v_powf(Graph *g, Value x, double c) {
    return build_binary_f(g, OP_pow, x, c);
}
static inline Value v_eqf(Graph *g, Value x, double c) {
    return build_binary_f(g, OP_eq, x, c);
}
static inline Value v_ltf(Graph *g, Value x, double c) {
    return build_binary_f(g, OP_lt, x, c);
}
static inline Value v_lef(Graph *g, Value x, double c) {
    return build_binary_f(g, OP_le, x, c);
}
static inline Value v_not(Graph *g, Value x) {
    return build_unary(g, OP_not, x);
}
static inline Value v_neg(Graph *g, Value x) {
    return build_unary(g, OP_neg, x);
}
static inline Value v_abs(Graph *g, Value x) {
    return build_unary(g, OP_abs, x);
}
static inline Value v_exp(Graph *g, Value x) {
    return build_unary(g, OP_exp, x);
}
static inline Value v_log(Graph *g, Value x) {
    return build_unary(g, OP_log, x);
}
static inline Value v_sqrt(Graph *g, Value x) {
    return build_unary(g, OP_sqrt, x);
}
static inline Value v_floor(Graph *g, Value x) {
    return build_unary(g, OP_floor, x);
}
static inline Value v_tanh(Graph *g, Value x) {
    return build_unary(g, OP_tanh, x);
}
static inline Value v_sigmoid(Graph *g, Value x) {
    return build_unary(g, OP_sigmoid, x);
}

static inline DType v_dtype(const Graph *g, Value x) {
    return graph_type(g, x)->dtype;
}
static inline int v_rank(const Graph *g, Value x) {
    return graph_type(g, x)->rank;
}
static inline Expr v_dim(const Graph *g, Value x, int axis) {
    return graph_type(g, x)->dim[axis];
}
/* The size of an axis when it is a number. */
bool v_dim_const(const Graph *g, Value x, int axis, int64_t *n);
static inline Expr v_int(Graph *g, int64_t c) {
    return expr_const(g->exprs, c);
}

/* A condition on sizes as a bool, rank 0. */
Value v_cond(Graph *g, Expr e);
/* Numbers as a constant, rank 1. */
Value v_floats(Graph *g, const float *v, uint32_t n);
/* A symbol for the iterations of one loop, and its number. */
Expr v_iteration(Graph *g, const char *name, uint32_t *number);

/* Number in the element type of `like`, rank 0. */
Value v_const(Graph *g, Value like, double c);
/* The smallest value of a type: minus infinity for floats. */
Value v_lowest(Graph *g, DType t);
Value v_select_f(Graph *g, Value cond, Value x, double otherwise);
Value v_square(Graph *g, Value x);
Value v_clamp(Graph *g, Value x, double lo, double hi);
Value v_rsqrt(Graph *g, Value x); /* 1/sqrt(x) */

/* f16 and bf16 become f32, in which norms, softmax and losses are computed; others stay. */
Value v_widen(Graph *g, Value x);
DType v_wide_type(DType t);
static inline Value v_cast_like(Graph *g, Value x, Value like) {
    return like ? build_cast(g, x, v_dtype(g, like)) : 0;
}

/* 0, 1, ... n-1 */
Value v_iota(Graph *g, DType t, Expr n);
Value v_zeros(Graph *g, DType t, int rank, const Expr *dim);
/* A rank-1 value laid along one axis of a rank-`rank` tensor: [1.., n, ..1]. */
Value v_along(Graph *g, Value x, int rank, int axis);
/* x with `n` axes of size 1 appended. */
Value v_append_axes(Graph *g, Value x, int n);
Value v_reshape_like(Graph *g, Value x, Value like);

/* Position i of an axis, which is dropped. */
Value v_at(Graph *g, Value x, int axis, Expr i);
/* A position on an axis: negative ones count from its end. */
Value v_wrap(Graph *g, Value index, Expr size);
/* Axis `from` becomes axis `to`; the others keep their order. */
Value v_move_axis(Graph *g, Value x, int from, int to);
/* All elements in one axis. */
Value v_flat(Graph *g, Value x);

/* Axis 1 to the end and back: the layout that convolutions and pools work in. */
Value v_channels_last(Graph *g, Value x);
Value v_channels_first(Graph *g, Value x);
/* Swaps the last two axes. */
Value v_transpose(Graph *g, Value x);

/* Bits axis .. rank-1, for build_reduce. */
static inline uint32_t v_axes_from(int axis, int rank) {
    return (1u << rank) - (1u << axis);
}

/* exp(x - max) / sum over a set of axes: the one spelling of softmax that fusion has to know; and
 * its logarithm, x - max - log(sum). */
Value v_softmax(Graph *g, Value x, uint32_t axes);
Value v_log_softmax(Graph *g, Value x, uint32_t axes);

#endif
