/* Options: a row each, parsed and documented from the same table. */
#include "frontend/driver/cli/cli.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum OptKind { OPT_FLAG, OPT_TEXT, OPT_NUMBER, OPT_INPUT, OPT_DIM } OptKind;

typedef struct OptRow {
    const char *name, *shortname;
    OptKind kind;
    size_t field;
    const char *verbs; /* names of the verbs that take it, space-separated; "*" = all */
    const char *arg, *help;
} OptRow;

#define FIELD(f)    offsetof(Cli, f)
#define MODEL_VERBS "compile bench explain inspect verify"
static const OptRow opt_rows[] = {
    {"--output", "-o", OPT_TEXT, FIELD(output), "compile", "PLAN",
     "where the plan goes (- is standard output)"},
    {"--target", NULL, OPT_TEXT, FIELD(target), MODEL_VERBS, "LIST",
     "what to make code for: cpu (default), sm_90a, or cpu,sm_90a"},
    {"--precision", NULL, OPT_TEXT, FIELD(precision), MODEL_VERBS, "P",
     "what contractions run in: f32 (the only one so far)"},
    {"--dim", NULL, OPT_DIM, 0, "compile run bench explain inspect verify", "NAME=N | NAME=LO..HI",
     "fixes or bounds a symbolic size; of a plan: its value"},
    {"--dump-ir", NULL, OPT_TEXT, FIELD(dump_ir), MODEL_VERBS, "DIR",
     "writes the text of every level there: graphs, kernels, code"},
    {"--embed", NULL, OPT_FLAG, FIELD(embed), "compile", "",
     "copies constants of external files into the plan"},
    {"--weights", NULL, OPT_TEXT, FIELD(weights), "run bench", "DIR",
     "where constants by reference lie, if not where the plan says"},
    {"--cache", NULL, OPT_TEXT, FIELD(cache_dir), MODEL_VERBS, "DIR",
     "keeps compiled kernels there, and takes them from there"},
    {"--device", NULL, OPT_TEXT, FIELD(device), "run bench verify", "cpu|cuda[:N]",
     "where to run (default cpu)"},
    {"--input", NULL, OPT_INPUT, 0, "run bench verify", "NAME=FILE",
     "an input from a .npy file or a .pb file (ONNX TensorProto)"},
    {"--output-dir", NULL, OPT_TEXT, FIELD(output_dir), "run", "DIR",
     "where outputs go, as DIR/NAME.npy (- is standard output)"},
    {"--output-format", NULL, OPT_TEXT, FIELD(output_format), "run", "npy|pb",
     "form of outputs (default npy; pb for bf16, fp8 and 4-bit types, which npy lacks)"},
    {"--data", NULL, OPT_TEXT, FIELD(data), "verify", "DIR",
     "compares with this data: input_0.pb ..., output_0.pb ..."},
    {"--seed", NULL, OPT_NUMBER, FIELD(seed), "run bench verify", "N",
     "inputs that are not given are drawn from it (default 0)"},
    {"--runs", NULL, OPT_NUMBER, FIELD(runs), "bench", "N",
     "timed runs (default: as many as take a second, at least 5)"},
    {"--isa", NULL, OPT_NUMBER, FIELD(isa), "run bench verify", "3|4",
     "at most this x86-64 level: v3 is AVX2, v4 AVX-512"},
    {"--threads", NULL, OPT_NUMBER, FIELD(threads), "compile run bench explain inspect verify", "N",
     "threads (default GRAPHC_THREADS, else the cores it may use)"},
    {"--json", NULL, OPT_FLAG, FIELD(json), "compile run bench inspect", "",
     "results as JSON, no notes"},
    {"--verbose", "-v", OPT_FLAG, FIELD(verbose), "run bench", "",
     "more detail; bench: the time of every kernel"},
    {"--help", "-h", OPT_FLAG, FIELD(help), "*", "", "this text"},
    {"--version", NULL, OPT_FLAG, FIELD(version), "compile", "",
     "versions of graphc, LLVM, PTX and CUDA"},
};
#undef FIELD

static bool takes(const OptRow *row, const char *verb) {
    if (row->verbs[0] == '*') return true;
    size_t n = strlen(verb);
    for (const char *p = row->verbs; (p = strstr(p, verb)); p += n)
        if ((p == row->verbs || p[-1] == ' ') && (p[n] == ' ' || !p[n])) return true;
    return false;
}

static const OptRow *find(const char *arg, size_t n, const char *verb) {
    for (size_t i = 0; i < sizeof opt_rows / sizeof *opt_rows; i++) {
        const OptRow *r = &opt_rows[i];
        bool same =
            (strlen(r->name) == n && strncmp(arg, r->name, n) == 0) ||
            (r->shortname && strlen(r->shortname) == n && strncmp(arg, r->shortname, n) == 0);
        if (same && takes(r, verb)) return r;
    }
    return NULL;
}

static bool number(const char *s, uint64_t *out) {
    char *end;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (errno || end == s || *end || *s == '-') return false;
    *out = v;
    return true;
}

static bool parse_dim(Cli *c, const char *s) {
    const char *eq = strchr(s, '=');
    char *end;
    if (!eq || eq == s) return false;
    graphc_compile_dim d = {.name = arena_strndup(c->arena, s, (size_t)(eq - s))};
    errno = 0;
    d.lo = d.hi = strtoll(eq + 1, &end, 10);
    if (end == eq + 1) return false;
    if (strncmp(end, "..", 2) == 0) {
        const char *from = end + 2;
        d.hi = strtoll(from, &end, 10);
        if (end == from) return false;
    }
    if (errno || *end || d.lo < 0 || d.hi < d.lo) return false;
    vec_push(c->arena, &c->dims, d);
    return true;
}

static bool parse_input(Cli *c, const char *s) {
    const char *eq = strchr(s, '=');
    if (!eq || eq == s || !eq[1]) return false;
    NamedFile f = {arena_strndup(c->arena, s, (size_t)(eq - s)), eq + 1};
    vec_push(c->arena, &c->inputs, f);
    return true;
}

static bool apply(Cli *c, const OptRow *row, const char *value) {
    char *field = (char *)c + row->field;
    switch (row->kind) {
    case OPT_FLAG: *(bool *)field = true; return true;
    case OPT_TEXT: *(const char **)field = value; return *value != 0;
    case OPT_NUMBER: return number(value, (uint64_t *)field);
    case OPT_INPUT: return parse_input(c, value);
    case OPT_DIM: return parse_dim(c, value);
    }
    return false;
}

graphc_status cli_parse(Cli *c, const Verb *verb, int argc, char **argv) {
    const char *name = verb->name;
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        if (arg[0] != '-' || !arg[1]) {
            vec_push(c->arena, &c->args, arg);
            continue;
        }
        const char *eq = strncmp(arg, "--", 2) == 0 ? strchr(arg, '=') : NULL;
        size_t n = eq ? (size_t)(eq - arg) : strlen(arg);
        const OptRow *row = find(arg, n, name);
        if (!row)
            return diag(c->diags, D_USAGE, "", "\"graphc %s\" has no option %.*s", name, (int)n,
                        arg);
        const char *value = eq ? eq + 1 : NULL;
        if (row->kind == OPT_FLAG) {
            if (eq) return diag(c->diags, D_USAGE, "", "%s takes no value", row->name);
        } else if (!value) {
            if (i + 1 == argc)
                return diag(c->diags, D_USAGE, "", "%s needs a value: %s", row->name, row->arg);
            value = argv[++i];
        }
        if (!apply(c, row, value))
            return diag(c->diags, D_USAGE, "", "%s: \"%s\" is not of the form %s", row->name,
                        value ? value : "", row->arg);
    }
    return GRAPHC_OK;
}

static void help_options(const char *verb) {
    printf("\nOptions:\n");
    for (size_t i = 0; i < sizeof opt_rows / sizeof *opt_rows; i++) {
        const OptRow *r = &opt_rows[i];
        if (!takes(r, verb)) continue;
        char left[64];
        snprintf(left, sizeof left, "%s%s%s %s", r->shortname ? r->shortname : "",
                 r->shortname ? ", " : "", r->name, r->arg);
        printf("  %-34s %s\n", left, r->help);
    }
}

void cli_help(const Verb *verb) {
    if (verb) {
        printf("graphc %s - %s\n\nUsage:\n  %s\n", verb->name, verb->summary, verb->usage);
        help_options(verb->name);
        printf("\nExamples:\n%s", verb->examples);
        return;
    }
    printf("graphc - compiles ONNX graphs into plans of fused kernels, and runs them\n\nUsage:\n");
    for (const Verb *v = cli_verbs; v->name; v++) printf("  %s\n      %s\n", v->usage, v->summary);
    printf(
        "\n\"graphc VERB --help\" explains a verb by example. A verb that takes MODEL.onnx for a\n"
        "plan compiles it first. Without a verb, a model is compiled into a plan:\n");
    help_options("compile");
    printf("\nExamples:\n%s", cli_verbs[0].examples);
    printf("\nExit status: 0 done, 1 a comparison failed, 2 usage, 3 invalid file, 4 unsupported,\n"
           "5 device or run-time failure, 6 out of memory, 7 input/output failure.\n"
           "Environment: GRAPHC_THREADS, NO_COLOR. Manual: man graphc.\n");
}
