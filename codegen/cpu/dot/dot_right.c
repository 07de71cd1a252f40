/* The right operand of a contraction: how it can be read, copies of what cannot, and what is asked
 * for ahead. */
#include "codegen/cpu/dot/dot.h"
#include "codegen/emit/shuffle.h"
#include <string.h>

/* True when columns end on a vector boundary in every sub-panel: nothing beyond is read. */
static bool columns_even(Dot *d, uint32_t lanes) {
    int64_t n;
    int64_t unit = expr_is_const(d->p, d->n.size, &n) ? lanes : lanes * d->nv;
    return expr_divisor(d->p, d->n.size) % unit == 0;
}

void dot_analyse_b(Dot *d, uint32_t i) {
    DotB *b = &d->b[i];
    KVal v = d->t->b[i];
    *b = (DotB){.mode = DOT_B_COPIED};
    while (d->k->ops[v].op == OP_cast && (v == d->t->b[i] || d->t->quads)) v = d->k->ops[v].in[0];
    const KOp *load = &d->k->ops[v];
    if (load->op != K_kload || load->mask || load->dtype == DT_bool) return;
    Expr column = 0, row = 0;
    if (d->t->pack == DOT_PANEL) {
        row = expr_const(d->p, DOT_PANEL);
    } else {
        if (d->t->pack || !columns_even(d, d->lanes)) return;
        if (dot_uniform_stride(d, &d->n, load->index, &column) != d->n.n) return;
        if (dot_uniform_stride(d, &d->kk, load->index, &row) != d->kk.n) return;
        if (!expr_is_value(d->p, column, 1)) return;
    }
    *b = (DotB){.mode = DOT_B_DIRECT, .load = v, .memory = (DType)load->dtype, .step = row};
}

bool dot_costly_copy(Dot *d, uint32_t i) {
    KVal load = dot_load_of(d, d->t->b[i]);
    Expr column = 0;
    return !d->t->pack && (!load || !dot_uniform_stride(d, &d->n, d->k->ops[load].index, &column) ||
                           !expr_is_value(d->p, column, 1));
}

bool dot_always_direct(Dot *d, uint32_t i) {
    uint32_t widest = d->lanes * d->e->widest / d->e->isa->lanes;
    return d->b[i].mode == DOT_B_DIRECT && (d->t->pack || columns_even(d, widest));
}

/* Rows far apart lie on a page each: a panel of many of them is gathered once where the rows of the
 * left operand that read it are enough to pay for that. */
#define FAR_BYTES 1024
#define FAR_ROWS  512
#define FAR_USES  64

void dot_gather_far(Dot *d, uint32_t i) {
    DotB *b = &d->b[i];
    if (b->mode != DOT_B_DIRECT || d->t->pack || d->pairs) return;
    int64_t uses = expr_hint(d->p, expr_mul(d->p, d->block, d->span)) * DOT_ROWS;
    int64_t step = expr_hint(d->p, b->step) * (int64_t)dtype_bytes(b->memory);
    if (step >= FAR_BYTES && expr_hint(d->p, d->kk.size) >= FAR_ROWS && uses >= FAR_USES)
        b->mode = DOT_B_COPIED;
}

/* Whether v's loads are of one element, or of columns side by side. */
static bool lies_along(Dot *d, KVal v) {
    const KOp *o = &d->k->ops[v];
    Expr stride;
    if (o->op == K_kload)
        return !o->mask && emit_lane_stride(d->e, o->index, &stride) &&
               (expr_is_value(d->p, stride, 0) || expr_is_value(d->p, stride, 1));
    if (o->op >= OP_COUNT && o->op != K_konst && o->op != K_kexpr) return false;
    for (uint32_t i = 0; i < 3; i++)
        if (o->in[i] && !lies_along(d, o->in[i])) return false;
    return true;
}

bool dot_may_make(Dot *d, uint32_t i) {
    Emit *e = d->e;
    const KOp *load = &d->k->ops[dot_load_of(d, d->t->b[i])];
    if (d->b[i].mode != DOT_B_COPIED || d->t->pack || d->kk.n != 1 || d->pairs || d->permuted ||
        !expr_is_value(d->p, d->nruns, 1) || dot_moves_indirectly(d, &d->kk, load->index))
        return false;
    emit_push(e);
    Expr panel = emit_below(d->e, "panel", d->panels, emit_i64(e, 0));
    dot_bind_columns(d, expr_muli(d->p, panel, DOT_PANEL), NULL);
    bool ok = lies_along(d, d->t->b[i]);
    emit_pop(e);
    return ok;
}

/* Contiguous along the last contracted axis, not along the columns. */
static bool is_transposed(Dot *d, KVal v) {
    KVal load = dot_load_of(d, v);
    Expr row = 0, column = 0;
    if (!load || (d->lanes & (d->lanes - 1))) return false;
    Expr index = d->k->ops[load].index;
    return dot_uniform_stride(d, &d->kk, index, &row) && expr_is_value(d->p, row, 1) &&
           dot_uniform_stride(d, &d->n, index, &column) && !expr_is_value(d->p, column, 1);
}

typedef struct Copy {
    uint32_t acc;
    EmitLoop loops[K_MAX_AXES];
    LLVMValueRef row; /* where the current row of the panel lies, in elements */
} Copy;

/* Loops over the contracted axes, the last in steps of `step`. */
static void copy_begin(Dot *d, Copy *c, uint32_t step) {
    Emit *e = d->e;
    LLVMValueRef at = emit_i64(e, 0), zero = at;
    for (uint32_t a = 0; a < d->kk.n; a++) {
        const KAxis *axis = &d->k->axes[d->kk.axis[a]];
        LLVMValueRef size = emit_expr(e, axis->extent);
        LLVMValueRef by = emit_i64(e, a + 1 == d->kk.n ? step : 1);
        c->loops[a] = (EmitLoop){0};
        emit_loop_begin(e, &c->loops[a], "copy", zero, size, by, false);
        if (a + 1 < d->kk.n || step == 1) emit_set_sym(e, axis->sym, c->loops[a].i);
        at = LLVMBuildAdd(e->b, LLVMBuildMul(e->b, at, size, ""), c->loops[a].i, "");
    }
    c->row = LLVMBuildMul(e->b, at, emit_i64(e, DOT_PANEL), "");
}

static void copy_end(Dot *d, Copy *c) {
    for (uint32_t a = d->kk.n; a-- > 0;) emit_loop_end(d->e, &c->loops[a]);
}

static void copy_store(Dot *d, const Copy *c, uint32_t row, uint32_t column, LLVMValueRef v) {
    Emit *e = d->e;
    LLVMValueRef at = LLVMBuildAdd(e->b, c->row, emit_i64(e, row * DOT_PANEL + column), "");
    emit_store_ptr(e, v, emit_gep(e, d->elem, d->b[c->acc].copy, at), d->bytes);
}

/* Row by row, columns over lanes. */
static void copy_rows(Dot *d, Copy *c) {
    Emit *e = d->e;
    bool ragged = expr_divisor(d->p, d->n.size) % DOT_PANEL != 0;
    copy_begin(d, c, 1);
    for (uint32_t j = 0; j < DOT_PANEL; j += d->lanes) {
        Expr base = expr_addi(d->p, expr_muli(d->p, d->panel, DOT_PANEL), j);
        emit_push(e);
        LLVMValueRef left = emit_expr(e, expr_sub(d->p, d->n.size, base));
        dot_bind_columns(d, base, ragged ? emit_lanes_below(e, left) : NULL);
        copy_store(d, c, 0, j, emit_value_lanes(e, d->t->b[c->acc]));
        emit_pop(e);
    }
    copy_end(d, c);
}

/* n rows from k on: what several of them read, a word of weights, their scales, is read once. */
static void copy_words(Dot *d, Copy *c, Expr k, uint32_t n) {
    Emit *e = d->e;
    const KVal b = d->t->b[c->acc];
    bool ragged = expr_divisor(d->p, d->n.size) % DOT_PANEL != 0;
    for (uint32_t j = 0; j < DOT_PANEL; j += d->lanes) {
        Expr base = expr_addi(d->p, expr_muli(d->p, d->panel, DOT_PANEL), j);
        emit_push(e);
        LLVMValueRef left = emit_expr(e, expr_sub(d->p, d->n.size, base));
        dot_bind_columns(d, base, ragged ? emit_lanes_below(e, left) : NULL);
        for (uint32_t i = 0; i < n; i++) {
            emit_push(e);
            emit_bind(e, d->k->axes[d->kk.axis[0]].sym, expr_addi(d->p, k, i));
            LLVMValueRef v = emit_value_lanes(e, b);
            copy_store(d, c, i, j, emit_cast(e, (DType)d->k->ops[b].dtype, d->acc, v));
            emit_pop(e);
        }
        emit_pop(e);
    }
}

/* A right operand that could be made: in the steps in which it would be. */
static void copy_made(Dot *d, Copy *c) {
    Emit *e = d->e;
    ExprPool *p = d->p;
    const Expr unit = expr_const(p, DOT_MADE), whole = expr_div(p, d->kk.size, unit);
    const Expr rest = expr_mod(p, d->kk.size, unit);
    LLVMValueRef zero = emit_i64(e, 0), one = emit_i64(e, 1);
    EmitLoop l = {0}, last = {0};
    emit_loop_begin(e, &l, "word", zero, emit_expr(e, whole), one, false);
    c->row = LLVMBuildMul(e->b, l.i, emit_i64(e, DOT_MADE * DOT_PANEL), "");
    copy_words(d, c, expr_muli(p, emit_below(d->e, "word", whole, l.i), DOT_MADE), DOT_MADE);
    emit_loop_end(e, &l);
    if (expr_divisor(p, d->kk.size) % DOT_MADE == 0) return;
    emit_loop_begin(e, &last, "k", zero, emit_expr(e, rest), one, false);
    Expr k = expr_add(p, expr_muli(p, whole, DOT_MADE), emit_below(d->e, "k", unit, last.i));
    c->row = LLVMBuildMul(e->b, emit_expr(e, k), emit_i64(e, DOT_PANEL), "");
    copy_words(d, c, k, 1);
    emit_loop_end(e, &last);
}

/* Columns are read along the last contracted axis and transposed in registers. Columns past the
 * last repeat it; rows past the last are overwritten or lie in the slack. */
static void copy_columns(Dot *d, Copy *c) {
    Emit *e = d->e;
    ExprPool *p = d->p;
    LLVMValueRef v[64];
    copy_begin(d, c, d->lanes);
    const EmitLoop *inner = &c->loops[d->kk.n - 1];
    const KAxis *axis = &d->k->axes[d->kk.axis[d->kk.n - 1]];
    Expr k = emit_below(d->e, "k", axis->extent, inner->i), last = expr_addi(p, d->n.size, -1);
    LLVMValueRef left = LLVMBuildSub(e->b, emit_expr(e, axis->extent), inner->i, "");
    bool ragged = expr_divisor(p, axis->extent) % d->lanes != 0;
    LLVMValueRef mask = ragged ? emit_lanes_below(e, left) : NULL;
    for (uint32_t j = 0; j < DOT_PANEL; j += d->lanes) {
        for (uint32_t r = 0; r < d->lanes; r++) {
            Expr column = expr_addi(p, expr_muli(p, d->panel, DOT_PANEL), j + r);
            emit_push(e);
            dot_bind(d, &d->n, expr_min(p, column, last));
            emit_bind_lanes(e, axis->sym, k, mask, true);
            v[r] = emit_value_lanes(e, d->t->b[c->acc]);
            emit_pop(e);
        }
        shuffle_transpose(e, v, d->lanes);
        for (uint32_t r = 0; r < d->lanes; r++) copy_store(d, c, r, j, v[r]);
    }
    copy_end(d, c);
}

void dot_copy_panel(Dot *d, uint32_t i) {
    Copy c = {.acc = i};
    if (d->makes)
        copy_made(d, &c);
    else if (is_transposed(d, d->t->b[i]))
        copy_columns(d, &c);
    else
        copy_rows(d, &c);
}

/* --- What comes next ----------------------------------------------------------------------
 *
 * Panels of weights come at memory's pace: the first tile of rows would wait for all of its panel,
 * and the others, which find it in the cache, leave memory idle. So each of the first micro-kernels
 * of a panel asks for a share of the panel behind it, a line or less at every step of k. Panels lie
 * one behind the other, and work items walk them in that order; what is asked for behind the last
 * one is of no use, and no harm. The other micro-kernels ask for the left operand's rows of the
 * tile that comes next, where rows lie side by side. Where a panel is not walked in slices, which
 * stay in the first cache, each micro-kernel asks for the rows that it comes to next, too. */

enum { SHARES_MOST = 12, TILES_LEAST = 2, TILES_MANY = 64, CACHE_BYTES = 1 << 19 };
enum {
    INTO_L2 = 2,
    INTO_L1 = 3,
    NEAR_ROWS = 8,
    NEAR_TILES = 32
}; /* llvm.prefetch's localities; ... */

static uint32_t rows_per_step(const Dot *d) {
    return d->pairs ? 2 : dot_group_rows(d);
}

Expr dot_rows_of_panel(Dot *d) {
    const int64_t group = dot_group_rows(d), unit = group > 1 ? group * K_PANEL_GROUPS : 1;
    return expr_muli(d->p, expr_ceildiv(d->p, d->kk.size, expr_const(d->p, unit)), unit);
}

static uint32_t memory_bytes(const Dot *d, uint32_t i) {
    return (uint32_t)dtype_bytes(d->t->wino ? d->acc : d->b[i].memory);
}

static void tiles_of_span(Dot *d, int64_t *fewest, int64_t *most) {
    expr_range(d->p, expr_mul(d->p, d->block, d->span), fewest, most);
}

/* Whether right operand i is in panels that several tiles read, and not so many that waiting for it
 * once is nothing; and too large to stay in the cache from one run to the next. A plane of
 * Winograd's form is a panel: the next one lies behind it. */
static bool looks_ahead(Dot *d, uint32_t i) {
    ExprPool *p = d->p;
    int64_t fewest, most, least, count;
    if (!d->t->wino && (d->b[i].mode != DOT_B_DIRECT || d->t->pack != DOT_PANEL)) return false;
    tiles_of_span(d, &fewest, &most);
    expr_range(p, expr_mul(p, d->n.size, d->kk.size), &least, &count);
    bool small =
        count <= CACHE_BYTES / (int64_t)memory_bytes(d, i) / (d->t->wino ? WINO_PLANES : 1);
    return most >= TILES_LEAST && fewest < TILES_MANY && !small;
}

/* Two at a step where no more than two tiles are to ask for all of a panel: planes of small maps
 * have as many. */
static uint32_t lines_a_step(Dot *d) {
    int64_t fewest, most;
    tiles_of_span(d, &fewest, &most);
    return d->t->wino || (fewest == TILES_LEAST && most == TILES_LEAST) ? 2 : 1;
}

/* Bytes from where a panel begins to its columns from n0 on, at the first step of k. */
static Expr into_panel(Dot *d, uint32_t i) {
    const int64_t bytes = (int64_t)memory_bytes(d, i) * dot_group_rows(d);
    return expr_muli(d->p, expr_mod(d->p, d->n0, expr_const(d->p, DOT_PANEL)), bytes);
}

/* Dumped code tells by names what is asked for. */
static LLVMValueRef named(LLVMValueRef at, const char *name) {
    LLVMSetValueName2(at, name, strlen(name));
    return at;
}

/* Where the next tile's rows begin, of a tile that asks for them; NULL: they are not one run, or
 * there is one tile. */
static LLVMValueRef rows_ahead(Dot *d, const DotWalk *w) {
    int64_t fewest, most;
    tiles_of_span(d, &fewest, &most);
    return w->left && most >= TILES_LEAST ? named(w->left, "rows") : NULL;
}

/* Many tiles read a panel over and over: its rows are near. */
static bool asks_near(Dot *d, Expr size) {
    const Expr tiles = expr_mul(d->p, d->block, d->span);
    return (d->t->wino || size == d->kk.size) && expr_hint(d->p, tiles) <= NEAR_TILES;
}

DotAhead dot_ahead(Dot *d, uint32_t i, const DotWalk *w) {
    Emit *e = d->e;
    ExprPool *p = d->p;
    const uint32_t rows = rows_per_step(d);
    LLVMValueRef left = rows_ahead(d, w);
    const LLVMValueRef of_left = emit_i64(e, (int64_t)(DOT_ROWS * dtype_bytes(d->left) * rows));
    if (!looks_ahead(d, i)) return (DotAhead){left, left ? of_left : NULL, 1, false};
    const uint32_t step = DOT_PANEL * memory_bytes(d, i) * rows, lines = lines_a_step(d);
    Expr steps = expr_ceildiv(p, w->rows, expr_const(p, rows));
    LLVMValueRef most[2] = {w->turn.of, emit_i64(e, SHARES_MOST)};
    LLVMValueRef shares = emit_intrinsic(e, "llvm.smin", e->i64, most, 2);
    LLVMValueRef pace = LLVMBuildUDiv(e->b, emit_i64(e, step), shares, "");
    LLVMValueRef asks = LLVMBuildICmp(e->b, LLVMIntSLT, w->turn.at, shares, "");
    LLVMValueRef fits = LLVMBuildICmp(e->b, LLVMIntSLE, pace, emit_i64(e, lines * DOT_LINE), "");
    asks = LLVMBuildAnd(e->b, asks, fits, "");
    Expr behind = w->rows == d->kk.size ? dot_rows_of_panel(d) : expr_muli(p, steps, rows);
    behind = expr_muli(p, behind, (int64_t)DOT_PANEL * memory_bytes(d, i));
    behind = expr_sub(p, behind, into_panel(d, i));
    LLVMValueRef share = LLVMBuildMul(e->b, w->turn.at, emit_expr(e, steps), "");
    share = LLVMBuildAdd(e->b, emit_expr(e, behind), LLVMBuildMul(e->b, share, pace, ""), "");
    share = named(emit_gep(e, e->i8, w->start, share), "panel");
    LLVMValueRef other = left ? left : w->start, by = left ? of_left : emit_i64(e, 0);
    return (DotAhead){LLVMBuildSelect(e->b, asks, share, other, ""),
                      LLVMBuildSelect(e->b, asks, pace, by, ""), lines, asks_near(d, w->rows)};
}

static void prefetch(Emit *e, LLVMValueRef at, uint32_t level) {
    LLVMValueRef read = LLVMConstInt(e->i32, 0, false), data = LLVMConstInt(e->i32, 1, false);
    LLVMValueRef x[4] = {at, read, LLVMConstInt(e->i32, level, false), data};
    emit_intrinsic(e, "llvm.prefetch", e->ptr, x, 4);
}

void dot_ask_line(Dot *d, LLVMValueRef at) {
    prefetch(d->e, at, INTO_L2);
}

void dot_ask_result(Dot *d, uint32_t buf, Expr index) {
    prefetch(d->e, named(emit_address(d->e, buf, index), "result"), INTO_L1);
}

void dot_ask(Dot *d, DotAhead *a) {
    Emit *e = d->e;
    if (!a->at) return;
    for (uint32_t i = 0; i < a->lines; i++)
        dot_ask_line(d, emit_gep(e, e->i8, a->at, emit_i64(e, i * DOT_LINE)));
    a->at = emit_gep(e, e->i8, a->at, a->pace);
}

void dot_ask_near(Dot *d, const DotAhead *a, uint32_t i, LLVMValueRef row, uint32_t nv) {
    Emit *e = d->e;
    if (!a->at || !a->near) return;
    const uint32_t bytes = memory_bytes(d, i), on = NEAR_ROWS * DOT_PANEL * bytes;
    for (uint32_t at = 0; at < nv * d->lanes * bytes; at += DOT_LINE)
        prefetch(e, named(emit_gep(e, e->i8, row, emit_i64(e, on + at)), "near"), INTO_L1);
}
