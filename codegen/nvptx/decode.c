/* Attention of few queries, one or a few per head, over many keys: reading keys and values once is
 * all the time there is. A block takes the queries that share keys and values (all heads of a
 * group) and a part of the keys; the blocks of a cluster have the parts of one group and write what
 * they found into each other's shared memory, where each joins an equal share in a fixed order.
 *
 * Keys that the run itself does not write (all but the last, of a cache that grows in place) are
 * asked for before the kernels in front have ended.
 *
 * A team of neighbouring threads has one key at a time, each thread a vector of its elements and,
 * of every query, the same part of q and of the sum over values. Teams are powers of two; of a head
 * of another size, threads past its elements read the last ones again and add nothing. */
#include "codegen/nvptx/gpu.h"
#include "codegen/nvptx/hopper/hopper.h"
#include <math.h>
#include <string.h>

enum {
    WARP = 32,
    THREADS = 256,
    WARPS = THREADS / WARP,
    MOST_QUERIES = 16,  /* of all heads that share keys */
    HELD_QUERIES = 8,   /* of a block, and ... */
    HELD_ELEMENTS = 32, /* ... elements of theirs that a thread has */
    KEYS = 8,           /* that a team has asked for at a time, ... */
    AHEAD_KEYS = 4,     /* ... and where it asks for a round while it has another */
    MOST_ROWS = 65535,  /* of blocks along y */
    MOST_PARTS = 8,     /* blocks of a cluster */
    GROWN_KEYS = 2048,  /* expected where keys are of no fixed number: too many parts cost little */
    LINE = 128,         /* bytes: no two keys share one of those that are read early */
    MOST_LOADS = 8,     /* that a key and its value are made of, to be asked for early */
    SHARED_BYTES = 48 * 1024
};

typedef struct Decode {
    Gpu *g;
    Emit *e;
    const KAttn *a;
    uint32_t d, dv, team; /* sizes; threads of a team */
    uint32_t used;        /* of these, the ones that have elements */
    uint32_t own, shared; /* batch axes that keys depend on, and those that they do not, and i */
    uint32_t queries;     /* of a block */
    uint32_t keys;        /* of a team at a time */
    uint32_t parts;
    LLVMValueRef lane, warp,
        rank;          /* of the thread in its team, or of the last one that has elements */
    LLVMValueRef part; /* of the block in its cluster */
    LLVMValueRef nj;
    /* keys before this one are what they were before the run: asked for early; 0: none */
    Expr held;
    Expr nq, query[HELD_QUERIES]; /* in all; of the block, kept inside */
    LLVMValueRef q[HELD_QUERIES];
} Decode;

/* What is known of one query so far: maximum, sum, and vector of the sum over values; three values
 * in a row, as loops carry them. */
typedef struct Known {
    LLVMValueRef m, l, o;
} Known;

static LLVMValueRef shr(Emit *e, LLVMValueRef a, uint32_t by) {
    return LLVMBuildLShr(e->b, a, emit_i64(e, by), "");
}

static LLVMValueRef exp_of(Emit *e, LLVMValueRef x) {
    return emit_math(e, OP_exp, x, NULL);
}

static uint32_t axis_of(uint32_t mask) {
    return (uint32_t)__builtin_ctz(mask);
}

/* --- The kernel's shape ----------------------------------------------------------------------- */

static bool roles_only(const Decode *t) {
    const Gpu *g = t->g;
    const KAttn *a = t->a;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        if (o->op == K_kreduce && v != a->s && v != a->m && v != a->l && v != a->o) return false;
        if (o->op == K_katomic) return false;
        if (o->op == K_kstore && t->e->domains[v] & ~(a->batch | a->i | a->dv)) return false;
    }
    return g->k->ops[a->q].dtype == DT_f32 && g->k->ops[a->k].dtype == DT_f32 &&
           g->k->ops[a->v].dtype == DT_f32 && g->k->ops[a->score].dtype == DT_f32;
}

/* Vectors along d of what keys are made of, or along dv of values. */
static uint32_t lanes_of(const Decode *t, KVal root, uint32_t axis) {
    Gpu *g = t->g;
    bool *skip = ARENA_ARRAY(t->e->arena, bool, g->k->nops);
    bool *cone = ARENA_ARRAY(t->e->arena, bool, g->k->nops);
    rows_cone(g->rows, root, cone);
    for (KVal v = 1; v < g->k->nops; v++) skip[v] = !cone[v];
    return gpu_lanes(g, axis, skip);
}

static bool fits(Decode *t) {
    const Gpu *g = t->g;
    const KAttn *a = t->a;
    int64_t d, dv, lo, hi;
    if (!t->e->isa->warpgroups || g->k->tem != TEM_attention || !roles_only(t)) return false;
    if (!expr_is_const(t->e->exprs, gpu_axis(t->g, a->d)->extent, &d) || d > 256 ||
        !expr_is_const(t->e->exprs, gpu_axis(t->g, a->dv)->extent, &dv) || dv != d)
        return false;
    t->d = t->dv = (uint32_t)d;
    uint32_t keys = t->e->domains[a->k] | t->e->domains[a->v];
    t->own = a->batch & keys;
    t->shared = (a->batch & ~keys) | a->i;
    t->nq = gpu_points(t->e, g->k, t->shared);
    expr_range(t->e->exprs, t->nq, &lo, &hi);
    if (gpu_hint(t->e, t->nq) > MOST_QUERIES || hi > MOST_ROWS) return false;
    t->e->lanes = lanes_of(t, a->k, axis_of(a->d));
    if (t->e->lanes <= 1 || lanes_of(t, a->v, axis_of(a->dv)) != t->e->lanes) return false;
    t->used = t->d / t->e->lanes;
    for (t->team = 1; t->team < t->used;) t->team *= 2;
    return t->team <= WARP;
}

static uint32_t shared_bytes(const Decode *t) {
    return (WARPS + 1) * t->queries * (t->dv + 2) * 4;
}

/* Queries of a block as registers and shared memory allow; parts while multiprocessors are idle. */
static void divide(Decode *t) {
    Emit *e = t->e;
    int64_t nq = gpu_hint(e, t->nq);
    uint32_t keys_of_team = t->held ? AHEAD_KEYS : KEYS;
    t->keys = keys_of_team >> (t->g->j->shrink < 2 ? t->g->j->shrink : 2);
    t->queries = HELD_ELEMENTS / e->lanes;
    if (t->queries > HELD_QUERIES) t->queries = HELD_QUERIES;
    while (t->queries > 1 && (t->queries / 2 >= nq || shared_bytes(t) > SHARED_BYTES))
        t->queries /= 2;
    int64_t groups =
        gpu_hint(e, gpu_points(e, t->g->k, t->own)) * ((nq + t->queries - 1) / t->queries);
    int64_t keys = gpu_hint(e, gpu_axis(t->g, t->a->j)->extent), known;
    if (!expr_is_const(e->exprs, gpu_axis(t->g, t->a->j)->extent, &known) && keys < GROWN_KEYS)
        keys = GROWN_KEYS;
    int64_t rounds = keys / (WARPS * (WARP / t->team) * t->keys / 2);
    for (t->parts = 1; t->parts < MOST_PARTS && t->parts < rounds &&
                       groups * t->parts * 2 <= 2 * (int64_t)t->g->m->processors &&
                       t->queries * t->dv % (t->parts * 2) == 0;)
        t->parts *= 2;
}

/* --- Queries ---------------------------------------------------------------------------------- */

static void pin_loads(Emit *e) {
    hop_asm(e, e->voidt, "", "~{memory}", NULL, 0); /* code generation moves loads to their uses */
}

/* What the query in the scope begins with. */
static void request_query(Decode *t, const bool *of_query) {
    for (KVal v = 1; v < t->g->k->nops; v++) {
        uint32_t dom = t->e->domains[v];
        if (of_query[v] && dom & t->a->d && !(dom & t->a->j) && gpu_is_request(t->g, v))
            emit_request(t->e, v);
    }
}

/* The loads of all come before the arithmetic of any: the kernels in front have only just ended. */
static void load_queries(Decode *t) {
    Emit *e = t->e;
    EmitScope *outer = e->scope, *in[HELD_QUERIES];
    LLVMValueRef first = gpu_muli(e, t->g->block[1], t->queries);
    LLVMValueRef last = LLVMBuildSub(e->b, emit_expr(e, t->nq), emit_i64(e, 1), "");
    bool *of_query = ARENA_ARRAY(e->arena, bool, t->g->k->nops);
    rows_cone(t->g->rows, t->a->q, of_query);
    for (uint32_t i = 0; i < t->queries; i++) {
        LLVMValueRef at = gpu_smaller(e, gpu_add(e, first, emit_i64(e, i)), last);
        t->query[i] = emit_position(e, "query", t->nq, at);
        in[i] = emit_push(e);
        gpu_decode(e, t->g->k, t->shared, t->query[i]);
        gpu_bind_lanes(t->g, axis_of(t->a->d), t->rank);
        request_query(t, of_query);
        (void)emit_switch(e, outer);
    }
    pin_loads(e);
    for (uint32_t i = 0; i < t->queries; i++) {
        (void)emit_switch(e, in[i]);
        t->q[i] = emit_value_lanes(e, t->a->q);
        (void)emit_switch(e, outer);
    }
}

/* --- Keys ------------------------------------------------------------------------------------- */

/* One key of the team's: where its elements and its values are read. */
typedef struct Key {
    EmitScope *k, *v, *at;
    LLVMValueRef in; /* inside of the block's part */
} Key;

/* Loads that keys (axis d) or values (axis dv) begin with. */
static bool is_asked(const Decode *t, KVal v, uint32_t axis) {
    uint32_t dom = t->e->domains[v];
    return dom & t->a->j && dom & axis && gpu_is_request(t->g, v);
}

/* How many keys of the load, from the first on, the run does not write; 0: none. */
static Expr kept_keys(const Decode *t, KVal v) {
    const KOp *o = &t->g->k->ops[v];
    const Appended *x = &t->g->j->appended[o->buf];
    ExprPool *p = t->e->exprs;
    Expr per, rest;
    int64_t lo, hi;
    if (!x->rows || o->mask || o->in[0] || x->inner * (int64_t)dtype_bytes((DType)o->dtype) % LINE)
        return 0;
    if (!expr_affine(p, o->index, gpu_axis(t->g, t->a->j)->sym, &per, &rest)) return 0;
    expr_range(p, expr_mod(p, rest, expr_const(p, x->inner * x->room)), &lo, &hi);
    return expr_is_value(p, per, x->inner) && lo >= 0 && hi < x->inner ? x->rows : 0;
}

static Expr held_keys(const Decode *t) {
    Expr held = 0;
    uint32_t n = 0;
    for (KVal v = 1; v < t->g->k->nops; v++) {
        if (!is_asked(t, v, t->a->d | t->a->dv)) continue;
        Expr kept = kept_keys(t, v);
        if (!kept || (held && kept != held) || ++n > MOST_LOADS) return 0;
        held = kept;
    }
    return held;
}

/* What scores need of the key beside its elements. */
static void request_of_key(Decode *t, EmitScope *at) {
    const KAttn *a = t->a;
    EmitScope *outer = emit_switch(t->e, at);
    for (KVal v = 1; v < t->g->k->nops; v++) {
        const KOp *o = &t->g->k->ops[v];
        uint32_t dom = t->e->domains[v];
        if (o->op == K_kload && !o->in[0] && t->g->rows->need[v] && dom & a->j &&
            !(dom & (a->d | a->dv | t->shared)))
            (void)emit_value(t->e, v);
    }
    (void)emit_switch(t->e, outer);
}

/* Of keys past `last` that one is read. */
static void place_key(Decode *t, Key *key, LLVMValueRef j, LLVMValueRef end, LLVMValueRef last) {
    Emit *e = t->e;
    Expr nj = gpu_axis(t->g, t->a->j)->extent;
    EmitScope *outer = e->scope;
    key->in = gpu_below(e, j, end);
    key->at = emit_push(e);
    gpu_decode(e, t->g->k, t->a->j, emit_position(e, "key", nj, gpu_smaller(e, j, last)));
    key->k = emit_push(e);
    gpu_bind_lanes(t->g, axis_of(t->a->d), t->rank);
    (void)emit_switch(e, key->at);
    key->v = emit_push(e);
    gpu_bind_lanes(t->g, axis_of(t->a->dv), t->rank);
    (void)emit_switch(e, outer);
}

static LLVMValueRef value_in(Decode *t, EmitScope *at, KVal v) {
    EmitScope *outer = emit_switch(t->e, at);
    LLVMValueRef x = emit_value(t->e, v);
    (void)emit_switch(t->e, outer);
    return x;
}

static LLVMValueRef value_at(Decode *t, EmitScope *at, KVal v) {
    EmitScope *outer = emit_switch(t->e, at);
    LLVMValueRef x = emit_value_lanes(t->e, v);
    (void)emit_switch(t->e, outer);
    return x;
}

/* The score of query i at the key. */
static LLVMValueRef score(Decode *t, const Key *key, LLVMValueRef k, uint32_t i) {
    Emit *e = t->e;
    LLVMValueRef s = emit_f(e, e->f32, 0);
    for (uint32_t n = 0; n < e->lanes; n++) {
        LLVMValueRef at = emit_i64(e, n), x = LLVMBuildExtractElement(e->b, t->q[i], at, "");
        s = emit_fma(e, x, LLVMBuildExtractElement(e->b, k, at, ""), s);
    }
    if (t->used < t->team) {
        LLVMValueRef own = LLVMBuildAnd(e->b, t->lane, emit_i64(e, t->team - 1), "");
        s = LLVMBuildSelect(e->b, gpu_below(e, own, emit_i64(e, t->used)), s, emit_f(e, e->f32, 0),
                            "");
    }
    for (uint32_t off = 1; off < t->team; off *= 2)
        s = LLVMBuildFAdd(e->b, s, gpu_shuffle(e, s, off), "");
    EmitScope *outer = emit_switch(e, key->at);
    emit_push(e);
    gpu_decode(e, t->g->k, t->shared, t->query[i]);
    emit_override(e, t->a->s, s);
    LLVMValueRef x = emit_value(e, t->a->score);
    (void)emit_switch(e, outer);
    return LLVMBuildSelect(e->b, key->in, x, emit_f(e, e->f32, -INFINITY), "");
}

/* --- Joining ---------------------------------------------------------------------------------- */

/* What exponents are taken from: the maximum, or 0 where nothing was seen. */
static LLVMValueRef base_of(Emit *e, LLVMValueRef m) {
    LLVMValueRef none = LLVMBuildFCmp(e->b, LLVMRealOEQ, m, emit_f(e, e->f32, -INFINITY), "");
    return LLVMBuildSelect(e->b, none, emit_f(e, e->f32, 0), m, "");
}

static LLVMValueRef weight(Emit *e, LLVMValueRef m, LLVMValueRef base) {
    return exp_of(e, LLVMBuildFSub(e->b, m, base, ""));
}

static LLVMValueRef scaled(Emit *e, LLVMValueRef o, LLVMValueRef by) {
    return LLVMBuildFMul(e->b, o, emit_is_vector(o) ? emit_splat(e, by) : by, "");
}

/* n more keys for one query. */
static void add_keys(Decode *t, Known *q, const LLVMValueRef *s, const LLVMValueRef *v) {
    Emit *e = t->e;
    LLVMValueRef m = q->m;
    for (uint32_t u = 0; u < t->keys; u++) m = emit_fold_join(e, FOLD_max, DT_f32, m, s[u]);
    LLVMValueRef base = base_of(e, m), by = weight(e, q->m, base);
    q->m = m;
    q->l = LLVMBuildFMul(e->b, q->l, by, "");
    q->o = scaled(e, q->o, by);
    for (uint32_t u = 0; u < t->keys; u++) {
        LLVMValueRef p = weight(e, s[u], base);
        q->l = LLVMBuildFAdd(e->b, q->l, p, "");
        q->o = emit_fma(e, emit_splat(e, p), v[u], q->o);
    }
}

static LLVMValueRef shuffle_vector(Emit *e, LLVMValueRef v, uint32_t off) {
    LLVMValueRef r = LLVMGetPoison(LLVMTypeOf(v));
    for (uint32_t n = 0; n < e->lanes; n++) {
        LLVMValueRef x = LLVMBuildExtractElement(e->b, v, emit_i64(e, n), "");
        r = LLVMBuildInsertElement(e->b, r, gpu_shuffle(e, x, off), emit_i64(e, n), "");
    }
    return r;
}

/* The teams of a warp: all get the same. */
static void join_teams(Decode *t, Known *q) {
    Emit *e = t->e;
    for (uint32_t off = t->team; off < WARP; off *= 2) {
        Known x = {gpu_shuffle(e, q->m, off), gpu_shuffle(e, q->l, off),
                   shuffle_vector(e, q->o, off)};
        LLVMValueRef m = emit_fold_join(e, FOLD_max, DT_f32, q->m, x.m), base = base_of(e, m);
        LLVMValueRef a = weight(e, q->m, base), b = weight(e, x.m, base);
        q->m = m;
        q->l = LLVMBuildFAdd(e->b, LLVMBuildFMul(e->b, q->l, a, ""),
                             LLVMBuildFMul(e->b, x.l, b, ""), "");
        q->o = LLVMBuildFAdd(e->b, scaled(e, q->o, a), scaled(e, x.o, b), "");
    }
}

/* Partial results in shared memory, [n][queries] of m, of l, and of dv elements of o. */
typedef struct Partials {
    LLVMValueRef m, l, o;
} Partials;

static Partials partials(Decode *t, uint32_t n) {
    Gpu *g = t->g;
    LLVMTypeRef f = t->e->f32;
    return (Partials){.m = gpu_shared(g, f, n * t->queries),
                      .l = gpu_shared(g, f, n * t->queries),
                      .o = gpu_shared(g, f, n * t->queries * t->dv)};
}

static LLVMValueRef read_part(Decode *t, LLVMValueRef p, LLVMValueRef at) {
    Emit *e = t->e;
    return LLVMBuildLoad2(e->b, e->f32, emit_gep(e, e->f32, p, at), "");
}

/* Query i of n partial results, joined in their order; its element lies at `first` of the first and
 * `stride` further on in each other. */
static Known join_partials(Decode *t, const Partials *p, uint32_t n, LLVMValueRef i,
                           LLVMValueRef first, uint32_t stride) {
    Emit *e = t->e;
    LLVMValueRef m[WARPS], l[WARPS], o[WARPS];
    Known k = {.m = emit_f(e, e->f32, -INFINITY)};
    for (uint32_t w = 0; w < n; w++) {
        LLVMValueRef at = gpu_add(e, i, emit_i64(e, (int64_t)w * t->queries));
        m[w] = read_part(t, p->m, at);
        l[w] = read_part(t, p->l, at);
        o[w] = read_part(t, p->o, gpu_add(e, first, emit_i64(e, (int64_t)w * stride)));
        k.m = emit_fold_join(e, FOLD_max, DT_f32, k.m, m[w]);
    }
    LLVMValueRef base = base_of(e, k.m);
    k.l = k.o = emit_f(e, e->f32, 0);
    for (uint32_t w = 0; w < n; w++) {
        LLVMValueRef by = weight(e, m[w], base);
        k.l = emit_fma(e, l[w], by, k.l);
        k.o = emit_fma(e, o[w], by, k.o);
    }
    return k;
}

static void put(Decode *t, const Partials *p, LLVMValueRef at, LLVMValueRef x, const Known *k) {
    Emit *e = t->e;
    LLVMValueRef to = gpu_add(e, gpu_muli(e, at, t->dv), x);
    LLVMBuildStore(e->b, k->m, emit_gep(e, e->f32, p->m, at));
    LLVMBuildStore(e->b, k->l, emit_gep(e, e->f32, p->l, at));
    emit_store_ptr(e, k->o, emit_gep(e, e->f32, p->o, to), emit_is_vector(k->o) ? 16 : 4);
}

/* --- Results ---------------------------------------------------------------------------------- */

/* Results of a query of the block at element x, where there is such a query. */
static void finish(Decode *t, LLVMValueRef i, LLVMValueRef x, const Known *k) {
    Emit *e = t->e;
    EmitIf in, first;
    LLVMValueRef q = gpu_add(e, gpu_muli(e, t->g->block[1], t->queries), i),
                 zero = emit_f(e, e->f32, 0);
    emit_if_begin(e, &in, gpu_below(e, q, emit_expr(e, t->nq)));
    gpu_decode(e, t->g->k, t->shared, emit_position(e, "q", t->nq, q));
    gpu_decode(e, t->g->k, t->a->dv, emit_new_sym(e, "x", t->dv - 1, x));
    LLVMValueRef o = LLVMBuildFDiv(e->b, k->o, k->l, "");
    LLVMValueRef none = LLVMBuildFCmp(e->b, LLVMRealOEQ, k->l, zero, "");
    if (t->a->guarded) o = LLVMBuildSelect(e->b, none, zero, o, "");
    emit_override(e, t->a->m, k->m);
    emit_override(e, t->a->l, k->l);
    emit_override(e, t->a->o, o);
    for (KVal v = 1; v < t->g->k->nops; v++) {
        if (t->g->k->ops[v].op != K_kstore) continue;
        bool statistics = !(e->domains[v] & t->a->dv);
        LLVMValueRef once = LLVMBuildICmp(e->b, LLVMIntEQ, x, emit_i64(e, 0), "");
        if (statistics) emit_if_begin(e, &first, once);
        emit_store(e, v);
        if (statistics) emit_if_end(e, &first);
    }
    emit_if_end(e, &in);
}

/* For elements first, first + THREADS ... of `count` elements of the block's queries. */
typedef void Each(Decode *t, const Partials *from, const Partials *to, LLVMValueRef i,
                  LLVMValueRef x);

static void for_each(Decode *t, LLVMValueRef first, uint32_t count, const Partials *from,
                     const Partials *to, Each *fn) {
    Emit *e = t->e;
    for (uint32_t n = 0; n < count; n += THREADS) {
        EmitIf in;
        LLVMValueRef own = gpu_add(e, t->g->tid, emit_i64(e, n));
        emit_if_begin(e, &in, gpu_below(e, own, emit_i64(e, count)));
        LLVMValueRef at = gpu_add(e, first, own), dv = emit_i64(e, t->dv);
        fn(t, from, to, LLVMBuildUDiv(e->b, at, dv, ""), LLVMBuildURem(e->b, at, dv, ""));
        emit_if_end(e, &in);
    }
}

static Known of_warps(Decode *t, const Partials *from, LLVMValueRef i, LLVMValueRef x) {
    LLVMValueRef first = gpu_add(t->e, gpu_muli(t->e, i, t->dv), x);
    return join_partials(t, from, WARPS, i, first, t->queries * t->dv);
}

static void finish_warps(Decode *t, const Partials *from, const Partials *to, LLVMValueRef i,
                         LLVMValueRef x) {
    (void)to;
    Known k = of_warps(t, from, i, x);
    finish(t, i, x, &k);
}

/* Elements of all queries that one block of the cluster joins. */
static uint32_t share_of(const Decode *t) {
    return t->queries * t->dv / t->parts;
}

/* What the block's warps know goes to the block that joins it, [parts][queries] of m, of l, and
 * [parts][share] of o. */
static void push_warps(Decode *t, const Partials *from, const Partials *to, LLVMValueRef i,
                       LLVMValueRef x) {
    Emit *e = t->e;
    Known k = of_warps(t, from, i, x);
    LLVMValueRef share = emit_i64(e, share_of(t)), at = gpu_add(e, gpu_muli(e, i, t->dv), x);
    LLVMValueRef owner = LLVMBuildTrunc(e->b, LLVMBuildUDiv(e->b, at, share, ""), e->i32, "");
    LLVMValueRef row = gpu_add(e, gpu_muli(e, t->part, t->queries), i);
    LLVMValueRef o =
        gpu_add(e, gpu_muli(e, t->part, share_of(t)), LLVMBuildURem(e->b, at, share, ""));
    LLVMValueRef p[3] = {emit_gep(e, e->f32, to->m, row), emit_gep(e, e->f32, to->l, row),
                         emit_gep(e, e->f32, to->o, o)};
    LLVMValueRef v[3] = {k.m, k.l, k.o};
    for (int n = 0; n < 3; n++)
        hop_cluster_store(e, LLVMBuildPtrToInt(e->b, p[n], e->i32, ""), owner, v[n]);
}

static void join_blocks(Decode *t, const Partials *from, const Partials *to, LLVMValueRef i,
                        LLVMValueRef x) {
    (void)to;
    Emit *e = t->e;
    LLVMValueRef at = gpu_add(e, gpu_muli(e, i, t->dv), x);
    LLVMValueRef first = LLVMBuildURem(e->b, at, emit_i64(e, share_of(t)), "");
    Known k = join_partials(t, from, t->parts, i, first, share_of(t));
    finish(t, i, x, &k);
}

/* --- The kernel ------------------------------------------------------------------------------- */

static LLVMValueRef last_key(Decode *t) {
    return LLVMBuildSub(t->e->b, t->nj, emit_i64(t->e, 1), "");
}

static LLVMValueRef key_number(Decode *t, LLVMValueRef at, uint32_t u) {
    return gpu_add(t->e, at, emit_i64(t->e, (int64_t)u * (WARP / t->team)));
}

static void place_keys(Decode *t, Key *key, LLVMValueRef at, LLVMValueRef end, LLVMValueRef last) {
    for (uint32_t u = 0; u < t->keys; u++) place_key(t, &key[u], key_number(t, at, u), end, last);
}

/* What a round's keys and values are made of, as it lies in memory: load v of key u. */
typedef struct Round {
    uint32_t n;
    KVal v[MOST_LOADS];
    LLVMValueRef x[MOST_LOADS * KEYS];
} Round;

static void list_loads(const Decode *t, Round *r) {
    r->n = 0;
    for (KVal v = 1; v < t->g->k->nops; v++)
        if (r->n < MOST_LOADS && is_asked(t, v, t->a->d | t->a->dv)) r->v[r->n++] = v;
}

static EmitScope *scope_of(const Decode *t, const Key *key, KVal v) {
    return t->e->domains[v] & t->a->d ? key->k : key->v;
}

/* All keys, then all values. */
static void ask(Decode *t, LLVMValueRef at, LLVMValueRef end, LLVMValueRef last, Round *r) {
    Key key[KEYS];
    place_keys(t, key, at, end, last);
    for (uint32_t values = 0; values < 2; values++)
        for (uint32_t i = 0; i < r->n; i++)
            for (uint32_t u = 0; u < t->keys; u++)
                if ((scope_of(t, &key[u], r->v[i]) == key[u].v) == values)
                    r->x[i * KEYS + u] = value_in(t, scope_of(t, &key[u], r->v[i]), r->v[i]);
}

/* Asks anew where `again`; what was asked for before stays elsewhere. */
static void ask_if(Decode *t, LLVMValueRef again, LLVMValueRef at, LLVMValueRef end, Round *r) {
    Emit *e = t->e;
    EmitIf in;
    Round more = *r;
    emit_if_begin(e, &in, again);
    ask(t, at, end, last_key(t), &more);
    LLVMBasicBlockRef then = LLVMGetInsertBlock(e->b);
    emit_if_end(e, &in);
    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t u = 0; u < t->keys; u++) {
            LLVMValueRef *x = &r->x[i * KEYS + u], phi = LLVMBuildPhi(e->b, LLVMTypeOf(*x), "");
            LLVMAddIncoming(phi, x, &in.pre, 1);
            LLVMAddIncoming(phi, &more.x[i * KEYS + u], &then, 1);
            *x = phi;
        }
}

/* Behind the kernels in front: what could not be read early. */
static void ask_rest(Decode *t, LLVMValueRef at, LLVMValueRef end, Round *r) {
    Emit *e = t->e;
    LLVMValueRef held = gpu_below(e, key_number(t, at, t->keys - 1), emit_expr(e, t->held));
    ask_if(t, LLVMBuildAnd(e->b, gpu_below(e, at, end), LLVMBuildNot(e->b, held, ""), ""), at, end,
           r);
}

/* The last key that may be read while kernels in front still run. */
static LLVMValueRef last_held(Decode *t) {
    Emit *e = t->e;
    LLVMValueRef last[2] = {LLVMBuildSub(e->b, emit_expr(e, t->held), emit_i64(e, 1), ""),
                            emit_i64(e, 0)};
    return emit_intrinsic(e, "llvm.smax", e->i64, last, 2);
}

/* A round's keys are counted in. */
static void take_keys(Decode *t, LLVMValueRef at, LLVMValueRef end, const Round *r, bool first,
                      Known *known) {
    Emit *e = t->e;
    Key key[KEYS];
    LLVMValueRef k[KEYS], v[KEYS], s[KEYS];
    place_keys(t, key, at, end, last_key(t));
    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t u = 0; u < t->keys; u++) {
            EmitScope *outer = emit_switch(e, scope_of(t, &key[u], r->v[i]));
            emit_override(e, r->v[i], r->x[i * KEYS + u]);
            (void)emit_switch(e, outer);
        }
    for (uint32_t u = 0; u < t->keys; u++) request_of_key(t, key[u].at);
    pin_loads(e);
    if (first) load_queries(t);
    for (uint32_t u = 0; u < t->keys; u++) k[u] = value_at(t, key[u].k, t->a->k);
    for (uint32_t u = 0; u < t->keys; u++) v[u] = value_at(t, key[u].v, t->a->v);
    for (uint32_t i = 0; i < t->queries; i++) {
        for (uint32_t u = 0; u < t->keys; u++) s[u] = score(t, &key[u], k[u], i);
        add_keys(t, &known[i], s, v);
    }
}

/* The block's part of the keys; each round, every team takes `keys` of them, from `own` on. */
typedef struct Walk {
    LLVMValueRef from, end, step, own;
} Walk;

static Walk walk_of(Decode *t) {
    Emit *e = t->e;
    ExprPool *p = e->exprs;
    uint32_t of_warp = WARP / t->team * t->keys;
    Expr warps =
        expr_ceildiv(p, gpu_axis(t->g, t->a->j)->extent, expr_const(p, t->parts * of_warp));
    LLVMValueRef size = emit_expr(e, expr_muli(p, warps, of_warp));
    LLVMValueRef from = LLVMBuildMul(e->b, t->part, size, "");
    LLVMValueRef own = shr(e, t->lane, (uint32_t)__builtin_ctz(t->team));
    return (Walk){.from = from,
                  .end = gpu_smaller(e, gpu_add(e, from, size), t->nj),
                  .step = emit_i64(e, WARPS * of_warp),
                  .own = gpu_add(e, gpu_muli(e, t->warp, of_warp), own)};
}

/* What a loop carries of queries, and of the round asked for ahead. */
static void carry(const Decode *t, const Known *known, const Round *ahead, LLVMValueRef *to) {
    for (uint32_t i = 0; i < t->queries; i++) memcpy(&to[3 * i], &known[i], sizeof *known);
    to += 3 * t->queries;
    for (uint32_t i = 0; ahead && i < ahead->n; i++)
        memcpy(&to[i * t->keys], &ahead->x[i * KEYS], t->keys * sizeof *to);
}

static void take_carried(const Decode *t, const LLVMValueRef *from, Known *known, Round *ahead) {
    for (uint32_t i = 0; i < t->queries; i++) memcpy(&known[i], &from[3 * i], sizeof *known);
    from += 3 * t->queries;
    for (uint32_t i = 0; ahead && i < ahead->n; i++)
        memcpy(&ahead->x[i * KEYS], &from[i * t->keys], t->keys * sizeof *from);
}

static void walk(Decode *t, const Walk *w, Round *round, Known *known) {
    Emit *e = t->e;
    LLVMValueRef at = gpu_add(e, w->from, w->own);
    ask(t, at, w->end, last_key(t), round);
    take_keys(t, at, w->end, round, true, known);
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, 3 * t->queries);
    carry(t, known, NULL, l->init);
    emit_loop_begin(e, l, "keys", gpu_add(e, w->from, w->step), w->end, w->step, false);
    take_carried(t, l->phi, known, NULL);
    at = gpu_add(e, l->i, w->own);
    ask(t, at, w->end, last_key(t), round);
    take_keys(t, at, w->end, round, false, known);
    carry(t, known, NULL, l->next);
    emit_loop_end(e, l);
    take_carried(t, l->out, known, NULL);
}

/* Every round is asked for while the one in front of it is counted in, the first two while kernels
 * in front still run, as far as the run does not write their keys. What threads read then in place
 * of the others is never used, and is no byte of theirs: it would stay in the cache of the
 * multiprocessor. */
static void walk_ahead(Decode *t, const Walk *w, Round *round, Known *known) {
    Emit *e = t->e;
    Round next = *round;
    LLVMValueRef at = gpu_add(e, w->from, w->own), after = gpu_add(e, at, w->step),
                 last = last_held(t);
    ask(t, at, w->end, last, round);
    ask(t, after, w->end, last, &next);
    pin_loads(e);
    gpu_wait(t->g);
    ask_rest(t, at, w->end, round);
    ask_rest(t, after, w->end, &next);
    take_keys(t, at, w->end, round, true, known);
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, 3 * t->queries + next.n * t->keys);
    carry(t, known, &next, l->init);
    emit_loop_begin(e, l, "keys", gpu_add(e, w->from, w->step), w->end, w->step, false);
    take_carried(t, l->phi, known, &next);
    *round = next;
    at = gpu_add(e, l->i, w->own), after = gpu_add(e, at, w->step);
    ask_if(t, gpu_below(e, after, w->end), after, w->end, &next);
    take_keys(t, at, w->end, round, false, known);
    carry(t, known, &next, l->next);
    emit_loop_end(e, l);
    take_carried(t, l->out, known, NULL);
}

/* All keys of the block's part. */
static void walk_keys(Decode *t, Known *known) {
    Emit *e = t->e;
    Walk w = walk_of(t);
    Round round;
    for (uint32_t i = 0; i < t->queries; i++)
        known[i] = (Known){emit_f(e, e->f32, -INFINITY), emit_f(e, e->f32, 0),
                           LLVMConstNull(emit_vec(e->f32, e->lanes))};
    list_loads(t, &round);
    (t->held ? walk_ahead : walk)(t, &w, &round, known);
}

static void launch(Decode *t) {
    Gpu *g = t->g;
    Emit *e = t->e;
    ExprPool *p = e->exprs;
    Expr groups = gpu_points(e, g->k, t->own);
    Expr chunks = expr_ceildiv(p, t->nq, expr_const(p, t->queries));
    gpu_launch(g, THREADS, expr_muli(p, groups, t->parts), chunks, 0);
    if (t->parts > 1) {
        g->j->cluster[0] = t->parts;
        g->j->cluster[1] = g->j->cluster[2] = 1;
    }
    uint32_t bits = (uint32_t)__builtin_ctz(t->parts);
    t->part = LLVMBuildAnd(e->b, g->block[0], emit_i64(e, t->parts - 1), "");
    LLVMValueRef group = shr(e, g->block[0], bits);
    gpu_decode(e, g->k, t->own, emit_position(e, "group", groups, group));
    t->lane = LLVMBuildAnd(e->b, g->tid, emit_i64(e, WARP - 1), "");
    t->warp = shr(e, g->tid, 5);
    t->rank = LLVMBuildAnd(e->b, g->tid, emit_i64(e, t->team - 1), "");
    if (t->used < t->team) t->rank = gpu_smaller(e, t->rank, emit_i64(e, t->used - 1));
    t->nj = emit_expr(e, gpu_axis(t->g, t->a->j)->extent);
    if (t->parts > 1) hop_cluster_arrive(e); /* blocks write into those that have begun */
}

/* From what the warps know to stored results. */
static void join(Decode *t, Known *known) {
    Emit *e = t->e;
    EmitIf lead;
    uint32_t count = t->queries * t->dv;
    Partials warps = partials(t, WARPS);
    LLVMValueRef zero = emit_i64(e, 0);
    for (uint32_t i = 0; i < t->queries; i++) join_teams(t, &known[i]);
    emit_if_begin(e, &lead, gpu_below(e, t->lane, emit_i64(e, t->used)));
    for (uint32_t i = 0; i < t->queries; i++)
        put(t, &warps, gpu_add(e, gpu_muli(e, t->warp, t->queries), emit_i64(e, i)),
            gpu_muli(e, t->rank, e->lanes), &known[i]);
    emit_if_end(e, &lead);
    gpu_barrier(e);
    e->lanes = 1;
    if (t->parts == 1) {
        for_each(t, zero, count, &warps, NULL, finish_warps);
        return;
    }
    Partials blocks = {.m = gpu_shared(t->g, e->f32, t->parts * t->queries),
                       .l = gpu_shared(t->g, e->f32, t->parts * t->queries),
                       .o = gpu_shared(t->g, e->f32, count)};
    hop_cluster_wait(e);
    for_each(t, zero, count, &warps, &blocks, push_warps);
    hop_cluster_sync(e);
    for_each(t, gpu_muli(e, t->part, share_of(t)), share_of(t), &blocks, NULL, join_blocks);
}

bool gpu_decode_attention(Gpu *g) {
    Decode t = {.g = g, .e = g->e, .a = &g->k->attn};
    Known known[HELD_QUERIES];
    if (!fits(&t)) {
        g->e->lanes = 1;
        return false;
    }
    t.held = held_keys(&t);
    divide(&t);
    if (t.held) g->order = GPU_WAITS_LATER;
    launch(&t);
    walk_keys(&t, known);
    join(&t, known);
    g->j->note = arena_printf(g->j->arena, "few queries, keys in %u parts", t.parts);
    return true;
}
