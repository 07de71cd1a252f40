/* Drops ops that no store needs: casts around loads that are passed on as they are, and the like */
#include "fusion/body/body.h"

typedef struct Prune {
    Body *b;
    bool *live;
    MapU64 *binder; /* symbol -> the op that binds it */
} Prune;

static void keep_symbol(void *ctx, uint32_t sym) {
    Prune *p = ctx;
    uint32_t bind;
    if (map_get(p->binder, sym, &bind)) p->live[bind] = true;
}

static void keep_operands(Prune *p, const KOp *o) {
    for (int i = 0; i < 3; i++)
        if (o->in[i]) p->live[o->in[i]] = true;
    if (o->index) expr_each_sym(p->b->f->p, o->index, keep_symbol, p);
    if (o->mask) expr_each_sym(p->b->f->p, o->mask, keep_symbol, p);
}

void body_prune(Body *b) {
    uint32_t n = b->ops.n, kept = 1;
    Prune p = {b, ARENA_ARRAY(b->f->arena, bool, n), map_create(b->f->arena)};
    uint32_t *to = ARENA_ARRAY(b->f->arena, uint32_t, n);
    for (uint32_t i = 1; i < n; i++)
        if (b->ops.v[i].op == K_kbind) map_put(p.binder, b->ops.v[i].sym, i);
    for (uint32_t i = n; i-- > 1;) {
        const KOp *o = &b->ops.v[i];
        bool effect = o->op == K_kstore || o->op == K_katomic || o->op == K_kcompact;
        if (!effect && !p.live[i]) continue;
        p.live[i] = true;
        keep_operands(&p, o);
    }
    for (uint32_t i = 1; i < n; i++) {
        if (!p.live[i]) continue;
        KOp o = b->ops.v[i];
        for (int j = 0; j < 3; j++) o.in[j] = to[o.in[j]];
        to[i] = kept;
        b->ops.v[kept++] = o;
    }
    b->ops.n = kept;
    kir_renumber_roles(b->k, to);
}
