/* graphc whose CPU kernels run fenced: "fenced VERB ..." is graphc, but every launch works on
 * copies of its operands, and on scratch, that lie between pages which no one may touch. It runs
 * twice: once each operand ends at such a page, once it begins behind one; what else lies on its
 * pages is of other bytes each time, and so is the scratch. A kernel that reaches beyond an operand
 * ends the program with a message, and so does one whose results are not the same both times: what
 * they rest on is not in its operands. Linked with --wrap=device_cpu. */
#include "runtime/session.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern const DeviceOps __real_device_cpu;
extern DeviceOps __wrap_device_cpu;
DeviceOps __wrap_device_cpu;

#define PAGE        4096u
#define NOTHING     (1u << 30)      /* bytes that no one may touch, around empty operands */
#define DIMS        PLAN_MAX_PARAMS /* as the number of a pointer, behind those of operands */
#define EXIT_FENCED 99

/* Where the operands end, or begin. */
typedef enum Side { END, BEGIN, SIDES } Side;

/* Bytes that a launch may touch, and a copy of them: operands that overlap share one. */
typedef struct Span {
    uint8_t *from, *to;
    uint8_t *copy[SIDES];
    uint32_t param; /* the first that points there */
} Span;

typedef struct Fences {
    const Resident *res;
    const Launch *launch;
    uint32_t n;
    Span span[DIMS + 1];
    uint64_t scratch; /* bytes of a thread */
    uint8_t *scratch_copy[SIDES];
    Side side;
} Fences;

/* Which resident a lane is of. */
typedef struct Known {
    const Lane *lane;
    Resident *res;
    struct Known *next;
} Known;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Known *known;
static uint8_t *nothing;
static _Thread_local const Fences *mine;
static const Fences *volatile now; /* of any thread: for messages */

static graphc_status lane_open(Resident *r, const graphc_session_options *o, Lane **out,
                               ErrorText e) {
    GC_TRY(__real_device_cpu.lane_open(r, o, out, e));
    Known *k = malloc(sizeof *k);
    if (!k) abort();
    pthread_mutex_lock(&lock);
    *k = (Known){*out, r, known};
    known = k;
    pthread_mutex_unlock(&lock);
    return GRAPHC_OK;
}

static void lane_close(Lane *l) {
    pthread_mutex_lock(&lock);
    for (Known **k = &known; *k; k = &(*k)->next)
        if ((*k)->lane == l) {
            Known *gone = *k;
            *k = gone->next;
            free(gone);
            break;
        }
    pthread_mutex_unlock(&lock);
    __real_device_cpu.lane_close(l);
}

static Resident *resident_of(const Lane *l) {
    pthread_mutex_lock(&lock);
    Known *k = known;
    while (k->lane != l) k = k->next;
    pthread_mutex_unlock(&lock);
    return k->res;
}

static uint64_t pages(uint64_t bytes) {
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* `count` places for `bytes`, `stride` apart, with a page between that no one may touch. Returns
 * the first. */
static uint8_t *fence(uint64_t bytes, uint64_t align, uint64_t count, uint64_t stride, Side side) {
    const uint64_t all = PAGE + count * stride;
    const uint64_t skip = side == END ? (pages(bytes) - bytes) / align * align : 0;
    uint8_t *p = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) abort();
    for (uint64_t i = 0; i < count; i++) {
        uint8_t *at = p + PAGE + i * stride;
        if (mprotect(at, pages(bytes), PROT_READ | PROT_WRITE)) abort();
        memset(at, side == END ? 0xff : 0, pages(bytes));
    }
    return p + PAGE + skip;
}

static void unfence(uint8_t *p, uint64_t count, uint64_t stride) {
    munmap((uint8_t *)((uintptr_t)p / PAGE * PAGE) - PAGE, PAGE + count * stride);
}

/* Takes what overlaps it out of the others. */
static void add_span(Fences *f, uint8_t *from, uint64_t bytes, uint32_t param) {
    Span s = {.from = from, .to = from + bytes, .param = param};
    for (uint32_t i = 0; i < f->n;) {
        const Span *o = &f->span[i];
        if (o->from >= s.to || s.from >= o->to) {
            i++;
            continue;
        }
        if (o->from < s.from) s.from = o->from;
        if (o->to > s.to) s.to = o->to;
        if (o->param < s.param) s.param = o->param;
        f->span[i] = f->span[--f->n];
        i = 0;
    }
    f->span[f->n++] = s;
}

static uint64_t size_of(const Fences *f, uint32_t i) {
    const int64_t bytes = f->launch->slots[f->res->buffers[f->launch->buffers[i]].bytes];
    return bytes > 0 ? (uint64_t)bytes : 0;
}

/* Where no bytes are there is nothing to touch. */
static void *moved(const Fences *f, Side side, const void *p, uint64_t bytes) {
    const uint8_t *at = p;
    for (uint32_t i = 0; i < f->n && bytes; i++)
        if (at >= f->span[i].from && at < f->span[i].to)
            return f->span[i].copy[side] + (at - f->span[i].from);
    return nothing + NOTHING / 2;
}

static uint64_t span_stride(const Span *s) {
    return pages((uint64_t)(s->to - s->from)) + PAGE;
}

static uint64_t scratch_stride(const Fences *f) {
    return pages(f->scratch) + PAGE;
}

static void copy_all(Fences *f, Side side, uint32_t threads) {
    for (uint32_t i = 0; i < f->n; i++) {
        Span *s = &f->span[i];
        const uint64_t bytes = (uint64_t)(s->to - s->from);
        s->copy[side] = fence(bytes, 1, 1, span_stride(s), side);
        memcpy(s->copy[side], s->from, bytes);
    }
    if (f->scratch) f->scratch_copy[side] = fence(f->scratch, 64, threads, scratch_stride(f), side);
}

static _Noreturn void complain(const Fences *f, const char *what) {
    char text[512];
    const Plan *p = &f->res->owner->plan;
    const PlanKernel *k = &f->res->kernels[f->launch->kernel];
    const char *nodes = plan_str(p, k->nodes);
    const int n = snprintf(text, sizeof text, "fenced: kernel %.100s (%.*s), %s: %.200s\n",
                           plan_str(p, k->name), (int)strcspn(nodes, "\n") % 150, nodes,
                           f->side == END ? "fenced at the end" : "fenced at the beginning", what);
    (void)!write(STDERR_FILENO, text, (size_t)n);
    _exit(EXIT_FENCED);
}

/* The same of one of the pointers. */
static _Noreturn void complain_of(const Fences *f, uint32_t param, const char *what) {
    char text[200];
    if (param == DIMS)
        snprintf(text, sizeof text, "the dims: %s", what);
    else
        snprintf(text, sizeof text, "operand %u: %s", param, what);
    complain(f, text);
}

static graphc_status run_side(Fences *f, Lane *l, Side side, ErrorText e) {
    const DeviceOps *ops = &__real_device_cpu;
    const Launch *k = f->launch;
    const PlanKernel *kernel = &f->res->kernels[k->kernel];
    const uint32_t threads = ops->lane_threads(l);
    void *pointers[PLAN_MAX_PARAMS];
    copy_all(f, side, threads);
    for (uint32_t i = 0; i < k->npointers; i++)
        pointers[i] = moved(f, side, k->pointers[i], size_of(f, i));
    Launch copy = *k;
    copy.pointers = pointers;
    copy.dims = moved(f, side, k->dims, kernel->ndims);
    /* The lane's stride is then scratch_stride. */
    ops->lane_set_scratch(l, f->scratch_copy[side], pages(f->scratch) + PAGE);
    f->side = side;
    now = mine = f;
    graphc_status st = ops->launch(l, &copy, e);
    mine = NULL;
    ops->lane_set_scratch(l, NULL, 0);
    return st;
}

static void compare(const Fences *f) {
    for (uint32_t i = 0; i < f->n; i++) {
        const Span *s = &f->span[i];
        const uint64_t bytes = (uint64_t)(s->to - s->from);
        if (memcmp(s->copy[END], s->copy[BEGIN], bytes) != 0)
            complain_of(f, s->param, "not the same results where other bytes lie around operands");
        const uint8_t *gap = (uint8_t *)((uintptr_t)s->copy[END] / PAGE * PAGE);
        for (; gap < s->copy[END]; gap++)
            if (*gap != 0xff) complain_of(f, s->param, "written before its first byte");
        gap = s->copy[BEGIN] + bytes;
        for (; (uintptr_t)gap % PAGE; gap++)
            if (*gap) complain_of(f, s->param, "written behind its last byte");
        if (memcmp(s->from, s->copy[BEGIN], bytes) != 0) memcpy(s->from, s->copy[BEGIN], bytes);
    }
}

static graphc_status launch(Lane *l, const Launch *k, ErrorText e) {
    Fences *f = calloc(1, sizeof *f);
    if (!f) abort();
    f->res = resident_of(l);
    f->launch = k;
    const PlanKernel *kernel = &f->res->kernels[k->kernel];
    const uint32_t threads = __real_device_cpu.lane_threads(l);
    if (kernel->ndims)
        add_span(f, (uint8_t *)(uintptr_t)k->dims, kernel->ndims * sizeof *k->dims, DIMS);
    for (uint32_t i = 0; i < k->npointers; i++)
        if (size_of(f, i)) add_span(f, k->pointers[i], size_of(f, i), i);
    const int64_t scratch = k->slots[kernel->scratch];
    f->scratch = scratch > 0 ? (uint64_t)scratch : 0;
    graphc_status st = run_side(f, l, END, e);
    if (st == GRAPHC_OK) st = run_side(f, l, BEGIN, e);
    if (st == GRAPHC_OK) compare(f);
    for (Side side = END; side < SIDES; side++) {
        for (uint32_t i = 0; i < f->n; i++)
            unfence(f->span[i].copy[side], 1, span_stride(&f->span[i]));
        if (f->scratch_copy[side]) unfence(f->scratch_copy[side], threads, scratch_stride(f));
    }
    now = NULL;
    free(f);
    return st;
}

/* Each launch has its own. */
static void lane_set_scratch(Lane *l, void *p, uint64_t scratch) {
    (void)l, (void)p, (void)scratch;
}

static void on_fault(int sig, siginfo_t *info, void *context) {
    (void)context;
    const Fences *f = mine ? mine : now;
    const uint8_t *at = info->si_addr;
    char text[100];
    for (uint32_t i = 0; f && i < f->n; i++) {
        const Span *s = &f->span[i];
        const uint8_t *from = s->copy[f->side], *to = from + (s->to - s->from);
        const uint8_t *first = from - (uintptr_t)from % PAGE;
        if (!from || at < first - PAGE || at >= first + span_stride(s)) continue;
        snprintf(text, sizeof text, "byte %lld of %lld is touched", (long long)(at - from),
                 (long long)(to - from));
        complain_of(f, s->param, text);
    }
    if (f && at >= nothing && at < nothing + NOTHING)
        complain(f, "an operand that has no bytes is touched");
    if (f) complain(f, "what is far from its operands is touched, or beyond its scratch");
    signal(sig, SIG_DFL);
}

__attribute__((constructor)) static void start(void) {
    DeviceOps *o = &__wrap_device_cpu;
    *o = __real_device_cpu;
    nothing = mmap(NULL, NOTHING, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (nothing == MAP_FAILED) abort();
    o->launch = launch;
    o->lane_open = lane_open;
    o->lane_close = lane_close;
    o->lane_set_scratch = lane_set_scratch;
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &a, NULL);
    sigaction(SIGBUS, &a, NULL);
}
