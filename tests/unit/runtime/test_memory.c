/* Arena planning: nothing that lives at the same time overlaps, and the arena stays close to the
 * largest live set. */
#include "runtime/memory.h"
#include "tests/unit/test.h"

#define STEPS   120
#define BUFFERS 200

static uint32_t random_state = 1;

static uint32_t draw(uint32_t n) {
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

/* Lifetimes as a network has them: most values die soon, some are kept for long. */
static void fill(PlanBuffer *b, PlanExpr *e) {
    static const uint32_t sizes[] = {64, 100, 4096, 150528, 602112, 1204224, 2408448};
    for (uint32_t i = 0; i < BUFFERS; i++) {
        uint32_t first = draw(STEPS);
        uint32_t length = draw(8) ? 1 + draw(3) : draw(40);
        e[i + 1] = (PlanExpr){.op = PLAN_EX_const, .value = sizes[draw(7)]};
        b[i] = (PlanBuffer){.kind = PLAN_BUF_temp,
                            .dtype = 1,
                            .bytes = i + 1,
                            .first = first,
                            .last = first + length < STEPS ? first + length : STEPS - 1};
    }
}

static void check_apart(const MemoryPlan *m, const PlanBuffer *b, const int64_t *slots) {
    for (uint32_t i = 0; i < BUFFERS; i++)
        for (uint32_t k = i + 1; k < BUFFERS; k++) {
            if (b[i].last < b[k].first || b[k].last < b[i].first) continue;
            uint64_t at = memory_offset(m, i), other = memory_offset(m, k);
            CHECK(at + (uint64_t)slots[i + 1] <= other || other + (uint64_t)slots[k + 1] <= at);
        }
}

/* Every third buffer grows from run to run, the others stay: places are kept in most runs, nothing
 * overlaps, and what is kept too large costs an eighth; small sizes afterwards take no more than if
 * there had been no others. */
static void check_growth(const Plan *p, const PlanTarget *t, const PlanBuffer *b,
                         const int64_t *first) {
    enum { RUNS = 60 };
    const PlanRange all = {0, STEPS};
    static int64_t slots[BUFFERS + 1];
    static uint64_t at[BUFFERS];
    MemoryPlan *m = memory_create(p, t), *fresh = memory_create(p, t);
    if (!CHECK(m && fresh)) return;
    int moved = 0;
    for (int run = 0; run < RUNS; run++) {
        bool same = true;
        for (uint32_t i = 0; i <= BUFFERS; i++)
            slots[i] = i % 3 ? first[i] : first[i] + first[i] * run / 200;
        CHECK(memory_reassign(m, all, slots, (ErrorText){0}) == GRAPHC_OK);
        CHECK(memory_assign(fresh, all, slots, (ErrorText){0}) == GRAPHC_OK);
        check_apart(m, b, slots);
        CHECK(memory_is_loose(m) == (run > 0));
        CHECK((double)memory_arena(m) <= 1.25 * (double)memory_arena(fresh) + BUFFERS * 4096.0);
        for (uint32_t i = 0; i < BUFFERS; i++) {
            same &= at[i] == memory_offset(m, i);
            at[i] = memory_offset(m, i);
        }
        moved += run && !same;
    }
    CHECK(moved >= 1 && moved <= 4);
    for (uint32_t i = 0; i <= BUFFERS; i++) slots[i] = first[i] / 4;
    CHECK(memory_reassign(m, all, slots, (ErrorText){0}) == GRAPHC_OK && !memory_is_loose(m));
    CHECK(memory_assign(fresh, all, slots, (ErrorText){0}) == GRAPHC_OK);
    CHECK(memory_arena(m) == memory_arena(fresh));
    memory_destroy(m);
    memory_destroy(fresh);
}

TEST_MAIN {
    static PlanBuffer buffers[BUFFERS];
    static PlanExpr exprs[BUFFERS + 1];
    static int64_t slots[BUFFERS + 1];
    static PlanWide wide[BUFFERS + 1];
    static uint8_t stage[BUFFERS + 1];
    double worst = 1;
    for (int round = 0; round < 50; round++) {
        fill(buffers, exprs);
        Plan p = {.buffers = buffers, .exprs = exprs, .nexprs = BUFFERS + 1, .stage = stage};
        PlanTarget t = {.nbuffers = BUFFERS, .nsteps = STEPS};
        plan_eval(&p, slots, wide, slots, PLAN_STAGE_plan);
        MemoryPlan *m = memory_create(&p, &t);
        if (!CHECK(m &&
                   memory_assign(m, (PlanRange){0, STEPS}, slots, (ErrorText){0}) == GRAPHC_OK))
            return;
        CHECK(memory_arena(m) >= memory_live(m));
        double ratio = (double)memory_arena(m) / (double)memory_live(m);
        if (ratio > worst) worst = ratio;
        check_apart(m, buffers, slots);
        memory_destroy(m);
        if (round < 3) check_growth(&p, &t, buffers, slots);
    }
    printf("worst arena / live set: %.3f\n", worst);
    CHECK(worst <= 1.1);
}
