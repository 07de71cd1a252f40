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

graphc_status range_check(const graphc_plan *p, const char *input, const NpyView *v, ErrorText e) {
    if (!dtype_is_int(v->dtype)) return GRAPHC_OK;
    const bool labels = takes_labels(p, input);
    const int64_t ignored = range_ignored(p),
                  classes = labels ? number(p, "vocabulary", INT64_MAX) : INT64_MAX;
    const uint64_t n = v->bytes / dtype_bytes(v->dtype),
                   row = v->dim[0] ? n / (uint64_t)v->dim[0] : 1;
    Range r = range_of(p, input);
    bool counts = !labels;
    if (labels && r.lo < 0) r.lo = 0;
    if (r.hi >= classes) r.hi = classes - 1;
    for (uint64_t i = 0; i < n; i++) {
        const int64_t x = dtype_load_i64(v->dtype, v->data, i);
        const bool is_ignored = labels && x == ignored;
        counts |= !is_ignored;
        if ((x >= r.lo && x <= r.hi) || is_ignored) continue;
        char or [64] = "";
        if (labels)
            snprintf(or, sizeof or, ", or %lld for what does not count", (long long)ignored);
        return error_set(e, GRAPHC_INVALID,
                         "%s: row %llu, element %llu is %lld; the model takes %lld to %lld%s",
                         input, (unsigned long long)(i / row), (unsigned long long)(i % row),
                         (long long)x, (long long)r.lo, (long long)r.hi, or);
    }
    if (counts || !n) return GRAPHC_OK;
    return error_set(e, GRAPHC_INVALID, "%s: every label is %lld, which does not count", input,
                     (long long)ignored);
}
