/* What a warpgroup computes for its 64 queries of a tile. A thread has, of its warp's 16 rows, rows
 * lane / 4 and that + 8, and there columns 2 (lane % 4) and the next of every 8: as sums lie.
 *
 * The products of the next block's scores and of this block's values are in flight together, while
 * the softmax of the next block waits for the first of them only. Sums of a row are kept per thread
 * until the end; its maximum is known to the four threads that share it. */
#include "codegen/nvptx/flash/flash.h"
#include <math.h>

enum { HALVES = 2, NAMED_TURN = 0 }; /* + the warpgroup's number */
enum {
    CHAINS = 4,
    STEPS = 4,
    STEP_REGS = 4,
    STEP_KEYS = 16,
    MAX_S = 64,
    MAX_P = MAX_S / 2,
    MAX_O = 128
};
enum { LONG = 8, PIECE = 4 }; /* steps along the head: more are started in pieces */

#define LOG2E 1.4426950408889634

typedef struct Softmax {
    HV max[HALVES], sum[HALVES];
} Softmax;

typedef struct Computer {
    Flash *x;
    Emit *e;
    FlashPlace at;
    HV start;    /* number of the first block that the warpgroup's own queries see */
    HV masked;   /* blocks up to here need masks */
    HV member;   /* of the warpgroups that compute, from 0 */
    HV one;      /* a thread of the warpgroup; of each warp, where these go their own ways */
    HV lead;     /* its first warp */
    HV first;    /* number of the tile's first block among all */
    HV row, col; /* of the thread: in memory; in a block */
    HV own_queries, queries; /* the warpgroup's queries in shared memory; their descriptor */
    HV staging, put, swizzle;
    WgmmaShape qk, pv;
    uint32_t ns, np, no; /* registers of scores, probabilities, results */
    Expr rows[HALVES];   /* body, statistics: kept below the end */
} Computer;

/* --- Numbers ---------------------------------------------------------------------------------- */

static HV num(Emit *e, double v) {
    return emit_f(e, e->f32, v);
}

static HV larger(Emit *e, HV a, HV b) {
    HV v[2] = {a, b};
    return emit_intrinsic(e, "llvm.maxnum", e->f32, v, 2);
}

static HV ex2(Emit *e, HV a) {
    return emit_intrinsic(e, "llvm.nvvm.ex2.approx.ftz", e->f32, &a, 1);
}

static HV plus(Emit *e, HV a, HV b) {
    return LLVMBuildFAdd(e->b, a, b, "");
}

static HV below(Emit *e, HV a, HV b) {
    return LLVMBuildICmp(e->b, LLVMIntULT, a, b, "");
}

/* Two numbers as a register of 16-bit ones. */
static HV pack(Computer *c, HV a, HV b) {
    Emit *e = c->e;
    bool bf16 = c->x->p->type == WGMMA_bf16;
    LLVMTypeRef half = bf16 ? LLVMBFloatTypeInContext(e->ctx) : LLVMHalfTypeInContext(e->ctx);
    HV v = LLVMGetPoison(emit_vec(e->f32, 2));
    v = LLVMBuildInsertElement(e->b, v, a, emit_i64(e, 0), "");
    v = LLVMBuildInsertElement(e->b, v, b, emit_i64(e, 1), "");
    v = LLVMBuildFPTrunc(e->b, v, LLVMVectorType(half, 2), "");
    return LLVMBuildBitCast(e->b, v, e->i32, "");
}

/* --- Scores ----------------------------------------------------------------------------------- */

/* Of the score with this number: which of the thread's two rows, and its column in the block. */
static uint32_t half_of(uint32_t i) {
    return i >> 1 & 1;
}
static uint32_t col_of(uint32_t i) {
    return i / 4 * 8 + (i & 1);
}

static HV block_start(Computer *c, HV j) {
    HV n = LLVMBuildSub(c->e->b, hop_addi(c->e, c->at.blocks, -1), j, "");
    return hop_muli(c->e, n, c->x->t->keys);
}

/* Scores of keys that row `half` does not see become -inf. */
static void mask_half(Computer *c, HV *s, HV start, uint32_t half) {
    Emit *e = c->e;
    Flash *x = c->x;
    HV last = hop_addi(e, x->nkeys, -1);
    if (x->p->causal) {
        HV v[2] = {last, hop_addi(e, hop_add(e, c->row, x->shift), half * 8)};
        last = emit_intrinsic(e, "llvm.smin", e->i32, v, 2);
    }
    HV room = LLVMBuildSub(e->b, last, hop_add(e, start, c->col), "");
    for (uint32_t i = 0; i < c->ns; i++) {
        if (half_of(i) != half) continue;
        HV out = LLVMBuildICmp(e->b, LLVMIntSLT, room, hop_i(e, col_of(i)), "");
        s[i] = LLVMBuildSelect(e->b, out, num(e, -INFINITY), s[i], "");
    }
}

static uint32_t sym_of(const Computer *c, uint32_t axis) {
    return gpu_axis(c->x->g, axis)->sym;
}

/* Whatever keys a causal test would leave out is masked here. */
static void know_tests(Computer *c) {
    const FlashPlan *p = c->x->p;
    for (uint32_t i = 0; i < p->ntests; i++)
        emit_override(c->e, p->test[i], LLVMConstInt(c->e->i1, p->seen[i], false));
}

/* --- What scores take from keys alone --------------------------------------------------------
 *
 * A mask of keys, say: a thread computes it for one key of a block, a block ahead, and hands it to
 * the warpgroup through shared memory. Two places take turns, so one barrier a block is enough. */

static HV as_word(Emit *e, HV v) {
    if (LLVMTypeOf(v) == e->f32) return LLVMBuildBitCast(e->b, v, e->i32, "");
    if (LLVMTypeOf(v) == e->i32) return v;
    return LLVMBuildZExt(e->b, v, e->i32, "");
}

static HV from_word(Emit *e, HV word, DType t) {
    if (t == DT_f32) return LLVMBuildBitCast(e->b, word, e->f32, "");
    if (t == DT_i32) return word;
    return LLVMBuildICmp(e->b, LLVMIntNE, word, hop_i(e, 0), "");
}

/* Of the thread's key in block j; past the first key, of that. */
static void compute_per_key(Computer *c, HV j, HV *word) {
    Emit *e = c->e;
    Flash *x = c->x;
    if (!x->p->nper_key) return;
    HV v[2] = {hop_add(e, block_start(c, j), hop_andi(e, x->tid, x->t->keys - 1)), hop_i(e, 0)};
    HV at = emit_intrinsic(e, "llvm.smax", e->i32, v, 2);
    emit_push(e);
    emit_bind(e, sym_of(c, x->a->j), flash_position(e, "j", x->p->keys, at, true));
    know_tests(c);
    for (uint32_t i = 0; i < x->p->nper_key; i++)
        word[i] = as_word(e, emit_value(e, x->p->per_key[i]));
    emit_pop(e);
}

/* The place of block j. */
static HV key_place(Computer *c, HV j, uint32_t i) {
    Emit *e = c->e;
    const Flash *x = c->x;
    uint32_t each = x->t->keys * FLASH_WORD, both = x->p->nper_key * each;
    HV turn = hop_andi(e, hop_add(e, c->first, j), 1);
    HV at = hop_add(e, hop_muli(e, c->member, 2 * both), hop_muli(e, turn, both));
    return hop_addi(e, hop_add(e, x->shared, at), x->at_key + i * each);
}

static void put_per_key(Computer *c, HV j, const HV *word) {
    Emit *e = c->e;
    HV own = hop_shl(e, hop_andi(e, c->x->tid, c->x->t->keys - 1), 2);
    for (uint32_t i = 0; i < c->x->p->nper_key; i++) {
        HV v[2] = {hop_add(e, key_place(c, j, i), own), word[i]};
        hop_asm(e, e->voidt, "st.shared.b32 [$0], $1;", "r,r,~{memory}", v, 2);
    }
}

static void share_per_key(Computer *c) {
    HV id = hop_addi(c->e, c->member, FLASH_NAMED_STAGING + 1);
    if (c->x->p->nper_key) hop_sync(c->e, id, HOP_WARPGROUP);
}

/* Of two neighbouring keys, as words. */
static void read_per_key(Computer *c, HV j, uint32_t col, HV word[][2]) {
    Emit *e = c->e;
    LLVMTypeRef t[2] = {e->i32, e->i32}, two = LLVMStructTypeInContext(e->ctx, t, 2, false);
    for (uint32_t i = 0; i < c->x->p->nper_key; i++) {
        HV at =
            hop_addi(e, hop_add(e, key_place(c, j, i), hop_shl(e, c->col, 2)), col * FLASH_WORD);
        HV v = hop_asm(e, two, "ld.shared.v2.b32 {$0, $1}, [$2];", "=r,=r,r,~{memory}", &at, 1);
        for (uint32_t z = 0; z < 2; z++) word[i][z] = LLVMBuildExtractValue(e->b, v, z, "");
    }
}

/* Scores by the kernel's body; `clamp`: some keys may be past the end. */
static void body_scores(Computer *c, HV *s, HV j, bool clamp) {
    Emit *e = c->e;
    Flash *x = c->x;
    const FlashPlan *p = x->p;
    HV first = hop_add(e, block_start(c, j), c->col), word[FLASH_MAX_PER_KEY][2];
    Expr col = clamp ? 0 : flash_position(e, "j", p->keys, first, false);
    emit_push(e);
    know_tests(c);
    for (uint32_t i = 0; i < c->ns; i++) {
        if (half_of(i)) continue;
        if (i % 2 == 0) read_per_key(c, j, col_of(i), word);
        emit_push(e);
        Expr at = clamp ? flash_position(e, "j", p->keys, hop_addi(e, first, col_of(i)), true)
                        : expr_addi(e->exprs, col, col_of(i));
        emit_bind(e, sym_of(c, x->a->j), at);
        for (uint32_t k = 0; k < p->nper_key; k++) {
            DType t = (DType)x->g->k->ops[p->per_key[k]].dtype;
            emit_override(e, p->per_key[k], from_word(e, word[k][i % 2], t));
        }
        for (uint32_t h = 0; h < HALVES; h++) {
            emit_push(e);
            emit_bind(e, sym_of(c, x->a->i), c->rows[h]);
            HV v = s[i + 2 * h];
            if (p->factor != 1) v = LLVMBuildFMul(e->b, v, num(e, p->factor), "");
            emit_override(e, x->a->s, v);
            s[i + 2 * h] = emit_value(e, x->a->score);
            emit_pop(e);
        }
        emit_pop(e);
    }
    emit_pop(e);
}

/* --- Softmax ---------------------------------------------------------------------------------- */

static bool rows_may_be_empty(const Computer *c) {
    return c->x->p->causal || c->x->p->body;
}

static HV fold(Computer *c, const HV *v, uint32_t half, HV (*join)(Emit *e, HV a, HV b)) {
    HV chain[CHAINS] = {0};
    for (uint32_t i = 0, n = 0; i < c->ns; i++) {
        if (half_of(i) != half) continue;
        HV *at = &chain[n++ % CHAINS];
        *at = *at ? join(c->e, *at, v[i]) : v[i];
    }
    return join(c->e, join(c->e, chain[0], chain[1]), join(c->e, chain[2], chain[3]));
}

static HV over_quad(Emit *e, HV v, HV (*join)(Emit *e, HV a, HV b)) {
    for (uint32_t off = 1; off <= 2; off *= 2) v = join(e, v, gpu_shuffle(e, v, off));
    return v;
}

/* e^(scale (v - max)): one operation in front of the power of two. Scores from a body may be huge,
 * where only their difference can be scaled. */
static HV power(Computer *c, HV v, HV max) {
    Emit *e = c->e;
    HV scale = num(e, c->x->p->scale * LOG2E);
    if (!c->x->p->body) {
        HV less = LLVMBuildFMul(e->b, LLVMBuildFNeg(e->b, max, ""), scale, "");
        return ex2(e, emit_fma(e, v, scale, less));
    }
    return ex2(e, LLVMBuildFMul(e->b, LLVMBuildFSub(e->b, v, max, ""), scale, ""));
}

/* Scores become probabilities against the new maximum. `old`: NULL for the first block; alpha: what
 * turns sums against the old maximum into such against the new one. */
static void softmax(Computer *c, HV *s, const Softmax *old, Softmax *now, HV *alpha) {
    Emit *e = c->e;
    HV base[HALVES];
    for (uint32_t h = 0; h < HALVES; h++) {
        HV max = fold(c, s, h, larger);
        if (old) max = larger(e, max, old->max[h]);
        now->max[h] = base[h] = over_quad(e, max, larger);
        if (!rows_may_be_empty(c)) continue;
        HV none = LLVMBuildFCmp(e->b, LLVMRealOEQ, now->max[h], num(e, -INFINITY), "");
        base[h] = LLVMBuildSelect(e->b, none, num(e, 0), now->max[h], "");
    }
    for (uint32_t h = 0; h < HALVES && old; h++) alpha[h] = power(c, old->max[h], base[h]);
    for (uint32_t h = 0; h < HALVES; h++) {
        for (uint32_t i = 0; i < c->ns; i++)
            if (half_of(i) == h) s[i] = power(c, s[i], base[h]);
        now->sum[h] = fold(c, s, h, plus);
        if (old) now->sum[h] = emit_fma(e, old->sum[h], alpha[h], now->sum[h]);
    }
}

/* Probabilities as the A operand: a step of 16 keys takes four registers. */
static void pack_all(Computer *c, const HV *s, HV *p) {
    for (uint32_t i = 0; i < c->np; i++) p[i] = pack(c, s[2 * i], s[2 * i + 1]);
}

/* --- Products --------------------------------------------------------------------------------- */

static HV number_of(Computer *c, HV j) {
    return hop_add(c->e, c->first, j);
}

static void await(Computer *c, FlashBar full, HV j) {
    HV n = number_of(c, j);
    hop_barrier_wait(c->e, flash_bar(c->x, full, flash_stage(c->x, n)), flash_parity(c->x, n));
}

static void release(Computer *c, FlashBar empty, HV j) {
    HV stage = flash_stage(c->x, number_of(c, j));
    hop_barrier_arrive(c->e, flash_bar(c->x, empty, stage), c->one);
}

static HV keys_at(Computer *c, HV j) {
    Emit *e = c->e;
    HV at = hop_muli(e, flash_stage(c->x, number_of(c, j)), c->x->k_bytes);
    return hop_addi(e, hop_add(e, c->x->shared, at), c->x->at_k);
}

static HV values_at(Computer *c, HV j) {
    Emit *e = c->e;
    HV at = hop_muli(e, flash_stage(c->x, number_of(c, j)), c->x->v_bytes);
    return hop_addi(e, hop_add(e, c->x->shared, at), c->x->at_v);
}

static void start_scores(Computer *c, HV j, HV *s) {
    Emit *e = c->e;
    HV never = LLVMConstInt(e->i1, 0, false);
    HV keys = wgmma_descriptor(e, &c->qk.b, keys_at(c, j));
    uint32_t steps = c->x->p->d / STEP_KEYS;
    for (uint32_t i = 0; i < c->ns; i++) s[i] = LLVMGetUndef(e->f32);
    for (uint32_t i = 0; i < steps; i += c->qk.ksteps) {
        HV q = wgmma_step(e, &c->qk.a, c->queries, i), k = wgmma_step(e, &c->qk.b, keys, i);
        wgmma_block(e, &c->qk, s, &q, &k, i ? LLVMConstInt(e->i1, 1, false) : never);
    }
}

static void start_values(Computer *c, HV j, const HV *p, HV *o) {
    Emit *e = c->e;
    HV values = values_at(c, j);
    HV more = LLVMBuildICmp(e->b, LLVMIntNE, j, c->start, "");
    wgmma_block_held(e, &c->pv, o, p, wgmma_descriptor(e, &c->pv.b, values), more);
}

static HV turn_of(Computer *c, bool next) {
    Emit *e = c->e;
    if (!next) return hop_addi(e, c->member, NAMED_TURN + 1);
    HV n = hop_addi(e, c->member, 1), wrap = hop_is(e, n, c->x->t->groups);
    return hop_addi(e, LLVMBuildSelect(e->b, wrap, hop_i(e, 0), n, ""), NAMED_TURN + 1);
}

static void take_turn(Computer *c) {
    if (c->x->t->turns) hop_sync(c->e, turn_of(c, false), 2 * HOP_WARPGROUP);
}

static void pass_turn(Computer *c) {
    if (c->x->t->turns) hop_arrive(c->e, turn_of(c, true), 2 * HOP_WARPGROUP);
}

/* --- Blocks ----------------------------------------------------------------------------------- */

/* What goes from block to block: results, probabilities, maxima and sums. */
typedef struct Carried {
    HV o[MAX_O], p[MAX_P];
    HV key[FLASH_MAX_PER_KEY]; /* what the next block's scores take from the thread's key */
    Softmax m;
} Carried;

static void finish_scores(Computer *c, HV j, HV *s, bool masked) {
    HV start = block_start(c, j);
    if (c->x->p->body) body_scores(c, s, j, masked);
    for (uint32_t h = 0; h < HALVES && masked; h++) mask_half(c, s, start, h);
}

/* Some of the keys in a warpgroup's first block are not seen by all of its queries. */
static bool masks_first(const Computer *c) {
    const Flash *x = c->x;
    return x->p->causal || expr_divisor(c->e->exprs, x->p->keys) % x->t->keys;
}

/* Some in other blocks neither: the mask's edge is as long as the warpgroup has queries. */
static bool masks_more(const Computer *c) {
    const Flash *x = c->x;
    if (!x->p->causal) return false;
    return x->t->keys % FLASH_GROUP_ROWS || expr_divisor(c->e->exprs, x->p->causal) % x->t->keys;
}

/* Blocks that other warpgroups' queries see, but none of this one's, up to c->start. */
static void skip_blocks(Computer *c) {
    Emit *e = c->e;
    HopLoop *l = hop_loop_new(e);
    hop_loop_init(l, hop_i(e, 0));
    hop_loop_begin(e, l, "skip");
    HV j = l->phi[0];
    hop_loop_test(e, l, below(e, j, c->start));
    await(c, BAR_k_full, j);
    take_turn(c);
    release(c, BAR_k_empty, j);
    await(c, BAR_v_full, j);
    pass_turn(c);
    release(c, BAR_v_empty, j);
    l->next[0] = hop_addi(e, j, 1);
    hop_loop_end(e, l);
}

/* Of f32, where every product is over when the next instruction begins: other warps have something
 * to multiply meanwhile. */
static void exact_block(Computer *c, HV j, Carried *v, bool first, bool masked) {
    Emit *e = c->e;
    HV s[MAX_S], alpha[HALVES];
    Softmax now;
    if (first) compute_per_key(c, j, v->key);
    put_per_key(c, j, v->key);
    await(c, BAR_k_full, j);
    flash_exact_scores(c->x, c->own_queries, keys_at(c, j), s);
    release(c, BAR_k_empty, j);
    compute_per_key(c, hop_addi(e, j, 1), v->key);
    share_per_key(c);
    finish_scores(c, j, s, masked);
    softmax(c, s, first ? NULL : &v->m, &now, alpha);
    await(c, BAR_v_full, j);
    flash_exact_values(c->x, values_at(c, j), s, first ? NULL : alpha, v->o);
    release(c, BAR_v_empty, j);
    v->m = now;
}

static void first_block(Computer *c, Carried *v) {
    Emit *e = c->e;
    HV s[MAX_S];
    if (c->x->p->exact) {
        exact_block(c, c->start, v, true, masks_first(c));
        return;
    }
    compute_per_key(c, c->start, v->key);
    put_per_key(c, c->start, v->key);
    await(c, BAR_k_full, c->start);
    start_scores(c, c->start, s);
    compute_per_key(c, hop_addi(e, c->start, 1), v->key);
    share_per_key(c);
    wgmma_wait_all(e, s, c->ns);
    release(c, BAR_k_empty, c->start);
    finish_scores(c, c->start, s, masks_first(c));
    softmax(c, s, NULL, &v->m, NULL);
    pack_all(c, s, v->p);
    for (uint32_t i = 0; i < c->no; i++) v->o[i] = LLVMGetUndef(e->f32);
}

static void next_block(Computer *c, HV j, Carried *v, bool masked) {
    Emit *e = c->e;
    HV s[MAX_S], alpha[HALVES], before = hop_addi(e, j, -1);
    Softmax now;
    if (c->x->p->exact) {
        exact_block(c, j, v, false, masked);
        return;
    }
    put_per_key(c, j, v->key);
    await(c, BAR_k_full, j);
    take_turn(c);
    start_scores(c, j, s);
    await(c, BAR_v_full, before);
    start_values(c, before, v->p, v->o);
    pass_turn(c);
    compute_per_key(c, hop_addi(e, j, 1), v->key);
    share_per_key(c);
    wgmma_wait_acc(e, 1, s, c->ns);
    release(c, BAR_k_empty, j);
    finish_scores(c, j, s, masked);
    softmax(c, s, &v->m, &now, alpha);
    wgmma_wait_all(e, v->o, c->no);
    release(c, BAR_v_empty, before);
    pack_all(c, s, v->p);
    for (uint32_t i = 0; i < c->no; i++)
        v->o[i] = LLVMBuildFMul(e->b, v->o[i], alpha[half_of(i)], "");
    v->m = now;
}

/* In the order of a loop's values. */
static uint32_t list(Computer *c, Carried *v, HV **at) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->no; i++) at[n++] = &v->o[i];
    for (uint32_t i = 0; i < c->np; i++) at[n++] = &v->p[i];
    for (uint32_t h = 0; h < HALVES; h++) {
        at[n++] = &v->m.max[h];
        at[n++] = &v->m.sum[h];
    }
    for (uint32_t i = 0; i < c->x->p->nper_key; i++) at[n++] = &v->key[i];
    return n;
}

/* Blocks from *j on, up to `end`. */
static void more_blocks(Computer *c, HV *j, HV end, Carried *v, bool masked) {
    Emit *e = c->e;
    HV *at[MAX_O + MAX_P + 2 * HALVES + FLASH_MAX_PER_KEY];
    uint32_t n = list(c, v, at);
    HopLoop *l = hop_loop_new(e);
    hop_loop_init(l, *j);
    for (uint32_t i = 0; i < n; i++) hop_loop_init(l, *at[i]);
    hop_loop_begin(e, l, masked ? "masked" : "keys");
    *j = l->phi[0];
    hop_loop_test(e, l, below(e, *j, end));
    for (uint32_t i = 0; i < n; i++) *at[i] = l->phi[1 + i];
    emit_push_region(e, l->pre);
    next_block(c, *j, v, masked);
    emit_pop(e);
    l->next[0] = hop_addi(e, *j, 1);
    for (uint32_t i = 0; i < n; i++) l->next[1 + i] = *at[i];
    hop_loop_end(e, l);
    for (uint32_t i = 0; i < n; i++) *at[i] = l->phi[1 + i];
}

/* --- Results ---------------------------------------------------------------------------------- */

/* 1 / sum. A row that saw no key has sum 0: it gives 0 if guarded, else no number, as 0 / 0. */
static HV inverse(Computer *c, HV sum) {
    Emit *e = c->e;
    HV all = over_quad(e, sum, plus), r = gpu_rcp(e, all);
    if (!c->x->a->guarded) return r;
    HV none = LLVMBuildFCmp(e->b, LLVMRealOEQ, all, num(e, 0), "");
    return LLVMBuildSelect(e->b, none, num(e, 0), r, "");
}

static void store_panel(Computer *c, const HV *o, uint32_t panel) {
    Emit *e = c->e;
    for (uint32_t step = 0; step < STEPS; step++) {
        HV r[STEP_REGS], at = LLVMBuildXor(e->b, c->swizzle, hop_i(e, step << 5), "");
        for (uint32_t i = 0; i < STEP_REGS; i++) {
            const HV *two = o + (panel * 8 + step * 2 + i / 2) * 4 + i % 2 * 2;
            r[i] = pack(c, two[0], two[1]);
        }
        hop_stmatrix(e, hop_addi(e, hop_add(e, c->put, at), panel * c->x->o_panel), r);
    }
}

static void send(Computer *c) {
    Emit *e = c->e;
    Flash *x = c->x;
    const HopMatrix *m = &x->p->o;
    HV at[2 + HOP_MAX_BATCH];
    HopIf lead = hop_if(e, c->lead);
    HopIf one = hop_if(e, hop_elect(e));
    hop_batch_at(x->g, x->extent, m, c->at.head, at + 2);
    at[1] = hop_add(e, c->at.row, hop_muli(e, c->member, FLASH_GROUP_ROWS));
    for (uint32_t i = 0; i < x->p->dv / x->p->panel; i++) {
        at[0] = hop_addi(e, c->at.column, i * x->p->panel);
        hop_tma_store(e, x->map_o, hop_addi(e, c->staging, i * x->o_panel), at, 2 + m->nbatch);
    }
    hop_tma_commit(e);
    hop_end(e, one);
    hop_end(e, lead);
}

/* By one of the four threads that share a row, of the first columns' tile. A row that saw no key
 * has -inf and 0. */
static void store_statistics(Computer *c, const Softmax *m) {
    Emit *e = c->e;
    Flash *x = c->x;
    if (!x->p->statistics) return;
    for (uint32_t h = 0; h < HALVES; h++) {
        EmitIf is;
        HV sum = over_quad(e, m->sum[h], plus);
        HV inside = below(e, hop_addi(e, c->row, 8 * h), x->nqueries);
        HV first = hop_is(e, hop_andi(e, x->lane, 3), 0);
        first = LLVMBuildAnd(e->b, first, hop_is(e, c->at.column, 0), "");
        emit_if_begin(e, &is, LLVMBuildAnd(e->b, inside, first, ""));
        emit_bind(e, sym_of(c, x->a->i), c->rows[h]);
        emit_override(e, x->a->m, LLVMBuildFMul(e->b, m->max[h], num(e, x->p->scale), ""));
        emit_override(e, x->a->l, sum);
        emit_store(e, x->p->statistics);
        emit_if_end(e, &is);
    }
}

/* Of a thread's results, the column of number i behind its first: of f32 they lie as flash_exact.c
 * says, four of one place in four sums. */
static uint32_t result_col(const Computer *c, uint32_t i) {
    if (!c->x->p->exact) return col_of(i);
    return i / 16 * c->x->p->panel + i % 2 * 4 + i % 16 / 4;
}

static HV first_col(const Computer *c) {
    return c->x->p->exact ? hop_shl(c->e, c->col, 2) : c->col;
}

/* A thread's results by the kernel's body: where they are no rows that the copy engine stores, of
 * another type, or computed further. */
static void store_results(Computer *c, const HV *o) {
    Emit *e = c->e;
    Flash *x = c->x;
    const uint32_t sym = sym_of(c, x->a->dv);
    const Expr columns = x->p->v.cols;
    const HV end = hop_size(e, columns), first = hop_add(e, c->at.column, first_col(c));
    for (uint32_t h = 0; h < HALVES; h++) {
        EmitIf row;
        emit_if_begin(e, &row, below(e, hop_addi(e, c->row, 8 * h), x->nqueries));
        emit_bind(e, sym_of(c, x->a->i), c->rows[h]);
        for (uint32_t i = 0; i < c->no; i++) {
            EmitIf column;
            HV at = hop_addi(e, first, result_col(c, i));
            if (half_of(i) != h) continue;
            emit_if_begin(e, &column, below(e, at, end));
            emit_bind(e, sym, flash_position(e, "dv", columns, at, false));
            emit_override(e, x->a->o, o[i]);
            for (uint32_t k = 0; k < x->p->nstores; k++) emit_store(e, x->p->store[k]);
            emit_if_end(e, &column);
        }
        emit_if_end(e, &row);
    }
}

static void await_sent(Computer *c, HV staged) {
    HopIf lead = hop_if(c->e, c->lead);
    hop_tma_wait_read(c->e, 0);
    hop_end(c->e, lead);
    hop_sync(c->e, staged, HOP_WARPGROUP);
}

static void release_queries(Computer *c) {
    if (c->x->p->computes_q) return;
    hop_barrier_arrive(c->e, flash_bar(c->x, BAR_q_empty, NULL), c->one);
}

/* The last block's values, then what was summed is scaled and stored. */
static void finish_tile(Computer *c, Carried *v) {
    Emit *e = c->e;
    HV last = hop_addi(e, c->at.blocks, -1), scale[HALVES];
    HV staged = hop_addi(e, c->member, FLASH_NAMED_STAGING + 1);
    bool exact = c->x->p->exact, shares = c->x->t->shares && !c->x->p->nstores;
    if (!shares) release_queries(c);
    if (!exact) {
        await(c, BAR_v_full, last);
        start_values(c, last, v->p, v->o);
    }
    for (uint32_t h = 0; h < HALVES; h++) scale[h] = inverse(c, v->m.sum[h]);
    if (!exact) {
        wgmma_wait_all(e, v->o, c->no);
        release(c, BAR_v_empty, last);
    }
    store_statistics(c, &v->m);
    for (uint32_t i = 0; i < c->no; i++)
        v->o[i] = LLVMBuildFMul(e->b, v->o[i], scale[half_of(i)], "");
    if (c->x->p->nstores) {
        store_results(c, v->o);
        return;
    }
    await_sent(c, staged);
    if (exact) flash_exact_store(c->x, c->staging, v->o);
    for (uint32_t i = 0; i < c->x->p->dv / FLASH_PANEL && !exact; i++) store_panel(c, v->o, i);
    hop_fence_async(e);
    hop_sync(e, staged, HOP_WARPGROUP);
    send(c);
    if (!shares) return;
    await_sent(c, staged);
    release_queries(c);
}

/* --- Tiles ------------------------------------------------------------------------------------ */

static HV next_tile(Flash *x, HV round) {
    Emit *e = x->e;
    HV slot = hop_andi(e, round, 1), at = flash_slot(x, slot);
    hop_barrier_wait(e, flash_bar(x, BAR_tile_full, slot), hop_andi(e, hop_shr(e, round, 1), 1));
    HV tile = hop_asm(e, e->i32, "ld.shared.u32 $0, [$1];", "=r,r,~{memory}", &at, 1);
    hop_barrier_arrive(e, flash_bar(x, BAR_tile_empty, slot), LLVMConstInt(e->i1, 1, false));
    return hop_warp_first(e, tile);
}

static void bind_tile(Computer *c) {
    Emit *e = c->e;
    Flash *x = c->x;
    HV own = hop_shl(e, hop_andi(e, x->warp, 3), 4);
    own = hop_add(e, hop_add(e, own, hop_shr(e, x->lane, 2)),
                  hop_muli(e, c->member, FLASH_GROUP_ROWS));
    c->row = hop_add(e, c->at.row, own);
    HV first = hop_add(e, c->at.row, hop_muli(e, c->member, FLASH_GROUP_ROWS)), whole;
    HV blocks = flash_blocks(x, first, FLASH_GROUP_ROWS, &whole);
    c->start = LLVMBuildSub(e->b, c->at.blocks, blocks, "");
    c->masked = LLVMBuildSub(e->b, c->at.blocks, whole, "");
    if (!x->p->body && !x->p->statistics && !x->p->computes_q && !x->p->nstores) return;
    for (uint32_t h = 0; h < HALVES; h++)
        c->rows[h] = flash_position(e, "i", x->p->queries, hop_addi(e, c->row, 8 * h), true);
    if (x->a->batch)
        gpu_decode(e, x->g->k, x->a->batch,
                   flash_position(e, "head", x->p->heads, c->at.head, false));
}

static void compute_tile(Computer *c, HV tile, HV q_parity) {
    Emit *e = c->e;
    Carried *v = ARENA_NEW(e->arena, Carried);
    c->at = flash_place(c->x, tile);
    bind_tile(c);
    if (c->x->p->computes_q)
        flash_queries(c->x, &c->at, c->member);
    else
        hop_barrier_wait(e, flash_bar(c->x, BAR_q_full, NULL), q_parity);
    skip_blocks(c);
    first_block(c, v);
    HV j = hop_addi(e, c->start, 1);
    if (masks_more(c)) more_blocks(c, &j, c->masked, v, true);
    more_blocks(c, &j, c->at.blocks, v, false);
    finish_tile(c, v);
}

static void find_staging(Computer *c) {
    Emit *e = c->e;
    Flash *x = c->x;
    HV row = hop_andi(e, x->lane, 7), warp = hop_andi(e, x->warp, 3);
    HV half = hop_andi(e, hop_shr(e, x->lane, 3), 1);
    HV at = hop_add(e, hop_add(e, hop_shl(e, warp, 4), hop_shl(e, half, 3)), row);
    HV own = hop_muli(e, c->member, x->o_group);
    c->staging = hop_add(e, hop_addi(e, x->shared, x->at_o), own);
    c->put = hop_add(e, c->staging, hop_muli(e, at, HOP_ROW_BYTES));
    c->swizzle = hop_shl(e, LLVMBuildXor(e->b, hop_shr(e, x->lane, 4), row, ""), 4);
}

static void set_up(Computer *c) {
    Emit *e = c->e;
    Flash *x = c->x;
    uint32_t q_panel = x->rows * HOP_ROW_BYTES, panel = x->t->keys * HOP_ROW_BYTES;
    c->member = hop_addi(e, x->group, -1);
    c->one = hop_is(e, hop_andi(e, x->tid, x->p->exact ? 31 : HOP_WARPGROUP - 1), 0);
    c->lead = hop_is(e, hop_andi(e, x->warp, 3), 0);
    c->col = hop_shl(e, hop_andi(e, x->lane, 3), 1);
    c->qk = (WgmmaShape){.type = x->p->type,
                         .n = x->t->keys,
                         .ksteps = x->p->d > LONG * STEP_KEYS ? PIECE : x->p->d / STEP_KEYS,
                         .blocks = 1,
                         .sums = 1,
                         .a = {false, q_panel},
                         .b = {false, panel}};
    c->pv = (WgmmaShape){.type = x->p->type,
                         .n = x->p->dv,
                         .ksteps = x->t->keys / STEP_KEYS,
                         .blocks = 1,
                         .sums = 1,
                         .b = {true, panel}};
    c->ns = x->t->keys / 2;
    c->np = x->p->exact ? 0 : c->ns / 2;
    c->no = x->p->dv / 2;
    GC_ASSERT(c->ns <= MAX_S && c->no <= MAX_O);
    HV mine = hop_muli(e, c->member, FLASH_GROUP_ROWS * HOP_ROW_BYTES);
    c->own_queries = hop_add(e, x->shared, mine);
    c->queries = wgmma_descriptor(e, &c->qk.a, c->own_queries);
    find_staging(c);
}

/* The first turn is the first warpgroup's: the last one passes it on. */
static void first_turn(Computer *c) {
    Emit *e = c->e;
    if (!c->x->t->turns) return;
    HopIf last = hop_if(e, hop_is(e, c->member, c->x->t->groups - 1));
    pass_turn(c);
    hop_end(e, last);
}

void flash_compute(Flash *x) {
    Emit *e = x->e;
    Computer c = {.x = x, .e = e};
    if (x->t->regs_math) hop_registers(e, x->t->regs_math, true);
    set_up(&c);
    first_turn(&c);
    /* What the body keeps for all tiles is computed here, where only this role comes by. */
    EmitScope *outer = e->scope;
    e->scope = NULL;
    emit_push(e);
    HopLoop *l = hop_loop_new(e);
    hop_loop_init(l, hop_i(e, 0)); /* tiles, */
    hop_loop_init(l, hop_i(e, 0)); /* and blocks so far */
    hop_loop_begin(e, l, "tile");
    HV tile = next_tile(x, l->phi[0]);
    hop_loop_test(e, l, below(e, tile, x->tiles));
    emit_push_region(e, l->pre);
    c.first = l->phi[1];
    compute_tile(&c, tile, hop_andi(e, l->phi[0], 1));
    l->next[0] = hop_addi(e, l->phi[0], 1);
    l->next[1] = hop_add(e, l->phi[1], c.at.blocks);
    emit_pop(e);
    hop_loop_end(e, l);
    emit_pop(e);
    hop_tma_wait(e);
    e->scope = outer;
}
