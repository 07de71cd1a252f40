/* Whether a feed's batches are of the plan's sizes. */
#include "runtime/train/trainer/feed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static graphc_status wrong_size(const Feed *f, const FeedSlot *s, const char *input, int32_t axis,
                                const char *want, ErrorText e) {
    long long is = (long long)s->tensor.shape[axis];
    if (!axis)
        return error_set(e, GRAPHC_USAGE, "batches of %u rows; \"%s\" takes %s", f->batch, input,
                         want);
    if (s->ids)
        return error_set(e, GRAPHC_USAGE, "rows of %u tokens; \"%s\" takes %s", f->seq, input,
                         want);
    return error_set(e, GRAPHC_INVALID,
                     "%s: rows of the file have %lld along axis %d, the model takes %s", input, is,
                     axis, want);
}

/* Another axis of the same symbol, of this input or one before it, is as long. */
static graphc_status check_same(const Feed *f, const graphc_plan *plan, uint32_t slot, int32_t axis,
                                ErrorText e) {
    const FeedSlot *s = &f->slots[slot];
    const graphc_io_info io = graphc_plan_input(plan, s->input);
    char want[300];
    for (uint32_t i = 0; i <= slot; i++) {
        const FeedSlot *other = &f->slots[i];
        const graphc_io_info at = graphc_plan_input(plan, other->input);
        for (int32_t d = 0; d < (i < slot ? at.rank : axis); d++) {
            if (strcmp(at.dims[d], io.dims[axis]) != 0 ||
                other->tensor.shape[d] == s->tensor.shape[axis])
                continue;
            snprintf(want, sizeof want, "%lld, as \"%.80s\" has along axis %d",
                     (long long)other->tensor.shape[d], at.name, d);
            return wrong_size(f, s, io.name, axis, want, e);
        }
    }
    return GRAPHC_OK;
}

static graphc_status check_axis(const Feed *f, const graphc_plan *plan, uint32_t slot, int32_t axis,
                                ErrorText e) {
    const FeedSlot *s = &f->slots[slot];
    const graphc_io_info io = graphc_plan_input(plan, s->input);
    const int64_t is = s->tensor.shape[axis];
    char *end, want[64];
    int64_t fixed = strtoll(io.dims[axis], &end, 10);
    if (!*end) return is == fixed ? GRAPHC_OK : wrong_size(f, s, io.name, axis, io.dims[axis], e);
    for (uint32_t i = 0; i < graphc_plan_symbols(plan); i++) {
        const graphc_symbol_info symbol = graphc_plan_symbol(plan, i);
        if (strcmp(symbol.name, io.dims[axis]) != 0 || (is >= symbol.lo && is <= symbol.hi))
            continue;
        snprintf(want, sizeof want, "%lld to %lld", (long long)symbol.lo, (long long)symbol.hi);
        return wrong_size(f, s, io.name, axis, want, e);
    }
    return check_same(f, plan, slot, axis, e);
}

graphc_status feed_check_sizes(const Feed *f, const graphc_plan *plan, ErrorText e) {
    for (uint32_t i = 0; i < f->nslots; i++)
        for (int32_t d = 0; d < f->slots[i].tensor.rank; d++) GC_TRY(check_axis(f, plan, i, d, e));
    return GRAPHC_OK;
}
