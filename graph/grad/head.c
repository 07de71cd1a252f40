#include "graph/grad/head.h"
#include "graph/grad/grad_impl.h"

/* --- Finding it ------------------------------------------------------------------------------- */

/* The value that v repeats in every row, as [classes] or [1]; 0: there is none. */
static Value repeated(Graph *g, Value v) {
    const Node *n = graph_node(g, v);
    if (n->op != OP_expand) return 0;
    const Type t = *graph_type(g, n->in[0]);
    int64_t size;
    for (int i = 0; i < t.rank - 1; i++)
        if (!expr_is_const(g->exprs, t.dim[i], &size) || size != 1) return 0;
    return t.rank ? build_reshape(g, n->in[0], 1, &t.dim[t.rank - 1]) : 0;
}

/* Goes up one value from *v towards the contraction. */
static bool look_up(Graph *g, Head *h, const bool *trained, uint32_t nold, Value *v) {
    const Node n = *graph_node(g, *v);
    if (!n.nin) return false; /* what the model is given: there is no contraction */
    HeadStep s = {.node = *v};
    const Type *t = &n.type, *from = graph_type(g, n.in[0]);
    if (n.op == OP_reshape) {
        if (!from->rank || !t->rank || from->dim[from->rank - 1] != t->dim[t->rank - 1])
            return false;
        return *v = n.in[0], true;
    }
    if (op_info[n.op].cls != OPC_MAP || n.nin > 2 || h->nsteps == HEAD_STEPS) return false;
    uint32_t way = 0;
    if (n.nin == 2) {
        s.row_left = (s.row = repeated(g, n.in[0])) != 0;
        if (!s.row) s.row = repeated(g, n.in[1]);
        if (!s.row) return false;
        way = s.row_left;
        s.trained = s.row < nold ? trained[s.row] : trained[n.in[!way]];
        if (s.trained && n.op != OP_add) return false;
    }
    h->step[h->nsteps++] = s;
    return *v = n.in[way], true;
}

/* So many rows that logits of a part are worth one. */
static int64_t part_of(int64_t rows, int64_t classes, int64_t width, uint32_t processors) {
    int64_t most = HEAD_BYTES / 4 / classes, across = (width + HEAD_TILE - 1) / HEAD_TILE;
    if (rows <= most) return rows;
    const int64_t fill = processors > 1 ? (processors + across - 1) / across * HEAD_ALIGN : 0;
    if (most < HEAD_ROWS) most = HEAD_ROWS;
    if (most < fill) most = fill;
    const int64_t parts = (rows + most - 1) / most, part = (rows + parts - 1) / parts;
    return (part + HEAD_ALIGN - 1) / HEAD_ALIGN * HEAD_ALIGN;
}

bool head_find(Graph *g, Value logits, uint32_t rows, uint32_t processors, const Value *params,
               uint32_t nparams, Head *out) {
    const uint32_t nold = g->nodes.n;
    bool *trained = ARENA_ARRAY(g->arena, bool, nold);
    int64_t classes;
    *out = (Head){0};
    for (uint32_t i = 0; i < nparams; i++) trained[params[i]] = true;
    grad_reach(g, trained, NULL);
    Value v = logits;
    while (graph_node(g, v)->op != OP_dot)
        if (!look_up(g, out, trained, nold, &v)) return false;
    const Node *n = graph_node(g, v);
    const Type *t = &n->type;
    if (t->rank != 2 || !dtype_is_float(graph_type(g, n->in[0])->dtype)) return false;
    if (!expr_is_const(g->exprs, t->dim[0], &out->rows)) return false;
    if (!expr_is_const(g->exprs, t->dim[1], &classes) || !classes) return false;
    out->dot = v, out->x = n->in[0], out->w = n->in[1];
    out->dx = trained[out->x], out->dw = trained[out->w];
    out->turned = graph_node(g, out->w)->op == OP_permute;
    int64_t width;
    if (!expr_is_const(g->exprs, graph_type(g, n->in[1])->dim[0], &width) || !width) return false;
    out->part = rows ? rows : part_of(out->rows, classes, width, processors);
    return out->part < out->rows;
}

/* --- Part by part ----------------------------------------------------------------------------- */

typedef struct Sums {
    Value loss, dw, row[HEAD_STEPS];
    VEC(Value) dx;
} Sums;

static Value rows_of(Graph *g, Value x, int64_t at, int64_t n) {
    return build_slice_axis(g, x, 0, expr_const(g->exprs, at), expr_const(g->exprs, n), 1);
}

static Value sum_of(Graph *g, Value a, Value b) {
    return a ? build_binary(g, OP_add, a, b) : b;
}

/* Logits of rows whose products with W are z. at[i]: what step i gives. */
static Value logits_of(Graph *g, const Head *h, Value z, Value *at) {
    for (uint32_t i = h->nsteps; i-- > 0;) {
        const HeadStep *s = &h->step[i];
        const Node n = *graph_node(g, s->node);
        if (!s->row)
            z = build_like(g, &n, &z, 1);
        else
            z = s->row_left ? build_binary(g, (Op)n.op, s->row, z)
                            : build_binary(g, (Op)n.op, z, s->row);
        at[i] = z;
    }
    return z;
}

/* Each row's logit of its own label, from the class's weights alone, in f32. */
static Value picked_of(Graph *g, const Head *h, Value x, Value label) {
    Value w = build_take(g, grad_transposed(g, h->w), label, 0);
    Value products = build_binary(g, OP_mul, build_cast(g, x, DT_f32), build_cast(g, w, DT_f32));
    Value z = build_reduce(g, OP_reduce_sum, products, 1u << 1, false);
    z = build_cast(g, z, graph_type(g, h->dot)->dtype);
    for (uint32_t i = h->nsteps; i-- > 0;) {
        const HeadStep *s = &h->step[i];
        const Node n = *graph_node(g, s->node);
        Value row = s->row;
        if (row && !expr_is_value(g->exprs, graph_type(g, row)->dim[0], 1))
            row = build_take(g, row, label, 0);
        if (!row)
            z = build_like(g, &n, &z, 1);
        else
            z = s->row_left ? build_binary(g, (Op)n.op, row, z) : build_binary(g, (Op)n.op, z, row);
    }
    return build_cast(g, z, DT_f32);
}

/* What the part's rows add to the gradients, given d loss / d logits. */
static void add_gradients(Graph *g, const Head *h, Value x, Value z, const Value *at, Value y,
                          Value dy, Sums *sums) {
    Value wrt[HEAD_STEPS + 1] = {z}, d[HEAD_STEPS + 1];
    for (uint32_t i = 0; i < h->nsteps; i++) wrt[i + 1] = at[i];
    if (grad_build(g, 1, &y, &dy, h->nsteps + 1, wrt, d) != GRAPHC_OK) return;
    const DType t = graph_type(g, h->x)->dtype, to = graph_type(g, h->dot)->dtype;
    const Value dz = build_cast(g, d[0], t);
    if (h->dx) {
        Value dx = build_dot(g, dz, grad_transposed(g, h->w), to);
        vec_push(g->arena, &sums->dx, build_cast(g, dx, t));
    }
    if (h->dw)
        sums->dw = sum_of(g, sums->dw,
                          h->turned ? build_dot(g, grad_transposed(g, dz), x, to)
                                    : build_dot(g, grad_transposed(g, x), dz, to));
    for (uint32_t i = 0; i < h->nsteps; i++)
        if (h->step[i].trained)
            sums->row[i] =
                sum_of(g, sums->row[i], build_reduce(g, OP_reduce_sum, d[i + 1], 1, false));
}

static void seed_all(Graph *g, const Head *h, const Sums *sums, LossSeeds *seeds) {
    const DType t = graph_type(g, h->x)->dtype;
    if (h->dx) loss_seed(g, seeds, h->x, build_concat(g, sums->dx.v, sums->dx.n, 0));
    if (h->dw) {
        const Value dw = build_cast(g, sums->dw, t);
        loss_seed(g, seeds, h->w, h->turned ? grad_transposed(g, dw) : dw);
    }
    for (uint32_t i = 0; i < h->nsteps; i++)
        if (h->step[i].trained) {
            const Type row = *graph_type(g, h->step[i].row);
            loss_seed(g, seeds, h->step[i].row, build_reshape(g, sums->row[i], 1, row.dim));
        }
}

Value head_loss(Graph *g, const Head *h, const LossSpec *s, const LossOperands *o, Value factor,
                LossSeeds *seeds) {
    const Loc here = build_loc(g);
    const Expr all = expr_const(g->exprs, h->rows);
    const Value labels = build_reshape(g, o->target, 1, &all);
    Sums sums = {0};
    build_at(g, graph_node(g, h->dot)->loc);
    for (int64_t at = 0; at < h->rows; at += h->part) {
        const int64_t n = h->rows - at < h->part ? h->rows - at : h->part;
        Value step[HEAD_STEPS], x = rows_of(g, h->x, at, n);
        Value z = build_dot(g, x, h->w, graph_type(g, h->dot)->dtype);
        const Value label = rows_of(g, labels, at, n), picked = picked_of(g, h, x, label);
        const LossOperands part = {logits_of(g, h, z, step), label, o->weights, picked};
        const Loss loss = loss_of(g, s, &part);
        sums.loss = sum_of(g, sums.loss, loss.sum);
        add_gradients(g, h, x, z, step, part.y, loss_cotangent(g, &loss, factor), &sums);
    }
    seed_all(g, h, &sums, seeds);
    build_at(g, here);
    return sums.loss;
}
