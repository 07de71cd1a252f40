/* A merged model as an ONNX file. Everything but initializers is as it was in the model's file. */
#include "frontend/driver/merge/merge.h"

#include "onnx.pb-c.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGE                                                                                      \
    ((uint64_t)1 << 10) /* bytes of a tensor that moves to the side file, if there is one */
#define MOST                                                                                       \
    ((uint64_t)3 << 29) /* bytes of tensors that one file may hold; protobuf ends at 2^31 */
#define SIDE_LINE 64    /* tensors begin at multiples of it there */

typedef struct Onnx {
    const Merge *all;
    const char *model, *out;
    Onnx__ModelProto *proto;
    FileMap file, side_in; /* the model; the external file that was opened last, */
    const char *side_name; /* and its name */
    bool side;             /* tensors go to a file of their own */
    FileWriter side_out;
    const char *location; /* its name, without folder */
    char why[256];
} Onnx;

static graphc_status failed(Onnx *o, DiagId id, const char *place) {
    return diag(o->all->diags, id, place, "%s", id == D_NO_MEMORY ? "not enough memory" : o->why);
}

/* --- Bytes of tensors ------------------------------------------------------------------------- */

static const char *external(const Onnx__TensorProto *t, const char *key) {
    for (size_t i = 0; i < t->n_external_data; i++)
        if (!strcmp(t->external_data[i]->key, key)) return t->external_data[i]->value;
    return NULL;
}

static bool is_external(const Onnx__TensorProto *t) {
    return t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

/* What the import has checked already. */
static graphc_status external_bytes(Onnx *o, const Onnx__TensorProto *t, const uint8_t **out,
                                    uint64_t *n) {
    const char *name = external(t, "location"), *offset = external(t, "offset"),
               *length = external(t, "length");
    if (!o->side_name || strcmp(o->side_name, name)) {
        file_unmap(&o->side_in);
        o->side_name = NULL;
        if (file_map_beneath(o->model, name, (FileLinks){.of_base = true}, &o->side_in, o->why) !=
            GRAPHC_OK)
            return failed(o, D_IO, name);
        o->side_name = name;
    }
    uint64_t at = offset ? strtoull(offset, NULL, 10) : 0;
    *n = length ? strtoull(length, NULL, 10) : o->side_in.size - at;
    *out = o->side_in.data + at;
    return GRAPHC_OK;
}

/* --- Into the message ------------------------------------------------------------------------- */

/* Elements in another form than raw bytes are dropped: those are the initializer from here on. */
static void forget_elements(Onnx__TensorProto *t) {
    t->n_float_data = t->n_int32_data = t->n_int64_data = t->n_double_data = t->n_uint64_data = 0;
    t->raw_data = (ProtobufCBinaryData){0};
    t->has_raw_data = false;
    t->n_external_data = 0;
    t->has_data_location = false;
    t->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__DEFAULT;
}

static Onnx__StringStringEntryProto *pair(Onnx *o, const char *key, const char *value) {
    Onnx__StringStringEntryProto *p = ARENA_NEW(o->all->arena, Onnx__StringStringEntryProto);
    onnx__string_string_entry_proto__init(p);
    p->key = (char *)(uintptr_t)key;
    p->value = (char *)(uintptr_t)value;
    return p;
}

static graphc_status to_side(Onnx *o, Onnx__TensorProto *t, const void *bytes, uint64_t n) {
    static const uint8_t zeros[SIDE_LINE];
    const size_t gap = (size_t)(-o->side_out.size % SIDE_LINE);
    const uint64_t at = o->side_out.size + gap;
    if (file_put(&o->side_out, zeros, gap, o->why) != GRAPHC_OK ||
        file_put(&o->side_out, bytes, n, o->why) != GRAPHC_OK)
        return failed(o, D_IO, o->location);
    Arena *a = o->all->arena;
    forget_elements(t);
    t->external_data = ARENA_ARRAY(a, Onnx__StringStringEntryProto *, 3);
    t->external_data[0] = pair(o, "location", o->location);
    t->external_data[1] = pair(o, "offset", arena_printf(a, "%llu", (unsigned long long)at));
    t->external_data[2] = pair(o, "length", arena_printf(a, "%llu", (unsigned long long)n));
    t->n_external_data = 3;
    t->has_data_location = true;
    t->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    return GRAPHC_OK;
}

static graphc_status place(Onnx *o, Onnx__TensorProto *t, const void *bytes, uint64_t n) {
    if (o->side && n >= LARGE) return to_side(o, t, bytes, n);
    void *kept = arena_copy(o->all->arena, bytes, n);
    forget_elements(t);
    t->raw_data = (ProtobufCBinaryData){n, kept};
    t->has_raw_data = true;
    return GRAPHC_OK;
}

static graphc_status put_changed(Onnx *o, Onnx__TensorProto *t, const MergeItem *m) {
    void *bytes = malloc(m->from->bytes + 1);
    if (!bytes) return failed(o, D_NO_MEMORY, m->name);
    graphc_status st = merge_elements(o->all, m, bytes);
    if (st == GRAPHC_OK) st = place(o, t, bytes, m->from->bytes);
    free(bytes);
    return st;
}

static graphc_status put_same(Onnx *o, Onnx__TensorProto *t) {
    const uint8_t *bytes = t->raw_data.data;
    uint64_t n = t->raw_data.len;
    if (is_external(t)) GC_TRY(external_bytes(o, t, &bytes, &n));
    return is_external(t) || (o->side && n >= LARGE) ? place(o, t, bytes, n) : GRAPHC_OK;
}

/* A tensor that one node alone has in another form: a new initializer, which the node reads. */
static graphc_status put_apart(Onnx *o, Onnx__GraphProto *g, const Onnx__TensorProto *old,
                               const MergeItem *m) {
    Arena *a = o->all->arena;
    Onnx__NodeProto *n = m->reader < (int32_t)g->n_node ? g->node[m->reader] : NULL;
    bool reads = false;
    for (size_t i = 0; n && i < n->n_input; i++) {
        if (strcmp(n->input[i], m->initializer)) continue;
        n->input[i] = arena_strdup(a, m->name);
        reads = true;
    }
    if (!reads)
        return diag(o->all->diags, D_UNSUPPORTED, m->name,
                    "\"%s\" is the weight of other modules too: it can be merged as safetensors",
                    m->initializer);
    Onnx__TensorProto *t = arena_copy(a, old, sizeof *old);
    t->name = (char *)(uintptr_t)m->name;
    Onnx__TensorProto **all = ARENA_ARRAY(a, Onnx__TensorProto *, g->n_initializer + 1);
    memcpy(all, g->initializer, g->n_initializer * sizeof *all);
    all[g->n_initializer++] = t;
    g->initializer = all;
    return put_changed(o, t, m);
}

static graphc_status put_initializers(Onnx *o) {
    Onnx__GraphProto *g = o->proto->graph;
    const size_t n = g->n_initializer;
    for (size_t i = 0; i < n; i++) {
        Onnx__TensorProto *t = g->initializer[i];
        const MergeItem *changed = NULL;
        for (uint32_t k = 0; k < o->all->nchanged; k++) {
            const MergeItem *m = &o->all->items.v[k];
            if (strcmp(m->initializer, t->name)) continue;
            if (m->reader >= 0)
                GC_TRY(put_apart(o, g, t, m));
            else
                changed = m;
        }
        GC_TRY(changed ? put_changed(o, t, changed) : put_same(o, t));
    }
    return GRAPHC_OK;
}

/* --- Files ------------------------------------------------------------------------------------ */

static bool needs_side(const Onnx *o) {
    const Onnx__GraphProto *g = o->proto->graph;
    uint64_t all = o->file.size;
    for (size_t i = 0; i < g->n_initializer; i++)
        if (is_external(g->initializer[i])) return true;
    for (uint32_t k = 0; k < o->all->nchanged; k++)
        if (o->all->items.v[k].reader >= 0) all += o->all->items.v[k].from->bytes;
    return all > MOST;
}

static graphc_status write_message(Onnx *o) {
    size_t n = onnx__model_proto__get_packed_size(o->proto);
    uint8_t *bytes = malloc(n + 1);
    if (!bytes) return failed(o, D_NO_MEMORY, o->out);
    onnx__model_proto__pack(o->proto, bytes);
    graphc_status st = file_write(o->out, bytes, n, o->why);
    free(bytes);
    return st == GRAPHC_OK ? st : failed(o, D_IO, o->out);
}

/* The side file is there before what names it. */
static graphc_status write_files(Onnx *o) {
    const char *slash = strrchr(o->out, '/');
    const char *side = arena_printf(o->all->arena, "%s" MERGE_SIDE, o->out);
    o->side = needs_side(o);
    o->location = slash ? side + (slash + 1 - o->out) : side;
    if (!o->side) {
        GC_TRY(put_initializers(o));
        return write_message(o);
    }
    if (file_begin(side, &o->side_out, o->why) != GRAPHC_OK) return failed(o, D_IO, side);
    graphc_status st = put_initializers(o);
    if (st != GRAPHC_OK) {
        file_abandon(&o->side_out);
        return st;
    }
    if (file_commit(&o->side_out, o->why) != GRAPHC_OK) return failed(o, D_IO, side);
    return write_message(o);
}

/* The message lies in the arena, so that what is changed in it may, too. */
static void *take_memory(void *arena, size_t n) {
    return arena_alloc(arena, n);
}

static void keep_memory(void *arena, void *p) {
    (void)arena;
    (void)p;
}

graphc_status merge_write_onnx(const Merge *all, const char *model, const char *out) {
    Onnx o = {.all = all, .model = model, .out = out};
    ProtobufCAllocator memory = {take_memory, keep_memory, all->arena};
    if (file_map(model, &o.file, o.why) != GRAPHC_OK) return failed(&o, D_IO, model);
    o.proto = onnx__model_proto__unpack(&memory, o.file.size, o.file.data);
    graphc_status st = o.proto && o.proto->graph ? write_files(&o) : failed(&o, D_NO_MEMORY, model);
    file_unmap(&o.side_in);
    file_unmap(&o.file);
    return st;
}
