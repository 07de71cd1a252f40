/* The MAP ops on rows: what is common as a loop of its own, all else element by element. What they
 * mean is said by eval_scalar; a test compares the two bit by bit. */
#include "graph/eval/eval_scalar.h"
#include "runtime/base/dtype_rows.h"

#include <math.h>

/* Operands and result of a row, which may be the same. */
typedef struct Row {
    DType in, out;
    const EvalScalar *a, *b, *c;
    int64_t n;
    EvalScalar *y;
} Row;

#define OF_A(to, result)                                                                           \
    for (int64_t i = 0; i < n; i++) {                                                              \
        const double x = a[i].f;                                                                   \
        y[i].to = result;                                                                          \
    }                                                                                              \
    break
#define OF_BOTH(T, from, to, result)                                                               \
    for (int64_t i = 0; i < n; i++) {                                                              \
        const T l = a[i].from, r = b[i].from;                                                      \
        y[i].to = result;                                                                          \
    }                                                                                              \
    break

/* Of floats. These return false where op is none of theirs. */
static CLONES bool float_row(Op op, const EvalScalar *a, const EvalScalar *b, int64_t n,
                             EvalScalar *y) {
    switch (op) {
    case OP_add: OF_BOTH(double, f, f, l + r);
    case OP_sub: OF_BOTH(double, f, f, l - r);
    case OP_mul: OF_BOTH(double, f, f, (l * r));
    case OP_div: OF_BOTH(double, f, f, l / r);
    case OP_min: OF_BOTH(double, f, f, l != l ? l : r >= l ? l : r);
    case OP_max: OF_BOTH(double, f, f, l != l ? l : r <= l ? l : r);
    case OP_eq: OF_BOTH(double, f, i, l == r);
    case OP_ne: OF_BOTH(double, f, i, l != r);
    case OP_lt: OF_BOTH(double, f, i, l < r);
    case OP_le: OF_BOTH(double, f, i, l <= r);
    case OP_neg: OF_A(f, -x);
    case OP_abs: OF_A(f, fabs(x));
    case OP_round: OF_A(f, rint(x));
    case OP_recip: OF_A(f, 1 / x);
    case OP_sqrt: OF_A(f, sqrt(x));
    case OP_isnan: OF_A(i, x != x);
    default: return false;
    }
    return true;
}

/* Of integers whose result is one of the type without wrapping, or needs 64 bits. */
static CLONES bool int_row(Op op, const EvalScalar *a, const EvalScalar *b, int64_t n,
                           EvalScalar *y) {
    switch (op) {
    case OP_min: OF_BOTH(int64_t, i, i, r < l ? r : l);
    case OP_max: OF_BOTH(int64_t, i, i, l < r ? r : l);
    case OP_and: OF_BOTH(int64_t, i, i, l & r);
    case OP_or: OF_BOTH(int64_t, i, i, l | r);
    case OP_eq: OF_BOTH(int64_t, i, i, l == r);
    case OP_ne: OF_BOTH(int64_t, i, i, l != r);
    case OP_lt: OF_BOTH(int64_t, i, i, l < r);
    case OP_le: OF_BOTH(int64_t, i, i, l <= r);
    default: return false;
    }
    return true;
}

/* The low bits of a type of at most 32, sign- or zero-extended. */
static CLONES void wrap_row(DType t, int64_t n, EvalScalar *y) {
    const int unused = 64 - dtype_info[t].bits;
    if (dtype_is_signed(t))
        for (int64_t i = 0; i < n; i++) y[i].i = (int64_t)((uint64_t)y[i].i << unused) >> unused;
    else
        for (int64_t i = 0; i < n; i++) y[i].i = (int64_t)((uint64_t)y[i].i << unused >> unused);
}

static CLONES bool sum_row(Op op, const EvalScalar *a, const EvalScalar *b, int64_t n,
                           EvalScalar *y) {
    switch (op) {
    case OP_add: OF_BOTH(int64_t, i, i, (int64_t)((uint64_t)l + (uint64_t)r));
    case OP_sub: OF_BOTH(int64_t, i, i, (int64_t)((uint64_t)l - (uint64_t)r));
    case OP_mul: OF_BOTH(int64_t, i, i, (int64_t)((uint64_t)l * (uint64_t)r));
    default: return false;
    }
    return true;
}

/* Toward zero, beyond 64 bits the nearest end. */
static CLONES void truncate_row(const EvalScalar *a, int64_t n, EvalScalar *y) {
    for (int64_t i = 0; i < n; i++) {
        const double x = a[i].f;
        const int64_t end = x >= 0x1p63 ? INT64_MAX : x <= -0x1p63 ? INT64_MIN : 0;
        y[i].i = fabs(x) < 0x1p63 ? (int64_t)x : end;
    }
}

static CLONES void widen_row(const EvalScalar *a, int64_t n, EvalScalar *y) {
    for (int64_t i = 0; i < n; i++) y[i].f = (double)a[i].i;
}

static CLONES void select_row(const EvalScalar *a, const EvalScalar *b, const EvalScalar *c,
                              int64_t n, EvalScalar *y) {
    for (int64_t i = 0; i < n; i++) y[i].i = a[i].i ? b[i].i : c[i].i;
}

static bool cast_row(const Row *r) {
    const bool from = dtype_is_float(r->in), to = dtype_is_float(r->out);
    const bool wide = r->in == DT_u64 || r->out == DT_u64 || r->out == DT_bool;
    if (wide || (to && dtype_bytes(r->out) == 1)) return false;
    if (from && !to)
        truncate_row(r->a, r->n, r->y);
    else if (!from && to)
        widen_row(r->a, r->n, r->y);
    else
        for (int64_t i = 0; i < r->n; i++) r->y[i] = r->a[i];
    if (!to) wrap_row(r->out, r->n, r->y);
    return true;
}

/* Between integers of one width, as signed ones become unsigned. */
static bool bitcast_row(const Row *r) {
    if (!dtype_is_int(r->in) || !dtype_is_int(r->out)) return false;
    if (dtype_info[r->in].bits != dtype_info[r->out].bits) return false;
    for (int64_t i = 0; i < r->n; i++) r->y[i] = r->a[i];
    wrap_row(r->out, r->n, r->y);
    return true;
}

static bool known_row(Op op, const Row *r) {
    if (op == OP_select) {
        select_row(r->a, r->b, r->c, r->n, r->y);
        return true;
    }
    if (op == OP_cast) return cast_row(r);
    if (op == OP_bitcast) return bitcast_row(r);
    if (dtype_is_float(r->in)) return float_row(op, r->a, r->b, r->n, r->y);
    if (r->in == DT_u64 || r->in == DT_bool) return false;
    if (int_row(op, r->a, r->b, r->n, r->y)) return true;
    if (!sum_row(op, r->a, r->b, r->n, r->y)) return false;
    wrap_row(r->out, r->n, r->y);
    return true;
}

void eval_scalars(Op op, DType in, DType out, const EvalScalar *a, const EvalScalar *b,
                  const EvalScalar *c, int64_t n, EvalScalar *y) {
    if (known_row(op, &(Row){in, out, a, b, c, n, y})) return;
    for (int64_t i = 0; i < n; i++)
        y[i] = eval_scalar(op, in, out, (EvalScalar[]){a[i], b[i], c[i]});
}

void eval_round_row(DType t, int64_t n, double *v) {
    if (t == DT_f64) return;
    uint64_t codes[64];
    for (int64_t i = 0, m; i < n; i += m) {
        m = n - i < 64 ? n - i : 64;
        dtype_store_row(t, codes, 0, 1, m, v + i);
        dtype_load_row(t, codes, 0, 1, m, v + i);
    }
}
