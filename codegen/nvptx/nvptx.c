/* NVIDIA targets: kernels to PTX through LLVM, all in one text, and to a cubin where the PTX
 * assembler is installed. */
#include "codegen/nvptx/gpu.h"
#include "codegen/nvptx/ptx.h"
#include "codegen/nvptx/ptxas.h"
#include <llvm-c/Target.h>
#include <string.h>

static void emit_kernel(Gpu *g) {
    if (gpu_serial(g) || gpu_scan(g) || gpu_sort(g) || gpu_compact(g)) return;
    if (gpu_contract(g) || gpu_attention(g) || gpu_row(g)) return;
    gpu_point(g);
}

static LLVMModuleRef new_module(CompileWorker *w) {
    LLVMModuleRef mod = LLVMModuleCreateWithNameInContext("kernel", w->ctx);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(w->machine);
    LLVMSetModuleDataLayout(mod, layout);
    LLVMDisposeTargetData(layout);
    return mod;
}

static uint32_t count_params(const CompileJob *j) {
    return j->dims.v.n + j->maps.n + (j->zero_bytes ? 1 : 0);
}

/* Beside its buffers, a kernel's parameters are known once it was emitted: the first emission finds
 * them, the next one has them. */
static LLVMModuleRef emit_module(CompileWorker *w, CompileJob *j) {
    for (;;) {
        uint32_t nparams = count_params(j);
        LLVMModuleRef mod = new_module(w);
        Emit e;
        emit_init(&e, &w->target->isa[0], w->ctx, mod, j->arena, j->exprs);
        e.math = gpu_math;
        e.rcp = gpu_rcp;
        gpu_fn_begin(&e, j);
        Rows *r = ARENA_NEW(j->arena, Rows);
        *r = (Rows){.e = &e, .k = j->k, .dom = e.domains, .no_scratch = true, .ncopies = 1};
        Gpu g = {.e = &e, .j = j, .k = j->k, .m = &w->target->machine, .rows = r};
        if (rows_plan(r))
            emit_kernel(&g);
        else
            e.unsupported = "the kernel has too many passes";
        emit_fn_end(&e);
        LLVMDisposeBuilder(e.b);
        j->error = e.unsupported;
        if (j->error || count_params(j) == nparams) return mod;
        LLVMDisposeModule(mod);
    }
}

static void compile_variant(CompileWorker *w, CompileJob *j) {
    LLVMModuleRef mod = emit_module(w, j);
    if (!j->error) compile_module(w, j, mod, 0, LLVMAssemblyFile);
    LLVMDisposeModule(mod);
}

static void compile_job(CompileWorker *w, CompileJob *j) {
    compile_variant(w, j);
    j->variants = ARENA_ARRAY(j->arena, CompileJob, j->nvariants);
    for (uint32_t i = 0; i < j->nvariants && !j->error; i++) {
        CompileJob *v = &j->variants[i];
        *v = (CompileJob){.k = j->k, .arena = j->arena, .exprs = j->exprs, .variant = i + 1};
        v->symbol = arena_printf(j->arena, "%s_%u", j->symbol, i + 1);
        compile_variant(w, v);
        v->nvariants = 0; /* what it says of its siblings is variant 0's to say */
        j->error = v->error;
    }
}

/* Every module repeats the header up to its address size; one text has it once. */
static void put_ptx(StrBuf *s, const CompileJob *j, bool *first) {
    static const char mark[] = ".address_size 64";
    const char *text = j->unit[0].data;
    const char *body = *first ? NULL : strstr(text, mark);
    sb_put(s, body ? body + sizeof mark - 1 : text);
    sb_put(s, "\n");
    *first = false;
}

/* Jobs in one text. */
static const char *join_ptx(const CompileList *l, const bool *which, Arena *a) {
    StrBuf s;
    sb_init(&s, a);
    bool first = true;
    for (uint32_t i = 0; i < l->njobs; i++) {
        if (which && !which[i]) continue;
        put_ptx(&s, &l->jobs[i], &first);
        for (uint32_t v = 0; v < l->jobs[i].nvariants; v++)
            put_ptx(&s, &l->jobs[i].variants[v], &first);
    }
    return sb_str(&s);
}

static const CodeMap *describe_maps(CompileList *l, const CompileJob *j, Arena *a) {
    CodeMap *out = ARENA_ARRAY(a, CodeMap, j->maps.n);
    for (uint32_t i = 0; i < j->maps.n; i++) {
        CodeMap *m = &out[i];
        *m = j->maps.v[i];
        m->base = compile_import(l, j, m->base);
        for (uint32_t d = 0; d < m->rank; d++) m->size[d] = compile_import(l, j, m->size[d]);
        for (uint32_t d = 1; d < m->rank; d++)
            m->stride[d - 1] = compile_import(l, j, m->stride[d - 1]);
    }
    return out;
}

static CodeKernel describe(CompileList *l, const CompileJob *j, Arena *a) {
    CodeKernel k = {.symbol = arena_strdup(a, j->symbol),
                    .ndims = j->dims.v.n,
                    .dims = compile_import_dims(l, j, a),
                    .shared_bytes = j->shared_bytes,
                    .dependent = j->dependent,
                    .zero_bytes = j->zero_bytes ? compile_import(l, j, j->zero_bytes) : 0,
                    .zero_kept = j->zero_kept,
                    .nmaps = j->maps.n,
                    .maps = describe_maps(l, j, a)};
    k.work = k.cost = k.scratch_bytes = expr_const(l->s->exprs, 0);
    for (int d = 0; d < 3; d++) {
        k.grid[d] = compile_import(l, j, j->grid[d]);
        k.block[d] = j->block[d];
        k.cluster[d] = j->cluster[d];
    }
    return k;
}

static void describe_all(CompileList *l, Arena *a, CodeResult *out) {
    out->kernels = ARENA_ARRAY(a, CodeKernel, l->s->steps.n);
    for (uint32_t i = 0; i < l->s->steps.n; i++) {
        if (l->job_of_step[i] == UINT32_MAX) continue;
        const CompileJob *j = &l->jobs[l->job_of_step[i]];
        CodeKernel *k = &out->kernels[i];
        *k = describe(l, j, a);
        k->cubin = out->nblobs > 1 ? out->nblobs : 0;
        CodeKernel *v = ARENA_ARRAY(a, CodeKernel, j->nvariants);
        for (uint32_t n = 0; n < j->nvariants; n++) {
            v[n] = describe(l, &j->variants[n], a);
            v[n].cubin = k->cubin;
        }
        k->variants = v;
        k->nvariants = j->nvariants;
        k->choice = j->nvariants ? compile_import(l, j, j->choice) : 0;
    }
}

static void init_llvm(void) {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
}

static graphc_status compile(CompileList *l, DiagSink *d) {
    if (!compile_run(l, compile_job))
        return diag(d, D_CODEGEN, "", "this LLVM has no NVPTX target");
    return compile_check(l, d);
}

/* --- Spilled registers ------------------------------------------------------------------------ */

enum { MAX_SHRINK = 3 };

/* Has the job compiled so that a thread may use more registers (the assembler spills to have more
 * blocks at a time), and when it has all of them, so that it needs fewer. False: nothing is left.
 */
static bool relieve(const Machine *m, CompileJob *j, const PtxasKernel *k) {
    uint32_t blocks = j->min_blocks;
    if (!blocks) blocks = m->registers / (k->registers * j->block[0]);
    if (blocks <= 1 && j->shrink == MAX_SHRINK) return false;
    if (blocks <= 1) j->shrink++;
    j->min_blocks = blocks <= 1 ? 0 : blocks - 1;
    compile_reset(j);
    return true;
}

/* Relieves the kernels that spill; which[] says which were. */
static bool relieve_all(CompileList *l, const PtxasReport *r, bool *which) {
    bool any = false;
    for (uint32_t i = 0; i < l->njobs; i++) {
        which[i] = false;
        for (uint32_t n = 0; n < r->kernels.n; n++) {
            const PtxasKernel *k = &r->kernels.v[n];
            if (k->spilled && k->registers && strcmp(k->symbol, l->jobs[i].symbol) == 0)
                which[i] = relieve(&l->target->machine, &l->jobs[i], k);
        }
        any |= which[i];
    }
    return any;
}

/* All jobs' code; while kernels spill, they alone are compiled and assembled again. */
static graphc_status assemble(CompileList *l, Arena *a, DiagSink *d, CodeBlob *cubin) {
    const char *arch = l->target->isa[0].cpu;
    PtxasReport report = {0};
    GC_TRY(ptxas_assemble(join_ptx(l, NULL, a), arch, a, d, cubin, &report));
    bool *which = ARENA_ARRAY(a, bool, l->njobs), again = false;
    for (PtxasReport r = report; relieve_all(l, &r, which);) {
        CodeBlob part = {0};
        again = true;
        r = (PtxasReport){0};
        GC_TRY(compile(l, d));
        GC_TRY(ptxas_assemble(join_ptx(l, which, a), arch, a, d, &part, &r));
    }
    if (again) {
        report = (PtxasReport){0};
        GC_TRY(ptxas_assemble(join_ptx(l, NULL, a), arch, a, d, cubin, &report));
    }
    ptxas_warn_spills(&report, d);
    return GRAPHC_OK;
}

static graphc_status put_code(CompileList *l, Arena *a, DiagSink *d, CodeResult *out) {
    CodeBlob cubin = {.form = CODE_cubin};
    if (l->njobs) GC_TRY(assemble(l, a, d, &cubin));
    const char *ptx = join_ptx(l, NULL, a);
    out->blobs = ARENA_ARRAY(a, CodeBlob, 2);
    out->blobs[out->nblobs++] = (CodeBlob){CODE_ptx, ptx, strlen(ptx) + 1};
    if (cubin.size) out->blobs[out->nblobs++] = cubin;
    compile_dump(l, "ptx");
    describe_all(l, a, out);
    return GRAPHC_OK;
}

/* --- The target ------------------------------------------------------------------------------- */

/* Valid in PTX, unique in the module. */
static const char *symbol_of(Arena *a, const char *name, uint32_t n) {
    char *s = arena_printf(a, "k%u_%s", n, name);
    for (char *c = s; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9')))
            *c = '_';
    return s;
}

const char *codegen_ptx_version(void) {
    return PTX_MAJOR "." PTX_MINOR;
}

graphc_status nvptx_compile(const Target *t, const Schedule *s, const CodeOptions *o, Arena *a,
                            DiagSink *d, CodeResult *out) {
    init_llvm();
    CompileList *l = compile_list(t, s, o, a);
    for (uint32_t i = 0; i < l->njobs; i++) l->jobs[i].symbol = symbol_of(a, l->jobs[i].k->name, i);
    *out = (CodeResult){0};
    graphc_status st = compile(l, d);
    if (st == GRAPHC_OK) st = put_code(l, a, d, out);
    compile_free(l);
    return st;
}
