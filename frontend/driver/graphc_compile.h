/* graphc compile API: an ONNX model becomes a plan.
 *
 *   graphc_compile_options o = GRAPHC_COMPILE_OPTIONS_INIT;
 *   o.target = "cpu,sm_90a";
 *   graphc_compiled *c;
 *   graphc_status s = graphc_compile("bert.onnx", &o, &c);
 *   for (uint32_t i = 0; c && i < graphc_compiled_messages(c); i++)
 *       puts(graphc_compiled_message(c, i));
 *   size_t size;
 *   const void *plan = s == GRAPHC_OK ? graphc_compiled_plan(c, &size) : NULL;
 *   ... write it to a file, or give it to graphc_plan_load_memory (graphc.h) ...
 *   graphc_compiled_destroy(c);
 *
 * C17 and C++. Needs LLVM and protobuf-c, no GPU and no driver. Calls may run on several threads at
 * once, each with its own result; a stack of 64 MiB of address space is made for each, whatever the
 * stack of the caller. No call prints or exits; only memory that LLVM itself asks for and
 * does not get ends the process. Model files are checked before use and may come from anywhere.
 * Equal models and options give equal plans, byte for byte, whatever the folder and number of
 * threads. */
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

/* A symbolic size of the model and the values that the plan has to work for; otherwise 1 (0 for
 * sizes that are only ever added to others) to 2147483647. A name that the model lacks is an error.
 */
typedef struct graphc_compile_dim {
    const char *name; /* a symbol of the model ("batch") */
    int64_t lo, hi;   /* inclusive; lo == hi fixes it */
} graphc_compile_dim;

/* What a training plan learns, and how. Start from GRAPHC_TRAINING_INIT and set what differs; texts
 * and numbers that stay NULL or negative are as the optimizer has them. */
typedef struct graphc_training {
    uint32_t size;         /* sizeof(graphc_training), set by GRAPHC_TRAINING_INIT */
    const char *loss;      /* an output's name (its sum), or "cross_entropy(logits, labels)", with
                              parameters "ignore=-100, smoothing=0.1, z=1e-4, weights=INPUT" (or a
                              file's, of a name that ends in .npy); mse, l1, huber, bce, kl
                              likewise. A target that the model lacks becomes an input */
    const char *optimizer; /* "adamw" (default), "sgd", "lion", "adamw8bit" */
    double beta1, beta2, eps, weight_decay, momentum;
    bool nesterov;
    double clip;        /* bound of the gradients' global norm; 0: none */
    const char *train;  /* extended regular expressions (POSIX) that whole names of initializers */
    const char *freeze; /* match: these alone are learnt; these are not */
    const char *lora;   /* "r=16,alpha=32,targets=all-linear": adapters alone are learnt, states
                           "MODULE.lora_A.weight" and "MODULE.lora_B.weight"; NULL: weights */
    bool accumulate;    /* a step over several batches: entries "accumulate" and "step" */
    bool documents; /* several documents in a row of tokens: an input "document_ids", i32 [batch,
                       seq], and no attention from one to another */
    uint32_t batch, seq; /* first sizes of all inputs, and second ones of tokens (integers, rank 2);
                            0: as the model has them */
    const char *no_decay; /* "vectors" (parameters of one axis: norms, biases), or an expression
                             like freeze: no weight decay of these; NULL: all decay */
    bool guard; /* a step whose gradients are no finite numbers changes nothing, as one whose loss
                   is none always does; every update then waits for all gradients */
    double loss_scale; /* of f16, the first one: state "loss_scale", output "loss_scale" of a step,
                          and guard; 0: none; below 0: 65536 with precision "f16" or a model of f16,
                          else none */
    uint32_t scale_every; /* it doubles after so many steps without overflow; 0: 2000 */
    /* Norms take the batch's statistics and move the running ones along, states of the names of
     * those initializers, and the model's Dropout nodes drop, whatever either is marked as: in
     * steps, where the plan's input "generator" is not negative. Adapters leave the model's
     * statistics as they are. */
    bool frozen_batch_norm, no_dropout;
    uint32_t head_rows; /* of cross entropy's logits that exist at once; 0: 256 MiB of them, 1024 at
                           least, and what fills a GPU */
    const char *checkpoint; /* what backward computes again: "auto" (default) what is cheap, and
                               more where a budget asks for it; "layers" all between values that a
                               layer hands to the next; "none" */
    uint64_t memory_budget; /* bytes that weights, states and temporaries of a step may take at
                               most; 0: any */
    bool any_order; /* on GPUs sums of gradients may be added up as they come, where that is faster:
                       two runs then differ in the last bits. false: results repeat */
} graphc_training;
#define GRAPHC_TRAINING_INIT                                                                       \
    {                                                                                              \
        sizeof(graphc_training), NULL, NULL, -1, -1, -1, -1, -1, false, 0, NULL, NULL, NULL,       \
            false, false, 0, 0, NULL, false, -1, 0, false, false, 0, NULL, 0, false                \
    }

/* An input and an output that become one state (graphc.h), which each run leaves to the next: of
 * equal types, or a cache that the output has longer along one axis, whose size in the input is a
 * symbol that may be 0 and has a declared most: the room that it gets. */
typedef struct graphc_compile_state {
    const char *input, *output; /* names of the model; the state has the input's */
} graphc_compile_state;

/* How far compiling has come: `done` of `of` in a stage: "import", "passes", "kernels" (of each
 * target anew), "plan". Called from one thread, one of graphc's own, at least once a stage and
 * before kernels; not to be left by longjmp or an exception. false: compiling stops with
 * GRAPHC_CANCELLED. */
typedef bool (*graphc_progress)(void *ctx, const char *stage, uint32_t done, uint32_t of);

/* External data of a model that does not lie in files: sets *data and *size to what the model calls
 * `location`, a relative path without "..". The bytes are the callback's; they stay as they are
 * until graphc_compiled_destroy. May be asked for the same again. Another status than GRAPHC_OK
 * fails the compile. Called like graphc_progress. */
typedef graphc_status (*graphc_external)(void *ctx, const char *location, const void **data,
                                         size_t *size);

/* Start from GRAPHC_COMPILE_OPTIONS_INIT and set what differs. Strings and arrays are read during
 * graphc_compile only. */
typedef struct graphc_compile_options {
    uint32_t size;         /* sizeof(graphc_compile_options), set by GRAPHC_COMPILE_OPTIONS_INIT */
    const char *target;    /* "cpu" (default), "native" (this machine's CPU alone), "sm_90a",
                              "cpu,sm_90a,sm_80" */
    const char *precision; /* what f32 models multiply and, where a target is a GPU or the plan
                              trains, store between kernels: "f32" (default), "bf16", "f16"; or
                              multiply alone, on targets where that is faster: "tf32". Sums, norms,
                              softmax, inputs and outputs stay f32 */
    const graphc_compile_dim *dims;
    uint32_t ndims;
    const char *dump_dir;    /* folder for the text of every level (--dump-ir); NULL = none */
    const char *cache_dir;   /* folder that keeps compiled kernels by content; NULL = none. Both are
                                made if they are not there. What lies in a cache is trusted. */
    uint32_t threads;        /* that compile kernels, at most 64; 0 = as in graphc.h */
    bool embed;              /* true: constants in external files are copied into the plan too */
    const char *weights_dir; /* otherwise: the model's folder as seen from where the plan will lie;
                                NULL = the same folder */
    const graphc_training *training; /* a plan that trains; NULL: one that runs the model */
    const graphc_compile_state *states;
    uint32_t nstates;
    graphc_progress progress; /* NULL: nobody asks */
    void *progress_ctx;
    graphc_external external; /* instead of files; NULL: files */
    void *external_ctx;
    /* External data is opened in the model's folder and below, and where the model's file really
     * lies if its path is a symbolic link. Such links among external data may also lead into this
     * folder: */
    const char *weights_root;
    bool allow_links;  /* or anywhere */
    uint32_t adapters; /* places for so many LoRA adapters beside each other (graphc_adapter_place
                          in graphc_train.h), of the layers and up to the rank that `lora` says */
    const char *lora;  /* "r=16,targets=all-linear"; NULL: that */
    /* What activations may be rounded to where weights of few bits (MatMulNBits, DequantizeLinear)
     * multiply them, whatever the model says, numbered as its accuracy_level: 1 f32, 2 f16, 3 bf16,
     * 4 integers of 8 bits with a scale for each block; 0: as the model says. A level allows and
     * does not ask: what is faster is done. Noted in the plan as "accuracy_level". */
    uint32_t accuracy_level;
} graphc_compile_options;
#define GRAPHC_COMPILE_OPTIONS_INIT                                                                \
    {                                                                                              \
        sizeof(graphc_compile_options), "cpu", "f32", NULL, 0, NULL, NULL, 0, false, NULL, NULL,   \
            NULL, 0, NULL, NULL, NULL, NULL, NULL, false, 0, NULL, 0                               \
    }

/* A training plan's first entry, "step", takes the model's inputs, the loss's target, "lr" (f32)
 * and "step" (i64, 1 in the first), and gives "loss" (the mean over what is supervised),
 * "grad_norm", "loss_sum" and "loss_weight"; entry "evaluate" gives the last two and changes
 * nothing. With `accumulate` there is an entry "accumulate" like it, which adds gradients and loss
 * to what the next step takes in, and "step" takes no batch: a step over several batches, in which
 * each supervised element counts alike. Weights or adapters, the optimizer's moments ("NAME.m",
 * "NAME.v"; of adamw8bit u8, with scales "NAME.m.absmax") and held gradients ("NAME.grad") are its
 * states. A step whose loss is no finite number leaves them as they were, but for held gradients.
 * Where a model drops or normalises by batches, entries that take a batch take "generator" (i64),
 * too, which says what random numbers are drawn and is negative where the model is to run as in
 * inference: in evaluations. Statistics of its norms are states then. graphc_train.h takes care of
 * all that. */

typedef struct graphc_compiled graphc_compiled;

/* Compiles the model at model_path, and what its external data names in the same folder or below;
 * o == NULL means the defaults. *out is a result object also on failure, since it holds the
 * messages: destroy it either way. (It is NULL if not even it could be allocated:
 * GRAPHC_NO_MEMORY.) GRAPHC_USAGE: the options are wrong; GRAPHC_IO: a file cannot be read, or a
 * dump not be written; GRAPHC_INVALID: the model is malformed; GRAPHC_UNSUPPORTED: it uses what
 * graphc does not have; GRAPHC_NO_MEMORY: compiling it takes more memory than there is;
 * GRAPHC_RUNTIME: generating code failed, graphc's defect; GRAPHC_CANCELLED: a callback said so. */
GRAPHC_COMPILE_API GRAPHC_MUST_USE graphc_status graphc_compile(const char *model_path,
                                                                const graphc_compile_options *o,
                                                                graphc_compiled **out);
/* The same of a model in memory, which stays as it is until graphc_compiled_destroy. Its external
 * data comes from options->external; what is not embedded is looked for, when the plan is loaded,
 * in files of these names. */
GRAPHC_COMPILE_API GRAPHC_MUST_USE graphc_status graphc_compile_memory(
    const void *model, size_t size, const graphc_compile_options *o, graphc_compiled **out);
GRAPHC_COMPILE_API void graphc_compiled_destroy(graphc_compiled *c); /* NULL is allowed */
/* The plan's bytes and their number, owned by c; NULL and 0 if compilation failed. Written to a
 * file where weights_dir (or the model's folder) is found from, or given to graphc_plan_load_memory
 * with such a path as base_path: what was not embedded is looked for there. */
GRAPHC_COMPILE_API const void *graphc_compiled_plan(const graphc_compiled *c, size_t *size);
/* All errors (of more than 64 the number), warnings and notes, one rendered message each with its
 * place in the model, owned by c; "" when there is no number i. Also a plan that was made may come
 * with some. One thread at a time may ask for them. */
GRAPHC_COMPILE_API uint32_t graphc_compiled_messages(const graphc_compiled *c);
GRAPHC_COMPILE_API const char *graphc_compiled_message(const graphc_compiled *c, uint32_t i);

typedef enum graphc_severity { GRAPHC_NOTE, GRAPHC_WARNING, GRAPHC_ERROR } graphc_severity;

/* A message as data; strings are c's, "" where there is nothing to say. */
typedef struct graphc_diagnostic {
    graphc_severity severity;
    uint32_t number;      /* 412 of G0412: the same in every release */
    graphc_status status; /* that it stands for; GRAPHC_OK of notes and warnings */
    const char *place;    /* in the model: node 17 "val_12" Conv */
    const char *text;     /* what is wrong */
    const char *hint;     /* what to do about it */
} graphc_diagnostic;
GRAPHC_COMPILE_API graphc_diagnostic graphc_compiled_diagnostic(const graphc_compiled *c,
                                                                uint32_t i);

#ifdef __cplusplus
}
#endif
#endif
