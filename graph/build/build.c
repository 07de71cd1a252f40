/* Builder core: state, locations, errors, sharing of equal nodes, append. */
#include "graph/build/build_impl.h"

#include <string.h>

BuildState *build_state(Graph *g) {
    if (!g->build) {
        g->build = ARENA_NEW(g->arena, BuildState);
        g->build->cse = map_create(g->arena);
    }
    return g->build;
}

void build_at(Graph *g, Loc loc) {
    build_state(g)->loc = loc;
}

Loc build_loc(const Graph *g) {
    return g->build ? g->build->loc : 0;
}

Loc build_loc_new(Graph *g, LocInfo info) {
    vec_push(g->arena, &g->locs, info);
    return g->locs.n - 1;
}

Loc build_loc_from(Graph *g, const Graph *from, Loc l, Loc outermost) {
    if (!l || l >= from->locs.n) return outermost;
    LocInfo info = from->locs.v[l];
    info.parent = build_loc_from(g, from, info.parent, outermost);
    return build_loc_new(g, info);
}

Value build_error(Graph *g, DiagId id, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *text = arena_vprintf(g->arena, fmt, ap);
    va_end(ap);
    (void)diag(g->diags, id, graph_place(g, build_loc(g), g->arena), "%s", text);
    return 0;
}

bool build_valid(const Value *in, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!in[i]) return false;
    return true;
}

const char *build_type_text(Graph *g, const Type *t) {
    return type_text(g->exprs, t, g->arena);
}

bool build_check_domain(Graph *g, Op op, DType t) {
    static const char class_letter[] = {
        [DCLASS_NONE] = 0, [DCLASS_F] = 'f', [DCLASS_I] = 'i', [DCLASS_U] = 'i', [DCLASS_B] = 'b'};
    const char *domain = op_info[op].domain;
    if (domain[0] == '*' || strchr(domain, class_letter[dtype_info[t].cls])) return true;
    build_error(g, D_DTYPE, "%s is not defined for %s", op_info[op].name, dtype_name(t));
    return false;
}

int build_axis(Graph *g, int axis, int rank, const char *what) {
    if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
    build_error(g, D_SHAPE, "%s: axis %d is outside the %d axes of its operand", what, axis, rank);
    return -1;
}

Type build_type(DType dtype, uint8_t rank, const Expr *dim) {
    GC_ASSERT(rank <= GRAPH_MAX_RANK);
    Type t = {.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) t.dim[i] = dim[i];
    return t;
}

bool build_static_dims(const Graph *g, const Type *t, int64_t *dim) {
    for (int i = 0; i < t->rank; i++)
        if (!expr_is_const(g->exprs, t->dim[i], &dim[i])) return false;
    return true;
}

int64_t build_count(const Graph *g, const Type *t, int64_t limit) {
    int64_t dim[GRAPH_MAX_RANK], n = 1;
    if (!build_static_dims(g, t, dim)) return -1;
    for (int i = 0; i < t->rank; i++)
        if (dim[i] == 0) return 0;
    for (int i = 0; i < t->rank; i++)
        if (__builtin_mul_overflow(n, dim[i], &n) || n < 0 || n > limit) return -1;
    return n;
}

/* ---- Sharing of equal nodes ---- */

/* A node's attributes as words: equal words mean equal attributes. */
typedef struct Key {
    uint32_t n;
    uint64_t w[8 + 4 * GRAPH_MAX_RANK];
} Key;

static void key_add(Key *k, uint64_t w) {
    GC_ASSERT(k->n < sizeof k->w / sizeof *k->w);
    k->w[k->n++] = w;
}

static void key_constant(Key *k, const Constant *c) {
    /* Small constants compare by content, large ones by address: weights are mapped once. */
    key_add(k, c->bytes);
    key_add(k,
            c->bytes <= BUILD_MAX_FOLDED ? hash_bytes(c->data, c->bytes, 1) : (uintptr_t)c->data);
}

static void key_window(Key *k, const Attr *a) {
    for (int i = 0; i < a->window.n; i++) {
        key_add(k, a->window.axis[i]);
        key_add(k, (uint64_t)a->window.size[i]);
        key_add(k, (uint64_t)a->window.stride[i]);
        key_add(k, (uint64_t)a->window.dilation[i]);
    }
}

static void key_conv(Key *k, const Attr *a) {
    key_add(k, a->conv.to);
    key_add(k, (uint64_t)a->conv.groups);
    for (int i = 0; i < a->conv.n; i++) {
        key_add(k, (uint64_t)a->conv.stride[i]);
        key_add(k, (uint64_t)a->conv.dilation[i]);
        key_add(k, (uint64_t)a->conv.lo[i]);
        key_add(k, (uint64_t)a->conv.hi[i]);
    }
}

static void key_pad(Key *k, const Attr *a, int rank) {
    for (int i = 0; i < rank; i++) {
        key_add(k, a->pad.lo[i]);
        key_add(k, a->pad.hi[i]);
        key_add(k, (uint64_t)a->pad.interior[i]);
    }
}

static void key_slice(Key *k, const Attr *a, int rank) {
    for (int i = 0; i < rank; i++) {
        key_add(k, a->slice.start[i]);
        key_add(k, (uint64_t)a->slice.step[i]);
    }
}

static void key_attr(Key *k, const Graph *g, const Node *n) {
    const Attr *a = &n->attr;
    switch (n->op) {
    case OP_input: key_add(k, a->input.index); break;
    case OP_const: key_constant(k, &a->constant); break;
    case OP_iota:
    case OP_concat:
    case OP_proj: key_add(k, (uint64_t)a->axis.axis); break;
    case OP_exprs: key_add(k, hash_bytes(a->exprs.v, a->exprs.n * sizeof(Expr), 2)); break;
    case OP_cast:
    case OP_bitcast:
    case OP_dot: key_add(k, a->cast.to * 1024u + a->cast.saturate * 512u + a->cast.round); break;
    case OP_permute:
        for (int i = 0; i < n->type.rank; i++) key_add(k, a->perm.axis[i]);
        break;
    case OP_slice: key_slice(k, a, n->type.rank); break;
    case OP_pad: key_pad(k, a, n->type.rank); break;
    case OP_window: key_window(k, a); break;
    case OP_conv: key_conv(k, a); break;
    case OP_gather:
    case OP_scatter:
        key_add(k, a->index.mode);
        for (int i = 0; i < graph_type(g, n->in[0])->rank; i++)
            key_add(k, (uint64_t)a->index.src[i]);
        break;
    case OP_uniform: key_add(k, a->random.seed); break;
    case OP_if:
    case OP_loop: key_add(k, (uintptr_t)a->control); break;
    default: break;
    }
    if (op_info[n->op].cls == OPC_REDUCE) key_add(k, a->reduce.axes * 2u + a->reduce.last);
    if (op_info[n->op].cls == OPC_SCAN || op_info[n->op].cls == OPC_SORT)
        key_add(k, (uint64_t)a->scan.axis * 4 + a->scan.exclusive * 2u + a->scan.reverse);
}

static Key node_key(const Graph *g, const Node *n) {
    Key k = {0};
    key_attr(&k, g, n);
    return k;
}

static bool same_bytes(const Node *a, const Node *b) {
    if (a->op == OP_exprs)
        return a->attr.exprs.n == b->attr.exprs.n &&
               (a->attr.exprs.n == 0 ||
                !memcmp(a->attr.exprs.v, b->attr.exprs.v, a->attr.exprs.n * sizeof(Expr)));
    if (a->op == OP_const && a->attr.constant.data != b->attr.constant.data)
        return a->attr.constant.bytes <= BUILD_MAX_FOLDED &&
               !memcmp(a->attr.constant.data, b->attr.constant.data, a->attr.constant.bytes);
    return true;
}

static bool same_node(const Graph *g, const Node *a, const Node *b, const Key *kb) {
    if (a->op != b->op || a->nin != b->nin || !type_equal(&a->type, &b->type)) return false;
    if (a->nin && memcmp(a->in, b->in, a->nin * sizeof(Value))) return false;
    Key ka = node_key(g, a);
    return ka.n == kb->n && (ka.n == 0 || !memcmp(ka.w, kb->w, ka.n * sizeof *ka.w)) &&
           same_bytes(a, b);
}

static uint64_t node_hash(const Node *n, const Key *k) {
    uint64_t h = hash_bytes(k->w, k->n * sizeof *k->w, n->op);
    h = hash_bytes(n->in, n->nin * sizeof(Value), h);
    h = hash_bytes(n->type.dim, n->type.rank * sizeof(Expr), h);
    return hash_bytes(&n->type.dtype, sizeof n->type.dtype, h);
}

/* Element counts stay far from the ends of 64-bit arithmetic, whatever a file says. */
static bool countable(Graph *g, const Type *t) {
    int64_t n = 1, d;
    for (int i = 0; i < t->rank; i++) {
        if (!expr_is_const(g->exprs, t->dim[i], &d) || d == 0) continue;
        if (d < 0) {
            build_error(g, D_SHAPE, "%s has a negative size", build_type_text(g, t));
            return false;
        }
        if (__builtin_mul_overflow(n, d, &n) || n > INT64_MAX >> 8) {
            build_error(g, D_LIMIT, "%s has too many elements", build_type_text(g, t));
            return false;
        }
    }
    return true;
}

Value build_append(Graph *g, Op op, const Value *in, uint32_t nin, const Attr *attr,
                   const Type *t) {
    BuildState *s = build_state(g);
    if (!countable(g, t)) return 0;
    Node n = {.op = (uint8_t)op, .nin = nin, .in = in, .type = *t, .loc = s->loc};
    if (attr) n.attr = *attr;
    Key k = node_key(g, &n);
    uint64_t h = node_hash(&n, &k);
    uint32_t at;
    for (; map_get(s->cse, h, &at); h++)
        if (same_node(g, graph_node(g, at), &n, &k)) return at;
    n.in = nin ? arena_copy(g->arena, in, nin * sizeof(Value)) : NULL;
    vec_push(g->arena, &g->nodes, n);
    map_put(s->cse, h, g->nodes.n - 1);
    return g->nodes.n - 1;
}

Value build_node(Graph *g, Op op, const Value *in, uint32_t nin, const Attr *attr, const Type *t) {
    Node n = {.op = (uint8_t)op, .nin = nin, .in = in, .type = *t, .loc = build_loc(g)};
    if (attr) n.attr = *attr;
    Value folded = fold_node(g, &n);
    return folded ? folded : build_append(g, op, in, nin, attr, t);
}

Value build_find_compact(const Graph *g, Value mask) {
    for (Value v = g->nodes.n; v-- > mask + 1;)
        if (graph_node(g, v)->op == OP_compact && graph_node(g, v)->in[0] == mask) return v;
    return 0;
}

Expr build_data_symbol(Graph *g, const char *what, Expr bound) {
    int64_t lo, hi = INT64_MAX;
    if (bound) expr_range(g->exprs, bound, &lo, &hi);
    SymInfo info = {.kind = SYM_DATA, .lo = 0, .hi = hi};
    info.name = arena_printf(g->arena, "%s_%u", what, expr_sym_count(g->exprs));
    return expr_sym_new(g->exprs, info);
}
