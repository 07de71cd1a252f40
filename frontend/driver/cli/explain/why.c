/* graphc explain PLAN A B: why two nodes are not in one kernel. Fusion records why a value was
 * stored that another kernel reads; what is further apart is as many such places away from being
 * one. */
#include "frontend/driver/cli/explain/explain.h"
#include "frontend/driver/cli/near.h"

#include <string.h>

#define NOT_FUSED "not fused: "
#define COSTS     "; costs "

static const char *change_of(const char *why) {
    for (int i = 0; i < WHY_COUNT; i++)
        if (strcmp(why, fusion_why_text[i]) == 0) return fusion_why_change[i];
    return NULL;
}

KernelsApart explain_apart(Arena *a, const char *notes, const char *producer,
                           const char *consumer) {
    const char *head = arena_printf(a, NOT_FUSED "%s into %s: ", producer, consumer);
    for (const char *line; (line = explain_line(a, &notes));) {
        if (strncmp(line, head, strlen(head)) != 0) continue;
        const char *why = line + strlen(head), *costs = strstr(why, COSTS);
        KernelsApart r = {.why = costs ? arena_strndup(a, why, (size_t)(costs - why)) : why,
                          .bytes = costs ? costs + strlen(COSTS) : ""};
        r.change = change_of(r.why);
        return r;
    }
    return (KernelsApart){.bytes = ""};
}

/* One of the two as a target has it. */
typedef struct Place {
    const char *name;  /* as it was given */
    StepList computed; /* steps whose kernel computes it */
    StepList views;    /* those that look through it */
    const char *apart; /* why it is in no kernel, or NULL */
} Place;

static const char *kernel_name(const PlanView *v, const PlanTarget *t, uint32_t step) {
    const PlanStep *s = &v->plan.steps[t->steps + step];
    return plan_str(&v->plan, planview_kernel(v, t, s)->name);
}

/* Whether the kernel computes the node, or only looks through it. */
static bool has_line(Arena *a, const char *nodes, const char *node, bool views) {
    for (const char *line; (line = explain_line(a, &nodes));) {
        bool view;
        const char *own = explain_node(a, line, &view);
        if (view == views && explain_covers(a, own, node)) return true;
    }
    return false;
}

static Place place_of(Cli *c, const PlanView *v, const PlanTarget *t, const char *node) {
    Place r = {.name = node};
    const PlanStep *steps = &v->plan.steps[t->steps];
    for (uint32_t i = 0; i < t->nsteps; i++) {
        if (steps[i].kind != PLAN_STEP_kernel) continue;
        const PlanKernel *k = planview_kernel(v, t, &steps[i]);
        const char *nodes = plan_str(&v->plan, k->nodes);
        if (strcmp(plan_str(&v->plan, k->name), node) == 0 ||
            has_line(c->arena, nodes, node, false))
            vec_push(c->arena, &r.computed, i);
        else if (has_line(c->arena, nodes, node, true))
            vec_push(c->arena, &r.views, i);
    }
    const char *apart = plan_str(&v->plan, t->apart);
    for (const char *line; !r.apart && (line = explain_line(c->arena, &apart));)
        if (explain_covers(c->arena, line, node)) r.apart = explain_reason(line);
    return r;
}

static bool is_known(const Place *p) {
    return p->computed.n || p->views.n || p->apart;
}

static void print_steps(const PlanView *v, const PlanTarget *t, const StepList *steps) {
    for (uint32_t i = 0; i < steps->n; i++)
        cli_print(stdout, "%s%s", i ? ", " : "", kernel_name(v, t, steps->v[i]));
    cli_print(stdout, "\n");
}

static void print_place(const PlanView *v, const PlanTarget *t, const Place *p) {
    if (p->computed.n) {
        cli_print(stdout, "  %s is computed by ", p->name);
        print_steps(v, t, &p->computed);
    } else if (p->views.n) {
        cli_print(stdout, "  %s moves nothing: it is a view in ", p->name);
        print_steps(v, t, &p->views);
    } else {
        cli_print(stdout, "  %s is in no kernel: %s\n", p->name, p->apart ? p->apart : "unknown");
    }
}

/* The steps that have the node: that compute it, else that look through it. */
static const StepList *steps_of(const Place *p) {
    return p->computed.n ? &p->computed : &p->views;
}

static bool share_kernel(const PlanView *v, const PlanTarget *t, const Place *a, const Place *b) {
    const StepList *x = steps_of(a), *y = steps_of(b);
    for (uint32_t i = 0; i < x->n; i++)
        for (uint32_t j = 0; j < y->n; j++)
            if (x->v[i] == y->v[j]) {
                cli_print(stdout, "  one kernel has both: %s\n", kernel_name(v, t, x->v[i]));
                return true;
            }
    return false;
}

static void print_hop(Cli *c, const PlanView *v, const PlanTarget *t, uint32_t from, uint32_t to) {
    const char *producer = kernel_name(v, t, from), *consumer = kernel_name(v, t, to);
    KernelsApart r = explain_apart(c->arena, plan_str(&v->plan, t->notes), producer, consumer);
    cli_print(stdout, "  %s stores what %s reads: %s\n", producer, consumer,
              r.why ? r.why
              : from < t->nprepare
                  ? "it runs once at load, not in each run"
                  : "one of them is of a kind that takes nothing in (a copy, a sort, "
                    "control flow)");
    if (*r.bytes) cli_print(stdout, "    storing and reading it moves %s\n", r.bytes);
    if (r.change) cli_print(stdout, "    what would change it: %s\n", r.change);
}

/* The shortest of the ways from a kernel of one to a kernel of the other; false: there is none. */
static bool print_way(Cli *c, const PlanView *v, const PlanTarget *t, const Flow *f,
                      const Place *from, const Place *to) {
    uint32_t *best = NULL, least = 0;
    const StepList *x = steps_of(from), *y = steps_of(to);
    for (uint32_t i = 0; i < x->n; i++)
        for (uint32_t j = 0; j < y->n; j++) {
            uint32_t *path = NULL, n = flow_path(f, c->arena, x->v[i], y->v[j], &path);
            if (!n || (least && n >= least)) continue;
            best = path;
            least = n;
        }
    if (least > 2)
        cli_print(stdout, "  %u kernels lie between them; the shortest way:\n", least - 2);
    for (uint32_t i = 0; i + 1 < least; i++) print_hop(c, v, t, best[i], best[i + 1]);
    return least > 0;
}

static void explain_pair(Cli *c, const PlanView *v, const PlanTarget *t, const Place *a,
                         const Place *b) {
    cli_print(stdout, "target %s\n", plan_str(&v->plan, t->name));
    print_place(v, t, a);
    print_place(v, t, b);
    if (!steps_of(a)->n || !steps_of(b)->n || share_kernel(v, t, a, b)) return;
    Flow f = flow_of(c->arena, v, t);
    if (!print_way(c, v, t, &f, a, b) && !print_way(c, v, t, &f, b, a))
        cli_print(stdout, "  neither needs the other's result: there is no value between them that "
                          "could stay in registers\n");
}

graphc_status explain_unknown(Cli *c, const PlanView *v, const char *node) {
    Near near = {.name = node};
    for (uint64_t i = 0; i < v->plan.nkernels; i++) {
        near_try(&near, plan_str(&v->plan, v->plan.kernels[i].name));
        near_quoted(&near, c->arena, plan_str(&v->plan, v->plan.kernels[i].nodes));
    }
    for (uint64_t i = 0; i < v->plan.ntargets; i++)
        near_quoted(&near, c->arena, plan_str(&v->plan, v->plan.targets[i].apart));
    (void)diag(c->diags, D_USAGE, "", "there is no node or kernel \"%s\"", node);
    if (near.best) diag_hint(c->diags, "did you mean \"%s\"?", near.best);
    return GRAPHC_USAGE;
}

graphc_status explain_two(Cli *c, const PlanView *v, const char *first, const char *second) {
    for (uint64_t i = 0; i < v->plan.ntargets; i++) {
        const PlanTarget *t = &v->plan.targets[i];
        Place a = place_of(c, v, t, first), b = place_of(c, v, t, second);
        if (!is_known(&a)) return explain_unknown(c, v, first);
        if (!is_known(&b)) return explain_unknown(c, v, second);
        explain_pair(c, v, t, &a, &b);
    }
    return GRAPHC_OK;
}
