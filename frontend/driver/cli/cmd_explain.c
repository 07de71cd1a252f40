/* graphc explain: per kernel the nodes it covers and what bounds it, then what stayed apart and
 * why. */
#include "codegen/target.h"
#include "frontend/driver/cli/near.h"
#include "frontend/driver/cli/planview.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Of the row that has the target's name: a plan of another release may have one that is gone. */
static const Machine *machine_of(const PlanView *v, const PlanTarget *t) {
    const char *name = plan_str(&v->plan, t->name);
    const Target *row = target_find(name, strlen(name));
    return row ? &row->machine : &target_for((PlanDevice)t->device)->machine;
}

static void print_nodes(const char *text) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        cli_print(stdout, "    %.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

static void print_kernel(const PlanView *v, const PlanTarget *t, const PlanKernel *k) {
    const Machine *m = machine_of(v, t);
    double bytes = (double)v->slots[k->bytes_read] + (double)v->slots[k->bytes_written];
    double flops = (double)v->slots[k->flops];
    double by_memory = bytes / m->bytes_per_s, by_math = flops / m->flops_per_s;
    cli_print(stdout, "%s  %.3g MB, %.3g MFLOP: %s-bound, at least %.3g us\n",
              plan_str(&v->plan, k->name), bytes * 1e-6, flops * 1e-6,
              by_memory > by_math ? "memory" : "arithmetic",
              1e6 * (by_memory > by_math ? by_memory : by_math));
    print_nodes(plan_str(&v->plan, k->nodes));
}

/* Does the line of n characters have the word, with nothing of a name beside it? */
static bool has_word(const char *line, size_t n, const char *word) {
    size_t size = strlen(word);
    for (const char *p = line; size && p + size <= line + n; p++) {
        if (memcmp(p, word, size) != 0) continue;
        bool begins = p == line || !(isalnum((unsigned char)p[-1]) || p[-1] == '_');
        if (begins && !(isalnum((unsigned char)p[size]) || p[size] == '_')) return true;
    }
    return false;
}

/* Is `node` one of the covered nodes: by its number, or by its name as a whole? */
static bool covers(Cli *c, const char *nodes, const char *node) {
    const char *name = arena_printf(c->arena, "\"%s\"", node);
    bool number = node[strspn(node, "0123456789")] == 0;
    const char *place = number ? arena_printf(c->arena, "node %s", node) : name;
    for (; *nodes; nodes += strcspn(nodes, "\n"), nodes += *nodes == '\n') {
        size_t n = strcspn(nodes, "\n");
        if (number ? has_word(nodes, n, place) : memmem(nodes, n, name, strlen(name)) != NULL)
            return true;
    }
    return false;
}

/* Names of covered nodes stand between quotes. */
static void try_names(Cli *c, const char *nodes, Near *near) {
    const char *end;
    for (const char *p = nodes; (p = strchr(p, '"')) && (end = strchr(p + 1, '"')); p = end + 1)
        near_try(near, arena_strndup(c->arena, p + 1, (size_t)(end - p - 1)));
}

/* Notes that mention a kernel, or all. */
static void print_notes(const char *notes, const char *kernel) {
    while (*notes) {
        size_t n = strcspn(notes, "\n");
        if (!kernel || has_word(notes, n, kernel)) cli_print(stdout, "  %.*s\n", (int)n, notes);
        notes += n + (notes[n] == '\n');
    }
}

/* Kernels of the steps [from, to) under a title; those that concern `node`, or all. */
static bool explain_steps(Cli *c, const PlanView *v, const PlanTarget *t, uint32_t from,
                          uint32_t to, const char *title, const char *node) {
    bool found = false;
    PLANVIEW_EACH_KERNEL(v, t, from, to, step) {
        const PlanKernel *k = planview_kernel(v, t, step);
        const char *name = plan_str(&v->plan, k->name);
        if (node && !covers(c, plan_str(&v->plan, k->nodes), node) && strcmp(name, node) != 0)
            continue;
        if (!found) cli_print(stdout, "target %s, %s\n", plan_str(&v->plan, t->name), title);
        found = true;
        print_kernel(v, t, k);
        if (node) print_notes(plan_str(&v->plan, t->notes), name);
    }
    return found;
}

static bool explain_target(Cli *c, const PlanView *v, const PlanTarget *t, const char *node) {
    bool found = false;
    for (uint32_t e = 0; e < v->plan.nentries; e++) {
        char title[256] = "each run";
        PlanRange r = plan_range(&v->plan, t, e);
        if (planview_entry(v, e))
            snprintf(title, sizeof title, "each run of entry %s", planview_entry(v, e));
        found |= explain_steps(c, v, t, r.from, r.to, title, node);
    }
    if (!node) print_notes(plan_str(&v->plan, t->notes), NULL);
    return explain_steps(c, v, t, 0, t->nprepare, "once at load", node) || found || !node;
}

graphc_status cmd_explain(Cli *c) {
    const char *node = c->args.n == 2 ? c->args.v[1] : NULL;
    PlanView v;
    GC_TRY(planview_open(c, c->args.v[0], &v));
    bool found = false;
    for (uint64_t i = 0; i < v.plan.ntargets; i++)
        found |= explain_target(c, &v, &v.plan.targets[i], node);
    if (!found) {
        Near near = {.name = node};
        for (uint64_t i = 0; i < v.plan.nkernels; i++) {
            near_try(&near, plan_str(&v.plan, v.plan.kernels[i].name));
            try_names(c, plan_str(&v.plan, v.plan.kernels[i].nodes), &near);
        }
        (void)diag(c->diags, D_USAGE, "", "no kernel covers a node or is named \"%s\"", node);
        if (near.best) diag_hint(c->diags, "did you mean \"%s\"?", near.best);
    }
    planview_close(&v);
    return found ? GRAPHC_OK : GRAPHC_USAGE;
}
