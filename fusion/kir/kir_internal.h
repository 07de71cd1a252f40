/* What the kir_*.c files share. */
#ifndef FUSION_KIR_INTERNAL_H
#define FUSION_KIR_INTERNAL_H

#include "fusion/kir/kir.h"
#include "graph/ir/attr.h"

extern const char *const kir_tem_name[TEM_COUNT];
extern const char *const kir_fold_name[FOLD_COUNT];

const char *kir_op_name(uint32_t op); /* MAP ops by their core name, the others without the k */
uint32_t kir_op_arity(uint32_t op);   /* most operands it takes */
int kir_axis_of(const Kernel *k, uint32_t sym); /* axis number or -1 */

/* Axes that an expression depends on; an indirect symbol depends on what its kbind depends on,
 * looked up among the ops before `before` with their known domains. */
uint32_t kir_expr_domain(const Kernel *k, const ExprPool *p, Expr e, const uint32_t *domains,
                         KVal before);
/* The kbind before `before` that binds `sym`, or 0. */
KVal kir_bind_of(const Kernel *k, uint32_t sym, KVal before);

#endif
