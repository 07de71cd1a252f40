/* Importer and evaluator against cases in the layout of ONNX's backend test suite, without fusion,
 * code generation or a plan:
 *
 *     suite_eval FOLDER...     FOLDER holds model.onnx and test_data_set_0/{input,output}_N.pb
 *
 * One line a case: pass, unsupported, error, wrong or crash, the folder, the first message. eval.py
 * knows which verdicts are right. */
#include "frontend/import/import.h"
#include "graph/eval/eval.h"
#include "tests/conformance/apart.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TIME_LIMIT_S 60

typedef enum Verdict { PASS, UNSUPPORTED, ERROR, WRONG, CRASH, VERDICTS } Verdict;
static const char *const verdict_name[VERDICTS] = {"pass", "unsupported", "error", "wrong",
                                                   "crash"};

static Verdict say(Verdict v, const char *folder, const char *text) {
    printf("%s %s %.300s\n", verdict_name[v], folder, text);
    fflush(stdout);
    return v;
}

static Verdict say_diag(Arena *a, DiagSink *d, const char *folder, const char *stage) {
    const char *text = "";
    for (uint32_t i = 0; i < diag_count(d) && !*text; i++)
        if (diag_info[diag_at(d, i)->id].severity == SEV_error)
            text = arena_printf(a, "%s: %s: %s", stage, diag_at(d, i)->place, diag_at(d, i)->text);
    return say(diag_status(d) == GRAPHC_UNSUPPORTED ? UNSUPPORTED : ERROR, folder, text);
}

static bool exists(const char *path) {
    struct stat s;
    return stat(path, &s) == 0;
}

static bool load(Arena *a, DiagSink *d, const char *folder, const char *kind, uint32_t i,
                 EvalTensor *out) {
    ImportTensor t;
    const char *path = arena_printf(a, "%s/test_data_set_0/%s_%u.pb", folder, kind, i);
    if (!exists(path) || import_tensor(a, d, path, NULL, &t) != GRAPHC_OK) return false;
    *out = (EvalTensor){
        .dtype = t.dtype, .rank = (uint8_t)t.rank, .data = arena_copy(a, t.data, t.bytes)};
    memcpy(out->dim, t.dim, sizeof out->dim);
    return true;
}

static uint64_t count(const EvalTensor *t) {
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->rank; i++) n *= (uint64_t)t->dim[i];
    return n;
}

static bool close_enough(double got, double want) {
    if (isnan(want)) return isnan(got);
    if (isinf(want)) return got == want;
    return fabs(got - want) <= 1e-7 + 1e-3 * fabs(want);
}

/* "" if equal within the suite's tolerance. */
static const char *compare(Arena *a, const EvalTensor *got, const EvalTensor *want) {
    if (got->dtype != want->dtype)
        return arena_printf(a, "type %s, expected %s", dtype_name(got->dtype),
                            dtype_name(want->dtype));
    if (got->rank != want->rank || memcmp(got->dim, want->dim, want->rank * sizeof *got->dim)) {
        StrBuf s;
        sb_init(&s, a);
        for (uint32_t i = 0; i < got->rank; i++)
            sb_printf(&s, "%s%lld", i ? "," : "shape [", (long long)got->dim[i]);
        sb_put(&s, "] not");
        for (uint32_t i = 0; i < want->rank; i++)
            sb_printf(&s, "%s%lld", i ? "," : " [", (long long)want->dim[i]);
        return sb_str(&s);
    }
    const bool is_float = dtype_is_float(got->dtype);
    for (uint64_t i = 0, n = count(want); i < n; i++) {
        if (is_float) {
            const double g = dtype_load_f64(got->dtype, got->data, i);
            const double w = dtype_load_f64(want->dtype, want->data, i);
            if (!close_enough(g, w))
                return arena_printf(a, "element %llu is %g, expected %g", (unsigned long long)i, g,
                                    w);
        } else {
            const int64_t g = dtype_load_i64(got->dtype, got->data, i);
            const int64_t w = dtype_load_i64(want->dtype, want->data, i);
            if (g != w)
                return arena_printf(a, "element %llu is %lld, expected %lld", (unsigned long long)i,
                                    (long long)g, (long long)w);
        }
    }
    return "";
}

static Verdict judge(Arena *a, DiagSink *d, const Graph *g, const char *folder) {
    if (graph_verify(g) != GRAPHC_OK) return say_diag(a, d, folder, "verify");
    EvalTensor *in = ARENA_ARRAY(a, EvalTensor, g->inputs.n + 1);
    EvalTensor *out = ARENA_ARRAY(a, EvalTensor, g->outputs.n + 1), want;
    for (uint32_t i = 0; i < g->inputs.n; i++)
        if (!load(a, d, folder, "input", i, &in[i]))
            return say(ERROR, folder, "an input cannot be read");
    EvalOptions o = {.round_f32 = true};
    if (eval_run(g, in, &o, a, out) != GRAPHC_OK) return say_diag(a, d, folder, "eval");
    for (uint32_t i = 0; i < g->outputs.n; i++) {
        if (!load(a, d, folder, "output", i, &want))
            return say(ERROR, folder, "an output cannot be read");
        const char *why = compare(a, &out[i], &want);
        if (*why) return say(WRONG, folder, arena_printf(a, "output %u: %s", i, why));
    }
    return say(PASS, folder, "");
}

static void run_case(const char *folder) {
    Arena *a = arena_create();
    DiagSink *d = diag_create(a, NULL);
    Model *m;
    Graph *g;
    if (import_model(a, d, arena_printf(a, "%s/model.onnx", folder), NULL, &m, &g) == GRAPHC_OK) {
        (void)judge(a, d, g, folder);
        import_close(m);
    } else {
        (void)say_diag(a, d, folder, "import");
    }
    arena_destroy(a);
}

static void say_crash(const char *folder, const char *how) {
    (void)say(CRASH, folder, how);
}

int main(int argc, char **argv) {
    run_apart(run_case, argv + 1, argc - 1, TIME_LIMIT_S, say_crash);
    return 0;
}
