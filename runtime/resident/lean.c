/* Prepared weights that are there only while a run reads them. Prepare steps run in the order in
 * which what they make is read: in front of a run's step all up to the last that it needs. Behind
 * the last step that reads a buffer its pages are given back; its place stays, so pointers do, too.
 * Of loops and conditions only the outermost count, each as one step: what is read inside is there
 * all the time. */
#include "runtime/resident/resident.h"
#include <stdlib.h>
#include <string.h>

typedef struct Left {
    uint32_t buffer;
    uint32_t made;  /* 1 + where in the order the last step is that writes it */
    uint32_t until; /* the last step of the target that reads it */
} Left;

struct Lean {
    Lane *lane;      /* of prepare steps */
    uint32_t *order; /* the prepare steps, as they run */
    uint32_t *need;  /* per step of a run: how many of the order what it reads takes */
    Left *left;      /* by `until` */
    uint32_t nleft;
    uint32_t prepared, gone; /* in this run: of the order, and of `left`, the first ones */
};

/* While it is made: per buffer the first step that reads it and the first that writes it, a prepare
 * step as what it is due for, and the last of a run that reads it; per prepare step that. */
typedef struct Plans {
    const Resident *r;
    Lean *l;
    uint32_t *reader, *writer, *until, *due, *made;
} Plans;

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static bool opens(const PlanStep *s) {
    return s->kind == PLAN_STEP_loop || s->kind == PLAN_STEP_if;
}
static bool closes(const PlanStep *s) {
    return s->kind == PLAN_STEP_loop_end || s->kind == PLAN_STEP_if_end;
}

/* Steps [from, to) of a run read it as one. */
static void reads(const Plans *p, uint32_t buffer, uint32_t from, uint32_t to) {
    const uint32_t b = plan_root(p->r->buffers, buffer);
    p->reader[b] = least(p->reader[b], from);
    p->until[b] = to - 1;
}

static void read_block(const Plans *p, uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++) {
        const PlanStep *s = &p->r->steps[i];
        const uint32_t n = s->kind == PLAN_STEP_kernel ? p->r->kernels[s->kernel].nbufs : 0;
        for (uint32_t k = 0; k < n; k++) reads(p, p->r->owner->plan.lists[s->bufs + k], from, to);
        if (s->trip_buf) reads(p, s->trip_buf - 1, from, to);
        if (s->cond_buf) reads(p, s->cond_buf - 1, from, to);
    }
}

static void find_readers(const Plans *p) {
    const PlanTarget *t = p->r->target;
    for (uint32_t i = t->nprepare, end; i < t->nsteps; i = end) {
        uint32_t depth = 0;
        end = i;
        do {
            depth += opens(&p->r->steps[end]);
            depth -= closes(&p->r->steps[end]);
        } while (++end < t->nsteps && depth);
        read_block(p, i, end);
    }
}

/* What a prepare step makes is due where it is read first, and no later than what writes there
 * behind it: so two steps of which one writes what the other uses stay in their order. */
static void find_due(const Plans *p) {
    for (uint32_t i = p->r->target->nprepare; i-- > 0;) {
        const PlanKernel *k = &p->r->kernels[p->r->steps[i].kernel];
        const uint32_t *bufs = p->r->owner->plan.lists + p->r->steps[i].bufs;
        uint32_t due = UINT32_MAX;
        for (uint32_t j = 0; j < k->nbufs; j++) {
            due = least(due, p->writer[bufs[j]]);
            if (k->written >> j & 1) due = least(due, p->reader[bufs[j]]);
        }
        p->due[i] = due;
        for (uint32_t j = 0; j < k->nbufs; j++) {
            uint32_t *first = k->written >> j & 1 ? p->writer : p->reader;
            first[bufs[j]] = least(first[bufs[j]], due);
        }
    }
}

/* By what they are due for, and as they stood. What is due for nothing never runs. */
static void sort_by_due(const Plans *p) {
    const PlanTarget *t = p->r->target;
    uint32_t *n = p->l->need;
    for (uint32_t i = 0; i < t->nprepare; i++)
        if (p->due[i] != UINT32_MAX) n[p->due[i]]++;
    for (uint32_t s = 0; s < t->nsteps; s++) n[s + 1] += n[s];
    for (uint32_t i = t->nprepare; i-- > 0;)
        if (p->due[i] != UINT32_MAX) p->l->order[--n[p->due[i]]] = i;
    for (uint32_t s = 0; s < t->nsteps; s++) n[s] = n[s + 1]; /* what is due before the next */
}

static void find_order(const Plans *p) {
    const PlanTarget *t = p->r->target;
    sort_by_due(p);
    for (uint32_t at = 0; at < p->l->need[t->nsteps]; at++) {
        const PlanStep *s = &p->r->steps[p->l->order[at]];
        const PlanKernel *k = &p->r->kernels[s->kernel];
        for (uint32_t j = 0; j < k->nbufs; j++) {
            const uint32_t b = p->r->owner->plan.lists[s->bufs + j];
            const bool alone = p->r->buffers[b].last < t->nprepare;
            if (alone) p->r->over[b] = p->l->order[at];
            if (k->written >> j & 1) p->made[b] = at + 1;
        }
    }
}

static int by_until(const void *a, const void *b) {
    const Left *x = a, *y = b;
    return x->until != y->until ? (x->until > y->until) - (x->until < y->until)
                                : (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

static graphc_status find_left(const Plans *p, Resident *r, ErrorText e) {
    Lean *l = r->lean;
    for (uint32_t b = 0; b < r->target->nbuffers; b++) {
        if (!resident_leaves(r, b)) continue;
        if (!p->made[b] && p->reader[b] != UINT32_MAX)
            return error_set(e, GRAPHC_INVALID, "no prepare step writes buffer b%u", b);
        GC_TRY(resident_place(r, b, e));
        l->left[l->nleft++] = (Left){b, p->made[b], p->until[b]};
    }
    qsort(l->left, l->nleft, sizeof *l->left, by_until);
    if (r->left.p) r->ops->rest(r->left.p, r->left.bytes);
    return GRAPHC_OK;
}

static uint32_t *numbers(size_t n, bool last) {
    uint32_t *v = calloc(n + 1, sizeof *v);
    if (v && last) memset(v, 0xff, (n + 1) * sizeof *v);
    return v;
}

static graphc_status plan_all(Resident *r, ErrorText e) {
    const size_t nb = r->target->nbuffers, np = r->target->nprepare;
    Lean *l = r->lean;
    Plans p = {r,
               l,
               numbers(nb, true),
               numbers(nb, true),
               numbers(nb, false),
               numbers(np, true),
               numbers(nb, false)};
    l->order = numbers(np, false);
    r->over = numbers(nb, true);
    l->need = numbers(r->target->nsteps, false);
    l->left = calloc(nb + 1, sizeof *l->left);
    graphc_status st = GRAPHC_OK;
    if (p.reader && p.writer && p.until && p.due && p.made && l->order && r->over && l->need &&
        l->left) {
        find_readers(&p);
        find_due(&p);
        find_order(&p);
        st = find_left(&p, r, e);
    } else
        st = error_set(e, GRAPHC_NO_MEMORY, "not enough memory to load the plan");
    free(p.reader);
    free(p.writer);
    free(p.until);
    free(p.due);
    free(p.made);
    return st;
}

graphc_status lean_open(Resident *r, const graphc_session_options *o, ErrorText e) {
    r->lean = calloc(1, sizeof *r->lean);
    if (!r->lean) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory to load the plan");
    GC_TRY(plan_all(r, e));
    return r->ops->lane_open(r, o, &r->lean->lane, e);
}

void lean_close(Resident *r) {
    if (!r->lean) return;
    if (r->lean->lane) r->ops->lane_close(r->lean->lane);
    free(r->lean->order);
    free(r->lean->need);
    free(r->lean->left);
    free(r->lean);
}

graphc_status lean_before(graphc_session *s, uint32_t step) {
    Resident *r = s->res;
    Lean *l = r->lean;
    if (!l || l->prepared >= l->need[step]) return GRAPHC_OK;
    ErrorText e = session_error(s);
    r->ops->end(s->lane); /* the pool is one lane's at a time */
    graphc_status st = resident_prepare(r, l->lane, l->order, &l->prepared, l->need[step], e);
    graphc_status on = r->ops->begin(s->lane, e);
    return st == GRAPHC_OK ? on : st;
}

void lean_behind(graphc_session *s, uint32_t next) {
    const Resident *r = s->res;
    Lean *l = r->lean;
    for (; l && l->gone < l->nleft && l->left[l->gone].until < next; l->gone++) {
        const uint32_t b = l->left[l->gone].buffer;
        r->ops->rest(r->address[b], (uint64_t)r->slots[r->buffers[b].bytes]);
    }
}

void lean_over(graphc_session *s) {
    Resident *r = s->res;
    if (!r->lean) return;
    if (r->left.p) r->ops->rest(r->left.p, r->left.bytes);
    r->lean->prepared = r->lean->gone = 0;
}

void watch_prepared(const graphc_session *s, uint32_t buffer, uint32_t *from, uint32_t *until) {
    const Resident *r = s->res;
    const Lean *l = r->lean;
    *from = 0;
    *until = UINT32_MAX;
    for (uint32_t i = 0; l && i < l->nleft; i++) {
        if (l->left[i].buffer != buffer) continue;
        *until = l->left[i].until;
        *from = s->steps.from;
        while (*from < *until && l->need[*from] < l->left[i].made) ++*from;
    }
}
