/* Row tiles: which micro-kernels compute one, and what becomes of its sums. */
#include "codegen/cpu/dot/dot_micro.h"

LLVMValueRef dot_panel_start(Dot *d, uint32_t i) {
    Emit *e = d->e;
    const DotB *b = &d->b[i];
    if (d->wino.b) return emit_gep(e, d->elem, d->wino.b, dot_into_panel(d));
    if (b->mode == DOT_B_MADE || b->mode == DOT_B_BLOCKS) return LLVMConstNull(e->ptr);
    if (b->mode == DOT_B_COPIED) {
        Expr in_panel = expr_mod(d->p, d->n0, expr_const(d->p, DOT_PANEL));
        return emit_gep(e, d->elem, b->copy, emit_expr(e, in_panel));
    }
    const KOp *load = &d->k->ops[b->load];
    emit_push(e);
    dot_bind(d, &d->n, d->n0);
    dot_bind(d, &d->kk, expr_const(d->p, 0));
    LLVMValueRef v = emit_address(e, load->buf, load->index);
    emit_pop(e);
    return v;
}

/* --- Epilogue ----------------------------------------------------------------------------- */

/* A tile: rows [row, row + rows) of M, known as expression `base`. */
typedef struct Tile {
    uint32_t nv;
    LLVMValueRef mask[DOT_MAX_NV];
    LLVMValueRef entry; /* first row's table entry */
    LLVMValueRef row;   /* counted from the block's first */
    LLVMValueRef rows;
    Expr base;
    LLVMValueRef b[K_MAX_ACC]; /* the right operands' sub-panels */
    DotTurn turn;
    DotAhead ahead[K_MAX_ACC];
    const Slice *slice; /* whose products are added up; or */
    bool finish;        /* sums are in memory; only the epilogue is left */
} Tile;

/* Where the tile's sums lie from its first row on. */
static LLVMValueRef tile_sums(Dot *d, const Tile *t) {
    return d->wino.to              ? t->row
           : t->slice || t->finish ? LLVMBuildSub(d->e->b, t->row, d->slice_row, "")
                                   : emit_i64(d->e, 0);
}

void dot_store_all(Dot *d) {
    for (KVal v = 1; v < d->k->nops; v++)
        if (d->k->ops[v].op == K_kstore) emit_store(d->e, v);
}

static void bind_vector(Dot *d, const Tile *t, uint32_t j) {
    dot_bind_columns(d, dot_column(d, j), t->mask[j]);
}

/* A load or store of neighbouring columns, whose place is known without reading anything. */
static bool is_of_tile(Dot *d, KVal v) {
    const KOp *o = &d->k->ops[v];
    Expr stride = 0;
    if ((o->op != K_kload && o->op != K_kstore) || d->e->domains[v] & d->t->k) return false;
    if (!(d->e->domains[v] & d->t->n) || !(d->e->domains[v] & d->t->m)) return false;
    for (KVal b = 1; b < d->k->nops; b++)
        if (d->k->ops[b].op == K_kbind && expr_uses(d->p, o->index, d->k->ops[b].sym)) return false;
    return dot_uniform_stride(d, &d->n, o->index, &stride) > 0 && expr_is_value(d->p, stride, 1);
}

/* In a scope of its own for each: vector j of the micro-kernel's row r is bound. */
typedef void AtVector(Dot *d, const Micro *m, uint32_t r, uint32_t j);
static void at_vectors(Dot *d, const Tile *t, const Micro *m, AtVector *at) {
    for (uint32_t j = 0; j < m->nv; j++) {
        emit_push(d->e);
        bind_vector(d, t, j);
        for (uint32_t r = 0; r < m->rows; r++) {
            emit_push(d->e);
            dot_bind(d, &d->m, expr_addi(d->p, t->base, r));
            at(d, m, r, j);
            emit_pop(d->e);
        }
        emit_pop(d->e);
    }
}

/* Lines that the vector is stored to and computed from. */
static void ask_for_vector(Dot *d, const Micro *m, uint32_t r, uint32_t j) {
    (void)m, (void)r;
    for (KVal v = 1; v < d->k->nops; v++) {
        const KOp *o = &d->k->ops[v];
        const size_t into = j * d->lanes * dtype_bytes((DType)o->dtype);
        if (is_of_tile(d, v) && into % DOT_LINE == 0) dot_ask_result(d, o->buf, o->index);
    }
}

/* What a tile's results are stored to, and what they are computed from beside its sums, comes
 * while the sums are made. Parts of tiles are too short for that. */
static void ask_for_results(Dot *d, const Tile *t, const Micro *m) {
    if (m->of || 2 * m->rows <= d->mr || t->slice || t->finish || d->wino.to) return;
    at_vectors(d, t, m, ask_for_vector);
}

static void store_vector(Dot *d, const Micro *m, uint32_t r, uint32_t j) {
    emit_override(d->e, d->t->acc[0], m->acc[r * m->nv + j]);
    dot_store_all(d);
}

static void epilogue_registers(Dot *d, const Tile *t, const Micro *m) {
    at_vectors(d, t, m, store_vector);
}

static LLVMValueRef tile_place(Dot *d, uint32_t acc, LLVMValueRef row, uint32_t j) {
    LLVMValueRef at = LLVMBuildMul(d->e->b, row, emit_i64(d->e, dot_sums_width(d)), "");
    if (d->across) at = LLVMBuildAdd(d->e->b, at, dot_into_panel(d), "");
    at = LLVMBuildAdd(d->e->b, at, emit_i64(d->e, (int64_t)(j * d->lanes)), "");
    return emit_gep(d->e, d->elem, d->wino.to ? d->wino.to : d->tile[acc], at);
}

static void epilogue_memory(Dot *d, const Tile *t) {
    Emit *e = d->e;
    LLVMValueRef first = emit_expr(e, t->base);
    for (uint32_t j = 0; j < t->nv; j++) {
        EmitLoop l = {0};
        emit_push(e);
        bind_vector(d, t, j);
        emit_loop_begin(e, &l, "epilogue", emit_i64(e, 0), t->rows, emit_i64(e, 1), true);
        dot_bind(d, &d->m, emit_below(d->e, "row", d->m.size, LLVMBuildAdd(e->b, first, l.i, "")));
        for (uint32_t i = 0; i < d->t->nacc; i++) {
            LLVMValueRef row = LLVMBuildAdd(e->b, tile_sums(d, t), l.i, "");
            LLVMValueRef from = tile_place(d, i, row, j);
            emit_override(e, d->t->acc[i], dot_load_sums(d, from));
        }
        dot_store_all(d);
        emit_loop_end(e, &l);
        emit_pop(e);
    }
}

void dot_epilogue(Dot *d, uint32_t nv, const LLVMValueRef *mask, LLVMValueRef first,
                  LLVMValueRef rows) {
    Tile t = {.nv = nv, .rows = rows, .base = emit_below(d->e, "row", d->m.size, first)};
    for (uint32_t j = 0; j < nv; j++) t.mask[j] = mask[j];
    epilogue_memory(d, &t);
}

/* --- Tiles -------------------------------------------------------------------------------- */

static void micro_blocks(Dot *d, const Tile *t, Micro *m) {
    m->nacc = m->live = m->rows * m->nv;
    const DotBlockTile tile = {m->rows, m->nv, m->of, t->row, m->mask};
    dot_block_sums(d, &tile, m->acc);
}

static void tile_of_rows(Dot *d, const Tile *t, uint32_t rows) {
    for (uint32_t i = 0; i < d->t->nacc; i++) {
        Micro m = {.rows = rows, .nv = t->nv, .b = &d->b[i], .at = t->entry, .row = t->b[i]};
        m.of = i;
        m.mask = t->mask;
        if (rows > 1) m.ahead = t->ahead[i]; /* a single one loads as often as it multiplies */
        if (d->wino.to || d->tile[i]) m.tile = tile_place(d, i, tile_sums(d, t), 0);
        m.nacc = rows * t->nv;
        ask_for_results(d, t, &m);
        if (t->slice) {
            micro_slice(d, &m, t->slice);
            continue;
        }
        if (d->scaled.size)
            micro_blocks(d, t, &m);
        else if (!t->finish)
            micro_kernel(d, &m);
        const bool stays = d->in_registers && !d->wino.to;
        for (uint32_t v = 0; v < m.nacc; v++) {
            if (stays && !m.live) m.acc[v] = dot_load_sums(d, micro_place(d, &m, v));
            if (!stays && m.live) emit_store_ptr(d->e, m.acc[v], micro_place(d, &m, v), d->bytes);
        }
        if (stays) epilogue_registers(d, t, &m);
    }
}

/* Bit r: some tile has r rows. */
static uint32_t row_counts(Dot *d) {
    int64_t m;
    if (!expr_is_const(d->p, d->m.size, &m)) {
        const bool few = d->scaled.size && d->nv > 1;
        return (2u << (few ? d->scaled.few : DOT_ROWS)) - 2;
    }
    int64_t tiles = (m + DOT_ROWS - 1) / DOT_ROWS, low = m / tiles, more = m % tiles;
    return (more < tiles ? 1u << low : 0) | (more ? 2u << low : 0);
}

/* Of those rows, the ones whose tiles are one micro-kernel; others are cut in two. Where M is not
 * known only its last tile has fewer than DOT_ROWS rows, which is not worth code for each number of
 * them, and the last columns behind whole sub-panels not for many rows, if fewer fill the pipes;
 * but made operands are made once a micro-kernel. */
static uint32_t whole_counts(const Dot *d, const Tile *t, uint32_t counts) {
    int64_t m;
    if (d->mr < DOT_ROWS) return 0;
    if (expr_is_const(d->p, d->m.size, &m) || d->b[0].mode == DOT_B_MADE) return counts;
    if (d->scaled.size) return d->nv > 1 ? counts : counts & 1u << DOT_ROWS;
    if (dot_evens_rows(d)) return counts & (1u << DOT_ROWS | 1u << (DOT_ROWS - 1));
    int64_t least, most;
    expr_range(d->p, d->n.size, &least, &most);
    const bool last = (t->nv < d->nv || t->mask[0]) && least > d->width;
    return last && t->nv > 1 && !d->quads ? 0 : counts & 1u << DOT_ROWS;
}

/* Rows of the parts of tiles that have `counts` rows: see tile. */
static uint32_t part_counts(uint32_t counts) {
    uint32_t parts = 0;
    for (uint32_t r = 1; r <= DOT_ROWS; r++)
        if (counts >> r & 1) parts |= r > DOT_PART ? 1u << (r + 1) / 2 | 1u << r / 2 : 1u << r;
    return parts;
}

/* Sums of chunks, before the first one. */
static void zero_tile(Dot *d, const Tile *t, uint32_t acc) {
    Emit *e = d->e;
    EmitLoop l = {0};
    emit_loop_begin(e, &l, "zero", emit_i64(e, 0), t->rows, emit_i64(e, 1), true);
    LLVMValueRef row = LLVMBuildAdd(e->b, tile_sums(d, t), l.i, "");
    for (uint32_t j = 0; j < t->nv; j++)
        emit_store_ptr(e, LLVMConstNull(emit_vec(d->elem, d->lanes)), tile_place(d, acc, row, j),
                       d->bytes);
    emit_loop_end(e, &l);
}

/* `counts`: the numbers that t->rows may be. */
static void tile_any(Dot *d, const Tile *t, uint32_t counts) {
    Emit *e = d->e;
    bool one = (counts & (counts - 1)) == 0, whole = !t->slice && !t->finish;
    whole &= dot_in_chunks(d) && !dot_in_one_walk(d);
    for (uint32_t i = 0; whole && i < d->t->nacc; i++) zero_tile(d, t, i);
    for (uint32_t r = 1; r <= DOT_ROWS; r++) {
        EmitIf is;
        if (!(counts >> r & 1) || (t->finish && !d->in_registers)) continue;
        if (!one)
            emit_if_begin(e, &is, LLVMBuildICmp(e->b, LLVMIntEQ, t->rows, emit_i64(e, r), ""));
        tile_of_rows(d, t, r);
        if (!one) emit_if_end(e, &is);
    }
    if (!d->in_registers && !d->wino.to && !t->slice) epilogue_memory(d, t);
}

/* Where the rows of the left operand begin that lie behind the tile's; NULL: there is no such
 * place. */
static LLVMValueRef next_left(Dot *d, const Tile *t) {
    Emit *e = d->e;
    if (d->scaled.size || !dot_rows_follow(d)) return NULL;
    LLVMValueRef first = emit_load(e, e->ptr, emit_gep(e, e->ptr, d->table, t->entry), 8);
    LLVMValueRef size = LLVMBuildMul(e->b, t->rows, emit_expr(e, d->kk.size), "");
    return emit_gep(e, emit_mem_type(e, d->left), first, size);
}

/* Rows [row, row + t->rows), counted from the block's first row. */
static void tile_at(Dot *d, Tile *t, LLVMValueRef row, uint32_t counts) {
    Emit *e = d->e;
    t->row = row;
    t->entry = LLVMBuildMul(e->b, row, emit_expr(e, d->nruns), "");
    if (d->wino.entry) t->entry = LLVMBuildAdd(e->b, t->entry, d->wino.entry, "");
    t->base = emit_below(d->e, "row", d->m.size, LLVMBuildAdd(e->b, d->row0, row, ""));
    for (uint32_t i = 0; i < d->t->nacc; i++) {
        LLVMValueRef from = t->b[i];
        if (t->slice) from = dot_b_row(d, &d->b[i], from, dot_slice_row(d, t->slice));
        const Expr rows = t->slice ? dot_slice_rows(d, t->slice) : d->kk.size;
        const DotWalk w = {from, rows, t->turn, i || t->slice ? NULL : next_left(d, t)};
        t->ahead[i] = t->finish ? (DotAhead){0} : dot_ahead(d, i, &w);
    }
    tile_any(d, t, counts);
}

/* Rows of the first part of a tile, and how many parts. Most tiles are whole, of so many rows or
 * more: that they are is a branch, which is predicted, and no condition that the sums wait for. */
static LLVMValueRef first_part(Emit *e, LLVMValueRef rows, uint32_t whole, LLVMValueRef *parts) {
    EmitIf fewer = {0};
    LLVMValueRef one = emit_i64(e, 1), all = emit_i64(e, whole);
    if (whole) emit_if_begin(e, &fewer, LLVMBuildICmp(e->b, LLVMIntSLT, rows, all, ""));
    LLVMValueRef many = LLVMBuildICmp(e->b, LLVMIntSGT, rows, emit_i64(e, DOT_PART), "");
    LLVMValueRef half = LLVMBuildLShr(e->b, LLVMBuildAdd(e->b, rows, one, ""), one, "");
    half = LLVMBuildSelect(e->b, many, half, rows, "");
    *parts = LLVMBuildSelect(e->b, many, emit_i64(e, 2), one, "");
    if (!whole) return half;
    LLVMBasicBlockRef from[2] = {fewer.pre, LLVMGetInsertBlock(e->b)};
    LLVMValueRef rows_of[2] = {whole == DOT_ROWS ? all : rows, half}, parts_of[2] = {one, *parts};
    emit_if_end(e, &fewer);
    LLVMValueRef first = LLVMBuildPhi(e->b, e->i64, "");
    LLVMAddIncoming(first, rows_of, from, 2);
    *parts = LLVMBuildPhi(e->b, e->i64, "");
    LLVMAddIncoming(*parts, parts_of, from, 2);
    return first;
}

/* Rows [row, row + rows), counted from the block's first row: as they are, or in two nearly equal
 * parts. The epilogue stands in the code once. */
static void tile(Dot *d, Tile *t, LLVMValueRef row, LLVMValueRef rows) {
    Emit *e = d->e;
    const uint32_t counts = row_counts(d), whole = whole_counts(d, t, counts);
    const uint32_t cut = counts & ~whole;
    const uint32_t least = whole ? (uint32_t)__builtin_ctz(whole) : 0;
    if (!cut) {
        t->rows = rows;
        tile_at(d, t, row, whole);
        return;
    }
    LLVMValueRef one = emit_i64(e, 1), zero = emit_i64(e, 0), two = emit_i64(e, 2);
    const LLVMValueRef turn = whole ? NULL : LLVMBuildMul(e->b, t->turn.at, two, "");
    if (turn) t->turn.of = LLVMBuildMul(e->b, t->turn.of, two, "");
    LLVMValueRef parts, first = first_part(e, rows, least, &parts);
    EmitLoop l = emit_loop(e, 2);
    l.init[0] = row;
    l.init[1] = first;
    emit_loop_begin(e, &l, "part", zero, parts, one, true);
    t->rows = l.phi[1];
    l.next[0] = LLVMBuildAdd(e->b, l.phi[0], l.phi[1], "");
    l.next[1] = LLVMBuildSub(e->b, rows, first, "");
    if (turn) t->turn.at = LLVMBuildAdd(e->b, turn, l.i, "");
    tile_at(d, t, l.phi[0], whole | part_counts(cut));
    emit_loop_end(e, &l);
}

/* Of a tile: a panel is walked part by part, and in each all tiles of the span; a slice by the
 * tiles of the block; and across, part by part in each. */
static DotTurn turn_of(Dot *d, const Tile *t, LLVMValueRef tile) {
    Emit *e = d->e;
    const int64_t parts = DOT_PANEL / d->width;
    const bool sliced = t->slice != NULL;
    LLVMValueRef first = sliced ? d->tile0 : d->span0, last = sliced ? d->tile1 : d->span1;
    LLVMValueRef tiles = LLVMBuildSub(e->b, last, first, "");
    LLVMValueRef here = LLVMBuildSub(e->b, tile, first, "");
    if (parts == 1) return (DotTurn){here, tiles};
    Expr column = expr_mod(d->p, d->n0, expr_const(d->p, DOT_PANEL));
    LLVMValueRef part = emit_expr(e, expr_div(d->p, column, expr_const(d->p, d->width)));
    LLVMValueRef at = d->across ? LLVMBuildMul(e->b, here, emit_i64(e, parts), "")
                                : LLVMBuildMul(e->b, part, tiles, "");
    return (DotTurn){LLVMBuildAdd(e->b, at, d->across ? part : here, ""),
                     LLVMBuildMul(e->b, tiles, emit_i64(e, parts), "")};
}

static void set_columns(Dot *d, Tile *t, uint32_t nv, bool masked) {
    t->nv = nv;
    dot_column_masks(d, nv, masked, t->mask);
    for (uint32_t i = 0; i < d->t->nacc; i++) t->b[i] = dot_panel_start(d, i);
}

/* A tile's rows, from one counted from the block's first on. */
typedef struct TileRows {
    Tile *t;
    LLVMValueRef tile, row, rows;
} TileRows;

static void tile_of_columns(Dot *d, uint32_t nv, bool masked, void *ctx) {
    const TileRows *r = ctx;
    set_columns(d, r->t, nv, masked);
    r->t->turn = turn_of(d, r->t, r->tile);
    tile(d, r->t, r->row, r->rows);
}

static void all_tiles(Dot *d, Tile *t) {
    Emit *e = d->e;
    EmitLoop l = {0};
    emit_loop_begin(e, &l, "tile", d->tile0, d->tile1, emit_i64(e, 1), true);
    if (!d->across) t->turn = turn_of(d, t, l.i);
    LLVMValueRef row = dot_first_row(d, l.i);
    LLVMValueRef end = dot_end_row(d, LLVMBuildAdd(e->b, l.i, emit_i64(e, 1), ""));
    LLVMValueRef rows = LLVMBuildSub(e->b, end, row, "");
    row = LLVMBuildSub(e->b, row, d->row0, "");
    TileRows of = {t, l.i, row, rows};
    if (d->across)
        dot_sub_panels(d, tile_of_columns, &of);
    else
        tile(d, t, row, rows);
    emit_loop_end(e, &l);
}

/* Sums of the block's rows, before the first slice. */
static void zero_block(Dot *d, Tile *t) {
    Emit *e = d->e;
    LLVMValueRef first = dot_first_row(d, d->tile0);
    d->slice_row = LLVMBuildSub(e->b, first, d->row0, "");
    t->row = d->slice_row;
    t->rows = LLVMBuildSub(e->b, dot_end_row(d, d->tile1), first, "");
    t->finish = true;
    for (uint32_t i = 0; i < d->t->nacc; i++) zero_tile(d, t, i);
    t->finish = false;
}

static void in_slices(Dot *d, Tile *t) {
    Slice s;
    zero_block(d, t);
    dot_slices_open(d, &s);
    t->slice = &s;
    all_tiles(d, t);
    dot_slices_close(d, &s);
    t->slice = NULL;
    t->finish = true;
    if (!d->wino.to) all_tiles(d, t);
}

void dot_tiles(Dot *d, uint32_t nv, bool masked) {
    Tile t = {0};
    set_columns(d, &t, nv, masked);
    if (dot_may_slice(d) && d->b[0].mode != DOT_B_MADE)
        in_slices(d, &t);
    else
        all_tiles(d, &t);
}

void dot_tiles_across(Dot *d) {
    Tile t = {.nv = DOT_PANEL / d->lanes};
    d->n0 = expr_muli(d->p, d->panel, DOT_PANEL);
    if (dot_may_slice(d))
        in_slices(d, &t);
    else
        all_tiles(d, &t);
}
