/* Index expressions: how views move a read position, and how axes are split to keep them affine. */
#include "fusion/group/fuse.h"
#include <string.h>

/* --- Groups and axes ---------------------------------------------------------------------- */

Group *group_new(Fuse *f, GroupKind kind) {
    Group *g = ARENA_NEW(f->arena, Group);
    g->id = f->groups.n;
    g->kind = kind;
    g->index_of = map_create(f->arena);
    vec_push(f->arena, &f->groups, g);
    return g;
}

Expr axis_new(Fuse *f, Group *g, Expr extent, KAxisKind kind) {
    GC_ASSERT(g->naxes < K_MAX_AXES);
    int64_t lo, hi;
    expr_range(f->p, extent, &lo, &hi);
    int64_t hint = expr_hint(f->p, extent);
    SymInfo s = {.name = arena_printf(f->arena, "x%u", ++f->naxis_syms),
                 .kind = SYM_AXIS,
                 .hi = hi == INT64_MAX ? INT64_MAX
                       : hi > 0        ? hi - 1
                                       : 0,
                 .hint = hint > 1 ? hint / 2 : 0,
                 .below = extent};
    Expr e = expr_sym_new(f->p, s);
    KAxis *x = &g->axes[g->naxes++];
    expr_is_sym(f->p, e, &x->sym);
    x->extent = extent;
    x->kind = kind;
    return e;
}

uint32_t group_axes(const Group *g, KAxisKind kind) {
    uint32_t mask = 0;
    for (uint32_t i = 0; i < g->naxes; i++)
        if (g->axes[i].kind == kind) mask |= 1u << i;
    return mask;
}

Expr group_extent(const Fuse *f, const Group *g, uint32_t axes) {
    Expr n = expr_const(f->p, 1);
    for (uint32_t i = 0; i < g->naxes; i++)
        if (axes >> i & 1) n = expr_mul(f->p, n, g->axes[i].extent);
    return n;
}

uint32_t axis_bit(const Group *g, uint32_t sym) {
    for (uint32_t i = 0; i < g->naxes; i++)
        if (g->axes[i].sym == sym) return 1u << i;
    return 0;
}

typedef struct AxesUsed {
    const Fuse *f;
    const Group *g;
    uint32_t used;
} AxesUsed;

/* What a gather binds depends on the axes of the index operand's position. */
static void note_axes(void *ctx, uint32_t sym) {
    AxesUsed *a = ctx;
    a->used |= axis_bit(a->g, sym);
    for (uint32_t i = 0; i < a->g->syms.n; i++)
        if (a->g->syms.v[i].sym == sym) a->used |= idx_axes_used(a->f, a->g, a->g->syms.v[i].idx);
}

uint32_t expr_axes_used(const Fuse *f, const Group *g, Expr e) {
    AxesUsed a = {f, g, 0};
    if (e) expr_each_sym(f->p, e, note_axes, &a);
    return a.used;
}

uint32_t idx_axes_used(const Fuse *f, const Group *g, IdxId id) {
    const Idx *x = idx_get(g, id);
    uint32_t used = 0;
    for (uint32_t i = 0; i < x->rank; i++) used |= expr_axes_used(f, g, x->dim[i]);
    return used;
}

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
static IdxId idx_intern(Fuse *f, Group *g, const Idx *x) {
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

IdxId idx_make(Fuse *f, Group *g, const Type *t, const Expr *dim, Expr flat) {
    Idx x = {.rank = t->rank};
    for (uint32_t i = 0; i < t->rank; i++) {
        x.extent[i] = t->dim[i];
        x.dim[i] = expr_is_value(f->p, t->dim[i], 1) ? expr_const(f->p, 0) : dim[i];
    }
    x.flat = flat ? flat : idx_join(f->p, x.rank, x.dim, x.extent);
    return idx_intern(f, g, &x);
}

IdxId idx_axes(Fuse *f, Group *g, const Type *t) {
    Expr dim[GRAPH_MAX_RANK];
    for (uint32_t i = 0; i < t->rank; i++)
        dim[i] = expr_is_value(f->p, t->dim[i], 1) ? expr_const(f->p, 0)
                                                   : axis_new(f, g, t->dim[i], AX_PAR);
    return idx_make(f, g, t, dim, 0);
}

/* --- Positions ---------------------------------------------------------------------------- */

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

IdxId idx_reshape(Fuse *f, Group *g, IdxId idx, const Type *to) {
    Idx x = *idx_get(g, idx);
    Shape a = shape_of(f->p, x.rank, x.extent, x.dim);
    Shape b = shape_of(f->p, to->rank, to->dim, NULL);
    reshape_dims(f->p, &a, &b);
    Expr dim[GRAPH_MAX_RANK];
    for (uint32_t i = 0; i < to->rank; i++) dim[i] = expr_const(f->p, 0);
    for (uint32_t i = 0; i < b.n; i++) dim[b.axis[i]] = b.dim[i];
    return idx_make(f, g, to, dim, x.flat);
}

/* --- Splitting axes ----------------------------------------------------------------------- */

typedef struct SplitAt {
    uint32_t axis;
    Expr inner;
} SplitAt;

/* d / |coef|, where that is exact and an extent. */
static bool split_at(ExprPool *p, Expr d, Expr coef, Expr *inner) {
    int64_t lo, hi;
    expr_range(p, coef, &lo, &hi);
    if (hi < 0) coef = expr_muli(p, coef, -1); /* walked backwards */
    if (!expr_exact_div(p, d, coef, inner) || expr_is_value(p, *inner, 1)) return false;
    expr_range(p, *inner, &lo, &hi);
    return lo >= 0;
}

/* Does `arg` taken by divisor d ask for one of the group's axes to be split, and where? */
static bool split_wanted(Fuse *f, const Group *g, Expr arg, Expr d, SplitAt *out) {
    if (expr_axes_used(f, g, d)) return false;
    for (uint32_t i = 0; i < g->naxes; i++) {
        if ((g->fixed >> i & 1) || !expr_uses(f->p, arg, g->axes[i].sym)) continue;
        Expr coef, rest, inner, outer;
        if (!expr_affine(f->p, arg, g->axes[i].sym, &coef, &rest)) continue;
        if (!split_at(f->p, d, coef, &inner)) continue;
        if (!expr_exact_div(f->p, g->axes[i].extent, inner, &outer)) continue;
        if (expr_is_value(f->p, outer, 1)) continue;
        *out = (SplitAt){i, inner};
        return true;
    }
    return false;
}

static bool find_split(Fuse *f, const Group *g, Expr e, SplitAt *out) {
    ExprOp op = expr_op(f->p, e);
    if (op == EX_const || op == EX_sym) return false;
    if (op == EX_div || op == EX_mod) {
        Expr arg = expr_arg(f->p, e, 0), d = expr_arg(f->p, e, 1);
        if (find_split(f, g, arg, out)) return true;
        return split_wanted(f, g, arg, d, out);
    }
    int n = op == EX_select ? 3 : 2;
    for (int i = 0; i < n; i++)
        if (find_split(f, g, expr_arg(f->p, e, i), out)) return true;
    return false;
}

static void subst_all(Fuse *f, Group *g, uint32_t sym, Expr by) {
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

/* Axis i becomes two neighbours, outer and inner. */
static void axis_split(Fuse *f, Group *g, uint32_t i, Expr inner) {
    KAxis old = g->axes[i];
    Expr outer = expr_div(f->p, old.extent, inner);
    Expr x1 = axis_new(f, g, outer, old.kind), x0 = axis_new(f, g, inner, old.kind);
    KAxis a1 = g->axes[g->naxes - 2], a0 = g->axes[g->naxes - 1];
    memmove(&g->axes[i + 2], &g->axes[i + 1], (g->naxes - 3 - i) * sizeof g->axes[0]);
    g->axes[i] = a1;
    g->axes[i + 1] = a0;
    g->naxes--;
    uint32_t low = (1u << i) - 1;
    g->fixed = (g->fixed & low) | (g->fixed & ~(low | 1u << i)) << 1;
    subst_all(f, g, old.sym, expr_add(f->p, expr_mul(f->p, x1, inner), x0));
}

IdxId idx_split_axes(Fuse *f, Group *g, IdxId id) {
    for (int round = 0; round < 8 && g->naxes + 2 <= K_MAX_AXES - 4; round++) {
        SplitAt at;
        bool found = false;
        Idx x = *idx_get(g, id);
        for (uint32_t i = 0; i < x.rank && !found; i++) found = find_split(f, g, x.dim[i], &at);
        if (!found) break;
        axis_split(f, g, at.axis, at.inner);
    }
    return id;
}

bool expr_awkward(const Fuse *f, const Group *g, Expr e, uint32_t axes) {
    ExprOp op = expr_op(f->p, e);
    if (op == EX_const || op == EX_sym) return false;
    if (op == EX_div || op == EX_mod) return (expr_axes_used(f, g, e) & axes) != 0;
    int n = op == EX_select ? 3 : 2;
    for (int i = 0; i < n; i++)
        if (expr_awkward(f, g, expr_arg(f->p, e, i), axes)) return true;
    return false;
}

bool idx_awkward(const Fuse *f, const Group *g, IdxId id, uint32_t axes) {
    const Idx *x = idx_get(g, id);
    for (uint32_t i = 0; i < x->rank; i++)
        if (expr_awkward(f, g, x->dim[i], axes)) return true;
    return false;
}

bool idx_covers(const Fuse *f, const Group *g, IdxId id, uint32_t axes) {
    Expr rest = idx_get(g, id)->flat, stride = expr_const(f->p, 1);
    Expr coef[K_MAX_AXES];
    if (expr_axes_used(f, g, rest) != axes) return false;
    for (uint32_t i = 0; i < g->naxes; i++)
        if ((axes >> i & 1) && !expr_affine(f->p, rest, g->axes[i].sym, &coef[i], &rest))
            return false;
    if (!expr_is_value(f->p, rest, 0)) return false;
    while (axes) {
        uint32_t i = 0;
        while (i < g->naxes && !((axes >> i & 1) && coef[i] == stride)) i++;
        if (i == g->naxes) return false;
        stride = expr_mul(f->p, stride, g->axes[i].extent);
        axes &= ~(1u << i);
    }
    const Idx *x = idx_get(g, id);
    Expr n = expr_const(f->p, 1);
    for (uint32_t i = 0; i < x->rank; i++) n = expr_mul(f->p, n, x->extent[i]);
    return n == stride;
}

/* --- Views -------------------------------------------------------------------------------- */

Expr expr_in_range(ExprPool *p, Expr i, Expr n) {
    Expr zero = expr_const(p, 0);
    return expr_and(p, expr_le(p, zero, i), expr_lt(p, i, n));
}

Expr expr_mask_and(ExprPool *p, Expr a, Expr b) {
    Expr m = a ? b ? expr_and(p, a, b) : a : b;
    return m && expr_is_value(p, m, 1) ? 0 : m;
}

static void pad_dim(Fuse *f, const Attr *a, const Type *in, uint32_t d, Expr *dim, Expr *mask) {
    ExprPool *p = f->p;
    Expr i = expr_sub(p, *dim, a->pad.lo[d]);
    int64_t step = a->pad.interior[d] + 1;
    if (step > 1) {
        Expr s = expr_const(p, step), at = expr_div(p, i, s);
        *mask = expr_mask_and(p, *mask, expr_eq(p, expr_mod(p, i, s), expr_const(p, 0)));
        i = at;
    }
    *mask = expr_mask_and(p, *mask, expr_in_range(p, i, in->dim[d]));
    *dim = i;
}

static IdxId operand_of_window(Fuse *f, Group *g, const Node *n, const Idx *x) {
    const Type *in = graph_type(f->g, n->in[0]);
    Expr dim[GRAPH_MAX_RANK];
    memcpy(dim, x->dim, sizeof dim);
    for (uint32_t i = 0; i < n->attr.window.n; i++) {
        uint32_t d = n->attr.window.axis[i];
        Expr tap = expr_muli(f->p, x->dim[in->rank + i], n->attr.window.dilation[i]);
        dim[d] = expr_add(f->p, expr_muli(f->p, dim[d], n->attr.window.stride[i]), tap);
    }
    return idx_make(f, g, in, dim, 0);
}

static IdxId operand_plain(Fuse *f, Group *g, const Node *n, uint32_t i, IdxId idx, Expr *mask) {
    ExprPool *p = f->p;
    const Type *in = graph_type(f->g, n->in[i]);
    Idx x = *idx_get(g, idx);
    Expr dim[GRAPH_MAX_RANK];
    memcpy(dim, x.dim, sizeof dim);
    switch (n->op) {
    case OP_reshape: return idx_reshape(f, g, idx, in);
    case OP_permute:
        for (uint32_t d = 0; d < x.rank; d++) dim[n->attr.perm.axis[d]] = x.dim[d];
        break;
    case OP_expand: break; /* dimensions of size 1 become 0 in idx_make */
    case OP_slice:
        for (uint32_t d = 0; d < x.rank; d++)
            dim[d] =
                expr_add(p, n->attr.slice.start[d], expr_muli(p, x.dim[d], n->attr.slice.step[d]));
        break;
    case OP_pad:
        if (i == 1) break;
        for (uint32_t d = 0; d < x.rank; d++) pad_dim(f, &n->attr, in, d, &dim[d], mask);
        break;
    case OP_concat: {
        int32_t d = n->attr.axis.axis;
        Expr before = expr_const(p, 0);
        for (uint32_t k = 0; k < i; k++)
            before = expr_add(p, before, graph_type(f->g, n->in[k])->dim[d]);
        dim[d] = expr_sub(p, x.dim[d], before);
        *mask = expr_mask_and(p, *mask, expr_in_range(p, dim[d], in->dim[d]));
        break;
    }
    case OP_window: return operand_of_window(f, g, n, &x);
    default: return idx; /* maps */
    }
    return idx_make(f, g, in, dim, 0);
}

IdxId idx_operand(Fuse *f, Group *g, Value v, uint32_t i, IdxId idx, Expr *mask) {
    const Node *n = graph_node(f->g, v);
    Expr m = 0;
    IdxId r = operand_plain(f, g, n, i, idx, &m);
    if (r != idx && n->op == OP_reshape) {
        uint32_t before = g->naxes;
        idx_split_axes(f, g, r);
        if (g->naxes != before) { /* the position itself is spelled in the new axes now */
            m = 0;
            r = operand_plain(f, g, n, i, idx, &m);
        }
    }
    *mask = m;
    return r;
}

IdxId idx_result(Fuse *f, Group *g, Value v, IdxId idx) {
    const Node *n = graph_node(f->g, v);
    if (n->op == OP_reshape) return idx_reshape(f, g, idx, &n->type);
    if (n->op != OP_permute) return idx;
    Idx x = *idx_get(g, idx);
    Expr dim[GRAPH_MAX_RANK];
    for (uint32_t d = 0; d < x.rank; d++) dim[d] = x.dim[n->attr.perm.axis[d]];
    return idx_make(f, g, &n->type, dim, 0);
}

/* --- Gather ------------------------------------------------------------------------------- */

uint32_t idx_gather_sym(Fuse *f, Group *g, Value v, uint32_t operand, IdxId idx, uint32_t salt) {
    SymAt at = {v, operand, salt, idx_canon(g, idx), 0};
    for (uint32_t i = 0; i < g->syms.n; i++) {
        const SymAt *s = &g->syms.v[i];
        bool same = s->v == v && s->operand == operand && s->salt == salt;
        if (same && idx_canon(g, s->idx) == at.idx) return s->sym;
    }
    const Node *n = graph_node(f->g, v);
    const Type *data = graph_type(f->g, n->in[0]);
    Expr extent = 0;
    for (uint32_t d = 0; d < data->rank; d++)
        if (n->attr.index.src[d] == -(int)operand) extent = data->dim[d];
    int64_t lo, hi;
    expr_range(f->p, extent, &lo, &hi);
    SymInfo s = {.name = arena_printf(f->arena, "at%u", ++f->naxis_syms),
                 .kind = SYM_INDIRECT,
                 .hi = hi == INT64_MAX ? hi
                       : hi > 0        ? hi - 1
                                       : 0,
                 .below = extent};
    expr_is_sym(f->p, expr_sym_new(f->p, s), &at.sym);
    vec_push(f->arena, &g->syms, at);
    return at.sym;
}

/* The one coordinate that a constant index operand holds. */
bool idx_known(const Fuse *f, Value v, Expr extent, Expr *at) {
    const Node *n = graph_node(f->g, v);
    int64_t size;
    while (op_info[n->op].cls == OPC_VIEW && n->nin == 1) n = graph_node(f->g, n->in[0]);
    if (n->op != OP_const || !expr_is_const(f->p, extent, &size)) return false;
    size_t bytes = dtype_bytes(n->type.dtype);
    const uint8_t *p = n->attr.constant.data;
    if (n->attr.constant.bytes < bytes || n->attr.constant.bytes > 4096 * bytes) return false;
    if (memcmp(p, p + bytes, n->attr.constant.bytes - bytes) != 0) return false;
    int64_t i = dtype_load_i64(n->type.dtype, p, 0);
    *at = expr_const(f->p, i < 0 ? 0 : i < size ? i : size - 1);
    return true;
}

IdxId idx_gather(Fuse *f, Group *g, Value v, IdxId idx, uint32_t salt) {
    const Node *n = graph_node(f->g, v);
    const Type *data = graph_type(f->g, n->in[0]);
    Expr dim[GRAPH_MAX_RANK];
    for (uint32_t d = 0; d < data->rank; d++) {
        int src = n->attr.index.src[d];
        if (src >= 0)
            dim[d] = idx_get(g, idx)->dim[src];
        else if (!idx_known(f, n->in[-src], data->dim[d], &dim[d]))
            dim[d] = expr_sym_ref(f->p, idx_gather_sym(f, g, v, (uint32_t)-src, idx, salt));
    }
    return idx_make(f, g, data, dim, 0);
}
