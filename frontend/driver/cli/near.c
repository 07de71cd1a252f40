#include "frontend/driver/cli/near.h"

#include <string.h>

#define LONGEST 96

/* Levenshtein's distance, row by row. */
static uint32_t distance(const char *a, const char *b, size_t n) {
    uint32_t row[LONGEST + 1];
    for (size_t j = 0; j <= n; j++) row[j] = (uint32_t)j;
    for (uint32_t i = 0; a[i]; i++) {
        uint32_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            uint32_t changed = diagonal + (a[i] != b[j]);
            uint32_t added = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
            diagonal = row[j + 1];
            row[j + 1] = changed < added ? changed : added;
        }
    }
    return row[n];
}

void near_try(Near *n, const char *candidate) {
    size_t typed = strlen(n->name), size = strlen(candidate);
    if (!typed || typed > LONGEST || size > LONGEST) return;
    uint32_t d = distance(n->name, candidate, size),
             most = (uint32_t)(typed / 3 > 2 ? typed / 3 : 2);
    if (d > most || d >= typed || (n->best && d >= n->distance)) return;
    n->best = candidate;
    n->distance = d;
}

void near_quoted(Near *n, Arena *a, const char *text) {
    const char *end;
    for (const char *p = text; (p = strchr(p, '"')) && (end = strchr(p + 1, '"')); p = end + 1)
        near_try(n, arena_strndup(a, p + 1, (size_t)(end - p - 1)));
}
