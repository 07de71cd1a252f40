/* transpose_sink: permutes move from producers towards consumers, through everything that does not
 * care about the order of axes, until they meet their inverse or something that fixes the order.
 * Convolutions are NHWC inside permutes when imported, so after this pass a convolutional network
 * runs NHWC throughout, with permutes left where an order is observable (inputs, outputs,
 * reshapes); those are index maps to fusion.
 *
 * Needs: nothing. Keeps: meaning; floating-point reductions may add in another order. Breaks:
 * nothing; leaves dead nodes for dce. */
#include "graph/pass/pass.h"
#include "graph/pass/sink.h"

static bool same_perm(const Perm *a, const Perm *b) {
    for (int i = 0; i < a->rank; i++)
        if (a->axis[i] != b->axis[i]) return false;
    return a->rank == b->rank;
}

/* Dimensions of the outer type, in the inner order. */
static void inner_dims(const Type *outer, const Perm *p, Expr *dim) {
    for (int i = 0; i < p->rank; i++) dim[p->axis[i]] = outer->dim[i];
}

/* Repetition stays last. */
static Value unpermute(Graph *g, Value v, const Perm *p) {
    uint8_t inverse[GRAPH_MAX_RANK];
    Expr dim[GRAPH_MAX_RANK];
    for (int i = 0; i < p->rank; i++) inverse[p->axis[i]] = (uint8_t)i;
    const Node *n = graph_node(g, v);
    if (n->op != OP_expand) return build_permute(g, v, inverse);
    inner_dims(&n->type, p, dim);
    return build_expand(g, build_permute(g, n->in[0], inverse), p->rank, dim);
}

/* Views of small things: permuting them costs nothing anywhere. */
static bool is_cheap(const Graph *g, Value v) {
    while (graph_node(g, v)->op == OP_permute || graph_node(g, v)->op == OP_reshape ||
           graph_node(g, v)->op == OP_cast)
        v = graph_node(g, v)->in[0];
    Op op = (Op)graph_node(g, v)->op;
    return op == OP_const || op == OP_expand || op == OP_iota || graph_type(g, v)->rank == 0;
}

/* What maps make of a convolution: its next reader is one, too, mostly, and wants channels last. */
static bool is_convolved(const Graph *g, Value v) {
    while (op_info[graph_node(g, v)->op].cls == OPC_MAP) v = graph_node(g, v)->in[0];
    return graph_node(g, v)->op == OP_conv;
}

/* The permute that most full-size operands of an element-wise op or concat stand behind, or half of
 * what a convolution's result is put together with. */
static bool common_perm(const Rewrite *r, Value v, Perm *out) {
    uint32_t with = 0, without = 0;
    bool convolved = false;
    for (uint32_t i = 0; i < graph_node(r->from, v)->nin; i++) {
        Perm p;
        Value inner, x = rewrite_in(r, v, i);
        if (!sink_permuted(r->to, x, &p, &inner)) {
            without += !is_cheap(r->to, x);
        } else if (!is_cheap(r->to, inner) && (with == 0 || same_perm(&p, out))) {
            *out = p;
            with++;
            convolved = convolved || is_convolved(r->to, inner);
        }
    }
    if (graph_node(r->from, v)->op == OP_concat && convolved) return with >= without;
    return with > without;
}

static Value sink_map(Rewrite *r, Value v) {
    const Node *n = graph_node(r->from, v);
    Perm p;
    Value in[8];
    if (n->nin > 3) return 0;
    if (!common_perm(r, v, &p)) return sink_merged_map(r, v);
    for (uint32_t i = 0; i < n->nin; i++) in[i] = unpermute(r->to, rewrite_in(r, v, i), &p);
    Node inner = *n;
    inner_dims(&n->type, &p, inner.type.dim);
    return build_permute(r->to, build_like(r->to, &inner, in, n->nin), p.axis);
}

static Value sink_concat(Rewrite *r, Value v) {
    const Node *n = graph_node(r->from, v);
    Perm p;
    if (!common_perm(r, v, &p)) return 0;
    Value *in = ARENA_ARRAY(r->to->arena, Value, n->nin);
    for (uint32_t i = 0; i < n->nin; i++) in[i] = unpermute(r->to, rewrite_in(r, v, i), &p);
    Value x = build_concat(r->to, in, n->nin, p.axis[n->attr.axis.axis]);
    return build_permute(r->to, x, p.axis);
}

static Value sink_reduce(Rewrite *r, Value v, const Perm *p, Value inner) {
    const Node *n = graph_node(r->from, v);
    uint32_t axes = 0;
    int single = 0;
    for (int i = 0; i < p->rank; i++)
        if (n->attr.reduce.axes >> i & 1) axes |= 1u << (single = p->axis[i]);
    Perm left = sink_remaining(p, n->attr.reduce.axes);
    Value x = n->op == OP_argmax || n->op == OP_argmin
                  ? build_arg_reduce(r->to, (Op)n->op, inner, single, n->attr.reduce.last, false)
                  : build_reduce(r->to, (Op)n->op, inner, axes, false);
    return left.rank ? build_permute(r->to, x, left.axis) : x;
}

static Value sink_expand(Rewrite *r, Value v, const Perm *p, Value inner) {
    Expr dim[GRAPH_MAX_RANK];
    inner_dims(graph_type(r->from, v), p, dim);
    return build_permute(r->to, build_expand(r->to, inner, p->rank, dim), p->axis);
}

static Value sink_slice(Rewrite *r, Value v, const Perm *p, Value inner) {
    const Node *n = graph_node(r->from, v);
    Expr start[GRAPH_MAX_RANK], size[GRAPH_MAX_RANK];
    int64_t step[GRAPH_MAX_RANK];
    for (int i = 0; i < p->rank; i++) {
        start[p->axis[i]] = n->attr.slice.start[i];
        size[p->axis[i]] = n->type.dim[i];
        step[p->axis[i]] = n->attr.slice.step[i];
    }
    return build_permute(r->to, build_slice(r->to, inner, start, size, step), p->axis);
}

static Value sink_pad(Rewrite *r, Value v, const Perm *p, Value inner) {
    const Node *n = graph_node(r->from, v);
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK];
    int64_t interior[GRAPH_MAX_RANK];
    for (int i = 0; i < p->rank; i++) {
        lo[p->axis[i]] = n->attr.pad.lo[i];
        hi[p->axis[i]] = n->attr.pad.hi[i];
        interior[p->axis[i]] = n->attr.pad.interior[i];
    }
    Value x = build_pad(r->to, inner, rewrite_in(r, v, 1), lo, hi, interior);
    return build_permute(r->to, x, p->axis);
}

/* Taps are appended behind the axes, so the permute is extended by them as they come. */
static Value sink_window(Rewrite *r, Value v, const Perm *p, Value inner) {
    const Attr *a = &graph_node(r->from, v)->attr;
    uint8_t axis[GRAPH_MAX_WINDOW];
    Perm out = *p;
    for (int i = 0; i < a->window.n; i++) {
        axis[i] = p->axis[a->window.axis[i]];
        out.axis[out.rank] = out.rank;
        out.rank++;
    }
    Value x = build_window(r->to, inner, a->window.n, axis, a->window.size, a->window.stride,
                           a->window.dilation);
    return build_permute(r->to, x, out.axis);
}

/* Coordinates are given per axis of the data: renaming those absorbs the permute. */
static Value sink_gather(Rewrite *r, Value v, const Perm *p, Value inner) {
    const Node *n = graph_node(r->from, v);
    int8_t src[GRAPH_MAX_RANK];
    for (int i = 0; i < p->rank; i++) src[p->axis[i]] = n->attr.index.src[i];
    Value *idx = ARENA_ARRAY(r->to->arena, Value, n->nin);
    for (uint32_t i = 1; i < n->nin; i++) idx[i - 1] = rewrite_in(r, v, i);
    return build_gather(r->to, inner, src, idx, n->nin - 1, n->type.rank, n->type.dim);
}

static Value sink_scan(Rewrite *r, Value v, const Perm *p, Value inner) {
    const Node *n = graph_node(r->from, v);
    Value x = build_scan(r->to, (Op)n->op, inner, p->axis[n->attr.scan.axis],
                         n->attr.scan.exclusive, n->attr.scan.reverse);
    return build_permute(r->to, x, p->axis);
}

/* A permute that only moves axes of size 1 is a reshape. */
static Value as_reshape(Rewrite *r, Value v) {
    const Node *n = graph_node(r->from, v);
    int last = -1;
    for (int i = 0; i < n->type.rank; i++) {
        if (expr_is_value(r->to->exprs, n->type.dim[i], 1)) continue;
        if (n->attr.perm.axis[i] < last) return 0;
        last = n->attr.perm.axis[i];
    }
    return build_reshape(r->to, rewrite_in(r, v, 0), n->type.rank, n->type.dim);
}

typedef Value (*SinkFn)(Rewrite *r, Value v, const Perm *p, Value inner);
static SinkFn sink_of(Op op) {
    switch (op_info[op].cls) {
    case OPC_REDUCE: return sink_reduce;
    case OPC_SCAN: return sink_scan;
    default: break;
    }
    switch (op) {
    case OP_expand: return sink_expand;
    case OP_slice: return sink_slice;
    case OP_pad: return sink_pad;
    case OP_window: return sink_window;
    case OP_gather: return sink_gather;
    case OP_reshape: return sink_reshape;
    default: return NULL;
    }
}

static Value sink(Rewrite *r, Value v) {
    const Node *n = graph_node(r->from, v);
    Perm p;
    Value inner;
    if (op_info[n->op].cls == OPC_MAP) return sink_map(r, v);
    if (n->op == OP_concat) return sink_concat(r, v);
    if (n->op == OP_permute) return as_reshape(r, v);
    if (n->op == OP_dot) return sink_dot(r, v);
    if (op_info[n->op].cls == OPC_REDUCE &&
        graph_node(r->to, rewrite_in(r, v, 0))->op == OP_reshape)
        return sink_merged_reduce(r, v);
    SinkFn fn = sink_of((Op)n->op);
    if (!fn || !sink_permuted(r->to, rewrite_in(r, v, 0), &p, &inner) ||
        (n->op != OP_reshape && is_cheap(r->to, inner)))
        return 0;
    return fn(r, v, &p, inner);
}

Graph *pass_transpose_sink(Graph *g) {
    return rewrite_graph(g, sink, NULL, NULL);
}
