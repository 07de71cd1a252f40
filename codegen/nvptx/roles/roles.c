/* Long rows of known length that blocks, or pairs of them that share each row, take in turns, and
 * whose warps have roles: one asks the copy engine for chunk after chunk, some fold them as they
 * come, one joins what all have folded, others finish the row behind those that the first ones are
 * at, and one has the copy engine take away what they leave in the place of what they read. No
 * thread of a block waits for all others, and memory never waits for any. What all rows read alike
 * is read once (fixed.c). */
#include "codegen/nvptx/roles/roles.h"

enum {
    FOLDERS = 8, /* warps */
    FINISHERS = 8,
    FETCHER = FOLDERS + FINISHERS, /* the warp that asks for chunks, that which joins folds, ... */
    JOINER,
    STORER,           /* ... and that which takes results away */
    STEPS = 2,        /* vectors of a folder's thread in a chunk, of all that is kept */
    PIECE = 16,       /* bytes of each of these */
    MOST_EDGES = 4,   /* single elements of a thread */
    LEAST = 12,       /* tenths of a row that the ring has room for, */
    LEAST_ALONE = 20, /* where a pair of blocks would have room for more */
};

/* The row's single elements, so many for each thread of the warp that joins: those behind the last
 * vector may be a vector more. */
static uint32_t edges_of(const Long *l) {
    return (row_most_edges(l) + GPU_WARP - 1) / GPU_WARP;
}

bool row_roles(Long *l, uint32_t cluster) {
    Gpu *g = l->r->team.g;
    Long t = *l;
    if (!role_shape(&t, cluster)) return false;
    if (edges_of(&t) > MOST_EDGES) t.line = g->e->lanes;
    t.folders = FOLDERS;
    t.back = row_can_store(&t, row_last_walk(g->rows));
    t.threads = (t.back ? STORER + 1 : STORER) * GPU_WARP;
    role_room(&t);
    t.steps = STEPS;
    while (t.steps > 1 && t.steps * row_bytes_of(g, t.kept, t.nkept) * g->e->lanes > STEPS * PIECE)
        t.steps /= 2;
    t.chunk = t.steps * FOLDERS * GPU_WARP;
    if (!role_place(&t, cluster == 1 ? LEAST_ALONE : LEAST)) return false;
    *l = t;
    return true;
}

/* --- Roles ------------------------------------------------------------------------------------ */

static void take_away(const Roles *x) {
    Emit *e = x->l->r->team.g->e;
    EmitIf one;
    Turn t;
    if (!x->l->back) return;
    LLVMValueRef is = LLVMBuildAnd(e->b, role_is(x, STORER, 1), hop_is(e, role_lane(x), 0), "");
    emit_if_begin(e, &one, is);
    role_turns_of(x, &t, STORER, 1);
    row_copy_back(&t.row, x->last, hop_is(e, t.loop.phi[0], 0));
    role_turns_end(x, &t);
    hop_tma_wait(e);
    emit_if_end(e, &one);
}

static void fold(const Roles *x) {
    Emit *e = x->l->r->team.g->e;
    EmitIf mine;
    Turn t;
    emit_if_begin(e, &mine, role_is(x, 0, FOLDERS));
    role_turns_of(x, &t, 0, FOLDERS);
    Folds f = row_folds_begin(&t.row, x->first, e->lanes);
    row_walk(&t.row, &f, KEEP_wait, emit_i64(e, 0), t.row.count);
    row_fold_own_lanes(&t.row, &f);
    const Team team = row_team_under(&t.row, x->first);
    gpu_team_lanes(&team, x->first, f.acc);
    role_send(x, &t, f.acc);
    role_turns_end(x, &t);
    emit_if_end(e, &mine);
}

static void publish(const Roles *x, const Turn *t, const Folds *f) {
    Emit *e = x->l->r->team.g->e;
    LLVMValueRef first = hop_is(e, role_lane(x), 0);
    EmitIf one;
    emit_if_begin(e, &one, first);
    for (uint32_t i = 0; i < x->values; i++)
        LLVMBuildStore(e->b, f->acc[i], hop_pointer(e, role_value(x, t, i, NULL)));
    emit_if_end(e, &one);
    hop_barrier_arrive(e, role_slot_barrier(x, x->are_done, t), first);
}

/* Passes behind the folds, of single elements and of what walks nothing. */
static void finish_edges(const Roles *x, const Turn *t) {
    const Long *l = x->l;
    Emit *e = l->r->team.g->e;
    const Passes *rows = l->r->team.g->rows;
    Folds none = {.p = x->last};
    for (uint32_t i = l->first; i < rows->npasses; i++) {
        if (!rows->pass[i].axes) row_store_once(t->row.r, &rows->pass[i]);
        for (uint32_t u = 0; u < edges_of(l) && rows->pass[i].axes; u++) {
            RowEdges edges = row_edges(&t->row, u * GPU_WARP);
            if (l->cluster > 1) {
                LLVMValueRef b =
                    LLVMBuildICmp(e->b, LLVMIntEQ, l->r->team.block, emit_i64(e, 0), "");
                edges.live = LLVMBuildAnd(e->b, edges.live, b, "");
            }
            row_edges_walk(&t->row, &edges, &none);
        }
    }
}

/* Every block joins the row's single elements to the rest, which are few; one stores theirs. They
 * are on their way before the folds are waited for. */
static void join(const Roles *x) {
    Emit *e = x->l->r->team.g->e;
    RowEdges edges[MOST_EDGES];
    EmitIf mine;
    Turn t;
    emit_if_begin(e, &mine, role_is(x, JOINER, 1));
    role_ask_fixed(x);
    role_turns_of(x, &t, JOINER, 1);
    t.row.own_head = t.row.head, t.row.own_tail = t.row.tail;
    for (uint32_t u = 0; u < edges_of(x->l); u++) {
        edges[u] = row_edges(&t.row, u * GPU_WARP);
        row_edges_request(&t.row, &edges[u], x->first);
    }
    Folds f = role_receive(x, &t, hop_is(e, role_lane(x), 0));
    for (uint32_t u = 0; u < edges_of(x->l); u++) row_edges_walk(&t.row, &edges[u], &f);
    const Team team = row_team_under(&t.row, x->first);
    gpu_team_lanes(&team, x->first, f.acc);
    publish(x, &t, &f);
    row_long_results(&t.row, &f);
    finish_edges(x, &t);
    role_turns_end(x, &t);
    emit_if_end(e, &mine);
}

static void finish(const Roles *x) {
    Emit *e = x->l->r->team.g->e;
    EmitIf mine;
    Turn t;
    emit_if_begin(e, &mine, role_is(x, FOLDERS, FINISHERS));
    LLVMValueRef from = emit_i64(e, FOLDERS * GPU_WARP);
    from = LLVMBuildSub(e->b, x->l->r->team.g->tid, from, "");
    role_keep_fixed(x, from, FINISHERS * GPU_WARP);
    role_turns_of(x, &t, FOLDERS, FINISHERS);
    Folds f = row_folds_begin(&t.row, x->first, 1), none = {.p = x->last};
    hop_barrier_wait(e, role_slot_barrier(x, x->are_done, &t), t.phase);
    for (uint32_t i = 0; i < x->values; i++)
        f.acc[i] = role_read_value(e, role_value(x, &t, i, NULL));
    row_long_results(&t.row, &f);
    t.row.leaves = true;
    row_walk(&t.row, &none, KEEP_wait, emit_i64(e, 0), t.row.count);
    row_leave_rest(&t.row);
    role_turns_end(x, &t);
    emit_if_end(e, &mine);
}

/* --- The kernel ------------------------------------------------------------------------------- */

/* Places have results when all warps that finish have theirs, and are left by these, or by who
 * takes results away. */
static void init_barriers(const Roles *x) {
    role_init(x, x->l->bars, x->l->ring, 1);
    role_init(x, x->l->left, x->l->ring, x->l->back ? 1 : FINISHERS);
    role_init(x, x->l->made, x->l->ring, FINISHERS);
    role_init(x, x->are_done, ROLE_SLOTS, 1);
    role_init_rest(x);
}

void row_run_roles(Long *l) {
    const Roles x = role_begin(l);
    init_barriers(&x);
    role_fetch(&x, FETCHER);
    take_away(&x);
    fold(&x);
    join(&x);
    finish(&x);
}
