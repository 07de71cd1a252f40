/* Making a node: folded, where constant operands go through the reference evaluator and small
 * integers through element tracking, or appended. */
#include "graph/build/build_impl.h"
#include "graph/eval/eval.h"
#include "graph/ir/attr.h"

#include <string.h>

#define MAX_OPERAND (1 << 16) /* elements of a constant that arithmetic is folded over */
#define MAX_SCALES  64        /* elements of a constant that is no weights of a contraction */

/* ---- Splats ---- */

static bool only_moves(Op op) {
    return op == OP_expand || op == OP_reshape || op == OP_permute;
}

static Value splat_source(const Graph *g, Value v) {
    while (only_moves(graph_node(g, v)->op)) v = graph_node(g, v)->in[0];
    return graph_node(g, v)->op == OP_const ? v : 0;
}

static void read_element(const Node *c, double *f, int64_t *i) {
    DType t = c->type.dtype;
    const void *data = c->attr.constant.data;
    bool is_float = dtype_is_float(t);
    if (f) *f = is_float ? dtype_load_f64(t, data, 0) : (double)dtype_load_i64(t, data, 0);
    if (i) *i = is_float ? 0 : dtype_load_i64(t, data, 0);
}

bool fold_splat(const Graph *g, Value v, double *f, int64_t *i) {
    v = splat_source(g, v);
    if (!v) return false;
    const Node *c = graph_node(g, v);
    size_t size = dtype_bytes(c->type.dtype), bytes = c->attr.constant.bytes;
    const char *data = c->attr.constant.data;
    if (bytes == 0 || bytes > BUILD_MAX_FOLDED * size) return false;
    /* All elements equal: the data equals itself shifted by one element. */
    if (bytes > size && memcmp(data, data + size, bytes - size)) return false;
    read_element(c, f, i);
    return true;
}

bool build_const_f64(const Graph *g, Value v, double *out) {
    v = v ? splat_source(g, v) : 0;
    if (!v || build_count(g, graph_type(g, v), 1) != 1) return false;
    read_element(graph_node(g, v), out, NULL);
    return true;
}

/* ---- Constants ---- */

static bool foldable_operand(const Graph *g, Op user, Value v) {
    const Node *n = graph_node(g, v);
    if (n->op == OP_expand) {
        v = n->in[0];
        if (build_count(g, &n->type, BUILD_MAX_FOLDED) < 0) return false;
        n = graph_node(g, v);
    }
    if (n->op != OP_const) return false;
    bool moves = op_info[user].cls == OPC_VIEW || user == OP_gather;
    return moves || build_count(g, &n->type, MAX_OPERAND) >= 0;
}

static Value fold_constant(Graph *g, const Node *n) {
    Constant c = {0};
    /* Where a view reads may depend on symbols although all shapes are static. */
    if (!attr_is_static(g, n)) return 0;
    for (uint32_t i = 0; i < n->nin; i++)
        if (!foldable_operand(g, n->op, n->in[i])) return 0;
    return eval_fold(g, n, &c) ? build_const(g, n->type, c) : 0;
}

/* ---- Tracked elements ---- */

static Value const_of_elems(Graph *g, const Type *t, const Expr *e, uint32_t n) {
    int64_t v;
    for (uint32_t i = 0; i < n; i++)
        if (!expr_is_const(g->exprs, e[i], &v)) return 0;
    void *data = arena_array(g->arena, n, dtype_bytes(t->dtype));
    for (uint32_t i = 0; i < n; i++) dtype_store_i64(t->dtype, data, i, expr_value(g->exprs, e[i]));
    return build_const(g, *t, (Constant){.data = data, .bytes = n * dtype_bytes(t->dtype)});
}

static Value fold_tracked(Graph *g, const Node *n, uint32_t count) {
    if (dtype_is_float(n->type.dtype)) return 0;
    const Expr *e = fold_elems(g, n, false, 0);
    if (!e) return 0;
    Value v = const_of_elems(g, &n->type, e, count);
    if (v || n->op == OP_exprs) return v;
    Attr a = {.exprs = {count, e}};
    return build_append(g, OP_exprs, NULL, 0, &a, &n->type);
}

/* Weights of 8 bits stay that: contractions may take them as they are (pass_quads). */
static bool widens_weights(const Graph *g, const Node *n) {
    if (n->op != OP_cast || dtype_bytes(n->type.dtype) < 2) return false;
    const Type *t = graph_type(g, n->in[0]);
    bool byte = t->dtype == DT_i8 || t->dtype == DT_u8;
    return byte && t->rank > 1 && build_count(g, t, MAX_SCALES) < 0;
}

/* Weights that are turned stay as they lie, however few they are: the view costs nothing, and a
 * contraction may take rows along its sum alone. */
static bool turns_weights(const Graph *g, const Node *n) {
    if (n->op != OP_permute || !dtype_is_float(n->type.dtype) ||
        build_count(g, &n->type, MAX_SCALES) >= 0)
        return false;
    uint32_t long_axes = 0;
    for (uint32_t i = 0; i < n->type.rank; i++)
        long_axes += !expr_is_value(g->exprs, n->type.dim[i], 1);
    return long_axes > 1;
}

/* A constant or OP_exprs node that equals n; 0 if none. */
static Value fold_node(Graph *g, const Node *n) {
    OpClass cls = op_info[n->op].cls;
    int64_t count = build_count(g, &n->type, BUILD_MAX_FOLDED);
    if (count < 0 || cls == OPC_CONTROL || cls == OPC_RANDOM) return 0;
    if (count == 0) return build_const(g, n->type, (Constant){.data = ""});
    /* An expand of a constant says more than its copies do. */
    if (n->op == OP_expand) return 0;
    Value v =
        cls == OPC_SOURCE || widens_weights(g, n) || turns_weights(g, n) ? 0 : fold_constant(g, n);
    if (v || count > BUILD_MAX_SYMBOLS) return v;
    return fold_tracked(g, n, (uint32_t)count);
}

Value build_node(Graph *g, Op op, const Value *in, uint32_t nin, const Attr *attr, const Type *t) {
    Node n = {.op = (uint8_t)op, .nin = nin, .in = in, .type = *t, .loc = build_loc(g)};
    if (attr) n.attr = *attr;
    Value folded = fold_node(g, &n);
    return folded ? folded : build_append(g, op, in, nin, attr, t);
}

/* OP_exprs through the fold, which makes it a constant where all elements are. */
static Value exprs_node(Graph *g, Type type, const Expr *v, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!v[i]) return 0;
    Attr a = {.exprs = {n, arena_copy(g->arena, v, n * sizeof(Expr))}};
    return build_node(g, OP_exprs, NULL, 0, &a, &type);
}

Value build_exprs(Graph *g, DType t, const Expr *v, uint32_t n) {
    return exprs_node(g, (Type){.dtype = t, .rank = 1, .dim = {expr_const(g->exprs, n)}}, v, n);
}

Value build_expr(Graph *g, DType t, Expr e) {
    return exprs_node(g, (Type){.dtype = t}, &e, 1);
}
