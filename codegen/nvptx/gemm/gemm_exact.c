/* Products of f32 with matrix units that multiply tf32. Every factor is the sum of two numbers of
 * that type, its nearest and what is left:
 *
 *   x = high + low     a b = low high + high low + high high
 *
 * which leaves out less than 2^-22 of a product. Those who multiply a tile take B apart in shared
 * memory, all of them together, where high comes to lie in the place of x and low behind it, and
 * each warpgroup its rows of A in registers. No more is stored or fetched than f32.
 *
 * A factor that is infinite gives NaN. */
#include "codegen/nvptx/gemm/gemm.h"

enum { NAMED_APART = 6 }; /* and the next, where warpgroups take turns */
enum {
    STEPS = 4,
    EACH = 4,
    PIECE = 16
}; /* along k; registers of A in a step; bytes moved at once */

static void take_apart(Emit *e, HV x, HV *high, HV *low) {
    HV h = hop_asm(e, e->i32, "cvt.rna.tf32.f32 $0, $1;", "=r,f", &x, 1);
    HV rest = LLVMBuildFSub(e->b, x, LLVMBuildBitCast(e->b, h, e->f32, ""), "");
    *high = h;
    *low = hop_asm(e, e->i32, "cvt.rna.tf32.f32 $0, $1;", "=r,f", &rest, 1);
}

/* Those who multiply a tile together. */
static uint32_t threads_of(const Gemm *x) {
    return (x->tile->pingpong ? 1 : x->tile->groups) * HOP_WARPGROUP;
}

/* B of the stage at `from`: this thread's pieces. Where they lie in their rows does not matter. */
static void apart_b(Gemm *x, HV from) {
    Emit *e = x->e;
    uint32_t threads = threads_of(x), n = x->b_bytes / PIECE / threads;
    HV own = hop_addi(e, x->tid, -HOP_WARPGROUP);
    if (x->tile->pingpong) own = hop_andi(e, x->tid, HOP_WARPGROUP - 1);
    HV at = hop_add(e, hop_addi(e, from, x->a_bytes), hop_shl(e, own, 4));
    for (uint32_t i = 0; i < n; i++) {
        HV v[EACH], high[EACH], low[EACH], to = hop_addi(e, at, i * threads * PIECE);
        hop_load_four(e, to, v);
        for (uint32_t z = 0; z < EACH; z++) take_apart(e, v[z], &high[z], &low[z]);
        hop_store_four(e, to, high);
        hop_store_four(e, hop_addi(e, to, x->b_bytes), low);
    }
}

/* A thread has, of every 8 columns, lane % 4 and that + 4, in its rows of the warp's 16: lane / 4
 * and that + 8. Under the swizzle 16-byte piece c of a row lies at c xor (row % 8). */
static void apart_a(Gemm *x, HV member, HV from, HV *high, HV *low) {
    Emit *e = x->e;
    HV quad = hop_shr(e, x->lane, 2);
    HV row = hop_add(e, hop_shl(e, hop_andi(e, x->warp, 3), 4), quad);
    HV mine = x->tile->pingpong ? from : hop_add(e, from, hop_muli(e, member, HOP_SLAB));
    HV at = hop_add(e, mine, hop_shl(e, row, 7));
    at = hop_add(e, at, hop_shl(e, hop_andi(e, x->lane, 3), 2));
    for (uint32_t i = 0; i < STEPS * EACH; i++) {
        uint32_t piece = i / EACH * 2 + i % EACH / 2;
        HV place = LLVMBuildXor(e->b, hop_shl(e, quad, 4), hop_i(e, piece * PIECE), "");
        HV to = hop_addi(e, hop_add(e, at, place), i % 2 * 8 * HOP_ROW_BYTES);
        HV v = hop_asm(e, e->f32, "ld.shared.f32 $0, [$1];", "=f,r,~{memory}", &to, 1);
        take_apart(e, v, &high[i], &low[i]);
    }
}

/* When B of the stage has come: takes it apart. The copy engine's next accesses come after these */
static void open_stage(Gemm *x, GemmRing at) {
    Emit *e = x->e;
    hop_barrier_wait(e, gemm_barrier(x, at.stage, false), at.parity);
    apart_b(x, gemm_stage(x, at.stage));
    hop_fence_async(e);
}

/* Starts the products of an opened stage, the small ones first. */
static void start_stage(Gemm *x, HV member, HV stage, HV *sum) {
    Emit *e = x->e;
    HV high[STEPS * EACH], low[STEPS * EACH], from = gemm_stage(x, stage);
    HV no = LLVMConstInt(e->i1, 0, false), yes = LLVMConstInt(e->i1, 1, false);
    HV high_b = wgmma_descriptor(e, &x->shape.b, hop_addi(e, from, x->a_bytes));
    HV low_b = wgmma_descriptor(e, &x->shape.b, hop_addi(e, from, x->a_bytes + x->b_bytes));
    apart_a(x, member, from, high, low);
    hop_fence_async(e);
    for (uint32_t i = 0; i < wgmma_acc(&x->shape); i++) sum[i] = LLVMGetUndef(e->f32);
    wgmma_block_held(e, &x->shape, sum, low, high_b, no);
    wgmma_block_held(e, &x->shape, sum, high, low_b, yes);
    wgmma_block_held(e, &x->shape, sum, high, high_b, yes);
}

/* Of three sums, or of three k-blocks of one, two get back 2^-23: four steps along k cut off 0.52
 * to 0.72 of it on average, by the kind of numbers. An f32 cannot say 1 + 2/3 2^-23, and what is
 * off in one direction in all results grows with the layers of a model that has no norms. */
enum { TURNS = 3 };

static void start_turns(Emit *e, HopLoop *l) {
    for (uint32_t i = 0; i < TURNS; i++) hop_loop_init(l, LLVMConstReal(e->f32, i ? GEMM_KEPT : 1));
}

/* Matrix units cut what they add, so the sums grow outside of them, and what four steps along k cut
 * off on average is given back. While they multiply, the next stage is opened. */
GemmRing gemm_multiply_exact(Gemm *x, HV member, GemmRing ring, HV *acc) {
    Emit *e = x->e;
    uint32_t n = wgmma_acc(&x->shape);
    HV *sum = ARENA_ARRAY(e->arena, HV, n);
    HopLoop *l = hop_loop_new(e);
    HV apart = x->tile->pingpong ? hop_addi(e, member, NAMED_APART) : hop_i(e, NAMED_APART);
    open_stage(x, ring);
    hop_loop_init(l, x->first_block);
    hop_loop_init(l, ring.stage);
    hop_loop_init(l, ring.parity);
    for (uint32_t i = 0; i < n; i++) hop_loop_init(l, LLVMConstReal(e->f32, 0));
    start_turns(e, l);
    hop_loop_begin(e, l, "multiply");
    HV at = l->phi[1];
    hop_sync(e, apart, threads_of(x));
    start_stage(x, member, at, sum);
    ring = gemm_next(x, (GemmRing){at, l->phi[2]});
    l->next[0] = hop_addi(e, l->phi[0], 1);
    HV more = LLVMBuildICmp(e->b, LLVMIntULT, l->next[0], x->end_block, "");
    HopIf next = hop_if(e, more);
    open_stage(x, ring);
    hop_end(e, next);
    if (x->tile->pingpong) {
        HopIf last = hop_if(e, LLVMBuildNot(e->b, more, ""));
        gemm_hand_over(x, ring);
        hop_end(e, last);
    }
    wgmma_wait_all(e, sum, n);
    gemm_give_back(x, at, LLVMConstInt(e->i1, 1, false));
    HV *const acc_phi = l->phi + 3, *const kept = acc_phi + n;
    for (uint32_t i = 0; i < n; i++) acc[i] = emit_fma(e, sum[i], kept[i % TURNS], acc_phi[i]);
    l->next[1] = ring.stage;
    l->next[2] = ring.parity;
    for (uint32_t i = 0; i < n; i++) l->next[3 + i] = acc[i];
    for (uint32_t i = 0; i < TURNS; i++) l->next[3 + n + i] = kept[(i + 1) % TURNS];
    hop_loop_end_while(e, l, more);
    return ring;
}
