/* The way from a model file to plan bytes, stage by stage. graphc_compile() is this with a public
 * face; the command line uses it directly to look at what lies between. */
#ifndef FRONTEND_DRIVER_PIPELINE_H
#define FRONTEND_DRIVER_PIPELINE_H

#include "codegen/codegen.h"
#include "codegen/plan/plan_build.h"
#include "frontend/driver/graphc_compile.h"
#include "frontend/import/import.h"
#include "graph/grad/train.h"

typedef struct Pipeline {
    Arena *arena;
    DiagSink *diags;
    const void *bytes; /* of a model in memory (set before importing); NULL: it is a file */
    size_t size;
    Model *model;
    Graph *imported;      /* as the frontend made it; of a training plan with all that it adds */
    TrainGraph training;  /* of a training plan: its states */
    Graph *graph;         /* after the graph passes */
    DType precision;      /* of the options, from pipeline_import on */
    bool tf32;            /* of f32: 11 bits of each factor, where that is faster */
    bool rounds_to_bytes; /* what weights of few bits multiply, whatever the model says */
    uint32_t ntargets;    /* likewise */
    PlanTargetInput *targets; /* their schedules and code from pipeline_targets on */
    void *plan;
    size_t plan_size;
    const ImportOptions
        *trained;         /* which initializers are states (set before importing), or NULL */
    const LoraSpec *lora; /* adapters' places in a plan that runs (set before importing), or NULL */
    const struct DumpReader *reader; /* of kernels' code (set before pipeline_targets), or NULL */
    uint32_t forms, variants;        /* as in CodeOptions (set before pipeline_targets), as are: */
    const char *(*tuned)(void *ctx, const char *target, const char *signature);
    void *tuned_ctx;
    uint32_t fuse_at_most; /* FUSE_ALL, or what schedule_build is to stop at (set before it runs) */
} Pipeline;

void pipeline_init(Pipeline *p, const char *model_path);
void pipeline_free(Pipeline *p);
/* The type that has as many digits as what contractions of f32 multiply. */
DType pipeline_rounds_to(const Pipeline *p);

/* Each stage needs the one before. Failures are in p->diags. */
graphc_status pipeline_import(Pipeline *p, const char *model_path, const graphc_compile_options *o);
graphc_status pipeline_optimise(Pipeline *p, const graphc_compile_options *o);
graphc_status pipeline_targets(Pipeline *p, const graphc_compile_options *o);
graphc_status pipeline_plan(Pipeline *p, const graphc_compile_options *o);
/* All of them. */
graphc_status pipeline_run(Pipeline *p, const char *model_path, const graphc_compile_options *o);

#endif
