/* A block's walk of one list of rows after the other (lists.c). In the next list a thread's columns
 * are others, so that sums of columns, and what all rows read alike, move on in between. */
#include "codegen/nvptx/band/band.h"

enum { MOVE = 14 /* number of a barrier of those that compute */ };

/* --- Sums that move --------------------------------------------------------------------------- */

static uint32_t warps_of(const Band *b) {
    return b->r.team.size / GPU_WARP;
}

/* Shared address of element i of sum s as vector 0 of warp n has it in front of its own. */
static HV front_of(const BandTurns *t, HV n, uint32_t s, uint32_t i) {
    Emit *e = t->b->r.team.g->e;
    const uint32_t by = t->b->lists.by, each = t->b->nsums * by;
    return hop_addi(e, hop_add(e, t->move_room, hop_muli(e, n, 4 * (int64_t)each)),
                    4 * ((int64_t)s * by + i));
}

void band_lists_init(BandTurns *t) {
    const Band *b = t->b;
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    EmitIf one;
    if (!b->lists.by) return;
    const uint32_t n = (b->r.pieces * warps_of(b) + 1) * b->nsums * b->lists.by;
    t->move_bar = LLVMBuildPtrToInt(e->b, gpu_shared(g, e->i64, 1), e->i32, "");
    t->move_room = LLVMBuildPtrToInt(e->b, gpu_shared(g, e->f32, n), e->i32, "");
    emit_if_begin(e, &one, gpu_is_first(g));
    hop_barrier_init(e, t->move_bar, 1);
    emit_if_end(e, &one);
}

static LLVMValueRef top(const Band *b, LLVMValueRef sum, uint32_t i) {
    Emit *e = b->r.team.g->e;
    return LLVMBuildExtractElement(e->b, sum, emit_i(e, e->i32, e->lanes - b->lists.by + i), "");
}

/* A warp's last elements to the warp behind, the block's to the block behind. */
static void leave_tops(const BandTurns *t, const LLVMValueRef *acc, HV rank) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    const uint32_t by = b->lists.by, size = b->r.team.size, last = (uint32_t)band_part(b) - 1;
    HV block = LLVMBuildTrunc(e->b, b->r.team.block, e->i32, ""), warp = hop_shr(e, rank, 5);
    EmitIf ends, owns;
    emit_if_begin(e, &ends, hop_is(e, hop_andi(e, rank, GPU_WARP - 1), GPU_WARP - 1));
    for (uint32_t u = 0; u < b->r.pieces; u++)
        for (uint32_t x = 0; x < b->nsums * by; x++) {
            HV to = front_of(t, hop_addi(e, warp, u * warps_of(b) + 1), x / by, x % by);
            LLVMValueRef v = top(b, acc[u * b->nsums + x / by], x % by);
            LLVMSetVolatile(LLVMBuildStore(e->b, v, hop_pointer(e, to)), true);
        }
    emit_if_end(e, &ends);
    if (b->cluster == 1) return;
    HV behind = hop_addi(e, block, 1);
    LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntULT, behind, hop_i(e, b->cluster), "");
    is = LLVMBuildAnd(e->b, is, hop_is(e, rank, last % size), "");
    emit_if_begin(e, &owns, is);
    for (uint32_t x = 0; x < b->nsums * by; x++)
        hop_cluster_send(e, front_of(t, hop_i(e, 0), x / by, x % by), t->move_bar, behind,
                         top(b, acc[last / size * b->nsums + x / by], x % by));
    emit_if_end(e, &owns);
}

/* Thread 0 has what the block in front sent; in the first block nothing lies in front. */
static void await_front(const BandTurns *t, HV rank, HV parity) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    const uint32_t n = b->nsums * b->lists.by;
    HV block = LLVMBuildTrunc(e->b, b->r.team.block, e->i32, "");
    EmitIf first, none, some;
    emit_if_begin(e, &first, hop_is(e, rank, 0));
    emit_if_begin(e, &none, hop_is(e, block, 0));
    for (uint32_t x = 0; x < n; x++) {
        HV to = front_of(t, hop_i(e, 0), x / b->lists.by, x % b->lists.by);
        LLVMBuildStore(e->b, LLVMConstNull(e->f32), hop_pointer(e, to));
    }
    emit_if_end(e, &none);
    if (b->cluster == 1) {
        emit_if_end(e, &first);
        return;
    }
    emit_if_begin(e, &some, LLVMBuildNot(e->b, hop_is(e, block, 0), ""));
    hop_barrier_expect(e, t->move_bar, hop_i(e, 4 * (int64_t)n));
    hop_barrier_wait(e, t->move_bar, parity);
    emit_if_end(e, &some);
    emit_if_end(e, &first);
}

/* Between lists, when all rows of the one are finished. All threads have met in these. */
static void move_sums(const BandTurns *t, LLVMValueRef *acc, HV parity) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    const uint32_t by = b->lists.by;
    HV rank = LLVMBuildTrunc(e->b, b->r.team.rank, e->i32, ""), warp = hop_shr(e, rank, 5);
    HV lane = hop_andi(e, rank, GPU_WARP - 1),
       before = hop_andi(e, hop_addi(e, lane, -1), GPU_WARP - 1);
    hop_sync(e, hop_i(e, MOVE), b->threads); /* what was left before is read */
    leave_tops(t, acc, rank);
    await_front(t, rank, parity);
    hop_sync(e, hop_i(e, MOVE), b->threads);
    for (uint32_t u = 0; u < b->r.pieces; u++)
        for (uint32_t s = 0; s < b->nsums; s++) {
            LLVMValueRef *sum = &acc[u * b->nsums + s], old = *sum;
            for (uint32_t i = e->lanes; i-- > by;) {
                LLVMValueRef x = LLVMBuildExtractElement(e->b, old, emit_i(e, e->i32, i - by), "");
                *sum = LLVMBuildInsertElement(e->b, *sum, x, emit_i(e, e->i32, i), "");
            }
            for (uint32_t i = 0; i < by; i++) {
                HV at = front_of(t, hop_addi(e, warp, u * warps_of(b)), s, i);
                LLVMValueRef x = gpu_shuffle_from(e, top(b, old, i), before, GPU_WARP);
                LLVMValueRef y = emit_load(e, e->f32, hop_pointer(e, at), sizeof(float));
                LLVMSetVolatile(y, true);
                x = LLVMBuildSelect(e->b, hop_is(e, lane, 0), y, x, "");
                *sum = LLVMBuildInsertElement(e->b, *sum, x, emit_i(e, e->i32, i), "");
            }
        }
}

/* --- All lists of a block --------------------------------------------------------------------- */

static LLVMValueRef least(Emit *e, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef v[2] = {a, b};
    return emit_intrinsic(e, "llvm.smin", e->i64, v, 2);
}

/* The list that begins with turn `from`. */
static void begin_list(BandTurns *t, LLVMValueRef from) {
    Band *b = t->b;
    band_list_enter(t, from);
    t->fixed = band_fixed(b);
    if (b->kept) band_keep_fixed(t);
}

void band_walk_lists(BandTurns *t, BandWalk walk, LLVMValueRef *x) {
    Band *b = t->b;
    Emit *e = b->r.team.g->e;
    const KDealt *d = &e->k->dealt;
    const uint32_t n = t->nacc + BAND_STATE;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef zero = emit_i64(e, 0), one = emit_i64(e, 1), rows = emit_expr(e, d->rows);
    if (!b->lists.by) {
        begin_list(t, zero);
        walk(t, rows, x);
        return;
    }
    LLVMValueRef per = emit_i64(e, d->per), at = emit_expr(e, d->first);
    LLVMValueRef end = LLVMBuildSub(e->b, LLVMBuildAdd(e->b, at, rows, ""), one, "");
    LLVMValueRef list = LLVMBuildUDiv(e->b, at, per, "");
    LLVMValueRef lists = LLVMBuildSub(e->b, LLVMBuildUDiv(e->b, end, per, ""), list, "");
    LLVMValueRef first = LLVMBuildMul(e->b, LLVMBuildAdd(e->b, list, one, ""), per, "");
    first = LLVMBuildSub(e->b, first, at, "");
    *l = emit_loop(e, n);
    for (uint32_t i = 0; i < n; i++) l->init[i] = x[i];
    emit_loop_begin(e, l, "list", zero, LLVMBuildAdd(e->b, lists, one, ""), one, true);
    for (uint32_t i = 0; i < n; i++) l->next[i] = l->phi[i];
    /* In front of the first list all sums are zero. */
    move_sums(t, l->next, hop_andi(e, LLVMBuildTrunc(e->b, l->i, e->i32, ""), 1));
    begin_list(t, l->phi[t->nacc]);
    LLVMValueRef stop = LLVMBuildAdd(e->b, first, LLVMBuildMul(e->b, l->i, per, ""), "");
    walk(t, least(e, stop, rows), l->next);
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < n; i++) x[i] = l->out[i];
}
