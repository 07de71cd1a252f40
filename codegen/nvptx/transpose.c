/* Pointwise kernels that read along one axis what they store along another. A block takes a tile of
 * both: the values that lie the other way round are read side by side and turned in shared memory,
 * everything else happens as in point.c. Where short axes lie one behind the other as they are
 * stored (pixels, or channels, that are shuffled), they are one to walk. */
#include "codegen/nvptx/gpu.h"

enum {
    SIDE = 64, /* of a tile; as many vectors of 2 bytes as there are of 4 take ... */
    WIDE = 128,
    THREADS = 256,   /* of a tile of SIDE */
    LEAST_TILES = 4, /* of a multiprocessor, that wide ones leave */
    MOST_ROUNDS = SIDE * SIDE / THREADS,
    MOST_TURNED = 4,
    PIECE = 16,      /* bytes of a thread's vector ... */
    MOST_PACKED = 4, /* ... of whose rows so many are turned together */
    PAD = 4          /* bytes: rows start in other banks */
};

typedef struct Turn {
    Gpu *g;
    uint32_t from, to; /* axes: read along, stored along */
    uint32_t from_lanes, to_lanes, others;
    uint32_t side, threads; /* of a tile, elements; of its block */
    uint32_t packed;        /* so many rows of a thread's are neighbours and turned in registers; 0:
                               elements are stored one by one */
    uint32_t n;
    KVal load[MOST_TURNED];
    LLVMValueRef shared[MOST_TURNED];
    bool *turned;
    bool merged; /* the stores' axis is made of several; ... */
    bool *apart; /* ... what is not read in even steps along it is read element by element */
    LLVMValueRef first[2];                              /* of the tile, along from and to */
    EmitScope *read[MOST_ROUNDS], *stored[MOST_ROUNDS]; /* of a thread's vectors */
} Turn;

/* x moves by one along the axis. */
static bool steps_by_one(const Gpu *g, Expr x, uint32_t axis) {
    Expr coef, rest;
    return expr_affine(g->e->exprs, x, g->k->axes[axis].sym, &coef, &rest) &&
           expr_is_value(g->e->exprs, coef, 1);
}

/* The parallel axis along which all stores of the kernel lie side by side, or -1. */
static int store_axis(const Gpu *g) {
    int axis = -1;
    for (KVal v = 1; v < g->k->nops; v++) {
        if (g->k->ops[v].op != K_kstore) continue;
        int own = -1;
        for (uint32_t i = 0; i < g->k->naxes; i++)
            if (steps_by_one(g, g->k->ops[v].index, i)) own = (int)i;
        if (own < 0 || (axis >= 0 && own != axis)) return -1;
        axis = own;
    }
    return axis;
}

/* Loads that lie side by side along another axis than the stores, which has to be the same of all.
 */
static bool find_turned(Turn *t) {
    const Gpu *g = t->g;
    int from = -1;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        if (o->op == K_kbind || o->op == K_katomic) return false;
        if (o->op != K_kload || !(g->rows->dom[v] >> t->to & 1)) continue;
        if (steps_by_one(g, o->index, t->to)) continue;
        int own = -1;
        Expr coef, rest;
        for (uint32_t i = 0; i < g->k->naxes; i++)
            if (i != t->to && steps_by_one(g, o->index, i)) own = (int)i;
        t->apart[v] = t->merged && own < 0 &&
                      !expr_affine(g->e->exprs, o->index, g->k->axes[t->to].sym, &coef, &rest);
        if (t->apart[v]) continue;
        if (own < 0 || (from >= 0 && own != from) || t->n == MOST_TURNED) return false;
        from = own;
        t->turned[v] = true;
        t->load[t->n++] = v;
    }
    t->from = (uint32_t)from;
    return t->n > 0 && g->rows->par >> from & 1;
}

static bool has_shape(Turn *t) {
    Gpu *g = t->g;
    if (g->k->serial || g->j->shrink || g->rows->npasses != 1) return false;
    if (g->rows->pass[0].axes || g->rows->pass[0].nfolds) return false;
    int to = store_axis(g);
    if (to < 0) return false;
    t->to = (uint32_t)to;
    t->n = 0;
    t->turned = ARENA_ARRAY(g->e->arena, bool, g->k->nops);
    t->apart = ARENA_ARRAY(g->e->arena, bool, g->k->nops);
    if (!find_turned(t)) return false;
    t->others = g->rows->par & ~(1u << t->from | 1u << t->to);
    return gpu_hint(g->e, g->k->axes[t->from].extent) >= SIDE / 2 &&
           gpu_hint(g->e, g->k->axes[t->to].extent) >= SIDE / 2;
}

/* --- Axes that are stored as one -------------------------------------------------------------- */

/* The axis, none of `but`, that every store walks in steps of so many elements, or -1. */
static int axis_of_stride(const Gpu *g, Expr stride, uint32_t but) {
    for (uint32_t i = 0; i < g->k->naxes; i++) {
        bool is = g->k->axes[i].kind == AX_PAR && !(but >> i & 1);
        for (KVal v = 1; v < g->k->nops; v++) {
            const KOp *o = &g->k->ops[v];
            Expr coef, rest;
            if (o->op == K_kstore)
                is = is && expr_affine(g->e->exprs, o->index, g->k->axes[i].sym, &coef, &rest) &&
                     coef == stride;
        }
        if (is) return (int)i;
    }
    return -1;
}

typedef struct Merge {
    uint32_t axes; /* that become one */
    uint32_t n, sym[K_MAX_AXES];
    Expr extent[K_MAX_AXES], by[K_MAX_AXES]; /* of each, and what it is, of ... */
    KAxis all;                               /* ... that one */
} Merge;

/* From the innermost on, until a tile has enough of it. */
static bool find_merge(const Gpu *g, Merge *m) {
    ExprPool *p = g->e->exprs;
    int64_t lo, hi, n = 1;
    Expr extent = expr_const(p, 1);
    int axis = axis_of_stride(g, extent, m->axes);
    uint32_t found[K_MAX_AXES];
    for (; axis >= 0 && n < SIDE / 2; axis = axis_of_stride(g, extent, m->axes)) {
        found[m->n++] = (uint32_t)axis;
        m->axes |= 1u << axis;
        extent = expr_mul(p, extent, g->k->axes[axis].extent);
        if (!expr_is_const(p, extent, &n)) return false;
    }
    if (m->n < 2) return false;
    expr_range(p, extent, &lo, &hi);
    const SymInfo info = {.name = "merged", .kind = SYM_AXIS, .hi = hi - 1, .below = extent};
    Expr at = expr_sym_new(p, info);
    m->all = (KAxis){.extent = extent, .kind = AX_PAR};
    (void)expr_is_sym(p, at, &m->all.sym);
    for (uint32_t i = 0; i < m->n; i++) {
        const KAxis *a = &g->k->axes[found[i]];
        m->sym[i] = a->sym, m->extent[i] = a->extent;
        m->by[i] = i + 1 < m->n ? expr_mod(p, at, a->extent) : at;
        at = expr_div(p, at, a->extent);
    }
    return true;
}

/* x over the one axis: with as even steps as it had over all of them, if it had. */
static Expr merged(const Gpu *g, const Merge *m, Expr x) {
    ExprPool *p = g->e->exprs;
    Expr coef, rest = x, step = 0, extent = expr_const(p, 1);
    if (!x) return 0;
    for (uint32_t i = 0; i < m->n; i++) {
        if (!expr_affine(p, rest, m->sym[i], &coef, &rest)) break;
        if (!i) step = coef;
        if (coef != expr_mul(p, step, extent)) break;
        extent = expr_mul(p, extent, m->extent[i]);
        if (i + 1 == m->n) return expr_add(p, rest, expr_mul(p, step, expr_sym_ref(p, m->all.sym)));
    }
    return expr_subst(p, x, m->sym, m->by, m->n);
}

/* In place of the kernel one that has the axes as one. */
static bool merge_axes(Gpu *g) {
    Emit *e = g->e;
    Merge m = {0};
    if (g->k->kind != KERNEL_poi || g->k->serial || g->j->shrink || !find_merge(g, &m))
        return false;
    Kernel *k = arena_copy(e->arena, g->k, sizeof *k);
    k->ops = arena_copy(e->arena, k->ops, k->nops * sizeof *k->ops);
    k->axes = ARENA_ARRAY(e->arena, KAxis, k->naxes);
    k->naxes = 0;
    for (uint32_t i = 0; i < g->k->naxes; i++)
        if (!(m.axes >> i & 1)) k->axes[k->naxes++] = g->k->axes[i];
    k->axes[k->naxes++] = m.all;
    for (KVal v = 1; v < k->nops; v++) {
        KOp *o = &k->ops[v];
        o->index = merged(g, &m, o->index), o->mask = merged(g, &m, o->mask);
    }
    uint32_t *domains = ARENA_ARRAY(e->arena, uint32_t, k->nops);
    kir_domains(k, e->exprs, domains);
    g->k = e->k = k;
    e->domains = domains;
    g->rows = ARENA_NEW(e->arena, Passes);
    return rows_passes(g->rows, e, k);
}

/* As it is, or else with axes as one. */
static bool find_shape(Turn *t) {
    Gpu *g = t->g, was = *g;
    const uint32_t *domains = g->e->domains;
    if (has_shape(t)) return true;
    t->merged = merge_axes(g);
    if (t->merged && has_shape(t)) return true;
    g->k = g->e->k = was.k;
    g->rows = was.rows;
    g->e->domains = domains;
    return false;
}

/* 16 bytes of the widest turned value, if the axis is made of such pieces. */
static uint32_t read_lanes(const Turn *t) {
    const Gpu *g = t->g;
    uint32_t n = g->e->isa->thread_lanes;
    int64_t divisor = expr_divisor(g->e->exprs, g->k->axes[t->from].extent);
    for (uint32_t i = 0; i < t->n; i++)
        while (n * dtype_bytes(g->k->params[g->k->ops[t->load[i]].buf].dtype) > 16) n /= 2;
    while (divisor % n) n /= 2;
    return n;
}

/* Bytes of the widest element that lies along both axes. */
static uint32_t widest(const Turn *t) {
    const Gpu *g = t->g;
    uint32_t most = 0;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        if ((o->op != K_kload && o->op != K_kstore) || !(g->rows->dom[v] >> t->to & 1)) continue;
        uint32_t bytes = (uint32_t)dtype_bytes(g->k->params[o->buf].dtype);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Elements that tiles of one size cover, past the ends, too. */
static int64_t covered(const Turn *t, int64_t side) {
    const Gpu *g = t->g;
    int64_t from = gpu_hint(g->e, g->k->axes[t->from].extent);
    int64_t to = gpu_hint(g->e, g->k->axes[t->to].extent);
    int64_t others = gpu_hint(g->e, gpu_points(g->e, g->k, t->others));
    return (from + side - 1) / side * side * ((to + side - 1) / side * side) * others;
}

/* Vectors of a tile's rows lie 256 bytes side by side in both directions, if tiles are many and not
 * much of them lies past the ends. */
static void choose_side(Turn *t) {
    const int64_t least = (int64_t)LEAST_TILES * t->g->m->processors * WIDE * WIDE;
    int64_t wide = covered(t, WIDE), small = covered(t, SIDE);
    bool is = widest(t) <= 2 && t->from_lanes == 8 && t->to_lanes == 8 && wide >= least &&
              wide <= small + small / 8;
    t->side = is ? WIDE : SIDE;
    t->threads = is ? 2 * THREADS : THREADS;
}

static uint32_t rounds(const Turn *t, uint32_t lanes) {
    return t->side * t->side / (t->threads * lanes);
}

/* Where all vectors are whole pieces of memory, as many rows of them as make a piece, or half of
 * one. */
static void choose_packed(Turn *t) {
    const Gpu *g = t->g;
    t->packed = MOST_PACKED;
    for (uint32_t i = 0; i < t->n; i++) {
        DType type = g->k->params[g->k->ops[t->load[i]].buf].dtype;
        uint32_t bytes = (uint32_t)dtype_bytes(type);
        bool whole = bytes * t->from_lanes == PIECE && t->from_lanes == t->to_lanes;
        if (!whole || type == DT_bool || bytes * MOST_PACKED < PIECE / 2) t->packed = 0;
    }
    if (t->packed && rounds(t, t->from_lanes) % t->packed) t->packed = 0;
}

/* --- The two halves --------------------------------------------------------------------------- */

/* Position of this thread's vector number u in the tile: `along` the lanes, `across` them. */
typedef struct Spot {
    LLVMValueRef along, across; /* elements from the tile's corner */
    LLVMValueRef to, from;      /* where it is stored: positions of those axes */
} Spot;

/* `near` rows of a thread are neighbours. */
static Spot spot(const Turn *t, uint32_t lanes, uint32_t u, uint32_t near) {
    Emit *e = t->g->e;
    uint32_t per_row = t->side / lanes;
    LLVMValueRef at =
        LLVMBuildAdd(e->b, t->g->tid, emit_i64(e, (int64_t)(u / near) * t->threads), "");
    LLVMValueRef v = LLVMBuildAnd(e->b, at, emit_i64(e, per_row - 1), "");
    LLVMValueRef row = LLVMBuildLShr(e->b, at, emit_i64(e, __builtin_ctz(per_row)), "");
    row = LLVMBuildMul(e->b, row, emit_i64(e, near), "");
    return (Spot){.along = LLVMBuildMul(e->b, v, emit_i64(e, lanes), ""),
                  .across = LLVMBuildAdd(e->b, row, emit_i64(e, u % near), "")};
}

static Spot read_spot(const Turn *t, uint32_t u) {
    return spot(t, t->from_lanes, u, t->packed ? t->packed : 1);
}

/* Axis `lane_axis` to e->lanes elements at `along`, the other to one at `across`; past the ends
 * they stand still. */
static void bind(const Turn *t, uint32_t lane_axis, uint32_t other, LLVMValueRef along,
                 LLVMValueRef across) {
    Gpu *g = t->g;
    Emit *e = g->e;
    LLVMValueRef v = LLVMBuildLShr(e->b, along, emit_i64(e, __builtin_ctz(e->lanes)), "");
    LLVMValueRef one = emit_i64(e, 1);
    LLVMValueRef most = LLVMBuildSub(e->b, emit_expr(e, gpu_vectors(g, lane_axis)), one, "");
    LLVMValueRef in[2] = {v, most};
    gpu_bind_lanes(g, lane_axis, emit_intrinsic(e, "llvm.smin", e->i64, in, 2));
    most = LLVMBuildSub(e->b, emit_expr(e, g->k->axes[other].extent), one, "");
    LLVMValueRef row[2] = {across, most};
    emit_set_sym(e, g->k->axes[other].sym, emit_intrinsic(e, "llvm.smin", e->i64, row, 2));
}

static uint32_t pitch(const Turn *t, uint32_t i) {
    uint32_t bytes = (uint32_t)dtype_bytes(t->g->k->params[t->g->k->ops[t->load[i]].buf].dtype);
    if (t->packed) return t->side;
    return t->side + (PAD > bytes ? PAD / bytes : 1);
}

static LLVMTypeRef mem_type(const Turn *t, uint32_t i) {
    return emit_mem_type(t->g->e, t->g->k->params[t->g->k->ops[t->load[i]].buf].dtype);
}

/* Element (from, to) of the tile. Packed, rows begin in the same bank: each of a vector's length
 * changes the places of its vectors in another way, so that neighbours write and read different
 * banks. */
static LLVMValueRef place(const Turn *t, uint32_t i, LLVMValueRef from, LLVMValueRef to) {
    Emit *e = t->g->e;
    if (t->packed) {
        LLVMValueRef turn = LLVMBuildAnd(e->b, from, emit_i64(e, t->side - t->from_lanes), "");
        to = LLVMBuildXor(e->b, to, turn, "");
    }
    LLVMValueRef at = LLVMBuildMul(e->b, from, emit_i64(e, pitch(t, i)), "");
    return emit_gep(e, mem_type(t, i), t->shared[i], LLVMBuildAdd(e->b, at, to, ""));
}

/* A bool is a byte in memory. */
static LLVMValueRef to_byte(Emit *e, LLVMValueRef v, LLVMTypeRef t) {
    return LLVMTypeOf(v) == e->i1 ? LLVMBuildZExt(e->b, v, t, "") : v;
}

/* All of them at once, if they are vectors: single elements would take a register each. */
static void request_turned(Turn *t) {
    Emit *e = t->g->e;
    e->lanes = t->from_lanes;
    for (uint32_t u = 0; u < rounds(t, t->from_lanes); u++) {
        EmitScope *outer = e->scope;
        Spot s = read_spot(t, u);
        t->read[u] = emit_push(e);
        bind(t, t->from, t->to, LLVMBuildAdd(e->b, t->first[0], s.along, ""),
             LLVMBuildAdd(e->b, t->first[1], s.across, ""));
        for (uint32_t i = 0; i < t->n && e->lanes > 1; i++) (void)emit_value(e, t->load[i]);
        (void)emit_switch(e, outer);
    }
}

/* Element l of a vector. */
static LLVMValueRef element(Emit *e, LLVMValueRef v, uint32_t l) {
    return e->lanes > 1 ? LLVMBuildExtractElement(e->b, v, emit_i64(e, l), "") : v;
}

/* What load i of `rows` neighbouring rows has, v, is stored: each of its columns at once. */
static void store_turned(const Turn *t, uint32_t i, const Spot *s, LLVMValueRef *v, uint32_t rows) {
    Emit *e = t->g->e;
    LLVMTypeRef m = mem_type(t, i);
    uint32_t bytes =
        rows * (uint32_t)dtype_bytes(t->g->k->params[t->g->k->ops[t->load[i]].buf].dtype);
    for (uint32_t l = 0; l < e->lanes; l++) {
        LLVMValueRef p = place(t, i, LLVMBuildAdd(e->b, s->along, emit_i64(e, l), ""), s->across);
        LLVMValueRef x = to_byte(e, element(e, v[0], l), m);
        LLVMValueRef all = LLVMGetUndef(emit_vec(m, rows));
        if (rows > 1) x = LLVMBuildInsertElement(e->b, all, x, emit_i64(e, 0), "");
        for (uint32_t r = 1; r < rows; r++)
            x = LLVMBuildInsertElement(e->b, x, element(e, v[r], l), emit_i64(e, r), "");
        emit_store_ptr(e, x, p, bytes);
    }
}

static void read_tile(Turn *t) {
    Emit *e = t->g->e;
    uint32_t near = t->packed ? t->packed : 1;
    e->lanes = t->from_lanes;
    for (uint32_t u = 0; u < rounds(t, t->from_lanes); u += near) {
        Spot s = read_spot(t, u);
        for (uint32_t i = 0; i < t->n; i++) {
            LLVMValueRef v[MOST_PACKED];
            for (uint32_t r = 0; r < near; r++) {
                EmitScope *outer = emit_switch(e, t->read[u + r]);
                v[r] = emit_value_lanes(e, t->load[i]);
                (void)emit_switch(e, outer);
            }
            store_turned(t, i, &s, v, near);
        }
    }
}

static LLVMValueRef turned_value(const Turn *t, uint32_t i, const Spot *s) {
    Emit *e = t->g->e;
    LLVMTypeRef m = mem_type(t, i);
    DType type = t->g->k->params[t->g->k->ops[t->load[i]].buf].dtype;
    LLVMValueRef p = place(t, i, s->across, s->along);
    uint32_t bytes = (uint32_t)dtype_bytes(type) * e->lanes, whole = t->packed ? PIECE : PAD;
    LLVMValueRef v = emit_load(e, emit_vec(m, e->lanes), p, bytes < whole ? bytes : whole);
    if (type != DT_bool) return v;
    return LLVMBuildICmp(e->b, LLVMIntNE, v, LLVMConstNull(LLVMTypeOf(v)), "");
}

static Spot target(const Turn *t, uint32_t u) {
    Emit *e = t->g->e;
    Spot s = spot(t, e->lanes, u, 1);
    s.to = LLVMBuildAdd(e->b, t->first[1], s.along, "");
    s.from = LLVMBuildAdd(e->b, t->first[0], s.across, "");
    return s;
}

/* What is read as it is stored is asked for once the others are turned: by then other blocks wait
 * for theirs (f32: 94.2 us, not 94.8; 16 bits 95.1, not 95.5). */
static void request_direct(Turn *t) {
    Gpu *g = t->g;
    Emit *e = g->e;
    e->lanes = t->to_lanes;
    for (uint32_t u = 0; u < rounds(t, t->to_lanes); u++) {
        EmitScope *outer = e->scope;
        t->stored[u] = emit_push(e);
        Spot s = target(t, u);
        bind(t, t->to, t->from, s.to, s.from);
        for (KVal v = 1; v < g->k->nops && e->lanes > 1; v++)
            if (!t->turned[v] && gpu_is_request(g, v) && !g->k->ops[v].mask) (void)emit_value(e, v);
        (void)emit_switch(e, outer);
    }
}

static void write_tile(Turn *t) {
    Gpu *g = t->g;
    Emit *e = g->e;
    const Pass *p = &g->rows->pass[0];
    e->lanes = t->to_lanes;
    for (uint32_t u = 0; u < rounds(t, t->to_lanes); u++) {
        EmitIf inside;
        EmitScope *outer = emit_switch(e, t->stored[u]);
        Spot s = target(t, u);
        for (uint32_t i = 0; i < t->n; i++) emit_override(e, t->load[i], turned_value(t, i, &s));
        LLVMValueRef in = LLVMBuildAnd(
            e->b, LLVMBuildICmp(e->b, LLVMIntSLT, s.to, emit_expr(e, g->k->axes[t->to].extent), ""),
            LLVMBuildICmp(e->b, LLVMIntSLT, s.from, emit_expr(e, g->k->axes[t->from].extent), ""),
            "");
        emit_if_begin(e, &inside, in);
        for (uint32_t i = 0; i < p->nstores; i++) emit_store(e, p->stores[i]);
        emit_if_end(e, &inside);
        (void)emit_switch(e, outer);
    }
}

bool gpu_transpose(Gpu *g) {
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    Turn t = {.g = g};
    if (!find_shape(&t)) return false;
    t.from_lanes = read_lanes(&t);
    bool *skip = ARENA_ARRAY(e->arena, bool, g->k->nops);
    for (KVal v = 1; v < g->k->nops; v++) skip[v] = t.turned[v] || t.apart[v];
    t.to_lanes = gpu_lanes(g, t.to, skip);
    choose_side(&t);
    choose_packed(&t);
    Expr tile = expr_const(p, t.side);
    Expr across = expr_ceildiv(p, g->k->axes[t.to].extent, tile);
    Expr down = expr_ceildiv(p, g->k->axes[t.from].extent, tile);
    gpu_batch_begin(g, t.threads, expr_mul(p, across, down), t.others);
    LLVMValueRef n = emit_expr(e, across), size = emit_i64(e, t.side);
    t.first[0] = LLVMBuildMul(e->b, LLVMBuildUDiv(e->b, g->block[0], n, ""), size, "");
    t.first[1] = LLVMBuildMul(e->b, LLVMBuildURem(e->b, g->block[0], n, ""), size, "");
    for (uint32_t i = 0; i < t.n; i++)
        t.shared[i] = gpu_shared(g, mem_type(&t, i), t.side * pitch(&t, i));
    request_turned(&t);
    read_tile(&t);
    gpu_barrier(e);
    request_direct(&t);
    write_tile(&t);
    gpu_batch_end(g);
    return true;
}
