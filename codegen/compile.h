/* LLVM modules to text or objects, and the work list that spreads kernels over threads. */
#ifndef CODEGEN_COMPILE_H
#define CODEGEN_COMPILE_H

#include "codegen/emit/emit.h"
#include "codegen/target.h"
#include <llvm-c/TargetMachine.h>
#include <stdatomic.h>

#define COMPILE_THREADS 64
#define COMPILE_BUCKETS 512

/* What a kernel compiled to for one instruction set. */
typedef struct CompileUnit {
    const void *data; /* object, or PTX text */
    size_t size;
    const char *ll, *s; /* texts for the dump, when asked for */
} CompileUnit;

/* All that decides what is made of something: the tool with its options, and what it is given. */
typedef struct CompileKey {
    const void *p;
    size_t n;
} CompileKey;

typedef struct CompileKept CompileKept; /* a key and what was made of it in this run */

/* Of a parameter that is a state which runs only append to: row r of its `room`, `inner` elements
 * each, is written by no kernel of a run if r < rows. rows 0: nothing is known. */
typedef struct Appended {
    Expr rows;
    int64_t inner, room;
} Appended;

enum { COMPILE_MOST_SHRINK = 3 };

/* One distinct kernel: its own arena. It starts from the schedule's expression pool, whatever its
 * thread compiled before: threads share nothing, and results do not depend on which did what. */
typedef struct CompileJob CompileJob;
struct CompileJob {
    const Kernel *k;
    const char *symbol;
    bool *stable;       /* per parameter: in all steps memory that no kernel of a run writes; */
    bool *spent;        /* memory of a run's that no kernel reads behind this one; */
    Appended *appended; /* what of it no kernel of a run writes */
    Arena *arena;
    ExprPool *exprs; /* the thread's copy while it compiles, then where its results are */
    EmitDims dims;
    EmitInfo info;
    Expr scratch;
    const char *error; /* NULL = compiled */
    CompileUnit unit[TARGET_MAX_ISAS];
    /* GPU */
    Expr grid[3];
    uint32_t block[3], shared_bytes, cluster[3];
    bool dependent, waits_first, zero_kept;
    Expr zero_bytes;
    VEC(CodeMap) maps;
    const char *note;   /* how it is computed, or why not better, for explain; NULL = nothing */
    bool exact;         /* its registers were counted: where the assembler spills any, has a local
                           frame or warns (C75..), it fails to build */
    uint32_t spilled;   /* bytes of registers, in the end */
    uint32_t may_spill; /* so many cost less than what would need fewer registers */
    uint32_t blob;      /* 1 + the result's blob with its machine code; 0: none */
    const char *plain;  /* why it has PTX and no machine code, or NULL */
    /* The step's other kernels, for an emitter that has several: it sets nvariants and choice
     * (CodeKernel) when it emits variant 0. Each of the others is then a job of its own, with the
     * kernel and what is known of its parameters, which any thread takes. `nbegun`: of them,
     * before any was left out; those lie behind the others. */
    uint32_t variant, nvariants, nbegun;
    CompileJob *variants;
    CompileJob *next; /* of those that wait for a thread */
    Expr choice;
    bool spare; /* the other kernels may be left out: they do the same at the same sizes */
    const char *signature, *way; /* as in CodeKernel */
    bool stale;                  /* a way was tuned that there is not */
    uint32_t min_blocks; /* that a multiprocessor must hold at a time; 0: the assembler decides */
    bool ahead, modest;  /* its code loads what it needs later; a build that spilled does without */
    bool yields, yielded; /* another structure would do; a build that spilled is left to that one */
    uint32_t shrink;      /* how many sizes smaller than usual a thread's share of the work is */
};

typedef struct CompileList {
    const Target *target;
    const Schedule *s;
    const CodeOptions *o;
    const struct Assembler *assembler; /* GPUs; NULL: none */
    uint32_t njobs;
    CompileJob *jobs;
    uint32_t *order;               /* jobs as threads take them: long ones first */
    uint32_t *job_of_step;         /* index of the step's job; UINT32_MAX for control steps */
    Arena *arena[COMPILE_THREADS]; /* of each thread's pools */
    bool cancelled;                /* not all jobs have run */
    /* By hash. Entries lie in jobs' arenas and are only added. */
    _Atomic(CompileKept *) kept[COMPILE_BUCKETS];
} CompileList;

typedef struct CompileWorker CompileWorker;
struct CompileWorker {
    LLVMContextRef ctx;
    LLVMTargetMachineRef machine;
    const Target *target;
    const CodeOptions *o;
    const struct Assembler *assembler;
    _Atomic(CompileKept *) *kept;
    Arena *scratch;    /* of an emitter while it is at work, else NULL */
    char message[512]; /* last error that LLVM reported */
};

/* Distinct kernels of the schedule in order of first use; freed with the arena at the latest. */
CompileList *compile_list(const Target *t, const Schedule *s, const CodeOptions *o, Arena *a);
/* Runs fn on every job that has not run, and on the variants that each of them asks for; each
 * thread has a worker of its own, with a machine for the target's first instruction set. False:
 * LLVM has none for it. Memory that runs out on any thread ran out on the caller's. */
bool compile_run(CompileList *l, void (*fn)(CompileWorker *w, CompileJob *j));
/* Forgets what the running job has made so far, to make it differently. */
void compile_restart(CompileJob *j);
/* What was made of that before, and keeping what was made now: in this run, since kernels that
 * differ in their sizes alone mostly come to the same code, and in the cache's folder, if there is
 * one. The key's and the unit's bytes are the job's. */
bool compile_cached(CompileWorker *w, CompileJob *j, CompileKey key, CompileUnit *u);
void compile_keep(CompileWorker *w, CompileJob *j, CompileKey key, const CompileUnit *u);
/* Verifies the module and compiles it to an object or (PTX) text in the job's arena, through the
 * cache; false sets j->error. */
bool compile_module(CompileWorker *w, CompileJob *j, LLVMModuleRef mod, uint32_t variant,
                    LLVMCodeGenFileType type);
/* Reports failed jobs, or that not all were to run. */
graphc_status compile_check(const CompileList *l, DiagSink *d);
/* Moves an expression of a job's pool into the schedule's. */
Expr compile_import(CompileList *l, const CompileJob *j, Expr e);
const Expr *compile_import_dims(CompileList *l, const CompileJob *j, Arena *a);
void compile_dump(const CompileList *l, const char *ext_asm);
void compile_free(CompileList *l);

#endif
