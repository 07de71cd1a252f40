/* One launch for small kernels that do the same over different buffers and do not wait for each
 * other: casts and updates of many weights, norms of their gradients. Their steps become one, whose
 * kernel does it several times (Kernel.more).
 *
 * Needs all steps, nothing overwritten in place so far. Keeps the order of any two steps that use
 * the same memory, unless both only read it, and how much is alive at a time at most. Leaves loops,
 * branches and what stands where a kernel finds out a size as they are. */
#include "fusion/analyse/facts.h"
#include "fusion/kir/kir_set.h"
#include "fusion/schedule/stage.h"
#include <string.h>

/* a kernel whose traffic takes longer than so many launches stays alone */
enum { MOST_LAUNCHES = 2 };

typedef struct Times {
    Fuse *f;
    Schedule *s;
    uint32_t *number;  /* by step: of its kernel, 0: it stays alone */
    uint32_t *owner;   /* by buffer: whose storage it uses */
    uint32_t lo, hi;   /* the steps in hand, without control */
    uint32_t from, to; /* between these the members can stand: before a step of [from, to] */
    uint32_t member[K_MAX_PARAMS], nmembers;
    double peak;   /* bytes alive at a time, at most */
    SStep *old;    /* the steps before, */
    uint32_t *now; /* ... and where what stood at one of them, or behind the last, begins */
} Times;

/* --- Which steps can stand together ----------------------------------------------------------- */

/* Rows that start at any element of a vector, and sums of columns beside them (columns.c): what
 * walks them does so once. */
static bool starts_anywhere(const Kernel *k, ExprPool *p) {
    uint32_t along = 0;
    int64_t n;
    for (KVal v = 1; v < k->nops; v++)
        if (k->ops[v].op == K_kreduce) along |= k->ops[v].axes;
    bool both = false;
    for (KVal v = 1; v < k->nops; v++) both |= k->ops[v].op == K_kreduce && along != k->ops[v].axes;
    return both && k->naxes == 3 && expr_is_const(p, k->axes[2].extent, &n) && n % K_EVEN;
}

static bool is_plain(const Kernel *k, ExprPool *p) {
    for (KVal v = 1; v < k->nops; v++)
        if (k->ops[v].op == K_katomic || k->ops[v].op == K_kcompact) return false;
    return k->tem == TEM_none && !k->serial && !k->more && !k->turns && !starts_anywhere(k, p);
}

static bool is_small(const Times *x, const Kernel *k) {
    const Machine *m = x->f->m;
    double bytes = fuse_hint(x->f, k->bytes_read) + fuse_hint(x->f, k->bytes_written);
    return bytes <= MOST_LAUNCHES * m->launch_s * m->bytes_per_s;
}

/* One of them writes what the other uses. */
static bool conflict(const Times *x, uint32_t a, uint32_t b) {
    const SStep *s = &x->s->steps.v[a], *t = &x->s->steps.v[b];
    for (uint32_t i = 0; i < s->kernel->nparams; i++)
        for (uint32_t j = 0; j < t->kernel->nparams; j++)
            if ((s->kernel->params[i].written || t->kernel->params[j].written) &&
                x->owner[s->bufs[i]] == x->owner[t->bufs[j]])
                return true;
    return false;
}

/* Narrows [from, to] to where step t can stand, too. False: there is no such place. */
static bool narrow(Times *x, uint32_t t) {
    uint32_t from = x->from, to = x->to;
    for (uint32_t i = 0; i < x->nmembers; i++)
        if (conflict(x, x->member[i], t)) return false;
    for (uint32_t i = t; i > from && from <= to; i--)
        if (conflict(x, i - 1, t)) from = i;
    for (uint32_t i = t + 1; i < to; i++)
        if (conflict(x, i, t)) to = i;
    if (from > to) return false;
    x->from = from, x->to = to;
    return true;
}

static void find_members(Times *x, uint32_t first) {
    const uint32_t each = x->s->steps.v[first].kernel->nparams;
    x->from = x->lo, x->to = x->hi, x->nmembers = 0;
    for (uint32_t t = first; t < x->hi && (x->nmembers + 1) * each <= K_MAX_PARAMS; t++)
        if (x->number[t] == x->number[first] && narrow(x, t)) x->member[x->nmembers++] = t;
}

/* With fewer members, where all of them can stand. */
static void drop_half(Times *x) {
    uint32_t n = x->nmembers / 2;
    x->from = x->lo, x->to = x->hi, x->nmembers = 0;
    for (uint32_t i = 0; i < n; i++)
        if (narrow(x, x->member[i])) x->nmembers++;
}

/* --- Their step ------------------------------------------------------------------------------- */

static SStep join(Times *x) {
    ExprPool *p = x->f->p;
    SStep s = x->s->steps.v[x->member[0]];
    const Kernel *one = s.kernel;
    const uint32_t each = one->nparams, n = x->nmembers;
    Kernel *k = arena_copy(x->f->arena, one, sizeof *one);
    k->more = n - 1;
    k->nparams = n * each;
    k->params = ARENA_ARRAY(x->f->arena, KParam, k->nparams);
    s.bufs = ARENA_ARRAY(x->f->arena, uint32_t, k->nparams);
    for (uint32_t i = 0; i < n; i++) {
        const SStep *t = &x->s->steps.v[x->member[i]];
        for (uint32_t b = 0; b < each; b++) {
            k->params[i * each + b] = one->params[b];
            s.bufs[i * each + b] = t->bufs[b];
        }
        if (i) schedule_add_places(x->f->arena, k, t->kernel);
    }
    k->bytes_read = expr_muli(p, one->bytes_read, n);
    k->bytes_written = expr_muli(p, one->bytes_written, n);
    k->flops = expr_muli(p, one->flops, n);
    s.kernel = k;
    return s;
}

/* What the members did is done by step `put`. */
static void renumber(const Times *x, uint32_t steps, uint32_t put) {
    Schedule *s = x->s;
    uint32_t *did = arena_copy(x->f->arena, x->now, steps * sizeof *did);
    for (uint32_t i = 0; i < x->nmembers; i++) did[x->member[i]] = put;
    uint32_t *was = arena_copy(x->f->arena, x->number, steps * sizeof *was);
    for (uint32_t i = 0; i < steps; i++) x->number[did[i]] = was[i];
    x->number[put] = 0;
    for (uint32_t i = 0; i < s->steps.n; i++)
        if (s->steps.v[i].kind != STEP_kernel) s->steps.v[i].match = x->now[s->steps.v[i].match];
    for (uint32_t i = 0; i < s->ends.n; i++) s->ends.v[i] = x->now[s->ends.v[i]];
    for (uint32_t i = 0; i < s->refusals.n; i++) {
        s->refusals.v[i].producer = did[s->refusals.v[i].producer];
        s->refusals.v[i].consumer = did[s->refusals.v[i].consumer];
    }
}

/* As late as all of them can stand, one step in place of all. Gives its number. */
static uint32_t place(Times *x, SStep all) {
    Schedule *s = x->s;
    uint32_t n = s->steps.n, at = 0, next = 0, put = 0;
    for (uint32_t i = 0; i <= n; i++) {
        if (i == x->to) put = at, s->steps.v[at++] = all;
        x->now[i] = at;
        if (next < x->nmembers && i == x->member[next])
            next++;
        else if (i < n)
            s->steps.v[at++] = x->old[i];
    }
    s->steps.n = at;
    return put;
}

/* --- What is alive ---------------------------------------------------------------------------- */

static double most_alive(const Times *x) {
    Schedule *s = x->s;
    double *change = ARENA_ARRAY(x->f->arena, double, s->steps.n + 1), now = 0, most = 0;
    schedule_lifetimes(s, x->f->arena);
    for (uint32_t i = 0; i < s->buffers.n; i++) {
        const SBuffer *b = &s->buffers.v[i];
        if (b->kind != BUF_temp || b->alias || !schedule_used(b)) continue;
        double bytes = fuse_hint(x->f, b->numel) * (double)dtype_bytes(b->dtype);
        change[b->first] += bytes;
        change[b->last + 1] -= bytes;
    }
    for (uint32_t i = 0; i < s->steps.n; i++) {
        now += change[i];
        if (now > most) most = now;
    }
    return most;
}

/* --- The stage -------------------------------------------------------------------------------- */

/* What it computes last. */
static Value node_of(const Times *x, const Kernel *k) {
    for (KVal v = k->nops; v-- > 1;)
        if (k->ops[v].node && k->ops[v].node < x->f->g->nodes.n) return k->ops[v].node;
    return 0;
}

/* The members' step is in their place, unless more would be alive then. */
static bool join_members(Times *x) {
    Schedule *s = x->s;
    const uint32_t n = s->steps.n;
    memcpy(x->old, s->steps.v, n * sizeof *x->old);
    const Value node = node_of(x, x->old[x->member[0]].kernel);
    uint32_t put = place(x, join(x));
    bool more = most_alive(x) > x->peak;
    if (more || (node && !fuse_may(x->f, node, "computed beside others in one launch"))) {
        memcpy(s->steps.v, x->old, n * sizeof *x->old);
        s->steps.n = n;
        return false;
    }
    renumber(x, n, put);
    x->hi -= x->nmembers - 1;
    return true;
}

/* In what stands between lo and hi. Gives the new hi. */
static uint32_t join_steps(Times *x, uint32_t lo, uint32_t hi) {
    x->lo = lo, x->hi = hi;
    for (uint32_t first = lo; first < x->hi;) {
        bool joined = false;
        if (x->number[first]) find_members(x, first);
        while (x->number[first] && !joined && x->nmembers > 1)
            if (!(joined = join_members(x))) drop_half(x);
        if (!joined) first++;
    }
    return x->hi;
}

static bool is_kernel(const Schedule *s, uint32_t t) {
    return s->steps.v[t].kind == STEP_kernel && !s->steps.v[t].prepare;
}

static bool finds_size(const Kernel *k) {
    for (KVal v = 1; v < k->nops; v++)
        if (k->ops[v].op == K_kcompact) return true;
    return false;
}

static void find_kernels(Times *x) {
    Schedule *s = x->s;
    KirSet *set = kir_set(x->f->arena);
    for (uint32_t i = 0; i < s->buffers.n; i++) {
        x->owner[i] = i;
        while (s->buffers.v[x->owner[i]].alias) x->owner[i] = s->buffers.v[x->owner[i]].alias - 1;
    }
    for (uint32_t i = 0; i < s->steps.n; i++) {
        const Kernel *k = s->steps.v[i].kernel;
        if (is_kernel(s, i) && is_plain(k, s->graph->exprs) && is_small(x, k))
            x->number[i] = kir_set_add(set, k, x->f->p);
    }
}

void fuse_times(Fuse *f, Schedule *s) {
    Times x = {.f = f, .s = s};
    if (!f->m->repeats) return;
    x.number = ARENA_ARRAY(f->arena, uint32_t, s->steps.n + 1);
    x.now = ARENA_ARRAY(f->arena, uint32_t, s->steps.n + 1);
    x.old = ARENA_ARRAY(f->arena, SStep, s->steps.n);
    x.owner = ARENA_ARRAY(f->arena, uint32_t, s->buffers.n);
    find_kernels(&x);
    x.peak = most_alive(&x);
    for (uint32_t e = 0, lo = 0; e < s->ends.n; e++)
        while (lo < s->ends.v[e]) {
            uint32_t hi = lo;
            bool sizes = false;
            for (; hi < s->ends.v[e] && is_kernel(s, hi); hi++)
                sizes |= finds_size(s->steps.v[hi].kernel);
            lo = sizes ? hi : join_steps(&x, lo, hi);
            if (lo < s->ends.v[e]) lo++; /* control */
        }
}
