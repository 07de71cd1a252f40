/* graphc explain --html: the page (page.html), with what its script shows where it asks for it. */
#include "frontend/driver/cli/explain/picture.h"
#include "runtime/base/file.h"

#include <stdlib.h>
#include <string.h>

extern const unsigned char explain_page_html[]; /* page.html, made an array by embed.cmake */

#define HERE "{{DATA}}"

/* JSON inside of a script element: nothing in it may look like the element's end. */
static void put_data(StrBuf *s, const char *json) {
    for (const char *p = json; *p;) {
        size_t n = strcspn(p, "<");
        sb_putn(s, p, n);
        p += n;
        if (*p && *p++) sb_put(s, "\\u003c");
    }
}

graphc_status picture_page(const Picture *p, const char *path) {
    char why[256];
    StrBuf s;
    const char *page = (const char *)explain_page_html, *here = strstr(page, HERE);
    json_t *data = picture_data(p);
    char *json = json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(data);
    if (!json) return diag(p->cli->diags, D_NO_MEMORY, path, "no memory for the page");
    sb_init(&s, p->cli->arena);
    sb_putn(&s, page, (size_t)(here - page));
    put_data(&s, json);
    sb_put(&s, here + strlen(HERE));
    free(json);
    graphc_status st = diag_status(p->cli->diags);
    if (st != GRAPHC_OK) return st;
    st = file_write(path, sb_str(&s), s.n, why);
    return st == GRAPHC_OK ? st : diag(p->cli->diags, D_IO, path, "%s", why);
}
