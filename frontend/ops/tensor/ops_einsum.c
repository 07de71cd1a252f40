/* Einsum: operands are contracted from left to right; each contraction is one batched dot, or an
 * element-wise product where nothing is summed. */
#include "frontend/import/onnx_op.h"
#include <ctype.h>
#include <string.h>

/* A label is a letter, or 128 + i for the i-th axis from the right of an ellipsis. */
#define MAX_LABELS   256
#define ELLIPSIS(i)  ((uint8_t)(128 + (i)))
#define MAX_OPERANDS 16

typedef struct Term {
    Value v;
    uint8_t n;
    uint8_t label[GRAPH_MAX_RANK];
} Term;

typedef struct Einsum {
    Lower *l;
    Graph *g;
    ExprPool *p;
    Term in[MAX_OPERANDS];
    uint32_t nin;
    Term out;
    Expr size[MAX_LABELS];
    uint8_t ellipsis; /* most axes that an ellipsis stands for */
} Einsum;

static int find(const Term *t, uint8_t label) {
    for (int i = 0; i < t->n; i++)
        if (t->label[i] == label) return i;
    return -1;
}

static bool bad_equation(Einsum *e) {
    return lower_error(e->l, D_ATTRIBUTE,
                       "equation \"%s\" is malformed or does not fit %u operands",
                       lower_s(e->l, "equation"), lower_nin(e->l));
}

/* Reads one term; `dots` is how many axes an ellipsis stands for. */
static bool read_term(Einsum *e, const char **s, Term *t, int dots) {
    bool seen = false;
    for (t->n = 0; **s && **s != ',' && !(**s == '-' && (*s)[1] == '>'); ++*s) {
        if (**s == ' ') continue;
        if (!strncmp(*s, "...", 3)) {
            if (seen || t->n + dots > GRAPH_MAX_RANK) return bad_equation(e);
            for (int i = dots; i-- > 0;) t->label[t->n++] = ELLIPSIS(i);
            seen = true;
            *s += 2;
        } else if (isalpha((unsigned char)**s) && t->n < GRAPH_MAX_RANK) {
            t->label[t->n++] = (uint8_t) * *s;
        } else {
            return bad_equation(e);
        }
    }
    return true;
}

static int letters_in(const char *s) {
    int n = 0;
    for (; *s && *s != ',' && *s != '-'; s++) n += isalpha((unsigned char)*s) != 0;
    return n;
}

/* Sizes must agree; inside an ellipsis an axis of size 1 is broadcast. */
static bool note_sizes(Einsum *e, const Term *t) {
    const Type *type = graph_type(e->g, t->v);
    for (int i = 0; i < t->n; i++) {
        Expr *size = &e->size[t->label[i]];
        const bool one = expr_is_value(e->p, type->dim[i], 1);
        int64_t a, b;
        if (!*size || expr_is_value(e->p, *size, 1))
            *size = type->dim[i];
        else if (!one && expr_is_const(e->p, *size, &a) && expr_is_const(e->p, type->dim[i], &b) &&
                 a != b)
            return lower_error(e->l, D_SHAPE, "sizes %lld and %lld of one label differ",
                               (long long)a, (long long)b);
    }
    return true;
}

/* A label that occurs twice in a term takes the diagonal. */
static void take_diagonals(Einsum *e, Term *t) {
    const Type *type = graph_type(e->g, t->v);
    Term d = {.n = 0};
    int8_t src[GRAPH_MAX_RANK];
    Expr dim[GRAPH_MAX_RANK];
    for (int i = 0; i < t->n; i++) {
        int at = find(&d, t->label[i]);
        if (at < 0) {
            at = d.n++;
            d.label[at] = t->label[i];
            dim[at] = type->dim[i];
        }
        src[i] = (int8_t)at;
    }
    if (d.n == t->n) return;
    d.v = build_gather(e->g, t->v, src, NULL, 0, d.n, dim);
    *t = d;
}

static bool read_operands(Einsum *e, const char **s) {
    e->nin = lower_nin(e->l);
    if (e->nin > MAX_OPERANDS)
        return lower_error(e->l, D_LIMIT, "more than %d operands", MAX_OPERANDS);
    for (uint32_t i = 0; i < e->nin; i++) {
        Term *t = &e->in[i];
        const int rank = lower_type(e->l, i)->rank, dots = rank - letters_in(*s);
        if (dots < 0) return bad_equation(e);
        if (!read_term(e, s, t, dots)) return false;
        if (t->n != rank)
            return lower_error(e->l, D_SHAPE, "term %u has %d labels for rank %d", i, t->n, rank);
        if (i + 1 < e->nin && *(*s)++ != ',') return bad_equation(e);
        if (dots > e->ellipsis) e->ellipsis = (uint8_t)dots;
        t->v = lower_need(e->l, i);
        if (!t->v || !note_sizes(e, t)) return false;
        take_diagonals(e, t);
        if (!t->v) return false;
    }
    return true;
}

/* Without "->" the result has the ellipsis and then every label that the equation has once, sorted.
 */
static void implicit_output(Einsum *e, const char *equation) {
    for (int i = e->ellipsis; i-- > 0;) e->out.label[e->out.n++] = ELLIPSIS(i);
    for (int c = 'A'; c <= 'z'; c++) {
        uint32_t count = 0;
        for (const char *s = equation; *s; s++) count += *s == c;
        if (isalpha(c) && count == 1 && e->out.n < GRAPH_MAX_RANK)
            e->out.label[e->out.n++] = (uint8_t)c;
    }
}

static bool parse(Einsum *e) {
    const char *equation = lower_s(e->l, "equation"), *s = equation;
    if (!read_operands(e, &s)) return false;
    while (*s == ' ') s++;
    if (!*s) {
        implicit_output(e, equation);
        return true;
    }
    if (s[0] != '-' || s[1] != '>') return bad_equation(e);
    s += 2;
    if (!read_term(e, &s, &e->out, e->ellipsis) || *s) return bad_equation(e);
    for (int i = 0; i < e->out.n; i++)
        if (!e->size[e->out.label[i]] || find(&e->out, e->out.label[i]) != i)
            return bad_equation(e);
    return true;
}

/* True if the label is needed after operand `next` has been taken in. */
static bool needed(const Einsum *e, uint8_t label, uint32_t next) {
    if (find(&e->out, label) >= 0) return true;
    for (uint32_t i = next + 1; i < e->nin; i++)
        if (find(&e->in[i], label) >= 0) return true;
    return false;
}

/* Sums the labels that neither `other` has nor anything later needs. */
static void sum_alone(Einsum *e, Term *t, const Term *other, uint32_t next) {
    uint32_t axes = 0;
    Term r = {.n = 0};
    for (int i = 0; i < t->n; i++)
        if ((other && find(other, t->label[i]) >= 0) || needed(e, t->label[i], next))
            r.label[r.n++] = t->label[i];
        else
            axes |= 1u << i;
    if (!axes) return;
    r.v = build_reduce(e->g, OP_reduce_sum, t->v, axes, false);
    *t = r;
}

/* The term with its axes in the given order; labels it lacks get size 1, and `full` expands. */
static Value arrange(Einsum *e, const Term *t, const uint8_t *label, uint8_t n, bool full) {
    uint8_t perm[GRAPH_MAX_RANK], k = 0;
    Expr dim[GRAPH_MAX_RANK], wide[GRAPH_MAX_RANK];
    const Type *type = graph_type(e->g, t->v);
    for (uint8_t i = 0; i < n; i++) {
        const int at = find(t, label[i]);
        dim[i] = at < 0 ? expr_const(e->p, 1) : type->dim[at];
        wide[i] = at < 0 && !full ? dim[i] : e->size[label[i]];
        if (at >= 0) perm[k++] = (uint8_t)at;
    }
    Value v = build_reshape(e->g, build_permute(e->g, t->v, perm), n, dim);
    return full ? build_expand(e->g, v, n, wide) : v;
}

typedef struct Groups {
    uint8_t batch[GRAPH_MAX_RANK], m[GRAPH_MAX_RANK], n[GRAPH_MAX_RANK], k[GRAPH_MAX_RANK];
    uint8_t nb, nm, nn, nk;
} Groups;

static Groups group_labels(const Einsum *e, const Term *a, const Term *b, uint32_t next) {
    Groups g = {.nb = 0};
    for (int i = 0; i < a->n; i++) {
        const uint8_t c = a->label[i];
        if (find(b, c) < 0)
            g.m[g.nm++] = c;
        else if (needed(e, c, next))
            g.batch[g.nb++] = c;
        else
            g.k[g.nk++] = c;
    }
    for (int i = 0; i < b->n; i++)
        if (find(a, b->label[i]) < 0) g.n[g.nn++] = b->label[i];
    return g;
}

static Expr size_of(const Einsum *e, const uint8_t *label, uint8_t n) {
    Expr s = expr_const(e->p, 1);
    for (uint8_t i = 0; i < n; i++) s = expr_mul(e->p, s, e->size[label[i]]);
    return s;
}

/* One operand as [batch.., rows, columns]. */
static Value as_matrix(Einsum *e, const Term *t, const Groups *s, const uint8_t *row, uint8_t nrow,
                       const uint8_t *col, uint8_t ncol) {
    uint8_t order[GRAPH_MAX_RANK], n = 0;
    Expr dim[GRAPH_MAX_RANK];
    memcpy(order, s->batch, s->nb);
    n = s->nb;
    for (uint8_t i = 0; i < nrow; i++) order[n++] = row[i];
    for (uint8_t i = 0; i < ncol; i++) order[n++] = col[i];
    for (uint8_t i = 0; i < s->nb; i++) dim[i] = e->size[s->batch[i]];
    dim[s->nb] = size_of(e, row, nrow);
    dim[s->nb + 1] = size_of(e, col, ncol);
    return build_reshape(e->g, arrange(e, t, order, n, true), (uint8_t)(s->nb + 2), dim);
}

static bool contract(Einsum *e, Term *a, const Term *b, uint32_t next) {
    const Groups s = group_labels(e, a, b, next);
    Term r = {.n = 0};
    if (s.nb + s.nm + s.nn > GRAPH_MAX_RANK || s.nb + 2 > GRAPH_MAX_RANK)
        return lower_error(e->l, D_LIMIT, "too many labels in one contraction");
    for (uint8_t i = 0; i < s.nb; i++) r.label[r.n++] = s.batch[i];
    for (uint8_t i = 0; i < s.nm; i++) r.label[r.n++] = s.m[i];
    for (uint8_t i = 0; i < s.nn; i++) r.label[r.n++] = s.n[i];
    if (s.nk == 0) {
        r.v = build_binary(e->g, OP_mul, arrange(e, a, r.label, r.n, false),
                           arrange(e, b, r.label, r.n, false));
    } else {
        Expr dim[GRAPH_MAX_RANK];
        for (uint8_t i = 0; i < r.n; i++) dim[i] = e->size[r.label[i]];
        Value x = as_matrix(e, a, &s, s.m, s.nm, s.k, s.nk);
        Value y = as_matrix(e, b, &s, s.k, s.nk, s.n, s.nn);
        r.v =
            build_reshape(e->g, build_matmul(e->g, x, y, graph_type(e->g, a->v)->dtype), r.n, dim);
    }
    *a = r;
    return r.v != 0;
}

static bool lower_einsum(Lower *l) {
    Einsum e = {.l = l, .g = lower_graph(l), .p = lower_exprs(l)};
    if (!parse(&e)) return false;
    Term acc = e.in[0];
    for (uint32_t i = 1; i < e.nin; i++) {
        sum_alone(&e, &acc, &e.in[i], i);
        sum_alone(&e, &e.in[i], &acc, i);
        if (!acc.v || !e.in[i].v || !contract(&e, &acc, &e.in[i], i)) return true;
    }
    sum_alone(&e, &acc, NULL, e.nin);
    lower_out(l, 0, acc.v ? arrange(&e, &acc, e.out.label, e.out.n, true) : 0);
    return true;
}

static const char *const einsum_attrs[] = {"equation:s!", NULL};

const OnnxOp ops_einsum[] = {
    {"", "Einsum", 12, 0, 1, -1, 1, 1, einsum_attrs, lower_einsum},
    {0},
};
