/* A loop whose body is one kernel, of which each point reads of what is carried only what it stored
 * itself, is that kernel: it takes the iterations in turns (Kernel.turns) and holds what they
 * carry.
 *
 * Needs all steps, prepare steps in front, nothing overwritten in place so far. */
#include "fusion/analyse/facts.h"
#include "fusion/schedule/stage.h"

typedef struct Turns {
    Fuse *f;
    Schedule *s;
    const SStep *body;   /* the loop's kernel; the copies of what it carries follow */
    uint32_t begin, end; /* of the loop */
    uint32_t copies;
    uint32_t *dom; /* kir_domains */
} Turns;

static uint32_t param_of(const SStep *x, uint32_t buf) {
    uint32_t i = 0;
    while (i < x->kernel->nparams && x->bufs[i] != buf) i++;
    return i;
}

/* Points, and folds of one row, whose elements threads can hold. */
static bool is_simple(Turns *t) {
    const Kernel *k = t->body->kernel;
    uint32_t row = 0;
    int64_t n, elements = 1;
    if (k->tem != TEM_none || k->serial || k->more || k->turns) return false;
    for (uint32_t i = 0; i < k->naxes; i++) {
        if (k->axes[i].kind != AX_RED) continue;
        if (!expr_is_const(t->f->p, k->axes[i].extent, &n)) return false;
        row |= 1u << i, elements *= n;
    }
    t->dom = ARENA_ARRAY(t->f->arena, uint32_t, k->nops);
    kir_domains(k, t->f->p, t->dom);
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        const uint32_t walked = t->dom[v] & row;
        if (o->op == K_katomic || o->op == K_kscan || o->op == K_ksort || o->op == K_kcompact)
            return false;
        if (o->op == K_kreduce && (o->axes != row || o->fold >= FOLD_argmax)) return false;
        if (o->op == K_kstore && walked && walked != row) return false;
    }
    return elements <= t->f->m->turns;
}

/* Each point has its own place. */
static bool is_everywhere(const Turns *t, KVal v) {
    const Kernel *k = t->body->kernel;
    for (uint32_t i = 0; i < k->naxes; i++)
        if (k->axes[i].kind == AX_PAR && !(t->dom[v] >> i & 1) &&
            !expr_is_value(t->f->p, k->axes[i].extent, 1))
            return false;
    return true;
}

/* What is stored as the turn goes on is not read behind that: neither by other passes over the
 * points, which stores of other axes take, nor by another store of the same; and there are points
 * to find it at. */
static bool may_go(const Turns *t, uint32_t from, KVal store) {
    const Kernel *k = t->body->kernel;
    bool *reads = ARENA_ARRAY(t->f->arena, bool, k->nops);
    uint32_t par = 0;
    for (uint32_t i = 0; i < k->naxes; i++)
        if (k->axes[i].kind == AX_PAR && !expr_is_value(t->f->p, k->axes[i].extent, 1))
            par |= 1u << i;
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        reads[v] = o->op == K_kload && o->buf == from;
        for (int i = 0; i < 3 && o->op != K_kreduce; i++) reads[v] |= o->in[i] && reads[o->in[i]];
    }
    for (KVal v = 1; v < k->nops; v++)
        if (k->ops[v].op == K_kstore && v != store && reads[v] &&
            (t->dom[v] != t->dom[store] || (v > store && !reads[store])))
            return false;
    return par != 0;
}

/* What is stored through parameter `to` is what a point reads through `from` the turn after; from:
 * none where that is nothing. */
static bool carries(const Turns *t, uint32_t from, uint32_t to) {
    const Kernel *k = t->body->kernel;
    KVal store = 0;
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        if (o->op == K_kload && o->buf == to) return false;
        if (o->op != K_kstore || (o->buf != to && o->buf != from)) continue;
        if (store || o->buf == from || o->mask || !is_everywhere(t, v)) return false;
        store = v;
    }
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        if (o->op == K_kload && o->buf == from && (o->index != k->ops[store].index || o->mask))
            return false;
    }
    return store && (t->f->m->holds_turns || may_go(t, from, store));
}

static bool all_carry(const Turns *t) {
    bool taken[K_MAX_PARAMS] = {false};
    if (t->end - t->copies > K_MAX_CARRIED) return false;
    for (uint32_t i = t->copies; i < t->end; i++) {
        const uint32_t *b = t->s->steps.v[i].bufs;
        const uint32_t to = param_of(t->body, b[0]);
        const SBuffer *now = &t->s->buffers.v[b[1]], *next = &t->s->buffers.v[b[0]];
        if (to == t->body->kernel->nparams || taken[to] || next->kind != BUF_temp || next->alias)
            return false;
        if (now->dtype != next->dtype || now->numel != next->numel) return false;
        if (!carries(t, param_of(t->body, b[1]), to)) return false;
        taken[to] = true;
    }
    return true;
}

/* The loop that begins there, if it is one kernel and copies. */
static bool find_body(Turns *t, uint32_t begin) {
    const SStep *b = &t->s->steps.v[begin];
    t->begin = begin, t->end = b->match, t->copies = b->match;
    if (!b->trip || b->cond_buf) return false;
    while (t->s->steps.v[t->copies - 1].carry) t->copies--;
    t->body = &t->s->steps.v[begin + 1];
    return t->copies == begin + 2 && t->body->kind == STEP_kernel && !t->body->prepare &&
           is_simple(t) && all_carry(t);
}

static void forget_param(Kernel *k, uint32_t *bufs, uint32_t gone, uint32_t by) {
    for (KVal v = 1; v < k->nops; v++) {
        KOp *o = &k->ops[v];
        if (o->op != K_kload && o->op != K_kstore) continue;
        if (o->buf == gone) o->buf = by;
        if (o->buf > gone) o->buf--;
    }
    k->nparams--;
    for (uint32_t i = gone; i < k->nparams; i++)
        k->params[i] = k->params[i + 1], bufs[i] = bufs[i + 1];
}

/* Every turn moves that much, but for what is carried. */
static Expr traffic(const Turns *t, Expr turn, Expr carried) {
    ExprPool *p = t->f->p;
    Expr rest = expr_sub(p, turn, carried);
    return expr_add(p, expr_mul(p, t->s->steps.v[t->begin].trip, rest), carried);
}

static void take_turns(Turns *t) {
    ExprPool *p = t->f->p;
    SStep *x = &t->s->steps.v[t->begin + 1];
    Kernel *k = arena_copy(t->f->arena, x->kernel, sizeof *k);
    Expr carried = expr_const(p, 0);
    k->ops = arena_copy(t->f->arena, k->ops, k->nops * sizeof *k->ops);
    k->params = arena_copy(t->f->arena, k->params, k->nparams * sizeof *k->params);
    x->bufs = arena_copy(t->f->arena, x->bufs, k->nparams * sizeof *x->bufs);
    x->kernel = k;
    for (uint32_t i = t->copies; i < t->end; i++) {
        const uint32_t *b = t->s->steps.v[i].bufs;
        const uint32_t from = param_of(x, b[1]), to = param_of(x, b[0]);
        const KParam *q = &k->params[to];
        carried = expr_add(p, carried, expr_muli(p, q->numel, (int64_t)dtype_bytes(q->dtype)));
        if (from == k->nparams) {
            x->bufs[to] = b[1];
            continue;
        }
        k->params[from].written = true;
        forget_param(k, x->bufs, to, from);
    }
    k->turn = t->s->steps.v[t->begin].iter;
    k->turns = t->s->steps.v[t->begin].trip;
    k->bytes_read = traffic(t, k->bytes_read, carried);
    k->bytes_written = traffic(t, k->bytes_written, carried);
    k->flops = expr_mul(p, k->flops, k->turns);
}

void fuse_turns(Fuse *f, Schedule *s) {
    bool *gone = ARENA_ARRAY(f->arena, bool, s->steps.n);
    if (!f->m->turns) return;
    for (uint32_t b = s->steps.n; b-- > 0;) {
        Turns t = {.f = f, .s = s};
        if (s->steps.v[b].kind != STEP_loop_begin || !find_body(&t, b)) continue;
        const SBuffer *of = t.copies < t.end ? &s->buffers.v[s->steps.v[t.copies].bufs[0]] : NULL;
        Fuse body = *f;
        if (of) body.g = of->graph;
        if (of && !fuse_may(&body, of->node, "a loop's iterations are taken by one kernel"))
            continue;
        take_turns(&t);
        gone[b] = gone[t.end] = true;
        for (uint32_t i = t.copies; i < t.end; i++) gone[i] = true;
        schedule_inline(f, s, b + 1, gone);
    }
    schedule_drop(f, s, gone);
}
