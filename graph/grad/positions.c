#include "graph/grad/positions.h"

/* What a value's elements are: those of an input, each of them somewhere. */
typedef struct Seen {
    enum { SEEN_nothing, SEEN_input, SEEN_moved, SEEN_wrapped } as;
    uint32_t input;
    int64_t size; /* moved: so much is added; wrapped: where they are below 0 */
} Seen;

static Value below_views(const Graph *g, Value v) {
    for (const Node *n; n = graph_node(g, v), n->op == OP_expand || n->op == OP_reshape;)
        v = n->in[0];
    return v;
}

/* The one number that all elements are, in memory. */
static bool one_number(const Graph *g, Value v, int64_t *out) {
    const Node *n = graph_node(g, below_views(g, v));
    const DType t = n->type.dtype;
    if (n->op != OP_const || !dtype_is_int(t) || n->attr.constant.bytes != dtype_bytes(t))
        return false;
    *out = dtype_load_i64(t, n->attr.constant.data, 0);
    return true;
}

static Seen moved(const Graph *g, const Node *n, const Seen *seen) {
    Seen s = seen[n->in[0]];
    const bool known = s.as == SEEN_input && one_number(g, n->in[1], &s.size);
    s.as = known ? SEEN_moved : SEEN_nothing;
    return s;
}

/* x < 0 ? x + size : x */
static Seen wrapped(const Graph *g, const Node *n, const Seen *seen) {
    const Node *c = graph_node(g, n->in[0]);
    const Seen x = seen[n->in[2]];
    Seen s = seen[n->in[1]];
    int64_t zero = 1;
    const bool is = s.as == SEEN_moved && x.as == SEEN_input && s.input == x.input &&
                    c->op == OP_lt && seen[c->in[0]].as == SEEN_input &&
                    seen[c->in[0]].input == x.input && one_number(g, c->in[1], &zero) && !zero;
    s.as = is ? SEEN_wrapped : SEEN_nothing;
    return s;
}

static Seen see(const Graph *g, const Node *n, const Seen *seen) {
    switch ((Op)n->op) {
    case OP_cast: return dtype_is_int(n->type.dtype) ? seen[n->in[0]] : (Seen){0};
    case OP_reshape:
    case OP_expand:
    case OP_permute: return seen[n->in[0]];
    case OP_add: return moved(g, n, seen);
    case OP_select: return wrapped(g, n, seen);
    default: return (Seen){0};
    }
}

/* Rows of an axis of a known size that are asked for by number. */
static void bound(const Graph *g, const Node *n, const Seen *seen, Positions *of) {
    const Type *data = graph_type(g, n->in[0]);
    for (int d = 0; d < data->rank; d++) {
        const int src = n->attr.index.src[d];
        const Seen *s = src < 0 ? &seen[n->in[-src]] : NULL;
        int64_t size;
        if (!s || s->as != SEEN_wrapped || !expr_is_const(g->exprs, data->dim[d], &size) ||
            size != s->size)
            continue;
        Positions *p = &of[s->input];
        if (p->lo > p->hi || size - 1 < p->hi) *p = (Positions){-size, size - 1};
    }
}

const Positions *positions_of_inputs(const Graph *g) {
    Seen *seen = ARENA_ARRAY(g->arena, Seen, g->nodes.n);
    Positions *of = ARENA_ARRAY(g->arena, Positions, g->inputs.n + 1);
    for (uint32_t i = 0; i < g->inputs.n; i++) of[i].lo = 1;
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *n = graph_node(g, v);
        if (n->op == OP_input)
            seen[v] = (Seen){.as = SEEN_input, .input = n->attr.input.index};
        else
            seen[v] = see(g, n, seen);
        if (n->op == OP_gather) bound(g, n, seen, of);
    }
    return of;
}
