/* LLVM behind one door: a Schedule's kernels become machine code. LLVM headers are included in
 * codegen only. No global state: one LLVM context per worker thread. */
#ifndef CODEGEN_CODEGEN_H
#define CODEGEN_CODEGEN_H

#include "fusion/schedule/schedule.h"

typedef enum CodeForm {
    CODE_x86_64_v3, /* position-independent image: code and read-only data, entry offsets */
    CODE_x86_64_v4,
    CODE_x86_64_vnni,
    CODE_x86_64_bf16,
    CODE_x86_64_amx,
    CODE_ptx, /* NUL-terminated text */
    CODE_cubin,
    CODE_FORMS
} CodeForm;

typedef struct CodeBlob {
    CodeForm form;
    const void *data;
    uint64_t size;
} CodeBlob;

/* A tensor map: how the GPU's copy engine sees a buffer, passed to the kernel by value. `tiled`
 * moves boxes; im2col moves `pixels` positions of a convolution's window by `channels` channels,
 * dims innermost first: channels, 1 to 3 spatial ones, batch. What lies outside is read as 0. */
typedef struct CodeMap {
    uint32_t param; /* the kernel's buffer */
    DType dtype;    /* of the elements it moves; may differ from the buffer's */
    bool tf32;      /* f32 arrive rounded to the 11 bits that tensor cores multiply */
    bool im2col;
    uint32_t rank;    /* 1 to 5; im2col: 3 to 5 */
    Expr base;        /* elements from the buffer's start; 0 = none. 16-byte aligned there */
    Expr size[5];     /* elements, innermost first; at most 2^32 */
    Expr stride[4];   /* bytes between elements of dims 1 to rank - 1: multiples of 16 */
    uint32_t box[5];  /* tiled: elements a copy moves, at most 256 each */
    uint32_t step[5]; /* distance of the elements moved; 0 = 1 */
    int32_t lower[3], upper[3]; /* im2col: window corners per spatial dim, innermost first */
    uint32_t channels, pixels;  /* im2col: per copy; at most 256 and 1024 */
    uint32_t swizzle;           /* bytes: 0, 32, 64, 128 */
    uint32_t promotion;         /* of reads in L2, bytes: 0, 64, 128, 256 */
} CodeMap;

/* One compiled kernel. `dims` are the expressions whose values the kernel takes, in order. */
typedef struct CodeKernel CodeKernel;
struct CodeKernel {
    const char *symbol; /* GPU: entry name in the PTX/cubin */
    const char *note;   /* for explain; may be NULL */
    uint32_t ndims;
    const Expr *dims;
    uint64_t entry[CODE_FORMS]; /* CPU: byte offset of the entry in that form's image,
                                   or PLAN_NO_ENTRY */
    /* CPU: the entry runs work items [begin, end) of `work`; scratch bytes per thread. */
    Expr work, scratch_bytes;
    Expr cost;          /* rough nanoseconds of all work on one core: how far to split */
    Expr slices, slice; /* CPU: how the one buffer that it reads is read (EmitInfo); 0: otherwise */
    /* GPU */
    Expr grid[3];
    uint32_t block[3];
    uint32_t shared_bytes; /* dynamic; may be above 48 KiB */
    uint32_t cluster[3];   /* blocks of a cluster; 0 = none */
    /* Launched with programmatic stream serialisation: it may start before the kernel in front of
     * it has ended, and executes griddepcontrol.wait before its first write and before its first
     * read of anything that any kernel of the run writes. */
    bool dependent;
    bool waits_first; /* it reads nothing at all before that */
    Expr zero_bytes;  /* zeroed memory passed as one more pointer; 0 = none */
    bool zero_kept;   /* the kernel leaves it zero, so it is zeroed once */
    uint32_t nmaps;
    const CodeMap *maps;
    uint32_t cubin; /* 1 + the blob that holds it; 0: none */
    /* Other kernels for the same step. `choice` picks: 0 this one, i variants[i - 1]; a value
     * outside picks the nearest. They take the same buffers and have no variants themselves. */
    uint32_t nvariants;
    const CodeKernel *variants;
    Expr choice;
    /* Where it is one of several ways to compute the same at the same sizes: which kernel it is,
     * the same in every compile, and which way. NULL: it is not. */
    const char *signature, *way;
};

typedef struct CodeResult {
    uint32_t nblobs;
    CodeBlob *blobs;       /* CPU: an image a form; GPU: PTX of all, cubins of one */
    CodeKernel *kernels;   /* one per schedule step (zeroed for control steps) */
    const char *assembler; /* GPU: what made the cubins, "ptxas 13.0"; NULL: there are none */
} CodeResult;

typedef struct CodeOptions {
    uint32_t threads;      /* compile threads; 0 = as cores_threads() says */
    const char *cache_dir; /* content-addressed cache, a folder that is there; or NULL */
    /* Dump hook: per-kernel text, ext = "ll", "s", "ptx". May be NULL; called from one thread. */
    void (*dump)(void *ctx, const char *kernel, const char *ext, const char *text, size_t n);
    void *dump_ctx;
    /* How many kernels of a schedule are compiled; false: the others are left (D_CANCELLED). May be
     * NULL; called from the thread that compiles. */
    bool (*progress)(void *ctx, uint32_t done, uint32_t of);
    void *progress_ctx;
    uint32_t forms;    /* CPU: those that are made, a set of CodeForm; 0: all. Code is the same in a
                          plan of all */
    bool tf32;         /* products of f32 may be of factors rounded to 11 bits */
    bool any_order;    /* sums in memory may be added up in any order: results do not repeat */
    uint32_t variants; /* ways that a kernel of known sizes is offered in, for tuning; 0, 1: one */
    /* The way that was the fastest for a kernel of this signature on this target; NULL: nobody
     * knows. May be NULL; called from all threads. */
    const char *(*tuned)(void *ctx, const char *target, const char *signature);
    void *tuned_ctx;
} CodeOptions;

typedef struct Target Target; /* target.h */
/* Makes code for every kernel of a schedule that was built for t's machine. */
graphc_status codegen_run(const Target *t, const Schedule *s, const CodeOptions *o, Arena *a,
                          DiagSink *d, CodeResult *out);
/* Whoever goes on without compiling: memory that it leaves behind is given back. */
void codegen_rest(void);
const char *codegen_llvm_version(void);
const char *codegen_ptx_version(void); /* of the PTX in plans: what the driver has to know */
/* The PTX assembler in use, "ptxas 13.0 (/usr/local/cuda/bin/ptxas)", or NULL: plans for GPUs carry
 * PTX then, and the driver compiles it. */
const char *codegen_assembler(Arena *a);

#endif
