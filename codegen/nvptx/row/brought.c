/* Rows that threads hold in registers, brought by the copy engine: one request brings a row to
 * shared memory, so that no register waits for it, and what all rows read alike is asked for at the
 * same time into the registers that are left. Results take the place of what they were made from,
 * and leave by one request, too. */
#include "codegen/nvptx/hopper/hopper.h"
#include "codegen/nvptx/ptx.h"
#include "codegen/nvptx/row/row.h"

enum { PIECES = 4, LEAST_TEAM = 64 };
enum { MOST_IDLE = 8 /* one in so many threads, in the last round */ };
enum {
    LARGE = 512,
    REGISTERS = 64,
    SECTOR = 32,     /* bytes */
    MUCH_IDLE = 6,   /* one in so many threads */
    MOST_EARLY = 32, /* elements of 16 bits, of a group's */
};

static bool can_move(const RowPlan *r, const KOp *o, DType t) {
    if (!dtype_is_float(t)) return false;
    return r->group ? row_all_can_move(r, o, t)
                    : row_can_move(r->team.g, (uint32_t)r->lane, 0, o, t);
}

static bool find_loads(RowPlan *r) {
    const Gpu *g = r->team.g;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        if (!row_is_own(r, v)) continue;
        if (r->nbrought == ROW_MOST_BROUGHT || o->in[0] || !gpu_is_request(g, v) ||
            !can_move(r, o, (DType)o->dtype))
            return false;
        r->brought[r->nbrought++] = v;
    }
    return r->nbrought > 0;
}

/* The first fold keeps threads together between the last read of what came and the first result in
 * its place; all of them are read by every thread, so that any number of warps will do. */
static bool folds_first(const RowPlan *r) {
    const Passes *rows = r->team.g->rows;
    bool first = true;
    for (uint32_t i = 0; i < rows->npasses; i++) {
        const Pass *p = &rows->pass[i];
        for (uint32_t f = 0; f < p->nfolds; f++)
            if (gpu_fold_type(r->team.g, p->folds[f]) != DT_f32) return false;
        if (!p->axes) continue;
        if (first && !p->nfolds) return false;
        first = false;
    }
    return !first;
}

/* Results of the row take the places of loads of as many bytes, in order. */
static bool leaves_by_copies(const RowPlan *r) {
    const Gpu *g = r->team.g;
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->rows->npasses; i++) {
        const Pass *p = &g->rows->pass[i];
        for (uint32_t s = 0; s < p->nstores && p->axes; s++, n++) {
            const KOp *o = &g->k->ops[p->stores[s]];
            if (n == r->nbrought || o->op != K_kstore) return false;
            if (!can_move(r, o, (DType)g->k->ops[o->in[0]].dtype)) return false;
            if (row_bytes(g, o->in[0]) != row_bytes(g, r->brought[n])) return false;
        }
    }
    return n > 0;
}

bool row_comes(RowPlan *r) {
    r->nbrought = 0;
    if (!r->team.g->e->isa->warpgroups || !folds_first(r) || !find_loads(r)) return false;
    r->copied_out = leaves_by_copies(r);
    return true;
}

bool row_brings(RowPlan *r) {
    const Gpu *g = r->team.g;
    if (r->lane < 0 || r->axes != 1u << r->lane) return false;
    int64_t vectors = expr_value(g->e->exprs, row_vectors(r, r->axes));
    int64_t team = ((vectors + PIECES - 1) / PIECES + GPU_WARP - 1) / GPU_WARP * GPU_WARP;
    if (team < LEAST_TEAM || team > TEAM_MOST_READ * GPU_WARP) return false;
    if (MOST_IDLE * (team * PIECES - vectors) > team * PIECES) return false;
    if (!row_comes(r)) return false;
    r->team.size = (uint32_t)team;
    r->pieces = PIECES;
    return true;
}

uint32_t row_brought_row(const RowPlan *r, uint32_t i) {
    const Gpu *g = r->team.g;
    const uint32_t n = (uint32_t)expr_value(g->e->exprs, row_vectors(r, r->axes));
    return n * g->e->lanes * row_bytes(g, r->brought[i]);
}

static uint32_t rows_of(const RowPlan *r) {
    return r->group ? r->group : 1;
}

/* Byte in shared memory of what comes of load i; of the barrier, behind the last. */
static uint32_t place_of(const RowPlan *r, uint32_t i) {
    uint32_t bytes = 0;
    for (uint32_t j = 0; j < i; j++) bytes += rows_of(r) * row_brought_row(r, j);
    return bytes;
}

/* Blocks of REGISTERS a thread that a multiprocessor holds: weights are there while the row comes.
 */
uint32_t row_brought_blocks(const RowPlan *r) {
    return (uint32_t)r->team.g->m->registers / (REGISTERS * rows_of(r) * r->team.size);
}

/* Layernorm over 333 and 1001 columns 68.6, 73.9 us, not 88.2, 100; over 250, of which a thread has
 * less, and of f32, 66.0, not 66.8; rmsnorm with residual over 1001 136.6, not 142. */
bool row_brought_asks_late(const RowPlan *r) {
    const Gpu *g = r->team.g;
    return r->group && row_shares_most(r) && row_bytes(g, r->brought[0]) < 4 &&
           r->pieces * g->e->lanes >= MOST_EARLY;
}

/* One row of f32 for a block (of two operands: rmsnorm with residual over 4096 133.0 us, not
 * 131.6): where the threads that would load it leave some idle (layernorm over 1000, 1800, 2000
 * 64.7, 64.2, 64.7 us, not 65.6, 67.6, 65.8); many, if they are a large block (over 3000,
 * 6000 64.2, 74.8, not 70.2, 78.7, softmax over 6504 65.5, not 75.0; but over 4000 and 7504, with
 * few idle, layernorm 69.8 and 109, not 65.8 and 70.5) or rows begin inside of what memory moves at
 * once (rmsnorm over 2500 and 3500 67.6, 67.3 us, not 69.6, 65.7); or none, where they are a large
 * block and what all rows read alike is more than a row reads of its own (layernorm over 4096 65.8,
 * not 66.2, Inductor 66.4; softmax and rmsnorm, which it is not for, 66.6 and 66.4, not 65.6
 * and 65.8; layernorm over 2048 66.0, not 65.4). */
bool row_gains(const RowPlan *r, const RowPlan *own) {
    const Gpu *g = r->team.g;
    const int64_t vectors = expr_value(g->e->exprs, row_vectors(r, r->axes));
    const int64_t threads = (int64_t)own->team.size * own->pieces, idle = threads - vectors;
    const bool whole = place_of(r, r->nbrought) % SECTOR == 0, large = own->team.size >= LARGE;
    if (r->nbrought > 1 || row_bytes(g, r->brought[0]) != 4 || r->team.size >= LARGE) return false;
    if (!row_is_busy(r, r->team.size)) return false;
    if (idle * MUCH_IDLE > threads) return true;
    return whole && (large ? !idle && row_shares_most(r) : idle > 0);
}

/* --- The kernel ------------------------------------------------------------------------------- */

uint32_t row_brought_bytes(const RowPlan *r) {
    return place_of(r, r->nbrought) + HOP_BARRIER_BYTES;
}

static HV shared_at(const RowPlan *r, uint32_t i) {
    Gpu *g = r->team.g;
    return hop_addi(g->e, hop_shared(g), place_of(r, i));
}

/* Of the row that the current scope stands at (the block's first, in its first thread), as the copy
 * engine has addresses. */
static HV row_begins(const RowPlan *r, const KOp *o) {
    Emit *e = r->team.g->e;
    row_bind(r, r->axes, expr_const(e->exprs, 0));
    return LLVMBuildPtrToInt(e->b, emit_address(e, o->buf, o->index), e->i64, "");
}

void row_bring_begin(const RowPlan *r) {
    Emit *e = r->team.g->e;
    EmitIf one;
    emit_if_begin(e, &one, gpu_is_first(r->team.g));
    hop_barrier_init(e, shared_at(r, r->nbrought), 1);
    hop_barrier_init_fence(e);
    hop_fence_async(e);
    emit_if_end(e, &one);
}

/* What there is of load i; the whole pieces of it. */
static HV size_of(const RowPlan *r, uint32_t i) {
    Emit *e = r->team.g->e;
    return r->here ? hop_muli(e, r->here, row_brought_row(r, i))
                   : hop_i(e, rows_of(r) * row_brought_row(r, i));
}

static HV whole_of(const RowPlan *r, uint32_t i) {
    Emit *e = r->team.g->e;
    return LLVMBuildAnd(e->b, size_of(r, i), hop_i(e, -ROW_COPY_ALIGN), "");
}

/* The elements behind the last whole piece of load i, at the end of memory, from there to where
 * they are in shared memory, or back. */
static void move_rest(const RowPlan *r, uint32_t i, HV there, bool back) {
    Gpu *g = r->team.g;
    Emit *e = g->e;
    const uint32_t bytes = row_bytes(g, r->brought[i]);
    LLVMTypeRef word = LLVMIntTypeInContext(e->ctx, 8 * bytes);
    LLVMTypeRef global = LLVMPointerTypeInContext(e->ctx, PTX_GLOBAL);
    EmitLoop l = emit_loop(e, 0);
    emit_loop_begin(e, &l, "rest", LLVMBuildZExt(e->b, whole_of(r, i), e->i64, ""),
                    LLVMBuildZExt(e->b, size_of(r, i), e->i64, ""), emit_i64(e, bytes), false);
    HV near = hop_add(e, shared_at(r, i), LLVMBuildTrunc(e->b, l.i, e->i32, ""));
    LLVMValueRef to = hop_pointer(e, near);
    LLVMValueRef from = LLVMBuildIntToPtr(e->b, LLVMBuildAdd(e->b, there, l.i, ""), global, "");
    if (back)
        emit_store_ptr(e, emit_load(e, word, to, bytes), from, bytes);
    else
        emit_store_ptr(e, emit_load(e, word, from, bytes), to, bytes);
    emit_loop_end(e, &l);
}

void row_bring(const RowPlan *r) {
    Emit *e = r->team.g->e;
    EmitIf one;
    HV bar = shared_at(r, r->nbrought), all = hop_i(e, 0);
    emit_if_begin(e, &one, gpu_is_first(r->team.g));
    for (uint32_t i = 0; i < r->nbrought; i++) all = hop_add(e, all, whole_of(r, i));
    hop_barrier_expect(e, bar, all);
    for (uint32_t i = 0; i < r->nbrought; i++) {
        HV from = row_begins(r, &e->k->ops[r->brought[i]]);
        hop_bulk_load(e, shared_at(r, i), from, whole_of(r, i), bar);
        if (r->here) move_rest(r, i, from, false);
    }
    emit_if_end(e, &one);
}

/* Of a vector of load i. */
static uint32_t align_of(const RowPlan *r, uint32_t i) {
    const Gpu *g = r->team.g;
    return r->group ? g->e->lanes * row_bytes(g, r->brought[i]) : ROW_COPY_ALIGN;
}

/* Where piece u has its vector of load i. */
static LLVMValueRef vector_at(const Held *h, uint32_t u, uint32_t i) {
    const RowPlan *r = h->r;
    Emit *e = r->team.g->e;
    int64_t bytes = (int64_t)row_bytes(r->team.g, r->brought[i]) * e->lanes;
    HV at = hop_muli(e, LLVMBuildTrunc(e->b, h->at[u], e->i32, ""), bytes);
    at = hop_add(e, shared_at(r, i), at);
    if (r->slot) at = hop_add(e, at, hop_muli(e, r->slot, row_brought_row(r, i)));
    return hop_pointer(e, at);
}

void row_take_brought(const Held *h) {
    const RowPlan *r = h->r;
    Emit *e = r->team.g->e;
    gpu_barrier(e); /* the mbarrier is made */
    hop_barrier_wait(e, shared_at(r, r->nbrought), hop_i(e, 0));
    for (uint32_t u = 0; u < r->pieces; u++) {
        EmitScope *outer = emit_switch(e, h->scope[u]);
        for (uint32_t i = 0; i < r->nbrought; i++) {
            KVal v = r->brought[i];
            LLVMTypeRef type = emit_vec(emit_type(e, (DType)e->k->ops[v].dtype), e->lanes);
            emit_override(e, v, emit_load(e, type, vector_at(h, u, i), align_of(r, i)));
        }
        (void)emit_switch(e, outer);
    }
}

void row_leave(Held *h, const Pass *p) {
    const RowPlan *r = h->r;
    Emit *e = r->team.g->e;
    EmitIf live, one;
    for (uint32_t u = 0; u < r->pieces; u++) {
        EmitScope *outer = emit_switch(e, h->scope[u]);
        if (h->live[u]) emit_if_begin(e, &live, h->live[u]);
        for (uint32_t s = 0; s < p->nstores; s++) {
            LLVMValueRef v = emit_value_lanes(e, e->k->ops[p->stores[s]].in[0]);
            const uint32_t i = h->left + s;
            emit_store_ptr(e, v, vector_at(h, u, i), align_of(r, i));
        }
        if (h->live[u]) emit_if_end(e, &live);
        (void)emit_switch(e, outer);
    }
    hop_fence_async(e);
    gpu_barrier(e);
    emit_if_begin(e, &one, gpu_is_first(r->team.g));
    for (uint32_t s = 0; s < p->nstores; s++, h->left++) {
        HV to = row_begins(r, &e->k->ops[p->stores[s]]);
        hop_bulk_store(e, to, shared_at(r, h->left), whole_of(r, h->left));
        if (r->here) move_rest(r, h->left, to, true);
    }
    hop_tma_commit(e);
    emit_if_end(e, &one);
}

void row_left(const RowPlan *r) {
    Emit *e = r->team.g->e;
    EmitIf one;
    emit_if_begin(e, &one, gpu_is_first(r->team.g));
    hop_tma_wait_read(e, 0);
    emit_if_end(e, &one);
}
