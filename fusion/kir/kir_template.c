/* What template.def says, as a table; masks of dealt rows. */
#include "fusion/kir/kir_internal.h"
#include <stddef.h>
#include <string.h>

static const KRole roles[] = {
#define FOLD_none FOLD_COUNT
#define ROLE(tem, name, kind, member, within, fold, over)                                          \
    {TEM_##tem, KR_##kind, FOLD_##fold, offsetof(Kernel, member), #name, within, over},
#include "fusion/kir/template.def"
#undef ROLE
#undef FOLD_none
};
enum { NROLES = sizeof roles / sizeof *roles };

const KRole *kir_roles(KTem tem, uint32_t *n) {
    uint32_t first = 0, end;
    while (first < NROLES && roles[first].tem != tem) first++;
    for (end = first; end < NROLES && roles[end].tem == tem;) end++;
    *n = end - first;
    return roles + (*n ? first : 0);
}

uint32_t kir_role_count(const Kernel *k, const KRole *r) {
    return r->kind == KR_EACH ? k->dot.nacc : 1;
}

uint32_t kir_role_get(const Kernel *k, const KRole *r, uint32_t i) {
    const char *member = (const char *)k + r->offset;
    uint32_t v;
    if (r->kind == KR_FLAG) return *(const bool *)member;
    memcpy(&v, member + i * sizeof v, sizeof v);
    return v;
}

void kir_role_set(Kernel *k, const KRole *r, uint32_t i, uint32_t v) {
    char *member = (char *)k + r->offset;
    if (r->kind == KR_FLAG)
        *(bool *)member = v != 0;
    else
        memcpy(member + i * sizeof v, &v, sizeof v);
}

KDealtMasks kir_dealt_masks(const KDealt *d, ExprPool *p, Expr turn, Expr column, Expr shift) {
    Expr end = expr_addi(p, shift, d->columns);
    return (KDealtMasks){.live = expr_lt(p, turn, d->rows),
                         .inside = expr_and(p, expr_le(p, shift, column), expr_lt(p, column, end))};
}

/* The member is another template's, too, that comes earlier. */
static bool is_shared(const KRole *r) {
    for (const KRole *x = roles; x < r; x++)
        if (x->offset == r->offset) return true;
    return false;
}

void kir_renumber_roles(Kernel *k, const KVal *to) {
    for (const KRole *r = roles; r < roles + NROLES; r++)
        for (uint32_t i = 0; kir_role_is_value(r) && !is_shared(r) && i < kir_role_count(k, r); i++)
            kir_role_set(k, r, i, to[kir_role_get(k, r, i)]);
}
