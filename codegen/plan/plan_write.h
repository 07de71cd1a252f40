/* The plan file under construction: one growing array per section, with text, expressions, symbols
 * and constants shared by content. Everything keeps first-use order, so bytes are reproducible. */
#ifndef CODEGEN_PLAN_WRITE_H
#define CODEGEN_PLAN_WRITE_H

#include "graph/ir/ir.h"
#include "runtime/base/map.h"
#include "runtime/plan.h"

typedef struct PlanBytes {
    uint8_t *p;
    uint64_t n, cap;
} PlanBytes;

/* Bytes of an embedded constant, copied when the file is put together. */
typedef struct PlanData {
    const void *data;
    uint64_t offset, length;
} PlanData;

typedef struct PlanWriter {
    Arena *arena;
    const Graph *graph;
    bool embed;
    PlanStr weights;                   /* PlanHeader.weights */
    PlanBytes section[PLAN_SEC_COUNT]; /* all but data */
    MapStr *strings;
    MapU64 *lists, *exprs, *symbols, *constants; /* by content; symbols by number */
    VEC(PlanData) data;
    uint64_t data_size;
} PlanWriter;

void plan_write_init(PlanWriter *w, const Graph *g, bool embed, Arena *a);
/* Appends one record and returns its index. */
uint32_t plan_write_record(PlanWriter *w, PlanSectionId section, const void *record, size_t size);
void plan_write_bytes(PlanWriter *w, PlanSectionId section, const void *bytes, uint64_t n);
#define PLAN_PUT(w, section, record)                                                               \
    plan_write_record((w), PLAN_SEC_##section, &(record), sizeof(record))

PlanStr plan_write_str(PlanWriter *w, const char *text);
PlanList plan_write_list(PlanWriter *w, const uint32_t *v, uint32_t n);
uint32_t plan_write_symbol(PlanWriter *w, ExprPool *p, uint32_t sym);
/* e == 0 gives slot 0. */
PlanSlot plan_write_expr(PlanWriter *w, ExprPool *p, Expr e);
PlanSlot plan_write_scaled(PlanWriter *w, ExprPool *p, Expr e, int64_t factor);
uint32_t plan_write_constant(PlanWriter *w, const Constant *c);
/* The file. */
void *plan_write_finish(PlanWriter *w, size_t *size);

#endif
