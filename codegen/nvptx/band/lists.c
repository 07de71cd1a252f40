/* Rows that blocks deal out in lists (fusion/schedule/columns.c): rows of a list all start at one
 * element of a vector, those of the next list `by` elements further along it. A block walks one
 * list after the other, each from the start of the vector on in which its rows start, so that rows
 * come and leave in whole vectors; a thread's columns are others then, so that sums of columns, and
 * what all rows read alike, move on by as many elements in between. */
#include "codegen/nvptx/band/band.h"

/* --- Which rows they are ---------------------------------------------------------------------- */

bool band_is_row_access(const Band *b, KVal v) {
    const Gpu *g = b->r.team.g;
    const KOp *o = &g->k->ops[v];
    const uint32_t dom = g->rows->dom[v], both = b->r.axes | 1u << b->turn;
    return (o->op == K_kload || o->op == K_kstore) && (dom & both) == both;
}

static uint32_t turn_of(const Band *b) {
    return b->r.team.g->k->axes[b->turn].sym;
}

static Expr at_turn(const Band *b, Expr x, int64_t turn) {
    ExprPool *p = b->r.team.g->e->exprs;
    const uint32_t sym = turn_of(b);
    Expr by = expr_const(p, turn);
    return expr_subst(p, x, &sym, &by, 1);
}

/* The first part of x that is such an operation over what changes with the turn; 0: there is none.
 */
static Expr part_of(const Band *b, Expr x, ExprOp op) {
    const ExprPool *p = b->r.team.g->e->exprs;
    if (!x || !expr_uses(p, x, turn_of(b))) return 0;
    if (expr_op(p, x) == op) return x;
    Expr found = 0;
    for (int i = 0; i < expr_arity(expr_op(p, x)) && !found; i++)
        found = part_of(b, expr_arg(p, x, i), op);
    return found;
}

/* The number of the block's turns where x says "turn < that"; 0: it says something else. */
static Expr below(const Band *b, Expr x) {
    ExprPool *p = b->r.team.g->e->exprs;
    Expr coef, rest, is = part_of(b, x, EX_lt);
    if (!is || !expr_affine(p, expr_sub(p, expr_arg(p, is, 1), expr_arg(p, is, 0)), turn_of(b),
                            &coef, &rest))
        return 0;
    return expr_is_value(p, coef, -1) ? rest : 0;
}

static bool has_lane(const Band *b, Expr x) {
    const Gpu *g = b->r.team.g;
    return x && expr_uses(g->e->exprs, x, g->k->axes[b->r.lane].sym);
}

/* Rows' accesses all lie at one place, and rows that do not exist are asked for in one way. */
static bool find_rest(Band *b) {
    const Gpu *g = b->r.team.g;
    ExprPool *p = g->e->exprs;
    BandLists *l = &b->lists;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        Expr coef, rest, n = below(b, o->op == K_kexpr ? o->index : o->mask);
        if (n && l->rows && n != l->rows) return false;
        if (n) l->rows = n;
        if (!band_is_row_access(b, v)) continue;
        if (!expr_affine(p, o->index, g->k->axes[b->r.lane].sym, &coef, &rest)) return false;
        if (!expr_is_value(p, coef, 1) || (l->rest && rest != l->rest)) return false;
        l->rest = rest;
    }
    return l->rest != 0;
}

/* Of the first block, where x has no other symbols. */
static int64_t value_at(const Band *b, Expr x, int64_t turn) {
    const Gpu *g = b->r.team.g;
    ExprPool *p = g->e->exprs;
    const uint32_t block = g->k->axes[0].sym;
    Expr first = expr_const(p, 0);
    return expr_value(p, expr_subst(p, at_turn(b, x, turn), &block, &first, 1));
}

/* How far apart rows start, of one list and of neighbouring ones. */
static void measure(Band *b) {
    ExprPool *p = b->r.team.g->e->exprs;
    BandLists *l = &b->lists;
    Expr list = part_of(b, l->rest, EX_div);
    l->stride = value_at(b, l->rest, 1) - value_at(b, l->rest, 0);
    if (!list) return;
    l->at = at_turn(b, expr_arg(p, list, 0), 0);
    l->per = expr_value(p, expr_arg(p, list, 1));
    const int64_t far = value_at(b, l->rest, l->per) - value_at(b, l->rest, 0);
    l->by = (uint32_t)far % BAND_EVEN;
}

static uint32_t new_symbol(const Band *b, SymInfo info) {
    ExprPool *p = b->r.team.g->e->exprs;
    uint32_t sym = 0;
    (void)expr_is_sym(p, expr_sym_new(p, info), &sym);
    return sym;
}

/* Where in its vector the block keeps column 0, as what all rows read alike has it: there it
 * vanishes, then. */
static Expr kept_at(const Band *b) {
    const Gpu *g = b->r.team.g;
    ExprPool *p = g->e->exprs;
    Expr coef, rest;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        if (o->op != K_kload || band_is_row_access(b, v) || !has_lane(b, o->index)) continue;
        if (expr_affine(p, o->index, g->k->axes[b->r.lane].sym, &coef, &rest) &&
            expr_is_value(p, coef, 1))
            return expr_sub(p, expr_const(p, 0), rest);
    }
    return expr_const(p, 0);
}

/* Column c of the block is one of the row's, where column 0 is at `first`. */
static Expr inside(const Band *b, Expr c, Expr first) {
    ExprPool *p = b->r.team.g->e->exprs;
    const BandLists *l = &b->lists;
    const int64_t n = l->by ? l->stride / BAND_EVEN * l->by : l->stride;
    return expr_and(p, expr_le(p, first, c), expr_lt(p, c, expr_addi(p, first, n)));
}

/* What asks for a column of the row, in a row that exists; false: it asks for something else. */
static bool move_mask(const Band *b, Expr column, Expr moved, Expr *mask) {
    ExprPool *p = b->r.team.g->e->exprs;
    Expr is = *mask ? at_turn(b, *mask, 0) : 0;
    *mask = is ? inside(b, moved, expr_const(p, 0)) : 0;
    if (is && expr_is_value(p, is, 1)) *mask = 0;
    return !*mask || is == inside(b, column, b->lists.kept);
}

/* The kernel as a block walks it: a row's first vector is its vector number `start`, columns are
 * counted from there on, and there is no row that does not exist. */
static bool rewrite(Band *b) {
    Gpu *g = b->r.team.g;
    ExprPool *p = g->e->exprs;
    BandLists *l = &b->lists;
    const uint32_t lane = g->k->axes[b->r.lane].sym;
    SymInfo start = {.name = "start", .kind = SYM_AXIS, .hi = INT64_C(1) << 48};
    SymInfo moved_by = {
        .name = "moved", .kind = SYM_AXIS, .lo = 1 - BAND_EVEN, .hi = BAND_EVEN - 1};
    l->start = new_symbol(b, start);
    l->moved = new_symbol(b, moved_by);
    l->kept = kept_at(b);
    Expr column = expr_sym_ref(p, lane), own = expr_add(p, column, expr_sym_ref(p, l->moved));
    Expr moved = expr_add(p, own, l->kept);
    Expr place = expr_add(p, expr_muli(p, expr_sym_ref(p, l->start), BAND_EVEN), column);
    Kernel *k = arena_copy(g->e->arena, g->k, sizeof *k);
    k->ops = arena_copy(g->e->arena, k->ops, k->nops * sizeof *k->ops);
    for (KVal v = 1; v < k->nops; v++) {
        KOp *o = &k->ops[v];
        if (o->op == K_kexpr && below(b, o->index)) o->index = expr_const(p, 1);
        if (o->op != K_kload && o->op != K_kstore) continue;
        const bool row = band_is_row_access(b, v);
        if (!move_mask(b, column, own, &o->mask)) return false;
        if (row)
            o->index = place;
        else if (o->op == K_kload && has_lane(b, o->index))
            o->index = expr_subst(p, o->index, &lane, &moved, 1);
    }
    g->k = g->e->k = k;
    return true;
}

bool band_find_lists(Band *b) {
    Gpu *g = b->r.team.g;
    ExprPool *p = g->e->exprs;
    if (!b->dealt) return true;
    if (!find_rest(b)) return false;
    measure(b);
    if (!b->lists.rows) b->lists.rows = g->k->axes[b->turn].extent;
    if (b->lists.stride <= 0 || b->lists.stride % BAND_EVEN) return false;
    b->mates = expr_divisor(p, b->lists.rows) % 2 == 0 && b->lists.per % 2 == 0 &&
                       (!b->lists.at || expr_divisor(p, b->lists.at) % 2 == 0)
                   ? 2
                   : 1;
    return rewrite(b);
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
    moved = LLVMBuildSub(e->b, moved, emit_expr(e, b->lists.kept), "");
    t->base = LLVMBuildSub(e->b, whole_vectors(e, rest), ahead, "");
    emit_set_sym(e, b->lists.moved, moved);
}
