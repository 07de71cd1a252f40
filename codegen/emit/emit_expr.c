/* Integer expressions to LLVM: resolution of bindings, analysis along the lanes, emission.
 *
 * A resolved expression holds only dims, symbols with an LLVM value, and the lane number. Its
 * scalar part at lane 0 is emitted as ordinary i64 arithmetic; what remains of the lanes is the
 * stride. Sums and products are split by scope depth, outer parts first, so that everything
 * loop-invariant ends up outside of the loop. */
#include "codegen/emit/emit_internal.h"

/* --- Resolution --------------------------------------------------------------------------- */

#define MAX_SYMS 48
typedef struct SymList {
    Emit *e;
    uint32_t n, sym[MAX_SYMS];
    Expr by[MAX_SYMS];
} SymList;

/* The symbol that stands for the present value of an indirect one: one per distinct LLVM value, so
 * that expressions of different copies stay different. */
static Expr alias_of(Emit *e, uint32_t sym, KVal bind) {
    EmitVal v = emit_val(e, e->k->ops[bind].in[0]);
    EmitMemo key = {.kind = MEMO_alias, .a = (uintptr_t)v.v, .b = sym};
    const EmitMemo *m = emit_memo_get(e, v.depth, key);
    if (m) return m->expr;
    SymInfo info = *expr_sym_info(e->exprs, sym);
    info.kind = SYM_AXIS;
    uint32_t s = 0;
    key.expr = expr_sym_new(e->exprs, info);
    (void)expr_is_sym(e->exprs, key.expr, &s);
    DType t = (DType)e->k->ops[e->k->ops[bind].in[0]].dtype;
    EmitPlace back = emit_hoist(e, v.depth);
    LLVMValueRef wide = emit_cast(e, t, DT_i64, v.v);
    emit_set_sym(e, s, wide);
    emit_unhoist(e, back);
    emit_memo_put(e, v.depth, key);
    return key.expr;
}

static void collect_sym(void *ctx, uint32_t sym) {
    SymList *l = ctx;
    Emit *e = l->e;
    uint32_t depth, bind;
    Expr by = 0;
    const EmitBind *b = emit_find_bind(e, sym, &depth);
    if (b && !b->is_value)
        by = b->by;
    else if (!b && map_get(e->indirect, sym, &bind))
        by = expr_sym_ref(e->exprs, sym);
    if (!by) return;
    GC_ASSERT(l->n < MAX_SYMS);
    l->sym[l->n] = sym;
    l->by[l->n++] = by;
}

Expr emit_resolve(Emit *e, Expr x) {
    EmitMemo key = {.kind = MEMO_resolve, .a = x};
    const EmitMemo *m = emit_memo_get(e, e->scope->depth, key);
    if (m) return m->expr;
    for (Expr r = x;; x = r) {
        SymList l = {.e = e};
        expr_each_sym(e->exprs, x, collect_sym, &l);
        if (!l.n) break;
        for (uint32_t i = 0, bind; i < l.n; i++)
            if (expr_is_sym(e->exprs, l.by[i], &bind) && bind == l.sym[i] &&
                map_get(e->indirect, l.sym[i], &bind))
                l.by[i] = alias_of(e, l.sym[i], bind);
        r = expr_subst(e->exprs, x, l.sym, l.by, l.n);
    }
    key.expr = x;
    emit_memo_put(e, e->scope->depth, key);
    return x;
}

typedef struct DepthWalk {
    Emit *e;
    uint32_t depth;
    bool only_dims, varies;
} DepthWalk;

static void depth_sym(void *ctx, uint32_t sym) {
    DepthWalk *w = ctx;
    uint32_t depth = 0;
    const EmitBind *b = emit_find_bind(w->e, sym, &depth);
    if (b && depth > w->depth) w->depth = depth;
    if (b || sym == w->e->lane_sym) w->only_dims = false;
    if (sym == w->e->lane_sym || (b && b->is_value && emit_is_vector(b->value))) w->varies = true;
}

static DepthWalk walk(Emit *e, Expr x) {
    DepthWalk w = {.e = e, .only_dims = true};
    expr_each_sym(e->exprs, x, depth_sym, &w);
    return w;
}

uint32_t emit_expr_depth(Emit *e, Expr x) {
    return walk(e, x).depth;
}

bool emit_expr_varies(Emit *e, Expr x) {
    return walk(e, x).varies;
}

Expr emit_lane_zero(Emit *e, Expr x) {
    Expr zero = expr_const(e->exprs, 0);
    return expr_subst(e->exprs, x, &e->lane_sym, &zero, 1);
}

/* --- Lane analysis ------------------------------------------------------------------------ */

static int64_t gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a < 0 ? -a : a;
}

/* A constant known to divide x, using what is known of tile bases. */
int64_t emit_divisor(Emit *e, Expr x) {
    ExprPool *p = e->exprs;
    int64_t v;
    uint32_t sym, d;
    if (expr_is_const(p, x, &v)) return v == INT64_MIN ? 1 : v < 0 ? -v : v;
    if (expr_is_sym(p, x, &sym)) return map_get(e->aligned, sym, &d) ? (int64_t)d : 1;
    if (expr_op(p, x) == EX_add)
        return gcd(emit_divisor(e, expr_arg(p, x, 0)), emit_divisor(e, expr_arg(p, x, 1)));
    if (expr_op(p, x) == EX_mul) {
        int64_t a = emit_divisor(e, expr_arg(p, x, 0)), b = emit_divisor(e, expr_arg(p, x, 1)), r;
        return __builtin_mul_overflow(a, b, &r) ? 1 : r;
    }
    return expr_divisor(p, x);
}

/* True when x0 = x at lane 0 and all lanes of x = x0 + stride*lane lie between the same multiples
 * of n: then x / n is uniform and x % n moves as x does. */
static bool within_block(Emit *e, Expr x, Expr stride, Expr n) {
    int64_t c, size;
    if (!expr_is_const(e->exprs, stride, &c) || c <= 0) return false;
    Expr x0 = emit_lane_zero(e, x);
    int64_t d = gcd(emit_divisor(e, x0), emit_divisor(e, n));
    (void)size;
    return d == 0 || c * (int64_t)(e->lanes - 1) < d;
}

static bool stride_of(Emit *e, Expr x, Expr *s);

static bool stride_blocked(Emit *e, Expr x, Expr *s) {
    ExprPool *p = e->exprs;
    ExprOp op = expr_op(p, x);
    Expr a = expr_arg(p, x, 0), b = expr_arg(p, x, 1), sa, sb;
    if (!stride_of(e, a, &sa) || !stride_of(e, b, &sb)) return false;
    if (!expr_is_value(p, sb, 0) || !within_block(e, a, sa, b)) return false;
    *s = op == EX_mod ? sa : expr_const(p, 0);
    return true;
}

static bool stride_of(Emit *e, Expr x, Expr *s) {
    ExprPool *p = e->exprs;
    *s = expr_const(p, 0);
    if (!emit_expr_varies(e, x)) return true;
    Expr a, b, sa, sb, sc;
    switch (expr_op(p, x)) {
    case EX_sym:
        if (!expr_uses(p, x, e->lane_sym)) return false;
        *s = expr_const(p, 1);
        return true;
    case EX_add:
        if (!stride_of(e, expr_arg(p, x, 0), &sa) || !stride_of(e, expr_arg(p, x, 1), &sb))
            return false;
        *s = expr_add(p, sa, sb);
        return true;
    case EX_mul:
        a = expr_arg(p, x, 0), b = expr_arg(p, x, 1);
        if (!stride_of(e, a, &sa) || !stride_of(e, b, &sb)) return false;
        if (expr_is_value(p, sb, 0))
            *s = expr_mul(p, sa, emit_lane_zero(e, b));
        else if (expr_is_value(p, sa, 0))
            *s = expr_mul(p, emit_lane_zero(e, a), sb);
        else
            return false;
        return true;
    case EX_div:
    case EX_mod:
    case EX_lt: return stride_blocked(e, x, s);
    case EX_select:
        if (!stride_of(e, expr_arg(p, x, 0), &sc) || !expr_is_value(p, sc, 0)) return false;
        if (!stride_of(e, expr_arg(p, x, 1), &sa) || !stride_of(e, expr_arg(p, x, 2), &sb))
            return false;
        *s = sa;
        return sa == sb;
    default: return false;
    }
}

bool emit_stride(Emit *e, Expr x, Expr *stride) {
    return stride_of(e, x, stride) && !emit_expr_varies(e, *stride);
}

bool emit_lane_stride(Emit *e, Expr x, Expr *stride) {
    return emit_stride(e, emit_resolve(e, x), stride);
}

/* --- Scalar emission ---------------------------------------------------------------------- */

static LLVMValueRef load_dim(Emit *e, Expr x) {
    uint32_t at = 0;
    while (at < e->dims->v.n && e->dims->v.v[at] != x) at++;
    if (at == e->dims->v.n) vec_push(e->arena, &e->dims->v, x);
    if (e->dims_ptr) {
        LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
        emit_at_end(e, e->entry);
        LLVMValueRef v = emit_load(e, e->i64, emit_gep(e, e->i64, e->dims_ptr, emit_i64(e, at)), 8);
        emit_at_end(e, here);
        return v;
    }
    uint32_t param = e->first_dim + at;
    return param < LLVMCountParams(e->fn) ? LLVMGetParam(e->fn, param) : LLVMGetUndef(e->i64);
}

static LLVMValueRef dim_value(Emit *e, Expr x) {
    uint32_t i;
    if (map_get(e->dim_values, x, &i)) return e->dim_loaded.v[i];
    LLVMValueRef v = load_dim(e, x);
    map_put(e->dim_values, x, e->dim_loaded.n);
    vec_push(e->arena, &e->dim_loaded, v);
    return v;
}

typedef VEC(Expr) Terms;

static void flatten(Emit *e, Expr x, ExprOp op, Terms *t) {
    if (expr_op(e->exprs, x) == op) {
        flatten(e, expr_arg(e->exprs, x, 0), op, t);
        flatten(e, expr_arg(e->exprs, x, 1), op, t);
    } else {
        vec_push(e->arena, t, x);
    }
}

static Expr join(Emit *e, ExprOp op, Expr a, Expr b) {
    if (!a) return b;
    return op == EX_add ? expr_add(e->exprs, a, b) : expr_mul(e->exprs, a, b);
}

/* Parts of a sum or product: what only dims decide, what outer scopes decide, the innermost rest */
typedef struct Split {
    Expr outer;
    Terms inner;
} Split;

static Split split(Emit *e, Expr x, ExprOp op) {
    Terms t = {0};
    flatten(e, x, op, &t);
    DepthWalk *w = ARENA_ARRAY(e->arena, DepthWalk, t.n);
    uint32_t deepest = 0;
    bool any = false;
    for (uint32_t i = 0; i < t.n; i++) {
        w[i] = walk(e, t.v[i]);
        if (!w[i].only_dims && w[i].depth > deepest) deepest = w[i].depth;
        any |= !w[i].only_dims;
    }
    Split s = {0};
    for (uint32_t i = 0; i < t.n; i++) {
        if (any && (w[i].only_dims || w[i].depth < deepest))
            s.outer = join(e, op, s.outer, t.v[i]);
        else
            vec_push(e->arena, &s.inner, t.v[i]);
    }
    return s;
}

static bool nonnegative(Emit *e, Expr x, int64_t *hi) {
    int64_t lo;
    expr_range(e->exprs, x, &lo, hi);
    return lo >= 0;
}

/* Floored division and remainder of i64 scalars or vectors. */
static LLVMValueRef floor_general(Emit *e, bool mod, LLVMValueRef a, LLVMValueRef b) {
    LLVMTypeRef t = LLVMTypeOf(a);
    LLVMValueRef zero = emit_i(e, t, 0);
    LLVMValueRef none = LLVMBuildICmp(e->b, LLVMIntEQ, b, zero, "");
    LLVMValueRef d = LLVMBuildSelect(e->b, none, emit_i(e, t, 1), b, "");
    LLVMValueRef q = LLVMBuildSDiv(e->b, a, d, "");
    LLVMValueRef r = LLVMBuildSub(e->b, a, LLVMBuildMul(e->b, q, d, ""), "");
    LLVMValueRef odd = LLVMBuildICmp(e->b, LLVMIntNE, r, zero, "");
    LLVMValueRef x = LLVMBuildXor(e->b, r, d, "");
    LLVMValueRef opposite = LLVMBuildICmp(e->b, LLVMIntSLT, x, zero, "");
    LLVMValueRef fix = LLVMBuildAnd(e->b, odd, opposite, "");
    LLVMValueRef res =
        mod ? LLVMBuildSelect(e->b, fix, LLVMBuildAdd(e->b, r, d, ""), r, "")
            : LLVMBuildSelect(e->b, fix, LLVMBuildSub(e->b, q, emit_i(e, t, 1), ""), q, "");
    return LLVMBuildSelect(e->b, none, zero, res, "");
}

static LLVMValueRef divide_unsigned(Emit *e, LLVMOpcode op, LLVMValueRef a, LLVMValueRef b,
                                    bool narrow) {
    if (!narrow) return LLVMBuildBinOp(e->b, op, a, b, "");
    LLVMTypeRef t = emit_like(a, e->i32);
    LLVMValueRef q = LLVMBuildBinOp(e->b, op, LLVMBuildTrunc(e->b, a, t, ""),
                                    LLVMBuildTrunc(e->b, b, t, ""), "");
    return LLVMBuildZExt(e->b, q, LLVMTypeOf(a), "");
}

static LLVMValueRef floor_divmod(Emit *e, Expr x, LLVMValueRef a, LLVMValueRef b) {
    ExprPool *p = e->exprs;
    bool mod = expr_op(p, x) == EX_mod;
    Expr xb = expr_arg(p, x, 1);
    int64_t ah, bh, bl, c;
    LLVMTypeRef t = LLVMTypeOf(a);
    if (expr_is_const(p, xb, &c) && c > 0 && (c & (c - 1)) == 0)
        return mod ? LLVMBuildAnd(e->b, a, emit_i(e, t, c - 1), "")
                   : LLVMBuildAShr(e->b, a, emit_i(e, t, __builtin_ctzll((uint64_t)c)), "");
    expr_range(p, xb, &bl, &bh);
    if (bl < 0 || !nonnegative(e, expr_arg(p, x, 0), &ah)) return floor_general(e, mod, a, b);
    LLVMValueRef none = NULL;
    if (bl == 0) { /* anything by 0 is 0 */
        none = LLVMBuildICmp(e->b, LLVMIntEQ, b, emit_i(e, t, 0), "");
        b = LLVMBuildSelect(e->b, none, emit_i(e, t, 1), b, "");
    }
    LLVMValueRef q =
        divide_unsigned(e, mod ? LLVMURem : LLVMUDiv, a, b, ah <= INT32_MAX && bh <= INT32_MAX);
    return none ? LLVMBuildSelect(e->b, none, emit_i(e, t, 0), q, "") : q;
}

/* One operation on emitted operands, scalar or vector. */
static LLVMValueRef expr_apply(Emit *e, Expr x, LLVMValueRef *v) {
    LLVMTypeRef t = LLVMTypeOf(v[0]);
    LLVMValueRef c;
    switch (expr_op(e->exprs, x)) {
    case EX_add: return LLVMBuildAdd(e->b, v[0], v[1], "");
    case EX_mul: return LLVMBuildMul(e->b, v[0], v[1], "");
    case EX_div:
    case EX_mod: return floor_divmod(e, x, v[0], v[1]);
    case EX_min: return emit_intrinsic(e, "llvm.smin", t, v, 2);
    case EX_max: return emit_intrinsic(e, "llvm.smax", t, v, 2);
    case EX_lt:
        c = LLVMBuildICmp(e->b, LLVMIntSLT, v[0], v[1], "");
        return LLVMBuildZExt(e->b, c, t, "");
    case EX_eq:
        c = LLVMBuildICmp(e->b, LLVMIntEQ, v[0], v[1], "");
        return LLVMBuildZExt(e->b, c, t, "");
    default:
        c = LLVMBuildICmp(e->b, LLVMIntNE, v[0], emit_i(e, t, 0), "");
        return LLVMBuildSelect(e->b, c, v[1], v[2], "");
    }
}

static LLVMValueRef scalar_sum(Emit *e, Expr x, ExprOp op) {
    Split s = split(e, x, op);
    LLVMValueRef r = s.outer ? emit_expr_scalar(e, s.outer).v : NULL;
    for (uint32_t i = 0; i < s.inner.n; i++) {
        LLVMValueRef v = emit_expr_scalar(e, s.inner.v[i]).v;
        if (!r)
            r = v;
        else
            r = op == EX_add ? LLVMBuildAdd(e->b, r, v, "") : LLVMBuildMul(e->b, r, v, "");
    }
    return r;
}

static LLVMValueRef scalar_new(Emit *e, Expr x) {
    ExprOp op = expr_op(e->exprs, x);
    if (op == EX_add || op == EX_mul) return scalar_sum(e, x, op);
    LLVMValueRef v[3];
    for (int i = 0; i < expr_arity(expr_op(e->exprs, x)); i++)
        v[i] = emit_expr_scalar(e, expr_arg(e->exprs, x, i)).v;
    return expr_apply(e, x, v);
}

EmitVal emit_expr_scalar(Emit *e, Expr x) {
    int64_t c;
    uint32_t sym, depth = 0;
    if (expr_is_const(e->exprs, x, &c)) return (EmitVal){.v = emit_i64(e, c)};
    DepthWalk w = walk(e, x);
    if (w.only_dims) return (EmitVal){.v = dim_value(e, x)};
    if (expr_is_sym(e->exprs, x, &sym)) {
        const EmitBind *b = emit_find_bind(e, sym, &depth);
        GC_ASSERT(b && b->is_value);
        return (EmitVal){.v = b->value, .depth = depth};
    }
    EmitMemo key = {.kind = MEMO_expr, .a = x};
    const EmitMemo *m = emit_memo_get(e, w.depth, key);
    if (m) return (EmitVal){.v = m->v, .depth = w.depth};
    EmitPlace back = emit_hoist(e, w.depth);
    key.v = scalar_new(e, x);
    emit_memo_put(e, w.depth, key);
    emit_unhoist(e, back);
    return (EmitVal){.v = key.v, .depth = w.depth};
}

/* --- Lanes -------------------------------------------------------------------------------- */

static LLVMValueRef lane_numbers(Emit *e, LLVMTypeRef elem, int64_t step) {
    LLVMValueRef v[64];
    for (uint32_t i = 0; i < e->lanes; i++)
        v[i] = LLVMConstInt(elem, (unsigned long long)(step * (int64_t)i), true);
    return LLVMConstVector(v, e->lanes);
}

static LLVMValueRef vector_affine(Emit *e, Expr x, Expr stride) {
    int64_t c;
    LLVMValueRef base = emit_splat(e, emit_expr_scalar(e, emit_lane_zero(e, x)).v);
    if (expr_is_const(e->exprs, stride, &c))
        return LLVMBuildAdd(e->b, base, lane_numbers(e, e->i64, c), "");
    LLVMValueRef s = emit_splat(e, emit_expr_scalar(e, stride).v);
    return LLVMBuildAdd(e->b, base, LLVMBuildMul(e->b, s, lane_numbers(e, e->i64, 1), ""), "");
}

static LLVMValueRef vector_new(Emit *e, Expr x) {
    Expr stride;
    uint32_t sym, depth;
    if (emit_stride(e, x, &stride)) {
        if (expr_is_value(e->exprs, stride, 0))
            return emit_splat(e, emit_expr_scalar(e, emit_lane_zero(e, x)).v);
        return vector_affine(e, x, stride);
    }
    if (expr_is_sym(e->exprs, x, &sym)) return emit_find_bind(e, sym, &depth)->value;
    LLVMValueRef v[3];
    for (int i = 0; i < expr_arity(expr_op(e->exprs, x)); i++)
        v[i] = emit_splat(e, emit_expr_vector(e, expr_arg(e->exprs, x, i)).v);
    return expr_apply(e, x, v);
}

EmitVal emit_expr_vector(Emit *e, Expr x) {
    uint32_t depth = emit_expr_depth(e, x);
    EmitMemo key = {.kind = MEMO_vexpr, .a = x};
    const EmitMemo *m = emit_memo_get(e, depth, key);
    if (m) return (EmitVal){.v = m->v, .depth = depth};
    EmitPlace back = emit_hoist(e, depth);
    key.v = vector_new(e, x);
    emit_memo_put(e, depth, key);
    emit_unhoist(e, back);
    return (EmitVal){.v = key.v, .depth = depth};
}

LLVMValueRef emit_expr(Emit *e, Expr x) {
    Expr stride, r = emit_resolve(e, x);
    if (!emit_expr_varies(e, r)) return emit_expr_scalar(e, r).v;
    if (emit_stride(e, r, &stride) && expr_is_value(e->exprs, stride, 0))
        return emit_expr_scalar(e, emit_lane_zero(e, r)).v;
    return emit_expr_vector(e, r).v;
}

LLVMValueRef emit_expr_uniform(Emit *e, Expr x) {
    return emit_expr_scalar(e, emit_lane_zero(e, emit_resolve(e, x))).v;
}

/* --- Masks -------------------------------------------------------------------------------- */

/* lt(a, b) whose difference falls by one per lane: a prefix of the lanes, one narrow compare. */
static LLVMValueRef prefix_mask(Emit *e, Expr x) {
    ExprPool *p = e->exprs;
    Expr stride;
    if (expr_op(p, x) != EX_lt) return NULL;
    Expr room = expr_sub(p, expr_arg(p, x, 1), expr_arg(p, x, 0));
    if (!emit_stride(e, room, &stride) || !expr_is_value(p, stride, -1)) return NULL;
    return emit_lanes_below(e, emit_expr_scalar(e, emit_lane_zero(e, room)).v);
}

/* lt(a, b) that changes between vectors only, since these start at multiples of their size. */
static bool spares_vectors(Emit *e, Expr x) {
    ExprPool *p = e->exprs;
    Expr stride;
    if (expr_op(p, x) != EX_lt) return false;
    Expr room = expr_sub(p, expr_arg(p, x, 1), expr_arg(p, x, 0));
    if (!emit_stride(e, room, &stride)) return false;
    Expr first = emit_lane_zero(e, room);
    if (expr_is_value(p, stride, 1))
        first = expr_addi(p, first, -1);
    else if (!expr_is_value(p, stride, -1))
        return false;
    return (uint64_t)emit_divisor(e, first) % e->lanes == 0;
}

static LLVMValueRef mask_new(Emit *e, Expr x) {
    ExprPool *p = e->exprs;
    if (expr_op(p, x) == EX_mul) {
        LLVMValueRef a = emit_mask_resolved(e, expr_arg(p, x, 0)).v;
        LLVMValueRef b = emit_mask_resolved(e, expr_arg(p, x, 1)).v;
        if (emit_is_vector(a) != emit_is_vector(b)) a = emit_splat(e, a), b = emit_splat(e, b);
        return LLVMBuildAnd(e->b, a, b, "");
    }
    Expr stride;
    bool uniform =
        (emit_stride(e, x, &stride) && expr_is_value(p, stride, 0)) || spares_vectors(e, x);
    LLVMValueRef v = uniform ? NULL : prefix_mask(e, x);
    if (v) return v;
    v = uniform ? emit_expr_scalar(e, emit_lane_zero(e, x)).v : emit_expr_vector(e, x).v;
    return LLVMBuildICmp(e->b, LLVMIntNE, v, emit_i(e, LLVMTypeOf(v), 0), "");
}

EmitVal emit_mask_resolved(Emit *e, Expr x) {
    uint32_t depth = emit_expr_depth(e, x);
    EmitMemo key = {.kind = MEMO_vexpr, .a = x, .b = 1};
    const EmitMemo *m = emit_memo_get(e, depth, key);
    if (m) return (EmitVal){.v = m->v, .depth = depth};
    EmitPlace back = emit_hoist(e, depth);
    key.v = mask_new(e, x);
    emit_memo_put(e, depth, key);
    emit_unhoist(e, back);
    return (EmitVal){.v = key.v, .depth = depth};
}

LLVMValueRef emit_mask(Emit *e, Expr x) {
    if (!x || expr_is_value(e->exprs, x, 1)) return NULL;
    Expr r = emit_resolve(e, x);
    return expr_is_value(e->exprs, r, 1) ? NULL : emit_mask_resolved(e, r).v;
}

/* --- Addresses ---------------------------------------------------------------------------- */

EmitVal emit_addr(Emit *e, uint32_t buf, Expr x) {
    uint32_t depth = emit_expr_depth(e, x);
    EmitMemo key = {.kind = MEMO_addr, .a = buf, .b = x};
    const EmitMemo *m = emit_memo_get(e, depth, key);
    if (m) return (EmitVal){.v = m->v, .depth = depth};
    LLVMTypeRef t = emit_mem_type(e, e->k->params[buf].dtype);
    EmitPlace back = emit_hoist(e, depth);
    Terms all = {0}, rest = {0};
    int64_t disp = 0, c;
    flatten(e, x, EX_add, &all);
    for (uint32_t i = 0; i < all.n; i++) {
        if (expr_is_const(e->exprs, all.v[i], &c))
            disp += c;
        else
            vec_push(e->arena, &rest, all.v[i]);
    }
    LLVMValueRef p = e->bufs[buf];
    if (disp && rest.n) {
        p = emit_addr(e, buf, expr_addi(e->exprs, x, -disp)).v;
        p = emit_gep(e, t, p, emit_i64(e, disp));
    } else if (rest.n) {
        Split s = split(e, x, EX_add);
        Expr inner = 0;
        for (uint32_t i = 0; i < s.inner.n; i++) inner = join(e, EX_add, inner, s.inner.v[i]);
        if (s.outer) p = emit_addr(e, buf, s.outer).v;
        p = emit_gep(e, t, p, emit_expr_scalar(e, inner).v);
    } else if (disp) {
        p = emit_gep(e, t, p, emit_i64(e, disp));
    }
    key.v = p;
    emit_memo_put(e, depth, key);
    emit_unhoist(e, back);
    return (EmitVal){.v = p, .depth = depth};
}

LLVMValueRef emit_address(Emit *e, uint32_t buf, Expr index) {
    return emit_addr(e, buf, emit_lane_zero(e, emit_resolve(e, index))).v;
}

LLVMValueRef emit_scratch(Emit *e, Expr bytes) {
    Expr at = e->scratch_bytes;
    Expr rounded = expr_muli(e->exprs, expr_ceildiv(e->exprs, bytes, expr_const(e->exprs, 64)), 64);
    e->scratch_bytes = expr_add(e->exprs, at, rounded);
    return emit_gep(e, e->i8, e->scratch, emit_expr(e, at));
}
