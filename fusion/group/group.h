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
    USE_query, /* of attention */
    USE_key,
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
    GROUP_attention_gradient,
    GROUP_attention_gradients,
    GROUP_pack, /* stores a B operand in panels */
    GROUP_join, /* no kernel: a concatenation whose parts are stored by their producers */
    GROUP_scan,
    GROUP_sort,
    GROUP_compact,
    GROUP_scatter,
    GROUP_control,
    GROUP_KINDS
} GroupKind;

/* Where a root is stored. */
typedef enum RootTo {
    TO_own,    /* where v lives */
    TO_output, /* graph output `at`: a mere copy */
    TO_part,   /* operand `at` of concatenation `into`, in its buffer */
    TO_whole,  /* all of the buffer of `into`, which another kernel completes */
    TO_next,   /* what write `at` of the graph puts into its state in the end */
    TO_slot,   /* what loop or branch `into` starts from, operand `at` */
    TO_pack    /* the buffer of pack number `at` */
} RootTo;

typedef struct Root {
    Value v;
    IdxId idx;
    RootTo to;
    Value into;
    uint32_t at;
} Root;

typedef struct AttnMatch AttnMatch;
struct AttnMatch {
    Value o;    /* the attention or, of a gradient, the contraction */
    Value s[2]; /* contractions inside: the one that the scores are made of, and 0 or another */
    Value lse;  /* logsumexp of the scores, or 0 */
    uint32_t group;
    uint32_t isym, jsym, nsym; /* axes: row of the result, what is folded, column of the result */
    uint32_t dsym[2]; /* and those that s[0] and s[1] fold, once their operands were asked for */
    bool guarded, gradient;
    uint32_t side;    /* operand of o that is computed inside */
    uint32_t ninside; /* values computed inside, wherever else they are stored, ... */
    const Value *inside;
    const IdxId *at; /* ... and where each is read */
    IdxId out, fold; /* where its result is, and along what it folds */
    bool wanted;     /* the group has an epilogue of it */
    /* All gradients of one attention in one kernel: this one is that of keys, these those of values
     * and of queries; Group.attn is the first, whose `inside` is of all. The last is summed in
     * memory by several blocks: it is stored as it is. */
    AttnMatch *with[2];
    bool raw;
};

typedef struct Pack Pack;
typedef struct Body Body;

/* A prepared form of a contraction's constant right operand: special/pack.c and what it lists. */
typedef struct PackForm {
    const char *word; /* in the name of the prepare step */
    Expr (*numel)(Fuse *f, const Pack *k);
    /* Axes of the prepare step, and the element of b that each point of theirs stores, or the first
     * of several, which it demands itself; *column: of b, which may be one of those that only fill
     * the last panel. */
    void (*axes)(Fuse *f, Group *g, Pack *k, Expr *dim, Expr *column);
    void (*lower)(Body *b, const Root *r);                          /* the prepare step */
    KVal (*read)(Body *b, const Pack *k, Value operand, IdxId idx); /* in a contraction */
} PackForm;

/* A constant operand stored in panels of `nr` columns. */
struct Pack {
    const PackForm *form;
    Value b;
    uint32_t nr, group, buf;
    uint8_t nbatch, nk;       /* leading dimensions of b that are batch, then contracted ones */
    Expr batch, k, n, ngroup; /* extents: of each; ngroup: convolution groups inside the last
                                 dimension (1 = none) */
    DType dtype;              /* of what is stored */
    /* Of integers of few bits (special/pack_bits.c): the operand that they stand for; rows of k in
     * an element and under one scale; 1 + the packs of scales and zero points, 0: none; the operand
     * of the product with the scale that they are in. */
    Value of;
    uint8_t per, scaled;
    Expr block;
    uint32_t scale, zero;
};

/* What a kind of group does in a stage where it is not as a map is (NULL). The table is
 * special/special.c; stages reach it through Fuse.kinds, so that none of them knows which there
 * are. */
typedef struct KindRow {
    const char *word;                         /* in the names of its kernels */
    bool keeps_axes;                          /* they are its buffer's, in order */
    bool no_kernel;                           /* its parts have kernels of their own */
    void (*store)(Fuse *f, Value v);          /* group: makes what stores v, and its demands;
                                                 pack: what prepares v's right operand */
    void (*buffers)(Fuse *f, Value v);        /* body: v's, when it is not one */
    void (*lower)(Body *b, const Root *r);    /* body: pulls and stores a root */
    void (*facts)(Body *b);                   /* body: kind and template of what is finished */
    graphc_status (*emit)(Fuse *f, Group *g); /* schedule: steps, when it is not one kernel */
} KindRow;

/* A contraction whose result is added to the anchor's in the same kernel, over an axis of its own.
 */
typedef struct Term {
    Value dot;
    IdxId k_idx; /* position along its contracted dimension */
} Term;

struct Group {
    uint32_t id;
    GroupKind kind;
    Value want; /* contraction that the roots are an epilogue of; it becomes the anchor unless
                   it turns out to be needed elsewhere too */
    Value anchor;
    AttnMatch *attn;
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
    IdxId k_idx;      /* position along the contracted dimensions (attention: of its s[0]) */
    VEC(Term) terms;  /* beside the anchor */
    IdxId k2_idx;     /* attention: of its s[1] */
    VEC(Root) roots;
    VEC(uint32_t) deps;    /* groups whose results it reads */
    VEC(uint32_t) waiting; /* groups that read its results */
    uint32_t order;        /* in front of its deps (demand.c) */
    VEC(Value) inlined;    /* values it computes, latest first */
    uint32_t nvalues;      /* those that are neither views nor sources */
    uint32_t nfolds;       /* reductions and contractions among them */
    uint32_t nmasks;       /* operands among them that are read under a condition */
    uint32_t nreads; /* values that it demands and does not compute, so far: buffers to read */
    /* body, schedule */
    Kernel *kernel;
    uint32_t *bufs; /* of its params */
    uint32_t step;
};

typedef VEC(Group *) Groups;

static inline bool group_is_term(const Group *g, Value dot) {
    for (uint32_t i = 0; i < g->terms.n; i++)
        if (g->terms.v[i].dot == dot) return true;
    return false;
}

/* demand.c: what groups need, and which wait for which. */
void group_begin(Fuse *f); /* nothing is decided of any value */
Group *group_new(Fuse *f, GroupKind kind);
void fuse_demand(Fuse *f, Group *g, Value v, IdxId idx, Use use, uint8_t reads);
void fuse_await_sizes(Fuse *f, Group *g, Value v); /* what computes v's sizes runs before g */
void fuse_readers_wait(Fuse *f, Value v, const Group *g); /* who demands v waits for g */
void fuse_tidy_demands(Fuse *f, Value v);                 /* axes may have been split since */
void group_dep(Fuse *f, Group *g, uint32_t on);
bool group_reaches(const Fuse *f, const Group *from, const Group *to);
/* ... another group that demands v */
bool group_needs_reader(const Fuse *f, const Group *g, Value v);
bool fuse_demands(const Fuse *f, const Group *g, Value v); /* g does */
/* An attention of so many queries that they are work for matrix units. */
bool group_has_queries(const Fuse *f, const AttnMatch *m);
/* g, an attention, computes v itself when it reads it at idx (0: anywhere). */
bool group_has_inside(const Group *g, Value v, IdxId idx);
/* Distinct groups that demand v, up to max; the number found. */
uint32_t fuse_demanders(const Fuse *f, Value v, uint32_t *groups, uint32_t max);
bool fuse_is_read(const Fuse *f, Value v); /* from a buffer, when it is not computed */

/* place.c: in v's own order (a copy of an output is). */
bool root_is_at_home(const Root *r);
/* The element of a buffer that holds stored value v at idx; of a concatenation, for idx of
 * its operand. */
Expr home_index(const Fuse *f, const Group *g, Value v, IdxId idx);
Expr part_index(const Fuse *f, const Group *g, Value concat, uint32_t part, IdxId idx);
/* Where each operand of a concatenation begins: noted before one of them is stored into it. */
void fuse_place_parts(Fuse *f, Value concat);

/* expand.c: g computes v at idx, so it demands v's operands. */
void fuse_expand(Fuse *f, Group *g, Value v, IdxId idx, Use use, uint8_t reads);
void fuse_inline(Fuse *f, Value v);        /* wherever it is demanded */
void fuse_inline_inside(Fuse *f, Value v); /* in the groups that have v inside */

/* root.c: g stores v, computed at idx; its readers wait for g. */
void fuse_add_root(Fuse *f, Group *g, Value v, IdxId idx); /* and demands its operands */
void fuse_own_root(Fuse *f, Group *g, Value v, IdxId idx); /* that is the caller's to do */

/* layout.c: picks the order in which v, about to be stored by g, lies in memory */
void fuse_choose_layout(Fuse *f, const Group *g, Value v);

/* Where the result of its contraction is. */
IdxId group_anchor(const Group *g, Value dot);
/* The group's roots are (to be) an epilogue of this contraction. */
bool group_wants(const Group *g, Value dot);
void group_want(Group *g, Value dot, bool wanted);
/* An axis along the columns of an attention's result. */
bool group_is_column(const Group *g, uint32_t sym);
/* Queries' sums among all gradients of an attention, where they are stored as they are. */
bool fuse_is_raw(const Fuse *f, Value dot);
/* v, which is computed of a contraction's result, may be in its kernel: of such sums none, or,
 * where they lie apart until they are complete, what they are rounded to: rows that go as they are.
 * More would be stored number by number. */
bool fuse_may_follow(const Fuse *f, Value v, Value dot);

/* attention.c: before the walk. False: some of it has no kernel, and is decomposed in f->g now, of
 * which nothing is known yet. */
bool fuse_find_attention(Fuse *f);
void fuse_store_lse(Fuse *f, Value v);
/* v, an attention or its logsumexp, would wait for itself: the walk is in vain, and the next one
 * finds v apart. */
void fuse_set_apart(Fuse *f, Value v);
/* writes.c: before the walk, and after it. */
void fuse_copy_states(Fuse *f);
void fuse_writers_wait(Fuse *f);
/* walk.c: the stage. Every value that is needed is stored by one group or inlined. False: a value
 * was set apart, and all stages before this one are to be run again. */
bool fuse_group(Fuse *f);

#endif
