/* Support vector machines of ai.onnx.ml. */
#include "frontend/import/import_impl.h"
#include "frontend/ops/ml/ml.h"
#include "runtime/base/arena.h"

/* kernel_params: gamma, coef0, degree. */
static bool kernel(Lower *l, Value rows, const char *vectors, int64_t m, Value *out) {
    static const char *const kinds[] = {"LINEAR", "POLY", "RBF", "SIGMOID", NULL};
    Graph *g = lower_graph(l);
    uint32_t nparams;
    int kind;
    const float *p = lower_floats(l, "kernel_params", &nparams);
    *out = 0;
    if (!lower_choice(l, "kernel_type", kinds, &kind)) return false;
    if (kind && nparams < 3)
        return lower_error(l, D_ATTRIBUTE, "'kernel_params' has %u numbers, not 3", nparams);
    const double gamma = kind ? (double)p[0] : 0, coef0 = kind ? (double)p[1] : 0;
    if (kind == 2) {
        const Value v = ml_weights(l, rows, vectors, m);
        if (!v) return false;
        const Value d = v_sub(g, build_unsqueeze(g, rows, 1), v);
        const Value sum = build_reduce(g, OP_reduce_sum, v_square(g, d), 1u << 2, false);
        *out = v_exp(g, v_mulf(g, sum, -gamma));
        return *out != 0;
    }
    Value y = ml_products(l, rows, vectors, m);
    if (kind) y = v_addf(g, v_mulf(g, y, gamma), coef0);
    *out = kind == 1 ? v_powf(g, y, (double)p[2]) : kind == 3 ? v_tanh(g, y) : y;
    return *out != 0;
}

static bool lower_svm_regressor(Lower *l) {
    Graph *g = lower_graph(l);
    uint32_t n, nrho;
    MlPost post;
    const double *w = ml_floats(l, "coefficients", &n), *rho = ml_floats(l, "rho", &nrho);
    const int64_t supports = lower_i(l, "n_supports");
    const Value rows = ml_rows(l, false);
    if (!rows || !ml_post(l, &post)) return false;
    if (!w || !rho) return lower_error(l, D_ATTRIBUTE, "it has no 'coefficients' or no 'rho'");
    Value y;
    if (supports > 0) {
        if (n != supports)
            return lower_error(l, D_ATTRIBUTE, "%u coefficients for %lld support vectors", n,
                               (long long)supports);
        if (!kernel(l, rows, "support_vectors", supports, &y)) return false;
        y = build_matmul(g, y, v_transpose(g, ml_matrix(g, DT_f32, w, 1, n)), DT_f32);
    } else if (!kernel(l, rows, "coefficients", 1, &y)) {
        return false;
    }
    y = v_addf(g, y, rho[0]);
    if (lower_i(l, "one_class")) /* inside or outside */
        y = build_select(g, v_ltf(g, v_neg(g, y), 0), v_const(g, y, 1), v_const(g, y, -1));
    lower_out(l, 0, ml_transform(g, y, post));
    return true;
}

/* Classes in pairs (i, j), i < j, in order. */
typedef struct Pairs {
    Lower *l;
    Graph *g;
    int64_t classes, npairs, vectors;
    const int64_t *count; /* support vectors of each class */
} Pairs;

/* The decision of pair (i, j) is a sum over the support vectors of both classes: one matrix
 * [pairs, vectors] of coefficients, most of them 0. */
static Value decisions(const Pairs *s, Value k, const double *w, const double *rho) {
    double *m = arena_array(s->g->arena, (size_t)(s->npairs * s->vectors) + 1, sizeof *m);
    int64_t pair = 0, start_i = 0;
    for (int64_t i = 0; i < s->classes; start_i += s->count[i++]) {
        int64_t start_j = start_i + s->count[i];
        for (int64_t j = i + 1; j < s->classes; start_j += s->count[j++], pair++) {
            double *row = m + pair * s->vectors;
            for (int64_t v = 0; v < s->count[i]; v++)
                row[start_i + v] = w[(j - 1) * s->vectors + start_i + v];
            for (int64_t v = 0; v < s->count[j]; v++)
                row[start_j + v] = w[i * s->vectors + start_j + v];
        }
    }
    const Value matrix = ml_matrix(s->g, DT_f32, m, s->npairs, s->vectors);
    const Value y = build_matmul(s->g, k, v_transpose(s->g, matrix), DT_f32);
    return v_add(s->g, y, ml_matrix(s->g, DT_f32, rho, 1, s->npairs));
}

/* A constant [npairs, classes]: `first` where a class is the first of a pair, `second` where it is
 * the second. */
static Value members(const Pairs *s, double first, double second) {
    double *m = arena_array(s->g->arena, (size_t)(s->npairs * s->classes) + 1, sizeof *m);
    for (int64_t i = 0, pair = 0; i < s->classes; i++)
        for (int64_t j = i + 1; j < s->classes; j++, pair++) {
            m[pair * s->classes + i] = first;
            m[pair * s->classes + j] = second;
        }
    return ml_matrix(s->g, DT_f32, m, s->npairs, s->classes);
}

/* Each pair votes for its first class if its decision is above 0, else for its second. */
static Value votes(const Pairs *s, Value decision) {
    Graph *g = s->g;
    const Value won = build_cast(g, v_ltf(g, v_neg(g, decision), 0), DT_f32);
    const Value lost = v_sub(g, v_const(g, won, 1), won);
    return v_add(g, build_matmul(g, won, members(s, 1, 0), DT_f32),
                 build_matmul(g, lost, members(s, 0, 1), DT_f32));
}

static Value column(Graph *g, Value x, int64_t i) {
    return build_slice_axis(g, x, 1, v_int(g, i), v_int(g, 1), 1);
}

/* Probabilities of classes from those of pairs: Wu, Lin, Weng, "Probability estimates for
 * multi-class classification by pairwise coupling" (2004), algorithm 2. A row is done once its
 * error is below 0.005 / classes. p is [n, classes], q [n, classes * classes]; *more: some row went
 * on. */
static Value coupling_round(Graph *g, int64_t k, Value q_all, Value p, Value *more) {
    Value *x = arena_array(g->arena, (size_t)(2 * k + k * k), sizeof *x);
    Value *qp = x + k, *q = qp + k, total = 0, worst = 0;
    for (int64_t i = 0; i < k; i++) x[i] = column(g, p, i);
    for (int64_t i = 0; i < k * k; i++) q[i] = column(g, q_all, i);
    for (int64_t i = 0; i < k; i++) {
        for (int64_t j = 0; j < k; j++) {
            const Value term = v_mul(g, q[i * k + j], x[j]);
            qp[i] = j ? v_add(g, qp[i], term) : term;
        }
        const Value term = v_mul(g, x[i], qp[i]);
        total = i ? v_add(g, total, term) : term;
    }
    for (int64_t i = 0; i < k; i++) {
        const Value error = v_abs(g, v_sub(g, qp[i], total));
        worst = i ? v_max(g, worst, error) : error;
    }
    const Value done = v_ltf(g, worst, 0.005 / (double)k);
    for (int64_t i = 0; i < k; i++) {
        const Value qii = q[i * k + i];
        const Value diff = v_div(g, v_sub(g, total, qp[i]), qii), all = v_addf(g, diff, 1);
        x[i] = v_add(g, x[i], diff);
        const Value gain = v_mul(g, diff, v_add(g, v_mul(g, diff, qii), v_mulf(g, qp[i], 2)));
        total = v_div(g, v_div(g, v_add(g, total, gain), all), all);
        for (int64_t j = 0; j < k; j++) {
            qp[j] = v_div(g, v_add(g, qp[j], v_mul(g, diff, q[i * k + j])), all);
            x[j] = v_div(g, x[j], all);
        }
    }
    const Value open = build_select(g, done, v_const(g, worst, 0), v_const(g, worst, 1));
    *more = v_ltf(g, v_neg(g, build_reduce(g, OP_reduce_max, open, 3, false)), 0);
    return build_select(g, done, p, build_concat(g, x, (uint32_t)k, 1));
}

static Value coupling_loop(const Pairs *s, Value q) {
    enum { ROUNDS = 100 };
    Graph *g = s->g;
    uint32_t iter;
    v_iteration(g, "round", &iter);
    const Expr dim[2] = {v_dim(g, q, 0), v_int(g, s->classes)};
    const Value p = build_full(g, build_scalar_f(g, DT_f32, 1.0 / (double)s->classes), 2, dim);
    Graph *body = graph_create(g->arena, g->exprs, g->diags, "round");
    body->is_body = true;
    vec_push(s->l->im->arena, &s->l->im->subgraphs, body);
    build_at(body, build_loc_from(body, g, build_loc(g), 0));
    build_input(body, "cond", (Type){.dtype = DT_bool});
    const Value p_in = build_input(body, "p", *graph_type(g, p));
    const Value q_in = build_input(body, "q", *graph_type(g, q));
    Value more;
    const Value p_out = coupling_round(body, s->classes, q_in, p_in, &more);
    if (!p_out) return 0;
    build_output(body, "cond", more);
    build_output(body, "p", p_out);
    const Value loop = build_loop(g, build_scalar_i(g, DT_i64, ROUNDS),
                                  build_scalar_i(g, DT_bool, 1), &p, 1, &q, 1, body, iter);
    return build_proj(g, loop, 0);
}

/* r[i][j] of class i against j is the decision's sigmoid, and Q of the paper what the loop takes */
static Value coupled(const Pairs *s, Value decision, const double *a, const double *b) {
    Graph *g = s->g;
    const int64_t k = s->classes;
    Value *r = arena_array(g->arena, (size_t)(2 * k * k), sizeof *r), *q = r + k * k;
    for (int64_t i = 0, pair = 0; i < k; i++)
        for (int64_t j = i + 1; j < k; j++, pair++) {
            const Value z = v_addf(g, v_mulf(g, column(g, decision, pair), a[pair]), b[pair]);
            const Value above = v_sub(g, v_const(g, z, 1), v_sigmoid(g, z));
            r[i * k + j] = v_clamp(g, above, 1e-7, 1 - 1e-7);
            r[j * k + i] = v_sub(g, v_const(g, z, 1), r[i * k + j]);
        }
    for (int64_t i = 0; i < k; i++) {
        Value sum = 0;
        for (int64_t j = 0; j < k; j++) {
            if (j == i) continue;
            const Value square = v_square(g, r[j * k + i]);
            sum = sum ? v_add(g, sum, square) : square;
            q[i * k + j] = v_neg(g, v_mul(g, r[j * k + i], r[i * k + j]));
        }
        q[i * k + i] = sum;
    }
    return coupling_loop(s, build_concat(g, q, (uint32_t)(k * k), 1));
}

/* What support vectors say: the scores, and the class with most votes. */
static bool classify(const Pairs *s, Value rows, MlPost post, Value *label, Value *scores) {
    Graph *g = s->g;
    uint32_t n, nrho, na, nb;
    Value k;
    const double *w = ml_floats(s->l, "coefficients", &n), *rho = ml_floats(s->l, "rho", &nrho);
    const double *a = ml_floats(s->l, "prob_a", &na), *b = ml_floats(s->l, "prob_b", &nb);
    if (!w || !rho || n < (s->classes - 1) * s->vectors || nrho < s->npairs || na != nb ||
        (na && na < s->npairs))
        return lower_error(s->l, D_ATTRIBUTE,
                           "'coefficients', 'rho', 'prob_a' or 'prob_b' has too few numbers");
    if (!kernel(s->l, rows, "support_vectors", s->vectors, &k)) return false;
    const Value decision = decisions(s, k, w, rho);
    *label = build_arg_reduce(g, OP_argmax, votes(s, decision), 1, false, false);
    if (na)
        *scores = ml_transform(g, coupled(s, decision, a, b), post);
    else if (s->classes > 2)
        *scores = ml_transform(g, decision, post);
    else
        *scores = ml_two_classes(g, decision, post == ML_NONE ? ML_NEGATED : ML_COMPLEMENT);
    return *scores != 0;
}

static bool lower_svm_classifier(Lower *l) {
    uint32_t nclasses, nrho, nw;
    Pairs s = {.l = l, .g = lower_graph(l)};
    MlPost post;
    s.count = lower_ints(l, "vectors_per_class", &nclasses);
    const Value rows = ml_rows(l, false);
    const Value labels = ml_labels(l, "classlabels_ints", "classlabels_strings", &s.classes);
    if (!rows || !labels || !ml_post(l, &post)) return false;
    s.npairs = s.classes * (s.classes - 1) / 2;
    for (uint32_t i = 0; i < nclasses; i++) {
        if (s.count[i] < 0 || s.count[i] > INT32_MAX)
            return lower_error(l, D_ATTRIBUTE, "'vectors_per_class' has a count out of range");
        s.vectors += s.count[i];
    }
    Value label = 0, scores = 0;
    if (s.vectors > 0) {
        if (nclasses != s.classes || s.classes < 2)
            return lower_error(l, D_ATTRIBUTE, "%lld labels, %u counts of vectors",
                               (long long)s.classes, nclasses);
        if (!classify(&s, rows, post, &label, &scores)) return false;
    } else { /* a row of coefficients for each class */
        const double *rho = ml_floats(l, "rho", &nrho);
        const double *w = ml_floats(l, "coefficients", &nw);
        if (!rho || !w) return lower_error(l, D_ATTRIBUTE, "it has no 'coefficients' or no 'rho'");
        Value y = ml_products(l, rows, "coefficients", s.classes);
        if (!y) return false;
        y = v_addf(s.g, y, rho[0]);
        label = build_arg_reduce(s.g, OP_argmax, y, 1, false, false);
        scores = ml_transform(s.g, y, post);
    }
    ml_out_label(l, labels, label);
    lower_out(l, 1, scores);
    return true;
}

#define KERNEL                                                                                     \
    "kernel_type:s=LINEAR", "kernel_params:F", "support_vectors:F", "coefficients:F!", "rho:F!",   \
        "post_transform:s=NONE"
static const char *const regressor_attrs[] = {KERNEL, "n_supports:i=0", "one_class:i=0", NULL};
static const char *const classifier_attrs[] = {
    KERNEL,     "vectors_per_class:I", "prob_a:F",
    "prob_b:F", "classlabels_ints:I",  "classlabels_strings:S",
    NULL};

const OnnxOp ops_ml_svm[] = {
    {ML, "SVMRegressor", 1, 0, 1, 1, 1, 1, regressor_attrs, lower_svm_regressor},
    {ML, "SVMClassifier", 1, 0, 1, 1, 1, 2, classifier_attrs, lower_svm_classifier},
    {0},
};
