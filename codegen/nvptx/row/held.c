/* A row in registers. Every thread takes the same few vectors of it in every pass, in scopes that
 * live from the first pass to the last: what was loaded or computed for a vector is still there
 * when the next pass needs it. A row is read once, whatever the number of passes. */
#include "codegen/nvptx/row/row.h"

enum {
    LEAST_TEAM = 4,
    MOST_TEAM = 1024,
    FREE_PIECES = 4,  /* vectors of a thread before a larger team pays, inside of a warp */
    BLOCK_PIECES = 2, /* and in a block: others are busy while one waits for its sums (layernorm
                         over 4096: 66.5 us, not 67.8, in f32 65.5, not 66.6) */
    EVEN_PIECES = 6,  /* of a thread where none idles, of so many threads at most */
    MOST_EVEN = 256,
    HELD_VALUES = 64, /* elements that a thread may keep of one value */
    /* Bytes asked for at once by a multiprocessor that has memory's full speed, and where no warp
     * waits for another, so that some always ask (three or four vectors of one operand have no use
     * for the registers that this leaves them: layernorm over 896 67.8 us, not 65.0; a fifth more
     * of these makes layernorm over 64, 128 and 256 0.6 % slower, and nothing sooner). */
    IN_FLIGHT = 65536,
    ALONE_IN_FLIGHT = 40960,
    LEAST_REGISTERS = 40, /* of a thread; of a large block, which rounds more away: */
    LARGE = 512,
    LARGE_REGISTERS = 32,
    MOST_THREADS = 2048,
};

/* Threads idle in the last round, in parts of the whole. */
static double waste(int64_t vectors, uint32_t team, uint32_t pieces) {
    return 1 - (double)vectors / ((double)team * pieces);
}

bool row_stores_points(const RowPlan *r) {
    const Passes *rows = r->team.g->rows;
    for (uint32_t i = 0; i < rows->npasses; i++)
        if (rows->pass[i].axes && rows->pass[i].nstores) return true;
    return false;
}

/* A vector for each lane, none idle: what a warp asks for lies side by side. Where only folds are
 * stored, fewer lanes with more vectors each meet in fewer steps (rows of 128: 34 us, not 41). */
static bool is_even(const RowPlan *r, int64_t vectors) {
    return vectors >= LEAST_TEAM && vectors <= 32 && !(vectors & (vectors - 1)) &&
           row_stores_points(r);
}

/* Of a row that leaves threads idle, or takes a block of which few run at a time, teams that divide
 * it evenly with a few vectors more each (layernorm over 2560: 65.7 us, not 78.6; over 3072 65.5,
 * not 71.9; rows of two operands, which ask for enough all the same, gain where more idle in larger
 * blocks: with residual over 5120 129.5, not 156.4). */
static void choose_even(RowPlan *r, int64_t vectors) {
    bool two = row_loads(r) > 1;
    double idle = waste(vectors, r->team.size, r->pieces);
    if ((two && r->team.size < MOST_EVEN) || idle <= (two && r->team.size < LARGE ? 0.3 : 0.125))
        return;
    for (uint32_t t = MOST_EVEN; t >= GPU_WARP / 2; t /= 2)
        if (vectors % t == 0 && vectors / t <= EVEN_PIECES && row_is_busy(r, t)) {
            r->team.size = t;
            r->pieces = (uint32_t)(vectors / t);
            return;
        }
}

/* The smallest team that holds the row with few vectors each, a larger one while rows are few.
 * Where what all rows read alike is most, half as many threads a row, with two vectors each, meet
 * in fewer steps (layernorm over 128: 65.4 us, not 66.3; rmsnorm with residual, which reads two
 * rows and one weight, 130.5, not 128.4). */
static bool choose_team(RowPlan *r, int64_t vectors, uint32_t most) {
    uint32_t best = 0;
    if (is_even(r, vectors)) {
        r->pieces = row_shares_most(r) && vectors >= 2 * LEAST_TEAM ? 2 : 1;
        r->team.size = (uint32_t)vectors / r->pieces;
        return true;
    }
    for (uint32_t t = LEAST_TEAM; t <= MOST_TEAM; t *= 2) {
        uint32_t pieces = (uint32_t)((vectors + t - 1) / t);
        if (pieces > (t > 32 ? most : FREE_PIECES)) continue;
        bool busy = row_is_busy(r, t) || pieces == 1;
        if (best && (busy || waste(vectors, t, pieces) > 0.25)) break;
        best = t;
        r->pieces = pieces;
        if (busy && waste(vectors, t, pieces) <= 0.125) break;
    }
    r->team.size = best;
    if (best) choose_even(r, vectors);
    return best != 0;
}

bool row_walks_alike(RowPlan *r, int64_t *vectors) {
    Gpu *g = r->team.g;
    r->axes = 0;
    for (uint32_t i = 0; i < g->rows->npasses; i++) {
        const Pass *p = &g->rows->pass[i];
        if (p->axes && r->axes && p->axes != r->axes) return false;
        if (p->axes) r->axes = p->axes;
        for (uint32_t f = 0; f < p->nfolds; f++)
            if (gpu_fold_width(g, p->folds[f]) == 2) return false;
    }
    return !g->k->serial && !g->j->shrink &&
           expr_is_const(g->e->exprs, row_vectors(r, r->axes), vectors);
}

bool row_hold(RowPlan *r) {
    Gpu *g = r->team.g;
    Emit *e = g->e;
    int64_t vectors;
    if (!row_walks_alike(r, &vectors)) return false;
    uint32_t most = row_stores_points(r) || row_loads(r) > 1 ? BLOCK_PIECES : FREE_PIECES;
    if (e->lanes == 1) most = ROW_MAX_PIECES;
    if (choose_team(r, vectors, most)) return true;
    if (row_loads(r) == 1 && choose_team(r, vectors, FREE_PIECES)) return true;
    return choose_team(r, vectors, ROW_MAX_PIECES) && r->pieces * e->lanes <= HELD_VALUES;
}

bool row_holds(const RowPlan *r, int64_t vectors, uint32_t team) {
    if (team < LEAST_TEAM || team > MOST_TEAM) return false;
    int64_t pieces = (vectors + team - 1) / team;
    return pieces <= ROW_MAX_PIECES && pieces * r->team.g->e->lanes <= HELD_VALUES &&
           vectors >= team;
}

uint32_t row_traffic(const RowPlan *r) {
    const Gpu *g = r->team.g;
    uint32_t bytes = 0;
    for (KVal v = 1; v < g->k->nops; v++) {
        bool stored = g->k->ops[v].op == K_kstore && g->rows->dom[v] & r->axes;
        if (stored || row_is_own(r, v)) bytes += row_bytes(g, v);
    }
    return bytes * (uint32_t)expr_value(g->e->exprs, row_vectors(r, r->axes)) * g->e->lanes;
}

/* So many blocks per multiprocessor that enough is asked for at once. */
void row_occupy(const RowPlan *r, uint32_t threads) {
    Gpu *g = r->team.g;
    uint32_t bytes = 0;
    for (KVal v = 1; v < g->k->nops; v++) {
        const DType t = g->k->params[g->k->ops[v].buf].dtype;
        if (row_is_own(r, v)) bytes += (uint32_t)dtype_bytes(t);
    }
    bytes *= r->pieces * g->e->lanes * threads;
    if (g->j->min_blocks || !bytes) return;
    if (r->nbrought) {
        g->j->min_blocks = row_brought_blocks(r);
        return;
    }
    uint32_t least = threads < LARGE ? LEAST_REGISTERS : LARGE_REGISTERS;
    uint32_t most = g->m->registers / (threads * least);
    if (most > MOST_THREADS / threads) most = MOST_THREADS / threads;
    bool some = r->pieces > BLOCK_PIECES && r->pieces <= FREE_PIECES && row_loads(r) == 1;
    uint32_t wanted = r->team.size <= GPU_WARP && !some ? ALONE_IN_FLIGHT : IN_FLIGHT;
    g->j->min_blocks = (wanted + bytes - 1) / bytes;
    if (g->j->min_blocks > most) g->j->min_blocks = most;
}

static LLVMValueRef times(Emit *e, LLVMValueRef x, int64_t by) {
    return by == 1 ? x : LLVMBuildMul(e->b, x, emit_i64(e, by), "");
}

/* Vectors past the end are read again at the end and count for nothing; of what is brought the
 * thread's own first one, which no other one's result takes the place of. */
static void place_piece(Held *h, uint32_t u) {
    RowPlan *r = h->r;
    Emit *e = r->team.g->e;
    const uint32_t lanes = e->lanes;
    e->lanes = row_piece_lanes(r, u);
    const int64_t all = expr_value(e->exprs, row_vectors(r, r->axes));
    const int64_t parts = lanes / e->lanes; /* of a vector, which what blocks share counts in */
    const int64_t vectors = r->part ? r->part * parts : all;
    const int64_t fewest = r->fewest ? r->fewest * parts : vectors;
    int64_t first = (int64_t)u * r->team.size * parts;
    LLVMValueRef at = LLVMBuildAdd(e->b, r->team.rank, emit_i64(e, first), "");
    EmitScope *outer = e->scope;
    if (first + r->team.size > fewest) {
        LLVMValueRef end = r->count ? times(e, r->count, parts) : emit_i64(e, vectors);
        LLVMValueRef last = LLVMBuildSub(e->b, end, emit_i64(e, 1), "");
        h->live[u] = LLVMBuildICmp(e->b, LLVMIntSLT, at, end, "");
        at = r->nbrought ? LLVMBuildSelect(e->b, h->live[u], at, r->team.rank, "")
                         : gpu_smaller(e, at, last);
    }
    if (r->first) at = LLVMBuildAdd(e->b, at, times(e, r->first, parts), "");
    h->at[u] = at;
    h->scope[u] = emit_push(e);
    row_bind(r, r->axes, emit_new_sym(e, "piece", all - 1, at));
    (void)emit_switch(e, outer);
    e->lanes = lanes;
}

void row_place(Held *h) {
    for (uint32_t u = 0; u < h->r->pieces; u++) place_piece(h, u);
}

uint32_t row_piece_lanes(const RowPlan *r, uint32_t u) {
    return r->tail && u + 1 == r->pieces ? r->tail : r->team.g->e->lanes;
}

EmitScope *row_enter(const Held *h, uint32_t u) {
    Emit *e = h->r->team.g->e;
    e->lanes = row_piece_lanes(h->r, u);
    return emit_switch(e, h->scope[u]);
}

void row_exit(const Held *h, EmitScope *outer) {
    Emit *e = h->r->team.g->e;
    (void)emit_switch(e, outer);
    if (h->r->tail) e->lanes = h->r->lanes;
}

/* No warp of the row waits for another, and threads gain by asking for the rest: of two vectors, of
 * four or of two operands (over 768, three vectors of one operand, it is the same). */
static bool is_alone(const RowPlan *r) {
    bool few = r->pieces == BLOCK_PIECES && r->team.size > LEAST_TEAM;
    return r->team.size <= GPU_WARP && (few || r->pieces == FREE_PIECES || row_loads(r) > 1);
}

/* Of few rows, where no warp waits for another, and where the row waits in no register, what all
 * rows read alike is asked for with the rest, too (rmsnorm with residual over 1000: 126.7 us, not
 * 128.4; layernorm over 512 64.6, not 65.8). */
static bool is_asked(const Held *h, KVal v) {
    const Gpu *g = h->r->team.g;
    bool few = gpu_hint(g->e, gpu_points(g->e, g->k, g->rows->par)) < g->m->processors;
    few |= (is_alone(h->r) && h->r->pieces <= FREE_PIECES) ||
           (h->r->nbrought && !row_brought_asks_late(h->r));
    uint32_t dom = g->rows->dom[v], axes = h->r->axes;
    if (!gpu_is_request(g, v)) return false;
    if (row_is_own(h->r, v)) return !h->r->nbrought;
    return few && dom & axes && !(dom & ~(axes | g->rows->par));
}

/* All of the row is on its way before anything waits for it: first what no kernel of the run
 * writes. */
static void request(Held *h, uint32_t u, bool stable) {
    Gpu *g = h->r->team.g;
    EmitScope *outer = emit_switch(g->e, h->scope[u]);
    for (KVal v = 1; v < g->k->nops; v++)
        if (is_asked(h, v) && gpu_is_stable(g, v) == stable) (void)emit_value(g->e, v);
    (void)emit_switch(g->e, outer);
}

void row_fold_held(Held *h, const Pass *p) {
    Gpu *g = h->r->team.g;
    LLVMValueRef acc[ROWS_MAX_FOLDS * 2];
    (void)gpu_fold_init(g, p, g->e->lanes, acc);
    for (uint32_t u = 0; u < h->r->pieces; u++) {
        EmitScope *outer = emit_switch(g->e, h->scope[u]);
        for (uint32_t f = 0; f < p->nfolds; f++) row_fold(h->r, p->folds[f], h->live[u], &acc[f]);
        (void)emit_switch(g->e, outer);
    }
    row_results(h->r, p, acc);
}

/* What all rows read alike is asked for before the first vector is stored, behind which no load
 * passes: of f32, whose vectors are few (layernorm over 3072: 64.7 us, not 65.1; of 16 bits 65.7,
 * not 65.5). */
static void request_shared(Held *h) {
    const RowPlan *r = h->r;
    Gpu *g = r->team.g;
    if (g->e->lanes > 4 || r->team.size <= GPU_WARP || r->pieces <= BLOCK_PIECES) return;
    if (row_loads(r) > 1) return;
    for (uint32_t u = 0; u < r->pieces; u++) {
        EmitScope *outer = emit_switch(g->e, h->scope[u]);
        for (KVal v = 1; v < g->k->nops; v++)
            if (gpu_is_request(g, v) && g->rows->dom[v] & r->axes &&
                !(g->rows->dom[v] & g->rows->par))
                (void)emit_value(g->e, v);
        (void)emit_switch(g->e, outer);
    }
}

/* What several rows store is computed before any of it is stored: loads do not pass stores. */
static void compute_stored(Held *h, const Pass *p) {
    Emit *e = h->r->team.g->e;
    for (uint32_t u = 0; u < h->r->pieces; u++) {
        EmitScope *outer = emit_switch(e, h->scope[u]);
        for (uint32_t i = 0; i < p->nstores; i++)
            (void)emit_value(e, e->k->ops[p->stores[i]].in[0]);
        (void)emit_switch(e, outer);
    }
}

void row_store_held(Held *h, const Pass *p) {
    Emit *e = h->r->team.g->e;
    for (uint32_t u = 0; u < h->r->pieces; u++) {
        EmitIf live;
        EmitScope *outer = emit_switch(e, h->scope[u]);
        if (h->live[u]) emit_if_begin(e, &live, h->live[u]);
        for (uint32_t i = 0; i < p->nstores; i++) emit_store(e, p->stores[i]);
        if (h->live[u]) emit_if_end(e, &live);
        (void)emit_switch(e, outer);
    }
}

/* The rows that a team takes together, in scopes beside each other. */
typedef struct Together {
    uint32_t n;
    EmitScope *scope[ROW_MOST_TOGETHER];
    Held row[ROW_MOST_TOGETHER];
} Together;

static void run_pass(Together *t, const Pass *p) {
    Emit *e = t->row[0].r->team.g->e;
    for (uint32_t i = 0; i < t->n; i++) {
        EmitScope *outer = emit_switch(e, t->scope[i]);
        if (!p->axes) row_store_once(t->row[i].r, p);
        if (p->axes && p->nfolds) row_fold_held(&t->row[i], p);
        if (p->axes && p->nstores) request_shared(&t->row[i]);
        if (p->axes && t->n > 1) compute_stored(&t->row[i], p);
        (void)emit_switch(e, outer);
    }
    for (uint32_t i = 0; i < t->n && p->axes; i++) {
        EmitScope *outer = emit_switch(e, t->scope[i]);
        if (t->row[i].r->copied_out && p->nstores)
            row_leave(&t->row[i], p);
        else
            row_store_held(&t->row[i], p);
        (void)emit_switch(e, outer);
    }
}

void row_run_held(RowPlan *r, const Expr *row, uint32_t n) {
    Gpu *g = r->team.g;
    Emit *e = g->e;
    Together t = {.n = n};
    for (uint32_t i = 0; i < n; i++) {
        EmitScope *outer = e->scope;
        t.row[i].r = r;
        t.scope[i] = emit_push(e);
        gpu_decode(e, g->k, g->rows->par, row[i]);
        row_place(&t.row[i]);
        for (uint32_t u = 0; u < r->pieces; u++) request(&t.row[i], u, true);
        (void)emit_switch(e, outer);
    }
    if (r->nbrought) row_bring_begin(r);
    if (g->order == GPU_WAITS_LATER) gpu_wait(g);
    if (r->nbrought) {
        EmitScope *outer = emit_switch(e, t.scope[0]);
        row_bring(r);
        (void)emit_switch(e, outer);
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t u = 0; u < r->pieces; u++) request(&t.row[i], u, false);
    if (r->nbrought) row_take_brought(&t.row[0]);
    for (uint32_t i = 0; i < g->rows->npasses; i++) run_pass(&t, &g->rows->pass[i]);
    if (r->nbrought && r->copied_out) row_left(r);
}
