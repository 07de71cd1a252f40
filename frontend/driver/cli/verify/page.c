/* graphc verify --html: outputs, and every stored value beside what rounding explains. */
#include "frontend/driver/cli/page.h"
#include "frontend/driver/cli/verify/verify.h"

#include <math.h>

/* The plot's scale: powers of ten of the largest error over its bound. */
enum { LOW = -4, HIGH = 4, WIDTH = 760, HEIGHT = 240, LEFT = 50 };

static double y_of(double of_bound) {
    double e = of_bound > 0 ? log10(of_bound) : LOW;
    e = e < LOW ? LOW : e > HIGH ? HIGH : e;
    return 10 + (HEIGHT - 30) * (HIGH - e) / (HIGH - LOW);
}

static void put_outputs(StrBuf *s, const Verdict *v, const Trial *t) {
    sb_put(s, "<section><h2>Outputs</h2>\n<table><tr><th>elements<th>max difference<th>of std"
              "<th>allowed<th>roundings<th>output</tr>\n");
    for (uint32_t i = 0; i < v->noutputs; i++) {
        const Comparison *x = &v->outputs[i];
        sb_printf(s, "<tr><td>%llu<td>%.3g<td>%.3g<td>%.2g<td>%u<td%s>",
                  (unsigned long long)x->count, x->max_abs, comparison_relative(x), v->bound[i].std,
                  v->bound[i].depth, v->fine[i] ? "" : " class=\"bad\"");
        page_text(s, graphc_plan_output(t->session.plan, i).name);
        sb_put(s, x->same_type ? "</tr>\n" : ": type or shape differs</tr>\n");
    }
    sb_put(s, "</table></section>\n");
}

static void put_plot(StrBuf *s, const Verdict *v, const Trial *t) {
    double step = v->nrows ? (double)(WIDTH - LEFT - 10) / v->nrows : 0;
    sb_printf(s,
              "<section><h2>Stored values in launch order: the largest error over what rounding "
              "explains</h2>\n<svg class=\"plot\" role=\"img\" aria-label=\"errors\" viewBox=\"0 0 "
              "%d %d\">\n",
              WIDTH, HEIGHT);
    for (int e = LOW; e <= HIGH; e++)
        sb_printf(s,
                  "<path class=\"%s\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                  "text-anchor=\"end\">%g</text>\n",
                  e ? "grid" : "roof", LEFT, y_of(pow(10, e)), WIDTH - 10, LEFT - 4,
                  y_of(pow(10, e)) + 4, pow(10, e));
    for (uint32_t i = 0; i < v->nrows; i++) {
        const CheckRow *r = &v->rows[i];
        sb_printf(s, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"><title>",
                  r->bad ? "bad" : "ok", LEFT + (i + .5) * step, y_of(r->of_bound), r->bad ? 6 : 4);
        page_text(s, r->kernel);
        sb_put(s, ", ");
        page_text(s, graph_place(t->pipe.graph, r->loc, t->memory));
        sb_printf(s, ": %.2g</title></circle>\n", r->of_bound);
    }
    sb_put(s, "</svg></section>\n");
}

static void put_rows(StrBuf *s, const Verdict *v, const Trial *t) {
    sb_put(s, "<section><h2>Stored values</h2>\n<table><tr><th>elements<th>bad<th>max difference"
              "<th>mean<th>of bound<th>type<th>stored by</tr>\n");
    for (uint32_t i = 0; i < v->nrows; i++) {
        const CheckRow *r = &v->rows[i];
        sb_printf(s, "<tr><td>%llu<td>%llu<td>%.2g<td>%.2g<td%s>%.2g<td>%s<td>",
                  (unsigned long long)r->count, (unsigned long long)r->bad, r->max_abs, r->mean_abs,
                  r->bad ? " class=\"bad\"" : "", r->of_bound, dtype_name(r->dtype));
        page_text(s, r->kernel);
        sb_put(s, "<pre>");
        page_text(s, graph_place(t->pipe.graph, r->loc, t->memory));
        sb_put(s, "</pre></tr>\n");
    }
    sb_put(s, "</table></section>\n");
}

graphc_status verify_page(Cli *c, const Verdict *v, const Trial *t, const char *path) {
    StrBuf s;
    page_begin(&s, c->arena, c->args.v[0]);
    sb_put(&s, v->ok ? "<p>Everything agrees: outputs within what their roundings explain, each "
                       "stored value on what its kernel was given.</p>\n"
                     : "<p class=\"bad\">It differs. First bad node: ");
    if (!v->ok) {
        page_text(&s, v->first_bad ? v->first_bad : "not searched");
        if (v->first_decision) {
            sb_put(&s, "; first bad decision: ");
            page_text(&s, v->first_decision);
        }
        sb_put(&s, "</p>\n");
    }
    put_outputs(&s, v, t);
    put_plot(&s, v, t);
    put_rows(&s, v, t);
    return page_end(c, &s, path);
}
