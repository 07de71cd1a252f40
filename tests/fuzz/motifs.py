"""Steps of random graphs that are several nodes in the spellings of exporters: norms, attention, gated units, residuals, convolutions
with what stands around them, sizes computed from shapes, bodies. Now and then an inner value has a reader more, or is an output.
"""
import numpy as np
from onnx import helper as h, numpy_helper

from maker import BF16, BOOL, DOUBLE, FLOAT, HALF, INT32, INT64, INT8, UINT8, Refused, Value, step

INTEGERS = [INT64, INT32, INT8, UINT8]


def inner(m, v, low=-4.0, high=4.0):
    """A value within a motif: sometimes others read it, too."""
    if m.r.random() < 0.12:
        v.low, v.high = low, high
        m.keep(v)
    return v


def mean(m, v, axes, kind="ReduceMean"):
    given = [a if m.r.random() < 0.5 else a - len(v.shape) for a in axes]
    return m.op(kind, [v, m.ints(*given)], [1 if i in axes else d for i, d in enumerate(v.shape)], keepdims=1)


def not_empty(m, v, axes):
    """Means and largest elements of nothing are not compared."""
    if any(0 in m.sizes.get(v.shape[a], [v.shape[a]]) for a in axes):
        raise Refused


def act(m, v):
    """An activation, in one node or spelled."""
    kind = m.r.choice(["Relu", "Tanh", "silu", "gelu", "gelu_tanh", "quick", "hardswish"])
    if kind == "gelu" and m.float == DOUBLE:
        kind = "silu"
    if kind in ("Relu", "Tanh"):
        return m.op(kind, [v], v.shape)
    if kind == "gelu":
        erf = m.op("Erf", [m.two("Div", v, m.scalar(2 ** 0.5))], v.shape)
        return m.two("Mul", m.two("Mul", v, m.two("Add", erf, m.scalar(1.0))), m.scalar(0.5))
    if kind == "gelu_tanh":
        cube = m.two("Mul", m.two("Pow", v, m.scalar(3.0)), m.scalar(0.044715))
        t = m.op("Tanh", [m.two("Mul", m.two("Add", v, cube), m.scalar(0.7978845608))], v.shape)
        return m.two("Mul", m.two("Mul", m.scalar(0.5), v), m.two("Add", t, m.scalar(1.0)))
    if kind == "hardswish":
        six = m.op("Clip", [m.two("Add", v, m.scalar(3.0)), m.scalar(0.0), m.scalar(6.0)], v.shape)
        return m.two("Div", m.two("Mul", v, six), m.scalar(6.0))
    gate = m.op("Sigmoid", [v if kind == "silu" else m.two("Mul", v, m.scalar(1.702))], v.shape)
    return m.two("Mul", v, gate) if m.r.random() < 0.5 else m.two("Mul", gate, v)


def linear(m, v, n, bias=None):
    """v times a matrix: MatMul, with a bias or without."""
    if not v.fixed(-1):
        raise Refused
    k = v.shape[-1]
    y = m.op("MatMul", [v, m.weight(k, n, scale=max(k, 1) ** -0.5)], v.shape[:-1] + [n])
    if m.r.random() < 0.5 if bias is None else bias:
        b = m.weight(n)
        y = m.two("Add", y, b) if m.r.random() < 0.5 else m.two("Add", b, y)
    return y


def norm(m, v):
    """A norm over one axis or several, spelled."""
    rank = len(v.shape)
    axes = [rank - 1] if m.r.random() < 0.6 else sorted(m.r.sample(range(rank), m.r.randint(1, rank)))
    not_empty(m, v, axes)
    x = v
    if m.r.random() < 0.7:
        x = inner(m, m.two("Sub", v, mean(m, v, axes)))
    square = m.two("Mul", x, x) if m.r.random() < 0.5 else m.two("Pow", x, m.scalar(2.0))
    root = m.op("Sqrt", [m.two("Add", inner(m, mean(m, square, axes), 0.0, 16.0), m.scalar(0.01))], [1 if i in axes else d for i, d in enumerate(v.shape)])
    y = m.two("Div", x, root) if m.r.random() < 0.6 else m.two("Mul", x, m.op("Reciprocal", [root], root.shape))
    if v.fixed(-1) and m.r.random() < 0.7:
        y = m.two("Mul", y, m.weight(v.shape[-1]))
        if m.r.random() < 0.6:
            y = m.two("Add", y, m.weight(v.shape[-1]))
    y.low, y.high = -40.0, 40.0
    return y


@step(2)
def spelled_norm(m):
    v = m.tame(m.some(least=1))
    y = norm(m, v)
    return m.keep(m.two("Add", y, v, low=-44.0, high=44.0) if m.r.random() < 0.3 else y)


@step(1.5)
def spelled_softmax(m):
    v = m.tame(m.some(least=1))
    a, axis = m.axis(v)
    not_empty(m, v, [a])
    x = m.two("Sub", v, mean(m, v, [a], "ReduceMax")) if m.r.random() < 0.7 else v
    e = inner(m, m.op("Exp", [x], v.shape, low=0.0, high=60.0), 0.0, 60.0)
    total = mean(m, e, [a], "ReduceSum")
    if m.r.random() < 0.3:
        return m.keep(m.two("Sub", x, m.op("Log", [total], total.shape), low=-60.0, high=1.0))
    return m.keep(m.two("Div", e, total, low=0.0, high=1.0))


@step(2)
def gated(m):
    v = m.tame(m.some(least=2))
    if not v.fixed(-1):
        raise Refused
    n = m.r.choice([2, 4, 6, 8, 16, 34])
    if m.r.random() < 0.5:  # one product, cut in two
        both = linear(m, v, n)
        names = m.name("v"), m.name("v")
        m.nodes.append(h.make_node("Split", [both.name, m.ints(n // 2, n // 2)], names, axis=-1))
        m.read.add(both.name)
        a, b = (Value(x, v.shape[:-1] + [n // 2], m.float) for x in names)
    else:
        a, b = linear(m, v, n // 2), linear(m, v, n // 2)
    y = m.two("Mul", inner(m, act(m, a), -200.0, 200.0), b)
    if m.r.random() < 0.5:
        y = linear(m, y, v.shape[-1])
        y = m.two("Add", v, y)
    y.low, y.high = -800.0, 800.0
    return m.keep(y)


@step(2)
def block(m):
    """x + f(norm(x)), once or twice."""
    v = m.tame(m.some(least=2))
    if not v.fixed(-1):
        raise Refused
    for _ in range(m.r.randint(1, 2)):
        y = linear(m, act(m, linear(m, norm(m, v), m.size())), v.shape[-1])
        v = inner(m, m.two("Add", *((v, y) if m.r.random() < 0.5 else (y, v))), -800.0, 800.0)
        v.low, v.high = -800.0, 800.0
        v = m.tame(v, 50.0)
    return m.keep(v)


def heads(m, x, count, way):
    """[b, s, count * d] as [b, count, s, d]."""
    b, s, d = x.shape[0], x.shape[1], x.shape[2] // count
    lead = [0 if isinstance(n, str) or m.r.random() < 0.3 and n else n for n in (b, s)]
    if isinstance(b, int) and m.r.random() < 0.3:
        lead = [b, -1 if isinstance(s, str) or s else s]
    y = m.op("Reshape", [x, m.ints(*lead, count, d)], [b, s, count, d])
    return m.op("Transpose", [y], [b, count, s, d] if way == "s" else [b, count, d, s], perm=[0, 2, 1, 3] if way == "s" else [0, 2, 3, 1])


def mask(m, s, queries, keys):
    """The scores s with what must not be seen taken out."""
    way = m.r.choice(["none", "bias", "chosen", "cap"] + ["where", "causal"] * (m.float != HALF))  # of f16 onnxruntime has no Where
    if way == "none":
        return s
    fixed = isinstance(queries, int) and isinstance(keys, int)
    low = m.r.choice([-1e4, -3e4])
    if way in ("bias", "where") and fixed:
        seen = m.np.random((m.r.choice([1, 1, s.shape[1]]), queries, keys)) < 0.7
        seen[..., :1] = True
        if way == "bias":
            return m.two("Add", s, Value(m.const(np.where(seen, 0.0, low), m.float), list(seen.shape), m.float))
        c = Value(m.const(seen, BOOL), list(seen.shape), BOOL)
        return m.op("Where", [c, s, m.scalar(low)], s.shape)
    if way == "chosen":
        x = [v for v in m.inputs if v.dtype == m.float and v.shape == [queries, keys]]
        if x:
            return m.two("Add", s, x[0])
    if way == "causal" and queries == keys:  # by positions, whatever the size
        shape = m.op("Shape", [s], [4], INT64)
        n = m.op("Gather", [shape, m.const(np.asarray(2, np.int64))], [], INT64)
        at = m.op("Range", [m.const(np.asarray(0, np.int64)), n, m.const(np.asarray(1, np.int64))], [queries], INT64)
        column = m.op("Unsqueeze", [at, m.ints(1)], [queries, 1], INT64)
        c = m.op(m.r.choice(["LessOrEqual", "Less"]), [at, m.op("Add", [column, m.ints(1)], [queries, 1], INT64)], [queries, queries], BOOL)
        return m.op("Where", [c, s, m.scalar(low)], s.shape)
    return m.two("Add", s, m.scalar(0.5))


@step(3)
def attention_of_heads(m):
    v = m.tame(m.some(rank=3), 2.0)
    if not v.fixed(2) or v.shape[0] == v.shape[1] and isinstance(v.shape[0], str):
        raise Refused
    b, s, e = v.shape
    kv, group, d = m.r.choice([1, 2, 3]), m.r.choice([1, 1, 2, 3]), m.r.choice([2, 3, 4, 8, 16])
    count = kv * group
    other = [w for w in m.values if w.dtype == m.float and len(w.shape) == 3 and w.fixed(2) and w.shape[0] == b]
    w = m.tame(m.r.choice(other), 2.0) if m.r.random() < 0.3 else v  # across, or of one
    not_empty(m, w, [1])
    q, k, x = heads(m, linear(m, v, count * d), count, "s"), heads(m, linear(m, w, kv * d), kv, "t"), heads(m, linear(m, w, kv * d), kv, "s")
    if group > 1:  # one head for several
        if b is not None and not all(isinstance(n, int) for n in (b, w.shape[1])):
            raise Refused
        spread = lambda y: m.op("Reshape", [m.op("Expand", [m.op("Unsqueeze", [y, m.ints(2)], y.shape[:2] + [1] + y.shape[2:]), m.ints(b, kv, group, *y.shape[2:])],
                                                 [b, kv, group] + y.shape[2:]), m.ints(b, count, *y.shape[2:])], [b, count] + y.shape[2:])
        k, x = spread(k), spread(x)
    scale = m.r.choice(["score", "query", "both", "divide"])
    if scale == "query":
        q = m.two("Mul", q, m.scalar(d ** -0.5))
    if scale == "both":
        q, k = m.two("Mul", q, m.scalar(d ** -0.25)), m.two("Mul", k, m.scalar(d ** -0.25))
    score = inner(m, m.op("MatMul", [q, k], q.shape[:3] + [k.shape[3]]), -200.0, 200.0)
    if scale in ("score", "divide"):
        score = m.two("Mul", score, m.scalar(d ** -0.5)) if scale == "score" else m.two("Div", score, m.scalar(d ** 0.5))
    if m.r.random() < 0.15:  # a cap
        score = m.two("Mul", m.op("Tanh", [m.two("Div", score, m.scalar(5.0))], score.shape), m.scalar(5.0))
    score = mask(m, score, s, k.shape[3])
    if m.r.random() < 0.25:
        top = m.op("Exp", [m.two("Sub", score, mean(m, score, [3], "ReduceMax"))], score.shape)
        p = m.two("Div", top, mean(m, top, [3], "ReduceSum"))
    else:
        p = m.op("Softmax", [score], score.shape, axis=m.r.choice([-1, 3]))
    o = m.op("MatMul", [inner(m, p, 0.0, 1.0), x], q.shape)
    o = m.op("Transpose", [o], [b, s, count, d], perm=[0, 2, 1, 3])
    o = m.op("Reshape", [o, m.ints(0, 0, count * d)], [b, s, count * d])
    if m.r.random() < 0.6:
        o = m.two("Add", linear(m, o, e), v)
    o.low, o.high = -100.0, 100.0
    return m.keep(o)


@step(1.2)
def rotate(m):
    """Rotary positions: halves, or pairs."""
    v = m.some(least=2)
    if not v.fixed(-1) or not v.fixed(-2) or v.shape[-1] % 2 or v.shape[-1] == 0:
        raise Refused
    n, d = v.shape[-2:]
    cos, sin = (m.const(f(np.outer(np.arange(n), 1.0 / (1 + np.arange(d // 2)))).repeat(2, 1).reshape(n, d), m.float) for f in (np.cos, np.sin))
    half = v.shape[:-1] + [d // 2]
    if m.r.random() < 0.6:
        cut = lambda lo, hi: m.op("Slice", [v, m.ints(lo), m.ints(hi), m.ints(-1)], half)
        turned = m.op("Concat", [m.op("Neg", [cut(d // 2, d)], half), cut(0, d // 2)], v.shape, axis=-1)
    else:
        cut = lambda lo: m.op("Unsqueeze", [m.op("Slice", [v, m.ints(lo), m.ints(1 << 62), m.ints(-1), m.ints(2)], half), m.ints(-1)], half + [1])
        pairs = m.op("Concat", [m.op("Neg", [cut(1)], half + [1]), cut(0)], half + [2], axis=-1)
        shape = [0] * (len(v.shape) - 1) + [d] if 0 not in [n for s in v.shape for n in m.sizes.get(s, [s])] else None
        if shape is None:
            raise Refused
        turned = m.op("Reshape", [pairs, m.ints(*shape)], v.shape)
    bound = 2 * max(abs(v.low), abs(v.high)) + 1
    return m.keep(m.two("Add", m.op("Mul", [v, cos], v.shape), m.op("Mul", [turned, sin], v.shape), low=-bound, high=bound))


@step(2)
def convolution_block(m):
    """Convolution, batch norm, activation; a residual, or channels weighed by what they hold."""
    v = m.tame(m.some(rank=4))
    if m.float == DOUBLE or not all(v.fixed(i) for i in (1, 2, 3)) or 0 in v.shape:
        raise Refused
    c = v.shape[1]
    out, k, group = m.r.choice([(c, 3, 1), (c, 1, 1), (c, 3, c), (8, 3, 1), (6, 1, 1), (2 * c, 3, c)])
    ins = [v, m.weight(out, c // group, k, k, scale=(c // group * k * k) ** -0.5)] + ([m.weight(out)] if m.r.random() < 0.4 else [])
    y = m.op("Conv", ins, [v.shape[0], out] + v.shape[2:], kernel_shape=[k, k], pads=[k // 2] * 4, group=group)
    if m.r.random() < 0.7:
        p = [m.weight(out) for _ in range(3)] + [m.const(m.np.uniform(0.5, 2.0, [out]), m.float)]
        y = m.op("BatchNormalization", [inner(m, y, -50.0, 50.0), *p], y.shape, epsilon=1e-3)
    y.low, y.high = -400.0, 400.0
    if m.r.random() < 0.3:
        s = m.op("GlobalAveragePool", [y], y.shape[:2] + [1, 1])
        s = m.op("Conv", [m.tame(Value(s.name, s.shape, m.float, low=-400.0, high=400.0)), m.weight(out, out, 1, 1, scale=out ** -0.5)], s.shape, kernel_shape=[1, 1])
        y = m.two("Mul", y, m.op("Sigmoid", [s], s.shape))
    y = m.tame(Value(y.name, y.shape, m.float, low=-400.0, high=400.0), 50.0)
    y = act(m, y) if m.r.random() < 0.7 else y
    if out == c and m.r.random() < 0.6:
        y = m.two("Add", y, v)
    y.low, y.high = -60.0, 60.0
    return m.keep(y)


@step(0.8)
def group_norm(m):
    v = m.tame(m.some(rank=4))
    if not all(v.fixed(i) for i in (1, 2, 3)) or m.float == DOUBLE or 0 in v.shape or isinstance(v.shape[0], str):
        raise Refused
    b, c, y, x = v.shape
    g = m.r.choice([n for n in range(1, c + 1) if c % n == 0])
    ones, zeros = (m.const(np.full([g], n), m.float) for n in (1.0, 0.0))
    t = m.op("InstanceNormalization", [m.op("Reshape", [v, m.ints(0, g, -1)], [b, g, c // g * y * x]), ones, zeros], [b, g, c // g * y * x], epsilon=1e-2)
    t = m.op("Reshape", [t, m.ints(b, c, y, x)], v.shape)
    t = m.two("Add", m.two("Mul", t, m.weight(c, 1, 1)), m.weight(c, 1, 1))
    t = act(m, t) if m.r.random() < 0.5 else t
    t.low, t.high = -100.0, 100.0
    return m.keep(t)


@step(1.2)
def by_shape(m):
    """Sizes computed from shapes: reshaped, filled, counted."""
    v = m.some(least=2)
    shape = m.op("Shape", [v], [len(v.shape)], INT64)
    way = m.r.choice(["flat", "fill", "count", "first"])
    if way == "fill":
        one = m.op("ConstantOfShape", [shape], v.shape, value=numpy_helper.from_array(np.asarray([2], {FLOAT: np.float32, DOUBLE: np.float64, HALF: np.float16}[m.float])))
        return m.keep(m.two("Mul", v, one, low=2 * v.low - 1, high=2 * v.high + 1, exact=v.exact))
    if way == "flat":
        if not all(v.fixed(i) for i in range(1, len(v.shape))) or isinstance(v.shape[0], str) and 0 in m.sizes[v.shape[0]] or 0 in v.shape:
            raise Refused
        first = m.op("Slice", [shape, m.ints(0), m.ints(1)], [1], INT64)
        to = m.op("Concat", [first, m.ints(-1)], [2], INT64, axis=0)
        return m.keep(m.op("Reshape", [v, to], [v.shape[0], int(np.prod(v.shape[1:]))], exact=v.exact, of=v))
    a = m.r.randrange(len(v.shape))
    n = m.op("Gather", [shape, m.const(np.asarray(a, np.int64))], [], INT64)
    if way == "count":
        f = m.two("Add", m.op("Cast", [n], [], to=m.float), m.scalar(1.0))
        return m.keep(m.op("Div", [v, f], v.shape, of=v))
    if len(v.shape) > 4:
        raise Refused
    at = m.op("Range", [m.const(np.asarray(0, np.int64)), n, m.const(np.asarray(1, np.int64))], [v.shape[a]], INT64)
    f = m.op("Cast", [at], [v.shape[a]], to=m.float)
    f = m.op("Unsqueeze", [f, m.ints(*range(1, len(v.shape) - a))], [v.shape[a]] + [1] * (len(v.shape) - a - 1)) if a < len(v.shape) - 1 else f
    return m.keep(m.two("Add", v, f, low=v.low, high=v.high + 40))


@step(1)
def other_float(m):
    """A stretch in fewer bits, and back; of bf16 onnxruntime has casts alone."""
    v = m.tame(m.some())
    if m.float != FLOAT:
        raise Refused
    m.rough = True
    if m.r.random() < 0.4:
        y = m.op("Cast", [m.op("Cast", [v], v.shape, BF16, to=BF16)], v.shape, to=FLOAT)
        return m.keep(y)
    m.float = HALF
    try:
        y = m.op("Cast", [v], v.shape, HALF, to=HALF)
        y = act(m, y) if m.r.random() < 0.6 else linear(m, y, m.size()) if len(y.shape) > 1 and y.fixed(-1) else m.two("Add", y, m.scalar(0.5))
    finally:
        m.float = FLOAT
    return m.keep(m.op("Cast", [y], y.shape, to=FLOAT, low=-50.0, high=50.0))


@step(1.5)
def integers(m):
    """A few operations in one integer type, from floats and back."""
    v = m.some(exact=True)
    if m.float == HALF or max(abs(v.low), abs(v.high)) > 20:
        raise Refused
    t = m.r.choice(INTEGERS)
    x = m.op("Abs", [v], v.shape, exact=True) if t == UINT8 else v
    x = m.op("Cast", [x], v.shape, t, True, to=t)
    bound = max(abs(v.low), abs(v.high)) + 1
    for _ in range(m.r.randint(1, 3)):
        kind = m.r.choice(["Add", "Mul", "Sub", "Min", "Max", "Where"] if t in (INT64, INT32) else ["Add", "Min", "Max", "Where"])
        c = m.r.randint(0, 3)
        k = m.const(np.asarray(c), t) if t in (INT64, INT32, INT8, UINT8) else None
        if kind == "Where":
            x = m.op("Where", [m.op("Greater", [x, k], x.shape, BOOL) if t in (INT64, INT32) else m.op("Equal", [x, k], x.shape, BOOL), x, k], x.shape, t)
        elif t in (INT8, UINT8) and kind == "Add":
            wide = m.op("Cast", [m.op("Add", [m.op("Cast", [x], x.shape, INT32, to=INT32), m.const(np.asarray(c), INT32)], x.shape, INT32)], x.shape, t, to=t)
            x = wide
        else:
            x = m.op(kind, [x, k], x.shape, t)
        bound = bound * 3 if kind == "Mul" else bound + 3
    if t == INT64 and m.r.random() < 0.5:
        x.low, x.high, x.exact = -bound, bound, True
        m.keep(x)
    return m.keep(m.op("Cast", [x], x.shape, exact=True, low=-bound, high=bound, to=m.float))


def info(m, name, t, shape):
    return h.make_tensor_value_info(name, t, shape)


def step_body(m, x, y, width):
    """Nodes from x to y, of one shape; their constants are the graph's own."""
    a, b = m.name("l"), m.name("l")
    way = m.r.choice(["square", "norm", "gate", "turn"]) if isinstance(width, int) and width else "gate"
    if way == "turn":  # shares of a row, from the back
        turned = h.make_node("Slice", [a, m.ints(width - 1), m.ints(-width - 1), m.ints(-1), m.ints(-1)], [a + "t"])
        return [h.make_node("Softmax", [x], [a], axis=-1), turned, h.make_node("Sub", [a + "t", x], [b]), h.make_node("Tanh", [b], [y])]
    if way == "square":
        w = m.reals(width, width, scale=width ** -0.5)
        return [h.make_node("MatMul", [x, w], [a]), h.make_node("Tanh", [a], [b]), h.make_node("Add", [b, x], [a + "s"]), h.make_node("Tanh", [a + "s"], [y])]
    if way == "norm":
        return [h.make_node("ReduceMean", [x, m.ints(-1)], [a], keepdims=1), h.make_node("Sub", [x, a], [b]), h.make_node("Softsign" if m.float == FLOAT else "Tanh", [b], [y])]
    return [h.make_node("Sigmoid", [x], [a]), h.make_node("Mul", [a, x], [b]), h.make_node("Sub", [b, m.scalar(0.25)], [y])]


@step(0.8)
def scan_of_rows(m):
    v = m.tame(m.some(least=2), 2.0)
    if not v.fixed(0) or v.shape[0] == 0 or not v.fixed(-1) or len(v.shape) > 3:
        raise Refused
    w = v.shape[1:]
    s, x, t, y, z = (m.name("l") for _ in range(5))
    body = h.make_graph([h.make_node("Add", [s, x], [t]), *step_body(m, t, y, w[-1]), h.make_node("Identity", [y], [z])], f"body{m.count}",
                        [info(m, s, m.float, w), info(m, x, m.float, w)], [info(m, y, m.float, w), info(m, z, m.float, w)])
    first = m.op("Gather", [v, m.const(np.asarray(0, np.int64))], w, axis=0)
    last, rows = m.name("v"), m.name("v")
    m.read |= {first.name, v.name}
    m.nodes.append(h.make_node("Scan", [first.name, v.name], [last, rows], body=body, num_scan_inputs=1, scan_input_directions=[m.r.randint(0, 1)]))
    m.keep(Value(last, w, m.float, low=-6.0, high=6.0))
    m.keep(Value(rows, v.shape, m.float, low=-6.0, high=6.0))


@step(0.8)
def loop_of_steps(m):
    """A loop that may end early and stacks what it passes, with a branch inside."""
    v = m.tame(m.some(least=1), 2.0)
    if not all(v.fixed(i) for i in range(len(v.shape))) or 0 in v.shape:
        raise Refused
    i, c, x, c2, y, b, z, r = (m.name("l") for _ in range(8))
    branches = []
    for kind in m.r.sample(["Relu", "Neg", "Tanh", "Identity"], 2):
        o = m.name("b")
        branches.append(h.make_graph([h.make_node(kind, [y], [o])], f"branch{m.count}", [], [info(m, o, m.float, v.shape)]))
    count = m.r.randint(0, 4)
    nodes = [*step_body(m, x, y, v.shape[-1]), h.make_node("Equal", [i, m.const(np.asarray(1, np.int64))], [b]),
             h.make_node("If", [b], [z], then_branch=branches[0], else_branch=branches[1])]
    ends = m.r.random() < 0.4
    if ends:
        nodes.append(h.make_node("Less", [i, m.const(np.asarray(m.r.randint(0, 3), np.int64))], [c2]))
    else:
        nodes.append(h.make_node("Identity", [c], [c2]))
    stacks = not ends and count > 0
    outs = [info(m, c2, BOOL, []), info(m, z, m.float, v.shape)]
    if stacks:
        nodes.append(h.make_node("Identity", [y], [r]))
        outs.append(info(m, r, m.float, v.shape))
    body = h.make_graph(nodes, f"body{m.count}", [info(m, i, INT64, []), info(m, c, BOOL, []), info(m, x, m.float, v.shape)], outs)
    out, rows = m.name("v"), m.name("v")
    m.read.add(v.name)
    m.nodes.append(h.make_node("Loop", [m.const(np.asarray(count, np.int64)), m.const(np.asarray(True)), v.name], [out, rows][:1 + stacks], body=body))
    m.keep(Value(out, v.shape, m.float, low=-8.0, high=8.0))
    if stacks:
        m.keep(Value(rows, [count] + v.shape, m.float, low=-8.0, high=8.0))


@step(1)
def taken_apart(m):
    """Cut along an axis, each part treated by itself, put together in another order."""
    v = m.tame(m.some(least=1))
    a, axis = m.axis(v)
    if not v.fixed(a) or v.shape[a] < 2:
        raise Refused
    n, k = v.shape[a], m.r.randint(2, min(4, v.shape[a]))
    ends = sorted(m.r.sample(range(1, n), k - 1)) + [n]
    parts, lo = [], 0
    for hi in ends:
        shape = v.shape[:a] + [hi - lo] + v.shape[a + 1:]
        p = m.op("Slice", [v, m.ints(lo), m.ints(hi), m.ints(axis)], shape)
        parts.append(m.r.choice([lambda p=p: p, lambda p=p: act(m, p), lambda p=p: m.two("Mul", p, m.scalar(0.5))])())
        lo = hi
    m.r.shuffle(parts)
    y = m.op("Concat", parts, v.shape, axis=axis)
    y.low, y.high = -8.0, 8.0
    return m.keep(m.two("Add", y, v, low=-12.0, high=12.0) if m.r.random() < 0.4 else y)
