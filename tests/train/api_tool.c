/* What graphc_train.h promises, on small plans; prints what does not hold.
 *
 *     api_tool LORA_PLAN WHOLE_PLAN TEXT FOLDER
 *
 * LORA_PLAN learns adapters and accumulates, WHOLE_PLAN learns weights and does not. Public headers
 * alone. */
#include "graphc_train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char why[1024];
static int failures;

#define CHECK(cond)                                                                                \
    ((cond) ? (void)0 : (failures++, (void)printf("FAILED %d: %s (%s)\n", __LINE__, #cond, why)))
#define OK(call) CHECK((call) == GRAPHC_OK)

typedef struct Rig {
    const graphc_plan *plan;
    graphc_trainer *t;
    graphc_data *d;
} Rig;

static Rig rig(const graphc_plan *plan, const char *text, uint64_t seed) {
    Rig r = {.plan = plan};
    const char *files[] = {text};
    graphc_data_options o = GRAPHC_DATA_OPTIONS_INIT;
    o.files = files, o.nfiles = 1;
    OK(graphc_trainer_create(plan, NULL, seed, &r.t, why, sizeof why));
    OK(graphc_data_open(plan, &o, &r.d, why, sizeof why));
    if (!r.t || !r.d) exit(1);
    return r;
}

static void end(Rig *r) {
    graphc_data_destroy(r->d);
    graphc_trainer_destroy(r->t);
}

static void next(Rig *r) {
    OK(graphc_data_next(r->d, graphc_trainer_session(r->t)));
}

static double step(Rig *r, int batches) {
    graphc_train_result result = {0};
    for (int i = 0; i < batches; i++) {
        next(r);
        OK(graphc_trainer_accumulate(r->t));
    }
    if (!batches) next(r);
    OK(graphc_trainer_step(r->t, 1e-2, &result));
    CHECK(isfinite(result.loss) && result.grad_norm > 0);
    return result.loss;
}

static double held(Rig *r) {
    double loss = -1;
    OK(graphc_trainer_evaluate(r->t, r->d, &loss));
    return loss;
}

/* The first parameter whose name ends so, with room for its elements. */
static const char *parameter(const Rig *r, const char *suffix, graphc_tensor *x) {
    for (uint32_t i = 0; i < graphc_plan_states(r->plan); i++) {
        graphc_io_info io = graphc_plan_state(r->plan, i);
        size_t n = strlen(io.name), m = strlen(suffix), count = 1;
        if (graphc_plan_state_info(r->plan, i).role != GRAPHC_STATE_PARAMETER || n < m ||
            strcmp(io.name + n - m, suffix) != 0)
            continue;
        *x = (graphc_tensor){.device = GRAPHC_CPU, .dtype = io.dtype, .rank = io.rank};
        for (int32_t d = 0; d < io.rank; d++) count *= (size_t)(x->shape[d] = atoll(io.dims[d]));
        x->data = calloc(count, sizeof(float));
        return io.name;
    }
    CHECK(!"there is such a parameter");
    exit(1);
}

static size_t bytes(const graphc_tensor *x) {
    return (size_t)(x->shape[0] * x->shape[1]) * sizeof(float);
}

static void by_name(const graphc_plan *plan, const char *text) {
    Rig r = rig(plan, text, 1);
    graphc_tensor x, y;
    const char *name = parameter(&r, "lora_A.weight", &x);
    (void)parameter(&r, "lora_A.weight", &y);
    OK(graphc_trainer_read(r.t, name, &x));
    CHECK(((float *)x.data)[0] != 0);
    ((float *)x.data)[0] = 0.25f;
    OK(graphc_trainer_write(r.t, name, &x));
    OK(graphc_trainer_read(r.t, name, &y));
    CHECK(memcmp(x.data, y.data, bytes(&x)) == 0);
    CHECK(graphc_trainer_read(r.t, "nothing", &x) == GRAPHC_USAGE);
    CHECK(strstr(graphc_trainer_error(r.t), "\"nothing\"") != NULL);
    CHECK(graphc_trainer_read(r.t, "loss_sum", &x) == GRAPHC_USAGE); /* no parameter */
    y.shape[0]++;
    CHECK(graphc_trainer_write(r.t, name, &y) == GRAPHC_INVALID);
    y.shape[0]--;
    CHECK(graphc_trainer_step(r.t, 1e-2, NULL) == GRAPHC_USAGE); /* nothing accumulated */
    step(&r, 1); /* B is not zero any more, so that A has a gradient */
    next(&r);
    OK(graphc_trainer_accumulate(r.t));
    CHECK(graphc_trainer_step(r.t, (double)NAN, NULL) == GRAPHC_USAGE);
    CHECK(graphc_trainer_step(r.t, -1, NULL) == GRAPHC_USAGE);
    OK(graphc_trainer_read_gradient(r.t, name, &x));
    CHECK(((float *)x.data)[0] != 0);
    graphc_tensor all;
    OK(graphc_state_gradients(graphc_trainer_session(r.t), &all));
    int found = 0;
    for (int64_t i = 0; i + (int64_t)(bytes(&x) / sizeof(float)) <= all.shape[0]; i++)
        found += memcmp((float *)all.data + i, x.data, bytes(&x)) == 0;
    CHECK(found == 1);
    memset(x.data, 0, bytes(&x));
    OK(graphc_trainer_write_gradient(r.t, name, &x));
    OK(graphc_trainer_read_gradient(r.t, name, &y));
    CHECK(memcmp(x.data, y.data, bytes(&x)) == 0);
    free(x.data);
    free(y.data);
    end(&r);
}

/* Two trainers with a batch each and their gradients added are one with both. */
static void in_parallel(const graphc_plan *plan, const char *text) {
    Rig one = rig(plan, text, 3), two[2] = {rig(plan, text, 3), rig(plan, text, 3)};
    graphc_tensor g[2], x, y;
    const char *name = parameter(&one, "lora_B.weight", &x);
    (void)parameter(&one, "lora_B.weight", &y);
    next(&two[1]); /* which has every second batch */
    for (int i = 0; i < 3; i++) {
        double loss = step(&one, 2);
        graphc_train_result result[2];
        for (int k = 0; k < 2; k++) {
            next(&two[k]);
            OK(graphc_trainer_accumulate(two[k].t));
            OK(graphc_state_gradients(graphc_trainer_session(two[k].t), &g[k]));
            next(&two[k]);
        }
        CHECK(g[0].shape[0] == g[1].shape[0] && g[0].shape[0] > 0);
        for (int64_t k = 0; k < g[0].shape[0]; k++)
            ((float *)g[0].data)[k] += ((float *)g[1].data)[k];
        memcpy(g[1].data, g[0].data, (size_t)g[0].shape[0] * sizeof(float));
        for (int k = 0; k < 2; k++) OK(graphc_trainer_step(two[k].t, 1e-2, &result[k]));
        CHECK(result[0].loss == loss && result[1].loss == loss);
    }
    OK(graphc_trainer_read(one.t, name, &x));
    for (int k = 0; k < 2; k++) {
        OK(graphc_trainer_read(two[k].t, name, &y));
        CHECK(memcmp(x.data, y.data, bytes(&x)) == 0);
        end(&two[k]);
    }
    free(x.data);
    free(y.data);
    end(&one);
}

static void checkpoints(const graphc_plan *plan, int batches, const char *text, const char *folder,
                        const graphc_plan *other) {
    Rig a = rig(plan, text, 5), b = rig(plan, text, 5), c = rig(other, text, 5);
    double losses[4];
    CHECK(graphc_trainer_load(a.t, a.d, folder) == GRAPHC_IO);
    for (int i = 0; i < 9; i++) step(&a, batches);
    OK(graphc_trainer_save(a.t, a.d, folder));
    for (int i = 0; i < 4; i++) losses[i] = step(&a, batches);
    OK(graphc_trainer_load(b.t, b.d, folder));
    CHECK(graphc_trainer_steps(b.t) == 9);
    for (int i = 0; i < 4; i++) CHECK(step(&b, batches) == losses[i]);
    double before = held(&c);
    CHECK(graphc_trainer_load(c.t, c.d, folder) == GRAPHC_INVALID);
    CHECK(held(&c) == before && graphc_trainer_steps(c.t) == 0);
    end(&a);
    end(&b);
    end(&c);
}

static void adapters(const graphc_plan *plan, const graphc_plan *whole, const char *text,
                     const char *folder) {
    char path[2][512];
    double loss[2], base;
    graphc_adapter *a[2];
    Rig r = rig(plan, text, 0), w = rig(whole, text, 0);
    graphc_session *s = graphc_trainer_session(r.t);
    base = held(&r);
    for (int k = 0; k < 2; k++) {
        Rig x = rig(plan, text, (uint64_t)k);
        for (int i = 0; i <= k; i++) step(&x, 1);
        loss[k] = held(&x);
        snprintf(path[k], sizeof path[k], "%s/adapter%d", folder, k);
        OK(graphc_trainer_export(x.t, path[k]));
        OK(graphc_adapter_open(path[k], &a[k], why, sizeof why));
        end(&x);
    }
    CHECK(loss[0] != loss[1] && loss[0] != base);
    for (int i = 0; i < 5; i++) {
        OK(graphc_adapter_apply(a[i % 2], s, why, sizeof why));
        CHECK(held(&r) == loss[i % 2]);
    }
    OK(graphc_adapter_apply(NULL, s, why, sizeof why));
    CHECK(held(&r) == base);
    graphc_session *plain = graphc_trainer_session(w.t);
    CHECK(graphc_adapter_apply(a[0], plain, why, sizeof why) == GRAPHC_USAGE);
    graphc_adapter *none;
    CHECK(graphc_adapter_open(text, &none, why, sizeof why) != GRAPHC_OK && !none);
    graphc_adapter_destroy(a[0]);
    graphc_adapter_destroy(a[1]);
    end(&r);
    end(&w);
}

static void refused(const graphc_plan *whole, const char *text) {
    Rig r = rig(whole, text, 0);
    graphc_tensor x;
    graphc_data *d;
    const char *name = parameter(&r, "embed.weight", &x), *files[] = {"none.bin"};
    graphc_data_options o = GRAPHC_DATA_OPTIONS_INIT;
    next(&r);
    CHECK(graphc_trainer_accumulate(r.t) == GRAPHC_USAGE);
    CHECK(graphc_trainer_read_gradient(r.t, name, &x) == GRAPHC_USAGE);
    CHECK(graphc_data_open(whole, &o, &d, why, sizeof why) == GRAPHC_USAGE && !d);
    o.files = files, o.nfiles = 1;
    CHECK(graphc_data_open(whole, &o, &d, why, sizeof why) == GRAPHC_IO && !d);
    CHECK(strstr(why, "none.bin") != NULL);
    o.files = &text;
    o.hold_out = 1;
    CHECK(graphc_data_open(whole, &o, &d, why, sizeof why) == GRAPHC_USAGE);
    o.size = 1;
    CHECK(graphc_data_open(whole, &o, &d, why, sizeof why) == GRAPHC_USAGE);
    free(x.data);
    end(&r);
}

int main(int argc, char **argv) {
    char folder[512];
    graphc_plan *lora = NULL, *whole = NULL;
    if (argc != 5) return 2;
    OK(graphc_plan_load(argv[1], &lora, why, sizeof why));
    OK(graphc_plan_load(argv[2], &whole, why, sizeof why));
    if (!lora || !whole) return 1;
    by_name(lora, argv[3]);
    in_parallel(lora, argv[3]);
    snprintf(folder, sizeof folder, "%s-lora", argv[4]);
    checkpoints(lora, 2, argv[3], folder, whole);
    snprintf(folder, sizeof folder, "%s-whole", argv[4]);
    checkpoints(whole, 0, argv[3], folder, lora);
    adapters(lora, whole, argv[3], folder);
    refused(whole, argv[3]);
    graphc_plan_destroy(lora);
    graphc_plan_destroy(whole);
    return failures > 0;
}
