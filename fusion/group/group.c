/* Decides, value by value from the outputs backwards, which kernels there are. See fuse.h. */
#include "fusion/group/fuse.h"
#include "graph/pass/rewrite.h"

/* --- Demands ------------------------------------------------------------------------------ */

static Demand *find_demand(VState *s, uint32_t group, IdxId idx) {
    for (uint32_t i = 0; i < s->demands.n; i++)
        if (s->demands.v[i].group == group && s->demands.v[i].idx == idx) return &s->demands.v[i];
    return NULL;
}

static void add_demand(Fuse *f, VState *s, Demand d) {
    Demand *same = find_demand(s, d.group, d.idx);
    if (!same) {
        vec_push(f->arena, &s->demands, d);
        return;
    }
    if (d.use > same->use) same->use = d.use;
    same->reads |= d.reads;
}

/* Stored values, inputs and constants of several elements are read from a buffer. */
static bool is_read(const Fuse *f, Value v) {
    Op op = (Op)graph_node(f->g, v)->op;
    if (op == OP_const) return fuse_numel(f, v) > 1;
    return op == OP_input || op_info[op].cls != OPC_SOURCE;
}

void fuse_demand(Fuse *f, Group *g, Value v, IdxId idx, Use use, uint8_t reads) {
    if (is_read(f, v) && !fuse_demands(f, g, v)) g->nreads++;
    add_demand(f, &f->v[v], (Demand){g->id, idx, use, reads});
}

typedef struct Await {
    Fuse *f;
    Group *g;
    Value v;
} Await;

static void await_symbol(void *ctx, uint32_t sym) {
    Await *a = ctx;
    Value d = a->f->definer[sym];
    if (d && d != a->v) fuse_demand(a->f, a->g, d, 0, USE_data, READ_masked);
}

void fuse_await_sizes(Fuse *f, Group *g, Value v) {
    Await a = {f, g, v};
    graph_node_syms(f->g, graph_node(f->g, v), await_symbol, &a);
}

void group_dep(Fuse *f, Group *g, uint32_t on) {
    if (g->id == on) return;
    for (uint32_t i = 0; i < g->deps.n; i++)
        if (g->deps.v[i] == on) return;
    vec_push(f->arena, &g->deps, on);
}

static bool reaches(Fuse *f, Group *from, const Group *to) {
    if (from == to) return true;
    if (from->mark == f->mark) return false;
    from->mark = f->mark;
    for (uint32_t i = 0; i < from->deps.n; i++)
        if (reaches(f, f->groups.v[from->deps.v[i]], to)) return true;
    return false;
}

bool group_reaches(Fuse *f, Group *from, Group *to) {
    f->mark++;
    return reaches(f, from, to);
}

/* --- What an inlined value needs ---------------------------------------------------------- */

static void expand_dot(Fuse *f, Group *g, Value v, IdxId idx) {
    const Node *n = graph_node(f->g, v);
    DotIdx d = idx_dot(f, g, v, idx);
    bool attn = g->attn != NULL;
    if (attn && v == g->attn->o) {
        fuse_demand(f, g, n->in[0], d.a, USE_point, READ_plain);
        fuse_demand(f, g, n->in[1], d.b, USE_value, READ_plain);
        return;
    }
    bool row = fuse_is_depthwise(f, v);
    fuse_demand(f, g, n->in[0], d.a, attn ? USE_score : USE_a, d.a_mask ? READ_masked : READ_plain);
    uint32_t pack = attn || row ? 0 : fuse_pack(f, v);
    if (!pack)
        fuse_demand(f, g, n->in[1], d.b, attn ? USE_score : USE_b, READ_plain);
    else
        group_dep(f, g, f->packs.v[pack - 1].group);
}

static void expand_gather(Fuse *f, Group *g, Value v, IdxId idx, Use use, uint8_t reads) {
    const Node *n = graph_node(f->g, v);
    const Type *data = graph_type(f->g, n->in[0]);
    IdxId at = idx_gather(f, g, v, idx, 0);
    for (uint32_t d = 0; d < data->rank; d++) {
        int src = n->attr.index.src[d];
        Expr known;
        if (src >= 0 || idx_known(f, n->in[-src], data->dim[d], &known)) continue;
        fuse_demand(f, g, n->in[-src], idx, USE_point, reads);
        if (use == USE_point) use = USE_data;
    }
    fuse_demand(f, g, n->in[0], at, use, reads);
}

void fuse_expand(Fuse *f, Group *g, Value v, IdxId idx, Use use, uint8_t reads) {
    const Node *n = graph_node(f->g, v);
    vec_push(f->arena, &g->inlined, v);
    fuse_await_sizes(f, g, v);
    if (fuse_is_dot(f, v)) {
        expand_dot(f, g, v, idx);
    } else if (op_is_reduce((Op)n->op)) {
        FusionWhy why;
        IdxId in = idx_reduce(f, g, v, idx, &why);
        GC_ASSERT(in);
        fuse_demand(f, g, n->in[0], in, USE_point, reads);
    } else if (n->op == OP_gather) {
        expand_gather(f, g, v, idx, use, reads);
    } else {
        for (uint32_t i = 0; i < n->nin; i++) {
            Expr mask;
            IdxId in = idx_operand(f, g, v, i, idx, &mask);
            if (mask && expr_is_value(f->p, mask, 0)) continue; /* never read there */
            fuse_demand(f, g, n->in[i], in, use, mask ? READ_masked : reads);
        }
    }
}

/* Inlines v wherever it is demanded. The list may not be walked by pointer: splitting an axis never
 * changes demands, but expanding may not touch this value's own list either (graphs are acyclic).
 */
static void inline_all(Fuse *f, Value v) {
    const VState *s = &f->v[v];
    for (uint32_t i = 0; is_read(f, v) && i < s->demands.n; i++) {
        uint32_t g = s->demands.v[i].group, k = 0;
        while (s->demands.v[k].group != g) k++;
        if (k == i) f->groups.v[g]->nreads--; /* computed, not read */
    }
    for (uint32_t i = 0; i < s->demands.n; i++) {
        Demand d = f->v[v].demands.v[i];
        fuse_expand(f, f->groups.v[d.group], v, d.idx, d.use, d.reads);
    }
}

/* --- Roots -------------------------------------------------------------------------------- */

IdxId fuse_native(Fuse *f, Group *g, Value v, Value dot) {
    if (v == dot) return idx_canon(g, g->anchor_idx);
    return idx_result(f, g, v, fuse_native(f, g, f->v[v].epi_from, dot));
}

/* Everybody who demands v has to wait for the group that stores it. */
static void depend_on(Fuse *f, Value v, const Group *home) {
    const VState *s = &f->v[v];
    for (uint32_t i = 0; i < s->demands.n; i++) {
        group_dep(f, f->groups.v[s->demands.v[i].group], home->id);
    }
}

void fuse_add_root(Fuse *f, Group *g, Value v, IdxId idx) {
    Root r = {.v = v, .idx = idx};
    vec_push(f->arena, &g->roots, r);
    f->v[v].group = g->id + 1;
    if (fuse_demands(f, g, v)) g->nreads--;
    depend_on(f, v, g);
    fuse_expand(f, g, v, idx, USE_point, READ_plain);
}

static Group *new_epilogue_group(Fuse *f, Value dot) {
    VState *s = &f->v[dot];
    Group *g = s->attn ? f->groups.v[s->attn->group] : group_new(f, GROUP_map);
    if (!s->attn) g->anchor_idx = idx_dot_axes(f, g, dot);
    g->want = dot;
    s->dot_group = g->id + 1;
    return g;
}

static bool storable_order(const Fuse *f, const Group *g, IdxId idx) {
    uint32_t last = 1u << (g->naxes - 1);
    return g->attn || !expr_awkward(f, g, idx_get(g, idx)->flat, last);
}

/* A group for v alone: the epilogue of its contraction, or a map over its own shape. */
static Group *new_home(Fuse *f, Value v, IdxId *idx) {
    VState *s = &f->v[v];
    if (s->epi && !f->v[s->epi].dot_group) {
        Group *g = new_epilogue_group(f, s->epi);
        g->prepare = s->const_only;
        *idx = fuse_native(f, g, v, s->epi);
        if (storable_order(f, g, *idx)) return g;
        f->v[s->epi].dot_group = 0;
    }
    Group *g = group_new(f, GROUP_map);
    g->prepare = s->const_only;
    *idx = idx_axes(f, g, graph_type(f->g, v));
    return g;
}

static void store(Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    IdxId idx = 0;
    if (n->op == OP_concat) {
        fuse_store_concat(f, v);
        return;
    }
    Group *g = fuse_home(f, v, &idx);
    if (!g) g = fuse_sibling_home(f, v, &idx);
    if (!g) g = new_home(f, v, &idx);
    fuse_choose_layout(f, g, v);
    fuse_add_root(f, g, v, idx);
}

/* A contraction becomes the anchor of the group that wants it, when nobody else does; otherwise it
 * is stored, by that group too if possible. */
static void visit_dot(Fuse *f, Value v) {
    VState *s = &f->v[v];
    Group *g = NULL;
    uint32_t groups[2];
    uint32_t n = fuse_demanders(f, v, groups, 2);
    if (n == 1 && s->demands.n == 1) g = f->groups.v[groups[0]];
    IdxId idx = g ? s->demands.v[0].idx : 0;
    bool native = g && g->want && idx == idx_canon(g, g->anchor_idx) && g->prepare == s->const_only;
    if (!s->must && native && (g->want == v || (g->anchor && fuse_siblings(f, g->want, v)))) {
        if (g->want == v) g->anchor = v;
        fuse_expand(f, g, v, idx, USE_point, READ_plain);
    } else {
        s->why = n > 1 ? WHY_shared : g && group_axes(g, AX_RED) ? WHY_tile_row : WHY_kind;
        Group *wanting = s->dot_group ? f->groups.v[s->dot_group - 1] : NULL;
        g = fuse_home(f, v, &idx);
        if (!g) {
            if (wanting && wanting->want == v) wanting->want = 0;
            if (wanting && wanting->attn) wanting = NULL;
            s->dot_group = 0;
            g = new_home(f, v, &idx);
        }
        g->anchor = v;
        fuse_choose_layout(f, g, v);
        fuse_add_root(f, g, v, idx);
    }
    if (g->anchor == v) g->kind = s->attn ? GROUP_attention : GROUP_dot;
}

/* Axes may have been split since the demands were made. */
static void tidy_demands(Fuse *f, Value v) {
    VState *s = &f->v[v];
    uint32_t n = s->demands.n;
    s->demands.n = 0;
    for (uint32_t i = 0; i < n; i++) {
        Demand d = s->demands.v[i];
        d.idx = idx_canon(f->groups.v[d.group], d.idx);
        add_demand(f, s, d);
    }
}

static void visit(Fuse *f, Value v) {
    VState *s = &f->v[v];
    const Node *n = graph_node(f->g, v);
    s->visited = true;
    tidy_demands(f, v);
    if (!s->must && !s->demands.n) return;
    if (n->op == OP_input || n->op == OP_const) return;
    if (n->op == OP_proj) { /* its readers wait for the loop or branch */
        for (uint32_t i = 0; i < s->demands.n; i++)
            vec_push(f->arena, &f->v[n->in[0]].demands, s->demands.v[i]);
        f->v[n->in[0]].must = true;
        return;
    }
    if (s->attn && v != s->attn->o)
        inline_all(f, v);
    else if (special_is(f, v))
        special_root(f, v);
    else if (fuse_is_dot(f, v))
        visit_dot(f, v);
    else if (fuse_inlines(f, v))
        inline_all(f, v);
    else
        store(f, v);
}

/* Graph outputs that are inputs, constants or other outputs are copied. */
static void copy_outputs(Fuse *f) {
    for (uint32_t i = 0; i < f->g->outputs.n; i++) {
        Value v = f->g->outputs.v[i].value;
        if (f->v[v].output == i + 1 || (f->out_buf && f->out_buf[i] == NO_BUFFER)) continue;
        Group *g = group_new(f, GROUP_map);
        Root r = {.v = v, .idx = idx_axes(f, g, graph_type(f->g, v)), .output = i + 1};
        vec_push(f->arena, &g->roots, r);
        fuse_demand(f, g, v, r.idx, USE_data, READ_plain);
    }
}

void fuse_group(Fuse *f) {
    copy_outputs(f);
    for (Value v = f->g->nodes.n; v-- > 1;) visit(f, v);
}
