/* A kernel that takes a loop's iterations in turns: a thread per point, or a
 * team per row of which each thread has a few vectors, walks the turns and
 * holds in registers what they carry. What several turns load is asked for
 * while those in front of them are computed, since nothing of that waits for
 * another turn. */
#include "codegen/nvptx/row/row.h"

enum {
    BLOCK = 64,      /* threads: few of them spread over more multiprocessors */
    BUSY = 128,      /* threads of a multiprocessor before they take vectors */
    TOGETHER = 16,   /* turns whose loads are on their way at once, of so many ... */
    ON_THE_WAY = 64, /* ... loads of a thread */
    MOST_LOADS = K_MAX_PARAMS * ROW_MAX_PIECES,
    MOST_STATES = K_MAX_CARRIED * ROW_MAX_PIECES,
};

typedef struct Carried {
    KVal load, store;
    bool in_row; /* each element of a row has its own */
} Carried;

typedef struct Turns {
    Gpu *g;
    RowPlan r;
    uint32_t n;
    Carried carried[K_MAX_CARRIED];
    uint32_t nstates; /* what a thread holds: of each of these, for all its pieces */
} Turns;

/* --- What is carried -------------------------------------------------------------------------- */

static bool is_store_of(const Gpu *g, KVal v, uint32_t param) {
    return g->k->ops[v].op == K_kstore && g->k->ops[v].buf == param;
}

static bool find_carried(Turns *t) {
    const Gpu *g = t->g;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        if (o->op != K_kload || !kir_carries(g->k, o->buf) || !g->rows->need[v]) continue;
        if (t->n == K_MAX_CARRIED) return false;
        Carried *c = &t->carried[t->n++];
        *c = (Carried){.load = v, .store = 1, .in_row = (g->rows->dom[v] & t->r.axes) != 0};
        while (!is_store_of(g, c->store, o->buf)) c->store++;
        t->nstates += c->in_row ? t->r.pieces : 1;
    }
    return true;
}

static bool is_carried(const Turns *t, KVal load) {
    for (uint32_t i = 0; i < t->n; i++)
        if (t->carried[i].load == load) return true;
    return false;
}

/* Passes keep what every turn stores; what is carried is stored at the end. */
static void leave_carried(Turns *t) {
    Passes *r = t->g->rows;
    for (uint32_t i = 0; i < r->npasses; i++) {
        Pass *p = &r->pass[i];
        uint32_t n = 0;
        for (uint32_t s = 0; s < p->nstores; s++) {
            bool carried = false;
            for (uint32_t c = 0; c < t->n; c++) carried |= t->carried[c].store == p->stores[s];
            if (!carried) p->stores[n++] = p->stores[s];
        }
        p->nstores = n;
    }
}

/* --- A point, or a row's pieces --------------------------------------------------------------- */

typedef void EachFn(Turns *t, Held *h, const Carried *c, LLVMValueRef live, LLVMValueRef *state);

/* For every state, in its scope. */
static void each_state(Turns *t, Held *h, EachFn *fn, LLVMValueRef *state) {
    Emit *e = t->g->e;
    for (uint32_t i = 0; i < t->n; i++) {
        const Carried *c = &t->carried[i];
        if (!c->in_row) fn(t, h, c, NULL, state++);
        for (uint32_t u = 0; c->in_row && u < t->r.pieces; u++) {
            EmitScope *outer = emit_switch(e, h->scope[u]);
            fn(t, h, c, h->live[u], state++);
            (void)emit_switch(e, outer);
        }
    }
}

static LLVMValueRef value(Turns *t, const Carried *c, KVal v) {
    return c->in_row ? emit_value_lanes(t->g->e, v) : emit_value(t->g->e, v);
}

static void load_first(Turns *t, Held *h, const Carried *c, LLVMValueRef live,
                       LLVMValueRef *state) {
    (void)h, (void)live;
    *state = value(t, c, c->load);
}

static void take(Turns *t, Held *h, const Carried *c, LLVMValueRef live, LLVMValueRef *state) {
    (void)h, (void)live;
    emit_override(t->g->e, c->load, *state);
}

static void make_next(Turns *t, Held *h, const Carried *c, LLVMValueRef live, LLVMValueRef *state) {
    (void)h, (void)live;
    *state = value(t, c, t->g->k->ops[c->store].in[0]);
}

static void store_last(Turns *t, Held *h, const Carried *c, LLVMValueRef live,
                       LLVMValueRef *state) {
    Emit *e = t->g->e;
    EmitIf is;
    (void)h;
    if (!c->in_row && t->r.team.size > 1)
        live = LLVMBuildICmp(e->b, LLVMIntEQ, t->r.team.rank, emit_i64(e, 0), "");
    emit_override(e, t->g->k->ops[c->store].in[0], *state);
    if (live) emit_if_begin(e, &is, live);
    emit_store(e, c->store);
    if (live) emit_if_end(e, &is);
}

static void place(Turns *t, Held *h) {
    *h = (Held){.r = &t->r};
    if (t->r.axes) row_place(h);
}

/* --- A turn ----------------------------------------------------------------------------------- */

/* Its own loads: those that all turns make are made before the first. */
static bool is_asked(const Turns *t, KVal v) {
    const KOp *o = &t->g->k->ops[v];
    return gpu_is_request(t->g, v) && !is_carried(t, v) &&
           (expr_uses(t->g->e->exprs, o->index, t->g->k->turn) ||
            (o->mask && expr_uses(t->g->e->exprs, o->mask, t->g->k->turn)));
}

typedef void LoadFn(Emit *e, KVal v, bool in_row, LLVMValueRef *value);

/* For every load of a turn, in its scope. Gives the number of them. */
static uint32_t each_load(const Turns *t, const Held *h, LoadFn *fn, LLVMValueRef *value) {
    Emit *e = t->g->e;
    uint32_t n = 0;
    for (KVal v = 1; v < t->g->k->nops; v++) {
        const bool in_row = (t->g->rows->dom[v] & t->r.axes) != 0;
        if (!is_asked(t, v)) continue;
        for (uint32_t u = 0; u < (in_row ? t->r.pieces : 1); u++, n++) {
            if (!fn) continue;
            EmitScope *outer = emit_switch(e, in_row ? h->scope[u] : e->scope);
            fn(e, v, in_row, value + n);
            (void)emit_switch(e, outer);
        }
    }
    return n;
}

static void ask(Emit *e, KVal v, bool in_row, LLVMValueRef *value) {
    *value = in_row ? emit_value_lanes(e, v) : emit_value(e, v);
}

static void take_loaded(Emit *e, KVal v, bool in_row, LLVMValueRef *value) {
    (void)in_row;
    emit_override(e, v, *value);
}

/* state: what the turn finds, and what it leaves. */
static void run_turn(Turns *t, Held *h, LLVMValueRef *state) {
    const Passes *r = t->g->rows;
    each_state(t, h, take, state);
    for (uint32_t i = 0; i < r->npasses; i++)
        if (r->pass[i].nfolds) row_fold_held(h, &r->pass[i]);
    each_state(t, h, make_next, state);
    for (uint32_t i = 0; i < r->npasses; i++) {
        const Pass *p = &r->pass[i];
        if (p->axes)
            row_store_held(h, p);
        else if (p->nstores && t->r.team.size > 1)
            row_store_once(&t->r, p);
        else
            for (uint32_t s = 0; s < p->nstores; s++) emit_store(t->g->e, p->stores[s]);
    }
}

/* What the turns from `first` on load, as many as are taken together. */
static void ask_group(Turns *t, uint32_t together, Expr first, LLVMValueRef *value) {
    Emit *e = t->g->e;
    for (uint32_t u = 0; u < together; u++) {
        EmitScope *outer = e->scope;
        Held h;
        emit_push(e);
        emit_bind(e, t->g->k->turn, expr_addi(e->exprs, first, u));
        place(t, &h);
        value += each_load(t, &h, ask, value);
        (void)emit_switch(e, outer);
    }
}

/* Turns lo to hi, so many at a time. `ahead`: what the next ones load is asked for before these are
 * computed, of the last what they had themselves; else what these load is. */
static void run_turns(Turns *t, uint32_t together, bool ahead, LLVMValueRef lo, LLVMValueRef hi,
                      LLVMValueRef *state) {
    Emit *e = t->g->e;
    const Kernel *k = t->g->k;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    EmitScope *scope[TOGETHER], *outer;
    Held h[TOGETHER];
    LLVMValueRef size = emit_i64(e, together), loaded[MOST_LOADS];
    const uint32_t each = each_load(t, NULL, NULL, NULL), n = t->nstates;
    *l = emit_loop(e, n + (ahead ? each * together : 0));
    for (uint32_t i = 0; i < n; i++) l->init[i] = state[i];
    if (ahead) ask_group(t, together, expr_const(e->exprs, 0), l->init + n);
    emit_loop_begin(e, l, "turn", lo, hi, size, false);
    Expr first = emit_position(e, "turn", k->turns, l->i);
    outer = e->scope;
    for (uint32_t i = 0; i < n; i++) l->next[i] = l->phi[i];
    if (ahead) {
        LLVMValueRef last = LLVMBuildSub(e->b, hi, size, "");
        LLVMValueRef at = gpu_smaller(e, LLVMBuildAdd(e->b, l->i, size, ""), last);
        ask_group(t, together, emit_position(e, "ahead", k->turns, at), l->next + n);
    }
    for (uint32_t u = 0; u < together; u++) {
        scope[u] = emit_push(e);
        emit_bind(e, k->turn, expr_addi(e->exprs, first, u));
        place(t, &h[u]);
        if (ahead)
            each_load(t, &h[u], take_loaded, l->phi + n + each * u);
        else
            each_load(t, &h[u], ask, loaded);
        (void)emit_switch(e, outer);
    }
    for (uint32_t u = 0; u < together; u++) {
        (void)emit_switch(e, scope[u]);
        run_turn(t, &h[u], l->next);
        (void)emit_switch(e, outer);
    }
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < n; i++) state[i] = l->out[i];
}

static uint32_t choose_together(const Turns *t) {
    const uint32_t loads = each_load(t, NULL, NULL, NULL);
    uint32_t n = TOGETHER;
    while (n > 1 && (n * loads > ON_THE_WAY || n > gpu_hint(t->g->e, t->g->k->turns))) n /= 2;
    return t->g->j->shrink ? 1 : n;
}

/* --- The kernel ------------------------------------------------------------------------------- */

/* Vectors along the row's innermost axis, where there are enough threads all
 * the same; a team has at most a warp's. */
static bool choose_row(Turns *t) {
    Gpu *g = t->g;
    RowPlan *r = &t->r;
    int64_t n;
    *r = (RowPlan){.team = {.g = g, .size = 1}, .lane = -1};
    g->e->lanes = 1;
    for (uint32_t i = 0; i < g->rows->npasses; i++) {
        const Pass *p = &g->rows->pass[i];
        if (p->axes && r->axes && p->axes != r->axes) return false;
        if (p->axes) r->axes = p->axes;
    }
    if (!r->axes) return true;
    if (!expr_is_const(g->e->exprs, gpu_points(g->e, g->k, r->axes), &n)) return false;
    const int64_t elements = n * gpu_hint(g->e, gpu_points(g->e, g->k, g->rows->par));
    r->lane = 31 - __builtin_clz(r->axes);
    g->e->lanes = gpu_lanes(g, (uint32_t)r->lane, NULL);
    while (g->e->lanes > 1 && elements / g->e->lanes < (int64_t)g->m->processors * BUSY)
        g->e->lanes /= 2;
    n /= g->e->lanes;
    while (r->team.size < GPU_WARP && r->team.size < n) r->team.size *= 2;
    r->pieces = (uint32_t)((n + r->team.size - 1) / r->team.size);
    return r->pieces <= ROW_MAX_PIECES;
}

static void run(Turns *t) {
    Emit *e = t->g->e;
    LLVMValueRef state[MOST_STATES], from = emit_i64(e, 0), end = emit_expr(e, t->g->k->turns);
    const uint32_t together = choose_together(t);
    int64_t least, most;
    Held h;
    expr_range(e->exprs, t->g->k->turns, &least, &most);
    place(t, &h);
    each_state(t, &h, load_first, state);
    if (together > 1) {
        LLVMValueRef whole = LLVMBuildAnd(e->b, end, emit_i64(e, -(int64_t)together), "");
        run_turns(t, together, least >= together, from, whole, state);
        from = whole;
    }
    if (expr_divisor(e->exprs, t->g->k->turns) % together || together == 1)
        run_turns(t, 1, false, from, end, state);
    each_state(t, &h, store_last, state);
}

bool gpu_turns(Gpu *g) {
    Emit *e = g->e;
    Turns t = {.g = g};
    EmitIf inside;
    if (!g->k->turns) return false;
    if (!choose_row(&t) || !find_carried(&t)) {
        e->unsupported = "a loop that carries more than threads hold";
        return true;
    }
    leave_carried(&t);
    const uint32_t teams = BLOCK / t.r.team.size;
    Expr rows = gpu_points(e, g->k, g->rows->par);
    gpu_launch(g, BLOCK, expr_ceildiv(e->exprs, rows, expr_const(e->exprs, teams)), 0, 0);
    t.r.team.rank = LLVMBuildAnd(e->b, g->tid, emit_i64(e, t.r.team.size - 1), "");
    LLVMValueRef team = LLVMBuildLShr(e->b, g->tid, emit_i64(e, __builtin_ctz(t.r.team.size)), "");
    LLVMValueRef at = LLVMBuildAdd(e->b, gpu_muli(e, g->block[0], teams), team, "");
    emit_if_begin(e, &inside, LLVMBuildICmp(e->b, LLVMIntSLT, at, emit_expr(e, rows), ""));
    gpu_decode(e, g->k, g->rows->par, emit_position(e, "row", rows, at));
    run(&t);
    emit_if_end(e, &inside);
    return true;
}
