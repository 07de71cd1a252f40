/* conv_widen: what matrix units fetch at once is filled.
 *
 * A convolution over pixels of few channels, as images have, becomes one over wider pixels, whose
 * rows start where matrix units can fetch them. Each is one of a block of s x s
 * pixels where the stride is s, so that few products are with zeros; zeros are added around the
 * image and behind its channels while it is stored.
 *
 *   conv(x [N, H, W, C], w, stride s)  =  conv(x' [N, H/s, W/s, s*s*C and zeros], w', stride 1)
 *
 * Along one axis pixels of a part of the stride may fill such rows exactly: a signal's frames, say,
 * that lie a whole number of such pixels apart, are read where they are.
 *
 * Groups of few channels become fewer groups of as many as are fetched, or of as many as begin
 * where rows may; between channels and results of different groups the weights are zero. That is
 * more products, but of the kind that is quick.
 *
 * For targets whose matrix units fetch rows at multiples of 16 bytes (Machine.flattens_patches);
 * conv_widen_f32 is the same of f32, where they multiply that, too (Machine.digits).
 *
 * Needs: precision and patches. Keeps: meaning; adds zeros to sums. Breaks: nothing; leaves dead
 * nodes. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

enum { MULTIPLE = 8, WIDE = 64 }; /* elements: of a pixel; that one copy fetches */
enum { MOST_JOINED = 512 };       /* channels of groups that become one */

typedef struct Widen {
    Graph *g;
    const Node *conv; /* of the old graph */
    int n;
    int64_t block[GRAPH_MAX_WINDOW]; /* pixels that become one, along each axis */
    int64_t taps[GRAPH_MAX_WINDOW], channels;
    int64_t ahead[GRAPH_MAX_WINDOW]; /* zero taps in front, so that padding is whole blocks */
    bool whole;                      /* blocks that need no zeros behind them */
    bool rows;                       /* zeros behind each row of a block, not behind the block */
} Widen;

static bool is_half(DType t) {
    return t == DT_bf16 || t == DT_f16;
}

/* Pixels that fill rows which may be fetched and that a stride is a number of: as many as one copy
 * fetches; 0: there are none. */
static int64_t whole_block(int64_t stride, int64_t channels) {
    int64_t n = WIDE / channels;
    while (n > 0 && (stride % n || n * channels % MULTIPLE)) n--;
    return n;
}

static bool match(Rewrite *r, Value v, Widen *s) {
    *s = (Widen){.g = r->to, .conv = graph_node(r->from, v)};
    const Node *c = s->conv;
    if (c->op != OP_conv || c->attr.conv.groups != 1) return false;
    const Type *x = graph_type(r->from, c->in[0]), *w = graph_type(r->from, c->in[1]);
    const bool *f32 = r->facts;
    int64_t all = 1;
    bool dilated = false;
    s->n = c->attr.conv.n;
    if (*f32 ? x->dtype != DT_f32 : !is_half(x->dtype)) return false;
    if (!expr_is_const(s->g->exprs, x->dim[s->n + 1], &s->channels)) return false;
    for (int i = 0; i < s->n; i++) {
        if (!expr_is_const(s->g->exprs, w->dim[i], &s->taps[i])) return false;
        s->block[i] = c->attr.conv.stride[i];
        dilated = dilated || c->attr.conv.dilation[i] != 1;
        all *= s->block[i];
    }
    for (int i = 0; i < s->n && (dilated || all * s->channels > WIDE); i++) s->block[i] = 1;
    if (s->channels <= 0 || s->channels % MULTIPLE == 0) return false;
    int64_t whole = s->n == 1 && !dilated ? whole_block(c->attr.conv.stride[0], s->channels) : 0;
    s->whole = whole > 0;
    if (s->whole) s->block[0] = whole;
    return true;
}

/* Elements up to a multiple, at least one of them zero. */
static int64_t with_zeros(const Widen *s, int64_t n) {
    if (s->whole) return n;
    return (n / MULTIPLE + 1) * MULTIPLE;
}

/* Where it costs no products: whoever stores a piece of a pixel then reads neighbours alone, which
 * are inside of the image or outside of it together. */
static void align_blocks(Widen *s) {
    int64_t outer = 1, row = s->block[s->n - 1] * s->channels;
    for (int i = 0; i + 1 < s->n; i++) outer *= s->block[i];
    s->rows = outer * with_zeros(s, row) <= with_zeros(s, outer * row);
    for (int i = 0; i < s->n; i++) {
        int64_t b = s->block[i], more = (b - s->conv->attr.conv.lo[i] % b) % b;
        if ((s->taps[i] + more + b - 1) / b == (s->taps[i] + b - 1) / b) s->ahead[i] = more;
    }
}

static Value padded(Graph *g, Value x, const Expr *lo, const Expr *hi) {
    int64_t interior[GRAPH_MAX_RANK] = {0};
    return build_pad(g, x, build_scalar_f(g, graph_type(g, x)->dtype, 0), lo, hi, interior);
}

static void no_padding(Graph *g, Expr *lo, Expr *hi) {
    for (int i = 0; i < GRAPH_MAX_RANK; i++) lo[i] = hi[i] = expr_const(g->exprs, 0);
}

/* Zeros behind axis `at`, up to the multiple. It is this padding that is stored. */
static Value filled(const Widen *s, Value x, int at) {
    Graph *g = s->g;
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK];
    int64_t n = expr_value(g->exprs, graph_type(g, x)->dim[at]);
    no_padding(g, lo, hi);
    hi[at] = expr_const(g->exprs, with_zeros(s, n) - n);
    return padded(g, x, lo, hi);
}

/* x with the axes from `at` on, one per window axis, in blocks that stand in front of the channels
 * behind them and are filled up, [.., H/s, W/s, s*s*C and zeros, ..]. */
static Value blocks(const Widen *s, Value x, int at) {
    Graph *g = s->g;
    ExprPool *p = g->exprs;
    const Type t = *graph_type(g, x);
    Expr split[GRAPH_MAX_RANK], rows[GRAPH_MAX_RANK], joined[GRAPH_MAX_RANK];
    uint8_t perm[GRAPH_MAX_RANK], n = 0, m = 0;
    int64_t outer = 1, row = s->channels;
    for (int i = 0; i < t.rank; i++) {
        bool cut = i >= at && i < at + s->n;
        Expr size = cut ? expr_const(p, s->block[i - at]) : 0;
        joined[i] = split[n++] = cut ? expr_div(p, t.dim[i], size) : t.dim[i];
        if (!cut) continue;
        split[n++] = size;
        *(s->rows && i + 1 < at + s->n ? &outer : &row) *= s->block[i - at];
    }
    for (int i = 0; i < n; i++) perm[i] = (uint8_t)i;
    for (int i = 0; i < s->n; i++) {
        perm[at + i] = (uint8_t)(at + 2 * i);
        perm[at + s->n + i] = (uint8_t)(at + 2 * i + 1);
    }
    x = build_permute(g, build_reshape(g, x, n, split), perm);
    for (int i = 0; i < t.rank; i++) {
        if (i == at + s->n) rows[m++] = expr_const(p, outer);
        rows[m++] = i == at + s->n ? expr_const(p, row) : joined[i];
    }
    x = filled(s, build_reshape(g, x, m, rows), at + s->n + 1);
    joined[at + s->n] = expr_const(p, outer * with_zeros(s, row));
    return build_reshape(g, x, t.rank, joined);
}

/* The image, as many blocks as positions and taps reach. */
static Value wide_image(const Widen *s, Value x) {
    ExprPool *p = s->g->exprs;
    const Type *t = graph_type(s->g, x);
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK];
    no_padding(s->g, lo, hi);
    for (int i = 0; i < s->n; i++) {
        const Attr *a = &s->conv->attr;
        int64_t reach = (s->ahead[i] + s->taps[i] - 1) * a->conv.dilation[i] / s->block[i];
        int64_t front = a->conv.lo[i] + s->ahead[i];
        Expr last = expr_muli(p, expr_addi(p, s->conv->type.dim[i + 1], -1),
                              a->conv.stride[i] / s->block[i]);
        Expr size = expr_muli(p, expr_addi(p, last, reach + 1), s->block[i]);
        lo[i + 1] = expr_const(p, front);
        hi[i + 1] = expr_addi(p, expr_sub(p, size, t->dim[i + 1]), -front);
    }
    return blocks(s, padded(s->g, x, lo, hi), 1);
}

static Value wide_weights(const Widen *s, Value w) {
    Expr lo[GRAPH_MAX_RANK], hi[GRAPH_MAX_RANK];
    no_padding(s->g, lo, hi);
    for (int i = 0; i < s->n; i++) {
        int64_t over = (s->ahead[i] + s->taps[i]) % s->block[i];
        lo[i] = expr_const(s->g->exprs, s->ahead[i]);
        hi[i] = expr_const(s->g->exprs, over ? s->block[i] - over : 0);
    }
    return blocks(s, padded(s->g, w, lo, hi), 0);
}

/* --- Groups ----------------------------------------------------------------------------------- */

/* What a group costs matrix units: its channels in pieces of WIDE, each beside tiles of results.
 * The first 64 columns of a tile take 130 ns, 64 more 82 (codegen/nvptx/gemm/gemm_plan.c); 55 are a
 * tap's share of what a tile costs beside: measured, nine groups of 24 channels take 57 us, three
 * of 72 take 40, one of 216 about 50. */
static int64_t group_cost(int64_t channels, int64_t results) {
    int64_t pieces = (channels + WIDE - 1) / WIDE, columns = (results + WIDE - 1) / WIDE;
    return pieces * (48 + 82 * columns) + 55;
}

/* How many groups become one; 1: they stay. Depthwise ones are no products of matrices. */
static int64_t groups_joined(const Rewrite *r, const Node *c) {
    const Type *w = graph_type(r->from, c->in[1]);
    const int64_t groups = c->attr.conv.groups;
    int64_t channels, results, best = 1, least = INT64_MAX;
    if (groups == 1 || !is_half(w->dtype)) return 1;
    if (!expr_is_const(r->to->exprs, w->dim[c->attr.conv.n], &channels) || channels < 2) return 1;
    if (!expr_is_const(r->to->exprs, w->dim[c->attr.conv.n + 1], &results)) return 1;
    results /= groups;
    for (int64_t n = 1; n <= groups && n * channels <= MOST_JOINED; n++) {
        bool aligned = n * channels % MULTIPLE == 0 && n * results % MULTIPLE == 0;
        int64_t cost = groups / n * group_cost(n * channels, n * results);
        if (groups % n || !aligned || cost >= least) continue;
        least = cost;
        best = n;
    }
    return best;
}

/* [joined, 1, O]: whether a result is of this group among those that became one. */
static Value of_group(Graph *g, int64_t joined, int64_t groups, Expr results) {
    ExprPool *p = g->exprs;
    Expr dim[3] = {expr_const(p, joined), expr_const(p, 1), results};
    Value each = build_expr(g, DT_i64, expr_div(p, results, expr_const(p, groups)));
    Value at = build_binary(g, OP_div, build_iota(g, DT_i64, 3, dim, 2), each);
    at = build_binary(g, OP_mod, at, build_scalar_i(g, DT_i64, joined));
    return build_binary(g, OP_eq, at, build_iota(g, DT_i64, 3, dim, 0));
}

static Value join_groups(Rewrite *r, Value v) {
    const Node *c = graph_node(r->from, v);
    int64_t joined = groups_joined(r, c);
    Graph *g = r->to;
    if (joined == 1) return 0;
    Value w = rewrite_in(r, v, 1);
    Type t = *graph_type(g, w);
    Attr attr = c->attr;
    Value mine = of_group(g, joined, attr.conv.groups, t.dim[t.rank - 1]);
    w = build_select(g, mine, build_unsqueeze(g, w, t.rank - 2), build_scalar_f(g, t.dtype, 0));
    t.dim[t.rank - 2] = expr_muli(g->exprs, t.dim[t.rank - 2], joined);
    attr.conv.groups /= joined;
    return build_conv(g, rewrite_in(r, v, 0), build_reshape(g, w, t.rank, t.dim), &attr);
}

static Value conv_widen(Rewrite *r, Value v) {
    Widen s;
    if (graph_node(r->from, v)->op == OP_conv && groups_joined(r, graph_node(r->from, v)) > 1)
        return join_groups(r, v);
    if (!match(r, v, &s)) return 0;
    align_blocks(&s);
    Attr attr = s.conv->attr;
    for (int i = 0; i < s.n; i++) {
        attr.conv.lo[i] = attr.conv.hi[i] = 0;
        attr.conv.stride[i] /= s.block[i];
    }
    Value x = wide_image(&s, rewrite_in(r, v, 0)), w = wide_weights(&s, rewrite_in(r, v, 1));
    return build_conv(s.g, x, w, &attr);
}

static void *type_facts(const Graph *g, void *ctx) {
    (void)g;
    return ctx;
}

Graph *pass_conv_widen(Graph *g) {
    bool f32 = false;
    return rewrite_graph(g, conv_widen, type_facts, &f32);
}

Graph *pass_conv_widen_f32(Graph *g) {
    bool f32 = true;
    return rewrite_graph(g, conv_widen, type_facts, &f32);
}
