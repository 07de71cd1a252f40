/* The left operand of a convolution as the copy engine sees it: positions of windows as rows,
 * without a copy of them in memory.
 *
 * A contraction reads its left operand at  sum over axes of coefficient * axis  where a mask holds.
 * That is a tensor of channels, then of up to three dimensions in which positions (axes of m) and
 * taps (axes of k) meet, then of one dimension more:
 *
 *   place in a dimension = stride * position + dilation * tap - padding
 *
 * Everything is read from the index and the mask: whoever wrote the kernel need not say that it is
 * a convolution. A product whose rows are not evenly spaced is one, too, with windows of one place.
 */
#ifndef CODEGEN_NVPTX_CONV_WINDOW_H
#define CODEGEN_NVPTX_CONV_WINDOW_H

#include "codegen/nvptx/hopper/hopper.h"

enum { WINDOW_DIMS = 4, NO_AXIS = K_MAX_AXES };

typedef struct WindowDim {
    uint32_t m, k;            /* axes, or NO_AXIS */
    int64_t stride, dilation; /* places from one position, one tap, to the next */
    int64_t padding;
    int32_t upper;    /* of the box of window corners, from the last place on */
    Expr size, pitch; /* places; elements from one to the next */
} WindowDim;

typedef struct Window {
    uint32_t buf;
    DType t;
    bool tf32;        /* f32 that arrive rounded */
    Expr index, base; /* the load's; elements to place 0 */
    uint32_t channel; /* axis of k */
    Expr channels;    /* with those of other batches */
    uint32_t batch;   /* axes that choose channels */
    uint32_t taps;    /* axes of k other than the channels' */
    uint32_t ndims;
    WindowDim dim[WINDOW_DIMS]; /* innermost first; the last has no taps and no padding */
} Window;

/* The load of the contraction's left operand: NULL, or why it is none. */
const char *window_of(Gpu *g, const KOp *load, Window *out);
/* Its tensor map: a copy moves `rows` positions by 128 bytes of channels. */
HV window_map(Gpu *g, const Window *w, uint32_t rows);
/* Asks for the positions and channels from those on that axis[] has for each axis of m, of the
 * batch and of the taps; `channel` for the channels'. Where `past` is not 0, for zeros: a corner
 * outside of the box of corners is an illegal instruction, but for one past the last dimension's
 * end. */
void window_load(Gpu *g, const Window *w, HV shared, HV bar, HV map, const HV *axis, HV past,
                 HV channel);

#endif
