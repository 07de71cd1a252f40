/* Inline or store? All demands on the value are known here; the decision is made once. */
#include "fusion/analyse/facts.h"
#include "fusion/group/decide.h"

#define MAX_DEMANDERS   64
#define MAX_INLINED     400 /* values in one group, beside views */
#define MAX_MASKS       32  /* conditions under which it reads: each stands in those inside of it */
#define MAX_INDEX       200 /* parts of an index: each view of a view may double it */
#define MAX_PARTS       8   /* operands of a concatenation that is inlined */
#define MAX_MASK_FLOPS  4   /* of a mask that is computed with the scores, */
#define MAX_MASK_DEPTH  16  /* and ops one behind the other */
#define MIN_SPREAD      128 /* elements of a mask for each that is loaded */
#define MIN_LOOKUPS     4   /* one behind the other, that are a walk */
#define MAX_ROW_BYTES   32768 /* of a row that contractions make themselves */
#define MIN_COLUMNS     32    /* that threads read side by side, */
#define MIN_FOLDED      64    /* of so many elements each */
#define HEAD_UNIT       8     /* numbers of 16 bits, in 16 bytes */
#define LONG_ROW        32    /* of them: shorter ones are not worth a copy */
#define MAX_WIDEN_FLOPS 4     /* that make a number of a byte where it is read */
#define MIN_TURNED      65536 /* numbers of an operand that are worth a kernel to turn them */

static bool is_half(DType t) {
    return t == DT_bf16 || t == DT_f16;
}

/* Most arithmetic that may be inlined for this demand, in a value of type t. */
static double use_limit(const Fuse *f, const Demand *d, DType t) {
    const Machine *m = f->m;
    bool half = fuse_is_fetched(f, t);
    const double limit[] = {[USE_point] = 1e9,
                            [USE_data] = m->inline_flops.data,
                            [USE_query] = m->inline_flops.query,
                            [USE_key] = m->inline_flops.key,
                            [USE_value] = m->inline_flops.value,
                            [USE_a] = half ? m->inline_flops.half_a : m->inline_flops.a,
                            [USE_b] = half ? m->inline_flops.half_b : m->inline_flops.b};
    return limit[d->use];
}

/* Of the left operand of contractions in blocks, which read integers and scales. */
static bool is_of_blocks(const Fuse *f, Value v) {
    const VState *s = &f->v[v];
    for (uint32_t i = 0; i < s->demands.n; i++) {
        const Group *g = f->groups.v[s->demands.v[i].group];
        const Value dot = g->anchor ? g->anchor : g->want;
        if (s->demands.v[i].use != USE_a || !dot || !fuse_makes_blocks(f, v, dot)) return false;
    }
    return s->demands.n > 0;
}

/* Elements of a head, as the demand reads them for attention on matrix units; 0: not for that. */
static int64_t head_read(const Fuse *f, const Demand *d, uint32_t *sym) {
    const Group *g = f->groups.v[d->group];
    int64_t n = 0;
    if (d->use < USE_query || d->use > USE_value || !g->attn || g->attn->gradient) return 0;
    *sym = d->use == USE_value ? g->attn->nsym : g->attn->dsym[0];
    for (uint32_t a = 0; a < g->naxes; a++)
        if (g->axes[a].sym == *sym && !expr_is_const(f->p, g->axes[a].extent, &n)) return 0;
    return n;
}

/* Of attention on matrix units whose heads are no whole vectors: it fetches queries, keys and
 * values that lie in rows of their own, and computes none. */
static bool is_odd_head(const Fuse *f, Value v, const Demand *d, uint32_t *sym) {
    const int64_t n = head_read(f, d, sym);
    return n % HEAD_UNIT && n >= HEAD_UNIT && n <= f->m->half_attention &&
           is_half(graph_type(f->g, v)->dtype);
}

/* Rows of an odd head that lie beside each other in what it is a view of. */
static bool is_cut_head(const Fuse *f, Value v) {
    const VState *s = &f->v[v];
    for (uint32_t i = 0; i < s->demands.n; i++) {
        uint32_t sym;
        const Demand *d = &s->demands.v[i];
        if (is_odd_head(f, v, d, &sym) &&
            !idx_try_rows(f, f->groups.v[d->group], v, d->idx, sym, HEAD_UNIT))
            return true;
    }
    return false;
}

static bool uses_allow(const Fuse *f, Value v, double flops) {
    const VState *s = &f->v[v];
    DType t = graph_type(f->g, v)->dtype;
    for (uint32_t i = 0; i < s->demands.n; i++) {
        uint32_t sym;
        if (flops > use_limit(f, &s->demands.v[i], t)) return false;
        if (flops > 0 && is_odd_head(f, v, &s->demands.v[i], &sym)) return false;
    }
    return true;
}

static uint32_t index_size(const Fuse *f, const Group *g, IdxId idx) {
    uint32_t size = 0;
    const Idx *x = idx ? idx_get(g, idx) : NULL;
    for (uint32_t i = 0; x && i < x->rank && size <= MAX_INDEX; i++)
        size += expr_size(f->p, x->dim[i]);
    return size;
}

/* What v's readers compute already leaves room for v: values, conditions, and where v is read. */
static bool fits(const Fuse *f, Value v) {
    const VState *s = &f->v[v];
    bool view = op_info[graph_node(f->g, v)->op].cls == OPC_VIEW;
    for (uint32_t i = 0; i < s->demands.n; i++) {
        const Group *g = f->groups.v[s->demands.v[i].group];
        if ((!view && g->nvalues > MAX_INLINED) || !group_has_room(f, g, v)) return false;
        if (g->nmasks > MAX_MASKS || index_size(f, g, s->demands.v[i].idx) > MAX_INDEX)
            return false;
    }
    return true;
}

/* A cast between float types, to more bytes or to less. */
static bool casts_float(const Fuse *f, Value v, bool wider) {
    const Node *n = graph_node(f->g, v);
    if (n->op != OP_cast) return false;
    DType to = n->type.dtype, from = graph_type(f->g, n->in[0])->dtype;
    if (!dtype_is_float(to) || !dtype_is_float(from)) return false;
    return wider ? dtype_bytes(to) > dtype_bytes(from) : dtype_bytes(to) < dtype_bytes(from);
}

static bool is_view(Op op) {
    return op == OP_reshape || op == OP_permute || op == OP_expand || op == OP_slice;
}

static bool is_scalar(const Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    while (is_view((Op)n->op)) n = graph_node(f->g, v = n->in[0]);
    return n->op == OP_const && fuse_numel(f, v) == 1;
}

/* A 16-bit value times constants, rounded again or not; or one of f32 that stays f32, where matrix
 * units multiply it in parts. */
static bool is_scaled(const Fuse *f, Value v) {
    bool scaled = false, f32 = f->m->digits && graph_type(f->g, v)->dtype == DT_f32;
    for (;;) {
        const Node *n = graph_node(f->g, v);
        if (scaled && (is_half(n->type.dtype) || (f32 && n->type.dtype == DT_f32))) return true;
        bool right = n->op == OP_mul && is_scalar(f, n->in[0]);
        if (n->op == OP_mul && right != is_scalar(f, n->in[1]))
            scaled = true;
        else if (!is_view((Op)n->op) && !casts_float(f, v, true) && !casts_float(f, v, false))
            return false;
        v = n->in[right];
    }
}

/* Queries or keys times a constant: a score may be multiplied by it as well. */
static bool scales_scores(const Fuse *f, Value v) {
    for (uint32_t i = 0; i < f->v[v].demands.n; i++) {
        Use u = f->v[v].demands.v[i].use;
        if (u != USE_query && u != USE_key) return false;
    }
    return op_info[graph_node(f->g, v)->op].cls == OPC_MAP && is_scaled(f, v);
}

/* --- What matrix units fetch -------------------------------------------------------------- */

/* They fetch v, as the left operand of the group's contraction. */
static bool is_fetched(const Fuse *f, Value v, const Demand *d) {
    const Group *g = f->groups.v[d->group];
    if (d->use != USE_a || g->attn || !g->anchor || fuse_is_depthwise(f, g->anchor)) return false;
    return fuse_is_fetched(f, graph_type(f->g, v)->dtype) && f->m->inline_flops.half_a <= 0;
}

/* It has to be a matrix where it lies, or the windows of a convolution. */
static bool is_no_matrix(const Fuse *f, Value v, const Demand *d) {
    const Group *g = f->groups.v[d->group];
    if (!is_fetched(f, v, d)) return false;
    bool conv = graph_node(f->g, g->anchor)->op == OP_conv;
    return conv ? !idx_try_window(f, g, v, d->idx) : !idx_try_fetch(f, g, v, d->idx);
}

/* So does what another contraction stores: a batch of results may have to be put together again.
 * Attention's are in their place as they are (stores_permuted, order_of_readers): kept for
 * gradients, too, they would be stored twice. */
static bool stores_no_matrix(const Fuse *f, Value v) {
    const VState *s = &f->v[v];
    if (fuse_turns_products(f, v)) return true;
    if (graph_node(f->g, v)->op != OP_reshape) return false;
    const bool dot = !f->v[f->fact[v].epi].attn;
    for (uint32_t i = 0; i < s->demands.n; i++) {
        const Demand *d = &s->demands.v[i];
        const Group *g = f->groups.v[d->group];
        if (is_no_matrix(f, v, d)) return true;
        if (dot && is_fetched(f, v, d) && graph_node(f->g, g->anchor)->op == OP_dot &&
            idx_try_apart(f, g, v, d->idx))
            return true;
    }
    return false;
}

/* --- Epilogues ---------------------------------------------------------------------------- */

/* The one index at which the one group demands v, or 0. */
static IdxId single_demand(const Fuse *f, Value v, Group **g) {
    const VState *s = &f->v[v];
    const Demand *d = s->demands.n == 1 ? &s->demands.v[0] : NULL;
    if (!d || d->reads != READ_plain || d->use != USE_point) return 0;
    *g = f->groups.v[s->demands.v[0].group];
    return s->demands.v[0].idx;
}

/* v belongs to the epilogue of the group that demands it. */
static bool in_epilogue(const Fuse *f, Value v) {
    Group *g;
    IdxId idx = single_demand(f, v, &g);
    Value dot = f->fact[v].epi;
    if (!idx || !g->want || g->prepare != f->fact[v].const_only) return false;
    if (!group_wants(g, dot) && !fuse_siblings(f, g->want, dot)) return false;
    const Idx native = fuse_try_native(f, g, v, dot);
    return idx_is(g, &native, idx);
}

/* Attention's result is stored in the order in which the contraction behind it wants to read. */
static bool stores_permuted(const Fuse *f, Value v) {
    const VState *s = &f->v[v];
    const Fact *fact = &f->fact[v];
    bool read_by_dot = false, permuted = false;
    if (!f->v[fact->epi].attn || fuse_is_raw(f, fact->epi) || !fuse_may_follow(f, v, fact->epi))
        return false;
    for (uint32_t i = 0; i < s->demands.n; i++)
        read_by_dot = read_by_dot || s->demands.v[i].use >= USE_a;
    if (!read_by_dot) return false;
    for (Value w = v; op_info[graph_node(f->g, w)->op].cls == OPC_VIEW;) {
        permuted = permuted || graph_node(f->g, w)->op == OP_permute;
        w = graph_node(f->g, w)->in[0];
        if (f->fact[w].nusers > 1 || f->v[w].must) return false;
    }
    return permuted;
}

/* Its contraction cannot store v in rows: its columns were split and permuted on the way. */
static bool behind_permute(const Fuse *f, Value v) {
    bool permuted = false, reshaped = false;
    if (f->v[f->fact[v].epi].attn) return false;
    for (; f->fact[v].epi_from; v = f->fact[v].epi_from) {
        permuted = permuted || graph_node(f->g, v)->op == OP_permute;
        reshaped = reshaped || graph_node(f->g, v)->op == OP_reshape;
    }
    return permuted && reshaped;
}

/* Groups outside the epilogue are known to read `from`; *same: one of them is v's reader. */
static bool read_elsewhere(const Fuse *f, Value v, Value from, bool *same) {
    bool found = false;
    *same = false;
    for (uint32_t i = 0; i < f->v[from].demands.n; i++) {
        const Demand *d = &f->v[from].demands.v[i];
        if (group_wants(f->groups.v[d->group], f->fact[v].epi)) continue;
        found = true;
        *same = *same || d->group == f->v[v].demands.v[0].group;
    }
    return found;
}

/* Bytes that move so that v's readers have it: `from`, in front of it in the epilogue, is stored or
 * was anyway, and each reader makes v of it; or v is. Arithmetic counts as the bytes that move
 * meanwhile. */
static double bytes_moved(const Fuse *f, Value v, Value from, bool there, uint32_t ngroups) {
    const Fact *fact = &f->fact[v], *start = &f->fact[from];
    double others = fact->leaf_bytes - start->leaf_bytes, own = fact->flops - start->flops;
    double bytes = ((there ? 0 : 1) + ngroups) * fuse_bytes(f, from);
    if (others > 0) bytes += (ngroups - 1) * others;
    return bytes +
           (own > 0 ? own : 0) * ngroups * fuse_numel(f, v) / f->m->flops_per_s * f->m->bytes_per_s;
}

/* Other results than v are made of `from` outside of the contraction's group, it seems. */
static bool is_shared(const Fuse *f, Value v, Value from) {
    bool same;
    return f->fact[from].nusers > 1 || read_elsewhere(f, v, from, &same);
}

/* Of a long epilogue's result and what it is made of, the latter takes less room: its type is
 * narrower, or it is the same for several results. Readers that walk it as it lies compute the
 * rest. */
static bool stores_less_before(const Fuse *f, Value v, uint32_t ngroups) {
    const VState *s = &f->v[v];
    bool there = false;
    if (f->v[f->fact[v].epi].attn) return false;
    for (uint32_t i = 0; i < s->demands.n; i++) {
        const Group *g = f->groups.v[s->demands.v[i].group];
        if (s->demands.v[i].use != USE_point || g->kind != GROUP_map || g->want) return false;
    }
    double stored = bytes_moved(f, v, v, false, ngroups);
    for (Value from = f->fact[v].epi_from; from; from = f->fact[from].epi_from) {
        if (fuse_numel(f, from) != fuse_numel(f, v)) return false;
        there = there || is_shared(f, v, from);
        if (is_view((Op)graph_node(f->g, from)->op) || casts_float(f, from, true)) continue;
        if (bytes_moved(f, v, from, there, ngroups) < stored) return true;
        there = false;
    }
    return false;
}

/* Bytes, as numbers that each reader takes once: what they are dequantised to takes four times the
 * room. */
static bool widens_bytes(const Fuse *f, Value v) {
    for (uint32_t i = 0; i < f->v[v].demands.n; i++)
        if (f->v[v].demands.v[i].use != USE_point) return false;
    for (Value from = f->fact[v].epi_from; from; from = f->fact[from].epi_from) {
        if (fuse_numel(f, from) != fuse_numel(f, v)) return false;
        if (f->fact[v].flops - f->fact[from].flops > MAX_WIDEN_FLOPS) return false;
        DType t = graph_node(f->g, from)->type.dtype;
        if (t == DT_u8 || t == DT_i8) return true;
    }
    return false;
}

static bool inlines_map(const Fuse *f, Value v, uint32_t ngroups, FusionWhy *why);

static bool inlines_epilogue(const Fuse *f, Value v, uint32_t ngroups, FusionWhy *why) {
    const Node *n = graph_node(f->g, v);
    if (in_epilogue(f, v)) return true;
    if (op_info[n->op].cls == OPC_VIEW) return !stores_permuted(f, v) && !stores_no_matrix(f, v);
    if (behind_permute(f, v)) return inlines_map(f, v, ngroups, why);
    /* What is little more than another value that is stored anyway need not be stored, too. */
    if (stores_less_before(f, v, ngroups) || widens_bytes(f, v)) return true;
    Value from = f->fact[v].epi_from;
    bool same_group;
    if (!read_elsewhere(f, v, from, &same_group)) {
        return n->op == OP_cast && f->fact[from].nusers > 1 && uses_allow(f, v, 0.5);
    }
    double own = f->fact[v].flops - (fuse_is_boundary(f, from) ? 0 : f->fact[from].flops);
    return uses_allow(f, v, own < 0 ? 0 : own) && (own <= 1 || (same_group && ngroups == 1));
}

/* --- Classes ------------------------------------------------------------------------------ */

/* Constant weights of a convolution whose taps are some of those that the model has, each so many
 * apart: what lies in memory has all of them side by side. */
static bool is_cut_weight(const Fuse *f, Value v) {
    const VState *s = &f->v[v];
    if (graph_node(f->g, v)->op != OP_slice || !f->fact[v].const_only) return false;
    for (uint32_t i = 0; i < s->demands.n; i++) {
        const Demand *d = &s->demands.v[i];
        const Group *g = f->groups.v[d->group];
        if (d->use != USE_b || !g->k_idx || !g->anchor ||
            graph_node(f->g, g->anchor)->op != OP_conv)
            continue;
        if (fuse_is_depthwise(f, g->anchor) || !is_half(graph_type(f->g, v)->dtype)) continue;
        if (f->m->inline_flops.half_b <= 0 && idx_try_taps_last(f, g, v, d->idx)) return true;
    }
    return false;
}

/* Numbers of 16 bits that matrix units fetch for a product. */
static bool is_product_operand(const Fuse *f, Value v, const Demand *d) {
    const Group *g = f->groups.v[d->group];
    const Type *t = graph_type(f->g, v);
    if ((d->use != USE_a && d->use != USE_b) || g->kind == GROUP_pack || g->attn || !g->anchor)
        return false;
    return graph_node(f->g, g->anchor)->op == OP_dot && is_half(t->dtype) && t->rank >= 2 &&
           f->m->inline_flops.half_a <= 0;
}

/* Merged rows that begin anywhere, of what matrix units fetch: stored as they are, they begin at 16
 * bytes (layout.c). */
static bool is_ragged(const Fuse *f, Value v, const Demand *d) {
    const Type *t = graph_type(f->g, v), *from = graph_type(f->g, graph_node(f->g, v)->in[0]);
    if (!is_product_operand(f, v, d)) return false;
    const Expr row = t->dim[t->rank - 1];
    return from->rank && from->dim[from->rank - 1] != row && expr_divisor(f->p, row) % HEAD_UNIT &&
           fuse_hint(f, row) >= LONG_ROW;
}

/* Of rows that begin anywhere in longer ones, as half of the channels may: likewise. */
static bool is_cut_row(const Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    if (n->op != OP_slice || f->fact[v].const_only) return false;
    for (uint32_t i = 0; i < f->v[v].demands.n; i++) {
        const Demand *d = &f->v[v].demands.v[i];
        const Group *g = f->groups.v[d->group];
        if (!is_product_operand(f, v, d)) continue;
        for (uint32_t k = 0; k < n->type.rank; k++) {
            const Expr start = n->attr.slice.start[k];
            if (expr_divisor(f->p, start) % HEAD_UNIT && fuse_hint(f, n->type.dim[k]) >= LONG_ROW &&
                expr_axes_used(f, g, idx_get(g, d->idx)->dim[k]) & group_axes(g, AX_RED))
                return true;
        }
    }
    return false;
}

/* Weights of a product whose rows, as the model has them, begin anywhere: likewise, once. */
static bool is_ragged_weight(const Fuse *f, Value v) {
    const Type *t = graph_type(f->g, v);
    if (!f->fact[v].const_only || t->rank < 2 || fuse_hint(f, t->dim[t->rank - 2]) < LONG_ROW)
        return false;
    Value leaf = v;
    while (is_view((Op)graph_node(f->g, leaf)->op)) leaf = graph_node(f->g, leaf)->in[0];
    const Type *whole = graph_type(f->g, leaf);
    uint32_t last = whole->rank;
    while (last && expr_is_value(f->p, whole->dim[last - 1], 1)) last--;
    if (graph_node(f->g, leaf)->op != OP_const || !last ||
        expr_divisor(f->p, whole->dim[last - 1]) % HEAD_UNIT == 0)
        return false;
    for (uint32_t i = 0; i < f->v[v].demands.n; i++)
        if (is_product_operand(f, v, &f->v[v].demands.v[i])) return true;
    return false;
}

/* What matrix units fetch for products is a matrix in memory: what is padded, they find nowhere. A
 * convolution's windows are fetched with zeros around them. */
static bool is_padded_operand(const Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    if (n->op != OP_pad || !fuse_is_fetched(f, n->type.dtype) || f->m->inline_flops.half_a > 0)
        return false;
    for (uint32_t i = 0; i < f->v[v].demands.n; i++) {
        const Demand *d = &f->v[v].demands.v[i];
        const Group *g = f->groups.v[d->group];
        if ((d->use == USE_a || d->use == USE_b) && g->kind != GROUP_pack && !g->attn &&
            g->anchor && graph_node(f->g, g->anchor)->op == OP_dot)
            return true;
    }
    return false;
}

/* A contraction's operand has to be affine in what it walks. A concatenation that it reads is
 * stored: what reshapes it lies in memory as it does. */
static bool awkward_operand(const Fuse *f, Value v) {
    const VState *s = &f->v[v];
    const Node *n = graph_node(f->g, v);
    if (n->op != OP_reshape) return false;
    if (graph_node(f->g, n->in[0])->op == OP_concat) return false;
    for (uint32_t i = 0; i < s->demands.n; i++) {
        const Group *g = f->groups.v[s->demands.v[i].group];
        if (s->demands.v[i].use < USE_query || g->kind == GROUP_pack) continue;
        if (!idx_try_walk(f, g, v, s->demands.v[i].idx)) return true;
        if (is_no_matrix(f, v, &s->demands.v[i]) || is_ragged(f, v, &s->demands.v[i])) return true;
    }
    return false;
}

/* Where a leaf's last dimension of more than one element is in its permutation v; the rank:
 * nowhere */
static uint32_t last_of_leaf(const Fuse *f, const Node *permute) {
    uint32_t at = permute->type.rank;
    for (uint32_t d = 0, last = 0; d < permute->type.rank; d++) {
        if (expr_is_value(f->p, permute->type.dim[d], 1) || permute->attr.perm.axis[d] < last)
            continue;
        last = permute->attr.perm.axis[d];
        at = d;
    }
    return at;
}

/* Matrix units fetch a convolution's operands from memory: channels next to each other, and of its
 * weights channels or columns. What the model brings in another order is stored anew, and so is
 * what was padded to more channels; that of bytes also where vector units take them in fours. */
static bool scattered_operand(const Fuse *f, Value v) {
    const VState *s = &f->v[v];
    const Node *n = graph_node(f->g, v);
    DType t = n->type.dtype;
    uint32_t rank = n->type.rank, inner = 0;
    const bool f32 = t == DT_f32 && f->m->digits;
    const bool quads = t == DT_u8 && f->m->quads && n->op == OP_pad; /* rows in fours */
    if (!f32 && !quads && (!is_half(t) || f->m->inline_flops.half_a > 0)) return false;
    if (n->op == OP_permute && op_is_leaf((Op)graph_node(f->g, n->in[0])->op))
        inner = last_of_leaf(f, n);
    else if (n->op != OP_pad)
        return false;
    for (uint32_t i = 0; i < s->demands.n; i++) {
        const Demand *d = &s->demands.v[i];
        const Group *g = f->groups.v[d->group];
        if (!g->anchor || graph_node(f->g, g->anchor)->op != OP_conv) continue;
        uint32_t behind = d->use == USE_b ? 2 : 1; /* dimensions that may be the last in memory */
        bool more = n->op == OP_pad && !expr_is_value(f->p, n->attr.pad.hi[rank - behind], 0);
        if (f32 && !fuse_fetches_f32(f, g->anchor)) continue;
        if (f32 && d->use == USE_b && n->op == OP_permute && inner + behind != rank) return true;
        if (d->use >= USE_a && (more || (n->op == OP_permute && inner + behind < rank)))
            return true;
    }
    return false;
}

/* All of its parts are rows that contractions' kernels store, for nobody else: they may as well do
 * so side by side. */
static bool joins_results(const Fuse *f, Value concat) {
    const Node *n = graph_node(f->g, concat);
    if (n->attr.axis.axis + 1 == n->type.rank || f->m->inline_flops.half_a > 0) return false;
    for (uint32_t i = 0; i < n->nin; i++) {
        const Fact *part = &f->fact[n->in[i]];
        const bool joined = graph_node(f->g, n->in[i])->op == OP_concat;
        if (part->nusers > 1 || !(joined ? joins_results(f, n->in[i]) : part->epi)) return false;
    }
    return true;
}

static bool inlines_concat(const Fuse *f, Value v, uint32_t ngroups) {
    const Node *n = graph_node(f->g, v);
    const VState *s = &f->v[v];
    const Fact *fact = &f->fact[v];
    if (n->nin > MAX_PARTS || joins_results(f, v)) return false;
    for (uint32_t i = 0; i < s->demands.n; i++) {
        Use u = s->demands.v[i].use;
        if (u == USE_data || u == USE_a || u == USE_value) return false;
        if (u == USE_key && use_limit(f, &s->demands.v[i], n->type.dtype) <= 0) return false;
        if (u == USE_b && f->groups.v[s->demands.v[i].group]->kind != GROUP_pack) return false;
    }
    return uses_allow(f, v, fact->flops) && fuse_recompute_pays(f, v, ngroups);
}

/* Of a norm whose row is the only one of the contractions that multiply it: their blocks have that
 * sooner than a kernel in front of them would have ended. */
static bool makes_row(const Fuse *f, Value v) {
    const VState *s = &f->v[v];
    bool norm = f->fact[v].folds;
    if (fuse_bytes(f, v) > MAX_ROW_BYTES || f->fact[v].const_only) return false;
    for (uint32_t i = 0; i < s->demands.n; i++) {
        const Demand *d = &s->demands.v[i];
        const Group *g = f->groups.v[d->group];
        if (!group_streams(f, g) || d->reads != READ_plain) return false;
        if (idx_axes_used(f, g, d->idx) & group_axes(g, AX_PAR)) return false;
        norm = norm || g->rows.n;
    }
    return norm;
}

static bool folds_rows(const Fuse *f, Value v, FusionWhy *why) {
    const VState *s = &f->v[v];
    for (uint32_t i = 0; i < s->demands.n; i++) {
        const Demand *d = &s->demands.v[i];
        if (!idx_try_reduce(f, f->groups.v[d->group], v, d->idx, why)) return false;
    }
    return true;
}

/* Folds many rows into one that is as long as threads read together. */
static bool folds_columns(const Fuse *f, Value v) {
    const Node *n = graph_node(f->g, v);
    const Type *t = graph_type(f->g, n->in[0]);
    const uint32_t last = t->rank - 1u;
    return !(n->attr.reduce.axes >> last & 1) && fuse_hint(f, t->dim[last]) >= MIN_COLUMNS &&
           fuse_numel(f, n->in[0]) >= MIN_FOLDED * fuse_numel(f, v);
}

static bool inlines_reduce(const Fuse *f, Value v, uint32_t ngroups, FusionWhy *why) {
    Group *g;
    IdxId idx = single_demand(f, v, &g);
    *why = ngroups > 1 ? WHY_shared : WHY_recompute;
    if (makes_row(f, v)) return folds_rows(f, v, why);
    if (!idx || (f->fact[v].const_only && !g->prepare)) return false;
    if (f->m->registers && idx_axes_used(f, g, idx) != group_axes(g, AX_PAR) &&
        folds_columns(f, v)) {
        *why = WHY_columns;
        return false;
    }
    if (!idx_try_reduce(f, g, v, idx, why)) return false;
    *why = WHY_few_rows;
    return !fuse_folds_apart(f, g, v, idx);
}

/* Arithmetic on positions, scalars and what is small beside `points`: a number for each key. */
static bool from_positions(const Fuse *f, Value v, double points, int depth) {
    const Node *n = graph_node(f->g, v);
    if (n->op == OP_iota || (n->op == OP_const && fuse_numel(f, v) == 1)) return true;
    if (op_is_leaf((Op)n->op)) return fuse_numel(f, v) * MIN_SPREAD <= points;
    bool view = n->op == OP_reshape || n->op == OP_permute || n->op == OP_expand;
    if ((op_info[n->op].cls != OPC_MAP && !view) || depth == MAX_MASK_DEPTH) return false;
    for (uint32_t i = 0; i < n->nin; i++)
        if (!from_positions(f, n->in[i], points, depth + 1)) return false;
    return true;
}

/* A mask that attention can compute as cheaply as read: in the body it is seen which keys it leaves
 * out (body_find_causal). */
static bool masks_attention(const Fuse *f, Value v) {
    const VState *s = &f->v[v];
    const Fact *fact = &f->fact[v];
    if (fact->flops > MAX_MASK_FLOPS || !from_positions(f, v, fuse_numel(f, v), 0)) return false;
    for (uint32_t i = 0; i < s->demands.n; i++)
        if (!f->groups.v[s->demands.v[i].group]->attn) return false;
    return true;
}

/* A number per row, from reductions of it, which one of its readers can compute with its points. */
static bool belongs_to_row(const Fuse *f, Value v) {
    const VState *s = &f->v[v];
    for (uint32_t i = 0; i < s->demands.n; i++) {
        const Demand *d = &s->demands.v[i];
        if (!(d->reads & READ_plain) || d->use != USE_point) continue;
        if (fuse_row_at_hand(f, f->groups.v[d->group], v, d->idx)) return true;
    }
    return false;
}

static Value below_views(const Fuse *f, Value v) {
    while (is_view((Op)graph_node(f->g, v)->op) || graph_node(f->g, v)->op == OP_expand)
        v = graph_node(f->g, v)->in[0];
    return v;
}

/* Where many lookups lead to, in a fold: a kernel of its own takes the elements in the order of v,
 * which is that of the tables; a fold would go through all tables for each of its results. What has
 * several elements for each walk is not its end. */
static bool ends_walk(const Fuse *f, Value v) {
    const VState *s = &f->v[v];
    const Node *n = graph_node(f->g, v);
    if (f->fact[v].lookups < MIN_LOOKUPS) return false;
    if (n->op == OP_gather && fuse_numel(f, v) > fuse_numel(f, below_views(f, n->in[1])))
        return false;
    for (uint32_t i = 0; i < s->demands.n; i++)
        if (group_axes(f->groups.v[s->demands.v[i].group], AX_RED)) return true;
    return false;
}

/* Scores are looked up, as distances of tokens say (DeBERTa): matrix units' attention reads what
 * lies at its places. That of few queries, on other units, looks up as it goes. */
static bool looks_up_scores(const Fuse *f, Value v) {
    if (graph_node(f->g, v)->op != OP_gather || !f->m->half_attention) return false;
    for (uint32_t i = 0; i < f->v[v].demands.n; i++) {
        const Demand *d = &f->v[v].demands.v[i];
        const AttnMatch *m = f->groups.v[d->group]->attn;
        if (m && !m->gradient && d->use == USE_point && group_has_queries(f, m)) return true;
    }
    return false;
}

static bool inlines_map(const Fuse *f, Value v, uint32_t ngroups, FusionWhy *why) {
    const VState *s = &f->v[v];
    const Fact *fact = &f->fact[v];
    *why = WHY_lookups;
    if (ends_walk(f, v)) return false;
    *why = WHY_template_input;
    if (looks_up_scores(f, v)) return false;
    if (makes_row(f, v)) return true;
    if (masks_attention(f, v) || is_of_blocks(f, v)) return true;
    if (!uses_allow(f, v, fact->flops)) return false;
    if (fact->const_only && (fact->flops >= 1 || casts_float(f, v, false)) &&
        fuse_numel(f, v) > 1) {
        const Group *g = f->groups.v[s->demands.v[0].group];
        if (ngroups > 1 || !g->prepare) return false;
    }
    *why = ngroups > 1 ? WHY_shared : WHY_recompute;
    return fuse_recompute_pays(f, v, ngroups) || (ngroups > 1 && belongs_to_row(f, v));
}

static bool inlines_view(const Fuse *f, Value v, uint32_t ngroups) {
    if (graph_node(f->g, v)->op == OP_concat) return inlines_concat(f, v, ngroups);
    if (is_of_blocks(f, v)) return true;
    if (fuse_turns_products(f, v) && fuse_numel(f, v) >= MIN_TURNED) return false;
    return !is_padded_operand(f, v) && !awkward_operand(f, v) && !scattered_operand(f, v) &&
           !is_cut_weight(f, v) && !is_cut_head(f, v) && !is_cut_row(f, v) &&
           !is_ragged_weight(f, v);
}

bool fuse_try_inline(const Fuse *f, Value v, FusionWhy *why) {
    const VState *s = &f->v[v];
    const Fact *fact = &f->fact[v];
    const Node *n = graph_node(f->g, v);
    uint32_t groups[MAX_DEMANDERS];
    uint32_t ngroups = fuse_demanders(f, v, groups, MAX_DEMANDERS);
    OpClass c = op_info[n->op].cls;
    if (s->must) return false; /* why: see schedule.c */
    if (c == OPC_SOURCE) return true;
    *why = WHY_too_large;
    if (!fits(f, v)) return false;
    *why = ngroups > 1 ? WHY_shared : WHY_kind;
    if (casts_float(f, v, true)) return true; /* what it was made of takes less room */
    if (!fact->const_only && scales_scores(f, v)) return true;
    if (fact->epi && fuse_may_follow(f, v, fact->epi)) return inlines_epilogue(f, v, ngroups, why);
    switch (c) {
    case OPC_VIEW: return inlines_view(f, v, ngroups);
    case OPC_REDUCE: return inlines_reduce(f, v, ngroups, why);
    case OPC_MAP:
    case OPC_RANDOM:
    case OPC_INDEX: return inlines_map(f, v, ngroups, why);
    default: return false;
    }
}
