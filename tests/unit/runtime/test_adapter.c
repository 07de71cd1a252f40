/* Adapters: scale rules and patterns, and what is refused by name. What PEFT itself writes and
 * reads is in tests/train/peft_files.py. */
#include "runtime/base/file.h"
#include "runtime/train/adapter/adapter.h"
#include "runtime/train/adapter/pattern.h"
#include "tests/unit/test.h"
#include <unistd.h>

static char folder[] = "/tmp/graphc_adapter_XXXXXX";
static char why[1024];
static const ErrorText e = {why, sizeof why};

static const char *path_of(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put_config(const char *text) {
    CHECK(file_write(path_of("adapter_config.json"), text, strlen(text), why) == GRAPHC_OK);
}

static void put_tensors(const SafeTensor *t, uint32_t n) {
    CHECK(safetensors_write(path_of("adapter_model.safetensors"), t, n, NULL, 0, false, e) ==
          GRAPHC_OK);
}

/* --- configurations --------------------------------------------------------------------------- */

static void refused_config(const char *text, graphc_status want, const char *message) {
    AdapterConfig c;
    put_config(text);
    CHECK_EQ_I(adapter_config_read(path_of("adapter_config.json"), &c, e), want);
    CHECK_STR(why, message);
}

static void check_config(void) {
    AdapterConfig c;
    put_config(
        "{\"peft_type\": \"LORA\", \"r\": 16, \"lora_alpha\": 32.5, \"target_modules\": [\"q\", "
        "\"v\"],"
        "\"bias\": \"all\", \"use_dora\": true, \"revision\": null, \"task_type\": \"CAUSAL_LM\","
        "\"rank_pattern\": {\"a\\u002eb\": 4}, \"new\": [1, {\"x\": 2}], \"use_qalora\": false,"
        "\"layer_replication\": [ ], \"arrow_config\": {}, \"lora_dropout\": 0.05}");
    if (!CHECK(adapter_config_read(path_of("adapter_config.json"), &c, e) == GRAPHC_OK)) return;
    CHECK(c.r == 16 && c.alpha == 32.5 && c.dropout == 0.05 && c.dora && !c.rslora &&
          c.bias == ADAPTER_all);
    CHECK(c.targets.n == 2 && !c.targets_regex && c.rank_pattern.n == 1 && !c.revision);
    CHECK_STR(c.targets.v[1], "v");
    CHECK_STR(c.rank_pattern.v[0].pattern, "a.b");
    CHECK_STR(c.task_type, "CAUSAL_LM");
    CHECK_EQ_I(c.unknown.n, 1);
    CHECK_STR(c.unknown.v[0], "new");
    adapter_config_free(&c);
    refused_config("{\"r\": 4}", GRAPHC_INVALID, "has no \"peft_type\"");
    refused_config("{\"peft_type\": \"LOHA\"}", GRAPHC_UNSUPPORTED,
                   "peft_type LOHA is not supported, LORA is");
    refused_config("{\"peft_type\": \"LORA\", \"r\": 0}", GRAPHC_INVALID, "a rank of 0");
    refused_config("{\"peft_type\": \"LORA\", \"r\": 2.5}", GRAPHC_INVALID,
                   "not valid at byte 30: no whole number");
    refused_config("{\"peft_type\": \"LORA\", \"r\": 1, \"r\": 2}", GRAPHC_INVALID,
                   "not valid at byte 34: a field that is there twice");
    refused_config("{\"peft_type\": \"LORA\", \"bias\": \"some\"}", GRAPHC_INVALID,
                   "not valid at byte 36: a bias that is not none, all or lora_only");
    refused_config("{\"peft_type\": \"LORA\", \"modules_to_save\": [\"\"]}", GRAPHC_INVALID,
                   "not valid at byte 44: a module without a name");
    refused_config("{\"peft_type\": \"LORA\", \"lora_dropout\": 1}", GRAPHC_INVALID,
                   "a dropout of 1");
    refused_config("{\"peft_type\": \"LORA\", \"target_parameters\": [\"experts\"]}",
                   GRAPHC_UNSUPPORTED, "\"target_parameters\" is not supported");
    refused_config("{\"peft_type\": \"LORA\", \"init_lora_weights\": \"olora\"}",
                   GRAPHC_UNSUPPORTED,
                   "init_lora_weights \"olora\" changes the base weights; let PEFT convert the "
                   "adapter to plain "
                   "LoRA when saving");
}

/* Every beginning of a configuration is refused, and nothing is left allocated. */
static void check_truncated(void) {
    static const char text[] =
        "{\"peft_type\": \"LORA\", \"target_modules\": [\"a\", \"b\"], \"alpha_pattern\": "
        "{\"x\": 1.5}, \"modules_to_save\": [\"lm_head\"], \"other\": [{}]}";
    AdapterConfig c;
    for (size_t n = 0; n < sizeof text - 1; n++) {
        CHECK(file_write(path_of("adapter_config.json"), text, n, why) == GRAPHC_OK);
        CHECK(adapter_config_read(path_of("adapter_config.json"), &c, e) == GRAPHC_INVALID);
    }
}

static bool matches(const char *pattern, const char *path, bool end) {
    bool out = false;
    CHECK(pattern_matches(pattern, path, end, &out, e) == GRAPHC_OK);
    return out;
}

static void check_patterns(void) {
    bool out;
    CHECK(matches("q_proj", "model.layers.0.q_proj", true) && matches("q_proj", "q_proj", true));
    CHECK(!matches("q_proj", "model.layers.0.eq_proj", true) &&
          !matches("q_proj", "q_proj.x", true));
    CHECK(matches("0.q_proj", "model.layers.0.q_proj", true) &&
          !matches("q_proj", "a.q_proj", false));
    CHECK(matches("layers\\.\\d+\\.(?:q|v)_proj", "model.layers.17.v_proj", true));
    CHECK(!matches("layers\\.\\d+\\.(?:q|v)_proj", "model.layers.x.v_proj", true));
    CHECK(matches(".*[02468]\\.q", "layers.4.q", false) &&
          !matches(".*[02468]\\.q", "layers.5.q", false));
    static const char *const unknown[] = {
        "(?=a)b", "a{1000}", "(a)\\1",      "a*?",   "(",     "a\\Z", "[",    "a\\",
        "a++b",   "a*+",     "[[:alpha:]]", "[\\n]", "a\\nb", "[ab",  "a)(b", "(((((a+)+)+)+)+)"};
    CHECK(matches("[\\w.]+_proj", "a.b_proj", false) && !matches("[\\w]+", "a\\", false));
    CHECK(matches("[\\d\\.]+", "1.5", false) && !matches("[\\d\\.]+", "a", false));
    CHECK(matches("[]+?]x", "+x", false) && matches("((a+)b)+", "aabab", false));
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        CHECK(pattern_matches(unknown[i], "a", true, &out, e) == GRAPHC_UNSUPPORTED);
}

static void check_scale(void) {
    AdapterPattern ranks[] = {{"layers.0.q", 4}, {"q", 2}}, alphas[] = {{"v", 9}};
    AdapterConfig c = {
        .r = 16, .alpha = 8, .rank_pattern = {ranks, 2}, .alpha_pattern = {alphas, 1}};
    int64_t rank = 0;
    double scale = 0;
    CHECK(adapter_scale(&c, "m.layers.0.q", &rank, &scale, e) == GRAPHC_OK && rank == 4 &&
          scale == 2);
    CHECK(adapter_scale(&c, "m.layers.1.q", &rank, &scale, e) == GRAPHC_OK && rank == 2 &&
          scale == 4);
    CHECK(adapter_scale(&c, "m.layers.0.v", &rank, &scale, e) == GRAPHC_OK && rank == 16 &&
          scale == 9.0 / 16);
    alphas[0].value = 1e300;
    CHECK(adapter_scale(&c, "m.v", &rank, &scale, e) == GRAPHC_INVALID);
    CHECK_STR(why, "a scale of 6.25e+298 for m.v");
    c.rslora = true;
    CHECK(adapter_scale(&c, "o", &rank, &scale, e) == GRAPHC_OK && rank == 16 && scale == 2);
    ranks[1].value = 0.5;
    CHECK(adapter_scale(&c, "m.q", &rank, &scale, e) == GRAPHC_INVALID);
}

/* --- tensors --------------------------------------------------------------------------------- */

static float values[64] = {1, 2, 3};
#define T(n, ...)                                                                                  \
    {                                                                                              \
        .name = (n), .dtype = DT_f32, .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),  \
        .dim = (const int64_t[]){__VA_ARGS__}, .data = values                                      \
    }
#define P "base_model.model.l.0.q"

static void refused(const SafeTensor *t, uint32_t n, const char *message) {
    Adapter a;
    put_tensors(t, n);
    graphc_status st = adapter_read(folder, &a, e);
    CHECK_EQ_I(st, GRAPHC_INVALID);
    CHECK(strstr(why, "/adapter_model.safetensors: "));
    CHECK_STR(why + strlen(folder) + strlen("/adapter_model.safetensors: "), message);
    if (st == GRAPHC_OK) adapter_free(&a);
}
#define REFUSED(message, ...)                                                                      \
    refused((const SafeTensor[]){__VA_ARGS__},                                                     \
            sizeof((SafeTensor[]){__VA_ARGS__}) / sizeof(SafeTensor), message)

static void check_refused(void) {
    put_config("{\"peft_type\": \"LORA\", \"r\": 2, \"target_modules\": [\"q\"]}");
    REFUSED("module l.0.q lacks B", T(P ".lora_A.weight", 2, 4));
    REFUSED("module l.0.q lacks A", T(P ".lora_B.weight", 4, 2));
    REFUSED("module l.0.q: A has rank 3, B 3, the configuration says 2",
            T(P ".lora_A.weight", 3, 4), T(P ".lora_B.weight", 4, 3));
    REFUSED("module l.0.q: A has rank 2, B 3, the configuration says 2",
            T(P ".lora_A.weight", 2, 4), T(P ".lora_B.weight", 4, 3));
    REFUSED("module l.0.q: A has the shape [8]", T(P ".lora_A.weight", 8),
            T(P ".lora_B.weight", 4, 2));
    REFUSED("module l.0.q: B has the shape [4, 2, 3]", T(P ".lora_A.weight", 2, 4, 3),
            T(P ".lora_B.weight", 4, 2, 3));
    REFUSED("module l.0.q has a magnitude or a bias of B, the configuration does not",
            T(P ".lora_A.weight", 2, 4), T(P ".lora_B.weight", 4, 2),
            T(P ".lora_magnitude_vector", 4));
    REFUSED("tensor \"" P ".weight\" is neither of LoRA nor of modules_to_save", T(P ".weight", 4));
    REFUSED("tensor \"l.0.q.lora_A.weight\" does not begin with base_model.model.",
            T("l.0.q.lora_A.weight", 2, 4));
    refused(NULL, 0, "holds no tensor");
    values[1] = NAN;
    REFUSED("tensor \"" P ".lora_A.weight\": element 1 is not finite", T(P ".lora_A.weight", 2, 4),
            T(P ".lora_B.weight", 4, 2));
    values[1] = 2;
    put_config("{\"peft_type\": \"LORA\", \"r\": 2, \"use_dora\": true}");
    REFUSED("module l.0.q lacks the magnitude", T(P ".lora_A.weight", 2, 4),
            T(P ".lora_B.weight", 4, 2));
    REFUSED("module l.0.q: the magnitude has the shape [3]", T(P ".lora_A.weight", 2, 4),
            T(P ".lora_B.weight", 4, 2), T(P ".lora_magnitude_vector", 3));
    REFUSED("module l.0.q has two of \"" P ".lora_magnitude_vector.weight\"",
            T(P ".lora_magnitude_vector", 3), T(P ".lora_magnitude_vector.weight", 3));
}

static void check_round(void) {
    Adapter a;
    const char *targets[] = {"q"};
    AdapterConfig c = {.r = 2, .alpha = 4, .targets = {targets, 1}};
    AdapterModule m = {.path = "l.0.q", .a = T("", 2, 4), .b = T("", 5, 2)};
    const AdapterTarget model[] = {{"l.0.q", 4, 5}}, other[] = {{"l.0.q", 4, 6}},
                        none[] = {{"x", 4, 5}};
    CHECK(adapter_write(folder, &c, &m, 1, NULL, 0, e) == GRAPHC_OK);
    if (!CHECK(adapter_read(folder, &a, e) == GRAPHC_OK)) return;
    CHECK(a.nmodules == 1 && a.modules[0].scale == 2 && a.modules[0].kind == ADAPTER_linear);
    CHECK(adapter_match(&a, model, 1, e) == GRAPHC_OK);
    CHECK(adapter_match(&a, other, 1, e) == GRAPHC_INVALID);
    CHECK_STR(why, "module l.0.q goes from 4 to 5 in the adapter, from 4 to 6 in the model");
    CHECK(adapter_match(&a, none, 1, e) == GRAPHC_INVALID);
    CHECK_STR(why, "the model has no module l.0.q; it has 1, the first is x");
    adapter_free(&a);
    m.path = "l.0.k";
    CHECK(adapter_write(folder, &c, &m, 1, NULL, 0, e) == GRAPHC_USAGE);
    CHECK_STR(why, "module l.0.k is no target of the configuration");
    m.path = "l.0.q";
    c.r = 3;
    CHECK(adapter_write(folder, &c, &m, 1, NULL, 0, e) == GRAPHC_USAGE);
    CHECK_STR(why, "module l.0.q: A and B do not have the configuration's rank of 3");
    c.r = 2;
    CHECK(adapter_write("/nowhere/x", &c, &m, 1, NULL, 0, e) == GRAPHC_IO);
    CHECK(adapter_read("/nowhere", &a, e) == GRAPHC_IO);
    CHECK_STR(why, "/nowhere/adapter_config.json: cannot be opened: No such file or directory");
}

TEST_MAIN {
    if (!CHECK(mkdtemp(folder))) return;
    check_config();
    check_truncated();
    check_patterns();
    check_scale();
    check_refused();
    check_round();
    CHECK(unlink(path_of("adapter_config.json")) == 0 &&
          unlink(path_of("adapter_model.safetensors")) == 0);
    CHECK(rmdir(folder) == 0);
}
