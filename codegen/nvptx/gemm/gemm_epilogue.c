/* From sums to stored results. A thread has, of every 64 rows, rows lane / 4 and that + 8 of its
 * warp's 16, and there columns 2 (lane % 4) and the next of every 8. The kernel's body is evaluated
 * at these places with the sums in place of its folds.
 *
 * 16-bit results go through shared memory, where matrix stores put them under the copy engine's
 * swizzle, 64 x 64 at a time, and bytes and words of 32 bits, which threads put there themselves;
 * others are stored by the threads that have them, or, in rows that the engine cannot address and
 * pairs do not fit, row by row by the warp that has them. Where a tile may stick out, there are two
 * copies of the code: inside nothing is checked; at the edge rows and columns past the end repeat
 * the last one for what is read, and are not stored. */
#include "codegen/nvptx/gemm/gemm.h"

enum { NAMED_STAGING = 2 }; /* + the warpgroup's number */
enum { MAX_BLOCKS = 4, MAX_ADDEND = 4, MAX_COLS = 256 / 8, MAX_LOADS = 12 };

typedef struct Epilogue {
    Gemm *x;
    Emit *e;
    const GemmPlace *tile;
    const HV *acc;
    bool edge;
    Expr row, col;                                /* of the thread's first result; inside */
    HV row_at, col_at;                            /* the same, i64 */
    Expr rows[2 * MAX_BLOCKS], cols[MAX_COLS][2]; /* edge: kept below the ends */
    HV row_in[2 * MAX_BLOCKS], col_in[MAX_COLS][2];
    uint32_t lane_col; /* symbol that stands for a pair's columns */
    HV lead;           /* first warp of the warpgroup */
    HV staging, put;   /* of the warpgroup; where this lane's row of a matrix store goes */
    HV swizzle;        /* the lane's 16-byte place in the row */
    HV lane_row;       /* bytes to that row from the start of a slab */
    HV bytes, turn; /* of results of 8 or 32 bits: where the lane's first go, their 16 bytes' place
                       in the row */
    uint32_t chunk; /* stored so far in this tile */
    GemmRing addend[MAX_ADDEND]; /* the stages that hold the addend */
    uint32_t waited;             /* of them */
    HV addend_pair;              /* at the site */
    HV *taken;                   /* all of the thread's, NULL: read when needed */
    KVal load[MAX_LOADS];        /* of elements at the sites: fetched ahead */
    uint32_t nloads;
    const HV *fetched; /* of the site at hand, NULL: loaded when needed */
} Epilogue;

/* One thread's place in the tile: 64-row block, 8-column group, upper or lower row. */
typedef struct Site {
    uint32_t block, group, half;
} Site;

/* --- Places ----------------------------------------------------------------------------------- */

static HV wide(Emit *e, HV v) {
    return LLVMBuildZExt(e->b, v, e->i64, "");
}

static HV smin(Emit *e, HV a, HV b) {
    HV v[2] = {a, b};
    return emit_intrinsic(e, "llvm.smin", LLVMTypeOf(a), v, 2);
}

static Expr symbol(Emit *e, const char *name, Expr extent, HV value, uint32_t multiple) {
    uint32_t sym;
    Expr x = emit_position(e, name, extent, value);
    if (multiple > 1 && expr_is_sym(e->exprs, x, &sym)) map_put(e->aligned, sym, multiple);
    return x;
}

static void place_edge(Epilogue *p) {
    Emit *e = p->e;
    const GemmPlan *plan = p->x->p;
    HV m = emit_expr(e, plan->m), n = emit_expr(e, plan->n);
    HV last_row = LLVMBuildSub(e->b, m, emit_i64(e, 1), "");
    HV last_col = LLVMBuildSub(e->b, n, emit_i64(e, plan->pairs ? 2 : 1), "");
    for (uint32_t i = 0; i < 2 * p->x->shape.blocks; i++) {
        HV at = LLVMBuildAdd(e->b, p->row_at, emit_i64(e, i / 2 * HOP_SLAB_ROWS + i % 2 * 8), "");
        p->row_in[i] = LLVMBuildICmp(e->b, LLVMIntSLT, at, m, "");
        p->rows[i] = symbol(e, "r", plan->m, smin(e, at, last_row), 1);
    }
    for (uint32_t j = 0; j < p->x->cols / 8; j++)
        for (uint32_t z = 0; z < (plan->pairs ? 1 : 2); z++) {
            HV at = LLVMBuildAdd(e->b, p->col_at, emit_i64(e, j * 8 + z), "");
            p->col_in[j][z] = LLVMBuildICmp(e->b, LLVMIntSLT, at, n, "");
            p->cols[j][z] = symbol(e, "c", plan->n, smin(e, at, last_col), plan->pairs ? 2 : 1);
        }
}

static void place_threads(Epilogue *p) {
    Emit *e = p->e;
    Gemm *x = p->x;
    HV warp = hop_andi(e, x->warp, 3), quad = hop_shr(e, x->lane, 2);
    HV row = hop_add(e, p->tile->row, hop_add(e, hop_shl(e, warp, 4), quad));
    HV col = hop_add(e, p->tile->col, hop_shl(e, hop_andi(e, x->lane, 3), 1));
    p->row_at = wide(e, row);
    p->col_at = wide(e, col);
    p->row = symbol(e, "m", x->p->m, p->row_at, 1);
    p->col = symbol(e, "n", x->p->n, p->col_at, 2);
    if (p->tile->batch)
        gpu_decode(e, x->g->k, x->d->batch,
                   symbol(e, "batch", x->p->batch, wide(e, p->tile->batch), 1));
    if (p->edge) place_edge(p);
    (void)expr_is_sym(e->exprs, emit_position(e, "pair", x->p->n, emit_i64(e, 0)), &p->lane_col);
}

/* Columns of a site are computed together, or one after the other. */
static uint32_t turns(const Gemm *x) {
    return x->p->pairs ? 1 : 2;
}

/* Of x->columns: the first load at column z of an eight. */
static uint32_t column_at(const Gemm *x, uint32_t group, uint32_t z) {
    return (group * turns(x) + z) * x->ncolumns;
}

/* Binds the axes of m and n to a site (its column z, or both) and the folds to its sums. */
static void bind_site(Epilogue *p, Site s, uint32_t z) {
    Emit *e = p->e;
    Gemm *x = p->x;
    ExprPool *q = e->exprs;
    uint32_t row_add = s.block * HOP_SLAB_ROWS + s.half * 8, col_add = s.group * 8 + z;
    Expr row = p->edge ? p->rows[2 * s.block + s.half] : expr_addi(q, p->row, row_add);
    Expr col = p->edge ? p->cols[s.group][z] : expr_addi(q, p->col, col_add);
    gpu_decode(e, x->g->k, x->d->m, row);
    if (x->p->pairs) {
        emit_bind_lanes(e, p->lane_col, col, NULL, true);
        col = expr_sym_ref(q, p->lane_col);
    }
    gpu_decode(e, x->g->k, x->d->n, col);
    for (uint32_t i = 0; x->columns && i < x->ncolumns; i++)
        emit_override(e, x->column[i], x->columns[column_at(x, s.group, z) + i]);
    for (uint32_t i = 0; p->acc && i < x->d->nacc; i++) {
        uint32_t each = x->shape.n / 2;
        const HV *a = p->acc + (i * x->shape.blocks + s.block) * each + s.group * 4 + s.half * 2;
        HV v = a[z];
        if (x->p->pairs) {
            v = LLVMGetPoison(emit_vec(LLVMTypeOf(a[0]), 2));
            for (uint32_t l = 0; l < 2; l++)
                v = LLVMBuildInsertElement(e->b, v, a[l], emit_i64(e, l), "");
        }
        emit_override(e, x->d->acc[i], v);
    }
    for (uint32_t i = 0; i < x->p->nterms; i++) { /* they are in the sums: x + -0 is x */
        HV zero = LLVMConstReal(e->f32, -0.0);
        HV two[2] = {zero, zero};
        emit_override(e, x->p->term[i].sum, x->p->pairs ? LLVMConstVector(two, 2) : zero);
    }
    for (uint32_t i = 0; p->fetched && i < p->nloads; i++)
        emit_override(e, p->load[i], p->fetched[i]);
    if (!x->p->addend || !p->addend_pair) return;
    HV v = LLVMBuildBitCast(e->b, p->addend_pair, emit_vec(e->i16, 2), "");
    if (!x->p->pairs) v = LLVMBuildExtractElement(e->b, v, emit_i64(e, z), "");
    emit_override(e, x->p->addend, v);
}

/* --- What is loaded ahead ----------------------------------------------------------------------
 *
 * Nothing that is loaded moves in front of a store or a barrier by itself, and each load would be
 * waited for: so loads of several sites are asked for before any of them is stored. A build that
 * spilled does without. */

static void find_loads(Epilogue *p) {
    const Gemm *x = p->x;
    const KDot *d = x->d;
    for (KVal v = 1; !x->g->j->modest && v < x->g->k->nops && p->nloads < MAX_LOADS; v++) {
        const KOp *o = &x->g->k->ops[v];
        uint32_t at = x->e->domains[v];
        if (o->op != K_kload || o->in[0] || v == x->p->addend) continue;
        if (at & d->m && at & d->n && !(at & ~(d->m | d->n | d->batch))) p->load[p->nloads++] = v;
    }
    x->g->j->ahead |= p->nloads > 0;
}

/* out: room for nloads of each turn. */
static void fetch_site(Epilogue *p, Site s, HV *out) {
    Emit *e = p->e;
    HV pair = p->addend_pair;
    p->addend_pair = NULL;
    p->fetched = NULL;
    for (uint32_t z = 0; z < turns(p->x); z++) {
        emit_push(e);
        bind_site(p, s, z);
        for (uint32_t i = 0; i < p->nloads; i++)
            out[z * p->nloads + i] = emit_value_lanes(e, p->load[i]);
        emit_pop(e);
    }
    p->addend_pair = pair;
}

/* --- What is added ---------------------------------------------------------------------------- */

/* Waits for the stages up to the one that has columns 64 `part` ... */
static void await_addend(Epilogue *p, uint32_t part) {
    Emit *e = p->e;
    if (!p->x->p->addend) return;
    for (; p->waited <= part / p->x->addend_panels; p->waited++) {
        GemmRing r = p->addend[p->waited];
        hop_barrier_wait(e, gemm_barrier(p->x, r.stage, false), r.parity);
    }
}

/* Four pairs of the lane, in the places of the matrix store that follows. */
static void read_addend(Epilogue *p, uint32_t block, uint32_t part, HV place, HV *r) {
    Emit *e = p->e;
    Gemm *x = p->x;
    if (!x->p->addend) return;
    HV at = gemm_stage(x, p->addend[part / x->addend_panels].stage);
    at = hop_addi(e, at, part % x->addend_panels * x->a_bytes + block * HOP_SLAB);
    if (!x->tile->pingpong) {
        HV member = hop_addi(e, x->group, -1);
        at = hop_add(e, at, hop_muli(e, member, x->shape.blocks * HOP_SLAB));
    }
    hop_ldmatrix(e, hop_add(e, hop_add(e, at, p->lane_row), place), r);
}

/* Gives the addend's stages back: all of the warpgroup read them before a fence and a barrier. */
static void return_addend(Epilogue *p) {
    HV always = LLVMConstInt(p->e->i1, 1, false);
    for (uint32_t i = 0; i < p->x->addend_stages; i++)
        gemm_give_back(p->x, p->addend[i].stage, always);
}

/* --- Results through shared memory ------------------------------------------------------------ */

/* A site's two results of 8 or 16 bits in one register. fetched: its loads, or NULL. */
static HV packed_pair(Epilogue *p, KVal v, Site s, const HV *fetched) {
    Emit *e = p->e;
    bool bytes = dtype_bytes((DType)p->x->g->k->ops[v].dtype) == 1, words = p->x->words;
    HV r = LLVMGetPoison(emit_vec(words ? e->i32 : bytes ? e->i8 : e->i16, 2));
    for (uint32_t z = 0; z < turns(p->x); z++) {
        emit_push(e);
        p->fetched = fetched ? fetched + z * p->nloads : NULL;
        bind_site(p, s, z);
        HV one = emit_value_lanes(e, v);
        emit_pop(e);
        if (words && !p->x->p->pairs) one = LLVMBuildBitCast(e->b, one, e->i32, "");
        r = p->x->p->pairs ? one : LLVMBuildInsertElement(e->b, r, one, emit_i64(e, z), "");
    }
    return LLVMBuildBitCast(e->b, r, words ? e->i64 : bytes ? e->i16 : e->i32, "");
}

/* A slab is 64 rows of 64 results, or all of a narrower tile's, in steps of a matrix store: 16
 * columns. */
typedef struct Slab {
    uint32_t block, part; /* of 64 rows, of 64 columns */
} Slab;

enum { STEP_COLS = 16, STEP_REGS = 4 };

static uint32_t steps_of(const Gemm *x) {
    return x->slab_cols / STEP_COLS;
}

static uint32_t slabs_of(const Gemm *x) {
    return x->shape.blocks * x->cols / x->slab_cols;
}

static Slab slab_at(const Gemm *x, uint32_t i) {
    return (Slab){i % x->shape.blocks, i / x->shape.blocks};
}

/* The addend's share of one step. */
static void take_step(Epilogue *p, Slab s, uint32_t step, HV *in) {
    HV place = LLVMBuildXor(p->e->b, p->swizzle, hop_i(p->e, step << 5), "");
    await_addend(p, s.part);
    read_addend(p, s.block, s.part, place, in);
}

static Site site_of(const Gemm *x, Slab s, uint32_t step, uint32_t i) {
    return (Site){s.block, s.part * (x->slab_cols / 8) + step * 2 + i / 2, i % 2};
}

/* Loads of a step's sites. */
static void fetch_step(Epilogue *p, Slab s, uint32_t step, HV *out) {
    for (uint32_t i = 0; i < STEP_REGS; i++)
        fetch_site(p, site_of(p->x, s, step, i), out + i * turns(p->x) * p->nloads);
}

/* The thread's share of one step. fetched: its loads, or NULL. */
static void compute_step(Epilogue *p, KVal v, Slab s, uint32_t step, const HV *fetched, HV *r) {
    HV now[STEP_REGS], *in = now;
    if (p->taken)
        in = p->taken +
             ((s.part * p->x->shape.blocks + s.block) * steps_of(p->x) + step) * STEP_REGS;
    else
        take_step(p, s, step, in);
    for (uint32_t i = 0; i < STEP_REGS; i++) {
        p->addend_pair = p->x->p->addend ? in[i] : NULL;
        r[i] = packed_pair(p, v, site_of(p->x, s, step, i),
                           fetched ? fetched + i * turns(p->x) * p->nloads : NULL);
    }
}

/* To a slab of shared memory, `to` bytes into staging. */
static void put_step(Epilogue *p, uint32_t step, const HV *r, uint32_t to) {
    Emit *e = p->e;
    HV place = LLVMBuildXor(e->b, p->swizzle, hop_i(e, step << 5), "");
    hop_stmatrix(e, hop_addi(e, hop_add(e, p->put, place), to), r);
}

/* Where the lane's results of 8 bits go in a slab. */
static void find_bytes(Epilogue *p) {
    Emit *e = p->e;
    HV quad = hop_shr(e, p->x->lane, 2), warp = hop_andi(e, p->x->warp, 3);
    HV row = hop_add(e, hop_shl(e, warp, 4), quad);
    HV pair = hop_shl(e, hop_andi(e, p->x->lane, 3), 1);
    p->bytes = hop_add(e, p->staging, hop_add(e, hop_muli(e, row, GEMM_SLAB_COLS), pair));
    p->turn = hop_shl(e, hop_shr(e, quad, 1), 4);
}

/* The same of bytes, in rows of 64: 16 of them, a step's columns, trade places every other row. */
static void put_bytes(Epilogue *p, uint32_t step, const HV *r, uint32_t to) {
    Emit *e = p->e;
    HV turned = LLVMBuildXor(e->b, p->turn, hop_i(e, step << 4), "");
    HV at = hop_addi(e, hop_add(e, p->bytes, turned), to);
    for (uint32_t i = 0; i < STEP_REGS; i++) {
        HV v[2] = {hop_addi(e, at, i % 2 * 8 * GEMM_SLAB_COLS + i / 2 * 8), r[i]};
        hop_asm(e, e->voidt, "st.shared.b16 [$0], $1;", "r,h,~{memory}", v, 2);
    }
}

/* Where the lane's results of 32 bits go in a slab: two neighbours are half of 16 bytes, which
 * trade places with the row. */
static void find_words(Epilogue *p) {
    Emit *e = p->e;
    HV quad = hop_shr(e, p->x->lane, 2), pair = hop_andi(e, p->x->lane, 3),
       warp = hop_andi(e, p->x->warp, 3);
    HV at = hop_muli(e, hop_add(e, hop_shl(e, warp, 4), quad), HOP_ROW_BYTES);
    p->bytes = hop_add(e, p->staging, hop_add(e, at, hop_shl(e, hop_andi(e, pair, 1), 3)));
    p->turn = hop_shl(e, LLVMBuildXor(e->b, hop_shr(e, pair, 1), quad, ""), 4);
}

static void put_words(Epilogue *p, uint32_t step, const HV *r, uint32_t to) {
    Emit *e = p->e;
    for (uint32_t i = 0; i < STEP_REGS; i++) {
        HV place = LLVMBuildXor(e->b, p->turn, hop_i(e, (step * 4 + i / 2 * 2) << 4), "");
        HV v[2] = {hop_addi(e, hop_add(e, p->bytes, place), to + i % 2 * 8 * HOP_ROW_BYTES), r[i]};
        hop_asm(e, e->voidt, "st.shared.b64 [$0], $1;", "r,l,~{memory}", v, 2);
    }
}

static void put(Epilogue *p, const GemmOut *o, uint32_t step, const HV *r, uint32_t to) {
    if (p->x->words) {
        if (!p->bytes) find_words(p);
        put_words(p, step, r, to);
        return;
    }
    if (dtype_bytes(o->mat.t) > 1) {
        put_step(p, step, r, to);
        return;
    }
    if (!p->bytes) find_bytes(p);
    put_bytes(p, step, r, to);
}

static void store_slab(Epilogue *p, const GemmOut *o, HV map, Slab s, uint32_t from) {
    Emit *e = p->e;
    HV at[2 + HOP_MAX_BATCH];
    at[0] = hop_addi(e, p->tile->col, s.part * p->x->slab_cols);
    at[1] = hop_addi(e, p->tile->row, s.block * HOP_SLAB_ROWS);
    gemm_batch_at(&o->mat, p->tile, at + 2);
    hop_tma_store(e, map, hop_addi(e, p->staging, from), at, 2 + o->mat.nbatch);
}

/* Waits until the staging that is written next was read. Sets are taken in turns within a tile. */
static void claim_staging(Epilogue *p, HV barrier, uint32_t chunks) {
    Emit *e = p->e;
    uint32_t sets = p->x->tile->sets, left = p->chunk == 0 && chunks % sets ? 0 : sets - 1;
    HopIf lead = hop_if(e, p->lead);
    hop_tma_wait_read(e, left);
    hop_end(e, lead);
    hop_sync(e, barrier, HOP_WARPGROUP);
}

/* Has n staged slabs stored, from slab `first` of the tile on. */
static void send(Epilogue *p, const GemmOut *o, HV map, uint32_t first, uint32_t n, uint32_t from) {
    Emit *e = p->e;
    HopIf lead = hop_if(e, p->lead);
    HopIf one = hop_if(e, hop_elect(e));
    for (uint32_t i = first; i < first + n; i++, from += HOP_SLAB)
        store_slab(p, o, map, slab_at(p->x, i), from);
    hop_tma_commit(e);
    hop_end(e, one);
    hop_end(e, lead);
}

enum { AHEAD_OPS = 24, AHEAD_REGS = 100, TAKEN_REGS = 40 };

/* With registers to spare, and not much arithmetic in flight, all of the tile is computed before
 * anything is stored, so that the addend's stages can be filled anew while results wait for
 * staging. */
static bool computes_ahead(const Gemm *x) {
    return x->p->addend && x->p->nouts == 1 && x->p->epilogue_ops <= AHEAD_OPS &&
           x->tile->regs_math >= wgmma_acc(&x->shape) + AHEAD_REGS;
}

/* Else, with registers for it, the addend is read before anything is computed: its stages are given
 * back before the arithmetic, so that the next tile's k-blocks come meanwhile. */
static bool takes_addend(const Gemm *x) {
    return x->p->addend && !computes_ahead(x) && !x->g->j->modest &&
           x->tile->regs_math >=
               wgmma_acc(&x->shape) + slabs_of(x) * steps_of(x) * STEP_REGS + TAKEN_REGS;
}

static void take_addend(Epilogue *p) {
    Emit *e = p->e;
    uint32_t slabs = slabs_of(p->x), steps = steps_of(p->x);
    HV *r = ARENA_ARRAY(e->arena, HV, slabs * steps * STEP_REGS);
    for (uint32_t i = 0; i < slabs * steps; i++)
        take_step(p, slab_at(p->x, i / steps), i % steps, r + i * STEP_REGS);
    hop_fence_async(e);
    hop_sync(e, hop_addi(e, p->x->group, NAMED_STAGING), HOP_WARPGROUP);
    return_addend(p);
    p->x->g->j->ahead = true;
    p->taken = r;
}

/* All steps of the tile; the addend is done with. */
static void compute_ahead(Epilogue *p, KVal v, uint32_t slabs, HV barrier, HV *r) {
    uint32_t steps = steps_of(p->x);
    for (uint32_t i = 0; i < slabs * steps; i++)
        compute_step(p, v, slab_at(p->x, i / steps), i % steps, NULL, r + i * STEP_REGS);
    hop_fence_async(p->e);
    hop_sync(p->e, barrier, HOP_WARPGROUP);
    return_addend(p);
}

/* Slabs `first` to `first` + n of one result. r: what was computed ahead, or room for it. `chunks`:
 * of the tile, all results together. */
static void copy_chunk(Epilogue *p, uint32_t out, uint32_t first, uint32_t n, HV *r,
                       uint32_t chunks) {
    Emit *e = p->e;
    const GemmTile *t = p->x->tile;
    const GemmOut *o = &p->x->p->out[out];
    HV barrier = hop_addi(e, p->x->group, NAMED_STAGING);
    uint32_t at = p->chunk % t->sets * t->slabs * HOP_SLAB, steps = steps_of(p->x);
    claim_staging(p, barrier, chunks);
    for (uint32_t i = first * steps; i < (first + n) * steps; i++) {
        HV *regs = r + i * STEP_REGS;
        if (!computes_ahead(p->x))
            compute_step(p, p->x->g->k->ops[o->store].in[0], slab_at(p->x, i / steps), i % steps,
                         NULL, regs);
        put(p, o, i % steps, regs, at + (i / steps - first) * HOP_SLAB);
    }
    hop_fence_async(e);
    hop_sync(e, barrier, HOP_WARPGROUP);
    send(p, o, p->x->map_out[out], first, n, at);
    p->chunk++;
}

static uint32_t copied_outs(const GemmPlan *p) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->nouts; i++) n += p->out[i].copied;
    return n;
}

/* Step i of a slab of every result, one behind the other in staging. */
static void put_together(Epilogue *p, Slab s, uint32_t step, const HV *fetched) {
    const GemmPlan *plan = p->x->p;
    HV r[STEP_REGS];
    for (uint32_t i = 0, at = 0; i < plan->nouts; i++) {
        if (!plan->out[i].copied) continue;
        compute_step(p, p->x->g->k->ops[plan->out[i].store].in[0], s, step, fetched, r);
        put(p, &plan->out[i], step, r, at);
        at += HOP_SLAB;
    }
}

static void send_together(Epilogue *p, uint32_t slab) {
    const GemmPlan *plan = p->x->p;
    for (uint32_t i = 0, at = 0; i < plan->nouts; i++) {
        if (!plan->out[i].copied) continue;
        send(p, &plan->out[i], p->x->map_out[i], slab, 1, at);
        at += HOP_SLAB;
    }
}

/* Slab after slab of every result, step by step: they share what they are made of, which would be
 * loaded again or spilled by the time a slab is through. Loads are a step ahead. */
static void copy_together(Epilogue *p, uint32_t slabs) {
    Emit *e = p->e;
    uint32_t steps = steps_of(p->x);
    HV barrier = hop_addi(e, p->x->group, NAMED_STAGING), loads[2][STEP_REGS * 2 * MAX_LOADS];
    fetch_step(p, slab_at(p->x, 0), 0, loads[0]);
    for (uint32_t i = 0; i < slabs * steps; i++) {
        uint32_t next = i + 1;
        if (next < slabs * steps)
            fetch_step(p, slab_at(p->x, next / steps), next % steps, loads[next % 2]);
        if (i % steps == 0) {
            HopIf lead = hop_if(e, p->lead);
            hop_tma_wait_read(e, 0);
            hop_end(e, lead);
            hop_sync(e, barrier, HOP_WARPGROUP);
        }
        put_together(p, slab_at(p->x, i / steps), i % steps, loads[i % 2]);
        if (next % steps) continue;
        hop_fence_async(e);
        hop_sync(e, barrier, HOP_WARPGROUP);
        send_together(p, i / steps);
    }
}

static void copy_out(Epilogue *p, uint32_t chunks) {
    const GemmPlan *plan = p->x->p;
    const GemmTile *t = p->x->tile;
    const uint32_t total = slabs_of(p->x), copied = copied_outs(plan);
    HV *r = ARENA_ARRAY(p->e->arena, HV, total * steps_of(p->x) * STEP_REGS);
    bool ahead = computes_ahead(p->x), together = copied > 1 && copied <= t->slabs * t->sets;
    if (takes_addend(p->x)) take_addend(p);
    if (ahead) /* of the only result */
        compute_ahead(p, p->x->g->k->ops[plan->out[0].store].in[0], total,
                      hop_addi(p->e, p->x->group, NAMED_STAGING), r);
    if (together) copy_together(p, total);
    for (uint32_t first = 0; !together && first < total; first += t->slabs)
        for (uint32_t i = 0; i < plan->nouts; i++)
            if (plan->out[i].copied)
                copy_chunk(p, i, first, total - first < t->slabs ? total - first : t->slabs, r,
                           chunks);
    if (!ahead && !p->taken) return_addend(p);
}

/* --- Results from registers ------------------------------------------------------------------- */

static bool stores_rows(const Gemm *x, const GemmOut *o);

static bool stores_sites(const Gemm *x, const GemmOut *o) {
    return !o->copied && !stores_rows(x, o);
}

bool gemm_stores_apart(const Gemm *x) {
    bool all = true;
    for (uint32_t i = 0; i < x->p->nouts; i++) all = all && stores_sites(x, &x->p->out[i]);
    return all;
}

/* All results of a site: they share what they are made of, which lives no longer than that. */
static void store_site(Epilogue *p, Site s, uint32_t z, const HV *fetched) {
    Emit *e = p->e;
    EmitIf in;
    if (p->edge) {
        HV inside = LLVMBuildAnd(e->b, p->row_in[2 * s.block + s.half], p->col_in[s.group][z], "");
        emit_if_begin(e, &in, inside);
    } else {
        emit_push(e);
    }
    p->fetched = fetched;
    bind_site(p, s, z);
    for (uint32_t i = 0; i < p->x->p->nouts; i++)
        if (stores_sites(p->x, &p->x->p->out[i])) emit_store(e, p->x->p->out[i].store);
    if (p->edge)
        emit_if_end(e, &in);
    else
        emit_pop(e);
}

enum { MAX_AHEAD = 8, SPARE_REGS = 40, COLUMN_SPARE = 60 };
enum { SMALL_REGS = 168 }; /* of a thread of a small tile, counted on */

/* Sites whose loads are asked for together, as registers allow: the sums of what was stored need
 * none any more. */
static uint32_t sites_ahead(const Epilogue *p, uint32_t stored) {
    const Gemm *x = p->x;
    uint32_t all = x->tile->regs_math ? x->tile->regs_math : SMALL_REGS,
             live = wgmma_acc(&x->shape);
    live = live / (x->cols / 8) * (x->to - x->from);
    live = live - 2 * x->shape.sums * stored + SPARE_REGS;
    uint32_t each = 2 * (p->nloads + x->p->nouts), n = all > live ? (all - live) / each : 1;
    return n < 1 || !p->nloads ? 1 : n > MAX_AHEAD ? MAX_AHEAD : n;
}

static void store_some(Epilogue *p, const Site *s, uint32_t n) {
    uint32_t each = turns(p->x) * p->nloads;
    HV loads[MAX_AHEAD * 2 * MAX_LOADS];
    for (uint32_t i = 0; i < n; i++) fetch_site(p, s[i], loads + i * each);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t z = 0; z < turns(p->x); z++)
            store_site(p, s[i], z, loads + i * each + z * p->nloads);
}

static void store_sites(Epilogue *p) {
    Site s[MAX_AHEAD];
    uint32_t n = 0, stored = 0, most = sites_ahead(p, 0);
    for (uint32_t j = p->x->from; j < p->x->to; j++)
        for (uint32_t i = 0; i < 2 * p->x->shape.blocks; i++) {
            s[n++] = (Site){i / 2, j, i % 2};
            if (n < most) continue;
            store_some(p, s, n);
            stored += n;
            most = sites_ahead(p, stored);
            n = 0;
        }
    if (n) store_some(p, s, n);
}

/* --- Results row by row -----------------------------------------------------------------------
 *
 * Rows of odd pitch start anywhere, so two columns are no aligned access: stored by the threads
 * that have them, 8 rows would be written a few bytes at a time. A warp hands 16 rows of 32 columns
 * over to itself through its part of the staging and stores them a row, 32 neighbours, at a time */

enum { WARP_ROWS = 16, CHUNK = 32, WORD = 4, WARP_STAGING = WARP_ROWS * CHUNK * WORD };

typedef struct RowStore {
    Epilogue *p;
    const GemmOut *o;
    KVal v;            /* what is stored */
    HV at;             /* the warp's staging */
    HV row_at, col_at; /* of the warp's first row, i64; of the lane's column in the first chunk */
    Expr row, col;
} RowStore;

static bool stores_rows(const Gemm *x, const GemmOut *o) {
    const KOp *s = &x->g->k->ops[o->store];
    uint32_t bytes = (uint32_t)dtype_bytes((DType)s->dtype), all = x->d->m | x->d->n;
    for (uint32_t i = 0; i < x->p->nouts; i++)
        if (x->p->out[i].copied) return false; /* the staging is the copy engine's */
    return !x->p->pairs && (x->e->domains[o->store] & all) == all && (bytes == 2 || bytes == 4);
}

static void sync_warp(Emit *e) {
    hop_asm(e, e->voidt, "bar.warp.sync 0xffffffff;", "~{memory}", NULL, 0);
}

/* Word `col` of a row: rows trade places so that neither writing nor reading meets a bank twice. */
static HV word_at(const RowStore *s, HV row, HV col) {
    Emit *e = s->p->e;
    HV turned = LLVMBuildXor(e->b, col, hop_shl(e, hop_andi(e, row, 3), 3), "");
    return hop_add(e, hop_add(e, s->at, hop_muli(e, row, CHUNK * WORD)), hop_shl(e, turned, 2));
}

static HV as_word(Emit *e, HV v) {
    if (LLVMTypeOf(v) == e->f32) return LLVMBuildBitCast(e->b, v, e->i32, "");
    return LLVMBuildZExtOrBitCast(e->b, v, e->i32, "");
}

static HV from_word(Emit *e, HV w, DType t) {
    LLVMTypeRef type = emit_type(e, t);
    if (type == e->f32) return LLVMBuildBitCast(e->b, w, type, "");
    return LLVMBuildTruncOrBitCast(e->b, w, type, "");
}

/* The thread's results of one 64-row block and 32 columns. */
static void put_chunk(const RowStore *s, uint32_t block, uint32_t chunk) {
    Epilogue *p = s->p;
    Emit *e = p->e;
    HV quad = hop_shr(e, p->x->lane, 2), pair = hop_shl(e, hop_andi(e, p->x->lane, 3), 1);
    for (uint32_t i = 0; i < CHUNK / 8 * 2; i++) {
        Site site = {block, chunk * (CHUNK / 8) + i / 2, i % 2};
        HV word[3] = {word_at(s, hop_addi(e, quad, site.half * 8), hop_addi(e, pair, i / 2 * 8))};
        for (uint32_t z = 0; z < 2; z++) {
            emit_push(e);
            p->fetched = NULL;
            bind_site(p, site, z);
            word[1 + z] = as_word(e, emit_value(e, s->v));
            emit_pop(e);
        }
        hop_asm(e, e->voidt, "st.shared.v2.b32 [$0], {$1, $2};", "r,r,r,~{memory}", word, 3);
    }
}

/* One row of them: a column for each lane. */
static void store_row(const RowStore *s, uint32_t block, uint32_t chunk, uint32_t row) {
    Epilogue *p = s->p;
    Emit *e = p->e;
    Gemm *x = p->x;
    EmitIf in;
    uint32_t row_add = block * HOP_SLAB_ROWS + row, col_add = chunk * CHUNK;
    HV at = word_at(s, hop_i(e, row), x->lane);
    HV w = hop_asm(e, e->i32, "ld.shared.b32 $0, [$1];", "=r,r,~{memory}", &at, 1);
    if (p->edge) {
        HV r = LLVMBuildAdd(e->b, s->row_at, emit_i64(e, row_add), "");
        HV c = LLVMBuildAdd(e->b, s->col_at, emit_i64(e, col_add), "");
        r = LLVMBuildICmp(e->b, LLVMIntSLT, r, emit_expr(e, x->p->m), "");
        c = LLVMBuildICmp(e->b, LLVMIntSLT, c, emit_expr(e, x->p->n), "");
        emit_if_begin(e, &in, LLVMBuildAnd(e->b, r, c, ""));
    } else {
        emit_push(e);
    }
    gpu_decode(e, x->g->k, x->d->m, expr_addi(e->exprs, s->row, row_add));
    gpu_decode(e, x->g->k, x->d->n, expr_addi(e->exprs, s->col, col_add));
    emit_override(e, s->v, from_word(e, w, (DType)x->g->k->ops[s->v].dtype));
    emit_store(e, s->o->store);
    if (p->edge)
        emit_if_end(e, &in);
    else
        emit_pop(e);
}

static void store_by_rows(Epilogue *p, const GemmOut *o) {
    Emit *e = p->e;
    Gemm *x = p->x;
    HV warp = hop_andi(e, x->warp, 3);
    RowStore s = {.p = p, .o = o, .v = x->g->k->ops[o->store].in[0]};
    s.at = hop_add(e, p->staging, hop_muli(e, warp, WARP_STAGING));
    s.row_at = wide(e, hop_add(e, p->tile->row, hop_shl(e, warp, 4)));
    s.col_at = wide(e, hop_add(e, p->tile->col, x->lane));
    s.row = symbol(e, "row", x->p->m, s.row_at, 1);
    s.col = symbol(e, "col", x->p->n, s.col_at, 1);
    for (uint32_t i = 0; i < x->shape.blocks * (x->cols / CHUNK); i++) {
        uint32_t block = i % x->shape.blocks, chunk = i / x->shape.blocks;
        put_chunk(&s, block, chunk);
        sync_warp(e);
        for (uint32_t r = 0; r < WARP_ROWS; r++) store_row(&s, block, chunk, r);
        sync_warp(e);
    }
}

/* --- The tile --------------------------------------------------------------------------------- */

static void find_staging(Epilogue *p) {
    Emit *e = p->e;
    Gemm *x = p->x;
    HV row = hop_andi(e, x->lane, 7), warp = hop_andi(e, x->warp, 3);
    bool narrow = x->slab_cols < GEMM_SLAB_COLS &&
                  !x->words; /* rows of 64 bytes trade places every other row */
    HV half = hop_andi(e, hop_shr(e, x->lane, 3), 1);
    HV at = hop_add(e, hop_add(e, hop_shl(e, warp, 4), hop_shl(e, half, 3)), row);
    HV own = hop_muli(e, hop_addi(e, x->group, -1), x->tile->slabs * x->tile->sets * HOP_SLAB);
    p->lead = hop_is(e, warp, 0);
    p->staging = hop_add(e, hop_addi(e, x->shared, x->staging), own);
    p->lane_row = hop_muli(e, at, HOP_ROW_BYTES / (narrow ? 2 : 1));
    p->put = hop_add(e, p->staging, p->lane_row);
    HV turn = narrow ? hop_shr(e, row, 1) : row;
    p->swizzle = hop_shl(e, LLVMBuildXor(e->b, hop_shr(e, x->lane, 4), turn, ""), 4);
}

static void store_tile(Gemm *x, const GemmPlace *tile, const HV *acc, const GemmRing *addend,
                       bool edge) {
    Emit *e = x->e;
    Epilogue *p = ARENA_NEW(e->arena, Epilogue);
    *p = (Epilogue){.x = x, .e = e, .tile = tile, .acc = acc, .edge = edge};
    uint32_t each = slabs_of(x), chunks = 0;
    for (uint32_t i = 0; i < x->addend_stages; i++) p->addend[i] = addend[i];
    find_staging(p);
    find_loads(p);
    place_threads(p);
    e->lanes = x->p->pairs ? 2 : 1;
    e->math = gpu_math_of(x->g->k);
    if (gpu_may_be_quick(x->g->k)) e->quick = gpu_quick;
    for (uint32_t i = 0; i < x->p->nouts; i++)
        if (x->p->out[i].copied) chunks += (each + x->tile->slabs - 1) / x->tile->slabs;
    bool sites = false;
    for (uint32_t i = 0; i < x->p->nouts; i++) {
        sites = sites || stores_sites(x, &x->p->out[i]);
        if (stores_rows(x, &x->p->out[i])) store_by_rows(p, &x->p->out[i]);
    }
    if (chunks) copy_out(p, chunks);
    if (sites) store_sites(p);
    e->lanes = 1;
    e->math = gpu_math;
    e->quick = NULL;
}

static bool divides(Gemm *x, uint32_t n, Expr extent) {
    return expr_divisor(x->e->exprs, extent) % n == 0;
}

static uint32_t registers_of(const Gemm *x) {
    return x->tile->regs_math ? x->tile->regs_math : SMALL_REGS;
}

/* Registers that the epilogue keeps beside the sums and what it asked for by columns. */
static uint32_t kept_registers(const Gemm *x) {
    uint32_t n = x->p->promoted ? wgmma_acc(&x->shape) : 0;
    if (takes_addend(x)) return n + slabs_of(x) * steps_of(x) * STEP_REGS;
    return n + (computes_ahead(x) ? AHEAD_REGS : 0);
}

static void find_columns(Gemm *x) {
    const KDot *d = x->d;
    uint32_t used = wgmma_acc(&x->shape) + kept_registers(x) + COLUMN_SPARE;
    x->ncolumns = 0;
    for (KVal v = 1; !x->g->j->modest && v < x->g->k->nops && x->ncolumns < GEMM_MAX_COLUMNS; v++) {
        const KOp *o = &x->g->k->ops[v];
        uint32_t at = x->e->domains[v],
                 each = x->p->pairs && dtype_bytes((DType)o->dtype) <= 2 ? 1 : 2;
        if (o->op != K_kload || o->in[0] || !(at & d->n) || at & ~(d->n | d->batch)) continue;
        used += x->cols / 8 * each;
        if (used > registers_of(x)) return;
        x->column[x->ncolumns++] = v;
    }
}

void gemm_ask_columns(Gemm *x, const GemmPlace *tile) {
    Emit *e = x->e;
    x->columns = NULL;
    find_columns(x);
    if (!x->ncolumns) return;
    x->g->j->ahead = true;
    Epilogue *p = ARENA_NEW(e->arena, Epilogue);
    *p = (Epilogue){.x = x, .e = e, .tile = tile, .edge = !divides(x, x->cols, x->p->n)};
    HV *got = ARENA_ARRAY(e->arena, HV, x->cols / 8 * turns(x) * x->ncolumns);
    e->lanes = x->p->pairs ? 2 : 1;
    emit_push(e);
    place_threads(p);
    for (uint32_t i = 0; i < x->cols / 8 * turns(x); i++) {
        Site s = {0, i / turns(x), 0};
        emit_push(e);
        bind_site(p, s, i % turns(x));
        for (uint32_t z = 0; z < x->ncolumns; z++)
            got[i * x->ncolumns + z] = emit_value_lanes(e, x->column[z]);
        emit_pop(e);
    }
    emit_pop(e);
    e->lanes = 1;
    x->columns = got;
}

static HV fits(Gemm *x, HV first, uint32_t n, Expr extent) {
    Emit *e = x->e;
    HV size = LLVMBuildTrunc(e->b, emit_expr(e, extent), e->i32, "");
    return LLVMBuildICmp(e->b, LLVMIntSLE, hop_addi(e, first, n), size, "");
}

GemmRing gemm_epilogue(Gemm *x, const GemmPlace *tile, HV *acc, GemmRing ring) {
    Emit *e = x->e;
    GemmRing addend[MAX_ADDEND];
    GC_ASSERT(x->addend_stages <= MAX_ADDEND);
    for (uint32_t i = 0; i < x->addend_stages; i++, ring = gemm_next(x, ring)) addend[i] = ring;
    bool whole = divides(x, x->tile->m, x->p->m) && divides(x, x->cols, x->p->n);
    LLVMBasicBlockRef pre = LLVMGetInsertBlock(e->b), inside = emit_block(e, "inside");
    LLVMBasicBlockRef edge = emit_block(e, "edge"), join = emit_block(e, "stored");
    HV in = LLVMConstInt(e->i1, 1, false);
    if (x->p->bounded && !whole) {
        in = fits(x, tile->row, x->shape.blocks * HOP_SLAB_ROWS, x->p->m);
        in = LLVMBuildAnd(e->b, in, fits(x, tile->col, x->cols, x->p->n), "");
    }
    LLVMBuildCondBr(e->b, in, inside, edge);
    for (uint32_t i = 0; i < 2; i++) {
        LLVMPositionBuilderAtEnd(e->b, i ? edge : inside);
        emit_push_region(e, pre);
        if (!i || (x->p->bounded && !whole)) store_tile(x, tile, acc, addend, i);
        emit_pop(e);
        LLVMBuildBr(e->b, join);
    }
    LLVMPositionBuilderAtEnd(e->b, join);
    return ring;
}
