/* The reference evaluator's driver: frames, control flow, binding, folding. */
#include "graph/eval/eval_frame.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_LIMIT ((uint64_t)8 << 30)
#define FOLD_LIMIT    ((uint64_t)256 << 20)

static bool run_body(Eval *e, const Graph *g, const Tensor *inputs, Tensor *outputs);

/* ---- Control flow ---- */

static bool results_alloc(Frame *f, Value v, uint32_t n) {
    f->tuple[v] = calloc(n ? n : 1, sizeof(Tensor));
    return f->tuple[v] || eval_fail(f->e, D_NO_MEMORY, "not enough memory: %u results", n);
}

static bool eval_if(Frame *f, Value v, const Node *n) {
    const Control *c = n->attr.control;
    if (!results_alloc(f, v, c->nresults)) return false;
    const Graph *body = c->body[eval_int(&f->in[0], 0) ? 0 : 1];
    if (!run_body(f->e, body, f->in + 1, f->tuple[v])) return false;
    uint32_t sym;
    for (uint32_t i = 0; i < c->nresults; i++)
        for (int a = 0; a < c->results[i].rank; a++)
            if (control_own_size(f->e->exprs, c, i, a, &sym))
                f->e->sym[sym] = f->tuple[v][i].dim[a];
    return true;
}

/* Scanned results of all iterations so far, iteration by iteration. */
typedef struct Stack {
    Tensor *v;
    uint64_t n, cap;
} Stack;

static bool stack_push(Eval *e, Stack *s, const Tensor *t) {
    if (s->n == s->cap) {
        uint64_t cap = s->cap ? 2 * s->cap : 16;
        Tensor *v = realloc(s->v, cap * sizeof *v);
        if (!v)
            return eval_fail(e, D_NO_MEMORY, "not enough memory: %llu results",
                             (unsigned long long)cap);
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = *t;
    return true;
}

/* Stacks result k of every iteration along a new axis 0. */
static bool stack_result(Eval *e, const Control *c, const Stack *s, uint32_t k, Tensor *out) {
    const Type *t = &c->results[c->ncarried + k];
    int64_t trips = c->nscanned ? (int64_t)(s->n / c->nscanned) : 0;
    uint32_t sym;
    if (!c->trip && expr_is_sym(e->exprs, t->dim[0], &sym)) e->sym[sym] = trips;
    *out = (Tensor){.dtype = eval_storage(e, t->dtype), .rank = t->rank};
    frame_type_dims(e, t, out->dim);
    out->dim[0] = trips;
    for (int i = 1; trips && i < t->rank; i++) out->dim[i] = s->v[k].dim[i - 1];
    if (!eval_alloc(e, out)) return false;
    for (int64_t i = 0; i < trips; i++) {
        const Tensor *part = &s->v[(uint64_t)i * c->nscanned + k];
        Tensor slot = *part;
        slot.dtype = out->dtype;
        slot.to = out->to + i * out->stride[0] * (int64_t)dtype_bytes(out->dtype);
        eval_contiguous_strides(&slot);
        if (eval_numel(part) * trips != eval_numel(out))
            return eval_fail(e, D_RUN, "a loop's stacked results change their shape");
        eval_copy(&slot, part);
    }
    return true;
}

/* State of a running loop: `in` = cond, carried, captures for the body; `out` its results. With a
 * watch the same iterations run beside them without roundings to half types, and `far` is how far
 * each result has come from that, at the most. */
typedef struct LoopRun {
    const Control *c;
    Tensor *in, *out;
    Tensor *wide_in, *wide_out;
    double *far; /* NULL: nothing is rounded, or nobody asks */
    Stack scanned;
} LoopRun;

static bool rounds(const Graph *g) {
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        if (dtype_is_float(n->type.dtype) && dtype_bytes(n->type.dtype) < 4) return true;
        if (n->op != OP_loop && n->op != OP_if) continue;
        if (rounds(n->attr.control->body[0])) return true;
        if (n->op == OP_if && rounds(n->attr.control->body[1])) return true;
    }
    return false;
}

/* A loop that ends elsewhere without roundings may come to anything. */
static bool wide_iteration(Eval *e, LoopRun *l) {
    for (uint32_t i = 0; i < l->c->nresults && !eval_int(&l->wide_in[0], 0); i++)
        l->far[i] = INFINITY;
    e->round_halves = false;
    bool ok = !eval_int(&l->wide_in[0], 0) || run_body(e, l->c->body[0], l->wide_in, l->wide_out);
    e->round_halves = true;
    return ok;
}

static bool compare_with_wide(Eval *e, LoopRun *l) {
    for (uint32_t i = 0; i < l->c->nresults && eval_int(&l->wide_in[0], 0); i++)
        if (!eval_farthest(e, l->c->results[i].dtype, &l->out[1 + i], &l->wide_out[1 + i],
                           &l->far[i]))
            return false;
    return true;
}

static void carry_on(Eval *e, const Control *c, Tensor *in, Tensor *out) {
    for (uint32_t i = 0; i <= c->ncarried; i++) {
        eval_release(e, &in[i]);
        in[i] = out[i];
        out[i] = (Tensor){0};
    }
}

static bool loop_iteration(Eval *e, LoopRun *l) {
    const Control *c = l->c;
    if (l->far && !wide_iteration(e, l)) return false;
    if (!run_body(e, c->body[0], l->in, l->out)) return false;
    if (l->far && !compare_with_wide(e, l)) return false;
    if (l->far && eval_int(&l->wide_in[0], 0)) carry_on(e, c, l->wide_in, l->wide_out);
    for (uint32_t i = 0; l->far && i < c->nscanned; i++)
        eval_release(e, &l->wide_out[1 + c->ncarried + i]);
    carry_on(e, c, l->in, l->out);
    for (uint32_t i = 0; i < c->nscanned; i++) {
        if (!stack_push(e, &l->scanned, &l->out[1 + c->ncarried + i])) return false;
        l->out[1 + c->ncarried + i] = (Tensor){0};
    }
    return true;
}

static bool loop_run(Frame *f, Value v, LoopRun *l) {
    Eval *e = f->e;
    const Control *c = l->c;
    int64_t trips = eval_int(&f->in[0], 0), outer = e->sym[c->iter];
    for (int64_t i = 0; i < trips && eval_int(&l->in[0], 0); i++) {
        e->sym[c->iter] = i;
        if (!loop_iteration(e, l)) return false;
    }
    e->sym[c->iter] = outer;
    for (uint32_t i = 0; i < c->ncarried; i++) {
        f->tuple[v][i] = l->in[1 + i];
        eval_retain(&l->in[1 + i]);
    }
    for (uint32_t i = 0; i < c->nscanned; i++)
        if (!stack_result(e, c, &l->scanned, i, &f->tuple[v][c->ncarried + i])) return false;
    return true;
}

static bool far_alloc(Frame *f, Value v, const Control *c) {
    const Eval *e = f->e;
    if (!f->err || !e->round_halves || e->round || !rounds(c->body[0])) return true;
    f->far[v] = calloc(c->nresults + 1, sizeof *f->far[v]);
    return f->far[v] || eval_fail(f->e, D_NO_MEMORY, "not enough memory: %u results", c->nresults);
}

static bool eval_loop(Frame *f, Value v, const Node *n) {
    const Control *c = n->attr.control;
    LoopRun l = {.c = c};
    const uint32_t nin = n->nin - 1, nout = c->nresults + 1, all = 2 * (nin + nout);
    if (!results_alloc(f, v, c->nresults) || !far_alloc(f, v, c)) return false;
    l.in = calloc(all, sizeof(Tensor));
    if (!l.in) return eval_fail(f->e, D_NO_MEMORY, "not enough memory: %u values", all);
    l.out = l.in + nin;
    l.wide_in = l.out + nout;
    l.wide_out = l.wide_in + nin;
    l.far = f->far ? f->far[v] : NULL;
    for (uint32_t i = 0; i < nin; i++) {
        l.in[i] = l.wide_in[i] = f->in[1 + i];
        eval_retain(&l.in[i]);
        eval_retain(&l.wide_in[i]);
    }
    bool ok = loop_run(f, v, &l);
    for (uint32_t i = 0; i < all; i++) eval_release(f->e, &l.in[i]);
    for (uint64_t i = 0; i < l.scanned.n; i++) eval_release(f->e, &l.scanned.v[i]);
    free(l.scanned.v);
    free(l.in);
    return ok;
}

/* ---- Frames ---- */

static bool eval_node(Frame *f, Value v, const Node *n) {
    if (n->op == OP_if) return eval_if(f, v, n);
    if (n->op == OP_loop) return eval_loop(f, v, n);
    if (n->op == OP_proj) {
        f->v[v] = f->tuple[n->in[0]][n->attr.axis.axis];
        eval_retain(&f->v[v]);
        return true;
    }
    EvalFn fn = eval_fn((Op)n->op);
    Tensor *out = &f->v[v];
    *out = (Tensor){.dtype = eval_storage(f->e, n->type.dtype), .rank = n->type.rank};
    frame_type_dims(f->e, &n->type, out->dim);
    for (int i = 0; i < out->rank; i++)
        if (out->dim[i] < 0)
            return eval_fail(f->e, D_RUN, "%%%u %s: axis %d has the size %lld", v,
                             op_info[n->op].name, i, (long long)out->dim[i]);
    eval_contiguous_strides(out);
    return fn(f->e, f->g, n, f->in, out);
}

bool eval_sizes(const Graph *g, Value v) {
    Op op = (Op)graph_node(g, v)->op;
    return op == OP_compact || op == OP_loop || op == OP_if;
}

/* An unused `if` was decided when the graph was built. */
static bool find_sizing(Frame *f) {
    const Graph *g = f->g;
    uint8_t *used = calloc(g->nodes.n, 1);
    if (!used) return eval_fail(f->e, D_NO_MEMORY, "not enough memory: %u values", g->nodes.n);
    for (Value v = 1; v < g->nodes.n; v++)
        for (uint32_t i = 0; i < graph_node(g, v)->nin; i++) used[graph_node(g, v)->in[i]] = 1;
    for (uint32_t i = 0; i < g->outputs.n; i++) used[g->outputs.v[i].value] = 1;
    for (Value v = 1; v < g->nodes.n; v++)
        if (eval_sizes(g, v) && (used[v] || graph_node(g, v)->op != OP_if))
            f->sizing[f->nsizing++] = v;
    free(used);
    return true;
}

static void mark_roots(Frame *f) {
    const Graph *g = f->g;
    if (f->watch) {
        for (Value v = 1; v < g->nodes.n; v++)
            if (f->watch->what[v] & EVAL_LOOK) f->state[v] = FRAME_needed;
    } else {
        for (uint32_t i = 0; i < g->outputs.n; i++) {
            f->state[g->outputs.v[i].value] = FRAME_needed;
            f->uses[g->outputs.v[i].value]++;
        }
        for (uint32_t i = 0; i < g->writes.n; i++) {
            f->state[g->writes.v[i].value] = FRAME_needed;
            f->uses[g->writes.v[i].value]++;
        }
    }
    for (uint32_t i = 0; i < f->nsizing; i++) f->state[f->sizing[i]] = FRAME_needed;
    for (uint32_t i = 0; i < g->states.n; i++) f->uses[g->states.v[i].value]++;
}

static bool count_uses(Frame *f) {
    if (!find_sizing(f)) return false;
    mark_roots(f);
    for (Value v = f->g->nodes.n; --v > 0;) {
        const Node *n = graph_node(f->g, v);
        if (f->state[v] != FRAME_needed) continue;
        f->needed++;
        for (uint32_t i = 0; i < n->nin; i++) {
            f->state[n->in[i]] = FRAME_needed;
            f->uses[n->in[i]]++;
        }
    }
    return true;
}

static Tensor from_public(const EvalTensor *t) {
    Tensor x = {.dtype = t->dtype, .rank = t->rank, .data = t->data};
    if (t->rank) memcpy(x.dim, t->dim, t->rank * sizeof *x.dim);
    eval_contiguous_strides(&x);
    return x;
}

static bool bound_errors(Frame *f, Value v) {
    const Node *n = graph_node(f->g, v);
    bool loose = f->watch->what[v] & EVAL_LOOSE;
    for (uint32_t i = 0; i < n->nin; i++) f->err_in[i] = f->err[n->in[i]];
    if (!eval_error(f->e, f->g, n, f->in, f->err_in, &f->v[v], loose, &f->err[v])) return false;
    if (n->op == OP_proj && f->far[n->in[0]])
        eval_widen(&f->err[v], f->far[n->in[0]][n->attr.axis.axis]);
    return true;
}

/* Node v, whose operands are there. */
static bool frame_node(Frame *f, Value v) {
    const Node *n = graph_node(f->g, v);
    if (n->op == OP_input || n->op == OP_state) {
        f->state[v] = FRAME_made;
        f->made++;
        return true;
    }
    f->e->last = 0;
    for (uint32_t i = 0; i < n->nin; i++) {
        f->in[i] = f->v[n->in[i]];
        if (i < 32 && f->uses[n->in[i]] == 1) f->e->last |= 1u << i;
    }
    if (!eval_node(f, v, n) || (f->watch && !bound_errors(f, v))) return false;
    if (looked_at(f, v) && !look_at_whole(f, v)) return false;
    frame_done(f, v);
    return true;
}

/* The top of the stack, whose operands are there, or all up to the next that is looked at, if that
 * can be made in parts and the top is large. */
static bool frame_top(Frame *f, uint32_t *depth) {
    Slices s;
    const Value top = f->stack[*depth - 1];
    bool parts = slices_find(f, *depth, &s), ok;
    if (parts && s.missing) {
        f->stack[(*depth)++] = s.missing;
        ok = true;
    } else if (parts) {
        ok = slices_run(f, &s);
        if (ok) frame_done(f, s.root);
    } else {
        ok = frame_node(f, top);
    }
    slices_free(&s);
    return ok;
}

/* The operand of n that is missing and was built last, 0 if all are there: what was built early and
 * is needed late, as a weight that is cast, waits for it. */
static Value missing(const Frame *f, const Node *n) {
    Value last = 0;
    for (uint32_t i = 0; i < n->nin; i++)
        if (f->state[n->in[i]] != FRAME_made && n->in[i] > last) last = n->in[i];
    return last;
}

/* Node v and, before it, what it needs and is not there. */
static bool frame_make(Frame *f, Value v) {
    uint32_t depth = 0;
    if (f->state[v] != FRAME_made) f->stack[depth++] = v;
    while (depth) {
        const Value top = f->stack[depth - 1], first = missing(f, graph_node(f->g, top));
        if (f->state[top] == FRAME_made)
            depth--;
        else if (first)
            f->stack[depth++] = first;
        else if (!frame_top(f, &depth))
            return false;
    }
    return true;
}

/* The same, after every size that v may have. */
static bool frame_reach(Frame *f, Value v) {
    for (; f->sized < f->nsizing && f->sizing[f->sized] < v; f->sized++)
        if (!frame_make(f, f->sizing[f->sized])) return false;
    return frame_make(f, v);
}

static bool reach_outputs(Frame *f) {
    for (uint32_t i = 0; i < f->g->outputs.n; i++)
        if (!frame_reach(f, f->g->outputs.v[i].value)) return false;
    for (uint32_t i = 0; i < f->g->writes.n; i++)
        if (!frame_reach(f, f->g->writes.v[i].value)) return false;
    return true;
}

static bool frame_open(Frame *f, Eval *e, const Graph *g, const EvalWatch *watch) {
    uint32_t most = 0, n = g->nodes.n;
    for (Value v = 1; v < n; v++)
        if (graph_node(g, v)->nin > most) most = graph_node(g, v)->nin;
    *f = (Frame){.e = e, .g = g, .watch = watch};
    f->v = calloc(n, sizeof *f->v);
    f->tuple = calloc(n, sizeof *f->tuple);
    f->uses = calloc(n, sizeof *f->uses);
    f->in = calloc(most + 1, sizeof *f->in);
    f->state = calloc(n, sizeof *f->state);
    f->stack = calloc(n, sizeof *f->stack);
    f->sizing = calloc(n, sizeof *f->sizing);
    if (watch) {
        f->err = calloc(n, sizeof *f->err);
        f->err_in = calloc(most + 1, sizeof *f->err_in);
        f->far = calloc(n, sizeof *f->far);
    }
    if (!f->v || !f->tuple || !f->uses || !f->in || !f->state || !f->stack || !f->sizing ||
        (watch && (!f->err || !f->err_in || !f->far)))
        return eval_fail(e, D_NO_MEMORY, "not enough memory: %u values", n);
    return count_uses(f);
}

static void frame_close(Frame *f) {
    for (Value v = 1; f->v && f->tuple && v < f->g->nodes.n; v++) frame_drop(f, v);
    free(f->v);
    free(f->tuple);
    free(f->uses);
    free(f->in);
    free(f->state);
    free(f->stack);
    free(f->sizing);
    free(f->err);
    free(f->err_in);
    free(f->far);
}

static void frame_inputs(Frame *f, const Tensor *inputs) {
    for (uint32_t i = 0; i < f->g->inputs.n; i++) {
        Value v = f->g->inputs.v[i].value;
        f->v[v] = inputs[i];
        eval_retain(&inputs[i]);
    }
}

static bool run_body(Eval *e, const Graph *g, const Tensor *inputs, Tensor *outputs) {
    Frame f;
    bool ok = frame_open(&f, e, g, NULL);
    if (ok) {
        frame_inputs(&f, inputs);
        ok = reach_outputs(&f);
    }
    for (uint32_t i = 0; ok && i < g->outputs.n; i++) {
        outputs[i] = f.v[g->outputs.v[i].value];
        eval_retain(&outputs[i]);
    }
    frame_close(&f);
    return ok;
}

/* ---- Whole graphs ---- */

static EvalTensor to_public(Eval *e, const Type *type, const Tensor *x, Arena *a) {
    EvalTensor t = {.dtype = eval_storage(e, type->dtype), .rank = x->rank};
    if (x->rank) memcpy(t.dim, x->dim, x->rank * sizeof *t.dim);
    Tensor dst = from_public(&t);
    dst.to = t.data = arena_array(a, (size_t)eval_numel(x), dtype_bytes(t.dtype));
    eval_copy(&dst, x);
    return t;
}

EvalTensor eval_initial(const Graph *g, uint32_t state, Arena *a) {
    const StateInfo *s = &g->states.v[state];
    EvalTensor t = {.dtype = s->type.dtype, .rank = s->type.rank};
    size_t n = 1;
    for (int i = 0; i < t.rank; i++) {
        expr_is_const(g->exprs, s->type.dim[i], &t.dim[i]);
        n *= (size_t)t.dim[i];
    }
    t.data = arena_array(a, n, dtype_bytes(t.dtype));
    if (s->initial.bytes) memcpy(t.data, s->initial.data, s->initial.bytes);
    return t;
}

/* Sizes of states that grow. */
static void bind_states(const Graph *g, const EvalTensor *states, int64_t *sym) {
    for (uint32_t s = 0; s < expr_sym_count(g->exprs); s++) {
        const SymInfo *info = expr_sym_info(g->exprs, s);
        if (info->kind == SYM_DIM && info->a >= SYM_OF_STATE)
            sym[s] = states[info->a - SYM_OF_STATE].dim[info->b];
    }
}

static graphc_status take_states(const Graph *g, const EvalTensor *given, Arena *a,
                                 EvalTensor *states) {
    for (uint32_t i = 0; i < g->states.n; i++) {
        const StateInfo *s = &g->states.v[i];
        EvalTensor want = eval_initial(g, i, a);
        states[i] = given ? given[i] : want;
        if (s->grows && states[i].rank == want.rank)
            want.dim[s->grows - 1] = states[i].dim[s->grows - 1];
        if (states[i].rank != want.rank ||
            memcmp(states[i].dim, want.dim, want.rank * sizeof *want.dim) != 0)
            return diag(g->diags, D_RUN_INPUT, "", "state \"%s\" has another shape", s->name);
    }
    return GRAPHC_OK;
}

struct EvalRun {
    Eval e;
    Frame f;
    EvalOptions opt;
    EvalTensor *states; /* before the run */
};

static void give_states(EvalRun *r, Arena *a) {
    const Graph *g = r->f.g;
    EvalTensor *next = r->opt.next;
    for (uint32_t i = 0; i < g->states.n; i++) next[i] = r->states[i];
    for (uint32_t i = 0; i < g->writes.n; i++) {
        const StateWrite *w = &g->writes.v[i];
        if (!entries_meet(w->entries, 1u << r->opt.entry)) continue;
        next[w->state] = to_public(&r->e, graph_type(g, w->value), &r->f.v[w->value], a);
    }
}

static graphc_status open_run(EvalRun *r, const Graph *g, const EvalTensor *inputs, Arena *a) {
    r->e.sym = ARENA_ARRAY(a, int64_t, expr_sym_count(g->exprs) + 1);
    GC_TRY(eval_bind(g, inputs, r->e.sym));
    Tensor *in = ARENA_ARRAY(a, Tensor, g->inputs.n);
    for (uint32_t i = 0; i < g->inputs.n; i++) in[i] = from_public(&inputs[i]);
    r->states = ARENA_ARRAY(a, EvalTensor, g->states.n);
    GC_TRY(take_states(g, r->opt.states, a, r->states));
    if (!frame_open(&r->f, &r->e, g, r->f.watch)) return r->e.status;
    r->f.opt = &r->opt;
    frame_inputs(&r->f, in);
    for (uint32_t i = 0; i < g->states.n; i++)
        r->f.v[g->states.v[i].value] = from_public(&r->states[i]);
    bind_states(g, r->states, r->e.sym);
    return GRAPHC_OK;
}

graphc_status eval_open(const Graph *g, const EvalTensor *inputs, const EvalOptions *opt, Arena *a,
                        const EvalWatch *watch, EvalRun **out) {
    EvalRun *r = *out = ARENA_NEW(a, EvalRun);
    *r = (EvalRun){.e = {.exprs = g->exprs, .diags = g->diags}, .f = {.g = g, .watch = watch}};
    if (opt) r->opt = *opt;
    r->e.errors = watch != NULL;
    r->e.round = r->opt.round_f32;
    r->e.round_halves = r->opt.round_halves;
    r->e.limit = r->opt.max_bytes ? r->opt.max_bytes : DEFAULT_LIMIT;
    r->e.part = slices_part_bytes(g);
    return open_run(r, g, inputs, a);
}

graphc_status eval_reach(EvalRun *r, Value v) {
    return frame_reach(&r->f, v) ? GRAPHC_OK : r->e.status;
}

void eval_close(EvalRun *r) {
    if (r && r->f.e) frame_close(&r->f);
}

graphc_status eval_run(const Graph *g, const EvalTensor *inputs, const EvalOptions *opt, Arena *a,
                       EvalTensor *outputs) {
    EvalRun *r;
    graphc_status s = eval_open(g, inputs, opt, a, NULL, &r);
    if (s == GRAPHC_OK && !reach_outputs(&r->f)) s = r->e.status;
    if (s == GRAPHC_OK && r->opt.next) give_states(r, a);
    for (uint32_t i = 0; s == GRAPHC_OK && i < g->outputs.n; i++) {
        Value v = g->outputs.v[i].value;
        outputs[i] = to_public(&r->e, graph_type(g, v), &r->f.v[v], a);
    }
    eval_close(r);
    return s;
}

/* ---- Binding ---- */

static graphc_status input_error(const Graph *g, uint32_t i, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static graphc_status input_error(const Graph *g, uint32_t i, const char *fmt, ...) {
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return diag(g->diags, D_RUN_INPUT, "", "input \"%s\": %s", g->inputs.v[i].name, text);
}

static graphc_status bind_symbols(const Graph *g, const EvalTensor *inputs, int64_t *sym) {
    for (uint32_t s = 0; s < expr_sym_count(g->exprs); s++) {
        const SymInfo *info = expr_sym_info(g->exprs, s);
        sym[s] = 0;
        if ((info->kind != SYM_DIM && info->kind != SYM_ELEM) || info->a >= g->inputs.n) continue;
        const EvalTensor *t = &inputs[info->a];
        if (info->kind == SYM_ELEM) {
            sym[s] = dtype_load_i64(t->dtype, t->data, info->b);
        } else {
            if (info->b >= t->rank) continue;
            sym[s] = t->dim[info->b];
        }
        if (sym[s] < info->lo || sym[s] > info->hi)
            return input_error(g, info->a, "%s is %lld, outside %lld..%lld", info->name,
                               (long long)sym[s], (long long)info->lo, (long long)info->hi);
    }
    return GRAPHC_OK;
}

static graphc_status check_input(const Graph *g, uint32_t i, const EvalTensor *t) {
    const Type *want = &g->inputs.v[i].type;
    if (t->dtype != want->dtype)
        return input_error(g, i, "is %s, not %s", dtype_name(t->dtype), dtype_name(want->dtype));
    if (t->rank != want->rank) return input_error(g, i, "has %d axes, not %d", t->rank, want->rank);
    return GRAPHC_OK;
}

static graphc_status check_dims(const Graph *g, uint32_t i, const EvalTensor *t,
                                const int64_t *sym) {
    for (int d = 0; d < t->rank; d++) {
        int64_t want = expr_eval(g->exprs, g->inputs.v[i].type.dim[d], sym);
        if (want != t->dim[d])
            return input_error(g, i, "axis %d has size %lld, not %lld", d, (long long)t->dim[d],
                               (long long)want);
    }
    return GRAPHC_OK;
}

typedef struct Bindable {
    ExprPool *exprs;
    bool yes;
} Bindable;

static void note_symbol(void *ctx, uint32_t sym) {
    Bindable *b = ctx;
    SymKind k = expr_sym_info(b->exprs, sym)->kind;
    b->yes &= k == SYM_DIM || k == SYM_ELEM;
}

/* Assumptions over symbols that inputs fix; others hold by construction or fail where used. */
static graphc_status check_assumptions(const Graph *g, const int64_t *sym) {
    for (uint32_t i = 0; i < g->nassume; i++) {
        Bindable b = {g->exprs, true};
        expr_each_sym(g->exprs, g->assume[i].a, note_symbol, &b);
        expr_each_sym(g->exprs, g->assume[i].b, note_symbol, &b);
        if (!b.yes) continue;
        int64_t x = expr_eval(g->exprs, g->assume[i].a, sym);
        int64_t y = expr_eval(g->exprs, g->assume[i].b, sym);
        if (x == y) continue;
        return diag(g->diags, D_RUN_INPUT, graph_place(g, g->assume[i].loc, g->arena),
                    "sizes that must agree are %lld and %lld", (long long)x, (long long)y);
    }
    return GRAPHC_OK;
}

graphc_status eval_bind(const Graph *g, const EvalTensor *inputs, int64_t *sym_values) {
    for (uint32_t i = 0; i < g->inputs.n; i++) GC_TRY(check_input(g, i, &inputs[i]));
    GC_TRY(bind_symbols(g, inputs, sym_values));
    for (uint32_t i = 0; i < g->inputs.n; i++) GC_TRY(check_dims(g, i, &inputs[i], sym_values));
    return check_assumptions(g, sym_values);
}

/* ---- Folding ---- */

/* A constant, or one that an expand repeats. */
static bool fold_operand(const Graph *g, Value v, Tensor *out) {
    const Node *n = graph_node(g, v), *c = n->op == OP_expand ? graph_node(g, n->in[0]) : n;
    if (c->op != OP_const) return false;
    *out = (Tensor){.dtype = c->type.dtype, .rank = c->type.rank};
    for (int i = 0; i < c->type.rank; i++)
        if (!expr_is_const(g->exprs, c->type.dim[i], &out->dim[i])) return false;
    eval_contiguous_strides(out);
    out->data = c->attr.constant.data;
    for (int i = 0; i < n->type.rank; i++) {
        if (out->dim[i] == 1) out->stride[i] = 0;
        if (!expr_is_const(g->exprs, n->type.dim[i], &out->dim[i])) return false;
    }
    return true;
}

static bool fold_run(Eval *e, Graph *g, const Node *n, const Tensor *in, Constant *out) {
    EvalFn fn = eval_fn((Op)n->op);
    Tensor y = {.dtype = n->type.dtype, .rank = n->type.rank}, flat = {0};
    for (int i = 0; i < y.rank; i++)
        if (!expr_is_const(g->exprs, n->type.dim[i], &y.dim[i])) return false;
    eval_contiguous_strides(&y);
    bool ok = fn && fn(e, g, n, in, &y) && eval_make_contiguous(e, &y, &flat);
    if (ok) {
        out->bytes = (uint64_t)eval_numel(&flat) * dtype_bytes(flat.dtype);
        out->data = arena_copy(g->arena, flat.data, out->bytes);
        out->name = "";
    }
    eval_release(e, &flat);
    eval_release(e, &y);
    return ok;
}

bool eval_fold(Graph *g, const Node *n, Constant *out) {
    Eval e = {.exprs = g->exprs, .round = true, .limit = FOLD_LIMIT};
    Tensor *in = calloc(n->nin + 1, sizeof *in);
    bool ok = in != NULL;
    for (uint32_t i = 0; ok && i < n->nin; i++) ok = fold_operand(g, n->in[i], &in[i]);
    ok = ok && fold_run(&e, g, n, in, out);
    free(in);
    return ok;
}
