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
static inline double uniform(void) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (double)(rng >> 33) / 2147483648.0;
}

static inline void fill(DType t, void *p, size_t n) {
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

static inline double value(DType t, const void *p, size_t i) {
    return dtype_is_float(t) ? dtype_load_f64(t, p, i) : (double)dtype_load_i64(t, p, i);
}

static inline bool same(const Case *c, const char *variant, uint32_t param, DType t,
                        const void *got, const void *want, size_t n) {
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

/* A case's kernel and its code alone; all of it lives in the arena. */
typedef struct Compiled {
    Arena *a;
    ExprPool *p;
    DiagSink *d;
    Kernel *k;
    CodeResult r;
} Compiled;

/* With DUMP in the environment, texts of every level go to that folder. */
static inline CodeOptions case_options(void) {
    char *folder = getenv("DUMP");
    return (CodeOptions){.threads = 1, .dump = folder ? dump : NULL, .dump_ctx = folder};
}

/* False, with a failed check: there is none. The arena is the caller's either way. */
static inline bool compile_case(const Case *c, PlanDevice device, const CodeOptions *o,
                                Compiled *out) {
    Arena *a = arena_create();
    *out = (Compiled){.a = a, .p = expr_pool_create(a), .d = diag_create(a, NULL)};
    out->k = parse_case(c, a, out->p, out->d);
    if (!out->k) return false;
    Schedule s = {.exprs = out->p};
    vec_push(a, &s.steps, ((SStep){.kind = STEP_kernel, .kernel = out->k}));
    if (CHECK(codegen_run(target_for(device), &s, o, a, out->d, &out->r) == GRAPHC_OK)) return true;
    fprintf(stderr, "%s: %s\n", c->name, diag_count(out->d) ? diag_at(out->d, 0)->text : "?");
    return false;
}

#endif
