/* From sums to stored results: the kernel's body is evaluated at a thread's places in the tile
 * (gemm_place.c) with the sums in place of its folds.
 *
 * Results leave through shared memory and the copy engine (gemm_copied.c); others are stored by the
 * threads that have them, or, in rows that the engine cannot address and pairs do not fit, row by
 * row by the warp that has them (gemm_rows.c). The copy engine
 * leaves out what is past the end; where a tile may stick out in a dimension by which threads load
 * or store, there are two copies of the code: inside nothing is checked; at the edge rows and
 * columns past the end repeat the last one for what is read, and are not stored. */
#include "codegen/nvptx/gemm/gemm_epilogue.h"

/* --- What is loaded ahead ----------------------------------------------------------------------
 *
 * Nothing that is loaded moves in front of a store or a barrier by itself, and each load would be
 * waited for: so loads of several sites are asked for before any of them is stored. A build that
 * spilled does without. */

static void find_loads(Epilogue *p) {
    const Gemm *x = p->x;
    const KDot *d = x->d;
    for (KVal v = 1; !x->g->j->modest && v < x->g->k->nops && p->nloads < EPILOGUE_MAX_LOADS; v++) {
        const KOp *o = &x->g->k->ops[v];
        uint32_t at = x->e->domains[v];
        if (o->op != K_kload || o->in[0] || v == x->p->addend) continue;
        if (at & d->m && at & d->n && !(at & ~(d->m | d->n | d->batch))) p->load[p->nloads++] = v;
    }
}

/* --- Results from registers ------------------------------------------------------------------- */

static bool stores_sites(const Gemm *x, const GemmOut *o) {
    return !o->copied && !gemm_stores_rows(x, o);
}

bool gemm_stores_apart(const Gemm *x) {
    bool all = true;
    for (uint32_t i = 0; i < x->p->nouts; i++) all = all && stores_sites(x, &x->p->out[i]);
    return all;
}

/* All results of a site: they share what they are made of, which lives no longer than that. */
static void store_site(Epilogue *p, Site s, uint32_t z, const HV *fetched) {
    Emit *e = p->e;
    EmitIf in;
    HV inside = gemm_both(e, p->row_in[2 * s.block + s.half], p->col_in[s.group][z]);
    if (inside)
        emit_if_begin(e, &in, inside);
    else
        emit_push(e);
    p->fetched = fetched;
    gemm_bind_site(p, s, z);
    for (uint32_t i = 0; i < p->x->p->nouts; i++)
        if (stores_sites(p->x, &p->x->p->out[i])) emit_store(e, p->x->p->out[i].store);
    if (inside)
        emit_if_end(e, &in);
    else
        emit_pop(e);
}

enum { MAX_AHEAD = 8, SPARE_REGS = 40, COLUMN_SPARE = 60 };
enum { SMALL_REGS = 168 }; /* of a thread of a small tile, counted on */

/* Sites whose loads are asked for together, as registers allow: the sums of what was stored need
 * none any more. */
static uint32_t sites_ahead(const Epilogue *p, uint32_t stored) {
    const Gemm *x = p->x;
    uint32_t all = x->tile->regs_math ? x->tile->regs_math : SMALL_REGS,
             live = wgmma_acc(&x->shape);
    live = live / (x->cols / 8) * (x->to - x->from);
    live = live - 2 * x->shape.sums * stored + SPARE_REGS;
    uint32_t each = 2 * (p->nloads + x->p->nouts), n = all > live ? (all - live) / each : 1;
    return n < 1 || !p->nloads ? 1 : n > MAX_AHEAD ? MAX_AHEAD : n;
}

static void store_some(Epilogue *p, const Site *s, uint32_t n) {
    uint32_t each = gemm_site_turns(p->x) * p->nloads;
    HV loads[MAX_AHEAD * 2 * EPILOGUE_MAX_LOADS];
    for (uint32_t i = 0; i < n; i++) gemm_fetch_site(p, s[i], loads + i * each);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t z = 0; z < gemm_site_turns(p->x); z++)
            store_site(p, s[i], z, loads + i * each + z * p->nloads);
}

static void store_sites(Epilogue *p) {
    Site s[MAX_AHEAD];
    uint32_t n = 0, stored = 0, most = sites_ahead(p, 0);
    for (uint32_t j = p->x->from; j < p->x->to; j++)
        for (uint32_t i = 0; i < 2 * p->x->shape.blocks; i++) {
            s[n++] = (Site){i / 2, j, i % 2};
            if (n < most) continue;
            store_some(p, s, n);
            stored += n;
            most = sites_ahead(p, stored);
            n = 0;
        }
    if (n) store_some(p, s, n);
}

/* --- The tile --------------------------------------------------------------------------------- */

static void find_staging(Epilogue *p) {
    Emit *e = p->e;
    Gemm *x = p->x;
    HV row = hop_andi(e, x->lane, 7), warp = hop_andi(e, x->warp, 3);
    bool narrow = x->slab_cols < GEMM_SLAB_COLS &&
                  !x->words; /* rows of 64 bytes trade places every other row */
    HV half = hop_andi(e, hop_shr(e, x->lane, 3), 1);
    HV at = hop_add(e, hop_add(e, hop_shl(e, warp, 4), hop_shl(e, half, 3)), row);
    HV own = hop_muli(e, hop_addi(e, x->group, -1), x->tile->slabs * x->tile->sets * HOP_SLAB);
    p->lead = hop_is(e, warp, 0);
    p->staging = hop_add(e, hop_addi(e, x->shared, x->staging), own);
    p->lane_row = hop_muli(e, at, HOP_ROW_BYTES / (narrow ? 2 : 1));
    p->put = hop_add(e, p->staging, p->lane_row);
    HV turn = narrow ? hop_shr(e, row, 1) : row;
    p->swizzle = hop_shl(e, LLVMBuildXor(e->b, hop_shr(e, x->lane, 4), turn, ""), 4);
}

static void store_tile(Gemm *x, const GemmPlace *tile, const HV *acc, const GemmRing *addend,
                       bool rows_edge, bool cols_edge) {
    Emit *e = x->e;
    Epilogue *p = ARENA_NEW(e->arena, Epilogue);
    *p = (Epilogue){
        .x = x, .e = e, .tile = tile, .acc = acc, .rows_edge = rows_edge, .cols_edge = cols_edge};
    for (uint32_t i = 0; i < x->addend_stages; i++) p->addend[i] = addend[i];
    find_staging(p);
    find_loads(p);
    gemm_place_threads(p);
    e->lanes = x->p->pairs ? 2 : 1;
    e->math = gpu_math_of(x->g->k);
    if (gpu_may_be_quick(x->g->k)) e->quick = gpu_quick;
    bool sites = false;
    for (uint32_t i = 0; i < x->p->nouts; i++) {
        sites = sites || stores_sites(x, &x->p->out[i]);
        if (gemm_stores_rows(x, &x->p->out[i])) gemm_store_rows(p, &x->p->out[i]);
    }
    if (gemm_copied_outs(x->p)) gemm_copy_out(p);
    if (sites) store_sites(p);
    e->lanes = 1;
    e->math = gpu_math;
    e->quick = NULL;
}

static bool divides(Gemm *x, uint32_t n, Expr extent) {
    return expr_divisor(x->e->exprs, extent) % n == 0;
}

/* No tile has rows past the end. Twins come in pairs: of an odd number of rows of tiles the last
 * block's are all past it. */
static bool rows_divide(Gemm *x) {
    return divides(x, x->tile->m * x->twins, x->p->m);
}

static uint32_t registers_of(const Gemm *x) {
    return x->tile->regs_math ? x->tile->regs_math : SMALL_REGS;
}

/* Registers that the epilogue keeps beside the sums and what it asked for by columns. */
static uint32_t kept_registers(const Gemm *x) {
    return (x->p->promoted ? wgmma_acc(&x->shape) : 0) + gemm_copy_registers(x);
}

static void find_columns(Gemm *x) {
    const KDot *d = x->d;
    uint32_t used = wgmma_acc(&x->shape) + kept_registers(x) + COLUMN_SPARE;
    x->ncolumns = 0;
    for (KVal v = 1; !x->g->j->modest && v < x->g->k->nops && x->ncolumns < GEMM_MAX_COLUMNS; v++) {
        const KOp *o = &x->g->k->ops[v];
        uint32_t at = x->e->domains[v],
                 each = x->p->pairs && dtype_bytes((DType)o->dtype) <= 2 ? 1 : 2;
        if (o->op != K_kload || o->in[0] || !(at & d->n) || at & ~(d->n | d->batch)) continue;
        used += x->cols / 8 * each;
        if (used > registers_of(x)) return;
        x->column[x->ncolumns++] = v;
    }
}

void gemm_ask_columns(Gemm *x, const GemmPlace *tile) {
    Emit *e = x->e;
    x->columns = NULL;
    find_columns(x);
    if (!x->ncolumns) return;
    x->g->j->ahead = true;
    Epilogue *p = ARENA_NEW(e->arena, Epilogue);
    *p = (Epilogue){.x = x, .e = e, .tile = tile, .cols_edge = !divides(x, x->cols, x->p->n)};
    HV *got = ARENA_ARRAY(e->arena, HV, x->cols / 8 * gemm_site_turns(x) * x->ncolumns);
    e->lanes = x->p->pairs ? 2 : 1;
    emit_push(e);
    gemm_place_threads(p);
    for (uint32_t i = 0; i < x->cols / 8 * gemm_site_turns(x); i++) {
        Site s = {0, i / gemm_site_turns(x), 0};
        emit_push(e);
        gemm_bind_site(p, s, i % gemm_site_turns(x));
        for (uint32_t z = 0; z < x->ncolumns; z++)
            got[i * x->ncolumns + z] = emit_value_lanes(e, x->column[z]);
        emit_pop(e);
    }
    emit_pop(e);
    e->lanes = 1;
    x->columns = got;
}

static HV fits(Gemm *x, HV first, uint32_t n, Expr extent) {
    Emit *e = x->e;
    HV size = LLVMBuildTrunc(e->b, emit_expr(e, extent), e->i32, "");
    return LLVMBuildICmp(e->b, LLVMIntSLE, hop_addi(e, first, n), size, "");
}

/* An access that the threads make themselves, and here. */
static bool by_threads(const Gemm *x, KVal v) {
    for (uint32_t i = 0; i < x->p->nouts; i++)
        if (x->p->out[i].store == v) return !x->p->out[i].copied;
    for (uint32_t i = 0; x->columns && i < x->ncolumns; i++)
        if (x->column[i] == v) return false;
    return true;
}

/* The axes of m and n by which they do. A store has a place for each result, though its index does
 * not have an axis of one point: past the end others would write there. */
static uint32_t reached_axes(const Gemm *x) {
    const uint32_t places = x->d->m | x->d->n;
    uint32_t axes = 0;
    for (uint32_t i = 0; i < x->p->nreached; i++) {
        KVal v = x->p->reached[i];
        if (!by_threads(x, v)) continue;
        axes |= x->g->k->ops[v].op == K_kstore ? places : x->e->domains[v];
    }
    return axes & places;
}

static bool all_copied(const Gemm *x) {
    return gemm_copied_outs(x->p) == x->p->nouts;
}

/* By a warpgroup that has a row before the end. In a block of its own
 * ptxas leaves the arithmetic behind the wait for staging (products with GELU of one wave take 2 to
 * 5 % less). */
static void store_if_any(Gemm *x, const GemmPlace *tile, const HV *acc, bool rows_edge) {
    EmitIf any;
    emit_if_begin(x->e, &any, fits(x, tile->row, 1, x->p->m));
    store_tile(x, tile, acc, NULL, rows_edge, false);
    emit_if_end(x->e, &any);
}

/* Rows alone that may stick out, of what is read alone, are kept below the end everywhere: that
 * takes few instructions, and a second copy of the code registers. An addend's stages are waited
 * for and given back whatever the rows. */
static void store_anywhere(Gemm *x, const GemmPlace *tile, const HV *acc, const GemmRing *addend) {
    uint32_t axes = reached_axes(x);
    bool rows = axes & x->d->m && !rows_divide(x);
    bool cols = axes & x->d->n && !divides(x, x->cols, x->p->n), once = !cols && all_copied(x);
    if (once && !x->addend_stages && !rows_divide(x)) {
        store_if_any(x, tile, acc, rows);
        return;
    }
    if (once || (!rows && !cols)) {
        store_tile(x, tile, acc, addend, rows, false);
        return;
    }
    Emit *e = x->e;
    LLVMBasicBlockRef pre = LLVMGetInsertBlock(e->b), inside = emit_block(e, "inside");
    LLVMBasicBlockRef edge = emit_block(e, "edge"), join = emit_block(e, "stored");
    HV in = gemm_both(e, rows ? fits(x, tile->row, x->shape.blocks * HOP_SLAB_ROWS, x->p->m) : NULL,
                      cols ? fits(x, tile->col, x->cols, x->p->n) : NULL);
    LLVMBuildCondBr(e->b, in, inside, edge);
    for (uint32_t i = 0; i < 2; i++) {
        LLVMPositionBuilderAtEnd(e->b, i ? edge : inside);
        emit_push_region(e, pre);
        store_tile(x, tile, acc, addend, i && rows, i && cols);
        emit_pop(e);
        LLVMBuildBr(e->b, join);
    }
    LLVMPositionBuilderAtEnd(e->b, join);
}

GemmRing gemm_epilogue(Gemm *x, const GemmPlace *tile, HV *acc, GemmRing ring) {
    GemmRing addend[EPILOGUE_MAX_ADDEND];
    GC_ASSERT(x->addend_stages <= EPILOGUE_MAX_ADDEND);
    for (uint32_t i = 0; i < x->addend_stages; i++, ring = gemm_next(x, ring)) addend[i] = ring;
    emit_push(x->e);
    store_anywhere(x, tile, acc, addend);
    emit_pop(x->e);
    return ring;
}
