/* Groups to kernels. */
#include "fusion/body/body.h"
#include "fusion/body/buffers.h"

static uint32_t root_buffer(Fuse *f, const Root *r) {
    switch (r->to) {
    case TO_output: return f->io->out[r->at];
    case TO_next: return f->next_buf[r->at] - 1;
    case TO_slot: return f->stored[r->into].slots[r->at] - 1;
    case TO_pack: return f->packs.v[r->at].buf - 1;
    default: return fuse_buffer_of(f, r->to == TO_own ? r->v : r->into);
    }
}

static Expr root_index(const Fuse *f, const Group *g, const Root *r) {
    Expr at = idx_get(g, r->idx)->flat;
    switch (r->to) {
    case TO_own: return home_index(f, g, r->v, r->idx);
    case TO_part: return part_index(f, g, r->into, r->at, r->idx);
    case TO_output:
        return f->io->base && f->io->base[r->at] ? expr_add(f->p, at, f->io->base[r->at]) : at;
    default: return at;
    }
}

static void lower_root(Body *b, const Root *r) {
    KVal x = pull(b, r->v, r->idx, 0);
    Expr at = root_index(b->f, b->g, r);
    DType t = r->to == TO_own ? fuse_stored_type(b->f, r->v) : graph_type(b->f->g, r->v)->dtype;
    body_store(b, t, x, root_buffer(b->f, r), at, 0);
}

void body_begin(Body *b) {
    Arena *a = b->f->arena;
    b->memo = map_create(a);
    b->places = map_create(a);
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
    if (!b->f->kinds[g->kind].keeps_axes) body_merge(b);
    if (k->tem == TEM_none)
        (b->f->kinds[g->kind].facts ? b->f->kinds[g->kind].facts : map_facts)(b);
    body_traffic(b);
    body_places(b);
}

void fuse_lower(Fuse *f, Group *g) {
    Kernel *k = ARENA_NEW(f->arena, Kernel);
    Body b = {.f = f, .g = g, .k = k};
    body_begin(&b);
    void (*lower)(Body *, const Root *) = f->kinds[g->kind].lower;
    for (uint32_t i = 0; i < g->roots.n; i++) (lower ? lower : lower_root)(&b, &g->roots.v[i]);
    body_end(&b);
    g->kernel = k;
    g->bufs = b.bufs.v;
}
