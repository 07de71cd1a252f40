/* Random inputs and comparison for the code generators' tests. */
#ifndef TESTS_UNIT_CODEGEN_RUN_H
#define TESTS_UNIT_CODEGEN_RUN_H

#include "codegen/target.h"
#include "tests/unit/test.h"

typedef struct Case {
    const char *name, *text;
    double tol; /* relative to the largest magnitude of the output */
} Case;

#include "tests/unit/codegen/codegen_cases.h"

static uint64_t rng = 1;
static double uniform(void) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (double)(rng >> 33) / 2147483648.0;
}

static void fill(DType t, void *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double u = uniform();
        if (t == DT_bool)
            dtype_store_i64(t, p, i, u < 0.5);
        else if (dtype_is_float(t))
            dtype_store_f64(t, p, i, u * 4 - 2);
        else
            dtype_store_i64(t, p, i, (int64_t)(u * 7) - (dtype_is_signed(t) ? 3 : 0));
    }
}

static double value(DType t, const void *p, size_t i) {
    return dtype_is_float(t) ? dtype_load_f64(t, p, i) : (double)dtype_load_i64(t, p, i);
}

static bool same(const Case *c, const char *variant, uint32_t param, DType t, const void *got,
                 const void *want, size_t n) {
    double scale = 1e-30;
    for (size_t i = 0; i < n; i++) {
        double w = fabs(value(t, want, i));
        if (isfinite(w) && w > scale) scale = w;
    }
    for (size_t i = 0; i < n; i++) {
        double g = value(t, got, i), w = value(t, want, i);
        if (!dtype_is_float(t)) {
            if (dtype_load_i64(t, got, i) == dtype_load_i64(t, want, i)) continue;
        } else if ((isnan(g) && isnan(w)) || g == w || fabs(g - w) <= c->tol * scale)
            continue;
        fprintf(stderr, "%s (%s) p%u[%zu of %zu]: %.9g, expected %.9g\n", c->name, variant, param,
                i, n, g, w);
        return false;
    }
    return true;
}

static void dump(void *ctx, const char *kernel, const char *ext, const char *text, size_t n) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s.%s", (const char *)ctx, kernel, ext);
    FILE *f = fopen(path, "w");
    if (!f) return;
    fwrite(text, 1, n, f);
    fclose(f);
}

/* The case's kernel over symbols N and M; NULL (and a failed check) if it is malformed. */
static Kernel *parse_case(const Case *c, Arena *a, ExprPool *p, DiagSink *d) {
    static const char *const dims[] = {"N", "M"};
    for (int i = 0; i < 2; i++)
        (void)expr_sym_new(p, (SymInfo){.name = dims[i], .kind = SYM_DIM, .lo = 0, .hi = 1 << 20});
    const char *end;
    Kernel *k = kir_parse(a, p, d, c->text, &end);
    if (CHECK(k && kir_verify(k, p, d) == GRAPHC_OK)) return k;
    fprintf(stderr, "%s: %s\n", c->name, diag_count(d) ? diag_at(d, 0)->text : end);
    return NULL;
}

#endif
