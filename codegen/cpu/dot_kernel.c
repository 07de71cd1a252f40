/* The micro-kernel, and what becomes of its accumulators. */
#include "codegen/cpu/dot.h"
#include <string.h>

/* One vector of the right operand's current row, widened to type `to`. */
static LLVMValueRef load_b(Dot *d, const DotB *b, LLVMValueRef row, uint32_t j, DType to) {
    Emit *e = d->e;
    DType t = b->mode == DOT_B_COPIED ? d->acc : b->memory;
    LLVMTypeRef mem = emit_mem_type(e, t);
    LLVMValueRef at = emit_gep(e, mem, row, emit_i64(e, (int64_t)(j * d->lanes)));
    LLVMValueRef v = emit_load(e, emit_vec(mem, d->lanes), at, (uint32_t)dtype_bytes(t));
    return emit_cast(e, t, to, v);
}

/* The element at `at` of a run, in all lanes. */
static LLVMValueRef load_a(Dot *d, LLVMValueRef run, LLVMValueRef at) {
    Emit *e = d->e;
    LLVMTypeRef mem = emit_mem_type(e, d->left);
    LLVMValueRef v = emit_load(e, mem, emit_gep(e, mem, run, at), (uint32_t)dtype_bytes(d->left));
    return emit_splat(e, emit_cast(e, d->left, d->acc, v));
}

static LLVMValueRef multiply_add(Dot *d, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
    if (dtype_is_float(d->acc)) return emit_fma(d->e, a, b, c);
    return LLVMBuildAdd(d->e->b, LLVMBuildMul(d->e->b, a, b, ""), c, "");
}

LLVMValueRef dot_panel_start(Dot *d, uint32_t i) {
    Emit *e = d->e;
    const DotB *b = &d->b[i];
    if (d->wino.b) return d->wino.b;
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

/* `rows` rows further on. */
static LLVMValueRef b_row(Dot *d, const DotB *b, LLVMValueRef from, Expr rows) {
    bool copied = b->mode == DOT_B_COPIED;
    LLVMTypeRef mem = emit_mem_type(d->e, copied ? d->acc : b->memory);
    Expr step = copied ? expr_const(d->p, DOT_PANEL) : b->step;
    return emit_gep(d->e, mem, from, emit_expr(d->e, expr_mul(d->p, step, rows)));
}

/* One micro-kernel: `rows` rows of the table from entry `at` on against nv vectors. */
typedef struct Micro {
    uint32_t rows, nv, nacc; /* nacc = rows * nv */
    uint32_t live;           /* accumulators that loops carry: all, or none between parts of sums */
    const DotB *b;
    LLVMValueRef at; /* table entry of the first row's first run */
    LLVMValueRef acc[DOT_ROWS * DOT_MAX_NV];
    LLVMValueRef tile;        /* as Dot.tile, from the first row on */
    LLVMValueRef row;         /* current row of the right operand */
    DotAhead ahead;           /* ... and what is asked for meanwhile */
    uint32_t of;              /* the right operand's number ... */
    const LLVMValueRef *mask; /* ... and columns that there are: where it is made */
} Micro;

/* Over [first, first + n). */
static void micro_open(Dot *d, Micro *m, EmitLoop *l, const char *name, Expr first, Expr n) {
    Emit *e = d->e;
    int64_t least, most;
    expr_range(d->p, n, &least, &most);
    *l = emit_loop(e, m->live + 1 + (m->ahead.at != NULL));
    for (uint32_t i = 0; i < m->live; i++) l->init[i] = m->acc[i];
    l->init[m->live] = m->row;
    if (m->ahead.at) l->init[m->live + 1] = m->ahead.at;
    emit_loop_begin(e, l, name, emit_expr(e, first), emit_expr(e, expr_add(d->p, first, n)),
                    emit_i64(e, 1), least > 0);
    for (uint32_t i = 0; i < m->live; i++) m->acc[i] = l->phi[i];
    m->row = l->phi[m->live];
    if (m->ahead.at) m->ahead.at = l->phi[m->live + 1];
}

static void micro_close(Dot *d, Micro *m, EmitLoop *l) {
    for (uint32_t i = 0; i < m->live; i++) l->next[i] = m->acc[i];
    l->next[m->live] = m->row;
    if (m->ahead.at) l->next[m->live + 1] = m->ahead.at;
    emit_loop_end(d->e, l);
    for (uint32_t i = 0; i < m->live; i++) m->acc[i] = l->out[i];
    m->row = l->out[m->live];
    if (m->ahead.at) m->ahead.at = l->out[m->live + 1];
}

/* Rows of the table point to run `at` of theirs. */
static void micro_left(Dot *d, const Micro *m, LLVMValueRef at, LLVMValueRef *left) {
    Emit *e = d->e;
    LLVMValueRef nruns = emit_expr(e, d->nruns);
    for (uint32_t r = 0; r < m->rows; r++) {
        LLVMValueRef entry = LLVMBuildMul(e->b, nruns, emit_i64(e, r), "");
        entry = LLVMBuildAdd(e->b, at, entry, "");
        left[r] = emit_load(e, e->ptr, emit_gep(e, e->ptr, d->table, entry), 8);
    }
}

/* One step of k: a row of the right operand times one element of every row of the left one. */
static void micro_step(Dot *d, Micro *m, LLVMValueRef *left, LLVMValueRef k) {
    Emit *e = d->e;
    LLVMValueRef b[DOT_MAX_NV];
    for (uint32_t j = 0; j < m->nv; j++) b[j] = load_b(d, m->b, m->row, j, d->acc);
    LLVMValueRef at = k;
    if (!expr_is_value(d->p, d->step, 1)) at = LLVMBuildMul(e->b, k, emit_expr(e, d->step), "");
    for (uint32_t r = 0; r < m->rows; r++) {
        LLVMValueRef all = load_a(d, left[r], at);
        for (uint32_t j = 0; j < m->nv; j++)
            m->acc[r * m->nv + j] = multiply_add(d, all, b[j], m->acc[r * m->nv + j]);
    }
    if (!d->permuted) dot_ask_near(d, &m->ahead, m->of, m->row, m->nv);
    m->row = b_row(d, m->b, m->row, d->rows[d->ka.n - 1]);
    dot_ask(d, &m->ahead);
}

/* Sums of products of neighbouring 16-bit lanes. */
static LLVMValueRef multiply_pairs(Dot *d, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef x[2] = {a, b};
    return emit_intrinsic(d->e, d->e->isa->multiply_pairs, NULL, x, 2);
}

/* x0 y0 x1 y1 ... */
static LLVMValueRef interleave(Dot *d, LLVMValueRef x, LLVMValueRef y) {
    LLVMValueRef lane[2 * 64];
    for (uint32_t i = 0; i < 2 * d->lanes; i++)
        lane[i] = LLVMConstInt(d->e->i32, i / 2 + i % 2 * d->lanes, false);
    return LLVMBuildShuffleVector(d->e->b, x, y, LLVMConstVector(lane, 2 * d->lanes), "");
}

/* Two products more in each lane of acc: elements along k side by side in 32 bits. */
static LLVMValueRef pair_add(Dot *d, LLVMValueRef acc, LLVMValueRef a, LLVMValueRef b) {
    Emit *e = d->e;
    if (!d->bf16) return LLVMBuildAdd(e->b, acc, multiply_pairs(d, a, b), "");
    LLVMTypeRef t = emit_vec(LLVMBFloatTypeInContext(e->ctx), 2 * d->lanes);
    LLVMValueRef x[3] = {acc, LLVMBuildBitCast(e->b, a, t, ""), LLVMBuildBitCast(e->b, b, t, "")};
    return emit_intrinsic(e, e->isa->multiply_bf16, NULL, x, 3);
}

/* Two rows of the right operand, the columns of vector j, as they lie in panels of pairs. */
static LLVMValueRef load_both(Dot *d, const Micro *m, uint32_t j) {
    Emit *e = d->e;
    LLVMValueRef at = emit_gep(e, e->i32, m->row, emit_i64(e, (int64_t)(j * d->lanes)));
    return emit_load(e, emit_vec(e->i32, d->lanes), at, 4);
}

/* Row `half` of the two. */
static LLVMValueRef load_half(Dot *d, const Micro *m, uint32_t j, uint32_t half) {
    Emit *e = d->e;
    const uint32_t by = half ? 0xffff0000 : 16;
    LLVMValueRef x = load_both(d, m, j), c = emit_splat(e, LLVMConstInt(e->i32, by, false));
    x = half ? LLVMBuildAnd(e->b, x, c, "") : LLVMBuildShl(e->b, x, c, "");
    x = LLVMBuildBitCast(e->b, x, emit_vec(LLVMFloatTypeInContext(e->ctx), d->lanes), "");
    return emit_cast(e, DT_f32, d->acc, x);
}

/* `n` steps of k, at 2 * pair: a pair, or the one that is left. */
static void micro_halves(Dot *d, Micro *m, LLVMValueRef *left, LLVMValueRef pair, uint32_t n) {
    Emit *e = d->e;
    LLVMValueRef b[DOT_MAX_NV];
    for (uint32_t half = 0; half < n; half++) {
        for (uint32_t j = 0; j < m->nv; j++) b[j] = load_half(d, m, j, half);
        LLVMValueRef at = LLVMBuildMul(e->b, pair, emit_i64(e, 2), "");
        at = LLVMBuildAdd(e->b, at, emit_i64(e, half), "");
        at = LLVMBuildMul(e->b, at, emit_expr(e, d->step), "");
        for (uint32_t r = 0; r < m->rows; r++) {
            LLVMValueRef all = load_a(d, left[r], at);
            for (uint32_t j = 0; j < m->nv; j++)
                m->acc[r * m->nv + j] = multiply_add(d, all, b[j], m->acc[r * m->nv + j]);
        }
    }
    m->row = emit_gep(e, e->i32, m->row, emit_i64(e, DOT_PANEL));
    dot_ask(d, &m->ahead);
}

/* Two steps of k, which both operands have at 2 * pair. */
static void micro_pair(Dot *d, Micro *m, LLVMValueRef *left, LLVMValueRef pair) {
    Emit *e = d->e;
    LLVMValueRef b[DOT_MAX_NV];
    LLVMTypeRef type = emit_vec(e->i16, 2 * d->lanes);
    Expr step = d->rows[d->ka.n - 1];
    LLVMValueRef second = d->bf16 ? m->row : b_row(d, m->b, m->row, step);
    for (uint32_t j = 0; j < m->nv; j++)
        b[j] = d->bf16 ? load_both(d, m, j)
                       : interleave(d, load_b(d, m->b, m->row, j, DT_i16),
                                    load_b(d, m->b, second, j, DT_i16));
    for (uint32_t r = 0; r < m->rows; r++) {
        LLVMValueRef at = emit_gep(e, e->i32, left[r], pair);
        LLVMValueRef a = emit_splat(e, emit_load(e, e->i32, at, sizeof(int16_t)));
        a = LLVMBuildBitCast(e->b, a, type, "");
        for (uint32_t j = 0; j < m->nv; j++) {
            LLVMValueRef *acc = &m->acc[r * m->nv + j];
            *acc = pair_add(d, *acc, a, b[j]);
        }
    }
    m->row = d->bf16 ? emit_gep(e, e->i32, m->row, emit_i64(e, DOT_PANEL))
                     : b_row(d, m->b, second, step);
    dot_ask(d, &m->ahead);
}

/* `n` steps by themselves, the first at the pointers. */
static void micro_steps(Dot *d, Micro *m, LLVMValueRef *left, Expr n) {
    EmitLoop l;
    micro_open(d, m, &l, "k", expr_const(d->p, 0), n);
    micro_step(d, m, left, l.i);
    micro_close(d, m, &l);
}

/* ... in pairs, then what is left. */
static void micro_pairs(Dot *d, Micro *m, LLVMValueRef *left, Expr n) {
    Emit *e = d->e;
    ExprPool *p = d->p;
    EmitLoop l;
    const Expr two = expr_const(p, 2), rest = expr_mod(p, n, two);
    micro_open(d, m, &l, "pair", expr_const(p, 0), expr_div(p, n, two));
    if (d->pairs)
        micro_pair(d, m, left, l.i);
    else
        micro_halves(d, m, left, l.i, 2);
    micro_close(d, m, &l);
    if (expr_divisor(p, n) % 2 == 0) return;
    LLVMValueRef skip = emit_expr(e, expr_mul(p, expr_sub(p, n, rest), d->step));
    for (uint32_t r = 0; r < m->rows; r++)
        left[r] = emit_gep(e, emit_mem_type(e, d->left), left[r], skip);
    if (!d->t->pairs) {
        micro_steps(d, m, left, rest);
        return;
    }
    micro_open(d, m, &l, "last", expr_const(p, 0), rest);
    micro_halves(d, m, left, l.i, 1);
    micro_close(d, m, &l);
}

/* Step k of a right operand that is made, with columns of vector j bound. */
static void made_step(Dot *d, Micro *m, LLVMValueRef *left, Expr k, uint32_t j) {
    Emit *e = d->e;
    const KVal b = d->t->b[m->of];
    emit_push(e);
    emit_bind(e, d->k->axes[d->kk.axis[0]].sym, k);
    LLVMValueRef v = emit_cast(e, (DType)d->k->ops[b].dtype, d->acc, emit_value_lanes(e, b));
    LLVMValueRef at = emit_expr(e, expr_mul(d->p, k, d->step));
    for (uint32_t r = 0; r < m->rows; r++) {
        LLVMValueRef *acc = &m->acc[r * m->nv + j];
        *acc = multiply_add(d, load_a(d, left[r], at), v, *acc);
    }
    emit_pop(e);
}

/* `n` steps from k on. Columns are bound outside of the steps: what several of them read, a word of
 * weights, their scales, is read once. */
static void made_steps(Dot *d, Micro *m, LLVMValueRef *left, Expr k, uint32_t n) {
    for (uint32_t j = 0; j < m->nv; j++) {
        emit_push(d->e);
        dot_bind_columns(d, expr_addi(d->p, d->n0, (int64_t)(j * d->lanes)), m->mask[j]);
        for (uint32_t i = 0; i < n; i++) made_step(d, m, left, expr_addi(d->p, k, i), j);
        emit_pop(d->e);
    }
}

/* Steps [first, first + n); first is a multiple of DOT_MADE. */
static void made_run(Dot *d, Micro *m, LLVMValueRef *left, Expr first, Expr n) {
    ExprPool *p = d->p;
    EmitLoop l;
    const Expr zero = expr_const(p, 0), unit = expr_const(p, DOT_MADE);
    const Expr whole = expr_div(p, n, unit);
    micro_open(d, m, &l, "word", zero, whole);
    Expr at = expr_muli(p, dot_sym(d, "word", whole, l.i), DOT_MADE);
    made_steps(d, m, left, expr_add(p, first, at), DOT_MADE);
    micro_close(d, m, &l);
    if (expr_divisor(p, n) % DOT_MADE == 0) return;
    const Expr rest = expr_mod(p, n, unit);
    micro_open(d, m, &l, "k", zero, rest);
    at = expr_add(p, expr_muli(p, whole, DOT_MADE), dot_sym(d, "k", unit, l.i));
    made_steps(d, m, left, expr_add(p, first, at), 1);
    micro_close(d, m, &l);
}

/* --- Four steps of k ---------------------------------------------------------------------- */

/* Elements of u8 and i8 along k, four in every 32 bits: what an instruction of AVX512-VNNI
 * multiplies and adds up exactly. Elsewhere the even and the odd ones as 16 bits each, which are
 * multiplied in pairs: the same sums. */
typedef struct Quad {
    LLVMValueRef even, odd;
} Quad;

static LLVMTypeRef pairs_type(Dot *d) {
    return emit_vec(d->e->i16, 2 * d->lanes);
}

static LLVMValueRef splat_pairs(Dot *d, LLVMValueRef x) {
    return LLVMBuildBitCast(d->e->b, emit_splat(d->e, x), pairs_type(d), "");
}

/* The n bytes at `at` as the low ones of 32 bits; nothing behind them is read. */
static LLVMValueRef load_bytes(Dot *d, LLVMValueRef at, uint32_t n) {
    Emit *e = d->e;
    if (n == 4) return emit_load(e, e->i32, at, 1);
    LLVMValueRef all = LLVMConstInt(e->i32, 0, false);
    for (uint32_t i = 0; i < n; i++) {
        LLVMValueRef x = emit_load(e, e->i8, emit_gep(e, e->i8, at, emit_i64(e, i)), 1);
        x = LLVMBuildZExt(e->b, x, e->i32, "");
        x = LLVMBuildShl(e->b, x, LLVMConstInt(e->i32, 8 * i, false), "");
        all = LLVMBuildOr(e->b, all, x, "");
    }
    return all;
}

/* Elements from 4 * quad of a run on, in all lanes; the last 4 - n of them are 0, and not read. */
static Quad quad_left(Dot *d, LLVMValueRef run, LLVMValueRef quad, uint32_t n) {
    Emit *e = d->e;
    LLVMValueRef x = load_bytes(d, emit_gep(e, e->i32, run, quad), n);
    if (e->isa->multiply_quads) return (Quad){emit_splat(e, x), NULL};
    LLVMValueRef low = LLVMConstInt(e->i32, 0x00ff00ff, false);
    LLVMValueRef odd = LLVMBuildLShr(e->b, x, LLVMConstInt(e->i32, 8, false), "");
    return (Quad){splat_pairs(d, LLVMBuildAnd(e->b, x, low, "")),
                  splat_pairs(d, LLVMBuildAnd(e->b, odd, low, ""))};
}

/* Vector j of the right operand's four rows at `row`. */
static Quad quad_right(Dot *d, LLVMValueRef row, uint32_t j) {
    Emit *e = d->e;
    LLVMValueRef at = emit_gep(e, e->i32, row, emit_i64(e, (int64_t)(j * d->lanes)));
    if (e->isa->multiply_quads)
        return (Quad){emit_load(e, emit_vec(e->i32, d->lanes), at, 4), NULL};
    LLVMValueRef x = emit_load(e, pairs_type(d), at, 4);
    LLVMValueRef eight = emit_splat_n(e, LLVMConstInt(e->i16, 8, false), 2 * d->lanes);
    LLVMValueRef high = LLVMBuildShl(e->b, x, eight, "");
    return (Quad){LLVMBuildAShr(e->b, high, eight, ""), LLVMBuildAShr(e->b, x, eight, "")};
}

static LLVMValueRef quad_add(Dot *d, LLVMValueRef acc, Quad a, Quad b) {
    Emit *e = d->e;
    if (e->isa->multiply_quads) {
        LLVMTypeRef bytes = emit_vec(e->i8, 4 * d->lanes);
        LLVMValueRef x[3] = {acc, LLVMBuildBitCast(e->b, a.even, bytes, ""),
                             LLVMBuildBitCast(e->b, b.even, bytes, "")};
        return emit_intrinsic(e, e->isa->multiply_quads, NULL, x, 3);
    }
    acc = LLVMBuildAdd(e->b, acc, multiply_pairs(d, a.even, b.even), "");
    return LLVMBuildAdd(e->b, acc, multiply_pairs(d, a.odd, b.odd), "");
}

/* Four steps of k, of which the last 4 - n are not there. */
static void micro_quad(Dot *d, Micro *m, LLVMValueRef *left, LLVMValueRef quad, uint32_t n) {
    Emit *e = d->e;
    Quad b[DOT_MAX_NV];
    for (uint32_t j = 0; j < m->nv; j++) b[j] = quad_right(d, m->row, j);
    for (uint32_t r = 0; r < m->rows; r++) {
        Quad a = quad_left(d, left[r], quad, n);
        for (uint32_t j = 0; j < m->nv; j++)
            m->acc[r * m->nv + j] = quad_add(d, m->acc[r * m->nv + j], a, b[j]);
    }
    m->row = emit_gep(e, e->i32, m->row, emit_i64(e, DOT_PANEL));
    dot_ask(d, &m->ahead);
}

/* All of a run in fours, and what is left of a run that is the only one. */
static void micro_quads(Dot *d, Micro *m, LLVMValueRef at) {
    Emit *e = d->e;
    EmitLoop quads;
    LLVMValueRef left[DOT_ROWS];
    micro_left(d, m, at, left);
    int64_t run = expr_value(d->p, d->run);
    micro_open(d, m, &quads, "quad", expr_const(d->p, 0), expr_const(d->p, run / 4));
    micro_quad(d, m, left, quads.i, 4);
    micro_close(d, m, &quads);
    if (run % 4) micro_quad(d, m, left, emit_i64(e, run / 4), (uint32_t)(run % 4));
}

/* --- Long sums ------------------------------------------------------------------------- */

/* A part of a sum, from 0, in registers. The sums of the parts before lie in memory meanwhile:
 * there are no registers for both. The rounding error of a sum grows with the root of its length */
typedef struct Chunk {
    EmitLoop l;
    Expr first, size;   /* of the current chunk, in steps */
    LLVMValueRef after; /* i1: there is another chunk behind it; NULL: sums always go to memory */
} Chunk;

static LLVMValueRef load_vector(Dot *d, LLVMValueRef at) {
    return emit_load(d->e, emit_vec(d->elem, d->lanes), at, d->bytes);
}

static LLVMValueRef micro_place(Dot *d, const Micro *m, uint32_t i) {
    uint32_t at = i / m->nv * d->width + i % m->nv * d->lanes;
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
    Expr at = dot_sym(d, "chunk", n, c->l.i);
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
        m->acc[i] = LLVMBuildFAdd(d->e->b, load_vector(d, micro_place(d, m, i)), m->acc[i], "");
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

/* Steps [first, first + n) of run `at`. Pointers begin at the first one: they are not kept from
 * chunk to chunk, and count with k. */
static void micro_part(Dot *d, Micro *m, LLVMValueRef *left0, Expr first, Expr n) {
    LLVMValueRef left[DOT_ROWS];
    for (uint32_t r = 0; r < m->rows; r++) left[r] = left0[r];
    if (m->b->mode == DOT_B_MADE) {
        made_run(d, m, left, first, n);
        return;
    }
    LLVMValueRef skip = emit_expr(d->e, expr_mul(d->p, first, d->step));
    for (uint32_t r = 0; r < m->rows; r++)
        left[r] = emit_gep(d->e, emit_mem_type(d->e, d->left), left[r], skip);
    if (d->pairs || d->t->pairs)
        micro_pairs(d, m, left, n);
    else
        micro_steps(d, m, left, n);
}

/* Whether chunks are of whole runs. Else runs that are long, or not known to be short, are cut, or
 * nothing is: never both, for a chunk's sums leave the registers where it ends. */
static bool joins_runs(const Dot *d) {
    return !is_long(d, d->run) && is_long(d, expr_mul(d->p, d->nruns, d->run));
}

/* Chunks are parts of the whole sum, and not of one run of several. */
static bool in_one_walk(const Dot *d) {
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
        chunk_open(d, m, &c, d->run, expr_const(d->p, DOT_CHUNK), in_one_walk(d));
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
        m->row = b_row(d, m->b, start, dot_run_row(d, dot_sym(d, "run", d->nruns, runs.i)));
    micro_run(d, m, LLVMBuildAdd(e->b, m->at, runs.i, ""));
    micro_close(d, m, &runs);
}

bool dot_in_chunks(const Dot *d) {
    return !d->quads && !d->scaled.size &&
           (is_long(d, d->run) || (!expr_is_value(d->p, d->nruns, 1) && joins_runs(d)));
}

/* Leaves the sums in accumulators; where they are made of chunks of several runs, added to what is
 * in memory. */
static void micro_kernel(Dot *d, Micro *m) {
    ExprPool *p = d->p;
    const Expr zero = expr_const(p, 0), one = expr_const(p, 1);
    LLVMValueRef start = m->row;
    m->nacc = m->rows * m->nv;
    m->live = dot_in_chunks(d) ? 0 : m->nacc;
    micro_zero(d, m);
    if (expr_is_value(p, d->nruns, 1)) {
        if (d->permuted) m->row = b_row(d, m->b, start, dot_run_row(d, zero));
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
 * stay in the cache, a slice is all of k. Every sum is made in the same order. */

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
    if (!dot_in_chunks(d) || d->width < DOT_PANEL) return false;
    expr_range(d->p, left_bytes(d), &least, &most);
    expr_range(d->p, d->block, &fewest, &tiles);
    return tiles > 1 && (d->t->wino || (dot_is_deep(d) && least <= SLICED_LEFT));
}

typedef struct Slice {
    EmitLoop runs, chunks;
    Expr run, first, size; /* steps of one run; or runs, where chunks are of whole runs */
    Expr chunk;            /* ... in parts of so many */
} Slice;

static void slices_open(Dot *d, Slice *s) {
    Emit *e = d->e;
    ExprPool *p = d->p;
    const Expr one = expr_const(p, 1), join = expr_div(p, expr_const(p, DOT_CHUNK), d->run);
    const Expr all = joins_runs(d) ? d->nruns : d->run;
    s->chunk = joins_runs(d) ? expr_max(p, one, join) : expr_const(p, DOT_CHUNK);
    const Expr stays = expr_le(p, left_bytes(d), expr_const(p, SLICED_LEFT));
    const Expr most = d->t->wino ? s->chunk : expr_select(p, stays, s->chunk, all);
    const Expr n = expr_ceildiv(p, all, expr_max(p, one, most));
    LLVMValueRef zero = emit_i64(e, 0), by = emit_i64(e, 1);
    s->runs = s->chunks = (EmitLoop){0};
    if (!joins_runs(d)) {
        emit_loop_begin(e, &s->runs, "runs", zero, emit_expr(e, d->nruns), by, false);
        s->run = dot_sym(d, "run", d->nruns, s->runs.i);
    }
    emit_loop_begin(e, &s->chunks, "slice", zero, emit_expr(e, n), by, false);
    s->first = expr_mul(p, dot_sym(d, "slice", n, s->chunks.i), most);
    s->size = expr_min(p, most, expr_sub(p, all, s->first));
}

static void slices_close(Dot *d, Slice *s) {
    emit_loop_end(d->e, &s->chunks);
    if (!joins_runs(d)) emit_loop_end(d->e, &s->runs);
}

/* The right operand's rows where the slice begins, and how many it has. */
static Expr slice_row(Dot *d, const Slice *s) {
    ExprPool *p = d->p;
    if (joins_runs(d)) return dot_run_row(d, s->first);
    return expr_add(p, dot_run_row(d, s->run), expr_mul(p, s->first, d->rows[d->ka.n - 1]));
}

static Expr slice_rows(Dot *d, const Slice *s) {
    return joins_runs(d) ? expr_mul(d->p, s->size, d->run) : s->size;
}

/* Adds the slice's products to what is in memory. */
static void micro_slice(Dot *d, Micro *m, const Slice *s) {
    Chunk c;
    LLVMValueRef left[DOT_ROWS], start = m->row;
    m->live = 0;
    m->row = b_row(d, m->b, start, slice_row(d, s));
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

/* --- Epilogue ----------------------------------------------------------------------------- */

/* A tile: rows [row, row + rows) of M, known as expression `base`. */
typedef struct Tile {
    uint32_t nv;
    LLVMValueRef mask[DOT_MAX_NV];
    LLVMValueRef entry; /* first row's table entry */
    LLVMValueRef row;   /* counted from the block's first */
    LLVMValueRef rows;
    Expr base;
    LLVMValueRef b[K_MAX_ACC];
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
    dot_bind_columns(d, expr_addi(d->p, d->n0, (int64_t)(j * d->lanes)), t->mask[j]);
}

static void epilogue_registers(Dot *d, const Tile *t, const Micro *m) {
    for (uint32_t j = 0; j < m->nv; j++) {
        emit_push(d->e);
        bind_vector(d, t, j);
        for (uint32_t r = 0; r < m->rows; r++) {
            emit_push(d->e);
            dot_bind(d, &d->m, expr_addi(d->p, t->base, r));
            emit_override(d->e, d->t->acc[0], m->acc[r * m->nv + j]);
            dot_store_all(d);
            emit_pop(d->e);
        }
        emit_pop(d->e);
    }
}

static LLVMValueRef tile_place(Dot *d, uint32_t acc, LLVMValueRef row, uint32_t j) {
    LLVMValueRef at = LLVMBuildMul(d->e->b, row, emit_i64(d->e, d->width), "");
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
        dot_bind(d, &d->m, dot_sym(d, "row", d->m.size, LLVMBuildAdd(e->b, first, l.i, "")));
        for (uint32_t i = 0; i < d->t->nacc; i++) {
            LLVMValueRef row = LLVMBuildAdd(e->b, tile_sums(d, t), l.i, "");
            LLVMValueRef from = tile_place(d, i, row, j);
            emit_override(e, d->t->acc[i], load_vector(d, from));
        }
        dot_store_all(d);
        emit_loop_end(e, &l);
        emit_pop(e);
    }
}

void dot_epilogue(Dot *d, uint32_t nv, const LLVMValueRef *mask, LLVMValueRef first,
                  LLVMValueRef rows) {
    Tile t = {.nv = nv, .rows = rows, .base = dot_sym(d, "row", d->m.size, first)};
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
            if (stays && !m.live) m.acc[v] = load_vector(d, micro_place(d, &m, v));
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
    int64_t least, most;
    expr_range(d->p, d->n.size, &least, &most);
    const bool last = (t->nv < d->nv || t->mask[0]) && least > d->width;
    return last && t->nv > 1 ? 0 : counts & 1u << DOT_ROWS;
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
    whole &= dot_in_chunks(d) && !in_one_walk(d);
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

/* Rows [row, row + t->rows), counted from the block's first row. */
static void tile_at(Dot *d, Tile *t, LLVMValueRef row, uint32_t counts) {
    Emit *e = d->e;
    t->row = row;
    t->entry = LLVMBuildMul(e->b, row, emit_expr(e, d->nruns), "");
    if (d->wino.entry) t->entry = LLVMBuildAdd(e->b, t->entry, d->wino.entry, "");
    t->base = dot_sym(d, "row", d->m.size, LLVMBuildAdd(e->b, d->row0, row, ""));
    for (uint32_t i = 0; i < d->t->nacc; i++) {
        LLVMValueRef from = t->b[i];
        if (t->slice) from = b_row(d, &d->b[i], from, slice_row(d, t->slice));
        const Expr rows = t->slice ? slice_rows(d, t->slice) : d->kk.size;
        t->ahead[i] = t->finish ? (DotAhead){0} : dot_ahead(d, i, from, rows, t->turn);
    }
    tile_any(d, t, counts);
}

/* Rows of the first part of a tile, and how many parts. Most tiles are whole: that they are is
 * a branch, which is predicted, and no condition that the sums wait for. */
static LLVMValueRef first_part(Emit *e, LLVMValueRef rows, bool whole, LLVMValueRef *parts) {
    EmitIf fewer = {0};
    LLVMValueRef one = emit_i64(e, 1), all = emit_i64(e, DOT_ROWS);
    if (whole) emit_if_begin(e, &fewer, LLVMBuildICmp(e->b, LLVMIntSLT, rows, all, ""));
    LLVMValueRef many = LLVMBuildICmp(e->b, LLVMIntSGT, rows, emit_i64(e, DOT_PART), "");
    LLVMValueRef half = LLVMBuildLShr(e->b, LLVMBuildAdd(e->b, rows, one, ""), one, "");
    half = LLVMBuildSelect(e->b, many, half, rows, "");
    *parts = LLVMBuildSelect(e->b, many, emit_i64(e, 2), one, "");
    if (!whole) return half;
    LLVMBasicBlockRef from[2] = {fewer.pre, LLVMGetInsertBlock(e->b)};
    LLVMValueRef rows_of[2] = {all, half}, parts_of[2] = {one, *parts};
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
    if (!cut) {
        t->rows = rows;
        tile_at(d, t, row, whole);
        return;
    }
    LLVMValueRef one = emit_i64(e, 1), zero = emit_i64(e, 0), two = emit_i64(e, 2);
    const LLVMValueRef turn = whole ? NULL : LLVMBuildMul(e->b, t->turn.at, two, "");
    if (turn) t->turn.of = LLVMBuildMul(e->b, t->turn.of, two, "");
    LLVMValueRef parts, first = first_part(e, rows, whole, &parts);
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

/* Of a tile: a panel is walked part by part, and in each all tiles of the span; a slice, which is
 * all columns wide, by the tiles of the block. */
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
    return (DotTurn){LLVMBuildAdd(e->b, LLVMBuildMul(e->b, part, tiles, ""), here, ""),
                     LLVMBuildMul(e->b, tiles, emit_i64(e, parts), "")};
}

void dot_column_masks(Dot *d, uint32_t nv, bool masked, LLVMValueRef *mask) {
    for (uint32_t j = 0; j < nv; j++) {
        mask[j] = NULL;
        if (!masked) continue;
        Expr base = expr_addi(d->p, d->n0, (int64_t)(j * d->lanes));
        mask[j] = emit_lanes_below(d->e, emit_expr(d->e, expr_sub(d->p, d->n.size, base)));
    }
}

static void all_tiles(Dot *d, Tile *t) {
    Emit *e = d->e;
    EmitLoop l = {0};
    emit_loop_begin(e, &l, "tile", d->tile0, d->tile1, emit_i64(e, 1), true);
    t->turn = turn_of(d, t, l.i);
    LLVMValueRef row = dot_first_row(d, l.i);
    LLVMValueRef end = dot_end_row(d, LLVMBuildAdd(e->b, l.i, emit_i64(e, 1), ""));
    LLVMValueRef rows = LLVMBuildSub(e->b, end, row, "");
    row = LLVMBuildSub(e->b, row, d->row0, "");
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
    slices_open(d, &s);
    t->slice = &s;
    all_tiles(d, t);
    slices_close(d, &s);
    t->slice = NULL;
    t->finish = true;
    if (!d->wino.to) all_tiles(d, t);
}

void dot_tiles(Dot *d, uint32_t nv, bool masked) {
    Tile t = {.nv = nv};
    dot_column_masks(d, nv, masked, t.mask);
    for (uint32_t i = 0; i < d->t->nacc; i++) t.b[i] = dot_panel_start(d, i);
    if (dot_may_slice(d) && d->b[0].mode != DOT_B_MADE)
        in_slices(d, &t);
    else
        all_tiles(d, &t);
}
