/* Attention with online softmax. A team of threads holds some queries, their parts of q and of the
 * output in registers; the block's queries share tiles of keys and values in shared memory, of
 * which what a thread reads serves all queries of its team. Scores exist for eight keys at a time.
 */
#include "codegen/nvptx/gpu.h"
#include <math.h>

enum { THREADS = 128, GROUP = 8, MAX_PART = 32, MAX_ROWS = 2, VECTOR = 4 };

typedef struct Attn {
    Gpu *g;
    Emit *e;
    const KAttn *a;
    uint32_t team, rows, keys; /* threads per query, queries of a team, keys per tile */
    uint32_t nd, ndv, d, dv;   /* parts per thread; whole sizes */
    LLVMValueRef part;         /* thread's rank in its team */
    /* Its team's queries, and the same below their number. */
    LLVMValueRef i[MAX_ROWS], at[MAX_ROWS];
    LLVMValueRef k, v; /* shared */
    LLVMValueRef q[MAX_ROWS][MAX_PART];
    LLVMValueRef nj;
} Attn;

/* Carried through the loop over keys, of every query. */
enum { ST_m, ST_l, ST_o };

static uint32_t state_size(const Attn *t) {
    return ST_o + t->ndv;
}

/* Of a part of n dimensions: neighbours in memory. */
static uint32_t vector_of(uint32_t n) {
    return n % VECTOR ? 1 : VECTOR;
}

/* Dimension number i of this thread's part of n. */
static LLVMValueRef dim_at(Attn *t, uint32_t n, uint32_t i) {
    uint32_t vec = vector_of(n);
    LLVMValueRef first = gpu_muli(t->e, t->part, vec);
    return gpu_add(t->e, first, emit_i64(t->e, (int64_t)(i / vec * vec * t->team + i % vec)));
}

/* x, or 0 from n on. */
static LLVMValueRef inside_or_first(Emit *e, LLVMValueRef x, LLVMValueRef n) {
    return LLVMBuildSelect(e->b, gpu_below(e, x, n), x, emit_i64(e, 0), "");
}

/* shared[key][dim] = op v for the tile's keys; keys past the end repeat key 0. */
static void fill(Attn *t, KVal v, uint32_t axis, uint32_t size, LLVMValueRef shared,
                 LLVMValueRef j0) {
    Emit *e = t->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef count = emit_i64(e, (int64_t)t->keys * size);
    emit_loop_begin(e, l, "fill", t->g->tid, count, emit_i64(e, THREADS), false);
    LLVMValueRef n = emit_i64(e, size);
    LLVMValueRef key = gpu_add(e, j0, LLVMBuildUDiv(e->b, l->i, n, ""));
    emit_set_sym(e, gpu_axis(t->g, t->a->j)->sym, inside_or_first(e, key, t->nj));
    emit_set_sym(e, gpu_axis(t->g, axis)->sym, LLVMBuildURem(e->b, l->i, n, ""));
    LLVMBuildStore(e->b, emit_value(e, v), emit_gep(e, e->f32, shared, l->i));
    emit_loop_end(e, l);
}

/* This thread's part, n dimensions, of a key's or value's row in shared memory. */
static void shared_part(Attn *t, LLVMValueRef base, LLVMValueRef key, uint32_t size, uint32_t n,
                        LLVMValueRef *out) {
    Emit *e = t->e;
    uint32_t vec = vector_of(n);
    for (uint32_t i = 0; i < n; i += vec) {
        LLVMValueRef at = gpu_add(e, gpu_muli(e, key, size), dim_at(t, n, i));
        LLVMTypeRef type = vec > 1 ? emit_vec(e->f32, vec) : e->f32;
        LLVMValueRef x = LLVMBuildLoad2(e->b, type, emit_gep(e, e->f32, base, at), "");
        LLVMSetAlignment(x, 4 * vec);
        for (uint32_t l = 0; l < vec; l++)
            out[i + l] = vec > 1 ? LLVMBuildExtractElement(e->b, x, emit_i64(e, l), "") : x;
    }
}

/* The score of key j for a query, whose products with it are s. */
static LLVMValueRef score(Attn *t, uint32_t row, LLVMValueRef j, LLVMValueRef s) {
    Emit *e = t->e;
    for (uint32_t off = 1; off < t->team; off *= 2)
        s = LLVMBuildFAdd(e->b, s, gpu_shuffle(e, s, off), "");
    emit_push(e);
    emit_set_sym(e, gpu_axis(t->g, t->a->i)->sym, t->at[row]);
    emit_set_sym(e, gpu_axis(t->g, t->a->j)->sym, inside_or_first(e, j, t->nj));
    emit_override(e, t->a->s, s);
    LLVMValueRef x = emit_value(e, t->a->score);
    emit_pop(e);
    LLVMValueRef in = LLVMBuildICmp(e->b, LLVMIntSLT, j, t->nj, "");
    return LLVMBuildSelect(e->b, in, x, emit_f(e, e->f32, -INFINITY), "");
}

/* Those of one key for all queries of the team. */
static void scores(Attn *t, LLVMValueRef j0, LLVMValueRef key, LLVMValueRef *out) {
    Emit *e = t->e;
    LLVMValueRef k[MAX_PART];
    shared_part(t, t->k, key, t->d, t->nd, k);
    for (uint32_t r = 0; r < t->rows; r++) {
        LLVMValueRef s = emit_f(e, e->f32, 0);
        for (uint32_t n = 0; n < t->nd; n++) s = emit_fma(e, t->q[r][n], k[n], s);
        out[r] = score(t, r, gpu_add(e, j0, key), s);
    }
}

static LLVMValueRef exp_of(Emit *e, LLVMValueRef x) {
    return emit_math(e, OP_exp, x, NULL);
}

/* The maximum that a query's next scores s make of its own; s become exponentials, whose sum joins
 * those before. Returns what is to be multiplied with what was summed before. */
static LLVMValueRef rescale(Attn *t, LLVMValueRef *s, LLVMValueRef *st) {
    Emit *e = t->e;
    LLVMValueRef m = st[ST_m], none = emit_f(e, e->f32, -INFINITY);
    for (uint32_t u = 0; u < GROUP; u++) m = emit_fold_join(e, FOLD_max, DT_f32, m, s[u]);
    LLVMValueRef empty = LLVMBuildFCmp(e->b, LLVMRealOEQ, m, none, "");
    LLVMValueRef base = LLVMBuildSelect(e->b, empty, emit_f(e, e->f32, 0), m, "");
    LLVMValueRef scale = exp_of(e, LLVMBuildFSub(e->b, st[ST_m], base, ""));
    st[ST_m] = m;
    LLVMValueRef sum = NULL;
    for (uint32_t u = 0; u < GROUP; u++) {
        s[u] = exp_of(e, LLVMBuildFSub(e->b, s[u], base, ""));
        sum = u ? LLVMBuildFAdd(e->b, sum, s[u], "") : s[u];
    }
    st[ST_l] = emit_fma(e, st[ST_l], scale, sum);
    return scale;
}

/* Eight keys, summed by themselves first: the error of a sum grows with its length. */
static void group_step(Attn *t, LLVMValueRef j0, LLVMValueRef first, LLVMValueRef *st) {
    Emit *e = t->e;
    LLVMValueRef p[MAX_ROWS][GROUP], s[MAX_ROWS], v[MAX_PART];
    LLVMValueRef scale[MAX_ROWS], sum[MAX_ROWS][MAX_PART];
    for (uint32_t u = 0; u < GROUP; u++) {
        scores(t, j0, gpu_add(e, first, emit_i64(e, u)), s);
        for (uint32_t r = 0; r < t->rows; r++) p[r][u] = s[r];
    }
    for (uint32_t r = 0; r < t->rows; r++) {
        scale[r] = rescale(t, p[r], st + r * state_size(t));
        for (uint32_t n = 0; n < t->ndv; n++) sum[r][n] = emit_f(e, e->f32, 0);
    }
    for (uint32_t u = 0; u < GROUP; u++) {
        shared_part(t, t->v, gpu_add(e, first, emit_i64(e, u)), t->dv, t->ndv, v);
        for (uint32_t r = 0; r < t->rows; r++)
            for (uint32_t n = 0; n < t->ndv; n++) sum[r][n] = emit_fma(e, p[r][u], v[n], sum[r][n]);
    }
    for (uint32_t r = 0; r < t->rows; r++) {
        LLVMValueRef *o = st + r * state_size(t) + ST_o;
        for (uint32_t n = 0; n < t->ndv; n++) o[n] = emit_fma(e, o[n], scale[r], sum[r][n]);
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

static uint32_t queries_of(const Attn *t) {
    return THREADS / t->team * t->rows;
}

/* Keys that any query of the block may see. */
static LLVMValueRef last_key(Attn *t, LLVMValueRef i0) {
    Emit *e = t->e;
    if (!t->a->causal) return t->nj;
    LLVMValueRef shift = emit_expr(e, t->a->causal);
    LLVMValueRef end = gpu_add(e, gpu_add(e, i0, emit_i64(e, queries_of(t))), shift);
    LLVMValueRef v[2] = {end, t->nj};
    return emit_intrinsic(e, "llvm.smin", e->i64, v, 2);
}

static void finish(Attn *t, uint32_t row, LLVMValueRef n_queries, const LLVMValueRef *st) {
    Emit *e = t->e;
    EmitIf in;
    emit_if_begin(e, &in, LLVMBuildICmp(e->b, LLVMIntSLT, t->i[row], n_queries, ""));
    emit_set_sym(e, gpu_axis(t->g, t->a->i)->sym, t->i[row]);
    LLVMValueRef zero = emit_f(e, e->f32, 0);
    LLVMValueRef none = LLVMBuildFCmp(e->b, LLVMRealOEQ, st[ST_l], zero, "");
    emit_override(e, t->a->m, st[ST_m]);
    emit_override(e, t->a->l, st[ST_l]);
    for (uint32_t n = 0; n < t->ndv; n++) {
        LLVMValueRef o = LLVMBuildFDiv(e->b, st[ST_o + n], st[ST_l], "");
        if (t->a->guarded) o = LLVMBuildSelect(e->b, none, zero, o, "");
        emit_push(e);
        emit_set_sym(e, gpu_axis(t->g, t->a->dv)->sym, dim_at(t, t->ndv, n));
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
    if (g->k->tem != TEM_attention ||
        !expr_is_const(t->e->exprs, gpu_axis(t->g, a->d)->extent, &d) ||
        !expr_is_const(t->e->exprs, gpu_axis(t->g, a->dv)->extent, &dv) || d > 256 || dv > 256)
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
    t->rows = MAX_ROWS >> g->j->shrink;
    return true;
}

/* Fewer queries of a team where all would leave multiprocessors without work. */
static void spread_rows(Attn *t, Expr ni) {
    const Gpu *g = t->g;
    int64_t all = gpu_hint(t->e, gpu_points(t->e, g->k, t->a->batch)) * gpu_hint(t->e, ni);
    if (!t->rows) t->rows = 1;
    while (t->rows > 1 && all < (int64_t)g->m->processors * queries_of(t)) t->rows /= 2;
}

static void load_query(Attn *t, uint32_t row) {
    Emit *e = t->e;
    for (uint32_t n = 0; n < t->nd; n++) {
        emit_push(e);
        emit_set_sym(e, gpu_axis(t->g, t->a->i)->sym, t->at[row]);
        emit_set_sym(e, gpu_axis(t->g, t->a->d)->sym, dim_at(t, t->nd, n));
        t->q[row][n] = emit_value(e, t->a->q);
        emit_pop(e);
    }
}

/* The team's queries are so far apart that neighbouring teams have neighbouring ones. */
static void load_queries(Attn *t, LLVMValueRef i0, LLVMValueRef n) {
    Emit *e = t->e;
    LLVMValueRef first = LLVMBuildLShr(e->b, t->g->tid, emit_i64(e, __builtin_ctz(t->team)), "");
    for (uint32_t r = 0; r < t->rows; r++) {
        t->i[r] = gpu_add(e, gpu_add(e, i0, first), emit_i64(e, (int64_t)r * (THREADS / t->team)));
        t->at[r] = inside_or_first(e, t->i[r], n);
        load_query(t, r);
    }
}

bool gpu_attention(Gpu *g) {
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    Attn t = {.g = g, .e = e, .a = &g->k->attn};
    if (!fits(&t)) return false;
    Expr ni = gpu_axis(t.g, t.a->i)->extent;
    spread_rows(&t, ni);
    uint32_t queries = queries_of(&t), each = state_size(&t);
    gpu_batch_begin(g, THREADS, expr_ceildiv(p, ni, expr_const(p, queries)), t.a->batch);
    t.part = LLVMBuildAnd(e->b, g->tid, emit_i64(e, t.team - 1), "");
    t.nj = emit_expr(e, gpu_axis(t.g, t.a->j)->extent);
    LLVMValueRef i0 = gpu_muli(e, g->block[0], queries), n = emit_expr(e, ni);
    load_queries(&t, i0, n);
    t.k = gpu_shared(g, e->f32, t.keys * t.d);
    t.v = gpu_shared(g, e->f32, t.keys * t.dv);
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, t.rows * each);
    for (uint32_t i = 0; i < l->n; i++)
        l->init[i] = emit_f(e, e->f32, i % each == ST_m ? -INFINITY : 0);
    emit_loop_begin(e, l, "tile", emit_i64(e, 0), last_key(&t, i0), emit_i64(e, t.keys), false);
    for (uint32_t i = 0; i < l->n; i++) l->next[i] = l->phi[i];
    tile_step(&t, l->i, l->next, l->n);
    emit_loop_end(e, l);
    for (uint32_t r = 0; r < t.rows; r++) finish(&t, r, n, l->out + r * each);
    gpu_batch_end(g);
    return true;
}
