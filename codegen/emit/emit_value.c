/* Body ops to LLVM: values by need, loads shaped by how their index moves along the lanes, stores.
 *
 * Every value knows the depth of the innermost scope it depends on and is emitted there. Ops are
 * remembered by their operands, loads by their address, so copies of the body that differ in one
 * axis only share what does not depend on it. */
#include "codegen/emit/emit_internal.h"
#include <math.h>
#include <string.h>

static EmitVal emit_op(Emit *e, KVal v);

EmitVal emit_val(Emit *e, KVal v) {
    EmitVal *slot = emit_val_slot(e, v);
    if (!slot->v) {
        EmitVal r = emit_op(e, v);
        slot = emit_val_slot(e, v); /* the scope's tables may have moved */
        *slot = r;
    }
    return *slot;
}

LLVMValueRef emit_value(Emit *e, KVal v) {
    return emit_val(e, v).v;
}

LLVMValueRef emit_value_lanes(Emit *e, KVal v) {
    EmitVal r = emit_val(e, v);
    if (e->lanes == 1 || emit_is_vector(r.v)) return r.v;
    EmitMemo key = {.kind = MEMO_splat, .a = (uintptr_t)r.v};
    const EmitMemo *m = emit_memo_get(e, r.depth, key);
    if (m) return m->v;
    EmitPlace back = emit_hoist(e, r.depth);
    key.v = emit_splat(e, r.v);
    emit_memo_put(e, r.depth, key);
    emit_unhoist(e, back);
    return key.v;
}

/* --- Loads -------------------------------------------------------------------------------- */

static LLVMValueRef from_memory(Emit *e, DType t, LLVMValueRef v) {
    if (t != DT_bool) return v;
    return LLVMBuildICmp(e->b, LLVMIntNE, v, emit_i(e, LLVMTypeOf(v), 0), "");
}

static LLVMValueRef to_memory(Emit *e, DType t, LLVMValueRef v) {
    return t == DT_bool ? LLVMBuildZExt(e->b, v, emit_like(v, e->i8), "") : v;
}

/* Memory as long as any vector that reads as zeros, or as a constant of the element's type: what
 * masked-off uniform loads read. */
static LLVMValueRef dummy(Emit *e, LLVMValueRef fill) {
    uint32_t at = 0;
    while (at < e->dummies.n && e->dummies.v[at].fill != fill) at++;
    if (at < e->dummies.n) return e->dummies.v[at].ptr;
    EmitDummy d = {.fill = fill};
    if (e->isa->buffer_space) { /* where the stack is no place for what stands in for a buffer */
        LLVMTypeRef one = fill ? LLVMTypeOf(fill) : e->i64;
        LLVMValueRef init = fill ? emit_splat(e, fill) : LLVMConstNull(emit_vec(one, e->lanes));
        const char *fn = LLVMGetValueName(e->fn);
        d.ptr = LLVMAddGlobalInAddressSpace(e->mod, LLVMTypeOf(init),
                                            arena_printf(e->arena, "%s_masked%u", fn, at),
                                            e->isa->buffer_space);
        LLVMSetInitializer(d.ptr, init);
        LLVMSetLinkage(d.ptr, LLVMInternalLinkage);
        LLVMSetAlignment(d.ptr, 64);
    } else {
        LLVMTypeRef t = fill ? LLVMTypeOf(fill) : e->i64;
        d.ptr = emit_alloca(e, t, e->lanes, 64);
        LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
        emit_at_end(e, e->entry);
        LLVMValueRef v = fill ? emit_splat(e, fill) : LLVMConstNull(emit_vec(t, e->lanes));
        emit_store_ptr(e, v, d.ptr, 64);
        emit_at_end(e, here);
    }
    vec_push(e->arena, &e->dummies, d);
    return d.ptr;
}

typedef struct Access {
    uint32_t buf, align;
    DType t;
    Expr index, stride; /* resolved; stride along the lanes */
    bool affine, varies;
    LLVMTypeRef elem;
    EmitVal mask;      /* .v NULL = always */
    Expr mask_expr;    /* resolved; 0 = always */
    LLVMValueRef fill; /* constant that a uniform mask leaves; NULL = zero */
} Access;

static Access access_of(Emit *e, const KOp *o) {
    Access a = {.buf = o->buf, .t = e->k->params[o->buf].dtype};
    a.elem = emit_mem_type(e, a.t);
    a.align = (uint32_t)dtype_bytes(a.t);
    a.index = emit_resolve(e, o->index);
    a.varies = emit_expr_varies(e, a.index);
    a.affine = emit_stride(e, a.index, &a.stride);
    if (a.affine && expr_is_value(e->exprs, a.stride, 0)) a.varies = false;
    if (o->mask && !expr_is_value(e->exprs, o->mask, 1)) {
        Expr m = emit_resolve(e, o->mask);
        if (!expr_is_value(e->exprs, m, 1)) a.mask = emit_mask_resolved(e, m), a.mask_expr = m;
    }
    return a;
}

/* What is known of the alignment of the vector that starts at `at`. */
static uint32_t align_at(Emit *e, const Access *a, Expr at) {
    uint32_t known = e->isa->buffer_align;
    if (known <= a->align) return a->align;
    int64_t d = emit_divisor(e, at);
    while (known > a->align && d % (known / a->align)) known /= 2;
    return known;
}

static bool contiguous(Emit *e, const Access *a) {
    return a->affine && expr_is_value(e->exprs, a->stride, 1);
}

static LLVMValueRef all_lanes(Emit *e) {
    return emit_i(e, emit_vec(e->i1, e->lanes), 1);
}

/* Lane indices in 32 bits where the buffer is small: gathers then take twice as many lanes. */
static LLVMValueRef narrow_index(Emit *e, uint32_t buf, LLVMValueRef v) {
    int64_t lo, hi;
    expr_range(e->exprs, e->k->params[buf].numel, &lo, &hi);
    if (hi > INT32_MAX || e->lanes == 1) return v;
    return LLVMBuildTrunc(e->b, v, emit_vec(e->i32, e->lanes), "");
}

/* Pointers of all lanes. */
static LLVMValueRef lane_pointers(Emit *e, const Access *a) {
    if (!a->affine) {
        LLVMValueRef v = emit_expr_vector(e, a->index).v;
        return emit_gep(e, a->elem, e->bufs[a->buf], narrow_index(e, a->buf, v));
    }
    LLVMValueRef base = emit_addr(e, a->buf, emit_lane_zero(e, a->index)).v;
    Expr lane = expr_sym_ref(e->exprs, e->lane_sym);
    Expr step = expr_mul(e->exprs, a->stride, lane);
    LLVMValueRef v = emit_expr_vector(e, step).v;
    return emit_gep(e, a->elem, base, narrow_index(e, a->buf, v));
}

static LLVMValueRef vector_intrinsic(Emit *e, const char *name, LLVMTypeRef v, LLVMTypeRef p,
                                     LLVMValueRef *args, uint32_t n, uint32_t align_at,
                                     uint32_t align) {
    LLVMTypeRef over[2] = {v, p};
    unsigned id = LLVMLookupIntrinsicID(name, __builtin_strlen(name));
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, id, over, 2);
    LLVMValueRef c = LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, n, "");
    unsigned kind = LLVMGetEnumAttributeKindForName("align", 5);
    LLVMAddCallSiteAttribute(c, align_at, LLVMCreateEnumAttribute(e->ctx, kind, align));
    return c;
}

/* A vector of two registers: LLVM 22 reads the second without a mask for AVX2 if the mask is one
 * for all lanes but for some that are off for good, all of the second register's among them. Where
 * what is off is chosen once more, it does not. */
static LLVMValueRef masked_load(Emit *e, const Access *a, LLVMValueRef ptr, LLVMValueRef mask,
                                LLVMValueRef other) {
    LLVMTypeRef v = emit_vec(a->elem, e->lanes);
    LLVMValueRef args[3] = {ptr, mask, other};
    LLVMValueRef x = vector_intrinsic(e, "llvm.masked.load", v, e->ptr, args, 3, 1, a->align);
    bool split = dtype_bytes(a->t) * e->lanes > sizeof(float) * e->isa->lanes;
    return split ? LLVMBuildSelect(e->b, mask, x, other, "") : x;
}

bool emit_masks_gathers(const Isa *isa, DType t) {
    return isa->mask_registers && dtype_bytes(t) >= sizeof(float);
}

/* A gather under a mask that the machine has not got, for which LLVM makes a branch of every lane:
 * lanes that are off read what stands in for the buffer instead. */
static LLVMValueRef gather_each(Emit *e, const Access *a, LLVMValueRef mask, LLVMValueRef other) {
    LLVMTypeRef bits_t = LLVMIntTypeInContext(e->ctx, e->lanes);
    LLVMValueRef bits = LLVMBuildBitCast(e->b, mask, bits_t, ""), none = emit_i(e, bits_t, 0);
    LLVMValueRef all =
        a->affine ? emit_addr(e, a->buf, emit_lane_zero(e, a->index)).v : lane_pointers(e, a);
    LLVMValueRef v = LLVMGetPoison(emit_vec(a->elem, e->lanes)), zeros = dummy(e, NULL);
    for (uint32_t i = 0; i < e->lanes; i++) {
        Expr step = a->affine ? expr_mul(e->exprs, a->stride, expr_const(e->exprs, i)) : 0;
        LLVMValueRef p = a->affine ? emit_gep(e, a->elem, all, emit_expr_scalar(e, step).v)
                                   : LLVMBuildExtractElement(e->b, all, emit_i64(e, i), "");
        LLVMValueRef bit = LLVMConstInt(bits_t, (uint64_t)1 << i, false);
        LLVMValueRef on = LLVMBuildAnd(e->b, bits, bit, "");
        on = LLVMBuildICmp(e->b, LLVMIntNE, on, none, "");
        p = LLVMBuildSelect(e->b, on, p, zeros, "");
        v = LLVMBuildInsertElement(e->b, v, emit_load(e, a->elem, p, a->align), emit_i64(e, i), "");
    }
    return LLVMIsNull(other) ? v : LLVMBuildSelect(e->b, mask, v, other, "");
}

static LLVMValueRef gather(Emit *e, const Access *a, LLVMValueRef mask, LLVMValueRef other) {
    LLVMTypeRef v = emit_vec(a->elem, e->lanes);
    if (!emit_masks_gathers(e->isa, a->t) && !LLVMIsConstant(mask))
        return gather_each(e, a, mask, other);
    LLVMValueRef args[3] = {lane_pointers(e, a), mask, other};
    return vector_intrinsic(e, "llvm.masked.gather", v, emit_vec(e->ptr, e->lanes), args, 3, 1,
                            a->align);
}

static LLVMValueRef reverse(Emit *e, LLVMValueRef v) {
    LLVMValueRef idx[64];
    for (uint32_t i = 0; i < e->lanes; i++) idx[i] = LLVMConstInt(e->i32, e->lanes - 1 - i, false);
    return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)),
                                  LLVMConstVector(idx, e->lanes), "");
}

/* Where a walk over e->zeros_sym finds the vector at `at`, or zeros where the mask is off; NULL if
 * that can only be said step by step. */
static LLVMValueRef walked_place(Emit *e, const Access *a, Expr at) {
    Expr coef, rest;
    if (!e->zeros || !a->mask.v || a->fill ||
        !expr_affine(e->exprs, at, e->zeros_sym, &coef, &rest))
        return NULL;
    Expr step = expr_sym_ref(e->exprs, e->zeros_sym);
    bool still = expr_is_value(e->exprs, coef, 0);
    uint32_t depth = emit_expr_depth(e, rest);
    if (a->mask.depth > depth) depth = a->mask.depth;
    if (!still && (!expr_is_value(e->exprs, coef, 1) || depth >= emit_expr_depth(e, step)))
        return NULL;
    EmitMemo key = {.kind = MEMO_addr, .a = a->buf, .b = rest, .c = (uintptr_t)a->mask.v};
    const EmitMemo *m = emit_memo_get(e, depth, key);
    if (m) {
        key.v = m->v;
    } else {
        EmitPlace back = emit_hoist(e, depth);
        LLVMValueRef p = emit_addr(e, a->buf, rest).v;
        key.v = LLVMBuildSelect(e->b, a->mask.v, p, e->zeros, "");
        emit_memo_put(e, depth, key);
        emit_unhoist(e, back);
    }
    return still ? key.v : emit_gep(e, a->elem, key.v, emit_expr_scalar(e, step).v);
}

/* A load whose address is one place, or one vector, under at most a uniform mask: masked off it
 * reads zeros, so it never branches. */
static LLVMValueRef plain_load(Emit *e, const Access *a, Expr at, LLVMTypeRef type) {
    bool vector = LLVMGetTypeKind(type) == LLVMVectorTypeKind;
    LLVMValueRef p = vector ? walked_place(e, a, at) : NULL;
    if (p) return emit_load(e, type, p, a->align);
    p = emit_addr(e, a->buf, at).v;
    if (a->mask.v) p = LLVMBuildSelect(e->b, a->mask.v, p, dummy(e, a->fill), "");
    return emit_load(e, type, p, vector ? align_at(e, a, at) : a->align);
}

/* The access at one lane. */
static Access at_lane(Emit *e, const Access *a, uint32_t lane) {
    Expr n = expr_const(e->exprs, lane);
    Access one = *a;
    one.index = expr_subst(e->exprs, a->index, &e->lane_sym, &n, 1);
    if (a->mask_expr)
        one.mask = emit_mask_resolved(e, expr_subst(e->exprs, a->mask_expr, &e->lane_sym, &n, 1));
    return one;
}

/* Lanes that belong to one thread, strided, computed or masked each for itself: one by one. */
static LLVMValueRef load_each(Emit *e, const Access *a) {
    LLVMValueRef v = LLVMGetPoison(emit_vec(a->elem, e->lanes));
    for (uint32_t i = 0; i < e->lanes; i++) {
        Access one = at_lane(e, a, i);
        LLVMValueRef x = plain_load(e, &one, one.index, a->elem);
        v = LLVMBuildInsertElement(e->b, v, x, emit_i64(e, i), "");
    }
    return v;
}

static LLVMValueRef combine(Emit *e, LLVMValueRef a, LLVMValueRef b) {
    if (!a || !b) return a ? emit_splat(e, a) : b ? emit_splat(e, b) : NULL;
    return LLVMBuildAnd(e->b, emit_splat(e, a), emit_splat(e, b), "");
}

static LLVMValueRef vector_load(Emit *e, const Access *a, LLVMValueRef lanes, LLVMValueRef other) {
    LLVMTypeRef v = emit_vec(a->elem, e->lanes);
    bool lane_mask = a->mask.v && emit_is_vector(a->mask.v);
    Expr at = emit_lane_zero(e, a->index);
    if (contiguous(e, a) && !lanes && !lane_mask) return plain_load(e, a, at, v);
    if (e->isa->thread_lanes) return load_each(e, a);
    if (!other) other = LLVMConstNull(v);
    LLVMValueRef p = contiguous(e, a) && !lane_mask ? walked_place(e, a, at) : NULL;
    if (p) return masked_load(e, a, p, lanes, other);
    LLVMValueRef m = combine(e, lanes, a->mask.v);
    if (contiguous(e, a)) return masked_load(e, a, emit_addr(e, a->buf, at).v, m, other);
    if (a->affine && expr_is_value(e->exprs, a->stride, -1) && !m) {
        Expr lowest = expr_addi(e->exprs, at, 1 - (int64_t)e->lanes);
        return reverse(e, plain_load(e, a, lowest, v));
    }
    return gather(e, a, m ? m : all_lanes(e), other);
}

/* True when a varying access is one vector, forwards or backwards. */
static bool plain(Emit *e, const Access *a) {
    return a->affine &&
           (expr_is_value(e->exprs, a->stride, 1) || expr_is_value(e->exprs, a->stride, -1));
}

/* `other`: what masked-off elements are, made where the load stood: here the symbols in its index
 * may be bound no more. `early`: what emit_request loaded, or NULL. */
static LLVMValueRef load_new(Emit *e, Access *a, LLVMValueRef lanes, LLVMValueRef other,
                             LLVMValueRef early) {
    LLVMValueRef v;
    bool lane_mask = a->mask.v && emit_is_vector(a->mask.v);
    if (!early && other && !lane_mask && !lanes && LLVMIsAConstant(other) &&
        !emit_is_vector(other) && a->t != DT_bool && (!a->varies || plain(e, a))) {
        a->fill = other;
        other = NULL;
    }
    if (early) {
        v = early;
    } else if (a->varies) {
        v = vector_load(e, a, lanes, NULL);
    } else if (lane_mask) {
        /* One place, but only some lanes may read it: any of them allows the access, but those that
         * are behind the axis. */
        Access one = *a;
        LLVMValueRef m = combine(e, e->scope->mask, a->mask.v);
        one.mask.v = emit_fold_lanes(e, FOLD_max, DT_bool, m);
        v = plain_load(e, &one, emit_lane_zero(e, a->index), a->elem);
    } else {
        v = plain_load(e, a, emit_lane_zero(e, a->index), a->elem);
    }
    v = from_memory(e, a->t, v);
    if (!a->mask.v) return v;
    if (!other && !lane_mask) return v; /* read as zero */
    if (!other && a->varies) return v;
    if (!other) other = LLVMConstNull(emit_type(e, a->t));
    return emit_select(e, a->mask.v, v, other);
}

/* Depth of the innermost scope that the load's place depends on. */
static uint32_t depth_of(Emit *e, const Access *a, LLVMValueRef lanes) {
    uint32_t depth = emit_expr_depth(e, a->index), turn;
    if (kir_carries(e->k, a->buf) && emit_find_bind(e, e->k->turn, &turn) && turn > depth)
        depth = turn; /* another value in every turn, at the same address */
    if (a->mask.v && a->mask.depth > depth) depth = a->mask.depth;
    if (lanes || (a->mask.v && emit_is_vector(a->mask.v))) {
        uint32_t at = emit_lane_depth(e);
        if (at > depth) depth = at;
    }
    return depth;
}

/* What was loaded in the scope of depth `*depth` or between it and the condition that guards the
 * code here; `*depth` becomes the scope's, or where there is none the one to load in. */
static const EmitMemo *loaded(Emit *e, uint32_t *depth, EmitMemo key) {
    const EmitMemo *m;
    while (!(m = emit_memo_get(e, *depth, key)) && *depth < e->scope->certain) ++*depth;
    return m;
}

/* What emit_request loaded is kept apart from the load's value. */
static EmitMemo early_key(const Access *a, LLVMValueRef lanes) {
    return (EmitMemo){.kind = MEMO_early,
                      .a = (uint64_t)a->buf << 32 | a->index,
                      .b = (uintptr_t)a->mask.v,
                      .c = (uintptr_t)lanes};
}

void emit_request(Emit *e, KVal v) {
    Access a = access_of(e, &e->k->ops[v]);
    LLVMValueRef lanes = a.varies ? e->scope->mask : NULL;
    if (lanes || (a.mask.v && emit_is_vector(a.mask.v))) return;
    uint32_t depth = depth_of(e, &a, lanes);
    EmitMemo key = early_key(&a, lanes);
    if (loaded(e, &depth, key)) return;
    EmitPlace back = emit_hoist(e, depth);
    Expr at = emit_lane_zero(e, a.index);
    key.v = a.varies ? vector_load(e, &a, NULL, NULL) : plain_load(e, &a, at, a.elem);
    emit_memo_put(e, depth, key);
    emit_unhoist(e, back);
}

static EmitVal emit_kload(Emit *e, KVal v) {
    const KOp *o = &e->k->ops[v];
    Access a = access_of(e, o);
    LLVMValueRef lanes = a.varies ? e->scope->mask : NULL;
    EmitVal other = o->in[0] ? emit_val(e, o->in[0]) : (EmitVal){0};
    uint32_t depth = depth_of(e, &a, lanes);
    const EmitMemo *early = loaded(e, &(uint32_t){depth}, early_key(&a, lanes));
    if (other.depth > depth) depth = other.depth;
    EmitMemo key = {.kind = MEMO_load,
                    .a = (uint64_t)a.buf << 32 | a.index,
                    .b = (uintptr_t)a.mask.v,
                    .c = (uintptr_t)lanes,
                    .d = (uintptr_t)other.v};
    const EmitMemo *m = loaded(e, &depth, key);
    if (m) return (EmitVal){.v = m->v, .depth = depth};
    EmitPlace back = emit_hoist(e, depth);
    key.v = load_new(e, &a, lanes, other.v, early ? early->v : NULL);
    emit_memo_put(e, depth, key);
    emit_unhoist(e, back);
    return (EmitVal){.v = key.v, .depth = depth};
}

/* --- Stores ------------------------------------------------------------------------------- */

/* The mask's lane if it is known to have just one, else -1. */
static int only_lane(const Emit *e, LLVMValueRef mask) {
    int lane = -1;
    if (!LLVMIsConstant(mask)) return -1;
    for (uint32_t i = 0; i < e->lanes; i++) {
        LLVMValueRef bit = LLVMGetAggregateElement(mask, i);
        if (!bit || !LLVMIsAConstantInt(bit)) return -1;
        if (!LLVMConstIntGetZExtValue(bit)) continue;
        if (lane >= 0) return -1;
        lane = (int)i;
    }
    return lane;
}

static void store_lanes(Emit *e, const Access *a, LLVMValueRef v, LLVMValueRef m) {
    LLVMTypeRef t = LLVMTypeOf(v);
    if (contiguous(e, a)) {
        /* LLVM 22 stores a narrowed value's whole wide element where one lane is left. */
        int lane = m ? only_lane(e, m) : -1;
        if (lane >= 0) {
            LLVMValueRef at = emit_i64(e, lane);
            LLVMValueRef p = emit_addr(e, a->buf, emit_lane_zero(e, a->index)).v;
            v = LLVMBuildExtractElement(e->b, v, at, "");
            emit_store_ptr(e, v, emit_gep(e, a->elem, p, at), a->align);
            return;
        }
        LLVMValueRef p = emit_addr(e, a->buf, emit_lane_zero(e, a->index)).v;
        if (!m) {
            emit_store_ptr(e, v, p, a->align);
            return;
        }
        LLVMValueRef args[3] = {v, p, m};
        vector_intrinsic(e, "llvm.masked.store", t, e->ptr, args, 3, 2, a->align);
        return;
    }
    LLVMValueRef args[3] = {v, lane_pointers(e, a), m ? m : all_lanes(e)};
    vector_intrinsic(e, "llvm.masked.scatter", t, emit_vec(e->ptr, e->lanes), args, 3, 2, a->align);
}

static void store_one(Emit *e, const Access *a, LLVMValueRef v, LLVMValueRef m) {
    EmitIf cond;
    Expr at = emit_lane_zero(e, a->index);
    if (m) emit_if_begin(e, &cond, m);
    emit_store_ptr(e, v, emit_addr(e, a->buf, at).v, a->align);
    if (m) emit_if_end(e, &cond);
}

/* The lanes of one thread: one wide store where they lie side by side. */
static void store_thread(Emit *e, const Access *a, LLVMValueRef v) {
    EmitIf cond;
    bool lane_mask = a->mask.v && emit_is_vector(a->mask.v);
    for (uint32_t i = 0; i < e->lanes && (lane_mask || !contiguous(e, a)); i++) {
        Access one = at_lane(e, a, i);
        store_one(e, &one, LLVMBuildExtractElement(e->b, v, emit_i64(e, i), ""), one.mask.v);
    }
    if (lane_mask || !contiguous(e, a)) return;
    Expr at = emit_lane_zero(e, a->index);
    if (a->mask.v) emit_if_begin(e, &cond, a->mask.v);
    emit_store_ptr(e, v, emit_addr(e, a->buf, at).v, align_at(e, a, at));
    if (a->mask.v) emit_if_end(e, &cond);
}

static LLVMValueRef atomic_join(Emit *e, ScatterMode mode, DType t, LLVMValueRef old,
                                LLVMValueRef v) {
    static const uint8_t op[] = {0, OP_add, OP_mul, OP_min, OP_max};
    return mode == SCATTER_set ? v : emit_map(e, (Op)op[mode], t, old, v, NULL);
}

/* Lanes update places of their own. */
static void atomic_lanes(Emit *e, Access *a, ScatterMode mode, LLVMValueRef v) {
    EmitIf cond;
    LLVMValueRef one = a->mask.v && !emit_is_vector(a->mask.v) ? a->mask.v : NULL;
    if (one) {
        emit_if_begin(e, &cond, one);
        a->mask.v = NULL;
    }
    LLVMValueRef old = from_memory(e, a->t, vector_load(e, a, e->scope->mask, NULL));
    v = atomic_join(e, mode, a->t, old, emit_splat(e, v));
    store_lanes(e, a, to_memory(e, a->t, v), combine(e, e->scope->mask, a->mask.v));
    if (one) emit_if_end(e, &cond);
}

/* Serial kernels: the walk is in order. */
static void emit_katomic(Emit *e, const KOp *o) {
    Access a = access_of(e, o);
    LLVMValueRef v = emit_val(e, o->in[0]).v;
    EmitIf cond;
    if (a.varies) {
        atomic_lanes(e, &a, (ScatterMode)o->fold, v);
        return;
    }
    if (a.mask.v) emit_if_begin(e, &cond, a.mask.v);
    LLVMValueRef p = emit_addr(e, a.buf, a.index).v;
    LLVMValueRef old = from_memory(e, a.t, emit_load(e, a.elem, p, a.align));
    v = atomic_join(e, (ScatterMode)o->fold, a.t, old, v);
    emit_store_ptr(e, to_memory(e, a.t, v), p, a.align);
    if (a.mask.v) emit_if_end(e, &cond);
}

void emit_store(Emit *e, KVal store) {
    const KOp *o = &e->k->ops[store];
    if (o->op == K_katomic) {
        emit_katomic(e, o);
        return;
    }
    Access a = access_of(e, o);
    LLVMValueRef v = to_memory(e, a.t, emit_val(e, o->in[0]).v);
    bool lane_mask = a.mask.v && emit_is_vector(a.mask.v);
    if (a.varies || (lane_mask && e->lanes > 1)) {
        if (e->isa->thread_lanes)
            store_thread(e, &a, emit_splat(e, v));
        else
            store_lanes(e, &a, emit_splat(e, v), combine(e, e->scope->mask, a.mask.v));
        return;
    }
    if (emit_is_vector(v)) v = LLVMBuildExtractElement(e->b, v, emit_i64(e, 0), "");
    store_one(e, &a, v, a.mask.v);
}

/* --- Folds without a loop structure of their own ------------------------------------------ */

/* Position of the best value so far; NaN beats every number, then the first (or last) of equals. */
LLVMValueRef emit_arg_beats(Emit *e, KFold f, DType t, LLVMValueRef x, LLVMValueRef best) {
    bool max = f == FOLD_argmax || f == FOLD_argmax_last;
    bool last = f == FOLD_argmax_last || f == FOLD_argmin_last;
    LLVMValueRef better =
        emit_map(e, last ? OP_le : OP_lt, t, max ? best : x, max ? x : best, NULL);
    if (!dtype_is_float(t)) return better;
    LLVMValueRef xn = emit_map(e, OP_isnan, t, x, NULL, NULL);
    LLVMValueRef bn = emit_map(e, OP_isnan, t, best, NULL, NULL);
    if (last) return LLVMBuildOr(e->b, better, xn, "");
    return LLVMBuildOr(e->b, better, LLVMBuildAnd(e->b, xn, LLVMBuildNot(e->b, bn, ""), ""), "");
}

/* A loop nest over the axes of op v, outermost first; carried[n] in l[depth-1]. */
typedef struct FoldNest {
    uint32_t n;
    EmitLoop *l;
} FoldNest;

static FoldNest nest_begin(Emit *e, uint32_t axes, uint32_t nphi, LLVMValueRef *init) {
    FoldNest n = {.l = ARENA_ARRAY(e->arena, EmitLoop, K_MAX_AXES)};
    for (uint32_t i = 0; i < e->k->naxes; i++) {
        if (!(axes >> i & 1)) continue;
        EmitLoop *l = &n.l[n.n];
        *l = emit_loop(e, nphi);
        for (uint32_t j = 0; j < nphi; j++) l->init[j] = n.n ? n.l[n.n - 1].phi[j] : init[j];
        LLVMValueRef hi = emit_expr(e, e->k->axes[i].extent);
        emit_loop_begin(e, l, "fold", emit_i64(e, 0), hi, emit_i64(e, 1), false);
        emit_set_sym(e, e->k->axes[i].sym, l->i);
        n.n++;
    }
    return n;
}

static void nest_end(Emit *e, FoldNest *n, uint32_t nphi, LLVMValueRef *next) {
    for (uint32_t d = n->n; d-- > 0;) {
        for (uint32_t j = 0; j < nphi; j++) n->l[d].next[j] = next[j];
        emit_loop_end(e, &n->l[d]);
        for (uint32_t j = 0; j < nphi; j++) next[j] = n->l[d].out[j];
    }
}

static LLVMValueRef fold_value(Emit *e, const KOp *o, uint32_t lanes) {
    DType t = (DType)e->k->ops[o->in[0]].dtype;
    LLVMValueRef acc = emit_fold_identity(e, (KFold)o->fold, t, lanes);
    FoldNest n = nest_begin(e, o->axes, 1, &acc);
    LLVMValueRef x = lanes > 1 ? emit_value_lanes(e, o->in[0]) : emit_value(e, o->in[0]);
    LLVMValueRef old = n.n ? n.l[n.n - 1].phi[0] : acc;
    LLVMValueRef next = emit_fold_join(e, (KFold)o->fold, t, old, x);
    nest_end(e, &n, 1, &next);
    return next;
}

static LLVMValueRef fold_arg(Emit *e, const KOp *o, uint32_t lanes) {
    DType t = (DType)e->k->ops[o->in[0]].dtype;
    LLVMTypeRef at = emit_vec(e->i64, lanes);
    LLVMValueRef init[2] = {emit_i(e, at, -1), LLVMConstNull(emit_vec(emit_type(e, t), lanes))};
    FoldNest n = nest_begin(e, o->axes, 2, init);
    EmitLoop *l = &n.l[0];
    LLVMValueRef x = lanes > 1 ? emit_value_lanes(e, o->in[0]) : emit_value(e, o->in[0]);
    LLVMValueRef none = LLVMBuildICmp(e->b, LLVMIntSLT, l->phi[0], emit_i(e, at, 0), "");
    LLVMValueRef better = emit_arg_beats(e, (KFold)o->fold, t, x, l->phi[1]);
    LLVMValueRef take = LLVMBuildOr(e->b, none, better, "");
    LLVMValueRef next[2] = {emit_select(e, take, emit_splat_n(e, l->i, lanes), l->phi[0]),
                            emit_select(e, take, x, l->phi[1])};
    nest_end(e, &n, 2, next);
    return next[0];
}

static EmitVal emit_kreduce(Emit *e, KVal v) {
    const KOp *o = &e->k->ops[v];
    uint32_t lanes = emit_varies(e, v) ? e->lanes : 1;
    LLVMValueRef r = o->fold >= FOLD_argmax ? fold_arg(e, o, lanes) : fold_value(e, o, lanes);
    return (EmitVal){.v = r, .depth = e->scope->depth};
}

bool emit_varies(Emit *e, KVal v) {
    if (e->lanes == 1 || !e->scope->has_lanes) return false;
    for (uint32_t i = 0; i < e->k->naxes; i++) {
        if (!(e->domains[v] >> i & 1)) continue;
        Expr r = emit_resolve(e, expr_sym_ref(e->exprs, e->k->axes[i].sym));
        if (emit_expr_varies(e, r)) return true;
    }
    return false;
}

/* --- All other ops ------------------------------------------------------------------------ */

static LLVMValueRef konst(Emit *e, const KOp *o) {
    DType t = (DType)o->dtype;
    if (t == DT_f32 || t == DT_f64) return emit_f(e, emit_type(e, t), o->imm.f);
    if (!dtype_is_float(t)) return emit_i(e, emit_type(e, t), o->imm.i);
    uint64_t bits = 0;
    dtype_store_f64(t, &bits, 0, o->imm.f);
    return emit_i(e, emit_type(e, t), (int64_t)bits);
}

static EmitVal emit_kexpr(Emit *e, const KOp *o) {
    Expr r = emit_resolve(e, o->index);
    EmitVal v;
    Expr stride;
    if (!emit_expr_varies(e, r))
        v = emit_expr_scalar(e, r);
    else if (emit_stride(e, r, &stride) && expr_is_value(e->exprs, stride, 0))
        v = emit_expr_scalar(e, emit_lane_zero(e, r));
    else
        v = emit_expr_vector(e, r);
    if (o->dtype == DT_i64) return v;
    EmitPlace back = emit_hoist(e, v.depth);
    v.v = emit_cast(e, DT_i64, (DType)o->dtype, v.v);
    emit_unhoist(e, back);
    return v;
}

static LLVMValueRef bitcast(Emit *e, DType from, DType to, LLVMValueRef x) {
    x = to_memory(e, from, x);
    return from_memory(e, to, emit_bits(e, x, emit_mem_type(e, to)));
}

/* One number beside those that count the lanes up (a label among classes): the lane that it is at,
 * compared in 32 bits; or NULL. */
static LLVMValueRef is_at_lane(Emit *e, const KOp *o, const EmitVal *x) {
    int n = emit_is_vector(x[0].v) ? 0 : 1;
    const KOp *count = &e->k->ops[o->in[n]];
    Expr stride, lanes;
    LLVMValueRef order[64];
    if (o->op != OP_eq || count->op != K_kexpr || count->dtype != DT_i64) return NULL;
    if (!emit_is_vector(x[n].v) || emit_is_vector(x[1 - n].v)) return NULL;
    lanes = emit_resolve(e, count->index);
    if (!emit_stride(e, lanes, &stride) || !expr_is_value(e->exprs, stride, 1)) return NULL;
    LLVMValueRef first = emit_expr_scalar(e, emit_lane_zero(e, lanes)).v;
    LLVMValueRef at[2] = {LLVMBuildSub(e->b, x[1 - n].v, first, ""), emit_i64(e, e->lanes)};
    at[0] = emit_intrinsic(e, "llvm.umin", e->i64, at, 2);
    at[0] = emit_splat(e, LLVMBuildTrunc(e->b, at[0], e->i32, ""));
    for (uint32_t i = 0; i < e->lanes; i++) order[i] = emit_i(e, e->i32, i);
    return emit_map(e, OP_eq, DT_i32, at[0], LLVMConstVector(order, e->lanes), NULL);
}

static LLVMValueRef map_new(Emit *e, const KOp *o, const EmitVal *x) {
    DType t = (DType)e->k->ops[o->in[0]].dtype;
    LLVMValueRef at = o->op == OP_eq ? is_at_lane(e, o, x) : NULL;
    if (at) return at;
    if (o->op == OP_cast)
        return emit_cast_round(e, t, (DType)o->dtype, !(o->imm.i & 1), (int)(o->imm.i >> 1 & 3),
                               x[0].v);
    if (o->op == OP_bitcast) return bitcast(e, t, (DType)o->dtype, x[0].v);
    return emit_map(e, (Op)o->op, t, x[0].v, x[1].v, x[2].v);
}

/* x / y for many x and one y: q = x (1/y), within 1.5 ulp. Where lanes cost an instruction for all
 * of them, one step of remainder makes it what the division gives, save for y near the ends of the
 * exponent range. Where the remainder is not a number, q is already the right zero, infinity or
 * NaN. */
static EmitVal divide_by_uniform(Emit *e, DType t, const EmitVal *x, uint32_t depth) {
    EmitPlace back = emit_hoist(e, x[1].depth);
    EmitMemo key = {.kind = MEMO_splat, .a = (uintptr_t)x[1].v, .b = 1};
    const EmitMemo *m = emit_memo_get(e, x[1].depth, key);
    if (m) {
        key = *m;
    } else {
        LLVMValueRef one = emit_f(e, LLVMTypeOf(x[1].v), 1);
        key.v = emit_splat(e, LLVMBuildFDiv(e->b, one, x[1].v, ""));
        emit_memo_put(e, x[1].depth, key);
    }
    emit_unhoist(e, back);
    back = emit_hoist(e, depth);
    LLVMValueRef y = emit_splat(e, x[1].v);
    LLVMValueRef q = LLVMBuildFMul(e->b, x[0].v, key.v, "");
    if (e->rcp) {
        emit_unhoist(e, back);
        return (EmitVal){.v = q, .depth = depth};
    }
    LLVMValueRef rem = emit_fma(e, LLVMBuildFNeg(e->b, q, ""), y, x[0].v);
    LLVMValueRef r = emit_fma(e, rem, key.v, q);
    LLVMValueRef bad = emit_map(e, OP_isnan, t, r, NULL, NULL);
    r = LLVMBuildSelect(e->b, bad, q, r, "");
    emit_unhoist(e, back);
    return (EmitVal){.v = r, .depth = depth};
}

static bool divides_row(const KOp *o, const EmitVal *x) {
    return o->op == OP_div && o->dtype == DT_f32 && emit_is_vector(x[0].v) &&
           !emit_is_vector(x[1].v);
}

/* (f32)(word & mask) - zero. */
typedef struct FewBits {
    KVal word;
    int64_t mask;
    float zero;
} FewBits;

static bool is_few_bits(const Emit *e, KVal v, FewBits *x) {
    const KOp *ops = e->k->ops, *cast = &ops[v], *zero = &ops[cast->in[1]];
    bool less = cast->op == OP_sub && zero->op == K_konst;
    *x = (FewBits){.zero = less ? (float)zero->imm.f : 0};
    if (less) cast = &ops[cast->in[0]];
    const KOp *bits = &ops[cast->in[0]];
    if (cast->op != OP_cast || cast->dtype != DT_f32 || bits->op != OP_and || bits->dtype != DT_u32)
        return false;
    uint32_t mask = ops[bits->in[1]].op == K_konst ? 1 : 0;
    if (ops[bits->in[mask]].op != K_konst) return false;
    x->word = bits->in[1 - mask];
    x->mask = ops[bits->in[mask]].imm.i;
    return x->mask >= 0 && x->mask < (int64_t)e->lanes;
}

/* Few bits as numbers, which a table has ready where the target can look them up; or NULL. */
static EmitVal emit_table(Emit *e, KVal v) {
    FewBits x;
    EmitVal word = {0};
    if (e->isa->table_f32 && e->lanes == e->isa->lanes && is_few_bits(e, v, &x))
        word = emit_val(e, x.word);
    if (!word.v || !emit_is_vector(word.v)) return (EmitVal){0};
    EmitMemo key = {.kind = MEMO_op, .a = v, .b = (uintptr_t)word.v};
    const EmitMemo *m = emit_memo_get(e, word.depth, key);
    if (m) return (EmitVal){.v = m->v, .depth = word.depth};
    EmitPlace back = emit_hoist(e, word.depth);
    LLVMValueRef entry[64];
    for (int64_t i = 0; i < (int64_t)e->lanes; i++)
        entry[i] = emit_f(e, e->f32, (double)((float)(i & x.mask) - x.zero));
    LLVMValueRef in[2] = {LLVMConstVector(entry, e->lanes), word.v};
    key.v = emit_intrinsic(e, e->isa->table_f32, NULL, in, 2);
    emit_memo_put(e, word.depth, key);
    emit_unhoist(e, back);
    return (EmitVal){.v = key.v, .depth = word.depth};
}

/* min(max(x, lo), hi) + plus; these three are whole. */
typedef struct Clamp {
    KVal x;
    double lo, hi, plus;
} Clamp;

/* The operand of v beside a constant, if v is that op of f32; or 0. */
static KVal beside_konst(const Emit *e, KVal v, Op op, double *c) {
    const KOp *o = &e->k->ops[v];
    for (int i = 0; o->op == op && o->dtype == DT_f32 && i < 2; i++) {
        const KOp *k = &e->k->ops[o->in[i]];
        *c = k->imm.f;
        if (k->op == K_konst && *c == rint(*c)) return o->in[1 - i];
    }
    return 0;
}

static bool is_clamp(const Emit *e, KVal v, Clamp *c) {
    KVal x = beside_konst(e, v, OP_add, &c->plus);
    if (!x) c->plus = 0, x = v;
    x = beside_konst(e, x, OP_min, &c->hi);
    if (x) x = beside_konst(e, x, OP_max, &c->lo);
    c->x = x;
    return x && c->lo <= c->hi;
}

LLVMValueRef emit_nearest(Emit *e, LLVMValueRef x) {
    LLVMTypeRef over[2] = {emit_vec(e->i32, LLVMGetVectorSize(LLVMTypeOf(x))), LLVMTypeOf(x)};
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(
        e->mod, LLVMLookupIntrinsicID("llvm.lrint", strlen("llvm.lrint")), over, 2);
    return LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, &x, 1, "");
}

LLVMValueRef emit_between(Emit *e, LLVMValueRef x, double lo, double hi) {
    LLVMValueRef a = emit_f(e, LLVMTypeOf(x), lo), b = emit_f(e, LLVMTypeOf(x), hi);
    x = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOGT, x, a, ""), x, a, "");
    return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, x, b, ""), x, b, "");
}

/* Rounded to all of u8: what is larger saturates as it is narrowed, by one instruction. */
static LLVMValueRef round_u8(Emit *e, LLVMValueRef x) {
    LLVMTypeRef t = LLVMTypeOf(x), u32 = emit_vec(e->i32, e->isa->lanes);
    LLVMValueRef zero = emit_f(e, t, 0), most = emit_i(e, u32, UINT8_MAX);
    x = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOGT, x, zero, ""), x, zero, "");
    LLVMValueRef v[4] = {x, LLVMConstNull(u32), LLVMConstInt(e->i16, UINT16_MAX, false),
                         LLVMConstInt(e->i32, 4, false)}; /* all lanes; to nearest */
    LLVMValueRef y[2] = {emit_intrinsic(e, e->isa->round_u32, NULL, v, 4), most};
    return emit_cast(e, DT_u32, DT_u8, emit_intrinsic(e, "llvm.umin", u32, y, 2));
}

static LLVMValueRef round_clamped(Emit *e, const Clamp *c, DType t, bool rounds, LLVMValueRef x) {
    const uint32_t lanes = LLVMGetVectorSize(LLVMTypeOf(x));
    LLVMTypeRef i32 = emit_vec(e->i32, lanes);
    if (rounds && e->isa->round_u32 && lanes == e->isa->lanes && c->plus == 0 && t == DT_u8 &&
        c->hi == UINT8_MAX)
        return round_u8(e, x);
    LLVMValueRef y = emit_between(e, x, c->lo, c->hi);
    if (!rounds && c->plus != 0) /* a fraction is cut towards 0 behind the sum */
        y = LLVMBuildFAdd(e->b, y, emit_f(e, LLVMTypeOf(y), c->plus), "");
    y = rounds ? emit_nearest(e, y) : LLVMBuildFPToSI(e->b, y, i32, "");
    if (rounds && c->plus != 0) y = LLVMBuildAdd(e->b, y, emit_i(e, i32, (int64_t)c->plus), "");
    return emit_cast(e, DT_i32, t, y);
}

/* What is clamped to an integer type from 0 on: nothing is left to saturate, and what is no number
 * gives 0, as the lower end does; a maximum that drops NaN takes no more than one that keeps it.
 * What was rounded before is rounded by the conversion. */
static EmitVal emit_clamped(Emit *e, KVal v) {
    Clamp c;
    const KOp *o = &e->k->ops[v];
    const DType t = (DType)o->dtype;
    if (e->isa->thread_lanes)
        return (EmitVal){0}; /* its conversions round and saturate themselves */
    if (o->op != OP_cast || (t != DT_u8 && t != DT_i8) || !is_clamp(e, o->in[0], &c))
        return (EmitVal){0};
    if (c.lo + c.plus != 0 || c.hi + c.plus > (t == DT_u8 ? UINT8_MAX : INT8_MAX))
        return (EmitVal){0};
    const KOp *round = &e->k->ops[c.x];
    const bool rounds = round->op == OP_round;
    EmitVal x = emit_val(e, rounds ? round->in[0] : c.x);
    if (!emit_is_vector(x.v)) return (EmitVal){0};
    EmitMemo key = {.kind = MEMO_op, .a = v, .b = (uintptr_t)x.v};
    const EmitMemo *m = emit_memo_get(e, x.depth, key);
    if (m) return (EmitVal){.v = m->v, .depth = x.depth};
    EmitPlace back = emit_hoist(e, x.depth);
    key.v = round_clamped(e, &c, t, rounds, x.v);
    emit_memo_put(e, x.depth, key);
    emit_unhoist(e, back);
    return (EmitVal){.v = key.v, .depth = x.depth};
}

static bool used_once(const Emit *e, KVal v) {
    uint32_t uses = 0;
    for (KVal u = 1; u < e->k->nops; u++)
        for (int i = 0; i < 3; i++) uses += e->k->ops[u].in[i] == v;
    return uses == 1;
}

/* 1 + erf(x), in vectors: GELU's. */
static EmitVal emit_erf_beside_one(Emit *e, KVal v) {
    double one;
    const KVal erf = beside_konst(e, v, OP_add, &one);
    if (!erf || one != 1 || e->k->ops[erf].op != OP_erf || !used_once(e, erf)) return (EmitVal){0};
    EmitVal x = emit_val(e, e->k->ops[erf].in[0]);
    if (!emit_is_vector(x.v)) return (EmitVal){0};
    EmitMemo key = {.kind = MEMO_op, .a = v, .b = (uintptr_t)x.v};
    const EmitMemo *m = emit_memo_get(e, x.depth, key);
    if (m) return (EmitVal){.v = m->v, .depth = x.depth};
    EmitPlace back = emit_hoist(e, x.depth);
    e->now = erf;
    key.v = emit_one_and_erf(e, x.v);
    emit_memo_put(e, x.depth, key);
    emit_unhoist(e, back);
    return (EmitVal){.v = key.v, .depth = x.depth};
}

static EmitVal emit_kmap(Emit *e, KVal v) {
    const KOp *o = &e->k->ops[v];
    EmitVal x[3] = {{0}, {0}, {0}}, known = emit_table(e, v);
    if (!known.v) known = emit_clamped(e, v);
    if (!known.v) known = emit_erf_beside_one(e, v);
    if (known.v) return known;
    uint32_t depth = 0;
    for (int i = 0; i < 3; i++) {
        if (!o->in[i]) continue;
        x[i] = emit_val(e, o->in[i]);
        if (x[i].depth > depth) depth = x[i].depth;
    }
    EmitMemo key = {.kind = MEMO_op,
                    .a = v,
                    .b = (uintptr_t)x[0].v,
                    .c = (uintptr_t)x[1].v,
                    .d = (uintptr_t)x[2].v};
    const EmitMemo *m = emit_memo_get(e, depth, key);
    if (m) return (EmitVal){.v = m->v, .depth = depth};
    if (divides_row(o, x)) {
        EmitVal r = divide_by_uniform(e, DT_f32, x, depth);
        key.v = r.v;
        emit_memo_put(e, depth, key);
        return r;
    }
    EmitPlace back = emit_hoist(e, depth);
    e->now = v;
    key.v = map_new(e, o, x);
    emit_unhoist(e, back);
    if (!key.v) {
        e->unsupported = "an element-wise op has no emitter";
        key.v = LLVMGetPoison(emit_type(e, (DType)o->dtype));
    }
    emit_memo_put(e, depth, key);
    return (EmitVal){.v = key.v, .depth = depth};
}

static EmitVal emit_op(Emit *e, KVal v) {
    const KOp *o = &e->k->ops[v];
    switch (o->op) {
    case K_konst: return (EmitVal){.v = konst(e, o)};
    case K_kexpr: return emit_kexpr(e, o);
    case K_kload: return emit_kload(e, v);
    case K_kbind: return emit_val(e, o->in[0]);
    case K_kreduce: return emit_kreduce(e, v);
    case K_kscan:
    case K_ksort:
    case K_kcompact:
        e->unsupported = "a scan or sort result is used before its row was computed";
        return (EmitVal){.v = LLVMGetPoison(emit_type(e, (DType)o->dtype))};
    default: return emit_kmap(e, v);
    }
}
