/* Sources, element-wise ops and views. */
#include "graph/eval/eval_impl.h"

#include <string.h>

/* ---- Sources ---- */

static bool eval_const(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    (void)e;
    (void)g;
    (void)in;
    out->dtype = n->type.dtype;
    out->data = n->attr.constant.data;
    return true;
}

static bool eval_exprs(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    (void)g;
    (void)in;
    if (!eval_alloc(e, out)) return false;
    for (uint32_t i = 0; i < n->attr.exprs.n; i++)
        dtype_store_i64(out->dtype, out->to, i, expr_eval(e->exprs, n->attr.exprs.v[i], e->sym));
    return true;
}

/* The coordinate along one axis. */
static bool eval_iota(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    (void)g;
    (void)in;
    if (!eval_alloc(e, out)) return false;
    int axis = n->attr.axis.axis;
    int64_t count = eval_numel(out), inner = out->stride[axis], size = out->dim[axis];
    bool is_float = dtype_is_float(out->dtype);
    for (int64_t i = 0; i < count; i++) {
        int64_t v = i / inner % size;
        EvalScalar s = is_float ? (EvalScalar){.f = (double)v} : (EvalScalar){.i = v};
        eval_store(out, i, 1, 1, &s);
    }
    return true;
}

static bool eval_random(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    (void)g;
    if (!eval_alloc(e, out)) return false;
    int64_t count = eval_numel(out);
    uint64_t seed = n->attr.random.seed;
    if (n->nin) seed = eval_draw_seed(seed, eval_int(&in[0], 0));
    for (int64_t i = 0; i < count; i++) {
        EvalScalar s = {.f = eval_uniform(n->type.dtype, seed, (uint64_t)i)};
        eval_store(out, i, 1, 1, &s);
    }
    return true;
}

/* ---- Element-wise ---- */

static void prepare_cast(const Attr *a, DType from, int64_t n, EvalScalar *x) {
    if (!dtype_is_float(a->cast.to) || dtype_bytes(a->cast.to) != 1) return;
    for (int64_t i = 0; i < n; i++) {
        double v = dtype_is_float(from) ? x[i].f
                   : from == DT_u64     ? (double)(uint64_t)x[i].i
                                        : (double)x[i].i;
        if (dtype_format[a->cast.to].special == DSPECIAL_power)
            v = eval_power_of_two(v, a->cast.round);
        x[i].f = a->cast.saturate ? eval_saturate(a->cast.to, v) : v;
    }
}

void eval_map_chunk(const Node *n, DType from, EvalScalar x[3][EVAL_CHUNK], int64_t count,
                    EvalScalar *y) {
    if (n->op == OP_cast) {
        prepare_cast(&n->attr, from, count, x[0]);
        if (dtype_is_float(n->attr.cast.to) && dtype_bytes(n->attr.cast.to) == 1) from = DT_f64;
    }
    const EvalScalar *b = n->nin > 1 ? x[1] : x[0], *c = n->nin > 2 ? x[2] : x[0];
    eval_scalars((Op)n->op, from, n->type.dtype, x[0], b, c, count, y);
}

/* One row of the last axis; `at` holds element offsets of out and the operands. */
static void map_row(const Node *n, DType from, const Tensor *in, Tensor *out, const int64_t *at,
                    int64_t count, const int64_t *stride) {
    EvalScalar x[3][EVAL_CHUNK], y[EVAL_CHUNK];
    for (int64_t i = 0, m; i < count; i += m) {
        m = count - i < EVAL_CHUNK ? count - i : EVAL_CHUNK;
        for (uint32_t k = 0; k < n->nin; k++)
            eval_load(&in[k], at[k + 1] + i * stride[k], stride[k], m, x[k]);
        eval_map_chunk(n, from, x, m, y);
        eval_store(out, at[0] + i, 1, m, y);
    }
}

static bool eval_map(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    if (e->errors ? !eval_alloc(e, out) : !eval_alloc_over(e, in, n->nin, out)) return false;
    if (eval_numel(out) == 0) return true;
    DType from = graph_type(g, n->in[n->op == OP_select ? 1 : 0])->dtype;
    int64_t inner[3] = {1, 1, 1};
    bool flat = true;
    for (uint32_t k = 0; k < n->nin; k++) flat &= eval_is_contiguous(&in[k]);
    Walk w;
    walk_init(&w, flat ? 0 : out->rank - 1, out->dim);
    walk_add(&w, out->stride);
    for (uint32_t k = 0; k < n->nin; k++) {
        walk_add(&w, in[k].stride);
        if (!flat) inner[k] = in[k].stride[out->rank - 1];
    }
    int64_t row = flat ? eval_numel(out) : out->dim[out->rank - 1];
    do map_row(n, from, in, out, w.off, row, inner);
    while (walk_next(&w));
    return true;
}

/* ---- Views: new strides over the operand's elements ---- */

static void view_of(const Tensor *x, Tensor *out) {
    out->dtype = x->dtype;
    out->data = x->data;
    out->block = x->block;
    eval_retain(out);
}

static void move_by(Tensor *t, int64_t elements) {
    int64_t bytes = elements * (int64_t)dtype_bytes(t->dtype);
    t->data += bytes;
    if (t->to) t->to += bytes;
}

static bool eval_reshape(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    (void)g;
    (void)n;
    Tensor flat;
    if (eval_numel(&in[0]) != eval_numel(out))
        return eval_fail(e, D_RUN, "a reshape of %lld elements to %lld",
                         (long long)eval_numel(&in[0]), (long long)eval_numel(out));
    if (!eval_make_contiguous(e, &in[0], &flat)) return false;
    out->dtype = flat.dtype;
    out->data = flat.data;
    out->block = flat.block;
    return true;
}

static bool eval_permute(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    (void)e;
    (void)g;
    view_of(&in[0], out);
    for (int i = 0; i < out->rank; i++) out->stride[i] = in[0].stride[n->attr.perm.axis[i]];
    return true;
}

static bool eval_expand(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    (void)e;
    (void)g;
    (void)n;
    view_of(&in[0], out);
    for (int i = 0; i < out->rank; i++) out->stride[i] = in[0].dim[i] == 1 ? 0 : in[0].stride[i];
    return true;
}

static bool eval_slice(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    (void)g;
    if (eval_numel(out) == 0) return eval_alloc(e, out);
    view_of(&in[0], out);
    for (int i = 0; i < out->rank; i++) {
        int64_t start = expr_eval(e->exprs, n->attr.slice.start[i], e->sym);
        int64_t step = n->attr.slice.step[i], last = start + (out->dim[i] - 1) * step;
        if (start < 0 || start >= in[0].dim[i] || last < 0 || last >= in[0].dim[i])
            return eval_fail(e, D_RUN, "slice %lld..%lld of an axis of %lld elements",
                             (long long)start, (long long)last, (long long)in[0].dim[i]);
        move_by(out, start * in[0].stride[i]);
        out->stride[i] = in[0].stride[i] * step;
    }
    return true;
}

static void fill_with(Tensor *out, const Tensor *scalar) {
    Tensor all = *scalar;
    all.rank = out->rank;
    for (int i = 0; i < out->rank; i++) {
        all.dim[i] = out->dim[i];
        all.stride[i] = 0;
    }
    eval_copy(out, &all);
}

/* The part of one operand axis that stays when negative padding crops: elements [first, last]. */
static void kept_range(int64_t size, int64_t lo, int64_t step, int64_t out_size, int64_t *first,
                       int64_t *last) {
    *first = lo < 0 ? (-lo + step - 1) / step : 0;
    *last = size - 1;
    int64_t end = out_size - 1 - lo; /* position of the last output in steps of the operand */
    if (end < 0)
        *last = -1;
    else if (end / step < *last)
        *last = end / step;
}

static bool eval_pad(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    (void)g;
    if (!eval_alloc(e, out)) return false;
    if (eval_numel(out) == 0) return true;
    fill_with(out, &in[1]);
    Tensor src = in[0], dst = *out;
    for (int i = 0; i < out->rank; i++) {
        int64_t lo = expr_eval(e->exprs, n->attr.pad.lo[i], e->sym), first, last;
        int64_t step = n->attr.pad.interior[i] + 1;
        kept_range(src.dim[i], lo, step, out->dim[i], &first, &last);
        if (last < first) return true;
        src.dim[i] = dst.dim[i] = last - first + 1;
        move_by(&src, first * src.stride[i]);
        move_by(&dst, (lo + first * step) * out->stride[i]);
        dst.stride[i] = out->stride[i] * step;
    }
    eval_copy(&dst, &src);
    return true;
}

static bool eval_concat(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    (void)g;
    if (!eval_alloc(e, out)) return false;
    int axis = n->attr.axis.axis;
    Tensor part = *out;
    for (uint32_t i = 0; i < n->nin; i++) {
        part.dim[axis] = in[i].dim[axis];
        eval_copy(&part, &in[i]);
        move_by(&part, in[i].dim[axis] * out->stride[axis]);
    }
    return true;
}

static bool eval_window(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    (void)g;
    if (eval_numel(out) == 0) return eval_alloc(e, out);
    view_of(&in[0], out);
    for (int i = 0; i < in[0].rank; i++) out->stride[i] = in[0].stride[i];
    for (int i = 0; i < n->attr.window.n; i++) {
        int axis = n->attr.window.axis[i];
        int64_t s = in[0].stride[axis];
        out->stride[axis] = s * n->attr.window.stride[i];
        out->stride[in[0].rank + i] = s * n->attr.window.dilation[i];
    }
    return true;
}

EvalFn eval_fn(Op op) {
    static const EvalFn by_op[OP_COUNT] = {
        [OP_const] = eval_const,
        [OP_exprs] = eval_exprs,
        [OP_iota] = eval_iota,
        [OP_reshape] = eval_reshape,
        [OP_permute] = eval_permute,
        [OP_expand] = eval_expand,
        [OP_slice] = eval_slice,
        [OP_pad] = eval_pad,
        [OP_concat] = eval_concat,
        [OP_window] = eval_window,
        [OP_argmax] = eval_arg_reduce,
        [OP_argmin] = eval_arg_reduce,
        [OP_dot] = eval_dot,
        [OP_conv] = eval_conv,
        [OP_gather] = eval_gather,
        [OP_scatter] = eval_scatter,
        [OP_compact] = eval_compact,
        [OP_attention] = eval_attention,
        [OP_logsumexp] = eval_logsumexp,
    };
    static const EvalFn by_class[] = {
        [OPC_MAP] = eval_map,      [OPC_REDUCE] = eval_reduce, [OPC_SCAN] = eval_cumulate,
        [OPC_SORT] = eval_argsort, [OPC_RANDOM] = eval_random, [OPC_CONTROL] = NULL,
    };
    return by_op[op] ? by_op[op] : by_class[op_info[op].cls];
}
