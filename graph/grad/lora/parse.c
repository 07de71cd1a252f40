/* Adapters as the command line describes them. */
#include "graph/grad/lora/lora.h"
#include "runtime/base/strbuf.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANK 4096

static bool starts(const char *s, const char *with, const char **rest) {
    size_t n = strlen(with);
    if (strncmp(s, with, n)) return false;
    *rest = s + n;
    return true;
}

static const char *word(Arena *a, const char *v, const char **end) {
    *end = v + strcspn(v, ",");
    return arena_strndup(a, v, (size_t)(*end - v));
}

/* Of those that f32 has. */
static double real(const char *v, const char **end) {
    char *stop;
    double x = strtod(v, &stop);
    *end = stop == v || !(fabs(x) <= FLT_MAX) ? "?" : stop;
    return x;
}

/* PATTERN=NUMBER. A pattern ends at the last = in front of a comma and a name, or at the end. */
static bool pattern(Arena *a, const char *v, LoraPatterns *out, const char **end) {
    for (const char *eq = strchr(v, '='); eq; eq = strchr(eq + 1, '=')) {
        LoraPattern p = {arena_strndup(a, v, (size_t)(eq - v)), real(eq + 1, end)};
        if (**end && **end != ',') continue;
        vec_push(a, out, p);
        return eq > v;
    }
    return false;
}

static bool bias(Arena *a, const char *v, LoraBias *out, const char **end) {
    static const char *const names[] = {"none", "all", "lora_only"};
    const char *name = word(a, v, end);
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, names[i])) return *out = (LoraBias)i, true;
    return false;
}

static bool rank_from(double x, uint32_t *out) {
    *out = x >= 1 && x <= MAX_RANK ? (uint32_t)x : 0;
    return *out && (double)*out == x;
}

/* One item of the text; false: there is no such. *end: behind it. */
static bool item(Arena *a, const char *s, LoraSpec *out, const char **end, bool *known) {
    const char *v;
    *known = true;
    if (starts(s, "r=", &v)) return rank_from(real(v, end), &out->rank);
    if (starts(s, "alpha=", &v)) return out->alpha = real(v, end), true;
    if (starts(s, "dropout=", &v)) {
        out->dropout = real(v, end);
        return out->dropout >= 0 && out->dropout < 1;
    }
    if (starts(s, "bias=", &v)) return bias(a, v, &out->bias, end);
    if (starts(s, "root=", &v)) return out->root = word(a, v, end), true;
    if (starts(s, "rank:", &v)) return pattern(a, v, &out->ranks, end);
    if (starts(s, "alpha:", &v)) return pattern(a, v, &out->alphas, end);
    if (starts(s, "save=", &v)) {
        const char *name = word(a, v, end);
        vec_push(a, &out->save, name);
        return *name != 0;
    }
    if (starts(s, "rslora", end)) return out->rslora = true;
    if (starts(s, "dora", end)) return out->dora = true;
    return *known = false;
}

graphc_status lora_parse(Arena *a, DiagSink *d, const char *text, LoraSpec *out) {
    *out = (LoraSpec){.rank = 8, .alpha = 8, .targets = "all-linear"};
    for (const char *s = text, *end = s; *s; s = end + (*end == ',')) {
        bool known;
        if (starts(s, "targets=", &out->targets)) {
            out->targets = arena_strdup(a, out->targets);
            break; /* the rest: it may hold commas */
        }
        if (item(a, s, out, &end, &known) && (!*end || *end == ',')) continue;
        return diag(d, D_USAGE, "--lora",
                    known ? "\"%s\" has no such value"
                          : "\"%s\": r=, alpha=, dropout=, rslora, dora, bias=, save=, rank:, "
                            "alpha:, root= or targets= is wanted",
                    s);
    }
    return GRAPHC_OK;
}

graphc_status lora_matches(const char *pattern, DiagSink *d, const char *path, bool *out) {
    regex_t r;
    char whole[1024];
    int n = snprintf(whole, sizeof whole, "(.*\\.)?(%s)", pattern);
    if (n >= (int)sizeof whole || regcomp(&r, whole, REG_EXTENDED))
        return diag(d, D_USAGE, "--lora", "\"%s\" is no regular expression", pattern);
    *out = layer_matches(&r, path);
    regfree(&r);
    return GRAPHC_OK;
}

/* The value of the first pattern that matches, or *value as it was. */
static graphc_status by_pattern(const LoraPatterns *p, DiagSink *d, const char *path,
                                double *value) {
    for (uint32_t i = 0; i < p->n; i++) {
        bool matches;
        GC_TRY(lora_matches(p->v[i].text, d, path, &matches));
        if (!matches) continue;
        *value = p->v[i].value;
        break;
    }
    return GRAPHC_OK;
}

graphc_status lora_scale(const LoraSpec *s, DiagSink *d, const char *path, uint32_t *rank,
                         double *scale) {
    double r = s->rank, alpha = s->alpha;
    GC_TRY(by_pattern(&s->ranks, d, path, &r));
    GC_TRY(by_pattern(&s->alphas, d, path, &alpha));
    if (!rank_from(r, rank)) return diag(d, D_USAGE, "--lora", "a rank of %g for %s", r, path);
    *scale = alpha / (s->rslora ? sqrt(r) : r);
    return GRAPHC_OK;
}
