/* Why values were stored that a kernel could have computed. */
#include "fusion/schedule/stage.h"
#include "fusion/analyse/facts.h"

/* Does the group read v with a kernel of its own? */
static bool is_reader(const Fuse *f, Value v, const Group *g) {
    return g->id + 1 != f->v[v].group && !f->kinds[g->kind].no_kernel && g->roots.n;
}

/* Does the group's kernel read v along an axis that it folds away, as an operand's elements are? */
static bool reads_again(const Fuse *f, const Group *g, Value v) {
    const Kernel *k = g->kernel;
    uint32_t folded = 0;
    if (!k) return true;
    uint32_t *domain = ARENA_ARRAY(f->arena, uint32_t, k->nops);
    kir_domains(k, f->p, domain);
    for (uint32_t i = 0; i < k->naxes; i++)
        if (k->axes[i].kind == AX_RED) folded |= 1u << i;
    for (KVal i = 1; i < k->nops; i++)
        if (k->ops[i].op == K_kload && f->s->buffers.v[g->bufs[k->ops[i].buf]].node == v &&
            (domain[i] & folded))
            return true;
    return false;
}

static FusionWhy why_stored(const Fuse *f, Value v, const Group *to) {
    const VState *s = &f->v[v];
    const Fact *fact = &f->fact[v];
    if (fact->output) return WHY_output;
    if (s->must) return WHY_placed;
    if (fact->epi && f->groups.v[s->group - 1]->anchor && to->anchor)
        return reads_again(f, to, v) ? WHY_template_input : WHY_anchors;
    return s->why;
}

/* What storing a value cost: each kernel that wanted it reads it, and an only reader would have
 * spared the write, too. */
static void explain_value(Fuse *f, Value v) {
    const VState *s = &f->v[v];
    const Type *t = graph_type(f->g, v);
    uint32_t groups[64], n = fuse_demanders(f, v, groups, 64), readers = 0;
    for (uint32_t i = 0; i < n; i++) readers += is_reader(f, v, f->groups.v[groups[i]]);
    int64_t times = readers == 1 && !s->must ? 2 : 1;
    Expr bytes = expr_muli(f->p, type_numel(f->p, t), times * (int64_t)dtype_bytes(t->dtype));
    for (uint32_t i = 0; i < n; i++) {
        const Group *to = f->groups.v[groups[i]];
        if (!is_reader(f, v, to)) continue;
        Refusal r = {f->groups.v[s->group - 1]->step, to->step, why_stored(f, v, to), bytes};
        vec_push(f->arena, &f->s->refusals, r);
    }
}

void fuse_explain(Fuse *f) {
    for (Value v = 1; v < f->g->nodes.n; v++) {
        const VState *s = &f->v[v];
        const Fact *fact = &f->fact[v];
        if (!s->group || fact->const_only || f->groups.v[s->group - 1]->kind == GROUP_join)
            continue;
        if (!special_is(f, v)) explain_value(f, v);
    }
}
