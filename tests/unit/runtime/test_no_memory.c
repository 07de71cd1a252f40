/* A compile that runs out of memory, wherever that happens, returns GRAPHC_NO_MEMORY with a
 * message; the process goes on and nothing that arenas held is left behind. */
#include "frontend/driver/graphc_compile.h"
#include "runtime/base/arena.h"
#include "tests/unit/test.h"
#include <stdatomic.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 0
#else
#define COUNTS_ALLOCATIONS 1
/* Which allocation is to fail (-1: none), and which are not freed. */
static _Atomic long fail_at = -1;
static _Atomic(void *) live[1 << 16];

#pragma GCC visibility push(default)
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t m);
extern void __libc_free(void *p);
extern char __executable_start, etext;

/* Each has one of so many places: threads' heaps are alike, so that a few meet in the first. */
enum { PLACES = 64 };

static _Atomic(void *) *slot(const void *p, uint32_t i) {
    return &live[(((uintptr_t)p >> 4) + i) % (sizeof live / sizeof *live)];
}

/* LLVM ends the process when its own memory runs out: only calls from here on are counted. */
static bool is_ours(const char *caller) {
    return caller >= &__executable_start && caller < &etext;
}

static bool refused(void) {
    return fail_at >= 0 && fail_at-- == 0;
}
static void *noted(void *p) {
    for (uint32_t i = 0; p && i < PLACES; i++) {
        void *none = NULL;
        if (atomic_compare_exchange_strong(slot(p, i), &none, p)) break;
    }
    return p;
}
void *calloc(size_t n, size_t m) {
    if (!is_ours(__builtin_return_address(0))) return __libc_calloc(n, m);
    return refused() ? NULL : noted(__libc_calloc(n, m));
}
void *malloc(size_t n) {
    if (!is_ours(__builtin_return_address(0))) return __libc_malloc(n);
    return refused() ? NULL : noted(__libc_malloc(n));
}
void free(void *p) {
    for (uint32_t i = 0; p && i < PLACES; i++) {
        void *same = p;
        if (atomic_load(slot(p, i)) == p && atomic_compare_exchange_strong(slot(p, i), &same, NULL))
            break;
    }
    __libc_free(p);
}
#pragma GCC visibility pop

static long count_live(void) {
    long n = 0;
    for (size_t i = 0; i < sizeof live / sizeof *live; i++) n += atomic_load(&live[i]) != NULL;
    return n;
}
#endif

/* x[n, 7] -> Softmax -> y */
static const unsigned char model[] =
    "\x08\x08\x42\x04\x0a\x00\x10\x11\x3a\x3d"
    "\x0a\x0f\x0a\x01x\x12\x01y\x22\x07Softmax"
    "\x5a\x14\x0a\x01x\x12\x0f\x0a\x0d\x08\x01\x12\x09\x0a\x03\x12\x01n\x0a\x02\x08\x07"
    "\x62\x14\x0a\x01y\x12\x0f\x0a\x0d\x08\x01\x12\x09\x0a\x03\x12\x01n\x0a\x02\x08\x07";

static char path[64];

static void write_model(void) {
    snprintf(path, sizeof path, "/tmp/graphc_no_memory_%d.onnx", (int)getpid());
    FILE *f = fopen(path, "wb");
    if (!CHECK(f)) return;
    fwrite(model, 1, sizeof model - 1, f);
    fclose(f);
}

static graphc_status compile(char *said, size_t size) {
    graphc_compiled *c;
    graphc_compile_options o = GRAPHC_COMPILE_OPTIONS_INIT;
    size_t bytes = 0;
    o.target = "cpu,sm_90a";
    o.threads = 2;
    graphc_status s = graphc_compile(path, &o, &c);
    said[0] = 0;
    if (!c) return s;
    for (uint32_t i = 0; i < graphc_compiled_messages(c); i++)
        snprintf(said, size, "%s", graphc_compiled_message(c, i));
    CHECK((graphc_compiled_plan(c, &bytes) != NULL) == (s == GRAPHC_OK));
    graphc_compiled_destroy(c);
    return s;
}

static void too_much(void *ctx) {
    Arena **a = ctx;
    *a = arena_create();
    (void)arena_array(*a, SIZE_MAX / 2, 16);
}

static void nested(void *ctx) {
    CHECK_EQ_I(arena_guard(too_much, ctx) > 0, 1);
    CHECK(strcmp(arena_strdup(*(Arena **)ctx, "whole"), "whole") == 0);
}

static void count_one(void *n) {
    ++*(int *)n;
}

static void test_guard(void) {
    Arena *a = NULL;
    int closed = 0;
    CHECK(arena_guard(nested, &a) == 0);
    arena_at_destroy(a, count_one, &closed);
    arena_at_destroy(a, count_one, &closed);
    CHECK_EQ_I(closed, 0);
    arena_destroy(a);
    CHECK_EQ_I(closed, 2);
}

TEST_MAIN {
    char said[256];
    test_guard();
    write_model();
    /* The library's own allocations are not graphc's to check. */
    if (!getenv("GRAPHC_PTXAS")) setenv("GRAPHC_PTXAS", "/usr/local/cuda/bin/ptxas", 1);
    CHECK_EQ_I(compile(said, sizeof said), GRAPHC_OK);
#if COUNTS_ALLOCATIONS
    long before = count_live(), runs = 0;
    for (bool done = false; !done && runs < 2000; runs++) {
        fail_at = runs;
        graphc_status s = compile(said, sizeof said);
        done = fail_at >= 0;
        fail_at = -1;
        /* Without memory for its files the PTX assembler is left out, with a warning. */
        bool left_out = s == GRAPHC_OK && strstr(said, "warning");
        bool right = done ? s == GRAPHC_OK : left_out || s == GRAPHC_NO_MEMORY;
        if (!done && runs) right = right && strstr(said, left_out ? "ptxas" : "memory");
        if (!CHECK(right))
            fprintf(stderr, "    allocation %ld: status %d, %s\n", runs, (int)s, said);
        if (!CHECK(count_live() == before)) fprintf(stderr, "    after failure %ld\n", runs);
    }
    printf("%ld allocations failed in turn\n", runs - 1);
#endif
    unlink(path);
}
