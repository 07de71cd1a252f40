/* Element-wise arithmetic, comparison, logic, bits and casts. */
#include "frontend/import/onnx_op.h"
#include <string.h>

typedef struct NamedOp {
    const char *name;
    Op op;
} NamedOp;

static const NamedOp named_ops[] = {
    {"Abs", OP_abs},          {"Acos", OP_acos},      {"Acosh", OP_acosh},
    {"Asin", OP_asin},        {"Asinh", OP_asinh},    {"Atan", OP_atan},
    {"Atanh", OP_atanh},      {"Ceil", OP_ceil},      {"Cos", OP_cos},
    {"Cosh", OP_cosh},        {"Erf", OP_erf},        {"Exp", OP_exp},
    {"Floor", OP_floor},      {"IsNaN", OP_isnan},    {"Log", OP_log},
    {"Neg", OP_neg},          {"Not", OP_not},        {"BitwiseNot", OP_not},
    {"Reciprocal", OP_recip}, {"Round", OP_round},    {"Sigmoid", OP_sigmoid},
    {"Sign", OP_sign},        {"Sin", OP_sin},        {"Sinh", OP_sinh},
    {"Sqrt", OP_sqrt},        {"Tan", OP_tan},        {"Tanh", OP_tanh},
    {"Add", OP_add},          {"Sub", OP_sub},        {"Mul", OP_mul},
    {"Div", OP_div},          {"And", OP_and},        {"Or", OP_or},
    {"Xor", OP_xor},          {"BitwiseAnd", OP_and}, {"BitwiseOr", OP_or},
    {"BitwiseXor", OP_xor},   {"Equal", OP_eq},       {"Less", OP_lt},
    {"LessOrEqual", OP_le},   {"Greater", OP_lt},     {"GreaterOrEqual", OP_le},
    {"Max", OP_max},          {"Min", OP_min},        {"Sum", OP_add},
    {"Pow", OP_pow},
};

static Op core_op(const Lower *l) {
    for (size_t i = 0; i < sizeof named_ops / sizeof *named_ops; i++)
        if (!strcmp(named_ops[i].name, lower_op_name(l))) return named_ops[i].op;
    GC_ASSERT(false && "every row that asks is in the table");
    return OP_none;
}

static bool lower_unary(Lower *l) {
    lower_out(l, 0, build_unary(lower_graph(l), core_op(l), lower_in(l, 0)));
    return true;
}

static bool lower_not(Lower *l) {
    return lower_is(l, 0, TYPES_BOOL) && lower_unary(l);
}

static bool lower_binary(Lower *l) {
    const bool swap = lower_op_name(l)[0] == 'G'; /* Greater, GreaterOrEqual */
    Value x = lower_in(l, swap), y = lower_in(l, !swap);
    lower_out(l, 0, build_binary(lower_graph(l), core_op(l), x, y));
    return true;
}

static bool lower_logic(Lower *l) {
    return lower_is(l, 0, TYPES_BOOL) && lower_is(l, 1, TYPES_BOOL) && lower_binary(l);
}

/* Before opset 7: the second operand's dimensions are matched from `axis` on, or at the end. */
static Value legacy_operand(Lower *l) {
    Graph *g = lower_graph(l);
    const Type *x = lower_type(l, 0), *y = lower_type(l, 1);
    Value v = lower_in(l, 1);
    if (!lower_i(l, "broadcast") || !lower_has_attr(l, "axis") || y->rank == 0) return v;
    const int axis = lower_axis(l, lower_i(l, "axis"), x->rank);
    if (axis < 0 || axis + y->rank > x->rank) return 0;
    Type t = *y;
    while (axis + t.rank < x->rank) t.dim[t.rank++] = expr_const(lower_exprs(l), 1);
    return build_reshape(g, v, t.rank, t.dim);
}

static bool lower_legacy_binary(Lower *l) {
    Value x = lower_in(l, 0), y = legacy_operand(l);
    if (!y) return lower_error(l, D_SHAPE, "the second input does not fit at 'axis'");
    const bool swap = lower_op_name(l)[0] == 'G';
    lower_out(l, 0, build_binary(lower_graph(l), core_op(l), swap ? y : x, swap ? x : y));
    return true;
}

static bool lower_variadic(Lower *l) {
    Graph *g = lower_graph(l);
    Value v = lower_in(l, 0);
    for (uint32_t i = 1; i < lower_nin(l); i++)
        v = build_binary(g, core_op(l), v, lower_need(l, i));
    lower_out(l, 0, v);
    return true;
}

static bool lower_mean(Lower *l) {
    Graph *g = lower_graph(l);
    Value v = lower_in(l, 0);
    if (!lower_is(l, 0, TYPES_FLOAT)) return false;
    for (uint32_t i = 1; i < lower_nin(l); i++) v = build_binary(g, OP_add, v, lower_need(l, i));
    lower_out(l, 0, build_binary_f(g, OP_div, v, (double)lower_nin(l)));
    return true;
}

/* The result has the base's type. An integer base with a float exponent is raised in float. */
static bool lower_pow(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), y = lower_in(l, 1);
    const DType tx = lower_type(l, 0)->dtype, ty = lower_type(l, 1)->dtype;
    if (tx == ty) {
        lower_out(l, 0, build_binary(g, OP_pow, x, y));
    } else if (!dtype_is_float(tx) && dtype_is_float(ty)) {
        Value v = build_binary(g, OP_pow, build_cast(g, x, ty), y);
        lower_out(l, 0, build_cast(g, v, tx));
    } else {
        lower_out(l, 0, build_binary(g, OP_pow, x, build_cast(g, y, tx)));
    }
    return true;
}

static bool lower_legacy_pow(Lower *l) {
    Value y = legacy_operand(l);
    if (!y) return lower_error(l, D_SHAPE, "the second input does not fit at 'axis'");
    lower_out(l, 0, build_binary(lower_graph(l), OP_pow, lower_in(l, 0), y));
    return true;
}

static bool lower_mod(Lower *l) {
    const bool fmod = lower_i(l, "fmod") != 0;
    if (!fmod && dtype_is_float(lower_type(l, 0)->dtype))
        return lower_error(l, D_ATTRIBUTE, "floating-point operands need fmod = 1");
    lower_out(l, 0,
              build_binary(lower_graph(l), fmod ? OP_rem : OP_mod, lower_in(l, 0), lower_in(l, 1)));
    return true;
}

static bool lower_bit_shift(Lower *l) {
    static const char *const directions[] = {"LEFT", "RIGHT", NULL};
    static const Op ops[] = {OP_shl, OP_shr};
    int direction;
    if (!lower_choice(l, "direction", directions, &direction)) return false;
    lower_out(l, 0, build_binary(lower_graph(l), ops[direction], lower_in(l, 0), lower_in(l, 1)));
    return true;
}

static bool lower_clip_attrs(Lower *l) {
    Graph *g = lower_graph(l);
    Value v = lower_in(l, 0);
    if (lower_has_attr(l, "min")) v = build_binary_f(g, OP_max, v, lower_f(l, "min"));
    if (lower_has_attr(l, "max")) v = build_binary_f(g, OP_min, v, lower_f(l, "max"));
    lower_out(l, 0, v);
    return true;
}

static bool lower_clip(Lower *l) {
    Graph *g = lower_graph(l);
    Value v = lower_in(l, 0);
    for (uint32_t i = 1; i <= 2; i++) {
        if (!lower_has_in(l, i)) continue;
        Value bound = build_reshape(g, lower_in(l, i), 0, NULL);
        v = build_binary(g, i == 1 ? OP_max : OP_min, v, bound);
    }
    lower_out(l, 0, v);
    return true;
}

static bool lower_where(Lower *l) {
    if (!lower_is(l, 0, TYPES_BOOL)) return false;
    lower_out(l, 0, build_select(lower_graph(l), lower_in(l, 0), lower_in(l, 1), lower_in(l, 2)));
    return true;
}

static bool lower_is_inf(Lower *l) {
    Graph *g = lower_graph(l);
    Value x = lower_in(l, 0), v = build_unary(g, OP_isinf, x);
    const bool negative = lower_i(l, "detect_negative"), positive = lower_i(l, "detect_positive");
    Value zero = build_scalar_f(g, lower_type(l, 0)->dtype, 0);
    if (!positive) v = build_binary(g, OP_and, v, build_binary(g, OP_lt, x, zero));
    if (!negative) v = build_binary(g, OP_and, v, build_binary(g, OP_lt, zero, x));
    lower_out(l, 0, v);
    return true;
}

static bool cast_to(Lower *l, DType to) {
    static const char *const modes[] = {"nearest", "up", "down", NULL};
    int round;
    if (!lower_choice(l, "round_mode", modes, &round)) return false;
    lower_out(l, 0,
              build_cast_ex(lower_graph(l), lower_in(l, 0), to, lower_i(l, "saturate") != 0,
                            to == DT_f8e8m0 ? (uint8_t)round : 0));
    return true;
}

static bool lower_cast(Lower *l) {
    DType to;
    return lower_dtype(l, "to", &to) && cast_to(l, to);
}

static bool lower_cast_like(Lower *l) {
    return cast_to(l, lower_type(l, 1)->dtype);
}

static bool lower_bit_cast(Lower *l) {
    DType to;
    if (!lower_dtype(l, "to", &to)) return false;
    lower_out(l, 0, build_bitcast(lower_graph(l), lower_in(l, 0), to));
    return true;
}

static const char *const no_attrs[] = {"consumed_inputs:I", NULL}; /* a leftover of opset 1 */
static const char *const legacy_attrs[] = {"axis:i", "broadcast:i=0", "consumed_inputs:I", NULL};
static const char *const mod_attrs[] = {"fmod:i=0", NULL};
static const char *const shift_attrs[] = {"direction:s!", NULL};
static const char *const clip_attrs[] = {"min:f", "max:f", "consumed_inputs:I", NULL};
static const char *const inf_attrs[] = {"detect_negative:i=1", "detect_positive:i=1", NULL};
static const char *const cast_attrs[] = {"to:i!", "saturate:i=1", "round_mode:s=up", NULL};
static const char *const like_attrs[] = {"saturate:i=1", "round_mode:s=up", NULL};
static const char *const bit_cast_attrs[] = {"to:i!", NULL};

#define UNARY(name, since)                                                                         \
    { "", name, since, 0, 1, 1, 1, 1, no_attrs, lower_unary }
#define BINARY(name, since)                                                                        \
    { "", name, since, 0, 2, 2, 1, 1, NULL, lower_binary }
#define LEGACY(name)                                                                               \
    { "", name, 1, 6, 2, 2, 1, 1, legacy_attrs, lower_legacy_binary }
#define VARIADIC(name)                                                                             \
    { "", name, 1, 0, 1, -1, 1, 1, no_attrs, lower_variadic }

const OnnxOp ops_math[] = {
    UNARY("Abs", 1),
    UNARY("Acos", 7),
    UNARY("Acosh", 9),
    UNARY("Asin", 7),
    UNARY("Asinh", 9),
    UNARY("Atan", 7),
    UNARY("Atanh", 9),
    UNARY("BitwiseNot", 18),
    UNARY("Ceil", 1),
    UNARY("Cos", 7),
    UNARY("Cosh", 9),
    UNARY("Erf", 9),
    UNARY("Exp", 1),
    UNARY("Floor", 1),
    UNARY("IsNaN", 9),
    UNARY("Log", 1),
    UNARY("Neg", 1),
    UNARY("Reciprocal", 1),
    UNARY("Round", 11),
    UNARY("Sigmoid", 1),
    UNARY("Sign", 9),
    UNARY("Sin", 7),
    UNARY("Sinh", 9),
    UNARY("Sqrt", 1),
    UNARY("Tan", 7),
    UNARY("Tanh", 1),
    {"", "Not", 1, 0, 1, 1, 1, 1, NULL, lower_not},
    LEGACY("Add"),
    LEGACY("Sub"),
    LEGACY("Mul"),
    LEGACY("Div"),
    LEGACY("And"),
    LEGACY("Or"),
    LEGACY("Xor"),
    LEGACY("Equal"),
    LEGACY("Less"),
    LEGACY("Greater"),
    BINARY("Add", 7),
    BINARY("Sub", 7),
    BINARY("Mul", 7),
    BINARY("Div", 7),
    BINARY("BitwiseAnd", 18),
    BINARY("BitwiseOr", 18),
    BINARY("BitwiseXor", 18),
    BINARY("Equal", 7),
    BINARY("Less", 7),
    BINARY("LessOrEqual", 12),
    BINARY("Greater", 7),
    BINARY("GreaterOrEqual", 12),
    {"", "And", 7, 0, 2, 2, 1, 1, NULL, lower_logic},
    {"", "Or", 7, 0, 2, 2, 1, 1, NULL, lower_logic},
    {"", "Xor", 7, 0, 2, 2, 1, 1, NULL, lower_logic},
    VARIADIC("Max"),
    VARIADIC("Min"),
    VARIADIC("Sum"),
    {"", "Mean", 1, 0, 1, -1, 1, 1, no_attrs, lower_mean},
    {"", "Pow", 1, 6, 2, 2, 1, 1, legacy_attrs, lower_legacy_pow},
    {"", "Pow", 7, 0, 2, 2, 1, 1, NULL, lower_pow},
    {"", "Mod", 10, 0, 2, 2, 1, 1, mod_attrs, lower_mod},
    {"", "BitShift", 11, 0, 2, 2, 1, 1, shift_attrs, lower_bit_shift},
    {"", "Clip", 1, 10, 1, 1, 1, 1, clip_attrs, lower_clip_attrs},
    {"", "Clip", 11, 0, 1, 3, 1, 1, NULL, lower_clip},
    {"", "Where", 9, 0, 3, 3, 1, 1, NULL, lower_where},
    {"", "IsInf", 10, 0, 1, 1, 1, 1, inf_attrs, lower_is_inf},
    {"", "Cast", 6, 0, 1, 1, 1, 1, cast_attrs, lower_cast},
    {"", "CastLike", 15, 0, 2, 2, 1, 1, like_attrs, lower_cast_like},
    {"", "BitCast", 26, 0, 1, 1, 1, 1, bit_cast_attrs, lower_bit_cast},
    {0},
};
