/* Random numbers of training. */
#include "graph/build/build.h"

#include <string.h>

#define NAME "generator"

Value build_generator(Graph *g) {
    for (uint32_t i = 0; i < g->inputs.n; i++) {
        const IoInfo *in = &g->inputs.v[i];
        if (strcmp(in->name, NAME) != 0) continue;
        if (in->type.dtype == DT_i64 && in->type.rank == 0) return in->value;
        (void)diag(g->diags, D_UNSUPPORTED, "input \"" NAME "\"",
                   "a plan that trains has an input of that name, an i64 scalar");
        return 0;
    }
    return build_input(g, NAME, (Type){.dtype = DT_i64});
}

Value build_draws_nothing(Graph *g, Value generator) {
    return build_binary(g, OP_lt, generator, build_scalar_i(g, DT_i64, 0));
}

Value build_dropout(Graph *g, Value x, Value ratio, uint64_t stream, Value *kept) {
    Value generator = build_generator(g);
    if (!x || !ratio || !generator) return 0;
    const Type t = *graph_type(g, x);
    Value none = build_draws_nothing(g, generator), one = build_scalar_f(g, DT_f32, 1);
    Value u = build_uniform_draw(g, DT_f32, t.rank, t.dim, stream, generator);
    Value stays = build_binary(g, OP_or, none, build_binary(g, OP_le, ratio, u));
    Value larger = build_unary(g, OP_recip, build_binary(g, OP_sub, one, ratio));
    const DType wide = t.dtype == DT_f64 ? DT_f64 : DT_f32;
    Value factor = build_cast(g, build_select(g, none, one, larger), wide);
    Value scaled = build_binary(g, OP_mul, build_cast(g, x, wide), factor);
    if (kept) *kept = stays;
    return build_select(g, stays, build_cast(g, scaled, t.dtype), build_scalar_f(g, t.dtype, 0));
}
