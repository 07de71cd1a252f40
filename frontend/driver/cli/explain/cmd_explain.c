/* graphc explain: per kernel the nodes it covers and what bounds it, then what stayed apart and
 * why, and what became of the nodes that no kernel covers. */
#include "frontend/driver/cli/explain/explain.h"
#include "frontend/driver/cli/explain/picture.h"
#include "frontend/driver/cli/units.h"

#include <stdio.h>
#include <string.h>

static void print_nodes(const char *text) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        cli_print(stdout, "    %.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

/* The time is an estimate by the target's rates with data in memory: what caches hold is faster. */
static void print_kernel(const Cli *c, const PlanView *v, const PlanTarget *t,
                         const PlanKernel *k) {
    Bound b = explain_bound(v, t, k);
    cli_print(stdout, "%s  %s, %s: %s-bound, about %s\n", plan_str(&v->plan, k->name),
              unit_bytes(c->arena, b.bytes), unit_count(c->arena, b.flops, "FLOP"),
              b.memory ? "memory" : "arithmetic", unit_seconds(c->arena, b.seconds));
    print_nodes(plan_str(&v->plan, k->nodes));
}

/* Notes that mention a kernel, or all. */
static void print_notes(const char *notes, const char *kernel) {
    while (*notes) {
        size_t n = strcspn(notes, "\n");
        if (!kernel || explain_has_word(notes, n, kernel))
            cli_print(stdout, "  %.*s\n", (int)n, notes);
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
        if (node && !explain_covers(c->arena, plan_str(&v->plan, k->nodes), node) &&
            strcmp(name, node) != 0)
            continue;
        if (!found) cli_print(stdout, "target %s, %s\n", plan_str(&v->plan, t->name), title);
        found = true;
        print_kernel(c, v, t, k);
        if (node) print_notes(plan_str(&v->plan, t->notes), name);
    }
    return found;
}

static uint32_t count_reason(Arena *a, const char *text, const char *why) {
    uint32_t n = 0;
    for (const char *line; (line = explain_line(a, &text));)
        n += strcmp(explain_reason(line), why) == 0;
    return n;
}

/* How many nodes no kernel covers, by reason. */
static void print_reasons(Cli *c, const char *apart) {
    TextList seen = {0};
    const char *text = apart;
    for (const char *line; (line = explain_line(c->arena, &text));) {
        const char *why = explain_reason(line);
        bool known = false;
        for (uint32_t i = 0; i < seen.n; i++) known |= strcmp(seen.v[i], why) == 0;
        if (known) continue;
        vec_push(c->arena, &seen, why);
        cli_print(stdout, "  in no kernel: %u nodes%s: %s\n", count_reason(c->arena, apart, why),
                  seen.n == 1 ? " (-v lists them)" : "", why);
    }
}

/* Nodes that no kernel covers: `node`, all, or how many. */
static bool explain_nowhere(Cli *c, const PlanView *v, const PlanTarget *t, const char *node) {
    const char *apart = plan_str(&v->plan, t->apart), *text = apart;
    bool found = false;
    if (!node && !c->verbose) print_reasons(c, apart);
    for (const char *line; (node || c->verbose) && (line = explain_line(c->arena, &text));) {
        if (node && !explain_covers(c->arena, line, node)) continue;
        cli_print(stdout, "target %s, in no kernel\n    %s\n", plan_str(&v->plan, t->name), line);
        found = true;
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
    found |= explain_nowhere(c, v, t, node);
    return explain_steps(c, v, t, 0, t->nprepare, "once at load", node) || found || !node;
}

static graphc_status explain_text(Cli *c, const PlanView *v, const char *node) {
    bool found = false;
    for (uint64_t i = 0; i < v->plan.ntargets; i++)
        found |= explain_target(c, v, &v->plan.targets[i], node);
    return found ? GRAPHC_OK : explain_unknown(c, v, node);
}

/* --html and --dot, and --json beside them. */
static graphc_status explain_pictures(Cli *c) {
    Picture p;
    graphc_status s = picture_make(c, &p);
    if (s == GRAPHC_OK && c->dot) s = picture_dot(&p, c->dot);
    if (s == GRAPHC_OK && c->html) s = picture_page(&p, c->html);
    if (s == GRAPHC_OK && c->json) s = explain_json(c, &p.view);
    picture_close(&p);
    return s;
}

graphc_status cmd_explain(Cli *c) {
    const char *node = c->args.n > 1 ? c->args.v[1] : NULL;
    const char *other = c->args.n > 2 ? c->args.v[2] : NULL;
    bool pictures = c->html || c->dot;
    if ((c->json || pictures) && node)
        return cli_usage(c, "--json, --html and --dot tell of all nodes");
    if (c->profile && !c->html) return cli_usage(c, "--profile is for --html");
    if (pictures) return explain_pictures(c);
    PlanView v;
    GC_TRY(planview_open(c, c->args.v[0], &v));
    graphc_status s = c->json ? explain_json(c, &v)
                      : other ? explain_two(c, &v, node, other)
                              : explain_text(c, &v, node);
    planview_close(&v);
    return s;
}
