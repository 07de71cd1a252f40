/* Steps that must not count: those whose loss or gradients are no numbers. Everything here is
 * graph: the states that remember are saved and go on with the rest.
 *
 * Always: a step whose loss is no finite number leaves parameters and moments as they were. With
 * `norm` so does one whose gradients are not finite; then every update waits for all gradients.
 *
 * f16 holds gradients down to 6e-8: the loss's cotangent is multiplied by a scale, gradients are
 * divided by it in f32. State "loss_scale" is halved by a step whose gradients are not finite, and
 * doubled after `every` steps without one (Micikevicius et al. 2018, "Mixed Precision Training";
 * torch.amp.GradScaler). State "skipped" counts steps that changed nothing: none to AdamW. */
#ifndef GRAPH_GRAD_GUARD_H
#define GRAPH_GRAD_GUARD_H

#include "graph/ir/ir.h"

#define GUARD_SCALE 65536
#define GUARD_EVERY 2000

typedef struct GuardSpec {
    bool norm;      /* of gradients, too; implied by a scale */
    double scale;   /* the first one; 0: none; below 0: GUARD_SCALE where the loss is of f16 */
    uint32_t every; /* 0: GUARD_EVERY */
} GuardSpec;

typedef struct Guard {
    GuardSpec spec;
    Value scale, good; /* states f32 and i64, or 0 */
    Value skipped;     /* state i64, or 0 */
    Value fine;        /* bool scalar: this step counts */
} Guard;

/* y: what the loss is of. */
Guard guard_begin(Graph *g, const GuardSpec *s, Value y);
/* What cotangents are multiplied by, given what else they are (0: nothing); and gradients again. */
Value guard_scaled(Graph *g, const Guard *k, Value factor);
Value guard_unscaled(Graph *g, const Guard *k, Value factor);
/* Makes k->fine and writes the states. loss, norm: f32 scalars. */
void guard_judge(Graph *g, Guard *k, Value loss, Value norm);
/* The number of the step among those that count: i64 scalar, 1 in the first. */
Value guard_number(Graph *g, const Guard *k, Value step);
/* What gradients are multiplied by besides, given what they are (0: nothing). Where all updates
 * wait for all gradients it says so: next values of everything would be stored until then,
 * otherwise. */
Value guard_factor(Graph *g, const Guard *k, Value factor);

#endif
