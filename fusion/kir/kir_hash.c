/* Content hash of a kernel: independent of names, locations and of which symbol numbers its axes
 * and indirect values happen to have. */
#include "fusion/kir/kir_internal.h"
#include "runtime/base/map.h"

typedef struct Hasher {
    const Kernel *k;
    ExprPool *p;
    uint64_t h;
    KVal at;
} Hasher;

static uint64_t mix(uint64_t h, uint64_t x) {
    uint64_t pair[2] = {h, x};
    return hash_bytes(pair, sizeof pair, 0x6b6972);
}

static uint64_t hash_sym(const Hasher *s, uint32_t sym) {
    int axis = kir_axis_of(s->k, sym);
    if (axis >= 0) return mix(1, (uint64_t)axis);
    KVal bind = kir_bind_of(s->k, sym, s->at);
    if (bind) return mix(2, bind);
    const SymInfo *info = expr_sym_info(s->p, sym);
    return mix(mix(mix(3, sym), (uint64_t)info->lo), (uint64_t)info->hi);
}

static uint64_t hash_expr(const Hasher *s, Expr e);

/* Sum over the terms of a nested commutative op, so that their order does not matter. */
static uint64_t hash_terms(const Hasher *s, ExprOp op, Expr e) {
    if (expr_op(s->p, e) != op) return hash_expr(s, e);
    return hash_terms(s, op, expr_arg(s->p, e, 0)) + hash_terms(s, op, expr_arg(s->p, e, 1));
}

static uint64_t hash_expr(const Hasher *s, Expr e) {
    static const uint8_t arity[EX_COUNT] = {
#define X(name, n, text) n,
        EXPR_OPS(X)
#undef X
    };
    if (!e) return 7;
    ExprOp op = expr_op(s->p, e);
    uint64_t h = mix(11, op);
    uint32_t sym = 0;
    if (op == EX_const) return mix(h, (uint64_t)expr_value(s->p, e));
    if (expr_is_sym(s->p, e, &sym)) return mix(h, hash_sym(s, sym));
    if (op == EX_add || op == EX_mul || op == EX_min || op == EX_max || op == EX_eq) {
        if (op != EX_eq) return mix(h, hash_terms(s, op, e));
        return mix(h, hash_expr(s, expr_arg(s->p, e, 0)) + hash_expr(s, expr_arg(s->p, e, 1)));
    }
    for (int i = 0; i < arity[op]; i++) h = mix(h, hash_expr(s, expr_arg(s->p, e, i)));
    return h;
}

static void add(Hasher *s, uint64_t x) {
    s->h = mix(s->h, x);
}

static void add_op(Hasher *s, const KOp *o) {
    add(s, (uint64_t)o->op << 16 | (uint64_t)o->dtype << 8 | o->fold);
    for (int i = 0; i < 3; i++) add(s, o->in[i]);
    add(s, (uint64_t)o->axes << 32 | o->buf);
    add(s, hash_expr(s, o->index));
    add(s, hash_expr(s, o->mask));
    add(s, (uint64_t)o->imm.i);
    if (o->op == K_kcompact) add(s, o->sym);
}

static void add_roles(Hasher *s) {
    uint32_t n;
    const KRole *r = kir_roles(s->k->tem, &n);
    for (const KRole *end = r + n; r < end; r++)
        for (uint32_t i = 0; i < kir_role_count(s->k, r); i++) {
            uint32_t v = kir_role_get(s->k, r, i);
            add(s, r->kind == KR_EXPR ? hash_expr(s, v) : v);
        }
}

uint64_t kir_hash(const Kernel *k, ExprPool *p) {
    Hasher s = {.k = k, .p = p};
    add(&s, (uint64_t)k->kind << 16 | (uint64_t)k->tem << 8 | k->serial);
    add(&s, (uint64_t)k->naxes << 32 | k->nparams);
    for (uint32_t i = 0; i < k->naxes; i++) {
        add(&s, k->axes[i].kind);
        add(&s, hash_expr(&s, k->axes[i].extent));
    }
    for (uint32_t i = 0; i < k->nparams; i++) {
        add(&s, (uint64_t)k->params[i].dtype << 1 | k->params[i].written);
        add(&s, hash_expr(&s, k->params[i].numel));
    }
    for (s.at = 1; s.at < k->nops; s.at++) add_op(&s, &k->ops[s.at]);
    add_roles(&s);
    return s.h;
}
