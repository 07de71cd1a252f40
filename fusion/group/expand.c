/* What a group needs for a value that it computes. */
#include "fusion/analyse/facts.h"

static void await_pack(Fuse *f, Group *g, const Pack *k) {
    group_dep(f, g, k->group);
    if (k->scale) group_dep(f, g, f->packs.v[k->scale - 1].group);
    if (k->zero) group_dep(f, g, f->packs.v[k->zero - 1].group);
}

static void expand_dot(Fuse *f, Group *g, Value v, IdxId idx) {
    const Node *n = graph_node(f->g, v);
    DotIdx d = idx_dot(f, g, v, idx);
    bool attn = g->attn != NULL;
    const AttnMatch *m = group_attention(g, v);
    if (m) {
        uint32_t side = m->side;
        fuse_demand(f, g, n->in[0], d.a, side ? USE_value : USE_point, READ_plain);
        fuse_demand(f, g, n->in[1], d.b, side ? USE_point : USE_value, READ_plain);
        return;
    }
    bool row = fuse_is_depthwise(f, v);
    bool keys_left = attn && (idx_axes_used(f, g, d.a) & axis_bit(g, g->attn->jsym));
    Use left = !attn ? USE_a : keys_left ? USE_key : USE_query;
    Use right = !attn ? USE_b : keys_left ? USE_query : USE_key;
    if (attn && g->attn->gradient) left = right = USE_key; /* no side is computed */
    fuse_demand(f, g, n->in[0], d.a, left, d.a_mask ? READ_masked : READ_plain);
    if (!attn && !row) f->kinds[GROUP_pack].store(f, v);
    if (!f->v[v].pack)
        fuse_demand(f, g, n->in[1], d.b, right, READ_plain);
    else
        await_pack(f, g, &f->packs.v[f->v[v].pack - 1]);
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
    fuse_demand(f, g, n->in[0], at, use, idx_gather_mask(f, v) ? READ_masked : reads);
}

void fuse_expand(Fuse *f, Group *g, Value v, IdxId idx, Use use, uint8_t reads) {
    const Node *n = graph_node(f->g, v);
    vec_push(f->arena, &g->inlined, v);
    g->nvalues += op_info[n->op].cls != OPC_VIEW && op_info[n->op].cls != OPC_SOURCE;
    g->nfolds += fuse_is_fold(f, v);
    fuse_await_sizes(f, g, v);
    if (fuse_is_dot(f, v)) {
        expand_dot(f, g, v, idx);
    } else if (op_is_reduce((Op)n->op)) {
        IdxId in = idx_reduce(f, g, v, idx);
        fuse_demand(f, g, n->in[0], in, USE_point, reads);
    } else if (n->op == OP_gather) {
        expand_gather(f, g, v, idx, use, reads);
    } else {
        for (uint32_t i = 0; i < n->nin; i++) {
            Expr mask;
            IdxId in = idx_operand(f, g, v, i, idx, &mask);
            if (mask && expr_is_value(f->p, mask, 0)) continue; /* never read there */
            g->nmasks += mask != 0;
            fuse_demand(f, g, n->in[i], in, use, mask ? READ_masked : reads);
        }
    }
}

/* Inlines v wherever it is demanded. The list may not be walked by pointer: splitting an axis never
 * changes demands, but expanding may not touch this value's own list either (graphs are acyclic) */
void fuse_inline(Fuse *f, Value v) {
    const VState *s = &f->v[v];
    for (uint32_t i = 0; fuse_is_read(f, v) && i < s->demands.n; i++) {
        uint32_t g = s->demands.v[i].group, k = 0;
        while (s->demands.v[k].group != g) k++;
        if (k == i) f->groups.v[g]->nreads--; /* computed, not read */
    }
    for (uint32_t i = 0; i < s->demands.n; i++) {
        Demand d = f->v[v].demands.v[i];
        fuse_expand(f, f->groups.v[d.group], v, d.idx, d.use, d.reads);
    }
}

/* Other demands stay. */
void fuse_inline_inside(Fuse *f, Value v) {
    VState *s = &f->choice[v];
    uint32_t n = s->demands.n;
    for (uint32_t i = 0; i < n;) {
        Demand d = s->demands.v[i];
        Group *g = f->groups.v[d.group];
        if (!group_has_inside(g, v, d.idx)) {
            i++;
            continue;
        }
        s->demands.v[i] = s->demands.v[--n];
        s->demands.n = n;
        if (!fuse_demands(f, g, v)) g->nreads--;
        fuse_expand(f, g, v, d.idx, d.use, d.reads);
    }
}
