#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"
#include "runtime/base/map.h"

/* dce: a copy of what the outputs need, numbers compacted. Needs and breaks nothing. */
Graph *pass_dce(Graph *g) {
    return rewrite_graph(g, NULL, NULL, NULL);
}

static bool same_graph(const Graph *a, const Graph *b) {
    StrBuf x, y;
    sb_init(&x, a->own);
    sb_init(&y, a->own);
    graph_print(a, &x);
    graph_print(b, &y);
    return x.n == y.n && hash_bytes(sb_str(&x), x.n, 0) == hash_bytes(sb_str(&y), y.n, 0);
}

typedef struct Passes {
    const Graph *given; /* the caller's */
    Graph *g;
    const PassDump *dump;
    int index;
} Passes;

void graph_replace(Graph **g, Graph *next, const Graph *kept) {
    if (*g != next && *g != kept) graph_release(*g);
    *g = next;
}

/* Most passes leave nothing behind, and a copy of 10^5 nodes takes 40 MB. */
static bool has_dead(const Graph *g) {
    const bool *live = graph_live(g);
    for (Value v = 1; v < g->nodes.n; v++)
        if (!live[v]) return true;
    return false;
}

static graphc_status finish(Passes *p, const char *name, Graph *after) {
    Graph *before = p->g;
    p->g = after;
    if (has_dead(after)) graph_replace(&p->g, pass_dce(after), before);
    if (diag_errors(p->g->diags)) return diag_status(p->g->diags);
#ifndef NDEBUG
    GC_TRY(graph_verify(p->g));
#endif
    p->index++;
    if (p->dump && !same_graph(before, p->g)) p->dump->fn(p->dump->ctx, p->index, name, p->g);
    graph_replace(&before, p->g, p->given);
    return GRAPHC_OK;
}

/* `seq < 513`, required for a slice to lie inside its table, bounds the size itself: what the
 * session checks when inputs are bound, and what every later simplification may use. */
static void narrow(Graph *g) {
    ExprPool *p = g->exprs;
    for (uint32_t i = 0; i < g->nassume; i++) {
        uint32_t sym;
        int64_t lo, hi;
        if (!graph_assumed_bounds(g, i, &sym, &lo, &hi)) continue;
        SymInfo *s = expr_sym_edit(p, sym);
        if (hi >= s->hi || hi < s->lo) continue;
        s->hi = hi;
        (void)diag(g->diags, D_ASSUME, graph_place(g, g->assume[i].loc, g->arena), "%s <= %lld",
                   s->name, (long long)s->hi);
    }
}

#define RUN(name) GC_TRY(finish(&p, #name, pass_##name(p.g)))
graphc_status graph_before_gradients(Graph **g) {
    Passes p = {.given = *g, .g = *g};
    RUN(dce);
    RUN(raise);
    *g = p.g;
    return GRAPHC_OK;
}

graphc_status graph_optimise(Graph **g, DType precision, bool streams, const PassDump *dump) {
    Passes p = {.given = *g, .g = *g, .dump = dump};
    narrow(p.g);
    RUN(dce);
    RUN(canon);
    RUN(transpose_sink);
    RUN(canon);          /* what came together behind the permutes */
    RUN(transpose_sink); /* reshapes that became one */
    RUN(bn_fold);
    RUN(merge_dots);
    RUN(conv_phases);
    if (precision != DT_f32)
        GC_TRY(finish(&p, "precision", pass_precision(p.g, precision, streams)));
    RUN(parts);
    RUN(captures);
    RUN(gates);
    RUN(raise);
    *g = p.g;
    return GRAPHC_OK;
}
