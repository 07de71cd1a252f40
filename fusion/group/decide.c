/* Inline or store? All demands on the value are known here; the decision is made once. */
#include "fusion/group/fuse.h"
#include <math.h>
#include <string.h>

#define MAX_DEMANDERS 64
#define MAX_INLINED   400 /* values in one group */
#define MAX_READS     44  /* buffers that one group reads: of K_MAX_PARAMS, roots want some, too */
#define MAX_ROOTS     8   /* values that one group stores */
#define MAX_PARTS     8   /* operands of a concatenation that is inlined */

uint32_t fuse_demanders(const Fuse *f, Value v, uint32_t *groups, uint32_t max) {
    const VState *s = &f->v[v];
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->demands.n; i++) {
        uint32_t k = 0;
        while (k < n && groups[k] != s->demands.v[i].group) k++;
        if (k == n && n < max) groups[n++] = s->demands.v[i].group;
    }
    return n;
}

bool fuse_demands(const Fuse *f, const Group *g, Value v) {
    const VState *s = &f->v[v];
    for (uint32_t i = 0; i < s->demands.n; i++)
        if (s->demands.v[i].group == g->id) return true;
    return false;
}

/* May g compute v? Its operands take v's place among what g reads. */
static bool has_room(const Fuse *f, const Group *g, Value v) {
    const Node *n = graph_node(f->g, v);
    uint32_t more = 0;
    if (n->nin <= 1 || g->nreads + n->nin <= MAX_READS) return true;
    for (uint32_t i = 0; i < n->nin; i++) more += !fuse_demands(f, g, n->in[i]);
    return more <= 1 || g->nreads + more <= MAX_READS;
}

bool fuse_siblings(const Fuse *f, Value a, Value b) {
    const Node *x = graph_node(f->g, a), *y = graph_node(f->g, b);
    if (x->op != y->op || x->in[0] != y->in[0] || !type_equal(&x->type, &y->type)) return false;
    if (f->v[a].attn || f->v[b].attn) return false;
    if (!type_equal(graph_type(f->g, x->in[1]), graph_type(f->g, y->in[1]))) return false;
    /* One kernel has one form of B operands: a constant one and a fed one are no siblings. */
    if (fuse_packs(f, a) != fuse_packs(f, b)) return false;
    if (x->op == OP_conv)
        return !fuse_is_depthwise(f, a) && !fuse_is_wino(f, a) && !fuse_is_wino(f, b) &&
               !memcmp(&x->attr.conv, &y->attr.conv, sizeof x->attr.conv);
    return true;
}

/* --- Costs -------------------------------------------------------------------------------- */

static bool is_indirect(const Fuse *f, const Group *g, IdxId idx);

/* How far out an axis is walked: by its stride in the first store, a row inside of everything. */
static double loop_rank(Fuse *f, Group *g, uint32_t axis) {
    if (g->axes[axis].kind == AX_RED) return -1;
    if (g->kind != GROUP_map || g->attn || !g->roots.n) return (double)(g->naxes - axis);
    const Root *r = &g->roots.v[0];
    Expr at = r->into ? idx_get(g, r->idx)->flat : home_index(f, g, r->v, r->idx), coef, rest;
    if (!expr_affine(f->p, at, g->axes[axis].sym, &coef, &rest)) return (double)(g->naxes - axis);
    return fuse_hint(f, coef);
}

/* How often a value is computed in g for this demand: over the axes its index uses and the ones
 * that are walked outside of them. Templates compute their operands about once per element. */
static double evaluations(Fuse *f, Value v, const Demand *d) {
    Group *g = f->groups.v[d->group];
    uint32_t used = idx_axes_used(f, g, d->idx);
    if (d->use >= USE_score) return fuse_numel(f, v);
    if (is_indirect(f, g, d->idx)) used = (1u << g->naxes) - 1;
    double n = 1, rank[K_MAX_AXES], inner = HUGE_VAL;
    for (uint32_t i = 0; i < g->naxes; i++) {
        rank[i] = loop_rank(f, g, i);
        if ((used >> i & 1) && rank[i] < inner) inner = rank[i];
    }
    for (uint32_t i = 0; i < g->naxes; i++) {
        bool apart = g->attn && g->axes[i].sym == g->attn->nsym; /* not a loop around scores */
        bool around = rank[i] > inner && !apart;
        if ((used >> i & 1) || around) n *= fuse_hint(f, g->axes[i].extent);
    }
    return n < 1 ? 1 : n;
}

typedef struct Found {
    const Fuse *f;
    bool indirect;
} Found;

static void find_indirect(void *ctx, uint32_t sym) {
    Found *s = ctx;
    if (expr_sym_info(s->f->p, sym)->kind == SYM_INDIRECT) s->indirect = true;
}

static bool is_indirect(const Fuse *f, const Group *g, IdxId idx) {
    Found s = {f, false};
    const Idx *x = idx_get(g, idx);
    for (uint32_t i = 0; i < x->rank; i++) expr_each_sym(f->p, x->dim[i], find_indirect, &s);
    return s.indirect;
}

/* Most arithmetic that may be inlined for each way of use. */
static double use_limit(Use u) {
    static const double limit[] = {[USE_point] = 1e9, [USE_data] = 2, [USE_score] = 10,
                                   [USE_value] = 1.5, [USE_a] = 1.5,  [USE_b] = 0.5};
    return limit[u];
}

static bool uses_allow(const Fuse *f, Value v, double flops) {
    const VState *s = &f->v[v];
    for (uint32_t i = 0; i < s->demands.n; i++)
        if (flops > use_limit(s->demands.v[i].use)) return false;
    return true;
}

static bool fits(const Fuse *f, Value v) {
    const VState *s = &f->v[v];
    bool view = op_info[graph_node(f->g, v)->op].cls == OPC_VIEW;
    for (uint32_t i = 0; i < s->demands.n; i++) {
        const Group *g = f->groups.v[s->demands.v[i].group];
        if ((!view && g->inlined.n > MAX_INLINED) || !has_room(f, g, v)) return false;
    }
    return true;
}

/* Is computing v again wherever it is demanded cheaper than storing and reading it? */
static bool recompute_pays(Fuse *f, Value v, uint32_t ngroups) {
    const VState *s = &f->v[v];
    const Machine *m = f->m;
    double numel = fuse_numel(f, v), rate = m->flops_per_s / 2, evals = 0;
    double extra = s->flops > 1 ? s->flops - 1 : 0; /* the load of a stored value costs about 1 */
    for (uint32_t i = 0; i < s->demands.n; i++) evals += evaluations(f, v, &s->demands.v[i]);
    if (ngroups == 1) {
        const Demand *d = &s->demands.v[0];
        if (evals <= 1.5 * numel) return true;
        if (s->stat && s->demands.n == 1 && idx_row_fits(f, f->groups.v[d->group], s->stat, d->idx))
            return true;
        double again = (evals - numel) * extra / rate;
        return again <= 2 * fuse_bytes(f, v) / m->bytes_per_s + m->launch_s;
    }
    IdxId idx;
    double launch = fuse_home(f, v, &idx) ? 0 : m->launch_s;
    double inlined = evals * extra / rate + ngroups * s->leaf_bytes / m->bytes_per_s;
    double stored = numel * s->flops / rate + launch +
                    (s->leaf_bytes + (1 + ngroups) * fuse_bytes(f, v)) / m->bytes_per_s;
    return inlined <= stored;
}

/* --- Epilogues ---------------------------------------------------------------------------- */

/* The one index at which the one group demands v, or 0. */
static IdxId single_demand(const Fuse *f, Value v, Group **g) {
    const VState *s = &f->v[v];
    const Demand *d = s->demands.n == 1 ? &s->demands.v[0] : NULL;
    if (!d || d->reads != READ_plain || d->use != USE_point) return 0;
    *g = f->groups.v[s->demands.v[0].group];
    return s->demands.v[0].idx;
}

/* v belongs to the epilogue of the group that demands it. */
static bool in_epilogue(Fuse *f, Value v) {
    Group *g;
    IdxId idx = single_demand(f, v, &g);
    Value dot = f->v[v].epi;
    if (!idx || !g->want || g->prepare != f->v[v].const_only) return false;
    if (g->want != dot && !fuse_siblings(f, g->want, dot)) return false;
    return fuse_native(f, g, v, dot) == idx;
}

/* Attention's result is stored in the order in which the contraction behind it wants to read. */
static bool stores_permuted(const Fuse *f, Value v) {
    const VState *s = &f->v[v];
    bool read_by_dot = false, permuted = false;
    if (!f->v[s->epi].attn) return false;
    for (uint32_t i = 0; i < s->demands.n; i++)
        read_by_dot = read_by_dot || s->demands.v[i].use >= USE_a;
    if (!read_by_dot) return false;
    for (Value w = v; op_info[graph_node(f->g, w)->op].cls == OPC_VIEW;) {
        permuted = permuted || graph_node(f->g, w)->op == OP_permute;
        w = graph_node(f->g, w)->in[0];
        if (f->v[w].nusers > 1 || f->v[w].must) return false;
    }
    return permuted;
}

/* Its contraction cannot store v in rows: its columns were split and permuted on the way. */
static bool behind_permute(const Fuse *f, Value v) {
    bool permuted = false, reshaped = false;
    if (f->v[f->v[v].epi].attn) return false;
    for (; f->v[v].epi_from; v = f->v[v].epi_from) {
        permuted = permuted || graph_node(f->g, v)->op == OP_permute;
        reshaped = reshaped || graph_node(f->g, v)->op == OP_reshape;
    }
    return permuted && reshaped;
}

/* Groups outside the epilogue are known to read `from`; *same: one of them is v's reader. */
static bool read_elsewhere(const Fuse *f, Value v, Value from, bool *same) {
    bool found = false;
    *same = false;
    for (uint32_t i = 0; i < f->v[from].demands.n; i++) {
        const Demand *d = &f->v[from].demands.v[i];
        if (f->groups.v[d->group]->want == f->v[v].epi) continue;
        found = true;
        *same = *same || d->group == f->v[v].demands.v[0].group;
    }
    return found;
}

static bool inlines_map(Fuse *f, Value v, uint32_t ngroups);

static bool inlines_epilogue(Fuse *f, Value v, uint32_t ngroups) {
    const Node *n = graph_node(f->g, v);
    if (in_epilogue(f, v)) return true;
    if (op_info[n->op].cls == OPC_VIEW) return !stores_permuted(f, v);
    if (behind_permute(f, v)) return inlines_map(f, v, ngroups);
    /* What is little more than another value that is stored anyway need not be stored, too. */
    Value from = f->v[v].epi_from;
    bool same_group;
    if (!read_elsewhere(f, v, from, &same_group)) {
        return n->op == OP_cast && f->v[from].nusers > 1 && uses_allow(f, v, 0.5);
    }
    double own = f->v[v].flops - f->v[from].flops;
    return uses_allow(f, v, own < 0 ? 0 : own) && (own <= 1 || (same_group && ngroups == 1));
}

/* --- Classes ------------------------------------------------------------------------------ */

/* A contraction's operand has to be affine in what it walks. */
static bool awkward_operand(const Fuse *f, Value v) {
    const VState *s = &f->v[v];
    const Node *n = graph_node(f->g, v);
    if (n->op != OP_reshape) return false;
    for (uint32_t i = 0; i < s->demands.n; i++) {
        Group *g = f->groups.v[s->demands.v[i].group];
        if (s->demands.v[i].use < USE_score || g->kind == GROUP_pack) continue;
        Expr mask;
        IdxId in = idx_operand((Fuse *)(uintptr_t)f, g, v, 0, s->demands.v[i].idx, &mask);
        uint32_t walked = group_axes(g, AX_RED) | (g->kind == GROUP_attention ? g->fixed : 0);
        if (idx_awkward(f, g, in, walked)) return true;
    }
    return false;
}

static bool inlines_concat(Fuse *f, Value v, uint32_t ngroups) {
    const Node *n = graph_node(f->g, v);
    const VState *s = &f->v[v];
    if (n->nin > MAX_PARTS) return false;
    for (uint32_t i = 0; i < s->demands.n; i++) {
        Use u = s->demands.v[i].use;
        if (u == USE_data || u == USE_a || u == USE_value) return false;
        if (u == USE_b && f->groups.v[s->demands.v[i].group]->kind != GROUP_pack) return false;
    }
    return uses_allow(f, v, s->flops) && recompute_pays(f, v, ngroups);
}

static bool inlines_reduce(Fuse *f, Value v, uint32_t ngroups) {
    VState *s = &f->v[v];
    Group *g;
    IdxId idx = single_demand(f, v, &g);
    s->why = ngroups > 1 ? WHY_shared : WHY_recompute;
    if (!idx || (f->v[v].const_only && !g->prepare)) return false;
    return idx_reduce(f, g, v, idx, &s->why) != 0;
}

static bool inlines_map(Fuse *f, Value v, uint32_t ngroups) {
    VState *s = &f->v[v];
    s->why = WHY_template_input;
    if (!uses_allow(f, v, s->flops)) return false;
    if (s->const_only && s->flops >= 1 && fuse_numel(f, v) > 1) {
        const Group *g = f->groups.v[s->demands.v[0].group];
        if (ngroups > 1 || !g->prepare) return false;
    }
    s->why = ngroups > 1 ? WHY_shared : WHY_recompute;
    return recompute_pays(f, v, ngroups);
}

static bool inlines_view(Fuse *f, Value v, uint32_t ngroups) {
    if (graph_node(f->g, v)->op == OP_concat) return inlines_concat(f, v, ngroups);
    return !awkward_operand(f, v);
}

bool fuse_inlines(Fuse *f, Value v) {
    VState *s = &f->v[v];
    const Node *n = graph_node(f->g, v);
    uint32_t groups[MAX_DEMANDERS];
    uint32_t ngroups = fuse_demanders(f, v, groups, MAX_DEMANDERS);
    OpClass c = op_info[n->op].cls;
    if (s->must) return false; /* why: see schedule.c */
    if (c == OPC_SOURCE) return true;
    s->why = WHY_too_large;
    if (!fits(f, v)) return false;
    s->why = ngroups > 1 ? WHY_shared : WHY_kind;
    if (s->epi) return inlines_epilogue(f, v, ngroups);
    switch (c) {
    case OPC_VIEW: return inlines_view(f, v, ngroups);
    case OPC_REDUCE: return inlines_reduce(f, v, ngroups);
    case OPC_MAP:
    case OPC_RANDOM:
    case OPC_INDEX: return inlines_map(f, v, ngroups);
    default: return false;
    }
}

/* --- Where a stored value is computed ----------------------------------------------------- */

/* All groups but `home` that read v must not be needed by it. */
static bool no_cycle(Fuse *f, Value v, Group *home) {
    const VState *s = &f->v[v];
    for (uint32_t i = 0; i < s->demands.n; i++) {
        Group *other = f->groups.v[s->demands.v[i].group];
        if (other != home && group_reaches(f, home, other)) return false;
    }
    return true;
}

static Group *epilogue_home(Fuse *f, Value v, IdxId *idx) {
    Value dot = f->v[v].epi;
    uint32_t id = f->v[dot].dot_group;
    Group *g = id ? f->groups.v[id - 1] : NULL;
    if (!g || g->want != dot || g->prepare != f->v[v].const_only || !no_cycle(f, v, g)) return NULL;
    *idx = fuse_native(f, g, v, dot);
    for (uint32_t i = 0; i < f->v[v].demands.n; i++) {
        const Demand *d = &f->v[v].demands.v[i];
        if (d->group == g->id && idx_canon(g, d->idx) != *idx) return NULL;
    }
    return g->roots.n < MAX_ROOTS && has_room(f, g, v) ? g : NULL;
}

/* Can the group store v at this demand: once for each of its elements? */
static bool can_store(Fuse *f, const Group *g, const Demand *d, Value v) {
    if (g->kind != GROUP_map || !(d->reads & READ_plain) || d->use != USE_point ||
        g->roots.n >= MAX_ROOTS)
        return false;
    if (g->prepare != f->v[v].const_only || !has_room(f, g, v)) return false;
    uint32_t par = group_axes(g, AX_PAR), row = group_axes(g, AX_RED);
    if (g->want && graph_node(f->g, v)->op == OP_concat) return false;
    if (idx_covers(f, g, d->idx, par)) return true;
    if (!row || !idx_covers(f, g, d->idx, par | row)) return false;
    /* The windows of pooling are no rows to store. */
    const Idx *x = idx_get(g, d->idx);
    bool window = false;
    for (uint32_t i = 0; i < x->rank; i++) {
        uint32_t used = expr_axes_used(f, g, x->dim[i]);
        window = window || ((used & par) && (used & row));
    }
    return !window || fuse_hint(f, group_extent(f, g, row)) >= 16;
}

static Group *sibling_reading(Fuse *f, Value v, Value operand, IdxId *idx) {
    const VState *s = &f->v[operand];
    for (uint32_t i = 0; i < s->demands.n; i++) {
        Group *g = f->groups.v[s->demands.v[i].group];
        if (g->want || g->nreads > MAX_READS / 2 || fuse_demands(f, g, v)) continue;
        if (!can_store(f, g, &s->demands.v[i], v) || !no_cycle(f, v, g)) continue;
        *idx = s->demands.v[i].idx;
        return g;
    }
    return NULL;
}

/* A group that reads, once and over v's whole shape, something that v is computed from: an operand,
 * or one further up through values that nobody else uses. It may not read v itself: that would be
 * elsewhere than where it stores v, so in memory that it has not written yet. */
Group *fuse_sibling_home(Fuse *f, Value v, IdxId *idx) {
    if (f->v[v].epi) return NULL;
    Value at = v;
    for (int depth = 0; depth < 6; depth++) {
        const Node *n = graph_node(f->g, at);
        if (op_info[n->op].cls != OPC_MAP) return NULL;
        Value next = 0;
        for (uint32_t k = 0; k < n->nin; k++) {
            if (fuse_is_const_leaf(f, n->in[k])) continue;
            Group *g = sibling_reading(f, v, n->in[k], idx);
            for (uint32_t u = 0; !g && u < f->v[n->in[k]].nusers && u < 8; u++) {
                Value user = fuse_user(f, n->in[k], u);
                if (user == at || op_info[graph_node(f->g, user)->op].cls != OPC_MAP) continue;
                g = sibling_reading(f, v, user, idx);
            }
            if (g) return g;
            if (f->v[n->in[k]].nusers == 1) next = n->in[k];
        }
        if (!next) return NULL;
        at = next;
    }
    return NULL;
}

Group *fuse_home(Fuse *f, Value v, IdxId *idx) {
    const VState *s = &f->v[v];
    if (s->epi) return epilogue_home(f, v, idx);
    Group *best = NULL;
    for (uint32_t i = 0; i < s->demands.n; i++) {
        const Demand *d = &s->demands.v[i];
        Group *g = f->groups.v[d->group];
        uint32_t same = 0;
        for (uint32_t k = 0; k < s->demands.n; k++) same += s->demands.v[k].group == d->group;
        if (same != 1 || !can_store(f, g, d, v) || !no_cycle(f, v, g)) continue;
        if (best && !(best->want && !g->want)) continue;
        FusionWhy why;
        if (op_is_reduce((Op)graph_node(f->g, v)->op) && !idx_reduce(f, g, v, d->idx, &why))
            continue;
        best = g;
        *idx = d->idx;
    }
    return best;
}
