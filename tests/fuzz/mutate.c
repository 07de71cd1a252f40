/* Every truncation of a file and every byte of it changed, in process, for sanitizer builds:
 *
 *     mutate FILE...       models (.onnx), tensors (.npy, .npz, .pb, .safetensors), tokens
 * (.jsonl), configurations of adapters (.json) and plans (any other name); every eleventh mutant,
 * or with GRAPHC_TEST_ALL=1 in the environment all mutate -n N FILE     mutant number N only, with
 * its messages
 *
 * Mutants 2k and 2k+1 of a file change byte k by its lowest and by all bits; those after them cut
 * it. A model is imported and optimised; if its kernels are ones that were not seen before, it is
 * evaluated, compiled and run, and results are compared. A plan must be refused: its hashes cover
 * every byte. With hashes made right again it must be refused or have consistent records. Fails on
 * an error that is no message, on internal errors, wrong results, and more than 512 MiB of memory.
 */
#include "frontend/driver/compare.h"
#include "frontend/driver/pipeline.h"
#include "frontend/driver/tensors/tensor_file.h"
#include "runtime/base/map.h"
#include "runtime/graphc.h"
#include "runtime/plan.h"
#include "runtime/train/adapter/adapter.h"
#include "runtime/train/data/tokens.h"
#include "runtime/train/safetensors.h"
#include "tests/fuzz/rehash.h"
#include "tests/unit/test.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#define MEMORY_LIMIT_KB (512 << 10)
#define SECONDS_EACH    60
#define SMALL_NUMEL     (1 << 14)
#define SMALL_BYTES     (8 << 20)
#define TOLERANCE       1e-3 /* of the reference's standard deviation */
#define X86_RET         0xc3

typedef struct File {
    const char *path;
    uint8_t *bytes; /* mutated in place */
    size_t size;
    int fd; /* the mutant as a file */
    char fd_path[32];
} File;

typedef struct Totals {
    uint32_t mutants, accepted, distinct, ran;
} Totals;

static char current[256]; /* what is being tried, for the report of a crash */
static bool verbose;

static void say_current(void) {
    fprintf(stderr, "mutate: while trying %s\n", current);
}

static void out_of_time(int signal_number) {
    (void)signal_number;
    say_current();
    _exit(1);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
void __sanitizer_set_death_callback(void (*fn)(void));
const char *__asan_default_options(void);

/* Huge allocations fail as they would without the sanitizer; freed memory counts as memory. */
__attribute__((visibility("default"))) const char *__asan_default_options(void) {
    return "allocator_may_return_null=1:max_allocation_size_mb=512:quarantine_size_mb=16";
}
#endif

static bool wrong(const char *what) {
    fprintf(stderr, "%s: %s\n", current, what);
    test_failures++;
    return false;
}

/* --- models --------------------------------------------------------------------------------- */

/* Hashes of schedules that were compiled before. */
typedef struct Seen {
    uint64_t *v;
    size_t n, cap;
} Seen;

static bool seen_before(Seen *s, uint64_t hash) {
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i] == hash) return true;
    if (s->n == s->cap) s->v = realloc(s->v, (s->cap = 2 * s->cap + 64) * sizeof *s->v);
    s->v[s->n++] = hash;
    return false;
}

static bool check_messages(const Pipeline *p, graphc_status s) {
    if (verbose)
        for (uint32_t i = 0; i < diag_count(p->diags); i++)
            fprintf(stderr, "%s\n", diag_render(p->diags, diag_at(p->diags, i), p->arena, false));
    for (uint32_t i = 0; i < diag_count(p->diags); i++) {
        DiagId id = diag_at(p->diags, i)->id;
        if (diag_info[id].severity == SEV_error && diag_info[id].status == GRAPHC_RUNTIME)
            return wrong(diag_render(p->diags, diag_at(p->diags, i), p->arena, false));
    }
    if ((s == GRAPHC_OK) != (diag_errors(p->diags) == 0))
        return wrong(s == GRAPHC_OK ? "errors, but success" : "a failure without a message");
    return s == GRAPHC_OK;
}

/* Memory that ends where no memory is, up to the alignment: compiled code is not instrumented. */
typedef struct Guarded {
    uint8_t *base, *start;
    size_t room;
} Guarded;

static Guarded guarded(size_t size) {
    const size_t page = 4096, align = 64;
    Guarded g = {.room = (size + page - 1) / page * page};
    g.base = mmap(NULL, g.room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.base == MAP_FAILED || mprotect(g.base + g.room, page, PROT_NONE) != 0) abort();
    g.start = g.base + g.room - (size + align - 1) / align * align;
    g.room += page;
    return g;
}

/* Small inputs for the graph: symbols as near to 2 as their ranges allow. */
static EvalTensor *make_inputs(const Graph *g, Arena *a) {
    uint32_t nsyms = expr_sym_count(g->exprs);
    int64_t *syms = ARENA_ARRAY(a, int64_t, nsyms + 1);
    for (uint32_t i = 0; i < nsyms; i++) {
        const SymInfo *info = expr_sym_info(g->exprs, i);
        syms[i] = info->lo > 2 ? info->lo : info->hi < 2 ? info->hi : 2;
    }
    EvalTensor *in = ARENA_ARRAY(a, EvalTensor, g->inputs.n + 1);
    for (uint32_t i = 0; i < g->inputs.n; i++) {
        const Type *t = &g->inputs.v[i].type;
        in[i] = (EvalTensor){.dtype = t->dtype, .rank = t->rank};
        uint64_t n = 1;
        for (uint32_t d = 0; d < t->rank; d++) {
            int64_t size = expr_eval(g->exprs, t->dim[d], syms);
            if (size < 0 || size > SMALL_NUMEL || (n *= (uint64_t)size) > SMALL_NUMEL) return NULL;
            in[i].dim[d] = size;
        }
        in[i].data = arena_array(a, n + 1, dtype_bytes(t->dtype));
        for (uint64_t k = 0; k < n; k++)
            if (dtype_is_float(t->dtype))
                dtype_store_f64(t->dtype, in[i].data, k, (double)(k * 7 % 11) / 8 - 0.6);
            else
                dtype_store_i64(t->dtype, in[i].data, k, k % 3 == 0);
    }
    return in;
}

static graphc_status bind_input(graphc_session *s, const graphc_plan *p, uint32_t i,
                                const EvalTensor *in, Guarded *memory) {
    graphc_tensor t = {
        .device = GRAPHC_CPU, .dtype = graphc_plan_input(p, i).dtype, .rank = in->rank};
    size_t bytes = (size_t)tensor_numel(in) * dtype_bytes(in->dtype);
    *memory = guarded(bytes);
    t.data = memcpy(memory->start, in->data, bytes);
    memcpy(t.shape, in->dim, sizeof *t.shape * in->rank);
    return graphc_bind_input(s, i, &t);
}

/* memory: one per input and one for the workspace. */
static graphc_status run_session(graphc_session *s, const graphc_plan *p, const EvalTensor *in,
                                 Guarded *memory) {
    size_t bytes;
    uint32_t n = graphc_plan_inputs(p);
    for (uint32_t i = 0; i < n; i++) GC_TRY(bind_input(s, p, i, &in[i], &memory[i]));
    GC_TRY(graphc_workspace_size(s, &bytes));
    if (bytes > SMALL_BYTES) return GRAPHC_NO_MEMORY;
    memory[n] = guarded(bytes);
    GC_TRY(graphc_bind_workspace(s, memory[n].start, bytes));
    return graphc_run(s);
}

static void compare_output(const graphc_plan *p, graphc_session *s, uint32_t i,
                           const EvalTensor *want) {
    graphc_tensor t;
    if (graphc_output(s, i, &t) != GRAPHC_OK) {
        (void)wrong("an output is missing");
        return;
    }
    EvalTensor got = {.rank = (uint8_t)t.rank, .data = t.data};
    if (!dtype_from_name(graphc_plan_output(p, i).dtype_name, &got.dtype)) got.dtype = DT_none;
    memcpy(got.dim, t.shape, sizeof *t.shape * (size_t)t.rank);
    Comparison c = compare_tensors(&got, want, TOLERANCE, TOLERANCE);
    char text[160];
    snprintf(text, sizeof text, "output %u: %llu of %llu elements are wrong, by up to %g", i,
             (unsigned long long)c.bad, (unsigned long long)c.count, c.max_abs);
    if (!c.same_type || c.bad) (void)wrong(c.same_type ? text : "an output has another type");
}

/* Compiles, runs and compares with the evaluator. */
static bool run_model(Pipeline *p, const graphc_compile_options *o) {
    EvalTensor *in = make_inputs(p->graph, p->arena);
    EvalTensor *want = ARENA_ARRAY(p->arena, EvalTensor, p->graph->outputs.n + 1);
    EvalOptions eo = {.round_f32 = true, .max_bytes = SMALL_BYTES};
    if (!in || eval_run(p->graph, in, &eo, p->arena, want) != GRAPHC_OK) in = NULL;
    p->diags = diag_create(p->arena, current);
    graphc_status st = pipeline_targets(p, o);
    if (st == GRAPHC_OK) st = pipeline_plan(p, o);
    if (!check_messages(p, st) || !in) return false;
    graphc_plan *plan = NULL;
    graphc_session *s = NULL;
    graphc_session_options so = GRAPHC_SESSION_OPTIONS_INIT;
    char why[512] = "";
    so.threads = 1;
    bool ran = false;
    uint32_t ninputs = p->graph->inputs.n;
    Guarded *memory = ARENA_ARRAY(p->arena, Guarded, ninputs + 1);
    st = graphc_plan_load_memory(p->plan, p->plan_size, NULL, &plan, why, sizeof why);
    if (st == GRAPHC_OK) st = graphc_session_create(plan, &so, &s, why, sizeof why);
    if (st != GRAPHC_OK)
        (void)wrong(why);
    else if ((st = run_session(s, plan, in, memory)) == GRAPHC_OK) {
        ran = true;
        for (uint32_t i = 0; i < p->graph->outputs.n; i++) compare_output(plan, s, i, &want[i]);
    } else if (verbose)
        fprintf(stderr, "not run: %s\n", graphc_session_error(s));
    graphc_session_destroy(s);
    graphc_plan_destroy(plan);
    for (uint32_t i = 0; i <= ninputs; i++)
        if (memory[i].room) munmap(memory[i].base, memory[i].room);
    return ran;
}

static bool write_mutant(const File *f, size_t size) {
    return (pwrite(f->fd, f->bytes, size, 0) == (ssize_t)size &&
            ftruncate(f->fd, (off_t)size) == 0) ||
           wrong("the mutant could not be written");
}

static void try_model(const File *f, size_t size, Seen *seen, Totals *t) {
    Pipeline p;
    graphc_compile_options o = GRAPHC_COMPILE_OPTIONS_INIT;
    o.threads = 1;
    if (!write_mutant(f, size)) return;
    pipeline_init(&p, f->fd_path);
    graphc_status st = pipeline_import(&p, f->fd_path, &o);
    if (check_messages(&p, st) && check_messages(&p, pipeline_optimise(&p, &o))) {
        Schedule *s;
        StrBuf text;
        t->accepted++;
        sb_init(&text, p.arena);
        if (schedule_build(p.graph, &target_for(PLAN_cpu)->machine, FUSE_ALL, p.arena, &s) ==
            GRAPHC_OK)
            schedule_print(s, &text);
        if (!seen_before(seen, hash_bytes(sb_str(&text), text.n, 0))) {
            t->distinct++;
            t->ran += run_model(&p, &o);
        }
    }
    pipeline_free(&p);
}

/* --- plans ---------------------------------------------------------------------------------- */

/* Whoever knows the hashes may change sizes and indices: what is accepted has to print, bind and
 * run with the runtime staying inside its memory. The kernels return at once, whatever their
 * entries. */
static void run_rehashed(const File *f, const Plan *plan) {
    graphc_plan *p = NULL;
    graphc_session *s = NULL;
    graphc_session_options o = GRAPHC_SESSION_OPTIONS_INIT;
    size_t bytes;
    static float zeros[SMALL_NUMEL];
    o.threads = 1;
    graphc_status st = graphc_plan_load_memory(f->bytes, f->size, NULL, &p, NULL, 0);
    if (st == GRAPHC_OK) st = graphc_session_create(p, &o, &s, NULL, 0);
    for (uint32_t i = 0; st == GRAPHC_OK && i < plan->ninputs; i++) {
        graphc_io_info info = graphc_plan_input(p, i);
        graphc_tensor t = {
            .data = zeros, .device = GRAPHC_CPU, .dtype = info.dtype, .rank = info.rank};
        for (int32_t d = 0; d < info.rank; d++) {
            long long size = atoll(info.dims[d]);
            t.shape[d] = size > 0 && size < 64 ? size : 2;
        }
        st = graphc_bind_input(s, i, &t);
    }
    if (st == GRAPHC_OK) st = graphc_workspace_size(s, &bytes);
    if (st == GRAPHC_OK && bytes <= SMALL_BYTES) st = graphc_run(s);
    graphc_session_destroy(s);
    graphc_plan_destroy(p);
}

static void try_rehashed(const File *f, bool run, Totals *t) {
    Plan plan;
    char why[256] = "";
    rehash(f->bytes);
    if (plan_parse(f->bytes, f->size, &plan, (ErrorText){why, sizeof why}) != GRAPHC_OK) return;
    Arena *a = arena_create();
    StrBuf text;
    sb_init(&text, a);
    plan_print(&plan, &text);
    arena_destroy(a);
    if (run) run_rehashed(f, &plan);
    plan_release(&plan);
    t->accepted++;
    t->ran += run;
}

static const PlanSection *sections(const File *f) {
    return (const PlanSection *)(const void *)((const PlanHeader *)(const void *)f->bytes + 1);
}

static void try_plan(File *f, size_t size, size_t changed, Totals *t) {
    graphc_plan *p = NULL;
    char why[256] = "";
    graphc_status st = graphc_plan_load_memory(f->bytes, size, NULL, &p, why, sizeof why);
    if (st == GRAPHC_OK)
        (void)wrong("a damaged plan was loaded");
    else if (!why[0] || (st != GRAPHC_INVALID && st != GRAPHC_UNSUPPORTED))
        (void)wrong("a damaged plan was not refused as such");
    graphc_plan_destroy(p);
    const PlanSection *s = sections(f), *code = &s[PLAN_SEC_code];
    if (size != f->size || changed < s[0].offset) return; /* rehash() trusts the section table */
    bool in_code = changed >= code->offset && changed < code->offset + code->size;
    uint8_t *whole = malloc(size);
    memcpy(whole, f->bytes, size);
    if (!in_code) memset(f->bytes + code->offset, X86_RET, code->size);
    try_rehashed(f, !in_code, t);
    memcpy(f->bytes, whole, size);
    free(whole);
}

/* -------------------------------------------------------------------------------------------- */

/* A tensor that is accepted has all its elements. */
static void try_tensor(const File *f, size_t size, Totals *t) {
    if (!write_mutant(f, size)) return;
    Arena *a = arena_create();
    DiagSink *d = diag_create(a, f->fd_path);
    EvalTensor e;
    graphc_status st = tensor_file_read(a, d, f->fd_path, "x", &e);
    if ((st == GRAPHC_OK) != (diag_errors(d) == 0)) (void)wrong("a failure without a message");
    if (st == GRAPHC_OK) {
        t->accepted++;
        for (uint64_t i = 0, n = tensor_numel(&e); i < n; i++)
            (void)dtype_load_f64(e.dtype, e.data, i);
    }
    arena_destroy(a);
}

/* What is accepted has all its bytes; a file with a checksum is never accepted. */
static void try_safetensors(const File *f, size_t size, Totals *t) {
    uint8_t *exact = malloc(size + !size); /* for the sanitizer to see where it ends */
    Safetensors s;
    char why[256] = "";
    memcpy(exact, f->bytes, size);
    graphc_status st = safetensors_parse(exact, size, &s, (ErrorText){why, sizeof why});
    if (st != GRAPHC_OK && !why[0]) (void)wrong("a failure without a message");
    if (st == GRAPHC_OK) {
        t->accepted++;
        if (safetensors_check(&s, true, (ErrorText){why, sizeof why}) == GRAPHC_OK)
            (void)wrong("damage was not found");
        for (uint32_t i = 0; i < s.ntensors; i++) {
            static volatile uint64_t all;
            all ^= hash_bytes(s.tensors[i].data, s.tensors[i].bytes, 0);
            if (safetensors_find(&s, s.tensors[i].name) != &s.tensors[i])
                (void)wrong("a tensor is not found by its name");
        }
        safetensors_close(&s);
    }
    if (verbose) fprintf(stderr, "%s\n", why);
    free(exact);
}

/* What is accepted keeps its promises: ids below the vocabulary, labels that are ids or nothing. */
static void try_tokens(const File *f, size_t size, Totals *t) {
    const TokenOptions o = {.vocabulary = 100, .end = -1, .format = TOKENS_jsonl};
    Tokens tokens;
    char why[256] = "";
    if (!write_mutant(f, size)) return;
    tokens_init(&tokens);
    graphc_status st = tokens_add(&tokens, f->fd_path, &o, (ErrorText){why, sizeof why});
    if (st != GRAPHC_OK && !why[0]) (void)wrong("a failure without a message");
    for (uint64_t i = 0; i < tokens.ntokens; i++) {
        int64_t id, label;
        tokens_copy(&tokens, i, 1, &id, &label);
        if (id < 0 || id >= o.vocabulary || label >= o.vocabulary ||
            (label < 0 && label != TOKENS_IGNORE))
            (void)wrong("an id or label beyond the vocabulary");
    }
    t->accepted += st == GRAPHC_OK;
    tokens_free(&tokens);
}

static void try_adapter_config(const File *f, size_t size, Totals *t) {
    AdapterConfig c;
    char why[256] = "", *text;
    int64_t rank;
    double scale;
    size_t n;
    const ErrorText e = {why, sizeof why};
    if (!write_mutant(f, size)) return;
    graphc_status st = adapter_config_read(f->fd_path, &c, e);
    if (st != GRAPHC_OK && !why[0]) (void)wrong("a failure without a message");
    if (st != GRAPHC_OK) return;
    t->accepted++;
    (void)!adapter_scale(&c, "model.layers.0.q_proj", &rank, &scale, e);
    if (adapter_config_text(&c, &text, &n, e) == GRAPHC_OK) free(text);
    adapter_config_free(&c);
}

static bool ends_in(const char *path, const char *end) {
    size_t n = strlen(path), m = strlen(end);
    return n > m && strcmp(path + n - m, end) == 0;
}

static bool file_open(File *f, const char *path) {
    FileMap m;
    char why[256];
    if (file_map(path, &m, why) != GRAPHC_OK) {
        fprintf(stderr, "%s: %s\n", path, why);
        return false;
    }
    *f = (File){.path = path, .size = m.size, .bytes = aligned_alloc(64, (m.size + 63) / 64 * 64)};
    memcpy(f->bytes, m.data, m.size);
    file_unmap(&m);
    f->fd = memfd_create("mutant", MFD_CLOEXEC);
    snprintf(f->fd_path, sizeof f->fd_path, "/proc/self/fd/%d", f->fd);
    return f->fd >= 0;
}

static void check_memory(void) {
    static long reported;
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    if (use.ru_maxrss <= MEMORY_LIMIT_KB || use.ru_maxrss < reported * 11 / 10) return;
    reported = use.ru_maxrss;
    (void)wrong("more memory was used than the limit allows");
}

/* Of processor time: other work on the machine does not count. */
static void limit_time(int seconds) {
    const struct itimerval most = {.it_value = {.tv_sec = seconds}};
    if (setitimer(ITIMER_PROF, &most, NULL)) (void)wrong("no timer");
}

static void try_mutant(File *f, size_t n, Seen *seen, Totals *t) {
    bool cut = n >= 2 * f->size;
    size_t at = cut ? n - 2 * f->size : n / 2, size = cut ? at : f->size;
    uint8_t flip = cut ? 0 : n % 2 ? 0xff : 0x01, kept = cut ? 0 : f->bytes[at];
    snprintf(current, sizeof current, "%s -n %zu (byte %zu %s)", f->path, n, at,
             cut     ? "is the end"
             : n % 2 ? "inverted"
                     : "lowest bit");
    if (!cut) f->bytes[at] ^= flip;
    t->mutants++;
    limit_time(SECONDS_EACH);
    if (ends_in(f->path, ".onnx"))
        try_model(f, size, seen, t);
    else if (ends_in(f->path, ".npy") || ends_in(f->path, ".npz") || ends_in(f->path, ".pb"))
        try_tensor(f, size, t);
    else if (ends_in(f->path, ".safetensors"))
        try_safetensors(f, size, t);
    else if (ends_in(f->path, ".jsonl"))
        try_tokens(f, size, t);
    else if (ends_in(f->path, ".json"))
        try_adapter_config(f, size, t);
    else
        try_plan(f, size, at, t);
    limit_time(0);
    check_memory();
    if (!cut) f->bytes[at] = kept;
}

static void try_file(const char *path, size_t first, size_t end) {
    File f;
    Seen seen = {0};
    Totals t = {0};
    if (!CHECK(file_open(&f, path))) return;
    if (end > 3 * f.size) end = 3 * f.size;
    for (size_t n = first; n < end; n++)
        if (test_takes(n - first, 11)) try_mutant(&f, n, &seen, &t);
    printf("%s: %u mutants, %u accepted, %u compiled, %u run\n", path, t.mutants, t.accepted,
           t.distinct, t.ran);
    close(f.fd);
    free(f.bytes);
    free(seen.v);
}

int main(int argc, char **argv) {
    int arg = 1;
    size_t first = 0, end = SIZE_MAX;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    __sanitizer_set_death_callback(say_current);
#endif
    signal(SIGPROF, out_of_time);
    if (argc > 2 && strcmp(argv[1], "-n") == 0) {
        first = strtoull(argv[2], NULL, 10);
        end = first + 1;
        verbose = true;
        arg = 3;
    }
    for (; arg < argc; arg++) try_file(argv[arg], first, end);
    if (test_failures) fprintf(stderr, "%d failures\n", test_failures);
    return test_failures != 0;
}
