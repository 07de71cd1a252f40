/* Containers, element types and file rules of runtime/base. */
#include "runtime/base/diag.h"
#include "runtime/base/dtype_rows.h"
#include "runtime/base/file.h"
#include "runtime/base/map.h"
#include "runtime/base/strbuf.h"
#include "tests/unit/test.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static void check_maps(Arena *a) {
    MapU64 *m = map_create(a);
    MapStr *ms = mapstr_create(a);
    uint32_t v;
    for (uint32_t i = 0; i < 1000; i++) {
        map_put(m, (uint64_t)i << 32, i);
        mapstr_put(ms, arena_printf(a, "k%u", i), i);
    }
    mapstr_put(ms, "k7", 70);
    for (uint32_t i = 0; i < 1000; i++) {
        CHECK(map_get(m, (uint64_t)i << 32, &v) && v == i);
    }
    CHECK(!map_get(m, 1, &v) && !mapstr_get(ms, "k1000", &v));
    CHECK(mapstr_get(ms, "k7", &v) && v == 70);
}

static double round_trip(DType t, double v) {
    uint64_t cell = 0;
    dtype_store_f64(t, &cell, 0, v);
    return dtype_load_f64(t, &cell, 0);
}

static void check_dtypes(void) {
    CHECK(round_trip(DT_f16, 65519) == 65504 && isinf(round_trip(DT_f16, 65520)));
    CHECK(round_trip(DT_f16, 0x1p-25) == 0 && round_trip(DT_f16, 0x1.8p-25) == 0x1p-24);
    CHECK(round_trip(DT_bf16, 1.00390625) == 1.0 && round_trip(DT_bf16, 1.01171875) == 1.015625);
    CHECK(isnan(round_trip(DT_f8e4m3fn, 1000)) && round_trip(DT_f8e4m3fn, 448) == 448);
    CHECK(round_trip(DT_f4e2m1, 100) == 6 && round_trip(DT_f4e2m1, 2.5) == 2);
    CHECK(round_trip(DT_f8e8m0, 3) == 4 && round_trip(DT_f8e8m0, 2.9) == 2);
    CHECK(round_trip(DT_i4, 9) == -7 && round_trip(DT_u2, 6) == 2 && round_trip(DT_bool, 0.5) == 1);
    CHECK(round_trip(DT_u64, 0x1p63) == 0x1p63 && round_trip(DT_i8, 200) == -56);
    int64_t lo;
    uint64_t hi;
    dtype_int_range(DT_i64, &lo, &hi);
    CHECK(lo == INT64_MIN && hi == INT64_MAX);
}

/* Rows are what elements are: every code, and numbers around every boundary, at two strides. */
static void check_row(DType t, const double *v, size_t n) {
    uint16_t one[192], row[192];
    double back[96];
    for (size_t i = 0; i < n; i++) dtype_store_f64(t, one, i, v[i]);
    for (int64_t stride = 1; stride < 3; stride++) {
        dtype_store_row(t, row, 1, stride, (int64_t)n, v);
        dtype_load_row(t, row, 1, stride, (int64_t)n, back);
        for (size_t i = 0; i < n; i++) {
            double want = dtype_load_f64(t, one, i);
            CHECK(want == back[i] ? !signbit(want) == !signbit(back[i])
                                  : isnan(want) && isnan(back[i]));
            CHECK(one[i] == row[1 + i * (size_t)stride]);
        }
    }
}

static void check_halves(DType t) {
    double v[95];
    for (uint32_t code = 0; code < 0x10000; code += 19)
        for (uint32_t i = 0; i < 19; i++) {
            uint16_t c = (uint16_t)(code + i), above = (uint16_t)(c + 1);
            double x = dtype_load_f64(t, &c, 0), y = dtype_load_f64(t, &above, 0);
            double half = x + (y - x) / 2; /* a tie, and its neighbours */
            v[i * 5] = x;
            v[i * 5 + 1] = half;
            v[i * 5 + 2] = nextafter(half, INFINITY);
            v[i * 5 + 3] = nextafter(half, -INFINITY);
            v[i * 5 + 4] = x * 0x1p40;
            if (i == 18) check_row(t, v, 95);
        }
}

static void check_ints(DType t) {
    static const int64_t v[] = {0, 1, -1, 2, 127, 128, 255, 256, -129, 40000, INT64_MIN, INT64_MAX};
    enum { N = sizeof v / sizeof *v };
    int64_t one[N] = {0}, row[2 * N + 1] = {0}, back[N];
    for (size_t i = 0; i < N; i++) dtype_store_i64(t, one, i, v[i]);
    for (int64_t stride = 1; stride < 3; stride++) {
        dtype_store_ints(t, row, 1, stride, N, v);
        dtype_load_ints(t, row, 1, stride, N, back);
        for (size_t i = 0; i < N; i++) CHECK_EQ_I(back[i], dtype_load_i64(t, one, i));
    }
}

static void check_rows(void) {
    check_halves(DT_f16);
    check_halves(DT_bf16);
    for (int t = 1; t < DT_COUNT; t++)
        if (!dtype_is_float((DType)t)) check_ints((DType)t);
}

static void check_diag(Arena *a) {
    DiagSink *s = diag_create(a, "m.onnx");
    CHECK_EQ_I(diag(s, D_SHAPE, "node 1 \"x\" Conv", "bad\x1b[0m"), GRAPHC_INVALID);
    diag_hint(s, "try %d", 3);
    CHECK_STR(diag_render(s, diag_at(s, 0), a, false),
              "graphc: error[G0412]: m.onnx: node 1 \"x\" Conv: bad\\x1b[0m\n  hint: try 3");
    for (int i = 0; i < 100; i++) (void)!diag(s, D_WIRE, "", "w%d", i);
    CHECK(diag_errors(s) == 101 && diag_count(s) == 65 && diag_status(s) == GRAPHC_INVALID);
    CHECK_STR(diag_render(s, diag_at(s, 64), a, false),
              "graphc: note[G0001]: m.onnx: 37 more errors");
}

static void check_files(Arena *a) {
    char dir[] = "/tmp/graphc_baseXXXXXX", why[256];
    if (!CHECK(mkdtemp(dir) != NULL)) return;
    const char *base = arena_printf(a, "%s/model.onnx", dir);
    const char *sub = arena_printf(a, "%s/sub", dir);
    const char *link = arena_printf(a, "%s/link", dir);
    const FileLinks none = {0};
    FileMap m;
    CHECK(file_write(base, "abc", 3, why) == GRAPHC_OK);
    CHECK(file_map(base, &m, why) == GRAPHC_OK && m.size == 3 && !memcmp(m.data, "abc", 3));
    file_unmap(&m);
    const char *out = arena_printf(a, "%s/out", dir), *hard = arena_printf(a, "%s/hard", dir);
    CHECK(mkdir(sub, 0700) == 0 && symlink("model.onnx", link) == 0 &&
          linkat(AT_FDCWD, base, AT_FDCWD, hard, 0) == 0);
    CHECK(symlink("/etc/passwd", out) == 0);
    CHECK(file_write(arena_printf(a, "%s/w.bin", sub), "", 0, why) == GRAPHC_OK);
    CHECK(file_map_beneath(base, "sub/w.bin", none, &m, why) == GRAPHC_OK && m.size == 0 && m.data);
    static const char *const outside[] = {"/etc/passwd", "../x", "sub/../model.onnx",
                                          "out",         "a\\b", ""};
    static const char *const inside[] = {"link", "hard"}; /* what they name lies beneath */
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        CHECK(file_map_beneath(base, inside[i], none, &m, why) == GRAPHC_OK && m.size == 3);
        file_unmap(&m);
    }
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        CHECK(file_map_beneath(base, outside[i], none, &m, why) == GRAPHC_INVALID);
    CHECK(file_map_beneath(base, "sub", none, &m, why) == GRAPHC_IO);
    CHECK(file_map_beneath(base, "none", none, &m, why) == GRAPHC_IO);
    CHECK(folder_make(sub, why) == GRAPHC_OK);
    CHECK(folder_make(base, why) == GRAPHC_IO && !strcmp(why, "is not a folder"));
    CHECK(folder_make(arena_printf(a, "%s/no/such", dir), why) == GRAPHC_IO);
    int fd = -1;
    char read[4] = "";
    CHECK(file_open_beneath(base, "model.onnx", none, &m, &fd, why) == GRAPHC_OK && m.size == 3);
    CHECK(file_read(fd, 1, read, 2) && !strcmp(read, "bc") && !file_read(fd, 1, read, 3));
    CHECK(close(fd) == 0 && !file_read(fd, 0, read, 1));
    file_unmap(&m);
    fd = -1;
    CHECK(file_open_beneath(base, "none", none, &m, &fd, why) == GRAPHC_IO && fd == -1);
    (void)!unlink(arena_printf(a, "%s/w.bin", sub));
    CHECK(unlink(out) == 0 && unlink(hard) == 0);
    CHECK(rmdir(sub) == 0 && unlink(link) == 0 && unlink(base) == 0 && rmdir(dir) == 0);
}

/* As caches of downloads lie: snapshots/model.onnx -> ../blobs/m, snapshots/w -> ../blobs/w, and a
 * link to a third folder. What counts is where the file lies that is opened. */
static void check_links(Arena *a) {
    char dir[] = "/tmp/graphc_linksXXXXXX", why[256] = "";
    if (!CHECK(mkdtemp(dir) != NULL)) return;
    static const char *const folders[] = {"snapshots", "blobs", "else"};
    static const char *const files[] = {"blobs/m", "blobs/w", "else/v", "snapshots/in"};
    static const char *const links[][2] = {{"../blobs/m", "snapshots/model.onnx"},
                                           {"../blobs/w", "snapshots/w"},
                                           {"../else/v", "snapshots/v"},
                                           {"../blobs", "snapshots/sub"}};
    for (size_t i = 0; i < 3; i++)
        CHECK(mkdir(arena_printf(a, "%s/%s", dir, folders[i]), 0700) == 0);
    for (size_t i = 0; i < 4; i++)
        CHECK(file_write(arena_printf(a, "%s/%s", dir, files[i]), "abc", 3, why) == GRAPHC_OK);
    for (size_t i = 0; i < 4; i++)
        CHECK(symlink(links[i][0], arena_printf(a, "%s/%s", dir, links[i][1])) == 0);
    CHECK(symlink(arena_printf(a, "%s/snapshots/in", dir),
                  arena_printf(a, "%s/snapshots/abs", dir)) == 0);
    const char *base = arena_printf(a, "%s/snapshots/model.onnx", dir);
    const FileLinks none = {0}, cache = {.of_base = true}, any = {.anywhere = true};
    const FileLinks rooted = {.root = arena_printf(a, "%s/else", dir)},
                    wrong = {.root = "/tmp/nowhere"};
    const struct {
        const char *name;
        FileLinks links;
        graphc_status want;
    } cases[] = {{"abs", none, GRAPHC_OK},
                 {"w", none, GRAPHC_INVALID},
                 {"w", cache, GRAPHC_OK},
                 {"sub/w", none, GRAPHC_INVALID},
                 {"sub/w", cache, GRAPHC_OK},
                 {"v", cache, GRAPHC_INVALID},
                 {"v", rooted, GRAPHC_OK},
                 {"w", rooted, GRAPHC_INVALID},
                 {"v", wrong, GRAPHC_INVALID},
                 {"v", any, GRAPHC_OK},
                 {"../else/v", any, GRAPHC_INVALID},
                 {"sub", any, GRAPHC_IO}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FileMap m;
        CHECK_EQ_I(file_map_beneath(base, cases[i].name, cases[i].links, &m, why), cases[i].want);
        if (cases[i].want == GRAPHC_OK) CHECK(m.size == 3);
        file_unmap(&m);
    }
    CHECK(file_map_beneath(base, "v", none, &(FileMap){0}, why) == GRAPHC_INVALID &&
          strstr(why, "/else/v"));
    for (size_t i = 0; i < 4; i++) CHECK(unlink(arena_printf(a, "%s/%s", dir, links[i][1])) == 0);
    CHECK(unlink(arena_printf(a, "%s/snapshots/abs", dir)) == 0);
    for (size_t i = 0; i < 4; i++) CHECK(unlink(arena_printf(a, "%s/%s", dir, files[i])) == 0);
    for (size_t i = 0; i < 3; i++) CHECK(rmdir(arena_printf(a, "%s/%s", dir, folders[i])) == 0);
    CHECK(rmdir(dir) == 0);
}

/* A stored element takes the whole bytes that its bits need. */
static void check_sizes(void) {
    for (DType t = DT_none + 1; t < DT_COUNT; t++)
        CHECK_EQ_I(dtype_bytes(t), (dtype_info[t].bits + 7) / 8);
}

TEST_MAIN {
    check_sizes();
    Arena *a = arena_create();
    check_maps(a);
    check_dtypes();
    check_rows();
    check_diag(a);
    check_files(a);
    check_links(a);
    arena_destroy(a);
}
