#include "runtime/train/adapter/pattern.h"
#include "runtime/train/safetensors.h"
#include "runtime/train/text.h"
#include <ctype.h>
#include <regex.h>
#include <string.h>

enum { MAX_PATTERN = 1000 };

static bool is_plain(const char *pattern) {
    return !pattern[strcspn(pattern, "\\^$*+?()[]{}|")];
}

/* Without expressions: a dot in it stands for any character, as in Python. */
static bool same(const char *pattern, const char *text) {
    size_t i = 0;
    while (pattern[i] && text[i] && (pattern[i] == '.' || pattern[i] == text[i])) i++;
    return !pattern[i] && !text[i];
}

/* As POSIX writes it; false: it cannot. Counted repetition is left out, since a few characters of
 * it can take all memory. */
static bool translate(const char *p, Text *out) {
    for (; *p; p++) {
        if (*p == '{' || (*p == '\\' && (isdigit((unsigned char)p[1]) || !p[1]))) return false;
        if (strncmp(p, "(?", 2) == 0 && p[2] != ':') return false;
        if (strchr("*+?", *p) && p[1] == '?') return false; /* the shortest match */
        if (strncmp(p, "(?:", 3) == 0) {
            text_put(out, "(");
            p += 2;
        } else if (*p == '\\' && strchr("dDZAzG", p[1])) {
            if (p[1] != 'd') return false;
            text_put(out, "[0-9]");
            p++;
        } else if (*p == '\\') {
            text_putn(out, p++, 2);
        } else {
            text_putn(out, p, 1);
        }
    }
    return true;
}

static graphc_status run(const char *pattern, const char *path, bool *out, ErrorText e) {
    regex_t r;
    int st = regcomp(&r, pattern, REG_EXTENDED | REG_NOSUB);
    if (st == REG_ESPACE) return error_set(e, GRAPHC_NO_MEMORY, "not enough memory");
    if (st != 0) return error_set(e, GRAPHC_UNSUPPORTED, "%s", "");
    *out = regexec(&r, path, 0, NULL, 0) == 0;
    regfree(&r);
    return GRAPHC_OK;
}

graphc_status pattern_matches(const char *pattern, const char *path, bool end, bool *out,
                              ErrorText e) {
    Text t = {0};
    size_t n = strlen(pattern), m = strlen(path);
    if (is_plain(pattern)) {
        bool at_dot = m == n || (end && m > n && path[m - n - 1] == '.');
        *out = at_dot && same(pattern, path + m - n);
        return GRAPHC_OK;
    }
    graphc_status st = GRAPHC_UNSUPPORTED;
    text_put(&t, end ? "^(.*\\.)?(" : "^(");
    if (n <= MAX_PATTERN && translate(pattern, &t)) {
        text_put(&t, ")$");
        st = t.failed ? GRAPHC_NO_MEMORY : run(t.p, path, out, e);
    }
    text_free(&t);
    if (st == GRAPHC_UNSUPPORTED)
        return error_set(e, st, "the pattern %s is not supported", safe_name(pattern).text);
    return st == GRAPHC_NO_MEMORY ? error_set(e, st, "not enough memory") : st;
}
