/* if, loop, and copying nodes between graphs. */
#include "graph/build/build_impl.h"
#include "graph/ir/attr.h"

#include <string.h>

/* ---- Inlining a body ---- */

static uint32_t file_in(Graph *g, const Graph *from, uint32_t file) {
    if (!file || g == from) return file;
    const char *path = from->files.v[file - 1];
    for (uint32_t i = 0; i < g->files.n; i++)
        if (g->files.v[i] == path) return i + 1;
    vec_push(g->arena, &g->files, path);
    return g->files.n;
}

typedef struct Inline {
    Graph *to;
    const Graph *from;
    uint32_t sym; /* what `by` stands for, if there is a `by` */
    Expr by;
} Inline;

static Expr put_in(const Inline *c, Expr e) {
    return c->by && e ? expr_subst(c->to->exprs, e, &c->sym, &c->by, 1) : e;
}

static Type type_put_in(const Inline *c, Type t) {
    for (int i = 0; i < t.rank; i++) t.dim[i] = put_in(c, t.dim[i]);
    return t;
}

static Graph *body_put_in(const Inline *c, const Graph *body);

static Control *control_put_in(const Inline *c, const Control *from) {
    Control *n = arena_copy(c->to->arena, from, sizeof *from);
    n->trip = put_in(c, n->trip);
    n->results = ARENA_ARRAY(c->to->arena, Type, n->nresults);
    for (uint32_t i = 0; i < n->nresults; i++) n->results[i] = type_put_in(c, from->results[i]);
    for (int i = 0; i < 2; i++)
        if (n->body[i]) n->body[i] = body_put_in(c, from->body[i]);
    return n;
}

/* n with `by` in place of `sym` wherever it says something about sizes and places. A loop gets a
 * body of its own in any case: build_loop_stack changes it. */
static Node node_put_in(const Inline *c, Node n) {
    uint32_t count;
    const AttrField *f = attr_fields((Op)n.op, &count);
    if (!c->by && n.op != OP_loop) return n;
    n.type = type_put_in(c, n.type);
    for (const AttrField *end = f + count; f < end; f++) {
        if (f->kind == AK_EXPRS)
            for (uint32_t i = 0; i < attr_count(c->from, &n, f); i++)
                attr_set(&n.attr, f, i, put_in(c, (Expr)attr_get(&n.attr, f, i)));
        if (f->kind == AK_CONTROL) n.attr.control = control_put_in(c, n.attr.control);
        if (f->kind != AK_ELEMENTS) continue;
        Expr *e = arena_copy(c->to->arena, n.attr.exprs.v, n.attr.exprs.n * sizeof *e);
        for (uint32_t i = 0; i < n.attr.exprs.n; i++) e[i] = put_in(c, e[i]);
        n.attr.exprs.v = e;
    }
    return n;
}

/* Copies nodes with their operands mapped; false after an error. */
static bool inline_nodes(const Inline *c, Value *map) {
    Graph *g = c->to;
    const Graph *body = c->from;
    Value *in = ARENA_ARRAY(g->arena, Value, body->nodes.n);
    Loc here = build_loc(g), last = 0, last_in = here;
    for (Value v = 1; v < body->nodes.n; v++) {
        if (graph_node(body, v)->op == OP_input) continue;
        Node n = node_put_in(c, *graph_node(body, v));
        if (n.op == OP_const) n.attr.constant.file = file_in(g, body, n.attr.constant.file);
        for (uint32_t i = 0; i < n.nin; i++) in[i] = map[n.in[i]];
        if (n.loc != last) last_in = build_loc_from(g, body, n.loc, here);
        last = n.loc;
        build_at(g, last_in);
        map[v] = build_like(g, &n, in, n.nin);
        if (!map[v]) return false;
    }
    build_at(g, here);
    return true;
}

static Graph *body_put_in(const Inline *c, const Graph *body) {
    Graph *to = graph_create(c->to->arena, c->to->exprs, c->to->diags, body->name);
    Inline inner = {to, body, c->sym, c->by};
    Value *map = ARENA_ARRAY(to->arena, Value, body->nodes.n);
    to->is_body = true;
    for (uint32_t i = 0; i < body->files.n; i++) vec_push(to->arena, &to->files, body->files.v[i]);
    for (uint32_t i = 0; i < body->inputs.n; i++) {
        const IoInfo *in = &body->inputs.v[i];
        map[in->value] = build_input(to, in->name, type_put_in(c, in->type));
    }
    if (!inline_nodes(&inner, map)) return to;
    for (uint32_t i = 0; i < body->outputs.n; i++)
        build_output(to, body->outputs.v[i].name, map[body->outputs.v[i].value]);
    return to;
}

bool build_inline(Graph *g, const Graph *body, const Value *inputs, uint32_t sym, Expr by,
                  Value *outputs) {
    const Inline c = {g, body, sym, by};
    Value *map = ARENA_ARRAY(g->arena, Value, body->nodes.n);
    for (uint32_t i = 0; i < body->inputs.n; i++) map[body->inputs.v[i].value] = inputs[i];
    if (!inline_nodes(&c, map)) return false;
    for (uint32_t i = 0; i < body->outputs.n; i++) outputs[i] = map[body->outputs.v[i].value];
    return true;
}

/* ---- if ---- */

static bool check_captures(Graph *g, const Graph *body, const Value *in, uint32_t n,
                           const char *what) {
    if (body->inputs.n != n) {
        build_error(g, D_ARITY, "%s: its body takes %u values, not %u", what, body->inputs.n, n);
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        const Type *t = graph_type(g, in[i]), *u = &body->inputs.v[i].type;
        bool same = t->dtype == u->dtype && t->rank == u->rank;
        for (int a = 0; same && a < t->rank; a++) same = build_unify_dim(g, t->dim[a], u->dim[a]);
        if (same) continue;
        build_error(g, D_SHAPE, "%s: value \"%s\" of its body is %s, given %s", what,
                    body->inputs.v[i].name, build_type_text(g, u), build_type_text(g, t));
        return false;
    }
    return true;
}

/* Where an earlier result has the same two sizes, its symbol; 0 if none. */
static Expr size_of_earlier(const Control *c, uint32_t n, Expr a, Expr b) {
    for (uint32_t i = 0; i < n; i++)
        for (int k = 0; k < c->results[i].rank; k++)
            if (c->body[0]->outputs.v[i].type.dim[k] == a &&
                c->body[1]->outputs.v[i].type.dim[k] == b)
                return c->results[i].dim[k];
    return 0;
}

/* A size in which the branches differ is known once one of them has run. */
static Expr branch_size(Graph *g, const Control *c, uint32_t result, int axis) {
    Expr a = c->body[0]->outputs.v[result].type.dim[axis];
    Expr b = c->body[1]->outputs.v[result].type.dim[axis];
    if (build_dim_root(g, a) == build_dim_root(g, b)) return build_dim_root(g, a);
    Expr known = size_of_earlier(c, result, a, b);
    return known ? known : build_data_symbol(g, "size", expr_max(g->exprs, a, b));
}

static bool branch_type(Graph *g, Control *c, uint32_t result) {
    const IoInfo *a = &c->body[0]->outputs.v[result], *b = &c->body[1]->outputs.v[result];
    Type *out = &c->results[result];
    if (a->type.dtype != b->type.dtype || a->type.rank != b->type.rank) {
        build_error(g, D_UNSUPPORTED, "the branches of an if give %s and %s for \"%s\"",
                    build_type_text(g, &a->type), build_type_text(g, &b->type), a->name);
        return false;
    }
    *out = a->type;
    for (int i = 0; i < out->rank; i++) out->dim[i] = branch_size(g, c, result, i);
    return true;
}

static Value known_if(Graph *g, Value tuple, const Graph *taken, const Value *captures) {
    Value *results = ARENA_ARRAY(g->arena, Value, taken->outputs.n);
    if (!build_inline(g, taken, captures, 0, 0, results)) return 0;
    InlinedIf known = {tuple, results};
    vec_push(g->own, &builder_of(g)->inlined, known);
    return tuple;
}

static Value tuple_node(Graph *g, Op op, const Value *in, uint32_t n, Control *c) {
    Attr a = {.control = c};
    Type t = {0};
    return build_append(g, op, in, n, &a, &t);
}

Value build_if(Graph *g, Value cond, Graph *then_g, Graph *else_g, const Value *captures,
               uint32_t ncaptures) {
    if (!cond || !then_g || !else_g || !build_valid(captures, ncaptures)) return 0;
    if (graph_type(g, cond)->dtype != DT_bool || build_count(g, graph_type(g, cond), 1) != 1)
        return build_error(g, D_DTYPE, "the condition of an if is %s",
                           build_type_text(g, graph_type(g, cond)));
    if (then_g->outputs.n != else_g->outputs.n)
        return build_error(g, D_ARITY, "the branches of an if give %u and %u results",
                           then_g->outputs.n, else_g->outputs.n);
    if (!check_captures(g, then_g, captures, ncaptures, "if") ||
        !check_captures(g, else_g, captures, ncaptures, "if"))
        return 0;
    int64_t known = -1;
    uint32_t n;
    const Expr *e = build_elems(g, cond, false, &n);
    if (e) (void)expr_is_const(g->exprs, e[0], &known);
    Control *c = ARENA_NEW(g->arena, Control);
    *c = (Control){.body = {then_g, else_g}, .nresults = then_g->outputs.n};
    c->results = ARENA_ARRAY(g->arena, Type, c->nresults);
    for (uint32_t i = 0; i < c->nresults && known < 0; i++)
        if (!branch_type(g, c, i)) return 0;
    Value *in = ARENA_ARRAY(g->arena, Value, ncaptures + 1);
    in[0] = build_reshape(g, cond, 0, NULL);
    for (uint32_t i = 0; i < ncaptures; i++) in[i + 1] = captures[i];
    const Graph *taken = known ? then_g : else_g;
    for (uint32_t i = 0; i < c->nresults && known >= 0; i++)
        c->results[i] = taken->outputs.v[i].type;
    Value tuple = tuple_node(g, OP_if, in, ncaptures + 1, c);
    return known >= 0 ? known_if(g, tuple, taken, captures) : tuple;
}

/* ---- loop ---- */

static bool same_carried(Graph *g, const Type *a, const Type *b) {
    if (a->dtype != b->dtype || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (!build_unify_dim(g, a->dim[i], b->dim[i])) return false;
    return true;
}

static bool is_true(Graph *g, Value cond) {
    uint32_t n;
    const Expr *e = build_elems(g, cond, false, &n);
    return e && n == 1 && expr_is_value(g->exprs, e[0], 1);
}

static bool check_loop(Graph *g, Value trip, Value cond, uint32_t ncarried, const Graph *body) {
    const Type *t = graph_type(g, trip), *c = graph_type(g, cond);
    if (t->dtype != DT_i64 || build_count(g, t, 1) != 1 || c->dtype != DT_bool ||
        build_count(g, c, 1) != 1) {
        build_error(g, D_DTYPE, "a loop with trip count %s and condition %s", build_type_text(g, t),
                    build_type_text(g, c));
        return false;
    }
    if (body->outputs.n < ncarried + 1) {
        build_error(g, D_ARITY, "a loop's body gives %u results for %u carried values",
                    body->outputs.n, ncarried);
        return false;
    }
    const Type *again = &body->outputs.v[0].type;
    if (again->dtype != DT_bool || build_count(g, again, 1) != 1) {
        build_error(g, D_DTYPE, "a loop's body gives %s as its condition",
                    build_type_text(g, again));
        return false;
    }
    for (uint32_t i = 1; i <= ncarried; i++) {
        const IoInfo *in = &body->inputs.v[i], *out = &body->outputs.v[i];
        if (same_carried(g, &in->type, &out->type)) continue;
        build_error(g, D_UNSUPPORTED, "a loop changes carried value \"%s\" from %s to %s", in->name,
                    build_type_text(g, &in->type), build_type_text(g, &out->type));
        return false;
    }
    return true;
}

/* The trip count as an expression. */
static Expr most_trips(Graph *g, Value trip) {
    uint32_t n;
    const Expr *e = build_elems(g, trip, true, &n);
    return e ? expr_max(g->exprs, e[0], expr_const(g->exprs, 0)) : 0;
}

/* The loop cannot end before its trip count. */
static bool runs_through(Graph *g, Value cond, Graph *body) {
    const bool kept = body->outputs.v[0].value == body->inputs.v[0].value;
    return is_true(g, cond) && (kept || is_true(body, body->outputs.v[0].value));
}

/* Result i of a loop: carried as it is, or stacked with the number of iterations in front. */
static bool loop_result(Graph *g, Control *c, uint32_t i, Expr count) {
    const Graph *body = c->body[0];
    Type t = body->outputs.v[i + 1].type;
    c->results[i] = i < c->ncarried ? body->inputs.v[i + 1].type : t;
    if (i < c->ncarried) return true;
    /* A stacked value that is carried, too, has the carried type: free of the iteration. */
    for (uint32_t k = 1; k <= c->ncarried; k++)
        if (body->outputs.v[k].value == body->outputs.v[i + 1].value) t = body->inputs.v[k].type;
    if (t.rank == GRAPH_MAX_RANK) {
        build_error(g, D_UNSUPPORTED, "a loop's stacked result has %d axes", t.rank + 1);
        return false;
    }
    c->results[i].rank = (uint8_t)(t.rank + 1);
    c->results[i].dim[0] = count;
    for (int a = 0; a < t.rank; a++) c->results[i].dim[a + 1] = t.dim[a];
    return true;
}

/* How often a loop runs: known before it does, or counted for its stacked results. */
static Expr loop_count(Graph *g, const Control *c, uint32_t stacked_before) {
    if (c->trip) return c->trip;
    return stacked_before ? c->results[c->ncarried].dim[0] : build_data_symbol(g, "trips", 0);
}

static bool loop_results(Graph *g, Control *c) {
    Expr count = c->nscanned ? loop_count(g, c, 0) : 0;
    for (uint32_t i = 0; i < c->nresults; i++)
        if (!loop_result(g, c, i, count)) return false;
    return true;
}

Value build_loop_stack(Graph *g, Value loop, Value inner) {
    Control *c = graph_node(g, loop)->attr.control;
    Expr count = loop_count(g, c, c->nscanned);
    Type *results = ARENA_ARRAY(g->arena, Type, c->nresults + 1);
    memcpy(results, c->results, c->nresults * sizeof *results);
    c->results = results;
    build_output(c->body[0], "stacked", inner);
    c->nscanned++;
    if (!loop_result(g, c, c->nresults++, count)) return 0;
    return build_proj(g, loop, c->nresults - 1);
}

Value build_loop(Graph *g, Value trip, Value cond, const Value *carried, uint32_t ncarried,
                 const Value *captures, uint32_t ncaptures, Graph *body, uint32_t iter) {
    if (!trip || !cond || !body || !build_valid(carried, ncarried) ||
        !build_valid(captures, ncaptures))
        return 0;
    uint32_t n = 2 + ncarried + ncaptures;
    Value *in = ARENA_ARRAY(g->arena, Value, n);
    in[0] = build_reshape(g, trip, 0, NULL);
    in[1] = build_reshape(g, cond, 0, NULL);
    for (uint32_t i = 0; i < ncarried; i++) in[2 + i] = carried[i];
    for (uint32_t i = 0; i < ncaptures; i++) in[2 + ncarried + i] = captures[i];
    if (!build_valid(in, n) || !check_captures(g, body, in + 1, n - 1, "loop") ||
        !check_loop(g, in[0], in[1], ncarried, body))
        return 0;
    Control *c = ARENA_NEW(g->arena, Control);
    *c = (Control){.body = {body, NULL}, .ncarried = ncarried, .iter = iter};
    c->nresults = body->outputs.n - 1;
    c->nscanned = c->nresults - ncarried;
    c->most = most_trips(g, in[0]);
    c->trip = runs_through(g, in[1], body) ? c->most : 0;
    c->results = ARENA_ARRAY(g->arena, Type, c->nresults);
    return loop_results(g, c) ? tuple_node(g, OP_loop, in, n, c) : 0;
}

Value build_proj(Graph *g, Value tuple, uint32_t index) {
    if (!tuple) return 0;
    const Node *n = graph_node(g, tuple);
    if ((n->op != OP_if && n->op != OP_loop) || index >= n->attr.control->nresults)
        return build_error(g, D_ARITY, "result %u of %s", index, op_info[n->op].name);
    const BuildState *s = builder_of(g);
    for (uint32_t i = 0; i < s->inlined.n; i++)
        if (s->inlined.v[i].tuple == tuple) return s->inlined.v[i].results[index];
    Attr a = {.axis = {(int32_t)index}};
    return build_append(g, OP_proj, &tuple, 1, &a, &n->attr.control->results[index]);
}

/* ---- Copies ---- */

static Value like_source(Graph *g, const Node *n, const Value *in, uint32_t nin) {
    if (n->op != OP_exprs) return build_append(g, n->op, in, nin, &n->attr, &n->type);
    return build_node(g, OP_exprs, NULL, 0, &n->attr, &n->type);
}

static Value like_map(Graph *g, const Node *n, const Value *in, uint32_t nin) {
    const Attr *a = &n->attr;
    if (n->op == OP_cast)
        return build_cast_ex(g, in[0], a->cast.to, a->cast.saturate, a->cast.round);
    if (n->op == OP_bitcast) return build_bitcast(g, in[0], a->cast.to);
    return build_map(g, n->op, in, nin);
}

static Value like_view(Graph *g, const Node *n, const Value *in, uint32_t nin) {
    const Attr *a = &n->attr;
    const Type *t = &n->type;
    switch (n->op) {
    case OP_reshape: return build_reshape(g, in[0], t->rank, t->dim);
    case OP_permute: return build_permute(g, in[0], a->perm.axis);
    case OP_expand: return build_expand(g, in[0], t->rank, t->dim);
    case OP_slice: return build_slice(g, in[0], a->slice.start, t->dim, a->slice.step);
    case OP_pad: return build_pad(g, in[0], in[1], a->pad.lo, a->pad.hi, a->pad.interior);
    case OP_concat: return build_concat(g, in, nin, a->axis.axis);
    default:
        return build_window(g, in[0], a->window.n, a->window.axis, a->window.size, a->window.stride,
                            a->window.dilation);
    }
}

static int lowest_bit(uint32_t mask) {
    return mask ? __builtin_ctz(mask) : 0;
}

static Value like_reduce(Graph *g, const Node *n, Value x) {
    const Attr *a = &n->attr;
    if (n->op != OP_argmax && n->op != OP_argmin)
        return build_reduce(g, n->op, x, a->reduce.axes, false);
    return build_arg_reduce(g, n->op, x, lowest_bit(a->reduce.axes), a->reduce.last, false);
}

static Value like_index(Graph *g, const Node *n, const Value *in, uint32_t nin) {
    const Attr *a = &n->attr;
    if (n->op == OP_gather)
        return build_gather(g, in[0], a->index.src, in + 1, nin - 1, n->type.rank, n->type.dim);
    if (n->op == OP_scatter)
        return build_scatter(g, in[0], in[1], a->index.src, in + 2, nin - 2, a->index.mode);
    /* compact keeps the symbol of its count: other types are made of it. */
    return build_append(g, OP_compact, in, nin, NULL, &n->type);
}

/* Other nodes may name the sizes that an if defines. */
static bool defines_sizes(const Graph *g, const Control *c) {
    uint32_t sym;
    for (uint32_t i = 0; i < c->nresults; i++)
        for (int a = 0; a < c->results[i].rank; a++)
            if (control_own_size(g->exprs, c, i, a, &sym)) return true;
    return false;
}

static Value like_control(Graph *g, const Node *n, const Value *in, uint32_t nin) {
    const Control *c = n->op == OP_proj ? NULL : n->attr.control;
    if (n->op == OP_proj) return build_proj(g, in[0], (uint32_t)n->attr.axis.axis);
    if (n->op == OP_if && !defines_sizes(g, c))
        return build_if(g, in[0], c->body[0], c->body[1], in + 1, nin - 1);
    return build_append(g, (Op)n->op, in, nin, &n->attr, &n->type);
}

Value build_like(Graph *g, const Node *n, const Value *in, uint32_t nin) {
    if (!build_valid(in, nin)) return 0;
    switch (op_info[n->op].cls) {
    case OPC_SOURCE:
    case OPC_RANDOM: return like_source(g, n, in, nin);
    case OPC_MAP: return like_map(g, n, in, nin);
    case OPC_VIEW: return like_view(g, n, in, nin);
    case OPC_REDUCE: return like_reduce(g, n, in[0]);
    case OPC_CONTRACT:
        return n->op == OP_dot ? build_dot(g, in[0], in[1], n->attr.cast.to)
                               : build_conv(g, in[0], in[1], &n->attr);
    case OPC_INDEX: return like_index(g, n, in, nin);
    case OPC_SCAN:
        return build_scan(g, n->op, in[0], n->attr.scan.axis, n->attr.scan.exclusive,
                          n->attr.scan.reverse);
    case OPC_SORT:
        return build_argsort_first(g, in[0], n->attr.scan.axis, n->attr.scan.reverse,
                                   n->attr.scan.keep);
    case OPC_COMPOSITE:
        return n->op == OP_attention ? build_attention(g, in[0], in[1], n->attr.attention.to,
                                                       n->attr.attention.guarded)
                                     : build_logsumexp(g, in[0], n->attr.cast.to);
    case OPC_CONTROL: return like_control(g, n, in, nin);
    }
    return 0;
}
