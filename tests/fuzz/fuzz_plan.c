/* libFuzzer: a plan, its hashes made right so that what is behind them is seen, is refused with a reason or
 * loaded and printed. Nothing runs: the bytes are machine code, too. */
#include "runtime/graphc.h"
#include "tests/fuzz/coverage.h"
#include "tests/fuzz/rehash.h"

static inline bool section_table_inside(const uint8_t *bytes, size_t size) {
    const PlanSection *t = (const void *)((const PlanHeader *)(const void *)bytes + 1);
    if (size < sizeof(PlanHeader) + PLAN_SEC_COUNT * sizeof *t) return false;
    for (uint32_t i = 0; i < PLAN_SEC_COUNT; i++)
        if (t[i].offset > size || t[i].size > size - t[i].offset) return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    const size_t room = (size + PLAN_ALIGN) / PLAN_ALIGN * PLAN_ALIGN;
    uint8_t *copy = aligned_alloc(PLAN_ALIGN, room);
    char why[256] = "";
    Plan plan;
    memcpy(copy, bytes, size);
    if (section_table_inside(copy, size)) rehash(copy);
    if (plan_parse(copy, size, &plan, (ErrorText){why, sizeof why}) == GRAPHC_OK) {
        Arena *a = arena_create();
        StrBuf text;
        sb_init(&text, a);
        plan_print(&plan, &text);
        arena_destroy(a);
        plan_release(&plan);
        graphc_plan *p = NULL;
        if (graphc_plan_load_memory(copy, size, NULL, &p, why, sizeof why) != GRAPHC_OK && !why[0]) abort();
        graphc_plan_destroy(p);
    } else if (!why[0])
        abort();
    free(copy);
    return 0;
}
