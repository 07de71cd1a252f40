/* libFuzzer: a file of training data (documents a line, arrays, ids, text: the first byte says how
 * it is read) is refused with a reason, or parted and packed, and every token of it is below the
 * vocabulary. */
#include "runtime/train/data/arrays.h"
#include "runtime/train/data/pack.h"
#include "tests/fuzz/targets/coverage.h"

enum { VOCABULARY = 1000, LENGTH = 16 };

static void check_batch(const Tokens *t, const Pack *p) {
    int64_t place[5][LENGTH];
    Batch b = {.ids = place[0],
               .labels = place[1],
               .positions = place[2],
               .documents = place[3],
               .mask = place[4]};
    uint64_t supervised = 0;
    for (uint64_t row = 0; row < p->nsequences; row++) {
        pack_batch(p, &row, 1, 0, &b);
        for (uint32_t i = 0; i < LENGTH; i++)
            if (b.ids[i] < 0 || b.ids[i] >= VOCABULARY || b.labels[i] >= VOCABULARY) abort();
        supervised += b.supervised;
    }
    if (supervised != p->supervised || supervised > t->ntokens) abort();
}

static void pack(const Tokens *t, const TokenSpan *spans, uint64_t n, PackMode mode) {
    char why[256] = "";
    Pack p;
    if (pack_build(t, spans, n, LENGTH, mode, &p, (ErrorText){why, sizeof why}) == GRAPHC_OK) {
        check_batch(t, &p);
        pack_free(&p);
    } else if (!why[0])
        abort();
}

static void learn(const char *path, uint8_t how) {
    const TokenOptions o = {VOCABULARY, how & 8 ? 7 : -1,
                            (TokenFormat)(how % (unsigned)(TOKENS_text + 1))};
    char why[256] = "";
    Tokens t;
    TokenSplit s;
    tokens_init(&t);
    if (tokens_add(&t, path, &o, (ErrorText){why, sizeof why}) == GRAPHC_OK) {
        pack(&t, t.documents, t.ndocuments, how & 16 ? PACK_filled : PACK_single);
        if (tokens_split(&t, 0.25, how, &s, (ErrorText){why, sizeof why}) == GRAPHC_OK) {
            pack(&t, s.train, s.ntrain, PACK_filled);
            token_split_free(&s);
        } else if (!why[0])
            abort();
    } else if (!why[0] || t.ntokens)
        abort();
    tokens_free(&t);
}

static void rows(const char *path) {
    char why[256] = "";
    Arrays a;
    arrays_init(&a);
    if (arrays_add(&a, "x", path, (ErrorText){why, sizeof why}) == GRAPHC_OK) {
        const uint64_t last = a.rows - 1;
        const uint64_t bytes = a.v[0].row_bytes;
        void *row = malloc(bytes + 1);
        if (a.rows && row) array_rows(&a.v[0], &last, 1, row);
        free(row);
    } else if (!why[0])
        abort();
    arrays_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (!size) return 0;
    const char *path = as_file(bytes + 1, size - 1);
    learn(path, bytes[0]);
    rows(path);
    return 0;
}
