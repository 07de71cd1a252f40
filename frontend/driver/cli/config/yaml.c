#include "frontend/driver/cli/config/yaml.h"

#include <stdbool.h>
#include <string.h>

typedef struct Yaml {
    const char *at, *end; /* of what is left of the text */
    const char *p, *stop; /* of what is left of the line at hand, without its end */
    int line;
    const char *wrong;  /* NULL while nothing is */
    json_t *all, *list; /* list: that lines "- x" go to, or NULL */
    size_t indent;      /* of the line at hand */
} Yaml;

static json_t *refuse(Yaml *y, const char *what) {
    if (!y->wrong) y->wrong = what;
    return NULL;
}

static bool next_line(Yaml *y) {
    if (y->at == y->end) return false;
    const char *stop = memchr(y->at, '\n', (size_t)(y->end - y->at));
    y->p = y->at;
    y->stop = stop ? stop : y->end;
    y->at = stop ? stop + 1 : y->end;
    if (y->stop > y->p && y->stop[-1] == '\r') y->stop--;
    y->line++;
    return true;
}

static void skip_blanks(Yaml *y) {
    while (y->p < y->stop && *y->p == ' ') y->p++;
}

/* Nothing is left of the line but blanks and a comment. */
static bool line_over(Yaml *y) {
    const char *before = y->p;
    skip_blanks(y);
    return y->p == y->stop || (*y->p == '#' && (y->p == before || y->p[-1] == ' '));
}

/* --- Scalars ---------------------------------------------------------------------------------- */

static json_t *single_quoted(Yaml *y) {
    json_t *all = json_string("");
    for (y->p++; y->p < y->stop;) {
        const char *from = y->p, *quote = memchr(from, '\'', (size_t)(y->stop - from));
        if (!quote) break;
        bool doubled = quote + 1 < y->stop && quote[1] == '\'';
        json_t *joined =
            json_sprintf("%s%.*s", json_string_value(all), (int)(quote - from + doubled), from);
        json_decref(all);
        all = joined;
        y->p = quote + 1 + doubled;
        if (!doubled) return all ? all : refuse(y, "a text that is not UTF-8");
    }
    json_decref(all);
    return refuse(y, "a ' that is not closed");
}

/* As JSON has it. */
static json_t *double_quoted(Yaml *y) {
    const char *p = y->p + 1;
    while (p < y->stop && *p != '"') p += *p == '\\' ? 2 : 1;
    if (p >= y->stop) return refuse(y, "a \" that is not closed");
    json_t *v = json_loadb(y->p, (size_t)(p + 1 - y->p), JSON_DECODE_ANY, NULL);
    y->p = p + 1;
    return v ? v : refuse(y, "a text in \" that JSON would not have");
}

static bool is_word(const char *p, size_t n, const char *const *words) {
    for (; *words; words++)
        if (strlen(*words) == n && memcmp(p, *words, n) == 0) return true;
    return false;
}

/* Up to a comment, or in a list in brackets up to what ends it. */
static json_t *plain(Yaml *y, bool in_list) {
    static const char *const yes[] = {"true", "True", "TRUE", NULL},
                             *const no[] = {"false", "False", "FALSE", NULL},
                             *const none[] = {"null", "Null", "NULL", "~", NULL};
    const char *p = y->p, *end;
    if (strchr("&*!|>%@`{}?", *p)) return refuse(y, "YAML beyond names, scalars and lists");
    while (p < y->stop && !(in_list && strchr(",]", *p)) && !(*p == '#' && p[-1] == ' ')) {
        if (*p == ':' && (p + 1 == y->stop || p[1] == ' '))
            return refuse(y, "a mapping in a mapping");
        p++;
    }
    for (end = p; end > y->p && end[-1] == ' ';) end--;
    size_t n = (size_t)(end - y->p);
    const char *from = y->p;
    y->p = p;
    if (!n || is_word(from, n, none)) return json_null();
    if (is_word(from, n, yes)) return json_true();
    if (is_word(from, n, no)) return json_false();
    json_t *v = json_stringn(from, n);
    return v ? v : refuse(y, "a text that is not UTF-8");
}

static json_t *scalar(Yaml *y, bool in_list) {
    return *y->p == '\'' ? single_quoted(y) : *y->p == '"' ? double_quoted(y) : plain(y, in_list);
}

/* "[a, b]", on one line. */
static json_t *flow_list(Yaml *y) {
    json_t *list = json_array(), *v = NULL;
    for (y->p++; !y->wrong;) {
        skip_blanks(y);
        if (y->p < y->stop && *y->p == ']') break;
        v = y->p < y->stop ? scalar(y, true) : refuse(y, "a [ that is not closed on its line");
        if (!v) break;
        json_array_append_new(list, v);
        skip_blanks(y);
        if (y->p < y->stop && *y->p == ',')
            y->p++;
        else if (y->p == y->stop || *y->p != ']')
            refuse(y, "a [ that is not closed on its line");
    }
    if (y->wrong) return json_decref(list), NULL;
    y->p++;
    return list;
}

static json_t *value(Yaml *y) {
    json_t *v = *y->p == '[' ? flow_list(y) : scalar(y, false);
    if (!v || line_over(y)) return v;
    json_decref(v);
    return refuse(y, "more after the value");
}

/* --- Lines ------------------------------------------------------------------------------------ */

static json_t *key_of(Yaml *y) {
    if (*y->p == '\'' || *y->p == '"') return scalar(y, false);
    const char *p = y->p;
    while (p < y->stop && *p != ':' && *p != '#') p++;
    const char *from = y->p, *end = p;
    while (end > from && end[-1] == ' ') end--;
    y->p = p;
    return json_stringn(from, (size_t)(end - from));
}

static void item(Yaml *y) {
    if (!y->list) {
        refuse(y, "an item without a name that it belongs to");
        return;
    }
    y->p++;
    skip_blanks(y);
    json_t *v = line_over(y) ? refuse(y, "an item without a value") : value(y);
    if (v) json_array_append_new(y->list, v);
}

static void member(Yaml *y) {
    if (y->indent) {
        refuse(y, "a mapping in a mapping");
        return;
    }
    json_t *key = key_of(y), *v = NULL;
    const char *name = json_string_value(key);
    skip_blanks(y);
    if (!name || !*name || y->p == y->stop || *y->p != ':' ||
        (y->p + 1 < y->stop && y->p[1] != ' '))
        refuse(y, "no \"name: value\"");
    else if (json_object_get(y->all, name))
        refuse(y, "a name that is there twice");
    else if (y->p++, line_over(y))
        y->list = v = json_array(); /* of the lines that follow */
    else
        y->list = NULL, v = value(y);
    if (v) json_object_set_new(y->all, name, v);
    json_decref(key);
}

json_t *yaml_load(const char *text, size_t n, YamlError *e) {
    Yaml y = {.at = text, .end = text + n, .all = json_object()};
    while (!y.wrong && next_line(&y)) {
        const char *start = y.p;
        if (!json_object_size(y.all) && y.stop - y.p >= 3 && memcmp(y.p, "---", 3) == 0) y.p += 3;
        if (line_over(&y)) continue;
        y.indent = (size_t)(y.p - start);
        if (*y.p == '\t')
            refuse(&y, "a tab at the beginning of a line");
        else if (*y.p == '-' && (y.p + 1 == y.stop || y.p[1] == ' '))
            item(&y);
        else
            member(&y);
    }
    if (!y.wrong) return y.all;
    *e = (YamlError){y.line, y.wrong};
    json_decref(y.all);
    return NULL;
}
