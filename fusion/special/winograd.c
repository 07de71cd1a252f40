/* Weights of 3x3 convolutions in Winograd's F(2x2, 3x3) form, U = G g G^T for every pair of
 * channels, in panels: [ceil(N/NR)][4][4][C][NR]. A prepare step writes them; the contraction's
 * body gets each weight back out of U exactly as far as f32 allows (g = rows 0, 1 - 2 and 3 of G
 * g), so the kernel means the same whether or not its target has a Winograd loop structure. */
#include "fusion/special/special.h"

static Expr wino_numel(Fuse *f, const Pack *k) {
    const Type *w = graph_type(f->g, k->b);
    Expr panels = expr_ceildiv(f->p, k->n, expr_const(f->p, k->nr));
    return expr_mul(f->p, panels, expr_muli(f->p, w->dim[2], 16 * (int64_t)k->nr));
}

static Expr wino_index(Fuse *f, const Pack *k, Expr ti, Expr tj, Expr c, Expr panel, Expr lane) {
    ExprPool *p = f->p;
    Expr plane = expr_add(p, expr_muli(p, ti, 4), tj);
    Expr at = expr_add(p, expr_muli(p, panel, 16), plane);
    at = expr_add(p, expr_mul(p, at, graph_type(f->g, k->b)->dim[2]), c);
    return expr_add(p, expr_muli(p, at, k->nr), lane);
}

/* Axes panel, ti, tj, c, column of the panel; folded: kh, kw. */
static void wino_axes(Fuse *f, Group *g, Pack *k, Expr *dim, Expr *column) {
    ExprPool *p = f->p;
    const Type *w = graph_type(f->g, k->b);
    Expr three = expr_const(p, 3), four = expr_const(p, 4), nr = expr_const(p, k->nr);
    Expr panel = axis_new(f, g, expr_ceildiv(p, k->n, nr), AX_PAR);
    k->wino_axis = g->naxes;
    axis_new(f, g, four, AX_PAR);
    axis_new(f, g, four, AX_PAR);
    dim[2] = axis_new(f, g, w->dim[2], AX_PAR);
    *column = expr_add(p, expr_muli(p, panel, k->nr), axis_new(f, g, nr, AX_PAR));
    dim[0] = axis_new(f, g, three, AX_RED);
    dim[1] = axis_new(f, g, three, AX_RED);
    dim[3] = *column;
}

/* 2 G[t][k] for G = 1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1. */
static Expr twice_g(ExprPool *p, Expr t, Expr k) {
    Expr c[4], is[4];
    for (int i = 0; i < 4; i++) {
        c[i] = expr_const(p, i);
        is[i] = expr_eq(p, t, c[i]);
    }
    Expr first = expr_muli(p, expr_eq(p, k, c[0]), 2), last = expr_muli(p, expr_eq(p, k, c[2]), 2);
    Expr sign = expr_sub(p, c[1], expr_muli(p, expr_mul(p, is[2], expr_eq(p, k, c[1])), 2));
    return expr_select(p, is[0], first, expr_select(p, is[3], last, sign));
}

static void wino_lower(Body *b, const Root *r) {
    Fuse *f = b->f;
    Group *g = b->g;
    ExprPool *p = f->p;
    const Pack *k = &f->packs.v[r->at];
    const Idx *x = idx_get(g, r->idx);
    Expr kh = x->dim[0], kw = x->dim[1], c = x->dim[2], column = x->dim[3];
    Expr t[2];
    for (uint32_t i = 0; i < 2; i++) t[i] = expr_sym_ref(p, g->axes[k->wino_axis + i].sym);
    KVal w = body_or_zero(b, pull(b, r->v, r->idx, g->pack_mask), g->pack_mask);
    Expr coef = expr_mul(p, twice_g(p, t[0], kh), twice_g(p, t[1], kw));
    KVal term = body_op2(b, OP_mul, DT_f32, w, body_expr(b, coef, DT_f32));
    KOp sum = {.op = K_kreduce, .dtype = DT_f32, .fold = FOLD_sum, .in[0] = term};
    sum.axes = group_axes(g, AX_RED);
    KVal u = body_op2(b, OP_mul, DT_f32, body_op(b, sum), body_const_f(b, DT_f32, 0.25));
    Expr nr = expr_const(p, k->nr);
    Expr at = wino_index(f, k, t[0], t[1], c, expr_div(p, column, nr), expr_mod(p, column, nr));
    body_store(b, DT_f32, u, k->buf - 1, at, 0);
}

/* U's element where `when` holds (0 = always), else 0. */
static KVal load_u(Body *b, const Pack *k, const Idx *x, Expr ti, Expr tj, Expr when) {
    ExprPool *p = b->f->p;
    Expr nr = expr_const(p, k->nr), column = x->dim[3];
    KOp o = body_blank(K_kload, DT_f32);
    o.buf = body_param(b, k->buf - 1, false);
    o.index =
        wino_index(b->f, k, ti, tj, x->dim[2], expr_div(p, column, nr), expr_mod(p, column, nr));
    o.mask = when;
    return body_op(b, o);
}

static KVal wino_read(Body *b, const Pack *k, Value operand, IdxId idx) {
    ExprPool *p = b->f->p;
    (void)operand; /* no views lie between a convolution and its weights */
    const Idx x = *idx_get(b->g, idx);
    Expr one = expr_const(p, 1), two = expr_const(p, 2), mid[2], at[2];
    for (int i = 0; i < 2; i++) { /* rows 0, 1 and 3 of U, minus row 2 for the middle one */
        mid[i] = expr_eq(p, x.dim[i], one);
        at[i] = expr_add(p, x.dim[i], expr_div(p, x.dim[i], two));
    }
    KVal right = load_u(b, k, &x, at[0], two, mid[1]);
    KVal upper = body_op2(b, OP_sub, DT_f32, load_u(b, k, &x, at[0], at[1], 0), right);
    KVal corner = load_u(b, k, &x, two, two, expr_mul(p, mid[0], mid[1]));
    KVal lower = body_op2(b, OP_sub, DT_f32, load_u(b, k, &x, two, at[1], mid[0]), corner);
    b->k->dot.wino = 1 + body_param(b, k->buf - 1, false);
    return body_op2(b, OP_sub, DT_f32, upper, lower);
}

const PackForm pack_winograd = {"winograd_pack", wino_numel, wino_axes, wino_lower, wino_read};
