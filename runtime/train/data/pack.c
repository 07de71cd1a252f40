#include "runtime/train/data/pack.h"
#include <stdlib.h>
#include <string.h>

typedef struct Pieces {
    TokenSpan *v;
    uint64_t n;
} Pieces;

static uint64_t count_labels(const Tokens *t, TokenSpan piece) {
    enum { CHUNK = 512 };
    int64_t labels[CHUNK];
    uint64_t count = 0;
    for (uint64_t at = 0; at < piece.length; at += CHUNK) {
        uint64_t n = piece.length - at < CHUNK ? piece.length - at : CHUNK;
        tokens_copy(t, piece.start + at + 1, n, NULL, labels);
        for (uint64_t i = 0; i < n; i++) count += labels[i] != TOKENS_IGNORE;
    }
    return count;
}

static uint64_t pieces_of(TokenSpan document, uint32_t length) {
    return document.length < 2 ? 0 : (document.length - 2) / length + 1;
}

static bool cut(Pack *p, const TokenSpan *spans, uint64_t nspans, Pieces *out) {
    uint64_t room = 1;
    for (uint64_t i = 0; i < nspans; i++) room += pieces_of(spans[i], p->length);
    out->v = reallocarray(NULL, room, sizeof *out->v);
    for (uint64_t i = 0; out->v && i < nspans; i++)
        for (uint64_t at = 0; at + 1 < spans[i].length; at += p->length) {
            uint64_t left = spans[i].length - 1 - at;
            TokenSpan piece = {spans[i].start + at, left < p->length ? left : p->length};
            uint64_t labels = count_labels(p->tokens, piece);
            p->idle += !labels;
            p->supervised += labels;
            p->places += labels ? piece.length : 0;
            if (labels) out->v[out->n++] = piece;
        }
    return out->v;
}

/* --- which sequence a piece goes to ---------------------------------------------------------- */

#define NONE UINT64_MAX

/* Sequences by the room that is left in them: a list for each, and a bit where one is not empty. */
typedef struct Bins {
    uint32_t length;
    uint64_t *head;  /* length + 1 */
    uint64_t *next;  /* of a sequence */
    uint64_t *bits;  /* length / 64 + 1 */
    uint64_t *place; /* of a piece: its sequence */
    uint64_t *order; /* of pieces, longest first */
    uint64_t n;      /* sequences so far */
} Bins;

static void bins_free(Bins *b) {
    free(b->head);
    free(b->next);
    free(b->bits);
    free(b->place);
    free(b->order);
}

static bool bins_make(Bins *b, uint32_t length, uint64_t npieces) {
    *b = (Bins){.length = length};
    b->head = reallocarray(NULL, (size_t)length + 2, sizeof *b->head);
    b->bits = calloc((size_t)length / 64 + 1, sizeof *b->bits);
    b->next = reallocarray(NULL, npieces + 1, sizeof *b->next);
    b->place = reallocarray(NULL, npieces + 1, sizeof *b->place);
    b->order = reallocarray(NULL, npieces + 1, sizeof *b->order);
    for (uint32_t i = 0; b->head && i < length + 2; i++) b->head[i] = NONE;
    return b->head && b->bits && b->next && b->place && b->order;
}

static void bins_put(Bins *b, uint64_t sequence, uint64_t room) {
    b->next[sequence] = b->head[room];
    b->head[room] = sequence;
    b->bits[room / 64] |= UINT64_C(1) << room % 64;
}

/* The least room that is at least `want` in any sequence; NONE: there is no such sequence. */
static uint64_t bins_least(const Bins *b, uint64_t want) {
    uint64_t word = want / 64, bits = b->bits[word] >> want % 64 << want % 64;
    while (!bits && word < b->length / 64) bits = b->bits[++word];
    return bits ? word * 64 + (uint64_t)__builtin_ctzll(bits) : NONE;
}

static uint64_t bins_take(Bins *b, uint64_t room) {
    uint64_t sequence = b->head[room];
    b->head[room] = b->next[sequence];
    if (b->head[room] == NONE) b->bits[room / 64] &= ~(UINT64_C(1) << room % 64);
    return sequence;
}

/* Longest first, else as they come: counted, since lengths are bounded. head is used as counters */
static void order_pieces(Bins *b, const Pieces *p) {
    for (uint32_t i = 0; i < b->length + 2; i++) b->head[i] = 0;
    for (uint64_t i = 0; i < p->n; i++) b->head[b->length - p->v[i].length + 1]++;
    for (uint32_t i = 1; i < b->length + 2; i++) b->head[i] += b->head[i - 1];
    for (uint64_t i = 0; i < p->n; i++) b->order[b->head[b->length - p->v[i].length]++] = i;
    for (uint32_t i = 0; i < b->length + 2; i++) b->head[i] = NONE;
}

static void place_pieces(Bins *b, const Pieces *p, PackMode mode) {
    for (uint64_t i = 0; i < p->n; i++) {
        uint64_t piece = mode == PACK_filled ? b->order[i] : i, length = p->v[piece].length;
        uint64_t room = mode == PACK_filled ? bins_least(b, length) : NONE;
        uint64_t sequence = room == NONE ? b->n++ : bins_take(b, room);
        if (room == NONE) room = b->length;
        b->place[piece] = sequence;
        if (mode == PACK_filled) bins_put(b, sequence, room - length);
    }
}

/* Pieces by sequence, within one as they come in the data. */
static bool gather(Pack *out, const Bins *b, const Pieces *p) {
    out->nsequences = b->n;
    out->pieces = reallocarray(NULL, p->n + 1, sizeof *out->pieces);
    out->first = calloc(b->n + 2, sizeof *out->first);
    if (!out->pieces || !out->first) return false;
    for (uint64_t i = 0; i < p->n; i++) out->first[b->place[i] + 2]++;
    for (uint64_t i = 2; i < b->n + 2; i++) out->first[i] += out->first[i - 1];
    for (uint64_t i = 0; i < p->n; i++) out->pieces[out->first[b->place[i] + 1]++] = p->v[i];
    return true;
}

graphc_status pack_build(const Tokens *t, const TokenSpan *spans, uint64_t nspans, uint32_t length,
                         PackMode mode, Pack *out, ErrorText e) {
    enum { MOST = 1 << 24 };
    Pieces p = {0};
    Bins b = {0};
    *out = (Pack){.tokens = t, .length = length};
    if (length < 1 || length > MOST)
        return error_set(e, GRAPHC_USAGE, "a sequence length of %u; it is 1 to %d", length, MOST);
    bool ok = cut(out, spans, nspans, &p) && bins_make(&b, length, p.n);
    if (ok) {
        order_pieces(&b, &p);
        place_pieces(&b, &p, mode);
        ok = gather(out, &b, &p);
    }
    bins_free(&b);
    free(p.v);
    if (ok && out->nsequences) return GRAPHC_OK;
    pack_free(out);
    if (!ok) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory to pack the documents");
    return error_set(e, GRAPHC_INVALID,
                     "there is nothing to learn from: no token with a label that follows another");
}

void pack_free(Pack *p) {
    free(p->pieces);
    free(p->first);
    *p = (Pack){0};
}

/* -------------------------------------------------------------------------------------------- */

static void fill(int64_t *array, uint64_t at, uint64_t n, int64_t v) {
    for (uint64_t i = 0; array && i < n; i++) array[at + i] = v;
}

static void count(int64_t *array, uint64_t at, uint64_t n) {
    for (uint64_t i = 0; array && i < n; i++) array[at + i] = (int64_t)i;
}

static void put_piece(const Pack *p, TokenSpan piece, int64_t document, uint64_t at, Batch *out) {
    tokens_copy(p->tokens, piece.start, piece.length, out->ids ? out->ids + at : NULL, NULL);
    if (out->labels) tokens_copy(p->tokens, piece.start + 1, piece.length, NULL, out->labels + at);
    count(out->positions, at, piece.length);
    fill(out->documents, at, piece.length, document);
    fill(out->mask, at, piece.length, 1);
    out->supervised += count_labels(p->tokens, piece);
    out->places += piece.length;
}

void pack_batch(const Pack *p, const uint64_t *rows, uint32_t nrows, int64_t pad, Batch *out) {
    out->supervised = out->places = 0;
    for (uint32_t r = 0; r < nrows; r++) {
        uint64_t at = (uint64_t)r * p->length, end = at + p->length;
        uint64_t k = rows[r] == PACK_NO_ROW ? 0 : p->first[rows[r]];
        uint64_t stop = rows[r] == PACK_NO_ROW ? 0 : p->first[rows[r] + 1];
        for (int64_t document = 1; k < stop; k++, document++) {
            put_piece(p, p->pieces[k], document, at, out);
            at += p->pieces[k].length;
        }
        fill(out->ids, at, end - at, pad);
        fill(out->labels, at, end - at, TOKENS_IGNORE);
        count(out->positions, at, end - at);
        fill(out->documents, at, end - at, 0);
        fill(out->mask, at, end - at, 0);
    }
}
