/* Rows that start at any element of 16 bytes. A thread's vectors are shorter (band_unit), so that
 * few or all rows start with one, and a team's rows, so many apart that they do, start all at one
 * element of a vector: a team walks them from the start of that vector on, and keeps sums of
 * columns so many elements further along; the block joins those of its teams column by column.
 * Vectors at both ends of a row may hold elements of its neighbours, which folds of the row take
 * for zero. What a turn's teams need lies side by side: it comes at once, from the 16 bytes on in
 * which the first row begins (fetcher.c). */
#include "codegen/nvptx/band/band.h"

/* --- The kernel as a team walks it ------------------------------------------------------------ */

static bool is_row_access(const Band *b, KVal v) {
    const Gpu *g = b->r.team.g;
    const KOp *o = &g->k->ops[v];
    const uint32_t dom = g->rows->dom[v], both = b->r.axes | 1u << b->turn;
    return (o->op == K_kload || o->op == K_kstore) && (dom & both) == both;
}

static uint32_t new_symbol(ExprPool *p, SymInfo info) {
    uint32_t sym = 0;
    (void)expr_is_sym(p, expr_sym_new(p, info), &sym);
    return sym;
}

static Kernel *copy_kernel(const Gpu *g) {
    Kernel *k = arena_copy(g->e->arena, g->k, sizeof *k);
    k->ops = arena_copy(g->e->arena, k->ops, k->nops * sizeof *k->ops);
    k->axes = arena_copy(g->e->arena, k->axes, k->naxes * sizeof *k->axes);
    return k;
}

/* Elements between a vector's start and the rows' farthest one behind it. */
static uint32_t farthest(const Band *b) {
    uint32_t apart = b->unit;
    while (b->columns % apart) apart /= 2;
    return b->unit - apart;
}

/* Rows lie side by side. */
static bool lie_together(Band *b) {
    const Gpu *g = b->r.team.g;
    int64_t least, most;
    if (!band_find_rows(b)) return false;
    expr_range(g->e->exprs, b->rows, &least, &most);
    for (KVal v = 1; v < g->k->nops; v++)
        if (is_row_access(b, v) && !band_is_row(b, v, most)) return false;
    return true;
}

/* Columns as a team counts them, of which `own` is the row's. */
static void count_columns(Band *b, uint32_t lane, Expr own) {
    ExprPool *p = b->r.team.g->e->exprs;
    const Expr inside =
        expr_and(p, expr_le(p, expr_const(p, 0), own), expr_lt(p, own, expr_const(p, b->columns)));
    b->inside = own == expr_sym_ref(p, lane) ? 0 : inside;
}

/* A row's first vector is vector number `start` of memory, and columns are counted from there on.
 * What reads or stores parts of rows alone asks Band.inside (edges.c). */
bool band_enter_starts(Band *b) {
    Gpu *g = b->r.team.g;
    ExprPool *p = g->e->exprs;
    const uint32_t was = g->k->axes[b->r.lane].sym;
    b->unit = band_unit(b);
    if (!lie_together(b)) return false;
    band_forget_mask(b);
    b->lists.start =
        new_symbol(p, (SymInfo){.name = "start", .kind = SYM_AXIS, .hi = INT64_C(1) << 48});
    b->lists.moved =
        new_symbol(p, (SymInfo){.name = "moved", .kind = SYM_AXIS, .lo = 1 - BAND_EVEN, .hi = 0});
    const int64_t most = b->columns + farthest(b) + b->unit - 1, all = most / b->unit * b->unit;
    const uint32_t lane =
        new_symbol(p, (SymInfo){.name = "column", .kind = SYM_AXIS, .hi = all - 1});
    Expr column = expr_sym_ref(p, lane);
    Expr own = farthest(b) ? expr_add(p, column, expr_sym_ref(p, b->lists.moved)) : column;
    Expr start = expr_muli(p, expr_sym_ref(p, b->lists.start), b->unit);
    count_columns(b, lane, own);
    Kernel *k = copy_kernel(g);
    k->axes[b->r.lane].sym = lane;
    k->axes[b->r.lane].extent = expr_const(p, all);
    for (KVal v = 1; v < k->nops; v++) {
        KOp *o = &k->ops[v];
        const bool load = o->op == K_kload && expr_uses(p, o->index, was);
        if (is_row_access(b, v)) {
            o->index = expr_add(p, start, column);
            o->mask = b->inside;
        } else if (o->index) {
            o->index = expr_subst(p, o->index, &was, load ? &own : &column, 1);
            if (load) o->mask = b->inside;
        }
    }
    b->edged = g->k = k;
    k = copy_kernel(g);
    for (KVal v = 1; v < k->nops; v++)
        if (is_row_access(b, v)) k->ops[v].mask = 0;
    g->k = g->e->k = k;
    return true;
}

/* --- What a team's rows have in common -------------------------------------------------------- */

/* Element of a vector at which rows of a team of the block start. */
static LLVMValueRef begins(const Band *b, LLVMValueRef team) {
    Emit *e = b->r.team.g->e;
    LLVMValueRef row = LLVMBuildMul(e->b, b->owner, emit_i64(e, b->teams), "");
    if (team) row = LLVMBuildAdd(e->b, row, team, "");
    row = LLVMBuildMul(e->b, row, emit_i64(e, b->columns), "");
    return LLVMBuildAnd(e->b, row, emit_i64(e, b->unit - 1), "");
}

/* Which elements of vector u are the row's: a byte each, all ones. */
static LLVMValueRef bytes_of(const Band *b, uint32_t u) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    const int64_t first = (int64_t)u * b->r.team.size;
    LLVMValueRef at = LLVMBuildAdd(e->b, b->r.team.rank, emit_i64(e, first), "");
    emit_push(e);
    gpu_bind_lanes(g, (uint32_t)b->r.lane, at);
    LLVMValueRef is = LLVMBuildSExt(e->b, emit_mask(e, b->inside), emit_vec(e->i8, e->lanes), "");
    emit_pop(e);
    if (e->lanes >= 4) return LLVMBuildBitCast(e->b, is, emit_vec(e->i32, e->lanes / 4), "");
    is = LLVMBuildBitCast(e->b, is, LLVMIntTypeInContext(e->ctx, 8 * e->lanes), "");
    return LLVMBuildZExt(e->b, is, e->i32, "");
}

void band_starts_init(Band *b) {
    Emit *e = b->r.team.g->e;
    emit_set_sym(e, b->lists.moved, LLVMBuildNeg(e->b, begins(b, b->team), ""));
    for (uint32_t u = 0; u < b->r.pieces; u++)
        if (band_is_edge(b, u)) b->edge[u] = bytes_of(b, u);
}

/* All ones in elements of word number `word` of a vector that are the row's. Made anew in every
 * turn: kept, it would take as many registers as the vector. */
static HV mask_of(const Band *b, uint32_t u, uint32_t word, uint32_t bytes) {
    Emit *e = b->r.team.g->e;
    const uint32_t first = word * 4 / bytes;
    HV from = b->edge[u];
    if (e->lanes > 4)
        from = LLVMBuildExtractElement(e->b, from, emit_i(e, e->i32, first / 4), "");
    else
        from = LLVMBuildBitCast(e->b, from, e->i32, "");
    const uint32_t low = first % 4, high = low + (bytes == 2 ? 1 : 0);
    const char *text =
        arena_printf(e->arena, "prmt.b32 $0, $1, 0, 0x%x%x%x%x;", high, high, low, low);
    return hop_asm(e, e->i32, text, "=r,r", &from, 1);
}

/* Own load i, of the current scope. */
static void mask_load(const Band *b, uint32_t u, uint32_t i) {
    Emit *e = b->r.team.g->e;
    const Kernel *k = e->k;
    const uint32_t bytes = (uint32_t)dtype_bytes(k->params[k->ops[b->own[i]].buf].dtype);
    const uint32_t n = e->lanes * bytes / 4;
    LLVMValueRef x = emit_value(e, b->own[i]);
    LLVMTypeRef type = LLVMTypeOf(x);
    x = LLVMBuildBitCast(e->b, x, emit_vec(e->i32, n), "");
    if (n == 1) x = LLVMBuildAnd(e->b, x, mask_of(b, u, 0, bytes), "");
    for (uint32_t w = 0; w < n && n > 1; w++) {
        LLVMValueRef at = emit_i(e, e->i32, w), v = LLVMBuildExtractElement(e->b, x, at, "");
        v = LLVMBuildAnd(e->b, v, mask_of(b, u, w, bytes), "");
        x = LLVMBuildInsertElement(e->b, x, v, at, "");
    }
    emit_override(e, b->own[i], LLVMBuildBitCast(e->b, x, type, ""));
}

void band_mask_edges(const Band *b, uint32_t u) {
    for (uint32_t i = 0; i < b->nown && b->edge[u]; i++) mask_load(b, u, i);
}

/* Word number `word` of what bytes_of gives. */
static LLVMValueRef edge_word(const Band *b, uint32_t u, uint32_t word) {
    Emit *e = b->r.team.g->e;
    const bool vector = LLVMGetTypeKind(LLVMTypeOf(b->edge[u])) == LLVMVectorTypeKind;
    if (!vector) return b->edge[u];
    return LLVMBuildExtractElement(e->b, b->edge[u], emit_i(e, e->i32, word), "");
}

/* All elements of vector u are the row's (i1). */
static LLVMValueRef is_whole(const Band *b, uint32_t u) {
    Emit *e = b->r.team.g->e;
    LLVMValueRef all = NULL;
    for (uint32_t i = 0; i < e->lanes; i += 4) {
        const uint32_t n = e->lanes < 4 ? e->lanes : 4;
        HV ones = emit_i(e, e->i32, (INT64_C(1) << 8 * n) - 1);
        all = band_both(e, all, LLVMBuildICmp(e->b, LLVMIntEQ, edge_word(b, u, i / 4), ones, ""));
    }
    return all;
}

static void store_own(const Band *b, uint32_t u, LLVMValueRef x, LLVMValueRef to, uint32_t bytes) {
    Emit *e = b->r.team.g->e;
    for (uint32_t i = 0; i < e->lanes; i++) {
        EmitIf own;
        LLVMValueRef is = hop_andi(e, edge_word(b, u, i / 4), INT64_C(1) << 8 * (i % 4));
        emit_if_begin(e, &own, LLVMBuildNot(e->b, hop_is(e, is, 0), ""));
        LLVMValueRef one = LLVMBuildExtractElement(e->b, x, emit_i64(e, i), "");
        emit_store_ptr(e, one, emit_gep(e, LLVMTypeOf(one), to, emit_i64(e, i)), bytes);
        emit_if_end(e, &own);
    }
}

void band_store_started(const Band *b, uint32_t u, KVal store, LLVMValueRef to) {
    Emit *e = b->r.team.g->e;
    EmitIf is;
    const uint32_t bytes = band_element(b, store);
    LLVMValueRef x = emit_value_lanes(e, e->k->ops[store].in[0]);
    if (e->lanes == 2) {
        store_own(b, u, x, to, bytes);
        return;
    }
    LLVMValueRef all = is_whole(b, u);
    emit_if_begin(e, &is, all);
    emit_store_ptr(e, x, to, e->lanes * bytes);
    emit_if_end(e, &is);
    emit_if_begin(e, &is, LLVMBuildNot(e->b, all, ""));
    store_own(b, u, x, to, bytes);
    emit_if_end(e, &is);
}

/* --- Sums of a block -------------------------------------------------------------------------- */

/* Shared address of sum s of team `team` (i64), column 0 as the team counts. */
static LLVMValueRef sums_at(const Band *b, uint32_t s, LLVMValueRef team) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    const int64_t n = expr_value(e->exprs, g->k->axes[b->r.lane].extent);
    LLVMValueRef p = hop_pointer(e, hop_addi(e, hop_shared(g), 4 * n * b->teams * s));
    return emit_gep(e, e->f32, p, LLVMBuildMul(e->b, team, emit_i64(e, n), ""));
}

static void leave_sums(const Band *b, uint32_t s, uint32_t place, const LLVMValueRef *acc) {
    Emit *e = b->r.team.g->e;
    const int64_t n = band_part(b), lanes = e->lanes;
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        const int64_t first = (int64_t)u * b->r.team.size;
        EmitIf has;
        LLVMValueRef v = LLVMBuildAdd(e->b, b->r.team.rank, emit_i64(e, first), "");
        const bool some = first + b->r.team.size > n;
        LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntSLT, v, emit_i64(e, n), "");
        if (some) emit_if_begin(e, &has, is);
        v = LLVMBuildMul(e->b, v, emit_i64(e, lanes), "");
        LLVMValueRef team = b->team ? b->team : emit_i64(e, 0);
        LLVMValueRef at = emit_gep(e, e->f32, sums_at(b, place, team), v);
        emit_store_ptr(e, acc[u * b->nsums + s], at, lanes < 4 ? 4 * (uint32_t)lanes : BAND_PIECE);
        if (some) emit_if_end(e, &has);
    }
}

/* A thread a column: teams in their order. */
static void join_sums(Band *b, uint32_t s, uint32_t place, BandStoreSum store) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    const uint32_t lanes = e->lanes;
    LLVMValueRef all = NULL;
    e->lanes = 1;
    *l = emit_loop(e, 0);
    emit_loop_begin(e, l, "column", g->tid, emit_i64(e, b->columns), emit_i64(e, b->threads),
                    false);
    for (uint32_t i = 0; i < b->teams; i++) {
        LLVMValueRef at = LLVMBuildAdd(e->b, l->i, begins(b, emit_i64(e, i)), "");
        at = emit_gep(e, e->f32, sums_at(b, place, emit_i64(e, i)), at);
        LLVMValueRef x = emit_load(e, e->f32, at, sizeof(float));
        all = all ? LLVMBuildFAdd(e->b, all, x, "") : x;
    }
    row_bind(&b->r, b->r.axes, emit_new_sym(e, "column", b->columns - 1, l->i));
    store(b, s, all);
    emit_loop_end(e, l);
    e->lanes = lanes;
}

void band_join_started(Band *b, const LLVMValueRef *acc, BandMeet meet, BandStoreSum store) {
    const int64_t n = band_part(b) * b->r.team.g->e->lanes;
    const bool together = 4 * n * b->teams * b->nsums <= b->bars;
    uint32_t times = 0;
    for (uint32_t s = 0; s < b->nsums; s += together ? b->nsums : 1) {
        const uint32_t end = together ? b->nsums : s + 1;
        meet(b, times++);
        for (uint32_t i = s; i < end; i++) leave_sums(b, i, i - s, acc);
        meet(b, times++);
        for (uint32_t i = s; i < end; i++) join_sums(b, i, i - s, store);
    }
}
