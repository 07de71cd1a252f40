/* Computing a value again against storing and reading it. */
#include "fusion/analyse/facts.h"
#include "fusion/group/decide.h"
#include <math.h>

#define MANY_GROUPS  8 /* that read a number: */
#define NUMBER_FLOPS 8 /* it is computed once if that is more work than this */

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

/* How far out an axis is walked: by its stride in the first store, a row inside of everything. */
static double loop_rank(const Fuse *f, const Group *g, uint32_t axis) {
    if (g->axes[axis].kind == AX_RED) return -1;
    if (g->kind != GROUP_map || g->attn || !g->roots.n) return (double)(g->naxes - axis);
    const Root *r = &g->roots.v[0];
    Expr at = root_is_at_home(r) ? home_index(f, g, r->v, r->idx) : idx_get(g, r->idx)->flat, coef,
         rest;
    if (!expr_affine(f->p, at, g->axes[axis].sym, &coef, &rest)) return (double)(g->naxes - axis);
    return fuse_hint(f, coef);
}

/* How often a value is computed in g for this demand: over the axes its index uses and the ones
 * that are walked outside of them. Templates compute their operands about once per element. */
static double evaluations(const Fuse *f, Value v, const Demand *d) {
    const Group *g = f->groups.v[d->group];
    uint32_t used = idx_axes_used(f, g, d->idx);
    if (d->use >= USE_query) return fuse_numel(f, v);
    if (is_indirect(f, g, d->idx)) used = (1u << g->naxes) - 1;
    double n = 1, rank[K_MAX_AXES], inner = HUGE_VAL;
    for (uint32_t i = 0; i < g->naxes; i++) {
        rank[i] = loop_rank(f, g, i);
        if ((used >> i & 1) && rank[i] < inner) inner = rank[i];
    }
    for (uint32_t i = 0; i < g->naxes; i++) {
        bool apart = group_is_column(g, g->axes[i].sym); /* not a loop around scores */
        bool around = rank[i] > inner && !apart;
        if ((used >> i & 1) || around) n *= fuse_hint(f, g->axes[i].extent);
    }
    return n < 1 ? 1 : n;
}

/* Is computing v again wherever it is demanded cheaper than storing and reading it? */
bool fuse_recompute_pays(const Fuse *f, Value v, uint32_t ngroups) {
    const VState *s = &f->v[v];
    const Fact *fact = &f->fact[v];
    const Machine *m = f->m;
    double numel = fuse_numel(f, v), rate = m->flops_per_s / 2, evals = 0;
    /* Every thread of every kernel would compute it: powers, of a step's rate. */
    if (ngroups > MANY_GROUPS && numel <= 1 && fact->flops > NUMBER_FLOPS) return false;
    double extra =
        fact->flops > 1 ? fact->flops - 1 : 0; /* the load of a stored value costs about 1 */
    for (uint32_t i = 0; i < s->demands.n; i++) evals += evaluations(f, v, &s->demands.v[i]);
    if (ngroups == 1) {
        const Demand *d = &s->demands.v[0];
        if (evals <= 1.5 * numel) return true;
        if (fact->stat && s->demands.n == 1 &&
            idx_row_fits(f, f->groups.v[d->group], fact->stat, d->idx))
            return true;
        double again = (evals - numel) * extra / rate;
        return again <= 2 * fuse_bytes(f, v) / m->bytes_per_s + m->launch_s;
    }
    double launch = fuse_try_home(f, v).g ? 0 : m->launch_s;
    double inlined = evals * extra / rate + ngroups * fact->leaf_bytes / m->bytes_per_s;
    double stored = numel * fact->flops / rate + launch +
                    (fact->leaf_bytes + (1 + ngroups) * fuse_bytes(f, v)) / m->bytes_per_s;
    return inlined <= stored;
}
