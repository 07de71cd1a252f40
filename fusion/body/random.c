/* Counter-based random numbers are ordinary integer arithmetic. */
#include "fusion/body/body.h"

static KVal mix(Body *b, KVal z, int shift, uint64_t factor) {
    KVal s = body_op2(b, OP_shr, DT_u64, z, body_const_i(b, DT_u64, shift));
    z = body_op2(b, OP_xor, DT_u64, z, s);
    return factor ? body_op2(b, OP_mul, DT_u64, z, body_const_i(b, DT_u64, (int64_t)factor)) : z;
}

/* splitmix64: number i of the stream of a seed, see OP_uniform. */
static KVal stream(Body *b, KVal seed, KVal i) {
    KVal z = body_op2(b, OP_mul, DT_u64, i, body_const_i(b, DT_u64, (int64_t)0x9E3779B97F4A7C15u));
    z = body_op2(b, OP_add, DT_u64, z, seed);
    z = mix(b, z, 30, 0xBF58476D1CE4E5B9u);
    z = mix(b, z, 27, 0x94D049BB133111EBu);
    return mix(b, z, 31, 0);
}

/* The seed, or the number that a draw is in its stream. */
static KVal seed_of(Body *b, const Node *n, KVal draw) {
    KVal seed = body_const_i(b, DT_u64, (int64_t)n->attr.random.seed);
    if (!draw) return seed;
    draw = body_op2(b, OP_add, DT_u64, body_cast(b, draw, DT_u64), body_const_i(b, DT_u64, 1));
    return stream(b, seed, draw);
}

KVal pull_uniform(Body *b, Value v, IdxId idx, KVal draw) {
    const Node *n = graph_node(b->f->g, v);
    DType t = n->type.dtype, body = body_type(t);
    int bits = dtype_format[t].man + 1;
    KVal i = body_expr(b, expr_addi(b->f->p, idx_get(b->g, idx)->flat, 1), DT_u64);
    KVal z = stream(b, seed_of(b, n, draw), i);
    z = body_op2(b, OP_shr, DT_u64, z, body_const_i(b, DT_u64, 64 - bits));
    KVal x = body_cast(b, body_cast(b, z, DT_i64), body);
    return body_op2(b, OP_mul, body, x, body_const_f(b, body, 1.0 / (double)(UINT64_C(1) << bits)));
}
