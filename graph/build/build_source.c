/* Builders of nodes without tensor operands, inputs and outputs of the graph. */
#include "graph/build/build_impl.h"

#include <string.h>

Value build_input(Graph *g, const char *name, Type t) {
    Attr a = {.input = {g->inputs.n}};
    Value v = build_append(g, OP_input, NULL, 0, &a, &t);
    IoInfo io = {arena_strdup(g->arena, name), v, t, 0};
    vec_push(g->arena, &g->inputs, io);
    return v;
}

void build_output(Graph *g, const char *name, Value v) {
    if (!v) return;
    IoInfo io = {arena_strdup(g->arena, name), v, *graph_type(g, v), builder_of(g)->entries};
    vec_push(g->arena, &g->outputs, io);
}

Value build_const(Graph *g, Type t, Constant c) {
    int64_t limit = (int64_t)(INT64_MAX / 16), n = build_count(g, &t, limit);
    if (n < 0 || (uint64_t)n * dtype_bytes(t.dtype) != c.bytes)
        return build_error(g, D_TENSOR, "constant \"%s\": %llu bytes do not fill %s",
                           c.name ? c.name : "", (unsigned long long)c.bytes,
                           build_type_text(g, &t));
    if (!c.name) c.name = "";
    Attr a = {.constant = c};
    return build_append(g, OP_const, NULL, 0, &a, &t);
}

static Value owned_const(Graph *g, Type t, const void *data, size_t bytes) {
    return build_const(g, t, (Constant){.data = data, .bytes = bytes});
}

/* The type of no value, as asked for after an error, makes no value. */
Value build_scalar_f(Graph *g, DType t, double v) {
    if (t == DT_none) return 0;
    void *p = arena_alloc(g->arena, 8);
    dtype_store_f64(t, p, 0, v);
    return owned_const(g, (Type){.dtype = t}, p, dtype_bytes(t));
}

Value build_scalar_i(Graph *g, DType t, int64_t v) {
    if (t == DT_none) return 0;
    void *p = arena_alloc(g->arena, 8);
    dtype_store_i64(t, p, 0, v);
    return owned_const(g, (Type){.dtype = t}, p, dtype_bytes(t));
}

Value build_ints(Graph *g, DType t, const int64_t *v, uint32_t n) {
    void *p = arena_array(g->arena, n, dtype_bytes(t));
    for (uint32_t i = 0; i < n; i++) dtype_store_i64(t, p, i, v[i]);
    Type type = {.dtype = t, .rank = 1, .dim = {expr_const(g->exprs, n)}};
    return owned_const(g, type, p, n * dtype_bytes(t));
}

Value build_iota(Graph *g, DType t, uint8_t rank, const Expr *dim, int axis) {
    axis = build_axis(g, axis, rank, "iota");
    if (axis < 0 || t == DT_none) return 0;
    Type type = build_type(t, rank, dim);
    Attr a = {.axis = {axis}};
    return build_append(g, OP_iota, NULL, 0, &a, &type);
}

static Value uniform_node(Graph *g, const Type *t, uint64_t seed, const Value *in, uint32_t nin) {
    if (!build_check_domain(g, OP_uniform, t->dtype)) return 0;
    Attr a = {.random = {seed}};
    return build_append(g, OP_uniform, in, nin, &a, t);
}

Value build_uniform(Graph *g, DType t, uint8_t rank, const Expr *dim, uint64_t seed) {
    Type type = build_type(t, rank, dim);
    return uniform_node(g, &type, seed, NULL, 0);
}

Value build_uniform_draw(Graph *g, DType t, uint8_t rank, const Expr *dim, uint64_t stream,
                         Value draw) {
    if (!draw) return 0;
    const Type *d = graph_type(g, draw);
    if (d->rank || d->dtype != DT_i64)
        return build_error(g, D_DTYPE, "the number of a draw must be i64[], not %s",
                           build_type_text(g, d));
    Type type = build_type(t, rank, dim);
    return uniform_node(g, &type, stream, &draw, 1);
}
