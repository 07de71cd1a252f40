/* Writes plan files (runtime/plan.h) from schedules and their machine code. */
#ifndef CODEGEN_PLAN_BUILD_H
#define CODEGEN_PLAN_BUILD_H

#include "codegen/target.h"
#include "runtime/plan.h"

typedef struct PlanTargetInput {
    const Target *target;
    const Schedule *schedule;
    const CodeResult *code;
    const char *notes; /* lines that stand before its own, or NULL */
} PlanTargetInput;

/* What a state is in training. */
typedef struct PlanStateFact {
    const char *name, *of; /* of: the parameter that it belongs to; NULL: none */
    PlanRole role;
    float spread; /* PlanState.spread */
} PlanStateFact;

typedef struct PlanNoteText {
    const char *key, *text;
} PlanNoteText;

typedef struct PlanBuildOptions {
    bool embed;              /* copy constants from the model's external files into the plan too */
    const Graph *imported;   /* before any pass; NULL: plans do not say what became of its nodes */
    const char *weights_dir; /* the model's folder, seen from the plan's; NULL: the same */
    const PlanStateFact *facts; /* of states that have a role */
    const PlanNoteText *notes;
    uint32_t nfacts, nnotes;
} PlanBuildOptions;

/* The bytes live in the arena; equal inputs give equal bytes. What is written is read back through
 * plan_parse, so a plan that the runtime would refuse is an error here. */
graphc_status plan_build(const Graph *g, const PlanTargetInput *targets, uint32_t ntargets,
                         const PlanBuildOptions *o, Arena *a, DiagSink *d, void **bytes,
                         size_t *size);

#endif
