/* Ops of a body, each made once, and the buffers that they touch. */
#include "fusion/body/body.h"
#include "fusion/body/buffers.h"
#include <math.h>
#include <string.h>

DType body_type(DType t) {
    if (t == DT_f64 || t == DT_f32 || t == DT_bool) return t;
    if (dtype_is_float(t)) return DT_f32;
    if (dtype_info[t].bits < 8) return dtype_is_signed(t) ? DT_i8 : DT_u8;
    return t;
}

/* Equal ops are made once; where they come from does not matter. */
static bool op_same(const KOp *a, const KOp *b) {
    return a->op == b->op && a->dtype == b->dtype && a->fold == b->fold && a->axes == b->axes &&
           !memcmp(a->in, b->in, sizeof a->in) && a->buf == b->buf && a->sym == b->sym &&
           a->index == b->index && a->mask == b->mask && a->imm.i == b->imm.i;
}

static uint64_t op_hash(const KOp *o) {
    uint32_t w[] = {(uint32_t)o->op << 16 | (uint32_t)o->dtype << 8 | o->fold,
                    o->in[0],
                    o->in[1],
                    o->in[2],
                    o->axes,
                    o->buf,
                    o->index,
                    o->mask,
                    (uint32_t)o->imm.i,
                    (uint32_t)((uint64_t)o->imm.i >> 32)};
    return hash_bytes(w, sizeof w, 1);
}

KVal body_op(Body *b, KOp op) {
    bool shared = op.op != K_kstore && op.op != K_katomic && op.op != K_kbind;
    uint64_t h = shared ? op_hash(&op) : 0;
    uint32_t seen;
    if (shared && map_get(b->consts, h, &seen) && op_same(&b->ops.v[seen], &op)) return seen;
    vec_push(b->f->arena, &b->ops, op);
    if (shared) map_put(b->consts, h, b->ops.n - 1);
    return b->ops.n - 1;
}

KOp body_blank(uint32_t op, DType t) {
    KOp o;
    memset(&o, 0, sizeof o);
    o.op = (uint16_t)op;
    o.dtype = (uint8_t)t;
    return o;
}

KVal body_op1(Body *b, uint32_t op, DType t, KVal x) {
    KOp o = body_blank(op, t);
    o.in[0] = x;
    return body_op(b, o);
}

KVal body_op2(Body *b, uint32_t op, DType t, KVal x, KVal y) {
    KOp o = body_blank(op, t);
    o.in[0] = x;
    o.in[1] = y;
    return body_op(b, o);
}

KVal body_const_i(Body *b, DType t, int64_t v) {
    KOp o = body_blank(K_konst, t);
    if (dtype_is_float(t))
        o.imm.f = (double)v;
    else
        o.imm.i = v;
    return body_op(b, o);
}

KVal body_const_f(Body *b, DType t, double v) {
    KOp o = body_blank(K_konst, t);
    o.imm.f = v;
    return body_op(b, o);
}

DType body_type_of(const Body *b, KVal v) {
    return (DType)b->ops.v[v].dtype;
}

/* Every value of the type is one of body_type(t), so that widening and coming back is nothing. */
static bool widened_from(const Body *b, KVal x, DType t) {
    const KOp *o = &b->ops.v[x];
    return o->op == OP_cast && b->ops.v[o->in[0]].dtype == t && o->dtype == body_type(t);
}

KVal body_cast(Body *b, KVal x, DType to) {
    if (body_type(to) != to && widened_from(b, x, to)) return b->ops.v[x].in[0];
    return body_type_of(b, x) == to ? x : body_op1(b, OP_cast, to, x);
}

KVal body_expr(Body *b, Expr e, DType t) {
    int64_t c;
    if (expr_is_const(b->f->p, e, &c)) return body_const_i(b, t, t == DT_bool ? c != 0 : c);
    KOp o = body_blank(K_kexpr, DT_i64);
    o.index = e;
    KVal x = body_op(b, o);
    if (t == DT_bool) return body_op2(b, OP_ne, DT_bool, x, body_const_i(b, DT_i64, 0));
    return body_cast(b, x, t);
}

KVal body_or_zero(Body *b, KVal x, Expr mask) {
    DType t = body_type_of(b, x);
    if (!mask) return x;
    KOp o = body_blank(OP_select, t);
    o.in[0] = body_expr(b, mask, DT_bool);
    o.in[1] = x;
    o.in[2] = dtype_is_float(t) ? body_const_f(b, t, 0) : body_const_i(b, t, 0);
    return body_op(b, o);
}

/* --- Memory ------------------------------------------------------------------------------- */

uint32_t body_param(Body *b, uint32_t buf, bool written) {
    uint32_t i = 0;
    while (i < b->bufs.n && b->bufs.v[i] != buf) i++;
    if (i == b->bufs.n) {
        const SBuffer *s = &b->f->s->buffers.v[buf];
        KParam p = {.dtype = s->dtype, .numel = s->numel};
        vec_push(b->f->arena, &b->bufs, buf);
        vec_push(b->f->arena, &b->params, p);
    }
    if (written) b->params.v[i].written = true;
    return i;
}

/* Which a masked load gives anyway. */
static bool is_zero(const Body *b, KVal x) {
    const KOp *o = &b->ops.v[x];
    if (o->op != K_konst) return false;
    return dtype_is_float((DType)o->dtype) ? o->imm.f == 0 && !signbit(o->imm.f) : o->imm.i == 0;
}

KVal body_load(Body *b, Value v, IdxId idx, Expr mask, KVal fill) {
    DType t = fuse_stored_type(b->f, v);
    KOp o = body_blank(K_kload, t);
    o.buf = body_param(b, fuse_buffer_of(b->f, v), false);
    o.index = home_index(b->f, b->g, v, idx);
    o.mask = mask;
    if (mask && fill && !is_zero(b, fill)) o.in[0] = body_cast(b, fill, t);
    return body_cast(b, body_op(b, o), body_type(t));
}

void body_store(Body *b, DType t, KVal x, uint32_t buf, Expr index, Expr mask) {
    KOp o = body_blank(K_kstore, t);
    o.in[0] = body_cast(b, x, t);
    o.buf = body_param(b, buf, true);
    o.index = index;
    o.mask = mask;
    body_op(b, o);
}
