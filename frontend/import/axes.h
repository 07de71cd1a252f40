/* Helpers that several operator families share: axes given as attribute or input, products of
 * sizes. */
#ifndef FRONTEND_AXES_H
#define FRONTEND_AXES_H

#include "frontend/import/onnx_op.h"

/* What the axes do to the shape. With it, axes that are fed at run time are narrowed down by the
 * declared output shape. */
typedef enum AxesUse { AXES_KEEP, AXES_DROP, AXES_INSERT } AxesUse;

typedef struct Axes {
    bool given; /* false: absent or empty */
    uint32_t n, mask;
} Axes;

/* Lowers an operator with axes of input 0 (AXES_INSERT: of the result) from attribute `attr` or
 * else input `in`: output 0 is build(axes). For axes fed at run time, every set of axes that would
 * give the declared output is built, and the fed value selects. False after an error. */
bool axes_lower(Lower *l, uint32_t in, const char *attr, AxesUse use,
                Value (*build)(Lower *l, const Axes *axes));

/* Product of dim[from..to). */
Expr axes_product(ExprPool *p, const Expr *dim, int from, int to);

/* a / b where b is known to divide a: common factors cancel, also symbolic ones, which are taken to
 * be non-zero. */
Expr axes_quotient(ExprPool *p, const Expr *a, uint32_t na, const Expr *b, uint32_t nb);

#endif
