/* Reference evaluator: every core op, straightforwardly, in f64 (integers in i64). The oracle for
 * tests, constant folding and `graphc verify`. Speed is no aim; memory is checked. */
#ifndef GRAPH_EVAL_H
#define GRAPH_EVAL_H

#include "graph/ir/ir.h"

typedef struct EvalTensor {
    DType dtype;
    uint8_t rank;
    int64_t dim[GRAPH_MAX_RANK];
    void *data; /* elements of dtype, row-major */
} EvalTensor;

typedef struct EvalOptions {
    bool round_f32; /* true: round every result to its own dtype (what a naive runtime gives);
                       false: floats are carried in f64 from input to output */
    uint64_t max_bytes; /* 0 = 8 GiB */
    const EvalTensor *states; /* what the graph's states hold before the run; NULL: initial values */
    EvalTensor *next;         /* if not NULL: receives what they hold after it ... */
    uint32_t entry;           /* ... as a run of this entry; outputs are those of all */
} EvalOptions;

/* Runs g on inputs (one per g->inputs, dtypes as declared). sym_values: value of every symbol, as
 * bound from the inputs by eval_bind. Float results come as f64 unless round_f32. `values`, if not
 * NULL, has g->nodes.n slots and receives every node's tensor (for verify). */
graphc_status eval_bind(const Graph *g, const EvalTensor *inputs, int64_t *sym_values);
/* What a new session's state holds. */
EvalTensor eval_initial(const Graph *g, uint32_t state, Arena *a);
graphc_status eval_run(const Graph *g, const EvalTensor *inputs, const EvalOptions *opt, Arena *a,
                       EvalTensor *outputs, EvalTensor *values);
/* One node on constant operands, for folding; false if too large or not evaluable. */
bool eval_fold(Graph *g, const Node *n, Constant *out);

#endif
