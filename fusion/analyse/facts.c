/* What is asked of single values. */
#include "fusion/analyse/facts.h"

bool op_is_reduce(Op op) {
    return op_info[op].cls == OPC_REDUCE;
}

bool fuse_is_dot(const Fuse *f, Value v) {
    Op op = (Op)graph_node(f->g, v)->op;
    return op_info[op].cls == OPC_CONTRACT || op == OP_attention;
}

bool fuse_is_fold(const Fuse *f, Value v) {
    return fuse_is_dot(f, v) || op_is_reduce((Op)graph_node(f->g, v)->op);
}

bool fuse_is_depthwise(const Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    if (n->op != OP_conv || n->attr.conv.groups <= 1) return false;
    const Type *x = graph_type(f->g, n->in[0]);
    Expr groups = expr_const(f->p, n->attr.conv.groups);
    return x->dim[x->rank - 1] == groups && n->type.dim[n->type.rank - 1] == groups;
}

GroupKind fuse_kind(const Fuse *f, Value v) {
    Op op = (Op)graph_node(f->g, v)->op;
    switch (op_info[op].cls) {
    case OPC_SCAN: return GROUP_scan;
    case OPC_SORT: return GROUP_sort;
    case OPC_INDEX:
        return op == OP_compact ? GROUP_compact : op == OP_scatter ? GROUP_scatter : GROUP_map;
    case OPC_CONTROL: return op == OP_proj ? GROUP_map : GROUP_control;
    default: return GROUP_map;
    }
}

bool special_is(const Fuse *f, Value v) {
    return fuse_kind(f, v) != GROUP_map;
}

bool fuse_is_const_leaf(const Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    while (op_info[n->op].cls == OPC_VIEW && n->nin == 1) n = graph_node(f->g, n->in[0]);
    return n->op == OP_const;
}

double fuse_hint(const Fuse *f, Expr e) {
    return (double)expr_hint(f->p, e);
}

double fuse_numel(const Fuse *f, Value v) {
    const Type *t = graph_type(f->g, v);
    double n = 1;
    for (uint32_t i = 0; i < t->rank; i++) n *= fuse_hint(f, t->dim[i]);
    return n < 1 ? 1 : n;
}

double fuse_bytes(const Fuse *f, Value v) {
    return fuse_numel(f, v) * (double)dtype_bytes(graph_type(f->g, v)->dtype);
}

Value fuse_user(const Fuse *f, Value v, uint32_t i) {
    return f->users[f->fact[v].first_user + i];
}

bool fuse_depends(const Fuse *f, Value v, Value dot) {
    uint32_t d = f->dots[dot] - 1;
    return f->reach[(size_t)v * f->words + d / 64] >> (d % 64) & 1;
}
