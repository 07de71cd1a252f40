/* few_bits: weights that a contraction dequantises, in whatever direction and blocks they lie, are
 * spelled as MatMulNBits' are: rows of blocks along k, one scale and zero point for each,
 *
 *   over [K, N]  =  permute of reshape of what is over [N, K / block, block]
 *
 * which fusion keeps in their bits in memory (fusion/special/pack_bits.c). What has a scale for
 * each column, or one for all, is one block a column.
 *
 * few_bits_rounded: and what they multiply becomes integers of 8 bits with a scale for each of
 * these blocks, as MatMulNBits has it at accuracy level 4; one block a column is cut for that.
 *
 * Needs: to run behind quads, which wants quantised operands on both sides. Keeps: meaning; the
 * same bits, but for what is rounded. Breaks: nothing; leaves dead nodes. */
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

enum { COLUMNS_LEAST = 16, WORD_BITS = 32 };
enum { ROUNDED_LEAST = 16, ROUNDED_MOST = 128 }; /* where blocks may be chosen */

typedef struct Facts {
    bool *constant; /* by value */
    bool rounds;
} Facts;

/* Weights [K, N], stored with k along axis `k`. */
typedef struct Stored {
    Graph *g;
    Value q;    /* integers of at most 8 bits */
    uint32_t k; /* 0 or 1 */
    bool rounds;
    Expr rows, columns, block, count; /* of k, of N; rows of a block, blocks */
} Stored;

static bool is_narrow(DType t) {
    return dtype_is_int(t) && dtype_bytes(t) == 1;
}

/* What v is the beginning of: the last block may be longer than k. */
static Value whole_of(const Graph *g, Value v) {
    const Node *n = graph_node(g, v);
    bool first = n->op == OP_slice;
    for (int i = 0; first && i < n->type.rank; i++)
        first = expr_is_value(g->exprs, n->attr.slice.start[i], 0) && n->attr.slice.step[i] == 1;
    return first ? n->in[0] : v;
}

/* Rows of k under one scale, as the expands and concatenations below a parameter have them: all
 * where it does not change along k. 0: it is no such parameter. */
static Expr block_of(const Stored *s, Value v) {
    const Node *n = graph_node(s->g, v);
    Expr block = 0;
    if (n->op == OP_concat && n->attr.axis.axis == 1 - (int)s->k) {
        for (uint32_t i = 0; i < n->nin; i++) {
            const Expr other = block_of(s, n->in[i]);
            if (!other || (block && other != block)) return 0;
            block = other;
        }
        return block;
    }
    const Expr columns = n->type.dim[1 - s->k];
    n = graph_node(s->g, whole_of(s->g, v));
    const bool blocks = n->op == OP_reshape;
    if (blocks) n = graph_node(s->g, n->in[0]);
    if (n->op != OP_expand) return 0;
    const Type *to = &n->type, *from = graph_type(s->g, n->in[0]);
    if (from->rank != to->rank || to->rank != 2 + blocks) return 0;
    const uint32_t repeated = s->k + blocks, column = s->k ? 0 : 1u + blocks;
    if (!expr_is_value(s->g->exprs, from->dim[repeated], 1)) return 0;
    if (blocks && (to->dim[column] != columns || from->dim[s->k] != to->dim[s->k] ||
                   from->dim[column] != to->dim[column]))
        return 0;
    return to->dim[repeated];
}

/* x before it is converted from integers of 8 bits at most, if it is. */
static Value narrow(Graph *g, Value x) {
    const Type t = *graph_type(g, x);
    const Node *n = graph_node(g, x);
    if (n->op == OP_reshape) n = graph_node(g, n->in[0]);
    if (n->op != OP_cast || !is_narrow(graph_type(g, n->in[0])->dtype)) return x;
    return build_reshape(g, n->in[0], t.rank, t.dim);
}

/* A parameter as [N, blocks, 1]. */
static Value once_a_block(const Stored *s, Value v) {
    Graph *g = s->g;
    const Node *n = graph_node(g, v);
    if (n->op == OP_concat) {
        const uint32_t count = n->nin;
        Value *part = ARENA_ARRAY(g->arena, Value, count);
        for (uint32_t i = 0; i < count; i++) {
            Stored one = *s;
            const Value in = graph_node(g, v)->in[i];
            one.columns = graph_type(g, in)->dim[1 - s->k];
            part[i] = once_a_block(&one, in);
        }
        return build_concat(g, part, count, 0);
    }
    n = graph_node(g, whole_of(g, v));
    const bool blocks = n->op == OP_reshape;
    Value x = narrow(g, (blocks ? graph_node(g, n->in[0]) : n)->in[0]);
    const Expr one = expr_const(g->exprs, 1);
    if (blocks && !s->k) x = build_permute(g, x, (uint8_t[]){2, 0, 1});
    const Expr columns = blocks ? s->columns : graph_type(g, x)->dim[1 - s->k];
    x = build_reshape(g, x, 3, (Expr[]){columns, blocks ? s->count : one, one});
    return build_cast(g, build_expand(g, x, 3, (Expr[]){s->columns, s->count, one}), DT_f32);
}

/* The integers below x, as they are before they are converted to f32; *zero: what they are less,
 * or 0. */
static Value integers_of(const Graph *g, Value x, Value *zero) {
    const Node *n = graph_node(g, x);
    *zero = 0;
    if (n->op == OP_sub) {
        *zero = n->in[1];
        n = graph_node(g, n->in[0]);
    }
    if (n->op != OP_cast) return 0;
    return is_narrow(graph_type(g, n->in[0])->dtype) ? n->in[0] : 0;
}

/* Rows of k that a word of the weights holds. */
static int64_t rows_in_word(const Stored *s) {
    return WORD_BITS / (int64_t)dtype_info[graph_type(s->g, s->q)->dtype].bits;
}

/* Where k is one block: words are whole, and what is rounded is so in blocks. */
static Expr block_of_column(const Stored *s, int64_t word) {
    ExprPool *p = s->g->exprs;
    int64_t cut = ROUNDED_MOST;
    while (s->rounds && expr_divisor(p, s->rows) % cut) cut /= 2;
    if (s->rounds && cut >= ROUNDED_LEAST) return expr_const(p, cut);
    return expr_muli(p, expr_ceildiv(p, s->rows, expr_const(p, word)), word);
}

/* The integers as [N, K], the last block filled. */
static Value filled(const Stored *s) {
    Graph *g = s->g;
    ExprPool *p = g->exprs;
    const Value q = s->k ? s->q : build_permute(g, s->q, (uint8_t[]){1, 0});
    const Expr none = expr_const(p, 0);
    const Expr more = expr_sub(p, expr_mul(p, s->count, s->block), s->rows);
    const Value fill = build_scalar_i(g, graph_type(g, q)->dtype, 0);
    return build_pad(g, q, fill, (Expr[]){none, none}, (Expr[]){none, more}, NULL);
}

/* (q - zero) * scale over [N, blocks, block], of what is that over two dimensions; or 0. */
static Value in_blocks(Stored *s, Value mul) {
    Graph *g = s->g;
    ExprPool *p = g->exprs;
    const Node *n = graph_node(g, mul);
    Value zero, scale = 0;
    for (uint32_t i = 0; i < 2 && !scale; i++)
        if ((s->q = integers_of(g, n->in[i], &zero))) scale = n->in[1 - i];
    if (!scale || !(s->block = block_of(s, scale)) || (zero && block_of(s, zero) != s->block))
        return 0;
    const int64_t word = rows_in_word(s);
    if (s->block == s->rows) s->block = block_of_column(s, word);
    if (expr_divisor(p, s->block) % word) return 0;
    s->count = expr_ceildiv(p, s->rows, s->block);
    const Expr dim[3] = {s->columns, s->count, s->block};
    Value w = build_cast(g, build_reshape(g, filled(s), 3, dim), DT_f32);
    if (zero) w = build_binary(g, OP_sub, w, build_expand(g, once_a_block(s, zero), 3, dim));
    return build_binary(g, OP_mul, w, build_expand(g, once_a_block(s, scale), 3, dim));
}

/* Casts to narrower floats and the permute between a contraction and the product. */
static Value spelled(Stored *s, Value b) {
    Graph *g = s->g;
    const Node n = *graph_node(g, b);
    if (n.op == OP_cast && dtype_is_half(n.type.dtype)) {
        const Value x = spelled(s, n.in[0]);
        return x && !s->rounds ? build_cast(g, x, n.type.dtype) : x;
    }
    if (n.op == OP_permute && n.type.rank == 2 && !s->k) {
        s->k = 1;
        return spelled(s, n.in[0]);
    }
    if (n.op != OP_mul || n.type.dtype != DT_f32) return 0;
    const Value w = in_blocks(s, b);
    if (!w) return 0;
    const Expr none = expr_const(g->exprs, 0), all = expr_mul(g->exprs, s->count, s->block);
    const Value rows = build_reshape(g, w, 2, (Expr[]){s->columns, all});
    return build_slice_axis(g, rows, 1, none, s->rows, 1);
}

/* The scale of a block of the other operand stays what a block of weights has. */
static bool may_round(const Stored *s) {
    int64_t block;
    return s->rounds && expr_is_const(s->g->exprs, s->block, &block) && block >= ROUNDED_LEAST &&
           !(block & (block - 1)) &&
           expr_is_value(s->g->exprs, expr_mod(s->g->exprs, s->rows, s->block), 0);
}

static Value in_few_bits(Rewrite *r, Value v) {
    const Facts *facts = r->facts;
    const Node dot = *graph_node(r->from, v);
    Graph *g = r->to;
    if (dot.op != OP_dot || !facts->constant[dot.in[1]]) return 0;
    const Value b = rewrite_in(r, v, 1);
    const Type t = *graph_type(g, b);
    int64_t columns, rows;
    Stored s = {.g = g, .rows = t.dim[0], .columns = t.dim[1], .rounds = facts->rounds};
    if (t.rank != 2 || !expr_is_const(g->exprs, s.columns, &columns) || columns < COLUMNS_LEAST ||
        !expr_is_const(g->exprs, s.rows, &rows))
        return 0;
    const Value w = spelled(&s, b);
    if (!w) return 0;
    Value a = rewrite_in(r, v, 0);
    if (s.rounds) a = build_cast(g, a, DT_f32);
    if (may_round(&s)) a = build_rounded(g, a, expr_value(g->exprs, s.block));
    const Value in[2] = {a, build_permute(g, w, (uint8_t[]){1, 0})};
    return build_like(g, &dot, in, 2);
}

static void *facts(const Graph *g, void *rounds) {
    Facts *f = ARENA_NEW(g->arena, Facts);
    f->constant = ARENA_ARRAY(g->arena, bool, g->nodes.n);
    f->rounds = *(const bool *)rounds;
    graph_mark_constant(g, f->constant);
    return f;
}

Graph *pass_few_bits(Graph *g) {
    bool rounds = false;
    return rewrite_graph(g, in_few_bits, facts, &rounds);
}

Graph *pass_few_bits_rounded(Graph *g) {
    bool rounds = true;
    return rewrite_graph(g, in_few_bits, facts, &rounds);
}
