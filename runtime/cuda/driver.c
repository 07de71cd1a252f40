#include "runtime/cuda/driver.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The process's one driver, filled once and constant afterwards. */
static struct {
    pthread_once_t once;
    Driver driver;
    graphc_status status;
    char error[256];
} shared = {.once = PTHREAD_ONCE_INIT};

static graphc_status load_symbols(void *lib, ErrorText e) {
    static const struct {
        size_t offset;
        const char *symbol;
    } table[] = {
#define CU(field, symbol, params) {offsetof(Driver, field), symbol},
#include "runtime/cuda/driver.def"
#undef CU
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        void *f = dlsym(lib, table[i].symbol);
        if (!f)
            return error_set(e, GRAPHC_UNSUPPORTED,
                             "the NVIDIA driver is too old: libcuda.so.1 has no %s",
                             table[i].symbol);
        memcpy((char *)&shared.driver + table[i].offset, &f, sizeof f);
    }
    return GRAPHC_OK;
}

static graphc_status start(ErrorText e) {
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return error_set(e, GRAPHC_RUNTIME,
                         "no CUDA: libcuda.so.1 cannot be opened; is the NVIDIA driver installed?");
    GC_TRY(load_symbols(lib, e));
    CuResult r = shared.driver.init(0);
    if (r == CU_NO_DEVICE) return error_set(e, GRAPHC_RUNTIME, "no CUDA: the driver sees no GPU");
    if (r) return driver_error(&shared.driver, r, e, "no CUDA: starting the driver");
    r = shared.driver.driver_version(&shared.driver.version);
    return r ? driver_error(&shared.driver, r, e, "asking for the driver's version") : GRAPHC_OK;
}

static void start_once(void) {
    shared.status = start((ErrorText){shared.error, sizeof shared.error});
}

graphc_status driver_open(const Driver **out, ErrorText e) {
    pthread_once(&shared.once, start_once);
    if (shared.status != GRAPHC_OK) return error_set(e, shared.status, "%s", shared.error);
    *out = &shared.driver;
    return GRAPHC_OK;
}

graphc_status driver_error(const Driver *d, CuResult r, ErrorText e, const char *fmt, ...) {
    char what[160];
    const char *name = NULL, *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (d->error_name(r, &name) || !name) name = "unknown CUDA error";
    if (d->error_string(r, &text) || !text) text = "no description";
    graphc_status st = r == CU_OUT_OF_MEMORY ? GRAPHC_NO_MEMORY : GRAPHC_RUNTIME;
    return error_set(e, st, "%s: %s (%d): %s", what, name, r, text);
}

bool cuda_is_fatal(CuResult r) {
    return r == CU_ILLEGAL_ADDRESS || (r >= CU_FIRST_FATAL && r <= CU_LAST_FATAL);
}

graphc_status cuda_check(CudaDevice *d, CuResult r, ErrorText e, const char *what) {
    if (r == CU_OK) return GRAPHC_OK;
    if (cuda_is_fatal(r)) __atomic_store_n(&d->lost, r, __ATOMIC_RELAXED);
    return driver_error(d->driver, r, e, "%s", what);
}
