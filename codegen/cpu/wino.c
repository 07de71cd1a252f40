/* 3x3 convolutions of stride 1 by Winograd's F(2x2, 3x3): 16 products instead of 36 for every 2x2
 * outputs and channel.
 *
 * A row of the contraction is a tile of 2x2 outputs of one image; a block of rows is transformed
 * once for all panels, into 16 planes of [row][channel]. The micro-kernel multiplies plane by
 * plane; then each tile's 16 sums become 4 outputs, to which the epilogue is applied. Where the
 * output's height or width is odd the last tile overlaps its neighbour and stores only what that
 * did not. */
#include "codegen/cpu/dot/dot.h"

#define PLANES_APART 16 /* elements: a line */

static Expr half(Dot *d, Expr n) {
    return expr_ceildiv(d->p, n, expr_const(d->p, 2));
}

void wino_analyse(Dot *d) {
    const Kernel *k = d->k;
    uint32_t n = d->m.n;
    GC_ASSERT(n >= 2 && d->kk.n == 3);
    d->wino.axis[0] = d->m.axis[n - 2];
    d->wino.axis[1] = d->m.axis[n - 1];
    d->wino.axis[2] = d->kk.axis[0];
    d->wino.axis[3] = d->kk.axis[1];
    d->wino.channel = d->kk.axis[2];
    uint32_t outer = 0;
    for (uint32_t i = 0; i + 2 < n; i++) outer |= 1u << d->m.axis[i];
    dot_group(d, &d->wino.outer, outer);
    dot_group(d, &d->kk, 1u << d->wino.channel);
    d->wino.height = half(d, k->axes[d->wino.axis[0]].extent);
    d->wino.width = half(d, k->axes[d->wino.axis[1]].extent);
    Expr tiles = expr_mul(d->p, d->wino.height, d->wino.width);
    d->m = (DotGroup){.size = expr_mul(d->p, d->wino.outer.size, tiles)};
    d->ka = d->kk;
    d->nruns = d->step = d->rows[0] = expr_const(d->p, 1);
    d->run = d->kk.size;
    Expr lanes = expr_const(d->p, d->lanes);
    d->wino.channels = expr_muli(d->p, expr_ceildiv(d->p, d->kk.size, lanes), d->lanes);
    d->b[0] = (DotB){.mode = DOT_B_DIRECT, .memory = d->acc, .step = expr_const(d->p, DOT_PANEL)};
}

/* Elements from one plane to the next, of rows as wide: a tile's elements, one of each plane, are
 * written and read together, and would meet in one set of the cache where a plane's size is a
 * multiple of a page. */
static Expr plane_size(Dot *d, Expr width) {
    return expr_addi(d->p, expr_mul(d->p, d->wino.rows, width), PLANES_APART);
}

/* First element of a plane's row. */
static LLVMValueRef in_plane(Dot *d, uint32_t plane, LLVMValueRef row, Expr width) {
    Emit *e = d->e;
    LLVMValueRef first = emit_expr(e, expr_muli(d->p, plane_size(d, width), plane));
    return LLVMBuildAdd(e->b, first, LLVMBuildMul(e->b, row, emit_expr(e, width), ""), "");
}

void wino_reserve(Dot *d) {
    ExprPool *p = d->p;
    d->wino.rows = expr_muli(p, d->block, DOT_ROWS);
    const uint32_t columns = dot_may_go_across(d) ? DOT_PANEL : d->width;
    const int64_t bytes = (int64_t)WINO_PLANES * d->bytes;
    d->table = emit_scratch(d->e, expr_muli(p, d->wino.rows, 8 * WINO_PLANES));
    d->packed = emit_scratch(d->e, expr_muli(p, plane_size(d, d->wino.channels), bytes));
    d->wino.accumulators =
        emit_scratch(d->e, expr_muli(p, plane_size(d, expr_const(p, columns)), bytes));
}

/* --- Places ------------------------------------------------------------------------------- */

/* A tile of the output: its image is bound, its first output is at (y, x). */
typedef struct Place {
    LLVMValueRef origin[2]; /* 2*tile, from which on outputs are stored ... */
    Expr first[2];          /* ... and the first one computed, one less in an overlapping tile */
    bool odd[2];
} Place;

static Place place_of(Dot *d, LLVMValueRef row) {
    Emit *e = d->e;
    Place t;
    Expr at = emit_below(d->e, "tile", d->m.size, LLVMBuildAdd(e->b, d->row0, row, ""));
    Expr line = expr_div(d->p, at, d->wino.width);
    dot_bind(d, &d->wino.outer, expr_div(d->p, line, d->wino.height));
    Expr tile[2] = {expr_mod(d->p, line, d->wino.height), expr_mod(d->p, at, d->wino.width)};
    for (int i = 0; i < 2; i++) {
        Expr size = d->k->axes[d->wino.axis[i]].extent;
        t.odd[i] = expr_divisor(d->p, size) % 2 != 0;
        t.origin[i] = emit_expr(e, expr_muli(d->p, tile[i], 2));
        LLVMValueRef v = t.origin[i];
        if (t.odd[i]) {
            LLVMValueRef lim[2] = {v, emit_expr(e, expr_addi(d->p, size, -2))};
            v = emit_intrinsic(e, "llvm.smin", e->i64, lim, 2);
        }
        t.first[i] = emit_below(d->e, i ? "x" : "y", size, v);
    }
    return t;
}

static void bind_axis(Dot *d, uint32_t which, Expr by) {
    emit_bind(d->e, d->k->axes[d->wino.axis[which]].sym, by);
}

/* --- Left operand ------------------------------------------------------------------------- */

/* B^T x for four values. */
static void transform4(Dot *d, LLVMValueRef *x, uint32_t stride) {
    LLVMBuilderRef b = d->e->b;
    LLVMValueRef v[4] = {x[0], x[stride], x[2 * stride], x[3 * stride]};
    x[0] = LLVMBuildFSub(b, v[0], v[2], "");
    x[stride] = LLVMBuildFAdd(b, v[1], v[2], "");
    x[2 * stride] = LLVMBuildFSub(b, v[2], v[1], "");
    x[3 * stride] = LLVMBuildFSub(b, v[1], v[3], "");
}

static LLVMValueRef table_entry(Dot *d, uint32_t plane, LLVMValueRef row) {
    Emit *e = d->e;
    LLVMValueRef first = emit_expr(e, expr_muli(d->p, d->wino.rows, plane));
    return LLVMBuildAdd(e->b, first, row, "");
}

static void transform_channels(Dot *d, const Place *t, LLVMValueRef *to) {
    Emit *e = d->e;
    EmitLoop l = {0};
    LLVMValueRef x[WINO_PLANES], size = emit_expr(e, d->kk.size);
    emit_loop_begin(e, &l, "channels", emit_i64(e, 0), size, emit_i64(e, d->lanes), true);
    LLVMValueRef left = LLVMBuildSub(e->b, size, l.i, "");
    bool ragged = expr_divisor(d->p, d->kk.size) % d->lanes != 0;
    emit_bind_lanes(e, d->k->axes[d->wino.channel].sym, emit_below(d->e, "c", d->kk.size, l.i),
                    ragged ? emit_lanes_below(e, left) : NULL, true);
    bind_axis(d, 0, t->first[0]);
    bind_axis(d, 1, t->first[1]);
    for (uint32_t i = 0; i < WINO_PLANES; i++) {
        emit_push(e);
        bind_axis(d, 2, expr_const(d->p, i / 4));
        bind_axis(d, 3, expr_const(d->p, i % 4));
        x[i] = emit_value_lanes(e, d->t->a);
        emit_pop(e);
    }
    for (uint32_t i = 0; i < 4; i++) transform4(d, x + i, 4);
    for (uint32_t i = 0; i < 4; i++) transform4(d, x + 4 * i, 1);
    for (uint32_t i = 0; i < WINO_PLANES; i++)
        emit_store_ptr(e, x[i], emit_gep(e, d->elem, to[i], l.i), d->bytes);
    emit_loop_end(e, &l);
}

void wino_transform(Dot *d, LLVMValueRef rows) {
    Emit *e = d->e;
    EmitLoop row = {0};
    LLVMValueRef to[WINO_PLANES];
    emit_loop_begin(e, &row, "transform", emit_i64(e, 0), rows, emit_i64(e, 1), true);
    Place t = place_of(d, row.i);
    for (uint32_t i = 0; i < WINO_PLANES; i++) {
        to[i] = emit_gep(e, d->elem, d->packed, in_plane(d, i, row.i, d->wino.channels));
        emit_store_ptr(e, to[i], emit_gep(e, e->ptr, d->table, table_entry(d, i, row.i)), 8);
    }
    transform_channels(d, &t, to);
    emit_loop_end(e, &row);
}

/* --- Outputs ------------------------------------------------------------------------------ */

/* A^T x for four values. */
static void outputs2(Dot *d, const LLVMValueRef *x, uint32_t stride, LLVMValueRef *y) {
    LLVMBuilderRef b = d->e->b;
    LLVMValueRef mid = LLVMBuildFAdd(b, x[stride], x[2 * stride], "");
    LLVMValueRef diff = LLVMBuildFSub(b, x[stride], x[2 * stride], "");
    y[0] = LLVMBuildFAdd(b, x[0], mid, "");
    y[1] = LLVMBuildFSub(b, diff, x[3 * stride], "");
}

/* Output (dy, dx) of the tile, unless its neighbour stores it. */
static void store_output(Dot *d, const Place *t, uint32_t dy, uint32_t dx, LLVMValueRef v) {
    Emit *e = d->e;
    uint32_t at[2] = {dy, dx};
    LLVMValueRef own = NULL;
    EmitIf is;
    emit_push(e);
    for (uint32_t i = 0; i < 2; i++) {
        Expr here = expr_addi(d->p, t->first[i], at[i]);
        bind_axis(d, i, here);
        if (at[i] || !t->odd[i]) continue;
        LLVMValueRef mine = LLVMBuildICmp(e->b, LLVMIntSGE, emit_expr(e, here), t->origin[i], "");
        own = own ? LLVMBuildAnd(e->b, own, mine, "") : mine;
    }
    if (own) emit_if_begin(e, &is, own);
    emit_override(e, d->t->acc[0], v);
    dot_store_all(d);
    if (own) emit_if_end(e, &is);
    emit_pop(e);
}

static void tile_outputs(Dot *d, const Place *t, LLVMValueRef row, uint32_t j) {
    Emit *e = d->e;
    LLVMValueRef x[WINO_PLANES], half_done[8], y[4];
    for (uint32_t i = 0; i < WINO_PLANES; i++) {
        LLVMValueRef at = in_plane(d, i, row, expr_const(d->p, dot_sums_width(d)));
        if (d->across) at = LLVMBuildAdd(e->b, at, dot_into_panel(d), "");
        at = LLVMBuildAdd(e->b, at, emit_i64(e, (int64_t)(j * d->lanes)), "");
        LLVMValueRef p = emit_gep(e, d->elem, d->wino.accumulators, at);
        x[i] = emit_load(e, emit_vec(d->elem, d->lanes), p, d->bytes);
    }
    /* Down the columns, then along the rows. */
    for (uint32_t i = 0; i < 4; i++) {
        LLVMValueRef pair[2];
        outputs2(d, x + i, 4, pair);
        half_done[i] = pair[0];
        half_done[4 + i] = pair[1];
    }
    for (uint32_t i = 0; i < 2; i++) outputs2(d, half_done + 4 * i, 1, y + 2 * i);
    for (uint32_t i = 0; i < 4; i++) store_output(d, t, i / 2, i % 2, y[i]);
}

static void outputs(Dot *d, uint32_t nv, bool masked, void *unused) {
    (void)unused;
    Emit *e = d->e;
    LLVMValueRef rows = LLVMBuildSub(e->b, dot_end_row(d, d->tile1), d->row0, "");
    for (uint32_t j = 0; j < nv; j++) {
        EmitLoop l = {0};
        Expr base = expr_addi(d->p, d->n0, (int64_t)(j * d->lanes));
        LLVMValueRef left = emit_expr(e, expr_sub(d->p, d->n.size, base));
        emit_push(e);
        dot_bind_columns(d, base, masked ? emit_lanes_below(e, left) : NULL);
        emit_loop_begin(e, &l, "outputs", emit_i64(e, 0), rows, emit_i64(e, 1), true);
        Place t = place_of(d, l.i);
        tile_outputs(d, &t, l.i, j);
        emit_loop_end(e, &l);
        emit_pop(e);
    }
}

/* --- Planes ------------------------------------------------------------------------------- */

static void planes(Dot *d, uint32_t nv) {
    Emit *e = d->e;
    EmitLoop plane = {0};
    ExprPool *p = d->p;
    Expr sums = plane_size(d, expr_const(p, dot_sums_width(d)));
    Expr depth = expr_muli(p, d->kk.size, DOT_PANEL); /* of one plane of a panel */
    emit_loop_begin(e, &plane, "plane", emit_i64(e, 0), emit_i64(e, WINO_PLANES), emit_i64(e, 1),
                    true);
    Expr t = emit_below(d->e, "plane", expr_const(p, WINO_PLANES), plane.i);
    d->wino.entry = LLVMBuildMul(e->b, plane.i, emit_expr(e, d->wino.rows), "");
    LLVMValueRef start = LLVMBuildMul(e->b, plane.i, emit_expr(e, sums), "");
    d->wino.to = emit_gep(e, d->elem, d->wino.accumulators, start);
    Expr at = expr_mul(p, expr_add(p, expr_muli(p, d->panel, WINO_PLANES), t), depth);
    d->wino.b = emit_address(e, d->t->wino - 1, at);
    if (d->across)
        dot_tiles_across(d);
    else
        dot_tiles(d, nv, false);
    d->wino.entry = d->wino.to = d->wino.b = NULL;
    emit_loop_end(e, &plane);
}

void wino_tiles(Dot *d, uint32_t nv, bool masked) {
    planes(d, nv);
    outputs(d, nv, masked, NULL);
}

void wino_across(Dot *d) {
    planes(d, 0);
    dot_sub_panels(d, outputs, NULL);
}
