/* Contractions in tiles: a block computes a tile of the flattened m and n axes, tk of the flattened
 * k axes at a time through shared memory, with the next step's operands already on their way in
 * registers; each of 256 threads keeps pm x pn sums per accumulator. Operands are whatever the
 * kernel's body says (casts, masks, gathers), and so is the epilogue. Rows past the end repeat the
 * last one and are not stored. */
#include "codegen/nvptx/contract.h"

enum { PAD = 4, MAX_LOADS = 8 };
/* So many products are summed from 0 before they are added to the sum of those before: the error of
 * a sum grows with its length. */
enum { PART = 128 };

/* One operand: its op, its own axes, its tile in shared memory. What a thread's loads have in
 * common exists once: they lie a constant distance apart in shared memory and share the row or the
 * k. */
typedef struct Side {
    KVal v;
    uint32_t axes, size, per; /* tile rows; rows of one thread */
    LLVMTypeRef type;
    uint32_t nloads, step; /* rows or k from one load to the next */
    bool by_k;             /* neighbouring threads read neighbouring k */
    Expr row[MAX_LOADS];
    LLVMValueRef shared, col, place; /* tile; k and place of the first load */
} Side;

typedef struct Tile {
    Gpu *g;
    Emit *e;
    const KDot *d;
    TileShape s;
    Contract *c;
    Side side[1 + K_MAX_ACC]; /* a, then each b */
    LLVMValueRef m0, n0, tx, ty;
} Tile;

/* Which elements of the tile this thread brings, and where they go. */
static void side_init(Tile *t, Side *s, KVal v, uint32_t axes, Expr extent, LLVMValueRef first,
                      uint32_t size, uint32_t per) {
    Emit *e = t->e;
    *s = (Side){.v = v, .axes = axes, .size = size, .per = per};
    s->type = emit_mem_type(e, (DType)t->g->k->ops[v].dtype);
    s->shared = contract_shared(t->c, s->type, t->s.tk * (size + PAD));
    s->by_k = contract_by_k(t->c, v);
    s->nloads = size * t->s.tk / CONTRACT_THREADS;
    uint32_t fast_size = s->by_k ? t->s.tk : size;
    s->step = CONTRACT_THREADS / fast_size;
    LLVMValueRef fast = LLVMBuildAnd(e->b, t->g->tid, emit_i64(e, fast_size - 1), "");
    LLVMValueRef slow = LLVMBuildLShr(e->b, t->g->tid, emit_i64(e, __builtin_ctz(fast_size)), "");
    LLVMValueRef row = gpu_add(e, first, s->by_k ? slow : fast);
    s->col = s->by_k ? fast : slow;
    s->place = gpu_add(e, gpu_muli(e, s->col, size + PAD), s->by_k ? slow : fast);
    for (uint32_t i = 0; i < (s->by_k ? s->nloads : 1); i++)
        s->row[i] =
            gpu_kept_inside(e, "r", extent, gpu_add(e, row, emit_i64(e, (int64_t)i * s->step)));
}

/* Reads the tile's elements at k0 into out[]. */
static void side_load(Tile *t, Side *s, LLVMValueRef k0, LLVMValueRef *out) {
    Emit *e = t->e;
    LLVMValueRef k = gpu_add(e, k0, s->col);
    ContractK at = {0};
    for (uint32_t i = 0; i < s->nloads; i++) {
        if (!i || !s->by_k) at = contract_k(t->c, gpu_add(e, k, emit_i64(e, (int64_t)i * s->step)));
        LLVMValueRef x = contract_element(t->c, s->v, s->axes, s->row[s->by_k ? i : 0], at);
        out[i] = LLVMTypeOf(x) == s->type ? x : LLVMBuildZExt(e->b, x, s->type, "");
    }
}

static void side_put(Tile *t, Side *s, LLVMValueRef *v) {
    Emit *e = t->e;
    LLVMValueRef p = emit_gep(e, s->type, s->shared, s->place);
    for (uint32_t i = 0; i < s->nloads; i++) {
        int64_t at = (int64_t)i * s->step * (s->by_k ? 1 : s->size + PAD);
        LLVMBuildStore(e->b, v[i], emit_gep(e, s->type, p, emit_i64(e, at)));
    }
}

/* Row number i of the thread with rank `rank`: groups of four lie next to each other. */
static LLVMValueRef own_row(Tile *t, const Side *s, LLVMValueRef rank, uint32_t i) {
    Emit *e = t->e;
    uint32_t run = s->per < 4 ? s->per : 4, groups = s->per / run;
    LLVMValueRef base = gpu_muli(e, rank, run);
    return gpu_add(e, base, emit_i64(e, (int64_t)(i / run) * (s->size / groups) + i % run));
}

static void side_read(Tile *t, const Side *s, LLVMValueRef rank, uint32_t kk, LLVMValueRef *out) {
    Emit *e = t->e;
    uint32_t run = s->per < 4 ? s->per : 4;
    bool wide = s->type == e->f32 || s->type == e->i32;
    for (uint32_t i = 0; i < s->per; i += run) {
        LLVMValueRef at = own_row(t, s, rank, i);
        at = gpu_add(e, at, emit_i64(e, (int64_t)kk * (s->size + PAD)));
        LLVMValueRef p = emit_gep(e, s->type, s->shared, at);
        LLVMValueRef v = wide ? emit_load(e, LLVMVectorType(s->type, run), p, run * 4) : NULL;
        for (uint32_t j = 0; j < run; j++) {
            if (wide)
                out[i + j] = LLVMBuildExtractElement(e->b, v, emit_i64(e, j), "");
            else
                out[i + j] =
                    LLVMBuildLoad2(e->b, s->type, emit_gep(e, s->type, p, emit_i64(e, j)), "");
        }
    }
}

static void accumulate(Tile *t, LLVMValueRef *acc) {
    uint32_t per = t->s.pm * t->s.pn;
    for (uint32_t kk = 0; kk < t->s.tk; kk++) {
        LLVMValueRef a[8], b[8];
        side_read(t, &t->side[0], t->ty, kk, a);
        for (uint32_t s = 0; s < t->d->nacc; s++) {
            DType ty = (DType)t->g->k->ops[t->d->acc[s]].dtype;
            side_read(t, &t->side[1 + s], t->tx, kk, b);
            for (uint32_t i = 0; i < per; i++) {
                LLVMValueRef *c = &acc[s * per + i];
                *c = contract_fma(t->e, ty, a[i / t->s.pn], b[i % t->s.pn], *c);
            }
        }
    }
}

static void load_all(Tile *t, LLVMValueRef k0, LLVMValueRef *out) {
    for (uint32_t s = 0; s <= t->d->nacc; s++) {
        side_load(t, &t->side[s], k0, out);
        out += t->side[s].nloads;
    }
}

/* Sums from `from` to `to`, which is tk times a number, or the end. `load` holds the operands of
 * the first step, and then of the step behind the last. */
static void k_steps(Tile *t, LLVMValueRef from, LLVMValueRef to, LLVMValueRef *acc, uint32_t nacc,
                    LLVMValueRef *load, uint32_t nloads) {
    Emit *e = t->e;
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, nacc + nloads);
    for (uint32_t i = 0; i < nacc; i++) l->init[i] = acc[i];
    for (uint32_t i = 0; i < nloads; i++) l->init[nacc + i] = load[i];
    emit_loop_begin(e, l, "k", from, to, emit_i64(e, t->s.tk), false);
    LLVMValueRef *next = l->phi + nacc;
    for (uint32_t s = 0; s <= t->d->nacc; s++) {
        side_put(t, &t->side[s], next);
        next += t->side[s].nloads;
    }
    gpu_barrier(e);
    load_all(t, gpu_add(e, l->i, emit_i64(e, t->s.tk)), l->next + nacc);
    for (uint32_t i = 0; i < nacc; i++) l->next[i] = l->phi[i];
    accumulate(t, l->next);
    gpu_barrier(e);
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < nacc; i++) acc[i] = l->out[i];
    for (uint32_t i = 0; i < nloads; i++) load[i] = l->out[nacc + i];
}

static DType acc_type(const Tile *t, uint32_t i) {
    return (DType)t->g->k->ops[t->d->acc[i / (t->s.pm * t->s.pn)]].dtype;
}

static LLVMValueRef part_end(Emit *e, LLVMValueRef from, LLVMValueRef k) {
    LLVMValueRef v[2] = {gpu_add(e, from, emit_i64(e, PART)), k};
    return emit_intrinsic(e, "llvm.smin", e->i64, v, 2);
}

/* All of k, in parts where it is longer than one. */
static void k_loop(Tile *t, LLVMValueRef *acc, uint32_t nacc) {
    Emit *e = t->e;
    LLVMValueRef load[MAX_LOADS * (1 + K_MAX_ACC)], k = emit_expr(e, t->c->k);
    uint32_t nloads = 0;
    int64_t least, most;
    for (uint32_t s = 0; s <= t->d->nacc; s++) nloads += t->side[s].nloads;
    expr_range(e->exprs, t->c->k, &least, &most);
    load_all(t, emit_i64(e, 0), load);
    if (most <= PART) {
        k_steps(t, emit_i64(e, 0), k, acc, nacc, load, nloads);
        return;
    }
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    *l = emit_loop(e, nacc + nloads);
    for (uint32_t i = 0; i < nacc; i++) l->init[i] = acc[i];
    for (uint32_t i = 0; i < nloads; i++) l->init[nacc + i] = load[i];
    emit_loop_begin(e, l, "part", emit_i64(e, 0), k, emit_i64(e, PART), false);
    for (uint32_t i = 0; i < nloads; i++) load[i] = l->phi[nacc + i];
    k_steps(t, l->i, part_end(e, l->i, k), acc, nacc, load, nloads);
    for (uint32_t i = 0; i < nacc; i++)
        l->next[i] = emit_fold_join(e, FOLD_sum, acc_type(t, i), l->phi[i], acc[i]);
    for (uint32_t i = 0; i < nloads; i++) l->next[nacc + i] = load[i];
    emit_loop_end(e, l);
    for (uint32_t i = 0; i < nacc; i++) acc[i] = l->out[i];
}

static void store_all(Tile *t, const LLVMValueRef *acc) {
    Emit *e = t->e;
    uint32_t per = t->s.pm * t->s.pn;
    for (uint32_t i = 0; i < per; i++) {
        LLVMValueRef one[K_MAX_ACC];
        for (uint32_t s = 0; s < t->d->nacc; s++) one[s] = acc[s * per + i];
        LLVMValueRef row = gpu_add(e, t->m0, own_row(t, &t->side[0], t->ty, i / t->s.pn));
        LLVMValueRef col = gpu_add(e, t->n0, own_row(t, &t->side[1], t->tx, i % t->s.pn));
        contract_store(t->c, row, col, one);
    }
}

uint32_t tile_shared_bytes(const Contract *c, const TileShape *s) {
    uint32_t a = (uint32_t)dtype_bytes((DType)c->g->k->ops[c->d->a].dtype) * (s->tm + PAD);
    for (uint32_t i = 0; i < c->d->nacc; i++)
        a += (uint32_t)dtype_bytes((DType)c->g->k->ops[c->d->b[i]].dtype) * (s->tn + PAD);
    return a * s->tk + 16 * (c->d->nacc + 1);
}

void tile_emit(Contract *c, const TileShape *shape) {
    Emit *e = c->e;
    ExprPool *p = e->exprs;
    Tile t = {.g = c->g, .e = e, .d = c->d, .s = *shape, .c = c};
    LLVMValueRef nn = emit_expr(e, expr_ceildiv(p, c->n, expr_const(p, t.s.tn)));
    t.m0 = gpu_muli(e, LLVMBuildUDiv(e->b, c->g->block[0], nn, ""), t.s.tm);
    t.n0 = gpu_muli(e, LLVMBuildURem(e->b, c->g->block[0], nn, ""), t.s.tn);
    uint32_t across = t.s.tn / t.s.pn;
    t.tx = LLVMBuildAnd(e->b, c->g->tid, emit_i64(e, across - 1), "");
    t.ty = LLVMBuildLShr(e->b, c->g->tid, emit_i64(e, __builtin_ctz(across)), "");
    side_init(&t, &t.side[0], t.d->a, t.d->m, c->m, t.m0, t.s.tm, t.s.pm);
    LLVMValueRef acc[K_MAX_ACC * 16 + 64];
    uint32_t n = 0;
    for (uint32_t s = 0; s < t.d->nacc; s++) {
        side_init(&t, &t.side[1 + s], t.d->b[s], t.d->n, c->n, t.n0, t.s.tn, t.s.pn);
        LLVMTypeRef ty = emit_type(e, (DType)c->g->k->ops[t.d->acc[s]].dtype);
        for (uint32_t i = 0; i < t.s.pm * t.s.pn; i++) acc[n++] = LLVMConstNull(ty);
    }
    k_loop(&t, acc, n);
    store_all(&t, acc);
}
