/* What the kir_*.c files share. */
#ifndef FUSION_KIR_INTERNAL_H
#define FUSION_KIR_INTERNAL_H

#include "fusion/kir/kir.h"
#include "graph/ir/attr.h"

extern const char *const kir_tem_name[TEM_COUNT];
extern const char *const kir_fold_name[FOLD_COUNT];

typedef enum KRoleKind {
    KR_AXES,
    KR_VALUE,
    KR_EACH,
    KR_PARAM,
    KR_NUMBER,
    KR_COUNT,
    KR_FLAG,
    KR_EXPR
} KRoleKind;

/* A row of template.def. */
typedef struct KRole {
    uint8_t tem, kind, fold; /* fold: FOLD_COUNT = not a reduction */
    uint16_t offset;
    const char *name, *within, *over;
} KRole;

const KRole *kir_roles(KTem tem, uint32_t *n); /* *n of them, in the order of text */
/* Of an EACH: one for each accumulator; else 1. */
uint32_t kir_role_count(const Kernel *k, const KRole *r);
uint32_t kir_role_get(const Kernel *k, const KRole *r, uint32_t i);
void kir_role_set(Kernel *k, const KRole *r, uint32_t i, uint32_t v);
static inline bool kir_role_is_value(const KRole *r) {
    return r->kind == KR_VALUE || r->kind == KR_EACH;
}

/* Left out of text where it is 0. */
static inline bool kir_role_is_optional(const KRole *r) {
    return r->kind == KR_PARAM || r->kind == KR_COUNT || r->kind == KR_FLAG || r->kind == KR_EXPR;
}

Op kir_join(KFold fold);              /* OP_none where the fold gives a position */
const char *kir_op_name(uint32_t op); /* MAP ops by their core name, the others without the k */
uint32_t kir_op_arity(uint32_t op);   /* most operands it takes */
int kir_axis_of(const Kernel *k, uint32_t sym); /* axis number or -1 */

/* Sets the axes of the mask, walked as one, to position `at`; their number of positions. */
void kir_set_axes(const Kernel *k, ExprPool *p, uint32_t axes, int64_t at, int64_t *value);
int64_t kir_walk_length(const Kernel *k, ExprPool *p, uint32_t axes, const int64_t *value);
/* The kbind before `before` that binds `sym`, or 0. */
KVal kir_bind_of(const Kernel *k, uint32_t sym, KVal before);

#endif
