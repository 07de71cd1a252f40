/* Choices of the row emitter: passes, lane axis, copies, kept row values. They depend on the kernel
 * and on size hints only, so that equal kernels come out equal. */
#include "codegen/rows/rows.h"

static bool is_effect(const KOp *o) {
    return o->op == K_kstore || o->op == K_katomic || o->op == K_kcompact;
}

static bool is_row_op(const KOp *o) {
    return o->op == K_kscan || o->op == K_ksort;
}

static uint32_t par_axes(const Kernel *k) {
    uint32_t m = 0;
    for (uint32_t i = 0; i < k->naxes; i++)
        if (k->axes[i].kind == AX_PAR) m |= 1u << i;
    return m;
}

bool rows_in_pass(const Rows *r, KVal v) {
    return r->k->ops[v].op == K_kreduce && !(r->dom[v] & ~r->par);
}

static bool summed(const Rows *r, KVal v) {
    for (KVal u = v + 1; u < r->k->nops; u++)
        if (r->k->ops[u].op == K_kreduce && r->k->ops[u].fold == FOLD_sum &&
            r->k->ops[u].in[0] == v)
            return true;
    return false;
}

/* m = max x, every use of m is x - m, and exp(x - m) is summed. */
EmitJoin rows_join(const Rows *r, KVal v) {
    const KOp *m = &r->k->ops[v];
    bool sum = false;
    if (m->op != K_kreduce || m->fold != FOLD_max) return emit_fold_join;
    for (KVal u = v + 1; u < r->k->nops; u++) {
        const KOp *o = &r->k->ops[u];
        bool used = o->in[0] == v || o->in[1] == v || o->in[2] == v;
        if (used && (o->op != OP_sub || o->in[0] != m->in[0])) return emit_fold_join;
        if (o->op != OP_exp || !r->k->ops[o->in[0]].op) continue;
        const KOp *d = &r->k->ops[o->in[0]];
        sum |= d->op == OP_sub && d->in[1] == v && summed(r, u);
    }
    return sum ? emit_fold_numbers : emit_fold_join;
}

/* --- Cones -------------------------------------------------------------------------------- */

typedef struct ConeWalk {
    const Rows *r;
    bool *cone;
} ConeWalk;

static void cone_of(const Rows *r, KVal v, bool *cone);

static void cone_sym(void *ctx, uint32_t sym) {
    ConeWalk *w = ctx;
    uint32_t bind;
    if (map_get(w->r->e->indirect, sym, &bind)) cone_of(w->r, bind, w->cone);
}

/* What computing v takes, stopping at folds with a pass of their own. */
static void cone_of(const Rows *r, KVal v, bool *cone) {
    if (!v || cone[v]) return;
    cone[v] = true;
    const KOp *o = &r->k->ops[v];
    ConeWalk w = {r, cone};
    if (o->index) expr_each_sym(r->e->exprs, o->index, cone_sym, &w);
    if (o->mask) expr_each_sym(r->e->exprs, o->mask, cone_sym, &w);
    for (int i = 0; i < 3; i++)
        if (o->in[i] && !rows_in_pass(r, o->in[i]) && !is_row_op(&r->k->ops[o->in[i]]))
            cone_of(r, o->in[i], cone);
}

static bool *cone_of_pass(const Rows *r, const Pass *p) {
    bool *cone = ARENA_ARRAY(r->e->arena, bool, r->k->nops);
    for (uint32_t i = 0; i < p->nfolds; i++) cone_of(r, r->k->ops[p->folds[i]].in[0], cone);
    for (uint32_t i = 0; i < p->nstores; i++) cone_of(r, p->stores[i], cone);
    return cone;
}

static double op_cost(const KOp *o) {
    if (o->op == K_kreduce) return 64;
    if (o->op == K_kload) return 2;
    return o->op < OP_COUNT ? (double)op_info[o->op].cost : 0;
}

uint32_t rows_cost(const Rows *r, const bool *cone) {
    double c = 0;
    for (KVal v = 1; v < r->k->nops; v++)
        if (cone[v]) c += op_cost(&r->k->ops[v]);
    return (uint32_t)c;
}

/* --- Passes ------------------------------------------------------------------------------- */

typedef struct NeedWalk {
    const Rows *r;
    bool *need;
} NeedWalk;

static void need_of(const Rows *r, KVal v);

static void need_sym(void *ctx, uint32_t sym) {
    const Rows *r = ctx;
    uint32_t bind;
    if (map_get(r->e->indirect, sym, &bind)) need_of(r, bind);
}

static void need_of(const Rows *r, KVal v) {
    if (!v || r->need[v]) return;
    r->need[v] = true;
    const KOp *o = &r->k->ops[v];
    if (o->index) expr_each_sym(r->e->exprs, o->index, need_sym, (void *)(uintptr_t)r);
    if (o->mask) expr_each_sym(r->e->exprs, o->mask, need_sym, (void *)(uintptr_t)r);
    for (int i = 0; i < 3; i++) need_of(r, o->in[i]);
}

/* 1 + the highest level among the folds that v's cone uses. */
static uint32_t level_of(const Rows *r, KVal v, uint32_t *memo) {
    if (!v) return 0;
    if (memo[v]) return memo[v] - 1;
    const KOp *o = &r->k->ops[v];
    uint32_t l = 0;
    for (int i = 0; i < 3; i++) {
        uint32_t x = level_of(r, o->in[i], memo);
        if (x > l) l = x;
    }
    for (KVal b = 1; b < v; b++) {
        if (r->k->ops[b].op != K_kbind) continue;
        uint32_t s = r->k->ops[b].sym;
        if ((o->index && expr_uses(r->e->exprs, o->index, s)) ||
            (o->mask && expr_uses(r->e->exprs, o->mask, s))) {
            uint32_t x = level_of(r, b, memo);
            if (x > l) l = x;
        }
    }
    if (rows_in_pass(r, v) || is_row_op(o)) l++;
    memo[v] = l + 1;
    return l;
}

static Pass *pass_for(Rows *r, uint32_t axes) {
    if (r->npasses == ROWS_MAX_PASSES) return NULL;
    Pass *p = &r->pass[r->npasses++];
    p->axes = axes;
    p->folds = ARENA_ARRAY(r->e->arena, KVal, r->k->nops);
    p->stores = ARENA_ARRAY(r->e->arena, KVal, r->k->nops);
    return p;
}

/* Folds of one level over the same axes share a pass; a scan or sort has its own. */
static bool plan_folds(Rows *r, uint32_t *memo) {
    uint32_t top = 0;
    for (KVal v = 1; v < r->k->nops; v++)
        if (r->need[v] && level_of(r, v, memo) > top) top = level_of(r, v, memo);
    for (uint32_t l = 1; l <= top; l++) {
        uint32_t first = r->npasses;
        for (KVal v = 1; v < r->k->nops; v++) {
            const KOp *o = &r->k->ops[v];
            if (!r->need[v] || memo[v] != l + 1) continue;
            if (!rows_in_pass(r, v) && !is_row_op(o)) continue;
            Pass *p = NULL;
            for (uint32_t i = first; i < r->npasses && !is_row_op(o); i++)
                if (r->pass[i].axes == o->axes && !is_row_op(&r->k->ops[r->pass[i].folds[0]]))
                    p = &r->pass[i];
            if (p && p->nfolds == ROWS_MAX_FOLDS) p = NULL;
            if (!p) p = pass_for(r, o->axes);
            if (!p) return false;
            p->folds[p->nfolds++] = v;
        }
    }
    return true;
}

static bool plan_stores(Rows *r) {
    uint32_t first = r->npasses;
    for (KVal v = 1; v < r->k->nops; v++) {
        const KOp *o = &r->k->ops[v];
        if (o->op != K_kstore && o->op != K_katomic) continue;
        uint32_t axes = r->dom[v] & ~r->par;
        Pass *p = NULL;
        for (uint32_t i = first; i < r->npasses; i++)
            if (r->pass[i].axes == axes) p = &r->pass[i];
        if (!p) p = pass_for(r, axes);
        if (!p) return false;
        p->stores[p->nstores++] = v;
    }
    return true;
}

/* --- Lane axis ---------------------------------------------------------------------------- */

bool rows_stride(Rows *r, Expr x, uint32_t axis, Expr *stride) {
    Expr rest;
    bool computed = false;
    for (KVal v = 1; v < r->k->nops; v++) {
        if (r->k->ops[v].op != K_kbind || !expr_uses(r->e->exprs, x, r->k->ops[v].sym)) continue;
        if (r->dom[v] >> axis & 1) return false;
        computed = true;
    }
    if (!computed) return emit_lane_stride(r->e, x, stride);
    return expr_affine(r->e->exprs, x, r->k->axes[axis].sym, stride, &rest);
}

/* How accesses like lanes along the axis: contiguous good, gathered bad. With the lanes of the
 * widest variant, for the lane axis decides work items. */
static double access_score(Rows *r, uint32_t axis) {
    Emit *e = r->e;
    double score = 0;
    uint32_t lanes = e->lanes, lane_sym = e->lane_sym;
    SymInfo lane = {.name = "lane", .kind = SYM_AXIS, .lo = 0, .hi = e->widest - 1};
    e->lanes = e->widest;
    (void)expr_is_sym(e->exprs, expr_sym_new(e->exprs, lane), &e->lane_sym);
    emit_push(e);
    Expr base = emit_new_sym(e, "probe", INT32_MAX, emit_i64(e, 0));
    emit_bind_lanes(e, r->k->axes[axis].sym, base, NULL, true);
    for (KVal v = 1; v < r->k->nops; v++) {
        const KOp *o = &r->k->ops[v];
        if ((o->op != K_kload && o->op != K_kstore) || !(r->dom[v] >> axis & 1)) continue;
        Expr s;
        double w = 1;
        for (uint32_t i = 0; i < r->k->naxes; i++)
            if (r->dom[v] >> i & 1 && r->k->axes[i].kind == AX_RED) w = 2;
        if (!rows_stride(r, o->index, axis, &s))
            score -= w;
        else if (expr_is_value(e->exprs, s, 1))
            score += w;
        else if (!expr_is_value(e->exprs, s, 0))
            score -= w;
    }
    emit_pop(e);
    e->lanes = lanes;
    e->lane_sym = lane_sym;
    return score;
}

static double axis_size(const Rows *r, uint32_t axis) {
    int64_t n = expr_hint(r->e->exprs, r->k->axes[axis].extent);
    return n < 1 ? 1 : (double)n;
}

static bool has_row_op(const Rows *r) {
    for (KVal v = 1; v < r->k->nops; v++)
        if (is_row_op(&r->k->ops[v]) || r->k->ops[v].op == K_kcompact) return true;
    return false;
}

static bool has_sort(const Rows *r) {
    for (KVal v = 1; v < r->k->nops; v++)
        if (r->k->ops[v].op == K_ksort) return true;
    return false;
}

/* A scan may go over a vector of rows; a sort's moves differ from row to row. */
static void choose_lane(Rows *r) {
    r->lane = -1;
    if (r->e->lanes == 1 || has_sort(r)) return;
    double best = -1e9;
    bool row_op = has_row_op(r);
    for (uint32_t i = 0; i < r->k->naxes; i++) {
        bool par = r->par >> i & 1;
        bool walked = false;
        for (uint32_t p = 0; p < r->npasses; p++) walked |= r->pass[p].axes >> i & 1;
        if ((!par && !walked) || (row_op && !par)) continue;
        double fill = axis_size(r, i) / 16;
        double s = access_score(r, i);
        /* Rows keep their reductions' latency: a parallel lane axis wins ties. */
        s = s > 0 ? s * (fill > 1 ? 1 : fill) : s;
        if (fill < 0.5) s -= 1;
        s += par ? 0.1 : 0;
        if (s >= best) {
            best = s;
            r->lane = (int)i;
        }
    }
    if (best <= -2 || (row_op && best <= 0)) r->lane = -1;
    if (r->lane >= 0) r->lane_par = r->par >> r->lane & 1;
}

/* No wider than the lane axis needs: short axes are cheaper without masks. */
static void narrow_lanes(Rows *r) {
    int64_t n;
    if (r->lane < 0)
        r->e->lanes = 1;
    else if (expr_is_const(r->e->exprs, r->k->axes[r->lane].extent, &n))
        while (r->e->lanes > 2 && n <= r->e->lanes / 2) r->e->lanes /= 2;
}

/* --- Kept row values ---------------------------------------------------------------------- */

static uint32_t cone_cost(const Rows *r, KVal v) {
    bool *cone = ARENA_ARRAY(r->e->arena, bool, r->k->nops);
    cone_of(r, v, cone);
    return rows_cost(r, cone);
}

/* True if the pass uses v for something that the earlier pass did not compute too. */
static bool frontier(const Rows *r, const Pass *now, const Pass *before, KVal v) {
    for (uint32_t i = 0; i < now->nfolds; i++)
        if (r->k->ops[now->folds[i]].in[0] == v) return true;
    for (KVal u = v + 1; u < r->k->nops; u++) {
        if (!now->cone[u] || before->cone[u]) continue;
        const KOp *o = &r->k->ops[u];
        if (o->in[0] == v || o->in[1] == v || o->in[2] == v) return true;
    }
    return false;
}

/* Scans and sorts leave their whole row in scratch. */
static bool keep_rows(Rows *r) {
    for (uint32_t p = 0; p < r->npasses; p++) {
        KVal v = r->pass[p].nfolds ? r->pass[p].folds[0] : 0;
        if (!v || !is_row_op(&r->k->ops[v])) continue;
        if (r->nkept == ROWS_MAX_KEPT) return false;
        uint32_t axis = (uint32_t)__builtin_ctz(r->k->ops[v].axes);
        r->kept[r->nkept] = (Kept){.v = v, .axis = axis};
        r->pass[p].keeps |= 1u << r->nkept++;
    }
    return true;
}

static void plan_kept(Rows *r) {
    for (uint32_t a = 0; a < r->npasses; a++) {
        Pass *p = &r->pass[a];
        if (!p->axes || (p->axes & (p->axes - 1)) || !p->nfolds) continue;
        if (is_row_op(&r->k->ops[p->folds[0]])) continue;
        uint32_t axis = (uint32_t)__builtin_ctz(p->axes);
        if (axis_size(r, axis) > 16384) continue;
        for (uint32_t b = a + 1; b < r->npasses; b++) {
            Pass *q = &r->pass[b];
            if (q->axes != p->axes || (q->nfolds && is_row_op(&r->k->ops[q->folds[0]]))) continue;
            for (KVal v = 1; v < r->k->nops; v++) {
                if (!p->cone[v] || !q->cone[v] || !(r->dom[v] >> axis & 1)) continue;
                if (r->k->ops[v].dtype == DT_bool || r->k->ops[v].op == K_kbind) continue;
                uint32_t at = 0;
                while (at < r->nkept && r->kept[at].v != v) at++;
                if (at < r->nkept || !frontier(r, q, p, v) || cone_cost(r, v) < 8) continue;
                if (r->nkept == ROWS_MAX_KEPT) continue;
                r->kept[r->nkept] = (Kept){.v = v, .axis = axis};
                p->keeps |= 1u << r->nkept++;
            }
        }
    }
}

/* --- Copies ------------------------------------------------------------------------------- */

static uint32_t max_folds(const Rows *r) {
    uint32_t n = 0;
    for (uint32_t p = 0; p < r->npasses; p++)
        if (r->pass[p].nfolds > n) n = r->pass[p].nfolds;
    return n;
}

static uint32_t body_cost(const Rows *r) {
    uint32_t n = 0;
    for (uint32_t p = 0; p < r->npasses; p++) n += rows_cost(r, r->pass[p].cone);
    return n;
}

static bool any_arg_fold(const Rows *r) {
    for (KVal v = 1; v < r->k->nops; v++)
        if (r->k->ops[v].op == K_kreduce && r->k->ops[v].fold >= FOLD_argmax) return true;
    return false;
}

/* The innermost parallel axis beside the lanes, if it has enough values. */
static int tile_axis(const Rows *r, uint32_t copies) {
    for (uint32_t i = r->k->naxes; i-- > 0;) {
        if (!(r->par >> i & 1) || (int)i == r->lane) continue;
        if (axis_size(r, i) >= copies) return (int)i;
    }
    return -1;
}

/* Up to `most` copies that leave the fewest values of the axis for the last, short block. */
static uint32_t fit_copies(const Rows *r, uint32_t axis, uint32_t most) {
    int64_t n;
    if (!expr_is_const(r->e->exprs, r->k->axes[axis].extent, &n)) return most;
    uint32_t best = most;
    for (uint32_t c = most; c > most / 2; c--)
        if ((n + c - 1) / c * c - n < (n + best - 1) / best * best - n) best = c;
    return n < best ? (uint32_t)n : best;
}

static void choose_copies(Rows *r) {
    uint32_t cost = body_cost(r), folds = max_folds(r);
    r->tile = -1;
    r->tile_copies = r->lane_copies = 1;
    if (r->k->serial || has_row_op(r) || any_arg_fold(r) || r->lane < 0) return;
    if (r->lane_par) {
        if (!folds) {
            r->lane_copies = cost <= 8 ? 4 : cost <= 40 ? 2 : 1;
        } else if (folds <= 2 && cost <= 60) {
            r->tile = tile_axis(r, 4);
            if (r->tile >= 0)
                r->tile_copies = fit_copies(r, (uint32_t)r->tile, folds == 1 ? 8 : 4);
            else
                r->lane_copies = 4;
        }
        return;
    }
    if (folds && axis_size(r, (uint32_t)r->lane) <= 512 && cost <= 120) {
        r->tile = tile_axis(r, 4);
        r->tile_copies = r->tile < 0 ? 1 : 4;
    }
}

/* No more lane blocks side by side than the axis has. */
static void trim_lane_copies(Rows *r) {
    int64_t n;
    if (r->lane < 0 || !expr_is_const(r->e->exprs, r->k->axes[r->lane].extent, &n)) return;
    while (r->lane_copies > 1 && n < (int64_t)r->lane_copies * r->e->lanes) r->lane_copies /= 2;
}

static void choose_chunk(Rows *r) {
    Expr extent = r->k->axes[r->lane].extent;
    int64_t n;
    uint32_t cost = body_cost(r);
    int64_t chunk = max_folds(r) ? 256 : cost > 64 ? 512 : 2048;
    if (expr_is_const(r->e->exprs, extent, &n) && n <= chunk + chunk / 2)
        r->chunk = extent;
    else
        r->chunk = expr_const(r->e->exprs, chunk);
}

bool rows_plan(Rows *r) {
    uint32_t *memo = ARENA_ARRAY(r->e->arena, uint32_t, r->k->nops);
    r->need = ARENA_ARRAY(r->e->arena, bool, r->k->nops);
    r->par = par_axes(r->k);
    for (KVal v = 1; v < r->k->nops; v++)
        if (is_effect(&r->k->ops[v])) need_of(r, v);
    if (!plan_folds(r, memo) || !plan_stores(r)) return false;
    for (uint32_t p = 0; p < r->npasses; p++) r->pass[p].cone = cone_of_pass(r, &r->pass[p]);
    choose_lane(r);
    narrow_lanes(r);
    choose_copies(r);
    trim_lane_copies(r);
    if (r->lane >= 0 && r->lane_par) choose_chunk(r);
    if (r->no_scratch) return true;
    if (!keep_rows(r)) return false;
    plan_kept(r);
    for (uint32_t i = 0; i < r->nkept; i++)
        r->kept[i].varies = r->lane_par && r->dom[r->kept[i].v] >> r->lane & 1;
    return true;
}
