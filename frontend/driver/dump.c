#include "frontend/driver/dump.h"
#include "runtime/base/file.h"
#include "runtime/error.h"
#include "runtime/plan.h"

#include <string.h>

graphc_status dump_open(Dump *d) {
    char why[256];
    if (!d->dir || folder_make(d->dir, why) == GRAPHC_OK) return GRAPHC_OK;
    return diag(d->diags, D_IO, d->dir, "%s", why);
}

static void put_text(Dump *d, const char *file, const char *text, size_t n) {
    char why[256];
    if (!d->dir) return;
    const char *path = arena_printf(d->arena, "%s/%s", d->dir, file);
    if (file_write(path, text, n, why) != GRAPHC_OK) (void)diag(d->diags, D_IO, path, "%s", why);
}

static void dump_buf(Dump *d, const char *file, const StrBuf *s) {
    put_text(d, file, sb_str(s), s->n);
}

void dump_graph(Dump *d, const char *file, const Graph *g) {
    if (!d->dir) return;
    StrBuf s;
    sb_init(&s, d->arena);
    graph_print(g, &s);
    dump_buf(d, file, &s);
}

void dump_schedule(Dump *d, const char *file, const Schedule *sched) {
    if (!d->dir) return;
    StrBuf s;
    sb_init(&s, d->arena);
    schedule_print(sched, &s);
    dump_buf(d, d->target ? arena_printf(d->arena, "%s.%s", d->target, file) : file, &s);
}

void dump_plan(Dump *d, const char *file, const void *plan, size_t size) {
    if (!d->dir) return;
    Plan p;
    char why[256] = "";
    if (plan_parse(plan, size, &p, (ErrorText){why, sizeof why}) != GRAPHC_OK) {
        (void)diag(d->diags, D_PLAN, file, "%s", why);
        return;
    }
    StrBuf s;
    sb_init(&s, d->arena);
    plan_print(&p, &s);
    dump_buf(d, file, &s);
    plan_release(&p);
}

void dump_pass(void *ctx, int index, const char *pass, const Graph *g) {
    Dump *d = ctx;
    if (d->dir) dump_graph(d, arena_printf(d->arena, "%02d-%s.gir", index, pass), g);
}

void dump_code(void *ctx, const char *kernel, const char *ext, const char *text, size_t n) {
    Dump *d = ctx;
    if (d->reader) d->reader->code(d->reader->ctx, d->code_of, kernel, ext, text, n);
    const char *prefix = d->target ? arena_printf(d->arena, "%s.", d->target) : "";
    put_text(d, arena_printf(d->arena, "%s%s.%s", prefix, kernel, ext), text, n);
}
