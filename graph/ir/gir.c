/* The attribute table of .gir text. */
#include "graph/ir/gir.h"
#include <stddef.h>
#include <string.h>

const char *const gir_modes[SCATTER_max + 1] = {"set", "add", "mul", "min", "max"};
const char *const gir_sym_kinds[SYM_INDIRECT + 1] = {"",     "elem", "data",
                                                     "iter", "axis", "indirect"};

#define REQUIRED INT64_MIN
#define FIELD(spelling, kind, count, member, absent)                                               \
    { spelling, kind, (uint8_t)sizeof(((Attr *)0)->member), count, offsetof(Attr, member), absent }
#define END                                                                                        \
    { .name = NULL }

static const AttrField none[] = {END};
static const AttrField input[] = {FIELD("", AK_NUMBER, AN_ONE, input.index, REQUIRED), END};
static const AttrField axis[] = {FIELD("axis", AK_NUMBER, AN_ONE, axis.axis, REQUIRED), END};
static const AttrField proj[] = {FIELD("index", AK_NUMBER, AN_ONE, axis.axis, REQUIRED), END};
static const AttrField cast[] = {FIELD("saturate", AK_FLAG, AN_ONE, cast.saturate, 0),
                                 FIELD("round", AK_NUMBER, AN_ONE, cast.round, 0), END};
static const AttrField perm[] = {FIELD("perm", AK_LIST, AN_RANK, perm.axis[0], REQUIRED), END};
static const AttrField slice[] = {FIELD("start", AK_EXPRS, AN_RANK, slice.start[0], REQUIRED),
                                  FIELD("step", AK_LIST, AN_RANK, slice.step[0], 1), END};
static const AttrField pad[] = {FIELD("lo", AK_EXPRS, AN_RANK, pad.lo[0], REQUIRED),
                                FIELD("hi", AK_EXPRS, AN_RANK, pad.hi[0], REQUIRED),
                                FIELD("interior", AK_LIST, AN_RANK, pad.interior[0], 0), END};
static const AttrField window[] = {FIELD("axes", AK_LIST, AN_WINDOW, window.axis[0], REQUIRED),
                                   FIELD("size", AK_LIST, AN_WINDOW, window.size[0], REQUIRED),
                                   FIELD("stride", AK_LIST, AN_WINDOW, window.stride[0], 1),
                                   FIELD("dilation", AK_LIST, AN_WINDOW, window.dilation[0], 1),
                                   END};
static const AttrField reduce[] = {FIELD("axes", AK_AXES, AN_ONE, reduce.axes, REQUIRED),
                                   FIELD("last", AK_FLAG, AN_ONE, reduce.last, 0), END};
static const AttrField conv[] = {FIELD("stride", AK_LIST, AN_CONV, conv.stride[0], REQUIRED),
                                 FIELD("dilation", AK_LIST, AN_CONV, conv.dilation[0], 1),
                                 FIELD("lo", AK_LIST, AN_CONV, conv.lo[0], 0),
                                 FIELD("hi", AK_LIST, AN_CONV, conv.hi[0], 0),
                                 FIELD("groups", AK_NUMBER, AN_ONE, conv.groups, 1),
                                 END};
static const AttrField gather[] = {FIELD("src", AK_LIST, AN_IN0, index.src[0], REQUIRED), END};
static const AttrField scatter[] = {FIELD("src", AK_LIST, AN_IN0, index.src[0], REQUIRED),
                                    FIELD("mode", AK_MODE, AN_ONE, index.mode, REQUIRED), END};
static const AttrField scan[] = {FIELD("axis", AK_NUMBER, AN_ONE, scan.axis, REQUIRED),
                                 FIELD("exclusive", AK_FLAG, AN_ONE, scan.exclusive, 0),
                                 FIELD("reverse", AK_FLAG, AN_ONE, scan.reverse, 0), END};
static const AttrField random_[] = {FIELD("seed", AK_NUMBER, AN_ONE, random.seed, REQUIRED), END};

const AttrField *gir_fields(Op op) {
    static const AttrField *const by_op[OP_COUNT] = {
        [OP_input] = input,        [OP_iota] = axis,         [OP_cast] = cast,
        [OP_permute] = perm,       [OP_slice] = slice,       [OP_pad] = pad,
        [OP_concat] = axis,        [OP_window] = window,     [OP_reduce_sum] = reduce,
        [OP_reduce_prod] = reduce, [OP_reduce_max] = reduce, [OP_reduce_min] = reduce,
        [OP_argmax] = reduce,      [OP_argmin] = reduce,     [OP_conv] = conv,
        [OP_gather] = gather,      [OP_scatter] = scatter,   [OP_cumsum] = scan,
        [OP_cumprod] = scan,       [OP_argsort] = scan,      [OP_uniform] = random_,
        [OP_proj] = proj,
    };
    return by_op[op] ? by_op[op] : none;
}

uint32_t gir_count(const Graph *g, const Node *n, const AttrField *f) {
    switch ((AttrCount)f->count) {
    case AN_RANK: return n->type.rank;
    case AN_IN0: return n->nin ? graph_type(g, n->in[0])->rank : 0;
    case AN_WINDOW: return n->attr.window.n;
    case AN_CONV: return n->attr.conv.n;
    default: return 1;
    }
}

/* Little-endian hosts; lists of bytes are perm (unsigned) and src (signed), both below 128. */
int64_t gir_get(const Attr *a, const AttrField *f, uint32_t i) {
    int64_t v = 0;
    memcpy(&v, (const char *)a + f->offset + (size_t)i * f->size, f->size);
    unsigned drop = 64U - 8U * f->size;
    return (int64_t)((uint64_t)v << drop) >> drop;
}

void gir_set(Attr *a, const AttrField *f, uint32_t i, int64_t v) {
    memcpy((char *)a + f->offset + (size_t)i * f->size, &v, f->size);
}
