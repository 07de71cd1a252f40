/* CPU targets: every kernel for each instruction set of the row, linked into one image per set. */
#include "codegen/compile.h"
#include "codegen/cpu/dot/dot.h"
#include "codegen/cpu/image.h"
#include "codegen/emit/emit_internal.h"
#include "runtime/base/map.h"
#include <llvm-c/Target.h>
#include <string.h>

static bool emit_template(Emit *e, EmitInfo *info) {
    switch (e->k->tem) {
    case TEM_dot: return emit_dot_cpu(e, info);
    case TEM_attention: return emit_attention_cpu(e, info);
    case TEM_attention_gradient: return emit_attention_gradient_cpu(e, info);
    default: return false;
    }
}

static void emit_kernel(Emit *e, EmitInfo *info) {
    e->steps_stay = true;
    if (emit_template(e, info)) return;
    e->steps_stay = false;
    emit_rows_cpu(e, info);
}

static bool emit_variant(CompileWorker *w, CompileJob *j, uint32_t v) {
    LLVMModuleRef mod = LLVMModuleCreateWithNameInContext(j->k->name, w->ctx);
    LLVMSetSourceFileName(mod, "kernel", 6);
    LLVMSetModuleIdentifier(mod, "kernel", 6);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(w->machine);
    LLVMSetModuleDataLayout(mod, layout);
    LLVMDisposeTargetData(layout);
    Emit e;
    EmitInfo info = {0};
    w->scratch = arena_create(); /* far more than what is made of it, and there are many kernels */
    emit_init(&e, &w->target->isa[v], w->ctx, mod, w->scratch, j->exprs);
    for (uint32_t i = 0; i < w->target->nisas; i++)
        if (w->target->isa[i].lanes > e.widest) e.widest = w->target->isa[i].lanes;
    emit_fn_begin_cpu(&e, j->k, j->symbol, &j->dims);
    emit_kernel(&e, &info);
    emit_fn_end(&e);
    LLVMDisposeBuilder(e.b);
    const bool first = !j->info.work;
    j->scratch = first ? e.scratch_bytes : expr_max(j->exprs, j->scratch, e.scratch_bytes);
    if (first)
        j->info = info;
    else
        GC_ASSERT(info.work == j->info.work);
    j->error = e.unsupported;
    j->dims.v.v = arena_copy(j->arena, j->dims.v.v, j->dims.v.n * sizeof *j->dims.v.v);
    j->dims.v.cap = j->dims.v.n;
    arena_destroy(w->scratch);
    w->scratch = NULL;
    bool ok = !j->error && compile_module(w, j, mod, v, LLVMObjectFile);
    LLVMDisposeModule(mod);
    return ok;
}

static bool is_wanted(const CodeOptions *o, const Isa *isa) {
    return !o->forms || o->forms >> isa->form & 1;
}

/* Whether the kernel has code of its own there. */
static bool has_code(const CodeOptions *o, const Isa *isa, const Kernel *k, ExprPool *p) {
    if (!is_wanted(o, isa)) return false;
    if (!isa->extends) return true;
    if (k->tem != TEM_dot) return false;
    if (isa->tiles || isa->multiply_bf16) return dot_is_bf16(k) || (isa->tiles && k->dot.quads);
    return k->dot.quads || k->dot.block || (dot_has_digits(isa) && kir_part(k, p, NULL));
}

static void compile_job(CompileWorker *w, CompileJob *j) {
    for (uint32_t v = 0; v < w->target->nisas; v++)
        if (has_code(w->o, &w->target->isa[v], j->k, j->exprs) && !emit_variant(w, j, v)) return;
}

static void init_llvm(void) {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
}

/* Objects of one content stand in the image once, whichever of them were made: of[job] is the
 * number of the job's among them. */
static uint32_t find_objects(const CompileList *l, uint32_t v, Arena *a, ImageObject *obj,
                             const char **symbol, uint32_t *of) {
    MapU64 *seen = map_create(a);
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->njobs; i++) {
        const CompileUnit *u = &l->jobs[i].unit[v];
        if (!u->data) continue;
        uint64_t hash = hash_bytes(u->data, u->size, 0);
        bool same = map_get(seen, hash, &of[i]) && obj[of[i]].size == u->size &&
                    memcmp(obj[of[i]].data, u->data, u->size) == 0;
        if (same) continue;
        map_put(seen, hash, of[i] = n);
        symbol[n] = l->jobs[i].symbol;
        obj[n++] = (ImageObject){u->data, u->size, l->jobs[i].k->name};
    }
    return n;
}

/* The image of one instruction set; entry[job] are the kernels' offsets. There is none where no
 * kernel has code. */
static graphc_status link_variant(const CompileList *l, uint32_t v, Arena *a, DiagSink *d,
                                  CodeResult *out, uint64_t *entry) {
    ImageObject *obj = ARENA_ARRAY(a, ImageObject, l->njobs);
    const char **symbol = ARENA_ARRAY(a, const char *, l->njobs);
    uint32_t *of = ARENA_ARRAY(a, uint32_t, l->njobs);
    uint32_t n = find_objects(l, v, a, obj, symbol, of);
    uint64_t *at = ARENA_ARRAY(a, uint64_t, n);
    Image image;
    for (uint32_t i = 0; i < l->njobs; i++) entry[i] = PLAN_NO_ENTRY;
    const Isa *isa = &l->target->isa[v];
    if (!n && (isa->extends || !is_wanted(l->o, isa))) return GRAPHC_OK;
    GC_TRY(image_link(a, d, obj, n, symbol, at, &image));
    for (uint32_t i = 0; i < l->njobs; i++)
        if (l->jobs[i].unit[v].data) entry[i] = at[of[i]];
    out->blobs[out->nblobs++] = (CodeBlob){isa->form, image.bytes, image.size};
    return GRAPHC_OK;
}

static const char *how(const Kernel *k, ExprPool *p, Arena *a) {
    const uint32_t part = k->tem == TEM_dot ? kir_part(k, p, NULL) : 0;
    if (part)
        return arena_printf(a,
                            "with AVX512-VNNI f32 is multiplied as integers of 24 bits in units "
                            "of each %u",
                            part);
    if (!k->dot.block) return NULL;
    return arena_printf(a, "integers of 8 bits and of few are multiplied, sums of %u scaled",
                        k->dot.block);
}

static graphc_status link_all(CompileList *l, Arena *a, DiagSink *d, CodeResult *out) {
    const Target *t = l->target;
    uint64_t *entry[TARGET_MAX_ISAS];
    out->nblobs = 0;
    out->blobs = ARENA_ARRAY(a, CodeBlob, t->nisas);
    out->kernels = ARENA_ARRAY(a, CodeKernel, l->s->steps.n);
    for (uint32_t v = 0; v < t->nisas; v++) {
        entry[v] = ARENA_ARRAY(a, uint64_t, l->njobs);
        GC_TRY(link_variant(l, v, a, d, out, entry[v]));
    }
    for (uint32_t i = 0; i < l->s->steps.n; i++) {
        uint32_t n = l->job_of_step[i];
        if (n == UINT32_MAX) continue;
        const CompileJob *j = &l->jobs[n];
        CodeKernel *k = &out->kernels[i];
        const Kernel *kernel = l->s->steps.v[i].kernel;
        *k = (CodeKernel){
            .symbol = kernel->name, .ndims = j->dims.v.n, .note = how(kernel, j->exprs, a)};
        k->dims = compile_import_dims(l, j, a);
        k->work = compile_import(l, j, j->info.work);
        k->cost = compile_import(l, j, j->info.cost);
        if (j->info.slices) k->slices = compile_import(l, j, j->info.slices);
        if (j->info.slices) k->slice = compile_import(l, j, j->info.slice);
        k->scratch_bytes = compile_import(l, j, j->scratch);
        for (uint32_t v = 0; v < t->nisas; v++) k->entry[t->isa[v].form] = entry[v][n];
    }
    return GRAPHC_OK;
}

graphc_status cpu_compile(const Target *t, const Schedule *s, const CodeOptions *o, Arena *a,
                          DiagSink *d, CodeResult *out) {
    init_llvm();
    CompileList *l = compile_list(t, s, o, a);
    if (!compile_run(l, compile_job))
        return diag(d, D_CODEGEN, "", "this LLVM has no x86-64 target");
    compile_dump(l, "s");
    graphc_status st = compile_check(l, d);
    if (st == GRAPHC_OK) st = link_all(l, a, d, out);
    compile_free(l);
    return st;
}
