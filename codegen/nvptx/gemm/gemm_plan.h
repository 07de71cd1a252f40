/* How a contraction comes to its plan: what it multiplies (gemm_operands.c), what its kernel does
 * with the sums (gemm_plan.c), which tiles there are and how long they take (gemm_tiles.c), which
 * of them it gets (gemm_choose.c). */
#ifndef CODEGEN_NVPTX_GEMM_PLAN_H
#define CODEGEN_NVPTX_GEMM_PLAN_H

#include "codegen/nvptx/gemm/gemm.h"

/* gemm_operands.c. NULL, or why matrix units or the copy engine cannot: operands and type; then
 * terms. */
const char *gemm_plan_operands(Gpu *g, GemmPlan *p);
const char *gemm_plan_terms(Gpu *g, GemmPlan *p);
bool gemm_is_acc(const KDot *d, KVal v);      /* one of the kernel's sums */
bool gemm_is_term(const GemmPlan *p, KVal v); /* the sum of a term */

/* gemm_tiles.c. A tile, and who shares its work: twins, or blocks that split its sums; nanoseconds
 * that the product takes by reckoning. */
typedef struct GemmWay {
    const GemmTile *tile;
    bool twin;
    uint32_t splits;
    int64_t time;
} GemmWay;
enum { GEMM_TILES = 15, GEMM_WAYS_OF_TILE = 6, GEMM_WAYS = GEMM_TILES * GEMM_WAYS_OF_TILE };
/* Way number i of m rows; false: not possible. shrink: how often a build has spilled. Crowded:
 * clusters may fill the machine, mostly slow. */
bool gemm_way(Gpu *g, const GemmPlan *p, uint32_t i, int64_t m, uint32_t shrink, bool crowded,
              GemmWay *out);
int64_t gemm_time(Gpu *g, const GemmPlan *p, const GemmTile *t, bool twin, uint32_t splits,
                  int64_t m);
int64_t gemm_ceil_div(int64_t a, int64_t b);

/* gemm_choose.c. The plan's tile becomes the fastest by this reckoning for m rows, or NULL; its
 * time.
 */
int64_t gemm_choose(Gpu *g, GemmPlan *p, int64_t m, uint32_t shrink);
/* What was tuned or is to be tried, where all sizes are known: the plan's tile is that way's. */
void gemm_choose_tuned(Gpu *g, GemmPlan *p);
/* Tiles for other numbers of rows, where these are known only when the kernel runs: p->variants. */
void gemm_find_variants(Gpu *g, GemmPlan *p);

#endif
