/* Activation functions that nodes name by a string: recurrent layers and fused operators. */
#ifndef FRONTEND_ACTIVATION_H
#define FRONTEND_ACTIVATION_H

#include "frontend/import/formula.h"

typedef struct Activation {
    const char *name;
    double alpha, beta; /* defaults, where the function has parameters */
    int nparams;
    Value (*build)(Graph *g, Value x, double alpha, double beta);
} Activation;

/* Upper and lower case are one; "" is the identity; NULL if there is no such function. */
const Activation *activation_find(const char *name);

Value activation_gelu(Graph *g, Value x);      /* x/2 (1 + erf(x/sqrt 2)) */
Value activation_gelu_tanh(Graph *g, Value x); /* its approximation with tanh */
/* alpha (e^(x/scale) - 1) below 0 */
Value activation_elu(Graph *g, Value x, double alpha, double scale);
/* `below` where x <= 0, else x. The two are equal at 0, where the slope is that of `below`, as
 * PyTorch has it. */
Value activation_below(Graph *g, Value x, Value below);
Value activation_hard_sigmoid(Graph *g, Value x, double alpha, double beta);
Value activation_softplus(Graph *g, Value x); /* log(1 + e^x) */

#endif
