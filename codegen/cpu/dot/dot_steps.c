/* The micro-kernel: steps of k, one by one, in pairs, made, in fours. */
#include "codegen/cpu/dot/dot_micro.h"

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

LLVMValueRef dot_b_row(Dot *d, const DotB *b, LLVMValueRef from, Expr rows) {
    bool copied = b->mode == DOT_B_COPIED;
    LLVMTypeRef mem = emit_mem_type(d->e, copied ? d->acc : b->memory);
    Expr step = copied ? expr_const(d->p, DOT_PANEL) : b->step;
    return emit_gep(d->e, mem, from, emit_expr(d->e, expr_mul(d->p, step, rows)));
}

void micro_open(Dot *d, Micro *m, EmitLoop *l, const char *name, Expr first, Expr n) {
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

void micro_close(Dot *d, Micro *m, EmitLoop *l) {
    for (uint32_t i = 0; i < m->live; i++) l->next[i] = m->acc[i];
    l->next[m->live] = m->row;
    if (m->ahead.at) l->next[m->live + 1] = m->ahead.at;
    emit_loop_end(d->e, l);
    for (uint32_t i = 0; i < m->live; i++) m->acc[i] = l->out[i];
    m->row = l->out[m->live];
    if (m->ahead.at) m->ahead.at = l->out[m->live + 1];
}

/* Rows of the table point to run `at` of theirs. */
void micro_left(Dot *d, const Micro *m, LLVMValueRef at, LLVMValueRef *left) {
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
    m->row = dot_b_row(d, m->b, m->row, d->rows[d->ka.n - 1]);
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
    LLVMValueRef second = d->bf16 ? m->row : dot_b_row(d, m->b, m->row, step);
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
                     : dot_b_row(d, m->b, second, step);
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
    Expr at = expr_muli(p, emit_below(d->e, "word", whole, l.i), DOT_MADE);
    made_steps(d, m, left, expr_add(p, first, at), DOT_MADE);
    micro_close(d, m, &l);
    if (expr_divisor(p, n) % DOT_MADE == 0) return;
    const Expr rest = expr_mod(p, n, unit);
    micro_open(d, m, &l, "k", zero, rest);
    at = expr_add(p, expr_muli(p, whole, DOT_MADE), emit_below(d->e, "k", unit, l.i));
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
    if (j == 1 && d->second) at = emit_gep(e, e->i8, row, d->apart);
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

/* Four steps of k, of which the last 4 - n are not there, added to sums from m->acc[to] on. */
static void micro_quad(Dot *d, Micro *m, LLVMValueRef *left, LLVMValueRef quad, uint32_t n,
                       uint32_t to) {
    Emit *e = d->e;
    Quad b[DOT_MAX_NV];
    for (uint32_t j = 0; j < m->nv; j++) b[j] = quad_right(d, m->row, j);
    for (uint32_t r = 0; r < m->rows; r++) {
        Quad a = quad_left(d, left[r], quad, n);
        for (uint32_t j = 0; j < m->nv; j++) {
            LLVMValueRef *acc = &m->acc[to + r * m->nv + j];
            *acc = quad_add(d, *acc, a, b[j]);
        }
    }
    m->row = emit_gep(e, e->i32, m->row, emit_i64(e, DOT_PANEL));
    dot_ask(d, &m->ahead);
}

/* Sums of few rows are too few to fill the pipes: each is taken as so many, which are exact. */
static uint32_t quad_ways(const Micro *m, int64_t quads) {
    uint32_t ways = 1;
    while (ways < 4 && 2 * ways * m->nacc <= 12 && quads % (2 * ways) == 0) ways *= 2;
    return ways;
}

/* All of a run in fours, and what is left of a run that is the only one. */
void micro_quads(Dot *d, Micro *m, LLVMValueRef at) {
    Emit *e = d->e;
    EmitLoop quads;
    LLVMValueRef left[DOT_ROWS];
    micro_left(d, m, at, left);
    const int64_t run = expr_value(d->p, d->run);
    const uint32_t n = m->nacc, ways = quad_ways(m, run / 4);
    for (uint32_t i = n; i < ways * n; i++) m->acc[i] = LLVMConstNull(LLVMTypeOf(m->acc[0]));
    m->live = ways * n;
    micro_open(d, m, &quads, "quad", expr_const(d->p, 0), expr_const(d->p, run / 4 / ways));
    LLVMValueRef first = LLVMBuildMul(e->b, quads.i, emit_i64(e, ways), "");
    for (uint32_t w = 0; w < ways; w++)
        micro_quad(d, m, left, LLVMBuildAdd(e->b, first, emit_i64(e, w), ""), 4, w * n);
    micro_close(d, m, &quads);
    for (uint32_t i = n; i < ways * n; i++)
        m->acc[i % n] = LLVMBuildAdd(e->b, m->acc[i % n], m->acc[i], "");
    m->live = n;
    if (run % 4) micro_quad(d, m, left, emit_i64(e, run / 4), (uint32_t)(run % 4), 0);
}

/* Steps [first, first + n) of run `at`. Pointers begin at the first one: they are not kept from
 * chunk to chunk, and count with k. */
void micro_part(Dot *d, Micro *m, LLVMValueRef *left0, Expr first, Expr n) {
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
