#include "frontend/driver/cli/page.h"
#include "runtime/base/file.h"

#include <string.h>

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" "
    "href=\"data:,\">\n<style>\n"
    ":root{--back:#fff;--card:#f6f7f9;--text:#1c2126;--dim:#626b76;--grid:#dfe3e8;--poi:#1663c7;"
    "--red:#0e8a5f;--per:#8b5cf6;--tem:#c2410c}\n"
    "@media(prefers-color-scheme:dark){:root{--back:#14171b;--card:#1d2228;--text:#e8ebee;"
    "--dim:#98a2ad;--grid:#333a43;--poi:#6cabff;--red:#4ade9f;--per:#b79cff;--tem:#ff9d5c}}\n"
    "*{box-sizing:border-box}body{margin:0 "
    "auto;max-width:76rem;padding:1rem;background:var(--back);"
    "color:var(--text);font:15px/1.4 system-ui,sans-serif}\n"
    "h1{font-size:1.3rem;overflow-wrap:anywhere}h2{font-size:1rem;margin:0 0 .6rem}\n"
    "section{background:var(--card);border-radius:.6rem;padding:1rem;margin:1rem "
    "0;overflow-x:auto}\n"
    "svg{display:block;width:100%;height:auto}svg.time{height:3rem}svg.plot{min-width:36rem}text{"
    "fill:var(--dim);font-size:"
    "12px}\n"
    ".grid{stroke:var(--grid)}.roof{stroke:var(--dim);fill:none;stroke-width:1.5}\n"
    ".poi{fill:var(--poi);color:var(--poi)}.red{fill:var(--red);color:var(--red)}"
    ".per{fill:var(--per);color:var(--per)}.tem{fill:var(--tem);color:var(--tem)}\n"
    "circle{fill-opacity:.65}svg.time rect{stroke:var(--card);stroke-width:.4}\n"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
    "th{color:var(--dim);font-weight:400;font-size:.8rem}td,th{text-align:right;padding:.15rem "
    ".6rem;"
    "vertical-align:top;white-space:nowrap}td:last-child,th:last-child{text-align:left;"
    "white-space:normal;min-width:14rem;overflow-wrap:anywhere}"
    "tr+tr td{border-top:1px solid var(--grid)}pre{margin:.2rem 0;white-space:pre-wrap;"
    "color:var(--dim);font-size:.8rem}.bad{fill:#d1242f;color:#d1242f;font-weight:600}.ok{fill:var("
    "--red)}"
    /* On a phone each row's name stands above its numbers. */
    "\n@media(max-width:40rem){table,tbody{display:block}tr{display:flex;flex-wrap:wrap}"
    "tr+tr{border-top:1px solid var(--grid)}tr+tr td{border:0}"
    "td,th{flex:1 0 0;padding:.15rem .2rem}th{white-space:normal}"
    "td:last-child,th:last-child{flex:1 0 100%;order:-1;min-width:0}}"
    "\n</style>\n<title>";

void page_text(StrBuf *s, const char *text) {
    for (; *text; text++) {
        const char *as = *text == '<'   ? "&lt;"
                         : *text == '&' ? "&amp;"
                         : *text == '"' ? "&quot;"
                                        : NULL;
        if (as)
            sb_put(s, as);
        else
            sb_putn(s, (unsigned char)*text < 32 && *text != '\n' ? " " : text, 1);
    }
}

void page_begin(StrBuf *s, Arena *a, const char *title) {
    const char *folder = strrchr(title, '/'), *name = folder ? folder + 1 : title;
    sb_init(s, a);
    sb_put(s, head);
    page_text(s, name);
    sb_put(s, "</title></head><body><h1 title=\"");
    page_text(s, title);
    sb_put(s, "\">");
    page_text(s, name);
    sb_put(s, "</h1>");
}

graphc_status page_end(Cli *c, StrBuf *s, const char *path) {
    char why[256];
    sb_put(s, "</body></html>\n");
    graphc_status st = file_write(path, sb_str(s), s->n, why);
    return st == GRAPHC_OK ? st : diag(c->diags, D_IO, path, "%s", why);
}
