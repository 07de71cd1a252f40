/* The CUDA device against a driver that fails: each call in turn, by its kind of failure. A message
 * and the right status, nothing left behind, and no call at all when the CPU is asked for. Each
 * case is a process of its own, since the driver is opened once in each. */
#include "tests/unit/runtime/plan_sample.h"
#include "runtime/graphc.h"
#include "tests/unit/test.h"
#include "tests/fake_cuda/fake_cuda.h"
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Fault {
    const char *fail;
    int skip, result;
    graphc_status open, run; /* of making a session and of a run; a run only if open is GRAPHC_OK */
    const char *text;        /* in the message */
} Fault;

static const Fault faults[] = {
    {NULL, 0, 0, GRAPHC_OK, GRAPHC_OK, ""},
    {"cuInit", 0, 100, GRAPHC_RUNTIME, GRAPHC_OK, "the driver sees no GPU"},
    {"cuInit", 0, 999, GRAPHC_RUNTIME, GRAPHC_OK, "starting the driver: CUDA_ERROR_FAKE (999)"},
    {"cuDriverGetVersion", 0, 1, GRAPHC_RUNTIME, GRAPHC_OK, "driver's version"},
    {"cuDeviceGetCount", 0, 3, GRAPHC_RUNTIME, GRAPHC_OK, "counting GPUs"},
    {"cuDeviceGet", 0, 101, GRAPHC_RUNTIME, GRAPHC_OK, "opening the GPU"},
    {"cuDevicePrimaryCtxRetain", 0, 2, GRAPHC_NO_MEMORY, GRAPHC_OK, "CUDA context"},
    {"cuCtxPushCurrent_v2", 0, 201, GRAPHC_RUNTIME, GRAPHC_OK, "entering the CUDA context"},
    {"cuModuleLoadDataEx", 0, 222, GRAPHC_RUNTIME, GRAPHC_OK, "newer than the driver (CUDA 13.0)"},
    {"cuModuleLoadDataEx", 0, 218, GRAPHC_RUNTIME, GRAPHC_OK, "compiling the plan's PTX"},
    {"cuModuleGetFunction", 0, 500, GRAPHC_RUNTIME, GRAPHC_OK, "kernel "},
    {"cuMemAlloc_v2", 0, 2, GRAPHC_NO_MEMORY, GRAPHC_OK, "5.0 of 9.0 MB free"},
    {"cuMemAlloc_v2", 1, 2, GRAPHC_NO_MEMORY, GRAPHC_OK, "the plan's weights take 0.0 MB"},
    {"cuMemAlloc_v2", 3, 2, GRAPHC_OK, GRAPHC_NO_MEMORY, "this run takes 0.0 MB: weights"},
    {"cuMemcpyHtoD_v2", 0, 1, GRAPHC_RUNTIME, GRAPHC_OK, "copying constants"},
    {"cuStreamCreate", 0, 2, GRAPHC_NO_MEMORY, GRAPHC_OK, "CUDA stream"},
    {"cuEventCreate", 0, 2, GRAPHC_NO_MEMORY, GRAPHC_OK, "CUDA stream"},
    {"cuEventCreate", 1, 2, GRAPHC_NO_MEMORY, GRAPHC_OK, "CUDA stream"},
    {"cuLaunchKernelEx", 4, 701, GRAPHC_OK, GRAPHC_RUNTIME, "(701)"},
    {"cuLaunchKernelEx", 4, 719, GRAPHC_OK, GRAPHC_RUNTIME, "(719)"},
    {"cuFuncSetAttribute", 0, 1, GRAPHC_RUNTIME, GRAPHC_OK, "kernel sample_relu"},
    {"cuTensorMapEncodeTiled", 0, 1, GRAPHC_OK, GRAPHC_RUNTIME,
     "a tensor map of kernel poi_1_add_relu, parameter 0"},
    {"cuMemsetD8Async", 0, 1, GRAPHC_OK, GRAPHC_RUNTIME, "zeroing GPU memory"},
    {"cuMemsetD8Async", 1, 1, GRAPHC_OK, GRAPHC_RUNTIME, "zeroing a kernel's scratch"},
    {"cuStreamGetCaptureInfo_v3", 1, 1, GRAPHC_OK, GRAPHC_RUNTIME, "recording a run"},
    {"cuMemcpyAsync", 0, 1, GRAPHC_OK, GRAPHC_RUNTIME, "copying"},
    {"cuStreamSynchronize", 9, 700, GRAPHC_OK, GRAPHC_RUNTIME,
     "(GRAPHC_CHECK=1 tells the kernel): CUDA_ERROR_FAKE (700)"},
    {"cuStreamBeginCapture_v2", 0, 900, GRAPHC_OK, GRAPHC_RUNTIME, "recording a run"},
    {"cuStreamEndCapture", 0, 901, GRAPHC_OK, GRAPHC_RUNTIME, "recording a run"},
    {"cuGraphInstantiateWithFlags", 0, 2, GRAPHC_OK, GRAPHC_NO_MEMORY, "preparing a recorded run"},
    {"cuGraphLaunch", 0, 719, GRAPHC_OK, GRAPHC_RUNTIME, "starting a recorded run"},
};

static graphc_session *session(const graphc_plan *p, graphc_device_kind device, graphc_status want,
                               const char *text) {
    char why[512] = "";
    graphc_session *s = NULL;
    graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
    o.device = device;
    o.threads = 1;
    graphc_status st = graphc_session_create(p, &o, &s, why, sizeof why);
    if (!CHECK(st == want && (st == GRAPHC_OK || strstr(why, text))))
        fprintf(stderr, "    status %d, %s\n", (int)st, why);
    CHECK((s != NULL) == (st == GRAPHC_OK));
    return s;
}

static graphc_status run(graphc_session *s) {
    float x[12] = {0}, y[12], z;
    graphc_tensor tx = {
        .data = x, .device = GRAPHC_CPU, .dtype = {2, 32, 1}, .rank = 2, .shape = {3, 4}};
    graphc_tensor ty = tx, tz = {.data = &z, .device = GRAPHC_CPU, .dtype = {2, 32, 1}};
    ty.data = y;
    CHECK(graphc_bind_input(s, 0, &tx) == GRAPHC_OK && graphc_bind_output(s, 0, &ty) == GRAPHC_OK);
    CHECK(graphc_bind_output(s, 1, &tz) == GRAPHC_OK);
    return graphc_run(s);
}

static bool is_fatal(int result) {
    return result == 700 || (result >= 714 && result <= 719);
}

/* Runs until the fault shows: recorded runs come with the third of the same shape. */
static void run_until(graphc_session *s, const Fault *f) {
    graphc_status st = GRAPHC_OK;
    for (int i = 0; i < 20 && st == GRAPHC_OK; i++) st = run(s);
    const char *said = graphc_session_error(s);
    if (!CHECK(st == f->run && strstr(said, f->text)))
        fprintf(stderr, "    %s: status %d, %s\n", f->fail ? f->fail : "no fault", (int)st, said);
    graphc_tensor out;
    if (st != GRAPHC_OK) CHECK(graphc_output(s, 0, &out) == GRAPHC_USAGE);
    graphc_status again = run(s);
    if (!is_fatal(f->result)) return;
    CHECK(again == GRAPHC_RUNTIME);
    CHECK(strstr(graphc_session_error(s), "lost by an earlier error"));
}

static FakeCuda *fake(const char *folder) {
    char path[512];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    path[n < 0 ? 0 : n] = 0;
    char *slash = strrchr(path, '/');
    snprintf(slash ? slash : path, 64, "/%s/libcuda.so.1", folder);
    void *lib = dlopen(path, RTLD_NOW); /* found by its name from now on */
    FakeCuda *f = lib ? dlsym(lib, FAKE_CUDA_STATE) : NULL;
    if (!CHECK(f)) exit(1);
    return f;
}

/* Runs fn in a process of its own; its failed checks count here. */
static void apart(void (*fn)(graphc_plan *p, const Fault *f), const Fault *f) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        test_failures = 0;
        char why[256];
        graphc_plan *p = NULL;
        Sample s = sample_make_edited(true, false, sample_launch_facts);
        if (CHECK(s.bytes &&
                  graphc_plan_load_memory(s.bytes, s.size, NULL, &p, why, sizeof why) == GRAPHC_OK))
            fn(p, f);
        graphc_plan_destroy(p);
        arena_destroy(s.arena);
        exit(test_failures != 0);
    }
    int status = -1;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    if (!CHECK(status == 0)) fprintf(stderr, "    %s\n", f && f->fail ? f->fail : "no fault");
}

static void one_fault(graphc_plan *p, const Fault *f) {
    FakeCuda *cuda = fake("cuda_fake");
    cuda->fail = f->fail;
    cuda->skip = f->skip;
    cuda->result = f->result;
    graphc_session *s = session(p, GRAPHC_CUDA, f->open, f->text);
    if (s) run_until(s, f);
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
    if (!is_fatal(f->result)) CHECK_EQ_I(cuda->live, 0);
    exit(test_failures != 0);
}

/* Results that are large enough come into memory that is locked, or into any other. */
static void results_on_host(graphc_plan *p, const Fault *f) {
    enum { MOST = 9000 };
    static const int64_t rows[] = {8, 5000, 5000, MOST, 3};
    static const int locked[] = {0, 1, 1, 1, 1};
    static float x[MOST * 4];
    FakeCuda *cuda = fake("cuda_fake");
    cuda->fail = f->fail;
    cuda->result = f->result;
    graphc_session *s = session(p, GRAPHC_CUDA, GRAPHC_OK, "");
    for (int i = 0; s && i < 5; i++) {
        graphc_tensor out, t = {.data = x,
                                .device = GRAPHC_CPU,
                                .dtype = {2, 32, 1},
                                .rank = 2,
                                .shape = {rows[i], 4}};
        CHECK(graphc_bind_input(s, 0, &t) == GRAPHC_OK && graphc_run(s) == GRAPHC_OK);
        CHECK(graphc_output_host(s, 0, &out) == GRAPHC_OK && out.shape[0] == rows[i]);
        CHECK_EQ_I(cuda->locked, f->fail ? 0 : locked[i]);
    }
    graphc_session_destroy(s);
    CHECK_EQ_I(cuda->locked, 0);
}

/* With GRAPHC_CHECK a run waits for each kernel, and what went wrong is that kernel's. */
static void checked(graphc_plan *p, const Fault *f) {
    FakeCuda *cuda = fake("cuda_fake");
    setenv("GRAPHC_CHECK", f ? "1" : "0", 1);
    graphc_session *s = session(p, GRAPHC_CUDA, GRAPHC_OK, "");
    for (int i = 0; s && i < 4; i++) CHECK_EQ_I(run(s), GRAPHC_OK);
    CHECK_EQ_I(cuda->replays == 0, f != NULL);
    if (s && f) {
        cuda->fail = f->fail;
        cuda->skip = f->skip;
        cuda->result = f->result;
        CHECK_EQ_I(run(s), GRAPHC_RUNTIME);
        if (!CHECK(strstr(graphc_session_error(s), f->text)))
            fprintf(stderr, "    %s\n", graphc_session_error(s));
    }
    graphc_session_destroy(s);
}

static void no_device(graphc_plan *p, const Fault *f) {
    (void)f;
    fake("cuda_fake")->devices = 0;
    (void)session(p, GRAPHC_CUDA, GRAPHC_USAGE, "there is no CUDA device 0; there are 0");
}

static void old_driver(graphc_plan *p, const Fault *f) {
    (void)f;
    (void)fake("cuda_old");
    (void)session(p, GRAPHC_CUDA, GRAPHC_UNSUPPORTED, "has no cuGraphInstantiateWithFlags");
}

static void no_driver(graphc_plan *p, const Fault *f) {
    (void)f;
    (void)session(p, GRAPHC_CUDA, GRAPHC_RUNTIME, "libcuda.so.1 cannot be opened");
}

static void on_cpu(graphc_plan *p, const Fault *f) {
    (void)f;
    FakeCuda *cuda = fake("cuda_fake");
    graphc_session *s = session(p, GRAPHC_CPU, GRAPHC_OK, "");
    if (s) CHECK_EQ_I(run(s), GRAPHC_OK);
    graphc_session_destroy(s);
    CHECK_EQ_I(cuda->calls, 0);
}

TEST_MAIN {
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) apart(one_fault, &faults[i]);
    apart(results_on_host, &(Fault){0});
    apart(results_on_host, &(Fault){.fail = "cuMemHostRegister_v2", .result = 2});
    apart(checked, NULL);
    apart(checked, &(Fault){"cuStreamSynchronize", 0, 700, 0, 0,
                            "kernel poi_1_add_relu: running the plan: CUDA"});
    apart(checked, &(Fault){"cuStreamSynchronize", 2, 700, 0, 0, "kernel red_2_sum: "});
    apart(no_device, NULL);
    apart(old_driver, NULL);
    apart(on_cpu, NULL);
    void *real = dlopen("libcuda.so.1", RTLD_NOW);
    if (real)
        dlclose(real);
    else
        apart(no_driver, NULL);
}
