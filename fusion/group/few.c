/* Few long rows. Kernels whose rows are kept or walked have a block for each, so that where there
 * are fewer rows than processors, most of these would wait: reductions of such rows are stored by
 * kernels that cut each row into parts, and what is computed of rows and results takes all
 * processors. So do rows that are stored in short pieces, however many there are: channels of a
 * group beside those of others. A block that walks them alone touches memory in units that it
 * needs a part of; points one by one are taken as they lie. */
#include "fusion/analyse/facts.h"
#include "fusion/group/decide.h"

enum {
    BYTES = 4,       /* that an element of a row moves */
    LAUNCHES = 2,    /* more, where the row is read again */
    MOST_DEPTH = 12, /* values one above the other that are looked through */
    SHORT_RUN = 64,  /* elements side by side: of fewer a row lies in pieces, */
    CRAWL = 8        /* and its walk takes so many times as long (6 to 25 were measured) */
};

/* Elements side by side at `at`, the last dimension first, that `axes` alone move through. */
static double run_at(const Fuse *f, const Group *g, Expr at, uint32_t axes) {
    Expr stride = expr_const(f->p, 1), coef[K_MAX_AXES];
    for (uint32_t i = 0; i < g->naxes; i++)
        if ((axes >> i & 1) && !expr_affine(f->p, at, g->axes[i].sym, &coef[i], &at))
            return SHORT_RUN; /* cannot be told */
    while (axes) {
        uint32_t i = 0;
        while (i < g->naxes && !((axes >> i & 1) && coef[i] == stride)) i++;
        if (i == g->naxes) break;
        stride = expr_mul(f->p, stride, g->axes[i].extent);
        axes &= ~(1u << i);
    }
    return fuse_hint(f, stride);
}

/* v, at idx, is a point of a row along `axes`, with fewer than SHORT_RUN of it and at least `least`
 * side by side. */
static bool lies_in_pieces(const Fuse *f, const Group *g, Value v, IdxId idx, uint32_t axes,
                           double least) {
    if (!f->m->registers || !(idx_axes_used(f, g, idx) & axes)) return false;
    const double run = run_at(f, g, home_index(f, g, v, idx), axes);
    return run >= least && run < SHORT_RUN;
}

static bool stores_pieces(const Fuse *f, const Group *g, uint32_t axes) {
    for (uint32_t i = 0; i < g->roots.n; i++)
        if (lies_in_pieces(f, g, g->roots.v[i].v, g->roots.v[i].idx, axes, 1)) return true;
    return false;
}

/* One processor would take so much longer for one of `rows` rows of `length` elements than its part
 * of all of them takes, were they cut, as two launches do. */
static bool is_narrow(const Fuse *f, const Group *g, double rows, double length, bool pieces) {
    const Machine *m = f->m;
    if (g->kind != GROUP_map || g->want || g->attn || (rows >= m->processors && !pieces))
        return false;
    const double longer = pieces ? CRAWL : 1 - rows / m->processors;
    return length * BYTES * m->processors / m->bytes_per_s * longer > LAUNCHES * m->launch_s;
}

/* Points that are stored where columns are summed lie side by side for its threads. */
bool fuse_few_rows(const Fuse *f, const Group *g, Value v, IdxId idx) {
    const uint32_t row = group_axes(g, AX_RED), par = group_axes(g, AX_PAR);
    return row &&
           is_narrow(f, g, fuse_hint(f, group_extent(f, g, par)),
                     fuse_hint(f, group_extent(f, g, row)), lies_in_pieces(f, g, v, idx, row, 2));
}

static bool stores_points(const Fuse *f, const Group *g, uint32_t row) {
    for (uint32_t i = 0; i < g->roots.n; i++)
        if (idx_axes_used(f, g, g->roots.v[i].idx) & row) return true;
    return false;
}

/* --- Two folds of one walk ----------------------------------------------------------------------
 */

/* v is computed with what reduction `of` gives, of the same row. */
static bool is_made_of(const Fuse *f, Value v, Value of, int depth) {
    const Node *n = graph_node(f->g, v);
    const OpClass c = op_info[n->op].cls;
    if (v == of) return true;
    if (depth == MOST_DEPTH || (c != OPC_MAP && c != OPC_VIEW) || v < of) return false;
    for (uint32_t i = 0; i < n->nin; i++)
        if (is_made_of(f, n->in[i], of, depth + 1)) return true;
    return false;
}

static Value source(const Fuse *f, Value v) {
    while (op_info[graph_node(f->g, v)->op].cls == OPC_VIEW && graph_node(f->g, v)->nin == 1)
        v = graph_node(f->g, v)->in[0];
    return v;
}

static const Node *source_node(const Fuse *f, Value v) {
    return graph_node(f->g, source(f, v));
}

/* What sum adds up, if it does. */
static const Node *summed(const Fuse *f, Value sum, Op op) {
    const Node *s = graph_node(f->g, sum), *x;
    if (s->op != OP_reduce_sum) return NULL;
    x = source_node(f, s->in[0]);
    return x->op == op ? x : NULL;
}

/* The difference that v is, from what reduction `under` folds. */
static const Node *difference(const Fuse *f, Value v, const Node *under) {
    const Node *d = source_node(f, v);
    return d->op == OP_sub && source(f, d->in[0]) == source(f, under->in[0]) ? d : NULL;
}

/* sum is that of exponentials below the maximum that `under` is. */
static bool is_below(const Fuse *f, Value sum, Value under) {
    const Node *u = graph_node(f->g, under), *x = summed(f, sum, OP_exp);
    if (!x || u->op != OP_reduce_max) return false;
    const Node *d = difference(f, x->in[0], u);
    return d && source(f, d->in[1]) == under;
}

/* sum is that of squares around the mean that is made of sum `under`. */
static bool is_around(const Fuse *f, Value sum, Value under) {
    const Node *u = graph_node(f->g, under), *x = summed(f, sum, OP_mul);
    if (!x || u->op != OP_reduce_sum || x->in[0] != x->in[1]) return false;
    const Node *d = difference(f, x->in[0], u), *mean = d ? source_node(f, d->in[1]) : NULL;
    return mean && mean->op == OP_div && source(f, mean->in[0]) == under &&
           source_node(f, mean->in[1])->op == OP_const;
}

/* The group has a fold around the mean of another, which takes all of a walk. */
static bool has_squares(const Fuse *f, const Group *g) {
    for (uint32_t i = 0; i < g->rows.n; i++)
        for (uint32_t k = 0; k < g->rows.n; k++)
            if (is_around(f, g->rows.v[i].v, g->rows.v[k].v)) return true;
    return false;
}

/* Another fold of the group needs the result of reduction v, and kernels do not make both in one
 * walk. */
static bool takes_turns(const Fuse *f, const Group *g, Value v) {
    for (uint32_t i = 0; i < g->rows.n; i++) {
        const Value other = g->rows.v[i].v;
        if (other == v || !is_made_of(f, graph_node(f->g, other)->in[0], v, 0)) continue;
        if (!is_below(f, other, v) && !(g->rows.n == 1 && is_around(f, other, v))) return true;
    }
    return has_squares(f, g);
}

bool fuse_folds_apart(const Fuse *f, const Group *g, Value v, IdxId at) {
    const uint32_t row = group_axes(g, AX_RED), par = group_axes(g, AX_PAR);
    const uint32_t axes = row ? row : par & ~idx_axes_used(f, g, at);
    const double rows = fuse_numel(f, v), all = fuse_numel(f, graph_node(f->g, v)->in[0]);
    if (!axes || !is_narrow(f, g, rows, all / rows, stores_pieces(f, g, axes))) return false;
    return !row || stores_points(f, g, row) || takes_turns(f, g, v);
}

/* In 16 bits sums of a long row would be rounded, or infinite, which they are not where one kernel
 * goes on with them. */
bool fuse_is_statistic(const Fuse *f, Value v) {
    const VState *s = &f->v[v];
    const Node *n = graph_node(f->g, v);
    if (!op_is_reduce((Op)n->op) || !dtype_is_half(n->type.dtype) || s->must) return false;
    if (f->fact[v].const_only || fuse_numel(f, v) >= f->m->processors) return false;
    for (uint32_t i = 0; i < s->demands.n; i++)
        if (s->demands.v[i].use != USE_point) return false;
    return true;
}
