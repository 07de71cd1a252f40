/* Warpgroup matrix products: accumulators are scalars tied from one product to the next, so that
 * they stay in their registers; the first product of a tile ignores what they hold. */
#include "codegen/nvptx/hopper/hopper.h"

/* Bits 62-63 of a descriptor: 128-byte swizzle; bits 32-45: bytes between groups of 8 rows / 16. */
#define SWIZZLE_128 ((uint64_t)1 << 62)
#define ROW_GROUP   ((uint64_t)(1024 >> 4) << 32)
/* The address field, and what a block's rank in its cluster must be kept out of. */
#define ADDRESS 0x3fff

#define SIGNS ", 1, 1" /* of A and B */

static const struct {
    const char *name;
    uint32_t k;        /* per instruction: 32 bytes */
    bool flags;        /* takes the transposition flags */
    const char *signs; /* where they can be changed */
} types[] = {[WGMMA_bf16] = {"f32.bf16.bf16", 16, true, SIGNS},
             [WGMMA_f16] = {"f32.f16.f16", 16, true, SIGNS},
             [WGMMA_tf32] = {"f32.tf32.tf32", 8, false, SIGNS},
             [WGMMA_e4m3] = {"f32.e4m3.e4m3", 32, false, SIGNS},
             [WGMMA_e5m2] = {"f32.e5m2.e5m2", 32, false, SIGNS},
             [WGMMA_s8] = {"s32.s8.s8", 32, false, ""},
             [WGMMA_s8_u8] = {"s32.s8.u8", 32, false, ""},
             [WGMMA_u8_s8] = {"s32.u8.s8", 32, false, ""},
             [WGMMA_u8] = {"s32.u8.u8", 32, false, ""}};

LLVMTypeRef wgmma_sum_type(const Emit *e, WgmmaType t) {
    return *types[t].signs ? e->f32 : e->i32;
}

uint32_t wgmma_acc(const WgmmaShape *s) {
    return s->n / 2 * s->blocks * s->sums;
}

HV wgmma_descriptor(Emit *e, const WgmmaOperand *o, HV shared) {
    HV at = hop_andi(e, hop_shr(e, shared, 4), ADDRESS);
    uint64_t high = SWIZZLE_128 | ROW_GROUP;
    if (o->across) high |= (uint64_t)(o->panel >> 4) << 16;
    return LLVMBuildOr(e->b, LLVMBuildZExt(e->b, at, e->i64, ""), LLVMConstInt(e->i64, high, false),
                       "");
}

HV wgmma_step(Emit *e, const WgmmaOperand *o, HV desc, uint32_t i) {
    uint32_t at = o->across ? i * 16 * 128 : i / 4 * o->panel + i % 4 * 32;
    return at ? LLVMBuildAdd(e->b, desc, LLVMConstInt(e->i64, at >> 4, false), "") : desc;
}

/* Operands in the text: sums, their tied twins, then per step the descriptors of A's blocks and of
 * the Bs, then the predicates of the first step and of the others. */
static const char *block_text(Emit *e, const WgmmaShape *s) {
    uint32_t n = wgmma_acc(s), each = s->n / 2, per = s->blocks + s->sums;
    uint32_t first = 2 * n, last = first + s->ksteps * per;
    StrBuf t;
    sb_init(&t, e->arena);
    for (uint32_t k = 0; k < s->ksteps; k++)
        for (uint32_t i = 0; i < s->blocks * s->sums; i++) {
            uint32_t a = first + k * per + i % s->blocks;
            uint32_t b = first + k * per + s->blocks + i / s->blocks;
            sb_printf(&t, "wgmma.mma_async.sync.aligned.m64n%uk%u.%s {", s->n, types[s->type].k,
                      types[s->type].name);
            for (uint32_t r = 0; r < each; r++) sb_printf(&t, "%s$%u", r ? ", " : "", i * each + r);
            sb_printf(&t, "}, $%u, $%u, $%u%s", a, b, last + (k > 0), types[s->type].signs);
            if (types[s->type].flags) sb_printf(&t, ", %u, %u", s->a.across, s->b.across);
            sb_put(&t, ";\n");
        }
    return sb_str(&t);
}

/* "=f", of integers "=r", x n, "0".."n-1", then `rest`. */
static const char *tied(Emit *e, const HV *acc, uint32_t n, const char *rest) {
    const char *file = LLVMTypeOf(acc[0]) == e->i32 ? "=r" : "=f";
    StrBuf s;
    sb_init(&s, e->arena);
    for (uint32_t i = 0; i < n; i++) sb_printf(&s, "%s%s", i ? "," : "", file);
    for (uint32_t i = 0; i < n; i++) sb_printf(&s, ",%u", i);
    sb_put(&s, rest);
    return sb_str(&s);
}

static LLVMTypeRef alike(Emit *e, const HV *acc, uint32_t n) {
    LLVMTypeRef *t = ARENA_ARRAY(e->arena, LLVMTypeRef, n);
    for (uint32_t i = 0; i < n; i++) t[i] = LLVMTypeOf(acc[0]);
    return LLVMStructTypeInContext(e->ctx, t, n, false);
}

static void unpack(Emit *e, HV r, HV *acc, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) acc[i] = LLVMBuildExtractValue(e->b, r, i, "");
}

static void fence(Emit *e) {
    hop_asm(e, e->voidt, "wgmma.fence.sync.aligned;", "~{memory}", NULL, 0);
}

void wgmma_block(Emit *e, const WgmmaShape *s, HV *acc, const HV *a, const HV *b, HV more) {
    uint32_t n = wgmma_acc(s), args = 0;
    HV *v = ARENA_ARRAY(e->arena, HV, n + s->ksteps * (s->blocks + s->sums) + 2);
    StrBuf rest;
    sb_init(&rest, e->arena);
    for (; args < n; args++) v[args] = acc[args];
    for (uint32_t k = 0; k < s->ksteps; k++) {
        for (uint32_t i = 0; i < s->blocks; i++) v[args++] = wgmma_step(e, &s->a, a[i], k);
        for (uint32_t i = 0; i < s->sums; i++) v[args++] = wgmma_step(e, &s->b, b[i], k);
    }
    for (uint32_t i = n; i < args; i++) sb_put(&rest, ",l");
    sb_put(&rest, ",b,b,~{memory}");
    v[args++] = more;
    v[args++] = LLVMConstInt(e->i1, 1, false);
    fence(e);
    unpack(e,
           hop_asm(e, alike(e, acc, n), block_text(e, s), tied(e, acc, n, sb_str(&rest)), v, args),
           acc, n);
    hop_asm(e, e->voidt, "wgmma.commit_group.sync.aligned;", "~{memory}", NULL, 0);
}

/* Operands in the text: sums, their twins, A's registers, B's descriptors, the two predicates. */
static const char *held_text(Emit *e, const WgmmaShape *s) {
    uint32_t n = s->n / 2, a = 2 * n, b = a + 4 * s->ksteps, more = b + s->ksteps;
    StrBuf t;
    sb_init(&t, e->arena);
    for (uint32_t k = 0; k < s->ksteps; k++, a += 4) {
        sb_printf(&t, "wgmma.mma_async.sync.aligned.m64n%uk%u.%s {", s->n, types[s->type].k,
                  types[s->type].name);
        for (uint32_t r = 0; r < n; r++) sb_printf(&t, "%s$%u", r ? ", " : "", r);
        sb_printf(&t, "}, {$%u, $%u, $%u, $%u}, $%u, $%u%s", a, a + 1, a + 2, a + 3, b + k,
                  more + (k > 0), types[s->type].signs);
        if (types[s->type].flags) sb_printf(&t, ", %u", s->b.across);
        sb_put(&t, ";\n");
    }
    return sb_str(&t);
}

void wgmma_block_held(Emit *e, const WgmmaShape *s, HV *acc, const HV *a, HV b, HV more) {
    uint32_t n = s->n / 2, args = 0;
    HV *v = ARENA_ARRAY(e->arena, HV, n + 5 * s->ksteps + 2);
    StrBuf rest;
    sb_init(&rest, e->arena);
    for (; args < n; args++) v[args] = acc[args];
    for (uint32_t i = 0; i < 4 * s->ksteps; i++) v[args++] = a[i];
    for (uint32_t i = 0; i < 4 * s->ksteps; i++) sb_put(&rest, ",r");
    for (uint32_t k = 0; k < s->ksteps; k++) v[args++] = wgmma_step(e, &s->b, b, k);
    for (uint32_t k = 0; k < s->ksteps; k++) sb_put(&rest, ",l");
    sb_put(&rest, ",b,b,~{memory}");
    v[args++] = more;
    v[args++] = LLVMConstInt(e->i1, 1, false);
    fence(e);
    unpack(e,
           hop_asm(e, alike(e, acc, n), held_text(e, s), tied(e, acc, n, sb_str(&rest)), v, args),
           acc, n);
    hop_asm(e, e->voidt, "wgmma.commit_group.sync.aligned;", "~{memory}", NULL, 0);
}

void wgmma_wait(Emit *e, uint32_t left) {
    HV v = hop_i(e, left);
    hop_asm(e, e->voidt, "wgmma.wait_group.sync.aligned $0;", "n,~{memory}", &v, 1);
}

void wgmma_wait_acc(Emit *e, uint32_t left, HV *acc, uint32_t n) {
    StrBuf t;
    sb_init(&t, e->arena);
    sb_printf(&t, "wgmma.wait_group.sync.aligned %u;", left);
    unpack(e, hop_asm(e, alike(e, acc, n), sb_str(&t), tied(e, acc, n, ",~{memory}"), acc, n), acc,
           n);
}

void wgmma_wait_all(Emit *e, HV *acc, uint32_t n) {
    wgmma_wait_acc(e, 0, acc, n);
}

void wgmma_pin(Emit *e, HV *v, uint32_t n) {
    unpack(e, hop_asm(e, alike(e, v, n), "", tied(e, v, n, ""), v, n), v, n);
}
