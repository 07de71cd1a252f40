/* CUDA sessions are refused until the driver layer is in place. */
#include "runtime/session.h"

static graphc_status cuda_open(Resident *r, const graphc_session_options *o, ErrorText e) {
    (void)r, (void)o;
    return error_set(e, GRAPHC_UNSUPPORTED, "this build of the runtime cannot use CUDA devices");
}
static void cuda_close(Resident *r) {
    (void)r;
}

const DeviceOps device_cuda = {
    .kind = GRAPHC_CUDA, .own_memory = true, .open = cuda_open, .close = cuda_close};
