/* Reading adapters: which tensors belong to which module. */
#include "runtime/train/adapter/adapter.h"
#include "runtime/train/adapter/names.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Written with the first suffix that fits. */
static const AdapterPart parts[] = {
    {".lora_A.weight", ADAPTER_linear, PART_a},
    {".lora_B.weight", ADAPTER_linear, PART_b},
    {".lora_embedding_A", ADAPTER_embedding, PART_a},
    {".lora_embedding_B", ADAPTER_embedding, PART_b},
    {".lora_magnitude_vector", ADAPTER_linear, PART_magnitude},
    {".lora_magnitude_vector.weight", ADAPTER_linear, PART_magnitude},
    {".lora_B.bias", ADAPTER_linear, PART_bias}};
enum { PARTS = sizeof parts / sizeof *parts };

const AdapterPart *adapter_part_of(const char *name, size_t *path_size) {
    size_t n = strlen(name);
    for (size_t i = 0; i < PARTS; i++) {
        size_t m = strlen(parts[i].suffix);
        if (n <= m || strcmp(name + n - m, parts[i].suffix)) continue;
        *path_size = n - m;
        return &parts[i];
    }
    return NULL;
}

SafeTensor *adapter_tensor(AdapterModule *m, AdapterPartKind part) {
    return part == PART_a      ? &m->a
           : part == PART_b    ? &m->b
           : part == PART_bias ? &m->bias
                               : &m->magnitude;
}

const char *adapter_suffix(AdapterPartKind part, AdapterKind kind) {
    AdapterKind as =
        kind == ADAPTER_embedding && (part == PART_a || part == PART_b) ? kind : ADAPTER_linear;
    for (size_t i = 0; i < PARTS; i++)
        if (parts[i].part == part && parts[i].kind == as) return parts[i].suffix;
    return "";
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const AdapterModule *)a)->path, ((const AdapterModule *)b)->path);
}

/* --- sorting tensors ------------------------------------------------------------------------- */

/* Is it in one of the modules that are kept as a whole? As PEFT has it a module is one if its path
 * ends so, "norm" stands for input_layernorm too. */
static bool in_list(const AdapterList *l, const char *name) {
    for (uint32_t i = 0; i < l->n; i++) {
        size_t n = strlen(l->v[i]);
        for (const char *p = name; (p = strstr(p, l->v[i])); p++)
            if (p[n] == '.') return true;
    }
    return false;
}

bool adapter_trains(const AdapterConfig *c, const char *name) {
    size_t n = strlen(name);
    bool bias = n > 5 && strcmp(name + n - 5, ".bias") == 0;
    return (bias && c->bias != ADAPTER_none) || in_list(&c->modules_to_save, name);
}

static bool is_whole(const AdapterConfig *c, const char *name) {
    static const char *const embeddings[] = {
        "embed_tokens", "lm_head", "wte", "embed_in", "embed_out", "embeddings", "word_embeddings"};
    const AdapterList kept = {(const char **)(uintptr_t)embeddings,
                              sizeof embeddings / sizeof *embeddings};
    return adapter_trains(c, name) || in_list(&kept, name);
}

/* As in the model: "PATH.base_layer.bias" of an adapted module is its "PATH.bias". */
static const char *model_name(const char *name, char **text) {
    const char *base = strstr(name, ADAPTER_BASE "."), *out = *text;
    if (!base) return name;
    *text += sprintf(*text, "%.*s%s", (int)(base - name), name, base + strlen(ADAPTER_BASE)) + 1;
    return out;
}

static graphc_status sort_tensor(Adapter *a, const SafeTensor *t, char **text, ErrorText e) {
    size_t prefix = strlen(ADAPTER_PREFIX), n;
    SafeName name = safe_name(t->name);
    if (strncmp(t->name, ADAPTER_PREFIX, prefix))
        return error_set(e, GRAPHC_INVALID, "tensor \"%s\" does not begin with " ADAPTER_PREFIX,
                         name.text);
    if (!dtype_is_float(t->dtype))
        return error_set(e, GRAPHC_INVALID, "tensor \"%s\" is of %s, not floating", name.text,
                         dtype_name(t->dtype));
    const char *rest = t->name + prefix;
    const AdapterPart *part = adapter_part_of(rest, &n);
    if (!part && !is_whole(&a->config, rest))
        return error_set(e, GRAPHC_INVALID,
                         "tensor \"%s\" is neither of LoRA nor of modules_to_save", name.text);
    if (!part) {
        a->whole[a->nwhole] = *t;
        a->whole[a->nwhole++].name = model_name(rest, text);
        return GRAPHC_OK;
    }
    AdapterModule *m = &a->modules[a->nmodules++]; /* put together with its others later */
    memcpy(*text, rest, n);
    (*text)[n] = 0;
    m->path = *text;
    m->kind = part->kind;
    *adapter_tensor(m, part->part) = *t;
    *text += n + 1;
    return GRAPHC_OK;
}

/* Modules of one tensor each become modules of all their tensors. */
static graphc_status join(Adapter *a, ErrorText e) {
    uint32_t n = 0;
    qsort(a->modules, a->nmodules, sizeof *a->modules, by_path);
    for (uint32_t i = 0; i < a->nmodules; i++) {
        AdapterModule *m = n ? &a->modules[n - 1] : NULL, one = a->modules[i];
        if (!m || strcmp(m->path, one.path)) {
            a->modules[n++] = one;
            continue;
        }
        if (one.kind == ADAPTER_embedding) m->kind = ADAPTER_embedding;
        for (int p = 0; p < PART_COUNT; p++) {
            SafeTensor *from = adapter_tensor(&one, (AdapterPartKind)p),
                       *to = adapter_tensor(m, (AdapterPartKind)p);
            if (from->dtype == DT_none) continue;
            if (to->dtype != DT_none)
                return error_set(e, GRAPHC_INVALID, "module %s has two of \"%s\"",
                                 safe_name(m->path).text, safe_name(from->name).text);
            *to = *from;
        }
    }
    a->nmodules = n;
    return GRAPHC_OK;
}

/* --- what a module must be ------------------------------------------------------------------- */

static graphc_status wrong_shape(const AdapterModule *m, const char *what, const SafeTensor *t,
                                 ErrorText e) {
    return error_set(e, GRAPHC_INVALID, "module %s: %s has the shape %s", safe_name(m->path).text,
                     what, safe_shape(t->rank, t->dim).text);
}

static bool all_ones(const SafeTensor *t, uint32_t from) {
    for (uint32_t i = from; i < t->rank; i++)
        if (t->dim[i] != 1) return false;
    return true;
}

static graphc_status check_shapes(AdapterModule *m, int64_t rank, ErrorText e) {
    const SafeTensor *a = &m->a, *b = &m->b;
    if (m->kind == ADAPTER_linear && a->rank > 2) m->kind = ADAPTER_convolution;
    if (a->rank < 2 || (m->kind != ADAPTER_convolution && a->rank != 2))
        return wrong_shape(m, "A", a, e);
    if (b->rank != a->rank || !all_ones(b, 2)) return wrong_shape(m, "B", b, e);
    if (a->dim[0] != rank || b->dim[1] != rank)
        return error_set(
            e, GRAPHC_INVALID, "module %s: A has rank %lld, B %lld, the configuration says %lld",
            safe_name(m->path).text, (long long)a->dim[0], (long long)b->dim[1], (long long)rank);
    if (m->bias.dtype != DT_none && (m->bias.rank != 1 || m->bias.dim[0] != b->dim[0]))
        return wrong_shape(m, "the bias of B", &m->bias, e);
    uint64_t elements =
        m->magnitude.dtype ? m->magnitude.bytes / dtype_bytes(m->magnitude.dtype) : 0;
    if (m->magnitude.dtype != DT_none && elements != (uint64_t)b->dim[0] &&
        !(m->kind == ADAPTER_embedding && elements == (uint64_t)a->dim[1]))
        return wrong_shape(m, "the magnitude", &m->magnitude, e);
    return GRAPHC_OK;
}

static graphc_status check_finite(const SafeTensor *t, ErrorText e) {
    uint64_t n = t->dtype == DT_none ? 0 : t->bytes / dtype_bytes(t->dtype);
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(dtype_load_f64(t->dtype, t->data, i)))
            return error_set(e, GRAPHC_INVALID, "tensor \"%s\": element %llu is not finite",
                             safe_name(t->name).text, (unsigned long long)i);
    return GRAPHC_OK;
}

static graphc_status check_module(const AdapterConfig *c, AdapterModule *m, ErrorText e) {
    int64_t rank;
    const char *missing = m->a.dtype == DT_none                      ? "A"
                          : m->b.dtype == DT_none                    ? "B"
                          : c->dora && m->magnitude.dtype == DT_none ? "the magnitude"
                          : c->lora_bias && m->bias.dtype == DT_none ? "the bias of B"
                                                                     : NULL;
    if (missing)
        return error_set(e, GRAPHC_INVALID, "module %s lacks %s", safe_name(m->path).text, missing);
    if ((!c->dora && m->magnitude.dtype != DT_none) || (!c->lora_bias && m->bias.dtype != DT_none))
        return error_set(e, GRAPHC_INVALID, "module %s has %s, the configuration does not",
                         safe_name(m->path).text,
                         c->dora ? "a bias of B" : "a magnitude or a bias of B");
    GC_TRY(adapter_scale(c, m->path, &rank, &m->scale, e));
    GC_TRY(check_shapes(m, rank, e));
    for (int p = 0; p < PART_COUNT; p++)
        GC_TRY(check_finite(adapter_tensor(m, (AdapterPartKind)p), e));
    return GRAPHC_OK;
}

static graphc_status read_tensors(Adapter *a, ErrorText e) {
    const Safetensors *s = &a->file;
    size_t room = 1;
    for (uint32_t i = 0; i < s->ntensors; i++) room += strlen(s->tensors[i].name) + 1;
    a->modules = calloc((size_t)s->ntensors + 1, sizeof *a->modules);
    a->whole = calloc((size_t)s->ntensors + 1, sizeof *a->whole);
    char *text = a->paths = malloc(room);
    if (!a->modules || !a->whole || !text)
        return error_set(e, GRAPHC_NO_MEMORY, "not enough memory");
    for (uint32_t i = 0; i < s->ntensors; i++) GC_TRY(sort_tensor(a, &s->tensors[i], &text, e));
    GC_TRY(join(a, e));
    for (uint32_t i = 0; i < a->nmodules; i++) GC_TRY(check_module(&a->config, &a->modules[i], e));
    for (uint32_t i = 0; i < a->nwhole; i++) GC_TRY(check_finite(&a->whole[i], e));
    if (a->nmodules + a->nwhole) return GRAPHC_OK;
    return error_set(e, GRAPHC_INVALID, "holds no tensor");
}

graphc_status adapter_read(const char *folder, Adapter *out, ErrorText e) {
    char inner[512] = "";
    const char *file = ADAPTER_CONFIG;
    const ErrorText in = {inner, sizeof inner};
    size_t n = strlen(folder) + 64;
    char *path = malloc(n);
    *out = (Adapter){0};
    if (!path) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory");
    snprintf(path, n, "%s/%s", folder, file);
    graphc_status st = adapter_config_read(path, &out->config, in);
    if (st == GRAPHC_OK) {
        file = ADAPTER_MODEL;
        snprintf(path, n, "%s/%s", folder, file);
        st = safetensors_open(path, &out->file, in);
    }
    if (st == GRAPHC_OK) st = safetensors_check(&out->file, false, in);
    if (st == GRAPHC_OK) st = read_tensors(out, in);
    if (st != GRAPHC_OK) {
        (void)error_set(e, st, "%s: %s", path, inner);
        adapter_free(out);
    }
    free(path);
    return st;
}

void adapter_free(Adapter *a) {
    adapter_config_free(&a->config);
    safetensors_close(&a->file);
    free(a->modules);
    free(a->whole);
    free(a->paths);
    *a = (Adapter){0};
}

graphc_status adapter_match(const Adapter *a, const AdapterTarget *targets, uint32_t n,
                            ErrorText e) {
    for (uint32_t i = 0; i < a->nmodules; i++) {
        const AdapterModule *m = &a->modules[i];
        uint32_t k = 0;
        while (k < n && strcmp(targets[k].path, m->path)) k++;
        if (k == n)
            return error_set(
                e, GRAPHC_INVALID, "the model has no module %s; it has %u, the first is %s",
                safe_name(m->path).text, n, n ? safe_name(targets[0].path).text : "none");
        if (m->a.dim[1] != targets[k].in || m->b.dim[0] != targets[k].out)
            return error_set(
                e, GRAPHC_INVALID,
                "module %s goes from %lld to %lld in the adapter, from %lld to %lld in the "
                "model",
                safe_name(m->path).text, (long long)m->a.dim[1], (long long)m->b.dim[0],
                (long long)targets[k].in, (long long)targets[k].out);
    }
    return GRAPHC_OK;
}
