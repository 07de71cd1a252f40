/* Which rows a kernel takes: all of a number, whatever its mask says of those past the last; and
 * what goes along them. */
#include "codegen/nvptx/band/band.h"

bool band_is_column(const Band *b, KVal v) {
    const Gpu *g = b->r.team.g;
    return g->k->ops[v].op == K_kreduce && g->k->ops[v].axes == 1u << b->turn;
}

/* What there is in the kernel for rows that do not exist. */
static Expr row_mask(const Band *b) {
    const Kernel *k = b->r.team.g->k;
    for (KVal v = 1; v < k->nops; v++)
        if (k->ops[v].op == K_kstore && k->ops[v].mask) return k->ops[v].mask;
    return 0;
}

/* x, of the kernel, at a row below `end`: *row. */
static Expr at_row(const Band *b, Expr x, int64_t end, Expr *row) {
    const Gpu *g = b->r.team.g;
    ExprPool *p = g->e->exprs;
    const KAxis *a = g->k->axes;
    *row = expr_sym_new(p, (SymInfo){.name = "row", .kind = SYM_AXIS, .hi = end - 1});
    uint32_t sym[2] = {a[0].sym, a[b->turn].sym};
    Expr by[2] = {expr_mod(p, *row, a[0].extent), expr_div(p, *row, a[0].extent)};
    return expr_subst(p, x, sym, by, 2);
}

/* The kernel takes row block + turn * blocks, if it is below a number of rows: that number. */
bool band_find_rows(Band *b) {
    const Gpu *g = b->r.team.g;
    ExprPool *p = g->e->exprs;
    Expr live = row_mask(b), row;
    b->rows = expr_mul(p, g->k->axes[0].extent, g->k->axes[b->turn].extent);
    if (!live || b->dealt) return true;
    Expr is = at_row(b, live, INT32_MAX, &row);
    if (expr_op(p, is) != EX_lt || expr_arg(p, is, 0) != row) return false;
    b->rows = expr_arg(p, is, 1);
    return true;
}

void band_forget_mask(Band *b) {
    Gpu *g = b->r.team.g;
    Expr live = row_mask(b);
    if (!live) return;
    Kernel *k = arena_copy(g->e->arena, g->k, sizeof *k);
    k->ops = arena_copy(g->e->arena, k->ops, k->nops * sizeof *k->ops);
    for (KVal v = 1; v < k->nops; v++) {
        KOp *o = &k->ops[v];
        if (o->mask == live) o->mask = 0;
        if (o->op == K_kexpr && o->index == live) o->index = expr_const(g->e->exprs, 1);
    }
    g->k = g->e->k = k;
}

bool band_is_row(const Band *b, KVal v, int64_t end) {
    const Gpu *g = b->r.team.g;
    ExprPool *p = g->e->exprs;
    const KAxis *lane = &g->k->axes[b->r.lane];
    Expr row, x = at_row(b, g->k->ops[v].index, end, &row);
    return x == expr_add(p, expr_mul(p, row, lane->extent), expr_sym_ref(p, lane->sym));
}

bool band_rows_touch(const Band *b) {
    const Gpu *g = b->r.team.g;
    ExprPool *p = g->e->exprs;
    int64_t least, end;
    uint32_t sym;
    if (b->starts) return true;
    expr_range(p, b->rows, &least, &end);
    for (uint32_t i = 0; i < b->nown; i++) {
        Expr row, coef, rest, x = at_row(b, g->k->ops[b->own[i]].index, end, &row);
        if (!expr_is_sym(p, row, &sym) || !expr_affine(p, x, sym, &coef, &rest)) return false;
        if (coef != g->k->axes[b->r.lane].extent) return false;
    }
    return true;
}
