/* The left operand of a contraction: how it can be read, its table, and how what cannot be read in
 * place is computed into scratch. */
#include "codegen/cpu/dot/dot.h"

/* A product of comparisons, each affine in the run's axes: true within a run if true at its ends */
static bool is_box(Dot *d, Expr mask, uint32_t nrun) {
    ExprPool *p = d->p;
    Expr coef, rest;
    if (expr_op(p, mask) == EX_mul)
        return is_box(d, expr_arg(p, mask, 0), nrun) && is_box(d, expr_arg(p, mask, 1), nrun);
    bool uses = false;
    for (uint32_t i = 0; i < nrun; i++)
        uses |= expr_uses(p, mask, d->k->axes[d->ka.axis[d->ka.n - 1 - i]].sym);
    if (!uses) return true;
    if (expr_op(p, mask) != EX_lt) return false;
    Expr room = expr_sub(p, expr_arg(p, mask, 0), expr_arg(p, mask, 1));
    for (uint32_t i = 0; i < nrun; i++) {
        if (!expr_affine(p, room, d->k->axes[d->ka.axis[d->ka.n - 1 - i]].sym, &coef, &rest))
            return false;
        room = rest;
    }
    return true;
}

/* The contracted axes as the right operand has them. */
static void axes_of_right(Dot *d) {
    Expr row = expr_const(d->p, 1);
    d->ka = d->kk;
    d->permuted = false;
    for (uint32_t i = d->kk.n; i-- > 0;) {
        d->rows[i] = row;
        row = expr_mul(d->p, row, d->k->axes[d->kk.axis[i]].extent);
    }
}

/* Ordered by the left operand's strides, longest first; where it does not move evenly along one of
 * them, as they are. */
static void order_axes(Dot *d) {
    ExprPool *p = d->p;
    KVal load = dot_load_of(d, d->t->a);
    int64_t stride[K_MAX_AXES];
    Expr coef, rest;
    axes_of_right(d);
    for (uint32_t i = 0; i < d->kk.n; i++) {
        const uint32_t sym = d->k->axes[d->kk.axis[i]].sym;
        if (!load || !expr_affine(p, d->k->ops[load].index, sym, &coef, &rest)) return;
        stride[i] = expr_hint(p, coef);
    }
    for (uint32_t i = 1; i < d->ka.n; i++)
        for (uint32_t j = i; j > 0 && stride[j - 1] < stride[j]; j--) {
            int64_t s = stride[j];
            uint8_t axis = d->ka.axis[j];
            Expr skip = d->rows[j];
            stride[j] = stride[j - 1], stride[j - 1] = s;
            d->ka.axis[j] = d->ka.axis[j - 1], d->ka.axis[j - 1] = axis;
            d->rows[j] = d->rows[j - 1], d->rows[j - 1] = skip;
            d->permuted = true;
        }
}

/* Axes, counted from the last of ka, along which the right operand's rows follow each other evenly.
 */
static uint32_t even_rows(Dot *d) {
    uint32_t n = 1;
    for (uint32_t i = d->ka.n - 1; i > 0; i--, n++) {
        Expr size = d->k->axes[d->ka.axis[i]].extent;
        if (d->rows[i - 1] != expr_mul(d->p, d->rows[i], size)) break;
    }
    return n;
}

/* The integer that v widens to the accumulator's type, if 16 bits hold it with its sign; or 0. */
static KVal narrow_integer(Dot *d, KVal v) {
    const KOp *o = &d->k->ops[v];
    DType t = o->op == OP_cast ? (DType)d->k->ops[o->in[0]].dtype : DT_bool;
    return t == DT_i16 || t == DT_i8 || t == DT_u8 ? o->in[0] : 0;
}

/* The value of type t that v is, behind casts which widen it. */
static KVal widened_from(Dot *d, KVal v, DType t) {
    const KOp *o = &d->k->ops[v];
    for (; o->op == OP_cast && dtype_bytes((DType)o->dtype) > 1; o = &d->k->ops[v]) v = o->in[0];
    return (DType)o->dtype == t ? v : 0;
}

/* What runs hold: the same on every variant, for it decides blocks. Needs the right operands'
 * modes */
static void choose_left(Dot *d) {
    d->quads = d->t->quads;
    if (d->quads) {
        d->a = widened_from(d, d->t->a, DT_u8);
        d->left = DT_u8;
        return;
    }
    d->pairs = d->acc == DT_i32 && narrow_integer(d, d->t->a);
    for (uint32_t i = 0; i < d->t->nacc; i++)
        d->pairs &= dot_always_direct(d, i) && narrow_integer(d, d->t->b[i]);
    if (!d->pairs) return;
    d->a = narrow_integer(d, d->t->a);
    d->left = DT_i16;
}

/* Whether runs along the last n axes of ka are made of whole groups of rows. */
static bool fits_groups(Dot *d, uint32_t n) {
    const int64_t rows = dot_group_rows(d);
    bool whole = false;
    for (uint32_t i = 0; i < n; i++)
        whole |= expr_divisor(d->p, d->k->axes[d->ka.axis[d->ka.n - 1 - i]].extent) % rows == 0;
    return rows == 1 || (!d->permuted && (n == d->ka.n || whole));
}

/* Runs of bf16 are copied, as other instruction sets copy what they widen: blocks are the same. */
static void choose_bf16(Dot *d) {
    const Isa *isa = d->e->isa;
    if ((!isa->multiply_bf16 && !isa->tiles) || !dot_is_bf16(d->k)) return;
    for (uint32_t i = 0; i < d->t->nacc; i++)
        if (d->b[i].mode != DOT_B_DIRECT) return;
    d->pairs = d->bf16 = true;
    d->amx.on = isa->tiles;
    const KOp *a = &d->k->ops[d->t->a];
    d->a = a->op == OP_cast ? a->in[0] : d->t->a;
    d->left = DT_bf16;
}

void dot_analyse_a(Dot *d) {
    choose_left(d);
    if (!d->quads && dot_analyse_columns(d)) return;
    choose_bf16(d);
    const KOp *o = &d->k->ops[d->a];
    order_axes(d);
    d->nrun = even_rows(d);
    d->step = expr_const(d->p, 1);
    if (o->op == K_kload && (DType)o->dtype == d->left && !d->bf16) {
        Expr step = 0;
        uint32_t n = dot_uniform_stride(d, &d->ka, o->index, &step);
        if (n > d->nrun) n = d->nrun;
        bool whole = !o->mask || (expr_is_value(d->p, step, 1) && is_box(d, o->mask, n) &&
                                  !dot_moves_indirectly(d, &d->ka, o->mask));
        bool near = expr_is_value(d->p, step, 1);
        if (n && whole && (near || !(d->pairs || d->quads)) && fits_groups(d, n)) {
            d->direct = true;
            d->guarded = o->mask != 0;
            d->nrun = n;
            d->step = step;
        }
    }
    d->amx.on |= d->quads && d->e->isa->tiles;
    if (d->amx.on ||
        (dot_group_rows(d) > 1 && !d->direct)) { /* one run, in the right operand's order */
        axes_of_right(d);
        d->nrun = d->ka.n;
    }
    d->run = d->nruns = expr_const(d->p, 1);
    for (uint32_t i = 0; i < d->ka.n; i++) {
        Expr *size = i + d->nrun < d->ka.n ? &d->nruns : &d->run;
        *size = expr_mul(d->p, *size, d->k->axes[d->ka.axis[i]].extent);
    }
}

bool dot_rows_follow(Dot *d) {
    Expr stride = 0;
    if (!d->direct || d->guarded || !expr_is_value(d->p, d->nruns, 1)) return false;
    return expr_is_value(d->p, d->step, 1) &&
           dot_uniform_stride(d, &d->m, d->k->ops[d->a].index, &stride) == d->m.n &&
           stride == d->kk.size;
}

Expr dot_run_row(Dot *d, Expr run) {
    ExprPool *p = d->p;
    Expr inner = expr_const(p, 1), row = expr_const(p, 0);
    for (uint32_t i = d->ka.n - d->nrun; i-- > 0;) {
        Expr size = d->k->axes[d->ka.axis[i]].extent, at = expr_div(p, run, inner);
        if (i) at = expr_mod(p, at, size);
        row = expr_add(p, row, expr_mul(p, at, d->rows[i]));
        inner = expr_mul(p, inner, size);
    }
    return row;
}

/* Whether the load's mask holds all along the last `count` axes of ka: at every corner of those
 * that it uses. */
static LLVMValueRef inside_along(Dot *d, Expr mask, uint32_t count) {
    Emit *e = d->e;
    uint32_t used[K_MAX_AXES], n = 0;
    for (uint32_t i = d->ka.n - count; i < d->ka.n; i++)
        if (expr_uses(d->p, mask, d->k->axes[d->ka.axis[i]].sym)) used[n++] = d->ka.axis[i];
    Expr all = expr_const(d->p, 1);
    for (uint32_t corner = 0; corner < 1u << n; corner++) {
        uint32_t sym[K_MAX_AXES];
        Expr by[K_MAX_AXES];
        for (uint32_t i = 0; i < n; i++) {
            const KAxis *axis = &d->k->axes[used[i]];
            sym[i] = axis->sym;
            by[i] = corner >> i & 1 ? expr_addi(d->p, axis->extent, -1) : expr_const(d->p, 0);
        }
        all = expr_and(d->p, all, expr_subst(d->p, mask, sym, by, n));
    }
    LLVMValueRef v = emit_mask(e, all);
    return v ? v : LLVMConstInt(e->i1, 1, false);
}

void dot_pack_run(Dot *d, LLVMValueRef slot) {
    Emit *e = d->e;
    EmitLoop loops[K_MAX_AXES];
    uint32_t first = d->ka.n - d->nrun, last = d->ka.n - 1;
    LLVMValueRef at = emit_i64(e, 0);
    for (uint32_t i = first; i <= last; i++) {
        const KAxis *axis = &d->k->axes[d->ka.axis[i]];
        LLVMValueRef size = emit_expr(e, axis->extent);
        LLVMValueRef step = emit_i64(e, i == last ? d->lanes : 1);
        loops[i] = (EmitLoop){0};
        emit_loop_begin(e, &loops[i], "pack", emit_i64(e, 0), size, step, false);
        at = LLVMBuildAdd(e->b, LLVMBuildMul(e->b, at, size, ""), loops[i].i, "");
        if (i < last) {
            emit_set_sym(e, axis->sym, loops[i].i);
            continue;
        }
        LLVMValueRef left = LLVMBuildSub(e->b, size, loops[i].i, "");
        bool ragged = expr_divisor(d->p, axis->extent) % d->lanes != 0;
        Expr base = emit_new_sym(e, "k", INT32_MAX, loops[i].i);
        emit_bind_lanes(e, axis->sym, base, ragged ? emit_lanes_below(e, left) : NULL, true);
        LLVMValueRef v = emit_value_lanes(e, d->a);
        v = emit_cast(e, (DType)d->k->ops[d->a].dtype, d->left, v);
        if (d->amx.on && ragged)
            v = emit_select(e, emit_lane_mask(e), v, LLVMConstNull(LLVMTypeOf(v)));
        LLVMTypeRef t = emit_mem_type(e, d->left);
        emit_store_ptr(e, v, emit_gep(e, t, slot, at), (uint32_t)dtype_bytes(d->left));
    }
    for (uint32_t i = last + 1; i-- > first;) emit_loop_end(e, &loops[i]);
}

/* Where the run begins in the operand itself. */
static LLVMValueRef run_place(Dot *d) {
    Emit *e = d->e;
    const KOp *o = &d->k->ops[d->a];
    emit_push(e);
    for (uint32_t i = d->ka.n - d->nrun; i < d->ka.n; i++)
        emit_bind(e, d->k->axes[d->ka.axis[i]].sym, expr_const(d->p, 0));
    LLVMValueRef place = emit_address(e, o->buf, o->index);
    emit_pop(e);
    return place;
}

/* The table's entry for the bound row and outer contracted axes. Runs are packed in ascending
 * order, so that what a last vector writes beyond its run is overwritten. */
static LLVMValueRef run_pointer(Dot *d, LLVMValueRef slot) {
    Emit *e = d->e;
    const KOp *o = &d->k->ops[d->a];
    if (!d->direct) {
        dot_pack_run(d, slot);
        return slot;
    }
    LLVMValueRef place = run_place(d);
    if (!d->guarded) return place;
    LLVMValueRef inside = inside_along(d, o->mask, d->nrun);
    LLVMValueRef entry = LLVMBuildSelect(e->b, inside, place, slot, "");
    EmitIf border;
    emit_if_begin(e, &border, LLVMBuildNot(e->b, inside, ""));
    dot_pack_run(d, slot);
    emit_if_end(e, &border);
    return entry;
}

/* The entries of one row, run by run. */
static void fill_row(Dot *d, LLVMValueRef row) {
    Emit *e = d->e;
    EmitLoop loops[K_MAX_AXES];
    LLVMValueRef zero = emit_i64(e, 0), one = emit_i64(e, 1), run = emit_expr(e, d->run), at = row;
    for (uint32_t i = 0; i + d->nrun < d->ka.n; i++) {
        const KAxis *axis = &d->k->axes[d->ka.axis[i]];
        LLVMValueRef size = emit_expr(e, axis->extent);
        loops[i] = (EmitLoop){0};
        emit_loop_begin(e, &loops[i], "run", zero, size, one, false);
        emit_set_sym(e, axis->sym, loops[i].i);
        at = LLVMBuildAdd(e->b, LLVMBuildMul(e->b, at, size, ""), loops[i].i, "");
    }
    LLVMValueRef slot = NULL;
    if (d->packed)
        slot = emit_gep(e, emit_mem_type(e, d->left), d->packed, LLVMBuildMul(e->b, at, run, ""));
    LLVMValueRef entry = run_pointer(d, slot);
    emit_store_ptr(e, entry, emit_gep(e, e->ptr, d->table, at), 8);
    for (uint32_t i = d->ka.n - d->nrun; i-- > 0;) emit_loop_end(e, &loops[i]);
}

/* The same, unrolled, where all runs are read in place. */
static void fill_row_inside(Dot *d, LLVMValueRef row, uint32_t nruns) {
    Emit *e = d->e;
    LLVMValueRef first = LLVMBuildMul(e->b, row, emit_i64(e, nruns), "");
    first = emit_gep(e, e->ptr, d->table, first);
    for (uint32_t r = 0; r < nruns; r++) {
        int64_t left = r, size = 1;
        emit_push(e);
        for (uint32_t i = d->ka.n - d->nrun; i-- > 0; left /= size) {
            const KAxis *axis = &d->k->axes[d->ka.axis[i]];
            size = expr_value(d->p, axis->extent);
            emit_bind(e, axis->sym, expr_const(d->p, left % size));
        }
        LLVMValueRef place = run_place(d);
        emit_pop(e);
        emit_store_ptr(e, place, emit_gep(e, e->ptr, first, emit_i64(e, r)), 8);
    }
}

#define MAX_UNROLLED_RUNS 32

void dot_fill_table(Dot *d, LLVMValueRef rows) {
    Emit *e = d->e;
    EmitLoop row = {0};
    EmitIf whole, border;
    int64_t nruns;
    Expr mask = d->k->ops[d->a].mask;
    bool unroll = d->direct && expr_is_const(d->p, d->nruns, &nruns) && nruns > 1 &&
                  nruns <= MAX_UNROLLED_RUNS && (!d->guarded || is_box(d, mask, d->ka.n));
    emit_loop_begin(e, &row, "row", emit_i64(e, 0), rows, emit_i64(e, 1), true);
    dot_bind(d, &d->m, emit_below(d->e, "row", d->m.size, LLVMBuildAdd(e->b, d->row0, row.i, "")));
    if (!unroll) {
        fill_row(d, row.i);
    } else if (!d->guarded) {
        fill_row_inside(d, row.i, (uint32_t)nruns);
    } else {
        LLVMValueRef inside = inside_along(d, mask, d->ka.n);
        LLVMValueRef outside = LLVMBuildNot(e->b, inside, "");
        emit_if_begin(e, &whole, inside);
        fill_row_inside(d, row.i, (uint32_t)nruns);
        emit_if_end(e, &whole);
        emit_if_begin(e, &border, outside);
        fill_row(d, row.i);
        emit_if_end(e, &border);
    }
    emit_loop_end(e, &row);
}
