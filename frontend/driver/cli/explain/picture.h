/* What the page and the graph of explain show of a model: its nodes as the file has them, the
 * kernels of each target, who reads what whom stored, code, memory. */
#ifndef FRONTEND_DRIVER_CLI_EXPLAIN_PICTURE_H
#define FRONTEND_DRIVER_CLI_EXPLAIN_PICTURE_H

#include "frontend/driver/cli/explain/explain.h"
#include "frontend/driver/outline.h"

/* The code of a kernel, as much of it as there is room for. */
typedef struct KernelCode {
    const char *target, *kernel, *ext, *text;
    size_t size; /* of all of it */
} KernelCode;

typedef VEC(uint32_t) NodeList;

/* A kernel in launch order. */
typedef struct PictureKernel {
    uint32_t step;
    bool prepare;
    const PlanKernel *k;
    NodeList computed, views; /* numbers in the outline */
    StepList from;            /* kernels, by their place in this list, whose stores it reads */
} PictureKernel;

typedef struct PictureTarget {
    const PlanTarget *t;
    const Schedule *s;
    PictureKernel *kernels;
    uint32_t n;
} PictureTarget;

typedef struct Picture {
    Cli *cli;
    Pipeline pipe;
    PlanView view;
    Outline outline;
    const char **type; /* by node: of its last value; NULL: it has none */
    VEC(KernelCode) code;
    PictureTarget *targets;
    json_t *profile; /* what --profile holds, or NULL */
} Picture;

/* Compiles the model and puts it together; picture_close also after a failure. */
graphc_status picture_make(Cli *c, Picture *p);
void picture_close(Picture *p);
/* Its code; text NULL: there is none. */
KernelCode picture_code(const Picture *p, const PictureTarget *t, const PictureKernel *k);

/* page.c: a page that needs nothing else. dot.c: nodes in boxes of kernels, for Graphviz. */
graphc_status picture_page(const Picture *p, const char *path);
graphc_status picture_dot(const Picture *p, const char *path);
/* data.c: what the page's script reads. */
json_t *picture_data(const Picture *p);

#endif
