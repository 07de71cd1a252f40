/* graphc bench A B: runs of the two in turns, so that what happens to the machine happens to both,
 * and the ratio of each pair. */
#include "frontend/driver/cli/bench/bench.h"
#include "frontend/driver/cli/json.h"
#include "frontend/driver/cli/progress.h"
#include "frontend/driver/cli/units.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MIN_PAIRS = 15 };

typedef struct Ratio {
    double median, low, high; /* of B's time over A's; low to high holds the median with 95 % */
    uint32_t pairs;
} Ratio;

/* The interval between two order statistics: no form of the times is assumed. Ranks as far from the
 * middle as 1.96 standard deviations of the number of times below the median. */
static Ratio ratio_of(double *v, uint32_t n) {
    qsort(v, n, sizeof *v, bench_ascending);
    double half = 0.5 * n, spread = 1.96 * 0.5 * sqrt(n);
    double low = floor(half - spread), high = ceil(half + spread);
    return (Ratio){.median = bench_quantile(v, n, 0.5),
                   .low = v[low > 0 ? (uint32_t)low : 0],
                   .high = v[high < n ? (uint32_t)high : n - 1],
                   .pairs = n};
}

/* Each pair the other way round. */
static graphc_status time_pair(BenchRun *r, uint32_t pair, double out[2]) {
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t i = (pair + k) % 2;
        GC_TRY(bench_time(r[i].session, &r[i].times, &out[i]));
    }
    return GRAPHC_OK;
}

static graphc_status measure(Cli *c, BenchRun *r, Ratio *ratio) {
    VEC(double) times[2] = {{0}, {0}}, ratios = {0};
    Progress p = {.what = "pairs", .quiet = c->json};
    double used = 0, one[2];
    for (int i = 0; i < 2; i++) GC_TRY(bench_warm_up(r[i].session, &r[i].times));
    while (ratios.n < (c->runs ? 1 : MIN_PAIRS) || !bench_is_enough(c, ratios.n, used / 2)) {
        GC_TRY(time_pair(r, ratios.n, one));
        for (int i = 0; i < 2; i++) {
            vec_push(c->arena, &times[i], one[i]);
            used += one[i] * r[i].times.in_row;
        }
        vec_push(c->arena, &ratios, one[1] / one[0]);
        if (c->runs) progress_show(&p, ratios.n, (uint32_t)c->runs);
    }
    progress_end(&p);
    for (int i = 0; i < 2; i++) {
        qsort(times[i].v, times[i].n, sizeof *times[i].v, bench_ascending);
        r[i].times.v = times[i].v;
        r[i].times.n = times[i].n;
        r[i].median = bench_quantile(times[i].v, times[i].n, 0.5);
    }
    *ratio = ratio_of(ratios.v, ratios.n);
    return GRAPHC_OK;
}

static void report_json(const Cli *c, const BenchRun *r, const Ratio *ratio) {
    json_t *j = json_begin(c->verb->name);
    json_add(j, "a", bench_facts_json(c, &r[0]));
    json_add(j, "b", bench_facts_json(c, &r[1]));
    json_t *o = json_add(j, "ratio", json_object());
    json_add(o, "b_over_a", json_real(ratio->median));
    json_add(o, "low", json_real(ratio->low));
    json_add(o, "high", json_real(ratio->high));
    json_add(o, "confidence", json_real(0.95));
    json_add(o, "pairs", json_integer(ratio->pairs));
    json_finish(j, stdout);
}

static void report_text(const Cli *c, const BenchRun *r, const Ratio *ratio) {
    for (int i = 0; i < 2; i++) {
        cli_print(stdout, "%s\n", i ? "B" : "A");
        cli_print(stdout, "%s", bench_facts(&r[i]));
        cli_print(stdout, "median %s  min %s\n", unit_seconds(c->arena, r[i].median),
                  unit_seconds(c->arena, r[i].times.v[0]));
    }
    bool differ = ratio->low > 1 || ratio->high < 1;
    cli_print(stdout, "B takes %.3f of A's time (%.3f to %.3f with 95%% confidence, %u pairs)%s\n",
              ratio->median, ratio->low, ratio->high, ratio->pairs,
              differ ? "" : ": no difference is seen");
}

static graphc_status open_one(Cli *c, CliSession *s, BenchRun *r, uint32_t i) {
    GC_TRY(cli_session_open(s, c, c->args.v[i]));
    GC_TRY(cli_session_bind(s));
    graphc_hold_inputs(s->session, true);
    *r = (BenchRun){.plan = c->args.v[i],
                    .session = s,
                    .device = s->device,
                    .code = graphc_session_code(s->session),
                    .threads = graphc_session_threads(s->session)};
    return GRAPHC_OK;
}

graphc_status bench_pair(Cli *c) {
    CliSession s[2] = {{0}, {0}};
    BenchRun r[2];
    Ratio ratio;
    for (int i = 0; i < 2; i++)
        if (access(c->args.v[i], F_OK))
            return diag(c->diags, D_IO, c->args.v[i], "cannot be opened: %s", strerror(errno));
    if (c->verbose || c->trace || c->html || c->csv || c->percentiles)
        return cli_usage(c, arena_printf(c->arena,
                                         "%s and %s are compared by their ratio alone: without -v, "
                                         "--trace, --html, --csv and --percentiles",
                                         c->args.v[0], c->args.v[1]));
    graphc_status st = open_one(c, &s[0], &r[0], 0);
    if (st == GRAPHC_OK) st = open_one(c, &s[1], &r[1], 1);
    if (st == GRAPHC_OK) st = measure(c, r, &ratio);
    if (st == GRAPHC_OK) (c->json ? report_json : report_text)(c, r, &ratio);
    for (int i = 0; i < 2; i++) cli_session_close(&s[i]);
    return st;
}
