/* Every part of runtime/train with each of its allocations failing in turn: a status and a message,
 * nothing left allocated, no file half written; and once none fails, success. */
#include "runtime/train/adapter/adapter.h"
#include "runtime/train/checkpoint.h"
#include "runtime/train/data/arrays.h"
#include "runtime/train/data/order.h"
#include "runtime/train/data/pack.h"
#include "runtime/train/log.h"
#include "tests/unit/allocations.h"
#include "tests/unit/test.h"
#include <sys/stat.h>
#include <unistd.h>

#ifndef COUNTS_ALLOCATIONS
TEST_MAIN {
    TEST_SKIP("the sanitizers have allocators of their own");
}
#else

static char folder[] = "/tmp/graphc_train_no_memory_XXXXXX", why[1024];
static const ErrorText e = {why, sizeof why};

static const char *path_of(const char *name) {
    static char path[4][128];
    static int k;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/%s", folder, name);
    return path[k];
}

static void put(const char *name, const void *bytes, size_t n) {
    char reason[256];
    CHECK(file_write(path_of(name), bytes, n, reason) == GRAPHC_OK);
}

/* --- what is tried ---------------------------------------------------------------------------- */

static const float values[8] = {1, 2, 3};
#define T(n, d0, d1)                                                                               \
    { .name = (n), .dtype = DT_f32, .rank = 2, .dim = (const int64_t[]){d0, d1}, .data = values }
static const SafeTensor sample[] = {T("a", 2, 4), T("b", 4, 2)};
static const SafePair pairs[] = {{"lr", "1"}};

static graphc_status write_safetensors(void) {
    return safetensors_write(path_of("x"), sample, 2, pairs, 1, true, e);
}

static graphc_status read_safetensors(void) {
    Safetensors s;
    GC_TRY(safetensors_open(path_of("x"), &s, e));
    graphc_status st = safetensors_check(&s, true, e);
    safetensors_close(&s);
    return st;
}

static graphc_status use_tokens(Tokens *t) {
    const TokenOptions o = {.vocabulary = 256, .end = 'b'};
    TokenSplit s;
    Pack p;
    Order order;
    for (const char *const *name = (const char *const[]){"t.txt", "t.jsonl", "t.bin", NULL}; *name;
         name++)
        GC_TRY(tokens_add(t, path_of(*name), &o, e));
    GC_TRY(tokens_split(t, 0.2, 1, &s, e));
    graphc_status st = pack_build(t, s.train, s.ntrain, 3, PACK_filled, &p, e);
    token_split_free(&s);
    GC_TRY(st);
    st = order_init(&order, p.nsequences, 1, true, e);
    order_free(&order);
    pack_free(&p);
    return st;
}

static graphc_status read_tokens(void) {
    Tokens t;
    tokens_init(&t);
    graphc_status st = use_tokens(&t);
    tokens_free(&t);
    return st;
}

static graphc_status read_arrays(void) {
    Arrays a;
    arrays_init(&a);
    graphc_status st = arrays_add(&a, "x", path_of("x.npy"), e);
    if (st == GRAPHC_OK) st = arrays_add(&a, "y", path_of("x.npy"), e);
    arrays_free(&a);
    return st;
}

static graphc_status write_adapter(void) {
    const char *targets[] = {"q"};
    AdapterPattern rank = {"l.0.q", 2}; /* no expression: glibc leaks when it fails in one */
    const AdapterConfig c = {
        .r = 4, .alpha = 4, .targets = {targets, 1}, .rank_pattern = {&rank, 1}};
    const AdapterModule m = {.path = "l.0.q", .a = T("", 2, 4), .b = T("", 4, 2)};
    return adapter_write(path_of("adapter"), &c, &m, 1, NULL, 0, e);
}

static graphc_status read_adapter(void) {
    Adapter a;
    GC_TRY(adapter_read(path_of("adapter"), &a, e));
    adapter_free(&a);
    return GRAPHC_OK;
}

static graphc_status write_checkpoint(void) {
    CheckpointWriter w;
    const CheckpointInfo info = {.step = 3, .options = pairs, .noptions = 1};
    GC_TRY(checkpoint_begin(&w, path_of("run"), e));
    char *path = checkpoint_path(&w, "state");
    graphc_status st = path ? safetensors_write(path, sample, 2, NULL, 0, true, e)
                            : error_set(e, GRAPHC_NO_MEMORY, "no path");
    free(path);
    if (st == GRAPHC_OK) st = checkpoint_commit(&w, &info, true, e);
    checkpoint_abandon(&w);
    return st == GRAPHC_OK ? checkpoint_prune(path_of("run"), 1, e) : st;
}

static graphc_status read_checkpoint(void) {
    Checkpoint c;
    GC_TRY(checkpoint_open(path_of("run"), "latest", &c, e));
    checkpoint_close(&c);
    return GRAPHC_OK;
}

static graphc_status write_log(void) {
    Log l;
    graphc_status st = log_open(&l, path_of("log"), NULL, NULL, 0, 100, e);
    for (uint64_t i = 1; st == GRAPHC_OK && i <= 50; i++)
        st = log_step(&l, &(LogStep){i, 1.0 / (double)i, 1, 1, i, 1, 1, 0, false}, e);
    log_close(&l);
    return st == GRAPHC_OK ? log_html(path_of("log"), path_of("page"), "x", e) : st;
}

/* --------------------------------------------------------------------------------------------- */

static void sweep(const char *name, graphc_status (*fn)(void)) {
    long k = 0, before = live;
    graphc_status st;
    do {
        why[0] = 0;
        const long first = allocations;
        fail_at = k++;
        st = fn();
        const long used = allocations - first;
        fail_at = -1;
        if (!CHECK(st == GRAPHC_OK || why[0]) || !CHECK(live == before))
            fprintf(stderr, "%s, allocation %ld: status %d, \"%s\", %ld left\n", name, k - 1,
                    (int)st, why, live - before);
        before = live;
        if (st == GRAPHC_OK && used < k) break;
    } while (k < 5000);
    CHECK(st == GRAPHC_OK && k > 2);
    printf("%s: %ld allocations\n", name, k - 1);
}

static void make_files(void) {
    static const char line[] = "{\"input_ids\": [1, 2, 3, 4], \"labels\": [1, -100, 3, 4]}\n";
    char lines[2048] = "", npy[160];
    for (int i = 0; i < 20; i++) strcat(lines, line);
    put("t.txt", "abcabcabcabc", 12);
    put("t.jsonl", lines, strlen(lines));
    put("t.bin", "a\0b\0c\0d\0b\0c\0", 12);
    memset(npy, ' ', 80);
    memcpy(npy, "\x93NUMPY\x01\x00\x46\x00", 10);
    memcpy(npy + 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }", 59);
    memcpy(npy + 80, values, sizeof values);
    put("x.npy", npy, 80 + sizeof values);
}

TEST_MAIN {
    setvbuf(stdout, NULL, _IONBF, 0);
    if (!CHECK(mkdtemp(folder))) return;
    make_files();
    sweep("writing safetensors", write_safetensors);
    sweep("reading safetensors", read_safetensors);
    sweep("tokens", read_tokens);
    sweep("arrays", read_arrays);
    sweep("writing an adapter", write_adapter);
    sweep("reading an adapter", read_adapter);
    sweep("writing a checkpoint", write_checkpoint);
    sweep("reading a checkpoint", read_checkpoint);
    sweep("a log", write_log);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}
#endif
