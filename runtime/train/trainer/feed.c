#include "runtime/train/trainer/feed.h"

#include "runtime/base/check.h"
#include "runtime/base/map.h"
#include "runtime/train/safetensors.h"
#include "runtime/train/tensor.h"
#include "runtime/train/trainer/range.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Opening ---------------------------------------------------------------------------------- */

/* NAME=FILE parted at the first sign; NULL where the text is a file alone. */
static const char *array_file(const char *text, char *name, size_t size) {
    const char *eq = strchr(text, '=');
    if (!eq || eq == text || (size_t)(eq - text) >= size) return NULL;
    memcpy(name, text, (size_t)(eq - text));
    name[eq - text] = 0;
    return eq + 1;
}

static graphc_status in_file(ErrorText e, graphc_status st, const char *file, const char *why) {
    return error_set(e, st, "%s: %s", file, why);
}

static bool is_bin(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot && strcmp(dot, ".bin") == 0;
}

static graphc_status add_file(Feed *f, const FeedOptions *o, const graphc_plan *plan,
                              const char *text, ErrorText e) {
    char name[256], why[256];
    ErrorText inner = {why, sizeof why};
    const char *path = array_file(text, name, sizeof name);
    if (path) {
        graphc_status st = arrays_add(&f->arrays, name, path, inner);
        return st == GRAPHC_OK ? st : in_file(e, st, path, why);
    }
    const int64_t vocabulary = range_of_ids(plan);
    if (o->end >= vocabulary)
        return error_set(e, GRAPHC_USAGE, "documents end with id %lld; the vocabulary has %lld",
                         (long long)o->end, (long long)vocabulary);
    TokenOptions t = {
        .vocabulary = vocabulary, .end = o->end, .format = is_bin(text) ? o->format : TOKENS_auto};
    graphc_status st = tokens_add(&f->tokens, text, &t, inner);
    return st == GRAPHC_OK ? st : in_file(e, st, text, why);
}

/* Which documents are packed: all, or a side of the split. */
static graphc_status choose_documents(Feed *f, const FeedOptions *o, const TokenSpan **spans,
                                      uint64_t *n, ErrorText e) {
    *spans = f->tokens.documents;
    *n = f->tokens.ndocuments;
    if (o->hold_out <= 0) return GRAPHC_OK;
    GC_TRY(tokens_split(&f->tokens, o->hold_out, o->seed, &f->split, e));
    *spans = o->held ? f->split.held : f->split.train;
    *n = o->held ? f->split.nheld : f->split.ntrain;
    return GRAPHC_OK;
}

static graphc_status pack_tokens(Feed *f, const FeedOptions *o, ErrorText e) {
    PackMode mode = o->packed ? PACK_filled : PACK_single;
    size_t n = (size_t)o->batch * o->seq;
    const TokenSpan *spans;
    uint64_t nspans;
    GC_TRY(choose_documents(f, o, &spans, &nspans, e));
    GC_TRY(pack_build(&f->tokens, spans, nspans, o->seq, mode, &f->pack, e));
    int64_t *all = calloc(n * 5 + 1, sizeof *all);
    if (!all) return error_set(e, GRAPHC_NO_MEMORY, "a batch of %zu tokens", n);
    f->now = (Batch){.ids = all,
                     .labels = all + n,
                     .positions = all + 2 * n,
                     .documents = all + 3 * n,
                     .mask = all + 4 * n};
    return GRAPHC_OK;
}

/* --- What each input is given ----------------------------------------------------------------- */

static const int64_t *token_field(const Feed *f, const graphc_plan *plan, const char *name) {
    const struct {
        const char *name;
        const int64_t *ids;
    } fields[] = {{"input_ids", f->now.ids},
                  {graphc_plan_note(plan, "labels"), f->now.labels},
                  {"attention_mask", f->now.mask},
                  {"position_ids", f->now.positions},
                  {"document_ids", f->now.documents}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].name && strcmp(name, fields[i].name) == 0) return fields[i].ids;
    return NULL;
}

/* Room for a batch; NULL: there is not as much memory, or no such number of bytes. */
static void *batch_room(const graphc_tensor *t) {
    uint64_t bytes = t->dtype.bits < 8 ? 1u : t->dtype.bits / 8u;
    for (int32_t i = 0; i < t->rank; i++)
        if (!check_mul(bytes, (uint64_t)t->shape[i], &bytes)) return NULL;
    return bytes > SIZE_MAX / 2 ? NULL : aligned_alloc(64, (bytes + 64) / 64 * 64);
}

static graphc_status take_array(FeedSlot *s, const Array *a, const graphc_plan *plan,
                                const graphc_io_info *io, uint32_t batch, ErrorText e) {
    const NpyView *v = &a->view;
    if (strcmp(dtype_name(v->dtype), io->dtype_name) != 0 || (int32_t)v->rank != io->rank)
        return error_set(e, GRAPHC_INVALID,
                         "%s: the file holds %s of rank %u, the model takes %s of rank %d",
                         io->name, dtype_name(v->dtype), v->rank, io->dtype_name, io->rank);
    GC_TRY(range_check(plan, io->name, v, e));
    s->array = a;
    for (int32_t d = 0; d < io->rank; d++) s->tensor.shape[d] = v->dim[d];
    s->tensor.shape[0] = batch;
    return GRAPHC_OK;
}

static graphc_status take_tokens(FeedSlot *s, const int64_t *ids, const graphc_plan *plan,
                                 const graphc_io_info *io, const Feed *f, ErrorText e) {
    const char *t = io->dtype_name;
    const Range positions = range_of(plan, io->name);
    if (io->rank != 2 ||
        (strcmp(t, "i64") && strcmp(t, "i32") && strcmp(t, "bool") && strcmp(t, "f32")))
        return error_set(e, GRAPHC_UNSUPPORTED,
                         "input \"%s\" is %s of rank %d; tokens fill rank 2 of i64, i32, "
                         "bool or f32",
                         io->name, t, io->rank);
    if (ids == f->now.positions && positions.hi < f->seq - 1)
        return error_set(e, GRAPHC_USAGE, "rows of %u tokens; \"%s\" counts to %lld", f->seq,
                         io->name, (long long)positions.hi);
    s->ids = ids;
    s->tensor.shape[0] = f->batch;
    s->tensor.shape[1] = f->seq;
    return GRAPHC_OK;
}

static graphc_status make_slot(Feed *f, const graphc_plan *plan, uint32_t i, ErrorText e) {
    graphc_io_info io = graphc_plan_input(plan, i);
    if (io.rank == 0) return GRAPHC_OK; /* learning rate and the like */
    FeedSlot *s = &f->slots[f->nslots];
    s->input = i;
    s->tensor = (graphc_tensor){.device = GRAPHC_CPU, .dtype = io.dtype, .rank = io.rank};
    const Array *a = arrays_find(&f->arrays, io.name);
    const int64_t *ids = f->tokens.ntokens ? token_field(f, plan, io.name) : NULL;
    if (!a && !ids) return error_set(e, GRAPHC_USAGE, "nothing is given for input \"%s\"", io.name);
    GC_TRY(a ? take_array(s, a, plan, &io, f->batch, e) : take_tokens(s, ids, plan, &io, f, e));
    f->nslots++;
    for (uint32_t k = 0; k < 2; k++)
        if (!(s->room[k] = batch_room(&s->tensor)))
            return error_set(e, GRAPHC_NO_MEMORY, "a batch of \"%s\"", io.name);
    return GRAPHC_OK;
}

static bool is_used(const Feed *f, const Array *a) {
    for (uint32_t i = 0; i < f->nslots; i++)
        if (f->slots[i].array == a) return true;
    return false;
}

/* Each array is some input's. */
static graphc_status check_used(const Feed *f, ErrorText e) {
    for (uint32_t i = 0; i < f->arrays.n; i++)
        if (!is_used(f, &f->arrays.v[i]))
            return error_set(e, GRAPHC_USAGE, "the model has no input \"%s\" with rows",
                             safe_name(f->arrays.v[i].name).text);
    return GRAPHC_OK;
}

static graphc_status check_kinds(const FeedOptions *o, ErrorText e) {
    uint32_t arrays = 0;
    for (uint32_t i = 0; i < o->nfiles; i++) arrays += strchr(o->files[i], '=') != NULL;
    if (!arrays || arrays == o->nfiles) return GRAPHC_OK;
    return error_set(e, GRAPHC_USAGE, "data is either tokens or arrays (NAME=FILE), not both");
}

graphc_status feed_open(Feed *f, const FeedOptions *o, const graphc_plan *plan, ErrorText e) {
    *f = (Feed){.batch = o->batch, .seq = o->seq, .ignored = range_ignored(plan)};
    tokens_init(&f->tokens);
    arrays_init(&f->arrays);
    GC_TRY(check_kinds(o, e));
    for (uint32_t i = 0; i < o->nfiles; i++) GC_TRY(add_file(f, o, plan, o->files[i], e));
    if (f->arrays.n && o->hold_out > 0)
        return error_set(e, GRAPHC_USAGE, "--hold-out parts tokens; of arrays give --eval-data");
    if (f->tokens.ntokens) GC_TRY(pack_tokens(f, o, e));
    if (!feed_rows(f)) return error_set(e, GRAPHC_INVALID, "there is no data to learn from");
    f->rows = calloc(f->batch, sizeof *f->rows);
    f->ahead = calloc(f->batch, sizeof *f->ahead);
    f->slots = calloc((size_t)graphc_plan_inputs(plan) + 1, sizeof *f->slots);
    if (!f->rows || !f->ahead || !f->slots)
        return error_set(e, GRAPHC_NO_MEMORY, "the rows of a batch");
    for (uint32_t i = 0; i < graphc_plan_inputs(plan); i++) GC_TRY(make_slot(f, plan, i, e));
    GC_TRY(check_used(f, e));
    return feed_check_sizes(f, plan, e);
}

void feed_close(Feed *f) {
    for (uint32_t i = 0; i < f->nslots; i++)
        for (uint32_t k = 0; k < 2; k++) free(f->slots[i].room[k]);
    free(f->slots);
    free(f->rows);
    free(f->ahead);
    free(f->now.ids);
    pack_free(&f->pack);
    token_split_free(&f->split);
    arrays_free(&f->arrays);
    tokens_free(&f->tokens);
    *f = (Feed){0};
}

uint64_t feed_rows(const Feed *f) {
    return f->tokens.ntokens ? f->pack.nsequences : f->arrays.rows;
}

uint64_t feed_batches(const Feed *f) {
    uint64_t n = feed_rows(f);
    return f->tokens.ntokens ? (n + f->batch - 1) / f->batch : n / f->batch;
}

uint64_t feed_hash(const Feed *f) {
    uint64_t h = feed_rows(f);
    for (uint64_t i = 0; i < f->tokens.nsources; i++) {
        const TokenSource *s = &f->tokens.sources[i];
        h = hash_bytes(s->ids, s->length * dtype_bytes(s->dtype), h);
        if (s->labels) h = hash_bytes(s->labels, s->length * sizeof *s->labels, h);
    }
    if (f->tokens.ntokens)
        h = hash_bytes(f->tokens.documents, f->tokens.ndocuments * sizeof *f->tokens.documents, h);
    for (uint32_t i = 0; i < f->arrays.n; i++) {
        const Array *a = &f->arrays.v[i];
        h = hash_bytes(a->name, strlen(a->name), h);
        h = hash_bytes(a->view.data, a->view.bytes, h);
    }
    return h;
}

void feed_rewind(Feed *f) {
    f->at = 0;
}

/* --- Batches ---------------------------------------------------------------------------------- */

static void convert(const int64_t *from, uint64_t n, const graphc_tensor *to) {
    if (to->dtype.code == 2) {
        for (uint64_t i = 0; i < n; i++) ((float *)to->data)[i] = (float)from[i];
    } else if (to->dtype.bits == 64) {
        memcpy(to->data, from, n * sizeof *from);
    } else if (to->dtype.bits == 32) {
        for (uint64_t i = 0; i < n; i++) ((int32_t *)to->data)[i] = (int32_t)from[i];
    } else {
        for (uint64_t i = 0; i < n; i++) ((uint8_t *)to->data)[i] = from[i] != 0;
    }
}

graphc_status feed_next(Feed *f, graphc_session *s) {
    for (uint32_t i = 0; i < f->batch; i++, f->at++)
        f->rows[i] = f->at < feed_rows(f) ? f->at : PACK_NO_ROW;
    return feed_take(f, s, f->rows);
}

void feed_prepare(Feed *f, const uint64_t *rows) {
    f->made = true;
    memcpy(f->ahead, rows, f->batch * sizeof *rows);
    if (f->tokens.ntokens) {
        pack_batch(&f->pack, rows, f->batch, 0, &f->now);
        for (size_t i = 0; i < (size_t)f->batch * f->seq; i++)
            if (f->now.labels[i] == TOKENS_IGNORE) f->now.labels[i] = f->ignored;
    }
    for (uint32_t i = 0; i < f->nslots; i++) {
        FeedSlot *slot = &f->slots[i];
        slot->tensor.data = slot->room[1 - f->turn];
        if (slot->ids)
            convert(slot->ids, tensor_elements(&slot->tensor), &slot->tensor);
        else
            array_rows(slot->array, rows, f->batch, slot->tensor.data);
    }
}

graphc_status feed_take(Feed *f, graphc_session *s, const uint64_t *rows) {
    if (!f->made || memcmp(f->ahead, rows, f->batch * sizeof *rows) != 0) feed_prepare(f, rows);
    f->made = false;
    f->turn = 1 - f->turn;
    f->places = f->now.places;
    for (uint32_t i = 0; i < f->nslots; i++)
        GC_TRY(graphc_bind_input(s, f->slots[i].input, &f->slots[i].tensor));
    return GRAPHC_OK;
}

uint64_t feed_tokens(const Feed *f) {
    return f->tokens.ntokens ? f->places : f->batch;
}
