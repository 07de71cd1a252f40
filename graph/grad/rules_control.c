/* if and loop: the gradient of a body is a body, made by copying it and walking the copy. */
#include "graph/grad/grad_impl.h"

/* ---- What both share ---- */

/* The gradient of a result waits at its tuple until the walk comes to it. */
void grad_of_proj(Walk *w, Value v, Value dy) {
    const Node n = *graph_node(w->g, v);
    const Control *c = graph_node(w->g, n.in[0])->attr.control;
    if (!w->result[n.in[0]]) w->result[n.in[0]] = ARENA_ARRAY(w->g->arena, Value, c->nresults);
    w->result[n.in[0]][n.attr.axis.axis] = dy;
}

static Graph *new_body(Graph *g) {
    Graph *b = graph_create(g->arena, g->exprs, g->diags, "grad");
    b->is_body = true;
    for (uint32_t i = 0; i < g->files.n; i++) vec_push(b->arena, &b->files, g->files.v[i]);
    build_at(b, build_loc_from(b, g, build_loc(g), 0));
    return b;
}

static Value body_input(Graph *b, const char *what, uint32_t i, const Type *t) {
    return build_input(b, arena_printf(b->arena, "%s.%u", what, i), *t);
}

typedef VEC(Value) Values;

/* dy if there is one, else zeros of x's type. */
static Value or_zeros(Graph *g, Value dx, Value x) {
    return dx ? dx : grad_full(g, x, 0);
}

/* ---- if: in each branch the gradients of what that branch made of its captures ---- */

/* Inputs: the captures, then the gradients of the results that have one. */
static Graph *branch_gradients(Walk *w, const Node *n, const Value *dresult, const Graph *branch,
                               Values *dy) {
    Graph *g = w->g, *b = new_body(g);
    const Control *c = n->attr.control;
    const uint32_t captures = n->nin - 1;
    Value *in = ARENA_ARRAY(g->arena, Value, captures), *out, *y, *d, *wrt, *dwrt;
    out = ARENA_ARRAY(g->arena, Value, c->nresults);
    y = ARENA_ARRAY(g->arena, Value, c->nresults);
    d = ARENA_ARRAY(g->arena, Value, c->nresults);
    wrt = ARENA_ARRAY(g->arena, Value, captures);
    dwrt = ARENA_ARRAY(g->arena, Value, captures);
    uint32_t ny = 0, nwrt = 0;
    for (uint32_t i = 0; i < captures; i++) {
        in[i] = body_input(b, "capture", i, graph_type(g, n->in[i + 1]));
        if (grad_wants(w, n->in[i + 1])) wrt[nwrt++] = in[i];
    }
    if (!build_inline(b, branch, in, 0, 0, out)) return NULL;
    dy->n = 0;
    for (uint32_t i = 0; i < c->nresults; i++) {
        if (!dresult[i]) continue;
        vec_push(g->arena, dy, dresult[i]);
        y[ny] = out[i];
        d[ny++] = body_input(b, "gradient", i, graph_type(g, dresult[i]));
    }
    if (grad_build(b, ny, y, d, nwrt, wrt, dwrt) != GRAPHC_OK) return NULL;
    for (uint32_t i = 0; i < nwrt; i++) build_output(b, "gradient", or_zeros(b, dwrt[i], wrt[i]));
    return b;
}

void grad_of_if(Walk *w, Value v, Value dy) {
    Graph *g = w->g;
    const Node n = *graph_node(g, v);
    Graph *branch[2];
    Values in = {0}, out = {0};
    (void)dy;
    for (int k = 0; k < 2; k++) {
        branch[k] = branch_gradients(w, &n, w->result[v], n.attr.control->body[k], &out);
        if (!branch[k]) w->failed = true;
    }
    if (w->failed) return;
    for (uint32_t i = 1; i < n.nin; i++) vec_push(g->arena, &in, n.in[i]);
    for (uint32_t i = 0; i < out.n; i++) vec_push(g->arena, &in, out.v[i]);
    Value tuple = build_if(g, n.in[0], branch[0], branch[1], in.v, in.n);
    for (uint32_t i = 1, k = 0; i < n.nin; i++)
        if (grad_wants(w, n.in[i])) grad_add(w, n.in[i], build_proj(g, tuple, k++));
}

/* ---- loop ----
 *
 * Another loop runs through the iterations backwards. It carries the gradients of what the loop
 * carries, and the sums of the gradients of its captures. What each iteration started from is
 * stacked by the loop; what it computed from that is computed again.
 *
 * Its body is made twice: the first one tells what need not be stacked, and which captures are read
 * a row in each iteration, so that rows of gradients are stacked instead of whole ones summed. */

/* The gradient of a capture, if iteration j has one of row sign*j + first along the axis only. */
typedef struct Rows {
    bool is;
    int axis, sign;
    Expr first;
} Rows;

typedef struct Loop {
    Walk *w;
    Graph *g;
    Value v;
    Node n;
    Control *c;
    uint32_t ncaptures;
    const Value *carried, *captures; /* operands */
    const Value *dresult;            /* gradients of results */
    bool *moves;                     /* carried values that depend on what is wanted */
    bool *used;                      /* carried values that the gradient of an iteration reads */
    Rows *rows;                      /* of captures */
    Value *stack;                    /* of carried values, once made */
    Expr trips, t;                   /* iterations; the one that iteration j turns back */
    uint32_t iter;                   /* the symbol j */
} Loop;

/* The body of the backward loop. Inputs: cond, gradients of carried values, sums for captures, then
 * what it captures: the loop's own captures, stacks of carried values, gradients of stacked
 * results. Outputs: cond, gradients, sums, rows. */
typedef struct Backward {
    Graph *b;
    Values initial, captures; /* operands of the backward loop */
    Value *in, *out;          /* of one iteration, as the loop's body has them */
    Value *gradient, *sum;    /* inputs, by carried value and capture */
    Value *stacked;           /* inputs, by carried value */
    Values y, dy, wrt;
    Value *dwrt;
} Backward;

static bool sums(const Loop *l, uint32_t capture) {
    return grad_wants(l->w, l->captures[capture]) && !l->rows[capture].is;
}

static Value row_at(Graph *b, Value stack, Expr at) {
    return build_squeeze(b, build_slice_axis(b, stack, 0, at, expr_const(b->exprs, 1), 1), 0);
}

static Type stacked_type(const Loop *l, const Type *row) {
    Type t = {.dtype = row->dtype, .rank = (uint8_t)(row->rank + 1), .dim = {l->trips}};
    for (int i = 0; i < row->rank; i++) t.dim[i + 1] = row->dim[i];
    return t;
}

/* A captured input of the backward body. */
static Value captured(Backward *k, const char *what, uint32_t i, const Type *t, Value operand) {
    vec_push(k->b->arena, &k->captures, operand);
    return body_input(k->b, what, i, t);
}

static Value carried_in(Backward *k, const char *what, uint32_t i, Value initial, const Type *t) {
    vec_push(k->b->arena, &k->initial, initial);
    return body_input(k->b, what, i, t);
}

static void carried_inputs(const Loop *l, Backward *k) {
    const Graph *body = l->c->body[0];
    build_input(k->b, "cond", (Type){.dtype = DT_bool});
    for (uint32_t i = 0; i < l->c->ncarried; i++)
        if (l->moves[i])
            k->gradient[i] =
                carried_in(k, "gradient", i, or_zeros(l->g, l->dresult[i], l->carried[i]),
                           &body->inputs.v[1 + i].type);
    for (uint32_t i = 0; i < l->ncaptures; i++)
        if (sums(l, i))
            k->sum[i] = carried_in(k, "sum", i, grad_full(l->g, l->captures[i], 0),
                                   graph_type(l->g, l->captures[i]));
}

/* What iteration t started from. A carried value that no gradient reads is of no matter: its first
 * one stands in. */
static void iteration_inputs(const Loop *l, Backward *k) {
    const Graph *body = l->c->body[0];
    const uint32_t n = l->c->ncarried;
    k->in[0] = build_scalar_i(k->b, DT_bool, 1);
    for (uint32_t i = 0; i < l->ncaptures; i++)
        k->in[1 + n + i] =
            captured(k, "capture", i, graph_type(l->g, l->captures[i]), l->captures[i]);
    for (uint32_t i = 0; i < n; i++) {
        const Type *t = &body->inputs.v[1 + i].type, stack = stacked_type(l, t);
        if (!l->used[i]) {
            k->in[1 + i] = captured(k, "start", i, t, l->carried[i]);
            continue;
        }
        k->stacked[i] = captured(k, "stack", i, &stack, l->stack[i]);
        k->in[1 + i] = row_at(k->b, k->stacked[i], l->t);
    }
}

static void iteration_results(const Loop *l, Backward *k) {
    Arena *a = l->g->arena;
    const Control *c = l->c;
    for (uint32_t i = 0; i < c->nresults; i++) {
        const bool scanned = i >= c->ncarried;
        const Value dresult = l->dresult[i];
        if (scanned ? !dresult : !l->moves[i]) continue;
        Value dy = k->gradient[scanned ? 0 : i];
        if (scanned)
            dy = row_at(k->b, captured(k, "result", i, graph_type(l->g, dresult), dresult), l->t);
        vec_push(a, &k->y, k->out[1 + i]);
        vec_push(a, &k->dy, dy);
    }
    for (uint32_t i = 0; i < c->ncarried; i++)
        if (l->moves[i]) vec_push(a, &k->wrt, k->in[1 + i]);
    for (uint32_t i = 0; i < l->ncaptures; i++)
        if (grad_wants(l->w, l->captures[i])) vec_push(a, &k->wrt, k->in[1 + c->ncarried + i]);
}

/* The row that a gradient has, squeezed out of the pad that surrounds it with zeros. */
static Value row_of(Graph *b, Value dx, int axis) {
    return build_squeeze(b, graph_node(b, dx)->in[0], axis);
}

static void body_results(const Loop *l, Backward *k) {
    Graph *b = k->b;
    uint32_t at = 0;
    build_output(b, "cond", build_scalar_i(b, DT_bool, 1));
    for (uint32_t i = 0; i < l->c->ncarried; i++)
        if (l->moves[i]) {
            build_output(b, "gradient", or_zeros(b, k->dwrt[at], k->gradient[i]));
            at++;
        }
    const uint32_t of_captures = at;
    for (uint32_t i = 0; i < l->ncaptures; i++) {
        if (!grad_wants(l->w, l->captures[i])) continue;
        const Value dx = k->dwrt[at++];
        if (sums(l, i))
            build_output(b, "sum", dx ? build_binary(b, OP_add, k->sum[i], dx) : k->sum[i]);
    }
    at = of_captures;
    for (uint32_t i = 0; i < l->ncaptures; i++) {
        if (!grad_wants(l->w, l->captures[i])) continue;
        if (!sums(l, i)) build_output(b, "row", row_of(b, k->dwrt[at], l->rows[i].axis));
        at++;
    }
}

static bool backward_body(const Loop *l, Backward *k) {
    Arena *a = l->g->arena;
    const Control *c = l->c;
    const uint32_t n = c->ncarried;
    *k = (Backward){.b = new_body(l->g)};
    k->in = ARENA_ARRAY(a, Value, 1 + n + l->ncaptures);
    k->out = ARENA_ARRAY(a, Value, c->body[0]->outputs.n);
    k->gradient = ARENA_ARRAY(a, Value, n + 1);
    k->stacked = ARENA_ARRAY(a, Value, n);
    k->sum = ARENA_ARRAY(a, Value, l->ncaptures);
    carried_inputs(l, k);
    iteration_inputs(l, k);
    if (!build_inline(k->b, c->body[0], k->in, c->iter, l->t, k->out)) return false;
    iteration_results(l, k);
    k->dwrt = ARENA_ARRAY(a, Value, k->wrt.n);
    if (grad_build(k->b, k->y.n, k->y.v, k->dy.v, k->wrt.n, k->wrt.v, k->dwrt) != GRAPHC_OK)
        return false;
    body_results(l, k);
    return true;
}

/* ---- What the first body tells ---- */

static bool *needed(const Graph *b) {
    bool *live = ARENA_ARRAY(b->arena, bool, b->nodes.n);
    for (uint32_t i = 0; i < b->outputs.n; i++) live[b->outputs.v[i].value] = true;
    for (Value v = b->nodes.n; v-- > 1;)
        for (uint32_t i = 0; live[v] && i < graph_node(b, v)->nin; i++)
            live[graph_node(b, v)->in[i]] = true;
    return live;
}

/* dx is zero but for one row, which is another one in each iteration. */
static Rows rows_of(const Loop *l, const Graph *b, Value dx) {
    Rows r = {.axis = -1};
    double fill;
    const Node *n = graph_node(b, dx);
    if (!dx || n->op != OP_pad || !build_const_f64(b, n->in[1], &fill) || fill != 0) return r;
    const Type *x = graph_type(b, n->in[0]);
    for (int i = 0; i < x->rank; i++) {
        Expr step, zero = expr_const(b->exprs, 0);
        int64_t by;
        if (n->attr.pad.lo[i] == zero && n->attr.pad.hi[i] == zero) continue;
        if (r.axis >= 0 || !expr_is_value(b->exprs, x->dim[i], 1)) return (Rows){0};
        if (!expr_affine(b->exprs, n->attr.pad.lo[i], l->iter, &step, &r.first)) return (Rows){0};
        if (!expr_is_const(b->exprs, step, &by) || (by != 1 && by != -1)) return (Rows){0};
        r.axis = i;
        r.sign = (int)by;
    }
    r.is = r.axis >= 0;
    return r;
}

static void learn(Loop *l, const Backward *k) {
    const bool *live = needed(k->b);
    uint32_t at = 0;
    for (uint32_t i = 0; i < l->c->ncarried; i++) {
        at += l->moves[i];
        l->used[i] = live[k->stacked[i]];
    }
    for (uint32_t i = 0; i < l->ncaptures; i++)
        if (grad_wants(l->w, l->captures[i])) l->rows[i] = rows_of(l, k->b, k->dwrt[at++]);
}

/* ---- The loop itself ---- */

/* Carried values that depend on what is wanted, in the first iteration or in a later one. */
static void find_moves(Loop *l) {
    const Graph *body = l->c->body[0];
    bool grows = true;
    for (uint32_t i = 0; i < l->c->ncarried; i++) l->moves[i] = grad_wants(l->w, l->carried[i]);
    while (grows) {
        bool *reached = ARENA_ARRAY(l->g->arena, bool, body->nodes.n);
        for (uint32_t i = 0; i < l->c->ncarried; i++)
            reached[body->inputs.v[1 + i].value] = l->moves[i];
        for (uint32_t i = 0; i < l->ncaptures; i++)
            reached[body->inputs.v[1 + l->c->ncarried + i].value] =
                grad_wants(l->w, l->captures[i]);
        grad_reach(body, reached, NULL);
        grows = false;
        for (uint32_t i = 0; i < l->c->ncarried; i++) {
            grows |= !l->moves[i] && reached[body->outputs.v[1 + i].value];
            l->moves[i] |= reached[body->outputs.v[1 + i].value];
        }
    }
}

static void stack_carried(Loop *l, uint32_t i) {
    if (!l->stack[i])
        l->stack[i] = build_loop_stack(l->g, l->v, l->c->body[0]->inputs.v[1 + i].value);
}

/* Known beforehand, or what the loop counts for its stacked results. */
static void count_trips(Loop *l) {
    if (!l->c->trip && !l->c->nscanned) stack_carried(l, 0);
    l->trips = l->c->trip ? l->c->trip : l->c->results[l->c->ncarried].dim[0];
}

static void open_loop(Loop *l, Walk *w, Value v) {
    Graph *g = w->g;
    ExprPool *p = g->exprs;
    *l =
        (Loop){.w = w, .g = g, .v = v, .n = *graph_node(g, v), .c = graph_node(g, v)->attr.control};
    const uint32_t n = l->c->ncarried, before = l->c->nresults;
    l->carried = l->n.in + 2;
    l->captures = l->carried + n;
    l->ncaptures = l->n.nin - 2 - n;
    l->moves = ARENA_ARRAY(g->arena, bool, n);
    l->used = ARENA_ARRAY(g->arena, bool, n);
    l->stack = ARENA_ARRAY(g->arena, Value, n);
    l->rows = ARENA_ARRAY(g->arena, Rows, l->ncaptures);
    for (uint32_t i = 0; i < n; i++) l->used[i] = true;
    find_moves(l);
    count_trips(l);
    Value *dresult = ARENA_ARRAY(g->arena, Value, l->c->nresults + n);
    for (uint32_t i = 0; i < before; i++) dresult[i] = w->result[v][i];
    l->dresult = dresult;
    SymInfo s = {.name = "back", .kind = SYM_ITER, .lo = 0, .hi = INT32_MAX, .below = l->trips};
    const Expr j = expr_sym_new(p, s);
    (void)expr_is_sym(p, j, &l->iter);
    l->t = expr_sub(p, expr_addi(p, l->trips, -1), j);
}

/* Rows of all iterations [trips, ..] in their places along the axis of x. */
static Value placed_rows(const Loop *l, const Rows *r, Value x, Value rows) {
    Graph *g = l->g;
    ExprPool *p = g->exprs;
    if (!rows) return 0;
    const Type t = *graph_type(g, x);
    const Expr last = expr_addi(p, l->trips, -1), zero = expr_const(p, 0);
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK], at = r->first;
    uint8_t perm[GRAPH_MAX_RANK];
    if (r->sign < 0) {
        rows = build_slice_axis(g, rows, 0, last, l->trips, -1);
        at = expr_sub(p, at, last);
    }
    for (int i = 0; i < t.rank; i++) {
        perm[i] = (uint8_t)(i < r->axis ? i + 1 : i == r->axis ? 0 : i);
        lo[i] = hi[i] = zero;
    }
    lo[r->axis] = at;
    hi[r->axis] = expr_sub(p, t.dim[r->axis], expr_add(p, at, l->trips));
    return build_pad(g, build_permute(g, rows, perm), build_scalar_f(g, t.dtype, 0), lo, hi, NULL);
}

static void add_results(const Loop *l, Value tuple) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < l->c->ncarried; i++)
        if (l->moves[i]) {
            Value d = build_proj(l->g, tuple, at++);
            grad_add(l->w, l->carried[i], d);
        }
    for (uint32_t i = 0; i < l->ncaptures; i++)
        if (sums(l, i)) grad_add(l->w, l->captures[i], build_proj(l->g, tuple, at++));
    for (uint32_t i = 0; i < l->ncaptures; i++)
        if (l->rows[i].is)
            grad_add(l->w, l->captures[i],
                     placed_rows(l, &l->rows[i], l->captures[i], build_proj(l->g, tuple, at++)));
}

/* No iteration: what is carried stays as it was. */
static void pass_through(const Loop *l) {
    for (uint32_t i = 0; i < l->c->ncarried; i++)
        if (l->dresult[i]) grad_add(l->w, l->carried[i], l->dresult[i]);
}

void grad_of_loop(Walk *w, Value v, Value dy) {
    Graph *g = w->g;
    Loop l;
    Backward k;
    (void)dy;
    open_loop(&l, w, v);
    if (expr_is_value(g->exprs, l.trips, 0)) {
        pass_through(&l);
        return;
    }
    if (backward_body(&l, &k)) {
        learn(&l, &k);
        for (uint32_t i = 0; i < l.c->ncarried; i++)
            if (l.used[i]) stack_carried(&l, i);
        if (backward_body(&l, &k)) {
            Value tuple =
                build_loop(g, build_expr(g, DT_i64, l.trips), build_scalar_i(g, DT_bool, 1),
                           k.initial.v, k.initial.n, k.captures.v, k.captures.n, k.b, l.iter);
            add_results(&l, tuple);
            return;
        }
    }
    w->failed = true;
}
