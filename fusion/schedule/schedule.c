/* The stages in order, from graph to schedule. */
#include "fusion/schedule/stage.h"
#include "fusion/analyse/facts.h"
#include "fusion/body/buffers.h"
#include "fusion/body/body.h"
#include "fusion/special/special.h"

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
} Order;

static void place(Order *o, Group *g) {
    if (o->state[g->id]) return;
    o->state[g->id] = 1;
    for (uint32_t i = 0; i < g->deps.n; i++) place(o, o->f->groups.v[g->deps.v[i]]);
    o->state[g->id] = 2;
    if (g->kind != GROUP_join && g->roots.n) vec_push(o->f->arena, &o->out, g);
}

/* Groups were made from the outputs backwards: the newest ones go first, as far as dependencies
 * allow, so steps follow the graph's order. */
static void order_groups(Fuse *f, Order *o) {
    *o = (Order){.f = f, .state = ARENA_ARRAY(f->arena, uint8_t, f->groups.n)};
    for (uint32_t i = f->groups.n; i-- > 0;)
        if (f->groups.v[i]->prepare) place(o, f->groups.v[i]);
    for (uint32_t i = f->groups.n; i-- > 0;) place(o, f->groups.v[i]);
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
        g->kernel->name = fuse_kernel_name(f, g, g->kernel, f->number[g->prepare]++);
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

/* Needs an analysed pool only; appends steps, buffers and refusals. */
graphc_status fuse_run(Fuse *f) {
    FuseLimit before = *f->limit;
    do {
        *f->limit = before;
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
    uint32_t number[2] = {0, 0};
    Fuse f = {.g = g, .p = g->exprs, .m = m, .arena = a, .diags = g->diags, .s = s};
    FuseLimit limit = {.at_most = fuse_at_most};
    f.kinds = fuse_kinds;
    f.limit = &limit;
    f.run = fuse_run;
    f.number = number;
    for (uint32_t i = 0; i == 0 || i < g->entries.n; i++) {
        Fuse one = f;
        one.entry = g->entries.n ? 1u << i : 0;
        GC_TRY(fuse_run(&one));
        f.in_buf = one.in_buf;
        f.out_buf = one.out_buf;
        f.state_buf = one.state_buf;
        f.naxis_syms = one.naxis_syms;
        s->graph = one.g;
        vec_push(a, &s->ends, s->steps.n);
    }
    hoist_prepare(s, fuse_share(s, a), a);
    GC_TRY(verify(&f));
    GC_TRY(fuse_check_order(&f));
    fuse_lifetimes(&f);
    s->decisions = limit.made;
    s->last_decision = limit.last;
    *out = s;
    return GRAPHC_OK;
}
