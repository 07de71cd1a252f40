/* graphc doctor: what this machine offers, and a tiny plan compiled and run to prove it. */
#include "frontend/driver/cli/cli.h"
#include "runtime/graphc.h"
#include "runtime/cuda/driver.h"

#include <stdio.h>
#include <unistd.h>

typedef struct Isa {
    const char *name;
    bool present;
} Isa;

static void print_cpu(void) {
    __builtin_cpu_init();
    Isa isa[] = {
        {"x86-64-v3 (AVX2, FMA)", __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
        {"x86-64-v4 (AVX-512)",
         __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")},
    };
    printf("cpu: %ld cores\n", sysconf(_SC_NPROCESSORS_ONLN));
    for (size_t i = 0; i < sizeof isa / sizeof *isa; i++)
        printf("  %-24s %s\n", isa[i].name, isa[i].present ? "yes" : "no");
}

graphc_status cmd_doctor(Cli *c) {
    print_cpu();
    printf("compiler: LLVM %s\n", codegen_llvm_version());
    const char *ptxas = codegen_ptxas(c->arena);
    printf("PTX assembler: %s\n",
           ptxas ? ptxas : "none found; GPU plans carry PTX and the driver compiles it");
    char text[512];
    graphc_status s = cuda_describe(text, sizeof text);
    printf("cuda: %s\n", text);
    (void)s; /* a machine without a GPU is healthy */
    return GRAPHC_OK;
}
