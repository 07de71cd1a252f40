/* The loop of training with a small model of its own (a table of bigrams, by gradient descent with
 * momentum and noise): what it writes, early ends, losses that are not finite, and runs that are
 * killed at 50 points and go on with the same bits. */
#include "runtime/base/map.h"
#include "runtime/train/data/pack.h"
#include "runtime/train/data/random.h"
#include "runtime/train/json_read.h"
#include "runtime/train/loop.h"
#include "test.h"
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { V = 128, LENGTH = 16, STEPS = 60 };
#define LEARNT 3.6

typedef struct Bigrams {
    double w[V][V], m[V][V];
    const Pack *train, *held;
    long calls, kill_at; /* of any function; -1: never */
    uint64_t bad_step;   /* whose loss is NaN */
    bool worse;          /* evaluations never get better */
} Bigrams;

static char folder[64], root[] = "/tmp/graphc_loop_XXXXXX";
static char why[1024];
static const ErrorText e = {why, sizeof why};

static void count_call(Bigrams *b) {
    if (b->calls++ == b->kill_at) kill(getpid(), SIGKILL);
}

/* Sum of the losses of rows, and its gradient if wanted. */
static double pass(const Bigrams *b, const Pack *p, const uint64_t *rows, uint32_t n,
                   double (*g)[V], uint64_t *supervised) {
    int64_t ids[LENGTH], labels[LENGTH];
    double loss = 0;
    for (uint32_t r = 0; r < n; r++) {
        Batch batch = {.ids = ids, .labels = labels};
        pack_batch(p, &rows[r], 1, 0, &batch);
        *supervised += batch.supervised;
        for (int i = 0; i < LENGTH; i++) {
            if (labels[i] == TOKENS_IGNORE) continue;
            const double *row = b->w[ids[i]];
            double sum = 0;
            for (int k = 0; k < V; k++) sum += exp(row[k]);
            loss += log(sum) - row[labels[i]];
            for (int k = 0; g && k < V; k++) g[ids[i]][k] += exp(row[k]) / sum - (k == labels[i]);
        }
    }
    return loss;
}

static graphc_status step(void *self, const LoopStep *s, LoopResult *out, ErrorText err) {
    static double g[V][V];
    Bigrams *b = self;
    uint64_t noise = random_of_step(7, s->step - 1);
    (void)err;
    count_call(b);
    memset(g, 0, sizeof g);
    *out = (LoopResult){.peak_bytes = sizeof *b};
    for (uint32_t part = 0; part < s->accumulate; part++)
        out->loss += pass(b, b->train, s->rows + part * s->batch, s->batch, g, &out->tokens);
    out->loss /= (double)out->tokens;
    for (int i = 0; i < V * V; i++) {
        double *gi = &g[0][0] + i;
        *gi = *gi / (double)out->tokens + 1e-6 * (double)random_below(&noise, 100);
        out->grad_norm += *gi * *gi;
    }
    out->grad_norm = sqrt(out->grad_norm);
    if (s->step == b->bad_step) out->loss = (double)NAN;
    for (int i = 0; i < V * V && isfinite(out->loss); i++) {
        double *m = &b->m[0][0] + i;
        *m = 0.9 * *m + *(&g[0][0] + i);
        *(&b->w[0][0] + i) -= s->lr * *m;
    }
    return GRAPHC_OK;
}

static graphc_status evaluate(void *self, double *loss, ErrorText err) {
    Bigrams *b = self;
    uint64_t n = 0;
    (void)err;
    count_call(b);
    *loss = 0;
    for (uint64_t row = 0; row < b->held->nsequences; row++)
        *loss += pass(b, b->held, &row, 1, NULL, &n);
    *loss = b->worse ? 5 : *loss / (double)n;
    return GRAPHC_OK;
}

static graphc_status save(void *self, const char *path, ErrorText err) {
    Bigrams *b = self;
    const int64_t dim[] = {V, V};
    const SafeTensor t[] = {{.name = "w", .dtype = DT_f64, .rank = 2, .dim = dim, .data = b->w},
                            {.name = "m", .dtype = DT_f64, .rank = 2, .dim = dim, .data = b->m}};
    count_call(b);
    graphc_status st = safetensors_write(path, t, 2, NULL, 0, true, err);
    count_call(b);
    return st;
}

static graphc_status load(void *self, const char *path, ErrorText err) {
    Bigrams *b = self;
    Safetensors s;
    GC_TRY(safetensors_open(path, &s, err));
    memcpy(b->w, safetensors_find(&s, "w")->data, sizeof b->w);
    memcpy(b->m, safetensors_find(&s, "m")->data, sizeof b->m);
    safetensors_close(&s);
    count_call(b);
    return GRAPHC_OK;
}

static SafePair said[] = {{"lr", "2"}, {"batch", "4"}};

static LoopOptions options(const Pack *train) {
    return (LoopOptions){.rows = train->nsequences,
                         .batch = 4,
                         .accumulate = 2,
                         .seed = 7,
                         .shuffle = true,
                         .schedule = {SCHEDULE_cosine, 2, 0.1, 5, 0, STEPS},
                         .eval_every = 10,
                         .save_every = 7,
                         .keep = 2,
                         .folder = folder,
                         .title = "bigrams",
                         .options = said,
                         .noptions = 2};
}

/* A run in this process, from an empty model. */
static graphc_status run(Bigrams *b, const LoopOptions *o, LoopEnd *end) {
    const LoopModel m = {b, step, evaluate, save, load, NULL};
    memset(b->w, 0, sizeof b->w);
    memset(b->m, 0, sizeof b->m);
    b->calls = 0;
    return loop_run(&m, o, end, e);
}

/* Hash of a log's lines without the time that steps took, and how many there are. */
static uint64_t log_hash(uint32_t *lines) {
    char path[128];
    FileMap m;
    uint64_t hash = 0;
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    *lines = 0;
    if (!CHECK(file_map(path, &m, why) == GRAPHC_OK)) return 0;
    for (const char *at = (const char *)m.data, *end = at + m.size; at < end; ++*lines) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        JsonRead r;
        JsonSpan key;
        jr_init(&r, at, (size_t)(stop - at));
        for (jr_object(&r); jr_key(&r, &key);) {
            jr_kind(&r);
            const char *value = r.at;
            jr_skip(&r);
            if (!jr_is(key, "tokens_per_s")) hash = hash_bytes(value, (size_t)(r.at - value), hash);
        }
        CHECK(jr_end(&r));
        at = stop + 1;
    }
    file_unmap(&m);
    return hash;
}

static void fresh_folder(void) {
    static int n;
    snprintf(folder, sizeof folder, "%s/%d", root, n++);
}

static void check_whole(Bigrams *b, const LoopOptions *o) {
    LoopEnd end;
    char path[128];
    struct stat st;
    uint32_t lines;
    fresh_folder();
    if (!CHECK(run(b, o, &end) == GRAPHC_OK)) fprintf(stderr, "%s\n", why);
    CHECK(end.step == STEPS && !end.early && !end.stopped && end.loss == end.best_loss);
    CHECK(end.loss > 1 && end.loss < LEARNT); /* 4.85 where nothing is learnt */
    printf("held-out loss %.3f\n", end.loss);
    (void)log_hash(&lines);
    CHECK_EQ_I(lines, STEPS + STEPS / 10 + 1);
    snprintf(path, sizeof path, "%s/log.html", folder);
    CHECK(stat(path, &st) == 0 && st.st_size > 4000);
    CHECK(run(b, o, &end) == GRAPHC_USAGE);
    CHECK(strstr(why, "has a run already"));
    LoopOptions other = *o;
    const SafePair changed[] = {{"lr", "3"}, {"batch", "4"}};
    other.options = changed;
    other.resume = true;
    CHECK(run(b, &other, &end) == GRAPHC_MISMATCH);
    CHECK_STR(why, "lr was 2, is 3");
    other.options = said; /* nothing is left to do */
    CHECK(run(b, &other, &end) == GRAPHC_OK && end.step == STEPS);
}

/* Killed again and again, at other points every time; the last one goes through. */
static uint32_t run_killed(Bigrams *b, const LoopOptions *o, uint64_t seed) {
    for (uint32_t kills = 0;; kills++) {
        LoopEnd end;
        fflush(NULL);
        pid_t child = fork();
        int status;
        if (child == 0) {
            b->kill_at = (long)random_below(&seed, 40);
            _exit(run(b, o, &end) == GRAPHC_OK ? 0 : 1);
        }
        CHECK(waitpid(child, &status, 0) == child);
        seed++;
        if (!WIFSIGNALED(status)) {
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            return kills;
        }
    }
}

static void check_kills(Bigrams *b, const LoopOptions *o) {
    LoopEnd end, again;
    uint32_t lines, lines_again, kills = 0;
    fresh_folder();
    CHECK(run(b, o, &end) == GRAPHC_OK);
    uint64_t log = log_hash(&lines), state = hash_bytes(b->w, sizeof b->w, 0);
    LoopOptions resume = *o;
    resume.resume = true;
    for (uint64_t seed = 1; kills < 50; seed += 100) {
        fresh_folder();
        kills += run_killed(b, &resume, seed);
        b->kill_at = -1;
        CHECK(run(b, &resume, &again) == GRAPHC_OK); /* loads what the last one left */
        CHECK(log_hash(&lines_again) == log && lines_again == lines);
        CHECK(hash_bytes(b->w, sizeof b->w, 0) == state && again.loss == end.loss);
    }
    printf("killed %u times, same losses and weights\n", kills);
}

static void check_ends(Bigrams *b, const LoopOptions *o) {
    LoopOptions p = *o;
    LoopEnd end;
    volatile sig_atomic_t stop = 1;
    fresh_folder();
    b->worse = true;
    p.patience = 2;
    CHECK(run(b, &p, &end) == GRAPHC_OK && end.early && end.step == 20);
    b->worse = false;
    fresh_folder();
    p.stop = &stop;
    CHECK(run(b, &p, &end) == GRAPHC_OK && end.stopped && end.step == 1);
    p.resume = true;
    p.stop = NULL;
    CHECK(run(b, &p, &end) == GRAPHC_OK && !end.stopped && end.step == STEPS);
    b->bad_step = 12;
    fresh_folder();
    p = *o;
    CHECK(run(b, &p, &end) == GRAPHC_RUNTIME && end.step == 12);
    CHECK(strncmp(why, "step 12: the loss is ", 21) == 0);
    fresh_folder();
    p.skip = 1;
    CHECK(run(b, &p, &end) == GRAPHC_OK && end.step == STEPS && end.loss < LEARNT);
    b->bad_step = 0;
    p.batch = 0;
    CHECK(run(b, &p, &end) == GRAPHC_USAGE);
    p = *o;
    p.folder = "/nowhere/x";
    CHECK(run(b, &p, &end) == GRAPHC_IO);
}

TEST_MAIN {
    static Bigrams b = {.kill_at = -1};
    const TokenOptions as = {.vocabulary = V, .end = -1};
    Tokens t;
    TokenSplit s;
    Pack train, held;
    if (!CHECK(mkdtemp(root))) return;
    tokens_init(&t);
    CHECK(tokens_add(&t, "LICENSE", &as, e) == GRAPHC_OK); /* of the project: the working folder */
    CHECK(tokens_split(&t, 0.1, 1, &s, e) == GRAPHC_OK);
    CHECK(pack_build(&t, s.train, s.ntrain, LENGTH, PACK_filled, &train, e) == GRAPHC_OK);
    CHECK(pack_build(&t, s.held, s.nheld, LENGTH, PACK_filled, &held, e) == GRAPHC_OK);
    b.train = &train;
    b.held = &held;
    LoopOptions o = options(&train);
    check_whole(&b, &o);
    check_kills(&b, &o);
    check_ends(&b, &o);
    pack_free(&train);
    pack_free(&held);
    token_split_free(&s);
    tokens_free(&t);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    CHECK(system(command) == 0);
}
