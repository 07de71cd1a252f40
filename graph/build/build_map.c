/* Element-wise ops and broadcasting. */
#include "graph/build/build_impl.h"

#include <string.h>

static Expr broadcast_dim(Graph *g, Expr a, Expr b) {
    if (expr_is_value(g->exprs, a, 1)) return b;
    if (expr_is_value(g->exprs, b, 1)) return a;
    if (build_maybe_one(g, a, b)) return b;
    if (build_maybe_one(g, b, a)) return a;
    return build_unify_dim(g, a, b);
}

bool build_broadcast(Graph *g, const Type *x, const Type *y, uint8_t *rank, Expr *dim) {
    int r = x->rank > y->rank ? x->rank : y->rank;
    Expr one = expr_const(g->exprs, 1), out[GRAPH_MAX_RANK];
    for (int i = 0; i < r; i++) {
        int xi = i - (r - x->rank), yi = i - (r - y->rank);
        out[i] = broadcast_dim(g, xi < 0 ? one : x->dim[xi], yi < 0 ? one : y->dim[yi]);
        if (out[i]) continue;
        build_error(g, D_SHAPE, "%s and %s cannot be broadcast", build_type_text(g, x),
                    build_type_text(g, y));
        return false;
    }
    *rank = (uint8_t)r;
    memcpy(dim, out, (size_t)r * sizeof *dim);
    return true;
}

/* ---- Element-wise ops ---- */

static bool check_operands(Graph *g, Op op, const Value *in, uint32_t n) {
    if (n != (uint32_t)op_info[op].arity) {
        build_error(g, D_ARITY, "%s takes %d operands, not %u", op_info[op].name, op_info[op].arity,
                    n);
        return false;
    }
    if (!build_check_domain(g, op, graph_type(g, in[0])->dtype)) return false;
    for (uint32_t i = op == OP_select ? 2 : 1; i < n; i++)
        if (graph_type(g, in[i])->dtype != graph_type(g, in[i - 1])->dtype) {
            build_error(g, D_DTYPE, "%s of %s and %s", op_info[op].name,
                        dtype_name(graph_type(g, in[i - 1])->dtype),
                        dtype_name(graph_type(g, in[i])->dtype));
            return false;
        }
    return true;
}

static int place_of_operand(const Graph *g, Value v) {
    if (fold_splat(g, v, NULL, NULL)) return OP_COUNT;
    const Node *n = graph_node(g, v);
    while (op_info[n->op].cls == OPC_VIEW) n = graph_node(g, n->in[0]);
    return op_info[n->op].cls == OPC_CONTRACT ? -1 : (int)n->op;
}

/* Contractions go left, splats right, the rest by what computes them and in order of appearance, so
 * that equal sums meet in the CSE table. What all layers share appears in the first one: appearance
 * alone would give that layer kernels of its own, which differ from the others' in nothing else. */
static void order_operands(const Graph *g, Op op, Value *in) {
    if (!op_has_flag(op, 'C')) return;
    const int place[2] = {place_of_operand(g, in[0]), place_of_operand(g, in[1])};
    if (place[0] != place[1] ? place[0] < place[1] : in[0] <= in[1]) return;
    Value t = in[0];
    in[0] = in[1];
    in[1] = t;
}

/* A value of one element per expand, or 0: maps are done before the repetition. */
static Value expand_source(const Graph *g, Value v) {
    const Node *n = graph_node(g, v);
    if (n->op != OP_expand) return 0;
    return build_count(g, graph_type(g, n->in[0]), 1) == 1 ? n->in[0] : 0;
}

static Value map_of_expands(Graph *g, Op op, const Value *in, uint32_t n, const Attr *attr) {
    Value scalar[3];
    for (uint32_t i = 0; i < n; i++)
        if (!(scalar[i] = expand_source(g, in[i]))) return 0;
    Type full = *graph_type(g, in[0]), t = *graph_type(g, scalar[0]);
    Value v;
    if (op == OP_cast)
        v = build_cast_ex(g, scalar[0], attr->cast.to, attr->cast.saturate, attr->cast.round);
    else if (op == OP_bitcast)
        v = build_bitcast(g, scalar[0], attr->cast.to);
    else
        v = build_map(g, op, scalar, n);
    GC_ASSERT(t.rank == full.rank);
    return build_expand(g, v, full.rank, full.dim);
}

static Value map_node(Graph *g, Op op, const Value *in, uint32_t n, const Attr *attr) {
    Value v = fold_map(g, op, in, n, attr);
    if (v) return v;
    if ((v = map_of_expands(g, op, in, n, attr))) return v;
    Type t = *graph_type(g, in[op == OP_select ? 1 : 0]);
    if (op_info[op].dtype_rule == 'B') t.dtype = DT_bool;
    if (op_info[op].dtype_rule == 'T') t.dtype = attr->cast.to;
    return build_node(g, op, in, n, attr, &t);
}

Value build_map(Graph *g, Op op, const Value *in, uint32_t n) {
    Value x[3];
    GC_ASSERT(op_info[op].cls == OPC_MAP && op != OP_cast && op != OP_bitcast);
    if (n > 3 || n == 0) return build_error(g, D_ARITY, "%s of %u operands", op_info[op].name, n);
    if (!build_valid(in, n) || !check_operands(g, op, in, n)) return 0;
    memcpy(x, in, n * sizeof *x);
    for (uint32_t i = 1; i < n; i++)
        if (graph_type(g, x[i])->rank != graph_type(g, x[0])->rank)
            return build_error(g, D_SHAPE, "%s of %s and %s", op_info[op].name,
                               build_type_text(g, graph_type(g, x[0])),
                               build_type_text(g, graph_type(g, x[i])));
    if (!build_unify_axes(g, x, n, UINT32_MAX, op_info[op].name)) return 0;
    order_operands(g, op, x);
    return map_node(g, op, x, n, NULL);
}

static Value broadcast_map(Graph *g, Op op, const Value *in, uint32_t n) {
    if (!build_valid(in, n)) return 0;
    Type t = *graph_type(g, in[0]);
    for (uint32_t i = 1; i < n; i++)
        if (!build_broadcast(g, &t, graph_type(g, in[i]), &t.rank, t.dim)) return 0;
    Value x[3];
    for (uint32_t i = 0; i < n; i++)
        if (!(x[i] = build_expand(g, in[i], t.rank, t.dim))) return 0;
    return build_map(g, op, x, n);
}

Value build_unary(Graph *g, Op op, Value x) {
    return build_map(g, op, &x, 1);
}

Value build_binary(Graph *g, Op op, Value x, Value y) {
    return broadcast_map(g, op, (Value[]){x, y}, 2);
}

Value build_select(Graph *g, Value cond, Value x, Value y) {
    return broadcast_map(g, OP_select, (Value[]){cond, x, y}, 3);
}

Value build_binary_f(Graph *g, Op op, Value x, double c) {
    if (!x) return 0;
    DType t = graph_type(g, x)->dtype;
    if (dtype_is_float(t)) return build_binary(g, op, x, build_scalar_f(g, t, c));
    if (!(c >= -0x1p63 && c < 0x1p63) || c != (double)(int64_t)c)
        return build_error(g, D_DTYPE, "%s of %s and %g", op_info[op].name, dtype_name(t), c);
    return build_binary(g, op, x, build_scalar_i(g, t, (int64_t)c));
}

Value build_cast_ex(Graph *g, Value x, DType to, bool saturate, uint8_t round) {
    if (!x || to == DT_none) return 0;
    Attr a = {.cast = {to, saturate, round}};
    return map_node(g, OP_cast, &x, 1, &a);
}

/* Saturating is ONNX's default; it only matters for the float8 targets. */
Value build_cast(Graph *g, Value x, DType to) {
    DType from = x ? graph_type(g, x)->dtype : DT_none;
    return build_cast_ex(g, x, to, dtype_is_float(from) && dtype_bytes(to) == 1, 0);
}

Value build_bitcast(Graph *g, Value x, DType to) {
    if (!x) return 0;
    DType from = graph_type(g, x)->dtype;
    if (dtype_bytes(from) != dtype_bytes(to) || dtype_info[from].bits != dtype_info[to].bits)
        return build_error(g, D_DTYPE, "bits of %s cannot be read as %s", dtype_name(from),
                           dtype_name(to));
    Attr a = {.cast = {.to = to}};
    return map_node(g, OP_bitcast, &x, 1, &a);
}
