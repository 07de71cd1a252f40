/* Graph passes. Each takes a verified graph and gives a verified graph; what a pass needs, keeps
 * and breaks is stated above its definition. Passes build a new graph (same pool, same arena) that
 * points to nothing that the old one alone has. */
#ifndef GRAPH_PASS_H
#define GRAPH_PASS_H

#include "graph/build/build.h"

/* X(name, what it does); graph_optimise says in which order, some of them twice. */
// clang-format off
#define GRAPH_PASSES(X)                                                                                     \
    X(canon, "algebra: guards, spellings of one meaning, views pushed towards inputs")                      \
    X(transpose_sink, "permutes move through maps and reductions until they cancel")                        \
    X(bn_fold, "per-channel scale and shift after a convolution move into its weights and bias")            \
    X(merge_dots, "contractions that share an input become one with concatenated weights")                  \
    X(captures, "what loops take and cast to fewer bits at each turn is cast in front of them")              \
    X(gates, "a contraction whose halves meet again element by element becomes two, for one kernel")        \
    X(raise, "softmax between two contractions becomes an attention")                                       \
    X(conv_phases, "convolutions between zeros become one convolution per remainder of the stride")         \
    X(patches, "convolutions whose windows lie side by side become contractions: for targets that ask")     \
    X(parts, "what is computed of several contractions' results put together is computed of each")           \
    X(mixes, "products with matrices of few numbers across strides become sums of slices: for targets that ask")\
    X(turn_captures, "weights that a loop's contractions turn are turned in front of it: for targets that ask")\
    X(turn_conv, "gradients of convolutions' weights become products: for targets that ask")                \
    X(conv_widen, "convolutions of few channels get wider pixels: for targets that ask, see Machine")       \
    X(conv_widen_f32, "the same of f32")                                                                    \
    X(quads, "quantised contractions become sums of products of u8 by i8: for targets that ask")            \
    X(bytes, "quantised contractions become products of bytes, or of floats of 8 bits: for targets that ask")\
    X(requantise, "scales between integers become one constant, and what integers cannot be is not asked: behind quads")\
    X(few_bits, "weights that contractions dequantise are spelled as rows of blocks: behind quads")          \
    X(cut_sums, "long sums with few results become sums of parts: for targets that ask, see Machine")       \
    X(cut_dots, "contractions of long sums with few results become sums of parts: for targets that ask")      \
    X(join_sums, "sums of contractions are rounded once: for targets that ask, see Machine.terms")          \
    X(digits, "products of f32 become sums of products of f16 digits: for targets that ask")                \
    X(high_digits, "products of f32 become products of their high f16 digits: tf32")                        \
    X(dce, "dead nodes are dropped and numbers compacted")
// clang-format on

#define X(name, what) Graph *pass_##name(Graph *g);
GRAPH_PASSES(X)
#undef X

/* What is multiplied: DT_bf16 or DT_f16; streams: what is stored between kernels, too. */
Graph *pass_precision(Graph *g, DType to, bool streams);

/* few_bits, and what these weights multiply is rounded to 8 bits in their blocks: accuracy level 4.
 */
Graph *pass_few_bits_rounded(Graph *g);

/* Whether maps and views lead from exponentials to v: the weights of attention, whose products
 * cut_sums and cut_dots leave alone, as fusion looks for them. */
bool pass_weighs(const Graph *g, Value v);

/* The composites of g itself that `which` has, by value, as core ops (pass_raise.c). */
Graph *pass_decompose(const Graph *g, const bool *which);

/* *g becomes `next`, which was made of it, and is given back: but not `kept`, of which somebody
 * else knows, nor where a pass gave what it took. */
void graph_replace(Graph **g, Graph *next, const Graph *kept);

typedef struct PassDump {
    void (*fn)(void *ctx, int index, const char *pass, const Graph *g); /* called when it changed */
    void *ctx;
} PassDump;

/* What has a gradient of its own is raised, as graph_optimise does too; values get other numbers */
graphc_status graph_before_gradients(Graph **g);

/* All passes in order, to a fixpoint where it pays; verifies after each in debug builds. precision:
 * DT_f32 leaves the model's own types; streams as pass_precision has it. */
graphc_status graph_optimise(Graph **g, DType precision, bool streams, const PassDump *dump);

/* documents.c: rows of tokens [batch, seq] hold several documents, which an input `document_ids`,
 * i32 of that shape, tells apart: no attention from one to another. D_UNSUPPORTED where attention
 * is not over [batch, .., seq, seq]: the message names it. */
graphc_status graph_keep_documents(const Graph *g, const Graph **out);

/* What fusion makes of a contraction's right operand (fusion/analyse/forms.c), which passes count
 * on: weights of at least so many columns a group are packed, and bytes that the run gives are
 * turned for at least so many rows. */
enum { PACKED_COLS_LEAST = 16, TURNED_ROWS_LEAST = 16 };

/* tie.c: an input and an output of the model become one state, which the output is written to: a
 * cache that grows along the axis in which they differ, up to the most that its size may be; of
 * equal types, a state of that type. Errors name both. */
graphc_status graph_tie(Graph *g, const char *input, const char *output);

#endif
