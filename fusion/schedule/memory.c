/* Buffers: which there are, how long they live, which share storage. */
#include "fusion/group/fuse.h"

static uint32_t add_buffer(Fuse *f, SBuffer b) {
    vec_push(f->arena, &f->s->buffers, b);
    return f->s->buffers.n;
}

void fuse_bound(Fuse *f, uint32_t sym, Expr most) {
    vec_push(f->arena, &f->s->bounds, ((RunBound){sym, most}));
}

Expr fuse_max_numel(Fuse *f, const Type *t) {
    Expr n = expr_const(f->p, 1);
    for (uint32_t i = 0; i < t->rank; i++) n = expr_mul(f->p, n, schedule_bound(f->s, t->dim[i]));
    return n;
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
            note_count(f, c->results[c->ncarried].dim[0], control_trip_bound(f, g, v));
        else if (n->op == OP_if)
            find_branch_counts(f, c);
    }
}

static void own_buffers(Fuse *f) {
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
        b.numel = fuse_max_numel(f, t);
        out[i] = add_buffer(f, b) - 1;
    }
    f->in_buf = in;
    f->out_buf = out;
}

static void io_buffers(Fuse *f) {
    if (!f->in_buf) own_buffers(f);
    for (uint32_t i = 0; i < f->g->inputs.n; i++)
        f->v[f->g->inputs.v[i].value].buf = f->in_buf[i] + 1;
    for (uint32_t i = 0; i < f->g->outputs.n; i++) {
        VState *s = &f->v[f->g->outputs.v[i].value];
        if (s->output == i + 1) s->buf = f->out_buf[i] + 1;
    }
}

uint32_t fuse_buffer_of(Fuse *f, Value v) {
    VState *s = &f->v[v];
    if (s->home) return fuse_buffer_of(f, s->home);
    if (!s->buf) {
        GC_ASSERT(graph_node(f->g, v)->op == OP_const);
        const Type *t = graph_type(f->g, v);
        SBuffer k = {.kind = BUF_const,
                     .dtype = t->dtype,
                     .numel = type_numel(f->p, t),
                     .node = v,
                     .graph = f->g};
        vec_push(f->arena, &f->s->buffers, k);
        s->buf = f->s->buffers.n;
    }
    return s->buf - 1;
}

static void value_buffer(Fuse *f, Value v) {
    VState *s = &f->v[v];
    const Node *n = graph_node(f->g, v);
    const Group *g = f->groups.v[s->group - 1];
    if (g->kind == GROUP_control) {
        control_buffers(f, v);
        return;
    }
    if (!s->home && !s->buf) {
        SBuffer b = {.dtype = n->type.dtype, .node = v, .graph = f->g};
        b.kind = s->const_only ? BUF_prepared : BUF_temp;
        b.numel = fuse_max_numel(f, &n->type);
        s->buf = add_buffer(f, b);
    }
    if (g->kind != GROUP_compact) return;
    SBuffer c = {.kind = BUF_temp, .dtype = DT_i64, .numel = expr_const(f->p, 1), .node = v};
    c.graph = f->g;
    s->count_buf = add_buffer(f, c);
}

void fuse_buffers(Fuse *f) {
    find_counts(f, f->g);
    io_buffers(f);
    for (Value v = 1; v < f->g->nodes.n; v++)
        if (f->v[v].group) value_buffer(f, v);
    for (uint32_t i = 0; i < f->packs.n; i++) {
        Pack *k = &f->packs.v[i];
        SBuffer b = {.kind = BUF_prepared, .dtype = graph_type(f->g, k->b)->dtype, .node = k->b};
        b.graph = f->g;
        b.numel = pack_numel(f, k);
        k->buf = add_buffer(f, b);
    }
}

/* --- Lifetimes ---------------------------------------------------------------------------- */

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
