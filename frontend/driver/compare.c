#include "frontend/driver/compare.h"
#include "frontend/driver/tensors/tensor_file.h"
#include "graph/eval/eval_scalar.h"

#include <math.h>
#include <string.h>

static bool same_shape(const EvalTensor *a, const EvalTensor *b) {
    return a->rank == b->rank && memcmp(a->dim, b->dim, a->rank * sizeof *a->dim) == 0;
}

static bool same_type(const EvalTensor *got, const EvalTensor *want) {
    bool widened = want->dtype == DT_f64 && dtype_is_float(got->dtype);
    return same_shape(got, want) && (got->dtype == want->dtype || widened);
}

static double deviation(const EvalTensor *t, uint64_t n) {
    double sum = 0, squares = 0;
    uint64_t finite = 0;
    for (uint64_t i = 0; i < n; i++) {
        double v = dtype_load_f64(t->dtype, t->data, i);
        if (!isfinite(v)) continue;
        sum += v;
        squares += v * v;
        finite++;
    }
    if (!finite) return 0;
    double mean = sum / (double)finite, var = squares / (double)finite - mean * mean;
    return var > 0 ? sqrt(var) : 0;
}

static bool near(Comparison *c, double g, double w, double rtol, double atol) {
    bool same = (isnan(g) && isnan(w)) || g == w;
    if (!same && !(isfinite(g) && isfinite(w))) c->unlike++;
    if (same || !isfinite(g) || !isfinite(w)) return same;
    double diff = fabs(g - w);
    if (diff > c->max_abs) c->max_abs = diff;
    c->mean_abs += diff;
    return diff <= atol + rtol * fabs(w);
}

Comparison compare_tensors(const EvalTensor *got, const EvalTensor *want, double rtol,
                           double atol) {
    Comparison c = {.same_type = same_type(got, want)};
    if (!c.same_type) return c;
    c.count = tensor_numel(want);
    c.is_float = dtype_is_float(got->dtype);
    for (uint64_t i = 0; i < c.count; i++) {
        if (c.is_float) {
            double w = dtype_load_f64(want->dtype, want->data, i);
            c.bad += !near(&c, dtype_load_f64(got->dtype, got->data, i),
                           eval_round_to(got->dtype, w), rtol, atol);
            continue;
        }
        int64_t g = dtype_load_i64(got->dtype, got->data, i),
                w = dtype_load_i64(want->dtype, want->data, i);
        if (g != w) (void)near(&c, (double)g, (double)w, 0, 0);
        c.bad += g != w;
    }
    if (c.count) c.mean_abs /= (double)c.count;
    c.std = deviation(want, c.count);
    return c;
}

double comparison_relative(const Comparison *c) {
    return c->std > 0 ? c->max_abs / c->std : c->max_abs;
}
