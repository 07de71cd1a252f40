/* See compile.h. No global state beyond LLVM's own target registry. */
#include "codegen/compile.h"
#include "fusion/kir/kir_set.h"
#include "runtime/base/cores.h"
#include "runtime/base/file.h"
#include <llvm-c/Analysis.h>
#include <llvm-c/BitWriter.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

const char *codegen_llvm_version(void) {
    return LLVM_VERSION_STRING;
}

/* --- The list ----------------------------------------------------------------------------- */

void compile_free(CompileList *l) {
    for (uint32_t i = 0; i < l->njobs; i++) {
        CompileJob *j = &l->jobs[i];
        for (uint32_t v = 0; v < j->nbegun; v++) arena_destroy(j->variants[v].arena);
        arena_destroy(j->arena);
        j->nbegun = 0;
        j->arena = NULL;
    }
    for (uint32_t i = 0; i < COMPILE_THREADS; i++) {
        arena_destroy(l->arena[i]);
        l->arena[i] = NULL;
    }
}

static void free_list(void *l) {
    compile_free(l);
}

/* What a run only reads: constants, what was prepared before it, and what its caller gave. A step
 * that is not bound to buffers yet may be bound to any. */
static void note_stable(const Schedule *s, const SStep *st, CompileJob *j) {
    for (uint32_t i = 0; i < st->kernel->nparams; i++) {
        BufKind kind = st->bufs ? s->buffers.v[st->bufs[i]].kind : BUF_temp;
        j->stable[i % kir_body_params(st->kernel)] &=
            kind == BUF_const || kind == BUF_input || (kind == BUF_prepared && !st->prepare);
    }
}

static uint32_t storage_of(const Schedule *s, uint32_t buf) {
    while (s->buffers.v[buf].alias) buf = s->buffers.v[buf].alias - 1;
    return buf;
}

/* What ends with the step, and lies in memory that only one parameter is bound to. */
static void note_spent(const Schedule *s, uint32_t step, CompileJob *j) {
    const SStep *st = &s->steps.v[step];
    for (uint32_t i = 0; i < st->kernel->nparams; i++) {
        const SBuffer *b = st->bufs ? &s->buffers.v[st->bufs[i]] : NULL;
        bool is = b && b->kind == BUF_temp && !b->alias && b->last == step;
        for (uint32_t o = 0; is && o < st->kernel->nparams; o++)
            is = o == i || storage_of(s, st->bufs[o]) != st->bufs[i];
        j->spent[i % kir_body_params(st->kernel)] &= is;
    }
}

/* A run's first kernel has nothing in front of it but what its caller put there, which may write
 * all that the kernel reads: it asks for nothing early, so that it may start early
 * (PLAN_WAITS_FIRST). Not where other steps, which gain by asking, are the same kernel. */
static void note_first(const Schedule *s, CompileList *l) {
    uint32_t step = 0;
    for (uint32_t i = 0; i < s->ends.n; i++) {
        uint32_t uses = 0;
        while (step < s->ends.v[i] &&
               (s->steps.v[step].kind != STEP_kernel || s->steps.v[step].prepare))
            step++;
        if (step == s->ends.v[i]) continue;
        const CompileJob *j = &l->jobs[l->job_of_step[step]];
        for (uint32_t o = 0; o < s->steps.n; o++) uses += l->job_of_step[o] == l->job_of_step[step];
        for (uint32_t p = 0; uses == 1 && p < j->k->nparams; p++) j->stable[p] = false;
        step = s->ends.v[i];
    }
}

/* Does the kernel's parameter p get rows behind the first `rows` only? Rows past the room there is
 * are refused before a run. */
static bool is_behind(const Kernel *k, uint32_t p, const Appended *x, ExprPool *pool) {
    uint32_t sym;
    if (!expr_is_sym(pool, x->rows, &sym)) return false;
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        Expr per, rest;
        int64_t lo, hi;
        if (o->op == K_katomic || o->op == K_kcompact) return false;
        if (o->op != K_kstore || o->buf != p) continue;
        if (!expr_affine(pool, o->index, sym, &per, &rest)) return false;
        expr_range(pool, rest, &lo, &hi);
        if (!expr_is_value(pool, per, x->inner) || lo < 0) return false;
    }
    return true;
}

/* What runs leave as it is of a state that grows. */
static Appended appended_of(const Schedule *s, uint32_t buf) {
    const SBuffer *b = &s->buffers.v[buf];
    Appended x = {0};
    const StateInfo *state = b->kind == BUF_state ? &s->graph->states.v[b->index] : NULL;
    if (!state || !state->grows || !expr_is_const(s->exprs, state->room, &x.room))
        return (Appended){0};
    x.inner = 1;
    for (uint32_t d = state->grows; d < state->type.rank; d++) {
        int64_t n;
        if (!expr_is_const(s->exprs, state->type.dim[d], &n)) return (Appended){0};
        x.inner *= n;
    }
    x.rows = state->type.dim[state->grows - 1];
    for (uint32_t i = 0; i < s->steps.n; i++) {
        const SStep *st = &s->steps.v[i];
        for (uint32_t p = 0; st->kind == STEP_kernel && !st->prepare && p < st->kernel->nparams;
             p++) {
            if (!st->kernel->params[p].written || storage_of(s, st->bufs[p]) != buf) continue;
            if (st->bufs[p] != buf || !is_behind(st->kernel, p, &x, s->exprs)) return (Appended){0};
        }
    }
    return x;
}

static void note_appended(const Schedule *s, const SStep *st, CompileJob *j, bool first) {
    for (uint32_t i = 0; i < st->kernel->nparams; i++) {
        bool bound = st->bufs && !st->prepare && !st->kernel->more;
        Appended x = bound ? appended_of(s, st->bufs[i]) : (Appended){0};
        bool same = first || (x.rows == j->appended[i].rows && x.inner == j->appended[i].inner &&
                              x.room == j->appended[i].room);
        j->appended[i] = same ? x : (Appended){0};
    }
}

/* Threads end together if what takes long does not come last: templates before other kernels. */
static uint32_t *order_of(const CompileList *l, Arena *a) {
    uint32_t *order = ARENA_ARRAY(a, uint32_t, l->njobs), n = 0;
    for (int tem = 1; tem >= 0; tem--)
        for (uint32_t i = 0; i < l->njobs; i++)
            if ((l->jobs[i].k->tem != TEM_none) == tem) order[n++] = i;
    return order;
}

CompileList *compile_list(const Target *t, const Schedule *s, const CodeOptions *o, Arena *a) {
    CompileList *l = ARENA_NEW(a, CompileList);
    *l = (CompileList){.target = t, .s = s, .o = o};
    l->jobs = ARENA_ARRAY(a, CompileJob, s->steps.n);
    l->job_of_step = ARENA_ARRAY(a, uint32_t, s->steps.n);
    arena_at_destroy(a, free_list, l);
    KirSet *kernels = kir_set(a);
    MapU64 *seen = map_create(a);
    for (uint32_t i = 0; i < s->steps.n; i++) {
        l->job_of_step[i] = UINT32_MAX;
        if (s->steps.v[i].kind != STEP_kernel) continue;
        const Kernel *k = s->steps.v[i].kernel;
        uint32_t number = kir_set_add(kernels, k, s->exprs);
        if (!map_get(seen, number, &l->job_of_step[i])) {
            l->job_of_step[i] = l->njobs;
            map_put(seen, number, l->njobs);
            bool *stable = ARENA_ARRAY(a, bool, k->nparams);
            bool *spent = ARENA_ARRAY(a, bool, k->nparams);
            for (uint32_t p = 0; p < k->nparams; p++) stable[p] = spent[p] = true;
            Appended *appended = ARENA_ARRAY(a, Appended, k->nparams);
            l->jobs[l->njobs++] = (CompileJob){
                .k = k, .symbol = "kernel", .stable = stable, .spent = spent, .appended = appended};
            note_appended(s, &s->steps.v[i], &l->jobs[l->njobs - 1], true);
        }
        note_stable(s, &s->steps.v[i], &l->jobs[l->job_of_step[i]]);
        note_spent(s, i, &l->jobs[l->job_of_step[i]]);
        note_appended(s, &s->steps.v[i], &l->jobs[l->job_of_step[i]], false);
    }
    note_first(s, l);
    l->order = order_of(l, a);
    return l;
}

typedef struct Shared {
    CompileList *l;
    LLVMTargetRef target;
    void (*fn)(CompileWorker *w, CompileJob *j);
    atomic_uint workers;
    /* What follows is of the lock's holder alone. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t next;     /* of the list's order */
    uint32_t running;  /* which may ask for variants */
    CompileJob *ready; /* variants, the last one that was asked for first */
    bool cancelled;
    size_t wanted; /* by a thread that ran out of memory; others begin nothing more */
} Shared;

static void on_diagnostic(LLVMDiagnosticInfoRef info, void *ctx) {
    CompileWorker *w = ctx;
    if (LLVMGetDiagInfoSeverity(info) != LLVMDSError) return;
    char *text = LLVMGetDiagInfoDescription(info);
    snprintf(w->message, sizeof w->message, "%s", text);
    LLVMDisposeMessage(text);
}

static void keep_exprs(Expr *v, uint32_t n, ExprPool *kept, const ExprPool *work) {
    for (uint32_t i = 0; i < n; i++) v[i] = expr_import(kept, work, v[i]);
}

/* Moves a finished job's results out of the pool that the next job starts from anew. */
static void keep_results(CompileJob *j, ExprPool *kept, const ExprPool *work) {
    Expr *one[] = {&j->scratch,    &j->info.work,  &j->info.cost, &j->info.slices,
                   &j->info.slice, &j->zero_bytes, &j->choice};
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) keep_exprs(one[i], 1, kept, work);
    keep_exprs(j->dims.v.v, j->dims.v.n, kept, work);
    keep_exprs(j->grid, 3, kept, work);
    for (uint32_t i = 0; i < j->maps.n; i++) {
        CodeMap *m = &j->maps.v[i];
        keep_exprs(&m->base, 1, kept, work);
        keep_exprs(m->size, 5, kept, work);
        keep_exprs(m->stride, 4, kept, work);
    }
    j->exprs = kept;
}

typedef struct Work {
    Shared *s;
    CompileWorker w;
    bool tells; /* of progress: the caller's own thread */
} Work;

/* The caller is told of `done` jobs, and may have enough. */
static void tell(Shared *s, uint32_t done) {
    const CodeOptions *o = s->l->o;
    if (!o->progress || o->progress(o->progress_ctx, done, s->l->njobs)) return;
    pthread_mutex_lock(&s->lock);
    s->cancelled = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Jobs that were begun: as many as are told of, but the last. */
static void tell_begun(Shared *s) {
    pthread_mutex_lock(&s->lock);
    const uint32_t n = s->next, most = s->l->njobs - 1;
    pthread_mutex_unlock(&s->lock);
    if (n) tell(s, n < most ? n : most);
}

/* Of the lock's holder: variants first, since their kernel began long ago; NULL: none is left. */
static CompileJob *next_job(Shared *s) {
    CompileList *l = s->l;
    CompileJob *j = s->ready;
    if (s->cancelled || s->wanted) return NULL;
    if (j) s->ready = j->next;
    while (!j && s->next < l->njobs) {
        j = &l->jobs[l->order[s->next++]];
        if (j->arena) j = NULL; /* it has run */
    }
    return j;
}

/* NULL: none is left, and none will be. */
static CompileJob *take_job(Shared *s) {
    CompileJob *j;
    pthread_mutex_lock(&s->lock);
    while (!(j = next_job(s)) && s->running && !s->cancelled && !s->wanted)
        pthread_cond_wait(&s->changed, &s->lock);
    if (j) s->running++;
    pthread_mutex_unlock(&s->lock);
    return j;
}

static void begin_variants(CompileJob *j) {
    j->variants = ARENA_ARRAY(j->arena, CompileJob, j->nvariants);
    for (uint32_t i = 0; i < j->nvariants; i++)
        j->variants[i] = (CompileJob){.k = j->k,
                                      .symbol = arena_printf(j->arena, "%s_%u", j->symbol, i + 1),
                                      .stable = j->stable,
                                      .spent = j->spent,
                                      .appended = j->appended,
                                      .variant = i + 1,
                                      .next = i + 1 < j->nvariants ? &j->variants[i + 1] : NULL};
    j->nbegun = j->nvariants;
}

static void end_job(Shared *s, CompileJob *j) {
    if (j->variant || j->error)
        j->nvariants = 0; /* what it says of siblings is variant 0's to say */
    if (j->nvariants) begin_variants(j);
    pthread_mutex_lock(&s->lock);
    if (j->nbegun) {
        j->variants[j->nbegun - 1].next = s->ready;
        s->ready = j->variants;
    }
    s->running--;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void run_job(Shared *s, CompileWorker *w, CompileJob *j) {
    j->arena = arena_create();
    w->ctx = LLVMContextCreate();
    w->message[0] = 0;
    LLVMContextSetDiagnosticHandler(w->ctx, on_diagnostic, w);
    s->fn(w, j);
    LLVMContextDispose(w->ctx);
    w->ctx = NULL;
}

/* That none is done was told before any thread started. */
static void compile_jobs(void *arg) {
    Work *of = arg;
    Shared *s = of->s;
    const ExprPool *base = s->l->s->exprs;
    Arena *a = s->l->arena[atomic_fetch_add(&s->workers, 1)] = arena_create();
    ExprPool *work = expr_pool_clone(base, a), *kept = expr_pool_clone(base, a);
    for (;;) {
        if (of->tells) tell_begun(s);
        CompileJob *j = take_job(s);
        if (!j) break;
        j->exprs = work;
        run_job(s, &of->w, j);
        keep_results(j, kept, work);
        expr_pool_reset(work, base);
        end_job(s, j);
    }
}

static void run_out(Shared *s, size_t wanted) {
    pthread_mutex_lock(&s->lock);
    s->wanted = wanted;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void work_as(Shared *s, bool tells) {
    const Isa *isa = &s->l->target->isa[0];
    Work work = {.s = s,
                 .tells = tells,
                 .w = {.o = s->l->o,
                       .target = s->l->target,
                       .assembler = s->l->assembler,
                       .kept = s->l->kept}};
    work.w.machine =
        LLVMCreateTargetMachine(s->target, isa->triple, isa->cpu, isa->features,
                                LLVMCodeGenLevelLess, LLVMRelocPIC, LLVMCodeModelSmall);
    size_t wanted = arena_guard(compile_jobs, &work);
    if (wanted) run_out(s, wanted);
    if (work.w.ctx) LLVMContextDispose(work.w.ctx);
    if (work.w.scratch) arena_destroy(work.w.scratch);
    LLVMDisposeTargetMachine(work.w.machine);
}

static void *run_worker(void *arg) {
    work_as(arg, false);
    return NULL;
}

static uint32_t thread_count(const CompileList *l) {
    uint32_t n = cores_threads(l->o->threads);
    if (n > COMPILE_THREADS) n = COMPILE_THREADS;
    return n < l->njobs ? n : l->njobs;
}

bool compile_run(CompileList *l, void (*fn)(CompileWorker *w, CompileJob *j)) {
    Shared s = {
        .l = l, .fn = fn, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    char *message = NULL;
    if (LLVMGetTargetFromTriple(l->target->isa[0].triple, &s.target, &message)) {
        LLVMDisposeMessage(message);
        return false;
    }
    if (!l->njobs) return true;
    tell(&s, 0);
    pthread_t thread[COMPILE_THREADS];
    uint32_t n = thread_count(l), started = 0;
    for (uint32_t i = 1; i < n; i++)
        if (stack_thread(&thread[started], run_worker, &s) == 0) started++;
    work_as(&s, true);
    for (uint32_t i = 0; i < started; i++) pthread_join(thread[i], NULL);
    pthread_cond_destroy(&s.changed);
    pthread_mutex_destroy(&s.lock);
    l->cancelled = s.cancelled;
    if (s.wanted) arena_out_of_memory(s.wanted);
    return true;
}

void compile_restart(CompileJob *j) {
    *j = (CompileJob){.k = j->k,
                      .symbol = j->symbol,
                      .arena = j->arena,
                      .exprs = j->exprs,
                      .stable = j->stable,
                      .spent = j->spent,
                      .appended = j->appended,
                      .variant = j->variant,
                      .min_blocks = j->min_blocks,
                      .modest = j->modest,
                      .yielded = j->yielded,
                      .shrink = j->shrink};
}

/* --- One module --------------------------------------------------------------------------- */

static char *module_text(CompileJob *j, LLVMModuleRef mod) {
    char *text = LLVMPrintModuleToString(mod);
    char *copy = arena_strdup(j->arena, text);
    LLVMDisposeMessage(text);
    return copy;
}

static bool emit_file(CompileWorker *w, CompileJob *j, LLVMModuleRef mod, LLVMCodeGenFileType type,
                      const void **data, size_t *size) {
    LLVMMemoryBufferRef buf = NULL;
    char *message = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(w->machine, mod, type, &message, &buf) ||
        w->message[0]) {
        j->error = arena_strdup(j->arena, w->message[0] ? w->message : message ? message : "LLVM");
        if (message) LLVMDisposeMessage(message);
        if (buf) LLVMDisposeMemoryBuffer(buf);
        return false;
    }
    *size = LLVMGetBufferSize(buf);
    char *copy = arena_alloc(j->arena, *size + 1);
    memcpy(copy, LLVMGetBufferStart(buf), *size);
    *data = copy;
    LLVMDisposeMemoryBuffer(buf);
    return true;
}

/* --- What was made before ----------------------------------------------------------------- */

struct CompileKept {
    CompileKept *next;
    uint64_t hash;
    CompileKey key;
    const void *data;
    size_t size;
};

static const CompileKept *find_kept(CompileWorker *w, CompileKey key, uint64_t hash) {
    const CompileKept *k = atomic_load(&w->kept[hash % COMPILE_BUCKETS]);
    while (k && (k->hash != hash || k->key.n != key.n || memcmp(k->key.p, key.p, key.n) != 0))
        k = k->next;
    return k;
}

/* Two threads may make the same at once: both are kept, and they are equal. */
static void add_kept(CompileWorker *w, CompileJob *j, CompileKey key, const CompileUnit *u) {
    CompileKept *k = ARENA_NEW(j->arena, CompileKept);
    *k = (CompileKept){NULL, hash_bytes(key.p, key.n, 0), key, u->data, u->size};
    _Atomic(CompileKept *) *head = &w->kept[k->hash % COMPILE_BUCKETS];
    k->next = atomic_load(head);
    while (!atomic_compare_exchange_weak(head, &k->next, k)) continue;
}

static const char *cache_path(CompileWorker *w, CompileJob *j, CompileKey key) {
    return arena_printf(j->arena, "%s/%016llx%016llx.o", w->o->cache_dir,
                        (unsigned long long)hash_bytes(key.p, key.n, 0),
                        (unsigned long long)hash_bytes(key.p, key.n, 1));
}

/* Entries end with a hash of themselves: one that is damaged is made again. */
static bool cache_read(CompileJob *j, const char *path, CompileUnit *u) {
    FileMap map;
    char why[256];
    uint64_t hash;
    if (file_map(path, &map, why) != GRAPHC_OK) return false;
    bool whole = map.size > sizeof hash;
    if (whole) {
        u->size = map.size - sizeof hash;
        memcpy(&hash, map.data + u->size, sizeof hash);
        whole = hash == hash_bytes(map.data, u->size, 0);
        char *copy = arena_alloc(j->arena, u->size + 1); /* texts end */
        memcpy(copy, map.data, u->size);
        copy[u->size] = 0;
        u->data = copy;
    }
    file_unmap(&map);
    return whole;
}

/* A cache that cannot be written costs time, nothing else. */
static void cache_write(CompileJob *j, const char *path, const CompileUnit *u) {
    char why[256];
    uint64_t hash = hash_bytes(u->data, u->size, 0);
    char *entry = arena_alloc(j->arena, u->size + sizeof hash);
    memcpy(entry, u->data, u->size);
    memcpy(entry + u->size, &hash, sizeof hash);
    (void)file_write(path, entry, u->size + sizeof hash, why);
}

bool compile_cached(CompileWorker *w, CompileJob *j, CompileKey key, CompileUnit *u) {
    const CompileKept *k = find_kept(w, key, hash_bytes(key.p, key.n, 0));
    if (k) {
        u->data = k->data;
        u->size = k->size;
        return true;
    }
    if (!w->o->cache_dir || !cache_read(j, cache_path(w, j, key), u)) return false;
    add_kept(w, j, key, u);
    return true;
}

void compile_keep(CompileWorker *w, CompileJob *j, CompileKey key, const CompileUnit *u) {
    add_kept(w, j, key, u);
    if (w->o->cache_dir) cache_write(j, cache_path(w, j, key), u);
}

/* LLVM's version, the target and the module decide the object. */
static CompileKey module_key(CompileWorker *w, CompileJob *j, LLVMModuleRef mod,
                             LLVMCodeGenFileType type) {
    char *cpu = LLVMGetTargetMachineCPU(w->machine);
    LLVMMemoryBufferRef code = LLVMWriteBitcodeToMemoryBuffer(mod);
    const char *tool = arena_printf(j->arena, "%s %s %d\n", LLVM_VERSION_STRING, cpu, (int)type);
    size_t head = strlen(tool), n = LLVMGetBufferSize(code);
    char *key = arena_alloc(j->arena, head + n);
    memcpy(key, tool, head);
    memcpy(key + head, LLVMGetBufferStart(code), n);
    LLVMDisposeMemoryBuffer(code);
    LLVMDisposeMessage(cpu);
    return (CompileKey){key, head + n};
}

static bool verify(CompileJob *j, LLVMModuleRef mod) {
    char *message = NULL;
    bool bad = LLVMVerifyModule(mod, LLVMReturnStatusAction, &message);
    if (bad) j->error = arena_printf(j->arena, "malformed LLVM module: %s", message);
    LLVMDisposeMessage(message);
    return !bad;
}

bool compile_module(CompileWorker *w, CompileJob *j, LLVMModuleRef mod, uint32_t variant,
                    LLVMCodeGenFileType type) {
    CompileUnit *u = &j->unit[variant];
    bool dump = w->o->dump;
    if (!verify(j, mod)) return false;
    CompileKey key = module_key(w, j, mod, type);
    if (dump) {
        u->ll = module_text(j, mod);
        LLVMModuleRef copy = LLVMCloneModule(mod);
        size_t n;
        const void *s = NULL;
        if (type == LLVMObjectFile && emit_file(w, j, copy, LLVMAssemblyFile, &s, &n)) u->s = s;
        LLVMDisposeModule(copy);
    }
    if (compile_cached(w, j, key, u)) return true;
    if (!emit_file(w, j, mod, type, &u->data, &u->size)) return false;
    compile_keep(w, j, key, u);
    return true;
}

/* --- Results ------------------------------------------------------------------------------ */

graphc_status compile_check(const CompileList *l, DiagSink *d) {
    if (l->cancelled)
        return diag(d, D_CANCELLED, "", "stopped by the caller before all kernels were compiled");
    for (uint32_t i = 0; i < l->njobs; i++)
        if (l->jobs[i].error)
            return diag(d, D_CODEGEN, "", "kernel %s: %s", l->jobs[i].k->name, l->jobs[i].error);
    return GRAPHC_OK;
}

Expr compile_import(CompileList *l, const CompileJob *j, Expr e) {
    return e ? expr_import(l->s->exprs, j->exprs, e) : expr_const(l->s->exprs, 0);
}

const Expr *compile_import_dims(CompileList *l, const CompileJob *j, Arena *a) {
    Expr *d = ARENA_ARRAY(a, Expr, j->dims.v.n);
    for (uint32_t i = 0; i < j->dims.v.n; i++) d[i] = compile_import(l, j, j->dims.v.v[i]);
    return d;
}

void compile_dump(const CompileList *l, const char *ext_asm) {
    if (!l->o->dump) return;
    for (uint32_t i = 0; i < l->njobs; i++) {
        const CompileJob *j = &l->jobs[i];
        for (uint32_t v = l->target->nisas; v-- > 0;) {
            const CompileUnit *u = &j->unit[v];
            if (!u->ll) continue;
            const char *pre = l->target->isa[v].dump;
            char ext[16];
            snprintf(ext, sizeof ext, "%sll", pre);
            l->o->dump(l->o->dump_ctx, j->k->name, ext, u->ll, strlen(u->ll));
            const char *s = u->s ? u->s : u->data; /* PTX is its own text */
            snprintf(ext, sizeof ext, "%s%s", pre, ext_asm);
            if (s) l->o->dump(l->o->dump_ctx, j->k->name, ext, s, strlen(s));
        }
    }
}
