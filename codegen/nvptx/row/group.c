/* Short rows that do not begin at whole pieces of memory, several to a block: as many as begin and
 * end at such a piece lie side by side, and the copy engine brings them, and takes results away, as
 * one. Threads reach elements in shared memory, which moves any of them as fast; memory sees whole
 * lines. */
#include "codegen/nvptx/hopper/hopper.h"
#include "codegen/nvptx/row/row.h"

enum {
    BANKS = 32, /* of shared memory, a word each */
    WORD = 4,
    LEAST_TEAM = 4,
    /* Bytes of a load that a thread takes. The more they are, the fewer threads meet (softmax over
     * 333 columns of bf16 by 8, 16, 32 threads 67.9, 69.9, 77.9 us; over 1004, where 16 take 126,
     * by 16, 32 65.9, 64.9); a warp takes more, rather than several that wait for each other (over
     * 2500 by 32, 64 65.9, 78.3). Likewise where no results of points are made. */
    BYTES = 100,
    BYTES_FOLDED = 192,
    MOST_BYTES = 224,
    MOST_FOLDED = 160, /* sums over 1502 columns of f32, which are more, 33.3 us, not 31 */
    MOST_CONFLICTS = 2,
    MOST_SINGLE = 20, /* elements of f32, see gains */
    THREADS = 128,    /* of a block, or more where the least group has more rows */
    MOST_THREADS = 512,
    MOST_SHARED = 49152, /* bytes */
};

/* Rows that begin and end at whole pieces. */
static uint32_t least_group(const RowPlan *r) {
    uint32_t n = 1;
    for (uint32_t i = 0; i < r->nbrought; i++)
        while (n * row_brought_row(r, i) % ROW_COPY_ALIGN) n *= 2;
    return n;
}

/* The row's axis is the innermost of all. */
static bool is_innermost(const RowPlan *r) {
    return !(r->axes & (r->axes - 1)) && r->axes > r->team.g->rows->par;
}

/* The most words of a bank that a warp reaches at once, in words of a thread: its teams have
 * `bytes` a thread, side by side, of rows of so many bytes (softmax over 257 columns of bf16, four
 * rows a warp, 85.2 us, two 73.1). */
static uint32_t conflicts(int64_t row, uint32_t team, int64_t bytes) {
    uint32_t words[BANKS] = {0}, most = 0;
    for (uint32_t i = 0; i < GPU_WARP / team; i++)
        for (int64_t w = i * row / WORD; w <= (i * row + team * bytes - 1) / WORD; w++)
            words[w % BANKS]++;
    for (uint32_t i = 0; i < BANKS; i++)
        if (words[i] > most) most = words[i];
    return bytes > WORD ? most * WORD / (uint32_t)bytes : most;
}

static bool choose_team(RowPlan *r, int64_t vectors) {
    const bool points = row_stores_points(r);
    const int64_t bytes = r->team.g->e->lanes * (int64_t)row_bytes(r->team.g, r->brought[0]);
    const int64_t most = points ? BYTES : BYTES_FOLDED;
    uint32_t t = LEAST_TEAM;
    for (; t < GPU_WARP && 2 * t <= vectors; t *= 2) {
        const int64_t pieces = (vectors + t - 1) / t;
        if (pieces <= ROW_GROUP_PIECES && pieces * bytes <= most &&
            conflicts(vectors * bytes, t, bytes) <= MOST_CONFLICTS)
            break;
    }
    r->team.size = t;
    r->pieces = (uint32_t)((vectors + t - 1) / t);
    return r->pieces <= ROW_GROUP_PIECES &&
           (t < GPU_WARP || r->pieces * bytes <= (points ? MOST_BYTES : MOST_FOLDED));
}

/* Warps that load single elements of f32, many of them each thread, are sooner (softmax over 701,
 * 1001 65.3, 65.4 us, not 67.9, 68.5; over 577 72.2, not 67.4), but not where they read weights,
 * too. */
static bool gains(const RowPlan *r) {
    const Gpu *g = r->team.g;
    return r->nbrought > 1 || g->e->lanes > 1 || row_bytes(g, r->brought[0]) < 4 ||
           row_shares_most(r) || r->team.size < GPU_WARP || r->pieces <= MOST_SINGLE ||
           !row_stores_points(r);
}

/* As few rows as make a block. */
static bool choose_group(RowPlan *r) {
    int64_t bytes = 0;
    for (uint32_t i = 0; i < r->nbrought; i++) bytes += row_brought_row(r, i);
    r->group = least_group(r);
    if (r->group == 1) return false;
    while (r->group * r->team.size < THREADS) r->group *= 2;
    return r->group * r->team.size <= MOST_THREADS && r->group * bytes <= MOST_SHARED;
}

bool row_groups(RowPlan *r) {
    RowPlan t = *r;
    int64_t vectors;
    if (!row_walks_alike(&t, &vectors) || !is_innermost(&t)) return false;
    t.group = 1; /* for row_comes */
    if (!row_comes(&t) || (row_stores_points(&t) && !t.copied_out)) return false;
    if (!choose_team(&t, vectors) || !choose_group(&t) || !gains(&t)) return false;
    if (!row_is_busy(&t, t.team.size)) return false;
    *r = t;
    return true;
}

LLVMValueRef row_group_begin(RowPlan *r, Expr rows) {
    Gpu *g = r->team.g;
    Emit *e = g->e;
    const int64_t size = r->team.size, n = r->group;
    LLVMValueRef first = LLVMBuildMul(e->b, g->block[0], emit_i64(e, n), "");
    LLVMValueRef team =
        LLVMBuildLShr(e->b, g->tid, emit_i64(e, __builtin_ctzll((uint64_t)size)), "");
    LLVMValueRef at = LLVMBuildAdd(e->b, first, team, "");
    r->team.rank = LLVMBuildAnd(e->b, g->tid, emit_i64(e, size - 1), "");
    r->slot = LLVMBuildTrunc(e->b, team, e->i32, "");
    if (expr_divisor(e->exprs, rows) % n == 0) return at;
    LLVMValueRef all = emit_expr(e, rows);
    const LLVMValueRef left = LLVMBuildSub(e->b, all, first, "");
    r->here = LLVMBuildTrunc(e->b, gpu_smaller(e, left, emit_i64(e, n)), e->i32, "");
    r->inside = LLVMBuildICmp(e->b, LLVMIntSLT, at, all, "");
    return gpu_smaller(e, at, LLVMBuildSub(e->b, all, emit_i64(e, 1), ""));
}
