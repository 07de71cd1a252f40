/* graphc with one fault planted in what is compiled: "planted VERB ..." is graphc, but for the
 * kernels that compute the node which GRAPHC_FAULT names: "NODE OP HOW BY", where OP and BY are
 * names as Kernel IR spells them or BY is a number. Linked with --wrap=codegen_run, so that the
 * fault is where a defect of fusion would be: between it and code generation, in every compile. */
#include "codegen/codegen.h"
#include "fusion/kir/kir_internal.h"
#include "tests/plant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

graphc_status __real_codegen_run(const Target *t, const Schedule *s, const CodeOptions *o, Arena *a,
                                 DiagSink *d, CodeResult *out);
graphc_status __wrap_codegen_run(const Target *t, const Schedule *s, const CodeOptions *o, Arena *a,
                                 DiagSink *d, CodeResult *out);

static const char *const hows[] = {"becomes",  "swapped", "left_out", "doubled",
                                   "folds_by", "times",   "moved",    "unmasked"};

static uint16_t op_named(const char *name) {
    for (uint16_t i = 1; i < K_COUNT; i++) {
        const bool in_kernels = i > K_first || (i < K_first && op_info[i].cls == OPC_MAP);
        if (in_kernels && strcmp(kir_op_name(i), name) == 0) return i;
    }
    return OP_none;
}

static double by_named(const char *name, How how) {
    for (int i = 0; how == FOLDS_BY && i < FOLD_COUNT; i++)
        if (strcmp(kir_fold_name[i], name) == 0) return i;
    return how == OP_BECOMES ? op_named(name) : strtod(name, NULL);
}

static bool is_of(const Graph *g, Loc l, const char *node) {
    const char *name = l ? g->locs.v[l].name : NULL;
    return name && strcmp(name, node) == 0;
}

/* Whether the kernel computes the node or looks through it. */
static bool covers(const Graph *g, const Kernel *k, const char *node) {
    for (uint32_t i = 0; i < k->nlocs; i++)
        if (is_of(g, k->locs[i], node)) return true;
    return false;
}

/* The first op of the code that is of the node, else the first that is of none; 0: there is none.
 * In a loop, whose kernels name values of its body: the first. */
static KVal find(const Graph *g, const Kernel *k, const char *node, uint16_t op, How how,
                 bool in_loop) {
    KVal of_none = 0;
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        if (o->op != op || !plant_fits(k, o, how)) continue;
        if (op == K_kload || op == K_kbind || in_loop) return v; /* of the kernel */
        if (o->node && is_of(g, graph_node(g, o->node)->loc, node)) return v;
        if (!o->node && !of_none) of_none = v;
    }
    return of_none;
}

static void plant_all(const Schedule *s, const char *node, uint16_t op, How how, double by) {
    for (uint32_t i = 0, depth = 0; i < s->steps.n; i++) {
        depth += s->steps.v[i].kind == STEP_loop_begin;
        depth -= s->steps.v[i].kind == STEP_loop_end;
        Kernel *k = s->steps.v[i].kernel;
        if (!k || s->steps.v[i].prepare || !covers(s->graph, k, node)) continue;
        const KVal at = find(s->graph, k, node, op, how, depth > 0);
        if (at) plant(s->graph->exprs, k, at, how, by);
    }
}

graphc_status __wrap_codegen_run(const Target *t, const Schedule *s, const CodeOptions *o, Arena *a,
                                 DiagSink *d, CodeResult *out) {
    char node[64], op[32], how[16], by[32];
    const char *fault = getenv("GRAPHC_FAULT");
    if (fault && sscanf(fault, "%63s %31s %15s %31s", node, op, how, by) == 4)
        for (int i = 0; i < (int)(sizeof hows / sizeof *hows); i++)
            if (strcmp(hows[i], how) == 0)
                plant_all(s, node, op_named(op), (How)i, by_named(by, (How)i));
    return __real_codegen_run(t, s, o, a, d, out);
}
