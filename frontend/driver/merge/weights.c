/* A merged model's parameters as a safetensors file. */
#include "frontend/driver/merge/merge.h"

#include <stdlib.h>
#include <string.h>

/* As the module has it. */
static graphc_status put(const Merge *all, const MergeItem *m, SafetensorsWriter *w, ErrorText e) {
    const uint64_t size = dtype_bytes(m->dtype), rows = m->rank == 2 ? (uint64_t)m->dim[0] : 1,
                   columns = m->rank == 2 ? (uint64_t)m->dim[1] : merge_count(m);
    char *v = malloc(m->from->bytes + 1), *turned = m->turned ? malloc(m->from->bytes + 1) : NULL;
    graphc_status st = v && (turned || !m->turned)
                           ? GRAPHC_OK
                           : diag(all->diags, D_NO_MEMORY, m->name, "not enough memory");
    if (st == GRAPHC_OK && merge_changes(m)) st = merge_elements(all, m, v);
    if (st == GRAPHC_OK && !merge_changes(m)) memcpy(v, m->from->data, m->from->bytes);
    for (uint64_t i = 0; st == GRAPHC_OK && m->turned && i < rows * columns; i++)
        memcpy(turned + (i % columns * rows + i / columns) * size, v + i * size, size);
    if (st == GRAPHC_OK && safetensors_put(w, turned ? turned : v, m->from->bytes, e) != GRAPHC_OK)
        st = diag(all->diags, D_IO, "", "%s", e.text);
    free(v);
    free(turned);
    return st;
}

graphc_status merge_write_safetensors(const Merge *all, const char *out) {
    static const SafePair format = {"format", "pt"};
    char why[512] = "";
    const ErrorText e = {why, sizeof why};
    const uint32_t n = all->items.n;
    SafeTensor *v = ARENA_ARRAY(all->arena, SafeTensor, n);
    int64_t(*dims)[GRAPH_MAX_RANK] = arena_array(all->arena, n + 1, sizeof *dims);
    SafetensorsWriter w;
    for (uint32_t i = 0; i < n; i++) {
        const MergeItem *m = &all->items.v[i];
        memcpy(dims[i], m->dim, sizeof dims[i]);
        if (m->turned) dims[i][0] = m->dim[1], dims[i][1] = m->dim[0];
        v[i] = (SafeTensor){.name = m->name, .dtype = m->dtype, .rank = m->rank, .dim = dims[i]};
    }
    graphc_status st = safetensors_begin(&w, out, v, n, &format, 1, false, e);
    if (st != GRAPHC_OK) return diag(all->diags, D_IO, out, "%s", why);
    for (uint32_t i = 0; i < n && st == GRAPHC_OK; i++)
        st = put(all, &all->items.v[w.order[i]], &w, e);
    if (st != GRAPHC_OK) {
        safetensors_abandon(&w);
        return st;
    }
    return safetensors_commit(&w, e) == GRAPHC_OK ? GRAPHC_OK
                                                  : diag(all->diags, D_IO, out, "%s", why);
}
