/* Where stored values lie: in the order that was chosen for them, in a part of a concatenation, in
 * a slice of an output. */
#include "fusion/fuse.h"
#include <string.h>

/* Made once, or n operands would take n^2 sums. */
void fuse_place_parts(Fuse *f, Value concat) {
    const Node *n = graph_node(f->g, concat);
    Expr *start = ARENA_ARRAY(f->arena, Expr, n->nin + 1), at = expr_const(f->p, 0);
    for (uint32_t i = 0; i < n->nin; i++) {
        start[i] = at;
        at = expr_add(f->p, at, graph_type(f->g, n->in[i])->dim[n->attr.axis.axis]);
    }
    f->choice[concat].starts = start;
}

/* Operand `part` of a concatenation as elements of the whole. */
static void enter_part(const Fuse *f, Value concat, uint32_t part, Idx *x) {
    const Node *n = graph_node(f->g, concat);
    int32_t d = n->attr.axis.axis;
    x->dim[d] = expr_add(f->p, x->dim[d], f->v[concat].starts[part]);
    memcpy(x->extent, n->type.dim, x->rank * sizeof *x->extent);
}

/* Where element x of v lies in the buffer that v is stored to. */
static Expr stored_at(const Fuse *f, Value v, Idx x) {
    for (; f->v[v].home; v = f->v[v].home) enter_part(f, f->v[v].home, f->v[v].home_part, &x);
    const VState *s = &f->v[v];
    const Fact *fact = &f->fact[v];
    if (fact->grows) {
        const StateInfo *state = &f->g->states.v[fact->grows - 1];
        x.extent[state->grows - 1] = state->room;
    }
    Expr dim[GRAPH_MAX_RANK], extent[GRAPH_MAX_RANK];
    for (uint32_t i = 0; i < x.rank; i++) {
        uint32_t d = s->permuted ? s->order[i] : i;
        dim[i] = x.dim[d];
        extent[i] = x.extent[d];
    }
    if (x.rank) extent[x.rank - 1] = vstate_row(f->p, s, extent[x.rank - 1]);
    Expr at = idx_join(f->p, x.rank, dim, extent);
    if (fact->output && f->io->base && f->io->base[fact->output - 1])
        at = expr_add(f->p, at, f->io->base[fact->output - 1]);
    return at;
}

Expr home_index(const Fuse *f, const Group *g, Value v, IdxId idx) {
    const VState *s = &f->v[v];
    const Fact *fact = &f->fact[v];
    bool moved = s->home || s->permuted || s->align || fact->grows || (fact->output && f->io->base);
    return moved ? stored_at(f, v, *idx_get(g, idx)) : idx_get(g, idx)->flat;
}

/* Element of a concatenation for idx of its operand `part`. */
Expr part_index(const Fuse *f, const Group *g, Value concat, uint32_t part, IdxId idx) {
    Idx x = *idx_get(g, idx);
    enter_part(f, concat, part, &x);
    return stored_at(f, concat, x);
}

bool root_is_at_home(const Root *r) {
    return r->to == TO_own || r->to == TO_output;
}
