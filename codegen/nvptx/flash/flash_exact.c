/* Products of attention in f32, on matrix units that multiply tf32: every factor is the sum of two
 * such numbers, as in gemm_exact.c, and what each 32 numbers along k come to is added outside of
 * the matrix units, which cut what they add.
 *
 * A warp has 16 queries. Which numbers a thread multiplies together along k, and which columns it
 * sums, is free as long as both factors agree: so it takes 16 bytes at a time, and no two threads
 * that are served together meet in a bank under the copy engine's swizzle (16-byte place c of a row
 * lies at c xor (row % 8)). With quad = lane / 4 and t = lane % 4, in panels of 32 numbers:
 *
 *   scores   of its rows quad and quad + 8 of the queries and row quad of every 8 keys, places 2 t
 *            and 2 t + 1, whose four numbers are two steps along k
 *   values   rows 2 t and 2 t + 1 of every 8 keys, which are the columns of its scores; place quad,
 *            whose four numbers belong to four sums: these are of columns 8 t to 8 t + 7 */
#include "codegen/nvptx/flash/flash.h"

enum { FOUR = 4, STEPS = 4, PLACE = 16, EIGHT = 8 }; /* STEPS of 8 along k are a panel */
enum { TERMS = 3 };
enum { OVERLOOKED = 0x1fff }; /* of the bits of an f32 */
enum { TOGETHER = 2 };        /* sums of scores, for more than one in flight */

/* A number, or four, in two parts. */
typedef struct Parts {
    HV high, low;
} Parts;

/* high: the nearest number of tf32, behind which matrix units overlook the last bits: the assembler
 * drops an instruction that clears them. What is left needs a bit or two more than they see, in
 * either direction. An infinite number and one that is none leave one that is none. */
static Parts apart(const Flash *x, HV v) {
    Emit *e = x->e;
    Parts p = {hop_addi(e, LLVMBuildBitCast(e->b, v, e->i32, ""), (OVERLOOKED + 1) / 2), NULL};
    HV near = hop_andi(e, p.high, ~(int64_t)OVERLOOKED);
    p.low = LLVMBuildFSub(e->b, v, LLVMBuildBitCast(e->b, near, e->f32, ""), "");
    p.low = LLVMBuildBitCast(e->b, p.low, e->i32, "");
    return p;
}

static void apart_four(const Flash *x, HV at, Parts *out) {
    HV v[FOUR];
    hop_load_four(x->e, at, v);
    for (uint32_t i = 0; i < FOUR; i++) out[i] = apart(x, v[i]);
}

/* sum += a b: 16 rows, 8 columns, 8 along k. */
static void multiply(Emit *e, HV *sum, const HV *a, const HV *b) {
    LLVMTypeRef t[FOUR] = {e->f32, e->f32, e->f32, e->f32};
    HV v[10] = {a[0], a[1], a[2], a[3], b[0], b[1], sum[0], sum[1], sum[2], sum[3]};
    HV r = hop_asm(e, LLVMStructTypeInContext(e->ctx, t, FOUR, false),
                   "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {$0, $1, $2, $3}, "
                   "{$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};",
                   "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f", v, 10);
    for (uint32_t i = 0; i < FOUR; i++) sum[i] = LLVMBuildExtractValue(e->b, r, i, "");
}

/* One of the three products: of which parts. The small ones come first. */
static void multiply_parts(Emit *e, uint32_t term, HV *sum, const Parts *a, const Parts *b) {
    HV l[FOUR], r[2];
    for (uint32_t i = 0; i < FOUR; i++) l[i] = term == 0 ? a[i].low : a[i].high;
    for (uint32_t i = 0; i < 2; i++) r[i] = term == 1 ? b[i].low : b[i].high;
    multiply(e, sum, l, r);
}

static void clear(Emit *e, HV *sum, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) sum[i] = LLVMConstReal(e->f32, 0);
}

static HV quad_of(Flash *x) {
    return hop_shr(x->e, x->lane, 2);
}

static HV rank_of(Flash *x) {
    return hop_andi(x->e, x->lane, 3);
}

/* Of this thread's place in row quad of a panel: byte in the panel; the next is at that xor 16. */
static HV place_in_row(Flash *x) {
    Emit *e = x->e;
    HV place = LLVMBuildXor(e->b, hop_shl(e, rank_of(x), 1), quad_of(x), "");
    return hop_add(e, hop_shl(e, quad_of(x), 7), hop_shl(e, place, 4));
}

static HV next_place(Flash *x, HV at) {
    return LLVMBuildXor(x->e->b, at, hop_i(x->e, PLACE), "");
}

/* --- Scores ----------------------------------------------------------------------------------- */

/* Four steps of the warp's queries at `from`. */
static void take_queries(Flash *x, HV from, HV own, Parts a[STEPS][FOUR]) {
    Emit *e = x->e;
    for (uint32_t half = 0; half < 2; half++)
        for (uint32_t p = 0; p < 2; p++) {
            Parts v[FOUR];
            HV at = hop_add(e, from, p ? next_place(x, own) : own);
            apart_four(x, hop_addi(e, at, half * EIGHT * HOP_ROW_BYTES), v);
            for (uint32_t i = 0; i < FOUR; i++) a[2 * p + i / 2][half + i % 2 * 2] = v[i];
        }
}

/* Four steps of eight keys. */
static void take_keys(Flash *x, HV from, HV own, Parts b[STEPS][2]) {
    for (uint32_t p = 0; p < 2; p++) {
        Parts v[FOUR];
        apart_four(x, hop_add(x->e, from, p ? next_place(x, own) : own), v);
        for (uint32_t i = 0; i < FOUR; i++) b[2 * p + i / 2][i % 2] = v[i];
    }
}

static void add_panel(Flash *x, Parts a[STEPS][FOUR], HV keys, HV own, bool first, HV *s) {
    Emit *e = x->e;
    Parts b[TOGETHER][STEPS][2];
    HV sum[TOGETHER * FOUR];
    for (uint32_t n = 0; n < TOGETHER; n++)
        take_keys(x, hop_addi(e, keys, n * EIGHT * HOP_ROW_BYTES), own, b[n]);
    clear(e, sum, TOGETHER * FOUR);
    for (uint32_t term = 0; term < TERMS; term++)
        for (uint32_t k = 0; k < STEPS; k++)
            for (uint32_t n = 0; n < TOGETHER; n++)
                multiply_parts(e, term, sum + n * FOUR, a[k], b[n][k]);
    for (uint32_t i = 0; i < TOGETHER * FOUR; i++)
        s[i] = first ? sum[i] : LLVMBuildFAdd(e->b, s[i], sum[i], "");
}

void flash_exact_scores(Flash *x, HV queries, HV keys, HV *s) {
    Emit *e = x->e;
    HV own = place_in_row(x), warp = hop_shl(e, hop_andi(e, x->warp, 3), 4);
    queries = hop_add(e, queries, hop_shl(e, warp, 7));
    for (uint32_t c = 0; c < x->p->d; c += x->p->panel) {
        Parts a[STEPS][FOUR];
        uint32_t panel = c / x->p->panel;
        take_queries(x, hop_addi(e, queries, panel * x->rows * HOP_ROW_BYTES), own, a);
        HV from = hop_addi(e, keys, panel * x->t->keys * HOP_ROW_BYTES);
        for (uint32_t n = 0; n < x->t->keys / EIGHT; n += TOGETHER)
            add_panel(x, a, hop_addi(e, from, n * EIGHT * HOP_ROW_BYTES), own, c == 0,
                      s + n * FOUR);
    }
}

/* --- Values ----------------------------------------------------------------------------------- */

/* Of the thread's two keys of eight, the numbers of four sums. */
static void take_values(Flash *x, HV from, HV own, Parts b[FOUR][2]) {
    Emit *e = x->e;
    for (uint32_t z = 0; z < 2; z++) {
        Parts v[FOUR];
        HV at = hop_add(e, from, z ? next_place(x, own) : own);
        apart_four(x, hop_addi(e, at, z * HOP_ROW_BYTES), v);
        for (uint32_t i = 0; i < FOUR; i++) b[i][z] = v[i];
    }
}

/* sum = p V over 32 keys, for a panel of columns. */
static void add_values(Flash *x, const HV *p, HV from, HV own, HV *sum) {
    Emit *e = x->e;
    clear(e, sum, FOUR * FOUR);
    for (uint32_t k = 0; k < STEPS; k++) {
        static const uint32_t place[FOUR] = {0, 2, 1, 3};
        Parts a[FOUR], b[FOUR][2];
        for (uint32_t i = 0; i < FOUR; i++) a[i] = apart(x, p[k * FOUR + place[i]]);
        take_values(x, hop_addi(e, from, k * EIGHT * HOP_ROW_BYTES), own, b);
        for (uint32_t term = 0; term < TERMS; term++)
            for (uint32_t n = 0; n < FOUR; n++) multiply_parts(e, term, sum + n * FOUR, a, b[n]);
    }
}

void flash_exact_values(Flash *x, HV values, const HV *p, const HV *alpha, HV *o) {
    Emit *e = x->e;
    HV row = hop_shl(e, rank_of(x), 1), place = LLVMBuildXor(e->b, row, quad_of(x), "");
    HV own = hop_add(e, hop_shl(e, row, 7), hop_shl(e, place, 4));
    for (uint32_t c = 0; c < x->p->dv; c += x->p->panel, o += FOUR * FOUR) {
        HV from = hop_addi(e, values, c / x->p->panel * x->t->keys * HOP_ROW_BYTES);
        for (uint32_t k = 0; k < x->t->keys; k += STEPS * EIGHT) {
            HV sum[FOUR * FOUR];
            add_values(x, p + k / EIGHT * FOUR, hop_addi(e, from, k * HOP_ROW_BYTES), own, sum);
            for (uint32_t i = 0; i < FOUR * FOUR; i++) {
                if (k)
                    o[i] = LLVMBuildFAdd(e->b, o[i], sum[i], "");
                else
                    o[i] = alpha ? emit_fma(e, o[i], alpha[i >> 1 & 1], sum[i]) : sum[i];
            }
        }
    }
}

void flash_exact_store(Flash *x, HV staging, const HV *o) {
    Emit *e = x->e;
    HV own = place_in_row(x);
    HV to = hop_add(e, staging, hop_shl(e, hop_andi(e, x->warp, 3), 4 + 7));
    for (uint32_t c = 0; c < x->p->dv; c += x->p->panel, o += FOUR * FOUR)
        for (uint32_t half = 0; half < 2; half++)
            for (uint32_t p = 0; p < 2; p++) {
                HV v[FOUR], at = hop_add(e, to, p ? next_place(x, own) : own);
                at = hop_addi(e, at, c / x->p->panel * x->o_panel + half * EIGHT * HOP_ROW_BYTES);
                for (uint32_t i = 0; i < FOUR; i++)
                    v[i] = LLVMBuildBitCast(e->b, o[i * FOUR + half * 2 + p], e->i32, "");
                hop_store_four(e, at, v);
            }
}
