/* The CPU as a device: memory is the host's, code is an image mapped for execution, a lane is a
 * caller's share of the resident's thread pool. */
#include "runtime/abi.h"
#include "runtime/base/cores.h"
#include "runtime/base/file.h"
#include "runtime/cpu/isa.h"
#include "runtime/cpu/pool.h"
#include "runtime/session.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define GRAIN_NS     2000       /* least work worth handing to another thread; GRAPHC_GRAIN_NS */
#define PIECE_GRAINS 8          /* least work worth taking from another thread */
#define SPIN_US      1000       /* how long workers wait before they sleep */
#define MAP_BYTES    (1u << 20) /* allocations from here on are maps of their own, on huge pages */
#define PAGE         4096u
#define HUGE_PAGE    (2u << 20)
#define SPARE        4           /* a last huge page may leave this part of a map without use */
#define READ_ITEM    (64u << 10) /* what of a file a thread reads at least */
#define SCRATCH_STEP 4096u       /* threads' scratch starts on pages of their own */

/* Where pointers to no bytes lead: kernels do not follow them. */
static const _Alignas(64) uint8_t nowhere[64];

typedef struct CpuImage {
    PlanForm form;
    uint8_t *code;
    uint64_t size;
} CpuImage;

typedef struct CpuDevice {
    CpuImage image[PLAN_CPU_FORMS]; /* those that run here, the best first; the last is whole */
    uint32_t nimages;
    Pool *pool;
} CpuDevice;

struct Lane {
    Resident *res;
    uint32_t threads;
    int64_t grain_ns;
    bool has_pool;  /* between begin and end */
    uint32_t parts; /* of the last launch */
    uint8_t *scratch;
    uint64_t stride;
    double marks[2];
};

static const PlanBlob *find_blob(const Resident *r, uint32_t form) {
    const PlanBlob *b = r->owner->plan.blobs + r->target->blobs;
    for (uint32_t i = 0; i < r->target->nblobs; i++)
        if (b[i].form == form) return &b[i];
    return NULL;
}

/* The code that runs here, up to the best whole image: nothing behind that would be called. */
static graphc_status load_images(Resident *r, CpuDevice *d, uint32_t isa_limit, ErrorText e) {
    uint32_t best = isa_limit == 3   ? PLAN_x86_64_v3
                    : isa_limit == 4 ? PLAN_x86_64_v4
                                     : PLAN_CPU_FORMS - 1;
    for (uint32_t form = best + 1; form-- > 0;) {
        const PlanBlob *b = find_blob(r, form);
        if (!b || !isa_supports((PlanForm)form)) continue;
        CpuImage *m = &d->image[d->nimages];
        *m = (CpuImage){(PlanForm)form, NULL, b->size};
        m->code = isa_load_image(r->owner->plan.code + b->offset, b->size);
        if (!m->code) return error_set(e, GRAPHC_RUNTIME, "the plan's code cannot be mapped");
        d->nimages++;
        if (form < PLAN_CPU_WHOLE) return GRAPHC_OK;
    }
    if (!r->target->nkernels) return GRAPHC_OK;
    return error_set(e, GRAPHC_UNSUPPORTED,
                     "the plan has code for x86-64-v3 (AVX2, FMA) and above; this processor is "
                     "older or of another kind");
}

static const void *entry_of(const CpuDevice *d, const PlanKernel *k) {
    const CpuImage *m = d->image;
    while (k->entry[m->form] == PLAN_NO_ENTRY) m++; /* the last has all: plan_parse checked */
    return m->code + k->entry[m->form];
}

static void cpu_close(Resident *r) {
    CpuDevice *d = r->device;
    if (!d) return;
    pool_destroy(d->pool);
    for (uint32_t i = 0; i < d->nimages; i++) isa_unload_image(d->image[i].code, d->image[i].size);
    free(d);
    r->device = NULL;
}

static graphc_status cpu_open(Resident *r, const graphc_session_options *o, ErrorText e) {
    CpuDevice *d = calloc(1, sizeof *d);
    if (!d) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory for the plan's code");
    r->device = d;
    r->nowhere = (void *)(uintptr_t)nowhere;
    GC_TRY(load_images(r, d, o->isa_limit, e));
    r->form = d->image[0].form;
    d->pool = pool_create(SPIN_US);
    return d->pool ? GRAPHC_OK : error_set(e, GRAPHC_NO_MEMORY, "not enough memory for threads");
}

static uint64_t round_up(uint64_t bytes, uint64_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

/* Whole huge pages, but where the last one would be little used. */
static uint64_t map_size(uint64_t bytes) {
    uint64_t whole = round_up(bytes, HUGE_PAGE);
    return whole - bytes <= bytes / SPARE ? whole : round_up(bytes, PAGE);
}

/* Huge pages begin at multiples of their size: so does the map. What they are worth is a wish, and
 * 2 to 5 % of a model's time: weights and the panels behind each other in them are walked again and
 * again. */
static void *map_pages(uint64_t size) {
    uint8_t *p =
        mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    uint64_t skip = round_up((uintptr_t)p, HUGE_PAGE) - (uintptr_t)p;
    if (skip) munmap(p, skip);
    munmap(p + skip + size, HUGE_PAGE - skip);
    madvise(p + skip, size, MADV_HUGEPAGE);
    return p + skip;
}

static graphc_status cpu_alloc(Resident *r, uint64_t bytes, void **out, ErrorText e) {
    (void)r;
    const uint64_t size = round_up(bytes ? bytes : 1, 64);
    void *p = bytes >= MAP_BYTES ? map_pages(map_size(bytes)) : aligned_alloc(64, size);
    if (!p)
        return error_set(e, GRAPHC_NO_MEMORY, "not enough memory: %llu bytes",
                         (unsigned long long)bytes);
    *out = p;
    return GRAPHC_OK;
}

static void cpu_free(Resident *r, void *p, uint64_t bytes) {
    (void)r;
    if (p && bytes >= MAP_BYTES)
        munmap(p, map_size(bytes));
    else
        free(p);
}

/* From then on in small pages: a huge one would hold what lies beside, too. */
static void cpu_rest(const void *p, uint64_t bytes) {
    const uintptr_t from = round_up((uintptr_t)p, PAGE), to = ((uintptr_t)p + bytes) / PAGE * PAGE;
    if (to > from) madvise((void *)from, to - from, MADV_NOHUGEPAGE);
    file_rest(p, bytes);
}

static graphc_status cpu_zero(Resident *r, void *p, uint64_t bytes, ErrorText e) {
    (void)r, (void)e;
    memset(p, 0, bytes);
    return GRAPHC_OK;
}

/* Used where it lies, unless its place in a file is not aligned to its elements. */
static graphc_status cpu_constant(Resident *r, const void *host, uint64_t bytes, size_t align,
                                  void **out, bool *owned, ErrorText e) {
    *owned = (uintptr_t)host % align != 0;
    if (!*owned) {
        *out = (void *)(uintptr_t)host; /* kernels do not write constants: plan_parse checked */
        return GRAPHC_OK;
    }
    GC_TRY(cpu_alloc(r, bytes, out, e));
    memcpy(*out, host, bytes);
    return GRAPHC_OK;
}

static uint32_t thread_count(const graphc_session_options *o) {
    uint32_t n = cores_threads(o->threads);
    return n > POOL_MAX_THREADS ? POOL_MAX_THREADS : n;
}

/* Tests set it to 1, so that every kernel with more than one unit of work is split. */
static int64_t grain(void) {
    const char *env = getenv("GRAPHC_GRAIN_NS");
    int n = env ? atoi(env) : 0;
    return n > 0 ? n : GRAIN_NS;
}

static graphc_status cpu_lane_open(Resident *r, const graphc_session_options *o, Lane **out,
                                   ErrorText e) {
    CpuDevice *d = r->device;
    Lane *l = calloc(1, sizeof *l);
    if (!l) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory for a session");
    l->res = r;
    l->threads = thread_count(o);
    l->grain_ns = grain();
    if (!pool_grow(d->pool, l->threads)) {
        free(l);
        return error_set(e, GRAPHC_NO_MEMORY, "the system gives no more threads");
    }
    *out = l;
    return GRAPHC_OK;
}

static void cpu_lane_close(Lane *l) {
    free(l);
}

static uint64_t scratch_stride(uint64_t scratch) {
    return (scratch + SCRATCH_STEP - 1) / SCRATCH_STEP * SCRATCH_STEP;
}
static uint32_t cpu_lane_threads(const Lane *l) {
    return l->threads;
}

static uint64_t cpu_lane_scratch(const Lane *l, uint64_t scratch) {
    return scratch_stride(scratch) * l->threads;
}
static void cpu_lane_set_scratch(Lane *l, void *p, uint64_t scratch) {
    l->scratch = p;
    l->stride = scratch_stride(scratch);
}

static graphc_status cpu_begin(Lane *l, ErrorText e) {
    (void)e;
    CpuDevice *d = l->res->device;
    l->has_pool = l->threads > 1 && pool_try_acquire(d->pool);
    return GRAPHC_OK;
}
static void cpu_end(Lane *l) {
    CpuDevice *d = l->res->device;
    if (l->has_pool) pool_release(d->pool);
    l->has_pool = false;
}

typedef struct Job {
    graphc_cpu_kernel *entry;
    const Launch *launch;
    uint8_t *scratch;
    uint64_t stride;
} Job;

static void run_items(void *ctx, uint32_t thread, int64_t begin, int64_t end) {
    const Job *j = ctx;
    j->entry(j->launch->pointers, j->launch->dims, begin, end,
             j->scratch ? j->scratch + j->stride * thread : NULL);
}

static uint32_t part_count(const Lane *l, int64_t work, int64_t cost_ns) {
    int64_t n = cost_ns / l->grain_ns;
    if (!l->has_pool || n < 2) return 1;
    if (n > work) n = work;
    return n > l->threads ? l->threads : (uint32_t)(n < 1 ? 1 : n);
}

/* Of a thread's range. Who takes one from another takes it out of that one's cache, and next time
 * it comes back: in steps of few microseconds that is slower than to wait. */
static uint32_t piece_count(const Lane *l, uint32_t parts, int64_t cost_ns) {
    uint32_t n = 1;
    while (n < POOL_MAX_PIECES && cost_ns / parts >> n >= PIECE_GRAINS * l->grain_ns) n++;
    return n;
}

static graphc_status cpu_launch(Lane *l, const Launch *k, ErrorText e) {
    (void)e;
    const CpuDevice *d = l->res->device;
    const PlanKernel *kernel = &l->res->kernels[k->kernel];
    Job j = {.launch = k, .scratch = l->scratch, .stride = l->stride};
    const int64_t work = k->slots[kernel->work], cost = k->slots[kernel->cost];
    l->parts = 0;
    if (work <= 0) return GRAPHC_OK;
    const void *entry = entry_of(d, kernel);
    memcpy(&j.entry, &entry, sizeof entry);
    l->parts = part_count(l, work, cost);
    if (l->parts == 1)
        run_items(&j, 0, k->from, k->to ? k->to : work);
    else
        pool_run(d->pool,
                 &(PoolJob){run_items, &j, work, l->parts, piece_count(l, l->parts, cost)});
    return GRAPHC_OK;
}

typedef struct Rest {
    uintptr_t from, to;
} Rest;

/* An item is what one table of pages holds, which has a lock of its own. */
static void rest_items(void *ctx, uint32_t thread, int64_t begin, int64_t end) {
    (void)thread;
    const Rest *r = ctx;
    const uintptr_t first = r->from / HUGE_PAGE;
    uintptr_t from = (first + (uintptr_t)begin) * HUGE_PAGE;
    uintptr_t to = (first + (uintptr_t)end) * HUGE_PAGE;
    if (from < r->from) from = r->from;
    if (to > r->to) to = r->to;
    file_rest((const void *)from, to - from);
}

/* Large ones by all threads: while one gives pages back, the others would only wait. */
static void cpu_constant_used(Lane *l, const void *host, uint64_t bytes) {
    const CpuDevice *d = l->res->device;
    Rest r = {(uintptr_t)host, (uintptr_t)host + bytes};
    const int64_t items = (int64_t)(round_up(r.to, HUGE_PAGE) / HUGE_PAGE - r.from / HUGE_PAGE);
    if (!l->has_pool || items < 3)
        file_rest(host, bytes);
    else
        pool_run(d->pool, &(PoolJob){rest_items, &r, items, l->threads, 1});
}

typedef struct Read {
    int fd;
    uint64_t at, bytes;
    uint8_t *to;
    atomic_bool failed;
} Read;

static void read_items(void *ctx, uint32_t thread, int64_t begin, int64_t end) {
    (void)thread;
    Read *r = ctx;
    const uint64_t from = (uint64_t)begin * READ_ITEM, to = (uint64_t)end * READ_ITEM;
    const uint64_t n = (to < r->bytes ? to : r->bytes) - from;
    if (!file_read(r->fd, r->at + from, r->to + from, n)) atomic_store(&r->failed, true);
}

static bool cpu_read(Lane *l, int fd, uint64_t at, void *to, uint64_t bytes) {
    const CpuDevice *d = l->res->device;
    Read r = {.fd = fd, .at = at, .bytes = bytes, .to = to};
    const int64_t items = (int64_t)((bytes + READ_ITEM - 1) / READ_ITEM);
    if (!l->has_pool || items < 2)
        read_items(&r, 0, 0, items);
    else
        pool_run(d->pool, &(PoolJob){read_items, &r, items, l->threads, 3});
    return !atomic_load(&r.failed);
}

typedef struct Each {
    EachFn *fn;
    void *ctx;
} Each;

static void each_item(void *ctx, uint32_t thread, int64_t begin, int64_t end) {
    (void)thread;
    const Each *e = ctx;
    for (int64_t i = begin; i < end; i++) e->fn(e->ctx, (uint32_t)i);
}

static void cpu_each(Lane *l, EachFn *fn, void *ctx, uint32_t n) {
    const CpuDevice *d = l->res->device;
    Each e = {fn, ctx};
    if (l->has_pool && n > 1)
        pool_run(d->pool, &(PoolJob){each_item, &e, n, n, 1});
    else
        each_item(&e, 0, 0, n);
}

static graphc_status cpu_copy(Lane *l, void *to, const void *from, uint64_t bytes, ErrorText e) {
    (void)l, (void)e;
    if (bytes) memcpy(to, from, bytes);
    return GRAPHC_OK;
}

static graphc_status cpu_sync(Lane *l, ErrorText e) {
    (void)l, (void)e;
    return GRAPHC_OK;
}

static graphc_status cpu_mark(Lane *l, uint32_t i, ErrorText e) {
    (void)e;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    l->marks[i] = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    return GRAPHC_OK;
}
static uint32_t cpu_parts(const Lane *l) {
    return l->parts;
}
static double cpu_seconds(Lane *l) {
    return l->marks[1] - l->marks[0];
}

const DeviceOps device_cpu = {
    .kind = GRAPHC_CPU,
    .align = 1,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .zero = cpu_zero,
    .rest = cpu_rest,
    .constant = cpu_constant,
    .constant_used = cpu_constant_used,
    .read = cpu_read,
    .each = cpu_each,
    .lane_open = cpu_lane_open,
    .lane_close = cpu_lane_close,
    .lane_threads = cpu_lane_threads,
    .lane_scratch = cpu_lane_scratch,
    .lane_set_scratch = cpu_lane_set_scratch,
    .begin = cpu_begin,
    .end = cpu_end,
    .launch = cpu_launch,
    .copy = cpu_copy,
    .sync = cpu_sync,
    .mark = cpu_mark,
    .seconds = cpu_seconds,
    .parts = cpu_parts,
};
