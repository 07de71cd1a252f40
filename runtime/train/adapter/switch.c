/* graphc_adapter: adapters in memory, copied into a session's states. */
#include "runtime/graphc_train.h"
#include "runtime/train/adapter/adapted.h"

#include <stdlib.h>
#include <string.h>

struct graphc_adapter {
    Adapter adapter;
};

graphc_status graphc_adapter_open(const char *folder, graphc_adapter **out, char *error,
                                  size_t error_size) {
    ErrorText e = {error, error_size};
    if (error && error_size) error[0] = 0;
    if (!folder || !out)
        return error_set(e, GRAPHC_USAGE, "graphc_adapter_open needs a folder and a place");
    *out = NULL;
    graphc_adapter *a = calloc(1, sizeof *a);
    if (!a) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory for an adapter");
    graphc_status st = adapter_read(folder, &a->adapter, e);
    if (st != GRAPHC_OK) return free(a), st;
    *out = a;
    return GRAPHC_OK;
}

void graphc_adapter_destroy(graphc_adapter *a) {
    if (!a) return;
    adapter_free(&a->adapter);
    free(a);
}

graphc_status graphc_adapter_apply(const graphc_adapter *a, graphc_session *s, char *error,
                                   size_t error_size) {
    return graphc_adapter_place(a, s, 0, error, error_size);
}

graphc_status graphc_adapter_place(const graphc_adapter *a, graphc_session *s, uint32_t slot,
                                   char *error, size_t error_size) {
    ErrorText e = {error, error_size};
    AdapterConfig c;
    if (error && error_size) error[0] = 0;
    if (!s) return error_set(e, GRAPHC_USAGE, "an adapter needs a session");
    const graphc_plan *plan = graphc_session_plan(s);
    const char *text = graphc_plan_note(plan, "adapter");
    if (!text) return error_set(e, GRAPHC_USAGE, "the plan was compiled without adapters");
    GC_TRY(adapter_config_parse(text, strlen(text), &c, e));
    graphc_status st = adapted_switch(a ? &a->adapter : NULL, &c, slot, s, e);
    adapter_config_free(&c);
    return st;
}
