/* A row per team of threads, which walk it side by side. A row that fits into the team's registers
 * is read once (held.c); long ones are, where shared memory holds them (long.c); others are walked
 * once per pass (walked.c). */
#include "codegen/nvptx/row/long.h"

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

/* The rows of a block, which each of its teams takes one or more of. l: long ones, or NULL. */
static void run_blocks(RowPlan *r, Long *l, bool held) {
    Gpu *g = r->team.g;
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    Block b = {.threads = r->group ? r->group * r->team.size : block_threads(r, held)};
    b.teams = b.threads / r->team.size;
    b.rows = gpu_points(e, g->k, g->rows->par);
    if (held) row_occupy(r, b.threads);
    if (r->nbrought) g->j->shared_bytes = row_brought_bytes(r);
    r->team.reads = held;
    choose_together(r, &b, held && !r->group);
    b.exact |= r->group > 0; /* nobody leaves */
    /* In a branch of its own a row would read what all rows share ahead of the wait. */
    if (held && b.exact) g->order = GPU_WAITS_LATER;
    gpu_launch(g, b.threads, expr_ceildiv(p, b.rows, expr_const(p, b.teams * b.together)), 0, 0);
    LLVMValueRef at = r->group ? row_group_begin(r, b.rows) : first_row(r, &b);
    EmitIf inside;
    if (!b.exact)
        emit_if_begin(e, &inside, LLVMBuildICmp(e->b, LLVMIntSLT, at, emit_expr(e, b.rows), ""));
    Expr row[ROW_MOST_TOGETHER] = {emit_new_sym(e, "row", INT32_MAX, at)};
    for (uint32_t i = 1; i < b.together; i++) row[i] = expr_addi(p, row[0], (int64_t)i * b.teams);
    if (!held) gpu_decode(e, g->k, g->rows->par, row[0]);
    if (held)
        row_run_held(r, row, b.together);
    else if (l)
        row_run_long(l);
    else
        for (uint32_t i = 0; i < g->rows->npasses; i++) row_walk_pass(r, &g->rows->pass[i]);
    if (!b.exact) emit_if_end(e, &inside);
}

/* Threads of a team that walks rows of that many elements. */
static uint32_t walking_team(int64_t length) {
    return length <= 512 ? 32 : length <= 2048 ? 128 : length <= 8192 ? 256 : 512;
}

static void run_rows(Gpu *g, int64_t length) {
    RowPlan r = {.team.g = g, .lane = choose_lanes(g)};
    Long l;
    const bool grouped = !g->j->yielded && row_groups(&r);
    const bool held = grouped || (!g->j->yielded && row_hold(&r));
    const bool is_long = !held && row_long(&r, &l);
    g->j->yields = held; /* if that takes too many registers */
    if (!held && !is_long) r.team.size = walking_team(length);
    if (is_long)
        row_choose_long(&l);
    else if (!grouped)
        choose_team(&r, held);
    if (is_long && l.turns)
        (l.teams ? row_run_teams : l.folders ? row_run_roles : row_run_turns)(&l);
    else
        run_blocks(&r, is_long ? &l : NULL, held);
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
