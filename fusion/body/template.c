/* The kind of a finished body, and the axes of its template's roles. */
#include "fusion/analyse/facts.h"
#include "fusion/body/body.h"

enum { MANY = 16 }; /* rows and columns: fewer are walked by kernels of their own */

void map_facts(Body *b) {
    Kernel *k = b->k;
    uint32_t *dom = ARENA_ARRAY(b->f->arena, uint32_t, k->nops);
    kir_domains(k, b->f->p, dom);
    uint32_t row = 0;
    k->dot = (KDot){0}; /* a depthwise convolution is a fold like others */
    for (uint32_t i = 0; i < k->naxes; i++)
        if (k->axes[i].kind == AX_RED) row |= 1u << i;
    k->kind = row ? KERNEL_red : KERNEL_poi;
    for (uint32_t i = 1; i < k->nops; i++)
        if (k->ops[i].op == K_kstore && (dom[i] & row)) k->kind = KERNEL_per;
}

/* Every result lies side by side along this axis. */
static bool stores_along(const Body *b, uint32_t axis) {
    const Kernel *k = b->k;
    for (uint32_t i = 1; i < k->nops; i++) {
        Expr coef, rest;
        if (k->ops[i].op != K_kstore) continue;
        if (!expr_affine(b->f->p, k->ops[i].index, k->axes[axis].sym, &coef, &rest) ||
            !expr_is_value(b->f->p, coef, 1))
            return false;
    }
    return true;
}

/* Matrix units store rows: where results lie in columns, of that many rows, A and B trade places.
 */
static void turn_columns(Body *b) {
    const Fuse *f = b->f;
    KDot *d = &b->k->dot;
    const uint32_t m = d->m, n = d->n;
    if (f->m->matrix_flops_per_s <= 0 || d->nacc != 1 || d->pack || !m || (m & (m - 1)) || !n)
        return;
    const uint32_t row = (uint32_t)__builtin_ctz(m), column = (uint32_t)__builtin_ctz(n);
    if (fuse_hint(f, b->k->axes[row].extent) < MANY ||
        fuse_hint(f, b->k->axes[column].extent) < MANY)
        return;
    if (!stores_along(b, row) || stores_along(b, column)) return;
    const KVal a = d->a;
    d->a = d->b[0], d->b[0] = a;
    d->m = n, d->n = m;
}

void dot_facts(Body *b) {
    if (fuse_is_depthwise(b->f, b->g->anchor) || !b->k->dot.nacc) {
        map_facts(b);
        return;
    }
    Kernel *k = b->k;
    uint32_t *dom = ARENA_ARRAY(b->f->arena, uint32_t, k->nops);
    kir_domains(k, b->f->p, dom);
    KDot *d = &k->dot;
    uint32_t in_b = 0, last = 0;
    for (uint32_t i = 0; i < d->nacc; i++) in_b |= dom[d->b[i]];
    for (uint32_t i = 0; i < k->naxes; i++)
        if (k->axes[i].kind == AX_PAR) last = i;
    for (uint32_t i = 0; i < k->naxes; i++) {
        bool a = dom[d->a] >> i & 1, both = a && (in_b >> i & 1);
        if (k->axes[i].kind == AX_RED)
            d->k |= k->ops[d->acc[0]].axes & 1u << i; /* terms have axes of their own */
        else if (both)
            d->batch |= 1u << i;
        else if (i == last)
            d->n |= 1u << i;
        else if (in_b >> i & 1)
            d->batch |= 1u << i;
        else
            d->m |= 1u << i;
    }
    k->kind = KERNEL_tem;
    k->tem = TEM_dot;
    if (b->g->anchor && graph_node(b->f->g, b->g->anchor)->op == OP_dot) turn_columns(b);
    if (d->block && !kir_in_blocks(k, b->f->p)) d->block = 0;
}

/* The part that each axis plays in attention or a gradient of it. */
typedef struct AttnAxes {
    uint32_t batch, i, j, d, n, nv, nq;
} AttnAxes;

static AttnAxes attention_axes(const Body *b) {
    const Kernel *k = b->k;
    const AttnMatch *m = b->g->attn;
    AttnAxes t = {0};
    for (uint32_t i = 0; i < k->naxes; i++) {
        uint32_t bit = 1u << i, sym = k->axes[i].sym;
        if (sym == m->isym)
            t.i |= bit;
        else if (sym == m->jsym)
            t.j |= bit;
        else if (sym == m->nsym)
            t.n |= bit;
        else if (m->with[0] && sym == m->with[0]->nsym)
            t.nv |= bit;
        else if (m->with[1] && sym == m->with[1]->nsym)
            t.nq |= bit;
        else if (k->axes[i].kind == AX_RED)
            t.d |= bit;
        else
            t.batch |= bit;
    }
    return t;
}

void attention_facts(Body *b) {
    Kernel *k = b->k;
    KAttn *t = &k->attn;
    AttnAxes x = attention_axes(b);
    t->batch = x.batch, t->i = x.i, t->j = x.j, t->d = x.d, t->dv = x.n;
    t->guarded = b->g->attn->guarded;
    k->kind = KERNEL_tem;
    k->tem = TEM_attention;
    t->causal = body_find_causal(k, b->f->p);
}

void gradient_facts(Body *b) {
    Kernel *k = b->k;
    KAttnGrad *t = &k->grad;
    AttnAxes x = attention_axes(b);
    t->batch = x.batch, t->i = x.i, t->j = x.j, t->d = x.d, t->n = x.n;
    if (!t->s[1]) t->s[1] = t->s[0], t->x[1] = t->x[0], t->y[1] = t->y[0];
    k->kind = KERNEL_tem;
    k->tem = b->g->attn->with[0] ? TEM_attention_gradients : TEM_attention_gradient;
    k->grads.nv = x.nv, k->grads.nq = x.nq;
    body_find_unseen(k, b->f->p);
}
