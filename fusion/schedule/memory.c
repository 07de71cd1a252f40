/* How long buffers live, and which share storage. */
#include "fusion/analyse/facts.h"
#include "fusion/schedule/stage.h"

static void note_use(SBuffer *b, uint32_t t) {
    if (b->first > t) b->first = t;
    if (b->last < t) b->last = t;
}

/* What is used both in a loop and outside of it lives throughout the loop. */
static void widen(Schedule *s, uint32_t begin, uint32_t end) {
    for (uint32_t i = 0; i < s->buffers.n; i++) {
        SBuffer *b = &s->buffers.v[i];
        bool touches = b->first <= end && b->last >= begin;
        if (!touches || (b->first >= begin && b->last <= end)) continue;
        note_use(b, begin);
        note_use(b, end);
    }
}

static void find_lifetimes(Schedule *s) {
    for (uint32_t i = 0; i < s->buffers.n; i++) s->buffers.v[i].first = UINT32_MAX;
    for (uint32_t t = 0; t < s->steps.n; t++) {
        const SStep *x = &s->steps.v[t];
        for (uint32_t i = 0; x->kernel && i < x->kernel->nparams; i++)
            note_use(&s->buffers.v[x->bufs[i]], t);
        if (x->cond_buf) note_use(&s->buffers.v[x->cond_buf - 1], t);
        if (x->trip_buf) note_use(&s->buffers.v[x->trip_buf - 1], t);
    }
    for (uint32_t t = s->steps.n; t-- > 0;)
        if (s->steps.v[t].kind == STEP_loop_begin) widen(s, t, s->steps.v[t].match);
    for (uint32_t i = 0; i < s->buffers.n; i++)
        if (s->buffers.v[i].first == UINT32_MAX) s->buffers.v[i].first = 0;
}

/* The kernel touches param `from` only where it stores to param `to`, and before it does. */
static bool same_places(const Kernel *k, uint32_t from, uint32_t to) {
    Expr at = 0;
    uint32_t store = 0;
    for (uint32_t i = 1; i < k->nops; i++) {
        const KOp *o = &k->ops[i];
        if (o->op == K_katomic || o->op == K_kcompact) return false;
        if (o->op != K_kstore || o->buf != to) continue;
        if (at || o->mask) return false;
        at = o->index;
        store = i;
    }
    for (uint32_t i = 1; i < k->nops && at; i++) {
        const KOp *o = &k->ops[i];
        if (o->op != K_kload || o->buf != from) continue;
        if (o->index != at || o->mask || i > store) return false;
    }
    return at != 0;
}

static bool takes_over(const Schedule *s, uint32_t t, uint32_t from, uint32_t to) {
    const SStep *x = &s->steps.v[t];
    const Kernel *k = x->kernel;
    const SBuffer *a = &s->buffers.v[x->bufs[from]], *b = &s->buffers.v[x->bufs[to]];
    if (k->params[from].written || !k->params[to].written) return false;
    if (a->kind != BUF_temp || b->kind != BUF_temp || b->alias || b->first != t) return false;
    if (dtype_bytes(a->dtype) != dtype_bytes(b->dtype) || a->numel != b->numel) return false;
    return a->last == t && same_places(k, from, to);
}

/* The buffer at the end of an alias chain owns the storage; its life covers all of them. */
static uint32_t owner(const Schedule *s, uint32_t b) {
    while (s->buffers.v[b].alias) b = s->buffers.v[b].alias - 1;
    return b;
}

static void in_place(Fuse *f, uint32_t t) {
    Schedule *s = f->s;
    const SStep *x = &s->steps.v[t];
    const Kernel *k = x->kernel;
    if (x->prepare || !(k->kind == KERNEL_poi || k->tem == TEM_dot) || k->serial) return;
    bool taken[K_MAX_PARAMS] = {false};
    for (uint32_t to = 0; to < k->nparams; to++)
        for (uint32_t from = 0; from < k->nparams; from++) {
            if (taken[from] || !takes_over(s, t, from, to)) continue;
            uint32_t root = owner(s, x->bufs[from]);
            SBuffer *b = &s->buffers.v[x->bufs[to]];
            if (s->buffers.v[root].last > t) continue;
            if (!fuse_may(f, b->node, "stored over what its kernel reads")) continue;
            taken[from] = true;
            b->alias = root + 1;
            b->alias_offset = expr_const(f->p, 0);
            if (b->last > s->buffers.v[root].last) s->buffers.v[root].last = b->last;
            break;
        }
}

void fuse_lifetimes(Fuse *f) {
    find_lifetimes(f->s);
    for (uint32_t t = 0; t < f->s->steps.n; t++)
        if (f->s->steps.v[t].kind == STEP_kernel) in_place(f, t);
}
