/* Tensors that callers bind: how large they are, and whether they are what the plan asks for. */
#include "runtime/session.h"
#include "runtime/base/check.h"
#include <inttypes.h>
#include <stdio.h>

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
