/* What convolutions, pools and their quantised forms share. */
#ifndef FRONTEND_NN_H
#define FRONTEND_NN_H

#include "frontend/import/formula.h"

/* Spatial parameters of a sliding window over axes 2.. of an NC... tensor. */
typedef struct Window {
    int n;
    int64_t size[GRAPH_MAX_WINDOW], stride[GRAPH_MAX_WINDOW], dilation[GRAPH_MAX_WINDOW];
    Expr lo[GRAPH_MAX_WINDOW], hi[GRAPH_MAX_WINDOW]; /* padding, auto_pad resolved */
} Window;

/* Reads kernel_shape (or takes `size`), strides, dilations, pads and auto_pad for input x. With
 * `ceil_mode` the padding behind is stretched so that the last, partial window fits; a window that
 * would start in that padding is dropped. */
bool nn_window_read(Lower *l, Value x, const int64_t *size, bool ceil_mode, Window *w);
/* The padded input holds at least one window along every axis: false after an error. */
bool nn_window_fits(Lower *l, Value x, const Window *w);
/* Distance between the first and the last tap, plus one. */
int64_t nn_window_span(const Window *w, int i);
/* Number of window positions along spatial axis i of x. */
Expr nn_window_count(Graph *g, Value x, const Window *w, int i);
/* x NC... padded with `fill`. */
Value nn_pad_spatial(Graph *g, Value x, Value fill, const Window *w);

/* Reads an attribute list of exactly n integers, each at least `least`; `absent` where not given */
bool nn_read_ints(Lower *l, const char *name, int n, int64_t absent, int64_t least, int64_t *out);

/* x [N, C, S...] with w [OC, C/groups, K...]: [N, O..., OC], accumulated in `to`. */
Value nn_conv_last(Graph *g, Value x, Value w, const Window *win, int64_t groups, DType to);
/* Checks w against x and reads the window for a convolution. */
bool nn_conv_read(Lower *l, Value x, Value w, Window *win, int64_t *groups);
/* x NC..., in a type to compute in, by the attributes of AveragePool; 0 after an error. stretch:
 * where padding counts, that of ceil_mode does, too. */
Value nn_average_pool(Lower *l, Value x, bool stretch);
/* The attributes of every convolution, for OnnxOp.attrs. */
extern const char *const nn_conv_attrs[];

#endif
