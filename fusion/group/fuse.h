/* What the files of the fusion pass share.
 *
 * Vocabulary. A *group* becomes one kernel. It has axes and *roots*: values that it stores. Every
 * other value it computes is *inlined*: evaluated at index expressions over the group's axes. A
 * *demand* says that a group needs a value at an index. Values are visited in reverse topological
 * order, so that all demands on a value are known when it is decided whether it is inlined into
 * everything that demands it or becomes a root (group.c). Afterwards pull.c generates each body by
 * walking the same way again. An *anchor* is the contraction or attention that gives its group a
 * loop structure; `epi[v]` names the contraction whose epilogue could compute v. */
#ifndef FUSION_FUSE_H
#define FUSION_FUSE_H

#include "fusion/schedule/schedule.h"
#include "runtime/base/map.h"

/* Where a value is read: one expression per dimension, and the row-major position they stand for.
 * Interned per group; `type` gives the extents. */
typedef struct Idx {
    uint8_t rank;
    Expr flat;
    Expr dim[GRAPH_MAX_RANK], extent[GRAPH_MAX_RANK];
} Idx;
typedef uint32_t IdxId; /* 1-based */

/* How a group wants to use a value: decides how much may be inlined there. */
typedef enum Use {
    USE_point, /* once per element of the group's space */
    USE_data,  /* at data-dependent addresses */
    USE_score, /* q and k of attention */
    USE_value, /* v of attention */
    USE_a,
    USE_b /* operands of a contraction: read many times */
} Use;

/* At every point of the group's space, or under a mask only: a set. */
typedef enum Reads { READ_plain = 1, READ_masked = 2 } Reads;

typedef struct Demand {
    uint32_t group;
    IdxId idx;
    Use use;
    uint8_t reads; /* Reads, of all places that demand it at idx */
} Demand;

typedef enum GroupKind {
    GROUP_map, /* poi, red or per, as its axes say */
    GROUP_dot,
    GROUP_attention,
    GROUP_pack, /* stores a constant B operand in panels */
    GROUP_join, /* no kernel: a concatenation whose parts are stored by their producers */
    GROUP_scan,
    GROUP_sort,
    GROUP_compact,
    GROUP_scatter,
    GROUP_control
} GroupKind;

#define ROOT_WHOLE UINT32_MAX
#define NO_BUFFER  UINT32_MAX /* an output that nobody wants */

typedef struct Root {
    Value v;
    IdxId idx;
    uint32_t output; /* 1 + graph output of a mere copy; 0 = v's own buffer */
    Value into;      /* copied into this concatenation's buffer, as operand `part`; ROOT_WHOLE:
                        into the whole buffer of this value, which another kernel completes */
    uint32_t part;
    bool slot; /* `into` is a loop or branch and `part` the operand that it starts from */
} Root;

typedef struct AttnMatch {
    Value o, s, max, sum, exp, score; /* dots, reductions, maps of the pattern */
    uint32_t group;
    uint32_t isym, jsym, nsym; /* axes: query, key, column of the result */
    bool guarded;
} AttnMatch;

/* A constant operand stored in panels of `nr` columns. */
typedef struct Pack {
    Value b;
    uint32_t nr, group, buf;
    uint8_t nbatch, nk;       /* leading dimensions of b that are batch, then contracted ones */
    Expr batch, k, n, ngroup; /* extents: of each; ngroup: convolution groups inside the last
                                 dimension (1 = none) */
    bool wino;                /* in Winograd's form: see winograd.c */
    uint32_t wino_axis;       /* of its prepare step: the first of the two plane axes */
} Pack;

/* These remember indices by number; look-ups compare them as they are now, after axes were split.
 */
typedef struct RowAt {
    Value v;
    IdxId idx, at; /* read at idx, reduction v walks its folded dimensions at `at` */
} RowAt;

typedef struct SymAt {
    Value v;
    uint32_t operand, salt;
    IdxId idx;
    uint32_t sym;
} SymAt;

typedef struct Group {
    uint32_t id;
    GroupKind kind;
    Value want; /* contraction that the roots are an epilogue of; it becomes the anchor unless
                   it turns out to be needed elsewhere too */
    Value anchor;
    AttnMatch *attn;
    uint32_t pack;  /* GROUP_pack: 1 + pack number; GROUP_dot: of its B operand */
    Expr pack_mask; /* GROUP_pack: where there is an element to store */
    bool prepare;
    uint32_t naxes;
    KAxis axes[K_MAX_AXES];
    uint32_t fixed; /* axes that are not split */
    VEC(Idx) idx;   /* idx.v[id - 1] */
    MapU64 *index_of;
    VEC(RowAt) rows; /* where reductions inlined here walk */
    VEC(SymAt) syms; /* what gathers inlined here bind */
    VEC(Root) roots;
    VEC(uint32_t) deps; /* groups whose results it reads */
    VEC(Value) inlined; /* values it computes, latest first */
    uint32_t nreads;    /* values that it demands and does not compute, so far: buffers to read */
    IdxId anchor_idx;   /* of the contraction's result */
    IdxId k_idx;        /* position along the contracted dimensions (attention: of q*k) */
    IdxId j_idx;        /* attention: the key position */
    uint32_t order;     /* position in the schedule */
    uint32_t mark;      /* of the last dependency walk */
    Kernel *kernel;
    uint32_t *bufs; /* of its params */
    uint32_t step;
} Group;

typedef struct VState {
    VEC(Demand) demands;
    uint32_t first_user, nusers;
    uint32_t readers; /* users, a view's counted in place of the view */
    Value epi, epi_from; /* the contraction, and the operand through which it is reached */
    bool const_only;     /* depends on constants only, static shape */
    bool must;           /* has to be stored whatever the demands are */
    bool visited;
    uint32_t group;                /* 1 + group that stores it */
    uint32_t output;               /* 1 + graph output that it is stored to */
    bool permuted;                 /* stored in another order of dimensions than its type's: */
    uint8_t order[GRAPH_MAX_RANK]; /* position i of the buffer is this dimension of v */
    Value stat;                    /* the reduction that v is one value per row of, or 0 */
    Value home;                    /* concatenation whose buffer it is stored into ... */
    uint32_t home_part;            /* ... as this operand */
    AttnMatch *attn;    /* pattern that has this value inside, or that it is the result of */
    uint32_t dot_group; /* of a contraction: 1 + group whose roots are its epilogue */
    uint32_t buf;       /* 1 + buffer */
    uint32_t count_buf; /* of compact: 1 + buffer of the count */
    uint32_t *slots;    /* of loop and if: 1 + buffer that an operand is copied to, 0 = none */
    uint32_t *results;  /* of loop and if: 1 + buffer of each result */
    double flops;       /* per element, everything cheap inlined */
    double leaf_bytes;  /* read to compute all of it then */
    FusionWhy why;      /* why it was stored, if it was */
} VState;

typedef struct Fuse {
    const Graph *g;
    ExprPool *p;
    const Machine *m;
    Arena *arena;
    DiagSink *diags;
    Schedule *s;
    VState *v; /* one per node */
    Value *users;
    const Value *definer; /* see graph_definers */
    VEC(Group *) groups;
    VEC(Pack) packs;
    uint32_t *dots; /* number of a contraction among all, 1-based */
    uint32_t ndots, words;
    uint64_t *reach; /* reach[v*words ..]: contractions that v depends on */
    uint32_t mark, naxis_syms;
    const uint32_t *in_buf, *out_buf; /* buffers of the graph's inputs and outputs */
    const Expr *out_base; /* NULL, or where in its buffer an output starts (0 = at the start) */
    uint32_t *number;     /* of the next kernel, of the next prepare kernel */
    Loc place;            /* of the loop or branch whose body this is, in the outermost graph */
    graphc_status status;
} Fuse;

/* analyse.c */
void fuse_analyse(Fuse *f);
bool fuse_depends(const Fuse *f, Value v, Value dot);
double fuse_hint(const Fuse *f, Expr e);
double fuse_numel(const Fuse *f, Value v);
double fuse_bytes(const Fuse *f, Value v);
Value fuse_user(const Fuse *f, Value v, uint32_t i);
bool fuse_is_const_leaf(const Fuse *f, Value v); /* a constant through views only */

/* index.c */
Group *group_new(Fuse *f, GroupKind kind);
Expr axis_new(Fuse *f, Group *g, Expr extent, KAxisKind kind); /* its symbol; 0 for extent 1 */
const Idx *idx_get(const Group *g, IdxId id);
/* Splitting an axis may make two indices equal: the first of them. */
IdxId idx_canon(const Group *g, IdxId id);
IdxId idx_make(Fuse *f, Group *g, const Type *t, const Expr *dim, Expr flat);
IdxId idx_axes(Fuse *f, Group *g, const Type *t); /* fresh parallel axes, one per dimension */
IdxId idx_reshape(Fuse *f, Group *g, IdxId idx, const Type *to);
IdxId idx_split_axes(Fuse *f, Group *g, IdxId idx); /* until idx has no avoidable div or mod */
Expr expr_in_range(ExprPool *p, Expr i, Expr n);    /* 0 <= i < n */
Expr expr_mask_and(ExprPool *p, Expr a, Expr b);    /* 0 = always */
/* Index of operand i of view (or map) v when v is read at idx. *mask (0 = always): where the
 * operand is read at all. Splits axes so that the result is affine where possible. */
IdxId idx_operand(Fuse *f, Group *g, Value v, uint32_t i, IdxId idx, Expr *mask);
/* The other way, through a bijective view: where v's element is when its operand is at idx. */
IdxId idx_result(Fuse *f, Group *g, Value v, IdxId idx);
/* Of the data operand of a gather. Its symbols differ by `salt`: pulls under different masks bind
 * different values. */
IdxId idx_gather(Fuse *f, Group *g, Value v, IdxId idx, uint32_t salt);
bool idx_known(const Fuse *f, Value v, Expr extent, Expr *at); /* constant index operand */
uint32_t idx_gather_sym(Fuse *f, Group *g, Value v, uint32_t operand, IdxId idx, uint32_t salt);
uint32_t idx_axes_used(const Fuse *f, const Group *g, IdxId id);
uint32_t axis_bit(const Group *g, uint32_t sym);
uint32_t expr_axes_used(const Fuse *f, const Group *g, Expr e);
/* idx runs over each combination of `axes` exactly once. */
bool idx_covers(const Fuse *f, const Group *g, IdxId id, uint32_t axes);
bool expr_awkward(const Fuse *f, const Group *g, Expr e, uint32_t axes);
bool idx_awkward(const Fuse *f, const Group *g, IdxId id,
                 uint32_t axes); /* div or mod of an axis */
uint32_t group_axes(const Group *g, KAxisKind kind);
Expr group_extent(const Fuse *f, const Group *g, uint32_t axes);
/* Flat positions: of dims in a box, and the dims of a position. */
/* May the axes that idx does not use become the row of reduction v? */
bool idx_row_fits(Fuse *f, const Group *g, Value v, IdxId idx);
Expr idx_join(ExprPool *p, uint32_t n, const Expr *dim, const Expr *extent);
bool expr_exact_div(ExprPool *p, Expr a, Expr b, Expr *q);
/* Index of the input of reduce v read at idx; the group's row axes run over the folded dimensions
 * (made when it has none and may become a reduction). 0: the row does not fit. */
IdxId idx_row(const Group *g, Value v, IdxId idx); /* of RowAt, 0 = none */
IdxId idx_reduce(Fuse *f, Group *g, Value v, IdxId idx, FusionWhy *why);
/* Operands of a contraction whose result is read at idx: makes its reduced axes. */
typedef struct DotIdx {
    IdxId a, b;
    Expr a_mask;
} DotIdx;
IdxId idx_dot_axes(Fuse *f, Group *g, Value dot); /* parallel axes for a contraction's result */
DotIdx idx_dot(Fuse *f, Group *g, Value dot, IdxId idx);
bool fuse_is_depthwise(const Fuse *f, Value conv);
bool fuse_is_dot(const Fuse *f, Value v); /* dot or conv, depthwise included */
bool op_is_reduce(Op op);

/* group.c */
void fuse_group(Fuse *f);
void fuse_expand(Fuse *f, Group *g, Value v, IdxId idx, Use use, uint8_t reads);
void fuse_add_root(Fuse *f, Group *g, Value v, IdxId idx); /* and its demands */
IdxId fuse_native(Fuse *f, Group *g, Value v, Value dot);
/* decide.c */
bool fuse_inlines(Fuse *f, Value v);
bool fuse_siblings(const Fuse *f, Value a, Value b);
/* Distinct groups that demand v, up to max; the number found. */
uint32_t fuse_demanders(const Fuse *f, Value v, uint32_t *groups, uint32_t max);
bool fuse_demands(const Fuse *f, const Group *g, Value v); /* g does */
Group *fuse_home(Fuse *f, Value v, IdxId *idx); /* existing group that can store v, or NULL */
Group *fuse_sibling_home(Fuse *f, Value v, IdxId *idx); /* horizontally, likewise */
/* layout.c: picks the order in which v, about to be stored by g, lies in memory */
void fuse_choose_layout(Fuse *f, const Group *g, Value v);
/* concat.c */
void fuse_store_concat(Fuse *f, Value v);
void fuse_demand(Fuse *f, Group *g, Value v, IdxId idx, Use use, uint8_t reads);
void fuse_await_sizes(Fuse *f, Group *g,
                      Value v); /* what computes sizes that v has runs before g */
void group_dep(Fuse *f, Group *g, uint32_t on);
bool group_reaches(Fuse *f, Group *from, Group *to);

/* attention.c */
void fuse_find_attention(Fuse *f);

/* pack.c */
bool fuse_packs(const Fuse *f, Value dot); /* its B operand is read in packed form */
uint32_t fuse_pack(Fuse *f, Value dot); /* 1 + pack number, 0 = B is read as it comes */
Expr pack_index(Fuse *f, const Pack *k, Group *g, Value b, IdxId idx);
Expr pack_numel(Fuse *f, const Pack *k);

/* winograd.c */
bool fuse_is_wino(const Fuse *f, Value dot);
Expr wino_numel(Fuse *f, const Pack *k);
void wino_group(Fuse *f, Pack *k);

/* pull.c */
typedef struct Body {
    Fuse *f;
    Group *g;
    Kernel *k;
    VEC(KOp) ops;
    VEC(KParam) params;
    VEC(uint32_t) bufs; /* schedule buffer of each param */
    MapU64 *memo;       /* (value, idx, mask) -> KVal */
    MapU64 *consts;
    VEC(Expr) masks;
    KVal attn_at[6]; /* of AttnMatch's values, in its order */
    KVal attn_q, attn_k, attn_v;
    KVal dot_a, dot_b[K_MAX_ACC], dot_acc[K_MAX_ACC];
    uint32_t nacc, pack, wino;
} Body;
DType body_type(DType t); /* what values of memory type t are computed in */
KVal body_op(Body *b, KOp op);
KVal body_op1(Body *b, uint32_t op, DType t, KVal x);
KVal body_op2(Body *b, uint32_t op, DType t, KVal x, KVal y);
KVal body_const_i(Body *b, DType t, int64_t v);
KVal body_const_f(Body *b, DType t, double v);
KVal body_expr(Body *b, Expr e, DType t); /* value of an expression, as type t */
KVal body_cast(Body *b, KVal x, DType to);
uint32_t body_param(Body *b, uint32_t buf, bool written);
KVal body_load(Body *b, Value v, IdxId idx, Expr mask, KVal fill);
void body_store(Body *b, DType t, KVal x, uint32_t buf, Expr index, Expr mask);
KVal pull(Body *b, Value v, IdxId idx, Expr mask); /* in body_type of v's dtype */
/* Flat element of the buffer that holds stored value v, for v's index idx. */
Expr home_index(Fuse *f, Group *g, Value v, IdxId idx);
Expr part_index(Fuse *f, Group *g, Value concat, uint32_t part, IdxId idx);

/* control.c: loops and branches */
void control_root(Fuse *f, Value v);
void control_buffers(Fuse *f, Value v);
graphc_status control_emit(Fuse *f, Group *g);
Expr control_trip_bound(const Fuse *f, const Graph *of, Value v);

/* special.c: kernels with a structure of their own. */
bool special_is(const Fuse *f, Value v);
void special_root(Fuse *f, Value v); /* makes the group and its demands */
void special_lower(Body *b, Value v);
KVal pull_uniform(Body *b, Value v, IdxId idx);

/* winograd.c, likewise */
void wino_lower(Body *b, const Root *r);
KVal wino_pull(Body *b, const Pack *k, IdxId idx);

/* lower.c: groups to kernels */
void fuse_lower(Fuse *f, Group *g);
void body_prune(Body *b); /* prune.c */
void body_begin(Body *b);
void body_end(Body *b); /* axes, kind, traffic */

/* schedule.c: appends the graph's steps to the schedule */
graphc_status fuse_run(Fuse *f);

/* axes.c: merges and orders the axes of a finished body */
void axes_finish(Body *b);
/* names.c */
const char *fuse_kernel_name(Fuse *f, const Group *g, const Kernel *k, uint32_t number);
/* memory.c */
void fuse_buffers(Fuse *f);
void fuse_bound(Fuse *f, uint32_t sym, Expr most); /* notes a RunBound */
uint32_t fuse_buffer_of(Fuse *f, Value v);         /* number; made now for a constant */
Expr fuse_max_numel(Fuse *f, const Type *t);       /* what the value has at most */
void fuse_lifetimes(Fuse *f);

#endif
