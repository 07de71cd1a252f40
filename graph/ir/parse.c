/* .gir text in (gir.h shows the form). Nodes are taken as written, without folding, so that a
 * test's input is what it says; the verifier then checks them. Comments run from # to the end of a
 * line. */
#include "graph/ir/gir.h"
#include "runtime/base/map.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct Reader {
    Arena *arena;
    ExprPool *exprs;
    DiagSink *diags;
    const char *text, *at;
    bool failed;
    int depth; /* of nested bodies */
} Reader;

enum { MAX_BODIES = 16, MAX_NAME = 4096 };

static bool fail(Reader *r, const char *what) {
    if (r->failed) return false;
    r->failed = true;
    int line = 1;
    for (const char *c = r->text; c < r->at; c++) line += *c == '\n';
    int n = (int)strcspn(r->at, "\n");
    (void)diag(r->diags, D_TEXT, "", "line %d: %s at \"%.*s\"", line, what, n > 40 ? 40 : n, r->at);
    return false;
}

/* Tokens. */

static void skip_blank(Reader *r) {
    while (*r->at == ' ' || *r->at == '\t') r->at++;
    if (*r->at == '#') r->at += strcspn(r->at, "\n");
}

static void skip_lines(Reader *r) {
    for (skip_blank(r); *r->at == '\n' || *r->at == '\r'; skip_blank(r)) r->at++;
}

static bool at_end(Reader *r) {
    skip_blank(r);
    return !*r->at || *r->at == '\n' || *r->at == '\r';
}

static bool eat(Reader *r, const char *token) {
    skip_blank(r);
    size_t n = strlen(token);
    if (strncmp(r->at, token, n)) return false;
    if (isalpha((unsigned char)*token) && isalnum((unsigned char)token[n - 1]) &&
        isalnum((unsigned char)r->at[n]))
        return false; /* a longer word */
    r->at += n;
    return true;
}

static bool expect(Reader *r, const char *token) {
    return eat(r, token) || fail(r, arena_printf(r->arena, "\"%s\" expected", token));
}

static bool read_word(Reader *r, char word[64]) {
    skip_blank(r);
    size_t n = 0;
    while (n < 63 && (isalnum((unsigned char)r->at[n]) || r->at[n] == '_')) n++;
    memcpy(word, r->at, n);
    word[n] = 0;
    r->at += n;
    return n > 0;
}

static bool read_int(Reader *r, int64_t *v) {
    skip_blank(r);
    char *end;
    const char *start = r->at;
    if (!isdigit((unsigned char)*start) && !(*start == '-' && isdigit((unsigned char)start[1])))
        return fail(r, "number expected");
    *v = strtoll(start, &end, 10);
    r->at = end;
    return true;
}

static int hex_digit(char c) {
    return isdigit((unsigned char)c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static const char *read_quoted(Reader *r) {
    char name[MAX_NAME];
    size_t n = 0;
    if (!expect(r, "\"")) return NULL;
    for (; *r->at && *r->at != '"' && n + 1 < sizeof name; r->at++) {
        if (*r->at == '\\' && r->at[1] == 'x' && hex_digit(r->at[2]) >= 0 &&
            hex_digit(r->at[3]) >= 0) {
            name[n++] = (char)(hex_digit(r->at[2]) * 16 + hex_digit(r->at[3]));
            r->at += 3;
            continue;
        }
        if (*r->at == '\\' && r->at[1]) r->at++;
        name[n++] = *r->at;
    }
    if (*r->at != '"') {
        fail(r, "unfinished name");
        return NULL;
    }
    r->at++;
    return arena_strndup(r->arena, name, n);
}

static bool read_expr(Reader *r, Expr *e) {
    const char *end;
    skip_blank(r);
    *e = expr_parse(r->exprs, r->at, &end);
    if (!*e) {
        r->at = end;
        return fail(r, "expression expected");
    }
    r->at = end;
    return true;
}

static bool read_type(Reader *r, Type *t) {
    char word[64];
    *t = (Type){0};
    if (!read_word(r, word) || !dtype_from_name(word, &t->dtype)) return fail(r, "type expected");
    if (!expect(r, "[")) return false;
    if (eat(r, "]")) return true;
    do {
        if (t->rank == GRAPH_MAX_RANK) return fail(r, "too many axes");
        if (!read_expr(r, &t->dim[t->rank++])) return false;
    } while (eat(r, ","));
    return expect(r, "]");
}

/* Symbols: `batch in 1..256, n data in 0.. hint 8, x elem 1.0 in ..`. */

static bool read_kind(Reader *r, SymInfo *s) {
    int64_t a, b;
    for (int k = 1; k <= SYM_INDIRECT; k++)
        if (eat(r, gir_sym_kinds[k])) s->kind = (SymKind)k;
    if (s->kind != SYM_ELEM) return true;
    if (!read_int(r, &a) || !expect(r, ".") || !read_int(r, &b)) return false;
    s->a = (uint32_t)a;
    s->b = (uint32_t)b;
    return true;
}

static bool read_symbol(Reader *r) {
    char word[64];
    SymInfo s = {.lo = INT64_MIN, .hi = INT64_MAX};
    skip_blank(r);
    if (*r->at == '"')
        s.name = read_quoted(r);
    else
        s.name = read_word(r, word) ? word : NULL;
    if (!s.name) return fail(r, "symbol expected");
    if (!read_kind(r, &s) || !expect(r, "in")) return false;
    skip_blank(r);
    if (*r->at != '.' && !read_int(r, &s.lo)) return false;
    if (!expect(r, "..")) return false;
    if ((isdigit((unsigned char)*r->at) || *r->at == '-') && !read_int(r, &s.hi)) return false;
    if (s.lo > s.hi) return fail(r, "no number lies between these");
    if (eat(r, "hint") && !read_int(r, &s.hint)) return false;
    expr_sym_new(r->exprs, s);
    return true;
}

static bool read_symbols(Reader *r) {
    do {
        if (!read_symbol(r)) return false;
    } while (eat(r, ","));
    return true;
}

/* A dimension symbol belongs to the first input axis that it is the size of. */
static void bind_dims(const Graph *g) {
    for (uint32_t i = g->states.n; i-- > 0;) {
        const StateInfo *s = &g->states.v[i];
        uint32_t sym;
        if (!s->grows || !expr_is_sym(g->exprs, s->type.dim[s->grows - 1], &sym)) continue;
        expr_sym_edit(g->exprs, sym)->a = SYM_OF_STATE + i;
        expr_sym_edit(g->exprs, sym)->b = s->grows - 1;
    }
    for (uint32_t i = g->inputs.n; i-- > 0;) {
        const Type *t = &g->inputs.v[i].type;
        for (uint32_t a = t->rank; a-- > 0;) {
            uint32_t s;
            if (!expr_is_sym(g->exprs, t->dim[a], &s)) continue;
            SymInfo *info = expr_sym_edit(g->exprs, s);
            if (info->kind != SYM_DIM) continue;
            info->a = i;
            info->b = a;
        }
    }
}

/* Constants: `{1, 2, 3}`, `{0.5...}` for all elements alike, or a hash, for which the elements are
 * drawn from the hash as seed: the text does not hold them. */

static bool read_element(Reader *r, DType t, void *data, size_t i) {
    char *end;
    skip_blank(r);
    if (dtype_is_float(t))
        dtype_store_f64(t, data, i, strtod(r->at, &end));
    else
        dtype_store_i64(t, data, i,
                        (int64_t)(*r->at == '-' ? (uint64_t)strtoll(r->at, &end, 10)
                                                : strtoull(r->at, &end, 10)));
    if (end == r->at) return fail(r, "element expected");
    r->at = end;
    /* strtod takes the first dot of `1...` for a decimal point. */
    if (r->at[0] == '.' && r->at[1] == '.' && r->at[2] != '.') r->at--;
    return true;
}

static bool read_elements(Reader *r, DType t, void *data, size_t count) {
    size_t n = 0, size = dtype_bytes(t);
    if (eat(r, "}")) return count == 0 || fail(r, "too few elements");
    do {
        if (n == count) return fail(r, "too many elements");
        if (!read_element(r, t, data, n++)) return false;
        if (eat(r, "...")) {
            for (; n < count; n++) memcpy((char *)data + n * size, data, size);
            break;
        }
    } while (eat(r, ","));
    return (n == count || fail(r, "too few elements")) && expect(r, "}");
}

static void draw_elements(uint64_t seed, DType t, void *data, size_t count) {
    uint64_t drawn[256]; /* elements are one of 256 */
    const size_t size = dtype_bytes(t);
    for (int k = 0; k < 256; k++)
        dtype_store_f64(t, &drawn[k], 0,
                        dtype_is_float(t) ? (double)(k - 128) / 1024.0 : (double)(k & 1));
    for (size_t i = 0; i < count; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy((char *)data + i * size, &drawn[seed >> 56], size);
    }
}

static bool static_count(Reader *r, const Type *t, uint64_t *count) {
    uint64_t n = 1;
    for (int i = 0; i < t->rank; i++) {
        int64_t d;
        if (!expr_is_const(r->exprs, t->dim[i], &d) || d < 0 ||
            __builtin_mul_overflow(n, (uint64_t)d, &n) || n > UINT64_C(1) << 28)
            return fail(r, "a constant needs a fixed, moderate size");
    }
    *count = n;
    return true;
}

static bool read_constant(Reader *r, const Type *type, Constant *c) {
    uint64_t count;
    int64_t file = 0, offset = 0;
    DType t = type->dtype;
    if (t == DT_none) return fail(r, "a constant is no tuple");
    if (!static_count(r, type, &count)) return false;
    void *data = arena_array(r->arena, count, dtype_bytes(t));
    if (eat(r, "0x")) {
        char *end;
        draw_elements(strtoull(r->at, &end, 16), t, data, count);
        r->at = end;
    } else if (!expect(r, "{") || !read_elements(r, t, data, count)) {
        return false;
    }
    *c = (Constant){.data = data, .bytes = count * dtype_bytes(t), .name = ""};
    skip_blank(r);
    if (*r->at == '"' && !(c->name = read_quoted(r))) return false;
    if (eat(r, "file=") && !read_int(r, &file)) return false;
    if (eat(r, "offset=") && !read_int(r, &offset)) return false;
    c->file = (uint32_t)file;
    c->offset = (uint64_t)offset;
    return true;
}

/* Attributes. */

static bool read_mode(Reader *r, Node *n, const AttrField *f) {
    for (int m = 0; m <= SCATTER_max; m++) {
        if (!eat(r, scatter_mode_name[m])) continue;
        attr_set(&n->attr, f, 0, m);
        return true;
    }
    return fail(r, "scatter mode expected");
}

static bool read_item(Reader *r, const AttrField *f, int64_t *v) {
    Expr e;
    if (f->kind != AK_EXPRS) return read_int(r, v);
    if (!read_expr(r, &e)) return false;
    *v = e;
    return true;
}

static uint32_t capacity(const AttrField *f) {
    return f->count == AN_WINDOW || f->count == AN_CONV ? GRAPH_MAX_WINDOW : GRAPH_MAX_RANK;
}

static bool read_list(Reader *r, const Graph *g, Node *n, const AttrField *f) {
    uint32_t count = 0, mask = 0;
    if (!expect(r, "[")) return false;
    if (!eat(r, "]")) {
        do {
            int64_t v;
            if (count == capacity(f)) return fail(r, "too many numbers");
            if (!read_item(r, f, &v)) return false;
            mask |= 1u << (v & 31);
            if (f->kind != AK_AXES) attr_set(&n->attr, f, count, v);
            count++;
        } while (eat(r, ","));
        if (!expect(r, "]")) return false;
    }
    if (f->kind == AK_AXES) {
        n->attr.reduce.axes = mask;
        return true;
    }
    if (f->count == AN_WINDOW && !n->attr.window.n) n->attr.window.n = (uint8_t)count;
    if (f->count == AN_CONV && !n->attr.conv.n) n->attr.conv.n = (uint8_t)count;
    return count == attr_count(g, n, f) || fail(r, "wrong number of items");
}

static bool read_field(Reader *r, const Graph *g, Node *n, const AttrField *f) {
    int64_t v;
    if (f->kind == AK_FLAG) {
        attr_set(&n->attr, f, 0, 1);
        return true;
    }
    if (!expect(r, "=")) return false;
    if (f->kind == AK_MODE) return read_mode(r, n, f);
    if (f->kind != AK_NUMBER) return read_list(r, g, n, f);
    if (!read_int(r, &v)) return false;
    attr_set(&n->attr, f, 0, v);
    return true;
}

static bool fill_absent(Reader *r, const Graph *g, Node *n, const AttrField *f) {
    uint32_t count = attr_count(g, n, f);
    if (f->absent == ATTR_REQUIRED && count)
        return fail(r, arena_printf(r->arena, "attribute %s is missing", f->name));
    for (uint32_t i = 0; i < count; i++) attr_set(&n->attr, f, i, f->absent);
    return true;
}

/* Those with a name, in any order. */
static bool read_named(Reader *r, const Graph *g, Node *n) {
    uint32_t count, seen = 0;
    const AttrField *f = attr_fields((Op)n->op, &count);
    char word[64];
    while (!at_end(r)) {
        uint32_t k = 0;
        const char *start = r->at;
        if (!read_word(r, word)) break;
        if (strcmp(word, "late") == 0) {
            n->late = true;
            continue;
        }
        while (k < count && strcmp(f[k].name, word)) k++;
        if (k == count) {
            r->at = start;
            return fail(r, "no such attribute");
        }
        seen |= 1u << k;
        if (!read_field(r, g, n, &f[k])) return false;
    }
    for (uint32_t k = 0; k < count; k++)
        if (*f[k].name && !(seen >> k & 1) && !fill_absent(r, g, n, &f[k])) return false;
    return true;
}

/* Nodes. */

static bool read_graph(Reader *r, Graph *g);

static bool read_results(Reader *r, Control *c) {
    VEC(Type) types = {0};
    if (!expect(r, "results(")) return false;
    if (!eat(r, ")")) {
        do {
            Type t;
            if (!read_type(r, &t)) return false;
            vec_push(r->arena, &types, t);
        } while (eat(r, ","));
        if (!expect(r, ")")) return false;
    }
    c->results = types.v;
    c->nresults = types.n;
    return true;
}

static bool read_loop_head(Reader *r, Control *c) {
    int64_t carried;
    Expr iter;
    if (!expect(r, "carried=") || !read_int(r, &carried) || !expect(r, "iter=") ||
        !read_expr(r, &iter))
        return false;
    if (!expr_is_sym(r->exprs, iter, &c->iter)) return fail(r, "iteration symbol expected");
    if (carried < 0 || carried > c->nresults) return fail(r, "wrong number of carried values");
    c->ncarried = (uint32_t)carried;
    c->nscanned = c->nresults - c->ncarried;
    if (eat(r, "trip=")) return read_expr(r, &c->trip) && (c->most = c->trip);
    return !eat(r, "most=") || read_expr(r, &c->most);
}

static bool read_control(Reader *r, const Graph *g, Node *n) {
    Control *c = ARENA_NEW(r->arena, Control);
    if (!read_results(r, c) || (n->op == OP_loop && !read_loop_head(r, c))) return false;
    for (int b = 0; b < (n->op == OP_if ? 2 : 1); b++) {
        if (!expect(r, "{")) return false;
        if (++r->depth > MAX_BODIES) return fail(r, "bodies are nested too deeply");
        c->body[b] = graph_create(r->arena, r->exprs, r->diags, g->name);
        if (!read_graph(r, c->body[b])) return false;
        r->depth--;
        if (!expect(r, "}")) return false;
    }
    n->attr.control = c;
    return true;
}

static bool read_exprs(Reader *r, Node *n) {
    VEC(Expr) v = {0};
    if (!expect(r, "{")) return false;
    if (!eat(r, "}")) {
        do {
            Expr e;
            if (!read_expr(r, &e)) return false;
            vec_push(r->arena, &v, e);
        } while (eat(r, ","));
        if (!expect(r, "}")) return false;
    }
    n->attr.exprs.n = v.n;
    n->attr.exprs.v = v.v;
    return true;
}

static bool read_input(Reader *r, Graph *g, Node *n) {
    int64_t index;
    const char *name;
    if (!read_int(r, &index) || !(name = read_quoted(r))) return false;
    if (index != g->inputs.n) return fail(r, "inputs come in order");
    n->attr.input.index = (uint32_t)index;
    IoInfo io = {name, g->nodes.n, n->type, 0};
    vec_push(g->arena, &g->inputs, io);
    return true;
}

static bool read_state(Reader *r, Graph *g, Node *n) {
    int64_t index;
    StateInfo s = {.value = g->nodes.n, .type = n->type};
    if (!read_int(r, &index) || !(s.name = read_quoted(r))) return false;
    if (index != g->states.n) return fail(r, "states come in order");
    if (eat(r, "grows=")) {
        int64_t axis;
        if (!read_int(r, &axis) || !expect(r, "room=") || !read_expr(r, &s.room)) return false;
        if (axis < 0 || axis >= n->type.rank) return fail(r, "axis out of range");
        s.grows = (uint32_t)axis + 1;
    }
    if (!at_end(r) && !read_constant(r, &n->type, &s.initial)) return false;
    n->attr.input.index = (uint32_t)index;
    vec_push(g->arena, &g->states, s);
    return true;
}

static bool read_operand(Reader *r, const MapU64 *numbers, Value *v) {
    int64_t number;
    if (!expect(r, "%") || !read_int(r, &number)) return false;
    return map_get(numbers, (uint64_t)number, v) || fail(r, "no such value");
}

static bool read_operands(Reader *r, const MapU64 *numbers, Node *n) {
    VEC(Value) in = {0};
    skip_blank(r);
    if (*r->at == '%') {
        do {
            Value v;
            if (!read_operand(r, numbers, &v)) return false;
            vec_push(r->arena, &in, v);
        } while (eat(r, ","));
    }
    int arity = op_info[n->op].arity;
    if (arity >= 0 && in.n != (uint32_t)arity) return fail(r, "wrong number of operands");
    n->in = in.v;
    n->nin = in.n;
    return true;
}

static bool read_op(Reader *r, Node *n) {
    char word[64];
    if (!read_word(r, word)) return fail(r, "operation expected");
    for (int op = 1; op < OP_COUNT; op++) {
        if (strcmp(op_info[op].name, word)) continue;
        n->op = (uint8_t)op;
        return true;
    }
    return fail(r, "no such operation");
}

/* Those without a name come first. */
static bool read_attributes(Reader *r, Graph *g, Node *n) {
    uint32_t count;
    const AttrField *f = attr_fields((Op)n->op, &count);
    for (const AttrField *end = f + count; f < end && !*f->name; f++) {
        bool ok = f->kind == AK_INPUT      ? read_input(r, g, n)
                  : f->kind == AK_CONSTANT ? read_constant(r, &n->type, &n->attr.constant)
                  : f->kind == AK_STATE    ? read_state(r, g, n)
                  : f->kind == AK_ELEMENTS ? read_exprs(r, n)
                  : f->kind == AK_CONTROL  ? read_control(r, g, n)
                                           : true;
        if (f->kind == AK_TYPE) attr_set(&n->attr, f, 0, n->type.dtype);
        if (!ok) return false;
    }
    return read_named(r, g, n);
}

static bool read_node(Reader *r, Graph *g, MapU64 *numbers) {
    int64_t number;
    Node n = {0};
    if (!read_int(r, &number)) return false;
    if (!eat(r, "tuple") && !read_type(r, &n.type)) return false;
    if (!read_op(r, &n) || !read_operands(r, numbers, &n) || !read_attributes(r, g, &n))
        return false;
    map_put(numbers, (uint64_t)number, g->nodes.n);
    vec_push(g->own, &g->nodes, n);
    return at_end(r) || fail(r, "end of line expected");
}

static bool read_assume(Reader *r, Graph *g) {
    Expr a, b;
    if (!read_expr(r, &a) || !expect(r, "=") || !read_expr(r, &b)) return false;
    if (g->nassume == g->assume_cap)
        g->assume = vec_grow(g->arena, g->assume, &g->assume_cap, sizeof *g->assume);
    g->assume[g->nassume].a = a;
    g->assume[g->nassume].b = b;
    g->assume[g->nassume++].loc = 0;
    return true;
}

/* Numbers of entries, as a set. */
static bool read_entries(Reader *r, const Graph *g, uint32_t *set) {
    int64_t v;
    if (!eat(r, "entries=")) return true;
    if (!expect(r, "[")) return false;
    do {
        if (!read_int(r, &v)) return false;
        if (v < 0 || v >= g->entries.n) return fail(r, "no such entry");
        *set |= 1u << v;
    } while (eat(r, ","));
    return expect(r, "]");
}

static bool read_entry(Reader *r, Graph *g) {
    const char *name = read_quoted(r);
    if (name && g->entries.n == GRAPH_MAX_ENTRIES) return fail(r, "too many entries");
    if (name) vec_push(g->arena, &g->entries, name);
    return name != NULL;
}

static bool read_output(Reader *r, Graph *g, const MapU64 *numbers) {
    IoInfo io = {.name = read_quoted(r)};
    if (!io.name || !read_operand(r, numbers, &io.value)) return false;
    io.type = *graph_type(g, io.value);
    if (!read_entries(r, g, &io.entries)) return false;
    vec_push(g->arena, &g->outputs, io);
    return true;
}

static bool read_write(Reader *r, Graph *g, const MapU64 *numbers) {
    StateWrite w = {0};
    const char *name = read_quoted(r);
    if (!name || !read_operand(r, numbers, &w.value)) return false;
    while (w.state < g->states.n && strcmp(g->states.v[w.state].name, name)) w.state++;
    if (w.state == g->states.n) return fail(r, "no such state");
    if (!read_entries(r, g, &w.entries)) return false;
    vec_push(g->arena, &g->writes, w);
    return true;
}

static bool read_file(Reader *r, Graph *g) {
    const char *path = read_quoted(r);
    if (path) vec_push(g->arena, &g->files, path);
    return path != NULL;
}

/* Lines up to the end of the text or of the body. */
static bool read_graph(Reader *r, Graph *g) {
    MapU64 *numbers = map_create(r->arena);
    for (;;) {
        skip_lines(r);
        if (!*r->at || *r->at == '}') return true;
        bool ok = eat(r, "%")        ? read_node(r, g, numbers)
                  : eat(r, "output") ? read_output(r, g, numbers)
                  : eat(r, "write")  ? read_write(r, g, numbers)
                  : eat(r, "entry")  ? read_entry(r, g)
                  : eat(r, "assume") ? read_assume(r, g)
                  : eat(r, "file")   ? read_file(r, g)
                                   : fail(r, "node, entry, output, write, assume or file expected");
        if (!ok) return false;
    }
}

Graph *graph_parse(Arena *a, DiagSink *d, const char *text) {
    Reader r = {.arena = a, .exprs = expr_pool_create(a), .diags = d, .text = text, .at = text};
    skip_lines(&r);
    if (!expect(&r, "graph")) return NULL;
    const char *name = read_quoted(&r);
    if (!name || (eat(&r, "symbols") && !read_symbols(&r))) return NULL;
    Graph *g = graph_create(a, r.exprs, d, name);
    if (!read_graph(&r, g)) return NULL;
    if (*r.at && !fail(&r, "end of text expected")) return NULL;
    bind_dims(g);
    return graph_verify(g) == GRAPHC_OK ? g : NULL;
}
