#include "frontend/driver/training/peak.h"

#include <stdlib.h>

static double bytes_of(const Schedule *s, const SBuffer *b) {
    return (double)expr_hint(s->exprs, schedule_bound(s, b->numel)) * (double)dtype_bytes(b->dtype);
}

static const Node *node_of(const Schedule *s, const SBuffer *b) {
    const Graph *g = b->graph ? b->graph : s->graph;
    return graph_node(g, b->holds ? b->holds : b->node);
}

static LocPart part_of(const Schedule *s, Loc l) {
    return (LocPart)s->graph->locs.v[l].part;
}

/* Does the step compute anything for the optimizer? */
static bool updates(const Schedule *s, uint32_t step) {
    const Kernel *k = s->steps.v[step].kernel;
    for (uint32_t i = 0; k && i < k->ncomputed; i++)
        if (part_of(s, k->locs[i]) == PART_update) return true;
    return false;
}

static bool owns(const SBuffer *b) {
    return b->kind == BUF_temp && !b->alias && schedule_used(b);
}

/* The step that backward begins with. Single numbers (the rate, what the loss is divided by) are
 * computed whenever they can be, ahead of forward, too. */
static uint32_t first_late(const Schedule *s) {
    uint32_t first = s->steps.n;
    for (uint32_t i = 0; i < s->buffers.n; i++) {
        const SBuffer *b = &s->buffers.v[i];
        bool late = b->kind == BUF_temp && schedule_used(b) && node_of(s, b)->late;
        if (late && b->first < first && bytes_of(s, b) > (double)dtype_bytes(b->dtype))
            first = b->first;
    }
    return first;
}

/* Forward stores it, backward reads it. */
static bool is_kept(const Schedule *s, const Peak *p, const SBuffer *b) {
    return owns(b) && !node_of(s, b)->late && b->first < p->backward && b->last >= p->backward &&
           b->last < s->ends.v[0];
}

static void add_cause(const Schedule *s, Peak *p, const SBuffer *b) {
    double *to = &p->temporaries;
    if (is_kept(s, p, b))
        to = &p->kept;
    else if (node_of(s, b)->late && updates(s, b->last) && !updates(s, b->first))
        to = &p->gradients;
    *to += bytes_of(s, b);
}

static uint32_t fullest(const Schedule *s) {
    double *change = calloc((size_t)s->steps.n + 2, sizeof *change), now = 0, most = -1;
    uint32_t at = 0;
    for (uint32_t i = 0; change && i < s->buffers.n; i++) {
        const SBuffer *b = &s->buffers.v[i];
        if (!owns(b)) continue;
        change[b->first] += bytes_of(s, b);
        change[b->last + 1] -= bytes_of(s, b);
    }
    for (uint32_t t = 0; change && t < s->steps.n; t++) {
        now += change[t];
        if (now > most) most = now, at = t;
    }
    free(change);
    return at;
}

Peak peak_of(const Schedule *s) {
    Peak p = {.step = fullest(s), .backward = first_late(s)};
    for (uint32_t i = 0; i < s->buffers.n; i++) {
        const SBuffer *b = &s->buffers.v[i];
        if (b->kind == BUF_state) p.states += bytes_of(s, b);
        if (b->kind == BUF_const && schedule_used(b)) p.constants += bytes_of(s, b);
        if (b->kind == BUF_prepared && schedule_used(b)) p.prepared += bytes_of(s, b);
        if (owns(b) && b->first <= p.step && b->last >= p.step) add_cause(s, &p, b);
    }
    return p;
}

double peak_total(const Peak *p) {
    return p->states + p->constants + p->prepared + p->kept + p->gradients + p->temporaries;
}

/* --- Text ------------------------------------------------------------------------------------- */

typedef struct Kept {
    double bytes;
    uint32_t buffer;
} Kept;

static int by_bytes(const void *a, const void *b) {
    const Kept *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

static void put_kept(const Schedule *s, const Peak *p, Arena *a, StrBuf *out) {
    Kept *v = ARENA_ARRAY(a, Kept, s->buffers.n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->buffers.n; i++)
        if (is_kept(s, p, &s->buffers.v[i])) v[n++] = (Kept){bytes_of(s, &s->buffers.v[i]), i};
    if (n) qsort(v, n, sizeof *v, by_bytes);
    for (uint32_t i = 0; i < n; i++) {
        const SBuffer *b = &s->buffers.v[v[i].buffer];
        const Node *x = node_of(s, b);
        const Kernel *first = s->steps.v[b->first].kernel, *last = s->steps.v[b->last].kernel;
        sb_printf(out, "kept: %.3f MB %s of %s, from %s to %s\n", v[i].bytes * 1e-6,
                  type_text(s->exprs, &x->type, a), graph_place(s->graph, x->loc, a),
                  first ? first->name : "a loop", last ? last->name : "a loop");
    }
}

static void put_again(const Schedule *s, Arena *a, StrBuf *out) {
    bool *said = ARENA_ARRAY(a, bool, s->graph->locs.n);
    for (uint32_t t = 0; t < s->ends.v[0]; t++) {
        const Kernel *k = s->steps.v[t].kernel;
        for (uint32_t i = 0; k && i < k->ncomputed; i++) {
            Loc l = k->locs[i];
            if (part_of(s, l) != PART_again || said[l]) continue;
            said[l] = true;
            sb_printf(out, "computed %s, in %s\n", graph_place(s->graph, l, a), k->name);
        }
    }
}

const char *peak_text(const Schedule *s, const Peak *p, Arena *a) {
    StrBuf out;
    sb_init(&out, a);
    const Kernel *k = s->steps.v[p->step].kernel;
    sb_printf(
        &out,
        "peak: %.3f MB at %s: states %.3f, constants %.3f, prepared %.3f, kept for backward %.3f, "
        "gradients %.3f, temporaries %.3f\n",
        peak_total(p) * 1e-6, k ? k->name : "a loop", p->states * 1e-6, p->constants * 1e-6,
        p->prepared * 1e-6, p->kept * 1e-6, p->gradients * 1e-6, p->temporaries * 1e-6);
    put_kept(s, p, a, &out);
    put_again(s, a, &out);
    return sb_str(&out);
}
