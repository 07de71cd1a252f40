/* Choices of the row emitter: lane axis, copies, kept row values. They depend on the kernel and on
 * size hints only, so that equal kernels come out equal. */
#include "codegen/cpu/rows.h"

/* --- Lane axis ---------------------------------------------------------------------------- */

/* A vector from anywhere costs several from neighbours: what tells one axis from another. */
#define FROM_ANYWHERE 2.5

/* How accesses like lanes along the axis: contiguous good, strided bad, from anywhere as bad as
 * `anywhere` says. With the lanes of the widest variant, for the lane axis decides work items. */
static double access_score(Rows *r, uint32_t axis, double anywhere) {
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
        if (!rows_stride(&r->p, o->index, axis, &s))
            score -= anywhere * w;
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
        if (rows_is_walk(&r->k->ops[v]) || r->k->ops[v].op == K_kcompact) return true;
    return false;
}

static KVal find_sort(const Rows *r) {
    for (KVal v = 1; v < r->k->nops; v++)
        if (r->k->ops[v].op == K_ksort) return v;
    return 0;
}

/* Rows keep their reductions' latency: a parallel lane axis wins ties. */
static double lane_score(Rows *r, uint32_t axis, double anywhere) {
    double fill = axis_size(r, axis) / 16;
    double s = access_score(r, axis, anywhere);
    s = s > 0 ? s * (fill > 1 ? 1 : fill) : s;
    if (fill < 0.5) s -= 1;
    return s + (r->p.par >> axis & 1 ? 0.1 : 0);
}

/* A sort's moves differ from row to row: its lanes are neighbours of one row, if they are that in
 * memory, and if no scan goes along it one by one. */
static void choose_sort_lane(Rows *r, KVal sort) {
    const uint32_t axis = (uint32_t)__builtin_ctz(r->k->ops[sort].axes);
    for (KVal v = 1; v < r->k->nops; v++)
        if (r->k->ops[v].op == K_kscan) return;
    if (access_score(r, axis, FROM_ANYWHERE) > 0) r->lane = (int)axis;
}

/* A scan may go over a vector of rows. */
static void choose_lane(Rows *r) {
    r->lane = -1;
    if (r->e->lanes == 1) return;
    const KVal sort = find_sort(r);
    if (sort) {
        choose_sort_lane(r, sort);
        return;
    }
    double best = -1e9;
    bool row_op = has_row_op(r);
    for (uint32_t i = 0; i < r->k->naxes; i++) {
        bool par = r->p.par >> i & 1;
        bool walked = false;
        for (uint32_t p = 0; p < r->p.npasses; p++) walked |= r->p.pass[p].axes >> i & 1;
        if ((!par && !walked) || (row_op && !par) || (r->p.ordered >> i & 1)) continue;
        double s = lane_score(r, i, FROM_ANYWHERE);
        if (s >= best) {
            best = s;
            r->lane = (int)i;
        }
    }
    double worth = r->lane >= 0 ? lane_score(r, (uint32_t)r->lane, 1) : best;
    if (worth <= -2 || (row_op && worth <= 0)) r->lane = -1;
    if (r->lane >= 0) r->lane_par = r->p.par >> r->lane & 1;
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
    rows_cone(&r->p, v, cone);
    return rows_cost(&r->p, cone);
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
    for (uint32_t p = 0; p < r->p.npasses; p++) {
        KVal v = r->p.pass[p].nfolds ? r->p.pass[p].folds[0] : 0;
        if (!v || !rows_is_walk(&r->k->ops[v])) continue;
        if (r->nkept == ROWS_MAX_KEPT) return false;
        uint32_t axis = (uint32_t)__builtin_ctz(r->k->ops[v].axes);
        r->kept[r->nkept] = (Kept){.v = v, .axis = axis};
        r->keeps[p] |= 1u << r->nkept++;
    }
    return true;
}

static void plan_kept(Rows *r) {
    for (uint32_t a = 0; a < r->p.npasses; a++) {
        Pass *p = &r->p.pass[a];
        if (!p->axes || (p->axes & (p->axes - 1)) || !p->nfolds) continue;
        if (rows_is_walk(&r->k->ops[p->folds[0]])) continue;
        uint32_t axis = (uint32_t)__builtin_ctz(p->axes);
        if (axis_size(r, axis) > 16384) continue;
        for (uint32_t b = a + 1; b < r->p.npasses; b++) {
            Pass *q = &r->p.pass[b];
            if (q->axes != p->axes || (q->nfolds && rows_is_walk(&r->k->ops[q->folds[0]])))
                continue;
            for (KVal v = 1; v < r->k->nops; v++) {
                if (!p->cone[v] || !q->cone[v] || !(r->dom[v] >> axis & 1)) continue;
                if (r->k->ops[v].dtype == DT_bool || r->k->ops[v].op == K_kbind) continue;
                uint32_t at = 0;
                while (at < r->nkept && r->kept[at].v != v) at++;
                if (at < r->nkept || !frontier(r, q, p, v) || cone_cost(r, v) < 8) continue;
                if (r->nkept == ROWS_MAX_KEPT) continue;
                r->kept[r->nkept] = (Kept){.v = v, .axis = axis};
                r->keeps[a] |= 1u << r->nkept++;
            }
        }
    }
}

/* --- Copies ------------------------------------------------------------------------------- */

static uint32_t max_folds(const Rows *r) {
    uint32_t n = 0;
    for (uint32_t p = 0; p < r->p.npasses; p++)
        if (r->p.pass[p].nfolds > n) n = r->p.pass[p].nfolds;
    return n;
}

static uint32_t body_cost(const Rows *r) {
    uint32_t n = 0;
    for (uint32_t p = 0; p < r->p.npasses; p++) n += rows_cost(&r->p, r->p.pass[p].cone);
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
        if (!(r->p.par >> i & 1) || (int)i == r->lane) continue;
        if (axis_size(r, i) >= copies) return (int)i;
    }
    return -1;
}

/* Whether neighbours along the axis read something in common on a walk: weights, or windows that
 * overlap. Otherwise they are rows far apart, and vectors side by side are the better copies. */
static bool neighbours_share(const Rows *r, uint32_t axis) {
    ExprPool *p = r->e->exprs;
    Expr step, coef, rest;
    for (KVal v = 1; v < r->k->nops; v++) {
        const KOp *o = &r->k->ops[v];
        if (o->op != K_kload || !(r->dom[v] & ~r->p.par)) continue;
        if (!(r->dom[v] >> axis & 1)) return true;
        if (!expr_affine(p, o->index, r->k->axes[axis].sym, &step, &rest)) return true;
        for (uint32_t i = 0; i < r->k->naxes; i++) {
            if ((r->p.par >> i & 1) || !(r->dom[v] >> i & 1)) continue;
            if (!expr_affine(p, o->index, r->k->axes[i].sym, &coef, &rest)) return true;
            if (expr_hint(p, step) < expr_hint(p, coef) * (int64_t)axis_size(r, i)) return true;
        }
    }
    return false;
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

/* Loads whose address waits for the load before, at most. */
static uint32_t chain_length(const Rows *r) {
    const Kernel *k = r->k;
    uint32_t *after = ARENA_ARRAY(r->e->arena, uint32_t, k->nops), most = 0;
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        for (int i = 0; i < 3; i++)
            if (after[o->in[i]] > after[v]) after[v] = after[o->in[i]];
        if (o->op != K_kload) continue;
        for (KVal b = 1; b < v; b++)
            if (k->ops[b].op == K_kbind && after[b] > after[v] &&
                expr_uses(r->e->exprs, o->index, k->ops[b].sym))
                after[v] = after[b];
        if (++after[v] > most) most = after[v];
    }
    return most;
}

/* A row that walks from one load to the next, as through a tree, leaves the processor waiting: as
 * many rows go side by side as it takes to keep it busy. */
static void choose_chains(Rows *r) {
    enum { LONG_CHAIN = 4, MOST_COST = 1024, CHAINS = 8 };
    if (r->p.ordered || body_cost(r) > MOST_COST || chain_length(r) < LONG_CHAIN) return;
    r->tile = tile_axis(r, CHAINS);
    r->chained = r->tile >= 0;
    if (r->chained) r->tile_copies = CHAINS;
}

/* Copies of which loads are turned: as many as the widest vectors have lanes. */
static void choose_turn(Rows *r, uint32_t cost) {
    enum { MOST_COST = 16 };
    const uint32_t n = r->e->widest;
    Expr where;
    if (n < 2 || n > ROWS_MAX_COPIES || cost > MOST_COST || axis_size(r, (uint32_t)r->lane) < n)
        return;
    if (rows_piece(&r->p, r->lane, &where)) return;
    for (uint32_t i = r->k->naxes; i-- > 0 && !r->turned;) {
        if (!(r->p.par >> i & 1) || (int)i == r->lane || axis_size(r, i) < n) continue;
        r->turned = rows_turns(r, i);
        if (r->turned) r->tile = (int)i;
    }
    if (!r->turned) return;
    r->tile_copies = n;
    r->lane_copies = 1;
}

/* All of a short axis as copies, where that puts what is stored side by side. Pieces of a join
 * along that axis are copies then. */
static void choose_join(Rows *r, uint32_t cost) {
    enum { MOST_COST = 256 };
    int64_t n;
    Expr where;
    const bool pieces = rows_piece(&r->p, r->lane, &where);
    for (uint32_t i = 0; i < r->k->naxes && !r->joined && !r->turned; i++) {
        if (!(r->p.par >> i & 1) || (int)i == r->lane) continue;
        if (pieces && !expr_uses(r->e->exprs, where, r->k->axes[i].sym)) continue;
        if (!expr_is_const(r->e->exprs, r->k->axes[i].extent, &n)) continue;
        if ((n != 2 && n != 4 && n != 8) || cost * n > MOST_COST || !rows_joins(r, i, n)) continue;
        r->joined = true;
        r->tile = (int)i;
        r->tile_copies = (uint32_t)n;
        r->lane_copies = 1;
    }
}

static void choose_copies(Rows *r) {
    uint32_t cost = body_cost(r), folds = max_folds(r);
    r->tile = -1;
    r->tile_copies = r->lane_copies = 1;
    if (r->p.ordered && r->lane_par) r->lane_copies = 4;
    if (r->k->serial || has_row_op(r) || any_arg_fold(r)) return;
    if (r->lane < 0) {
        choose_chains(r);
        return;
    }
    if (r->lane_par) {
        if (!folds) {
            r->lane_copies = cost <= 8 ? 4 : cost <= 40 ? 2 : 1;
            choose_turn(r, cost);
            choose_join(r, cost);
        } else if (folds <= 2 && cost <= 60) {
            r->tile = tile_axis(r, 4);
            if (r->tile >= 0 && axis_size(r, (uint32_t)r->lane) >= 64 &&
                !neighbours_share(r, (uint32_t)r->tile))
                r->tile = -1;
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
    int64_t chunk = r->p.ordered ? 4 * r->e->widest : max_folds(r) ? 256 : cost > 64 ? 512 : 2048;
    if (expr_is_const(r->e->exprs, extent, &n) && n <= chunk + chunk / 2)
        r->chunk = extent;
    else
        r->chunk = expr_const(r->e->exprs, chunk);
}

bool rows_choose(Rows *r) {
    choose_lane(r);
    narrow_lanes(r);
    choose_copies(r);
    trim_lane_copies(r);
    if (r->lane >= 0 && r->lane_par) choose_chunk(r);
    if (!keep_rows(r)) return false;
    plan_kept(r);
    r->chained &= !r->nkept;
    for (uint32_t i = 0; i < r->nkept; i++)
        r->kept[i].varies = r->lane_par && r->dom[r->kept[i].v] >> r->lane & 1;
    return true;
}
