/* Options from a JSON or YAML file, and the file of those that a run was started with. */
#include "frontend/driver/cli/cli.h"
#include "frontend/driver/cli/json.h"
#include "frontend/driver/cli/config/yaml.h"
#include "runtime/base/file.h"

#include <stdlib.h>
#include <string.h>

#define CONFIG_BYTES (1 << 20) /* more is no list of options */

/* The text of a value as the command line would have it; NULL: none is. */
static const char *value_text(Cli *c, const json_t *v) {
    switch (json_typeof(v)) {
    case JSON_STRING: return arena_strdup(c->arena, json_string_value(v));
    case JSON_INTEGER:
        return arena_printf(c->arena, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    case JSON_REAL: return arena_printf(c->arena, "%.17g", json_real_value(v));
    default: return NULL;
    }
}

static graphc_status take_value(Cli *c, const char *name, const json_t *v) {
    if (json_is_true(v)) return cli_option_set(c, c->train.config, name, NULL);
    if (json_is_false(v)) return GRAPHC_OK;
    const char *text = value_text(c, v);
    if (text) return cli_option_set(c, c->train.config, name, text);
    return diag(c->diags, D_USAGE, c->train.config, "\"%s\" is no text, number, true or false",
                name + 2);
}

static graphc_status check_key(Cli *c, const char *key) {
    if (strcmp(key, "config") && strcmp(key, "help")) return GRAPHC_OK;
    return diag(c->diags, D_USAGE, c->train.config, "--%s is for the command line", key);
}

/* A list is an option that is given several times. */
static graphc_status take(Cli *c, const char *key, const json_t *v) {
    const char *name = arena_printf(c->arena, "--%s", key);
    size_t n = json_array_size(v);
    if (n > 1 && !cli_option_repeats(c, name))
        return diag(c->diags, D_USAGE, c->train.config, "%s takes one value, not %zu", name, n);
    for (size_t i = 0; i < n; i++) GC_TRY(take_value(c, name, json_array_get(v, i)));
    return n ? GRAPHC_OK : take_value(c, name, v);
}

/* By the name's end YAML or JSON. */
static graphc_status parse(Cli *c, const FileMap *file, json_t **out) {
    const char *path = c->train.config, *dot = strrchr(path, '.'), *text = (const char *)file->data;
    json_error_t e;
    YamlError y;
    if (file->size > CONFIG_BYTES)
        return diag(c->diags, D_DATA, path, "this is no list of options");
    bool yaml = dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
    *out = yaml ? yaml_load(text, file->size, &y)
                : json_loadb(text, file->size, JSON_REJECT_DUPLICATES, &e);
    if (!*out)
        return diag(c->diags, D_DATA, path, "line %d: %s", yaml ? y.line : e.line,
                    yaml ? y.text : e.text);
    if (json_is_object(*out)) return GRAPHC_OK;
    return diag(c->diags, D_DATA, path, "an object {\"batch\": 8, ...} is wanted");
}

graphc_status cli_config_read(Cli *c) {
    const char *path = c->train.config, *key;
    char why[256];
    FileMap file;
    json_t *all = NULL, *v;
    GivenOptions given = c->given; /* what stands on the command line goes before */
    graphc_status st = file_map(path, &file, why);
    if (st != GRAPHC_OK) return diag(c->diags, D_IO, path, "%s", why);
    st = parse(c, &file, &all);
    if (st == GRAPHC_OK) json_object_foreach(all, key, v) {
            bool there = false;
            for (uint32_t i = 0; i < given.n; i++) there |= strcmp(given.v[i].name + 2, key) == 0;
            if (st == GRAPHC_OK) st = check_key(c, key);
            if (!there && st == GRAPHC_OK) st = take(c, key, v);
        }
    json_decref(all);
    file_unmap(&file);
    return st;
}

#define DIGITS 15 /* of numbers in the file: 0.1 stays 0.1 */

/* Numbers stay numbers, but for those of more digits than a number in the file has. */
static json_t *value_of(const char *text) {
    char digits[32];
    if (!text) return json_true();
    json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
    snprintf(digits, sizeof digits, "%.*g", DIGITS, json_number_value(v));
    if (json_is_integer(v) || (json_is_real(v) && strtod(digits, NULL) == json_real_value(v)))
        return v;
    json_decref(v);
    return json_string(text);
}

const char *cli_config_text(Cli *c) {
    json_t *all = json_object();
    for (uint32_t i = 0; i < c->given.n; i++) {
        const GivenOption *o = &c->given.v[i];
        json_t *before = json_object_get(all, o->name + 2), *v = value_of(o->value);
        if (!strcmp(o->name, "--config") || !strcmp(o->name, "--resume")) {
            json_decref(v);
        } else if (!o->several || !before) {
            json_object_set_new(all, o->name + 2, v);
        } else {
            json_t *list = json_is_array(before) ? json_incref(before) : json_pack("[O]", before);
            json_array_append_new(list, v);
            json_object_set_new(all, o->name + 2, list);
        }
    }
    char *text = json_dumps(all, JSON_INDENT(2) | JSON_REAL_PRECISION(DIGITS));
    const char *lines = text ? arena_printf(c->arena, "%s\n", text) : NULL;
    free(text);
    json_decref(all);
    return lines;
}
