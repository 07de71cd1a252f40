/* Reference evaluator: every core op, straightforwardly, in f64 (integers in i64). The oracle for
 * tests, constant folding and `graphc verify`. Memory is checked. */
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
    bool round_f32;     /* true: round every result to its own dtype (what a naive runtime gives);
                           false: floats are carried in f64 from input to output */
    bool round_halves;  /* true: only results of less than 32 bits are rounded */
    uint64_t max_bytes; /* 0 = 8 GiB */
    const EvalTensor
        *states;      /* what the graph's states hold before the run; NULL: initial values */
    EvalTensor *next; /* if not NULL: receives what they hold after it ... */
    uint32_t entry;   /* ... as a run of this entry; outputs are those of all */
    void (*progress)(void *ctx, uint32_t done, uint32_t of); /* nodes of the outermost graph */
    void *ctx;
    /* A constant of the outermost graph was read, perhaps for the last time; NULL is allowed. */
    void (*used)(const Constant *c);
} EvalOptions;

/* Looking at values of the outermost graph as they are made, and going on with others. */
typedef enum EvalLook {
    EVAL_LOOK = 1, /* at this value */
    EVAL_LOOSE = 2 /* a cast to a half type may be left out */
} EvalLook;
/* A value that evaluation goes on with in place of its own: of the node's type and shape. */
typedef struct EvalOther {
    int64_t stride[GRAPH_MAX_RANK]; /* in elements */
    void *data;
    uint64_t bytes; /* if malloc gave `data`, which evaluation frees then; 0: it lasts as long as
                       any that is computed from it is looked at */
} EvalOther;
/* Those elements of a value whose coordinate along `axis` is at least `first`: as many as there
 * are. A large value comes in such parts, in order, and is never whole; else one part is all of it.
 */
typedef struct EvalPart {
    int axis;
    int64_t first;
} EvalPart;
typedef struct EvalWatch {
    const uint8_t *what; /* per node */
    /* Before a value of this type and shape is looked at (it has no data): whether there is another
     * to go on with. It stays as it is while parts are looked at. NULL: there never is. */
    bool (*other)(void *ctx, Value v, const EvalTensor *shape, EvalOther *other);
    /* error: how far from each element a correct implementation may be that starts from the others
     * given before (eval_error.c); NULL: nowhere. */
    void (*look)(void *ctx, Value v, EvalPart part, const EvalTensor *want, const double *error);
    void *ctx;
} EvalWatch;
/* Of a float type: half the distance of neighbours around 1, and of those around 0. What is rounded
 * to it is off by so much of itself, but by no less than the latter. */
double eval_unit(DType t);
double eval_least_unit(DType t);

/* Runs g on inputs (one per g->inputs, dtypes as declared). sym_values: value of every symbol, as
 * bound from the inputs by eval_bind. Float results come as f64 unless they are rounded. */
graphc_status eval_bind(const Graph *g, const EvalTensor *inputs, int64_t *sym_values);
/* What a new session's state holds. */
EvalTensor eval_initial(const Graph *g, uint32_t state, Arena *a);
graphc_status eval_run(const Graph *g, const EvalTensor *inputs, const EvalOptions *opt, Arena *a,
                       EvalTensor *outputs);

/* The same piece by piece, for a watch: values are made in the order in which they are asked for,
 * each after what it needs, and held until the last that needs it, of those that the watch looks
 * at, is made. inputs, opt's states and watch outlive the run. eval_close follows whatever came of
 * it. */
typedef struct EvalRun EvalRun;
graphc_status eval_open(const Graph *g, const EvalTensor *inputs, const EvalOptions *opt, Arena *a,
                        const EvalWatch *watch, EvalRun **out);
/* Every node below v that may give a size its value comes first (eval_sizes). */
graphc_status eval_reach(EvalRun *r, Value v);
void eval_close(EvalRun *r); /* NULL is allowed */
/* Whether node v may define the symbol of a size. */
bool eval_sizes(const Graph *g, Value v);
/* One node on constant operands, for folding; false if too large or not evaluable. */
bool eval_fold(Graph *g, const Node *n, Constant *out);

#endif
