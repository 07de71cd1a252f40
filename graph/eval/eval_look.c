/* Values that somebody looks at as they are made, whole or part by part, and others that evaluation
 * goes on with. */
#include "graph/eval/eval_error.h"
#include "graph/eval/eval_frame.h"

#include <math.h>
#include <string.h>

bool looked_at(const Frame *f, Value v) {
    return f->watch && f->watch->what[v] & EVAL_LOOK;
}

bool look_begin(Frame *f, Value v, Look *l) {
    const Type *type = graph_type(f->g, v);
    EvalTensor shape = {.dtype = type->dtype, .rank = type->rank};
    EvalOther x = {.data = NULL};
    *l = (Look){.value = v, .other = {.dtype = type->dtype, .rank = type->rank}};
    frame_dims(f, v, shape.dim);
    memcpy(l->other.dim, shape.dim, sizeof shape.dim);
    l->has_other = f->watch->other && f->watch->other(f->watch->ctx, v, &shape, &x);
    if (!l->has_other) return true;
    memcpy(l->other.stride, x.stride, sizeof x.stride);
    return eval_take(f->e, &x, &l->other);
}

/* The elements of x, one after the other, where they may be shown as anybody's. */
static bool make_own(Eval *e, const Tensor *x, Tensor *own) {
    if (!eval_make_contiguous(e, x, own)) return false;
    if (own->to) return true;
    Tensor read = *own;
    own->block = NULL;
    bool ok = eval_alloc(e, own);
    if (ok) eval_copy(own, &read);
    eval_release(e, &read);
    return ok;
}

bool look_part(Frame *f, const Look *l, EvalPart part, const Tensor *x, const Tensor *error) {
    Tensor flat = {0}, err = {0};
    bool ok = make_own(f->e, x, &flat) && (!error->data || eval_make_contiguous(f->e, error, &err));
    if (ok) {
        EvalTensor want = {.dtype = flat.dtype, .rank = flat.rank, .data = flat.to};
        memcpy(want.dim, flat.dim, sizeof want.dim);
        const double *bound = (const double *)(const void *)err.data;
        f->watch->look(f->watch->ctx, l->value, part, &want, bound);
    }
    eval_release(f->e, &flat);
    eval_release(f->e, &err);
    return ok;
}

/* What the value is that views of it show. */
static const Node *shown(const Frame *f, Value v) {
    const Node *n = graph_node(f->g, v);
    while (op_info[n->op].cls == OPC_VIEW && n->nin == 1) n = graph_node(f->g, n->in[0]);
    return n;
}

/* What the other's kernel computes further may start from the value before it was rounded: to a
 * half type, or, of a product, by an addition that takes it whole (fma). */
static bool starts_before_rounding(const Frame *f, Value v) {
    const Op op = (Op)shown(f, v)->op;
    return op == OP_mul ? dtype_is_float(f->v[v].dtype)
                        : op != OP_cast && dtype_is_half(f->v[v].dtype);
}

/* A 0 that is another's, or a limit, was 0 before, too; one that is computed may have been less
 * than the type has. */
static bool bound_rounding(Frame *f, Value v, Tensor *err) {
    const Tensor *x = &f->v[v];
    const double unit = eval_unit(x->dtype), least = eval_least_unit(x->dtype);
    const bool zeros = eval_is_exact((Op)shown(f, v)->op);
    *err = *x;
    err->dtype = DT_f64;
    err->block = NULL;
    if (!eval_alloc(f->e, err)) return false;
    eval_copy(err, x);
    double *to = (double *)(void *)err->to;
    for (int64_t i = 0, m = eval_numel(err); i < m; i++)
        to[i] = zeros && to[i] == 0 ? 0 : fmax(unit * fabs(to[i]), least);
    return true;
}

bool look_end(Frame *f, Look *l) {
    const Value v = l->value;
    if (!l->has_other) return true;
    eval_release(f->e, &f->v[v]);
    eval_release(f->e, &f->err[v]);
    f->v[v] = l->other;
    l->other = (Tensor){0};
    if (!starts_before_rounding(f, v)) return true;
    return bound_rounding(f, v, &f->err[v]);
}

void look_free(Frame *f, Look *l) {
    eval_release(f->e, &l->other);
}

bool look_at_whole(Frame *f, Value v) {
    Look l;
    const EvalPart all = {0, 0};
    bool ok =
        look_begin(f, v, &l) && look_part(f, &l, all, &f->v[v], &f->err[v]) && look_end(f, &l);
    look_free(f, &l);
    return ok;
}
