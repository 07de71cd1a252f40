/* Concatenations in memory: producers store straight into their part where they can. */
#include "fusion/analyse/facts.h"
#include "fusion/group/decide.h"
#include "fusion/special/special.h"

static bool any_heavy(const Fuse *f, Value concat);

/* A value that some kernel computes anyway, with no other place to be stored. A concatenation that
 * others read too lies inside the one it is part of: features that grow layer by layer are never
 * copied. */
static bool stores_itself(const Fuse *f, Value concat, uint32_t part) {
    const Node *n = graph_node(f->g, concat);
    Value p = n->in[part];
    const VState *s = &f->v[p];
    const Fact *fact = &f->fact[p];
    const Node *x = graph_node(f->g, p);
    OpClass c = op_info[x->op].cls;
    for (uint32_t i = 0; i < part; i++)
        if (n->in[i] == p) return false;
    if (c == OPC_SOURCE || c == OPC_CONTROL || s->must || s->home ||
        fact->const_only != f->fact[concat].const_only)
        return false;
    if (x->op == OP_concat)
        return (fact->nusers > 1 || x->attr.axis.axis != n->attr.axis.axis) && any_heavy(f, p);
    if (c == OPC_VIEW) return fact->epi && fact->nusers == 1;
    return !special_is(f, p);
}

static bool any_heavy(const Fuse *f, Value concat) {
    const Node *n = graph_node(f->g, concat);
    for (uint32_t i = 0; i < n->nin; i++) {
        const Fact *s = &f->fact[n->in[i]];
        const Node *x = graph_node(f->g, n->in[i]);
        bool heavy = s->epi || op_is_reduce((Op)x->op) || s->flops > 8 || s->nusers > 1 ||
                     x->op == OP_concat;
        if (heavy && stores_itself(f, concat, i)) return true;
    }
    return false;
}

/* Parts of one type that are computed from each other's operands: one kernel that stores all of
 * them reads those once. */
static bool computed_together(const Fuse *f, Value concat) {
    const Node *n = graph_node(f->g, concat);
    if (!f->m->digits || n->type.dtype != DT_f16) return false;
    for (uint32_t i = 0; i < n->nin; i++) {
        const Node *x = graph_node(f->g, n->in[i]);
        if (x->op != OP_reshape || graph_node(f->g, x->in[0])->op != OP_cast) return false;
        if (!type_equal(&x->type, graph_type(f->g, n->in[0]))) return false;
    }
    return true;
}

/* Of a contraction or attention. */
static bool is_operand(const Fuse *f, Value v) {
    for (uint32_t i = 0; i < f->v[v].demands.n; i++)
        if (f->v[v].demands.v[i].use >= USE_query) return true;
    return false;
}

#define MAX_COPIES 16 /* parts that one kernel copies */
#define FEW_PARTS  2  /* which a select tells apart */

/* Several values of one type, each of them made of what part 0 is made of: columns of a product,
 * that a kernel gives all at once. */
static bool share_operands(const Fuse *f, Value concat) {
    const Node *n = graph_node(f->g, concat);
    Value first[FUSE_MAX_LOOK] = {n->in[0]};
    const uint32_t nfirst = fuse_look_under(f, first, 1);
    if (!f->m->mixes || n->nin <= FEW_PARTS || n->nin > MAX_COPIES) return false;
    for (uint32_t i = 0; i < n->nin; i++) {
        Value under[FUSE_MAX_LOOK] = {n->in[i]};
        const OpClass c = op_info[graph_node(f->g, n->in[i])->op].cls;
        if ((c != OPC_MAP && c != OPC_VIEW) || f->fact[n->in[i]].epi || f->v[n->in[i]].must ||
            !type_equal(graph_type(f->g, n->in[i]), graph_type(f->g, n->in[0])))
            return false;
        bool shared = false;
        for (uint32_t k = fuse_look_under(f, under, 1); k-- > 1 && !shared;)
            for (uint32_t l = 1; l < nfirst && !shared; l++)
                shared = under[k] == first[l] && fuse_numel(f, first[l]) >= fuse_numel(f, first[0]);
        if (!shared) return false;
    }
    return true;
}

/* Copies a part: in `last`, which copies others, where it has the same axes and is not full. */
static Group *copy_part(Fuse *f, Group *join, Value concat, uint32_t part, Group *last) {
    Value p = graph_node(f->g, concat)->in[part];
    const Type *t = graph_type(f->g, p);
    Root r = {.v = p, .to = TO_part, .into = concat, .at = part};
    bool joins =
        last && last->roots.n < MAX_COPIES && type_equal(graph_type(f->g, last->roots.v[0].v), t);
    Group *g = joins ? last : group_new(f, GROUP_map);
    g->prepare = f->fact[concat].const_only;
    r.idx = joins ? last->roots.v[0].idx : idx_axes(f, g, t);
    vec_push(f->arena, &g->roots, r);
    group_dep(f, join, g->id);
    fuse_demand(f, g, p, r.idx, USE_point, READ_plain);
    return g;
}

/* Either one kernel that selects among the parts, or, when a part comes out of a kernel that could
 * store it in place, one store per part under a group that joins them. */
void concat_store(Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    const bool grows = f->fact[v].grows, together = share_operands(f, v);
    if (n->nin <= 4 && !grows && !any_heavy(f, v) && !together && !computed_together(f, v)) {
        IdxId idx;
        Group *g = fuse_join(f, v, &idx);
        if (!g) {
            g = group_new(f, GROUP_map);
            g->prepare = f->fact[v].const_only;
            idx = idx_axes(f, g, &n->type);
        }
        fuse_choose_layout(f, g, v);
        fuse_add_root(f, g, v, idx);
        return;
    }
    Group *join = group_new(f, GROUP_join);
    fuse_place_parts(f, v);
    /* Matrix units fetch rows of what their readers walk. */
    if (!grows && is_operand(f, v) && fuse_is_fetched(f, n->type.dtype) &&
        f->m->inline_flops.half_a <= 0)
        fuse_choose_layout(f, join, v);
    f->choice[v].group = join->id + 1;
    fuse_readers_wait(f, v, join);
    Group *copies = NULL;
    for (uint32_t i = grows; i < n->nin; i++) { /* the first part of what grows is there */
        Value p = n->in[i];
        if (together || !stores_itself(f, v, i) || !fuse_may(f, p, "stored into a concatenation")) {
            copies = copy_part(f, join, v, i, copies);
            continue;
        }
        f->choice[p].home = v;
        f->choice[p].home_part = i;
        f->choice[p].must = true;
        fuse_demand(f, join, p, 0, USE_data, READ_masked);
    }
}
