/* .gir text out (gir.h shows the form). */
#include "graph/ir/gir.h"
#include "runtime/base/map.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

const char *const gir_sym_kinds[SYM_INDIRECT + 1] = {"",     "elem", "data",
                                                     "iter", "axis", "indirect"};

enum { PRINTED_ELEMENTS = 64, TYPE_COLUMN = 34 };

static void print_graph(const Graph *g, int indent, StrBuf *out);

static void put_quoted(StrBuf *out, const char *s) {
    sb_put(out, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            sb_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            sb_printf(out, "\\x%02x", c);
        else
            sb_putn(out, s, 1);
    }
    sb_put(out, "\"");
}

static void put_type(const Graph *g, const Node *n, StrBuf *out) {
    if (op_info[n->op].cls == OPC_CONTROL && n->op != OP_proj)
        sb_put(out, "tuple");
    else
        type_print(g->exprs, &n->type, out);
}

/* Constants. Floats print with the digits that read back exactly. */

static void put_element(DType t, const void *data, size_t i, StrBuf *out) {
    if (!dtype_is_float(t))
        sb_printf(out, "%" PRId64, dtype_load_i64(t, data, i));
    else
        sb_printf(out, "%.*g", t == DT_f64 ? 17 : 9, dtype_load_f64(t, data, i));
}

static bool all_equal(const Constant *c, size_t size) {
    const char *p = c->data;
    return c->bytes > size && !memcmp(p, p + size, c->bytes - size);
}

static void put_constant(DType t, const Constant *c, StrBuf *out) {
    size_t size = dtype_bytes(t), count = c->bytes / size;
    if (all_equal(c, size)) {
        sb_put(out, " {");
        put_element(t, c->data, 0, out);
        sb_put(out, "...}");
    } else if (count <= PRINTED_ELEMENTS) {
        sb_put(out, " {");
        for (size_t i = 0; i < count; i++) {
            if (i) sb_put(out, ", ");
            put_element(t, c->data, i, out);
        }
        sb_put(out, "}");
    } else {
        sb_printf(out, " 0x%016" PRIx64, hash_bytes(c->data, c->bytes, 0));
    }
    if (c->name && *c->name) {
        sb_put(out, " ");
        put_quoted(out, c->name);
    }
    if (c->file) sb_printf(out, " file=%u offset=%" PRIu64, c->file, c->offset);
}

static void put_state(const Graph *g, const Node *n, StrBuf *out) {
    const StateInfo *s = &g->states.v[n->attr.input.index];
    sb_printf(out, " %u ", n->attr.input.index);
    put_quoted(out, s->name);
    if (s->grows) {
        sb_printf(out, " grows=%u room=", s->grows - 1);
        expr_print(g->exprs, s->room, out);
    }
    if (s->initial.bytes) put_constant(n->type.dtype, &s->initial, out);
}

static void put_exprs(const Graph *g, const Expr *v, uint32_t n, StrBuf *out) {
    sb_put(out, " {");
    for (uint32_t i = 0; i < n; i++) {
        if (i) sb_put(out, ", ");
        expr_print(g->exprs, v[i], out);
    }
    sb_put(out, "}");
}

/* Attributes. */

static bool is_absent(const Node *n, const AttrField *f, uint32_t count) {
    if (f->kind == AK_EXPRS || f->absent == ATTR_REQUIRED) return false;
    for (uint32_t i = 0; i < count; i++)
        if (attr_get(&n->attr, f, i) != f->absent) return false;
    return true;
}

static void put_list(const Graph *g, const Node *n, const AttrField *f, uint32_t count,
                     StrBuf *out) {
    sb_put(out, "[");
    for (uint32_t i = 0; i < count; i++) {
        int64_t v = attr_get(&n->attr, f, i);
        if (i) sb_put(out, ", ");
        if (f->kind == AK_EXPRS)
            expr_print(g->exprs, (Expr)v, out);
        else
            sb_printf(out, "%" PRId64, v);
    }
    sb_put(out, "]");
}

static void put_mask(uint32_t mask, int n, StrBuf *out) {
    const char *comma = "";
    sb_put(out, "[");
    for (int i = 0; i < n; i++) {
        if (!(mask >> i & 1)) continue;
        sb_printf(out, "%s%d", comma, i);
        comma = ", ";
    }
    sb_put(out, "]");
}

static void put_named(const Graph *g, const Node *n, const AttrField *f, StrBuf *out) {
    uint32_t count = attr_count(g, n, f);
    if (is_absent(n, f, count)) return;
    sb_printf(out, " %s", f->name);
    if (f->kind == AK_FLAG) return;
    sb_put(out, "=");
    if (f->kind == AK_NUMBER)
        sb_printf(out, "%" PRId64, attr_get(&n->attr, f, 0));
    else if (f->kind == AK_MODE)
        sb_put(out, scatter_mode_name[attr_get(&n->attr, f, 0)]);
    else if (f->kind == AK_AXES)
        put_mask((uint32_t)attr_get(&n->attr, f, 0), GRAPH_MAX_RANK, out);
    else
        put_list(g, n, f, count, out);
}

/* Results' types of a control node, as `results(f32[n], i64[])`, and its counters. */
static void put_control(const Graph *g, const Node *n, int indent, StrBuf *out) {
    const Control *c = n->attr.control;
    sb_put(out, " results(");
    for (uint32_t i = 0; i < c->nresults; i++) {
        Node result = {.op = OP_proj, .type = c->results[i]};
        if (i) sb_put(out, ", ");
        put_type(g, &result, out);
    }
    sb_put(out, ")");
    if (n->op == OP_loop) {
        sb_printf(out, " carried=%u iter=", c->ncarried);
        expr_print(g->exprs, expr_sym_ref(g->exprs, c->iter), out);
        if (c->trip) {
            sb_put(out, " trip=");
            expr_print(g->exprs, c->trip, out);
        } else if (c->most) {
            sb_put(out, " most=");
            expr_print(g->exprs, c->most, out);
        }
    }
    for (int b = 0; b < 2 && c->body[b]; b++) {
        sb_put(out, " {\n");
        print_graph(c->body[b], indent + 4, out);
        sb_printf(out, "%*s}", indent, "");
    }
}

static void put_attributes(const Graph *g, const Node *n, int indent, StrBuf *out) {
    uint32_t count;
    const AttrField *f = attr_fields((Op)n->op, &count);
    for (const AttrField *end = f + count; f < end; f++) {
        switch ((AttrKind)f->kind) {
        case AK_TYPE: break;
        case AK_INPUT:
            sb_printf(out, " %u ", n->attr.input.index);
            put_quoted(out, g->inputs.v[n->attr.input.index].name);
            break;
        case AK_CONSTANT: put_constant(n->type.dtype, &n->attr.constant, out); break;
        case AK_STATE: put_state(g, n, out); break;
        case AK_ELEMENTS: put_exprs(g, n->attr.exprs.v, n->attr.exprs.n, out); break;
        case AK_CONTROL: put_control(g, n, indent, out); break;
        default: put_named(g, n, f, out);
        }
    }
}

static void put_place(const Graph *g, const Node *n, StrBuf *out) {
    if (!n->loc || n->loc >= g->locs.n) return;
    const LocInfo *l = &g->locs.v[n->loc];
    const char *name = *l->name ? l->name : l->output;
    sb_printf(out, "  # %s", loc_part_text[l->part]);
    if (l->node >= 0) sb_printf(out, "node %d ", l->node);
    sb_printf(out, "%s ", l->op);
    put_quoted(out, name);
}

static void pad_to(StrBuf *out, size_t start, size_t column) {
    while (out->n < start + column) sb_put(out, " ");
    sb_put(out, "  ");
}

static void put_node(const Graph *g, Value v, int indent, StrBuf *out) {
    const Node *n = graph_node(g, v);
    sb_printf(out, "%*s%%%-4u ", indent, "", v);
    size_t start = out->n;
    put_type(g, n, out);
    pad_to(out, start, TYPE_COLUMN);
    sb_put(out, op_info[n->op].name);
    for (uint32_t i = 0; i < n->nin; i++) sb_printf(out, "%s%%%u", i ? ", " : " ", n->in[i]);
    put_attributes(g, n, indent, out);
    if (n->late) sb_put(out, " late");
    put_place(g, n, out);
    sb_put(out, "\n");
}

/* The symbols that a graph's text mentions, bodies included. */

static void mark(void *ctx, uint32_t sym) {
    ((bool *)ctx)[sym] = true;
}

static void mark_expr(const Graph *g, Expr e, bool *used) {
    if (e) expr_each_sym(g->exprs, e, mark, used);
}

static void mark_type(const Graph *g, const Type *t, bool *used) {
    for (int i = 0; i < t->rank; i++) mark_expr(g, t->dim[i], used);
}

static void mark_graph(const Graph *g, bool *used);

static void mark_control(const Graph *g, const Node *n, bool *used) {
    const Control *c = n->attr.control;
    for (uint32_t i = 0; i < c->nresults; i++) mark_type(g, &c->results[i], used);
    for (int b = 0; b < 2 && c->body[b]; b++) mark_graph(c->body[b], used);
    if (n->op == OP_loop) used[c->iter] = true;
}

typedef struct Marks {
    const Graph *g;
    bool *used;
} Marks;

static void mark_attr(void *ctx, Expr e) {
    const Marks *m = ctx;
    mark_expr(m->g, e, m->used);
}

static void mark_node(const Graph *g, const Node *n, bool *used) {
    Marks m = {g, used};
    mark_type(g, &n->type, used);
    attr_each_expr(g, n, mark_attr, &m);
    if (n->op == OP_if || n->op == OP_loop) mark_control(g, n, used);
}

static void mark_graph(const Graph *g, bool *used) {
    for (Value v = 1; v < g->nodes.n; v++) mark_node(g, graph_node(g, v), used);
    for (uint32_t i = 0; i < g->nassume; i++) {
        mark_expr(g, g->assume[i].a, used);
        mark_expr(g, g->assume[i].b, used);
    }
}

static void put_symbol(const Graph *g, uint32_t s, StrBuf *out) {
    const SymInfo *y = expr_sym_info(g->exprs, s);
    expr_print(g->exprs, expr_sym_ref(g->exprs, s), out);
    if (y->kind) sb_printf(out, " %s", gir_sym_kinds[y->kind]);
    if (y->kind == SYM_ELEM) sb_printf(out, " %u.%u", y->a, y->b);
    sb_put(out, " in ");
    if (y->lo != INT64_MIN) sb_printf(out, "%" PRId64, y->lo);
    sb_put(out, "..");
    if (y->hi != INT64_MAX) sb_printf(out, "%" PRId64, y->hi);
    if (y->hint) sb_printf(out, " hint %" PRId64, y->hint);
}

static void put_symbols(const Graph *g, StrBuf *out) {
    uint32_t n = expr_sym_count(g->exprs);
    bool *used = ARENA_ARRAY(out->arena, bool, n);
    const char *before = "  symbols ";
    mark_graph(g, used);
    for (uint32_t s = 0; s < n; s++) {
        if (!used[s]) continue;
        sb_put(out, before);
        before = ", ";
        put_symbol(g, s, out);
    }
}

static void put_entries(uint32_t entries, StrBuf *out) {
    if (!entries) return;
    sb_put(out, " entries=");
    put_mask(entries, 32, out);
}

static void print_graph(const Graph *g, int indent, StrBuf *out) {
    for (uint32_t i = 0; i < g->files.n; i++) {
        sb_printf(out, "%*sfile ", indent, "");
        put_quoted(out, g->files.v[i]);
        sb_put(out, "\n");
    }
    for (Value v = 1; v < g->nodes.n; v++) put_node(g, v, indent, out);
    for (uint32_t i = 0; i < g->nassume; i++) {
        sb_printf(out, "%*sassume ", indent, "");
        expr_print(g->exprs, g->assume[i].a, out);
        sb_put(out, " = ");
        expr_print(g->exprs, g->assume[i].b, out);
        sb_put(out, "\n");
    }
    for (uint32_t i = 0; i < g->entries.n; i++) {
        sb_printf(out, "%*sentry ", indent, "");
        put_quoted(out, g->entries.v[i]);
        sb_put(out, "\n");
    }
    for (uint32_t i = 0; i < g->outputs.n; i++) {
        sb_printf(out, "%*soutput ", indent, "");
        put_quoted(out, g->outputs.v[i].name);
        sb_printf(out, " %%%u", g->outputs.v[i].value);
        put_entries(g->outputs.v[i].entries, out);
        sb_put(out, "\n");
    }
    for (uint32_t i = 0; i < g->writes.n; i++) {
        sb_printf(out, "%*swrite ", indent, "");
        put_quoted(out, g->states.v[g->writes.v[i].state].name);
        sb_printf(out, " %%%u", g->writes.v[i].value);
        put_entries(g->writes.v[i].entries, out);
        sb_put(out, "\n");
    }
}

void graph_print(const Graph *g, StrBuf *out) {
    sb_put(out, "graph ");
    put_quoted(out, g->name);
    put_symbols(g, out);
    sb_put(out, "\n");
    print_graph(g, 2, out);
}
