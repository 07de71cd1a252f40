#include "codegen/nvptx/conv/window.h"
#include <string.h>

enum { ALIGN = 16, MOST_STRIDE = 8 }; /* bytes of what the copy engine addresses; its steps */

typedef struct Reader {
    ExprPool *p;
    const Kernel *k;
    uint32_t m, taps;                         /* axes that no dimension has yet */
    Expr coef[K_MAX_AXES];                    /* of the index */
    Expr low[WINDOW_DIMS], high[WINDOW_DIMS]; /* of places before padding; 0: none */
    Window w;
} Reader;

/* --- Index and mask --------------------------------------------------------------------------- */

static bool read_index(Reader *r, Expr index) {
    for (uint32_t i = 0; i < r->k->naxes; i++) {
        Expr rest;
        if (!expr_affine(r->p, index, r->k->axes[i].sym, &r->coef[i], &rest)) return false;
        for (uint32_t z = 0; z < r->k->naxes; z++)
            if (expr_uses(r->p, r->coef[i], r->k->axes[z].sym)) return false;
        index = rest;
    }
    r->w.base = index;
    return true;
}

/* The axis of k along which elements are neighbours. Where a block of channels is not full, a copy
 * reads on into other batches' channels; the right operand's rows, which are matrices of this batch
 * alone, are zeros there. */
static bool read_channels(Reader *r, uint32_t batch) {
    r->w.channel = NO_AXIS;
    for (uint32_t i = 0; i < r->k->naxes; i++)
        if (r->taps >> i & 1 && expr_is_value(r->p, r->coef[i], 1)) r->w.channel = i;
    if (r->w.channel == NO_AXIS) return false;
    r->taps &= ~(1u << r->w.channel);
    r->w.taps = r->taps;
    r->w.channels = r->k->axes[r->w.channel].extent;
    for (uint32_t i = 0; i < r->k->naxes; i++) {
        if (!(batch >> i & 1) || expr_is_value(r->p, r->coef[i], 0)) continue;
        Expr last = expr_addi(r->p, r->k->axes[i].extent, -1);
        r->w.batch |= 1u << i;
        r->w.channels = expr_add(r->p, r->w.channels, expr_mul(r->p, last, r->coef[i]));
    }
    return true;
}

static WindowDim *add_dim(Reader *r, uint32_t m, uint32_t k, int64_t stride, int64_t dilation) {
    if (r->w.ndims == WINDOW_DIMS) return NULL;
    if (m != NO_AXIS) r->m &= ~(1u << m);
    if (k != NO_AXIS) r->taps &= ~(1u << k);
    WindowDim *d = &r->w.dim[r->w.ndims++];
    *d = (WindowDim){.m = m, .k = k, .stride = stride, .dilation = dilation};
    return d;
}

/* The dimension in which these axes meet. */
static WindowDim *dim_of(Reader *r, uint32_t m, uint32_t k, int64_t stride, int64_t dilation) {
    for (uint32_t i = 0; i < r->w.ndims; i++) {
        WindowDim *d = &r->w.dim[i];
        if (d->m == m && d->k == k && d->stride == stride && d->dilation == dilation) return d;
    }
    if ((m != NO_AXIS && !(r->m >> m & 1)) || (k != NO_AXIS && !(r->taps >> k & 1))) return NULL;
    return add_dim(r, m, k, stride, dilation);
}

/* d >= 0 bounds places of one dimension from below or from above. */
static bool read_bound(Reader *r, Expr d) {
    uint32_t at[2] = {NO_AXIS, NO_AXIS}; /* of m, of k */
    int64_t step[2] = {0, 0};
    for (uint32_t i = 0; i < r->k->naxes; i++) {
        Expr coef, rest;
        int64_t c;
        if (!expr_affine(r->p, d, r->k->axes[i].sym, &coef, &rest)) return false;
        d = rest;
        if (expr_is_value(r->p, coef, 0)) continue;
        bool tap = r->w.taps >> i & 1;
        if (i == r->w.channel || at[tap] != NO_AXIS || !expr_is_const(r->p, coef, &c)) return false;
        at[tap] = i;
        step[tap] = c;
    }
    bool above = step[0] > 0 || step[1] > 0;
    for (int i = 0; i < 2; i++) {
        if (above != (step[i] > 0) && step[i]) return false;
        if (step[i] < 0) step[i] = -step[i];
    }
    WindowDim *x = dim_of(r, at[0], at[1], step[0] ? step[0] : 1, step[1] ? step[1] : 1);
    if (!x || (at[0] == NO_AXIS && at[1] == NO_AXIS)) return false;
    Expr *bound = above ? &r->low[x - r->w.dim] : &r->high[x - r->w.dim];
    if (*bound) return false;
    *bound = above ? expr_muli(r->p, d, -1) : d;
    return true;
}

static bool read_mask(Reader *r, Expr mask) {
    if (!mask || expr_is_value(r->p, mask, 1)) return true;
    Expr a, b;
    if (expr_op(r->p, mask) != EX_mul && expr_op(r->p, mask) != EX_lt) return false;
    a = expr_arg(r->p, mask, 0), b = expr_arg(r->p, mask, 1);
    if (expr_op(r->p, mask) == EX_mul) return read_mask(r, a) && read_mask(r, b);
    return read_bound(r, expr_addi(r->p, expr_sub(r->p, b, a), -1));
}

/* --- Dimensions ------------------------------------------------------------------------------- */

/* The position axis that the tap's steps go along most evenly, without a mask that says so; any
 * would do. */
static bool pair_tap(Reader *r, uint32_t k) {
    for (int64_t most = 1; most <= MOST_STRIDE; most++)
        for (uint32_t m = r->k->naxes; m-- > 0;)
            for (int64_t i = 1; i <= most && r->m >> m & 1; i++)
                for (int way = 0; way < 2; way++) {
                    int64_t stride = way ? i : most, dilation = way ? most : i;
                    if (expr_muli(r->p, r->coef[m], dilation) !=
                        expr_muli(r->p, r->coef[k], stride))
                        continue;
                    return add_dim(r, m, k, stride, dilation) != NULL;
                }
    return add_dim(r, NO_AXIS, k, 1, 1) != NULL;
}

static bool make_dims(Reader *r) {
    for (uint32_t i = r->k->naxes; i-- > 0;)
        if (r->taps >> i & 1 && !pair_tap(r, i)) return false;
    for (uint32_t i = r->k->naxes; i-- > 0;)
        if (r->m >> i & 1 && !add_dim(r, i, NO_AXIS, 1, 1)) return false;
    return true;
}

/* Elements from one place to the next: the axis takes `steps` of them at once. */
static Expr pitch_of(Reader *r, uint32_t axis, int64_t steps) {
    Expr one = expr_div(r->p, r->coef[axis], expr_const(r->p, steps));
    return expr_muli(r->p, one, steps) == r->coef[axis] ? one : 0;
}

static Expr extent(const Reader *r, uint32_t axis) {
    return axis == NO_AXIS ? expr_const(r->p, 1) : r->k->axes[axis].extent;
}

/* Where the last window starts, from the last place on. With sizes known at run time only, what is
 * left over behind it is not, nor does it matter: any corner that gives as many positions will do.
 */
static bool find_upper(Reader *r, WindowDim *d, Expr last) {
    int64_t v;
    Expr upper = expr_sub(r->p, last, expr_addi(r->p, d->size, -1));
    bool known = expr_is_const(r->p, upper, &v);
    for (int64_t i = -128; i < 128 && !known; i++) {
        Expr room = expr_addi(r->p, d->size, i - 1 + d->padding);
        Expr n = expr_addi(r->p, expr_div(r->p, room, expr_const(r->p, d->stride)), 1);
        known = n == extent(r, d->m);
        v = i;
    }
    d->upper = (int32_t)v;
    return known && v > INT16_MIN && v < INT16_MAX;
}

static bool finish_dim(Reader *r, uint32_t i) {
    ExprPool *p = r->p;
    WindowDim *d = &r->w.dim[i];
    Expr by_m = d->m == NO_AXIS ? 0 : pitch_of(r, d->m, d->stride);
    Expr by_k = d->k == NO_AXIS ? 0 : pitch_of(r, d->k, d->dilation);
    d->pitch = by_m ? by_m : by_k;
    if (!d->pitch || (by_k && by_k != d->pitch)) return false;
    if (expr_divisor(p, d->pitch) * (int64_t)dtype_bytes(r->w.t) % ALIGN) return false;
    if (r->low[i] && !expr_is_const(p, r->low[i], &d->padding)) return false;
    Expr last = expr_muli(p, expr_addi(p, extent(r, d->m), -1), d->stride);
    Expr end = expr_add(p, last, expr_muli(p, expr_addi(p, extent(r, d->k), -1), d->dilation));
    d->size = expr_addi(p, r->high[i] ? r->high[i] : end, 1 - d->padding);
    r->w.base = expr_add(p, r->w.base, expr_muli(p, d->pitch, d->padding));
    return d->stride <= MOST_STRIDE && find_upper(r, d, expr_addi(p, last, -d->padding));
}

static bool is_plain(const WindowDim *d) {
    return d->m != NO_AXIS && d->k == NO_AXIS && !d->padding && !d->upper && d->stride == 1;
}

static void take(Window *w, const WindowDim *from, uint32_t n, uint32_t m) {
    for (uint32_t i = 0; i < n; i++)
        if (from[i].m == m) w->dim[w->ndims++] = from[i];
}

/* Positions in the order of m's axes; taps alone behind them; last a plain dimension. */
static bool order_dims(Reader *r) {
    Window *w = &r->w;
    WindowDim from[WINDOW_DIMS], unit = {NO_AXIS, NO_AXIS, 1, 1, 0, 0, 0, 0}, last;
    uint32_t n = w->ndims, outer = NO_AXIS;
    memcpy(from, w->dim, sizeof from);
    unit.size = expr_const(r->p, 1);
    unit.pitch = from[0].pitch;
    last = unit;
    for (uint32_t i = 0; i < n; i++)
        if (from[i].m < outer) outer = from[i].m;
    for (uint32_t i = 0; i < n && last.m == NO_AXIS; i++)
        if (from[i].m == outer && is_plain(&from[i])) {
            last = from[i];
            from[i] = from[--n];
        }
    w->ndims = 0;
    for (uint32_t m = NO_AXIS; m-- > 0;) take(w, from, n, m);
    take(w, from, n, NO_AXIS);
    if (!w->ndims) w->dim[w->ndims++] = unit;
    if (w->ndims == WINDOW_DIMS) return false;
    w->dim[w->ndims++] = last;
    return true;
}

/* The copy engine has the fewer bits for corners and taps the more dimensions there are. */
static bool fits(const Reader *r) {
    static const int64_t corner[] = {0, 0, 32768, 128, 16}, most_tap[] = {0, 0, 65535, 255, 31};
    uint32_t n = r->w.ndims;
    for (uint32_t i = 0; i + 1 < n; i++) {
        const WindowDim *d = &r->w.dim[i];
        int64_t lo, taps;
        expr_range(r->p, extent(r, d->k), &lo, &taps);
        if (d->padding > corner[n] || -d->padding >= corner[n]) return false;
        if (d->upper < -corner[n] || d->upper >= corner[n]) return false;
        if (taps > most_tap[n] || d->dilation * (taps - 1) > most_tap[n]) return false;
    }
    return true;
}

const char *window_of(Gpu *g, const KOp *load, Window *out) {
    const KDot *d = &g->k->dot;
    Reader r = {.p = g->e->exprs, .k = g->k, .m = d->m, .taps = d->k};
    r.w = (Window){.buf = load->buf, .t = (DType)load->dtype, .index = load->index};
    for (uint32_t i = 0; i < g->k->naxes; i++)
        if (expr_is_value(r.p, g->k->axes[i].extent, 1) && (d->m >> i & 1)) r.m &= ~(1u << i);
    if (gpu_is_computed(g, load->index) || !read_index(&r, load->index))
        return "an operand's index is not a sum over axes";
    if (!read_channels(&r, d->batch)) return "an operand's elements are not neighbours along k";
    if (!read_mask(&r, load->mask)) return "an operand's mask is not that of a window";
    if (!make_dims(&r)) return "an operand has too many dimensions";
    for (uint32_t i = 0; i < r.w.ndims; i++)
        if (!finish_dim(&r, i)) return "an operand's rows are not 16-byte aligned";
    int64_t base = expr_divisor(r.p, r.w.base);
    if (base * (int64_t)dtype_bytes(r.w.t) % ALIGN) return "an operand is not 16-byte aligned";
    if (!order_dims(&r) || !fits(&r)) return "an operand has too many dimensions";
    *out = r.w;
    return NULL;
}

/* --- Emission --------------------------------------------------------------------------------- */

HV window_map(Gpu *g, const Window *w, uint32_t rows) {
    int64_t bytes = (int64_t)dtype_bytes(w->t);
    CodeMap c = {.param = w->buf,
                 .dtype = w->t,
                 .tf32 = w->tf32,
                 .im2col = true,
                 .rank = 1 + w->ndims,
                 .base = w->base,
                 .size = {w->channels},
                 .step = {1},
                 .channels = HOP_ROW_BYTES / (uint32_t)bytes,
                 .pixels = rows,
                 .swizzle = HOP_ROW_BYTES,
                 .promotion = 128};
    for (uint32_t i = 0; i < w->ndims; i++) {
        const WindowDim *d = &w->dim[i];
        c.size[1 + i] = d->size;
        c.stride[i] = expr_muli(g->e->exprs, d->pitch, bytes);
        c.step[1 + i] = (uint32_t)d->stride;
        if (i + 1 == w->ndims) continue;
        c.lower[i] = (int32_t)-d->padding;
        c.upper[i] = d->upper;
    }
    return gpu_map(g, &c);
}

void window_load(Gpu *g, const Window *w, HV shared, HV bar, HV map, const HV *axis, HV past,
                 HV channel) {
    Emit *e = g->e;
    HV at[1 + WINDOW_DIMS], tap[WINDOW_DIMS], last = hop_size(e, w->dim[w->ndims - 1].size);
    at[0] = channel;
    for (uint32_t i = 0; i < g->k->naxes; i++) {
        Expr coef, rest;
        if (!(w->batch >> i & 1)) continue;
        (void)expr_affine(e->exprs, w->index, g->k->axes[i].sym, &coef, &rest);
        at[0] = hop_add(e, at[0], LLVMBuildMul(e->b, axis[i], hop_size(e, coef), ""));
    }
    for (uint32_t i = 0; i < w->ndims; i++) {
        const WindowDim *d = &w->dim[i];
        at[1 + i] = d->m == NO_AXIS ? hop_i(e, 0) : hop_muli(e, axis[d->m], d->stride);
        at[1 + i] = hop_addi(e, at[1 + i], -d->padding);
        tap[i] = d->k == NO_AXIS ? hop_i(e, 0) : hop_muli(e, axis[d->k], d->dilation);
    }
    at[w->ndims] = hop_add(e, at[w->ndims], LLVMBuildMul(e->b, past, last, ""));
    hop_tma_load_window(e, shared, bar, map, at, tap, 1 + w->ndims);
}
