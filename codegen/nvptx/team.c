/* Threads that work on one row and join their folds: by shuffles inside of a warp, through shared
 * memory across the warps of a block, and through each other's across the blocks of a cluster.
 * Every thread then knows every fold. */
#include "codegen/nvptx/gpu.h"
#include "codegen/nvptx/hopper/hopper.h"

uint32_t gpu_fold_width(const Gpu *g, KVal v) {
    return g->k->ops[v].fold >= FOLD_argmax ? 2 : 1;
}

DType gpu_fold_type(const Gpu *g, KVal v) {
    return (DType)g->k->ops[g->k->ops[v].in[0]].dtype;
}

uint32_t gpu_fold_init(Gpu *g, const Pass *p, uint32_t lanes, LLVMValueRef *acc) {
    Emit *e = g->e;
    uint32_t n = 0;
    for (uint32_t f = 0; f < p->nfolds; f++) {
        DType t = gpu_fold_type(g, p->folds[f]);
        if (gpu_fold_width(g, p->folds[f]) == 2) {
            acc[n++] = emit_i64(e, -1);
            acc[n++] = LLVMConstNull(emit_type(e, t));
        } else {
            KFold fold = (KFold)g->k->ops[p->folds[f]].fold;
            acc[n++] = emit_fold_identity(e, fold, t, lanes);
        }
    }
    return n;
}

/* acc: this thread's part joined with the part of another. */
static void join(const Team *t, KVal v, LLVMValueRef *acc, LLVMValueRef *other) {
    Emit *e = t->g->e;
    KFold fold = (KFold)t->g->k->ops[v].fold;
    DType type = gpu_fold_type(t->g, v);
    if (gpu_fold_width(t->g, v) == 2)
        rows_arg_join(e, fold, type, acc, other);
    else
        acc[0] = rows_join(t->g->rows, v)(e, fold, type, acc[0], other[0]);
}

/* Over groups of `size` neighbouring lanes of a warp. */
static void join_lanes(const Team *t, KVal v, uint32_t size, LLVMValueRef *acc) {
    for (uint32_t off = size / 2; off; off /= 2) {
        LLVMValueRef other[2];
        for (uint32_t i = 0; i < gpu_fold_width(t->g, v); i++)
            other[i] = gpu_shuffle(t->g->e, acc[i], off);
        join(t, v, acc, other);
    }
}

/* Where what is under one of the pass's folds stands, or NULL; *lead: that fold's place. */
static LLVMValueRef *under_of(const Team *t, const Pass *p, LLVMValueRef *acc,
                              LLVMValueRef **lead) {
    bool has = false;
    for (uint32_t f = 0; t->under && f < p->nfolds; f++) {
        if (p->folds[f] == t->lead) *lead = acc, has = true;
        acc += gpu_fold_width(t->g, p->folds[f]);
    }
    return has ? acc : NULL;
}

/* All folds of a pass; the number of accumulators. */
static uint32_t join_all_lanes(const Team *t, const Pass *p, uint32_t size, LLVMValueRef *acc) {
    uint32_t n = 0;
    LLVMValueRef *lead, *under = under_of(t, p, acc, &lead);
    TeamPair own = {0}, all;
    if (under) own = (TeamPair){*lead, *under, t->counts ? under[1] : NULL};
    for (uint32_t f = 0; f < p->nfolds; f++) {
        join_lanes(t, p->folds[f], size, acc + n);
        n += gpu_fold_width(t->g, p->folds[f]);
    }
    if (!under) return n;
    if (t->counts) join_lanes(t, t->under, size, under + 1); /* both are sums */
    all = (TeamPair){.lead = *lead, .count = t->counts ? under[1] : NULL};
    *under = t->scale(t->g->e, &own, &all);
    join_lanes(t, t->under, size, under);
    return n + 1 + t->counts;
}

static LLVMTypeRef stored_type(Emit *e, LLVMValueRef v) {
    return LLVMTypeOf(v) == e->i1 ? e->i8 : LLVMTypeOf(v);
}

static uint32_t turns(const Team *t) {
    return t->turn ? 2 : 1;
}

/* Number `at` of this team's slots of this turn. */
static LLVMValueRef slot(const Team *t, LLVMValueRef at) {
    Emit *e = t->g->e;
    LLVMValueRef n = t->turn;
    if (t->number) {
        LLVMValueRef first = LLVMBuildMul(e->b, t->number, emit_i64(e, turns(t)), "");
        n = n ? LLVMBuildAdd(e->b, first, n, "") : first;
    }
    if (!n) return at;
    return LLVMBuildAdd(e->b, LLVMBuildMul(e->b, n, emit_i64(e, t->size / 32), ""), at, "");
}

void gpu_team_sync(const Team *t) {
    Emit *e = t->g->e;
    if (t->number)
        hop_sync(e, hop_addi(e, LLVMBuildTrunc(e->b, t->number, e->i32, ""), 1), t->size);
    else
        gpu_barrier(e);
}

static void put(const Team *t, LLVMValueRef slots, LLVMValueRef v) {
    Emit *e = t->g->e;
    LLVMTypeRef type = stored_type(e, v);
    LLVMValueRef warp = slot(t, LLVMBuildLShr(e->b, t->rank, emit_i64(e, 5), ""));
    if (LLVMTypeOf(v) != type) v = LLVMBuildZExt(e->b, v, type, "");
    LLVMBuildStore(e->b, v, emit_gep(e, type, slots, warp));
}

/* The result of warp number (lane mod warps). */
static LLVMValueRef take(const Team *t, LLVMValueRef slots, LLVMTypeRef own, LLVMTypeRef type) {
    Emit *e = t->g->e;
    LLVMValueRef at = slot(t, LLVMBuildAnd(e->b, t->rank, emit_i64(e, t->size / 32 - 1), ""));
    LLVMValueRef x = LLVMBuildLoad2(e->b, type, emit_gep(e, type, slots, at), "");
    return own == type ? x : LLVMBuildTrunc(e->b, x, own, "");
}

/* The results of all warps, read by every thread. */
static LLVMValueRef read_all(const Team *t, KVal v, LLVMValueRef slots) {
    Emit *e = t->g->e;
    LLVMValueRef x[TEAM_MOST_READ];
    const uint32_t n = t->size / 32, per = n % 4 == 0 ? 4 : n % 2 == 0 ? 2 : 1;
    for (uint32_t i = 0; i < n; i += per) {
        LLVMValueRef at = emit_gep(e, e->f32, slots, slot(t, emit_i64(e, i)));
        LLVMValueRef w = emit_load(e, emit_vec(e->f32, per), at, 4 * per);
        for (uint32_t c = 0; c < per; c++)
            x[i + c] = per == 1 ? w : LLVMBuildExtractElement(e->b, w, emit_i(e, e->i32, c), "");
    }
    for (uint32_t s = 1; s < n; s *= 2)
        for (uint32_t i = 0; i + s < n; i += 2 * s) join(t, v, &x[i], &x[i + s]);
    return x[0];
}

static bool reads_all(const Team *t, const Pass *p, const LLVMValueRef *acc) {
    bool is = t->reads && t->size <= TEAM_MOST_READ * 32;
    for (uint32_t f = 0; f < p->nfolds && is; f++)
        is = gpu_fold_width(t->g, p->folds[f]) == 1 && LLVMTypeOf(acc[f]) == t->g->e->f32;
    return is;
}

/* Slots for n warps, which are read four at a time. */
static uint32_t slots_of(uint32_t n) {
    return (n + 3) / 4 * 4;
}

uint32_t gpu_team_room(const Team *t, uint32_t threads, uint32_t n) {
    return t->size > 32 ? n * slots_of(2 * threads / 32) * 4 : 0;
}

/* Memory of all teams for value i of those that meet. */
static LLVMValueRef slots_for(const Team *t, uint32_t i, LLVMTypeRef type) {
    Emit *e = t->g->e;
    const uint32_t n = slots_of((t->number ? t->g->threads : t->size) / 32 * turns(t));
    if (!t->room) return gpu_shared(t->g, type, n);
    GC_ASSERT(type == e->f32 && t->turn);
    HV at = hop_addi(e, t->room, (int64_t)i * n * 4);
    return hop_pointer(e, at);
}

/* All folds of a pass meet at one barrier. */
static void join_warps(const Team *t, const Pass *p, LLVMValueRef *acc, uint32_t nacc) {
    Emit *e = t->g->e;
    LLVMValueRef *slots = ARENA_ARRAY(e->arena, LLVMValueRef, nacc);
    for (uint32_t i = 0; i < nacc; i++) {
        slots[i] = slots_for(t, i, stored_type(e, acc[i]));
        put(t, slots[i], acc[i]);
    }
    gpu_team_sync(t);
    if (reads_all(t, p, acc)) {
        for (uint32_t f = 0; f < p->nfolds; f++) acc[f] = read_all(t, p->folds[f], slots[f]);
        return;
    }
    for (uint32_t i = 0; i < nacc; i++)
        acc[i] = take(t, slots[i], LLVMTypeOf(acc[i]), stored_type(e, acc[i]));
    (void)join_all_lanes(t, p, t->size / 32, acc);
}

/* --- Blocks of a cluster ---------------------------------------------------------------------- */

/* Two barriers for each pass, of turns 0 and 1: blocks are one join apart at most. */
static HV barrier_of(const Team *t, const Pass *p, LLVMValueRef turn) {
    Emit *e = t->g->e;
    HV at = hop_muli(e, LLVMBuildTrunc(e->b, turn, e->i32, ""), HOP_BARRIER_BYTES);
    return hop_add(e, t->meet, hop_addi(e, at, 2 * HOP_BARRIER_BYTES * (p - t->g->rows->pass)));
}

void gpu_team_meet(Team *t) {
    Emit *e = t->g->e;
    uint32_t n = 2 * (t->g->rows->npasses + 1);
    EmitIf one;
    t->meet = LLVMBuildPtrToInt(e->b, gpu_shared(t->g, e->i64, n), e->i32, "");
    emit_if_begin(e, &one, LLVMBuildICmp(e->b, LLVMIntEQ, t->rank, emit_i64(e, 0), ""));
    for (uint32_t i = 0; i < n; i++)
        hop_barrier_init(e, hop_addi(e, t->meet, i * HOP_BARRIER_BYTES), 1);
    hop_barrier_init_fence(e);
    emit_if_end(e, &one);
    hop_cluster_sync(e);
}

/* Every block puts n values into all blocks. Who writes to a slot again, two turns later, has met
 * all blocks since, behind whose last join this one was read. Gives block b's value i in at[i][b].
 */
static void exchange(const Team *t, const Pass *p, const LLVMValueRef *v, uint32_t n,
                     LLVMValueRef (*at)[TEAM_MOST_BLOCKS]) {
    Emit *e = t->g->e;
    LLVMValueRef slots[ROWS_MAX_FOLDS + 1], turn = emit_i64(e, t->blocks);
    turn = LLVMBuildMul(e->b, t->turn, turn, "");
    LLVMValueRef mine = LLVMBuildAdd(e->b, turn, t->block, "");
    HV bar = barrier_of(t, p, t->turn);
    EmitIf all, one;
    for (uint32_t i = 0; i < n; i++) slots[i] = gpu_shared(t->g, e->f32, 2 * t->blocks);
    emit_if_begin(e, &one, LLVMBuildICmp(e->b, LLVMIntEQ, t->rank, emit_i64(e, 0), ""));
    hop_barrier_expect(e, bar, hop_i(e, 4 * (int64_t)n * t->blocks));
    emit_if_end(e, &one);
    emit_if_begin(e, &all, LLVMBuildICmp(e->b, LLVMIntSLT, t->rank, emit_i64(e, t->blocks), ""));
    for (uint32_t i = 0; i < n; i++) {
        LLVMValueRef to = emit_gep(e, e->f32, slots[i], mine);
        to = LLVMBuildPtrToInt(e->b, to, e->i32, "");
        hop_cluster_send(e, to, bar, LLVMBuildTrunc(e->b, t->rank, e->i32, ""), v[i]);
    }
    emit_if_end(e, &all);
    hop_barrier_wait(e, bar, t->phase);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t b = 0; b < t->blocks; b++) {
            LLVMValueRef from = LLVMBuildAdd(e->b, turn, emit_i64(e, b), "");
            from = emit_gep(e, e->f32, slots[i], from);
            at[i][b] = LLVMBuildLoad2(e->b, e->f32, from, "");
            LLVMSetVolatile(at[i][b], true); /* nothing here writes them */
        }
}

static void join_blocks(const Team *t, const Pass *p, LLVMValueRef *acc) {
    Emit *e = t->g->e;
    LLVMValueRef *lead, *under = under_of(t, p, acc, &lead);
    LLVMValueRef at[ROWS_MAX_FOLDS + 1][TEAM_MOST_BLOCKS];
    GC_ASSERT(!under || !t->counts);
    exchange(t, p, acc, p->nfolds + (under ? 1 : 0), at);
    for (uint32_t f = 0; f < p->nfolds; f++) {
        acc[f] = at[f][0];
        for (uint32_t b = 1; b < t->blocks; b++) join(t, p->folds[f], &acc[f], &at[f][b]);
    }
    for (uint32_t b = 0; under && b < t->blocks; b++) {
        const TeamPair own = {.lead = at[lead - acc][b], .under = at[p->nfolds][b]};
        LLVMValueRef s = t->scale(e, &own, &(TeamPair){.lead = *lead});
        if (b)
            join(t, t->under, under, &s);
        else
            *under = s;
    }
}

uint32_t gpu_team_lanes(const Team *t, const Pass *p, LLVMValueRef *acc) {
    return join_all_lanes(t, p, t->size < 32 ? t->size : 32, acc);
}

void gpu_team_join(const Team *t, const Pass *p, LLVMValueRef *acc) {
    uint32_t n = gpu_team_lanes(t, p, acc);
    if (t->size > 32 && n) join_warps(t, p, acc, n);
    if (t->blocks > 1 && p->nfolds) join_blocks(t, p, acc);
}
