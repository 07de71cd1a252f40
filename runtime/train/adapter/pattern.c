#include "runtime/train/adapter/pattern.h"
#include "runtime/train/safetensors.h"
#include "runtime/train/text.h"
#include <ctype.h>
#include <regex.h>
#include <string.h>

enum { MAX_PATTERN = 1000, MAX_PLUSES = 4 };

static bool is_plain(const char *pattern) {
    return !pattern[strcspn(pattern, "\\^$*+?()[]{}|")];
}

/* Without expressions: a dot in it stands for any character, as in Python. */
static bool same(const char *pattern, const char *text) {
    size_t i = 0;
    while (pattern[i] && text[i] && (pattern[i] == '.' || pattern[i] == text[i])) i++;
    return !pattern[i] && !text[i];
}

/* A pattern on its way to POSIX. A C library copies what a + repeats: every + around another
 * doubles it, so that few of them would take all memory. */
typedef struct Reading {
    const char *p;
    Text *out;
    uint8_t pluses[MAX_PATTERN + 2]; /* by group that is open: the most of them in each other */
    uint32_t depth;
    uint8_t last; /* the same of what a repetition that comes now would repeat */
} Reading;

static bool is_repetition(char c) {
    return c && strchr("*+?", c);
}

/* Behind a backslash stands a class, a boundary, or a character that is no letter; in brackets, in
 * which POSIX has no backslash, a class, or a character that means nothing there. */
static bool take_escape(Reading *r, bool in_brackets) {
    const char c = r->p[1], itself[3] = {'\\', c, 0};
    const char *text = itself;
    if (c == 'd')
        text = in_brackets ? "0-9" : "[0-9]";
    else if (in_brackets && (c == 'w' || c == 's'))
        text = c == 'w' ? "[:alnum:]_" : "[:space:]";
    else if (isalpha((unsigned char)c) ? in_brackets || !strchr("wWsSbB", c)
                                       : isdigit((unsigned char)c) || !c)
        return false;
    else if (in_brackets && strchr("\\^-[]", c))
        return false;
    else if (in_brackets)
        text = itself + 1;
    text_put(r->out, text);
    r->p += 2;
    return true;
}

static bool take_brackets(Reading *r) {
    const char *first = r->p + 1 + (r->p[1] == '^');
    text_putn(r->out, r->p, (size_t)(first - r->p));
    for (r->p = first; *r->p && (*r->p != ']' || r->p == first);) {
        if (*r->p == '\\') {
            if (!take_escape(r, true)) return false;
        } else if (*r->p == '[') {
            return false; /* to POSIX the beginning of a class */
        } else {
            text_putn(r->out, r->p++, 1);
        }
    }
    if (!*r->p) return false;
    text_putn(r->out, r->p++, 1);
    return true;
}

static bool take_repetition(Reading *r) {
    if (is_repetition(r->p[1])) return false; /* the shortest match, or all or nothing */
    if (*r->p == '+') r->last++;
    if (r->last > r->pluses[r->depth]) r->pluses[r->depth] = r->last;
    text_putn(r->out, r->p++, 1);
    return r->last <= MAX_PLUSES;
}

static bool take_group(Reading *r) {
    if (r->p[1] == '?' && r->p[2] != ':') return false;
    r->pluses[++r->depth] = 0;
    text_put(r->out, "(");
    r->p += r->p[1] == '?' ? 3 : 1;
    return true;
}

static bool end_group(Reading *r) {
    if (!r->depth) return false;
    r->last = r->pluses[r->depth--];
    if (r->last > r->pluses[r->depth]) r->pluses[r->depth] = r->last;
    text_putn(r->out, r->p++, 1);
    return true;
}

/* As POSIX writes it; false: it cannot. Counted repetition is left out, since a few characters of
 * it can take all memory, too. */
static bool translate(const char *pattern, Text *out) {
    Reading r = {.p = pattern, .out = out};
    bool ok = true;
    while (ok && *r.p) {
        const char c = *r.p;
        if (c != ')' && !is_repetition(c)) r.last = 0;
        switch (c) {
        case '{': ok = false; break;
        case '(': ok = take_group(&r); break;
        case ')': ok = end_group(&r); break;
        case '[': ok = take_brackets(&r); break;
        case '\\': ok = take_escape(&r, false); break;
        case '*':
        case '+':
        case '?': ok = take_repetition(&r); break;
        default: text_putn(out, r.p++, 1);
        }
    }
    return ok && !r.depth;
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
