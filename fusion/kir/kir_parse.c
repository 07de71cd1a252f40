/* Reads the text of kir_print.c. Dimension symbols must exist in the pool; axes and indirect
 * symbols are found there by name or made. */
#include "fusion/kir/kir_internal.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct Parser {
    Arena *a;
    ExprPool *p;
    const char *at;
    const char *wrong; /* first thing that was not as expected */
    Kernel *k;
    VEC(KAxis) axes;
    VEC(KParam) params;
    VEC(KOp) ops;
} Parser;

static void fail(Parser *s, const char *expected) {
    if (!s->wrong) s->wrong = expected;
}

static void skip(Parser *s) {
    while (isspace((unsigned char)*s->at) || *s->at == '#')
        if (*s->at == '#')
            s->at += strcspn(s->at, "\n");
        else
            s->at++;
}

static size_t word_length(const char *at) {
    size_t n = 0;
    while (isalnum((unsigned char)at[n]) || at[n] == '_' || at[n] == '.' || at[n] == ':') n++;
    return n;
}

/* Takes `text` (a word or punctuation) if it is next. */
static bool accept(Parser *s, const char *text) {
    const char *was = s->at;
    skip(s);
    size_t n = strlen(text), w = word_length(s->at);
    if (strncmp(s->at, text, n) || (w && w != n)) {
        s->at = was;
        return false;
    }
    s->at += n;
    return true;
}

static void expect(Parser *s, const char *text) {
    if (!accept(s, text)) fail(s, text);
}

static const char *take_word(Parser *s) {
    skip(s);
    size_t n = word_length(s->at);
    if (!n) fail(s, "a name");
    const char *w = arena_strndup(s->a, s->at, n);
    s->at += n;
    return w;
}

static uint32_t take_name_of(Parser *s, const char *const *names, uint32_t n, const char *what) {
    const char *w = take_word(s);
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(names[i], w)) return i;
    fail(s, what);
    return 0;
}

static int64_t take_int(Parser *s) {
    char *end;
    skip(s);
    long long v = strtoll(s->at, &end, 10);
    if (end == s->at) fail(s, "a number");
    s->at = end;
    return v;
}

static DType take_dtype(Parser *s) {
    DType t = DT_none;
    if (!dtype_from_name(take_word(s), &t)) fail(s, "an element type");
    return t;
}

static KVal take_val(Parser *s) {
    expect(s, "%");
    return (KVal)take_int(s);
}

static Expr take_expr(Parser *s) {
    const char *end = s->at;
    Expr e = expr_parse(s->p, s->at, &end);
    if (!e) fail(s, "an expression over known symbols");
    s->at = end;
    return e;
}

/* [expression], or [] for none. */
static Expr take_bracketed(Parser *s) {
    expect(s, "[");
    if (accept(s, "]")) return 0;
    skip(s);
    Expr e = take_expr(s);
    expect(s, "]");
    return e;
}

/* The symbol of that name and kind, made if there is none. */
static uint32_t named_sym(Parser *s, const char *name, SymKind kind) {
    uint32_t n = expr_sym_count(s->p);
    for (uint32_t i = 0; i < n; i++) {
        const SymInfo *info = expr_sym_info(s->p, i);
        if (info->kind == kind && !strcmp(info->name, name)) return i;
    }
    SymInfo info = {.name = name, .kind = kind, .lo = 0, .hi = INT64_MAX};
    (void)expr_sym_new(s->p, info);
    return n;
}

static uint32_t take_axes(Parser *s) {
    uint32_t axes = 0;
    if (accept(s, "-")) return 0;
    do {
        const char *w = take_word(s);
        uint32_t i = 0;
        while (i < s->axes.n && strcmp(expr_sym_info(s->p, s->axes.v[i].sym)->name, w)) i++;
        if (i == s->axes.n)
            fail(s, "an axis of this kernel");
        else
            axes |= 1u << i;
    } while (accept(s, ","));
    return axes;
}

static uint32_t take_param(Parser *s) {
    skip(s);
    if (*s->at == 'p')
        s->at++;
    else
        fail(s, "a parameter");
    return (uint32_t)take_int(s);
}

static void take_place(Parser *s, KOp *o) {
    o->buf = take_param(s);
    o->index = take_bracketed(s);
}

static void take_folding(Parser *s, KOp *o) {
    if (o->op == K_kreduce || o->op == K_kscan)
        o->fold = (uint8_t)take_name_of(s, kir_fold_name, FOLD_COUNT, "a fold");
    o->axes = take_axes(s);
    o->in[0] = take_val(s);
    if (accept(s, "exclusive")) o->imm.i |= 1;
    if (accept(s, "reverse")) o->imm.i |= 2;
    if (o->op == K_ksort && accept(s, "first")) o->imm.i |= take_int(s) << 2;
    if (o->op != K_kcompact) return;
    o->buf = take_param(s);
    expect(s, "count");
    o->sym = named_sym(s, take_word(s), SYM_DATA);
}

static void take_konst(Parser *s, KOp *o) {
    char *end;
    skip(s);
    if (dtype_is_float((DType)o->dtype))
        o->imm.f = strtod(s->at, &end);
    else
        o->imm.i = strtoll(s->at, &end, 10);
    if (end == s->at) fail(s, "a number");
    s->at = end;
}

static uint16_t take_opcode(Parser *s) {
    const char *w = take_word(s);
    for (uint32_t op = K_first + 1; op < K_COUNT; op++)
        if (!strcmp(kir_op_name(op), w)) return (uint16_t)op;
    for (uint32_t op = 1; op < OP_COUNT; op++)
        if (op_info[op].cls == OPC_MAP && !strcmp(kir_op_name(op), w)) return (uint16_t)op;
    fail(s, "an op");
    return OP_none;
}

static void take_operands(Parser *s, KOp *o) {
    for (uint32_t i = 0; i < kir_op_arity(o->op); i++) {
        if (i) expect(s, ",");
        o->in[i] = take_val(s);
    }
    if (accept(s, "imm")) o->imm.i = take_int(s);
}

static void take_body(Parser *s, KOp *o) {
    switch (o->op) {
    case K_konst: take_konst(s, o); break;
    case K_kexpr: o->index = take_bracketed(s); break;
    case K_kload:
        take_place(s, o);
        if (accept(s, "if")) o->mask = take_bracketed(s);
        if (accept(s, "else")) o->in[0] = take_val(s);
        break;
    case K_kstore:
    case K_katomic:
        if (o->op == K_katomic)
            o->fold =
                (uint8_t)take_name_of(s, scatter_mode_name, SCATTER_max + 1, "a scatter mode");
        take_place(s, o);
        o->in[0] = take_val(s);
        if (accept(s, "if")) o->mask = take_bracketed(s);
        break;
    case K_kbind:
        o->sym = named_sym(s, take_word(s), SYM_INDIRECT);
        o->in[0] = take_val(s);
        break;
    case K_kreduce:
    case K_kscan:
    case K_ksort:
    case K_kcompact: take_folding(s, o); break;
    default: take_operands(s, o);
    }
}

static void take_op(Parser *s) {
    if (take_int(s) != (int64_t)s->ops.n) fail(s, "values numbered in order");
    KOp o = {.dtype = (uint8_t)take_dtype(s)};
    o.op = take_opcode(s);
    take_body(s, &o);
    if (accept(s, "@")) o.node = (Value)take_int(s);
    vec_push(s->a, &s->ops, o);
}

/* What follows the name of a role. */
static void take_role(Parser *s, const KRole *r, uint32_t i) {
    uint32_t v = 1;
    switch ((KRoleKind)r->kind) {
    case KR_AXES: v = take_axes(s); break;
    case KR_VALUE:
    case KR_EACH: v = take_val(s); break;
    case KR_PARAM: v = 1 + take_param(s); break;
    case KR_NUMBER:
    case KR_COUNT: v = (uint32_t)take_int(s); break;
    case KR_EXPR: v = take_bracketed(s); break;
    case KR_FLAG: break;
    }
    kir_role_set(s->k, r, i, v);
}

static void take_roles(Parser *s) {
    uint32_t n, first = 0;
    const KRole *r = kir_roles(s->k->tem, &n);
    for (uint32_t j = 0; j < n; j++) {
        const bool optional = kir_role_is_optional(&r[j]);
        if (r[j].kind == KR_EACH) continue;
        if (optional && !accept(s, r[j].name)) continue;
        if (!optional) expect(s, r[j].name);
        take_role(s, &r[j], 0);
    }
    while (first < n && r[first].kind != KR_EACH) first++;
    while (first < n && s->k->dot.nacc < K_MAX_ACC && accept(s, r[first].name)) {
        uint32_t i = s->k->dot.nacc++;
        for (uint32_t j = first; j < n; j++) {
            if (r[j].kind != KR_EACH) continue;
            if (j > first) expect(s, r[j].name);
            take_role(s, &r[j], i);
        }
    }
}

static void take_header(Parser *s) {
    expect(s, "kernel");
    s->k->name = take_word(s);
    s->k->kind = (KKind)take_name_of(s, kir_kind_name, KERNEL_tem + 1, "a kind");
    if (s->k->kind == KERNEL_tem)
        s->k->tem = (KTem)take_name_of(s, kir_tem_name, TEM_COUNT, "a template");
    else if (accept(s, kir_tem_name[TEM_dealt]))
        s->k->tem = TEM_dealt;
    s->k->serial = accept(s, "serial");
    if (accept(s, "more")) s->k->more = (uint32_t)take_int(s);
    if (accept(s, "turns")) {
        s->k->turn = named_sym(s, take_word(s), SYM_ITER);
        expect(s, "=");
        s->k->turns = take_expr(s);
    }
    while (!s->wrong && s->at[strspn(s->at, " ")] != '\n') {
        KAxis axis = {.kind = accept(s, "~") ? AX_RED : AX_PAR};
        axis.sym = named_sym(s, take_word(s), SYM_AXIS);
        expect(s, "=");
        axis.extent = take_expr(s);
        vec_push(s->a, &s->axes, axis);
        if (s->axes.n > K_MAX_AXES) fail(s, "fewer axes");
    }
}

static void take_line(Parser *s) {
    if (accept(s, "param")) {
        if (take_int(s) != (int64_t)s->params.n) fail(s, "parameters numbered in order");
        KParam q = {.dtype = take_dtype(s)};
        q.numel = take_bracketed(s);
        q.written = accept(s, "written");
        vec_push(s->a, &s->params, q);
    } else if (accept(s, "%")) {
        take_op(s);
    } else if (s->k->tem != TEM_none && accept(s, kir_tem_name[s->k->tem])) {
        take_roles(s);
    } else if (accept(s, "cost")) {
        expect(s, "reads");
        s->k->bytes_read = take_bracketed(s);
        expect(s, "writes");
        s->k->bytes_written = take_bracketed(s);
        expect(s, "flops");
        s->k->flops = take_bracketed(s);
    } else {
        fail(s, "param, %, the template, cost or end");
    }
}

Kernel *kir_parse(Arena *a, ExprPool *p, DiagSink *d, const char *text, const char **end) {
    Parser s = {.a = a, .p = p, .at = text, .k = ARENA_NEW(a, Kernel)};
    vec_push(a, &s.ops, (KOp){0});
    take_header(&s);
    while (!s.wrong && !accept(&s, "end")) take_line(&s);
    if (end) *end = s.at;
    if (s.wrong) {
        int line = 1;
        for (const char *c = text; c < s.at; c++) line += *c == '\n';
        diag(d, D_TEXT, s.k->name ? s.k->name : "kernel", "line %d: expected %s before \"%.20s\"",
             line, s.wrong, s.at);
        return NULL;
    }
    s.k->naxes = s.axes.n;
    s.k->axes = s.axes.v;
    s.k->nparams = s.params.n;
    s.k->params = s.params.v;
    s.k->nops = s.ops.n;
    s.k->ops = s.ops.v;
    return s.k;
}
