/* Attributes of nodes without a look at the op: what attr.def says, field by field. */
#ifndef GRAPH_ATTR_H
#define GRAPH_ATTR_H

#include "graph/ir/ir.h"

typedef enum AttrKind {
    AK_FLAG,
    AK_NUMBER,
    AK_MODE,
    AK_AXES,
    AK_LIST,
    AK_EXPRS,
    AK_ELEMENTS,
    AK_TYPE,
    AK_INPUT,
    AK_CONSTANT,
    AK_STATE,
    AK_CONTROL
} AttrKind;

typedef enum AttrCount { AN_ONE, AN_RANK, AN_IN0, AN_WINDOW, AN_CONV } AttrCount;

/* The lists that attr.def has rows of. */
typedef enum AttrList {
    AT_none,
    AT_input,
    AT_constant,
    AT_state,
    AT_exprs,
    AT_axis,
    AT_result,
    AT_to,
    AT_cast,
    AT_perm,
    AT_slice,
    AT_pad,
    AT_window,
    AT_reduce,
    AT_conv,
    AT_gather,
    AT_scatter,
    AT_scan,
    AT_random,
    AT_attention,
    AT_control
} AttrList;

#define ATTR_REQUIRED INT64_MIN

typedef struct AttrField {
    uint8_t list;     /* AttrList */
    const char *name; /* "" = none */
    uint8_t kind;
    uint8_t size; /* bytes of one item */
    uint8_t count;
    uint16_t offset; /* in Attr */
    int64_t absent;
} AttrField;

/* The fields of an op: *n of them, one after the other. */
const AttrField *attr_fields(Op op, uint32_t *n);
uint32_t attr_count(const Graph *g, const Node *n, const AttrField *f);
int64_t attr_get(const Attr *a, const AttrField *f, uint32_t i);
void attr_set(Attr *a, const AttrField *f, uint32_t i, int64_t v);

/* The same attributes. Constants of up to 4096 bytes are compared by content, larger ones by
 * address: weights are mapped once. Equal attributes of one op have equal hashes. */
bool attr_equal(const Graph *g, const Node *a, const Node *b);
uint64_t attr_hash(const Graph *g, const Node *n, uint64_t seed);

/* Calls fn for each expression in n's attributes, a loop's trip count included where it is known.
 * Bodies are graphs of their own. */
void attr_each_expr(const Graph *g, const Node *n, void (*fn)(void *ctx, Expr e), void *ctx);
/* All of these are constants: where n reads does not depend on symbols. */
bool attr_is_static(const Graph *g, const Node *n);

extern const char *const scatter_mode_name[SCATTER_max + 1];

#endif
