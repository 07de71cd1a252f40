/* Long rows, walked by all threads of a block. The first walk asks for as much as fits into a
 * multiprocessor's memory at once; what later walks need again stays in shared memory, as far as
 * there is room, or is near enough to be read again. softmax's maximum and sum take one walk: the
 * sum is scaled whenever the maximum grows.
 *
 * A vector is 16 bytes at a multiple of 16 bytes. Where rows do not start at such, the vectors of a
 * row begin at the first inside of it, and the elements in front of them and behind are single. */
#include "codegen/nvptx/hopper/hopper.h"
#include "codegen/nvptx/ptx.h"
#include "codegen/nvptx/row/row.h"
#include <math.h>

enum {
    LEAST = 2048,   /* elements of a row */
    MOST_LOADS = 8, /* vectors of a thread that are asked for together */
    WIDE = 1024,    /* threads of a block that has a multiprocessor to itself */
    NARROW = 512,   /* of one that shares it with another */
};

/* --- What shape a kernel has ------------------------------------------------------------------ */

static bool is_row_load(const Long *l, KVal v) {
    const Gpu *g = l->r->team.g;
    uint32_t dom = g->rows->dom[v];
    return g->k->ops[v].op == K_kload && g->rows->need[v] && dom >> l->axis & 1 &&
           dom & g->rows->par;
}

/* All passes walk the same axis or none; no positions. */
static bool has_shape(Long *l) {
    Gpu *g = l->r->team.g;
    uint32_t axes = 0;
    if (g->k->serial || g->j->shrink || !g->m->shared) return false;
    for (uint32_t i = 0; i < g->rows->npasses; i++) {
        const Pass *p = &g->rows->pass[i];
        axes |= p->axes;
        for (uint32_t f = 0; f < p->nfolds; f++)
            if (gpu_fold_width(g, p->folds[f]) == 2) return false;
    }
    if (!axes || axes & (axes - 1)) return false;
    l->axis = (uint32_t)__builtin_ctz(axes);
    l->length = g->k->axes[l->axis].extent;
    return gpu_hint(g->e, l->length) >= LEAST;
}

/* Where a row starts in the buffers that it is read from and stored to, if that is no multiple of a
 * vector: of the first access that has rows, which the others should agree with. */
static Expr row_offset(const Long *l) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        Expr coef, rest;
        if (o->op != K_kload && o->op != K_kstore) continue;
        if (!(g->rows->dom[v] >> l->axis & 1) || !(g->rows->dom[v] & g->rows->par)) continue;
        if (expr_affine(e->exprs, o->index, g->k->axes[l->axis].sym, &coef, &rest) &&
            expr_is_value(e->exprs, coef, 1))
            return rest;
    }
    return 0;
}

/* s = sum of exp(x - m) over the row, m = max x of it. */
static bool is_sum_under(const Gpu *g, KVal sum, KVal max) {
    const KOp *s = &g->k->ops[sum], *e = &g->k->ops[s->in[0]];
    if (s->fold != FOLD_sum || s->dtype != DT_f32 || e->op != OP_exp) return false;
    const KOp *d = &g->k->ops[e->in[0]];
    return d->op == OP_sub && d->in[1] == max && d->in[0] == g->k->ops[max].in[0];
}

/* Passes i and i + 1 become one where all that the second one does is such a sum. */
static bool is_softmax(Long *l, uint32_t i) {
    const Gpu *g = l->r->team.g;
    const Pass *p = &g->rows->pass[i], *q = p + 1;
    if (i + 1 >= g->rows->npasses || q->nfolds != 1 || q->nstores || p->nstores) return false;
    if (p->axes != q->axes) return false;
    for (uint32_t f = 0; f < p->nfolds; f++) {
        if (g->k->ops[p->folds[f]].fold != FOLD_max) continue;
        if (!is_sum_under(g, q->folds[0], p->folds[f])) continue;
        l->max = p->folds[f];
        l->sum = q->folds[0];
        return true;
    }
    return false;
}

/* --- What is kept ----------------------------------------------------------------------------- */

/* Bytes of an element over the row's loads that computing v takes, but for what `stop` holds. */
static uint32_t loads_under(const Long *l, KVal v, const bool *stop, bool *seen) {
    const Gpu *g = l->r->team.g;
    const KOp *o = &g->k->ops[v];
    if (!v || seen[v] || (stop && stop[v])) return 0;
    seen[v] = true;
    if (is_row_load(l, v)) return row_bytes(g, v);
    if (rows_in_pass(g->rows, v)) return 0;
    uint32_t n = 0;
    for (int i = 0; i < 3; i++) n += loads_under(l, o->in[i], stop, seen);
    return n;
}

static bool *seen_new(const Long *l) {
    const Gpu *g = l->r->team.g;
    return ARENA_ARRAY(g->e->arena, bool, g->k->nops);
}

/* Loads that passes from number `from` on take when the values of `stop` are there: their bytes. */
static uint32_t left_to_load(const Long *l, uint32_t from, const bool *stop, bool *seen) {
    const Gpu *g = l->r->team.g;
    uint32_t n = 0;
    for (uint32_t i = from; i < g->rows->npasses; i++) {
        const Pass *p = &g->rows->pass[i];
        for (uint32_t f = 0; f < p->nfolds && p->axes; f++)
            n += loads_under(l, g->k->ops[p->folds[f]].in[0], stop, seen);
        for (uint32_t s = 0; s < p->nstores && p->axes; s++)
            n += loads_under(l, g->k->ops[p->stores[s]].in[0], stop, seen);
    }
    return n;
}

/* Bytes that keeping v spares, if it is a load, or a value of the first walk in the place of loads;
 * negative: it does not. */
static int32_t gain(const Long *l, KVal v, uint32_t left, bool *keep) {
    const Gpu *g = l->r->team.g;
    if (keep[v] || g->k->ops[v].dtype == DT_bool) return -1;
    if (!is_row_load(l, v) && (g->k->ops[v].op != OP_cast || !(g->rows->dom[v] >> l->axis & 1)))
        return -1;
    keep[v] = true;
    uint32_t after = left_to_load(l, l->first, keep, seen_new(l));
    keep[v] = false;
    return after < left ? (int32_t)(left - after) - (int32_t)row_bytes(g, v) : -1;
}

/* What passes behind the first walk need of the row: narrow values that it computes, or loads. */
static void choose_kept(Long *l) {
    Gpu *g = l->r->team.g;
    bool *keep = seen_new(l), *need = seen_new(l), *cone = seen_new(l);
    uint32_t left = left_to_load(l, l->first, NULL, need);
    for (uint32_t i = 0; i < l->first; i++)
        for (uint32_t f = 0; f < g->rows->pass[i].nfolds; f++)
            rows_cone(g->rows, g->k->ops[g->rows->pass[i].folds[f]].in[0], cone);
    while (left && l->nkept < ROW_MOST_KEPT) {
        KVal best = 0;
        int32_t most = -1;
        for (KVal v = 1; v < g->k->nops; v++) {
            int32_t n = need[v] && cone[v] ? gain(l, v, left, keep) : -1;
            if (n > most) best = v, most = n;
        }
        if (!best) break;
        l->kept[l->nkept++] = best;
        keep[best] = true;
        left = left_to_load(l, l->first, keep, seen_new(l));
    }
}

/* Threads, and how much of the row is kept: by blocks that share a multiprocessor if all of it fits
 * into each one's half. */
static void choose_room(Long *l) {
    Gpu *g = l->r->team.g;
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < l->nkept; i++) bytes += row_bytes(g, l->kept[i]);
    int64_t length = gpu_hint(g->e, l->length), n = g->e->lanes, most = 0, least;
    int64_t half = g->m->shared / 2 - ROW_RESERVED, all = g->m->shared - ROW_RESERVED;
    bool alone = bytes && length > half / bytes;
    l->threads = alone ? WIDE : NARROW;
    l->blocks = alone ? 1 : 2;
    l->shared = 0;
    if (!bytes) return;
    const int64_t room = (alone ? all : half) / (bytes * n);
    l->room = room / l->threads * l->threads;
    expr_range(g->e->exprs, l->length, &least, &most);
    l->all_kept = most / n <= room; /* not multiplied: most may be all that an integer holds */
    if (l->all_kept) l->room = most / n;
    row_place_kept(l, l->room);
}

static uint32_t count_loads(const Long *l) {
    const Gpu *g = l->r->team.g;
    uint32_t n = 0;
    for (KVal v = 1; v < g->k->nops; v++) n += is_row_load(l, v);
    return n;
}

/* --- A walk ----------------------------------------------------------------------------------- */

/* What a walk does with what is kept; KEEP_wait: it loads what the copy engine brings. */
typedef enum Keep { KEEP_nothing, KEEP_store, KEEP_wait, KEEP_load } Keep;

/* What a thread has folded so far: of each fold of the pass; of softmax's sum behind them. Vectors,
 * but softmax's. */
typedef struct Folds {
    const Pass *p;
    uint32_t n;
    LLVMValueRef acc[ROWS_MAX_FOLDS + 1];
} Folds;

static bool has_softmax(const Long *l, const Pass *p) {
    for (uint32_t f = 0; f < p->nfolds; f++)
        if (l->max && p->folds[f] == l->max) return true;
    return false;
}

static Folds folds_begin(const Long *l, const Pass *p, uint32_t lanes) {
    Gpu *g = l->r->team.g;
    Folds f = {.p = p};
    f.n = gpu_fold_init(g, p, lanes, f.acc);
    if (!has_softmax(l, p)) return f;
    for (uint32_t i = 0; i < p->nfolds; i++)
        if (p->folds[i] == l->max) f.acc[i] = emit_fold_identity(g->e, FOLD_max, DT_f32, 1);
    f.acc[f.n++] = emit_f(g->e, g->e->f32, 0);
    return f;
}

/* m, or 0 where m is -inf: what exponents may be taken from. */
static LLVMValueRef within(Emit *e, LLVMValueRef m) {
    LLVMValueRef low = emit_fold_identity(e, FOLD_max, DT_f32, 1);
    LLVMValueRef none = LLVMBuildFCmp(e->b, LLVMRealOEQ, m, low, "");
    return LLVMBuildSelect(e->b, none, emit_f(e, e->f32, 0), m, "");
}

/* s, a sum under maximum m, as one under maximum `to`, which is finite. */
static LLVMValueRef scaled(Emit *e, LLVMValueRef s, LLVMValueRef m, LLVMValueRef to) {
    LLVMValueRef d = LLVMBuildFSub(e->b, m, to, "");
    return LLVMBuildFMul(e->b, s, gpu_coarse_exp(e, d), "");
}

/* The same where `to` may be -inf. */
static LLVMValueRef scaled_within(Emit *e, LLVMValueRef s, LLVMValueRef m, LLVMValueRef to) {
    return scaled(e, s, m, within(e, to));
}

/* The elements of n scopes join maximum and sum; live[u]: NULL, or where vector u counts. */
static void fold_softmax(const Long *l, EmitScope **scope, LLVMValueRef *live, uint32_t n,
                         LLVMValueRef *max, LLVMValueRef *sum) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    EmitJoin join = rows_join(g->rows, l->max);
    EmitScope *outer = e->scope;
    LLVMValueRef m = *max, all = NULL;
    for (uint32_t u = 0; u < n; u++) {
        (void)emit_switch(e, scope[u]);
        LLVMValueRef x = emit_value_lanes(e, g->k->ops[l->max].in[0]);
        x = emit_fold_lanes_by(e, FOLD_max, DT_f32, x, join);
        if (live[u]) x = emit_select(e, live[u], x, emit_fold_identity(e, FOLD_max, DT_f32, 1));
        m = join(e, FOLD_max, DT_f32, m, x);
    }
    LLVMValueRef from = within(e, m);
    for (uint32_t u = 0; u < n; u++) {
        (void)emit_switch(e, scope[u]);
        emit_override(e, l->max, from);
        LLVMValueRef x = emit_value_lanes(e, g->k->ops[l->sum].in[0]);
        x = emit_fold_lanes(e, FOLD_sum, DT_f32, x);
        if (live[u]) x = emit_select(e, live[u], x, emit_f(e, e->f32, 0));
        all = all ? LLVMBuildFAdd(e->b, all, x, "") : x;
    }
    (void)emit_switch(e, outer);
    *sum = LLVMBuildFAdd(e->b, scaled(e, *sum, *max, from), all, "");
    *max = m;
}

/* The elements of n scopes join the pass's folds. */
static void fold_here(const Long *l, EmitScope **scope, LLVMValueRef *live, uint32_t n, Folds *f) {
    Emit *e = l->r->team.g->e;
    for (uint32_t u = 0; u < n; u++) {
        EmitScope *outer = emit_switch(e, scope[u]);
        for (uint32_t i = 0; i < f->p->nfolds; i++)
            if (f->p->folds[i] != l->max) row_fold(l->r, f->p->folds[i], live[u], &f->acc[i]);
        (void)emit_switch(e, outer);
    }
    if (!has_softmax(l, f->p)) return;
    for (uint32_t i = 0; i < f->p->nfolds; i++)
        if (f->p->folds[i] == l->max)
            fold_softmax(l, scope, live, n, &f->acc[i], &f->acc[f->n - 1]);
}

static void store_here(const Long *l, LLVMValueRef live, const Pass *p) {
    Emit *e = l->r->team.g->e;
    EmitIf inside;
    if (!p->nstores) return;
    if (live) emit_if_begin(e, &inside, live);
    for (uint32_t i = 0; i < p->nstores; i++) emit_store(e, p->stores[i]);
    if (live) emit_if_end(e, &inside);
}

/* at: i32, from the first vector in shared memory on. */
static LLVMValueRef kept_at(const Long *l, uint32_t i, LLVMValueRef at, LLVMTypeRef *type,
                            uint32_t *align) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    uint32_t bytes = row_bytes(g, l->kept[i]) * e->lanes;
    *type = emit_vec(emit_type(e, (DType)g->k->ops[l->kept[i]].dtype), e->lanes);
    *align = bytes < 16 ? bytes : 16;
    LLVMValueRef p = LLVMBuildMul(e->b, at, hop_i(e, bytes), "");
    p = hop_add(e, hop_addi(e, hop_shared(g), l->slot[i]), p);
    return LLVMBuildIntToPtr(e->b, p, LLVMPointerTypeInContext(e->ctx, PTX_SHARED), "");
}

/* Vector `at`, one of those that are walked from `from` on. */
static void keep_here(const Long *l, Keep keep, LLVMValueRef at, LLVMValueRef from) {
    Emit *e = l->r->team.g->e;
    at = LLVMBuildTrunc(e->b, at, e->i32, "");
    if (l->place) {
        HV first = hop_muli(e, row_chunk_place(l, from, NULL), l->chunk);
        at = LLVMBuildSub(e->b, at, LLVMBuildTrunc(e->b, from, e->i32, ""), "");
        at = hop_add(e, at, first);
    }
    for (uint32_t i = 0; i < l->nkept && keep; i++) {
        LLVMTypeRef type;
        uint32_t align;
        LLVMValueRef p = kept_at(l, i, at, &type, &align);
        if (keep >= KEEP_wait)
            emit_override(e, l->kept[i], emit_load(e, type, p, align));
        else
            emit_store_ptr(e, emit_value_lanes(e, l->kept[i]), p, align);
    }
}

/* The row's own loads are on their way before anything waits for them. */
static void request(const Long *l, const Pass *p) {
    Gpu *g = l->r->team.g;
    for (KVal v = 1; v < g->k->nops; v++)
        if (p->cone[v] && is_row_load(l, v) && !g->k->ops[v].mask) (void)emit_value(g->e, v);
}

/* Shared memory answers soon. */
static uint32_t steps_of(const Long *l, Keep keep) {
    return keep >= KEEP_wait ? row_long_steps(l) : l->steps;
}

/* Vectors lo to hi (the same for all threads), each thread `steps` of them at a time; ragged: the
 * last ones are not there. */
static void walk(const Long *l, Folds *f, Keep keep, LLVMValueRef lo, LLVMValueRef hi,
                 bool ragged) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    EmitLoop *loop = ARENA_NEW(e->arena, EmitLoop);
    EmitScope *scope[MOST_LOADS];
    LLVMValueRef at[MOST_LOADS], live[MOST_LOADS];
    uint32_t steps = steps_of(l, keep);
    /* Few vectors, which nobody loads in between: the sum is scaled once for all of them. */
    const bool together = keep == KEEP_wait && has_softmax(l, f->p);
    *loop = emit_loop(e, f->n);
    for (uint32_t i = 0; i < f->n; i++) loop->init[i] = f->acc[i];
    emit_loop_begin(e, loop, "row", lo, hi, emit_i64(e, (int64_t)steps * l->r->team.size), false);
    EmitScope *outer = e->scope;
    for (uint32_t i = 0; i < f->n; i++) f->acc[i] = loop->phi[i];
    if (keep == KEEP_wait) row_wait_copied(l, loop->i);
    for (uint32_t u = 0; u < steps; u++) {
        LLVMValueRef first = emit_i64(e, (int64_t)u * l->r->team.size);
        at[u] = LLVMBuildAdd(e->b, loop->i, LLVMBuildAdd(e->b, l->r->team.rank, first, ""), "");
        live[u] = ragged ? LLVMBuildICmp(e->b, LLVMIntSLT, at[u], hi, "") : NULL;
        LLVMValueRef last[2] = {at[u], LLVMBuildSub(e->b, hi, emit_i64(e, 1), "")};
        if (ragged) at[u] = emit_intrinsic(e, "llvm.smin", e->i64, last, 2);
        scope[u] = emit_push(e);
        row_bind_long(l, at[u]);
        if (keep >= KEEP_wait)
            keep_here(l, keep, at[u], loop->i);
        else
            request(l, f->p);
        (void)emit_switch(e, outer);
    }
    if (l->next && f->p == l->last) row_copy_next(l, loop->i);
    if (together) fold_here(l, scope, live, steps, f);
    for (uint32_t u = 0; u < steps; u++) {
        (void)emit_switch(e, scope[u]);
        if (l->across) row_load_across(l, f->p);
        if (!together) fold_here(l, &scope[u], &live[u], 1, f);
        if (keep == KEEP_store) keep_here(l, keep, at[u], loop->i);
        for (uint32_t i = 0; i < f->p->nstores; i++)
            (void)emit_value(e, g->k->ops[f->p->stores[i]].in[0]);
        (void)emit_switch(e, outer);
    }
    for (uint32_t u = 0; u < steps; u++) {
        (void)emit_switch(e, scope[u]);
        store_here(l, live[u], f->p);
        (void)emit_switch(e, outer);
    }
    for (uint32_t i = 0; i < f->n; i++) loop->next[i] = f->acc[i];
    emit_loop_end(e, loop);
    for (uint32_t i = 0; i < f->n; i++) f->acc[i] = loop->out[i];
}

/* --- A pass ----------------------------------------------------------------------------------- */

/* Single elements: a thread each. */
static void walk_edges(const Long *l, Folds *f) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    uint32_t n = e->lanes;
    LLVMValueRef rank = l->r->team.rank, zero = emit_i64(e, 0), lanes = emit_i64(e, n);
    LLVMValueRef front = LLVMBuildICmp(e->b, LLVMIntSLT, rank, lanes, "");
    LLVMValueRef behind = LLVMBuildSub(e->b, rank, lanes, "");
    LLVMValueRef at = LLVMBuildSub(e->b, emit_expr(e, l->length), l->tail, "");
    at = LLVMBuildSelect(e->b, front, rank, LLVMBuildAdd(e->b, at, behind, ""), "");
    LLVMValueRef live =
        LLVMBuildSelect(e->b, front, LLVMBuildICmp(e->b, LLVMIntSLT, rank, l->own_head, ""),
                        LLVMBuildICmp(e->b, LLVMIntSLT, behind, l->own_tail, ""), "");
    e->lanes = 1;
    EmitScope *here = emit_push(e);
    emit_set_sym(e, g->k->axes[l->axis].sym, LLVMBuildSelect(e->b, live, at, zero, ""));
    fold_here(l, &here, &live, 1, f);
    store_here(l, live, f->p);
    emit_pop(e);
    e->lanes = n;
}

/* The thread's folds over vectors and single elements become those of the whole team, known in the
 * current scope. */
static void finish(const Long *l, const Pass *p, Folds *f, Folds *edges) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    for (uint32_t i = 0; i < p->nfolds; i++) {
        KVal v = p->folds[i];
        KFold fold = (KFold)g->k->ops[v].fold;
        DType t = gpu_fold_type(g, v);
        if (v == l->max) continue;
        f->acc[i] = emit_fold_lanes_by(e, fold, t, f->acc[i], rows_join(g->rows, v));
        f->acc[i] = rows_join(g->rows, v)(e, fold, t, f->acc[i], edges->acc[i]);
    }
    Team team = l->r->team;
    if (has_softmax(l, p)) team.max = l->max, team.sum = l->sum, team.scale = scaled_within;
    gpu_team_join(&team, p, f->acc);
    for (uint32_t i = 0; i < p->nfolds; i++) {
        emit_override(e, p->folds[i], f->acc[i]);
        if (!team.sum || p->folds[i] != l->max) continue;
        LLVMValueRef m = f->acc[i], s = f->acc[p->nfolds];
        LLVMValueRef none = LLVMBuildFCmp(e->b, LLVMRealUNE, m, within(e, m), "");
        s = LLVMBuildSelect(e->b, none, emit_f(e, e->f32, NAN), s, "");
        emit_override(e, l->sum, s);
    }
}

/* Vectors lo to hi, whole turns of the block and what is left. */
static void walk_range(const Long *l, Folds *f, Keep keep, LLVMValueRef lo, LLVMValueRef hi) {
    Emit *e = l->r->team.g->e;
    int64_t turn = (int64_t)steps_of(l, keep) * l->r->team.size;
    LLVMValueRef n = LLVMBuildSub(e->b, hi, lo, "");
    LLVMValueRef whole = LLVMBuildAnd(e->b, n, emit_i64(e, -turn), "");
    whole = LLVMBuildAdd(e->b, lo, whole, "");
    walk(l, f, keep, lo, whole, false);
    walk(l, f, keep, whole, hi, true);
}

static void run_pass(const Long *l, const Pass *p, Keep keep) {
    Emit *e = l->r->team.g->e;
    Folds f = folds_begin(l, p, e->lanes), edges = folds_begin(l, p, 1);
    LLVMValueRef room[2] = {emit_i64(e, keep ? l->room : 0), l->count};
    if (keep) room[0] = emit_intrinsic(e, "llvm.smin", e->i64, room, 2);
    if (keep == KEEP_wait && !l->turns) row_copy(l, room[0]);
    if (l->offset) walk_edges(l, &edges);
    for (uint32_t i = 0; has_softmax(l, p) && i < f.n; i++)
        if (i == p->nfolds || p->folds[i] == l->max) f.acc[i] = edges.acc[i];
    if (keep) walk_range(l, &f, keep, emit_i64(e, 0), room[0]);
    if (!keep || !l->all_kept) walk_range(l, &f, KEEP_nothing, room[0], l->count);
    if (l->next && p == l->last) row_copy_rest(l);
    if (p->nfolds) finish(l, p, &f, &edges);
}

/* --- The kernel ------------------------------------------------------------------------------- */

/* Passes that walk the row, softmax's two as one. The number of the first behind the first walk. */
static uint32_t find_softmax(Long *l) {
    const Gpu *g = l->r->team.g;
    for (uint32_t i = 0; i < g->rows->npasses && !l->max; i++) (void)is_softmax(l, i);
    return g->rows->npasses && has_softmax(l, &g->rows->pass[0]) ? 2 : 1;
}

static bool needs_offset(const Long *l, Expr offset) {
    ExprPool *p = l->r->team.g->e->exprs;
    uint32_t n = l->r->team.g->e->lanes;
    return expr_divisor(p, l->length) % n || (offset && expr_divisor(p, offset) % n);
}

bool row_long(RowPlan *r, Long *l) {
    Gpu *g = r->team.g;
    *l = (Long){.r = r, .cluster = 1};
    if (!has_shape(l)) return false;
    Expr offset = row_offset(l);
    uint32_t loads = count_loads(l), lanes = gpu_lanes_ragged(g, l->axis);
    if (lanes == 1 || !loads) return false;
    g->e->lanes = lanes;
    if (needs_offset(l, offset)) l->offset = offset ? offset : expr_const(g->e->exprs, 0);
    l->across = row_has_across(l);
    l->steps = MOST_LOADS / loads >> g->j->shrink;
    if (!l->steps) l->steps = 1;
    l->first = find_softmax(l);
    choose_kept(l);
    choose_room(l);
    return true;
}

void row_run_long(Long *l) {
    const Passes *rows = l->r->team.g->rows;
    const Keep here = l->chunk ? KEEP_wait : KEEP_store;
    if (!l->turns) row_measure(l);
    for (uint32_t i = 0; i < rows->npasses; i++) {
        const Pass *p = &rows->pass[i];
        if (!p->axes)
            row_store_once(l->r, p);
        else
            run_pass(l, p, !l->nkept ? KEEP_nothing : i < l->first ? here : KEEP_load);
        if (has_softmax(l, p)) i++;
    }
}
