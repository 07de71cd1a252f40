/* Which attention goes to tensor cores, and in which tiles. */
#include "codegen/nvptx/flash/flash.h"
#include <math.h>

enum { FEW_QUERIES = 16 }; /* below it most of a tile would be idle */

/* From the fastest on. */
static const FlashTile tiles[] = {
    {"192x128", false, 64, 64, false, 3, 128, 2, 8, true, false, 32, 160, 0},
    {"128x128", false, 128, 128, false, 2, 128, 2, 8, true, false, 24, 240, 0},
    {"128x64", false, 128, 128, false, 2, 64, 4, 8, true, false, 24, 240, 0},
    {"128x64", false, 256, 256, false, 2, 64, 2, 8, true, true, 24, 240, 128},
    {"128x32", false, 512, 256, true, 2, 32, 2, 8, true, true, 24, 240, 128},
    {"128x64", true, 64, 64, false, 2, 64, 2, 8, false, false, 24, 240, 0},
    {"128x32", true, 128, 128, false, 2, 32, 2, 8, false, false, 24, 240, 16},
    {"128x32", true, 256, 128, true, 2, 32, 2, 8, false, true, 24, 240, 16},
    {"64x32", true, 512, 128, true, 1, 32, 1, 8, false, true, 0, 0, 32},
};

/* Scores by a body take registers of their own; a build that spilled takes the next tile. */
static const FlashTile *choose(const Gpu *g, const FlashPlan *p) {
    const FlashTile *best = NULL;
    uint32_t skip = g->j->shrink;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        const FlashTile *t = &tiles[i];
        if (p->exact != t->exact || p->d > t->d || (p->dv > t->values && !t->cuts)) continue;
        best = t;
        if (!skip--) break;
    }
    return best;
}

static bool is_scale(const KOp *o) {
    return o->op == K_konst && o->imm.f > 0 && isfinite(o->imm.f);
}

const KOp *flash_plain_load(const Kernel *k, KVal v, double *scale) {
    const KOp *o = &k->ops[v];
    while (o->op == OP_cast || o->op == OP_mul) {
        const KOp *a = &k->ops[o->in[0]], *b = o->op == OP_mul ? &k->ops[o->in[1]] : NULL;
        if (!dtype_is_float((DType)a->dtype) || (b && is_scale(a) == is_scale(b))) return NULL;
        if (b) *scale *= is_scale(a) ? a->imm.f : b->imm.f;
        o = b && is_scale(a) ? b : a;
    }
    return o->op == K_kload && !o->in[0] ? o : NULL;
}

/* Queries are fetched if they can be, else computed once for each tile, vectors along the head. */
static const char *plan_queries(Gpu *g, FlashPlan *p) {
    const Kernel *k = g->k;
    const KAttn *a = &k->attn;
    double scale = 1;
    const KOp *q = flash_plain_load(k, a->q, &scale);
    int64_t d;
    if (q && q->dtype == p->k.t && hop_matrix(g, q, a->i, a->d, a->batch, &p->q)) {
        p->factor *= scale;
        return NULL;
    }
    p->computes_q = true;
    if (k->ops[a->q].dtype != DT_f32 || (g->e->domains[a->q] & ~(a->batch | a->i | a->d)))
        return "queries are not computed from numbers of their own rows";
    if ((a->d & (a->d - 1)) || !expr_is_const(g->e->exprs, p->k.cols, &d) ||
        d * p->size % FLASH_VECTOR)
        return "computed queries are not of whole vectors";
    return NULL;
}

static const char *plan_operands(Gpu *g, FlashPlan *p) {
    const Kernel *k = g->k;
    const KAttn *a = &k->attn;
    double of_values = 1;
    p->factor = 1;
    const KOp *key = flash_plain_load(k, a->k, &p->factor),
              *v = flash_plain_load(k, a->v, &of_values);
    if (!key || !v || of_values != 1) return "keys or values are computed, not loaded";
    if (!hop_matrix(g, key, a->j, a->d, a->batch, &p->k) ||
        !hop_matrix(g, v, a->j, a->dv, a->batch, &p->v))
        return "an operand's rows are not 16-byte aligned, or not evenly spaced";
    if (p->k.t != DT_bf16 && p->k.t != DT_f16 && p->k.t != DT_f32)
        return "operands are not bf16, f16 or f32";
    if (p->v.t != p->k.t) return "operands differ in type";
    p->exact = p->k.t == DT_f32;
    p->type = p->k.t == DT_bf16 ? WGMMA_bf16 : WGMMA_f16;
    p->size = (uint32_t)dtype_bytes(p->k.t);
    p->panel = HOP_ROW_BYTES / p->size;
    return plan_queries(g, p);
}

/* o as it is, in the operands' size, in rows that the copy engine stores. */
static bool is_matrix(Gpu *g, FlashPlan *p, const KOp *store) {
    const KAttn *a = &g->k->attn;
    const KOp *value = &g->k->ops[store->in[0]];
    if (dtype_bytes(store->dtype) != p->size) return false;
    if (p->exact ? store->in[0] != a->o : value->op != OP_cast || value->in[0] != a->o)
        return false;
    return hop_matrix(g, store, a->i, a->dv, a->batch, &p->o);
}

/* Results, whatever they are made of: one that is a matrix, or some element by element. Beside them
 * a query's statistics may be stored. */
static const char *plan_result(Gpu *g, FlashPlan *p) {
    const Kernel *k = g->k;
    const KAttn *a = &k->attn;
    uint32_t query = a->batch | a->i;
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        bool role = v == a->s || v == a->m || v == a->l || v == a->o;
        if ((o->op == K_kreduce && !role) || o->op == K_katomic || o->op == K_kbind)
            return "other folds in the kernel";
        if (o->op != K_kstore) continue;
        bool statistics = g->e->domains[v] == query;
        if (statistics ? p->statistics != 0 : p->nstores == FLASH_STORES) return "many results";
        if (statistics)
            p->statistics = v;
        else
            p->store[p->nstores++] = v;
    }
    if (!p->nstores) return "nothing is stored";
    if (p->nstores == 1 && is_matrix(g, p, &k->ops[p->store[0]])) {
        p->nstores = 0;
        return NULL;
    }
    for (uint32_t i = 0; i < p->nstores; i++)
        if (g->e->domains[p->store[i]] != (query | a->dv))
            return "results are not stored one by one";
    return NULL;
}

/* v = s * scale. */
static bool is_scaled(const Kernel *k, KVal v, double *scale) {
    const KOp *o = &k->ops[v];
    if (v == k->attn.s) return true;
    if (o->op != OP_mul && o->op != OP_div) return false;
    for (int i = 0; i < (o->op == OP_mul ? 2 : 1); i++) {
        const KOp *c = &k->ops[o->in[1 - i]];
        if (c->op != K_konst || !is_scaled(k, o->in[i], scale)) continue;
        *scale = o->op == OP_mul ? *scale * c->imm.f : *scale / c->imm.f;
        return true;
    }
    return false;
}

/* v = s * scale, with another value in place of it where two positions compare as the causal mask
 * does. */
static bool is_scaled_causal(const Kernel *k, KVal v, double *scale) {
    const KOp *o = &k->ops[v], *c = &k->ops[o->in[0]];
    if (!k->attn.causal || o->op != OP_select || (c->op != OP_le && c->op != OP_lt)) return false;
    if (k->ops[c->in[0]].op != K_kexpr || k->ops[c->in[1]].op != K_kexpr) return false;
    return is_scaled(k, o->in[1], scale) || is_scaled(k, o->in[2], scale);
}

/* o says whether j <= i + causal (*seen), or the opposite. */
static bool is_causal_test(Gpu *g, const FlashPlan *p, const KOp *o, bool *seen) {
    const Kernel *k = g->k;
    ExprPool *q = g->e->exprs;
    const KOp *a = &k->ops[o->in[0]], *b = &k->ops[o->in[1]];
    if (!p->causal || (o->op != OP_le && o->op != OP_lt)) return false;
    if (a->op != K_kexpr || b->op != K_kexpr) return false;
    Expr i = expr_sym_ref(q, k->axes[__builtin_ctz(k->attn.i)].sym);
    Expr j = expr_sym_ref(q, k->axes[__builtin_ctz(k->attn.j)].sym);
    Expr room = expr_sub(q, expr_add(q, i, p->causal), j);
    Expr diff = expr_sub(q, b->index, a->index);
    *seen = expr_addi(q, diff, o->op == OP_lt ? -1 : 0) == room;
    return *seen || expr_sub(q, a->index, b->index) == expr_addi(q, room, o->op == OP_lt ? 0 : 1);
}

/* Finds, from v down to the product, what depends on keys but not on queries. False: too much. */
static bool find_per_key(Gpu *g, FlashPlan *p, const uint32_t *axes, KVal v) {
    const KAttn *a = &g->k->attn;
    const KOp *o = &g->k->ops[v];
    bool known = o->dtype == DT_f32 || o->dtype == DT_bool || o->dtype == DT_i32;
    if (v == a->s || !(axes[v] & a->j) || o->op == K_kexpr) return true;
    if (known && !(axes[v] & ~(a->batch | a->j))) {
        for (uint32_t i = 0; i < p->nper_key; i++)
            if (p->per_key[i] == v) return true;
        if (p->nper_key == FLASH_MAX_PER_KEY) return false;
        p->per_key[p->nper_key++] = v;
        return true;
    }
    for (int i = 0; i < 3 && o->op < OP_COUNT; i++)
        if (o->in[i] && !find_per_key(g, p, axes, o->in[i])) return false;
    return true;
}

/* What is known of the body in front of it: causal tests, and what they leave of axes. */
static void plan_body(Gpu *g, FlashPlan *p) {
    const Kernel *k = g->k;
    uint32_t *axes = ARENA_ARRAY(g->e->arena, uint32_t, k->nops);
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        bool seen;
        if (p->ntests < FLASH_MAX_TESTS && is_causal_test(g, p, o, &seen)) {
            p->test[p->ntests] = v;
            p->seen[p->ntests++] = seen;
            continue;
        }
        axes[v] = o->op < OP_COUNT ? 0 : g->e->domains[v];
        for (int i = 0; i < 3 && o->op < OP_COUNT; i++)
            if (o->in[i]) axes[v] |= axes[o->in[i]];
    }
    if (!find_per_key(g, p, axes, k->attn.score)) p->nper_key = 0;
}

static void plan_score(const Kernel *k, FlashPlan *p) {
    KVal score = k->attn.score;
    p->causal = k->attn.causal;
    p->scale = 1;
    bool plain =
        k->attn.causal ? is_scaled_causal(k, score, &p->scale) : is_scaled(k, score, &p->scale);
    p->body = !plain || !(p->scale > 0) || !isfinite(p->scale);
    p->scale = p->body ? 1 : p->scale * p->factor;
}

static const char *plan_sizes(Gpu *g, FlashPlan *p) {
    Emit *e = g->e;
    const KAttn *a = &g->k->attn;
    int64_t d, dv;
    if (!expr_is_const(e->exprs, p->k.cols, &d) || !expr_is_const(e->exprs, p->v.cols, &dv) ||
        d > FLASH_WIDEST || dv > UINT16_MAX)
        return "heads are larger than 512";
    p->d = (uint32_t)(d + p->panel - 1) / p->panel * p->panel;
    p->dv = (uint32_t)(dv + p->panel - 1) / p->panel * p->panel;
    while (p->computes_q && (p->d & (p->d - 1))) p->d += p->panel; /* threads share rows evenly */
    p->queries = gpu_points(e, g->k, a->i);
    p->keys = gpu_points(e, g->k, a->j);
    p->heads = gpu_points(e, g->k, a->batch);
    if (gpu_hint(e, p->queries) < FEW_QUERIES) return "few queries";
    return NULL;
}

/* The values' columns in as few tiles as have room for them, all alike. */
static void cut_values(FlashPlan *p) {
    p->cuts = (p->dv + p->tile->values - 1) / p->tile->values;
    p->dv = (p->dv / p->panel + p->cuts - 1) / p->cuts * p->panel;
}

const char *flash_plan(Gpu *g, FlashPlan *out) {
    const Kernel *k = g->k;
    const KAttn *a = &k->attn;
    *out = (FlashPlan){0};
    if (k->tem != TEM_attention || !a->i || !a->j || !a->d || !a->dv) return "not attention";
    if (k->ops[a->s].dtype != DT_f32 || k->ops[a->score].dtype != DT_f32)
        return "scores are not f32";
    const char *why = plan_operands(g, out);
    if (!why) why = plan_result(g, out);
    if (!why) why = plan_sizes(g, out);
    if (why) return why;
    plan_score(k, out);
    if (out->body) plan_body(g, out);
    out->tile = choose(g, out);
    if (!out->tile) return "no tile has registers for such heads";
    cut_values(out);
    return NULL;
}
