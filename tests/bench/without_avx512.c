/* What without_avx512.py puts in place of CPUID: its answer without AVX-512, and what stands on it.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>

#define BIT(n) (1u << (n))

static void answer(int sig, siginfo_t *info, void *context) {
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *at = (const unsigned char *)r[REG_RIP];
    unsigned a, b, c, d, leaf = (unsigned)r[REG_RAX], part = (unsigned)r[REG_RCX];
    (void)sig, (void)info;
    if (at[0] != 0x0f || at[1] != 0x0b) abort();
    __cpuid_count(leaf, part, a, b, c, d);
    if (leaf == 7 && part == 0) {
        b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31));
        c &= ~(BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14));
        d &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25)); /* and AMX */
    }
    if (leaf == 7 && part == 1) a &= ~(BIT(5) | BIT(21)); /* AVX512-BF16, AMX-FP16 */
    r[REG_RAX] = a, r[REG_RBX] = b, r[REG_RCX] = c, r[REG_RDX] = d;
    r[REG_RIP] += 2;
}

__attribute__((constructor)) static void begin(void) {
    struct sigaction act = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGILL, &act, NULL);
}
