/* Names, domains and small questions about kernels. */
#include "fusion/kir/kir_internal.h"

#define X(name) #name,
const char *const kir_kind_name[] = {KIR_KINDS(X)};
#undef X
#define X(name, what) #name,
const char *const kir_tem_name[TEM_COUNT] = {KIR_TEMPLATES(X)};
const char *const kir_fold_name[FOLD_COUNT] = {KIR_FOLDS(X)};
#undef X

static const struct {
    const char *name;
    uint32_t arity;
} kir_ops[] = {
#define X(name, n) {#name, n},
    KIR_OPS(X)
#undef X
};

const char *kir_op_name(uint32_t op) {
    if (op == K_konst) return "const";
    if (op > K_first && op < K_COUNT) return kir_ops[op - K_first - 1].name + 1;
    return op > 0 && op < OP_COUNT ? op_info[op].name : "?";
}

uint32_t kir_op_arity(uint32_t op) {
    if (op > K_first && op < K_COUNT) return kir_ops[op - K_first - 1].arity;
    return op > 0 && op < OP_COUNT && op_info[op].arity > 0 ? (uint32_t)op_info[op].arity : 0;
}

static const uint8_t joins[FOLD_COUNT] = {
#define X(name, join) join,
    KIR_FOLDS(X)
#undef X
};

KFold kir_fold(Op join) {
    uint32_t f = 0;
    while (f < FOLD_COUNT && joins[f] != join) f++;
    GC_ASSERT(join && f < FOLD_COUNT);
    return (KFold)f;
}

Op kir_join(KFold fold) {
    return (Op)joins[fold];
}

int kir_axis_of(const Kernel *k, uint32_t sym) {
    for (uint32_t i = 0; i < k->naxes; i++)
        if (k->axes[i].sym == sym) return (int)i;
    return -1;
}

bool kir_carries(const Kernel *k, uint32_t param) {
    bool loads = false, stores = false;
    for (KVal v = 1; v < k->nops && k->turns; v++) {
        const KOp *o = &k->ops[v];
        if (o->op == K_kload && o->buf == param) loads = true;
        if (o->op == K_kstore && o->buf == param) stores = true;
    }
    return loads && stores;
}

KVal kir_bind_of(const Kernel *k, uint32_t sym, KVal before) {
    for (KVal v = before; v-- > 1;)
        if (k->ops[v].op == K_kbind && k->ops[v].sym == sym) return v;
    return 0;
}

typedef struct ExprDomain {
    const Kernel *k;
    const uint32_t *domains;
    KVal before;
    uint32_t axes;
} ExprDomain;

static void add_sym(void *ctx, uint32_t sym) {
    ExprDomain *c = ctx;
    int axis = kir_axis_of(c->k, sym);
    if (axis >= 0) {
        c->axes |= 1u << axis;
        return;
    }
    KVal bind = kir_bind_of(c->k, sym, c->before);
    if (bind) c->axes |= c->domains[bind];
}

/* Axes that an expression depends on; an indirect symbol depends on what its kbind depends on,
 * looked up among the ops before `before` with their known domains. */
static uint32_t domain_of(const Kernel *k, const ExprPool *p, Expr e, const uint32_t *domains,
                          KVal before) {
    ExprDomain c = {.k = k, .domains = domains, .before = before};
    if (e) expr_each_sym(p, e, add_sym, &c);
    return c.axes;
}

void kir_domains(const Kernel *k, ExprPool *p, uint32_t *domains) {
    uint32_t all = 0;
    for (uint32_t i = 0; i < k->naxes; i++)
        if (k->axes[i].kind == AX_PAR) all |= 1u << i;
    if (k->nops) domains[0] = 0;
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        uint32_t d = 0;
        for (int i = 0; i < 3; i++)
            if (o->in[i]) d |= domains[o->in[i]];
        d |= domain_of(k, p, o->index, domains, v);
        d |= domain_of(k, p, o->mask, domains, v);
        if (o->op == K_kreduce || o->op == K_kcompact) d &= ~o->axes;
        if (o->op == K_kscan || o->op == K_ksort) d |= o->axes;
        if (o->op == K_katomic) d |= all; /* equal updates count as often as they come */
        domains[v] = d;
    }
}
