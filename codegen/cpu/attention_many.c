/* Attention with queries over lanes. */
#include "codegen/cpu/attention.h"
#include "codegen/emit/shuffle.h"
#include <math.h>

void attn_transpose(Attn *t, KVal v, uint32_t sym, Expr size, LLVMValueRef to) {
    Emit *e = t->e;
    EmitLoop qs = {0}, ds = {0};
    LLVMValueRef zero = emit_i64(e, 0), lanes = emit_i64(e, t->lanes), end = emit_expr(e, size);
    bool whole = expr_divisor(t->p, size) % t->lanes == 0;
    emit_loop_begin(e, &qs, "q", zero, t->vectors, emit_i64(e, 1), true);
    LLVMValueRef column = attn_mul(t, qs.i, lanes);
    Expr base = emit_below(t->e, "i", t->ni, LLVMBuildAdd(e->b, t->query0, column, ""));
    emit_loop_begin(e, &ds, "d", zero, end, lanes, false);
    LLVMValueRef left = LLVMBuildSub(e->b, end, ds.i, ""), x[64];
    Expr d = emit_below(t->e, "d", size, ds.i), last = expr_addi(t->p, t->ni, -1);
    LLVMValueRef mask = whole ? NULL : emit_lanes_below(e, left);
    for (uint32_t r = 0; r < t->lanes; r++) {
        emit_push(e);
        emit_bind(e, t->sym_i, expr_min(t->p, expr_addi(t->p, base, r), last));
        emit_bind_lanes(e, sym, d, mask, true);
        x[r] = emit_value_lanes(e, v);
        emit_pop(e);
    }
    shuffle_transpose(e, x, t->lanes);
    LLVMValueRef row = LLVMBuildAdd(e->b, attn_mul(t, ds.i, emit_i64(e, t->nq)), column, "");
    for (uint32_t r = 0; r < t->lanes; r++)
        attn_store(t, x[r], to, attn_add(t, row, (int64_t)(r * t->nq)));
    emit_loop_end(e, &ds);
    emit_loop_end(e, &qs);
}

void attn_clear_out(Attn *t) {
    Emit *e = t->e;
    EmitLoop o = {0};
    LLVMValueRef zero = emit_i64(e, 0), lanes = emit_i64(e, t->lanes);
    LLVMValueRef rows = attn_add(t, attn_mul(t, t->vectors, lanes), t->out_rows - 1);
    LLVMValueRef size = attn_mul(t, rows, emit_expr(e, t->vr.padded));
    emit_loop_begin(e, &o, "clear", zero, size, lanes, false);
    attn_store(t, LLVMConstNull(t->vec), t->out, o.i);
    emit_loop_end(e, &o);
}

/* Before the first block of keys. */
static void reset(Attn *t) {
    Emit *e = t->e;
    LLVMValueRef none = emit_f(e, t->vec, -INFINITY), nothing = LLVMConstNull(t->vec);
    for (uint32_t v = 0; v < t->nv; v++) {
        attn_store(t, none, t->max, emit_i64(e, (int64_t)(v * t->lanes)));
        attn_store(t, nothing, t->sum, emit_i64(e, (int64_t)(v * t->lanes)));
    }
    attn_clear_out(t);
}

/* --- Scores ------------------------------------------------------------------------------- */

/* acc += products of elements [from, to) of the rows. */
static void add_products(Attn *t, const AttnTile *s, LLVMValueRef *key, LLVMValueRef qt,
                         LLVMValueRef from, LLVMValueRef to, LLVMValueRef *acc) {
    Emit *e = t->e;
    EmitLoop l = emit_loop(e, s->rows * s->nv);
    for (uint32_t i = 0; i < l.n; i++) l.init[i] = acc[i];
    emit_loop_begin(e, &l, "d", from, to, emit_i64(e, 1), true);
    LLVMValueRef q[4], row = attn_mul(t, l.i, emit_i64(e, t->nq));
    for (uint32_t v = 0; v < s->nv; v++)
        q[v] = attn_load(t, qt, attn_add(t, row, (int64_t)(v * t->lanes)));
    for (uint32_t r = 0; r < s->rows; r++) {
        LLVMValueRef x = emit_splat(e, emit_load(e, t->elem, attn_at(t, key[r], l.i), t->bytes));
        for (uint32_t v = 0; v < s->nv; v++)
            l.next[r * s->nv + v] = emit_fma(e, x, q[v], l.phi[r * s->nv + v]);
    }
    emit_loop_end(e, &l);
    for (uint32_t i = 0; i < l.n; i++) acc[i] = l.out[i];
}

/* ... products of elements [from, to), summed by themselves. */
static void add_chunk(Attn *t, const AttnTile *s, LLVMValueRef *key, LLVMValueRef qt,
                      LLVMValueRef from, LLVMValueRef to, LLVMValueRef *acc) {
    LLVMValueRef sums[32];
    const uint32_t n = s->rows * s->nv;
    for (uint32_t i = 0; i < n; i++) sums[i] = LLVMConstNull(t->vec);
    add_products(t, s, key, qt, from, to, sums);
    for (uint32_t i = 0; i < n; i++) acc[i] = LLVMBuildFAdd(t->e->b, acc[i], sums[i], "");
}

void attn_products(Attn *t, const AttnTile *s, const AttnRows *rows, LLVMValueRef qt, Expr size,
                   LLVMValueRef *acc) {
    Emit *e = t->e;
    const uint32_t chunk = attn_chunk(t);
    EmitLoop l = emit_loop(e, s->rows * s->nv);
    LLVMValueRef key[8], step = emit_i64(e, chunk), end = emit_expr(e, size);
    int64_t n;
    for (uint32_t r = 0; r < s->rows; r++) key[r] = attn_row(t, rows, s->row[r]);
    for (uint32_t i = 0; i < l.n; i++) acc[i] = LLVMConstNull(t->vec);
    const bool known = expr_is_const(t->p, size, &n);
    if (known && n <= chunk) {
        add_products(t, s, key, qt, emit_i64(e, 0), end, acc);
        return;
    }
    /* The first chunk's sums are the sums so far: nothing is added to zero. */
    LLVMValueRef lim[2] = {step, end};
    add_products(t, s, key, qt, emit_i64(e, 0), emit_intrinsic(e, "llvm.smin", e->i64, lim, 2),
                 acc);
    if (known && n <= 2 * chunk) {
        add_chunk(t, s, key, qt, step, end, acc);
        return;
    }
    for (uint32_t i = 0; i < l.n; i++) l.init[i] = acc[i];
    emit_loop_begin(e, &l, "chunk", step, end, step, known);
    lim[0] = LLVMBuildAdd(e->b, l.i, step, "");
    for (uint32_t i = 0; i < l.n; i++) acc[i] = l.phi[i];
    add_chunk(t, s, key, qt, l.i, emit_intrinsic(e, "llvm.smin", e->i64, lim, 2), acc);
    for (uint32_t i = 0; i < l.n; i++) l.next[i] = acc[i];
    emit_loop_end(e, &l);
    for (uint32_t i = 0; i < l.n; i++) acc[i] = l.out[i];
}

LLVMValueRef attn_score_at(Attn *t, const AttnTile *s, uint32_t row, uint32_t vector) {
    LLVMValueRef at = attn_mul(t, attn_add(t, s->first, row), emit_i64(t->e, t->nq));
    return attn_add(t, at, (int64_t)(vector * t->lanes));
}

static void score_tile(Attn *t, AttnTile *s) {
    Emit *e = t->e;
    LLVMValueRef acc[32];
    attn_products(t, s, &t->kr, t->qt, t->nd, acc);
    for (uint32_t v = 0; v < s->nv; v++) {
        LLVMValueRef lane = emit_i64(e, (int64_t)(v * t->lanes));
        LLVMValueRef max = attn_load(t, t->block_max, lane);
        emit_push(e);
        emit_bind_lanes(e, t->sym_i, expr_addi(t->p, s->query, (int64_t)(v * t->lanes)), s->mask[v],
                        true);
        for (uint32_t r = 0; r < s->rows; r++) {
            emit_push(e);
            emit_bind(e, t->sym_j, s->j[r]);
            emit_override(e, t->t->s, acc[r * s->nv + v]);
            LLVMValueRef x = emit_value_lanes(e, t->t->score);
            emit_pop(e);
            max = attn_max(t, max, x);
            attn_store(t, x, t->scores, attn_score_at(t, s, r, v));
        }
        emit_pop(e);
        attn_store(t, max, t->block_max, lane);
    }
}

/* Keys of a tile beside nv vectors of queries: as many as the registers hold, fewer if that leaves
 * fewer of them over at the end. */
static uint32_t key_rows(Attn *t, uint32_t nv) {
    uint32_t most = (t->e->isa->vector_regs - 1 - nv) / nv;
    int64_t n, least = INT64_MAX;
    if (most > 8) most = 8;
    if (!expr_is_const(t->p, t->nj, &n) || n > ATTN_KEYS || most < 4) return most;
    uint32_t best = most;
    for (uint32_t rows = most; rows >= 4; rows--) {
        int64_t walked = (n + rows - 1) / rows * rows;
        if (walked < least) least = walked, best = rows;
    }
    return best;
}

static void find_rows(Attn *t, AttnTile *s) {
    Emit *e = t->e;
    for (uint32_t r = 0; r < s->rows; r++) {
        LLVMValueRef lim[2] = {attn_add(t, s->first, r), attn_add(t, t->keys, -1)};
        s->row[r] = emit_intrinsic(e, "llvm.smin", e->i64, lim, 2);
        s->j[r] = emit_below(t->e, "j", t->nj, LLVMBuildAdd(e->b, t->key0, s->row[r], ""));
    }
}

static void tiles_of(Attn *t, uint32_t nv, void (*tile)(Attn *t, AttnTile *s)) {
    Emit *e = t->e;
    EmitLoop l = {0};
    AttnTile s = {.nv = nv, .rows = key_rows(t, nv)};
    s.query = emit_below(t->e, "i", t->ni, t->query0);
    uint32_t query;
    if (expr_is_sym(t->p, s.query, &query)) map_put(e->aligned, query, ATTN_UNIT);
    bool ragged = expr_divisor(t->p, t->ni) % t->lanes != 0;
    for (uint32_t v = 0; ragged && v < nv; v++)
        s.mask[v] = emit_lanes_below(e, attn_add(t, t->queries, -(int64_t)(v * t->lanes)));
    emit_loop_begin(e, &l, "scores", emit_i64(e, 0), t->keys, emit_i64(e, s.rows), true);
    s.first = l.i;
    find_rows(t, &s);
    tile(t, &s);
    emit_loop_end(e, &l);
}

/* Bit n: some block has n vectors of queries. */
static uint32_t vector_counts(Attn *t) {
    int64_t n, vectors = 0;
    uint32_t set = 0, all = (2u << t->nv) - 2;
    if (t->nv * t->lanes == ATTN_UNIT && expr_divisor(t->p, t->ni) % ATTN_UNIT == 0)
        return 1u << t->nv;
    if (!expr_is_const(t->p, t->ni, &n)) return all;
    int64_t units = (n + ATTN_UNIT - 1) / ATTN_UNIT, blocks = (units + ATTN_UNITS - 1) / ATTN_UNITS;
    for (int64_t b = 0; b < blocks; b++) {
        int64_t q = b * units / blocks * ATTN_UNIT, end = (b + 1) * units / blocks * ATTN_UNIT;
        for (end = end < n ? end : n; q < end; q += t->nq) {
            vectors = ((end - q < t->nq ? end - q : t->nq) + t->lanes - 1) / t->lanes;
            set |= 1u << vectors;
        }
    }
    return set;
}

void attn_tiles(Attn *t, void (*tile)(Attn *t, AttnTile *s)) {
    Emit *e = t->e;
    uint32_t set = vector_counts(t);
    bool one = (set & (set - 1)) == 0;
    for (uint32_t nv = 1; nv <= t->nv; nv++) {
        EmitIf is;
        if (!(set >> nv & 1)) continue;
        if (!one)
            emit_if_begin(e, &is, LLVMBuildICmp(e->b, LLVMIntEQ, t->vectors, emit_i64(e, nv), ""));
        tiles_of(t, nv, tile);
        if (!one) emit_if_end(e, &is);
    }
}

static void scores(Attn *t) {
    for (uint32_t v = 0; v < t->nv; v++)
        attn_store(t, emit_f(t->e, t->vec, -INFINITY), t->block_max,
                   emit_i64(t->e, (int64_t)(v * t->lanes)));
    attn_tiles(t, score_tile);
}

/* --- Softmax, output ---------------------------------------------------------------------- */

static void exponentials(Attn *t) {
    Emit *e = t->e;
    EmitLoop qs = {0}, l = emit_loop(e, 1);
    LLVMValueRef zero = emit_i64(e, 0), one = emit_i64(e, 1);
    emit_loop_begin(e, &qs, "column", zero, t->vectors, one, true);
    LLVMValueRef lane = attn_mul(t, qs.i, emit_i64(e, t->lanes));
    LLVMValueRef old = attn_load(t, t->max, lane);
    LLVMValueRef max = attn_max(t, old, attn_load(t, t->block_max, lane));
    LLVMValueRef base = attn_finite(t, max);
    LLVMValueRef scale = attn_exp(t, LLVMBuildFSub(e->b, old, base, ""));
    attn_store(t, max, t->max, lane);
    attn_store(t, scale, t->scale, lane);
    l.init[0] = LLVMConstNull(t->vec);
    emit_loop_begin(e, &l, "exp", zero, t->keys, one, true);
    LLVMValueRef at = LLVMBuildAdd(e->b, attn_mul(t, l.i, emit_i64(e, t->nq)), lane, "");
    LLVMValueRef x = attn_exp(t, LLVMBuildFSub(e->b, attn_load(t, t->scores, at), base, ""));
    attn_store(t, x, t->scores, at);
    l.next[0] = LLVMBuildFAdd(e->b, l.phi[0], x, "");
    emit_loop_end(e, &l);
    LLVMValueRef sum = emit_fma(e, attn_load(t, t->sum, lane), scale, l.out[0]);
    attn_store(t, sum, t->sum, lane);
    emit_loop_end(e, &qs);
}

/* acc += rows [row, row + out_rows) of P^T times vectors of V, over keys [from, to). */
static void add_values(Attn *t, LLVMValueRef row, LLVMValueRef column, uint32_t nv,
                       LLVMValueRef from, LLVMValueRef to, LLVMValueRef *acc) {
    Emit *e = t->e;
    uint32_t rows = t->out_rows;
    EmitLoop l = emit_loop(e, rows * nv);
    for (uint32_t i = 0; i < rows * nv; i++) l.init[i] = acc[i];
    emit_loop_begin(e, &l, "keys", from, to, emit_i64(e, 1), true);
    LLVMValueRef value = attn_row(t, &t->vr, l.i), x[4];
    LLVMValueRef p = LLVMBuildAdd(e->b, attn_mul(t, l.i, emit_i64(e, t->nq)), row, "");
    for (uint32_t v = 0; v < nv; v++)
        x[v] = attn_load(t, value, attn_add(t, column, (int64_t)(v * t->lanes)));
    for (uint32_t r = 0; r < rows; r++) {
        LLVMValueRef w = emit_load(e, t->elem, attn_at(t, t->scores, attn_add(t, p, r)), t->bytes);
        for (uint32_t v = 0; v < nv; v++)
            l.next[r * nv + v] = emit_fma(e, emit_splat(e, w), x[v], l.phi[r * nv + v]);
    }
    emit_loop_end(e, &l);
    for (uint32_t i = 0; i < rows * nv; i++) acc[i] = l.out[i];
}

/* O[row .. row + out_rows)[column ..] = O * scale + P^T V over keys [from, to), summed from 0: the
 * rounding error of a sum grows with the root of its length. */
static void out_tile(Attn *t, LLVMValueRef row, LLVMValueRef column, uint32_t nv, LLVMValueRef from,
                     LLVMValueRef to, LLVMValueRef *scale) {
    Emit *e = t->e;
    LLVMValueRef acc[32], width = emit_expr(e, t->vr.padded);
    LLVMValueRef start = LLVMBuildAdd(e->b, attn_mul(t, row, width), column, "");
    for (uint32_t i = 0; i < t->out_rows * nv; i++) acc[i] = LLVMConstNull(t->vec);
    add_values(t, row, column, nv, from, to, acc);
    for (uint32_t r = 0; r < t->out_rows; r++) {
        LLVMValueRef line = LLVMBuildAdd(e->b, start, attn_mul(t, width, emit_i64(e, r)), "");
        for (uint32_t v = 0; v < nv; v++) {
            LLVMValueRef at = attn_add(t, line, (int64_t)(v * t->lanes)), x = acc[r * nv + v];
            LLVMValueRef o = attn_load(t, t->out, at);
            x = scale ? emit_fma(e, o, scale[r], x) : LLVMBuildFAdd(e->b, o, x, "");
            attn_store(t, x, t->out, at);
        }
    }
}

/* Columns [column, column + nv vectors) of O over keys [from, to). */
static void out_columns(Attn *t, LLVMValueRef column, uint32_t nv, LLVMValueRef from,
                        LLVMValueRef to, bool scaled) {
    Emit *e = t->e;
    EmitLoop l = {0};
    LLVMValueRef scale[8];
    emit_loop_begin(e, &l, "out", emit_i64(e, 0), t->queries, emit_i64(e, t->out_rows), true);
    for (uint32_t r = 0; scaled && r < t->out_rows; r++) {
        LLVMValueRef at = attn_at(t, t->scale, attn_add(t, l.i, r));
        scale[r] = emit_splat(e, emit_load(e, t->elem, at, t->bytes));
    }
    out_tile(t, l.i, column, nv, from, to, scaled ? scale : NULL);
    emit_loop_end(e, &l);
}

/* Vectors of O's columns behind its last whole tile, and how many of them at a time: where there
 * would be one, beside tiles of three, two tiles of two. Of a width that is not known one at a
 * time. */
static uint32_t columns_left(Attn *t, uint32_t *behind) {
    int64_t n;
    if (!expr_is_const(t->p, t->vr.padded, &n)) return 1;
    const uint32_t vectors = (uint32_t)(n / t->lanes);
    *behind = vectors % t->out_nv;
    if (*behind != 1 || t->out_nv != 3 || vectors < 3) return *behind;
    *behind = 4;
    return 2;
}

/* All of O over keys [from, to). */
static void out_keys(Attn *t, LLVMValueRef from, LLVMValueRef to, bool scaled) {
    Emit *e = t->e;
    EmitLoop l = {0}, tail = {0};
    uint32_t wide = t->out_nv * t->lanes, behind = 0, nv = columns_left(t, &behind);
    LLVMValueRef zero = emit_i64(e, 0), step = emit_i64(e, wide);
    LLVMValueRef size = emit_expr(e, t->vr.padded);
    bool even = expr_divisor(t->p, t->vr.padded) % wide == 0;
    LLVMValueRef rest = behind ? LLVMBuildSub(e->b, size, emit_i64(e, behind * t->lanes), "")
                        : even ? size
                               : LLVMBuildSub(e->b, size, LLVMBuildURem(e->b, size, step, ""), "");
    emit_loop_begin(e, &l, "columns", zero, rest, step, false);
    out_columns(t, l.i, t->out_nv, from, to, scaled);
    emit_loop_end(e, &l);
    if (even) return;
    emit_loop_begin(e, &tail, "columns", rest, size, emit_i64(e, nv * t->lanes), false);
    out_columns(t, tail.i, nv, from, to, scaled);
    emit_loop_end(e, &tail);
}

/* All keys of the block, chunk by chunk: a chunk of P, its values and O stay in the first cache.
 * What was there before is scaled once. */
void attn_outputs(Attn *t) {
    Emit *e = t->e;
    EmitLoop l = {0};
    LLVMValueRef zero = emit_i64(e, 0), step = emit_i64(e, ATTN_CHUNK_KEYS);
    LLVMValueRef lim[2] = {step, t->keys};
    out_keys(t, zero, emit_intrinsic(e, "llvm.smin", e->i64, lim, 2), t->scale != NULL);
    emit_loop_begin(e, &l, "chunk", step, t->keys, step, false);
    lim[0] = LLVMBuildAdd(e->b, l.i, step, "");
    out_keys(t, l.i, emit_intrinsic(e, "llvm.smin", e->i64, lim, 2), false);
    emit_loop_end(e, &l);
}

static void key_block(Attn *t) {
    attn_copy_rows(t, &t->kr);
    attn_copy_rows(t, &t->vr);
    scores(t);
    exponentials(t);
    attn_outputs(t);
}

static void finish(Attn *t) {
    Emit *e = t->e;
    EmitLoop qs = {0}, l = {0};
    LLVMValueRef zero = emit_i64(e, 0), one = emit_i64(e, 1);
    emit_loop_begin(e, &qs, "column", zero, t->vectors, one, true);
    LLVMValueRef lane = attn_mul(t, qs.i, emit_i64(e, t->lanes));
    LLVMValueRef inverse = attn_inverse(t, attn_load(t, t->max, lane), attn_load(t, t->sum, lane));
    attn_store(t, inverse, t->scale, lane);
    emit_loop_end(e, &qs);
    emit_loop_begin(e, &l, "query", zero, t->queries, one, true);
    LLVMValueRef from = attn_at(t, t->out, attn_mul(t, l.i, emit_expr(e, t->vr.padded)));
    LLVMValueRef s = emit_load(e, t->elem, attn_at(t, t->scale, l.i), t->bytes);
    attn_finish_row(t, LLVMBuildAdd(e->b, t->query0, l.i, ""), l.i, from, s);
    emit_loop_end(e, &l);
}

static void part(Attn *t) {
    Emit *e = t->e;
    attn_transpose(t, t->t->q, t->sym_d, t->nd, t->qt);
    reset(t);
    attn_key_blocks(t, attn_add(t, LLVMBuildAdd(e->b, t->query0, t->queries, ""), -1), key_block);
    finish(t);
}

static void one_part(Attn *t, void (*body)(Attn *t)) {
    Emit *e = t->e;
    LLVMValueRef up = attn_add(t, t->queries, t->lanes - 1);
    t->vectors = LLVMBuildUDiv(e->b, up, emit_i64(e, t->lanes), "");
    body(t);
}

void attn_parts(Attn *t, void (*body)(Attn *t)) {
    if (t->nq >= ATTN_UNIT * ATTN_UNITS) {
        one_part(t, body);
        return;
    }
    Emit *e = t->e;
    EmitLoop l = {0};
    LLVMValueRef query0 = t->query0, queries = t->queries;
    emit_loop_begin(e, &l, "part", emit_i64(e, 0), queries, emit_i64(e, t->nq), true);
    t->query0 = LLVMBuildAdd(e->b, query0, l.i, "");
    LLVMValueRef lim[2] = {LLVMBuildSub(e->b, queries, l.i, ""), emit_i64(e, t->nq)};
    t->queries = emit_intrinsic(e, "llvm.smin", e->i64, lim, 2);
    one_part(t, body);
    emit_loop_end(e, &l);
    t->query0 = query0;
    t->queries = queries;
}

void attn_many(Attn *t) {
    attn_keep_rows(t);
    attn_parts(t, part);
}
