/* Builder core: state, locations, errors, sharing of equal nodes, append. */
#include "graph/build/build_impl.h"
#include "graph/ir/attr.h"

#include <string.h>

BuildState *builder_of(Graph *g) {
    if (!g->build) {
        g->build = ARENA_NEW(g->own, BuildState);
        g->build->cse = map_create(g->own);
        g->build->equal = map_create(g->own);
        g->build->assumed = map_create(g->own);
        g->build->parts = map_create(g->own);
        g->build->places = map_create(g->own);
    }
    return g->build;
}

void build_at(Graph *g, Loc loc) {
    builder_of(g)->loc = loc;
}

Loc build_loc(const Graph *g) {
    return g->build ? g->build->loc : 0;
}

void build_late(Graph *g, bool late) {
    builder_of(g)->late = late;
}

static uint64_t place_hash(const LocInfo *l) {
    uint64_t h = hash_bytes(l->op, strlen(l->op), l->parent);
    h = hash_bytes(l->name, strlen(l->name), h);
    h = hash_bytes(l->output, strlen(l->output), h);
    return h + (uint64_t)(uint32_t)l->node * PART_COUNT + l->part;
}

static const char *module_of(const LocInfo *l) {
    return l->module ? l->module : "";
}

static bool same_place(const LocInfo *a, const LocInfo *b) {
    return a->node == b->node && a->part == b->part && a->parent == b->parent && !a->nalso &&
           !strcmp(a->op, b->op) && !strcmp(a->name, b->name) && !strcmp(a->output, b->output) &&
           !strcmp(module_of(a), module_of(b));
}

/* A node of a body that is unrolled, once for each iteration, stays one place. */
Loc build_loc_new(Graph *g, LocInfo info) {
    MapU64 *places = builder_of(g)->places;
    const uint64_t key = info.nalso ? 0 : place_hash(&info);
    uint32_t found;
    if (key && map_get(places, key, &found) && same_place(&g->locs.v[found], &info)) return found;
    vec_push(g->own, &g->locs, info);
    if (key) map_put(places, key, g->locs.n - 1);
    return g->locs.n - 1;
}

Loc build_loc_part(Graph *g, Loc l, LocPart part) {
    MapU64 *parts = builder_of(g)->parts;
    const uint64_t key = (uint64_t)l * PART_COUNT + part;
    uint32_t found;
    if (!l || g->locs.v[l].part == part) return l;
    if (map_get(parts, key, &found)) return found;
    LocInfo info = g->locs.v[l];
    info.part = (uint8_t)part;
    Loc *also = ARENA_ARRAY(g->arena, Loc, info.nalso);
    for (uint32_t i = 0; i < info.nalso; i++) also[i] = build_loc_part(g, info.also[i], part);
    info.also = also;
    found = build_loc_new(g, info);
    map_put(parts, key, found);
    return found;
}

static uint32_t add_loc(Loc *to, uint32_t n, Loc l) {
    for (uint32_t i = 0; i < n; i++)
        if (to[i] == l) return n;
    if (l) to[n++] = l;
    return n;
}

Loc build_loc_join(Graph *g, const Loc *locs, uint32_t n) {
    uint32_t most = n, count = 0;
    for (uint32_t i = 0; i < n; i++) most += g->locs.v[locs[i]].nalso;
    Loc *all = ARENA_ARRAY(g->arena, Loc, most);
    for (uint32_t i = 0; i < n; i++) {
        const LocInfo *l = &g->locs.v[locs[i]];
        for (uint32_t k = 0; k < l->nalso; k++) count = add_loc(all, count, l->also[k]);
        if (!l->nalso) count = add_loc(all, count, locs[i]);
    }
    if (count < 2) return count ? all[0] : 0;
    LocInfo info = g->locs.v[all[0]];
    info.nalso = count;
    info.also = all;
    return build_loc_new(g, info);
}

Loc build_loc_from(Graph *g, const Graph *from, Loc l, Loc outermost) {
    if (!l || l >= from->locs.n) return outermost;
    LocInfo info = from->locs.v[l];
    info.parent = build_loc_from(g, from, info.parent, outermost);
    Loc *also = ARENA_ARRAY(g->arena, Loc, info.nalso);
    for (uint32_t i = 0; i < info.nalso; i++)
        also[i] = build_loc_from(g, from, info.also[i], outermost);
    info.also = also;
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

static bool same_node(const Graph *g, const Node *a, const Node *b) {
    if (a->op != b->op || a->late != b->late || a->nin != b->nin) return false;
    if (!type_equal(&a->type, &b->type)) return false;
    if (a->nin && memcmp(a->in, b->in, a->nin * sizeof(Value))) return false;
    return attr_equal(g, a, b);
}

static uint64_t node_hash(const Graph *g, const Node *n) {
    uint64_t h = attr_hash(g, n, n->op);
    h = hash_bytes(n->in, n->nin * sizeof(Value), h);
    h = hash_bytes(n->type.dim, n->type.rank * sizeof(Expr), h);
    return hash_bytes(&n->type.dtype, sizeof n->type.dtype, h);
}

/* Element counts stay far from the ends of 64-bit arithmetic, whatever a file says. */
static bool countable(Graph *g, const Type *t) {
    int64_t n = 1, d;
    for (int i = 0; i < t->rank; i++) {
        if (expr_size(g->exprs, t->dim[i]) > EXPR_MAX_SIZE) {
            build_error(g, D_LIMIT, "size %d is a formula with more than %d parts", i,
                        EXPR_MAX_SIZE);
            return false;
        }
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
    BuildState *s = builder_of(g);
    if (!countable(g, t)) return 0;
    Node n = {.op = (uint8_t)op, .nin = nin, .in = in, .type = *t, .loc = s->loc};
    n.late = s->late && op_info[op].cls != OPC_SOURCE;
    if (attr) n.attr = *attr;
    uint64_t h = node_hash(g, &n);
    uint32_t at;
    for (; map_get(s->cse, h, &at); h++)
        if (same_node(g, graph_node(g, at), &n)) return at;
    n.in = nin ? arena_copy(g->own, in, nin * sizeof(Value)) : NULL;
    vec_push(g->own, &g->nodes, n);
    map_put(s->cse, h, g->nodes.n - 1);
    return g->nodes.n - 1;
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
