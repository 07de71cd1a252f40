#include "graph/grad/update/optimizer.h"
#include "graph/build/build.h"
#include "graph/grad/update/blockwise.h"

#include <string.h>

static const struct {
    const char *name;
    uint32_t moments;
    const char *options;
} optimizer_info[OPTIMIZER_KINDS] = {
#define OPTIMIZER(name, moments, options) [OPTIMIZER_##name] = {#name, moments, options},
#include "graph/grad/update/optimizer.def"
#undef OPTIMIZER
};

bool optimizer_default(const char *name, Optimizer *out) {
    static const Optimizer usual[OPTIMIZER_KINDS] = {
        [OPTIMIZER_sgd] = {.kind = OPTIMIZER_sgd, .momentum = 0},
        [OPTIMIZER_adamw] = {.kind = OPTIMIZER_adamw,
                             .beta1 = 0.9,
                             .beta2 = 0.999,
                             .eps = 1e-8,
                             .weight_decay = 0.01},
        [OPTIMIZER_adamw8bit] = {.kind = OPTIMIZER_adamw8bit,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-8,
                                 .weight_decay = 0.01},
        [OPTIMIZER_lion] = {.kind = OPTIMIZER_lion, .beta1 = 0.9, .beta2 = 0.99},
    };
    for (uint32_t k = 0; k < OPTIMIZER_KINDS; k++)
        if (strcmp(name, optimizer_info[k].name) == 0) return *out = usual[k], true;
    return false;
}

const char *optimizer_name(OptimizerKind kind) {
    return optimizer_info[kind].name;
}

bool optimizer_reads(const Optimizer *o, const char *option) {
    const size_t n = strlen(option);
    for (const char *at = optimizer_info[o->kind].options; *at; at += *at == ' ') {
        const size_t word = strcspn(at, " ");
        if (word == n && strncmp(at, option, n) == 0) return true;
        at += word;
    }
    return false;
}

/* Moments of 8 bits pay for their scales in large tensors only. */
static bool in_8_bits(const Optimizer *o, ExprPool *p, const Type *param) {
    int64_t n;
    if (o->kind != OPTIMIZER_adamw8bit) return false;
    return expr_is_const(p, type_numel(p, param), &n) && n >= OPTIMIZER_LEAST_8BIT;
}

uint32_t optimizer_states(const Optimizer *o, ExprPool *p, const Type *param, OptimizerState *out) {
    static const char *const moment[] = {"m", "v"}, *const scale[] = {"m.absmax", "v.absmax"};
    const uint32_t moments =
        o->kind == OPTIMIZER_sgd && o->momentum == 0 ? 0 : optimizer_info[o->kind].moments;
    const bool blocks = in_8_bits(o, p, param);
    Type wide = *param, code = {.dtype = DT_u8, .rank = 2};
    wide.dtype = DT_f32;
    code.dim[0] = blockwise_blocks(p, param);
    code.dim[1] = expr_const(p, BLOCKWISE_BLOCK);
    uint32_t n = 0;
    for (uint32_t i = 0; i < moments; i++) {
        out[n++] = (OptimizerState){moment[i], blocks ? code : wide};
        if (blocks)
            out[n++] =
                (OptimizerState){scale[i], {.dtype = DT_f32, .rank = 1, .dim = {code.dim[0]}}};
    }
    return n;
}

static Value mul(Graph *g, Value x, Value y) {
    return build_binary(g, OP_mul, x, y);
}

static Value add(Graph *g, Value x, Value y) {
    return build_binary(g, OP_add, x, y);
}

static Value times(Graph *g, Value x, double c) {
    return build_binary_f(g, OP_mul, x, c);
}

Value optimizer_norm(Graph *g, uint32_t n, const Value *grad) {
    Value sum = build_scalar_f(g, DT_f32, 0);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t rank = graph_type(g, grad[i])->rank;
        Value square = mul(g, grad[i], grad[i]);
        if (rank) square = build_reduce(g, OP_reduce_sum, square, (1u << rank) - 1, false);
        sum = add(g, sum, square);
    }
    return build_unary(g, OP_sqrt, sum);
}

/* min(1, clip / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ has it. */
Value optimizer_clip(Graph *g, const Optimizer *o, Value norm) {
    Value limit = build_scalar_f(g, DT_f32, o->clip);
    return build_binary_f(g, OP_min,
                          build_binary(g, OP_div, limit, build_binary_f(g, OP_add, norm, 1e-6)), 1);
}

/* 1 - beta^step in f64: in f32 its relative error is 6e-5 in the first steps of beta = 0.999. */
static Value correction(Graph *g, double beta, Value step) {
    Value power =
        build_binary(g, OP_pow, build_scalar_f(g, DT_f64, beta), build_cast(g, step, DT_f64));
    return build_binary(g, OP_sub, build_scalar_f(g, DT_f64, 1), power);
}

OptimizerStep optimizer_step(Graph *g, const Optimizer *o, Value lr, Value step) {
    OptimizerStep s = {.lr = lr};
    if (o->kind != OPTIMIZER_adamw && o->kind != OPTIMIZER_adamw8bit) return s;
    Value wide = build_cast(g, lr, DT_f64);
    s.rate = build_cast(g, build_binary(g, OP_div, wide, correction(g, o->beta1, step)), DT_f32);
    s.unbias = build_cast(g, build_unary(g, OP_rsqrt, correction(g, o->beta2, step)), DT_f32);
    return s;
}

Value optimizer_choose(Graph *g, const OptimizerStep *s, Value next, Value before) {
    return s->fine ? build_select(g, s->fine, next, before) : next;
}

/* x c + y (1 - c) */
static Value blend(Graph *g, Value x, double c, Value y) {
    return add(g, times(g, x, c), times(g, y, 1 - c));
}

/* p (1 - lr decay) */
static Value decayed(Graph *g, const Optimizer *o, Value lr, Value p) {
    if (o->weight_decay == 0) return p;
    Value keep =
        build_binary(g, OP_sub, build_scalar_f(g, DT_f32, 1), times(g, lr, o->weight_decay));
    return mul(g, p, keep);
}

static void sgd(Graph *g, const Optimizer *o, const OptimizerStep *s, Value p, Value d,
                const Value *moment, Value *next) {
    if (o->weight_decay != 0) d = add(g, d, times(g, p, o->weight_decay));
    if (o->momentum != 0) {
        next[1] = add(g, times(g, moment[0], o->momentum), d);
        next[1] = optimizer_choose(g, s, next[1], moment[0]);
        d = o->nesterov ? add(g, d, times(g, next[1], o->momentum)) : next[1];
    }
    next[0] = build_binary(g, OP_sub, p, mul(g, d, s->lr));
}

/* The way that moments lead: m / (1 - beta1^t) lr / (sqrt(v / (1 - beta2^t)) + eps) */
static Value adam_move(Graph *g, const Optimizer *o, const OptimizerStep *s, Value m, Value v) {
    Value scale = mul(g, build_unary(g, OP_sqrt, v), s->unbias);
    return build_binary(g, OP_div, mul(g, m, s->rate), build_binary_f(g, OP_add, scale, o->eps));
}

static void adamw(Graph *g, const Optimizer *o, const OptimizerStep *s, Value p, Value d,
                  const Value *moment, Value *next) {
    next[1] = optimizer_choose(g, s, blend(g, moment[0], o->beta1, d), moment[0]);
    next[2] = optimizer_choose(g, s, blend(g, moment[1], o->beta2, mul(g, d, d)), moment[1]);
    Value move = adam_move(g, o, s, next[1], next[2]);
    next[0] = build_binary(g, OP_sub, decayed(g, o, s->lr, p), move);
}

static void adamw8bit(Graph *g, const Optimizer *o, const OptimizerStep *s, Value p, Value d,
                      const Value *state, Value *next) {
    const Type t = *graph_type(g, p);
    if (!in_8_bits(o, g->exprs, &t)) {
        adamw(g, o, s, p, d, state, next);
        return;
    }
    d = blockwise_rows(g, d);
    Value m = blockwise_unpack(g, (Blockwise){state[0], state[1]}, true),
          v = blockwise_unpack(g, (Blockwise){state[2], state[3]}, false);
    m = blend(g, m, o->beta1, d);
    v = blend(g, v, o->beta2, mul(g, d, d));
    Value moved = build_binary(g, OP_sub, blockwise_rows(g, p), adam_move(g, o, s, m, v));
    next[0] = blockwise_unrow(g, decayed(g, o, s->lr, moved), &t);
    const Blockwise m8 = blockwise_pack(g, m, true), v8 = blockwise_pack(g, v, false);
    const Value made[] = {m8.code, m8.scale, v8.code, v8.scale};
    for (uint32_t i = 0; i < 4; i++) next[i + 1] = optimizer_choose(g, s, made[i], state[i]);
}

static void lion(Graph *g, const Optimizer *o, const OptimizerStep *s, Value p, Value d,
                 const Value *moment, Value *next) {
    Value way = build_unary(g, OP_sign, blend(g, moment[0], o->beta1, d));
    next[1] = optimizer_choose(g, s, blend(g, moment[0], o->beta2, d), moment[0]);
    next[0] = build_binary(g, OP_sub, decayed(g, o, s->lr, p), mul(g, way, s->lr));
}

typedef void (*Update)(Graph *, const Optimizer *, const OptimizerStep *, Value, Value,
                       const Value *, Value *);

void optimizer_update(Graph *g, const Optimizer *o, const OptimizerStep *s, Value param, Value grad,
                      const Value *state, Value *next) {
    static const Update update[OPTIMIZER_KINDS] = {
        [OPTIMIZER_sgd] = sgd,
        [OPTIMIZER_adamw] = adamw,
        [OPTIMIZER_lion] = lion,
        [OPTIMIZER_adamw8bit] = adamw8bit,
    };
    update[o->kind](g, o, s, param, grad, state, next);
}
