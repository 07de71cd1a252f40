/* Fine-tunes a language model from C with the public headers alone: compiles a training plan with
 * low-rank adapters, learns from files of tokens, and writes the adapter as PEFT reads it.
 *
 *   finetune MODEL.onnx OUT STEPS FILE ...        finetune llama_small.onnx adapter 50 text.txt
 *
 * The same as graphc finetune MODEL.onnx --loss "cross_entropy(logits, labels)" --lora
 * r=8,targets=all-linear --data FILE ... --batch 2 --seq 64 --lr 1e-3 --steps STEPS -o OUT: the
 * same bits, too */
#include "graphc_compile.h"
#include "graphc_train.h"

#include <stdio.h>
#include <stdlib.h>

#define RATE 1e-3

static char why[1024];

static int fail(const char *what, const char *text) {
    fprintf(stderr, "finetune: %s: %s\n", what, text);
    return 1;
}

/* What is learnt and how: sizes that are known make better kernels. */
static graphc_status compile(const char *model, graphc_plan **plan) {
    graphc_training training = GRAPHC_TRAINING_INIT;
    training.loss = "cross_entropy(logits, labels)";
    training.lora = "r=8,targets=all-linear";
    training.documents = true; /* several in a row, none of which sees another */
    training.batch = 2;
    training.seq = 64;
    graphc_compile_options o = GRAPHC_COMPILE_OPTIONS_INIT;
    o.training = &training;
    graphc_compiled *c;
    graphc_status st = graphc_compile(model, &o, &c);
    for (uint32_t i = 0; c && i < graphc_compiled_messages(c); i++)
        fprintf(stderr, "%s\n", graphc_compiled_message(c, i));
    size_t size;
    const void *bytes = st == GRAPHC_OK ? graphc_compiled_plan(c, &size) : NULL;
    if (bytes) st = graphc_plan_load_memory(bytes, size, model, plan, why, sizeof why);
    graphc_compiled_destroy(c);
    return st;
}

static int learn(graphc_trainer *t, graphc_data *d, int steps) {
    graphc_session *s = graphc_trainer_session(t);
    for (int i = 1; i <= steps; i++) {
        graphc_train_result r;
        if (graphc_data_next(d, s) != GRAPHC_OK) return fail("batch", graphc_session_error(s));
        if (graphc_trainer_step(t, RATE, &r) != GRAPHC_OK)
            return fail("step", graphc_trainer_error(t));
        printf("step %d  loss %.6f  |g| %.4f\n", i, r.loss, r.grad_norm);
    }
    return 0;
}

int main(int argc, char **argv) {
    graphc_plan *plan;
    graphc_trainer *t;
    graphc_data *d;
    int steps = argc < 5 ? 0 : atoi(argv[3]);
    if (steps < 1) return fail("usage", "finetune MODEL.onnx OUT STEPS FILE ...");
    graphc_status st = compile(argv[1], &plan);
    if (st != GRAPHC_OK) return fail(argv[1], why[0] ? why : graphc_status_name(st));
    graphc_data_options data = GRAPHC_DATA_OPTIONS_INIT;
    data.files = (const char *const *)argv + 4;
    data.nfiles = (uint32_t)argc - 4;
    if (graphc_data_open(plan, &data, &d, why, sizeof why) != GRAPHC_OK) return fail("data", why);
    if (graphc_trainer_create(plan, NULL, 0, &t, why, sizeof why) != GRAPHC_OK)
        return fail(argv[1], why);
    int failed = learn(t, d, steps);
    if (!failed && graphc_trainer_export(t, argv[2]) != GRAPHC_OK)
        failed = fail(argv[2], graphc_trainer_error(t));
    graphc_data_destroy(d);
    graphc_trainer_destroy(t);
    graphc_plan_destroy(plan);
    return failed;
}
