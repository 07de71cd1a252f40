/* One kernel after the other, the one that takes longest first: each of its ways in turns with the
 * best so far, whole runs, so that a way that disturbs its neighbours is not the fastest. */
#include "frontend/driver/cli/bench/bench.h"
#include "frontend/driver/cli/progress.h"
#include "frontend/driver/cli/tune/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FIRST_PAIRS = 7, MOST_PAIRS = 31, WHOLE_RUNS = 31, PROFILES = 3 };

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool is_over(const TuneRun *r) {
    return seconds() - r->start > r->limit;
}

static void take(TuneRun *r, const TuneKernel *k, uint32_t way) {
    for (uint32_t i = 0; i < k->steps.n; i++) tune_try(r->session->session, k->steps.v[i], way);
}

static graphc_status time_run(TuneRun *r, double *out) {
    graphc_status st = tune_time(r->session->session, out);
    return st == GRAPHC_OK ? GRAPHC_OK : cli_session_failed(r->session, st);
}

/* --- Two ways of a kernel --------------------------------------------------------------------- */

/* How much longer than with `now` a run takes with `way`: the median of pairs, and between what it
 * is with 95 %. Pairs stop once it is clear that it is not faster. A way that does not run is
 * failed. */
static graphc_status compare(TuneRun *r, TuneKernel *k, uint32_t way, double *median,
                             double *high) {
    double ratio[MOST_PAIRS];
    uint32_t n = 0;
    *median = *high = 1;
    while (n < MOST_PAIRS) {
        double one[2];
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t second = (n + i) % 2;
            take(r, k, second ? way : k->now);
            if (!second) {
                GC_TRY(time_run(r, &one[0]));
            } else if (tune_time(r->session->session, &one[1]) != GRAPHC_OK) {
                k->failed[way] = true;
                return GRAPHC_OK;
            }
        }
        ratio[n++] = one[1] / one[0];
        if (n != FIRST_PAIRS) continue;
        qsort(ratio, n, sizeof *ratio, bench_ascending);
        if (ratio[n / 2] >= 1 || is_over(r)) break;
    }
    qsort(ratio, n, sizeof *ratio, bench_ascending);
    uint32_t at = (uint32_t)ceil(0.5 * n + 0.98 * sqrt(n));
    *median = bench_quantile(ratio, n, 0.5);
    *high = ratio[at < n ? at : n - 1];
    return GRAPHC_OK;
}

static graphc_status tune_kernel(TuneRun *r, TuneKernel *k) {
    for (uint32_t way = 0; way < k->nways; way++) {
        double median, high;
        if (way == k->was || is_over(r)) continue;
        GC_TRY(compare(r, k, way, &median, &high));
        if (!k->failed[way] && high < 1) k->now = way;
    }
    take(r, k, k->now);
    k->tried = true;
    return GRAPHC_OK;
}

/* --- The whole run ---------------------------------------------------------------------------- */

static int longest_first(const void *a, const void *b) {
    const TuneKernel *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds < y->seconds ? 1 : -1;
    return strcmp(x->signature, y->signature);
}

/* Kernels' own times, which only decide the order. */
static graphc_status profile(TuneRun *r, uint32_t first) {
    graphc_session *s = r->session->session;
    graphc_session_profile(s, true);
    for (int i = 0; i < PROFILES; i++) {
        double unused;
        graphc_session_profile(s, false);
        GC_TRY(time_run(r, &unused));
        graphc_session_profile(s, true);
        graphc_status st = graphc_run(s);
        if (st != GRAPHC_OK) return cli_session_failed(r->session, st);
    }
    for (uint32_t i = 0; i < r->kernels.n; i++) {
        TuneKernel *k = &r->kernels.v[i];
        for (uint32_t n = 0; n < k->steps.n; n++)
            k->seconds += graphc_profile_step(s, k->steps.v[n] - first).seconds;
    }
    graphc_session_profile(s, false);
    qsort(r->kernels.v, r->kernels.n, sizeof *r->kernels.v, longest_first);
    return GRAPHC_OK;
}

static void take_all(TuneRun *r, bool now) {
    for (uint32_t i = 0; i < r->kernels.n; i++)
        take(r, &r->kernels.v[i], now ? r->kernels.v[i].now : r->kernels.v[i].was);
}

/* What all choices together are worth; none of them counts if that is nothing. */
static graphc_status weigh(TuneRun *r) {
    double v[2][WHOLE_RUNS];
    for (int i = 0; i < WHOLE_RUNS; i++)
        for (int way = 0; way < 2; way++) {
            take_all(r, way);
            GC_TRY(time_run(r, &v[way][i]));
        }
    for (int way = 0; way < 2; way++) qsort(v[way], WHOLE_RUNS, sizeof **v, bench_ascending);
    r->before = v[0][WHOLE_RUNS / 2];
    r->after = v[1][WHOLE_RUNS / 2];
    if (r->after < r->before) return GRAPHC_OK;
    r->after = r->before;
    for (uint32_t i = 0; i < r->kernels.n; i++) r->kernels.v[i].now = r->kernels.v[i].was;
    return GRAPHC_OK;
}

graphc_status tune_search(TuneRun *r) {
    Progress p = {.what = "kernels", .quiet = r->session->cli->json};
    r->start = seconds();
    graphc_status st = tune_keep(r->session->session);
    if (st != GRAPHC_OK) return cli_session_failed(r->session, st);
    GC_TRY(profile(r, r->first));
    for (uint32_t i = 0; i < r->kernels.n; i++) {
        progress_show(&p, i, r->kernels.n);
        if (is_over(r))
            r->left++;
        else
            GC_TRY(tune_kernel(r, &r->kernels.v[i]));
    }
    progress_end(&p);
    return weigh(r);
}
