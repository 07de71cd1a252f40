/* libFuzzer: a plan, its hashes made right so that what is behind them is seen, is refused with a
 * reason, or loaded, printed and run at small sizes. The bytes are machine code, too: every kernel
 * is made to return at once, so that what runs is graphc's own. */
#include "runtime/watch.h"
#include "tests/fuzz/targets/coverage.h"
#include "tests/fuzz/rehash.h"

enum { RETURN = 0xc3, SMALL = 1 << 20, STEPS = 2000 };

size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t most, unsigned seed);

static PlanSection *section_table(uint8_t *bytes) {
    return (PlanSection *)(void *)((PlanHeader *)(void *)bytes + 1);
}

static bool section_table_inside(uint8_t *bytes, size_t size) {
    const PlanSection *t = section_table(bytes);
    const size_t end = sizeof(PlanHeader) + PLAN_SEC_COUNT * sizeof *t; /* of the table */
    if (size < end) return false;
    for (uint32_t i = 0; i < PLAN_SEC_COUNT; i++)
        if (t[i].offset < end || t[i].offset > size || t[i].size > size - t[i].offset) return false;
    return true;
}

/* Most changes are to one number of one record: of all bytes, those of records are few. */
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t most, unsigned seed) {
    static const uint32_t odd[] = {
        0, 1, 2, 3, 7, 8, 16, 255, 4096, INT32_MAX, 1u << 31, UINT32_MAX, UINT32_MAX - 1};
    const uint32_t pick = seed * 2654435761u >> 8;
    if (pick % 8 == 0 || !section_table_inside(bytes, size))
        return LLVMFuzzerMutate(bytes, size, most);
    const PlanSection *s = &section_table(bytes)[pick / 8 % PLAN_SEC_COUNT];
    if (s->size < 4) return LLVMFuzzerMutate(bytes, size, size);
    uint8_t *at = bytes + s->offset + (pick / 256 * 2246822519u >> 7) % (s->size / 4) * 4;
    uint32_t v;
    memcpy(&v, at, 4);
    const uint32_t how = (pick ^ seed >> 5) % 16;
    if (how < 13)
        v = pick & 64 ? odd[how] : v + 6 - how;
    else
        memcpy(&v, bytes + s->offset + (seed >> 3) % (s->size / 4) * 4, 4);
    memcpy(at, &v, 4);
    return size;
}

/* Values of symbols and slots at which nothing is large; false when it is, all the same. */
static bool small(const Plan *p, int64_t *symbols, PlanWide *wide, int64_t *slots) {
    for (uint64_t i = 0; i < p->nsymbols; i++) {
        const PlanSymbol *s = &p->symbols[i];
        symbols[i] = s->lo > 2 ? s->lo : s->hi < 2 ? s->hi : 2;
    }
    plan_eval(p, symbols, wide, slots, PLAN_STAGE_plan);
    for (uint64_t i = 0; i < p->nexprs; i++)
        if (slots[i] < -SMALL || slots[i] > SMALL) return false;
    return true;
}

static graphc_status stop_late(void *ctx, graphc_session *s, uint32_t step, uint32_t next) {
    uint32_t *steps = ctx;
    (void)s, (void)step, (void)next;
    return ++*steps > STEPS ? GRAPHC_RUNTIME : GRAPHC_OK;
}

static graphc_status bind_inputs(graphc_session *s, const Plan *p, const int64_t *slots, Arena *a) {
    const graphc_plan *plan = graphc_session_plan(s);
    for (uint32_t i = 0; i < graphc_plan_inputs(plan); i++) {
        const graphc_io_info in = graphc_plan_input(plan, i);
        graphc_tensor t = {.device = GRAPHC_CPU, .dtype = in.dtype, .rank = in.rank};
        uint64_t n = 1;
        for (int32_t d = 0; d < in.rank; d++) {
            t.shape[d] = slots[p->lists[p->inputs[i].dims + (uint32_t)d]];
            if (t.shape[d] < 0 || (n *= (uint64_t)t.shape[d]) > SMALL) return GRAPHC_USAGE;
        }
        t.data = arena_array(a, n * ((in.dtype.bits + 7u) / 8u) + 1, 1);
        memset(t.data, 1, n * ((in.dtype.bits + 7u) / 8u));
        const graphc_status st = graphc_bind_input(s, i, &t);
        if (st != GRAPHC_OK) return st;
    }
    return GRAPHC_OK;
}

/* An output's first and last byte are there. */
static void look_at_outputs(graphc_session *s) {
    for (uint32_t i = 0; i < graphc_plan_outputs(graphc_session_plan(s)); i++) {
        graphc_tensor t;
        if (graphc_output(s, i, &t) != GRAPHC_OK) continue;
        uint64_t bytes = (t.dtype.bits + 7u) / 8u;
        for (int32_t d = 0; d < t.rank; d++) bytes *= (uint64_t)t.shape[d];
        const volatile uint8_t *b = t.data;
        if (bytes) (void)(b[0] + b[bytes - 1]);
    }
}

static void run(const graphc_plan *plan, const Plan *p, Arena *a) {
    int64_t *symbols = arena_array(a, p->nsymbols + 1, 8),
            *slots = arena_array(a, p->nexprs + 1, 8);
    PlanWide *wide = arena_array(a, p->nexprs + 1, sizeof *wide);
    graphc_session *s = NULL;
    graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
    char why[256] = "";
    uint32_t steps = 0;
    if (!small(p, symbols, wide, slots)) return;
    o.threads = 1;
    if (graphc_session_create(plan, &o, &s, why, sizeof why) != GRAPHC_OK) {
        if (!why[0]) abort();
        return;
    }
    watch_steps(s, stop_late, &steps);
    if (bind_inputs(s, p, slots, a) == GRAPHC_OK)
        for (uint32_t e = 0; e < graphc_plan_entries(plan); e++)
            if (graphc_run_entry(s, e) == GRAPHC_OK) look_at_outputs(s);
    graphc_session_destroy(s);
}

/* Of code for CPUs nothing but returns is left; a GPU's text still ends. */
static void disarm(uint8_t *bytes) {
    const PlanSection *t = section_table(bytes), *code = &t[PLAN_SEC_code];
    const PlanBlob *blobs = (const void *)(bytes + t[PLAN_SEC_blobs].offset);
    memset(bytes + code->offset, RETURN, code->size);
    for (uint64_t i = 0; i < t[PLAN_SEC_blobs].size / sizeof *blobs; i++) {
        PlanBlob b;
        memcpy(&b, &blobs[i], sizeof b);
        if (b.form == PLAN_ptx && b.offset < code->size && b.size - 1 < code->size - b.offset)
            bytes[code->offset + b.offset + b.size - 1] = 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    const size_t room = (size + PLAN_ALIGN) / PLAN_ALIGN * PLAN_ALIGN;
    uint8_t *copy = aligned_alloc(PLAN_ALIGN, room);
    char why[256] = "";
    Plan plan;
    memcpy(copy, bytes, size);
    if (section_table_inside(copy, size)) {
        disarm(copy);
        rehash(copy);
    }
    if (plan_parse(copy, size, &plan, (ErrorText){why, sizeof why}) == GRAPHC_OK) {
        Arena *a = arena_create();
        StrBuf text;
        sb_init(&text, a);
        plan_print(&plan, &text);
        graphc_plan *p = NULL;
        if (graphc_plan_load_memory(copy, size, NULL, &p, why, sizeof why) != GRAPHC_OK && !why[0])
            abort();
        if (p) run(p, &plan, a);
        graphc_plan_destroy(p);
        arena_destroy(a);
        plan_release(&plan);
    } else if (!why[0])
        abort();
    free(copy);
    return 0;
}
