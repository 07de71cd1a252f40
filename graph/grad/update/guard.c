#include "graph/grad/update/guard.h"
#include "graph/build/build.h"

#include <math.h>

/* Far above what f16 has use for, far below what f32 cannot hold. */
#define MOST_SCALE 0x1p60

static Value scalar_state(Graph *g, const char *name, DType t, double initial) {
    float *v = ARENA_NEW(g->arena, float);
    *v = (float)initial;
    Constant c = {.name = name};
    if (t == DT_f32) c.data = v, c.bytes = sizeof *v;
    return build_state(g, name, (Type){.dtype = t}, c);
}

Guard guard_begin(Graph *g, const GuardSpec *s, Value y) {
    Guard k = {.spec = *s};
    if (s->scale < 0) k.spec.scale = graph_type(g, y)->dtype == DT_f16 ? GUARD_SCALE : 0;
    if (!s->every) k.spec.every = GUARD_EVERY;
    if (k.spec.scale > 0) {
        k.spec.norm = true;
        k.scale = scalar_state(g, "loss_scale", DT_f32, k.spec.scale);
        k.good = scalar_state(g, "loss_scale.good", DT_i64, 0);
    }
    if (k.spec.norm) k.skipped = scalar_state(g, "skipped", DT_i64, 0);
    return k;
}

Value guard_scaled(Graph *g, const Guard *k, Value factor) {
    if (!k->scale) return factor;
    return factor ? build_binary(g, OP_mul, factor, k->scale) : k->scale;
}

Value guard_unscaled(Graph *g, const Guard *k, Value factor) {
    if (!k->scale) return factor;
    Value inverse = build_unary(g, OP_recip, k->scale);
    return factor ? build_binary(g, OP_mul, factor, inverse) : inverse;
}

static Value is_finite(Graph *g, Value x) {
    return build_binary(g, OP_lt, build_unary(g, OP_abs, x),
                        build_scalar_f(g, DT_f32, (double)INFINITY));
}

/* Half after an overflow, twice after `every` steps without one. */
static void write_scale(Graph *g, const Guard *k) {
    Value one = build_scalar_i(g, DT_i64, 1), zero = build_scalar_i(g, DT_i64, 0);
    Value good = build_binary(g, OP_add, k->good, one);
    Value early = build_binary(g, OP_lt, good, build_scalar_i(g, DT_i64, k->spec.every));
    Value twice = build_binary_f(g, OP_min, build_binary_f(g, OP_mul, k->scale, 2), MOST_SCALE);
    Value next = build_select(g, early, k->scale, twice);
    build_write(g, k->scale,
                build_select(g, k->fine, next, build_binary_f(g, OP_mul, k->scale, 0.5)));
    build_write(g, k->good, build_select(g, build_binary(g, OP_and, k->fine, early), good, zero));
}

void guard_judge(Graph *g, Guard *k, Value loss, Value norm) {
    k->fine = is_finite(g, loss);
    if (k->spec.norm) k->fine = build_binary(g, OP_and, k->fine, is_finite(g, norm));
    if (k->scale) write_scale(g, k);
    if (k->skipped) {
        Value more = build_cast(g, build_unary(g, OP_not, k->fine), DT_i64);
        build_write(g, k->skipped, build_binary(g, OP_add, k->skipped, more));
    }
}

Value guard_number(Graph *g, const Guard *k, Value step) {
    return k->skipped ? build_binary(g, OP_sub, step, k->skipped) : step;
}

Value guard_factor(Graph *g, const Guard *k, Value factor) {
    if (!k->spec.norm) return factor;
    if (!factor) factor = build_scalar_f(g, DT_f32, 1);
    return build_select(g, k->fine, factor, build_scalar_f(g, DT_f32, 0));
}
