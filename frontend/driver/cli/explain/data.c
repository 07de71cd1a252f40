/* What the page's script reads: one JSON value, short keys left to the field's own words. */
#include "frontend/driver/cli/explain/picture.h"
#include "frontend/driver/cli/json.h"
#include "runtime/memory.h"

#include <string.h>

/* Characters of text, all kernels of all targets together: the page stays below a megabyte. */
enum { KIR_ROOM = 200 << 10, CODE_ROOM = 350 << 10 };

static json_t *numbers(const uint32_t *v, uint32_t n) {
    json_t *j = json_array();
    for (uint32_t i = 0; i < n; i++) json_array_append_new(j, json_integer(v[i]));
    return j;
}

/* Text as far as there is room, up to the end of a line, and how much is left out. */
static json_t *text_within(Arena *a, const char *text, size_t size, size_t room) {
    size_t have = strlen(text), n = have < room ? have : room;
    if (n == size) return json_string(text);
    while (n && text[n - 1] != '\n') n--;
    return json_string(arena_printf(a, "%.*s... %zu more bytes: --dump-ir DIR writes all\n", (int)n,
                                    text, size - n));
}

static json_t *node_json(const Picture *p, uint32_t i) {
    const OutlineNode *n = &p->outline.nodes[i];
    json_t *j = json_object();
    json_add(j, "name", json_string(*n->name ? n->name : n->output));
    json_add(j, "op", json_string(n->op));
    if (p->type[i]) json_add(j, "type", json_string(p->type[i]));
    json_add(j, "in", numbers(n->in, n->nin));
    return j;
}

static json_t *kernel_json(const Picture *p, const PictureTarget *t, const PictureKernel *k) {
    Arena *a = p->cli->arena;
    const PlanView *v = &p->view;
    Bound b = explain_bound(v, t->t, k->k);
    StrBuf kir;
    sb_init(&kir, a);
    kir_print(t->s->steps.v[k->step].kernel, t->s->exprs, &kir);
    KernelCode code = picture_code(p, t, k);
    json_t *j = json_object();
    json_add(j, "name", json_string(plan_str(&v->plan, k->k->name)));
    json_add(j, "kind", json_string(plan_str(&v->plan, k->k->kind)));
    json_add(j, "at_load", json_boolean(k->prepare));
    json_add(j, "step", json_integer(k->step));
    json_add(j, "bytes", json_real(b.bytes));
    json_add(j, "flops", json_real(b.flops));
    json_add(j, "least_seconds", json_real(b.seconds));
    json_add(j, "memory_bound", json_boolean(b.memory));
    json_add(j, "nodes", numbers(k->computed.v, k->computed.n));
    json_add(j, "views", numbers(k->views.v, k->views.n));
    json_add(j, "from", numbers(k->from.v, k->from.n));
    json_add(j, "kir", text_within(a, sb_str(&kir), kir.n, KIR_ROOM / t->n / p->pipe.ntargets));
    if (code.text) {
        json_add(j, "code_is", json_string(code.ext));
        json_add(j, "code",
                 text_within(a, code.text, code.size, CODE_ROOM / t->n / p->pipe.ntargets));
    }
    return j;
}

/* Values that stay in memory between kernels, with the reason. */
static json_t *apart_json(const Picture *p, const PictureTarget *t) {
    json_t *list = json_array();
    const char *notes = plan_str(&p->view.plan, t->t->notes);
    for (uint32_t i = 0; i < t->n; i++)
        for (uint32_t k = 0; k < t->kernels[i].from.n; k++) {
            uint32_t from = t->kernels[i].from.v[k];
            KernelsApart r = explain_apart(p->cli->arena, notes,
                                           plan_str(&p->view.plan, t->kernels[from].k->name),
                                           plan_str(&p->view.plan, t->kernels[i].k->name));
            if (!r.why) continue;
            json_t *j = json_object();
            json_add(j, "from", json_integer(from));
            json_add(j, "to", json_integer(i));
            json_add(j, "why", json_string(r.why));
            json_add(j, "bytes", json_string(r.bytes));
            if (r.change) json_add(j, "change", json_string(r.change));
            json_array_append_new(list, j);
        }
    return list;
}

/* By node: why no kernel has it. */
static json_t *none_json(const Picture *p, const PictureTarget *t) {
    json_t *j = json_object();
    const char *text = plan_str(&p->view.plan, t->t->apart);
    for (const char *line; (line = explain_line(p->cli->arena, &text));) {
        const char *number = line + strcspn(line, "0123456789");
        const char *end = number + strspn(number, "0123456789");
        json_object_set_new(j, arena_strndup(p->cli->arena, number, (size_t)(end - number)),
                            json_string(explain_reason(line)));
    }
    return j;
}

/* The kernel that first writes into the storage of buffer b; -1: none does. */
static json_int_t writer_of(const Picture *p, const PictureTarget *t, uint32_t b) {
    const Plan *plan = &p->view.plan;
    for (uint32_t i = 0; i < t->n; i++) {
        const PlanStep *s = &plan->steps[t->t->steps + t->kernels[i].step];
        for (uint32_t k = 0; k < t->kernels[i].k->nbufs; k++)
            if ((t->kernels[i].k->written >> k & 1) &&
                plan_root(&plan->buffers[t->t->buffers], plan->lists[s->bufs + k]) == b)
                return i;
    }
    return -1;
}

static json_t *memory_json(const Picture *p, const PictureTarget *t) {
    json_t *j = json_object(), *list = json_add(j, "buffers", json_array());
    MemoryPlan *m = planview_layout(p->cli, &p->view, t->t);
    json_add(j, "arena", json_integer(m ? (json_int_t)memory_arena(m) : 0));
    json_add(j, "live", json_integer(m ? (json_int_t)memory_live(m) : 0));
    json_add(j, "first_step", json_integer(t->t->nprepare));
    json_add(j, "steps", json_integer(t->t->nsteps));
    for (uint32_t i = 0; m && i < t->t->nbuffers; i++) {
        const PlanBuffer *b = &p->view.plan.buffers[t->t->buffers + i];
        if (b->kind != PLAN_BUF_temp || b->alias || b->first > b->last) continue;
        json_t *r = json_object();
        json_add(r, "at", json_integer((json_int_t)memory_offset(m, i)));
        json_add(r, "bytes", json_integer(p->view.slots[b->bytes]));
        json_add(r, "first", json_integer(b->first));
        json_add(r, "last", json_integer(b->last));
        json_add(r, "kernel", json_integer(writer_of(p, t, i)));
        json_array_append_new(list, r);
    }
    memory_destroy(m);
    return j;
}

/* Whether the profile was taken on what this target is for. */
static bool is_profiled(const Picture *p, const PictureTarget *t) {
    const char *device = json_string_value(json_object_get(p->profile, "device"));
    return device && (strncmp(device, "cuda", 4) == 0) == (t->t->device == PLAN_cuda);
}

/* Times of the profile's kernels, which stand in launch order as here. */
static bool add_times(const Picture *p, const PictureTarget *t, json_t *kernels) {
    const json_t *times = json_object_get(p->profile, "kernels");
    size_t at = 0;
    for (size_t i = 0; i < json_array_size(times); i++) {
        const json_t *k = json_array_get(times, i);
        const char *name = json_string_value(json_object_get(k, "name"));
        while (name && at < t->n &&
               strcmp(name, plan_str(&p->view.plan, t->kernels[at].k->name)) != 0)
            at++;
        if (!name || at == t->n) return false;
        json_object_set(json_array_get(kernels, at), "ms", json_object_get(k, "ms"));
        at++;
    }
    return true;
}

static json_t *machine_json(const Picture *p, const PictureTarget *t) {
    const Machine *m = explain_machine(&p->view, t->t);
    json_t *j = json_object();
    json_add(j, "bytes_per_s", json_real(m->bytes_per_s));
    json_add(j, "flops_per_s", json_real(m->flops_per_s));
    json_add(j, "matrix_flops_per_s", json_real(m->matrix_flops_per_s));
    return j;
}

static json_t *target_json(const Picture *p, const PictureTarget *t) {
    json_t *j = json_object();
    json_add(j, "name", json_string(plan_str(&p->view.plan, t->t->name)));
    json_add(j, "machine", machine_json(p, t));
    json_t *kernels = json_add(j, "kernels", json_array());
    for (uint32_t i = 0; i < t->n; i++)
        json_array_append_new(kernels, kernel_json(p, t, &t->kernels[i]));
    json_add(j, "apart", apart_json(p, t));
    json_add(j, "in_no_kernel", none_json(p, t));
    json_add(j, "memory", memory_json(p, t));
    if (!p->profile || !is_profiled(p, t)) return j;
    if (!add_times(p, t, kernels))
        (void)diag(p->cli->diags, D_USAGE, p->cli->profile,
                   "is of another plan: its kernels are not those of this model");
    json_object_set(j, "median_ms", json_object_get(p->profile, "median_ms"));
    json_object_set(j, "threads", json_object_get(p->profile, "threads"));
    return j;
}

json_t *picture_data(const Picture *p) {
    const char *path = p->cli->args.v[0], *slash = strrchr(path, '/');
    json_t *j = json_begin(p->cli->verb->name);
    json_add(j, "model", json_string(slash ? slash + 1 : path));
    json_t *sizes = json_add(j, "sizes", json_object());
    for (uint64_t i = 0; i < p->view.plan.nsymbols; i++)
        json_object_set_new(sizes, plan_str(&p->view.plan, p->view.plan.symbols[i].name),
                            json_integer(p->view.symbols[i]));
    json_t *nodes = json_add(j, "nodes", json_array());
    for (uint32_t i = 0; i < p->outline.n; i++) json_array_append_new(nodes, node_json(p, i));
    json_t *targets = json_add(j, "targets", json_array());
    for (uint32_t i = 0; i < p->pipe.ntargets; i++)
        json_array_append_new(targets, target_json(p, &p->targets[i]));
    return j;
}
