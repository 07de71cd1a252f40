/* The importer on models written here byte by byte: structure, limits, messages. */
#include "frontend/import/import.h"
#include "tests/unit/test.h"
#include <unistd.h>

/* Protobuf bytes under construction. */
typedef struct Msg {
    uint8_t *p;
    size_t n, cap;
} Msg;

static void put_bytes(Msg *m, const void *p, size_t n) {
    if (m->n + n > m->cap) {
        m->cap = 2 * (m->n + n) + 64;
        m->p = realloc(m->p, m->cap);
    }
    if (n) memcpy(m->p + m->n, p, n);
    m->n += n;
}

static void put_varint(Msg *m, uint64_t v) {
    for (; v >= 0x80; v >>= 7) put_bytes(m, &(uint8_t){(uint8_t)(v | 0x80)}, 1);
    put_bytes(m, &(uint8_t){(uint8_t)v}, 1);
}

static void put_int(Msg *m, uint32_t field, uint64_t v) {
    put_varint(m, field << 3);
    put_varint(m, v);
}

static void put_data(Msg *m, uint32_t field, const void *p, size_t n) {
    put_varint(m, field << 3 | 2);
    put_varint(m, n);
    put_bytes(m, p, n);
}

static void put_str(Msg *m, uint32_t field, const char *s) {
    put_data(m, field, s, strlen(s));
}

/* Appends a message and frees it. */
static void put_msg(Msg *m, uint32_t field, Msg sub) {
    put_data(m, field, sub.p, sub.n);
    free(sub.p);
}

enum { GRAPH_NODE = 1, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };

/* A float value; dims: sizes or symbols separated by blanks. */
static Msg value_info(const char *name, const char *dims) {
    Msg shape = {0}, tensor = {0}, type = {0}, v = {0};
    char word[32];
    for (int used; sscanf(dims, " %31s%n", word, &used) == 1; dims += used) {
        Msg dim = {0};
        if (word[0] >= '0' && word[0] <= '9')
            put_int(&dim, 1, strtoull(word, NULL, 10));
        else
            put_str(&dim, 2, word);
        put_msg(&shape, 1, dim);
    }
    put_int(&tensor, 1, 1);
    put_msg(&tensor, 2, shape);
    put_msg(&type, 1, tensor);
    put_str(&v, 1, name);
    put_msg(&v, 2, type);
    return v;
}

static Msg node(const char *op, const char *domain, const char *in, const char *out) {
    Msg n = {0};
    put_str(&n, 1, in);
    put_str(&n, 2, out);
    put_str(&n, 4, op);
    put_str(&n, 7, domain);
    return n;
}

static Msg model_of(Msg graph) {
    Msg m = {0}, opset = {0};
    put_int(&m, 1, 8);
    put_str(&opset, 1, "");
    put_int(&opset, 2, 17);
    put_msg(&m, 8, opset);
    put_msg(&m, 7, graph);
    return m;
}

/* x[dims] -> op -> y */
static Msg unary_model(const char *op, const char *dims) {
    Msg g = {0};
    put_msg(&g, GRAPH_NODE, node(op, "", "x", "y"));
    put_msg(&g, GRAPH_INPUT, value_info("x", dims));
    put_msg(&g, GRAPH_OUTPUT, value_info("y", dims));
    return model_of(g);
}

typedef struct Result {
    Arena *arena;
    DiagSink *diags;
    Model *model;
    Graph *graph;
    graphc_status status;
} Result;

static char path[64];

static Result import_bytes(const void *p, size_t n, const ImportOptions *o) {
    Result r = {.arena = arena_create()};
    FILE *f = fopen(path, "wb");
    fwrite(p, 1, n, f);
    fclose(f);
    r.diags = diag_create(r.arena, path);
    r.status = import_model(r.arena, r.diags, path, o, &r.model, &r.graph);
    return r;
}

static Result import(Msg m, const ImportOptions *o) {
    Result r = import_bytes(m.p, m.n, o);
    free(m.p);
    return r;
}

static void done(Result r) {
    import_close(r.model);
    arena_destroy(r.arena);
}

static bool reports(const Result *r, DiagId id) {
    for (uint32_t i = 0; i < diag_count(r->diags); i++)
        if (diag_at(r->diags, i)->id == id) return true;
    return false;
}

static void expect_error(Msg m, DiagId id) {
    Result r = import(m, NULL);
    CHECK_EQ_I(r.status, diag_info[id].status);
    CHECK(reports(&r, id));
    done(r);
}

static void test_sizes(void) {
    Result r = import(unary_model("Relu", "batch 3"), NULL);
    CHECK_EQ_I(r.status, GRAPHC_OK);
    if (r.status == GRAPHC_OK) {
        const Type *t = graph_type(r.graph, r.graph->outputs.v[0].value);
        CHECK_EQ_I(t->rank, 2);
        CHECK(expr_is_sym(r.graph->exprs, t->dim[0], NULL));
        CHECK(expr_is_value(r.graph->exprs, t->dim[1], 3));
    }
    done(r);
    const ImportDim fixed = {"batch", 5, 5}, unknown = {"time", 1, 9};
    r = import(unary_model("Relu", "batch 3"), &(ImportOptions){.dims = &fixed, .ndims = 1});
    CHECK_EQ_I(r.status, GRAPHC_OK);
    if (r.status == GRAPHC_OK)
        CHECK(expr_is_value(r.graph->exprs, r.graph->inputs.v[0].type.dim[0], 5));
    done(r);
    r = import(unary_model("Relu", "batch 3"), &(ImportOptions){.dims = &unknown, .ndims = 1});
    CHECK_EQ_I(r.status, GRAPHC_USAGE);
    done(r);
}

/* A cache that the model says it adds to may be empty; a size of an output may not. */
static void test_symbol_ranges(void) {
    Msg g = {0};
    put_msg(&g, GRAPH_NODE, node("Relu", "", "x", "y"));
    put_msg(&g, GRAPH_INPUT, value_info("x", "past seq"));
    put_msg(&g, GRAPH_OUTPUT, value_info("y", "past+seq seq"));
    Result r = import(model_of(g), NULL);
    CHECK_EQ_I(r.status, GRAPHC_OK);
    if (r.status == GRAPHC_OK) {
        CHECK_EQ_I(expr_sym_info(r.graph->exprs, 0)->lo, 0);
        CHECK_EQ_I(expr_sym_info(r.graph->exprs, 1)->lo, 1);
    }
    done(r);
}

static void test_every_error_is_reported(void) {
    Msg g = {0};
    put_msg(&g, GRAPH_NODE, node("Sort", "", "x", "a"));
    put_msg(&g, GRAPH_NODE, node("Relu", "", "a", "b"));
    put_msg(&g, GRAPH_NODE, node("Frobnicate", "my.domain", "x", "y"));
    put_msg(&g, GRAPH_INPUT, value_info("x", "2"));
    put_msg(&g, GRAPH_OUTPUT, value_info("y", "2"));
    Result r = import(model_of(g), NULL);
    CHECK_EQ_I(r.status, GRAPHC_UNSUPPORTED);
    CHECK_EQ_I(diag_errors(r.diags), 2); /* the Relu between them is not to blame */
    CHECK(strstr(diag_at(r.diags, 0)->text, "Sort") && strstr(diag_at(r.diags, 0)->text, "17"));
    done(r);
}

static void test_unsorted_nodes(void) {
    Msg g = {0}, cycle = {0};
    put_msg(&g, GRAPH_NODE, node("Relu", "", "a", "y"));
    put_msg(&g, GRAPH_NODE, node("Neg", "", "x", "a"));
    put_msg(&g, GRAPH_INPUT, value_info("x", "2"));
    put_msg(&g, GRAPH_OUTPUT, value_info("y", "2"));
    Result r = import(model_of(g), NULL);
    CHECK_EQ_I(r.status, GRAPHC_OK);
    done(r);
    put_msg(&cycle, GRAPH_NODE, node("Relu", "", "a", "b"));
    put_msg(&cycle, GRAPH_NODE, node("Neg", "", "b", "a"));
    put_msg(&cycle, GRAPH_OUTPUT, value_info("b", "2"));
    expect_error(model_of(cycle), D_NAME);
}

/* f(x) = inner(x), where inner is f itself or Relu. */
static Msg call_model(const char *inner) {
    Msg g = {0}, f = {0}, m, opset = {0};
    put_str(&f, 1, "f");
    put_str(&f, 4, "in");
    put_str(&f, 5, "out");
    put_msg(&f, 7, node(inner, strcmp(inner, "f") ? "" : "local", "in", "out"));
    put_str(&f, 10, "local");
    put_msg(&g, GRAPH_NODE, node("f", "local", "x", "y"));
    put_msg(&g, GRAPH_INPUT, value_info("x", "2"));
    put_msg(&g, GRAPH_OUTPUT, value_info("y", "2"));
    m = model_of(g);
    put_str(&opset, 1, "local");
    put_int(&opset, 2, 1);
    put_msg(&m, 8, opset);
    put_msg(&m, 25, f);
    return m;
}

static void test_functions(void) {
    Result r = import(call_model("Relu"), NULL);
    CHECK_EQ_I(r.status, GRAPHC_OK);
    done(r);
    expect_error(call_model("f"), D_FUNCTION);
}

static Msg weight_model(Msg tensor) {
    Msg g = {0};
    put_msg(&g, GRAPH_INITIALIZER, tensor);
    put_msg(&g, GRAPH_NODE, node("Identity", "", "w", "y"));
    put_msg(&g, GRAPH_OUTPUT, value_info("y", "3"));
    return model_of(g);
}

static Msg tensor(int type, const void *raw, size_t n) {
    Msg t = {0};
    put_int(&t, 1, 3);
    put_int(&t, 2, (uint64_t)type);
    put_str(&t, 8, "w");
    if (raw) put_data(&t, 9, raw, n);
    return t;
}

static void test_tensors(void) {
    const uint8_t packed[2] = {0x8f, 0x07}; /* int4: -1, -8, 7 */
    Result r = import(weight_model(tensor(22, packed, 2)), NULL);
    CHECK_EQ_I(r.status, GRAPHC_OK);
    if (r.status == GRAPHC_OK) {
        const Node *c = graph_node(r.graph, r.graph->outputs.v[0].value);
        CHECK_EQ_I(c->op, OP_const);
        for (size_t i = 0; i < 3; i++)
            CHECK_EQ_I(dtype_load_i64(DT_i4, c->attr.constant.data, i), ((int[]){-1, -8, 7})[i]);
    }
    done(r);
    expect_error(weight_model(tensor(1, packed, 2)), D_TENSOR);
    expect_error(weight_model(tensor(8, NULL, 0)), D_UNSUPPORTED_TYPE);
}

static void test_external_places(void) {
    static const char *const bad[] = {"../w", "/etc/passwd", "a/../../w", "", "missing"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Msg t = tensor(1, NULL, 0), entry = {0};
        put_str(&entry, 1, "location");
        put_str(&entry, 2, bad[i]);
        put_msg(&t, 13, entry);
        put_int(&t, 14, 1);
        expect_error(weight_model(t), strcmp(bad[i], "missing") == 0 ? D_IO : D_EXTERNAL);
    }
}

static void test_limits(void) {
    Msg deep = {0}, wide = {0};
    for (int i = 0; i < 300; i++) { /* graph -> node -> attribute -> graph ... */
        Msg attr = {0}, n = {0}, g = {0};
        put_msg(&attr, 6, deep);
        put_msg(&n, 5, attr);
        put_msg(&g, 1, n);
        deep = g;
    }
    expect_error(model_of(deep), D_LIMIT);
    for (int i = 0; i < 1 << 20; i++) put_data(&wide, GRAPH_INITIALIZER, NULL, 0);
    expect_error(model_of(wide), D_LIMIT);
}

static void test_damaged_files(void) {
    Msg m = unary_model("Softmax", "batch 3");
    for (size_t i = 0; i < m.n; i++) {
        Result r = import_bytes(m.p, i, NULL);
        CHECK(r.status != GRAPHC_OK && diag_errors(r.diags) > 0);
        done(r);
        for (int bit = 0; bit < 8; bit++) {
            m.p[i] ^= (uint8_t)(1u << bit);
            r = import_bytes(m.p, m.n, NULL);
            CHECK((r.status == GRAPHC_OK) == (diag_errors(r.diags) == 0));
            done(r);
            m.p[i] ^= (uint8_t)(1u << bit);
        }
    }
    free(m.p);
}

TEST_MAIN {
    snprintf(path, sizeof path, "/tmp/test_import.%ld.onnx", (long)getpid());
    test_sizes();
    test_symbol_ranges();
    test_every_error_is_reported();
    test_unsorted_nodes();
    test_functions();
    test_tensors();
    test_external_places();
    test_limits();
    test_damaged_files();
    unlink(path);
}
