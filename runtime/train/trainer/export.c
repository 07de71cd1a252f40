/* What was learnt and where a run stands, in files. */
#include "runtime/base/file.h"
#include "runtime/train/adapter/adapted.h"
#include "runtime/train/checkpoint.h"
#include "runtime/train/trainer/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static graphc_status no_memory(graphc_trainer *t) {
    return error_set(trainer_error(t), GRAPHC_NO_MEMORY, "not enough memory to write files");
}

/* --- Weights ---------------------------------------------------------------------------------- */

typedef struct Weights {
    SafeTensor *v;
    int64_t (*dims)[GRAPHC_MAX_RANK];
    uint32_t *state, n;
} Weights;

static void describe(const graphc_plan *p, Weights *w) {
    for (uint32_t i = 0; i < graphc_plan_states(p); i++) {
        graphc_state_role role = graphc_plan_state_info(p, i).role;
        if (role != GRAPHC_STATE_PARAMETER && role != GRAPHC_STATE_BUFFER) continue;
        graphc_io_info io = graphc_plan_state(p, i);
        graphc_tensor x = tensor_of_state(p, i);
        SafeTensor *s = &w->v[w->n];
        memcpy(w->dims[w->n], x.shape, sizeof x.shape);
        *s = (SafeTensor){.name = io.name, .rank = (uint32_t)io.rank, .dim = w->dims[w->n]};
        (void)dtype_from_name(io.dtype_name, &s->dtype);
        (void)safetensors_bytes(s->dtype, s->rank, s->dim, &s->bytes);
        w->state[w->n++] = i;
    }
}

static graphc_status put_state(graphc_trainer *t, SafetensorsWriter *w, const SafeTensor *s,
                               uint32_t state) {
    graphc_tensor x = tensor_of_state(t->plan, state);
    x.data = malloc(s->bytes + 1);
    if (!x.data) return no_memory(t);
    graphc_status st = trainer_failed(t, graphc_state_read(t->session, state, &x));
    if (st == GRAPHC_OK) st = safetensors_put(w, x.data, s->bytes, trainer_error(t));
    free(x.data);
    return st;
}

static graphc_status put_weights(graphc_trainer *t, const Weights *v, const char *path) {
    static const SafePair format = {"format", "pt"};
    SafetensorsWriter w;
    graphc_status st = safetensors_begin(&w, path, v->v, v->n, &format, 1, false, trainer_error(t));
    for (uint32_t i = 0; i < v->n && st == GRAPHC_OK; i++)
        st = put_state(t, &w, &v->v[w.order[i]], v->state[w.order[i]]);
    if (st == GRAPHC_OK) return safetensors_commit(&w, trainer_error(t));
    safetensors_abandon(&w);
    return st;
}

static graphc_status write_weights(graphc_trainer *t, const char *folder) {
    size_t n = (size_t)graphc_plan_states(t->plan) + 1;
    Weights w = {.v = calloc(n, sizeof *w.v),
                 .dims = calloc(n, sizeof *w.dims),
                 .state = calloc(n, sizeof *w.state)};
    char *path = folder_join(folder, TRAINER_WEIGHTS);
    graphc_status st = GRAPHC_NO_MEMORY;
    if (w.v && w.dims && w.state && path) {
        describe(t->plan, &w);
        st = put_weights(t, &w, path);
    } else
        st = no_memory(t);
    free(w.v);
    free(w.dims);
    free(w.state);
    free(path);
    return st;
}

graphc_status graphc_trainer_export(graphc_trainer *t, const char *folder) {
    char why[256];
    t->error[0] = 0;
    if (!folder) return error_set(trainer_error(t), GRAPHC_USAGE, "the folder is NULL");
    const char *adapter = graphc_plan_note(t->plan, "adapter");
    graphc_status st = folder_make(folder, why);
    if (st != GRAPHC_OK) return error_set(trainer_error(t), st, "%s %s", folder, why);
    if (!adapter) return write_weights(t, folder);
    AdapterConfig c;
    GC_TRY(adapter_config_parse(adapter, strlen(adapter), &c, trainer_error(t)));
    st = adapted_write(folder, &c, t->session, trainer_error(t));
    adapter_config_free(&c);
    return st;
}

/* --- Checkpoints ------------------------------------------------------------------------------ */

graphc_status graphc_trainer_save(graphc_trainer *t, const graphc_data *d, const char *folder) {
    CheckpointWriter w;
    CheckpointInfo info = {.step = t->steps, .loss = (double)NAN, .best_loss = (double)NAN};
    t->error[0] = 0;
    if (!folder) return error_set(trainer_error(t), GRAPHC_USAGE, "the folder is NULL");
    if (t->part)
        return error_set(trainer_error(t), GRAPHC_USAGE,
                         "batches were accumulated since the last step");
    if (d) info.epoch = d->order.epoch, info.position = d->order.position;
    GC_TRY(checkpoint_begin(&w, folder, trainer_error(t)));
    char *path = checkpoint_path(&w, CHECKPOINT_STATES);
    graphc_status st =
        path ? trainer_failed(t, graphc_states_save(t->session, path)) : no_memory(t);
    free(path);
    if (st != GRAPHC_OK) {
        checkpoint_abandon(&w);
        return st;
    }
    GC_TRY(checkpoint_commit(&w, &info, false, trainer_error(t)));
    return checkpoint_prune(folder, 1, trainer_error(t));
}

static graphc_status take_up(graphc_trainer *t, graphc_data *d, const Checkpoint *c) {
    if (d && c->info.position >= d->order.n)
        return error_set(trainer_error(t), GRAPHC_INVALID,
                         "it stands at row %llu of data that has %llu",
                         (unsigned long long)c->info.position, (unsigned long long)d->order.n);
    char *path = folder_join(c->folder, CHECKPOINT_STATES);
    graphc_status st =
        path ? trainer_failed(t, graphc_states_load(t->session, path)) : no_memory(t);
    free(path);
    if (st != GRAPHC_OK) return st;
    t->steps = c->info.step;
    t->part = 0;
    return d ? order_seek(&d->order, c->info.epoch, c->info.position, trainer_error(t)) : st;
}

graphc_status graphc_trainer_load(graphc_trainer *t, graphc_data *d, const char *folder) {
    Checkpoint c;
    t->error[0] = 0;
    if (!folder) return error_set(trainer_error(t), GRAPHC_USAGE, "the folder is NULL");
    GC_TRY(checkpoint_open(folder, "latest", &c, trainer_error(t)));
    graphc_status st = take_up(t, d, &c);
    checkpoint_close(&c);
    return st;
}
