/* conv_phases: a convolution over elements that lie `s` apart between zeros, as a transposed
 * convolution and the gradient of a strided one are spelt, meets the zeros with all but every s-th
 * tap. Output positions with the same remainder by s use the same taps: each remainder is a
 * convolution of its own over the elements as they are, and together they multiply no zeros.
 *
 *   conv(pad(x, interior = s - 1), w)  =  interleave over r < s of conv(x, w[taps of r])
 *
 * Needs: bn_fold (which looks for whole convolutions). Keeps: meaning; sums leave zeros out.
 * Breaks: nothing; leaves dead nodes for dce. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

#define MAX_PHASES 16
#define MIN_SAVED  (1 << 18) /* products: below that the kernels cost more */

/* One spatial axis. */
typedef struct PhaseAxis {
    int64_t stride, dilation, taps,
        lo;              /* lo: where the first element lies, from the first tap on */
    Expr in, out, count; /* sizes; positions of a phase, all alike */
} PhaseAxis;

typedef struct Phases {
    Graph *g;
    const Node *conv; /* of the old graph */
    Value x, w;
    int n;
    PhaseAxis axis[GRAPH_MAX_WINDOW];
    int64_t phases;
} Phases;

/* The taps of one remainder along one axis. */
typedef struct Taps {
    int64_t first, step, count, dilation;
    int64_t at; /* the element that the first tap meets at the phase's first position */
} Taps;

static int64_t gcd(int64_t a, int64_t b) {
    return b ? gcd(b, a % b) : a;
}

static Taps taps_of(const PhaseAxis *a, int64_t r) {
    int64_t common = gcd(a->stride, a->dilation);
    Taps t = {.step = a->stride / common, .dilation = a->dilation / common};
    while (t.first < a->taps && (r + t.first * a->dilation - a->lo) % a->stride != 0) t.first++;
    if (t.first < a->taps) t.count = (a->taps - 1 - t.first) / t.step + 1;
    t.at = (r + t.first * a->dilation - a->lo) / a->stride;
    return t;
}

static bool at_least(ExprPool *p, Expr e, int64_t limit) {
    int64_t lo, hi;
    expr_range(p, e, &lo, &hi);
    return lo >= limit;
}

/* What the pad and the convolution say of spatial axis i. Padding of zeros twice is one padding,
 * but for elements that the first one cuts off and the second one would bring back. */
static bool read_axis(Phases *s, const Node *pad, int i) {
    ExprPool *p = s->g->exprs;
    PhaseAxis *a = &s->axis[i];
    const Attr *c = &s->conv->attr;
    int64_t lo;
    if (c->conv.stride[i] != 1 || !expr_is_const(p, pad->attr.pad.lo[i + 1], &lo)) return false;
    if (!expr_is_const(p, graph_type(s->g, s->w)->dim[i], &a->taps) || a->taps < 1) return false;
    if (c->conv.lo[i] && lo < 0) return false;
    if (c->conv.hi[i] && !at_least(p, pad->attr.pad.hi[i + 1], 0)) return false;
    a->stride = pad->attr.pad.interior[i + 1] + 1;
    a->dilation = c->conv.dilation[i];
    a->lo = lo + c->conv.lo[i];
    a->in = graph_type(s->g, pad->in[0])->dim[i + 1];
    a->out = s->conv->type.dim[i + 1];
    a->count = expr_ceildiv(p, a->out, expr_const(p, a->stride));
    s->phases *= a->stride;
    return at_least(p, a->in, 1);
}

static bool unpadded(const Graph *g, const Node *pad, int axis) {
    return expr_is_value(g->exprs, pad->attr.pad.lo[axis], 0) &&
           expr_is_value(g->exprs, pad->attr.pad.hi[axis], 0) && !pad->attr.pad.interior[axis];
}

static bool pays(const Phases *s) {
    ExprPool *p = s->g->exprs;
    const Type *w = graph_type(s->g, s->w);
    Expr products = expr_const(p, 1);
    for (int i = 0; i < s->conv->type.rank; i++)
        products = expr_mul(p, products, s->conv->type.dim[i]);
    for (int i = 0; i + 1 < w->rank; i++) products = expr_mul(p, products, w->dim[i]);
    return s->phases > 1 && s->phases <= MAX_PHASES &&
           expr_hint(p, products) / s->phases * (s->phases - 1) >= MIN_SAVED;
}

/* The padding that x is, or is a permutation of: then that of the permuted. Nothing is built unless
 * it is one. */
static const Node *padding_of(Graph *g, Value x) {
    const Node *n = graph_node(g, x), *pad = n;
    if (n->op != OP_permute) return n;
    pad = graph_node(g, n->in[0]);
    if (pad->op != OP_pad) return n;
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK];
    int64_t interior[GRAPH_MAX_RANK];
    for (int i = 0; i < n->type.rank; i++) {
        uint8_t at = n->attr.perm.axis[i];
        lo[i] = pad->attr.pad.lo[at];
        hi[i] = pad->attr.pad.hi[at];
        interior[i] = pad->attr.pad.interior[at];
    }
    Value of = pad->in[0], fill = pad->in[1];
    return graph_node(
        g, build_pad(g, build_permute(g, of, n->attr.perm.axis), fill, lo, hi, interior));
}

static bool match(Rewrite *r, Value v, Phases *s) {
    *s = (Phases){.g = r->to, .conv = graph_node(r->from, v), .phases = 1};
    const Node *pad = padding_of(r->to, rewrite_in(r, v, 0));
    double fill;
    s->n = s->conv->attr.conv.n;
    if (pad->op != OP_pad || !build_const_f64(s->g, pad->in[1], &fill) || fill != 0) return false;
    if (!unpadded(s->g, pad, 0) || !unpadded(s->g, pad, s->n + 1)) return false;
    s->x = pad->in[0];
    s->w = rewrite_in(r, v, 1);
    for (int i = 0; i < s->n; i++)
        if (!read_axis(s, pad, i)) return false;
    return pays(s);
}

/* Zeros around x, or less of x, so that `count` positions are what the taps allow. */
static Value framed(const Phases *s, const Taps *taps) {
    ExprPool *p = s->g->exprs;
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK];
    int64_t interior[GRAPH_MAX_RANK] = {0};
    lo[0] = hi[0] = lo[s->n + 1] = hi[s->n + 1] = expr_const(p, 0);
    for (int i = 0; i < s->n; i++) {
        const PhaseAxis *a = &s->axis[i];
        int64_t reach = taps[i].at + (taps[i].count - 1) * taps[i].dilation;
        lo[i + 1] = expr_const(p, -taps[i].at);
        hi[i + 1] = expr_addi(p, expr_sub(p, a->count, a->in), reach);
    }
    Value zero = build_scalar_f(s->g, graph_type(s->g, s->x)->dtype, 0);
    return build_pad(s->g, s->x, zero, lo, hi, interior);
}

/* The positions with these remainders, [N, count.., OC]. */
static Value phase(const Phases *s, const int64_t *remainder) {
    Graph *g = s->g;
    Taps taps[GRAPH_MAX_WINDOW];
    Attr attr = s->conv->attr;
    Type t = s->conv->type;
    Value w = s->w;
    bool any = true;
    for (int i = 0; i < s->n; i++) {
        taps[i] = taps_of(&s->axis[i], remainder[i]);
        t.dim[i + 1] = s->axis[i].count;
        any = any && taps[i].count > 0;
        attr.conv.lo[i] = attr.conv.hi[i] = 0;
        attr.conv.dilation[i] = taps[i].dilation;
    }
    if (!any) return build_expand(g, build_scalar_f(g, t.dtype, 0), t.rank, t.dim);
    for (int i = 0; i < s->n; i++)
        w = build_slice_axis(g, w, i, expr_const(g->exprs, taps[i].first),
                             expr_const(g->exprs, taps[i].count), taps[i].step);
    return build_conv(g, framed(s, taps), w, &attr);
}

/* All phases from spatial axis i on, [N, count_0, 1, .., count_i, stride_i, .., OC]. */
static Value interleaved(const Phases *s, int i, int64_t *remainder) {
    Value part[MAX_PHASES];
    if (i == s->n) {
        Value y = phase(s, remainder);
        const Type *t = graph_type(s->g, y);
        Expr dim[GRAPH_MAX_RANK];
        dim[0] = t->dim[0];
        for (int k = 0; k < s->n; k++) {
            dim[1 + 2 * k] = t->dim[1 + k];
            dim[2 + 2 * k] = expr_const(s->g->exprs, 1);
        }
        dim[2 * s->n + 1] = t->dim[s->n + 1];
        return build_reshape(s->g, y, (uint8_t)(2 * s->n + 2), dim);
    }
    for (remainder[i] = 0; remainder[i] < s->axis[i].stride; remainder[i]++)
        part[remainder[i]] = interleaved(s, i + 1, remainder);
    return build_concat(s->g, part, (uint32_t)s->axis[i].stride, 2 + 2 * i);
}

static Value conv_phases(Rewrite *r, Value v) {
    Phases s;
    if (graph_node(r->from, v)->op != OP_conv || !match(r, v, &s)) return 0;
    ExprPool *p = s.g->exprs;
    int64_t remainder[GRAPH_MAX_WINDOW], step[GRAPH_MAX_RANK];
    Expr dim[GRAPH_MAX_RANK], start[GRAPH_MAX_RANK];
    Value y = interleaved(&s, 0, remainder);
    const Type t = s.conv->type;
    for (int i = 0; i < t.rank; i++) {
        bool spatial = i > 0 && i <= s.n;
        dim[i] = spatial ? expr_muli(p, s.axis[i - 1].count, s.axis[i - 1].stride) : t.dim[i];
        start[i] = expr_const(p, 0);
        step[i] = 1;
    }
    return build_slice(s.g, build_reshape(s.g, y, t.rank, dim), start, t.dim, step);
}

Graph *pass_conv_phases(Graph *g) {
    return rewrite_graph(g, conv_phases, NULL, NULL);
}
