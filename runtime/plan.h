/* The plan file: everything a run needs, mapped and used in place.
 *
 * Layout: PlanHeader, then one PlanSection for every row of PLAN_SECTIONS in that order, then the
 * sections' bytes, each starting at the next multiple of PLAN_ALIGN with zeros between. A section
 * is an array of one fixed-width little-endian record; records refer to others by index, to text by
 * offset into `strings`, to variable-length arrays by their start in `lists`. The file holds no
 * pointers, absolute paths or time stamps, so equal compilations give equal bytes.
 *
 * Expressions: `exprs` is evaluated front to back into one 64-bit slot per record; operands have
 * smaller indices. Slot 0 is the constant 0 and doubles as "none". Arithmetic is exact and
 * saturates where a value leaves 64 bits; division and remainder are floored and give 0 for a zero
 * divisor. A slot's stage says when its value is known: with the plan, when inputs are bound, or
 * while the plan runs (SYM_DATA and SYM_ITER).
 *
 * Trust: plan_parse makes every later access memory-safe whatever the bytes are. It does not make
 * the machine code inside harmless: hashes find damage, not malice. */
#ifndef RUNTIME_PLAN_H
#define RUNTIME_PLAN_H

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"
#include "runtime/base/strbuf.h"
#include "runtime/error.h"
#include <stdbool.h>
#include <stdint.h>

#define PLAN_MAGIC    "\x89GRAPHC\n"
#define PLAN_VERSION  13u
#define PLAN_ALIGN    64u
#define PLAN_NO_ENTRY UINT64_MAX

#define PLAN_MAX_RANK     12u /* GRAPHC_MAX_RANK */
#define PLAN_MAX_PARAMS   64u /* buffers of one kernel; bits of PlanKernel.written */
#define PLAN_MAX_VARIANTS 64u /* of a step */
#define PLAN_MAX_ENTRIES  32u
#define PLAN_MAX_NESTING  32u /* loops and ifs inside each other */
#define PLAN_MAX_MAPS     16u /* tensor maps of one kernel: 2 of the 4 KiB of its parameters */
#define PLAN_MAP_RANK     5u
#define PLAN_MAP_BYTES    128u           /* of an encoded one */
#define PLAN_MAX_SHARED   (227u * 1024u) /* shared memory of a block */

#define PLAN_LOOKED_THROUGH " (a view: only where it is read)"

typedef uint32_t PlanStr;  /* offset into strings; 0 = "" */
typedef uint32_t PlanSlot; /* index into exprs; 0 = none */
typedef uint32_t PlanList; /* start in lists; the count stands beside it */

/* X(section, record) */
#define PLAN_SECTIONS(X)                                                                           \
    X(strings, char)                                                                               \
    X(lists, uint32_t)                                                                             \
    X(symbols, PlanSymbol)                                                                         \
    X(exprs, PlanExpr)                                                                             \
    X(inputs, PlanIo)                                                                              \
    X(outputs, PlanIo)                                                                             \
    X(states, PlanState)                                                                           \
    X(entries, PlanEntry)                                                                          \
    X(notes, PlanNote)                                                                             \
    X(checks, PlanCheck)                                                                           \
    X(constants, PlanConstant)                                                                     \
    X(targets, PlanTarget)                                                                         \
    X(buffers, PlanBuffer)                                                                         \
    X(kernels, PlanKernel)                                                                         \
    X(maps, PlanMap)                                                                               \
    X(steps, PlanStep)                                                                             \
    X(blobs, PlanBlob)                                                                             \
    X(code, uint8_t)                                                                               \
    X(data, uint8_t)
typedef enum PlanSectionId {
#define X(name, record) PLAN_SEC_##name,
    PLAN_SECTIONS(X)
#undef X
        PLAN_SEC_COUNT
} PlanSectionId;

/* hash: of the header with this field 0 followed by the section table. */
typedef struct PlanHeader {
    char magic[8];
    uint32_t version, abi;
    uint64_t length, hash;
    uint32_t nsections;
    PlanStr weights; /* folder of external files, seen from the plan's folder; 0: the same */
} PlanHeader;

typedef struct PlanSection {
    uint32_t id, record_size;
    uint64_t offset, size, hash;
} PlanSection;

/* Operation, arity, spelling in text. */
#define PLAN_EXPRS(X)                                                                              \
    X(const, 0, "")                                                                                \
    X(sym, 0, "")                                                                                  \
    X(add, 2, "+")                                                                                 \
    X(mul, 2, "*")                                                                                 \
    X(div, 2, "/")                                                                                 \
    X(mod, 2, "%")                                                                                 \
    X(min, 2, "min")                                                                               \
    X(max, 2, "max")                                                                               \
    X(lt, 2, "<")                                                                                  \
    X(eq, 2, "==")                                                                                 \
    X(select, 3, "select")
typedef enum PlanExprOp {
#define X(name, arity, text) PLAN_EX_##name,
    PLAN_EXPRS(X)
#undef X
        PLAN_EX_COUNT
} PlanExprOp;

typedef struct PlanExpr {
    uint32_t op, arg[3]; /* sym: arg[0] is the symbol; unused ones are 0 */
    int64_t value;       /* const */
} PlanExpr;

typedef enum PlanSymbolKind {
    PLAN_SYM_dim,   /* input a, axis b */
    PLAN_SYM_elem,  /* flat element b of input a */
    PLAN_SYM_state, /* what state a holds along axis b, that which grows */
    PLAN_SYM_data,  /* written by a step */
    PLAN_SYM_iter,  /* iteration number of a loop */
    PLAN_SYM_COUNT
} PlanSymbolKind;

typedef struct PlanSymbol {
    PlanStr name;
    uint32_t kind, a, b;
    int64_t lo, hi; /* inclusive; checked whenever the symbol gets a value */
    int64_t hint;   /* typical value; 0 = none */
} PlanSymbol;

typedef struct PlanIo {
    PlanStr name;
    uint32_t dtype; /* ONNX code: stable, unlike enum DType */
    uint32_t rank;
    PlanList dims;     /* rank slots */
    PlanList dim_text; /* rank strings */
    uint32_t reserved;
} PlanIo;

typedef enum PlanRole { /* graphc_state_role's numbers */
                        PLAN_ROLE_other,
                        PLAN_ROLE_parameter,
                        PLAN_ROLE_moment,
                        PLAN_ROLE_gradient,
                        PLAN_ROLE_buffer,
                        PLAN_ROLES
} PlanRole;

/* A tensor that lives in the session from run to run. Its size is known with the plan, but for an
 * axis along which it may grow: rows of that axis are `room` apart from the next outer ones. */
typedef struct PlanState {
    PlanIo io;
    uint32_t initial; /* 1 + constant that a new session's starts as; 0: zeros */
    uint32_t grows;   /* 0, or 1 + the axis; a new session's holds nothing along it */
    PlanSlot room;    /* the most that it holds along the axis */
    PlanSlot next;    /* how much it holds after a run of an entry that writes it */
    uint32_t role;    /* PlanRole */
    uint32_t of;      /* 1 + the parameter that a moment or gradient belongs to; 0: to none */
    float spread;     /* of a parameter: whoever trains starts it with uniform numbers in +-spread;
                         0: with what `initial` says */
    uint32_t reserved;
} PlanState;

/* What whoever compiled the plan says of it, by name: text that no step depends on. */
typedef struct PlanNote {
    PlanStr key, text;
} PlanNote;

/* Steps that run as one: those of every target that its `ranges` name. Numbers in lists ascend. */
typedef struct PlanEntry {
    PlanStr name;
    PlanList inputs, outputs, states; /* what its steps read and write; states: write */
    uint32_t ninputs, noutputs, nstates;
    uint32_t reserved;
} PlanEntry;

/* The two slots must be equal; text says what follows if they are not. */
typedef struct PlanCheck {
    PlanSlot a, b;
    PlanStr text;
} PlanCheck;

typedef enum PlanSource { PLAN_embedded, PLAN_external } PlanSource;

typedef struct PlanConstant {
    PlanStr name, file; /* file: relative to the plan's folder; 0 when embedded */
    uint32_t source, reserved;
    uint64_t offset, length; /* in section data, or in the file */
    uint64_t hash;           /* plan_probe_hash of the bytes */
    uint64_t file_size;      /* the file's, when the plan was made; 0 when embedded */
} PlanConstant;

typedef enum PlanDevice { PLAN_cpu = 1, PLAN_cuda = 2 } PlanDevice; /* DLPack's numbers */

/* A target owns ranges of buffers, kernels, steps and blobs; indices inside them count from the
 * start of the range. Steps [0, nprepare) run once per device, those of an entry in each of its
 * runs. Entries follow each other: the first one's steps begin at nprepare. */
typedef struct PlanTarget {
    PlanStr name, notes; /* notes: what was not fused and why, one line each */
    PlanStr apart;       /* the ONNX nodes that no kernel covers and why, one line each */
    uint32_t device;
    uint32_t buffers, nbuffers, kernels, nkernels, steps, nsteps, blobs, nblobs, nprepare;
    PlanList ends; /* of every entry: the step behind its last */
} PlanTarget;

typedef enum PlanBufferKind {
    PLAN_BUF_input,
    PLAN_BUF_output,
    PLAN_BUF_const,
    PLAN_BUF_prepared, /* written by prepare steps, shared by sessions, never written again */
    PLAN_BUF_temp,
    PLAN_BUF_state, /* the session's, read and written by runs */
    PLAN_BUF_COUNT
} PlanBufferKind;

typedef struct PlanBuffer {
    uint32_t kind, dtype; /* dtype: ONNX code */
    uint32_t index;       /* input, output, constant or state number */
    uint32_t alias; /* 0, or 1 + the buffer whose storage it uses, which has no alias itself */
    PlanSlot bytes; /* known when inputs are bound */
    PlanSlot alias_offset; /* bytes */
    uint32_t first, last;  /* steps that use it, loops widened; first > last: none do */
} PlanBuffer;

/* CPUs' first, better ones behind. Of the whole ones an image holds all kernels of its target; of
 * the others, which add instructions to the last whole one, those that have code of their own. */
typedef enum PlanForm {
    PLAN_x86_64_v3,
    PLAN_x86_64_v4,
    PLAN_x86_64_vnni, /* v4 and AVX512-VNNI */
    PLAN_x86_64_bf16, /* v4 and AVX512-BF16 */
    PLAN_x86_64_amx,  /* v4 and AMX: tiles of bf16 and of bytes */
    PLAN_ptx,
    PLAN_cubin,
    PLAN_FORMS
} PlanForm;
#define PLAN_CPU_FORMS 5
#define PLAN_CPU_WHOLE 2

typedef struct PlanKernel {
    PlanStr name, kind, nodes, symbol; /* nodes: the ONNX nodes it covers, one a line; those of
                                          which it computes nothing end in PLAN_LOOKED_THROUGH */
    uint64_t entry[PLAN_CPU_FORMS];    /* offset in that form's blob, or PLAN_NO_ENTRY */
    uint64_t written;                  /* bit i: buffer i is written */
    uint32_t nbufs, ndims;
    PlanList dims; /* ndims slots */
    PlanSlot work, scratch, cost, bytes_read, bytes_written, flops;
    /* CPU. The first of `slices` equal parts of its work items reads the first `slice` bytes of the
     * one buffer that it only reads, the next part the next ones, and so on. 0: that is not so. */
    PlanSlot slices, slice;
    /* GPU. Its parameters: runtime/abi.h. */
    PlanSlot grid[3]; /* blocks along x, y, z; nothing is launched where one is not positive */
    uint32_t block[3], cluster[3]; /* cluster: blocks; all 0 = none */
    uint32_t shared;               /* bytes of dynamic shared memory */
    uint32_t flags;                /* PlanKernelFlag */
    PlanSlot zero;                 /* bytes of zeroed memory that it is given; 0 = no pointer */
    uint32_t maps, nmaps;          /* in section maps */
    uint32_t cubin;                /* 1 + blob of the target that holds it; 0 = the PTX alone */
} PlanKernel;

typedef enum PlanKernelFlag {
    /* May start before the kernel in front of it has ended. It waits (griddepcontrol.wait) before
     * its first write and before it first reads what any kernel of the run writes. */
    PLAN_DEPENDENT = 1,
    /* Leaves its zeroed memory zero: it is zeroed once, not before every launch. */
    PLAN_ZERO_KEPT = 2,
    /* Reads nothing at all before it waits. A run of such kernels alone may start before what its
     * caller put in front of it has ended. */
    PLAN_WAITS_FIRST = 4,
    PLAN_KERNEL_FLAGS = 7
} PlanKernelFlag;

/* A tensor map, the GPU's copy engine's view of a buffer; dims innermost first. All slots are known
 * when inputs are bound. */
typedef struct PlanMap {
    uint32_t param; /* the kernel's buffer */
    uint32_t dtype; /* ONNX code of the elements it moves */
    uint32_t kind;  /* PlanMapKind */
    uint32_t rank;
    uint32_t tf32; /* 1: f32 that arrive rounded to 11 bits, as tensor cores multiply them */
    PlanSlot base; /* elements from the buffer's start */
    PlanSlot size[PLAN_MAP_RANK];       /* elements */
    PlanSlot stride[PLAN_MAP_RANK - 1]; /* bytes, of dims 1 to rank - 1 */
    uint32_t box[PLAN_MAP_RANK];        /* tiled: elements */
    uint32_t step[PLAN_MAP_RANK];       /* distance of the elements moved */
    int32_t lower[3], upper[3];         /* im2col: corners per spatial dim */
    uint32_t channels, pixels;          /* im2col */
    uint32_t swizzle, promotion;        /* bytes: 0, 32, 64 or 128; 0, 64, 128 or 256 */
} PlanMap;

typedef enum PlanMapKind { PLAN_MAP_tiled, PLAN_MAP_im2col, PLAN_MAP_COUNT } PlanMapKind;

typedef enum PlanStepKind {
    PLAN_STEP_kernel,
    PLAN_STEP_loop,
    PLAN_STEP_loop_end,
    PLAN_STEP_if,
    PLAN_STEP_else,
    PLAN_STEP_if_end,
    PLAN_STEP_COUNT
} PlanStepKind;

/* Control is structured: loop ... loop_end, if ... [else ...] if_end. A loop runs while the
 * iteration number is below the trip count and *cond_buf is true. */
typedef struct PlanStep {
    uint32_t kind;
    uint32_t kernel;
    /* Other kernels that do the same with the same buffers: 0 of `choice` is kernel, i is
     * variants[i - 1], a value outside is the nearest inside. */
    uint32_t nvariants;
    PlanList variants;
    PlanSlot choice;
    PlanList bufs; /* the kernel's nbufs buffer numbers */
    PlanList data; /* 2 * ndata: a symbol that the kernel finds out, the i64 buffer it is in */
    uint32_t ndata;
    uint32_t iter;               /* loop: its symbol */
    PlanSlot trip;               /* loop: trip count, unless trip_buf */
    uint32_t trip_buf, cond_buf; /* 1 + buffer, 0 = none: an i64 and a bool */
    uint32_t match;              /* loop <-> loop_end; if -> else or if_end; else -> if_end */
} PlanStep;

typedef struct PlanBlob {
    uint32_t form, reserved;
    uint64_t offset, size; /* in section code */
} PlanBlob;

#define PLAN_RECORD_SIZE(T, n) _Static_assert(sizeof(T) == (n), "plan file layout")
PLAN_RECORD_SIZE(PlanHeader, 40);
PLAN_RECORD_SIZE(PlanSection, 32);
PLAN_RECORD_SIZE(PlanExpr, 24);
PLAN_RECORD_SIZE(PlanSymbol, 40);
PLAN_RECORD_SIZE(PlanIo, 24);
PLAN_RECORD_SIZE(PlanCheck, 12);
PLAN_RECORD_SIZE(PlanConstant, 48);
PLAN_RECORD_SIZE(PlanState, 56);
PLAN_RECORD_SIZE(PlanEntry, 32);
PLAN_RECORD_SIZE(PlanNote, 8);
PLAN_RECORD_SIZE(PlanTarget, 56);
PLAN_RECORD_SIZE(PlanBuffer, 32);
PLAN_RECORD_SIZE(PlanKernel, 168);
PLAN_RECORD_SIZE(PlanMap, 140);
PLAN_RECORD_SIZE(PlanStep, 52);
PLAN_RECORD_SIZE(PlanBlob, 24);

typedef enum PlanStage { PLAN_STAGE_plan, PLAN_STAGE_bound, PLAN_STAGE_run } PlanStage;

/* A checked plan: the bytes are the caller's and must outlive it. */
typedef struct Plan {
    const uint8_t *bytes;
    uint64_t size;
    const PlanHeader *header;
#define X(name, record)                                                                            \
    const record *name;                                                                            \
    uint64_t n##name;
    PLAN_SECTIONS(X)
#undef X
    uint8_t *stage; /* PlanStage of every slot */
} Plan;

/* Checks everything; on success *out refers into `bytes`, which must be 64-byte aligned. */
graphc_status plan_parse(const void *bytes, uint64_t size, Plan *out, ErrorText error);
void plan_release(Plan *p);

const char *plan_str(const Plan *p, PlanStr s);
const char *plan_input_name(const Plan *p, uint64_t i);
const char *plan_output_name(const Plan *p, uint64_t i);
const char *plan_state_name(const Plan *p, uint64_t i);
DType plan_dtype(uint32_t onnx_code); /* DT_none if unknown */
/* Kernel i of a step: its own, or variant i - 1. */
uint32_t plan_step_kernel(const Plan *p, const PlanStep *s, uint32_t i);
/* Number of a buffer that owns storage: b itself or what it is an alias of. */
uint32_t plan_root(const PlanBuffer *target_buffers, uint32_t b);
/* Steps of an entry: [from, to). */
typedef struct PlanRange {
    uint32_t from, to;
} PlanRange;
PlanRange plan_range(const Plan *p, const PlanTarget *t, uint32_t entry);
/* Is v among n ascending numbers? */
bool plan_lists(const Plan *p, PlanList list, uint32_t n, uint32_t v);
const PlanTarget *plan_find_target(const Plan *p, PlanDevice device);

/* What a constant's bytes are recognised by: all of them up to 128 KiB, else the first and last
 * 64 KiB and the length, so that loading does not read gigabytes of weights twice. */
uint64_t plan_probe_hash(const void *data, uint64_t length);
/* The same of more than twice PLAN_PROBE bytes: the first and the last PLAN_PROBE are all it sees.
 */
#define PLAN_PROBE 65536u
uint64_t plan_ends_hash(const void *head, const void *tail, uint64_t length);
/* Hash of a header and its section table, as PlanHeader.hash. */
uint64_t plan_header_hash(const PlanHeader *h, const PlanSection *sections);

/* The bytes of every section, and a plan's bytes, from malloc, with others in their place;
 * `weights` as in the header. */
typedef struct PlanPart {
    const void *p;
    uint64_t bytes;
} PlanPart;
void plan_parts(const Plan *p, PlanPart out[PLAN_SEC_COUNT]);
graphc_status plan_join(const Plan *p, PlanStr weights, const PlanPart part[PLAN_SEC_COUNT],
                        void **out, uint64_t *size);
/* The plan's bytes, from malloc, with variant[i] for step i of all targets; a number that the step
 * has not: it chooses as before. */
graphc_status plan_choose(const Plan *p, const uint32_t *variant, void **out, uint64_t *size);

/* A slot's exact value; `slots` has the nearest that 64 bits hold. Both have nexprs elements. */
__extension__ typedef __int128 PlanWide;

/* Evaluates slots of stage >= from, given every symbol's value. */
void plan_eval(const Plan *p, const int64_t *symbols, PlanWide *wide, int64_t *slots,
               PlanStage from);
/* Evaluates one slot from those it refers to. */
void plan_eval_slot(const Plan *p, const int64_t *symbols, PlanWide *wide, int64_t *slots,
                    PlanSlot i);

/* plan.txt: every record, readable. */
void plan_print(const Plan *p, StrBuf *out);
const char *plan_form_name(PlanForm f); /* "x86-64-v3", "cubin" ... */

#endif
