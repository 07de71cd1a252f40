/* A node while it is lowered: its operands and results, what must hold of sizes, messages. What
 * else a lowering reads of it is in lower_read.c and lower_shape.c. */
#include "frontend/import/import_impl.h"
#include <string.h>

static void note_element_symbol(void *ctx, uint32_t sym) {
    void **c = ctx;
    if (expr_sym_info(c[0], sym)->kind == SYM_ELEM) c[1] = c[0];
}
bool lower_is_fed(const Lower *l, Expr e) {
    void *ctx[2] = {l->im->exprs, NULL};
    expr_each_sym(l->im->exprs, e, note_element_symbol, ctx);
    return ctx[1] != NULL;
}

static const char *equation(const Lower *l, Expr a, Expr b, const char *relation) {
    int64_t lo, hi;
    expr_range(l->im->exprs, b, &lo, &hi);
    if (expr_is_value(l->im->exprs, a, 1) && lo == 0 && hi == 1) /* a condition says it itself */
        return expr_brief(l->im->exprs, b, l->im->arena);
    return arena_printf(l->im->arena, "%s %s %s", expr_brief(l->im->exprs, a, l->im->arena),
                        relation, expr_brief(l->im->exprs, b, l->im->arena));
}

void lower_assume(Lower *l, Expr a, Expr b) {
    Graph *g = l->g;
    ExprPool *p = l->im->exprs;
    int64_t lo, hi;
    if (a == b) return;
    expr_range(p, expr_sub(p, a, b), &lo, &hi);
    if (lo > 0 || hi < 0) {
        lower_error(l, D_SHAPE, "sizes that must be equal differ: %s", equation(l, a, b, "and"));
        return;
    }
    if (build_assume(g, a, b, l->loc))
        (void)diag(l->im->diags, D_ASSUME, graph_place(g, l->loc, l->im->arena), "%s",
                   equation(l, a, b, "=="));
}

/* Training */

const ImportOptions *lower_options(const Lower *l) {
    static const ImportOptions none = {0};
    return l->im->options ? l->im->options : &none;
}

Value lower_generator(Lower *l, const char *hint) {
    if (!l->g->is_body) return build_generator(l->g);
    lower_unsupported(l, hint, "training it inside of a loop or a branch");
    return 0;
}

Value lower_trains(Lower *l, const char *hint) {
    Value draw = lower_generator(l, hint);
    return draw ? build_unary(l->g, OP_not, build_draws_nothing(l->g, draw)) : 0;
}

/* The node */

Graph *lower_graph(Lower *l) {
    return l->g;
}
ExprPool *lower_exprs(Lower *l) {
    return l->im->exprs;
}
int lower_opset(const Lower *l) {
    return l->opset;
}
const char *lower_op_name(const Lower *l) {
    return l->node->op_type;
}
uint32_t lower_nin(const Lower *l) {
    return l->nin;
}
uint32_t lower_nout(const Lower *l) {
    return l->nout;
}

bool lower_has_in(const Lower *l, uint32_t i) {
    return i < l->nin && *text_or_empty(l->node->input[i]) && l->in[i].kind != ITEM_ABSENT;
}

bool lower_has_out(const Lower *l, uint32_t i) {
    return i < l->nout && *text_or_empty(l->node->output[i]);
}

Value lower_in(Lower *l, uint32_t i) {
    if (!lower_has_in(l, i)) return 0;
    if (l->in[i].kind == ITEM_TENSOR) return l->in[i].v;
    lower_error(l, D_DTYPE, "input %u is a sequence, a tensor is needed", i);
    return 0;
}

const Type *lower_type(Lower *l, uint32_t i) {
    static const Type none;
    const Value v = lower_in(l, i);
    return v ? graph_type(l->g, v) : &none;
}

void lower_out(Lower *l, uint32_t i, Value v) {
    if (i < l->nout) l->out[i] = (Item){.kind = ITEM_TENSOR, .v = v};
}

Item lower_in_item(Lower *l, uint32_t i) {
    return i < l->nin && *text_or_empty(l->node->input[i]) ? l->in[i] : (Item){.kind = ITEM_ABSENT};
}

void lower_out_item(Lower *l, uint32_t i, Item item) {
    if (i < l->nout) l->out[i] = item;
}

/* Messages */

static bool report(Lower *l, DiagId id, const char *fmt, va_list ap) {
    const char *text = arena_vprintf(l->im->arena, fmt, ap);
    diag(l->im->diags, id, graph_place(l->g, l->loc, l->im->arena), "%s", text);
    return false;
}

bool lower_error(Lower *l, DiagId id, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    report(l, id, fmt, ap);
    va_end(ap);
    return false;
}

bool lower_unsupported(Lower *l, const char *hint, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    report(l, D_UNSUPPORTED, fmt, ap);
    va_end(ap);
    if (hint) diag_hint(l->im->diags, "%s", hint);
    return false;
}
