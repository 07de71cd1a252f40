/* Contractions on CPUs: matrix products and convolutions with prologues and epilogues. */
#include "codegen/cpu/dot/dot.h"

/* Right operands of which every thread's cache keeps a copy. */
#define KEPT_RIGHT (512 << 10)

/* Blocks in a round, and the fewest rows that one of few is worth. */
#define OWN_BLOCKS 16
#define OWN_ROWS   96

/* Whether threads share out panels, so that each reads its own part of the right operand only, or
 * rows, which then stay with the thread that has written them. Rows come dirty from another
 * thread's cache and results go to the next one, which costs about twice what reading as much of a
 * constant does. A small right operand is read by all. */
static Expr shares_panels(Dot *d) {
    ExprPool *p = d->p;
    const int64_t bits = d->part ? d->bits : 8 * dot_right_bytes(d);
    Expr right = expr_mul(p, d->n.size, d->kk.size);
    Expr bytes = expr_div(p, expr_muli(p, right, bits), expr_const(p, 8));
    Expr moved = expr_mul(p, d->m.size, expr_add(p, d->n.size, d->kk.size));
    return expr_and(p, expr_le(p, expr_muli(p, moved, 2), right),
                    expr_lt(p, expr_const(p, KEPT_RIGHT), bytes));
}

/* Row blocks that share a table and are walked before the next panel: all of M where threads share
 * out panels. */
static Expr span_of(Dot *d, Expr wide, Expr fit) {
    ExprPool *p = d->p;
    Expr one = expr_const(p, 1), span = d->blocks;
    if (d->t->wino) return one;
    if (fit) {
        span = expr_min(p, span, expr_max(p, one, expr_div(p, fit, d->block)));
        wide = expr_and(p, wide, expr_le(p, expr_const(p, 384), d->n.size));
    }
    span = expr_max(p, one, expr_select(p, wide, span, one));
    Expr spans = expr_max(p, one, expr_ceildiv(p, d->blocks, span));
    return expr_max(p, one, expr_ceildiv(p, d->blocks, spans));
}

/* Blocks that may be more are an even number: threads take ranges of items, in which blocks come
 * last, and the last panel is narrower than others. */
static Expr even_above(ExprPool *p, Expr blocks, Expr least) {
    Expr odd = expr_and(p, expr_lt(p, least, blocks), expr_mod(p, blocks, expr_const(p, 2)));
    return expr_add(p, blocks, odd);
}

/* Blocks that threads share out evenly, 2 to 16 of them: each then has rows of its own, which it
 * finds in its cache where the kernel before it has cut its rows alike. */
static Expr own_blocks(ExprPool *p, Expr m) {
    Expr n = expr_const(p, 1);
    for (int64_t b = 4; b <= OWN_BLOCKS; b *= 2)
        n = expr_select(p, expr_le(p, expr_const(p, b * OWN_ROWS), m), expr_const(p, b), n);
    return n;
}

/* More than half as many are whole rounds of them, if there are as many tiles. */
static Expr whole_rounds(ExprPool *p, Expr blocks, Expr tiles) {
    Expr all = expr_const(p, OWN_BLOCKS);
    Expr up = expr_mul(p, expr_ceildiv(p, blocks, all), all);
    Expr may =
        expr_and(p, expr_lt(p, expr_const(p, OWN_BLOCKS / 2), blocks), expr_le(p, up, tiles));
    return expr_select(p, may, up, blocks);
}

/* Sizes of the cut: rows in blocks, blocks and panels as work items. A deep panel takes long enough
 * to come that all rows are wanted beside it: fewer items do. A block is small enough that
 * its table and packed rows stay in L2, and large enough that a panel read once serves many rows.
 * All of it is the same on every target. */
static void cut(Dot *d) {
    ExprPool *p = d->p;
    Expr m = d->m.size, one = expr_const(p, 1);
    d->panels = expr_ceildiv(p, d->n.size, expr_const(p, DOT_PANEL));
    d->tiles = expr_ceildiv(p, m, expr_const(p, DOT_ROWS));
    Expr others = expr_max(p, one, expr_mul(p, d->batch.size, d->panels));
    Expr want = expr_ceildiv(p, expr_const(p, dot_is_deep(d) ? 8 : 24), others);
    Expr most = expr_max(p, one, expr_ceildiv(p, m, expr_const(p, 32)));
    Expr wide = shares_panels(d);
    Expr halves = expr_select(p, wide, one, expr_min(p, most, expr_const(p, 2)));
    Expr least = expr_max(p, halves, expr_ceildiv(p, m, expr_const(p, 512)));
    d->blocks = even_above(p, expr_max(p, least, expr_min(p, most, want)), least);
    const bool plain = !d->t->block && !d->t->pairs && !d->t->quads && !d->part;
    if (plain && !d->t->wino)
        d->blocks = expr_max(p, d->blocks, expr_select(p, wide, one, own_blocks(p, m)));
    Expr fit = 0; /* tiles whose packed rows stay in L2 */
    if (!d->direct || d->guarded || d->part) {
        /* Columns are read as one stream, which the next cache keeps up with; and the more rows
         * there are, the fewer copies of the right operand. */
        bool many = d->columns || d->part || dot_costly_copy(d, 0);
        int64_t budget = d->t->wino ? (128 << 10) / 16 : many ? 1 << 20 : 256 << 10;
        fit = expr_div(p, expr_const(p, budget / DOT_ROWS), expr_max(p, one, d->kk.size));
        fit = expr_max(p, one, fit);
        d->blocks = expr_max(p, d->blocks, expr_ceildiv(p, d->tiles, fit));
    }
    if (plain) d->blocks = whole_rounds(p, d->blocks, d->tiles);
    d->block = expr_ceildiv(p, d->tiles, d->blocks);
    d->span = span_of(d, wide, fit);
    d->spans = expr_ceildiv(p, d->blocks, d->span);
}

static bool analyse(Dot *d) {
    const KDot *t = d->t;
    const Kernel *k = d->k;
    d->acc = (DType)k->ops[t->acc[0]].dtype;
    if (d->acc == DT_bool || (!dtype_is_int(d->acc) && d->acc != DT_f32 && d->acc != DT_f64))
        return false;
    if (k->serial || !t->n || !t->k) return false;
    d->a = t->a;
    d->left = d->acc;
    for (uint32_t i = 1; i < t->nacc; i++)
        if ((DType)k->ops[t->acc[i]].dtype != d->acc) return false;
    for (KVal v = 1; v < k->nops; v++) {
        if (k->ops[v].op == K_katomic || k->ops[v].op == K_kcompact) return false;
        if (k->ops[v].op == K_kstore && (d->e->domains[v] & t->n) != t->n) return false;
        if (k->ops[v].op == K_kstore && (d->e->domains[v] & t->m) != t->m) return false;
        if (k->ops[v].op == K_kstore && (d->e->domains[v] & t->batch) != t->batch) return false;
    }
    dot_group(d, &d->batch, t->batch);
    dot_group(d, &d->m, t->m);
    dot_group(d, &d->n, t->n);
    dot_group(d, &d->kk, t->k);
    return !expr_is_value(d->p, d->n.size, 1) && !expr_is_value(d->p, d->m.size, 0);
}

static void set_widths(Dot *d) {
    Emit *e = d->e;
    d->bytes = (uint32_t)dtype_bytes(d->acc);
    d->lanes = e->isa->lanes * 4 / (d->bytes < 4 ? 4 : d->bytes);
    e->lanes = d->lanes;
    d->nv = DOT_MAX_NV;
    d->width = d->nv * d->lanes;
    /* Accumulators, one row of the right operand and a broadcast must fit the registers. */
    d->mr = e->isa->vector_regs >= DOT_ROWS * d->nv + d->nv + 1 ? DOT_ROWS : DOT_ROWS / 2;
    d->elem = emit_type(e, d->acc);
}

/* Epilogues are unrolled over the tile when that is not much code. */
static bool epilogue_is_small(Dot *d) {
    uint32_t ops = 0;
    int64_t m;
    for (KVal v = 1; v < d->k->nops; v++) {
        const KOp *o = &d->k->ops[v];
        if (!(d->e->domains[v] & d->t->n) || (d->e->domains[v] & d->t->k)) continue;
        if (o->op < OP_COUNT && op_is_long((Op)o->op)) return false;
        ops++;
    }
    /* Every number of rows gets its own copy: where M is not known they are many, and worth it only
     * if the sums are short. */
    uint32_t most = expr_is_const(d->p, d->m.size, &m)   ? 16
                    : expr_hint(d->p, d->kk.size) <= 128 ? 8
                                                         : 0;
    /* Four products an instruction end sooner, and what requantises a residual sum is long. */
    if (d->quads && d->e->isa->multiply_quads && expr_hint(d->p, d->kk.size) <= 640) most = 24;
    return d->t->nacc == 1 && ops <= most;
}

/* Whether M is one tile, and right operands are made: known (0, 1) or seen in the run (-1). */
static int is_made(const Dot *d) {
    int64_t lo, hi;
    expr_range(d->p, d->tiles, &lo, &hi);
    return !d->makes || lo > 1 ? 0 : hi <= 1 ? 1 : -1;
}

static void set_made(Dot *d, bool made) {
    for (uint32_t i = 0; d->makes && i < d->t->nacc; i++)
        d->b[i].mode = made ? DOT_B_MADE : DOT_B_COPIED;
    d->across = dot_may_go_across(d);
}

/* Of a panel's copy, if there is one in the run. */
static Expr copy_bytes(Dot *d) {
    ExprPool *p = d->p;
    Expr bytes = expr_muli(p, expr_addi(p, d->kk.size, d->lanes), DOT_PANEL * d->bytes);
    Expr one = expr_const(p, 1);
    return d->makes ? expr_select(p, expr_le(p, d->tiles, one), expr_const(p, 0), bytes) : bytes;
}

/* The table, and what rows are copied to. */
static void reserve_left(Dot *d, Expr tiles, Expr rows) {
    Emit *e = d->e;
    ExprPool *p = d->p;
    d->table = emit_scratch(e, expr_muli(p, expr_mul(p, rows, d->nruns), 8));
    if (d->direct && !d->guarded) return;
    Expr size = expr_addi(p, expr_mul(p, rows, d->kk.size), d->lanes);
    if (d->columns) size = expr_add(p, size, expr_muli(p, tiles, DOT_TILE_APART));
    d->packed = emit_scratch(e, expr_muli(p, size, (int64_t)dtype_bytes(d->left)));
}

static void reserve(Dot *d) {
    Emit *e = d->e;
    if (d->t->wino) {
        wino_reserve(d);
        return;
    }
    if (d->amx.on) {
        dot_amx_reserve(d);
        return;
    }
    ExprPool *p = d->p;
    /* A span has no more tiles than there are, but for the last block's end. Saying so keeps bounds
     * of scratch small where M is known in the run only. */
    Expr tiles = expr_min(p, expr_mul(p, d->block, d->span), expr_add(p, d->tiles, d->block));
    Expr rows = expr_muli(p, tiles, DOT_ROWS);
    if (d->scaled.size)
        d->packed = emit_scratch(e, dot_blocks_bytes(d, rows));
    else
        reserve_left(d, tiles, rows);
    for (uint32_t i = 0; i < d->t->nacc; i++) {
        if (d->b[i].mode == DOT_B_COPIED && is_made(d) != 1)
            d->b[i].copy = emit_scratch(e, copy_bytes(d));
        Expr held = dot_may_slice(d) ? expr_muli(p, d->block, DOT_ROWS) : expr_const(p, DOT_ROWS);
        const uint32_t columns = dot_may_go_across(d) ? DOT_PANEL : d->width;
        if (!d->in_registers || dot_in_chunks(d))
            d->tile[i] = emit_scratch(e, expr_muli(p, held, columns * d->bytes));
    }
}

static LLVMValueRef divide(Emit *e, LLVMValueRef *x, LLVMValueRef by) {
    LLVMValueRef q = LLVMBuildUDiv(e->b, *x, by, "");
    LLVMValueRef r = LLVMBuildSub(e->b, *x, LLVMBuildMul(e->b, q, by, ""), "");
    *x = q;
    return r;
}

/* The sub-panel at d->n0, in the form with or without columns to mask off. */
static void tiles(Dot *d, uint32_t nv, bool masked, void *unused) {
    (void)unused;
    if (d->amx.on)
        dot_amx_tiles(d, nv, masked);
    else if (d->t->wino)
        wino_tiles(d, nv, masked);
    else
        dot_tiles(d, nv, masked);
}

static void panel(Dot *d) {
    if (!d->across)
        dot_sub_panels(d, tiles, NULL);
    else if (d->t->wino)
        wino_across(d);
    else
        dot_tiles_across(d);
}

static void emit_when_new(Dot *d, LLVMValueRef key, LLVMValueRef last,
                          void (*make)(Dot *d, LLVMValueRef arg), LLVMValueRef arg) {
    EmitIf fresh;
    emit_if_begin(d->e, &fresh, LLVMBuildICmp(d->e->b, LLVMIntNE, key, last, ""));
    make(d, arg);
    emit_if_end(d->e, &fresh);
}

static void copy_panels(Dot *d, LLVMValueRef unused) {
    (void)unused;
    for (uint32_t i = 0; i < d->t->nacc; i++)
        if (d->b[i].mode == DOT_B_COPIED) dot_copy_panel(d, i);
}

static LLVMValueRef at_most(Emit *e, LLVMValueRef x, LLVMValueRef limit) {
    LLVMValueRef v[2] = {x, limit};
    return emit_intrinsic(e, "llvm.smin", e->i64, v, 2);
}

static void left(Dot *d, LLVMValueRef rows) {
    if (d->scaled.size)
        dot_copy_blocks(d, rows);
    else if (d->amx.on)
        dot_amx_left(d, rows);
    else if (d->columns)
        dot_copy_columns(d);
    else
        dot_fill_table(d, rows);
}

/* The last span may have fewer blocks. */
static void panel_if_any(Dot *d) {
    Emit *e = d->e;
    EmitIf any;
    LLVMValueRef inside = LLVMBuildICmp(e->b, LLVMIntSLT, d->tile0, emit_expr(e, d->tiles), "");
    emit_if_begin(e, &any, inside);
    panel(d);
    emit_if_end(e, &any);
}

/* Of the item, with right operands copied if `key` is another than `last`. */
static void copied_products(Dot *d, LLVMValueRef key, LLVMValueRef last) {
    set_made(d, false);
    emit_when_new(d, key, last, copy_panels, NULL);
    panel_if_any(d);
}

static void set_vectors(Dot *d, uint32_t nv) {
    d->nv = nv;
    d->width = nv * d->lanes;
}

/* Of operands in blocks: sub-panels are as wide as the number of rows leaves registers. */
static void block_products(Dot *d) {
    Emit *e = d->e;
    EmitIf is;
    int64_t least, most;
    expr_range(d->p, d->m.size, &least, &most);
    const bool open = least <= d->scaled.few && most > d->scaled.few;
    LLVMValueRef few =
        LLVMBuildICmp(e->b, LLVMIntSLE, emit_expr(e, d->m.size), emit_i64(e, d->scaled.few), "");
    LLVMValueRef many = LLVMBuildNot(e->b, few, "");
    if (open) emit_if_begin(e, &is, few);
    if (least <= d->scaled.few) panel_if_any(d);
    if (open) emit_if_end(e, &is);
    if (most <= d->scaled.few) return;
    if (open) emit_if_begin(e, &is, many);
    const uint32_t nv = d->nv;
    set_vectors(d, 1);
    panel_if_any(d);
    set_vectors(d, nv);
    if (open) emit_if_end(e, &is);
}

static void products(Dot *d, LLVMValueRef key, LLVMValueRef last) {
    Emit *e = d->e;
    EmitIf few, many;
    if (d->scaled.size) {
        block_products(d);
        return;
    }
    if (!is_made(d)) {
        copied_products(d, key, last);
        return;
    }
    LLVMValueRef one = LLVMBuildICmp(e->b, LLVMIntSLE, emit_expr(e, d->tiles), emit_i64(e, 1), "");
    LLVMValueRef more = LLVMBuildNot(e->b, one, "");
    emit_if_begin(e, &few, one);
    set_made(d, true);
    panel(d);
    emit_if_end(e, &few);
    if (is_made(d) > 0) return;
    emit_if_begin(e, &many, more);
    copied_products(d, key, last);
    emit_if_end(e, &many);
}

/* Of block number `block`; all have as many tiles as others, or one more. There may be numbers
 * behind the last. */
static LLVMValueRef first_tile(Dot *d, LLVMValueRef block) {
    Emit *e = d->e;
    LLVMValueRef tiles = emit_expr(e, d->tiles), at = LLVMBuildMul(e->b, block, tiles, "");
    return at_most(e, LLVMBuildUDiv(e->b, at, emit_expr(e, d->blocks), ""), tiles);
}

/* Item number -> batch, span, panel, block; what the last item prepared is kept when it fits. */
static void item(Dot *d, EmitLoop *l) {
    Emit *e = d->e;
    LLVMValueRef x = l->i, panels = emit_expr(e, d->panels), spans = emit_expr(e, d->spans);
    LLVMValueRef in_span = divide(e, &x, emit_expr(e, d->span));
    LLVMValueRef at = divide(e, &x, panels), span = divide(e, &x, spans);
    dot_bind(d, &d->batch, emit_below(d->e, "batch", d->batch.size, x));
    d->panel = emit_below(d->e, "panel", d->panels, at);

    LLVMValueRef one = emit_i64(e, 1), wide = emit_expr(e, d->span);
    LLVMValueRef first = LLVMBuildMul(e->b, span, wide, "");
    LLVMValueRef block = LLVMBuildAdd(e->b, first, in_span, "");
    d->tile0 = first_tile(d, block);
    d->tile1 = first_tile(d, LLVMBuildAdd(e->b, block, one, ""));
    d->span0 = first_tile(d, first);
    d->span1 = first_tile(d, LLVMBuildAdd(e->b, first, wide, ""));
    d->row0 = dot_first_row(d, d->span0);
    LLVMValueRef rows = LLVMBuildSub(e->b, dot_end_row(d, d->span1), d->row0, "");

    LLVMValueRef a_key = LLVMBuildAdd(e->b, LLVMBuildMul(e->b, x, spans, ""), span, "");
    LLVMValueRef b_key = LLVMBuildAdd(e->b, LLVMBuildMul(e->b, x, panels, ""), at, "");
    emit_when_new(d, a_key, l->phi[0], d->t->wino ? wino_transform : left, rows);
    l->next[0] = a_key;
    l->next[1] = b_key;
    products(d, b_key, l->phi[1]);
}

/* Nanoseconds on one thread. A piece of a thread's range that begins within a block transforms it
 * again, where the form is Winograd's: of few blocks pieces are few, for which a plane's time
 * stands for all of them. */
static Expr cost_of(Dot *d) {
    ExprPool *p = d->p;
    Expr macs =
        expr_mul(p, expr_mul(p, d->batch.size, d->m.size), expr_mul(p, d->n.size, d->kk.size));
    Expr times = expr_const(p, d->t->nacc);
    if (d->t->wino) {
        Expr many = expr_le(p, expr_const(p, OWN_BLOCKS), d->blocks);
        times = expr_select(p, many, expr_const(p, WINO_PLANES), times);
    }
    return expr_div(p, expr_mul(p, macs, times), expr_const(p, 50));
}

bool emit_dot_cpu(Emit *e, EmitInfo *info) {
    Dot *d = ARENA_NEW(e->arena, Dot);
    *d = (Dot){.e = e, .k = e->k, .t = &e->k->dot, .p = e->exprs};
    if (!analyse(d)) return false;
    set_widths(d);
    if (d->t->wino) {
        wino_analyse(d);
    } else if (d->t->block) {
        dot_analyse_blocks(d);
    } else {
        for (uint32_t i = 0; i < d->t->nacc; i++) dot_analyse_b(d, i);
        dot_analyse_a(d);
    }
    d->part = kir_part(d->k, d->p, &d->bits);
    cut(d);
    const bool own = d->t->wino || d->t->block; /* operands have a form of their own */
    d->makes = !own;
    for (uint32_t i = 0; !own && i < d->t->nacc; i++) {
        dot_gather_far(d, i);
        d->makes &= dot_may_make(d, i);
    }
    if (d->part && dot_has_digits(e->isa)) dot_analyse_digits(d);
    d->in_registers = epilogue_is_small(d);
    reserve(d);

    ExprPool *p = e->exprs;
    /* Every item has a block of rows, which may be the only one: of no rows there is no item. */
    Expr any = expr_min(p, d->m.size, expr_const(p, 1));
    Expr blocks = expr_mul(p, expr_mul(p, d->spans, d->span), any);
    info->work = expr_mul(p, d->batch.size, expr_mul(p, blocks, d->panels));
    info->cost = cost_of(d);

    EmitLoop l = emit_loop(e, 2);
    l.init[0] = l.init[1] = emit_i64(e, -1);
    emit_loop_begin(e, &l, "item", e->begin, e->end, emit_i64(e, 1), false);
    item(d, &l);
    emit_loop_end(e, &l);
    if (d->amx.on) dot_amx_release(d);
    return true;
}
