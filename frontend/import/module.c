/* Where a node lies in the exporter's tree of modules, as its file says it. */
#include "frontend/import/import_impl.h"
#include <string.h>

/* The last but one name of "['', 'm', 'm.layers.0', 'linear']", which torch.onnx's exporter writes
 * into pkg.torch.onnx.name_scopes: the modules that a node lies in, and then the node itself. */
static const char *last_scope(Arena *a, const char *list) {
    const char *from = "", *last = "";
    size_t n = 0, nlast = 0;
    for (const char *s = list; *s; s++) {
        char quote = *s;
        if (quote != '\'' && quote != '"') continue;
        const char *end = strchr(s + 1, quote);
        if (!end) break;
        from = last, n = nlast;
        last = s + 1, nlast = (size_t)(end - last);
        s = end;
    }
    return arena_strndup(a, from, n);
}

/* "/model/layers.0/mlp/up_proj/MatMul", as torch's older exporter names nodes: what lies above the
 * last slash, with dots. */
static const char *named_scope(Arena *a, const char *name) {
    const char *end = strrchr(name, '/');
    if (*name != '/' || end == name) return "";
    char *path = arena_strndup(a, name + 1, (size_t)(end - name) - 1);
    for (char *s = path; *s; s++)
        if (*s == '/') *s = '.';
    return path;
}

const char *module_path(Arena *a, const Onnx__NodeProto *node) {
    for (size_t i = 0; i < node->n_metadata_props; i++) {
        const Onnx__StringStringEntryProto *m = node->metadata_props[i];
        if (!strcmp(text_or_empty(m->key), "pkg.torch.onnx.name_scopes"))
            return last_scope(a, text_or_empty(m->value));
    }
    return named_scope(a, text_or_empty(node->name));
}
