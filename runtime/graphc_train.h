/* graphc training API: steps of a training plan over files of data, and what is learnt by name.
 *
 *   char why[512];
 *   graphc_trainer *t;
 *   graphc_data *d;
 *   graphc_data_options o = GRAPHC_DATA_OPTIONS_INIT;
 *   o.files = files, o.nfiles = 1;
 *   if (graphc_trainer_create(plan, NULL, 0, &t, why, sizeof why) != GRAPHC_OK) ...
 *   if (graphc_data_open(plan, &o, &d, why, sizeof why) != GRAPHC_OK) ...
 *   for (int i = 0; i < 100; i++) {
 *       graphc_train_result r;
 *       if (graphc_data_next(d, graphc_trainer_session(t)) != GRAPHC_OK) ...
 *       if (graphc_trainer_step(t, 1e-4, &r) != GRAPHC_OK) puts(graphc_trainer_error(t));
 *   }
 *   if (graphc_trainer_export(t, "adapter") != GRAPHC_OK) ...
 *
 *   graphc_data_destroy(d);
 *   graphc_trainer_destroy(t);
 *
 * The plan comes from graphc_compile with graphc_compile_options.training (graphc_compile.h), or
 * from `graphc train --plan-only`. What follows needs the plan alone and no compiler: C17 and C++,
 * libc and pthreads, like graphc.h, whose rules on threads, trust and files hold here too. A
 * trainer is a session (graphc.h) with all that steps need besides the batch; it and its data
 * belong to one thread at a time, and several train one plan at once. No call prints or exits.
 *
 * Ownership: create or open and destroy are pairs; plans outlive trainers and data, and data
 * outlives the runs that its batches are bound for. Strings are copied. Errors: a status, and a
 * message with the trainer, or in the caller's buffer where there is none yet; what was learnt
 * before a failed call is still there unless it says otherwise. Pointers must not be NULL where
 * nothing else is said.
 *
 * Equal plans, data, seeds and calls give equal bits, whatever the number of threads. */
#ifndef GRAPHC_TRAIN_H
#define GRAPHC_TRAIN_H

#include "graphc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct graphc_trainer graphc_trainer;
typedef struct graphc_data graphc_data;
typedef struct graphc_adapter graphc_adapter;

/* --- Trainers ----------------------------------------------------------------------------- */

/* o: of the session, NULL for the defaults. Adapters' matrices start as PEFT has them, drawn from
 * the seed; weights as in the model. GRAPHC_INVALID: the plan does not train; else as
 * graphc_session_create. *out is NULL on failure. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_trainer_create(const graphc_plan *p,
                                                               const graphc_session_options *o,
                                                               uint64_t seed, graphc_trainer **out,
                                                               char *error, size_t error_size);
GRAPHC_API void graphc_trainer_destroy(graphc_trainer *t); /* NULL is allowed */
/* What went wrong in the last call on this trainer; "" if nothing did. Valid until the next call */
GRAPHC_API const char *graphc_trainer_error(const graphc_trainer *t);
/* For binding batches (the model's inputs and the loss's target), profiling and outputs; its runs
 * are the trainer's to make. It lives as long as the trainer. */
GRAPHC_API graphc_session *graphc_trainer_session(graphc_trainer *t);
GRAPHC_API uint64_t graphc_trainer_steps(const graphc_trainer *t); /* how many are done */

typedef struct graphc_train_result {
    double loss;       /* mean over what was supervised */
    double grad_norm;  /* of all gradients, before clipping */
    double loss_scale; /* that gradients of f16 were computed with; 0: there is none */
} graphc_train_result;

/* One update at learning rate lr, from the batch that is bound; of a plan that accumulates, from
 * all that was accumulated since the last update. Waits for it. out: may be NULL. Numbers that are
 * not finite are no failure: a loss that is none changes no state, gradients that are none change
 * none of a plan with graphc_training.guard. GRAPHC_USAGE: an input is not bound; nothing was
 * accumulated; lr is negative or no number. Statuses else as graphc_run's; after GRAPHC_RUNTIME the
 * states hold anything. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_trainer_step(graphc_trainer *t, double lr,
                                                             graphc_train_result *out);
/* Of a plan that accumulates (graphc_training.accumulate): adds the bound batch's gradients to
 * those that the next step takes. Waits. GRAPHC_USAGE: of another plan. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_trainer_accumulate(graphc_trainer *t);
/* The mean loss over all rows of d, each once, but for rows of arrays that fill no batch; nothing
 * is learnt or dropped. Binds d's batches. GRAPHC_INVALID: there is no whole batch of arrays. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_trainer_evaluate(graphc_trainer *t, graphc_data *d,
                                                                 double *loss);

/* --- Parameters, by name -------------------------------------------------------------------- */

/* Names, types and shapes are those of states: graphc_plan_states, graphc_plan_state,
 * graphc_plan_state_info. Of adapters the names are PEFT's, "MODULE.lora_A.weight". */

/* Copies a parameter's value to t->data, in host memory, of the parameter's type and shape; back
 * from there. GRAPHC_USAGE: the plan has no such parameter; else as graphc_state_read. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_trainer_read(graphc_trainer *t, const char *name,
                                                             const graphc_tensor *to);
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_trainer_write(graphc_trainer *t, const char *name,
                                                              const graphc_tensor *from);
/* The same of its gradient: the f32 sum over what was accumulated since the last step, not divided
 * by anything yet. GRAPHC_USAGE: the plan does not accumulate. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_trainer_read_gradient(graphc_trainer *t,
                                                                      const char *name,
                                                                      const graphc_tensor *to);
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_trainer_write_gradient(graphc_trainer *t,
                                                                       const char *name,
                                                                       const graphc_tensor *from);
/* All gradients at once are graphc_state_gradients(graphc_trainer_session(t), ...): one tensor,
 * with the sum of losses and of what they are divided by in it. Added up over several trainers
 * between accumulating and stepping, each of them makes the step of all batches together. */

/* --- Files ------------------------------------------------------------------------------------ */

/* What was learnt, for others to load: FOLDER/model.safetensors, or of adapters PEFT's
 * adapter_config.json and adapter_model.safetensors. The folder is made. GRAPHC_IO: it cannot be
 * written. Files appear whole or not at all. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_trainer_export(graphc_trainer *t,
                                                               const char *folder);
/* A checkpoint: all states, the number of steps, and where d stands (NULL: nowhere); in a folder
 * step-N below `folder`, with checksums, under that name once it is whole; older ones are removed.
 */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_trainer_save(graphc_trainer *t,
                                                             const graphc_data *d,
                                                             const char *folder);
/* Goes on from the last one: the following steps have the bits that they would have had. Nothing
 * changes on failure. GRAPHC_IO: there is none, or it cannot be read; GRAPHC_INVALID: it is
 * damaged, of another plan, or stands elsewhere than d has rows. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_trainer_load(graphc_trainer *t, graphc_data *d,
                                                             const char *folder);

/* --- Adapters --------------------------------------------------------------------------------- */

/* A PEFT folder, read into memory and checked. Immutable, and may be shared by threads.
 * GRAPHC_IO, GRAPHC_INVALID, GRAPHC_UNSUPPORTED: what of it, in the message. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_adapter_open(const char *folder,
                                                             graphc_adapter **out, char *error,
                                                             size_t error_size);
GRAPHC_API void graphc_adapter_destroy(graphc_adapter *a); /* NULL is allowed */
/* The session's adapter is `a` from its next run on: a copy into its states, without compiling. A
 * module of the plan that `a` lacks adds nothing; a == NULL: none does. Parameters of the model
 * that the plan has as states and `a` lacks are the model's again. Any number of adapters of one
 * plan may be open at once. GRAPHC_USAGE: the plan has no adapters; GRAPHC_INVALID: `a` has modules
 * or sizes that the plan lacks, and then nothing has changed; GRAPHC_UNSUPPORTED. The message goes
 * to the buffer. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_adapter_apply(const graphc_adapter *a,
                                                              graphc_session *s, char *error,
                                                              size_t error_size);
/* The same for one place of a plan that was compiled for several (graphc_compile_options.adapters).
 * Its input "adapter", i64, one for each row of a batch, says which place a row goes through, a
 * negative number none: bind other numbers to switch between adapters that are there. They may be
 * of any rank up to the plan's. GRAPHC_USAGE also where there is no such place. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_adapter_place(const graphc_adapter *a,
                                                              graphc_session *s, uint32_t slot,
                                                              char *error, size_t error_size);

/* --- Data ------------------------------------------------------------------------------------- */

/* Start from GRAPHC_DATA_OPTIONS_INIT and set what differs; read during graphc_data_open only. */
typedef struct graphc_data_options {
    uint32_t size; /* sizeof(graphc_data_options), set by GRAPHC_DATA_OPTIONS_INIT */
    /* Files of tokens: .bin of u16 or u32, .npy of integers, .jsonl of {"input_ids": [..],
     * "labels":
     * [..], "attention_mask": [..]}, others as text by bytes. Or "INPUT=FILE.npy" for each input
     * and target of the model, one row per sample. */
    const char *const *files;
    uint32_t nfiles;
    uint32_t batch, seq; /* rows of a batch, tokens of a row; 0: as the plan has them */
    bool packed;         /* several documents in a row; else one, padded */
    bool shuffle;        /* another order of rows in each epoch */
    uint64_t seed;       /* of that order, and of the split */
    double hold_out;     /* this part of the tokens (0 <= x < 1) is left out, */
    bool held;           /* or is all that there is */
    bool wide;           /* .bin files are of u32; else of u16 where the vocabulary fits */
    int64_t end; /* the id that ends a document of .bin files, and of .npy files of one axis;
                    negative: none does */
} graphc_data_options;
#define GRAPHC_DATA_OPTIONS_INIT                                                                   \
    { sizeof(graphc_data_options), NULL, 0, 0, 0, true, true, 0, 0.0, false, false, -1 }

/* Opens and checks all files for the plan's inputs: what is wrong with them is said here, with its
 * place, and at no later call. Files of tokens and arrays stay mapped. *out is NULL on failure.
 * GRAPHC_USAGE: an input that nothing gives, sizes that neither plan nor options say;
 * GRAPHC_INVALID: ids beyond the vocabulary, lengths that differ, numbers that are not finite,
 * types and shapes that are not the input's; GRAPHC_IO. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_data_open(const graphc_plan *p,
                                                          const graphc_data_options *o,
                                                          graphc_data **out, char *error,
                                                          size_t error_size);
GRAPHC_API void graphc_data_destroy(graphc_data *d); /* NULL is allowed */
GRAPHC_API uint64_t graphc_data_rows(const graphc_data *d);
/* Makes the next batch and binds it; it stays valid until the next call. Epochs follow each other
 * without end, and a batch may begin in one and end in the next. */
GRAPHC_API GRAPHC_MUST_USE graphc_status graphc_data_next(graphc_data *d, graphc_session *s);
/* Of that batch: tokens without padding, or rows of arrays. */
GRAPHC_API uint64_t graphc_data_tokens(const graphc_data *d);

#ifdef __cplusplus
}
#endif
#endif
