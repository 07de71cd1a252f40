/* What the printer and the parser of .gir share: how each op's attributes are spelled.
 *
 *   graph NAME  symbols batch in 1..256, n data in 0..80 hint 8
 *     file "weights.bin"
 *     %1  f32[batch, 768]  input 0 "x"
 *     %2  f32[768]         const {0.5...} "bias"
 *     %3  f32[1, 768]      reshape %2
 *     %4  f32[batch, 768]  expand %3
 *     %5  f32[batch, 768]  add %1, %4    # node 3 Add "y"
 *     assume batch = n
 *     output "y" %5
 *
 * A control node is followed by its bodies in braces, each a graph. */
#ifndef GRAPH_GIR_H
#define GRAPH_GIR_H

#include "graph/ir/ir.h"

typedef enum AttrKind {
    AK_FLAG, /* the bare name */
    AK_NUMBER,
    AK_MODE, /* scatter modes by name */
    AK_AXES, /* a bit mask as a list */
    AK_LIST,
    AK_EXPRS
} AttrKind;

typedef enum AttrCount { AN_ONE, AN_RANK, AN_IN0, AN_WINDOW, AN_CONV } AttrCount;

typedef struct AttrField {
    const char *name; /* NULL ends a table */
    uint8_t kind;
    uint8_t size; /* bytes of one number; lists count by `count` */
    uint8_t count;
    uint16_t offset; /* in Attr */
    int64_t absent;  /* a number with this value, or a list full of it, is not written */
} AttrField;

const AttrField *gir_fields(Op op); /* never NULL */
uint32_t gir_count(const Graph *g, const Node *n, const AttrField *f);
int64_t gir_get(const Attr *a, const AttrField *f, uint32_t i);
void gir_set(Attr *a, const AttrField *f, uint32_t i, int64_t v);
extern const char *const gir_modes[SCATTER_max + 1];
extern const char *const gir_sym_kinds[SYM_INDIRECT + 1];

#endif
