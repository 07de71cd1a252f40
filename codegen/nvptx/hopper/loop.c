#include "codegen/nvptx/hopper/hopper.h"

HopLoop *hop_loop_new(Emit *e) {
    return ARENA_NEW(e->arena, HopLoop);
}

void hop_loop_init(HopLoop *l, HV value) {
    GC_ASSERT(l->n < HOP_MAX_PHIS);
    l->init[l->n++] = value;
}

void hop_loop_begin(Emit *e, HopLoop *l, const char *name) {
    l->pre = LLVMGetInsertBlock(e->b);
    l->head = emit_block(e, name);
    LLVMBuildBr(e->b, l->head);
    LLVMPositionBuilderAtEnd(e->b, l->head);
    for (uint32_t i = 0; i < l->n; i++) {
        l->phi[i] = LLVMBuildPhi(e->b, LLVMTypeOf(l->init[i]), "");
        LLVMAddIncoming(l->phi[i], &l->init[i], &l->pre, 1);
    }
}

void hop_loop_test(Emit *e, HopLoop *l, HV more) {
    l->body = emit_block(e, "body");
    l->exit = emit_block(e, "exit");
    LLVMBuildCondBr(e->b, more, l->body, l->exit);
    LLVMPositionBuilderAtEnd(e->b, l->body);
}

static void close_phis(Emit *e, HopLoop *l) {
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(e->b);
    for (uint32_t i = 0; i < l->n; i++) LLVMAddIncoming(l->phi[i], &l->next[i], &latch, 1);
}

void hop_loop_end(Emit *e, HopLoop *l) {
    close_phis(e, l);
    LLVMBuildBr(e->b, l->head);
    LLVMMoveBasicBlockAfter(l->exit, LLVMGetInsertBlock(e->b));
    LLVMPositionBuilderAtEnd(e->b, l->exit);
}

void hop_loop_end_while(Emit *e, HopLoop *l, HV more) {
    close_phis(e, l);
    l->exit = emit_block(e, "exit");
    LLVMBuildCondBr(e->b, more, l->head, l->exit);
    LLVMPositionBuilderAtEnd(e->b, l->exit);
}
