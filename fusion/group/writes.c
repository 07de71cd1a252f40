/* States take new values in the run that reads their old ones. */
#include "fusion/analyse/facts.h"

/* What becomes of one state is what another holds: that one may be overwritten too, so a copy is
 * made first. */
void fuse_copy_states(Fuse *f) {
    for (uint32_t i = 0; i < f->g->writes.n; i++) {
        Value v = f->g->writes.v[i].value;
        if (graph_node(f->g, v)->op != OP_state || !fuse_wants(f, f->g->writes.v[i].entries))
            continue;
        Group *g = group_new(f, GROUP_map);
        Root r = {.v = v, .idx = idx_axes(f, g, graph_type(f->g, v)), .to = TO_next, .at = i};
        vec_push(f->arena, &g->roots, r);
        fuse_demand(f, g, v, r.idx, USE_data, READ_plain);
    }
}

/* Who computes a next value waits for those who read the present one, where that makes no cycle:
 * then it may be stored over it (schedule/writes.c). */
void fuse_writers_wait(Fuse *f) {
    for (uint32_t i = 0; i < f->g->writes.n; i++) {
        const StateWrite *w = &f->g->writes.v[i];
        const VState *old = &f->v[f->g->states.v[w->state].value];
        if (!f->v[w->value].group || !fuse_wants(f, w->entries) || f->fact[w->value].grows)
            continue;
        Group *writer = f->groups.v[f->v[w->value].group - 1];
        for (uint32_t k = 0; k < old->demands.n && !writer->prepare; k++) {
            Group *reader = f->groups.v[old->demands.v[k].group];
            if (!group_reaches(f, reader, writer)) group_dep(f, writer, reader->id);
        }
    }
}
