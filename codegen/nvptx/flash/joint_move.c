/* Movers: thread blocks that store the complete sums of queries, and leave zeros where they were.
 *
 * One thread has all blocks of a mover brought to shared memory at once, when the head's sums are
 * complete. Each of two warpgroups takes its part of every block, 64 x 64 numbers as the matrix
 * units left them. Rows of the multiplied type, or of f32, are put together where the part was, and
 * go from there by the copy engine; else each thread stores what it has. */
#include "codegen/nvptx/flash/joint.h"

enum { REGS = 4 * JOINT_FOURS, HALVES = 2 };
enum { AT_ZEROS = JOINT_MOVED * JOINT_BLOCK, AT_BARS = AT_ZEROS + JOINT_PART };

typedef struct Mover {
    Joint *x;
    Emit *e;
    HV member;        /* of the warpgroups, from 0 */
    HV thread, first; /* of the warpgroup; is it its first */
    HV row, col;      /* of the thread, in a block */
    HV block, blocks; /* first one, and how many */
    HV put, swizzle;
} Mover;

uint32_t joint_move_bytes(void) {
    return AT_BARS + JOINT_MOVED * HOP_BARRIER_BYTES;
}

static HV bar_at(Mover *c, HV j) {
    return hop_addi(c->e, hop_add(c->e, c->x->b.shared, hop_shl(c->e, j, 3)), AT_BARS);
}

/* --- Fetching --------------------------------------------------------------------------------- */

static void fetch(Mover *c) {
    Emit *e = c->e;
    Joint *x = c->x;
    joint_await(x, joint_count(x, JOINT_done, x->at.head),
                hop_muli(e, x->b.row_tiles, JOINT_GROUPS));
    hop_fence_global(e); /* plain additions, then the copy engine */
    for (uint32_t i = 0; i < JOINT_MOVED; i++) {
        HV j = hop_i(e, i), bar = bar_at(c, j), size = hop_i(e, JOINT_BLOCK);
        HopIf is = hop_if(e, LLVMBuildICmp(e->b, LLVMIntULT, j, c->blocks, ""));
        hop_barrier_expect(e, bar, size);
        hop_bulk_load(e, hop_addi(e, x->b.shared, i * JOINT_BLOCK),
                      joint_part(x, hop_add(e, c->block, j), hop_i(e, 0)), size, bar);
        hop_end(e, is);
    }
}

static void put_zeros(Mover *c) {
    Emit *e = c->e;
    HV at = hop_add(e, c->x->b.shared, hop_shl(e, c->thread, 4));
    HV none[4] = {hop_i(e, 0), hop_i(e, 0), hop_i(e, 0), hop_i(e, 0)};
    for (uint32_t i = 0; i < JOINT_FOURS; i++)
        hop_store_four(e, hop_addi(e, at, AT_ZEROS + i * JOINT_FOUR_STEP), none);
    hop_fence_async(e);
}

/* Barriers and zeros are there for all. */
static void prepare(Mover *c) {
    Emit *e = c->e;
    HopIf group = hop_if(e, hop_is(e, c->x->b.group, 0));
    HopIf one = hop_if(e, c->first);
    for (uint32_t i = 0; i < JOINT_MOVED; i++) hop_barrier_init(e, bar_at(c, hop_i(e, i)), 1);
    hop_barrier_init_fence(e);
    hop_end(e, one);
    put_zeros(c);
    hop_end(e, group);
    gpu_barrier(e);
}

/* --- Storing ---------------------------------------------------------------------------------- */

static bool shares_rows(const Mover *c) {
    return c->x->t->block == 2 * HOP_SLAB_ROWS;
}

/* First row and column of the warpgroup's part: a block of 64 queries is shared by columns, one of
 * 128 by rows. */
static HV part_row(Mover *c, HV m) {
    HV row = hop_muli(c->e, m, c->x->t->block);
    return shares_rows(c) ? hop_add(c->e, row, hop_muli(c->e, c->member, HOP_SLAB_ROWS)) : row;
}

static HV part_col(Mover *c) {
    return shares_rows(c) ? hop_i(c->e, 0) : hop_muli(c->e, c->member, FLASH_PANEL);
}

static void meet(Mover *c) {
    hop_sync(c->e, hop_addi(c->e, c->member, JOINT_NAMED_GROUP), HOP_WARPGROUP);
}

/* Rows are of f32, in two boxes. */
static bool is_wide(const Mover *c) {
    return c->x->p->out[JOINT_queries].t == DT_f32;
}

/* In place of the part, which all threads have read. */
static void put_rows(Mover *c, HV part, const HV *v) {
    Emit *e = c->e;
    HV p[REGS / 2], at = hop_add(e, part, c->put);
    bool wide = is_wide(c);
    for (uint32_t i = 0; !wide && i < REGS / 2; i++)
        p[i] = back_pack(e, c->x->p->b.type, v[2 * i], v[2 * i + 1]);
    meet(c);
    if (wide) joint_put_boxes(c->x, at, c->swizzle, v);
    for (uint32_t k = 0; !wide && k < REGS / 8; k++) joint_put(c->x, at, c->swizzle, k, p + 4 * k);
    hop_fence_async(e);
    meet(c);
}

static void send_rows(Mover *c, HV part, HV m) {
    Emit *e = c->e;
    Joint *x = c->x;
    const HopMatrix *out = &x->p->out[JOINT_queries];
    HV at[2 + HOP_MAX_BATCH];
    hop_batch_at(x->b.g, x->b.extent, out, x->at.head, at + 2);
    at[1] = part_row(c, m);
    for (uint32_t i = 0; i < (is_wide(c) ? 2 : 1); i++) {
        at[0] = hop_addi(e, part_col(c), i * JOINT_BOX_COLS);
        hop_tma_store(e, x->map_out[JOINT_queries], hop_addi(e, part, i * JOINT_BOX), at,
                      2 + out->nbatch);
    }
}

/* Four numbers of the thread: two rows, two columns. */
static void store_four(Mover *c, HV m, HV col, const HV *v) {
    Emit *e = c->e;
    Joint *x = c->x;
    BackResult r = x->p->result[JOINT_queries];
    r.registers = 4;
    HV first = hop_add(e, part_row(c, m), c->row);
    for (uint32_t h = 0; h < HALVES; h++) {
        EmitIf is;
        HV row = hop_addi(e, first, 8 * h);
        emit_if_begin(e, &is, LLVMBuildICmp(e->b, LLVMIntULT, row, x->b.ncolumns, ""));
        emit_bind(e, gpu_axis(x->b.g, x->b.a->j)->sym,
                  flash_position(e, "j", x->p->b.columns, row, false));
        back_store(x->b.g, &r, col, v, h);
        emit_if_end(e, &is);
    }
}

/* --- Blocks ----------------------------------------------------------------------------------- */

static void read_four(Mover *c, HV at, HV *v) {
    Emit *e = c->e;
    hop_load_four(e, at, v);
    for (uint32_t k = 0; k < 4; k++) v[k] = back_scaled(e, v[k], c->x->p->after[JOINT_queries]);
}

/* By a loop: there are no registers for all positions at once. */
static void store_part(Mover *c, HV part, HV m) {
    Emit *e = c->e;
    HopLoop *l = hop_loop_new(e);
    HV v[4];
    hop_loop_init(l, hop_i(e, 0));
    hop_loop_begin(e, l, "fours");
    hop_loop_test(e, l, LLVMBuildICmp(e->b, LLVMIntULT, l->phi[0], hop_i(e, JOINT_FOURS), ""));
    emit_push_region(e, l->pre);
    read_four(c, hop_add(e, part, hop_muli(e, l->phi[0], JOINT_FOUR_STEP)), v);
    HV col = hop_add(e, hop_add(e, part_col(c), c->col), hop_shl(e, l->phi[0], 3));
    store_four(c, m, col, v);
    emit_pop(e);
    l->next[0] = hop_addi(e, l->phi[0], 1);
    hop_loop_end(e, l);
}

static void move_block(Mover *c, HV j) {
    Emit *e = c->e;
    Joint *x = c->x;
    bool sent = x->p->sent[JOINT_queries];
    HV v[REGS], m = hop_add(e, c->block, j);
    HV part = hop_add(e, hop_muli(e, j, JOINT_BLOCK), hop_muli(e, c->member, JOINT_PART));
    part = hop_add(e, x->b.shared, part);
    HV own = hop_add(e, part, hop_shl(e, c->thread, 4));
    hop_barrier_wait(e, bar_at(c, j), hop_i(e, 0));
    for (uint32_t i = 0; sent && i < JOINT_FOURS; i++)
        read_four(c, hop_addi(e, own, i * JOINT_FOUR_STEP), v + 4 * i);
    if (sent)
        put_rows(c, part, v);
    else
        store_part(c, own, m);
    HopIf one = hop_if(e, c->first);
    hop_bulk_store(e, joint_part(x, m, c->member), hop_addi(e, x->b.shared, AT_ZEROS),
                   hop_i(e, JOINT_PART));
    if (sent) send_rows(c, part, m);
    hop_tma_commit(e);
    hop_end(e, one);
}

static void move_blocks(Mover *c) {
    Emit *e = c->e;
    HopLoop *l = hop_loop_new(e);
    hop_loop_init(l, hop_i(e, 0));
    hop_loop_begin(e, l, "move");
    hop_loop_test(e, l, LLVMBuildICmp(e->b, LLVMIntULT, l->phi[0], c->blocks, ""));
    emit_push_region(e, l->pre);
    move_block(c, l->phi[0]);
    emit_pop(e);
    l->next[0] = hop_addi(e, l->phi[0], 1);
    hop_loop_end(e, l);
}

/* What nobody waits for any more becomes zero again: the last one of a head leaves so the head's
 * first counter, and the second one of the head that had the place before, or the own one where no
 * head follows. */
static void reset(Joint *x) {
    Emit *e = x->b.e;
    HV zero = hop_i(e, 0), front = LLVMBuildSub(e->b, x->at.head, x->places, "");
    LLVMBuildStore(e->b, zero, joint_count(x, JOINT_done, x->at.head));
    HopIf is = hop_if(e, LLVMBuildICmp(e->b, LLVMIntUGE, x->at.head, x->places, ""));
    LLVMBuildStore(e->b, zero, joint_count(x, JOINT_gone, front));
    hop_end(e, is);
    HV next = hop_add(e, x->at.head, x->places);
    is = hop_if(e, LLVMBuildICmp(e->b, LLVMIntUGE, next, x->b.heads, ""));
    LLVMBuildStore(e->b, zero, joint_count(x, JOINT_gone, x->at.head));
    hop_end(e, is);
}

static void leave(Mover *c) {
    Emit *e = c->e;
    Joint *x = c->x;
    HV gone = joint_count(x, JOINT_gone, x->at.head);
    HV all = hop_muli(e, x->movers, JOINT_GROUPS);
    HopIf one = hop_if(e, c->first);
    hop_tma_wait(e);
    HV before = hop_asm(e, e->i32, "atom.acq_rel.gpu.global.add.u32 $0, [$1], 1;", "=r,l,~{memory}",
                        &gone, 1);
    HopIf last = hop_if(e, LLVMBuildICmp(e->b, LLVMIntEQ, hop_addi(e, before, 1), all, ""));
    reset(x);
    hop_end(e, last);
    hop_end(e, one);
}

/* --- The mover -------------------------------------------------------------------------------- */

static void find_places(Mover *c) {
    Emit *e = c->e;
    Joint *x = c->x;
    c->member = hop_addi(e, x->b.group, -1);
    c->thread = hop_andi(e, x->b.tid, HOP_WARPGROUP - 1);
    c->first = hop_is(e, c->thread, 0);
    c->row = hop_add(e, hop_shl(e, hop_andi(e, x->b.warp, 3), 4), hop_shr(e, x->b.lane, 2));
    c->col = hop_shl(e, hop_andi(e, x->b.lane, 3), 1);
    c->put = (is_wide(c) ? joint_box_place : joint_put_place)(x, &c->swizzle);
    c->block = hop_muli(e, x->number, JOINT_MOVED);
    HV left[2] = {LLVMBuildSub(e->b, x->blocks, c->block, ""), hop_i(e, JOINT_MOVED)};
    c->blocks = emit_intrinsic(e, "llvm.umin", e->i32, left, 2);
}

void joint_move(Joint *x) {
    Emit *e = x->b.e;
    Mover c = {.x = x, .e = e};
    EmitScope *outer = e->scope;
    e->scope = NULL;
    emit_push(e);
    find_places(&c);
    prepare(&c);
    HopRoles fetcher = hop_roles(e, hop_is(e, x->b.group, 0));
    hop_registers(e, x->t->regs_load, false);
    HopIf one = hop_if(e, c.first);
    fetch(&c);
    hop_end(e, one);
    hop_role_next(e, fetcher);
    hop_registers(e, x->t->regs_math, true);
    if (x->b.a->batch)
        gpu_decode(e, x->b.g->k, x->b.a->batch,
                   flash_position(e, "head", x->p->b.heads, x->at.head, false));
    move_blocks(&c);
    leave(&c);
    hop_roles_end(e, fetcher);
    emit_pop(e);
    e->scope = outer;
}
