/* Long rows that a block takes in turns, or a cluster of blocks that share each of them. The copy
 * engine is never idle: where a row is walked for the last time, the next one takes the place of
 * what all threads have in registers. Other blocks of the multiprocessor walk meanwhile. */
#include "codegen/nvptx/hopper/hopper.h"
#include "codegen/nvptx/row/long.h"

enum {
    MOST_BLOCKS = 4, /* of a multiprocessor, and their threads: */
    THREADS = 256,
    MOST_THREADS = 512, /* where there are fewer of them */
};

static bool folds_join(const Gpu *g) {
    for (uint32_t i = 0; i < g->rows->npasses; i++)
        for (uint32_t f = 0; f < g->rows->pass[i].nfolds; f++)
            if (!row_is_sent(g, g->rows->pass[i].folds[f])) return false;
    return true;
}

bool row_turns(Long *l, uint32_t cluster) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    int64_t least, most;
    const uint32_t bytes = row_bytes_of(g, l->kept, l->nkept);
    expr_range(e->exprs, l->length, &least, &most);
    if (!bytes || (cluster > 1 && !folds_join(g))) return false;
    Long t = *l;
    t.cluster = cluster;
    const int64_t room = row_room(&t, most);
    if (room > g->m->shared) return false;
    t.turns = true, t.room = room, t.all_kept = true;
    t.blocks = g->m->shared / ((uint32_t)(room * e->lanes) * bytes + ROW_RESERVED);
    if (t.blocks > MOST_BLOCKS) t.blocks = MOST_BLOCKS;
    if (!t.blocks) return false;
    t.threads = t.blocks == MOST_BLOCKS ? THREADS : MOST_THREADS;
    row_place_kept(&t, t.room);
    if (!row_copies(&t) || row_ahead(&t) > ROW_MOST_AHEAD) return false;
    *l = t;
    return true;
}

/* Clusters, or single blocks, that run at once. Pairs fill the machine; larger clusters, whose
 * blocks all are of one part of it, do where each could be on one multiprocessor. */
static int64_t groups_of(const Long *l) {
    int64_t n = (int64_t)l->r->team.g->m->processors * l->blocks / l->cluster;
    return l->cluster > 2 && l->blocks % l->cluster ? n * 9 / 10 : n;
}

static void launch(Long *l, Expr groups) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    for (uint32_t i = 0; i < 3 && l->cluster > 1; i++) g->j->cluster[i] = i ? 1 : l->cluster;
    gpu_launch(g, l->r->team.size, expr_muli(e->exprs, groups, l->cluster), 0, 0);
    l->r->team.rank = g->tid;
    if (l->cluster == 1) return;
    l->r->team.blocks = l->cluster;
    l->r->team.block = LLVMBuildZExt(e->b, hop_cluster_rank(e), e->i64, "");
}

void row_run_turns(Long *l) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    Expr rows = gpu_points(e, g->k, g->rows->par);
    Expr groups = expr_min(p, rows, expr_const(p, groups_of(l)));
    launch(l, groups);
    LLVMValueRef all = emit_expr(e, rows), step = emit_expr(e, groups), at = g->block[0];
    if (l->cluster > 1) at = LLVMBuildUDiv(e->b, at, emit_i64(e, l->cluster), "");
    const Claims claims = row_claims(l, row_ahead(l), at, step, all);
    row_copy_begin(l);
    if (l->cluster > 1) gpu_team_meet(&l->r->team);
    Long row = *l;
    row.next = l, row.last = row_last_walk(g->rows);
    row.claims = &claims, row.end = all;
    row_copy_first(&row);
    EmitLoop loop = emit_loop(e, 4);
    loop.init[0] = emit_i64(e, 0);
    loop.init[1] = loop.init[2] = hop_i(e, 0);
    loop.init[3] = row_claimed_first(&claims);
    emit_loop_begin(e, &loop, "turn", at, all, step, true);
    l->r->team.turn = LLVMBuildAnd(e->b, loop.phi[0], emit_i64(e, 1), "");
    HV phase = LLVMBuildLShr(e->b, loop.phi[0], emit_i64(e, 1), "");
    l->r->team.phase = hop_andi(e, LLVMBuildTrunc(e->b, phase, e->i32, ""), 1);
    gpu_decode(e, g->k, g->rows->par, emit_new_sym(e, "row", INT32_MAX, loop.i));
    row.turn = LLVMBuildTrunc(e->b, loop.phi[0], e->i32, "");
    loop.next[3] = row_claim(&claims, row.turn, loop.phi[3]);
    row.place = loop.phi[1], row.phase = loop.phi[2];
    row_measure(&row);
    row_run_long(&row);
    loop.next[0] = LLVMBuildAdd(e->b, loop.phi[0], emit_i64(e, 1), "");
    for (uint32_t i = 1; i < 3; i++) loop.next[i] = loop.phi[i];
    row_chunks_behind(&row, &loop.next[1], &loop.next[2]);
    LLVMValueRef next = row_claimed(&claims, row.turn, hop_i(e, 1));
    loop.step = LLVMBuildSub(e->b, next, loop.i, "");
    emit_loop_end(e, &loop);
}
