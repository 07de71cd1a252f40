/* Writing adapters, so that PEFT finds every tensor. */
#include "runtime/base/file.h"
#include "runtime/train/adapter/names.h"
#include "runtime/train/adapter/pattern.h"
#include "runtime/train/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- does the configuration say what there is? ------------------------------------------------ */

static graphc_status is_target(const AdapterConfig *c, const char *path, bool *out, ErrorText e) {
    *out = false;
    if (c->targets_regex) {
        *out = c->targets.n && strcmp(c->targets.v[0], "all-linear") == 0;
        return *out || !c->targets.n ? GRAPHC_OK
                                     : pattern_matches(c->targets.v[0], path, false, out, e);
    }
    size_t m = strlen(path);
    for (uint32_t i = 0; i < c->targets.n && !*out; i++) {
        size_t n = strlen(c->targets.v[i]);
        *out = m >= n && strcmp(path + m - n, c->targets.v[i]) == 0 &&
               (m == n || path[m - n - 1] == '.');
    }
    return GRAPHC_OK;
}

static graphc_status check_module(const AdapterConfig *c, const AdapterModule *m, ErrorText e) {
    bool target;
    int64_t rank;
    double scale;
    SafeName path = safe_name(m->path);
    GC_TRY(is_target(c, m->path, &target, e));
    if (!target)
        return error_set(e, GRAPHC_USAGE, "module %s is no target of the configuration", path.text);
    GC_TRY(adapter_scale(c, m->path, &rank, &scale, e));
    if (m->a.rank < 2 || m->b.rank != m->a.rank || m->a.dim[0] != rank || m->b.dim[1] != rank)
        return error_set(e, GRAPHC_USAGE,
                         "module %s: A and B do not have the configuration's rank of %lld",
                         path.text, (long long)rank);
    if (c->dora != (m->magnitude.dtype != DT_none) || c->lora_bias != (m->bias.dtype != DT_none))
        return error_set(e, GRAPHC_USAGE, "module %s: magnitude or bias of B are not as configured",
                         path.text);
    return GRAPHC_OK;
}

/* --- tensors --------------------------------------------------------------------------------- */

typedef struct Names {
    SafeTensor *v;
    size_t *at; /* of each name in the text */
    uint32_t n;
    Text text;
} Names;

static void add(Names *o, const SafeTensor *t, const char *path, const char *suffix) {
    if (t->dtype == DT_none) return;
    o->at[o->n] = o->text.n;
    text_printf(&o->text, ADAPTER_PREFIX "%s%s", path, suffix);
    text_putn(&o->text, "", 1);
    o->v[o->n++] = *t;
}

static void add_module(Names *o, const AdapterModule *m) {
    const SafeTensor *const parts[PART_COUNT] = {[PART_a] = &m->a,
                                                 [PART_b] = &m->b,
                                                 [PART_magnitude] = &m->magnitude,
                                                 [PART_bias] = &m->bias};
    for (int p = 0; p < PART_COUNT; p++)
        add(o, parts[p], m->path, adapter_suffix((AdapterPartKind)p, m->kind));
}

/* A parameter of the model: of an adapted module's own it is told that it is the base's. */
static void add_whole(Names *o, const AdapterModule *modules, uint32_t nmodules,
                      const SafeTensor *t) {
    const char *dot = strrchr(t->name, '.');
    size_t n = dot ? (size_t)(dot - t->name) : 0;
    uint32_t i = 0;
    while (i < nmodules && (strncmp(modules[i].path, t->name, n) || modules[i].path[n])) i++;
    if (!dot || i == nmodules) {
        add(o, t, t->name, "");
        return;
    }
    char suffix[96];
    snprintf(suffix, sizeof suffix, ADAPTER_BASE "%s", dot);
    add(o, t, modules[i].path, suffix);
}

static graphc_status write_tensors(const char *path, const AdapterModule *modules,
                                   uint32_t nmodules, const SafeTensor *whole, uint32_t nwhole,
                                   ErrorText e) {
    const SafePair format = {"format", "pt"};
    size_t room = (size_t)nmodules * PART_COUNT + nwhole + 1;
    Names o = {.v = calloc(room, sizeof *o.v), .at = calloc(room, sizeof *o.at)};
    for (uint32_t i = 0; o.v && o.at && i < nmodules; i++) add_module(&o, &modules[i]);
    for (uint32_t i = 0; o.v && o.at && i < nwhole; i++)
        add_whole(&o, modules, nmodules, &whole[i]);
    graphc_status st = GRAPHC_OK;
    if (!o.v || !o.at || o.text.failed) st = error_set(e, GRAPHC_NO_MEMORY, "not enough memory");
    for (uint32_t i = 0; st == GRAPHC_OK && i < o.n; i++) o.v[i].name = o.text.p + o.at[i];
    if (st == GRAPHC_OK) st = safetensors_write(path, o.v, o.n, &format, 1, true, e);
    free(o.v);
    free(o.at);
    text_free(&o.text);
    return st;
}

/* -------------------------------------------------------------------------------------------- */

static graphc_status write_config(const char *path, const AdapterConfig *c, ErrorText e) {
    char why[256], *text;
    size_t n;
    GC_TRY(adapter_config_text(c, &text, &n, e));
    graphc_status st = file_write(path, text, n, why);
    free(text);
    return st == GRAPHC_OK ? st : error_set(e, st, "%s", why);
}

graphc_status adapter_write(const char *folder, const AdapterConfig *c,
                            const AdapterModule *modules, uint32_t nmodules,
                            const SafeTensor *whole, uint32_t nwhole, ErrorText e) {
    char inner[512] = "";
    const ErrorText in = {inner, sizeof inner};
    size_t n = strlen(folder) + 64;
    for (uint32_t i = 0; i < nmodules; i++) GC_TRY(check_module(c, &modules[i], e));
    graphc_status st = folder_make(folder, inner);
    if (st != GRAPHC_OK) return error_set(e, st, "%s %s", folder, inner);
    char *path = malloc(n);
    if (!path) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory");
    snprintf(path, n, "%s/" ADAPTER_MODEL, folder);
    st = write_tensors(path, modules, nmodules, whole, nwhole, in);
    if (st == GRAPHC_OK) {
        snprintf(path, n, "%s/" ADAPTER_CONFIG, folder);
        st = write_config(path, c, in);
    }
    if (st != GRAPHC_OK) (void)error_set(e, st, "%s: %s", path, inner);
    free(path);
    return st;
}
