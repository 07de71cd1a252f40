"""Random nodes over the op table, each with operands, types and attributes of its own: `graphs.py run --of table`.

make(seed) gives a model of several nodes that do not meet, so that one file tries many. A node gets its operands from
inputs, open in some of their sizes, or from constants; a pointwise operator may stand behind it, for fusion. What onnxruntime
refuses is left out. Operators that jump see whole numbers. Comments say where onnxruntime's own answer is not ONNX's.
"""
import random

import numpy as np
from onnx import helper as h, numpy_helper

T = dict(f32=1, u8=2, i8=3, u16=4, i16=5, i32=6, i64=7, bool=9, f16=10, f64=11, u32=12, u64=13)
NP = {"f32": "float32", "u8": "uint8", "i8": "int8", "u16": "uint16", "i16": "int16", "i32": "int32", "i64": "int64",
      "bool": "bool", "f16": "float16", "f64": "float64", "u32": "uint32", "u64": "uint64"}
FLOATS, INTS = ["f32", "f32", "f32", "f64", "f16"], ["i64", "i32", "i32", "i8", "u8", "i16", "u16", "u32", "u64"]
ANY = FLOATS + INTS + ["bool"]
OPSETS = [17, 18, 20, 21, 22]


class Refused(Exception):
    """Such a node cannot be made of these choices."""


class Node:
    """One node to be: its operands, attributes, and what stands around it."""

    def __init__(self, r, rng, opset, at):
        self.r, self.rng, self.opset, self.at = r, rng, opset, at
        self.inputs, self.inits, self.feed, self.count = [], [], {}, 0
        self.sizes, self.outs, self.domain = {}, 1, ""
        self.broadcasts = self.fixed = False
        self.many = False  # its outputs after the first are compared, too
        self.constant = r.random() < 0.15

    def size(self, zero=True):
        return self.r.choice([1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33] + ([0] if zero and self.r.random() < 0.15 else []))

    def shape(self, least=0, most=4, zero=True):
        return [self.size(zero) for _ in range(self.r.randint(least, most))]

    def values(self, shape, t, low=-3, high=4, whole=None):
        whole = self.r.random() < 0.3 if whole is None else whole
        if t == "bool":
            return self.rng.integers(0, 2, shape).astype(bool)
        if t[0] in "iu":
            low = max(low, 0) if t[0] == "u" else low
            return np.asarray(self.rng.integers(int(np.ceil(low)), max(int(high), int(np.ceil(low)) + 1), shape)).astype(NP[t])
        x = self.rng.integers(int(np.ceil(low)), max(int(high), int(np.ceil(low)) + 1), shape) if whole else self.rng.uniform(low, high, shape)
        return np.asarray(x, NP[t])

    def put(self, x, constant=None):
        """An operand with this value: gives its name."""
        x = np.asarray(x)
        n = f"n{self.at}_{self.count}"
        self.count += 1
        if self.constant if constant is None else constant:
            self.inits.append(numpy_helper.from_array(x, n))
            return n
        dims = [self.open(d) for d in x.shape]
        self.inputs.append(h.make_tensor_value_info(n, h.np_dtype_to_tensor_dtype(x.dtype), dims))
        self.feed[n] = x
        return n

    def open(self, d):
        if d == 0 or self.fixed or d == 1 and self.broadcasts or self.r.random() > 0.35:  # an open size is at least 1 and never broadcasts
            return d
        if d not in self.sizes or self.r.random() < 0.1:
            self.sizes[d] = f"s{self.at}_{d}_{len(self.inputs)}"
        return self.sizes[d]

    def x(self, shape, t, low=-3, high=4, whole=None, constant=None):
        return self.put(self.values(shape, t, low, high, whole), constant)

    def const(self, x, t="i64"):
        return self.put(np.asarray(x, NP[t]), True)

    def side(self, x, t="i64"):
        """What decides a shape: mostly a constant."""
        return self.put(np.asarray(x, NP[t]), self.constant or self.r.random() < 0.85)

    def float(self):
        return self.r.choice(FLOATS)

    def axis(self, shape):
        if not shape:
            raise Refused
        a = self.r.randrange(len(shape))
        return a, a - len(shape) if self.r.random() < 0.4 else a

    def some_axes(self, rank, least=1):
        a = sorted(self.r.sample(range(rank), self.r.randint(least, rank)))
        return a, [i - rank if self.r.random() < 0.4 else i for i in a]

    def two(self, most=4):
        """Shapes that broadcast."""
        self.broadcasts = True
        a = self.shape(0, most)
        b = [1 if self.r.random() < 0.3 else d for d in a][self.r.randint(0, len(a)) if a and self.r.random() < 0.4 else 0:]
        a = [1 if d > 1 and self.r.random() < 0.1 and i >= len(a) - len(b) else d for i, d in enumerate(a)]
        return (a, b) if self.r.random() < 0.7 else (b, a)

    def chance(self, p=0.5):
        return self.r.random() < p

    def pick(self, *of):
        return self.r.choice(of)


TABLE = {}


def rows(*names, weight=1):
    def add(fn):
        for n in names:
            TABLE[n] = fn
        return fn
    return add


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


# --- reductions ---------------------------------------------------------------------------------------------------

@rows(*"ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare".split())
def reductions(n, kind):
    whole = ["i32", "i64"] if "Log" not in kind and kind != "ReduceL2" else []  # onnxruntime takes logarithms in integers
    t = n.pick(*FLOATS, *whole, *(["i8", "u8"] if kind in ("ReduceMax", "ReduceMin") else []))
    s = n.shape(0, 4, zero=kind not in ("ReduceMax", "ReduceMin", "ReduceMean"))
    if kind == "ReduceProd":
        s = [min(d, 3) for d in s]
    x = n.x(s, t, *((0.5, 2) if kind in ("ReduceLogSum", "ReduceProd") else (-3, 4)))
    more = {"keepdims": n.r.randint(0, 1)} if n.chance(0.7) else {}
    axes = n.some_axes(len(s))[0 not in s] if s and n.chance(0.8) else None  # of nothing, onnxruntime misreads negative axes
    if n.opset >= 18 or kind == "ReduceSum":
        if n.chance(0.25):
            more["noop_with_empty_axes"] = n.r.randint(0, 1)
        return [x] + ([n.const(axes)] if axes is not None else [n.const(np.zeros(0))] if n.chance(0.2) else []), more
    return [x], {**more, **({"axes": axes} if axes else {})}


@rows("ArgMax", "ArgMin")
def arg(n, kind):
    s = n.shape(1, 4, zero=False)
    more = {k: v for k, v in dict(axis=n.axis(s)[1], keepdims=n.r.randint(0, 1), select_last_index=n.r.randint(0, 1)).items() if n.chance(0.7)}
    return [n.x(s, n.pick("f32", "f64", "f16", "i32", "i8", "u8"), whole=True)], more


@rows("CumSum")
def cumulative(n, kind):
    s = n.shape(1)
    return [n.x(s, n.pick("f32", "f64", "i32", "i64")), n.const(n.axis(s)[1], n.pick("i32", "i64"))], {k: n.r.randint(0, 1) for k in ("exclusive", "reverse") if n.chance(0.7)}


@rows("TopK")
def top(n, kind):
    s = n.shape(1, 4, zero=False)
    a, axis = n.axis(s)
    t = n.pick("f32", "f64", "i32", "i64")
    x = n.rng.permutation(int(np.prod(s))).reshape(s).astype(NP[t])
    n.outs, n.many = 2, True
    return [n.put(x), n.side([n.r.randint(0, s[a])])], {"axis": axis, "largest": n.r.randint(0, 1)}


# --- shapes and moves -------------------------------------------------------------------------------------------------

@rows("Transpose")
def transpose(n, kind):
    s = n.shape(0, 5)
    perm = list(range(len(s)))
    n.r.shuffle(perm)
    return [n.x(s, n.pick(*ANY))], {"perm": perm} if perm and n.chance(0.8) else {}


@rows("Reshape")
def reshape(n, kind):
    s = n.shape(0, 4)
    whole = int(np.prod(s))
    to = []
    for d in s:  # each size as it is, split, or joined with the one before
        by = n.pick(*[b for b in range(1, d + 1) if d % b == 0]) if d else 0
        if to and n.chance(0.3):
            to[-1] *= d
        elif d and n.chance(0.4):
            to += [by, d // by]
        else:
            to.append(d)
    allow = 1 if 0 in to and n.chance() else 0
    if whole:
        if to and n.chance(0.4):
            to[n.r.randrange(len(to))] = -1
        for i, d in enumerate(to):
            if not allow and i < len(s) and d == s[i] and n.chance(0.2):
                to[i] = 0
    elif not allow and any(d == 0 and (i >= len(s) or s[i] != 0) for i, d in enumerate(to)):
        raise Refused
    return [n.x(s, n.pick(*ANY)), n.side(to)], {"allowzero": 1} if allow else {}


@rows("Flatten", "Squeeze", "Unsqueeze", "Shape", "Size")
def forms(n, kind):
    s = n.shape(0, 4)
    x, r = n.pick(*ANY), len(s)
    if kind == "Flatten":
        return [n.x(s, x)], {"axis": n.r.randint(-r, r)} if n.chance(0.8) else {}
    if kind == "Shape":
        return [n.x(s, x)], {k: n.r.randint(-r - 1, r + 1) for k in ("start", "end") if n.chance()}
    if kind == "Size":
        return [n.x(s, x)], {}
    if kind == "Squeeze":
        ones = [i - (r if n.chance(0.3) else 0) for i, d in enumerate(s) if d == 1 and n.chance(0.7)]
        n.fixed = not ones  # which go may not depend on what is fed
        return [n.x(s, x)] + ([n.const(ones)] if ones else []), {}
    k = n.r.randint(1, 2)
    return [n.x(s, x), n.const([a - (r + k if n.chance(0.4) else 0) for a in n.r.sample(range(r + k), k)])], {}


@rows("Expand", "Tile")
def repeat(n, kind):
    s = n.shape(0 if kind == "Expand" else 1, 4)
    n.broadcasts = kind == "Expand"
    x = n.x(s, n.pick(*ANY))
    if kind == "Tile":
        return [x, n.side([n.pick(1, 1, 2, 3, 0) for _ in s])], {}
    to = [n.pick(2, 3, 5, 0) if d == 1 and n.chance() else 1 if n.chance(0.2) else d for d in s]
    more = n.shape(0, 1) if n.chance(0.3) else []
    return [x, n.side(more + to) if all(d in (1, t) for d, t in zip(s, to)) else n.const(more + to)], {}  # a 1 that is fed never broadcasts


@rows("Concat")
def concat(n, kind):
    s = n.shape(1)
    a, axis = n.axis(s)
    t = n.pick(*ANY)
    return [n.x(s[:a] + [n.size()] + s[a + 1:], t) for _ in range(n.r.randint(1, 4))], {"axis": axis}


@rows("Split")
def split(n, kind):
    s = n.shape(1)
    a, axis = n.axis(s)
    k = n.r.randint(1, 4)
    n.many, n.outs = True, k
    x = n.x(s, n.pick(*ANY)) if not n.chance() else None
    if x and n.opset >= 18:
        if -(-s[a] // k) * (k - 1) > s[a]:
            raise Refused
        return [x], {"axis": axis, "num_outputs": k}
    parts = [n.r.randint(0, 4) for _ in range(k)]
    return [n.x(s[:a] + [sum(parts)] + s[a + 1:], n.pick(*ANY)), n.side(parts)], {"axis": axis}


@rows("Slice")
def cut(n, kind):
    s = n.shape(1)
    at, axes = n.some_axes(len(s))
    big = 2 ** 63 - 1
    starts, ends, steps = [], [], []
    for a in at:
        by = n.pick(1, 1, 1, 2, 3, -1, -2)
        starts.append(n.r.randint(-s[a] - 2, s[a] + 2) if n.chance(0.8) else n.pick(big, -big - 1))
        far = (-big - 1, -(2 ** 31)) if by < 0 else (big, -big - 1, 2 ** 31 - 1)  # backwards to INT_MAX: all, says onnxruntime alone
        ends.append(n.r.randint(-s[a] - 2, s[a] + 2) if n.chance(0.7) else n.pick(*far))
        steps.append(by)
    t = n.pick("i64", "i32") if max(map(abs, starts + ends)) < 2 ** 31 else "i64"
    ins = [n.x(s, n.pick(*ANY)), n.side(starts, t), n.side(ends, t), n.const(axes, t)]
    return ins + ([n.const(steps, t)] if n.chance(0.8) else []), {}


@rows("Pad")
def pad(n, kind):
    s = n.shape(1, 4, zero=False)
    mode = n.pick("constant", "constant", "edge", "reflect", *(["wrap"] if n.opset >= 19 else []))
    most = lambda d: 3 if mode in ("constant", "edge") else d - 1 if mode == "reflect" else d
    sides = [[n.r.randint(0, min(3, most(d))) if n.chance() else 0 for d in s] for _ in range(2)]
    if mode == "constant" and n.chance(0.3):
        a = n.r.randrange(len(s))
        sides[n.r.randint(0, 1)][a] = -1 if s[a] > 1 else 0
    t = n.pick("f32", "f64", "i32", "i64", "u8", "i8", "bool")
    ins = [n.x(s, t), n.side(sides[0] + sides[1])]
    if mode == "constant" and n.chance():
        ins.append(n.const(1, t) if n.chance(0.8) else "")
    return ins, {"mode": mode} if mode != "constant" or n.chance() else {}


@rows("Trilu", "EyeLike")
def band(n, kind):
    s = (n.shape(0, 2) if kind == "Trilu" else []) + [n.size(), n.size()]
    if kind == "EyeLike":
        return [n.x(s, n.pick("f32", "i32", "f64"))], {"k": n.r.randint(-3, 3), **({"dtype": T[n.pick("f32", "i64", "f64", "i32")]} if n.chance() else {})}
    ins = [n.x(s, n.pick("f32", "f64", "i64", "bool"))]
    return ins + ([n.side(n.r.randint(-5, 5))] if n.chance(0.7) else []), {"upper": n.r.randint(0, 1)} if n.chance(0.8) else {}


@rows("DepthToSpace", "SpaceToDepth")
def blocks(n, kind):
    b = n.pick(1, 2, 3)
    c, y, x = n.size(False), n.r.randint(1, 4), n.r.randint(1, 4)
    t = n.pick("f32", "f64", "u8") if kind[0] == "D" else n.pick("f32", "f64")
    if kind[0] == "D":
        return [n.x([n.pick(1, 2), c * b * b, y, x], t)], {"blocksize": b, **({"mode": n.pick("DCR", "CRD")} if n.chance() else {})}
    return [n.x([n.pick(1, 2), c, y * b, x * b], t)], {"blocksize": b}


@rows("CenterCropPad")
def crop(n, kind):
    if n.opset < 18:
        raise Refused
    s = n.shape(1, 4, zero=False)
    at, axes = n.some_axes(len(s))
    return [n.x(s, "f32"), n.side([n.r.randint(1, 9) for _ in at])], {"axes": axes}


@rows("ReverseSequence")
def reverse(n, kind):
    s = [n.size(False), n.size(False)] + n.shape(0, 2)
    b = n.r.randint(0, 1)
    return [n.x(s, n.pick("f32", "i64", "u8")), n.put(n.rng.integers(1, s[1 - b] + 1, [s[b]]).astype(np.int64))], {"batch_axis": b, "time_axis": 1 - b}


# --- gathers and scatters -------------------------------------------------------------------------------------------------

def ids(n, shape, size):
    if not size:
        raise Refused
    return n.put(n.rng.integers(-size, size, shape).astype(n.pick(np.int64, np.int32)), None if n.chance() else True)


@rows("Gather", "GatherElements")
def gather(n, kind):
    s = n.shape(1)
    a, axis = n.axis(s)
    shape = n.shape(0, 2) if kind == "Gather" else [d if i == a or not d else n.r.randint(1, d) for i, d in enumerate(s)]
    if kind == "GatherElements":
        shape[a] = n.size(0 in s)
    return [n.x(s, n.pick(*ANY)), ids(n, shape, s[a])], {"axis": axis} if n.chance(0.8) or axis else {}


@rows("GatherND", "ScatterND")
def nd(n, kind):
    n.fixed = True
    s = n.shape(1, 4, zero=False)
    b = n.r.randint(0, len(s) - 1) if kind == "GatherND" and n.chance(0.3) else 0
    k = n.r.randint(1, len(s) - b)
    lead = s[:b] + n.shape(0 if b else 1, 2)
    if kind == "GatherND":
        i = np.stack([n.rng.integers(-d, d, lead) for d in s[b:b + k]], -1).astype(np.int64)
        return [n.x(s, n.pick(*ANY)), n.put(i)], {"batch_dims": b} if b else {}
    t = n.pick("f32", "f64", "i64")
    red = n.pick(None, "none", "add", "mul", *(["max", "min"] if n.opset >= 18 else []))
    spots = int(np.prod(s[:k]))
    if red in (None, "none"):
        flat = n.rng.permutation(spots)[:n.r.randint(1, spots)]
        i = np.stack(np.unravel_index(flat, s[:k]), -1).astype(np.int64)
    else:
        i = np.stack([n.rng.integers(-d, d, lead) for d in s[:k]], -1).astype(np.int64)
    return [n.x(s, t), n.put(i), n.x(list(i.shape[:-1]) + s[k:], t)], {"reduction": red} if red else {}


@rows("ScatterElements")
def scatter(n, kind):
    s = n.shape(1, 3, zero=False)
    a, axis = n.axis(s)
    red = n.pick(None, "add", "mul", *(["max", "min"] if n.opset >= 18 else []))
    shape = [n.r.randint(1, d) for d in s]
    i = n.rng.integers(-s[a], s[a], shape)
    if not red:
        i = np.stack([n.rng.permutation(s[a])[:shape[a]] for _ in range(int(np.prod(shape)) // shape[a])], -1)
        i = np.moveaxis(i.reshape([shape[a]] + shape[:a] + shape[a + 1:]), 0, a)
    t = n.pick("f32", "f64", "i64", "i32", "u8") if not red else n.pick("f32", "f64", "i64")
    return [n.x(s, t), n.put(i.astype(np.int64)), n.x(shape, t)], {"axis": axis, **({"reduction": red} if red else {})}


@rows("OneHot")
def one_hot(n, kind):
    s, d = n.shape(0, 3), n.r.randint(1, 6)
    t = n.pick("f32", "i64", "i32")
    return [n.put(n.rng.integers(-d - 1, d + 2, s).astype(n.pick(np.int64, np.int32))), n.side(d), n.x([2], t)], {"axis": n.r.randint(-len(s) - 1, len(s))}


@rows("Compress", "NonZero", "Unique")
def counted(n, kind):
    s = n.shape(1, 3, zero=False)
    a, axis = n.axis(s)
    if kind == "NonZero":
        return [n.x(s, n.pick("f32", "i64", "bool", "i32", "u8"), whole=True)], {}
    if kind == "Unique":
        n.outs, n.many = n.r.randint(1, 4), True
        return [n.x(s, n.pick("f32", "i64", "i8"), whole=True)], {**({"axis": axis} if n.chance() else {}), **({"sorted": n.r.randint(0, 1)} if n.chance() else {})}
    whole = n.chance(0.4)
    return [n.x(s, n.pick("f32", "i64", "u8")), n.x([n.r.randint(1, int(np.prod(s)) if whole else s[a])], "bool")], {} if whole else {"axis": axis}


@rows("Range", "ConstantOfShape")
def sources(n, kind):
    if kind == "ConstantOfShape":
        t = n.pick(*ANY)
        return [n.side(n.shape(0, 3))], {"value": numpy_helper.from_array(np.asarray([1], NP[t]))} if n.chance(0.7) else {}
    t = n.pick("i64", "i32", "f32", "f64")
    n.constant = n.constant or t[0] == "f"
    by = n.pick(1, 2, -1, 3)
    return [n.side(n.r.randint(-3, 3), t), n.side(n.r.randint(-3, 9) * (1 if by > 0 else -1), t), n.side(by, t)], {}


# --- contractions -----------------------------------------------------------------------------------------------------------

@rows("MatMul")
def matmul(n, kind):
    k, t = n.size(), n.pick(*FLOATS, "i32", "i64")
    a, b = n.two(2)
    m, w = [n.size()], [n.size()]
    if n.chance(0.2):
        a, m = [], []
    if n.chance(0.2):
        b, w = [], []
    return [n.x(a + m + [k], t), n.x(b + [k] + w, t)], {}


@rows("Gemm")
def gemm(n, kind):
    n.broadcasts = True
    m, k, w, t = n.size(), n.size(), n.size(), n.float()
    ta, tb = n.r.randint(0, 1), n.r.randint(0, 1)
    ins = [n.x([k, m] if ta else [m, k], t), n.x([w, k] if tb else [k, w], t)]
    if n.chance(0.7):
        ins.append(n.x(n.pick([w], [m, w], [m, 1], [1, w], [], [1]), t))
    if not k and len(ins) > 2:  # onnxruntime then forgets beta
        raise Refused
    return ins, {"transA": ta, "transB": tb, **{k: n.pick(0.5, 2.0, 0.0) for k in ("alpha", "beta") if n.chance(0.4)}}


@rows("Einsum")
def einsum(n, kind):
    eq = n.pick("ij,jk->ik", "bij,bjk->bik", "ij->ji", "ij->i", "ij->", "i,j->ij", "bhid,bhjd->bhij", "ij,ij->", "...ij,...jk->...ik", "ii->i",
                "bij,jk", "abc,cd,de->abe", "bhij,bhjd->bihd", "ab...,b->a...", "iij->j", "bnqk,bnkd->bqnd", "i,i->", "ba,cb->ca")
    size = {c: n.size() for c in "abcdehijknq"}
    dots = n.shape(0, 2)
    t = n.pick("f32", "f64", "i64") if n.chance(0.8) else "f16"
    ins = []
    for part in eq.split("->")[0].split(","):
        s = [size[c] for c in part.replace("...", "")]
        if "..." in part:
            at = part.index("...")
            s[at:at] = dots
        ins.append(n.x(s, t))
    return ins, {"equation": eq}


def window(n, rank, size, kernel):
    """Attributes of a window over these sizes."""
    more = {}
    dil = [n.pick(1, 1, 1, 2) for _ in range(rank)]
    if n.chance(0.6):
        more["strides"] = [n.pick(1, 1, 2, 3) for _ in range(rank)]
    if n.chance(0.3):
        more["dilations"] = dil
    else:
        dil = [1] * rank
    if n.chance(0.25):
        more["auto_pad"] = n.pick("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
    if more.get("auto_pad", "NOTSET") == "NOTSET" and n.chance(0.6):
        more["pads"] = [n.r.randint(0, k - 1) for k in kernel * 2]
    pads = more.get("pads", [0] * 2 * rank)
    if "SAME" not in more.get("auto_pad", "") and any(d + a + b < (k - 1) * e + 1 for d, a, b, k, e in zip(size, pads, pads[rank:], kernel, dil)):
        raise Refused
    return more


@rows("Conv", "ConvTranspose")
def conv(n, kind):
    rank, t = n.pick(1, 2, 2, 3), n.pick("f32", "f32", "f64", "f16")
    size, kernel = [n.pick(1, 3, 5, 8, 9, 12) for _ in range(rank)], [n.pick(1, 2, 3, 4) for _ in range(rank)]
    g = n.pick(1, 1, 2, 3)
    c, o = g * n.pick(1, 2, 4), g * n.pick(1, 2, 3, 8)
    more = {"group": g} if g > 1 or n.chance() else {}
    if kind == "Conv":
        more.update(window(n, rank, size, kernel))
        w = [o, c // g] + kernel
    else:
        w = [c, o // g] + kernel
        strides = [n.pick(1, 2, 3) for _ in range(rank)]
        more["strides"] = strides
        if n.chance(0.3):
            more["output_padding"] = [n.r.randint(0, s - 1) for s in strides]
        if n.chance(0.3):
            more["dilations"] = [n.pick(1, 2) for _ in range(rank)]
        if n.chance(0.3):
            more["auto_pad"] = n.pick("SAME_UPPER", "SAME_LOWER", "VALID")
        elif n.chance(0.5):
            more["pads"] = [n.r.randint(0, k // 2) for k in kernel * 2]
        elif n.chance(0.3):
            more["output_shape"] = [d * s for d, s in zip(size, strides)]
    if n.chance():
        more["kernel_shape"] = kernel
    ins = [n.x([n.pick(1, 2, 3), c] + size, t), n.x(w, t, constant=n.chance(0.8))]
    return ins + ([n.x([o], t, constant=n.chance(0.8))] if n.chance() else []), more


@rows("MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
def pools(n, kind):
    rank, t = n.pick(1, 2, 2, 3), n.pick("f32", "f32", "f64", "f16")
    size = [n.pick(1, 3, 5, 8, 9, 12) for _ in range(rank)]
    x = [n.pick(1, 2, 3), n.pick(1, 2, 5)] + size
    if kind[:6] == "Global":
        return [n.x(x, t)], {"p": n.pick(1, 2, 3)} if kind == "GlobalLpPool" else {}
    kernel = [n.pick(1, 2, 3, 4) for _ in range(rank)]
    more = window(n, rank, size, kernel)
    if kind != "MaxPool" and n.opset < (19 if kind == "AveragePool" else 18):
        more.pop("dilations", 0)
    if "SAME" in more.get("auto_pad", "") and max(more.get("dilations", [1])) > 1:  # onnxruntime pads for a window without them
        raise Refused
    more["kernel_shape"] = kernel
    if n.chance(0.3) and (kind != "LpPool" or n.opset >= 18) and more.get("auto_pad", "NOTSET") == "NOTSET":
        more["ceil_mode"] = 1
    if kind == "AveragePool" and n.chance():
        more["count_include_pad"] = 1
    if kind == "LpPool":
        more["p"] = n.pick(1, 2, 3)
    if kind == "MaxPool":
        n.outs, n.many = n.pick(1, 2), True
        if n.chance(0.2):
            more["storage_order"] = n.r.randint(0, 1)
    return [n.put(n.rng.permutation(int(np.prod(x))).reshape(x).astype(NP[t]) / np.asarray(64, NP[t])) if n.outs == 2 else n.x(x, t)], more


@rows("ConvInteger", "MatMulInteger")
def integer(n, kind):
    a, b = n.pick("u8", "i8"), n.pick("u8", "i8")
    if kind == "ConvInteger":
        a, size, kernel = "u8", [n.pick(5, 8), n.pick(5, 9)], [n.pick(1, 3), n.pick(2, 3)]
        c, o = n.pick(1, 3, 4), n.pick(1, 5, 8)
        ins, more = [n.x([2, c] + size, a, 0, 255), n.x([o, c] + kernel, b, -128, 127, constant=True)], window(n, 2, size, kernel)
        return ins + n.pick([], [n.const(7, a)], [n.const(128, a), n.const(3, b)]), more
    k, w = n.size(False), n.size(False)
    ins = [n.x(n.shape(1, 3, False) + [k], a, -128, 255 if a == "u8" else 127), n.x([k, w], b, -128, 255 if b == "u8" else 127, constant=n.chance())]
    return ins + n.pick([], [n.const(7, a)], [n.const(100, a), n.const(3, b)], [n.const(100, a), n.x([w], b)]), {}


# --- quantisation -------------------------------------------------------------------------------------------------------------

@rows("QuantizeLinear", "DequantizeLinear")
def quantise(n, kind):
    q = n.pick("u8", "i8", *(["u16", "i16"] if n.opset >= 21 else []), *(["i32"] if kind[0] == "D" else []))
    s = n.shape(1, 4)
    a, axis = n.axis(s)
    per, blocked = n.chance(0.4), n.opset >= 21 and n.chance(0.2)
    shape, more = ([s[a]] if per else []), ({"axis": axis} if per else {})
    if blocked and s[a]:
        b = n.pick(1, 2, 3, s[a])
        shape, more = s[:a] + [-(-s[a] // b)] + s[a + 1:], {"axis": axis, "block_size": b}
    t = n.pick("f32", "f32", "f16") if n.opset >= 19 else "f32"
    scale = n.put(np.asarray(2.0 ** -n.rng.integers(0, 5, shape), NP[t]), n.chance(0.8))
    zero = [] if q == "i32" else [n.x(shape, q, 0, 9, constant=n.chance(0.8))]
    if kind[0] == "Q":
        return [n.put(np.asarray(n.values(s, t, -300, 300, whole=True) * np.asarray(0.25, NP[t]))), scale] + zero, more
    return [n.x(s, q, -100, 100), scale] + zero, more


@rows("DynamicQuantizeLinear")
def dynamic(n, kind):
    n.outs, n.many = 3, True
    x = n.values(n.shape(1, 3, False), "f32", -3, 4, whole=False)
    x.ravel()[:1] = n.pick(0, 255 / 16) if x.size > 1 else 255 / 16  # of zeros alone, onnxruntime gives the scale 1, ONNX 0
    return [n.put(x)], {}


@rows("QLinearMatMul", "QLinearConv")
def qlinear(n, kind):
    a = n.pick("u8", "i8")
    b, scale = (n.pick("u8", "i8") if a == "u8" else "i8"), lambda *s: n.put(np.asarray(2.0 ** -n.rng.integers(3, 7, s), "float32"), True)
    if kind == "QLinearMatMul":
        k, w = n.size(False), n.size(False)
        return [n.x(n.shape(1, 2, False) + [k], a, 0, 20), scale(), n.const(3, a), n.x([k, w], b, -9, 9), scale(), n.const(1, b), scale(), n.const(2, a)], {}
    size, kernel, c, o = [8, n.pick(5, 9)], [n.pick(1, 3), n.pick(2, 3)], n.pick(1, 3, 4), n.pick(2, 5, 8)
    per = n.chance()
    ins = [n.x([2, c] + size, a, 0, 20), scale(), n.const(3, a), n.x([o, c] + kernel, b, -9, 9, constant=True), scale(*([o] if per else [])),
           n.const(np.zeros([o] if per else []), b), scale(), n.const(2, a)]
    return ins + ([n.x([o], "i32", -50, 50, constant=True)] if n.chance() else []), window(n, 2, size, kernel)


# --- norms --------------------------------------------------------------------------------------------------------------------------

@rows("LayerNormalization", "RMSNormalization", "BatchNormalization", "InstanceNormalization", "GroupNormalization", "LpNormalization",
      "MeanVarianceNormalization", "LRN")
def norms(n, kind):
    t = n.pick("f32", "f32", "f64", "f16") if kind[:5] != "Group" else n.pick("f32", "f16")  # statistics in f32, says stash_type
    if kind in ("LayerNormalization", "RMSNormalization"):
        s = n.shape(1, 4, False)
        a, axis = n.axis(s)
        ins = [n.x(s, t), n.x(s[a:], t)] + ([n.x(s[a:], t)] if kind[0] == "L" and n.chance() else [])
        return ins, {"axis": axis, "epsilon": n.pick(1e-5, 1e-2)}
    s = [n.pick(1, 2, 3), n.pick(1, 2, 4, 6)] + n.shape(1, 3, False)
    c, w = s[1], lambda low=-1: n.x([s[1]], t, low, 2, whole=False, constant=n.chance(0.8))
    if kind == "BatchNormalization":
        s = s[:n.r.randint(2, len(s))]
        return [n.x(s, t), w(), w(), w(), w(0.3)], {"epsilon": 1e-3} if n.chance() else {}
    if kind == "InstanceNormalization":
        return [n.x(s, t), w(), w()], {"epsilon": 1e-2}
    if kind == "GroupNormalization":
        g = n.pick(*[d for d in range(1, c + 1) if c % d == 0])
        if n.opset < 18:
            raise Refused
        k = c if n.opset >= 21 else g
        return [n.x(s, t), n.x([k], t, constant=True), n.x([k], t, constant=True)], {"num_groups": g, "epsilon": 1e-2}
    if kind == "LpNormalization":
        return [n.x(s, t, 0.5, 3)], {k: v for k, v in dict(axis=n.axis(s)[1], p=n.pick(1, 2)).items() if n.chance(0.7)}
    if kind == "LRN":
        return [n.x((s + [3])[:4] if len(s) < 5 else s, "f32")], {"size": n.pick(1, 2, 3, 4, 5), **{k: n.pick(0.1, 0.7) for k in ("alpha", "beta") if n.chance()}}
    return [n.x(s + [5], "f32")], {"axes": n.some_axes(len(s) + 1)[1]} if n.chance() else {}


# --- resampling ---------------------------------------------------------------------------------------------------------------------

@rows("Resize")
def resize(n, kind):
    rank = n.pick(1, 2, 3, 4)
    s = [n.pick(1, 2, 3, 5, 8) for _ in range(rank)]
    mode = n.pick("nearest", "linear", "cubic")
    if rank > 2:
        s[:rank - 2] = [n.pick(1, 2, 3) for _ in s[:rank - 2]]
    to = [d if i < rank - 2 else n.pick(1, 2, 3, 5, 7, 10, 16) for i, d in enumerate(s)]
    more = {"mode": mode, "coordinate_transformation_mode": n.pick("half_pixel", "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")}
    if n.opset < 19 and more["coordinate_transformation_mode"] == "half_pixel_symmetric":
        raise Refused
    if mode == "nearest":
        more["nearest_mode"] = n.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        more.update({k: v for k, v in dict(cubic_coeff_a=n.pick(-0.5, -0.75), exclude_outside=n.r.randint(0, 1)).items() if n.chance()})
    if n.opset >= 18 and mode != "nearest" and n.chance(0.3):
        more["antialias"] = 1
    by_one = lambda out: more["coordinate_transformation_mode"] == "pytorch_half_pixel" and any(t == 1 < d for d, t in zip(s, out))
    if n.chance(0.5):
        if by_one(to) and mode == "cubic":  # position 0, says ONNX; onnxruntime's cubic looks elsewhere
            raise Refused
        return [n.x(s, "f32"), "", "", n.side(to)], more
    scales = [1.0 if i < rank - 2 else n.pick(0.5, 0.6, 1.0, 1.5, 2.0, 3.0) for i in range(rank)]
    to = [int(np.floor(d * f)) for d, f in zip(s, scales)]
    if min(to) < 1 or by_one(to):  # of 3 by half, ONNX's reference takes 1.5 for the length, onnxruntime 1
        raise Refused
    return [n.x(s, "f32"), "", n.const(scales, "f32")], more


@rows("GridSample", "RoiAlign", "AffineGrid", "Col2Im", "MaxRoiPool")
def samples(n, kind):
    b, c, y, x = n.pick(1, 2), n.pick(1, 3), n.pick(2, 5, 8), n.pick(3, 6, 9)
    if kind == "GridSample":
        mode = n.pick("linear", "nearest", "cubic") if n.opset >= 20 else n.pick("bilinear", "nearest", "bicubic")
        grid = n.rng.uniform(-1.3, 1.3, [b, n.pick(1, 4), n.pick(2, 7), 2])
        return [n.x([b, c, y, x], n.pick("f32", "f32", "f64")), n.put(grid.astype("float32"))], {"mode": mode, "padding_mode": n.pick("zeros", "border", "reflection"), "align_corners": n.r.randint(0, 1)}
    if kind == "AffineGrid":
        three = n.chance(0.4)
        if n.opset < 20:
            raise Refused
        return [n.x([b, 3, 4] if three else [b, 2, 3], "f32"), n.side([b, c, 4, 3, 5][:5 if three else 4])], {"align_corners": n.r.randint(0, 1)}
    if kind == "Col2Im":
        if n.opset < 18:
            raise Refused
        k = [n.pick(1, 2), n.pick(2, 3)]
        spots = (y - k[0] + 1) * (x - k[1] + 1)
        return [n.x([b, c * k[0] * k[1], spots], "f32"), n.side([y, x]), n.const(k)], {}
    lo = n.rng.uniform(0, 4, [4, 2])
    boxes = np.concatenate([lo, lo + n.rng.uniform(0.5, 6, [4, 2])], 1).astype("float32")
    if kind == "RoiAlign":
        return [n.x([b, c, y, x], "f32"), n.put(boxes), n.put(n.rng.integers(0, b, [4]).astype("int64"))], {
            k: v for k, v in dict(output_height=n.pick(1, 3), output_width=n.pick(2, 4), sampling_ratio=n.pick(1, 2), spatial_scale=n.pick(0.5, 1.0),
                                  mode="avg", coordinate_transformation_mode=n.pick("half_pixel", "output_half_pixel")).items() if n.chance(0.7)}
    return [n.x([b, c, y, x], "f32"), n.put(np.concatenate([n.rng.integers(0, b, [4, 1]), np.floor(boxes)], 1).astype("float32"))], {"pooled_shape": [n.pick(1, 2), n.pick(2, 4)], "spatial_scale": n.pick(0.5, 1.0)}  # bins that no rounding moves


# --- recurrence, attention, losses ---------------------------------------------------------------------------------------------------

@rows("LSTM", "GRU", "RNN")
def recurrent(n, kind):
    gates = dict(LSTM=4, GRU=3, RNN=1)[kind]
    s, b, i, hid = n.pick(1, 3, 6), n.pick(1, 2, 3), n.pick(1, 4), n.pick(1, 3, 5)
    d = n.pick("forward", "reverse", "bidirectional")
    k = 2 if d == "bidirectional" else 1
    w = lambda *shape: n.x(shape, "f32", -1, 1, whole=False, constant=n.chance(0.8))
    n.outs, n.many = (3 if kind == "LSTM" else 2), True
    ins = [n.x([s, b, i], "f32"), w(k, gates * hid, i), w(k, gates * hid, hid)]
    rest = [w(k, 2 * gates * hid), n.put(n.rng.integers(1, s + 1, [b]).astype("int32")), w(k, b, hid)] + ([w(k, b, hid), w(k, 3 * hid)] if kind == "LSTM" else [])
    rest = [x if n.chance(0.6) else "" for x in rest]
    more = {"direction": d, "hidden_size": hid}
    if kind == "GRU" and n.chance():
        more["linear_before_reset"] = 1
    if n.chance(0.2):
        more["clip"] = 0.5
    if kind == "RNN" and n.chance(0.3):
        more["activations"] = [n.pick("Relu", "Tanh", "Sigmoid")] * k
    while rest and not rest[-1]:
        rest.pop()
    used = {x for x in ins + rest if x}
    n.inputs = [v for v in n.inputs if v.name in used]
    n.feed = {a: v for a, v in n.feed.items() if a in used}
    n.inits = [v for v in n.inits if v.name in used]
    return ins + rest, more


@rows("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
def losses(n, kind):
    b, c, rest = n.pick(1, 2, 5), n.pick(2, 3, 7), n.shape(0, 2, False)
    t = n.pick("f32", "f32", "f64")
    labels = n.rng.integers(0, c, [b] + rest).astype(n.pick(np.int64, np.int32))
    ignore = n.pick(None, -1, 0)
    ins = [n.x([b, c] + rest, t), n.put(labels)] + ([n.x([c], t, 0.3, 2)] if n.chance(0.4) else [])
    return ins, {"reduction": n.pick("none", "sum", "mean"), **({"ignore_index": ignore} if ignore is not None else {})}


@rows("NonMaxSuppression")
def suppress(n, kind):
    b, c, k = n.pick(1, 2), n.pick(1, 3), n.pick(1, 5, 9)
    lo = n.rng.uniform(0, 4, [b, k, 2])
    boxes = np.concatenate([lo, lo + n.rng.uniform(0.5, 3, [b, k, 2])], 2).astype("float32")
    scores = n.rng.permutation(b * c * k).reshape(b, c, k).astype("float32") / (b * c * k)
    more = [n.const([n.pick(1, 2, 10)]), n.const([n.pick(0.3, 0.5)], "f32"), n.const([n.pick(0.1, 0.4)], "f32")][:n.r.randint(1, 3)]
    return [n.put(boxes), n.put(scores)] + more, {"center_point_box": n.r.randint(0, 1)}


@rows("Attention", "RotaryEmbedding")
def attention(n, kind):
    n.fixed = n.chance(0.7)
    n.opset = 23
    b, q, k, d = n.pick(1, 2), n.pick(1, 3, 8, 17), n.pick(1, 4, 9), n.pick(2, 4, 8)
    kv = n.pick(1, 2)
    heads, e = kv * n.pick(1, 2), n.pick(d, 6)
    t = n.pick("f32", "f32", "f16")
    if kind == "RotaryEmbedding":
        rot = n.pick(0, d // 2 * 2)
        half = (rot or d) // 2
        ins = [n.x([b, heads, q, d], t)]
        ins += [n.x([20, half], t, -1, 1), n.x([20, half], t, -1, 1), n.put(n.rng.integers(0, 20, [b, q]).astype("int64"))] if n.chance() else [n.x([b, q, half], t, -1, 1), n.x([b, q, half], t, -1, 1)]
        return ins, {"interleaved": n.r.randint(0, 1), **({"rotary_embedding_dim": rot, "num_heads": heads} if rot else {})}
    flat = n.chance(0.3)
    shape = (lambda hh, s, w: [b, s, hh * w]) if flat else (lambda hh, s, w: [b, hh, s, w])
    ins, past = [n.x(shape(heads, q, d), t), n.x(shape(kv, k, d), t), n.x(shape(kv, k, e), t)], n.pick(0, 0, 3)
    more = {"q_num_heads": heads, "kv_num_heads": kv} if flat else {}
    if n.chance(0.5):
        mask = n.values([q, k + past], n.pick("bool", t), whole=False)
        ins.append(n.put(mask if mask.dtype != bool else mask | np.eye(q, k + past, dtype=bool) | (np.arange(k + past) == 0)))
    elif past:
        ins.append("")
    if past:
        ins += [n.x([b, kv, past, d], t), n.x([b, kv, past, e], t)]
        n.outs, n.many = 3, True
    if n.chance(0.3):
        more["is_causal"] = 1
    if n.chance(0.3):
        more["scale"] = 0.3
    if n.chance(0.2):
        more["softcap"] = 5.0
    return ins, more


# --- com.microsoft ------------------------------------------------------------------------------------------------------------------------

@rows("BiasGelu", "FastGelu", "QuickGelu", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "FusedMatMul", "MatMulNBits", "MultiHeadAttention",
      "GroupQueryAttention", "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "FusedConv")
def microsoft(n, kind):
    n.domain, n.fixed = "com.microsoft", n.chance(0.7)
    s, t = [n.pick(1, 2), n.pick(1, 3, 8), n.pick(4, 8, 16)], "f32"
    w = lambda *shape: n.x(shape, t, constant=True)
    if kind in ("BiasGelu", "FastGelu"):
        return [n.x(s, t), w(s[-1])], {}
    if kind == "QuickGelu":
        return [n.x(s, t)], {"alpha": n.pick(1.0, 1.702)}
    if kind[:4] == "Skip":
        ins = [n.x(s, t), n.x(s, t), w(s[-1])] + ([w(s[-1])] if kind == "SkipLayerNormalization" and n.chance() else [])
        return ins, {"epsilon": 1e-3}
    if kind == "FusedMatMul":
        ta, tb, k, m, o = n.r.randint(0, 1), n.r.randint(0, 1), n.size(False), n.size(False), n.size(False)
        return [n.x([2] + ([k, m] if ta else [m, k]), t), n.x([2] + ([o, k] if tb else [k, o]), t)], {"transA": ta, "transB": tb, "alpha": n.pick(1.0, 0.5)}
    if kind == "MatMulNBits":
        k, o, b = n.pick(16, 32, 40, 64), n.pick(1, 5, 16), n.pick(16, 32)
        nb = -(-k // b)
        ins = [n.x(s[:-1] + [k], t), n.put(n.rng.integers(0, 256, [o, nb, b // 2]).astype("uint8"), True), n.x([o * nb], t, 0.1, 1, constant=True)]
        if n.chance():
            ins.append(n.put(n.rng.integers(0, 256, [o * ((nb + 1) // 2)]).astype("uint8"), True))
        return ins, {"K": k, "N": o, "bits": 4, "block_size": b}
    if kind == "MultiHeadAttention":
        heads, b, q, k, d = n.pick(1, 2), s[0], s[1], n.pick(2, 5), 4
        ins = [n.x([b, q, heads * d], t), n.x([b, k, heads * d], t), n.x([b, k, heads * d], t)]
        if n.chance(0.4):
            ins.append(w(3 * heads * d))
        if n.chance(0.4):
            ins += [""] * (4 - len(ins)) + [n.put(np.maximum(n.rng.integers(0, 2, [b, k]), np.arange(k) == 0).astype("int32"))]
        elif n.chance(0.4):
            n.broadcasts = True  # over the batch
            ins += [""] * (5 - len(ins)) + [n.x([1, heads, q, k], t)]
        return ins, {"num_heads": heads, **({"unidirectional": 1} if n.chance(0.3) and q == k else {})}
    if kind == "GroupQueryAttention":
        kv, g, b, past, d = n.pick(1, 2), n.pick(1, 2), s[0], n.pick(0, 4), 8
        q = 1 if past else s[1]
        ins = [n.x([b, q, kv * g * d], t), n.x([b, q, kv * d], t), n.x([b, q, kv * d], t), n.x([b, kv, past, d], t), n.x([b, kv, past, d], t),
               n.put(np.full([b], past + q - 1, np.int32)), n.put(np.asarray(past + q, np.int32))]
        n.outs, n.many = 3, True
        rotary = n.chance(0.5)
        ins += [w(16, d // 2), w(16, d // 2)] if rotary else []
        return ins, {"num_heads": kv * g, "kv_num_heads": kv, **({"do_rotary": 1, "rotary_interleaved": n.r.randint(0, 1)} if rotary else {}), **({"local_window_size": 3} if n.chance(0.3) else {})}
    if kind == "FusedConv":
        return [n.x([1, 3, 8, 8], t), w(4, 3, 3, 3), w(4)], {"activation": n.pick("Relu", "Sigmoid", "Tanh"), "pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    q = n.pick("u8", "i8")
    scale = lambda *x: n.put(np.asarray(n.rng.uniform(0.03, 0.2, x), "float32"), True)
    if kind in ("QLinearAdd", "QLinearMul"):
        a, b = n.two(3)
        return [n.x(a, q, 0, 30), scale(), n.const(3, q), n.x(b, q, 0, 30), scale(), n.const(1, q), scale(), n.const(5, q)], {}
    if kind in ("QLinearSigmoid", "QLinearLeakyRelu"):
        return [n.x(s, q, 0, 30), scale(), n.const(3, q), scale(), n.const(5, q)], {"alpha": 0.25} if kind[-1] == "u" else {}
    k, o = s[-1], n.pick(1, 5, 16)
    if kind == "DynamicQuantizeMatMul":
        return [n.x(s, t), n.x([k, o], q, 0, 30, constant=True), w(1), n.const([3], q)], {}
    return [n.x(s, "u8", 0, 30), n.x([k, o], q, 0, 30, constant=True), w(1), w(1), n.const(3, "u8"), n.const(1, q)] + ([w(o)] if n.chance() else []), {}


# --- bodies, sequences -----------------------------------------------------------------------------------------------------------------------

def info(name, t, shape):
    return h.make_tensor_value_info(name, T[t], shape)


@rows("Scan")
def scan(n, kind):
    s, w = n.size(False), n.shape(0, 2, False)
    x = lambda name: f"{name}{n.at}"
    body = h.make_graph([h.make_node(n.pick("Add", "Mul", "Max"), [x("a"), x("b")], [x("c")]), h.make_node("Tanh", [x("c")], [x("d")])], "body",
                        [info(x("a"), "f32", w), info(x("b"), "f32", w)], [info(x("d"), "f32", w), info(x("c"), "f32", w)])
    n.outs, n.many = 2, True
    return [n.x(w, "f32"), n.x([s] + w, "f32")], {"body": body, "num_scan_inputs": 1, **({"scan_input_directions": [1]} if n.chance(0.3) else {}), **({"scan_output_directions": [1]} if n.chance(0.3) else {})}


@rows("Loop")
def loop(n, kind):
    w, x = n.shape(0, 2, False), lambda name: f"{name}{n.at}"
    ends = n.chance(0.4)
    limit = h.make_node("Less", [x("i"), x("lim")], [x("c2")])
    nodes = [h.make_node("Cast", [x("i")], [x("f")], to=1), h.make_node("Add", [x("a"), x("f")], [x("s")]), h.make_node("Sin", [x("s")], [x("a2")])]
    nodes += [h.make_node("Constant", [], [x("lim")], value=numpy_helper.from_array(np.asarray(n.r.randint(0, 4), np.int64))), limit] if ends else [h.make_node("Identity", [x("c")], [x("c2")])]
    stacked = n.chance()
    body = h.make_graph(nodes, "body", [info(x("i"), "i64", []), info(x("c"), "bool", []), info(x("a"), "f32", w)],
                        [info(x("c2"), "bool", []), info(x("a2"), "f32", w)] + ([info(x("s"), "f32", w)] if stacked else []))
    n.outs, n.many = (2 if stacked else 1), True
    return [n.side(n.r.randint(0, 6)), n.const(not n.chance(0.1), "bool") if n.chance() else "", n.x(w, "f32")], {"body": body}


@rows("If")
def branch(n, kind):
    w, x = n.shape(0, 2), lambda name: f"{name}{n.at}"
    a = n.x(w, "f32")
    bodies = [h.make_graph([h.make_node(n.pick("Sin", "Neg", "Relu"), [a], [x(f"b{i}")])], "b", [], [info(x(f"b{i}"), "f32", w)]) for i in range(2)]
    return [n.side(n.chance(), "bool")], {"then_branch": bodies[0], "else_branch": bodies[1]}


@rows("SplitToSequence")
def sequence(n, kind):
    """Cut, then joined again, one of them, or their number."""
    n.fixed = True
    s = n.shape(1, 3, False)
    a, axis = n.axis(s)
    keep = n.r.randint(0, 1)
    parts = []
    left = s[a]
    while left:
        parts.append(n.r.randint(1, left))
        left -= parts[-1]
    split = n.pick("none", "one", "list")
    ins = [n.x(s, n.pick("f32", "i64"))] + ([n.const(n.r.randint(1, s[a]))] if split == "one" else [n.const(parts)] if split == "list" else [])
    x = lambda name: f"{name}{n.at}"
    way = n.pick("join", "at", "length")
    if way == "join":
        after = [h.make_node("ConcatFromSequence", [x("seq")], [x("out")], **({"axis": axis, "new_axis": 0} if keep or split != "none" else {"axis": 0, "new_axis": 1}))]
    elif way == "at":
        after = [h.make_node("Constant", [], [x("k")], value=numpy_helper.from_array(np.asarray(n.pick(0, -1), np.int64))), h.make_node("SequenceAt", [x("seq"), x("k")], [x("out")])]
    else:
        after = [h.make_node("SequenceLength", [x("seq")], [x("out")])]
    n.after = (x("seq"), after, x("out"))
    return ins, {"axis": axis, "keepdims": keep} if split == "none" else {"axis": axis}


def build(seed, at, opset):
    """The node's parts, or nothing."""
    r = random.Random(seed * 1000 + at)
    n = Node(r, np.random.default_rng(seed * 1000 + at), opset, at)
    n.after = None
    kind = r.choice(sorted(TABLE))
    ins, attrs = TABLE[kind](n, kind)
    outs = [f"o{at}_{i}" for i in range(n.outs)]
    if n.after:
        seq, after, out = n.after
        return n, kind, [h.make_node(kind, ins, [seq], **attrs), *after], [out]
    nodes = [h.make_node(kind, ins, outs, domain=n.domain, **attrs)]
    return n, kind, nodes, outs if n.many else outs[:1]


def model_of(parts, opset):
    nodes, inputs, inits, outs = [], [], [], []
    for n, _, ns, os in parts:
        nodes, inputs, inits = nodes + ns, inputs + n.inputs, inits + n.inits
        outs += [h.make_empty_tensor_value_info(o) for o in os]
    g = h.make_graph(nodes, "table", inputs, outs, inits)
    return h.make_model(g, opset_imports=[h.make_opsetid("", opset), h.make_opsetid("com.microsoft", 1)], ir_version=10)


def taken(model, feed):
    """Whether onnxruntime takes the node and has finite results, and of which types."""
    import onnxruntime as ort
    o = ort.SessionOptions()
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    o.intra_op_num_threads = o.inter_op_num_threads = 1
    o.log_severity_level = 4
    try:
        s = ort.InferenceSession(model.SerializeToString(), o, providers=["CPUExecutionProvider"])
        return s.run(None, feed)
    except Exception:
        return None


WRAP = ["Relu", "Neg", "Tanh", "Sigmoid"]


def make(seed, of=6):
    """The model, the inputs of its one run, and what chose them."""
    r, parts = random.Random(seed), []
    opset = r.choice(OPSETS)
    for at in range(of):
        try:
            part = n, kind, nodes, outs = build(seed, at, opset)
        except Refused:
            continue
        if n.opset > opset:  # an operator of a later opset is alone, or with what was made for that one
            parts, opset = [p for p in parts if p[0].opset == n.opset], n.opset
        got = taken(model_of([part], opset), n.feed)
        if got is None:
            continue
        for i, (o, x) in enumerate(zip(outs, got)):  # what fusion puts behind
            if isinstance(x, np.ndarray) and x.dtype == np.float32 and r.random() < 0.4:
                nodes.append(h.make_node(r.choice(WRAP), [o], [o + "w"]))
                outs[i] = o + "w"
        parts.append(part)
    return model_of(parts, opset), [{k: v for p in parts for k, v in p[0].feed.items()}], r
