/* Products of f32 with matrix units that multiply tf32. Every factor is the sum of two numbers of
 * that type, its nearest and what is left:
 *
 *   x = high + low     a b = low high + high low + high high
 *
 * which leaves out less than 2^-22 of a product. Those who multiply a tile take B apart in shared
 * memory, all of them together, where high comes to lie in the place of x and low behind it, and
 * each warpgroup its rows of A in registers. No more is stored or fetched than f32.
 *
 * Rows of either may be those of k, which matrix units do not take of tf32: A's are read so that
 * they come right into registers, B's are turned on the way, both numbers behind x. As that costs
 * more, a product whose B lies so is computed as the transpose of B' A' (gemm_turns).
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

/* Of those. */
static HV own_number(Gemm *x) {
    if (x->tile->pingpong) return hop_andi(x->e, x->tid, HOP_WARPGROUP - 1);
    return hop_addi(x->e, x->tid, -HOP_WARPGROUP);
}

/* B of the stage at `from`, whose rows are those of k: turned on the way, as matrix units have tf32
 * in rows along k alone. A lane has one k, of every four columns that a warp takes. */
static void turn_b(Gemm *x, HV from) {
    Emit *e = x->e;
    uint32_t n = x->cols / EACH / (threads_of(x) / 32);
    HV warp = hop_shr(e, own_number(x), 5), k = x->lane;
    HV b = hop_addi(e, from, x->a_bytes), row = hop_add(e, b, hop_muli(e, k, HOP_ROW_BYTES));
    HV piece = hop_shr(e, k, 2), in = hop_shl(e, hop_andi(e, k, 3), 2);
    for (uint32_t i = 0; i < n; i++) {
        HV v[EACH], four = hop_addi(e, hop_muli(e, warp, n), i);
        HV panel = hop_muli(e, hop_shr(e, four, 3), x->bk * HOP_ROW_BYTES);
        HV place = LLVMBuildXor(e->b, hop_andi(e, four, 7), hop_andi(e, k, 7), "");
        hop_load_four(e, hop_add(e, hop_add(e, row, panel), hop_shl(e, place, 4)), v);
        HV to = hop_add(e, hop_addi(e, b, x->b_bytes), in);
        for (uint32_t z = 0; z < EACH; z++) {
            HV split[2], col = hop_addi(e, hop_shl(e, four, 2), z);
            HV turned = LLVMBuildXor(e->b, piece, hop_andi(e, col, 7), "");
            HV at = hop_add(e, to, hop_shl(e, turned, 4));
            at = hop_add(e, at, hop_muli(e, col, HOP_ROW_BYTES));
            take_apart(e, v[z], &split[0], &split[1]);
            for (uint32_t l = 0; l < 2; l++) {
                HV arg[2] = {hop_addi(e, at, l * x->b_bytes), split[l]};
                hop_asm(e, e->voidt, "st.shared.b32 [$0], $1;", "r,r,~{memory}", arg, 2);
            }
        }
    }
}

/* B of the stage at `from`: this thread's pieces. Where they lie in their rows does not matter. */
static void apart_b(Gemm *x, HV from) {
    Emit *e = x->e;
    uint32_t threads = threads_of(x), n = x->b_bytes / PIECE / threads;
    HV own = own_number(x);
    HV at = hop_add(e, hop_addi(e, from, x->a_bytes), hop_shl(e, own, 4));
    for (uint32_t i = 0; i < n; i++) {
        HV v[EACH], high[EACH], low[EACH], to = hop_addi(e, at, i * threads * PIECE);
        hop_load_four(e, to, v);
        for (uint32_t z = 0; z < EACH; z++) take_apart(e, v[z], &high[z], &low[z]);
        hop_store_four(e, to, high);
        hop_store_four(e, hop_addi(e, to, x->b_bytes), low);
    }
}

/* Under the swizzle 16-byte piece c of a row lies at c xor (row % 8). Element i of a thread's of
 * A: see apart_a. */
static HV along_k(Gemm *x, HV slab, HV row, uint32_t i) {
    Emit *e = x->e;
    uint32_t piece = i / EACH * 2 + i % EACH / 2;
    HV at =
        hop_add(e, hop_add(e, slab, hop_shl(e, row, 7)), hop_shl(e, hop_andi(e, x->lane, 3), 2));
    HV place = LLVMBuildXor(e->b, hop_shl(e, hop_andi(e, row, 7), 4), hop_i(e, piece * PIECE), "");
    return hop_addi(e, hop_add(e, at, place), i % 2 * 8 * HOP_ROW_BYTES);
}

/* The same where rows of memory are those of k, 32 rows of A in each. */
static HV across_k(Gemm *x, HV slab, HV row, uint32_t i) {
    Emit *e = x->e;
    uint32_t first = i / EACH * 8 + i % EACH / 2 * 4; /* of k: and lane % 4 */
    HV r = hop_addi(e, row, i % 2 * 8), k = hop_addi(e, hop_andi(e, x->lane, 3), first);
    HV at = hop_add(e, slab, hop_muli(e, hop_shr(e, r, 5), x->bk * HOP_ROW_BYTES));
    at = hop_add(e, at, hop_muli(e, k, HOP_ROW_BYTES));
    HV piece = LLVMBuildXor(e->b, hop_andi(e, hop_shr(e, r, 2), 7), hop_andi(e, k, 7), "");
    at = hop_add(e, at, hop_shl(e, piece, 4));
    return hop_add(e, at, hop_shl(e, hop_andi(e, r, 3), 2));
}

/* A thread has, of every 8 columns, lane % 4 and that + 4, in its rows of the warp's 16: lane / 4
 * and that + 8. */
static void apart_a(Gemm *x, HV member, HV from, HV *high, HV *low) {
    Emit *e = x->e;
    HV row = hop_add(e, hop_shl(e, hop_andi(e, x->warp, 3), 4), hop_shr(e, x->lane, 2));
    HV mine = x->tile->pingpong ? from : hop_add(e, from, hop_muli(e, member, HOP_SLAB));
    for (uint32_t i = 0; i < STEPS * EACH; i++) {
        HV to = (x->p->a.across ? across_k : along_k)(x, mine, row, i);
        HV v = hop_asm(e, e->f32, "ld.shared.f32 $0, [$1];", "=f,r,~{memory}", &to, 1);
        take_apart(e, v, &high[i], &low[i]);
    }
}

/* When B of the stage has come: takes it apart. The copy engine's next accesses come after these */
static void open_stage(Gemm *x, GemmRing at) {
    Emit *e = x->e;
    hop_barrier_wait(e, gemm_barrier(x, at.stage, false), at.parity);
    (x->p->b[0].across ? turn_b : apart_b)(x, gemm_stage(x, at.stage));
    hop_fence_async(e);
}

/* Starts the products of an opened stage, the small ones first. */
static void start_stage(Gemm *x, HV member, HV stage, HV *sum) {
    Emit *e = x->e;
    HV high[STEPS * EACH], low[STEPS * EACH], from = gemm_stage(x, stage);
    HV no = LLVMConstInt(e->i1, 0, false), yes = LLVMConstInt(e->i1, 1, false);
    uint32_t b = x->a_bytes + (x->p->b[0].across ? x->b_bytes : 0);
    HV high_b = wgmma_descriptor(e, &x->shape.b, hop_addi(e, from, b));
    HV low_b = wgmma_descriptor(e, &x->shape.b, hop_addi(e, from, b + x->b_bytes));
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
    HV apart = x->tile->pingpong ? hop_addi(e, member, NAMED_APART) : hop_i(e, NAMED_APART);
    open_stage(x, ring);
    HopLoop *l = gemm_loop(x, x->first_block, ring);
    for (uint32_t i = 0; i < n; i++) hop_loop_init(l, LLVMConstReal(e->f32, 0));
    start_turns(e, l);
    hop_loop_begin(e, l, "multiply");
    HV at = l->phi[1];
    hop_sync(e, apart, threads_of(x));
    start_stage(x, member, at, sum);
    ring = gemm_next(x, (GemmRing){at, l->phi[2]});
    HV behind = hop_addi(e, l->phi[0], 1), more = hop_below(e, behind, x->end_block);
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
    HV *const acc_phi = l->phi + GEMM_CARRIED, *const kept = acc_phi + n;
    for (uint32_t i = 0; i < n; i++) acc[i] = emit_fma(e, sum[i], kept[i % TURNS], acc_phi[i]);
    gemm_loop_next(l, behind, ring);
    for (uint32_t i = 0; i < n; i++) l->next[GEMM_CARRIED + i] = acc[i];
    for (uint32_t i = 0; i < TURNS; i++) l->next[GEMM_CARRIED + n + i] = kept[(i + 1) % TURNS];
    hop_loop_end_while(e, l, more);
    return ring;
}
