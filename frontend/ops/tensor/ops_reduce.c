/* Reductions over axes. */
#include "frontend/import/axes.h"
#include "frontend/import/formula.h"
#include <string.h>

typedef enum Before { PRE_NONE, PRE_ABS, PRE_SQUARE, PRE_EXP } Before;
typedef enum After { POST_NONE, POST_SQRT, POST_LOG, POST_MEAN } After;

static const struct {
    const char *name;
    Op op;
    Before before;
    After after;
} kinds[] = {
    {"ReduceSum", OP_reduce_sum, PRE_NONE, POST_NONE},
    {"ReduceMean", OP_reduce_sum, PRE_NONE, POST_MEAN},
    {"ReduceMax", OP_reduce_max, PRE_NONE, POST_NONE},
    {"ReduceMin", OP_reduce_min, PRE_NONE, POST_NONE},
    {"ReduceProd", OP_reduce_prod, PRE_NONE, POST_NONE},
    {"ReduceL1", OP_reduce_sum, PRE_ABS, POST_NONE},
    {"ReduceL2", OP_reduce_sum, PRE_SQUARE, POST_SQRT},
    {"ReduceLogSum", OP_reduce_sum, PRE_NONE, POST_LOG},
    {"ReduceLogSumExp", OP_reduce_sum, PRE_EXP, POST_LOG},
    {"ReduceSumSquare", OP_reduce_sum, PRE_SQUARE, POST_NONE},
};

static Value reduce(Graph *g, Op op, Value x, uint32_t axes, bool keep) {
    return axes ? build_reduce(g, op, x, axes, keep) : x;
}

/* max + log(sum(exp(x - max))), with an infinite maximum left out of the subtraction. */
static Value log_sum_exp(Graph *g, Value x, uint32_t axes, bool keep) {
    if (!x) return 0;
    const DType t = graph_type(g, x)->dtype;
    Value top = reduce(g, OP_reduce_max, x, axes, true);
    top = build_select(g, build_unary(g, OP_isinf, top), build_scalar_f(g, t, 0), top);
    Value e = build_unary(g, OP_exp, build_binary(g, OP_sub, x, top));
    Value v = build_unary(g, OP_log, reduce(g, OP_reduce_sum, e, axes, keep));
    if (!keep && axes && v)
        top = build_reshape(g, top, graph_type(g, v)->rank, graph_type(g, v)->dim);
    return build_binary(g, OP_add, v, top);
}

static uint32_t kind_of(const Lower *l) {
    uint32_t k = 0;
    while (strcmp(kinds[k].name, lower_op_name(l))) k++;
    return k;
}

/* Roots and logarithms of integers are those of the same numbers as f64, cut off. */
static bool leaves_integers(uint32_t k, DType t) {
    return dtype_is_int(t) && (kinds[k].after == POST_SQRT || kinds[k].after == POST_LOG);
}

static Value reduce_axes(Lower *l, const Axes *axes) {
    Graph *g = lower_graph(l);
    const uint32_t k = kind_of(l);
    const bool keep = lower_i(l, "keepdims") != 0, all = !lower_i(l, "noop_with_empty_axes");
    const uint32_t mask = axes->given || !all ? axes->mask : (1u << lower_type(l, 0)->rank) - 1;
    const DType t = lower_type(l, 0)->dtype;
    Value x = lower_in(l, 0), v;
    if (leaves_integers(k, t)) x = build_cast(g, x, DT_f64);
    if (kinds[k].after == POST_SQRT) x = v_widen(g, x); /* the root may fit where squares do not */
    if (kinds[k].before == PRE_EXP) return build_cast(g, log_sum_exp(g, x, mask, keep), t);
    if (kinds[k].before == PRE_ABS) x = build_unary(g, OP_abs, x);
    if (kinds[k].before == PRE_SQUARE) x = build_binary(g, OP_mul, x, x);
    v = kinds[k].after == POST_MEAN && mask ? build_mean(g, x, mask, keep)
                                            : reduce(g, kinds[k].op, x, mask, keep);
    if (kinds[k].after == POST_SQRT) v = build_unary(g, OP_sqrt, v);
    if (kinds[k].after == POST_LOG) v = build_unary(g, OP_log, v);
    return build_cast(g, v, t);
}

/* Axes became an input with opset 13 for ReduceSum and 18 for the others. */
static bool lower_reduce(Lower *l) {
    const int moved = !strcmp(lower_op_name(l), "ReduceSum") ? 13 : 18;
    return axes_lower(l, 1, lower_opset(l) < moved ? "axes" : NULL,
                      lower_i(l, "keepdims") ? AXES_KEEP : AXES_DROP, reduce_axes);
}

static bool lower_arg(Lower *l) {
    const int axis = lower_axis(l, lower_i(l, "axis"), lower_type(l, 0)->rank);
    const Op op = !strcmp(lower_op_name(l), "ArgMax") ? OP_argmax : OP_argmin;
    if (axis < 0) return false;
    const bool last = lower_opset(l) >= 12 && lower_i(l, "select_last_index") != 0;
    lower_out(l, 0,
              build_arg_reduce(lower_graph(l), op, lower_in(l, 0), axis, last,
                               lower_i(l, "keepdims") != 0));
    return true;
}

static const char *const axes_attrs[] = {"axes:I", "keepdims:i=1", "noop_with_empty_axes:i=0",
                                         NULL};
static const char *const reduce_attrs[] = {"keepdims:i=1", "noop_with_empty_axes:i=0", NULL};
static const char *const arg_attrs[] = {"axis:i=0", "keepdims:i=1", NULL};
static const char *const arg12_attrs[] = {"axis:i=0", "keepdims:i=1", "select_last_index:i=0",
                                          NULL};
#define REDUCE(name)                                                                               \
    {"", name, 1, 17, 1, 1, 1, 1, axes_attrs, lower_reduce}, {                                     \
        "", name, 18, 0, 1, 2, 1, 1, reduce_attrs, lower_reduce                                    \
    }

const OnnxOp ops_reduce[] = {
    {"", "ReduceSum", 1, 12, 1, 1, 1, 1, axes_attrs, lower_reduce},
    {"", "ReduceSum", 13, 0, 1, 2, 1, 1, reduce_attrs, lower_reduce},
    REDUCE("ReduceMean"),
    REDUCE("ReduceMax"),
    REDUCE("ReduceMin"),
    REDUCE("ReduceProd"),
    REDUCE("ReduceL1"),
    REDUCE("ReduceL2"),
    REDUCE("ReduceLogSum"),
    REDUCE("ReduceLogSumExp"),
    REDUCE("ReduceSumSquare"),
    {"", "ArgMax", 1, 11, 1, 1, 1, 1, arg_attrs, lower_arg},
    {"", "ArgMax", 12, 0, 1, 1, 1, 1, arg12_attrs, lower_arg},
    {"", "ArgMin", 1, 11, 1, 1, 1, 1, arg_attrs, lower_arg},
    {"", "ArgMin", 12, 0, 1, 1, 1, 1, arg12_attrs, lower_arg},
    {0},
};
