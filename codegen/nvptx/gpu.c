/* Threads, blocks, shared memory and launch shapes. */
#include "codegen/nvptx/gpu.h"
#include "codegen/nvptx/ptx.h"
#include <stdio.h>
#include <string.h>

#define PTX_KERNEL 71  /* calling convention */
#define MAP_BYTES  128 /* of a tensor map in the parameters */
#define MAP_ALIGN  64
#define ZERO_ALIGN 16

static void param_attr(Emit *e, uint32_t param, const char *name, uint64_t value) {
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(e->fn, param + 1, LLVMCreateEnumAttribute(e->ctx, kind, value));
}

/* A tensor map is 128 bytes in the parameters that the hardware reads where they are. */
static void map_attrs(Emit *e, uint32_t param) {
    static const char byval[] = "byval", constant[] = "nvvm.grid_constant";
    LLVMTypeRef t = LLVMArrayType2(e->i8, MAP_BYTES);
    unsigned kind = LLVMGetEnumAttributeKindForName(byval, sizeof byval - 1);
    LLVMAddAttributeAtIndex(e->fn, param + 1, LLVMCreateTypeAttribute(e->ctx, kind, t));
    LLVMAddAttributeAtIndex(
        e->fn, param + 1, LLVMCreateStringAttribute(e->ctx, constant, sizeof constant - 1, "", 0));
    param_attr(e, param, "align", MAP_ALIGN);
}

static uint32_t first_map(const CompileJob *j) {
    return j->k->nparams + (j->zero_bytes ? 1 : 0);
}

void gpu_fn_begin(Emit *e, CompileJob *j) {
    const Kernel *k = j->k;
    uint32_t map = first_map(j), dim = map + j->maps.n, n = dim + j->dims.v.n;
    LLVMTypeRef *t = ARENA_ARRAY(e->arena, LLVMTypeRef, n);
    for (uint32_t i = 0; i < n; i++)
        t[i] = i < map ? LLVMPointerTypeInContext(e->ctx, PTX_GLOBAL) : i < dim ? e->ptr : e->i64;
    e->fn = LLVMAddFunction(e->mod, j->symbol, LLVMFunctionType(e->voidt, t, n, false));
    LLVMSetFunctionCallConv(e->fn, PTX_KERNEL);
    emit_fn_attrs(e, e->fn);
    e->bufs = ARENA_ARRAY(e->arena, LLVMValueRef, k->nparams);
    for (uint32_t i = 0; i < k->nparams; i++) {
        e->bufs[i] = LLVMGetParam(e->fn, i);
        param_attr(e, i, "align", e->isa->buffer_align);
        if (!k->params[i].written) param_attr(e, i, "readonly", 0);
    }
    for (uint32_t i = map; i < dim; i++) map_attrs(e, i);
    e->dims_ptr = NULL;
    e->first_dim = dim;
    emit_body_begin(e, k, &j->dims);
}

/* What the function does not have yet, since this emission found that it is needed, is undefined:
 * there will be another emission. */
static LLVMValueRef param_or_undef(Emit *e, uint32_t param, LLVMTypeRef t) {
    bool there = param < e->first_dim && LLVMTypeOf(LLVMGetParam(e->fn, param)) == t;
    return there ? LLVMGetParam(e->fn, param) : LLVMGetUndef(t);
}

LLVMValueRef gpu_map(Gpu *g, const CodeMap *m) {
    if (g->nmaps == g->j->maps.n)
        vec_push(g->e->arena, &g->j->maps, *m);
    else
        g->j->maps.v[g->nmaps] = *m;
    uint32_t at = first_map(g->j) + g->nmaps++;
    return param_or_undef(g->e, at, g->e->ptr);
}

/* Each time has zeroed memory of its own. */
static LLVMValueRef zeroed_of_time(Gpu *g, LLVMValueRef base) {
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    if (!g->time) return base;
    Expr each =
        expr_muli(p, expr_ceildiv(p, g->j->zero_bytes, expr_const(p, ZERO_ALIGN)), ZERO_ALIGN);
    g->j->zero_bytes = expr_muli(p, each, 1 + g->k->more);
    return emit_gep(e, e->i8, base, LLVMBuildMul(e->b, g->time, emit_expr(e, each), ""));
}

LLVMValueRef gpu_zeroed(Gpu *g, Expr bytes, bool kept) {
    g->j->zero_bytes = bytes;
    g->j->zero_kept = kept;
    uint32_t at = g->k->nparams;
    return zeroed_of_time(g, param_or_undef(g->e, at, LLVMPointerTypeInContext(g->e->ctx, 1)));
}

/* As i64. */
static LLVMValueRef special_register(Emit *e, const char *name) {
    return LLVMBuildZExt(e->b, emit_intrinsic(e, name, NULL, NULL, 0), e->i64, "");
}

static void launch_attr(Emit *e, const char *name, uint32_t value) {
    char text[16];
    int n = snprintf(text, sizeof text, "%u", value);
    LLVMAttributeRef at =
        LLVMCreateStringAttribute(e->ctx, name, (unsigned)strlen(name), text, (unsigned)n);
    LLVMAddAttributeAtIndex(e->fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, at);
}

void gpu_wait(Gpu *g) {
    if (g->e->isa->warpgroups) emit_intrinsic(g->e, "llvm.nvvm.griddepcontrol.wait", NULL, NULL, 0);
}

/* Parameters of which a kernel may read something before it waits. */
static bool has_stable(const Gpu *g) {
    for (uint32_t p = 0; p < g->k->nparams; p++)
        if (g->j->stable[p % kir_body_params(g->k)] || g->j->appended[p].rows) return true;
    return false;
}

/* Every kernel lets the next one start at once: that one waits for the end of this one, and so of
 * all in front of it. */
static void depend(Gpu *g) {
    g->j->waits_first = g->order <= GPU_WAITS_PREPARED || !has_stable(g);
    if (!g->e->isa->warpgroups || g->order == GPU_OWN_ORDER) return;
    g->j->dependent = true;
    emit_intrinsic(g->e, "llvm.nvvm.griddepcontrol.launch.dependents", NULL, NULL, 0);
    if (g->order == GPU_WAITS_FIRST) gpu_wait(g);
}

bool gpu_is_stable(const Gpu *g, KVal v) {
    const KOp *o = &g->k->ops[v];
    return o->op == K_kload && g->j->stable[o->buf];
}

bool gpu_is_computed(const Gpu *g, Expr x) {
    for (KVal v = 1; x && v < g->k->nops; v++)
        if (g->k->ops[v].op == K_kbind && expr_uses(g->e->exprs, x, g->k->ops[v].sym)) return true;
    return false;
}

bool gpu_is_request(const Gpu *g, KVal v) {
    const KOp *o = &g->k->ops[v];
    if (o->op != K_kload || !g->rows->need[v]) return false;
    if (o->in[0] && g->k->ops[o->in[0]].op != K_konst) return false;
    return !gpu_is_computed(g, o->index) && !gpu_is_computed(g, o->mask);
}

/* The buffers of this time: blocks of one time have one number along z, so that they branch
 * together. */
static void choose_buffers(Gpu *g) {
    Emit *e = g->e;
    const uint32_t n = kir_body_params(g->k), times = 1 + g->k->more;
    LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b), to = emit_block(e, "buffers");
    LLVMValueRef *phi = ARENA_ARRAY(e->arena, LLVMValueRef, n), *all = e->bufs;
    LLVMValueRef way = LLVMBuildSwitch(e->b, g->time, to, times);
    LLVMPositionBuilderAtEnd(e->b, to);
    e->bufs = phi;
    for (uint32_t i = 0; i < n; i++) {
        phi[i] = LLVMBuildPhi(e->b, LLVMTypeOf(all[i]), "");
        LLVMAddIncoming(phi[i], &all[i], &from, 1);
    }
    for (uint32_t t = 1; t < times; t++) {
        LLVMBasicBlockRef at = emit_block(e, "time");
        LLVMAddCase(way, emit_i64(e, t), at);
        LLVMPositionBuilderAtEnd(e->b, at);
        LLVMBuildBr(e->b, to);
        for (uint32_t i = 0; i < n; i++) LLVMAddIncoming(phi[i], &all[t * n + i], &at, 1);
    }
    LLVMPositionBuilderAtEnd(e->b, to);
}

/* A kernel that does the same several times has as many times the blocks, along z. */
static void split_times(Gpu *g) {
    Emit *e = g->e;
    LLVMValueRef z = special_register(e, "llvm.nvvm.read.ptx.sreg.ctaid.z");
    LLVMValueRef n = emit_expr(e, g->j->grid[2]);
    g->block[2] = LLVMBuildURem(e->b, z, n, "");
    g->time = LLVMBuildUDiv(e->b, z, n, "");
    g->j->grid[2] = expr_muli(e->exprs, g->j->grid[2], 1 + g->k->more);
    choose_buffers(g);
}

void gpu_launch(Gpu *g, uint32_t threads, Expr x, Expr y, Expr z) {
    Emit *e = g->e;
    Expr one = expr_const(e->exprs, 1);
    g->threads = threads;
    g->j->block[0] = threads;
    g->j->block[1] = g->j->block[2] = 1;
    g->j->grid[0] = x;
    g->j->grid[1] = y ? y : one;
    g->j->grid[2] = z ? z : one;
    launch_attr(e, "nvvm.maxntid", threads);
    if (g->j->min_blocks) launch_attr(e, "nvvm.minctasm", g->j->min_blocks);
    g->tid = special_register(e, "llvm.nvvm.read.ptx.sreg.tid.x");
    g->block[0] = special_register(e, "llvm.nvvm.read.ptx.sreg.ctaid.x");
    g->block[1] = y ? special_register(e, "llvm.nvvm.read.ptx.sreg.ctaid.y") : emit_i64(e, 0);
    g->block[2] = z ? special_register(e, "llvm.nvvm.read.ptx.sreg.ctaid.z") : emit_i64(e, 0);
    depend(g);
    if (g->k->more) split_times(g);
}

void gpu_barrier(Emit *e) {
    LLVMValueRef id = LLVMConstInt(e->i32, 0, false);
    emit_intrinsic(e, "llvm.nvvm.barrier.cta.sync.aligned.all", NULL, &id, 1);
}

static unsigned whole_gpu(Emit *e) {
    return LLVMGetSyncScopeID(e->ctx, "device", 6);
}

void gpu_fence(Emit *e) {
    LLVMBuildFenceSyncScope(e->b, LLVMAtomicOrderingAcquireRelease, whole_gpu(e), "");
}

LLVMValueRef gpu_count_to(Emit *e, LLVMValueRef p, LLVMValueRef last) {
    return LLVMBuildAtomicRMWSyncScope(e->b, LLVMAtomicRMWBinOpUIncWrap, p, last,
                                       LLVMAtomicOrderingMonotonic, whole_gpu(e));
}

LLVMValueRef gpu_count(Emit *e, LLVMValueRef p, uint32_t n) {
    return gpu_count_to(e, p, emit_i(e, e->i32, n - 1));
}

/* A shuffle of 32 bits: its kind, its lane operand and its last one. */
typedef struct Shuffle {
    const char *name;
    LLVMValueRef lane;
    uint32_t within;
} Shuffle;

static LLVMValueRef shuffle32(Emit *e, const Shuffle *s, LLVMValueRef v) {
    LLVMValueRef arg[4] = {LLVMConstInt(e->i32, 0xffffffff, false), v, s->lane,
                           LLVMConstInt(e->i32, s->within, false)};
    return emit_intrinsic(e, s->name, NULL, arg, 4);
}

static LLVMTypeRef bits_of(Emit *e, LLVMTypeRef t) {
    switch (LLVMGetTypeKind(t)) {
    case LLVMHalfTypeKind:
    case LLVMBFloatTypeKind: return e->i16;
    case LLVMFloatTypeKind: return e->i32;
    case LLVMDoubleTypeKind: return e->i64;
    default: return t;
    }
}

static LLVMValueRef shuffle(Emit *e, const Shuffle *s, LLVMValueRef v);

static LLVMValueRef shuffle_elements(Emit *e, const Shuffle *s, LLVMValueRef v) {
    LLVMValueRef all = LLVMGetUndef(LLVMTypeOf(v));
    for (uint32_t i = 0; i < LLVMGetVectorSize(LLVMTypeOf(v)); i++) {
        LLVMValueRef at = emit_i(e, e->i32, i), x = LLVMBuildExtractElement(e->b, v, at, "");
        all = LLVMBuildInsertElement(e->b, all, shuffle(e, s, x), at, "");
    }
    return all;
}

static LLVMValueRef shuffle(Emit *e, const Shuffle *s, LLVMValueRef v) {
    LLVMTypeRef t = LLVMTypeOf(v), bits = bits_of(e, t);
    if (LLVMGetTypeKind(t) == LLVMVectorTypeKind) return shuffle_elements(e, s, v);
    if (t != bits)
        return LLVMBuildBitCast(e->b, shuffle(e, s, LLVMBuildBitCast(e->b, v, bits, "")), t, "");
    if (t != e->i64) {
        LLVMValueRef w = t == e->i32 ? v : LLVMBuildZExt(e->b, v, e->i32, "");
        w = shuffle32(e, s, w);
        return t == e->i32 ? w : LLVMBuildTrunc(e->b, w, t, "");
    }
    LLVMValueRef lo = LLVMBuildTrunc(e->b, v, e->i32, "");
    LLVMValueRef hi = LLVMBuildLShr(e->b, v, emit_i64(e, 32), "");
    lo = LLVMBuildZExt(e->b, shuffle32(e, s, lo), e->i64, "");
    hi = shuffle32(e, s, LLVMBuildTrunc(e->b, hi, e->i32, ""));
    hi = LLVMBuildShl(e->b, LLVMBuildZExt(e->b, hi, e->i64, ""), emit_i64(e, 32), "");
    return LLVMBuildOr(e->b, lo, hi, "");
}

LLVMValueRef gpu_shuffle(Emit *e, LLVMValueRef v, uint32_t lane_xor) {
    const Shuffle s = {"llvm.nvvm.shfl.sync.bfly.i32", LLVMConstInt(e->i32, lane_xor, false), 31};
    return shuffle(e, &s, v);
}

LLVMValueRef gpu_shuffle_from(Emit *e, LLVMValueRef v, LLVMValueRef lane, uint32_t lanes) {
    const Shuffle s = {"llvm.nvvm.shfl.sync.idx.i32", lane, (32 - lanes) << 8 | 31};
    return shuffle(e, &s, v);
}

LLVMValueRef gpu_shared(Gpu *g, LLVMTypeRef elem, uint32_t n) {
    Emit *e = g->e;
    LLVMTypeRef t = LLVMArrayType2(elem, n);
    const char *name = arena_printf(e->arena, "%s_shared%u", g->j->symbol, g->nshared++);
    LLVMValueRef v = LLVMAddGlobalInAddressSpace(e->mod, t, name, PTX_SHARED);
    LLVMSetInitializer(v, LLVMGetUndef(t));
    LLVMSetLinkage(v, LLVMInternalLinkage);
    LLVMSetAlignment(v, 16);
    return v;
}

Expr gpu_points(Emit *e, const Kernel *k, uint32_t axes) {
    Expr n = expr_const(e->exprs, 1);
    for (uint32_t i = 0; i < k->naxes; i++)
        if (axes >> i & 1) n = expr_mul(e->exprs, n, k->axes[i].extent);
    return n;
}

void gpu_walk(Gpu *g, uint32_t axes, void (*inside)(Gpu *, const void *), const void *of) {
    Emit *e = g->e;
    if (!axes) {
        inside(g, of);
        return;
    }
    uint32_t axis = (uint32_t)__builtin_ctz(axes);
    EmitLoop *l = ARENA_NEW(e->arena, EmitLoop);
    LLVMValueRef n = emit_expr(e, g->k->axes[axis].extent);
    emit_loop_begin(e, l, "walk", emit_i64(e, 0), n, emit_i64(e, 1), false);
    emit_set_sym(e, g->k->axes[axis].sym, l->i);
    gpu_walk(g, axes & ~(1u << axis), inside, of);
    emit_loop_end(e, l);
}

const KAxis *gpu_axis(const Gpu *g, uint32_t axis) {
    return &g->k->axes[__builtin_ctz(axis)];
}

LLVMValueRef gpu_is_first(Gpu *g) {
    return LLVMBuildICmp(g->e->b, LLVMIntEQ, g->tid, emit_i64(g->e, 0), "");
}

LLVMValueRef gpu_add(Emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildAdd(e->b, a, b, "");
}

LLVMValueRef gpu_muli(Emit *e, LLVMValueRef a, int64_t b) {
    return LLVMBuildMul(e->b, a, emit_i64(e, b), "");
}

LLVMValueRef gpu_below(Emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildICmp(e->b, LLVMIntSLT, a, b, "");
}

LLVMValueRef gpu_smaller(Emit *e, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef v[2] = {a, b};
    return emit_intrinsic(e, "llvm.smin", e->i64, v, 2);
}

LLVMValueRef gpu_larger(Emit *e, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef v[2] = {a, b};
    return emit_intrinsic(e, "llvm.smax", e->i64, v, 2);
}

Expr gpu_kept_inside(Emit *e, const char *name, Expr extent, LLVMValueRef at) {
    LLVMValueRef last = LLVMBuildSub(e->b, emit_expr(e, extent), emit_i64(e, 1), "");
    return emit_position(e, name, extent, gpu_smaller(e, at, last));
}

void gpu_decode(Emit *e, const Kernel *k, uint32_t axes, Expr flat) {
    ExprPool *p = e->exprs;
    Expr rest = flat;
    for (uint32_t i = k->naxes; i-- > 0;) {
        if (!(axes >> i & 1)) continue;
        Expr n = k->axes[i].extent;
        bool outermost = !(axes & ((1u << i) - 1));
        emit_bind(e, k->axes[i].sym, outermost ? rest : expr_mod(p, rest, n));
        rest = expr_div(p, rest, n);
    }
}

void gpu_batch_begin(Gpu *g, uint32_t threads, Expr x, uint32_t axes) {
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    Expr n = gpu_points(e, g->k, axes), most = expr_const(p, GPU_GRID_Y);
    int64_t lo, hi;
    expr_range(p, n, &lo, &hi);
    g->guarded = hi > GPU_GRID_Y;
    if (g->guarded)
        gpu_launch(g, threads, x, expr_min(p, n, most), expr_ceildiv(p, n, most));
    else
        gpu_launch(g, threads, x, n, 0);
    LLVMValueRef at = g->block[1];
    if (g->guarded) {
        LLVMValueRef layers = LLVMBuildMul(e->b, g->block[2], emit_i64(e, GPU_GRID_Y), "");
        at = LLVMBuildAdd(e->b, at, layers, "");
        LLVMValueRef in = LLVMBuildICmp(e->b, LLVMIntSLT, at, emit_expr(e, n), "");
        emit_if_begin(e, &g->in_batch, in);
    }
    gpu_decode(e, g->k, axes, emit_new_sym(e, "batch", INT32_MAX, at));
}

void gpu_batch_end(Gpu *g) {
    if (g->guarded) emit_if_end(g->e, &g->in_batch);
}

int gpu_contiguity(Emit *e, const Kernel *k, const uint32_t *dom, uint32_t inner, uint32_t axis) {
    int score = 0;
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        Expr coef, rest;
        if ((o->op != K_kload && o->op != K_kstore) || !(dom[v] >> axis & 1)) continue;
        if (!(dom[v] & inner)) continue;
        if (!expr_affine(e->exprs, o->index, k->axes[axis].sym, &coef, &rest))
            score--;
        else if (expr_is_value(e->exprs, coef, 1))
            score++;
        else if (!expr_is_value(e->exprs, coef, 0))
            score--;
    }
    return score;
}

int64_t gpu_hint(Emit *e, Expr x) {
    int64_t n = expr_hint(e->exprs, x);
    return n < 1 ? 1 : n;
}
