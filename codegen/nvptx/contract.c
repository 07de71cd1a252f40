/* Contractions. Which structure computes one depends on sizes that may be known at launch only:
 * then the kernel has several, the grid is that of the one whose turn it is, and all threads branch
 * to it. */
#include "codegen/nvptx/contract.h"

static bool contract_init(Contract *c, Gpu *g) {
    const KDot *d = &g->k->dot;
    if (g->k->tem != TEM_dot || !d->k || !d->nacc) return false;
    for (KVal v = 1; v < g->k->nops; v++) {
        const KOp *o = &g->k->ops[v];
        bool acc = false;
        for (uint32_t s = 0; s < d->nacc; s++) acc |= d->acc[s] == v;
        if ((o->op == K_kreduce) != acc || o->op == K_katomic) return false;
        if (o->op == K_kstore && (g->e->domains[v] & ~(d->batch | d->m | d->n))) return false;
    }
    *c = (Contract){.g = g, .e = g->e, .d = d};
    c->m = gpu_points(g->e, g->k, d->m);
    c->n = gpu_points(g->e, g->k, d->n);
    c->k = gpu_points(g->e, g->k, d->k);
    return true;
}

/* --- Choice ------------------------------------------------------------------------------- */

enum { PATH_large, PATH_small, PATH_thin, PATHS };

/* Large to small; the second holds half as many operands on their way as the first. */
static const TileShape shapes[] = {
    {128, 128, 16, 8, 8}, {128, 128, 8, 8, 8}, {64, 64, 16, 4, 4}, {32, 32, 32, 2, 2}};
enum { LARGEST, MIDDLE = 2, SMALLEST };

typedef struct Choice {
    const TileShape *shape[2]; /* large, small */
    Expr grid[PATHS], path;    /* blocks of each; which one runs */
} Choice;

static Expr tiles(Contract *c, uint32_t rows, uint32_t cols) {
    ExprPool *p = c->e->exprs;
    return expr_mul(p, expr_ceildiv(p, c->m, expr_const(p, rows)),
                    expr_ceildiv(p, c->n, expr_const(p, cols)));
}

/* The large tile where it gives every multiprocessor one, few rows for themselves. */
static Choice choose(Contract *c, Expr batch) {
    ExprPool *p = c->e->exprs;
    uint32_t processors = c->g->m->processors;
    Expr many = expr_const(p, processors - 1);
    Expr big = expr_mul(p, tiles(c, shapes[LARGEST].tm, shapes[LARGEST].tn), batch);
    bool narrow = dtype_bytes((DType)c->g->k->ops[c->d->acc[0]].dtype) <= 4;
    bool huge = c->d->nacc == 1 && narrow && gpu_hint(c->e, big) >= processors;
    uint32_t large_shape = (huge ? LARGEST : MIDDLE) + c->g->j->shrink;
    if (large_shape > SMALLEST) large_shape = SMALLEST;
    Choice h = {.shape = {&shapes[large_shape], &shapes[SMALLEST]}};
    for (int i = 0; i < 2; i++) h.grid[i] = tiles(c, h.shape[i]->tm, h.shape[i]->tn);
    uint32_t rows = thin_rows(c);
    h.grid[PATH_thin] = tiles(c, rows ? rows : 1, THIN_COLS);
    Expr large = expr_lt(p, many, expr_mul(p, h.grid[PATH_large], batch));
    Expr thin = rows ? expr_lt(p, c->m, expr_const(p, 17)) : expr_const(p, 0);
    h.path = expr_select(p, large, expr_const(p, PATH_large), expr_const(p, PATH_small));
    h.path = expr_select(p, thin, expr_const(p, PATH_thin), h.path);
    return h;
}

static bool possible(Contract *c, const Choice *h, int path) {
    int64_t only;
    return !expr_is_const(c->e->exprs, h->path, &only) || only == path;
}

static uint32_t path_bytes(Contract *c, const Choice *h, int path) {
    return path == PATH_thin ? thin_shared_bytes(c) : tile_shared_bytes(c, h->shape[path]);
}

static void emit_path(Contract *c, const Choice *h, int path) {
    if (!possible(c, h, path) || (path == PATH_thin && !thin_rows(c))) return;
    Emit *e = c->e;
    EmitIf turn;
    LLVMValueRef now = emit_expr(e, h->path);
    emit_if_begin(e, &turn, LLVMBuildICmp(e->b, LLVMIntEQ, now, emit_i64(e, path), ""));
    c->used = 0;
    if (path == PATH_thin)
        thin_emit(c);
    else
        tile_emit(c, h->shape[path]);
    emit_if_end(e, &turn);
}

bool gpu_contract(Gpu *g) {
    Contract c;
    Emit *e = g->e;
    ExprPool *p = e->exprs;
    if (!contract_init(&c, g)) return false;
    Choice h = choose(&c, gpu_points(e, g->k, c.d->batch));
    uint32_t bytes = 0;
    Expr grid = h.grid[PATH_small];
    for (int i = 0; i < PATHS; i++) {
        if (!possible(&c, &h, i)) continue;
        if (path_bytes(&c, &h, i) > bytes) bytes = path_bytes(&c, &h, i);
        grid = expr_select(p, expr_eq(p, h.path, expr_const(p, i)), h.grid[i], grid);
    }
    gpu_batch_begin(g, CONTRACT_THREADS, grid, c.d->batch);
    c.shared = gpu_shared(g, e->i8, bytes);
    for (int i = 0; i < PATHS; i++) emit_path(&c, &h, i);
    gpu_batch_end(g);
    return true;
}
