/* A group stores a value. */
#include "fusion/fuse.h"

void fuse_own_root(Fuse *f, Group *g, Value v, IdxId idx) {
    Root r = {.v = v, .idx = idx};
    vec_push(f->arena, &g->roots, r);
    vec_push(f->arena, &g->inlined, v);
    fuse_await_sizes(f, g, v);
    f->choice[v].group = g->id + 1;
    fuse_readers_wait(f, v, g);
}

void fuse_add_root(Fuse *f, Group *g, Value v, IdxId idx) {
    Root r = {.v = v, .idx = idx};
    vec_push(f->arena, &g->roots, r);
    f->choice[v].group = g->id + 1;
    if (fuse_demands(f, g, v)) g->nreads--;
    fuse_readers_wait(f, v, g);
    fuse_expand(f, g, v, idx, USE_point, READ_plain);
}
