/* From bound tensors to symbol values, expression slots, memory and kernel pointers. */
#include "runtime/session.h"
#include "runtime/base/check.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SCRATCH (1ull << 48) /* bytes of one thread */
#define PACK_LEAST   64           /* bytes of a packed input's place, and its alignment */

static graphc_status set_symbol(graphc_session *s, uint64_t i, int64_t v) {
    const PlanSymbol *sym = &s->plan->symbols[i];
    if (v < sym->lo || v > sym->hi)
        return error_set(session_error(s), GRAPHC_INVALID,
                         "input \"%s\": %s %u is %" PRId64
                         ", but the plan was made for %s in %" PRId64 "..%" PRId64,
                         plan_input_name(s->plan, sym->a),
                         sym->kind == PLAN_SYM_dim ? "dimension" : "element", sym->b, v,
                         plan_str(s->plan, sym->name), sym->lo, sym->hi);
    if (s->symbols[i] != v || !s->ready[i]) s->shapes_changed = true;
    s->symbols[i] = v;
    s->ready[i] = 1;
    return GRAPHC_OK;
}

static graphc_status need_inputs(graphc_session *s) {
    for (uint64_t i = 0; i < s->plan->ninputs; i++)
        if (!s->input_bound[i] && session_takes(s, i))
            return error_set(session_error(s), GRAPHC_USAGE, "input \"%s\" is not bound",
                             plan_input_name(s->plan, i));
    return GRAPHC_OK;
}

/* How much a state holds along the axis that grows. */
static graphc_status take_held(graphc_session *s, uint64_t i) {
    const PlanSymbol *sym = &s->plan->symbols[i];
    int64_t v = s->state_size[sym->a];
    if (v < sym->lo || v > sym->hi)
        return error_set(session_error(s), GRAPHC_INVALID,
                         "state \"%s\" holds %" PRId64
                         " along axis %u, but the plan was made for %s in "
                         "%" PRId64 "..%" PRId64,
                         plan_state_name(s->plan, sym->a), v, sym->b, plan_str(s->plan, sym->name),
                         sym->lo, sym->hi);
    s->symbols[i] = v;
    s->ready[i] = 1;
    return GRAPHC_OK;
}

/* What only other entries take has no part in this one's sizes: they see the least it may be. */
static graphc_status read_dims(graphc_session *s) {
    for (uint64_t i = 0; i < s->plan->nsymbols; i++) {
        const PlanSymbol *sym = &s->plan->symbols[i];
        if (sym->kind == PLAN_SYM_state) GC_TRY(take_held(s, i));
        if (sym->kind > PLAN_SYM_elem) continue;
        if (!session_takes(s, sym->a)) {
            s->symbols[i] = sym->lo;
            s->ready[i] = 0;
        } else if (sym->kind == PLAN_SYM_dim)
            GC_TRY(set_symbol(s, i, s->inputs[sym->a].shape[sym->b]));
    }
    return GRAPHC_OK;
}

/* Values of small integer inputs that sizes depend on; they may differ in every run. */
static graphc_status read_elems(graphc_session *s) {
    for (uint64_t i = 0; i < s->plan->nsymbols; i++) {
        const PlanSymbol *sym = &s->plan->symbols[i];
        if (sym->kind != PLAN_SYM_elem || !session_takes(s, sym->a)) continue;
        const graphc_tensor *t = &s->inputs[sym->a];
        DType type = plan_dtype(s->plan->inputs[sym->a].dtype);
        uint64_t size = dtype_bytes(type), bytes = 0, raw = 0;
        if (!tensor_bytes(type, t->shape, t->rank, &bytes) ||
            !check_span(sym->b * size, size, bytes))
            return error_set(session_error(s), GRAPHC_INVALID,
                             "input \"%s\": element %u is needed, but the tensor has %llu",
                             plan_input_name(s->plan, sym->a), sym->b,
                             (unsigned long long)(bytes / size));
        const uint8_t *at = (const uint8_t *)t->data + sym->b * size;
        if (t->device == GRAPHC_CPU)
            memcpy(&raw, at, size);
        else {
            GC_TRY(s->res->ops->copy(s->lane, &raw, at, size, session_error(s)));
            GC_TRY(s->res->ops->sync(s->lane, session_error(s)));
        }
        GC_TRY(set_symbol(s, i, dtype_load_i64(type, &raw, 0)));
    }
    return GRAPHC_OK;
}

/* What a dimension is called in messages: its text, and its value if that says more. */
static graphc_status dim_error(graphc_session *s, uint64_t i, uint32_t axis, int64_t want) {
    const PlanIo *io = &s->plan->inputs[i];
    const char *text = plan_str(s->plan, s->plan->lists[io->dim_text + axis]);
    char shape[256], value[32];
    snprintf(value, sizeof value, "%" PRId64, want);
    bool plain = strcmp(text, value) == 0;
    return error_set(session_error(s), GRAPHC_INVALID,
                     "input \"%s\" has shape %s: dimension %u must be %s%s%s",
                     plan_input_name(s->plan, i),
                     tensor_shape_text(s->inputs[i].shape, s->inputs[i].rank, shape, sizeof shape),
                     axis, text, plain ? "" : " = ", plain ? "" : value);
}

static graphc_status check_dims(graphc_session *s) {
    for (uint64_t i = 0; i < s->plan->ninputs; i++) {
        const PlanIo *io = &s->plan->inputs[i];
        for (uint32_t k = 0; k < io->rank && session_takes(s, i); k++) {
            int64_t want = s->slots[s->plan->lists[io->dims + k]];
            if (s->inputs[i].shape[k] != want) return dim_error(s, i, k, want);
        }
    }
    return GRAPHC_OK;
}

/* Slots whose symbols all have values. */
static void find_ready_slots(graphc_session *s) {
    const Plan *p = s->plan;
    uint8_t *slot = s->ready + p->nsymbols;
    for (uint64_t i = 0; i < p->nexprs; i++) {
        const PlanExpr *x = &p->exprs[i];
        if (x->op == PLAN_EX_const)
            slot[i] = 1;
        else if (x->op == PLAN_EX_sym)
            slot[i] = s->ready[x->arg[0]];
        else
            slot[i] = slot[x->arg[0]] && slot[x->arg[1]] && slot[x->arg[2]];
    }
}

static graphc_status check_pair(graphc_session *s, const PlanCheck *c) {
    const uint8_t *slot = s->ready + s->plan->nsymbols;
    if (!slot[c->a] || !slot[c->b] || s->wide[c->a] == s->wide[c->b]) return GRAPHC_OK;
    const char *text = plan_str(s->plan, c->text);
    if (s->plan->exprs[c->a].op == PLAN_EX_const && s->slots[c->b] == 0)
        return error_set(session_error(s), GRAPHC_INVALID, "%s: it does not hold", text);
    return error_set(session_error(s), GRAPHC_INVALID,
                     "%s, but the shapes give %" PRId64 " and %" PRId64, text, s->slots[c->a],
                     s->slots[c->b]);
}

static graphc_status check_pairs(graphc_session *s, PlanStage stage) {
    const Plan *p = s->plan;
    for (uint64_t i = 0; i < p->nchecks; i++) {
        const PlanCheck *c = &p->checks[i];
        uint8_t later = p->stage[c->a] > p->stage[c->b] ? p->stage[c->a] : p->stage[c->b];
        if ((later == PLAN_STAGE_run) == (stage == PLAN_STAGE_run)) GC_TRY(check_pair(s, c));
    }
    return GRAPHC_OK;
}

static void forget_runtime_symbols(graphc_session *s) {
    for (uint64_t i = 0; i < s->plan->nsymbols; i++)
        if (s->plan->symbols[i].kind >= PLAN_SYM_data) s->ready[i] = 0;
}

graphc_status bind_all(graphc_session *s) {
    forget_runtime_symbols(s);
    bool first = s->shapes_changed;
    if (first) {
        GC_TRY(need_inputs(s));
        GC_TRY(read_dims(s));
    }
    if (s->has_elem) {
        GC_TRY(s->res->ops->begin(s->lane, session_error(s)));
        graphc_status st = read_elems(s);
        s->res->ops->end(s->lane);
        GC_TRY(st);
    }
    if (!s->shapes_changed) return GRAPHC_OK;
    s->ran = false; /* sizes of outputs are about to change */
    plan_eval(s->plan, s->symbols, s->wide, s->slots, PLAN_STAGE_plan);
    find_ready_slots(s);
    GC_TRY(check_dims(s));
    GC_TRY(state_bind(s));
    GC_TRY(check_pairs(s, PLAN_STAGE_bound));
    GC_TRY((s->given.p ? memory_assign : memory_reassign)(s->memory, s->steps, s->slots,
                                                          session_error(s)));
    if (memory_scratch(s->plan, s->res->target, s->steps, s->slots) > MOST_SCRATCH)
        return error_set(session_error(s), GRAPHC_NO_MEMORY,
                         "the kernels' scratch does not fit into memory");
    launch_gather(s, s->steps.from, s->steps.to, false);
    s->shapes_changed = false;
    s->pointers_changed = true;
    return GRAPHC_OK;
}

graphc_status bind_runtime(graphc_session *s) {
    s->loop = 0; /* what its slots rest on may be known now */
    plan_eval(s->plan, s->symbols, s->wide, s->slots, PLAN_STAGE_run);
    launch_gather(s, s->steps.from, s->steps.to, true);
    if (s->plan->nchecks == 0) return GRAPHC_OK;
    find_ready_slots(s);
    return check_pairs(s, PLAN_STAGE_run);
}

/* Slots that follow from a loop's iteration number, and whether sizes are found out inside. */
static void find_loop_slots(graphc_session *s, uint32_t loop) {
    const Plan *p = s->plan;
    const PlanStep *st = &s->res->steps[loop];
    uint8_t *ready = s->ready + p->nsymbols;
    s->loop = loop + 1;
    s->nloop_slots = 0;
    for (uint64_t i = 0; i < p->nexprs; i++) {
        const PlanExpr *x = &p->exprs[i];
        bool sym = x->op == PLAN_EX_sym, leaf = sym || x->op == PLAN_EX_const;
        s->loop_slot[i] =
            leaf ? sym && x->arg[0] == st->iter
                 : s->loop_slot[x->arg[0]] || s->loop_slot[x->arg[1]] || s->loop_slot[x->arg[2]];
        if (!s->loop_slot[i]) continue;
        ready[i] = leaf || (ready[x->arg[0]] && ready[x->arg[1]] && ready[x->arg[2]]);
        s->loop_slots[s->nloop_slots++] = (uint32_t)i;
    }
}

/* Sizes that the last iteration found out are not known again yet. */
static bool forget_loop_symbols(graphc_session *s, uint32_t loop) {
    bool any = false;
    for (uint32_t i = loop + 1; i < s->res->steps[loop].match; i++) {
        const PlanStep *st = &s->res->steps[i];
        for (uint32_t k = 0; k < st->ndata && st->kind == PLAN_STEP_kernel; k++)
            s->ready[s->plan->lists[st->data + 2 * k]] = 0;
        any |= st->ndata > 0;
    }
    return any;
}

graphc_status bind_iteration(graphc_session *s, uint32_t loop) {
    const PlanStep *st = &s->res->steps[loop];
    s->ready[st->iter] = 1;
    if (forget_loop_symbols(s, loop)) return bind_runtime(s);
    if (s->loop != loop + 1) find_loop_slots(s, loop);
    for (uint32_t i = 0; i < s->nloop_slots; i++)
        plan_eval_slot(s->plan, s->symbols, s->wide, s->slots, s->loop_slots[i]);
    launch_gather(s, loop + 1, st->match, true);
    for (uint64_t i = 0; i < s->plan->nchecks; i++) {
        const PlanCheck *c = &s->plan->checks[i];
        if (s->loop_slot[c->a] || s->loop_slot[c->b]) GC_TRY(check_pair(s, c));
    }
    return GRAPHC_OK;
}

void bind_loop_left(graphc_session *s, uint32_t loop) {
    s->ready[s->res->steps[loop].iter] = 0;
    s->loop = 0;
    if (s->plan->nchecks) find_ready_slots(s);
}

/* Memory that has to grow grows by half at least, if there is so much: sizes that rise from run to
 * run would take a new place in every one. */
static graphc_status reserve(graphc_session *s, OwnMemory *m, uint64_t bytes) {
    const DeviceOps *ops = s->res->ops;
    if (m->p && m->bytes >= bytes) return GRAPHC_OK;
    if (s->ahead) return GRAPHC_NO_MEMORY;
    uint64_t least = bytes ? bytes : 64, room = m->bytes + m->bytes / 2;
    if (room < least) room = least;
    if (m->p) ops->free(s->res, m->p, m->bytes);
    *m = (OwnMemory){0};
    graphc_status st = ops->alloc(s->res, room, &m->p, session_error(s));
    if (st == GRAPHC_NO_MEMORY && room > least) {
        room = least;
        s->error[0] = 0;
        st = ops->alloc(s->res, room, &m->p, session_error(s));
    }
    GC_TRY(st);
    m->bytes = room;
    s->pointers_changed = true;
    return GRAPHC_OK;
}

static graphc_status reserve_workspace(graphc_session *s, uint8_t **out) {
    uint64_t scratch = memory_scratch(s->plan, s->res->target, s->steps, s->slots);
    uint64_t arena = memory_arena(s->memory);
    uint64_t bytes = arena + s->res->ops->lane_scratch(s->lane, scratch);
    if (s->given.p && s->given.bytes < bytes)
        return error_set(session_error(s), GRAPHC_USAGE,
                         "the workspace has %llu bytes, these shapes need %llu",
                         (unsigned long long)s->given.bytes, (unsigned long long)bytes);
    if (!s->given.p) {
        graphc_status st = reserve(s, &s->workspace, bytes);
        if (st == GRAPHC_NO_MEMORY && memory_is_loose(s->memory) && !s->ahead) {
            s->error[0] = 0;
            GC_TRY(memory_assign(s->memory, s->steps, s->slots, session_error(s)));
            return reserve_workspace(s, out);
        }
        GC_TRY(st);
    }
    *out = s->given.p ? s->given.p : s->workspace.p;
    s->res->ops->lane_set_scratch(s->lane, *out + arena, scratch);
    return GRAPHC_OK;
}

/* Host memory for a device with its own, or not aligned as kernels may expect. */
static bool needs_copy(const graphc_session *s, const graphc_tensor *t) {
    const DeviceOps *ops = s->res->ops;
    return (ops->own_memory && t->device == GRAPHC_CPU) || (uintptr_t)t->data % ops->align;
}

bool bind_input_copied(const graphc_session *s, uint64_t i) {
    return needs_copy(s, &s->inputs[i]);
}

bool bind_output_direct(const graphc_session *s, uint64_t i) {
    const PlanBuffer *b = &s->res->buffers[s->output_buffer[i]];
    if (!s->outputs[i].data || b->alias) return false;
    if (needs_copy(s, &s->outputs[i])) return false;
    const PlanIo *io = &s->plan->outputs[i];
    for (uint32_t k = 0; k < io->rank; k++)
        if (s->plan->stage[s->plan->lists[io->dims + k]] == PLAN_STAGE_run) return false;
    return true;
}

static graphc_status check_output_shape(graphc_session *s, uint64_t i) {
    const PlanIo *io = &s->plan->outputs[i];
    for (uint32_t k = 0; k < io->rank; k++) {
        PlanSlot slot = s->plan->lists[io->dims + k];
        if (s->plan->stage[slot] == PLAN_STAGE_run || s->slots[slot] == s->outputs[i].shape[k])
            continue;
        char shape[256];
        return error_set(
            session_error(s), GRAPHC_INVALID,
            "output \"%s\" is bound with shape %s, but dimension %u will be %" PRId64,
            plan_str(s->plan, io->name),
            tensor_shape_text(s->outputs[i].shape, s->outputs[i].rank, shape, sizeof shape), k,
            s->slots[slot]);
    }
    return GRAPHC_OK;
}

static uint64_t input_bytes(const graphc_session *s, uint64_t i) {
    const graphc_tensor *t = &s->inputs[i];
    uint64_t bytes = 0;
    tensor_bytes(plan_dtype(s->plan->inputs[i].dtype), t->shape, t->rank, &bytes);
    return bytes;
}

/* What an input of that size takes among the packed ones: in steps of an eighth at most, so that
 * sizes that rise from run to run seldom move those behind it. */
static uint64_t packed_room(uint64_t bytes) {
    uint64_t step = PACK_LEAST;
    while (step * 16 < bytes) step *= 2;
    return bytes ? (bytes + step - 1) / step * step : step;
}

/* The two memories of packed inputs. The host's has pages of its own: none is ever locked with what
 * lies beside it. */
static graphc_status reserve_packed(graphc_session *s) {
    size_t bytes = s->res->ops->packed;
    if (s->packed.p) return GRAPHC_OK;
    if (s->ahead) return GRAPHC_NO_MEMORY;
    if (!s->packing) s->packing = aligned_alloc(bytes, bytes);
    if (!s->packing) return GRAPHC_NO_MEMORY;
    memset(s->packing, 0, bytes);
    return reserve(s, &s->packed, bytes);
}

/* Where small inputs in host memory go that are to be one copy. */
static void lay_out_packed(graphc_session *s) {
    uint64_t at = 0, n = 0, most = s->packs ? s->res->ops->packed : 0;
    for (uint64_t i = 0; i < s->plan->ninputs; i++) {
        s->packed_at[i] = 0;
        if (!session_takes(s, i) || s->inputs[i].device != GRAPHC_CPU) continue;
        uint64_t bytes = input_bytes(s, i);
        if (bytes > most || packed_room(bytes) > most - at) continue;
        s->packed_at[i] = 1 + at;
        at += packed_room(bytes);
        n++;
    }
    s->packed_bytes = n > 1 ? at : 0;
    if (n == 1) memset(s->packed_at, 0, s->plan->ninputs * sizeof *s->packed_at);
}

/* Without memory for packed inputs each is a copy of its own, which costs time only. */
static graphc_status place_inputs(graphc_session *s) {
    lay_out_packed(s);
    graphc_status st = s->packed_bytes ? reserve_packed(s) : GRAPHC_OK;
    if (st == GRAPHC_NO_MEMORY && !s->ahead) {
        s->error[0] = 0;
        s->packs = false;
        lay_out_packed(s);
        st = GRAPHC_OK;
    }
    GC_TRY(st);
    for (uint64_t i = 0; i < s->plan->ninputs; i++)
        if (session_takes(s, i) && bind_input_copied(s, i) && !s->packed_at[i])
            GC_TRY(reserve(s, &s->input_copy[i], input_bytes(s, i)));
    return GRAPHC_OK;
}

static graphc_status place_io(graphc_session *s) {
    GC_TRY(place_inputs(s));
    for (uint64_t i = 0; i < s->plan->noutputs; i++) {
        if (!session_gives(s, i)) continue;
        if (s->outputs[i].data) GC_TRY(check_output_shape(s, i));
        const PlanBuffer *b = &s->res->buffers[s->output_buffer[i]];
        if (!bind_output_direct(s, i) && !b->alias)
            GC_TRY(reserve(s, &s->output_own[i], (uint64_t)s->slots[b->bytes]));
    }
    return GRAPHC_OK;
}

static void *input_address(const graphc_session *s, uint64_t i) {
    if (s->packed_at[i]) return (uint8_t *)s->packed.p + s->packed_at[i] - 1;
    return bind_input_copied(s, i) ? s->input_copy[i].p : s->inputs[i].data;
}

static void *root_address(const graphc_session *s, uint32_t i, uint8_t *workspace) {
    const PlanBuffer *b = &s->res->buffers[i];
    void *p = NULL;
    switch ((PlanBufferKind)b->kind) {
    case PLAN_BUF_input: p = input_address(s, b->index); break;
    case PLAN_BUF_output:
        p = bind_output_direct(s, b->index) ? s->outputs[b->index].data : s->output_own[b->index].p;
        break;
    case PLAN_BUF_const:
    case PLAN_BUF_prepared: p = s->res->address[i]; break;
    case PLAN_BUF_state: p = s->state[b->index].p; break;
    case PLAN_BUF_temp: p = workspace + memory_offset(s->memory, i); break;
    default: break;
    }
    return p ? p : s->res->nowhere;
}

static void fill_pointers(graphc_session *s, uint8_t *workspace) {
    const PlanTarget *t = s->res->target;
    const PlanBuffer *b = s->res->buffers;
    for (uint32_t i = 0; i < t->nbuffers; i++)
        if (!b[i].alias) s->address[i] = root_address(s, i, workspace);
    for (uint32_t i = 0; i < t->nbuffers; i++)
        if (b[i].alias)
            s->address[i] = (uint8_t *)s->address[b[i].alias - 1] + s->slots[b[i].alias_offset];
    for (uint32_t i = s->steps.from; i < s->steps.to; i++) {
        const PlanStep *st = &s->res->steps[i];
        if (st->kind != PLAN_STEP_kernel) continue;
        void **p = s->pointers + s->step[i].pointers;
        for (uint32_t k = 0; k < s->res->kernels[st->kernel].nbufs; k++)
            p[k] = s->address[s->plan->lists[st->bufs + k]];
    }
}

static graphc_status wait_for_runs(graphc_session *s) {
    GC_TRY(s->res->ops->begin(s->lane, session_error(s)));
    graphc_status st = s->res->ops->sync(s->lane, session_error(s));
    s->res->ops->end(s->lane);
    return st;
}

/* Counters and the like, zero before the first kernel that gets them. */
static graphc_status reserve_zeroed(graphc_session *s) {
    uint64_t kept, bytes = launch_zeroed(s, &kept);
    if (!bytes || (kept == s->zero_kept && bytes <= s->zeroed.bytes)) return GRAPHC_OK;
    if (s->ahead) return GRAPHC_NO_MEMORY;
    if (s->zeroed.p) GC_TRY(wait_for_runs(s)); /* those under way count there */
    GC_TRY(reserve(s, &s->zeroed, bytes));
    s->zero_kept = kept;
    return s->res->ops->zero(s->res, s->zeroed.p, s->zeroed.bytes, session_error(s));
}

static graphc_status encode_maps(graphc_session *s) {
    GC_TRY(s->res->ops->begin(s->lane, session_error(s)));
    graphc_status st = GRAPHC_OK;
    for (uint32_t i = 0; i < s->nkernel_steps && st == GRAPHC_OK; i++)
        if (session_runs(s, s->kernel_steps[i]) && !s->step[s->kernel_steps[i]].dynamic)
            st = launch_encode(s, s->kernel_steps[i]);
    s->res->ops->end(s->lane);
    return st;
}

/* What a run of these sizes needs, behind a message that it was not there. */
static graphc_status say_need(graphc_session *s, graphc_status st) {
    uint64_t scratch = memory_scratch(s->plan, s->res->target, s->steps, s->slots), bytes = 0;
    uint64_t work = memory_arena(s->memory) + s->res->ops->lane_scratch(s->lane, scratch);
    double in = 0, out = 0, states = 0;
    for (uint64_t i = 0; i < s->plan->ninputs; i++) {
        const graphc_tensor *t = &s->inputs[i];
        if (!session_takes(s, i) || !bind_input_copied(s, i)) continue;
        if (tensor_bytes(plan_dtype(s->plan->inputs[i].dtype), t->shape, t->rank, &bytes))
            in += (double)bytes;
    }
    for (uint64_t i = 0; i < s->plan->noutputs; i++)
        if (session_gives(s, i) && !bind_output_direct(s, i))
            out += (double)s->slots[s->res->buffers[s->output_buffer[i]].bytes];
    for (uint64_t i = 0; i < s->plan->nstates; i++) states += (double)s->state[i].bytes;
    size_t n = strlen(s->error);
    snprintf(s->error + n, sizeof s->error - n,
             "; this run takes %.1f MB: weights %.1f, workspace %.1f, outputs %.1f, copies of "
             "inputs %.1f, "
             "states %.1f; smaller sizes take less",
             1e-6 * ((double)resident_bytes(s->res) + (double)work + in + out + states),
             1e-6 * (double)resident_bytes(s->res), 1e-6 * (double)work, 1e-6 * out, 1e-6 * in,
             1e-6 * states);
    return st;
}

static graphc_status reserve_all(graphc_session *s, uint8_t **workspace) {
    GC_TRY(reserve_workspace(s, workspace));
    GC_TRY(place_io(s));
    return reserve_zeroed(s);
}

graphc_status bind_memory(graphc_session *s) {
    if (!s->pointers_changed) return GRAPHC_OK;
    s->inputs_there = false;
    uint8_t *workspace = NULL;
    graphc_status st = reserve_all(s, &workspace);
    if (st != GRAPHC_OK) return st == GRAPHC_NO_MEMORY && !s->ahead ? say_need(s, st) : st;
    fill_pointers(s, workspace);
    if (s->plan->nmaps) GC_TRY(encode_maps(s));
    s->generation++;
    s->pointers_changed = false;
    return GRAPHC_OK;
}
