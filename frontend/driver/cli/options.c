/* Options: a row each, parsed and documented from the same table. */
#include "frontend/driver/cli/cli.h"
#include "frontend/driver/cli/near.h"
#include "frontend/driver/cli/tune/database.h"
#include "runtime/plan.h"
#include "runtime/cpu/pool.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- What users read ---------------------------------------------------------------------- */

void cli_print_diags(const DiagSink *d) {
    Arena *a = arena_create();
    bool color = isatty(STDERR_FILENO) && !getenv("NO_COLOR");
    for (uint32_t i = 0; i < diag_count(d); i++)
        fprintf(stderr, "%s\n", diag_render(d, diag_at(d, i), a, color));
    arena_destroy(a);
}

void cli_print(FILE *to, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    Arena *a = arena_create();
    for (const char *c = arena_vprintf(a, fmt, ap); *c; c++) {
        unsigned char u = (unsigned char)*c;
        if ((u < 0x20 && u != '\n') || u == 0x7f)
            fprintf(to, "\\x%02x", u);
        else
            putc(u, to);
    }
    arena_destroy(a);
    va_end(ap);
}

graphc_status cli_usage(Cli *c, const char *what) {
    return diag(c->diags, D_USAGE, "", "%s; usage: %s", what, c->verb->usage);
}

/* --- Options ------------------------------------------------------------------------------ */

typedef enum OptKind {
    OPT_FLAG,
    OPT_TEXT,
    OPT_INPUT,
    OPT_DIM,
    OPT_LIST, /* may be given several times */
    OPT_REAL, /* not negative */
    OPT_STATE,
    OPT_SEED, /* numbers, from here on */
    OPT_RUNS,
    OPT_ISA,
    OPT_THREADS,
    OPT_COUNT,
    OPT_SIZE,
    OPT_WAYS,
    OPT_LEVEL
} OptKind;

static const struct Range {
    uint64_t lo, hi;
} ranges[] = {
    [OPT_SEED] = {0, UINT64_MAX},
    [OPT_RUNS] = {1, 1000000},
    [OPT_ISA] = {3, 4},
    [OPT_THREADS] = {1, POOL_MAX_THREADS},
    [OPT_COUNT] = {0, FUSE_ALL - 1},
    [OPT_SIZE] = {1, INT32_MAX},
    [OPT_WAYS] = {1, PLAN_MAX_VARIANTS},
    [OPT_LEVEL] = {1, 4},
};

typedef struct OptRow {
    const char *name, *shortname;
    OptKind kind;
    size_t field;
    const char *verbs; /* names of the verbs that take it, space-separated; "*" = all */
    const char *arg, *help;
} OptRow;

#define FIELD(f)    offsetof(Cli, f)
#define MODEL_VERBS "compile run bench explain inspect verify grad train finetune"
#define TUNE_VERBS  MODEL_VERBS " tune"
#define TRAIN_VERBS "train finetune"
static const OptRow opt_rows[] = {
    {"--output", "-o", OPT_TEXT, FIELD(output), "compile tune", "PLAN",
     "where the plan goes (- is standard output)"},
    {"--output", "-o", OPT_TEXT, FIELD(output), TRAIN_VERBS, "DIR",
     "where weights or the adapter, checkpoints and logs go; with --plan-only the plan"},
    {"--output", "-o", OPT_TEXT, FIELD(output), "merge", "FILE",
     "where the merged model goes: OUT.onnx, with OUT.onnx.data if it is large, or "
     "OUT.safetensors"},
    {"--target", NULL, OPT_TEXT, FIELD(target), TUNE_VERBS, "LIST",
     "what to make code for, with commas: cpu (default), native (this machine's CPU alone: smaller "
     "and sooner made), a GPU architecture like sm_90a"},
    {"--precision", NULL, OPT_TEXT, FIELD(precision), TUNE_VERBS, "P",
     "what f32 models multiply and, in plans for a GPU or training, store between kernels: "
     "f32 (default), tf32, bf16, f16"},
    {"--accuracy-level", NULL, OPT_LEVEL, FIELD(accuracy_level),
     "compile run bench explain inspect verify tune", "1|2|3|4",
     "what weights of few bits may have activations rounded to, whatever the model says: f32, f16, "
     "bf16, integers of 8 bits"},
    {"--dim", NULL, OPT_DIM, 0, TUNE_VERBS, "NAME=N | NAME=LO..HI",
     "fixes or bounds a symbolic size, or bounds a value that decides sizes; of a plan: its value"},
    {"--state", NULL, OPT_STATE, 0, "compile run bench explain inspect verify tune", "INPUT=OUTPUT",
     "makes the two one state, which each run leaves to the next: a cache that grows in place"},
    {"--dump-ir", NULL, OPT_TEXT, FIELD(dump_ir), MODEL_VERBS, "DIR",
     "writes the text of every level there: graphs, kernels, code"},
    {"--fuse-at-most", NULL, OPT_COUNT, FIELD(fuse_at_most), MODEL_VERBS, "N",
     "stops fusion after N decisions, to find one that is wrong"},
    {"--embed", NULL, OPT_FLAG, FIELD(embed), "compile", "",
     "copies constants of external files into the plan"},
    {"--prepared", NULL, OPT_FLAG, FIELD(prepared), "compile", "",
     "prepares weights for the CPU now, into PLAN.prepared: sessions start at once"},
    {"--weights-root", NULL, OPT_TEXT, FIELD(weights_root), TUNE_VERBS, "DIR",
     "lets symbolic links among the model's weight files lead into this folder"},
    {"--allow-links", NULL, OPT_FLAG, FIELD(allow_links), TUNE_VERBS, "",
     "lets them lead anywhere"},
    {"--weights", NULL, OPT_TEXT, FIELD(weights), "run bench tune", "DIR",
     "where constants by reference lie, if not where the plan says"},
    {"--adapter", NULL, OPT_LIST, FIELD(adapter), "run bench", "[NAME=]DIR",
     "a LoRA adapter in PEFT's form beside the model; several share a batch"},
    {"--adapter", NULL, OPT_LIST, FIELD(adapter), "merge", "DIR", "a LoRA adapter in PEFT's form"},
    {"--adapter-rows", NULL, OPT_TEXT, FIELD(adapter_rows), "run bench", "NAME,...",
     "which of several adapters each row of the batch goes through; - is none"},
    {"--adapters", NULL, OPT_COUNT, FIELD(adapters), "compile", "N",
     "places for so many adapters that are loaded later, of the layers that --lora says"},
    {"--lora", NULL, OPT_TEXT, FIELD(train.lora), "compile", "r=N,targets=...",
     "layers that get places for adapters, and their largest rank (default "
     "r=16,targets=all-linear)"},
    {"--cache", NULL, OPT_TEXT, FIELD(cache_dir), TUNE_VERBS, "DIR",
     "keeps compiled kernels there, and takes them from there"},
    {"--variants", NULL, OPT_WAYS, FIELD(variants), "compile tune", "N",
     "ways that kernels of known sizes are offered in, for tune (default 1; of tune 4)"},
    {"--tune-db", NULL, OPT_TEXT, FIELD(tune_db), MODEL_VERBS, "FILE",
     "takes what \"graphc tune\" found to be the fastest from there"},
    {"--tune-db", NULL, OPT_TEXT, FIELD(tune_db), "tune", "FILE",
     "keeps what is found there, for later compiles"},
    {"--seconds", NULL, OPT_SIZE, FIELD(seconds), "tune", "N",
     "takes at most so long (default 60)"},
    {"--device", NULL, OPT_TEXT, FIELD(device), "run bench verify grad train finetune tune",
     "cpu|cuda[:N]", "where to run (default cpu)"},
    {"--input", NULL, OPT_INPUT, 0, "run bench verify grad tune", "NAME=FILE",
     "an input from a .npy, .npz, .pb (ONNX TensorProto) or safetensors file; - is standard input"},
    {"--output-dir", NULL, OPT_TEXT, FIELD(output_dir), "run grad", "DIR",
     "where outputs go, as DIR/NAME.npy (- is standard output)"},
    {"--output-format", NULL, OPT_TEXT, FIELD(output_format), "run grad", "npy|pb",
     "form of outputs (default npy; pb for bf16, fp8 and 4-bit types, which npy lacks)"},
    {"--loss", NULL, OPT_TEXT, FIELD(loss), "grad", "OUTPUT",
     "the output whose elements' sum is differentiated"},
    {"--loss", NULL, OPT_TEXT, FIELD(loss), TRAIN_VERBS, "SPEC",
     "an output's name, or cross_entropy(logits, labels), mse(y, target), l1, huber, bce, kl"},
    {"--data", NULL, OPT_LIST, FIELD(train.data), TRAIN_VERBS, "FILE | NAME=FILE",
     "tokens (.bin, .npy, .jsonl, text by bytes), or one .npy file an input or target"},
    {"--token-type", NULL, OPT_TEXT, FIELD(train.token_type), TRAIN_VERBS, "u16|u32",
     "of .bin files (default u16 where the vocabulary fits)"},
    {"--end-token", NULL, OPT_COUNT, FIELD(train.end_token), TRAIN_VERBS, "N",
     "the id that ends a document in .bin files and .npy files of one axis (default none)"},
    {"--eval-data", NULL, OPT_LIST, FIELD(train.eval_data), TRAIN_VERBS, "FILE | NAME=FILE",
     "held out: measured, never learnt"},
    {"--hold-out", NULL, OPT_REAL, FIELD(train.hold_out), TRAIN_VERBS, "PART",
     "holds out this part of --data instead, below 1"},
    {"--lora", NULL, OPT_TEXT, FIELD(train.lora), "finetune", "r=N,alpha=X,targets=...",
     "adapters: rank, scale, and all-linear (default), names with commas or a regular expression"},
    {"--train", NULL, OPT_TEXT, FIELD(train.learn), "train", "REGEX",
     "learns the weights of these names alone"},
    {"--freeze", NULL, OPT_TEXT, FIELD(train.freeze), "train", "REGEX",
     "leaves the weights of these names as they are"},
    {"--batch-norm", NULL, OPT_TEXT, FIELD(train.batch_norm), "train", "train|frozen",
     "norms take the batch's statistics and move the running ones (default), or leave them"},
    {"--dropout", NULL, OPT_TEXT, FIELD(train.dropout), TRAIN_VERBS, "on|off",
     "whether the model's Dropout nodes drop in steps (default on), never in evaluations"},
    {"--batch", NULL, OPT_SIZE, FIELD(train.batch), TRAIN_VERBS, "N",
     "rows of a batch (default 8)"},
    {"--seq", NULL, OPT_SIZE, FIELD(train.seq), TRAIN_VERBS, "N", "tokens of a row (default 128)"},
    {"--checkpoint", NULL, OPT_TEXT, FIELD(train.checkpoint), TRAIN_VERBS, "auto|layers|none",
     "what backward computes again, not kept: what is cheap (default), whole layers, or nothing"},
    {"--memory-budget", NULL, OPT_TEXT, FIELD(train.memory_budget), TRAIN_VERBS, "SIZE",
     "bytes that a step may take (8GB, 500M): more is computed again until it does"},
    {"--any-order", NULL, OPT_FLAG, FIELD(train.any_order), TRAIN_VERBS, "",
     "sums of gradients are added up as they come, which is faster on GPUs but does not repeat"},
    {"--accumulate", NULL, OPT_SIZE, FIELD(train.accumulate), TRAIN_VERBS, "N",
     "batches of a step (default 1)"},
    {"--no-packing", NULL, OPT_FLAG, FIELD(train.no_packing), TRAIN_VERBS, "",
     "one document a row, padded"},
    {"--no-shuffle", NULL, OPT_FLAG, FIELD(train.no_shuffle), TRAIN_VERBS, "",
     "rows in the order of the files, every epoch"},
    {"--steps", NULL, OPT_SIZE, FIELD(train.steps), TRAIN_VERBS, "N",
     "steps in all; --resume may ask for more where rates do not follow from it"},
    {"--epochs", NULL, OPT_REAL, FIELD(train.epochs), TRAIN_VERBS, "X",
     "times through the data instead (default 1)"},
    {"--lr", NULL, OPT_REAL, FIELD(train.lr), TRAIN_VERBS, "X",
     "the highest learning rate (default 1e-4)"},
    {"--min-lr", NULL, OPT_REAL, FIELD(train.min_lr), TRAIN_VERBS, "X",
     "the lowest, of all schedules but constant (default 0)"},
    {"--schedule", NULL, OPT_TEXT, FIELD(train.schedule), TRAIN_VERBS, "NAME",
     "constant (default), linear, cosine, wsd"},
    {"--warmup", NULL, OPT_REAL, FIELD(train.warmup), TRAIN_VERBS, "X",
     "steps of rising rates; below 1 a part of all"},
    {"--decay", NULL, OPT_REAL, FIELD(train.decay), TRAIN_VERBS, "X",
     "wsd's steps of falling rates, likewise"},
    {"--optimizer", NULL, OPT_TEXT, FIELD(train.optimizer), TRAIN_VERBS, "NAME",
     "adamw (default), sgd, lion, adamw8bit (moments in 8 bits)"},
    {"--beta1", NULL, OPT_REAL, FIELD(train.beta1), TRAIN_VERBS, "X", "of adamw and lion"},
    {"--beta2", NULL, OPT_REAL, FIELD(train.beta2), TRAIN_VERBS, "X", "of adamw and lion"},
    {"--eps", NULL, OPT_REAL, FIELD(train.eps), TRAIN_VERBS, "X", "of adamw"},
    {"--weight-decay", NULL, OPT_REAL, FIELD(train.weight_decay), TRAIN_VERBS, "X",
     "default: the optimizer's, 0.01 of adamw"},
    {"--no-decay", NULL, OPT_TEXT, FIELD(train.no_decay), TRAIN_VERBS, "vectors|REGEX",
     "no weight decay of norms and biases, or of parameters of these names"},
    {"--momentum", NULL, OPT_REAL, FIELD(train.momentum), TRAIN_VERBS, "X", "of sgd"},
    {"--nesterov", NULL, OPT_FLAG, FIELD(train.nesterov), TRAIN_VERBS, "", "of sgd"},
    {"--clip", NULL, OPT_REAL, FIELD(train.clip), TRAIN_VERBS, "X",
     "bound of the gradients' norm (default none)"},
    {"--head-rows", NULL, OPT_COUNT, FIELD(train.head_rows), TRAIN_VERBS, "N",
     "rows of cross entropy's logits that exist at once (default: 256 MiB of them, 1024 at least, "
     "and what fills a GPU)"},
    {"--loss-scale", NULL, OPT_REAL, FIELD(train.loss_scale), TRAIN_VERBS, "X",
     "of f16, the first one (default 65536 with --precision f16); 0: none"},
    {"--scale-every", NULL, OPT_SIZE, FIELD(train.scale_every), TRAIN_VERBS, "N",
     "the scale doubles after so many steps without overflow (default 2000)"},
    {"--on-nan", NULL, OPT_TEXT, FIELD(train.on_nan), TRAIN_VERBS, "stop|skip",
     "a loss or gradient that is no finite number ends the run (default), or its step changes "
     "nothing"},
    {"--eval-every", NULL, OPT_SIZE, FIELD(train.eval_every), TRAIN_VERBS, "N",
     "steps between measurements of what is held out (default: at the end)"},
    {"--patience", NULL, OPT_SIZE, FIELD(train.patience), TRAIN_VERBS, "N",
     "ends after this many measurements without a lower loss"},
    {"--save-every", NULL, OPT_SIZE, FIELD(train.save_every), TRAIN_VERBS, "N",
     "steps between checkpoints (default: at the end)"},
    {"--resume", NULL, OPT_FLAG, FIELD(train.resume), TRAIN_VERBS, "",
     "goes on with the run in -o's folder from its last checkpoint"},
    {"--config", NULL, OPT_TEXT, FIELD(train.config), TRAIN_VERBS, "FILE",
     "more options, JSON {\"batch\": 8, ...} or .yaml; those given here go before. The run leaves "
     "its own in -o"},
    {"--plan-only", NULL, OPT_FLAG, FIELD(train.plan_only), TRAIN_VERBS, "",
     "writes the training plan, for the C API, and stops"},
    {"--wrt", NULL, OPT_TEXT, FIELD(wrt), "grad", "weights|inputs|NAME,...",
     "with respect to what: inputs and initializers by name (default weights: all but scalars)"},
    {"--cotangent", NULL, OPT_TEXT, FIELD(cotangent), "grad", "FILE",
     "weights of the output's elements in the sum (default ones)"},
    {"--data", NULL, OPT_TEXT, FIELD(data), "verify", "DIR",
     "compares with this data: input_0.pb ..., output_0.pb ..."},
    {"--against", NULL, OPT_TEXT, FIELD(against), "verify", "PLAN|DIR",
     "compares with what this plan gives, or with DIR/NAME.npy or .pb as run writes them"},
    {"--rtol", NULL, OPT_REAL, FIELD(rtol), "verify", "R",
     "allows differences of --atol + R * |value|, instead of what rounding explains"},
    {"--atol", NULL, OPT_REAL, FIELD(atol), "verify", "A",
     "likewise: allows differences of A + --rtol * |value|"},
    {"--bisect", NULL, OPT_FLAG, FIELD(bisect), "verify", "",
     "if outputs differ: names the decision of fusion that makes them"},
    {"--seed", NULL, OPT_SEED, FIELD(seed), "run bench verify grad tune", "N",
     "inputs that are not given are drawn from it (default 0)"},
    {"--seed", NULL, OPT_SEED, FIELD(seed), TRAIN_VERBS, "N",
     "of the order of rows and of what adapters start as (default 0)"},
    {"--runs", NULL, OPT_RUNS, FIELD(runs), "bench", "N",
     "timed runs (default: as many as take a second, at least 5)"},
    {"--percentiles", NULL, OPT_FLAG, FIELD(percentiles), "bench", "",
     "also tells how times spread"},
    {"--csv", NULL, OPT_FLAG, FIELD(csv), "bench", "",
     "results as lines with commas; with -v a line for each kernel"},
    {"--trace", NULL, OPT_TEXT, FIELD(trace), "bench", "FILE",
     "writes kernels' times as a trace that chrome://tracing and Perfetto open"},
    {"--html", NULL, OPT_TEXT, FIELD(html), "bench", "FILE",
     "writes a page: kernels in time, against the roofline, and as a table with their nodes"},
    {"--html", NULL, OPT_TEXT, FIELD(html), "verify", "FILE",
     "writes a page: outputs, and every stored value beside what rounding explains"},
    {"--html", NULL, OPT_TEXT, FIELD(html), "explain", "FILE",
     "writes a page: the graph before and after fusion, kernels with their code, memory"},
    {"--dot", NULL, OPT_TEXT, FIELD(dot), "explain", "FILE",
     "writes the graph for Graphviz, the nodes of a kernel in a box"},
    {"--profile", NULL, OPT_TEXT, FIELD(profile), "explain", "FILE",
     "with --html: times as \"bench -v --json\" prints them"},
    {"--isa", NULL, OPT_ISA, FIELD(isa), "run bench verify grad", "3|4",
     "at most this x86-64 level: v3 is AVX2, v4 AVX-512"},
    {"--threads", NULL, OPT_THREADS, FIELD(threads), TUNE_VERBS, "N",
     "threads (default GRAPHC_THREADS, else the cores it may use)"},
    {"--json", NULL, OPT_FLAG, FIELD(json),
     "compile run bench explain inspect verify grad tune doctor", "", "results as JSON, no notes"},
    {"--json", NULL, OPT_FLAG, FIELD(json), TRAIN_VERBS, "", "a line of JSON a step, no notes"},
    {"--verbose", "-v", OPT_FLAG, FIELD(verbose), "run", "", "says where outputs are"},
    {"--verbose", "-v", OPT_FLAG, FIELD(verbose), "bench", "", "also the time of every kernel"},
    {"--verbose", "-v", OPT_FLAG, FIELD(verbose), "explain", "",
     "also what became of the nodes that are in no kernel"},
    {"--verbose", "-v", OPT_FLAG, FIELD(verbose), "verify", "", "also every stored value"},
    {"--help", "-h", OPT_FLAG, FIELD(help), "*", "", "this text"},
    {"--version", NULL, OPT_FLAG, FIELD(version), "compile", "",
     "versions of graphc, LLVM, PTX and CUDA's assembler"},
};
#undef FIELD

static bool takes(const OptRow *row, const char *verb) {
    if (row->verbs[0] == '*') return true;
    size_t n = strlen(verb);
    for (const char *p = row->verbs; (p = strstr(p, verb)); p += n)
        if ((p == row->verbs || p[-1] == ' ') && (p[n] == ' ' || !p[n])) return true;
    return false;
}

/* Whether it decides what a model becomes: it says nothing to a plan. */
static bool compiles(const OptRow *row) {
    static const char *const names[] = {
        "--accuracy-level", "--target",  "--precision",    "--state",       "--dump-ir",
        "--cache",          "--tune-db", "--weights-root", "--allow-links", "--fuse-at-most"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(row->name, names[i]) == 0) return takes(row, "compile");
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

/* Decimal digits and nothing else; returns what follows them, NULL if there is no such number. */
static const char *digits(const char *s, uint64_t max, uint64_t *out) {
    uint64_t v = 0;
    const char *p = s;
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (digit > max || v > (max - digit) / 10) return NULL;
        v = v * 10 + digit;
    }
    *out = v;
    return p == s ? NULL : p;
}

static bool number(OptKind kind, const char *s, uint64_t *out) {
    const char *end = digits(s, ranges[kind].hi, out);
    return end && !*end && *out >= ranges[kind].lo;
}

static bool parse_dim(Cli *c, const char *s) {
    const char *eq = strchr(s, '=');
    if (!eq || eq == s) return false;
    uint64_t lo, hi;
    const char *end = digits(eq + 1, INT64_MAX, &lo);
    hi = lo;
    if (end && strncmp(end, "..", 2) == 0) end = digits(end + 2, INT64_MAX, &hi);
    if (!end || *end || hi < lo) return false;
    graphc_compile_dim d = {arena_strndup(c->arena, s, (size_t)(eq - s)), (int64_t)lo, (int64_t)hi};
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

static bool parse_list(Cli *c, void *field, const char *s) {
    TextList *list = field;
    vec_push(c->arena, list, s);
    return *s != 0;
}

/* A number that is not negative. */
static bool real(const char *s, double *out) {
    char *end;
    *out = strtod(s, &end);
    return *s && !*end && *out >= 0 && isfinite(*out);
}

static bool parse_state(Cli *c, const char *s) {
    const char *eq = strchr(s, '=');
    if (!eq || eq == s || !eq[1]) return false;
    graphc_compile_state t = {arena_strndup(c->arena, s, (size_t)(eq - s)), eq + 1};
    vec_push(c->arena, &c->states, t);
    return true;
}

static bool repeats(const OptRow *row) {
    return row->kind == OPT_LIST || row->kind == OPT_DIM || row->kind == OPT_INPUT ||
           row->kind == OPT_STATE;
}

static bool apply(Cli *c, const OptRow *row, const char *value) {
    GivenOption given = {row->name, row->kind == OPT_FLAG ? NULL : value, repeats(row)};
    vec_push(c->arena, &c->given, given);
    char *field = (char *)c + row->field;
    switch (row->kind) {
    case OPT_FLAG: *(bool *)field = true; return true;
    case OPT_TEXT: *(const char **)field = value; return *value != 0;
    case OPT_INPUT: return parse_input(c, value);
    case OPT_DIM: return parse_dim(c, value);
    case OPT_LIST: return parse_list(c, field, value);
    case OPT_REAL: return real(value, (double *)field);
    case OPT_STATE: return parse_state(c, value);
    default: return number(row->kind, value, (uint64_t *)field);
    }
    return false;
}

static graphc_status malformed(Cli *c, const char *place, const OptRow *row, const char *value) {
    if (row->kind >= OPT_SEED)
        return diag(c->diags, D_USAGE, place, "\"%s\" is not a number from %llu to %llu", value,
                    (unsigned long long)ranges[row->kind].lo,
                    (unsigned long long)ranges[row->kind].hi);
    if (row->kind == OPT_REAL)
        return diag(c->diags, D_USAGE, place, "\"%s\" is not a number", value);
    (void)diag(c->diags, D_USAGE, place, "\"%s\" is not of the form %s", value, row->arg);
    if (row->kind == OPT_INPUT && access(value, F_OK) == 0)
        diag_hint(c->diags,
                  "of a file with several arrays an input takes the one of its name: "
                  "--input NAME=%s",
                  value);
    return GRAPHC_USAGE;
}

/* The option argv[*i], whose value may be the next argument. */
static graphc_status parse_option(Cli *c, int argc, char **argv, int *i) {
    const char *arg = argv[*i], *eq = strncmp(arg, "--", 2) == 0 ? strchr(arg, '=') : NULL;
    size_t n = eq ? (size_t)(eq - arg) : strlen(arg);
    const OptRow *row = find(arg, n, c->verb->name);
    if (!row) {
        const char *verb = c->verb == c->verbs ? "" : c->verb->name, *space = *verb ? " " : "";
        (void)diag(c->diags, D_USAGE, "", "graphc%s%s has no option %.*s", space, verb, (int)n,
                   arg);
        Near near = {.name = arena_strndup(c->arena, arg, n)};
        for (size_t k = 0; k < sizeof opt_rows / sizeof *opt_rows; k++)
            if (takes(&opt_rows[k], c->verb->name)) near_try(&near, opt_rows[k].name);
        if (near.best)
            diag_hint(c->diags, "did you mean %s?", near.best);
        else
            diag_hint(c->diags, "\"graphc%s%s --help\" lists them", space, verb);
        return GRAPHC_USAGE;
    }
    const char *value = eq ? eq + 1 : NULL;
    if (row->kind == OPT_FLAG) {
        if (eq) return diag(c->diags, D_USAGE, row->name, "takes no value");
    } else if (!value) {
        if (*i + 1 == argc)
            return diag(c->diags, D_USAGE, row->name, "needs a value: %s", row->arg);
        value = argv[++*i];
    }
    return apply(c, row, value) ? GRAPHC_OK : malformed(c, row->name, row, value);
}

graphc_status cli_option_set(Cli *c, const char *file, const char *name, const char *value) {
    const OptRow *row = find(name, strlen(name), c->verb->name);
    if (!row)
        return diag(c->diags, D_USAGE, file, "graphc %s has no option %s", c->verb->name, name);
    if (!value != (row->kind == OPT_FLAG))
        return diag(c->diags, D_USAGE, file, value ? "%s takes no value" : "%s needs a value",
                    name);
    return apply(c, row, value) ? GRAPHC_OK : malformed(c, file, row, value);
}

bool cli_option_repeats(const Cli *c, const char *name) {
    const OptRow *row = find(name, strlen(name), c->verb->name);
    return !row || repeats(row);
}

graphc_status cli_check_plan_options(Cli *c) {
    for (uint32_t i = 0; i < c->given.n; i++) {
        const char *name = c->given.v[i].name;
        if (compiles(find(name, strlen(name), c->verb->name)))
            return diag(c->diags, D_USAGE, name,
                        "is for models (NAME.onnx); a plan is compiled already");
    }
    return GRAPHC_OK;
}

static graphc_status check_dims(Cli *c) {
    for (uint32_t i = 0; i < c->dims.n; i++)
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(c->dims.v[i].name, c->dims.v[k].name) == 0)
                return diag(c->diags, D_USAGE, "--dim", "\"%s\" is given twice", c->dims.v[i].name);
    for (uint32_t i = 0; i < c->dims.n && !c->json; i++)
        if (c->dims.v[i].hi == 0)
            cli_print(stderr, "graphc: --dim %s=0: what has this size is empty\n",
                      c->dims.v[i].name);
    return GRAPHC_OK;
}

static graphc_status read_tuned(Cli *c) {
    if (!c->tune_db) return GRAPHC_OK;
    c->tuned = tuned_create(c->arena);
    return tuned_read(c->tuned, c->tune_db, strcmp(c->verb->name, "tune") == 0, c->diags);
}

/* GRAPHC_THREADS stands in for --threads and is held to the same form. */
static graphc_status threads_by_default(Cli *c) {
    const OptRow *row = find("--threads", strlen("--threads"), c->verb->name);
    const char *env = getenv("GRAPHC_THREADS");
    if (!row || c->threads || !env || !*env || number(OPT_THREADS, env, &c->threads))
        return GRAPHC_OK;
    return malformed(c, "GRAPHC_THREADS", row, env);
}

/* Negative: not given. */
static const TrainArgs cli_train_defaults = {.lr = -1,
                                             .min_lr = -1,
                                             .warmup = -1,
                                             .decay = -1,
                                             .epochs = -1,
                                             .hold_out = -1,
                                             .beta1 = -1,
                                             .beta2 = -1,
                                             .eps = -1,
                                             .weight_decay = -1,
                                             .momentum = -1,
                                             .loss_scale = -1,
                                             .end_token = UINT64_MAX};

graphc_status cli_parse(Cli *c, int argc, char **argv) {
    bool options = true; /* until "--" */
    c->fuse_at_most = FUSE_ALL;
    c->train = cli_train_defaults;
    for (int i = 0; i < argc; i++) {
        if (options && strcmp(argv[i], "--") == 0)
            options = false;
        else if (!options || argv[i][0] != '-' || !argv[i][1])
            vec_push(c->arena, &c->args, argv[i]);
        else
            GC_TRY(parse_option(c, argc, argv, &i));
    }
    if (c->train.config) GC_TRY(cli_config_read(c));
    GC_TRY(read_tuned(c));
    GC_TRY(check_dims(c));
    return threads_by_default(c);
}

/* Lines of at most 79 characters: words of the text behind `left`, which stand in the column; a
 * left side that reaches it has a line of its own. */
static void help_lines(const char *left, int column, const char *text) {
    enum { WIDTH = 79 };
    int at = printf("%s", left);
    if (*left && at + 1 > column) {
        printf("\n");
        at = 0;
    }
    for (const char *p = text; *p;) {
        int n = (int)strcspn(p, " ");
        bool fresh = at < column || !at;
        if (!fresh && at + 1 + n > WIDTH) {
            printf("\n");
            at = 0;
            fresh = true;
        }
        at += printf("%*s%.*s", fresh ? column - at : 1, "", n, p);
        p += n;
        p += strspn(p, " ");
    }
    printf("\n");
}

/* Those of the verb, or those that it hands on to the compiler. */
static void help_options(const char *title, const char *verb, bool of_compiling) {
    bool any = false;
    for (size_t i = 0; i < sizeof opt_rows / sizeof *opt_rows; i++) {
        const OptRow *r = &opt_rows[i];
        const bool own = !compiles(r) || strcmp(verb, "compile") == 0;
        if (!takes(r, verb) || own == of_compiling) continue;
        if (!any) printf("\n%s:\n", title);
        any = true;
        char left[64];
        snprintf(left, sizeof left, "  %s%s%s %s", r->shortname ? r->shortname : "",
                 r->shortname ? ", " : "", r->name, r->arg);
        help_lines(left, 28, r->help);
    }
}

void cli_help(const Verb *verbs, const Verb *verb) {
    if (verb) {
        char left[32];
        snprintf(left, sizeof left, "graphc %s -", verb->name);
        help_lines(left, (int)strlen(left) + 1, verb->summary);
        printf("\nUsage:\n");
        help_lines("", 2, verb->usage);
        help_options("Options", verb->name, false);
        help_options("Options of compiling, where the file is a model", verb->name, true);
        printf("\nExamples:\n%s", verb->examples);
        return;
    }
    printf("graphc - compiles ONNX graphs into plans of fused kernels, and runs them\n\nUsage:\n");
    for (const Verb *v = verbs; v->name; v++) {
        help_lines("", 2, v->usage);
        help_lines("", 6, v->summary);
    }
    printf("\n\"graphc VERB --help\" explains a verb by example. A verb that takes MODEL.onnx\n"
           "for a plan compiles it first. Without a verb, or with \"compile\", a model becomes\n"
           "a plan:\n");
    help_options("Options", "compile", false);
    printf("\nExamples:\n%s", verbs[0].examples);
    printf("\n");
    help_lines("", 0,
               "Plans are checked before use, but they hold machine code: run only those that "
               "you built or trust. Models are data, and safe to compile whatever they hold.");
    printf("\n");
    help_lines(
        "", 0,
        "Exit status: 0 done, 1 a comparison failed, 2 usage, 3 invalid file, 4 unsupported, "
        "5 device or run-time failure, 6 out of memory, 7 input/output failure, 8 cancelled.");
    help_lines("", 0, "Environment: GRAPHC_THREADS, GRAPHC_CHECK, NO_COLOR. Manual: man graphc.");
}
