/* post-fusion.kir: buffers, kernels in launch order, refused fusions. */
#include "fusion/schedule/schedule.h"

static const char *const buf_kind[] = {"input", "output", "const", "prepared", "temp", "state"};

static void print_buffer(const Schedule *s, uint32_t i, StrBuf *out) {
    const SBuffer *b = &s->buffers.v[i];
    sb_printf(out, "buffer %u  %s %s[", i, buf_kind[b->kind], dtype_name(b->dtype));
    expr_print(s->exprs, b->numel, out);
    sb_put(out, "]");
    if (b->kind <= BUF_output || b->kind == BUF_state) sb_printf(out, " %u", b->index);
    if (b->node) sb_printf(out, "  %%%u", b->node);
    if (b->alias) {
        sb_printf(out, "  in buffer %u at ", b->alias - 1);
        expr_print(s->exprs, b->alias_offset, out);
    }
    if (b->kind == BUF_temp) sb_printf(out, "  steps %u..%u", b->first, b->last);
    sb_put(out, "\n");
}

static void print_step(const Schedule *s, uint32_t i, StrBuf *out) {
    static const char *const names[] = {"kernel", "loop", "end loop", "if", "else", "end if"};
    const SStep *t = &s->steps.v[i];
    if (t->kind != STEP_kernel) {
        sb_printf(out, "# step %u: %s", i, names[t->kind]);
        if (t->cond_buf) sb_printf(out, " while buffer %u", t->cond_buf - 1);
        if (t->trip_buf) sb_printf(out, " times buffer %u", t->trip_buf - 1);
        if (t->trip) {
            sb_put(out, " times ");
            expr_print(s->exprs, t->trip, out);
        }
        sb_put(out, "\n");
        return;
    }
    sb_printf(out, "# step %u%s: buffers", i, t->prepare ? " (prepare)" : "");
    for (uint32_t k = 0; k < t->kernel->nparams; k++) sb_printf(out, " %u", t->bufs[k]);
    sb_put(out, "; reads ");
    expr_print(s->exprs, t->kernel->bytes_read, out);
    sb_put(out, " B, writes ");
    expr_print(s->exprs, t->kernel->bytes_written, out);
    sb_put(out, " B, ");
    expr_print(s->exprs, t->kernel->flops, out);
    sb_put(out, " flops\n");
    kir_print(t->kernel, s->exprs, out);
}

void schedule_print(const Schedule *s, StrBuf *out) {
    for (uint32_t i = 0; i < s->buffers.n; i++) print_buffer(s, i, out);
    for (uint32_t i = 0; i < s->steps.n; i++) print_step(s, i, out);
    for (uint32_t i = 0; i < s->refusals.n; i++) {
        const Refusal *r = &s->refusals.v[i];
        sb_printf(out, "# not fused: %s and %s: %s (", s->steps.v[r->producer].kernel->name,
                  s->steps.v[r->consumer].kernel->name, fusion_why_text[r->why]);
        expr_print(s->exprs, r->bytes, out);
        sb_put(out, " B)\n");
    }
}
