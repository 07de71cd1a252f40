#include "runtime/train/trainer/trainer.h"
#include "runtime/train/adapter/names.h"
#include "runtime/train/data/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const graphc_dtype f32 = {2, 32, 1}, i64 = {0, 64, 1};

graphc_status trainer_failed(graphc_trainer *t, graphc_status st) {
    return st == GRAPHC_OK
               ? st
               : error_set(trainer_error(t), st, "%s", graphc_session_error(t->session));
}

/* --- Beginning -------------------------------------------------------------------------------- */

/* Uniform in +-spread, 53 bits each. */
static void draw(float *p, uint64_t n, double spread, uint64_t *random) {
    for (uint64_t i = 0; i < n; i++)
        p[i] = (float)(spread * ((double)(random_next(random) >> 11) * 0x1p-52 - 1));
}

/* Normal, by Box and Muller from two uniform ones in (0, 1). */
static void draw_normal(float *p, uint64_t n, double deviation, uint64_t *random) {
    for (uint64_t i = 0; i < n; i++) {
        double u = ((double)(random_next(random) >> 11) + 0.5) * 0x1p-53,
               v = ((double)(random_next(random) >> 11) + 0.5) * 0x1p-53;
        p[i] = (float)(deviation * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
    }
}

/* PEFT starts an embedding's B with normal numbers, all else with uniform ones. */
static bool is_normal(const char *state) {
    size_t n;
    const AdapterPart *part = adapter_part_of(state, &n);
    return part && part->kind == ADAPTER_embedding;
}

static graphc_status start_parameters(graphc_trainer *t) {
    uint64_t random = t->seed;
    for (uint32_t i = 0; i < graphc_plan_states(t->plan); i++) {
        double spread = graphc_plan_state_info(t->plan, i).spread;
        if (spread <= 0) continue;
        graphc_tensor x = tensor_of_state(t->plan, i);
        uint64_t n = tensor_elements(&x);
        x.data = malloc(n * sizeof(float) + 1);
        if (!x.data) return error_set(trainer_error(t), GRAPHC_NO_MEMORY, "not enough memory");
        bool normal = is_normal(graphc_plan_state(t->plan, i).name);
        (normal ? draw_normal : draw)(x.data, n, spread, &random);
        graphc_status st = graphc_state_write(t->session, i, &x);
        free(x.data);
        GC_TRY(trainer_failed(t, st));
    }
    return GRAPHC_OK;
}

static graphc_status bind_scalar(graphc_trainer *t, const char *name, bool needed, void *data,
                                 graphc_dtype type) {
    int32_t i = graphc_plan_find_input(t->plan, name);
    graphc_tensor x = {.data = data, .device = GRAPHC_CPU, .dtype = type};
    if (i >= 0) return trainer_failed(t, graphc_bind_input(t->session, (uint32_t)i, &x));
    if (!needed) return GRAPHC_OK;
    return error_set(trainer_error(t), GRAPHC_INVALID,
                     "the plan has no input \"%s\": it does not train", name);
}

static graphc_status find_entries(graphc_trainer *t) {
    t->step = graphc_plan_find_entry(t->plan, "step");
    t->evaluate = graphc_plan_find_entry(t->plan, "evaluate");
    t->accumulate = graphc_plan_find_entry(t->plan, "accumulate");
    if (t->step >= 0 && t->evaluate >= 0) return GRAPHC_OK;
    return error_set(trainer_error(t), GRAPHC_INVALID,
                     "the plan has no entry \"%s\": it does not train",
                     t->step < 0 ? "step" : "evaluate");
}

graphc_status trainer_open(graphc_trainer *t, const graphc_plan *p, graphc_session *s,
                           uint64_t seed) {
    *t = (graphc_trainer){.plan = p, .session = s, .seed = seed};
    GC_TRY(find_entries(t));
    GC_TRY(bind_scalar(t, "lr", true, &t->lr, f32));
    GC_TRY(bind_scalar(t, "step", true, &t->number, i64));
    GC_TRY(bind_scalar(t, "generator", false, &t->generator, i64));
    return start_parameters(t);
}

graphc_status graphc_trainer_create(const graphc_plan *p, const graphc_session_options *o,
                                    uint64_t seed, graphc_trainer **out, char *error,
                                    size_t error_size) {
    ErrorText e = {error, error_size};
    if (error && error_size) error[0] = 0;
    if (!p || !out)
        return error_set(e, GRAPHC_USAGE, "graphc_trainer_create needs a plan and a place");
    *out = NULL;
    graphc_session *s;
    graphc_trainer *t = malloc(sizeof *t);
    if (!t) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory for a trainer");
    graphc_status st = graphc_session_create(p, o, &s, error, error_size);
    if (st == GRAPHC_OK) {
        st = trainer_open(t, p, s, seed);
        if (st != GRAPHC_OK) (void)error_set(e, st, "%s", t->error);
        if (st != GRAPHC_OK) graphc_session_destroy(s);
    }
    if (st != GRAPHC_OK) return free(t), st;
    t->owns = true;
    *out = t;
    return GRAPHC_OK;
}

void graphc_trainer_destroy(graphc_trainer *t) {
    if (!t) return;
    if (t->owns) graphc_session_destroy(t->session);
    free(t);
}

const char *graphc_trainer_error(const graphc_trainer *t) {
    return t->error;
}

graphc_session *graphc_trainer_session(graphc_trainer *t) {
    return t->session;
}

uint64_t graphc_trainer_steps(const graphc_trainer *t) {
    return t->steps;
}

/* --- Steps ------------------------------------------------------------------------------------ */

static graphc_status read_scalar(graphc_trainer *t, const char *name, double *out) {
    int32_t i = graphc_plan_find_output(t->plan, name);
    graphc_tensor x;
    if (i < 0)
        return error_set(trainer_error(t), GRAPHC_INVALID, "the plan has no output \"%s\"", name);
    GC_TRY(trainer_failed(t, graphc_output_host(t->session, (uint32_t)i, &x)));
    if (memcmp(&x.dtype, &f32, sizeof f32) != 0 || tensor_elements(&x) != 1)
        return error_set(trainer_error(t), GRAPHC_INVALID,
                         "the plan's output \"%s\" is no number of f32", name);
    return *out = (double)*(const float *)x.data, GRAPHC_OK;
}

bool trainer_scaled(const graphc_trainer *t) {
    return graphc_plan_find_output(t->plan, "loss_scale") >= 0;
}

static graphc_status run_entry(graphc_trainer *t, int32_t entry) {
    return trainer_failed(t, graphc_run_entry(t->session, (uint32_t)entry));
}

/* Every batch draws numbers of its own. */
static void choose_generator(graphc_trainer *t) {
    t->generator = (int64_t)((random_of_step(t->seed, t->steps) + t->part) & INT64_MAX);
}

graphc_status trainer_begin_step(graphc_trainer *t, double lr) {
    t->error[0] = 0;
    if (!(lr >= 0) || !isfinite((float)lr))
        return error_set(trainer_error(t), GRAPHC_USAGE, "a learning rate of %g", lr);
    if (t->accumulate >= 0 && !t->part)
        return error_set(trainer_error(t), GRAPHC_USAGE,
                         "nothing was accumulated since the last step");
    t->lr = (float)lr;
    t->number = (int64_t)t->steps + 1;
    choose_generator(t);
    GC_TRY(run_entry(t, t->step));
    t->steps++;
    t->part = 0;
    return GRAPHC_OK;
}

graphc_status trainer_end_step(graphc_trainer *t, graphc_train_result *out) {
    graphc_train_result r;
    GC_TRY(read_scalar(t, "loss", &r.loss));
    GC_TRY(read_scalar(t, "grad_norm", &r.grad_norm));
    r.loss_scale = 0;
    if (trainer_scaled(t)) GC_TRY(read_scalar(t, "loss_scale", &r.loss_scale));
    if (out) *out = r;
    return GRAPHC_OK;
}

graphc_status graphc_trainer_step(graphc_trainer *t, double lr, graphc_train_result *out) {
    GC_TRY(trainer_begin_step(t, lr));
    return trainer_end_step(t, out);
}

graphc_status trainer_begin_part(graphc_trainer *t) {
    t->error[0] = 0;
    if (t->accumulate < 0)
        return error_set(trainer_error(t), GRAPHC_USAGE,
                         "the plan has no entry \"accumulate\": compile it to accumulate");
    choose_generator(t);
    GC_TRY(run_entry(t, t->accumulate));
    t->part++;
    return GRAPHC_OK;
}

graphc_status trainer_end_part(graphc_trainer *t) {
    double sum;
    return read_scalar(t, "loss_sum", &sum); /* waits: the batch's memory is filled anew then */
}

graphc_status graphc_trainer_accumulate(graphc_trainer *t) {
    GC_TRY(trainer_begin_part(t));
    return trainer_end_part(t);
}

/* Sums over all batches, divided once. */
graphc_status trainer_evaluate(graphc_trainer *t, Feed *f, double *loss) {
    double sum = 0, weight = 0, a, b;
    t->generator = -1;
    feed_rewind(f);
    if (!feed_batches(f))
        return error_set(trainer_error(t), GRAPHC_INVALID,
                         "%llu rows do not fill a batch of %u, and arrays cannot be padded",
                         (unsigned long long)feed_rows(f), f->batch);
    for (uint64_t i = 0; i < feed_batches(f); i++) {
        GC_TRY(trainer_failed(t, feed_next(f, t->session)));
        GC_TRY(run_entry(t, t->evaluate));
        GC_TRY(read_scalar(t, "loss_sum", &a));
        GC_TRY(read_scalar(t, "loss_weight", &b));
        sum += a;
        weight += b;
    }
    if (weight == 0)
        return error_set(trainer_error(t), GRAPHC_INVALID,
                         "no label of the rows to evaluate counts");
    *loss = sum / weight;
    return GRAPHC_OK;
}

graphc_status graphc_trainer_evaluate(graphc_trainer *t, graphc_data *d, double *loss) {
    t->error[0] = 0;
    return trainer_evaluate(t, &d->feed, loss);
}

/* --- Parameters ------------------------------------------------------------------------------- */

typedef graphc_status (*StateCopy)(graphc_session *s, uint32_t i, const graphc_tensor *t);

static bool is_gradient_of(const graphc_plan *p, uint32_t i, int32_t parameter) {
    graphc_state_info info = graphc_plan_state_info(p, i);
    return info.role == GRAPHC_STATE_GRADIENT && info.parameter == parameter;
}

static graphc_status copy_state(graphc_trainer *t, const char *name, bool gradient, StateCopy copy,
                                const graphc_tensor *x) {
    t->error[0] = 0;
    int32_t i = graphc_plan_find_state(t->plan, name);
    if (i < 0 || graphc_plan_state_info(t->plan, (uint32_t)i).role != GRAPHC_STATE_PARAMETER)
        return error_set(trainer_error(t), GRAPHC_USAGE, "the plan has no parameter \"%s\"",
                         name ? name : "");
    if (!gradient) return trainer_failed(t, copy(t->session, (uint32_t)i, x));
    for (uint32_t k = 0; k < graphc_plan_states(t->plan); k++)
        if (is_gradient_of(t->plan, k, i)) return trainer_failed(t, copy(t->session, k, x));
    return error_set(trainer_error(t), GRAPHC_USAGE,
                     "the plan keeps no gradient of \"%s\": compile it to accumulate", name);
}

graphc_status graphc_trainer_read(graphc_trainer *t, const char *name, const graphc_tensor *to) {
    return copy_state(t, name, false, graphc_state_read, to);
}

graphc_status graphc_trainer_write(graphc_trainer *t, const char *name, const graphc_tensor *from) {
    return copy_state(t, name, false, graphc_state_write, from);
}

graphc_status graphc_trainer_read_gradient(graphc_trainer *t, const char *name,
                                           const graphc_tensor *to) {
    return copy_state(t, name, true, graphc_state_read, to);
}

graphc_status graphc_trainer_write_gradient(graphc_trainer *t, const char *name,
                                            const graphc_tensor *from) {
    return copy_state(t, name, true, graphc_state_write, from);
}
