/* transpose_sink through reshapes and contractions (contract in pass_transpose_sink.c). */
#include "graph/pass/sink.h"

/* The axes of a type that are not of size 1. */
typedef struct Axes {
    int n, axis[GRAPH_MAX_RANK];
    Expr dim[GRAPH_MAX_RANK];
} Axes;

static Axes axes_of(const ExprPool *p, const Type *t) {
    Axes a = {0};
    for (int i = 0; i < t->rank; i++) {
        if (expr_is_value(p, t->dim[i], 1)) continue;
        a.axis[a.n] = i;
        a.dim[a.n++] = t->dim[i];
    }
    return a;
}

static bool divides(ExprPool *p, Expr small, Expr large) {
    return expr_mul(p, expr_div(p, large, small), small) == large;
}

/* One factor of a reshape: axes [i0, i1) of its operand hold the same elements, in the same order,
 * as axes [j0, j1) of its result (counted in Axes). */
typedef struct Factor {
    int i0, i1, j0, j1, place;
} Factor;

/* Splits a reshape into its smallest factors; 0 if sizes cannot be told apart. */
static int reshape_factors(ExprPool *p, const Axes *in, const Axes *out, Factor *f) {
    int i = 0, j = 0, n = 0;
    while (i < in->n && j < out->n) {
        Factor s = {.i0 = i, .j0 = j};
        Expr a = in->dim[i++], b = out->dim[j++];
        while (a != b) {
            if (i < in->n && divides(p, a, b))
                a = expr_mul(p, a, in->dim[i++]);
            else if (j < out->n && divides(p, b, a))
                b = expr_mul(p, b, out->dim[j++]);
            else
                return 0;
        }
        s.i1 = i;
        s.j1 = j;
        f[n++] = s;
    }
    return i == in->n && j == out->n ? n : 0;
}

/* Where each outer axis comes among the inner axes that are not of size 1. */
static void inner_places(const ExprPool *p, const Type *outer, const Perm *perm, int *place) {
    for (int i = 0; i < perm->rank; i++) {
        place[i] = 0;
        for (int k = 0; k < perm->rank; k++)
            place[i] += perm->axis[k] < perm->axis[i] && !expr_is_value(p, outer->dim[k], 1);
    }
}

static bool side_by_side(const Factor *f, const Axes *in, const int *place) {
    for (int i = f->i0 + 1; i < f->i1; i++)
        if (place[in->axis[i]] != place[in->axis[i - 1]] + 1) return false;
    return true;
}

Value sink_reshape(Rewrite *r, Value v, const Perm *perm, Value inner) {
    ExprPool *p = r->to->exprs;
    const Type *to = graph_type(r->from, v);
    const Type *from = graph_type(r->to, rewrite_in(r, v, 0));
    Axes in = axes_of(p, from), out = axes_of(p, to);
    Factor f[GRAPH_MAX_RANK];
    Expr dim[GRAPH_MAX_RANK];
    int place[GRAPH_MAX_RANK];
    Perm result = {.rank = to->rank};
    uint8_t at = 0;
    int n = reshape_factors(p, &in, &out, f);
    inner_places(p, from, perm, place);
    for (int k = 0; k < n; k++) {
        if (!side_by_side(&f[k], &in, place)) return sink_split(r, v, perm, inner);
        f[k].place = place[in.axis[f[k].i0]];
    }
    if (n == 0) return 0;
    for (int want = 0; want < in.n; want++) /* factors in the inner order */
        for (int k = 0; k < n; k++)
            for (int j = f[k].j0; f[k].place == want && j < f[k].j1; j++) {
                dim[at] = out.dim[j];
                result.axis[out.axis[j]] = at++;
            }
    for (int j = 0; j < to->rank; j++) { /* and what has size 1 behind them */
        if (!expr_is_value(p, to->dim[j], 1)) continue;
        dim[at] = to->dim[j];
        result.axis[j] = at++;
    }
    return build_permute(r->to, build_reshape(r->to, inner, to->rank, dim), result.axis);
}

/* Contractions. Linear layers see [.., K] as [M, K]; where the leading axes were permuted before,
 * the rows can as well come in the order of memory, and the result is permuted instead. */

typedef struct Rows {
    int n;     /* leading axes that make up the rows */
    Perm perm; /* of the operand before the reshape */
    Value inner;
    const Type *outer;
} Rows;

static bool merged_rows(const Rewrite *r, Value a, Rows *out) {
    const Graph *g = r->to;
    const Node *reshape = graph_node(g, a);
    if (reshape->op != OP_reshape || !sink_permuted(g, reshape->in[0], &out->perm, &out->inner))
        return false;
    out->outer = graph_type(g, reshape->in[0]);
    Expr rows = expr_const(g->exprs, 1);
    for (out->n = 1; out->n < out->perm.rank; out->n++) {
        rows = expr_mul(g->exprs, rows, out->outer->dim[out->n - 1]);
        if (rows == reshape->type.dim[0]) return out->n > 1;
    }
    return false;
}

/* Every reader takes the rows apart again. */
static bool readers_split(const Rewrite *r, Value v, const Rows *rows) {
    const Graph *g = r->from;
    uint32_t seen = 0;
    for (Value u = v + 1; u < g->nodes.n && seen < r->uses[v]; u++) {
        const Node *n = graph_node(g, u);
        for (uint32_t i = 0; i < n->nin; i++) {
            if (n->in[i] != v) continue;
            if (n->op != OP_reshape || n->type.rank != rows->n + 1) return false;
            for (int d = 0; d < rows->n; d++)
                if (n->type.dim[d] != rows->outer->dim[d]) return false;
            seen++;
        }
    }
    return seen == r->uses[v];
}

Value sink_dot(Rewrite *r, Value v) {
    Graph *g = r->to;
    Type t = *graph_type(r->from, v);
    Rows rows;
    if (t.rank != 2 || !merged_rows(r, rewrite_in(r, v, 0), &rows) || !readers_split(r, v, &rows))
        return 0;
    /* order[i]: the i-th leading axis in the inner order; back: the way to the outer one. */
    uint8_t order[GRAPH_MAX_RANK], perm[GRAPH_MAX_RANK], back[GRAPH_MAX_RANK];
    Expr dim[GRAPH_MAX_RANK];
    bool moved = false;
    for (int i = 0; i < rows.perm.rank; i++) order[i] = (uint8_t)i;
    for (int i = 1; i < rows.n; i++)
        for (int k = i; k > 0 && rows.perm.axis[order[k]] < rows.perm.axis[order[k - 1]]; k--) {
            uint8_t swap = order[k];
            order[k] = order[k - 1];
            order[k - 1] = swap;
            moved = true;
        }
    if (!moved) return 0;
    for (int i = 0; i < rows.perm.rank; i++) perm[i] = rows.perm.axis[order[i]];
    for (int i = 0; i < rows.n; i++) {
        dim[i] = rows.outer->dim[order[i]];
        back[order[i]] = (uint8_t)i;
    }
    dim[rows.n] = t.dim[1];
    back[rows.n] = (uint8_t)rows.n;
    Type a = *graph_type(g, rewrite_in(r, v, 0));
    Value x = build_reshape(g, build_permute(g, rows.inner, perm), 2, a.dim);
    Value y = build_dot(g, x, rewrite_in(r, v, 1), graph_node(r->from, v)->attr.cast.to);
    Value split = build_reshape(g, y, (uint8_t)(rows.n + 1), dim);
    return build_reshape(g, build_permute(g, split, back), 2, t.dim);
}
