/* NVIDIA targets: kernels to PTX through LLVM, and each to a cubin of its own where there is a PTX
 * assembler. Emitting and assembling a kernel are one job, so they spread over the threads. */
#include "codegen/nvptx/assembler.h"
#include "codegen/nvptx/gpu.h"
#include "codegen/nvptx/ptx.h"
#include <llvm-c/Target.h>
#include <string.h>

static void emit_kernel(Gpu *g) {
    if (gpu_turns(g) || gpu_scatter(g) || gpu_serial(g) || gpu_scan(g) || gpu_sort(g) ||
        gpu_compact(g))
        return;
    if (gpu_vector_matrix(g) || gpu_gemm(g) || gpu_flash(g)) return;
    if (gpu_flash_backward(g) || gpu_flash_joint(g) || gpu_strip(g)) return;
    if (gpu_contract(g) || gpu_decode_attention(g) || gpu_attention(g)) return;
    if (gpu_band(g) || gpu_column(g) || gpu_split(g) || gpu_row(g)) return;
    if (gpu_transpose(g)) return;
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
        e.coarse = gpu_coarse(j->arena, j->k);
        gpu_fn_begin(&e, j);
        Passes *r = ARENA_NEW(j->arena, Passes);
        Gpu g = {.e = &e,
                 .j = j,
                 .k = j->k,
                 .m = &w->target->machine,
                 .target = w->target,
                 .o = w->o,
                 .rows = r};
        if (rows_passes(r, &e, j->k))
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

/* --- Assembling ------------------------------------------------------------------------------- */

enum { PTX, CUBIN }; /* units of a job */

/* What the cache keeps of an assembled kernel, in front of its cubin. */
typedef struct CubinHeader {
    uint32_t registers, spilled, stack, reserved;
} CubinHeader;

static bool read_kept(CompileWorker *w, CompileJob *j, CompileKey key, Assembled *out) {
    CompileUnit u;
    CubinHeader k;
    if (!compile_cached(w, j, key, &u) || u.size <= sizeof k) return false;
    memcpy(&k, u.data, sizeof k);
    *out = (Assembled){.cubin = (const char *)u.data + sizeof k,
                       .size = u.size - sizeof k,
                       .registers = k.registers,
                       .spilled = k.spilled,
                       .stack = k.stack};
    return true;
}

/* What the assembler warned of is not kept: it warns again. */
static void keep(CompileWorker *w, CompileJob *j, CompileKey key, const Assembled *r) {
    if (r->error || r->warning) return;
    CubinHeader k = {.registers = r->registers, .spilled = r->spilled, .stack = r->stack};
    char *data = arena_alloc(j->arena, sizeof k + r->size);
    memcpy(data, &k, sizeof k);
    memcpy(data + sizeof k, r->cubin, r->size);
    compile_keep(w, j, key, &(CompileUnit){.data = data, .size = sizeof k + r->size});
}

static void assemble(CompileWorker *w, CompileJob *j, Assembled *out) {
    const char *ptx = j->unit[PTX].data, *arch = w->target->isa[0].cpu;
    const char *text = arena_printf(j->arena, "%s %s\n%s", w->assembler->name, arch, ptx);
    const CompileKey key = {text, strlen(text)};
    if (read_kept(w, j, key, out)) return;
    assembler_run(w->assembler, ptx, arch, j->arena, out);
    keep(w, j, key, out);
}

enum { WARP = 32, WARPS_AT_ONCE = 4, REGS_AT_ONCE = 8, THREAD_REGISTERS = 255 };

/* Of a thread, where so many blocks run at a time. */
static uint32_t share_of(const Machine *m, const CompileJob *j, uint32_t blocks) {
    uint32_t warps = (blocks * j->block[0] + WARP - 1) / WARP;
    warps = (warps + WARPS_AT_ONCE - 1) / WARPS_AT_ONCE * WARPS_AT_ONCE;
    uint32_t n = m->registers / (warps * WARP) / REGS_AT_ONCE * REGS_AT_ONCE;
    return n < THREAD_REGISTERS ? n : THREAD_REGISTERS;
}

/* The next smaller number of blocks with which threads may use more registers. */
static uint32_t fewer_blocks(const Machine *m, const CompileJob *j, uint32_t blocks) {
    const uint32_t had = share_of(m, j, blocks);
    while (--blocks > 1 && share_of(m, j, blocks) <= had) continue;
    return blocks;
}

/* Has the job compiled so that a thread may use more registers (the assembler spills to have more
 * blocks at a time), and when it has all of them, so that it needs fewer: without what it loads
 * ahead, then in another structure that takes it, then with smaller shares of the work, of each
 * size first ahead. False: nothing is left. */
static bool relieve(const Machine *m, CompileJob *j, const Assembled *r) {
    if (!r->spilled || !r->registers || j->exact) return false;
    if (r->spilled <= j->may_spill && (j->modest || !j->ahead)) return false;
    uint32_t blocks = j->min_blocks;
    if (!blocks) blocks = m->registers / (r->registers * j->block[0]);
    if (blocks <= 1 && j->shrink == COMPILE_MOST_SHRINK) return false;
    if (blocks <= 1 && j->ahead && !j->modest)
        j->modest = true;
    else if (blocks <= 1 && j->yields && !j->yielded)
        j->yielded = true;
    else if (blocks <= 1) {
        j->shrink++;
        j->modest = false;
    }
    j->min_blocks = blocks <= 1 ? 0 : fewer_blocks(m, j, blocks);
    compile_restart(j);
    return true;
}

static void take(CompileJob *j, const Assembled *r) {
    j->unit[CUBIN].data = r->cubin;
    j->unit[CUBIN].size = r->size;
    j->spilled = r->spilled <= j->may_spill ? 0 : r->spilled;
    j->plain = r->error;
    if (!j->exact) return;
    if (r->error) j->error = r->error;
    if (r->warning) j->error = arena_printf(j->arena, "the PTX assembler warns: %s", r->warning);
    if (r->spilled || r->stack)
        j->error = arena_printf(j->arena, "%u bytes of registers spilled, %u bytes of local memory",
                                r->spilled, r->stack);
}

static void compile_job(CompileWorker *w, CompileJob *j) {
    Assembled r = {0};
    do {
        LLVMModuleRef mod = emit_module(w, j);
        if (!j->error) compile_module(w, j, mod, PTX, LLVMAssemblyFile);
        LLVMDisposeModule(mod);
        if (j->error || !w->assembler) return;
        assemble(w, j, &r);
    } while (relieve(&w->target->machine, j, &r));
    take(j, &r);
}

/* Other kernels that did not come out well are left out, where they are spare. */
static void settle_variants(CompileJob *j) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->nbegun; i++) {
        const CompileJob v = j->variants[i];
        if (j->spare && (v.error || v.plain || v.spilled || v.shrink)) continue;
        if (!j->error) j->error = v.error;
        j->variants[i] = j->variants[n];
        j->variants[n++] = v;
    }
    j->nvariants = n;
}

/* Every module repeats the header up to its address size; one text has it once. */
static void put_ptx(StrBuf *s, const CompileJob *j, bool *first) {
    static const char mark[] = ".address_size 64";
    const char *text = j->unit[PTX].data;
    const char *body = *first ? NULL : strstr(text, mark);
    sb_put(s, body ? body + sizeof mark - 1 : text);
    sb_put(s, "\n");
    *first = false;
}

/* Jobs in one text. */
static const char *join_ptx(const CompileList *l, Arena *a) {
    StrBuf s;
    sb_init(&s, a);
    bool first = true;
    for (uint32_t i = 0; i < l->njobs; i++) {
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
                    .waits_first = j->waits_first,
                    .zero_bytes = j->zero_bytes ? compile_import(l, j, j->zero_bytes) : 0,
                    .zero_kept = j->zero_kept,
                    .nmaps = j->maps.n,
                    .maps = describe_maps(l, j, a),
                    .cubin = j->blob};
    k.signature = j->signature ? arena_strdup(a, j->signature) : NULL;
    k.way = j->way ? arena_strdup(a, j->way) : NULL;
    k.note = j->note ? arena_strdup(a, j->note) : NULL;
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
        CodeKernel *v = ARENA_ARRAY(a, CodeKernel, j->nvariants);
        for (uint32_t n = 0; n < j->nvariants; n++) v[n] = describe(l, &j->variants[n], a);
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
    for (uint32_t i = 0; i < l->njobs && !l->cancelled; i++) settle_variants(&l->jobs[i]);
    return compile_check(l, d);
}

/* A blob for its machine code, a warning where the plan is the worse for it. */
static void put_cubin(CompileJob *j, Arena *a, DiagSink *d, CodeResult *out) {
    const CompileUnit *u = &j->unit[CUBIN];
    if (j->spilled)
        (void)!diag(d, D_PTXAS, "", "kernel %s spills %u bytes of registers", j->symbol,
                    j->spilled);
    if (!u->size) return;
    out->blobs[out->nblobs++] = (CodeBlob){CODE_cubin, arena_copy(a, u->data, u->size), u->size};
    j->blob = out->nblobs;
}

/* Kernels without machine code, in one warning. */
static void warn_plain(const CompileList *l, DiagSink *d) {
    uint32_t n = 0;
    const CompileJob *first = NULL;
    for (uint32_t i = l->njobs; i-- > 0;)
        if (l->jobs[i].plain) first = &l->jobs[i], n++;
    if (!l->assembler)
        (void)!diag(d, D_PTXAS, "", "ptxas was not found: the plan carries PTX only");
    else if (n)
        (void)!diag(d, D_PTXAS, "", "%u kernels have PTX only: %s: %s", n, first->symbol,
                    first->plain);
}

static void note_stale(const CompileList *l, DiagSink *d) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->njobs; i++) n += l->jobs[i].stale;
    if (n)
        (void)!diag(d, D_TUNED, "",
                    "%u kernels were tuned to ways that this graphc has not; the cost "
                    "model decides for them",
                    n);
}

static void put_code(CompileList *l, Arena *a, DiagSink *d, CodeResult *out) {
    uint32_t n = 1;
    for (uint32_t i = 0; i < l->njobs; i++) n += 1 + l->jobs[i].nvariants;
    const char *ptx = join_ptx(l, a);
    out->blobs = ARENA_ARRAY(a, CodeBlob, n);
    out->blobs[out->nblobs++] = (CodeBlob){CODE_ptx, ptx, strlen(ptx) + 1};
    for (uint32_t i = 0; i < l->njobs; i++) {
        put_cubin(&l->jobs[i], a, d, out);
        for (uint32_t v = 0; v < l->jobs[i].nvariants; v++)
            put_cubin(&l->jobs[i].variants[v], a, d, out);
    }
    if (l->njobs) warn_plain(l, d);
    note_stale(l, d);
    out->assembler = out->nblobs > 1 ? l->assembler->name : NULL;
    compile_dump(l, "ptx");
    describe_all(l, a, out);
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
    l->assembler = assembler_find(a);
    *out = (CodeResult){0};
    graphc_status st = compile(l, d);
    if (st == GRAPHC_OK) put_code(l, a, d, out);
    compile_free(l);
    return st;
}
