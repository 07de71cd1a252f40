/* Kernels as text, one fact a line; kir_parse.c reads it back.
 *
 *   kernel tem_5_matmul tem dot  m=batch*64 n=768 ~k=768       ~ marks reduced axes
 *     param 0 f32[batch*49152]
 *     param 2 f32[batch*49152] written
 *     %1 f32 load p0[768*m + k] if [m < 7] else %2
 *     %4 f32 reduce sum k %3
 *     %5 f32 store p2[768*m + n] %4
 *     dot batch - m m n n k k acc %4 a %1 b %2 pack 0
 *     cost reads [4*batch] writes [8] flops [100]
 *   end */
#include "fusion/kir/kir_internal.h"

static void print_axes(const Kernel *k, ExprPool *p, uint32_t axes, StrBuf *out) {
    const char *sep = "";
    for (uint32_t i = 0; i < k->naxes; i++) {
        if (!(axes >> i & 1)) continue;
        sb_printf(out, "%s%s", sep, expr_sym_info(p, k->axes[i].sym)->name);
        sep = ",";
    }
    if (!axes) sb_put(out, "-");
}

static void print_bracketed(ExprPool *p, Expr e, StrBuf *out) {
    sb_put(out, "[");
    if (e) expr_print(p, e, out);
    sb_put(out, "]");
}

static void print_place(ExprPool *p, const KOp *o, StrBuf *out) {
    sb_printf(out, " p%u", o->buf);
    print_bracketed(p, o->index, out);
}

static void print_mask(ExprPool *p, const KOp *o, StrBuf *out) {
    if (!o->mask) return;
    sb_put(out, " if ");
    print_bracketed(p, o->mask, out);
}

static void print_konst(const KOp *o, StrBuf *out) {
    if (dtype_is_float((DType)o->dtype))
        sb_printf(out, " %.17g", o->imm.f);
    else
        sb_printf(out, " %lld", (long long)o->imm.i);
}

static void print_folding(const Kernel *k, ExprPool *p, const KOp *o, StrBuf *out) {
    if (o->op == K_kreduce || o->op == K_kscan) sb_printf(out, " %s", kir_fold_name[o->fold]);
    sb_put(out, " ");
    print_axes(k, p, o->axes, out);
    sb_printf(out, " %%%u", o->in[0]);
    if (o->imm.i & 1) sb_put(out, " exclusive");
    if (o->imm.i & 2) sb_put(out, " reverse");
    if (o->imm.i >> 2) sb_printf(out, " first %lld", (long long)(o->imm.i >> 2));
    if (o->op == K_kcompact)
        sb_printf(out, " p%u count %s", o->buf, expr_sym_info(p, o->sym)->name);
}

static void print_operands(const KOp *o, StrBuf *out) {
    for (uint32_t i = 0; i < kir_op_arity(o->op); i++)
        sb_printf(out, "%s %%%u", i ? "," : "", o->in[i]);
    if (o->imm.i) sb_printf(out, " imm %lld", (long long)o->imm.i);
}

static void print_op(const Kernel *k, ExprPool *p, KVal v, StrBuf *out) {
    const KOp *o = &k->ops[v];
    sb_printf(out, "  %%%u %s %s", v, dtype_name((DType)o->dtype), kir_op_name(o->op));
    switch (o->op) {
    case K_konst: print_konst(o, out); break;
    case K_kexpr:
        sb_put(out, " ");
        print_bracketed(p, o->index, out);
        break;
    case K_kload:
        print_place(p, o, out);
        print_mask(p, o, out);
        if (o->in[0]) sb_printf(out, " else %%%u", o->in[0]);
        break;
    case K_kstore:
    case K_katomic:
        if (o->op == K_katomic) sb_printf(out, " %s", scatter_mode_name[o->fold]);
        print_place(p, o, out);
        sb_printf(out, " %%%u", o->in[0]);
        print_mask(p, o, out);
        break;
    case K_kbind: sb_printf(out, " %s %%%u", expr_sym_info(p, o->sym)->name, o->in[0]); break;
    case K_kreduce:
    case K_kscan:
    case K_ksort:
    case K_kcompact: print_folding(k, p, o, out); break;
    default: print_operands(o, out);
    }
    if (o->node) sb_printf(out, " @%u", o->node);
    sb_put(out, "\n");
}

static void print_role(const Kernel *k, ExprPool *p, const KRole *r, uint32_t i, StrBuf *out) {
    uint32_t v = kir_role_get(k, r, i);
    if (kir_role_is_optional(r) && !v) return;
    sb_printf(out, " %s", r->name);
    if (r->kind == KR_FLAG) return;
    sb_put(out, " ");
    switch ((KRoleKind)r->kind) {
    case KR_AXES: print_axes(k, p, v, out); break;
    case KR_PARAM: sb_printf(out, "p%u", v - 1); break;
    case KR_NUMBER:
    case KR_COUNT: sb_printf(out, "%u", v); break;
    case KR_EXPR: print_bracketed(p, v, out); break;
    default: sb_printf(out, "%%%u", v);
    }
}

/* What each accumulator has stands together, behind the rest. */
static void print_roles(const Kernel *k, ExprPool *p, StrBuf *out) {
    uint32_t n;
    const KRole *r = kir_roles(k->tem, &n);
    if (!n) return;
    sb_printf(out, "  %s", kir_tem_name[k->tem]);
    for (uint32_t j = 0; j < n; j++)
        if (r[j].kind != KR_EACH) print_role(k, p, &r[j], 0, out);
    for (uint32_t i = 0; i < K_MAX_ACC; i++)
        for (uint32_t j = 0; j < n; j++)
            if (r[j].kind == KR_EACH && i < kir_role_count(k, &r[j]))
                print_role(k, p, &r[j], i, out);
    sb_put(out, "\n");
}

void kir_print(const Kernel *k, ExprPool *p, StrBuf *out) {
    sb_printf(out, "kernel %s %s", k->name ? k->name : "kernel", kir_kind_name[k->kind]);
    if (k->tem != TEM_none) sb_printf(out, " %s", kir_tem_name[k->tem]);
    if (k->serial) sb_put(out, " serial");
    if (k->more) sb_printf(out, " more %u", k->more);
    if (k->turns) {
        sb_printf(out, " turns %s=", expr_sym_info(p, k->turn)->name);
        expr_print(p, k->turns, out);
    }
    sb_put(out, " ");
    for (uint32_t i = 0; i < k->naxes; i++) {
        sb_printf(out, " %s%s=", k->axes[i].kind == AX_RED ? "~" : "",
                  expr_sym_info(p, k->axes[i].sym)->name);
        expr_print(p, k->axes[i].extent, out);
    }
    sb_put(out, "\n");
    for (uint32_t i = 0; i < k->nparams; i++) {
        sb_printf(out, "  param %u %s", i, dtype_name(k->params[i].dtype));
        print_bracketed(p, k->params[i].numel, out);
        sb_put(out, k->params[i].written ? " written\n" : "\n");
    }
    for (KVal v = 1; v < k->nops; v++) print_op(k, p, v, out);
    print_roles(k, p, out);
    sb_put(out, "  cost reads ");
    print_bracketed(p, k->bytes_read, out);
    sb_put(out, " writes ");
    print_bracketed(p, k->bytes_written, out);
    sb_put(out, " flops ");
    print_bracketed(p, k->flops, out);
    sb_put(out, "\nend\n");
}
