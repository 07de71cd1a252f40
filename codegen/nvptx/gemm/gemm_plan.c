/* Which contractions go to tensor cores, and in which tiles. */
#include "codegen/nvptx/gemm/gemm.h"

static bool matrix_of(Gpu *g, const KOp *o, uint32_t rows, uint32_t cols, HopMatrix *out) {
    return hop_matrix(g, o, rows, cols, g->k->dot.batch, out);
}

/* --- The kernel ------------------------------------------------------------------------------- */

/* What is multiplied, and what the sums are. */
// clang-format off
static const struct {
    DType a, b, sum;
    WgmmaType type;
} products[] = {
    {DT_f32, DT_f32, DT_f32, WGMMA_tf32},
    {DT_bf16, DT_bf16, DT_f32, WGMMA_bf16},
    {DT_f16, DT_f16, DT_f32, WGMMA_f16},
    {DT_f8e4m3fn, DT_f8e4m3fn, DT_f32, WGMMA_e4m3},
    {DT_f8e5m2, DT_f8e5m2, DT_f32, WGMMA_e5m2},
    {DT_i8, DT_i8, DT_i32, WGMMA_s8},
    {DT_i8, DT_u8, DT_i32, WGMMA_s8_u8},
    {DT_u8, DT_i8, DT_i32, WGMMA_u8_s8},
    {DT_u8, DT_u8, DT_i32, WGMMA_u8},
};
// clang-format on

/* NULL, or why matrix units have no such product. */
static const char *wgmma_type(DType a, DType b, DType sum, WgmmaType *out) {
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        if (products[i].a != a || products[i].b != b) continue;
        *out = products[i].type;
        return products[i].sum == sum ? NULL : "sums are of another type";
    }
    return "operands differ in type";
}

static bool is_multiplied(DType a) {
    bool is = false;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) is |= products[i].a == a;
    return is;
}

/* A cast that keeps every number, to what bytes or floats of 16 bits are computed in. */
static bool widens(const Kernel *k, const KOp *o) {
    DType to = (DType)o->dtype;
    if (o->op != OP_cast || (to != DT_f32 && to != DT_i16 && to != DT_i32)) return false;
    DType from = (DType)k->ops[o->in[0]].dtype;
    bool same = dtype_is_int(to) ? dtype_is_int(from) : dtype_is_float(from);
    return same && dtype_bytes(from) < dtype_bytes(to);
}

/* The load behind a factor: itself, or widened. */
static const KOp *factor_load(const Kernel *k, KVal v) {
    const KOp *o = &k->ops[v];
    while (widens(k, o)) o = &k->ops[o->in[0]];
    return o->op == K_kload && !o->in[0] ? o : NULL;
}

/* The access as matrices of `rows` x `cols` axes, one for each part. */
static bool part_matrices(Gpu *g, const GemmPlan *p, const KOp *o, uint32_t rows, uint32_t cols,
                          uint32_t batch, HopMatrix *out) {
    ExprPool *q = g->e->exprs;
    for (uint32_t i = 0; i < p->parts; i++) {
        KOp at = *o;
        if (p->part_axis) {
            Expr part = expr_const(q, i);
            uint32_t axis = (uint32_t)__builtin_ctz(p->part_axis);
            at.index = expr_subst(q, o->index, &g->k->axes[axis].sym, &part, 1);
        }
        if (!hop_matrix(g, &at, rows, cols, batch, &out[i])) return false;
    }
    return true;
}

static const char *plan_operand(Gpu *g, const GemmPlan *p, KVal v, uint32_t rows, uint32_t k,
                                uint32_t batch, GemmOperand *out) {
    const KOp *o = factor_load(g->k, v);
    if (!o) return "an operand is computed, not loaded";
    out->across = false;
    if (part_matrices(g, p, o, rows, k, batch, out->mat)) return NULL;
    out->across = true;
    if (part_matrices(g, p, o, k, rows, batch, out->mat))
        return dtype_bytes((DType)o->dtype) > 1 ? NULL
                                                : "an operand of 8 bits has rows across the sum";
    /* A convolution's only result: of a product, other structures read B as fast. */
    out->across = false;
    if (p->windowed && p->parts == 1 && hop_row(g, o, rows, k, batch, out->mat)) return NULL;
    return "an operand's rows are not 16-byte aligned, or not evenly spaced";
}

/* A, where it is no matrix: positions of a window. */
static const char *plan_window(Gpu *g, GemmPlan *p) {
    const KOp *o = factor_load(g->k, g->k->dot.a);
    const char *why = o ? window_of(g, o, &p->window) : "an operand is computed, not loaded";
    if (why) return why;
    p->windowed = true;
    p->a = (GemmOperand){.mat = {{.t = p->window.t, .pitch = p->window.dim[0].pitch}}};
    return NULL;
}

/* An axis of k with few points, which an operand is not evenly spaced along. */
static void find_parts(Gpu *g, GemmPlan *p) {
    const Kernel *k = g->k;
    const KDot *d = &k->dot;
    const KOp *o[2] = {factor_load(k, d->a), factor_load(k, d->b[0])};
    p->parts = 1;
    for (uint32_t i = 0; i < k->naxes && !p->part_axis; i++) {
        int64_t n;
        Expr coef, rest;
        if (!(d->k >> i & 1) || (d->k & ~(1u << i)) == 0) continue;
        if (!expr_is_const(g->e->exprs, k->axes[i].extent, &n) || n > GEMM_MAX_PARTS) continue;
        for (int s = 0; s < 2; s++) {
            if (!o[s] || expr_affine(g->e->exprs, o[s]->index, k->axes[i].sym, &coef, &rest))
                continue;
            p->parts = (uint32_t)n;
            p->part_axis = 1u << i;
        }
    }
}

static const char *plan_operands(Gpu *g, GemmPlan *p) {
    const KDot *d = &g->k->dot;
    WgmmaType type = 0;
    find_parts(g, p);
    uint32_t k = d->k & ~p->part_axis, batch = d->batch;
    const char *why = plan_operand(g, p, d->a, d->m, k, batch, &p->a);
    if (why && p->parts == 1) why = plan_window(g, p);
    if (why) return why;
    if (p->windowed) {
        k = 1u << p->window.channel;
        batch |= p->window.taps;
    }
    if (!is_multiplied(p->a.mat[0].t)) return "operands are not of 8, 16 or 32 bits";
    bool f32 = p->a.mat[0].t == DT_f32;
    p->tf32 = f32 && g->o->tf32;
    p->exact = f32 && !p->tf32;
    p->window.tf32 = p->tf32;
    if (f32 && (p->parts > 1 || d->nacc > 1)) return "several sums of f32";
    for (uint32_t s = 0; s < d->nacc; s++) {
        why = plan_operand(g, p, d->b[s], d->n, k, batch, &p->b[s]);
        if (why) return why;
        why = wgmma_type(p->a.mat[0].t, p->b[s].mat[0].t, (DType)g->k->ops[d->acc[s]].dtype, &type);
        if (why) return why;
        if (s && type != p->type) return "operands differ in type";
        if (p->b[s].across != p->b[0].across) return "operands differ in order";
        p->type = type;
    }
    bool narrow = dtype_is_float(p->a.mat[0].t) && dtype_bytes(p->a.mat[0].t) == 1;
    p->promoted = narrow || p->parts > 1 || p->exact;
    if (p->tf32 && (p->a.across || p->b[0].across)) return "rows of tf32 that do not lie along k";
    p->a.mat[0].tf32 = p->b[0].mat[0].tf32 = p->tf32;
    return NULL;
}

bool gemm_turns(Gpu *g) {
    const KDot *d = &g->k->dot;
    GemmPlan p = {.parts = 1};
    GemmOperand b;
    if (!g->e->isa->warpgroups || g->k->tem != TEM_dot || d->nacc != 1 || !d->k || !d->n)
        return false;
    const KOp *o = factor_load(g->k, d->b[0]);
    if (!o || o->dtype != DT_f32 || g->o->tf32) return false;
    return !plan_operand(g, &p, d->b[0], d->n, d->k, d->batch, &b) && b.across;
}

static bool is_acc(const KDot *d, KVal v) {
    for (uint32_t s = 0; s < d->nacc; s++)
        if (d->acc[s] == v) return true;
    return false;
}

/* --- Terms ------------------------------------------------------------------------------------ */

static bool is_term(const GemmPlan *p, KVal v) {
    for (uint32_t i = 0; i < p->nterms; i++)
        if (p->term[i].sum == v) return true;
    return false;
}

/* The one addition that reads v, or 0. */
static KVal next_sum(const Kernel *k, KVal v) {
    KVal found = 0;
    for (KVal u = v + 1; u < k->nops; u++)
        for (int i = 0; i < 3; i++) {
            if (k->ops[u].in[i] != v) continue;
            if (found || k->ops[u].op != OP_add || k->ops[u].dtype != DT_f32) return 0;
            found = u;
        }
    return found;
}

/* Nothing but additions stands between a and b, so that both may be added up together. */
static bool meet(const Kernel *k, KVal a, KVal b) {
    while ((a = next_sum(k, a)))
        for (KVal x = b; (x = next_sum(k, x));)
            if (x == a) return true;
    return false;
}

static const char *plan_term(Gpu *g, GemmPlan *p, KVal v) {
    const Kernel *k = g->k;
    const KDot *d = &k->dot;
    const KOp *o = &k->ops[v], *m = &k->ops[o->in[0]];
    if (p->nterms == GEMM_MAX_TERMS || p->parts > 1 || p->windowed || p->promoted)
        return "too many sums";
    if (o->fold != FOLD_sum || o->dtype != DT_f32 || m->op != OP_mul || (o->axes & d->k))
        return "other folds in the kernel";
    GemmTerm t = {.sum = v, .k = gpu_points(g->e, k, o->axes)};
    while (t.to < d->nacc && !meet(k, v, d->acc[t.to])) t.to++;
    if (t.to == d->nacc) return "a sum that is not added to the others";
    if ((g->e->domains[m->in[0]] & d->n) || (g->e->domains[m->in[1]] & d->m))
        return "a sum of other products";
    const char *why = plan_operand(g, p, m->in[0], d->m, o->axes, d->batch, &t.a);
    if (!why) why = plan_operand(g, p, m->in[1], d->n, o->axes, d->batch, &t.b);
    if (!why && (t.a.mat[0].t != p->a.mat[0].t || t.b.mat[0].t != p->a.mat[0].t))
        why = "operands differ in type";
    t.a.mat[0].tf32 = t.b.mat[0].tf32 = p->tf32;
    p->term[p->nterms++] = t;
    return why;
}

static const char *plan_terms(Gpu *g, GemmPlan *p) {
    const char *why = NULL;
    for (KVal v = 1; !why && v < g->k->nops; v++)
        if (g->k->ops[v].op == K_kreduce && !is_acc(&g->k->dot, v)) why = plan_term(g, p, v);
    return why;
}

/* --- The epilogue ----------------------------------------------------------------------------- */

/* Ops that the epilogue evaluates: what the stores need up to the sums. */
static void mark_epilogue(const Kernel *k, const GemmPlan *p, bool *needed) {
    for (KVal v = k->nops; v-- > 1;) {
        const KOp *o = &k->ops[v];
        if (o->op == K_kstore) needed[v] = true;
        if (!needed[v] || is_acc(&k->dot, v) || is_term(p, v)) continue;
        for (int i = 0; i < 3; i++)
            if (o->in[i]) needed[o->in[i]] = true;
    }
}

static uint32_t innermost(uint32_t axes) {
    return 31u - (uint32_t)__builtin_clz(axes);
}

static bool uses_axes(Emit *e, const Kernel *k, Expr x, uint32_t axes) {
    for (uint32_t i = 0; i < k->naxes; i++)
        if (axes >> i & 1 && x && expr_uses(e->exprs, x, k->axes[i].sym)) return true;
    return false;
}

/* Neighbouring columns are neighbours, or the same, in memory. */
static bool pairs_well(Gpu *g, const KOp *o) {
    Emit *e = g->e;
    Expr coef, rest;
    uint32_t axis = innermost(g->k->dot.n);
    if (uses_axes(e, g->k, o->mask, g->k->dot.n)) return false;
    if (!expr_affine(e->exprs, o->index, g->k->axes[axis].sym, &coef, &rest)) return false;
    return expr_is_value(e->exprs, coef, 0) || expr_is_value(e->exprs, coef, 1);
}

/* Instructions per element, roughly. */
static uint32_t ops_of(Op op) {
    switch (op) {
    case OP_exp: return 4;
    case OP_tanh:
    case OP_sigmoid:
    case OP_div: return 8;
    case OP_erf:
    case OP_log: return 16;
    default: return 1;
    }
}

enum { ADDEND_OUTS = 2 }; /* slabs of so many results have room side by side */

/* A load at the places of results. */
static bool is_of_tile(Gpu *g, const bool *needed, KVal v) {
    const KDot *d = &g->k->dot;
    bool load = needed[v] && g->k->ops[v].op == K_kload;
    return load && g->e->domains[v] & d->m && g->e->domains[v] & d->n;
}

static bool all_copied(const GemmPlan *p) {
    bool all = p->nouts <= ADDEND_OUTS;
    for (uint32_t i = 0; all && i < p->nouts; i++)
        all = p->out[i].copied && dtype_bytes(p->out[i].mat.t) == 2;
    return all;
}

/* With results through the copy engine, one 16-bit load at their places can come the same way: with
 * two results the only one, as others that threads make beside it are not ahead of stores then. */
static void plan_addend(Gpu *g, const bool *needed, GemmPlan *p) {
    const KDot *d = &g->k->dot;
    uint32_t loads = 0;
    for (KVal v = 1; v < g->k->nops; v++) loads += is_of_tile(g, needed, v);
    if (!all_copied(p) || (p->nouts > 1 && loads > 1)) return;
    for (KVal v = 1; v < g->k->nops && !p->addend; v++) {
        const KOp *o = &g->k->ops[v];
        if (!is_of_tile(g, needed, v) || o->in[0] || dtype_bytes((DType)o->dtype) != 2) continue;
        if (matrix_of(g, o, d->m, d->n, &p->addend_mat)) p->addend = v;
    }
}

/* An access that the threads make themselves. */
static bool by_threads(const GemmPlan *p, const Kernel *k, KVal v) {
    if (k->ops[v].op == K_kload) return true;
    for (uint32_t i = 0; i < p->nouts; i++)
        if (p->out[i].store == v) return !p->out[i].copied;
    return false;
}

/* Results that go through shared memory. */
static bool is_copied(DType t) {
    return dtype_bytes(t) == 2 || t == DT_i8 || t == DT_u8;
}

static const char *plan_epilogue(Gpu *g, GemmPlan *p) {
    const Kernel *k = g->k;
    const KDot *d = &k->dot;
    bool *needed = ARENA_ARRAY(g->e->arena, bool, k->nops);
    mark_epilogue(k, p, needed);
    p->pairs = expr_divisor(g->e->exprs, k->axes[innermost(d->n)].extent) % 2 == 0;
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        if (!needed[v] || is_acc(d, v) || is_term(p, v)) continue;
        if (g->e->domains[v] & d->k) return "the epilogue looks into the sum";
        if (o->op < OP_COUNT) p->epilogue_ops += ops_of((Op)o->op);
        if (o->op == K_kload || o->op == K_kstore) {
            bool copied = o->op == K_kstore && is_copied((DType)o->dtype);
            GemmOut *out = &p->out[p->nouts];
            if (o->op == K_kstore) {
                if (p->nouts++ == GEMM_MAX_OUTS) return "too many results";
                *out = (GemmOut){.store = v};
                out->copied = copied && matrix_of(g, o, d->m, d->n, &out->mat);
            }
            p->pairs &= pairs_well(g, o);
        }
        if (o->op == K_kbind) p->pairs = false;
    }
    plan_addend(g, needed, p);
    for (KVal v = 1; v < k->nops; v++)
        if (needed[v] && v != p->addend && by_threads(p, k, v))
            p->bounded |= (g->e->domains[v] & (d->m | d->n)) != 0;
    return p->nouts ? NULL : "nothing is stored";
}

static const char *check_body(const Gpu *g) {
    const Kernel *k = g->k;
    const KDot *d = &k->dot;
    if (k->tem != TEM_dot || !d->k || !d->nacc || !d->m || !d->n) return "not a matrix product";
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        if ((is_acc(d, v) && o->op != K_kreduce) || o->op == K_katomic)
            return "other folds in the kernel";
        if (o->op == K_kstore && (g->e->domains[v] & ~(d->batch | d->m | d->n)))
            return "a result within the sum";
    }
    return NULL;
}

/* --- Tiles ------------------------------------------------------------------------------------ */

/* Times were measured on an H200: of a k-block of 128 bytes, of what a tile costs beside, and of an
 * addend. Tiles of 128 rows stand to each other as they do where a product has the machine for
 * itself, from idle (664 ns of 128x256, 350 of 128x128 in turns) and under full power, where clocks
 * follow from what a product draws (775 and 424). */
static const GemmTile tiles[] = {
    {"128x256", 128, 256, 2, false, 4, 1, 2, 16, 40, 232, 655, 1500, 2000},
    {"128x192 in turns", 128, 192, 2, true, 4, 1, 2, 16, 24, 240, 500, 200, 2400},
    {"192x192", 192, 192, 3, false, 4, 1, 1, 16, 32, 160, 735, 2000, 2000},
    {"128x128 in turns", 128, 128, 2, true, 6, 1, 2, 8, 40, 232, 344, 200, 600},
    {"128x128", 128, 128, 2, false, 6, 2, 1, 8, 40, 232, 335, 1400, 1000},
    {"64x128", 64, 128, 1, false, 8, 1, 2, 8, 0, 0, 197, 1000, 500},
    {"128x64", 128, 64, 2, false, 8, 1, 1, 8, 40, 232, 205, 1100, 500},
    {"64x64", 64, 64, 1, false, 8, 1, 1, 8, 0, 0, 130, 1000, 500},
    {"128x64 in turns", 128, 64, 2, true, 8, 1, 2, 8, 40, 232, 215, 200, 600},
    {"192x128", 192, 128, 3, false, 5, 1, 1, 8, 32, 160, 500, 1500, 1000},
    {"192x64", 192, 64, 3, false, 6, 1, 1, 8, 32, 160, 350, 1300, 500},
    {"64x128 in turns", 64, 128, 2, true, 8, 1, 2, 8, 40, 232, 197, 200, 600}, /* of f32 alone, */
    {"64x64 in turns", 64, 64, 2, true, 8, 1, 2, 8, 40, 232, 130, 200, 600},   /* both */
    {"64x256", 64, 256, 1, false, 5, 1, 2, 8, 0, 0, 360, 1500, 800},
    {"64x32", 64, 32, 1, false, 8, 1, 1, 8, 0, 0, 100, 950, 500},
};

/* Nanoseconds that the epilogue's arithmetic adds to a tile, also where it is stored while another
 * is multiplied, which it slows down: bias and gelu over 128x128 in turns 1.27 us a tile, over
 * 128x256 2.07. */
static int64_t epilogue_time(const GemmTile *t, const GemmPlan *p) {
    int64_t groups = t->pingpong ? 1 : t->groups;
    return (int64_t)p->epilogue_ops * t->m * t->n / (groups * 128) * (t->pingpong ? 2 : 3) / 4;
}

enum { STORED_PER_NS = 32 }; /* bytes, of one of all multiprocessors */

/* And the stores of results that threads make, as long as nothing is multiplied meanwhile. Measured
 * of products of 8 bits; the other times are of products of 16 bits with such results, too. */
static int64_t store_time(Gpu *g, const GemmTile *t, const GemmPlan *p) {
    int64_t bytes = 0;
    for (uint32_t i = 0; i < p->nouts; i++)
        if (!p->out[i].copied)
            bytes += (int64_t)dtype_bytes((DType)g->k->ops[p->out[i].store].dtype) * t->m * t->n;
    return t->pingpong || dtype_bytes(p->a.mat[0].t) > 1 ? 0 : bytes / STORED_PER_NS;
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Rows that do not start at 128-byte lines take twice as many sectors of L2. */
static bool off_lines(Gpu *g, const GemmOperand *o) {
    return gpu_hint(g->e, o->mat[0].pitch) * (int64_t)dtype_bytes(o->mat[0].t) % 128 != 0;
}

static int64_t fetch_time(Gpu *g, const GemmOperand *o, int64_t bytes) {
    return bytes / (off_lines(g, o) ? 58 : 125);
}

enum { APART_NS = 150 }; /* to take a k-block of f32 apart */

/* Of a k-block: the products, or what they need if that takes longer. Rows off lines slow the
 * products down even so, those of wide tiles more, of tiles in turns most, and so does waiting for
 * a twin: more often in small tiles. */
static int64_t block_time(Gpu *g, const GemmPlan *p, const GemmTile *t, bool twin) {
    int64_t fetch = fetch_time(g, &p->a, t->m * HOP_ROW_BYTES) +
                    fetch_time(g, &p->b[0], t->n * HOP_ROW_BYTES / (twin ? 2 : 1));
    int64_t slower = !off_lines(g, &p->a) ? 0 : t->pingpong ? 32 : twin ? 5 : 10;
    if (off_lines(g, &p->b[0]))
        slower += !twin ? (t->pingpong ? 18 : 10) : t->n > 128 ? (t->n - 128) / 7 : 0;
    int64_t multiply = t->block_ns * (100 + slower) / 100;
    if (p->exact) multiply = 3 * multiply + APART_NS;
    if (twin) multiply += t->m * t->n > 128 * 192 ? 20 : 45;
    return fetch > multiply ? fetch : multiply;
}

enum { LAST_NS = 500, SPLIT_LEAST = 4, SPLIT_LONG = 32, SPLITS = 4 };

/* Of few rows, 32 tiles of 64x64 by 3: 96 multiprocessors fetch weights, and their clusters all
 * run at once; those of 4 would not. */
static const uint32_t splits_of[SPLITS] = {2, 3, 4, 8};

/* So many blocks in clusters run at once for certain. Long sums, of a weight's gradient over all
 * rows of a batch, are worth it without: pairs fill all multiprocessors, more do but for a few. */
static int64_t split_room(const Gpu *g, int64_t blocks, uint32_t splits) {
    const int64_t all = g->m->processors;
    if (blocks < SPLIT_LONG * splits) return all / 2;
    return splits == 2 ? all : all * 9 / 10;
}

/* A tile's sums may be shared by so many blocks: each has some, and all tiles are computed at once.
 */
static bool can_split(Gpu *g, const GemmPlan *p, const GemmTile *t, uint32_t splits, int64_t m,
                      bool crowded) {
    int64_t k, taps, cols = t->n / g->k->dot.nacc;
    if (t->pingpong || (p->promoted && !p->exact) || p->addend || p->nterms) return false;
    if (!expr_is_const(g->e->exprs, p->k, &k) || !expr_is_const(g->e->exprs, p->taps, &taps))
        return false;
    int64_t blocks = taps * ceil_div(k * (int64_t)dtype_bytes(p->a.mat[0].t), HOP_ROW_BYTES);
    int64_t count =
        ceil_div(m, t->m) * ceil_div(gpu_hint(g->e, p->n), cols) * gpu_hint(g->e, p->batch);
    int64_t ring = t->stages * (int64_t)(t->m + t->n) * HOP_ROW_BYTES; /* that sums go through */
    if ((splits - 1) * (int64_t)sizeof(float) * t->m * t->n > ring) return false;
    return blocks >= SPLIT_LEAST * splits && (splits - 1) * ceil_div(blocks, splits) < blocks &&
           count * splits <= (crowded ? g->m->processors : split_room(g, blocks, splits));
}

/* To hand a tile's sums over. Large tiles fill the machine with clusters, which wait for each
 * other */
static int64_t split_time(const GemmTile *t, uint32_t splits) {
    int64_t sums = (int64_t)splits * t->m * t->n;
    return t->m * t->n > 64 * 128 ? 3500 + sums / (t->groups * 64) : 500 + sums / 14;
}

/* Nanoseconds of the whole product: blocks work through whole tiles. */
static int64_t time_of(Gpu *g, const GemmPlan *p, const GemmTile *t, bool twin, uint32_t splits,
                       int64_t m) {
    int64_t n = gpu_hint(g->e, p->n), cols = t->n / g->k->dot.nacc;
    int64_t bytes = gpu_hint(g->e, p->k) * (int64_t)dtype_bytes(p->a.mat[0].t),
            twins = twin ? 2 : 1;
    int64_t count = ceil_div(m, t->m * twins) * ceil_div(n, cols) * gpu_hint(g->e, p->batch);
    int64_t blocks = gpu_hint(g->e, p->taps) * ceil_div(bytes, HOP_ROW_BYTES) * p->parts;
    for (uint32_t i = 0; i < p->nterms; i++)
        blocks += ceil_div(gpu_hint(g->e, p->term[i].k) * (int64_t)dtype_bytes(p->a.mat[0].t),
                           HOP_ROW_BYTES);
    int64_t each = ceil_div(blocks, splits) * block_time(g, p, t, twin) + t->tile_ns;
    if (splits > 1) each += split_time(t, splits);
    if (p->addend) each += t->addend_ns;
    each += store_time(g, t, p);
    if (t->pingpong && count <= g->m->processors) each += each / 8; /* nobody to take turns with */
    int64_t last = t->pingpong ? LAST_NS : 0; /* nothing is multiplied while it is stored */
    return ceil_div(count, g->m->processors / (twins * splits)) * (each + epilogue_time(t, p)) +
           last;
}

/* Columns come and go in panels of 64. Half of one is stored by the copy engine, too, in 16 bits,
 * and read where columns do not lie side by side. */
static bool possible_cols(const GemmPlan *p, uint32_t cols) {
    if (cols % GEMM_SLAB_COLS == 0) return true;
    for (uint32_t i = 0; i < p->nouts; i++)
        if (!p->out[i].copied || dtype_bytes(p->out[i].mat.t) != 2) return false;
    return cols == GEMM_SLAB_COLS / 2 && !p->addend && !p->b[0].across && !p->nterms;
}

enum { ALL_REGS = 255, SPARE_REGS = 100 };

/* What spilled wants registers beside its sums, of which threads have few where they are many. */
static bool has_spare(const GemmTile *t, uint32_t sums) {
    uint32_t all = t->regs_math ? t->regs_math : ALL_REGS;
    return all >= sums + SPARE_REGS;
}

/* Every sum has its share of the columns, in panels; a build that spilled asks for fewer registers.
 * Promoted sums are two sets, and tiles of more than 64 of each are slower than smaller ones. */
static bool possible(Gpu *g, const GemmPlan *p, const GemmTile *t, uint32_t shrink) {
    uint32_t cols = t->n / g->k->dot.nacc;
    uint32_t sums = t->m * t->n / (128 * (t->pingpong ? 1 : t->groups));
    uint32_t slabs = t->pingpong ? 1 : t->groups; /* of A, which f32 has registers for */
    if (p->promoted && !p->exact && t->pingpong) return false; /* nobody would give the turn away */
    if (p->exact && (t->groups > 2 || t->m != slabs * HOP_SLAB_ROWS)) return false;
    if (!p->exact && t->pingpong && t->m == HOP_SLAB_ROWS) return false;
    if (shrink && !p->promoted && !has_spare(t, sums)) return false;
    if (p->promoted) sums *= 4;
    return cols * g->k->dot.nacc == t->n && possible_cols(p, cols) && sums <= 256u >> shrink;
}

/* A tile, and who shares its work; the time that it takes by this reckoning. */
typedef struct Way {
    const GemmTile *tile;
    bool twin;
    uint32_t splits;
    int64_t time;
} Way;

/* of fewer, B comes from memory, in wider pieces faster: by 7 and 17 % */
enum { NARROW_ROWS = 33 };
enum { WAYS = 2 + SPLITS, MAX_WAYS = (int)(sizeof tiles / sizeof *tiles) * WAYS };

/* False: not possible for m rows. Crowded: clusters may fill the machine, mostly slow. */
static bool way_of(Gpu *g, const GemmPlan *p, uint32_t i, int64_t m, uint32_t shrink, bool crowded,
                   Way *out) {
    const GemmTile *t = &tiles[i / WAYS];
    uint32_t way = i % WAYS;
    *out = (Way){.tile = t, .twin = way == 1, .splits = way < 2 ? 1 : splits_of[way - 2]};
    if (!possible(g, p, t, shrink) || (out->twin && m <= t->m)) return false;
    if (t->n < GEMM_SLAB_COLS && m < NARROW_ROWS) return false;
    bool usual = out->splits == 1 || can_split(g, p, t, out->splits, m, false);
    if (!usual && (!crowded || !can_split(g, p, t, out->splits, m, true))) return false;
    out->time = time_of(g, p, t, out->twin, out->splits, m) * (usual ? 1 : 2);
    return true;
}

static void take_way(GemmPlan *p, const Way *w) {
    p->tile = w->tile;
    p->twin = w->twin;
    p->splits = w->splits;
}

/* The fastest by this reckoning for m rows, and its time. */
static int64_t choose(Gpu *g, GemmPlan *p, int64_t m, uint32_t shrink) {
    int64_t least = INT64_MAX;
    Way w;
    p->tile = NULL;
    p->rows = m;
    for (uint32_t i = 0; i < MAX_WAYS; i++) {
        if (!way_of(g, p, i, m, shrink, false, &w) || w.time >= least) continue;
        least = w.time;
        take_way(p, &w);
    }
    return least;
}

/* --- Ways for tuning -------------------------------------------------------------------------- */

/* All that are possible, the fastest by this reckoning first; of equal ones the first in order. */
static uint32_t sorted_ways(Gpu *g, const GemmPlan *p, int64_t m, Way *out) {
    uint32_t n = 0;
    Way w;
    for (uint32_t i = 0; i < MAX_WAYS; i++) {
        if (!way_of(g, p, i, m, g->j->shrink, true, &w)) continue;
        uint32_t at = n++;
        for (; at && out[at - 1].time > w.time; at--) out[at] = out[at - 1];
        out[at] = w;
    }
    return n;
}

static const char *way_name(Gpu *g, const Way *w) {
    if (w->splits > 1) return arena_printf(g->j->arena, "%s, split %u", w->tile->name, w->splits);
    return w->twin ? arena_printf(g->j->arena, "%s, twins", w->tile->name) : w->tile->name;
}

/* What was tuned or is to be tried, where all sizes are known: the plan's tile is that way's. */
static void choose_way(Gpu *g, GemmPlan *p) {
    const Expr size[] = {p->m, p->n, p->k, p->batch, p->taps};
    int64_t v[5];
    for (int i = 0; i < 5; i++)
        if (!expr_is_const(g->e->exprs, size[i], &v[i])) return;
    Way ways[MAX_WAYS];
    const char *names[MAX_WAYS];
    uint32_t n = sorted_ways(g, p, v[0], ways);
    for (uint32_t i = 0; i < n; i++) names[i] = way_name(g, &ways[i]);
    const char *facts = arena_printf(
        g->j->arena, "gemm %lldx%lldx%lld batch=%lld taps=%lld parts=%u sums=%u %s%s%s%s",
        (long long)v[0], (long long)v[1], (long long)v[2], (long long)v[3], (long long)v[4],
        p->parts, g->k->dot.nacc, p->tf32 ? "tf32" : dtype_info[p->a.mat[0].t].name,
        p->a.across ? " a-across" : "", p->b[0].across ? " b-across" : "",
        p->addend ? " addend" : "");
    if (n) take_way(p, &ways[gpu_ways(g, facts, names, n)]);
}

/* --- Variants --------------------------------------------------------------------------------- */

enum { ROWS_LEAST = 128, ROWS_MOST = 8192, ROWS_SAMPLES = 7 };

/* A variant has to be so much faster: by a tenth. */
static bool much_faster(int64_t time, int64_t than) {
    return time < than / 10 * 9;
}

/* The fastest variant at m rows, whose time becomes *least. */
static uint32_t fastest(Gpu *g, const GemmPlan *each, uint32_t n, int64_t m, int64_t *least) {
    uint32_t best = 0;
    for (uint32_t i = 0; i < n; i++) {
        int64_t time = time_of(g, &each[i], each[i].tile, each[i].twin, each[i].splits, m);
        if (i && time >= *least) continue;
        *least = time;
        best = i;
    }
    return best;
}

/* The number of rows that gains most by a variant of its own; 0: none gains much. */
static int64_t most_slowed(Gpu *g, const GemmPlan *p, const GemmPlan *each, uint32_t n,
                           const int64_t *samples, uint32_t nsamples) {
    GemmPlan own = *p;
    int64_t rows = 0, time = 0;
    double most = 0;
    for (uint32_t i = 0; i < nsamples; i++) {
        int64_t best = choose(g, &own, samples[i], 0);
        (void)fastest(g, each, n, samples[i], &time);
        if (!much_faster(best, time) || (double)time <= most * (double)best) continue;
        most = (double)time / (double)best;
        rows = samples[i];
    }
    return rows;
}

void gemm_variants(Gpu *g, const GemmPlan *p, GemmVariants *out) {
    ExprPool *q = g->e->exprs;
    GemmPlan each[GEMM_MAX_VARIANTS];
    int64_t lo, hi, time = 0, samples[ROWS_SAMPLES];
    uint32_t n = 0, was = 0;
    expr_range(q, p->m, &lo, &hi);
    *out = (GemmVariants){.n = 1, .rows = {gpu_hint(g->e, p->m)}, .choice = expr_const(q, 0)};
    each[0] = *p;
    (void)choose(g, &each[0], out->rows[0], 0);
    if (!each[0].tile || lo == hi) return;
    for (int64_t m = ROWS_LEAST; m <= ROWS_MOST; m *= 2)
        if (m >= lo && m <= hi) samples[n++] = m;
    while (out->n < GEMM_MAX_VARIANTS) {
        int64_t rows = most_slowed(g, p, each, out->n, samples, n);
        if (!rows) break;
        each[out->n] = *p;
        (void)choose(g, &each[out->n], rows, 0);
        out->rows[out->n++] = rows;
    }
    for (uint32_t i = n; i-- > 0;) {
        uint32_t now = fastest(g, each, out->n, samples[i], &time);
        if (i + 1 == n) out->choice = expr_const(q, now);
        Expr below = expr_lt(q, p->m, expr_const(q, samples[i] * 3 / 2));
        if (i + 1 < n && now != was)
            out->choice =
                expr_add(q, out->choice, expr_muli(q, below, (int64_t)now - (int64_t)was));
        was = out->least = now;
    }
}

/* Below this other kernels of f32 are as fast. */
enum { EXACT_ROWS = 33, EXACT_COLS = 16, EXACT_PRODUCTS = 1 << 22 };

static bool is_large(Gpu *g, const GemmPlan *p) {
    if (!p->exact && !p->tf32) return true;
    int64_t m = gpu_hint(g->e, p->m), n = gpu_hint(g->e, p->n);
    double all = (double)m * (double)n * (double)gpu_hint(g->e, p->k);
    all *= (double)gpu_hint(g->e, p->taps) * (double)gpu_hint(g->e, p->batch);
    return m >= EXACT_ROWS && n >= EXACT_COLS && all >= EXACT_PRODUCTS;
}

/* Where no tile is small enough for what a build that spilled asks for, the fastest: it spills, but
 * other structures are slower by far. */
static void choose_shrunk(Gpu *g, GemmPlan *p, int64_t m) {
    (void)choose(g, p, m, g->j->shrink);
    if (!p->tile && g->j->shrink) (void)choose(g, p, m, 0);
}

enum { SPILL_PER_BLOCK = 4, SPILL_MOST = 128 };

/* Registers are spilled where a tile is stored, not where it is multiplied: one costs each thread a
 * store and a load a tile, about a hundredth of a k-block, where smaller tiles are slower in all
 * k-blocks. */
static void allow_spills(Gpu *g, const GemmPlan *p) {
    int64_t bytes = gpu_hint(g->e, p->k) * (int64_t)dtype_bytes(p->a.mat[0].t);
    int64_t blocks = ceil_div(bytes, HOP_ROW_BYTES) * gpu_hint(g->e, p->taps) / p->splits;
    bool half = dtype_bytes(p->a.mat[0].t) == 2;
    g->j->may_spill = !half ? 0
                            : (uint32_t)(blocks < SPILL_MOST ? blocks * SPILL_PER_BLOCK
                                                             : SPILL_MOST * SPILL_PER_BLOCK);
}

const char *gemm_plan(Gpu *g, GemmPlan *out) {
    const char *why = g->e->isa->warpgroups ? check_body(g) : "the architecture has not Hopper's";
    *out = (GemmPlan){0};
    if (!why) why = plan_operands(g, out);
    if (!why) why = plan_terms(g, out);
    if (!why) why = plan_epilogue(g, out);
    if (why) return why;
    const KDot *d = &g->k->dot;
    out->m = gpu_points(g->e, g->k, d->m);
    out->n = gpu_points(g->e, g->k, d->n);
    uint32_t k = out->windowed ? 1u << out->window.channel : d->k & ~out->part_axis;
    out->k = gpu_points(g->e, g->k, k);
    out->taps = gpu_points(g->e, g->k, out->window.taps);
    out->batch = gpu_points(g->e, g->k, d->batch);
    if (!is_large(g, out)) return "few products of f32";
    GemmVariants v;
    gemm_variants(g, out, &v);
    uint32_t variant = g->j->variant < v.n ? g->j->variant : 0;
    choose_shrunk(g, out, v.rows[variant]);
    if (out->tile && gpu_has_ways(g) && v.rows[0] > FEW_ROWS) choose_way(g, out);
    if (out->tile) {
        allow_spills(g, out);
        return NULL;
    }
    return g->j->shrink ? "the epilogue needs too many registers"
                        : "more sums than a tile has columns for";
}
