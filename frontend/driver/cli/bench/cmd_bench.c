#include "frontend/driver/cli/bench/bench.h"

#include <string.h>

static graphc_status bench_session(CliSession *s) {
    Cli *c = s->cli;
    BenchKernel *kernels = NULL;
    BenchRun r = {.plan = c->args.v[0],
                  .session = s,
                  .device = s->device,
                  .code = graphc_session_code(s->session),
                  .machine = bench_rates(s),
                  .threads = graphc_session_threads(s->session)};
    GC_TRY(cli_session_bind(s));
    graphc_hold_inputs(s->session, true);
    GC_TRY(bench_times(s, &r.times));
    if (r.times.apart) GC_TRY(bench_copies(s, &r.times));
    if (c->verbose || c->trace || c->html) GC_TRY(bench_kernels(s, &kernels, &r.n));
    r.kernels = kernels;
    r.median = bench_quantile(r.times.v, r.times.n, 0.5);
    bench_print(c, &r);
    if (c->trace) GC_TRY(bench_trace(c, &r, c->trace));
    return c->html ? bench_page(c, &r, c->html) : GRAPHC_OK;
}

graphc_status cmd_bench(Cli *c) {
    CliSession s;
    if (c->csv && (c->json || c->percentiles))
        return cli_usage(c, "--csv has all percentiles, and is not JSON");
    if (c->args.n == 2) return bench_pair(c);
    graphc_status st = cli_session_open(&s, c, c->args.v[0]);
    if (st == GRAPHC_OK) st = bench_session(&s);
    cli_session_close(&s);
    return st;
}
