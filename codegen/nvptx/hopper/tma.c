/* The tensor copy engine, and the matrix stores that fill what it stores from. */
#include "codegen/nvptx/hopper/hopper.h"

void hop_map_prefetch(Emit *e, HV map) {
    hop_asm(e, e->voidt, "prefetch.tensormap [$0];", "l,~{memory}", &map, 1);
}

/* "{$3, $4}" for the coordinates from operand `first` on. */
static void put_coordinates(StrBuf *s, uint32_t first, uint32_t rank) {
    for (uint32_t i = 0; i < rank; i++) sb_printf(s, "%s$%u", i ? ", " : "{", first + i);
    sb_put(s, "}");
}

static const char *constraints(Emit *e, const char *before, uint32_t rank) {
    StrBuf s;
    sb_init(&s, e->arena);
    sb_put(&s, before);
    for (uint32_t i = 0; i < rank; i++) sb_put(&s, ",r");
    sb_put(&s, ",~{memory}");
    return sb_str(&s);
}

static void load(Emit *e, HV shared, HV bar, HV map, const HV *at, uint32_t rank, bool both) {
    HV v[9] = {shared, map, bar};
    for (uint32_t i = 0; i < rank; i++) v[3 + i] = at[i];
    StrBuf s;
    sb_init(&s, e->arena);
    sb_printf(&s,
              "cp.async.bulk.tensor.%ud.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
              "%s [$0], [$1, ",
              rank, both ? ".multicast::cluster" : "");
    put_coordinates(&s, 3, rank);
    sb_put(&s, both ? "], [$2], 3;" : "], [$2];");
    hop_asm(e, e->voidt, sb_str(&s), constraints(e, "r,l,r", rank), v, 3 + rank);
}

void hop_tma_load(Emit *e, HV shared, HV bar, HV map, const HV *at, uint32_t rank) {
    load(e, shared, bar, map, at, rank, false);
}

void hop_tma_load_both(Emit *e, HV shared, HV bar, HV map, const HV *at, uint32_t rank) {
    load(e, shared, bar, map, at, rank, true);
}

void hop_tma_load_window(Emit *e, HV shared, HV bar, HV map, const HV *at, const HV *tap,
                         uint32_t rank) {
    HV v[3 + 5 + 3] = {shared, map, bar};
    uint32_t n = 3, taps = 3 + rank;
    for (uint32_t i = 0; i < rank; i++) v[n++] = at[i];
    for (uint32_t i = 0; i + 2 < rank; i++) v[n++] = LLVMBuildTrunc(e->b, tap[i], e->i16, "");
    StrBuf s, c;
    sb_init(&s, e->arena);
    sb_init(&c, e->arena);
    sb_printf(&s,
              "cp.async.bulk.tensor.%ud.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
              " [$0], [$1, ",
              rank);
    put_coordinates(&s, 3, rank);
    sb_put(&s, "], [$2], ");
    put_coordinates(&s, taps, rank - 2);
    sb_put(&s, ";");
    sb_put(&c, "r,l,r");
    for (uint32_t i = 3; i < n; i++) sb_put(&c, i < taps ? ",r" : ",h");
    sb_put(&c, ",~{memory}");
    hop_asm(e, e->voidt, sb_str(&s), sb_str(&c), v, n);
}

void hop_bulk_load(Emit *e, HV shared, HV from, HV bytes, HV bar) {
    HV v[4] = {shared, from, bytes, bar};
    hop_asm(
        e, e->voidt,
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];",
        "r,l,r,r,~{memory}", v, 4);
}

void hop_bulk_store(Emit *e, HV to, HV shared, HV bytes) {
    HV v[3] = {to, shared, bytes};
    hop_asm(e, e->voidt, "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2;",
            "l,r,r,~{memory}", v, 3);
}

static void store(Emit *e, bool adds, HV map, HV shared, const HV *at, uint32_t rank) {
    HV v[8] = {map, shared};
    for (uint32_t i = 0; i < rank; i++) v[2 + i] = at[i];
    StrBuf s;
    sb_init(&s, e->arena);
    sb_printf(&s, "cp%s.async.bulk.tensor.%ud.global.shared::cta%s.tile.bulk_group [$0, ",
              adds ? ".reduce" : "", rank, adds ? ".add" : "");
    put_coordinates(&s, 2, rank);
    sb_put(&s, "], [$1];");
    hop_asm(e, e->voidt, sb_str(&s), constraints(e, "l,r", rank), v, 2 + rank);
}

void hop_tma_store(Emit *e, HV map, HV shared, const HV *at, uint32_t rank) {
    store(e, false, map, shared, at, rank);
}

void hop_tma_add(Emit *e, HV map, HV shared, const HV *at, uint32_t rank) {
    store(e, true, map, shared, at, rank);
}

void hop_tma_commit(Emit *e) {
    hop_asm(e, e->voidt, "cp.async.bulk.commit_group;", "~{memory}", NULL, 0);
}

void hop_tma_wait_read(Emit *e, uint32_t left) {
    HV v = hop_i(e, left);
    hop_asm(e, e->voidt, "cp.async.bulk.wait_group.read $0;", "n,~{memory}", &v, 1);
}

void hop_tma_wait(Emit *e) {
    hop_asm(e, e->voidt, "cp.async.bulk.wait_group 0;", "~{memory}", NULL, 0);
}

void hop_stmatrix(Emit *e, HV at, const HV *r) {
    HV v[5] = {at, r[0], r[1], r[2], r[3]};
    hop_asm(e, e->voidt, "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};",
            "r,r,r,r,r", v, 5);
}

void hop_ldmatrix(Emit *e, HV at, HV *r) {
    LLVMTypeRef t[4] = {e->i32, e->i32, e->i32, e->i32};
    LLVMTypeRef out = LLVMStructTypeInContext(e->ctx, t, 4, false);
    HV v = hop_asm(e, out, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4];",
                   "=r,=r,=r,=r,r,~{memory}", &at, 1);
    for (uint32_t i = 0; i < 4; i++) r[i] = LLVMBuildExtractValue(e->b, v, i, "");
}
