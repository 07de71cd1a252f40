/* RNN, GRU, LSTM. The inputs' projection for all steps is one product in front of the recurrence.
 * Short sequences of known length are unrolled; others run in a loop whose body is one step, of
 * both directions where there are two: the second one takes the rows from the last on. */
#include "frontend/ops/nn/activation.h"
#include "frontend/ops/nn/recurrence.h"
#include <string.h>

enum { MAX_FUNCTIONS = 3 };
enum { BACK = 1, BOTH }; /* directions, as they are listed */

/* What a step reads: x W^T [T, B, G*H], R [G*H, H], R's bias [G*H], peepholes [3*H], lengths i64
 * [B]; 0 = absent. Of both directions: [2, T, B, G*H], [2, G*H, H], [2, 1, G*H], [2, 1, 3*H]. */
enum { IN_PROJECTED, IN_R, IN_RBIAS, IN_PEEPHOLE, IN_LENGTHS };

typedef struct Cell Cell;
typedef Value (*StepFn)(Graph *g, const Cell *c, const Value *in, Value x, Value h, Value *memory);

struct Cell {
    int gates, nfunctions;
    bool has_memory; /* LSTM's C */
    bool both;       /* directions at a time: states are [2, B, H], the second one's t is T-1-t */
    StepFn step;
    Expr steps, batch, hidden;
    bool linear_before_reset, input_forget;
    double clip; /* 0 = none */
    const Activation *f[MAX_FUNCTIONS];
    double alpha[MAX_FUNCTIONS], beta[MAX_FUNCTIONS];
};

/* ---- Steps --------------------------------------------------------------------------------- */

/* Gate i of [.., G*H]. */
static Value gate(Graph *g, const Cell *c, Value x, int i) {
    if (!x) return 0;
    return build_slice_axis(g, x, v_rank(g, x) - 1, expr_muli(g->exprs, c->hidden, i), c->hidden,
                            1);
}

static Value apply(Graph *g, const Cell *c, int f, Value x) {
    if (c->clip > 0) x = v_clamp(g, x, -c->clip, c->clip);
    return c->f[f]->build(g, x, c->alpha[f], c->beta[f]);
}

/* h R^T for the rows of R from gate `first` on, n of them, with their bias. */
static Value recur(Graph *g, const Cell *c, const Value *in, Value h, int first, int n) {
    Expr start = expr_muli(g->exprs, c->hidden, first), rows = expr_muli(g->exprs, c->hidden, n);
    Value r = build_slice_axis(g, in[IN_R], -2, start, rows, 1);
    Value y = build_matmul(g, h, v_transpose(g, r), v_dtype(g, h));
    if (!in[IN_RBIAS]) return y;
    return v_add(g, y, build_slice_axis(g, in[IN_RBIAS], -1, start, rows, 1));
}

static Value step_rnn(Graph *g, const Cell *c, const Value *in, Value x, Value h, Value *memory) {
    (void)memory;
    return apply(g, c, 0, v_add(g, x, recur(g, c, in, h, 0, 1)));
}

static Value step_gru(Graph *g, const Cell *c, const Value *in, Value x, Value h, Value *memory) {
    (void)memory;
    bool linear = c->linear_before_reset;
    Value all = recur(g, c, in, h, 0, linear ? 3 : 2);
    Value z = apply(g, c, 0, v_add(g, gate(g, c, x, 0), gate(g, c, all, 0)));
    Value r = apply(g, c, 0, v_add(g, gate(g, c, x, 1), gate(g, c, all, 1)));
    Value reset = linear ? v_mul(g, r, gate(g, c, all, 2)) : recur(g, c, in, v_mul(g, r, h), 2, 1);
    Value n = apply(g, c, 1, v_add(g, gate(g, c, x, 2), reset));
    return v_add(g, v_mul(g, v_sub(g, v_const(g, z, 1), z), n), v_mul(g, z, h));
}

/* Gate order i, o, f, c; peephole order i, o, f. */
static Value step_lstm(Graph *g, const Cell *c, const Value *in, Value x, Value h, Value *memory) {
    Value all = v_add(g, x, recur(g, c, in, h, 0, 4)), peep = in[IN_PEEPHOLE], p[3] = {0};
    for (int i = 0; peep && i < 3; i++) p[i] = gate(g, c, peep, i);
    Value gi = gate(g, c, all, 0), go = gate(g, c, all, 1), gf = gate(g, c, all, 2);
    if (peep) gi = v_add(g, gi, v_mul(g, p[0], *memory));
    if (peep) gf = v_add(g, gf, v_mul(g, p[2], *memory));
    Value i = apply(g, c, 0, gi);
    Value f = c->input_forget ? v_sub(g, v_const(g, i, 1), i) : apply(g, c, 0, gf);
    Value n = apply(g, c, 1, gate(g, c, all, 3));
    *memory = v_add(g, v_mul(g, f, *memory), v_mul(g, i, n));
    if (peep) go = v_add(g, go, v_mul(g, p[1], *memory));
    Value o = apply(g, c, 0, go);
    return v_mul(g, o, c->f[2]->build(g, *memory, c->alpha[2], c->beta[2]));
}

/* [B, 1], or [2, B, 1]: is step t within the row's length? */
static Value is_live(Graph *g, const Cell *c, Value lengths, Expr t) {
    Value live = v_lt(g, build_expr(g, DT_i64, t), lengths);
    if (c->both) {
        Expr back = expr_sub(g->exprs, expr_addi(g->exprs, c->steps, -1), t);
        Value other = v_lt(g, build_expr(g, DT_i64, back), lengths);
        Value parts[] = {build_unsqueeze(g, live, 0), build_unsqueeze(g, other, 0)};
        live = build_concat(g, parts, 2, 0);
    }
    return build_unsqueeze(g, live, -1);
}

/* States: h, and C if there is one. Rows past their length keep their state and give 0. */
static Value advance(Graph *g, const void *ctx, const Value *in, Expr t, Value *state) {
    const Cell *c = ctx;
    Value x = v_at(g, in[IN_PROJECTED], c->both ? 1 : 0, t), memory = state[1];
    Value h = c->step(g, c, in, x, state[0], &memory), y = h;
    if (in[IN_LENGTHS]) {
        Value live = is_live(g, c, in[IN_LENGTHS], t);
        y = v_select_f(g, live, h, 0);
        h = build_select(g, live, h, state[0]);
        if (c->has_memory) memory = build_select(g, live, memory, state[1]);
    }
    state[0] = h;
    state[1] = memory;
    return y;
}

/* ---- Reading the node ---------------------------------------------------------------------- */

/* Row `direction` of an input in the wide type, without its axis; 0 if absent. */
static Value direction_row(Lower *l, const Cell *c, uint32_t i, int direction) {
    Graph *g = lower_graph(l);
    if (c->both) return v_widen(g, lower_in(l, i));
    return v_widen(g, v_at(g, lower_in(l, i), 0, v_int(g, direction)));
}

/* The same of vectors: along the last axis of what a step computes. */
static Value direction_vector(Lower *l, const Cell *c, uint32_t i, int direction) {
    Value v = direction_row(l, c, i, direction);
    return v && c->both ? build_unsqueeze(lower_graph(l), v, 1) : v;
}

/* Initial states are [D, B, H], or [B, D, H] with layout 1; zeros if absent. */
static Value initial_state(Lower *l, const Cell *c, uint32_t i, int direction, bool batch_first,
                           DType t) {
    Graph *g = lower_graph(l);
    const Expr dim[] = {v_int(g, 2), c->batch, c->hidden};
    if (!lower_has_in(l, i)) return v_zeros(g, t, c->both ? 3 : 2, c->both ? dim : dim + 1);
    Value x = lower_in(l, i);
    if (batch_first) x = v_move_axis(g, x, 0, 1);
    return v_widen(g, c->both ? x : v_at(g, x, 0, v_int(g, direction)));
}

/* Functions of one direction; parameters are listed one after the other for the functions that
 * take any. */
static bool read_functions(Lower *l, Cell *c, int direction) {
    static const char *const defaults[3] = {"Sigmoid", "Tanh", "Tanh"};
    uint32_t n, nalpha, nbeta, a = 0, b = 0;
    const char *const *names = lower_strings(l, "activations", &n);
    const float *alpha = lower_floats(l, "activation_alpha", &nalpha);
    const float *beta = lower_floats(l, "activation_beta", &nbeta);
    uint32_t need = (uint32_t)(c->nfunctions * (direction + 1));
    if (names && n < need)
        return lower_error(l, D_ATTRIBUTE, "%u activations, %u are needed", n, need);
    for (uint32_t i = 0; i < need; i++) {
        int k = (int)i % c->nfunctions;
        const char *name = names ? names[i] : c->gates == 1 ? "Tanh" : defaults[k];
        const Activation *f = activation_find(name);
        if (!f) return lower_unsupported(l, NULL, "activation \"%s\"", name);
        c->f[k] = f;
        c->alpha[k] = f->nparams > 0 && alpha && a < nalpha ? (double)alpha[a++] : f->alpha;
        c->beta[k] = f->nparams > 1 && beta && b < nbeta ? (double)beta[b++] : f->beta;
    }
    return true;
}

/* [T, B, I] -> [2, T*B, I]: as they are, and from the last on. */
static Value both_ways(Graph *g, const Cell *c, Value x) {
    Expr last = expr_addi(g->exprs, c->steps, -1);
    Value parts[] = {build_unsqueeze(g, x, 0),
                     build_unsqueeze(g, build_slice_axis(g, x, 0, last, c->steps, -1), 0)};
    Expr dim[] = {v_int(g, 2), expr_mul(g->exprs, c->steps, c->batch), v_dim(g, x, 2)};
    return build_reshape(g, build_concat(g, parts, 2, 0), 3, dim);
}

/* x [T, B, I] -> [T, B, G*H] with the biases that may be added before the recurrence. GRU's own
 * reset form needs its recurrent bias inside. */
static bool project(Lower *l, const Cell *c, Value x, int direction, Value *in) {
    Graph *g = lower_graph(l);
    Value w = direction_row(l, c, 1, direction), bias = direction_vector(l, c, 3, direction);
    in[IN_R] = direction_row(l, c, 2, direction);
    if (!x || !w || !in[IN_R]) return false;
    Expr size = expr_muli(g->exprs, c->hidden, c->gates), zero = v_int(g, 0);
    if (c->both) x = both_ways(g, c, x);
    Value y = build_matmul(g, x, v_transpose(g, w), v_dtype(g, x));
    if (bias) {
        Value rbias = build_slice_axis(g, bias, -1, size, size, 1);
        bias = build_slice_axis(g, bias, -1, zero, size, 1);
        if (c->linear_before_reset)
            in[IN_RBIAS] = rbias;
        else
            bias = v_add(g, bias, rbias);
        y = v_add(g, y, bias);
    }
    if (c->both) y = build_reshape(g, y, 4, (Expr[]){v_int(g, 2), c->steps, c->batch, size});
    in[IN_PROJECTED] = y;
    return y != 0;
}

typedef struct Run {
    Value h, memory; /* final states [B, H], or [2, B, H] */
    Value y;         /* [T, B, H], or [T, 2, B, H], the second direction's from the last on */
} Run;

static bool run_direction(Lower *l, Cell c, Value x, int direction, bool reverse, bool batch_first,
                          Run *run) {
    Graph *g = lower_graph(l);
    DType t = v_dtype(g, x);
    Recurrence r = {.nstates = c.has_memory ? 2 : 1, .steps = c.steps, .reverse = reverse};
    r.step = advance;
    r.ctx = &c;
    if (!read_functions(l, &c, direction) || !project(l, &c, x, direction, r.in)) return false;
    if (lower_has_in(l, 4)) r.in[IN_LENGTHS] = build_cast(g, lower_in(l, 4), DT_i64);
    r.state[0] = initial_state(l, &c, 5, direction, batch_first, t);
    if (c.has_memory) {
        r.state[1] = initial_state(l, &c, 6, direction, batch_first, t);
        r.in[IN_PEEPHOLE] = direction_vector(l, &c, 7, direction);
    }
    *run = (Run){.y = recurrence_run(l, &r)};
    run->h = r.state[0];
    run->memory = r.state[1];
    return run->y && run->h;
}

/* States of all directions: [D, B, H], or [B, D, H]. */
static Value join_states(Graph *g, const Value *v, uint32_t n, bool batch_first, DType t) {
    Value parts[2];
    for (uint32_t i = 0; i < n; i++) parts[i] = build_unsqueeze(g, v[i], 0);
    Value y = build_cast(g, build_concat(g, parts, n, 0), t);
    return batch_first ? v_move_axis(g, y, 0, 1) : y;
}

/* [T, D, B, H], or [B, T, D, H]. */
static Value join_rows(Graph *g, const Run *r, uint32_t n, bool batch_first, DType t) {
    Value parts[2];
    for (uint32_t i = 0; i < n; i++) parts[i] = build_unsqueeze(g, r[i].y, 1);
    Value y = build_cast(g, build_concat(g, parts, n, 1), t);
    return batch_first ? build_permute(g, y, (uint8_t[]){2, 0, 1, 3}) : y;
}

/* What both directions gave, as of one after the other. */
static void part_run(Graph *g, const Cell *c, const Run *both, Run *run) {
    for (int d = 0; d < 2; d++) {
        run[d].h = v_at(g, both->h, 0, v_int(g, d));
        if (c->has_memory) run[d].memory = v_at(g, both->memory, 0, v_int(g, d));
        run[d].y = v_at(g, both->y, 1, v_int(g, d));
    }
    Expr last = expr_addi(g->exprs, c->steps, -1);
    run[1].y = build_slice_axis(g, run[1].y, 0, last, c->steps, -1);
}

/* Steps of both directions are computed at a time where they are alike and not unrolled. */
static bool takes_both(Lower *l, const Cell *c) {
    Cell a = *c, b = *c;
    if (recurrence_unrolls(lower_graph(l), c->steps)) return false;
    if (!read_functions(l, &a, 0) || !read_functions(l, &b, 1)) return false;
    for (int i = 0; i < c->nfunctions; i++)
        if (a.f[i] != b.f[i] || a.alpha[i] != b.alpha[i] || a.beta[i] != b.beta[i]) return false;
    return true;
}

static bool run_directions(Lower *l, const Cell *c, Value x, int direction, bool batch_first,
                           Run *run) {
    Cell both = *c;
    Run r = {0};
    both.both = direction == BOTH && takes_both(l, c);
    if (both.both) {
        if (!run_direction(l, both, x, 0, false, batch_first, &r)) return false;
        part_run(lower_graph(l), c, &r, run);
        return true;
    }
    for (int d = 0; d < (direction == BOTH ? 2 : 1); d++)
        if (!run_direction(l, *c, x, d, direction == BACK || d == 1, batch_first, &run[d]))
            return false;
    return true;
}

static bool run_all(Lower *l, Cell *c) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), r_in = lower_in(l, 2);
    if (!x || !r_in) return false;
    if (v_rank(g, x) != 3 || v_rank(g, r_in) != 3 || lower_type(l, 1)->rank != 3)
        return lower_error(l, D_SHAPE, "X, W and R need rank 3");
    if (lower_has_in(l, 3) && lower_type(l, 3)->rank != 2)
        return lower_error(l, D_SHAPE, "B needs rank 2");
    DType t = v_dtype(g, x);
    const int64_t layout = lower_opset(l) >= 14 ? lower_i(l, "layout") : 0;
    if (layout != 0 && layout != 1)
        return lower_error(l, D_ATTRIBUTE, "'layout' is %lld", (long long)layout);
    bool batch_first = layout == 1;
    static const char *const directions[] = {"forward", "reverse", "bidirectional", NULL};
    int direction;
    if (!lower_choice(l, "direction", directions, &direction)) return false;
    const bool both = direction == BOTH;
    lower_assume(l, lower_type(l, 1)->dim[0], v_int(g, both ? 2 : 1));
    lower_assume(l, v_dim(g, r_in, 0), v_int(g, both ? 2 : 1));
    if (lower_has_attr(l, "hidden_size"))
        lower_assume(l, v_dim(g, r_in, 2), v_int(g, lower_i(l, "hidden_size")));
    x = v_widen(g, batch_first ? v_move_axis(g, x, 0, 1) : x);
    c->steps = v_dim(g, x, 0), c->batch = v_dim(g, x, 1), c->hidden = v_dim(g, r_in, 2);
    c->clip = lower_f(l, "clip");
    if (lower_has_attr(l, "clip") && !(c->clip > 0))
        return lower_error(l, D_ATTRIBUTE, "'clip' is %g, and must be positive", c->clip);
    if (!lower_is(l, 4, TYPES_INT) || !lower_vector(l, 4, c->batch)) return false;
    Run run[2] = {0};
    uint32_t n = both ? 2 : 1;
    if (!run_directions(l, c, x, direction, batch_first, run)) return false;
    if (lower_has_out(l, 0)) lower_out(l, 0, join_rows(g, run, n, batch_first, t));
    Value h[2] = {run[0].h, run[1].h}, m[2] = {run[0].memory, run[1].memory};
    if (lower_has_out(l, 1)) lower_out(l, 1, join_states(g, h, n, batch_first, t));
    if (lower_has_out(l, 2)) lower_out(l, 2, join_states(g, m, n, batch_first, t));
    return true;
}

static bool lower_rnn(Lower *l) {
    Cell c = {.gates = 1, .nfunctions = 1, .step = step_rnn};
    return run_all(l, &c);
}

static bool lower_gru(Lower *l) {
    Cell c = {.gates = 3, .nfunctions = 2, .step = step_gru};
    c.linear_before_reset = lower_opset(l) >= 3 && lower_i(l, "linear_before_reset") != 0;
    return run_all(l, &c);
}

static bool lower_lstm(Lower *l) {
    Cell c = {.gates = 4, .nfunctions = 3, .has_memory = true, .step = step_lstm};
    c.input_forget = lower_i(l, "input_forget") != 0;
    return run_all(l, &c);
}

#define RNN_ATTRS                                                                                  \
    "activation_alpha:F", "activation_beta:F", "activations:S", "clip:f=0", "direction:s=forward", \
        "hidden_size:i=0", "layout:i=0", "output_sequence:i=0"
static const char *const rnn_attrs[] = {RNN_ATTRS, NULL};
static const char *const gru_attrs[] = {RNN_ATTRS, "linear_before_reset:i=0", NULL};
static const char *const lstm_attrs[] = {RNN_ATTRS, "input_forget:i=0", NULL};

const OnnxOp ops_rnn[] = {{"", "RNN", 1, 0, 3, 6, 0, 2, rnn_attrs, lower_rnn},
                          {"", "GRU", 1, 0, 3, 6, 0, 2, gru_attrs, lower_gru},
                          {"", "LSTM", 1, 0, 3, 8, 0, 3, lstm_attrs, lower_lstm},
                          {0}};
