#include "runtime/train/data/npy.h"
#include "runtime/train/data/random.h"
#include "runtime/train/data/tokens_internal.h"
#include <stdlib.h>
#include <string.h>

void tokens_init(Tokens *t) {
    *t = (Tokens){0};
}

static void source_free(TokenSource *s) {
    if (s->map.data) file_unmap(&s->map);
    free(s->labels);
    free(s->owned);
}

void tokens_free(Tokens *t) {
    for (uint64_t i = 0; i < t->nsources; i++) source_free(&t->sources[i]);
    free(t->sources);
    free(t->documents);
    *t = (Tokens){0};
}

/* --- files of ids --------------------------------------------------------------------------- */

/* The largest of n unsigned elements; the loops are plain for the compiler to vectorise. */
static uint64_t largest(const void *ids, DType dtype, uint64_t n) {
    uint64_t most = 0;
    if (dtype == DT_u8) {
        uint8_t m = 0;
        for (uint64_t i = 0; i < n; i++)
            m = ((const uint8_t *)ids)[i] > m ? ((const uint8_t *)ids)[i] : m;
        return m;
    }
    if (dtype == DT_u16 && (uintptr_t)ids % sizeof(uint16_t) == 0) {
        uint16_t m = 0;
        for (uint64_t i = 0; i < n; i++)
            m = ((const uint16_t *)ids)[i] > m ? ((const uint16_t *)ids)[i] : m;
        return m;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t v = (uint64_t)dtype_load_i64(dtype, ids, i); /* a negative one is the largest */
        most = v > most ? v : most;
    }
    return most;
}

static graphc_status check_ids(const TokenSource *s, int64_t vocabulary, ErrorText e) {
    if (!s->length || largest(s->ids, s->dtype, s->length) < (uint64_t)vocabulary) return GRAPHC_OK;
    uint64_t i = 0;
    while ((uint64_t)dtype_load_i64(s->dtype, s->ids, i) < (uint64_t)vocabulary) i++;
    return error_set(e, GRAPHC_INVALID, "token %llu has id %lld; the vocabulary has %lld",
                     (unsigned long long)i, (long long)dtype_load_i64(s->dtype, s->ids, i),
                     (long long)vocabulary);
}

static bool add_ended(Tokens *t, const TokenSource *s, int64_t end) {
    uint64_t from = 0;
    for (uint64_t i = 0; end >= 0 && i < s->length; i++) {
        if (dtype_load_i64(s->dtype, s->ids, i) != end) continue;
        if (!tokens_add_document(t, s->start + from, i + 1 - from)) return false;
        from = i + 1;
    }
    return tokens_add_document(t, s->start + from, s->length - from);
}

static graphc_status finish_ids(Tokens *t, TokenSource *s, const TokenOptions *o, uint64_t row,
                                ErrorText e) {
    bool ok = true;
    GC_TRY(check_ids(s, o->vocabulary, e));
    for (uint64_t at = 0; row && ok && at < s->length; at += row)
        ok = tokens_add_document(t, s->start + at, row);
    if (!row) ok = add_ended(t, s, o->end);
    return ok ? GRAPHC_OK : error_set(e, GRAPHC_NO_MEMORY, "not enough memory for its documents");
}

/* What small ids of 32 bits look like. */
static bool every_second_is_0(const TokenSource *s) {
    bool some = false;
    for (uint64_t i = 0; i < s->length; i++) {
        bool zero = dtype_load_i64(s->dtype, s->ids, i) == 0;
        if (i % 2 && !zero) return false;
        some |= !zero;
    }
    return some && s->length > 7;
}

static graphc_status read_bin(Tokens *t, TokenSource *s, const TokenOptions *o, ErrorText e) {
    bool wide = o->format == TOKENS_u32;
    s->dtype = wide ? DT_u32 : DT_u16;
    if (s->map.size % dtype_bytes(s->dtype))
        return error_set(e, GRAPHC_INVALID, "its %llu bytes are no whole number of ids of %d bits",
                         (unsigned long long)s->map.size, wide ? 32 : 16);
    s->ids = s->map.data;
    s->length = s->map.size / dtype_bytes(s->dtype);
    return finish_ids(t, s, o, 0, e);
}

static graphc_status read_npy(Tokens *t, TokenSource *s, const TokenOptions *o, ErrorText e) {
    NpyView v;
    GC_TRY(npy_view(s->map.data, s->map.size, &v, e));
    if (!dtype_is_int(v.dtype))
        return error_set(e, GRAPHC_INVALID, "holds %s; tokens are integers", dtype_name(v.dtype));
    if (v.rank < 1 || v.rank > 2 || (v.rank == 2 && v.columns))
        return error_set(e, GRAPHC_INVALID,
                         "tokens have one axis, or two in C order; this has %u%s", v.rank,
                         v.columns ? " in Fortran order" : "");
    s->dtype = v.dtype;
    s->ids = v.data;
    s->length = v.bytes / dtype_bytes(v.dtype);
    return finish_ids(t, s, o, v.rank == 2 ? (uint64_t)v.dim[1] : 0, e);
}

static graphc_status read_text(Tokens *t, TokenSource *s, const TokenOptions *o, ErrorText e) {
    const uint8_t *nul = s->map.size ? memchr(s->map.data, 0, s->map.size) : NULL;
    if (nul)
        return error_set(e, GRAPHC_INVALID, "is no text: byte %llu is zero",
                         (unsigned long long)(nul - s->map.data));
    s->dtype = DT_u8;
    s->ids = s->map.data;
    s->length = s->map.size;
    return finish_ids(t, s, &(TokenOptions){o->vocabulary, -1, TOKENS_text}, 0, e);
}

/* -------------------------------------------------------------------------------------------- */

static bool ends_in(const char *path, const char *end) {
    size_t n = strlen(path), m = strlen(end);
    return n > m && strcmp(path + n - m, end) == 0;
}

static TokenFormat format_of(const char *path, const TokenOptions *o) {
    if (o->format != TOKENS_auto) return o->format;
    if (ends_in(path, ".bin")) return o->vocabulary > 1 << 16 ? TOKENS_u32 : TOKENS_u16;
    if (ends_in(path, ".npy")) return TOKENS_npy;
    if (ends_in(path, ".jsonl")) return TOKENS_jsonl;
    return TOKENS_text;
}

static graphc_status read_source(Tokens *t, TokenSource *s, const char *path, const TokenOptions *o,
                                 ErrorText e) {
    char why[256];
    TokenOptions as = *o;
    if (o->vocabulary < 1 || o->vocabulary > INT32_MAX)
        return error_set(e, GRAPHC_USAGE, "a vocabulary of %lld", (long long)o->vocabulary);
    as.format = format_of(path, o);
    graphc_status st = file_map(path, &s->map, why);
    if (st != GRAPHC_OK) return error_set(e, st, "%s", why);
    if (as.format == TOKENS_u16 || as.format == TOKENS_u32)
        st = read_bin(t, s, &as, e);
    else if (as.format == TOKENS_npy)
        st = read_npy(t, s, &as, e);
    else if (as.format == TOKENS_jsonl)
        st = tokens_read_jsonl(t, s, as.vocabulary, e);
    else
        st = read_text(t, s, &as, e);
    if (st == GRAPHC_OK && o->format == TOKENS_auto && as.format == TOKENS_u16 &&
        every_second_is_0(s))
        st = error_set(e, GRAPHC_INVALID,
                       "every second id of 16 bits is 0: say of which type they are");
    if (st == GRAPHC_OK && !s->length) st = error_set(e, GRAPHC_INVALID, "holds no token");
    return st;
}

graphc_status tokens_add(Tokens *t, const char *path, const TokenOptions *o, ErrorText e) {
    TokenSource s = {.start = t->ntokens};
    uint64_t documents = t->ndocuments;
    TokenSource *more = reallocarray(t->sources, t->nsources + 1, sizeof *more);
    if (!more) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory");
    t->sources = more;
    graphc_status st = read_source(t, &s, path, o, e);
    if (st != GRAPHC_OK) {
        source_free(&s);
        t->ndocuments = documents;
        return st;
    }
    t->sources[t->nsources++] = s;
    t->ntokens += s.length;
    return GRAPHC_OK;
}

static const TokenSource *source_at(const Tokens *t, uint64_t position) {
    uint64_t lo = 0, hi = t->nsources;
    while (hi - lo > 1) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (t->sources[mid].start <= position)
            lo = mid;
        else
            hi = mid;
    }
    return &t->sources[lo];
}

void tokens_copy(const Tokens *t, uint64_t start, uint64_t n, int64_t *ids, int64_t *labels) {
    const TokenSource *s = source_at(t, start);
    uint64_t at = start - s->start;
    for (uint64_t i = 0; ids && i < n; i++) ids[i] = dtype_load_i64(s->dtype, s->ids, at + i);
    for (uint64_t i = 0; labels && i < n; i++)
        labels[i] = s->labels ? s->labels[at + i] : dtype_load_i64(s->dtype, s->ids, at + i);
}

/* --- parting -------------------------------------------------------------------------------- */

/* Puts the documents that `order` begins with into held, the others into train, each in its order.
 */
static void part(const Tokens *t, uint64_t *order, uint64_t want, TokenSplit *out) {
    uint64_t *held = order + t->ndocuments, got = 0; /* tokens of each document */
    for (uint64_t i = 0; i < t->ndocuments; i++) {
        uint64_t length = t->documents[order[i]].length;
        held[order[i]] = got < want ? (want - got < length ? want - got : length) : 0;
        got += held[order[i]];
    }
    for (uint64_t i = 0; i < t->ndocuments; i++) {
        TokenSpan d = t->documents[i];
        uint64_t keep = d.length - held[i];
        if (keep) out->train[out->ntrain++] = (TokenSpan){d.start, keep};
        if (held[i]) out->held[out->nheld++] = (TokenSpan){d.start + keep, held[i]};
    }
}

graphc_status tokens_split(const Tokens *t, double fraction, uint64_t seed, TokenSplit *out,
                           ErrorText e) {
    *out = (TokenSplit){0};
    if (!(fraction >= 0 && fraction < 1))
        return error_set(e, GRAPHC_USAGE, "a held-out fraction of %g; it is at least 0 and below 1",
                         fraction);
    uint64_t *order = calloc(2 * t->ndocuments + 1, sizeof *order);
    out->train = calloc(t->ndocuments + 1, sizeof *out->train);
    out->held = calloc(t->ndocuments + 1, sizeof *out->held);
    if (!order || !out->train || !out->held) {
        free(order);
        token_split_free(out);
        return error_set(e, GRAPHC_NO_MEMORY, "not enough memory to part the documents");
    }
    random_order(order, t->ndocuments, seed);
    part(t, order, (uint64_t)(fraction * (double)t->ntokens), out);
    free(order);
    return GRAPHC_OK;
}

void token_split_free(TokenSplit *s) {
    free(s->train);
    free(s->held);
    *s = (TokenSplit){0};
}
