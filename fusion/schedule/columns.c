/* Rows and columns of one input in one walk: gradients of norms. A kernel that walks rows, and
 * others that sum columns of what it reads or stores, become one. Its blocks take every P-th row
 * each and keep sums of columns beside it, which a second kernel joins: what all of them read is
 * read once, and no sum depends on timing.
 *
 * Takes steps in order, states and prepare steps in place; gives fewer. Keeps what every buffer
 * holds behind the last of the merged steps; step numbers change. */
#include "fusion/analyse/facts.h"
#include "fusion/body/body.h"
#include "fusion/schedule/stage.h"

enum {
    FAR = 96,         /* steps between those that meet */
    MOST_MEMBERS = 6, /* kernels that sum columns beside one that walks rows */
    MOST_SUMS = 4,    /* of columns: each thread keeps all of them */
    LEAST_ROWS = 16,  /* of a block */
    LEAST_COLUMNS = 64,
    VECTOR = 16,            /* bytes of a vector of the narrowest type, ... */
    MOST_VECTOR = 48,       /* ... of all that is read of as many columns, ... */
    MOST_ROW = 64 * 1024,   /* ... and of a row: several are on their way at once; ... */
    MOST_LONG = 200 * 1024, /* ... of one that many blocks share, ... */
    MOST_OWN = 34 * 1024,   /* ... so many of it each, ... */
    LONG_SUMS = 2,          /* ... and sums of columns then */
    AT_ONCE = 2,            /* rows of a turn of a block, of these */
    /* Columns of a row that starts at any element and is a team's; bytes that are read of it: */
    MOST_START = 8448,
    START_ROW = 36 * 1024,
    MOST_PARAMS = K_MAX_PARAMS - 8,
    SHARED_ROW = 40 * 1024, /* bytes of the longest row that no two blocks share, ... */
    MOST_WHOLE = 1344,      /* ... and vectors, if they cannot halve it */
    /* Vectors of a row that leave most of its threads idle, and blocks of a multiprocessor then: */
    FEW = 12,
    FEW_BLOCKS = 3,
};

/* A kernel over one parallel and one reduced axis. */
typedef struct Member {
    uint32_t step, par, red;
} Member;

typedef struct Meet {
    Fuse *f;
    Schedule *s;
    Member rows, columns[MOST_MEMBERS];
    uint32_t ncolumns, nsums, at; /* at: the step that stands where all of them will */
    uint32_t row, column;         /* symbols in the merged kernel */
    Expr clamped, index, live;    /* of its row: for loads, for stores; 0 = always */
    int64_t row_bytes;            /* that are read of a row */
    uint32_t sharers;             /* blocks of a row */
    /* Many blocks share long rows, which may start at any element, and deal them out in lists:
     * rows of a list all start at one element of a vector. The merged kernel walks `extent` columns
     * from the start of that vector on, of which these are the row's (0: all). */
    bool dealt, starts;
    KDealt deal;
    Expr inside, extent;
    uint32_t vector; /* bytes of the narrowest element that rows are made of */
    Expr blocks;
    VEC(uint32_t) bufs; /* where the blocks' sums lie, in order of `columns` */
} Meet;

static const Kernel *kernel(const Meet *m, const Member *x) {
    return m->s->steps.v[x->step].kernel;
}

/* --- Which kernels meet ----------------------------------------------------------------------- */

static bool is_plain(const Kernel *k, const KOp *o) {
    switch (o->op) {
    case K_kbind:
    case K_katomic:
    case K_kscan:
    case K_ksort:
    case K_kcompact: return false;
    case K_kload: return !o->mask && !o->in[0];
    case K_kstore: return !o->mask;
    case K_kreduce: return o->fold < FOLD_argmax && k->ops[o->in[0]].dtype == DT_f32;
    default: return true;
    }
}

static bool find_member(const Meet *m, uint32_t step, Member *x) {
    const SStep *s = &m->s->steps.v[step];
    const Kernel *k = s->kernel;
    if (s->kind != STEP_kernel || s->prepare || k->tem != TEM_none || k->serial || k->turns)
        return false;
    if (k->naxes != 2 || k->axes[0].kind == k->axes[1].kind) return false;
    for (KVal v = 1; v < k->nops; v++)
        if (!is_plain(k, &k->ops[v])) return false;
    x->step = step;
    x->par = k->axes[0].kind == AX_PAR ? 0 : 1;
    x->red = 1 - x->par;
    return true;
}

/* Of columns * row + column. */
static bool is_place(const Meet *m, const Member *x, Expr index) {
    const Kernel *k = kernel(m, x);
    ExprPool *p = m->f->p;
    const bool rows = x->step == m->rows.step;
    const KAxis *row = &k->axes[rows ? x->par : x->red], *column = &k->axes[rows ? x->red : x->par];
    Expr start = expr_mul(p, expr_sym_ref(p, row->sym), column->extent);
    return index == expr_add(p, start, expr_sym_ref(p, column->sym));
}

static bool contiguous(const Meet *m, const KOp *o, uint32_t sym) {
    Expr coef, rest;
    return expr_affine(m->f->p, o->index, sym, &coef, &rest) && expr_is_value(m->f->p, coef, 1);
}

/* Rows are so short that blocks have several of them on their way. */
static bool row_fits(Meet *m, const Member *x, int64_t columns) {
    const Kernel *k = kernel(m, x);
    uint32_t *dom = ARENA_ARRAY(m->f->arena, uint32_t, k->nops), sum = 0, least = VECTOR;
    kir_domains(k, m->f->p, dom);
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        if ((o->op != K_kload && o->op != K_kstore) || !(dom[v] >> x->red & 1)) continue;
        uint32_t bytes = (uint32_t)dtype_bytes((DType)o->dtype);
        if (!contiguous(m, o, k->axes[x->red].sym)) return false;
        if (!dtype_is_float((DType)o->dtype) || (bytes != 2 && bytes != 4)) return false;
        if (o->op == K_kload && dom[v] == 3) sum += bytes;
        if (bytes < least) least = bytes;
    }
    m->vector = least;
    m->row_bytes = columns * sum;
    return sum && VECTOR / least * sum <= MOST_VECTOR && m->row_bytes <= MOST_LONG;
}

/* Two blocks share long rows: half as many sums are stored and read again, and less is left over in
 * the last turn. One of an odd number of vectors is one block's as long as that has a form for it
 * (layernorm's gradient over 10,248 columns 103.8 us, by two 115.7). */
static uint32_t share_whole(const Meet *m, int64_t vectors, bool follows) {
    const bool shares = vectors % 2 == 0 || vectors > MOST_WHOLE;
    return m->row_bytes > SHARED_ROW && shares && !follows && m->f->m->processors % 2 == 0 ? 2 : 1;
}

/* Blocks of a row of whole vectors that is longer: as few as can, of which most run at once, where
 * there are forms for so many vectors each (band/sizes.c); 0: none. */
static uint32_t share_long(const Meet *m, int64_t vectors) {
    static const int64_t most[] = {[2] = 1344, [3] = 1088, [4] = 865};
    for (uint32_t n = 2; n < sizeof most / sizeof *most; n++)
        if (vectors <= n * most[n] && m->f->m->clusters[n]) return n;
    return 0;
}

/* Blocks that share a row of so many vectors at most, where rows are dealt out; shorter ones are a
 * team's. */
static const struct {
    uint32_t sharers, most;
} dealt_by[] = {{0, 880}, {2, 1760}, {4, 3068}, {0, 3461}, {6, 5119}, {8, 8447}};

static uint32_t share_dealt(int64_t vectors) {
    for (size_t i = 0; i < sizeof dealt_by / sizeof *dealt_by; i++)
        if (vectors <= dealt_by[i].most) return dealt_by[i].sharers;
    return 0;
}

/* How blocks take rows, of which there are about `rows`, and how many share one; false: in no way.
 * Where folds follow each other, rows are not shared. */
static bool choose_way(Meet *m, int64_t columns, bool follows, double rows) {
    const bool many = rows >= (double)LEAST_ROWS * m->f->m->processors;
    const int64_t vectors = columns * m->vector / VECTOR;
    const bool even = columns % K_EVEN == 0;
    if (even && m->row_bytes <= MOST_ROW) {
        m->sharers = share_whole(m, vectors, follows);
        return true;
    }
    if (follows) return false;
    m->starts = !even && many && columns <= MOST_START && m->row_bytes <= START_ROW;
    if (m->starts) return m->sharers = 1, true;
    m->sharers = even && m->row_bytes <= 2 * VECTOR * vectors ? share_long(m, vectors) : 0;
    if (m->sharers) return true;
    m->dealt = true;
    m->sharers = share_dealt(vectors);
    return m->sharers && m->row_bytes <= (int64_t)m->sharers * MOST_OWN;
}

/* One for each multiprocessor, or for those that share rows: of six and eight as many as run at
 * once. Where folds follow each other, short rows leave registers for more. */
static uint32_t choose_blocks(const Meet *m, int64_t columns, bool follows) {
    const uint32_t processors = m->f->m->processors;
    if (follows) return processors * (columns * m->vector / VECTOR < FEW ? FEW_BLOCKS : 1);
    return m->dealt || m->sharers > 2 ? m->f->m->clusters[m->sharers] : processors / m->sharers;
}

/* What v is where all that is loaded of a row is zero: zero, too, unless the row has no numbers. */
static bool vanishes(const Kernel *k, const uint32_t *dom, KVal v) {
    const KOp *o = &k->ops[v];
    bool a = o->in[0] && vanishes(k, dom, o->in[0]);
    switch (o->op) {
    case K_kload: return dom[v] == 3;
    case OP_cast:
    case OP_neg: return a;
    case OP_mul: return a || vanishes(k, dom, o->in[1]);
    case OP_add:
    case OP_sub: return a && vanishes(k, dom, o->in[1]);
    default: return false;
    }
}

/* Rows that start at any element may be walked from the start of a vector on, up to the end of one:
 * what lies beside them is read as zero, and changes no sum. There is no row that ends inside of a
 * vector and has no other behind. */
static bool may_shift(const Meet *m, const Member *x) {
    const Kernel *k = kernel(m, x);
    uint32_t *dom = ARENA_ARRAY(m->f->arena, uint32_t, k->nops);
    kir_domains(k, m->f->p, dom);
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        const bool access = o->op == K_kload || o->op == K_kstore;
        if (access && dom[v] == 3 && !is_place(m, x, o->index)) return false;
        if (o->op != K_kreduce) continue;
        if (o->fold != FOLD_sum || !vanishes(k, dom, o->in[0])) return false;
    }
    return true;
}

/* Folds of a row are made of others. */
static bool folds_follow(const Meet *m, const Member *x) {
    const Kernel *k = kernel(m, x);
    bool *made = ARENA_ARRAY(m->f->arena, bool, k->nops), follows = false;
    for (KVal v = 1; v < k->nops; v++) {
        for (int i = 0; i < 3; i++) made[v] |= made[k->ops[v].in[i]];
        if (k->ops[v].op != K_kreduce) continue;
        follows |= made[v];
        made[v] = true;
    }
    return follows;
}

/* How many lists there are: rows of neighbouring ones start so many elements apart. */
static int64_t apart(int64_t columns) {
    int64_t n = K_EVEN;
    while (columns % n) n /= 2;
    return n;
}

static bool may_deal(const Meet *m, const Member *x, int64_t columns) {
    int64_t rows;
    return expr_is_const(m->f->p, kernel(m, x)->axes[x->par].extent, &rows) &&
           rows % (K_EVEN / apart(columns)) == 0;
}

static bool walks_rows(Meet *m, const Member *x) {
    const Kernel *k = kernel(m, x);
    int64_t n;
    if (!expr_is_const(m->f->p, k->axes[x->red].extent, &n)) return false;
    if (n < LEAST_COLUMNS || !row_fits(m, x, n)) return false;
    const double rows = fuse_hint(m->f, k->axes[x->par].extent);
    const bool follows = folds_follow(m, x);
    if (!choose_way(m, n, follows, rows)) return false;
    uint32_t blocks = choose_blocks(m, n, follows);
    m->blocks = expr_const(m->f->p, blocks);
    if (!blocks) return false;
    if (m->dealt && !may_deal(m, x, n)) return false;
    if ((m->dealt || m->starts) && !may_shift(m, x)) return false;
    return rows >= (double)LEAST_ROWS * blocks;
}

static bool sums_columns(const Meet *m, const Member *x) {
    const Kernel *k = kernel(m, x), *r = kernel(m, &m->rows);
    uint32_t sums = 0;
    if (k->kind != KERNEL_red) return false; /* it stores points, too */
    if (k->axes[x->par].extent != r->axes[m->rows.red].extent) return false;
    if (k->axes[x->red].extent != r->axes[m->rows.par].extent) return false;
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        if (o->op == K_kreduce && o->fold != FOLD_sum) return false;
        sums += o->op == K_kreduce;
    }
    return sums && m->nsums + sums <= (m->dealt || m->starts ? LONG_SUMS : MOST_SUMS);
}

/* The rows' kernel stores to what load o of x reads. */
static bool is_stored(const Meet *m, const Member *x, const KOp *o) {
    const SStep *r = &m->s->steps.v[m->rows.step];
    uint32_t buf = m->s->steps.v[x->step].bufs[o->buf];
    for (uint32_t i = 0; i < r->kernel->nparams; i++)
        if (r->kernel->params[i].written && r->bufs[i] == buf) return true;
    return false;
}

/* The access of the rows' kernel that meets load o of x: a load, or the store of what it reads. */
static KVal at_hand(const Meet *m, const Member *x, const KOp *o) {
    const Kernel *k = kernel(m, x), *r = kernel(m, &m->rows);
    ExprPool *p = m->f->p;
    uint32_t sym[2] = {k->axes[x->red].sym, k->axes[x->par].sym};
    Expr to[2] = {expr_sym_ref(p, r->axes[m->rows.par].sym),
                  expr_sym_ref(p, r->axes[m->rows.red].sym)};
    Expr index = expr_subst(p, o->index, sym, to, 2);
    uint32_t buf = m->s->steps.v[x->step].bufs[o->buf];
    uint32_t access = is_stored(m, x, o) ? K_kstore : K_kload;
    for (KVal v = 1; v < r->nops; v++) {
        const KOp *a = &r->ops[v];
        if (a->op != access) continue;
        if (m->s->steps.v[m->rows.step].bufs[a->buf] == buf && a->index == index) return v;
    }
    return 0;
}

/* All that x reads of every row and column is at hand in the rows' kernel, and whatever that one
 * stores. */
static bool shares_input(const Meet *m, const Member *x) {
    const Kernel *k = kernel(m, x);
    uint32_t *dom = ARENA_ARRAY(m->f->arena, uint32_t, k->nops), n = 0;
    kir_domains(k, m->f->p, dom);
    for (KVal v = 1; v < k->nops; v++) {
        if (k->ops[v].op != K_kload) continue;
        if (dom[v] != 3 && !is_stored(m, x, &k->ops[v])) continue;
        if (!at_hand(m, x, &k->ops[v])) return false;
        n += dom[v] == 3;
    }
    return n > 0;
}

/* --- May they stand at one place? ------------------------------------------------------------- */

static uint32_t storage(const Schedule *s, uint32_t buf) {
    while (s->buffers.v[buf].alias) buf = s->buffers.v[buf].alias - 1;
    return buf;
}

/* One of them writes what the other uses. */
static bool conflict(const Schedule *s, uint32_t a, uint32_t b) {
    const SStep *x = &s->steps.v[a], *y = &s->steps.v[b];
    if (x->kind != STEP_kernel || y->kind != STEP_kernel) return true;
    for (uint32_t i = 0; i < x->kernel->nparams; i++)
        for (uint32_t j = 0; j < y->kernel->nparams; j++) {
            if (!x->kernel->params[i].written && !y->kernel->params[j].written) continue;
            if (storage(s, x->bufs[i]) == storage(s, y->bufs[j])) return true;
        }
    return false;
}

static bool is_member(const Meet *m, uint32_t step) {
    bool is = m->rows.step == step;
    for (uint32_t i = 0; i < m->ncolumns; i++) is |= m->columns[i].step == step;
    return is;
}

static bool moves(const Meet *m, uint32_t step, uint32_t to) {
    uint32_t lo = step < to ? step : to, hi = step < to ? to : step;
    for (uint32_t t = lo + 1; t < hi; t++)
        if (!is_member(m, t) && conflict(m->s, step, t)) return false;
    return true;
}

/* All move to where one of them stands; columns may read what rows store, and nothing else of one
 * is written by another. */
static bool find_place(Meet *m) {
    for (uint32_t i = 0; i < m->ncolumns; i++) {
        uint32_t c = m->columns[i].step;
        if (c < m->rows.step && conflict(m->s, c, m->rows.step)) return false;
        for (uint32_t j = 0; j < i; j++)
            if (conflict(m->s, c, m->columns[j].step)) return false;
    }
    for (uint32_t t = 0; t <= m->ncolumns; t++) {
        m->at = t ? m->columns[t - 1].step : m->rows.step;
        bool all = moves(m, m->rows.step, m->at);
        for (uint32_t i = 0; i < m->ncolumns; i++) all = all && moves(m, m->columns[i].step, m->at);
        if (all) return true;
    }
    return false;
}

/* --- The merged kernel ------------------------------------------------------------------------ */

/* What `v` is computed from, up to folds (stop) or through them. */
static void mark(const Kernel *k, KVal v, bool stop, bool *keep) {
    if (!v || keep[v]) return;
    keep[v] = true;
    if (stop && k->ops[v].op == K_kreduce) return;
    for (int i = 0; i < 3; i++) mark(k, k->ops[v].in[i], stop, keep);
}

static uint32_t param(Body *b, const SStep *from, uint32_t i) {
    return body_param(b, from->bufs[i], from->kernel->params[i].written);
}

static Expr both(ExprPool *p, Expr a, Expr b) {
    return a && b ? expr_and(p, a, b) : a ? a : b;
}

/* Op v of a member, over the merged kernel's axes; to[v] is its number there. */
static void copy_op(Meet *m, Body *b, const Member *x, KVal v, KVal *to, uint32_t fold) {
    const SStep *s = &m->s->steps.v[x->step];
    const Kernel *k = s->kernel;
    KOp o = k->ops[v];
    bool is_rows = x->step == m->rows.step;
    uint32_t row = is_rows ? x->par : x->red, column = 1 - row;
    uint32_t sym[2] = {k->axes[row].sym, k->axes[column].sym};
    ExprPool *p = m->f->p;
    Expr by[2] = {o.op == K_kstore ? m->index : m->clamped, expr_sym_ref(p, m->column)};
    const bool access = o.op == K_kload || o.op == K_kstore;
    for (int i = 0; i < 3; i++) o.in[i] = to[o.in[i]];
    if (m->dealt) by[1] = expr_sub(p, by[1], m->deal.shift);
    if (o.op == K_kstore || (m->dealt && access && expr_uses(p, o.index, sym[0]))) o.mask = m->live;
    if (m->dealt && access && expr_uses(p, o.index, sym[1])) o.mask = both(p, o.mask, m->inside);
    if (o.index) o.index = expr_subst(p, o.index, sym, by, 2);
    if (o.op == K_kreduce) o.axes = fold;
    if (o.op == K_kload || o.op == K_kstore) o.buf = param(b, s, o.buf);
    to[v] = body_op(b, o);
}

static void new_sum(Meet *m, const KOp *o) {
    SBuffer s = {.kind = BUF_temp, .dtype = DT_f32, .node = o->node, .graph = m->s->graph};
    s.numel = expr_mul(m->f->p, m->blocks, m->extent);
    vec_push(m->f->arena, &m->s->buffers, s);
    vec_push(m->f->arena, &m->bufs, m->s->buffers.n - 1);
}

/* Sums of columns over the rows of a block. rows: numbers of the rows' ops. */
static void add_columns(Meet *m, Body *b, const Member *x, const KVal *rows, Expr block) {
    const Kernel *k = kernel(m, x), *r = kernel(m, &m->rows);
    bool *keep = ARENA_ARRAY(m->f->arena, bool, k->nops);
    KVal *to = ARENA_ARRAY(m->f->arena, KVal, k->nops);
    for (KVal v = 1; v < k->nops; v++)
        if (k->ops[v].op == K_kreduce) mark(k, k->ops[v].in[0], false, keep);
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        KVal hand = o->op == K_kload ? at_hand(m, x, o) : 0;
        if (hand && keep[v])
            to[v] = r->ops[hand].op == K_kstore ? rows[r->ops[hand].in[0]] : rows[hand];
        else if (keep[v])
            copy_op(m, b, x, v, to, 0);
        if (o->op != K_kreduce) continue;
        KOp sum = *o;
        sum.in[0] = body_or_zero(b, to[o->in[0]], m->live);
        sum.axes = 1u << 1;
        KVal at = body_op(b, sum);
        new_sum(m, o);
        Expr index = expr_mul(m->f->p, block, m->extent);
        index = expr_add(m->f->p, index, expr_sym_ref(m->f->p, m->column));
        body_store(b, DT_f32, at, m->bufs.v[m->bufs.n - 1], index, 0);
    }
}

/* Takes the body's ops; what it covers is given. */
static void finish(Body *b, const Group *axes, KKind kind, const char *name) {
    Kernel *k = b->k;
    body_prune(b);
    k->kind = kind;
    k->name = name;
    k->nops = b->ops.n, k->ops = b->ops.v;
    k->nparams = b->params.n, k->params = b->params.v;
    k->naxes = axes->naxes;
    k->axes = arena_copy(b->f->arena, axes->axes, axes->naxes * sizeof axes->axes[0]);
    body_traffic(b);
}

void schedule_add_places(Arena *a, Kernel *to, const Kernel *from) {
    Loc *all = ARENA_ARRAY(a, Loc, to->nlocs + from->nlocs + 1);
    uint32_t n = 0, computed = 0;
    for (int views = 0; views <= 1; views++) {
        const Kernel *k[2] = {to, from};
        for (int i = 0; i < 2; i++) {
            uint32_t lo = views ? k[i]->ncomputed : 0, hi = views ? k[i]->nlocs : k[i]->ncomputed;
            for (uint32_t j = lo; j < hi; j++) {
                uint32_t seen = 0;
                while (seen < n && all[seen] != k[i]->locs[j]) seen++;
                if (seen == n) all[n++] = k[i]->locs[j];
            }
        }
        if (!views) computed = n;
    }
    to->locs = all, to->nlocs = n, to->ncomputed = computed;
}

/* How the block of that number takes its rows: neighbours in the order of lists, in pairs if lists
 * are of pairs. */
static KDealt deal(const Meet *m, Expr block) {
    const Kernel *k = kernel(m, &m->rows);
    ExprPool *p = m->f->p;
    const int64_t rows = expr_value(p, k->axes[m->rows.par].extent);
    const int64_t columns = expr_value(p, k->axes[m->rows.red].extent);
    const int64_t blocks = expr_value(p, m->blocks), by = apart(columns), lists = K_EVEN / by;
    const int64_t unit = rows % (lists * AT_ONCE) == 0 ? AT_ONCE : 1, n = rows / unit;
    const int64_t left = n % blocks, per = n / lists;
    Expr some = expr_muli(p, block, left), all = expr_const(p, blocks);
    Expr begin = expr_add(p, expr_muli(p, block, n / blocks), expr_div(p, some, all));
    Expr count = expr_le(p, all, expr_addi(p, expr_mod(p, some, all), left));
    count = expr_addi(p, count, n / blocks);
    Expr last = expr_addi(p, expr_add(p, begin, count), -1);
    return (KDealt){.sharers = m->sharers,
                    .columns = (uint32_t)columns,
                    .lists = (uint32_t)lists,
                    .per = (uint32_t)(per * unit),
                    .at_once = (uint32_t)unit,
                    .first = expr_muli(p, begin, unit),
                    .rows = expr_muli(p, count, unit),
                    .shift = expr_muli(p, expr_div(p, last, expr_const(p, per)), by)};
}

/* Turn `turn` of a block, if it has so many, takes row `index`. The first row of a list is such
 * that those of the next start `apart` elements further along a vector: the square of each odd
 * factor is 1 more than 8s. */
static void deal_rows(Meet *m, Expr block, Expr turn) {
    ExprPool *p = m->f->p;
    const KDealt d = m->deal = deal(m, block);
    const int64_t n = d.columns, whole = (int64_t)K_EVEN * d.sharers, pad = K_EVEN - apart(n);
    Expr at = expr_add(p, d.first, turn), per = expr_const(p, d.per), list = expr_div(p, at, per);
    Expr factor = expr_muli(p, list, n / apart(n) % d.lists);
    Expr first = expr_mod(p, factor, expr_const(p, d.lists));
    Expr row = expr_sub(p, at, expr_mul(p, list, per));
    m->index = m->clamped = expr_add(p, first, expr_muli(p, row, d.lists));
    m->extent = expr_const(p, (n + pad + whole - 1) / whole * whole);
}

/* Each block takes every P-th row. */
static void spread_rows(Meet *m, Expr rows, Expr block, Expr turn) {
    ExprPool *p = m->f->p;
    m->index = expr_add(p, expr_mul(p, turn, m->blocks), block);
    bool whole = expr_mod(p, rows, m->blocks) == expr_const(p, 0);
    m->clamped = whole ? m->index : expr_min(p, m->index, expr_addi(p, rows, -1));
    m->live = whole ? 0 : expr_lt(p, m->index, rows);
}

static Expr turns_of(const Meet *m, Expr rows) {
    ExprPool *p = m->f->p;
    if (!m->dealt) return expr_ceildiv(p, rows, m->blocks);
    const int64_t unit = deal(m, expr_const(p, 0)).at_once;
    Expr units = expr_const(p, expr_value(p, rows) / unit);
    return expr_muli(p, expr_ceildiv(p, units, m->blocks), unit);
}

/* Where there is something to mask: blocks have different numbers of rows, or more columns. */
static void mask_rows(Meet *m, Expr turn, Expr column, Expr columns) {
    ExprPool *p = m->f->p;
    int64_t rows;
    const KDealtMasks is = kir_dealt_masks(&m->deal, p, turn, column, m->deal.shift);
    m->live = expr_is_const(p, m->deal.rows, &rows) ? 0 : is.live;
    m->inside = m->extent == columns ? 0 : is.inside;
}

static SStep merged_step(Meet *m) {
    Fuse *f = m->f;
    ExprPool *p = f->p;
    const Kernel *r = kernel(m, &m->rows);
    Group axes = {.id = 0};
    Body b = {.f = f, .k = ARENA_NEW(f->arena, Kernel)};
    Expr rows = r->axes[m->rows.par].extent, columns = r->axes[m->rows.red].extent;
    Expr block = axis_new(f, &axes, m->blocks, AX_PAR);
    Expr turn = axis_new(f, &axes, turns_of(m, rows), AX_RED);
    m->extent = columns;
    if (m->dealt)
        deal_rows(m, block, turn);
    else
        spread_rows(m, rows, block, turn);
    Expr column = axis_new(f, &axes, m->extent, AX_RED);
    expr_is_sym(p, column, &m->column);
    if (m->dealt) mask_rows(m, turn, column, columns);
    body_begin(&b);
    KVal *to = ARENA_ARRAY(f->arena, KVal, r->nops);
    for (KVal v = 1; v < r->nops; v++) copy_op(m, &b, &m->rows, v, to, 1u << 2);
    b.k->locs = r->locs, b.k->nlocs = r->nlocs, b.k->ncomputed = r->ncomputed;
    for (uint32_t i = 0; i < m->ncolumns; i++) {
        add_columns(m, &b, &m->columns[i], to, block);
        schedule_add_places(f->arena, b.k, kernel(m, &m->columns[i]));
    }
    b.k->tem = m->dealt ? TEM_dealt : TEM_none;
    b.k->dealt = m->deal;
    finish(&b, &axes, KERNEL_per, arena_printf(f->arena, "%s_columns", r->name));
    return (SStep){.kind = STEP_kernel, .kernel = b.k, .bufs = b.bufs.v};
}

/* --- The kernel that joins the blocks' sums --------------------------------------------------- */

/* What x makes of its sums; *next: the number of its first. */
static void join_columns(Meet *m, Body *b, const Member *x, Expr block, uint32_t *next) {
    const SStep *s = &m->s->steps.v[x->step];
    const Kernel *k = s->kernel;
    ExprPool *p = m->f->p;
    bool *keep = ARENA_ARRAY(m->f->arena, bool, k->nops);
    KVal *to = ARENA_ARRAY(m->f->arena, KVal, k->nops);
    uint32_t sym = k->axes[x->par].sym;
    Expr column = expr_sym_ref(p, m->column);
    for (KVal v = 1; v < k->nops; v++)
        if (k->ops[v].op == K_kstore) mark(k, v, true, keep);
    for (KVal v = 1; v < k->nops; v++) {
        KOp o = k->ops[v];
        if (o.op == K_kreduce) {
            KOp load = body_blank(K_kload, DT_f32);
            load.buf = body_param(b, m->bufs.v[(*next)++], false);
            load.index = expr_add(p, expr_mul(p, block, m->extent), column);
            if (m->dealt) load.index = expr_add(p, load.index, deal(m, block).shift);
            load.node = o.node;
            o.in[0] = body_op(b, load);
            o.axes = 1u << 1;
            to[v] = body_op(b, o);
            continue;
        }
        if (!keep[v]) continue;
        for (int i = 0; i < 3; i++) o.in[i] = to[o.in[i]];
        if (o.index) o.index = expr_subst(p, o.index, &sym, &column, 1);
        if (o.op == K_kload || o.op == K_kstore) o.buf = param(b, s, o.buf);
        to[v] = body_op(b, o);
    }
}

static SStep join_step(Meet *m) {
    Fuse *f = m->f;
    const Kernel *first = kernel(m, &m->columns[0]);
    Group axes = {.id = 0};
    Body b = {.f = f, .k = ARENA_NEW(f->arena, Kernel)};
    Expr column = axis_new(f, &axes, first->axes[m->columns[0].par].extent, AX_PAR);
    Expr block = axis_new(f, &axes, m->blocks, AX_RED);
    uint32_t next = 0;
    expr_is_sym(f->p, column, &m->column);
    body_begin(&b);
    for (uint32_t i = 0; i < m->ncolumns; i++) {
        join_columns(m, &b, &m->columns[i], block, &next);
        schedule_add_places(f->arena, b.k, kernel(m, &m->columns[i]));
    }
    finish(&b, &axes, KERNEL_red, first->name);
    return (SStep){.kind = STEP_kernel, .kernel = b.k, .bufs = b.bufs.v};
}

/* --- The stage -------------------------------------------------------------------------------- */

/* The two steps in place of all members; the rest keeps its order. */
static void replace(Meet *m) {
    Schedule *s = m->s;
    uint32_t n = s->steps.n, at = 0;
    uint32_t *to = ARENA_ARRAY(m->f->arena, uint32_t, n + 1);
    SStep *old = arena_copy(m->f->arena, s->steps.v, n * sizeof *old);
    SStep both[2];
    both[0] = merged_step(m); /* which finds where the sums lie */
    both[1] = join_step(m);
    for (uint32_t i = 0; i < n; i++) {
        to[i] = at;
        if (i == m->at) {
            s->steps.v[at++] = both[0];
            s->steps.v[at++] = both[1];
        } else if (!is_member(m, i)) {
            s->steps.v[at++] = old[i];
        }
    }
    to[n] = s->steps.n = at;
    for (uint32_t i = 0; i < at; i++)
        if (s->steps.v[i].kind != STEP_kernel) s->steps.v[i].match = to[s->steps.v[i].match];
    for (uint32_t i = 0; i < s->ends.n; i++) s->ends.v[i] = to[s->ends.v[i]];
    for (uint32_t i = 0; i < s->refusals.n; i++) {
        s->refusals.v[i].producer = to[s->refusals.v[i].producer];
        s->refusals.v[i].consumer = to[s->refusals.v[i].consumer];
    }
}

/* The steps around `step` that nothing keeps apart from it: of its entry, between loops and
 * branches. */
static void neighbours(const Schedule *s, uint32_t step, uint32_t *lo, uint32_t *hi) {
    uint32_t first = step > FAR ? step - FAR : 0, end = step + FAR;
    if (end > s->steps.n) end = s->steps.n;
    for (uint32_t i = 0; i < s->ends.n; i++) {
        if (s->ends.v[i] <= step && s->ends.v[i] > first) first = s->ends.v[i];
        if (s->ends.v[i] > step && s->ends.v[i] < end) end = s->ends.v[i];
    }
    *lo = *hi = step;
    while (*lo > first && s->steps.v[*lo - 1].kind == STEP_kernel && !s->steps.v[*lo - 1].prepare)
        (*lo)--;
    while (*hi < end && s->steps.v[*hi].kind == STEP_kernel) (*hi)++;
}

static bool takes(Meet *m, uint32_t step) {
    Member *x = &m->columns[m->ncolumns];
    if (m->ncolumns == MOST_MEMBERS || step == m->rows.step || !find_member(m, step, x))
        return false;
    if (!sums_columns(m, x) || !shares_input(m, x)) return false;
    m->ncolumns++;
    if (find_place(m)) {
        const Kernel *k = kernel(m, x);
        for (KVal v = 1; v < k->nops; v++) m->nsums += k->ops[v].op == K_kreduce;
        return true;
    }
    m->ncolumns--;
    return false;
}

static bool meet(Fuse *f, Schedule *s, uint32_t step) {
    Meet m = {.f = f, .s = s};
    uint32_t lo, hi;
    if (!find_member(&m, step, &m.rows) || !walks_rows(&m, &m.rows)) return false;
    neighbours(s, step, &lo, &hi);
    uint32_t params = kernel(&m, &m.rows)->nparams + MOST_SUMS, joined = MOST_SUMS;
    for (uint32_t i = lo; i < hi; i++) {
        if (!s->steps.v[i].kernel) continue;
        uint32_t more = s->steps.v[i].kernel->nparams;
        if (params + more > MOST_PARAMS || joined + more > MOST_PARAMS || !takes(&m, i)) continue;
        params += more, joined += more;
    }
    if (!m.ncolumns || !find_place(&m)) return false;
    const Kernel *k = kernel(&m, &m.columns[0]);
    Value node = 0;
    for (KVal v = 1; v < k->nops; v++)
        if (k->ops[v].op == K_kreduce) node = k->ops[v].node;
    if (!node || !fuse_may(f, node, "summed beside the rows that are made of the same"))
        return false;
    replace(&m);
    return true;
}

void fuse_columns(Fuse *f, Schedule *s) {
    if (!f->m->bands) return;
    for (uint32_t i = 0; i < s->steps.n; i++) (void)meet(f, s, i);
}
