/* Reductions, scans, sorting. Floats are accumulated in f64, integers modulo 2^64. */
#include "graph/eval/eval_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The value that folding nothing gives. */
static EvalScalar neutral(Op fold, DType t) {
    if (dtype_is_float(t))
        return (EvalScalar){.f = fold == OP_add   ? 0
                                 : fold == OP_mul ? 1
                                 : fold == OP_max ? -INFINITY
                                                  : INFINITY};
    int64_t lo;
    uint64_t hi;
    dtype_int_range(t, &lo, &hi);
    return (EvalScalar){.i = fold == OP_add   ? 0
                             : fold == OP_mul ? 1
                             : fold == OP_max ? lo
                                              : (int64_t)hi};
}

/* Axes that stay and axes that are folded, as two walks over the operand. */
static void split_axes(const Tensor *x, uint32_t axes, Walk *kept, Walk *folded) {
    int64_t dim[2][GRAPH_MAX_RANK], stride[2][GRAPH_MAX_RANK];
    int n[2] = {0, 0};
    for (int i = 0; i < x->rank; i++) {
        int k = (int)(axes >> i & 1);
        dim[k][n[k]] = x->dim[i];
        stride[k][n[k]++] = x->stride[i];
    }
    walk_init(kept, n[0], dim[0]);
    walk_add(kept, stride[0]);
    walk_init(folded, n[1], dim[1]);
    walk_add(folded, stride[1]);
}

enum { CHUNK = 256 };

static EvalScalar fold_row(Op fold, DType t, EvalScalar acc, const Tensor *x, int64_t at,
                           int64_t stride, int64_t count) {
    EvalScalar v[CHUNK];
    for (int64_t i = 0, m; i < count; i += m) {
        m = count - i < CHUNK ? count - i : CHUNK;
        eval_load(x, at + i * stride, stride, m, v);
        if (dtype_is_float(t) && (fold == OP_add || fold == OP_max)) {
            for (int64_t k = 0; k < m && fold == OP_add; k++) acc.f += v[k].f;
            for (int64_t k = 0; k < m && fold == OP_max; k++) /* a NaN stays */
                acc = acc.f >= v[k].f || isnan(acc.f) ? acc : v[k];
            continue;
        }
        if (fold == OP_add) { /* of integers: what is too much wraps */
            EvalScalar sum = {.i = 0};
            for (int64_t k = 0; k < m; k++) sum.i = (int64_t)((uint64_t)sum.i + (uint64_t)v[k].i);
            acc = eval_scalar(fold, t, t, (EvalScalar[]){acc, sum});
            continue;
        }
        for (int64_t k = 0; k < m; k++) acc = eval_scalar(fold, t, t, (EvalScalar[]){acc, v[k]});
    }
    return acc;
}

bool eval_reduce(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    if (!eval_alloc(e, out)) return false;
    if (eval_numel(out) == 0) return true;
    DType t = graph_type(g, n->in[0])->dtype;
    Op fold = op_join((Op)n->op);
    Walk kept, folded;
    split_axes(&in[0], n->attr.reduce.axes, &kept, &folded);
    int inner =
        --folded.rank; /* the last folded axis is a row; build_reduce leaves no empty mask */
    int64_t row = folded.dim[inner], stride = folded.stride[0][inner], at = 0;
    bool empty = eval_numel(&in[0]) == 0;
    do {
        EvalScalar acc = neutral(fold, t);
        if (!empty) do
                acc = fold_row(fold, t, acc, &in[0], kept.off[0] + folded.off[0], stride, row);
            while (walk_next(&folded));
        eval_store(out, at++, 1, 1, &acc);
    } while (walk_next(&kept));
    return true;
}

/* NaN beats every number; among equals the first wins, or the last. */
static bool beats(Op op, DType t, EvalScalar v, EvalScalar best, bool last) {
    if (dtype_is_float(t)) {
        if (isnan(best.f)) return last && isnan(v.f);
        if (isnan(v.f)) return true;
    }
    Op strict = last ? OP_le : OP_lt;
    EvalScalar a = op == OP_argmax ? best : v, b = op == OP_argmax ? v : best;
    return eval_scalar(strict, t, DT_bool, (EvalScalar[]){a, b}).i != 0;
}

bool eval_arg_reduce(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    if (!eval_alloc(e, out)) return false;
    if (eval_numel(out) == 0) return true;
    DType t = graph_type(g, n->in[0])->dtype;
    Walk kept, folded;
    split_axes(&in[0], n->attr.reduce.axes, &kept, &folded);
    int64_t at = 0;
    do {
        EvalScalar best = {0}, v, index = {.i = 0};
        for (int64_t i = 0; i < folded.dim[0]; i++) {
            eval_load(&in[0], kept.off[0] + i * folded.stride[0][0], 1, 1, &v);
            if (i && !beats((Op)n->op, t, v, best, n->attr.reduce.last)) continue;
            best = v;
            index.i = i;
        }
        eval_store(out, at++, 1, 1, &index);
    } while (walk_next(&kept));
    return true;
}

bool eval_cumulate(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    if (!eval_alloc(e, out)) return false;
    if (eval_numel(out) == 0) return true;
    DType t = graph_type(g, n->in[0])->dtype;
    Op fold = op_join((Op)n->op);
    int axis = n->attr.scan.axis;
    Walk kept, line;
    split_axes(&in[0], 1u << axis, &kept, &line);
    Tensor o = *out;
    Walk to, unused;
    split_axes(&o, 1u << axis, &to, &unused);
    int64_t size = out->dim[axis];
    do {
        EvalScalar acc = neutral(fold, t), v;
        for (int64_t i = 0; i < size; i++) {
            int64_t k = n->attr.scan.reverse ? size - 1 - i : i;
            eval_load(&in[0], kept.off[0] + k * in[0].stride[axis], 1, 1, &v);
            EvalScalar next = eval_scalar(fold, t, t, (EvalScalar[]){acc, v});
            eval_store(out, to.off[0] + k * out->stride[axis], 1, 1,
                       n->attr.scan.exclusive ? &acc : &next);
            acc = next;
        }
        (void)walk_next(&to);
    } while (walk_next(&kept));
    return true;
}

/* ---- argsort ---- */

typedef struct SortKey {
    uint64_t key; /* unsigned order of keys = order of elements */
    int64_t index;
} SortKey;

static uint64_t order_key(DType t, EvalScalar v, bool descending) {
    uint64_t k;
    if (dtype_is_float(t)) {
        if (isnan(v.f)) return UINT64_MAX; /* last either way */
        double f = v.f == 0 ? 0 : v.f;     /* -0 equals 0 */
        memcpy(&k, &f, sizeof k);
        k = k >> 63 ? ~k : k | (uint64_t)1 << 63;
    } else {
        k = (uint64_t)v.i ^ (t == DT_u64 ? 0 : (uint64_t)1 << 63);
    }
    return descending ? ~k : k;
}

static int compare_keys(const void *pa, const void *pb) {
    const SortKey *a = pa, *b = pb;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

bool eval_argsort(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    if (!eval_alloc(e, out)) return false;
    if (eval_numel(out) == 0) return true;
    DType t = graph_type(g, n->in[0])->dtype;
    int axis = n->attr.scan.axis;
    int64_t size = out->dim[axis];
    SortKey *keys = malloc((size_t)size * sizeof *keys);
    if (!keys)
        return eval_fail(e, D_NO_MEMORY, "not enough memory: sorting %lld elements",
                         (long long)size);
    Walk kept, to, unused;
    split_axes(&in[0], 1u << axis, &kept, &unused);
    split_axes(out, 1u << axis, &to, &unused);
    do {
        for (int64_t i = 0; i < size; i++) {
            EvalScalar v;
            eval_load(&in[0], kept.off[0] + i * in[0].stride[axis], 1, 1, &v);
            keys[i] = (SortKey){order_key(t, v, n->attr.scan.reverse), i};
        }
        qsort(keys, (size_t)size, sizeof *keys, compare_keys);
        for (int64_t i = 0; i < size; i++)
            eval_store(out, to.off[0] + i * out->stride[axis], 1, 1,
                       &(EvalScalar){.i = keys[i].index});
        (void)walk_next(&to);
    } while (walk_next(&kept));
    free(keys);
    return true;
}
