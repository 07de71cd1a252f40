/* Queries that are computed: rotated, say. Done once for each tile, by the warpgroup that
 * multiplies them, so that nothing of their size is stored in front. A thread computes vectors of
 * 16 bytes; neighbouring threads those of a row. */
#include "codegen/nvptx/flash/flash.h"

enum { TOGETHER = 16, VECTOR_REGS = FLASH_VECTOR / 4 };

typedef struct Queries {
    Flash *x;
    Emit *e;
    uint32_t width, vectors, each; /* numbers of a vector; vectors of a row; of a thread */
    HV vector, row;                /* the thread's; its first row among the warpgroup's */
    HV inside;                     /* NULL, or whether the vector is not past the head's size */
} Queries;

static int64_t head_size(const Flash *x) {
    int64_t d = 0;
    (void)expr_is_const(x->e->exprs, x->p->k.cols, &d);
    return d;
}

static HV smaller(Emit *e, HV a, HV b) {
    HV v[2] = {a, b};
    return emit_intrinsic(e, "llvm.smin", LLVMTypeOf(a), v, 2);
}

static HV wide(Emit *e, HV v) {
    return LLVMBuildSExt(e->b, v, e->i64, "");
}

/* The head's axis runs over the lanes of the thread's vector. */
static void bind_columns(Queries *q) {
    Emit *e = q->e;
    int64_t d = head_size(q->x), last = d - q->width;
    uint32_t sym, axis = (uint32_t)__builtin_ctz(q->x->a->d);
    HV col = hop_muli(e, q->vector, q->width);
    if (d < q->x->p->d) {
        q->inside = LLVMBuildICmp(e->b, LLVMIntSLE, col, hop_i(e, last), "");
        col = smaller(e, col, hop_i(e, last));
    }
    Expr base = emit_new_sym(e, "d", last, wide(e, col));
    if (expr_is_sym(e->exprs, base, &sym)) map_put(e->aligned, sym, q->width);
    emit_bind_lanes(e, q->x->g->k->axes[axis].sym, base, NULL, true);
}

/* One vector as four registers. Rows past the end repeat the last one. */
static void compute(Queries *q, HV row, HV *r) {
    Emit *e = q->e;
    Flash *x = q->x;
    HV end = LLVMBuildSub(e->b, emit_expr(e, x->p->queries), emit_i64(e, 1), "");
    emit_push(e);
    Expr i = emit_position(e, "i", x->p->queries, smaller(e, wide(e, row), end));
    gpu_decode(e, x->g->k, x->a->i, i);
    HV v = emit_value_lanes(e, x->a->q);
    emit_pop(e);
    bool bf16 = x->p->type == WGMMA_bf16;
    LLVMTypeRef half = bf16 ? LLVMBFloatTypeInContext(e->ctx) : LLVMHalfTypeInContext(e->ctx);
    if (!x->p->exact) v = LLVMBuildFPTrunc(e->b, v, LLVMVectorType(half, q->width), "");
    v = LLVMBuildBitCast(e->b, v, LLVMVectorType(e->i32, VECTOR_REGS), "");
    for (uint32_t n = 0; n < VECTOR_REGS; n++) {
        r[n] = LLVMBuildExtractElement(e->b, v, emit_i64(e, n), "");
        if (q->inside) r[n] = LLVMBuildSelect(e->b, q->inside, r[n], hop_i(e, 0), "");
    }
}

/* Under the swizzle: a row's 16-byte places trade with its number. */
static void put(Queries *q, HV member, HV row, const HV *r) {
    Emit *e = q->e;
    Flash *x = q->x;
    HV panel = hop_muli(e, hop_shr(e, q->vector, 3), x->rows * HOP_ROW_BYTES);
    HV line = hop_add(e, hop_muli(e, member, FLASH_GROUP_ROWS), row);
    HV place = LLVMBuildXor(e->b, hop_andi(e, q->vector, 7), hop_andi(e, row, 7), "");
    HV at = hop_add(e, hop_add(e, x->shared, panel), hop_muli(e, line, HOP_ROW_BYTES));
    HV v[1 + VECTOR_REGS] = {hop_add(e, at, hop_shl(e, place, 4)), r[0], r[1], r[2], r[3]};
    hop_asm(e, e->voidt, "st.shared.v4.b32 [$0], {$1, $2, $3, $4};", "r,r,r,r,r,~{memory}", v,
            1 + VECTOR_REGS);
}

void flash_queries(Flash *x, const FlashPlace *at, HV member) {
    Emit *e = x->e;
    uint32_t width = FLASH_VECTOR / x->p->size;
    Queries q = {.x = x, .e = e, .width = width, .vectors = x->p->d / width};
    HV tid = hop_andi(e, x->tid, HOP_WARPGROUP - 1), r[TOGETHER][VECTOR_REGS];
    HV first = hop_add(e, at->row, hop_muli(e, member, FLASH_GROUP_ROWS));
    uint32_t step = HOP_WARPGROUP / q.vectors;
    q.each = FLASH_GROUP_ROWS / step;
    q.vector = hop_andi(e, tid, q.vectors - 1);
    q.row = hop_shr(e, tid, __builtin_ctz(q.vectors));
    for (uint32_t from = 0; from < q.each; from += TOGETHER) {
        uint32_t end = from + TOGETHER < q.each ? from + TOGETHER : q.each;
        e->lanes = width;
        emit_push(e);
        bind_columns(&q);
        for (uint32_t n = from; n < end; n++)
            compute(&q, hop_add(e, first, hop_addi(e, q.row, n * step)), r[n - from]);
        emit_pop(e);
        e->lanes = 1;
        for (uint32_t n = from; n < end; n++)
            put(&q, member, hop_addi(e, q.row, n * step), r[n - from]);
    }
    hop_fence_async(e);
    hop_sync(e, hop_addi(e, member, FLASH_NAMED_STAGING + 1), HOP_WARPGROUP);
}
