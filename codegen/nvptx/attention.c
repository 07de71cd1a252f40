/* Attention with online softmax. A team of threads holds one query, its part of q and of the output
 * in registers; the block's queries share tiles of keys and values in shared memory. Scores exist
 * for eight keys at a time. */
#include "codegen/nvptx/gpu.h"
#include <math.h>

enum { THREADS = 128, GROUP = 8, MAX_PART = 32 };

typedef struct Attn {
    Gpu *g;
    Emit *e;
    const KAttn *a;
    uint32_t team, keys;     /* threads per query, keys per tile */
    uint32_t nd, ndv, d, dv; /* parts per thread; whole sizes */
    LLVMValueRef part, i;    /* thread's rank in its team; its query */
    LLVMValueRef k, v;       /* shared */
    LLVMValueRef q[MAX_PART];
    LLVMValueRef nj;
} Attn;

/* Carried through the loop over keys. */
enum { ST_m, ST_l, ST_o };

static LLVMValueRef add(Emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildAdd(e->b, a, b, "");
}

static LLVMValueRef mul_c(Emit *e, LLVMValueRef a, int64_t c) {
    return LLVMBuildMul(e->b, a, emit_i64(e, c), "");
}

static uint32_t axis_of(uint32_t mask) {
    return (uint32_t)__builtin_ctz(mask);
}

static uint32_t sym_of(const Attn *t, uint32_t mask) {
    return t->g->k->axes[axis_of(mask)].sym;
}

static Expr extent_of(const Attn *t, uint32_t mask) {
    return t->g->k->axes[axis_of(mask)].extent;
}

/* Dimension number `n` of this thread's part. */
static LLVMValueRef dim_at(Attn *t, uint32_t n) {
    return add(t->e, t->part, emit_i64(t->e, (int64_t)n * t->team));
}

static LLVMValueRef below(Emit *e, LLVMValueRef x, LLVMValueRef n) {
    LLVMValueRef in = LLVMBuildICmp(e->b, LLVMIntSLT, x, n, "");
    return LLVMBuildSelect(e->b, in, x, emit_i64(e, 0), "");
}

/* shared[key][dim] = op v for the tile's keys; keys past the end repeat key 0. */
static void fill(Attn *t, KVal v, uint32_t axis, uint32_t size, LLVMValueRef shared,
                 LLVMValueRef j0) {
    Emit *e = t->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef count = emit_i64(e, (int64_t)t->keys * size);
    emit_loop_begin(e, l, "fill", t->g->tid, count, emit_i64(e, THREADS), false);
    LLVMValueRef n = emit_i64(e, size);
    LLVMValueRef key = add(e, j0, LLVMBuildUDiv(e->b, l->i, n, ""));
    emit_set_sym(e, sym_of(t, t->a->j), below(e, key, t->nj));
    emit_set_sym(e, sym_of(t, axis), LLVMBuildURem(e->b, l->i, n, ""));
    LLVMBuildStore(e->b, emit_value(e, v), emit_gep(e, e->f32, shared, l->i));
    emit_loop_end(e, l);
}

static LLVMValueRef shared_at(Attn *t, LLVMValueRef base, LLVMValueRef key, uint32_t size,
                              uint32_t n) {
    Emit *e = t->e;
    LLVMValueRef at = add(e, mul_c(e, key, size), dim_at(t, n));
    return LLVMBuildLoad2(e->b, e->f32, emit_gep(e, e->f32, base, at), "");
}

/* The score of key j0 + key for this thread's query. */
static LLVMValueRef score(Attn *t, LLVMValueRef j0, LLVMValueRef key) {
    Emit *e = t->e;
    LLVMValueRef s = emit_f(e, e->f32, 0), j = add(e, j0, key);
    for (uint32_t n = 0; n < t->nd; n++)
        s = emit_fma(e, t->q[n], shared_at(t, t->k, key, t->d, n), s);
    for (uint32_t off = 1; off < t->team; off *= 2)
        s = LLVMBuildFAdd(e->b, s, gpu_shuffle(e, s, off), "");
    emit_push(e);
    emit_set_sym(e, sym_of(t, t->a->j), below(e, j, t->nj));
    emit_override(e, t->a->s, s);
    LLVMValueRef x = emit_value(e, t->a->score);
    emit_pop(e);
    LLVMValueRef in = LLVMBuildICmp(e->b, LLVMIntSLT, j, t->nj, "");
    return LLVMBuildSelect(e->b, in, x, emit_f(e, e->f32, -INFINITY), "");
}

static LLVMValueRef exp_of(Emit *e, LLVMValueRef x) {
    return emit_math(e, OP_exp, x, NULL);
}

/* Eight keys: rescale what was summed to the new maximum, then add. */
static void group_step(Attn *t, LLVMValueRef j0, LLVMValueRef first, LLVMValueRef *st) {
    Emit *e = t->e;
    LLVMValueRef s[GROUP], key[GROUP], m = st[ST_m];
    for (uint32_t u = 0; u < GROUP; u++) {
        key[u] = add(e, first, emit_i64(e, u));
        s[u] = score(t, j0, key[u]);
        m = emit_fold_join(e, FOLD_max, DT_f32, m, s[u]);
    }
    LLVMValueRef none = emit_f(e, e->f32, -INFINITY);
    LLVMValueRef empty = LLVMBuildFCmp(e->b, LLVMRealOEQ, m, none, "");
    LLVMValueRef base = LLVMBuildSelect(e->b, empty, emit_f(e, e->f32, 0), m, "");
    LLVMValueRef scale = exp_of(e, LLVMBuildFSub(e->b, st[ST_m], base, ""));
    st[ST_m] = m;
    st[ST_l] = LLVMBuildFMul(e->b, st[ST_l], scale, "");
    for (uint32_t n = 0; n < t->ndv; n++)
        st[ST_o + n] = LLVMBuildFMul(e->b, st[ST_o + n], scale, "");
    for (uint32_t u = 0; u < GROUP; u++) {
        LLVMValueRef p = exp_of(e, LLVMBuildFSub(e->b, s[u], base, ""));
        st[ST_l] = LLVMBuildFAdd(e->b, st[ST_l], p, "");
        for (uint32_t n = 0; n < t->ndv; n++)
            st[ST_o + n] = emit_fma(e, p, shared_at(t, t->v, key[u], t->dv, n), st[ST_o + n]);
    }
}

static void tile_step(Attn *t, LLVMValueRef j0, LLVMValueRef *st, uint32_t nst) {
    Emit *e = t->e;
    gpu_barrier(e);
    fill(t, t->a->k, t->a->d, t->d, t->k, j0);
    fill(t, t->a->v, t->a->dv, t->dv, t->v, j0);
    gpu_barrier(e);
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, nst);
    for (uint32_t i = 0; i < nst; i++) l->init[i] = st[i];
    emit_loop_begin(e, l, "keys", emit_i64(e, 0), emit_i64(e, t->keys), emit_i64(e, GROUP), true);
    for (uint32_t i = 0; i < nst; i++) l->next[i] = l->phi[i];
    group_step(t, j0, l->i, l->next);
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < nst; i++) st[i] = l->out[i];
}

/* Keys that any query of the block may see. */
static LLVMValueRef last_key(Attn *t, LLVMValueRef i0) {
    Emit *e = t->e;
    if (!t->a->causal) return t->nj;
    LLVMValueRef shift = emit_expr(e, t->a->causal);
    LLVMValueRef end = add(e, add(e, i0, emit_i64(e, THREADS / t->team)), shift);
    LLVMValueRef v[2] = {end, t->nj};
    return emit_intrinsic(e, "llvm.smin", e->i64, v, 2);
}

static void finish(Attn *t, const LLVMValueRef *st, LLVMValueRef inside) {
    Emit *e = t->e;
    EmitIf in;
    emit_if_begin(e, &in, inside);
    LLVMValueRef zero = emit_f(e, e->f32, 0);
    LLVMValueRef none = LLVMBuildFCmp(e->b, LLVMRealOEQ, st[ST_l], zero, "");
    emit_override(e, t->a->m, st[ST_m]);
    emit_override(e, t->a->l, st[ST_l]);
    for (uint32_t n = 0; n < t->ndv; n++) {
        LLVMValueRef o = LLVMBuildFDiv(e->b, st[ST_o + n], st[ST_l], "");
        if (t->a->guarded) o = LLVMBuildSelect(e->b, none, zero, o, "");
        emit_push(e);
        emit_set_sym(e, sym_of(t, t->a->dv), dim_at(t, n));
        emit_override(e, t->a->o, o);
        for (KVal v = 1; v < t->g->k->nops; v++) {
            bool statistics = !(e->domains[v] & t->a->dv);
            if (t->g->k->ops[v].op == K_kstore && !(n && statistics)) emit_store(e, v);
        }
        emit_pop(e);
    }
    emit_if_end(e, &in);
}

static bool part_of(uint32_t size, uint32_t team) {
    return size % team == 0 && size / team <= MAX_PART;
}

static bool fits(Attn *t) {
    const Gpu *g = t->g;
    const KAttn *a = t->a;
    int64_t d, dv;
    if (g->k->tem != TEM_attention || !expr_is_const(t->e->exprs, extent_of(t, a->d), &d) ||
        !expr_is_const(t->e->exprs, extent_of(t, a->dv), &dv) || d > 256 || dv > 256)
        return false;
    t->d = (uint32_t)d;
    t->dv = (uint32_t)dv;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        if (o->op == K_kreduce && v != a->s && v != a->m && v != a->l && v != a->o) return false;
        if (o->op == K_kstore && (t->e->domains[v] & ~(a->batch | a->i | a->dv))) return false;
    }
    if (g->k->ops[a->q].dtype != DT_f32 || g->k->ops[a->k].dtype != DT_f32 ||
        g->k->ops[a->v].dtype != DT_f32)
        return false;
    for (t->team = 4; t->team <= 16; t->team *= 2)
        if (part_of(t->d, t->team) && part_of(t->dv, t->team) && t->d / t->team <= 16) break;
    if (t->team > 16) return false;
    t->nd = t->d / t->team;
    t->ndv = t->dv / t->team;
    t->keys = t->d + t->dv <= 256 ? 32 : 16;
    return true;
}

static void load_query(Attn *t, LLVMValueRef row) {
    Emit *e = t->e;
    emit_set_sym(e, sym_of(t, t->a->i), row);
    for (uint32_t n = 0; n < t->nd; n++) {
        emit_push(e);
        emit_set_sym(e, sym_of(t, t->a->d), dim_at(t, n));
        t->q[n] = emit_value(e, t->a->q);
        emit_pop(e);
    }
}

bool gpu_attention(Gpu *g) {
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    Attn t = {.g = g, .e = e, .a = &g->k->attn};
    if (!fits(&t)) return false;
    uint32_t queries = THREADS / t.team;
    Expr ni = extent_of(&t, t.a->i);
    gpu_batch_begin(g, THREADS, expr_ceildiv(p, ni, expr_const(p, queries)), t.a->batch);
    t.part = LLVMBuildAnd(e->b, g->tid, emit_i64(e, t.team - 1), "");
    t.nj = emit_expr(e, extent_of(&t, t.a->j));
    LLVMValueRef i0 = mul_c(e, g->block[0], queries), n = emit_expr(e, ni);
    t.i = add(e, i0, LLVMBuildLShr(e->b, g->tid, emit_i64(e, __builtin_ctz(t.team)), ""));
    LLVMValueRef inside = LLVMBuildICmp(e->b, LLVMIntSLT, t.i, n, "");
    load_query(&t, below(e, t.i, n));
    t.k = gpu_shared(g, e->f32, t.keys * t.d);
    t.v = gpu_shared(g, e->f32, t.keys * t.dv);
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, ST_o + t.ndv);
    l->init[ST_m] = emit_f(e, e->f32, -INFINITY);
    for (uint32_t i = ST_l; i < l->n; i++) l->init[i] = emit_f(e, e->f32, 0);
    emit_loop_begin(e, l, "tile", emit_i64(e, 0), last_key(&t, i0), emit_i64(e, t.keys), false);
    for (uint32_t i = 0; i < l->n; i++) l->next[i] = l->phi[i];
    tile_step(&t, l->i, l->next, l->n);
    emit_loop_end(e, l);
    finish(&t, l->out, inside);
    gpu_batch_end(g);
    return true;
}
