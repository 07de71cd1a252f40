/* adapter_config.json. */
#include "runtime/base/file.h"
#include "runtime/train/adapter/adapter.h"
#include "runtime/train/adapter/pattern.h"
#include "runtime/train/json_read.h"
#include "runtime/train/json_write.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Reading {
    AdapterConfig *c;
    JsonRead json;
    size_t used; /* of c->text */
    ErrorText e;
    graphc_status status; /* of what is wrong beyond JSON */
} Reading;

typedef enum FieldUse {
    USE_taken,
    USE_ignored, /* says where the adapter is from or how it began, not what it computes */
    USE_refused  /* changes what the adapter computes, unless it is null, false or empty */
} FieldUse;

/* Every field of PEFT's LoraConfig. */
static const struct Field {
    const char *name;
    FieldUse use;
} fields[] = {{"peft_type", USE_taken},
              {"r", USE_taken},
              {"lora_alpha", USE_taken},
              {"lora_dropout", USE_taken},
              {"use_rslora", USE_taken},
              {"use_dora", USE_taken},
              {"fan_in_fan_out", USE_taken},
              {"lora_bias", USE_taken},
              {"bias", USE_taken},
              {"target_modules", USE_taken},
              {"modules_to_save", USE_taken},
              {"rank_pattern", USE_taken},
              {"alpha_pattern", USE_taken},
              {"base_model_name_or_path", USE_taken},
              {"revision", USE_taken},
              {"task_type", USE_taken},
              {"init_lora_weights", USE_taken},
              {"auto_mapping", USE_ignored},
              {"peft_version", USE_ignored},
              {"inference_mode", USE_ignored},
              {"exclude_modules", USE_ignored},
              {"layers_to_transform", USE_ignored},
              {"layers_pattern", USE_ignored},
              {"megatron_core", USE_ignored},
              {"loftq_config", USE_ignored},
              {"eva_config", USE_ignored},
              {"corda_config", USE_ignored},
              {"lora_ga_config", USE_ignored},
              {"velora_config", USE_ignored},
              {"qalora_group_size", USE_ignored},
              {"ensure_weight_tying", USE_ignored},
              {"megatron_config", USE_refused},
              {"trainable_token_indices", USE_refused},
              {"layer_replication", USE_refused},
              {"target_parameters", USE_refused},
              {"use_qalora", USE_refused},
              {"alora_invocation_tokens", USE_refused},
              {"use_bdlora", USE_refused},
              {"arrow_config", USE_refused},
              {"kasa_config", USE_refused},
              {"monteclora_config", USE_refused}};

static void out_of_memory(Reading *g) {
    g->status = error_set(g->e, GRAPHC_NO_MEMORY, "not enough memory");
    jr_refuse(&g->json, "no memory");
}

static const char *take_text(Reading *g, JsonSpan s) {
    char *p = g->c->text + g->used;
    g->used += jr_decode_to(s, p) + 1;
    return p;
}

static void take_string(Reading *g, const char **out) {
    JsonSpan s;
    if (jr_kind(&g->json) == JR_null)
        jr_null(&g->json);
    else if (jr_string(&g->json, &s))
        *out = take_text(g, s);
}

static void add_item(Reading *g, AdapterList *l, const char *item) {
    const char **v = reallocarray(l->v, l->n + 1, sizeof *v);
    if (!v) {
        out_of_memory(g);
        return;
    }
    l->v = v;
    l->v[l->n++] = item;
}

static void take_list(Reading *g, AdapterList *out) {
    JsonSpan s;
    if (jr_kind(&g->json) == JR_null) {
        jr_null(&g->json);
        return;
    }
    for (jr_array(&g->json); jr_item(&g->json) && jr_string(&g->json, &s);) {
        if (!s.n) jr_refuse(&g->json, "a module without a name");
        add_item(g, out, take_text(g, s));
    }
}

static void take_targets(Reading *g) {
    AdapterConfig *c = g->c;
    const char *regex = NULL;
    c->targets_regex = jr_kind(&g->json) == JR_string;
    if (!c->targets_regex) {
        take_list(g, &c->targets);
        return;
    }
    take_string(g, &regex);
    if (regex) add_item(g, &c->targets, regex);
}

static void take_patterns(Reading *g, AdapterPatterns *out) {
    JsonSpan key;
    double value = 0;
    if (jr_kind(&g->json) == JR_null) {
        jr_null(&g->json);
        return;
    }
    for (jr_object(&g->json); jr_key(&g->json, &key) && jr_f64(&g->json, &value);) {
        AdapterPattern *v = reallocarray(out->v, out->n + 1, sizeof *v);
        if (!v) {
            out_of_memory(g);
            return;
        }
        out->v = v;
        out->v[out->n++] = (AdapterPattern){take_text(g, key), value};
    }
}

static const char *const biases[] = {"none", "all", "lora_only"};

static void take_bias(Reading *g) {
    const char *s = "none";
    int k = 0;
    take_string(g, &s);
    while (k < 3 && strcmp(s, biases[k])) k++;
    if (k < 3)
        g->c->bias = (AdapterBias)k;
    else
        jr_refuse(&g->json, "a bias that is not none, all or lora_only");
}

/* Some ways to begin change the base weights: such an adapter fits no other base. */
static void take_init(Reading *g) {
    static const char *const changing[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
    const char *s = NULL;
    if (jr_kind(&g->json) != JR_string) {
        jr_skip(&g->json);
        return;
    }
    take_string(g, &s);
    for (size_t i = 0; s && i < sizeof changing / sizeof *changing; i++)
        if (strncmp(s, changing[i], strlen(changing[i])) == 0) {
            g->status =
                error_set(g->e, GRAPHC_UNSUPPORTED,
                          "init_lora_weights \"%s\" changes the base weights; let PEFT convert "
                          "the adapter to plain LoRA when saving",
                          safe_name(s).text);
            jr_refuse(&g->json, "an unsupported adapter");
        }
}

static void take_kind(Reading *g) {
    const char *s = "null";
    take_string(g, &s);
    if (g->json.fault || strcmp(s, "LORA") == 0) return;
    g->status = error_set(g->e, GRAPHC_UNSUPPORTED, "peft_type %s is not supported, LORA is",
                          safe_name(s).text);
    jr_refuse(&g->json, "an unsupported adapter");
}

/* Null, false, {} or [] mean that the field is not used. */
static void take_unused(Reading *g, const char *name) {
    JsonRead *r = &g->json;
    JsonKind k = jr_kind(r);
    const char *from = r->at;
    bool used = k != JR_null;
    if (k == JR_bool)
        jr_bool(r, &used);
    else
        jr_skip(r);
    if (k == JR_object || k == JR_array) {
        used = false;
        for (const char *p = from + 1; p < r->at - 1; p++) used |= !strchr(" \t\r\n", *p);
    }
    if (r->fault || !used) return;
    g->status = error_set(g->e, GRAPHC_UNSUPPORTED, "\"%s\" is not supported", name);
    jr_refuse(r, "an unsupported adapter");
}

static void take_value(Reading *g, const char *name) {
    AdapterConfig *c = g->c;
    JsonRead *r = &g->json;
    const struct {
        const char *name;
        bool *out;
    } flags[] = {{"use_rslora", &c->rslora},
                 {"use_dora", &c->dora},
                 {"fan_in_fan_out", &c->fan_in_fan_out},
                 {"lora_bias", &c->lora_bias}};
    const struct {
        const char *name;
        const char **out;
    } strings[] = {{"base_model_name_or_path", &c->base_model},
                   {"revision", &c->revision},
                   {"task_type", &c->task_type}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strcmp(name, flags[i].name) == 0) jr_bool(r, flags[i].out);
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++)
        if (strcmp(name, strings[i].name) == 0) take_string(g, strings[i].out);
    if (strcmp(name, "peft_type") == 0) take_kind(g);
    if (strcmp(name, "r") == 0) jr_i64(r, &c->r);
    if (strcmp(name, "lora_alpha") == 0) jr_f64(r, &c->alpha);
    if (strcmp(name, "lora_dropout") == 0) jr_f64(r, &c->dropout);
    if (strcmp(name, "bias") == 0) take_bias(g);
    if (strcmp(name, "target_modules") == 0) take_targets(g);
    if (strcmp(name, "modules_to_save") == 0) take_list(g, &c->modules_to_save);
    if (strcmp(name, "rank_pattern") == 0) take_patterns(g, &c->rank_pattern);
    if (strcmp(name, "alpha_pattern") == 0) take_patterns(g, &c->alpha_pattern);
    if (strcmp(name, "init_lora_weights") == 0) take_init(g);
}

static void take_field(Reading *g, JsonSpan key, uint64_t *seen) {
    enum { COUNT = sizeof fields / sizeof *fields };
    size_t k = 0;
    while (k < COUNT && !jr_is(key, fields[k].name)) k++;
    if (k < COUNT && *seen >> k & 1) jr_refuse(&g->json, "a field that is there twice");
    if (k == COUNT) {
        add_item(g, &g->c->unknown, take_text(g, key));
        jr_skip(&g->json);
        return;
    }
    *seen |= UINT64_C(1) << k;
    if (fields[k].use == USE_taken)
        take_value(g, fields[k].name);
    else if (fields[k].use == USE_refused)
        take_unused(g, fields[k].name);
    else
        jr_skip(&g->json);
}

static graphc_status read_fields(Reading *g, const char *text, size_t n) {
    const AdapterConfig *c = g->c;
    JsonSpan key;
    uint64_t seen = 0;
    for (jr_init(&g->json, text, n), jr_object(&g->json); jr_key(&g->json, &key);)
        take_field(g, key, &seen);
    if (g->status != GRAPHC_OK) return g->status;
    if (!jr_end(&g->json))
        return error_set(g->e, GRAPHC_INVALID, "not valid at byte %zu: %s", jr_offset(&g->json),
                         g->json.fault);
    if (!(seen & 1)) return error_set(g->e, GRAPHC_INVALID, "has no \"peft_type\"");
    if (c->r < 1 || c->r > INT32_MAX)
        return error_set(g->e, GRAPHC_INVALID, "a rank of %lld", (long long)c->r);
    if (!(c->dropout >= 0 && c->dropout < 1))
        return error_set(g->e, GRAPHC_INVALID, "a dropout of %g", c->dropout);
    return GRAPHC_OK;
}

graphc_status adapter_config_parse(const char *text, size_t n, AdapterConfig *out, ErrorText e) {
    Reading g = {.c = out, .e = e};
    *out = (AdapterConfig)ADAPTER_CONFIG_INIT;
    out->text = malloc(n + 1); /* a string is shorter than what it is read from */
    graphc_status st =
        out->text ? read_fields(&g, text, n) : error_set(e, GRAPHC_NO_MEMORY, "not enough memory");
    if (st != GRAPHC_OK) adapter_config_free(out);
    return st;
}

graphc_status adapter_config_read(const char *path, AdapterConfig *out, ErrorText e) {
    FileMap m;
    char why[256];
    graphc_status st = file_map(path, &m, why);
    if (st != GRAPHC_OK) return error_set(e, st, "%s", why);
    st = adapter_config_parse((const char *)m.data, m.size, out, e);
    if (m.data) file_unmap(&m);
    return st;
}

void adapter_config_free(AdapterConfig *c) {
    free(c->targets.v);
    free(c->modules_to_save.v);
    free(c->unknown.v);
    free(c->rank_pattern.v);
    free(c->alpha_pattern.v);
    free(c->text);
    *c = (AdapterConfig){0};
}

/* --- writing -------------------------------------------------------------------------------- */

static void put_list(JsonWrite *j, const char *name, const AdapterList *l, bool empty) {
    if (!l->n && !empty) {
        jw_null(j, name);
        return;
    }
    jw_array(j, name);
    for (uint32_t i = 0; i < l->n; i++) jw_string(j, NULL, l->v[i]);
    jw_end(j);
}

static void put_patterns(JsonWrite *j, const char *name, const AdapterPatterns *p) {
    jw_object(j, name);
    for (uint32_t i = 0; i < p->n; i++) jw_f64(j, p->v[i].pattern, p->v[i].value);
    jw_end(j);
}

/* Sorted by name, as PEFT does. */
graphc_status adapter_config_text(const AdapterConfig *c, char **out, size_t *n, ErrorText e) {
    JsonWrite j = {.indent = 2};
    jw_object(&j, NULL);
    put_patterns(&j, "alpha_pattern", &c->alpha_pattern);
    jw_null(&j, "auto_mapping");
    jw_string(&j, "base_model_name_or_path", c->base_model);
    jw_string(&j, "bias", biases[c->bias]);
    jw_null(&j, "exclude_modules");
    jw_bool(&j, "fan_in_fan_out", c->fan_in_fan_out);
    jw_bool(&j, "inference_mode", true);
    jw_bool(&j, "init_lora_weights", true);
    jw_null(&j, "layer_replication");
    jw_null(&j, "layers_pattern");
    jw_null(&j, "layers_to_transform");
    jw_f64(&j, "lora_alpha", c->alpha);
    jw_bool(&j, "lora_bias", c->lora_bias);
    jw_f64(&j, "lora_dropout", c->dropout);
    put_list(&j, "modules_to_save", &c->modules_to_save, false);
    jw_string(&j, "peft_type", "LORA");
    jw_i64(&j, "r", c->r);
    put_patterns(&j, "rank_pattern", &c->rank_pattern);
    jw_string(&j, "revision", c->revision);
    if (c->targets_regex && c->targets.n)
        jw_string(&j, "target_modules", c->targets.v[0]);
    else
        put_list(&j, "target_modules", &c->targets, true);
    jw_string(&j, "task_type", c->task_type);
    jw_bool(&j, "use_dora", c->dora);
    jw_bool(&j, "use_rslora", c->rslora);
    jw_end(&j);
    text_put(&j.text, "\n");
    *out = j.text.p;
    *n = j.text.n;
    if (!j.text.failed) return GRAPHC_OK;
    text_free(&j.text);
    return error_set(e, GRAPHC_NO_MEMORY, "not enough memory");
}

/* --- scale ---------------------------------------------------------------------------------- */

/* The value of the first pattern that matches, or *value as it was. */
static graphc_status pattern_value(const AdapterPatterns *p, const char *path, double *value,
                                   ErrorText e) {
    for (uint32_t i = 0; i < p->n; i++) {
        bool matches;
        GC_TRY(pattern_matches(p->v[i].pattern, path, true, &matches, e));
        if (!matches) continue;
        *value = p->v[i].value;
        break;
    }
    return GRAPHC_OK;
}

graphc_status adapter_scale(const AdapterConfig *c, const char *path, int64_t *rank, double *scale,
                            ErrorText e) {
    double r = (double)c->r, alpha = c->alpha;
    GC_TRY(pattern_value(&c->rank_pattern, path, &r, e));
    GC_TRY(pattern_value(&c->alpha_pattern, path, &alpha, e));
    if (!(r >= 1 && r <= INT32_MAX && r == floor(r)))
        return error_set(e, GRAPHC_INVALID, "a rank of %g for %s", r, safe_name(path).text);
    *rank = (int64_t)r;
    *scale = alpha / (c->rslora ? sqrt(r) : r);
    if (!(fabs(*scale) <= FLT_MAX))
        return error_set(e, GRAPHC_INVALID, "a scale of %g for %s", *scale, safe_name(path).text);
    return GRAPHC_OK;
}
