/* Rows that start at any element, which are walked from the start of a vector on, up to the end of
 * one (lists.c). What lies beside the row there is read as zero: whoever has such a vector writes
 * zeros over it where it came, before anyone reads. Of the row's own elements in such vectors each
 * is stored for itself. */
#include "codegen/nvptx/band/band.h"

/* Elements: columns that may lie beside a row, as it starts in the first vector and moves by one at
 * most; behind it lie fewer than BAND_EVEN * (blocks of a cluster + 1) in all (KDealt), or, where a
 * team has one start, those vectors that a row which starts with one does not fill. */
static int64_t front_of(const Band *b) {
    return b->starts ? b->unit : BAND_EVEN;
}

static int64_t back_of(const Band *b) {
    if (b->starts) return band_part(b) * b->unit - b->columns / b->unit * b->unit;
    return BAND_EVEN * ((int64_t)b->cluster + 2);
}

bool band_is_edge(const Band *b, uint32_t u) {
    const int64_t back = back_of(b) / b->r.team.g->e->lanes;
    return b->inside && (u == 0 || (u + 1) * (int64_t)b->r.team.size > band_part(b) - back);
}

static LLVMValueRef vector_of(const Band *b, uint32_t u) {
    Emit *e = b->r.team.g->e;
    const int64_t first = (int64_t)u * b->r.team.size;
    return LLVMBuildAdd(e->b, LLVMBuildAdd(e->b, b->r.team.rank, emit_i64(e, first), ""),
                        b->r.first, "");
}

/* Vector u may have elements beside the row (i1). */
static LLVMValueRef is_near(const Band *b, uint32_t u) {
    const Gpu *g = b->r.team.g;
    Emit *e = g->e;
    const int64_t lanes = e->lanes, n = expr_value(e->exprs, g->k->axes[b->r.lane].extent) / lanes;
    LLVMValueRef at = LLVMBuildSub(e->b, vector_of(b, u), emit_i64(e, front_of(b) / lanes), "");
    return LLVMBuildICmp(e->b, LLVMIntUGE, at, emit_i64(e, n - (front_of(b) + back_of(b)) / lanes),
                         "");
}

/* In a scope of its own: which elements of vector u are the row's. They are found anew in every
 * turn, by the few that ask: known in front of all turns they would take as many registers in all
 * threads. */
static LLVMValueRef begin_near(const Band *b, uint32_t u) {
    Gpu *g = b->r.team.g;
    Emit *e = g->e;
    LLVMValueRef at = vector_of(b, u);
    emit_push(e);
    at = hop_asm(e, e->i64, "mov.b64 $0, $1;", "=l,l,~{memory}", &at, 1);
    gpu_bind_lanes(g, (uint32_t)b->r.lane, at);
    return emit_mask(e, b->inside);
}

/* The vector lies at `at` in shared memory. */
static void clear(const Band *b, KVal v, HV at, LLVMValueRef lane) {
    Emit *e = b->r.team.g->e;
    const DType type = e->k->params[e->k->ops[v].buf].dtype;
    LLVMTypeRef elem = emit_mem_type(e, type);
    at = hop_pointer(e, at);
    for (uint32_t i = 0; i < e->lanes; i++) {
        EmitIf beside;
        LLVMValueRef is = LLVMBuildExtractElement(e->b, lane, emit_i(e, e->i32, i), "");
        emit_if_begin(e, &beside, LLVMBuildNot(e->b, is, ""));
        LLVMValueRef p = emit_gep(e, elem, at, emit_i64(e, i));
        emit_store_ptr(e, LLVMConstNull(elem), p, (uint32_t)dtype_bytes(type));
        emit_if_end(e, &beside);
    }
}

void band_clear_edges(const BandTurns *t, const Held *h) {
    const Band *b = t->b;
    Emit *e = b->r.team.g->e;
    EmitIf near;
    for (uint32_t u = 0; u < b->r.pieces; u++) {
        if (!band_is_edge(b, u)) continue;
        emit_if_begin(e, &near, band_both(e, is_near(b, u), h->live[u]));
        LLVMValueRef lane = begin_near(b, u);
        for (uint32_t i = 0; i < b->nown; i++) clear(b, b->own[i], band_turn_place(t, i, u), lane);
        hop_fence_async(e); /* who fetches writes there next */
        emit_pop(e);
        emit_if_end(e, &near);
    }
}

/* The results of its own elements are known. */
void band_store_edge(const Band *b, uint32_t u, KVal store) {
    Emit *e = b->r.team.g->e;
    EmitIf is;
    const KVal v = e->k->ops[store].in[0];
    LLVMValueRef x = emit_value_lanes(e, v), near = is_near(b, u);
    emit_if_begin(e, &is, LLVMBuildNot(e->b, near, ""));
    emit_store(e, store);
    emit_if_end(e, &is);
    emit_if_begin(e, &is, near);
    (void)begin_near(b, u);
    emit_override(e, v, x);
    e->k = b->edged;
    emit_store(e, store);
    e->k = b->r.team.g->k;
    emit_pop(e);
    emit_if_end(e, &is);
}
