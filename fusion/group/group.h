/* Groups: kernels that are being made. Takes facts (analyse/) and indices (index/); gives groups
 * with their roots, what they compute and what they wait for. decide.h has the decisions. */
#ifndef FUSION_GROUP_H
#define FUSION_GROUP_H

#include "fusion/index/index.h"
#include "runtime/base/map.h"

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

struct Group {
    uint32_t id;
    GroupKind kind;
    Value want; /* contraction that the roots are an epilogue of; it becomes the anchor unless
                   it turns out to be needed elsewhere too */
    Value anchor;
    AttnMatch *attn;
    uint32_t pack;  /* GROUP_pack: 1 + pack number */
    Expr pack_mask; /* GROUP_pack: where there is an element to store */
    bool prepare;
    /* The space, and where things are in it: index/ keeps these. */
    uint32_t naxes;
    KAxis axes[K_MAX_AXES];
    uint32_t fixed; /* axes that are not split */
    VEC(Idx) idx;   /* idx.v[id - 1] */
    MapU64 *index_of;
    VEC(RowAt) rows;  /* where reductions inlined here walk */
    VEC(SymAt) syms;  /* what gathers inlined here bind */
    IdxId anchor_idx; /* of the contraction's result */
    IdxId k_idx;      /* position along the contracted dimensions (attention: of q*k) */
    IdxId j_idx;      /* attention: the key position */
    VEC(Root) roots;
    VEC(uint32_t) deps; /* groups whose results it reads */
    VEC(Value) inlined; /* values it computes, latest first */
    uint32_t nreads;    /* values that it demands and does not compute, so far: buffers to read */
    uint32_t mark;      /* of the last dependency walk */
    /* body, schedule */
    Kernel *kernel;
    uint32_t *bufs; /* of its params */
    uint32_t step;
};

/* demand.c: what groups need, and which wait for which. */
Group *group_new(Fuse *f, GroupKind kind);
void fuse_demand(Fuse *f, Group *g, Value v, IdxId idx, Use use, uint8_t reads);
void fuse_await_sizes(Fuse *f, Group *g, Value v); /* what computes v's sizes runs before g */
void fuse_readers_wait(Fuse *f, Value v, const Group *g); /* who demands v waits for g */
void fuse_tidy_demands(Fuse *f, Value v);                 /* axes may have been split since */
void group_dep(Fuse *f, Group *g, uint32_t on);
bool group_reaches(Fuse *f, Group *from, Group *to);
bool fuse_demands(const Fuse *f, const Group *g, Value v); /* g does */
/* Distinct groups that demand v, up to max; the number found. */
uint32_t fuse_demanders(const Fuse *f, Value v, uint32_t *groups, uint32_t max);
bool fuse_is_read(const Fuse *f, Value v); /* from a buffer, when it is not computed */

/* place.c: the element of a buffer that holds stored value v at idx; of a concatenation, for idx of
 * its operand. */
Expr home_index(Fuse *f, Group *g, Value v, IdxId idx);
Expr part_index(Fuse *f, Group *g, Value concat, uint32_t part, IdxId idx);

/* expand.c: g computes v at idx, so it demands v's operands. */
void fuse_expand(Fuse *f, Group *g, Value v, IdxId idx, Use use, uint8_t reads);
void fuse_inline(Fuse *f, Value v); /* wherever it is demanded */

/* root.c: g stores v, computed at idx; its readers wait for g. */
void fuse_add_root(Fuse *f, Group *g, Value v, IdxId idx); /* and demands its operands */
void fuse_own_root(Fuse *f, Group *g, Value v, IdxId idx); /* that is the caller's to do */

/* layout.c: picks the order in which v, about to be stored by g, lies in memory */
void fuse_choose_layout(Fuse *f, const Group *g, Value v);

/* attention.c: before the walk. */
void fuse_find_attention(Fuse *f);
/* walk.c: the stage. Every value that is needed is stored by one group or inlined. */
void fuse_group(Fuse *f);

#endif
