/* raise: o = softmax(scores) * values becomes attention(scores, values), whatever is spelled around
 * it; and the way back, for who cannot use a composite.
 *
 * From a contraction upwards: its first operand is, through views that keep the contracted axis
 * whole and casts, exp(x - m) / sum(exp(x - m)), perhaps guarded against rows without finite
 * scores. m is one value per row made of the row's maximum; what it is exactly cancels out. The
 * views are made again over the scores x. Scores may be anything that has a contraction in it:
 * masks, biases and caps stay as they are, and are computed inside of attention's kernel.
 *
 * Needs: dce (readers are counted). Keeps: meaning; results differ in rounding where the model
 * rounds inside of softmax. Breaks: nothing; leaves dead nodes for dce. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

#include <string.h>

#define MAX_VIEWS   8
#define MAX_INSIDE  32 /* values between scores and result */
#define MAX_FORMULA 64 /* values of a score that are looked at for a contraction */

typedef struct Match {
    const Rewrite *r;
    Value scores;
    uint32_t axis; /* that softmax runs along, of the scores */
    bool guarded;
    Value view[MAX_VIEWS]; /* from the result downwards */
    uint32_t nviews;
    Value inside[MAX_INSIDE]; /* each replaced, if nobody else reads it */
    uint32_t ninside;
} Match;

static const Node *node(const Match *m, Value v) {
    return graph_node(m->r->from, v);
}

static const Type *type(const Match *m, Value v) {
    return graph_type(m->r->from, v);
}

static bool is_float_cast(const Match *m, const Node *n) {
    return n->op == OP_cast && dtype_is_float(n->type.dtype) &&
           dtype_is_float(type(m, n->in[0])->dtype);
}

static bool take(Match *m, Value v) {
    for (uint32_t i = 0; i < m->ninside; i++)
        if (m->inside[i] == v) return true;
    if (m->ninside == MAX_INSIDE) return false;
    m->inside[m->ninside++] = v;
    return true;
}

static Value behind_casts(const Match *m, Value v) {
    while (is_float_cast(m, node(m, v))) v = node(m, v)->in[0];
    return v;
}

static Value past_casts(Match *m, Value v) {
    while (is_float_cast(m, node(m, v)) && take(m, v)) v = node(m, v)->in[0];
    return v;
}

/* ---- Views between softmax and the contraction ---- */

/* The dimension of `in` that is dimension `axis` of its reshape: of that size, with as many
 * elements behind it. -1: there is none. */
static int axis_before(ExprPool *p, const Type *in, const Type *out, uint32_t axis) {
    Expr behind = expr_const(p, 1), here = behind;
    for (uint32_t i = out->rank; i-- > axis + 1;) behind = expr_mul(p, behind, out->dim[i]);
    for (uint32_t i = in->rank; i-- > 0; here = expr_mul(p, here, in->dim[i]))
        if (here == behind && in->dim[i] == out->dim[axis]) return (int)i;
    return -1;
}

/* A view that keeps m->axis whole: false for all others. */
static bool follow_view(Match *m, Value v) {
    const Node *n = node(m, v);
    const Type *in = type(m, n->in[0]);
    int axis = -1;
    if (n->op == OP_permute) axis = n->attr.perm.axis[m->axis];
    if (n->op == OP_reshape) axis = axis_before(m->r->from->exprs, in, &n->type, m->axis);
    if (n->op == OP_expand && in->dim[m->axis] == n->type.dim[m->axis]) axis = (int)m->axis;
    if (axis < 0 || m->nviews == MAX_VIEWS) return false;
    m->view[m->nviews++] = v;
    m->axis = (uint32_t)axis;
    return true;
}

static Value past_views(Match *m, Value v) {
    for (;;) {
        v = past_casts(m, v);
        OpClass c = op_info[node(m, v)->op].cls;
        if (c != OPC_VIEW || !follow_view(m, v) || !take(m, v)) return v;
        v = node(m, v)->in[0];
    }
}

/* ---- Softmax ---- */

static bool is_constant(const Match *m, Value v, double *c) {
    while (node(m, v)->op == OP_expand || node(m, v)->op == OP_reshape) v = node(m, v)->in[0];
    return build_const_f64(m->r->from, v, c);
}

/* select(isnan(p), 0, p) and its mirror image: p. */
static Value past_guard(Match *m, Value v) {
    const Node *n = node(m, v);
    if (n->op != OP_select) return v;
    const Node *c = node(m, n->in[0]);
    bool negated = c->op == OP_not;
    Value test = negated ? c->in[0] : n->in[0];
    Value kept = n->in[negated ? 1 : 2], fill = n->in[negated ? 2 : 1];
    double zero;
    if (node(m, test)->op != OP_isnan || !is_constant(m, fill, &zero) || zero != 0) return v;
    if (node(m, test)->in[0] != kept || !take(m, v) || !take(m, n->in[0]) || !take(m, test))
        return v;
    m->guarded = true;
    return past_views(m, kept);
}

/* The shape of the scores, with one element in place of a row or with no such axis. */
static bool is_row_shape(const Match *m, const Type *t) {
    const Type *full = type(m, m->scores);
    bool kept = t->rank == full->rank;
    if (!kept && t->rank + 1 != full->rank) return false;
    for (uint32_t i = 0, j = 0; i < full->rank; i++) {
        if (i == m->axis && !kept) continue;
        Expr d = t->dim[j++];
        if (i == m->axis ? !expr_is_value(m->r->from->exprs, d, 1) : d != full->dim[i])
            return false;
    }
    return true;
}

static bool take_condition(Match *m, Value v) {
    if (node(m, v)->op == OP_not && !take(m, node(m, v)->in[0])) return false;
    return take(m, v);
}

/* Of a value that is the same along each row: one step closer to the fold that it is made of; 0 if
 * there is none. A maximum may be kept finite: max(m, c), select(isinf(m), c, m). */
static Value closer(Match *m, Value v) {
    const Node *n = node(m, v);
    double c;
    switch (n->op) {
    case OP_cast: return is_float_cast(m, n) ? n->in[0] : 0;
    case OP_expand:
    case OP_reshape: return is_row_shape(m, type(m, n->in[0])) ? n->in[0] : 0;
    case OP_max:
        if (!is_row_shape(m, &n->type)) return 0;
        return is_constant(m, n->in[1], &c) ? n->in[0] : n->in[1];
    case OP_select:
        if (!is_row_shape(m, &n->type) || !take_condition(m, n->in[0])) return 0;
        return is_constant(m, n->in[1], &c) ? n->in[2] : n->in[1];
    default: return 0;
    }
}

/* What is folded along the rows to make v, which is the same along each row; 0 if v is not. */
static Value folded(Match *m, Value v, Op op) {
    for (int i = 0; v && i < 8; i++) {
        const Node *n = node(m, v);
        if (n->op == op) return n->attr.reduce.axes == 1u << m->axis && take(m, v) ? n->in[0] : 0;
        if (!take(m, v) ||
            (op == OP_reduce_sum && op_info[n->op].cls == OPC_MAP && n->op != OP_cast))
            return 0;
        v = closer(m, v);
    }
    return 0;
}

static bool same_shape(const Type *a, const Type *b) {
    return a->rank == b->rank && !memcmp(a->dim, b->dim, a->rank * sizeof a->dim[0]);
}

/* exp(scores - max of scores), which v is. */
static bool match_exp(Match *m, Value v) {
    const Node *n = node(m, v);
    if (n->op != OP_exp || !take(m, v)) return false;
    Value d = past_casts(m, n->in[0]);
    n = node(m, d);
    if (n->op != OP_sub || !take(m, d)) return false;
    m->scores = n->in[0];
    Value x = folded(m, n->in[1], OP_reduce_max);
    return x && behind_casts(m, x) == behind_casts(m, m->scores);
}

/* e / sum(e), or e * (1 / sum(e)). */
static bool match_softmax(Match *m, Value p) {
    const Node *n = node(m, p);
    if ((n->op != OP_div && n->op != OP_mul) || !take(m, p)) return false;
    for (uint32_t i = 0; i < (n->op == OP_mul ? 2u : 1u); i++) {
        Match before = *m;
        Value e = past_casts(m, n->in[i]), sum = n->in[1 - i];
        if (match_exp(m, e) && same_shape(type(m, p), type(m, m->scores))) {
            Value inverse = sum;
            while (n->op == OP_mul && inverse && node(m, inverse)->op != OP_recip &&
                   take(m, inverse))
                inverse = closer(m, inverse);
            if (n->op == OP_mul) sum = inverse && take(m, inverse) ? node(m, inverse)->in[0] : 0;
            Value x = sum ? folded(m, sum, OP_reduce_sum) : 0;
            if (x && past_casts(m, x) == e) return true;
        }
        *m = before;
    }
    return false;
}

/* ---- Whole ---- */

static bool has_contraction(const Match *m, Value v, uint32_t *left) {
    const Node *n = node(m, v);
    OpClass c = op_info[n->op].cls;
    if (c == OPC_CONTRACT) return true;
    if ((c != OPC_MAP && c != OPC_VIEW) || !*left) return false;
    --*left;
    for (uint32_t i = 0; i < n->nin; i++)
        if (has_contraction(m, n->in[i], left)) return true;
    return false;
}

/* Nothing outside reads what would be gone. */
static bool used_inside_only(const Match *m, Value o) {
    for (uint32_t i = 0; i < m->ninside; i++) {
        uint32_t inner = 0;
        for (uint32_t k = 0; k <= m->ninside; k++) {
            const Node *n = node(m, k < m->ninside ? m->inside[k] : o);
            for (uint32_t a = 0; a < n->nin; a++) inner += n->in[a] == m->inside[i];
        }
        if (inner != m->r->uses[m->inside[i]]) return false;
    }
    return true;
}

static bool match(Match *m, Value o) {
    const Node *n = node(m, o);
    uint32_t left = MAX_FORMULA;
    if (n->op != OP_dot || !dtype_is_float(n->type.dtype)) return false;
    m->axis = n->type.rank - 1u;
    Value p = past_guard(m, past_views(m, n->in[0]));
    return match_softmax(m, p) && has_contraction(m, m->scores, &left) && used_inside_only(m, o) &&
           n->in[1] != n->in[0];
}

/* The ONNX nodes that are in it now. */
static void at_all(Rewrite *r, const Match *m, Value o) {
    Loc loc[MAX_INSIDE + 1] = {node(m, o)->loc};
    for (uint32_t i = 0; i < m->ninside; i++) loc[i + 1] = node(m, m->inside[i])->loc;
    build_at(r->to, build_loc_join(r->to, loc, m->ninside + 1));
}

static Value raise(Rewrite *r, Value v) {
    Match m = {.r = r};
    if (!match(&m, v)) return 0;
    Value x = r->map[m.scores];
    for (uint32_t i = m.nviews; i-- > 0;) {
        Node n = *graph_node(r->from, m.view[i]);
        n.type.dtype = graph_type(r->to, x)->dtype;
        x = build_like(r->to, &n, &x, 1);
    }
    const Node *n = graph_node(r->from, v);
    at_all(r, &m, v);
    return build_attention(r->to, x, rewrite_in(r, v, 1), n->attr.cast.to, m.guarded);
}

Graph *pass_raise(Graph *g) {
    return rewrite_graph(g, raise, NULL, NULL);
}

/* ---- Back ---- */

typedef struct Chosen {
    const Graph *of;
    const bool *which;
} Chosen;

/* Bodies have numbers of their own, and none of theirs was chosen. */
static void *chosen(const Graph *g, void *ctx) {
    Chosen *c = ctx;
    return g == c->of ? c : NULL;
}

static Value decompose(Rewrite *r, Value v) {
    const Node *n = graph_node(r->from, v);
    const Chosen *c = r->facts;
    if (!c || !c->which[v]) return 0;
    Value in[2] = {rewrite_in(r, v, 0), n->nin > 1 ? rewrite_in(r, v, 1) : 0};
    return build_decomposed(r->to, n, in);
}

Graph *pass_decompose(const Graph *g, const bool *which) {
    Chosen c = {g, which};
    return rewrite_graph(g, decompose, chosen, &c);
}
