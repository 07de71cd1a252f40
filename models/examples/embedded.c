/* A program that holds its plan, and with libgraphc.a the run library too: one file, nothing to
 * install. PLAN is the plan's path when this is compiled, made with --embed so that the weights are
 * inside.
 *
 *   graphc model.onnx -o model.plan --embed
 *   cc -DPLAN='"model.plan"' embedded.c -o embedded -l:libgraphc.a -lpthread -ldl -lm
 */
#include <graphc.h>

#include <stdio.h>
#include <stdlib.h>

enum { MOST_INPUTS = 64 };

__asm__(".section .rodata\n"
        ".balign 64\n"
        "plan_begin: .incbin \"" PLAN "\"\n"
        "plan_end: .byte 0\n"
        ".previous\n");
extern const char plan_begin[], plan_end[];

static int fail(const char *why) {
    fprintf(stderr, "embedded: %s\n", why);
    return 1;
}

/* Zeros of the fixed sizes, 1 for each open one. */
static graphc_tensor zeros(graphc_io_info io) {
    graphc_tensor t = {.device = GRAPHC_CPU, .dtype = io.dtype, .rank = io.rank};
    size_t count = 1;
    for (int32_t d = 0; d < io.rank; d++) {
        t.shape[d] = io.sizes[d] < 0 ? 1 : io.sizes[d];
        count *= (size_t)t.shape[d];
    }
    t.data = calloc(count + 1, 16); /* no element is larger */
    return t;
}

int main(void) {
    char why[512];
    void *data[MOST_INPUTS] = {0};
    graphc_plan *plan;
    graphc_session *s;
    if (graphc_plan_load_memory(plan_begin, (size_t)(plan_end - plan_begin), NULL, &plan, why,
                                sizeof why) != GRAPHC_OK ||
        graphc_session_create(plan, NULL, &s, why, sizeof why) != GRAPHC_OK)
        return fail(why);
    for (uint32_t i = 0; i < graphc_plan_inputs(plan) && i < MOST_INPUTS; i++) {
        graphc_tensor t = zeros(graphc_plan_input(plan, i));
        data[i] = t.data; /* the session reads it where it lies */
        if (!t.data) return fail("out of memory");
        if (graphc_bind_input(s, i, &t) != GRAPHC_OK) return fail(graphc_session_error(s));
    }
    if (graphc_run(s) != GRAPHC_OK) return fail(graphc_session_error(s));
    for (uint32_t i = 0; i < graphc_plan_outputs(plan); i++) {
        graphc_tensor out;
        if (graphc_output(s, i, &out) != GRAPHC_OK) return fail(graphc_session_error(s));
        printf("%s %s[", graphc_plan_output(plan, i).name, graphc_plan_output(plan, i).dtype_name);
        for (int32_t d = 0; d < out.rank; d++)
            printf("%s%lld", d ? ", " : "", (long long)out.shape[d]);
        printf("]\n");
    }
    graphc_session_destroy(s);
    graphc_plan_destroy(plan);
    for (int i = 0; i < MOST_INPUTS; i++) free(data[i]);
    return 0;
}
