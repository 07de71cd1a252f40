/* What a kernel moves and computes at least, and the ONNX nodes that it covers. */
#include "fusion/body/body.h"
#include <stdlib.h>

static Expr domain_count(const Body *b, uint32_t dom) {
    Expr n = expr_const(b->f->p, 1);
    for (uint32_t i = 0; i < b->k->naxes; i++)
        if (dom >> i & 1) n = expr_mul(b->f->p, n, b->k->axes[i].extent);
    return n;
}

static double op_flops(const KOp *o) {
    if (o->op == K_kreduce) return 1;
    return o->op < OP_COUNT ? (double)op_info[o->op].cost : 0;
}

void body_traffic(Body *b) {
    Kernel *k = b->k;
    ExprPool *p = b->f->p;
    uint32_t *dom = ARENA_ARRAY(b->f->arena, uint32_t, k->nops);
    double *per_domain = ARENA_ARRAY(b->f->arena, double, k->nops);
    uint32_t *domains = ARENA_ARRAY(b->f->arena, uint32_t, k->nops), nd = 0;
    Expr *touched = ARENA_ARRAY(b->f->arena, Expr, k->nparams + 1);
    kir_domains(k, p, dom);
    for (uint32_t i = 1; i < k->nops; i++) {
        const KOp *o = &k->ops[i];
        uint32_t d = o->op == K_kreduce ? dom[o->in[0]] : dom[i], at = 0;
        while (at < nd && domains[at] != d) at++;
        if (at == nd) domains[nd++] = d;
        per_domain[at] += op_flops(o);
        if (o->op != K_kload && o->op != K_kstore && o->op != K_katomic) continue;
        Expr n = domain_count(b, dom[i]), all = k->params[o->buf].numel;
        if (expr_hint(p, n) > expr_hint(p, all)) n = all;
        Expr *t = &touched[o->buf];
        if (!*t || expr_hint(p, n) > expr_hint(p, *t)) *t = n;
    }
    k->bytes_read = k->bytes_written = k->flops = expr_const(p, 0);
    for (uint32_t i = 0; i < k->nparams; i++) {
        if (!touched[i]) continue;
        Expr bytes = expr_muli(p, touched[i], (int64_t)dtype_bytes(k->params[i].dtype));
        Expr *to = k->params[i].written ? &k->bytes_written : &k->bytes_read;
        *to = expr_add(p, *to, bytes);
    }
    for (uint32_t i = 0; i < nd; i++)
        k->flops = expr_add(p, k->flops,
                            expr_muli(p, domain_count(b, domains[i]), (int64_t)per_domain[i]));
}

static int by_loc(const void *a, const void *b) {
    Loc x = *(const Loc *)a, y = *(const Loc *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

/* Does the op compute or store something? */
static bool is_work(const KOp *o) {
    return o->node && o->op != K_kload && o->op != K_konst;
}

/* Appends the places of v to locs[n ..]. */
static uint32_t add_places(const Fuse *f, Value v, Loc *locs, uint32_t n) {
    Loc own = graph_node(f->g, v)->loc;
    const LocInfo *l = &f->g->locs.v[own];
    for (uint32_t k = 0; k < l->nalso; k++) locs[n++] = l->also[k];
    if (own && !l->nalso) locs[n++] = own;
    return n;
}

/* Sorts locs[from .. n) and leaves each once, if it is not among those before. */
static uint32_t settle(Loc *locs, uint32_t from, uint32_t n) {
    uint32_t kept = from;
    qsort(locs + from, n - from, sizeof *locs, by_loc);
    for (uint32_t i = from; i < n; i++)
        if ((kept == from || locs[kept - 1] != locs[i]) &&
            !bsearch(&locs[i], locs, from, sizeof *locs, by_loc))
            locs[kept++] = locs[i];
    return kept;
}

void body_places(Body *b) {
    Fuse *f = b->f;
    Group *g = b->g;
    Kernel *k = b->k;
    if (f->place) { /* a body's own places mean nothing outside of it */
        k->locs = arena_copy(f->arena, &f->place, sizeof f->place);
        k->nlocs = k->ncomputed = 1;
        return;
    }
    bool *works = ARENA_ARRAY(f->arena, bool, f->g->nodes.n);
    uint32_t most = 1, n = 0;
    for (uint32_t i = 1; i < k->nops; i++) works[k->ops[i].node] |= is_work(&k->ops[i]);
    for (uint32_t i = 0; i < g->inlined.n; i++)
        most += 1 + f->g->locs.v[graph_node(f->g, g->inlined.v[i])->loc].nalso;
    k->locs = ARENA_ARRAY(f->arena, Loc, most);
    for (uint32_t i = 0; i < g->inlined.n; i++)
        if (works[g->inlined.v[i]]) n = add_places(f, g->inlined.v[i], k->locs, n);
    k->ncomputed = n = settle(k->locs, 0, n);
    for (uint32_t i = 0; i < g->inlined.n; i++) {
        Value v = g->inlined.v[i];
        if (!works[v] && (g->prepare || !f->fact[v].const_only)) n = add_places(f, v, k->locs, n);
    }
    k->nlocs = settle(k->locs, k->ncomputed, n);
}
