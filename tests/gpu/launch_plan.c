/* Writes a plan whose kernels use every launch fact of a plan, for launch_check on a GPU: tensor
 * map, cluster, dependent launch, kept and fresh zeroed memory, variants, a cubin per kernel.
 *
 *   launch_plan OUT.plan
 *
 * Of the sample's graph (plan_sample.h) inputs and outputs alone: y = x + 1, for 32 rows and more
 * x + 2 (another variant); z = the sum of 2 x + 2 w, and 1000 for every run before that left its
 * scratch as it was. */
#include "tests/unit/runtime/plan_sample.h"
#include "codegen/nvptx/assembler.h"
#include "runtime/base/file.h"
#include <stdio.h>

/* clang-format off */
#define HEAD ".version 8.0\n.target sm_90a\n.address_size 64\n"
#define REGISTERS ".reg .b64 %d<12>;\n.reg .b32 %r<8>;\n.reg .f32 %f<6>;\n.reg .pred %p<3>;\n"

/* w, out, dims: a thread per element */
static const char doubled[] = HEAD
    ".visible .entry launch_double(.param .u64 w, .param .u64 o, .param .u64 n, .param .u64 m) {\n"
    REGISTERS
    "ld.param.u64 %d1, [w];\nld.param.u64 %d2, [o];\nmov.u32 %r1, %tid.x;\n"
    "mul.wide.u32 %d3, %r1, 4;\nadd.u64 %d1, %d1, %d3;\nadd.u64 %d2, %d2, %d3;\n"
    "ld.global.f32 %f1, [%d1];\nadd.f32 %f1, %f1, %f1;\nst.global.f32 [%d2], %f1;\nret;\n}\n";

/* Blocks of a cluster of 2 copy 8 rows of x each through their map; t = 2 x + w, and a counter that
 * comes back to 0 with the last block. */
static const char scale[] = HEAD
    ".visible .entry launch_scale(.param .u64 x, .param .u64 w, .param .u64 t, .param .u64 zero,\n"
    ".param .align 64 .b8 map[128], .param .u64 n, .param .u64 four) .reqntid 32 {\n"
    ".shared .align 128 .b8 tile[128];\n.shared .align 8 .b64 bar;\n" REGISTERS
    "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmov.u32 %r3, bar;\nmov.u32 %r4, tile;\n"
    "griddepcontrol.wait;\n"
    "setp.ne.u32 %p1, %r1, 0;\n@%p1 bra wait;\n"
    "mbarrier.init.shared::cta.b64 [%r3], 1;\nfence.mbarrier_init.release.cluster;\n"
    "mbarrier.arrive.expect_tx.shared::cta.b64 %d1, [%r3], 128;\n"
    "shl.b32 %r5, %r2, 3;\nmov.u32 %r6, 0;\nmov.b64 %d2, map;\ncvta.param.u64 %d2, %d2;\n"
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    " [%r4], [%d2, {%r6, %r5}], [%r3];\n"
    "ld.param.u64 %d3, [zero];\nmov.u32 %r6, %nctaid.x;\nsub.u32 %r6, %r6, 1;\n"
    "atom.global.inc.u32 %r7, [%d3], %r6;\n"
    "wait:\nbar.sync 0;\n"
    "again:\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [%r3], 0;\n@!%p1 bra again;\n"
    "shl.b32 %r5, %r1, 2;\nadd.u32 %r4, %r4, %r5;\nld.shared.f32 %f1, [%r4];\n"
    "and.b32 %r5, %r1, 3;\nmul.wide.u32 %d4, %r5, 4;\nld.param.u64 %d5, [w];\n"
    "add.u64 %d5, %d5, %d4;\nld.global.f32 %f2, [%d5];\nfma.rn.f32 %f1, %f1, 0f40000000, %f2;\n"
    "shl.b32 %r5, %r2, 5;\nadd.u32 %r5, %r5, %r1;\ncvt.u64.u32 %d6, %r5;\n"
    "ld.param.u64 %d7, [n];\nsetp.ge.u64 %p2, %d6, %d7;\n@%p2 bra done;\n"
    "ld.param.u64 %d8, [t];\nshl.b64 %d6, %d6, 2;\nadd.u64 %d8, %d8, %d6;\n"
    "st.global.f32 [%d8], %f1;\n"
    "done:\ngriddepcontrol.launch_dependents;\nret;\n}\n";

/* x, w, y, dims: y = x + add */
#define ADD(name, add) HEAD \
    ".visible .entry " name "(.param .u64 x, .param .u64 w, .param .u64 y, .param .u64 n,\n" \
    ".param .u64 four) {\n" REGISTERS \
    "griddepcontrol.wait;\n" \
    "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmad.lo.u32 %r3, %r2, 4, %r1;\n" \
    "mul.wide.u32 %d4, %r3, 4;\nld.param.u64 %d1, [x];\nld.param.u64 %d2, [y];\n" \
    "add.u64 %d1, %d1, %d4;\nadd.u64 %d2, %d2, %d4;\nld.global.f32 %f1, [%d1];\n" \
    "add.f32 %f1, %f1, " add ";\nst.global.f32 [%d2], %f1;\n" \
    "griddepcontrol.launch_dependents;\nret;\n}\n"
static const char narrow[] = ADD("launch_narrow", "0f3f800000");
static const char wide[] = ADD("launch_wide", "0f40000000");

/* t, z, scratch, n: one thread sums; scratch[0] is 0 unless a run before was not wiped off */
static const char sum[] = HEAD
    ".visible .entry launch_sum(.param .u64 t, .param .u64 z, .param .u64 zero, .param .u64 n,\n"
    ".param .u64 four) {\n" REGISTERS
    "griddepcontrol.wait;\n"
    "ld.param.u64 %d1, [t];\nld.param.u64 %d2, [z];\nld.param.u64 %d3, [zero];\n"
    "ld.param.u64 %d4, [n];\nld.global.f32 %f1, [%d3];\nadd.f32 %f2, %f1, 0f447a0000;\n"
    "st.global.f32 [%d3], %f2;\nmov.u64 %d5, 0;\n"
    "next:\nsetp.ge.s64 %p1, %d5, %d4;\n@%p1 bra end;\nld.global.f32 %f3, [%d1];\n"
    "add.f32 %f1, %f1, %f3;\nadd.u64 %d1, %d1, 4;\nadd.u64 %d5, %d5, 1;\nbra next;\n"
    "end:\nst.global.f32 [%d2], %f1;\nret;\n}\n";
/* clang-format on */

static const char *const texts[] = {doubled, scale, narrow, wide, sum};
enum { NTEXTS = sizeof texts / sizeof *texts };

/* All texts in one, as the plan's PTX; each alone as a cubin: blobs 2 to NTEXTS + 1. */
static bool put_code(CodeResult *gpu, Arena *a) {
    const Assembler *by = assembler_find(a);
    StrBuf all;
    sb_init(&all, a);
    sb_put(&all, HEAD);
    gpu->blobs = ARENA_ARRAY(a, CodeBlob, NTEXTS + 1);
    for (int i = 0; i < NTEXTS; i++) {
        Assembled r = {.error = "there is no PTX assembler"};
        sb_put(&all, texts[i] + sizeof HEAD - 1);
        if (by) assembler_run(by, texts[i], "sm_90a", a, &r);
        if (r.error) fprintf(stderr, "%s\n", r.error);
        if (r.error) return false;
        gpu->blobs[i + 1] = (CodeBlob){CODE_cubin, r.cubin, r.size};
    }
    gpu->blobs[0] = (CodeBlob){CODE_ptx, sb_str(&all), strlen(sb_str(&all)) + 1};
    gpu->nblobs = NTEXTS + 1;
    return true;
}

static bool assembled;

static void set_kernel(CodeKernel *k, const char *symbol, uint32_t cubin, uint32_t block, Expr x) {
    k->symbol = symbol;
    k->cubin = cubin;
    k->block[0] = block;
    k->grid[0] = x;
    k->dependent = cubin > 2;
}

static void edit(CodeResult *gpu, ExprPool *p, Expr batch, Arena *a) {
    CodeKernel *k = gpu->kernels, *other = ARENA_NEW(a, CodeKernel);
    CodeMap *map = ARENA_NEW(a, CodeMap);
    Expr one = expr_const(p, 1), two = expr_const(p, 2);
    *map = (CodeMap){.dtype = DT_f32,
                     .rank = 2,
                     .size = {expr_const(p, 4), batch},
                     .stride = {expr_const(p, 16)},
                     .box = {4, 8},
                     .promotion = 128};
    assembled = put_code(gpu, a);
    set_kernel(&k[0], "launch_double", 2, 4, one);
    set_kernel(&k[1], "launch_scale", 3, 32,
               expr_mul(p, two, expr_ceildiv(p, batch, expr_const(p, 16))));
    k[1].cluster[0] = 2;
    k[1].cluster[1] = k[1].cluster[2] = 1;
    k[1].nmaps = 1;
    k[1].maps = map;
    k[1].zero_bytes = expr_const(p, 4);
    k[1].zero_kept = true;
    set_kernel(&k[2], "launch_narrow", 4, 4, batch);
    *other = k[2];
    set_kernel(other, "launch_wide", 5, 4, batch);
    k[2].variants = other;
    k[2].nvariants = 1;
    k[2].choice = expr_sub(p, one, expr_lt(p, batch, expr_const(p, 32)));
    set_kernel(&k[3], "launch_sum", 6, 1, one);
    k[3].zero_bytes = expr_const(p, 16);
}

int main(int argc, char **argv) {
    char why[256];
    if (argc != 2) return fprintf(stderr, "launch_plan OUT.plan\n"), 2;
    Sample s = sample_make_edited(true, false, edit);
    bool ok = s.bytes && assembled && file_write(argv[1], s.bytes, s.size, why) == GRAPHC_OK;
    arena_destroy(s.arena);
    return ok ? 0 : 1;
}
