/* JSON as the runtime reads and writes it, and safetensors files: what is written is read back,
 * what breaks a rule of the format is refused by name, damage is found. */
#include "runtime/base/map.h"
#include "runtime/train/json_read.h"
#include "runtime/train/json_write.h"
#include "runtime/train/safetensors.h"
#include "tests/unit/test.h"
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static void check_hash(void) {
    uint8_t bytes[1000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7);
    for (size_t n = 0; n <= sizeof bytes; n += 123) {
        HashStream *h = hash_stream_create();
        if (!CHECK(h)) return;
        hash_stream_add(h, bytes, n / 3);
        hash_stream_add(h, bytes + n / 3, n - n / 3);
        CHECK(hash_stream_value(h) == hash_bytes(bytes, n, 0));
        hash_stream_destroy(h);
    }
}

/* --- JSON ----------------------------------------------------------------------------------- */

static const char *fault_of(const char *text, size_t n) {
    JsonRead r;
    jr_init(&r, text, n);
    jr_skip(&r);
    jr_end(&r);
    return r.fault ? r.fault : "";
}

static void check_json_faults(void) {
    static const char *const good[] = {"{}",
                                       "[]",
                                       " [1, -2.5e+3, true, false, null, \"a\\u00e9\\n\"] ",
                                       "{\"a\": {\"b\": [[], {}]}, \"c\": 0}",
                                       "\"\xf0\x9f\x98\x80 \\ud83d\\ude00\"",
                                       "-0"};
    static const struct {
        const char *text, *fault;
    } bad[] = {{"", "no value"},
               {"{", "no string"},
               {"[1", "no comma between values"},
               {"[1,]", "no value"},
               {"[1 2]", "no comma between values"},
               {"{\"a\" 1}", "no colon after a key"},
               {"{\"a\": 1,}", "no string"},
               {"{1: 2}", "no string"},
               {"[1}", "no comma between values"},
               {"1 2", "more text after the value"},
               {"01", "more text after the value"},
               {"1.", "no digit of a number"},
               {"-", "no digit of a number"},
               {"1e", "no digit of a number"},
               {"NaN", "no value"},
               {"nul", "not null"},
               {"tru", "neither true nor false"},
               {"\"a", "a string without its end"},
               {"\"\\x\"", "no valid character of a string"},
               {"\"\\u0000\"", "no valid character of a string"},
               {"\"\\ud800\"", "no valid character of a string"},
               {"\"\n\"", "no valid character of a string"},
               {"\"\xff\"", "no valid character of a string"},
               {"\"\xc0\x80\"", "no valid character of a string"},
               {"\"\xed\xa0\x80\"", "no valid character of a string"}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK_STR(fault_of(good[i], strlen(good[i])), "");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STR(fault_of(bad[i].text, strlen(bad[i].text)), bad[i].fault);
    CHECK_STR(fault_of("1\0", 2), "more text after the value");
    char deep[200];
    memset(deep, '[', sizeof deep);
    CHECK_STR(fault_of(deep, sizeof deep), "nested deeper than 64 levels");
    memset(deep, '[', 64);
    memset(deep + 64, ']', 64);
    CHECK_STR(fault_of(deep, 128), "");
}

static void check_json_values(void) {
    static const char text[] =
        "{\"i\": -9223372036854775808, \"f\": 2e-4, \"s\": \"a\\\"\\u00e9\\ud83d\\ude00\","
        "\"\\u0062\": true, \"list\": [[1, 2], [], [3]], \"n\": null}";
    JsonRead r;
    JsonSpan key, s = {0};
    int64_t i = 0, item, sum = 0;
    double f = 0;
    bool b = false;
    jr_init(&r, text, sizeof text - 1);
    for (jr_object(&r); jr_key(&r, &key);) {
        if (jr_is(key, "i"))
            jr_i64(&r, &i);
        else if (jr_is(key, "f"))
            jr_f64(&r, &f);
        else if (jr_is(key, "s"))
            jr_string(&r, &s);
        else if (jr_is(key, "b"))
            jr_bool(&r, &b);
        else if (jr_is(key, "list"))
            for (jr_array(&r); jr_item(&r);)
                for (jr_array(&r); jr_item(&r);) sum = jr_i64(&r, &item) ? sum * 10 + item : -1;
        else
            jr_skip(&r);
    }
    CHECK(jr_end(&r));
    CHECK_EQ_I(i, INT64_MIN);
    CHECK(f == 2e-4 && b);
    CHECK_EQ_I(sum, 123);
    char *text_of_s = jr_decode(s);
    CHECK_STR(text_of_s, "a\"\xc3\xa9\xf0\x9f\x98\x80");
    free(text_of_s);
    jr_init(&r, "9223372036854775808", 19);
    CHECK(!jr_i64(&r, &i));
    CHECK_STR(r.fault, "a number beyond 64 bits");
    jr_init(&r, "1e999", 5);
    CHECK(!jr_f64(&r, &f));
}

static void check_json_write(void) {
    JsonWrite w = {0};
    jw_object(&w, NULL);
    jw_string(&w, "a\n\"\\", "\x01x");
    jw_array(&w, "b");
    jw_i64(&w, NULL, -5);
    jw_f64(&w, NULL, 0.1);
    jw_f64(&w, NULL, 1.0 / 3);
    jw_f64(&w, NULL, (double)INFINITY);
    jw_object(&w, NULL);
    jw_end(&w);
    jw_end(&w);
    jw_bool(&w, "c", false);
    jw_string(&w, "d", NULL);
    jw_end(&w);
    CHECK_STR(w.text.p, "{\"a\\u000a\\\"\\\\\": \"\\u0001x\", \"b\": [-5, 0.1, "
                        "0.3333333333333333, null, {}], \"c\": false, \"d\": null}");
    CHECK_STR(fault_of(w.text.p, w.text.n), "");
    text_free(&w.text);
    w = (JsonWrite){.indent = 2};
    jw_object(&w, NULL);
    jw_array(&w, "a");
    jw_i64(&w, NULL, 1);
    jw_end(&w);
    jw_array(&w, "b");
    jw_end(&w);
    jw_end(&w);
    CHECK_STR(w.text.p, "{\n  \"a\": [\n    1\n  ],\n  \"b\": []\n}");
    text_free(&w.text);
}

/* --- files ---------------------------------------------------------------------------------- */

static char folder[] = "/tmp/graphc_safetensors_XXXXXX";
static char why[512];
static const ErrorText e = {why, sizeof why};

static const char *path_of(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const float f32s[6] = {1, 2, 3, 4, 5, 6};
static const uint8_t u8s[3] = {7, 8, 9};
static const int64_t i64s[1] = {-1};
static const int64_t dims[] = {2, 3, 0};
static const SafeTensor sample[] = {
    {.name = "bytes", .dtype = DT_u8, .rank = 1, .dim = (const int64_t[]){3}, .data = u8s},
    {.name = "w \"1\"", .dtype = DT_f32, .rank = 2, .dim = dims, .data = f32s},
    {.name = "empty", .dtype = DT_bf16, .rank = 3, .dim = dims, .data = NULL},
    {.name = "step", .dtype = DT_i64, .rank = 0, .dim = NULL, .data = i64s}};
enum { NSAMPLE = sizeof sample / sizeof *sample };
static const SafePair pairs[] = {{"format", "pt"}, {"note", "caf\xc3\xa9"}};

static void check_round(bool checksum) {
    Safetensors s;
    if (!CHECK(safetensors_write(path_of("a"), sample, NSAMPLE, pairs, 2, checksum, e) ==
               GRAPHC_OK) ||
        !CHECK(safetensors_open(path_of("a"), &s, e) == GRAPHC_OK)) {
        fprintf(stderr, "%s\n", why);
        return;
    }
    CHECK_EQ_I(s.ntensors, NSAMPLE);
    CHECK_EQ_I(s.header_size % 64, 0);
    for (uint32_t i = 0; i < NSAMPLE; i++) {
        const SafeTensor *t = safetensors_find(&s, sample[i].name);
        if (!CHECK(t)) continue;
        CHECK(t->dtype == sample[i].dtype && t->rank == sample[i].rank);
        CHECK((uintptr_t)t->data % dtype_bytes(t->dtype) == 0);
        for (uint32_t k = 0; k < t->rank; k++) CHECK_EQ_I(t->dim[k], sample[i].dim[k]);
        CHECK(!t->bytes || memcmp(t->data, sample[i].data, t->bytes) == 0);
    }
    CHECK(!safetensors_find(&s, "w"));
    CHECK_STR(safetensors_value(&s, "note"), "caf\xc3\xa9");
    CHECK(!safetensors_value(&s, "other"));
    CHECK(safetensors_check(&s, checksum, e) == GRAPHC_OK);
    if (!checksum) CHECK(safetensors_check(&s, true, e) == GRAPHC_INVALID);
    safetensors_close(&s);
}

/* Each bit of a file with a checksum, changed, and each of its beginnings. */
static void check_damage(void) {
    FileMap m;
    Safetensors s;
    CHECK(safetensors_write(path_of("b"), sample, NSAMPLE, pairs, 2, true, e) == GRAPHC_OK);
    if (!CHECK(file_map(path_of("b"), &m, why) == GRAPHC_OK)) return;
    uint8_t *bytes = malloc(m.size);
    memcpy(bytes, m.data, m.size);
    for (uint64_t bit = 0; bit < 8 * m.size; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        graphc_status st = safetensors_parse(bytes, m.size, &s, e);
        if (st == GRAPHC_OK) {
            st = safetensors_check(&s, true, e);
            safetensors_close(&s);
        }
        CHECK(st == GRAPHC_INVALID || st == GRAPHC_UNSUPPORTED);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (uint64_t n = 0; n < m.size; n++)
        CHECK(safetensors_parse(bytes, n, &s, e) == GRAPHC_INVALID);
    free(bytes);
    file_unmap(&m);
}

static void refused(const char *header, size_t data, graphc_status want, const char *message) {
    static uint8_t bytes[4096];
    uint64_t n = strlen(header);
    Safetensors s;
    memcpy(bytes, &n, 8);
    memcpy(bytes + 8, header, n);
    why[0] = 0;
    graphc_status st = safetensors_parse(bytes, 8 + n + data, &s, e);
    CHECK_EQ_I(st, want);
    CHECK_STR(why, message);
    if (st == GRAPHC_OK) safetensors_close(&s);
}

#define A(type, shape, from, to)                                                                   \
    "\"a\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"
#define B(from, to) "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" from "," to "]}"

static void check_refused(void) {
    refused("{}", 0, GRAPHC_OK, "");
    refused("{" B("4", "8") "," A("F32", "[1]", "0", "4") "}  ", 8, GRAPHC_OK, "");
    refused("{}", 3, GRAPHC_INVALID, "3 bytes after the last tensor");
    refused("[]", 0, GRAPHC_INVALID, "the header does not begin with {");
    refused("{" A("F32", "[1]", "0", "4") "," B("4", "8") "}", 9, GRAPHC_INVALID,
            "1 bytes after the last tensor");
    refused("{" A("F32", "[1]", "0", "4") "," B("2", "6") "}", 6, GRAPHC_INVALID,
            "tensors \"a\" and \"b\" overlap");
    refused("{" A("F32", "[1]", "0", "4") "," B("5", "9") "}", 9, GRAPHC_INVALID,
            "bytes 4 to 5 of the data are of no tensor");
    refused("{" A("F32", "[1]", "0", "4") "," A("F32", "[1]", "4", "8") "}", 8, GRAPHC_INVALID,
            "tensor \"a\" is there twice");
    refused("{" A("F32", "[2]", "0", "4") "}", 4, GRAPHC_INVALID,
            "tensor \"a\": holds 4 bytes, which are not those of its shape");
    refused("{" A("F32", "[1]", "0", "4") "}", 3, GRAPHC_INVALID,
            "tensor \"a\": bytes 0 to 4 are not within the data's 3");
    refused("{" A("F32", "[1]", "4", "0") "}", 4, GRAPHC_INVALID,
            "tensor \"a\": bytes 4 to 0 are not within the data's 4");
    refused("{" A("F4", "[8]", "0", "4") "}", 4, GRAPHC_UNSUPPORTED,
            "tensor \"a\": element type F4 is not supported");
    refused("{" A("F32", "[281474976710656,281474976710656]", "0", "4") "}", 4, GRAPHC_INVALID,
            "tensor \"a\": holds 4 bytes, which are not those of its shape");
    refused("{" A("F32", "[-1]", "0", "4") "}", 4, GRAPHC_INVALID,
            "the header is not valid at byte 39: a dimension that is negative or beyond 2^48");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, GRAPHC_INVALID,
            "the header is not valid at byte 40: a tensor without dtype, shape or data_offsets");
    refused("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
            GRAPHC_INVALID, "the header is not valid at byte 36: a key that is there twice");
    refused("{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", 0, GRAPHC_INVALID,
            "metadata \"a\" is there twice");
    refused("{\"__metadata__\":{\"a\":1}}", 0, GRAPHC_INVALID,
            "the header is not valid at byte 29: no string");
    refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, GRAPHC_INVALID,
            "the header is not valid at byte 42: \"__metadata__\" is there twice");
    Safetensors s;
    uint8_t huge[16] = {0, 0, 0, 0, 1, 0, 0, 0, '{', '}'};
    CHECK(safetensors_parse(huge, sizeof huge, &s, e) == GRAPHC_INVALID);
    CHECK_STR(why, "the header would have 4294967296 bytes; 100 MB are allowed");
}

/* What cannot be written leaves the old file as it is. */
static void check_full(void) {
    static float large[1 << 16];
    const int64_t n = 1 << 16;
    const SafeTensor t = {.name = "x", .dtype = DT_f32, .rank = 1, .dim = &n, .data = large};
    struct rlimit old, tiny;
    Safetensors s;
    CHECK(safetensors_write(path_of("c"), sample, NSAMPLE, NULL, 0, true, e) == GRAPHC_OK);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    tiny = old;
    tiny.rlim_cur = 1 << 16;
    setrlimit(RLIMIT_FSIZE, &tiny);
    CHECK(safetensors_write(path_of("c"), &t, 1, NULL, 0, true, e) == GRAPHC_IO);
    setrlimit(RLIMIT_FSIZE, &old);
    CHECK_STR(why, "cannot be written: File too large");
    CHECK(safetensors_open(path_of("c"), &s, e) == GRAPHC_OK &&
          safetensors_check(&s, true, e) == GRAPHC_OK);
    CHECK_EQ_I(s.ntensors, NSAMPLE);
    safetensors_close(&s);
}

static void check_usage(void) {
    SafetensorsWriter w;
    const SafeTensor twice[] = {sample[0], sample[0]};
    CHECK(safetensors_begin(&w, path_of("d"), twice, 2, NULL, 0, true, e) == GRAPHC_USAGE);
    CHECK_STR(why, "tensor name \"bytes\" is reserved or there twice");
    CHECK(safetensors_begin(&w, path_of("d"), sample, NSAMPLE, NULL, 0, true, e) == GRAPHC_OK);
    CHECK(safetensors_put(&w, f32s, 8, e) == GRAPHC_OK);
    CHECK(safetensors_commit(&w, e) == GRAPHC_USAGE);
    CHECK_STR(why, "fewer bytes than the tensors have");
    CHECK(access(path_of("d"), F_OK) != 0);
    CHECK(safetensors_begin(&w, path_of("d"), sample, 1, NULL, 0, false, e) == GRAPHC_OK);
    CHECK(safetensors_put(&w, f32s, 8, e) == GRAPHC_USAGE);
    safetensors_abandon(&w);
    const SafeTensor i4 = {.name = "q", .dtype = DT_i4, .rank = 1, .dim = dims};
    CHECK(safetensors_begin(&w, path_of("d"), &i4, 1, NULL, 0, true, e) == GRAPHC_UNSUPPORTED);
    CHECK(safetensors_write("/nowhere/x", sample, 1, NULL, 0, true, e) == GRAPHC_IO);
}

TEST_MAIN {
    check_hash();
    check_json_faults();
    check_json_values();
    check_json_write();
    if (!CHECK(mkdtemp(folder))) return;
    check_round(true);
    check_round(false);
    check_damage();
    check_refused();
    check_full();
    check_usage();
    for (const char *p = "abcd"; *p; p++) unlink(path_of((char[]){*p, 0}));
    CHECK(rmdir(folder) == 0); /* nothing else was left */
}
