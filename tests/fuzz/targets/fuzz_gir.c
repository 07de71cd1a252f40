/* libFuzzer: a graph's text is refused with a message, or printed the same once it was read back */
#include "tests/fuzz/targets/coverage.h"

/* Large constants are printed as hashes of what the text does not hold: those may differ. */
static bool same_text(const char *a, const char *b) {
    for (;; a++, b++) {
        if (a[0] == '0' && a[1] == 'x' && b[0] == '0' && b[1] == 'x') {
            a += 2 + strspn(a + 2, "0123456789abcdef");
            b += 2 + strspn(b + 2, "0123456789abcdef");
        }
        if (*a != *b) return false;
        if (!*a) return true;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    Arena *a = arena_create();
    DiagSink *d = diag_create(a, "x.gir");
    Graph *g = graph_parse(a, d, as_text(bytes, size, a));
    check_said(d, g != NULL); /* the verifier's message, which texts can cause, blames graphc */
    if (g) {
        StrBuf first, second;
        sb_init(&first, a), sb_init(&second, a);
        graph_print(g, &first);
        Graph *again = graph_parse(a, d, sb_str(&first));
        if (!again) {
            fprintf(stderr, "printed, but not read back:\n%s\n", sb_str(&first));
            abort();
        }
        graph_print(again, &second);
        if (!same_text(sb_str(&first), sb_str(&second))) {
            fprintf(stderr, "%s\nprinted again:\n%s\n", sb_str(&first), sb_str(&second));
            abort();
        }
    }
    arena_destroy(a);
    return 0;
}
