/* ONNX model -> graph: files, versions, inputs, initializers, nodes, outputs. */
#include "frontend/import/import_impl.h"
#include <stdlib.h>
#include <string.h>

#define MIN_IR 3
#define MAX_IR 13

void import_close(Model *m) {
    if (!m) return;
    prescan_free(&m->scan);
    prescan_message_free(m->message);
    m->message = NULL;
    for (uint32_t i = 0; i < m->side.n; i++) file_unmap(&m->side.v[i]);
    m->side.n = 0;
    file_unmap(&m->file);
    m->file = (FileMap){0};
}

uint64_t import_hash(const Model *m) {
    return hash_bytes(m->file.data, m->file.size, 0);
}

static void close_model(void *m) {
    import_close(m);
}

static bool map_model(Model *m, DiagSink *d) {
    char why[256];
    m->file = (FileMap){.data = m->from.bytes, .size = m->from.size, .lent = true};
    graphc_status s = m->from.bytes ? GRAPHC_OK : file_map(m->path, &m->file, why);
    if (s != GRAPHC_OK) diag(d, s == GRAPHC_NO_MEMORY ? D_NO_MEMORY : D_IO, "", "%s", why);
    return s == GRAPHC_OK;
}

static Model *model_open(Arena *a, DiagSink *d, const char *path, ImportSource from,
                         const ProtobufCMessageDescriptor *root) {
    Model *m = ARENA_NEW(a, Model);
    arena_at_destroy(a, close_model, m);
    m->path = arena_strdup(a, path);
    m->from = from;
    if (!map_model(m, d)) return NULL;
    const char *kind = file_kind(m->file.data, m->file.size);
    if (kind) {
        (void)diag(d, D_WIRE, "", "no ONNX file, but %s", kind);
        import_close(m);
        return NULL;
    }
    if (prescan(root, m->file.data, m->file.size, d, &m->scan) == GRAPHC_OK)
        m->message = prescan_unpack(&m->scan, root, d);
    prescan_free(&m->scan);
    if (m->message) return m;
    import_close(m);
    return NULL;
}

Model *import_open(Arena *a, DiagSink *d, const char *path) {
    return model_open(a, d, path, (ImportSource){0}, &onnx__model_proto__descriptor);
}

static bool check_versions(Importer *im) {
    const Onnx__ModelProto *p = im->proto;
    if (!p->graph) return diag(im->diags, D_MODEL, "", "the file holds no graph"), false;
    if (p->ir_version < MIN_IR || p->ir_version > MAX_IR)
        return diag(im->diags, p->ir_version < 1 ? D_MODEL : D_UNSUPPORTED_VERSION, "",
                    "IR version %lld; %d to %d are supported", (long long)p->ir_version, MIN_IR,
                    MAX_IR),
               false;
    if (!p->n_opset_import)
        return diag(im->diags, D_MODEL, "", "the model imports no operator set"), false;
    return true;
}

enum { FREE_NAMES = 1 << 16 }; /* a small file may still unroll a loop */

static void import_outputs(Scope *s) {
    const Onnx__GraphProto *p = s->proto;
    Importer *im = s->im;
    for (size_t i = 0; i < p->n_output; i++) {
        const char *name = text_or_empty(p->output[i]->name);
        const char *place = arena_printf(im->arena, "output \"%s\"", name);
        Item item;
        if (!scope_find(s, name, &item))
            diag(im->diags, D_NAME, place, "no node, input or initializer defines it");
        else if (item.kind == ITEM_LIST || item.kind == ITEM_STACK || item.kind == ITEM_ABSENT)
            diag(im->diags, D_UNSUPPORTED_TYPE, place, "only tensors can be outputs");
        else if (item.kind == ITEM_TENSOR)
            build_output(s->g, arena_strdup(im->arena, name), item.v);
    }
    if (!p->n_output) diag(im->diags, D_MODEL, "", "the graph has no outputs");
}

/* Constants of every body name the same files. */
static void share_files(Importer *im, Graph *g) {
    for (uint32_t i = 0; i < im->model->side_names.n; i++)
        vec_push(im->arena, &g->files, im->model->side_names.v[i]);
    for (uint32_t i = 0; i < im->subgraphs.n; i++)
        memcpy(&im->subgraphs.v[i]->files, &g->files, sizeof g->files);
}

static void import_graph(Importer *im, Graph *g, const Opsets *opsets) {
    Scope *s = scope_create(im, g, NULL, im->proto->graph);
    s->opsets = opsets;
    scope_initializers(s);
    inputs_import(s);
    scope_nodes(s, s->proto->n_node, s->proto->node);
    build_at(g, 0);
    import_outputs(s);
    share_files(im, g);
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* bert_base for ./bert_base.onnx; graphs in files are mostly called "main_graph". */
static const char *graph_name(Arena *a, const char *path) {
    char *name = arena_strdup(a, base_name(path));
    char *dot = strrchr(name, '.');
    if (dot && dot != name) *dot = 0;
    for (char *c = name; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", *c))
            *c = '_';
    return name;
}

static Graph *import_once(Arena *a, DiagSink *d, Model *m, const ImportOptions *o,
                          const LeastSizes *least) {
    Importer im = {.arena = a,
                   .diags = d,
                   .model = m,
                   .proto = (const Onnx__ModelProto *)(const void *)prescan_root(m->message),
                   .exprs = expr_pool_create(a),
                   .dims = mapstr_create(a),
                   .budget = FREE_NAMES + m->file.size,
                   .copies = 1,
                   .options = o,
                   .least = least,
                   .dim_used = ARENA_ARRAY(a, bool, o ? o->ndims : 0)};
    Opsets opsets;
    Graph *g = graph_create(a, im.exprs, d, graph_name(a, m->path));
    if (check_versions(&im) &&
        opsets_read(&im, im.proto->opset_import, im.proto->n_opset_import, "", &opsets)) {
        function_index(&im);
        import_graph(&im, g, &opsets);
    }
    if (!diag_errors(d)) dims_check_options(&im);
    return g;
}

graphc_status import_model(Arena *a, DiagSink *d, const char *path, const ImportOptions *o,
                           Model **out_model, Graph **out_graph) {
    *out_model = NULL;
    *out_graph = NULL;
    ImportSource from = o ? o->from : (ImportSource){0};
    Model *m = model_open(a, d, path, from, &onnx__model_proto__descriptor);
    if (!m) return diag_status(d);
    const uint32_t said = diag_count(d), errors = diag_errors(d);
    LeastSizes least = {0};
    Graph *g = import_once(a, d, m, o, &least);
    if (!errors && dims_least(g, said, &least)) g = import_once(a, d, m, o, &least);
    if (diag_errors(d)) {
        import_close(m);
        return diag_status(d);
    }
    prescan_message_free(m->message);
    m->message = NULL;
    *out_model = m;
    *out_graph = g;
    return GRAPHC_OK;
}

graphc_status import_tensor(Arena *a, DiagSink *d, const char *path, const ImportSource *from,
                            ImportTensor *out) {
    Model *m =
        model_open(a, d, path, from ? *from : (ImportSource){0}, &onnx__tensor_proto__descriptor);
    if (!m) return diag_status(d);
    Constant c;
    const Onnx__TensorProto *t = (const void *)prescan_root(m->message);
    *out = (ImportTensor){0};
    const bool ok = tensor_constant(m, a, d, t, "", &out->dtype, &out->rank, out->dim, &c);
    if (ok) {
        out->name = c.name;
        out->bytes = c.bytes;
        out->data = arena_copy(a, c.data, (size_t)c.bytes);
    }
    import_close(m);
    return ok ? GRAPHC_OK : diag_status(d);
}
