/* All of k for a micro-kernel: runs, chunks of long sums, slices of panels. */
#include "codegen/cpu/dot/dot_micro.h"
#include <string.h>

/* --- Long sums ------------------------------------------------------------------------- */

/* A part of a sum, from 0, in registers. The sums of the parts before lie in memory meanwhile:
 * there are no registers for both. The rounding error of a sum grows with the root of its length */
typedef struct Chunk {
    EmitLoop l;
    Expr first, size;   /* of the current chunk, in steps */
    LLVMValueRef after; /* i1: there is another chunk behind it; NULL: sums always go to memory */
} Chunk;

LLVMValueRef dot_load_sums(Dot *d, LLVMValueRef at) {
    return emit_load(d->e, emit_vec(d->elem, d->lanes), at, d->bytes);
}

uint32_t dot_sums_width(const Dot *d) {
    return d->across ? DOT_PANEL : d->width;
}

LLVMValueRef micro_place(Dot *d, const Micro *m, uint32_t i) {
    uint32_t at = i / m->nv * dot_sums_width(d) + i % m->nv * d->lanes;
    return emit_gep(d->e, d->elem, m->tile, emit_i64(d->e, at));
}

static void micro_zero(Dot *d, Micro *m) {
    for (uint32_t i = 0; i < m->nacc; i++) m->acc[i] = LLVMConstNull(emit_vec(d->elem, d->lanes));
}

/* `steps` steps, at most `most` a chunk. whole: they are all of the sum, which is left in
 * registers. */
static void chunk_open(Dot *d, Micro *m, Chunk *c, Expr steps, Expr most, bool whole) {
    ExprPool *p = d->p;
    const Expr n = expr_ceildiv(p, steps, most);
    micro_zero(d, m);
    m->live = whole ? m->nacc : 0;
    micro_open(d, m, &c->l, "chunk", expr_const(p, 0), n);
    Expr at = emit_below(d->e, "chunk", n, c->l.i);
    c->after = NULL;
    if (whole)
        c->after = LLVMBuildICmp(d->e->b, LLVMIntSLT, emit_expr(d->e, expr_addi(p, at, 1)),
                                 emit_expr(d->e, n), "");
    c->first = expr_mul(p, at, most);
    c->size = expr_min(p, most, expr_sub(p, steps, c->first));
    micro_zero(d, m);
    m->live = m->nacc;
}

static void load_and_add(Dot *d, Micro *m) {
    for (uint32_t i = 0; i < m->nacc; i++)
        m->acc[i] = LLVMBuildFAdd(d->e->b, dot_load_sums(d, micro_place(d, m, i)), m->acc[i], "");
}

static void store_sums(Dot *d, const Micro *m) {
    for (uint32_t i = 0; i < m->nacc; i++)
        emit_store_ptr(d->e, m->acc[i], micro_place(d, m, i), d->bytes);
}

/* ... if there are some. */
static void add_chunks_before(Dot *d, Micro *m, const Chunk *c) {
    Emit *e = d->e;
    EmitIf some;
    LLVMValueRef without[DOT_ROWS * DOT_MAX_NV];
    memcpy(without, m->acc, sizeof without);
    emit_if_begin(e, &some, LLVMBuildICmp(e->b, LLVMIntNE, c->l.i, emit_i64(e, 0), ""));
    load_and_add(d, m);
    LLVMBasicBlockRef from[2] = {some.pre, LLVMGetInsertBlock(e->b)};
    emit_if_end(e, &some);
    for (uint32_t i = 0; i < m->nacc; i++) {
        LLVMValueRef x[2] = {without[i], m->acc[i]};
        m->acc[i] = LLVMBuildPhi(e->b, LLVMTypeOf(x[0]), "");
        LLVMAddIncoming(m->acc[i], x, from, 2);
    }
}

static void chunk_close(Dot *d, Micro *m, Chunk *c) {
    EmitIf more;
    if (c->after) {
        add_chunks_before(d, m, c);
        emit_if_begin(d->e, &more, c->after);
        store_sums(d, m);
        emit_if_end(d->e, &more);
    } else {
        load_and_add(d, m);
        store_sums(d, m);
        m->live = 0;
    }
    micro_close(d, m, &c->l);
}

/* A sum that is a little longer than a chunk stays whole. */
static bool is_long(const Dot *d, Expr size) {
    int64_t n;
    return dtype_is_float(d->acc) && !(expr_is_const(d->p, size, &n) && n <= DOT_CHUNK * 5 / 4);
}

/* Whether chunks are of whole runs. Else runs that are long, or not known to be short, are cut, or
 * nothing is: never both, for a chunk's sums leave the registers where it ends. */
static bool joins_runs(const Dot *d) {
    return !is_long(d, d->run) && is_long(d, expr_mul(d->p, d->nruns, d->run));
}

bool dot_in_one_walk(const Dot *d) {
    return expr_is_value(d->p, d->nruns, 1) || joins_runs(d);
}

/* All of run `at`. */
static void micro_run(Dot *d, Micro *m, LLVMValueRef at) {
    Chunk c;
    LLVMValueRef left[DOT_ROWS];
    if (!d->quads) micro_left(d, m, at, left);
    if (d->quads) {
        micro_quads(d, m, at);
    } else if (!is_long(d, d->run)) {
        micro_part(d, m, left, expr_const(d->p, 0), d->run);
    } else {
        chunk_open(d, m, &c, d->run, expr_const(d->p, DOT_CHUNK), dot_in_one_walk(d));
        micro_part(d, m, left, c.first, c.size);
        chunk_close(d, m, &c);
    }
}

/* Runs [first, first + n). */
static void micro_runs(Dot *d, Micro *m, LLVMValueRef start, Expr first, Expr n) {
    Emit *e = d->e;
    EmitLoop runs;
    micro_open(d, m, &runs, "runs", first, n);
    if (d->permuted)
        m->row =
            dot_b_row(d, m->b, start, dot_run_row(d, emit_below(d->e, "run", d->nruns, runs.i)));
    micro_run(d, m, LLVMBuildAdd(e->b, m->at, runs.i, ""));
    micro_close(d, m, &runs);
}

bool dot_in_chunks(const Dot *d) {
    return !d->quads && !d->scaled.size &&
           (is_long(d, d->run) || (!expr_is_value(d->p, d->nruns, 1) && joins_runs(d)));
}

void micro_kernel(Dot *d, Micro *m) {
    ExprPool *p = d->p;
    const Expr zero = expr_const(p, 0), one = expr_const(p, 1);
    LLVMValueRef start = m->row;
    m->nacc = m->rows * m->nv;
    m->live = dot_in_chunks(d) ? 0 : m->nacc;
    micro_zero(d, m);
    if (expr_is_value(p, d->nruns, 1)) {
        if (d->permuted) m->row = dot_b_row(d, m->b, start, dot_run_row(d, zero));
        micro_run(d, m, m->at);
    } else if (joins_runs(d)) {
        Chunk c;
        Expr most = expr_div(p, expr_const(p, DOT_CHUNK), expr_max(p, one, d->run));
        chunk_open(d, m, &c, d->nruns, expr_max(p, one, most), true);
        micro_runs(d, m, start, c.first, c.size);
        chunk_close(d, m, &c);
    } else {
        micro_runs(d, m, start, zero, d->nruns);
    }
}

/* --- Slices -------------------------------------------------------------------------------
 *
 * Sums that are made of chunks may be walked chunk by chunk, each by all tiles of the block: a
 * slice of a panel, DOT_CHUNK of its rows, stays in the first cache, and what is asked for ahead is
 * the next slice, however long k is. Where the block's part of the left operand turns out not to
 * stay in the cache, a slice is all of k. Every sum is made in the same order.
 *
 * Sub-panels that are narrower than a panel would leave much to the second cache: four rows of sums
 * for each of theirs that is read, in lines shared with neighbours, at a stride. There every sum of
 * several chunks is sliced, and each tile takes all of the slice's sub-panels, whose lines and
 * whose part of the left operand are in the first cache then. AVX2 code on one core of a Zen 4,
 * GFLOP/s, 64 rows, k 768 and 3,072, 512 rows, the same: sub-panels whole 99, 87, 101, 93; copied
 * before many tiles 99, 98, 107, 108; tiles outside of them 104, 91, 107, 89; so in slices 109,
 * 111, 109, 111. Tiles take all sub-panels of Winograd's planes, too, sliced or not: all 16 planes
 * of a panel would come from behind the second cache for each of them. */

/* Panels of which two leave a cache of 1 MB little room; what a block may read again. */
enum { SLICED_BYTES = 320 << 10, SLICED_LEFT = 1 << 20 };

static Expr left_bytes(const Dot *d) {
    return expr_mul(d->p, expr_muli(d->p, d->block, (int64_t)DOT_ROWS * d->bytes), d->kk.size);
}

int64_t dot_right_bytes(const Dot *d) {
    return d->t->quads ? 1 : d->bytes;
}

bool dot_is_deep(const Dot *d) {
    return expr_hint(d->p, d->kk.size) * DOT_PANEL * dot_right_bytes(d) >= SLICED_BYTES;
}

bool dot_may_slice(const Dot *d) {
    int64_t least, most, fewest, tiles;
    if (!dot_in_chunks(d)) return false;
    expr_range(d->p, left_bytes(d), &least, &most);
    expr_range(d->p, d->block, &fewest, &tiles);
    if (tiles <= 1 || d->width < DOT_PANEL) return tiles > 1;
    return d->t->wino || (dot_is_deep(d) && least <= SLICED_LEFT);
}

bool dot_may_go_across(const Dot *d) {
    if (d->width >= DOT_PANEL || d->b[0].mode == DOT_B_MADE) return false;
    return d->t->wino || dot_may_slice(d);
}

void dot_slices_open(Dot *d, Slice *s) {
    Emit *e = d->e;
    ExprPool *p = d->p;
    const Expr one = expr_const(p, 1), join = expr_div(p, expr_const(p, DOT_CHUNK), d->run);
    const Expr all = joins_runs(d) ? d->nruns : d->run;
    s->chunk = joins_runs(d) ? expr_max(p, one, join) : expr_const(p, DOT_CHUNK);
    const Expr stays = expr_le(p, left_bytes(d), expr_const(p, SLICED_LEFT));
    const bool always = d->t->wino || d->across;
    const Expr most = always ? s->chunk : expr_select(p, stays, s->chunk, all);
    const Expr n = expr_ceildiv(p, all, expr_max(p, one, most));
    LLVMValueRef zero = emit_i64(e, 0), by = emit_i64(e, 1);
    s->runs = s->chunks = (EmitLoop){0};
    if (!joins_runs(d)) {
        emit_loop_begin(e, &s->runs, "runs", zero, emit_expr(e, d->nruns), by, false);
        s->run = emit_below(d->e, "run", d->nruns, s->runs.i);
    }
    emit_loop_begin(e, &s->chunks, "slice", zero, emit_expr(e, n), by, false);
    s->first = expr_mul(p, emit_below(d->e, "slice", n, s->chunks.i), most);
    s->size = expr_min(p, most, expr_sub(p, all, s->first));
}

void dot_slices_close(Dot *d, Slice *s) {
    emit_loop_end(d->e, &s->chunks);
    if (!joins_runs(d)) emit_loop_end(d->e, &s->runs);
}

Expr dot_slice_row(Dot *d, const Slice *s) {
    ExprPool *p = d->p;
    if (joins_runs(d)) return dot_run_row(d, s->first);
    return expr_add(p, dot_run_row(d, s->run), expr_mul(p, s->first, d->rows[d->ka.n - 1]));
}

Expr dot_slice_rows(Dot *d, const Slice *s) {
    return joins_runs(d) ? expr_mul(d->p, s->size, d->run) : s->size;
}

void micro_slice(Dot *d, Micro *m, const Slice *s) {
    Chunk c;
    LLVMValueRef left[DOT_ROWS], start = m->row;
    m->live = 0;
    m->row = dot_b_row(d, m->b, start, dot_slice_row(d, s));
    if (!joins_runs(d))
        micro_left(d, m, LLVMBuildAdd(d->e->b, m->at, emit_expr(d->e, s->run), ""), left);
    chunk_open(d, m, &c, s->size, s->chunk, false);
    const Expr first = expr_add(d->p, s->first, c.first);
    if (joins_runs(d))
        micro_runs(d, m, start, first, c.size);
    else
        micro_part(d, m, left, first, c.size);
    chunk_close(d, m, &c);
}
