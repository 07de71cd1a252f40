/* Groups to kernels. */
#include "fusion/analyse/facts.h"
#include "fusion/body/body.h"
#include "fusion/special/special.h"

static uint32_t root_buffer(Fuse *f, const Root *r) {
    Value v = r->into ? r->into : r->v;
    if (r->slot) return f->v[v].slots[r->part] - 1;
    while (f->v[v].home) v = f->v[v].home;
    if (r->output) return f->out_buf[r->output - 1];
    return f->v[v].buf - 1;
}

static void lower_root(Body *b, const Root *r) {
    Fuse *f = b->f;
    Group *g = b->g;
    DType t = graph_type(f->g, r->v)->dtype;
    KVal x = pull(b, r->v, r->idx, 0);
    bool whole = r->output || r->slot || (r->into && r->part == ROOT_WHOLE);
    Expr index = whole     ? idx_get(g, r->idx)->flat
                 : r->into ? part_index(f, g, r->into, r->part, r->idx)
                           : home_index(f, g, r->v, r->idx);
    if (r->output && f->out_base && f->out_base[r->output - 1])
        index = expr_add(f->p, index, f->out_base[r->output - 1]);
    body_store(b, t, x, root_buffer(f, r), index, 0);
}

void body_begin(Body *b) {
    Arena *a = b->f->arena;
    b->memo = map_create(a);
    b->consts = map_create(a);
    vec_push(a, &b->ops, (KOp){0});
    vec_push(a, &b->masks, 0);
}

void body_end(Body *b) {
    Kernel *k = b->k;
    const Group *g = b->g;
    body_prune(b);
    k->nops = b->ops.n;
    k->ops = b->ops.v;
    k->nparams = b->params.n;
    k->params = b->params.v;
    k->naxes = g->naxes;
    k->axes = arena_copy(b->f->arena, g->axes, g->naxes * sizeof g->axes[0]);
    if (g->kind != GROUP_pack) body_merge(b);
    body_template(b);
    body_traffic(b);
    body_places(b);
}

void fuse_lower(Fuse *f, Group *g) {
    Kernel *k = ARENA_NEW(f->arena, Kernel);
    Body b = {.f = f, .g = g, .k = k};
    body_begin(&b);
    for (uint32_t i = 0; i < g->roots.n; i++) {
        const Root *r = &g->roots.v[i];
        if (g->kind == GROUP_pack && f->packs.v[g->pack - 1].wino)
            wino_lower(&b, r);
        else if (g->kind == GROUP_pack)
            pack_lower(&b, r);
        else if (special_is(f, r->v) && f->v[r->v].group == g->id + 1)
            special_lower(&b, r->v);
        else
            lower_root(&b, r);
    }
    body_end(&b);
    g->kernel = k;
    g->bufs = b.bufs.v;
}
