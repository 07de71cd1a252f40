"""Steps of random graphs in which what a reduction gives is read at another place than where it was made: of another row, from the
back, shifted, behind an edge, chosen by a condition, repeated along the axis it was reduced over, put among zeros; once or several
times in a row. What a kernel keeps of a row must be that row's, whoever asks for it.
"""
import numpy as np

from maker import BOOL, DOUBLE, FLOAT, HALF, INT32, INT64, Refused, Value, step
from motifs import linear, mean, norm, not_empty


def bounded(m, v, low, high):
    v.low, v.high = low, high
    return v


def fixed_axis(m, v, least=2):
    fit = [a for a in range(len(v.shape)) if v.fixed(a) and v.shape[a] >= least]
    if not fit:
        raise Refused
    return m.r.choice(fit)


def signed(m, a, v):
    return a if m.r.random() < 0.6 else a - len(v.shape)


# --- what is computed of rows: of v's shape, or with 1 along some axes ---------------------------------------


def some_axes(m, v):
    axes = sorted(m.r.sample(range(len(v.shape)), 1 if m.r.random() < 0.6 else m.r.randint(1, len(v.shape))))
    not_empty(m, v, axes)
    return axes


def reduced(m, v):
    axes = some_axes(m, v)
    kind = m.r.choice("ReduceSum ReduceMean ReduceMax ReduceMin ReduceL2 ReduceLogSumExp ReduceL1 ReduceSumSquare".split())
    y = mean(m, v, axes, kind)
    if kind in ("ReduceMax", "ReduceMin"):
        y.exact = v.exact
        return bounded(m, y, v.low, v.high)
    return bounded(m, y, -2e3, 2e3)


def softmax(m, v):
    a, axis = m.axis(v)
    return m.op("Softmax", [v], v.shape, axis=axis, low=0.0, high=1.0)


def log_softmax(m, v):
    a, axis = m.axis(v)
    not_empty(m, v, [a])
    return m.op("LogSoftmax", [v], v.shape, axis=axis, low=-60.0, high=1.0)


def running(m, v):
    if m.float == HALF:
        raise Refused
    a, axis = m.axis(v)
    return m.op("CumSum", [v, m.const(np.asarray(axis, np.int64))], v.shape, low=-600.0, high=600.0, exclusive=m.r.randint(0, 1), reverse=m.r.randint(0, 1))


def layer(m, v):
    if not v.fixed(-1) or v.shape[-1] == 0:
        raise Refused
    return m.op("LayerNormalization", [v, m.reals(v.shape[-1])], v.shape, low=-40.0, high=40.0, axis=-1, epsilon=1e-2)


def two_axes(m, v):
    """Reductions over different axes of one value, joined."""
    if len(v.shape) < 2:
        raise Refused
    a, b = m.r.sample(range(len(v.shape)), 2)
    not_empty(m, v, [a, b])
    x, y = mean(m, v, [a], m.r.choice(["ReduceSum", "ReduceMax", "ReduceMean"])), mean(m, v, [b], m.r.choice(["ReduceMean", "ReduceMin"]))
    y = m.two(m.r.choice(["Add", "Sub", "Mul"]), x, y)
    return bounded(m, m.tame(bounded(m, y, -2e3, 2e3), 50.0), -50.0, 50.0)


def product(m, v):
    return bounded(m, linear(m, v, v.shape[-1]), -60.0, 60.0)


def among_themselves(m, v):
    """Attention of rows to each other."""
    if len(v.shape) < 2 or not v.fixed(-1) or v.shape[-1] == 0:
        raise Refused
    not_empty(m, v, [len(v.shape) - 2])
    t = m.op("Transpose", [v], v.shape[:-2] + [v.shape[-1], v.shape[-2]], perm=list(range(len(v.shape) - 2)) + [len(v.shape) - 1, len(v.shape) - 2])
    s = m.op("MatMul", [v, t], v.shape[:-1] + [v.shape[-2]])
    s = m.two("Mul", s, m.scalar(v.shape[-1] ** -0.5))
    return m.op("MatMul", [m.op("Softmax", [s], s.shape, axis=-1), v], v.shape, low=-5.0, high=5.0)


def best(m, v):
    """Where the largest element is, or the k largest: of values that no rounding has touched."""
    if not v.exact:
        raise Refused
    a = fixed_axis(m, v)
    if m.r.random() < 0.5:
        y = m.op(m.r.choice(["ArgMax", "ArgMin"]), [v], [1 if i == a else d for i, d in enumerate(v.shape)], INT64, True, axis=signed(m, a, v), keepdims=1)
        return m.op("Cast", [y], y.shape, exact=True, low=0.0, high=float(v.shape[a]), to=m.float)
    out, ids = m.name("v"), m.name("v")
    from onnx import helper as h
    m.read.add(v.name)
    m.nodes.append(h.make_node("TopK", [v.name, m.ints(v.shape[a])], [out, ids], axis=signed(m, a, v), largest=m.r.randint(0, 1)))
    return Value(out, v.shape, v.dtype, True, v.low, v.high)


OF_ROWS = [reduced] * 4 + [softmax] * 3 + [lambda m, v: norm(m, v)] * 3 + [log_softmax, running, layer, two_axes, two_axes, product, among_themselves, best]


# --- places: what is there is read elsewhere -----------------------------------------------------------------


def flipped(m, v):
    a = fixed_axis(m, v)
    by = m.r.choice([-1, -1, -2, 2, 3])
    n = v.shape[a]
    start, end = (n - 1, -n - 1) if by < 0 else (m.r.randint(0, 1), n)
    size = (n + -by - 1) // -by if by < 0 else (n - start + by - 1) // by
    return m.op("Slice", [v, m.ints(start), m.ints(end), m.ints(signed(m, a, v)), m.ints(by)], v.shape[:a] + [size] + v.shape[a + 1:], exact=v.exact, of=v)


def rolled(m, v):
    a = fixed_axis(m, v)
    n, k = v.shape[a], m.r.randint(1, v.shape[a] - 1)
    part = lambda lo, hi: m.op("Slice", [v, m.ints(lo), m.ints(hi), m.ints(signed(m, a, v))], v.shape[:a] + [hi - lo] + v.shape[a + 1:])
    return m.op("Concat", [part(k, n), part(0, k)], v.shape, exact=v.exact, of=v, axis=a)


def shifted(m, v):
    """Behind an edge, the size as before."""
    a = fixed_axis(m, v)
    k = m.r.choice([-2, -1, 1, 1, 2])
    if abs(k) >= v.shape[a]:
        raise Refused
    mode = m.r.choice(["constant", "edge", "reflect"])
    lo, hi = [0] * len(v.shape), [0] * len(v.shape)
    lo[a], hi[a] = max(k, 0), max(-k, 0)
    y = m.op("Pad", [v, m.ints(*lo, *hi)], v.shape[:a] + [v.shape[a] + abs(k)] + v.shape[a + 1:], mode=mode)
    start = 0 if k > 0 else -k
    return m.op("Slice", [y, m.ints(start), m.ints(start + v.shape[a]), m.ints(a)], v.shape, exact=v.exact, low=min(v.low, 0.0), high=max(v.high, 0.0))


def padded(m, v):
    a = fixed_axis(m, v, 1)
    lo, hi = [0] * len(v.shape), [0] * len(v.shape)
    lo[a], hi[a] = m.r.randint(0, 2), m.r.randint(0, 2)
    shape = v.shape[:a] + [v.shape[a] + lo[a] + hi[a]] + v.shape[a + 1:]
    return m.op("Pad", [v, m.ints(*lo, *hi)], shape, exact=v.exact, low=min(v.low, 0.0), high=max(v.high, 0.0), mode=m.r.choice(["constant", "edge"]))


def picked(m, v):
    """By fixed positions, or by those that an input or a reduction gives."""
    a = fixed_axis(m, v)
    n = v.shape[a]
    ids = [w for w in m.values if w.dtype == INT64 and w.exact and len(w.shape) == 1]
    if ids and m.r.random() < 0.5:
        w = m.r.choice(ids)
        at = m.op("Clip", [w, m.const(np.asarray(-n, np.int64)), m.const(np.asarray(n - 1, np.int64))], w.shape, INT64)
        return m.op("Gather", [v, at], v.shape[:a] + w.shape + v.shape[a + 1:], exact=v.exact, of=v, axis=signed(m, a, v))
    count = m.r.choice([n, n, m.r.randint(1, n + 2)])
    return m.op("Gather", [v, m.const(m.np.integers(-n, n, [count]).astype(np.int64))], v.shape[:a] + [count] + v.shape[a + 1:], exact=v.exact, of=v, axis=signed(m, a, v))


def picked_each(m, v):
    if not all(isinstance(d, int) for d in v.shape) or not v.shape or 0 in v.shape:
        raise Refused
    a = m.r.randrange(len(v.shape))
    ids = m.np.integers(-v.shape[a], v.shape[a], v.shape).astype(np.int64)
    return m.op("GatherElements", [v, m.const(ids)], v.shape, exact=v.exact, of=v, axis=signed(m, a, v))


def scattered(m, v):
    """Rows put among zeros, or added to others."""
    a = fixed_axis(m, v)
    if not all(isinstance(d, int) for d in v.shape) or 0 in v.shape:
        raise Refused
    order = m.np.permutation(v.shape[a])
    ids = np.broadcast_to(order.reshape([-1 if i == a else 1 for i in range(len(v.shape))]), v.shape).astype(np.int64)
    base = m.const(np.zeros(v.shape), m.float) if m.r.random() < 0.5 else m.reals(*v.shape)
    return m.op("ScatterElements", [base, m.const(ids.copy()), v], v.shape, low=min(v.low, -5.0), high=max(v.high, 5.0), axis=signed(m, a, v))


def grown(m, v):
    """Resized to whole multiples: nearest neighbours."""
    if len(v.shape) not in (3, 4) or not all(v.fixed(i) for i in range(len(v.shape))) or m.float == HALF or 0 in v.shape:
        raise Refused
    by = [1] * (len(v.shape) - 2) + [m.r.choice([1, 2]), m.r.choice([1, 2, 3])]
    shape = [d * b for d, b in zip(v.shape, by)]
    if max(shape) > 200:
        raise Refused
    return m.op("Resize", [v, "", "", m.ints(*shape)], shape, exact=v.exact, of=v, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def triangle(m, v):
    if len(v.shape) < 2 or m.float == HALF:
        raise Refused
    return m.op("Trilu", [v, m.const(np.asarray(m.r.randint(-1, 2), np.int64))], v.shape, exact=v.exact, low=min(v.low, 0.0), high=max(v.high, 0.0), upper=m.r.randint(0, 1))


def repeated(m, v):
    """Along an axis of one element, to another size than it was reduced from."""
    ones = [a for a, d in enumerate(v.shape) if d == 1]
    if not ones or any(isinstance(d, str) for d in v.shape):
        raise Refused
    shape = list(v.shape)
    shape[m.r.choice(ones)] = m.r.choice([2, 3, 5, 8])
    return m.op("Expand", [v, m.ints(*shape)], shape, exact=v.exact, of=v)


def turned(m, v):
    perm = list(range(len(v.shape)))
    m.r.shuffle(perm)
    return m.op("Transpose", [v], [v.shape[p] for p in perm], exact=v.exact, of=v, perm=perm)


def chosen(m, v):
    """Where a mask, a position or a row's own largest element says so."""
    if m.float == HALF:
        raise Refused
    way = m.r.choice(["mask", "mask", "input", "row"])
    if way == "row":
        w = m.some(least=1, exact=True)
        a = m.r.randrange(len(w.shape))
        not_empty(m, w, [a])
        top = mean(m, w, [a], m.r.choice(["ReduceMax", "ReduceMin"]))
        c = m.op("Greater", [top, m.scalar(m.r.choice([-1.0, 0.0, 0.5, 1.0]))], top.shape, BOOL, True)
    elif way == "input":
        w = m.some(exact=True)
        c = m.op("Less", [w, m.scalar(m.r.choice([-0.5, 0.0, 0.7]))], w.shape, BOOL, True)
    else:
        shape = [d if isinstance(d, int) and m.r.random() < 0.6 else 1 for d in v.shape]
        c = Value(m.const(m.np.random(shape) < 0.6, BOOL), shape, BOOL, True)
    other = m.r.choice(["zero", "low", "value"])
    w, shape = m.partner(v) if other == "value" else (Value(m.scalar(0.0 if other == "zero" else -9.0), [], m.float, True, -9.0, 0.0), v.shape)
    out = m.broadcast(c.shape, shape)
    pair = [v, w] if m.r.random() < 0.6 else [w, v]
    return m.op("Where", [c, *pair], out, exact=v.exact and w.exact, low=min(v.low, w.low), high=max(v.high, w.high))


def differences(m, v):
    a = fixed_axis(m, v)
    n = v.shape[a]
    part = lambda lo, hi: m.op("Slice", [v, m.ints(lo), m.ints(hi), m.ints(a)], v.shape[:a] + [n - 1] + v.shape[a + 1:])
    return bounded(m, m.two("Sub", part(1, n), part(0, n - 1)), v.low - v.high, v.high - v.low)


def halves_swapped(m, v):
    from onnx import helper as h
    a = fixed_axis(m, v)
    lo = m.r.randint(1, v.shape[a] - 1)
    outs = [m.name("v"), m.name("v")]
    m.read.add(v.name)
    m.nodes.append(h.make_node("Split", [v.name, m.ints(lo, v.shape[a] - lo)], outs, axis=a))
    x, y = (Value(o, v.shape[:a] + [s] + v.shape[a + 1:], m.float) for o, s in zip(outs, (lo, v.shape[a] - lo)))
    if m.r.random() < 0.5:
        y = m.op("Neg", [y], y.shape)
    return m.op("Concat", [y, x], v.shape, low=min(v.low, -v.high), high=max(v.high, -v.low), axis=a)


PLACES = [flipped] * 3 + [rolled] * 2 + [shifted] * 3 + [picked] * 3 + [chosen] * 4 + [padded, picked_each, scattered, grown, triangle, repeated, repeated, turned, differences, halves_swapped]


def joined(m, y, v):
    """With what it was made of, or another value, where shapes allow it."""
    for w in m.r.sample([v] + m.values[-4:], min(5, 1 + len(m.values[-4:]))):
        if w.dtype != m.float:
            continue
        try:
            m.broadcast(y.shape, w.shape)
        except Refused:
            continue
        kind = m.r.choice(["Add", "Sub", "Mul", "Max"])
        y, w = m.tame(y, 50.0), m.tame(w, 50.0)
        return bounded(m, m.two(kind, y, w), -2600.0, 2600.0)
    return y


def as_rows(m, v):
    y = m.r.choice(OF_ROWS)(m, v)
    y.dtype = m.float
    return y


@step(9)
def elsewhere(m):
    """Of rows, read elsewhere, joined, and of rows again."""
    v = m.tame(m.some(least=1))
    y = as_rows(m, v)
    for _ in range(m.r.choice([1, 1, 2, 3])):
        y = m.r.choice(PLACES)(m, y)
        if m.r.random() < 0.15:
            m.keep(y)
        if m.r.random() < 0.5:
            y = joined(m, y, v)
        if m.r.random() < 0.5 and y.shape:
            y = as_rows(m, m.tame(y))
    return y if y in m.values else m.keep(y)


@step(2)
def elsewhere_of_whole(m):
    """The same in whole numbers, where every order of a sum is right."""
    v = m.some(INT64, least=1)
    if max(map(abs, (v.low, v.high))) > 50:
        raise Refused
    t = m.r.choice([INT64, INT32])
    x = m.op("Cast", [v], v.shape, t, True, of=v, to=t) if t != INT64 else v
    axes = some_axes(m, v)
    kind = m.r.choice(["ReduceSum", "ReduceMax", "ReduceMin", "CumSum"])
    if kind == "CumSum":
        y = m.op(kind, [x, m.const(np.asarray(axes[0], np.int64))], v.shape, t, True, exclusive=m.r.randint(0, 1), reverse=m.r.randint(0, 1))
    else:
        y = m.op(kind, [x, m.ints(*axes)], [1 if i in axes else d for i, d in enumerate(v.shape)], t, True, keepdims=1)
    a = [i for i, d in enumerate(y.shape) if isinstance(d, int) and d > 1]
    if a:
        a = m.r.choice(a)
        n = y.shape[a]
        way = m.r.choice(["flip", "pick", "edge"])
        if way == "flip":
            y = m.op("Slice", [y, m.ints(n - 1), m.ints(-n - 1), m.ints(a), m.ints(-1)], y.shape, t, True)
        elif way == "pick":
            y = m.op("Gather", [y, m.const(m.np.integers(-n, n, [n]).astype(np.int64))], y.shape, t, True, axis=a)
        else:
            pads = [0] * (2 * len(y.shape))
            pads[a] = 1
            y = m.op("Pad", [y, m.ints(*pads)], y.shape[:a] + [n + 1] + y.shape[a + 1:], t, True, mode="edge")
            y = m.op("Slice", [y, m.ints(0), m.ints(n), m.ints(a)], y.shape[:a] + [n] + y.shape[a + 1:], t, True)
    y = m.op(m.r.choice(["Add", "Sub", "Max"]), [x, y], m.broadcast(x.shape, y.shape), t, True)
    size = 1
    for d in v.shape:
        size *= d if isinstance(d, int) else max(m.sizes[d] + [1])
    bound = 60 * size
    return m.keep(m.op("Cast", [y], y.shape, INT64, True, low=-bound, high=bound, to=INT64) if t != INT64 else bounded(m, y, -bound, bound))
