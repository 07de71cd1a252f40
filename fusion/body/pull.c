/* Kernel bodies: the value of a graph value at an index, as SSA. The same walk as the grouping's,
 * so what is inlined here is what was decided there. */
#include "fusion/body/body.h"
#include "graph/build/build.h"
#include <string.h>

/* --- Sources ------------------------------------------------------------------------------ */

/* A constant all of whose elements are equal is an immediate. */
static bool splat_const(Body *b, Value v, KVal *out) {
    const Node *n = graph_node(b->f->g, v);
    DType t = n->type.dtype, body = body_type(t);
    size_t size = dtype_bytes(t);
    const uint8_t *p = n->attr.constant.data;
    if (n->attr.constant.bytes < size || n->attr.constant.bytes > 4096 * size) return false;
    if (memcmp(p, p + size, n->attr.constant.bytes - size) != 0) return false;
    *out = dtype_is_float(body) ? body_const_f(b, body, dtype_load_f64(t, p, 0))
                                : body_const_i(b, body, dtype_load_i64(t, p, 0));
    return true;
}

static KVal pull_exprs(Body *b, const Node *n, IdxId idx) {
    ExprPool *p = b->f->p;
    Expr at = idx_get(b->g, idx)->flat;
    Expr e = n->attr.exprs.v[n->attr.exprs.n - 1];
    for (uint32_t i = n->attr.exprs.n - 1; i-- > 0;)
        e = expr_select(p, expr_eq(p, at, expr_const(p, i)), n->attr.exprs.v[i], e);
    return body_expr(b, e, body_type(n->type.dtype));
}

/* --- Maps --------------------------------------------------------------------------------- */

/* Results of arithmetic in a half type stay wide and are rounded once, when they are stored. A cast
 * is there to round, and the model may ask what is lost; but what attention keeps of its scores is
 * one wide row, whose sum is divided by at the end. */
static KVal map_cast(Body *b, Value v, KVal x) {
    const Node *n = graph_node(b->f->g, v);
    DType to = n->type.dtype;
    bool inside = dtype_is_half(to) && group_has_inside(b->g, v, 0);
    if (body_type(to) == to || inside) return body_cast(b, x, body_type(to));
    KOp o = body_blank(OP_cast, to);
    o.in[0] = x;
    o.imm.i = (n->attr.cast.saturate ? 0 : 1) | n->attr.cast.round << 1;
    return body_cast(b, body_op(b, o), body_type(to));
}

static KVal map_bitcast(Body *b, const Node *n, KVal x) {
    DType from = graph_type(b->f->g, n->in[0])->dtype, to = n->type.dtype;
    return body_cast(b, body_op1(b, OP_bitcast, to, body_cast(b, x, from)), body_type(to));
}

static bool is_leaf(const Body *b, Value v, IdxId idx) {
    const VState *s = &b->f->v[v];
    if (group_has_inside(b->g, v, idx)) return false;
    if (s->group) return s->group - 1 != b->g->id;
    Op op = (Op)graph_node(b->f->g, v)->op;
    return op_is_leaf(op) || op == OP_proj;
}

/* Mask for an operand whose value outside of `mask` nobody looks at: none for a load that stays
 * within its buffer there too. */
static Expr operand_mask(Body *b, Value v, IdxId idx, Expr mask) {
    Fuse *f = b->f;
    int64_t lo, hi;
    if (!mask) return 0;
    for (; !is_leaf(b, v, idx); v = graph_node(f->g, v)->in[0]) {
        uint8_t op = graph_node(f->g, v)->op;
        Expr none;
        if (op != OP_reshape && op != OP_permute && op != OP_expand && op != OP_slice) return mask;
        idx = idx_operand(f, b->g, v, 0, idx, &none);
    }
    Expr at = home_index(f, b->g, v, idx);
    expr_range(f->p, at, &lo, &hi);
    bool below = expr_is_value(f->p, expr_lt(f->p, at, type_numel(f->p, graph_type(f->g, v))), 1);
    return lo >= 0 && below ? 0 : mask;
}

static KVal pull_operand(Body *b, Value v, IdxId idx, Expr mask) {
    return pull(b, v, idx, operand_mask(b, v, idx, mask));
}

static KVal pull_map(Body *b, Value v, IdxId idx, Expr mask) {
    const Node *n = graph_node(b->f->g, v);
    KVal in[3] = {0};
    for (uint32_t i = 0; i < n->nin; i++) in[i] = pull_operand(b, n->in[i], idx, mask);
    if (n->op == OP_cast) return map_cast(b, v, in[0]);
    if (n->op == OP_bitcast) return map_bitcast(b, n, in[0]);
    KOp o = body_blank(n->op, body_type(n->type.dtype));
    memcpy(o.in, in, sizeof in);
    return body_op(b, o);
}

/* --- Views -------------------------------------------------------------------------------- */

/* v where `inside` holds, else fill; loads take the fill themselves. */
static KVal pull_or(Body *b, Value v, IdxId idx, Expr mask, Expr inside, KVal fill) {
    KVal k;
    Expr both = expr_mask_and(b->f->p, mask, inside);
    const Node *n = graph_node(b->f->g, v);
    if (!both) return pull(b, v, idx, 0);
    if (expr_is_value(b->f->p, both, 0)) return fill; /* never read there */
    bool leaf = is_leaf(b, v, idx);
    if (leaf && !(n->op == OP_const && splat_const(b, v, &k)))
        return body_load(b, v, idx, both, fill);
    if (!leaf &&
        (n->op == OP_reshape || n->op == OP_permute || n->op == OP_expand || n->op == OP_slice)) {
        Expr none;
        return pull_or(b, n->in[0], idx_operand(b->f, b->g, v, 0, idx, &none), mask, inside, fill);
    }
    KVal x = pull(b, v, idx, both);
    if (!inside || x == fill) return x;
    KOp o = body_blank(OP_select, body_type_of(b, x));
    o.in[0] = body_expr(b, inside, DT_bool);
    o.in[1] = x;
    o.in[2] = fill;
    return body_op(b, o);
}

static KVal pull_concat(Body *b, Value v, IdxId idx, Expr mask) {
    const Node *n = graph_node(b->f->g, v);
    KVal x = 0;
    for (uint32_t i = n->nin; i-- > 0;) {
        Expr inside;
        IdxId in = idx_operand(b->f, b->g, v, i, idx, &inside);
        if (inside && expr_is_value(b->f->p, inside, 0)) continue;
        if (!x)
            x = pull(b, n->in[i], in, expr_mask_and(b->f->p, mask, inside));
        else
            x = pull_or(b, n->in[i], in, mask, inside, x);
    }
    return x;
}

static KVal pull_view(Body *b, Value v, IdxId idx, Expr mask) {
    const Node *n = graph_node(b->f->g, v);
    Expr inside;
    if (n->op == OP_concat) return pull_concat(b, v, idx, mask);
    IdxId in = idx_operand(b->f, b->g, v, 0, idx, &inside);
    if (n->op != OP_pad) return pull(b, n->in[0], in, mask);
    Expr none;
    KVal fill = pull(b, n->in[1], idx_operand(b->f, b->g, v, 1, idx, &none), mask);
    return pull_or(b, n->in[0], in, mask, inside, fill);
}

/* --- Reductions and contractions ---------------------------------------------------------- */

static KFold fold_of(const Node *n) {
    Op join = op_join((Op)n->op);
    bool last = n->attr.reduce.last;
    if (join) return kir_fold(join);
    return n->op == OP_argmax ? (last ? FOLD_argmax_last : FOLD_argmax)
                              : (last ? FOLD_argmin_last : FOLD_argmin);
}

static KVal reduce_op(Body *b, DType t, KFold fold, KVal x, uint32_t axes) {
    KOp o = body_blank(K_kreduce, t);
    o.fold = (uint8_t)fold;
    o.in[0] = x;
    o.axes = axes;
    return body_op(b, o);
}

/* What a mask asks of other axes than these: what holds together is a product of zeros and ones. */
static Expr mask_without(const Body *b, Expr mask, uint32_t axes) {
    ExprPool *p = b->f->p;
    if (!(expr_axes_used(b->f, b->g, mask) & axes)) return mask;
    if (expr_op(p, mask) != EX_mul) return 0;
    Expr left = mask_without(b, expr_arg(p, mask, 0), axes);
    return expr_mask_and(p, left, mask_without(b, expr_arg(p, mask, 1), axes));
}

/* A row is reduced whole, also for those of its elements whose result nobody looks at: what the
 * mask asks of the row's axes is about the element, not about what is reduced. */
static KVal pull_reduce(Body *b, Value v, IdxId idx, Expr mask) {
    const Node *n = graph_node(b->f->g, v);
    IdxId in = idx_reduce(b->f, b->g, v, idx), row = idx_row(b->g, v, idx);
    uint32_t axes = row ? idx_axes_used(b->f, b->g, row) : 0;
    KVal x = pull(b, n->in[0], in, mask_without(b, mask, axes));
    KFold fold = fold_of(n);
    if (!axes) return fold >= FOLD_argmax ? body_const_i(b, DT_i64, 0) : x;
    return reduce_op(b, fold >= FOLD_argmax ? DT_i64 : body_type_of(b, x), fold, x, axes);
}

/* Of the contraction v inside of attention, whose result is acc. */
static void note_factors(Body *b, Value v, KVal x, KVal y, DotIdx d, KVal acc) {
    const AttnMatch *m = b->g->attn;
    KAttn *t = &b->k->attn;
    KAttnGrad *r = &b->k->grad;
    uint32_t i = axis_bit(b->g, m->isym), j = axis_bit(b->g, m->jsym); /* of size 1: in no index */
    bool swapped =
        (idx_axes_used(b->f, b->g, d.a) & j) != 0 || (idx_axes_used(b->f, b->g, d.b) & i) != 0;
    uint32_t which = v == m->s[1];
    KVal row = swapped ? y : x, other = swapped ? x : y;
    if (m->gradient)
        r->s[which] = acc, r->x[which] = row, r->y[which] = other;
    else
        t->s = acc, t->q = row, t->k = other;
}

/* Of the contraction that is a gradient. */
static void note_gradient(Body *b, const AttnMatch *m, KVal x, KVal y, KVal acc) {
    Kernel *k = b->k;
    KVal p = m->side ? y : x, other = m->side ? x : y;
    if (m == b->g->attn)
        k->grad.o = acc, k->grad.p = p, k->grad.b = other;
    else if (m->raw)
        k->grads.oq = acc, k->grads.bq = other;
    else
        k->grads.ov = acc, k->grads.pv = p, k->grads.bv = other;
}

/* v where `inside` holds, else 0: what a convolution's padding contributes. Loads give 0
 * themselves; what is computed from them need not. */
static KVal pull_or_zero(Body *b, Value v, IdxId idx, Expr inside) {
    Value w = v;
    for (;; w = graph_node(b->f->g, w)->in[0]) {
        uint8_t op = graph_node(b->f->g, w)->op;
        if (is_leaf(b, w, 0)) break;
        if (op != OP_reshape && op != OP_permute && op != OP_expand && op != OP_slice) break;
    }
    KVal k;
    bool splat = graph_node(b->f->g, w)->op == OP_const && splat_const(b, w, &k);
    if (!inside || (is_leaf(b, w, 0) && !splat)) return pull(b, v, idx, inside);
    DType t = body_type(graph_type(b->f->g, v)->dtype);
    KVal zero = dtype_is_float(t) ? body_const_f(b, t, 0) : body_const_i(b, t, 0);
    return pull_or(b, v, idx, 0, inside, zero);
}

static KVal pull_dot(Body *b, Value v, IdxId idx) {
    Fuse *f = b->f;
    Group *g = b->g;
    const Node *n = graph_node(f->g, v);
    DType dt = body_type(n->type.dtype);
    DotIdx d = idx_dot(f, g, v, idx);
    const Pack *k = f->v[v].pack ? &f->packs.v[f->v[v].pack - 1] : NULL;
    KVal x = pull_or_zero(b, n->in[0], d.a, d.a_mask);
    if (group_streams(f, g)) x = body_cast(b, x, graph_type(f->g, n->in[0])->dtype);
    x = body_cast(b, x, dt);
    KVal y = body_cast(b, k ? k->form->read(b, k, n->in[1], d.b) : pull(b, n->in[1], d.b, 0), dt);
    const AttnMatch *m = g->attn, *result = group_attention(g, v);
    if (result && !m->gradient) return body_attention(b, x, y);
    uint32_t axes = idx_dot_folds(f, g, v);
    if (m) axes = axis_bit(g, result ? result->jsym : m->dsym[v == m->s[1]]);
    KVal acc = reduce_op(b, dt, FOLD_sum, body_op2(b, OP_mul, dt, x, y), axes);
    if (result)
        note_gradient(b, result, x, y, acc);
    else if (m)
        note_factors(b, v, x, y, d, acc);
    KDot *t = &b->k->dot;
    if (!g->attn && !group_is_term(g, v) && t->nacc < K_MAX_ACC) {
        t->a = x;
        t->b[t->nacc] = y;
        t->acc[t->nacc++] = acc;
    }
    return acc;
}

/* Of the scores of the attention that the kernel is. */
static KVal pull_lse(Body *b) {
    const AttnMatch *m = b->g->attn;
    DotIdx d = idx_dot(b->f, b->g, m->o, b->g->anchor_idx);
    return body_lse(b, pull(b, graph_node(b->f->g, m->o)->in[0], d.a, 0));
}

/* --- Gather ------------------------------------------------------------------------------- */

static uint32_t mask_number(Body *b, Expr mask) {
    uint32_t i = 0;
    while (i < b->masks.n && b->masks.v[i] != mask) i++;
    if (i == b->masks.n) vec_push(b->f->arena, &b->masks, mask);
    return i;
}

static KVal pull_gather(Body *b, Value v, IdxId idx, Expr mask) {
    Fuse *f = b->f;
    const Node *n = graph_node(f->g, v);
    const Type *data = graph_type(f->g, n->in[0]);
    for (uint32_t d = 0; d < data->rank; d++) {
        int src = n->attr.index.src[d];
        Expr known;
        if (src >= 0 || expr_is_value(f->p, data->dim[d], 1)) continue;
        if (idx_known(f, n->in[-src], data->dim[d], &known)) continue;
        KVal at = body_cast(b, pull_operand(b, n->in[-src], idx, mask), DT_i64);
        KVal last = body_expr(b, expr_addi(f->p, data->dim[d], -1), DT_i64);
        at = body_op2(b, OP_min, DT_i64, at, last);
        at = body_op2(b, OP_max, DT_i64, at, body_const_i(b, DT_i64, 0));
        KOp o = body_blank(K_kbind, DT_i64);
        o.in[0] = at;
        o.sym = idx_gather_sym(f, b->g, v, (uint32_t)-src, idx, mask_number(b, mask));
        body_op(b, o);
    }
    IdxId from = idx_gather(f, b->g, v, idx, mask_number(b, mask));
    return pull(b, n->in[0], from, expr_mask_and(f->p, mask, idx_gather_mask(f, v)));
}

static KVal pull_random(Body *b, Value v, IdxId idx) {
    const Node *n = graph_node(b->f->g, v);
    Expr none;
    KVal draw = n->nin ? pull(b, n->in[0], idx_operand(b->f, b->g, v, 0, idx, &none), 0) : 0;
    return pull_uniform(b, v, idx, draw);
}

/* --- Any value ---------------------------------------------------------------------------- */

static KVal pull_new(Body *b, Value v, IdxId idx, Expr mask) {
    const Node *n = graph_node(b->f->g, v);
    KVal k;
    if (n->op == OP_const && splat_const(b, v, &k)) return k;
    if (is_leaf(b, v, idx)) return body_load(b, v, idx, mask, 0);
    switch (op_info[n->op].cls) {
    case OPC_SOURCE:
        if (n->op == OP_exprs) return pull_exprs(b, n, idx);
        return body_expr(b, idx_get(b->g, idx)->dim[n->attr.axis.axis], body_type(n->type.dtype));
    case OPC_MAP: return pull_map(b, v, idx, mask);
    case OPC_VIEW: return pull_view(b, v, idx, mask);
    case OPC_REDUCE: return pull_reduce(b, v, idx, mask);
    case OPC_CONTRACT: return pull_dot(b, v, idx);
    case OPC_COMPOSITE: return n->op == OP_attention ? pull_dot(b, v, idx) : pull_lse(b);
    case OPC_RANDOM: return pull_random(b, v, idx);
    default: GC_ASSERT(n->op == OP_gather); return pull_gather(b, v, idx, mask);
    }
}

/* (idx, mask) as one number: a key of the memo holds all of each part, whatever their sizes. */
static uint32_t place_number(Body *b, IdxId idx, Expr mask) {
    uint64_t key = (uint64_t)idx << 32 | mask;
    uint32_t n;
    if (map_get(b->places, key, &n)) return n;
    map_put(b->places, key, ++b->nplaces);
    return b->nplaces;
}

KVal pull(Body *b, Value v, IdxId idx, Expr mask) {
    if (mask && expr_is_value(b->f->p, mask, 1)) mask = 0;
    idx = idx_canon(b->g, idx);
    uint64_t key = (uint64_t)v << 32 | place_number(b, idx, mask);
    uint32_t k;
    if (map_get(b->memo, key, &k)) return k;
    k = pull_new(b, v, idx, mask);
    if (b->ops.v[k].node == 0 && graph_node(b->f->g, v)->op != OP_const) b->ops.v[k].node = v;
    map_put(b->memo, key, k);
    return k;
}
