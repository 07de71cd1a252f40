/* Weights of 3x3 convolutions in Winograd's F(2x2, 3x3) form, U = G g G^T for every pair of
 * channels, in panels: [ceil(N/NR)][4][4][C][NR]. A prepare step writes them; the contraction's
 * body gets each weight back out of U exactly as far as f32 allows (g = rows 0, 1 - 2 and 3 of G
 * g), so the kernel means the same whether or not its target has a Winograd loop structure. */
#include "fusion/special/special.h"

enum { TAPS = 9, PLANES = 16 };

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

/* Where the weight of tap (kh, kw) is, of what the step's point, at `origin`, prepares. */
static IdxId wino_tap(Fuse *f, Group *g, const Pack *k, const Expr *origin, uint32_t tap) {
    Expr dim[4] = {expr_const(f->p, tap / 3), expr_const(f->p, tap % 3), origin[2], origin[3]};
    return idx_make(f, g, graph_type(f->g, k->b), dim, 0);
}

/* Axes panel, c, column of the panel: each point of theirs reads nine weights, each of them once,
 * and stores one element of every plane. */
static void wino_axes(Fuse *f, Group *g, Pack *k, Expr *dim, Expr *column) {
    ExprPool *p = f->p;
    Expr nr = expr_const(p, k->nr);
    Expr panel = axis_new(f, g, expr_ceildiv(p, k->n, nr), AX_PAR);
    dim[0] = dim[1] = expr_const(p, 0);
    dim[2] = axis_new(f, g, graph_type(f->g, k->b)->dim[2], AX_PAR);
    *column = expr_add(p, expr_muli(p, panel, k->nr), axis_new(f, g, nr, AX_PAR));
    dim[3] = *column;
    for (uint32_t i = 0; i < TAPS; i++)
        fuse_demand(f, g, k->b, wino_tap(f, g, k, dim, i), USE_point, READ_masked);
}

/* G[t][k], times two in its middle rows: 1 0 0; 1 1 1; 1 -1 1; 0 0 1. */
static const int scaled_g[4][3] = {{1, 0, 0}, {1, 1, 1}, {1, -1, 1}, {0, 0, 1}};

/* U's element (ti, tj): the sum of those weights that are in it, tap by tap. */
static KVal wino_plane(Body *b, const KVal *w, uint32_t ti, uint32_t tj) {
    const bool mid[2] = {ti == 1 || ti == 2, tj == 1 || tj == 2};
    KVal u = 0; /* its first weight has a plus in all of them */
    for (uint32_t i = 0; i < TAPS; i++) {
        int sign = scaled_g[ti][i / 3] * scaled_g[tj][i % 3];
        if (sign && !u)
            u = w[i];
        else if (sign)
            u = body_op2(b, sign > 0 ? OP_add : OP_sub, DT_f32, u, w[i]);
    }
    const double scale = (mid[0] ? 0.5 : 1) * (mid[1] ? 0.5 : 1);
    return scale < 1 ? body_op2(b, OP_mul, DT_f32, u, body_const_f(b, DT_f32, scale)) : u;
}

static void wino_lower(Body *b, const Root *r) {
    Fuse *f = b->f;
    ExprPool *p = f->p;
    const Pack *k = &f->packs.v[r->at];
    const Idx x = *idx_get(b->g, r->idx);
    const Expr nr = expr_const(p, k->nr), mask = b->g->pack_mask;
    KVal w[TAPS];
    for (uint32_t i = 0; i < TAPS; i++)
        w[i] = body_or_zero(b, pull(b, r->v, wino_tap(f, b->g, k, x.dim, i), mask), mask);
    for (uint32_t i = 0; i < PLANES; i++) {
        Expr at = wino_index(f, k, expr_const(p, i / 4), expr_const(p, i % 4), x.dim[2],
                             expr_div(p, x.dim[3], nr), expr_mod(p, x.dim[3], nr));
        body_store(b, DT_f32, wino_plane(b, w, i / 4, i % 4), k->buf - 1, at, 0);
    }
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
