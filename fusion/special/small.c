#include "fusion/special/small.h"

void small_begin(Fuse *f, Small *s) {
    *s = (Small){.g = {.kind = GROUP_map}};
    s->g.index_of = map_create(f->arena);
    s->b = (Body){.f = f, .g = &s->g, .k = ARENA_NEW(f->arena, Kernel)};
    body_begin(&s->b);
}

void small_end(Fuse *f, Small *s, const char *what) {
    body_end(&s->b);
    Kernel *k = s->b.k;
    k->name = arena_printf(f->arena, "%s_%u_%s", kir_kind_name[k->kind], f->count->kernels++, what);
    SStep step = {.kind = STEP_kernel, .kernel = k, .bufs = s->b.bufs.v};
    vec_push(f->arena, &f->s->steps, step);
}

KVal small_load(Small *s, uint32_t from, Expr at) {
    KOp load = {.op = K_kload, .dtype = (uint8_t)s->b.f->s->buffers.v[from].dtype, .index = at};
    load.buf = body_param(&s->b, from, false);
    return body_op(&s->b, load);
}

void small_copy(Fuse *f, uint32_t from, uint32_t to, const char *what) {
    Small s;
    small_begin(f, &s);
    Expr at = axis_new(f, &s.g, f->s->buffers.v[from].numel, AX_PAR);
    DType t = f->s->buffers.v[from].dtype;
    body_store(&s.b, t, small_load(&s, from, at), to, at, 0);
    small_end(f, &s, what);
}

void small_copy_rows(Fuse *f, uint32_t from, uint32_t to, const Expr *shape, Expr room) {
    Small s;
    small_begin(f, &s);
    Expr at[3], index[2];
    for (int i = 0; i < 3; i++) at[i] = axis_new(f, &s.g, shape[i], AX_PAR);
    for (int i = 0; i < 2; i++) {
        Expr row = expr_add(f->p, expr_mul(f->p, at[0], i ? room : shape[1]), at[1]);
        index[i] = expr_add(f->p, expr_mul(f->p, row, shape[2]), at[2]);
    }
    DType t = f->s->buffers.v[from].dtype;
    body_store(&s.b, t, small_load(&s, from, index[0]), to, index[1], 0);
    small_end(f, &s, "write");
}
