/* gates: one contraction whose result is cut into halves that meet again element by element, as
 * gated units are that have one weight (GEGLU, GLU of convolutions), becomes two over the same left
 * operand.
 *
 *   a * f(b)  of  a, b = halves of (x w + c)   =   (x w_a + c_a) * f(x w_b + c_b)
 *
 * Fusion makes one kernel with two accumulators of them, whose epilogue is the unit: nothing of the
 * width of both is stored. Weights have to be constants as they are stored, or casts and views of
 * such.
 *
 * Of operands of 16 bits: convolutions of f32 have one accumulator on matrix units, and products of
 * f32 in digits store their sums for the next one's digits anyway.
 *
 * Needs: to be behind merge_dots, which keeps apart what meets, and behind precision. Keeps:
 * meaning, bit for bit. Breaks: nothing; leaves dead nodes for dce. */
#include "graph/pass/gates/meet.h"
#include "graph/pass/pass.h"

enum { MAX_CHAIN = 8 }; /* values from the contraction to its halves */

/* One half of the last axis of what lies behind a contraction. */
typedef struct Half {
    Expr start, size;
} Half;

static int last_axis(const Node *n) {
    return n->type.rank - 1;
}

static bool is_half_type(DType t) {
    return t == DT_bf16 || t == DT_f16;
}

static bool is_stored(const Graph *g, Value w) {
    const Node *n = graph_node(g, w);
    while (n->op == OP_cast || n->op == OP_permute || n->op == OP_reshape)
        n = graph_node(g, n->in[0]);
    return n->op == OP_const;
}

static bool is_contraction(const Graph *g, const Node *n) {
    if (n->op == OP_conv ? n->attr.conv.groups != 1 : n->op != OP_dot) return false;
    return is_half_type(graph_type(g, n->in[0])->dtype) && is_stored(g, n->in[1]);
}

/* The operand of v that leads to the contraction, where all others are constants; v's number of
 * operands: none does. */
static uint32_t way_down(const MeetFacts *m, const Node *n) {
    uint32_t at = n->nin;
    for (uint32_t i = 0; i < n->nin; i++) {
        if (m->constant[n->in[i]]) continue;
        if (at < n->nin) return n->nin;
        at = i;
    }
    return at;
}

/* Between v and a contraction there are only maps with constants and reshapes that keep the last
 * axis, for nobody else. */
static bool is_behind(const Rewrite *r, Value v) {
    const Graph *g = r->from;
    for (int i = 0; i < MAX_CHAIN; i++) {
        const Node *n = graph_node(g, v);
        if (is_contraction(g, n)) return true;
        bool map = op_info[n->op].cls == OPC_MAP;
        uint32_t at = way_down(r->facts, n);
        if ((!map && n->op != OP_reshape) || at == n->nin || r->uses[n->in[at]] != 1) return false;
        const Node *in = graph_node(g, n->in[at]);
        if (!in->type.rank || in->type.dim[last_axis(in)] != n->type.dim[last_axis(n)])
            return false;
        v = n->in[at];
    }
    return false;
}

/* Of the slice v: a half of the last axis, and all of the others. */
static bool read_half(const Graph *g, Value v, Half *h) {
    const Node *n = graph_node(g, v);
    if (n->op != OP_slice) return false;
    const Type *of = graph_type(g, n->in[0]);
    int last = last_axis(n);
    for (int i = 0; i < n->type.rank; i++) {
        if (n->attr.slice.step[i] != 1) return false;
        if (i < last && n->type.dim[i] != of->dim[i]) return false;
    }
    *h = (Half){n->attr.slice.start[last], n->type.dim[last]};
    return expr_muli(g->exprs, h->size, 2) == of->dim[last];
}

/* The other slice of what v is a slice of, which together with it is all of that; 0: it has other
 * readers. */
static Value other_half(const Rewrite *r, Value v, const Half *h) {
    const Graph *g = r->from;
    const MeetFacts *m = r->facts;
    Value of = graph_node(g, v)->in[0];
    Half x;
    if (r->uses[of] != 2) return 0;
    for (Value u = of + 1; u <= m->user[of]; u++) {
        if (u == v || graph_node(g, u)->nin == 0 || graph_node(g, u)->in[0] != of) continue;
        return read_half(g, u, &x) && x.start != h->start ? u : 0;
    }
    return 0;
}

static Value cut(Rewrite *r, Value v, const Half *h) {
    return build_slice_axis(r->to, v, -1, h->start, h->size, 1);
}

/* v's half, made of a contraction of its own. */
static Value half_of(Rewrite *r, Value v, const Half *h) {
    const Node *n = graph_node(r->from, v);
    Value in[3];
    build_at(r->to, n->loc);
    if (n->op == OP_dot)
        return build_dot(r->to, rewrite_in(r, v, 0), cut(r, rewrite_in(r, v, 1), h),
                         n->attr.cast.to);
    if (n->op == OP_conv)
        return build_conv(r->to, rewrite_in(r, v, 0), cut(r, rewrite_in(r, v, 1), h), &n->attr);
    uint32_t at = way_down(r->facts, n);
    for (uint32_t i = 0; i < n->nin; i++)
        in[i] = i == at ? half_of(r, n->in[i], h) : cut(r, rewrite_in(r, v, i), h);
    Node like = *n;
    like.type.dim[last_axis(n)] = h->size;
    if (n->op == OP_reshape) return build_reshape(r->to, in[0], like.type.rank, like.type.dim);
    return build_like(r->to, &like, in, n->nin);
}

static Value gates(Rewrite *r, Value v) {
    Half h;
    if (!read_half(r->from, v, &h) || !is_behind(r, graph_node(r->from, v)->in[0])) return 0;
    Value other = other_half(r, v, &h), at = other ? meet_point(r, r->facts, v) : 0;
    if (!at || meet_point(r, r->facts, other) != at) return 0;
    return half_of(r, graph_node(r->from, v)->in[0], &h);
}

Graph *pass_gates(Graph *g) {
    return rewrite_graph(g, gates, meet_facts, NULL);
}
