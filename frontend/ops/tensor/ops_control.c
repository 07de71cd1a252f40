/* If, Loop and Scan. What is decided at compile time is inlined: the branch of a known condition,
 * the iterations of a short loop. The rest becomes the core ops `if` and `loop`. A loop that counts
 * up to a limit has a known number of iterations, and what it appends to a sequence is stacked. */
#include "frontend/import/formula.h"
#include "frontend/import/import_impl.h"

enum {
    UNROLL_LIMIT = 64,
    UNROLL_NESTED = 1024 /* copies of one body, where unrolled loops stand in each other */
};

static int64_t unroll_limit(const Lower *l) {
    const int64_t left = UNROLL_NESTED / l->im->copies;
    return left < UNROLL_LIMIT ? left : UNROLL_LIMIT;
}

static bool known_bool(Graph *g, Value v, bool *out) {
    uint32_t n;
    int64_t k;
    const Expr *e = v ? build_elems(g, v, false, &n) : NULL;
    if (!e || n != 1 || !expr_is_const(g->exprs, e[0], &k)) return false;
    *out = k != 0;
    return true;
}

static bool known_int(Graph *g, Value v, int64_t *out) {
    uint32_t n;
    const Expr *e = v ? build_elems(g, v, false, &n) : NULL;
    return e && n == 1 && expr_is_const(g->exprs, e[0], out);
}

static void out_projections(Lower *l, Value tuple) {
    for (uint32_t i = 0; i < lower_nout(l); i++)
        if (lower_has_out(l, i)) lower_out(l, i, build_proj(lower_graph(l), tuple, i));
}

static Item tensor_item(Value v) {
    return (Item){.kind = ITEM_TENSOR, .v = v};
}

/* ---- If ------------------------------------------------------------------------------------ */

static bool inline_branch(Lower *l, const char *branch) {
    uint32_t n = lower_nout(l);
    Item *out = ARENA_ARRAY(lower_graph(l)->arena, Item, n);
    if (!lower_inline_items(l, branch, NULL, 0, out, n)) return false;
    for (uint32_t i = 0; i < n; i++) lower_out_item(l, i, out[i]);
    return true;
}

static bool ranks_differ(const Graph *a, const Graph *b) {
    for (uint32_t i = 0; i < a->outputs.n && i < b->outputs.n; i++)
        if (a->outputs.v[i].type.rank != b->outputs.v[i].type.rank) return true;
    return false;
}

/* Exporters write "squeeze if that size is 1" as an If whose results differ in rank. Such a
 * condition on sizes is taken to hold, and checked when the inputs are bound. */
static bool assume_true(Lower *l, Value cond) {
    uint32_t n;
    const Expr *e = build_elems(lower_graph(l), cond, false, &n);
    if (!e || n != 1 || lower_is_fed(l, e[0])) return false;
    lower_assume(l, e[0], expr_const(lower_exprs(l), 1));
    return true;
}

static bool same_kind(const Graph *g, const Item *a, const Item *b) {
    if (a->kind != b->kind || a->n != b->n) return false;
    if (a->kind == ITEM_TENSOR) return type_equal(graph_type(g, a->v), graph_type(g, b->v));
    for (uint32_t i = 0; a->kind == ITEM_LIST && i < a->n; i++)
        if (!type_equal(graph_type(g, a->list[i]), graph_type(g, b->list[i]))) return false;
    return a->kind == ITEM_LIST;
}

static Item select_item(Graph *g, Value cond, const Item *a, const Item *b) {
    Item out = *a;
    if (a->kind == ITEM_TENSOR) {
        out.v = build_select(g, cond, a->v, b->v);
        return out;
    }
    Value *list = ARENA_ARRAY(g->arena, Value, a->n);
    for (uint32_t i = 0; i < a->n; i++) list[i] = build_select(g, cond, a->list[i], b->list[i]);
    out.list = list;
    out.room = NULL;
    return out;
}

/* Computes both branches and selects, so that they fuse with what surrounds them. Only where their
 * results have the same types, and neither relies on sizes that may hold in that branch alone. */
static bool convert_if(Lower *l, Value cond) {
    Graph *g = lower_graph(l);
    uint32_t n = lower_nout(l), assumed = g->nassume;
    Item *a = ARENA_ARRAY(g->arena, Item, n), *b = ARENA_ARRAY(g->arena, Item, n);
    bool same = lower_inline_items(l, "then_branch", NULL, 0, a, n);
    same &= lower_inline_items(l, "else_branch", NULL, 0, b, n); /* for its errors, in any case */
    same &= g->nassume == assumed;
    for (uint32_t i = 0; same && i < n; i++) same = same_kind(g, &a[i], &b[i]);
    g->nassume = assumed;
    if (!same) return false;
    cond = build_reshape(g, cond, 0, NULL);
    for (uint32_t i = 0; i < n; i++) lower_out_item(l, i, select_item(g, cond, &a[i], &b[i]));
    return true;
}

/* A condition of unknown length has to be one. */
static Value one_condition(Lower *l, Value cond) {
    Graph *g = lower_graph(l);
    int64_t n;
    if (!cond || v_rank(g, cond) != 1 || v_dim_const(g, cond, 0, &n)) return cond;
    lower_assume(l, v_dim(g, cond, 0), v_int(g, 1));
    return v_at(g, cond, 0, v_int(g, 0));
}

/* An If that cannot be converted is lowered a second time, as a node. What stands in its branches
 * and could not be converted in the first round is not tried in the second: else a nest of n would
 * be lowered 2^n times. */
static bool try_convert(Lower *l, Value cond) {
    uint32_t failed;
    if (map_get(l->im->no_select, (uintptr_t)l->node, &failed)) return false;
    if (convert_if(l, cond)) return true;
    map_put(l->im->no_select, (uintptr_t)l->node, 1);
    return false;
}

static bool lower_unknown_if(Lower *l, Value cond) {
    Graph *g = lower_graph(l);
    uint32_t errors = diag_errors(g->diags);
    if (try_convert(l, cond)) return true;
    if (diag_errors(g->diags) != errors) return false;
    LowerCaptures captures = {0};
    Graph *then_g = lower_subgraph(l, "then_branch", NULL, 0, &captures);
    Graph *else_g = lower_subgraph(l, "else_branch", NULL, 0, &captures);
    if (!then_g || !else_g) return false;
    if (ranks_differ(then_g, else_g) && assume_true(l, cond))
        return inline_branch(l, "then_branch");
    lower_add_captures(l, then_g, 0, &captures);
    out_projections(l, build_if(g, cond, then_g, else_g, captures.values.v, captures.values.n));
    return true;
}

static bool lower_if(Lower *l) {
    Value cond = one_condition(l, lower_in(l, 0));
    if (!cond) return false;
    bool taken, outermost = !l->im->no_select;
    if (known_bool(lower_graph(l), cond, &taken))
        return inline_branch(l, taken ? "then_branch" : "else_branch");
    if (outermost) l->im->no_select = map_create(l->im->arena);
    bool ok = lower_unknown_if(l, cond);
    if (outermost) l->im->no_select = NULL;
    return ok;
}

/* ---- Loop ---------------------------------------------------------------------------------- */

typedef struct LoopIn {
    Value trip, cond; /* 0 = absent */
    uint32_t ncarried, nscanned;
    Item *carried;
    VEC(Value) * scanned; /* one list for each scan output */
} LoopIn;

/* Stacks the elements along a new axis. */
static Value stack(Graph *g, const Value *v, uint32_t n, int axis) {
    Value *parts = ARENA_ARRAY(g->arena, Value, n);
    for (uint32_t i = 0; i < n; i++) parts[i] = build_unsqueeze(g, v[i], axis);
    return build_concat(g, parts, n, axis);
}

/* One iteration; *go = whether the body wants another. False if that is not known (nothing is
 * reported then) or after an error. */
static bool unroll_once(Lower *l, LoopIn *in, int64_t iteration, bool *go) {
    Graph *g = lower_graph(l);
    uint32_t nin = in->ncarried + 2, nout = in->ncarried + in->nscanned + 1;
    Item *formal = ARENA_ARRAY(g->arena, Item, nin), *out = ARENA_ARRAY(g->arena, Item, nout);
    formal[0] = tensor_item(build_scalar_i(g, DT_i64, iteration));
    formal[1] = tensor_item(build_scalar_i(g, DT_bool, 1));
    for (uint32_t i = 0; i < in->ncarried; i++) formal[2 + i] = in->carried[i];
    if (!lower_inline_items(l, "body", formal, nin, out, nout)) return false;
    if (out[0].kind != ITEM_TENSOR || !known_bool(g, out[0].v, go)) return false;
    for (uint32_t i = 0; i < in->ncarried; i++) in->carried[i] = out[1 + i];
    for (uint32_t i = 0; i < in->nscanned; i++) {
        const Item *item = &out[1 + in->ncarried + i];
        if (item->kind != ITEM_TENSOR) return false;
        vec_push(g->arena, &in->scanned[i], item->v);
    }
    return true;
}

/* All iterations, if their number is known and small. */
static bool unroll(Lower *l, LoopIn *in) {
    Graph *g = lower_graph(l);
    const int64_t limit = unroll_limit(l);
    int64_t trip = limit + 1, i = 0;
    bool go = true;
    if (in->cond && !known_bool(g, in->cond, &go)) return false;
    if (in->trip && !known_int(g, in->trip, &trip)) return false;
    if (in->trip && trip > limit) return false;
    const int64_t copies = l->im->copies;
    l->im->copies *= trip < 1 ? 1 : trip < limit ? trip : limit;
    bool ok = true;
    for (; ok && go && i < trip; i += ok) ok = i < limit && unroll_once(l, in, i, &go);
    l->im->copies = copies;
    return ok && (i > 0 || in->nscanned == 0);
}

static void unrolled_outputs(Lower *l, const LoopIn *in) {
    Graph *g = lower_graph(l);
    for (uint32_t i = 0; i < lower_nout(l); i++) {
        if (!lower_has_out(l, i)) continue;
        if (i < in->ncarried)
            lower_out_item(l, i, in->carried[i]);
        else
            lower_out(
                l, i,
                stack(g, in->scanned[i - in->ncarried].v, in->scanned[i - in->ncarried].n, 0));
    }
}

/* A loop as a node. Carried tensors stay carried; what is appended to a carried sequence is
 * stacked. A carried number that each iteration changes by the same amount is a formula of the
 * iteration. */
typedef struct Rolled {
    const LoopIn *in;
    Expr iteration;
    uint32_t iter, n; /* n carried tensors */
    Value *carried;
    Type *types; /* of cond and of the carried tensors */
    Expr *start; /* of a carried number that counts, else 0 */
    int64_t *step;
    LowerCaptures captures;
} Rolled;

static void loop_formals(void *ctx, Graph *body, const Value *in, Value *formal) {
    const Rolled *r = ctx;
    ExprPool *p = body->exprs;
    formal[0] = build_expr(body, DT_i64, r->iteration);
    formal[1] = in[0];
    for (uint32_t i = 0, k = 0; i < r->in->ncarried; i++) {
        if (r->in->carried[i].kind != ITEM_TENSOR) continue;
        const Type *t = &r->types[++k];
        formal[2 + i] = in[k];
        if (!r->start[k - 1]) continue;
        const Expr at = expr_add(p, r->start[k - 1], expr_muli(p, r->iteration, r->step[k - 1]));
        formal[2 + i] = build_reshape(body, build_expr(body, t->dtype, at), t->rank, t->dim);
    }
}

/* A body gives what the node lists, after `own` results that are the loop's. */
static bool check_results(Lower *l, const Graph *body, uint32_t own) {
    if (body->outputs.n == lower_nout(l) + own) return true;
    return lower_error(l, D_ARITY, "the body gives %u results, %u are needed",
                       body->outputs.n - own, lower_nout(l));
}

static Graph *rolled_body(Lower *l, Rolled *r) {
    r->captures = (LowerCaptures){0};
    Graph *body = lower_subgraph_from(l, "body", r->types, r->n + 1, &r->captures,
                                      r->in->ncarried + 2, loop_formals, r);
    return body && check_results(l, body, 1) ? body : NULL;
}

/* Carried numbers that start known are taken to count up by one, until the body shows otherwise. */
static void guess_counters(Lower *l, Rolled *r) {
    for (uint32_t k = 0; k < r->n; k++) {
        uint32_t n;
        const Expr *start = build_elems(lower_graph(l), r->carried[k], true, &n);
        if (!start || n != 1 || r->types[1 + k].dtype == DT_bool) continue;
        r->start[k] = start[0];
        r->step[k] = 1;
    }
}

/* Do the counters step as was guessed? Corrects the guess by what the body does. */
static bool counters_hold(Rolled *r, Graph *body) {
    ExprPool *p = body->exprs;
    bool hold = true;
    for (uint32_t k = 0; k < r->n; k++) {
        uint32_t n;
        int64_t step;
        if (!r->start[k]) continue;
        const Expr *next = build_elems(body, body->outputs.v[1 + k].value, false, &n);
        const Expr now = expr_add(p, r->start[k], expr_muli(p, r->iteration, r->step[k]));
        const bool known = next && n == 1 && expr_is_const(p, expr_sub(p, next[0], now), &step);
        if (known && step == r->step[k]) continue;
        hold = false;
        if (!known || r->step[k] != 1) r->start[k] = 0;
        r->step[k] = known ? step : 0;
    }
    return hold;
}

/* The number of iterations, where the condition compares a counter with a limit: one, and one more
 * after each that leaves limit - counter above 0. Else 0. */
static Expr counted_trips(const Rolled *r, Graph *body, Expr first) {
    ExprPool *p = body->exprs;
    uint32_t n;
    int64_t by;
    Expr step, rest;
    const Expr *e = build_elems(body, body->outputs.v[0].value, false, &n);
    if (!e || n != 1 || expr_op(p, e[0]) != EX_lt) return 0;
    const Expr left = expr_sub(p, expr_arg(p, e[0], 1), expr_arg(p, e[0], 0));
    if (!expr_affine(p, left, r->iter, &step, &rest) || !expr_is_const(p, step, &by) || by >= 0)
        return 0;
    rest = expr_max(p, rest, expr_const(p, 0));
    return expr_mul(p, first, expr_addi(p, expr_ceildiv(p, rest, expr_const(p, -by)), 1));
}

static void rolled_outputs(Lower *l, const Rolled *r, Value tuple) {
    Graph *g = lower_graph(l);
    uint32_t tensor = 0, appended = r->n + r->in->nscanned;
    for (uint32_t i = 0; i < lower_nout(l); i++) {
        const bool stacked = i < r->in->ncarried && r->in->carried[i].kind != ITEM_TENSOR;
        const Value v = build_proj(g, tuple, stacked ? appended++ : tensor++);
        if (stacked && v) lower_out_item(l, i, (Item){.kind = ITEM_STACK, .v = v});
        if (!stacked && lower_has_out(l, i)) lower_out(l, i, v);
    }
}

/* The tensors among what is carried; sequences must be empty at first. */
static bool read_carried(Lower *l, Rolled *r) {
    Graph *g = lower_graph(l);
    const uint32_t n = r->in->ncarried;
    r->carried = ARENA_ARRAY(g->arena, Value, n);
    r->types = ARENA_ARRAY(g->arena, Type, n + 1);
    r->start = ARENA_ARRAY(g->arena, Expr, n);
    r->step = ARENA_ARRAY(g->arena, int64_t, n);
    r->types[0] = (Type){.dtype = DT_bool};
    for (uint32_t i = 0; i < n; i++) {
        const Item item = lower_in_item(l, 2 + i);
        if (item.kind == ITEM_ABSENT && !lower_need(l, 2 + i)) return false;
        if (item.kind == ITEM_LIST && !item.n && !item.open) continue;
        if (item.kind != ITEM_TENSOR)
            return lower_unsupported(l, "a loop with a known, small number of iterations can",
                                     "a loop that carries an optional, or a sequence of tensors");
        r->carried[r->n] = item.v;
        r->types[++r->n] = *graph_type(g, item.v);
    }
    return true;
}

/* The body, with its counters as formulas. A loop whose iterations are thereby counted is lowered
 * once more, for a body that knows that it stays within them. */
static Graph *counted_body(Lower *l, Rolled *r, Expr first, Expr *trips) {
    Graph *g = lower_graph(l);
    r->iteration = v_iteration(g, "iteration", &r->iter);
    guess_counters(l, r);
    Graph *body = rolled_body(l, r);
    while (body && !counters_hold(r, body)) body = rolled_body(l, r);
    *trips = body && first ? counted_trips(r, body, first) : 0;
    if (!*trips) return body;
    r->iteration = v_iteration(g, "iteration", &r->iter);
    expr_sym_edit(g->exprs, r->iter)->below = *trips;
    body = rolled_body(l, r);
    if (!body) return NULL;
    body->outputs.v[0].value = build_scalar_i(body, DT_bool, 1);
    body->outputs.v[0].type = (Type){.dtype = DT_bool};
    return body;
}

static bool rolled(Lower *l, const LoopIn *in) {
    Graph *g = lower_graph(l);
    Rolled r = {.in = in};
    uint32_t n;
    Expr trips;
    if (!read_carried(l, &r)) return false;
    Value trip = in->trip ? in->trip : build_scalar_i(g, DT_i64, INT64_MAX);
    Value cond = in->cond ? in->cond : build_scalar_i(g, DT_bool, 1);
    const Expr *first = build_elems(g, cond, true, &n);
    Graph *body = counted_body(l, &r, first && n == 1 ? first[0] : 0, &trips);
    if (!body) return false;
    if (trips) {
        const Value count = build_expr(g, DT_i64, trips);
        trip = in->trip ? v_min(g, count, build_reshape(g, trip, 0, NULL)) : count;
        cond = build_scalar_i(g, DT_bool, 1);
    }
    rolled_outputs(l, &r,
                   build_loop(g, trip, cond, r.carried, r.n, r.captures.values.v,
                              r.captures.values.n, body, r.iter));
    return true;
}

static bool lower_loop(Lower *l) {
    Graph *g = lower_graph(l);
    LoopIn in = {.trip = lower_in(l, 0), .cond = lower_in(l, 1)};
    if ((lower_has_in(l, 0) && !in.trip) || (lower_has_in(l, 1) && !in.cond)) return false;
    in.ncarried = lower_nin(l) > 2 ? lower_nin(l) - 2 : 0;
    if (lower_nout(l) < in.ncarried)
        return lower_error(l, D_ARITY, "%u outputs for %u carried values", lower_nout(l),
                           in.ncarried);
    in.nscanned = lower_nout(l) - in.ncarried;
    in.carried = ARENA_ARRAY(g->arena, Item, in.ncarried);
    in.scanned = arena_array(g->arena, in.nscanned, sizeof *in.scanned);
    for (uint32_t i = 0; i < in.ncarried; i++) {
        in.carried[i] = lower_in_item(l, 2 + i);
        if (in.carried[i].kind == ITEM_POISON) return false;
    }
    uint32_t errors = diag_errors(g->diags);
    if (unroll(l, &in)) {
        unrolled_outputs(l, &in);
        return true;
    }
    return diag_errors(g->diags) == errors && rolled(l, &in);
}

/* ---- Scan ---------------------------------------------------------------------------------- */

typedef struct Scan {
    uint32_t nstates, nscans, nouts; /* nouts: scan outputs */
    Value *state, *scan;
    Expr length;
    int *in_axis;
    const int64_t *out_axis; /* as written: from the back, too; NULL: all in front */
    bool *in_reverse, *out_reverse;
} Scan;

static Value scan_slice(Graph *g, Value x, int axis, bool reverse, Expr length, Expr i) {
    Expr at = reverse ? expr_sub(g->exprs, expr_addi(g->exprs, length, -1), i) : i;
    return v_at(g, x, axis, at);
}

/* The axis that an output has its rows along, of this rank: negative when it is out of range. */
static int scan_out_axis(Lower *l, const Scan *s, uint32_t i, int rank) {
    return lower_axis(l, s->out_axis ? s->out_axis[i] : 0, rank);
}

static bool scan_unrolled(Lower *l, const Scan *s, int64_t length, Value *out) {
    Graph *g = lower_graph(l);
    uint32_t nin = s->nstates + s->nscans, nout = s->nstates + s->nouts;
    Value *formal = ARENA_ARRAY(g->arena, Value, nin), *result = ARENA_ARRAY(g->arena, Value, nout);
    Value *rows = ARENA_ARRAY(g->arena, Value, (size_t)length * s->nouts);
    for (uint32_t i = 0; i < s->nstates; i++) out[i] = s->state[i];
    const int64_t copies = l->im->copies;
    l->im->copies *= length;
    for (int64_t t = 0; t < length; t++) {
        for (uint32_t i = 0; i < s->nstates; i++) formal[i] = out[i];
        for (uint32_t i = 0; i < s->nscans; i++)
            formal[s->nstates + i] =
                scan_slice(g, s->scan[i], s->in_axis[i], s->in_reverse[i], s->length, v_int(g, t));
        if (!lower_inline(l, "body", formal, nin, result, nout)) return false;
        for (uint32_t i = 0; i < s->nstates; i++) out[i] = result[i];
        for (uint32_t i = 0; i < s->nouts; i++) {
            int64_t at = s->out_reverse[i] ? length - 1 - t : t;
            rows[(int64_t)i * length + at] = result[s->nstates + i];
        }
    }
    l->im->copies = copies;
    for (uint32_t i = 0; i < s->nouts; i++) {
        const Value *row = rows + (int64_t)i * length;
        const int axis = *row ? scan_out_axis(l, s, i, v_rank(g, *row) + 1) : 0;
        if (axis < 0) return false;
        out[s->nstates + i] = stack(g, row, (uint32_t)length, axis);
    }
    return true;
}

typedef struct ScanFormals {
    const Scan *s;
    Expr iteration;
} ScanFormals;

/* The loop's body is given cond, the states and whole scan inputs; it goes on as long as it may. */
static void scan_formals(void *ctx, Graph *body, const Value *in, Value *formal) {
    const ScanFormals *f = ctx;
    const Scan *s = f->s;
    build_output(body, "cond", build_scalar_i(body, DT_bool, 1));
    for (uint32_t i = 0; i < s->nstates; i++) formal[i] = in[1 + i];
    for (uint32_t i = 0; i < s->nscans; i++)
        formal[s->nstates + i] = scan_slice(body, in[1 + s->nstates + i], s->in_axis[i],
                                            s->in_reverse[i], s->length, f->iteration);
}

static Value flip_front(Graph *g, Value x) {
    if (!x) return 0;
    Expr n = v_dim(g, x, 0);
    return build_slice_axis(g, x, 0, expr_addi(g->exprs, n, -1), n, -1);
}

static bool scan_rolled(Lower *l, const Scan *s, Value *out) {
    Graph *g = lower_graph(l);
    uint32_t iter, n = 1 + s->nstates + s->nscans;
    Type *types = ARENA_ARRAY(g->arena, Type, n);
    types[0] = (Type){.dtype = DT_bool};
    for (uint32_t i = 0; i < s->nstates; i++) types[1 + i] = *graph_type(g, s->state[i]);
    for (uint32_t i = 0; i < s->nscans; i++) types[1 + s->nstates + i] = *graph_type(g, s->scan[i]);
    ScanFormals f = {s, v_iteration(g, "iteration", &iter)};
    LowerCaptures inner = {0}, all = {0};
    Graph *body =
        lower_subgraph_from(l, "body", types, n, &inner, s->nstates + s->nscans, scan_formals, &f);
    if (!body || !check_results(l, body, 1)) return false;
    for (uint32_t i = 0; i < s->nscans; i++) vec_push(g->arena, &all.values, s->scan[i]);
    for (uint32_t i = 0; i < inner.values.n; i++)
        vec_push(g->arena, &all.values, inner.values.v[i]);
    Value tuple = build_loop(g, build_expr(g, DT_i64, s->length), build_scalar_i(g, DT_bool, 1),
                             s->state, s->nstates, all.values.v, all.values.n, body, iter);
    for (uint32_t i = 0; i < s->nstates; i++) out[i] = build_proj(g, tuple, i);
    for (uint32_t i = 0; i < s->nouts; i++) {
        Value y = build_proj(g, tuple, s->nstates + i);
        if (s->out_reverse[i]) y = flip_front(g, y);
        const int axis = y ? scan_out_axis(l, s, i, v_rank(g, y)) : 0;
        if (axis < 0) return false;
        out[s->nstates + i] = v_move_axis(g, y, 0, axis);
    }
    return true;
}

static bool scan_run(Lower *l, const Scan *s, Value *out) {
    int64_t length;
    if (expr_is_const(lower_exprs(l), s->length, &length) && length > 0 &&
        length <= unroll_limit(l))
        return scan_unrolled(l, s, length, out);
    return scan_rolled(l, s, out);
}

/* Attribute `name` for each of n scans; 0 where absent. */
static bool scan_list(Lower *l, const char *name, uint32_t n, const int64_t **v) {
    uint32_t count;
    *v = lower_ints(l, name, &count);
    if (*v && count != n)
        return lower_error(l, D_ATTRIBUTE, "%s has %u values for %u scans", name, count, n);
    return true;
}

/* Directions: 0 forward, 1 reverse. */
static bool scan_directions(Lower *l, const char *name, uint32_t n, bool *reverse) {
    const int64_t *v;
    if (!scan_list(l, name, n, &v)) return false;
    for (uint32_t i = 0; v && i < n; i++) {
        reverse[i] = v[i] == 1;
        if (v[i] != 0 && v[i] != 1)
            return lower_error(l, D_ATTRIBUTE, "%s has the value %lld", name, (long long)v[i]);
    }
    return true;
}

static bool scan_read(Lower *l, Scan *s, uint32_t skip) {
    Graph *g = lower_graph(l);
    int64_t scans = lower_i(l, "num_scan_inputs"), all = (int64_t)lower_nin(l) - skip;
    if (scans < 1 || scans > all)
        return lower_error(l, D_ATTRIBUTE, "num_scan_inputs is %lld", (long long)scans);
    s->nscans = (uint32_t)scans;
    s->nstates = (uint32_t)(all - scans);
    if (lower_nout(l) < s->nstates) return lower_error(l, D_ARITY, "fewer outputs than states");
    s->nouts = lower_nout(l) - s->nstates;
    s->state = ARENA_ARRAY(g->arena, Value, (size_t)all);
    s->scan = s->state + s->nstates;
    s->in_axis = ARENA_ARRAY(g->arena, int, s->nscans);
    s->in_reverse = ARENA_ARRAY(g->arena, bool, s->nscans);
    s->out_reverse = ARENA_ARRAY(g->arena, bool, s->nouts);
    for (uint32_t i = 0; i < all; i++)
        if (!(s->state[i] = lower_need(l, skip + i))) return false;
    return true;
}

static bool lower_scan(Lower *l) {
    Graph *g = lower_graph(l);
    Scan s = {0};
    const int64_t *in_axes;
    if (!scan_read(l, &s, 0) || !scan_list(l, "scan_input_axes", s.nscans, &in_axes) ||
        !scan_directions(l, "scan_input_directions", s.nscans, s.in_reverse) ||
        !scan_list(l, "scan_output_axes", s.nouts, &s.out_axis) ||
        !scan_directions(l, "scan_output_directions", s.nouts, s.out_reverse))
        return false;
    for (uint32_t i = 0; i < s.nscans; i++) {
        s.in_axis[i] = lower_axis(l, in_axes ? in_axes[i] : 0, v_rank(g, s.scan[i]));
        if (s.in_axis[i] < 0) return false;
    }
    s.length = v_dim(g, s.scan[0], s.in_axis[0]);
    for (uint32_t i = 1; i < s.nscans; i++)
        lower_assume(l, v_dim(g, s.scan[i], s.in_axis[i]), s.length);
    Value *out = ARENA_ARRAY(g->arena, Value, s.nstates + s.nouts);
    if (!scan_run(l, &s, out)) return false;
    for (uint32_t i = 0; i < lower_nout(l); i++) lower_out(l, i, out[i]);
    return true;
}

/* Scan-8 runs the body for each row of a batch axis 0. */
static bool lower_scan_8(Lower *l) {
    Graph *g = lower_graph(l);
    Scan s = {0};
    int64_t batch;
    if (lower_has_in(l, 0)) return lower_unsupported(l, "use opset 9", "Scan-8 with lengths");
    if (!scan_read(l, &s, 1) || !scan_directions(l, "directions", s.nscans, s.in_reverse))
        return false;
    uint32_t nin = s.nstates + s.nscans, nout = s.nstates + s.nouts;
    if (v_rank(g, s.scan[0]) < 2) return lower_error(l, D_SHAPE, "no batch and sequence axis");
    s.length = v_dim(g, s.scan[0], 1);
    if (!v_dim_const(g, s.scan[0], 0, &batch) || batch < 1 || batch > UNROLL_LIMIT)
        return lower_unsupported(l, "use opset 9", "Scan-8 with a large or symbolic batch");
    Value *whole = s.state, *out = ARENA_ARRAY(g->arena, Value, nout);
    Value *rows = ARENA_ARRAY(g->arena, Value, (size_t)batch * nout);
    s.state = ARENA_ARRAY(g->arena, Value, nin);
    s.scan = s.state + s.nstates;
    for (int64_t b = 0; b < batch; b++) {
        for (uint32_t i = 0; i < nin; i++)
            s.state[i] = scan_slice(g, whole[i], 0, false, 0, v_int(g, b));
        if (!scan_run(l, &s, out)) return false;
        for (uint32_t i = 0; i < nout; i++) rows[(int64_t)i * batch + b] = out[i];
    }
    for (uint32_t i = 0; i < nout; i++)
        lower_out(l, i, stack(g, rows + (int64_t)i * batch, (uint32_t)batch, 0));
    return true;
}

static const char *const if_attrs[] = {"then_branch:g!", "else_branch:g!", NULL};
static const char *const loop_attrs[] = {"body:g!", NULL};
static const char *const scan8_attrs[] = {"body:g!", "num_scan_inputs:i!", "directions:I", NULL};
static const char *const scan_attrs[] = {"body:g!",
                                         "num_scan_inputs:i!",
                                         "scan_input_axes:I",
                                         "scan_input_directions:I",
                                         "scan_output_axes:I",
                                         "scan_output_directions:I",
                                         NULL};

const OnnxOp ops_control[] = {{"", "If", 1, 0, 1, 1, 1, -1, if_attrs, lower_if},
                              {"", "Loop", 1, 0, 0, -1, 1, -1, loop_attrs, lower_loop},
                              {"", "Scan", 8, 8, 0, -1, 1, -1, scan8_attrs, lower_scan_8},
                              {"", "Scan", 9, 0, 1, -1, 1, -1, scan_attrs, lower_scan},
                              {0}};
