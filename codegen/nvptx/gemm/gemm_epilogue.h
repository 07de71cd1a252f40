/* What the parts of the epilogue share: a thread's places in a tile, and what it makes of its sums
 * there (gemm_place.c); results that go through shared memory (gemm_copied.c, gemm_rows.c). */
#ifndef CODEGEN_NVPTX_GEMM_EPILOGUE_H
#define CODEGEN_NVPTX_GEMM_EPILOGUE_H

#include "codegen/nvptx/gemm/gemm.h"

enum {
    EPILOGUE_MAX_BLOCKS = 4,
    EPILOGUE_MAX_ADDEND = 4,
    EPILOGUE_MAX_COLS = 256 / 8,
    EPILOGUE_MAX_LOADS = 12
};

typedef struct Epilogue {
    Gemm *x;
    Emit *e;
    const GemmPlace *tile;
    const HV *acc;
    bool rows_edge, cols_edge; /* it may stick out there, and threads reach memory by them */
    Expr row, col;             /* of the thread's first result; inside */
    HV row_at, col_at;         /* the same, i64 */
    Expr rows[2 * EPILOGUE_MAX_BLOCKS], cols[EPILOGUE_MAX_COLS][2]; /* edge: kept below the ends */
    HV row_in[2 * EPILOGUE_MAX_BLOCKS], col_in[EPILOGUE_MAX_COLS][2]; /* NULL: it is */
    uint32_t lane_col; /* symbol that stands for a pair's columns */
    HV lead;           /* first warp of the warpgroup */
    HV staging, put;   /* of the warpgroup; where this lane's row of a matrix store goes */
    HV swizzle;        /* the lane's 16-byte place in the row */
    HV lane_row;       /* bytes to that row from the start of a slab */
    HV bytes, turn; /* of results of 8 or 32 bits: where the lane's first go, their 16 bytes' place
                       in the row */
    uint32_t chunk; /* stored so far in this tile */
    GemmRing addend[EPILOGUE_MAX_ADDEND]; /* the stages that hold the addend */
    uint32_t waited;                      /* of them */
    HV addend_pair;                       /* at the site */
    HV *taken;                            /* all of the thread's, NULL: read when needed */
    KVal load[EPILOGUE_MAX_LOADS];        /* of elements at the sites: fetched ahead */
    uint32_t nloads;
    const HV *fetched; /* of the site at hand, NULL: loaded when needed */
} Epilogue;

/* One thread's place in the tile: 64-row block, 8-column group, upper or lower row. */
typedef struct Site {
    uint32_t block, group, half;
} Site;

/* gemm_place.c. In the current scope the batch stands where the tile is; places of the thread. */
void gemm_place_threads(Epilogue *p);
/* A position of that extent, whose value (i64) is a multiple of `multiple`. */
Expr gemm_symbol(Emit *e, const char *name, Expr extent, HV value, uint32_t multiple);
HV gemm_wide(Emit *e, HV v);
/* Conditions, each of which may be NULL: it holds. */
HV gemm_both(Emit *e, HV a, HV b);
/* Times that a site's two columns are computed: once together, or one after the other. */
uint32_t gemm_site_turns(const Gemm *x);
/* In the current scope the axes of m and n stand at the site (its column z, or both), and folds are
 * its sums. */
void gemm_bind_site(Epilogue *p, Site s, uint32_t z);
/* The site's loads. out: room for nloads of each turn. */
void gemm_fetch_site(Epilogue *p, Site s, HV *out);

/* gemm_copied.c: copied results, which give back the addend's stages. Number of those results;
 * registers that a thread needs beside its sums meanwhile. */
uint32_t gemm_copied_outs(const GemmPlan *p);
void gemm_copy_out(Epilogue *p);
uint32_t gemm_copy_registers(const Gemm *x);
/* gemm_rows.c: results that a warp stores row by row. */
bool gemm_stores_rows(const Gemm *x, const GemmOut *o);
void gemm_store_rows(Epilogue *p, const GemmOut *o);

#endif
