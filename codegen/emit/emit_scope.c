/* Scopes: what axes are bound to, what was already computed, and where code may be hoisted to. */
#include "codegen/emit/emit_internal.h"

static EmitScope *push(Emit *e, LLVMBasicBlockRef pre) {
    EmitScope *s = ARENA_NEW(e->arena, EmitScope);
    s->outer = e->scope;
    s->depth = e->scope ? e->scope->depth + 1 : 0;
    s->pre = pre;
    if (e->scope) {
        s->has_lanes = e->scope->has_lanes;
        s->mask = e->scope->mask;
        s->certain = e->scope->certain;
    }
    e->scope = s;
    return s;
}

EmitScope *emit_push(Emit *e) {
    return push(e, NULL);
}

EmitScope *emit_push_region(Emit *e, LLVMBasicBlockRef pre) {
    return push(e, pre);
}

void emit_pop(Emit *e) {
    e->scope = e->scope->outer;
}

EmitScope *emit_switch(Emit *e, EmitScope *s) {
    EmitScope *was = e->scope;
    e->scope = s;
    return was;
}

static void add_bind(Emit *e, EmitBind b) {
    vec_push(e->arena, &e->scope->binds, b);
}

void emit_set_sym(Emit *e, uint32_t sym, LLVMValueRef value) {
    add_bind(e, (EmitBind){.sym = sym, .is_value = true, .value = value});
}

Expr emit_new_sym(Emit *e, const char *name, int64_t hi, LLVMValueRef value) {
    SymInfo info = {.name = name, .kind = SYM_AXIS, .lo = 0, .hi = hi};
    Expr ref = expr_sym_new(e->exprs, info);
    uint32_t sym = 0;
    (void)expr_is_sym(e->exprs, ref, &sym);
    emit_set_sym(e, sym, value);
    return ref;
}

Expr emit_position(Emit *e, const char *name, Expr extent, LLVMValueRef value) {
    int64_t lo, hi;
    expr_range(e->exprs, extent, &lo, &hi);
    return emit_new_sym(e, name, hi > 0 ? hi - 1 : 0, value);
}

Expr emit_below(Emit *e, const char *name, Expr size, LLVMValueRef value) {
    int64_t lo, hi;
    uint32_t sym = expr_sym_count(e->exprs);
    expr_range(e->exprs, size, &lo, &hi);
    Expr s = emit_new_sym(e, name, hi == INT64_MAX || hi == 0 ? hi : hi - 1, value);
    expr_sym_edit(e->exprs, sym)->below = size;
    return s;
}

void emit_bind(Emit *e, uint32_t sym, Expr by) {
    add_bind(e, (EmitBind){.sym = sym, .by = by});
}

void emit_bind_lanes(Emit *e, uint32_t sym, Expr base, LLVMValueRef mask, bool aligned) {
    uint32_t s;
    if (e->lanes == 1) {
        emit_bind(e, sym, base);
        return;
    }
    if (aligned && expr_is_sym(e->exprs, base, &s)) map_put(e->aligned, s, e->lanes);
    emit_bind(e, sym, expr_add(e->exprs, base, expr_sym_ref(e->exprs, e->lane_sym)));
    e->scope->has_lanes = true;
    e->scope->mask = mask;
}

uint32_t emit_lane_depth(Emit *e) {
    EmitScope *s = e->scope;
    while (s->outer && s->outer->has_lanes && s->outer->mask == s->mask) s = s->outer;
    return s->depth;
}

LLVMValueRef emit_lane_mask(Emit *e) {
    return e->scope->mask;
}

/* The value table of the current scope. */
static EmitVal *values(Emit *e) {
    EmitScope *s = e->scope;
    if (!s->val) {
        s->val = ARENA_ARRAY(e->arena, EmitVal, e->k->nops);
        s->overridden = ARENA_ARRAY(e->arena, bool, e->k->nops);
    }
    return s->val;
}

void emit_override_at(Emit *e, EmitOverride o) {
    values(e)[o.v] = o.val;
    e->scope->overridden[o.v] = true;
}

void emit_override(Emit *e, KVal v, LLVMValueRef value) {
    emit_override_at(e, (EmitOverride){v, {.v = value, .depth = e->scope->depth}});
}

EmitVal *emit_val_slot(Emit *e, KVal v) {
    EmitVal *slot = &values(e)[v];
    if (slot->v) return slot;
    for (EmitScope *s = e->scope->outer; s; s = s->outer)
        if (s->overridden && s->overridden[v]) {
            *slot = s->val[v];
            break;
        }
    return slot;
}

const EmitBind *emit_find_bind(Emit *e, uint32_t sym, uint32_t *depth) {
    for (EmitScope *s = e->scope; s; s = s->outer)
        for (uint32_t i = s->binds.n; i-- > 0;)
            if (s->binds.v[i].sym == sym) {
                *depth = s->depth;
                return &s->binds.v[i];
            }
    return NULL;
}

/* In the current chain. */
static EmitScope *scope_at(Emit *e, uint32_t depth) {
    EmitScope *s = e->scope;
    while (s->depth > depth) s = s->outer;
    return s;
}

void emit_at_end(Emit *e, LLVMBasicBlockRef block) {
    LLVMValueRef end = LLVMGetBasicBlockTerminator(block);
    if (end)
        LLVMPositionBuilderBefore(e->b, end);
    else
        LLVMPositionBuilderAtEnd(e->b, block);
}

EmitPlace emit_hoist(Emit *e, uint32_t depth) {
    EmitPlace back = {e->scope, LLVMGetInsertBlock(e->b)};
    LLVMBasicBlockRef pre = NULL;
    while (e->scope->depth > depth) {
        if (e->scope->pre) pre = e->scope->pre;
        e->scope = e->scope->outer;
    }
    if (pre) emit_at_end(e, pre);
    return back;
}

void emit_unhoist(Emit *e, EmitPlace p) {
    e->scope = p.scope;
    emit_at_end(e, p.block);
}

/* --- Memos -------------------------------------------------------------------------------- */

static uint64_t memo_hash(const EmitMemo *m) {
    uint64_t key[5] = {m->kind, m->a, m->b, m->c, m->d};
    return hash_bytes(key, sizeof key, 0);
}

const EmitMemo *emit_memo_get(Emit *e, uint32_t depth, EmitMemo key) {
    EmitScope *s = scope_at(e, depth);
    uint32_t i;
    if (!s->memo_map || !map_get(s->memo_map, memo_hash(&key), &i)) return NULL;
    for (; i; i = s->memos.v[i - 1].next) {
        const EmitMemo *m = &s->memos.v[i - 1];
        if (m->kind == key.kind && m->a == key.a && m->b == key.b && m->c == key.c && m->d == key.d)
            return m;
    }
    return NULL;
}

void emit_memo_put(Emit *e, uint32_t depth, EmitMemo key) {
    EmitScope *s = scope_at(e, depth);
    if (!s->memo_map) s->memo_map = map_create(e->arena);
    uint64_t h = memo_hash(&key);
    key.next = 0;
    (void)map_get(s->memo_map, h, &key.next);
    vec_push(e->arena, &s->memos, key);
    map_put(s->memo_map, h, s->memos.n);
}
