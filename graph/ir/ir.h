/* The graph of core ops: one growing node array in topological order.
 *
 * A value is the number of the node that makes it: survives growth, prints as %12, serialises.
 * Nodes are made through graph/build/build.h only (type rule, fold, CSE, append); a node without a
 * type cannot exist. Passes rewrite by making new nodes and redirecting uses, then dropping dead
 * ones (graph/pass/pass.h). Shapes are lists of expressions (graph/expr/expr.h). */
#ifndef GRAPH_IR_H
#define GRAPH_IR_H

#include "graph/expr/expr.h"
#include "runtime/base/diag.h"
#include "runtime/base/dtype.h"
#include "runtime/base/vec.h"

#define GRAPH_MAX_RANK 12

typedef uint32_t Value; /* 0 = none */

typedef enum Op {
    OP_none = 0,
#define CORE_OP(name, cls, arity, dt, domain, flags, cost, attr) OP_##name,
#include "graph/ir/core_ops.def"
#undef CORE_OP
    OP_COUNT
} Op;

typedef enum OpClass {
    OPC_SOURCE,
    OPC_MAP,
    OPC_VIEW,
    OPC_REDUCE,
    OPC_CONTRACT,
    OPC_INDEX,
    OPC_SCAN,
    OPC_SORT,
    OPC_RANDOM,
    OPC_COMPOSITE,
    OPC_CONTROL
} OpClass;

typedef struct OpInfo {
    const char *name;
    OpClass cls;
    int8_t arity;
    char dtype_rule;
    const char *domain, *flags;
    float cost;
} OpInfo;
extern const OpInfo op_info[OP_COUNT];
bool op_has_flag(Op op, char flag);
/* In memory before the run. */
static inline bool op_is_leaf(Op op) {
    return op == OP_input || op == OP_const || op == OP_state;
}

/* What folds: X(the op that joins two values, over axes, running along an axis). */
#define GRAPH_FOLDS(X)                                                                             \
    X(add, reduce_sum, cumsum)                                                                     \
    X(mul, reduce_prod, cumprod)                                                                   \
    X(max, reduce_max, none)                                                                       \
    X(min, reduce_min, none)
/* Of one of these: the op that joins; OP_none of others (argmax and argmin give positions). */
Op op_join(Op op);
/* A function that takes a page of code, as exp and tanh do. */
static inline bool op_is_long(Op op) {
    return op_info[op].cost >= 10;
}

typedef struct Type {
    DType dtype;
    uint8_t rank;
    Expr dim[GRAPH_MAX_RANK];
} Type;

/* Where constant bytes live. Exactly one form: in memory, or in an external file of the model. */
typedef struct Constant {
    const void *data; /* elements in graphc's memory form (dtype.def), row-major; always readable
                         at compile time (external data is mapped) */
    uint64_t bytes;
    uint32_t file;   /* 0 = embedded; else 1-based index into Graph.files */
    uint64_t offset; /* byte offset in that file */
    uint64_t file_size;
    const char *name; /* initializer's name, or "" */
} Constant;

#define GRAPH_MAX_WINDOW 3

// clang-format off
typedef union Attr {
    struct { uint32_t index; } input;   /* input, state */
    Constant constant;
    struct { int32_t axis; } axis;      /* iota, concat, proj */
    struct { uint32_t n; const Expr *v; } exprs;
    struct { DType to; bool saturate; uint8_t round; } cast; /* saturate: float8 targets.
                                        round: 0 nearest even, 1 up, 2 down (E8M0 only) */
    struct { uint8_t axis[GRAPH_MAX_RANK]; } perm;
    struct { Expr start[GRAPH_MAX_RANK]; int64_t step[GRAPH_MAX_RANK]; } slice; /* size = type */
    /* out size = (in-1)*(interior+1)+1 + lo + hi; lo/hi may be negative expressions (crop) */
    struct { Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK]; int64_t interior[GRAPH_MAX_RANK]; } pad;
    /* Axis `axis[i]` of the input becomes axis[i] (output positions) and a new trailing axis of
     * size[i] taps appended at the end in order i:
     *   out[.., o_i, .., t_0 .. t_n-1] = in[.., o_i*stride[i] + t_i*dilation[i], ..]
     * All reads are in range: pad first. Output positions are given by the type. */
    struct {
        uint8_t n;
        uint8_t axis[GRAPH_MAX_WINDOW];
        int64_t size[GRAPH_MAX_WINDOW], stride[GRAPH_MAX_WINDOW], dilation[GRAPH_MAX_WINDOW];
    } window;
    struct { uint32_t axes; bool last; } reduce; /* bit i = axis i is folded away */
    /* x [N, S_1..S_n, C], w [K_1..K_n, C/groups, OC]; y [N, O_1..O_n, OC], channels of one group
     * adjacent; out-of-range taps read 0. O = floor((S + lo + hi - dilation*(K-1) - 1)/stride)+1 */
    struct {
        uint8_t n;
        int64_t stride[GRAPH_MAX_WINDOW], dilation[GRAPH_MAX_WINDOW];
        int64_t lo[GRAPH_MAX_WINDOW], hi[GRAPH_MAX_WINDOW];
        int64_t groups;
        DType to;
    } conv;
    /* gather: out has the type's shape R. For data axis d, src[d] >= 0: the coordinate is output
     * axis src[d]; src[d] < 0: it is the value of operand 1 + (-src[d] - 1), an i64 or i32 tensor
     * of shape R, clamped into range (lowerings wrap negative indices beforehand).
     * scatter: the same with R = shape of the updates: result = data, then for every element of the
     * updates in row-major order result[coordinate] = mode(result[coordinate], update); elements
     * whose coordinate is out of range are dropped. */
    struct { int8_t src[GRAPH_MAX_RANK]; uint8_t mode; /* ScatterMode */ } index;
    /* keep, of argsort: only so many places are read, and those behind may hold anything;
     * 0: all are. */
    struct { int32_t axis; bool exclusive, reverse; int64_t keep; } scan;
    struct { uint64_t seed; } random;
    struct { DType to; bool guarded; } attention;
    struct Control *control;
} Attr;
// clang-format on

typedef enum ScatterMode {
    SCATTER_set,
    SCATTER_add,
    SCATTER_mul,
    SCATTER_min,
    SCATTER_max
} ScatterMode;

/* Loop and if carry their bodies as graphs over the same expression pool.
 *
 *   if    operands = cond, captures...; bodies [then, else]; body inputs = captures in order;
 *         results = body outputs, of the same dtypes and ranks in both; where sizes differ, the
 *         result has a run-time symbol of its own (control_own_size).
 *   loop  operands = trip count (i64 scalar), cond (bool scalar), carried..., captures...; body
 *         inputs = cond, carried..., captures...; the iteration number is symbol `iter`; body
 *         outputs = cond, carried..., scanned...; results = final carried..., scanned stacked
 *         along a new axis 0.
 *
 * `most` is known when the trip count is an expression, `trip`, which is the same then, if the
 * body's cond stays true, too: then scanned sizes are known. */
typedef struct Control {
    struct Graph *body[2];
    uint32_t ncarried, nscanned;
    uint32_t iter;   /* symbol number */
    Expr trip, most; /* iterations, and the most that there can be; 0 when data-dependent */
    uint32_t nresults;
    Type *results;
} Control;

typedef uint32_t Loc; /* index into Graph.locs; 0 = unknown */

/* What a training graph computes of an ONNX node, or for it. PART(name, text): the text stands
 * before the node's place. */
// clang-format off
#define LOC_PARTS(PART)                                                                            \
    PART(forward, "")                                                                              \
    PART(again, "again ")            /* forward once more, for backward */                         \
    PART(backward, "backward of ")                                                                 \
    PART(update, "update of ")       /* the optimizer's, of a parameter */
// clang-format on
typedef enum LocPart {
#define PART(name, text) PART_##name,
    LOC_PARTS(PART)
#undef PART
        PART_COUNT
} LocPart;

/* An ONNX node, as users know it. */
typedef struct LocInfo {
    int32_t node;                   /* index in the model's main graph; -1 inside a function body */
    const char *op, *name, *output; /* never NULL */
    const char *module; /* where in the exporter's tree of modules: "model.layers.0.mlp.up_proj"; ""
                           or NULL where the model does not say */
    bool unneeded;      /* no output of the model depends on it */
    uint8_t part;       /* LocPart */
    Loc parent;         /* the call that an inlined node came from */
    uint32_t nalso;     /* of a value that stands for several nodes: all of them, ... */
    const Loc *also;    /* ... the one that the other members tell of included */
} LocInfo;

typedef struct Node {
    uint8_t op; /* Op */
    bool late;  /* of backward: an equal node of forward is another value, and a kernel that stores
                   the one stores none of the other */
    uint32_t nin;
    const Value *in;
    Attr attr;
    Type type;
    Loc loc;
} Node;

typedef struct IoInfo {
    const char *name;
    Value value;      /* input: the OP_input node; output: the value returned */
    Type type;        /* as declared; for inputs every dimension is an expression over symbols */
    uint32_t entries; /* output: those that give it, a set; 0: all */
} IoInfo;

#define GRAPH_MAX_ENTRIES 32

/* A tensor that lives in the session from run to run: weights in training, moments, caches. Its
 * OP_state node is what it holds before the run, whoever reads it. */
typedef struct StateInfo {
    const char *name; /* no other state's */
    Value value;      /* the OP_state node */
    Type type;        /* static but for the axis that grows, whose size is what it holds now */
    Constant initial; /* what a new session's holds; 0 bytes: zeros, nothing of one that grows */
    uint32_t grows;   /* 0, or 1 + the axis along which a write may be longer */
    Expr room;        /* the most that it may hold along that axis, a constant */
} StateInfo;

/* After a run of an entry the state holds `value`. At most one for a state and an entry. */
typedef struct StateWrite {
    uint32_t state;
    Value value;
    uint32_t entries; /* a set; 0: all */
} StateWrite;

/* Is something of these entries part of one of those? */
static inline bool entries_meet(uint32_t a, uint32_t b) {
    return !a || !b || (a & b);
}

/* May a value of type t be written to it? */
bool state_takes(const StateInfo *s, const Type *t);

typedef struct Graph {
    Arena *arena; /* what other graphs may point to: names, constants, expressions, bodies */
    Arena *own;   /* what only this one does: nodes, operands, places, tables; see graph_own */
    ExprPool *exprs;
    DiagSink *diags;
    const char *name;
    bool is_body;    /* body of a Control: its inputs are not the model's */
    VEC(Node) nodes; /* nodes.v[0] is a placeholder; a node's inputs have smaller numbers */
    VEC(IoInfo) inputs;
    VEC(IoInfo) outputs;
    VEC(StateInfo) states; /* none in a body: there they are captured */
    VEC(StateWrite) writes;
    VEC(const char *)
    entries;                 /* names of what may be run, each with its outputs and writes; none:
                                all of it at once, "run" */
    VEC(LocInfo) locs;       /* locs.v[0] is the unknown place */
    VEC(const char *) files; /* external data files, relative to the model */
    VEC(Expr) elem_cache;    /* see build.h */
    /* Pairs of expressions assumed equal by broadcasting; the runtime checks them when bound. */
    // clang-format off
    struct { Expr a, b; Loc loc; } *assume;
    // clang-format on
    uint32_t nassume, assume_cap;
    struct BuildState *build; /* CSE table and element tracking, owned by build.c */
} Graph;

static inline const Node *graph_node(const Graph *g, Value v) {
    return &g->nodes.v[v];
}
static inline const Type *graph_type(const Graph *g, Value v) {
    return &g->nodes.v[v].type;
}

Graph *graph_create(Arena *a, ExprPool *p, DiagSink *d, const char *name);
/* A new graph's `own` is its arena. From here on it is another one, which goes with that arena, or
 * before: graph_release gives it back. Graphs made of g do not need it; nobody may look at g or at
 * its nodes any more. Nothing happens where `own` is the arena. */
void graph_own(Graph *g);
void graph_release(Graph *g);
Expr type_numel(ExprPool *p, const Type *t);
/* Elements at typical sizes (expr_hint), and what a contraction or an attention's values multiply.
 */
double graph_numel(const Graph *g, const Type *t);
double graph_products(const Graph *g, const Node *n);
bool type_equal(const Type *a, const Type *b);
bool type_is_static(const ExprPool *p, const Type *t);
/* f32[batch, 768] */
void type_print(const ExprPool *p, const Type *t, StrBuf *out);
const char *type_text(const ExprPool *p, const Type *t, Arena *a);
/* The symbol that an if gives to a size in which its branches differ. */
bool control_own_size(const ExprPool *p, const Control *c, uint32_t result, int axis,
                      uint32_t *sym);
extern const char *const loc_part_text[PART_COUNT];
/* node 17 "val_12" Conv, with the call chain for inlined nodes. */
const char *graph_place(const Graph *g, Loc l, Arena *a);
/* Whether assumption i is of a size of an input alone, `sym < 513` or `2 < sym`: then between which
 * numbers that lies, INT64_MIN and INT64_MAX where it does not say. */
bool graph_assumed_bounds(const Graph *g, uint32_t i, uint32_t *sym, int64_t *lo, int64_t *hi);
/* To the message that an output of the model is not there: those that are. */
void graph_hint_outputs(const Graph *g, DiagSink *d);

/* .gir text out and in (DESIGN: one fact a line). Printing then parsing gives an equal graph, apart
 * from constants above 64 unequal elements: they print as a hash, and reading draws stand-in values
 * from it. Symbols no line mentions are left out. */
void graph_print(const Graph *g, StrBuf *out);
Graph *graph_parse(Arena *a, DiagSink *d, const char *text);

/* Checks every invariant above; names the first node that breaks one (D_VERIFY). */
graphc_status graph_verify(const Graph *g);

#endif
