/* Work items of the row emitter: outer parallel axes counted like an odometer, blocks of copies. */
#include "codegen/cpu/rows.h"

/* One digit of a work item: an axis, blocks of the tile axis, or chunks of the lane axis. */
typedef enum DigitKind { DIGIT_axis, DIGIT_tile, DIGIT_chunk } DigitKind;
typedef struct Digit {
    DigitKind kind;
    uint32_t axis;
    Expr count;
    LLVMValueRef n, at;
} Digit;

typedef struct Items {
    uint32_t n;
    Digit d[K_MAX_AXES + 1];
} Items;

static void add_digit(Rows *r, Items *it, DigitKind kind, uint32_t axis) {
    ExprPool *p = r->e->exprs;
    Expr count = r->k->axes[axis].extent;
    if (kind == DIGIT_tile) count = expr_ceildiv(p, count, expr_const(p, r->tile_copies));
    if (kind == DIGIT_chunk) count = expr_ceildiv(p, count, r->chunk);
    it->d[it->n++] = (Digit){.kind = kind, .axis = axis, .count = count};
}

static Items items_of(Rows *r) {
    Items it = {0};
    for (uint32_t i = 0; i < r->k->naxes; i++) {
        if (!(r->p.par >> i & 1) || (r->lane_par && (int)i == r->lane)) continue;
        bool one = expr_is_value(r->e->exprs, r->k->axes[i].extent, 1);
        if ((int)i == r->tile)
            add_digit(r, &it, DIGIT_tile, i);
        else if (one)
            emit_bind(r->e, r->k->axes[i].sym, expr_const(r->e->exprs, 0));
        else
            add_digit(r, &it, DIGIT_axis, i);
    }
    if (r->lane_par) add_digit(r, &it, DIGIT_chunk, (uint32_t)r->lane);
    return it;
}

static Expr work_of(Rows *r, const Items *it) {
    Expr w = expr_const(r->e->exprs, 1);
    for (uint32_t i = 0; i < it->n; i++) w = expr_mul(r->e->exprs, w, it->d[i].count);
    return w;
}

/* Digits of the first item, into the loop's carried values. */
static void digits_init(Emit *e, Items *it, EmitLoop *l) {
    LLVMValueRef rest = e->begin, one = emit_i64(e, 1);
    *l = emit_loop(e, it->n);
    for (uint32_t i = it->n; i-- > 1;) {
        LLVMValueRef n[2] = {emit_expr(e, it->d[i].count), one};
        it->d[i].n = n[0] = emit_intrinsic(e, "llvm.smax", e->i64, n, 2);
        l->init[i] = LLVMBuildURem(e->b, rest, n[0], "");
        rest = LLVMBuildUDiv(e->b, rest, n[0], "");
    }
    if (it->n) l->init[0] = rest;
}

static void digits_next(Emit *e, const Items *it, EmitLoop *l) {
    LLVMValueRef carry = emit_i64(e, 1);
    for (uint32_t i = it->n; i-- > 1;) {
        LLVMValueRef up = LLVMBuildAdd(e->b, l->phi[i], carry, "");
        LLVMValueRef full = LLVMBuildICmp(e->b, LLVMIntEQ, up, it->d[i].n, "");
        l->next[i] = LLVMBuildSelect(e->b, full, emit_i64(e, 0), up, "");
        carry = LLVMBuildZExt(e->b, full, e->i64, "");
    }
    if (it->n) l->next[0] = LLVMBuildAdd(e->b, l->phi[0], carry, "");
}

/* --- One item ----------------------------------------------------------------------------- */

typedef struct Item {
    uint32_t ntile;      /* copies along the tile axis */
    Expr tile;           /* its first value; 0 = no tile axis */
    LLVMValueRef lo, hi; /* of the lane axis */
    int64_t divisor;
} Item;

static void add_bind(Copy *c, uint32_t sym, Expr by, bool lanes) {
    c->sym[c->nbinds] = sym;
    c->by[c->nbinds] = by;
    c->lanes[c->nbinds++] = lanes;
}

/* ntile x nlane copies, then all passes. */
static void item_copies(Rows *r, const Item *t, uint32_t nlane, Expr lane, LLVMValueRef mask) {
    Emit *e = r->e;
    r->ncopies = 0;
    for (uint32_t i = 0; i < t->ntile; i++)
        for (uint32_t j = 0; j < nlane; j++) {
            Copy *c = &r->copy[r->ncopies++];
            *c = (Copy){.mask = mask};
            if (t->tile)
                add_bind(c, r->k->axes[r->tile].sym, expr_addi(e->exprs, t->tile, i), false);
            if (lane)
                add_bind(c, r->k->axes[r->lane].sym,
                         expr_addi(e->exprs, lane, (int64_t)j * e->lanes), true);
        }
    rows_run_passes(r);
}

static void lane_step(Rows *r, void *ctx, uint32_t n, Expr base, LLVMValueRef mask,
                      LLVMValueRef *acc) {
    (void)acc;
    item_copies(r, ctx, n, base, mask);
}

static void item_lanes(Rows *r, Item *t) {
    emit_push(r->e);
    if (!r->lane_par)
        item_copies(r, t, 1, 0, NULL);
    else
        rows_span(r, t->lo, t->hi, t->divisor, r->lane_copies, 0, NULL, lane_step, t);
    emit_pop(r->e);
}

static void set_kernel(Rows *r, const Kernel *k) {
    r->k = r->p.k = r->e->k = k;
}

#define MAX_PIECES 4 /* that have code of their own; what is left is computed together */

/* The item as it is where it belongs to one piece of a join, then as it is elsewhere. */
static void item_pieces(Rows *r, Item *t, uint32_t most) {
    Emit *e = r->e;
    Expr where;
    KVal v = most > 1 && r->tile < 0 ? rows_piece(&r->p, r->lane, &where) : 0;
    LLVMValueRef there = v ? emit_mask(e, where) : NULL;
    if (!there) {
        item_lanes(r, t);
        return;
    }
    const Kernel *k = r->k;
    EmitIf cond;
    emit_if_begin(e, &cond, there);
    set_kernel(r, rows_piece_kernel(&r->p, v, true));
    item_pieces(r, t, 1);
    emit_if_end(e, &cond);
    set_kernel(r, k);
    emit_if_begin(e, &cond, LLVMBuildNot(e->b, there, ""));
    set_kernel(r, rows_piece_kernel(&r->p, v, false));
    item_pieces(r, t, most - 1);
    emit_if_end(e, &cond);
    set_kernel(r, k);
}

static void item_body(Rows *r, Item *t) {
    item_pieces(r, t, MAX_PIECES);
}

/* What is left of the tile axis from lo on: as many copies where that is known, and they are few;
 * else one by one. */
static void short_tile(Rows *r, Item *t, LLVMValueRef lo, LLVMValueRef end) {
    Emit *e = r->e;
    int64_t n;
    if (!r->turned && expr_is_const(e->exprs, r->k->axes[r->tile].extent, &n)) {
        t->ntile = (uint32_t)(n % r->tile_copies);
        t->tile = emit_new_sym(e, "t", INT64_MAX / 4, lo);
        item_body(r, t);
        return;
    }
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    emit_loop_begin(e, l, "short", lo, end, emit_i64(e, 1), false);
    t->ntile = 1;
    t->tile = emit_new_sym(e, "t", INT64_MAX / 4, l->i);
    item_body(r, t);
    emit_loop_end(e, l);
}

/* The last block of the tile axis may be short. */
static void item_tile(Rows *r, Item *t, LLVMValueRef block) {
    Emit *e = r->e;
    Expr extent = r->k->axes[r->tile].extent;
    uint32_t n = r->tile_copies;
    if (expr_is_value(e->exprs, extent, n)) block = emit_i64(e, 0);
    LLVMValueRef lo = LLVMBuildMul(e->b, block, emit_i64(e, n), "");
    bool even = expr_divisor(e->exprs, extent) % n == 0;
    LLVMValueRef end = emit_expr(e, extent);
    LLVMValueRef full =
        LLVMBuildICmp(e->b, LLVMIntSLE, LLVMBuildAdd(e->b, lo, emit_i64(e, n), ""), end, "");
    EmitIf cond;
    if (!even)
        emit_if_begin(e, &cond, full);
    else
        emit_push(e);
    t->ntile = n;
    t->tile = emit_new_sym(e, "t", INT64_MAX / 4, lo);
    item_body(r, t);
    if (even) {
        emit_pop(e);
        return;
    }
    emit_if_end(e, &cond);
    emit_if_begin(e, &cond, LLVMBuildNot(e->b, full, ""));
    short_tile(r, t, lo, end);
    emit_if_end(e, &cond);
}

static int64_t gcd(int64_t a, int64_t b) {
    return b ? gcd(b, a % b) : a;
}

static void item_chunk(Rows *r, Item *t, LLVMValueRef chunk) {
    Emit *e = r->e;
    Expr extent = r->k->axes[r->lane].extent;
    t->divisor = expr_divisor(e->exprs, extent);
    t->lo = emit_i64(e, 0);
    t->hi = emit_expr(e, extent);
    if (r->chunk == extent) return;
    int64_t size = expr_value(e->exprs, r->chunk);
    t->divisor = gcd(t->divisor, size);
    t->lo = LLVMBuildMul(e->b, chunk, emit_i64(e, size), "");
    LLVMValueRef end[2] = {LLVMBuildAdd(e->b, t->lo, emit_i64(e, size), ""), t->hi};
    t->hi = emit_intrinsic(e, "llvm.smin", e->i64, end, 2);
}

static void run_item(Rows *r, Items *it) {
    Emit *e = r->e;
    Item t = {.ntile = 1};
    LLVMValueRef tile = NULL;
    for (uint32_t i = 0; i < it->n; i++) {
        const Digit *d = &it->d[i];
        if (d->kind == DIGIT_axis)
            emit_set_sym(e, r->k->axes[d->axis].sym, d->at);
        else if (d->kind == DIGIT_tile)
            tile = d->at;
        else
            item_chunk(r, &t, d->at);
    }
    if (tile)
        item_tile(r, &t, tile);
    else
        item_body(r, &t);
}

static void run_items(Rows *r, Items *it) {
    Emit *e = r->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    digits_init(e, it, l);
    emit_loop_begin(e, l, "item", e->begin, e->end, emit_i64(e, 1), false);
    for (uint32_t i = 0; i < it->n; i++) it->d[i].at = l->phi[i];
    run_item(r, it);
    digits_next(e, it, l);
    emit_loop_end(e, l);
}

/* All items, as often as the kernel takes turns: what is carried lies in memory, where each item
 * finds its own. */
static void run_turns(Rows *r, Items *it) {
    Emit *e = r->e;
    if (!e->k->turns) {
        run_items(r, it);
        return;
    }
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef n = emit_expr(e, e->k->turns);
    emit_loop_begin(e, l, "turn", emit_i64(e, 0), n, emit_i64(e, 1), false);
    emit_set_sym(e, e->k->turn, l->i);
    run_items(r, it);
    emit_loop_end(e, l);
}

static void alloc_kept(Rows *r) {
    Emit *e = r->e;
    ExprPool *p = e->exprs;
    uint32_t copies = r->tile_copies * r->lane_copies;
    for (uint32_t i = 0; i < r->nkept; i++) {
        Kept *q = &r->kept[i];
        Expr n = expr_addi(p, r->k->axes[q->axis].extent, q->varies ? 0 : e->lanes);
        int64_t bytes =
            (int64_t)dtype_bytes((DType)r->k->ops[q->v].dtype) * (q->varies ? e->lanes : 1);
        for (uint32_t c = 0; c < copies; c++) q->ptr[c] = emit_scratch(e, expr_muli(p, n, bytes));
    }
}

#define MAX_ZEROS 4096

static bool folds_walk(const Rows *r) {
    for (uint32_t p = 0; p < r->p.npasses; p++)
        if (r->p.pass[p].nfolds && r->p.pass[p].axes) return true;
    return false;
}

/* Zeros for the walks over a parallel lane axis, if some loads in them are masked off as a whole */
static void make_zeros(Rows *r) {
    Emit *e = r->e;
    int64_t n, bytes = 0;
    if (!r->lane_par || !expr_is_const(e->exprs, r->k->axes[r->lane].extent, &n) || n > MAX_ZEROS)
        return;
    for (KVal v = 1; v < r->k->nops; v++) {
        const KOp *o = &r->k->ops[v];
        if (o->op != K_kload || !o->mask || expr_uses(e->exprs, o->mask, r->k->axes[r->lane].sym))
            continue;
        int64_t size = (int64_t)dtype_bytes((DType)o->dtype);
        if (size > bytes) bytes = size;
    }
    if (!bytes || !folds_walk(r)) return;
    n = (n + e->lanes) * bytes;
    e->zeros = emit_scratch(e, expr_const(e->exprs, n + 64));
    EmitLoop l = {0};
    emit_loop_begin(e, &l, "zeros", emit_i64(e, 0), emit_i64(e, n), emit_i64(e, 64), true);
    LLVMTypeRef line = LLVMVectorType(e->i8, 64);
    emit_store_ptr(e, LLVMConstNull(line), emit_gep(e, e->i8, e->zeros, l.i), 64);
    emit_loop_end(e, &l);
}

/* Nanoseconds on one core: about 16 bytes or 16 flops each. */
static Expr cost_of(Emit *e) {
    Expr c = expr_const(e->exprs, 0);
    Expr part[3] = {e->k->bytes_read, e->k->bytes_written, e->k->flops};
    for (int i = 0; i < 3; i++)
        if (part[i]) c = expr_add(e->exprs, c, part[i]);
    return expr_div(e->exprs, c, expr_const(e->exprs, 16));
}

void emit_rows_cpu(Emit *e, EmitInfo *info) {
    Rows *r = ARENA_NEW(e->arena, Rows);
    *r = (Rows){.e = e, .k = e->k, .dom = e->domains};
    info->cost = cost_of(e);
    info->work = expr_const(e->exprs, 1);
    bool passes = rows_passes(&r->p, e, e->k);
    if (e->k->serial && !r->p.par) e->lanes = 1;
    if (e->k->more)
        e->unsupported = "the kernel does the same again over other buffers";
    else if (!passes || !rows_choose(r))
        e->unsupported = "the kernel has too many passes";
    if (e->unsupported) return;
    Items it = items_of(r);
    alloc_kept(r);
    make_zeros(r);
    if (r->p.npasses && (!e->k->serial || r->p.par)) {
        info->work = work_of(r, &it);
        if (it.n && it.d[0].kind == DIGIT_axis) rows_slices(r, it.d[0].axis, info);
        run_turns(r, &it);
        return;
    }
    /* One item does everything, in order. */
    EmitIf any;
    emit_if_begin(e, &any, LLVMBuildICmp(e->b, LLVMIntSLT, e->begin, e->end, ""));
    for (KVal v = 1; v < e->k->nops; v++)
        if (e->k->ops[v].op == K_kcompact) rows_compact(r, v);
    e->begin = emit_i64(e, 0);
    e->end = emit_expr(e, work_of(r, &it));
    if (r->p.npasses) run_items(r, &it);
    emit_if_end(e, &any);
}
