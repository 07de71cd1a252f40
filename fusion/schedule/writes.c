/* The next value of a state is stored over the present one where nobody needs that any more;
 * otherwise a copy behind all other steps of the graph puts it there.
 *
 * Needs all steps of the graph but these copies. Keeps: until then, whoever reads the state sees
 * what it held before the run. */
#include "fusion/schedule/stage.h"
#include "fusion/analyse/facts.h"
#include "fusion/body/buffers.h"
#include "fusion/special/small.h"

static Span *find_spans(Fuse *f) {
    Span *of = ARENA_ARRAY(f->arena, Span, f->s->buffers.n);
    for (uint32_t i = 0; i < f->s->buffers.n; i++) of[i].first = UINT32_MAX;
    schedule_spans(f->s, 0, f->s->steps.n, of);
    return of;
}

static bool may_replace(Fuse *f, const Span *span, uint32_t state, uint32_t next) {
    const SBuffer *b = &f->s->buffers.v[next];
    return schedule_may_replace(f->s, span, state, next) &&
           fuse_may(f, b->node, "stored over the state whose next value it is");
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
