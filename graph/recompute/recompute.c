#include "graph/recompute/recompute.h"
#include "graph/recompute/cut.h"
#include "graph/pass/rewrite.h"

typedef struct Facts {
    const Recompute *how;
    /* By value of the old graph. */
    bool *forward;
    bool *ready;   /* in memory, or computed from constants: backward has it for nothing */
    bool *scores;  /* computed inside of attention */
    bool *through; /* all of forward goes through it: between two of them is a layer, or part of one
                    */
    Value until;   /* contractions in front of it are computed again where that is the cheaper */
    bool *redo;    /* computed again */
    bool *idle;  /* of backward, from forward alone, element by element: it waits until it is asked
                    for */
    Value *copy; /* ... in the new graph, once it was asked for */
} Facts;

static bool is_view(const Node *n) {
    return op_info[n->op].cls == OPC_VIEW;
}

static double bytes_of(const Graph *g, Value v) {
    const Type *t = graph_type(g, v);
    return graph_numel(g, t) * (double)dtype_bytes(t->dtype);
}

/* --- What computing a value costs ------------------------------------------------------------- */

static double contraction_seconds(const Graph *g, const Recompute *how, const Node *n) {
    bool half = dtype_is_half(graph_type(g, n->in[n->op == OP_attention])->dtype);
    double rate = half && how->matrix_flops_per_s > 0 ? how->matrix_flops_per_s : how->flops_per_s;
    return 2 * graph_products(g, n) / rate;
}

/* A weight in a narrower type: contractions read it from memory, so it is read, stored and read. */
static bool narrows_weight(const Graph *g, const Node *n) {
    const Node *from = graph_node(g, n->in[0]);
    return n->op == OP_cast && op_is_leaf((Op)from->op) && n->type.rank > 1 &&
           dtype_bytes(n->type.dtype) < dtype_bytes(from->type.dtype);
}

/* Seconds to compute v from its operands; negative: it is not computed again. */
static double seconds_again(const Graph *g, const Facts *f, Value v) {
    const Node *n = graph_node(g, v);
    const Recompute *how = f->how;
    if (f->scores[v]) return 0;
    if (narrows_weight(g, n))
        return (bytes_of(g, n->in[0]) + 2 * bytes_of(g, v)) / how->bytes_per_s;
    switch (op_info[n->op].cls) {
    case OPC_MAP:
    case OPC_RANDOM:
        return graph_numel(g, &n->type) * (double)op_info[n->op].cost / how->flops_per_s;
    case OPC_VIEW: return n->op == OP_concat ? bytes_of(g, v) / how->bytes_per_s : 0;
    case OPC_SOURCE: return 0;
    case OPC_REDUCE: return bytes_of(g, n->in[0]) / how->bytes_per_s;
    case OPC_INDEX: return n->op == OP_gather ? 2 * bytes_of(g, v) / how->bytes_per_s : -1;
    case OPC_CONTRACT: return v < f->until ? contraction_seconds(g, how, n) : -1;
    case OPC_COMPOSITE:
        if (v >= f->until) return -1;
        return n->op == OP_attention ? 2 * contraction_seconds(g, how, n) : 0;
    default: return -1;
    }
}

/* --- What values are -------------------------------------------------------------------------- */

/* Behind an attention's scores, to the contraction that they are made of. True: it was found. */
static bool mark_scores(const Graph *g, Facts *f, Value v) {
    const Node *n = graph_node(g, v);
    if (f->scores[v]) return true;
    bool any = n->op == OP_dot && !f->ready[v];
    bool through = op_info[n->op].cls == OPC_MAP || is_view(n);
    for (uint32_t i = 0; through && i < n->nin; i++) any |= mark_scores(g, f, n->in[i]);
    return f->scores[v] = any;
}

/* What an attention leaves for its gradient, it leaves in forward. */
static void find_forward(const Graph *g, Facts *f) {
    f->forward = graph_needed(g, f->how->forward);
    bool *scores = ARENA_ARRAY(g->arena, bool, g->nodes.n);
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        if (n->op == OP_attention && f->forward[v]) scores[n->in[0]] = true;
    }
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        f->forward[v] |= n->op == OP_logsumexp && scores[n->in[0]];
    }
}

static void find_ready(const Graph *g, Facts *f) {
    graph_mark_constant(g, f->ready);
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        f->ready[v] |= op_info[n->op].cls == OPC_SOURCE;
        if (f->forward[v]) continue;
        bool control = op_info[n->op].cls == OPC_CONTROL; /* its captures are read as they are */
        for (uint32_t i = 0; control && i < n->nin; i++) f->ready[n->in[i]] = true;
    }
}

static void find_idle(const Graph *g, Facts *f, const bool *live) {
    bool *given = ARENA_ARRAY(g->arena, bool, g->nodes.n);
    for (uint32_t i = 0; i < g->outputs.n; i++) given[g->outputs.v[i].value] = true;
    for (uint32_t i = 0; i < g->writes.n; i++) given[g->writes.v[i].value] = true;
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        f->idle[v] = live[v] && !f->forward[v] && !f->ready[v] && !given[v] &&
                     (op_info[n->op].cls == OPC_MAP || is_view(n));
        for (uint32_t i = 0; i < n->nin; i++)
            f->idle[v] &= f->forward[n->in[i]] || f->ready[n->in[i]] || f->idle[n->in[i]];
    }
}

/* --- Layers ----------------------------------------------------------------------------------- */

static bool is_float(const Graph *g, Value v) {
    return dtype_is_float(graph_type(g, v)->dtype);
}

/* Computed from the batch's floats, or from a table's rows: not positions, masks and rotations. */
static void find_data(const Graph *g, const Facts *f, bool *data) {
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        data[v] =
            (n->op == OP_input && is_float(g, v)) ||
            (n->op == OP_gather && f->ready[n->in[0]] && is_float(g, n->in[0]) && !f->ready[v]);
        for (uint32_t i = 0; i < n->nin; i++) data[v] |= data[n->in[i]];
    }
}

/* v behind views and casts to wider types: what is kept of it. */
static Value narrowest(const Graph *g, Value v) {
    for (;;) {
        const Node *n = graph_node(g, v);
        bool wider = n->op == OP_cast &&
                     dtype_bytes(n->type.dtype) > dtype_bytes(graph_type(g, n->in[0])->dtype);
        if (!wider && !(is_view(n) && n->nin == 1)) return v;
        v = n->in[0];
    }
}

/* Of values as they are kept: the last of forward that reads each, 0: none. */
static Value *last_readers(const Graph *g, const Facts *f) {
    bool *data = ARENA_ARRAY(g->arena, bool, g->nodes.n);
    Value *last = ARENA_ARRAY(g->arena, Value, g->nodes.n);
    find_data(g, f, data);
    for (Value v = 1; v < g->nodes.n; v++)
        for (uint32_t i = 0; f->forward[v] && i < graph_node(g, v)->nin; i++) {
            Value x = narrowest(g, graph_node(g, v)->in[i]);
            if (data[x] && !f->scores[x]) last[x] = v;
        }
    return last;
}

#define LEAST_LAYER 2 /* contractions */

/* Where one value alone is read from what stands before by what stands behind, a layer apart; of
 * one that is rounded at once the rounded one. */
static void find_through(const Graph *g, Facts *f) {
    const Value *last = last_readers(g, f);
    Value *ends = ARENA_ARRAY(g->arena, Value, g->nodes.n),
          *next = ARENA_ARRAY(g->arena, Value, g->nodes.n);
    uint32_t crossing = 0, dots = 0;
    uint64_t sum = 0; /* of those that cross: the value itself where it is one */
    Value latest = 0;
    for (Value v = 1; v < g->nodes.n; v++) {
        next[v] = ends[last[v]];
        ends[last[v]] = v;
    }
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        if (!f->forward[v]) continue;
        for (Value x = ends[v]; x; x = next[x]) crossing--, sum -= x;
        if (last[v]) crossing++, sum += v;
        dots += op_info[n->op].cls == OPC_CONTRACT || n->op == OP_attention;
        bool rounds = n->op == OP_cast && n->in[0] == latest;
        if (crossing != 1 || sum != v || (dots < LEAST_LAYER && !rounds)) continue;
        if (rounds) f->through[latest] = false;
        f->through[v] = true;
        latest = v;
        dots = 0;
    }
}

/* Ends of layers that are asked for, and behind which contractions are kept. */
static void find_layers(const Graph *g, Facts *f) {
    uint32_t all = 0, n = 0;
    find_through(g, f);
    for (Value v = 1; v < g->nodes.n; v++) all += f->through[v];
    for (Value v = 1; v < g->nodes.n; v++) {
        if (!f->through[v] || f->how->layers >= 1) continue;
        if (++n <= f->how->layers * all)
            f->until = v;
        else
            f->through[v] = false;
    }
    if (f->how->layers >= 1) f->until = g->nodes.n;
}

/* --- The cut ---------------------------------------------------------------------------------- */

static uint32_t computed(Value v) {
    return CUT_FIRST + 2 * v;
}
static uint32_t at_hand(Value v) {
    return CUT_FIRST + 2 * v + 1;
}

/* Costs are whole picoseconds, so that equal graphs give equal choices. */
static int64_t cost(double seconds) {
    double p = seconds * 1e12;
    return seconds < 0 || p > 1e17 ? CUT_NEVER : (int64_t)p + 1;
}

static double seconds_kept(const Graph *g, const Facts *f, Value v) {
    const Node *n = graph_node(g, v);
    bool tuple = op_info[n->op].cls == OPC_CONTROL && n->op != OP_proj;
    if (f->scores[v] || is_view(n) || tuple) return -1;
    if (f->through[v]) return 0;
    return f->how->moves * bytes_of(g, v) / f->how->bytes_per_s;
}

static void add_value(const Graph *g, const Facts *f, Cut *c, Value v) {
    const Node *n = graph_node(g, v);
    cut_edge(c, CUT_SOURCE, computed(v), cost(seconds_again(g, f, v)));
    cut_edge(c, computed(v), at_hand(v), cost(seconds_kept(g, f, v)));
    for (uint32_t i = 0; i < n->nin; i++)
        if (!f->ready[n->in[i]]) cut_edge(c, at_hand(n->in[i]), computed(v), CUT_NEVER);
}

/* The kernel that gives an attention gives its scores' statistics: no other has them as cheaply. */
static void tie_statistics(const Graph *g, const Facts *f, Cut *c) {
    Value *attention = ARENA_ARRAY(g->arena, Value, g->nodes.n); /* by scores */
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        if (n->op == OP_attention && f->forward[v]) attention[n->in[0]] = v;
    }
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        if (n->op == OP_logsumexp && f->forward[v] && attention[n->in[0]])
            cut_edge(c, computed(attention[n->in[0]]), computed(v), CUT_NEVER);
    }
}

static void choose(const Graph *g, Facts *f, const bool *live) {
    Cut *c = cut_new(g->arena, CUT_FIRST + 2 * g->nodes.n);
    tie_statistics(g, f, c);
    bool *read = ARENA_ARRAY(g->arena, bool, g->nodes.n);
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        if (f->forward[v] && !f->ready[v]) add_value(g, f, c, v);
        for (uint32_t i = 0; live[v] && !f->forward[v] && i < n->nin; i++) read[n->in[i]] = true;
    }
    for (Value v = 1; v < g->nodes.n; v++)
        if (read[v] && f->forward[v] && !f->ready[v]) cut_edge(c, at_hand(v), CUT_SINK, CUT_NEVER);
    const bool *sink = cut_solve(c);
    for (Value v = 1; v < g->nodes.n; v++)
        f->redo[v] = f->forward[v] && !f->ready[v] && sink[computed(v)];
}

/* --- Rewriting -------------------------------------------------------------------------------- */

static Value again(Rewrite *r, Value v);

/* v as backward has it. */
static Value in_backward(Rewrite *r, Value v) {
    const Facts *f = r->facts;
    return f->redo[v] || f->idle[v] ? again(r, v) : r->map[v];
}

static Value *operands_in_backward(Rewrite *r, const Node *n) {
    Value *in = ARENA_ARRAY(r->to->arena, Value, n->nin);
    for (uint32_t i = 0; i < n->nin; i++) in[i] = in_backward(r, n->in[i]);
    return in;
}

static Value again(Rewrite *r, Value v) {
    Facts *f = r->facts;
    const Loc here = build_loc(r->to);
    const Node *n = graph_node(r->from, v);
    if (f->copy[v]) return f->copy[v];
    Value *in = operands_in_backward(r, n);
    build_at(r->to, f->idle[v] ? n->loc : build_loc_part(r->to, n->loc, PART_again));
    build_late(r->to, true);
    f->copy[v] = build_like(r->to, n, in, n->nin);
    build_at(r->to, here);
    return f->copy[v];
}

static bool reads_idle(const Facts *f, const Node *n) {
    for (uint32_t i = 0; i < n->nin; i++)
        if (f->idle[n->in[i]]) return true;
    return false;
}

/* What a loop or branch of backward reads is ready, and has to stand where it stood; what it is
 * itself made of may be idle. */
static Value rewrite(Rewrite *r, Value v) {
    const Facts *f = r->facts;
    const Node *n = graph_node(r->from, v);
    if (!f || f->forward[v] || (f->ready[v] && !reads_idle(f, n))) return 0;
    if (f->idle[v]) return 1; /* anything: who reads v asks in_backward */
    Value *in = operands_in_backward(r, n);
    build_late(r->to, true);
    return build_like(r->to, n, in, n->nin);
}

static void *facts(const Graph *g, void *ctx) {
    if (g->is_body) return NULL;
    Facts *f = ARENA_NEW(g->arena, Facts);
    const uint32_t n = g->nodes.n;
    const bool *live = graph_live(g);
    f->how = *(const Recompute *const *)ctx;
    find_forward(g, f);
    bool **flags[] = {&f->ready, &f->scores, &f->through, &f->redo, &f->idle};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        *flags[i] = ARENA_ARRAY(g->arena, bool, n);
    f->copy = ARENA_ARRAY(g->arena, Value, n);
    find_ready(g, f);
    for (Value v = 1; v < n; v++) {
        const Node *x = graph_node(g, v);
        bool attends = x->op == OP_attention || x->op == OP_logsumexp;
        if (attends && f->forward[v]) (void)mark_scores(g, f, x->in[0]);
    }
    find_idle(g, f, live);
    if (f->how->layers > 0) find_layers(g, f);
    choose(g, f, live);
    return f;
}

Graph *recompute(Graph *g, const Recompute *how) {
    return rewrite_graph(g, rewrite, facts, &how);
}
