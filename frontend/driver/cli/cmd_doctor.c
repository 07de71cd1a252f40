/* graphc doctor: what this machine offers. */
#include "frontend/driver/cli/cli.h"
#include "runtime/base/cores.h"
#include "runtime/cpu/isa.h"
#include "runtime/cuda/driver.h"

#include <stdio.h>

typedef struct IsaLevel {
    const char *name;
    bool present;
} IsaLevel;

static void print_cpu(void) {
    IsaLevel isa[] = {
        {"x86-64-v3 (AVX2, FMA)", isa_supports(PLAN_x86_64_v3)},
        {"x86-64-v4 (AVX-512)", isa_supports(PLAN_x86_64_v4)},
    };
    printf("cpu: %u threads by default\n", cores_threads(0));
    for (size_t i = 0; i < sizeof isa / sizeof *isa; i++)
        printf("  %-24s %s\n", isa[i].name, isa[i].present ? "yes" : "no");
}

/* A machine without a GPU is healthy: what is missing is said, not reported. */
static void print_cuda(void) {
    char error[256] = "";
    const Driver *d;
    int n = 0;
    if (driver_open(&d, (ErrorText){error, sizeof error}) != GRAPHC_OK) {
        printf("cuda: %s\n", error);
        return;
    }
    d->device_count(&n);
    printf("cuda: driver %d.%d, %d devices\n", d->version / 1000, d->version % 1000 / 10, n);
    for (int i = 0; i < n; i++) {
        CuDevice dev;
        char name[128] = "?";
        int major = 0, minor = 0;
        if (d->device_get(&dev, i) != CU_OK) continue;
        d->device_name(name, sizeof name, dev);
        d->device_attribute(&major, CU_COMPUTE_MAJOR, dev);
        d->device_attribute(&minor, CU_COMPUTE_MINOR, dev);
        printf("  cuda:%d %s, compute capability %d.%d\n", i, name, major, minor);
    }
}

graphc_status cmd_doctor(Cli *c) {
    print_cpu();
    printf("compiler: LLVM %s\n", codegen_llvm_version());
    const char *assembler = codegen_assembler(c->arena);
    printf("PTX assembler: %s\n",
           assembler ? assembler : "none found; GPU plans carry PTX and the driver compiles it");
    print_cuda();
    return GRAPHC_OK;
}
