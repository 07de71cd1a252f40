/* graphc explain --json. */
#include "frontend/driver/cli/explain/explain.h"
#include "frontend/driver/cli/json.h"

static void json_nodes(Cli *c, json_t *kernel, const char *text) {
    json_t *computed = json_add(kernel, "nodes", json_array());
    json_t *views = json_add(kernel, "views", json_array());
    for (const char *line; (line = explain_line(c->arena, &text));) {
        bool view;
        const char *node = explain_node(c->arena, line, &view);
        json_array_append_new(view ? views : computed, json_string(node));
    }
}

static void json_steps(Cli *c, const PlanView *v, const PlanTarget *t, PlanRange r, json_t *list) {
    PLANVIEW_EACH_KERNEL(v, t, r.from, r.to, step) {
        const PlanKernel *k = planview_kernel(v, t, step);
        Bound b = explain_bound(v, t, k);
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
        json_object_set_new(entry, "name",
                            json_string(plan_str(&v->plan, v->plan.entries[e].name)));
        json_steps(c, v, t, plan_range(&v->plan, t, e), json_add(entry, "kernels", json_array()));
        json_array_append_new(runs, entry);
    }
    json_object_set_new(j, "notes", json_lines(plan_str(&v->plan, t->notes)));
    json_t *apart = json_add(j, "in_no_kernel", json_array());
    const char *text = plan_str(&v->plan, t->apart);
    for (const char *line; (line = explain_line(c->arena, &text));) {
        const char *why = explain_reason(line);
        json_t *n = json_object();
        json_object_set_new(n, "node", json_stringn(line, (size_t)(why - line) - 2));
        json_object_set_new(n, "why", json_string(why));
        json_array_append_new(apart, n);
    }
    return j;
}

graphc_status explain_json(Cli *c, const PlanView *v) {
    json_t *j = json_begin(c->verb->name), *list = json_add(j, "targets", json_array());
    for (uint64_t i = 0; i < v->plan.ntargets; i++)
        json_array_append_new(list, json_target(c, v, &v->plan.targets[i]));
    json_finish(j, stdout);
    return GRAPHC_OK;
}
