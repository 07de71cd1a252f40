#include "graph/grad/lora/lora.h"
#include "graph/pass/rewrite.h"

#include <math.h>
#include <string.h>

/* What becomes of a layer. */
typedef struct Choice {
    Layer at;
    bool adapted, saved;
    const LoraModule *given; /* of an adapter that is there; or NULL: */
    uint32_t rank;
    double scale;
} Choice;

typedef struct Lora {
    const LoraSpec *spec;
    LoraLayers *layers;
    const Graph *g;
    const char *root;
    const bool *last; /* by value: feeds an output through views and maps alone */
    Choice **choice;  /* by value; NULL: no layer */
    /* by value: x A' in the new graph, once a layer that reads the same x asked for it */
    Value *low;
    bool *weight;    /* by value: an initializer that is some layer's */
    MapStr *adapted; /* path -> a layer of it that is adapted, by value */
    MapStr *by_path; /* path -> number in layers->v */
    MapStr *by_name; /* parameter -> number in layers->whole */
    MapStr *listed;
    StrBuf all; /* every layer's path, for messages */
    regex_t regex;
    bool is_regex;
    uint64_t streams; /* of random numbers that are drawn */
    Value rows;       /* input "adapter", or 0 */
} Lora;

/* --- Which layers ----------------------------------------------------------------------------- */

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

static bool is_target(const Lora *l, Value v, const Layer *at) {
    const char *t = l->spec->targets;
    if (!strcmp(t, "all-linear")) return at->kind == LAYER_linear && !l->last[v];
    if (l->is_regex) return layer_matches(&l->regex, at->path);
    for (const char *s = t, *end;; s = end + 1) {
        end = s + strcspn(s, ",");
        if (end > s && names(s, (size_t)(end - s), at->path)) return true;
        if (!*end) return false;
    }
}

static const LoraModule *given_module(const LoraSpec *s, const Layer *at) {
    for (uint32_t i = 0; i < s->nmodules; i++)
        if (s->modules[i].kind == at->kind && !strcmp(s->modules[i].path, at->path))
            return &s->modules[i];
    return NULL;
}

/* As PEFT has it: "head" saves "lm_head.weight" and "head.dense.weight". */
static bool is_in(const char *module, const char *name) {
    size_t n = strlen(module);
    for (const char *p = name; (p = strstr(p, module)); p++)
        if (p[n] == '.') return true;
    return false;
}

/* The elements of a parameter of an adapter are those of the model's. */
static bool is_same(const Lora *l, const LoraParameter *p, Value source) {
    const Type *t = graph_type(l->g, source);
    const Constant *c = layer_elements(l->g, source);
    const uint64_t n = c->bytes / dtype_bytes(t->dtype);
    if (!p->copy || p->bytes / dtype_bytes(p->dtype) != n) return false;
    for (uint64_t i = 0; i < n; i++)
        if (dtype_load_f64(t->dtype, c->data, i) != dtype_load_f64(p->dtype, p->copy, i))
            return false;
    return true;
}

/* Is the parameter learnt because of the module that it is in, or because an adapter has it? */
static bool is_whole(const Lora *l, const char *name, Value source) {
    const LoraSpec *s = l->spec;
    const char *dot = strrchr(name, '.');
    for (uint32_t i = 0; i < s->nwhole; i++)
        if (!strcmp(s->whole[i].name, name)) return !is_same(l, &s->whole[i], source);
    for (uint32_t i = 0; i < s->save.n; i++)
        if (dot && is_in(s->save.v[i], name)) return true;
    return false;
}

static const char *weight_name(const Lora *l, const Layer *at) {
    return arena_printf(l->g->arena, "%s.weight", at->path);
}

static graphc_status choose(Lora *l, Value v, Choice *c) {
    const LoraSpec *s = l->spec;
    c->saved = is_whole(l, weight_name(l, &c->at), c->at.source);
    c->given = given_module(s, &c->at);
    if (c->saved && c->given)
        return diag(l->g->diags, D_ADAPTER, "--adapter",
                    "%s: the weight that comes with it is not the model's", c->at.path);
    if (c->saved) return GRAPHC_OK;
    c->adapted = s->nmodules ? c->given != NULL : !s->nwhole && is_target(l, v, &c->at);
    if (!c->adapted) return GRAPHC_OK;
    mapstr_put(l->adapted, c->at.path, v);
    if (c->given) return c->rank = c->given->rank, c->scale = 1, GRAPHC_OK;
    return lora_scale(s, l->g->diags, c->at.path, &c->rank, &c->scale);
}

static graphc_status choose_all(Lora *l) {
    const Graph *g = l->g;
    uint32_t seen;
    for (Value v = 1; v < g->nodes.n; v++) {
        Choice c = {0};
        if (!layer_find(g, l->root, v, &c.at)) continue;
        if (!mapstr_get(l->listed, c.at.path, &seen)) {
            mapstr_put(l->listed, c.at.path, v);
            sb_printf(&l->all, "%s%s", l->all.n ? ", " : "", c.at.path);
        }
        GC_TRY(choose(l, v, &c));
        l->choice[v] = arena_copy(g->arena, &c, sizeof c);
        l->weight[c.at.source] = true;
    }
    return GRAPHC_OK;
}

/* --- Parameters that are learnt as a whole ---------------------------------------------------- */

/* A bias, and the one of a layer that has an adapter. */
static bool is_learnt_bias(const Lora *l, const char *name, bool *adapted) {
    const char *dot = strrchr(name, '.');
    uint32_t v;
    if (!dot || strcmp(dot, ".bias")) return *adapted = false;
    *adapted = mapstr_get(l->adapted, arena_strndup(l->g->arena, name, (size_t)(dot - name)), &v);
    return l->spec->bias == LORA_BIAS_all || (l->spec->bias == LORA_BIAS_lora_only && *adapted);
}

static Value whole_state(Lora *l, Graph *g, const char *name, Type t, Constant initial) {
    uint32_t i;
    if (mapstr_get(l->by_name, name, &i)) return l->layers->whole.v[i].state;
    LoraWhole w = {.name = name, .state = build_state(g, name, t, initial)};
    mapstr_put(l->by_name, name, l->layers->whole.n);
    vec_push(g->arena, &l->layers->whole, w);
    return w.state;
}

/* An initializer becomes a state if it is learnt, else a constant. Those of layers are looked at
 * where they are used: one may be the weight of several. */
static Value initializer(Rewrite *r, Value v) {
    Lora *l = r->facts;
    bool adapted;
    const char *name = layer_below(l->root, layer_initializer(l->g, v));
    if (!l->weight[v] && (is_whole(l, name, v) || is_learnt_bias(l, name, &adapted)))
        return whole_state(l, r->to, name, *graph_type(l->g, v), *layer_elements(l->g, v));
    return graph_node(l->g, v)->op == OP_state
               ? build_const(r->to, *graph_type(l->g, v), *layer_elements(l->g, v))
               : 0;
}

static Value swapped(Graph *g, Value m) {
    static const uint8_t swap[] = {1, 0};
    return build_permute(g, m, swap);
}

/* Of an initializer that is a module's weight turned, as exporters leave it: the state is as the
 * module has it, [out, in], and the graph turns it. */
static Value turned_state(Lora *l, Graph *g, const char *name, const Layer *at) {
    const Constant *c = layer_elements(l->g, at->source);
    Type t = *graph_type(l->g, at->source);
    const uint64_t in = (uint64_t)at->in, out = (uint64_t)at->out, size = dtype_bytes(t.dtype);
    char *data = arena_array(g->arena, c->bytes, 1);
    for (uint64_t i = 0; i < in * out; i++)
        memcpy(data + (i % out * in + i / out) * size, (const char *)c->data + i * size, size);
    t.dim[0] = expr_const(g->exprs, at->out), t.dim[1] = expr_const(g->exprs, at->in);
    const Constant initial = {.data = data, .bytes = c->bytes, .name = name};
    return swapped(g, whole_state(l, g, name, t, initial));
}

static Value above(Rewrite *r, Value v, Value source, Value state) {
    if (v == source) return state;
    Value in = above(r, graph_node(r->from, v)->in[0], source, state);
    return build_like(r->to, graph_node(r->from, v), &in, 1);
}

/* The layer with a weight of its own. */
static Value saved(Rewrite *r, Value v, const Choice *c) {
    Lora *l = r->facts;
    const Node *n = graph_node(r->from, v);
    const char *name = weight_name(l, &c->at);
    const bool linear = c->at.kind == LAYER_linear;
    bool own = !strcmp(layer_below(l->root, layer_initializer(l->g, c->at.source)), name);
    bool turned = !own && c->at.transposed != linear;
    if (!own && (!c->at.plain || (turned && !linear)))
        return (void)diag(r->to->diags, D_UNSUPPORTED, "--lora",
                          "%s: its weight is not stored as the module has it", c->at.path),
               0;
    Value in[2], state = turned ? turned_state(l, r->to, name, &c->at)
                                : whole_state(l, r->to, name, *graph_type(l->g, c->at.source),
                                              *layer_elements(l->g, c->at.source));
    in[linear] = above(r, n->in[linear], c->at.source, state);
    in[!linear] = rewrite_in(r, v, !linear);
    return build_like(r->to, n, in, 2);
}

/* --- States of a layer ------------------------------------------------------------------------ */

/* [slots, rows, columns], of one adapter [rows, columns]. */
static Value matrix_state(const Lora *l, Graph *g, const char *path, const char *which,
                          int64_t rows, int64_t columns) {
    const Expr dim[] = {expr_const(g->exprs, l->spec->slots), expr_const(g->exprs, rows),
                        expr_const(g->exprs, columns)};
    bool one = !l->spec->slots;
    Type t = {.dtype = DT_f32, .rank = one ? 2 : 3};
    memcpy(t.dim, dim + one, t.rank * sizeof *dim);
    const char *name = arena_printf(g->arena, "%s.lora_%s", path, which);
    return build_state(g, name, t, (Constant){.name = name});
}

/* Lengths of W's columns, as an adapter that does nothing has them. */
static Constant lengths(const Lora *l, const Layer *at, const char *name) {
    const uint64_t n = (uint64_t)at->out, m = (uint64_t)at->in;
    float *out = ARENA_ARRAY(l->g->arena, float, n);
    const Constant *w = layer_elements(l->g, at->source);
    DType t = graph_type(l->g, at->source)->dtype;
    double *sum = ARENA_ARRAY(l->g->arena, double, n);
    for (uint64_t i = 0; i < n * m; i++) {
        double x = dtype_load_f64(t, w->data, i);
        sum[at->transposed ? i / m : i % n] += x * x;
    }
    for (uint64_t i = 0; i < n; i++) out[i] = (float)sqrt(sum[i]);
    return (Constant){.data = out, .bytes = n * sizeof *out, .name = name};
}

static Value vector_state(const Lora *l, Graph *g, const Layer *at, const char *which, bool norms) {
    Type t = {.dtype = DT_f32, .rank = 1, .dim = {expr_const(g->exprs, at->out)}};
    const char *name = arena_printf(g->arena, "%s.lora_%s", at->path, which);
    return build_state(g, name, t, norms ? lengths(l, at, name) : (Constant){.name = name});
}

static LoraLayer *layer_of(Lora *l, Graph *g, const Choice *c) {
    uint32_t i;
    const Layer *at = &c->at;
    if (mapstr_get(l->by_path, at->path, &i)) return &l->layers->v.v[i];
    bool linear = at->kind == LAYER_linear, dora = c->given ? c->given->magnitude : l->spec->dora;
    LoraLayer made = {.path = at->path, .kind = at->kind, .in = at->in, .out = at->out};
    made.a = matrix_state(l, g, at->path, linear ? "A.weight" : "embedding_A", c->rank, at->in);
    made.b = matrix_state(l, g, at->path, linear ? "B.weight" : "embedding_B", at->out, c->rank);
    if (dora) made.magnitude = vector_state(l, g, at, "magnitude_vector", !c->given);
    if (c->given && c->given->bias) made.bias = vector_state(l, g, at, "B.bias", false);
    mapstr_put(l->by_path, at->path, l->layers->v.n);
    vec_push(g->arena, &l->layers->v, made);
    return &l->layers->v.v[l->layers->v.n - 1];
}

/* --- What an adapter computes ----------------------------------------------------------------- */

/* Of all adapters one below the other: [in, slots * r]. */
static Value down(const Lora *l, Graph *g, const LoraLayer *layer) {
    Type t = *graph_type(g, layer->a);
    if (!l->spec->slots) return swapped(g, layer->a);
    const Expr dim[] = {expr_mul(g->exprs, t.dim[0], t.dim[1]), t.dim[2]};
    return swapped(g, build_reshape(g, layer->a, 2, dim));
}

/* Likewise [slots * r, out]. */
static Value up(const Lora *l, Graph *g, const LoraLayer *layer) {
    static const uint8_t perm[] = {0, 2, 1};
    Type t = *graph_type(g, layer->b);
    if (!l->spec->slots) return swapped(g, layer->b);
    const Expr dim[] = {expr_mul(g->exprs, t.dim[0], t.dim[2]), t.dim[1]};
    return build_reshape(g, build_permute(g, layer->b, perm), 2, dim);
}

static Value dropped(Lora *l, Graph *g, Value x) {
    const double ratio = l->spec->dropout;
    if (ratio <= 0) return x;
    return build_dropout(g, x, build_scalar_f(g, DT_f32, ratio), l->streams++, NULL);
}

/* The input that says which adapter each row goes through: rows are those of the model's first
 * input. */
static Value rows_of(Lora *l, Graph *g) {
    const Type *t = l->g->inputs.n ? &l->g->inputs.v[0].type : NULL;
    if (!l->rows && t && t->rank)
        l->rows = build_input(g, "adapter", (Type){.dtype = DT_i64, .rank = 1, .dim = {t->dim[0]}});
    return l->rows;
}

/* Whether a column of slots * r belongs to the adapter of a row: [batch, columns]. */
static Value own_columns(const Lora *l, Graph *g, Expr columns, uint32_t rank) {
    const Expr dim[] = {graph_type(g, l->rows)->dim[0], columns};
    Value slot =
        build_binary(g, OP_div, build_iota(g, DT_i64, 2, dim, 1), build_scalar_i(g, DT_i64, rank));
    return build_binary(g, OP_eq, slot, build_unsqueeze(g, l->rows, 1));
}

/* x A' with zeros in the columns of other adapters. Rows of x may be those of a batch, or of a
 * batch and more in one axis. 0: neither. */
static Value chosen(Lora *l, Graph *g, Value low, uint32_t rank) {
    const Type t = *graph_type(g, low);
    if (!rows_of(l, g)) return 0;
    const Expr one = expr_const(g->exprs, 1), batch = graph_type(g, l->rows)->dim[0];
    const Expr part = expr_div(g->exprs, t.dim[0], batch), columns = t.dim[t.rank - 1];
    Value own = own_columns(l, g, columns, rank);
    Expr dim[GRAPH_MAX_RANK];
    for (int i = 0; i < t.rank; i++) dim[i] = one;
    dim[0] = batch, dim[t.rank - 1] = columns;
    if (t.dim[0] != batch && batch != one) {
        if (expr_mul(g->exprs, part, batch) != t.dim[0]) return 0;
        const Expr apart[] = {batch, part, columns}, single[] = {batch, one, columns};
        own = build_expand(g, build_reshape(g, own, 3, single), 3, apart);
        dim[0] = t.dim[0];
    }
    own = build_reshape(g, own, t.rank, dim);
    return build_select(g, own, low, build_scalar_f(g, DT_f32, 0));
}

/* (s x A') B'. The scale stands at the small factor: backward then takes what comes as it is. */
static Value delta(Lora *l, Graph *g, const Choice *c, const LoraLayer *layer, Value low) {
    if (l->spec->slots) low = chosen(l, g, low, c->rank);
    if (!low) {
        (void)diag(g->diags, D_UNSUPPORTED, "--adapters",
                   "%s: its rows are not those of the first input", c->at.path);
        return 0;
    }
    low = build_binary_f(g, OP_mul, low, c->scale);
    Value d = build_matmul(g, low, up(l, g, layer), DT_f32);
    return layer->bias ? build_binary(g, OP_add, d, layer->bias) : d;
}

/* m / ||column of W + s (BA)'||, [out]. */
static Value dora_scale(Lora *l, Rewrite *r, const Choice *c, const LoraLayer *layer) {
    Graph *g = r->to;
    if (!c->at.matrix || !c->at.plain)
        return (void)diag(g->diags, D_UNSUPPORTED, "--lora",
                          "%s: its weight is not a matrix, which DoRA needs", c->at.path),
               0;
    Value w = build_cast(g, r->map[c->at.matrix], DT_f32), a = layer->a, b = swapped(g, layer->b);
    Value aw = build_matmul(g, a, w, DT_f32);
    Value aab = build_matmul(g, build_matmul(g, a, swapped(g, a), DT_f32), b, DT_f32);
    Value cross = build_binary(g, OP_add, build_binary_f(g, OP_mul, aw, 2 * c->scale),
                               build_binary_f(g, OP_mul, aab, c->scale * c->scale));
    Value sum = build_reduce(g, OP_reduce_sum, build_binary(g, OP_mul, b, cross), 1, false);
    Value ww = build_reduce(g, OP_reduce_sum, build_binary(g, OP_mul, w, w), 1, false);
    Value norm = build_unary(g, OP_sqrt, build_binary(g, OP_add, ww, sum));
    vec_push(g->arena, &l->layers->held, norm);
    return build_binary(g, OP_div, layer->magnitude, norm);
}

static Value sum_of(Graph *g, Value y, Value d, DType t) {
    return build_binary(g, OP_add, y, build_cast(g, d, t));
}

enum { MOST_SIBLINGS = 16 };

/* Adapted layers from v on that read what v reads. */
static uint32_t siblings(Lora *l, Graph *g, Value v, Value *out, Value *a) {
    uint32_t n = 0;
    for (Value w = v; w < l->g->nodes.n && n < MOST_SIBLINGS; w++) {
        const Choice *c = l->choice[w];
        if (!c || !c->adapted || c->at.kind != LAYER_linear || l->low[w]) continue;
        if (graph_node(l->g, w)->in[0] != graph_node(l->g, v)->in[0]) continue;
        const LoraLayer *layer = layer_of(l, g, c);
        if (layer->in != c->at.in || layer->kind != c->at.kind) continue;
        out[n] = w, a[n++] = layer->a;
    }
    return n;
}

/* x A' of layer v. Layers that read the same x multiply it once, by their As one below the other: x
 * is long and a rank is not, so that is what reading it costs, in backward as well. */
static Value lowered(Lora *l, Graph *g, Value v, Value x, const LoraLayer *layer) {
    Value to[MOST_SIBLINGS], a[MOST_SIBLINGS];
    if (l->low[v]) return l->low[v];
    uint32_t n = l->spec->slots || l->spec->dropout > 0 ? 0 : siblings(l, g, v, to, a);
    if (n < 2) return build_matmul(g, x, down(l, g, layer), DT_f32);
    Value low = build_matmul(g, x, swapped(g, build_concat(g, a, n, 0)), DT_f32);
    Expr at = expr_const(g->exprs, 0);
    for (uint32_t i = 0; i < n; i++) {
        const Expr rank = graph_type(g, a[i])->dim[0];
        l->low[to[i]] = build_slice_axis(g, low, -1, at, rank, 1);
        at = expr_add(g->exprs, at, rank);
    }
    return l->low[v];
}

static Value linear(Rewrite *r, Value v, const Choice *c, const LoraLayer *layer) {
    Lora *l = r->facts;
    Graph *g = r->to;
    const Node *n = graph_node(r->from, v);
    Value x = rewrite_in(r, v, 0), wide = build_cast(g, x, DT_f32), part = dropped(l, g, wide);
    Value d = delta(l, g, c, layer, lowered(l, g, v, part, layer));
    Value y = rewrite_copy(r, v);
    if (!layer->magnitude) return sum_of(g, y, d, n->type.dtype);
    Value of_part = y;
    if (part != wide) { /* what is scaled goes through dropout, and the layer itself does not */
        Value in[] = {build_cast(g, part, graph_type(g, x)->dtype), rewrite_in(r, v, 1)};
        of_part = build_like(g, n, in, 2);
    }
    Value scale = dora_scale(l, r, c, layer), wide_y = build_cast(g, of_part, DT_f32);
    if (of_part == y)
        return build_cast(g, build_binary(g, OP_mul, scale, build_binary(g, OP_add, wide_y, d)),
                          n->type.dtype);
    Value less = build_binary_f(g, OP_sub, scale, 1);
    Value more = build_binary(g, OP_add, build_binary(g, OP_mul, less, wide_y),
                              build_binary(g, OP_mul, scale, d));
    return sum_of(g, y, more, n->type.dtype);
}

static Value embedding(Rewrite *r, Value v, const Choice *c, const LoraLayer *layer) {
    Lora *l = r->facts;
    Graph *g = r->to;
    const Node *n = graph_node(r->from, v);
    const int last = n->type.rank - 1;
    Value a = down(l, g, layer), y = rewrite_copy(r, v);
    Expr dim[GRAPH_MAX_RANK];
    memcpy(dim, n->type.dim, sizeof dim);
    dim[last] = graph_type(g, a)->dim[1];
    Value row = build_slice_axis(g, rewrite_in(r, v, 1), last, expr_const(g->exprs, 0),
                                 expr_const(g->exprs, 1), 1);
    row = build_expand(g, row, n->type.rank, dim);
    Value d =
        delta(l, g, c, layer, build_gather(g, a, n->attr.index.src, &row, 1, n->type.rank, dim));
    if (!layer->magnitude) return sum_of(g, y, d, n->type.dtype);
    Value whole = build_binary(g, OP_add, build_cast(g, y, DT_f32), d);
    return build_cast(g, build_binary(g, OP_mul, dora_scale(l, r, c, layer), whole), n->type.dtype);
}

static Value adapt(Rewrite *r, Value v) {
    Lora *l = r->facts;
    if (r->from != l->g) return 0;
    if (layer_initializer(l->g, v)) return initializer(r, v);
    const Choice *c = l->choice[v];
    if (c && c->saved) return saved(r, v, c);
    if (!c || !c->adapted) return 0;
    const LoraLayer layer = *layer_of(l, r->to, c);
    if (layer.in != c->at.in || layer.out != c->at.out || layer.kind != c->at.kind)
        return (void)diag(r->to->diags, D_UNSUPPORTED, "--lora",
                          "%s: two layers of different sizes have that path", c->at.path),
               0;
    return c->at.kind == LAYER_linear ? linear(r, v, c, &layer) : embedding(r, v, c, &layer);
}

/* --- Was all found that was asked for? -------------------------------------------------------- */

static graphc_status lacks(Lora *l, const char *what, const char *name) {
    return diag(l->g->diags, l->spec->nmodules || l->spec->nwhole ? D_ADAPTER : D_USAGE, "--lora",
                "the model has no %s \"%s\"; its layers are: %s", what, name,
                l->all.n ? sb_str(&l->all) : "none");
}

static graphc_status no_layer(Lora *l, const char *name) {
    return diag(l->g->diags, D_USAGE, "--lora", "no layer matches \"%s\"; there are: %s", name,
                l->all.n ? sb_str(&l->all) : "none");
}

/* Each name is some layer's, be it learnt as a whole. */
static graphc_status check_names(Lora *l) {
    const char *t = l->spec->targets;
    if (l->is_regex || !t || !strcmp(t, "all-linear")) return GRAPHC_OK;
    for (const char *end; *t; t = end + (*end == ',')) {
        bool found = false;
        end = t + strcspn(t, ",");
        for (Value v = 1; v < l->g->nodes.n && !found; v++)
            found = l->choice[v] && names(t, (size_t)(end - t), l->choice[v]->at.path);
        if (end > t && !found) return no_layer(l, arena_strndup(l->g->arena, t, (size_t)(end - t)));
    }
    return GRAPHC_OK;
}

static graphc_status check_pattern(const Lora *l, const char *pattern) {
    StrBuf adapted;
    sb_init(&adapted, l->g->arena);
    for (uint32_t i = 0; i < l->layers->v.n; i++) {
        const char *path = l->layers->v.v[i].path;
        bool matches;
        GC_TRY(lora_matches(pattern, l->g->diags, path, &matches));
        if (matches) return GRAPHC_OK;
        sb_printf(&adapted, "%s%s", i ? ", " : "", path);
    }
    return diag(l->g->diags, D_USAGE, "--lora",
                "no layer with an adapter matches \"%s\"; there are: %s", pattern,
                sb_str(&adapted));
}

static graphc_status check_patterns(const Lora *l, const LoraPatterns *p) {
    for (uint32_t i = 0; i < p->n; i++) GC_TRY(check_pattern(l, p->v[i].text));
    return GRAPHC_OK;
}

static graphc_status check_found(Lora *l) {
    const LoraSpec *s = l->spec;
    uint32_t i;
    for (uint32_t k = 0; k < s->nmodules; k++)
        if (!mapstr_get(l->by_path, s->modules[k].path, &i))
            return lacks(l, s->modules[k].kind == LAYER_linear ? "linear layer" : "embedding",
                         s->modules[k].path);
    for (uint32_t k = 0; k < s->nwhole; k++)
        if (!s->whole[k].copy && !mapstr_get(l->by_name, s->whole[k].name, &i))
            return lacks(l, "parameter", s->whole[k].name);
    for (uint32_t k = 0; k < s->save.n; k++) {
        bool found = false;
        for (i = 0; i < l->layers->whole.n; i++)
            found |= is_in(s->save.v[k], l->layers->whole.v[i].name);
        if (!found) return lacks(l, "module with weights", s->save.v[k]);
    }
    if (s->nmodules || s->nwhole) return GRAPHC_OK;
    if (!l->layers->v.n) return no_layer(l, s->targets);
    GC_TRY(check_names(l));
    GC_TRY(check_patterns(l, &s->ranks));
    return check_patterns(l, &s->alphas);
}

graphc_status lora_apply(const Graph *g, const LoraSpec *s, Graph **out, LoraLayers *layers) {
    Arena *a = g->arena;
    *layers = (LoraLayers){0};
    Lora l = {.spec = s,
              .layers = layers,
              .g = g,
              .last = near_outputs(g),
              .root = s->root ? s->root : layer_root(g),
              .choice = ARENA_ARRAY(a, Choice *, g->nodes.n),
              .weight = ARENA_ARRAY(a, bool, g->nodes.n),
              .low = ARENA_ARRAY(a, Value, g->nodes.n),
              .adapted = mapstr_create(a),
              .by_path = mapstr_create(a),
              .by_name = mapstr_create(a),
              .listed = mapstr_create(a)};
    sb_init(&l.all, a);
    const char *targets = s->targets ? s->targets : "";
    l.is_regex = strpbrk(targets, "*[]()|\\^$+?") != NULL;
    if (l.is_regex && regcomp(&l.regex, targets, REG_EXTENDED))
        return diag(g->diags, D_USAGE, "--lora", "\"%s\" is no regular expression", targets);
    graphc_status st = choose_all(&l);
    if (l.is_regex) regfree(&l.regex);
    GC_TRY(st);
    *out = rewrite_graph(g, adapt, NULL, &l);
    GC_TRY(diag_status(g->diags));
    return check_found(&l);
}
