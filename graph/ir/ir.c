/* The op table, types, and where nodes come from. */
#include "graph/ir/ir.h"
#include "runtime/base/strbuf.h"
#include <string.h>

const OpInfo op_info[OP_COUNT] = {
    [OP_none] = {.name = "none", .domain = "", .flags = ""},
#define CORE_OP(name, cls, arity, dt, domain, flags, cost, attr)                                   \
    [OP_##name] = {#name, OPC_##cls, arity, #dt[0], domain, flags, cost},
#include "graph/ir/core_ops.def"
#undef CORE_OP
};

_Static_assert(OP_COUNT <= 255, "Node.op is a byte");

bool op_has_flag(Op op, char flag) {
    return strchr(op_info[op].flags, flag) != NULL;
}

Op op_join(Op op) {
    static const struct {
        uint8_t join, over, along;
    } fold[] = {
#define X(join, over, along) {OP_##join, OP_##over, OP_##along},
        GRAPH_FOLDS(X)
#undef X
    };
    for (size_t i = 0; op && i < sizeof fold / sizeof *fold; i++)
        if (fold[i].over == op || fold[i].along == op) return (Op)fold[i].join;
    return OP_none;
}

static void destroy_own(void *graph) {
    Graph *g = graph;
    arena_destroy(g->own);
    g->own = NULL;
}

void graph_own(Graph *g) {
    g->own = NULL; /* if memory runs out here */
    arena_at_destroy(g->arena, destroy_own, g);
    g->own = arena_create();
}

void graph_release(Graph *g) {
    if (g->own == g->arena) return;
    destroy_own(g);
    g->build = NULL;
    g->nodes.v = NULL, g->nodes.n = 0;
    g->locs.v = NULL, g->locs.n = 0;
}

Graph *graph_create(Arena *a, ExprPool *p, DiagSink *d, const char *name) {
    Graph *g = ARENA_NEW(a, Graph);
    g->arena = g->own = a;
    g->exprs = p;
    g->diags = d;
    g->name = arena_strdup(a, name ? name : "");
    vec_push(g->own, &g->nodes, (Node){0});
    vec_push(g->own, &g->locs, ((LocInfo){.node = -1, .op = "", .name = "", .output = ""}));
    return g;
}

Expr type_numel(ExprPool *p, const Type *t) {
    Expr n = expr_const(p, 1);
    for (int i = 0; i < t->rank; i++) n = expr_mul(p, n, t->dim[i]);
    return n;
}

double graph_numel(const Graph *g, const Type *t) {
    double n = 1;
    for (uint32_t i = 0; i < t->rank; i++) n *= (double)expr_hint(g->exprs, t->dim[i]);
    return n;
}

double graph_products(const Graph *g, const Node *n) {
    const Type *a = graph_type(g, n->in[0]), *b = graph_type(g, n->in[1]);
    double out = graph_numel(g, &n->type);
    if (n->op == OP_conv)
        return out * graph_numel(g, b) / (double)expr_hint(g->exprs, b->dim[b->rank - 1]);
    return out * (double)expr_hint(g->exprs, a->dim[a->rank - 1]);
}

bool type_equal(const Type *a, const Type *b) {
    return a->dtype == b->dtype && a->rank == b->rank &&
           !memcmp(a->dim, b->dim, a->rank * sizeof a->dim[0]);
}

bool state_takes(const StateInfo *s, const Type *t) {
    Type u = *t;
    if (s->grows && t->rank == s->type.rank) u.dim[s->grows - 1] = s->type.dim[s->grows - 1];
    return type_equal(&s->type, &u);
}

bool type_is_static(const ExprPool *p, const Type *t) {
    for (int i = 0; i < t->rank; i++)
        if (!expr_is_const(p, t->dim[i], NULL)) return false;
    return true;
}

void type_print(const ExprPool *p, const Type *t, StrBuf *out) {
    sb_printf(out, "%s[", dtype_name(t->dtype));
    for (int i = 0; i < t->rank; i++) {
        if (i) sb_put(out, ", ");
        expr_print(p, t->dim[i], out);
    }
    sb_put(out, "]");
}

const char *type_text(const ExprPool *p, const Type *t, Arena *a) {
    StrBuf s;
    sb_init(&s, a);
    type_print(p, t, &s);
    return sb_str(&s);
}

const char *const loc_part_text[PART_COUNT] = {
#define PART(name, text) text,
    LOC_PARTS(PART)
#undef PART
};

static void put_loc(const LocInfo *l, StrBuf *s) {
    sb_put(s, loc_part_text[l->part]);
    if (l->node >= 0) sb_printf(s, "node %d ", l->node);
    const char *name = *l->name ? l->name : l->output; /* names are optional, outputs are not */
    if (*name) sb_printf(s, "\"%s\" ", name);
    sb_put(s, l->op);
}

void graph_hint_outputs(const Graph *g, DiagSink *d) {
    StrBuf names;
    sb_init(&names, g->arena);
    for (uint32_t i = 0; i < g->outputs.n && i < 32; i++)
        sb_printf(&names, "%s\"%s\"", i ? ", " : "", g->outputs.v[i].name);
    diag_hint(d, "its outputs are %s", sb_str(&names));
}

const char *graph_place(const Graph *g, Loc l, Arena *a) {
    StrBuf s;
    sb_init(&s, a);
    for (uint32_t depth = 0; l && l < g->locs.n && depth < 32; depth++, l = g->locs.v[l].parent) {
        if (depth) sb_put(&s, " in ");
        put_loc(&g->locs.v[l], &s);
    }
    return sb_str(&s);
}

bool control_own_size(const ExprPool *p, const Control *c, uint32_t result, int axis,
                      uint32_t *sym) {
    Expr e = c->results[result].dim[axis];
    if (!c->body[1] || !expr_is_sym(p, e, sym)) return false;
    for (int b = 0; b < 2; b++)
        if (c->body[b]->outputs.v[result].type.dim[axis] == e) return false;
    return expr_sym_info(p, *sym)->kind == SYM_DATA;
}

bool graph_assumed_bounds(const Graph *g, uint32_t i, uint32_t *sym, int64_t *lo, int64_t *hi) {
    const ExprPool *p = g->exprs;
    const Expr cond = g->assume[i].b;
    int64_t n;
    *lo = INT64_MIN;
    *hi = INT64_MAX;
    if (!expr_is_value(p, g->assume[i].a, 1) || expr_op(p, cond) != EX_lt) return false;
    const Expr a = expr_arg(p, cond, 0), b = expr_arg(p, cond, 1);
    if (expr_is_sym(p, a, sym) && expr_is_const(p, b, &n))
        *hi = n - 1;
    else if (expr_is_const(p, a, &n) && expr_is_sym(p, b, sym))
        *lo = n + 1;
    else
        return false;
    return expr_sym_info(p, *sym)->kind == SYM_DIM;
}
