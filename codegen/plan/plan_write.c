#include "codegen/plan/plan_write.h"
#include "runtime/abi.h"
#include <string.h>

static uint64_t aligned(uint64_t n) {
    return (n + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
}

static void *grow(PlanWriter *w, PlanBytes *b, uint64_t n) {
    if (b->n + n > b->cap) {
        uint64_t cap = b->cap ? 2 * b->cap : 1024;
        while (cap < b->n + n) cap *= 2;
        uint8_t *p = arena_alloc(w->arena, cap);
        if (b->n) memcpy(p, b->p, b->n);
        b->p = p;
        b->cap = cap;
    }
    void *at = b->p + b->n;
    b->n += n;
    return at;
}

uint32_t plan_write_record(PlanWriter *w, PlanSectionId section, const void *record, size_t size) {
    PlanBytes *b = &w->section[section];
    memcpy(grow(w, b, size), record, size);
    return (uint32_t)(b->n / size - 1);
}

void plan_write_bytes(PlanWriter *w, PlanSectionId section, const void *bytes, uint64_t n) {
    void *at = grow(w, &w->section[section], n);
    if (n) memcpy(at, bytes, n);
}

void plan_write_init(PlanWriter *w, const Graph *g, bool embed, Arena *a) {
    *w = (PlanWriter){.arena = a, .graph = g, .embed = embed};
    w->strings = mapstr_create(a);
    w->lists = map_create(a);
    w->exprs = map_create(a);
    w->symbols = map_create(a);
    w->constants = map_create(a);
    plan_write_str(w, "");
    PlanExpr zero = {.op = PLAN_EX_const};
    PLAN_PUT(w, exprs, zero);
}

PlanStr plan_write_str(PlanWriter *w, const char *text) {
    uint32_t at;
    if (mapstr_get(w->strings, text, &at)) return at;
    PlanBytes *b = &w->section[PLAN_SEC_strings];
    at = (uint32_t)b->n;
    size_t n = strlen(text) + 1;
    memcpy(grow(w, b, n), text, n);
    mapstr_put(w->strings, text, at);
    return at;
}

PlanList plan_write_list(PlanWriter *w, const uint32_t *v, uint32_t n) {
    if (n == 0) return 0;
    PlanBytes *b = &w->section[PLAN_SEC_lists];
    uint64_t size = n * sizeof *v, key = hash_bytes(v, size, n);
    uint32_t at;
    if (map_get(w->lists, key, &at) && at + (uint64_t)n <= b->n / sizeof *v &&
        memcmp(b->p + at * sizeof *v, v, size) == 0)
        return at;
    at = (uint32_t)(b->n / sizeof *v);
    memcpy(grow(w, b, size), v, size);
    map_put(w->lists, key, at);
    return at;
}

uint32_t plan_write_symbol(PlanWriter *w, ExprPool *p, uint32_t sym) {
    static const uint32_t kinds[] = {[SYM_DIM] = PLAN_SYM_dim,
                                     [SYM_ELEM] = PLAN_SYM_elem,
                                     [SYM_DATA] = PLAN_SYM_data,
                                     [SYM_ITER] = PLAN_SYM_iter};
    uint32_t at;
    if (map_get(w->symbols, sym, &at)) return at;
    const SymInfo *info = expr_sym_info(p, sym);
    GC_ASSERT(info->kind < SYM_AXIS);
    bool of_input = info->kind == SYM_DIM || info->kind == SYM_ELEM;
    bool held = of_input && info->a >= SYM_OF_STATE;
    PlanSymbol s = {.name = plan_write_str(w, info->name ? info->name : ""),
                    .kind = held ? PLAN_SYM_state : kinds[info->kind],
                    .a = of_input ? info->a & ~SYM_OF_STATE : 0,
                    .b = of_input ? info->b : 0,
                    .lo = info->lo,
                    .hi = info->hi,
                    .hint = info->hint};
    at = PLAN_PUT(w, symbols, s);
    map_put(w->symbols, sym, at);
    return at;
}

static PlanSlot put_expr(PlanWriter *w, const PlanExpr *e) {
    if (e->op == PLAN_EX_const && e->value == 0) return 0;
    const PlanBytes *b = &w->section[PLAN_SEC_exprs];
    uint64_t key = hash_bytes(e, sizeof *e, 0);
    uint32_t at;
    if (map_get(w->exprs, key, &at) && memcmp(b->p + at * sizeof *e, e, sizeof *e) == 0) return at;
    at = PLAN_PUT(w, exprs, *e);
    map_put(w->exprs, key, at);
    return at;
}

PlanSlot plan_write_expr(PlanWriter *w, ExprPool *p, Expr e) {
#define X(name, n, text)                                                                           \
    _Static_assert((int)EX_##name == (int)PLAN_EX_##name, "plan files number operations alike");
    EXPR_OPS(X)
#undef X
    if (!e) return 0;
    PlanExpr x = {.op = (uint32_t)expr_op(p, e)};
    uint32_t sym;
    if (expr_is_const(p, e, &x.value))
        ;
    else if (expr_is_sym(p, e, &sym))
        x.arg[0] = plan_write_symbol(w, p, sym);
    for (int i = 0; i < expr_arity(x.op); i++) x.arg[i] = plan_write_expr(w, p, expr_arg(p, e, i));
    return put_expr(w, &x);
}

PlanSlot plan_write_scaled(PlanWriter *w, ExprPool *p, Expr e, int64_t factor) {
    PlanSlot s = plan_write_expr(w, p, e);
    if (factor == 1 || s == 0) return s;
    int64_t v;
    PlanExpr f = {.op = PLAN_EX_const, .value = factor};
    if (expr_is_const(p, e, &v)) {
        f.value = (int64_t)((uint64_t)v * (uint64_t)factor);
        return put_expr(w, &f);
    }
    PlanExpr x = {.op = PLAN_EX_mul, .arg = {s, put_expr(w, &f), 0}};
    return put_expr(w, &x);
}

static const PlanConstant *constant_at(const PlanWriter *w, uint32_t i) {
    return (const PlanConstant *)(const void *)w->section[PLAN_SEC_constants].p + i;
}

static uint32_t put_external(PlanWriter *w, const Constant *c) {
    PlanConstant k = {.name = plan_write_str(w, c->name ? c->name : ""),
                      .file = plan_write_str(w, w->graph->files.v[c->file - 1]),
                      .source = PLAN_external,
                      .offset = c->offset,
                      .length = c->bytes,
                      .file_size = c->file_size};
    uint64_t place[3] = {c->file, c->offset, c->bytes}, key = hash_bytes(place, sizeof place, 1);
    uint32_t at;
    if (map_get(w->constants, key, &at)) {
        const PlanConstant *o = constant_at(w, at);
        if (o->file == k.file && o->offset == k.offset && o->length == k.length) return at;
    }
    k.hash = plan_probe_hash(c->data, c->bytes);
    at = PLAN_PUT(w, constants, k);
    map_put(w->constants, key, at);
    return at;
}

static const PlanData *data_at(const PlanWriter *w, uint64_t offset) {
    for (uint32_t i = 0; i < w->data.n; i++)
        if (w->data.v[i].offset == offset) return &w->data.v[i];
    return NULL;
}

uint32_t plan_write_constant(PlanWriter *w, const Constant *c) {
    if (c->file && !w->embed) return put_external(w, c);
    uint64_t key = hash_bytes(c->data, c->bytes, c->bytes);
    uint32_t at;
    if (c->bytes && map_get(w->constants, key, &at)) {
        const PlanConstant *o = constant_at(w, at);
        const PlanData *d = o->source == PLAN_embedded ? data_at(w, o->offset) : NULL;
        if (d && d->length == c->bytes && memcmp(d->data, c->data, c->bytes) == 0) return at;
    }
    PlanConstant k = {.name = plan_write_str(w, c->name ? c->name : ""),
                      .source = PLAN_embedded,
                      .offset = w->data_size,
                      .length = c->bytes,
                      .hash = plan_probe_hash(c->data, c->bytes)};
    vec_push(w->arena, &w->data, ((PlanData){c->data, k.offset, k.length}));
    w->data_size = aligned(w->data_size + k.length);
    at = PLAN_PUT(w, constants, k);
    map_put(w->constants, key, at);
    return at;
}

void *plan_write_finish(PlanWriter *w, size_t *size) {
    static const uint32_t record_size[] = {
#define X(name, record) sizeof(record),
        PLAN_SECTIONS(X)
#undef X
    };
    PlanHeader h = {.magic = PLAN_MAGIC,
                    .version = PLAN_VERSION,
                    .abi = GRAPHC_ABI_VERSION,
                    .nsections = PLAN_SEC_COUNT,
                    .weights = w->weights};
    PlanSection table[PLAN_SEC_COUNT];
    uint64_t end = sizeof h + sizeof table;
    for (uint32_t i = 0; i < PLAN_SEC_COUNT; i++) {
        uint64_t n = i == PLAN_SEC_data ? w->data_size : w->section[i].n;
        table[i] = (PlanSection){
            .id = i, .record_size = record_size[i], .offset = aligned(end), .size = n};
        end = table[i].offset + n;
    }
    h.length = end;
    uint8_t *bytes = arena_alloc(w->arena, end + PLAN_ALIGN);
    bytes += (PLAN_ALIGN - (uintptr_t)bytes % PLAN_ALIGN) % PLAN_ALIGN;
    for (uint32_t i = 0; i < PLAN_SEC_data; i++)
        if (table[i].size) memcpy(bytes + table[i].offset, w->section[i].p, table[i].size);
    for (uint32_t i = 0; i < w->data.n; i++)
        if (w->data.v[i].length)
            memcpy(bytes + table[PLAN_SEC_data].offset + w->data.v[i].offset, w->data.v[i].data,
                   w->data.v[i].length);
    for (uint32_t i = 0; i < PLAN_SEC_COUNT; i++)
        table[i].hash = hash_bytes(bytes + table[i].offset, table[i].size, i);
    h.hash = plan_header_hash(&h, table);
    memcpy(bytes, &h, sizeof h);
    memcpy(bytes + sizeof h, table, sizeof table);
    *size = end;
    return bytes;
}
