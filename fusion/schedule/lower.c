/* Groups to kernels: bodies, template facts, traffic. */
#include "fusion/group/fuse.h"
#include <stdlib.h>
#include <string.h>

static uint32_t root_buffer(Fuse *f, const Root *r, const Group *g) {
    if (g->kind == GROUP_pack) return f->packs.v[g->pack - 1].buf - 1;
    Value v = r->into ? r->into : r->v;
    if (r->slot) return f->v[v].slots[r->part] - 1;
    while (f->v[v].home) v = f->v[v].home;
    if (r->output) return f->out_buf[r->output - 1];
    return f->v[v].buf - 1;
}

static Expr pack_store_index(Fuse *f, Group *g) {
    Expr at = 0; /* the axes are those of the buffer, in its order */
    for (uint32_t i = 0; i < g->naxes; i++) {
        Expr x = expr_sym_ref(f->p, g->axes[i].sym);
        at = at ? expr_add(f->p, expr_mul(f->p, at, g->axes[i].extent), x) : x;
    }
    return at;
}

static void lower_pack(Body *b, const Root *r) {
    Fuse *f = b->f;
    DType t = graph_type(f->g, r->v)->dtype;
    Expr mask = b->g->pack_mask;
    KVal x = pull(b, r->v, r->idx, mask);
    if (mask) {
        DType c = body_type(t);
        KOp o = {
            .op = OP_select, .dtype = (uint8_t)c, .in[0] = body_expr(b, mask, DT_bool), .in[1] = x};
        o.in[2] = dtype_is_float(c) ? body_const_f(b, c, 0) : body_const_i(b, c, 0);
        x = body_op(b, o);
    }
    body_store(b, t, x, root_buffer(f, r, b->g), pack_store_index(f, b->g), 0);
}

static void lower_root(Body *b, const Root *r) {
    Fuse *f = b->f;
    Group *g = b->g;
    DType t = graph_type(f->g, r->v)->dtype;
    KVal x = pull(b, r->v, r->idx, 0);
    bool whole = r->output || r->slot || (r->into && r->part == ROOT_WHOLE);
    Expr index = whole     ? idx_get(g, r->idx)->flat
                 : r->into ? part_index(f, g, r->into, r->part, r->idx)
                           : home_index(f, g, r->v, r->idx);
    if (r->output && f->out_base && f->out_base[r->output - 1])
        index = expr_add(f->p, index, f->out_base[r->output - 1]);
    body_store(b, t, x, root_buffer(f, r, g), index, 0);
}

/* --- Template facts ----------------------------------------------------------------------- */

static void dot_facts(Body *b) {
    Kernel *k = b->k;
    uint32_t *dom = ARENA_ARRAY(b->f->arena, uint32_t, k->nops);
    kir_domains(k, b->f->p, dom);
    KDot *d = &k->dot;
    uint32_t in_b = 0, last = 0;
    d->nacc = b->nacc;
    d->a = b->dot_a;
    d->pack = b->pack;
    d->wino = b->wino;
    for (uint32_t i = 0; i < b->nacc; i++) {
        d->b[i] = b->dot_b[i];
        d->acc[i] = b->dot_acc[i];
        in_b |= dom[d->b[i]];
    }
    for (uint32_t i = 0; i < k->naxes; i++)
        if (k->axes[i].kind == AX_PAR) last = i;
    for (uint32_t i = 0; i < k->naxes; i++) {
        bool a = dom[d->a] >> i & 1, both = a && (in_b >> i & 1);
        if (k->axes[i].kind == AX_RED)
            d->k |= 1u << i;
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
}

static void attention_facts(Body *b) {
    Kernel *k = b->k;
    const AttnMatch *m = b->g->attn;
    KAttn *t = &k->attn;
    for (uint32_t i = 0; i < k->naxes; i++) {
        uint32_t bit = 1u << i, sym = k->axes[i].sym;
        if (sym == m->isym)
            t->i |= bit;
        else if (sym == m->jsym)
            t->j |= bit;
        else if (sym == m->nsym)
            t->dv |= bit;
        else if (k->axes[i].kind == AX_RED)
            t->d |= bit;
        else
            t->batch |= bit;
    }
    t->o = b->attn_at[0];
    t->s = b->attn_at[1];
    t->m = b->attn_at[2];
    t->l = b->attn_at[3];
    t->e = b->attn_at[4];
    t->score = b->attn_at[5];
    t->q = b->attn_q;
    t->k = b->attn_k;
    t->v = b->attn_v;
    t->guarded = m->guarded;
    k->kind = KERNEL_tem;
    k->tem = TEM_attention;
}

static void map_kind(Body *b) {
    Kernel *k = b->k;
    uint32_t *dom = ARENA_ARRAY(b->f->arena, uint32_t, k->nops);
    kir_domains(k, b->f->p, dom);
    uint32_t row = 0;
    for (uint32_t i = 0; i < k->naxes; i++)
        if (k->axes[i].kind == AX_RED) row |= 1u << i;
    k->kind = row ? KERNEL_red : KERNEL_poi;
    for (uint32_t i = 1; i < k->nops; i++)
        if (k->ops[i].op == K_kstore && (dom[i] & row)) k->kind = KERNEL_per;
}

/* --- Traffic and places ------------------------------------------------------------------- */

static Expr domain_count(const Body *b, uint32_t dom) {
    Expr n = expr_const(b->f->p, 1);
    for (uint32_t i = 0; i < b->k->naxes; i++)
        if (dom >> i & 1) n = expr_mul(b->f->p, n, b->k->axes[i].extent);
    return n;
}

static double op_flops(const KOp *o) {
    if (o->op == K_kreduce) return 1;
    if (o->op >= OP_COUNT || o->op == OP_cast || o->op == OP_bitcast) return 0;
    return op_has_flag((Op)o->op, 'E') ? 10 : 1;
}

static void traffic(Body *b) {
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

static void places(Body *b) {
    Fuse *f = b->f;
    Group *g = b->g;
    if (f->place) { /* a body's own places mean nothing outside of it */
        b->k->locs = arena_copy(f->arena, &f->place, sizeof f->place);
        b->k->nlocs = 1;
        return;
    }
    Loc *locs = ARENA_ARRAY(f->arena, Loc, g->inlined.n + g->roots.n + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->inlined.n; i++) {
        Loc l = graph_node(f->g, g->inlined.v[i])->loc;
        if (l) locs[n++] = l;
    }
    qsort(locs, n, sizeof *locs, by_loc);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!kept || locs[kept - 1] != locs[i]) locs[kept++] = locs[i];
    b->k->locs = locs;
    b->k->nlocs = kept;
}

/* --- One group ---------------------------------------------------------------------------- */

void body_begin(Body *b) {
    Arena *a = b->f->arena;
    b->memo = map_create(a);
    b->consts = map_create(a);
    vec_push(a, &b->ops, (KOp){0});
    vec_push(a, &b->masks, 0);
}

void body_end(Body *b) {
    Kernel *k = b->k;
    const Group *g = b->g;
    body_prune(b);
    k->nops = b->ops.n;
    k->ops = b->ops.v;
    k->nparams = b->params.n;
    k->params = b->params.v;
    k->naxes = g->naxes;
    k->axes = arena_copy(b->f->arena, g->axes, g->naxes * sizeof g->axes[0]);
    if (g->kind != GROUP_pack) axes_finish(b);
    bool depthwise = g->anchor && fuse_is_depthwise(b->f, g->anchor);
    if (k->tem == TEM_none) {
        if (g->kind == GROUP_attention)
            attention_facts(b);
        else if (g->kind == GROUP_dot && !depthwise && b->nacc)
            dot_facts(b);
        else
            map_kind(b);
    }
    traffic(b);
    places(b);
}

void fuse_lower(Fuse *f, Group *g) {
    Kernel *k = ARENA_NEW(f->arena, Kernel);
    Body b = {.f = f, .g = g, .k = k};
    body_begin(&b);
    for (uint32_t i = 0; i < g->roots.n; i++) {
        const Root *r = &g->roots.v[i];
        if (g->kind == GROUP_pack && f->packs.v[g->pack - 1].wino)
            wino_lower(&b, r);
        else if (g->kind == GROUP_pack)
            lower_pack(&b, r);
        else if (special_is(f, r->v) && f->v[r->v].group == g->id + 1)
            special_lower(&b, r->v);
        else
            lower_root(&b, r);
    }
    body_end(&b);
    g->kernel = k;
    g->bufs = b.bufs.v;
}
