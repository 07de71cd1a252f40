/* The targets. A new one is a row here; a new kind of machine has a compile hook of its own, too */
#include "codegen/target.h"
#include "codegen/cpu/dot/dot.h"
#include "codegen/nvptx/ptx.h"
#include <string.h>

#define X86_ATTRS(cpu, bits, ...)                                                                  \
    {                                                                                              \
        {"target-cpu", cpu}, {"prefer-vector-width", bits}, {"no-builtins", "true"},               \
            {"frame-pointer", "none"}, {"no-trapping-math", "true"}, __VA_ARGS__                   \
    }
#define NO_MORE                                                                                    \
    { NULL, NULL }
#define FEATURE(name)                                                                              \
    { "target-features", name }

/* What every form with AVX-512 has; `more`: an attribute. */
#define AVX512(more)                                                                               \
    .triple = "x86_64-unknown-linux-gnu", .cpu = "x86-64", .features = "",                         \
    .attrs = X86_ATTRS("x86-64-v4", "512", more), .lanes = 16, .vector_regs = 32,                  \
    .mask_registers = true, .scale_f32 = "llvm.x86.avx512.mask.scalef.ps.512",                     \
    .rest_f32 = "llvm.x86.avx512.mask.reduce.ps.512",                                              \
    .multiply_pairs = "llvm.x86.avx512.pmaddw.d.512",                                              \
    .multiply_bytes = "llvm.x86.avx512.pmaddubs.w.512",                                            \
    .table_f32 = "llvm.x86.avx512.permvar.sf.512",                                                 \
    .round_u32 = "llvm.x86.avx512.mask.cvtps2udq.512"

static const Target rows[] = {
    /* One core's share of a server CPU: DRAM and L3 together sustain tens of GB/s, FMA units about
     * 100 GFLOP/s in f32. */
    {.name = "cpu",
     .device = PLAN_cpu,
     .machine = {.processors = 1,
                 .bytes_per_s = 20e9,
                 .flops_per_s = 100e9,
                 .launch_s = 2e-6,
                 .pack_width = DOT_PANEL,
                 .quads = true,
                 .pairs = true,
                 .cuts_sums = true,
                 .turns = 4096,
                 .turns_convolutions = true,
                 .winograd = true,
                 .query_lanes = true,
                 .attention_gradient = true,
                 .inline_flops = {.data = 2,
                                  .query = 10,
                                  .key = 10,
                                  .value = 1.5,
                                  .a = 1.5,
                                  .b = 0.5,
                                  .half_a = 1.5,
                                  .half_b = 0.5}},
     .nisas = 5,
     .isa = {{.dump = "v3.",
              .form = CODE_x86_64_v3,
              .triple = "x86_64-unknown-linux-gnu",
              .cpu = "x86-64",
              .features = "",
              .attrs = X86_ATTRS("x86-64-v3", "256", NO_MORE),
              .lanes = 8,
              .vector_regs = 16,
              .multiply_pairs = "llvm.x86.avx2.pmadd.wd",
              .multiply_bytes = "llvm.x86.avx2.pmadd.ub.sw"},
             {.dump = "", .form = CODE_x86_64_v4, AVX512(NO_MORE)},
             {.dump = "vnni.",
              .form = CODE_x86_64_vnni,
              AVX512(FEATURE("+avx512vnni")),
              .extends = true,
              .multiply_quads = "llvm.x86.avx512.vpdpbusd.512"},
             {.dump = "bf16.",
              .form = CODE_x86_64_bf16,
              AVX512(FEATURE("+avx512bf16")),
              .extends = true,
              .multiply_bf16 = "llvm.x86.avx512bf16.dpbf16ps.512",
              .round_bf16 = "llvm.x86.avx512bf16.cvtneps2bf16.512"},
             {.dump = "amx.",
              .form = CODE_x86_64_amx,
              AVX512(FEATURE("+amx-tile,+amx-bf16,+amx-int8,+avx512bf16")),
              .extends = true,
              .round_bf16 = "llvm.x86.avx512bf16.cvtneps2bf16.512",
              .tiles = true}},
     .compile = cpu_compile},
    /* NVIDIA H100 and H200. */
    {.name = "sm_90a",
     .device = PLAN_cuda,
     .machine = {.processors = 132,
                 .clusters = {[1] = 132, [2] = 66, [3] = 39, [4] = 30, [6] = 17, [8] = 15},
                 .registers = 65536,
                 .shared = 232448,
                 .bytes_per_s = 4e12,
                 .flops_per_s = 60e12,
                 .matrix_flops_per_s = 990e12,
                 .launch_s = 2.5e-6,
                 .pack_rows = 1,
                 .bytes = true,
                 .bands = true,
                 .repeats = true,
                 .turns = 256,
                 .holds_turns = true,
                 .apart_bytes = 1 << 20,
                 .rounds_streams = true,
                 .cuts_dots = true,
                 .digits = true,
                 .flattens_patches = true,
                 .mixes = true,
                 .half_attention = 512,
                 .half_gradient = 128,
                 .joint_gradients = true,
                 .terms = 6,
                 .inline_flops = {.data = 2, .query = 10, .a = 1.5, .b = 0.5}},
     .nisas = 1,
     .isa = {{.dump = "",
              .form = CODE_ptx,
              .triple = PTX_TRIPLE,
              .cpu = "sm_90a",
              .features = PTX_FEATURES,
              .lanes = 1,
              .thread_lanes = 8,
              .early_loads = true,
              .buffer_align = 16,
              .nan_minmax = true,
              .bf16_round = true,
              .warpgroups = true,
              .buffer_space = PTX_GLOBAL}},
     .compile = nvptx_compile},
    /* NVIDIA A100, and later GPUs without a row of their own, through PTX. No structure of
     * Hopper's: contractions and attention run in f32 units, so of 16 bits, too, what is cheap is
     * computed where it is read. */
    {.name = "sm_80",
     .device = PLAN_cuda,
     .machine = {.processors = 108,
                 .registers = 65536,
                 .shared = 166912,
                 .bytes_per_s = 1.5e12,
                 .flops_per_s = 19e12,
                 .launch_s = 2.5e-6,
                 .turns = 256,
                 .holds_turns = true,
                 .pack_rows = 1,
                 .rounds_streams = true,
                 .cuts_dots = true,
                 .inline_flops = {.data = 2,
                                  .query = 10,
                                  .key = 10,
                                  .value = 1.5,
                                  .a = 1.5,
                                  .b = 0.5,
                                  .half_a = 1.5,
                                  .half_b = 0.5}},
     .nisas = 1,
     .isa = {{.dump = "sm_80.",
              .form = CODE_ptx,
              .triple = PTX_TRIPLE,
              .cpu = "sm_80",
              .features = PTX_FEATURES,
              .lanes = 1,
              .thread_lanes = 8,
              .early_loads = true,
              .buffer_align = 16,
              .nan_minmax = true,
              .bf16_round = true,
              .buffer_space = PTX_GLOBAL}},
     .compile = nvptx_compile},
};
enum { ROWS = sizeof rows / sizeof *rows };

const Target *target_at(uint32_t i) {
    return i < ROWS ? &rows[i] : NULL;
}

const Target *target_find(const char *name, size_t n) {
    for (uint32_t i = 0; i < ROWS; i++)
        if (strlen(rows[i].name) == n && memcmp(rows[i].name, name, n) == 0) return &rows[i];
    return NULL;
}

const Target *target_for(PlanDevice device) {
    uint32_t i = 0;
    while (i < ROWS - 1 && rows[i].device != device) i++;
    return &rows[i];
}

const char *target_names(Arena *a) {
    StrBuf s;
    sb_init(&s, a);
    for (uint32_t i = 0; i < ROWS; i++)
        sb_printf(&s, "%s%s", !i ? "" : i + 1 < ROWS ? ", " : " and ", rows[i].name);
    return sb_str(&s);
}

graphc_status codegen_run(const Target *t, const Schedule *s, const CodeOptions *o, Arena *a,
                          DiagSink *d, CodeResult *out) {
    return t->compile(t, s, o, a, d, out);
}
