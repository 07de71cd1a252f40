/* The only way to make nodes. Every function infers the type, folds what is known, shares equal
 * nodes and appends. On a type error it reports to g->diags (place = g's current location) and
 * returns 0; every builder given a 0 operand returns 0 silently, so callers test once at the end.
 *
 * Folds: algebraic identities (x+0, x*1, reshape of reshape, permute of permute, expand of size-1
 * constants, cast to the same type ...), constant results up to 4096 elements by the reference
 * evaluator, and integer shape arithmetic: build tracks integer values of up to 1024 elements
 * element by element as expressions (build_elems). */
#ifndef GRAPH_BUILD_H
#define GRAPH_BUILD_H

#include "graph/ir/ir.h"

/* Location that new nodes get. */
void build_at(Graph *g, Loc loc);
Loc build_loc(const Graph *g);
/* Nodes that are made from now on are late (Node.late), or are not. */
void build_late(Graph *g, bool late);
Loc build_loc_new(Graph *g, LocInfo info);
/* The same node as l, in that part of a training graph; unknown places stay so. */
Loc build_loc_part(Graph *g, Loc l, LocPart part);
/* The first of some places as one that stands for all of them; they need not differ. */
Loc build_loc_join(Graph *g, const Loc *locs, uint32_t n);
/* A place of another graph with the calls it came from, told in g's own list. What has no further
 * caller there came from `outermost`. */
Loc build_loc_from(Graph *g, const Graph *from, Loc l, Loc outermost);

/* Sources */
Value build_input(Graph *g, const char *name, Type t); /* appends to g->inputs */
Value build_const(Graph *g, Type t, Constant c);       /* static shape; bytes must match */
Value build_scalar_f(Graph *g, DType t, double v);     /* rank 0 */
Value build_scalar_i(Graph *g, DType t, int64_t v);
Value build_ints(Graph *g, DType t, const int64_t *v, uint32_t n); /* rank 1 */
Value build_exprs(Graph *g, DType t, const Expr *v, uint32_t n);   /* rank 1 */
Value build_expr(Graph *g, DType t, Expr e);                       /* rank 0 */
Value build_iota(Graph *g, DType t, uint8_t rank, const Expr *dim, int axis);
/* A tensor full of one value. */
Value build_full(Graph *g, Value scalar, uint8_t rank, const Expr *dim);
/* Numbers in [0,1), repeatable: of two with equal arguments the numbers are the same. */
Value build_uniform(Graph *g, DType t, uint8_t rank, const Expr *dim, uint64_t seed);
/* Those of a run: `draw`, an i64 scalar, says which; `stream` tells values of one run apart. */
Value build_uniform_draw(Graph *g, DType t, uint8_t rank, const Expr *dim, uint64_t stream,
                         Value draw);
/* In training an input `generator`, an i64 scalar, says which numbers a run draws. Where it is
 * negative the run is none that trains: nothing is drawn, and what has another meaning in training
 * has that of inference. The first who asks makes it; 0 and an error where the model has another
 * input of that name. */
Value build_generator(Graph *g);
/* Whether the run trains not, a bool scalar. */
Value build_draws_nothing(Graph *g, Value generator);
/* Of x each element is 0 with probability `ratio`, an f32 scalar below 1, else 1 / (1 - ratio)
 * times as large; x itself where nothing is drawn. Backward asks for the same numbers again. kept,
 * unless NULL: of each element whether it stays. */
Value build_dropout(Graph *g, Value x, Value ratio, uint64_t stream, Value *kept);
#define BUILD_MODEL_STREAMS (UINT64_C(1) << 32) /* of a model's own nodes; of adapters from 0 */

/* Element-wise; operands already of one shape. */
Value build_map(Graph *g, Op op, const Value *in, uint32_t n);
/* Element-wise with NumPy broadcasting of the operands (dtypes must agree as op demands). */
Value build_unary(Graph *g, Op op, Value x);
Value build_binary(Graph *g, Op op, Value x, Value y);
Value build_select(Graph *g, Value cond, Value x, Value y);
Value build_cast(Graph *g, Value x, DType to);
Value build_cast_ex(Graph *g, Value x, DType to, bool saturate, uint8_t round);
Value build_bitcast(Graph *g, Value x, DType to);
/* binary with a scalar constant of x's type, which must be able to hold it */
Value build_binary_f(Graph *g, Op op, Value x, double c);

/* Views */
Value build_reshape(Graph *g, Value x, uint8_t rank, const Expr *dim); /* element count must agree;
                                         where that cannot be proved it is recorded as assumed */
Value build_permute(Graph *g, Value x, const uint8_t *perm);
Value build_expand(Graph *g, Value x, uint8_t rank, const Expr *dim); /* NumPy: aligns right, adds
                                                                         leading axes */
Value build_slice(Graph *g, Value x, const Expr *start, const Expr *size, const int64_t *step);
Value build_slice_axis(Graph *g, Value x, int axis, Expr start, Expr size, int64_t step);
Value build_pad(Graph *g, Value x, Value fill, const Expr *lo, const Expr *hi,
                const int64_t *interior); /* interior may be NULL */
Value build_concat(Graph *g, const Value *in, uint32_t n, int axis);
Value build_window(Graph *g, Value x, uint8_t n, const uint8_t *axis, const int64_t *size,
                   const int64_t *stride, const int64_t *dilation);
Value build_unsqueeze(Graph *g, Value x, int axis);
Value build_squeeze(Graph *g, Value x, int axis);
/* Adds a == b to what the session checks when inputs are bound; false if it is there already. */
bool build_assume(Graph *g, Expr a, Expr b, Loc loc);
/* Broadcast shape of two shapes; records assumptions; false with a diagnostic if impossible. */
bool build_broadcast(Graph *g, const Type *x, const Type *y, uint8_t *rank, Expr *dim);

/* Folding axes away. axes: bit mask. keep: leave axes of size 1 (a reshape). */
Value build_reduce(Graph *g, Op op, Value x, uint32_t axes, bool keep);
Value build_arg_reduce(Graph *g, Op op, Value x, int axis, bool last, bool keep);
Value build_mean(Graph *g, Value x, uint32_t axes, bool keep);

/* Contractions. dot: batch dimensions equal (expand first); `to` is the accumulation and result
 * type: f32 for f32/f16/bf16 operands, f64, i32 for 8-bit integers, else the operands' type.
 * Cast the result afterwards. */
Value build_dot(Graph *g, Value a, Value b, DType to);
/* NumPy matmul with broadcasting and 1-D operands; result cast to `result`. */
Value build_matmul(Graph *g, Value a, Value b, DType result);
Value build_conv(Graph *g, Value x, Value w, const Attr *attr);

/* Composites. Operands as in core_ops.def; `to` is f32 or f64. */
Value build_attention(Graph *g, Value scores, Value values, DType to, bool guarded);
Value build_logsumexp(Graph *g, Value x, DType to);
/* Composite n over operands `in` as the core ops that it stands for. */
Value build_decomposed(Graph *g, const Node *n, const Value *in);

/* src, mode: Attr.index */
Value build_gather(Graph *g, Value data, const int8_t *src, const Value *idx, uint32_t nidx,
                   uint8_t rank, const Expr *dim);
/* ONNX Gather: rows of `axis`; negative indices wrap. */
Value build_take(Graph *g, Value data, Value indices, int axis);
Value build_scatter(Graph *g, Value data, Value updates, const int8_t *src, const Value *idx,
                    uint32_t nidx, ScatterMode mode);
Value build_compact(Graph *g, Value mask);

Value build_scan(Graph *g, Op op, Value x, int axis, bool exclusive, bool reverse);
Value build_argsort(Graph *g, Value x, int axis, bool descending);
/* The same, of which only the first `keep` places will be read; 0: all. */
Value build_argsort_first(Graph *g, Value x, int axis, bool descending, int64_t keep);

Value build_if(Graph *g, Value cond, Graph *then_g, Graph *else_g, const Value *captures,
               uint32_t ncaptures); /* tuple */
Value build_loop(Graph *g, Value trip, Value cond, const Value *carried, uint32_t ncarried,
                 const Value *captures, uint32_t ncaptures, Graph *body, uint32_t iter); /* tuple */
Value build_proj(Graph *g, Value tuple, uint32_t index);
/* Stacks `inner`, a value of the loop's body, as one more result of the loop: its projection.
 * Changes the node, whose other results keep their numbers. */
Value build_loop_stack(Graph *g, Value loop, Value inner);
/* Copies body's nodes into g, inputs in place of its own, and, unless by is 0, `by` in place of the
 * symbol sym. False after an error. */
bool build_inline(Graph *g, const Graph *body, const Value *inputs, uint32_t sym, Expr by,
                  Value *outputs);

/* f32 x as integers of 8 bits times a scale for each block of its last dimension, the largest
 * number of the block being 127 of them: what MatMulNBits' accuracy_level 4 allows. Blocks fill the
 * dimension, which is static. */
Value build_rounded(Graph *g, Value x, int64_t block);

/* Any node again with other operands: what passes use to copy. */
Value build_like(Graph *g, const Node *n, const Value *in, uint32_t nin);

void build_output(Graph *g, const char *name, Value v);
/* Appends to g->states: a tensor that lives from run to run, and starts as `initial` (of static
 * shape; its bytes match, or are 0: zeros). Of another name than the others. */
Value build_state(Graph *g, const char *name, Type t, Constant initial);
Value build_state_like(Graph *g, const StateInfo *s); /* one of another graph */
/* After the run, the state holds v, which has its type. Appends to g->writes: the last counts. */
void build_write(Graph *g, Value state, Value v);
/* One more way to run the graph: gives the set of it alone. A graph has none, or at most
 * GRAPH_MAX_ENTRIES; what an entry computes is what its outputs and writes need. */
uint32_t build_entry(Graph *g, const char *name);
/* Outputs and writes made from now on are of these entries; of all, unless said. */
void build_in(Graph *g, uint32_t entries);

/* Element values as expressions, row-major, for an integer or bool value of at most 1024 elements
 * with static shape; NULL if not known at compile time. For a graph input (or a view of one) of at
 * most 64 elements, asking makes SYM_ELEM symbols: only lowerings that need a value to fix a shape
 * ask with want_symbols. */
const Expr *build_elems(Graph *g, Value v, bool want_symbols, uint32_t *n);
/* Whether build_elems does not know v because a formula of it, or of what it is made of, would
 * exceed EXPR_MAX_SIZE. */
bool build_elems_large(Graph *g, Value v);
/* The one element of a constant scalar-like value, as double; false if not constant. */
bool build_const_f64(const Graph *g, Value v, double *out);

#endif
