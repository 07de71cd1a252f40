/* What every role goes through: the rows of its block, one turn after the other, and how the block
 * comes to them. Who fetches claims the row behind and tells all others, across a cluster, too. */
#include "codegen/nvptx/roles/roles.h"

/* --- A turn ----------------------------------------------------------------------------------- */

LLVMValueRef role_first(const Roles *x) {
    Gpu *g = x->l->r->team.g;
    if (x->l->cluster == 1) return g->block[0];
    return LLVMBuildUDiv(g->e->b, g->block[0], emit_i64(g->e, x->l->cluster), "");
}

void role_turns_begin(const Roles *x, Turn *t, LLVMValueRef rank, uint32_t n) {
    Gpu *g = x->l->r->team.g;
    Emit *e = g->e;
    LLVMValueRef at = role_first(x), all = emit_expr(e, x->rows);
    t->role = *x->l->r;
    t->role.team.size = n * GPU_WARP;
    t->role.team.rank = rank;
    t->row = *x->l;
    t->row.r = &t->role;
    if (n > 1) t->row.steps = x->l->chunk / t->role.team.size;
    t->loop = emit_loop(e, 3);
    for (uint32_t i = 0; i < 3; i++) t->loop.init[i] = hop_i(e, 0);
    emit_loop_begin(e, &t->loop, "turn", at, all, emit_i64(e, 1), true);
    gpu_decode(e, g->k, g->rows->par, emit_new_sym(e, "row", INT32_MAX, t->loop.i));
    t->row.place = t->loop.phi[1], t->row.phase = t->loop.phi[2];
    row_measure(&t->row);
    t->slot = hop_andi(e, t->loop.phi[0], ROLE_SLOTS - 1);
    t->phase = hop_andi(e, hop_shr(e, t->loop.phi[0], __builtin_ctz(ROLE_SLOTS)), 1);
}

void role_turns_of(const Roles *x, Turn *t, uint32_t first, uint32_t n) {
    const Gpu *g = x->l->r->team.g;
    LLVMValueRef from = emit_i64(g->e, (int64_t)first * GPU_WARP);
    role_turns_begin(x, t, LLVMBuildSub(g->e->b, g->tid, from, ""), n);
}

HV role_shared(const Roles *x, uint32_t at) {
    Gpu *g = x->l->r->team.g;
    return hop_addi(g->e, hop_shared(g), at);
}

HV role_slot_barrier(const Roles *x, uint32_t bars, const Turn *t) {
    Emit *e = x->l->r->team.g->e;
    return hop_add(e, role_shared(x, bars), hop_muli(e, t->slot, HOP_BARRIER_BYTES));
}

/* Where the row behind is. */
static HV next_at(const Roles *x, const Turn *t) {
    Emit *e = x->l->r->team.g->e;
    return hop_add(e, role_shared(x, x->next), hop_muli(e, t->slot, 4));
}

/* The row behind is the one that who fetches has asked for. */
void role_turns_end(const Roles *x, Turn *t) {
    Emit *e = x->l->r->team.g->e;
    hop_barrier_wait(e, role_slot_barrier(x, x->next_comes, t), t->phase);
    LLVMValueRef next = LLVMBuildLoad2(e->b, e->i32, hop_pointer(e, next_at(x, t)), "");
    LLVMSetVolatile(next, true);
    t->loop.step = LLVMBuildSub(e->b, LLVMBuildZExt(e->b, next, e->i64, ""), t->loop.i, "");
    t->loop.next[0] = hop_addi(e, t->loop.phi[0], 1);
    for (uint32_t i = 1; i < 3; i++) t->loop.next[i] = t->loop.phi[i];
    row_chunks_behind(&t->row, &t->loop.next[1], &t->loop.next[2]);
    emit_loop_end(e, &t->loop);
}

HV role_lane(const Roles *x) {
    Gpu *g = x->l->r->team.g;
    return hop_andi(g->e, LLVMBuildTrunc(g->e->b, g->tid, g->e->i32, ""), GPU_WARP - 1);
}

LLVMValueRef role_is(const Roles *x, uint32_t first, uint32_t n) {
    Emit *e = x->l->r->team.g->e;
    return LLVMBuildICmp(e->b, LLVMIntULT, hop_addi(e, x->warp, -(int64_t)first), hop_i(e, n), "");
}

/* --- Who fetches ------------------------------------------------------------------------------ */

/* One of the blocks that share rows asks for their next one, of rows of the same remainder: how
 * many of these were asked for before. The count starts again behind the last of them. The others,
 * which get no answer that they need, count elsewhere. */
static HV claim(const Roles *x) {
    const Long *l = x->l;
    Emit *e = l->r->team.g->e;
    const int64_t period = role_period(l);
    LLVMValueRef own = LLVMBuildAnd(e->b, role_first(x), emit_i64(e, period - 1), "");
    LLVMValueRef left = LLVMBuildSub(e->b, emit_expr(e, x->rows), own, "");
    left = LLVMBuildAdd(e->b, left, emit_i64(e, period - 1), "");
    left = LLVMBuildLShr(e->b, left, emit_i64(e, __builtin_ctzll((uint64_t)period)), "");
    HV last = hop_addi(e, LLVMBuildTrunc(e->b, left, e->i32, ""), -1);
    if (l->cluster > 1) {
        LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntEQ, l->r->team.block, emit_i64(e, 0), "");
        own = LLVMBuildSelect(e->b, is, own, emit_i64(e, period), "");
        last = LLVMBuildSelect(e->b, is, last, hop_i(e, 0), "");
    }
    return gpu_count_to(e, emit_gep(e, e->i32, x->counter, own), last);
}

/* The row goes to all blocks that share it, this one among them. */
static void give(const Roles *x, const Turn *t) {
    const Long *l = x->l;
    Emit *e = l->r->team.g->e;
    const int64_t period = role_period(l);
    EmitIf leads;
    LLVMValueRef own = LLVMBuildAnd(e->b, role_first(x), emit_i64(e, period - 1), "");
    LLVMValueRef all = LLVMBuildAdd(e->b, emit_expr(e, x->groups), emit_i64(e, period - 1), "");
    all = LLVMBuildAdd(e->b, LLVMBuildAnd(e->b, all, emit_i64(e, -period), ""), own, "");
    HV next = hop_add(e, LLVMBuildTrunc(e->b, all, e->i32, ""), hop_muli(e, t->claimed, period));
    HV bar = role_slot_barrier(x, x->next_comes, t);
    if (l->cluster == 1) {
        LLVMBuildStore(e->b, next, hop_pointer(e, next_at(x, t)));
        hop_barrier_arrive(e, bar, LLVMConstInt(e->i1, 1, false));
        return;
    }
    LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntEQ, l->r->team.block, emit_i64(e, 0), "");
    emit_if_begin(e, &leads, is);
    next = LLVMBuildBitCast(e->b, next, e->f32, "");
    for (uint32_t i = 0; i < l->cluster; i++)
        hop_cluster_send(e, next_at(x, t), bar, hop_i(e, i), next);
    emit_if_end(e, &leads);
    hop_barrier_expect(e, bar, hop_i(e, 4));
}

void role_fetch(const Roles *x, uint32_t warp) {
    Emit *e = x->l->r->team.g->e;
    EmitIf one;
    Turn t;
    LLVMValueRef is = role_is(x, warp, 1);
    is = LLVMBuildAnd(e->b, is, hop_is(e, role_lane(x), 0), "");
    emit_if_begin(e, &one, is);
    role_turns_of(x, &t, warp, 1);
    t.claimed = claim(x);
    row_copy_to_left(&t.row);
    give(x, &t);
    role_turns_end(x, &t);
    emit_if_end(e, &one);
}

/* --- What warps fold -------------------------------------------------------------------------- */

HV role_value(const Roles *x, const Turn *t, uint32_t i, HV warp) {
    Emit *e = x->l->r->team.g->e;
    HV n = hop_addi(e, hop_muli(e, t->slot, x->values), i);
    if (!warp) return hop_add(e, role_shared(x, x->results), hop_muli(e, n, 4));
    n = hop_add(e, hop_muli(e, n, role_parts(x->l)), warp);
    return hop_add(e, role_shared(x, x->parts), hop_muli(e, n, 4));
}

/* Nothing that this thread does writes it. */
LLVMValueRef role_read_value(Emit *e, HV at) {
    LLVMValueRef v = LLVMBuildLoad2(e->b, e->f32, hop_pointer(e, at), "");
    LLVMSetVolatile(v, true);
    return v;
}

/* Where the warp's part of value i goes: blocks number theirs one behind the other. */
static HV part_at(const Roles *x, const Turn *t, uint32_t i) {
    Emit *e = x->l->r->team.g->e;
    HV warp = hop_shr(e, LLVMBuildTrunc(e->b, t->role.team.rank, e->i32, ""), 5);
    if (x->l->cluster > 1) {
        HV block = LLVMBuildTrunc(e->b, x->l->r->team.block, e->i32, "");
        warp = hop_add(e, warp, hop_muli(e, block, x->l->folders));
    }
    return role_value(x, t, i, warp);
}

/* What the warp has folded goes to the blocks that share the row, this one among them, where the
 * warp arrives besides: who finishes writes over what it has read. */
void role_send(const Roles *x, const Turn *t, const LLVMValueRef *v) {
    Emit *e = x->l->r->team.g->e;
    EmitIf some;
    HV lane = role_lane(x), bar = role_slot_barrier(x, x->parts_come, t);
    hop_warp_sync(e);
    emit_if_begin(e, &some, LLVMBuildICmp(e->b, LLVMIntULT, lane, hop_i(e, x->l->cluster), ""));
    for (uint32_t i = 0; i < x->values; i++)
        if (x->l->cluster > 1)
            hop_cluster_send(e, part_at(x, t, i), bar, lane, v[i]);
        else
            LLVMBuildStore(e->b, v[i], hop_pointer(e, part_at(x, t, i)));
    hop_barrier_arrive(e, bar, hop_is(e, lane, 0));
    emit_if_end(e, &some);
}

/* What all warps have folded, a lane each. */
Folds role_receive(const Roles *x, const Turn *t, LLVMValueRef leads) {
    Emit *e = x->l->r->team.g->e;
    Folds f = row_folds_begin(&t->row, x->first, 1);
    HV lane = role_lane(x), bar = role_slot_barrier(x, x->parts_come, t);
    const uint32_t n = role_parts(x->l);
    EmitIf one;
    if (x->l->cluster > 1) {
        emit_if_begin(e, &one, leads);
        hop_barrier_expect(e, bar, hop_i(e, (int64_t)4 * x->values * n));
        emit_if_end(e, &one);
    }
    hop_barrier_wait(e, bar, t->phase);
    LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntULT, lane, hop_i(e, n), "");
    LLVMValueRef last[2] = {lane, hop_i(e, n - 1)};
    HV from = emit_intrinsic(e, "llvm.umin", e->i32, last, 2);
    for (uint32_t i = 0; i < x->values; i++) {
        LLVMValueRef v = role_read_value(e, role_value(x, t, i, from));
        f.acc[i] = LLVMBuildSelect(e->b, is, v, f.acc[i], "");
    }
    return f;
}

/* --- The kernel ------------------------------------------------------------------------------- */

/* Blocks, or pairs of them, that run at once: such that the rows of each start alike. */
static int64_t groups_of(const Long *l) {
    int64_t n = l->r->team.g->m->processors / l->cluster;
    return n - n % role_period(l);
}

static void launch(Roles *x) {
    Gpu *g = x->l->r->team.g;
    Emit *e = g->e;
    Team *team = &x->l->r->team;
    for (uint32_t i = 0; i < 3 && x->l->cluster > 1; i++) g->j->cluster[i] = i ? 1 : x->l->cluster;
    gpu_launch(g, x->l->threads, expr_muli(e->exprs, x->groups, x->l->cluster), 0, 0);
    if (x->l->cluster > 1) team->block = LLVMBuildZExt(e->b, hop_cluster_rank(e), e->i64, "");
    x->warp = hop_shr(e, LLVMBuildTrunc(e->b, g->tid, e->i32, ""), 5);
}

void role_init(const Roles *x, uint32_t at, uint32_t n, uint32_t count) {
    Gpu *g = x->l->r->team.g;
    Emit *e = g->e;
    EmitIf some;
    HV tid = LLVMBuildTrunc(e->b, g->tid, e->i32, "");
    emit_if_begin(e, &some, LLVMBuildICmp(e->b, LLVMIntULT, tid, hop_i(e, n), ""));
    HV bar = hop_add(e, role_shared(x, at), hop_muli(e, tid, HOP_BARRIER_BYTES));
    hop_barrier_init(e, bar, count);
    hop_barrier_init_fence(e);
    hop_fence_async(e);
    emit_if_end(e, &some);
}

/* Parts come from all of the block that fold, and, across a cluster, as bytes that one thread more
 * expects. */
void role_init_rest(const Roles *x) {
    Emit *e = x->l->r->team.g->e;
    role_init(x, x->parts_come, ROLE_SLOTS, x->l->folders + (x->l->cluster > 1 ? 1 : 0));
    role_init(x, x->fixed_comes, 1, 1);
    role_init(x, x->next_comes, ROLE_SLOTS, 1);
    gpu_barrier(e);
    if (x->l->cluster > 1) hop_cluster_sync(e);
    gpu_wait(x->l->r->team.g);
}

Roles role_begin(Long *l) {
    Gpu *g = l->r->team.g;
    ExprPool *p = g->e->exprs;
    Roles x = {.l = l, .first = &g->rows->pass[0], .last = row_last_walk(g->rows)};
    x.rows = gpu_points(g->e, g->k, g->rows->par);
    x.groups = expr_min(p, x.rows, expr_const(p, groups_of(l)));
    (void)role_lay_out_slots(l, l->made + l->ring * HOP_BARRIER_BYTES, &x);
    g->order = GPU_WAITS_PREPARED;
    launch(&x);
    x.counter = gpu_zeroed(g, expr_const(p, 4 * ((int64_t)role_period(l) + 1)), true);
    return x;
}
