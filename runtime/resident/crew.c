/* All prepare steps of a device whose threads may each run one of them.
 *
 * Most pack one constant each. While every step is one of all threads they wait for each other at
 * every end, and two that come to the same fresh huge page both clear it. So a step belongs to one
 * thread, which reads its constants into a stage of its own; where it reads one slice after slice,
 * a few slices at a time do, which stay in the thread's own cache. Threads begin far from each
 * other, and who is done takes from the far end of another one's range.
 *
 * Steps run in batches, in which no step uses what another one writes. Large steps that are not cut
 * are of all threads, ahead of the others. */
#include "runtime/resident/resident.h"
#include <stdatomic.h>
#include <stdlib.h>

#define STAGES  (16u << 20)  /* of all threads: with what is made of them within the last cache */
#define PASSING (16u << 20)  /* what a batch's steps leave for later ones ends the batch */
#define PIECE   (512u << 10) /* of a constant that is read in slices */
#define ALIGN   64u

typedef struct Hand {
    Lane *lane;
    uint8_t *stage;
    graphc_status st;
    uint32_t failed; /* the step that it ended with, if not GRAPHC_OK */
    char why[512];
} Hand;

/* How a step reads its constant; slices 0: in no such way. */
typedef struct Cut {
    uint64_t slice; /* bytes */
    uint32_t slices, buffer;
} Cut;

typedef struct Task {
    uint64_t work;           /* bytes of its buffers */
    uint32_t step, from, to; /* slices, or 0, 0: all of the step */
} Task;

/* Tasks that a thread begins with, from the front on; others take the last ones. Their numbers, the
 * end's in the upper half. */
typedef struct Range {
    _Alignas(64) atomic_uint_least64_t left;
} Range;

typedef struct Crew {
    Resident *r;
    Lane *lane; /* of all threads */
    uint32_t threads;
    uint64_t share; /* of a thread's stage */
    bool staged;    /* threads have them */
    Hand *hand;     /* one for each thread */
    Range *range;
    uint32_t batch;           /* its number, from 1 on */
    uint32_t *used, *written; /* per buffer: the last batch that does so */
    Task *task;               /* of one batch */
    uint32_t ntasks, room;
} Crew;

static const uint32_t *bufs_of(const Resident *r, uint32_t step, uint32_t *n, uint64_t *written) {
    const PlanKernel *k = &r->kernels[r->steps[step].kernel];
    *n = k->nbufs;
    *written = k->written;
    return r->owner->plan.lists + r->steps[step].bufs;
}

static uint64_t bytes_of(const Resident *r, uint32_t buffer) {
    const int64_t n = r->slots[r->buffers[buffer].bytes];
    return n > 0 ? ((uint64_t)n + ALIGN - 1) / ALIGN * ALIGN : 0;
}

/* Bytes of a step's buffers; of those that later prepare steps alone use. */
static uint64_t work_of(const Resident *r, uint32_t step, uint64_t *passing) {
    uint32_t n;
    uint64_t written, sum = 0;
    const uint32_t *bufs = bufs_of(r, step, &n, &written);
    for (uint32_t i = 0; i < n; i++) {
        sum += bytes_of(r, bufs[i]);
        if (written >> i & 1 && !resident_leaves(r, bufs[i])) *passing += bytes_of(r, bufs[i]);
    }
    return sum;
}

static bool is_external(const Resident *r, uint32_t buffer, PlanStr *file) {
    if (r->buffers[buffer].kind != PLAN_BUF_const) return false;
    const PlanConstant *c = &r->owner->plan.constants[r->buffers[buffer].index];
    if (c->source == PLAN_external) *file = c->file;
    return c->source == PLAN_external;
}

/* May the step run beside those of the batch so far, whose constants are in this file (0: none)? */
static bool joins(const Crew *c, uint32_t step, PlanStr *file) {
    uint32_t n;
    uint64_t written;
    const uint32_t *bufs = bufs_of(c->r, step, &n, &written);
    for (uint32_t i = 0; i < n; i++) {
        PlanStr other = 0;
        if (c->written[bufs[i]] == c->batch) return false;
        if (written >> i & 1 && c->used[bufs[i]] == c->batch) return false;
        if (!is_external(c->r, bufs[i], &other)) continue;
        if (*file && *file != other) return false;
        *file = other;
    }
    return true;
}

static void mark(Crew *c, uint32_t step) {
    uint32_t n;
    uint64_t written;
    const uint32_t *bufs = bufs_of(c->r, step, &n, &written);
    for (uint32_t i = 0; i < n; i++) {
        c->used[bufs[i]] = c->batch;
        if (written >> i & 1) c->written[bufs[i]] = c->batch;
    }
}

/* The steps from this one on that make a batch: where it ends, and how much work it is. A step with
 * constants in several files is a batch by itself. */
static uint32_t find_batch(Crew *c, uint32_t from, uint64_t *work) {
    const uint32_t end = c->r->target->nprepare;
    uint64_t passing = 0;
    PlanStr file = 0;
    uint32_t i = from;
    c->batch++;
    for (*work = 0; i < end && passing <= PASSING; i++) {
        const bool fits = joins(c, i, &file);
        if (!fits && i > from) break;
        mark(c, i);
        *work += work_of(c->r, i, &passing);
        if (!fits) return i + 1;
    }
    return i;
}

/* Finds or makes what the step's pointers are to, but for what its thread reads to its stage;
 * *staged: bytes of that. */
static graphc_status make_ready(Crew *c, uint32_t step, uint64_t *staged, ErrorText e) {
    Resident *r = c->r;
    uint32_t n;
    uint64_t written;
    const uint32_t *bufs = bufs_of(r, step, &n, &written);
    *staged = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t b = bufs[i];
        const uint8_t *bytes;
        if (r->address[b]) continue;
        if (r->buffers[b].kind != PLAN_BUF_const) {
            GC_TRY(resident_room(r, b, e));
            continue;
        }
        GC_TRY(resident_find(r, b, &bytes, e));
        if (stage_has_file(r, b) && bytes_of(r, b))
            *staged += bytes_of(r, b);
        else
            GC_TRY(resident_load(r, NULL, b, e));
    }
    return GRAPHC_OK;
}

static Cut cut_of(const Crew *c, uint32_t step) {
    const Resident *r = c->r;
    const PlanKernel *k = &r->kernels[launch_choice(&r->owner->plan, &r->steps[step], r->slots)];
    const int64_t slices = r->slots[k->slices], slice = r->slots[k->slice];
    uint32_t n, buffer = UINT32_MAX;
    uint64_t written;
    const uint32_t *bufs = bufs_of(r, step, &n, &written);
    for (uint32_t i = 0; i < n; i++) {
        if (written >> i & 1) continue;
        if (buffer != UINT32_MAX) return (Cut){0};
        buffer = bufs[i];
    }
    const bool cut = k->slices && k->slice && slices > 1 && slices <= UINT32_MAX && slice > 0 &&
                     (uint64_t)slice + PLAN_PROBE <= c->share && r->slots[k->work] % slices == 0;
    if (!cut || buffer == UINT32_MAX || r->address[buffer]) return (Cut){0};
    return (Cut){(uint64_t)slice, (uint32_t)slices, buffer};
}

/* Of a constant whose first bytes are in the stage, behind which there is room. */
static graphc_status recognise_ends(const Crew *c, Hand *h, const Cut *cut, uint64_t filled,
                                    ErrorText e) {
    const uint32_t k = c->r->buffers[cut->buffer].index;
    const uint64_t length = c->r->owner->plan.constants[k].length;
    uint8_t *tail = h->stage + filled;
    GC_TRY(stage_fill(c->r, h->lane, cut->buffer, length - PLAN_PROBE, PLAN_PROBE, tail, e));
    return resident_known(c->r, k, plan_ends_hash(h->stage, tail, length), e);
}

/* Reads what these slices are of the constant; with the first ones it is recognised. */
static graphc_status read_slices(const Crew *c, Hand *h, const Task *t, const Cut *cut,
                                 ErrorText e) {
    const uint32_t k = c->r->buffers[cut->buffer].index;
    const uint64_t length = c->r->owner->plan.constants[k].length;
    const uint64_t from = t->from * cut->slice;
    uint64_t to = t->to * cut->slice;
    if (from >= length) return GRAPHC_OK;
    if (to > length) to = length;
    GC_TRY(stage_fill(c->r, h->lane, cut->buffer, from, to - from, h->stage, e));
    return from ? GRAPHC_OK : recognise_ends(c, h, cut, to, e);
}

/* Pointers to constants that are not there otherwise lead to the stage. */
static graphc_status read_all(const Crew *c, Hand *h, uint32_t step, void **pointers, ErrorText e) {
    const Resident *r = c->r;
    uint32_t n;
    uint64_t written, filled = 0;
    const uint32_t *bufs = bufs_of(r, step, &n, &written);
    for (uint32_t i = 0; i < n; i++) {
        if (pointers[i]) continue;
        const uint32_t k = r->buffers[bufs[i]].index;
        pointers[i] = h->stage + filled;
        filled += bytes_of(r, bufs[i]);
        GC_TRY(
            stage_fill(r, h->lane, bufs[i], 0, r->owner->plan.constants[k].length, pointers[i], e));
        GC_TRY(resident_recognise(r, k, pointers[i], e));
    }
    return GRAPHC_OK;
}

static graphc_status run_task(const Crew *c, Hand *h, const Task *t, ErrorText e) {
    Resident *r = c->r;
    void *pointers[PLAN_MAX_PARAMS];
    ItemRange items = {0};
    uint32_t n;
    uint64_t written;
    const uint32_t *bufs = bufs_of(r, t->step, &n, &written);
    for (uint32_t i = 0; i < n; i++) pointers[i] = r->address[bufs[i]];
    if (t->to) {
        const Cut cut = cut_of(c, t->step);
        const PlanSlot work = r->kernels[r->steps[t->step].kernel].work;
        const int64_t part = r->slots[work] / cut.slices;
        GC_TRY(read_slices(c, h, t, &cut, e));
        for (uint32_t i = 0; i < n; i++)
            if (!pointers[i]) pointers[i] = (void *)((uintptr_t)h->stage - t->from * cut.slice);
        items = (ItemRange){t->from * part, t->to * part};
    } else
        GC_TRY(read_all(c, h, t->step, pointers, e));
    GC_TRY(resident_launch(r, h->lane, t->step, pointers, items, e));
    if (!t->to) resident_pages_read(r, h->lane, t->step);
    return GRAPHC_OK;
}

/* The first or last task of a range, or false. */
static bool take(Range *range, bool last, uint32_t *task) {
    uint64_t left = atomic_load(&range->left);
    for (;;) {
        const uint32_t from = (uint32_t)left, to = (uint32_t)(left >> 32);
        if (from >= to) return false;
        *task = last ? to - 1 : from;
        const uint64_t now = last ? (uint64_t)(to - 1) << 32 | from : left + 1;
        if (atomic_compare_exchange_weak(&range->left, &left, now)) return true;
    }
}

static bool find_task(Crew *c, uint32_t own, uint32_t *task) {
    if (take(&c->range[own], false, task)) return true;
    for (uint32_t i = 1; i < c->threads; i++)
        if (take(&c->range[(own + i) % c->threads], true, task)) return true;
    return false;
}

static void run_tasks(void *ctx, uint32_t i) {
    Crew *c = ctx;
    Hand *h = &c->hand[i];
    uint32_t k;
    while (h->st == GRAPHC_OK && find_task(c, i, &k)) {
        h->failed = k;
        h->st = run_task(c, h, &c->task[k], (ErrorText){h->why, sizeof h->why});
    }
}

static graphc_status open_stages(Crew *c, ErrorText e) {
    for (uint32_t i = 0; !c->staged && i < c->threads; i++) {
        void *p = NULL;
        GC_TRY(c->r->ops->alloc(c->r, c->share, &p, e));
        c->hand[i].stage = p;
    }
    c->staged = true;
    return GRAPHC_OK;
}

/* As much work for each. */
static void share_out(Crew *c) {
    uint64_t all = 0, sum = 0;
    uint32_t k = 0;
    for (uint32_t i = 0; i < c->ntasks; i++) all += c->task[i].work;
    for (uint32_t i = 0; i < c->threads; i++) {
        const uint32_t from = k;
        const uint64_t until = i + 1 == c->threads ? all : all / c->threads * (i + 1);
        while (k < c->ntasks && (sum < until || i + 1 == c->threads)) sum += c->task[k++].work;
        atomic_store(&c->range[i].left, (uint64_t)k << 32 | from);
    }
}

/* What came first among the tasks that failed. */
static graphc_status run_batch(Crew *c, ErrorText e) {
    const Hand *first = NULL;
    share_out(c);
    c->r->ops->each(c->lane, run_tasks, c, c->threads);
    for (uint32_t i = 0; i < c->threads; i++) {
        const Hand *h = &c->hand[i];
        if (h->st != GRAPHC_OK && (!first || h->failed < first->failed)) first = h;
    }
    return first ? error_set(e, first->st, "%s", first->why) : GRAPHC_OK;
}

static graphc_status add_task(Crew *c, Task t, ErrorText e) {
    if (c->ntasks == c->room) {
        const uint32_t room = c->room ? 2 * c->room : 64;
        Task *more = realloc(c->task, room * sizeof *more);
        if (!more) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory to load the plan");
        c->task = more;
        c->room = room;
    }
    c->task[c->ntasks++] = t;
    return GRAPHC_OK;
}

static graphc_status add_slices(Crew *c, uint32_t step, uint64_t work, const Cut *cut,
                                ErrorText e) {
    const uint32_t n = cut->slice < PIECE ? (uint32_t)(PIECE / cut->slice) : 1;
    for (uint32_t i = 0; i < cut->slices; i += n) {
        const uint32_t to = cut->slices - i > n ? i + n : cut->slices;
        GC_TRY(add_task(c, (Task){work / cut->slices * (to - i), step, i, to}, e));
    }
    return GRAPHC_OK;
}

static graphc_status prepare_batch(Crew *c, uint32_t from, uint32_t to, uint64_t work,
                                   ErrorText e) {
    c->ntasks = 0;
    for (uint32_t i = from; i < to; i++) {
        uint64_t passing = 0, staged = 0;
        const Task t = {work_of(c->r, i, &passing), i, 0, 0};
        GC_TRY(make_ready(c, i, &staged, e));
        if (staged) GC_TRY(open_stages(c, e));
        const Cut cut = staged > PIECE ? cut_of(c, i) : (Cut){0};
        if (cut.slices)
            GC_TRY(add_slices(c, i, t.work, &cut, e));
        else if (staged <= c->share && t.work <= work / (2 * c->threads))
            GC_TRY(add_task(c, t, e));
        else
            GC_TRY(resident_step(c->r, c->lane, i, e));
        stage_leave(c->r);
    }
    if (c->ntasks) GC_TRY(run_batch(c, e));
    for (uint32_t i = from; i < to; i++) resident_drop_unused(c->r, i);
    return GRAPHC_OK;
}

static void crew_close(Crew *c) {
    for (uint32_t i = 0; c->hand && i < c->threads; i++) {
        Hand *h = &c->hand[i];
        if (h->stage) c->r->ops->free(c->r, h->stage, c->share);
        if (h->lane) c->r->ops->lane_close(h->lane);
    }
    free(c->hand);
    free(c->range);
    free(c->used);
    free(c->written);
    free(c->task);
}

static graphc_status crew_open(Crew *c, const graphc_session_options *o, ErrorText e) {
    const PlanTarget *t = c->r->target;
    graphc_session_options alone = *o;
    alone.threads = 1;
    c->threads = c->r->ops->lane_threads(c->lane);
    c->share = STAGES / c->threads;
    c->hand = calloc(c->threads, sizeof *c->hand);
    c->used = calloc((size_t)t->nbuffers + 1, sizeof *c->used);
    c->written = calloc((size_t)t->nbuffers + 1, sizeof *c->written);
    c->range = aligned_alloc(_Alignof(Range), c->threads * sizeof *c->range);
    if (!c->hand || !c->used || !c->written || !c->range)
        return error_set(e, GRAPHC_NO_MEMORY, "not enough memory to load the plan");
    for (uint32_t i = 0; i < c->threads; i++)
        GC_TRY(c->r->ops->lane_open(c->r, &alone, &c->hand[i].lane, e));
    return GRAPHC_OK;
}

graphc_status crew_prepare(Resident *r, const graphc_session_options *o, Lane *lane, ErrorText e) {
    Crew c = {.r = r, .lane = lane};
    uint64_t work = 0;
    graphc_status st = crew_open(&c, o, e);
    if (st == GRAPHC_OK) st = r->ops->begin(lane, e);
    const bool begun = st == GRAPHC_OK;
    for (uint32_t from = 0, to; st == GRAPHC_OK && from < r->target->nprepare; from = to) {
        to = find_batch(&c, from, &work);
        st = prepare_batch(&c, from, to, work, e);
    }
    if (begun) r->ops->end(lane);
    crew_close(&c);
    return st;
}
