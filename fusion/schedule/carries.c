/* What a loop makes of a value that it carries is stored over it where nobody needs that any more:
 * the copy at the end of its body, which special/control.c made, is dropped.
 *
 * Needs all steps, prepare steps in front, nothing else overwritten in place. Keeps the order of
 * the steps that are left. */
#include "fusion/analyse/facts.h"
#include "fusion/schedule/stage.h"

typedef struct Spans {
    Span *of;
    uint32_t begin, end; /* of the outermost loop around the step at hand, or the step */
} Spans;

static void forget(Schedule *s, uint32_t t, uint32_t buf, bool written, void *ctx) {
    Spans *x = ctx;
    (void)t, (void)written;
    x->of[schedule_owner(s, buf)] = (Span){UINT32_MAX, 0};
}

static void widen(Schedule *s, uint32_t t, uint32_t buf, bool written, void *ctx) {
    Spans *x = ctx;
    Span *b = &x->of[schedule_owner(s, buf)];
    (void)t, (void)written;
    if (x->begin < b->first) b->first = x->begin;
    if (x->end > b->last) b->last = x->end;
}

void schedule_spans(Schedule *s, uint32_t from, uint32_t to, Span *of) {
    Spans x = {.of = of};
    uint32_t inside = from; /* steps before this one are of a loop */
    for (uint32_t t = from; t < to; t++) schedule_each_use(s, t, forget, &x);
    for (uint32_t t = from; t < to; t++) {
        if (t >= inside) x.begin = x.end = t;
        if (t >= inside && s->steps.v[t].kind == STEP_loop_begin) {
            x.end = s->steps.v[t].match;
            inside = x.end + 1;
        }
        schedule_each_use(s, t, widen, &x);
    }
}

static uint32_t param_of(const SStep *x, uint32_t buf) {
    uint32_t i = 0;
    while (i < x->kernel->nparams && x->bufs[i] != buf) i++;
    return i;
}

/* Both used first and last by this step, element by element. */
static bool same_elements(const SStep *x, uint32_t now, uint32_t next) {
    if (x->kind != STEP_kernel || x->prepare) return false;
    uint32_t from = param_of(x, now), to = param_of(x, next);
    return from < x->kernel->nparams && to < x->kernel->nparams &&
           schedule_in_place(x->kernel, from, to);
}

bool schedule_may_replace(const Schedule *s, const Span *of, uint32_t now, uint32_t next) {
    const SBuffer *a = &s->buffers.v[now], *b = &s->buffers.v[next];
    if (b->kind != BUF_temp || b->alias || a->dtype != b->dtype || a->numel != b->numel)
        return false;
    const Span read = of[schedule_owner(s, now)], made = of[next];
    if (made.first > made.last) return false;
    return read.first > read.last || read.last < made.first ||
           (read.last == made.first && same_elements(&s->steps.v[made.first], now, next));
}

/* The copies of the loop that begins at step t, from the last one on; `gone`: by step. */
static void spare_copies(Fuse *f, Schedule *s, uint32_t t, Span *of, bool *gone) {
    const uint32_t end = s->steps.v[t].match;
    uint32_t copies = end;
    while (s->steps.v[copies - 1].carry) copies--;
    if (copies == end) return;
    for (uint32_t i = copies; i < end; i++)
        of[s->steps.v[i].bufs[1]] = of[s->steps.v[i].bufs[0]] = (Span){UINT32_MAX, 0};
    schedule_spans(s, t + 1, copies, of);
    for (uint32_t i = copies; i < end; i++) {
        const uint32_t next = s->steps.v[i].bufs[0], now = s->steps.v[i].bufs[1];
        SBuffer *b = &s->buffers.v[next];
        Fuse body = *f;
        body.g = b->graph;
        if (!schedule_may_replace(s, of, now, next) ||
            !fuse_may(&body, b->node, "stored over the carried value that it replaces"))
            continue;
        b->alias = now + 1;
        b->alias_offset = expr_const(f->p, 0);
        gone[i] = true;
    }
}

void schedule_drop(Fuse *f, Schedule *s, const bool *gone) {
    const uint32_t n = s->steps.n;
    uint32_t at = 0, *to = ARENA_ARRAY(f->arena, uint32_t, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        to[i] = at;
        if (!gone[i]) s->steps.v[at++] = s->steps.v[i];
    }
    to[n] = s->steps.n = at;
    for (uint32_t i = 0; i < at; i++)
        if (s->steps.v[i].kind != STEP_kernel) s->steps.v[i].match = to[s->steps.v[i].match];
    for (uint32_t i = 0; i < s->ends.n; i++) s->ends.v[i] = to[s->ends.v[i]];
    for (uint32_t i = 0; i < s->refusals.n; i++) {
        s->refusals.v[i].producer = to[s->refusals.v[i].producer];
        s->refusals.v[i].consumer = to[s->refusals.v[i].consumer];
    }
}

void fuse_carries(Fuse *f, Schedule *s) {
    Span *of = ARENA_ARRAY(f->arena, Span, s->buffers.n);
    bool *gone = ARENA_ARRAY(f->arena, bool, s->steps.n);
    for (uint32_t t = s->steps.n; t-- > 0;) /* inner loops come after the outer ones' begin */
        if (s->steps.v[t].kind == STEP_loop_begin) spare_copies(f, s, t, of, gone);
    schedule_drop(f, s, gone);
}
