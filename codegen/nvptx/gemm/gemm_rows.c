/* Results row by row. Rows of odd pitch start anywhere, so two columns are no aligned access:
 * stored by the threads that have them, 8 rows would be written a few bytes at a time. A warp hands
 * 16 rows of 32 columns over to itself through its part of the staging and stores them a row, 32
 * neighbours, at a time. */
#include "codegen/nvptx/gemm/gemm_epilogue.h"

enum { WARP_ROWS = 16, CHUNK = 32, WORD = 4, WARP_STAGING = WARP_ROWS * CHUNK * WORD };

typedef struct RowStore {
    Epilogue *p;
    const GemmOut *o;
    KVal v;            /* what is stored */
    HV at;             /* the warp's staging */
    HV row_at, col_at; /* of the warp's first row, i64; of the lane's column in the first chunk */
    Expr row, col;
} RowStore;

bool gemm_stores_rows(const Gemm *x, const GemmOut *o) {
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
            gemm_bind_site(p, site, z);
            word[1 + z] = as_word(e, emit_value(e, s->v));
            emit_pop(e);
        }
        hop_asm(e, e->voidt, "st.shared.v2.b32 [$0], {$1, $2};", "r,r,r,~{memory}", word, 3);
    }
}

static HV below(Emit *e, HV at, uint32_t add, Expr end) {
    return LLVMBuildICmp(e->b, LLVMIntSLT, LLVMBuildAdd(e->b, at, emit_i64(e, add), ""),
                         emit_expr(e, end), "");
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
    HV inside = gemm_both(e, p->rows_edge ? below(e, s->row_at, row_add, x->p->m) : NULL,
                          p->cols_edge ? below(e, s->col_at, col_add, x->p->n) : NULL);
    if (inside)
        emit_if_begin(e, &in, inside);
    else
        emit_push(e);
    gpu_decode(e, x->g->k, x->d->m, expr_addi(e->exprs, s->row, row_add));
    gpu_decode(e, x->g->k, x->d->n, expr_addi(e->exprs, s->col, col_add));
    emit_override(e, s->v, from_word(e, w, (DType)x->g->k->ops[s->v].dtype));
    emit_store(e, s->o->store);
    if (inside)
        emit_if_end(e, &in);
    else
        emit_pop(e);
}

void gemm_store_rows(Epilogue *p, const GemmOut *o) {
    Emit *e = p->e;
    Gemm *x = p->x;
    HV warp = hop_andi(e, x->warp, 3);
    RowStore s = {.p = p, .o = o, .v = x->g->k->ops[o->store].in[0]};
    s.at = hop_add(e, p->staging, hop_muli(e, warp, WARP_STAGING));
    s.row_at = gemm_wide(e, hop_add(e, p->tile->row, hop_shl(e, warp, 4)));
    s.col_at = gemm_wide(e, hop_add(e, p->tile->col, x->lane));
    s.row = gemm_symbol(e, "row", x->p->m, s.row_at, 1);
    s.col = gemm_symbol(e, "col", x->p->n, s.col_at, 1);
    for (uint32_t i = 0; i < x->shape.blocks * (x->cols / CHUNK); i++) {
        uint32_t block = i % x->shape.blocks, chunk = i / x->shape.blocks;
        put_chunk(&s, block, chunk);
        sync_warp(e);
        for (uint32_t r = 0; r < WARP_ROWS; r++) store_row(&s, block, chunk, r);
        sync_warp(e);
    }
}
