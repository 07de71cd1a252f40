/* Bounds of errors of row-wise ops, row by row: what sums and products make of their operands' by
 * itself, everything else by what the op gives at the ends of their intervals. */
#include "graph/eval/eval_error.h"
#include "runtime/base/dtype_rows.h"

#include <math.h>
#include <string.h>

double eval_compute_unit(DType t) {
    return eval_unit(t == DT_f64 ? DT_f64 : DT_f32);
}

static CLONES void signed_row(int64_t n, EvalScalar *x) {
    for (int64_t i = 0; i < n; i++) x[i].f = (double)x[i].i;
}

static CLONES void unsigned_row(int64_t n, EvalScalar *x) {
    for (int64_t i = 0; i < n; i++) x[i].f = (double)(uint64_t)x[i].i;
}

void eval_as_doubles(DType t, int64_t n, EvalScalar *x) {
    if (dtype_is_float(t)) return;
    if (t == DT_u64)
        unsigned_row(n, x);
    else
        signed_row(n, x);
}

bool eval_is_exact(Op op) {
    switch (op) {
    case OP_neg:
    case OP_abs:
    case OP_sign:
    case OP_floor:
    case OP_ceil:
    case OP_round:
    case OP_trunc:
    case OP_min:
    case OP_max:
    case OP_select:
    case OP_bitcast: return true;
    default: return false;
    }
}

Rounding eval_rounding(Op op, DType t) {
    double units = op_is_long(op) ? 8 : op_info[op].cost >= 5 ? 4 : 1;
    Rounding r = {units * eval_compute_unit(t), 0x1p-126}; /* f32's subnormals may be flushed */
    if (dtype_bytes(t) >= 4) return r;
    r.relative += eval_unit(t);
    r.floor += eval_least_unit(t);
    return r;
}

/* A map on up to EVAL_CHUNK elements. */
typedef struct MapChunk {
    const Node *n;
    DType from[3], to;
    bool rounds, halves; /* has a rounding of its own; is a cast that rounds to a half type */
    bool counts;         /* sums and products of whole numbers may be exact */
    Rounding own;
    uint32_t uncertain; /* bit k: operand k has errors */
    EvalScalar x[3][EVAL_CHUNK], y[EVAL_CHUNK];
    double ex[3][EVAL_CHUNK];
} MapChunk;

/* ---- At the ends of intervals ---- */

static CLONES void shift(const EvalScalar *x, const double *e, double sign, int64_t n,
                         EvalScalar *to) {
    for (int64_t i = 0; i < n; i++) to[i].f = x[i].f + sign * e[i];
}

/* Whole steps of a quantiser; who may be anywhere stays where it is. */
static CLONES void shift_ints(const EvalScalar *x, const double *e, double sign, int64_t n,
                              EvalScalar *to) {
    for (int64_t i = 0; i < n; i++) {
        const double by = e[i] < 0x1p62 ? floor(e[i] + 0.5) : 0;
        to[i].i = x[i].i + (int64_t)(sign * by);
    }
}

/* Operand k at one end of its intervals; the other value of a bool. */
static void move_operand(const MapChunk *c, uint32_t k, bool up, int64_t n, EvalScalar *to) {
    const double *e = c->ex[k];
    if (!(c->uncertain >> k & 1)) {
        memcpy(to, c->x[k], (size_t)n * sizeof *to);
        return;
    }
    if (dtype_is_float(c->from[k])) {
        shift(c->x[k], e, up ? 1 : -1, n, to);
        return;
    }
    if (c->from[k] == DT_bool)
        for (int64_t i = 0; i < n; i++) to[i].i = e[i] > 0 ? up : c->x[k][i].i;
    else
        shift_ints(c->x[k], e, up ? 1 : -1, n, to);
}

/* most = max(most, |z - y|): equal infinities and NaNs are nowhere apart, a NaN and a number
 * infinitely far. */
static CLONES void keep_most(const EvalScalar *z, const EvalScalar *y, int64_t n, double *most) {
    for (int64_t i = 0; i < n; i++) {
        const double a = z[i].f, b = y[i].f;
        double d = a != a || b != b ? (double)INFINITY : fabs(a - b);
        d = a == b || (a != a && b != b) ? 0 : d;
        most[i] = d > most[i] ? d : most[i];
    }
}

/* ---- Between the ends ----
 *
 * Where an op is not monotonic, what lies farthest may lie between the corners. */

static CLONES bool holds_zero(const MapChunk *c, uint32_t k, int64_t i) {
    return c->ex[k][i] > 0 && c->ex[k][i] >= fabs(c->x[k][i].f);
}

/* A divisor that may be 0: a quotient may be anything, but that of 0. */
static void keep_poles(const MapChunk *c, int64_t n, double *most) {
    if (!(c->uncertain & 2)) return;
    const bool moves = c->uncertain & 1;
    for (int64_t i = 0; i < n; i++) {
        const double divided = fabs(c->x[0][i].f) + (moves ? c->ex[0][i] : 0);
        if (divided > 0 && holds_zero(c, 1, i)) most[i] = INFINITY;
    }
}

/* Powers of what may be 0, where exponents may be negative; reciprocals are such. */
static void keep_powers(const MapChunk *c, int64_t n, double *most) {
    const bool power = c->n->op == OP_pow, moves = c->uncertain & 2;
    if (!(c->uncertain & 1)) return;
    for (int64_t i = 0; i < n; i++) {
        const double least = power ? c->x[1][i].f - (moves ? c->ex[1][i] : 0) : -1;
        if (least < 0 && holds_zero(c, 0, i)) most[i] = INFINITY;
    }
}

/* Remainders jump where a multiple of the divisor lies in the interval. */
static void keep_jumps(const MapChunk *c, int64_t n, double *most) {
    keep_poles(c, n, most);
    for (int64_t i = 0; i < n && c->uncertain & 1; i++) {
        const double x = c->x[0][i].f, e = c->ex[0][i], by = fabs(c->x[1][i].f);
        if (floor((x - e) / by) != floor((x + e) / by)) most[i] = fmax(most[i], by);
    }
}

/* Of sin and cos a wide interval has all values; tan is infinite half a turn apart. */
static void keep_turns(const MapChunk *c, int64_t n, double *most) {
    static const double pi = 3.14159265358979323846;
    const bool poles = c->n->op == OP_tan;
    for (int64_t i = 0; i < n && c->uncertain & 1; i++) {
        const double x = c->x[0][i].f, e = c->ex[0][i];
        if (!poles)
            most[i] = e > 1 ? fmax(most[i], fmin(e, 2)) : most[i];
        else if (floor((x - e) / pi + 0.5) != floor((x + e) / pi + 0.5))
            most[i] = INFINITY;
    }
}

/* Two that may be equal, or not. */
static void keep_equals(const MapChunk *c, int64_t n, double *most) {
    for (int64_t i = 0; i < n; i++) {
        double e = c->uncertain & 1 ? c->ex[0][i] : 0;
        e += c->uncertain & 2 ? c->ex[1][i] : 0;
        if (e > 0 && fabs(c->x[0][i].f - c->x[1][i].f) <= e) most[i] = fmax(most[i], 1);
    }
}

static void keep_between(const MapChunk *c, int64_t n, double *most) {
    switch (c->n->op) {
    case OP_div: keep_poles(c, n, most); break;
    case OP_recip:
    case OP_pow: keep_powers(c, n, most); break;
    case OP_mod:
    case OP_rem: keep_jumps(c, n, most); break;
    case OP_sin:
    case OP_cos:
    case OP_tan: keep_turns(c, n, most); break;
    case OP_eq:
    case OP_ne: keep_equals(c, n, most); break;
    default: break;
    }
}

/* The largest distance of the corners' results from y. */
static void corners(const MapChunk *c, int64_t n, double *most) {
    EvalScalar x[3][EVAL_CHUNK], z[EVAL_CHUNK], y[EVAL_CHUNK];
    memcpy(y, c->y, (size_t)n * sizeof *y);
    eval_as_doubles(c->to, n, y);
    for (int64_t i = 0; i < n; i++) most[i] = 0;
    for (uint32_t s = 0; s < 1u << c->n->nin; s++) {
        if (s & ~c->uncertain) continue;
        for (uint32_t k = 0; k < c->n->nin; k++) move_operand(c, k, s >> k & 1, n, x[k]);
        eval_map_chunk(c->n, c->from[c->n->op == OP_select ? 1 : 0], x, n, z);
        if (c->halves) eval_round_row(c->to, n, &z->f);
        eval_as_doubles(c->to, n, z);
        keep_most(z, y, n, most);
    }
    if (dtype_is_float(c->from[0])) keep_between(c, n, most);
}

/* ---- Sums and products ---- */

static CLONES void add_rows(const double *a, const double *b, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + b[i];
}

/* |a| eb + |b| ea + ea eb */
static CLONES void product_rows(const EvalScalar *a, const double *ea, const EvalScalar *b,
                                const double *eb, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = fabs(a[i].f) * eb[i] + fabs(b[i].f) * ea[i] + ea[i] * eb[i];
}

static CLONES void quotient_rows(const double *ea, const EvalScalar *b, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i++) out[i] = ea[i] / fabs(b[i].f);
}

static CLONES bool all_finite(const EvalScalar *y, const double *d, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum = y[i].f - y[i].f + (d[i] - d[i]) == 0 ? sum : 1;
    return sum == 0;
}

/* Where that is the distance of the farthest corner: at finite values. Else false. */
static bool linear(const MapChunk *c, int64_t n, double *most) {
    static const double none[EVAL_CHUNK];
    if (!dtype_is_float(c->to) || !dtype_is_float(c->from[0]) || c->halves) return false;
    const double *a = c->uncertain & 1 ? c->ex[0] : none, *b = c->uncertain & 2 ? c->ex[1] : none;
    switch (c->n->op) {
    case OP_cast:
        if (dtype_bytes(c->to) == 1) return false; /* which rounds by itself */
        memcpy(most, a, (size_t)n * sizeof *most);
        break;
    case OP_neg: memcpy(most, a, (size_t)n * sizeof *most); break;
    case OP_add:
    case OP_sub: add_rows(a, b, n, most); break;
    case OP_mul: product_rows(c->x[0], a, c->x[1], b, n, most); break;
    case OP_div:
        if (c->uncertain & 2) return false;
        quotient_rows(a, c->x[1], n, most);
        break;
    default: return false;
    }
    return all_finite(c->y, most, n);
}

/* ---- Their own roundings ---- */

static CLONES void round_rows(const EvalScalar *y, Rounding own, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i++) {
        const double d = own.relative * fabs(y[i].f) + own.floor;
        out[i] = y[i].f - y[i].f == 0 ? d : 0;
    }
}

/* Sums and products of whole numbers, of which the type has all up to the result, are exact. */
static CLONES void spare_whole(const EvalScalar *a, const EvalScalar *b, const EvalScalar *y,
                               double unit, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i++) {
        const double v = y[i].f;
        const bool whole = (v == floor(v)) & (a[i].f == floor(a[i].f)) & (b[i].f == floor(b[i].f));
        out[i] = (whole & (fabs(v) * unit <= 1)) ? 0 : out[i];
    }
}

static void map_chunk(const MapChunk *c, int64_t n, double *out) {
    double most[EVAL_CHUNK];
    if (c->rounds) {
        round_rows(c->y, c->own, n, out);
        if (c->counts) spare_whole(c->x[0], c->x[1], c->y, eval_unit(c->to), n, out);
    } else {
        memset(out, 0, (size_t)n * sizeof *out);
    }
    if (!c->uncertain) return;
    if (!linear(c, n, most)) corners(c, n, most);
    add_rows(out, most, n, out);
}

/* ---- Whole values ---- */

static void map_begin(MapChunk *c, const Graph *g, const Node *n, const Tensor *err, bool loose) {
    bool cast = n->op == OP_cast;
    c->n = n;
    c->to = n->type.dtype;
    c->halves = cast && dtype_is_float(c->to) && dtype_bytes(c->to) < 4 && !loose;
    c->rounds = dtype_is_float(c->to) && !eval_is_exact((Op)n->op) && !c->halves;
    c->counts = n->op == OP_add || n->op == OP_sub || n->op == OP_mul;
    c->own = eval_rounding((Op)n->op, c->to);
    c->uncertain = 0;
    for (uint32_t k = 0; k < n->nin; k++) {
        c->from[k] = graph_type(g, n->in[k])->dtype;
        c->uncertain |= err[k].data ? 1u << k : 0;
    }
}

static void map_all(MapChunk *c, const Tensor *x, const Tensor *ex, const Tensor *y, double *out) {
    for (int64_t i = 0, m, total = eval_numel(y); i < total; i += m) {
        m = total - i < EVAL_CHUNK ? total - i : EVAL_CHUNK;
        for (uint32_t k = 0; k < c->n->nin; k++) {
            eval_load(&x[k], i, 1, m, c->x[k]);
            if (ex[k].data)
                memcpy(c->ex[k], (const double *)(const void *)ex[k].data + i,
                       (size_t)m * sizeof(double));
        }
        eval_load(y, i, 1, m, c->y);
        map_chunk(c, m, out + i);
    }
}

/* Chunks of contiguous operands: they are copied where they are not. */
bool eval_map_error(Eval *e, const Graph *g, const Node *n, const Tensor *in, const Tensor *err,
                    const Tensor *y, bool loose, Tensor *out) {
    MapChunk c;
    Tensor x[3] = {{0}}, ex[3] = {{0}}, flat = {0};
    map_begin(&c, g, n, err, loose);
    if (!c.rounds && !c.uncertain) return true;
    bool ok = eval_alloc_over(e, err, n->nin, out) && eval_make_contiguous(e, y, &flat);
    for (uint32_t k = 0; ok && k < n->nin; k++)
        ok = eval_make_contiguous(e, &in[k], &x[k]) &&
             (!err[k].data || eval_make_contiguous(e, &err[k], &ex[k]));
    if (ok) map_all(&c, x, ex, &flat, (double *)(void *)out->to);
    for (uint32_t k = 0; k < n->nin; k++) {
        eval_release(e, &x[k]);
        eval_release(e, &ex[k]);
    }
    eval_release(e, &flat);
    return ok;
}
