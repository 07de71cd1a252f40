/* Positions: indices are interned, and move from shape to shape. */
#include "fusion/fuse.h"
#include <string.h>

/* --- Interning ---------------------------------------------------------------------------- */

const Idx *idx_get(const Group *g, IdxId id) {
    return &g->idx.v[id - 1];
}

static uint64_t idx_hash(const Idx *x) {
    uint64_t h = hash_bytes(x->dim, x->rank * sizeof x->dim[0], x->rank);
    return hash_bytes(x->extent, x->rank * sizeof x->extent[0], h);
}

static bool idx_same(const Idx *a, const Idx *b) {
    return a->rank == b->rank && !memcmp(a->dim, b->dim, a->rank * sizeof a->dim[0]) &&
           !memcmp(a->extent, b->extent, a->rank * sizeof a->extent[0]);
}

/* The map holds the newest index of a hash; a clash only costs sharing. */
IdxId idx_intern(Fuse *f, Group *g, const Idx *x) {
    uint64_t h = idx_hash(x);
    uint32_t id;
    if (map_get(g->index_of, h, &id) && idx_same(&g->idx.v[id - 1], x)) return id;
    vec_push(f->arena, &g->idx, *x);
    map_put(g->index_of, h, g->idx.n);
    return g->idx.n;
}

IdxId idx_canon(const Group *g, IdxId id) {
    uint32_t seen;
    if (!id || !map_get(g->index_of, idx_hash(&g->idx.v[id - 1]), &seen)) return id;
    return idx_same(&g->idx.v[seen - 1], &g->idx.v[id - 1]) ? seen : id;
}

void idx_subst(Fuse *f, Group *g, uint32_t sym, Expr by) {
    g->index_of = map_create(f->arena);
    for (uint32_t i = 0; i < g->idx.n; i++) {
        Idx *x = &g->idx.v[i];
        for (uint32_t d = 0; d < x->rank; d++)
            if (expr_uses(f->p, x->dim[d], sym))
                x->dim[d] = expr_subst(f->p, x->dim[d], &sym, &by, 1);
        if (expr_uses(f->p, x->flat, sym)) x->flat = expr_subst(f->p, x->flat, &sym, &by, 1);
        uint32_t seen;
        if (!map_get(g->index_of, idx_hash(x), &seen)) map_put(g->index_of, idx_hash(x), i + 1);
    }
}

bool idx_is(const Group *g, const Idx *x, IdxId id) {
    return id && idx_same(idx_get(g, id), x);
}

static Idx position(ExprPool *p, const Type *t, const Expr *dim, Expr flat) {
    Idx x = {.rank = t->rank};
    for (uint32_t i = 0; i < t->rank; i++) {
        x.extent[i] = t->dim[i];
        x.dim[i] = expr_is_value(p, t->dim[i], 1) ? expr_const(p, 0) : dim[i];
    }
    x.flat = flat ? flat : idx_join(p, x.rank, x.dim, x.extent);
    return x;
}

IdxId idx_make(Fuse *f, Group *g, const Type *t, const Expr *dim, Expr flat) {
    const Idx x = position(f->p, t, dim, flat);
    return idx_intern(f, g, &x);
}

IdxId idx_axes(Fuse *f, Group *g, const Type *t) {
    Expr dim[GRAPH_MAX_RANK];
    for (uint32_t i = 0; i < t->rank; i++)
        dim[i] = expr_is_value(f->p, t->dim[i], 1) ? expr_const(f->p, 0)
                                                   : axis_new(f, g, t->dim[i], AX_PAR);
    return idx_make(f, g, t, dim, 0);
}

static IdxId copy_idx(Fuse *f, const Group *g, IdxId id, Group *to) {
    Idx x = *idx_get(g, id);
    return idx_intern(f, to, &x);
}

void idx_scratch(const Fuse *f, const Group *g, IdxId idx, Scratch *s) {
    Group *copy = &s->g;
    s->f = *f;
    s->count = *f->count; /* axes are numbered from where they were */
    s->f.count = &s->count;
    *copy = (Group){.kind = g->kind, .naxes = g->naxes, .fixed = g->fixed};
    memcpy(copy->axes, g->axes, g->naxes * sizeof *g->axes);
    copy->index_of = map_create(f->arena);
    s->idx = copy_idx(&s->f, g, idx, copy);
    if (g->k_idx) copy->k_idx = copy_idx(&s->f, g, g->k_idx, copy);
    for (uint32_t i = 0; i < g->syms.n; i++) { /* what they bind depends on axes, too */
        SymAt at = g->syms.v[i];
        at.idx = copy_idx(&s->f, g, at.idx, copy);
        vec_push(f->arena, &copy->syms, at);
    }
}

/* --- Shapes ------------------------------------------------------------------------------- */

bool expr_exact_div(ExprPool *p, Expr a, Expr b, Expr *q) {
    if (expr_is_value(p, b, 0)) return false;
    Expr e = expr_div(p, a, b);
    if (expr_mul(p, e, b) != a) return false;
    *q = e;
    return true;
}

static bool is_pair(const ExprPool *p, Expr e, ExprOp op, Expr divisor, Expr *x) {
    if (expr_op(p, e) != op || expr_arg(p, e, 1) != divisor) return false;
    *x = expr_arg(p, e, 0);
    return true;
}

/* a*n + b, undoing a = X / n, b = X % n (possibly with a taken modulo something, too). */
static Expr join2(ExprPool *p, Expr a, Expr b, Expr n) {
    Expr x, y, z;
    if (is_pair(p, b, EX_mod, n, &x)) {
        if (a == expr_div(p, x, n)) return x;
        if (expr_op(p, a) == EX_mod && is_pair(p, expr_arg(p, a, 0), EX_div, n, &y) && y == x)
            return expr_mod(p, x, expr_mul(p, n, expr_arg(p, a, 1)));
        if (is_pair(p, a, EX_div, expr_arg(p, a, 1), &z) && a == expr_div(p, x, n)) return x;
    }
    return expr_add(p, expr_mul(p, a, n), b);
}

Expr idx_join(ExprPool *p, uint32_t n, const Expr *dim, const Expr *extent) {
    Expr e = expr_const(p, 0);
    bool first = true;
    for (uint32_t i = 0; i < n; i++) {
        if (expr_is_value(p, extent[i], 1)) continue;
        e = first ? dim[i] : join2(p, e, dim[i], extent[i]);
        first = false;
    }
    return e;
}

static void idx_split(ExprPool *p, Expr flat, uint32_t n, const Expr *extent, Expr *dim) {
    for (uint32_t i = n; i-- > 1;) {
        dim[i] = expr_mod(p, flat, extent[i]);
        flat = expr_div(p, flat, extent[i]);
    }
    if (n) dim[0] = flat;
}

typedef struct Shape {
    uint32_t n, axis[GRAPH_MAX_RANK];
    Expr extent[GRAPH_MAX_RANK], dim[GRAPH_MAX_RANK];
} Shape;

/* Dimensions of size 1 take no part. */
static Shape shape_of(ExprPool *p, uint32_t rank, const Expr *extent, const Expr *dim) {
    Shape s = {0};
    for (uint32_t i = 0; i < rank; i++) {
        if (expr_is_value(p, extent[i], 1)) continue;
        s.axis[s.n] = i;
        s.extent[s.n] = extent[i];
        if (dim) s.dim[s.n] = dim[i];
        s.n++;
    }
    return s;
}

/* Dims of position `from` (in shape `from`) in shape `to`. Runs of dimensions with equal products
 * correspond, so that unrelated symbolic sizes never meet in one division. */
static void reshape_dims(ExprPool *p, const Shape *from, Shape *to) {
    uint32_t i = 0, j = 0;
    while (i < from->n && j < to->n) {
        uint32_t i0 = i, j0 = j;
        Expr a = from->extent[i++], b = to->extent[j++], q;
        while (a != b) {
            if (j < to->n && expr_exact_div(p, a, b, &q))
                b = expr_mul(p, b, to->extent[j++]);
            else if (i < from->n && expr_exact_div(p, b, a, &q))
                a = expr_mul(p, a, from->extent[i++]);
            else { /* unrelated spellings: the rest is one run */
                i = from->n;
                j = to->n;
                break;
            }
        }
        if (i == from->n || j == to->n) i = from->n, j = to->n;
        Expr flat = idx_join(p, i - i0, from->dim + i0, from->extent + i0);
        idx_split(p, flat, j - j0, to->extent + j0, to->dim + j0);
    }
    for (; j < to->n; j++) to->dim[j] = expr_const(p, 0);
}

static Idx reshaped(ExprPool *p, const Idx *x, const Type *to) {
    Shape a = shape_of(p, x->rank, x->extent, x->dim);
    Shape b = shape_of(p, to->rank, to->dim, NULL);
    reshape_dims(p, &a, &b);
    Expr dim[GRAPH_MAX_RANK];
    for (uint32_t i = 0; i < to->rank; i++) dim[i] = expr_const(p, 0);
    for (uint32_t i = 0; i < b.n; i++) dim[b.axis[i]] = b.dim[i];
    return position(p, to, dim, x->flat);
}

IdxId idx_reshape(Fuse *f, Group *g, IdxId idx, const Type *to) {
    const Idx x = reshaped(f->p, idx_get(g, idx), to);
    return idx_intern(f, g, &x);
}

Idx idx_result(const Fuse *f, Value v, Idx x) {
    const Node *n = graph_node(f->g, v);
    if (n->op == OP_reshape) return reshaped(f->p, &x, &n->type);
    if (n->op != OP_permute) return x;
    Expr dim[GRAPH_MAX_RANK];
    for (uint32_t d = 0; d < x.rank; d++) dim[d] = x.dim[n->attr.perm.axis[d]];
    return position(f->p, &n->type, dim, 0);
}

/* --- Masks -------------------------------------------------------------------------------- */

Expr expr_in_range(ExprPool *p, Expr i, Expr n) {
    Expr zero = expr_const(p, 0);
    return expr_and(p, expr_le(p, zero, i), expr_lt(p, i, n));
}

Expr expr_mask_and(ExprPool *p, Expr a, Expr b) {
    Expr m = a ? b ? expr_and(p, a, b) : a : b;
    return m && expr_is_value(p, m, 1) ? 0 : m;
}
