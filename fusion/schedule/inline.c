/* What a kernel in front stores for one step alone, element by element, is computed by that step.
 * Fusion joins kernels before it knows that a loop is one; this joins what the loop walks.
 *
 * Needs all steps, nothing overwritten in place so far. */
#include "fusion/analyse/facts.h"
#include "fusion/body/body.h"
#include "fusion/schedule/stage.h"

typedef struct Inline {
    Fuse *f;
    Schedule *s;
    bool *gone;        /* by step */
    uint32_t from, at; /* the step in front, and the one that takes it in */
    KVal load, store;  /* of what is between: there, and in front */
    uint32_t nsyms;    /* axes in front ... */
    uint32_t sym[K_MAX_AXES];
    Expr by[K_MAX_AXES]; /* ... and what they are at the load */
} Inline;

static const Kernel *kernel(const Inline *x, uint32_t step) {
    return x->s->steps.v[step].kernel;
}

/* Values of points and one store. */
static bool is_simple(Inline *x) {
    const SStep *t = &x->s->steps.v[x->from];
    const Kernel *k = t->kernel;
    x->store = 0;
    if (t->kind != STEP_kernel || t->prepare || k->kind != KERNEL_poi || k->tem != TEM_none ||
        k->serial || k->more || k->turns)
        return false;
    for (KVal v = 1; v < k->nops; v++) {
        const KOp *o = &k->ops[v];
        const bool plain = o->op < OP_COUNT || o->op == K_konst || o->op == K_kexpr ||
                           o->op == K_kload || o->op == K_kstore;
        if (!plain || (o->op == K_kstore && (x->store || o->mask))) return false;
        if (o->op == K_kstore) x->store = v;
    }
    return x->store != 0;
}

/* --- Where it stands --------------------------------------------------------------------------
 */

typedef struct Uses {
    uint32_t buf, writers, readers, writer, at;
} Uses;

static void note_use(Schedule *s, uint32_t t, uint32_t buf, bool written, void *ctx) {
    Uses *u = ctx;
    (void)s;
    if (buf != u->buf) return;
    if (written) u->writers++, u->writer = t;
    if (!written && t != u->at) u->readers++;
}

/* The one step that writes the buffer, which nobody else reads. */
static bool find_writer(Inline *x, uint32_t buf) {
    Schedule *s = x->s;
    Uses u = {.buf = buf, .at = x->at};
    if (s->buffers.v[buf].kind != BUF_temp || s->buffers.v[buf].alias) return false;
    for (uint32_t i = 0; i < s->buffers.n; i++)
        if (s->buffers.v[i].alias == buf + 1) return false;
    for (uint32_t t = 0; t < s->steps.n; t++)
        if (!x->gone[t]) schedule_each_use(s, t, note_use, &u);
    x->from = u.writer;
    return u.writers == 1 && !u.readers && u.writer < x->at;
}

static bool writes_what_it_reads(const Inline *x, const SStep *t) {
    const SStep *from = &x->s->steps.v[x->from];
    for (uint32_t i = 0; i < t->kernel->nparams; i++)
        for (uint32_t j = 0; t->kernel->params[i].written && j < from->kernel->nparams; j++)
            if (!from->kernel->params[j].written &&
                schedule_owner(x->s, t->bufs[i]) == schedule_owner(x->s, from->bufs[j]))
                return true;
    return false;
}

/* What it reads is still there, in the same run of an entry, loop or branch. */
static bool can_wait(const Inline *x) {
    for (uint32_t i = 0; i < x->s->ends.n; i++)
        if (x->s->ends.v[i] > x->from && x->s->ends.v[i] <= x->at) return false;
    for (uint32_t t = x->from + 1; t <= x->at; t++) {
        const SStep *step = &x->s->steps.v[t];
        if (x->gone[t]) continue;
        if (step->kind != STEP_kernel || writes_what_it_reads(x, step)) return false;
    }
    return true;
}

/* --- What is read where -----------------------------------------------------------------------
 */

/* Anything but a digit of the points, which is found once for all turns: elements of a row would
 * not lie side by side any more. */
static bool divides(const Inline *x, Expr e) {
    const ExprPool *p = x->f->p;
    const Kernel *k = kernel(x, x->at);
    switch (expr_op(p, e)) {
    case EX_const:
    case EX_sym: return false;
    case EX_add:
    case EX_mul: return divides(x, expr_arg(p, e, 0)) || divides(x, expr_arg(p, e, 1));
    default:
        if (!x->f->m->holds_turns) return true; /* nor would points */
    }
    for (uint32_t i = 0; i < k->naxes; i++)
        if (k->axes[i].kind != AX_PAR && expr_uses(p, e, k->axes[i].sym)) return true;
    return k->turns && expr_uses(p, e, k->turn);
}

/* The axis of that stride; NULL: none. */
static const KAxis *axis_of(const Inline *x, Expr index, Expr stride) {
    const Kernel *k = kernel(x, x->from);
    for (uint32_t i = 0; i < k->naxes; i++) {
        Expr coef, rest;
        if (expr_affine(x->f->p, index, k->axes[i].sym, &coef, &rest) && coef == stride)
            return &k->axes[i];
    }
    return NULL;
}

/* Elements are stored one after the other, so that an element's number has the axes as digits. */
static bool find_axes(Inline *x) {
    const Kernel *k = kernel(x, x->from);
    ExprPool *p = x->f->p;
    const Expr index = k->ops[x->store].index, at = kernel(x, x->at)->ops[x->load].index;
    Expr stride = expr_const(p, 1), sum = expr_const(p, 0);
    for (x->nsyms = 0; x->nsyms < k->naxes; x->nsyms++) {
        const KAxis *a = axis_of(x, index, stride);
        if (!a) return false;
        Expr digit = expr_div(p, at, stride);
        if (x->nsyms + 1 < k->naxes) digit = expr_mod(p, digit, a->extent);
        if (divides(x, digit)) return false;
        x->sym[x->nsyms] = a->sym, x->by[x->nsyms] = digit;
        sum = expr_add(p, sum, expr_mul(p, stride, expr_sym_ref(p, a->sym)));
        stride = expr_mul(p, stride, a->extent);
    }
    return sum == index;
}

static double points(const Inline *x, const Kernel *k) {
    double n = k->turns ? fuse_hint(x->f, k->turns) : 1;
    for (uint32_t i = 0; i < k->naxes; i++) n *= fuse_hint(x->f, k->axes[i].extent);
    return n;
}

/* It is computed once, or costs next to nothing. */
static bool pays(const Inline *x) {
    const Kernel *k = kernel(x, x->from);
    const double n = points(x, k);
    return points(x, kernel(x, x->at)) <= n ||
           fuse_hint(x->f, k->flops) <= n * x->f->m->inline_flops.data;
}

/* The kernel's only load from there, which may be taken in. */
static bool find(Inline *x, KVal load) {
    const Kernel *k = kernel(x, x->at);
    const KOp *o = &k->ops[load];
    if (o->op != K_kload || o->mask || k->params[o->buf].written) return false;
    for (KVal v = 1; v < k->nops; v++)
        if (v != load && k->ops[v].op == K_kload && k->ops[v].buf == o->buf) return false;
    x->load = load;
    return find_writer(x, x->s->steps.v[x->at].bufs[o->buf]) && is_simple(x) && can_wait(x) &&
           kernel(x, x->from)->nparams + k->nparams <= K_MAX_PARAMS && find_axes(x) && pays(x);
}

/* --- The joined body --------------------------------------------------------------------------
 */

static KOp moved(const Inline *x, Body *b, uint32_t step, KVal v, const KVal *to) {
    const SStep *t = &x->s->steps.v[step];
    KOp o = t->kernel->ops[v];
    for (int i = 0; i < 3; i++) o.in[i] = to[o.in[i]];
    if (o.op == K_kload || o.op == K_kstore)
        o.buf = body_param(b, t->bufs[o.buf], t->kernel->params[o.buf].written);
    return o;
}

/* As inside of any kernel, nothing is rounded for memory that it does not see (a cast of the graph
 * says what becomes of values that do not fit). */
static KVal joined(const Inline *x, Body *b, KVal v, const KVal *to) {
    const KOp *o = &kernel(x, x->at)->ops[v], *made = &b->ops.v[to[x->load]];
    const bool widened = v > x->load && o->op == OP_cast && o->in[0] == x->load &&
                         dtype_is_float((DType)o->dtype) && made->op == OP_cast && !made->imm.i;
    if (widened && b->ops.v[made->in[0]].dtype == o->dtype) return made->in[0];
    return body_op(b, moved(x, b, x->at, v, to));
}

static Expr substituted(const Inline *x, Expr e) {
    return e ? expr_subst(x->f->p, e, x->sym, x->by, x->nsyms) : 0;
}

static void take_in(Inline *x) {
    Fuse *f = x->f;
    SStep *t = &x->s->steps.v[x->at];
    const Kernel *k = t->kernel, *front = kernel(x, x->from);
    Body b = {.f = f, .k = arena_copy(f->arena, k, sizeof *k)};
    KVal *made = ARENA_ARRAY(f->arena, KVal, front->nops);
    KVal *to = ARENA_ARRAY(f->arena, KVal, k->nops);
    body_begin(&b);
    for (KVal v = 1; v < front->nops; v++) {
        if (v == x->store) continue;
        KOp o = moved(x, &b, x->from, v, made);
        o.index = substituted(x, o.index), o.mask = substituted(x, o.mask);
        made[v] = body_op(&b, o);
    }
    for (KVal v = 1; v < k->nops; v++)
        to[v] = v == x->load ? made[front->ops[x->store].in[0]] : joined(x, &b, v, to);
    body_prune(&b);
    b.k->nops = b.ops.n, b.k->ops = b.ops.v;
    b.k->nparams = b.params.n, b.k->params = b.params.v;
    b.k->bytes_read =
        expr_add(f->p, expr_sub(f->p, k->bytes_read, front->bytes_written), front->bytes_read);
    b.k->flops = expr_add(f->p, k->flops, front->flops);
    schedule_add_places(f->arena, b.k, front);
    t->kernel = b.k, t->bufs = b.bufs.v;
    x->gone[x->from] = true;
    for (uint32_t i = 0; i < x->s->refusals.n; i++) {
        Refusal *r = &x->s->refusals.v[i];
        if (r->producer == x->from) r->producer = x->at;
        if (r->consumer == x->from) r->consumer = x->at;
    }
}

void schedule_inline(Fuse *f, Schedule *s, uint32_t at, bool *gone) {
    Inline x = {.f = f, .s = s, .gone = gone, .at = at};
    for (KVal v = 1; v < kernel(&x, at)->nops; v++) {
        if (!find(&x, v)) continue;
        const SBuffer *b = &s->buffers.v[s->steps.v[at].bufs[kernel(&x, at)->ops[v].buf]];
        Fuse of = *f;
        of.g = b->graph;
        if (!fuse_may(&of, b->node, "computed where a loop reads it")) continue;
        take_in(&x);
        v = 0;
    }
}
