#include "runtime/plan/check.h"
#include "runtime/base/check.h"
#include <math.h>
#include <string.h>

/* One check in progress: the target in hand and where a message goes. */
typedef struct Checker {
    Plan *plan;
    ErrorText error;
    const PlanTarget *t;
    const PlanBuffer *buffers;
    const PlanKernel *kernels;
    const PlanStep *steps;
    const PlanBlob *blobs;
} Checker;

static graphc_status bad(const Checker *c, const char *record, uint64_t i, const char *what) {
    return error_set(c->error, GRAPHC_INVALID, "not a valid plan: %s %llu: %s", record,
                     (unsigned long long)i, what);
}

/* Fails unless the condition holds; `record` and `i` say where. */
#define NEED(cond, record, i, what)                                                                \
    do {                                                                                           \
        if (!(cond)) return bad(c, record, i, what);                                               \
    } while (0)

static bool str_ok(const Checker *c, PlanStr s) {
    return s < c->plan->nstrings;
}
static bool slot_ok(const Checker *c, PlanSlot s, PlanStage latest) {
    return s < c->plan->nexprs && c->plan->stage[s] <= latest;
}
static bool list_ok(const Checker *c, PlanList start, uint32_t n) {
    return check_span(start, n, c->plan->nlists);
}
static bool slots_ok(const Checker *c, PlanList start, uint32_t n, PlanStage latest) {
    if (!list_ok(c, start, n)) return false;
    for (uint32_t i = 0; i < n; i++)
        if (!slot_ok(c, c->plan->lists[start + i], latest)) return false;
    return true;
}

static graphc_status check_strings(const Checker *c) {
    const Plan *p = c->plan;
    NEED(p->nstrings && p->nstrings <= UINT32_MAX, "strings", 0, "empty or too long");
    NEED(p->strings[0] == 0 && p->strings[p->nstrings - 1] == 0, "strings", 0, "not terminated");
    NEED(str_ok(c, p->header->weights), "header", 0, "weights folder");
    return GRAPHC_OK;
}

static graphc_status check_symbols(const Checker *c) {
    const Plan *p = c->plan;
    NEED(p->nsymbols <= UINT32_MAX, "symbols", p->nsymbols, "too many");
    for (uint64_t i = 0; i < p->nsymbols; i++) {
        const PlanSymbol *s = &p->symbols[i];
        NEED(str_ok(c, s->name) && s->kind < PLAN_SYM_COUNT, "symbol", i, "name or kind");
        NEED(s->lo <= s->hi, "symbol", i, "empty range");
        if (s->kind == PLAN_SYM_dim || s->kind == PLAN_SYM_elem)
            NEED(s->a < p->ninputs, "symbol", i, "no such input");
        else if (s->kind == PLAN_SYM_state)
            NEED(s->a < p->nstates && s->b + 1 == p->states[s->a].grows, "symbol", i,
                 "no such state or axis");
        else
            NEED(s->a == 0 && s->b == 0, "symbol", i, "stray definition");
        if (s->kind == PLAN_SYM_dim) NEED(s->b < p->inputs[s->a].rank, "symbol", i, "no such axis");
        if (s->kind == PLAN_SYM_elem) {
            DType t = plan_dtype(p->inputs[s->a].dtype);
            NEED(t != DT_none && !dtype_is_float(t), "symbol", i, "element of a float input");
        }
    }
    return GRAPHC_OK;
}

static PlanStage symbol_stage(uint32_t kind) {
    return kind < PLAN_SYM_data ? PLAN_STAGE_bound : PLAN_STAGE_run;
}

static graphc_status check_exprs(const Checker *c) {
    static const uint8_t arity[] = {
#define X(name, n, text) n,
        PLAN_EXPRS(X)
#undef X
    };
    const Plan *p = c->plan;
    NEED(p->nexprs && p->nexprs <= UINT32_MAX, "expressions", 0, "none or too many");
    NEED(p->exprs[0].op == PLAN_EX_const && p->exprs[0].value == 0, "expression", 0, "not 0");
    for (uint64_t i = 0; i < p->nexprs; i++) {
        const PlanExpr *e = &p->exprs[i];
        NEED(e->op < PLAN_EX_COUNT, "expression", i, "unknown operation");
        NEED(e->op == PLAN_EX_const || e->value == 0, "expression", i, "stray value");
        uint32_t nargs = arity[e->op];
        if (e->op == PLAN_EX_sym) {
            NEED(e->arg[0] < p->nsymbols, "expression", i, "no such symbol");
            p->stage[i] = (uint8_t)symbol_stage(p->symbols[e->arg[0]].kind);
            nargs = 1;
        }
        for (uint32_t k = 0; k < 3; k++) {
            if (k >= nargs)
                NEED(e->arg[k] == 0, "expression", i, "stray operand");
            else if (e->op != PLAN_EX_sym) {
                NEED(e->arg[k] < i, "expression", i, "operand not defined before it");
                uint8_t s = p->stage[e->arg[k]];
                if (s > p->stage[i]) p->stage[i] = s;
            }
        }
    }
    return GRAPHC_OK;
}

/* Ascending numbers below `limit`. */
static bool numbers_ok(const Checker *c, PlanList start, uint32_t n, uint64_t limit) {
    if (!list_ok(c, start, n)) return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = c->plan->lists[start + i];
        if (v >= limit || (i && v <= c->plan->lists[start + i - 1])) return false;
    }
    return true;
}

static graphc_status check_io(const Checker *c, const PlanIo *v, uint64_t n, const char *what,
                              PlanStage latest) {
    for (uint64_t i = 0; i < n; i++) {
        NEED(str_ok(c, v[i].name) && !v[i].reserved, what, i, "name");
        NEED(plan_dtype(v[i].dtype) != DT_none, what, i, "unknown element type");
        NEED(v[i].rank <= PLAN_MAX_RANK, what, i, "rank too high");
        NEED(slots_ok(c, v[i].dims, v[i].rank, latest), what, i, "dimensions");
        NEED(list_ok(c, v[i].dim_text, v[i].rank), what, i, "dimension texts");
        for (uint32_t k = 0; k < v[i].rank; k++)
            NEED(str_ok(c, c->plan->lists[v[i].dim_text + k]), what, i, "dimension texts");
    }
    return GRAPHC_OK;
}

/* Relative, inside the folder, no empty or dot-dot part: file_map_beneath checks again on opening.
 */
static bool file_name_ok(const char *name) {
    if (!*name || *name == '/' || strchr(name, '\\')) return false;
    for (const char *part = name; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
        if (!*part || *part == '/' ||
            (part[0] == '.' && part[1] == '.' && (!part[2] || part[2] == '/')))
            return false;
    return true;
}

static graphc_status check_constants(const Checker *c) {
    const Plan *p = c->plan;
    for (uint64_t i = 0; i < p->nconstants; i++) {
        const PlanConstant *k = &p->constants[i];
        NEED(str_ok(c, k->name) && str_ok(c, k->file) && !k->reserved, "constant", i, "name");
        NEED(k->length <= INT64_MAX, "constant", i, "too large");
        if (k->source == PLAN_embedded) {
            NEED(k->file == 0 && !k->file_size && k->offset % PLAN_ALIGN == 0, "constant", i,
                 "misplaced");
            NEED(check_span(k->offset, k->length, p->ndata), "constant", i, "outside the file");
        } else {
            NEED(k->source == PLAN_external, "constant", i, "unknown source");
            NEED(file_name_ok(plan_str(p, k->file)), "constant", i, "unsafe file name");
            NEED(k->file_size <= INT64_MAX && check_span(k->offset, k->length, k->file_size),
                 "constant", i, "outside its file");
        }
    }
    return GRAPHC_OK;
}

/* Moments and gradients are a parameter's; gradients are f32, so that they can lie in one tensor */
static graphc_status check_role(const Checker *c, uint64_t i) {
    const Plan *p = c->plan;
    const PlanState *s = &p->states[i];
    bool f32 = plan_dtype(s->io.dtype) == DT_f32;
    NEED(s->role < PLAN_ROLES && !s->reserved, "state", i, "unknown role");
    NEED(s->of <= p->nstates && (!s->of || p->states[s->of - 1].role == PLAN_ROLE_parameter),
         "state", i, "no such parameter");
    NEED(!s->of || s->role == PLAN_ROLE_moment || s->role == PLAN_ROLE_gradient, "state", i,
         "belongs to a parameter");
    NEED(s->role != PLAN_ROLE_gradient || (f32 && !s->grows), "state", i, "type of a gradient");
    NEED(s->spread >= 0 && isfinite(s->spread), "state", i, "spread");
    NEED(s->spread == 0 || (f32 && !s->grows && s->role == PLAN_ROLE_parameter), "state", i,
         "starts as random numbers");
    return GRAPHC_OK;
}

static graphc_status check_notes(const Checker *c) {
    const Plan *p = c->plan;
    for (uint64_t i = 0; i < p->nnotes; i++)
        NEED(str_ok(c, p->notes[i].key) && str_ok(c, p->notes[i].text), "note", i, "text");
    return GRAPHC_OK;
}

static graphc_status check_states(const Checker *c) {
    const Plan *p = c->plan;
    for (uint64_t i = 0; i < p->nstates; i++) {
        const PlanState *s = &p->states[i];
        GC_TRY(check_io(c, &s->io, 1, "state", PLAN_STAGE_bound));
        for (uint32_t d = 0; d < s->io.rank; d++)
            NEED(d + 1 == s->grows || slot_ok(c, p->lists[s->io.dims + d], PLAN_STAGE_plan),
                 "state", i, "its size is not known");
        NEED(s->initial <= p->nconstants, "state", i, "no such constant");
        NEED(s->grows <= s->io.rank && (s->grows || (!s->room && !s->next)), "state", i, "axis");
        NEED(!s->grows || !s->initial, "state", i, "grows from elements");
        NEED(slot_ok(c, s->room, PLAN_STAGE_plan) && slot_ok(c, s->next, PLAN_STAGE_bound), "state",
             i, "room");
        GC_TRY(check_role(c, i));
    }
    return GRAPHC_OK;
}

static graphc_status check_entries(const Checker *c) {
    const Plan *p = c->plan;
    NEED(p->nentries && p->nentries <= PLAN_MAX_ENTRIES, "entries", 0, "none or too many");
    for (uint64_t i = 0; i < p->nentries; i++) {
        const PlanEntry *e = &p->entries[i];
        NEED(str_ok(c, e->name) && !e->reserved, "entry", i, "name");
        NEED(numbers_ok(c, e->inputs, e->ninputs, p->ninputs), "entry", i, "inputs");
        NEED(numbers_ok(c, e->outputs, e->noutputs, p->noutputs), "entry", i, "outputs");
        NEED(numbers_ok(c, e->states, e->nstates, p->nstates), "entry", i, "states");
    }
    return GRAPHC_OK;
}

static graphc_status check_checks(const Checker *c) {
    const Plan *p = c->plan;
    for (uint64_t i = 0; i < p->nchecks; i++)
        NEED(slot_ok(c, p->checks[i].a, PLAN_STAGE_run) &&
                 slot_ok(c, p->checks[i].b, PLAN_STAGE_run) && str_ok(c, p->checks[i].text),
             "check", i, "index");
    return GRAPHC_OK;
}

static graphc_status check_buffer(const Checker *c, uint32_t i) {
    static const char what[] = "buffer";
    const Plan *p = c->plan;
    const PlanBuffer *b = &c->buffers[i];
    uint64_t limit[PLAN_BUF_COUNT] = {p->ninputs, p->noutputs, p->nconstants, 1, 1, p->nstates};
    NEED(b->kind < PLAN_BUF_COUNT, what, i, "unknown kind");
    NEED(b->index < limit[b->kind], what, i, "no such input, output, constant or state");
    NEED(plan_dtype(b->dtype) != DT_none, what, i, "unknown element type");
    if (b->kind == PLAN_BUF_input || b->kind == PLAN_BUF_output)
        NEED(b->dtype == (b->kind == PLAN_BUF_input ? p->inputs : p->outputs)[b->index].dtype, what,
             i, "its element type is not the tensor's");
    if (b->kind == PLAN_BUF_state)
        NEED(b->dtype == p->states[b->index].io.dtype, what, i,
             "its element type is not the state's");
    bool fixed =
        b->kind == PLAN_BUF_prepared || b->kind == PLAN_BUF_const || b->kind == PLAN_BUF_state;
    PlanStage latest = fixed ? PLAN_STAGE_plan : PLAN_STAGE_bound;
    NEED(slot_ok(c, b->bytes, latest) && slot_ok(c, b->alias_offset, latest), what, i, "size");
    if (b->first <= b->last) NEED(b->last < c->t->nsteps, what, i, "no such step");
    if (b->alias) {
        NEED(b->alias <= c->t->nbuffers, what, i, "alias of no buffer");
        NEED(c->buffers[b->alias - 1].alias == 0, what, i, "alias of an alias");
        NEED(b->kind == PLAN_BUF_temp || b->kind == PLAN_BUF_output, what, i,
             "may not be an alias");
        uint32_t root = c->buffers[b->alias - 1].kind;
        NEED(b->kind == PLAN_BUF_temp || root == PLAN_BUF_temp || root == PLAN_BUF_output, what, i,
             "output in read-only memory");
    } else
        NEED(b->alias_offset == 0, what, i, "stray offset");
    return GRAPHC_OK;
}

static const PlanBlob *find_blob(const Checker *c, uint32_t form) {
    for (uint32_t i = 0; i < c->t->nblobs; i++)
        if (c->blobs[i].form == form) return &c->blobs[i];
    return NULL;
}

static graphc_status check_blobs(const Checker *c) {
    const Plan *p = c->plan;
    for (uint32_t i = 0; i < c->t->nblobs; i++) {
        const PlanBlob *b = &c->blobs[i];
        NEED(b->form < PLAN_FORMS && !b->reserved, "blob", i, "unknown form");
        NEED((b->form < PLAN_CPU_FORMS) == (c->t->device == PLAN_cpu), "blob", i, "wrong device");
        NEED(b->form == PLAN_cubin || find_blob(c, b->form) == b, "blob", i, "second of its form");
        NEED(b->size && b->offset % PLAN_ALIGN == 0 && check_span(b->offset, b->size, p->ncode),
             "blob", i, "outside the file");
        if (b->form == PLAN_ptx)
            NEED(p->code[b->offset + b->size - 1] == 0, "blob", i, "text not terminated");
    }
    return GRAPHC_OK;
}

static bool is_one_of(uint32_t v, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return v == a || v == b || v == c || v == d;
}

/* Boxes: what a copy may hold at once, and what of it a swizzled row holds. */
static graphc_status check_map_boxes(const Checker *c, uint32_t i) {
    static const char what[] = "tensor map";
    const PlanMap *m = &c->plan->maps[i];
    uint32_t bytes = (uint32_t)dtype_bytes(plan_dtype(m->dtype));
    bool tiled = m->kind == PLAN_MAP_tiled;
    uint32_t inner = tiled ? m->box[0] : m->channels;
    for (uint32_t d = 0; d < PLAN_MAP_RANK; d++) {
        bool used = d < m->rank;
        NEED(used ? m->step[d] >= 1 && m->step[d] <= 8 : m->step[d] == 0, what, i, "steps");
        NEED(used && tiled ? m->box[d] >= 1 && m->box[d] <= 256 : m->box[d] == 0, what, i, "box");
    }
    NEED(inner * bytes % 16 == 0, what, i, "rows of a copy are not multiples of 16 bytes");
    NEED(!m->swizzle || inner * bytes <= m->swizzle, what, i, "rows longer than the swizzle");
    if (tiled)
        NEED(m->channels == 0 && m->pixels == 0, what, i, "stray channels or pixels");
    else
        NEED(m->channels >= 1 && m->channels <= 256 && m->pixels >= 1 && m->pixels <= 1024, what, i,
             "channels or pixels");
    return GRAPHC_OK;
}

/* The driver takes window corners of 16, 8 and 5 bits for 1, 2 and 3 spatial dims. */
static graphc_status check_map_corners(const Checker *c, uint32_t i) {
    static const int32_t most[PLAN_MAP_RANK + 1] = {[3] = 32768, [4] = 128, [5] = 16};
    const PlanMap *m = &c->plan->maps[i];
    for (uint32_t d = 0; d < 3; d++) {
        bool used = m->kind == PLAN_MAP_im2col && d + 2 < m->rank;
        int32_t limit = used ? most[m->rank] : 0;
        NEED(m->lower[d] >= -limit && m->upper[d] >= -limit &&
                 (used ? m->lower[d] < limit && m->upper[d] < limit
                       : m->lower[d] == 0 && m->upper[d] == 0),
             "tensor map", i, "window corners");
    }
    return GRAPHC_OK;
}

static graphc_status check_map(const Checker *c, uint32_t i, const PlanKernel *k) {
    static const char what[] = "tensor map";
    const Plan *p = c->plan;
    const PlanMap *m = &p->maps[i];
    NEED(m->kind < PLAN_MAP_COUNT && m->param < k->nbufs, what, i, "kind or buffer");
    NEED(plan_dtype(m->dtype) != DT_none, what, i, "unknown element type");
    NEED(m->tf32 <= (plan_dtype(m->dtype) == DT_f32), what, i, "rounded elements that are not f32");
    NEED(m->rank <= PLAN_MAP_RANK && m->rank >= (m->kind == PLAN_MAP_im2col ? 3 : 1), what, i,
         "rank");
    NEED(slot_ok(c, m->base, PLAN_STAGE_bound), what, i, "start");
    for (uint32_t d = 0; d < PLAN_MAP_RANK; d++)
        NEED(slot_ok(c, m->size[d], PLAN_STAGE_bound) && (d < m->rank || !m->size[d]), what, i,
             "size");
    for (uint32_t d = 0; d + 1 < PLAN_MAP_RANK; d++) {
        PlanSlot s = m->stride[d];
        NEED(slot_ok(c, s, PLAN_STAGE_bound) && (d + 1 < m->rank || !s), what, i, "stride");
        NEED(p->exprs[s].op != PLAN_EX_const || p->exprs[s].value % 16 == 0, what, i,
             "a stride is not a multiple of 16 bytes");
    }
    NEED(is_one_of(m->swizzle, 0, 32, 64, 128) && is_one_of(m->promotion, 0, 64, 128, 256), what, i,
         "swizzle or promotion");
    GC_TRY(check_map_boxes(c, i));
    return check_map_corners(c, i);
}

static graphc_status check_cluster(const Checker *c, uint32_t i) {
    const PlanKernel *k = &c->kernels[i];
    uint64_t blocks = 1;
    bool none = !k->cluster[0] && !k->cluster[1] && !k->cluster[2];
    for (int a = 0; a < 3 && !none; a++) {
        NEED(k->cluster[a] >= 1 && k->cluster[a] <= 16, "kernel", i, "cluster");
        blocks *= k->cluster[a];
    }
    NEED(blocks <= 16, "kernel", i, "cluster too large");
    return GRAPHC_OK;
}

/* What a GPU kernel is launched with beside its grid and block. */
static graphc_status check_launch(const Checker *c, uint32_t i) {
    static const char what[] = "kernel";
    const Plan *p = c->plan;
    const PlanKernel *k = &c->kernels[i];
    NEED(!(k->flags & ~(uint32_t)PLAN_KERNEL_FLAGS), what, i, "flags");
    NEED(k->shared <= PLAN_MAX_SHARED, what, i, "shared memory");
    NEED(slot_ok(c, k->zero, PLAN_STAGE_bound), what, i, "zeroed memory");
    NEED(k->flags & PLAN_DEPENDENT || !(k->flags & PLAN_WAITS_FIRST), what, i, "waits for nothing");
    NEED(k->zero || !(k->flags & PLAN_ZERO_KEPT), what, i, "keeps zeroed memory it has not");
    NEED(k->cubin == 0 || (k->cubin <= c->t->nblobs && c->blobs[k->cubin - 1].form == PLAN_cubin),
         what, i, "no such cubin");
    NEED(k->cubin || find_blob(c, PLAN_ptx), what, i, "no code");
    NEED(k->nmaps <= PLAN_MAX_MAPS && check_span(k->maps, k->nmaps, p->nmaps), what, i,
         "tensor maps");
    for (uint32_t m = 0; m < k->nmaps; m++) GC_TRY(check_map(c, k->maps + m, k));
    return check_cluster(c, i);
}

/* On a CPU none of what only a GPU has. */
static graphc_status check_no_launch(const Checker *c, uint32_t i) {
    const PlanKernel *k = &c->kernels[i];
    NEED(!k->flags && !k->zero && !k->nmaps && !k->cubin && !k->shared, "kernel", i,
         "launch facts of a GPU");
    return GRAPHC_OK;
}

static graphc_status check_kernel_code(const Checker *c, uint32_t i) {
    static const char what[] = "kernel";
    const PlanKernel *k = &c->kernels[i];
    if (c->t->device == PLAN_cpu) {
        for (uint32_t f = 0; f < PLAN_CPU_FORMS; f++) {
            const PlanBlob *b = find_blob(c, f);
            bool none = k->entry[f] == PLAN_NO_ENTRY, may = !b || f >= PLAN_CPU_WHOLE;
            NEED(none ? may : b && k->entry[f] < b->size, what, i, "entry");
        }
        return check_no_launch(c, i);
    }
    NEED(*plan_str(c->plan, k->symbol), what, i, "no symbol");
    uint64_t threads = 1;
    for (int a = 0; a < 3; a++) {
        NEED(slot_ok(c, k->grid[a], PLAN_STAGE_run), what, i, "grid");
        NEED(k->block[a] >= 1 && k->block[a] <= 1024, what, i, "block");
        threads *= k->block[a];
    }
    NEED(threads <= 1024, what, i, "block too large");
    return check_launch(c, i);
}

static graphc_status check_kernel(const Checker *c, uint32_t i) {
    static const char what[] = "kernel";
    const PlanKernel *k = &c->kernels[i];
    NEED(str_ok(c, k->name) && str_ok(c, k->kind) && str_ok(c, k->nodes) && str_ok(c, k->symbol),
         what, i, "name");
    NEED(k->nbufs <= PLAN_MAX_PARAMS, what, i, "too many buffers");
    NEED(k->nbufs == 64 || k->written >> k->nbufs == 0, what, i, "writes a buffer it has not");
    NEED(slots_ok(c, k->dims, k->ndims, PLAN_STAGE_run), what, i, "dimensions");
    NEED(slot_ok(c, k->scratch, PLAN_STAGE_bound), what, i, "scratch size");
    PlanSlot rest[] = {k->work,  k->cost,   k->bytes_read, k->bytes_written,
                       k->flops, k->slices, k->slice};
    for (size_t r = 0; r < sizeof rest / sizeof *rest; r++)
        NEED(slot_ok(c, rest[r], PLAN_STAGE_run), what, i, "an expression");
    return check_kernel_code(c, i);
}

static bool map_fixed(const Checker *c, const PlanMap *m) {
    bool ok = slot_ok(c, m->base, PLAN_STAGE_plan);
    for (uint32_t d = 0; d < PLAN_MAP_RANK; d++) ok = ok && slot_ok(c, m->size[d], PLAN_STAGE_plan);
    for (uint32_t d = 0; d + 1 < PLAN_MAP_RANK; d++)
        ok = ok && slot_ok(c, m->stride[d], PLAN_STAGE_plan);
    return ok;
}

/* A prepare step runs once for all sessions, so it sees nothing that differs between them. */
static graphc_status check_prepare(const Checker *c, uint32_t i) {
    const PlanStep *s = &c->steps[i];
    NEED(s->kind == PLAN_STEP_kernel && s->ndata == 0, "step", i, "not a prepare step");
    bool ok = slot_ok(c, s->choice, PLAN_STAGE_plan);
    for (uint32_t v = 0; v <= s->nvariants; v++) {
        const PlanKernel *k = &c->kernels[plan_step_kernel(c->plan, s, v)];
        PlanSlot one[] = {k->work,    k->scratch, k->slices,  k->slice,
                          k->grid[0], k->grid[1], k->grid[2], k->zero};
        for (size_t n = 0; n < sizeof one / sizeof *one; n++)
            ok = ok && slot_ok(c, one[n], PLAN_STAGE_plan);
        ok = ok && slots_ok(c, k->dims, k->ndims, PLAN_STAGE_plan);
        for (uint32_t m = 0; m < k->nmaps; m++)
            ok = ok && map_fixed(c, &c->plan->maps[k->maps + m]);
    }
    NEED(ok, "step", i, "prepare step depends on inputs");
    return GRAPHC_OK;
}

static uint32_t entry_of(const Checker *c, uint32_t step) {
    uint32_t e = 0;
    while (step >= plan_range(c->plan, c->t, e).to) e++;
    return e;
}

/* What a run binds, allocates and says it changes are what its entry lists. */
static graphc_status check_listed(const Checker *c, uint32_t i, const PlanBuffer *b, bool written) {
    const Plan *p = c->plan;
    const PlanEntry *e = &p->entries[entry_of(c, i)];
    bool ok = true;
    if (b->kind == PLAN_BUF_input) ok = plan_lists(p, e->inputs, e->ninputs, b->index);
    if (b->kind == PLAN_BUF_output) ok = plan_lists(p, e->outputs, e->noutputs, b->index);
    if (b->kind == PLAN_BUF_state && written) ok = plan_lists(p, e->states, e->nstates, b->index);
    NEED(ok, "step", i, "uses what its entry does not list");
    return GRAPHC_OK;
}

static graphc_status check_use(const Checker *c, uint32_t i, uint32_t buf, bool written) {
    NEED(buf < c->t->nbuffers, "step", i, "no such buffer");
    const PlanBuffer *b = &c->buffers[buf], *root = &c->buffers[plan_root(c->buffers, buf)];
    NEED(b->first <= i && i <= b->last && root->first <= i && i <= root->last, "step", i,
         "uses a buffer outside its lifetime");
    bool prepare = i < c->t->nprepare;
    if (prepare)
        NEED(b->kind == PLAN_BUF_const || b->kind == PLAN_BUF_prepared, "step", i,
             "a prepare step uses memory of a session");
    bool mine = root->kind == PLAN_BUF_temp || root->kind == PLAN_BUF_output ||
                root->kind == PLAN_BUF_state;
    if (written)
        NEED(prepare ? root->kind == PLAN_BUF_prepared : mine, "step", i,
             "writes read-only memory");
    if (prepare) return GRAPHC_OK;
    GC_TRY(check_listed(c, i, b, false));
    return check_listed(c, i, root, written);
}

static graphc_status check_scalar(const Checker *c, uint32_t i, uint32_t buf, DType t) {
    GC_TRY(check_use(c, i, buf, false));
    NEED(plan_dtype(c->buffers[buf].dtype) == t, "step", i, "type of a scalar");
    return GRAPHC_OK;
}

/* Variants are kernels for the same buffers. */
static graphc_status check_variants(const Checker *c, uint32_t i) {
    const PlanStep *s = &c->steps[i];
    const PlanKernel *k = &c->kernels[s->kernel];
    NEED(s->nvariants <= PLAN_MAX_VARIANTS && list_ok(c, s->variants, s->nvariants), "step", i,
         "variants");
    NEED(slot_ok(c, s->choice, PLAN_STAGE_run) && (s->nvariants || !s->choice), "step", i,
         "choice");
    for (uint32_t n = 1; n <= s->nvariants; n++) {
        uint32_t v = plan_step_kernel(c->plan, s, n);
        NEED(v < c->t->nkernels, "step", i, "no such kernel");
        NEED(c->kernels[v].nbufs == k->nbufs && c->kernels[v].written == k->written, "step", i,
             "a variant has other buffers");
    }
    return GRAPHC_OK;
}

static graphc_status check_kernel_step(const Checker *c, uint32_t i) {
    const PlanStep *s = &c->steps[i];
    NEED(s->kernel < c->t->nkernels, "step", i, "no such kernel");
    const PlanKernel *k = &c->kernels[s->kernel];
    GC_TRY(check_variants(c, i));
    NEED(list_ok(c, s->bufs, k->nbufs), "step", i, "buffer list");
    NEED(s->ndata <= PLAN_MAX_PARAMS && list_ok(c, s->data, 2 * s->ndata), "step", i,
         "symbol list");
    for (uint32_t a = 0; a < k->nbufs; a++)
        GC_TRY(check_use(c, i, c->plan->lists[s->bufs + a], k->written >> a & 1));
    for (uint32_t a = 0; a < s->ndata; a++) {
        uint32_t sym = c->plan->lists[s->data + 2 * a];
        NEED(sym < c->plan->nsymbols && c->plan->symbols[sym].kind == PLAN_SYM_data, "step", i,
             "no such symbol");
        GC_TRY(check_scalar(c, i, c->plan->lists[s->data + 2 * a + 1], DT_i64));
    }
    return i < c->t->nprepare ? check_prepare(c, i) : GRAPHC_OK;
}

static graphc_status check_control_step(const Checker *c, uint32_t i) {
    const PlanStep *s = &c->steps[i];
    if (s->trip_buf) GC_TRY(check_scalar(c, i, s->trip_buf - 1, DT_i64));
    if (s->cond_buf) GC_TRY(check_scalar(c, i, s->cond_buf - 1, DT_bool));
    if (s->kind == PLAN_STEP_loop) {
        NEED(slot_ok(c, s->trip, PLAN_STAGE_run), "step", i, "trip count");
        NEED(s->iter < c->plan->nsymbols && c->plan->symbols[s->iter].kind == PLAN_SYM_iter, "step",
             i, "no iteration symbol");
    }
    if (s->kind == PLAN_STEP_if) NEED(s->cond_buf, "step", i, "no condition");
    return GRAPHC_OK;
}

/* Control steps nest, and `match` says how. */
static graphc_status check_nesting(const Checker *c) {
    uint32_t open[PLAN_MAX_NESTING], depth = 0, entry = 0;
    for (uint32_t i = 0; i < c->t->nsteps; i++) {
        for (; i >= c->t->nprepare && i >= plan_range(c->plan, c->t, entry).to; entry++)
            NEED(depth == 0, "step", i, "control goes from one entry to the next");
        const PlanStep *s = &c->steps[i];
        uint32_t top = depth ? open[depth - 1] : 0, top_kind = depth ? c->steps[top].kind : 0;
        switch ((PlanStepKind)s->kind) {
        case PLAN_STEP_loop:
        case PLAN_STEP_if:
            NEED(depth < PLAN_MAX_NESTING, "step", i, "nested too deeply");
            open[depth++] = i;
            break;
        case PLAN_STEP_loop_end:
            NEED(depth && top_kind == PLAN_STEP_loop, "step", i, "no loop to end");
            NEED(s->match == top && c->steps[top].match == i, "step", i, "match");
            depth--;
            break;
        case PLAN_STEP_else:
            NEED(depth && top_kind == PLAN_STEP_if, "step", i, "no if");
            NEED(c->steps[top].match == i, "step", i, "match");
            open[depth - 1] = i;
            break;
        case PLAN_STEP_if_end:
            NEED(depth && (top_kind == PLAN_STEP_if || top_kind == PLAN_STEP_else), "step", i,
                 "no if");
            NEED(c->steps[top].match == i, "step", i, "match");
            depth--;
            break;
        default: break;
        }
    }
    NEED(depth == 0, "step", c->t->nsteps, "control not closed");
    return GRAPHC_OK;
}

/* A buffer that lives across the start or end of a loop and is used inside lives through all of it.
 */
static graphc_status check_loop_lifetimes(const Checker *c) {
    for (uint32_t l = 0; l < c->t->nsteps; l++) {
        if (c->steps[l].kind != PLAN_STEP_loop) continue;
        uint32_t end = c->steps[l].match;
        for (uint32_t i = 0; i < c->t->nbuffers; i++) {
            const PlanBuffer *b = &c->buffers[i];
            bool apart = b->first > b->last || b->last < l || b->first > end;
            bool inside = b->first >= l && b->last <= end, around = b->first <= l && b->last >= end;
            NEED(apart || inside || around, "buffer", i, "lifetime cuts a loop");
        }
    }
    return GRAPHC_OK;
}

static graphc_status check_ranges(const Checker *c, uint64_t number) {
    const Plan *p = c->plan;
    const PlanTarget *t = c->t;
    uint32_t at = t->nprepare;
    NEED(list_ok(c, t->ends, (uint32_t)p->nentries), "target", number, "entries");
    for (uint64_t i = 0; i < p->nentries; at = p->lists[t->ends + i++])
        NEED(p->lists[t->ends + i] >= at, "target", number, "entries out of order");
    NEED(at == t->nsteps, "target", number, "steps of no entry");
    return GRAPHC_OK;
}

static graphc_status check_target(Checker *c, uint64_t number) {
    const Plan *p = c->plan;
    const PlanTarget *t = c->t;
    NEED(str_ok(c, t->name) && str_ok(c, t->notes) && str_ok(c, t->apart), "target", number,
         "name");
    NEED(t->device == PLAN_cpu || t->device == PLAN_cuda, "target", number, "unknown device");
    NEED(check_span(t->buffers, t->nbuffers, p->nbuffers) &&
             check_span(t->kernels, t->nkernels, p->nkernels) &&
             check_span(t->steps, t->nsteps, p->nsteps) &&
             check_span(t->blobs, t->nblobs, p->nblobs) && t->nprepare <= t->nsteps,
         "target", number, "range");
    GC_TRY(check_ranges(c, number));
    c->buffers = p->buffers + t->buffers;
    c->kernels = p->kernels + t->kernels;
    c->steps = p->steps + t->steps;
    c->blobs = p->blobs + t->blobs;
    GC_TRY(check_blobs(c));
    for (uint32_t i = 0; i < t->nbuffers; i++) GC_TRY(check_buffer(c, i));
    for (uint32_t i = 0; i < t->nkernels; i++) GC_TRY(check_kernel(c, i));
    for (uint32_t i = 0; i < t->nsteps; i++) {
        NEED(c->steps[i].kind < PLAN_STEP_COUNT, "step", i, "unknown kind");
        NEED(c->steps[i].match < t->nsteps, "step", i, "match");
        if (c->steps[i].kind == PLAN_STEP_kernel)
            GC_TRY(check_kernel_step(c, i));
        else {
            NEED(i >= t->nprepare, "step", i, "control in a prepare step");
            GC_TRY(check_control_step(c, i));
        }
    }
    GC_TRY(check_nesting(c));
    return check_loop_lifetimes(c);
}

graphc_status plan_check(Plan *p, ErrorText error) {
    Checker checker = {.plan = p, .error = error}, *c = &checker;
    GC_TRY(check_strings(c));
    GC_TRY(check_symbols(c));
    GC_TRY(check_exprs(c));
    GC_TRY(check_io(c, p->inputs, p->ninputs, "input", PLAN_STAGE_bound));
    GC_TRY(check_io(c, p->outputs, p->noutputs, "output", PLAN_STAGE_run));
    GC_TRY(check_constants(c));
    GC_TRY(check_states(c));
    GC_TRY(check_entries(c));
    GC_TRY(check_notes(c));
    GC_TRY(check_checks(c));
    for (uint64_t i = 0; i < p->ntargets; i++) {
        c->t = &p->targets[i];
        GC_TRY(check_target(c, i));
    }
    return GRAPHC_OK;
}
