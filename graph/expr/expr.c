/* The expression pool: interning, symbols, queries, evaluation. */
#include "graph/expr/expr_impl.h"
#include "runtime/base/status.h"
#include <string.h>

enum { FIRST_SLOTS = 256 };

static void push_node(ExprPool *p, ExprNode n) {
    if (p->nodes == p->page.n * EXPR_PAGE)
        vec_push(p->arena, &p->page, ARENA_ARRAY(p->arena, ExprNode, EXPR_PAGE));
    *expr_at(p, p->nodes++) = n;
}

ExprPool *expr_pool_create(Arena *a) {
    ExprPool *p = ARENA_NEW(a, ExprPool);
    p->arena = a;
    p->cache = ARENA_NEW(a, ExprCache);
    p->cache->gen = 1;
    p->mask = FIRST_SLOTS - 1;
    p->slot = ARENA_ARRAY(a, uint32_t, FIRST_SLOTS);
    p->memo = ARENA_ARRAY(a, ExprMemo, EXPR_MEMO);
    push_node(p, (ExprNode){0});
    return p;
}

ExprPool *expr_pool_clone(const ExprPool *p, Arena *a) {
    ExprPool *q = expr_pool_create(a);
    q->cache->gen = p->cache->gen;
    q->cache->stamp = p->cache->stamp;
    q->mask = p->mask;
    q->slot = arena_copy(a, p->slot, ((size_t)p->mask + 1) * sizeof *p->slot);
    for (Expr e = 1; e < p->nodes; e++) push_node(q, *expr_at(p, e));
    for (uint32_t i = 0; i < p->sym.n; i++) {
        ExprSym *s = arena_copy(a, p->sym.v[i], sizeof *s);
        s->info.name = arena_strdup(a, s->info.name);
        s->lent = false;
        vec_push(a, &q->sym, s);
    }
    return q;
}

/* Interning. */

typedef struct Key {
    uint32_t op;
    Expr arg[3];
    int64_t value;
} Key;

static bool same(const ExprNode *n, const Key *k) {
    return n->op == k->op && n->value == k->value && !memcmp(n->arg, k->arg, sizeof n->arg);
}

static void grow_slots(ExprPool *p) {
    p->mask = p->mask * 2 + 1;
    p->slot = ARENA_ARRAY(p->arena, uint32_t, (size_t)p->mask + 1);
    for (uint32_t e = 1; e < p->nodes; e++) {
        const ExprNode *n = expr_at(p, e);
        Key k = {n->op, {n->arg[0], n->arg[1], n->arg[2]}, n->value};
        uint32_t i = (uint32_t)hash_bytes(&k, sizeof k, 0) & p->mask;
        while (p->slot[i]) i = (i + 1) & p->mask;
        p->slot[i] = e;
    }
}

static Expr intern_key(ExprPool *p, const Key *k) {
    if (2 * (uint64_t)p->nodes > p->mask) grow_slots(p);
    uint32_t i = (uint32_t)hash_bytes(k, sizeof *k, 0) & p->mask;
    for (; p->slot[i]; i = (i + 1) & p->mask)
        if (same(expr_at(p, p->slot[i]), k)) return p->slot[i];
    ExprNode n = {.op = (uint8_t)k->op, .value = k->value, .size = 1};
    memcpy(n.arg, k->arg, sizeof n.arg);
    if (k->op == EX_sym) n.syms = UINT64_C(1) << (k->arg[0] % 64);
    for (int j = 0; k->op != EX_sym && j < 3; j++) {
        const ExprNode *arg = expr_at(p, k->arg[j]);
        n.syms |= arg->syms;
        n.size = arg->size > UINT32_MAX - n.size ? UINT32_MAX : n.size + arg->size;
    }
    p->slot[i] = p->nodes;
    push_node(p, n);
    return p->nodes - 1;
}

Expr expr_intern(ExprPool *p, ExprOp op, Expr a, Expr b, Expr c) {
    Key k = {op, {a, b, c}, 0};
    return intern_key(p, &k);
}

Expr expr_const(ExprPool *p, int64_t v) {
    Key k = {EX_const, {0, 0, 0}, v};
    return intern_key(p, &k);
}

/* Results of simplification, so that building the same index chain again costs one look-up. They
 * depend on symbol bounds, hence the generation. */

static ExprMemo *memo_at(ExprPool *p, ExprOp op, Expr a, Expr b) {
    uint64_t h = ((uint64_t)a << 32 | b) * UINT64_C(0x9e3779b97f4a7c15) + op;
    h = (h ^ (h >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    return &p->memo[(h >> 40) % EXPR_MEMO];
}

bool expr_memo_get(ExprPool *p, ExprOp op, Expr a, Expr b, Expr *out) {
    if (p->cache->lent.n) expr_refresh(p);
    const ExprMemo *m = memo_at(p, op, a, b);
    if (m->result == 0 || m->op != op || m->a != a || m->b != b || m->gen != p->cache->gen)
        return false;
    *out = m->result;
    return true;
}

Expr expr_memo_put(ExprPool *p, ExprOp op, Expr a, Expr b, Expr result) {
    *memo_at(p, op, a, b) = (ExprMemo){op, p->cache->gen, a, b, result};
    return result;
}

/* Removes the newest entry. Linear probing without deletions elsewhere: the table is then what it
 * was before the entry came. */
static void forget_newest(ExprPool *p) {
    uint32_t e = p->nodes - 1;
    const ExprNode *n = expr_at(p, e);
    Key k = {n->op, {n->arg[0], n->arg[1], n->arg[2]}, n->value};
    uint32_t i = (uint32_t)hash_bytes(&k, sizeof k, 0) & p->mask;
    while (p->slot[i] != e) i = (i + 1) & p->mask;
    p->slot[i] = 0;
    p->nodes--;
}

/* Symbols. */

static void note_bounds(ExprSym *s) {
    s->seen_lo = s->info.lo;
    s->seen_hi = s->info.hi;
    s->seen_below = s->info.below;
}

static void forget_names(ExprPool *p) {
    p->newest = p->next_name = NULL;
    p->named = 0;
}

/* Names are entered when first asked for: kernels make symbols by the thousand and never ask. */
const ExprSym *expr_find_sym(ExprPool *p, const char *name) {
    uint32_t i;
    if (!p->newest) p->newest = mapstr_create(p->arena);
    for (; p->named < p->sym.n; p->named++)
        mapstr_put(p->newest, p->sym.v[p->named]->info.name, p->named);
    return mapstr_get(p->newest, name, &i) ? p->sym.v[i] : NULL;
}

const char *expr_free_name(ExprPool *p, const char *name) {
    const char *unique = name;
    uint32_t k = 2;
    if (!expr_find_sym(p, name)) return name;
    if (!p->next_name) p->next_name = mapstr_create(p->arena);
    (void)mapstr_get(p->next_name, name, &k);
    do unique = arena_printf(p->arena, "%s_%u", name, k++);
    while (expr_find_sym(p, unique));
    mapstr_put(p->next_name, name, k - 1); /* it is free until a symbol takes it */
    return unique;
}

/* Graph symbols live side by side in one text, so their names differ; axes belong to a kernel. */
static const char *own_name(ExprPool *p, const SymInfo *info) {
    const char *name = info->name ? info->name : "";
    if (info->kind != SYM_AXIS && info->kind != SYM_INDIRECT) name = expr_free_name(p, name);
    return arena_strdup(p->arena, name);
}

Expr expr_sym_new(ExprPool *p, SymInfo info) {
    ExprSym *s = ARENA_NEW(p->arena, ExprSym);
    info.name = own_name(p, &info);
    s->info = info;
    note_bounds(s);
    Key k = {EX_sym, {p->sym.n, 0, 0}, 0};
    vec_push(p->arena, &p->sym, s);
    s->ref = intern_key(p, &k);
    return s->ref;
}

uint32_t expr_sym_count(const ExprPool *p) {
    return p->sym.n;
}

const SymInfo *expr_sym_info(const ExprPool *p, uint32_t s) {
    return &p->sym.v[s]->info;
}

SymInfo *expr_sym_edit(ExprPool *p, uint32_t s) {
    ExprSym *y = p->sym.v[s];
    if (!y->lent) {
        y->lent = true;
        vec_push(p->arena, &p->cache->lent, s);
    }
    return &y->info;
}

void expr_refresh(const ExprPool *p) {
    ExprCache *c = p->cache;
    for (uint32_t i = 0; i < c->lent.n; i++) {
        ExprSym *s = p->sym.v[c->lent.v[i]];
        s->lent = false;
        if (s->seen_lo == s->info.lo && s->seen_hi == s->info.hi && s->seen_below == s->info.below)
            continue;
        note_bounds(s);
        c->gen++;
    }
    c->lent.n = 0;
}

void expr_pool_reset(ExprPool *clone, const ExprPool *base) {
    while (clone->nodes > base->nodes) forget_newest(clone);
    clone->sym.n = base->sym.n;
    for (uint32_t i = 0; i < base->sym.n; i++) {
        ExprSym *s = clone->sym.v[i];
        const char *name = s->info.name;
        s->info = base->sym.v[i]->info;
        s->info.name = name;
        s->lent = false;
        note_bounds(s);
    }
    clone->cache->lent.n = 0;
    forget_names(clone);
    clone->cache->gen++; /* whatever was proved with other bounds, or remembered, is void */
}

Expr expr_sym_ref(ExprPool *p, uint32_t s) {
    return p->sym.v[s]->ref;
}

bool expr_is_sym(const ExprPool *p, Expr e, uint32_t *sym) {
    if (expr_op(p, e) != EX_sym) return false;
    if (sym) *sym = expr_node(p, e)->arg[0];
    return true;
}

/* Queries. */

ExprOp expr_op(const ExprPool *p, Expr e) {
    return (ExprOp)expr_node(p, e)->op;
}
Expr expr_arg(const ExprPool *p, Expr e, int i) {
    return expr_node(p, e)->arg[i];
}
int64_t expr_value(const ExprPool *p, Expr e) {
    return expr_node(p, e)->value;
}

uint32_t expr_size(const ExprPool *p, Expr e) {
    return expr_node(p, e)->size;
}

bool expr_is_const(const ExprPool *p, Expr e, int64_t *v) {
    if (!e || expr_op(p, e) != EX_const) return false;
    if (v) *v = expr_value(p, e);
    return true;
}

bool expr_is_value(const ExprPool *p, Expr e, int64_t v) {
    int64_t c;
    return expr_is_const(p, e, &c) && c == v;
}

int expr_arity(ExprOp op) {
    static const uint8_t n[EX_COUNT] = {
#define X(name, count, text) [EX_##name] = count,
        EXPR_OPS(X)
#undef X
    };
    return n[op];
}

int expr_compare(const ExprPool *p, Expr a, Expr b) {
    if (a == b) return 0;
    const ExprNode *x = expr_node(p, a), *y = expr_node(p, b);
    if (x->op != y->op) {
        if (x->op == EX_const || y->op == EX_const) return x->op == EX_const ? 1 : -1;
        return x->op < y->op ? -1 : 1;
    }
    if (x->op == EX_const) return x->value < y->value ? -1 : 1;
    if (x->op == EX_sym) return x->arg[0] < y->arg[0] ? -1 : 1;
    for (int i = 0; i < expr_arity((ExprOp)x->op); i++) {
        int c = expr_compare(p, x->arg[i], y->arg[i]);
        if (c) return c;
    }
    return 0;
}

uint32_t expr_new_stamp(const ExprPool *p) {
    return ++p->cache->stamp;
}

static bool uses(const ExprPool *p, Expr e, uint32_t sym, uint32_t stamp) {
    ExprNode *n = expr_at(p, e);
    if (!(n->syms >> (sym % 64) & 1) || n->stamp == stamp) return false;
    n->stamp = stamp;
    if (n->op == EX_sym) return n->arg[0] == sym;
    for (int i = 0; i < expr_arity((ExprOp)n->op); i++)
        if (uses(p, n->arg[i], sym, stamp)) return true;
    return false;
}

bool expr_uses(const ExprPool *p, Expr e, uint32_t sym) {
    return uses(p, e, sym, expr_new_stamp(p));
}

static void collect_syms(const ExprPool *p, Expr e, uint32_t stamp) {
    ExprNode *n = expr_at(p, e);
    if (!n->syms || n->stamp == stamp) return;
    n->stamp = stamp;
    if (n->op == EX_sym)
        vec_push(p->arena, &p->cache->found, n->arg[0]);
    else
        for (int i = 0; i < expr_arity((ExprOp)n->op); i++) collect_syms(p, n->arg[i], stamp);
}

/* Collected first: fn may start walks of its own. */
void expr_each_sym(const ExprPool *p, Expr e, void (*fn)(void *ctx, uint32_t sym), void *ctx) {
    ExprCache *c = p->cache;
    uint32_t one, first = c->found.n;
    if (expr_is_sym(p, e, &one)) {
        fn(ctx, one);
        return;
    }
    collect_syms(p, e, expr_new_stamp(p));
    uint32_t end = c->found.n;
    for (uint32_t i = first; i < end; i++) fn(ctx, c->found.v[i]);
    c->found.n = first;
}

/* Evaluation. */

int64_t expr_floor_div(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t expr_floor_mod(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static int64_t apply(ExprOp op, const int64_t v[3]) {
    switch (op) {
    case EX_add: return expr_wrap_add(v[0], v[1]);
    case EX_mul: return expr_wrap_mul(v[0], v[1]);
    case EX_div: return expr_floor_div(v[0], v[1]);
    case EX_mod: return expr_floor_mod(v[0], v[1]);
    case EX_min: return v[0] < v[1] ? v[0] : v[1];
    case EX_max: return v[0] > v[1] ? v[0] : v[1];
    case EX_lt: return v[0] < v[1];
    case EX_eq: return v[0] == v[1];
    case EX_select: return v[0] ? v[1] : v[2];
    default: gc_assert_failed("an operation with operands", __FILE__, __LINE__);
    }
}

static int64_t eval(const ExprPool *p, Expr e, const int64_t *sym, uint32_t stamp) {
    ExprNode *n = expr_at(p, e);
    if (n->op == EX_const) return n->value;
    if (n->op == EX_sym) return sym[n->arg[0]];
    if (n->stamp == stamp) return n->memo;
    int64_t v[3] = {0, 0, 0};
    for (int i = 0; i < expr_arity((ExprOp)n->op); i++) v[i] = eval(p, n->arg[i], sym, stamp);
    n->stamp = stamp;
    n->memo = apply((ExprOp)n->op, v);
    return n->memo;
}

int64_t expr_eval(const ExprPool *p, Expr e, const int64_t *sym_values) {
    return eval(p, e, sym_values, expr_new_stamp(p));
}

/* What a dimension is likely to be when nobody says. */
enum { TYPICAL = 64 };

static int64_t hint_sym(const SymInfo *s) {
    int64_t v = s->hint ? s->hint : TYPICAL;
    return v < s->lo ? s->lo : v > s->hi ? s->hi : v;
}

static int64_t hint(const ExprPool *p, Expr e, uint32_t stamp) {
    ExprNode *n = expr_at(p, e);
    if (n->op == EX_const) return n->value;
    if (n->op == EX_sym) return hint_sym(&p->sym.v[n->arg[0]]->info);
    if (n->stamp == stamp) return n->memo;
    int64_t v[3] = {0, 0, 0};
    for (int i = 0; i < expr_arity((ExprOp)n->op); i++) v[i] = hint(p, n->arg[i], stamp);
    n->stamp = stamp;
    n->memo = apply((ExprOp)n->op, v);
    return n->memo;
}

int64_t expr_hint(const ExprPool *p, Expr e) {
    return hint(p, e, expr_new_stamp(p));
}
