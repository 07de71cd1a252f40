#include "graph/grad/loss.h"
#include "graph/build/build.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    uint32_t operands;
    const char *params;
} loss_info[LOSS_KINDS] = {
    [LOSS_output] = {"", 1, ""},
#define LOSS(name, operands, params, by, what) [LOSS_##name] = {#name, operands, params},
#include "graph/grad/loss.def"
#undef LOSS
};

static Value f32(Graph *g, Value x) {
    return build_cast(g, x, DT_f32);
}

static Value total(Graph *g, Value x) {
    uint32_t rank = x ? graph_type(g, x)->rank : 0;
    return rank ? build_reduce(g, OP_reduce_sum, x, (1u << rank) - 1, false) : x;
}

/* How many elements x has, as an f32 scalar. */
static Value count(Graph *g, Value x) {
    return f32(g, build_expr(g, DT_i64, type_numel(g->exprs, graph_type(g, x))));
}

/* --- Element by element ---------------------------------------------------------------------- */

/* What one element contributes and its derivative. x, t: f32, of one shape. */
typedef struct Term {
    Value value, slope;
} Term;

static Term mse_term(Graph *g, const LossSpec *s, Value x, Value t) {
    (void)s;
    Value d = build_binary(g, OP_sub, x, t);
    return (Term){build_binary(g, OP_mul, d, d), build_binary_f(g, OP_mul, d, 2)};
}

static Term l1_term(Graph *g, const LossSpec *s, Value x, Value t) {
    (void)s;
    Value d = build_binary(g, OP_sub, x, t);
    return (Term){build_unary(g, OP_abs, d), build_unary(g, OP_sign, d)};
}

/* Huber, "Robust estimation of a location parameter" (1964): d^2/2 up to delta, then
 * delta (|d| - delta/2); its slope is d held within +-delta. */
static Term huber_term(Graph *g, const LossSpec *s, Value x, Value t) {
    Value d = build_binary(g, OP_sub, x, t);
    Value held = build_binary_f(g, OP_max, build_binary_f(g, OP_min, d, s->delta), -s->delta);
    Value rest = build_binary(g, OP_sub, d, build_binary_f(g, OP_mul, held, 0.5));
    return (Term){build_binary(g, OP_mul, held, rest), held};
}

/* max(x, 0) - x t + log(1 + exp(-|x|)): no exponential of a large number. */
static Term bce_term(Graph *g, const LossSpec *s, Value x, Value t) {
    (void)s;
    Value soft = build_unary(g, OP_exp, build_unary(g, OP_neg, build_unary(g, OP_abs, x)));
    Value hard =
        build_binary(g, OP_sub, build_binary_f(g, OP_max, x, 0), build_binary(g, OP_mul, x, t));
    return (Term){build_binary(g, OP_add, hard, build_unary(g, OP_log1p, soft)),
                  build_binary(g, OP_sub, build_unary(g, OP_sigmoid, x), t)};
}

/* t (log t - x) with x = log q; 0 where t is 0. */
static Term kl_term(Graph *g, const LossSpec *s, Value x, Value t) {
    (void)s;
    Value zero = build_scalar_f(g, DT_f32, 0);
    Value terms = build_binary(g, OP_mul, t, build_binary(g, OP_sub, build_unary(g, OP_log, t), x));
    Value some = build_binary(g, OP_lt, zero, t);
    return (Term){build_select(g, some, terms, zero), build_unary(g, OP_neg, t)};
}

typedef Term (*TermFn)(Graph *g, const LossSpec *s, Value x, Value t);
static const TermFn term_of[LOSS_KINDS] = {[LOSS_mse] = mse_term,
                                           [LOSS_l1] = l1_term,
                                           [LOSS_huber] = huber_term,
                                           [LOSS_bce] = bce_term,
                                           [LOSS_kl] = kl_term};

static Loss elementwise(Graph *g, const LossSpec *s, const LossOperands *o) {
    Term t = term_of[s->kind](g, s, f32(g, o->y), f32(g, o->target));
    return (Loss){.sum = total(g, t.value), .y = o->y, .dy = t.slope};
}

/* --- Cross entropy --------------------------------------------------------------------------- */

typedef struct Rows {
    Value x;      /* f32[.., classes] */
    Value label;  /* i64[..] */
    Value hit;    /* bool[.., classes]: the class that the label names */
    Value counts; /* bool[..]: false for ignored rows, which may hold anything, NaN too */
    Value weight; /* f32[..]: 0 for ignored rows */
    Value lse;    /* f32[.., 1] */
    Value shares; /* f32[classes]: weights of the classes that smoothing spreads to; 0: all 1 */
    Expr classes;
} Rows;

static Value last(Graph *g, Op op, Value x, bool keep) {
    return build_reduce(g, op, x, 1u << (graph_type(g, x)->rank - 1), keep);
}

static Value log_sum_exp(Graph *g, Value x) {
    Value top = last(g, OP_reduce_max, x, true);
    Value e = build_unary(g, OP_exp, build_binary(g, OP_sub, x, top));
    return build_binary(g, OP_add, top, build_unary(g, OP_log, last(g, OP_reduce_sum, e, true)));
}

/* Which rows count, and for how much. */
static void weigh_rows(Graph *g, const LossSpec *s, const LossOperands *o, Rows *r) {
    r->label = build_cast(g, o->target, DT_i64);
    r->counts = build_binary(g, OP_ne, r->label, build_scalar_i(g, DT_i64, s->ignore));
    Value kept =
        o->weights ? build_take(g, f32(g, o->weights), r->label, 0) : build_scalar_f(g, DT_f32, 1);
    r->weight = build_select(g, r->counts, kept, build_scalar_f(g, DT_f32, 0));
}

static Rows rows_of(Graph *g, const LossSpec *s, const LossOperands *o) {
    const Type t = *graph_type(g, o->y);
    Rows r = {.x = f32(g, o->y), .classes = t.dim[t.rank - 1]};
    weigh_rows(g, s, o, &r);
    if (o->weights && s->smoothing != 0) r.shares = f32(g, o->weights);
    Value iota = build_iota(g, DT_i64, t.rank, t.dim, t.rank - 1);
    r.hit = build_binary(g, OP_eq, build_unsqueeze(g, r.label, t.rank - 1), iota);
    r.lse = log_sum_exp(g, r.x);
    return r;
}

static Value weighted(Graph *g, Value x, Value counts, Value weight) {
    return build_select(g, counts, build_binary(g, OP_mul, x, weight),
                        build_scalar_f(g, DT_f32, 0));
}

/* x[label]: a load a row. Labels that are ignored pick anything. */
static Value pick(Graph *g, const Rows *r) {
    const Type *t = graph_type(g, r->x);
    int8_t src[GRAPH_MAX_RANK];
    for (int d = 0; d < t->rank; d++) src[d] = (int8_t)(d < t->rank - 1 ? d : -1);
    return build_gather(g, r->x, src, &r->label, 1, (uint8_t)(t->rank - 1), t->dim);
}

/* The target distribution's share of a row: (1 - e) x[label] + e mean(x); where classes have
 * weights, the first part alone. */
static Value expected(Graph *g, const LossSpec *s, const Rows *r, Value picked) {
    if (!picked) picked = pick(g, r);
    if (s->smoothing == 0) return picked;
    Value part = build_binary_f(g, OP_mul, picked, 1 - s->smoothing);
    if (r->shares) return part;
    Value mean = build_mean(g, r->x, 1u << (graph_type(g, r->x)->rank - 1), false);
    return build_binary(g, OP_add, part, build_binary_f(g, OP_mul, mean, s->smoothing));
}

/* Smoothing where classes have weights w, of each class its own, as in PyTorch: what a row
 * adds, e mean(w (lse - x)), [.., 1]; and its slope, e (mean(w) softmax(x) - w / classes). */
static Value spread(Graph *g, const LossSpec *s, const Rows *r) {
    Value above = build_binary(g, OP_sub, r->lse, r->x);
    Value row = build_binary(g, OP_mul, above, r->shares);
    return build_binary_f(g, OP_mul, build_mean(g, row, 1u << (graph_type(g, row)->rank - 1), true),
                          s->smoothing);
}

static Value spread_slope(Graph *g, const LossSpec *s, const Rows *r, Value p) {
    Value n = f32(g, build_expr(g, DT_i64, r->classes));
    Value all = build_mean(g, r->shares, 1, true);
    Value own = build_binary(g, OP_div, r->shares, n);
    Value d = build_binary(g, OP_sub, build_binary(g, OP_mul, all, p), own);
    return build_binary_f(g, OP_mul, d, s->smoothing);
}

/* x where a row counts, else 0; both with the classes' axis. */
static Value counted(Graph *g, const Rows *r, Value x) {
    Value counts = build_unsqueeze(g, r->counts, graph_type(g, r->x)->rank - 1);
    return build_select(g, counts, x, build_scalar_f(g, DT_f32, 0));
}

/* weight ((1 + 2 z lse) softmax(x) - (1 - e) onehot - e / classes); where classes have weights,
 * weight ((1 - e + 2 z lse) softmax(x) - (1 - e) onehot) and what smoothing spreads. */
static Value slope(Graph *g, const LossSpec *s, const Rows *r) {
    const Value softmax = build_unary(g, OP_exp, build_binary(g, OP_sub, r->x, r->lse));
    const double whole = r->shares ? 1 - s->smoothing : 1;
    Value p = softmax;
    if (s->z != 0)
        p = build_binary(
            g, OP_mul, p,
            build_binary_f(g, OP_add, build_binary_f(g, OP_mul, r->lse, 2 * s->z), whole));
    else if (r->shares)
        p = build_binary_f(g, OP_mul, p, whole);
    if (s->smoothing != 0 && !r->shares) {
        Value n = f32(g, build_expr(g, DT_i64, r->classes));
        p = build_binary(g, OP_sub, p,
                         build_binary(g, OP_div, build_scalar_f(g, DT_f32, s->smoothing), n));
    }
    Value d = build_select(g, r->hit, build_binary_f(g, OP_sub, p, 1 - s->smoothing), p);
    int axis = graph_type(g, r->x)->rank - 1;
    d = weighted(g, d, build_unsqueeze(g, r->counts, axis), build_unsqueeze(g, r->weight, axis));
    if (!r->shares) return d;
    return build_binary(g, OP_add, d, counted(g, r, spread_slope(g, s, r, softmax)));
}

static Loss cross_entropy(Graph *g, const LossSpec *s, const LossOperands *o) {
    Rows r = rows_of(g, s, o);
    int axis = graph_type(g, o->y)->rank - 1;
    Value lse = build_squeeze(g, r.lse, axis);
    Value whole = r.shares ? build_binary_f(g, OP_mul, lse, 1 - s->smoothing) : lse;
    Value row = build_binary(g, OP_sub, whole, expected(g, s, &r, o->picked));
    if (s->z != 0)
        row = build_binary(g, OP_add, row,
                           build_binary_f(g, OP_mul, build_binary(g, OP_mul, lse, lse), s->z));
    Value sum = total(g, weighted(g, row, r.counts, r.weight));
    if (r.shares) sum = build_binary(g, OP_add, sum, total(g, counted(g, &r, spread(g, s, &r))));
    return (Loss){.sum = sum, .y = o->y, .dy = slope(g, s, &r)};
}

/* --- Operands -------------------------------------------------------------------------------- */

static Value named(const Graph *g, const char *name) {
    for (uint32_t i = 0; i < g->outputs.n; i++)
        if (strcmp(g->outputs.v[i].name, name) == 0) return g->outputs.v[i].value;
    for (uint32_t i = 0; i < g->inputs.n; i++)
        if (strcmp(g->inputs.v[i].name, name) == 0) return g->inputs.v[i].value;
    return 0;
}

/* The type of a target that nothing in the graph gives. */
static Type target_type(const Graph *g, LossKind kind, Value y) {
    Type t = *graph_type(g, y);
    if (kind != LOSS_cross_entropy) return t;
    t.dtype = DT_i64;
    t.rank--;
    return t;
}

static graphc_status check_target(Graph *g, const LossSpec *s, Value y, Value target) {
    Type want = target_type(g, s->kind, y);
    const Type *have = graph_type(g, target);
    bool labels = s->kind == LOSS_cross_entropy;
    bool ok = have->rank == want.rank && dtype_is_float(have->dtype) != labels;
    for (uint32_t i = 0; i < want.rank && ok; i++)
        if (have->dim[i] != want.dim[i]) build_assume(g, have->dim[i], want.dim[i], 0);
    if (ok) return GRAPHC_OK;
    return diag(g->diags, D_SHAPE, "loss", "%s is %s where %s is wanted", s->operand[1],
                type_text(g->exprs, have, g->arena), type_text(g->exprs, &want, g->arena));
}

static graphc_status find_operands(Graph *g, const LossSpec *s, Value *y, Value *target) {
    *y = named(g, s->operand[0]);
    if (!*y) {
        (void)diag(g->diags, D_USAGE, "loss", "the model has no output \"%s\"", s->operand[0]);
        graph_hint_outputs(g, g->diags);
        return diag_info[D_USAGE].status;
    }
    const Type *t = graph_type(g, *y);
    if (!dtype_is_float(t->dtype) || (s->kind == LOSS_cross_entropy && !t->rank))
        return diag(g->diags, D_SHAPE, "loss", "%s is %s, which has no such loss", s->operand[0],
                    type_text(g->exprs, t, g->arena));
    if (s->kind == LOSS_output) return GRAPHC_OK;
    *target = named(g, s->operand[1]);
    if (!*target) *target = build_input(g, s->operand[1], target_type(g, s->kind, *y));
    return check_target(g, s, *y, *target);
}

/* Those of a file, which the model's classes have to be as many as. */
static graphc_status given_weights(Graph *g, const LossSpec *s, const Type *t, Value *out) {
    int64_t classes;
    if (!expr_is_const(g->exprs, t->dim[t->rank - 1], &classes) || classes != s->nclass_weights)
        return diag(g->diags, D_SHAPE, "loss", "%s: %u weights for the classes of %s",
                    s->class_weights, s->nclass_weights, type_text(g->exprs, t, g->arena));
    const Type row = {.dtype = DT_f32, .rank = 1, .dim = {t->dim[t->rank - 1]}};
    const Constant c = {
        .data = s->class_weight, .bytes = s->nclass_weights * sizeof(float), .name = ""};
    return *out = build_const(g, row, c), GRAPHC_OK;
}

static graphc_status class_weights(Graph *g, const LossSpec *s, Value y, Value *out) {
    if (!s->class_weights) return GRAPHC_OK;
    const Type *t = graph_type(g, y);
    if (s->class_weight) return given_weights(g, s, t, out);
    Type row = {.dtype = DT_f32, .rank = 1, .dim = {t->dim[t->rank - 1]}};
    *out = named(g, s->class_weights);
    if (!*out) *out = build_input(g, s->class_weights, row);
    if (graph_type(g, *out)->rank == 1) return GRAPHC_OK;
    return diag(g->diags, D_SHAPE, "loss", "%s: one weight for each class is wanted",
                s->class_weights);
}

graphc_status loss_operands(Graph *g, const LossSpec *s, LossOperands *out) {
    *out = (LossOperands){0};
    GC_TRY(find_operands(g, s, &out->y, &out->target));
    if (s->kind == LOSS_cross_entropy) GC_TRY(class_weights(g, s, out->y, &out->weights));
    return diag_status(g->diags);
}

LossWeight loss_weigh(Graph *g, const LossSpec *s, const LossOperands *o) {
    const Type *t = graph_type(g, o->y);
    Value n;
    Rows r = {0};
    switch (s->kind) {
    case LOSS_output: n = build_scalar_f(g, DT_f32, 1); break;
    case LOSS_cross_entropy:
        weigh_rows(g, s, o, &r);
        return (LossWeight){total(g, r.weight), count(g, r.label)};
    case LOSS_kl: n = t->rank ? f32(g, build_expr(g, DT_i64, t->dim[0])) : count(g, o->y); break;
    default: n = count(g, o->y);
    }
    return (LossWeight){n, n};
}

Loss loss_of(Graph *g, const LossSpec *s, const LossOperands *o) {
    if (s->kind == LOSS_output) return (Loss){.sum = total(g, f32(g, o->y)), .y = o->y};
    return s->kind == LOSS_cross_entropy ? cross_entropy(g, s, o) : elementwise(g, s, o);
}

Value loss_cotangent(Graph *g, const Loss *loss, Value factor) {
    const Type t = *graph_type(g, loss->y);
    Value dy = loss->dy;
    if (!dy) dy = build_full(g, build_scalar_f(g, DT_f32, 1), t.rank, t.dim);
    if (factor) dy = build_binary(g, OP_mul, dy, factor);
    return build_cast(g, dy, t.dtype);
}

void loss_seed(Graph *g, LossSeeds *s, Value y, Value dy) {
    vec_push(g->arena, &s->y, y);
    vec_push(g->arena, &s->dy, dy);
}

/* --- Text ------------------------------------------------------------------------------------ */

typedef struct Text {
    Arena *arena;
    DiagSink *diags;
    const char *whole, *at;
} Text;

static graphc_status bad(const Text *t, const char *what) {
    return diag(t->diags, D_USAGE, "--loss", "\"%s\": %s", t->whole, what);
}

static const char *word(Text *t) {
    t->at += strspn(t->at, " ");
    size_t n = strcspn(t->at, " ,=()");
    const char *s = arena_strndup(t->arena, t->at, n);
    t->at += n;
    t->at += strspn(t->at, " ");
    return s;
}

static bool number(const char *s, double *out) {
    char *end;
    *out = strtod(s, &end);
    return *s && !*end;
}

static bool whole(double x, int64_t *out) {
    const double most = 9007199254740992; /* 2^53: each whole number up to it is one */
    if (!(x >= -most && x <= most)) return false;
    *out = (int64_t)x;
    return (double)*out == x;
}

static bool in_range(const LossSpec *s) {
    return s->smoothing >= 0 && s->smoothing < 1 && s->z >= 0 && s->z <= FLT_MAX && s->delta > 0 &&
           s->delta <= FLT_MAX;
}

static graphc_status parameter(Text *t, LossSpec *s, const char *name) {
    static const struct {
        const char *name;
        char letter;
    } known[] = {{"smoothing", 'e'}, {"ignore", 'i'}, {"z", 'z'}, {"weights", 'w'}, {"delta", 'd'}};
    char letter = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0) letter = known[i].letter;
    if (!letter || !strchr(loss_info[s->kind].params, letter))
        return bad(t, "the loss has no such parameter");
    const char *value = word(t);
    double x = 0;
    if (letter == 'w')
        return s->class_weights = value, *value ? GRAPHC_OK : bad(t, "a name is missing");
    if (!number(value, &x)) return bad(t, "a parameter's value is no number");
    if (letter == 'e') s->smoothing = x;
    if (letter == 'i' && !whole(x, &s->ignore))
        return bad(t, "a label to ignore is no whole number");
    if (letter == 'z') s->z = x;
    if (letter == 'd') s->delta = x;
    return in_range(s) ? GRAPHC_OK : bad(t, "a parameter is out of its range");
}

static graphc_status wrong_count(const Text *t, const LossSpec *s) {
    return bad(t, loss_info[s->kind].operands == 1
                      ? "wrong number of operands: this loss takes one"
                      : "wrong number of operands: this loss takes two, what the model gives and "
                        "what it should be, as in cross_entropy(logits, labels)");
}

static graphc_status call(Text *t, LossSpec *s) {
    uint32_t n = 0;
    do {
        t->at++; /* the parenthesis or comma */
        const char *w = word(t);
        if (*t->at == '=') {
            t->at++;
            GC_TRY(parameter(t, s, w));
        } else if (n == loss_info[s->kind].operands || !*w) {
            return wrong_count(t, s);
        } else {
            s->operand[n++] = w;
        }
    } while (*t->at == ',');
    if (n != loss_info[s->kind].operands) return wrong_count(t, s);
    if (strcmp(t->at, ")") != 0) return bad(t, "a closing parenthesis is missing");
    return GRAPHC_OK;
}

static graphc_status unknown_loss(const Text *t) {
    StrBuf names;
    sb_init(&names, t->arena);
    for (uint32_t k = LOSS_output + 1; k < LOSS_KINDS; k++)
        sb_printf(&names, "%s%s", k > LOSS_output + 1 ? ", " : "", loss_info[k].name);
    (void)bad(t, "there is no such loss");
    diag_hint(t->diags, "there are %s, and outputs of the model", sb_str(&names));
    return diag_info[D_USAGE].status;
}

graphc_status loss_parse(Arena *a, DiagSink *d, const char *text, LossSpec *out) {
    Text t = {a, d, text, text};
    *out = (LossSpec){.ignore = -100, .delta = 1};
    const char *name = word(&t);
    if (!*t.at && *name) return out->operand[0] = name, GRAPHC_OK;
    for (uint32_t k = LOSS_output + 1; k < LOSS_KINDS; k++)
        if (*t.at == '(' && strcmp(name, loss_info[k].name) == 0) out->kind = (LossKind)k;
    if (out->kind == LOSS_output) return unknown_loss(&t);
    return call(&t, out);
}
