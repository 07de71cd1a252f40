/* What operators of ai.onnx.ml share: rows of features, labels, scores of classes. */
#ifndef FRONTEND_OPS_ML_H
#define FRONTEND_OPS_ML_H

#include "frontend/import/formula.h"

#define ML "ai.onnx.ml"

/* Input 0 as rows of features in f32, or in f64 if that is what it is and `wide`; a vector is one
 * row. 0 after an error. */
Value ml_rows(Lower *l, bool wide);
/* The number of features if it is known, and at least `least`: else an error. */
bool ml_columns(Lower *l, Value rows, int64_t least, int64_t *n);
/* Numbers as a constant matrix of f32 or f64. */
Value ml_matrix(Graph *g, DType t, const double *v, int64_t rows, int64_t columns);
/* A float attribute, widened; NULL if it is absent or empty. */
const double *ml_floats(Lower *l, const char *name, uint32_t *n);

/* A constant tensor attribute, or one of the list kinds (:F, :I), as numbers. NULL without an error
 * if absent. */
const double *ml_numbers(Lower *l, const char *list, const char *tensor, uint32_t *n, DType *t);

/* Attribute `name` as a constant matrix [m, f], f as many as the rows have features, or 0. */
Value ml_weights(Lower *l, Value rows, const char *name, int64_t m);
/* rows [n, f] times the transpose of that, or 0. */
Value ml_products(Lower *l, Value rows, const char *name, int64_t m);

/* What becomes of scores, in the order of PostTransform in TreeEnsemble. */
typedef enum MlPost { ML_NONE, ML_SOFTMAX, ML_LOGISTIC, ML_SOFTMAX_ZERO, ML_PROBIT } MlPost;
bool ml_post(Lower *l, MlPost *out); /* attribute post_transform */
Value ml_transform(Graph *g, Value scores, MlPost post);

/* Scores [n, 1] of the second of two classes become [n, 2] as `first` says of the first class. */
typedef enum MlFirst { ML_COMPLEMENT, ML_NEGATED } MlFirst;
Value ml_two_classes(Graph *g, Value score, MlFirst first);

/* The labels as constant i64 [n]; 0 after an error: labels may be strings, which graphc has none
 * of */
Value ml_labels(Lower *l, const char *ints, const char *strings, int64_t *n);
/* Output 0: the labels at positions [n]. */
void ml_out_label(Lower *l, Value labels, Value position);

#endif
