/* Kernel names say what is inside: poi_3_add_relu. */
#include "fusion/body/body.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAME 60

static bool is_noise(const char *op) {
    static const char *const skip[] = {"reshape", "transpose", "cast",     "unsqueeze", "squeeze",
                                       "expand",  "identity",  "constant", "flatten",   "shape"};
    for (size_t i = 0; i < sizeof skip / sizeof *skip; i++)
        if (!strcmp(op, skip[i])) return true;
    return false;
}

/* The ONNX node's operator, or the core op where there is none; lower case letters and digits. */
static const char *op_word(Fuse *f, Value v, bool *noise) {
    const Node *n = graph_node(f->g, v);
    OpClass c = op_info[n->op].cls;
    const char *from = op_info[n->op].name;
    for (Loc l = n->loc; l; l = f->g->locs.v[l].parent) from = f->g->locs.v[l].op;
    char *w = arena_strdup(f->arena, from);
    size_t k = 0;
    for (const char *p = from; *p; p++)
        if (isalnum((unsigned char)*p)) w[k++] = (char)tolower((unsigned char)*p);
    w[k] = 0;
    bool view =
        n->op == OP_reshape || n->op == OP_permute || n->op == OP_expand || n->op == OP_slice;
    *noise = is_noise(w) || view || (c == OPC_VIEW && !n->loc) || c == OPC_SOURCE;
    return w;
}

static int by_value(const void *a, const void *b) {
    Value x = *(const Value *)a, y = *(const Value *)b;
    return x < y ? -1 : x > y;
}

static void add_words(Fuse *f, const Value *v, uint32_t n, bool noise_too, StrBuf *out) {
    const char *last = "";
    for (uint32_t i = 0; i < n; i++) {
        bool noise;
        const char *w = op_word(f, v[i], &noise);
        if ((noise && !noise_too) || !strcmp(w, last)) continue;
        if (out->n + 1 + strlen(w) > MAX_NAME) break;
        sb_printf(out, "_%s", w);
        last = w;
    }
}

const char *fuse_kernel_name(Fuse *f, const Group *g, const Kernel *k, uint32_t number) {
    StrBuf s;
    sb_init(&s, f->arena);
    sb_printf(&s, "%s_%u", kir_kind_name[k->kind], number);
    const char *word = f->kinds[g->kind].word;
    if (k->dot.wino) sb_put(&s, "_winograd");
    if (g->kind == GROUP_pack) word = f->packs.v[g->roots.v[0].at].form->word;
    if (word) sb_printf(&s, "_%s", word);
    uint32_t n = g->inlined.n;
    Value *v = arena_copy(f->arena, g->inlined.v, n * sizeof *v);
    qsort(v, n, sizeof *v, by_value);
    size_t before = s.n;
    if (!g->attn) add_words(f, v, n, false, &s);
    if (s.n == before && g->kind == GROUP_map) add_words(f, v, n, true, &s);
    if (s.n == before && g->kind == GROUP_map) sb_put(&s, "_copy");
    return sb_str(&s);
}
