/* Several documents in one row: attention stays inside of each.
 *
 * Needs: attention raised (graph_before_gradients). Gives the graph an input `document_ids` of the
 * type of its tokens, i64 [batch, seq], and of attention over tokens each score to a token of another
 * document becomes -inf. Keeps: what a row of one document means. A model without attention over
 * tokens, or with such an input of its own, stays as it is. D_UNSUPPORTED where attention is not over
 * [batch, .., seq, seq]: the message names it. */
#ifndef GRAPH_GRAD_DOCUMENTS_H
#define GRAPH_GRAD_DOCUMENTS_H

#include "graph/ir/ir.h"

graphc_status documents_apply(const Graph *g, const Graph **out);

#endif
