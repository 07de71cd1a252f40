/* --adapter: a PEFT folder beside a model. The model is compiled with states where the adapter's
 * matrices go, and they are filled when a session is made, so that another adapter of the same
 * layers fits the same plan. */
#include "frontend/driver/cli/session.h"
#include "runtime/train/adapter/adapted.h"

#include <string.h>

struct CliAdapter {
    Adapter adapter;
    LoraSpec spec;
    double scale;
};

static void release(void *p) {
    adapter_free(p);
}

static graphc_status bad(Cli *c, graphc_status st, const char *why) {
    DiagId id = st == GRAPHC_IO ? D_IO : st == GRAPHC_UNSUPPORTED ? D_UNSUPPORTED : D_ADAPTER;
    return diag(c->diags, st == GRAPHC_NO_MEMORY ? D_NO_MEMORY : id, "--adapter", "%s", why);
}

graphc_status cli_adapter_read(Cli *c) {
    char why[512];
    if (!c->adapter || c->adapted) return GRAPHC_OK;
    CliAdapter *a = ARENA_NEW(c->arena, CliAdapter);
    graphc_status st = adapter_read(c->adapter, &a->adapter, (ErrorText){why, sizeof why});
    if (st != GRAPHC_OK) return bad(c, st, why);
    arena_at_destroy(c->arena, release, &a->adapter);
    if (!a->adapter.nmodules) return bad(c, GRAPHC_INVALID, "it adapts no module");
    StrBuf targets;
    sb_init(&targets, c->arena);
    for (uint32_t i = 0; i < a->adapter.nmodules; i++)
        sb_printf(&targets, "%s%s", i ? "," : "", a->adapter.modules[i].path);
    const AdapterModule *first = &a->adapter.modules[0];
    a->scale = first->scale;
    a->spec = (LoraSpec){.rank = (uint32_t)first->a.dim[0], .targets = sb_str(&targets)};
    a->spec.alpha = first->scale * a->spec.rank;
    c->adapted = a;
    return GRAPHC_OK;
}

const LoraSpec *cli_adapter_spec(const Cli *c) {
    return c->adapted ? &c->adapted->spec : NULL;
}

graphc_status cli_adapter_load(CliSession *s) {
    char why[512];
    const CliAdapter *a = s->cli->adapted;
    if (!a) return GRAPHC_OK;
    graphc_status st =
        adapted_load(&a->adapter, a->scale, s->plan, s->session, (ErrorText){why, sizeof why});
    return st == GRAPHC_OK ? st : bad(s->cli, st, why);
}
