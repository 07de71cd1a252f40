/* Eight threads run one plan, each with sessions of its own that come and go, while others load and
 * free the same plan: every result has the bits of the first one.
 *
 *   soak PLAN SECONDS [PAUSE_US]     PAUSE_US: what a thread sleeps between runs, at most (0)
 *
 * Sizes are numbers or symbols, and each symbol takes one of SIZES values. Meant for the presets
 * asan and tsan. */
#include "runtime/graphc.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { USERS = 8, SIZES = 4, RUNS = 24, MOST = 16 };

/* What runs with the n-th size gave. */
typedef struct Wanted {
    void *data[MOST];
    size_t bytes[MOST];
} Wanted;

typedef struct Soak {
    const char *path;
    graphc_plan *plan; /* that all share */
    Wanted want[SIZES];
    time_t end;
    unsigned pause_us;
    _Atomic unsigned long runs, sessions, loads, bad;
} Soak;

typedef struct User {
    Soak *of;
    unsigned state; /* of its random numbers */
    pthread_t thread;
} User;

static unsigned draw(unsigned *state, unsigned n) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}

static void complain(Soak *k, const char *what, const char *why) {
    if (atomic_fetch_add(&k->bad, 1) < 10) fprintf(stderr, "soak: %s: %s\n", what, why);
}

static size_t bytes_of(const graphc_tensor *t) {
    size_t n = (t->dtype.bits + 7u) / 8u;
    for (int32_t i = 0; i < t->rank; i++) n *= (size_t)t->shape[i];
    return n;
}

/* Dimension d of an input where symbols take their n-th value. */
static int64_t size_of(const graphc_plan *p, const graphc_io_info *in, int32_t d, int n) {
    static const int64_t sizes[SIZES] = {3, 1, 8, 17};
    if (in->sizes[d] >= 0) return in->sizes[d];
    for (uint32_t i = 0; i < graphc_plan_symbols(p); i++) {
        const graphc_symbol_info s = graphc_plan_symbol(p, i);
        if (strcmp(s.name, in->dims[d]) != 0) continue;
        return sizes[n] < s.lo ? s.lo : sizes[n] > s.hi ? s.hi : sizes[n];
    }
    return 1;
}

/* Binds inputs that depend on n alone; the caller frees their memory. */
static graphc_status bind(graphc_session *s, int n, void **memory) {
    const graphc_plan *p = graphc_session_plan(s);
    for (uint32_t i = 0; i < graphc_plan_inputs(p); i++) {
        const graphc_io_info in = graphc_plan_input(p, i);
        graphc_tensor t = {.device = GRAPHC_CPU, .dtype = in.dtype, .rank = in.rank};
        unsigned state = 7u * (unsigned)n + i;
        for (int32_t d = 0; d < in.rank; d++) t.shape[d] = size_of(p, &in, d, n);
        const size_t bytes = bytes_of(&t);
        t.data = memory[i] = calloc(1, bytes + 1);
        if (!t.data) return GRAPHC_NO_MEMORY;
        for (size_t e = 0; in.dtype.code == 2 && in.dtype.bits == 32 && e < bytes / 4; e++)
            ((float *)t.data)[e] = (float)draw(&state, 2001) / 1000.0f - 1.0f;
        const graphc_status st = graphc_bind_input(s, i, &t);
        if (st != GRAPHC_OK) return st;
    }
    return GRAPHC_OK;
}

/* The first run of a size says what the others have to give. */
static bool same(Wanted *w, uint32_t i, const graphc_tensor *t) {
    const size_t bytes = bytes_of(t);
    if (w->data[i])
        return bytes == w->bytes[i] && (!bytes || memcmp(w->data[i], t->data, bytes) == 0);
    w->data[i] = malloc(bytes + 1);
    w->bytes[i] = bytes;
    if (w->data[i] && bytes) memcpy(w->data[i], t->data, bytes);
    return w->data[i] != NULL;
}

static void run_once(Soak *k, graphc_session *s, int n) {
    void *memory[MOST] = {0};
    graphc_status st = bind(s, n, memory);
    if (st == GRAPHC_OK) st = graphc_run(s);
    for (uint32_t i = 0; st == GRAPHC_OK && i < graphc_plan_outputs(k->plan); i++) {
        graphc_tensor t;
        st = graphc_output(s, i, &t);
        if (st == GRAPHC_OK && !same(&k->want[n], i, &t)) complain(k, "a result", "other bits");
    }
    if (st != GRAPHC_OK) complain(k, "a run", graphc_session_error(s));
    for (int i = 0; i < MOST; i++) free(memory[i]);
    k->runs++;
}

static graphc_session *open_session(Soak *k, const graphc_plan *p, uint32_t threads) {
    graphc_session *s = NULL;
    graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
    char why[256] = "";
    o.threads = threads;
    if (graphc_session_create(p, &o, &s, why, sizeof why) != GRAPHC_OK)
        complain(k, "a session", why);
    k->sessions++;
    return s;
}

/* The plan that all share, or one of the thread's own. */
static void use(User *u) {
    Soak *k = u->of;
    graphc_plan *own = NULL;
    char why[256] = "";
    if (draw(&u->state, 4) == 0) {
        if (graphc_plan_load(k->path, &own, why, sizeof why) != GRAPHC_OK)
            complain(k, "a plan", why);
        k->loads += own != NULL;
    }
    graphc_session *s = open_session(k, own ? own : k->plan, 1 + draw(&u->state, 3));
    for (int i = 0; s && i < RUNS && time(NULL) < k->end; i++) {
        run_once(k, s, (int)draw(&u->state, SIZES));
        if (k->pause_us) usleep(draw(&u->state, k->pause_us));
    }
    graphc_session_destroy(s);
    graphc_plan_destroy(own);
}

static void *user(void *of) {
    User *u = of;
    while (time(NULL) < u->of->end) use(u);
    return NULL;
}

static void soak(Soak *k, int seconds) {
    User users[USERS];
    graphc_session *s = open_session(k, k->plan, 1);
    for (int n = 0; s && n < SIZES; n++) run_once(k, s, n);
    graphc_session_destroy(s);
    k->end = time(NULL) + seconds;
    for (unsigned i = 0; i < USERS; i++) {
        users[i] = (User){.of = k, .state = 1 + i};
        if (pthread_create(&users[i].thread, NULL, user, &users[i]) != 0) abort();
    }
    for (int i = 0; i < USERS; i++) pthread_join(users[i].thread, NULL);
}

int main(int argc, char **argv) {
    static Soak k;
    char why[256] = "";
    if (argc < 3) return fprintf(stderr, "usage: soak PLAN SECONDS [PAUSE_US]\n"), 2;
    k.path = argv[1];
    k.pause_us = argc > 3 ? (unsigned)atoi(argv[3]) : 0;
    if (graphc_plan_load(k.path, &k.plan, why, sizeof why) != GRAPHC_OK)
        return complain(&k, k.path, why), 1;
    if (graphc_plan_inputs(k.plan) > MOST || graphc_plan_outputs(k.plan) > MOST)
        return complain(&k, k.path, "too many inputs or outputs"), 1;
    soak(&k, atoi(argv[2]));
    graphc_plan_destroy(k.plan);
    for (int n = 0; n < SIZES; n++)
        for (int i = 0; i < MOST; i++) free(k.want[n].data[i]);
    printf("%s: %lu runs in %lu sessions, %lu plans loaded and freed, %lu bad\n", k.path, k.runs,
           k.sessions, k.loads, k.bad);
    return k.bad != 0 || k.runs < SIZES + USERS;
}
