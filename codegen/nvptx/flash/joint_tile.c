/* Where the barriers of a kernel of all gradients of an attention are, and its tile's blocks. */
#include "codegen/nvptx/flash/joint.h"

HV joint_bar(Joint *x, JointBar bar, HV stage) {
    Emit *e = x->b.e;
    uint32_t first = x->b.at_bar + (uint32_t)bar * HOP_BARRIER_BYTES;
    HV at = stage ? hop_add(e, x->b.shared, hop_shl(e, stage, 3)) : x->b.shared;
    return hop_addi(e, at, first);
}

HV joint_stage(Joint *x, HV j) {
    return hop_andi(x->b.e, j, JOINT_STAGES - 1);
}

HV joint_parity(Joint *x, HV j) {
    return hop_andi(x->b.e, hop_shr(x->b.e, j, __builtin_ctz(JOINT_STAGES)), 1);
}

/* Behind a mask tiles meet the last block first: that all tiles meet, and the first one that
 * started is ahead. */
HV joint_block(Joint *x, HV j) {
    Emit *e = x->b.e;
    if (x->b.behind) return LLVMBuildSub(e->b, hop_addi(e, x->blocks, -1), j, "");
    return hop_add(e, x->at.first, j);
}
