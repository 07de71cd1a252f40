/* Constant B operands that are integers of few bits with a scale, and perhaps a zero point, for
 * each block of k: they stay so in memory, and the contraction computes (q - zero) * scale itself.
 *
 * Three prepare steps store, zero filled to NR columns,
 *   q      u32 [ceil(N/NR)][K/per][NR]: `per` = 32/bits rows of one column in a word, first lowest
 *   zero   u8  [ceil(N/NR)][blocks][NR]
 *   scale  f32 [ceil(N/NR)][blocks][NR]
 * Integers with a sign, and their zero points, are stored as such without one, more by half of what
 * their bits can hold.
 *
 * Needs B = (cast) of permute of (slice of) reshape to [N, K] of mul(sub(cast(q), zero), scale), or
 * of mul(cast(q), scale), over [N, blocks, block], as MatMulNBits and pass few_bits spell it; B in
 * any other spelling is packed as it is. */
#include "fusion/analyse/facts.h"
#include "fusion/special/special.h"

static const Node *strip_views(const Fuse *f, const Node *n) {
    while (n->op == OP_reshape || n->op == OP_expand || n->op == OP_permute || n->op == OP_slice)
        n = graph_node(f->g, n->in[0]);
    return n;
}

/* The number that all elements of v are. */
static bool is_number(const Fuse *f, Value v, int64_t *out) {
    const Node *n = strip_views(f, graph_node(f->g, v));
    if (n->op != OP_const || !expr_is_value(f->p, type_numel(f->p, &n->type), 1)) return false;
    if (dtype_is_float(n->type.dtype) || n->attr.constant.bytes < dtype_bytes(n->type.dtype))
        return false;
    *out = dtype_load_i64(n->type.dtype, n->attr.constant.data, 0);
    return true;
}

/* Bits of the values that v, integers of 8 bits at most, can have. */
static uint32_t bits_of(const Fuse *f, Value v) {
    const Node *n = strip_views(f, graph_node(f->g, v));
    int64_t mask;
    if (n->type.dtype != DT_u8) return dtype_info[n->type.dtype].bits;
    if (n->op == OP_and && (is_number(f, n->in[1], &mask) || is_number(f, n->in[0], &mask)))
        return mask == 3 ? 2 : mask == 15 ? 4 : 8;
    return 8;
}

static bool is_narrow_int(DType t) {
    return dtype_is_int(t) && dtype_bytes(t) == 1;
}

/* What is added to values of t where they are stored without a sign. */
static int64_t shift_of(DType t) {
    return dtype_is_signed(t) ? INT64_C(1) << (dtype_info[t].bits - 1) : 0;
}

/* What an expand along the last of three dimensions repeats, or 0. */
static Value once_a_block(const Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    if (n->op != OP_expand) return 0;
    const Type *to = &n->type, *from = graph_type(f->g, n->in[0]);
    if (from->rank != 3 || !expr_is_value(f->p, from->dim[2], 1)) return 0;
    for (int d = 0; d < 2; d++)
        if (from->dim[d] != to->dim[d] && !expr_is_value(f->p, from->dim[d], 1)) return 0;
    return n->in[0];
}

/* [N, blocks] bytes below a cast to float and views that keep the order, or v. */
static Value narrow_zero(const Fuse *f, Value v) {
    const Type *t = graph_type(f->g, v);
    Value x = v;
    while (graph_node(f->g, x)->op == OP_reshape) x = graph_node(f->g, x)->in[0];
    if (graph_node(f->g, x)->op != OP_cast) return v;
    x = graph_node(f->g, x)->in[0];
    const Type *u = graph_type(f->g, x);
    bool same = is_narrow_int(u->dtype) && u->rank >= 2 && u->dim[0] == t->dim[0] &&
                u->dim[1] == t->dim[1] && (u->rank == 2 || expr_is_value(f->p, u->dim[2], 1));
    return same && u->rank <= 3 ? x : v;
}

/* Below what makes [K, N] of [N, blocks, block]; *half: the type it is rounded to on the way. */
static Value block_product(const Fuse *f, Value b, DType *half) {
    const Node *n = graph_node(f->g, b);
    *half = n->type.dtype;
    if (n->op != OP_permute || n->type.rank != 2 || n->attr.perm.axis[0] != 1) return 0;
    n = graph_node(f->g, n->in[0]);
    if (n->op == OP_cast && dtype_is_half(n->type.dtype)) n = graph_node(f->g, n->in[0]);
    if (n->op == OP_slice) {
        const Type *from = graph_type(f->g, n->in[0]);
        for (uint32_t i = 0; i < 2; i++)
            if (!expr_is_value(f->p, n->attr.slice.start[i], 0) || n->attr.slice.step[i] != 1)
                return 0;
        if (n->type.dim[0] != from->dim[0]) return 0;
        n = graph_node(f->g, n->in[0]);
    }
    if (n->op != OP_reshape || n->type.dtype != DT_f32) return 0;
    Value mul = n->in[0];
    const Type *t = graph_type(f->g, mul);
    return t->rank == 3 && t->dim[0] == n->type.dim[0] && graph_node(f->g, mul)->op == OP_mul ? mul
                                                                                              : 0;
}

/* --- Forms -------------------------------------------------------------------------------- */

static Expr panels(Fuse *f, const Pack *k) {
    return expr_ceildiv(f->p, k->n, expr_const(f->p, k->nr));
}

/* Rows of a panel: words or, of what there is once a block, blocks. */
static Expr panel_rows(Fuse *f, const Pack *k) {
    return expr_div(f->p, k->k, expr_const(f->p, k->per));
}

static Expr rows_numel(Fuse *f, const Pack *k) {
    return expr_muli(f->p, expr_mul(f->p, panels(f, k), panel_rows(f, k)), k->nr);
}

static KVal load_row(Body *b, const Pack *k, Expr row, Expr column) {
    ExprPool *p = b->f->p;
    Expr nr = expr_const(p, k->nr);
    Expr at = expr_mul(p, expr_div(p, column, nr), panel_rows(b->f, k));
    KOp o = body_blank(K_kload, k->dtype);
    o.buf = body_param(b, k->buf - 1, false);
    o.index = expr_add(p, expr_mul(p, expr_add(p, at, row), nr), expr_mod(p, column, nr));
    return body_op(b, o);
}

/* Panel, block, column: of [N, blocks, ..], or of what is the same for all of either. */
static void once_axes(Fuse *f, Group *g, Pack *k, Expr *dim, Expr *column) {
    const Type *t = graph_type(f->g, k->b);
    Expr panel = axis_new(f, g, panels(f, k), AX_PAR);
    dim[1] = axis_new(f, g, k->k, AX_PAR);
    dim[2] = expr_const(f->p, 0);
    Expr lane = axis_new(f, g, expr_const(f->p, k->nr), AX_PAR);
    dim[0] = *column = expr_add(f->p, expr_muli(f->p, panel, k->nr), lane);
    for (int d = 0; d < 2; d++)
        if (expr_is_value(f->p, t->dim[d], 1)) dim[d] = expr_const(f->p, 0);
}

static const PackForm pack_once = {"pack_blocks", rows_numel, once_axes, pack_copy, NULL};

/* Panel, block, word of it, column. */
static void words_axes(Fuse *f, Group *g, Pack *k, Expr *dim, Expr *column) {
    ExprPool *p = f->p;
    Expr panel = axis_new(f, g, panels(f, k), AX_PAR);
    dim[1] = axis_new(f, g, graph_type(f->g, k->b)->dim[1], AX_PAR);
    Expr word = axis_new(f, g, expr_div(p, k->block, expr_const(p, k->per)), AX_PAR);
    dim[2] = expr_muli(p, word, k->per);
    Expr lane = axis_new(f, g, expr_const(p, k->nr), AX_PAR);
    dim[0] = *column = expr_add(p, expr_muli(p, panel, k->nr), lane);
}

static void words_lower(Body *b, const Root *r) {
    Fuse *f = b->f;
    Group *g = b->g;
    const Pack *k = &f->packs.v[r->at];
    const Idx first = *idx_get(g, r->idx);
    const int64_t shift = shift_of(graph_type(f->g, k->b)->dtype);
    KVal word = 0;
    for (uint32_t i = 0; i < k->per; i++) {
        Expr dim[3] = {first.dim[0], first.dim[1], expr_addi(f->p, first.dim[2], i)};
        IdxId at = idx_make(f, g, graph_type(f->g, k->b), dim, 0);
        KVal x = body_cast(b, pull(b, r->v, at, g->pack_mask), DT_u32);
        if (shift) x = body_op2(b, OP_add, DT_u32, x, body_const_i(b, DT_u32, shift));
        KVal by = body_const_i(b, DT_u32, i * 32 / k->per);
        if (i) x = body_op2(b, OP_shl, DT_u32, x, by);
        word = word ? body_op2(b, OP_or, DT_u32, word, x) : x;
    }
    pack_put(b, r, word);
}

/* 0: nothing is subtracted. */
static KVal zero_read(Body *b, const Pack *k, Expr block, Expr column, Value mul) {
    const Graph *g = b->f->g;
    const double shift = (double)shift_of(graph_type(g, k->b)->dtype);
    if (k->zero) {
        KVal z = load_row(b, &b->f->packs.v[k->zero - 1], block, column);
        z = body_cast(b, z, DT_f32);
        return shift > 0 ? body_op2(b, OP_add, DT_f32, z, body_const_f(b, DT_f32, shift)) : z;
    }
    const Node *sub = graph_node(g, graph_node(g, mul)->in[k->scaled]);
    if (sub->op != OP_sub) return shift > 0 ? body_const_f(b, DT_f32, shift) : 0;
    const Node *n = strip_views(b->f, graph_node(g, sub->in[1])); /* one number */
    double zero = dtype_load_f64(n->type.dtype, n->attr.constant.data, 0);
    return body_const_f(b, DT_f32, zero + shift);
}

static KVal words_read(Body *b, const Pack *k, Value operand, IdxId idx) {
    Fuse *f = b->f;
    ExprPool *p = f->p;
    for (; operand != k->of; operand = graph_node(f->g, operand)->in[0]) {
        Expr mask;
        idx = idx_operand(f, b->g, operand, 0, idx, &mask);
    }
    const Idx x = *idx_get(b->g, idx);
    b->k->dot.block = (uint32_t)expr_value(p, k->block); /* if A is in blocks, too: dot_facts */
    Expr row = x.dim[0], column = x.dim[1], per = expr_const(p, k->per);
    DType half;
    Value mul = block_product(f, k->of, &half);
    KVal word = load_row(b, k, expr_div(p, row, per), column);
    Expr place = expr_muli(p, expr_mod(p, row, per), 32 / k->per);
    word = body_op2(b, OP_shr, DT_u32, word, body_expr(b, place, DT_u32));
    word = body_op2(b, OP_and, DT_u32, word, body_const_i(b, DT_u32, (1 << 32 / k->per) - 1));
    Expr block = expr_div(p, row, k->block);
    KVal q = body_cast(b, word, DT_f32);
    KVal zero = zero_read(b, k, block, column, mul);
    if (zero) q = body_op2(b, OP_sub, DT_f32, q, zero);
    KVal w = body_op2(b, OP_mul, DT_f32, q, load_row(b, &f->packs.v[k->scale - 1], block, column));
    if (dtype_is_half(half)) w = body_cast(b, body_op1(b, OP_cast, half, w), DT_f32);
    return w;
}

static const PackForm pack_words = {"pack_bits", rows_numel, words_axes, words_lower, words_read};

/* --- What B is made of -------------------------------------------------------------------- */

typedef struct Parts {
    Value mul, q, scale, zero; /* zero: 0 = a number */
    uint32_t scaled;           /* operand of mul that is q - zero */
} Parts;

/* Below a subtraction, if there is one, and a conversion; or 0. */
static Value integers(const Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    if (n->op == OP_sub) n = graph_node(f->g, n->in[0]);
    return n->op == OP_cast && is_narrow_int(graph_type(f->g, n->in[0])->dtype) ? n->in[0] : 0;
}

static bool find_parts(const Fuse *f, Value b, Parts *x) {
    DType half;
    x->mul = block_product(f, b, &half);
    if (!x->mul) return false;
    const Node *m = graph_node(f->g, x->mul);
    for (uint32_t i = 0; i < 2 && !x->q; i++) x->q = integers(f, m->in[i]), x->scaled = i;
    x->scale = once_a_block(f, m->in[1 - x->scaled]);
    if (!x->q || !x->scale) return false;
    const Node *sub = graph_node(f->g, m->in[x->scaled]);
    if (sub->op != OP_sub) return true;
    const Node *one = strip_views(f, graph_node(f->g, sub->in[1]));
    if (one->op == OP_const && expr_is_value(f->p, type_numel(f->p, &one->type), 1)) return true;
    x->zero = once_a_block(f, sub->in[1]);
    if (x->zero) x->zero = narrow_zero(f, x->zero);
    return x->zero != 0;
}

static uint32_t store_once(Fuse *f, const Pack *of, Value v, Expr blocks) {
    Pack k = *of;
    k.form = &pack_once;
    k.b = v;
    k.dtype = graph_type(f->g, v)->dtype;
    k.k = blocks;
    k.per = 1;
    k.of = k.scale = k.zero = 0;
    return 1 + pack_make(f, &k);
}

bool pack_bits(Fuse *f, const Pack *whole, uint32_t *out) {
    Parts x = {0};
    int64_t block;
    if (!f->m->pack_width || !find_parts(f, whole->b, &x)) return false;
    const Type *t = graph_type(f->g, x.mul);
    Pack k = *whole;
    k.per = (uint8_t)(32 / bits_of(f, x.q));
    if (!expr_is_const(f->p, t->dim[2], &block) || block % k.per != 0) return false;
    k.form = &pack_words;
    k.of = k.b;
    k.b = x.q;
    k.dtype = DT_u32;
    k.block = t->dim[2];
    k.k = expr_mul(f->p, t->dim[1], t->dim[2]);
    k.scaled = (uint8_t)x.scaled;
    k.scale = store_once(f, &k, x.scale, t->dim[1]);
    k.zero = x.zero ? store_once(f, &k, x.zero, t->dim[1]) : 0;
    *out = pack_make(f, &k);
    return true;
}
