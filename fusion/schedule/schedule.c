/* The stages in order, from graph to schedule. */
#include "fusion/schedule/stage.h"
#include "fusion/analyse/facts.h"
#include "fusion/body/buffers.h"
#include "fusion/body/body.h"
#include "fusion/special/special.h"
#include <stdlib.h>

const char *const fusion_why_text[WHY_COUNT] = {
#define X(id, text, change) [WHY_##id] = text,
    FUSION_WHY(X)
#undef X
};
const char *const fusion_why_change[WHY_COUNT] = {
#define X(id, text, change) [WHY_##id] = change,
    FUSION_WHY(X)
#undef X
};

/* --- Order -------------------------------------------------------------------------------- */

typedef struct Order {
    Fuse *f;
    VEC(Group *) out;
    uint8_t *state; /* 0 new, 1 open, 2 done */
    Value *rank;    /* of each group, 0: not known yet */
} Order;

static bool is_fold(const Fuse *f, Value v) {
    OpClass c = op_info[graph_node(f->g, v)->op].cls;
    return c == OPC_CONTRACT || c == OPC_REDUCE || c == OPC_COMPOSITE;
}

/* It leaves little behind, or what has its place already: numbers, statistics, states. */
static bool leaves_little(const Fuse *f, const Group *g) {
    for (uint32_t i = 0; i < g->roots.n; i++) {
        const Value v = g->roots.v[i].v;
        if (!f->fact[v].written && !f->fact[v].stat && fuse_numel(f, v) > 1) return false;
    }
    return true;
}

/* Where a group stands in the graph: its contraction or first fold, since what they read may be
 * much and is done with then; else its last root. 0: anywhere. */
static Value place_in_graph(const Fuse *f, const Group *g) {
    Value fold = g->anchor, last = 0;
    if (leaves_little(f, g)) return 0;
    for (uint32_t i = 0; i < g->inlined.n && !g->anchor; i++)
        if (is_fold(f, g->inlined.v[i])) fold = g->inlined.v[i]; /* the latest comes first */
    for (uint32_t i = 0; i < g->roots.n; i++)
        if (g->roots.v[i].v > last) last = g->roots.v[i].v;
    return fold ? fold : last;
}

/* ... or behind the groups that it waits for. */
static Value rank_of(Order *o, const Group *g) {
    Value *rank = &o->rank[g->id];
    if (*rank) return *rank;
    Value most = place_in_graph(o->f, g);
    for (uint32_t i = 0; i < g->deps.n; i++) {
        Value of = rank_of(o, o->f->groups.v[g->deps.v[i]]);
        if (of > most) most = of;
    }
    return *rank = most ? most : 1;
}

typedef struct Ranked {
    Value rank;
    Group *g;
} Ranked;

static int by_rank(const void *a, const void *b) {
    const Ranked *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->g->id < y->g->id) - (x->g->id > y->g->id);
}

static void place(Order *o, Group *g) {
    if (o->state[g->id]) return;
    o->state[g->id] = 1;
    for (uint32_t i = 0; i < g->deps.n; i++) place(o, o->f->groups.v[g->deps.v[i]]);
    o->state[g->id] = 2;
    if (g->kind != GROUP_join && g->roots.n) vec_push(o->f->arena, &o->out, g);
}

/* Steps follow the graph's order as far as dependencies allow. */
static void order_groups(Fuse *f, Order *o) {
    uint32_t n = f->groups.n;
    Ranked *r = ARENA_ARRAY(f->arena, Ranked, n);
    *o = (Order){.f = f,
                 .state = ARENA_ARRAY(f->arena, uint8_t, n),
                 .rank = ARENA_ARRAY(f->arena, Value, n)};
    for (uint32_t i = 0; i < n; i++) r[i] = (Ranked){rank_of(o, f->groups.v[i]), f->groups.v[i]};
    if (n) qsort(r, n, sizeof *r, by_rank);
    for (uint32_t i = 0; i < n; i++)
        if (r[i].g->prepare) place(o, r[i].g);
    for (uint32_t i = 0; i < n; i++) place(o, r[i].g);
}

static graphc_status emit_steps(Fuse *f) {
    Order o;
    order_groups(f, &o);
    for (uint32_t i = 0; i < o.out.n; i++) {
        Group *g = o.out.v[i];
        if (f->kinds[g->kind].emit) {
            GC_TRY(f->kinds[g->kind].emit(f, g));
            continue;
        }
        fuse_lower(f, g);
        g->kernel->name = fuse_kernel_name(f, g, g->kernel,
                                           g->prepare ? f->count->prepared++ : f->count->kernels++);
        if (g->prepare) g->kernel->name = arena_printf(f->arena, "prepare_%s", g->kernel->name);
        SStep s = {
            .kind = STEP_kernel, .prepare = g->prepare, .kernel = g->kernel, .bufs = g->bufs};
        g->step = f->s->steps.n;
        vec_push(f->arena, &f->s->steps, s);
    }
    return GRAPHC_OK;
}

/* Bodies and entries leave their prepare steps where they stand; all of them run first. of[i]: the
 * step that stands for i, earlier or i itself. */
static void hoist_prepare(Schedule *s, const uint32_t *of, Arena *a) {
    uint32_t n = s->steps.n, at = 0;
    uint32_t *to = ARENA_ARRAY(a, uint32_t, n);
    SStep *old = arena_copy(a, s->steps.v, n * sizeof *old);
    for (int prepare = 1; prepare >= 0; prepare--)
        for (uint32_t i = 0, e = 0; i <= n; i++) {
            while (!prepare && e < s->ends.n && s->ends.v[e] == i) s->ends.v[e++] = at;
            if (i == n || old[i].prepare != (prepare != 0)) continue;
            to[i] = of[i] == i ? at++ : to[of[i]];
        }
    s->steps.n = at;
    for (uint32_t i = 0; i < n; i++) {
        if (old[i].kind != STEP_kernel) old[i].match = to[old[i].match];
        if (of[i] == i) s->steps.v[to[i]] = old[i];
    }
    for (uint32_t i = 0; i < s->refusals.n; i++) {
        Refusal *r = &s->refusals.v[i];
        r->producer = to[r->producer];
        r->consumer = to[r->consumer];
    }
}

/* --- The stages --------------------------------------------------------------------------- */

static graphc_status verify(Fuse *f) {
    for (uint32_t i = 0; i < f->s->steps.n; i++)
        if (f->s->steps.v[i].kind == STEP_kernel)
            GC_TRY(kir_verify(f->s->steps.v[i].kernel, f->p, f->diags));
    return GRAPHC_OK;
}

/* Appends the graph's steps, buffers and refusals to the schedule, by all stages in turn. */
static graphc_status run_stages(Fuse *f) {
    const FuseLimit before = f->count->limit;
    do {
        f->count->limit = before;
        fuse_analyse(f);
        group_begin(f);
    } while (!fuse_find_attention(f) || !fuse_group(f));
    fuse_buffers(f);
    GC_TRY(emit_steps(f));
    fuse_writes(f);
    fuse_explain(f);
    return GRAPHC_OK;
}

graphc_status schedule_build(const Graph *g, const Machine *m, uint32_t fuse_at_most, Arena *a,
                             Schedule **out) {
    Schedule *s = ARENA_NEW(a, Schedule);
    s->graph = g;
    s->exprs = g->exprs;
    s->machine = m;
    FuseCount count = {.limit = {.at_most = fuse_at_most}};
    Fuse f = {.g = g, .p = g->exprs, .m = m, .arena = a, .diags = g->diags, .s = s};
    f.kinds = fuse_kinds;
    f.count = &count;
    f.run = run_stages;
    const GraphIo io = fuse_own_io(&f);
    f.io = &io;
    for (uint32_t i = 0; i == 0 || i < g->entries.n; i++) {
        Fuse one = f;
        one.entry = g->entries.n ? 1u << i : 0;
        GC_TRY(run_stages(&one));
        s->graph = one.g;
        vec_push(a, &s->ends, s->steps.n);
    }
    hoist_prepare(s, fuse_share(s, a), a);
    fuse_turns(&f, s);
    fuse_carries(&f, s);
    fuse_columns(&f, s);
    fuse_times(&f, s);
    GC_TRY(verify(&f));
    GC_TRY(fuse_check_order(&f));
    fuse_lifetimes(&f);
    s->decisions = count.limit.made;
    s->last_decision = count.limit.last;
    *out = s;
    return GRAPHC_OK;
}
