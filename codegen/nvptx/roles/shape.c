/* Which kernels' rows warps with roles may take in turns, and where a block has what of them in
 * shared memory: a ring of chunks, the block's part of what all rows read alike, barriers of the
 * ring's places, and slots, each a row's: what warps have folded of it and what comes of that. */
#include "codegen/nvptx/roles/roles.h"

enum {
    AHEAD = 4, /* rows of which chunks may be in shared memory */
    WORD = 4,
};

/* Folders may be AHEAD rows and two more in front of a block's finishers; those of the other block
 * may be as many in front of its own, which are at most one row behind the folders here. A slot is
 * taken again when nobody needs what it had. */
_Static_assert(2 * (AHEAD + 2) + 1 < ROLE_SLOTS, "a slot is taken again too soon");
_Static_assert((ROLE_SLOTS & (ROLE_SLOTS - 1)) == 0, "a row's number is masked to its slot");

/* --- What shape a kernel has ------------------------------------------------------------------ */

/* One walk that folds numbers that blocks can send each other, one that stores; between them and
 * behind, what walks nothing. */
static bool has_walks(const Long *l) {
    const Gpu *g = l->r->team.g;
    const Passes *rows = g->rows;
    uint32_t n = 0;
    for (uint32_t i = 0; i < rows->npasses; i++) {
        const Pass *p = &rows->pass[i];
        for (uint32_t f = 0; f < p->nfolds; f++)
            if (!row_is_sent(g, p->folds[f])) return false;
        if (i < l->first ? !p->axes || p->nstores : p->nfolds > 0) return false;
        n += i >= l->first && p->axes;
    }
    return n == 1;
}

uint32_t role_period(const Long *l) {
    const Gpu *g = l->r->team.g;
    Expr coef, rest;
    uint32_t par = g->rows->par;
    if (!l->offset || !l->nfixed) return 1;
    if (par & (par - 1)) return 0;
    if (!expr_affine(g->e->exprs, l->offset, g->k->axes[__builtin_ctz(par)].sym, &coef, &rest))
        return 0;
    int64_t step = expr_divisor(g->e->exprs, coef), n = g->e->lanes;
    while (n > 1 && step % 2 == 0) n /= 2, step /= 2;
    return (uint32_t)n;
}

uint32_t role_most_shift(const Long *l) {
    return l->offset ? l->line / l->r->team.g->e->lanes - 1 : 0;
}

/* Loads that all rows share and only the last walk needs; false: something else is left to load. */
static bool find_fixed(Long *l, const Pass *last) {
    const Gpu *g = l->r->team.g;
    uint32_t kept = 0;
    l->nfixed = 0;
    for (KVal v = 1; v < g->k->nops; v++) {
        if (g->k->ops[v].op != K_kload || !g->rows->need[v]) continue;
        if (!(g->rows->dom[v] >> l->axis & 1)) continue;
        if (row_is_load(l, v)) {
            for (uint32_t i = 0; i < l->nkept; i++) kept += l->kept[i] == v;
            continue;
        }
        if (!row_is_across(l, v) || l->nfixed == ROW_MOST_FIXED || !last->cone[v]) return false;
        for (uint32_t i = 0; i < l->first; i++)
            if (g->rows->pass[i].cone[v]) return false;
        l->fixed[l->nfixed++] = v;
    }
    return kept == l->nkept;
}

/* --- Shared memory ---------------------------------------------------------------------------- */

/* Of a vector of n values. */
static uint32_t vector_bytes(const Long *l, const KVal *v, uint32_t n) {
    const Gpu *g = l->r->team.g;
    return row_bytes_of(g, v, n) * g->e->lanes;
}

static uint32_t values_of(const Long *l) {
    return l->r->team.g->rows->pass[0].nfolds + (l->lead ? 1 : 0) + (l->mean ? 1 : 0);
}

uint32_t role_parts(const Long *l) {
    return l->cluster * l->folders;
}

uint32_t role_lay_out_slots(const Long *l, uint32_t at, Roles *x) {
    const uint32_t bars = ROLE_SLOTS * HOP_BARRIER_BYTES;
    x->values = values_of(l);
    x->parts_come = at;
    x->are_done = x->parts_come + bars;
    x->fixed_comes = x->are_done + bars;
    x->next_comes = x->fixed_comes + HOP_BARRIER_BYTES;
    x->next = x->next_comes + bars;
    x->parts = x->next + ROLE_SLOTS * WORD;
    x->results = x->parts + ROLE_SLOTS * x->values * role_parts(l) * WORD;
    return x->results + ROLE_SLOTS * x->values * WORD;
}

static uint32_t slots_bytes(const Long *l) {
    Roles x;
    return role_lay_out_slots(l, 0, &x);
}

/* Vectors of the block's part of what all rows read alike, and a piece more. */
static int64_t fixed_room(const Long *l) {
    return l->room + role_most_shift(l) + 1;
}

/* Teams read what all rows read alike as if each of their threads had as many vectors as the first:
 * the byte behind what the last one reads. */
static uint32_t fixed_end(const Long *l) {
    if (!l->teams || !l->nfixed) return 0;
    const int64_t team = (int64_t)l->folders * GPU_WARP, held = (l->room + team - 1) / team;
    const uint32_t bytes = vector_bytes(l, &l->fixed[l->nfixed - 1], 1);
    return l->fixed_at[l->nfixed - 1] + (uint32_t)(held * team + role_most_shift(l)) * bytes;
}

/* The ring takes what is left beside the rest: as many chunks as there is room for, or as rows need
 * whose folds have a slot. Two rows at least where a pair of blocks would have room for more: one
 * comes while the other is finished (layernorm over 33,335 columns, 1.2 rows: 100.4 us, by all
 * threads 94.6). Rows of whole vectors, which all threads finish sooner, take more (65,536 columns,
 * 1.4 rows: 89.7 us, by all threads 82.1; 50,304, 2.3 rows: 58.4 and 64.0). */
bool role_place(Long *l, uint32_t least) {
    const Gpu *g = l->r->team.g;
    uint32_t each = vector_bytes(l, l->kept, l->nkept) * l->chunk + 3 * HOP_BARRIER_BYTES;
    int64_t fixed = vector_bytes(l, l->fixed, l->nfixed) * fixed_room(l), chunks = row_chunks(l);
    int64_t room = (int64_t)g->m->shared - ROW_RESERVED - slots_bytes(l) - fixed;
    int64_t most = l->threads, ring = room < 0 ? 0 : room / each;
    if (ring > AHEAD * chunks) ring = AHEAD * chunks;
    if (ring > most) ring = most;
    if (ring * 10 < chunks * least) return false;
    l->ring = (uint32_t)ring;
    row_place_kept(l, ring * l->chunk);
    for (uint32_t i = 0; i < l->nfixed; i++) {
        l->fixed_at[i] = l->shared;
        l->shared += vector_bytes(l, &l->fixed[i], 1) * (uint32_t)fixed_room(l);
    }
    l->bars = l->shared;
    l->left = l->bars + l->ring * HOP_BARRIER_BYTES;
    l->made = l->left + l->ring * HOP_BARRIER_BYTES;
    l->shared = l->made + l->ring * HOP_BARRIER_BYTES + slots_bytes(l);
    const uint32_t end = fixed_end(l);
    if (l->shared < end) l->shared = end;
    return l->shared + ROW_RESERVED <= g->m->shared;
}

bool role_shape(Long *t, uint32_t cluster) {
    Gpu *g = t->r->team.g;
    int64_t length;
    if (!expr_is_const(g->e->exprs, t->length, &length) || !row_can_copy(t)) return false;
    t->lead = t->under = t->mean = 0;
    row_find_under(t, true);
    if (!has_walks(t) || !find_fixed(t, row_last_walk(g->rows)) || !role_period(t)) return false;
    t->cluster = cluster;
    t->turns = true, t->blocks = 1, t->all_kept = true;
    return true;
}

void role_room(Long *t) {
    int64_t length = 0;
    (void)expr_is_const(t->r->team.g->e->exprs, t->length, &length);
    t->room = row_room(t, length);
}
