/* Rows that clusters deal out in lists (KDealt): a block walks one list after the other, each from
 * the start of the vector on in which its rows start, so that rows come and leave in whole vectors.
 * Rows of the next list start further along a vector: a thread's columns are others then, so that
 * sums of columns, and what all rows read alike, move on by as many elements in between. */
#include "codegen/nvptx/band/band.h"

/* --- The kernel as a block walks it ----------------------------------------------------------- */

static bool is_row_access(const Band *b, KVal v) {
    const Gpu *g = b->r.team.g;
    const KOp *o = &g->k->ops[v];
    const uint32_t dom = g->rows->dom[v], both = b->r.axes | 1u << b->turn;
    return (o->op == K_kload || o->op == K_kstore) && (dom & both) == both;
}

static uint32_t turn_of(const Band *b) {
    return b->r.team.g->k->axes[b->turn].sym;
}

static uint32_t new_symbol(const Band *b, SymInfo info) {
    ExprPool *p = b->r.team.g->e->exprs;
    uint32_t sym = 0;
    (void)expr_is_sym(p, expr_sym_new(p, info), &sym);
    return sym;
}

/* Where column 0 of the turn's row lies: all accesses of rows have that in common. */
static Expr rest_of(const Band *b, Expr column) {
    const Gpu *g = b->r.team.g;
    KVal v = 1;
    while (!is_row_access(b, v)) v++;
    return expr_sub(g->e->exprs, g->k->ops[v].index, column);
}

static Kernel *copy_kernel(const Gpu *g) {
    Kernel *k = arena_copy(g->e->arena, g->k, sizeof *k);
    k->ops = arena_copy(g->e->arena, k->ops, k->nops * sizeof *k->ops);
    return k;
}

/* A row's first vector is the block's vector number `start`, columns are counted from there on, and
 * there is no row that does not exist. Who meets elements beside the row asks Band.inside
 * (edges.c): rows are accessed without a mask, but in Band.edged. */
void band_enter_lists(Band *b) {
    Gpu *g = b->r.team.g;
    ExprPool *p = g->e->exprs;
    BandLists *l = &b->lists;
    const KDealt *d = &g->k->dealt;
    const uint32_t lane = g->k->axes[b->r.lane].sym;
    Expr column = expr_sym_ref(p, lane), turn = expr_sym_ref(p, turn_of(b));
    l->rest = rest_of(b, column);
    l->stride = (int64_t)d->lists * d->columns;
    l->by = d->lists > 1 ? BAND_EVEN / d->lists : 0;
    l->start = new_symbol(b, (SymInfo){.name = "start", .kind = SYM_AXIS, .hi = INT64_C(1) << 48});
    l->moved = new_symbol(
        b, (SymInfo){.name = "moved", .kind = SYM_AXIS, .lo = 1 - BAND_EVEN, .hi = BAND_EVEN - 1});
    Expr own = expr_add(p, column, expr_sym_ref(p, l->moved)), moved = expr_add(p, own, d->shift);
    Expr place = expr_add(p, expr_muli(p, expr_sym_ref(p, l->start), BAND_EVEN), column);
    const Expr live = kir_dealt_masks(d, p, turn, column, d->shift).live;
    const Expr inside = kir_dealt_masks(d, p, turn, own, expr_const(p, 0)).inside;
    b->inside = expr_is_value(p, g->k->axes[b->r.lane].extent, d->columns) ? 0 : inside;
    Kernel *k = copy_kernel(g);
    for (KVal v = 1; v < k->nops; v++) {
        KOp *o = &k->ops[v];
        if (o->op == K_kexpr && o->index == live) o->index = expr_const(p, 1);
        if (o->op != K_kload && o->op != K_kstore) continue;
        o->mask = o->mask && expr_uses(p, o->mask, lane) ? inside : 0;
        if (is_row_access(b, v))
            o->index = place;
        else if (o->op == K_kload)
            o->index = expr_subst(p, o->index, &lane, &moved, 1);
    }
    b->edged = g->k = k;
    k = copy_kernel(g);
    for (KVal v = 1; v < k->nops; v++)
        if (is_row_access(b, v)) k->ops[v].mask = 0;
    b->mates = d->at_once;
    g->k = g->e->k = k;
}

/* --- Where a row is --------------------------------------------------------------------------- */

/* Of the row of turn `turn` its first element's place, in column 0. */
static LLVMValueRef rest_at(const Band *b, LLVMValueRef turn) {
    Emit *e = b->r.team.g->e;
    emit_push(e);
    emit_set_sym(e, turn_of(b), turn);
    LLVMValueRef x = emit_expr(e, b->lists.rest);
    emit_pop(e);
    return x;
}

/* Vectors in front of the one that begins there or in front of that. */
static LLVMValueRef whole_vectors(Emit *e, LLVMValueRef rest) {
    rest = LLVMBuildAdd(e->b, rest, emit_i64(e, BAND_EVEN - 1), "");
    return LLVMBuildAShr(e->b, rest, emit_i64(e, __builtin_ctz(BAND_EVEN)), "");
}

LLVMValueRef band_listed_start(const BandTurns *t, LLVMValueRef turn) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    if (!t->base) return whole_vectors(e, rest_at(b, turn));
    LLVMValueRef ahead = LLVMBuildMul(e->b, turn, emit_i64(e, b->lists.stride / BAND_EVEN), "");
    return LLVMBuildAdd(e->b, t->base, ahead, "");
}

void band_bind_listed(const BandTurns *t, LLVMValueRef turn) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    emit_set_sym(e, turn_of(b), turn);
    emit_set_sym(e, b->lists.start, band_listed_start(t, turn));
}

void band_list_enter(BandTurns *t, LLVMValueRef from) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    LLVMValueRef rest = rest_at(b, from), even = emit_i64(e, BAND_EVEN - 1);
    LLVMValueRef moved = LLVMBuildAnd(e->b, LLVMBuildNeg(e->b, rest, ""), even, "");
    LLVMValueRef ahead = LLVMBuildMul(e->b, from, emit_i64(e, b->lists.stride / BAND_EVEN), "");
    moved = LLVMBuildSub(e->b, moved, emit_expr(e, b->r.team.g->k->dealt.shift), "");
    t->base = LLVMBuildSub(e->b, whole_vectors(e, rest), ahead, "");
    emit_set_sym(e, b->lists.moved, moved);
}
