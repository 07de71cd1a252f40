/* Which initializers of a model are its weights. The importer makes states of them all, so that
 * nothing is computed from them beforehand; those that are not trained become constants again.
 *
 * An initializer is a weight if it is of a floating type and, whole or in parts, what is learnt in
 * one of the usual places, in a loop's body, too: an operand of a contraction (queries, keys,
 * values, on either side), the weights of a convolution, the table of a gather, a vector that is
 * added to what these give, or a constant whose name is that of a parameter (".weight", ".bias" and
 * the like at its end). Frequencies of a rotary embedding, which are multiplied in an outer
 * product, masks and scalars are none of these. Others of more than one element are named in a
 * note. */
#ifndef GRAPH_GRAD_TRAINABLE_H
#define GRAPH_GRAD_TRAINABLE_H

#include "graph/ir/ir.h"

/* Extended regular expressions (POSIX) that whole names match; NULL: no say. */
typedef struct Trainable {
    const char *train;  /* these and no others, whatever their place */
    const char *freeze; /* not these */
} Trainable;

typedef struct Weights {
    VEC(Value) state; /* of the new graph */
} Weights;

/* The graph whose states are the weights. Needs: initializers as states. Those that the model
 * itself writes stay states and are no weights. D_USAGE where nothing is trained, or an
 * expression is none. */
graphc_status trainable_apply(const Graph *g, const Trainable *t, Graph **out, Weights *w);

#endif
