/* Which contractions read their right operand in a prepared form. */
#include "fusion/analyse/facts.h"
#include "graph/pass/pass.h"

bool fuse_is_wino(const Fuse *f, Value dot) {
    const Node *n = graph_node(f->g, dot);
    if (!f->m->winograd || n->op != OP_conv || n->attr.conv.n != 2 || n->attr.conv.groups != 1)
        return false;
    const Type *w = graph_type(f->g, n->in[1]);
    if (w->dtype != DT_f32 || n->type.dtype != DT_f32) return false;
    for (int i = 0; i < 2; i++) {
        int64_t lo, hi;
        if (n->attr.conv.stride[i] != 1 || n->attr.conv.dilation[i] != 1) return false;
        if (!expr_is_value(f->p, w->dim[i], 3)) return false;
        expr_range(f->p, n->type.dim[1 + i], &lo, &hi);
        if (lo < 2) return false;
    }
    /* Below that the transforms cost what they save, or 16/9 of the weights are too much to read */
    double pixels = fuse_hint(f, expr_mul(f->p, n->type.dim[1], n->type.dim[2]));
    return fuse_hint(f, w->dim[2]) >= 16 && fuse_hint(f, w->dim[3]) >= 16 && pixels >= 36;
}

/* The value of type t that v is, behind casts that widen it, views and copies of it; 0: there is
 * none. */
static Value widened_from(const Fuse *f, Value v, DType t) {
    const Node *n = graph_node(f->g, v);
    for (; n->type.dtype != t; n = graph_node(f->g, v)) {
        bool moves = op_info[n->op].cls == OPC_VIEW && n->nin == 1;
        if (n->op != OP_cast && !moves) return 0;
        if (!dtype_is_int(n->type.dtype) || dtype_bytes(n->type.dtype) < 2) return 0;
        v = n->in[0];
    }
    return v;
}

bool fuse_is_quads(const Fuse *f, Value dot) {
    const Node *n = graph_node(f->g, dot);
    if (!f->m->quads || n->type.dtype != DT_i32) return false;
    if (!widened_from(f, n->in[0], DT_u8) || !widened_from(f, n->in[1], DT_i8)) return false;
    const Type *t = graph_type(f->g, n->in[1]);
    bool conv = n->op == OP_conv;
    uint32_t nk = conv ? n->attr.conv.n + 1u : 1;
    for (uint32_t d = t->rank - 1 - nk; d + 1 < t->rank; d++) {
        int64_t size;
        if (!expr_is_const(f->p, t->dim[d], &size)) return false;
        if (conv && d + 2 == t->rank && size % 4) return false;
    }
    return true;
}

/* f32 of integers times what repeats along blocks of its last dimension. */
static bool is_scaled(const Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    if (n->op != OP_mul || n->type.dtype != DT_f32) return false;
    for (int side = 0; side < 2; side++) {
        const Node *q = graph_node(f->g, n->in[side]), *s = graph_node(f->g, n->in[1 - side]);
        if (q->op != OP_cast || graph_type(f->g, q->in[0])->dtype != DT_i8) continue;
        if (s->op == OP_reshape && graph_node(f->g, s->in[0])->op == OP_expand) return true;
    }
    return false;
}

/* Whether v is x or what x is made of by views and by casts to f32. */
static bool is_seen_through(const Fuse *f, Value v, Value x) {
    for (const Node *n; x != v; x = n->in[0]) {
        n = graph_node(f->g, x);
        const bool cast = n->op == OP_cast && n->type.dtype == DT_f32;
        if (!cast && (op_info[n->op].cls != OPC_VIEW || n->nin != 1)) return false;
    }
    return true;
}

bool fuse_makes_blocks(const Fuse *f, Value v, Value dot) {
    const Node *n = graph_node(f->g, dot);
    if (!f->m->quads || n->op != OP_dot || n->type.dtype != DT_f32) return false;
    if (!f->fact[n->in[1]].const_only) return false;
    Value a = n->in[0];
    while (graph_node(f->g, a)->op == OP_reshape) a = graph_node(f->g, a)->in[0];
    const Node *mul = graph_node(f->g, a);
    return is_scaled(f, a) &&
           (is_seen_through(f, v, n->in[0]) || is_seen_through(f, v, mul->in[0]) ||
            is_seen_through(f, v, mul->in[1]));
}

/* B's columns lie apart in memory as it is. */
static bool has_rows(const Fuse *f, Value b) {
    const Node *n = graph_node(f->g, b);
    for (; n->op == OP_expand || n->op == OP_cast; n = graph_node(f->g, n->in[0])) continue;
    return n->op != OP_permute || n->attr.perm.axis[n->type.rank - 1] == n->type.rank - 1;
}

bool fuse_is_bytes(const Fuse *f, DType t) {
    return f->m->bytes && (t == DT_u8 || t == DT_i8 || t == DT_f8e4m3fn || t == DT_f8e5m2);
}

bool fuse_is_fetched(const Fuse *f, DType t) {
    return dtype_is_half(t) || fuse_is_bytes(f, t);
}

/* Of few rows each column of B is read by itself, and once; bytes are multiplied in rows of k only.
 */
static bool packs_columns(const Fuse *f, Value dot) {
    const Node *n = graph_node(f->g, dot);
    const Type *t = graph_type(f->g, n->in[1]);
    double cols = fuse_hint(f, t->dim[t->rank - 1]), rows = fuse_numel(f, dot) / cols;
    bool wanted = rows <= f->m->pack_rows || fuse_is_bytes(f, t->dtype);
    return n->op == OP_dot && wanted && has_rows(f, n->in[1]) &&
           fuse_hint(f, t->dim[t->rank - 2]) > 1;
}

bool fuse_streams(const Fuse *f, Value dot) {
    const Node *n = graph_node(f->g, dot);
    if (n->op != OP_dot || !f->fact[n->in[1]].const_only) return false;
    const Type *t = graph_type(f->g, n->in[1]);
    return fuse_numel(f, dot) / fuse_hint(f, t->dim[t->rank - 1]) <= f->m->pack_rows;
}

/* Channels in rows that begin at 16 bytes; fewer products have kernels that are as fast. */
bool fuse_fetches_f32(const Fuse *f, Value conv) {
    const Node *n = graph_node(f->g, conv);
    const Type *w = graph_type(f->g, n->in[1]);
    double products = fuse_numel(f, conv);
    if (n->op != OP_conv || w->dtype != DT_f32 || !f->m->digits || n->attr.conv.groups > 1)
        return false;
    for (uint32_t d = 0; d + 1 < w->rank; d++) products *= fuse_hint(f, w->dim[d]);
    return expr_divisor(f->p, w->dim[w->rank - 2]) % 4 == 0 && products >= 1 << 22;
}

/* Bytes that the run gives are turned in each run, for rows enough to pay for that. */
static bool turns_bytes(const Fuse *f, Value dot) {
    const Node *n = graph_node(f->g, dot);
    return n->op == OP_dot && fuse_is_quads(f, dot) &&
           fuse_hint(f, n->type.dim[n->type.rank - 2]) >= TURNED_ROWS_LEAST;
}

bool fuse_packs(const Fuse *f, Value dot) {
    const Node *n = graph_node(f->g, dot);
    const Type *t = graph_type(f->g, n->in[1]);
    if (fuse_is_depthwise(f, dot)) return false;
    if (!f->fact[n->in[1]].const_only && !turns_bytes(f, dot)) return false;
    if (!f->m->pack_width) return packs_columns(f, dot);
    double groups = n->op == OP_conv ? (double)n->attr.conv.groups : 1;
    return fuse_hint(f, t->dim[t->rank - 1]) >= PACKED_COLS_LEAST * groups;
}
