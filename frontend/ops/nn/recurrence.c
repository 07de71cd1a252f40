#include "frontend/ops/nn/recurrence.h"
#include "frontend/import/import_impl.h"

enum { UNROLL_STEPS = 64 };

static Value run_unrolled(Graph *g, Recurrence *r, int64_t steps) {
    Value *rows = ARENA_ARRAY(g->arena, Value, (size_t)steps);
    for (int64_t s = 0; s < steps; s++) {
        int64_t t = r->reverse ? steps - 1 - s : s;
        rows[t] = build_unsqueeze(g, r->step(g, r->ctx, r->in, v_int(g, t), r->state), 0);
    }
    return build_concat(g, rows, (uint32_t)steps, 0);
}

static Expr step_of(Graph *g, const Recurrence *r, Expr iteration) {
    if (!r->reverse) return iteration;
    return expr_sub(g->exprs, expr_addi(g->exprs, r->steps, -1), iteration);
}

/* Inputs: cond, states, then what the step reads. Outputs: cond, states, the row. */
static Graph *step_body(Lower *l, const Recurrence *r, Expr iteration) {
    Graph *g = lower_graph(l);
    Graph *body = graph_create(g->arena, g->exprs, g->diags, "step");
    body->is_body = true;
    vec_push(l->im->arena, &l->im->subgraphs, body);
    build_at(body, build_loc_from(body, g, build_loc(g), 0));
    Value state[RECURRENCE_STATES], in[RECURRENCE_INPUTS] = {0};
    build_input(body, "cond", (Type){.dtype = DT_bool});
    for (uint32_t i = 0; i < r->nstates; i++)
        state[i] =
            build_input(body, arena_printf(g->arena, "state.%u", i), *graph_type(g, r->state[i]));
    for (uint32_t i = 0; i < RECURRENCE_INPUTS; i++)
        if (r->in[i])
            in[i] = build_input(body, arena_printf(g->arena, "in.%u", i), *graph_type(g, r->in[i]));
    Value row = r->step(body, r->ctx, in, step_of(body, r, iteration), state);
    if (!row) return NULL;
    build_output(body, "cond", build_scalar_i(body, DT_bool, 1));
    for (uint32_t i = 0; i < r->nstates; i++)
        build_output(body, arena_printf(g->arena, "state.%u", i), state[i]);
    build_output(body, "row", row);
    return body;
}

static Value run_loop(Lower *l, Recurrence *r) {
    Graph *g = lower_graph(l);
    uint32_t iter, n = 0;
    Expr iteration = v_iteration(g, "step", &iter);
    Graph *body = step_body(l, r, iteration);
    if (!body) return 0;
    Value captures[RECURRENCE_INPUTS];
    for (uint32_t i = 0; i < RECURRENCE_INPUTS; i++)
        if (r->in[i]) captures[n++] = r->in[i];
    Value tuple = build_loop(g, build_expr(g, DT_i64, r->steps), build_scalar_i(g, DT_bool, 1),
                             r->state, r->nstates, captures, n, body, iter);
    for (uint32_t i = 0; i < r->nstates; i++) r->state[i] = build_proj(g, tuple, i);
    Value rows = build_proj(g, tuple, r->nstates);
    if (!r->reverse || !rows) return rows;
    return build_slice_axis(g, rows, 0, expr_addi(g->exprs, r->steps, -1), r->steps, -1);
}

bool recurrence_unrolls(const Graph *g, Expr steps) {
    int64_t n;
    return expr_is_const(g->exprs, steps, &n) && n > 0 && n <= UNROLL_STEPS;
}

Value recurrence_run(Lower *l, Recurrence *r) {
    Graph *g = lower_graph(l);
    int64_t steps = 0;
    for (uint32_t i = 0; i < r->nstates; i++)
        if (!r->state[i]) return 0;
    if (!recurrence_unrolls(g, r->steps)) return run_loop(l, r);
    (void)expr_is_const(g->exprs, r->steps, &steps);
    return run_unrolled(g, r, steps);
}
