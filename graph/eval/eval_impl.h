/* What the evaluator's files share. */
#ifndef GRAPH_EVAL_IMPL_H
#define GRAPH_EVAL_IMPL_H

#include "graph/eval/eval.h"
#include "graph/eval/eval_scalar.h"

/* Elements, shared by the tensors that view them; freed with the last. They lie behind it, or are
 * another's that it took over. */
typedef struct EvalBlock {
    uint64_t refs, bytes;
    void *taken;
} EvalBlock;

/* A strided view. `dtype` is how elements are stored, not the node's type: floats are f64 unless
 * results are rounded; constants keep their own type. Strides count elements. */
typedef struct Tensor {
    DType dtype;
    uint8_t rank;
    int64_t dim[GRAPH_MAX_RANK], stride[GRAPH_MAX_RANK];
    const char *data; /* of the element at coordinate 0 */
    char *to;         /* the same, to write to what eval_alloc gave; NULL: constants, views */
    EvalBlock *block; /* NULL: memory that outlives the evaluation */
} Tensor;

/* One evaluation: shared by the frames of bodies. */
typedef struct Eval {
    ExprPool *exprs;
    int64_t *sym;             /* value of every symbol */
    bool round, round_halves; /* results: all, or those of less than 32 bits */
    uint64_t used, limit;     /* bytes in blocks */
    uint64_t part;            /* bytes, of values that are made in parts */
    bool errors;              /* bounds of errors are made, too, of the operands */
    uint32_t last; /* operands of the node at hand that nobody reads after it, by bit: a map
                      may write over them, over errors where those are wanted */
    DiagSink *diags;
    graphc_status status; /* of the first failure; later work is skipped */
} Eval;

/* Evaluates one node: `out` has the type's dimensions and storage type, contiguous strides and no
 * data. False after eval_fail. */
typedef bool (*EvalFn)(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out);
EvalFn eval_fn(Op op); /* NULL: input and control ops, which eval.c does itself */

bool eval_fail(Eval *e, DiagId id, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

DType eval_storage(const Eval *e, DType t);
bool eval_alloc(Eval *e, Tensor *t); /* block for t's dimensions, contiguous strides */
/* t's elements, whose strides stand, are x's, whose memory is freed with them if it is malloc's; at
 * once if this fails. */
bool eval_take(Eval *e, const EvalOther *x, Tensor *t);
/* The same over the elements of one of x[n], the operands of a map of t's dimensions, that is read
 * for the last time (e->last), alone with them and stored as t is. */
bool eval_alloc_over(Eval *e, const Tensor *x, uint32_t n, Tensor *t);
void eval_retain(const Tensor *t);
void eval_release(Eval *e, Tensor *t);
void eval_contiguous_strides(Tensor *t);
int64_t eval_numel(const Tensor *t);
bool eval_is_contiguous(const Tensor *t);
/* out becomes a view of the same elements or, if strides do not allow it, a copy. */
bool eval_make_contiguous(Eval *e, const Tensor *x, Tensor *out);
/* dst and src have the same dimensions; converts between storage types. */
void eval_copy(Tensor *dst, const Tensor *src);

/* `far` becomes at least the largest difference of x and y, infinite where they are not of one
 * shape; of finite elements of a float type. */
bool eval_farthest(Eval *e, DType t, const Tensor *x, const Tensor *y, double *far);
/* A loop's bound of errors, if there is one, is widened by what its roundings do: `far`. */
void eval_widen(Tensor *err, double far);

/* n elements from element offset `at`, `stride` apart, as scalars (floats in .f). */
void eval_load(const Tensor *t, int64_t at, int64_t stride, int64_t n, EvalScalar *out);
void eval_store(Tensor *t, int64_t at, int64_t stride, int64_t n, const EvalScalar *v);
int64_t eval_int(const Tensor *t, int64_t at);

/* A counter over `rank` axes that carries the element offsets of up to four strided tensors. */
typedef struct Walk {
    int rank, n;
    int64_t dim[GRAPH_MAX_RANK], at[GRAPH_MAX_RANK], off[4];
    int64_t stride[4][GRAPH_MAX_RANK];
} Walk;
void walk_init(Walk *w, int rank, const int64_t *dim);
void walk_add(Walk *w, const int64_t *stride);
bool walk_next(Walk *w); /* false after the last coordinate */

/* Up to this many elements of a map's operands; the operands are used up. */
enum { EVAL_CHUNK = 256 };
void eval_map_chunk(const Node *n, DType from, EvalScalar x[3][EVAL_CHUNK], int64_t count,
                    EvalScalar *y);

/* c[m, n] = a[m, k] * b[k, n], rows of b `ldb` apart; strip: EVAL_STRIP * k elements of the
 * function's own. Integers modulo 2^64. */
enum { EVAL_STRIP = 8 };
void eval_multiply_f(int64_t m, int64_t n, int64_t k, const double *a, const double *b, int64_t ldb,
                     double *c, double *strip);
void eval_multiply_i(int64_t m, int64_t n, int64_t k, const uint64_t *a, const uint64_t *b,
                     int64_t ldb, uint64_t *c, uint64_t *strip);

/* eval_error.c: bounds `err` of the operands' errors give that of y, an f64 tensor without data
 * where there is none. loose: a cast to a half type may be left out. */
bool eval_error(Eval *e, const Graph *g, const Node *n, const Tensor *in, const Tensor *err,
                const Tensor *y, bool loose, Tensor *out);

/* eval_reduce.c */
bool eval_reduce(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out);
bool eval_arg_reduce(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out);
bool eval_cumulate(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out);
bool eval_argsort(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out);
/* eval_contract.c */
bool eval_dot(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out);
bool eval_conv(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out);
/* eval_composite.c */
bool eval_attention(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out);
bool eval_logsumexp(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out);
/* Bounds for eval_error: every operand has an error tensor, perhaps a 0 at stride 0. */
bool eval_composite_error(Eval *e, const Node *n, const Tensor *in, const Tensor *err,
                          const Tensor *y, Tensor *out);
/* eval_index.c */
bool eval_gather(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out);
bool eval_scatter(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out);
bool eval_compact(Eval *e, const Graph *g, const Node *n, const Tensor *in, Tensor *out);

#endif
