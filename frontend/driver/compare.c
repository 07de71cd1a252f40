#include "frontend/driver/compare.h"
#include "frontend/driver/tensor_file.h"

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

static bool near(double g, double w, double rtol, double atol, double *max_abs) {
    if (isnan(w) || isnan(g)) return isnan(w) && isnan(g);
    if (isinf(w) || isinf(g)) return w == g;
    double diff = fabs(g - w);
    if (diff > *max_abs) *max_abs = diff;
    return diff <= atol + rtol * fabs(w);
}

Comparison compare_tensors(const EvalTensor *got, const EvalTensor *want, double rtol,
                           double atol) {
    Comparison c = {.same_type = same_type(got, want)};
    if (!c.same_type) return c;
    c.count = tensor_numel(want);
    bool floats = dtype_is_float(got->dtype);
    for (uint64_t i = 0; i < c.count; i++) {
        bool ok = floats ? near(dtype_load_f64(got->dtype, got->data, i),
                                dtype_load_f64(want->dtype, want->data, i), rtol, atol, &c.max_abs)
                         : dtype_load_i64(got->dtype, got->data, i) ==
                               dtype_load_i64(want->dtype, want->data, i);
        c.bad += !ok;
    }
    c.std = floats ? deviation(want, c.count) : 0;
    return c;
}

double comparison_relative(const Comparison *c) {
    return c->std > 0 ? c->max_abs / c->std : c->max_abs;
}
