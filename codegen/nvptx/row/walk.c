/* A walk over a long row: its vectors, so many of a thread at a time, and the single elements in
 * front of them and behind. */
#include "codegen/nvptx/hopper/hopper.h"
#include "codegen/nvptx/row/long.h"

/* --- Folds and stores ------------------------------------------------------------------------- */

static uint32_t lead_of(const Long *l, const Pass *p) {
    uint32_t i = 0;
    while (p->folds[i] != l->lead) i++;
    return i;
}

static TeamPair pair_of(const Long *l, const Folds *f) {
    uint32_t n = f->p->nfolds;
    return (TeamPair){f->acc[lead_of(l, f->p)], f->acc[n], l->mean ? f->acc[n + 1] : NULL};
}

static void put_pair(const Long *l, Folds *f, TeamPair t) {
    uint32_t n = f->p->nfolds;
    f->acc[lead_of(l, f->p)] = t.lead;
    f->acc[n++] = t.under;
    if (l->mean) f->acc[n++] = t.count;
    f->n = n;
}

Folds row_folds_begin(const Long *l, const Pass *p, uint32_t lanes) {
    Folds f = {.p = p};
    f.n = gpu_fold_init(l->r->team.g, p, lanes, f.acc);
    if (row_has_under(l, p)) put_pair(l, &f, row_under_begin(l));
    return f;
}

/* The elements of n scopes join the pass's folds. */
void row_fold_vectors(const Long *l, EmitScope **scope, LLVMValueRef *live, uint32_t n, Folds *f) {
    Emit *e = l->r->team.g->e;
    for (uint32_t u = 0; u < n; u++) {
        EmitScope *outer = emit_switch(e, scope[u]);
        for (uint32_t i = 0; i < f->p->nfolds; i++)
            if (f->p->folds[i] != l->lead) row_fold(l->r, f->p->folds[i], live[u], &f->acc[i]);
        (void)emit_switch(e, outer);
    }
    if (!row_has_under(l, f->p)) return;
    TeamPair t = pair_of(l, f);
    row_fold_under(l, scope, live, n, &t);
    put_pair(l, f, t);
}

void row_store_vector(const Long *l, LLVMValueRef live, const Pass *p) {
    Emit *e = l->r->team.g->e;
    EmitIf inside;
    if (!p->nstores) return;
    if (live) emit_if_begin(e, &inside, live);
    for (uint32_t i = 0; i < p->nstores; i++) emit_store(e, p->stores[i]);
    if (live) emit_if_end(e, &inside);
}

/* --- Vectors ---------------------------------------------------------------------------------- */

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
    return hop_pointer(e, p);
}

/* Where vector `at`, one of those that are walked from `from` on, is kept. */
static LLVMValueRef kept_vector(const Long *l, LLVMValueRef at, LLVMValueRef from) {
    Emit *e = l->r->team.g->e;
    at = LLVMBuildTrunc(e->b, at, e->i32, "");
    if (!l->place) return at;
    HV first = hop_muli(e, row_chunk_place(l, from, NULL), l->chunk);
    at = LLVMBuildSub(e->b, at, LLVMBuildTrunc(e->b, from, e->i32, ""), "");
    return hop_add(e, at, first);
}

static void keep_here(const Long *l, Keep keep, LLVMValueRef at, LLVMValueRef from) {
    Emit *e = l->r->team.g->e;
    at = kept_vector(l, at, from);
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

void row_take_kept(const Long *l, LLVMValueRef at, LLVMValueRef first) {
    keep_here(l, KEEP_wait, at, first);
}

/* Results take the place of what they were made from. */
static void put_back(const Long *l, const Pass *p, LLVMValueRef live, LLVMValueRef at,
                     LLVMValueRef from) {
    Emit *e = l->r->team.g->e;
    EmitIf inside;
    LLVMTypeRef type;
    uint32_t align;
    if (live) emit_if_begin(e, &inside, live);
    at = kept_vector(l, at, from);
    for (uint32_t i = 0; i < p->nstores; i++) {
        LLVMValueRef v = emit_value_lanes(e, e->k->ops[p->stores[i]].in[0]);
        LLVMValueRef to = kept_at(l, i, at, &type, &align);
        emit_store_ptr(e, v, to, align);
    }
    if (live) emit_if_end(e, &inside);
}

/* The row's own loads are on their way before anything waits for them. */
static void request(const Long *l, const Pass *p) {
    Gpu *g = l->r->team.g;
    for (KVal v = 1; v < g->k->nops; v++)
        if (p->cone[v] && row_is_load(l, v) && !g->k->ops[v].mask) (void)emit_value(g->e, v);
}

/* Shared memory answers soon. */
static uint32_t steps_of(const Long *l, Keep keep) {
    return keep >= KEEP_wait ? row_long_steps(l) : l->steps;
}

/* A thread's vectors of one turn of a walk, a team's size apart. */
typedef struct Vectors {
    uint32_t n;
    LLVMValueRef first; /* of the team's; those of one chunk, where they came so */
    EmitScope *scope[ROW_MOST_STEPS];
    LLVMValueRef at[ROW_MOST_STEPS];
    LLVMValueRef live[ROW_MOST_STEPS]; /* NULL, or where the vector is there */
} Vectors;

/* Vector u, up to `hi` where the walk is ragged: what of it is loaded is on its way. */
static void place_vector(const Long *l, const Pass *p, Keep keep, Vectors *v, uint32_t u,
                         LLVMValueRef hi, bool ragged) {
    Emit *e = l->r->team.g->e;
    EmitScope *outer = e->scope;
    LLVMValueRef by = emit_i64(e, (int64_t)u * l->r->team.size);
    LLVMValueRef at = LLVMBuildAdd(e->b, l->r->team.rank, by, "");
    at = LLVMBuildAdd(e->b, v->first, at, "");
    v->live[u] = ragged ? LLVMBuildICmp(e->b, LLVMIntSLT, at, hi, "") : NULL;
    /* What takes no place of its own would read the last vector while its results go over it */
    LLVMValueRef own = at;
    if (ragged) at = gpu_smaller(e, at, LLVMBuildSub(e->b, hi, emit_i64(e, 1), ""));
    v->at[u] = at;
    v->scope[u] = emit_push(e);
    row_bind_long(l, at);
    if (keep >= KEEP_wait)
        keep_here(l, keep, l->leaves ? own : at, v->first);
    else
        request(l, p);
    (void)emit_switch(e, outer);
}

/* Vectors join the pass's folds, and what is stored of them is computed. Few of them, which nobody
 * loads in between, join what is under a fold together: it is scaled once for all. */
static void compute_vectors(const Long *l, Folds *f, Keep keep, Vectors *v) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    EmitScope *outer = e->scope;
    const bool together = keep == KEEP_wait && row_has_under(l, f->p);
    if (together) row_fold_vectors(l, v->scope, v->live, v->n, f);
    for (uint32_t u = 0; u < v->n; u++) {
        (void)emit_switch(e, v->scope[u]);
        if (l->folders)
            row_take_fixed(l, f->p, v->at[u]);
        else if (l->across)
            row_load_across(l, f->p);
        if (!together) row_fold_vectors(l, &v->scope[u], &v->live[u], 1, f);
        if (keep == KEEP_store) keep_here(l, keep, v->at[u], v->first);
        for (uint32_t i = 0; i < f->p->nstores; i++)
            (void)emit_value(e, g->k->ops[f->p->stores[i]].in[0]);
        (void)emit_switch(e, outer);
    }
}

static void store_vectors(const Long *l, const Pass *p, const Vectors *v) {
    Emit *e = l->r->team.g->e;
    for (uint32_t u = 0; u < v->n; u++) {
        EmitScope *outer = emit_switch(e, v->scope[u]);
        if (l->leaves && l->back)
            put_back(l, p, v->live[u], v->at[u], v->first);
        else
            row_store_vector(l, v->live[u], p);
        (void)emit_switch(e, outer);
    }
}

/* One turn of a walk, from vector `first` on: all that it loads is asked for before anything of it
 * is stored. */
static void walk_vectors(const Long *l, Folds *f, Keep keep, LLVMValueRef first, LLVMValueRef hi,
                         bool ragged) {
    Vectors v = {.n = steps_of(l, keep), .first = first};
    if (keep == KEEP_wait) row_wait_copied(l, first);
    for (uint32_t u = 0; u < v.n; u++) place_vector(l, f->p, keep, &v, u, hi, ragged);
    if (l->next && f->p == l->last) row_copy_next(l, first);
    compute_vectors(l, f, keep, &v);
    store_vectors(l, f->p, &v);
    if (l->leaves) row_leave_chunk(l, first); /* what was read has gone into what was stored */
}

/* Vectors lo to hi (the same for all threads), each thread `steps` of them at a time; ragged: the
 * last ones are not there. */
static void walk(const Long *l, Folds *f, Keep keep, LLVMValueRef lo, LLVMValueRef hi,
                 bool ragged) {
    Emit *e = l->r->team.g->e;
    EmitLoop *loop = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef by = emit_i64(e, (int64_t)steps_of(l, keep) * l->r->team.size);
    *loop = emit_loop(e, f->n);
    for (uint32_t i = 0; i < f->n; i++) loop->init[i] = f->acc[i];
    emit_loop_begin(e, loop, "row", lo, hi, by, false);
    for (uint32_t i = 0; i < f->n; i++) f->acc[i] = loop->phi[i];
    walk_vectors(l, f, keep, loop->i, hi, ragged);
    for (uint32_t i = 0; i < f->n; i++) loop->next[i] = f->acc[i];
    emit_loop_end(e, loop);
    for (uint32_t i = 0; i < f->n; i++) f->acc[i] = loop->out[i];
}

void row_walk(const Long *l, Folds *f, Keep keep, LLVMValueRef lo, LLVMValueRef hi) {
    Emit *e = l->r->team.g->e;
    int64_t turn = (int64_t)steps_of(l, keep) * l->r->team.size;
    LLVMValueRef n = LLVMBuildSub(e->b, hi, lo, "");
    LLVMValueRef whole = LLVMBuildAnd(e->b, n, emit_i64(e, -turn), "");
    whole = LLVMBuildAdd(e->b, lo, whole, "");
    walk(l, f, keep, lo, whole, false);
    walk(l, f, keep, whole, hi, true);
}

/* --- Single elements -------------------------------------------------------------------------- */

RowEdges row_edges(const Long *l, uint32_t from) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    RowEdges x;
    LLVMValueRef rank = LLVMBuildAdd(e->b, l->r->team.rank, emit_i64(e, from), "");
    LLVMValueRef zero = emit_i64(e, 0), line = emit_i64(e, l->line);
    LLVMValueRef front = LLVMBuildICmp(e->b, LLVMIntSLT, rank, line, "");
    LLVMValueRef behind = LLVMBuildSub(e->b, rank, line, "");
    LLVMValueRef at = LLVMBuildSub(e->b, emit_expr(e, l->length), l->tail, "");
    at = LLVMBuildSelect(e->b, front, rank, LLVMBuildAdd(e->b, at, behind, ""), "");
    x.live = LLVMBuildSelect(e->b, front, LLVMBuildICmp(e->b, LLVMIntSLT, rank, l->own_head, ""),
                             LLVMBuildICmp(e->b, LLVMIntSLT, behind, l->own_tail, ""), "");
    x.scope = emit_push(e);
    emit_set_sym(e, g->k->axes[l->axis].sym, LLVMBuildSelect(e->b, x.live, at, zero, ""));
    emit_pop(e);
    return x;
}

void row_edges_request(const Long *l, const RowEdges *x, const Pass *p) {
    Emit *e = l->r->team.g->e;
    const uint32_t lanes = e->lanes;
    EmitScope *outer = emit_switch(e, x->scope);
    e->lanes = 1;
    request(l, p);
    e->lanes = lanes;
    (void)emit_switch(e, outer);
}

void row_edges_walk(const Long *l, const RowEdges *x, Folds *f) {
    Emit *e = l->r->team.g->e;
    const uint32_t lanes = e->lanes;
    EmitScope *scope = x->scope, *outer = emit_switch(e, scope);
    LLVMValueRef live = x->live;
    e->lanes = 1;
    row_fold_vectors(l, &scope, &live, 1, f);
    row_store_vector(l, live, f->p);
    e->lanes = lanes;
    (void)emit_switch(e, outer);
}

/* --- A pass ----------------------------------------------------------------------------------- */

void row_fold_own_lanes(const Long *l, Folds *f) {
    Gpu *g = l->r->team.g;
    for (uint32_t i = 0; i < f->p->nfolds; i++) {
        KVal v = f->p->folds[i];
        if (v != l->lead)
            f->acc[i] = emit_fold_lanes_by(g->e, (KFold)g->k->ops[v].fold, gpu_fold_type(g, v),
                                           f->acc[i], rows_join(g->rows, v));
    }
}

void row_long_results(const Long *l, const Folds *f) {
    Emit *e = l->r->team.g->e;
    for (uint32_t i = 0; i < f->p->nfolds; i++) emit_override(e, f->p->folds[i], f->acc[i]);
    if (!row_has_under(l, f->p)) return;
    TeamPair t = pair_of(l, f);
    emit_override(e, l->under, row_under_result(l, t.lead, t.under));
}

/* The thread's folds over vectors and single elements become those of the whole team, known in the
 * current scope. */
static void finish(const Long *l, const Pass *p, Folds *f, Folds *edges) {
    Gpu *g = l->r->team.g;
    row_fold_own_lanes(l, f);
    for (uint32_t i = 0; i < p->nfolds; i++) {
        KVal v = p->folds[i];
        if (v == l->lead) continue;
        f->acc[i] = rows_join(g->rows, v)(g->e, (KFold)g->k->ops[v].fold, gpu_fold_type(g, v),
                                          f->acc[i], edges->acc[i]);
    }
    Team team = row_team_under(l, p);
    gpu_team_join(&team, p, f->acc);
    row_long_results(l, f);
}

static void run_pass(const Long *l, const Pass *p, Keep keep) {
    Emit *e = l->r->team.g->e;
    Folds f = row_folds_begin(l, p, e->lanes), edges = row_folds_begin(l, p, 1);
    LLVMValueRef room = emit_i64(e, keep ? l->room : 0);
    if (keep) room = gpu_smaller(e, room, l->count);
    if (keep == KEEP_wait && !l->turns) row_copy(l, room);
    if (l->offset) {
        GC_ASSERT(row_most_edges(l) <= l->r->team.size); /* a thread each */
        const RowEdges x = row_edges(l, 0);
        row_edges_walk(l, &x, &edges);
    }
    if (row_has_under(l, p)) put_pair(l, &f, pair_of(l, &edges));
    if (keep) row_walk(l, &f, keep, emit_i64(e, 0), room);
    if (!keep || !l->all_kept) row_walk(l, &f, KEEP_nothing, room, l->count);
    if (l->next && p == l->last) row_copy_rest(l);
    if (p->nfolds) finish(l, p, &f, &edges);
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
        if (row_has_under(l, p)) i++;
    }
}
