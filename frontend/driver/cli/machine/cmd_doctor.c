/* graphc doctor: what this machine offers. */
#include "frontend/driver/cli/cli.h"
#include "frontend/driver/cli/json.h"
#include "runtime/base/cores.h"
#include "runtime/cpu/isa.h"
#include "runtime/cuda/driver.h"

#include <stdio.h>

typedef struct IsaLevel {
    const char *name;
    bool present;
} IsaLevel;

static json_t *cpu_facts(void) {
    const IsaLevel isa[] = {{"x86-64-v3 (AVX2, FMA)", isa_supports(PLAN_x86_64_v3)},
                            {"x86-64-v4 (AVX-512)", isa_supports(PLAN_x86_64_v4)},
                            {"AVX512-VNNI", isa_supports(PLAN_x86_64_vnni)},
                            {"AVX512-BF16", isa_supports(PLAN_x86_64_bf16)},
                            {"AMX", isa_supports(PLAN_x86_64_amx)}};
    json_t *j = json_object();
    json_add(j, "threads", json_integer(cores_threads(0)));
    json_t *levels = json_add(j, "code", json_object());
    for (size_t i = 0; i < sizeof isa / sizeof *isa; i++)
        json_object_set_new(levels, isa[i].name, json_boolean(isa[i].present));
    return j;
}

static json_t *device_facts(const Driver *d, int i) {
    CuDevice dev;
    char name[128] = "?";
    int major = 0, minor = 0;
    if (d->device_get(&dev, i) != CU_OK) return json_null();
    d->device_name(name, sizeof name, dev);
    d->device_attribute(&major, CU_COMPUTE_MAJOR, dev);
    d->device_attribute(&minor, CU_COMPUTE_MINOR, dev);
    json_t *j = json_object();
    json_add(j, "name", json_string(name));
    json_add(j, "major", json_integer(major));
    json_add(j, "minor", json_integer(minor));
    return j;
}

/* A machine without a GPU is healthy: what is missing is said, not reported. */
static json_t *cuda_facts(void) {
    char error[256] = "";
    const Driver *d;
    int n = 0;
    json_t *j = json_object(), *devices = json_add(j, "devices", json_array());
    if (driver_open(&d, (ErrorText){error, sizeof error}) != GRAPHC_OK) {
        json_add(j, "missing", json_string(error));
        return j;
    }
    d->device_count(&n);
    json_add(j, "driver", json_integer(d->version));
    for (int i = 0; i < n; i++) json_array_append_new(devices, device_facts(d, i));
    return j;
}

static json_int_t number(const json_t *j, const char *key) {
    return json_integer_value(json_object_get(j, key));
}

static const char *text(const json_t *j, const char *key) {
    return json_string_value(json_object_get(j, key));
}

static void print_cuda(const json_t *cuda) {
    const json_t *devices = json_object_get(cuda, "devices");
    size_t n = json_array_size(devices);
    json_int_t version = number(cuda, "driver");
    if (text(cuda, "missing")) {
        printf("cuda: %s\n", text(cuda, "missing"));
        return;
    }
    printf("cuda: driver %d.%d, %zu devices\n", (int)version / 1000, (int)version % 1000 / 10, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *d = json_array_get(devices, i);
        if (json_is_object(d))
            printf("  cuda:%zu %s, compute capability %d.%d\n", i, text(d, "name"),
                   (int)number(d, "major"), (int)number(d, "minor"));
    }
}

static void print_text(json_t *j) {
    json_t *cpu = json_object_get(j, "cpu"), *has;
    const char *level;
    printf("cpu: %d threads by default\n", (int)number(cpu, "threads"));
    json_object_foreach(json_object_get(cpu, "code"), level, has)
        printf("  %-24s %s\n", level, json_is_true(has) ? "yes" : "no");
    printf("compiler: LLVM %s\n", text(j, "llvm"));
    const char *assembler = text(j, "assembler");
    printf("PTX assembler: %s\n",
           assembler ? assembler : "none found; GPU plans carry PTX and the driver compiles it");
    print_cuda(json_object_get(j, "cuda"));
}

graphc_status cmd_doctor(Cli *c) {
    json_t *j = json_begin(c->verb->name);
    const char *assembler = codegen_assembler(c->arena);
    json_add(j, "cpu", cpu_facts());
    json_add(j, "llvm", json_string(codegen_llvm_version()));
    json_add(j, "ptx", json_string(codegen_ptx_version()));
    json_add(j, "assembler", assembler ? json_string(assembler) : json_null());
    json_add(j, "cuda", cuda_facts());
    if (c->json) {
        json_finish(j, stdout);
        return GRAPHC_OK;
    }
    print_text(j);
    json_decref(j);
    return GRAPHC_OK;
}
