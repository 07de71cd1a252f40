#include "runtime/plan.h"

#define INLINE_DEPTH 6 /* deeper operands print as slot numbers, so that text stays bounded */

typedef struct Printer {
    const Plan *p;
    StrBuf *out;
    const PlanBuffer *buffers;
    const PlanKernel *kernels;
} Printer;

const char *plan_form_name(PlanForm f) {
    static const char *const names[PLAN_FORMS] = {
        "x86-64-v3",     "x86-64-v4", "x86-64-v4+vnni", "x86-64-v4+bf16",
        "x86-64-v4+amx", "ptx",       "cubin"};
    return names[f];
}

static const char *const expr_text[] = {
#define X(name, arity, text) text,
    PLAN_EXPRS(X)
#undef X
};

static void put_slot(const Printer *w, PlanSlot s, int depth, bool top) {
    const PlanExpr *e = &w->p->exprs[s];
    if (e->op == PLAN_EX_const) {
        sb_printf(w->out, "%lld", (long long)e->value);
    } else if (e->op == PLAN_EX_sym) {
        sb_put(w->out, plan_str(w->p, w->p->symbols[e->arg[0]].name));
    } else if (depth == 0) {
        sb_printf(w->out, "s%u", s);
    } else if (e->op <= PLAN_EX_mod || e->op == PLAN_EX_lt || e->op == PLAN_EX_eq) {
        if (!top) sb_put(w->out, "(");
        put_slot(w, e->arg[0], depth - 1, false);
        sb_printf(w->out, " %s ", expr_text[e->op]);
        put_slot(w, e->arg[1], depth - 1, false);
        if (!top) sb_put(w->out, ")");
    } else {
        sb_printf(w->out, "%s(", expr_text[e->op]);
        for (int i = 0; i < (e->op == PLAN_EX_select ? 3 : 2); i++) {
            if (i) sb_put(w->out, ", ");
            put_slot(w, e->arg[i], depth - 1, true);
        }
        sb_put(w->out, ")");
    }
}

static void put_expr(const Printer *w, PlanSlot s) {
    put_slot(w, s, INLINE_DEPTH, true);
}

static void put_field(const Printer *w, const char *name, PlanSlot s) {
    if (!s) return;
    sb_printf(w->out, "  %s ", name);
    put_expr(w, s);
}

static const char *dtype_text(uint32_t code) {
    return dtype_name(plan_dtype(code));
}

static void put_symbols(const Printer *w) {
    static const char *const kinds[] = {"dim", "elem", "held", "data", "iter"};
    for (uint64_t i = 0; i < w->p->nsymbols; i++) {
        const PlanSymbol *s = &w->p->symbols[i];
        sb_printf(w->out, "symbol %s  %s", plan_str(w->p, s->name), kinds[s->kind]);
        if (s->kind == PLAN_SYM_dim || s->kind == PLAN_SYM_elem)
            sb_printf(w->out, " %u of input %s", s->b, plan_input_name(w->p, s->a));
        if (s->kind == PLAN_SYM_state)
            sb_printf(w->out, " %u of state %s", s->b, plan_state_name(w->p, s->a));
        sb_printf(w->out, "  in %lld..%lld", (long long)s->lo, (long long)s->hi);
        if (s->hint) sb_printf(w->out, "  typical %lld", (long long)s->hint);
        sb_put(w->out, "\n");
    }
}

static void put_shape(const Printer *w, const char *what, const PlanIo *v) {
    sb_printf(w->out, "%s %s  %s[", what, plan_str(w->p, v->name), dtype_text(v->dtype));
    for (uint32_t k = 0; k < v->rank; k++)
        sb_printf(w->out, "%s%s", k ? ", " : "", plan_str(w->p, w->p->lists[v->dim_text + k]));
    sb_put(w->out, "]");
}

static void put_io(const Printer *w, const char *what, const PlanIo *v, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        put_shape(w, what, &v[i]);
        sb_put(w->out, "\n");
    }
}

static const char *role_text(uint32_t role) {
    static const char *const roles[] = {"state", "parameter", "moment", "gradient", "buffer"};
    return roles[role];
}

static void put_states(const Printer *w) {
    for (uint64_t i = 0; i < w->p->nstates; i++) {
        const PlanState *s = &w->p->states[i];
        put_shape(w, role_text(s->role), &s->io);
        if (s->of) sb_printf(w->out, "  of %s", plan_state_name(w->p, s->of - 1));
        if (s->spread > 0) sb_printf(w->out, "  drawn within %g", (double)s->spread);
        put_field(w, "room for", w->p->states[i].room);
        put_field(w, "then", w->p->states[i].next);
        if (w->p->states[i].initial)
            sb_printf(w->out, "  starts as c%u\n", w->p->states[i].initial - 1);
        else
            sb_put(w->out, "  starts as zeros\n");
    }
}

static void put_names(const Printer *w, const char *what,
                      const char *(*name)(const Plan *p, uint64_t i), PlanList list, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        sb_printf(w->out, "%s%s", i ? ", " : what, name(w->p, w->p->lists[list + i]));
}

static void put_entries(const Printer *w) {
    for (uint64_t i = 0; i < w->p->nentries; i++) {
        const PlanEntry *e = &w->p->entries[i];
        sb_printf(w->out, "entry %s", plan_str(w->p, e->name));
        put_names(w, "  takes ", plan_input_name, e->inputs, e->ninputs);
        put_names(w, "  gives ", plan_output_name, e->outputs, e->noutputs);
        put_names(w, "  writes ", plan_state_name, e->states, e->nstates);
        sb_put(w->out, "\n");
    }
}

static void put_notes(const Printer *w) {
    for (uint64_t i = 0; i < w->p->nnotes; i++)
        sb_printf(w->out, "note %s  %s\n", plan_str(w->p, w->p->notes[i].key),
                  plan_str(w->p, w->p->notes[i].text));
}

static void put_checks(const Printer *w) {
    for (uint64_t i = 0; i < w->p->nchecks; i++) {
        sb_put(w->out, "check ");
        put_expr(w, w->p->checks[i].a);
        sb_put(w->out, " == ");
        put_expr(w, w->p->checks[i].b);
        sb_printf(w->out, "  # %s\n", plan_str(w->p, w->p->checks[i].text));
    }
}

static void put_constants(const Printer *w) {
    for (uint64_t i = 0; i < w->p->nconstants; i++) {
        const PlanConstant *k = &w->p->constants[i];
        sb_printf(w->out, "constant c%llu  %llu bytes", (unsigned long long)i,
                  (unsigned long long)k->length);
        if (k->source == PLAN_external)
            sb_printf(w->out, "  in %s of %llu bytes at %llu", plan_str(w->p, k->file),
                      (unsigned long long)k->file_size, (unsigned long long)k->offset);
        sb_printf(w->out, "  hash %016llx  # %s\n", (unsigned long long)k->hash,
                  plan_str(w->p, k->name));
    }
}

static void put_buffer(const Printer *w, uint32_t i) {
    static const char *const kinds[] = {"input", "output", "const", "prepared", "temp", "state"};
    const PlanBuffer *b = &w->buffers[i];
    sb_printf(w->out, "  buffer b%u  %s", i, kinds[b->kind]);
    if (b->kind <= PLAN_BUF_const || b->kind == PLAN_BUF_state) sb_printf(w->out, " %u", b->index);
    sb_printf(w->out, "  %s", dtype_text(b->dtype));
    put_field(w, "bytes", b->bytes);
    if (b->alias) {
        sb_printf(w->out, "  in b%u", b->alias - 1);
        put_field(w, "at", b->alias_offset);
    }
    if (b->first <= b->last)
        sb_printf(w->out, "  live %u..%u\n", b->first, b->last);
    else
        sb_put(w->out, "  unused\n");
}

static void put_launch(const Printer *w, const PlanKernel *k) {
    sb_printf(w->out, "  block %ux%ux%u  shared %u", k->block[0], k->block[1], k->block[2],
              k->shared);
    if (k->cluster[0])
        sb_printf(w->out, "  cluster %ux%ux%u", k->cluster[0], k->cluster[1], k->cluster[2]);
    if (k->flags & PLAN_DEPENDENT) sb_put(w->out, "  dependent");
    if (k->flags & PLAN_WAITS_FIRST) sb_put(w->out, "  waits first");
    put_field(w, k->flags & PLAN_ZERO_KEPT ? "zeroed once" : "zeroed", k->zero);
}

/* map b2  f16 [64, 128] of [n, m]  pitch 2*n  swizzle 128: boxes of what, dims innermost first */
static void put_map(const Printer *w, const PlanMap *m) {
    sb_printf(w->out, "      map of parameter %u  %s [", m->param,
              m->tf32 ? "tf32" : dtype_text(m->dtype));
    for (uint32_t d = 0; d < m->rank; d++) {
        if (m->kind == PLAN_MAP_tiled) sb_printf(w->out, "%s%u", d ? ", " : "", m->box[d]);
        if (m->step[d] != 1) sb_printf(w->out, " step %u", m->step[d]);
    }
    if (m->kind == PLAN_MAP_im2col) {
        sb_printf(w->out, "%u channels, %u pixels, window", m->channels, m->pixels);
        for (uint32_t d = 0; d + 2 < m->rank; d++)
            sb_printf(w->out, " %d..%d", m->lower[d], m->upper[d]);
    }
    sb_put(w->out, "] of [");
    for (uint32_t d = 0; d < m->rank; d++) {
        if (d) sb_put(w->out, ", ");
        put_expr(w, m->size[d]);
    }
    sb_put(w->out, "]");
    for (uint32_t d = 1; d < m->rank; d++) put_field(w, d > 1 ? "x" : "pitch", m->stride[d - 1]);
    put_field(w, "from", m->base);
    sb_printf(w->out, "  swizzle %u  promotion %u\n", m->swizzle, m->promotion);
}

static void put_kernel_facts(const Printer *w, const PlanTarget *t, const PlanKernel *k) {
    if (k->ndims) sb_put(w->out, "      dims");
    for (uint32_t i = 0; i < k->ndims; i++) {
        sb_put(w->out, i ? ", " : " ");
        put_expr(w, w->p->lists[k->dims + i]);
    }
    if (k->ndims) sb_put(w->out, "\n");
    sb_put(w->out, "     ");
    if (t->device == PLAN_cuda) {
        for (int i = 0; i < 3; i++) put_field(w, i ? "x" : "grid", k->grid[i]);
        put_launch(w, k);
    } else {
        put_field(w, "work", k->work);
        put_field(w, "scratch", k->scratch);
        put_field(w, "ns", k->cost);
        if (k->slices) put_field(w, "slices", k->slices);
        if (k->slices) put_field(w, "of", k->slice);
    }
    put_field(w, "reads", k->bytes_read);
    put_field(w, "writes", k->bytes_written);
    put_field(w, "flops", k->flops);
    sb_put(w->out, "\n");
    for (uint32_t i = 0; i < k->nmaps; i++) put_map(w, &w->p->maps[k->maps + i]);
    sb_put(w->out, "      covers ");
    for (const char *c = plan_str(w->p, k->nodes); *c; c++)
        sb_putn(w->out, *c == '\n' ? "; " : c, *c == '\n' ? 2 : 1);
    sb_put(w->out, "\n");
}

static void put_kernel_step(const Printer *w, const PlanTarget *t, const PlanStep *s) {
    const PlanKernel *k = &w->kernels[s->kernel];
    sb_printf(w->out, "%s (", plan_str(w->p, k->name));
    for (uint32_t i = 0; i < k->nbufs; i++)
        sb_printf(w->out, "%s%sb%u", i ? ", " : "", k->written >> i & 1 ? "out " : "",
                  w->p->lists[s->bufs + i]);
    for (uint32_t i = 0; i < s->ndata; i++)
        sb_printf(w->out, ", %s = *b%u",
                  plan_str(w->p, w->p->symbols[w->p->lists[s->data + 2 * i]].name),
                  w->p->lists[s->data + 2 * i + 1]);
    sb_put(w->out, ")\n");
    put_kernel_facts(w, t, k);
    if (!s->nvariants) return;
    sb_put(w->out, "      choice ");
    put_expr(w, s->choice);
    sb_put(w->out, "\n");
    for (uint32_t i = 1; i <= s->nvariants; i++) {
        const PlanKernel *v = &w->kernels[plan_step_kernel(w->p, s, i)];
        sb_printf(w->out, "      or %s\n", plan_str(w->p, v->symbol));
        put_kernel_facts(w, t, v);
    }
}

static void put_control(const Printer *w, const PlanStep *s) {
    static const char *const names[] = {"", "loop", "end loop", "if", "else", "end if"};
    sb_put(w->out, names[s->kind]);
    if (s->kind == PLAN_STEP_loop) {
        sb_printf(w->out, " %s below ", plan_str(w->p, w->p->symbols[s->iter].name));
        if (s->trip_buf)
            sb_printf(w->out, "*b%u", s->trip_buf - 1);
        else
            put_expr(w, s->trip);
    }
    if (s->cond_buf)
        sb_printf(w->out, "%s *b%u", s->kind == PLAN_STEP_loop ? " while" : "", s->cond_buf - 1);
    sb_put(w->out, "\n");
}

static void put_target(Printer *w, const PlanTarget *t) {
    w->buffers = w->p->buffers + t->buffers;
    w->kernels = w->p->kernels + t->kernels;
    sb_printf(w->out, "target %s\n", plan_str(w->p, t->name));
    for (uint32_t i = 0; i < t->nblobs; i++) {
        const PlanBlob *b = &w->p->blobs[t->blobs + i];
        sb_printf(w->out, "  code %s  %llu bytes\n", plan_form_name((PlanForm)b->form),
                  (unsigned long long)b->size);
    }
    for (uint32_t i = 0; i < t->nbuffers; i++) put_buffer(w, i);
    uint32_t entry = 0;
    for (uint32_t i = 0; i < t->nsteps; i++) {
        const PlanStep *s = &w->p->steps[t->steps + i];
        for (; entry < w->p->nentries && i == plan_range(w->p, t, entry).from; entry++)
            sb_printf(w->out, "  entry %s\n", plan_str(w->p, w->p->entries[entry].name));
        sb_printf(w->out, "  %s %u  ", i < t->nprepare ? "prepare" : "step", i);
        if (s->kind == PLAN_STEP_kernel)
            put_kernel_step(w, t, s);
        else
            put_control(w, s);
    }
    sb_put(w->out, plan_str(w->p, t->notes));
}

void plan_print(const Plan *p, StrBuf *out) {
    Printer w = {.p = p, .out = out};
    sb_printf(out, "plan version %u  %llu bytes\n", p->header->version,
              (unsigned long long)p->size);
    put_symbols(&w);
    put_io(&w, "input", p->inputs, p->ninputs);
    put_io(&w, "output", p->outputs, p->noutputs);
    put_states(&w);
    put_entries(&w);
    put_notes(&w);
    put_checks(&w);
    put_constants(&w);
    for (uint64_t i = 0; i < p->ntargets; i++) put_target(&w, &p->targets[i]);
}
