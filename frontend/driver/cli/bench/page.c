/* The page of bench: kernels in time, against what the target could do, and as a table. */
#include "frontend/driver/cli/bench/bench.h"
#include "frontend/driver/cli/page.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 760, HEIGHT = 412 };

/* The roofline's plot: powers of two of operations a byte, powers of ten of operations a second;
 * as far as the target's rates and all kernels lie. */
typedef struct Plot {
    int left, right, low, high;
} Plot;

static double total(const BenchRun *r) {
    double sum = 0;
    for (uint32_t i = 0; i < r->n; i++) sum += r->kernels[i].seconds;
    return sum > 0 ? sum : 1e-9;
}

static void title(StrBuf *s, const BenchKernel *k) {
    sb_printf(s, "<title>%s: %.1f us, estimated %.1f us\n", k->step.kernel, k->seconds * 1e6,
              k->least * 1e6);
    page_text(s, k->step.nodes);
    sb_put(s, "</title>");
}

static void timeline(StrBuf *s, const BenchRun *r) {
    double at = 0, scale = 1000 / total(r);
    sb_put(s, "<section><h2>Kernels one behind the other</h2>\n<svg class=\"time\" role=\"img\" "
              "aria-label=\"timeline\" viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\">\n");
    for (uint32_t i = 0; i < r->n; at += r->kernels[i++].seconds) {
        const BenchKernel *k = &r->kernels[i];
        sb_printf(s, "<rect class=\"%s\" x=\"%.3f\" y=\"0\" width=\"%.3f\" height=\"10\">",
                  k->step.kind, at * scale, k->seconds * scale);
        title(s, k);
        sb_put(s, "</rect>\n");
    }
    sb_put(s, "</svg><p><span class=\"poi\">pointwise</span> <span class=\"red\">reduction</span> "
              "<span class=\"per\">normalisation</span> <span "
              "class=\"tem\">template</span></p></section>\n");
}

static void include(Plot *p, double flops_per_byte, double flops_per_s) {
    int x = (int)floor(log2(flops_per_byte)), y = (int)floor(log10(flops_per_s));
    if (x < p->left) p->left = x;
    if (x >= p->right) p->right = x + 1;
    if (y < p->low) p->low = y;
    if (y >= p->high) p->high = y + 1;
}

static bool is_drawn(const BenchKernel *k) {
    return k->step.flops > 0 && k->step.bytes > 0 && k->seconds > 0;
}

static Plot plot_of(const BenchRun *r, double cores) {
    const Machine *m = r->machine;
    const double bytes = m->bytes_per_s * cores, flops = m->flops_per_s * cores;
    Plot p = {.left = -2, .right = 4, .low = 9, .high = 9};
    include(&p, flops / bytes, flops);
    if (m->matrix_flops_per_s > 0)
        include(&p, m->matrix_flops_per_s * cores / bytes, m->matrix_flops_per_s * cores);
    for (uint32_t i = 0; i < r->n; i++) {
        const BenchKernel *k = &r->kernels[i];
        if (is_drawn(k)) include(&p, k->step.flops / k->step.bytes, k->step.flops / k->seconds);
    }
    return p;
}

static double x_of(const Plot *p, double flops_per_byte) {
    return 50 + (WIDTH - 60) * (log2(flops_per_byte) - p->left) / (p->right - p->left);
}

static double y_of(const Plot *p, double flops_per_s) {
    return 10 + (HEIGHT - 56) * (p->high - log10(flops_per_s)) / (p->high - p->low);
}

/* Memory's slope, as far as it is in the plot, up to a rate of arithmetic, and from there on that
 * rate. */
static void roof(StrBuf *s, const Plot *p, double bytes_per_s, double flops_per_s,
                 const char *name) {
    double bend = flops_per_s / bytes_per_s;
    double first = fmax(exp2(p->left), pow(10, p->low) / bytes_per_s);
    sb_printf(s, "<path class=\"roof\" d=\"M%.1f %.1fL%.1f %.1fH%d\"/>", x_of(p, first),
              y_of(p, first * bytes_per_s), x_of(p, bend), y_of(p, flops_per_s), WIDTH - 10);
    sb_printf(s, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", WIDTH - 10,
              y_of(p, flops_per_s) - 4, name);
}

static void put_rate(StrBuf *s, double v) {
    static const char unit[] = " kMGTPE";
    int e = 0;
    for (; v >= 999.5 && unit[e + 1]; e++) v /= 1000;
    sb_printf(s, "%g%.*s", v, e > 0, &unit[e]);
}

static void grid(StrBuf *s, const Plot *p) {
    for (int e = p->low; e <= p->high; e++) {
        double y = y_of(p, pow(10, e));
        sb_printf(s,
                  "<path class=\"grid\" d=\"M50 %.1fH%d\"/><text x=\"46\" y=\"%.1f\" text-anchor="
                  "\"end\">",
                  y, WIDTH - 10, y + 4);
        put_rate(s, pow(10, e));
        sb_put(s, "</text>\n");
    }
    for (int e = p->left; e <= p->right; e += 2)
        sb_printf(s, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n",
                  x_of(p, exp2(e)), HEIGHT - 26, exp2(e));
    sb_printf(s,
              "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">operations a byte; upwards: "
              "operations a second</text>\n",
              WIDTH / 2, HEIGHT - 6);
}

static void roofline(StrBuf *s, const BenchRun *r) {
    double cores = r->threads ? r->threads : 1, all = total(r);
    const Machine *m = r->machine;
    const Plot p = plot_of(r, cores);
    sb_printf(s,
              "<section><h2>Against the target's rates</h2>\n<svg class=\"plot\" role=\"img\" "
              "aria-label=\"roofline\" viewBox=\"0 0 %d %d\">\n",
              WIDTH, HEIGHT);
    grid(s, &p);
    roof(s, &p, m->bytes_per_s * cores, m->flops_per_s * cores, "arithmetic");
    if (m->matrix_flops_per_s > 0)
        roof(s, &p, m->bytes_per_s * cores, m->matrix_flops_per_s * cores, "matrix units");
    for (uint32_t i = 0; i < r->n; i++) {
        const BenchKernel *k = &r->kernels[i];
        if (!is_drawn(k)) continue;
        sb_printf(s, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\">", k->step.kind,
                  x_of(&p, k->step.flops / k->step.bytes), y_of(&p, k->step.flops / k->seconds),
                  3 + 20 * sqrt(k->seconds / all));
        title(s, k);
        sb_put(s, "</circle>\n");
    }
    sb_put(s, "</svg></section>\n");
}

static int longest_first(const void *a, const void *b) {
    const BenchKernel *x = *(const BenchKernel *const *)a, *y = *(const BenchKernel *const *)b;
    if (x->seconds != y->seconds) return x->seconds < y->seconds ? 1 : -1;
    return (x > y) - (x < y);
}

static void table(StrBuf *s, Arena *a, const BenchRun *r) {
    const BenchKernel **by_time = ARENA_ARRAY(a, const BenchKernel *, r->n);
    for (uint32_t i = 0; i < r->n; i++) by_time[i] = &r->kernels[i];
    if (r->n) qsort(by_time, r->n, sizeof *by_time, longest_first);
    sb_put(s, "<section><h2>Longest first</h2>\n<table><tr><th>us<th>%<th>GB/s<th>GFLOP/s"
              "<th>estimated us<th>kernel and nodes</tr>\n");
    for (uint32_t i = 0; i < r->n; i++) {
        const BenchKernel *k = by_time[i];
        double t = k->seconds > 0 ? k->seconds : 1e-9;
        sb_printf(s,
                  "<tr><td>%.1f<td>%.1f<td>%.1f<td>%.1f<td>%.1f<td><details><summary><span "
                  "class=\"%s\">%s</span></summary><pre>",
                  t * 1e6, 100 * t / total(r), k->step.bytes / t * 1e-9, k->step.flops / t * 1e-9,
                  k->least * 1e6, k->step.kind, k->step.kernel);
        page_text(s, k->step.nodes);
        sb_put(s, "</pre></details></tr>\n");
    }
    sb_put(s, "</table></section>\n");
}

graphc_status bench_page(Cli *c, const BenchRun *r, const char *path) {
    StrBuf s;
    page_begin(&s, c->arena, r->plan);
    sb_put(&s, "<pre>");
    page_text(&s, bench_facts(r));
    sb_printf(&s,
              "</pre><p>A run takes %.3f ms (median); %u kernels, %.3f ms where each is timed "
              "alone.</p>\n",
              r->median * 1e3, r->n, total(r) * 1e3);
    timeline(&s, r);
    roofline(&s, r);
    table(&s, c->arena, r);
    return page_end(c, &s, path);
}
