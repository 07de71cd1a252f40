/* graphc explain: per kernel the nodes it covers and what bounds it, then what stayed apart and
 * why, and what became of the nodes that no kernel covers. */
#include "codegen/target.h"
#include "frontend/driver/cli/json.h"
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

typedef struct Bound {
    double bytes, flops, seconds; /* seconds: at least */
    bool memory;
} Bound;

static Bound bound_of(const PlanView *v, const PlanTarget *t, const PlanKernel *k) {
    Bound b = {.bytes = (double)v->slots[k->bytes_read] + (double)v->slots[k->bytes_written],
               .flops = (double)v->slots[k->flops]};
    b.seconds = planview_least(machine_of(v, t), plan_str(&v->plan, k->kind), b.bytes, b.flops,
                               &b.memory);
    return b;
}

static void print_kernel(const PlanView *v, const PlanTarget *t, const PlanKernel *k) {
    Bound b = bound_of(v, t, k);
    cli_print(stdout, "%s  %.3g MB, %.3g MFLOP: %s-bound, at least %.3g us\n",
              plan_str(&v->plan, k->name), b.bytes * 1e-6, b.flops * 1e-6,
              b.memory ? "memory" : "arithmetic", 1e6 * b.seconds);
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

/* The next line of *text, which moves on; NULL: there is none. */
static const char *next_line(Arena *a, const char **text) {
    size_t n = strcspn(*text, "\n");
    if (!**text) return NULL;
    const char *line = arena_strndup(a, *text, n);
    *text += n + ((*text)[n] == '\n');
    return line;
}

/* The reason in a line of nodes that no kernel covers. */
static const char *reason_of(const char *line) {
    const char *why = line, *p = line;
    while ((p = strstr(p, ": "))) why = p += 2;
    return why;
}

static uint32_t count_reason(Arena *a, const char *text, const char *why) {
    uint32_t n = 0;
    for (const char *line; (line = next_line(a, &text));) n += strcmp(reason_of(line), why) == 0;
    return n;
}

/* How many nodes no kernel covers, by reason. */
static void print_reasons(Cli *c, const char *apart) {
    TextList seen = {0};
    const char *text = apart;
    for (const char *line; (line = next_line(c->arena, &text));) {
        const char *why = reason_of(line);
        bool known = false;
        for (uint32_t i = 0; i < seen.n; i++) known |= strcmp(seen.v[i], why) == 0;
        if (known) continue;
        vec_push(c->arena, &seen, why);
        cli_print(stdout, "  in no kernel: %u nodes%s: %s\n", count_reason(c->arena, apart, why),
                  seen.n == 1 ? " (-v lists them)" : "", why);
    }
}

/* Nodes that no kernel covers: `node`, all, or how many. */
static bool explain_apart(Cli *c, const PlanView *v, const PlanTarget *t, const char *node) {
    const char *apart = plan_str(&v->plan, t->apart), *text = apart;
    bool found = false;
    if (!node && !c->verbose) print_reasons(c, apart);
    for (const char *line; (node || c->verbose) && (line = next_line(c->arena, &text));) {
        if (node && !covers(c, line, node)) continue;
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
    found |= explain_apart(c, v, t, node);
    return explain_steps(c, v, t, 0, t->nprepare, "once at load", node) || found || !node;
}

/* --- JSON --- */

static json_t *json_lines(Cli *c, const char *text) {
    json_t *list = json_array();
    for (const char *line; (line = next_line(c->arena, &text));)
        json_array_append_new(list, json_string(line));
    return list;
}

/* The node's text without what follows it, under one of two keys. */
static void json_nodes(Cli *c, json_t *kernel, const char *text) {
    json_t *computed = json_add(kernel, "nodes", json_array());
    json_t *views = json_add(kernel, "views", json_array());
    const size_t extra = strlen(PLAN_LOOKED_THROUGH);
    for (const char *line; (line = next_line(c->arena, &text));) {
        size_t n = strlen(line);
        bool view = n > extra && strcmp(line + n - extra, PLAN_LOOKED_THROUGH) == 0;
        json_array_append_new(view ? views : computed, json_stringn(line, view ? n - extra : n));
    }
}

static void json_steps(Cli *c, const PlanView *v, const PlanTarget *t, PlanRange r, json_t *list) {
    PLANVIEW_EACH_KERNEL(v, t, r.from, r.to, step) {
        const PlanKernel *k = planview_kernel(v, t, step);
        Bound b = bound_of(v, t, k);
        json_t *j = json_object();
        json_object_set_new(j, "name", json_string(plan_str(&v->plan, k->name)));
        json_object_set_new(j, "bytes", json_real(b.bytes));
        json_object_set_new(j, "flops", json_real(b.flops));
        json_object_set_new(j, "least_seconds", json_real(b.seconds));
        json_nodes(c, j, plan_str(&v->plan, k->nodes));
        json_array_append_new(list, j);
    }
}

static json_t *json_target(Cli *c, const PlanView *v, const PlanTarget *t) {
    json_t *j = json_object();
    json_object_set_new(j, "target", json_string(plan_str(&v->plan, t->name)));
    json_steps(c, v, t, (PlanRange){0, t->nprepare}, json_add(j, "at_load", json_array()));
    json_t *runs = json_add(j, "entries", json_array());
    for (uint32_t e = 0; e < v->plan.nentries; e++) {
        json_t *entry = json_object();
        json_object_set_new(entry, "name", json_string(plan_str(&v->plan, v->plan.entries[e].name)));
        json_steps(c, v, t, plan_range(&v->plan, t, e), json_add(entry, "kernels", json_array()));
        json_array_append_new(runs, entry);
    }
    json_object_set_new(j, "notes", json_lines(c, plan_str(&v->plan, t->notes)));
    json_t *apart = json_add(j, "in_no_kernel", json_array());
    const char *text = plan_str(&v->plan, t->apart);
    for (const char *line; (line = next_line(c->arena, &text));) {
        const char *why = reason_of(line);
        json_t *n = json_object();
        json_object_set_new(n, "node", json_stringn(line, (size_t)(why - line) - 2));
        json_object_set_new(n, "why", json_string(why));
        json_array_append_new(apart, n);
    }
    return j;
}

static graphc_status explain_json(Cli *c, const PlanView *v, const char *node) {
    if (node) return cli_usage(c, "--json tells of all nodes");
    json_t *j = json_object(), *list = json_add(j, "targets", json_array());
    for (uint64_t i = 0; i < v->plan.ntargets; i++)
        json_array_append_new(list, json_target(c, v, &v->plan.targets[i]));
    json_finish(j, stdout);
    return GRAPHC_OK;
}

static graphc_status explain_text(Cli *c, const PlanView *v, const char *node) {
    bool found = false;
    for (uint64_t i = 0; i < v->plan.ntargets; i++)
        found |= explain_target(c, v, &v->plan.targets[i], node);
    if (found) return GRAPHC_OK;
    Near near = {.name = node};
    for (uint64_t i = 0; i < v->plan.nkernels; i++) {
        near_try(&near, plan_str(&v->plan, v->plan.kernels[i].name));
        try_names(c, plan_str(&v->plan, v->plan.kernels[i].nodes), &near);
    }
    for (uint64_t i = 0; i < v->plan.ntargets; i++)
        try_names(c, plan_str(&v->plan, v->plan.targets[i].apart), &near);
    (void)diag(c->diags, D_USAGE, "", "there is no node or kernel \"%s\"", node);
    if (near.best) diag_hint(c->diags, "did you mean \"%s\"?", near.best);
    return GRAPHC_USAGE;
}

graphc_status cmd_explain(Cli *c) {
    const char *node = c->args.n == 2 ? c->args.v[1] : NULL;
    PlanView v;
    GC_TRY(planview_open(c, c->args.v[0], &v));
    graphc_status s = c->json ? explain_json(c, &v, node) : explain_text(c, &v, node);
    planview_close(&v);
    return s;
}
