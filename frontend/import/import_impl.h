/* The importer's own types, shared by its files and by the lowerings that handle more than tensors
 * (sequences, optionals). Lowerings of ordinary operators include frontend/import/onnx_op.h only */
#ifndef FRONTEND_IMPORT_IMPL_H
#define FRONTEND_IMPORT_IMPL_H

#include "frontend/import/import.h"
#include "frontend/import/onnx_op.h"
#include "frontend/import/prescan.h"
#include "graph/pass/value_expr.h"
#include "onnx.pb-c.h"
#include "runtime/base/map.h"

/* What a name stands for. A poisoned item comes from a node that failed: everything that depends on
 * it is skipped without further messages. */
typedef enum ItemKind { ITEM_POISON, ITEM_TENSOR, ITEM_LIST, ITEM_STACK, ITEM_ABSENT } ItemKind;

/* A sequence whose length is known at compile time, one that a loop appended to (its elements are
 * stacked), or an optional that is known to be empty. */
typedef struct Item {
    ItemKind kind;
    Value v;     /* ITEM_TENSOR, ITEM_STACK */
    bool open;   /* ITEM_LIST: behind what earlier iterations appended, which is not known */
    DType dtype; /* ITEM_LIST: element type, 0 = not known yet */
    uint32_t n;
    const Value *list;     /* ITEM_LIST */
    struct ItemRoom *room; /* what list is the start of, or NULL */
} Item;

typedef struct ItemRoom {
    Value *v;
    uint32_t used, cap; /* used: length of the longest list in it */
} ItemRoom;

/* Lower bounds by symbols' names, which the model asks for: `time >= 400`, so that windows fit. */
typedef struct LeastSizes {
    struct {
        const char *name;
        int64_t lo;
    } * v;
    uint32_t n;
} LeastSizes;

/* Bytes that TensorProtos refer to: a mapped file whose raw_data fields were taken out. */
struct Model {
    FileMap file;
    Prescan scan;
    PrescanMessage *message;
    const char *path;
    ImportSource from;
    VEC(FileMap) side; /* external data files, parallel to Graph.files */
    VEC(const char *) side_names;
    MapStr *side_index; /* name -> number in `side` from 1; 0 = not there, and reported */
};

/* Maps and reads a model's file. NULL: the reason is in d. */
Model *import_open(Arena *a, DiagSink *d, const char *path);

typedef struct Opset {
    const char *domain; /* "" = ai.onnx */
    int version;
} Opset;
typedef struct Opsets {
    uint32_t n;
    const Opset *v;
    MapStr *by_domain; /* -> index of the first */
} Opsets;

typedef struct NamedAttr {
    const char *name;
    const Onnx__AttributeProto *proto;
} NamedAttr;
typedef struct NamedAttrs {
    uint32_t n;
    const NamedAttr *v;
} NamedAttrs;

/* One function call that is being inlined. */
typedef struct Frame {
    const struct Frame *caller;
    const Onnx__FunctionProto *fn;
    NamedAttrs attrs; /* actual attributes and defaults, by parameter name */
    MapStr *by_name;  /* parameter -> index into attrs */
} Frame;

typedef struct Scope Scope;

typedef struct Importer {
    Arena *arena;
    DiagSink *diags;
    Model *model;
    const Onnx__ModelProto *proto;
    ExprPool *exprs;
    MapStr *dims;       /* dim_param -> Expr */
    MapStr *size_names; /* input.c: what sums and outputs say about a name */
    const ImportOptions *options;
    const LeastSizes *least;
    bool *dim_used;         /* options->dims that named a symbol or a value */
    VEC(ValueClaim) claims; /* values of the main graph that options->dims bounds */
    MapStr *functions;      /* "domain:name:overload" -> index */
    VEC(Graph *) subgraphs;
    uint32_t depth;         /* subgraphs and calls that are open */
    uint64_t spent, budget; /* see import_spend */
    uint64_t streams;       /* of random numbers in training that nodes have taken */
    int64_t copies;         /* of a body here, by the unrolled loops that are open */
    MapU64 *no_select;      /* ops_control.c: Ifs that have to be nodes, while one is open */
} Importer;

/* Names visible at one place. A scope with the same graph as its parent is inlined into it; one
 * with a graph of its own captures what it uses from outside. */
struct Scope {
    Importer *im;
    Graph *g;
    struct Scope *parent;          /* NULL: main graph or function body */
    const Onnx__GraphProto *proto; /* for declared types; NULL in function bodies */
    MapStr *names;
    VEC(Item) items;
    MapStr *declared; /* name -> index into value_info, then output */
    const Opsets *opsets;
    const Frame *frame;      /* NULL outside function bodies */
    Loc loc;                 /* the call or control node that this scope belongs to */
    LowerCaptures *captures; /* where g differs from parent->g */
    MapU64 *captured;        /* parent's value -> value here */
};

struct Lower {
    Importer *im;
    Scope *scope;
    Graph *g;
    const Onnx__NodeProto *node;
    const OnnxOp *op;
    const char *domain;
    int opset;
    Loc loc;
    const NamedAttrs *attrs;
    const Item *in;
    Item *out;
    uint32_t nin, nout;
};

static inline const char *text_or_empty(const char *s) {
    return s ? s : "";
}

#define MAX_OPSET 27 /* of ai.onnx */

/* dims.c: sizes in declared types. */
void dims_index(Importer *im); /* reads what inputs and outputs say of names */
/* The element type and the rank of an input; sizes stay 0. False after an error. */
bool dims_input_type(Importer *im, const Onnx__ValueInfoProto *v, const char *place, Type *out);
/* Sizes of input number `input`. sums: the second round, when all plain names are known. */
void dims_fill(Importer *im, const Onnx__ValueInfoProto *v, uint32_t input, bool sums, Type *type);
/* A tensor type whose every size is known in terms of the inputs' symbols; false otherwise. */
/* Takes out what the model asks of sizes alone, and says it in place of what was said since `said`.
 * False if that is nothing new: else the model is read again, since formulas that were made before
 * it was known are clumsy ones. */
bool dims_least(const Graph *g, uint32_t said, LeastSizes *out);
bool dims_type(Importer *im, const Onnx__TypeProto *t, Type *out);
/* Bounds a value of the main graph if an option names it. */
void dims_claim(Scope *s, const char *name, Value v);
/* Once all is lowered: each option must have bounded something. */
void dims_check_options(Importer *im);

/* opset.c */
const char *opsets_domain(const char *domain); /* "" for every spelling of ai.onnx */
/* The operator sets that a model or function imports, checked. */
bool opsets_read(Importer *im, Onnx__OperatorSetIdProto *const *sets, size_t n, const char *place,
                 Opsets *out);
int opsets_version(const Opsets *o, const char *domain); /* 0: not imported */

/* tensor.c: a tensor's elements in graphc's memory form. `what` names it in messages. */
bool tensor_constant(Model *m, Arena *a, DiagSink *d, const Onnx__TensorProto *t, const char *what,
                     DType *dtype, uint32_t *rank, int64_t dim[GRAPH_MAX_RANK], Constant *out);
bool tensor_build(Importer *im, Graph *g, const Onnx__TensorProto *t, const char *what, Value *out);

/* scope.c */
Scope *scope_create(Importer *im, Graph *g, Scope *parent, const Onnx__GraphProto *proto);
/* False with a diagnostic if the name is already defined in this scope. */
bool scope_define(Scope *s, const char *name, Item item);
bool scope_find(Scope *s, const char *name, Item *out);
bool scope_initializers(Scope *s);
bool scope_declared(Scope *s, const char *name, Type *out);
/* Functions, loops and branches make a file larger than it is, at worst exponentially. All of it is
 * paid here, in names read (of nodes, attributes, initializers); what a file itself holds is always
 * within the budget. False, and an error where it first happens, once it is used up. */
bool import_spend(Scope *s, uint64_t cost);

/* input.c */
void inputs_import(Scope *s);

/* order.c: the nodes' numbers, each behind those that it needs. */
/* By node: whether an output of the graph depends on it. */
bool *nodes_needed(Arena *a, const Onnx__GraphProto *g);
const uint32_t *order_nodes(Arena *a, size_t n, Onnx__NodeProto *const *nodes);

/* module.c: the path of the exporter's module that the node lies in; "" if the file does not say */
const char *module_path(Arena *a, const Onnx__NodeProto *node);

/* lower.c */
Item lower_in_item(Lower *l, uint32_t i);
void lower_out_item(Lower *l, uint32_t i, Item item);

/* function.c */
const Onnx__FunctionProto *function_find(Importer *im, const char *domain, const char *name,
                                         const char *overload);
void function_index(Importer *im);
/* A scope of its own in which the function's inputs and attributes are those of the call; NULL
 * after an error. */
Scope *function_enter(Lower *l, const Onnx__FunctionProto *fn);
/* The function's outputs, found in that scope, are the call's. */
bool function_leave(Lower *l, Scope *s, const Onnx__FunctionProto *fn);

/* node.c: lowers nodes in the order in which they need each other; each error poisons what depends
 * on it. */
void scope_nodes(Scope *s, size_t n, Onnx__NodeProto *const *nodes);

/* subgraph.c */
bool lower_inline_items(Lower *l, const char *attr, const Item *in, uint32_t nin, Item *out,
                        uint32_t nout);

/* onnx_ops.c: checks counts and attributes of a node against its row. */
bool op_check(Lower *l);
const char *op_attr_default(const OnnxOp *op, const char *name, char *kind);

#endif
