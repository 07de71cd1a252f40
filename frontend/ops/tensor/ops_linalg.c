/* Matrix products and determinants. Einsum has a file of its own. */
#include "frontend/import/formula.h"

static bool lower_matmul(Lower *l) {
    lower_out(
        l, 0,
        build_matmul(lower_graph(l), lower_in(l, 0), lower_in(l, 1), lower_type(l, 0)->dtype));
    return true;
}

static bool lower_gemm(Lower *l) {
    static const uint8_t swap[2] = {1, 0};
    Graph *g = lower_graph(l);
    const DType t = lower_type(l, 0)->dtype;
    const double alpha = lower_f(l, "alpha"), beta = lower_f(l, "beta");
    Value a = lower_in(l, 0), b = lower_in(l, 1);
    if (lower_type(l, 0)->rank != 2 || lower_type(l, 1)->rank != 2)
        return lower_error(l, D_SHAPE, "A and B must have rank 2");
    if (lower_i(l, "transA")) a = build_permute(g, a, swap);
    if (lower_i(l, "transB")) b = build_permute(g, b, swap);
    Value v = build_matmul(g, a, b, t);
    if (alpha != 1) v = build_binary_f(g, OP_mul, v, alpha);
    if (lower_has_in(l, 2) && beta != 0) {
        Value c = lower_in(l, 2);
        if (!v || !lower_fits(l, 2, graph_type(g, v))) return false;
        if (beta != 1) c = build_binary_f(g, OP_mul, c, beta);
        v = build_binary(g, OP_add, v, c);
    }
    lower_out(l, 0, v);
    return true;
}

/* Det */

enum { MAX_SIZE = 8 };

/* Laplace expansion, row after row: minor[s] is the determinant of the rows so far over the columns
 * in the set s. No division, so no pivots. */
static Value expand_rows(Graph *g, Value x, int n) {
    int rank = v_rank(g, x);
    Value minor[1 << MAX_SIZE] = {0}, entry[MAX_SIZE];
    minor[0] = v_const(g, x, 1);
    for (int row = 0; row < n; row++) {
        Value line = v_at(g, x, rank - 2, v_int(g, row));
        for (int c = 0; c < n; c++) entry[c] = v_at(g, line, rank - 2, v_int(g, c));
        for (uint32_t s = 0; s < 1u << n; s++) {
            if (__builtin_popcount(s) != row + 1) continue;
            for (int c = 0; c < n; c++) {
                if (!(s >> c & 1)) continue;
                Value term = v_mul(g, minor[s & ~(1u << c)], entry[c]);
                bool minus = __builtin_popcount(s >> (c + 1)) & 1;
                if (!minor[s])
                    minor[s] = minus ? v_neg(g, term) : term;
                else
                    minor[s] = minus ? v_sub(g, minor[s], term) : v_add(g, minor[s], term);
            }
        }
    }
    return minor[(1u << n) - 1];
}

static bool lower_det(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0);
    if (!x || !lower_is(l, 0, TYPES_FLOAT)) return false;
    int rank = v_rank(g, x);
    int64_t rows, cols;
    if (rank < 2) return lower_error(l, D_SHAPE, "the input has rank %d", rank);
    if (!v_dim_const(g, x, rank - 2, &rows) || !v_dim_const(g, x, rank - 1, &cols))
        return lower_unsupported(l, "fix the size with --dim", "matrices of symbolic size");
    if (rows != cols || rows < 1)
        return lower_error(l, D_SHAPE, "matrices of %lld by %lld", (long long)rows,
                           (long long)cols);
    if (rows > MAX_SIZE)
        return lower_unsupported(l, NULL, "matrices larger than %d by %d", MAX_SIZE, MAX_SIZE);
    lower_out(l, 0, v_cast_like(g, expand_rows(g, v_widen(g, x), (int)rows), x));
    return true;
}

static const char *const gemm_attrs[] = {"alpha:f=1", "beta:f=1", "transA:i=0", "transB:i=0", NULL};
static const char *const gemm1_attrs[] = {"alpha:f=1",  "beta:f=1",    "transA:i=0",
                                          "transB:i=0", "broadcast:i", NULL};

const OnnxOp ops_linalg[] = {
    {"", "MatMul", 1, 0, 2, 2, 1, 1, NULL, lower_matmul},
    {"", "Gemm", 1, 6, 3, 3, 1, 1, gemm1_attrs, lower_gemm},
    {"", "Gemm", 7, 10, 3, 3, 1, 1, gemm_attrs, lower_gemm},
    {"", "Gemm", 11, 0, 2, 3, 1, 1, gemm_attrs, lower_gemm},
    {"", "Det", 11, 0, 1, 1, 1, 1, NULL, lower_det},
    {0},
};
