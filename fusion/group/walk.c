/* The walk from the outputs backwards, which decides which kernels there are. See fuse.h. */
#include "fusion/analyse/facts.h"
#include "fusion/group/decide.h"

/* --- Stored values ------------------------------------------------------------------------ */

static Group *new_epilogue_group(Fuse *f, Value dot) {
    VState *s = &f->choice[dot];
    Group *g = s->attn ? f->groups.v[s->attn->group] : group_new(f, GROUP_map);
    if (!s->attn) g->anchor_idx = idx_dot_axes(f, g, dot);
    group_want(g, dot, true);
    s->dot_group = g->id + 1;
    return g;
}

static bool storable_order(const Fuse *f, const Group *g, IdxId idx) {
    uint32_t last = 1u << (g->naxes - 1);
    return g->attn || !expr_awkward(f, g, idx_get(g, idx)->flat, last);
}

enum { LEAST_TURNED = 1 << 18 }; /* elements of a result that is worth a kernel to turn it */

/* Matrix units' kernels store rows of columns. An output that has columns apart, as images with
 * channels first have, or an operand of products that are told apart by them, is turned by a kernel
 * of its own: several times sooner, where it is large. */
static bool stores_across(const Fuse *f, const Group *g, Value v, IdxId idx) {
    Value dot = f->fact[v].epi;
    if (!f->fact[v].output && !fuse_turns_products(f, v)) return false;
    if (f->m->inline_flops.half_a > 0 || fuse_numel(f, v) < LEAST_TURNED) return false;
    if (g->attn || !dtype_is_half(graph_type(f->g, graph_node(f->g, dot)->in[0])->dtype))
        return false;
    const Idx *at = idx_get(g, g->anchor_idx), *x = idx_get(g, idx);
    uint32_t last = x->rank;
    while (last && expr_is_value(f->p, x->extent[last - 1], 1)) last--;
    uint32_t columns = expr_axes_used(f, g, at->dim[at->rank - 1]);
    return last && columns && !(expr_axes_used(f, g, x->dim[last - 1]) & columns);
}

/* A group for v alone: the epilogue of its contraction, or a map over its own shape. */
static Group *new_home(Fuse *f, Value v, IdxId *idx) {
    const Fact *s = &f->fact[v];
    bool own = v == s->epi; /* a contraction, which nothing is fused with so far */
    if (s->epi && !f->v[s->epi].dot_group && fuse_may_follow(f, v, s->epi) &&
        (own || fuse_may(f, v, "laid out as the epilogue of its contraction"))) {
        Group *g = new_epilogue_group(f, s->epi);
        if (g->attn && g->attn->with[0] && group_needs_reader(f, g, v))
            fuse_set_apart(f, g->attn->o);
        g->prepare = s->const_only;
        *idx = fuse_native(f, g, v, s->epi);
        if (storable_order(f, g, *idx) && !stores_across(f, g, v, *idx)) return g;
        f->choice[s->epi].dot_group = 0;
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
        f->kinds[GROUP_join].store(f, v);
        return;
    }
    Group *g = fuse_join(f, v, &idx);
    if (!g) g = new_home(f, v, &idx);
    if (op_is_reduce((Op)n->op)) idx_reduce(f, g, v, idx); /* the layout looks at the row */
    fuse_choose_layout(f, g, v);
    f->choice[v].wide = fuse_is_statistic(f, v);
    fuse_add_root(f, g, v, idx);
}

static GroupKind kind_of(const Group *g) {
    if (!g->attn) return GROUP_dot;
    if (!g->attn->gradient) return GROUP_attention;
    return g->attn->with[0] ? GROUP_attention_gradients : GROUP_attention_gradient;
}

/* A contraction becomes the anchor of the group that wants it, when nobody else does; otherwise it
 * is stored, by that group too if possible. */
static void visit_dot(Fuse *f, Value v) {
    VState *s = &f->choice[v];
    const Fact *fact = &f->fact[v];
    Group *g = NULL;
    uint32_t groups[2];
    uint32_t n = fuse_demanders(f, v, groups, 2);
    if (n == 1 && s->demands.n == 1) g = f->groups.v[groups[0]];
    IdxId idx = g ? s->demands.v[0].idx : 0;
    bool native =
        g && g->want && idx == idx_canon(g, group_anchor(g, v)) && g->prepare == fact->const_only;
    bool wanted = native && (group_wants(g, v) || (g->anchor && fuse_siblings(f, g->want, v)));
    bool term = native && !wanted && fuse_is_term(f, g, v);
    if (!s->must && (wanted || term) &&
        (s->attn || fuse_may(f, v, "computed where its epilogue is"))) {
        if (group_wants(g, v)) g->anchor = v;
        if (term) vec_push(f->arena, &g->terms, ((Term){.dot = v}));
        fuse_expand(f, g, v, idx, USE_point, READ_plain);
    } else {
        s->why = n > 1 ? WHY_shared : g && group_axes(g, AX_RED) ? WHY_tile_row : WHY_kind;
        Group *wanting = s->dot_group ? f->groups.v[s->dot_group - 1] : NULL;
        g = fuse_join(f, v, &idx);
        if (!g && wanting && s->attn) { /* there is one group for it, which cannot store it */
            fuse_set_apart(f, v);
            return;
        }
        if (!g) {
            if (wanting) group_want(wanting, v, false);
            s->dot_group = 0;
            g = new_home(f, v, &idx);
        }
        g->anchor = v;
        fuse_choose_layout(f, g, v);
        fuse_add_root(f, g, v, idx);
    }
    if (g->anchor != v) return;
    g->kind = kind_of(g);
}

/* --- The walk ----------------------------------------------------------------------------- */

/* An attention's kernel that has an epilogue computes all of it: that was one decision. */
static bool is_decided(const Fuse *f, Value v) {
    Value o = f->fact[v].epi;
    const AttnMatch *m = o ? f->v[o].attn : NULL;
    for (uint32_t i = 0; m && i < f->v[v].demands.n; i++)
        if (f->v[v].demands.v[i].group != m->group) return false;
    return m != NULL;
}

static bool may_inline(Fuse *f, Value v) {
    if (is_decided(f, v) || fuse_may(f, v, "computed where it is read")) return true;
    f->choice[v].why = WHY_stopped;
    return false;
}

static bool inlines(Fuse *f, Value v) {
    FusionWhy why = f->v[v].why;
    const bool is = fuse_try_inline(f, v, &why);
    f->choice[v].why = why;
    return is;
}

static void visit(Fuse *f, Value v) {
    VState *s = &f->choice[v];
    const Node *n = graph_node(f->g, v);
    fuse_tidy_demands(f, v);
    fuse_inline_inside(f, v);
    if (!s->must && !s->demands.n) return;
    if (op_is_leaf((Op)n->op)) return;
    if (n->op == OP_proj) { /* its readers wait for the loop or branch */
        for (uint32_t i = 0; i < s->demands.n; i++)
            vec_push(f->arena, &f->choice[n->in[0]].demands, s->demands.v[i]);
        f->choice[n->in[0]].must = true;
        return;
    }
    if (s->attn && v == s->attn->lse)
        fuse_store_lse(f, v);
    else if (special_is(f, v))
        f->kinds[fuse_kind(f, v)].store(f, v);
    else if (fuse_is_dot(f, v))
        visit_dot(f, v);
    else if (inlines(f, v) && (op_info[n->op].cls == OPC_SOURCE || may_inline(f, v)))
        fuse_inline(f, v);
    else
        store(f, v);
}

/* Graph outputs that are inputs, constants or other outputs are copied. */
static void copy_outputs(Fuse *f) {
    for (uint32_t i = 0; i < f->g->outputs.n; i++) {
        Value v = f->g->outputs.v[i].value;
        if (!fuse_wants(f, f->g->outputs.v[i].entries)) continue;
        if (f->fact[v].output == i + 1 || f->io->out[i] == NO_BUFFER) continue;
        Group *g = group_new(f, GROUP_map);
        Root r = {.v = v, .idx = idx_axes(f, g, graph_type(f->g, v)), .to = TO_output, .at = i};
        vec_push(f->arena, &g->roots, r);
        fuse_demand(f, g, v, r.idx, USE_data, READ_plain);
    }
}

static const Root *own_root(const Group *g, Value v) {
    for (uint32_t i = 0; i < g->roots.n; i++)
        if (g->roots.v[i].v == v && g->roots.v[i].to == TO_own) return &g->roots.v[i];
    return NULL;
}

/* Who stores a value stores it for all outputs that it is, where that is no template. */
static void spare_copy(Fuse *f, Group *copy) {
    Root r = copy->roots.v[0];
    Group *g = f->v[r.v].group ? f->groups.v[f->v[r.v].group - 1] : copy;
    const Root *own = own_root(g, r.v);
    if (g == copy || g->kind != GROUP_map || !own || g->roots.n + g->nreads >= K_MAX_PARAMS) return;
    if (!fuse_may(f, r.v, "stored for two outputs")) return;
    r.idx = own->idx;
    vec_push(f->arena, &g->roots, r);
    copy->roots.n = 0;
}

static void spare_copies(Fuse *f) {
    for (uint32_t i = 0; i < f->groups.n; i++) {
        Group *g = f->groups.v[i];
        if (g->roots.n == 1 && g->roots.v[0].to == TO_output) spare_copy(f, g);
    }
}

bool fuse_group(Fuse *f) {
    copy_outputs(f);
    fuse_copy_states(f);
    for (Value v = f->g->nodes.n; v-- > 1;) visit(f, v);
    spare_copies(f);
    fuse_writers_wait(f);
    return !f->stuck;
}
