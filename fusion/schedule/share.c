/* Entries are scheduled one after the other, each with the constants and prepare steps that it
 * needs. Here equal ones become one, so that weights are loaded and prepared once for all entries.
 *
 * Needs all steps, prepare steps where they were made. Keeps their order. */
#include "fusion/kir/kir_set.h"
#include "fusion/schedule/stage.h"
#include <string.h>

typedef struct Share {
    Schedule *s;
    Arena *arena;
    uint32_t *buffer; /* the one that stands for each */
    uint32_t *step;
    MapU64 *constants, *prepared; /* by hash; collisions go to the next key */
    KirSet *kernels;
    uint32_t *number; /* of prepare steps' kernels */
} Share;

static const Constant *constant_of(const SBuffer *b) {
    return &graph_node(b->graph, b->node)->attr.constant;
}

/* By their place in memory: an entry's graph may be a copy of another's. */
static void share_constants(Share *x) {
    for (uint32_t i = 0; i < x->s->buffers.n; i++) {
        const SBuffer *b = &x->s->buffers.v[i];
        x->buffer[i] = i;
        if (b->kind != BUF_const) continue;
        const Constant *c = constant_of(b);
        uint64_t key[] = {(uintptr_t)c->data, c->bytes, b->dtype},
                 h = hash_bytes(key, sizeof key, 1);
        uint32_t first;
        for (; map_get(x->constants, h, &first); h++) {
            const SBuffer *o = &x->s->buffers.v[first];
            const Constant *d = constant_of(o);
            if (d->data == c->data && d->bytes == c->bytes && o->dtype == b->dtype) break;
        }
        if (map_get(x->constants, h, &first))
            x->buffer[i] = first;
        else
            map_put(x->constants, h, i);
    }
}

static void use_shared(const Share *x, SStep *t) {
    for (uint32_t i = 0; t->kernel && i < t->kernel->nparams; i++)
        t->bufs[i] = x->buffer[t->bufs[i]];
    if (t->trip_buf) t->trip_buf = x->buffer[t->trip_buf - 1] + 1;
    if (t->cond_buf) t->cond_buf = x->buffer[t->cond_buf - 1] + 1;
}

/* The same kernel over the same buffers, but for those that it writes. */
static bool prepares_same(const Share *x, uint32_t a, uint32_t b) {
    const SStep *s = &x->s->steps.v[a], *t = &x->s->steps.v[b];
    if (x->number[a] != x->number[b]) return false;
    for (uint32_t i = 0; i < s->kernel->nparams; i++)
        if (!s->kernel->params[i].written && s->bufs[i] != t->bufs[i]) return false;
    return true;
}

static uint64_t prepare_hash(const Share *x, uint32_t step) {
    const SStep *t = &x->s->steps.v[step];
    uint64_t h = x->number[step];
    for (uint32_t i = 0; i < t->kernel->nparams; i++)
        if (!t->kernel->params[i].written) h = hash_bytes(&t->bufs[i], sizeof t->bufs[i], h);
    return h;
}

/* What it writes is only complete when one step does all of it. */
static bool writes_anew(const Share *x, uint32_t step, const uint8_t *written) {
    const SStep *t = &x->s->steps.v[step];
    for (uint32_t i = 0; i < t->kernel->nparams; i++)
        if (t->kernel->params[i].written && written[t->bufs[i]] != 1) return false;
    return true;
}

static void share_step(Share *x, uint32_t step, const uint8_t *written) {
    SStep *t = &x->s->steps.v[step];
    use_shared(x, t);
    if (!t->prepare || !writes_anew(x, step, written)) return;
    x->number[step] = kir_set_add(x->kernels, t->kernel, x->s->exprs);
    uint64_t h = prepare_hash(x, step);
    uint32_t first;
    while (map_get(x->prepared, h, &first) && !prepares_same(x, first, step)) h++;
    if (!map_get(x->prepared, h, &first)) {
        map_put(x->prepared, h, step);
        return;
    }
    x->step[step] = first;
    for (uint32_t i = 0; i < t->kernel->nparams; i++)
        if (t->kernel->params[i].written) x->buffer[t->bufs[i]] = x->s->steps.v[first].bufs[i];
}

/* How many steps write each buffer. */
static uint8_t *count_writers(const Schedule *s, Arena *a) {
    uint8_t *written = ARENA_ARRAY(a, uint8_t, s->buffers.n);
    for (uint32_t i = 0; i < s->steps.n; i++) {
        const SStep *t = &s->steps.v[i];
        for (uint32_t k = 0; t->kernel && k < t->kernel->nparams; k++)
            if (t->kernel->params[k].written && written[t->bufs[k]] < 2) written[t->bufs[k]]++;
    }
    return written;
}

uint32_t *fuse_share(Schedule *s, Arena *a) {
    Share x = {.s = s, .arena = a, .constants = map_create(a), .prepared = map_create(a)};
    x.buffer = ARENA_ARRAY(a, uint32_t, s->buffers.n);
    x.step = ARENA_ARRAY(a, uint32_t, s->steps.n);
    x.number = ARENA_ARRAY(a, uint32_t, s->steps.n);
    x.kernels = kir_set(a);
    for (uint32_t i = 0; i < s->steps.n; i++) x.step[i] = i;
    if (s->ends.n == 1) return x.step;
    const uint8_t *written = count_writers(s, a);
    share_constants(&x);
    for (uint32_t i = 0; i < s->steps.n; i++) share_step(&x, i, written);
    return x.step;
}
