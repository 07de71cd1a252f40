/* Several sessions of one plan, each on a thread of its own, as a server would have them: constants
 * and code are there once, what a session adds is its workspace.
 *
 *   threads PLAN [THREADS [RUNS]]      every open size is the smallest that the plan takes
 */
#include <graphc.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_THREADS = 64, MOST_INPUTS = 64 };

typedef struct Worker {
    const graphc_plan *plan;
    int runs;
    void *data[MOST_INPUTS]; /* of the inputs: the session reads it in every run */
    double sum;              /* over the first output, to be compared between threads */
    graphc_status status;
    char why[512];
} Worker;

/* The least that a dimension can be: a number, or its symbol's lower end. */
static int64_t least(const graphc_plan *p, const graphc_io_info *io, int32_t d) {
    if (io->sizes[d] >= 0) return io->sizes[d];
    for (uint32_t i = 0; i < graphc_plan_symbols(p); i++)
        if (strcmp(graphc_plan_symbol(p, i).name, io->dims[d]) == 0)
            return graphc_plan_symbol(p, i).lo;
    return 1;
}

/* Zeros for every input. */
static graphc_status bind_zeros(Worker *w, graphc_session *s) {
    const graphc_plan *p = w->plan;
    for (uint32_t i = 0; i < graphc_plan_inputs(p) && i < MOST_INPUTS; i++) {
        graphc_io_info io = graphc_plan_input(p, i);
        graphc_tensor t = {.device = GRAPHC_CPU, .dtype = io.dtype, .rank = io.rank};
        size_t count = 1;
        for (int32_t d = 0; d < io.rank; d++) count *= (size_t)(t.shape[d] = least(p, &io, d));
        t.data = w->data[i] = calloc(count + 1, 16); /* no element is larger */
        if (!t.data) return GRAPHC_NO_MEMORY;
        graphc_status st = graphc_bind_input(s, i, &t);
        if (st != GRAPHC_OK) return st;
    }
    return GRAPHC_OK;
}

static graphc_status run(Worker *w, graphc_session *s) {
    graphc_tensor out;
    graphc_status st = bind_zeros(w, s);
    for (int i = 0; i < w->runs && st == GRAPHC_OK; i++) st = graphc_run(s);
    if (st == GRAPHC_OK) st = graphc_output(s, 0, &out);
    if (st == GRAPHC_OK && out.dtype.code == 2 && out.dtype.bits == 32) {
        size_t count = 1;
        for (int32_t d = 0; d < out.rank; d++) count *= (size_t)out.shape[d];
        for (size_t i = 0; i < count; i++) w->sum += ((const float *)out.data)[i];
    }
    if (st != GRAPHC_OK) snprintf(w->why, sizeof w->why, "%s", graphc_session_error(s));
    return st;
}

static void *work(void *arg) {
    Worker *w = arg;
    graphc_session *s = NULL;
    graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
    o.threads = 1; /* the sessions share the cores */
    w->status = graphc_session_create(w->plan, &o, &s, w->why, sizeof w->why);
    if (w->status == GRAPHC_OK) w->status = run(w, s);
    graphc_session_destroy(s);
    for (int i = 0; i < MOST_INPUTS; i++) free(w->data[i]);
    return NULL;
}

int main(int argc, char **argv) {
    char why[512];
    graphc_plan *plan;
    static Worker w[MOST_THREADS];
    pthread_t thread[MOST_THREADS];
    int n = argc > 2 ? atoi(argv[2]) : 4, bad = 0;
    if (argc < 2 || n < 1 || n > MOST_THREADS)
        return fputs("threads PLAN [THREADS [RUNS]]\n", stderr), 2;
    if (graphc_plan_load(argv[1], &plan, why, sizeof why) != GRAPHC_OK)
        return fprintf(stderr, "%s\n", why), 1;
    for (int i = 0; i < n; i++) {
        w[i] = (Worker){.plan = plan, .runs = argc > 3 ? atoi(argv[3]) : 100};
        if (pthread_create(&thread[i], NULL, work, &w[i]) != 0)
            return fputs("no thread\n", stderr), 1;
    }
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < n; i++) {
        if (w[i].status != GRAPHC_OK)
            fprintf(stderr, "thread %d: %s: %s\n", i, graphc_status_name(w[i].status), w[i].why);
        bad |= w[i].status != GRAPHC_OK || w[i].sum != w[0].sum;
    }
    graphc_plan_destroy(plan);
    if (!bad) printf("%d threads, %d runs each, equal results\n", n, w[0].runs);
    return bad;
}
