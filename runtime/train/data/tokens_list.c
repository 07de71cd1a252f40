#include "runtime/train/data/tokens_internal.h"
#include <stdlib.h>
#include <string.h>

bool tokens_reserve(void *p, uint64_t n, uint64_t *room, size_t size) {
    void *old, *more;
    if (n < *room) return true;
    uint64_t want = *room ? 2 * *room : 64;
    memcpy(&old, p, sizeof old);
    more = reallocarray(old, want, size);
    if (!more) return false;
    memcpy(p, &more, sizeof more);
    *room = want;
    return true;
}

bool tokens_add_document(Tokens *t, uint64_t start, uint64_t length) {
    if (!length) return true;
    if (!tokens_reserve(&t->documents, t->ndocuments, &t->room, sizeof *t->documents)) return false;
    t->documents[t->ndocuments++] = (TokenSpan){start, length};
    return true;
}
