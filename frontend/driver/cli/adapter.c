/* --adapter: PEFT folders beside a model. A model is compiled with states where their matrices go,
 * of one adapter or of several side by side, and they are filled when a session is made; a plan has
 * such states already. Other adapters of the same layers fit the same plan. */
#include "frontend/driver/cli/session.h"
#include "runtime/base/map.h"
#include "runtime/graphc_train.h"
#include "runtime/train/adapter/adapter.h"

#include <string.h>

typedef struct CliFolder {
    const char *name, *path;
    Adapter *adapter;
} CliFolder;

struct CliAdapter {
    VEC(CliFolder) v;
    LoraSpec spec;
};

static void release(void *p) {
    adapter_free(p);
}

static graphc_status bad(Cli *c, graphc_status st, const char *why) {
    DiagId id = st == GRAPHC_IO            ? D_IO
                : st == GRAPHC_UNSUPPORTED ? D_UNSUPPORTED
                : st == GRAPHC_USAGE       ? D_USAGE
                : st == GRAPHC_NO_MEMORY   ? D_NO_MEMORY
                                           : D_ADAPTER;
    return diag(c->diags, id, "--adapter", "%s", why);
}

/* --- Reading ---------------------------------------------------------------------------------- */

/* NAME=DIR, or DIR, whose name is its number. */
static CliFolder folder_of(Cli *c, const char *text, uint32_t i) {
    const char *eq = strchr(text, '='), *slash = strchr(text, '/');
    if (!eq || eq == text || (slash && slash < eq))
        return (CliFolder){arena_printf(c->arena, "%u", i), text, NULL};
    return (CliFolder){arena_strndup(c->arena, text, (size_t)(eq - text)), eq + 1, NULL};
}

/* --adapter-rows tells them by their names, with commas between, and "-" is none. */
static graphc_status check_name(Cli *c, const CliAdapter *all, const char *name) {
    const char *why = !strcmp(name, "-") || strchr(name, ',') ? "is no name for an adapter" : NULL;
    for (uint32_t i = 0; i < all->v.n; i++)
        if (!strcmp(all->v.v[i].name, name)) why = "is the name of two adapters";
    if (!why) return GRAPHC_OK;
    return diag(c->diags, D_USAGE, "--adapter", "\"%s\" %s", name, why);
}

static graphc_status read_folder(Cli *c, CliFolder *f) {
    char why[512];
    f->adapter = ARENA_NEW(c->arena, Adapter);
    graphc_status st = adapter_read(f->path, f->adapter, (ErrorText){why, sizeof why});
    if (st != GRAPHC_OK) return bad(c, st, why);
    arena_at_destroy(c->arena, release, f->adapter);
    for (uint32_t i = 0; !c->json && i < f->adapter->config.unknown.n; i++)
        cli_print(stderr, "graphc: %s: the field \"%s\" is not known and passed over\n", f->path,
                  f->adapter->config.unknown.v[i]);
    return GRAPHC_OK;
}

/* --- What a model is compiled with ------------------------------------------------------------ */

typedef VEC(LoraModule) Modules;
typedef VEC(LoraParameter) Parameters;

static graphc_status add_module(Cli *c, const AdapterModule *m, MapStr *seen, Modules *out) {
    uint32_t i;
    if (m->kind == ADAPTER_convolution)
        return bad(
            c, GRAPHC_UNSUPPORTED,
            arena_printf(c->arena, "%s: adapters of convolutions are not supported", m->path));
    LoraModule one = {.path = m->path,
                      .kind = m->kind == ADAPTER_linear ? LAYER_linear : LAYER_embedding,
                      .rank = (uint32_t)m->a.dim[0],
                      .magnitude = m->magnitude.dtype != DT_none,
                      .bias = m->bias.dtype != DT_none};
    if (!mapstr_get(seen, m->path, &i)) {
        mapstr_put(seen, m->path, out->n);
        vec_push(c->arena, out, one);
        return GRAPHC_OK;
    }
    if (out->v[i].kind != one.kind)
        return bad(c, GRAPHC_INVALID, arena_printf(c->arena, "%s is of two kinds", m->path));
    if (out->v[i].rank < one.rank) out->v[i].rank = one.rank;
    return GRAPHC_OK;
}

static LoraParameter parameter(const Adapter *a, const SafeTensor *t) {
    LoraParameter p = {.name = t->name, .bytes = t->bytes, .dtype = t->dtype};
    if (!adapter_trains(&a->config, t->name)) p.copy = t->data;
    return p;
}

/* Adapters that share a batch add products of two matrices, and nothing else. */
static graphc_status check_shared(Cli *c, const CliFolder *f) {
    const Adapter *a = f->adapter;
    for (uint32_t i = 0; i < a->nwhole; i++)
        if (adapter_trains(&a->config, a->whole[i].name))
            return bad(c, GRAPHC_UNSUPPORTED,
                       arena_printf(c->arena, "%s has a %s of its own: it goes alone, or merged",
                                    f->path, a->whole[i].name));
    if (!a->config.dora && !a->config.lora_bias) return GRAPHC_OK;
    return bad(c, GRAPHC_UNSUPPORTED,
               arena_printf(c->arena, "%s has %s: it goes alone, or merged", f->path,
                            a->config.dora ? "magnitudes (DoRA)" : "biases"));
}

static graphc_status make_spec(Cli *c, CliAdapter *all) {
    Modules modules = {0};
    Parameters whole = {0};
    MapStr *seen = mapstr_create(c->arena);
    bool shared = all->v.n > 1 || c->adapter_rows;
    for (uint32_t k = 0; k < all->v.n; k++) {
        const Adapter *a = all->v.v[k].adapter;
        if (shared) GC_TRY(check_shared(c, &all->v.v[k]));
        for (uint32_t i = 0; i < a->nmodules; i++)
            GC_TRY(add_module(c, &a->modules[i], seen, &modules));
        for (uint32_t i = 0; i < a->nwhole; i++)
            vec_push(c->arena, &whole, parameter(a, &a->whole[i]));
    }
    uint32_t most = 0;
    for (uint32_t i = 0; i < modules.n; i++)
        if (modules.v[i].rank > most) most = modules.v[i].rank;
    for (uint32_t i = 0; shared && i < modules.n; i++) modules.v[i].rank = most;
    all->spec = (LoraSpec){.modules = modules.v,
                           .nmodules = modules.n,
                           .rank = 1, /* with alpha a scale of 1: B comes with its own */
                           .alpha = 1,
                           .whole = whole.v,
                           .nwhole = whole.n,
                           .slots = shared ? all->v.n : 0};
    if (modules.n || whole.n) return GRAPHC_OK;
    return bad(c, GRAPHC_INVALID, "it adapts no module");
}

graphc_status cli_adapter_read(Cli *c) {
    if (c->adapter_rows && !c->adapter.n)
        return diag(c->diags, D_USAGE, "--adapter-rows", "there is no --adapter");
    if (!c->adapter.n || c->adapted) return GRAPHC_OK;
    CliAdapter *all = ARENA_NEW(c->arena, CliAdapter);
    for (uint32_t i = 0; i < c->adapter.n; i++) {
        CliFolder f = folder_of(c, c->adapter.v[i], i);
        GC_TRY(check_name(c, all, f.name));
        GC_TRY(read_folder(c, &f));
        vec_push(c->arena, &all->v, f);
    }
    c->adapted = all;
    return make_spec(c, all);
}

const LoraSpec *cli_adapter_spec(const Cli *c) {
    return c->adapted ? &c->adapted->spec : NULL;
}

const char *cli_adapter_folder(const Cli *c) {
    return c->adapted->v.v[0].path;
}

const Adapter *cli_adapter_first(const Cli *c) {
    return c->adapted->v.v[0].adapter;
}

/* --- Into a session --------------------------------------------------------------------------- */

graphc_status cli_adapter_load(CliSession *s) {
    const CliAdapter *a = s->cli->adapted;
    for (uint32_t i = 0; a && i < a->v.n; i++) {
        char why[512];
        graphc_adapter *loaded;
        graphc_status st = graphc_adapter_open(a->v.v[i].path, &loaded, why, sizeof why);
        if (st != GRAPHC_OK) return bad(s->cli, st, why);
        st = graphc_adapter_place(loaded, s->session, i, why, sizeof why);
        graphc_adapter_destroy(loaded);
        if (st != GRAPHC_OK)
            return bad(s->cli, st, arena_printf(s->cli->arena, "%s: %s", a->v.v[i].path, why));
    }
    return GRAPHC_OK;
}

/* The number of an adapter by its name; "-" is none of them. */
static bool slot_of(const CliAdapter *a, const char *name, size_t n, int64_t *out) {
    *out = -1;
    if (n == 1 && *name == '-') return true;
    for (uint32_t i = 0; i < a->v.n && *out < 0; i++)
        if (!strncmp(a->v.v[i].name, name, n) && !a->v.v[i].name[n]) *out = i;
    return *out >= 0;
}

graphc_status cli_adapter_bind(CliSession *s, int64_t rows) {
    Cli *c = s->cli;
    int32_t at = graphc_plan_find_input(s->plan, "adapter");
    const CliAdapter *a = c->adapted;
    if (a && c->adapter_rows && at < 0)
        return diag(c->diags, D_USAGE, "--adapter-rows", "the plan has a place for one adapter");
    if (!a || at < 0 || s->inputs[at].data) return GRAPHC_OK;
    if (!c->adapter_rows && a->v.n > 1)
        return diag(c->diags, D_USAGE, "--adapter-rows", "is missing: there are %u adapters",
                    a->v.n);
    int64_t n = c->adapter_rows ? 1 : rows, slot = 0;
    for (const char *p = c->adapter_rows; p && *p; p++) n += *p == ',';
    int64_t *v = arena_array(c->arena, (size_t)n + 1, sizeof *v);
    const char *p = c->adapter_rows;
    for (int64_t i = 0; i < n; i++) {
        size_t size = p ? strcspn(p, ",") : 0;
        if (p && !slot_of(a, p, size, &slot))
            return diag(c->diags, D_USAGE, "--adapter-rows", "\"%.*s\" is no adapter's name",
                        (int)size, p);
        v[i] = slot;
        if (p) p += size + (p[size] == ',');
    }
    s->inputs[at] = (EvalTensor){.dtype = DT_i64, .rank = 1, .dim = {n}, .data = v};
    return GRAPHC_OK;
}
