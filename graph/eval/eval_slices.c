/* Large values between two that are wanted, as the scores of an attention between its queries and
 * its result, and those that a watch looks at and gives another for, are never made whole: an axis
 * of the result that every node in between carries along, each element by itself, is cut, and the
 * nodes run part by part. Sums keep their order, so that all values are the same bits.
 *
 * Needs: operands stand before their readers in the graph. */
#include "graph/eval/eval_frame.h"

#include <stdlib.h>
#include <string.h>

/* Of the largest value of a part, with its bound: what is beside a model's weights in memory is
 * small beside them. Parts too small read a right operand more often than it is worth. */
enum { PART_LEAST = 1 << 19, PART_MOST = 1 << 21, PARTS_OF_WEIGHTS = 16 };

uint64_t slices_part_bytes(const Graph *g) {
    uint64_t bytes = 0;
    for (Value v = 1; v < g->nodes.n; v++)
        if (graph_node(g, v)->op == OP_const) bytes += graph_node(g, v)->attr.constant.bytes;
    bytes /= PARTS_OF_WEIGHTS;
    return bytes < PART_LEAST ? PART_LEAST : bytes > PART_MOST ? PART_MOST : bytes;
}

/* The axis of a gather's data whose coordinate is that along axis `a` of the result; -1: none. */
static int data_axis(const Frame *f, const Node *n, int a) {
    for (int d = graph_type(f->g, n->in[0])->rank - 1; d >= 0; d--)
        if (n->attr.index.src[d] == a) return d;
    return -1;
}

/* The axis of operand i that axis `a` of v runs along; -1: every part of v reads all of it. */
static int operand_axis(const Frame *f, Value v, uint32_t i, int a) {
    const Node *n = graph_node(f->g, v);
    int64_t out[GRAPH_MAX_RANK], in[GRAPH_MAX_RANK];
    int rank = graph_type(f->g, n->in[i])->rank, left = n->type.rank;
    if (op_info[n->op].cls == OPC_MAP) return a;
    if (op_info[n->op].cls == OPC_REDUCE) {
        for (int k = 0; k < rank; k++)
            if (!(n->attr.reduce.axes >> k & 1) && a-- == 0) return k;
        return -1;
    }
    if (n->op == OP_dot || n->op == OP_attention) return a == left - (i ? 2 : 1) ? -1 : a;
    if (n->op == OP_conv) return i == 0 && a == 0 ? 0 : -1;
    if (n->op == OP_permute) return n->attr.perm.axis[a];
    if (n->op == OP_concat) return a;
    if (n->op == OP_gather) return i ? a : data_axis(f, n, a);
    frame_dims(f, v, out);
    frame_dims(f, n->in[i], in);
    if (n->op == OP_expand) return in[a] == out[a] ? a : -1;
    int64_t after = 1, before = 1; /* reshape: as many elements behind it */
    for (int k = left - 1; k > a; k--) after *= out[k];
    for (int k = rank - 1; k >= 0; before *= in[k--])
        if (before == after && in[k] == out[a]) return k;
    return -1;
}

/* An axis of a gather that two of its coordinates are cannot be cut at one place. */
static bool gather_divides(const Node *n, int rank, int a) {
    int same = 0;
    for (int d = 0; d < rank; d++) same += n->attr.index.src[d] == a;
    return same < 2;
}

/* Whether parts of v along its axis `a` are made of parts: a reshape has to have had that axis, a
 * concatenation to run along another, the channels of a convolution come in groups. */
static bool divides(const Frame *f, Value v, int a) {
    const Node *n = graph_node(f->g, v);
    if (n->op == OP_conv) return a < n->type.rank - 1;
    if (n->op == OP_concat) return a != n->attr.axis.axis;
    if (n->op == OP_gather) return gather_divides(n, graph_type(f->g, n->in[0])->rank, a);
    return n->op != OP_reshape || operand_axis(f, v, 0, a) >= 0;
}

static bool sliceable(const Frame *f, Value v) {
    const Node *n = graph_node(f->g, v);
    OpClass c = (OpClass)op_info[n->op].cls;
    return c == OPC_MAP || c == OPC_REDUCE || n->op == OP_dot || n->op == OP_conv ||
           n->op == OP_attention || n->op == OP_permute || n->op == OP_expand ||
           n->op == OP_reshape || n->op == OP_concat || n->op == OP_gather;
}

/* With a watch, each element has a bound of its error beside it, an f64. */
static uint64_t bytes_whole(const Frame *f, Value v) {
    const Node *n = graph_node(f->g, v);
    uint64_t bytes = dtype_bytes(eval_storage(f->e, n->type.dtype)) + (f->watch ? 8 : 0);
    int64_t dim[GRAPH_MAX_RANK];
    frame_dims(f, v, dim);
    for (int i = 0; i < n->type.rank; i++) bytes *= dim[i] > 0 ? (uint64_t)dim[i] : 0;
    return bytes;
}

/* A view takes nothing beside its operand, but for a concatenation, which copies. */
static uint64_t bytes_of(const Frame *f, Value v) {
    const Op op = (Op)graph_node(f->g, v)->op;
    return op_info[op].cls == OPC_VIEW && op != OP_concat ? 0 : bytes_whole(f, v);
}

/* The operands of v, which is made in parts: made so, too, if all their readers are, and alike. */
static void mark_operands(Frame *f, Slices *s, Value v) {
    const Node *n = graph_node(f->g, v);
    for (uint32_t i = 0; i < n->nin; i++) {
        Value x = n->in[i];
        int a = operand_axis(f, v, i, s->of[v]);
        if (f->state[x] == FRAME_made) continue;
        if (a >= 0 && (!s->edges[x] || s->of[x] == a)) {
            s->of[x] = (int8_t)a;
            s->edges[x]++;
        } else {
            s->edges[x] = UINT32_MAX / 2; /* never as many as its readers */
        }
    }
}

static void find_parts(Frame *f, Slices *s) {
    const uint32_t n = f->g->nodes.n;
    memset(s->of, -1, n * sizeof *s->of);
    memset(s->edges, 0, n * sizeof *s->edges);
    s->missing = 0;
    s->most = 0;
    s->of[s->root] = (int8_t)s->axis;
    s->edges[s->root] = f->uses[s->root];
    for (Value v = s->root; v > 0; v--) {
        if (v != s->root && !s->edges[v]) continue;
        if (v != s->root && (s->edges[v] != f->uses[v] || looked_at(f, v) || !sliceable(f, v) ||
                             !divides(f, v, s->of[v]))) {
            s->of[v] = -1;
            if (v > s->missing) s->missing = v;
            continue;
        }
        if ((v != s->root || looked_at(f, v)) && bytes_of(f, v) > s->most) s->most = bytes_of(f, v);
        mark_operands(f, s, v);
    }
}

/* The longest axis of root along which `large` can be cut. */
static bool find_axis(Frame *f, Slices *s, Value large) {
    int64_t dim[GRAPH_MAX_RANK];
    int best = -1;
    frame_dims(f, s->root, dim);
    for (s->axis = 0; s->axis < graph_type(f->g, s->root)->rank; s->axis++) {
        if (dim[s->axis] < 2 || (best >= 0 && dim[s->axis] <= dim[best])) continue;
        if (!divides(f, s->root, s->axis)) continue;
        find_parts(f, s);
        if (s->of[large] >= 0) best = s->axis;
    }
    if (best < 0) return false;
    s->axis = best;
    find_parts(f, s);
    return true;
}

static bool waits(const Frame *f, uint32_t depth, Value v) {
    while (depth && f->stack[depth - 1] != v) depth--;
    return depth > 0;
}

/* The nearest value on the stack that is much smaller, at most the next looked at. What is missing
 * may itself wait for the large value, as each of two large operands for the other: then the one
 * that came later is made whole. */
static bool find_root(Frame *f, uint32_t at, Slices *s) {
    const Value large = f->stack[at];
    const uint64_t most = bytes_of(f, large) / 4;
    const uint32_t depth = at + 1;
    for (bool last = false; at-- && !last;) {
        s->root = f->stack[at];
        last = looked_at(f, s->root);
        if (!sliceable(f, s->root)) return false;
        if ((last || bytes_whole(f, s->root) <= most) && find_axis(f, s, large))
            return !waits(f, depth, s->missing);
    }
    return false;
}

bool slices_find(Frame *f, uint32_t depth, Slices *s) {
    Value large = f->stack[depth - 1];
    *s = (Slices){.root = large};
    if (!sliceable(f, large) || bytes_of(f, large) <= 2 * f->e->part) return false;
    s->of = malloc(f->g->nodes.n * sizeof *s->of);
    s->edges = malloc(f->g->nodes.n * sizeof *s->edges);
    if (!s->of || !s->edges) return false;
    return looked_at(f, large) ? find_axis(f, s, large) : find_root(f, depth - 1, s);
}

void slices_free(Slices *s) {
    free(s->of);
    free(s->edges);
}

/* ---- Running ---- */

typedef struct Part {
    int64_t first, count;
    Tensor *v, *err; /* by value */
    uint32_t *uses;  /* that are still to come in this part */
    Look look;       /* at the root, if anybody does */
} Part;

static Tensor cut_at(const Tensor *x, int axis, int64_t first, int64_t count) {
    Tensor t = *x;
    if (axis < 0 || !t.data) return t;
    t.data += first * t.stride[axis] * (int64_t)dtype_bytes(t.dtype);
    t.dim[axis] = count;
    t.to = NULL;
    return t;
}

static Tensor cut(const Tensor *x, int axis, const Part *p) {
    return cut_at(x, axis, p->first, p->count);
}

static int64_t clamp(int64_t x, int64_t lo, int64_t hi) {
    return x < lo ? lo : x > hi ? hi : x;
}

/* Of a convolution's image, which is whole, what the windows of a part along `axis` see: the image
 * begins elsewhere then. */
static void cut_image(const Frame *f, const Part *p, int axis, Node *n) {
    const int i = axis - 1;
    Tensor *x = &f->in[0];
    const int64_t size = x->dim[axis], step = n->attr.conv.stride[i];
    const int64_t reach = (f->in[1].dim[i] - 1) * n->attr.conv.dilation[i] + 1;
    const int64_t begin = p->first * step - n->attr.conv.lo[i];
    const int64_t from = clamp(begin, 0, size);
    const int64_t to = clamp(begin + (p->count - 1) * step + reach, from, size);
    *x = cut_at(x, axis, from, to - from);
    if (f->err) f->err_in[0] = cut_at(&f->err_in[0], axis, from, to - from);
    n->attr.conv.lo[i] = from - begin;
}

static bool part_node(Frame *f, const Slices *s, Part *p, Value v) {
    const Node *n = graph_node(f->g, v);
    Node shifted;
    f->e->last = 0;
    for (uint32_t i = 0; i < n->nin; i++) {
        Value x = n->in[i];
        bool part = s->of[x] >= 0;
        int a = part ? -1 : operand_axis(f, v, i, s->of[v]);
        f->in[i] = part ? p->v[x] : cut(&f->v[x], a, p);
        if (f->err) f->err_in[i] = part ? p->err[x] : cut(&f->err[x], a, p);
        if (part && i < 32 && p->uses[x] == 1) f->e->last |= 1u << i;
    }
    if (n->op == OP_conv && s->of[v] > 0) {
        shifted = *n;
        cut_image(f, p, s->of[v], &shifted);
        n = &shifted;
    }
    Tensor *out = &p->v[v];
    *out = (Tensor){.dtype = eval_storage(f->e, n->type.dtype), .rank = n->type.rank};
    frame_dims(f, v, out->dim);
    out->dim[s->of[v]] = p->count;
    eval_contiguous_strides(out);
    if (!eval_fn((Op)n->op)(f->e, f->g, n, f->in, out)) return false;
    if (f->watch && !eval_error(f->e, f->g, n, f->in, f->err_in, out,
                                f->watch->what[v] & EVAL_LOOSE, &p->err[v]))
        return false;
    for (uint32_t i = 0; i < n->nin; i++) {
        Value x = n->in[i];
        if (s->of[x] < 0 || --p->uses[x]) continue;
        eval_release(f->e, &p->v[x]);
        eval_release(f->e, &p->err[x]);
    }
    return true;
}

static bool put(Frame *f, const Slices *s, const Part *p, const Tensor *from, Tensor *whole) {
    if (!from->data) return true;
    if (!whole->data) {
        *whole = *from;
        whole->block = NULL;
        frame_dims(f, s->root, whole->dim);
        if (!eval_alloc(f->e, whole)) return false;
        memset(whole->to, 0, (size_t)eval_numel(whole) * dtype_bytes(whole->dtype));
    }
    Tensor to = cut(whole, s->axis, p);
    to.to = whole->to + (to.data - whole->data);
    eval_copy(&to, from);
    return true;
}

/* The root's part is there. */
static bool part_done(Frame *f, const Slices *s, Part *p) {
    const EvalPart part = {s->axis, p->first};
    const Tensor *x = &p->v[s->root], *err = &p->err[s->root];
    if (looked_at(f, s->root) && !look_part(f, &p->look, part, x, err)) return false;
    return p->look.has_other ||
           (put(f, s, p, x, &f->v[s->root]) && (!f->err || put(f, s, p, err, &f->err[s->root])));
}

static bool run_part(Frame *f, const Slices *s, Part *p) {
    bool ok = true;
    Value v = 1;
    memcpy(p->uses, s->edges, f->g->nodes.n * sizeof *p->uses);
    for (; ok && v <= s->root; v++)
        if (s->of[v] >= 0) ok = part_node(f, s, p, v);
    ok = ok && part_done(f, s, p);
    for (v = 1; v <= s->root; v++) {
        eval_release(f->e, &p->v[v]);
        eval_release(f->e, &p->err[v]);
    }
    return ok;
}

static bool run_parts(Frame *f, const Slices *s, Part *p) {
    int64_t dim[GRAPH_MAX_RANK];
    if (looked_at(f, s->root) && !look_begin(f, s->root, &p->look)) return false;
    frame_dims(f, s->root, dim);
    int64_t all = dim[s->axis], each = (int64_t)((uint64_t)all * f->e->part / (s->most + 1));
    for (p->first = 0; p->first < all; p->first += p->count) {
        p->count = each > 1 ? each : 1;
        if (p->count > all - p->first) p->count = all - p->first;
        if (!run_part(f, s, p)) return false;
    }
    return !looked_at(f, s->root) || look_end(f, &p->look);
}

bool slices_run(Frame *f, const Slices *s) {
    const uint32_t n = f->g->nodes.n;
    Part p = {0};
    p.v = calloc(n, sizeof *p.v);
    p.err = calloc(n, sizeof *p.err);
    p.uses = calloc(n, sizeof *p.uses);
    bool ok = p.v && p.err && p.uses;
    if (!ok) eval_fail(f->e, D_NO_MEMORY, "not enough memory: %u values", n);
    ok = ok && run_parts(f, s, &p);
    look_free(f, &p.look);
    free(p.v);
    free(p.err);
    free(p.uses);
    for (Value v = 1; ok && v < s->root; v++)
        if (s->of[v] >= 0) frame_done(f, v);
    return ok;
}
