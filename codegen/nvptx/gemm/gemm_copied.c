/* Results that leave through shared memory: matrix stores put 16 bits there under the copy engine's
 * swizzle, 64 x 64 at a time, and threads bytes and words of 32 bits; what is added to them comes
 * the same way, in stages of the ring. */
#include "codegen/nvptx/gemm/gemm_epilogue.h"

enum { NAMED_STAGING = 2 }; /* barrier, + the warpgroup's number */

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
    for (uint32_t z = 0; z < gemm_site_turns(p->x); z++) {
        emit_push(e);
        p->fetched = fetched ? fetched + z * p->nloads : NULL;
        gemm_bind_site(p, s, z);
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
        gemm_fetch_site(p, site_of(p->x, s, step, i), out + i * gemm_site_turns(p->x) * p->nloads);
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
                           fetched ? fetched + i * gemm_site_turns(p->x) * p->nloads : NULL);
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

uint32_t gemm_copy_registers(const Gemm *x) {
    if (takes_addend(x)) return slabs_of(x) * steps_of(x) * STEP_REGS;
    return computes_ahead(x) ? AHEAD_REGS : 0;
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

uint32_t gemm_copied_outs(const GemmPlan *p) {
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
    HV barrier = hop_addi(e, p->x->group, NAMED_STAGING),
       loads[2][STEP_REGS * 2 * EPILOGUE_MAX_LOADS];
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

void gemm_copy_out(Epilogue *p) {
    const GemmPlan *plan = p->x->p;
    const GemmTile *t = p->x->tile;
    const uint32_t total = slabs_of(p->x), copied = gemm_copied_outs(plan);
    const uint32_t chunks = copied * ((total + t->slabs - 1) / t->slabs);
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
