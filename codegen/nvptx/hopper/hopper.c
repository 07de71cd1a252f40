#include "codegen/nvptx/hopper/hopper.h"
#include "codegen/nvptx/ptx.h"
#include <string.h>

#define SHARED_ALIGN 1024

HV hop_i(Emit *e, int64_t v) {
    return LLVMConstInt(e->i32, (unsigned long long)v, true);
}

HV hop_add(Emit *e, HV a, HV b) {
    return LLVMBuildAdd(e->b, a, b, "");
}

HV hop_addi(Emit *e, HV a, int64_t b) {
    return b ? LLVMBuildAdd(e->b, a, hop_i(e, b), "") : a;
}

HV hop_muli(Emit *e, HV a, int64_t b) {
    return LLVMBuildMul(e->b, a, hop_i(e, b), "");
}

HV hop_shl(Emit *e, HV a, int b) {
    return LLVMBuildShl(e->b, a, hop_i(e, b), "");
}

HV hop_shr(Emit *e, HV a, int b) {
    return LLVMBuildLShr(e->b, a, hop_i(e, b), "");
}

HV hop_andi(Emit *e, HV a, int64_t b) {
    return LLVMBuildAnd(e->b, a, hop_i(e, b), "");
}

HV hop_is(Emit *e, HV a, int64_t b) {
    return LLVMBuildICmp(e->b, LLVMIntEQ, a, hop_i(e, b), "");
}

HV hop_below(Emit *e, HV a, HV b) {
    return LLVMBuildICmp(e->b, LLVMIntULT, a, b, "");
}

HV hop_special(Emit *e, const char *name) {
    return emit_intrinsic(e, name, NULL, NULL, 0);
}

/* Convergent: which threads execute it together must not change. */
HV hop_asm(Emit *e, LLVMTypeRef result, const char *text, const char *constraints, const HV *args,
           uint32_t n) {
    LLVMTypeRef *t = ARENA_ARRAY(e->arena, LLVMTypeRef, n + 1);
    HV *v = ARENA_ARRAY(e->arena, HV, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        v[i] = args[i];
        t[i] = LLVMTypeOf(args[i]);
    }
    LLVMTypeRef ft = LLVMFunctionType(result, t, n, false);
    HV code = LLVMGetInlineAsm(ft, text, strlen(text), constraints, strlen(constraints), true,
                               false, LLVMInlineAsmDialectATT, false);
    HV call = LLVMBuildCall2(e->b, ft, code, v, n, "");
    static const char convergent[] = "convergent";
    unsigned kind = LLVMGetEnumAttributeKindForName(convergent, sizeof convergent - 1);
    LLVMAddCallSiteAttribute(call, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                             LLVMCreateEnumAttribute(e->ctx, kind, 0));
    return call;
}

static void ptx0(Emit *e, const char *text) {
    hop_asm(e, e->voidt, text, "~{memory}", NULL, 0);
}

HV hop_shared(Gpu *g) {
    Emit *e = g->e;
    static const char name[] = "hop_shared";
    HV v = LLVMGetNamedGlobal(e->mod, name);
    if (!v) {
        v = LLVMAddGlobalInAddressSpace(e->mod, LLVMArrayType2(e->i8, 0), name, PTX_SHARED);
        LLVMSetLinkage(v, LLVMExternalLinkage);
        LLVMSetAlignment(v, SHARED_ALIGN);
    }
    return LLVMBuildPtrToInt(e->b, v, e->i32, "");
}

HV hop_pointer(Emit *e, HV at) {
    return LLVMBuildIntToPtr(e->b, at, LLVMPointerTypeInContext(e->ctx, PTX_SHARED), "");
}

HopIf hop_if(Emit *e, HV cond) {
    HopIf i = {emit_block(e, "then"), emit_block(e, "join")};
    LLVMBuildCondBr(e->b, cond, i.then, i.join);
    LLVMPositionBuilderAtEnd(e->b, i.then);
    return i;
}

void hop_end(Emit *e, HopIf i) {
    LLVMBuildBr(e->b, i.join);
    LLVMMoveBasicBlockAfter(i.join, LLVMGetInsertBlock(e->b));
    LLVMPositionBuilderAtEnd(e->b, i.join);
}

HopRoles hop_roles(Emit *e, HV first) {
    LLVMBasicBlockRef mine = emit_block(e, "first_role");
    HopRoles r = {emit_block(e, "next_role"), emit_block(e, "end")};
    LLVMBuildCondBr(e->b, first, mine, r.next);
    LLVMPositionBuilderAtEnd(e->b, mine);
    return r;
}

void hop_role_next(Emit *e, HopRoles r) {
    LLVMBuildBr(e->b, r.end);
    LLVMPositionBuilderAtEnd(e->b, r.next);
}

void hop_roles_end(Emit *e, HopRoles r) {
    LLVMBuildBr(e->b, r.end);
    LLVMPositionBuilderAtEnd(e->b, r.end);
}

HV hop_elect(Emit *e) {
    HV all = hop_i(e, -1);
    HV r = emit_intrinsic(e, "llvm.nvvm.elect.sync", NULL, &all, 1);
    return LLVMBuildExtractValue(e->b, r, 1, "");
}

void hop_registers(Emit *e, uint32_t n, bool more) {
    HV v = hop_i(e, n);
    emit_intrinsic(e,
                   more ? "llvm.nvvm.setmaxnreg.inc.sync.aligned.u32"
                        : "llvm.nvvm.setmaxnreg.dec.sync.aligned.u32",
                   NULL, &v, 1);
}

void hop_sync(Emit *e, HV id, uint32_t threads) {
    HV v[2] = {id, hop_i(e, threads)};
    emit_intrinsic(e, "llvm.nvvm.barrier.cta.sync.aligned.count", NULL, v, 2);
}

void hop_arrive(Emit *e, HV id, uint32_t threads) {
    HV v[2] = {id, hop_i(e, threads)};
    emit_intrinsic(e, "llvm.nvvm.barrier.cta.arrive.aligned.count", NULL, v, 2);
}

void hop_warp_sync(Emit *e) {
    ptx0(e, "bar.warp.sync 0xffffffff;");
}

HV hop_warp_first(Emit *e, HV v) {
    return hop_asm(e, e->i32, "shfl.sync.idx.b32 $0, $1, 0, 31, 0xffffffff;", "=r,r", &v, 1);
}

HV hop_warp_all(Emit *e, HV is) {
    HV word = LLVMBuildZExt(e->b, is, e->i32, "");
    return hop_asm(e, e->i32,
                   "{ .reg .pred p; setp.ne.u32 p, $1, 0; vote.sync.all.pred p, p, 0xffffffff; "
                   "selp.u32 $0, 1, 0, p; }",
                   "=r,r", &word, 1);
}

void hop_fence_async(Emit *e) {
    ptx0(e, "fence.proxy.async.shared::cta;");
}

void hop_fence_global(Emit *e) {
    ptx0(e, "fence.proxy.async.global;");
}

void hop_depend_wait(Emit *e) {
    emit_intrinsic(e, "llvm.nvvm.griddepcontrol.wait", NULL, NULL, 0);
}

void hop_depend_launch(Emit *e) {
    emit_intrinsic(e, "llvm.nvvm.griddepcontrol.launch.dependents", NULL, NULL, 0);
}

void hop_barrier_init(Emit *e, HV bar, uint32_t count) {
    HV v[2] = {bar, hop_i(e, count)};
    hop_asm(e, e->voidt, "mbarrier.init.shared::cta.b64 [$0], $1;", "r,r,~{memory}", v, 2);
}

void hop_barrier_init_fence(Emit *e) {
    ptx0(e, "fence.mbarrier_init.release.cluster;");
}

void hop_barrier_expect(Emit *e, HV bar, HV bytes) {
    HV v[2] = {bar, bytes};
    hop_asm(e, e->voidt, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "r,r,~{memory}",
            v, 2);
}

void hop_barrier_arrive(Emit *e, HV bar, HV when) {
    HV v[2] = {bar, when};
    hop_asm(e, e->voidt, "@$1 mbarrier.arrive.release.cta.shared::cta.b64 _, [$0];",
            "r,b,~{memory}", v, 2);
}

void hop_barrier_wait(Emit *e, HV bar, HV parity) {
    HV v[2] = {hop_pointer(e, bar), parity};
    LLVMBasicBlockRef spin = emit_block(e, "wait"), done = emit_block(e, "arrived");
    LLVMBuildBr(e->b, spin);
    LLVMPositionBuilderAtEnd(e->b, spin);
    HV over =
        emit_intrinsic(e, "llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta", NULL, v, 2);
    LLVMBuildCondBr(e->b, over, done, spin);
    LLVMPositionBuilderAtEnd(e->b, done);
}

HV hop_cluster_rank(Emit *e) {
    return hop_special(e, "llvm.nvvm.read.ptx.sreg.cluster.ctarank");
}

void hop_cluster_sync(Emit *e) {
    ptx0(e, "barrier.cluster.arrive.aligned;");
    ptx0(e, "barrier.cluster.wait.aligned;");
}

void hop_cluster_arrive(Emit *e) {
    ptx0(e, "barrier.cluster.arrive.relaxed.aligned;");
}

void hop_cluster_wait(Emit *e) {
    ptx0(e, "barrier.cluster.wait.aligned;");
}

void hop_cluster_store(Emit *e, HV shared, HV rank, HV x) {
    HV v[3] = {shared, rank, x};
    hop_asm(e, e->voidt,
            "{ .reg .b32 at; mapa.shared::cluster.u32 at, $0, $1; "
            "st.shared::cluster.f32 [at], $2; }",
            "r,r,f,~{memory}", v, 3);
}

void hop_cluster_send(Emit *e, HV shared, HV bar, HV rank, HV x) {
    HV v[4] = {shared, bar, rank, x};
    hop_asm(e, e->voidt,
            "{ .reg .b32 at, bar; mapa.shared::cluster.u32 at, $0, $2; "
            "mapa.shared::cluster.u32 bar, $1, $2; "
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [at], $3, [bar]; }",
            "r,r,r,f,~{memory}", v, 4);
}

void hop_store_in(Emit *e, HV rank, HV at, const HV *v) {
    HV arg[6] = {at, rank, v[0], v[1], v[2], v[3]};
    hop_asm(e, e->voidt,
            "{ .reg .b32 at; mapa.shared::cluster.u32 at, $0, $1; "
            "st.shared::cluster.v4.f32 [at], {$2, $3, $4, $5}; }",
            "r,r,f,f,f,f,~{memory}", arg, 6);
}

void hop_load_four(Emit *e, HV at, HV *v) {
    LLVMTypeRef t[4] = {e->f32, e->f32, e->f32, e->f32};
    LLVMTypeRef out = LLVMStructTypeInContext(e->ctx, t, 4, false);
    HV r = hop_asm(e, out, "ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];", "=f,=f,=f,=f,r,~{memory}",
                   &at, 1);
    for (uint32_t i = 0; i < 4; i++) v[i] = LLVMBuildExtractValue(e->b, r, i, "");
}

void hop_store_four(Emit *e, HV at, const HV *v) {
    HV args[5] = {at, v[0], v[1], v[2], v[3]};
    hop_asm(e, e->voidt, "st.shared.v4.b32 [$0], {$1, $2, $3, $4};", "r,r,r,r,r,~{memory}", args,
            5);
}

/* Without .release: with it, ptxas makes all memory of the device wait. What was read here was read
 * by instructions that are over. */
void hop_barrier_arrive_at(Emit *e, HV bar, HV rank, HV when) {
    HV v[3] = {bar, rank, when};
    hop_asm(e, e->voidt,
            "{ .reg .b32 at; mapa.shared::cluster.u32 at, $0, $1; "
            "@$2 mbarrier.arrive.shared::cluster.b64 _, [at]; }",
            "r,r,b,~{memory}", v, 3);
}
