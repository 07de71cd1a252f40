/* What attr.def says, as tables and the questions that are answered from them. */
#include "graph/ir/attr.h"
#include "runtime/base/map.h"
#include <stddef.h>
#include <string.h>

enum { COMPARED_BYTES = 4096 };

const char *const scatter_mode_name[SCATTER_max + 1] = {"set", "add", "mul", "min", "max"};

static const AttrField fields[] = {
#define REQUIRED ATTR_REQUIRED
#define ATTR(list, name, kind, count, member, absent)                                              \
    {AT_##list,  name,                                                                             \
     AK_##kind,  (uint8_t)sizeof(((Attr *)0)->member),                                             \
     AN_##count, offsetof(Attr, member),                                                           \
     absent},
#include "graph/ir/attr.def"
#undef ATTR
#undef REQUIRED
};
enum { NFIELDS = sizeof fields / sizeof *fields };

const AttrField *attr_fields(Op op, uint32_t *n) {
    static const uint8_t list[OP_COUNT] = {
#define CORE_OP(name, cls, arity, dt, domain, flags, cost, attr) [OP_##name] = AT_##attr,
#include "graph/ir/core_ops.def"
#undef CORE_OP
    };
    uint32_t first = 0, end;
    *n = 0;
    if (list[op] == AT_none) return fields;
    while (first < NFIELDS && fields[first].list != list[op]) first++;
    for (end = first; end < NFIELDS && fields[end].list == list[op];) end++;
    *n = end - first;
    return fields + first;
}

uint32_t attr_count(const Graph *g, const Node *n, const AttrField *f) {
    switch ((AttrCount)f->count) {
    case AN_RANK: return n->type.rank;
    case AN_IN0: return n->nin ? graph_type(g, n->in[0])->rank : 0;
    case AN_WINDOW: return n->attr.window.n;
    case AN_CONV: return n->attr.conv.n;
    case AN_ONE: break;
    }
    return 1;
}

static const char *first_item(const Attr *a, const AttrField *f) {
    return (const char *)a + f->offset;
}

/* Little-endian hosts; lists of bytes are perm (unsigned) and src (signed), both below 128. */
int64_t attr_get(const Attr *a, const AttrField *f, uint32_t i) {
    int64_t v = 0;
    memcpy(&v, first_item(a, f) + (size_t)i * f->size, f->size);
    unsigned drop = 64U - 8U * f->size;
    return (int64_t)((uint64_t)v << drop) >> drop;
}

void attr_set(Attr *a, const AttrField *f, uint32_t i, int64_t v) {
    memcpy((char *)a + f->offset + (size_t)i * f->size, &v, f->size);
}

static bool same_constant(const Constant *a, const Constant *b) {
    if (a->bytes != b->bytes) return false;
    return a->data == b->data ||
           (a->bytes <= COMPARED_BYTES && !memcmp(a->data, b->data, a->bytes));
}

static uint64_t hash_constant(const Constant *c, uint64_t h) {
    uint64_t address = (uintptr_t)c->data;
    return c->bytes <= COMPARED_BYTES ? hash_bytes(c->data, c->bytes, h)
                                      : hash_bytes(&address, sizeof address, h);
}

bool attr_equal(const Graph *g, const Node *x, const Node *y) {
    uint32_t n;
    const AttrField *f = attr_fields((Op)x->op, &n);
    const Attr *a = &x->attr, *b = &y->attr;
    for (const AttrField *end = f + n; f < end; f++) {
        uint32_t count = attr_count(g, x, f);
        if (f->kind == AK_CONSTANT) {
            if (!same_constant(&a->constant, &b->constant)) return false;
        } else if (f->kind == AK_ELEMENTS) {
            uint32_t m = a->exprs.n;
            if (m != b->exprs.n) return false;
            if (m && memcmp(a->exprs.v, b->exprs.v, m * sizeof(Expr))) return false;
        } else if (count != attr_count(g, y, f) ||
                   memcmp(first_item(a, f), first_item(b, f), (size_t)count * f->size)) {
            return false;
        }
    }
    return true;
}

uint64_t attr_hash(const Graph *g, const Node *x, uint64_t h) {
    uint32_t n;
    const AttrField *f = attr_fields((Op)x->op, &n);
    const Attr *a = &x->attr;
    for (const AttrField *end = f + n; f < end; f++) {
        if (f->kind == AK_CONSTANT)
            h = hash_constant(&a->constant, h);
        else if (f->kind == AK_ELEMENTS)
            h = hash_bytes(a->exprs.v, a->exprs.n * sizeof(Expr), h);
        else
            h = hash_bytes(first_item(a, f), (size_t)attr_count(g, x, f) * f->size, h);
    }
    return h;
}

void attr_each_expr(const Graph *g, const Node *x, void (*fn)(void *ctx, Expr e), void *ctx) {
    uint32_t n;
    const AttrField *f = attr_fields((Op)x->op, &n);
    const Attr *a = &x->attr;
    for (const AttrField *end = f + n; f < end; f++) {
        if (f->kind == AK_EXPRS)
            for (uint32_t i = 0; i < attr_count(g, x, f); i++) fn(ctx, (Expr)attr_get(a, f, i));
        if (f->kind == AK_ELEMENTS)
            for (uint32_t i = 0; i < a->exprs.n; i++) fn(ctx, a->exprs.v[i]);
        if (f->kind == AK_CONTROL && a->control->trip) fn(ctx, a->control->trip);
        if (f->kind == AK_CONTROL && a->control->most) fn(ctx, a->control->most);
    }
}

typedef struct Static {
    const ExprPool *p;
    bool is;
} Static;

static void check_static(void *ctx, Expr e) {
    Static *s = ctx;
    if (!expr_is_const(s->p, e, NULL)) s->is = false;
}

bool attr_is_static(const Graph *g, const Node *n) {
    Static s = {g->exprs, true};
    attr_each_expr(g, n, check_static, &s);
    return s.is;
}
