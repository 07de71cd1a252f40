/* Operator sets: which version of each domain a model or a function is written in. */
#include "frontend/import/import_impl.h"
#include <string.h>

const char *opsets_domain(const char *domain) {
    return !domain || !strcmp(domain, "ai.onnx") ? "" : domain;
}

bool opsets_read(Importer *im, Onnx__OperatorSetIdProto *const *sets, size_t n, const char *place,
                 Opsets *out) {
    Opset *v = ARENA_ARRAY(im->arena, Opset, n);
    MapStr *by_domain = mapstr_create(im->arena);
    for (size_t i = 0; i < n; i++) {
        const char *domain = opsets_domain(sets[i]->domain);
        const int64_t version = sets[i]->version;
        if (version < 1 || version > INT32_MAX)
            return diag(im->diags, D_MODEL, place, "opset %lld of domain \"%s\"",
                        (long long)version, domain),
                   false;
        if (!*domain && version > MAX_OPSET)
            return diag(im->diags, D_UNSUPPORTED_VERSION, place,
                        "opset %lld; up to %d is supported", (long long)version, MAX_OPSET),
                   false;
        uint32_t first;
        v[i] = (Opset){domain, (int)version};
        if (!mapstr_get(by_domain, domain, &first)) mapstr_put(by_domain, domain, (uint32_t)i);
    }
    *out = (Opsets){(uint32_t)n, v, by_domain};
    return true;
}

int opsets_version(const Opsets *o, const char *domain) {
    uint32_t i;
    return mapstr_get(o->by_domain, domain, &i) ? o->v[i].version : 0;
}
