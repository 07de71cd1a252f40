/* What kernels and lines of a plan say, taken apart. */
#include "frontend/driver/cli/explain/explain.h"

#include <ctype.h>
#include <string.h>

const Machine *explain_machine(const PlanView *v, const PlanTarget *t) {
    const char *name = plan_str(&v->plan, t->name);
    const Target *row = target_find(name, strlen(name));
    return row ? &row->machine : &target_for((PlanDevice)t->device)->machine;
}

Bound explain_bound(const PlanView *v, const PlanTarget *t, const PlanKernel *k) {
    Bound b = {.bytes = (double)v->slots[k->bytes_read] + (double)v->slots[k->bytes_written],
               .flops = (double)v->slots[k->flops]};
    b.seconds = planview_least(explain_machine(v, t), plan_str(&v->plan, k->kind), b.bytes, b.flops,
                               &b.memory);
    return b;
}

bool explain_has_word(const char *line, size_t n, const char *word) {
    size_t size = strlen(word);
    for (const char *p = line; size && p + size <= line + n; p++) {
        if (memcmp(p, word, size) != 0) continue;
        bool begins = p == line || !(isalnum((unsigned char)p[-1]) || p[-1] == '_');
        if (begins && !(isalnum((unsigned char)p[size]) || p[size] == '_')) return true;
    }
    return false;
}

bool explain_covers(Arena *a, const char *nodes, const char *node) {
    const char *name = arena_printf(a, "\"%s\"", node);
    bool number = node[strspn(node, "0123456789")] == 0;
    const char *place = number ? arena_printf(a, "node %s", node) : name;
    for (; *nodes; nodes += strcspn(nodes, "\n"), nodes += *nodes == '\n') {
        size_t n = strcspn(nodes, "\n");
        if (number ? explain_has_word(nodes, n, place)
                   : memmem(nodes, n, name, strlen(name)) != NULL)
            return true;
    }
    return false;
}

const char *explain_line(Arena *a, const char **text) {
    size_t n = strcspn(*text, "\n");
    if (!**text) return NULL;
    const char *line = arena_strndup(a, *text, n);
    *text += n + ((*text)[n] == '\n');
    return line;
}

const char *explain_node(Arena *a, const char *line, bool *view) {
    size_t n = strlen(line), extra = strlen(PLAN_LOOKED_THROUGH);
    *view = n > extra && strcmp(line + n - extra, PLAN_LOOKED_THROUGH) == 0;
    return *view ? arena_strndup(a, line, n - extra) : line;
}

const char *explain_reason(const char *line) {
    const char *why = line, *p = line;
    while ((p = strstr(p, ": "))) why = p += 2;
    return why;
}
