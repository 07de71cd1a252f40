/* gather, scatter, compact. */
#include "graph/eval/eval_impl.h"

#include <string.h>

/* How coordinates of R, the shape of the indices, address elements of the data. */
typedef struct Addressing {
    const int8_t *src;
    const Tensor *data, *idx; /* idx[i] = i-th index operand */
} Addressing;

static int64_t index_at(const Tensor *idx, const int64_t *at) {
    int64_t off = 0;
    for (int i = 0; i < idx->rank; i++) off += at[i] * idx->stride[i];
    return eval_int(idx, off);
}

/* Offset of the addressed element; false if a coordinate is out of range. clamp: moved into it. */
static bool address(const Addressing *w, const int64_t *at, bool clamp, int64_t *out) {
    *out = 0;
    for (int d = 0; d < w->data->rank; d++) {
        int src = w->src[d];
        int64_t c = src >= 0 ? at[src] : index_at(&w->idx[-src - 1], at), size = w->data->dim[d];
        if (c < 0 || c >= size) {
            if (!clamp || size == 0) return false;
            c = c < 0 ? 0 : size - 1;
        }
        *out += c * w->data->stride[d];
    }
    return true;
}

bool eval_gather(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    (void)g;
    out->dtype = in[0].dtype;
    if (!eval_alloc(e, out)) return false;
    if (eval_numel(out) == 0) return true;
    size_t size = dtype_bytes(out->dtype);
    Addressing x = {n->attr.index.src, &in[0], in + 1};
    Walk w;
    walk_init(&w, out->rank, out->dim);
    char *to = out->to;
    do {
        int64_t from;
        if (!address(&x, w.at, true, &from))
            return eval_fail(e, D_RUN, "a gather from an empty axis");
        memcpy(to, in[0].data + from * (int64_t)size, size);
        to += size;
    } while (walk_next(&w));
    return true;
}

static const Op scatter_ops[] = {
    [SCATTER_add] = OP_add, [SCATTER_mul] = OP_mul, [SCATTER_min] = OP_min, [SCATTER_max] = OP_max};

bool eval_scatter(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    if (!eval_alloc(e, out)) return false;
    eval_copy(out, &in[0]);
    if (eval_numel(&in[1]) == 0) return true;
    DType t = graph_type(g, n->in[0])->dtype;
    Addressing x = {n->attr.index.src, out, in + 2};
    Walk w;
    walk_init(&w, in[1].rank, in[1].dim);
    walk_add(&w, in[1].stride);
    do {
        int64_t at;
        EvalScalar v[2];
        if (!address(&x, w.at, false, &at)) continue;
        eval_load(out, at, 1, 1, &v[0]);
        eval_load(&in[1], w.off[0], 1, 1, &v[1]);
        EvalScalar r = n->attr.index.mode == SCATTER_set
                           ? v[1]
                           : eval_scalar(scatter_ops[n->attr.index.mode], t, t, v);
        eval_store(out, at, 1, 1, &r);
    } while (walk_next(&w));
    return true;
}

/* Defines the symbol that its type's dimension is. */
bool eval_compact(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out) {
    (void)g;
    uint32_t sym;
    int64_t count = 0, size = in[0].dim[0], at = 0;
    for (int64_t i = 0; i < size; i++) count += eval_int(&in[0], i * in[0].stride[0]) != 0;
    out->dim[0] = count;
    if (expr_is_sym(e->exprs, n->type.dim[0], &sym) && e->sym) e->sym[sym] = count;
    if (!eval_alloc(e, out)) return false;
    for (int64_t i = 0; i < size; i++)
        if (eval_int(&in[0], i * in[0].stride[0]))
            dtype_store_i64(DT_i64, out->to, (size_t)at++, i);
    return true;
}
