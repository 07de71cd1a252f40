#include "runtime/cpu/isa.h"
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct Feature {
    uint32_t leaf, reg, bit; /* reg: 0 eax, 1 ebx, 2 ecx, 3 edx */
    uint32_t part;           /* of the leaf */
} Feature;

/* psABI levels, beyond what every x86-64-v2 processor with AVX has. */
static const Feature v3_features[] = {
    {1, 2, 12, 0},         /* fma */
    {1, 2, 22, 0},         /* movbe */
    {1, 2, 27, 0},         /* osxsave */
    {1, 2, 28, 0},         /* avx */
    {1, 2, 29, 0},         /* f16c */
    {7, 1, 3, 0},          /* bmi1 */
    {7, 1, 5, 0},          /* avx2 */
    {7, 1, 8, 0},          /* bmi2 */
    {0x80000001, 2, 5, 0}, /* lzcnt */
};
static const Feature v4_features[] = {
    {7, 1, 16, 0}, /* avx512f */
    {7, 1, 17, 0}, /* avx512dq */
    {7, 1, 28, 0}, /* avx512cd */
    {7, 1, 30, 0}, /* avx512bw */
    {7, 1, 31, 0}, /* avx512vl */
};

static const Feature vnni_features[] = {
    {7, 2, 11, 0}, /* avx512_vnni */
};
static const Feature bf16_features[] = {
    {7, 0, 5, 1}, /* avx512_bf16 */
};

static const Feature amx_features[] = {
    {7, 3, 22, 0}, /* amx_bf16 */
    {7, 3, 24, 0}, /* amx_tile */
    {7, 3, 25, 0}, /* amx_int8 */
    {7, 0, 5, 1},  /* avx512_bf16 */
};

static bool has_all(const Feature *f, size_t n) {
    uint32_t r[4] = {0};
    for (size_t i = 0; i < n; i++) {
        /* Once a leaf: in a virtual machine it takes tens of microseconds. */
        const bool known = i && f[i].leaf == f[i - 1].leaf && f[i].part == f[i - 1].part;
        if (!known && !__get_cpuid_count(f[i].leaf, f[i].part, &r[0], &r[1], &r[2], &r[3]))
            return false;
        if (!(r[f[i].reg] >> f[i].bit & 1)) return false;
    }
    return true;
}

#define HAS_ALL(f) has_all(f, sizeof f / sizeof *f)

/* Register state that the operating system saves: bits 1, 2 = SSE, AVX; 5-7 = AVX-512; 17, 18 =
 * AMX. */
static uint32_t saved_state(void) {
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo;
}

/* Linux grants the registers' 8 KB to a process that asks, for all of its threads. */
static bool may_use_tiles(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

bool isa_supports(PlanForm form) {
    if (form >= PLAN_CPU_FORMS) return false;
    if (!HAS_ALL(v3_features)) return false;
    uint32_t saved = saved_state();
    if ((saved & 0x6) != 0x6) return false;
    if (form == PLAN_x86_64_v3) return true;
    if ((saved & 0xe0) != 0xe0 || !HAS_ALL(v4_features)) return false;
    if (form == PLAN_x86_64_bf16) return HAS_ALL(bf16_features);
    if (form == PLAN_x86_64_amx)
        return (saved & 0x60000) == 0x60000 && HAS_ALL(amx_features) && may_use_tiles();
    return form == PLAN_x86_64_v4 || HAS_ALL(vnni_features);
}
#else
bool isa_supports(PlanForm form) {
    (void)form;
    return false;
}
#endif

uint32_t isa_forms(PlanForm most) {
    uint32_t forms = 0;
    for (uint32_t f = most + 1; f-- > 0;) {
        if (!isa_supports((PlanForm)f)) continue;
        forms |= 1u << f;
        if (f < PLAN_CPU_WHOLE) break;
    }
    return forms;
}

void *isa_load_image(const void *code, uint64_t size) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE; /* one fault, not one a page */
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (p == MAP_FAILED) return NULL;
    memcpy(p, code, size);
    if (mprotect(p, size, PROT_READ | PROT_EXEC) == 0) return p;
    munmap(p, size);
    return NULL;
}

void isa_unload_image(void *image, uint64_t size) {
    if (image) munmap(image, size);
}
