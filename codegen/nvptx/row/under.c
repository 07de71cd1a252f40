/* Two folds of a long row that take one walk, because one can be made under what the other is so
 * far: softmax's sum under its maximum, which is scaled whenever the maximum grows, and squares
 * around a mean, which are moved whenever the mean does. What counts then is how many elements a
 * part has; it is carried behind them. */
#include "codegen/nvptx/row/long.h"
#include <math.h>

/* --- Which ------------------------------------------------------------------------------------ */

/* s = sum of exp(x - m) over the row, m = max x of it. */
static bool is_sum_under(const Gpu *g, KVal sum, KVal max) {
    const KOp *s = &g->k->ops[sum], *e = &g->k->ops[s->in[0]];
    if (s->fold != FOLD_sum || s->dtype != DT_f32 || e->op != OP_exp) return false;
    const KOp *d = &g->k->ops[e->in[0]];
    return d->op == OP_sub && d->in[1] == max && d->in[0] == g->k->ops[max].in[0];
}

/* s = sum of (x - m)^2, m = (sum x) / n, where n is the row's length. *mean: m. */
static bool are_squares_around(const Long *l, KVal squares, KVal sum, KVal *mean) {
    const Gpu *g = l->r->team.g;
    const KOp *ops = g->k->ops, *s = &ops[squares], *x = &ops[s->in[0]], *d = &ops[x->in[0]];
    const KOp *m = &ops[d->in[1]], *n = &ops[m->in[1]];
    int64_t length;
    if (s->fold != FOLD_sum || s->dtype != DT_f32 || ops[sum].dtype != DT_f32) return false;
    if (x->op != OP_mul || x->in[0] != x->in[1] || d->op != OP_sub || m->op != OP_div) return false;
    *mean = d->in[1];
    return d->in[0] == ops[sum].in[0] && m->in[0] == sum && n->op == K_konst &&
           expr_is_const(g->e->exprs, l->length, &length) && n->imm.f == (double)length;
}

/* Passes i and i + 1 become one where all that the second one does is such a fold. */
static bool is_one_walk(Long *l, uint32_t i, bool squares) {
    const Gpu *g = l->r->team.g;
    const Pass *p = &g->rows->pass[i], *q = p + 1;
    KVal mean;
    if (i + 1 >= g->rows->npasses || q->nfolds != 1 || q->nstores || p->nstores) return false;
    if (p->axes != q->axes) return false;
    for (uint32_t f = 0; f < p->nfolds; f++) {
        KVal v = p->folds[f];
        bool sum = g->k->ops[v].fold == FOLD_max && is_sum_under(g, q->folds[0], v);
        bool around = squares && p->nfolds == 1 && g->k->ops[v].fold == FOLD_sum &&
                      are_squares_around(l, q->folds[0], v, &mean);
        if (!sum && !around) continue;
        l->lead = v, l->under = q->folds[0], l->mean = around ? mean : 0;
        return true;
    }
    return false;
}

bool row_has_under(const Long *l, const Pass *p) {
    for (uint32_t f = 0; f < p->nfolds; f++)
        if (l->lead && p->folds[f] == l->lead) return true;
    return false;
}

void row_find_under(Long *l, bool squares) {
    const Gpu *g = l->r->team.g;
    for (uint32_t i = 0; i < g->rows->npasses && !l->lead; i++) (void)is_one_walk(l, i, squares);
    l->first = g->rows->npasses && row_has_under(l, &g->rows->pass[0]) ? 2 : 1;
}

/* --- Softmax ---------------------------------------------------------------------------------- */

/* m, or 0 where m is -inf: what exponents may be taken from. */
static LLVMValueRef within(Emit *e, LLVMValueRef m) {
    LLVMValueRef low = emit_fold_identity(e, FOLD_max, DT_f32, 1);
    LLVMValueRef none = LLVMBuildFCmp(e->b, LLVMRealOEQ, m, low, "");
    return LLVMBuildSelect(e->b, none, emit_f(e, e->f32, 0), m, "");
}

/* s, a sum under maximum m, as one under maximum `to`, which is finite. */
static LLVMValueRef scaled(Emit *e, LLVMValueRef s, LLVMValueRef m, LLVMValueRef to) {
    LLVMValueRef d = LLVMBuildFSub(e->b, m, to, "");
    return LLVMBuildFMul(e->b, s, gpu_coarse_exp(e, d), "");
}

/* The same where `to` may be -inf. */
static LLVMValueRef scaled_within(Emit *e, const TeamPair *own, const TeamPair *all) {
    return scaled(e, own->under, own->lead, within(e, all->lead));
}

static void fold_softmax(const Long *l, EmitScope **scope, LLVMValueRef *live, uint32_t n,
                         TeamPair *t) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    EmitJoin join = rows_join(g->rows, l->lead);
    EmitScope *outer = e->scope;
    LLVMValueRef m = t->lead, all = NULL;
    for (uint32_t u = 0; u < n; u++) {
        (void)emit_switch(e, scope[u]);
        LLVMValueRef x = emit_value_lanes(e, g->k->ops[l->lead].in[0]);
        x = emit_fold_lanes_by(e, FOLD_max, DT_f32, x, join);
        if (live[u]) x = emit_select(e, live[u], x, emit_fold_identity(e, FOLD_max, DT_f32, 1));
        m = join(e, FOLD_max, DT_f32, m, x);
    }
    LLVMValueRef from = within(e, m);
    for (uint32_t u = 0; u < n; u++) {
        (void)emit_switch(e, scope[u]);
        emit_override(e, l->lead, from);
        LLVMValueRef x = emit_value_lanes(e, g->k->ops[l->under].in[0]);
        x = emit_fold_lanes(e, FOLD_sum, DT_f32, x);
        if (live[u]) x = emit_select(e, live[u], x, emit_f(e, e->f32, 0));
        all = all ? LLVMBuildFAdd(e->b, all, x, "") : x;
    }
    (void)emit_switch(e, outer);
    t->under = LLVMBuildFAdd(e->b, scaled(e, t->under, t->lead, from), all, "");
    t->lead = m;
}

/* --- Squares around a mean -------------------------------------------------------------------- */

/* Of no elements: 0, or what it takes the sum for. */
static LLVMValueRef mean_of(Emit *e, LLVMValueRef sum, LLVMValueRef count) {
    LLVMValueRef v[2] = {count, emit_f(e, e->f32, 1)};
    v[0] = emit_intrinsic(e, "llvm.maxnum", e->f32, v, 2);
    return LLVMBuildFMul(e->b, sum, gpu_rcp(e, v[0]), "");
}

/* Squares around one mean become those around another. */
static LLVMValueRef moved(Emit *e, const TeamPair *own, LLVMValueRef mean) {
    LLVMValueRef d = LLVMBuildFSub(e->b, mean_of(e, own->lead, own->count), mean, "");
    return emit_fma(e, LLVMBuildFMul(e->b, d, own->count, ""), d, own->under);
}

static LLVMValueRef moved_to(Emit *e, const TeamPair *own, const TeamPair *all) {
    return moved(e, own, mean_of(e, all->lead, all->count));
}

/* Of n vectors of lanes elements; live[u]: NULL, or where vector u counts. */
static LLVMValueRef count_of(Emit *e, LLVMValueRef *live, uint32_t n) {
    LLVMValueRef lanes = emit_f(e, e->f32, e->lanes), none = emit_f(e, e->f32, 0), c = NULL;
    for (uint32_t u = 0; u < n; u++) {
        LLVMValueRef x = live[u] ? LLVMBuildSelect(e->b, live[u], lanes, none, "") : lanes;
        c = c ? LLVMBuildFAdd(e->b, c, x, "") : x;
    }
    return c;
}

/* What op v is in n scopes, where they count, summed. */
static LLVMValueRef sum_of(Emit *e, KVal v, EmitScope **scope, LLVMValueRef *live, uint32_t n) {
    LLVMValueRef sum = NULL;
    for (uint32_t u = 0; u < n; u++) {
        (void)emit_switch(e, scope[u]);
        LLVMValueRef x = emit_fold_lanes(e, FOLD_sum, DT_f32, emit_value_lanes(e, v));
        if (live[u]) x = emit_select(e, live[u], x, emit_f(e, e->f32, 0));
        sum = sum ? LLVMBuildFAdd(e->b, sum, x, "") : x;
    }
    return sum;
}

static void fold_squares(const Long *l, EmitScope **scope, LLVMValueRef *live, uint32_t n,
                         TeamPair *t) {
    Emit *e = l->r->team.g->e;
    const KOp *ops = l->r->team.g->k->ops;
    EmitScope *outer = e->scope;
    TeamPair here = {.count = count_of(e, live, n)}, all;
    here.lead = sum_of(e, ops[l->lead].in[0], scope, live, n);
    LLVMValueRef mean = mean_of(e, here.lead, here.count);
    for (uint32_t u = 0; u < n; u++) {
        (void)emit_switch(e, scope[u]);
        emit_override(e, l->mean, mean);
    }
    here.under = sum_of(e, ops[l->under].in[0], scope, live, n);
    (void)emit_switch(e, outer);
    all.lead = LLVMBuildFAdd(e->b, t->lead, here.lead, "");
    all.count = LLVMBuildFAdd(e->b, t->count, here.count, "");
    LLVMValueRef to = mean_of(e, all.lead, all.count);
    all.under = LLVMBuildFAdd(e->b, moved(e, t, to), moved(e, &here, to), "");
    *t = all;
}

/* --- Both ------------------------------------------------------------------------------------- */

void row_fold_under(const Long *l, EmitScope **scope, LLVMValueRef *live, uint32_t n, TeamPair *t) {
    if (l->mean)
        fold_squares(l, scope, live, n, t);
    else
        fold_softmax(l, scope, live, n, t);
}

TeamPair row_under_begin(const Long *l) {
    Emit *e = l->r->team.g->e;
    LLVMValueRef zero = emit_f(e, e->f32, 0);
    if (l->mean) return (TeamPair){.lead = zero, .under = zero, .count = zero};
    return (TeamPair){.lead = emit_fold_identity(e, FOLD_max, DT_f32, 1), .under = zero};
}

Team row_team_under(const Long *l, const Pass *p) {
    Team team = l->r->team;
    if (!row_has_under(l, p)) return team;
    team.lead = l->lead, team.under = l->under, team.counts = l->mean != 0;
    team.scale = l->mean ? moved_to : scaled_within;
    return team;
}

/* Softmax's sum is no number where the maximum is none; a mean is the quotient that it is. */
LLVMValueRef row_under_result(const Long *l, LLVMValueRef lead, LLVMValueRef under) {
    Emit *e = l->r->team.g->e;
    if (l->mean) return under;
    LLVMValueRef none = LLVMBuildFCmp(e->b, LLVMRealUNE, lead, within(e, lead), "");
    return LLVMBuildSelect(e->b, none, emit_f(e, e->f32, NAN), under, "");
}
