/* How long buffers live, and which share storage. */
#include "fusion/analyse/facts.h"
#include "fusion/schedule/stage.h"

uint32_t schedule_owner(const Schedule *s, uint32_t b) {
    while (s->buffers.v[b].alias) b = s->buffers.v[b].alias - 1;
    return b;
}

static void live(SBuffer *b, uint32_t t) {
    if (t < b->first) b->first = t;
    if (t > b->last) b->last = t;
}

void schedule_each_use(Schedule *s, uint32_t t, UseFn *fn, void *ctx) {
    const SStep *x = &s->steps.v[t];
    if (x->trip_buf) fn(s, t, x->trip_buf - 1, false, ctx);
    if (x->cond_buf) fn(s, t, x->cond_buf - 1, false, ctx);
    for (uint32_t i = 0; x->kernel && i < x->kernel->nparams; i++)
        fn(s, t, x->bufs[i], x->kernel->params[i].written, ctx);
}

static void note_use(Schedule *s, uint32_t t, uint32_t buf, bool written, void *ctx) {
    (void)written, (void)ctx;
    live(&s->buffers.v[buf], t);
    live(&s->buffers.v[schedule_owner(s, buf)], t);
}

typedef struct LoopUse {
    uint32_t begin, end;
    uint8_t *seen; /* per buffer */
} LoopUse;

/* A buffer used in a loop keeps its own lifetime only when the loop alone uses it and each
 * iteration writes it before reading it; else it must survive from one iteration to the next. */
static void widen_use(Schedule *s, uint32_t t, uint32_t buf, bool written, void *ctx) {
    LoopUse *l = ctx;
    uint32_t both[2] = {buf, schedule_owner(s, buf)};
    (void)t;
    for (int i = 0; i < 2; i++) {
        SBuffer *b = &s->buffers.v[both[i]];
        bool inside = b->first >= l->begin && b->last <= l->end;
        if (!inside || (!l->seen[both[i]] && !written)) {
            live(b, l->begin);
            live(b, l->end);
        }
        l->seen[both[i]] = 1;
    }
}

void schedule_lifetimes(Schedule *s, Arena *a) {
    uint32_t nb = s->buffers.n, ns = s->steps.n;
    for (uint32_t i = 0; i < nb; i++) {
        s->buffers.v[i].first = UINT32_MAX;
        s->buffers.v[i].last = 0;
    }
    for (uint32_t t = 0; t < ns; t++) schedule_each_use(s, t, note_use, NULL);
    for (uint32_t i = 0; i < nb; i++) { /* outputs outlive the run */
        if (s->buffers.v[i].kind != BUF_output || !schedule_used(&s->buffers.v[i])) continue;
        live(&s->buffers.v[i], ns - 1);
        live(&s->buffers.v[schedule_owner(s, i)], ns - 1);
    }
    for (uint32_t t = ns; t-- > 0;) { /* inner loops come after the outer ones' begin */
        if (s->steps.v[t].kind != STEP_loop_begin) continue;
        LoopUse l = {t, s->steps.v[t].match, arena_alloc(a, nb)};
        for (uint32_t i = l.begin; i <= l.end; i++) schedule_each_use(s, i, widen_use, &l);
    }
}

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

bool schedule_in_place(const Kernel *k, uint32_t from, uint32_t to) {
    if (k->more || k->turns) return false; /* another time may read it */
    bool element = k->kind == KERNEL_poi || k->tem == TEM_dot;
    return element && !k->serial && !k->params[from].written && k->params[to].written &&
           same_places(k, from, to);
}

static bool takes_over(const Schedule *s, uint32_t t, uint32_t from, uint32_t to) {
    const SStep *x = &s->steps.v[t];
    const SBuffer *a = &s->buffers.v[x->bufs[from]], *b = &s->buffers.v[x->bufs[to]];
    if (a->kind != BUF_temp || b->kind != BUF_temp || b->alias || b->first != t) return false;
    if (dtype_bytes(a->dtype) != dtype_bytes(b->dtype) || a->numel != b->numel) return false;
    return a->last == t && schedule_in_place(x->kernel, from, to);
}

static void in_place(Fuse *f, uint32_t t) {
    Schedule *s = f->s;
    const SStep *x = &s->steps.v[t];
    const Kernel *k = x->kernel;
    if (x->prepare) return;
    bool taken[K_MAX_PARAMS] = {false};
    for (uint32_t to = 0; to < k->nparams; to++)
        for (uint32_t from = 0; from < k->nparams; from++) {
            if (taken[from] || !takes_over(s, t, from, to)) continue;
            uint32_t root = schedule_owner(s, x->bufs[from]);
            SBuffer *b = &s->buffers.v[x->bufs[to]];
            if (s->buffers.v[root].last > t || s->buffers.v[root].kind != BUF_temp) continue;
            if (!fuse_may(f, b->node, "stored over what its kernel reads")) continue;
            taken[from] = true;
            b->alias = x->bufs[from] + 1;
            b->alias_offset = expr_const(f->p, 0);
            live(&s->buffers.v[root], b->last);
            break;
        }
}

void fuse_lifetimes(Fuse *f) {
    schedule_lifetimes(f->s, f->arena);
    for (uint32_t t = 0; t < f->s->steps.n; t++)
        if (f->s->steps.v[t].kind == STEP_kernel) in_place(f, t);
}
