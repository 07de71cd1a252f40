/* What `graphc verify` has found, as text and JSON. */
#include "frontend/driver/cli/json.h"
#include "frontend/driver/cli/verify/verify.h"

#include <math.h>

const CheckRow *verify_first_bad(const Verdict *v) {
    for (uint32_t i = 0; i < v->nrows; i++)
        if (v->rows[i].bad) return &v->rows[i];
    return NULL;
}

static void print_output(const Verdict *v, const Trial *t, uint32_t i) {
    const Comparison *x = &v->outputs[i];
    const OutputBound *b = &v->bound[i];
    const char *name = graphc_plan_output(t->session.plan, i).name,
               *word = v->fine[i] ? "ok" : "BAD";
    if (!x->same_type) {
        cli_print(stdout, "%-4s %s: type or shape differs\n", word, name);
        return;
    }
    cli_print(stdout, "%-4s %s: %llu elements, max difference %.3g = %.3g std", word, name,
              (unsigned long long)x->count, x->max_abs, comparison_relative(x));
    if (x->unlike)
        cli_print(stdout, "; %llu are finite on one side only", (unsigned long long)x->unlike);
    if (v->files || v->tolerances)
        cli_print(stdout, "; allowed: %.3g + %.3g |value|", v->atol, v->rtol);
    else if (b->depth)
        cli_print(stdout, "; allowed: %.2g std, %u roundings deep, to %s at worst", b->std,
                  b->depth, dtype_name(b->coarsest));
    if (v->between[i])
        cli_print(stdout, "; it lies between the reference with and without these roundings");
    if (b->terms > 1) cli_print(stdout, "; it is a sum of terms %.2g times as large", b->terms);
    if (b->errors > 0)
        cli_print(stdout, "; element by element it is at %.2g of what rounding explains",
                  b->errors);
    cli_print(stdout, "\n");
}

static void print_rows(const Verdict *v, const Trial *t, const Cli *c) {
    const CheckRow *first = verify_first_bad(v), *worst = NULL;
    uint32_t bad = 0;
    if (c->verbose && v->nrows)
        cli_print(stdout, "\n%-5s%10s %9s %9s %9s  %s\n", "", "elements", "max diff", "mean diff",
                  "of bound", "stored by");
    for (uint32_t i = 0; i < v->nrows; i++) {
        const CheckRow *r = &v->rows[i];
        bad += r->bad > 0;
        if (!worst || r->of_bound > worst->of_bound) worst = r;
        if (!c->verbose && r != first) continue;
        const char *place = graph_place(t->pipe.graph, r->loc, t->memory);
        if (c->verbose)
            cli_print(stdout, "%-5s%10llu %9.2g %9.2g %9.2g  %s, %s\n",
                      r == first ? "BAD>"
                      : r->bad   ? "BAD"
                                 : "ok",
                      (unsigned long long)r->count, r->max_abs, r->mean_abs, r->of_bound, r->kernel,
                      place);
        else
            cli_print(stdout,
                      "BAD  %s, %s: %llu of %llu elements are beyond what rounding explains: max "
                      "difference %.3g\n",
                      r->kernel, place, (unsigned long long)r->bad, (unsigned long long)r->count,
                      r->max_abs);
    }
    if (worst)
        cli_print(stdout,
                  "%-4s %u of %u stored values agree, each on what its kernel was given; the worst "
                  "is at %.2g of what rounding explains, in %s\n",
                  bad ? "BAD" : "ok", v->nrows - bad, v->nrows, worst->of_bound, worst->kernel);
}

static json_t *json_number(double v) {
    return isfinite(v) ? json_real(v) : json_null();
}

static void print_json(const Verdict *v, const Trial *t) {
    json_t *j = json_begin("verify"), *outputs = json_add(j, "outputs", json_array());
    json_add(j, "ok", json_boolean(v->ok));
    json_t *rows = json_add(j, "stored", json_array());
    for (uint32_t i = 0; i < v->noutputs; i++) {
        const Comparison *x = &v->outputs[i];
        json_t *o = json_object();
        json_array_append_new(outputs, o);
        json_add(o, "name", json_string(graphc_plan_output(t->session.plan, i).name));
        json_add(o, "ok", json_boolean(v->fine[i]));
        json_add(o, "same_type", json_boolean(x->same_type));
        json_add(o, "elements", json_integer((json_int_t)x->count));
        json_add(o, "max_abs", json_number(x->max_abs));
        json_add(o, "mean_abs", json_number(x->mean_abs));
        json_add(o, "std", json_number(x->std));
        json_add(o, "max_std", json_number(comparison_relative(x)));
        json_add(o, "bound_std", json_number(v->bound[i].std));
        json_add(o, "between_references", json_boolean(v->between[i]));
        json_add(o, "roundings", json_integer(v->bound[i].depth));
    }
    for (uint32_t i = 0; i < v->nrows; i++) {
        const CheckRow *r = &v->rows[i];
        json_t *o = json_object();
        json_array_append_new(rows, o);
        json_add(o, "kernel", json_string(r->kernel));
        json_add(o, "node", json_string(graph_place(t->pipe.graph, r->loc, t->memory)));
        json_add(o, "dtype", json_string(dtype_name(r->dtype)));
        json_add(o, "prepared", json_boolean(r->prepared));
        json_add(o, "elements", json_integer((json_int_t)r->count));
        json_add(o, "bad", json_integer((json_int_t)r->bad));
        json_add(o, "max_abs", json_number(r->max_abs));
        json_add(o, "mean_abs", json_number(r->mean_abs));
        json_add(o, "of_bound", json_number(r->of_bound));
    }
    json_add(j, "first_bad", v->first_bad ? json_string(v->first_bad) : json_null());
    if (v->first_decision) json_add(j, "first_bad_decision", json_string(v->first_decision));
    json_finish(j, stdout);
}

void verify_report(const Verdict *v, const Trial *t, const Cli *c) {
    if (c->json) {
        print_json(v, t);
        return;
    }
    for (uint32_t i = 0; i < v->noutputs; i++) print_output(v, t, i);
    print_rows(v, t, c);
}
