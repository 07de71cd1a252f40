#include "frontend/driver/cli/bench/bench.h"
#include "frontend/driver/cli/json.h"
#include "runtime/base/file.h"

#include <string.h>

static json_t *event(const BenchKernel *k, double at) {
    json_t *e = json_object(), *args = json_add(e, "args", json_object());
    json_object_set_new(e, "ph", json_string("X"));
    json_object_set_new(e, "name", json_string(k->step.kernel));
    json_object_set_new(e, "cat", json_string(k->step.kind));
    json_object_set_new(e, "pid", json_integer(0));
    json_object_set_new(e, "tid", json_integer(0));
    json_object_set_new(e, "ts", json_real(at * 1e6));
    json_object_set_new(e, "dur", json_real(k->seconds * 1e6));
    json_object_set_new(args, "bytes", json_real(k->step.bytes));
    json_object_set_new(args, "flops", json_real(k->step.flops));
    json_object_set_new(args, "least_us", json_real(k->least * 1e6));
    json_object_set_new(args, "nodes", json_string(k->step.nodes));
    return e;
}

graphc_status bench_trace(Cli *c, const BenchRun *r, const char *path) {
    json_t *j = json_object(), *events = json_add(j, "traceEvents", json_array());
    json_object_set_new(j, "displayTimeUnit", json_string("ns"));
    double at = 0;
    for (uint32_t i = 0; i < r->n; at += r->kernels[i++].seconds)
        json_array_append_new(events, event(&r->kernels[i], at));
    char *text = json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(9)), why[256];
    json_decref(j);
    if (!text) return diag(c->diags, D_NO_MEMORY, path, "no memory for the trace");
    graphc_status s = file_write(path, text, strlen(text), why);
    free(text);
    return s == GRAPHC_OK ? s : diag(c->diags, D_IO, path, "%s", why);
}
