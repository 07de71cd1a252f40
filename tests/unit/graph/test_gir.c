/* Golden tests of graph text, passes and kernels: every .gir file in tests/gir and its folders
 * holds a graph, a line `==== pass pass ...`, and the graph expected after those passes and dce; or
 * a line `==== kir cpu` (or sm_90a) and the kernels expected of the optimised graph. Several such
 * sections may follow each other in one file, each starting from the file's first graph. Apart from
 * the text, both graphs must compute the same on random inputs. Every pass must occur.
 * GRAPHC_UPDATE=1 rewrites the expectations. */
#include "codegen/target.h"
#include "graph/eval/eval.h"
#include "graph/pass/pass.h"
#include "graph/recompute/recompute.h"
#include "runtime/base/file.h"
#include "tests/unit/test.h"
#include <dirent.h>

typedef struct PassRow {
    const char *name;
    Graph *(*fn)(Graph *);
} PassRow;

static const PassRow passes[] = {
#define X(name, what) {#name, pass_##name},
    GRAPH_PASSES(X)
#undef X
};

static bool seen[sizeof passes / sizeof *passes];

typedef struct Case {
    Arena *arena;
    const char *path;
    DiagSink *diags;
} Case;

static void show_diags(Case *c) {
    for (uint32_t i = 0; i < diag_count(c->diags); i++)
        fprintf(stderr, "%s\n", diag_render(c->diags, diag_at(c->diags, i), c->arena, false));
}

static const char *text_of(Case *c, const Graph *g) {
    StrBuf s;
    sb_init(&s, c->arena);
    graph_print(g, &s);
    return sb_str(&s);
}

/* Entry 0 gives the loss. Memory is worth what it is worth to a training plan. */
static Graph *computed_again(Graph *g, bool contractions) {
    const Recompute how = {.forward = 1,
                           .bytes_per_s = 4e12,
                           .flops_per_s = 60e12,
                           .matrix_flops_per_s = 990e12,
                           .moves = contractions ? 1e6 : 3,
                           .layers = contractions};
    return recompute(g, &how);
}

static Graph *run_passes(Graph *g, const char *names) {
    char word[64];
    for (int n = 0; sscanf(names, " %63[a-z_0-9]%n", word, &n) == 1; names += n) {
        size_t i = 0;
        DType precision;
        if (dtype_from_name(word, &precision)) {
            g = pass_precision(g, precision, true);
            continue;
        }
        if (strncmp(word, "only_", 5) == 0 && dtype_from_name(word + 5, &precision)) {
            g = pass_precision(g, precision, false);
            continue;
        }
        if (strncmp(word, "recompute", 9) == 0) {
            g = computed_again(g, strcmp(word, "recompute_all") == 0);
            continue;
        }
        while (i < sizeof passes / sizeof *passes && strcmp(passes[i].name, word)) i++;
        if (!CHECK(i < sizeof passes / sizeof *passes)) return NULL;
        seen[i] = true;
        g = passes[i].fn(g);
        if (!g) return NULL;
    }
    return pass_dce(g);
}

/* ---- The same results ---- */

static uint64_t state = 99;
static uint32_t rnd(uint32_t n) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % n;
}

static int64_t *symbol_values(Case *c, const Graph *g) {
    uint32_t n = expr_sym_count(g->exprs);
    int64_t *v = ARENA_ARRAY(c->arena, int64_t, n);
    for (uint32_t s = 0; s < n; s++) {
        const SymInfo *info = expr_sym_info(g->exprs, s);
        v[s] = 3 + s;
        if (v[s] < info->lo) v[s] = info->lo;
        if (v[s] > info->hi) v[s] = info->hi;
    }
    return v;
}

static EvalTensor *random_inputs(Case *c, const Graph *g) {
    int64_t *sym = symbol_values(c, g);
    EvalTensor *in = ARENA_ARRAY(c->arena, EvalTensor, g->inputs.n);
    for (uint32_t i = 0; i < g->inputs.n; i++) {
        const Type *t = &g->inputs.v[i].type;
        in[i] = (EvalTensor){.dtype = t->dtype, .rank = t->rank};
        size_t n = 1;
        for (int a = 0; a < t->rank; a++)
            n *= (size_t)(in[i].dim[a] = expr_eval(g->exprs, t->dim[a], sym));
        in[i].data = arena_array(c->arena, n, 8);
        for (size_t k = 0; k < n; k++)
            dtype_store_f64(t->dtype, in[i].data, k,
                            dtype_is_float(t->dtype) ? rnd(1000) / 250.0 - 2 : rnd(4));
    }
    return in;
}

static void check_tensors(const EvalTensor *a, const EvalTensor *b, double bound) {
    size_t n = 1;
    if (!CHECK(a->rank == b->rank && a->dtype == b->dtype)) return;
    for (int i = 0; i < a->rank; i++) {
        CHECK_EQ_I(a->dim[i], b->dim[i]);
        n *= (size_t)a->dim[i];
    }
    for (size_t i = 0; i < n; i++) {
        double x = dtype_load_f64(a->dtype, a->data, i), y = dtype_load_f64(b->dtype, b->data, i);
        CHECK_NEAR(x, y, bound * (1 + fabs(x)));
    }
}

static void check_same_results(Case *c, const Graph *before, const Graph *after, double bound) {
    EvalTensor *in = random_inputs(c, before);
    EvalTensor *x = ARENA_ARRAY(c->arena, EvalTensor, before->outputs.n);
    EvalTensor *y = ARENA_ARRAY(c->arena, EvalTensor, after->outputs.n);
    EvalOptions o = {0};
    if (!CHECK(before->outputs.n == after->outputs.n)) return;
    if (!CHECK(eval_run(before, in, &o, c->arena, x) == GRAPHC_OK)) return;
    if (!CHECK(eval_run(after, in, &o, c->arena, y) == GRAPHC_OK)) return;
    for (uint32_t i = 0; i < before->outputs.n; i++) check_tensors(&x[i], &y[i], bound);
}

/* ---- Files ---- */

static const char *next_section(const char *text) {
    const char *s = strstr(text, "\n====");
    return s ? s + 1 : NULL;
}

/* The graph after the passes, or NULL with a failed check. */
static const char *passed(Case *c, Graph *before, const char *names) {
    Graph *after = before ? run_passes(before, names) : NULL;
    if (!CHECK(after && graph_verify(after) == GRAPHC_OK)) return NULL;
    check_same_results(c, before, after, strstr(names, "16") ? 0.02 : 1e-5);
    return text_of(c, after);
}

/* The kernels of the graph for a target. */
static const char *kernels(Case *c, Graph *g, const char *target) {
    PlanDevice kind = strcmp(target, "cpu") == 0 ? PLAN_cpu : PLAN_cuda;
    Schedule *s;
    StrBuf out;
    if (!CHECK(g && graph_optimise(&g, DT_f32, true, NULL) == GRAPHC_OK)) return NULL;
    if (!CHECK(schedule_build(g, &target_for(kind)->machine, FUSE_ALL, c->arena, &s) == GRAPHC_OK))
        return NULL;
    sb_init(&out, c->arena);
    schedule_print(s, &out);
    return sb_str(&out);
}

/* One section: `==== passes` and the expected text; appends what it should say to `fresh`. */
static void check_section(Case *c, const char *input, const char *section, StrBuf *fresh) {
    size_t line = strcspn(section, "\n");
    const char *names = arena_strndup(c->arena, section + 4, line - 4);
    const char *expected = section + line + (section[line] == '\n');
    const char *end = next_section(section);
    Graph *before = graph_parse(c->arena, c->diags, input);
    bool kir = strncmp(names, " kir ", 5) == 0;
    const char *got = kir ? kernels(c, before, names + 5) : passed(c, before, names);
    if (!got) return;
    sb_printf(fresh, "====%s\n%s", names, got);
    size_t n = end ? (size_t)(end - expected) : strlen(expected);
    bool as_expected = strlen(got) == n && !strncmp(got, expected, n);
    if (getenv("GRAPHC_UPDATE") || CHECK(as_expected)) return;
    fprintf(stderr, "%s: after%s\n%s", c->path, names, got);
}

static void check_file(const char *path) {
    FileMap m;
    char why[256];
    if (!CHECK(file_map(path, &m, why) == GRAPHC_OK)) return;
    Case c = {.arena = arena_create(), .path = path};
    c.diags = diag_create(c.arena, path);
    const char *text = arena_strndup(c.arena, (const char *)m.data, m.size);
    file_unmap(&m);
    int before = test_failures;
    const char *section = next_section(text);
    if (CHECK(section != NULL)) {
        const char *input = arena_strndup(c.arena, text, (size_t)(section - text));
        StrBuf fresh;
        sb_init(&fresh, c.arena);
        sb_put(&fresh, input);
        for (; section; section = next_section(section)) check_section(&c, input, section, &fresh);
        if (getenv("GRAPHC_UPDATE"))
            CHECK(file_write(path, sb_str(&fresh), fresh.n, why) == GRAPHC_OK);
    }
    if (test_failures != before) fprintf(stderr, "in %s\n", path);
    if (test_failures != before) show_diags(&c);
    arena_destroy(c.arena);
}

static int is_shown(const struct dirent *d) {
    return d->d_name[0] != '.';
}

/* The files of a folder and of those in it, by name. */
static int check_folder(const char *dir) {
    struct dirent **entry;
    const int n = scandir(dir, &entry, is_shown, alphasort);
    int files = 0;
    for (int i = 0; i < n; i++) {
        char path[4096];
        const char *end = strrchr(entry[i]->d_name, '.');
        snprintf(path, sizeof path, "%s/%s", dir, entry[i]->d_name);
        if (!end) files += check_folder(path);
        if (end && !strcmp(end, ".gir")) check_file(path), files++;
        free(entry[i]);
    }
    if (n >= 0) free(entry);
    return files;
}

TEST_MAIN {
    const char *root = getenv("GRAPHC_TEST_SOURCE");
    char dir[2048];
    snprintf(dir, sizeof dir, "%s/tests/gir", root ? root : ".");
    CHECK(check_folder(dir) > 0);
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
        if (!CHECK(seen[i])) fprintf(stderr, "no golden text of the pass %s\n", passes[i].name);
}
