#include "runtime/train/trainer/range.h"
#include "runtime/train/data/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t number(const graphc_plan *p, const char *key, int64_t otherwise) {
    const char *text = graphc_plan_note(p, key);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

Range range_of(const graphc_plan *p, const char *input) {
    Range r = {INT64_MIN, INT64_MAX};
    long long lo, hi;
    char key[300];
    snprintf(key, sizeof key, "range of %s", input);
    const char *text = graphc_plan_note(p, key);
    if (text && sscanf(text, "%lld..%lld", &lo, &hi) == 2) r = (Range){lo, hi};
    return r;
}

int64_t range_of_ids(const graphc_plan *p) {
    const int64_t most = number(p, "vocabulary", INT32_MAX);
    const Range ids = range_of(p, "input_ids");
    return ids.hi < most ? ids.hi + 1 : most;
}

int64_t range_ignored(const graphc_plan *p) {
    return number(p, "ignored", TOKENS_IGNORE);
}

static bool takes_labels(const graphc_plan *p, const char *input) {
    const char *labels = graphc_plan_note(p, "ignored") ? graphc_plan_note(p, "labels") : NULL;
    return labels && strcmp(labels, input) == 0;
}

/* What an input's elements may be; labels: or `ignored`, which counts for nothing. */
typedef struct Accepted {
    Range range;
    bool labels;
    int64_t ignored;
} Accepted;

static Accepted accepted(const graphc_plan *p, const char *input) {
    Accepted a = {range_of(p, input), takes_labels(p, input), range_ignored(p)};
    const int64_t classes = a.labels ? number(p, "vocabulary", INT64_MAX) : INT64_MAX;
    if (a.labels && a.range.lo < 0) a.range.lo = 0;
    if (a.range.hi >= classes) a.range.hi = classes - 1;
    return a;
}

static graphc_status refuse(const char *input, const NpyView *v, uint64_t at, uint64_t row,
                            const Accepted *a, ErrorText e) {
    char besides[64] = "";
    if (a->labels)
        snprintf(besides, sizeof besides, ", or %lld for what does not count",
                 (long long)a->ignored);
    return error_set(e, GRAPHC_INVALID,
                     "%s: row %llu, element %llu is %lld; the model takes %lld to %lld%s", input,
                     (unsigned long long)(at / row), (unsigned long long)(at % row),
                     (long long)dtype_load_i64(v->dtype, v->data, at), (long long)a->range.lo,
                     (long long)a->range.hi, besides);
}

graphc_status range_check(const graphc_plan *p, const char *input, const NpyView *v, ErrorText e) {
    if (!dtype_is_int(v->dtype)) return GRAPHC_OK;
    const Accepted a = accepted(p, input);
    const uint64_t n = v->bytes / dtype_bytes(v->dtype),
                   row = v->dim[0] ? n / (uint64_t)v->dim[0] : 1;
    bool counts = !a.labels || !n;
    for (uint64_t i = 0; i < n; i++) {
        const int64_t x = dtype_load_i64(v->dtype, v->data, i);
        if (a.labels && x == a.ignored) continue;
        if (x < a.range.lo || x > a.range.hi) return refuse(input, v, i, row, &a, e);
        counts = true;
    }
    if (counts) return GRAPHC_OK;
    return error_set(e, GRAPHC_INVALID, "%s: every label is %lld, which does not count", input,
                     (long long)a.ignored);
}
