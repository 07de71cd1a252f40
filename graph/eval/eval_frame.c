#include "graph/eval/eval_frame.h"

#include <stdlib.h>

void frame_type_dims(Eval *e, const Type *t, int64_t *dim) {
    for (int i = 0; i < t->rank; i++) dim[i] = expr_eval(e->exprs, t->dim[i], e->sym);
}

void frame_dims(const Frame *f, Value v, int64_t *dim) {
    frame_type_dims(f->e, graph_type(f->g, v), dim);
}

void frame_drop(Frame *f, Value v) {
    const Node *n = graph_node(f->g, v);
    eval_release(f->e, &f->v[v]);
    if (f->err) eval_release(f->e, &f->err[v]);
    if (f->far) {
        free(f->far[v]);
        f->far[v] = NULL;
    }
    if (!f->tuple[v]) return;
    for (uint32_t i = 0; i < n->attr.control->nresults; i++) eval_release(f->e, &f->tuple[v][i]);
    free(f->tuple[v]);
    f->tuple[v] = NULL;
}

/* Whoever reads a view reads what it looks at. */
static void used_up(Frame *f, Value v) {
    const Node *n = graph_node(f->g, v);
    frame_drop(f, v);
    while (op_info[n->op].cls == OPC_VIEW) n = graph_node(f->g, n->in[0]);
    if (n->op == OP_const && f->opt && f->opt->used) f->opt->used(&n->attr.constant);
}

void frame_done(Frame *f, Value v) {
    const Node *n = graph_node(f->g, v);
    f->state[v] = FRAME_made;
    f->made++;
    for (uint32_t i = 0; i < n->nin; i++)
        if (--f->uses[n->in[i]] == 0) used_up(f, n->in[i]);
    if (!f->uses[v]) used_up(f, v);
    if (f->opt && f->opt->progress) f->opt->progress(f->opt->ctx, f->made, f->needed);
}
