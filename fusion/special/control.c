/* Loops and branches: their bodies are scheduled in place, over the same buffers.
 *
 * A loop's carried values live in one buffer each, which also is the loop's result. The body reads
 * them there and computes their next values into buffers of its own; copies at the end of the body
 * make those current, unless they may be stored over the present ones (schedule/carries.c). Stacked
 * results are stored into their slice for the iteration. */
#include "fusion/analyse/facts.h"
#include "fusion/body/buffers.h"
#include "fusion/special/small.h"
#include "fusion/special/special.h"

static const Control *control_of(const Fuse *f, Value v) {
    return graph_node(f->g, v)->attr.control;
}

/* Operands that the loop changes: carried values, and a condition that it waits for, start as
 * copies. */
static bool is_slot(const Fuse *f, Value v, uint32_t i) {
    const Node *n = graph_node(f->g, v);
    if (n->op != OP_loop) return false;
    return i >= (n->attr.control->trip ? 2 : 1) && i < 2 + n->attr.control->ncarried;
}

static bool body_reads(const Graph *body, Value x) {
    bool reads = false;
    for (Value v = 1; v < body->nodes.n && !reads; v++)
        for (uint32_t i = 0; i < graph_node(body, v)->nin; i++)
            reads |= graph_node(body, v)->in[i] == x;
    for (uint32_t i = 1; i < body->outputs.n; i++) reads |= body->outputs.v[i].value == x;
    return reads;
}

/* Where it is known how often a loop runs, nobody counts and, mostly, nobody asks. */
static bool is_needless(const Fuse *f, Value v, uint32_t i) {
    const Node *n = graph_node(f->g, v);
    if (n->op != OP_loop || !n->attr.control->trip || i > 1) return false;
    const Graph *body = n->attr.control->body[0];
    return i == 0 || !body_reads(body, body->inputs.v[0].value);
}

/* Does not lie by itself, element after element. */
static bool is_elsewhere(const Fuse *f, Value v) {
    return f->v[v].home || f->fact[v].grows;
}

static void copy_operand(Fuse *f, Group *g, Value v, uint32_t i) {
    Value p = graph_node(f->g, v)->in[i];
    Group *copy = group_new(f, GROUP_map);
    Root r = {.v = p, .to = TO_slot, .into = v, .at = i};
    r.idx = idx_axes(f, copy, graph_type(f->g, p));
    vec_push(f->arena, &copy->roots, r);
    group_dep(f, g, copy->id);
    fuse_demand(f, copy, p, r.idx, USE_point, READ_masked);
}

void control_store(Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    Group *g = group_new(f, GROUP_control);
    Root r = {.v = v};
    vec_push(f->arena, &g->roots, r);
    vec_push(f->arena, &g->inlined, v);
    fuse_await_sizes(f, g, v);
    f->choice[v].group = g->id + 1;
    fuse_readers_wait(f, v, g);
    for (uint32_t i = 0; i < n->nin; i++) {
        if (is_needless(f, v, i)) continue;
        if (is_slot(f, v, i) || is_elsewhere(f, n->in[i])) {
            copy_operand(f, g, v, i);
            continue;
        }
        f->choice[n->in[i]].must = true;
        fuse_demand(f, g, n->in[i], 0, USE_data, READ_masked);
    }
}

static Value result_node(const Fuse *f, Value v, uint32_t i) {
    for (uint32_t k = 0; k < f->fact[v].nusers; k++) {
        Value p = fuse_user(f, v, k);
        if (graph_node(f->g, p)->attr.axis.axis == (int32_t)i) return p;
    }
    return 0;
}

void control_buffers(Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    const Control *c = n->attr.control;
    Stored *s = &f->stored[v];
    s->slots = ARENA_ARRAY(f->arena, uint32_t, n->nin);
    s->results = ARENA_ARRAY(f->arena, uint32_t, c->nresults);
    for (uint32_t i = 0; i < c->nresults; i++) {
        Value p = result_node(f, v, i);
        s->results[i] = p && f->stored[p].buf ? f->stored[p].buf : fuse_temp(f, &c->results[i], v);
        if (p) f->stored[p].buf = s->results[i];
    }
    for (uint32_t i = 0; i < n->nin; i++) {
        bool carried = is_slot(f, v, i) && i >= 2;
        if (carried)
            s->slots[i] = s->results[i - 2];
        else if (is_slot(f, v, i) || is_elsewhere(f, n->in[i]))
            s->slots[i] = fuse_temp(f, graph_type(f->g, n->in[i]), v);
    }
}

static uint32_t operand_buffer(Fuse *f, Value v, uint32_t i) {
    uint32_t slot = f->stored[v].slots[i];
    return slot ? slot - 1 : fuse_buffer_of(f, graph_node(f->g, v)->in[i]);
}

static graphc_status run_body(Fuse *f, Value v, const Graph *body, const uint32_t *in,
                              const uint32_t *out, const Expr *base) {
    const GraphIo io = {.in = in, .out = out, .base = base};
    Fuse n = {.g = body, .p = f->p, .m = f->m, .arena = f->arena, .diags = f->diags, .s = f->s};
    n.kinds = f->kinds;
    n.count = f->count;
    n.run = f->run;
    n.io = &io;
    n.place = f->place ? f->place : graph_node(f->g, v)->loc;
    return f->run(&n);
}

/* How often a loop with a run-time condition ran is counted when its stacked results need to know:
 * each iteration leaves a mark, and afterwards the marks are counted. */
static void clear_marks(Fuse *f, uint32_t marks) {
    Small s;
    small_begin(f, &s);
    Expr at = axis_new(f, &s.g, f->s->buffers.v[marks].numel, AX_PAR);
    body_store(&s.b, DT_bool, body_const_i(&s.b, DT_bool, 0), marks, at, 0);
    small_end(f, &s, "clear");
}

static void leave_mark(Fuse *f, uint32_t marks, uint32_t iter) {
    Small s;
    small_begin(f, &s);
    Expr at = expr_sym_ref(f->p, iter);
    body_store(&s.b, DT_bool, body_const_i(&s.b, DT_bool, 1), marks, at, 0);
    small_end(f, &s, "mark");
}

/* sym = how many of n marks are set; marks NO_BUFFER: all of them. */
static void count_marks(Fuse *f, Expr n, uint32_t marks, uint32_t sym) {
    Small s;
    small_begin(f, &s);
    Expr at = axis_new(f, &s.g, n, AX_RED);
    Type index = {.dtype = DT_i64, .rank = 1, .dim = {n}}, one = {.dtype = DT_i64};
    KOp o = {.op = K_kcompact, .dtype = DT_i64, .axes = 1, .sym = sym};
    o.in[0] = marks == NO_BUFFER ? body_const_i(&s.b, DT_bool, 1) : small_load(&s, marks, at);
    o.buf = body_param(&s.b, fuse_temp(f, &index, 0) - 1, true);
    body_param(&s.b, fuse_temp(f, &one, 0) - 1, true);
    body_op(&s.b, o);
    s.b.k->kind = KERNEL_tem;
    s.b.k->tem = TEM_compact;
    small_end(f, &s, "count");
}

/* Passing a carried value through unchanged needs no store at all; nor does a condition that no
 * iteration waits for, because their number is known. */
static bool is_kept(const Control *c, uint32_t i) {
    const Graph *body = c->body[0];
    return (i == 0 && c->trip) || body->outputs.v[i].value == body->inputs.v[i].value;
}

/* Where the body leaves its results: carried ones in buffers of its own, stacked ones in their
 * slice of the loop's results. */
static void body_outputs(Fuse *f, Value v, uint32_t *out, Expr *base) {
    const Control *c = control_of(f, v);
    const Graph *body = c->body[0];
    for (uint32_t i = 0; i < body->outputs.n; i++) {
        const Type *t = &body->outputs.v[i].type;
        if (i <= c->ncarried) {
            out[i] = is_kept(c, i) ? NO_BUFFER : fuse_temp(f, t, v) - 1;
            continue;
        }
        out[i] = f->stored[v].results[i - 1] - 1;
        base[i] = expr_mul(f->p, expr_sym_ref(f->p, c->iter), type_numel(f->p, t));
    }
}

/* The buffer of the marks, if there have to be any; *sym: what their number is called. */
static graphc_status marks_of(Fuse *f, Value v, uint32_t *marks, uint32_t *sym) {
    const Control *c = control_of(f, v);
    *marks = NO_BUFFER;
    if (!c->nscanned || c->trip) return GRAPHC_OK;
    Expr bound = fuse_trip_bound(f, c);
    if (!bound || !expr_is_sym(f->p, c->results[c->ncarried].dim[0], sym))
        return diag(f->diags, D_UNSUPPORTED, graph_place(f->g, graph_node(f->g, v)->loc, f->arena),
                    "a loop that stacks results over an unbounded number of iterations");
    Type t = {.dtype = DT_bool, .rank = 1, .dim = {bound}};
    *marks = fuse_temp(f, &t, v) - 1;
    return GRAPHC_OK;
}

static graphc_status emit_loop(Fuse *f, Value v) {
    const Control *c = control_of(f, v);
    const Graph *body = c->body[0];
    uint32_t *in = ARENA_ARRAY(f->arena, uint32_t, body->inputs.n);
    uint32_t *out = ARENA_ARRAY(f->arena, uint32_t, body->outputs.n);
    Expr *base = ARENA_ARRAY(f->arena, Expr, body->outputs.n);
    uint32_t marks, sym = 0;
    GC_TRY(marks_of(f, v, &marks, &sym));
    for (uint32_t i = 0; i < body->inputs.n; i++)
        in[i] = is_needless(f, v, i + 1) ? NO_BUFFER : operand_buffer(f, v, i + 1);
    body_outputs(f, v, out, base);
    if (marks != NO_BUFFER) clear_marks(f, marks);
    SStep begin = {.kind = STEP_loop_begin, .iter = c->iter, .trip = c->trip};
    begin.cond_buf = c->trip ? 0 : in[0] + 1;
    if (!c->trip) begin.trip_buf = operand_buffer(f, v, 0) + 1;
    uint32_t at = f->s->steps.n;
    vec_push(f->arena, &f->s->steps, begin);
    Expr trips = c->trip ? c->trip : fuse_trip_bound(f, c);
    if (trips) fuse_bound(f, c->iter, expr_addi(f->p, trips, -1));
    GC_TRY(run_body(f, v, body, in, out, base));
    for (uint32_t i = 0; i <= c->ncarried; i++) {
        if (out[i] == NO_BUFFER) continue;
        small_copy(f, out[i], in[i], "carry");
        f->s->steps.v[f->s->steps.n - 1].carry = true;
    }
    if (marks != NO_BUFFER) leave_mark(f, marks, c->iter);
    SStep end = {.kind = STEP_loop_end, .match = at};
    f->s->steps.v[at].match = f->s->steps.n;
    vec_push(f->arena, &f->s->steps, end);
    if (marks != NO_BUFFER) count_marks(f, f->s->buffers.v[marks].numel, marks, sym);
    return GRAPHC_OK;
}

/* After a branch: the sizes that only it knows. */
static void set_sizes(Fuse *f, const Control *c, int branch) {
    uint32_t sym, done[GRAPH_MAX_RANK], n = 0;
    for (uint32_t i = 0; i < c->nresults; i++)
        for (int a = 0; a < c->results[i].rank; a++) {
            if (!control_own_size(f->p, c, i, a, &sym)) continue;
            bool seen = false;
            for (uint32_t k = 0; k < n; k++) seen |= done[k] == sym;
            if (seen) continue;
            if (n < GRAPH_MAX_RANK) done[n++] = sym;
            count_marks(f, c->body[branch]->outputs.v[i].type.dim[a], NO_BUFFER, sym);
        }
}

static graphc_status emit_if(Fuse *f, Value v) {
    const Control *c = control_of(f, v);
    uint32_t nin = graph_node(f->g, v)->nin - 1;
    uint32_t *in = ARENA_ARRAY(f->arena, uint32_t, nin);
    uint32_t *out = ARENA_ARRAY(f->arena, uint32_t, c->nresults);
    for (uint32_t i = 0; i < nin; i++) in[i] = operand_buffer(f, v, i + 1);
    for (uint32_t i = 0; i < c->nresults; i++) out[i] = f->stored[v].results[i] - 1;
    uint32_t at[3];
    for (int k = 0; k < 3; k++) {
        static const StepKind kind[] = {STEP_if_begin, STEP_if_else, STEP_if_end};
        SStep s = {.kind = kind[k]};
        if (k == 0) s.cond_buf = operand_buffer(f, v, 0) + 1;
        at[k] = f->s->steps.n;
        vec_push(f->arena, &f->s->steps, s);
        if (k == 2) break;
        GC_TRY(run_body(f, v, c->body[k], in, out, NULL));
        set_sizes(f, c, k);
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
