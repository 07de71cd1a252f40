/* The ways to take a long row, of which one is chosen: by what was tuned, or else the first. */
#include "codegen/nvptx/row/long.h"

enum {
    ROLE_WAYS = 4,
    CLUSTERS = 4,                         /* of 1, 2, 4 and 8 blocks that share a row */
    LONG_WAYS = ROLE_WAYS + CLUSTERS + 3, /* copied, loaded, and room for one that is tried */
};

/* What all rows read alike is more than a row, so that reading it again for each would hold caches
 * up longer than memory takes. Half of a row is enough where a block that holds a row has a
 * multiprocessor to itself: while it finishes one, it asks memory for nothing. */
static bool reads_much_again(const Long *l, bool alone) {
    const Gpu *g = l->r->team.g;
    const uint32_t kept = row_bytes_of(g, l->kept, l->nkept);
    const uint32_t fixed = row_bytes_of(g, l->fixed, l->nfixed);
    return fixed > kept || (alone && fixed && 2 * fixed >= kept);
}

/* By warps with roles, which hold rows in registers or leave them in shared memory, in a block or
 * else in two that share the row. */
static uint32_t roles_ways(const Long *l, bool first, Long *way, const char **name) {
    static const struct {
        bool (*take)(Long *, uint32_t);
        uint32_t cluster;
        const char *name;
    } ways[ROLE_WAYS] = {{row_teams, 1, "by teams"},
                         {row_teams, 2, "by teams of 2"},
                         {row_roles, 1, "by roles"},
                         {row_roles, 2, "by roles of 2"}};
    uint32_t n = 0;
    for (uint32_t i = 0; i < ROLE_WAYS; i++) {
        way[n] = *l;
        if (ways[i].take(&way[n], ways[i].cluster) &&
            reads_much_again(&way[n], l->blocks == 1) == first)
            name[n++] = ways[i].name;
    }
    return n;
}

/* Ways of a long row: where blocks gain by keeping what all rows read alike, warps have roles; it
 * comes by the copy engine where it can; if no block holds all of it, a cluster of blocks does, as
 * small a one as can. The way to take first. */
static uint32_t long_ways(const Long *l, Long *way, const char **name) {
    static const char *const turns[CLUSTERS] = {"in turns", "in turns by 2", "in turns by 4",
                                                "in turns by 8"};
    uint32_t n = roles_ways(l, true, way, name);
    for (uint32_t i = 1; i < CLUSTERS && !l->all_kept; i++) {
        way[n] = *l;
        if (row_turns(&way[n], 1u << i)) name[n++] = turns[i];
    }
    way[n] = *l;
    if (row_copies(&way[n])) name[n++] = "copied";
    way[n] = *l, name[n++] = "loaded";
    for (uint32_t i = 0; i < CLUSTERS && l->all_kept; i++) {
        way[n] = *l;
        if (row_turns(&way[n], 1u << i)) name[n++] = turns[i];
    }
    return n + roles_ways(l, false, way + n, name + n);
}

void row_choose_long(Long *l) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    int64_t rows, length;
    Long way[LONG_WAYS];
    const char *name[LONG_WAYS];
    uint32_t n = long_ways(l, way, name), at = 0;
    if (n > 1 && expr_is_const(e->exprs, gpu_points(e, g->k, g->rows->par), &rows) &&
        expr_is_const(e->exprs, l->length, &length)) {
        const char *facts = arena_printf(g->j->arena, "long row %lld of %lld lanes=%u",
                                         (long long)rows, (long long)length, e->lanes);
        at = gpu_ways(g, facts, name, n);
    }
    *l = way[at];
    l->r->team.size = l->threads;
    g->j->shared_bytes = l->shared;
    if (!g->j->min_blocks) g->j->min_blocks = l->blocks;
    if (g->j->min_blocks < l->blocks) l->blocks = g->j->min_blocks; /* more would spill */
}
