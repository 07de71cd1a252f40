/* merge_dots: contractions that share their left operand and have constant right operands (the
 * query, key and value projections of attention) become one contraction with the right operands
 * side by side, followed by slices. What all of them do next alike (reshape that keeps the last
 * axis, cast, a constant row added) is done once, before the slices.
 *
 * Dots whose results meet in one element-wise chain (the gate and up projections of a gated unit)
 * stay apart: fusion makes one kernel with several accumulators of them, which needs no slices. So
 * do weights that something else reads as well, as backward does: side by side they would be in
 * memory a second time.
 *
 * Needs: canonical spelling (pass_canon). Keeps: meaning, bit for bit. Breaks: nothing; leaves dead
 * nodes for dce. */
#include "graph/pass/gates/meet.h"
#include "graph/pass/pass.h"

#define MAX_SIBLINGS 16

typedef struct Siblings {
    uint32_t n;
    Value head[MAX_SIBLINGS]; /* where each chain stands, in the old graph */
    Expr width[MAX_SIBLINGS], offset[MAX_SIBLINGS], total;
    Value merged; /* the chains side by side, in the new graph */
} Siblings;

static Value single_user(const Rewrite *r, Value v) {
    return r->uses[v] == 1 ? ((MeetFacts *)r->facts)->user[v] : 0;
}

static bool is_map(const Graph *g, Value v) {
    return op_info[graph_node(g, v)->op].cls == OPC_MAP;
}

static Value meets_another(const Rewrite *r, const Value *dots, uint32_t n, uint32_t i) {
    const MeetFacts *m = r->facts;
    Value at = meet_point(r, m, dots[i]);
    for (uint32_t k = 0; at && k < n; k++)
        if (k != i && meet_point(r, m, dots[k]) == at) return at;
    return 0;
}

static bool same_but_last(const Type *a, const Type *b) {
    if (a->dtype != b->dtype || a->rank != b->rank) return false;
    for (int i = 0; i + 1 < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

/* Nobody but its contraction reads the weight, or what it is a view of. */
static bool is_own(const Rewrite *r, Value weight) {
    while (r->uses[weight] == 1 && graph_node(r->from, weight)->nin == 1)
        weight = graph_node(r->from, weight)->in[0];
    return r->uses[weight] == 1;
}

static uint32_t find_siblings(const Rewrite *r, Value first, Value *out) {
    const Graph *g = r->from;
    const MeetFacts *m = r->facts;
    const Node *f = graph_node(g, first);
    Value all[MAX_SIBLINGS];
    uint32_t n = 0, kept = 0;
    for (Value v = first; v < g->nodes.n && n < MAX_SIBLINGS; v++) {
        const Node *d = graph_node(g, v);
        if (d->op == OP_dot && d->in[0] == f->in[0] && m->constant[d->in[1]] && !r->map[v] &&
            d->attr.cast.to == f->attr.cast.to && is_own(r, d->in[1]) &&
            same_but_last(graph_type(g, d->in[1]), graph_type(g, f->in[1])))
            all[n++] = v;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!meets_another(r, all, n, i)) out[kept++] = all[i];
    return kept && out[0] == first ? kept : 0;
}

/* A constant value and what it needs, copied ahead of its turn: depth is that of weight
 * expressions. */
static Value copy_now(Rewrite *r, Value v) {
    const Node *n = graph_node(r->from, v);
    for (uint32_t i = 0; i < n->nin; i++)
        if (!r->map[n->in[i]]) r->map[n->in[i]] = copy_now(r, n->in[i]);
    return r->map[v] = rewrite_copy(r, v);
}

static Value concat_now(Rewrite *r, const Value *in, uint32_t n, int axis) {
    Value parts[MAX_SIBLINGS];
    for (uint32_t i = 0; i < n; i++) parts[i] = copy_now(r, in[i]);
    return build_concat(r->to, parts, n, axis);
}

/* Several values, and the axis along which they are put side by side. */
typedef struct Beside {
    Value v[MAX_SIBLINGS];
    uint32_t n;
    int axis;
} Beside;

static Beside operands(const Rewrite *r, const Beside *b, uint32_t i, int axis) {
    Beside x = {.n = b->n, .axis = axis};
    for (uint32_t k = 0; k < b->n; k++) x.v[k] = graph_node(r->from, b->v[k])->in[i];
    return x;
}

/* All made by one op, of sizes that differ along the axis alone. */
static bool alike(const Rewrite *r, const Beside *b) {
    const Node *first = graph_node(r->from, b->v[0]);
    for (uint32_t k = 1; k < b->n; k++) {
        const Node *n = graph_node(r->from, b->v[k]);
        if (n->op != first->op || n->nin != first->nin || n->type.rank != first->type.rank ||
            n->type.dtype != first->type.dtype)
            return false;
        for (int i = 0; i < n->type.rank; i++)
            if (i != b->axis && n->type.dim[i] != first->type.dim[i]) return false;
    }
    return true;
}

/* Views that leave the axis whole: the axis before them, or -1. */
static int axis_before(const Rewrite *r, const Beside *b) {
    const Graph *g = r->from;
    const Node *first = graph_node(g, b->v[0]);
    if (first->op == OP_permute) return first->attr.perm.axis[b->axis];
    for (uint32_t k = 0; k < b->n; k++) {
        const Node *n = graph_node(g, b->v[k]);
        const Type *from = graph_type(g, n->in[0]);
        bool whole = from->rank > b->axis && from->dim[b->axis] == n->type.dim[b->axis];
        if (!whole || (n->op == OP_reshape ? b->axis != 0 : from->rank != n->type.rank)) return -1;
    }
    return b->axis;
}

/* One value that is repeated along the axis. */
static bool repeats_one(const Rewrite *r, const Beside *b) {
    const Graph *g = r->from;
    Value of = graph_node(g, b->v[0])->in[0];
    const Type *from = graph_type(g, of), *to = graph_type(g, b->v[0]);
    for (uint32_t k = 1; k < b->n; k++)
        if (graph_node(g, b->v[k])->in[0] != of) return false;
    int at = b->axis - (to->rank - from->rank);
    return at < 0 || expr_is_value(g->exprs, from->dim[at], 1);
}

static Value beside(Rewrite *r, Beside b);

/* A view of operands side by side; 0: it is none of such. */
static Value view_beside(Rewrite *r, const Beside *b) {
    const Node *n = graph_node(r->from, b->v[0]);
    Type t = n->type;
    t.dim[b->axis] = expr_const(r->to->exprs, 0);
    for (uint32_t k = 0; k < b->n; k++) {
        Expr size = graph_type(r->from, b->v[k])->dim[b->axis];
        t.dim[b->axis] = expr_add(r->to->exprs, t.dim[b->axis], size);
    }
    if (n->op == OP_expand && repeats_one(r, b))
        return build_expand(r->to, copy_now(r, n->in[0]), t.rank, t.dim);
    if (n->op != OP_expand && n->op != OP_reshape && n->op != OP_permute) return 0;
    int before = axis_before(r, b);
    Beside in = operands(r, b, 0, before);
    if (before < 0 || !alike(r, &in)) return 0;
    Value x = beside(r, in);
    return n->op == OP_expand    ? build_expand(r->to, x, t.rank, t.dim)
           : n->op == OP_reshape ? build_reshape(r->to, x, t.rank, t.dim)
                                 : build_permute(r->to, x, n->attr.perm.axis);
}

/* Values side by side: what is computed of each alike, of operands side by side. */
static Value beside(Rewrite *r, Beside b) {
    const Node *n = graph_node(r->from, b.v[0]);
    Value in[3];
    bool same = alike(r, &b);
    Value v = same ? view_beside(r, &b) : 0;
    if (v) return v;
    if (!same || !is_map(r->from, b.v[0]) || n->nin > 3) return concat_now(r, b.v, b.n, b.axis);
    for (uint32_t i = 0; i < n->nin; i++) in[i] = beside(r, operands(r, &b, i, b.axis));
    return build_like(r->to, n, in, n->nin);
}

/* Weights side by side. Those that are computed, as numbers of few bits times scales are, keep the
 * form in which they are stored. */
static Value weights_beside(Rewrite *r, const Value *weight, uint32_t n) {
    const Graph *g = r->from;
    Beside b = {.n = n, .axis = graph_type(g, weight[0])->rank - 1};
    for (uint32_t i = 0; i < n; i++) b.v[i] = weight[i];
    const Node *of = graph_node(g, weight[0]);
    while (of->nin == 1) of = graph_node(g, of->in[0]);
    return of->op == OP_mul ? beside(r, b) : concat_now(r, weight, n, -1);
}

/* The row that is expanded to `v`: its dimensions are 1 but for a last one of the given width. */
static Value expanded_row(const Rewrite *r, Value v, Expr width) {
    const Graph *g = r->from;
    const MeetFacts *m = r->facts;
    const Node *n = graph_node(g, v);
    if (n->op != OP_expand || !m->constant[n->in[0]]) return 0;
    const Type *t = graph_type(g, n->in[0]);
    for (int i = 0; i + 1 < t->rank; i++)
        if (!expr_is_value(g->exprs, t->dim[i], 1)) return 0;
    return t->rank && t->dim[t->rank - 1] == width ? n->in[0] : 0;
}

/* What is made from now on stands for all of these. */
static void stand_for(Rewrite *r, const Value *v, uint32_t n) {
    Loc loc[MAX_SIBLINGS];
    for (uint32_t i = 0; i < n; i++) loc[i] = graph_node(r->from, v[i])->loc;
    build_at(r->to, build_loc_join(r->to, loc, n));
}

static bool step_reshape(Rewrite *r, Siblings *s, const Value *next) {
    const Type *first = graph_type(r->from, next[0]);
    Type t = *first;
    for (uint32_t i = 0; i < s->n; i++) {
        const Type *x = graph_type(r->from, next[i]);
        if (!x->rank || x->dim[x->rank - 1] != s->width[i] || !same_but_last(x, first))
            return false;
    }
    t.dim[t.rank - 1] = s->total;
    s->merged = build_reshape(r->to, s->merged, t.rank, t.dim);
    return true;
}

/* The same map on every chain: alone, or with a constant row as its other operand. */
static bool step_map(Rewrite *r, Siblings *s, const Value *next) {
    const Graph *g = r->from;
    const Node *f = graph_node(g, next[0]);
    if (f->nin == 1) {
        Node n = *f;
        n.type = *graph_type(r->to, s->merged);
        n.type.dtype = f->type.dtype;
        for (uint32_t i = 1; i < s->n; i++)
            if (graph_node(g, next[i])->type.dtype != f->type.dtype) return false;
        s->merged = build_like(r->to, &n, &s->merged, 1);
        return true;
    }
    if (f->nin != 2) return false;
    uint32_t side = f->in[0] == s->head[0] ? 0 : 1;
    Value rows[MAX_SIBLINGS];
    for (uint32_t i = 0; i < s->n; i++) {
        const Node *n = graph_node(g, next[i]);
        if (n->in[side] != s->head[i]) return false;
        rows[i] = expanded_row(r, n->in[1 - side], s->width[i]);
        if (!rows[i]) return false;
    }
    const Type *t = graph_type(r->to, s->merged);
    Value row = concat_now(r, rows, s->n, -1);
    Value in[2];
    in[side] = s->merged;
    in[1 - side] = build_expand(r->to, row, t->rank, t->dim);
    s->merged = build_map(r->to, (Op)f->op, in, 2);
    return true;
}

/* Moves every chain one node on if all do the same; false if they part here. */
static bool step(Rewrite *r, Siblings *s) {
    Value next[MAX_SIBLINGS] = {0};
    for (uint32_t i = 0; i < s->n; i++) {
        next[i] = single_user(r, s->head[i]);
        if (!next[i] || graph_node(r->from, next[i])->op != graph_node(r->from, next[0])->op)
            return false;
    }
    bool reshape = graph_node(r->from, next[0])->op == OP_reshape;
    stand_for(r, next, s->n);
    if (reshape ? !step_reshape(r, s, next) : !is_map(r->from, next[0]) || !step_map(r, s, next))
        return false;
    for (uint32_t i = 0; i < s->n; i++) s->head[i] = next[i];
    return true;
}

static void cut(Rewrite *r, const Siblings *s) {
    for (uint32_t i = 0; i < s->n; i++) {
        stand_for(r, &s->head[i], 1);
        r->map[s->head[i]] = build_slice_axis(r->to, s->merged, -1, s->offset[i], s->width[i], 1);
    }
}

static Value merge(Rewrite *r, Value v) {
    const Graph *g = r->from;
    const MeetFacts *m = r->facts;
    const Node *n = graph_node(g, v);
    Siblings s = {0};
    Value weights[MAX_SIBLINGS] = {0};
    if (n->op != OP_dot || !m->constant[n->in[1]]) return 0;
    s.n = find_siblings(r, v, s.head);
    if (s.n < 2) return 0;
    s.total = expr_const(g->exprs, 0);
    for (uint32_t i = 0; i < s.n; i++) {
        const Type *t = graph_type(g, s.head[i]);
        weights[i] = graph_node(g, s.head[i])->in[1];
        s.width[i] = t->dim[t->rank - 1];
        s.offset[i] = s.total;
        s.total = expr_add(g->exprs, s.total, s.width[i]);
    }
    Value side = weights_beside(r, weights, s.n);
    stand_for(r, s.head, s.n);
    s.merged = build_dot(r->to, rewrite_in(r, v, 0), side, n->attr.cast.to);
    cut(r, &s);
    while (step(r, &s)) cut(r, &s);
    return r->map[v];
}

Graph *pass_merge_dots(Graph *g) {
    return rewrite_graph(g, merge, meet_facts, NULL);
}
