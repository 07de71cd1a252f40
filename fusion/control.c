/* Loops and branches: their bodies are scheduled in place, over the same buffers.
 *
 * A loop's carried values live in one buffer each, which also is the loop's result. The body reads
 * them there and computes their next values into buffers of its own; copies at the end of the body
 * make those current. Stacked results are stored into their slice for the iteration. */
#include "fusion/fuse.h"

static const Control *control_of(const Fuse *f, Value v) {
    return graph_node(f->g, v)->attr.control;
}

/* Operands that the loop changes: condition and carried values start as copies. */
static bool is_slot(const Fuse *f, Value v, uint32_t i) {
    const Node *n = graph_node(f->g, v);
    return n->op == OP_loop && i >= 1 && i < 2 + n->attr.control->ncarried;
}

static void copy_operand(Fuse *f, Group *g, Value v, uint32_t i) {
    Value p = graph_node(f->g, v)->in[i];
    Group *copy = group_new(f, GROUP_map);
    Root r = {.v = p, .into = v, .part = i, .slot = true};
    r.idx = idx_axes(f, copy, graph_type(f->g, p));
    vec_push(f->arena, &copy->roots, r);
    group_dep(f, g, copy->id);
    fuse_demand(f, copy, p, r.idx, USE_point, true);
}

void control_root(Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    VState *s = &f->v[v];
    Group *g = group_new(f, GROUP_control);
    Root r = {.v = v};
    vec_push(f->arena, &g->roots, r);
    vec_push(f->arena, &g->inlined, v);
    s->group = g->id + 1;
    s->slots = ARENA_ARRAY(f->arena, uint32_t, n->nin);
    for (uint32_t i = 0; i < s->demands.n; i++)
        group_dep(f, f->groups.v[s->demands.v[i].group], g->id);
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->op == OP_loop && i == 0 && n->attr.control->trip) continue;
        if (is_slot(f, v, i) || f->v[n->in[i]].home) {
            copy_operand(f, g, v, i);
            continue;
        }
        f->v[n->in[i]].must = true;
        fuse_demand(f, g, n->in[i], 0, USE_data, true);
    }
}

static uint32_t temp(Fuse *f, const Type *t, Value node) {
    SBuffer b = {.kind = BUF_temp, .dtype = t->dtype, .node = node, .graph = f->g};
    b.numel = fuse_upper_bound(f, type_numel(f->p, t));
    vec_push(f->arena, &f->s->buffers, b);
    return f->s->buffers.n;
}

static Value result_node(const Fuse *f, Value v, uint32_t i) {
    for (uint32_t k = 0; k < f->v[v].nusers; k++) {
        Value p = fuse_user(f, v, k);
        if (graph_node(f->g, p)->attr.axis.axis == (int32_t)i) return p;
    }
    return 0;
}

void control_buffers(Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    const Control *c = n->attr.control;
    VState *s = &f->v[v];
    s->results = ARENA_ARRAY(f->arena, uint32_t, c->nresults);
    for (uint32_t i = 0; i < c->nresults; i++) {
        Value p = result_node(f, v, i);
        s->results[i] = p && f->v[p].buf ? f->v[p].buf : temp(f, &c->results[i], v);
        if (p) f->v[p].buf = s->results[i];
    }
    for (uint32_t i = 0; i < n->nin; i++) {
        bool carried = is_slot(f, v, i) && i >= 2;
        if (carried)
            s->slots[i] = s->results[i - 2];
        else if (is_slot(f, v, i) || f->v[n->in[i]].home)
            s->slots[i] = temp(f, graph_type(f->g, n->in[i]), v);
    }
}

static uint32_t operand_buffer(Fuse *f, Value v, uint32_t i) {
    uint32_t slot = f->v[v].slots[i];
    return slot ? slot - 1 : fuse_buffer_of(f, graph_node(f->g, v)->in[i]);
}

static graphc_status run_body(Fuse *f, Value v, const Graph *body, const uint32_t *in,
                              const uint32_t *out, const Expr *base) {
    Fuse n = {.g = body, .p = f->p, .m = f->m, .arena = f->arena, .diags = f->diags, .s = f->s};
    n.in_buf = in;
    n.out_buf = out;
    n.out_base = base;
    n.number = f->number;
    n.place = f->place ? f->place : graph_node(f->g, v)->loc;
    n.naxis_syms = f->naxis_syms;
    graphc_status st = fuse_run(&n);
    f->naxis_syms = n.naxis_syms;
    return st;
}

/* The next value of something carried becomes the current one. */
static void copy_back(Fuse *f, uint32_t from, uint32_t to) {
    Group g = {.id = 0, .kind = GROUP_map};
    g.index_of = map_create(f->arena);
    Kernel *k = ARENA_NEW(f->arena, Kernel);
    Body b = {.f = f, .g = &g, .k = k};
    body_begin(&b);
    const SBuffer *s = &f->s->buffers.v[from];
    Expr at = axis_new(f, &g, s->numel, AX_PAR);
    KOp load = {.op = K_kload, .dtype = (uint8_t)s->dtype, .index = at};
    load.buf = body_param(&b, from, false);
    KVal x = body_op(&b, load);
    KOp store = {.op = K_kstore, .dtype = (uint8_t)s->dtype, .index = at, .in[0] = x};
    store.buf = body_param(&b, to, true);
    body_op(&b, store);
    body_end(&b);
    k->name = arena_printf(f->arena, "poi_%u_carry", f->number[0]++);
    SStep step = {.kind = STEP_kernel, .kernel = k, .bufs = b.bufs.v};
    vec_push(f->arena, &f->s->steps, step);
}

/* Passing a carried value through unchanged needs no store at all. */
static bool unchanged(const Graph *body, uint32_t i) {
    return body->outputs.v[i].value == body->inputs.v[i].value;
}

static graphc_status emit_loop(Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    const Control *c = control_of(f, v);
    const Graph *body = c->body[0];
    uint32_t *in = ARENA_ARRAY(f->arena, uint32_t, body->inputs.n);
    uint32_t *out = ARENA_ARRAY(f->arena, uint32_t, body->outputs.n);
    Expr *base = ARENA_ARRAY(f->arena, Expr, body->outputs.n);
    if (c->nscanned && !c->trip) {
        return diag(f->diags, D_UNSUPPORTED, graph_place(f->g, n->loc, f->arena),
                    "a loop that stacks results over an unknown number of iterations");
    }
    for (uint32_t i = 0; i < body->inputs.n; i++) in[i] = operand_buffer(f, v, i + 1);
    for (uint32_t i = 0; i < body->outputs.n; i++) {
        const Type *t = &body->outputs.v[i].type;
        if (i > c->ncarried) {
            out[i] = f->v[v].results[i - 1] - 1;
            base[i] = expr_mul(f->p, expr_sym_ref(f->p, c->iter), type_numel(f->p, t));
        } else {
            out[i] = unchanged(body, i) ? NO_BUFFER : temp(f, t, v) - 1;
        }
    }
    SStep begin = {.kind = STEP_loop_begin, .iter = c->iter, .trip = c->trip};
    begin.cond_buf = c->trip ? 0 : in[0] + 1;
    if (!c->trip) begin.trip_buf = operand_buffer(f, v, 0) + 1;
    uint32_t at = f->s->steps.n;
    vec_push(f->arena, &f->s->steps, begin);
    GC_TRY(run_body(f, v, body, in, out, base));
    for (uint32_t i = 0; i <= c->ncarried; i++)
        if (out[i] != NO_BUFFER) copy_back(f, out[i], in[i]);
    SStep end = {.kind = STEP_loop_end, .match = at};
    f->s->steps.v[at].match = f->s->steps.n;
    vec_push(f->arena, &f->s->steps, end);
    return GRAPHC_OK;
}

static graphc_status emit_if(Fuse *f, Value v) {
    const Control *c = control_of(f, v);
    uint32_t nin = graph_node(f->g, v)->nin - 1;
    uint32_t *in = ARENA_ARRAY(f->arena, uint32_t, nin);
    uint32_t *out = ARENA_ARRAY(f->arena, uint32_t, c->nresults);
    for (uint32_t i = 0; i < nin; i++) in[i] = operand_buffer(f, v, i + 1);
    for (uint32_t i = 0; i < c->nresults; i++) out[i] = f->v[v].results[i] - 1;
    uint32_t at[3];
    for (int k = 0; k < 3; k++) {
        static const StepKind kind[] = {STEP_if_begin, STEP_if_else, STEP_if_end};
        SStep s = {.kind = kind[k]};
        if (k == 0) s.cond_buf = operand_buffer(f, v, 0) + 1;
        at[k] = f->s->steps.n;
        vec_push(f->arena, &f->s->steps, s);
        if (k < 2) GC_TRY(run_body(f, v, c->body[k], in, out, NULL));
    }
    f->s->steps.v[at[0]].match = at[1];
    f->s->steps.v[at[1]].match = at[2];
    f->s->steps.v[at[2]].match = at[0];
    return GRAPHC_OK;
}

graphc_status control_emit(Fuse *f, Group *g) {
    Value v = g->roots.v[0].v;
    g->step = f->s->steps.n;
    return graph_node(f->g, v)->op == OP_loop ? emit_loop(f, v) : emit_if(f, v);
}
