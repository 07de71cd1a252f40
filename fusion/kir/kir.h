/* Kernel IR: one loop nest over named axes with a flat scalar SSA body.
 *
 * The meaning of a kernel is fully given by axes, params and ops, whatever its kind: kind and
 * template facts (KDot, KAttn) only tell the emitter which loop structure is fast. So every kernel
 * can be run by the reference interpreter (kir_eval) and by the generic row emitter.
 *
 * A value's domain is the set of axes it depends on: the union over its operands, plus the axes in
 * its index, mask and value expressions, minus the axes a reduce folds away. A store must have a
 * domain without reduced axes, except that a `per` kernel stores point values (domain = parallel +
 * row axes) after using reductions over the same row axes. The emitter derives loop passes from
 * domains; they are not stored.
 *
 * Element types in the body: arithmetic happens in f64, f32, i64, i32, i16, i8, their unsigned
 * twins and bool only. Narrow floats are loaded, cast, computed in f32, cast and stored. */
#ifndef FUSION_KIR_H
#define FUSION_KIR_H

#include "graph/ir/ir.h"

#define K_MAX_AXES    24
#define K_MAX_PARAMS  64
#define K_MAX_CARRIED 8  /* parameters that one turn hands to the next */
#define K_MAX_FOLDS   16 /* reductions, and ... */
#define K_MAX_STORES                                                                               \
    8 /* ... axes sets of stores: without a template, each may take its own pass                   \
       */

typedef uint32_t KVal; /* index into Kernel.ops; 0 = none */

/* What a kernel's loops are like. These words start its name and stand in text and plans. */
#define KIR_KINDS(X)                                                                               \
    X(poi) /* each point by itself */                                                              \
    X(red) /* folds over reduced axes */                                                           \
    X(per) /* folds over a row, and stores points of that row */                                   \
    X(tem) /* a loop structure of its own: see KTem */
typedef enum KKind {
#define X(name) KERNEL_##name,
    KIR_KINDS(X)
#undef X
} KKind;

/* X(name, whether it stores points of its reduced axes) */
#define KIR_TEMPLATES(X)                                                                           \
    X(none, 0)                                                                                     \
    X(dot, 0)                                                                                      \
    X(attention, 0)                                                                                \
    X(attention_gradient, 0)                                                                       \
    X(attention_gradients, 1)                                                                      \
    X(scan, 1)                                                                                     \
    X(sort, 1)                                                                                     \
    X(compact, 1)                                                                                  \
    X(dealt, 1) /* the kind is `per` */
typedef enum KTem {
#define X(name, points) TEM_##name,
    KIR_TEMPLATES(X)
#undef X
        TEM_COUNT
} KTem;

/* AX_PAR: each value once, any order. AX_RED: folded or, in a `per`, a row that is walked. */
typedef enum KAxisKind { AX_PAR, AX_RED } KAxisKind;

typedef struct KAxis {
    uint32_t sym; /* its symbol (SYM_AXIS) in the pool */
    Expr extent;  /* free of axis symbols */
    KAxisKind kind;
} KAxis;

/* Ops of the body beside the MAP core ops (same numbers as enum Op, so a MAP op is its own code).
 * X(name, operands): */
#define KIR_OPS(X)                                                                                 \
    X(konst, 0)   /* imm (of OP_cast: bit 0 = do not saturate, bits 1-2 = round) */                \
    X(kexpr, 0)   /* i64 value of `index` */                                                       \
    X(kload, 1)   /* param `buf` at element `index`; where `mask` is 0: in[0] (or 0 if none) */    \
    X(kstore, 1)  /* in[0] to param `buf` at `index` where mask != 0; domain = own axes */         \
    X(katomic, 1) /* buf[index] = mode(buf[index], in[0]); only in serial kernels */               \
    X(kbind, 1)   /* symbol `sym` (SYM_INDIRECT) = in[0] in later index expressions */             \
    X(kreduce, 1) /* fold in[0] over `axes` with `fold`; argmax/argmin give the i64 position along \
                     the single axis */                                                            \
    X(kscan, 1) /* running fold over the single axis in `axes`; imm: bit 0 exclusive, 1 reverse */ \
    X(ksort, 1) /* i64 stable order along the axis: position of the value that belongs at the      \
                   axis's index; imm bit 1: descending; from bit 2 on: how many are read, 0: all.  \
                   Behind them is anything */                                                      \
    X(kcompact, 1) /* template: buf[..] = indices of true values; their count to symbol `sym` and  \
                      to the i64 parameter kir_count_param */
typedef enum KOpCode {
    K_first = OP_COUNT,
#define X(name, n) K_##name,
    KIR_OPS(X)
#undef X
        K_COUNT
} KOpCode;

/* Folds: X(name, the op that joins two values). Those from argmax on give a position. */
#define KIR_FOLDS(X)                                                                               \
    X(sum, OP_add)                                                                                 \
    X(prod, OP_mul)                                                                                \
    X(max, OP_max)                                                                                 \
    X(min, OP_min)                                                                                 \
    X(argmax, OP_none)                                                                             \
    X(argmin, OP_none)                                                                             \
    X(argmax_last, OP_none)                                                                        \
    X(argmin_last, OP_none)
typedef enum KFold {
#define X(name, join) FOLD_##name,
    KIR_FOLDS(X)
#undef X
        FOLD_COUNT
} KFold;

typedef struct KOp {
    uint16_t op;
    uint8_t dtype; /* DType of the result; of the memory element for load and store */
    uint8_t fold;  /* KFold, or ScatterMode for katomic */
    KVal in[3];
    uint32_t axes;
    uint32_t buf, sym;
    Expr index, mask; /* mask 0 = always */
    union {
        double f;
        int64_t i;
    } imm;      /* konst: f for float types, i otherwise */
    Value node; /* the graph node this came from, for dumps; 0 = made by lowering */
} KOp;

typedef struct KParam {
    DType dtype;
    bool written;
    Expr numel; /* elements of the buffer it will be bound to: what accesses must stay within */
} KParam;

#define K_MAX_ACC      4
#define K_PANEL_GROUPS 16 /* of pairs or fours of rows of B, of which such panels are made */

/* Templates. Every member that is an op, a mask of axes, a parameter or an expression has a row in
 * template.def. */

/* tem dot: acc[i] = reduce sum over k axes of mul(a, b[i]). Axes are bit masks. m, n, k axes are
 * listed outermost first within their order in Kernel.axes. Other sums of products in the body are
 * *terms*: over axes of their own and [batch, m, n], each added to an acc with nothing in between
 * but other such sums. A convolution is a dot with several m
 * and k axes whose A index may be masked. */
typedef struct KDot {
    uint32_t batch, m, n, k;
    uint32_t nacc;
    KVal acc[K_MAX_ACC], a, b[K_MAX_ACC];
    uint32_t pack; /* panel width NR when B was packed by a prepare step into [batch][N/NR][K][NR]
                      (zero filled to NR); 0 = B as it comes. B's load index says the same. */
    bool quads; /* operands are u8 and i8 behind casts that widen them, K is known, and rows of B's
                   panels lie in fours, a multiple of K_PANEL_GROUPS of those:
                      [batch][N/NR][ceil(K/64)*16][NR][4], zero filled */
    bool pairs; /* operands of B are bf16 behind a cast, and rows of its panels lie in pairs,
                   likewise: [batch][N/NR][ceil(K/32)*16][NR][2], zero filled */
    uint32_t block; /* 0, or rows of k under one scale: a and each b are integers of 8 bits or less
                       times what does not change along a block (kir_scaled), those of b words of
                       several rows each. K is known and made of whole blocks */
    uint32_t wino;  /* 0, or 1 + the param that holds B transformed for Winograd F(2,3), f32
                       [ceil(N/NR)][16][C][NR]: a 3x3 convolution of stride 1, m = .., oh, ow and
                       k = kh, kw, c. The body does not mention that param. */
} KDot;

/* tem attention: o[.., i, dv] = sum_j softmax_j(score(sum_d q*k)) * v. Scores are never stored.
 * Axes: batch (batch and heads), i (one query axis), j (one key axis), d, dv (one each). */
typedef struct KAttn {
    uint32_t batch, i, j, d, dv;
    KVal q, k;    /* domains {batch, i, d} and {batch, j, d} */
    KVal s;       /* the kreduce over d of mul(q, k) */
    KVal score;   /* what softmax sees: s after scale, mask, bias; domain {batch, i, j} */
    KVal m, e, l; /* kreduce max of score over j, exp(score - m), kreduce sum of e over j */
    KVal v;       /* domain {batch, j, dv} */
    KVal o;       /* kreduce over j of mul(p, v), p = e / l possibly guarded */
    bool guarded; /* rows without any finite score give 0, not NaN */
    Expr causal;  /* 0, or how far ahead: score is masked wherever j > i + causal */
} KAttn;

/* tem attention_gradient: o[.., i, n] = sum_j p(s[0], s[1])[i, j] * b[j, n], where s[k] = sum_d
 * x[k]*y[k] are never stored. With queries as i and keys as j, or the other way round. Where there
 * is one s, s[1] and its factors are those of s[0]. */
typedef struct KAttnGrad {
    uint32_t batch, i, j, d, n; /* d: of both s */
    KVal x[2], y[2], s[2];      /* domains {batch, i, d}, {batch, j, d}, {batch, i, j} */
    KVal p, b;                  /* domains {batch, i, j} and {batch, j, n} */
    KVal o;                     /* kreduce over j of mul(p, b) */
    Expr ahead, behind;         /* 0, or p is 0 wherever j > i + ahead, j < i - behind */
} KAttnGrad;

/* tem attention_gradients: all three of one attention, with keys as i and queries as j. Keys' is
 * the template above (Kernel.grad); v: values', sum_j p(s[0])[i, j] * b[j, n]; q: queries', sum_i
 * grad.p[i, j] * b[i, n], which is stored as it is and nowhere else. i and j are both folded, and
 * walked by stores. */
typedef struct KAttnGrads {
    uint32_t nv, nq; /* columns of the two */
    KVal pv, bv, ov, bq, oq;
} KAttnGrads;

#define K_EVEN 8 /* elements that whole vectors of all types are multiples of */

/* tem dealt: rows, and sums of columns beside them, where clusters of blocks (or one) share long
 * rows that may start at any element of a vector. Axes are clusters, turns and columns of a cluster
 * (AX_PAR, AX_RED, AX_RED). Rows stand in lists: every `lists`-th is of one list, and all of a list
 * start at one element of a vector, those of the next K_EVEN / lists further along it. A cluster
 * takes neighbours in the order of lists, and keeps each row's first element at column `shift`,
 * where it lies in a vector in the cluster's last list. What is read or stored of turns and columns
 * lies at one place, column by column; what belongs to no row is masked (kir_dealt_masks). */
typedef struct KDealt {
    uint32_t sharers; /* blocks of a cluster */
    uint32_t columns; /* of a row; a multiple of K_EVEN / lists. Columns of a cluster are more where
                         rows do not fill vectors: fewer than K_EVEN * (sharers + 1) */
    uint32_t lists;   /* a power of two up to K_EVEN, ... */
    uint32_t per;     /* ... each of so many rows */
    uint32_t at_once; /* `per`, `first` and `rows` are multiples of this */
    Expr first, rows; /* of a cluster: its first row's place in the order of lists; how many it has,
                         one at least: turns from there on have no row */
    Expr shift;
} KDealt;

typedef struct Kernel {
    const char *name; /* poi_3_add_relu */
    KKind kind;
    KTem tem;
    bool serial;   /* points whose updates may meet at one address are taken in order (scatter) */
    uint32_t more; /* times that it does the same again, in any order, each time over further
                      parameters: those of the first time, which the body names, come first */
    Expr turns;    /* 0, or it does all of that so many times, one after the other, with ... */
    uint32_t turn; /* ... this symbol (SYM_ITER) from 0 on. What stands in a parameter that it reads
                      and writes was stored by the turn before, at the same point (kir_carries) */
    uint32_t naxes, nparams, nops;
    KAxis *axes;
    KParam *params;
    KOp *ops; /* ops[0] is a placeholder */
    KDot dot;
    KAttn attn;
    KAttnGrad grad;
    KAttnGrads grads;
    KDealt dealt;
    uint32_t nlocs, ncomputed;
    Loc *locs; /* ONNX nodes covered: those that it computes, then views that it looks through */
    Expr bytes_read, bytes_written, flops; /* least traffic: each element once */
} Kernel;

extern const char *const kir_kind_name[];

KFold kir_fold(Op join); /* the fold in which that op joins two values */

/* Parameters that the body names. */
static inline uint32_t kir_body_params(const Kernel *k) {
    return k->nparams / (1 + k->more);
}

/* Of a kernel with turns: the parameter hands what one turn stored to the next. */
bool kir_carries(const Kernel *k, uint32_t param);

/* The parameter that a kcompact writes the count to: the one after its positions. */
static inline uint32_t kir_count_param(const KOp *compact) {
    return compact->buf + 1;
}

/* Axes (bit mask) that each op's value depends on; domains has nops slots. */
void kir_domains(const Kernel *k, ExprPool *p, uint32_t *domains);
/* After ops were given other numbers: to[old] = new, to[0] = 0. */
void kir_renumber_roles(Kernel *k, const KVal *to);
/* Invariants: operands precede uses, types fit, stores' domains, masks, params. */
graphc_status kir_verify(const Kernel *k, ExprPool *p, DiagSink *d);
void kir_print(const Kernel *k, ExprPool *p, StrBuf *out);
Kernel *kir_parse(Arena *a, ExprPool *p, DiagSink *d, const char *text, const char **end);
/* Numbers that integers stand for: (q - zero) * scale, where q is i8, or `bits` of a word of u32,
 * the first of several neighbours' lowest. */
typedef struct KScaled {
    KVal q, zero, scale; /* zero: 0 = none */
    KVal word, shift;    /* 0, or q is word >> shift & (1 << bits) - 1 */
    uint32_t bits;
} KScaled;
bool kir_scaled(const Kernel *k, KVal v, KScaled *x);
/* Whether the operands of a dot are in blocks of k->dot.block rows as KDot says. Needs k's axes to
 * have their roles. */
bool kir_in_blocks(const Kernel *k, ExprPool *p);
/* Of a dot in f32 whose right operands are such words: rows of k, KIR_PART or half as many, of
 * which k has a whole number, and for which each column has one scale and one zero point, an
 * integer. 0: it is no such dot. *bits: of what words hold; NULL: not asked for. */
#define KIR_PART 32
uint32_t kir_part(const Kernel *k, ExprPool *p, uint32_t *bits);
/* Of a dealt kernel at that turn and column: whether the turn has a row; whether the column is the
 * row's, where that has its first at column `shift`. */
typedef struct KDealtMasks {
    Expr live, inside;
} KDealtMasks;
KDealtMasks kir_dealt_masks(const KDealt *d, ExprPool *p, Expr turn, Expr column, Expr shift);
/* Reference interpreter: bufs[i] has params[i].dtype elements. sym_values: all non-axis symbols. */
graphc_status kir_eval(const Kernel *k, ExprPool *p, void *const *bufs, const int64_t *sym_values,
                       Arena *a);

#endif
