/* graphc compile API: an ONNX model becomes a plan.
 *
 * C17 and C++. Needs LLVM and protobuf-c, no GPU and no driver. Calls may run on several threads at
 * once, each with its own options and result. No call prints or exits. */
#ifndef GRAPHC_COMPILE_H
#define GRAPHC_COMPILE_H

#include "graphc_status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GRAPHC_COMPILE_API __attribute__((visibility("default")))
#else
#define GRAPHC_COMPILE_API
#endif

typedef struct graphc_compile_dim {
    const char *name; /* a symbol of the model ("batch") */
    int64_t lo, hi;   /* lo == hi fixes it */
} graphc_compile_dim;

typedef struct graphc_compile_options {
    uint32_t size; /* set by GRAPHC_COMPILE_OPTIONS_INIT */
    const char *target;    /* "cpu" (default), "sm_90a", "cpu,sm_90a" */
    const char *precision; /* "f32" (default) */
    const graphc_compile_dim *dims;
    uint32_t ndims;
    const char *dump_dir;  /* --dump-ir; NULL = none */
    const char *cache_dir; /* NULL = no on-disk cache */
    uint32_t threads;      /* 0 = cores */
    bool embed;            /* true: constants in external files are copied into the plan too */
    const char *weights_dir; /* otherwise: the model's folder as seen from where the plan will lie;
                                NULL = the same folder */
} graphc_compile_options;
#define GRAPHC_COMPILE_OPTIONS_INIT                                                                \
    { sizeof(graphc_compile_options), "cpu", "f32", NULL, 0, NULL, NULL, 0, false, NULL }

typedef struct graphc_compiled graphc_compiled;

/* Always gives a result object (unless memory runs out), also on failure: it holds the messages. */
GRAPHC_COMPILE_API GRAPHC_MUST_USE graphc_status graphc_compile(const char *model_path,
                                                                const graphc_compile_options *o,
                                                                graphc_compiled **out);
GRAPHC_COMPILE_API void graphc_compiled_destroy(graphc_compiled *c);
/* The plan's bytes; NULL if compilation failed. */
GRAPHC_COMPILE_API const void *graphc_compiled_plan(const graphc_compiled *c, size_t *size);
/* All diagnostics, one rendered message each, errors first. */
GRAPHC_COMPILE_API uint32_t graphc_compiled_messages(const graphc_compiled *c);
GRAPHC_COMPILE_API const char *graphc_compiled_message(const graphc_compiled *c, uint32_t i);

#ifdef __cplusplus
}
#endif
#endif
