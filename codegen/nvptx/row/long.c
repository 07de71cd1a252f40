/* Long rows, walked by all threads of a block (walk.c). The first walk asks for as much as fits
 * into a multiprocessor's memory at once; what later walks need again stays in shared memory, as
 * far as there is room, or is near enough to be read again.
 *
 * A vector is 16 bytes at a multiple of 16 bytes. Where rows do not start at such, the vectors of a
 * row begin at the first inside of it, and the elements in front of them and behind are single. */
#include "codegen/nvptx/row/long.h"

enum {
    LEAST = 2048, /* elements of a row */
    WIDE = 1024,  /* threads of a block that has a multiprocessor to itself */
    NARROW = 512, /* of one that shares it with another */
    SHORT = 128,  /* of one of READERS that do, */
    READERS = 8,  /* where nothing is kept */
    LINE = 128,   /* bytes of memory */
};

/* --- What shape a kernel has ------------------------------------------------------------------ */

bool row_is_load(const Long *l, KVal v) {
    const Gpu *g = l->r->team.g;
    uint32_t dom = g->rows->dom[v];
    return g->k->ops[v].op == K_kload && g->rows->need[v] && dom >> l->axis & 1 &&
           dom & g->rows->par;
}

/* All passes walk the same axis or none; no positions. */
static bool has_shape(Long *l) {
    Gpu *g = l->r->team.g;
    uint32_t axes = 0;
    if (g->k->serial || g->j->shrink || !g->m->shared) return false;
    for (uint32_t i = 0; i < g->rows->npasses; i++) {
        const Pass *p = &g->rows->pass[i];
        axes |= p->axes;
        for (uint32_t f = 0; f < p->nfolds; f++)
            if (gpu_fold_width(g, p->folds[f]) == 2) return false;
    }
    if (!axes || axes & (axes - 1)) return false;
    l->axis = (uint32_t)__builtin_ctz(axes);
    l->length = g->k->axes[l->axis].extent;
    return gpu_hint(g->e, l->length) >= LEAST;
}

/* Where a row starts in the buffers that it is read from and stored to, if that is no multiple of a
 * vector: of the first access that has rows, which the others should agree with. */
static Expr row_offset(const Long *l) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        Expr coef, rest;
        if (o->op != K_kload && o->op != K_kstore) continue;
        if (!(g->rows->dom[v] >> l->axis & 1) || !(g->rows->dom[v] & g->rows->par)) continue;
        if (expr_affine(e->exprs, o->index, g->k->axes[l->axis].sym, &coef, &rest) &&
            expr_is_value(e->exprs, coef, 1))
            return rest;
    }
    return 0;
}

/* --- What is kept ----------------------------------------------------------------------------- */

/* Bytes of an element over the row's loads that computing v takes, but for what `stop` holds. */
static uint32_t loads_under(const Long *l, KVal v, const bool *stop, bool *seen) {
    const Gpu *g = l->r->team.g;
    const KOp *o = &g->k->ops[v];
    if (!v || seen[v] || (stop && stop[v])) return 0;
    seen[v] = true;
    if (row_is_load(l, v)) return row_bytes(g, v);
    if (rows_in_pass(g->rows, v)) return 0;
    uint32_t n = 0;
    for (int i = 0; i < 3; i++) n += loads_under(l, o->in[i], stop, seen);
    return n;
}

static bool *seen_new(const Long *l) {
    const Gpu *g = l->r->team.g;
    return ARENA_ARRAY(g->e->arena, bool, g->k->nops);
}

/* Loads that passes from number `from` on take when the values of `stop` are there: their bytes. */
static uint32_t left_to_load(const Long *l, uint32_t from, const bool *stop, bool *seen) {
    const Gpu *g = l->r->team.g;
    uint32_t n = 0;
    for (uint32_t i = from; i < g->rows->npasses; i++) {
        const Pass *p = &g->rows->pass[i];
        for (uint32_t f = 0; f < p->nfolds && p->axes; f++)
            n += loads_under(l, g->k->ops[p->folds[f]].in[0], stop, seen);
        for (uint32_t s = 0; s < p->nstores && p->axes; s++)
            n += loads_under(l, g->k->ops[p->stores[s]].in[0], stop, seen);
    }
    return n;
}

/* Bytes that keeping v spares, if it is a load, or a value of the first walk in the place of loads;
 * negative: it does not. */
static int32_t gain(const Long *l, KVal v, uint32_t left, bool *keep) {
    const Gpu *g = l->r->team.g;
    if (keep[v] || g->k->ops[v].dtype == DT_bool) return -1;
    if (!row_is_load(l, v) && (g->k->ops[v].op != OP_cast || !(g->rows->dom[v] >> l->axis & 1)))
        return -1;
    keep[v] = true;
    uint32_t after = left_to_load(l, l->first, keep, seen_new(l));
    keep[v] = false;
    return after < left ? (int32_t)(left - after) - (int32_t)row_bytes(g, v) : -1;
}

/* What passes behind the first walk need of the row: narrow values that it computes, or loads. */
static void choose_kept(Long *l) {
    Gpu *g = l->r->team.g;
    bool *keep = seen_new(l), *need = seen_new(l), *cone = seen_new(l);
    uint32_t left = left_to_load(l, l->first, NULL, need);
    for (uint32_t i = 0; i < l->first; i++)
        for (uint32_t f = 0; f < g->rows->pass[i].nfolds; f++)
            rows_cone(g->rows, g->k->ops[g->rows->pass[i].folds[f]].in[0], cone);
    while (left && l->nkept < ROW_MOST_KEPT) {
        KVal best = 0;
        int32_t most = -1;
        for (KVal v = 1; v < g->k->nops; v++) {
            int32_t n = need[v] && cone[v] ? gain(l, v, left, keep) : -1;
            if (n > most) best = v, most = n;
        }
        if (!best) break;
        l->kept[l->nkept++] = best;
        keep[best] = true;
        left = left_to_load(l, l->first, keep, seen_new(l));
    }
}

/* Where nothing is kept, blocks that are many and small begin and end at any time, so that others
 * read meanwhile (cross entropy over 4,096 rows of 12,001 elements of 16 bits: 62.9 us in blocks of
 * 512 threads, 30.3 in these). Of elements of 8 bits a line has as many as such a block threads,
 * which take those in front and behind. */
static void choose_readers(Long *l) {
    const Gpu *g = l->r->team.g;
    const int64_t rows = gpu_hint(g->e, gpu_points(g->e, g->k, g->rows->par));
    if (rows < (int64_t)g->m->processors * READERS / 2) return;
    l->threads = row_most_edges(l) <= SHORT ? SHORT : 2 * SHORT;
    l->blocks = READERS * SHORT / l->threads;
}

/* Threads, and how much of the row is kept: by blocks that share a multiprocessor if all of it fits
 * into each one's half. */
static void choose_room(Long *l) {
    Gpu *g = l->r->team.g;
    const uint32_t bytes = row_bytes_of(g, l->kept, l->nkept);
    int64_t length = gpu_hint(g->e, l->length), n = g->e->lanes, most = 0, least;
    int64_t half = g->m->shared / 2 - ROW_RESERVED, all = g->m->shared - ROW_RESERVED;
    bool alone = bytes && length > half / bytes;
    l->threads = alone ? WIDE : NARROW;
    l->blocks = alone ? 1 : 2;
    l->shared = 0;
    if (!bytes) {
        choose_readers(l);
        return;
    }
    const int64_t room = (alone ? all : half) / (bytes * n);
    l->room = room / l->threads * l->threads;
    expr_range(g->e->exprs, l->length, &least, &most);
    l->all_kept = most / n <= room; /* not multiplied: most may be all that an integer holds */
    if (l->all_kept) l->room = most / n;
    row_place_kept(l, l->room);
}

static uint32_t count_loads(const Long *l) {
    const Gpu *g = l->r->team.g;
    uint32_t n = 0;
    for (KVal v = 1; v < g->k->nops; v++) n += row_is_load(l, v);
    return n;
}

/* --- The kernel ------------------------------------------------------------------------------- */

static bool needs_offset(const Long *l, Expr offset) {
    ExprPool *p = l->r->team.g->e->exprs;
    uint32_t n = l->r->team.g->e->lanes;
    return expr_divisor(p, l->length) % n || (offset && expr_divisor(p, offset) % n);
}

/* Elements of the row's widest load that a line of memory has: what a warp asks for or stores is
 * whole lines where rows may start at any element, too. A thread each takes those in front and
 * behind. */
static uint32_t line_of(const Long *l) {
    const Gpu *g = l->r->team.g;
    uint32_t bytes = 1;
    for (KVal v = 1; v < g->k->nops; v++)
        if (row_is_load(l, v) && row_bytes(g, v) > bytes) bytes = row_bytes(g, v);
    return LINE / bytes > g->e->lanes ? LINE / bytes : g->e->lanes;
}

bool row_long(RowPlan *r, Long *l) {
    Gpu *g = r->team.g;
    *l = (Long){.r = r, .cluster = 1};
    if (!has_shape(l)) return false;
    Expr offset = row_offset(l);
    uint32_t loads = count_loads(l), lanes = gpu_lanes_ragged(g, l->axis);
    if (lanes == 1 || !loads) return false;
    g->e->lanes = lanes;
    if (needs_offset(l, offset)) l->offset = offset ? offset : expr_const(g->e->exprs, 0);
    l->line = line_of(l);
    l->across = row_has_across(l);
    l->steps = ROW_MOST_STEPS / loads >> g->j->shrink;
    if (!l->steps) l->steps = 1;
    row_find_under(l, false);
    choose_kept(l);
    choose_room(l);
    return true;
}
