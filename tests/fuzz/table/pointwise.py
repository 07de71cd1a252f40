"""Rows of operators that go element by element."""
import numpy as np

from .node import ANY, FLOATS, INTS, NP, T, Refused, rows


# --- one operand, elementwise --------------------------------------------------------------------------------

RANGE = dict(Acos=(-1, 1), Asin=(-1, 1), Atanh=(-0.95, 0.95), Acosh=(1, 4), Log=(0.1, 4), Sqrt=(0, 4), Reciprocal=(0.4, 3), Tan=(-1.3, 1.3))


@rows(*"Acos Asin Atanh Acosh Log Sqrt Reciprocal Tan Abs Asinh Atan Cos Cosh Erf Exp Neg Sigmoid Sign Sin Sinh Tanh Softplus Softsign Relu HardSwish Mish Identity".split())
def unary(n, kind):
    t = n.pick(*(ANY[:-1] if kind in ("Abs", "Neg", "Sign", "Relu", "Identity") else FLOATS))
    if kind == "Mish" and n.opset < 18 or kind == "Neg" and t[0] == "u":
        raise Refused
    return [n.x(n.shape(), t, *RANGE.get(kind, (-3, 4)), whole=True if kind == "Sign" else None)], {}


@rows("Ceil", "Floor", "Round", "IsNaN", "IsInf")
def jumps(n, kind):
    t = n.float()
    x = n.values(n.shape(), t, -7, 8, whole=True) * np.asarray(n.pick(1, 0.5, 0.25), NP[t])
    if kind[:2] == "Is" and x.size:
        x.ravel()[:: n.r.randint(1, 4)] = n.pick(np.nan, np.inf, -np.inf)
    more = {k: n.r.randint(0, 1) for k in ("detect_negative", "detect_positive")} if kind == "IsInf" and n.chance() else {}
    return [n.put(x)], more


@rows("Not", "BitwiseNot")
def invert(n, kind):
    if kind == "BitwiseNot" and n.opset < 18:
        raise Refused
    return [n.x(n.shape(), "bool" if kind == "Not" else n.pick(*INTS), -128, 127)], {}


ALPHA = dict(Elu=["alpha"], Celu=["alpha"], LeakyRelu=["alpha"], HardSigmoid=["alpha", "beta"], Selu=["alpha", "gamma"], ThresholdedRelu=["alpha"], Shrink=["bias", "lambd"], Gelu=[])


@rows(*ALPHA)
def with_alpha(n, kind):
    if kind == "Gelu" and n.opset < 20:
        raise Refused
    t = n.float() if kind != "Shrink" else n.pick("f32", "i32", "i64", "u8", "i8")  # f64: onnxruntime's is f32
    more = {k: n.pick(0.3, 0.5, 1.5, 2.0) for k in ALPHA[kind] if n.chance(0.7)}
    if kind == "Gelu" and n.chance():
        more = {"approximate": n.pick("none", "tanh") if t != "f64" else "none"}  # onnxruntime's constants are of f32
    whole = True if kind in ("ThresholdedRelu", "Shrink") else None
    if whole:
        more = {k: v + 0.2 if k != "bias" else v for k, v in more.items()} if t[0] == "f" else {k: float(round(v)) for k, v in more.items()}
    return [n.x(n.shape(), t, whole=whole)], more


@rows("Clip")
def clip(n, kind):
    t = n.pick(*ANY[:-1])
    ins = [n.x(n.shape(), t)]
    low, high = n.const(n.pick(1, 0), t), n.put(np.asarray(2, NP[t]))
    return ins + n.pick([], [low], [low, high], ["", high]), {}


@rows("Cast")
def cast(n, kind):
    a, b = n.pick(*ANY), n.pick(*ANY)
    low = 0 if b[0] == "u" or b == "bool" else -3
    return [n.x(n.shape(), a, low, 100 if n.chance(0.3) else 4, whole=True if b[0] in "iub" else None)], {"to": T[b]}


@rows("CastLike")
def cast_like(n, kind):
    a, b = n.pick(*ANY), n.pick(*ANY)
    return [n.x(n.shape(), a, 0, 4, whole=True), n.x([n.size()], b)], {}


@rows("Hardmax", "Softmax", "LogSoftmax")
def along(n, kind):
    s = n.shape(1)
    return [n.x(s, n.float(), whole=False)], {"axis": n.axis(s)[1]} if n.chance(0.8) else {}


@rows("Dropout")
def dropout(n, kind):
    n.outs = n.pick(1, 2)
    ins = [n.x(n.shape(), n.float())]
    if n.chance():
        ins += [n.const(0.3, "f32")] + ([n.const(False, "bool")] if n.chance() else [])
    return ins, {}


@rows("PRelu")
def prelu(n, kind):
    n.broadcasts = True
    a = n.shape(1)
    b = [1 if n.chance(0.4) else d for d in a][n.r.randrange(len(a)):]
    t = n.float()
    return [n.x(a, t), n.x(b, t)], {}


# --- two and more operands ---------------------------------------------------------------------------------------

@rows("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
def arithmetic(n, kind):
    t = n.pick(*ANY[:-1]) if kind != "Equal" else n.pick(*ANY)
    a, b = n.two()
    more, low, high = {}, -3, 4
    u = n.pick(*ANY[:-1]) if kind == "Pow" and n.chance(0.4) else t
    if kind == "Pow":
        return [n.x(a, t, 1, 3, whole=t[0] != "f"), n.x(b, u, 0, 3, whole=u[0] != "f" or t[0] != "f")], {}
    jump = kind not in ("Add", "Sub", "Mul", "Div")
    if kind == "Mod":
        more = {"fmod": 1} if t[0] == "f" else {"fmod": n.r.randint(0, 1)} if n.chance() else {}
    x, y = n.values(a, t, -9, 10, whole=jump or None), n.values(b, t, -3, 4, whole=jump or None)
    if kind in ("Div", "Mod") and y.size:
        y = np.where(np.abs(y.astype(np.float64)) < 0.4, np.asarray(2, y.dtype), y)
    return [n.put(x), n.put(y)], more


@rows("And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift")
def logic(n, kind):
    if kind[:4] == "Bitw" and n.opset < 18:
        raise Refused
    t = "bool" if kind in ("And", "Or", "Xor") else n.pick(*INTS) if kind != "BitShift" else n.pick("u8", "u16", "u32", "u64")
    a, b = n.two()
    more = {"direction": n.pick("LEFT", "RIGHT")} if kind == "BitShift" else {}
    return [n.x(a, t, -128, 127), n.x(b, t, *((0, 8) if more else (-128, 127)))], more


@rows("Max", "Min", "Sum", "Mean")
def variadic(n, kind):
    t = n.pick(*(ANY[:-1] if kind[0] == "M" and kind != "Mean" else FLOATS))
    a, b = n.two()
    return [n.x(s, t) for s in [a, b, a][:n.r.randint(1, 3)]], {}


@rows("Where")
def where(n, kind):
    t = n.pick(*ANY)
    a, b = n.two()
    c = [1 if n.chance(0.3) else d for d in a]
    return [n.x(b, "bool"), n.x(a, t), n.x(c if n.chance() else [], t)], {}
