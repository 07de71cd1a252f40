/* Which tile a contraction takes: by the time that each is reckoned to take, by what was tuned,
 * and, where the number of rows is known only when the kernel runs, several. */
#include "codegen/nvptx/gemm/gemm_plan.h"

static void take_way(GemmPlan *p, const GemmWay *w) {
    p->tile = w->tile;
    p->twin = w->twin;
    p->splits = w->splits;
}

int64_t gemm_choose(Gpu *g, GemmPlan *p, int64_t m, uint32_t shrink) {
    int64_t least = INT64_MAX;
    GemmWay w;
    p->tile = NULL;
    p->rows = m;
    for (uint32_t i = 0; i < GEMM_WAYS; i++) {
        if (!gemm_way(g, p, i, m, shrink, false, &w) || w.time >= least) continue;
        least = w.time;
        take_way(p, &w);
    }
    return least;
}

/* --- Ways for tuning -------------------------------------------------------------------------- */

/* All that are possible, the fastest by this reckoning first; of equal ones the first in order. */
static uint32_t sorted_ways(Gpu *g, const GemmPlan *p, int64_t m, GemmWay *out) {
    uint32_t n = 0;
    GemmWay w;
    for (uint32_t i = 0; i < GEMM_WAYS; i++) {
        if (!gemm_way(g, p, i, m, g->j->shrink, true, &w)) continue;
        uint32_t at = n++;
        for (; at && out[at - 1].time > w.time; at--) out[at] = out[at - 1];
        out[at] = w;
    }
    return n;
}

static const char *way_name(Gpu *g, const GemmWay *w) {
    if (w->splits > 1) return arena_printf(g->j->arena, "%s, split %u", w->tile->name, w->splits);
    return w->twin ? arena_printf(g->j->arena, "%s, twins", w->tile->name) : w->tile->name;
}

void gemm_choose_tuned(Gpu *g, GemmPlan *p) {
    const Expr size[] = {p->m, p->n, p->k, p->batch, p->taps};
    int64_t v[5];
    for (int i = 0; i < 5; i++)
        if (!expr_is_const(g->e->exprs, size[i], &v[i])) return;
    GemmWay ways[GEMM_WAYS];
    const char *names[GEMM_WAYS];
    uint32_t n = sorted_ways(g, p, v[0], ways);
    for (uint32_t i = 0; i < n; i++) names[i] = way_name(g, &ways[i]);
    const char *facts = arena_printf(
        g->j->arena, "gemm %lldx%lldx%lld batch=%lld taps=%lld parts=%u sums=%u %s%s%s%s",
        (long long)v[0], (long long)v[1], (long long)v[2], (long long)v[3], (long long)v[4],
        p->parts, g->k->dot.nacc, p->tf32 ? "tf32" : dtype_info[p->a.mat[0].t].name,
        p->a.across ? " a-across" : "", p->b[0].across ? " b-across" : "",
        p->addend ? " addend" : "");
    if (n) take_way(p, &ways[gpu_ways(g, facts, names, n)]);
}

/* --- Variants --------------------------------------------------------------------------------- */

enum { ROWS_LEAST = 128, ROWS_MOST = 8192, ROWS_SAMPLES = 7 };

/* A variant has to be so much faster: by a tenth. */
static bool much_faster(int64_t time, int64_t than) {
    return time < than / 10 * 9;
}

/* The fastest variant at m rows, whose time becomes *least. */
static uint32_t fastest(Gpu *g, const GemmPlan *each, uint32_t n, int64_t m, int64_t *least) {
    uint32_t best = 0;
    for (uint32_t i = 0; i < n; i++) {
        int64_t time = gemm_time(g, &each[i], each[i].tile, each[i].twin, each[i].splits, m);
        if (i && time >= *least) continue;
        *least = time;
        best = i;
    }
    return best;
}

/* The number of rows that gains most by a variant of its own; 0: none gains much. */
static int64_t most_slowed(Gpu *g, const GemmPlan *p, const GemmPlan *each, uint32_t n,
                           const int64_t *samples, uint32_t nsamples) {
    GemmPlan own = *p;
    int64_t rows = 0, time = 0;
    double most = 0;
    for (uint32_t i = 0; i < nsamples; i++) {
        int64_t best = gemm_choose(g, &own, samples[i], 0);
        (void)fastest(g, each, n, samples[i], &time);
        if (!much_faster(best, time) || (double)time <= most * (double)best) continue;
        most = (double)time / (double)best;
        rows = samples[i];
    }
    return rows;
}

void gemm_find_variants(Gpu *g, GemmPlan *p) {
    GemmVariants *out = &p->variants;
    ExprPool *q = g->e->exprs;
    GemmPlan each[GEMM_MAX_VARIANTS];
    int64_t lo, hi, time = 0, samples[ROWS_SAMPLES];
    uint32_t n = 0, was = 0;
    expr_range(q, p->m, &lo, &hi);
    *out = (GemmVariants){.n = 1, .rows = {gpu_hint(g->e, p->m)}, .choice = expr_const(q, 0)};
    each[0] = *p;
    (void)gemm_choose(g, &each[0], out->rows[0], 0);
    if (!each[0].tile || lo == hi) return;
    for (int64_t m = ROWS_LEAST; m <= ROWS_MOST; m *= 2)
        if (m >= lo && m <= hi) samples[n++] = m;
    while (out->n < GEMM_MAX_VARIANTS) {
        int64_t rows = most_slowed(g, p, each, out->n, samples, n);
        if (!rows) break;
        each[out->n] = *p;
        (void)gemm_choose(g, &each[out->n], rows, 0);
        out->rows[out->n++] = rows;
    }
    for (uint32_t i = n; i-- > 0;) {
        uint32_t now = fastest(g, each, out->n, samples[i], &time);
        if (i + 1 == n) out->choice = expr_const(q, now);
        Expr below = expr_lt(q, p->m, expr_const(q, samples[i] * 3 / 2));
        if (i + 1 < n && now != was)
            out->choice =
                expr_add(q, out->choice, expr_muli(q, below, (int64_t)now - (int64_t)was));
        was = out->least = now;
    }
}
