/* The part of YAML 1.2 that a file of options needs: one mapping of names to scalars and to lists
 * of scalars, as "[a, b]" or a line "- a" each; plain, 'single' and "double" quoted scalars,
 * comments, a
 * "---" in front. Everything else is an error that says where. */
#ifndef FRONTEND_DRIVER_CLI_YAML_H
#define FRONTEND_DRIVER_CLI_YAML_H

#include <jansson.h>

typedef struct YamlError {
    int line;
    const char *text;
} YamlError;

/* An object whose values are strings, true, false, null or lists of those: plain scalars that look
 * like numbers are strings as they stand. NULL: see *e. */
json_t *yaml_load(const char *text, size_t n, YamlError *e);

#endif
