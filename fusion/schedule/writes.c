/* The next value of a state is stored over the present one where nobody needs that any more;
 * otherwise a copy behind all other steps of the graph puts it there.
 *
 * Needs all steps of the graph but these copies. Keeps: until then, whoever reads the state sees
 * what it held before the run. */
#include "fusion/schedule/stage.h"
#include "fusion/analyse/facts.h"
#include "fusion/body/buffers.h"
#include "fusion/special/small.h"

/* The steps that use a buffer; all of the loop where one inside does. */
typedef struct Span {
    uint32_t first, last; /* first > last: none */
} Span;

typedef struct Spans {
    Span *of;
    uint32_t begin, end; /* of the outermost loop around the step at hand, or the step */
} Spans;

static void widen(Schedule *s, uint32_t t, uint32_t buf, bool written, void *ctx) {
    Spans *x = ctx;
    Span *b = &x->of[buf];
    (void)s, (void)t, (void)written;
    if (x->begin < b->first) b->first = x->begin;
    if (x->end > b->last) b->last = x->end;
}

static Span *find_spans(Fuse *f) {
    Schedule *s = f->s;
    Spans x = {.of = ARENA_ARRAY(f->arena, Span, s->buffers.n)};
    uint32_t inside = 0; /* steps before this one are of a loop */
    for (uint32_t i = 0; i < s->buffers.n; i++) x.of[i].first = UINT32_MAX;
    for (uint32_t t = 0; t < s->steps.n; t++) {
        if (t >= inside) x.begin = x.end = t;
        if (t >= inside && s->steps.v[t].kind == STEP_loop_begin) {
            x.end = s->steps.v[t].match;
            inside = x.end + 1;
        }
        schedule_each_use(s, t, widen, &x);
    }
    return x.of;
}

static uint32_t param_of(const SStep *x, uint32_t buf) {
    uint32_t i = 0;
    while (i < x->kernel->nparams && x->bufs[i] != buf) i++;
    return i;
}

/* Both used first and last by this step, element by element. */
static bool same_elements(const SStep *x, uint32_t state, uint32_t next) {
    if (x->kind != STEP_kernel || x->prepare) return false;
    uint32_t from = param_of(x, state), to = param_of(x, next);
    return from < x->kernel->nparams && to < x->kernel->nparams &&
           schedule_in_place(x->kernel, from, to);
}

static bool may_replace(Fuse *f, const Span *span, uint32_t state, uint32_t next) {
    const SBuffer *a = &f->s->buffers.v[state], *b = &f->s->buffers.v[next];
    if (b->kind != BUF_temp || b->alias || a->dtype != b->dtype || a->numel != b->numel)
        return false;
    const Span read = span[state], made = span[next];
    if (made.first > made.last) return false;
    bool free = read.first > read.last || read.last < made.first;
    if (!free &&
        (read.last > made.first || !same_elements(&f->s->steps.v[made.first], state, next)))
        return false;
    return fuse_may(f, b->node, "stored over the state whose next value it is");
}

static void copy_grown(Fuse *f, const StateInfo *s, Value v, uint32_t from, uint32_t to) {
    const Type *t = graph_type(f->g, v);
    Expr shape[3] = {expr_const(f->p, 1), t->dim[s->grows - 1], expr_const(f->p, 1)};
    for (uint32_t d = 0; d < t->rank; d++) {
        Expr *e = d + 1 < s->grows ? &shape[0] : &shape[2];
        if (d + 1 != s->grows) *e = expr_mul(f->p, *e, t->dim[d]);
    }
    small_copy_rows(f, from, to, shape, s->room);
}

void fuse_writes(Fuse *f) {
    if (!f->g->writes.n) return;
    const Span *span = find_spans(f);
    for (uint32_t i = 0; i < f->g->writes.n; i++) {
        const StateWrite *w = &f->g->writes.v[i];
        const StateInfo *s = &f->g->states.v[w->state];
        if (!fuse_wants(f, w->entries) || f->fact[w->value].grows == w->state + 1) continue;
        uint32_t state = fuse_buffer_of(f, f->g->states.v[w->state].value);
        if (w->value == f->g->states.v[w->state].value) continue; /* it stays as it is */
        uint32_t next = f->next_buf[i] ? f->next_buf[i] - 1 : fuse_buffer_of(f, w->value);
        if (s->grows) {
            copy_grown(f, s, w->value, next, state);
        } else if (may_replace(f, span, state, next)) {
            f->s->buffers.v[next].alias = state + 1;
            f->s->buffers.v[next].alias_offset = expr_const(f->p, 0);
        } else {
            small_copy(f, next, state, "write");
        }
    }
}
