/* Facts about the graph that decisions rest on. */
#include "fusion/analyse/facts.h"
#include "graph/ir/attr.h"
#include "graph/pass/rewrite.h"

static void count_users(Fuse *f, Fact *fact) {
    const Graph *g = f->g;
    uint32_t n = g->nodes.n;
    const bool *live = graph_needed(g, f->entry);
    for (Value v = 1; v < n; v++) {
        const Node *x = graph_node(g, v);
        for (uint32_t i = 0; live[v] && i < x->nin; i++) fact[x->in[i]].nusers++;
    }
    uint32_t at = 0;
    for (Value v = 1; v < n; v++) {
        fact[v].first_user = at;
        at += fact[v].nusers;
        fact[v].nusers = 0;
    }
    Value *users = ARENA_ARRAY(f->arena, Value, at);
    f->users = users;
    for (Value v = 1; v < n; v++) {
        if (!live[v]) continue;
        const Node *x = graph_node(g, v);
        for (uint32_t i = 0; i < x->nin; i++) {
            Fact *s = &fact[x->in[i]];
            users[s->first_user + s->nusers++] = v;
        }
    }
}

static void count_readers(Fuse *f, Fact *fact) {
    for (Value v = f->g->nodes.n; v-- > 1;) {
        Fact *s = &fact[v];
        for (uint32_t i = 0; i < s->nusers; i++) {
            Value u = f->users[s->first_user + i];
            const Node *x = graph_node(f->g, u);
            bool view = op_info[x->op].cls == OPC_VIEW && x->nin == 1 && !fact[u].must;
            s->readers += view ? fact[u].readers : 1;
        }
    }
}

static void find_reach(Fuse *f) {
    uint32_t n = f->g->nodes.n;
    uint32_t *dots = ARENA_ARRAY(f->arena, uint32_t, n);
    f->dots = dots;
    f->ndots = 0;
    Value *attention = ARENA_ARRAY(f->arena, Value, n); /* over scores, or their logsumexp */
    for (Value v = 1; v < n; v++) {
        const Node *x = graph_node(f->g, v);
        bool pair = x->op == OP_attention || x->op == OP_logsumexp;
        Value first = pair ? attention[x->in[0]] : 0;
        if (first)
            dots[v] = dots[first]; /* one kernel gives both */
        else if (pair || fuse_is_dot(f, v))
            dots[v] = ++f->ndots;
        if (pair && !first) attention[x->in[0]] = v;
    }
    f->words = (f->ndots + 63) / 64;
    uint64_t *reach = ARENA_ARRAY(f->arena, uint64_t, (size_t)n * f->words);
    f->reach = reach;
    for (Value v = 1; v < n; v++) {
        const Node *x = graph_node(f->g, v);
        uint64_t *to = &reach[(size_t)v * f->words];
        for (uint32_t i = 0; i < x->nin; i++)
            for (uint32_t w = 0; w < f->words; w++)
                to[w] |= f->reach[(size_t)x->in[i] * f->words + w];
        uint32_t d = f->dots[v];
        if (d) to[(d - 1) / 64] |= UINT64_C(1) << (d - 1) % 64;
    }
}

static bool is_const_only(const Fuse *f, const Node *n) {
    if (n->op == OP_const) return true;
    OpClass c = op_info[n->op].cls;
    if (op_is_leaf((Op)n->op) || c == OPC_CONTROL || c == OPC_RANDOM || n->op == OP_compact)
        return false;
    if (!type_is_static(f->p, &n->type) || !attr_is_static(f->g, n)) return false;
    for (uint32_t i = 0; i < n->nin; i++)
        if (!f->fact[n->in[i]].const_only) return false;
    return true;
}

/* The contraction whose epilogue may compute v: the latest one among its operands', provided that
 * nothing else v needs has to wait for that contraction, and that v is not late where it is not. */
static void find_epilogue(const Fuse *f, Fact *fact, Value v) {
    const Node *n = graph_node(f->g, v);
    Fact *s = &fact[v];
    if (fuse_is_dot(f, v)) {
        s->epi = v;
        return;
    }
    bool view = n->op == OP_reshape || n->op == OP_permute;
    if (op_info[n->op].cls != OPC_MAP && !view) return;
    Value best = 0, from = 0;
    for (uint32_t i = 0; i < n->nin; i++)
        if (fact[n->in[i]].epi > best) best = fact[n->in[i]].epi, from = n->in[i];
    if (n->late && !graph_node(f->g, best)->late) best = 0;
    for (uint32_t i = 0; i < n->nin && best; i++)
        if (fact[n->in[i]].epi != best && fuse_depends(f, n->in[i], best)) best = 0;
    if ((f->apart && f->apart[best]) || fact[best].alone) best = 0;
    s->epi = best;
    s->epi_from = best ? from : 0;
}

/* Maps and views of a reduction's result, element for element. */
static void find_stat(const Fuse *f, Fact *fact, Value v) {
    const Node *n = graph_node(f->g, v);
    OpClass c = op_info[n->op].cls;
    if (op_is_reduce((Op)n->op)) fact[v].stat = v, fact[v].folds = fuse_numel(f, v) == 1;
    for (uint32_t i = 0; (c == OPC_MAP || c == OPC_VIEW) && i < n->nin; i++)
        fact[v].folds |= fact[n->in[i]].folds;
    if (c != OPC_MAP && n->op != OP_reshape && n->op != OP_permute) return;
    for (uint32_t i = 0; i < n->nin; i++)
        if (fact[n->in[i]].stat) fact[v].stat = fact[n->in[i]].stat;
}

bool fuse_is_boundary(const Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    const Fact *s = &f->fact[v];
    OpClass c = op_info[n->op].cls;
    if (op_is_leaf((Op)n->op)) return true;
    if (c == OPC_MAP || c == OPC_VIEW || c == OPC_SOURCE || n->op == OP_gather)
        return s->must || (s->readers > 1 && (s->epi || s->flops > 4) && c != OPC_VIEW);
    return true;
}

static double own_flops(const Node *n) {
    double cost = (double)op_info[n->op].cost;
    return n->op == OP_concat ? cost * ((double)n->nin - 1) : cost;
}

static void estimate(const Fuse *f, Fact *fact, Value v) {
    const Node *n = graph_node(f->g, v);
    Fact *s = &fact[v];
    double numel = fuse_numel(f, v);
    s->flops = own_flops(n);
    for (uint32_t i = 0; i < n->nin; i++) {
        Value w = n->in[i];
        double share = fuse_numel(f, w) / numel;
        if (fuse_is_boundary(f, w)) {
            s->leaf_bytes += fuse_bytes(f, w);
            continue;
        }
        s->flops += fact[w].flops * (share > 1 ? 1 : share);
        if (n->op == OP_slice && graph_node(f->g, w)->op == OP_concat) /* one part is known */
            s->flops -= own_flops(graph_node(f->g, w)) * (share > 1 ? 1 : share);
        s->leaf_bytes += fact[w].leaf_bytes;
    }
}

static void count_lookups(const Fuse *f, Fact *fact, Value v) {
    const Node *n = graph_node(f->g, v);
    const OpClass c = op_info[n->op].cls;
    const bool finds = n->op == OP_gather;
    if (!finds && c != OPC_MAP && c != OPC_VIEW) return;
    for (uint32_t i = finds ? 1 : 0; i < n->nin; i++)
        if (fact[n->in[i]].lookups + finds > fact[v].lookups)
            fact[v].lookups = fact[n->in[i]].lookups + finds;
}

/* Depthwise convolutions run over channels: their weights are stored with channels innermost. */
static void keep_depthwise_weights(const Fuse *f, Fact *fact, Value v) {
    if (!fuse_is_depthwise(f, v)) return;
    Value w = graph_node(f->g, v)->in[1];
    if (fact[w].const_only && op_info[graph_node(f->g, w)->op].cls == OPC_VIEW) fact[w].must = true;
}

/* States that grow, and what becomes of one by appending: it lies in the same buffer, where what is
 * there stays and only the rest is stored. */
static void find_growing(const Fuse *f, Fact *fact) {
    for (uint32_t i = 0; i < f->g->states.n; i++)
        if (f->g->states.v[i].grows) fact[f->g->states.v[i].value].grows = i + 1;
    for (uint32_t i = 0; i < f->g->writes.n; i++) {
        const StateWrite *w = &f->g->writes.v[i];
        const StateInfo *s = &f->g->states.v[w->state];
        const Node *n = graph_node(f->g, w->value);
        if (!s->grows || !fuse_wants(f, w->entries) || n->op != OP_concat) continue;
        if (n->in[0] == s->value && n->attr.axis.axis == (int32_t)s->grows - 1)
            fact[w->value].grows = w->state + 1;
    }
}

/* Counts one more update of the contractions that v is made of, element for element. seen: those of
 * this update have its number. */
static void count_update(const Fuse *f, Value v, uint32_t number, uint32_t *seen,
                         uint32_t *updates) {
    const Node *n = graph_node(f->g, v);
    if (seen[v] == number) return;
    seen[v] = number;
    if (n->op == OP_dot) updates[v]++;
    if (op_info[n->op].cls != OPC_MAP && n->op != OP_reshape && n->op != OP_permute) return;
    for (uint32_t i = 0; i < n->nin; i++)
        if (fuse_numel(f, n->in[i]) == fuse_numel(f, v))
            count_update(f, n->in[i], number, seen, updates);
}

/* Contractions that several large states move by: a gradient, of a weight and its moments. */
static void find_updates(const Fuse *f, Fact *fact) {
    uint32_t *seen = ARENA_ARRAY(f->arena, uint32_t, f->g->nodes.n);
    uint32_t *updates = ARENA_ARRAY(f->arena, uint32_t, f->g->nodes.n);
    if (f->m->apart_bytes <= 0) return;
    for (uint32_t i = 0; i < f->g->writes.n; i++) {
        const StateWrite *w = &f->g->writes.v[i];
        if (fuse_wants(f, w->entries) && fuse_bytes(f, w->value) >= f->m->apart_bytes)
            count_update(f, w->value, i + 1, seen, updates);
    }
    for (Value v = 1; v < f->g->nodes.n; v++) fact[v].alone = updates[v] > 1;
}

void fuse_analyse(Fuse *f) {
    uint32_t n = f->g->nodes.n;
    Fact *fact = ARENA_ARRAY(f->arena, Fact, n);
    f->fact = fact;
    f->definer = graph_definers(f->g);
    count_users(f, fact);
    count_readers(f, fact);
    find_reach(f);
    find_growing(f, fact);
    find_updates(f, fact);
    for (uint32_t i = 0; i < f->g->outputs.n; i++) {
        Fact *s = &fact[f->g->outputs.v[i].value];
        Op op = (Op)graph_node(f->g, f->g->outputs.v[i].value)->op;
        /* Copied, see walk.c. A loop or branch stores its results at the start of buffers. */
        const bool based = op == OP_proj && f->io->base && f->io->base[i];
        if (op_is_leaf(op) || s->output || s->grows || based ||
            !fuse_wants(f, f->g->outputs.v[i].entries))
            continue;
        s->must = true;
        s->output = i + 1;
    }
    for (uint32_t i = 0; i < f->g->writes.n; i++) {
        Value v = f->g->writes.v[i].value;
        if (!fuse_wants(f, f->g->writes.v[i].entries)) continue;
        if (!op_is_leaf((Op)graph_node(f->g, v)->op)) fact[v].must = fact[v].written = true;
    }
    for (Value v = 1; v < n; v++) {
        /* Outputs and states are the session's memory: every run writes them. */
        fact[v].const_only =
            !fact[v].output && !fact[v].written && is_const_only(f, graph_node(f->g, v));
        keep_depthwise_weights(f, fact, v);
        find_epilogue(f, fact, v);
        find_stat(f, fact, v);
        estimate(f, fact, v);
        count_lookups(f, fact, v);
    }
}
