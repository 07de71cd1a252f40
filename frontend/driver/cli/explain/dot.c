/* graphc explain --dot: the model's nodes, those of a kernel in a box, for Graphviz. Of a plan for
 * several targets the first. */
#include "frontend/driver/cli/explain/picture.h"
#include "runtime/base/file.h"

#include <string.h>

static void quoted(StrBuf *s, const char *text) {
    sb_put(s, "\"");
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            sb_printf(s, "\\%c", *text);
        else
            sb_putn(s, (unsigned char)*text < 32 ? " " : text, 1);
    sb_put(s, "\"");
}

static void put_node(StrBuf *s, const Picture *p, uint32_t i, bool view) {
    const OutlineNode *n = &p->outline.nodes[i];
    bool io = i >= p->outline.nnodes;
    const char *name = *n->name ? n->name : n->output;
    sb_printf(s, "    n%u [label=", i);
    quoted(s, io ? name : arena_printf(p->cli->arena, "%s", n->op));
    if (!io) {
        sb_put(s, ", tooltip=");
        quoted(s,
               arena_printf(p->cli->arena, "node %u %s %s", i, name, p->type[i] ? p->type[i] : ""));
    }
    sb_put(s, io ? ", shape=ellipse];\n" : view ? ", style=dashed];\n" : "];\n");
}

/* Each node stands in the first kernel that has it: Graphviz has no box that overlaps another. */
static void put_kernel(StrBuf *s, const Picture *p, const PictureKernel *k, uint32_t number,
                       bool *placed) {
    const NodeList *lists[] = {&k->computed, &k->views};
    bool any = false;
    for (int l = 0; l < 2; l++)
        for (uint32_t i = 0; i < lists[l]->n; i++) {
            uint32_t n = lists[l]->v[i];
            if (placed[n]) continue;
            placed[n] = true;
            if (!any) {
                sb_printf(s,
                          "  subgraph cluster_%u {\n    style=\"rounded,filled\"; "
                          "fillcolor=\"#eef2f7\"; label=",
                          number);
                quoted(s, plan_str(&p->view.plan, k->k->name));
                sb_put(s, ";\n");
            }
            any = true;
            put_node(s, p, n, l == 1);
        }
    if (any) sb_put(s, "  }\n");
}

graphc_status picture_dot(const Picture *p, const char *path) {
    StrBuf s;
    char why[256];
    const PictureTarget *t = &p->targets[0];
    bool *placed = ARENA_ARRAY(p->cli->arena, bool, p->outline.n + 1);
    sb_init(&s, p->cli->arena);
    sb_put(&s, "digraph model {\n  node [shape=box, fontname=\"sans-serif\", style=filled, "
               "fillcolor=white];\n  fontname=\"sans-serif\";\n");
    for (int prepare = 0; prepare < 2; prepare++)
        for (uint32_t i = 0; i < t->n; i++)
            if (t->kernels[i].prepare == prepare) put_kernel(&s, p, &t->kernels[i], i, placed);
    for (uint32_t i = 0; i < p->outline.n; i++)
        if (!placed[i]) put_node(&s, p, i, true);
    for (uint32_t i = 0; i < p->outline.n; i++)
        for (uint32_t k = 0; k < p->outline.nodes[i].nin; k++)
            sb_printf(&s, "  n%u -> n%u;\n", p->outline.nodes[i].in[k], i);
    sb_put(&s, "}\n");
    const char *text = sb_str(&s);
    graphc_status st = file_write(path, text, strlen(text), why);
    return st == GRAPHC_OK ? st : diag(p->cli->diags, D_IO, path, "%s", why);
}
