#include "runtime/memory.h"
#include "runtime/base/check.h"
#include <stdlib.h>
#include <string.h>

#define ALIGN  64u
#define GROWTH 8u    /* what grows has this part of its size more, ... */
#define LEAST  4096u /* ... or so many bytes */

typedef struct Item {
    uint64_t size, offset;
    uint32_t buffer, first, last;
} Item;

/* How items are ordered for placing; the best result of all orders is kept. */
typedef enum Order { BY_SIZE, BY_AREA, BY_START, ORDERS } Order;

struct MemoryPlan {
    const Plan *plan;
    const PlanTarget *target;
    uint64_t *offset, *bytes; /* per buffer */
    uint64_t *room;           /* per buffer: bytes at its place; 0: it has none */
    uint8_t *grows;           /* per buffer: it has more room than it needs */
    uint64_t *live;           /* per step */
    Item *items, *placed;     /* placed: sorted by offset */
    uint32_t nitems;
    uint64_t arena, peak;
    PlanRange steps; /* those to place for */
    bool loose, assigned;
};

MemoryPlan *memory_create(const Plan *p, const PlanTarget *t) {
    MemoryPlan *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->plan = p;
    m->target = t;
    size_t n = (size_t)t->nbuffers + 1;
    m->offset = calloc(n, sizeof *m->offset);
    m->bytes = calloc(n, sizeof *m->bytes);
    m->room = calloc(n, sizeof *m->room);
    m->grows = calloc(n, sizeof *m->grows);
    m->live = calloc((size_t)t->nsteps + 2, sizeof *m->live);
    m->items = calloc(n, sizeof *m->items);
    m->placed = calloc(n, sizeof *m->placed);
    if (m->offset && m->bytes && m->room && m->grows && m->live && m->items && m->placed) return m;
    memory_destroy(m);
    return NULL;
}

void memory_destroy(MemoryPlan *m) {
    if (!m) return;
    free(m->offset);
    free(m->bytes);
    free(m->room);
    free(m->grows);
    free(m->live);
    free(m->items);
    free(m->placed);
    free(m);
}

uint64_t memory_offset(const MemoryPlan *m, uint32_t buffer) {
    return m->offset[buffer];
}
uint64_t memory_arena(const MemoryPlan *m) {
    return m->arena;
}
uint64_t memory_live(const MemoryPlan *m) {
    return m->peak;
}
bool memory_is_loose(const MemoryPlan *m) {
    return m->loose;
}

/* Only other steps use it: its size may not be known. */
static bool is_elsewhere(const MemoryPlan *m, const PlanBuffer *b) {
    return b->first <= b->last && (b->last < m->steps.from || b->first >= m->steps.to);
}

/* Sizes of all buffers; a part must lie inside the buffer that holds it. */
static graphc_status measure(MemoryPlan *m, const int64_t *slots, ErrorText e) {
    const PlanBuffer *b = m->plan->buffers + m->target->buffers;
    for (uint32_t i = 0; i < m->target->nbuffers; i++) {
        int64_t n = is_elsewhere(m, &b[i]) ? 0 : slots[b[i].bytes];
        if (n < 0 || n > INT64_MAX / 4)
            return error_set(e, GRAPHC_INVALID,
                             "buffer b%u would have %s%lld bytes with these shapes", i,
                             n > 0 ? "more than " : "", (long long)(n < 0 ? n : INT64_MAX / 4));
        m->bytes[i] = (uint64_t)n;
    }
    for (uint32_t i = 0; i < m->target->nbuffers; i++) {
        if (!b[i].alias || is_elsewhere(m, &b[i])) continue;
        int64_t at = slots[b[i].alias_offset];
        if (at < 0 || !check_span((uint64_t)at, m->bytes[i], m->bytes[b[i].alias - 1]))
            return error_set(e, GRAPHC_INVALID, "buffer b%u does not fit into b%u", i,
                             b[i].alias - 1);
    }
    return GRAPHC_OK;
}

static bool has_place(const MemoryPlan *m, uint32_t i) {
    const PlanBuffer *b = &m->plan->buffers[m->target->buffers + i];
    return b->kind == PLAN_BUF_temp && !b->alias && b->first <= b->last && m->bytes[i];
}

static uint64_t aligned(uint64_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static graphc_status collect(MemoryPlan *m, ErrorText e) {
    const PlanBuffer *b = m->plan->buffers + m->target->buffers;
    uint64_t total = 0;
    m->loose = false;
    m->nitems = 0;
    memset(m->live, 0, ((size_t)m->target->nsteps + 2) * sizeof *m->live);
    for (uint32_t i = 0; i < m->target->nbuffers; i++) {
        m->offset[i] = m->room[i] = 0;
        if (!has_place(m, i)) continue;
        uint64_t more = m->bytes[i] / GROWTH > LEAST ? m->bytes[i] / GROWTH : LEAST;
        uint64_t size = aligned(m->bytes[i] + (m->grows[i] ? more : 0));
        m->room[i] = size;
        m->loose |= m->grows[i];
        if (!check_add(total, size, &total) || total > INT64_MAX / 2)
            return error_set(e, GRAPHC_NO_MEMORY, "the buffers do not fit into memory");
        m->items[m->nitems++] = (Item){size, 0, i, b[i].first, b[i].last};
        m->live[b[i].first] += size;
        m->live[b[i].last + 1] -= size;
    }
    m->peak = 0;
    uint64_t now = 0;
    for (uint32_t s = 0; s <= m->target->nsteps; s++) {
        now += m->live[s];
        if (now > m->peak) m->peak = now;
    }
    return GRAPHC_OK;
}

static int compare_u64(uint64_t x, uint64_t y) {
    return (x > y) - (x < y);
}

static int by_size(const void *a, const void *b) {
    const Item *x = a, *y = b;
    int c = compare_u64(y->size, x->size);
    return c ? c : compare_u64(x->buffer, y->buffer);
}
static int by_area(const void *a, const void *b) {
    const Item *x = a, *y = b;
    double p = (double)x->size * (x->last - x->first + 1.0);
    double q = (double)y->size * (y->last - y->first + 1.0);
    return p != q ? (p < q) - (p > q) : by_size(a, b);
}
static int by_start(const void *a, const void *b) {
    const Item *x = a, *y = b;
    int c = compare_u64(x->first, y->first);
    return c ? c : by_size(a, b);
}

typedef int Compare(const void *, const void *);

/* Heap sort: qsort may allocate. The orders are total, so the result is unique. */
static void sift_down(Item *v, uint32_t root, uint32_t n, Compare *cmp) {
    for (uint32_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && cmp(&v[child], &v[child + 1]) < 0) child++;
        if (cmp(&v[root], &v[child]) >= 0) return;
        Item t = v[root];
        v[root] = v[child];
        v[child] = t;
    }
}

static void sort_items(Item *v, uint32_t n, Compare *cmp) {
    for (uint32_t i = n / 2; i-- > 0;) sift_down(v, i, n, cmp);
    for (uint32_t i = n; i-- > 1;) {
        Item t = v[0];
        v[0] = v[i];
        v[i] = t;
        sift_down(v, 0, i, cmp);
    }
}

/* Best fit: the smallest gap between items alive at the same time, else above them all. */
static uint64_t find_place(const Item *placed, uint32_t n, const Item *it) {
    uint64_t end = 0, best = 0, best_gap = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const Item *p = &placed[i];
        if (p->last < it->first || p->first > it->last) continue;
        if (p->offset > end) {
            uint64_t gap = p->offset - end;
            if (gap >= it->size && gap < best_gap) {
                best = end;
                best_gap = gap;
            }
        }
        if (p->offset + p->size > end) end = p->offset + p->size;
    }
    return best_gap == UINT64_MAX ? end : best;
}

static uint64_t place_all(MemoryPlan *m) {
    uint64_t top = 0;
    for (uint32_t n = 0; n < m->nitems; n++) {
        Item it = m->items[n];
        it.offset = find_place(m->placed, n, &it);
        if (it.offset + it.size > top) top = it.offset + it.size;
        uint32_t lo = 0, hi = n;
        while (lo < hi) {
            uint32_t mid = (lo + hi) / 2;
            if (m->placed[mid].offset < it.offset)
                lo = mid + 1;
            else
                hi = mid;
        }
        memmove(m->placed + lo + 1, m->placed + lo, (n - lo) * sizeof *m->placed);
        m->placed[lo] = it;
    }
    return top;
}

static graphc_status place(MemoryPlan *m, ErrorText e) {
    static Compare *const order[ORDERS] = {by_size, by_area, by_start};
    GC_TRY(collect(m, e));
    m->arena = UINT64_MAX;
    for (int o = 0; o < ORDERS && m->arena > m->peak; o++) {
        sort_items(m->items, m->nitems, order[o]);
        uint64_t top = place_all(m);
        if (top >= m->arena) continue;
        m->arena = top;
        for (uint32_t i = 0; i < m->nitems; i++)
            m->offset[m->placed[i].buffer] = m->placed[i].offset;
    }
    return GRAPHC_OK;
}

graphc_status memory_assign(MemoryPlan *m, PlanRange steps, const int64_t *slots, ErrorText e) {
    m->steps = steps;
    memset(m->grows, 0, m->target->nbuffers);
    m->assigned = false;
    GC_TRY(measure(m, slots, e));
    GC_TRY(place(m, e));
    m->assigned = true;
    return GRAPHC_OK;
}

/* --- Sizes that follow others ----------------------------------------------------------------- */

/* Everything fits where it is; *tight: and takes three quarters of that or more. */
static bool fits(const MemoryPlan *m, bool *tight) {
    uint64_t need = 0, room = 0;
    bool all = true;
    for (uint32_t i = 0; i < m->target->nbuffers; i++) {
        if (has_place(m, i)) need += aligned(m->bytes[i]);
        if (has_place(m, i) && m->bytes[i] > m->room[i]) all = false;
        room += m->room[i];
    }
    *tight = need >= room / 4 * 3;
    return all;
}

graphc_status memory_reassign(MemoryPlan *m, PlanRange steps, const int64_t *slots, ErrorText e) {
    bool same = m->steps.from == steps.from && m->steps.to == steps.to && m->assigned, tight;
    if (!same) return memory_assign(m, steps, slots, e);
    m->assigned = false;
    GC_TRY(measure(m, slots, e));
    bool all = fits(m, &tight);
    if (!tight) memset(m->grows, 0, m->target->nbuffers);
    for (uint32_t i = 0; i < m->target->nbuffers && !all; i++)
        m->grows[i] |= has_place(m, i) && m->bytes[i] > m->room[i];
    if (!all || !tight) GC_TRY(place(m, e));
    m->assigned = true;
    return GRAPHC_OK;
}

uint64_t memory_scratch(const Plan *p, const PlanTarget *t, PlanRange steps, const int64_t *slots) {
    int64_t most = 0;
    for (uint32_t i = steps.from; i < steps.to; i++) {
        const PlanStep *s = &p->steps[t->steps + i];
        if (s->kind != PLAN_STEP_kernel) continue;
        int64_t n = slots[p->kernels[t->kernels + s->kernel].scratch];
        if (n > most) most = n;
    }
    return ((uint64_t)most + ALIGN - 1) / ALIGN * ALIGN;
}
