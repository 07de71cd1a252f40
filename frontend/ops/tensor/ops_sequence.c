/* Sequences and optionals as compile-time lists: their lengths and positions must be constants, so
 * nothing of them remains in the graph. What a loop appends to is stacked instead. */
#include "frontend/import/axes.h"
#include "frontend/import/formula.h"
#include "frontend/import/import_impl.h"
#include <string.h>

enum { LIST_COPY = 64 }; /* elements copied that cost as much as a node */

static bool list_in(Lower *l, uint32_t i, Item *out) {
    *out = lower_in_item(l, i);
    if (out->kind == ITEM_STACK || out->open)
        return lower_unsupported(l, "stack or concatenate it, or ask for its length or an element",
                                 "%s of a sequence that a loop builds", lower_op_name(l));
    return out->kind == ITEM_LIST || lower_error(l, D_DTYPE, "input %u must be a sequence", i);
}

static bool list_out(Lower *l, const Value *v, uint32_t n, DType t) {
    lower_out_item(l, 0, (Item){.kind = ITEM_LIST, .dtype = t, .n = n, .list = v});
    return true;
}

/* A constant position in [-n, n) or, for insertion, [-n, n]. */
static bool position(Lower *l, uint32_t in, uint32_t n, bool insert, uint32_t *out) {
    int64_t p;
    uint32_t count;
    if (!lower_const_ints(l, in, NULL, &p, 1, &count)) return false;
    if (count != 1) return lower_error(l, D_SHAPE, "the position must be one number");
    if (p < -(int64_t)n || p >= (int64_t)n + insert)
        return lower_error(l, D_SHAPE, "position %lld is outside a sequence of %u", (long long)p,
                           n);
    *out = (uint32_t)(p < 0 ? p + n : p);
    return true;
}

static bool lower_sequence_construct(Lower *l) {
    const uint32_t n = lower_nin(l);
    Value *v = ARENA_ARRAY(lower_graph(l)->arena, Value, n);
    for (uint32_t i = 0; i < n; i++)
        if (!(v[i] = lower_need(l, i)) || !lower_same_type(l, i, 0)) return false;
    return list_out(l, v, n, lower_type(l, 0)->dtype);
}

static bool lower_sequence_empty(Lower *l) {
    DType t = DT_f32;
    if (lower_has_attr(l, "dtype") && !lower_dtype(l, "dtype", &t)) return false;
    return list_out(l, NULL, 0, t);
}

static bool lower_sequence_at(Lower *l) {
    Item s;
    uint32_t at;
    if ((s = lower_in_item(l, 0)).kind == ITEM_STACK) {
        Graph *g = lower_graph(l);
        Value i = build_reshape(g, lower_in(l, 1), 0, NULL);
        lower_out(l, 0, build_take(g, s.v, v_wrap(g, i, graph_type(g, s.v)->dim[0]), 0));
        return true;
    }
    if (!list_in(l, 0, &s) || !position(l, 1, s.n, false, &at)) return false;
    lower_out(l, 0, s.list[at]);
    return true;
}

/* Sequences are values: one of them may be extended twice. So the first to append to the newest
 * length of a list takes the room behind it, and any other insertion copies. */
static bool inserted(Lower *l, Item *s, uint32_t at, Value x) {
    ItemRoom *room = s->room;
    if (!room || at < s->n || room->used != s->n || room->cap == s->n) {
        if (!import_spend(l->scope, 1 + s->n / LIST_COPY)) return false;
        room = ARENA_NEW(l->im->arena, ItemRoom);
        room->cap = at < s->n ? s->n + 1 : 2 * s->n + 1;
        room->v = ARENA_ARRAY(l->im->arena, Value, room->cap);
        if (at) memcpy(room->v, s->list, at * sizeof *room->v);
        if (at < s->n) memcpy(room->v + at + 1, s->list + at, (s->n - at) * sizeof *room->v);
    }
    room->v[at] = x;
    room->used = s->n + 1;
    *s = (Item){.kind = ITEM_LIST, .n = s->n + 1, .list = room->v, .room = room};
    return true;
}

static bool lower_sequence_insert(Lower *l) {
    Item s = lower_in_item(l, 0);
    const bool open = s.open && !s.n && !lower_has_in(l, 2);
    if (!open && !list_in(l, 0, &s)) return false;
    uint32_t at = s.n;
    if (lower_has_in(l, 2) && !position(l, 2, s.n, true, &at)) return false;
    const Value x = lower_in(l, 1);
    if (!x) return false;
    if (s.n && lower_type(l, 1)->dtype != s.dtype)
        return lower_error(l, D_DTYPE, "a tensor of %s in a sequence of %s",
                           dtype_name(lower_type(l, 1)->dtype), dtype_name(s.dtype));
    if (!inserted(l, &s, at, x)) return false;
    s.dtype = lower_type(l, 1)->dtype;
    s.open = open;
    lower_out_item(l, 0, s);
    return true;
}

static bool lower_sequence_erase(Lower *l) {
    Item s;
    if (!list_in(l, 0, &s)) return false;
    if (!s.n) return lower_error(l, D_SHAPE, "the sequence is empty");
    uint32_t at = s.n - 1;
    if (lower_has_in(l, 1) && !position(l, 1, s.n, false, &at)) return false;
    if (!import_spend(l->scope, 1 + s.n / LIST_COPY)) return false;
    Value *v = ARENA_ARRAY(lower_graph(l)->arena, Value, s.n);
    for (uint32_t i = 0; i + 1 < s.n; i++) v[i] = s.list[i < at ? i : i + 1];
    return list_out(l, v, s.n - 1, s.dtype);
}

static bool lower_sequence_length(Lower *l) {
    Graph *g = lower_graph(l);
    Item s = lower_in_item(l, 0);
    if (s.kind == ITEM_STACK) {
        lower_out(l, 0, build_expr(g, DT_i64, graph_type(g, s.v)->dim[0]));
        return true;
    }
    if (!list_in(l, 0, &s)) return false;
    lower_out(l, 0, build_scalar_i(g, DT_i64, s.n));
    return true;
}

#define MAX_PARTS 4096

/* Sizes of the parts along an axis: ones, chunks of a scalar, or as listed. */
static bool part_sizes(Lower *l, int64_t size, int64_t *part, uint32_t *n) {
    *n = 0;
    if (lower_has_in(l, 1) && lower_type(l, 1)->rank == 1)
        return lower_const_ints(l, 1, NULL, part, MAX_PARTS, n);
    int64_t chunk = 1;
    uint32_t count = 1;
    if (lower_has_in(l, 1) && !lower_const_ints(l, 1, NULL, &chunk, 1, &count)) return false;
    if (chunk <= 0 || size / chunk + (size % chunk != 0) > MAX_PARTS)
        return lower_error(l, D_LIMIT, "parts of %lld are too small", (long long)chunk);
    for (int64_t left = size; left > 0; left -= part[*n - 1])
        part[(*n)++] = left < chunk ? left : chunk;
    return true;
}

static bool lower_split_to_sequence(Lower *l) {
    Graph *g = lower_graph(l);
    const Type t = *lower_type(l, 0);
    const int axis = lower_axis(l, lower_i(l, "axis"), t.rank);
    int64_t size, *part = ARENA_ARRAY(g->arena, int64_t, MAX_PARTS), at = 0;
    uint32_t n;
    if (axis < 0) return false;
    if (!expr_is_const(g->exprs, t.dim[axis], &size))
        return lower_unsupported(l, "fix the size with --dim", "the split axis has no fixed size");
    if (!part_sizes(l, size, part, &n)) return false;
    for (uint32_t i = 0; i < n; at += part[i++])
        if (part[i] < 0 || part[i] > size - at)
            return lower_error(l, D_SHAPE, "part %u, of %lld, does not fit an axis of %lld", i,
                               (long long)part[i], (long long)size);
    if (at != size)
        return lower_error(l, D_SHAPE, "the parts sum to %lld, not %lld", (long long)at,
                           (long long)size);
    at = 0;
    Value *v = ARENA_ARRAY(g->arena, Value, n);
    for (uint32_t i = 0; i < n; i++) {
        v[i] = build_slice_axis(g, lower_in(l, 0), axis, expr_const(g->exprs, at),
                                expr_const(g->exprs, part[i]), 1);
        at += part[i];
        if (!lower_has_in(l, 1) && !lower_i(l, "keepdims")) v[i] = build_squeeze(g, v[i], axis);
    }
    return list_out(l, v, n, t.dtype);
}

/* The body once per position; inputs that are no sequence are passed as they are. */
static bool lower_sequence_map(Lower *l) {
    Arena *a = lower_graph(l)->arena;
    const uint32_t nin = lower_nin(l), nout = lower_nout(l);
    Item s, *in = ARENA_ARRAY(a, Item, nin), *out = ARENA_ARRAY(a, Item, nout);
    Value **list = ARENA_ARRAY(a, Value *, nout);
    if (!list_in(l, 0, &s)) return false;
    for (uint32_t k = 0; k < nout; k++) list[k] = ARENA_ARRAY(a, Value, s.n);
    for (uint32_t i = 0; i < s.n; i++) {
        for (uint32_t k = 0; k < nin; k++) {
            in[k] = lower_in_item(l, k);
            if (in[k].kind != ITEM_LIST) continue;
            if (in[k].n != s.n) return lower_error(l, D_SHAPE, "the sequences differ in length");
            in[k] = (Item){.kind = ITEM_TENSOR, .v = in[k].list[i]};
        }
        if (!lower_inline_items(l, "body", in, nin, out, nout)) return false;
        for (uint32_t k = 0; k < nout; k++) {
            if (out[k].kind != ITEM_TENSOR)
                return lower_unsupported(l, NULL, "a body that returns a sequence");
            list[k][i] = out[k].v;
        }
    }
    for (uint32_t k = 0; k < nout; k++) {
        const DType t = s.n ? graph_type(lower_graph(l), list[k][0])->dtype : s.dtype;
        lower_out_item(l, k, (Item){.kind = ITEM_LIST, .dtype = t, .n = s.n, .list = list[k]});
    }
    return true;
}

/* [n, ..] with axis 0 moved to its place and, unless it is a new axis there, merged with it. */
static bool concat_stack(Lower *l, Value v, bool stack) {
    Graph *g = lower_graph(l);
    Type t;
    const int axis = lower_axis(l, lower_i(l, "axis"), v_rank(g, v) - !stack);
    if (axis < 0) return false;
    v = v_move_axis(g, v, 0, axis);
    t = *graph_type(g, v);
    if (!stack) {
        t.dim[axis] = expr_mul(g->exprs, t.dim[axis], t.dim[axis + 1]);
        t.rank--;
        for (int i = axis + 1; i < t.rank; i++) t.dim[i] = t.dim[i + 1];
    }
    lower_out(l, 0, build_reshape(g, v, t.rank, t.dim));
    return true;
}

static bool lower_concat_from_sequence(Lower *l) {
    Graph *g = lower_graph(l);
    Item s = lower_in_item(l, 0);
    if (s.kind == ITEM_STACK) return concat_stack(l, s.v, lower_i(l, "new_axis") != 0);
    if (!list_in(l, 0, &s)) return false;
    if (!s.n) return lower_error(l, D_SHAPE, "the sequence is empty");
    const bool stack = lower_i(l, "new_axis") != 0;
    const int rank = graph_type(g, s.list[0])->rank + stack;
    const int axis = lower_axis(l, lower_i(l, "axis"), rank);
    if (axis < 0) return false;
    Value *v = arena_copy(g->arena, s.list, s.n * sizeof *s.list);
    for (uint32_t i = 0; stack && i < s.n; i++) v[i] = build_unsqueeze(g, v[i], axis);
    lower_out(l, 0, build_concat(g, v, s.n, axis));
    return true;
}

static bool lower_optional(Lower *l) {
    lower_out_item(l, 0, lower_in_item(l, 0));
    return true;
}

static bool lower_optional_has(Lower *l) {
    const bool has = lower_in_item(l, 0).kind != ITEM_ABSENT;
    lower_out(l, 0, build_scalar_i(lower_graph(l), DT_bool, has));
    return true;
}

static bool lower_optional_get(Lower *l) {
    Item x = lower_in_item(l, 0);
    if (x.kind == ITEM_ABSENT) return lower_error(l, D_SHAPE, "the optional is empty");
    lower_out_item(l, 0, x);
    return true;
}

static const char *const empty_attrs[] = {"dtype:i", NULL};
static const char *const split_attrs[] = {"axis:i=0", "keepdims:i=1", NULL};
static const char *const concat_attrs[] = {"axis:i!", "new_axis:i=0", NULL};
static const char *const map_attrs[] = {"body:g!", NULL};
static const char *const optional_attrs[] = {"type:p", NULL};

const OnnxOp ops_sequence[] = {
    {"", "SequenceConstruct", 11, 0, 1, -1, 1, 1, NULL, lower_sequence_construct},
    {"", "SequenceEmpty", 11, 0, 0, 0, 1, 1, empty_attrs, lower_sequence_empty},
    {"", "SequenceAt", 11, 0, 2, 2, 1, 1, NULL, lower_sequence_at},
    {"", "SequenceInsert", 11, 0, 2, 3, 1, 1, NULL, lower_sequence_insert},
    {"", "SequenceErase", 11, 0, 1, 2, 1, 1, NULL, lower_sequence_erase},
    {"", "SequenceLength", 11, 0, 1, 1, 1, 1, NULL, lower_sequence_length},
    {"", "SequenceMap", 17, 0, 1, -1, 1, -1, map_attrs, lower_sequence_map},
    {"", "SplitToSequence", 11, 0, 1, 2, 1, 1, split_attrs, lower_split_to_sequence},
    {"", "ConcatFromSequence", 11, 0, 1, 1, 1, 1, concat_attrs, lower_concat_from_sequence},
    {"", "Optional", 15, 0, 0, 1, 1, 1, optional_attrs, lower_optional},
    {"", "OptionalHasElement", 15, 0, 0, 1, 1, 1, NULL, lower_optional_has},
    {"", "OptionalGetElement", 15, 0, 1, 1, 1, 1, NULL, lower_optional_get},
    {0},
};
