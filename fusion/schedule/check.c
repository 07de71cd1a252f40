/* Every buffer that a step reads holds something by then: what the model, the session or an earlier
 * step put there. Kernels of which one waits for another in a circle cannot stand in an order that
 * keeps this, so that a plan of such is never written.
 *
 * Needs all steps of all entries; parts of a concatenation and the next values of states lie in
 * their buffers, nothing is overwritten in place so far. */
#include "fusion/analyse/facts.h"
#include "fusion/schedule/stage.h"

typedef struct Written {
    Fuse *f;
    bool *whole; /* by buffer: something was stored into it by its own number, */
    bool *some;  /* or into what lies in it */
    graphc_status status;
} Written;

static bool is_given(const SBuffer *b) {
    return b->kind == BUF_input || b->kind == BUF_const || b->kind == BUF_state;
}

static bool holds(const Written *w, uint32_t buf) {
    const SBuffer *b = &w->f->s->buffers.v[buf];
    bool has = w->some[buf] || is_given(b);
    for (; !has && b->alias; b = &w->f->s->buffers.v[b->alias - 1]) has = w->whole[b->alias - 1];
    return has;
}

static void note_written(Schedule *s, uint32_t t, uint32_t buf, bool written, void *ctx) {
    Written *w = ctx;
    (void)t;
    if (!written) return;
    w->whole[buf] = w->some[buf] = true;
    for (uint32_t b = s->buffers.v[buf].alias; b; b = s->buffers.v[b - 1].alias)
        w->some[b - 1] = true;
}

/* What is stored only is not asked for. */
static bool reads(const SStep *x, uint32_t buf) {
    for (uint32_t i = 1; x->kernel && i < x->kernel->nops; i++) {
        const KOp *o = &x->kernel->ops[i];
        if ((o->op == K_kload || o->op == K_katomic) && x->bufs[o->buf] == buf) return true;
    }
    return false;
}

static void check_read(Schedule *s, uint32_t t, uint32_t buf, bool written, void *ctx) {
    Written *w = ctx;
    const SStep *x = &s->steps.v[t];
    if (w->status != GRAPHC_OK || holds(w, buf) || (written && !reads(x, buf))) return;
    w->status = diag(w->f->diags, D_VERIFY, x->kernel ? x->kernel->name : "step",
                     "step %u reads buffer %u, %%%u, into which nothing was stored by then", t, buf,
                     s->buffers.v[buf].node);
}

graphc_status fuse_check_order(Fuse *f) {
    Schedule *s = f->s;
    Written w = {f, ARENA_ARRAY(f->arena, bool, s->buffers.n),
                 ARENA_ARRAY(f->arena, bool, s->buffers.n), GRAPHC_OK};
    uint32_t entry = 0;
    for (uint32_t t = 0; t < s->steps.n && w.status == GRAPHC_OK; t++) {
        bool next = entry < s->ends.n && s->ends.v[entry] == t;
        while (entry < s->ends.n && s->ends.v[entry] == t) entry++;
        for (uint32_t i = 0; next && i < s->buffers.n; i++) /* entries run in any order */
            if (s->buffers.v[i].kind != BUF_prepared) w.whole[i] = w.some[i] = false;
        schedule_each_use(s, t, check_read, &w);
        schedule_each_use(s, t, note_written, &w);
    }
    return w.status;
}
