/* LLVM behind one door: a Schedule's kernels become machine code. LLVM headers are included in
 * codegen only. No global state: one LLVM context per worker thread. */
#ifndef CODEGEN_CODEGEN_H
#define CODEGEN_CODEGEN_H

#include "fusion/schedule/schedule.h"

typedef enum CodeForm {
    CODE_x86_64_v3, /* position-independent image: code and read-only data, entry offsets */
    CODE_x86_64_v4,
    CODE_ptx,       /* NUL-terminated text */
    CODE_cubin,
    CODE_FORMS
} CodeForm;

typedef struct CodeBlob {
    CodeForm form;
    const void *data;
    uint64_t size;
} CodeBlob;

/* One compiled kernel. `dims` are the expressions whose values the kernel takes, in order. */
typedef struct CodeKernel {
    const char *symbol;         /* GPU: entry name in the PTX/cubin */
    uint32_t ndims;
    const Expr *dims;
    uint64_t entry[CODE_FORMS]; /* CPU: byte offset of the entry in that form's image */
    /* CPU: the entry runs work items [begin, end) of `work`; scratch bytes per thread. */
    Expr work, scratch_bytes;
    Expr cost;                  /* rough nanoseconds of all work on one core: how far to split */
    /* GPU */
    Expr grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
} CodeKernel;

typedef struct CodeResult {
    uint32_t nblobs;
    CodeBlob *blobs;       /* all kernels of one form are in one blob */
    CodeKernel *kernels;   /* one per schedule step (zeroed for control steps) */
} CodeResult;

typedef struct CodeOptions {
    uint32_t threads;      /* compile threads; 0 = as cores_threads() says */
    const char *cache_dir; /* content-addressed cache, a folder that is there; or NULL */
    /* Dump hook: per-kernel text, ext = "ll", "s", "ptx". May be NULL; called from one thread. */
    void (*dump)(void *ctx, const char *kernel, const char *ext, const char *text, size_t n);
    void *dump_ctx;
} CodeOptions;

graphc_status codegen_cpu(const Schedule *s, const CodeOptions *o, Arena *a, DiagSink *d,
                          CodeResult *out);
graphc_status codegen_nvptx(const Schedule *s, const char *arch, const CodeOptions *o, Arena *a,
                            DiagSink *d, CodeResult *out);
const char *codegen_llvm_version(void);
const char *codegen_ptx_version(void); /* of the PTX in plans: what the driver has to know */
/* Path of the PTX assembler in use, or NULL; the CUDA release that it is of ("13.0"). */
const char *codegen_ptxas(Arena *a);
const char *codegen_ptxas_release(const char *program, Arena *a);

#endif
