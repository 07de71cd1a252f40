/* JSON output, through jansson. */
#ifndef FRONTEND_DRIVER_CLI_JSON_H
#define FRONTEND_DRIVER_CLI_JSON_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of what frontend/driver/schema.json describes. It grows by fields; what a field means changes
 * with this number. */
#define JSON_SCHEMA 1

/* What a verb prints begins like this. */
static inline json_t *json_begin(const char *verb) {
    json_t *j = json_object();
    json_object_set_new(j, "schema", json_integer(JSON_SCHEMA));
    json_object_set_new(j, "verb", json_string(verb));
    return j;
}

/* Gives item to the object and returns it, to be filled. */
static inline json_t *json_add(json_t *object, const char *key, json_t *item) {
    json_object_set_new(object, key, item);
    return item;
}

/* Lines of text as a list. */
static inline json_t *json_lines(const char *text) {
    json_t *list = json_array();
    while (*text) {
        size_t n = strcspn(text, "\n");
        json_array_append_new(list, json_stringn(text, n));
        text += n + (text[n] == '\n');
    }
    return list;
}

/* Prints and releases. */
static inline void json_finish(json_t *j, FILE *to) {
    char *text = json_dumps(j, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    fprintf(to, "%s\n", text ? text : "null");
    free(text);
    json_decref(j);
}

#endif
