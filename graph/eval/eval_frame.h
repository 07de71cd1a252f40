/* One run of one graph: what eval.c and eval_slices.c share. */
#ifndef GRAPH_EVAL_FRAME_H
#define GRAPH_EVAL_FRAME_H

#include "graph/eval/eval_impl.h"

/* A value is made when the first that needs it is asked for, and dropped after its last use. */
typedef struct Frame {
    Eval *e;
    const Graph *g;
    Tensor *v;               /* by value */
    Tensor **tuple;          /* results of if and loop nodes, by value */
    uint32_t *uses;          /* that are still to come: of roots, and of what they need */
    uint8_t *state;          /* by value: enum FrameState */
    Value *stack;            /* frame_make: each waits for the next */
    Value *sizing;           /* nodes that may define the symbol of a size, in order ... */
    uint32_t nsizing, sized; /* ... of which so many are made */
    Tensor *in;              /* operands of the node at hand ... */
    Tensor *err, *err_in;    /* with a watch: bounds of errors, by value and of the operands */
    double **far;            /* with a watch: how far roundings take a loop's results, by value */
    const EvalWatch *watch;
    const EvalOptions *opt; /* of the outermost graph, else NULL */
    uint32_t made, needed;  /* nodes */
} Frame;

enum FrameState { FRAME_idle, FRAME_needed, FRAME_made };

/* Dimensions in this run: of a type, of v. */
void frame_type_dims(Eval *e, const Type *t, int64_t *dim);
void frame_dims(const Frame *f, Value v, int64_t *dim);
void frame_drop(Frame *f, Value v);
/* v is made: its operands were read once more, and what the run wants of it is done. */
void frame_done(Frame *f, Value v);

/* eval_look.c: a value that the watch looks at, part by part: begin, each part, end. Then it holds
 * what evaluation goes on with. look_free follows whatever came of it. */
typedef struct Look {
    Value value;
    bool has_other; /* parts need not be kept */
    Tensor other;
} Look;

bool looked_at(const Frame *f, Value v);
bool look_begin(Frame *f, Value v, Look *l);
bool look_part(Frame *f, const Look *l, EvalPart part, const Tensor *x, const Tensor *error);
bool look_end(Frame *f, Look *l);
void look_free(Frame *f, Look *l);
bool look_at_whole(Frame *f, Value v); /* which was made whole */

/* eval_slices.c: values that are large are made part by part, together with all up to the next that
 * is looked at, which is by parts, or asked for, which is made whole. */
typedef struct Slices {
    Value root;      /* what is looked at or made whole */
    int axis;        /* of root: cut into parts */
    int8_t *of;      /* by value: the axis that is cut there; -1: not made in parts */
    uint32_t *edges; /* by value: readers that are made in parts */
    Value missing;   /* is read whole, or by others too, and is to be made before; 0: none */
    uint64_t most;   /* bytes of the largest, whole */
} Slices;

/* Of the largest value of a part, for graphs with such weights. */
uint64_t slices_part_bytes(const Graph *g);
/* Whether `large`, the top of the stack of `depth` values, whose operands are there, is worth it */
bool slices_find(Frame *f, uint32_t depth, Slices *s);
/* Makes root and all that is made in parts for it. */
bool slices_run(Frame *f, const Slices *s);
void slices_free(Slices *s);

#endif
