/* Tensors that callers bind: how large they are, and whether they are what the plan asks for. */
#include "runtime/session.h"
#include "runtime/base/check.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool tensor_bytes(DType t, const int64_t *shape, int32_t rank, uint64_t *bytes) {
    uint64_t n = dtype_bytes(t);
    *bytes = 0;
    for (int32_t i = 0; i < rank; i++)
        if (shape[i] < 0) return false;
    for (int32_t i = 0; i < rank; i++)
        if (shape[i] == 0) return true; /* however large others are */
    for (int32_t i = 0; i < rank; i++)
        if (!check_mul(n, (uint64_t)shape[i], &n)) return false;
    *bytes = n;
    return n <= INT64_MAX;
}

const char *tensor_shape_text(const int64_t *shape, int32_t rank, char *buf, size_t size) {
    size_t n = (size_t)snprintf(buf, size, "[");
    for (int32_t i = 0; i < rank && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%" PRId64, i ? ", " : "", shape[i]);
    if (n < size) snprintf(buf + n, size - n, "]");
    return buf;
}

graphc_status tensor_check(graphc_session *s, const char *what, const PlanIo *io,
                           const graphc_tensor *t) {
    const char *name = plan_str(s->plan, io->name);
    DType type = plan_dtype(io->dtype);
    uint64_t bytes;
    ErrorText e = session_error(s);
    if (t->dtype.code != dtype_info[type].dlcode || t->dtype.bits != dtype_info[type].dlbits ||
        t->dtype.lanes != 1)
        return error_set(e, GRAPHC_INVALID,
                         "%s \"%s\" has element type %s, not DLPack type (%u, %u bits, %u lanes)",
                         what, name, dtype_name(type), t->dtype.code, t->dtype.bits,
                         t->dtype.lanes);
    if (t->rank != (int32_t)io->rank)
        return error_set(e, GRAPHC_INVALID, "%s \"%s\" has rank %u, the tensor has rank %d", what,
                         name, io->rank, t->rank);
    if (!tensor_bytes(type, t->shape, t->rank, &bytes))
        return error_set(e, GRAPHC_INVALID, "%s \"%s\": impossible shape", what, name);
    if ((!t->data && bytes) || (uintptr_t)t->data % dtype_bytes(type))
        return error_set(e, GRAPHC_USAGE, "%s \"%s\": data is NULL or not aligned to its elements",
                         what, name);
    if (t->device != GRAPHC_CPU &&
        (t->device != s->res->ops->kind || t->device_id != s->res->device_id))
        return error_set(e, GRAPHC_USAGE, "%s \"%s\" lies on another device than the session", what,
                         name);
    return GRAPHC_OK;
}

/* Of labels one may stand for what does not count: the trainer looks at them itself. */
static bool range_of(const graphc_session *s, uint64_t i, int64_t *lo, int64_t *hi) {
    const char *name = plan_input_name(s->plan, i), *labels = graphc_plan_note(s->owner, "labels");
    long long from, to;
    if (labels && strcmp(labels, name) == 0) return false;
    for (uint64_t k = 0; k < s->plan->nnotes; k++) {
        const char *key = plan_str(s->plan, s->plan->notes[k].key);
        if (strncmp(key, "range of ", 9) != 0 || strcmp(key + 9, name) != 0) continue;
        if (sscanf(plan_str(s->plan, s->plan->notes[k].text), "%lld..%lld", &from, &to) != 2)
            return false;
        *lo = from;
        *hi = to;
        return true;
    }
    return false;
}

graphc_status tensor_positions(graphc_session *s, uint64_t i) {
    const graphc_tensor *t = &s->inputs[i];
    const DType type = plan_dtype(s->plan->inputs[i].dtype);
    uint64_t bytes = 0;
    int64_t lo, hi;
    if (t->device != GRAPHC_CPU || !dtype_is_int(type) || !range_of(s, i, &lo, &hi) ||
        !tensor_bytes(type, t->shape, t->rank, &bytes))
        return GRAPHC_OK;
    for (uint64_t k = 0; k < bytes / dtype_bytes(type); k++) {
        const int64_t x = dtype_load_i64(type, t->data, k);
        if (x < lo || x > hi)
            return error_set(session_error(s), GRAPHC_INVALID,
                             "input \"%s\": element %" PRIu64 " is %" PRId64
                             "; the model takes %" PRId64 " to %" PRId64 ", positions in a table",
                             plan_input_name(s->plan, i), k, x, lo, hi);
    }
    return GRAPHC_OK;
}
