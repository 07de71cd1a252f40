/* What a lowering of one ONNX operator sees. An operator is one row beside its lowering in an
 * ops_*.c file; adding one touches that file and its test only.
 *
 *   static bool lower_flatten(Lower *l) { ... lower_out(l, 0, v); return true; }
 *   const OnnxOp ops_shape[] = {
 *       {"", "Flatten", 1, 0, 1, 1, 1, 1, flatten_attrs, lower_flatten}, ... {0}};
 *
 * The row with the highest `since` that is <= the model's opset for the domain is used. `until` is
 * the last opset it holds for (0 = no end). Before `lower` runs, input and output counts and
 * attributes are checked against the row and defaults are in place. */
#ifndef FRONTEND_ONNX_OP_H
#define FRONTEND_ONNX_OP_H

#include "frontend/import/import.h"

typedef struct Lower Lower; /* one node being lowered */

/* Attribute kinds: i int, f float, s string, t tensor, g graph, I ints, F floats, S strings, p type
 * proto, x sparse tensor. "name:kind" or "name:kind=default" or "name:kind!" (required); list ends
 * with NULL. Unlisted attributes are an error (D_ATTRIBUTE). */
typedef struct OnnxOp {
    const char *domain, *name; /* "" = ai.onnx */
    int since, until;
    int min_in, max_in, min_out, max_out; /* max -1 = variadic */
    const char *const *attrs;
    bool (*lower)(Lower *l); /* false after reporting with lower_error */
} OnnxOp;

/* The row that the opset has; NULL: none. The list of all is in frontend/ops/onnx_ops.c. */
const OnnxOp *onnx_op_find(const char *domain, const char *name, int opset);

Graph *lower_graph(Lower *l);
ExprPool *lower_exprs(Lower *l);
int lower_opset(const Lower *l); /* of this node's domain */
const char *lower_op_name(const Lower *l);
uint32_t lower_nin(const Lower *l); /* counts trailing absent ones as the file lists them */
uint32_t lower_nout(const Lower *l);
bool lower_has_in(const Lower *l, uint32_t i); /* present and not "" */
bool lower_has_out(const Lower *l, uint32_t i);
Value lower_in(Lower *l, uint32_t i); /* 0 if absent */
const Type *lower_type(Lower *l, uint32_t i);
void lower_out(Lower *l, uint32_t i, Value v); /* v == 0 is allowed: an error was reported */

const ImportOptions *lower_options(const Lower *l); /* never NULL */
/* Of a model that trains (IMPORT_trains): a plan runs it both ways, a step and an evaluation, from
 * one set of kernels. A node that has another meaning in training is both, and takes its pick as
 * the run says: its generator (build_generator), and whether it trains, a bool scalar. 0 after an
 * error; the hint goes with it. */
Value lower_generator(Lower *l, const char *hint);
Value lower_trains(Lower *l, const char *hint);

bool lower_has_attr(const Lower *l, const char *name); /* given in the file */
int64_t lower_i(const Lower *l, const char *name);
double lower_f(const Lower *l, const char *name);
const char *lower_s(const Lower *l, const char *name);
const int64_t *lower_ints(const Lower *l, const char *name, uint32_t *n); /* NULL if absent */
const float *lower_floats(const Lower *l, const char *name, uint32_t *n);
const char *const *lower_strings(const Lower *l, const char *name, uint32_t *n);
bool lower_tensor(Lower *l, const char *name, Value *out); /* as a constant */
/* A string attribute as its position in `names`, which NULL ends. False after an error. */
bool lower_choice(Lower *l, const char *name, const char *const *names, int *out);
/* An int attribute that holds an element type. False after an error. */
bool lower_dtype(Lower *l, const char *name, DType *out);

/* Elements of a small integer input as expressions, whether constant, computed from shapes or fed
 * at run time (then its elements become symbols). What the graph computes from other values is a
 * symbol that a kernel writes, if value_bounds or --dim bounds it. NULL after an error if they
 * cannot be known; absent inputs give NULL without error and *n = 0. */
const Expr *lower_shape_in(Lower *l, uint32_t i, uint32_t *n);
/* The same for an input of exactly one element. False after an error, or if it is absent. */
bool lower_number_in(Lower *l, uint32_t i, Expr *out);
/* 0 where nothing is known of the element of v, an integer alone. */
Expr lower_number_of(Lower *l, Value v);
/* The same where element k counts only from 0 to most[k] (k < nmost): others are clamped. With
 * `positions`, elements are positions on axes of most[k] elements, negative ones count from the
 * end, and a list whose length is not known has that many. */
const Expr *lower_bounded_in(Lower *l, uint32_t i, const Expr *most, uint32_t nmost,
                             uint32_t positions, uint32_t *n);
/* Constant integers of an input or, before it moved there, of an attribute: axes, pads ... */
bool lower_const_ints(Lower *l, uint32_t in, const char *attr, int64_t *out, uint32_t max,
                      uint32_t *n);
bool lower_const_f(Lower *l, uint32_t i, double *out); /* constant scalar input */
/* Input i where sizes hang on its elements: of a state what it is at first, as a constant. */
Value lower_fixed_in(Lower *l, uint32_t i);
/* True if a value depends on elements of inputs, not on sizes only. */
bool lower_is_fed(const Lower *l, Expr e);
/* Records that two sizes must be equal; the session checks it. An error if they cannot be. */
void lower_assume(Lower *l, Expr a, Expr b);
/* Declared type of output i if the model has value info for it. */
bool lower_declared(Lower *l, uint32_t i, Type *out);

/* Input i, with an error if it is absent: for those that the row's counts cannot demand. */
Value lower_need(Lower *l, uint32_t i);
/* Kinds of element types that an input may have. Absent inputs pass all checks below; each gives
 * false after an error. */
typedef enum TypeSet {
    TYPES_FLOAT = 1,  /* f64 f32 f16 bf16 */
    TYPES_FLOAT8 = 2, /* and smaller */
    TYPES_INT = 4,    /* any width, signed or not */
    TYPES_INT16 = 8,  /* 16 bits or less */
    TYPES_INT8 = 16,  /* 8 bits or less */
    TYPES_BOOL = 32
} TypeSet;
bool lower_is(Lower *l, uint32_t i, unsigned sets); /* one of the sets, or-ed */
bool lower_same_type(Lower *l, uint32_t i, uint32_t as);
bool lower_fits(Lower *l, uint32_t i, const Type *to); /* broadcasts to it, without widening it */
bool lower_vector(Lower *l, uint32_t i, Expr n);       /* rank 1, n elements */

/* Axis attribute made non-negative; reports and returns -1 when out of [-rank, rank). */
int lower_axis(Lower *l, int64_t axis, int rank);

/* Lowers a subgraph attribute (If, Loop, Scan) into a graph of its own. Outer values it captures
 * are appended to `captures` (shared by both branches of If) and become trailing inputs. inputs:
 * types of the explicit inputs. */
typedef struct LowerCaptures {
    VEC(Value) values;
} LowerCaptures;
Graph *lower_subgraph(Lower *l, const char *attr, const Type *inputs, uint32_t ninputs,
                      LowerCaptures *captures);
/* The same where the ONNX body's inputs differ from the graph's: `formals` makes the former out of
 * the latter, inside the body. It may also add outputs that precede the body's own. A formal of 0
 * is a sequence that the body appends one element to: that is an output behind all others. */
typedef void (*LowerFormals)(void *ctx, Graph *body, const Value *in, Value *formal);
Graph *lower_subgraph_from(Lower *l, const char *attr, const Type *inputs, uint32_t ninputs,
                           LowerCaptures *captures, uint32_t nformal, LowerFormals formals,
                           void *ctx);
/* The else branch may capture more than the then branch did: appends the missing trailing inputs to
 * a subgraph lowered earlier with the same captures. */
void lower_add_captures(Lower *l, Graph *sub, uint32_t ninputs, const LowerCaptures *captures);
/* Inlines a subgraph attribute here: its inputs are the given values. False after an error. */
bool lower_inline(Lower *l, const char *attr, const Value *in, uint32_t nin, Value *out,
                  uint32_t nout);

/* Reports at this node, an error or what the id stands for. Both return false. */
bool lower_error(Lower *l, DiagId id, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool lower_unsupported(Lower *l, const char *hint, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
