/* A row per team of threads, which walk it side by side. A row that fits into the team's registers
 * is read once (held.c); long ones are, where shared memory holds them (long.c); others are
 * walked once per pass. */
#include "codegen/nvptx/row/row.h"

/* --- Rows that are walked --------------------------------------------------------------------- */

enum { STEPS = 4 };

/* The team goes from `lo` to `hi`, each thread `steps` vectors at a time: all of them are read
 * before any result is stored. */
static void walk(const RowPlan *r, const Pass *p, uint32_t steps, LLVMValueRef lo, LLVMValueRef hi,
                 uint32_t nacc, LLVMValueRef *acc) {
    Gpu *g = r->team.g;
    Emit *e = g->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    EmitScope *scope[STEPS];
    int64_t least, most;
    expr_range(e->exprs, row_vectors(r, p->axes), &least, &most);
    *l = emit_loop(e, nacc);
    for (uint32_t i = 0; i < nacc; i++) l->init[i] = acc[i];
    emit_loop_begin(e, l, "row", lo, hi, emit_i64(e, (int64_t)steps * r->team.size), false);
    Expr first = emit_new_sym(e, "j", most > 0 ? most - 1 : 0, l->i);
    EmitScope *outer = e->scope;
    for (uint32_t i = 0; i < nacc; i++) l->next[i] = l->phi[i];
    for (uint32_t u = 0; u < steps; u++) {
        scope[u] = emit_push(e);
        row_bind(r, p->axes, expr_addi(e->exprs, first, (int64_t)u * r->team.size));
        LLVMValueRef *at = l->next;
        for (uint32_t f = 0; f < p->nfolds; f++) {
            row_fold(r, p->folds[f], NULL, at);
            at += gpu_fold_width(g, p->folds[f]);
        }
        for (uint32_t i = 0; i < p->nstores; i++)
            (void)emit_value(e, g->k->ops[p->stores[i]].in[0]);
        (void)emit_switch(e, outer);
    }
    for (uint32_t u = 0; u < steps; u++) {
        (void)emit_switch(e, scope[u]);
        for (uint32_t i = 0; i < p->nstores; i++) emit_store(e, p->stores[i]);
        (void)emit_switch(e, outer);
    }
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < nacc; i++) acc[i] = l->out[i];
}

static void walk_pass(const RowPlan *r, const Pass *p) {
    Gpu *g = r->team.g;
    Emit *e = g->e;
    if (!p->axes) {
        row_store_once(r, p);
        return;
    }
    LLVMValueRef acc[ROWS_MAX_FOLDS * 2];
    uint32_t nacc = gpu_fold_init(g, p, e->lanes, acc);
    Expr vectors = row_vectors(r, p->axes);
    LLVMValueRef end = emit_expr(e, vectors), from = r->team.rank;
    int64_t stride = (int64_t)STEPS * r->team.size;
    if (gpu_hint(e, vectors) >= stride && !g->j->shrink) {
        LLVMValueRef whole = LLVMBuildAnd(e->b, end, emit_i64(e, -stride), "");
        walk(r, p, STEPS, from, whole, nacc, acc);
        from = LLVMBuildAdd(e->b, whole, r->team.rank, "");
    }
    walk(r, p, 1, from, end, nacc, acc);
    row_results(r, p, acc);
}

/* --- Plan ------------------------------------------------------------------------------------- */

/* Rows are worth a team when the row is what lies side by side in memory, or when there are too few
 * of them to fill the machine. */
static bool wants_team(Gpu *g, int64_t *length) {
    Passes *r = g->rows;
    int score = 0;
    *length = 0;
    for (uint32_t i = 0; i < r->npasses; i++) {
        const Pass *p = &r->pass[i];
        if (!p->axes) continue;
        int64_t n = gpu_hint(g->e, gpu_points(g->e, g->k, p->axes));
        if (n > *length) *length = n;
    }
    for (uint32_t i = 0; i < g->k->naxes; i++) {
        int s = gpu_contiguity(g->e, g->k, r->dom, ~r->par, i);
        bool par = r->par >> i & 1;
        score += s > 0 ? (par ? -s : s) : 0;
    }
    int64_t rows = gpu_hint(g->e, gpu_points(g->e, g->k, r->par));
    return *length >= 16 && (score >= 0 || (rows < 8192 && *length >= 256));
}

/* The axis of the vectors: the innermost that all passes over a row walk. -1: threads take single
 * elements. */
static int choose_lanes(Gpu *g) {
    uint32_t common = ~0u;
    bool pairs = false;
    for (uint32_t i = 0; i < g->rows->npasses; i++) {
        const Pass *p = &g->rows->pass[i];
        if (p->axes) common &= p->axes;
        for (uint32_t f = 0; f < p->nfolds; f++) pairs |= gpu_fold_width(g, p->folds[f]) == 2;
    }
    common &= (1u << g->k->naxes) - 1;
    if (!common || pairs) return -1;
    uint32_t axis = 31 - (uint32_t)__builtin_clz(common);
    g->e->lanes = gpu_lanes(g, axis, NULL);
    return g->e->lanes > 1 ? (int)axis : -1;
}

enum { TEAM_WAYS = 4 };
typedef struct Ways {
    RowPlan way[TEAM_WAYS];
    const char *name[TEAM_WAYS];
    uint32_t n;
} Ways;

static void add_way(Ways *w, const RowPlan *r, const char *what) {
    w->way[w->n] = *r;
    w->name[w->n++] = arena_printf(r->team.g->j->arena, "%s %u", what, r->team.size);
}

/* The row in teams of other sizes, for tuning. Twice as many threads come first: few rows that are
 * long are what the rules above know least about. */
static void add_teams(Ways *w, const RowPlan *r, bool held, int64_t length) {
    const uint32_t size[2] = {2 * r->team.size, r->team.size / 2};
    for (uint32_t i = 0; i < 2; i++) {
        RowPlan way = *r;
        way.team.size = size[i];
        if (held ? !row_holds(r, length, size[i]) : size[i] < 32 || size[i] > 1024) continue;
        if (held) way.pieces = (uint32_t)((length + size[i] - 1) / size[i]);
        add_way(w, &way, held ? "held by" : "walked by");
    }
}

/* A held row comes by the copy engine where that pays; tuning tries the other way, too, and other
 * teams where the row's length and number are known. */
static void choose_team(RowPlan *r, bool held) {
    Gpu *g = r->team.g;
    Emit *e = g->e;
    int64_t rows, length;
    RowPlan own = *r, brought = *r;
    Ways w = {.n = 0};
    const bool can = held && row_brings(&brought), first = can && row_gains(&brought, &own);
    if (first) *r = brought;
    if (!gpu_has_ways(g) || !r->axes || g->k->serial || g->j->shrink ||
        !expr_is_const(e->exprs, gpu_points(e, g->k, g->rows->par), &rows) ||
        !expr_is_const(e->exprs, row_vectors(r, r->axes), &length))
        return;
    if (first) add_way(&w, &brought, "brought to");
    add_way(&w, &own, held ? "held by" : "walked by");
    if (can && !first) add_way(&w, &brought, "brought to");
    add_teams(&w, &own, held, length);
    const char *facts = arena_printf(g->j->arena, "row %lld of %lld lanes=%u", (long long)rows,
                                     (long long)length * e->lanes, e->lanes);
    *r = w.way[gpu_ways(g, facts, w.name, w.n)];
}

enum { LONG_WAYS = 12 };

/* What all rows read alike is more than a row, so that reading it again for each would hold caches
 * up longer than memory takes. Half of a row is enough where a block that holds a row has a
 * multiprocessor to itself: while it finishes one, it asks memory for nothing. */
static bool reads_much_again(const Long *l, bool alone) {
    const Gpu *g = l->r->team.g;
    uint32_t kept = 0, fixed = 0;
    for (uint32_t i = 0; i < l->nkept; i++) kept += row_bytes(g, l->kept[i]);
    for (uint32_t i = 0; i < l->nfixed; i++) fixed += row_bytes(g, l->fixed[i]);
    return fixed > kept || (alone && fixed && 2 * fixed >= kept);
}

/* By warps with roles, which hold rows in registers or leave them in shared memory, in a block or
 * else in two that share the row. */
static uint32_t roles_ways(const Long *l, bool first, Long *way, const char **name) {
    static const struct {
        bool (*take)(Long *, uint32_t);
        uint32_t cluster;
        const char *name;
    } ways[] = {{row_teams, 1, "by teams"},
                {row_teams, 2, "by teams of 2"},
                {row_roles, 1, "by roles"},
                {row_roles, 2, "by roles of 2"}};
    uint32_t n = 0;
    for (uint32_t i = 0; i < 4; i++) {
        way[n] = *l;
        if (ways[i].take(&way[n], ways[i].cluster) &&
            reads_much_again(&way[n], l->blocks == 1) == first)
            name[n++] = ways[i].name;
    }
    return n;
}

/* Ways of a long row: where blocks gain by keeping what all rows read alike, warps have roles; it
 * comes by the copy engine where it can; if no block holds all of it, a cluster of blocks does, as
 * small a one as can. The way to take first. */
static uint32_t long_ways(const Long *l, Long *way, const char **name) {
    static const char *const turns[] = {"in turns", "in turns by 2", "in turns by 4",
                                        "in turns by 8"};
    uint32_t n = roles_ways(l, true, way, name);
    for (uint32_t i = 1; i < 4 && !l->all_kept; i++) {
        way[n] = *l;
        if (row_turns(&way[n], 1u << i)) name[n++] = turns[i];
    }
    way[n] = *l;
    if (row_copies(&way[n])) name[n++] = "copied";
    way[n] = *l, name[n++] = "loaded";
    for (uint32_t i = 0; i < 4 && l->all_kept; i++) {
        way[n] = *l;
        if (row_turns(&way[n], 1u << i)) name[n++] = turns[i];
    }
    return n + roles_ways(l, false, way + n, name + n);
}

static void choose_long(Long *l) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    int64_t rows, length;
    Long way[LONG_WAYS];
    const char *name[LONG_WAYS];
    uint32_t n = long_ways(l, way, name), at = 0;
    if (n > 1 && expr_is_const(e->exprs, gpu_points(e, g->k, g->rows->par), &rows) &&
        expr_is_const(e->exprs, l->length, &length)) {
        const char *facts = arena_printf(g->j->arena, "long row %lld of %lld lanes=%u",
                                         (long long)rows, (long long)length, e->lanes);
        at = gpu_ways(g, facts, name, n);
    }
    *l = way[at];
    l->r->team.size = l->threads;
    g->j->shared_bytes = l->shared;
    if (!g->j->min_blocks) g->j->min_blocks = l->blocks;
    if (g->j->min_blocks < l->blocks) l->blocks = g->j->min_blocks; /* more would spill */
}

/* --- The kernel ------------------------------------------------------------------------------- */

typedef struct Block {
    uint32_t threads, teams;
    uint32_t together; /* rows of a team, one `teams` behind the other */
    Expr rows;         /* of all blocks */
    bool exact;        /* every team of every block has all of its rows */
} Block;

/* Threads of a block of teams inside of warps, or half as many, which end sooner, if these move so
 * many bytes: a GPU starts 0.8 blocks in a nanosecond (layernorm over 1000: 64.1 us, not 64.7;
 * rmsnorm with residual over 768 96.0, not 96.4; sums of 768, of which nothing is stored, 40, not
 * 24). */
enum { SHORT_BLOCK = 128, LEAST_TRAFFIC = 8000 };

static uint32_t block_threads(const RowPlan *r, bool held) {
    if (r->team.size > 32) return r->team.size;
    uint32_t half = SHORT_BLOCK / 2, rows = half / r->team.size;
    return held && row_traffic(r) * rows >= LEAST_TRAFFIC ? half : SHORT_BLOCK;
}

/* Short rows of which a thread has one vector leave room for more of them. */
static void choose_together(const RowPlan *r, Block *b, bool held) {
    Gpu *g = r->team.g;
    int64_t n;
    bool known = expr_is_const(g->e->exprs, b->rows, &n);
    b->together = 1;
    if (held && known && row_stores_points(r) && r->team.size <= 32 && r->pieces == 1 &&
        n % ((int64_t)b->teams * ROW_MOST_TOGETHER) == 0 &&
        n >= (int64_t)g->m->processors * b->threads)
        b->together = ROW_MOST_TOGETHER;
    b->exact = b->teams == 1 || b->together > 1;
}

/* Of this thread's team, which knows its rank then. */
static LLVMValueRef first_row(RowPlan *r, const Block *b) {
    Gpu *g = r->team.g;
    Emit *e = g->e;
    r->team.rank = g->tid;
    if (b->teams == 1) return g->block[0];
    r->team.rank = LLVMBuildAnd(e->b, g->tid, emit_i64(e, r->team.size - 1), "");
    LLVMValueRef at =
        LLVMBuildMul(e->b, g->block[0], emit_i64(e, (int64_t)b->teams * b->together), "");
    LLVMValueRef team = LLVMBuildLShr(e->b, g->tid, emit_i64(e, __builtin_ctz(r->team.size)), "");
    return LLVMBuildAdd(e->b, at, team, "");
}

static void run_rows(Gpu *g, int64_t length) {
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    RowPlan r = {.team.g = g, .lane = choose_lanes(g)};
    Long l;
    const bool grouped = !g->j->yielded && row_groups(&r);
    bool held = grouped || (!g->j->yielded && row_hold(&r)), is_long = !held && row_long(&r, &l);
    g->j->yields = held; /* if that takes too many registers */
    if (!held && !is_long)
        r.team.size = length <= 512 ? 32 : length <= 2048 ? 128 : length <= 8192 ? 256 : 512;
    if (is_long)
        choose_long(&l);
    else if (!grouped)
        choose_team(&r, held);
    if (is_long && l.turns) {
        (l.teams ? row_run_teams : l.folders ? row_run_roles : row_run_turns)(&l);
        return;
    }
    Block b = {.threads = grouped ? r.group * r.team.size : block_threads(&r, held)};
    b.teams = b.threads / r.team.size;
    b.rows = gpu_points(e, g->k, g->rows->par);
    if (held) row_occupy(&r, b.threads);
    if (r.nbrought) g->j->shared_bytes = row_brought_bytes(&r);
    r.team.reads = held;
    choose_together(&r, &b, held && !grouped);
    b.exact |= grouped; /* nobody leaves */
    /* In a branch of its own a row would read what all rows share ahead of the wait. */
    if (held && b.exact) g->order = GPU_WAITS_LATER;
    gpu_launch(g, b.threads, expr_ceildiv(p, b.rows, expr_const(p, b.teams * b.together)), 0, 0);
    LLVMValueRef at = grouped ? row_group_begin(&r, b.rows) : first_row(&r, &b);
    EmitIf inside;
    if (!b.exact)
        emit_if_begin(e, &inside, LLVMBuildICmp(e->b, LLVMIntSLT, at, emit_expr(e, b.rows), ""));
    Expr row[ROW_MOST_TOGETHER] = {emit_new_sym(e, "row", INT32_MAX, at)};
    for (uint32_t i = 1; i < b.together; i++) row[i] = expr_addi(p, row[0], (int64_t)i * b.teams);
    if (!held) gpu_decode(e, g->k, g->rows->par, row[0]);
    if (held)
        row_run_held(&r, row, b.together);
    else if (is_long)
        row_run_long(&l);
    else
        for (uint32_t i = 0; i < g->rows->npasses; i++) walk_pass(&r, &g->rows->pass[i]);
    if (!b.exact) emit_if_end(e, &inside);
}

/* Statistics stand between the last element that is read and the first that is stored: where all
 * that is stored has 16 bits, their quotients and roots need not be exact. */
static bool is_quick(const Kernel *k) {
    for (KVal v = 1; v < k->nops; v++) {
        DType t = (DType)k->ops[v].dtype;
        if (k->ops[v].op == K_kstore && (!dtype_is_float(t) || dtype_bytes(t) > 2)) return false;
    }
    return gpu_may_be_quick(k);
}

/* By what is no constant they are exact all the same: the quick one is 0 where the divisor is above
 * 2^126. */
static LLVMValueRef quick(Emit *e, Op op, LLVMValueRef x, LLVMValueRef y) {
    return op == OP_div && !LLVMIsConstant(y) ? NULL : gpu_quick(e, op, x, y);
}

bool gpu_row(Gpu *g) {
    int64_t length;
    bool folds = false;
    for (uint32_t i = 0; i < g->rows->npasses; i++) folds |= g->rows->pass[i].nfolds > 0;
    if (!folds || !wants_team(g, &length)) return false;
    if (is_quick(g->k)) g->e->quick = quick;
    run_rows(g, length);
    g->e->quick = NULL;
    return true;
}
