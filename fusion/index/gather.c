/* Positions that come out of data: what a gather reads. */
#include "fusion/fuse.h"
#include <string.h>

uint32_t idx_gather_sym(Fuse *f, Group *g, Value v, uint32_t operand, IdxId idx, uint32_t salt) {
    SymAt at = {v, operand, salt, idx_canon(g, idx), 0};
    for (uint32_t i = 0; i < g->syms.n; i++) {
        const SymAt *s = &g->syms.v[i];
        bool same = s->v == v && s->operand == operand && s->salt == salt;
        if (same && idx_canon(g, s->idx) == at.idx) return s->sym;
    }
    const Node *n = graph_node(f->g, v);
    const Type *data = graph_type(f->g, n->in[0]);
    Expr extent = 0;
    for (uint32_t d = 0; d < data->rank; d++)
        if (n->attr.index.src[d] == -(int)operand) extent = data->dim[d];
    int64_t lo, hi;
    expr_range(f->p, extent, &lo, &hi);
    SymInfo s = {.name = arena_printf(f->arena, "at%u", ++f->count->syms),
                 .kind = SYM_INDIRECT,
                 .hi = hi == INT64_MAX ? hi
                       : hi > 0        ? hi - 1
                                       : 0,
                 .below = extent};
    expr_is_sym(f->p, expr_sym_new(f->p, s), &at.sym);
    vec_push(f->arena, &g->syms, at);
    return at.sym;
}

/* The one coordinate that a constant index operand holds. */
bool idx_known(const Fuse *f, Value v, Expr extent, Expr *at) {
    const Node *n = graph_node(f->g, v);
    int64_t size;
    while (op_info[n->op].cls == OPC_VIEW && n->nin == 1) n = graph_node(f->g, n->in[0]);
    if (n->op != OP_const || !expr_is_const(f->p, extent, &size)) return false;
    size_t bytes = dtype_bytes(n->type.dtype);
    const uint8_t *p = n->attr.constant.data;
    if (n->attr.constant.bytes < bytes || n->attr.constant.bytes > 4096 * bytes) return false;
    if (memcmp(p, p + bytes, n->attr.constant.bytes - bytes) != 0) return false;
    int64_t i = dtype_load_i64(n->type.dtype, p, 0);
    *at = expr_const(f->p, i < 0 ? 0 : i < size ? i : size - 1);
    return true;
}

Expr idx_gather_mask(const Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    const Type *data = graph_type(f->g, n->in[0]);
    Expr mask = 0;
    for (uint32_t d = 0; d < data->rank; d++) {
        int64_t lo, hi;
        expr_range(f->p, data->dim[d], &lo, &hi);
        if (n->attr.index.src[d] >= 0 || lo > 0) continue;
        mask = expr_mask_and(f->p, mask, expr_lt(f->p, expr_const(f->p, 0), data->dim[d]));
    }
    return mask;
}

IdxId idx_gather(Fuse *f, Group *g, Value v, IdxId idx, uint32_t salt) {
    const Node *n = graph_node(f->g, v);
    const Type *data = graph_type(f->g, n->in[0]);
    Expr dim[GRAPH_MAX_RANK];
    for (uint32_t d = 0; d < data->rank; d++) {
        int src = n->attr.index.src[d];
        if (src >= 0)
            dim[d] = idx_get(g, idx)->dim[src];
        else if (!idx_known(f, n->in[-src], data->dim[d], &dim[d]))
            dim[d] = expr_sym_ref(f->p, idx_gather_sym(f, g, v, (uint32_t)-src, idx, salt));
    }
    return idx_make(f, g, data, dim, 0);
}
