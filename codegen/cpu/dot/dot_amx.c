/* Contractions of bf16, and of u8 by i8, in tile registers (AMX): eight of them, 16 rows of 64
 * bytes each. One instruction adds the product of 16 x 32 elements and 32 x 16, whose rows are in
 * pairs as panels have them (KDot.pairs), to 16 x 16 f32; of bytes twice as many, in fours
 * (KDot.quads), to i32.
 *
 * An item's rows are cut into chunks of 32 and what is left. A chunk is two tiles of rows, or one
 * if that is enough. All tiles have as many rows: the last one begins so early that it is whole, if
 * need be with rows of the chunk before. Against them stand the panel's tiles of 16 columns: six
 * accumulators, a tile of the left operand and one of the right one. A row of the left operand is
 * read where it lies, or is copied with zeros up to a whole number of steps, as panels have them.
 * The sums, all of k in one accumulator, go to Dot.tile, from where the epilogue takes them.
 *
 * The operating system must have granted the registers (runtime/cpu/isa.c). No call may stand
 * between their configuration and their release: none is in emitted code. */
#include "codegen/cpu/dot/dot.h"

enum {
    TILE_ROWS = 16,
    TILE_BYTES = 64,
    LEFT = 6, /* registers: accumulators come first */
    RIGHT = 7,
    SCATTERED_MOST = 256, /* elements of a run that is put together without a loop */
    STEPS_AHEAD = 64,     /* of panels that are not so deep that the next one finds no room in L2 */
    SHARES_MOST = 12,     /* chunks that ask for a part of the next panel */
    CONFIG_BYTES = 64,    /* palette, 15 bytes of zeros, bytes per row of each, ... */
    CONFIG_WIDTH = 16,
    CONFIG_ROWS = 48, /* ... and rows of each */
    REGISTERS = 8
};

static int64_t element_bytes(const Dot *d) {
    return (int64_t)dtype_bytes(d->left);
}

/* Elements of k in a tile. */
static int64_t step_of(const Dot *d) {
    return TILE_BYTES / element_bytes(d);
}

/* An element of the left operand in memory. */
static LLVMTypeRef left_type(Dot *d) {
    return emit_mem_type(d->e, d->left);
}

static Expr steps_of(Dot *d) {
    return expr_ceildiv(d->p, d->kk.size, expr_const(d->p, step_of(d)));
}

/* Elements from row to row of a copied left operand: an odd number of lines of the cache, so that
 * rows of a tile do not meet in one set. */
static Expr copied_stride(Dot *d) {
    ExprPool *p = d->p;
    Expr steps = steps_of(d), even = expr_mod(p, expr_addi(p, steps, 1), expr_const(p, 2));
    return expr_muli(p, expr_add(p, steps, even), step_of(d));
}

/* Whether rows lie in memory as tiles take them; *stride: elements from one to the next. */
static bool lies_in_rows(Dot *d, Expr *stride) {
    const KOp *o = &d->k->ops[d->a];
    Expr step = 0;
    if (o->op != K_kload || (DType)o->dtype != d->left || o->mask) return false;
    if (expr_divisor(d->p, d->kk.size) % step_of(d)) return false;
    if (dot_uniform_stride(d, &d->kk, o->index, &step) != d->kk.n) return false;
    if (!expr_is_value(d->p, step, 1)) return false;
    return dot_uniform_stride(d, &d->m, o->index, stride) == d->m.n;
}

/* Bytes `at` of the configuration, so many as `v` has. */
static void configure_part(Dot *d, uint32_t at, LLVMValueRef v) {
    Emit *e = d->e;
    emit_store_ptr(e, v, emit_gep(e, e->i8, d->amx.config, emit_i64(e, at)), 1);
}

void dot_amx_reserve(Dot *d) {
    Emit *e = d->e;
    ExprPool *p = d->p;
    d->amx.in_place = lies_in_rows(d, &d->amx.stride);
    if (!d->amx.in_place) {
        d->amx.stride = copied_stride(d);
        Expr tiles = expr_min(p, expr_mul(p, d->block, d->span), expr_add(p, d->tiles, d->block));
        Expr rows = expr_addi(p, expr_muli(p, tiles, DOT_ROWS), 1);
        d->packed =
            emit_scratch(e, expr_muli(p, expr_mul(p, rows, d->amx.stride), element_bytes(d)));
    }
    GC_ASSERT(d->width == DOT_PANEL);
    for (uint32_t i = 0; i < d->t->nacc; i++) {
        const int64_t tile = (int64_t)TILE_ROWS * DOT_PANEL;
        LLVMValueRef sums = emit_scratch(e, expr_const(p, 3 * tile * (int64_t)sizeof(float)));
        d->tile[i] = emit_gep(e, d->elem, sums, emit_i64(e, tile)); /* a last tile begins before */
    }
    d->amx.config = emit_alloca(e, e->i8, CONFIG_BYTES, CONFIG_BYTES);
    d->amx.rows = emit_alloca(e, e->i64, 1, 8);
    emit_store_ptr(e, emit_i64(e, 0), d->amx.rows, 8);
    configure_part(d, 0, LLVMConstNull(emit_vec(e->i8, CONFIG_BYTES)));
    configure_part(d, 0, LLVMConstInt(e->i8, 1, false));
    for (uint32_t i = 0; i < REGISTERS; i++)
        configure_part(d, CONFIG_WIDTH + 2 * i, LLVMConstInt(e->i16, TILE_BYTES, false));
}

void dot_amx_release(Dot *d) {
    emit_intrinsic(d->e, "llvm.x86.tilerelease", NULL, NULL, 0);
}

/* All but the right operand's tile get so many rows, if they have another number. */
static void configure(Dot *d, LLVMValueRef rows) {
    Emit *e = d->e;
    EmitIf other;
    LLVMValueRef now = emit_load(e, e->i64, d->amx.rows, 8);
    emit_if_begin(e, &other, LLVMBuildICmp(e->b, LLVMIntNE, now, rows, ""));
    emit_store_ptr(e, rows, d->amx.rows, 8);
    LLVMValueRef byte = LLVMBuildTrunc(e->b, rows, e->i8, "");
    for (uint32_t i = 0; i < RIGHT; i++) configure_part(d, CONFIG_ROWS + i, byte);
    configure_part(d, CONFIG_ROWS + RIGHT, LLVMConstInt(e->i8, TILE_ROWS, false));
    emit_intrinsic(e, "llvm.x86.ldtilecfg", NULL, &d->amx.config, 1);
    emit_if_end(e, &other);
}

/* --- The left operand --------------------------------------------------------------------- */

/* Whether what lies side by side is so short (three channels of an image) that a run is better put
 * together from wherever its elements are, all of it at once. */
static bool is_scattered(Dot *d, int64_t *k) {
    const KAxis *last = &d->k->axes[d->kk.axis[d->kk.n - 1]];
    int64_t size;
    return d->kk.n > 1 && expr_is_const(d->p, d->kk.size, k) && *k <= SCATTERED_MOST &&
           expr_is_const(d->p, last->extent, &size) && size < d->lanes / 2;
}

static void pack_scattered(Dot *d, LLVMValueRef slot, int64_t k) {
    Emit *e = d->e;
    const DType t = (DType)d->k->ops[d->a].dtype;
    for (int64_t i = 0; i < k; i += d->lanes) {
        LLVMValueRef mask = k - i < d->lanes ? emit_lanes_below(e, emit_i64(e, k - i)) : NULL;
        emit_push(e);
        dot_bind_lanes(d, &d->kk, expr_const(d->p, i), mask, true);
        LLVMValueRef v = emit_cast(e, t, d->left, emit_value_lanes(e, d->a));
        if (mask) v = emit_select(e, mask, v, LLVMConstNull(LLVMTypeOf(v)));
        emit_store_ptr(e, v, emit_gep(e, left_type(d), slot, emit_i64(e, i)),
                       (uint32_t)element_bytes(d));
        emit_pop(e);
    }
}

void dot_amx_left(Dot *d, LLVMValueRef rows) {
    Emit *e = d->e;
    EmitLoop l = {0};
    if (d->amx.in_place) return;
    LLVMValueRef stride = emit_expr(e, d->amx.stride);
    const bool ragged = expr_divisor(d->p, d->kk.size) % step_of(d) != 0;
    emit_loop_begin(e, &l, "row", emit_i64(e, 0), rows, emit_i64(e, 1), true);
    dot_bind(d, &d->m, emit_below(d->e, "row", d->m.size, LLVMBuildAdd(e->b, d->row0, l.i, "")));
    LLVMValueRef slot = emit_gep(e, left_type(d), d->packed, LLVMBuildMul(e->b, l.i, stride, ""));
    if (ragged) {
        LLVMValueRef last =
            emit_expr(e, expr_muli(d->p, expr_addi(d->p, steps_of(d), -1), step_of(d)));
        last = emit_gep(e, left_type(d), slot, last);
        emit_store_ptr(e, LLVMConstNull(emit_vec(e->i8, TILE_BYTES)), last, 1);
    }
    int64_t k;
    if (is_scattered(d, &k))
        pack_scattered(d, slot, k);
    else
        dot_pack_run(d, slot);
    emit_loop_end(e, &l);
}

/* Row `row` of the span, and what follows it. */
static LLVMValueRef left_rows(Dot *d, LLVMValueRef row) {
    Emit *e = d->e;
    LLVMValueRef stride = emit_expr(e, d->amx.stride);
    if (!d->amx.in_place)
        return emit_gep(e, left_type(d), d->packed, LLVMBuildMul(e->b, row, stride, ""));
    const KOp *o = &d->k->ops[d->a];
    emit_push(e);
    dot_bind(d, &d->m, emit_below(d->e, "row", d->m.size, LLVMBuildAdd(e->b, d->row0, row, "")));
    dot_bind(d, &d->kk, expr_const(d->p, 0));
    LLVMValueRef at = emit_address(e, o->buf, o->index);
    emit_pop(e);
    return at;
}

/* --- Products ----------------------------------------------------------------------------- */

typedef struct Chunk {
    uint32_t nv, tiles;           /* of columns, of rows */
    LLVMValueRef left[2], stride; /* of tiles of rows; bytes */
    LLVMValueRef last;            /* row with which the last of them begins, of the chunk's */
    LLVMValueRef lines;           /* of the next panel, asked for at each step */
    LLVMValueRef share;           /* ... from where on, in bytes */
} Chunk;

static LLVMValueRef number(Dot *d, uint32_t i) {
    return LLVMConstInt(d->e->i8, i, false);
}

static void load_tile(Dot *d, uint32_t i, LLVMValueRef at, LLVMValueRef stride) {
    LLVMValueRef x[3] = {number(d, i), at, stride};
    emit_intrinsic(d->e, "llvm.x86.tileloadd64", NULL, x, 3);
}

static void multiply(Dot *d, uint32_t sum) {
    LLVMValueRef x[3] = {number(d, sum), number(d, LEFT), number(d, RIGHT)};
    emit_intrinsic(d->e, d->quads ? "llvm.x86.tdpbusd" : "llvm.x86.tdpbf16ps", NULL, x, 3);
}

static void store_sums(Dot *d, const Chunk *c, uint32_t acc) {
    Emit *e = d->e;
    const int64_t row = DOT_PANEL * sizeof(float);
    LLVMValueRef last = LLVMBuildMul(e->b, c->last, emit_i64(e, row), "");
    for (uint32_t i = 0; i < c->tiles * c->nv; i++) {
        LLVMValueRef at = emit_gep(e, e->i8, d->tile[acc], emit_i64(e, i % c->nv * TILE_BYTES));
        if (i / c->nv + 1 == c->tiles) at = emit_gep(e, e->i8, at, last);
        LLVMValueRef x[3] = {number(d, i), at, emit_i64(e, row)};
        emit_intrinsic(e, "llvm.x86.tilestored64", NULL, x, 3);
    }
}

static void ask(Dot *d, const Chunk *c, LLVMValueRef at) {
    Emit *e = d->e;
    EmitLoop l = {0};
    emit_loop_begin(e, &l, "line", emit_i64(e, 0), c->lines, emit_i64(e, 1), false);
    at = emit_gep(e, e->i8, at, LLVMBuildMul(e->b, l.i, emit_i64(e, TILE_BYTES), ""));
    dot_ask_line(d, at);
    emit_loop_end(e, &l);
}

/* Against the right operand's panel i. The second tile of rows meets the columns in the opposite
 * order: the tile that is there comes first. */
static void sum(Dot *d, const Chunk *c, uint32_t acc, LLVMValueRef panel) {
    Emit *e = d->e;
    EmitLoop l = emit_loop(e, 1);
    const int64_t row = DOT_PANEL * sizeof(float), step = row * TILE_ROWS;
    for (uint32_t i = 0; i < c->tiles * c->nv; i++) {
        LLVMValueRef x = number(d, i);
        emit_intrinsic(e, "llvm.x86.tilezero", NULL, &x, 1);
    }
    l.init[0] = emit_gep(e, e->i8, panel, c->share);
    emit_loop_begin(e, &l, "k", emit_i64(e, 0), emit_expr(e, steps_of(d)), emit_i64(e, 1), false);
    LLVMValueRef b = emit_gep(e, e->i8, panel, LLVMBuildMul(e->b, l.i, emit_i64(e, step), ""));
    LLVMValueRef at = LLVMBuildMul(e->b, l.i, emit_i64(e, step_of(d)), "");
    for (uint32_t t = 0; t < c->tiles; t++) {
        load_tile(d, LEFT, emit_gep(e, left_type(d), c->left[t], at), c->stride);
        for (uint32_t i = 0; i < c->nv; i++) {
            uint32_t j = t ? c->nv - 1 - i : i;
            if (!t || i)
                load_tile(d, RIGHT, emit_gep(e, e->i8, b, emit_i64(e, j * TILE_BYTES)),
                          emit_i64(e, row));
            multiply(d, t * c->nv + j);
        }
    }
    ask(d, c, l.phi[0]);
    LLVMValueRef bytes = LLVMBuildMul(e->b, c->lines, emit_i64(e, TILE_BYTES), "");
    l.next[0] = emit_gep(e, e->i8, l.phi[0], bytes);
    emit_loop_end(e, &l);
    store_sums(d, c, acc);
}

/* Rows from `row` of the span on. */
static void chunk(Dot *d, Chunk c, LLVMValueRef row, uint32_t tiles, LLVMValueRef *panel) {
    Emit *e = d->e;
    c.tiles = tiles;
    c.stride = emit_expr(e, expr_muli(d->p, d->amx.stride, element_bytes(d)));
    c.left[0] = left_rows(d, row);
    LLVMValueRef last = emit_gep(e, e->i8, c.left[0], LLVMBuildMul(e->b, c.last, c.stride, ""));
    c.left[tiles - 1] = last;
    for (uint32_t i = 0; i < d->t->nacc; i++) sum(d, &c, i, panel[i]);
}

/* Chunk number i of n asks for a part of the panel behind this one. */
static void look_ahead(Dot *d, Chunk *c, LLVMValueRef i, LLVMValueRef n) {
    Emit *e = d->e;
    ExprPool *p = d->p;
    const int64_t step = DOT_PANEL * sizeof(float) * TILE_ROWS, lines = step / TILE_BYTES;
    LLVMValueRef x[2] = {n, emit_i64(e, SHARES_MOST)};
    LLVMValueRef shares = emit_intrinsic(e, "llvm.smin", e->i64, x, 2);
    LLVMValueRef all = LLVMBuildAdd(e->b, emit_i64(e, lines - 1), shares, "");
    LLVMValueRef asks = LLVMBuildICmp(e->b, LLVMIntSLT, i, shares, "");
    Expr few = expr_le(p, steps_of(d), expr_const(p, STEPS_AHEAD));
    asks = LLVMBuildAnd(e->b, asks, LLVMBuildTrunc(e->b, emit_expr(e, few), e->i1, ""), "");
    c->lines =
        LLVMBuildSelect(e->b, asks, LLVMBuildUDiv(e->b, all, shares, ""), emit_i64(e, 0), "");
    Expr bytes = expr_muli(p, steps_of(d), step);
    LLVMValueRef each = LLVMBuildMul(e->b, c->lines, emit_expr(e, steps_of(d)), "");
    each = LLVMBuildMul(e->b, LLVMBuildMul(e->b, each, i, ""), emit_i64(e, TILE_BYTES), "");
    c->share = LLVMBuildAdd(e->b, emit_expr(e, bytes), each, "");
}

/* `rows` rows from `row` of the span on. */
static void chunk_at(Dot *d, Chunk c, LLVMValueRef row, LLVMValueRef rows, LLVMValueRef *panel) {
    Emit *e = d->e;
    EmitIf one, two;
    LLVMValueRef few = LLVMBuildICmp(e->b, LLVMIntSLE, rows, emit_i64(e, TILE_ROWS), "");
    LLVMValueRef many = LLVMBuildNot(e->b, few, "");
    emit_if_begin(e, &one, few);
    chunk(d, c, row, 1, panel);
    emit_if_end(e, &one);
    emit_if_begin(e, &two, many);
    chunk(d, c, row, 2, panel);
    emit_if_end(e, &two);
}

static LLVMValueRef smaller(Emit *e, LLVMValueRef x, LLVMValueRef y) {
    LLVMValueRef v[2] = {x, y};
    return emit_intrinsic(e, "llvm.smin", e->i64, v, 2);
}

void dot_amx_tiles(Dot *d, uint32_t nv, bool masked) {
    Emit *e = d->e;
    EmitLoop l = {0};
    Chunk c = {.nv = nv};
    LLVMValueRef panel[K_MAX_ACC], mask[DOT_MAX_NV], most = emit_i64(e, 2 * TILE_ROWS);
    dot_column_masks(d, nv, masked, mask);
    for (uint32_t i = 0; i < d->t->nacc; i++) panel[i] = dot_panel_start(d, i);
    LLVMValueRef first = dot_first_row(d, d->tile0), end = dot_end_row(d, d->tile1);
    LLVMValueRef all = LLVMBuildSub(e->b, end, first, "");
    LLVMValueRef each = smaller(e, all, emit_i64(e, TILE_ROWS));
    LLVMValueRef n = LLVMBuildAdd(e->b, all, emit_i64(e, 2 * TILE_ROWS - 1), "");
    n = LLVMBuildUDiv(e->b, n, most, "");
    configure(d, each);
    first = LLVMBuildSub(e->b, first, d->row0, "");
    emit_loop_begin(e, &l, "chunk", emit_i64(e, 0), n, emit_i64(e, 1), true);
    LLVMValueRef from = LLVMBuildMul(e->b, most, l.i, "");
    LLVMValueRef rows = smaller(e, LLVMBuildSub(e->b, all, from, ""), most);
    LLVMValueRef row = LLVMBuildAdd(e->b, first, from, "");
    c.last = LLVMBuildSub(e->b, rows, each, "");
    look_ahead(d, &c, l.i, n);
    chunk_at(d, c, row, rows, panel);
    dot_epilogue(d, nv, mask, LLVMBuildAdd(e->b, d->row0, row, ""), rows);
    emit_loop_end(e, &l);
}
