/* Buffers: which there are, and how large at most. */
#include "fusion/body/buffers.h"

#define MAX_STACKED (INT64_C(1) << 24) /* iterations whose results may be stacked */

static uint32_t add_buffer(Fuse *f, SBuffer b) {
    vec_push(f->arena, &f->s->buffers, b);
    return f->s->buffers.n;
}

/* --- Sizes that only the run knows -------------------------------------------------------- */

void fuse_bound(Fuse *f, uint32_t sym, Expr most) {
    schedule_bound_add(f->s, sym, most);
}

static Expr max_numel(const Fuse *f, const Type *t) {
    Expr n = expr_const(f->p, 1);
    for (uint32_t i = 0; i < t->rank; i++) n = expr_mul(f->p, n, schedule_bound(f->s, t->dim[i]));
    return n;
}

uint32_t fuse_temp(Fuse *f, const Type *t, Value node) {
    SBuffer b = {.kind = BUF_temp, .dtype = t->dtype, .node = node, .graph = f->g};
    b.numel = max_numel(f, t);
    vec_push(f->arena, &f->s->buffers, b);
    return f->s->buffers.n;
}

/* The most iterations that a loop's trip count allows, or 0 when only the run can tell. */
Expr fuse_trip_bound(const Fuse *f, const Control *loop) {
    int64_t trips;
    return loop->most && expr_is_const(f->p, loop->most, &trips) && trips > MAX_STACKED
               ? 0
               : loop->most;
}

static void note_count(Fuse *f, Expr count, Expr bound) {
    uint32_t sym;
    if (bound && expr_is_sym(f->p, count, &sym)) fuse_bound(f, sym, bound);
}

static void find_counts(Fuse *f, const Graph *g);

/* A size that the branches do not agree on is at most the larger one, whatever that depends on. */
static void find_branch_counts(Fuse *f, const Control *c) {
    uint32_t sym;
    for (int b = 0; b < 2; b++) find_counts(f, c->body[b]);
    for (uint32_t i = 0; i < c->nresults; i++)
        for (int a = 0; a < c->results[i].rank; a++)
            if (control_own_size(f->p, c, i, a, &sym))
                note_count(f, c->results[i].dim[a],
                           expr_max(f->p, c->body[0]->outputs.v[i].type.dim[a],
                                    c->body[1]->outputs.v[i].type.dim[a]));
}

static void find_counts(Fuse *f, const Graph *g) {
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        const Control *c = n->attr.control;
        if (n->op == OP_compact)
            note_count(f, n->type.dim[0], graph_type(g, n->in[0])->dim[0]);
        else if (n->op == OP_loop && c->nscanned && !c->trip)
            note_count(f, c->results[c->ncarried].dim[0], fuse_trip_bound(f, c));
        else if (n->op == OP_if)
            find_branch_counts(f, c);
    }
}

/* --- Values ------------------------------------------------------------------------------- */

GraphIo fuse_own_io(Fuse *f) {
    find_counts(f, f->g);
    uint32_t *in = ARENA_ARRAY(f->arena, uint32_t, f->g->inputs.n);
    uint32_t *out = ARENA_ARRAY(f->arena, uint32_t, f->g->outputs.n);
    for (uint32_t i = 0; i < f->g->inputs.n; i++) {
        Value v = f->g->inputs.v[i].value;
        const Type *t = graph_type(f->g, v);
        SBuffer b = {.kind = BUF_input, .dtype = t->dtype, .index = i, .node = v, .graph = f->g};
        b.numel = type_numel(f->p, t);
        in[i] = add_buffer(f, b) - 1;
    }
    for (uint32_t i = 0; i < f->g->outputs.n; i++) {
        Value v = f->g->outputs.v[i].value;
        const Type *t = graph_type(f->g, v);
        SBuffer b = {.kind = BUF_output, .dtype = t->dtype, .index = i, .node = v, .graph = f->g};
        b.numel = max_numel(f, t);
        out[i] = add_buffer(f, b) - 1;
    }
    uint32_t *state = ARENA_ARRAY(f->arena, uint32_t, f->g->states.n);
    for (uint32_t i = 0; i < f->g->states.n; i++) {
        Value v = f->g->states.v[i].value;
        const Type *t = graph_type(f->g, v);
        SBuffer b = {.kind = BUF_state, .dtype = t->dtype, .index = i, .node = v, .graph = f->g};
        Type whole = *t;
        if (f->g->states.v[i].grows)
            whole.dim[f->g->states.v[i].grows - 1] = f->g->states.v[i].room;
        b.numel = type_numel(f->p, &whole);
        state[i] = add_buffer(f, b) - 1;
    }
    return (GraphIo){.in = in, .out = out, .state = state};
}

/* Of states that become another's next value. */
static void next_buffers(Fuse *f) {
    f->next_buf = ARENA_ARRAY(f->arena, uint32_t, f->g->writes.n);
    for (uint32_t i = 0; i < f->g->writes.n; i++) {
        const StateWrite *w = &f->g->writes.v[i];
        bool copied = graph_node(f->g, w->value)->op == OP_state && fuse_wants(f, w->entries);
        if (copied) f->next_buf[i] = fuse_temp(f, graph_type(f->g, w->value), w->value);
    }
}

static void io_buffers(Fuse *f) {
    next_buffers(f);
    for (uint32_t i = 0; i < f->g->states.n; i++)
        f->stored[f->g->states.v[i].value].buf = f->io->state[i] + 1;
    for (uint32_t i = 0; i < f->g->writes.n; i++) {
        const Value v = f->g->writes.v[i].value;
        if (f->fact[v].grows) f->stored[v].buf = f->io->state[f->fact[v].grows - 1] + 1;
    }
    for (uint32_t i = 0; i < f->g->inputs.n; i++)
        f->stored[f->g->inputs.v[i].value].buf = f->io->in[i] + 1;
    for (uint32_t i = 0; i < f->g->outputs.n; i++) {
        const Value v = f->g->outputs.v[i].value;
        if (f->fact[v].output == i + 1) f->stored[v].buf = f->io->out[i] + 1;
    }
}

uint32_t fuse_buffer_of(Fuse *f, Value v) {
    Stored *at = &f->stored[v];
    if (f->v[v].home) return fuse_buffer_of(f, f->v[v].home);
    if (!at->buf) {
        GC_ASSERT(graph_node(f->g, v)->op == OP_const);
        const Type *t = graph_type(f->g, v);
        SBuffer k = {.kind = BUF_const,
                     .dtype = t->dtype,
                     .numel = type_numel(f->p, t),
                     .node = v,
                     .graph = f->g};
        vec_push(f->arena, &f->s->buffers, k);
        at->buf = f->s->buffers.n;
    }
    return at->buf - 1;
}

/* The same where v's rows are aligned. */
static Expr aligned_numel(const Fuse *f, const VState *s, const Type *t) {
    const uint32_t last = s->permuted ? s->order[t->rank - 1] : t->rank - 1u;
    Type rest = *t;
    rest.dim[last] = expr_const(f->p, 1);
    return expr_mul(f->p, max_numel(f, &rest),
                    vstate_row(f->p, s, schedule_bound(f->s, t->dim[last])));
}

DType fuse_stored_type(const Fuse *f, Value v) {
    return f->v[v].wide ? DT_f32 : graph_type(f->g, v)->dtype;
}

void fuse_own_buffer(Fuse *f, Value v) {
    Stored *at = &f->stored[v];
    if (f->v[v].home || at->buf) return;
    const Type *t = graph_type(f->g, v);
    SBuffer b = {.dtype = fuse_stored_type(f, v), .node = v, .graph = f->g};
    b.kind = f->fact[v].const_only ? BUF_prepared : BUF_temp;
    b.numel = max_numel(f, t);
    if (f->v[v].align) b.numel = aligned_numel(f, &f->v[v], t);
    at->buf = add_buffer(f, b);
}

static void value_buffer(Fuse *f, Value v) {
    const KindRow *kind = &f->kinds[f->groups.v[f->v[v].group - 1]->kind];
    (kind->buffers ? kind->buffers : fuse_own_buffer)(f, v);
}

/* Which values can be looked at, between steps of a run (`graphc verify`). */
static void note_held(Fuse *f) {
    for (Value v = 1; f->g == f->s->graph && v < f->g->nodes.n; v++) {
        const VState *s = &f->v[v];
        const uint32_t buf = f->stored[v].buf;
        if (!buf || s->align || s->wide || graph_node(f->g, v)->op == OP_state) continue;
        SBuffer *b = &f->s->buffers.v[buf - 1];
        b->holds = v;
        b->order = s->permuted ? s->order : NULL;
    }
}

void fuse_buffers(Fuse *f) {
    f->stored = ARENA_ARRAY(f->arena, Stored, f->g->nodes.n);
    find_counts(f, f->g);
    io_buffers(f);
    for (Value v = 1; v < f->g->nodes.n; v++)
        if (f->v[v].group) value_buffer(f, v);
    for (uint32_t i = 0; i < f->packs.n; i++) {
        Pack *k = &f->packs.v[i];
        SBuffer b = {.dtype = k->dtype, .node = k->b, .graph = f->g};
        b.kind = f->fact[k->b].const_only ? BUF_prepared : BUF_temp;
        b.numel = k->form->numel(f, k);
        k->buf = add_buffer(f, b);
    }
    note_held(f);
}
