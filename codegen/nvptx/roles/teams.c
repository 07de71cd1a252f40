/* Long rows of known length that blocks, or pairs of them that share each row, take in turns, by
 * teams of warps that hold them in registers: one warp asks the copy engine for chunk after chunk,
 * of row after row, and as soon as a team has a chunk in registers, the next one takes its place.
 * While a team waits for what others have folded, and finishes its row, other teams fold the next
 * ones. What all rows read alike stays in shared memory, as by roles. */
#include "codegen/nvptx/roles/roles.h"

enum {
    TEAMS = 2,
    GROUP = 4,        /* warps that get registers together, and as many fetch */
    MOST_WARPS = 12,  /* of a team */
    FETCHING = 32,    /* registers of a thread that fetches, */
    MULTIPLE = 8,     /* of how many all get a multiple, */
    COMPUTE = 52,     /* and of one that holds a row, those that hold none of it */
    STEPS = 2,        /* vectors of a thread in a chunk */
    LEAST = 8,        /* tenths of a row that the ring has room for, */
    LEAST_ALONE = 20, /* where a pair of blocks would have room for more */
    WORD = 4,
    MOST_HELD = 34, /* vectors of a thread */
    MOST_REGISTERS = 232,
};

/* Warps that ask for rows, and for what all of them read alike. */
static uint32_t fetcher_of(const Long *l) {
    return l->teams * l->folders;
}

static uint32_t held_of(const Long *l) {
    const int64_t threads = (int64_t)l->folders * GPU_WARP;
    return (uint32_t)((l->room + threads - 1) / threads);
}

/* Of a vector of kept value i. */
static uint32_t words_of(const Long *l, uint32_t i) {
    const Gpu *g = l->r->team.g;
    return row_bytes(g, l->kept[i]) * g->e->lanes / WORD;
}

static uint32_t kept_words(const Long *l) {
    const Gpu *g = l->r->team.g;
    return row_bytes_of(g, l->kept, l->nkept) * g->e->lanes / WORD;
}

/* Registers of a thread that holds a row: what all have alike at first is shared out anew. */
static uint32_t registers_of(const Long *l) {
    const uint32_t holding = fetcher_of(l) * GPU_WARP, fetching = GROUP * GPU_WARP;
    const uint32_t threads = holding + fetching, all = l->r->team.g->m->registers / threads;
    const uint32_t left = all / MULTIPLE * MULTIPLE * threads - fetching * FETCHING;
    const uint32_t n = left / holding / MULTIPLE * MULTIPLE;
    return n < MOST_REGISTERS ? n : MOST_REGISTERS;
}

/* As many warps as have registers enough, of which a row's edges take a thread each. */
static bool choose_warps(Long *l) {
    for (l->folders = MOST_WARPS; l->folders; l->folders -= GROUP)
        if (held_of(l) <= MOST_HELD && registers_of(l) >= held_of(l) * kept_words(l) + COMPUTE)
            break;
    return l->folders && row_most_edges(l) <= l->folders * GPU_WARP;
}

bool row_teams(Long *l, uint32_t cluster) {
    Long t = *l;
    if (!role_shape(&t, cluster) || t.nkept > 1) return false; /* of two loads: not measured */
    role_room(&t);
    t.teams = TEAMS;
    if (!choose_warps(&t)) return false;
    t.threads = (fetcher_of(&t) + GROUP) * GPU_WARP;
    t.steps = STEPS;
    t.chunk = t.steps * t.folders * GPU_WARP;
    if (!role_place(&t, cluster == 1 ? LEAST_ALONE : LEAST)) return false;
    *l = t;
    return true;
}

/* A row in a thread's registers. */
typedef struct Hold {
    LLVMValueRef v[MOST_HELD][ROW_MOST_KEPT];
    uint32_t n;
    HV zero; /* see read_zero */
} Hold;

/* Vectors that every block has of every row. */
static int64_t least_count(const Long *l) {
    const int64_t lanes = l->r->team.g->e->lanes;
    int64_t length = 0, n;
    (void)expr_is_const(l->r->team.g->e->exprs, l->length, &length);
    n = (length - (l->offset ? l->line - 1 : 0)) / lanes - (l->across ? 1 : 0);
    return n - (int64_t)(l->cluster - 1) * l->room;
}

/* Vector number i of a thread; *live: NULL, or where it is there. */
static LLVMValueRef vector_of(const Long *row, uint32_t i, LLVMValueRef *live) {
    Emit *e = row->r->team.g->e;
    const int64_t size = row->r->team.size;
    LLVMValueRef at = LLVMBuildAdd(e->b, row->r->team.rank, emit_i64(e, i * size), "");
    *live = NULL;
    if ((i + 1) * size > least_count(row))
        *live = LLVMBuildICmp(e->b, LLVMIntSLT, at, row->count, "");
    return at;
}

/* One chunk comes into registers and joins the folds; its place is left. */
static void take_chunk(const Turn *t, Hold *h, uint32_t first, Folds *f) {
    const Long *row = &t->row;
    Emit *e = row->r->team.g->e;
    EmitScope *scope[ROW_MOST_STEPS], *outer = e->scope;
    LLVMValueRef live[ROW_MOST_STEPS];
    const LLVMValueRef from = emit_i64(e, (int64_t)first * row->r->team.size);
    uint32_t n = 0;
    row_wait_copied(row, from);
    for (; n < row->steps && first + n < h->n; n++) {
        const uint32_t i = first + n;
        const LLVMValueRef at = vector_of(row, i, &live[n]);
        scope[n] = emit_push(e);
        row_bind_long(row, at);
        row_take_kept(row, at, from);
        for (uint32_t k = 0; k < row->nkept; k++) h->v[i][k] = emit_value_lanes(e, row->kept[k]);
        (void)emit_switch(e, outer);
    }
    row_fold_vectors(row, scope, live, n, f);
    row_leave_chunk(row, from);
}

/* A zero of which no compiler knows: threads read it where one of them has stored it. */
static HV read_zero(const Roles *x) {
    Emit *e = x->l->r->team.g->e;
    LLVMValueRef from = hop_pointer(e, role_shared(x, x->results));
    LLVMValueRef zero = LLVMBuildLoad2(e->b, e->i32, from, "");
    LLVMSetVolatile(zero, true);
    return zero;
}

static void store_zero(const Roles *x) {
    Gpu *g = x->l->r->team.g;
    Emit *e = g->e;
    EmitIf one;
    emit_if_begin(e, &one, gpu_is_first(g));
    LLVMValueRef to = hop_pointer(e, role_shared(x, x->results));
    LLVMSetVolatile(LLVMBuildStore(e->b, hop_i(e, 0), to), true);
    emit_if_end(e, &one);
}

/* The same n words, of which nothing is known: what was computed of them is computed again, rather
 * than held in more registers than they take. */
static LLVMValueRef anew(Emit *e, LLVMValueRef v, uint32_t n, HV zero) {
    LLVMTypeRef words = emit_vec(e->i32, n);
    LLVMValueRef w = LLVMBuildBitCast(e->b, v, words, ""), all = LLVMGetUndef(words);
    for (uint32_t i = 0; i < n; i++)
        all = LLVMBuildInsertElement(e->b, all, zero, emit_i(e, e->i32, i), "");
    return LLVMBuildBitCast(e->b, LLVMBuildXor(e->b, w, all, ""), LLVMTypeOf(v), "");
}

static LLVMValueRef anew_scalar(Emit *e, LLVMValueRef v, HV zero) {
    return LLVMBuildXor(e->b, v, LLVMBuildZExt(e->b, zero, e->i64, ""), "");
}

/* What the team's warps, and those of other blocks, have folded becomes the row's results. */
static void join(const Roles *x, const Turn *t, Folds *f) {
    Emit *e = x->l->r->team.g->e;
    const Team team = row_team_under(&t->row, x->first);
    gpu_team_lanes(&team, x->first, f->acc);
    role_send(x, t, f->acc);
    LLVMValueRef leads = LLVMBuildICmp(e->b, LLVMIntEQ, t->role.team.rank, emit_i64(e, 0), "");
    *f = role_receive(x, t, leads);
    gpu_team_lanes(&team, x->first, f->acc);
    row_long_results(&t->row, f);
}

/* The last team, whose first row comes last, puts what all rows read alike in place before it holds
 * any; every team waits for that. */
static void keep_fixed(const Roles *x, LLVMValueRef rank) {
    const Long *l = x->l;
    Emit *e = l->r->team.g->e;
    EmitIf last;
    if (!l->nfixed) return;
    emit_if_begin(e, &last, role_is(x, (l->teams - 1) * l->folders, l->folders));
    role_keep_fixed(x, rank, l->folders * GPU_WARP);
    hop_barrier_arrive(e, role_shared(x, x->are_done), LLVMConstInt(e->i1, 1, false));
    emit_if_end(e, &last);
}

static void finish_vectors(const Roles *x, const Turn *t, Hold *h) {
    const Long *row = &t->row;
    Emit *e = row->r->team.g->e;
    for (uint32_t i = 0; i < h->n; i++) {
        EmitScope *outer = e->scope;
        LLVMValueRef live, at = vector_of(row, i, &live);
        (void)emit_push(e);
        row_bind_long(row, at);
        for (uint32_t k = 0; k < row->nkept; k++) emit_override(e, row->kept[k], h->v[i][k]);
        row_take_fixed(row, x->last, at);
        for (uint32_t s = 0; s < x->last->nstores; s++)
            (void)emit_value_lanes(e, e->k->ops[x->last->stores[s]].in[0]);
        row_store_vector(row, live, x->last);
        (void)emit_switch(e, outer);
    }
}

/* Elements whose folds are known become single ones of the last walk: in a scope of their own, for
 * what is folded together is made under results of its own. */
static RowEdges edges_anew(const Roles *x, const Turn *t, const RowEdges *edges) {
    Emit *e = x->l->r->team.g->e;
    const uint32_t lanes = e->lanes;
    const RowEdges last = row_edges(&t->row, 0);
    EmitScope *outer = emit_switch(e, edges->scope);
    LLVMValueRef v[ROW_MOST_KEPT];
    e->lanes = 1;
    for (uint32_t k = 0; k < x->l->nkept; k++) v[k] = emit_value(e, x->l->kept[k]);
    (void)emit_switch(e, last.scope);
    for (uint32_t k = 0; k < x->l->nkept; k++) emit_override(e, x->l->kept[k], v[k]);
    e->lanes = lanes;
    (void)emit_switch(e, outer);
    return last;
}

/* Passes behind the folds. */
static void finish(const Roles *x, Turn *t, Hold *h, const RowEdges *edges) {
    Emit *e = x->l->r->team.g->e;
    const Passes *rows = x->l->r->team.g->rows;
    Folds none = {.p = x->last};
    t->row.count = anew_scalar(e, t->row.count, h->zero);
    t->role.team.rank = anew_scalar(e, t->role.team.rank, h->zero);
    for (uint32_t i = 0; i < h->n; i++)
        for (uint32_t k = 0; k < x->l->nkept; k++)
            h->v[i][k] = anew(e, h->v[i][k], words_of(x->l, k), h->zero);
    for (uint32_t i = x->l->first; i < rows->npasses; i++) {
        if (!rows->pass[i].axes) {
            row_store_once(&t->role, &rows->pass[i]);
            continue;
        }
        if (x->l->offset) {
            const RowEdges last = edges_anew(x, t, edges);
            row_edges_walk(&t->row, &last, &none);
        }
        if (x->l->nfixed) hop_barrier_wait(e, role_shared(x, x->are_done), hop_i(e, 0));
        finish_vectors(x, t, h);
    }
}

/* A row of this team's. */
static void take_row(const Roles *x, Turn *t, HV zero) {
    RowEdges edges = {0};
    Hold h = {.n = held_of(x->l), .zero = zero};
    if (x->l->offset) {
        edges = row_edges(&t->row, 0);
        row_edges_request(&t->row, &edges, x->first);
    }
    Folds f = row_folds_begin(&t->row, x->first, x->l->r->team.g->e->lanes);
    for (uint32_t i = 0; i < h.n; i += x->l->steps) take_chunk(t, &h, i, &f);
    row_fold_own_lanes(&t->row, &f);
    if (x->l->offset) row_edges_walk(&t->row, &edges, &f);
    join(x, t, &f);
    finish(x, t, &h, &edges);
}

static void run_team(const Roles *x) {
    const Long *l = x->l;
    Emit *e = l->r->team.g->e;
    const HV team = LLVMBuildUDiv(e->b, x->warp, hop_i(e, l->folders), "");
    LLVMValueRef first = LLVMBuildZExt(e->b, hop_muli(e, team, l->folders * GPU_WARP), e->i64, "");
    EmitIf all, mine;
    Turn t;
    emit_if_begin(e, &all, role_is(x, 0, fetcher_of(l)));
    const LLVMValueRef rank = LLVMBuildSub(e->b, l->r->team.g->tid, first, "");
    const HV zero = read_zero(x);
    keep_fixed(x, rank);
    role_turns_begin(x, &t, rank, l->folders);
    HV turn = LLVMBuildURem(e->b, t.loop.phi[0], hop_i(e, l->teams), "");
    emit_if_begin(e, &mine, LLVMBuildICmp(e->b, LLVMIntEQ, turn, team, ""));
    take_row(x, &t, zero);
    emit_if_end(e, &mine);
    role_turns_end(x, &t);
    emit_if_end(e, &all);
}

static void ask_fixed(const Roles *x) {
    Emit *e = x->l->r->team.g->e;
    EmitIf mine;
    emit_if_begin(e, &mine, role_is(x, fetcher_of(x->l) + 1, 1));
    role_ask_fixed(x);
    emit_if_end(e, &mine);
}

void row_run_teams(Long *l) {
    Emit *e = l->r->team.g->e;
    const Roles x = role_begin(l);
    role_init(&x, l->bars, l->ring, 1);
    role_init(&x, l->left, l->ring, l->folders);
    role_init(&x, x.are_done, 1, l->folders * GPU_WARP);
    store_zero(&x);
    role_init_rest(&x);
    const HopRoles roles = hop_roles(e, role_is(&x, fetcher_of(l), GROUP));
    hop_registers(e, FETCHING, false);
    role_fetch(&x, fetcher_of(l));
    ask_fixed(&x);
    hop_role_next(e, roles);
    hop_registers(e, registers_of(l), true);
    run_team(&x);
    hop_roles_end(e, roles);
}
