/* graphc: finds the verb, parses its options, runs it, prints what went wrong, exits with its
 * status. */
#include "frontend/driver/cli/cli.h"
#include "frontend/driver/cli/near.h"
#include "runtime/base/cores.h"
#include "runtime/graphc.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const Verb verbs[] = {
    /* ends with a NULL name; the first is compiling, without a verb */
    {"compile", cmd_compile, 1, 1, "graphc [compile] MODEL.onnx -o PLAN [options]",
     "compiles a model into a plan, one file of fused kernels and constants",
     "  graphc bert.onnx -o bert.plan\n"
     "  graphc bert.onnx -o bert.plan --dim batch=1 --dim seq=2..512 --dump-ir ir/\n"
     "  graphc resnet50.onnx -o r.plan --target cpu,sm_90a\n"},
    {"run", cmd_run, 1, 1,
     "graphc run PLAN|MODEL.onnx --output-dir DIR [--input NAME=FILE ...] [options]",
     "runs a plan once, on inputs from files or drawn from a seed",
     "  graphc run bert.plan --input input_ids=ids.npy \\\n"
     "      --input attention_mask=mask.npy --output-dir out\n"
     "  graphc run resnet50.plan --dim batch=1 --seed 7 --output-dir out\n"},
    {"bench", cmd_bench, 1, 2, "graphc bench PLAN|MODEL.onnx [PLAN|MODEL.onnx] [options]",
     "times runs of a plan, or compares two that run in turns",
     "  graphc bench bert.plan --dim batch=1 --dim seq=64 -v\n"
     "  graphc bench resnet50.onnx --dim batch=1 --threads 2 --json\n"
     "  graphc bench before.plan after.plan --dim batch=1   their times' ratio\n"},
    {"explain", cmd_explain, 1, 3, "graphc explain PLAN|MODEL.onnx [NODE [NODE]] [options]",
     "says what was fused with what, why not, and what bounds each kernel",
     "  graphc explain bert.onnx\n  graphc explain bert.onnx node_MatMul_3\n"
     "  graphc explain bert.plan node_linear_3 node_softmax_1   why they are apart\n"
     "  graphc explain bert.onnx --dim batch=1 --dim seq=64 --html bert.html\n"},
    {"inspect", cmd_inspect, 1, 1, "graphc inspect PLAN|MODEL.onnx [--json] [options]",
     "lists inputs, outputs, symbols, kernels, memory and sizes",
     "  graphc inspect bert.plan\n  graphc inspect bert.onnx --target sm_90a --json\n"},
    {"verify", cmd_verify, 1, 1, "graphc verify MODEL.onnx [--data DIR] [--dim NAME=N] [options]",
     "compares the compiled model with the reference evaluator and names the first bad node",
     "  graphc verify model.onnx --dim batch=2\n  graphc verify model.onnx --data "
     "test_data_set_0\n"},
    {"grad", cmd_grad, 1, 1,
     "graphc grad MODEL.onnx --loss OUTPUT --output-dir DIR [--wrt LIST] [--input NAME=FILE ...] "
     "[options]",
     "computes the gradients of an output with respect to weights or inputs",
     "  graphc grad gpt2.onnx --loss logits --cotangent dlogits.npy \\\n"
     "      --input input_ids=ids.npy --output-dir grads\n"
     "  graphc grad model.onnx --loss y --wrt inputs --output-dir grads   of sum(y)\n"},
    {"train", cmd_train, 1, 1,
     "graphc train MODEL.onnx --loss SPEC --data FILE ... -o DIR [options]",
     "trains a model's weights",
     "  graphc train gpt2.onnx --loss \"cross_entropy(logits, labels)\" \\\n"
     "      --data text.txt --seq 256 --steps 200 -o out\n"
     "  graphc train mlp.onnx --loss \"mse(y, target)\" --data x=x.npy \\\n"
     "      --data target=t.npy --epochs 3 -o out\n"},
    {"finetune", cmd_train, 1, 1,
     "graphc finetune MODEL.onnx --loss SPEC --data FILE ... -o DIR [--lora SPEC] [options]",
     "trains low-rank adapters beside a model's frozen weights",
     "  graphc finetune llama.onnx --loss \"cross_entropy(logits, labels)\" \\\n"
     "      --lora r=16,alpha=32,targets=all-linear --data chat.jsonl -o adapter\n"},
    {"merge", cmd_merge, 1, 1,
     "graphc merge MODEL.onnx --adapter DIR -o OUT.onnx|OUT.safetensors [options]",
     "adds an adapter to a model's weights",
     "  graphc merge llama.onnx --adapter chat -o llama_chat.onnx\n"
     "  graphc merge llama.onnx --adapter chat -o model.safetensors   by module names\n"},
    {"tune", cmd_tune, 1, 1, "graphc tune PLAN|MODEL.onnx [-o PLAN] [--tune-db FILE] [options]",
     "times the ways that a plan's kernels can be computed in, and chooses",
     "  graphc tune resnet50.onnx -o r.plan --device cuda --dim batch=1\n"
     "  graphc resnet50.onnx -o r.plan --target sm_90a --dim batch=1 --variants 6\n"
     "  graphc tune r.plan --device cuda --tune-db h200.tuned\n"
     "  graphc resnet50.onnx -o r.plan --target sm_90a --dim batch=1 \\\n"
     "      --tune-db h200.tuned   later, as fast\n"},
    {"doctor", cmd_doctor, 0, 0, "graphc doctor [--json]",
     "says what this machine offers: instruction sets, compiler, GPUs", "  graphc doctor\n"},
    {NULL, NULL, 0, 0, NULL, NULL, NULL},
};

typedef struct Program {
    int argc;
    char **argv;
    graphc_status status;
} Program;

static void print_version(void) {
    printf("graphc %u.%u\n", graphc_version() >> 16, graphc_version() & 0xffff);
    printf("LLVM %s\nPTX %s\n", codegen_llvm_version(), codegen_ptx_version());
    printf("targets native");
    for (uint32_t i = 0; target_at(i); i++) printf(" %s", target_at(i)->name);
    printf("\n"); /* shell completions read this line */
    Arena *a = arena_create();
    const char *assembler = codegen_assembler(a);
    printf("%s\n", assembler ? assembler : "no PTX assembler: plans carry PTX only");
    arena_destroy(a);
}

static const Verb *find_verb(const char *name) {
    for (const Verb *v = verbs; v->name; v++)
        if (strcmp(v->name, name) == 0) return v;
    return NULL;
}

/* What stands first is a verb or a model; a misspelt verb is neither. */
static graphc_status unknown_verb(Cli *c, const char *name) {
    Near near = {.name = name};
    for (const Verb *v = verbs; v->name; v++) near_try(&near, v->name);
    (void)diag(c->diags, D_USAGE, name,
               "neither a verb nor a file; \"graphc --help\" lists the verbs");
    if (near.best) diag_hint(c->diags, "did you mean \"graphc %s\"?", near.best);
    return GRAPHC_USAGE;
}

/* graphc help [VERB], graphc version. */
static bool is_word(const Program *p, const char *word, int most) {
    return p->argc > 1 && p->argc <= most && strcmp(p->argv[1], word) == 0 && access(word, F_OK);
}

static bool asks_for_help(const char *arg) {
    return strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0;
}

static graphc_status help_of(Cli *c, const char *name) {
    const Verb *v = name ? find_verb(name) : NULL;
    if (name && !v && !asks_for_help(name)) return unknown_verb(c, name);
    cli_help(verbs, v);
    return GRAPHC_OK;
}

static graphc_status version_of(Cli *c, const char *more) {
    if (more && !asks_for_help(more))
        return diag(c->diags, D_USAGE, more,
                    "graphc version takes nothing; graphc doctor --json "
                    "gives versions as data");
    if (more)
        cli_help(verbs, NULL);
    else
        print_version();
    return GRAPHC_OK;
}

/* What stands first is no verb, and no file that is there or (with -o) may be meant. */
static bool is_unknown(const Cli *c, bool verb) {
    return !verb && c->args.n && !c->output && access(c->args.v[0], F_OK);
}

static graphc_status run_verb(Cli *c) {
    const Verb *v = c->verb;
    if (c->args.n < v->min_args) return cli_usage(c, "a file is missing");
    if (c->args.n > v->max_args)
        return cli_usage(
            c, arena_printf(c->arena, "\"%s\" is one argument too many", c->args.v[v->max_args]));
    if (c->args.n && strcmp(c->args.v[0], "-") == 0)
        return diag(c->diags, D_USAGE, "-",
                    "models and plans are files, never standard input: their weights lie beside "
                    "them");
    return v->run(c);
}

/* What was printed has arrived, or it is said that it has not, unless the verb said so; a reader
 * that went away knows. */
static graphc_status finish_stdout(Cli *c, graphc_status verb) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return GRAPHC_OK;
    if (errno == EPIPE || (!errno && verb == GRAPHC_IO)) return GRAPHC_IO;
    return diag(c->diags, D_IO, "standard output", "cannot be written%s%s", errno ? ": " : "",
                errno ? strerror(errno) : "");
}

/* The exit status never is a signal's: writing fails with an error instead, and what ends the
 * program for good (a failed invariant, a mapped file that became shorter) is said. */
static _Noreturn void die(const char *text, graphc_status status) {
    (void)!write(STDERR_FILENO, text, strlen(text));
    _exit((int)status);
}

/* LLVM has no status for memory: it aborts the thread whose allocation failed. */
static bool short_of_memory(void) {
    enum { SOME = 64 << 20 };
    if (errno == ENOMEM) return true;
    return mmap(NULL, SOME, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
}

static void on_abort(int signal) {
    (void)signal;
    if (short_of_memory()) die("graphc: error: out of memory in LLVM\n", GRAPHC_NO_MEMORY);
    die("graphc: error: ended by what is said above\n", GRAPHC_RUNTIME);
}

static void on_bus_error(int signal) {
    (void)signal;
    die("graphc: error: a file that is in use became shorter\n", GRAPHC_IO);
}

static void set_signals(void) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGABRT, on_abort);
    signal(SIGBUS, on_bus_error);
}

static void program(void *arg) {
    Program *p = arg;
    int argc = p->argc;
    char **argv = p->argv;
    const Verb *verb = argc > 1 ? find_verb(argv[1]) : NULL;
    int skip = verb ? 2 : 1;
    Cli c = {.arena = arena_create(),
             .verbs = verbs,
             .verb = verb ? verb : verbs,
             .rtol = -1,
             .atol = -1};
    c.diags = diag_create(c.arena, NULL);
    bool help = is_word(p, "help", 3), version = is_word(p, "version", 3);
    graphc_status s = help || version ? GRAPHC_OK : cli_parse(&c, argc - skip, argv + skip);
    if (help) {
        s = help_of(&c, argc > 2 ? argv[2] : NULL);
    } else if (version) {
        s = version_of(&c, argc > 2 ? argv[2] : NULL);
    } else if (s == GRAPHC_OK && is_unknown(&c, verb)) {
        s = unknown_verb(&c, c.args.v[0]);
    } else if (s == GRAPHC_OK && (c.help || argc < 2)) {
        cli_help(verbs, verb);
        s = c.help ? GRAPHC_OK : GRAPHC_USAGE;
    } else if (s == GRAPHC_OK && c.version) {
        print_version();
    } else if (s == GRAPHC_OK) {
        s = run_verb(&c);
    }
    graphc_status written = finish_stdout(&c, s);
    if (s == GRAPHC_OK) s = written;
    cli_print_diags(c.diags);
    arena_destroy(c.arena);
    p->status = s;
}

int main(int argc, char **argv) {
    Program p = {.argc = argc, .argv = argv};
    set_signals();
    size_t wanted = stack_guard(program, &p);
    if (!wanted) return (int)p.status;
    fprintf(stderr, "graphc: error[G%04d]: out of memory (%zu bytes wanted)\n",
            diag_info[D_NO_MEMORY].number, wanted);
    return GRAPHC_NO_MEMORY;
}
