/* What all rows read alike, of long rows that start at any element: a vector of the row is no
 * vector of that. The aligned pieces that it lies in are loaded whole, and what is wanted is
 * shifted to their front; by how much is the same in all vectors of a row. */
#include "codegen/nvptx/hopper/hopper.h"
#include "codegen/nvptx/row/long.h"

enum { PIECE = 16, WORD = 4, MOST_WORDS = 12 };

/* Element i of it belongs to element i of the row. */
bool row_is_across(const Long *l, KVal v) {
    Emit *e = l->r->team.g->e;
    const Kernel *k = l->r->team.g->k;
    const KOp *o = &k->ops[v];
    uint32_t sym;
    if (o->op != K_kload || o->in[0] || o->mask || !l->r->team.g->rows->need[v]) return false;
    DType t = k->params[o->buf].dtype;
    return t == (DType)o->dtype && (dtype_bytes(t) == 2 || dtype_bytes(t) == 4) &&
           dtype_bytes(t) * e->lanes % PIECE == 0 &&
           dtype_bytes(t) * e->lanes / WORD + PIECE / WORD <= MOST_WORDS &&
           expr_is_sym(e->exprs, o->index, &sym) && sym == k->axes[l->axis].sym;
}

bool row_has_across(const Long *l) {
    bool is = false;
    for (KVal v = 1; l->offset && v < l->r->team.g->k->nops; v++) is |= row_is_across(l, v);
    return is;
}

/* Words to + by of w become words of to, where `is`. */
static void shift(Emit *e, LLVMValueRef *w, uint32_t n, uint32_t by, LLVMValueRef is) {
    for (uint32_t i = 0; i < n; i++) w[i] = LLVMBuildSelect(e->b, is, w[i + by], w[i], "");
}

static LLVMValueRef is_set(Emit *e, LLVMValueRef x, int64_t bit) {
    LLVMValueRef b = LLVMBuildAnd(e->b, x, emit_i64(e, bit), "");
    return LLVMBuildICmp(e->b, LLVMIntNE, b, emit_i64(e, 0), "");
}

/* n words, `past` bytes behind the start of w. */
static void shift_all(Emit *e, LLVMValueRef *w, uint32_t n, LLVMValueRef past, int64_t bytes) {
    bool halves = bytes == 2;
    shift(e, w, n + 1 + halves, 2, is_set(e, past, 8));
    shift(e, w, n + halves, 1, is_set(e, past, 4));
    if (!halves) return;
    LLVMValueRef by =
        LLVMBuildTrunc(e->b, LLVMBuildShl(e->b, past, emit_i64(e, 3), ""), e->i32, "");
    by = LLVMBuildAnd(e->b, by, emit_i(e, e->i32, 16), "");
    for (uint32_t i = 0; i < n; i++) {
        LLVMValueRef v[3] = {w[i + 1], w[i], by};
        w[i] = emit_intrinsic(e, "llvm.fshr", e->i32, v, 3);
    }
}

/* The pieces that load v's part of the current vector lies in. */
typedef struct Pieces {
    DType t;
    uint32_t n;             /* of a vector that begins one; else one more */
    LLVMValueRef at, past;  /* byte of the first in its buffer, bytes from there to the vector */
    LLVMValueRef none_past; /* i1 */
} Pieces;

static Pieces pieces_of(const Long *l, KVal v) {
    Emit *e = l->r->team.g->e;
    const KOp *o = &e->k->ops[v];
    Pieces p = {.t = e->k->params[o->buf].dtype};
    const int64_t bytes = (int64_t)dtype_bytes(p.t);
    LLVMValueRef at = emit_expr_uniform(e, o->index);
    LLVMValueRef past = LLVMBuildAnd(e->b, at, emit_i64(e, PIECE / bytes - 1), "");
    p.n = (uint32_t)bytes * e->lanes / PIECE;
    p.at = LLVMBuildMul(e->b, LLVMBuildSub(e->b, at, past, ""), emit_i64(e, bytes), "");
    p.past = LLVMBuildMul(e->b, past, emit_i64(e, bytes), "");
    p.none_past = LLVMBuildICmp(e->b, LLVMIntEQ, p.past, emit_i64(e, 0), "");
    return p;
}

static void load_piece(Emit *e, LLVMValueRef from, LLVMValueRef *w) {
    LLVMValueRef x = emit_load(e, emit_vec(e->i32, 4), from, PIECE);
    for (uint32_t c = 0; c < 4; c++)
        w[c] = LLVMBuildExtractElement(e->b, x, emit_i(e, e->i32, c), "");
}

/* The vector in the words of its pieces. */
static LLVMValueRef from_words(Emit *e, const Pieces *p, LLVMValueRef *w) {
    const uint32_t n = p->n * PIECE / WORD;
    shift_all(e, w, n, p->past, (int64_t)dtype_bytes(p->t));
    LLVMValueRef out = LLVMGetUndef(emit_vec(e->i32, n));
    for (uint32_t c = 0; c < n; c++)
        out = LLVMBuildInsertElement(e->b, out, w[c], emit_i(e, e->i32, c), "");
    return LLVMBuildBitCast(e->b, out, emit_vec(emit_mem_type(e, p->t), e->lanes), "");
}

/* The current vector. The last piece is not touched where the first begins it: there may be none */
static LLVMValueRef across(const Long *l, KVal v) {
    Emit *e = l->r->team.g->e;
    const Pieces p = pieces_of(l, v);
    LLVMValueRef w[MOST_WORDS], from = emit_gep(e, e->i8, e->bufs[e->k->ops[v].buf], p.at);
    for (uint32_t i = 0; i <= p.n; i++) {
        LLVMValueRef by = emit_i64(e, (int64_t)i * PIECE);
        if (i == p.n)
            by = LLVMBuildSelect(e->b, p.none_past, emit_i64(e, (int64_t)(i - 1) * PIECE), by, "");
        load_piece(e, emit_gep(e, e->i8, from, by), &w[i * PIECE / WORD]);
    }
    return from_words(e, &p, w);
}

void row_load_across(const Long *l, const Pass *p) {
    Gpu *g = l->r->team.g;
    for (KVal v = 1; v < g->k->nops; v++)
        if (p->cone[v] && row_is_across(l, v)) emit_override(g->e, v, across(l, v));
}

/* --- By roles: the block's part of it is in shared memory ---------------------------------------
 * The copy engine brings its pieces; threads put vectors in their place. */

static uint32_t fixed_bytes(const Long *l, uint32_t i) {
    return row_bytes(l->r->team.g, l->fixed[i]) * l->r->team.g->e->lanes;
}

LLVMValueRef row_ask_fixed(const Long *l, uint32_t i, LLVMValueRef at, LLVMValueRef n,
                           LLVMValueRef bar) {
    Emit *e = l->r->team.g->e;
    HV vectors = LLVMBuildTrunc(e->b, n, e->i32, "");
    emit_push(e);
    row_bind_long(l, at);
    const Pieces p = pieces_of(l, l->fixed[i]);
    LLVMValueRef end = LLVMBuildICmp(e->b, LLVMIntEQ, LLVMBuildAdd(e->b, at, n, ""), l->count, "");
    LLVMValueRef more = LLVMBuildAnd(e->b, end, LLVMBuildNot(e->b, p.none_past, ""), "");
    HV bytes = hop_muli(e, vectors, fixed_bytes(l, i));
    bytes = hop_add(e, bytes, LLVMBuildSelect(e->b, more, hop_i(e, PIECE), hop_i(e, 0), ""));
    if (bar) {
        LLVMValueRef from = emit_gep(e, e->i8, e->bufs[e->k->ops[l->fixed[i]].buf], p.at);
        from = LLVMBuildPtrToInt(e->b, from, e->i64, "");
        LLVMValueRef to = row_fixed_at(l, i, at);
        hop_bulk_load(e, LLVMBuildPtrToInt(e->b, to, e->i32, ""), from, bytes, bar);
    }
    emit_pop(e);
    return bytes;
}

LLVMValueRef row_fixed_pieces(const Long *l, uint32_t i, LLVMValueRef at) {
    Emit *e = l->r->team.g->e;
    LLVMValueRef w[MOST_WORDS], from = row_fixed_at(l, i, at);
    const Pieces p = pieces_of(l, l->fixed[i]);
    for (uint32_t c = 0; c <= p.n; c++) {
        LLVMValueRef by = emit_i(e, e->i32, (int64_t)c * PIECE);
        load_piece(e, LLVMBuildGEP2(e->b, e->i8, from, &by, 1, ""), &w[c * PIECE / WORD]);
    }
    return from_words(e, &p, w);
}

LLVMValueRef row_fixed_at(const Long *l, uint32_t i, LLVMValueRef at) {
    Gpu *g = l->r->team.g;
    Emit *e = g->e;
    HV p = LLVMBuildTrunc(e->b, at, e->i32, "");
    p = hop_muli(e, p, (int64_t)row_bytes(g, l->fixed[i]) * e->lanes);
    p = hop_add(e, hop_addi(e, hop_shared(g), l->fixed_at[i]), p);
    return hop_pointer(e, p);
}

/* It was put in place under rows that start with a vector; this one has some in front of its first
 * line. */
void row_take_fixed(const Long *l, const Pass *p, LLVMValueRef at) {
    Emit *e = l->r->team.g->e;
    LLVMValueRef before = LLVMBuildLShr(e->b, l->head, emit_i64(e, __builtin_ctz(e->lanes)), "");
    at = LLVMBuildAdd(e->b, at, before, "");
    for (uint32_t i = 0; i < l->nfixed; i++) {
        const KOp *o = &e->k->ops[l->fixed[i]];
        LLVMTypeRef t = emit_vec(emit_mem_type(e, (DType)o->dtype), e->lanes);
        if (p->cone[l->fixed[i]])
            emit_override(e, l->fixed[i], emit_load(e, t, row_fixed_at(l, i, at), PIECE));
    }
}
