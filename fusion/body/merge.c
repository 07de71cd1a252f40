/* Merges the axes of a finished body that every access walks as one, and orders the rest. */
#include "fusion/analyse/facts.h"
#include "fusion/body/body.h"
#include <stdlib.h>
#include <string.h>

typedef struct Finish {
    Body *b;
    VEC(Expr) used; /* distinct expressions of the body that use an axis */
} Finish;

static void add_expr(Finish *s, Expr e) {
    if (!e) return;
    for (uint32_t i = 0; i < s->used.n; i++)
        if (s->used.v[i] == e) return;
    Body *b = s->b;
    for (uint32_t i = 0; i < b->k->naxes; i++) {
        if (!expr_uses(b->f->p, e, b->k->axes[i].sym)) continue;
        vec_push(b->f->arena, &s->used, e);
        return;
    }
}

static void collect(Finish *s) {
    const Kernel *k = s->b->k;
    s->used.n = 0;
    for (uint32_t i = 1; i < k->nops; i++) {
        add_expr(s, k->ops[i].index);
        add_expr(s, k->ops[i].mask);
    }
}

/* Every fold takes both axes or neither. */
static bool folded_together(const Kernel *k, uint32_t a, uint32_t b) {
    for (uint32_t i = 1; i < k->nops; i++) {
        uint32_t x = k->ops[i].axes;
        if ((x >> a & 1) != (x >> b & 1)) return false;
        if ((x >> a & 1) && (k->ops[i].op != K_kreduce || k->ops[i].fold >= FOLD_argmax))
            return false;
    }
    return true;
}

/* e is a function of x_a*n + x_b, n being b's extent. */
static bool as_one(Finish *s, Expr e, uint32_t a, uint32_t b) {
    ExprPool *p = s->b->f->p;
    const KAxis *x = s->b->k->axes;
    Expr ca, cb, rest;
    if (!expr_uses(p, e, x[a].sym) && !expr_uses(p, e, x[b].sym)) return true;
    if (expr_affine(p, e, x[a].sym, &ca, &rest) && expr_affine(p, rest, x[b].sym, &cb, &rest) &&
        !expr_uses(p, ca, x[b].sym) && expr_mul(p, cb, x[b].extent) == ca)
        return true;
    switch (expr_op(p, e)) {
    case EX_mul:
    case EX_lt:
    case EX_eq: return as_one(s, expr_arg(p, e, 0), a, b) && as_one(s, expr_arg(p, e, 1), a, b);
    default: return false;
    }
}

/* e, which walks both axes as one, over the merged one. */
static Expr merged(Finish *s, Expr e, uint32_t a, uint32_t b, Expr by) {
    const KAxis *x = s->b->k->axes;
    uint32_t sym[2] = {x[a].sym, x[b].sym};
    Expr to[2] = {expr_const(s->b->f->p, 0), by};
    return e ? expr_subst(s->b->f->p, e, sym, to, 2) : 0;
}

static bool can_merge(Finish *s, uint32_t a, uint32_t b) {
    const Kernel *k = s->b->k;
    if (k->axes[a].kind != k->axes[b].kind || !folded_together(k, a, b)) return false;
    for (uint32_t i = 0; i < s->used.n; i++)
        if (!as_one(s, s->used.v[i], a, b)) return false;
    return true;
}

static uint32_t drop_bit(uint32_t mask, uint32_t bit) {
    uint32_t low = (1u << bit) - 1;
    return (mask & low) | (mask >> 1 & ~low);
}

/* Axis b becomes the merged one, axis a goes. */
static void merge(Finish *s, uint32_t a, uint32_t b) {
    Body *body = s->b;
    Kernel *k = body->k;
    ExprPool *p = body->f->p;
    Group tmp = {.id = 0};
    Expr by =
        axis_new(body->f, &tmp, expr_mul(p, k->axes[a].extent, k->axes[b].extent), k->axes[b].kind);
    for (uint32_t i = 1; i < k->nops; i++) {
        KOp *o = &k->ops[i];
        o->index = merged(s, o->index, a, b, by);
        o->mask = merged(s, o->mask, a, b, by);
        o->axes = drop_bit(o->axes, a);
    }
    k->axes[b] = tmp.axes[0];
    memmove(&k->axes[a], &k->axes[a + 1], (k->naxes - 1 - a) * sizeof *k->axes);
    k->naxes--;
    collect(s);
}

static bool is_role(const Body *b, uint32_t axis) {
    const AttnMatch *m = b->g->attn;
    uint32_t sym = b->k->axes[axis].sym;
    return m && (sym == m->isym || sym == m->jsym || group_is_column(b->g, sym));
}

/* In a contraction the column axis and, with it, what only A or only B sees must stay apart; since
 * A, B and the stores are among the accesses, axes that merge have the same role anyway, but for
 * axes that nothing tells apart. */
static bool merge_one(Finish *s) {
    const Kernel *k = s->b->k;
    for (uint32_t a = 0; a < k->naxes; a++)
        for (uint32_t b = 0; b < k->naxes; b++) {
            if (a == b || is_role(s->b, a) || is_role(s->b, b)) continue;
            if (s->b->g->kind == GROUP_dot && a > b) continue;
            if (!can_merge(s, a, b)) continue;
            merge(s, a, b);
            return true;
        }
    return false;
}

typedef struct Rank {
    uint32_t axis;
    bool red;
    double stride; /* of the first store, or of what a row is loaded from; outermost first */
} Rank;

static int by_rank(const void *x, const void *y) {
    const Rank *a = x, *b = y;
    if (a->red != b->red) return a->red ? 1 : -1;
    if (a->stride != b->stride) return a->stride < b->stride ? 1 : -1;
    return a->axis < b->axis ? -1 : a->axis > b->axis;
}

static bool contiguous(Body *b, Expr e, uint32_t sym) {
    Expr coef, rest;
    return e && expr_affine(b->f->p, e, sym, &coef, &rest) && expr_is_value(b->f->p, coef, 1);
}

/* Bytes that accesses contiguous along the axis move, relative to each other. */
static double contiguity(Body *b, uint32_t sym) {
    double n = 0;
    for (uint32_t i = 1; i < b->k->nops; i++) {
        const KOp *o = &b->k->ops[i];
        if (o->op != K_kload && o->op != K_kstore) continue;
        if (!contiguous(b, o->index, sym)) continue;
        double w = (double)expr_hint(b->f->p, b->k->params[o->buf].numel) *
                   (double)dtype_bytes(b->k->params[o->buf].dtype);
        n += o->op == K_kstore ? 2 * w : w;
    }
    return n;
}

/* Of the first such access that moves along the axis; 0: none does. */
static double stride_of(Body *b, int op, uint32_t sym) {
    for (uint32_t i = 1; i < b->k->nops; i++) {
        const KOp *o = &b->k->ops[i];
        Expr coef, rest;
        if (o->op != op || !expr_affine(b->f->p, o->index, sym, &coef, &rest)) continue;
        double stride = (double)expr_hint(b->f->p, coef);
        if (stride != 0 || op == K_kstore) return stride;
    }
    return 0;
}

/* A row is walked as what it is made of lies; the axes of a contraction's sum keep their order. */
static double row_stride(Body *b, uint32_t sym) {
    return b->g->kind == GROUP_map ? stride_of(b, K_kload, sym) : 0;
}

static void reorder(Body *b) {
    Kernel *k = b->k;
    Rank rank[K_MAX_AXES];
    uint32_t inner = K_MAX_AXES;
    double best = 0;
    for (uint32_t i = 0; i < k->naxes; i++) {
        uint32_t sym = k->axes[i].sym;
        rank[i] = (Rank){i, k->axes[i].kind == AX_RED, 0};
        rank[i].stride = rank[i].red ? row_stride(b, sym) : stride_of(b, K_kstore, sym);
        if (rank[i].red) continue;
        double c = contiguity(b, sym);
        if (c > best) best = c, inner = i;
    }
    if (inner < K_MAX_AXES) rank[inner].stride = -1;
    qsort(rank, k->naxes, sizeof *rank, by_rank);
    KAxis axes[K_MAX_AXES];
    uint32_t to[K_MAX_AXES];
    for (uint32_t i = 0; i < k->naxes; i++) {
        axes[i] = k->axes[rank[i].axis];
        to[rank[i].axis] = i;
    }
    memcpy(k->axes, axes, k->naxes * sizeof *axes);
    for (uint32_t i = 1; i < k->nops; i++) {
        uint32_t old = k->ops[i].axes, now = 0;
        for (uint32_t a = 0; a < k->naxes; a++)
            if (old >> a & 1) now |= 1u << to[a];
        k->ops[i].axes = now;
    }
}

void body_merge(Body *b) {
    Finish s = {.b = b};
    if (b->k->serial || b->k->tem != TEM_none) return;
    collect(&s);
    while (merge_one(&s)) {}
    bool depthwise = b->g->anchor && fuse_is_depthwise(b->f, b->g->anchor);
    if (b->g->kind == GROUP_map || depthwise) reorder(b);
}
