/* graphc_data: batches of files in the order of epochs. */
#include "runtime/train/trainer/trainer.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Of options from an older or newer header the part that both know counts. */
static graphc_status read_options(const graphc_data_options *o, graphc_data_options *out,
                                  ErrorText e) {
    if (!o || o->size < offsetof(graphc_data_options, batch))
        return error_set(e, GRAPHC_USAGE, "options are missing, or do not start from %s",
                         "GRAPHC_DATA_OPTIONS_INIT");
    memcpy(out, o, o->size < sizeof *out ? o->size : sizeof *out);
    if (!out->nfiles || !out->files) return error_set(e, GRAPHC_USAGE, "there are no files");
    if (!(out->hold_out >= 0 && out->hold_out < 1))
        return error_set(e, GRAPHC_USAGE, "a part of %g is held out", out->hold_out);
    return GRAPHC_OK;
}

/* The size of an input's axis where the plan has one. */
static uint32_t plan_size(const graphc_plan *p, bool tokens, int32_t axis) {
    for (uint32_t i = 0; i < graphc_plan_inputs(p); i++) {
        graphc_io_info io = graphc_plan_input(p, i);
        if (io.rank <= axis || (tokens && (io.rank != 2 || io.dtype.code == 2))) continue;
        char *end;
        unsigned long v = strtoul(io.dims[axis], &end, 10);
        if (!*end && v && v <= UINT32_MAX) return (uint32_t)v;
    }
    return 0;
}

static graphc_status choose_sizes(const graphc_plan *p, graphc_data_options *o, ErrorText e) {
    bool arrays = strchr(o->files[0], '=') != NULL;
    if (!o->batch) o->batch = plan_size(p, false, 0);
    if (!o->seq) o->seq = plan_size(p, true, 1);
    if (o->batch && (o->seq || arrays)) return GRAPHC_OK;
    return error_set(e, GRAPHC_USAGE, "the plan is for any %s: say which in the options",
                     o->batch ? "number of tokens a row" : "number of rows");
}

static graphc_status open_data(graphc_data *d, const graphc_plan *p, const graphc_data_options *o,
                               ErrorText e) {
    const FeedOptions f = {.files = o->files,
                           .nfiles = o->nfiles,
                           .batch = o->batch,
                           .seq = o->seq,
                           .end = o->end,
                           .format = o->wide ? TOKENS_u32 : TOKENS_auto,
                           .packed = o->packed,
                           .shuffle = o->shuffle,
                           .seed = o->seed,
                           .hold_out = o->hold_out,
                           .held = o->held};
    GC_TRY(feed_open(&d->feed, &f, p, e));
    return order_init(&d->order, feed_rows(&d->feed), o->seed, o->shuffle, e);
}

graphc_status graphc_data_open(const graphc_plan *p, const graphc_data_options *o,
                               graphc_data **out, char *error, size_t error_size) {
    ErrorText e = {error, error_size};
    graphc_data_options all = GRAPHC_DATA_OPTIONS_INIT;
    if (error && error_size) error[0] = 0;
    if (!p || !out) return error_set(e, GRAPHC_USAGE, "graphc_data_open needs a plan and a place");
    *out = NULL;
    GC_TRY(read_options(o, &all, e));
    GC_TRY(choose_sizes(p, &all, e));
    graphc_data *d = calloc(1, sizeof *d);
    if (!d) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory for data");
    graphc_status st = open_data(d, p, &all, e);
    if (st == GRAPHC_OK)
        *out = d;
    else
        graphc_data_destroy(d);
    return st;
}

void graphc_data_destroy(graphc_data *d) {
    if (!d) return;
    order_free(&d->order);
    feed_close(&d->feed);
    free(d);
}

uint64_t graphc_data_rows(const graphc_data *d) {
    return feed_rows(&d->feed);
}

graphc_status graphc_data_next(graphc_data *d, graphc_session *s) {
    order_take(&d->order, d->feed.rows, d->feed.batch);
    return feed_take(&d->feed, s, d->feed.rows);
}

uint64_t graphc_data_tokens(const graphc_data *d) {
    return feed_tokens(&d->feed);
}
