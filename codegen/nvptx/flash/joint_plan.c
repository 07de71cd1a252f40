/* Which kernels of all gradients of an attention go to tensor cores, and in which tiles. */
#include "codegen/nvptx/flash/joint.h"
#include <math.h>

#define LOW (-1e30) /* and less: exp of it is 0 whatever is added */

static const JointTile tiles[] = {
    {"128x128", 64, 128, 16, 24, 240},
    {"128x64", 128, 64, 16, 24, 240},
};

static const JointTile *choose(const BackPlan *b) {
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        if (b->d[0] <= tiles[i].d && b->d[1] <= tiles[i].d) return &tiles[i];
    return NULL;
}

/* --- Operands --------------------------------------------------------------------------------- */

static const char *plan_operands(Gpu *g, JointPlan *p) {
    const KAttnGrad *a = &g->k->grad;
    const KAttnGrads *all = &g->k->grads;
    BackPlan *b = &p->b;
    const char *why = NULL;
    HopMatrix m[3];
    uint32_t size;
    b->products = b->nstreams = 2;
    for (uint32_t i = 0; i < 2 && !why; i++) {
        uint32_t d = g->k->ops[a->s[i]].axes;
        b->factor[i] = 1;
        why = back_operand(g, b, a->x[i], a->i, d, &b->factor[i], &b->x[i], &b->d[i]);
        if (!why) why = back_operand(g, b, a->y[i], a->j, d, &b->factor[i], &b->stream[i], &size);
    }
    if (!why) why = back_operand(g, b, a->b, a->j, a->n, &p->after[JOINT_keys], &m[0], &size);
    if (!why)
        why = back_operand(g, b, all->bv, a->j, all->nv, &p->after[JOINT_values], &m[1], &size);
    if (!why)
        why = back_operand(g, b, all->bq, a->i, all->nq, &p->after[JOINT_queries], &m[2], &size);
    if (why) return why;
    if (!back_same_matrix(&m[0], &b->stream[0]) || !back_same_matrix(&m[1], &b->stream[1]) ||
        !back_same_matrix(&m[2], &b->x[0]))
        return "what is summed is not what the scores are made of";
    b->type = b->x[0].t == DT_bf16 ? WGMMA_bf16 : WGMMA_f16;
    return NULL;
}

/* --- Weights ---------------------------------------------------------------------------------- */

/* p is made of the first score by way of pv alone. */
static bool goes_through(const Gpu *g, KVal p, KVal pv, KVal score) {
    bool *need = ARENA_ARRAY(g->e->arena, bool, g->k->nops);
    need[p] = true;
    for (KVal v = p; v > 0; v--) {
        if (!need[v] || v == pv || v == g->k->grad.s[1]) continue;
        for (int i = 0; i < 3; i++) need[g->k->ops[v].in[i]] = true;
    }
    return !need[score];
}

/* What is between p or pv and the scores. */
static void mark_inner(const Gpu *g, const JointPlan *p, bool *need) {
    const KAttnGrad *a = &g->k->grad;
    need[p->b.p] = need[p->pv] = true;
    for (KVal v = g->k->nops; v-- > 1;) {
        if (!need[v] || v == a->s[0] || v == a->s[1]) continue;
        if ((g->e->domains[v] & (a->i | a->j)) != (a->i | a->j)) continue;
        for (int i = 0; i < 3; i++) need[g->k->ops[v].in[i]] = true;
    }
}

static bool loads(const Gpu *g, KVal v) {
    bool *need = ARENA_ARRAY(g->e->arena, bool, g->k->nops);
    need[v] = true;
    for (; v > 0; v--) {
        if (!need[v]) continue;
        if (g->k->ops[v].op == K_kload) return true;
        for (int i = 0; i < 3; i++) need[g->k->ops[v].in[i]] = true;
    }
    return false;
}

static bool is_column(const Gpu *g, KVal v) {
    const KAttnGrad *a = &g->k->grad;
    uint32_t dom = g->e->domains[v];
    return (dom & a->j) && !(dom & ~(a->batch | a->j)) && g->k->ops[v].dtype == DT_f32 &&
           loads(g, v);
}

static void add_column(JointPlan *p, KVal v) {
    for (uint32_t i = 0; i < p->ncolumns; i++)
        if (p->column[i] == v) return;
    if (p->ncolumns < JOINT_COLUMNS) p->column[p->ncolumns++] = v;
}

/* Values of rows and of columns alone that the weights are made of. Those past the room there is
 * are computed where they are used. */
static void plan_vectors(Gpu *g, JointPlan *p) {
    const KAttnGrad *a = &g->k->grad;
    bool *inner = ARENA_ARRAY(g->e->arena, bool, g->k->nops);
    BackLoads *rows = &p->b.by_row;
    mark_inner(g, p, inner);
    for (KVal v = 1; v < g->k->nops; v++) {
        if (!inner[v]) continue;
        if (is_column(g, v)) add_column(p, v);
        uint32_t dom = g->e->domains[v];
        bool row = (dom & a->i) && !(dom & ~(a->batch | a->i)) && g->k->ops[v].op == K_kload;
        if (row && rows->n < BACK_LOADS) rows->v[rows->n++] = v;
    }
}

/* The first score times a constant: *scale. */
static bool is_scaled(const Gpu *g, KVal v, double *scale) {
    *scale = 1;
    return back_behind_scales(g->k, v, scale) == g->k->grad.s[0];
}

static bool is_number(const Kernel *k, KVal v, double lo, double hi) {
    return k->ops[v].op == K_konst && k->ops[v].imm.f >= lo && k->ops[v].imm.f <= hi;
}

/* select(cond, v, low), or the other way round, low so that its exponential is 0: v. What is not
 * seen then weighs nothing, also where low is finite and a query sees no key at all. */
static KVal plan_hidden(const Kernel *k, KVal score, JointPlan *p) {
    const KOp *o = &k->ops[score];
    if (o->op != OP_select) return 0;
    for (int i = 1; i <= 2; i++) {
        if (!is_number(k, o->in[3 - i], -HUGE_VAL, LOW)) continue;
        p->cond = o->in[0];
        p->cond_shows = i == 1;
        return o->in[i];
    }
    return 0;
}

/* The score that v is made of where the condition holds: v, or what is replaced by something low,
 * or what that is added to. */
static KVal plan_condition(const Kernel *k, KVal v, JointPlan *p) {
    const KOp *o = &k->ops[v];
    KVal kept = plan_hidden(k, v, p);
    if (kept) return kept;
    for (int i = 0; o->op == OP_add && i < 2; i++) {
        JointPlan q = *p;
        KVal zero = plan_hidden(k, o->in[i], &q);
        if (!zero || !is_number(k, zero, 0, 0)) continue;
        *p = q;
        return o->in[1 - i];
    }
    return v;
}

static bool is_of_keys(const Gpu *g, KVal v) {
    return !(g->e->domains[v] & ~(g->k->grad.batch | g->k->grad.i));
}

/* A key that counts for no query is found out once a tile. */
static void split_condition(const Gpu *g, JointPlan *p) {
    const KOp *o = &g->k->ops[p->cond];
    p->point = p->cond, p->point_shows = p->cond_shows;
    for (int i = 0; o->op == OP_and && p->cond_shows && i < 2; i++)
        if (is_of_keys(g, o->in[i])) p->own = o->in[i], p->point = o->in[1 - i];
    p->edges = p->point && p->point == p->b.seen && p->point_shows == p->b.shows;
}

/* v, or what it is where that is a number: 0 is put in place of what is none. */
static KVal behind_guard(const Kernel *k, KVal v) {
    const KOp *o = &k->ops[v], *is = &k->ops[o->in[0]];
    bool guard = o->op == OP_select && is->op == OP_isnan && is->in[0] == o->in[2];
    return guard && is_number(k, o->in[1], 0, 0) ? o->in[2] : v;
}

/* select(same, v, -inf), where `same` compares what is loaded of keys with what is of queries: v.
 */
static KVal plan_documents(const Gpu *g, KVal score, JointPlan *p) {
    const Kernel *k = g->k;
    const KAttnGrad *a = &k->grad;
    const KOp *o = &k->ops[score], *is = &k->ops[o->in[0]];
    if (o->op != OP_select || is->op != OP_eq || !is_number(k, o->in[2], -HUGE_VAL, LOW))
        return score;
    for (int i = 0; i < 2; i++) {
        const KVal key = is->in[i], query = is->in[1 - i];
        const KOp *x = &k->ops[key], *y = &k->ops[query];
        const uint32_t kd = g->e->domains[key], qd = g->e->domains[query];
        if (x->op != K_kload || y->op != K_kload || x->dtype != DT_i32 || y->dtype != DT_i32)
            return score;
        if (!(kd & a->i) || kd & ~(a->batch | a->i) || !(qd & a->j) || qd & ~(a->batch | a->j))
            continue;
        p->same = o->in[0], p->same_key = key, p->same_query = query;
        return o->in[1];
    }
    return score;
}

/* The usual weights: see JointPlan. A row without any key is -inf, and all of its keys hidden: no
 * guard is needed. */
static void plan_exp(Gpu *g, JointPlan *p) {
    const Kernel *k = g->k;
    const KOp *o = &k->ops[behind_guard(k, p->pv)], *sub = &k->ops[o->in[0]];
    if (o->op != OP_exp || sub->op != OP_sub || !is_column(g, sub->in[1])) return;
    KVal kept = plan_condition(k, plan_documents(g, sub->in[0], p), p);
    if (!is_scaled(g, kept, &p->scale)) {
        p->scale = 0, p->cond = p->same = 0;
        return;
    }
    p->scale *= p->b.factor[0];
    if (p->cond) split_condition(g, p);
    add_column(p, sub->in[1]);
}

static const char *plan_weights(Gpu *g, JointPlan *p) {
    const KAttnGrad *a = &g->k->grad;
    double scale = 1;
    p->b.p = back_behind_scales(g->k, a->p, &scale);
    p->after[JOINT_keys] = p->after[JOINT_queries] = scale;
    p->after[JOINT_values] = 1;
    p->pv = back_behind_scales(g->k, g->k->grads.pv, &p->after[JOINT_values]);
    if (g->k->ops[p->b.p].dtype != DT_f32 || g->k->ops[p->pv].dtype != DT_f32)
        return "weights are not f32";
    if (a->s[0] == a->s[1]) return "there is one score";
    return goes_through(g, p->b.p, p->pv, a->s[0]) ? NULL : "weights do not follow from each other";
}

/* --- Results ---------------------------------------------------------------------------------- */

/* In turn they are summed where they are stored. */
static const char *plan_queries(Gpu *g, JointPlan *p) {
    const KAttnGrad *a = &g->k->grad;
    const BackResult *r = &p->result[JOINT_queries];
    const KOp *o = &g->k->ops[r->store[0]];
    if (!r->nstores) return "queries' sums are not stored";
    if (p->any) return NULL;
    if (r->nstores > 1) return "several results of queries";
    if (o->in[0] != g->k->grads.oq || o->dtype != DT_f32)
        return "queries' sums are not stored as they are";
    bool plain = hop_matrix(g, o, a->j, g->k->grads.nq, a->batch, &p->q);
    return plain ? NULL : "queries' sums are not evenly spaced";
}

static const char *plan_stores(Gpu *g, JointPlan *p) {
    const Kernel *k = g->k;
    const KAttnGrad *a = &k->grad;
    const uint32_t rows[JOINT_RESULTS] = {a->i, a->i, a->j};
    p->result[JOINT_keys] = (BackResult){.o = a->o, .n = a->n};
    p->result[JOINT_values] = (BackResult){.o = k->grads.ov, .n = k->grads.nv};
    p->result[JOINT_queries] = (BackResult){.o = k->grads.oq, .n = k->grads.nq};
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        bool role =
            v == a->s[0] || v == a->s[1] || v == a->o || v == k->grads.ov || v == k->grads.oq;
        if ((o->op == K_kreduce && !role) || o->op == K_katomic || o->op == K_kbind)
            return "other folds in the kernel";
        if (o->op != K_kstore) continue;
        uint32_t dom = g->e->domains[v], which = JOINT_RESULTS;
        for (uint32_t i = 0; i < JOINT_RESULTS; i++)
            if (dom == (a->batch | rows[i] | p->result[i].n)) which = i;
        if (which == JOINT_RESULTS) return "results of other shapes";
        BackResult *r = &p->result[which];
        if (r->nstores == BACK_STORES) return "many results";
        r->store[r->nstores++] = v;
    }
    return plan_queries(g, p);
}

/* One store of a sum in the multiplied type, or of queries' in f32: whole rows are sent from shared
 * memory. */
static void plan_sent(Gpu *g, JointPlan *p) {
    const KAttnGrad *a = &g->k->grad;
    for (uint32_t i = 0; i < JOINT_RESULTS; i++) {
        const BackResult *r = &p->result[i];
        const uint32_t rows = i == JOINT_queries ? a->j : a->i;
        const KOp *o = &g->k->ops[r->store[0]];
        double scale = 1;
        bool fits = o->dtype == p->b.x[0].t || (i == JOINT_queries && o->dtype == DT_f32);
        if (r->nstores != 1 || !fits) continue;
        if (back_behind_scales(g->k, o->in[0], &scale) != r->o) continue;
        if (!hop_matrix(g, o, rows, r->n, a->batch, &p->out[i])) continue;
        p->sent[i] = true;
        p->after[i] *= scale;
    }
}

const char *joint_plan(Gpu *g, JointPlan *out) {
    const Kernel *k = g->k;
    const KAttnGrad *a = &k->grad;
    *out = (JointPlan){.any = g->o->any_order};
    if (k->tem != TEM_attention_gradients || !a->i || !a->j || !a->d || !a->n || !k->grads.nv ||
        !k->grads.nq)
        return "not all gradients of an attention";
    const char *why = plan_weights(g, out);
    if (!why) why = plan_operands(g, out);
    if (!why) why = plan_stores(g, out);
    if (why) return why;
    out->b.rows = gpu_points(g->e, k, a->i);
    out->b.columns = gpu_points(g->e, k, a->j);
    out->b.heads = gpu_points(g->e, k, a->batch);
    out->b.behind = a->behind;
    back_find_mask(g, &out->b);
    plan_exp(g, out);
    plan_vectors(g, out);
    plan_sent(g, out);
    out->tile = choose(&out->b);
    return out->tile ? NULL : "no tile has registers for such heads";
}
