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
    k->name = arena_printf(f->arena, "%s_%u_%s", kir_kind_name[k->kind], f->number[0]++, what);
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
