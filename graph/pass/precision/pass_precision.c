/* precision: contractions of f32 multiply in a narrower type (bf16 or f16), and what kernels hand
 * to each other is of that type, as when a model is cast to half precision. Sums, softmax, norms
 * and losses stay f32, as do the types of inputs and outputs.
 *
 * Three kinds of values are rounded to the narrow type. *Operands* of contractions, at the value
 * that lies behind their views, for all that read it: it is stored once. *Streams*, which is what
 * contractions give and what is made of it element by element, where a norm or a window reads them
 * or two of them are added: they are stored there in any case. *Constants* that are operands, for
 * contractions alone: a cast of a constant is a prepare step. A rounded value goes on as an f32
 * value that was cast there and back, so other nodes keep their types, and a cast to the narrow
 * type folds away. Where digits matter more than bytes (`streams` off) streams stay f32, and so do
 * norms' results for all but contractions.
 *
 * There, too, the left operand of cheap contractions stays f32: of those with constants, from the
 * cheapest on, as many as have a thousandth of all products. That takes no time, and saves a
 * rounding that counts as much as any: that of a classifier's head is an eighth of resnet50's
 * error, squared. Weights are rounded, since reading them is what few products cost. Convolutions
 * of few channels, as of images, stay f32.
 *
 * What softmax reads stays f32, but for rows as long as a vocabulary, which are stored: attention
 * keeps scores in registers; so does what is made of scores alone, and gradients on their way into
 * states: those of weights, which optimizers take in f32 (as are the weights: states are cast where
 * they are multiplied). So does a contraction of integers (positions times frequencies), which need
 * their digits, and one that sums single products.
 *
 * Needs: merge_dots and bn_fold (weights are rounded after what was folded into them). Keeps: types
 * and shapes of inputs and outputs. Breaks: results, by the narrow type's rounding; leaves dead
 * nodes for dce. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

#include <stdlib.h>

enum { WIDE_ROW = 1 << 14, CHEAP_SHARE = 1000, CHANNELS_LEAST = 8 };

typedef struct Facts {
    DType to;
    bool streams; /* are rounded */
    /* By value of the old graph. */
    bool *constant;
    bool *integer; /* a conversion of integers, or views and maps of such alone */
    bool *stat;    /* folds, and what is made of them alone */
    bool *inner;   /* combines statistics with what they are of: inside of a norm or a softmax */
    bool *stream;
    bool *normed, *softmax; /* who reads it through views: a fold or an inner value; a maximum */
    bool *shift;            /* something is made of it that is subtracted, or subtracts */
    bool *scores;           /* streams that softmax reads, and what is made of such alone: a loss */
    bool *last; /* goes into new states without another contraction: gradients of weights */
    bool *round;
    bool *cheap;   /* contractions whose left operand stays as it is */
    Value *origin; /* of a stream: the latest contraction that it is made of; 0: none */
    Value *narrow; /* its value in the new graph in type `to`, where it was asked for */
} Facts;

static bool is_view(const Node *n) {
    return op_info[n->op].cls == OPC_VIEW;
}

/* Operands whose elements the result holds: not indices, nor fills. */
static uint32_t data_operands(const Node *n) {
    return n->op == OP_pad || n->op == OP_gather ? 1 : n->nin;
}

static bool sums_single_products(const Graph *g, const Node *n) {
    const Type *t = graph_type(g, n->in[0]);
    return n->op == OP_dot && expr_is_value(g->exprs, t->dim[t->rank - 1], 1);
}

/* The first operand that is multiplied as it is: attention's scores are not. */
static uint32_t first_factor(const Node *n) {
    return n->op == OP_attention ? 1 : 0;
}

/* Windows over so few channels are put together number by number for units that multiply the narrow
 * type, which takes longer than they save. Depthwise ones are read as they lie. */
static bool has_few_channels(const Graph *g, const Node *n) {
    if (n->op != OP_conv) return false;
    const Type *w = graph_type(g, n->in[1]);
    const int64_t channels = expr_hint(g->exprs, w->dim[w->rank - 2]);
    return channels < CHANNELS_LEAST && (channels > 1 || n->attr.conv.groups == 1);
}

/* A contraction that multiplies in the narrow type. */
static bool narrows(const Graph *g, const Facts *f, Value v) {
    const Node *n = graph_node(g, v);
    bool product = op_info[n->op].cls == OPC_CONTRACT || n->op == OP_attention;
    if (!product || n->type.dtype != DT_f32) return false;
    if (graph_type(g, n->in[first_factor(n)])->dtype != DT_f32 || f->constant[v]) return false;
    if (!f->streams && has_few_channels(g, n)) return false;
    return !f->integer[n->in[0]] && !f->integer[n->in[1]] && !sums_single_products(g, n);
}

/* --- What values are -------------------------------------------------------------------------- */

static bool any_of(const Node *n, const bool *flags) {
    for (uint32_t i = 0; i < data_operands(n); i++)
        if (flags[n->in[i]]) return true;
    return false;
}

/* All that are not constant, of which there is one. */
static bool all_of(const Node *n, const bool *flags, const bool *constant) {
    for (uint32_t i = 0; i < data_operands(n); i++)
        if (!flags[n->in[i]] && !constant[n->in[i]]) return false;
    return any_of(n, flags);
}

/* Maps and views, whose elements are made of those of their operands. */
static bool is_made(const Node *n) {
    return op_info[n->op].cls == OPC_MAP || is_view(n) || n->op == OP_gather;
}

static bool from_integers(const Graph *g, const Facts *f, Value v) {
    const Node *n = graph_node(g, v);
    if (!is_made(n) || n->type.dtype != DT_f32 || f->constant[v]) return false;
    if (n->op == OP_cast) return !dtype_is_float(graph_type(g, n->in[0])->dtype);
    return all_of(n, f->integer, f->constant);
}

typedef struct Cost {
    double products;
    Value v;
} Cost;

static int by_cost(const void *a, const void *b) {
    const Cost *x = a, *y = b;
    if (x->products != y->products) return x->products < y->products ? -1 : 1;
    return x->v < y->v ? -1 : 1;
}

static void find_cheap(const Graph *g, Facts *f) {
    Cost *c = ARENA_ARRAY(g->own, Cost, g->nodes.n);
    double all = 0;
    uint32_t n = 0;
    for (Value v = 1; v < g->nodes.n; v++) {
        const Node *dot = graph_node(g, v);
        if (!narrows(g, f, v)) continue;
        const Cost cost = {graph_products(g, dot), v};
        all += cost.products;
        if (op_info[dot->op].cls == OPC_CONTRACT && f->constant[dot->in[1]]) c[n++] = cost;
    }
    if (n) qsort(c, n, sizeof *c, by_cost);
    double left = all / CHEAP_SHARE;
    for (uint32_t i = 0; i < n && c[i].products <= left; i++) {
        left -= c[i].products;
        f->cheap[c[i].v] = true;
    }
}

/* What new states are made of, and whether a contraction reads it on the way. */
static void find_last(const Graph *g, Facts *f) {
    bool *multiplied = ARENA_ARRAY(g->own, bool, g->nodes.n);
    for (uint32_t i = 0; i < g->writes.n; i++) f->last[g->writes.v[i].value] = true;
    for (Value v = g->nodes.n; v-- > 1;) {
        const Node *n = graph_node(g, v);
        bool product = multiplied[v] || narrows(g, f, v);
        for (uint32_t i = 0; i < n->nin; i++) {
            f->last[n->in[i]] |= f->last[v];
            multiplied[n->in[i]] |= product;
        }
    }
    for (Value v = 1; v < g->nodes.n; v++) f->last[v] &= !multiplied[v];
}

/* What is rounded is neither statistic nor inner any more: a residual goes on from a norm's result.
 */
static void classify(const Graph *g, Facts *f, Value v) {
    const Node *n = graph_node(g, v);
    f->stream[v] = f->round[v] || (narrows(g, f, v) && !f->last[v]);
    if (n->type.dtype != DT_f32 || f->constant[v] || f->stream[v]) return;
    f->stat[v] = op_info[n->op].cls == OPC_REDUCE;
    if (!is_made(n)) return;
    f->stat[v] = all_of(n, f->stat, f->constant);
    f->inner[v] = any_of(n, f->inner) || (!f->stat[v] && any_of(n, f->stat));
    f->stream[v] = any_of(n, f->stream) && !f->inner[v];
}

/* --- Which are rounded ------------------------------------------------------------------------ */

/* exp(x - logsumexp(..)), perhaps kept finite: never stored, and of all digits in ds = p (dp - d).
 */
static bool is_probability(const Graph *g, Value v) {
    const Node *n = graph_node(g, v);
    if (n->op == OP_select) n = graph_node(g, n->in[2]);
    if (n->op != OP_exp || graph_node(g, n->in[0])->op != OP_sub) return false;
    n = graph_node(g, graph_node(g, n->in[0])->in[1]);
    while (is_view(n) && n->nin == 1) n = graph_node(g, n->in[0]);
    return n->op == OP_logsumexp;
}

/* The values behind views, or v itself. None of them are constants, probabilities, what comes from
 * outside, and norms' results where streams are not: their contraction casts them. */
static void round_behind(const Graph *g, Facts *f, Value v) {
    const Node *n = graph_node(g, v);
    while (is_view(n) && n->nin == 1) {
        v = n->in[0];
        n = graph_node(g, v);
    }
    if (f->constant[v] || n->op == OP_input || n->op == OP_state || is_probability(g, v)) return;
    if (!f->streams && f->inner[v]) return;
    if (!is_view(n)) f->round[v] = true;
    for (uint32_t i = 0; is_view(n) && i < data_operands(n); i++) round_behind(g, f, n->in[i]);
}

static void find_scores(const Graph *g, Facts *f, Value v) {
    const Node *n = graph_node(g, v);
    f->scores[v] = f->stream[v] && f->softmax[v];
    if (f->scores[v] || !f->stream[v] || f->round[v] || !is_made(n)) return;
    f->scores[v] = true;
    for (uint32_t i = 0; i < data_operands(n); i++)
        f->scores[v] &= !f->stream[n->in[i]] || f->scores[n->in[i]];
}

/* The other factor of a probability: its gradient, which stays where the probability is. */
static void note_weighted(const Graph *g, Facts *f, Value v) {
    const Node *n = graph_node(g, v);
    for (uint32_t i = 0; n->op == OP_mul && i < 2; i++)
        f->softmax[n->in[i]] |= is_probability(g, n->in[1 - i]);
    for (uint32_t i = 0; n->op == OP_sub && i < 2; i++) f->softmax[n->in[i]] |= f->softmax[v];
}

/* Rows that no kernel of attention would hold: a vocabulary's logits, which are stored. */
static bool is_wide(const Graph *g, Value v) {
    const Type *t = graph_type(g, v);
    return t->rank && expr_hint(g->exprs, t->dim[t->rank - 1]) >= WIDE_ROW;
}

/* A norm's sums and differences read what is stored; softmax's maximum, which is subtracted, wants
 * all digits, where scores are not stored. One that pools is a fold as others. */
static void note_reads(const Graph *g, Facts *f, Value v) {
    const Node *n = graph_node(g, v);
    note_weighted(g, f, v);
    bool window = n->op == OP_window, fold = op_info[n->op].cls == OPC_REDUCE;
    for (uint32_t i = 0; i < n->nin; i++) {
        Value x = n->in[i];
        bool scores = n->op == OP_logsumexp || (n->op == OP_attention && i == 0);
        bool maximum = n->op == OP_reduce_max && f->shift[v] && !is_wide(g, x);
        f->shift[x] |= n->op == OP_sub || (is_made(n) && f->shift[v]);
        f->softmax[x] |= maximum || scores || (is_view(n) && !window && f->softmax[v]);
        f->normed[x] |=
            fold || window || (f->inner[v] && !f->inner[x]) || (is_view(n) && f->normed[v]);
    }
}

static bool is_rounded(const Graph *g, const Facts *f, Value v) {
    while (is_view(graph_node(g, v)) && graph_node(g, v)->nin == 1) v = graph_node(g, v)->in[0];
    return f->round[v];
}

/* Element by element: the latest, whose kernel has the others' results from memory. */
static void find_origin(const Graph *g, Facts *f, Value v) {
    const Node *n = graph_node(g, v);
    if (!f->stream[v]) return;
    if (narrows(g, f, v)) f->origin[v] = v;
    if (narrows(g, f, v) || !is_made(n)) return;
    Value from = 0;
    for (uint32_t i = 0; i < data_operands(n); i++) {
        if (!f->stream[n->in[i]]) continue;
        if (f->origin[n->in[i]] > from) from = f->origin[n->in[i]];
    }
    f->origin[v] = from;
}

/* Of two streams that meet in a sum one was stored before the other came; of one contraction's both
 * are at hand, and it is what is stored. */
static void round_sum(const Graph *g, Facts *f, Value v) {
    const Node *n = graph_node(g, v);
    if (n->op != OP_add || !f->stream[n->in[0]] || !f->stream[n->in[1]]) return;
    if (is_rounded(g, f, n->in[0]) || is_rounded(g, f, n->in[1])) return;
    Value o = f->origin[n->in[0]];
    if (o && o == f->origin[n->in[1]]) {
        f->round[o] |= !f->scores[o];
        return;
    }
    round_behind(g, f, n->in[0]);
    round_behind(g, f, n->in[1]);
}

static void find_streams(const Graph *g, Facts *f) {
    const uint32_t n = g->nodes.n;
    for (Value v = 1; v < n; v++) classify(g, f, v);
    for (Value v = n; v-- > 1;) note_reads(g, f, v);
    for (Value v = 1; v < n; v++) find_scores(g, f, v);
    for (Value v = 1; v < n; v++)
        f->round[v] |= f->stream[v] && !is_view(graph_node(g, v)) && f->normed[v] && !f->scores[v];
    for (Value v = 1; v < n; v++) find_origin(g, f, v);
    for (Value v = 1; v < n; v++) round_sum(g, f, v);
}

typedef struct Asked {
    DType to;
    bool streams;
} Asked;

static uint32_t first_rounded(const Graph *g, const Facts *f, Value v) {
    return f->cheap[v] ? 1 : first_factor(graph_node(g, v));
}

static void *facts(const Graph *g, void *ctx) {
    const Asked *asked = ctx;
    Facts *f = ARENA_NEW(g->arena, Facts);
    uint32_t n = g->nodes.n;
    *f = (Facts){.to = asked->to,
                 .streams = asked->streams,
                 .narrow = ARENA_ARRAY(g->arena, Value, n),
                 .origin = ARENA_ARRAY(g->arena, Value, n)};
    bool **flags[] = {&f->constant, &f->integer, &f->stat, &f->inner, &f->stream, &f->normed,
                      &f->softmax,  &f->scores,  &f->last, &f->round, &f->shift,  &f->cheap};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        *flags[i] = ARENA_ARRAY(g->arena, bool, n);
    graph_mark_constant(g, f->constant);
    for (Value v = 1; v < n; v++) f->integer[v] = from_integers(g, f, v);
    if (!f->streams) find_cheap(g, f);
    find_last(g, f);
    for (Value v = 1; v < n && !f->streams; v++) classify(g, f, v);
    for (Value v = 1; v < n; v++)
        for (uint32_t i = first_rounded(g, f, v); narrows(g, f, v) && i < 2; i++)
            round_behind(g, f, graph_node(g, v)->in[i]);
    if (f->streams) find_streams(g, f);
    return f;
}

/* --- Rewriting -------------------------------------------------------------------------------- */

/* v of the old graph in the narrow type. Views are made again over what was narrow before them. */
static Value narrow(Rewrite *r, Value v) {
    Facts *f = r->facts;
    const Node *n = graph_node(r->from, v);
    if (f->narrow[v]) return f->narrow[v];
    if (!is_view(n)) return f->narrow[v] = build_cast(r->to, r->map[v], f->to);
    Value *in = ARENA_ARRAY(r->to->arena, Value, n->nin);
    for (uint32_t i = 0; i < n->nin; i++) in[i] = narrow(r, n->in[i]);
    return f->narrow[v] = build_like(r->to, n, in, n->nin);
}

/* The weights of v beside f32; as they were where they are so few that they are folded: to f32. */
static Value widen(Rewrite *r, Value v, Value narrow) {
    Value x = build_cast(r->to, narrow, DT_f32);
    return graph_node(r->to, x)->op == OP_const ? rewrite_in(r, v, 1) : x;
}

static Value rewrite(Rewrite *r, Value v) {
    const Facts *f = r->facts;
    const Node *n = graph_node(r->from, v);
    Value x = 0;
    if (narrows(r->from, f, v)) {
        Value in[2] = {first_rounded(r->from, f, v) ? rewrite_in(r, v, 0) : narrow(r, n->in[0]),
                       narrow(r, n->in[1])};
        if (f->cheap[v]) in[1] = widen(r, v, in[1]);
        x = build_like(r->to, n, in, 2);
    }
    if (!f->round[v] || n->type.dtype != DT_f32) return x;
    return build_cast(r->to, build_cast(r->to, x ? x : rewrite_copy(r, v), f->to), DT_f32);
}

Graph *pass_precision(Graph *g, DType to, bool streams) {
    return rewrite_graph(g, rewrite, facts, &(Asked){to, streams});
}
