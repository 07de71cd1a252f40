/* What is joined of pieces (keys of the past and new ones, maps side by side) goes piece by piece:
 * a point that one piece is all of does not compute the others. */
#include "codegen/rows/passes.h"

typedef struct MaskUse {
    const Passes *r;
    bool data; /* it asks for something that is no axis and no size */
} MaskUse;

static void mask_sym(void *ctx, uint32_t sym) {
    MaskUse *u = ctx;
    uint32_t bind;
    u->data |= map_get(u->r->e->indirect, sym, &bind);
}

static bool same_for_lanes(const Passes *r, Expr mask, int lane) {
    MaskUse u = {.r = r};
    expr_each_sym(r->e->exprs, mask, mask_sym, &u);
    return !u.data && (lane < 0 || !expr_uses(r->e->exprs, mask, r->k->axes[lane].sym));
}

static bool loads(const Passes *r, KVal v) {
    bool *cone = ARENA_ARRAY(r->e->arena, bool, r->k->nops);
    rows_cone(r, v, cone);
    for (KVal u = 1; u < r->k->nops; u++)
        if (cone[u] && r->k->ops[u].op == K_kload) return true;
    return false;
}

/* The condition under which v is one of two things: what it loads or something else, the first
 * operand of a selection or the second. 0: v is nothing of that kind. */
static Expr condition(const Passes *r, KVal v) {
    const KOp *o = &r->k->ops[v];
    if (o->op == K_kload) return o->in[0] && loads(r, o->in[0]) ? o->mask : 0;
    if (o->op != OP_select) return 0;
    const KOp *ne = &r->k->ops[o->in[0]], *x = &r->k->ops[ne->in[0]], *zero = &r->k->ops[ne->in[1]];
    bool is = ne->op == OP_ne && x->op == K_kexpr && zero->op == K_konst && !zero->imm.i;
    return is && (loads(r, o->in[1]) || loads(r, o->in[2])) ? x->index : 0;
}

KVal rows_piece(const Passes *r, int lane, Expr *where) {
    const Pass *p = &r->pass[0];
    if (r->npasses != 1 || p->nfolds || p->axes || r->k->serial) return 0;
    bool *cone = ARENA_ARRAY(r->e->arena, bool, r->k->nops);
    for (uint32_t i = 0; i < p->nstores; i++) rows_cone(r, p->stores[i], cone);
    for (KVal v = r->k->nops; v-- > 1;) {
        *where = cone[v] ? condition(r, v) : 0;
        if (*where && same_for_lanes(r, *where, lane)) return v;
    }
    return 0;
}

const Kernel *rows_piece_kernel(const Passes *r, KVal v, bool there) {
    Kernel *k = ARENA_NEW(r->e->arena, Kernel);
    *k = *r->k;
    k->ops = ARENA_ARRAY(r->e->arena, KOp, k->nops);
    for (KVal u = 0; u < k->nops; u++) k->ops[u] = r->k->ops[u];
    KOp *o = &k->ops[v];
    KVal is = o->op == OP_select ? o->in[there ? 1 : 2] : there ? v : o->in[0];
    if (o->op == K_kload) o->in[0] = 0;
    for (KVal u = v + 1; u < k->nops; u++)
        for (int i = 0; i < 3; i++)
            if (k->ops[u].in[i] == v) k->ops[u].in[i] = is;
    return k;
}
