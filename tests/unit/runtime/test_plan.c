/* Plan files: what is written is read; damaged, cut and hostile bytes are refused or harmless. */
#include "tests/unit/runtime/plan_sample.h"
#include "runtime/base/map.h"
#include "runtime/memory.h"
#include "tests/fuzz/rehash.h"
#include "tests/unit/test.h"

static bool accepts(const void *bytes, size_t size) {
    Plan p;
    char why[256] = "";
    graphc_status st = plan_parse(bytes, size, &p, (ErrorText){why, sizeof why});
    if (st == GRAPHC_OK) plan_release(&p);
    CHECK(st == GRAPHC_OK || why[0]);
    return st == GRAPHC_OK;
}

static void *aligned_copy(const Sample *s) {
    void *p = aligned_alloc(64, (s->size + 63) / 64 * 64);
    memcpy(p, s->bytes, s->size);
    return p;
}

static void test_truncation(const Sample *s) {
    for (size_t n = 0; n < s->size; n++) {
        void *p = aligned_alloc(64, (n + 64) / 64 * 64);
        memcpy(p, s->bytes, n);
        CHECK(!accepts(p, n));
        free(p);
    }
}

static void test_flips(const Sample *s) {
    uint8_t *p = aligned_copy(s);
    for (size_t i = 0; i < s->size * 8; i++) {
        p[i / 8] ^= (uint8_t)(1 << i % 8);
        CHECK(!accepts(p, s->size));
        p[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    CHECK(accepts(p, s->size));
    free(p);
}

/* What a fuzzer does that knows the hashes: whatever is accepted must print and bind safely. */
static void test_hostile(const Sample *s) {
    const PlanSection *t = (const PlanSection *)(const void *)((const PlanHeader *)s->bytes + 1);
    static const uint32_t values[] = {0, 1, 2, 5, 12, 13, 64, 65, 255, 0x7fffffff, 0xffffffff};
    uint32_t accepted = 0, refused = 0;
    for (uint32_t sec = PLAN_SEC_lists; sec <= PLAN_SEC_blobs; sec++)
        for (uint64_t at = 0; at + 4 <= t[sec].size; at += 4)
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                uint8_t *p = aligned_copy(s);
                memcpy(p + t[sec].offset + at, &values[v], 4);
                rehash(p);
                Plan plan;
                char why[256];
                if (plan_parse(p, s->size, &plan, (ErrorText){why, sizeof why}) == GRAPHC_OK) {
                    Arena *a = arena_create();
                    StrBuf text;
                    sb_init(&text, a);
                    plan_print(&plan, &text);
                    arena_destroy(a);
                    int64_t *slots = calloc(plan.nexprs, sizeof *slots);
                    PlanWide *wide = calloc(plan.nexprs, sizeof *wide);
                    int64_t symbols[8] = {3, 3, 3, 3};
                    plan_eval(&plan, symbols, wide, slots, PLAN_STAGE_plan);
                    free(wide);
                    MemoryPlan *m = memory_create(&plan, &plan.targets[0]);
                    if (memory_assign(m, (PlanRange){0, plan.targets[0].nsteps}, slots,
                                      (ErrorText){0}) == GRAPHC_OK)
                        CHECK(memory_arena(m) >= memory_live(m));
                    memory_destroy(m);
                    free(slots);
                    plan_release(&plan);
                    accepted++;
                } else
                    refused++;
                free(p);
            }
    CHECK(accepted > 0);
    CHECK(refused > accepted);
}

static void *section_of(uint8_t *bytes, PlanSectionId section) {
    const PlanSection *t =
        (const PlanSection *)(const void *)((const PlanHeader *)(void *)bytes + 1);
    return bytes + t[section].offset;
}

static bool refused(uint8_t *bytes, size_t size, const char *because) {
    Plan plan;
    char why[256] = "";
    rehash(bytes);
    graphc_status st = plan_parse(bytes, size, &plan, (ErrorText){why, sizeof why});
    if (st == GRAPHC_OK) plan_release(&plan);
    return CHECK(st == GRAPHC_INVALID && strstr(why, because));
}

/* Makes step i of a target contradict another record: false if it has nothing of the kind. */
typedef bool Contradict(const Plan *plan, const PlanTarget *t, const PlanStep *s, uint8_t *bytes);

static bool scalar_type(const Plan *plan, const PlanTarget *t, const PlanStep *s, uint8_t *bytes) {
    if (s->kind != PLAN_STEP_kernel || !s->ndata) return false;
    PlanBuffer *b = section_of(bytes, PLAN_SEC_buffers);
    b[t->buffers + plan->lists[s->data + 1]].dtype = (uint32_t)dtype_info[DT_u64].onnx;
    return true;
}

static bool variant_writes(const Plan *plan, const PlanTarget *t, const PlanStep *s,
                           uint8_t *bytes) {
    if (s->kind != PLAN_STEP_kernel || !s->nvariants) return false;
    PlanKernel *k = section_of(bytes, PLAN_SEC_kernels);
    k[t->kernels + plan_step_kernel(plan, s, 1)].written ^= 1;
    return true;
}

/* Refused, and the message says what is wrong. */
static void test_contradiction(const Sample *s, Contradict *contradict, const char *because) {
    Plan plan;
    uint32_t found = 0;
    if (!CHECK(plan_parse(s->bytes, s->size, &plan, (ErrorText){0}) == GRAPHC_OK)) return;
    for (const PlanTarget *t = plan.targets; t < plan.targets + plan.ntargets; t++)
        for (uint32_t i = 0; i < t->nsteps; i++) {
            uint8_t *p = aligned_copy(s);
            if (contradict(&plan, t, &plan.steps[t->steps + i], p))
                found += refused(p, s->size, because);
            free(p);
        }
    CHECK(found > 0);
    plan_release(&plan);
}

static void test_contradictions(void) {
    Sample sizes = sample_make(false, true),
           launches = sample_make_edited(true, false, sample_launch_facts);
    test_contradiction(&sizes, scalar_type, "type of a scalar");
    test_contradiction(&launches, variant_writes, "a variant has other buffers");
    arena_destroy(sizes.arena);
    arena_destroy(launches.arena);
}

static void test_version(const Sample *s) {
    uint8_t *p = aligned_copy(s);
    PlanHeader *h = (PlanHeader *)(void *)p;
    h->version = 99;
    Plan plan;
    char why[256];
    CHECK_EQ_I(plan_parse(p, s->size, &plan, (ErrorText){why, sizeof why}), GRAPHC_UNSUPPORTED);
    CHECK(strstr(why, "version 99"));
    free(p);
}

static void test_text_and_bytes(const Sample *s) {
    Plan plan;
    Arena *a = arena_create();
    StrBuf text;
    sb_init(&text, a);
    if (CHECK(plan_parse(s->bytes, s->size, &plan, (ErrorText){0}) == GRAPHC_OK)) {
        plan_print(&plan, &text);
        CHECK(strstr(sb_str(&text), "output y  f32[batch, 4]"));
        CHECK(strstr(sb_str(&text), "prepare 0  poi_0_double"));
        CHECK(strstr(sb_str(&text), ", n = *b"));
        plan_release(&plan);
    }
    arena_destroy(a);
    Sample again = sample_make(false, true);
    CHECK(again.size == s->size && memcmp(again.bytes, s->bytes, s->size) == 0);
    arena_destroy(again.arena);
}

/* A plan whose step with variants takes the second, whatever the sizes; all else is as it was. */
static void test_choose(void) {
    Sample s = sample_make_edited(true, false, sample_launch_facts);
    Plan before, after;
    void *bytes = NULL;
    uint64_t size = 0;
    if (!CHECK(plan_parse(s.bytes, s.size, &before, (ErrorText){0}) == GRAPHC_OK)) return;
    uint32_t *variant = calloc(before.nsteps, sizeof *variant), at = 0;
    for (uint32_t i = 0; i < before.nsteps; i++) {
        variant[i] = before.steps[i].nvariants ? 1 : UINT32_MAX;
        if (before.steps[i].nvariants) at = i;
    }
    CHECK(before.steps[at].nvariants == 1 &&
          before.stage[before.steps[at].choice] == PLAN_STAGE_bound);
    CHECK(plan_choose(&before, variant, &bytes, &size) == GRAPHC_OK);
    if (CHECK(plan_parse(bytes, size, &after, (ErrorText){0}) == GRAPHC_OK)) {
        const PlanExpr *e = &after.exprs[after.steps[at].choice];
        CHECK(e->op == PLAN_EX_const && e->value == 1);
        CHECK(after.nsteps == before.nsteps && after.ncode == before.ncode);
        CHECK(memcmp(after.code, before.code, before.ncode) == 0);
        CHECK(memcmp(after.exprs, before.exprs, before.nexprs * sizeof *e) == 0);
        plan_release(&after);
    }
    free(bytes);
    for (uint32_t i = 0; i < before.nsteps; i++) variant[i] = 2; /* which none has */
    CHECK(plan_choose(&before, variant, &bytes, &size) == GRAPHC_OK && size == s.size);
    CHECK(memcmp(bytes, s.bytes, size) == 0);
    free(bytes);
    free(variant);
    plan_release(&before);
    arena_destroy(s.arena);
}

TEST_MAIN {
    Sample s = sample_make(false, true);
    if (CHECK(s.bytes)) {
        test_text_and_bytes(&s);
        test_version(&s);
        test_truncation(&s);
        test_flips(&s);
        test_hostile(&s);
        test_contradictions();
        test_choose();
    }
    arena_destroy(s.arena);
}
