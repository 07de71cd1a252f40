/* Bodies: a group becomes a kernel. Takes decided groups and buffers; gives Group.kernel and .bufs.
 * Decides nothing: what is not stored elsewhere is computed where it is read. */
#ifndef FUSION_BODY_H
#define FUSION_BODY_H

#include "fusion/fuse.h"

struct Body {
    Fuse *f;
    Group *g;
    Kernel *k;
    VEC(KOp) ops;
    VEC(KParam) params;
    VEC(uint32_t) bufs; /* schedule buffer of each param */
    MapU64 *memo;       /* (value, place) -> KVal */
    MapU64 *places;     /* (idx, mask) -> number */
    uint32_t nplaces;
    MapU64 *consts;
    VEC(Expr) masks;
}; /* pull notes the values and numbers of k's template as it meets them */

/* body.c: ops, each made once, and memory. */
DType body_type(DType t); /* what values of memory type t are computed in */
KOp body_blank(uint32_t op, DType t);
KVal body_op(Body *b, KOp op);
KVal body_op1(Body *b, uint32_t op, DType t, KVal x);
KVal body_op2(Body *b, uint32_t op, DType t, KVal x, KVal y);
KVal body_const_i(Body *b, DType t, int64_t v);
KVal body_const_f(Body *b, DType t, double v);
KVal body_expr(Body *b, Expr e, DType t); /* value of an expression, as type t */
KVal body_cast(Body *b, KVal x, DType to);
KVal body_or_zero(Body *b, KVal x, Expr mask); /* x where mask (0 = always) holds, else 0 */
DType body_type_of(const Body *b, KVal v);
uint32_t body_param(Body *b, uint32_t buf, bool written);
KVal body_load(Body *b, Value v, IdxId idx, Expr mask, KVal fill);
void body_store(Body *b, DType t, KVal x, uint32_t buf, Expr index, Expr mask);

/* pull.c: v at idx where mask holds, in body_type of v's dtype. */
KVal pull(Body *b, Value v, IdxId idx, Expr mask);
KVal pull_uniform(Body *b, Value v, IdxId idx, KVal draw); /* random.c; draw: 0 = none */

/* softmax.c: of attention, whose scores were pulled. Its template's values are noted. */
KVal body_attention(Body *b, KVal score, KVal v);
KVal body_lse(Body *b, KVal score);

/* lower.c: the stage, for one group. */
void fuse_lower(Fuse *f, Group *g);
void body_begin(Body *b);
void body_end(Body *b);

/* template.c: the kind of kernel that a body turned out to be, and the axes of its template's
 * roles. */
void map_facts(Body *b); /* poi, red or per */
void dot_facts(Body *b); /* a depthwise one is a map */
void attention_facts(Body *b);
void gradient_facts(Body *b);
/* causal.c: how many keys ahead of its number a query sees at most; 0 = not known. */
Expr body_find_causal(const Kernel *k, ExprPool *p);
/* ... and of a gradient, whose `ahead` or `behind` is set. */
void body_find_unseen(Kernel *k, ExprPool *p);

/* What body_end does beside, in this order. */
void body_prune(Body *b);   /* prune.c: ops that no store needs */
void body_merge(Body *b);   /* merge.c: axes that every access walks as one; their order */
void body_traffic(Body *b); /* traffic.c: least bytes and flops */
void body_places(Body *b);  /* traffic.c: the ONNX nodes it covers */

const char *fuse_kernel_name(Fuse *f, const Group *g, const Kernel *k, uint32_t number);

#endif
