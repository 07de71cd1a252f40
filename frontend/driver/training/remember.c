#include "frontend/driver/training/remember.h"
#include "frontend/driver/training/peak.h"
#include "graph/pass/pass.h"
#include "graph/recompute/recompute.h"

#include <string.h>

/* What a byte is worth that is not kept, in bytes moved meanwhile, and in what part of the layers
 * contractions are computed again for it, between values through which all of forward goes. */
typedef struct Way {
    double moves, layers;
} Way;

/* From the fastest to the smallest. A byte that is written once and read twice is what is at stake
 * without a budget. */
static const Way ways[] = {{3, 0}, {1e3, 0}, {10, 1}, {100, 1}, {1e3, 1}};
enum { WAYS = sizeof ways / sizeof *ways, PARTS = 16 /* that layers are counted in */ };

typedef enum Checkpoint {
    CHECKPOINT_auto,
    CHECKPOINT_none,
    CHECKPOINT_layers,
    CHECKPOINTS
} Checkpoint;
static const char *const checkpoint_name[CHECKPOINTS] = {"auto", "none", "layers"};

static Checkpoint checkpoint_of(const graphc_training *t) {
    uint32_t i = 0;
    while (t->checkpoint && i < CHECKPOINTS && strcmp(t->checkpoint, checkpoint_name[i]) != 0) i++;
    return (Checkpoint)i;
}

graphc_status remember_check(const graphc_training *t, DiagSink *d) {
    const Checkpoint c = checkpoint_of(t);
    if (c == CHECKPOINTS)
        return diag(d, D_USAGE, "--checkpoint", "\"%s\" is none of auto, layers and none",
                    t->checkpoint);
    if (t->memory_budget && c != CHECKPOINT_auto)
        return diag(d, D_USAGE, "--memory-budget", "chooses itself what is computed again");
    return GRAPHC_OK;
}

static Graph *on_way(const Pipeline *p, Graph *g, const Machine *m, const Way *w) {
    const Recompute how = {.forward = p->training.forward,
                           .bytes_per_s = m->bytes_per_s,
                           .flops_per_s = m->flops_per_s,
                           .matrix_flops_per_s = m->matrix_flops_per_s,
                           .moves = w->moves,
                           .layers = w->layers};
    Graph *out = recompute(g, &how);
    graph_replace(&out, pass_dce(out), g);
    return out;
}

static graphc_status schedule(Pipeline *p, const Graph *g, const Machine *m, Schedule **s,
                              Peak *peak) {
    GC_TRY(diag_status(p->diags));
    GC_TRY(schedule_build(g, m, p->fuse_at_most, p->arena, s));
    *peak = peak_of(*s);
    return GRAPHC_OK;
}

typedef struct Kept {
    Schedule *s;
    Peak peak;
} Kept;

/* The fewest layers that fit, where all do: *best is theirs. */
static graphc_status fewest_layers(Pipeline *p, Graph *g, const Machine *m, Way way, double budget,
                                   Kept *best) {
    for (uint32_t none = 0, all = PARTS; all - none > 1;) {
        const uint32_t some = (none + all) / 2;
        Kept k;
        way.layers = (double)some / PARTS;
        GC_TRY(schedule(p, on_way(p, g, m, &way), m, &k.s, &k.peak));
        bool fits = peak_total(&k.peak) <= budget;
        if (fits) *best = k;
        *(fits ? &all : &none) = some;
    }
    return GRAPHC_OK;
}

graphc_status remember(Pipeline *p, Graph *g, const Machine *m, const graphc_training *t,
                       Schedule **s, const char **text) {
    const Checkpoint c = checkpoint_of(t);
    const double budget = (double)t->memory_budget;
    double least = 0;
    Kept k;
    uint32_t i = c == CHECKPOINT_layers ? WAYS - 1 : 0;
    for (;; i++) {
        GC_TRY(schedule(p, c == CHECKPOINT_none ? g : on_way(p, g, m, &ways[i]), m, &k.s, &k.peak));
        double total = peak_total(&k.peak);
        if (least == 0 || total < least) least = total;
        if (!t->memory_budget || total <= budget) break;
        if (i + 1 == WAYS)
            return diag(p->diags, D_USAGE, "--memory-budget",
                        "%.0f bytes are too few: the least peak found is %.0f", budget, least);
    }
    if (t->memory_budget && ways[i].layers > 0) GC_TRY(fewest_layers(p, g, m, ways[i], budget, &k));
    *s = k.s;
    *text = peak_text(k.s, &k.peak, p->arena);
    return GRAPHC_OK;
}
