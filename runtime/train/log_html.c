/* The page of a run: curves as inline SVG whose text is HTML, so that it stays legible at any
 * width. */
#include "runtime/base/file.h"
#include "runtime/train/json_read.h"
#include "runtime/train/log.h"
#include "runtime/train/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Point {
    double step, value;
} Point;

typedef struct Series {
    Point *v;
    size_t n, room;
    bool failed;
} Series;

enum { LOSS, LR, NORM, RATE, BYTES, TOKENS, EVAL, SERIES };
static const char *const fields[SERIES] = {"loss",       "lr",     "grad_norm", "tokens_per_s",
                                           "peak_bytes", "tokens", "eval_loss"};

static void add(Series *s, double step, double value) {
    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 256;
        Point *v = reallocarray(s->v, room, sizeof *v);
        if (!v) {
            s->failed = true;
            return;
        }
        s->v = v;
        s->room = room;
    }
    s->v[s->n++] = (Point){step, value};
}

/* --- reading -------------------------------------------------------------------------------- */

static bool take_line(const char *line, size_t n, Series *all) {
    JsonRead r;
    JsonSpan key;
    double step = 0, value[SERIES];
    for (int k = 0; k < SERIES; k++) value[k] = (double)NAN;
    jr_init(&r, line, n);
    for (jr_object(&r); jr_key(&r, &key);) {
        int k = 0;
        while (k < SERIES && !jr_is(key, fields[k])) k++;
        if (jr_is(key, "step"))
            jr_f64(&r, &step);
        else if (k < SERIES && jr_kind(&r) == JR_number)
            jr_f64(&r, &value[k]);
        else
            jr_skip(&r);
    }
    if (!jr_end(&r)) return false;
    for (int k = 0; k < SERIES; k++)
        if (!isnan(value[k])) add(&all[k], step, value[k]);
    return true;
}

static graphc_status read_lines(const char *path, Series *all, ErrorText e) {
    FileMap m;
    char why[256];
    graphc_status st = file_map(path, &m, why);
    if (st != GRAPHC_OK) return error_set(e, st, "%s %s", path, why);
    const char *at = (const char *)m.data, *end = at + m.size;
    for (uint64_t line = 1; st == GRAPHC_OK && at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) break; /* being written */
        if (!take_line(at, (size_t)(stop - at), all))
            st = error_set(e, GRAPHC_INVALID, "%s: line %llu is no line of a log", path,
                           (unsigned long long)line);
        at = stop + 1;
    }
    if (m.data) file_unmap(&m);
    for (int k = 0; k < SERIES; k++)
        if (st == GRAPHC_OK && all[k].failed)
            st = error_set(e, GRAPHC_NO_MEMORY, "not enough memory for the curves");
    return st;
}

/* --- scales --------------------------------------------------------------------------------- */

typedef struct Range {
    double lo, hi, tick;
} Range;

/* 1, 2 or 5 times a power of ten, some five of which make the span. */
static double tick_of(double span) {
    double raw = span / 5, base = pow(10, floor(log10(raw))), m = raw / base;
    return base * (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10);
}

/* Ends that are nearly the same are one value: steps between them would lead nowhere. */
static Range range_of(double lo, double hi) {
    if (!(hi - lo > 1e-9 * (fabs(lo) + fabs(hi)))) {
        double around = fabs(hi) > 0 ? fabs(hi) / 2 : 1;
        lo -= around;
        hi += around;
    }
    double t = tick_of(hi - lo);
    return (Range){floor(lo / t) * t, ceil(hi / t) * t, t};
}

static void extend(const Series *s, double *lo, double *hi) {
    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i].value < *lo) *lo = s->v[i].value;
        if (s->v[i].value > *hi) *hi = s->v[i].value;
    }
}

static double at(const Range *r, double v) {
    return (v - r->lo) / (r->hi - r->lo);
}

/* --- text ----------------------------------------------------------------------------------- */

static void escaped(Text *t, const char *s) {
    for (; *s; s++) {
        const char *as = *s == '<'   ? "&lt;"
                         : *s == '>' ? "&gt;"
                         : *s == '&' ? "&amp;"
                         : *s == '"' ? "&quot;"
                                     : NULL;
        if (as)
            text_put(t, as);
        else
            text_putn(t, s, 1);
    }
}

/* At most four digits that matter, thousands as k, M, G. */
static void number(Text *t, double v) {
    static const char *const units[] = {"", "k", "M", "G", "T"};
    double a = fabs(v);
    int k = 0;
    if (a > 0 && a < 1e-3) {
        text_printf(t, "%.3g", v);
        return;
    }
    while (a >= 10000 && k < 4) a /= 1000, v /= 1000, k++;
    text_printf(t, "%.4g%s", v, units[k]);
}

/* --- one plot ------------------------------------------------------------------------------- */

enum { WIDTH = 1000, HEIGHT = 400, BUCKETS = 500 };

static void move(Text *t, const Range *x, const Range *y, double step, double value,
                 char *command) {
    text_printf(t, "%c%.1f %.1f", *command, at(x, step) * WIDTH, (1 - at(y, value)) * HEIGHT);
    *command = 'L';
}

/* The curve; where there are many points, the least and the largest of each part of them. */
static void path(Text *t, const Series *s, const Range *x, const Range *y, const char *class) {
    size_t each = s->n / BUCKETS + 1;
    char command = 'M';
    text_printf(t, "<path class=\"%s\" d=\"", class);
    for (size_t i = 0; i < s->n; i += each) {
        size_t end = i + each < s->n ? i + each : s->n, lo = i, hi = i;
        for (size_t k = i; k < end; k++) {
            if (s->v[k].value < s->v[lo].value) lo = k;
            if (s->v[k].value > s->v[hi].value) hi = k;
        }
        size_t first = lo < hi ? lo : hi, last = lo < hi ? hi : lo;
        move(t, x, y, s->v[first].step, s->v[first].value, &command);
        if (last != first) move(t, x, y, s->v[last].step, s->v[last].value, &command);
    }
    text_put(t, s->n == 1 ? "h.1\"/>" : "\"/>"); /* one point is a dot */
}

/* The mean of each step and its neighbours, as many behind as in front where there are: it lags
 * behind no steep beginning, and ends without noise. */
static bool smooth(const Series *s, Series *out) {
    double *sum = calloc(s->n + 1, sizeof *sum);
    size_t most = s->n / 50;
    for (size_t i = 0; sum && i < s->n; i++) sum[i + 1] = sum[i] + s->v[i].value;
    for (size_t i = 0; sum && i < s->n; i++) {
        size_t before = i < most ? i : most, rest = s->n - 1 - i;
        size_t after = before < rest ? before : rest;
        add(out, s->v[i].step,
            (sum[i + after + 1] - sum[i - before]) / (double)(before + after + 1));
    }
    out->failed |= !sum;
    free(sum);
    return !out->failed;
}

static void grid(Text *t, const Range *x, const Range *y) {
    for (double v = y->lo; v <= y->hi + y->tick / 2; v += y->tick)
        text_printf(t, "<path class=\"grid\" d=\"M0 %.1fH%d\"/>", (1 - at(y, v)) * HEIGHT, WIDTH);
    for (double v = ceil(x->lo / x->tick) * x->tick; v <= x->hi + x->tick / 1e6; v += x->tick)
        text_printf(t, "<path class=\"grid\" d=\"M%.1f 0V%d\"/>", at(x, v) * WIDTH, HEIGHT);
}

static void axes(Text *t, const Range *x, const Range *y) {
    for (double v = y->lo; v <= y->hi + y->tick / 2; v += y->tick) {
        text_printf(t, "<span class=\"y\" style=\"bottom:%.2f%%\">", at(y, v) * 100);
        number(t, fabs(v) < y->tick / 1e6 ? 0 : v);
        text_put(t, "</span>");
    }
    for (double v = ceil(x->lo / x->tick) * x->tick; v <= x->hi + x->tick / 1e6; v += x->tick) {
        text_printf(t, "<span class=\"x\" style=\"left:%.2f%%\">", at(x, v) * 100);
        number(t, v);
        text_put(t, "</span>");
    }
}

/* For the script: what the pointer is at. */
static void points(Text *t, const Series *s) {
    size_t each = s->n / BUCKETS + 1;
    for (size_t i = 0; i < s->n; i += each)
        text_printf(t, "%s%.0f,%.6g", i ? " " : "", s->v[i].step, s->v[i].value);
}

static void plot(Text *t, const char *title, const char *note, const Series *s, const Series *eval,
                 const Range *x, bool from_zero, bool even_out) {
    double lo = from_zero ? 0 : HUGE_VAL, hi = from_zero ? 0 : -HUGE_VAL;
    Series even = {0};
    if (!s->n) return;
    extend(s, &lo, &hi);
    if (eval) extend(eval, &lo, &hi);
    Range y = range_of(lo, hi);
    bool noisy = even_out && s->n > 40 && smooth(s, &even);
    text_printf(t,
                "<figure><figcaption><b>%s%s</b><output></output></figcaption><div class=\"plot\" "
                "data-lo=\"%.9g\" "
                "data-hi=\"%.9g\" data-points=\"",
                title, note, x->lo, x->hi);
    points(t, s);
    text_printf(t,
                "\"><svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" role=\"img\" "
                "aria-label=\"%s by step\">",
                WIDTH, HEIGHT, title);
    grid(t, x, &y);
    path(t, s, x, &y, noisy ? "raw" : "curve");
    if (noisy) path(t, &even, x, &y, "curve");
    if (eval && eval->n) path(t, eval, x, &y, "eval");
    text_put(t, "</svg><i></i>");
    axes(t, x, &y);
    text_put(t, "</div></figure>\n");
    free(even.v);
}

/* --- the page ------------------------------------------------------------------------------- */

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" "
    "href=\"data:,\">\n<style>\n"
    ":root{--back:#fff;--card:#f6f7f9;--text:#1c2126;--dim:#626b76;--grid:#dfe3e8;--curve:#1663c7;"
    "--raw:#a9c7ee;--eval:#c2410c}\n"
    "@media(prefers-color-scheme:dark){:root{--back:#14171b;--card:#1d2228;--text:#e8ebee;--dim:#"
    "98a2ad;"
    "--grid:#333a43;--curve:#6cabff;--raw:#31527c;--eval:#ff9d5c}}\n"
    "*{box-sizing:border-box}body{margin:0 "
    "auto;max-width:76rem;padding:1rem;background:var(--back);"
    "color:var(--text);font:15px/1.4 system-ui,sans-serif}\n"
    "h1{font-size:1.3rem;margin:.3rem 0 1rem;overflow-wrap:anywhere}\n"
    "dl{display:flex;flex-wrap:wrap;gap:.6rem 2rem;margin:0 0 "
    "1rem}dt{color:var(--dim);font-size:.8rem}"
    "dd{margin:0;font-size:1.15rem;font-variant-numeric:tabular-nums}\n"
    "main{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr))}"
    "\n"
    "figure{margin:0;background:var(--card);border-radius:.6rem;padding:.8rem 1rem 2rem "
    "3.8rem;min-width:0}\n"
    "figcaption{margin:0 0 .8rem "
    "-2.8rem;font-weight:600;display:flex;justify-content:space-between}\n"
    "output{font-weight:400;color:var(--dim);font-variant-numeric:tabular-nums}\n"
    ".key{font-weight:400;color:var(--eval)}\n"
    ".plot{position:relative;height:15rem}svg{width:100%;height:100%;display:block;overflow:"
    "visible}\n"
    "path{fill:none;vector-effect:non-scaling-stroke;stroke-linejoin:round;stroke-linecap:round}."
    "grid{stroke:var(--grid)"
    "}\n"
    ".curve{stroke:var(--curve);stroke-width:2}.raw{stroke:var(--raw)}.eval{stroke:var(--eval);"
    "stroke-width:2}\n"
    ".plot span{position:absolute;color:var(--dim);font-size:.75rem;white-space:nowrap;"
    "font-variant-numeric:tabular-nums}\n"
    ".y{right:100%;padding-right:.5rem;transform:translateY(50%)}"
    ".x{top:100%;padding-top:.3rem;transform:translateX(-50%)}\n"
    ".plot "
    "i{position:absolute;top:0;bottom:0;width:1px;background:var(--dim);display:none;pointer-"
    "events:none}\n"
    "</style>\n<title>";

static const char script[] =
    "<script>\n"
    "for (const plot of document.querySelectorAll('.plot')) {\n"
    "  const points = plot.dataset.points.split(' ').map(p => p.split(',').map(Number));\n"
    "  const lo = +plot.dataset.lo, hi = +plot.dataset.hi, mark = plot.querySelector('i');\n"
    "  const out = plot.parentNode.querySelector('output');\n"
    "  plot.onpointermove = e => {\n"
    "    const box = plot.getBoundingClientRect(), step = lo + (e.clientX - box.left) / box.width "
    "* (hi - lo);\n"
    "    const [x, y] = points.reduce((a, b) => Math.abs(b[0] - step) < Math.abs(a[0] - step) ? b "
    ": a);\n"
    "    mark.style.display = 'block';\n"
    "    mark.style.left = (x - lo) / (hi - lo) * 100 + '%';\n"
    "    out.textContent = 'step ' + x + ': ' + y;\n"
    "  };\n"
    "  plot.onpointerleave = () => { mark.style.display = 'none'; out.textContent = ''; };\n"
    "}\n"
    "</script>\n";

static void fact(Text *t, const char *name, bool there, double v, const char *unit) {
    if (!there) return;
    text_printf(t, "<div><dt>%s</dt><dd>", name);
    number(t, v);
    text_printf(t, "%s</dd></div>", unit);
}

static double last(const Series *s) {
    return s->n ? s->v[s->n - 1].value : 0;
}

static double least(const Series *s) {
    double lo = HUGE_VAL, hi = -HUGE_VAL;
    extend(s, &lo, &hi);
    return lo;
}

static double largest(const Series *s) {
    double lo = HUGE_VAL, hi = -HUGE_VAL;
    extend(s, &lo, &hi);
    return hi;
}

static double mean(const Series *s) {
    double sum = 0;
    for (size_t i = 0; i < s->n; i++) sum += s->v[i].value;
    return s->n ? sum / (double)s->n : 0;
}

static void facts(Text *t, const Series *s) {
    text_put(t, "<dl>");
    fact(t, "steps", s[LOSS].n, s[LOSS].n ? s[LOSS].v[s[LOSS].n - 1].step : 0, "");
    fact(t, "loss", s[LOSS].n, last(&s[LOSS]), "");
    fact(t, "held-out loss", s[EVAL].n, last(&s[EVAL]), "");
    fact(t, "best held-out loss", s[EVAL].n, least(&s[EVAL]), "");
    fact(t, "tokens", s[TOKENS].n, last(&s[TOKENS]), "");
    fact(t, "tokens/s", s[RATE].n, mean(&s[RATE]), "");
    fact(t, "peak memory", s[BYTES].n, largest(&s[BYTES]), "B");
    text_put(t, "</dl>\n");
}

static void page(Text *t, const char *title, const Series *s) {
    double first = 0, end = 1;
    for (int k = 0; k < SERIES; k++)
        if (s[k].n && s[k].v[s[k].n - 1].step > end) end = s[k].v[s[k].n - 1].step;
    Range x = {first, end, tick_of(end)};
    text_put(t, head);
    escaped(t, title);
    text_put(t, "</title></head><body>\n<h1>");
    escaped(t, title);
    text_put(t, "</h1>\n");
    facts(t, s);
    text_put(t, "<main>\n");
    plot(t, "Loss", s[EVAL].n ? " <span class=\"key\">held out</span>" : "", &s[LOSS], &s[EVAL], &x,
         false, true);
    plot(t, "Learning rate", "", &s[LR], NULL, &x, true, false);
    plot(t, "Tokens per second", "", &s[RATE], NULL, &x, true, true);
    plot(t, "Gradient norm", "", &s[NORM], NULL, &x, true, true);
    text_put(t, "</main>\n");
    text_put(t, script);
    text_put(t, "</body></html>\n");
}

graphc_status log_html(const char *lines_path, const char *html_path, const char *title,
                       ErrorText e) {
    Series all[SERIES] = {0};
    Text t = {0};
    char why[256];
    graphc_status st = read_lines(lines_path, all, e);
    if (st == GRAPHC_OK) {
        page(&t, title, all);
        st = t.failed ? error_set(e, GRAPHC_NO_MEMORY, "not enough memory for the page")
                      : file_write(html_path, t.p, t.n, why);
        if (st != GRAPHC_OK && !t.failed) st = error_set(e, st, "%s %s", html_path, why);
    }
    for (int k = 0; k < SERIES; k++) free(all[k].v);
    text_free(&t);
    return st;
}
