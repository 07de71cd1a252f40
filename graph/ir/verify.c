/* Checks every invariant of a graph (graph/README.md). Each class of ops has one rule function that
 * returns what is wrong, or NULL; the report names the node by its place and shows its text. */
#include "graph/ir/attr.h"
#include "runtime/base/map.h"
#include <string.h>

typedef struct Check {
    const Graph *g;
    Value v;
    const Node *n;
    const Type *t, *x; /* result; operand 0, if any */
} Check;

static bool is_tuple(const Node *n) {
    return n->op == OP_if || n->op == OP_loop;
}

/* Are a and b joined by what the graph assumes, over any number of pairs? */
static bool assumed_same(const Graph *g, Expr a, Expr b) {
    Expr *same = ARENA_ARRAY(g->arena, Expr, g->nassume + 1);
    uint32_t n = 0;
    same[n++] = a;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < g->nassume; k++) {
            const Expr x = g->assume[k].a, y = g->assume[k].b;
            if (x != same[i] && y != same[i]) continue;
            const Expr other = x == same[i] ? y : x;
            uint32_t known = 0;
            while (known < n && same[known] != other) known++;
            if (other == b) return true;
            if (known == n) same[n++] = other;
        }
    return false;
}

/* Sizes are equal as expressions, or because the graph assumes so. */
static bool same_size(const Graph *g, Expr a, Expr b) {
    return a == b || expr_is_value(g->exprs, expr_sub(g->exprs, a, b), 0) ||
           (g->nassume && assumed_same(g, a, b));
}

static const char *same_dims(const Graph *g, const Type *a, const Type *b) {
    if (a->rank != b->rank) return "ranks differ";
    for (int i = 0; i < a->rank; i++)
        if (!same_size(g, a->dim[i], b->dim[i])) return "shapes differ";
    return NULL;
}

static const char *check_constant(const Check *c, const Constant *k) {
    int64_t bytes, n;
    Expr numel = type_numel(c->g->exprs, c->t);
    if (!expr_is_const(c->g->exprs, numel, &n)) return "a constant needs a static shape";
    if (__builtin_mul_overflow(n, (int64_t)dtype_bytes(c->t->dtype), &bytes) ||
        bytes != (int64_t)k->bytes)
        return "constant bytes do not fill the type";
    return k->file > c->g->files.n ? "no such file" : NULL;
}

static const char *check_state(const Check *c) {
    const Graph *g = c->g;
    uint32_t i = c->n->attr.input.index;
    if (i >= g->states.n || g->states.v[i].value != c->v)
        return "is not the graph's state of that number";
    if (!type_equal(&g->states.v[i].type, c->t)) return "types differ";
    uint32_t axis = g->states.v[i].grows - 1;
    for (uint32_t d = 0; d < c->t->rank; d++)
        if (d != axis && !expr_is_const(g->exprs, c->t->dim[d], NULL))
            return "a state needs a static shape";
    if (g->states.v[i].grows && (axis >= c->t->rank || g->states.v[i].initial.bytes ||
                                 !expr_is_const(g->exprs, g->states.v[i].room, NULL)))
        return "what grows needs an axis, room and no elements";
    return g->states.v[i].initial.bytes ? check_constant(c, &g->states.v[i].initial) : NULL;
}

static const char *check_source(const Check *c) {
    const Attr *a = &c->n->attr;
    if (c->n->op == OP_input) {
        if (a->input.index >= c->g->inputs.n || c->g->inputs.v[a->input.index].value != c->v)
            return "is not the graph's input of that number";
    } else if (c->n->op == OP_const) {
        return check_constant(c, &a->constant);
    } else if (c->n->op == OP_state) {
        return check_state(c);
    } else if (c->n->op == OP_iota) {
        if (a->axis.axis < 0 || a->axis.axis >= c->t->rank) return "axis out of range";
    } else if (c->n->op == OP_exprs) {
        Expr n = expr_const(c->g->exprs, (int64_t)a->exprs.n);
        if (!same_size(c->g, type_numel(c->g->exprs, c->t), n)) return "wrong number of elements";
    }
    return NULL;
}

static const char *check_dtype_rule(const Check *c) {
    switch (op_info[c->n->op].dtype_rule) {
    case 'A': return c->t->dtype == c->x->dtype ? NULL : "result type is not operand 0's";
    case 'B': return c->t->dtype == DT_bool ? NULL : "result type is not bool";
    case 'I': return c->t->dtype == DT_i64 ? NULL : "result type is not i64";
    default: return NULL;
    }
}

static const char *check_map(const Check *c) {
    for (uint32_t i = 0; i < c->n->nin; i++) {
        const Type *x = graph_type(c->g, c->n->in[i]);
        const char *bad = same_dims(c->g, c->t, x);
        if (bad) return bad;
        if (i && c->n->op != OP_select && x->dtype != c->x->dtype) return "operand types differ";
    }
    if (c->n->op == OP_select) {
        if (c->x->dtype != DT_bool) return "the condition is not bool";
        for (uint32_t i = 1; i < 3; i++)
            if (graph_type(c->g, c->n->in[i])->dtype != c->t->dtype) return "operand types differ";
    }
    return NULL;
}

/* Views. */

/* Number of elements, with each size that is assumed to be another taken as that one. */
static Expr assumed_numel(const Graph *g, const Type *t) {
    Type u = *t;
    for (int i = 0; i < t->rank; i++)
        for (uint32_t k = 0; k < g->nassume; k++)
            if (g->assume[k].a == t->dim[i]) u.dim[i] = g->assume[k].b;
    return type_numel(g->exprs, &u);
}

static const char *check_reshape(const Check *c) {
    ExprPool *p = c->g->exprs;
    if (same_size(c->g, assumed_numel(c->g, c->x), assumed_numel(c->g, c->t))) return NULL;
    return same_size(c->g, type_numel(p, c->x), type_numel(p, c->t)) ? NULL
                                                                     : "element counts differ";
}

static const char *check_permute(const Check *c) {
    uint32_t seen = 0;
    if (c->x->rank != c->t->rank) return "ranks differ";
    for (int i = 0; i < c->t->rank; i++) {
        uint8_t from = c->n->attr.perm.axis[i];
        if (from >= c->t->rank || (seen >> from & 1)) return "not a permutation";
        seen |= 1u << from;
        if (!same_size(c->g, c->t->dim[i], c->x->dim[from])) return "shapes differ";
    }
    return NULL;
}

static const char *check_expand(const Check *c) {
    if (c->x->rank != c->t->rank) return "ranks differ";
    for (int i = 0; i < c->t->rank; i++)
        if (!expr_is_value(c->g->exprs, c->x->dim[i], 1) &&
            !same_size(c->g, c->x->dim[i], c->t->dim[i]))
            return "shapes differ";
    return NULL;
}

static const char *check_slice(const Check *c) {
    const Attr *a = &c->n->attr;
    if (c->x->rank != c->t->rank) return "ranks differ";
    for (int i = 0; i < c->t->rank; i++)
        if (!a->slice.step[i]) return "no step";
    return NULL;
}

static const char *check_pad(const Check *c) {
    ExprPool *p = c->g->exprs;
    const Attr *a = &c->n->attr;
    const Type *fill = graph_type(c->g, c->n->in[1]);
    if (fill->rank || fill->dtype != c->t->dtype) return "the fill is not a scalar of that type";
    if (c->x->rank != c->t->rank) return "ranks differ";
    for (int i = 0; i < c->t->rank; i++) {
        if (a->pad.interior[i] < 0) return "no padding";
        if (a->pad.interior[i]) continue;
        Expr border = expr_add(p, a->pad.lo[i], a->pad.hi[i]);
        if (!same_size(c->g, c->t->dim[i], expr_add(p, c->x->dim[i], border)))
            return "shapes differ";
    }
    return NULL;
}

static const char *check_concat(const Check *c) {
    ExprPool *p = c->g->exprs;
    int axis = c->n->attr.axis.axis;
    Expr sum = expr_const(p, 0);
    if (axis < 0 || axis >= c->t->rank || !c->n->nin) return "axis out of range";
    for (uint32_t k = 0; k < c->n->nin; k++) {
        const Type *x = graph_type(c->g, c->n->in[k]);
        if (x->rank != c->t->rank || x->dtype != c->t->dtype) return "operand types differ";
        for (int i = 0; i < x->rank; i++)
            if (i != axis && !same_size(c->g, x->dim[i], c->t->dim[i])) return "shapes differ";
        sum = expr_add(p, sum, x->dim[axis]);
    }
    return same_size(c->g, sum, c->t->dim[axis]) ? NULL : "sizes do not add up";
}

static const char *check_window(const Check *c) {
    const Attr *a = &c->n->attr;
    int n = a->window.n, rank = c->x->rank;
    if (n < 1 || n > GRAPH_MAX_WINDOW || c->t->rank != rank + n) return "ranks differ";
    for (int i = 0; i < n; i++) {
        if (a->window.axis[i] >= rank) return "axis out of range";
        if (a->window.size[i] < 1 || a->window.stride[i] < 1 || a->window.dilation[i] < 1)
            return "sizes, strides and dilations are positive";
        if (!expr_is_value(c->g->exprs, c->t->dim[rank + i], a->window.size[i]))
            return "tap axes are of the window's size";
    }
    return NULL;
}

static const char *check_view(const Check *c) {
    static const char *(*const rule[OP_COUNT])(const Check *) = {
        [OP_reshape] = check_reshape, [OP_permute] = check_permute, [OP_expand] = check_expand,
        [OP_slice] = check_slice,     [OP_pad] = check_pad,         [OP_concat] = check_concat,
        [OP_window] = check_window,
    };
    return rule[c->n->op](c);
}

static const char *check_reduce(const Check *c) {
    uint32_t axes = c->n->attr.reduce.axes;
    int j = 0;
    if (axes >> c->x->rank) return "axis out of range";
    if ((c->n->op == OP_argmax || c->n->op == OP_argmin) && __builtin_popcount(axes) != 1)
        return "one axis expected";
    for (int i = 0; i < c->x->rank; i++) {
        if (axes >> i & 1) continue;
        if (j >= c->t->rank || !same_size(c->g, c->x->dim[i], c->t->dim[j++]))
            return "shapes differ";
    }
    return j == c->t->rank ? NULL : "ranks differ";
}

/* [B.., M, K] x [B.., K, N] */
static const char *check_product(const Check *c) {
    const Type *a = c->x, *b = graph_type(c->g, c->n->in[1]);
    int r = c->t->rank;
    if (r < 2 || a->rank != r || b->rank != r) return "ranks differ";
    for (int i = 0; i < r - 2; i++)
        if (!same_size(c->g, a->dim[i], c->t->dim[i]) || !same_size(c->g, b->dim[i], c->t->dim[i]))
            return "batch sizes differ";
    if (!same_size(c->g, a->dim[r - 1], b->dim[r - 2])) return "inner sizes differ";
    if (!same_size(c->g, a->dim[r - 2], c->t->dim[r - 2]) ||
        !same_size(c->g, b->dim[r - 1], c->t->dim[r - 1]))
        return "shapes differ";
    return NULL;
}

static const char *check_dot(const Check *c) {
    DType a = c->x->dtype, b = graph_type(c->g, c->n->in[1])->dtype;
    if (a != b && !(a == DT_u8 && b == DT_i8)) return "operand types differ";
    return check_product(c);
}

static const char *check_conv(const Check *c) {
    const Attr *a = &c->n->attr;
    const Type *w = graph_type(c->g, c->n->in[1]);
    ExprPool *p = c->g->exprs;
    int n = a->conv.n;
    if (n < 1 || n > GRAPH_MAX_WINDOW || c->x->rank != n + 2 || w->rank != n + 2 ||
        c->t->rank != n + 2)
        return "ranks differ";
    if (a->conv.groups < 1) return "groups are positive";
    if (!same_size(c->g, c->x->dim[0], c->t->dim[0])) return "batch sizes differ";
    if (!same_size(c->g, c->x->dim[n + 1], expr_muli(p, w->dim[n], a->conv.groups)))
        return "channels differ";
    if (!same_size(c->g, c->t->dim[n + 1], w->dim[n + 1])) return "output channels differ";
    return NULL;
}

static const char *check_contract(const Check *c) {
    return c->n->op == OP_dot ? check_dot(c) : check_conv(c);
}

static const char *check_index(const Check *c) {
    if (c->n->op == OP_compact)
        return c->x->dtype == DT_bool && c->x->rank == 1 && c->t->rank == 1
                   ? NULL
                   : "rank-1 bool expected";
    uint32_t first = c->n->op == OP_gather ? 1 : 2;
    if (c->n->nin < first) return "too few operands";
    const Type *shape = first == 1 ? c->t : graph_type(c->g, c->n->in[1]);
    for (uint32_t i = first; i < c->n->nin; i++) {
        const Type *x = graph_type(c->g, c->n->in[i]);
        const char *bad = same_dims(c->g, shape, x);
        if (bad) return bad;
        if (x->dtype != DT_i64 && x->dtype != DT_i32) return "indices are i64 or i32";
    }
    for (int d = 0; d < c->x->rank; d++) {
        int src = c->n->attr.index.src[d];
        if (src >= shape->rank || (src < 0 && (uint32_t)-src > c->n->nin - first))
            return "no source for a coordinate";
    }
    if (first == 2 && shape->dtype != c->x->dtype) return "operand types differ";
    return first == 2 ? same_dims(c->g, c->x, c->t) : NULL;
}

static const char *check_scan(const Check *c) {
    int axis = c->n->attr.scan.axis;
    return axis < 0 || axis >= c->x->rank ? "axis out of range" : same_dims(c->g, c->x, c->t);
}

static const char *check_random(const Check *c) {
    if (c->n->nin > 1) return "wrong number of operands";
    if (c->n->nin && (c->x->rank || c->x->dtype != DT_i64)) return "the seed is no i64 scalar";
    return dtype_is_float(c->t->dtype) ? NULL : "a float type expected";
}

/* Sizes are a dot's; the operands' types may differ. */
static const char *check_composite(const Check *c) {
    if (!dtype_is_float(c->t->dtype)) return "a float type expected";
    if (c->n->op == OP_attention) {
        const Type *values = graph_type(c->g, c->n->in[1]);
        return dtype_is_float(values->dtype) ? check_product(c) : "values are floats";
    }
    if (c->x->rank != c->t->rank + 1) return "ranks differ";
    for (int i = 0; i < c->t->rank; i++)
        if (!same_size(c->g, c->x->dim[i], c->t->dim[i])) return "shapes differ";
    return NULL;
}

static const char *check_control(const Check *c) {
    if (c->n->op == OP_proj) {
        const Node *tuple = graph_node(c->g, c->n->in[0]);
        if (!is_tuple(tuple)) return "its operand is not a tuple";
        uint32_t i = (uint32_t)c->n->attr.axis.axis;
        if (i >= tuple->attr.control->nresults) return "no such result";
        return type_equal(&tuple->attr.control->results[i], c->t) ? NULL : "types differ";
    }
    const Control *k = c->n->attr.control;
    uint32_t head = c->n->op == OP_loop ? 1 : 0;
    if (!k || !k->body[0]) return "no body";
    for (int b = 0; b < 2 && k->body[b]; b++) {
        if (k->body[b]->inputs.n != c->n->nin - 1) return "the body takes other operands";
        if (k->body[b]->outputs.n != k->nresults + head) return "the body gives other results";
        if (graph_verify(k->body[b]) != GRAPHC_OK) return "its body is wrong";
    }
    return NULL;
}

static void note_missing(void *ctx, Expr e) {
    if (!e) *(bool *)ctx = true;
}

/* What holds for the attributes of every op. */
static const char *check_attributes(const Check *c) {
    uint32_t count;
    const AttrField *f = attr_fields((Op)c->n->op, &count);
    bool missing = false;
    for (const AttrField *end = f + count; f < end; f++)
        if (f->kind == AK_TYPE && attr_get(&c->n->attr, f, 0) != c->t->dtype)
            return "the type in its attributes is not the result's";
    if (!is_tuple(c->n)) attr_each_expr(c->g, c->n, note_missing, &missing);
    return missing ? "a missing expression" : NULL;
}

static const char *check_node(const Check *c) {
    static const char *(*const rule[])(const Check *) = {
        [OPC_SOURCE] = check_source,     [OPC_MAP] = check_map,
        [OPC_VIEW] = check_view,         [OPC_REDUCE] = check_reduce,
        [OPC_CONTRACT] = check_contract, [OPC_INDEX] = check_index,
        [OPC_SCAN] = check_scan,         [OPC_SORT] = check_scan,
        [OPC_RANDOM] = check_random,     [OPC_COMPOSITE] = check_composite,
        [OPC_CONTROL] = check_control,
    };
    const Node *n = c->n;
    if (n->op == OP_none || n->op >= OP_COUNT) return "no operation";
    int arity = op_info[n->op].arity;
    if (arity >= 0 && n->nin != (uint32_t)arity) return "wrong number of operands";
    for (uint32_t i = 0; i < n->nin; i++) {
        if (!n->in[i] || n->in[i] >= c->v) return "an operand does not come before it";
        if (is_tuple(graph_node(c->g, n->in[i])) != (n->op == OP_proj)) return "a tuple as operand";
    }
    if (!is_tuple(n) && n->type.dtype == DT_none) return "no type";
    for (int i = 0; i < n->type.rank; i++)
        if (!n->type.dim[i]) return "an axis without a size";
    const char *bad = n->nin ? check_dtype_rule(c) : NULL;
    if (!bad) bad = check_attributes(c);
    return bad ? bad : rule[op_info[n->op].cls](c);
}

static graphc_status report(const Graph *g, Value v, const char *what) {
    const Node *n = graph_node(g, v);
    return diag(g->diags, D_VERIFY, graph_place(g, n->loc, g->arena), "graph \"%s\" %%%u %s: %s",
                g->name, v, op_info[n->op < OP_COUNT ? n->op : 0].name, what);
}

static graphc_status bad_state(const Graph *g, const StateInfo *s, const char *what) {
    return diag(g->diags, D_VERIFY, graph_place(g, graph_node(g, s->value)->loc, g->arena),
                "graph \"%s\": state \"%s\" %s", g->name, s->name, what);
}

static graphc_status check_states(const Graph *g) {
    MapStr *names = mapstr_create(g->arena);
    uint32_t first;
    for (uint32_t i = 0; i < g->states.n; i++) {
        const StateInfo *s = &g->states.v[i];
        if (!s->value || s->value >= g->nodes.n || graph_node(g, s->value)->op != OP_state)
            return diag(g->diags, D_VERIFY, "", "graph \"%s\": state %u has no node", g->name, i);
        if (g->is_body) return bad_state(g, s, "is inside of a loop or branch");
        if (mapstr_get(names, s->name, &first)) return bad_state(g, s, "is there twice");
        mapstr_put(names, s->name, i);
    }
    return GRAPHC_OK;
}

static graphc_status bad_entry(const Graph *g, const char *what, const char *name) {
    return diag(g->diags, D_VERIFY, "", "graph \"%s\": %s \"%s\" is of no entry, or twice of one",
                g->name, what, name);
}

static graphc_status check_entries(const Graph *g) {
    uint32_t all = g->entries.n < 32 ? (1u << g->entries.n) - 1 : UINT32_MAX;
    for (uint32_t i = 0; i < g->entries.n; i++)
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(g->entries.v[i], g->entries.v[k]) == 0)
                return bad_entry(g, "entry", g->entries.v[i]);
    if (g->entries.n > GRAPH_MAX_ENTRIES || (g->entries.n && g->is_body))
        return diag(g->diags, D_VERIFY, "", "graph \"%s\" has %u entries", g->name, g->entries.n);
    for (uint32_t i = 0; i < g->outputs.n; i++)
        if (g->outputs.v[i].entries & ~all) return bad_entry(g, "output", g->outputs.v[i].name);
    for (uint32_t i = 0; i < g->writes.n; i++)
        if (g->writes.v[i].entries & ~all)
            return bad_entry(g, "write", g->states.v[g->writes.v[i].state].name);
    return GRAPHC_OK;
}

static graphc_status check_writes(const Graph *g) {
    uint32_t *written = ARENA_ARRAY(g->arena, uint32_t, g->states.n);
    for (uint32_t i = 0; i < g->writes.n; i++) {
        const StateWrite *w = &g->writes.v[i];
        if (w->state >= g->states.n || !w->value || w->value >= g->nodes.n)
            return diag(g->diags, D_VERIFY, "", "graph \"%s\": write %u is of nothing", g->name, i);
        const StateInfo *s = &g->states.v[w->state];
        if (is_tuple(graph_node(g, w->value)) || !state_takes(s, graph_type(g, w->value)))
            return bad_state(g, s, "is written with another type");
        uint32_t set = w->entries ? w->entries : UINT32_MAX;
        if (written[w->state] & set) return bad_state(g, s, "is written twice");
        written[w->state] |= set;
    }
    return check_entries(g);
}

graphc_status graph_verify(const Graph *g) {
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        Check c = {g, v, n, &n->type, NULL};
        if (n->nin && n->in[0] && n->in[0] < v) c.x = graph_type(g, n->in[0]);
        const char *bad = check_node(&c);
        if (bad) return report(g, v, bad);
    }
    GC_TRY(check_states(g));
    GC_TRY(check_writes(g));
    for (uint32_t i = 0; i < g->outputs.n; i++) {
        Value v = g->outputs.v[i].value;
        if (!v || v >= g->nodes.n || is_tuple(graph_node(g, v)))
            return diag(g->diags, D_VERIFY, "", "graph \"%s\": output \"%s\" has no value", g->name,
                        g->outputs.v[i].name);
    }
    return GRAPHC_OK;
}
