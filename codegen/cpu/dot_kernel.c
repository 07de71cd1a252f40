/* The micro-kernel, and what becomes of its accumulators. */
#include "codegen/cpu/dot.h"

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

/* First element of the right operand's sub-panel: row 0, column n0. */
static LLVMValueRef b_start(Dot *d, uint32_t i) {
    Emit *e = d->e;
    const DotB *b = &d->b[i];
    if (d->wino.b) return d->wino.b;
    if (b->mode == DOT_B_MADE) return LLVMConstNull(e->ptr);
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
    const DotB *b;
    LLVMValueRef at; /* table entry of the first row's first run */
    LLVMValueRef acc[DOT_ROWS * DOT_MAX_NV];
    LLVMValueRef row;         /* current row of the right operand */
    DotAhead ahead;           /* ... and what is asked for meanwhile */
    uint32_t of;              /* the right operand's number ... */
    const LLVMValueRef *mask; /* ... and columns that there are: where it is made */
} Micro;

static void micro_open(Dot *d, Micro *m, EmitLoop *l, const char *name, LLVMValueRef n) {
    *l = emit_loop(d->e, m->nacc + 1 + (m->ahead.at != NULL));
    for (uint32_t i = 0; i < m->nacc; i++) l->init[i] = m->acc[i];
    l->init[m->nacc] = m->row;
    if (m->ahead.at) l->init[m->nacc + 1] = m->ahead.at;
    emit_loop_begin(d->e, l, name, emit_i64(d->e, 0), n, emit_i64(d->e, 1), false);
    for (uint32_t i = 0; i < m->nacc; i++) m->acc[i] = l->phi[i];
    m->row = l->phi[m->nacc];
    if (m->ahead.at) m->ahead.at = l->phi[m->nacc + 1];
}

static void micro_close(Dot *d, Micro *m, EmitLoop *l) {
    for (uint32_t i = 0; i < m->nacc; i++) l->next[i] = m->acc[i];
    l->next[m->nacc] = m->row;
    if (m->ahead.at) l->next[m->nacc + 1] = m->ahead.at;
    emit_loop_end(d->e, l);
    for (uint32_t i = 0; i < m->nacc; i++) m->acc[i] = l->out[i];
    m->row = l->out[m->nacc];
    if (m->ahead.at) m->ahead.at = l->out[m->nacc + 1];
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

/* Two steps of k, which both operands have at 2 * pair. */
static void micro_pair(Dot *d, Micro *m, LLVMValueRef *left, LLVMValueRef pair) {
    Emit *e = d->e;
    LLVMValueRef b[DOT_MAX_NV];
    LLVMTypeRef type = emit_vec(e->i16, 2 * d->lanes);
    DType t = d->bf16 ? DT_bf16 : DT_i16;
    Expr step = d->rows[d->ka.n - 1];
    LLVMValueRef second = b_row(d, m->b, m->row, step);
    for (uint32_t j = 0; j < m->nv; j++)
        b[j] = interleave(d, load_b(d, m->b, m->row, j, t), load_b(d, m->b, second, j, t));
    for (uint32_t r = 0; r < m->rows; r++) {
        LLVMValueRef at = emit_gep(e, e->i32, left[r], pair);
        LLVMValueRef a = emit_splat(e, emit_load(e, e->i32, at, sizeof(int16_t)));
        a = LLVMBuildBitCast(e->b, a, type, "");
        for (uint32_t j = 0; j < m->nv; j++) {
            LLVMValueRef *acc = &m->acc[r * m->nv + j];
            *acc = pair_add(d, *acc, a, b[j]);
        }
    }
    m->row = b_row(d, m->b, second, step);
    dot_ask(d, &m->ahead);
}

/* Steps [first, first + n) by themselves. */
static void micro_steps(Dot *d, Micro *m, LLVMValueRef *left, Expr first, Expr n) {
    Emit *e = d->e;
    EmitLoop l;
    micro_open(d, m, &l, "k", emit_expr(e, n));
    micro_step(d, m, left, LLVMBuildAdd(e->b, emit_expr(e, first), l.i, ""));
    micro_close(d, m, &l);
}

/* ... in pairs, then what is left; first is even. */
static void micro_pairs(Dot *d, Micro *m, LLVMValueRef *left, Expr first, Expr n) {
    Emit *e = d->e;
    ExprPool *p = d->p;
    EmitLoop l;
    const Expr two = expr_const(p, 2), rest = expr_mod(p, n, two);
    micro_open(d, m, &l, "pair", emit_expr(e, expr_div(p, n, two)));
    micro_pair(d, m, left, LLVMBuildAdd(e->b, emit_expr(e, expr_div(p, first, two)), l.i, ""));
    micro_close(d, m, &l);
    if (expr_divisor(p, n) % 2)
        micro_steps(d, m, left, expr_add(p, first, expr_sub(p, n, rest)), rest);
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
    const Expr unit = expr_const(p, DOT_MADE), whole = expr_div(p, n, unit);
    micro_open(d, m, &l, "word", emit_expr(d->e, whole));
    Expr at = expr_muli(p, dot_sym(d, "word", whole, l.i), DOT_MADE);
    made_steps(d, m, left, expr_add(p, first, at), DOT_MADE);
    micro_close(d, m, &l);
    if (expr_divisor(p, n) % DOT_MADE == 0) return;
    const Expr rest = expr_mod(p, n, unit);
    micro_open(d, m, &l, "k", emit_expr(d->e, rest));
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
static void micro_quads(Dot *d, Micro *m, LLVMValueRef *left) {
    Emit *e = d->e;
    EmitLoop quads;
    int64_t run = expr_value(d->p, d->run);
    micro_open(d, m, &quads, "quad", emit_i64(e, run / 4));
    micro_quad(d, m, left, quads.i, 4);
    micro_close(d, m, &quads);
    if (run % 4) micro_quad(d, m, left, emit_i64(e, run / 4), (uint32_t)(run % 4));
}

/* --- Long sums ------------------------------------------------------------------------- */

/* A part of a sum, from 0; the sums of the parts before wait in memory while it has the registers:
 * the rounding error of a sum grows with the root of its length. */
typedef struct Chunk {
    EmitLoop l;
    Expr first, size; /* of the current chunk, in steps */
    LLVMValueRef total[DOT_ROWS * DOT_MAX_NV];
} Chunk;

/* `steps` steps, at most `most` a chunk. */
static void chunk_open(Dot *d, Micro *m, Chunk *c, Expr steps, Expr most) {
    ExprPool *p = d->p;
    const Expr n = expr_ceildiv(p, steps, most);
    micro_open(d, m, &c->l, "chunk", emit_expr(d->e, n));
    c->first = expr_mul(p, dot_sym(d, "chunk", n, c->l.i), most);
    c->size = expr_min(p, most, expr_sub(p, steps, c->first));
    for (uint32_t i = 0; i < m->nacc; i++) {
        c->total[i] = m->acc[i];
        m->acc[i] = LLVMConstNull(LLVMTypeOf(c->total[i]));
    }
}

static void chunk_close(Dot *d, Micro *m, Chunk *c) {
    for (uint32_t i = 0; i < m->nacc; i++)
        m->acc[i] = LLVMBuildFAdd(d->e->b, c->total[i], m->acc[i], "");
    micro_close(d, m, &c->l);
}

/* A sum that is a little longer than a chunk stays whole. */
static bool is_long(const Dot *d, Expr size) {
    int64_t n;
    return dtype_is_float(d->acc) && !(expr_is_const(d->p, size, &n) && n <= DOT_CHUNK * 5 / 4);
}

/* Steps [first, first + n) of a run. */
static void micro_part(Dot *d, Micro *m, LLVMValueRef *left, Expr first, Expr n) {
    if (m->b->mode == DOT_B_MADE)
        made_run(d, m, left, first, n);
    else if (d->pairs)
        micro_pairs(d, m, left, first, n);
    else
        micro_steps(d, m, left, first, n);
}

/* All of a run. */
static void micro_run(Dot *d, Micro *m, LLVMValueRef *left) {
    Chunk c;
    if (d->quads) {
        micro_quads(d, m, left);
    } else if (!is_long(d, d->run)) {
        micro_part(d, m, left, expr_const(d->p, 0), d->run);
    } else {
        chunk_open(d, m, &c, d->run, expr_const(d->p, DOT_CHUNK));
        micro_part(d, m, left, c.first, c.size);
        chunk_close(d, m, &c);
    }
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

/* Runs [first, first + n). */
static void micro_runs(Dot *d, Micro *m, LLVMValueRef start, Expr first, Expr n) {
    Emit *e = d->e;
    EmitLoop runs;
    LLVMValueRef left[DOT_ROWS];
    micro_open(d, m, &runs, "runs", emit_expr(e, n));
    LLVMValueRef run = LLVMBuildAdd(e->b, emit_expr(e, first), runs.i, "");
    if (d->permuted)
        m->row = b_row(d, m->b, start, dot_run_row(d, dot_sym(d, "run", d->nruns, run)));
    micro_left(d, m, LLVMBuildAdd(e->b, m->at, run, ""), left);
    micro_run(d, m, left);
    micro_close(d, m, &runs);
}

/* Whether chunks are of whole runs. Else runs that are known to be long are cut, or nothing is. */
static bool joins_runs(const Dot *d) {
    int64_t run;
    if (expr_is_const(d->p, d->run, &run) && is_long(d, d->run)) return false;
    return is_long(d, expr_mul(d->p, d->nruns, d->run));
}

static void micro_kernel(Dot *d, Micro *m) {
    ExprPool *p = d->p;
    const Expr zero = expr_const(p, 0), one = expr_const(p, 1);
    LLVMValueRef left[DOT_ROWS], start = m->row;
    m->nacc = m->rows * m->nv;
    for (uint32_t i = 0; i < m->nacc; i++) m->acc[i] = LLVMConstNull(emit_vec(d->elem, d->lanes));
    if (expr_is_value(p, d->nruns, 1)) {
        if (d->permuted) m->row = b_row(d, m->b, start, dot_run_row(d, zero));
        micro_left(d, m, m->at, left);
        micro_run(d, m, left);
    } else if (joins_runs(d)) {
        Chunk c;
        Expr most = expr_div(p, expr_const(p, DOT_CHUNK), expr_max(p, one, d->run));
        chunk_open(d, m, &c, d->nruns, expr_max(p, one, most));
        micro_runs(d, m, start, c.first, c.size);
        chunk_close(d, m, &c);
    } else {
        micro_runs(d, m, start, zero, d->nruns);
    }
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
} Tile;

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
            LLVMValueRef from = tile_place(d, i, l.i, j);
            emit_override(e, d->t->acc[i],
                          emit_load(e, emit_vec(d->elem, d->lanes), from, d->bytes));
        }
        dot_store_all(d);
        emit_loop_end(e, &l);
        emit_pop(e);
    }
}

/* --- Tiles -------------------------------------------------------------------------------- */

static void tile_of_rows(Dot *d, const Tile *t, uint32_t rows) {
    for (uint32_t i = 0; i < d->t->nacc; i++) {
        Micro m = {.rows = rows, .nv = t->nv, .b = &d->b[i], .at = t->entry, .row = t->b[i]};
        m.of = i;
        m.mask = t->mask;
        m.ahead = t->ahead[i];
        micro_kernel(d, &m);
        if (d->in_registers && !d->wino.to) {
            epilogue_registers(d, t, &m);
            continue;
        }
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t j = 0; j < t->nv; j++) {
                LLVMValueRef row = emit_i64(d->e, r);
                if (d->wino.to) row = LLVMBuildAdd(d->e->b, t->row, row, "");
                LLVMValueRef to = tile_place(d, i, row, j);
                emit_store_ptr(d->e, m.acc[r * t->nv + j], to, d->bytes);
            }
    }
}

/* Bit r: some tile has r rows. */
static uint32_t row_counts(Dot *d) {
    int64_t m;
    if (!expr_is_const(d->p, d->m.size, &m)) return (2u << d->mr) - 2;
    int64_t tiles = (m + DOT_ROWS - 1) / DOT_ROWS, low = m / tiles, more = m % tiles;
    uint32_t set = more < tiles ? 1u << low : 0;
    if (more) set |= 2u << low;
    if (d->mr == DOT_ROWS) return set;
    uint32_t halves = 0;
    for (uint32_t r = 1; r <= DOT_ROWS; r++)
        if (set >> r & 1) halves |= 1u << (r + 1) / 2 | 1u << r / 2;
    return halves & ~1u;
}

static void tile_any(Dot *d, const Tile *t) {
    Emit *e = d->e;
    uint32_t set = row_counts(d);
    bool one = (set & (set - 1)) == 0;
    for (uint32_t r = 1; r <= d->mr; r++) {
        EmitIf is;
        if (!(set >> r & 1)) continue;
        if (!one)
            emit_if_begin(e, &is, LLVMBuildICmp(e->b, LLVMIntEQ, t->rows, emit_i64(e, r), ""));
        tile_of_rows(d, t, r);
        if (!one) emit_if_end(e, &is);
    }
    if (!d->in_registers && !d->wino.to) epilogue_memory(d, t);
}

/* Rows [row, row + t->rows), counted from the block's first row. */
static void tile_at(Dot *d, Tile *t, LLVMValueRef row) {
    Emit *e = d->e;
    t->row = row;
    t->entry = LLVMBuildMul(e->b, row, emit_expr(e, d->nruns), "");
    if (d->wino.entry) t->entry = LLVMBuildAdd(e->b, t->entry, d->wino.entry, "");
    t->base = dot_sym(d, "row", d->m.size, LLVMBuildAdd(e->b, d->row0, row, ""));
    for (uint32_t i = 0; i < d->t->nacc; i++) t->ahead[i] = dot_ahead(d, i, t->b[i], t->turn);
    tile_any(d, t);
}

/* Tiles of fewer rows than M's unit: the unit is cut into two nearly equal parts. */
static void tile_halves(Dot *d, Tile *t, LLVMValueRef row, LLVMValueRef rows) {
    Emit *e = d->e;
    EmitLoop l = {0};
    LLVMValueRef one = emit_i64(e, 1), zero = emit_i64(e, 0), two = emit_i64(e, 2);
    LLVMValueRef many = LLVMBuildICmp(e->b, LLVMIntSGT, rows, one, "");
    LLVMValueRef first = LLVMBuildLShr(e->b, LLVMBuildAdd(e->b, rows, one, ""), one, "");
    const LLVMValueRef turn = LLVMBuildMul(e->b, t->turn.at, two, "");
    t->turn.of = LLVMBuildMul(e->b, t->turn.of, two, "");
    emit_loop_begin(e, &l, "half", zero, LLVMBuildSelect(e->b, many, two, one, ""), one, true);
    LLVMValueRef second = LLVMBuildICmp(e->b, LLVMIntNE, l.i, zero, "");
    t->rows = LLVMBuildSelect(e->b, second, LLVMBuildSub(e->b, rows, first, ""), first, "");
    LLVMValueRef skip = LLVMBuildSelect(e->b, second, first, zero, "");
    t->turn.at = LLVMBuildAdd(e->b, turn, l.i, "");
    tile_at(d, t, LLVMBuildAdd(e->b, row, skip, ""));
    emit_loop_end(e, &l);
}

/* Of a tile: a panel is walked part by part, and in each all tiles of the span. */
static DotTurn turn_of(Dot *d, LLVMValueRef tile) {
    Emit *e = d->e;
    const int64_t parts = DOT_PANEL / d->width;
    LLVMValueRef tiles = LLVMBuildSub(e->b, d->span1, d->span0, "");
    LLVMValueRef here = LLVMBuildSub(e->b, tile, d->span0, "");
    if (parts == 1) return (DotTurn){here, tiles};
    Expr column = expr_mod(d->p, d->n0, expr_const(d->p, DOT_PANEL));
    LLVMValueRef part = emit_expr(e, expr_div(d->p, column, expr_const(d->p, d->width)));
    return (DotTurn){LLVMBuildAdd(e->b, LLVMBuildMul(e->b, part, tiles, ""), here, ""),
                     LLVMBuildMul(e->b, tiles, emit_i64(e, parts), "")};
}

void dot_tiles(Dot *d, uint32_t nv, bool masked) {
    Emit *e = d->e;
    EmitLoop l = {0};
    Tile t = {.nv = nv};
    for (uint32_t j = 0; masked && j < nv; j++) {
        Expr base = expr_addi(d->p, d->n0, (int64_t)(j * d->lanes));
        t.mask[j] = emit_lanes_below(e, emit_expr(e, expr_sub(d->p, d->n.size, base)));
    }
    for (uint32_t i = 0; i < d->t->nacc; i++) t.b[i] = b_start(d, i);
    emit_loop_begin(e, &l, "tile", d->tile0, d->tile1, emit_i64(e, 1), true);
    t.turn = turn_of(d, l.i);
    LLVMValueRef row = dot_first_row(d, l.i);
    LLVMValueRef end = dot_first_row(d, LLVMBuildAdd(e->b, l.i, emit_i64(e, 1), ""));
    LLVMValueRef rows = LLVMBuildSub(e->b, end, row, "");
    row = LLVMBuildSub(e->b, row, d->row0, "");
    if (d->mr == DOT_ROWS) {
        t.rows = rows;
        tile_at(d, &t, row);
    } else {
        tile_halves(d, &t, row, rows);
    }
    emit_loop_end(e, &l);
}
