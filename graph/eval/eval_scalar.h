/* Meaning of the MAP ops on one element: shared by the graph evaluator and the kernel interpreter.
 * Floats of every width are carried in f64; integers and bool in i64 (unsigned 64-bit ones as their
 * bit pattern), always already wrapped to their type. */
#ifndef GRAPH_EVAL_SCALAR_H
#define GRAPH_EVAL_SCALAR_H

#include "graph/ir/ir.h"

typedef union EvalScalar {
    double f;
    int64_t i;
} EvalScalar;

/* `in` is the operands' type (for select: of operands 1 and 2), `out` the result's. cast is the
 * plain conversion: floats to integers truncate toward zero. */
EvalScalar eval_scalar(Op op, DType in, DType out, const EvalScalar *x);
/* The same for n elements; operands that op lacks may hold anything. */
void eval_scalars(Op op, DType in, DType out, const EvalScalar *a, const EvalScalar *b,
                  const EvalScalar *c, int64_t n, EvalScalar *y);

/* v rounded to the nearest value of a float type. */
double eval_round_to(DType t, double v);
void eval_round_row(DType t, int64_t n, double *v);
/* Applied before rounding to a one-byte float type by a saturating cast: clamps to the largest
 * finite value. NaN stays. */
double eval_saturate(DType t, double v);
/* Applied before a cast to E8M0: the next power of two up (round 1) or down (2); 0 = v itself. */
double eval_power_of_two(double v, uint8_t round);

/* OP_uniform, element `index` (row-major) of the result: the splitmix64 stream of `seed`.
 *   z = seed + (index + 1) * 0x9E3779B97F4A7C15        (all modulo 2^64)
 *   z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9
 *   z = (z ^ z >> 27) * 0x94D049BB133111EB
 *   z =  z ^ z >> 31
 * and the top d bits of z over 2^d, d = 24 for f32 (53 for f64, 11 for f16, 8 for bf16): exact in
 * the type, never 1. */
double eval_uniform(DType t, uint64_t seed, uint64_t index);
/* The seed of a run with an operand: z of that element number in the stream of the attribute's. */
uint64_t eval_draw_seed(uint64_t seed, int64_t draw);

#endif
