/* Graph inputs: those that no initializer gives. */
#include "frontend/import/import_impl.h"

void inputs_import(Scope *s) {
    Importer *im = s->im;
    const Onnx__GraphProto *p = s->proto;
    Type *type = ARENA_ARRAY(im->arena, Type, p->n_input);
    bool *ok = ARENA_ARRAY(im->arena, bool, p->n_input);
    dims_index(im);
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0, index = 0; i < p->n_input; i++) {
            const char *name = text_or_empty(p->input[i]->name);
            uint32_t known;
            if (mapstr_get(s->names, name, &known)) continue; /* an initializer's default */
            if (round == 0)
                ok[i] = dims_input_type(im, p->input[i],
                                        arena_printf(im->arena, "input \"%s\"", name), &type[i]);
            if (ok[i]) dims_fill(im, p->input[i], index, round == 1, &type[i]);
            index++;
        }
    for (uint32_t i = 0; i < p->n_input; i++) {
        const char *name = text_or_empty(p->input[i]->name);
        uint32_t known;
        if (mapstr_get(s->names, name, &known) && known < p->n_initializer) continue;
        Item item = {.kind = ITEM_POISON};
        if (ok[i])
            item = (Item){.kind = ITEM_TENSOR,
                          .v = build_input(s->g, arena_strdup(im->arena, name), type[i])};
        if (!item.v) item.kind = ITEM_POISON;
        scope_define(s, name, item);
        if (item.v) dims_claim(s, name, item.v);
    }
}
