/* Pointwise kernels that read along one axis what they store along another. A block takes a tile of
 * both: the values that lie the other way round are read side by side and turned in shared memory,
 * everything else happens as in point.c. */
#include "codegen/nvptx/gpu.h"

enum { TILE = 64, THREADS = 256, MOST_ROUNDS = TILE * TILE / THREADS, MOST_TURNED = 4, PAD = 4 /* bytes: rows start in other banks */ };

typedef struct Turn {
    Gpu *g;
    uint32_t from, to; /* axes: read along, stored along */
    uint32_t from_lanes, to_lanes, others;
    uint32_t n;
    KVal load[MOST_TURNED];
    LLVMValueRef shared[MOST_TURNED];
    bool *turned;
    LLVMValueRef first[2]; /* of the tile, along from and to */
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
        for (uint32_t i = 0; i < g->k->naxes; i++)
            if (i != t->to && steps_by_one(g, o->index, i)) own = (int)i;
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
    t->turned = ARENA_ARRAY(g->e->arena, bool, g->k->nops);
    if (!find_turned(t)) return false;
    t->others = g->rows->par & ~(1u << t->from | 1u << t->to);
    return gpu_hint(g->e, g->k->axes[t->from].extent) >= TILE / 2 &&
           gpu_hint(g->e, g->k->axes[t->to].extent) >= TILE / 2;
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

/* --- The two halves --------------------------------------------------------------------------- */

/* Position of this thread's vector number u in the tile: `along` the lanes, `across` them. */
typedef struct Spot {
    LLVMValueRef along, across; /* elements from the tile's corner */
    LLVMValueRef to, from;      /* where it is stored: positions of those axes */
} Spot;

static Spot spot(const Turn *t, uint32_t lanes, uint32_t u) {
    Emit *e = t->g->e;
    uint32_t per_row = TILE / lanes;
    LLVMValueRef at = LLVMBuildAdd(e->b, t->g->tid, emit_i64(e, (int64_t)u * THREADS), "");
    LLVMValueRef v = LLVMBuildAnd(e->b, at, emit_i64(e, per_row - 1), "");
    return (Spot){.along = LLVMBuildMul(e->b, v, emit_i64(e, lanes), ""),
                  .across = LLVMBuildLShr(e->b, at, emit_i64(e, __builtin_ctz(per_row)), "")};
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
    return TILE + (PAD > bytes ? PAD / bytes : 1);
}

static LLVMTypeRef mem_type(const Turn *t, uint32_t i) {
    return emit_mem_type(t->g->e, t->g->k->params[t->g->k->ops[t->load[i]].buf].dtype);
}

/* Element (from, to) of the tile. */
static LLVMValueRef place(const Turn *t, uint32_t i, LLVMValueRef from, LLVMValueRef to) {
    Emit *e = t->g->e;
    LLVMValueRef at = LLVMBuildMul(e->b, from, emit_i64(e, pitch(t, i)), "");
    return emit_gep(e, mem_type(t, i), t->shared[i], LLVMBuildAdd(e->b, at, to, ""));
}

/* A bool is a byte in memory. */
static LLVMValueRef to_byte(Emit *e, LLVMValueRef v, LLVMTypeRef t) {
    return LLVMTypeOf(v) == e->i1 ? LLVMBuildZExt(e->b, v, t, "") : v;
}

static uint32_t read_rounds(const Turn *t) {
    return TILE * TILE / (THREADS * t->from_lanes);
}

static uint32_t stored_rounds(const Turn *t) {
    return TILE * TILE / (THREADS * t->to_lanes);
}

/* All of them at once, if they are vectors: single elements would take a register each. */
static void request_turned(Turn *t) {
    Emit *e = t->g->e;
    e->lanes = t->from_lanes;
    for (uint32_t u = 0; u < read_rounds(t); u++) {
        EmitScope *outer = e->scope;
        Spot s = spot(t, e->lanes, u);
        t->read[u] = emit_push(e);
        bind(t, t->from, t->to, LLVMBuildAdd(e->b, t->first[0], s.along, ""),
             LLVMBuildAdd(e->b, t->first[1], s.across, ""));
        for (uint32_t i = 0; i < t->n && e->lanes > 1; i++) (void)emit_value(e, t->load[i]);
        (void)emit_switch(e, outer);
    }
}

static void read_tile(Turn *t) {
    Emit *e = t->g->e;
    e->lanes = t->from_lanes;
    for (uint32_t u = 0; u < read_rounds(t); u++) {
        EmitScope *outer = emit_switch(e, t->read[u]);
        Spot s = spot(t, e->lanes, u);
        for (uint32_t i = 0; i < t->n; i++) {
            LLVMValueRef v = emit_value_lanes(e, t->load[i]);
            for (uint32_t l = 0; l < e->lanes; l++) {
                LLVMValueRef x =
                    e->lanes > 1 ? LLVMBuildExtractElement(e->b, v, emit_i64(e, l), "") : v;
                LLVMValueRef from = LLVMBuildAdd(e->b, s.along, emit_i64(e, l), "");
                LLVMBuildStore(e->b, to_byte(e, x, mem_type(t, i)), place(t, i, from, s.across));
            }
        }
        (void)emit_switch(e, outer);
    }
}

static LLVMValueRef turned_value(const Turn *t, uint32_t i, const Spot *s) {
    Emit *e = t->g->e;
    LLVMTypeRef m = mem_type(t, i);
    DType type = t->g->k->params[t->g->k->ops[t->load[i]].buf].dtype;
    LLVMValueRef p = place(t, i, s->across, s->along);
    uint32_t bytes = (uint32_t)dtype_bytes(type) * e->lanes;
    LLVMValueRef v = emit_load(e, emit_vec(m, e->lanes), p, bytes < PAD ? bytes : PAD);
    if (type != DT_bool) return v;
    return LLVMBuildICmp(e->b, LLVMIntNE, v, LLVMConstNull(LLVMTypeOf(v)), "");
}

static Spot target(const Turn *t, uint32_t u) {
    Emit *e = t->g->e;
    Spot s = spot(t, e->lanes, u);
    s.to = LLVMBuildAdd(e->b, t->first[1], s.along, "");
    s.from = LLVMBuildAdd(e->b, t->first[0], s.across, "");
    return s;
}

/* What is read as it is stored is on its way while the others are turned. */
static void request_direct(Turn *t) {
    Gpu *g = t->g;
    Emit *e = g->e;
    e->lanes = t->to_lanes;
    for (uint32_t u = 0; u < stored_rounds(t); u++) {
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
    for (uint32_t u = 0; u < stored_rounds(t); u++) {
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
    if (!has_shape(&t)) return false;
    t.from_lanes = read_lanes(&t);
    t.to_lanes = gpu_lanes(g, t.to, t.turned);
    Expr tile = expr_const(p, TILE);
    Expr across = expr_ceildiv(p, g->k->axes[t.to].extent, tile);
    Expr down = expr_ceildiv(p, g->k->axes[t.from].extent, tile);
    gpu_batch_begin(g, THREADS, expr_mul(p, across, down), t.others);
    LLVMValueRef n = emit_expr(e, across), size = emit_i64(e, TILE);
    t.first[0] = LLVMBuildMul(e->b, LLVMBuildUDiv(e->b, g->block[0], n, ""), size, "");
    t.first[1] = LLVMBuildMul(e->b, LLVMBuildURem(e->b, g->block[0], n, ""), size, "");
    for (uint32_t i = 0; i < t.n; i++)
        t.shared[i] = gpu_shared(g, mem_type(&t, i), TILE * pitch(&t, i));
    request_turned(&t);
    request_direct(&t);
    read_tile(&t);
    gpu_barrier(e);
    write_tile(&t);
    gpu_batch_end(g);
    return true;
}
