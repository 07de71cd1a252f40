/* Fusion may be stopped after a number of decisions (schedule_build). Each is one without which the
 * kernels would still be right, only more or slower: a value computed where it is read, stored by
 * another's kernel, laid out in another order, overwritten in place. */
#include "fusion/analyse/facts.h"

bool fuse_may(Fuse *f, Value v, const char *what) {
    FuseLimit *l = &f->count->limit;
    if (l->made == l->at_most) return false;
    if (++l->made < l->at_most) return true;
    const Node *n = graph_node(f->g, v);
    const char *place = graph_place(f->g, n->loc, f->arena);
    l->last = arena_printf(f->arena, "%%%u %s%s%s%s is %s", v, op_info[n->op].name,
                           *place ? " (" : "", place, *place ? ")" : "", what);
    return true;
}
