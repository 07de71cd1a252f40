/* BatchNormalization: by the statistics that are given, by those of the batch, or by either in
 * turn, where a model trains. Statistics and scaling are computed in f32 for the 16-bit types. */
#include "frontend/ops/nn/norm.h"

/* x, scale, shift, mean, variance; x is of a wide type. */
typedef struct BatchNorm {
    Lower *l;
    Graph *g;
    int rank;
    Value x, scale, shift, mean, var;
    double eps, momentum;
} BatchNorm;

/* Of a node that is marked as training, results 1 and 3 are means, 2 and 4 variances. */
static void give_what_is_given(const BatchNorm *b) {
    for (uint32_t i = 1; i < 5; i++)
        if (lower_has_out(b->l, i)) lower_out(b->l, i, i % 2 ? b->mean : b->var);
}

/* Statistics given: one multiplication and one addition, which fold into a convolution before. */
static Value by_given(const BatchNorm *b) {
    Graph *g = b->g;
    Value var = v_cast_like(g, b->var, b->x), mean = v_cast_like(g, b->mean, b->x);
    Value factor = v_mul(g, v_cast_like(g, b->scale, b->x), v_rsqrt(g, v_addf(g, var, b->eps)));
    Value shift = v_sub(g, v_cast_like(g, b->shift, b->x), v_mul(g, mean, factor));
    give_what_is_given(b);
    return norm_affine(g, b->x, norm_per_channel(g, factor, b->rank),
                       norm_per_channel(g, shift, b->rank));
}

/* old * momentum + batch * (1 - momentum), in old's type. */
static Value running(const BatchNorm *b, Value old, Value batch) {
    Graph *g = b->g;
    Value wide = v_widen(g, old);
    batch = v_cast_like(g, v_reshape_like(g, batch, old), wide);
    Value mixed = v_add(g, v_mulf(g, wide, b->momentum), v_mulf(g, batch, 1 - b->momentum));
    return v_cast_like(g, mixed, old);
}

static NormMoments of_batch(const BatchNorm *b) {
    return norm_moments(b->g, b->x, v_axes_from(0, b->rank) & ~2u, b->eps);
}

static Value scaled(const BatchNorm *b, Value centred, Value inv_std) {
    return norm_affine(b->g, v_mul(b->g, centred, inv_std),
                       norm_per_channel(b->g, b->scale, b->rank),
                       norm_per_channel(b->g, b->shift, b->rank));
}

/* Results 1 and 2 are running statistics, 3 and 4 (before opset 14) those of the batch. */
static void give_statistics(const BatchNorm *b, const NormMoments *m, Value mean, Value var) {
    Lower *l = b->l;
    Graph *g = b->g;
    if (lower_has_out(l, 1)) lower_out(l, 1, mean);
    if (lower_has_out(l, 2)) lower_out(l, 2, var);
    if (lower_has_out(l, 3))
        lower_out(l, 3, v_cast_like(g, v_reshape_like(g, m->mean, b->mean), b->mean));
    if (lower_has_out(l, 4))
        lower_out(l, 4, v_cast_like(g, v_reshape_like(g, m->var, b->var), b->var));
}

static Value by_batch(const BatchNorm *b) {
    NormMoments m = of_batch(b);
    give_statistics(b, &m, running(b, b->mean, m.mean), running(b, b->var, m.var));
    return scaled(b, m.centred, m.inv_std);
}

/* ---- Where a model trains: statistics of the batch, which move the running ones along; those
 * where the run does not train. ---- */

/* The state that v is, below casts and reshapes; 0 if it is none. */
static Value state_of(const Graph *g, Value v) {
    while (graph_node(g, v)->op == OP_cast || graph_node(g, v)->op == OP_reshape)
        v = graph_node(g, v)->in[0];
    return graph_node(g, v)->op == OP_state ? v : 0;
}

/* What an earlier node leaves in the state that v is: layers that share it move it one after
 * another. */
static Value left_in(const BatchNorm *b, Value v) {
    const Graph *g = b->g;
    const uint32_t state = graph_node(g, state_of(g, v))->attr.input.index;
    for (uint32_t i = 0; i < g->writes.n; i++)
        if (g->writes.v[i].state == state)
            return v_cast_like(b->g, v_reshape_like(b->g, g->writes.v[i].value, v), v);
    return v;
}

/* Moves a running statistic in runs that train; what it is after the run. */
static Value move(const BatchNorm *b, Value trains, Value v, Value batch) {
    Graph *g = b->g;
    Value state = state_of(g, v), old = left_in(b, v);
    Value now = build_select(g, trains, running(b, old, batch), old);
    build_write(g, state, v_cast_like(g, v_reshape_like(g, now, state), state));
    return now;
}

/* Exporters store equal initializers once: those of a norm that was never trained are equal. */
static bool moves_weight(const BatchNorm *b) {
    const Value weight[] = {state_of(b->g, b->scale), state_of(b->g, b->shift)},
                statistic[] = {state_of(b->g, b->mean), state_of(b->g, b->var)};
    for (int i = 0; i < 4; i++)
        if (weight[i / 2] && weight[i / 2] == statistic[i % 2]) return true;
    return false;
}

static Value by_run(const BatchNorm *b) {
    Lower *l = b->l;
    Graph *g = b->g;
    if (moves_weight(b)) {
        lower_unsupported(l, "exporters store equal initializers once: let them be stored apart",
                          "one initializer is both a weight, which is learnt, and a running "
                          "statistic, which moves");
        return 0;
    }
    if (!state_of(g, b->mean) || !state_of(g, b->var)) {
        lower_unsupported(l, "--batch-norm frozen leaves them as they are",
                          "running statistics that are no initializers cannot be moved");
        return 0;
    }
    Value trains = lower_trains(l, "--batch-norm frozen");
    if (!trains) return 0;
    NormMoments m = of_batch(b);
    Value mean = norm_per_channel(g, v_cast_like(g, b->mean, b->x), b->rank),
          var = norm_per_channel(g, v_cast_like(g, b->var, b->x), b->rank);
    mean = build_select(g, trains, v_reshape_like(g, m.mean, mean), mean);
    var = build_select(g, trains, v_reshape_like(g, m.var, var), var);
    give_statistics(b, &m, move(b, trains, b->mean, m.mean), move(b, trains, b->var, m.var));
    return scaled(b, v_sub(g, b->x, mean), v_rsqrt(g, v_addf(g, var, b->eps)));
}

/* Whether this node trains is an attribute since 14, is_test before 7, and in between told by the
 * presence of the outputs for training. */
static bool marked_training(const Lower *l) {
    int opset = lower_opset(l);
    if (opset >= 14) return lower_i(l, "training_mode") != 0;
    if (opset < 7 && lower_i(l, "is_test")) return false;
    return lower_has_out(l, 1) || lower_has_out(l, 3);
}

static bool lower_batch_norm(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), in[4];
    for (uint32_t i = 0; i < 4; i++) in[i] = lower_in(l, i + 1);
    if (!x || !in[0] || !in[1] || !in[2] || !in[3]) return false;
    if (v_rank(g, x) < 2) return lower_error(l, D_SHAPE, "the input has no channel axis");
    if (lower_opset(l) < 9 && !lower_i(l, "spatial") && v_rank(g, x) > 2)
        return lower_unsupported(l, "convert the model to opset 9 or later",
                                 "statistics per element (spatial = 0)");
    for (uint32_t i = 1; i <= 4; i++)
        if (!lower_vector(l, i, v_dim(g, x, 1))) return false;
    const BatchNorm b = {.l = l,
                         .g = g,
                         .rank = v_rank(g, x),
                         .x = v_widen(g, x),
                         .scale = in[0],
                         .shift = in[1],
                         .mean = in[2],
                         .var = in[3],
                         .eps = lower_f(l, "epsilon"),
                         .momentum = lower_f(l, "momentum")};
    const ImportPhase phase = lower_options(l)->batch_norm;
    const bool batch = phase == IMPORT_marked && marked_training(l);
    Value y = phase == IMPORT_trains ? by_run(&b) : batch ? by_batch(&b) : by_given(&b);
    if (!y) return false;
    lower_out(l, 0, v_cast_like(g, y, x));
    return true;
}

static const char *const batch1_attrs[] = {"epsilon:f=1e-5", "momentum:f=0.9",    "spatial:i=1",
                                           "is_test:i=0",    "consumed_inputs:I", NULL};
static const char *const batch7_attrs[] = {"epsilon:f=1e-5", "momentum:f=0.9", "spatial:i=1", NULL};
static const char *const batch9_attrs[] = {"epsilon:f=1e-5", "momentum:f=0.9", NULL};
static const char *const batch14_attrs[] = {"epsilon:f=1e-5", "momentum:f=0.9", "training_mode:i=0",
                                            NULL};

const OnnxOp ops_batch_norm[] = {
    {"", "BatchNormalization", 1, 6, 5, 5, 1, 5, batch1_attrs, lower_batch_norm},
    {"", "BatchNormalization", 7, 8, 5, 5, 1, 5, batch7_attrs, lower_batch_norm},
    {"", "BatchNormalization", 9, 13, 5, 5, 1, 5, batch9_attrs, lower_batch_norm},
    {"", "BatchNormalization", 14, 0, 5, 5, 1, 5, batch14_attrs, lower_batch_norm},
    {0}};
