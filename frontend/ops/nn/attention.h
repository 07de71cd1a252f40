/* The one spelling of attention that all attention operators lower to, and rotary embedding. */
#ifndef FRONTEND_ATTENTION_H
#define FRONTEND_ATTENTION_H

#include "frontend/import/formula.h"

/* scores = dot(q, k^T) * scale; softcap; + bias; select(keep, ., -inf); softmax; dot with v.
 * Fewer heads in k and v than in q are repeated by views. Computed in f32 for the 16-bit types. */
typedef struct Attention {
    Value q, k, v;         /* [B, H, S, D], [B, KVH, T, D], [B, KVH, T, DV] */
    double scale, softcap; /* softcap 0: none */
    Value bias;            /* added to the scores, broadcast to [B, H, S, T]; or 0 */
    Value keep;            /* bool, broadcast likewise; or 0 */
    bool may_mask_all;     /* rows without any kept position give 0 */
    Value sink;            /* [H] extra scores that take part in the sum only; or 0 */
    DType precision;       /* of the softmax; DT_none: that of the scores */
    /* Replaces the scores before, or the probabilities after, the softmax; NULL = neither. */
    Value (*modify)(void *ctx, bool after, Value x);
    void *ctx;
    /* What was computed on the way, [B, H, S, T]. */
    Value raw, capped, masked, probability;
} Attention;

/* The result [B, H, S, DV] in q's type. */
Value attention_build(Graph *g, Attention *a);

/* The heads of q are a multiple of those of k and v: false after an error. */
bool attention_check_heads(Lower *l, const Attention *a);
/* [B, S, H*D] -> [B, H, S, D] and back. */
Value attention_split_heads(Graph *g, Value x, int64_t heads);
Value attention_merge_heads(Graph *g, Value x);

typedef struct AttentionSpan {
    Expr rows, cols;     /* S, T */
    Value offset;        /* position of row 0 among the columns, i64, broadcast to [B, 1, S, T] */
    int64_t left, right; /* how far a row sees to each side; -1 = without limit */
} AttentionSpan;
/* bool of [.., S, T]: true where column j is within the span of row i; 0 if nothing is masked. */
Value attention_span_mask(Graph *g, const AttentionSpan *s);
/* true where column < length: lengths i64 [B] -> bool [B, 1, 1, T] */
Value attention_length_mask(Graph *g, Value lengths, Expr cols);
Value attention_and(Graph *g, Value x, Value y); /* either may be 0 */

/* x [B, H, S, D] with cos and sin [B or 1, S, R/2] rotated in its first R elements. */
Value attention_rotate(Graph *g, Value x, Value cosine, Value sine, bool interleaved);

#endif
