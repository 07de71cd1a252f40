#include "graph/grad/lora.h"
#include "graph/grad/layer.h"
#include "graph/pass/rewrite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Lora {
    const LoraSpec *spec;
    LoraLayers *layers;
    MapStr *by_path; /* path -> number in layers */
    regex_t whole;
    bool is_regex;
    StrBuf all; /* every layer's path, for the message when none matches */
    const Graph *g;
    const char *root;
    const bool *last; /* by value: feeds an output through views and maps alone */
    uint64_t streams; /* of random numbers that are drawn */
} Lora;

/* --- Which layers ----------------------------------------------------------------------------- */

/* The named constant that v is, below views and casts. */
static const Constant *weight_of(const Graph *g, Value v) {
    for (;;) {
        const Node *n = graph_node(g, v);
        if (n->op == OP_const) return *n->attr.constant.name ? &n->attr.constant : NULL;
        if (!layer_view((Op)n->op)) return NULL;
        v = n->in[0];
    }
}

static const char *without(Arena *a, const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return n > k && !strcmp(name + n - k, end) ? arena_strndup(a, name, n - k) : name;
}

/* The whole path of the linear layer that v is, or NULL. */
static const char *whole_path(const Graph *g, Value v) {
    const Node *n = graph_node(g, v);
    if (n->op != OP_dot) return NULL;
    const Constant *w = weight_of(g, n->in[1]);
    int64_t size;
    const Type *t = &n->type;
    if (!w || t->rank < 2 || !expr_is_const(g->exprs, t->dim[t->rank - 1], &size)) return NULL;
    const LocInfo *l = &g->locs.v[n->loc];
    return l->module && *l->module ? l->module : without(g->arena, w->name, ".weight");
}

static const char *layer_path(const Lora *l, Value v) {
    const char *path = whole_path(l->g, v);
    size_t n = strlen(l->root);
    return path && n && !strncmp(path, l->root, n) && path[n] == '.' ? path + n + 1 : path;
}

/* The module that a model was wrapped in to be exported, "" if there is none to be seen. */
static const char *wrapper(const Graph *g) {
    static const char *const heads[] = {"lm_head", "score", "classifier", "qa_outputs"};
    const char *first = NULL;
    bool head = false;
    for (Value v = 1; v < g->nodes.n; v++) {
        const char *path = whole_path(g, v), *dot = path ? strchr(path, '.') : NULL;
        if (!path) continue;
        if (!dot) return "";
        if (!first) first = arena_strndup(g->arena, path, (size_t)(dot - path));
        if (strncmp(path, first, (size_t)(dot - path)) || first[dot - path]) return "";
        for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
            head |= !strcmp(dot + 1, heads[i]);
    }
    return head ? first : "";
}

/* What feeds an output with no contraction between: the head of a model. */
static const bool *near_outputs(const Graph *g) {
    bool *near = ARENA_ARRAY(g->arena, bool, g->nodes.n);
    for (uint32_t i = 0; i < g->outputs.n; i++) near[g->outputs.v[i].value] = true;
    for (Value v = g->nodes.n; v-- > 1;) {
        const Node *n = graph_node(g, v);
        OpClass c = op_info[n->op].cls;
        if (!near[v] || (c != OPC_MAP && c != OPC_VIEW)) continue;
        for (uint32_t i = 0; i < n->nin; i++) near[n->in[i]] = true;
    }
    return near;
}

/* name is the path, or its last parts. */
static bool names(const char *name, size_t n, const char *path) {
    size_t k = strlen(path);
    return k >= n && !strncmp(path + k - n, name, n) && (k == n || path[k - n - 1] == '.');
}

static bool matches(const Lora *l, Value v, const char *path) {
    const char *t = l->spec->targets;
    if (!strcmp(t, "all-linear")) return !l->last[v];
    if (l->is_regex) return layer_matches(&l->whole, path);
    for (const char *s = t, *end;; s = end + 1) {
        end = s + strcspn(s, ",");
        if (end > s && names(s, (size_t)(end - s), path)) return true;
        if (!*end) return false;
    }
}

/* --- The adapter -------------------------------------------------------------------------------
 */

static Value matrix_state(Graph *g, const char *path, const char *which, int64_t rows,
                          int64_t columns) {
    Type t = {.dtype = DT_f32,
              .rank = 2,
              .dim = {expr_const(g->exprs, rows), expr_const(g->exprs, columns)}};
    const char *name = arena_printf(g->arena, "%s.lora_%s.weight", path, which);
    return build_state(g, name, t, (Constant){.name = name});
}

static LoraLayer *layer_of(Lora *l, Graph *g, const char *path, int64_t in, int64_t out) {
    uint32_t i;
    if (mapstr_get(l->by_path, path, &i)) return &l->layers->v.v[i];
    LoraLayer made = {.path = path, .in = in, .out = out};
    made.a = matrix_state(g, path, "A", l->spec->rank, in);
    made.b = matrix_state(g, path, "B", out, l->spec->rank);
    mapstr_put(l->by_path, path, l->layers->v.n);
    vec_push(g->arena, &l->layers->v, made);
    return &l->layers->v.v[l->layers->v.n - 1];
}

static Value transposed(Graph *g, Value m) {
    static const uint8_t swap[] = {1, 0};
    return build_permute(g, m, swap);
}

static graphc_status clash(const Rewrite *r, const char *path) {
    return diag(r->to->diags, D_UNSUPPORTED, "--lora",
                "%s: two linear layers of different sizes have that path", path);
}

static Value dropped(Lora *l, Graph *g, Value x) {
    const double ratio = l->spec->dropout;
    if (ratio <= 0) return x;
    return build_dropout(g, x, build_scalar_f(g, DT_f32, ratio), l->streams++, NULL);
}

static Value adapt(Rewrite *r, Value v) {
    Lora *l = r->facts;
    const char *path = r->from == l->g ? layer_path(l, v) : NULL;
    if (!path) return 0;
    sb_printf(&l->all, "%s%s", l->all.n ? ", " : "", path);
    if (!matches(l, v, path)) return 0;
    Graph *g = r->to;
    const Node *n = graph_node(r->from, v);
    const Type *tx = graph_type(r->from, n->in[0]), *ty = &n->type;
    int64_t in, out;
    if (!expr_is_const(g->exprs, tx->dim[tx->rank - 1], &in) ||
        !expr_is_const(g->exprs, ty->dim[ty->rank - 1], &out))
        return 0;
    LoraLayer *layer = layer_of(l, g, path, in, out);
    if (layer->in != in || layer->out != out) return (void)clash(r, path), 0;
    Value x = dropped(l, g, build_cast(g, rewrite_in(r, v, 0), DT_f32));
    Value low = build_matmul(g, x, transposed(g, layer->a), DT_f32);
    Value delta = build_matmul(g, low, transposed(g, layer->b), DT_f32);
    delta = build_cast(g, build_binary_f(g, OP_mul, delta, l->layers->scale), ty->dtype);
    return build_binary(g, OP_add, rewrite_copy(r, v), delta);
}

graphc_status lora_apply(const Graph *g, const LoraSpec *s, Graph **out, LoraLayers *layers) {
    Lora l = {.spec = s, .layers = layers, .by_path = mapstr_create(g->arena), .g = g};
    sb_init(&l.all, g->arena);
    layers->scale = s->alpha / (s->rslora ? sqrt(s->rank) : s->rank);
    l.last = near_outputs(g);
    l.root = s->root ? s->root : wrapper(g);
    l.is_regex = strpbrk(s->targets, "*[]()|\\^$+?") != NULL;
    if (l.is_regex && regcomp(&l.whole, s->targets, REG_EXTENDED))
        return diag(g->diags, D_USAGE, "--lora", "\"%s\" is no regular expression", s->targets);
    *out = rewrite_graph(g, adapt, NULL, &l);
    if (l.is_regex) regfree(&l.whole);
    GC_TRY(diag_status(g->diags));
    if (layers->v.n) return GRAPHC_OK;
    return diag(g->diags, D_USAGE, "--lora", "no linear layer matches \"%s\"; there are: %s",
                s->targets, l.all.n ? sb_str(&l.all) : "none");
}

/* --- Text --------------------------------------------------------------------------------------
 */

static bool starts(const char *s, const char *with, const char **rest) {
    size_t n = strlen(with);
    if (strncmp(s, with, n)) return false;
    *rest = s + n;
    return true;
}

graphc_status lora_parse(Arena *a, DiagSink *d, const char *text, LoraSpec *out) {
    *out = (LoraSpec){.rank = 8, .alpha = 8, .targets = "all-linear"};
    for (const char *s = text, *v; *s;) {
        char *end;
        if (starts(s, "targets=", &v)) {
            out->targets = arena_strdup(a, v);
            break; /* the rest: it may hold commas */
        } else if (starts(s, "r=", &v)) {
            out->rank = (uint32_t)strtoul(v, &end, 10);
        } else if (starts(s, "alpha=", &v)) {
            out->alpha = strtod(v, &end);
        } else if (starts(s, "dropout=", &v)) {
            out->dropout = strtod(v, &end);
        } else if (starts(s, "rslora", &v)) {
            out->rslora = true;
            end = (char *)(uintptr_t)v;
        } else if (starts(s, "root=", &v)) {
            out->root = arena_strndup(a, v, strcspn(v, ","));
            end = (char *)(uintptr_t)(v + strcspn(v, ","));
        } else {
            return diag(d, D_USAGE, "--lora",
                        "\"%s\": r=, alpha=, dropout=, rslora, root= or targets= is wanted", s);
        }
        bool in_range = out->rank && out->rank <= 4096 && out->dropout >= 0 && out->dropout < 1;
        if ((*end && *end != ',') || !in_range)
            return diag(d, D_USAGE, "--lora", "\"%s\" has no such value", s);
        s = end + (*end == ',');
    }
    return GRAPHC_OK;
}
