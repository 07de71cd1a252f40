/* Kernels by content. Everything becomes a tuple of words: expressions from the leaves up, then the
 * kernel. A tuple's number stands for its content, because tuples are compared, not only hashed. */
#include "fusion/kir/kir_set.h"
#include "fusion/kir/kir_internal.h"
#include <stdlib.h>
#include <string.h>

KirSet *kir_set(Arena *a) {
    KirSet *s = ARENA_NEW(a, KirSet);
    *s = (KirSet){.arena = a, .by_hash = map_create(a), .hash_mask = UINT64_MAX};
    return s;
}

static uint32_t number_of(KirSet *s, const uint64_t *words, uint32_t n) {
    uint64_t h = hash_bytes(words, n * sizeof *words, 0x6b6972) & s->hash_mask;
    uint32_t first = 0;
    (void)map_get(s->by_hash, h, &first);
    for (uint32_t i = first; i; i = s->tuples.v[i - 1].next) {
        const KirTuple *t = &s->tuples.v[i - 1];
        if (t->n == n && memcmp(t->words, words, n * sizeof *words) == 0) return i;
    }
    KirTuple t = {arena_copy(s->arena, words, n * sizeof *words), n, first};
    vec_push(s->arena, &s->tuples, t);
    map_put(s->by_hash, h, s->tuples.n);
    return s->tuples.n;
}

/* --- Expressions -------------------------------------------------------------------------- */

typedef struct Key {
    KirSet *set;
    const Kernel *k;
    ExprPool *p;
    KVal at;         /* the op in hand: symbols mean what binds them before it */
    VEC(uint64_t) w; /* a stack: tuples that are not whole yet, the kernel's lowest */
} Key;

static void put(Key *s, uint64_t x) {
    vec_push(s->set->arena, &s->w, x);
}

static uint32_t pop_tuple(Key *s, uint32_t base) {
    uint32_t n = s->w.n - base;
    s->w.n = base;
    return number_of(s->set, s->w.v + base, n);
}

enum { WORD_none = EX_COUNT, WORD_axis, WORD_bind, WORD_sym, WORD_kernel };

static void put_sym(Key *s, uint32_t sym) {
    int axis = kir_axis_of(s->k, sym);
    KVal bind = axis < 0 ? kir_bind_of(s->k, sym, s->at) : 0;
    put(s, axis >= 0 ? WORD_axis : bind ? WORD_bind : WORD_sym);
    put(s, axis >= 0 ? (uint64_t)axis : bind ? bind : sym);
    if (axis >= 0 || bind) return;
    put(s, (uint64_t)expr_sym_info(s->p, sym)->lo);
    put(s, (uint64_t)expr_sym_info(s->p, sym)->hi);
}

static uint32_t expr_number(Key *s, Expr e);

static void put_terms(Key *s, ExprOp op, Expr e) {
    if (expr_op(s->p, e) != op) {
        put(s, expr_number(s, e));
        return;
    }
    for (int i = 0; i < 2; i++) put_terms(s, op, expr_arg(s->p, e, i));
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Operands in their order, but for ops where it means nothing: their symbols' numbers made it. */
static void put_args(Key *s, ExprOp op, Expr e) {
    bool nests = op == EX_add || op == EX_mul || op == EX_min || op == EX_max;
    uint32_t first = s->w.n;
    for (int i = 0; i < expr_arity(op); i++) {
        if (nests)
            put_terms(s, op, expr_arg(s->p, e, i));
        else
            put(s, expr_number(s, expr_arg(s->p, e, i)));
    }
    if (nests || op == EX_eq) qsort(s->w.v + first, s->w.n - first, sizeof *s->w.v, by_value);
}

static uint32_t expr_number(Key *s, Expr e) {
    uint32_t base = s->w.n, sym;
    if (!e) {
        put(s, WORD_none);
    } else if (expr_is_sym(s->p, e, &sym)) {
        put_sym(s, sym);
    } else {
        ExprOp op = expr_op(s->p, e);
        put(s, op);
        if (op == EX_const)
            put(s, (uint64_t)expr_value(s->p, e));
        else
            put_args(s, op, e);
    }
    return pop_tuple(s, base);
}

/* --- Kernels ------------------------------------------------------------------------------ */

static void put_expr(Key *s, Expr e) {
    put(s, expr_number(s, e));
}

static void put_op(Key *s, const KOp *o) {
    put(s, (uint64_t)o->op << 16 | (uint64_t)o->dtype << 8 | o->fold);
    for (int i = 0; i < 3; i++) put(s, o->in[i]);
    put(s, (uint64_t)o->axes << 32 | o->buf);
    put_expr(s, o->index);
    put_expr(s, o->mask);
    put(s, (uint64_t)o->imm.i);
    if (o->op == K_kcompact) put(s, o->sym);
}

static void put_roles(Key *s) {
    uint32_t n;
    const KRole *r = kir_roles(s->k->tem, &n);
    for (const KRole *end = r + n; r < end; r++)
        for (uint32_t i = 0; i < kir_role_count(s->k, r); i++) {
            uint32_t v = kir_role_get(s->k, r, i);
            put(s, r->kind == KR_EXPR ? expr_number(s, v) : v);
        }
}

uint32_t kir_set_add(KirSet *set, const Kernel *k, ExprPool *p) {
    Key s = {.set = set, .k = k, .p = p};
    put(&s, WORD_kernel);
    put(&s, (uint64_t)k->kind << 16 | (uint64_t)k->tem << 8 | k->serial);
    put(&s, (uint64_t)k->naxes << 32 | k->nparams);
    put(&s, k->more);
    put(&s, k->turns ? k->turn : 0);
    put_expr(&s, k->turns);
    for (uint32_t i = 0; i < k->naxes; i++) {
        put(&s, k->axes[i].kind);
        put_expr(&s, k->axes[i].extent);
    }
    for (uint32_t i = 0; i < k->nparams; i++) {
        put(&s, (uint64_t)k->params[i].dtype << 1 | k->params[i].written);
        put_expr(&s, k->params[i].numel);
    }
    for (s.at = 1; s.at < k->nops; s.at++) put_op(&s, &k->ops[s.at]);
    put_roles(&s);
    return pop_tuple(&s, 0);
}
