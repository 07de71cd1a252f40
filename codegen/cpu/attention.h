/* What the files of the CPU attention templates share. Of attention itself first, gradients below.
 *
 * Work items are (batch and head, block of queries). Two loop structures:
 *   many queries   queries run over lanes: S^T = K Q^T tile by tile with the score body applied in
 *                  registers, column-wise softmax, then O += P^T V. Only Q is transposed.
 *   few queries    one query at a time with keys, then value columns, over lanes (decoding)
 * Keys come in blocks with a running maximum and sum per query, so scores stay in cache for any
 * number of keys. K and V are read in place where rows are contiguous f32 (or f64), else a block is
 * computed into scratch first; a scaled or widened load is computed for each of few queries
 * instead.
 *
 * Gradients (attention_gradient.c) are contractions over j of something computed from one or two
 * inner products: their rows run over lanes like queries, and j comes in blocks like keys. There i,
 * j and dv are the template's axes i, j and n.
 *
 * A row whose maximum is -inf uses 0 in its place, so that nothing but its sum is 0: such a row
 * gives 0 if guarded, else 0/0. */
#ifndef CODEGEN_TEMPLATES_ATTENTION_H
#define CODEGEN_TEMPLATES_ATTENTION_H

#include "codegen/emit/emit.h"

#define ATTN_UNIT       16  /* queries: the unit in which they are cut, on every target */
#define ATTN_UNITS      4   /* units in a block */
#define ATTN_KEYS       256 /* keys in a block */
#define ATTN_CHUNK      16  /* elements of a row that are summed in one accumulator, ... */
#define ATTN_ALONE      32  /* ... where no gradient is made of the scores */
#define ATTN_CHUNK_KEYS 64  /* keys whose products with values are summed in one accumulator */
#define ATTN_FEW        8   /* fewer queries than this go one at a time */

/* K or V: rows of `size` elements, in place or copied block-wise. */
typedef struct AttnRows {
    KVal v;
    uint32_t axis;     /* along the row: d or dv */
    Expr size, padded; /* elements; rounded up to vectors */
    bool direct;       /* read in place */
    bool kept;         /* copied once for all blocks of queries of a head */
    bool quick;        /* computed where one query needs it, as cheaply as read from a copy */
    bool whole;        /* size is a multiple of the lanes */
    LLVMValueRef copy;
} AttnRows;

typedef struct Attn {
    Emit *e;
    const Kernel *k;
    const KAttn *t; /* not of a gradient */
    uint32_t batch; /* axes */
    KVal result;
    ExprPool *p;
    DType acc;
    LLVMTypeRef elem, vec;
    uint32_t bytes, lanes;
    uint32_t nv;               /* most vectors of queries at a time */
    uint32_t nq;               /* nv * lanes: row length of qt and scores */
    uint32_t out_rows, out_nv; /* tile of O += P^T V */
    uint32_t sym_i, sym_j, sym_d, sym_dv;
    Expr ni, nj, nd, ndv;
    Expr shift;      /* 0, or keys j > i + shift are masked */
    AttnRows kr, vr; /* of a gradient there is no kr, and b is vr */

    /* scratch */
    LLVMValueRef qt;                         /* [nd][nq], or one query */
    LLVMValueRef scores;                     /* [ATTN_KEYS + pad][nq], or one row */
    LLVMValueRef out;                        /* [nq + pad][padded ndv] */
    LLVMValueRef max, sum, scale, block_max; /* [nq] each; NULL of a gradient */

    /* current block */
    LLVMValueRef fresh;           /* whether it is the first of its batch that the call works on */
    LLVMValueRef query0, queries; /* first query, their number */
    LLVMValueRef vectors;         /* query vectors of this block */
    LLVMValueRef key0, keys;      /* current block of keys */
} Attn;

/* attention_parts.c */
void attn_copy_rows(Attn *t, const AttnRows *r); /* keys [key0, key0 + keys), unless kept */
void attn_keep_rows(Attn *t);                    /* all keys of what is kept */
/* Address of element `at` (a symbol's expression or 0) of row `row`, counted from key0. */
LLVMValueRef attn_row(Attn *t, const AttnRows *r, LLVMValueRef row);
LLVMValueRef attn_at(Attn *t, LLVMValueRef base, LLVMValueRef index);   /* element address */
LLVMValueRef attn_load(Attn *t, LLVMValueRef base, LLVMValueRef index); /* a vector */
void attn_store(Attn *t, LLVMValueRef v, LLVMValueRef base, LLVMValueRef index);
LLVMValueRef attn_add(Attn *t, LLVMValueRef x, int64_t c);
LLVMValueRef attn_mul(Attn *t, LLVMValueRef x, LLVMValueRef y);
LLVMValueRef attn_max(Attn *t, LLVMValueRef x, LLVMValueRef y);
LLVMValueRef attn_exp(Attn *t, LLVMValueRef x);      /* of x <= 0 */
LLVMValueRef attn_finite(Attn *t, LLVMValueRef max); /* -inf -> 0 */
/* 1/sum, or 0 for guarded rows without a score. */
LLVMValueRef attn_inverse(Attn *t, LLVMValueRef max, LLVMValueRef sum);
/* Stores row `query` (bound to i) from O's row at `from`, times `inverse`, and what is made of its
 * statistics, which are at `row` of max and sum. inverse NULL: O as it is, and no statistics. */
void attn_finish_row(Attn *t, LLVMValueRef query, LLVMValueRef row, LLVMValueRef from,
                     LLVMValueRef inverse);
/* for (key0 = 0; ...) around body, with what causal masking leaves. */
void attn_key_blocks(Attn *t, LLVMValueRef last_query, void (*body)(Attn *t));

/* Elements of a row that are summed in one accumulator. Queries' and keys' gradients nearly cancel,
 * so scores that they are made of, here or from the statistics that are kept, are summed finer. */
uint32_t attn_chunk(const Attn *t);
bool attn_one_axis(uint32_t axes);
void attn_set_widths(Attn *t, uint32_t i, uint32_t j, uint32_t dv);
AttnRows attn_rows(Attn *t, KVal v, uint32_t axes);
LLVMValueRef attn_reserve(Attn *t, Expr elements);
/* The work items of the kernel; body has query0 and queries. */
void attn_items(Attn *t, EmitInfo *info, Expr macs, void (*body)(Attn *t));

/* attention_many.c. Tiles of `rows` keys from key0 + first on by nv vectors of queries. Keys past
 * the block's last repeat it; what is stored for them lies beyond the block and is never read. */
typedef struct AttnTile {
    uint32_t rows, nv;
    LLVMValueRef first, row[8]; /* rows of the tile, within the block */
    Expr j[8], query;
    LLVMValueRef mask[4];
} AttnTile;
void attn_parts(Attn *t, void (*part)(Attn *t)); /* of up to nq queries each; sets `vectors` */
/* to[at][query] for the part's vectors of queries, `at` along axis sym; past the last they repeat.
 */
void attn_transpose(Attn *t, KVal v, uint32_t sym, Expr size, LLVMValueRef to);
/* tile for all keys of the block, as code for each number of vectors. */
void attn_tiles(Attn *t, void (*tile)(Attn *t, AttnTile *s));
/* acc[row * nv + vector] = product of rows with what attn_transpose made. */
void attn_products(Attn *t, const AttnTile *s, const AttnRows *rows, LLVMValueRef qt, Expr size,
                   LLVMValueRef *acc);
LLVMValueRef attn_score_at(Attn *t, const AttnTile *s, uint32_t row, uint32_t vector);
/* O = O * scale (if there is one) + P^T V over the block's keys, P being what is in `scores`. */
void attn_outputs(Attn *t);
void attn_clear_out(Attn *t);

void attn_many(Attn *t); /* attention_many.c */
void attn_few(Attn *t);  /* attention_few.c */

#endif
