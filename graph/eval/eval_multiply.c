/* Products of matrices of f64 and of integers modulo 2^64, each sum in the order of k. */
#include "graph/eval/eval_impl.h"
#include "runtime/base/dtype_rows.h"

#include <string.h>

/* Tiles of c stay in registers while k runs over rows of b that lie together: TILE columns of it
 * are copied for the tiles below each other. Columns and rows that fill no tile go one by one. */
enum { TILE_ROWS = 4, LANES = 4, TILE = EVAL_STRIP };
_Static_assert(TILE == 2 * LANES, "a tile is two vectors wide");

#define DEFINE_MULTIPLY(T, Lanes, tile, edge, name)                                                \
    typedef T Lanes __attribute__((vector_size(LANES * sizeof(T))));                               \
    static inline __attribute__((always_inline)) void tile(int64_t k, const T *a, const T *b,      \
                                                           int64_t ldb, T *c, int64_t n) {         \
        Lanes lo, hi, l[TILE_ROWS] = {{0}}, h[TILE_ROWS] = {{0}};                                  \
        for (int64_t i = 0; i < k; i++) {                                                          \
            memcpy(&lo, b + i * ldb, sizeof lo);                                                   \
            memcpy(&hi, b + i * ldb + LANES, sizeof hi);                                           \
            for (int r = 0; r < TILE_ROWS; r++) {                                                  \
                l[r] += a[r * k + i] * lo;                                                         \
                h[r] += a[r * k + i] * hi;                                                         \
            }                                                                                      \
        }                                                                                          \
        for (int r = 0; r < TILE_ROWS; r++) {                                                      \
            memcpy(c + r * n, &l[r], sizeof l[r]);                                                 \
            memcpy(c + r * n + LANES, &h[r], sizeof h[r]);                                         \
        }                                                                                          \
    }                                                                                              \
    /* Columns [j, n) of rows [i, m), row by row of b as it lies. */                               \
    static inline __attribute__((always_inline)) void edge(int64_t i, int64_t m, int64_t j,        \
                                                           int64_t n, int64_t k, const T *a,       \
                                                           const T *b, int64_t ldb, T *c) {        \
        for (; i < m; i++) {                                                                       \
            for (int64_t q = j; q < n; q++) c[i * n + q] = 0;                                      \
            for (int64_t x = 0; x < k; x++)                                                        \
                for (int64_t q = j; q < n; q++) c[i * n + q] += a[i * k + x] * b[x * ldb + q];     \
        }                                                                                          \
    }                                                                                              \
    CLONES void name(int64_t m, int64_t n, int64_t k, const T *a, const T *b, int64_t ldb, T *c,   \
                     T *strip) {                                                                   \
        const int64_t rows = m / TILE_ROWS * TILE_ROWS, columns = n / TILE * TILE;                 \
        for (int64_t j = 0; rows && j < columns; j += TILE) {                                      \
            for (int64_t i = 0; i < k; i++)                                                        \
                memcpy(strip + i * TILE, b + i * ldb + j, TILE * sizeof *strip);                   \
            for (int64_t i = 0; i < rows; i += TILE_ROWS)                                          \
                tile(k, a + i * k, strip, TILE, c + i * n + j, n);                                 \
        }                                                                                          \
        edge(0, rows, columns, n, k, a, b, ldb, c);                                                \
        edge(rows, m, 0, n, k, a, b, ldb, c);                                                      \
    }

DEFINE_MULTIPLY(double, LanesF, tile_f, edge_f, eval_multiply_f)
DEFINE_MULTIPLY(uint64_t, LanesI, tile_i, edge_i, eval_multiply_i)
