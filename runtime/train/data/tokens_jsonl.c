/* Documents from JSON lines. */
#include "runtime/train/json_read.h"
#include "runtime/train/data/tokens_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Column { /* of one line */
    int64_t *v;
    uint64_t n, room;
    bool there;
} Column;

typedef struct Lines {
    Tokens *tokens;
    TokenSource *source;
    int64_t vocabulary;
    Column ids, labels, mask;
    int32_t *all; /* ids of all lines */
    uint64_t all_room, labels_room;
    uint64_t line;
    ErrorText e;
} Lines;

static graphc_status no_memory(const Lines *l) {
    return error_set(l->e, GRAPHC_NO_MEMORY, "line %llu: not enough memory",
                     (unsigned long long)l->line);
}

static graphc_status take_column(const Lines *l, JsonRead *r, Column *c) {
    if (c->there) jr_refuse(r, "a member that is there twice");
    c->there = true;
    for (jr_array(r); jr_item(r);) {
        if (!tokens_reserve(&c->v, c->n, &c->room, sizeof *c->v)) return no_memory(l);
        c->v[c->n] = 0;
        if (jr_i64(r, &c->v[c->n])) c->n++;
    }
    return GRAPHC_OK;
}

static graphc_status parse_line(Lines *l, const char *text, size_t n) {
    JsonRead r;
    JsonSpan key;
    l->ids.n = l->labels.n = l->mask.n = 0;
    l->ids.there = l->labels.there = l->mask.there = false;
    jr_init(&r, text, n);
    for (jr_object(&r); jr_key(&r, &key);) {
        Column *c = jr_is(key, "input_ids")        ? &l->ids
                    : jr_is(key, "labels")         ? &l->labels
                    : jr_is(key, "attention_mask") ? &l->mask
                                                   : NULL;
        if (c)
            GC_TRY(take_column(l, &r, c));
        else
            jr_skip(&r);
    }
    if (!jr_end(&r))
        return error_set(l->e, GRAPHC_INVALID, "line %llu, character %zu: %s",
                         (unsigned long long)l->line, jr_offset(&r) + 1, r.fault);
    if (l->ids.there) return GRAPHC_OK;
    return error_set(l->e, GRAPHC_INVALID,
                     "line %llu has no \"input_ids\"; text has to be tokenised before",
                     (unsigned long long)l->line);
}

static graphc_status wrong_item(const Lines *l, const char *what, uint64_t i, int64_t v,
                                const char *rule) {
    return error_set(l->e, GRAPHC_INVALID, "line %llu, %s %llu is %lld; %s",
                     (unsigned long long)l->line, what, (unsigned long long)i, (long long)v, rule);
}

static graphc_status wrong_id(const Lines *l, const char *what, uint64_t i, int64_t v,
                              const char *rule) {
    char of[128];
    snprintf(of, sizeof of, "%s (the vocabulary has %lld)", rule, (long long)l->vocabulary);
    return wrong_item(l, what, i, v, of);
}

static graphc_status check_length(const Lines *l, const char *what, const Column *c) {
    if (!c->there || c->n == l->ids.n) return GRAPHC_OK;
    return error_set(l->e, GRAPHC_INVALID, "line %llu has %llu %s for %llu input_ids",
                     (unsigned long long)l->line, (unsigned long long)c->n, what,
                     (unsigned long long)l->ids.n);
}

static graphc_status check_line(const Lines *l) {
    GC_TRY(check_length(l, "labels", &l->labels));
    GC_TRY(check_length(l, "items of attention_mask", &l->mask));
    for (uint64_t i = 0; i < l->ids.n; i++)
        if (l->ids.v[i] < 0 || l->ids.v[i] >= l->vocabulary)
            return wrong_id(l, "input_ids item", i, l->ids.v[i], "ids are below the vocabulary");
    for (uint64_t i = 0; i < l->labels.n; i++)
        if (l->labels.v[i] != TOKENS_IGNORE &&
            (l->labels.v[i] < 0 || l->labels.v[i] >= l->vocabulary))
            return wrong_id(l, "labels item", i, l->labels.v[i], "labels are ids, or -100");
    for (uint64_t i = 0; i < l->mask.n; i++)
        if (l->mask.v[i] != 0 && l->mask.v[i] != 1)
            return wrong_item(l, "attention_mask item", i, l->mask.v[i], "a mask is 0 or 1");
    return GRAPHC_OK;
}

/* What the mask leaves: one run of ids. */
static graphc_status unmasked(const Lines *l, uint64_t *from, uint64_t *to) {
    *from = 0;
    *to = l->ids.n;
    if (!l->mask.there) return GRAPHC_OK;
    while (*from < *to && !l->mask.v[*from]) ++*from;
    while (*to > *from && !l->mask.v[*to - 1]) --*to;
    for (uint64_t i = *from; i < *to; i++)
        if (!l->mask.v[i])
            return wrong_item(l, "attention_mask item", i, 0, "only the ends may be masked");
    return GRAPHC_OK;
}

/* Labels of the lines so far, once the first line has some. */
static bool begin_labels(Lines *l) {
    TokenSource *s = l->source;
    l->labels_room = l->all_room;
    s->labels = reallocarray(NULL, l->labels_room + 1, sizeof *s->labels);
    if (s->labels && s->length) memcpy(s->labels, l->all, s->length * sizeof *s->labels);
    return s->labels;
}

static graphc_status keep_line(Lines *l) {
    TokenSource *s = l->source;
    uint64_t from, to, start = s->length;
    GC_TRY(unmasked(l, &from, &to));
    if (l->labels.there && !s->labels && !begin_labels(l)) return no_memory(l);
    for (uint64_t i = from; i < to; i++) {
        if (!tokens_reserve(&l->all, s->length, &l->all_room, sizeof *l->all) ||
            (s->labels &&
             !tokens_reserve(&s->labels, s->length, &l->labels_room, sizeof *s->labels)))
            return no_memory(l);
        l->all[s->length] = (int32_t)l->ids.v[i];
        if (s->labels)
            s->labels[s->length] = (int32_t)(l->labels.there ? l->labels.v[i] : l->ids.v[i]);
        s->length++;
    }
    return tokens_add_document(l->tokens, s->start + start, to - from) ? GRAPHC_OK : no_memory(l);
}

static bool is_blank(const char *p, size_t n) {
    while (n && (*p == ' ' || *p == '\t' || *p == '\r')) p++, n--;
    return !n;
}

static graphc_status read_lines(Lines *l) {
    static const char mark[] = {'\xef', '\xbb', '\xbf'}; /* of UTF-8, as Windows' tools put it */
    const char *at = (const char *)l->source->map.data, *end = at + l->source->map.size;
    if ((size_t)(end - at) >= sizeof mark && memcmp(at, mark, sizeof mark) == 0) at += sizeof mark;
    for (l->line = 1; at < end; l->line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        if (!is_blank(at, (size_t)(stop - at))) {
            GC_TRY(parse_line(l, at, (size_t)(stop - at)));
            GC_TRY(check_line(l));
            GC_TRY(keep_line(l));
        }
        at = stop + 1;
    }
    return GRAPHC_OK;
}

graphc_status tokens_read_jsonl(Tokens *t, TokenSource *s, int64_t vocabulary, ErrorText e) {
    Lines l = {.tokens = t, .source = s, .vocabulary = vocabulary, .e = e};
    graphc_status st = s->map.size ? read_lines(&l) : GRAPHC_OK;
    free(l.ids.v);
    free(l.labels.v);
    free(l.mask.v);
    s->ids = s->owned = l.all;
    s->dtype = DT_i32;
    if (s->map.data) file_unmap(&s->map);
    return st;
}
