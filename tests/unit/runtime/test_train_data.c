/* Orders that go on where they stopped, batches with rows of padding, arrays of other models, and
 * rates; files and packing are compared with Python in tests/train/data.py. */
#include "runtime/train/data/arrays.h"
#include "runtime/train/data/order.h"
#include "runtime/train/data/pack.h"
#include "runtime/train/schedule.h"
#include "tests/unit/test.h"
#include <unistd.h>

static char folder[] = "/tmp/graphc_train_data_XXXXXX";
static char why[512];
static const ErrorText e = {why, sizeof why};

static const char *write_file(const char *name, const void *bytes, size_t n) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK(file_write(path, bytes, n, why) == GRAPHC_OK);
    return path;
}

static void check_order(void) {
    enum { N = 37, COUNT = 150 };
    uint64_t all[COUNT], rest[COUNT];
    Order o, p;
    CHECK(order_init(&o, N, 3, true, e) == GRAPHC_OK && order_init(&p, N, 3, true, e) == GRAPHC_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t epoch = o.epoch, position = o.position;
        CHECK_EQ_I(epoch, i / N);
        CHECK_EQ_I(position, i % N);
        order_take(&o, &all[i], 1);
        if (i % 10) continue;
        CHECK(order_seek(&p, epoch, position, e) == GRAPHC_OK);
        order_take(&p, rest, 5);
        CHECK_EQ_I(rest[0], all[i]);
    }
    CHECK(order_seek(&p, 1, 20, e) == GRAPHC_OK);
    order_take(&p, rest, COUNT - N - 20);
    CHECK(memcmp(rest, all + N + 20, (COUNT - N - 20) * sizeof *rest) == 0);
    CHECK(order_seek(&p, 0, N, e) == GRAPHC_INVALID);
    CHECK_STR(why, "position 37 in data of 37 rows");
    order_free(&p);
    CHECK(order_init(&p, 3, 3, false, e) == GRAPHC_OK);
    order_take(&p, rest, 5);
    CHECK(memcmp(rest, (const uint64_t[]){0, 1, 2, 0, 1}, 5 * sizeof *rest) == 0);
    order_free(&p);
    order_free(&o);
    CHECK(order_init(&o, 0, 3, true, e) == GRAPHC_USAGE);
}

static void check_batch(void) {
    const TokenOptions as = {.vocabulary = 256, .end = -1};
    const uint64_t rows[] = {0, PACK_NO_ROW};
    int64_t ids[10], labels[10], positions[10], documents[10], mask[10];
    Batch b = {ids, labels, positions, documents, mask, 9, 9};
    Tokens t;
    TokenSplit s;
    Pack p;
    tokens_init(&t);
    CHECK(tokens_add(&t, write_file("a", "abc", 3), &as, e) == GRAPHC_OK);
    CHECK(tokens_add(&t, write_file("b", "xy", 2), &as, e) == GRAPHC_OK);
    CHECK(tokens_add(&t, write_file("c", "q", 1), &as, e) == GRAPHC_OK);
    CHECK(tokens_add(&t, write_file("d", "", 0), &as, e) == GRAPHC_INVALID);
    CHECK_EQ_I(t.ntokens, 6);
    CHECK_EQ_I(t.ndocuments, 3);
    CHECK(tokens_split(&t, 0, 1, &s, e) == GRAPHC_OK && s.ntrain == 3 && s.nheld == 0);
    CHECK(pack_build(&t, s.train, s.ntrain, 5, PACK_filled, &p, e) == GRAPHC_OK);
    CHECK(p.nsequences == 1 && p.places == 3 && p.supervised == 3 && p.idle == 0);
    pack_batch(&p, rows, 2, 7, &b);
    CHECK(memcmp(ids, (const int64_t[]){'a', 'b', 'x', 7, 7, 7, 7, 7, 7, 7}, sizeof ids) == 0);
    CHECK(memcmp(labels, (const int64_t[]){'b', 'c', 'y', -100, -100, -100, -100, -100, -100, -100},
                 sizeof labels) == 0);
    CHECK(memcmp(positions, (const int64_t[]){0, 1, 0, 0, 1, 0, 1, 2, 3, 4}, sizeof ids) == 0);
    CHECK(memcmp(documents, (const int64_t[]){1, 1, 2, 0, 0, 0, 0, 0, 0, 0}, sizeof ids) == 0);
    CHECK(memcmp(mask, (const int64_t[]){1, 1, 1, 0, 0, 0, 0, 0, 0, 0}, sizeof ids) == 0);
    CHECK(b.supervised == 3 && b.places == 3);
    pack_batch(&p, rows, 1, 7, &(Batch){.labels = labels}); /* what is not wanted is not written */
    CHECK(tokens_split(&t, 1, 1, &(TokenSplit){0}, e) == GRAPHC_USAGE);
    CHECK_STR(why, "a held-out fraction of 1; it is at least 0 and below 1");
    pack_free(&p);
    token_split_free(&s);
    tokens_free(&t);
}

#define NPY(shape, type)                                                                           \
    "\x93NUMPY\x01\x00\x46\x00{'descr': '" type "', 'fortran_order': False, 'shape': " shape ", }"

static const char *write_npy(const char *name, const char *header, const void *data, size_t n) {
    char bytes[512];
    memset(bytes, ' ', 80);
    memcpy(bytes, header, strlen(header + 10) + 10);
    memcpy(bytes + 80, data, n);
    return write_file(name, bytes, 80 + n);
}

static void check_arrays(void) {
    const float x[] = {0, 1, 2, 3, 4, 5}, nan[] = {0, 1, 2, NAN, 4, INFINITY};
    const int64_t y[] = {7, 8, 9};
    float got[4];
    Arrays a;
    arrays_init(&a);
    CHECK(arrays_add(&a, "x", write_npy("x", NPY("(3, 2)", "<f4"), x, sizeof x), e) == GRAPHC_OK);
    CHECK(arrays_add(&a, "y", write_npy("y", NPY("(3,)", "<i8"), y, sizeof y), e) == GRAPHC_OK);
    CHECK(a.rows == 3 && a.n == 2 && !arrays_find(&a, "z"));
    array_rows(arrays_find(&a, "x"), (const uint64_t[]){2, 0}, 2, got);
    CHECK(memcmp(got, (const float[]){4, 5, 0, 1}, sizeof got) == 0);
    CHECK(arrays_add(&a, "x", "unread", e) == GRAPHC_USAGE);
    CHECK(arrays_add(&a, "n", write_npy("n", NPY("(3, 2)", "<f4"), nan, sizeof nan), e) ==
          GRAPHC_INVALID);
    CHECK_STR(why, "row 1, element 1 is NaN");
    CHECK(arrays_add(&a, "s", write_npy("s", NPY("(2,)", "<i8"), y, 16), e) == GRAPHC_INVALID);
    CHECK_STR(why, "has 2 rows, \"x\" has 3");
    CHECK(arrays_add(&a, "s", write_npy("s", NPY("()", "<i8"), y, 8), e) == GRAPHC_INVALID);
    CHECK_STR(why, "is a scalar; data has rows along a first axis, in C order");
    CHECK(arrays_add(&a, "s", write_npy("s", NPY("(0, 2)", "<i8"), y, 0), e) == GRAPHC_INVALID);
    CHECK_STR(why, "has no row; data has rows along a first axis, in C order");
    CHECK(arrays_add(&a, "s", write_npy("s", NPY("(3,)", "<c8"), y, 24), e) == GRAPHC_UNSUPPORTED);
    CHECK(arrays_add(&a, "s", "/nowhere", e) == GRAPHC_IO);
    CHECK_EQ_I(a.n, 2);
    arrays_free(&a);
}

static void check_schedule(void) {
    ScheduleKind k;
    CHECK(schedule_from_name("cosine", &k) && k == SCHEDULE_cosine && !schedule_from_name("", &k));
    CHECK_STR(schedule_name(SCHEDULE_wsd), "wsd");
    CHECK_EQ_I(schedule_steps(100, 1, 8, 2), 7);
    CHECK_EQ_I(schedule_steps(100, 2, 8, 1), 25);
    CHECK_EQ_I(schedule_steps(100, 0.5, 8, 1), 7);
    CHECK_EQ_I(schedule_steps(1, 1, 8, 4), 1);
    CHECK(schedule_steps(100, 1e300, 8, 1) == UINT64_MAX && schedule_part(1e30, 9) == UINT64_MAX);
    CHECK_EQ_I(schedule_part(0.03, 100), 3);
    CHECK_EQ_I(schedule_part(0.031, 100), 4);
    CHECK_EQ_I(schedule_part(50, 100), 50);
    CHECK_EQ_I(schedule_part(0, 100), 0);
    const RateSchedule s = {SCHEDULE_linear, (double)NAN, 0, 0, 0, 10};
    CHECK(schedule_check(&s, e) == GRAPHC_USAGE);
}

TEST_MAIN {
    if (!CHECK(mkdtemp(folder))) return;
    check_order();
    check_batch();
    check_arrays();
    check_schedule();
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}
