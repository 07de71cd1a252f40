/* Parts of runtime/train as a program, for scripts that compare them with other tools:
 *
 *     train_tool safetensors IN OUT    copies through graphc's reader and writer, with a checksum
 *     train_tool tokens VOCABULARY END LENGTH single|filled HELD SEED FILE
 *         prints how many documents there are, and as JSON lines one for every sequence to learn
 * from and one for every held-out one: its ids, labels, positions and documents train_tool order N
 * SEED COUNT    the first COUNT rows train_tool schedule NAME LR MIN WARMUP DECAY STEPS    a rate a
 * line
 */
#include "runtime/train/json_write.h"
#include "runtime/train/log.h"
#include "runtime/train/adapter/adapter.h"
#include "runtime/train/data/order.h"
#include "runtime/train/data/pack.h"
#include "runtime/train/safetensors.h"
#include "runtime/train/schedule.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char why[512];
static const ErrorText e = {why, sizeof why};

static graphc_status copy_safetensors(char **arg) {
    Safetensors s;
    GC_TRY(safetensors_open(arg[0], &s, e));
    graphc_status st = safetensors_check(&s, false, e);
    if (st == GRAPHC_OK)
        st = safetensors_write(arg[1], s.tensors, s.ntensors, s.pairs, s.npairs, !s.hash_at, e);
    safetensors_close(&s);
    return st;
}

static void print_array(JsonWrite *w, const char *key, const int64_t *v, uint32_t n) {
    jw_array(w, key);
    for (uint32_t i = 0; i < n; i++) jw_i64(w, NULL, v[i]);
    jw_end(w);
}

static graphc_status print_sequences(const Tokens *t, const TokenSpan *spans, uint64_t n,
                                     uint32_t length, PackMode mode) {
    Pack p;
    graphc_status st = n ? pack_build(t, spans, n, length, mode, &p, e) : GRAPHC_OK;
    if (st != GRAPHC_OK || !n) return st;
    int64_t *room = calloc(5 * (size_t)length, sizeof *room);
    Batch b = {room, room + length, room + 2 * length, room + 3 * length, room + 4 * length, 0, 0};
    for (uint64_t i = 0; room && i < p.nsequences; i++) {
        JsonWrite w = {0};
        pack_batch(&p, &i, 1, 0, &b);
        jw_object(&w, NULL);
        print_array(&w, "ids", b.ids, length);
        print_array(&w, "labels", b.labels, length);
        print_array(&w, "positions", b.positions, length);
        print_array(&w, "documents", b.documents, length);
        print_array(&w, "mask", b.mask, length);
        jw_i64(&w, "supervised", (int64_t)b.supervised);
        jw_i64(&w, "places", (int64_t)b.places);
        jw_end(&w);
        puts(w.text.p);
        text_free(&w.text);
    }
    free(room);
    pack_free(&p);
    return GRAPHC_OK;
}

static graphc_status print_tokens(char **arg) {
    TokenOptions o = {.vocabulary = atoll(arg[0]), .end = atoll(arg[1])};
    uint32_t length = (uint32_t)atoi(arg[2]);
    PackMode mode = strcmp(arg[3], "filled") == 0 ? PACK_filled : PACK_single;
    TokenSplit split = {0};
    Tokens t;
    tokens_init(&t);
    graphc_status st = tokens_add(&t, arg[6], &o, e);
    if (st == GRAPHC_OK) st = tokens_split(&t, atof(arg[4]), strtoull(arg[5], NULL, 10), &split, e);
    if (st == GRAPHC_OK) {
        printf("{\"documents\": %llu}\n", (unsigned long long)t.ndocuments);
        st = print_sequences(&t, split.train, split.ntrain, length, mode);
    }
    if (st == GRAPHC_OK) {
        puts("{\"held\": true}");
        st = print_sequences(&t, split.held, split.nheld, length, mode);
    }
    token_split_free(&split);
    tokens_free(&t);
    return st;
}

static graphc_status print_order(char **arg) {
    Order o;
    uint64_t row;
    GC_TRY(order_init(&o, strtoull(arg[0], NULL, 10), strtoull(arg[1], NULL, 10), true, e));
    for (int i = 0; i < atoi(arg[2]); i++) {
        order_take(&o, &row, 1);
        printf("%llu\n", (unsigned long long)row);
    }
    order_free(&o);
    return GRAPHC_OK;
}

static graphc_status print_schedule(char **arg) {
    RateSchedule s = {.lr = atof(arg[1]),
                      .min = atof(arg[2]),
                      .warmup = strtoull(arg[3], NULL, 10),
                      .decay = strtoull(arg[4], NULL, 10),
                      .steps = strtoull(arg[5], NULL, 10)};
    if (!schedule_from_name(arg[0], &s.kind)) return error_set(e, GRAPHC_USAGE, "unknown schedule");
    GC_TRY(schedule_check(&s, e));
    for (uint64_t i = 0; i < s.steps + 2; i++) printf("%.17g\n", schedule_rate(&s, i));
    return GRAPHC_OK;
}

static graphc_status write_page(char **arg) {
    return log_html(arg[0], arg[1], arg[2], e);
}

static graphc_status copy_adapter(char **arg) {
    static const char *const kinds[] = {"linear", "embedding", "convolution"};
    Adapter a;
    GC_TRY(adapter_read(arg[0], &a, e));
    for (uint32_t i = 0; i < a.nmodules; i++)
        printf("%s %s %lld %.17g\n", a.modules[i].path, kinds[a.modules[i].kind],
               (long long)a.modules[i].a.dim[0], a.modules[i].scale);
    graphc_status st =
        adapter_write(arg[1], &a.config, a.modules, a.nmodules, a.whole, a.nwhole, e);
    adapter_free(&a);
    return st;
}

static const struct {
    const char *name;
    int arguments;
    graphc_status (*run)(char **arg);
} verbs[] = {{"safetensors", 2, copy_safetensors},
             {"tokens", 7, print_tokens},
             {"order", 3, print_order},
             {"page", 3, write_page},
             {"adapter", 2, copy_adapter},
             {"schedule", 6, print_schedule}};

int main(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(argv[1], verbs[i].name) || argc != verbs[i].arguments + 2) continue;
        graphc_status st = verbs[i].run(argv + 2);
        if (st != GRAPHC_OK) fprintf(stderr, "train_tool: %s\n", why);
        return (int)st;
    }
    fprintf(stderr, "train_tool: unknown verb or number of arguments\n");
    return GRAPHC_USAGE;
}
