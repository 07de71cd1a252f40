/* All states of a session in one safetensors file, by name. */
#include "runtime/session.h"
#include "runtime/train/safetensors.h"
#include <stdlib.h>

#define CHUNK (UINT64_C(1) << 22) /* bytes of a copy from the device */

static graphc_status at_path(graphc_session *s, graphc_status st, const char *path,
                             const char *why) {
    return st == GRAPHC_OK ? st : error_set(session_error(s), st, "%s: %s", path, why);
}

/* Names, types and shapes; `dims` has PLAN_MAX_RANK for each. */
static void describe(const graphc_session *s, SafeTensor *tensors, int64_t *dims) {
    for (uint64_t i = 0; i < s->plan->nstates; i++) {
        const PlanIo *io = &s->plan->states[i].io;
        state_shape(s, i, dims + i * PLAN_MAX_RANK);
        tensors[i] = (SafeTensor){.name = plan_str(s->plan, io->name),
                                  .dtype = plan_dtype(io->dtype),
                                  .rank = io->rank,
                                  .dim = dims + i * PLAN_MAX_RANK,
                                  .bytes = state_bytes(s, i)};
    }
}

/* --- Saving ----------------------------------------------------------------------------------- */

static graphc_status put_state(graphc_session *s, SafetensorsWriter *w, uint32_t i, void *chunk,
                               ErrorText why) {
    uint64_t bytes = state_bytes(s, i);
    for (uint64_t at = 0; at < bytes; at += CHUNK) {
        uint64_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
        GC_TRY(state_get(s, i, at, n, chunk, why));
        GC_TRY(safetensors_put(w, chunk, n, why));
    }
    return GRAPHC_OK;
}

static graphc_status save(graphc_session *s, const char *path, const SafeTensor *tensors,
                          void *chunk, ErrorText why) {
    static const SafePair pairs[] = {{"format", "graphc states"}};
    SafetensorsWriter w;
    GC_TRY(safetensors_begin(&w, path, tensors, (uint32_t)s->plan->nstates, pairs, 1, true, why));
    graphc_status st = GRAPHC_OK;
    for (uint32_t i = 0; i < s->plan->nstates && st == GRAPHC_OK; i++)
        st = put_state(s, &w, w.order[i], chunk, why);
    if (st == GRAPHC_OK) return safetensors_commit(&w, why);
    safetensors_abandon(&w);
    return st;
}

/* --- Loading ---------------------------------------------------------------------------------- */

/* Each state is there as it has to be, and nothing else. */
static graphc_status check_states(const graphc_session *s, const Safetensors *file,
                                  const SafeTensor *want, uint32_t n, ErrorText why) {
    for (uint32_t i = 0; i < n; i++) {
        const SafeTensor *t = safetensors_find(file, want[i].name);
        if (!t)
            return error_set(why, GRAPHC_INVALID, "there is no state \"%s\" in it", want[i].name);
        if (t->dtype != want[i].dtype || !state_fits(s, i, t->rank, t->dim))
            return error_set(why, GRAPHC_INVALID,
                             "state \"%s\" has another type or shape than the plan's",
                             want[i].name);
    }
    if (file->ntensors != n)
        return error_set(why, GRAPHC_INVALID, "it holds %u tensors, the plan has %u states",
                         file->ntensors, n);
    return safetensors_check(file, true, why);
}

static graphc_status load(graphc_session *s, const char *path, const SafeTensor *want,
                          ErrorText why) {
    Safetensors file;
    uint32_t n = (uint32_t)s->plan->nstates;
    graphc_status st = safetensors_open(path, &file, why);
    if (st == GRAPHC_OK) st = check_states(s, &file, want, n, why);
    for (uint32_t i = 0; i < n && st == GRAPHC_OK; i++) {
        const SafeTensor *t = safetensors_find(&file, want[i].name);
        state_resize(s, i, t->dim);
        st = state_put(s, i, t->data, why);
    }
    safetensors_close(&file);
    return st;
}

/* --- Both ------------------------------------------------------------------------------------- */

static graphc_status with_states(graphc_session *s, const char *path, bool saving) {
    char text[sizeof s->error] = "";
    ErrorText why = {text, sizeof text};
    s->error[0] = 0;
    if (!path) return error_set(session_error(s), GRAPHC_USAGE, "the path is NULL");
    size_t n = s->plan->nstates + 1;
    SafeTensor *tensors = calloc(n, sizeof *tensors);
    int64_t *dims = calloc(n * PLAN_MAX_RANK, sizeof *dims);
    void *chunk = saving ? malloc(CHUNK) : NULL;
    graphc_status st = GRAPHC_NO_MEMORY;
    if (tensors && dims && (chunk || !saving)) {
        describe(s, tensors, dims);
        st = saving ? save(s, path, tensors, chunk, why) : load(s, path, tensors, why);
    } else
        (void)error_set(why, st, "not enough memory for a list of states");
    free(tensors);
    free(dims);
    free(chunk);
    return at_path(s, st, path, text);
}

graphc_status graphc_states_save(graphc_session *s, const char *path) {
    return with_states(s, path, true);
}

graphc_status graphc_states_load(graphc_session *s, const char *path) {
    return with_states(s, path, false);
}
