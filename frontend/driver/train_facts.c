#include "frontend/driver/train_facts.h"
#include "runtime/train/adapter/adapter.h"

#include <math.h>
#include <stdlib.h>

/* PEFT's start: A uniform within 1 / sqrt(in), B zeros; of an embedding A zeros, B normal of
 * deviation 1. */
static float spread_of(const TrainGraph *t, Value param) {
    for (uint32_t i = 0; i < t->lora.v.n; i++) {
        const LoraLayer *l = &t->lora.v.v[i];
        bool linear = l->kind == LAYER_linear;
        if (param == (linear ? l->a : l->b)) return linear ? (float)(1 / sqrt((double)l->in)) : 1;
    }
    return 0;
}

typedef VEC(PlanStateFact) Facts;

static void add_states(const TrainGraph *t, const TrainState *v, uint32_t n, PlanRole role,
                       Arena *a, Facts *out) {
    for (uint32_t i = 0; i < n; i++) {
        const char *of = v[i].param ? train_name(t, v[i].param - 1) : NULL;
        vec_push(a, out, ((PlanStateFact){.name = v[i].name, .of = of, .role = role}));
    }
}

static void list_states(Pipeline *p, PlanBuildOptions *out) {
    const TrainGraph *t = &p->training;
    Facts all = {0};
    for (uint32_t i = 0; i < t->params.n; i++)
        vec_push(p->arena, &all,
                 ((PlanStateFact){.name = train_name(t, i),
                                  .role = PLAN_ROLE_parameter,
                                  .spread = spread_of(t, t->params.v[i])}));
    add_states(t, t->buffers.v, t->buffers.n, PLAN_ROLE_buffer, p->arena, &all);
    add_states(t, t->moments.v, t->moments.n, PLAN_ROLE_moment, p->arena, &all);
    add_states(t, t->gradients.v, t->gradients.n, PLAN_ROLE_gradient, p->arena, &all);
    out->facts = all.v;
    out->nfacts = all.n;
}

/* Parameters of the model that an adapter brings, in a plan that runs. */
static void list_whole(Pipeline *p, PlanBuildOptions *out) {
    const LoraLayers *l = &p->training.lora;
    Facts all = {0};
    for (uint32_t i = 0; i < l->whole.n; i++)
        vec_push(p->arena, &all,
                 ((PlanStateFact){.name = l->whole.v[i].name, .role = PLAN_ROLE_parameter}));
    out->facts = all.v;
    out->nfacts = all.n;
}

static AdapterPatterns patterns_of(Arena *a, const LoraPatterns *p) {
    AdapterPattern *v = ARENA_ARRAY(a, AdapterPattern, p->n);
    for (uint32_t i = 0; i < p->n; i++) v[i] = (AdapterPattern){p->v[i].text, p->v[i].value};
    return (AdapterPatterns){v, p->n};
}

/* What PEFT has to know of the adapters; NULL: out of memory. */
static const char *adapter_text(Pipeline *p, const LoraSpec *spec) {
    static const AdapterBias biases[] = {[LORA_BIAS_none] = ADAPTER_none,
                                         [LORA_BIAS_all] = ADAPTER_all,
                                         [LORA_BIAS_lora_only] = ADAPTER_lora_only};
    const LoraLayers *l = &p->training.lora;
    const char **paths = ARENA_ARRAY(p->arena, const char *, l->v.n);
    for (uint32_t i = 0; i < l->v.n; i++) paths[i] = l->v.v[i].path;
    const AdapterConfig c = {.r = spec->rank,
                             .alpha = spec->alpha,
                             .dropout = spec->dropout,
                             .rslora = spec->rslora,
                             .dora = spec->dora,
                             .bias = biases[spec->bias],
                             .modules_to_save = {spec->save.v, spec->save.n},
                             .rank_pattern = patterns_of(p->arena, &spec->ranks),
                             .alpha_pattern = patterns_of(p->arena, &spec->alphas),
                             .targets = {paths, l->v.n}};
    char *text;
    size_t n;
    if (adapter_config_text(&c, &text, &n, (ErrorText){0}) != GRAPHC_OK) return NULL;
    const char *kept = arena_strndup(p->arena, text, n);
    free(text);
    return kept;
}

static void note(PlanNoteText *notes, uint32_t *n, const char *key, const char *text) {
    if (text) notes[(*n)++] = (PlanNoteText){key, text};
}

static const char *number(Arena *a, int64_t n) {
    return arena_printf(a, "%lld", (long long)n);
}

/* What data of integers has to look like. */
static void note_integers(Pipeline *p, PlanNoteText *notes, uint32_t *n) {
    const TrainGraph *t = &p->training;
    note(notes, n, "labels", t->target);
    note(notes, n, "vocabulary", t->classes ? number(p->arena, t->classes) : NULL);
    note(notes, n, "ignored", t->labels ? number(p->arena, t->ignored) : NULL);
}

graphc_status train_facts(Pipeline *p, const graphc_training *t, PlanBuildOptions *out) {
    enum { MOST = 4 };
    PlanNoteText *notes = ARENA_ARRAY(p->arena, PlanNoteText, MOST);
    uint32_t n = 0;
    LoraSpec spec;
    const LoraSpec *adapters = p->lora;
    if (t && t->lora) {
        GC_TRY(lora_parse(p->arena, p->diags, t->lora, &spec));
        adapters = &spec;
    }
    if (adapters) {
        note(notes, &n, "adapter", adapter_text(p, adapters));
        if (!n) return diag(p->diags, D_NO_MEMORY, "", "what the plan says of its adapters");
    }
    if (!t) list_whole(p, out);
    if (t) {
        list_states(p, out);
        note_integers(p, notes, &n);
    }
    out->notes = notes;
    out->nnotes = n;
    return GRAPHC_OK;
}
