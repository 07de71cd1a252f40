/* Set-up, functions, control flow and memory: everything of emit.h that knows nothing of bodies. */
#include "codegen/emit/emit_internal.h"
#include <llvm-c/Target.h>
#include <string.h>

void emit_init(Emit *e, const Isa *isa, LLVMContextRef ctx, LLVMModuleRef mod, Arena *a,
               ExprPool *p) {
    *e = (Emit){.isa = isa, .arena = a, .exprs = p, .ctx = ctx, .mod = mod, .lanes = isa->lanes};
    e->widest = isa->lanes;
    e->b = LLVMCreateBuilderInContext(ctx);
    e->voidt = LLVMVoidTypeInContext(ctx);
    e->i1 = LLVMInt1TypeInContext(ctx);
    e->i8 = LLVMInt8TypeInContext(ctx);
    e->i16 = LLVMInt16TypeInContext(ctx);
    e->i32 = LLVMInt32TypeInContext(ctx);
    e->i64 = LLVMInt64TypeInContext(ctx);
    e->f16 = LLVMHalfTypeInContext(ctx);
    e->f32 = LLVMFloatTypeInContext(ctx);
    e->f64 = LLVMDoubleTypeInContext(ctx);
    e->ptr = LLVMPointerTypeInContext(ctx, 0);
    LLVMSetTarget(mod, isa->triple);
    SymInfo lane = {.name = "lane", .kind = SYM_AXIS, .lo = 0};
    lane.hi = (isa->thread_lanes > isa->lanes ? isa->thread_lanes : isa->lanes) - 1;
    (void)expr_is_sym(p, expr_sym_new(p, lane), &e->lane_sym);
    e->aligned = map_create(a);
    e->indirect = map_create(a);
}

static void add_attr(Emit *e, LLVMValueRef fn, const char *key, const char *value) {
    LLVMAttributeRef at = LLVMCreateStringAttribute(e->ctx, key, (unsigned)strlen(key), value,
                                                    (unsigned)strlen(value));
    LLVMAddAttributeAtIndex(fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, at);
}

static void add_enum_attr(Emit *e, LLVMValueRef fn, const char *name, uint64_t value) {
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                            LLVMCreateEnumAttribute(e->ctx, kind, value));
}

void emit_fn_attrs(Emit *e, LLVMValueRef fn) {
    add_enum_attr(e, fn, "nounwind", 0);
    for (uint32_t i = 0; i < TARGET_MAX_ATTRS && e->isa->attrs[i][0]; i++)
        add_attr(e, fn, e->isa->attrs[i][0], e->isa->attrs[i][1]);
}

/* The op that binds each indirect symbol. */
static void index_binds(Emit *e) {
    for (KVal v = 1; v < e->k->nops; v++)
        if (e->k->ops[v].op == K_kbind) map_put(e->indirect, e->k->ops[v].sym, v);
}

static bool is_step(const Kernel *k, const KOp *o) {
    return o->op == OP_floor || o->op == OP_ceil || o->op == OP_round || o->op == OP_trunc ||
           (o->op == OP_cast && dtype_is_float((DType)k->ops[o->in[0]].dtype) &&
            !dtype_is_float((DType)o->dtype));
}

static const bool *find_stepped(Arena *a, const Kernel *k) {
    bool *stepped = ARENA_ARRAY(a, bool, k->nops + 1);
    for (KVal v = k->nops; v-- > 1;) {
        const KOp *o = &k->ops[v];
        if (o->op >= OP_COUNT || !(stepped[v] || is_step(k, o))) continue;
        for (uint32_t i = 0; i < 3; i++) stepped[o->in[i]] = true;
    }
    return stepped;
}

void emit_body_begin(Emit *e, const Kernel *k, EmitDims *dims) {
    e->k = k;
    e->dims = dims;
    e->scope = NULL;
    e->dummies.n = 0;
    e->zeros = NULL;
    e->scratch_bytes = expr_const(e->exprs, 0);
    uint32_t *domains = ARENA_ARRAY(e->arena, uint32_t, k->nops + 1);
    kir_domains(k, e->exprs, domains);
    e->domains = domains;
    e->stepped = find_stepped(e->arena, k);
    e->indirect = map_create(e->arena);
    e->dim_values = map_create(e->arena);
    index_binds(e);
    e->entry = LLVMAppendBasicBlockInContext(e->ctx, e->fn, "entry");
    LLVMBasicBlockRef body = LLVMAppendBasicBlockInContext(e->ctx, e->fn, "body");
    LLVMPositionBuilderAtEnd(e->b, e->entry);
    LLVMBuildBr(e->b, body);
    LLVMPositionBuilderAtEnd(e->b, body);
    emit_push(e);
}

/* The stack is aligned to this, so that a vector that the registers do not hold lies in one cache
 * line: callers align it to 16 bytes only, and LLVM does not align it for spills by itself. */
static uint64_t vector_bytes(const Emit *e) {
    return e->isa->lanes * sizeof(float);
}

void emit_fn_begin_cpu(Emit *e, const Kernel *k, const char *symbol, EmitDims *dims) {
    LLVMTypeRef params[5] = {e->ptr, e->ptr, e->i64, e->i64, e->ptr};
    e->fn = LLVMAddFunction(e->mod, symbol, LLVMFunctionType(e->voidt, params, 5, false));
    emit_fn_attrs(e, e->fn);
    add_enum_attr(e, e->fn, "alignstack", vector_bytes(e));
    emit_body_begin(e, k, dims);
    e->dims_ptr = LLVMGetParam(e->fn, 1);
    e->begin = LLVMGetParam(e->fn, 2);
    e->end = LLVMGetParam(e->fn, 3);
    e->scratch = LLVMGetParam(e->fn, 4);
    LLVMBasicBlockRef body = LLVMGetInsertBlock(e->b);
    LLVMPositionBuilderBefore(e->b, LLVMGetBasicBlockTerminator(e->entry));
    e->bufs = ARENA_ARRAY(e->arena, LLVMValueRef, k->nparams + 1);
    for (uint32_t i = 0; i < k->nparams; i++) {
        LLVMValueRef at = emit_gep(e, e->ptr, LLVMGetParam(e->fn, 0), emit_i64(e, i));
        e->bufs[i] = emit_load(e, e->ptr, at, 8);
    }
    LLVMPositionBuilderAtEnd(e->b, body);
}

void emit_fn_end(Emit *e) {
    LLVMBuildRetVoid(e->b);
    e->scope = NULL;
}

/* --- Types and constants ------------------------------------------------------------------ */

LLVMTypeRef emit_mem_type(Emit *e, DType t) {
    switch (dtype_bytes(t)) {
    case 1: return e->i8;
    case 2: return e->i16;
    case 4: return t == DT_f32 ? e->f32 : e->i32;
    default: return t == DT_f64 ? e->f64 : e->i64;
    }
}

LLVMTypeRef emit_type(Emit *e, DType t) {
    return t == DT_bool ? e->i1 : emit_mem_type(e, t);
}

LLVMTypeRef emit_vec(LLVMTypeRef elem, uint32_t n) {
    return n == 1 ? elem : LLVMVectorType(elem, n);
}

bool emit_is_vector(LLVMValueRef v) {
    return LLVMGetTypeKind(LLVMTypeOf(v)) == LLVMVectorTypeKind;
}

LLVMTypeRef emit_like(EV v, LLVMTypeRef elem) {
    LLVMTypeRef t = LLVMTypeOf(v);
    return LLVMGetTypeKind(t) == LLVMVectorTypeKind ? LLVMVectorType(elem, LLVMGetVectorSize(t))
                                                    : elem;
}

static LLVMValueRef const_splat(LLVMTypeRef like, LLVMValueRef c) {
    if (LLVMGetTypeKind(like) != LLVMVectorTypeKind) return c;
    uint32_t n = LLVMGetVectorSize(like);
    LLVMValueRef v[128];
    GC_ASSERT(n <= 128);
    for (uint32_t i = 0; i < n; i++) v[i] = c;
    return LLVMConstVector(v, n);
}

static LLVMTypeRef elem_type(LLVMTypeRef t) {
    return LLVMGetTypeKind(t) == LLVMVectorTypeKind ? LLVMGetElementType(t) : t;
}

LLVMValueRef emit_f(Emit *e, LLVMTypeRef like, double v) {
    (void)e;
    return const_splat(like, LLVMConstReal(elem_type(like), v));
}

LLVMValueRef emit_i(Emit *e, LLVMTypeRef like, int64_t v) {
    (void)e;
    return const_splat(like, LLVMConstInt(elem_type(like), (unsigned long long)v, true));
}

LLVMValueRef emit_i64(Emit *e, int64_t v) {
    return LLVMConstInt(e->i64, (unsigned long long)v, true);
}

LLVMValueRef emit_splat_n(Emit *e, LLVMValueRef v, uint32_t n) {
    if (n == 1 || emit_is_vector(v)) return v;
    LLVMTypeRef t = LLVMVectorType(LLVMTypeOf(v), n);
    if (LLVMIsConstant(v)) return const_splat(t, v);
    LLVMValueRef one = LLVMBuildInsertElement(e->b, LLVMGetPoison(t), v, emit_i64(e, 0), "");
    return LLVMBuildShuffleVector(e->b, one, LLVMGetPoison(t),
                                  LLVMConstNull(LLVMVectorType(e->i32, n)), "");
}

LLVMValueRef emit_splat(Emit *e, LLVMValueRef v) {
    return emit_splat_n(e, v, e->lanes);
}

EV emit_bits(Emit *e, EV v, LLVMTypeRef elem) {
    return LLVMBuildBitCast(e->b, v, emit_like(v, elem), "");
}

EV emit_fbin(Emit *e, LLVMOpcode op, EV a, EV b) {
    EV r = LLVMBuildBinOp(e->b, op, a, b, "");
    if (LLVMIsAInstruction(r) && !e->stepped[e->now])
        LLVMSetFastMathFlags(r, LLVMFastMathAllowContract);
    return r;
}

static uint32_t width_of(LLVMValueRef v) {
    return emit_is_vector(v) ? LLVMGetVectorSize(LLVMTypeOf(v)) : 1;
}

/* A uniform condition over vectors as a lane mask: the back end would branch on a scalar one. */
static LLVMValueRef wide_condition(Emit *e, LLVMValueRef c, uint32_t n) {
    if (n == 1 || emit_is_vector(c) || LLVMIsAConstant(c) || e->isa->thread_lanes) return c;
    if (e->isa->mask_registers) {
        LLVMTypeRef bits = LLVMIntTypeInContext(e->ctx, n);
        return LLVMBuildBitCast(e->b, LLVMBuildSExt(e->b, c, bits, ""), emit_vec(e->i1, n), "");
    }
    LLVMValueRef v = emit_splat_n(e, LLVMBuildSExt(e->b, c, e->i32, ""), n);
    return LLVMBuildICmp(e->b, LLVMIntNE, v, LLVMConstNull(LLVMTypeOf(v)), "");
}

LLVMValueRef emit_select(Emit *e, LLVMValueRef c, LLVMValueRef a, LLVMValueRef b) {
    uint32_t n = width_of(a) > width_of(b) ? width_of(a) : width_of(b);
    if (width_of(c) > n) n = width_of(c);
    return LLVMBuildSelect(e->b, wide_condition(e, c, n), emit_splat_n(e, a, n),
                           emit_splat_n(e, b, n), "");
}

LLVMValueRef emit_intrinsic(Emit *e, const char *name, LLVMTypeRef overload, LLVMValueRef *args,
                            uint32_t n) {
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    GC_ASSERT(id != 0);
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, id, &overload, overload ? 1 : 0);
    return LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, n, "");
}

LLVMValueRef emit_fma(Emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
    uint32_t n = width_of(a) > width_of(b) ? width_of(a) : width_of(b);
    if (width_of(c) > n) n = width_of(c);
    LLVMValueRef v[3] = {emit_splat_n(e, a, n), emit_splat_n(e, b, n), emit_splat_n(e, c, n)};
    return emit_intrinsic(e, "llvm.fma", LLVMTypeOf(v[0]), v, 3);
}

/* --- Memory ------------------------------------------------------------------------------- */

LLVMValueRef emit_gep(Emit *e, LLVMTypeRef elem, LLVMValueRef ptr, LLVMValueRef index) {
    if (LLVMIsAConstantInt(index) && LLVMConstIntGetSExtValue(index) == 0) return ptr;
    return LLVMBuildGEP2(e->b, elem, ptr, &index, 1, "");
}

LLVMValueRef emit_load(Emit *e, LLVMTypeRef t, LLVMValueRef ptr, uint32_t align) {
    LLVMValueRef v = LLVMBuildLoad2(e->b, t, ptr, "");
    LLVMSetAlignment(v, align);
    return v;
}

void emit_store_ptr(Emit *e, LLVMValueRef v, LLVMValueRef ptr, uint32_t align) {
    LLVMSetAlignment(LLVMBuildStore(e->b, v, ptr), align);
}

LLVMBasicBlockRef emit_block(Emit *e, const char *name) {
    return LLVMAppendBasicBlockInContext(e->ctx, e->fn, name);
}

LLVMValueRef emit_alloca(Emit *e, LLVMTypeRef t, uint32_t count, uint32_t align) {
    LLVMBasicBlockRef at = LLVMGetInsertBlock(e->b);
    LLVMPositionBuilderBefore(e->b, LLVMGetFirstInstruction(e->entry));
    LLVMValueRef v = LLVMBuildAlloca(e->b, LLVMArrayType2(t, count), "");
    LLVMSetAlignment(v, align);
    emit_at_end(e, at);
    return v;
}

LLVMValueRef emit_lanes_below(Emit *e, LLVMValueRef n) {
    LLVMValueRef lim[2] = {n, emit_i64(e, e->lanes)};
    bool fits = LLVMIsAConstantInt(n) && LLVMConstIntGetSExtValue(n) <= (int64_t)e->lanes;
    LLVMValueRef c = fits ? n : emit_intrinsic(e, "llvm.smin", e->i64, lim, 2);
    LLVMValueRef lane[64];
    for (uint32_t i = 0; i < e->lanes; i++) lane[i] = LLVMConstInt(e->i32, i, false);
    LLVMValueRef m = LLVMBuildTrunc(e->b, c, e->i32, "");
    if (e->lanes == 1) return LLVMBuildICmp(e->b, LLVMIntSGT, m, lane[0], "");
    return LLVMBuildICmp(e->b, LLVMIntSLT, LLVMConstVector(lane, e->lanes), emit_splat(e, m), "");
}

/* --- Control flow ------------------------------------------------------------------------- */

EmitLoop emit_loop(Emit *e, uint32_t n) {
    LLVMValueRef *v = ARENA_ARRAY(e->arena, LLVMValueRef, 4 * (size_t)n);
    return (EmitLoop){.n = n, .init = v, .phi = v + n, .next = v + 2 * n, .out = v + 3 * n};
}

void emit_loop_begin(Emit *e, EmitLoop *l, const char *name, LLVMValueRef lo, LLVMValueRef hi,
                     LLVMValueRef step, bool at_least_once) {
    l->pre = LLVMGetInsertBlock(e->b);
    l->body = emit_block(e, name);
    l->exit = emit_block(e, "exit");
    l->hi = hi;
    l->step = step;
    l->guard = at_least_once ? NULL : LLVMBuildICmp(e->b, LLVMIntSLT, lo, hi, "");
    if (l->guard && LLVMIsAConstantInt(l->guard) && LLVMConstIntGetZExtValue(l->guard) == 1)
        l->guard = NULL;
    if (l->guard)
        LLVMBuildCondBr(e->b, l->guard, l->body, l->exit);
    else
        LLVMBuildBr(e->b, l->body);
    LLVMPositionBuilderAtEnd(e->b, l->body);
    l->i = LLVMBuildPhi(e->b, e->i64, "i");
    LLVMAddIncoming(l->i, &lo, &l->pre, 1);
    for (uint32_t k = 0; k < l->n; k++) {
        l->phi[k] = LLVMBuildPhi(e->b, LLVMTypeOf(l->init[k]), "");
        LLVMAddIncoming(l->phi[k], &l->init[k], &l->pre, 1);
        l->next[k] = l->phi[k];
    }
    emit_push_region(e, l->pre);
}

/* v, of which LLVM's loop passes do not see what it is made from; selecting instructions drops the
 * call. */
static LLVMValueRef hide(Emit *e, LLVMValueRef v) {
    LLVMValueRef same[2] = {v, v};
    if (LLVMTypeOf(v) == e->ptr)
        return emit_intrinsic(e, "llvm.launder.invariant.group", e->ptr, same, 1);
    return LLVMTypeOf(v) == e->i64 ? emit_intrinsic(e, "llvm.expect", e->i64, same, 2) : v;
}

void emit_loop_end(Emit *e, EmitLoop *l) {
    emit_pop(e);
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(e->b);
    LLVMValueRef next = LLVMBuildAdd(e->b, l->i, l->step, "");
    if (e->steps_stay) {
        next = hide(e, next);
        for (uint32_t k = 0; k < l->n; k++)
            if (l->next[k] != l->phi[k]) l->next[k] = hide(e, l->next[k]);
    }
    LLVMValueRef more = LLVMBuildICmp(e->b, LLVMIntSLT, next, l->hi, "");
    LLVMBuildCondBr(e->b, more, l->body, l->exit);
    LLVMAddIncoming(l->i, &next, &latch, 1);
    for (uint32_t k = 0; k < l->n; k++) LLVMAddIncoming(l->phi[k], &l->next[k], &latch, 1);
    LLVMMoveBasicBlockAfter(l->exit, latch);
    LLVMPositionBuilderAtEnd(e->b, l->exit);
    for (uint32_t k = 0; k < l->n; k++) {
        l->out[k] = l->next[k];
        if (!l->guard) continue;
        l->out[k] = LLVMBuildPhi(e->b, LLVMTypeOf(l->init[k]), "");
        LLVMAddIncoming(l->out[k], &l->init[k], &l->pre, 1);
        LLVMAddIncoming(l->out[k], &l->next[k], &latch, 1);
    }
}

void emit_if_begin(Emit *e, EmitIf *s, LLVMValueRef cond) {
    s->pre = LLVMGetInsertBlock(e->b);
    s->then = emit_block(e, "then");
    s->join = emit_block(e, "join");
    LLVMBuildCondBr(e->b, cond, s->then, s->join);
    LLVMPositionBuilderAtEnd(e->b, s->then);
    EmitScope *region = emit_push_region(e, s->pre);
    if (!e->isa->early_loads) region->certain = region->depth;
}

void emit_if_end(Emit *e, EmitIf *s) {
    emit_pop(e);
    LLVMBuildBr(e->b, s->join);
    LLVMMoveBasicBlockAfter(s->join, LLVMGetInsertBlock(e->b));
    LLVMPositionBuilderAtEnd(e->b, s->join);
}
