/* Kernels with a structure of their own: running folds, sorts, compaction, scatter; and the
 * counter-based random numbers, which are ordinary integer arithmetic. */
#include "fusion/group/fuse.h"
#include <string.h>

bool special_is(const Fuse *f, Value v) {
    switch (graph_node(f->g, v)->op) {
    case OP_cumsum:
    case OP_cumprod:
    case OP_argsort:
    case OP_compact:
    case OP_scatter:
    case OP_loop:
    case OP_if: return true;
    default: return false;
    }
}

static void add_root(Fuse *f, Group *g, Value v, IdxId idx) {
    VState *s = &f->v[v];
    Root r = {.v = v, .idx = idx};
    vec_push(f->arena, &g->roots, r);
    vec_push(f->arena, &g->inlined, v);
    fuse_await_sizes(f, g, v);
    s->group = g->id + 1;
    for (uint32_t i = 0; i < s->demands.n; i++)
        group_dep(f, f->groups.v[s->demands.v[i].group], g->id);
}

/* One row axis, the others parallel. */
static void row_root(Fuse *f, Value v, GroupKind kind, uint32_t axis) {
    const Node *n = graph_node(f->g, v);
    const Type *t = graph_type(f->g, n->in[0]);
    Group *g = group_new(f, kind);
    Expr dim[GRAPH_MAX_RANK];
    for (uint32_t d = 0; d < t->rank; d++) {
        if (d != axis && expr_is_value(f->p, t->dim[d], 1)) continue;
        dim[d] = axis_new(f, g, t->dim[d], d == axis ? AX_RED : AX_PAR);
        if (d == axis) g->fixed |= 1u << (g->naxes - 1);
    }
    IdxId idx = idx_make(f, g, t, dim, 0);
    g->prepare = f->v[v].const_only;
    add_root(f, g, v, idx);
    fuse_demand(f, g, n->in[0], idx, USE_point, READ_plain);
}

/* A copy of the data into the result's buffer, then the updates in order. */
static void scatter_root(Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    Group *copy = group_new(f, GROUP_map);
    Root r = {.v = n->in[0], .into = v, .part = ROOT_WHOLE};
    r.idx = idx_axes(f, copy, &n->type);
    vec_push(f->arena, &copy->roots, r);
    Group *g = group_new(f, GROUP_scatter);
    copy->prepare = g->prepare = f->v[v].const_only;
    group_dep(f, g, copy->id);
    IdxId idx = idx_axes(f, g, graph_type(f->g, n->in[1]));
    g->fixed = (1u << g->naxes) - 1;
    add_root(f, g, v, idx);
    for (uint32_t i = 1; i < n->nin; i++) fuse_demand(f, g, n->in[i], idx, USE_point, READ_plain);
    fuse_demand(f, copy, n->in[0], r.idx, USE_point, READ_masked);
}

void special_root(Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    switch (n->op) {
    case OP_loop:
    case OP_if: control_root(f, v); break;
    case OP_scatter: scatter_root(f, v); break;
    case OP_compact: row_root(f, v, GROUP_compact, 0); break;
    case OP_argsort: row_root(f, v, GROUP_sort, (uint32_t)n->attr.scan.axis); break;
    default: row_root(f, v, GROUP_scan, (uint32_t)n->attr.scan.axis); break;
    }
}

/* --- Bodies ------------------------------------------------------------------------------- */

static KOp row_op(Body *b, const Node *n, uint32_t op, DType t, KVal x) {
    KOp o;
    memset(&o, 0, sizeof o);
    o.op = (uint16_t)op;
    o.dtype = (uint8_t)t;
    o.in[0] = x;
    o.axes = group_axes(b->g, AX_RED);
    if (op != K_kcompact)
        o.imm.i = (n->attr.scan.exclusive ? 1 : 0) | (n->attr.scan.reverse ? 2 : 0);
    return o;
}

static void lower_row(Body *b, Value v, IdxId idx) {
    Fuse *f = b->f;
    const Node *n = graph_node(f->g, v);
    KVal x = pull(b, n->in[0], idx, 0);
    b->k->kind = KERNEL_tem;
    if (n->op == OP_argsort) {
        b->k->tem = TEM_sort;
        x = body_op(b, row_op(b, n, K_ksort, DT_i64, x));
    } else {
        b->k->tem = TEM_scan;
        KOp o = row_op(b, n, K_kscan, (DType)b->ops.v[x].dtype, x);
        o.fold = n->op == OP_cumsum ? FOLD_sum : FOLD_prod;
        x = body_op(b, o);
    }
    body_store(b, n->type.dtype, x, f->v[v].buf - 1, home_index(f, b->g, v, idx), 0);
}

static void lower_compact(Body *b, Value v, IdxId idx) {
    Fuse *f = b->f;
    const Node *n = graph_node(f->g, v);
    KOp o = row_op(b, n, K_kcompact, DT_i64, pull(b, n->in[0], idx, 0));
    o.buf = body_param(b, f->v[v].buf - 1, true);
    body_param(b, f->v[v].count_buf - 1, true);
    GC_ASSERT(expr_is_sym(f->p, n->type.dim[0], &o.sym));
    b->k->kind = KERNEL_tem;
    b->k->tem = TEM_compact;
    body_op(b, o);
}

/* A coordinate of the element to update, as a symbol, and the range check it needs. */
static Expr coordinate(Body *b, Value index, IdxId idx, Expr extent, Expr *mask) {
    Fuse *f = b->f;
    SymInfo s = {.name = arena_printf(f->arena, "at%u", ++f->naxis_syms),
                 .kind = SYM_INDIRECT,
                 .lo = INT64_MIN,
                 .hi = INT64_MAX};
    Expr e = expr_sym_new(f->p, s);
    KOp o;
    memset(&o, 0, sizeof o);
    o.op = K_kbind;
    o.dtype = DT_i64;
    o.in[0] = body_cast(b, pull(b, index, idx, 0), DT_i64);
    expr_is_sym(f->p, e, &o.sym);
    body_op(b, o);
    *mask = expr_mask_and(f->p, *mask, expr_in_range(f->p, e, extent));
    return e;
}

static void lower_scatter(Body *b, Value v, IdxId idx) {
    Fuse *f = b->f;
    const Node *n = graph_node(f->g, v);
    Expr dim[GRAPH_MAX_RANK], mask = 0;
    for (uint32_t d = 0; d < n->type.rank; d++) {
        int src = n->attr.index.src[d];
        if (src >= 0) {
            dim[d] = idx_get(b->g, idx)->dim[src];
            mask = expr_mask_and(f->p, mask, expr_in_range(f->p, dim[d], n->type.dim[d]));
        } else {
            dim[d] = coordinate(b, n->in[1 - src], idx, n->type.dim[d], &mask);
        }
    }
    KOp o;
    memset(&o, 0, sizeof o);
    o.op = K_katomic;
    o.dtype = (uint8_t)n->type.dtype;
    o.fold = n->attr.index.mode;
    o.in[0] = body_cast(b, pull(b, n->in[1], idx, 0), n->type.dtype);
    o.buf = body_param(b, f->v[v].buf - 1, true);
    o.index = idx_join(f->p, n->type.rank, dim, n->type.dim);
    o.mask = mask;
    b->k->serial = true;
    body_op(b, o);
}

void special_lower(Body *b, Value v) {
    IdxId idx = b->g->roots.v[0].idx;
    switch (graph_node(b->f->g, v)->op) {
    case OP_scatter: lower_scatter(b, v, idx); break;
    case OP_compact: lower_compact(b, v, idx); break;
    default: lower_row(b, v, idx); break;
    }
}

/* --- Random numbers ----------------------------------------------------------------------- */

static KVal mix(Body *b, KVal z, int shift, uint64_t factor) {
    KVal s = body_op2(b, OP_shr, DT_u64, z, body_const_i(b, DT_u64, shift));
    z = body_op2(b, OP_xor, DT_u64, z, s);
    return factor ? body_op2(b, OP_mul, DT_u64, z, body_const_i(b, DT_u64, (int64_t)factor)) : z;
}

/* splitmix64 of the element's number, see OP_uniform. */
KVal pull_uniform(Body *b, Value v, IdxId idx) {
    const Node *n = graph_node(b->f->g, v);
    DType t = n->type.dtype, body = body_type(t);
    int bits = t == DT_f64 ? 53 : t == DT_f32 ? 24 : t == DT_f16 ? 11 : 8;
    KVal i = body_expr(b, expr_addi(b->f->p, idx_get(b->g, idx)->flat, 1), DT_u64);
    KVal z = body_op2(b, OP_mul, DT_u64, i, body_const_i(b, DT_u64, (int64_t)0x9E3779B97F4A7C15u));
    z = body_op2(b, OP_add, DT_u64, z, body_const_i(b, DT_u64, (int64_t)n->attr.random.seed));
    z = mix(b, z, 30, 0xBF58476D1CE4E5B9u);
    z = mix(b, z, 27, 0x94D049BB133111EBu);
    z = mix(b, z, 31, 0);
    z = body_op2(b, OP_shr, DT_u64, z, body_const_i(b, DT_u64, 64 - bits));
    KVal x = body_cast(b, body_cast(b, z, DT_i64), body);
    return body_op2(b, OP_mul, body, x, body_const_f(b, body, 1.0 / (double)(UINT64_C(1) << bits)));
}
