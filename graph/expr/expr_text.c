/* Expressions as text, both ways. Names that are not identifiers (ONNX allows any) are quoted. */
#include "graph/expr/expr_impl.h"
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

enum { PREC_CMP = 1, PREC_ADD, PREC_MUL, PREC_ATOM };

static bool is_name_start(char c) {
    return isalpha((unsigned char)c) || c == '_';
}
static bool is_name_char(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '.';
}

static bool is_identifier(const char *s) {
    if (!is_name_start(*s)) return false;
    while (is_name_char(*s)) s++;
    return !*s;
}

static void print_name(const char *s, StrBuf *out) {
    if (is_identifier(s)) {
        sb_put(out, s);
        return;
    }
    sb_put(out, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') sb_put(out, "\\");
        sb_putn(out, s, 1);
    }
    sb_put(out, "\"");
}

static void print(const ExprPool *p, Expr e, int prec, StrBuf *out);

/* One term of a sum with its sign; first: no leading plus. */
static void print_term(const ExprPool *p, Expr e, bool first, StrBuf *out) {
    const ExprNode *n = expr_node(p, e);
    Expr factor = n->op == EX_mul ? n->arg[1] : e;
    int64_t c = expr_op(p, factor) == EX_const ? expr_value(p, factor) : 0;
    bool minus = c < 0 && c != INT64_MIN;
    sb_put(out, first ? minus ? "-" : "" : minus ? " - " : " + ");
    if (!minus)
        print(p, e, PREC_MUL, out);
    else if (n->op == EX_const)
        sb_printf(out, "%" PRId64, -c);
    else {
        print(p, n->arg[0], PREC_MUL, out);
        if (c != -1) sb_printf(out, "*%" PRId64, -c);
    }
}

static void print_sum(const ExprPool *p, Expr e, StrBuf *out) {
    bool add = expr_op(p, e) == EX_add;
    if (add) print_sum(p, expr_arg(p, e, 0), out);
    print_term(p, add ? expr_arg(p, e, 1) : e, !add, out);
}

static void print_call(const ExprPool *p, const ExprNode *n, const char *name, int nargs,
                       StrBuf *out) {
    sb_put(out, name);
    for (int i = 0; i < nargs; i++) {
        sb_put(out, i ? ", " : "(");
        print(p, n->arg[i], 0, out);
    }
    sb_put(out, ")");
}

static void print_infix(const ExprPool *p, const ExprNode *n, const char *op, int prec,
                        StrBuf *out) {
    print(p, n->arg[0], prec, out);
    sb_put(out, op);
    print(p, n->arg[1], prec + 1, out);
}

static int precedence(const ExprPool *p, Expr e) {
    const ExprNode *n = expr_node(p, e);
    switch ((ExprOp)n->op) {
    case EX_lt:
    case EX_eq: return PREC_CMP;
    case EX_add: return PREC_ADD;
    case EX_mul:
        if (expr_op(p, n->arg[1]) == EX_const && expr_value(p, n->arg[1]) < 0) return PREC_ADD;
        return PREC_MUL;
    case EX_div:
    case EX_mod: return PREC_MUL;
    case EX_const: return n->value < 0 ? PREC_ADD : PREC_ATOM;
    default: return PREC_ATOM;
    }
}

static void print_node(const ExprPool *p, Expr e, StrBuf *out) {
    const ExprNode *n = expr_node(p, e);
    switch ((ExprOp)n->op) {
    case EX_const: sb_printf(out, "%" PRId64, n->value); break;
    case EX_sym: print_name(p->sym.v[n->arg[0]]->info.name, out); break;
    case EX_add: print_sum(p, e, out); break;
    case EX_mul: print_infix(p, n, "*", PREC_MUL, out); break;
    case EX_div: print_infix(p, n, "/", PREC_MUL, out); break;
    case EX_mod: print_infix(p, n, " % ", PREC_MUL, out); break;
    case EX_lt: print_infix(p, n, " < ", PREC_ADD, out); break;
    case EX_eq: print_infix(p, n, " == ", PREC_ADD, out); break;
    case EX_min: print_call(p, n, "min", 2, out); break;
    case EX_max: print_call(p, n, "max", 2, out); break;
    case EX_select: print_call(p, n, "select", 3, out); break;
    case EX_COUNT: break;
    }
}

static void print(const ExprPool *p, Expr e, int prec, StrBuf *out) {
    int own = precedence(p, e);
    bool negative = own == PREC_ADD && expr_op(p, e) == EX_mul;
    if (own < prec) sb_put(out, "(");
    if (negative)
        print_term(p, e, true, out);
    else
        print_node(p, e, out);
    if (own < prec) sb_put(out, ")");
}

void expr_print(const ExprPool *p, Expr e, StrBuf *out) {
    if (e)
        print(p, e, 0, out);
    else
        sb_put(out, "_");
}

/* Reading: a descent over the same precedences. `at` stays where it failed. */

typedef struct Parser {
    ExprPool *p;
    const char *at;
    int depth;
} Parser;

enum { MAX_DEPTH = 200 };

static Expr parse_cmp(Parser *q);

static void skip_space(Parser *q) {
    while (*q->at == ' ' || *q->at == '\t') q->at++;
}

static bool eat(Parser *q, const char *text) {
    skip_space(q);
    size_t n = strlen(text);
    if (strncmp(q->at, text, n)) return false;
    q->at += n;
    return true;
}

static Expr find_sym(ExprPool *p, const char *name, size_t n) {
    const ExprSym *s = expr_find_sym(p, arena_strndup(p->arena, name, n));
    return s ? s->ref : 0;
}

static Expr parse_number(Parser *q) {
    uint64_t v = 0;
    const char *start = q->at;
    for (; isdigit((unsigned char)*q->at); q->at++) {
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*q->at - '0'), &v) ||
            v > (uint64_t)INT64_MAX + 1) {
            q->at = start;
            return 0;
        }
    }
    return expr_const(q->p, (int64_t)v);
}

static Expr parse_call(Parser *q, ExprOp op, int nargs) {
    Expr a[3] = {0, 0, 0};
    for (int i = 0; i < nargs; i++) {
        if (!eat(q, i ? "," : "(") || !(a[i] = parse_cmp(q))) return 0;
    }
    return eat(q, ")") ? expr_rebuild(q->p, op, a[0], a[1], a[2]) : 0;
}

static Expr parse_word(Parser *q) {
    const char *start = q->at;
    size_t n = 0;
    while (is_name_char(start[n])) n++;
    static const struct {
        const char *name;
        ExprOp op;
        int nargs;
    } fn[] = {{"min", EX_min, 2}, {"max", EX_max, 2}, {"select", EX_select, 3}};
    for (size_t i = 0; i < sizeof fn / sizeof *fn; i++) {
        if (strlen(fn[i].name) != n || strncmp(fn[i].name, start, n) || start[n] != '(') continue;
        q->at += n;
        return parse_call(q, fn[i].op, fn[i].nargs);
    }
    Expr e = find_sym(q->p, start, n);
    if (e) q->at += n;
    return e;
}

static Expr parse_quoted(Parser *q) {
    char name[256];
    size_t n = 0;
    const char *s = q->at + 1;
    for (; *s && *s != '"' && n + 1 < sizeof name; s++) {
        if (*s == '\\' && s[1]) s++;
        name[n++] = *s;
    }
    if (*s != '"') return 0;
    name[n] = 0;
    Expr e = find_sym(q->p, name, n);
    if (e) q->at = s + 1;
    return e;
}

static Expr parse_atom(Parser *q) {
    skip_space(q);
    if (isdigit((unsigned char)*q->at)) return parse_number(q);
    if (is_name_start(*q->at)) return parse_word(q);
    if (*q->at == '"') return parse_quoted(q);
    if (!eat(q, "(")) return 0;
    Expr e = parse_cmp(q);
    return e && eat(q, ")") ? e : 0;
}

static Expr parse_mul(Parser *q) {
    Expr e = parse_atom(q);
    while (e) {
        ExprOp op = eat(q, "*") ? EX_mul : eat(q, "/") ? EX_div : eat(q, "%") ? EX_mod : EX_COUNT;
        if (op == EX_COUNT) break;
        Expr b = parse_atom(q);
        e = b ? expr_rebuild(q->p, op, e, b, 0) : 0;
    }
    return e;
}

static Expr parse_add(Parser *q) {
    bool minus = eat(q, "-");
    Expr e = parse_mul(q);
    if (e && minus) e = expr_muli(q->p, e, -1);
    while (e) {
        minus = eat(q, "-");
        if (!minus && !eat(q, "+")) break;
        Expr b = parse_mul(q);
        e = !b ? 0 : minus ? expr_sub(q->p, e, b) : expr_add(q->p, e, b);
    }
    return e;
}

static Expr parse_cmp(Parser *q) {
    if (q->depth == MAX_DEPTH) return 0;
    q->depth++;
    Expr e = parse_add(q);
    bool lt = e && eat(q, "<"), eq = e && !lt && eat(q, "==");
    if (lt || eq) {
        Expr b = parse_add(q);
        e = !b ? 0 : lt ? expr_lt(q->p, e, b) : expr_eq(q->p, e, b);
    }
    q->depth--;
    return e;
}

const char *expr_brief(const ExprPool *p, Expr e, Arena *a) {
    enum { BRIEF = 64 };
    StrBuf s;
    if (expr_size(p, e) > EXPR_MAX_SIZE) return "(a long formula)";
    sb_init(&s, a);
    expr_print(p, e, &s);
    if (s.n <= BRIEF) return sb_str(&s);
    return arena_printf(a, "%.*s...", BRIEF, sb_str(&s));
}

Expr expr_parse(ExprPool *p, const char *text, const char **end) {
    Parser q = {p, text, 0};
    Expr e = parse_cmp(&q);
    if (end) *end = q.at;
    return e;
}
