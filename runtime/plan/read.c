#include "runtime/plan.h"
#include "runtime/abi.h"
#include "runtime/base/check.h"
#include "runtime/base/map.h"
#include "runtime/plan/check.h"
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "plans are used in place");

const PlanTarget *plan_find_target(const Plan *p, PlanDevice device) {
    for (uint64_t i = 0; i < p->ntargets; i++)
        if (p->targets[i].device == (uint32_t)device) return &p->targets[i];
    return NULL;
}

uint64_t plan_probe_hash(const void *data, uint64_t length) {
    const uint8_t *p = data;
    if (length <= 2 * (uint64_t)PLAN_PROBE) return hash_bytes(data, length, length);
    return plan_ends_hash(p, p + (length - PLAN_PROBE), length);
}

uint64_t plan_ends_hash(const void *head, const void *tail, uint64_t length) {
    return hash_bytes(tail, PLAN_PROBE, hash_bytes(head, PLAN_PROBE, length));
}

uint64_t plan_header_hash(const PlanHeader *h, const PlanSection *sections) {
    PlanHeader zeroed = *h;
    zeroed.hash = 0;
    uint64_t seed = hash_bytes(&zeroed, sizeof zeroed, 0);
    return hash_bytes(sections, sizeof *sections * PLAN_SEC_COUNT, seed);
}

static graphc_status bad(ErrorText e, const char *what) {
    return error_set(e, GRAPHC_INVALID, "not a valid plan: %s", what);
}

static graphc_status check_header(const PlanHeader *h, uint64_t size, ErrorText e) {
    if (memcmp(h->magic, PLAN_MAGIC, sizeof h->magic) != 0)
        return bad(e, "it does not start as a plan file does");
    if (h->version != PLAN_VERSION)
        return error_set(e, GRAPHC_UNSUPPORTED,
                         "the plan has format version %u, this runtime reads version %u; compile "
                         "the model again",
                         h->version, PLAN_VERSION);
    if (h->abi != GRAPHC_ABI_VERSION)
        return error_set(e, GRAPHC_UNSUPPORTED,
                         "the plan's kernels have interface version %u, this runtime has %d",
                         h->abi, GRAPHC_ABI_VERSION);
    if (h->length != size)
        return error_set(e, GRAPHC_INVALID,
                         "not a valid plan: %llu bytes long instead of %llu: cut short or extended",
                         (unsigned long long)size, (unsigned long long)h->length);
    if (h->nsections != PLAN_SEC_COUNT) return bad(e, "wrong section count");
    return GRAPHC_OK;
}

static bool all_zero(const uint8_t *p, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        if (p[i]) return false;
    return true;
}

/* Sections follow each other in order with zeros between, so every byte of the file is checked. */
static graphc_status check_section(const uint8_t *bytes, uint64_t size, const PlanSection *s,
                                   uint32_t id, uint32_t record, uint64_t *end, ErrorText e) {
    uint64_t start = (*end + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    if (s->id != id || s->record_size != record) return bad(e, "unexpected section");
    if (s->offset != start || !check_span(s->offset, s->size, size))
        return bad(e, "a section lies outside the file or out of order");
    if (s->size % record) return bad(e, "a section is not a whole number of records");
    if (!all_zero(bytes + *end, start - *end)) return bad(e, "padding is not zero");
    if (hash_bytes(bytes + s->offset, s->size, id) != s->hash)
        return bad(e, "damaged: a section's hash does not match");
    *end = s->offset + s->size;
    return GRAPHC_OK;
}

static graphc_status map_sections(Plan *p, ErrorText e) {
    static const uint32_t record_size[] = {
#define X(name, record) sizeof(record),
        PLAN_SECTIONS(X)
#undef X
    };
    const PlanSection *table = (const PlanSection *)(const void *)(p->header + 1);
    if (plan_header_hash(p->header, table) != p->header->hash)
        return bad(e, "damaged: the header's hash does not match");
    uint64_t end = sizeof(PlanHeader) + sizeof(PlanSection) * PLAN_SEC_COUNT;
    for (uint32_t i = 0; i < PLAN_SEC_COUNT; i++)
        GC_TRY(check_section(p->bytes, p->size, &table[i], i, record_size[i], &end, e));
    if (end != p->size) return bad(e, "bytes after the last section");
#define X(section, record)                                                                         \
    p->section = (const record *)(const void *)(p->bytes + table[PLAN_SEC_##section].offset);      \
    p->n##section = table[PLAN_SEC_##section].size / sizeof(record);
    PLAN_SECTIONS(X)
#undef X
    return GRAPHC_OK;
}

graphc_status plan_parse(const void *bytes, uint64_t size, Plan *out, ErrorText error) {
    Plan p = {.bytes = bytes, .size = size, .header = bytes};
    if (size < sizeof(PlanHeader) + sizeof(PlanSection) * PLAN_SEC_COUNT)
        return bad(error, "too short for a header");
    GC_TRY(check_header(p.header, size, error));
    GC_TRY(map_sections(&p, error));
    p.stage = calloc(p.nexprs ? p.nexprs : 1, 1);
    if (!p.stage) return error_set(error, GRAPHC_NO_MEMORY, "not enough memory to read the plan");
    graphc_status st = plan_check(&p, error);
    if (st != GRAPHC_OK) {
        plan_release(&p);
        return st;
    }
    *out = p;
    return GRAPHC_OK;
}

void plan_release(Plan *p) {
    free(p->stage);
    p->stage = NULL;
}
