/* Several ways to compute a kernel at the same sizes: which is emitted when, and by what name one
 * that was tuned is found again. */
#include "codegen/nvptx/gpu.h"
#include "runtime/base/map.h"
#include <string.h>

bool gpu_has_ways(const Gpu *g) {
    return g->o->variants > 1 || g->o->tuned;
}

/* Of what the body computes, whatever its expressions are; facts have the sizes. */
static uint64_t body_of(const Kernel *k) {
    uint64_t h = (uint64_t)k->kind << 8 | (uint64_t)k->tem;
    for (uint32_t i = 0; i < k->nparams; i++) {
        uint64_t p[] = {(uint64_t)k->params[i].dtype, k->params[i].written};
        h = hash_bytes(p, sizeof p, h);
    }
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        uint64_t op[] = {(uint64_t)o->op, (uint64_t)o->dtype, o->fold, o->in[0],
                         o->in[1],        o->in[2],           o->axes, o->buf};
        h = hash_bytes(op, sizeof op, h);
    }
    return h;
}

static uint32_t find_way(const char *name, const char *const *ways, uint32_t n) {
    uint32_t i = 0;
    while (i < n && strcmp(ways[i], name) != 0) i++;
    return i;
}

uint32_t gpu_ways(Gpu *g, const char *facts, const char *const *ways, uint32_t n) {
    CompileJob *j = g->j;
    if (!gpu_has_ways(g) || !n) return 0;
    j->signature =
        arena_printf(j->arena, "%s body=%016llx", facts, (unsigned long long)body_of(j->k));
    const char *tuned =
        g->o->tuned ? g->o->tuned(g->o->tuned_ctx, g->target->name, j->signature) : NULL;
    uint32_t first = tuned ? find_way(tuned, ways, n) : 0;
    j->stale = first == n;
    if (first == n) first = 0;
    uint32_t at = !j->variant ? first : j->variant <= first ? j->variant - 1 : j->variant;
    if (at >= n) at = first;
    uint32_t most = g->o->variants < n ? g->o->variants : n;
    j->way = ways[at];
    j->spare = true;
    j->nvariants = most ? most - 1 : 0;
    j->choice = expr_const(g->e->exprs, 0);
    return at;
}
