/* Checks a kernel's invariants; the first broken one is reported with its op. */
#include "fusion/kir/kir_internal.h"
#include <stdlib.h>
#include <string.h>

typedef struct Verify {
    const Kernel *k;
    ExprPool *p;
    DiagSink *d;
    uint32_t *domains;
    KVal at;
    bool bad;
} Verify;

#define CHECK_OP(v, cond, text)                                                                    \
    do {                                                                                           \
        if (!(cond)) return broken((v), (text));                                                   \
    } while (0)

static graphc_status broken(Verify *v, const char *what) {
    const KOp *o = &v->k->ops[v->at];
    return diag(v->d, D_VERIFY, v->k->name ? v->k->name : "kernel", "%%%u %s: %s", v->at,
                v->at ? kir_op_name(o->op) : "kernel", what);
}

/* Arithmetic is not done in narrow floats; moving their bits about is allowed. */
static bool arithmetic(DType t) {
    return t == DT_f64 || t == DT_f32 || t == DT_bool ||
           (dtype_is_int(t) && dtype_info[t].bits >= 8);
}

static void check_sym(void *ctx, uint32_t sym) {
    Verify *v = ctx;
    const SymInfo *s = expr_sym_info(v->p, sym);
    if (s->kind == SYM_AXIS && kir_axis_of(v->k, sym) < 0) v->bad = true;
    if (s->kind == SYM_INDIRECT && !kir_bind_of(v->k, sym, v->at)) v->bad = true;
}

static graphc_status check_expr(Verify *v, Expr e) {
    v->bad = false;
    if (e) expr_each_sym(v->p, e, check_sym, v);
    CHECK_OP(v, !v->bad, "an expression uses an axis or indirect symbol that is not bound here");
    return GRAPHC_OK;
}

static graphc_status check_map(Verify *v, const KOp *o) {
    const OpInfo *info = &op_info[o->op];
    const KOp *ops = v->k->ops;
    CHECK_OP(v, info->cls == OPC_MAP, "not an element-wise op");
    DType a = (DType)ops[o->in[o->op == OP_select ? 1 : 0]].dtype;
    if (o->op == OP_select) {
        CHECK_OP(v, ops[o->in[0]].dtype == DT_bool, "the condition is not bool");
        CHECK_OP(v, ops[o->in[2]].dtype == a && o->dtype == a, "operand types differ");
        return GRAPHC_OK;
    }
    if (info->arity == 2) CHECK_OP(v, ops[o->in[1]].dtype == a, "operand types differ");
    switch (info->dtype_rule) {
    case 'A': CHECK_OP(v, o->dtype == a, "the result type is not the operand's"); break;
    case 'B': CHECK_OP(v, o->dtype == DT_bool, "the result type is not bool"); break;
    default: break;
    }
    if (o->op != OP_cast && o->op != OP_bitcast)
        CHECK_OP(v, arithmetic(a), "arithmetic in a type that kernels only load and store");
    return GRAPHC_OK;
}

static graphc_status check_fold(Verify *v, const KOp *o) {
    uint32_t all = v->k->naxes >= 32 ? UINT32_MAX : (1u << v->k->naxes) - 1;
    DType in = (DType)v->k->ops[o->in[0]].dtype;
    CHECK_OP(v, (o->axes & ~all) == 0, "an axis that the kernel does not have");
    bool single = o->op != K_kreduce || o->fold >= FOLD_argmax;
    CHECK_OP(v, !single || (o->axes && !(o->axes & (o->axes - 1))), "needs exactly one axis");
    if (o->op == K_kcompact) {
        uint32_t count = kir_count_param(o);
        CHECK_OP(v, in == DT_bool, "compacts a value that is not bool");
        CHECK_OP(v, o->buf < v->k->nparams && v->k->params[o->buf].written, "no such parameter");
        CHECK_OP(v, count < v->k->nparams && v->k->params[count].written, "the count has no place");
        CHECK_OP(v, v->k->params[count].dtype == DT_i64, "the count is not i64");
        return GRAPHC_OK;
    }
    bool position = o->op == K_ksort || (o->op == K_kreduce && o->fold >= FOLD_argmax);
    CHECK_OP(v, o->dtype == (position ? DT_i64 : in), "wrong result type");
    CHECK_OP(v, arithmetic(in), "folds a type that kernels only load and store");
    for (uint32_t i = 0; i < v->k->naxes; i++)
        if (o->op == K_kreduce && (o->axes >> i & 1))
            CHECK_OP(v, v->k->axes[i].kind == AX_RED, "reduces a parallel axis");
    return GRAPHC_OK;
}

static graphc_status check_access(Verify *v, const KOp *o) {
    static const bool points[] = {
#define X(name, points) points,
        KIR_TEMPLATES(X)
#undef X
    };
    const Kernel *k = v->k;
    CHECK_OP(v, o->buf < kir_body_params(k), "no such parameter");
    CHECK_OP(v, o->dtype == k->params[o->buf].dtype, "type differs from the parameter's");
    if (o->op == K_kload) {
        CHECK_OP(v, !o->in[0] || k->ops[o->in[0]].dtype == o->dtype, "fill value of another type");
        return GRAPHC_OK;
    }
    CHECK_OP(v, k->params[o->buf].written, "stores to a parameter that is not written");
    CHECK_OP(v, k->ops[o->in[0]].dtype == o->dtype, "stores a value of another type");
    CHECK_OP(v, o->op != K_katomic || k->serial, "updates in a kernel that is not serial");
    uint32_t reduced = 0;
    bool rows = k->kind == KERNEL_per || points[k->tem];
    for (uint32_t i = 0; i < k->naxes; i++)
        if (k->axes[i].kind == AX_RED && !rows) reduced |= 1u << i;
    CHECK_OP(v, (v->domains[v->at] & reduced) == 0, "stores once for each value of a reduced axis");
    return GRAPHC_OK;
}

static graphc_status check_op(Verify *v) {
    const KOp *o = &v->k->ops[v->at];
    CHECK_OP(v, o->op && o->op < K_COUNT && o->op != K_first, "not an op");
    CHECK_OP(v, o->dtype > DT_none && o->dtype < DT_COUNT, "no type");
    uint32_t arity = kir_op_arity(o->op);
    for (uint32_t i = 0; i < 3; i++) {
        bool optional = o->op == K_kload;
        CHECK_OP(v, o->in[i] < v->at, "an operand does not precede its use");
        CHECK_OP(v, i < arity ? optional || o->in[i] : !o->in[i], "wrong number of operands");
    }
    GC_TRY(check_expr(v, o->index));
    GC_TRY(check_expr(v, o->mask));
    switch (o->op) {
    case K_konst: return GRAPHC_OK;
    case K_kexpr:
        CHECK_OP(v, o->dtype == DT_i64 && o->index, "needs an expression and type i64");
        return GRAPHC_OK;
    case K_kload:
    case K_kstore:
    case K_katomic: CHECK_OP(v, o->index, "no index"); return check_access(v, o);
    case K_kbind:
        CHECK_OP(v, dtype_is_int((DType)v->k->ops[o->in[0]].dtype), "binds a non-integer");
        CHECK_OP(v, o->sym < expr_sym_count(v->p), "no such symbol");
        return GRAPHC_OK;
    case K_kreduce:
    case K_kscan:
    case K_ksort:
    case K_kcompact: return check_fold(v, o);
    default: return check_map(v, o);
    }
}

static graphc_status check_axes(Verify *v) {
    const Kernel *k = v->k;
    CHECK_OP(v, k->naxes <= K_MAX_AXES && k->nparams <= K_MAX_PARAMS, "too many axes or params");
    for (uint32_t i = 0; i < k->naxes; i++) {
        const SymInfo *s = expr_sym_info(v->p, k->axes[i].sym);
        CHECK_OP(v, s->kind == SYM_AXIS, "an axis whose symbol is not an axis");
        CHECK_OP(v, kir_axis_of(k, k->axes[i].sym) == (int)i, "two axes with one symbol");
        CHECK_OP(v, k->axes[i].extent, "an axis without an extent");
        for (uint32_t j = 0; j < k->naxes; j++)
            CHECK_OP(v, !expr_uses(v->p, k->axes[i].extent, k->axes[j].sym),
                     "an extent that depends on an axis");
    }
    for (uint32_t i = 0; i < k->nparams; i++)
        CHECK_OP(
            v, k->params[i].dtype > DT_none && k->params[i].dtype < DT_COUNT && k->params[i].numel,
            "a parameter without type or size");
    return GRAPHC_OK;
}

static graphc_status check_more(Verify *v) {
    const Kernel *k = v->k;
    uint32_t n = kir_body_params(k);
    if (!k->more) return GRAPHC_OK;
    CHECK_OP(v, k->tem == TEM_none && !k->serial, "is not a kernel that does the same again");
    CHECK_OP(v, n * (1 + k->more) == k->nparams, "parameters do not go round");
    for (uint32_t i = n; i < k->nparams; i++) {
        const KParam *p = &k->params[i], *first = &k->params[i % n];
        CHECK_OP(
            v, p->dtype == first->dtype && p->written == first->written && p->numel == first->numel,
            "a parameter that is not like that of the first time");
    }
    return GRAPHC_OK;
}

/* What is carried is stored once, and read at the place where it is stored. */
static graphc_status check_carried(Verify *v, uint32_t param) {
    const Kernel *k = v->k;
    KVal store = 0;
    for (v->at = 1; v->at < k->nops; v->at++) {
        const KOp *o = &k->ops[v->at];
        if (o->op != K_kstore || o->buf != param) continue;
        CHECK_OP(v, !store && !o->mask, "what is carried is not stored once, everywhere");
        store = v->at;
    }
    for (v->at = 1; v->at < k->nops; v->at++) {
        const KOp *o = &k->ops[v->at];
        if (o->op != K_kload || o->buf != param) continue;
        CHECK_OP(v, o->index == k->ops[store].index && !o->mask,
                 "reads what another point stored the turn before");
    }
    return GRAPHC_OK;
}

static graphc_status check_turns(Verify *v) {
    const Kernel *k = v->k;
    if (!k->turns) return GRAPHC_OK;
    CHECK_OP(v, k->tem == TEM_none && !k->serial && !k->more, "is not a kernel that takes turns");
    CHECK_OP(v, k->turn < expr_sym_count(v->p) && expr_sym_info(v->p, k->turn)->kind == SYM_ITER,
             "no symbol of turns");
    for (uint32_t i = 0; i < k->naxes; i++)
        CHECK_OP(v, !expr_uses(v->p, k->axes[i].extent, k->turn),
                 "an extent that depends on the turn");
    uint32_t carried = 0;
    for (uint32_t i = 0; i < k->nparams; i++) {
        if (!kir_carries(k, i)) continue;
        carried++;
        GC_TRY(check_carried(v, i));
    }
    v->at = 0;
    CHECK_OP(v, carried <= K_MAX_CARRIED, "carries too much");
    return GRAPHC_OK;
}

/* Is B laid out in panels, as t->pack says? Columns of a panel side by side, its rows behind each
 * other, and then the next panel; in quads, four rows of a column side by side, in pairs two. Seen
 * at typical sizes, which also refutes what holds for some. */
static bool in_panels(const Verify *v, KVal b, int64_t *value) {
    const KDot *t = &v->k->dot;
    const KOp *load = &v->k->ops[b];
    while (load->op == OP_cast) load = &v->k->ops[load->in[0]];
    if (load->op != K_kload || load->mask || (t->quads && load->dtype != DT_i8)) return false;
    if (t->pairs && load->dtype != DT_bf16) return false;
    int64_t q = t->quads   ? 4
                : t->pairs ? 2
                           : 1,
            unit = q > 1 ? q * K_PANEL_GROUPS : 1, rows = kir_walk_length(v->k, v->p, t->k, value),
            columns = kir_walk_length(v->k, v->p, t->n, value),
            deep = (rows + unit - 1) / unit * (unit / q);
    int64_t start = expr_eval(v->p, load->index, value), nr = t->pack;
    bool ok = true;
    for (int64_t c = 0; c < columns && c <= 2 * nr; c++) {
        int64_t row = (c * 7) % rows;
        kir_set_axes(v->k, v->p, t->n, c, value);
        kir_set_axes(v->k, v->p, t->k, row, value);
        int64_t above = c / nr * deep + row / q;
        ok &= expr_eval(v->p, load->index, value) - start == (above * nr + c % nr) * q + row % q;
    }
    kir_set_axes(v->k, v->p, t->n | t->k, 0, value);
    return ok;
}

/* What quads need: sums of 32 bits over a known number of rows, and u8 behind casts that widen it.
 */
static bool has_bytes(const Verify *v) {
    const KDot *t = &v->k->dot;
    const KOp *a = &v->k->ops[t->a];
    int64_t n;
    for (uint32_t i = 0; i < v->k->naxes; i++)
        if ((t->k >> i & 1) && !expr_is_const(v->p, v->k->axes[i].extent, &n)) return false;
    while (a->op == OP_cast && a->dtype != DT_u8) a = &v->k->ops[a->in[0]];
    return a->dtype == DT_u8 && v->k->ops[t->acc[0]].dtype == DT_i32;
}

static graphc_status check_pack(Verify *v) {
    const KDot *t = &v->k->dot;
    uint32_t n = expr_sym_count(v->p);
    bool ok = true;
    CHECK_OP(v, !t->quads || (t->pack && has_bytes(v)), "dot: quads of something else");
    CHECK_OP(v, !t->pairs || (t->pack && !t->quads), "dot: pairs of something else");
    CHECK_OP(v, !t->block || kir_in_blocks(v->k, v->p), "dot: blocks of something else");
    if (!t->pack) return GRAPHC_OK;
    int64_t *value = calloc((size_t)n + 1, sizeof *value);
    if (!value) arena_out_of_memory(n * sizeof *value);
    for (uint32_t i = 0; i < n; i++) value[i] = expr_hint(v->p, expr_sym_ref(v->p, i));
    for (uint32_t i = 0; i < v->k->naxes; i++) value[v->k->axes[i].sym] = 0;
    for (uint32_t i = 0; i < t->nacc; i++) ok = ok && in_panels(v, t->b[i], value);
    free(value);
    CHECK_OP(v, ok, "dot: an operand that is not packed as the kernel says");
    return GRAPHC_OK;
}

/* Axes of the roles that a list names, as in "batch m k". */
static uint32_t axes_of(const Kernel *k, const char *list) {
    uint32_t n, axes = 0;
    const KRole *r = kir_roles(k->tem, &n);
    for (const char *at = list; *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        for (uint32_t j = 0; j < n; j++)
            if (r[j].kind == KR_AXES && strlen(r[j].name) == length &&
                !strncmp(r[j].name, at, length))
                axes |= kir_role_get(k, &r[j], 0);
        at += length;
    }
    return axes;
}

static graphc_status broken_role(const Verify *v, const KRole *r, const char *what) {
    return diag(v->d, D_VERIFY, v->k->name ? v->k->name : "kernel", "%s: %s %s",
                kir_tem_name[v->k->tem], r->name, what);
}

static graphc_status check_value(const Verify *v, const KRole *r, KVal x) {
    const Kernel *k = v->k;
    if (!x || x >= k->nops) return broken_role(v, r, "is no value");
    if (v->domains[x] & ~axes_of(k, r->within)) return broken_role(v, r, "depends on other axes");
    if (r->fold == FOLD_COUNT) return GRAPHC_OK;
    const KOp *o = &k->ops[x];
    bool is = o->op == K_kreduce && o->fold == r->fold && o->axes == axes_of(k, r->over);
    return is ? GRAPHC_OK : broken_role(v, r, "is not its fold");
}

/* What template.def says. */
static graphc_status check_roles(Verify *v) {
    const Kernel *k = v->k;
    uint32_t n, taken = 0;
    const KRole *r = kir_roles(k->tem, &n);
    for (const KRole *end = r + n; r < end; r++) {
        for (uint32_t i = 0; kir_role_is_value(r) && i < kir_role_count(k, r); i++)
            GC_TRY(check_value(v, r, kir_role_get(k, r, i)));
        uint32_t x = kir_role_get(k, r, 0);
        if (r->kind == KR_PARAM && x > k->nparams) return broken_role(v, r, "is no parameter");
        if (r->kind != KR_AXES) continue;
        if (x & taken) return broken_role(v, r, "has an axis with two roles");
        taken |= x;
    }
    return GRAPHC_OK;
}

static graphc_status check_dot(Verify *v) {
    const Kernel *k = v->k;
    const KDot *t = &k->dot;
    CHECK_OP(v, t->nacc >= 1 && t->nacc <= K_MAX_ACC && t->n && t->k,
             "dot: no accumulator or axes");
    GC_TRY(check_roles(v));
    for (uint32_t i = 0; i < t->nacc; i++) {
        v->at = t->acc[i];
        const KOp *m = &k->ops[k->ops[v->at].in[0]];
        CHECK_OP(v,
                 m->op == OP_mul && ((m->in[0] == t->a && m->in[1] == t->b[i]) ||
                                     (m->in[1] == t->a && m->in[0] == t->b[i])),
                 "dot: not the product of its operands");
    }
    v->at = 0;
    return check_pack(v);
}

static graphc_status check_attention(Verify *v) {
    const KAttn *t = &v->k->attn;
    GC_TRY(check_roles(v));
    CHECK_OP(v, v->k->ops[t->m].in[0] == t->score && v->k->ops[t->l].in[0] == t->e,
             "attention: the statistics are of other values");
    return GRAPHC_OK;
}

static graphc_status check_gradient(Verify *v) {
    const Kernel *k = v->k;
    const KAttnGrad *t = &k->grad;
    GC_TRY(check_roles(v));
    for (int i = 0; i < 2; i++) {
        const KOp *s = &k->ops[t->s[i]], *m = &k->ops[s->in[0]];
        bool sum = s->op == K_kreduce && s->fold == FOLD_sum && s->axes && !(s->axes & ~t->d);
        bool product = m->op == OP_mul && ((m->in[0] == t->x[i] && m->in[1] == t->y[i]) ||
                                           (m->in[1] == t->x[i] && m->in[0] == t->y[i]));
        CHECK_OP(v, sum && product, "attention_gradient: a sum is of other values");
    }
    return GRAPHC_OK;
}

/* What reads or stores rows does it at one place, and all that is masked is so as KDealt says. */
static graphc_status check_dealt_access(Verify *v, Expr turn, Expr column, Expr *place) {
    const KOp *o = &v->k->ops[v->at];
    const KDealtMasks m = kir_dealt_masks(&v->k->dealt, v->p, turn, column, v->k->dealt.shift);
    Expr both = expr_and(v->p, m.live, m.inside), at = expr_sub(v->p, o->index, column);
    CHECK_OP(v, !o->mask || o->mask == m.live || o->mask == m.inside || o->mask == both,
             "dealt: masks something else than what belongs to no row");
    if ((v->domains[v->at] & 6) != 6) return GRAPHC_OK;
    const bool fills = expr_is_value(v->p, v->k->axes[2].extent, v->k->dealt.columns);
    CHECK_OP(v, fills || o->mask == m.inside || o->mask == both, "dealt: columns of no row");
    CHECK_OP(v, !*place || at == *place, "dealt: rows lie at several places");
    *place = at;
    return GRAPHC_OK;
}

static graphc_status check_dealt(Verify *v) {
    const Kernel *k = v->k;
    const KDealt *d = &k->dealt;
    const uint32_t lists = d->lists;
    int64_t columns;
    Expr place = 0;
    CHECK_OP(v, k->naxes == 3 && k->kind == KERNEL_per, "dealt: not clusters, turns and columns");
    CHECK_OP(v, d->first && d->rows && d->shift, "dealt: does not say where rows are");
    CHECK_OP(v, lists && lists <= K_EVEN && K_EVEN % lists == 0 && d->columns * lists % K_EVEN == 0,
             "dealt: rows of a list do not start at one place in a vector");
    CHECK_OP(v, d->at_once && d->per % d->at_once == 0, "dealt: lists of a half turn");
    CHECK_OP(v,
             expr_is_const(v->p, k->axes[2].extent, &columns) && columns >= d->columns &&
                 columns - d->columns < K_EVEN * ((int64_t)d->sharers + 1),
             "dealt: other columns than a row's");
    Expr turn = expr_sym_ref(v->p, k->axes[1].sym), column = expr_sym_ref(v->p, k->axes[2].sym);
    for (v->at = 1; v->at < k->nops; v->at++) {
        const KOp *o = &k->ops[v->at];
        if (o->op == K_kload || o->op == K_kstore)
            GC_TRY(check_dealt_access(v, turn, column, &place));
    }
    v->at = 0;
    CHECK_OP(v, place, "dealt: no row is read");
    return GRAPHC_OK;
}

graphc_status kir_verify(const Kernel *k, ExprPool *p, DiagSink *d) {
    Verify v = {.k = k, .p = p, .d = d, .domains = calloc((size_t)k->nops + 1, sizeof(uint32_t))};
    if (!v.domains) arena_out_of_memory(k->nops * sizeof(uint32_t));
    graphc_status s = check_axes(&v);
    if (s == GRAPHC_OK) s = check_more(&v);
    if (s == GRAPHC_OK) s = check_turns(&v);
    /* Operand order first: domains are only meaningful with it. */
    for (v.at = 1; s == GRAPHC_OK && v.at < k->nops; v.at++)
        for (int i = 0; i < 3; i++)
            if (k->ops[v.at].in[i] >= v.at) s = broken(&v, "an operand does not precede its use");
    if (s == GRAPHC_OK) kir_domains(k, p, v.domains);
    for (v.at = 1; s == GRAPHC_OK && v.at < k->nops; v.at++) s = check_op(&v);
    v.at = 0;
    if (s == GRAPHC_OK && k->tem == TEM_dot) s = check_dot(&v);
    if (s == GRAPHC_OK && k->tem == TEM_attention) s = check_attention(&v);
    if (s == GRAPHC_OK && k->tem == TEM_dealt) s = check_dealt(&v);
    bool gradient = k->tem == TEM_attention_gradient || k->tem == TEM_attention_gradients;
    if (s == GRAPHC_OK && gradient) s = check_gradient(&v);
    free(v.domains);
    return s;
}
