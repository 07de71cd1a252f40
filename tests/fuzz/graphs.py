"""Random graphs over the operators that fusion meets, beside onnxruntime: every output, at two sizes where sizes are open.

    graphs.py run GRAPHC [--of graphs|table] [--seed N] [--count N] [--jobs N] [--seconds S] [--every] [--folder DIR]
    graphs.py write - --folder DIR ...      models, inputs and onnxruntime's results, for a machine that lacks it
    graphs.py check GRAPHC --folder DIR [--target T --device D] ...

A graph is a function of its seed. Each is compiled once and run with 1 or 3 threads, in AVX2 or AVX-512 code and with
fusion stopped early, whichever the seed picks; with `--every`, in all of these ways, and beside the evaluator (`graphc verify`).
Where values of 16 bits lie between, or an output is what is left of terms that cancel, roundings differ: such a graph is wrong where the evaluator says so, too, and `rounded` otherwise. Operators that jump (rounding, comparisons, sorting) are only given values
that no rounding has touched, so that every difference is a defect. A graph that differs is kept with its inputs, and
`graphc verify` says of it which side is right. graphs_open.txt lists the seeds that are known to differ and why; one of them
that agrees must be taken out, but for those that are onnxruntime's, which differ by processor. With `--of table` a model holds nodes over the whole op table instead (table/); those that
graphc says it does not support are counted as that.
"""
import argparse, collections, json, os, re, shutil, subprocess, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

try:
    import onnx
    from onnx import helper as h, numpy_helper
except ImportError:  # check alone does without
    if sys.argv[1:2] != ["check"]:
        raise

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
import forks
import motifs, places  # their steps
from maker import BOOL, DOUBLE, FLOAT, HALF, INT64, NP, OPSET, STEPS, Maker, Refused, Value, step


# --- steps: each takes the maker and adds one value or more -------------------------------------------------

ONNXRUNTIME_F64 = "Relu Tanh Sigmoid Exp Neg Abs Sqrt Log Sin Cos Reciprocal".split()


@step(4)
def map_one(m):
    v = m.tame(m.some())
    kind = m.r.choice("Relu Tanh Sigmoid Exp Neg Abs Sqrt Log Erf Gelu Softplus LeakyRelu Elu Selu HardSigmoid HardSwish Mish Sin Cos Atan Reciprocal Celu ThresholdedRelu Softsign".split())
    if kind in ("Sqrt", "Log", "Reciprocal"):
        v = m.op("Add", [m.op("Abs", [v], v.shape), m.scalar(0.5)], v.shape)
        return m.keep(m.op(kind, [v], v.shape))
    if m.float == DOUBLE and kind not in ONNXRUNTIME_F64 or m.float == HALF and kind == "Celu" or kind == "ThresholdedRelu" and not v.exact:
        kind = "Relu"  # where onnxruntime has no kernel, or where the function jumps
    exact = v.exact and kind in ("Relu", "Neg", "Abs")
    return m.keep(m.op(kind, [v], v.shape, exact=exact, low=-60.0 if kind == "Exp" else -5.0, high=60.0 if kind == "Exp" else 5.0))


@step(1.5)
def jump(m):
    v = m.some(exact=True)
    kind = m.r.choice(["Floor", "Ceil", "Round", "Sign"])
    return m.keep(m.op(kind, [v], v.shape, exact=True, of=v))


@step(6)
def binary(m):
    v = m.some()
    w, shape = m.partner(v)
    kind = m.r.choice(["Add", "Sub", "Mul", "Add", "Mul", "Div", "Min", "Max"])
    if kind == "Div":
        w = m.op("Add", [m.op("Abs", [w], w.shape), m.scalar(0.5)], w.shape)
    bound = max(map(abs, (v.low, v.high))) * (max(map(abs, (w.low, w.high))) if kind == "Mul" else 2) + 8
    if bound > 1e4:
        raise Refused
    ins = [v, w] if m.r.random() < 0.7 else [w, v]
    if kind == "Div":
        ins = [v, w]
    return m.keep(m.op(kind, ins, shape, exact=kind in ("Min", "Max") and v.exact and w.exact, low=-bound, high=bound))


@step(1)
def binary_int(m):
    v = m.some(INT64)
    w, shape = m.partner(v)
    if max(map(abs, (v.low, v.high, w.low, w.high))) > 1000:
        raise Refused
    kind = m.r.choice(["Add", "Sub", "Mul", "Min", "Max"])
    bound = max(map(abs, (v.low, v.high))) * max(2, *map(abs, (w.low, w.high))) + 8
    return m.keep(m.op(kind, [v, w], shape, INT64, True, low=-bound, high=bound))


@step(1.5)
def choose(m):
    if m.float == HALF:
        raise Refused
    a = m.some(exact=True)
    b, shape = m.partner(a)
    if not b.exact:
        raise Refused
    c = m.op(m.r.choice(["Greater", "Less", "GreaterOrEqual", "Equal"]), [a, b], shape, BOOL, True)
    if m.r.random() < 0.3:
        c = m.op("Not", [c], shape, BOOL, True)
    x = m.some()
    y, both = m.partner(x)
    out = m.broadcast(shape, both)
    ends = x.low, x.high, y.low, y.high
    return m.keep(m.op("Where", [c, x, y], out, exact=x.exact and y.exact, low=min(ends), high=max(ends)))


@step(0.7)
def cast_and_back(m):
    v = m.some(exact=True)
    if m.r.random() < 0.5:
        return m.keep(m.op("Cast", [v], v.shape, INT64, True, of=v, to=INT64))
    i = m.some(INT64)
    if max(abs(i.low), abs(i.high)) > 1e4:
        raise Refused
    return m.keep(m.op("Cast", [i], i.shape, exact=True, of=i, to=m.float))


@step(3)
def reduce(m):
    v = m.tame(m.some(least=1), 8.0)
    axes = sorted(m.r.sample(range(len(v.shape)), m.r.randint(1, len(v.shape))))
    motifs.not_empty(m, v, range(len(v.shape)))  # of nothing, onnxruntime gives another shape
    kind = m.r.choice("ReduceSum ReduceMean ReduceMax ReduceMin ReduceL2 ReduceLogSumExp ReduceSumSquare ReduceL1".split())
    keep = m.r.random() < 0.6
    shape = [1 if i in axes else d for i, d in enumerate(v.shape) if keep or i not in axes]
    given = [a if m.r.random() < 0.5 else a - len(v.shape) for a in axes]
    wide = 8.0 if kind in ("ReduceMean", "ReduceMax", "ReduceMin") else 1e3
    return m.keep(m.op(kind, [v, m.ints(*given)], shape, exact=v.exact and kind in ("ReduceMax", "ReduceMin"), low=-wide, high=wide, keepdims=int(keep)))


@step(2.5)
def normalise(m):
    v = m.tame(m.some(least=1), 8.0)
    a, axis = m.axis(v)
    kind = m.r.choice(["Softmax", "LogSoftmax", "LayerNormalization", "rms", "Softmax"])
    if kind in ("Softmax", "LogSoftmax"):
        return m.keep(m.op(kind, [v], v.shape, low=-60.0, high=1.0, axis=axis))
    if not v.fixed(-1):
        raise Refused
    if kind == "LayerNormalization":
        ins = [v, m.reals(v.shape[-1])] + ([m.reals(v.shape[-1])] if m.r.random() < 0.6 else [])
        return m.keep(m.op(kind, ins, v.shape, low=-30.0, high=30.0, axis=-1, epsilon=1e-2))
    square = m.op("Mul", [v, v], v.shape)
    mean = m.op("ReduceMean", [square, m.ints(-1)], v.shape[:-1] + [1], keepdims=1)
    root = m.op("Sqrt", [m.op("Add", [mean, m.scalar(0.01)], mean.shape)], mean.shape)
    return m.keep(m.op("Mul", [m.op("Div", [v, root], v.shape), m.reals(v.shape[-1])], v.shape, low=-30.0, high=30.0))


@step(5)
def contract(m):
    v = m.tame(m.some(least=2))
    if not v.fixed(-1):
        raise Refused
    k, n = v.shape[-1], m.size()
    if m.r.random() < 0.3:  # with another value
        fit = [w for w in m.values if w.dtype == m.float and len(w.shape) >= 2 and w.shape[-2] == k]
        if fit:
            w = m.tame(m.r.choice(fit))
            shape = m.broadcast(v.shape[:-2], w.shape[:-2]) + [v.shape[-2], w.shape[-1]]
            return m.keep(m.op("MatMul", [v, w], shape, low=-500.0, high=500.0))
    if len(v.shape) == 2 and m.r.random() < 0.5:
        t = int(m.r.random() < 0.5)
        ins = [v, m.reals(*((n, k) if t else (k, n)), scale=k ** -0.5)]
        if m.r.random() < 0.7:
            ins.append(m.reals(*m.r.choice([(n,), (1, n), (1,), ()])))
        return m.keep(m.op("Gemm", ins, [v.shape[0], n], low=-50.0, high=50.0, transB=t, alpha=m.r.choice([1.0, 0.5])))
    return m.keep(m.op("MatMul", [v, m.reals(k, n, scale=k ** -0.5)], v.shape[:-1] + [n], low=-50.0, high=50.0))


@step(1.5)
def attend(m):
    v = m.tame(m.some(least=3), 2.0)
    if not v.fixed(-1) or not isinstance(v.shape[-2], (int, str)):
        raise Refused
    d = v.shape[-1]
    q, k, w = (m.op("MatMul", [v, m.reals(d, d, scale=d ** -0.5)], v.shape) for _ in range(3))
    perm = list(range(len(v.shape) - 2)) + [len(v.shape) - 1, len(v.shape) - 2]
    kt = m.op("Transpose", [k], v.shape[:-2] + [d, v.shape[-2]], perm=perm)
    s = m.op("MatMul", [q, kt], v.shape[:-1] + [v.shape[-2]])
    s = m.op("Mul", [s, m.scalar(d ** -0.5)], s.shape)
    if m.r.random() < 0.4 and v.fixed(-2):
        n = v.shape[-2]
        mask = np.where(np.tril(np.ones((n, n))) > 0, 0, -np.inf if m.r.random() < 0.4 else -1e4)
        s = m.op("Add", [s, m.const(mask, m.float)], s.shape)
    p = m.op("Softmax", [s], s.shape, axis=-1)
    if m.r.random() < 0.25:
        m.keep(p)
        p.low, p.high = 0.0, 1.0
    return m.keep(m.op("MatMul", [p, w], v.shape, low=-20.0, high=20.0))


@step(3)
def convolve(m):
    v = m.tame(m.some(rank=4))
    if m.float == DOUBLE or not all(v.fixed(i) for i in (1, 2, 3)):
        raise Refused
    c, kh, kw = v.shape[1], m.r.choice([1, 2, 3, 3]), m.r.choice([1, 3, 3])
    group = m.r.choice([1, 1, 1, c])
    out = m.r.choice([1, 4, 5, 8, 16]) if group == 1 else c * m.r.choice([1, 2])
    stride, dil = m.r.choice([1, 1, 2]), m.r.choice([1, 1, 1, 2])
    pads = [m.r.choice([0, 1, 1]) for _ in range(4)]
    size = [(v.shape[2 + i] + pads[i] + pads[i + 2] - dil * ((kh, kw)[i] - 1) - 1) // stride + 1 for i in range(2)]
    if min(size) < 1:
        raise Refused
    ins = [v, m.reals(out, c // group, kh, kw, scale=(c // group * kh * kw) ** -0.5)]
    if m.r.random() < 0.6:
        ins.append(m.reals(out))
    return m.keep(m.op("Conv", ins, [v.shape[0], out] + size, low=-50.0, high=50.0, strides=[stride] * 2, dilations=[dil] * 2, pads=pads, group=group, kernel_shape=[kh, kw]))


@step(1)
def pool(m):
    v = m.tame(m.some(rank=4), 30.0)
    if m.float == DOUBLE or not all(v.fixed(i) for i in (2, 3)):
        raise Refused
    if m.r.random() < 0.25:
        return m.keep(m.op("GlobalAveragePool", [v], v.shape[:2] + [1, 1], of=v))
    k, s, p = m.r.choice([2, 3]), m.r.choice([1, 2]), m.r.choice([0, 1])
    size = [(d + 2 * p - k) // s + 1 for d in v.shape[2:]]
    if min(size) < 1 or p >= k:
        raise Refused
    kind = m.r.choice(["MaxPool", "AveragePool"])
    more = {} if kind == "MaxPool" else {"count_include_pad": m.r.randint(0, 1)}
    return m.keep(m.op(kind, [v], v.shape[:2] + size, exact=v.exact and kind == "MaxPool", of=v, kernel_shape=[k, k], strides=[s, s], pads=[p] * 4, **more))


def any_value(m, least=1):
    return m.some(m.r.choice([m.float] * 4 + [INT64]), least=least)


@step(2.5)
def transpose(m):
    v = any_value(m, 2)
    perm = list(range(len(v.shape)))
    m.r.shuffle(perm)
    return m.keep(m.op("Transpose", [v], [v.shape[p] for p in perm], v.dtype, v.exact, of=v, perm=perm))


@step(2)
def reshape(m):
    v = any_value(m)
    fixed = [i for i in range(len(v.shape)) if v.fixed(i)]
    how = m.r.random()
    if how < 0.4 and len(v.shape) >= 2:  # neighbours into one
        i = m.r.randrange(len(v.shape) - 1)
        if not (v.fixed(i) and v.fixed(i + 1)):
            raise Refused
        shape = v.shape[:i] + [v.shape[i] * v.shape[i + 1]] + v.shape[i + 2:]
    elif how < 0.8 and fixed:  # one into two
        i = m.r.choice(fixed)
        by = m.r.choice([b for b in range(1, v.shape[i] + 1) if v.shape[i] % b == 0])
        shape = v.shape[:i] + [by, v.shape[i] // by] + v.shape[i + 1:]
    else:
        return m.keep(m.op("Unsqueeze", [v, m.ints(0)], [1] + v.shape, v.dtype, v.exact, of=v)) if len(v.shape) < 5 else None
    if len(shape) > 5 or sum(isinstance(d, str) for d in shape) > 1:
        raise Refused
    return m.keep(m.op("Reshape", [v, m.ints(*(-1 if isinstance(d, str) else d for d in shape))], shape, v.dtype, v.exact, of=v))


@step(2)
def cut(m):
    v = any_value(m)
    a, axis = m.axis(v)
    if not v.fixed(a) or v.shape[a] < 2:
        raise Refused
    n = v.shape[a]
    by = m.r.choice([1, 1, 2, -1])
    lo = m.r.randrange(n - 1)
    hi = m.r.randint(lo + 1, n)
    if by < 0:
        start, end, size = hi - 1, lo - 1 if lo else -n - 1, hi - lo
    else:
        start, end, size = lo, hi, (hi - lo + by - 1) // by
    return m.keep(m.op("Slice", [v, m.ints(start), m.ints(end), m.ints(axis), m.ints(by)], v.shape[:a] + [size] + v.shape[a + 1:], v.dtype, v.exact, of=v))


@step(1)
def split(m):
    v = any_value(m)
    a, axis = m.axis(v)
    if not v.fixed(a) or v.shape[a] < 2:
        raise Refused
    n, lo = v.shape[a], m.r.randint(1, v.shape[a] - 1)
    outs = [m.name("v"), m.name("v")]
    m.read.add(v.name)
    m.nodes.append(h.make_node("Split", [v.name, m.ints(lo, n - lo)], outs, axis=axis))
    for o, size in zip(outs, (lo, n - lo)):
        m.keep(Value(o, v.shape[:a] + [size] + v.shape[a + 1:], v.dtype, v.exact, v.low, v.high))


@step(2)
def concat(m):
    v = any_value(m)
    a, axis = m.axis(v)
    if not v.fixed(a):
        raise Refused
    fit = [w for w in m.values if w.dtype == v.dtype and len(w.shape) == len(v.shape) and w.fixed(a)
           and all(x == y for i, (x, y) in enumerate(zip(v.shape, w.shape)) if i != a)]
    parts = [v] + [m.r.choice(fit) for _ in range(m.r.randint(1, 2))]
    size = sum(p.shape[a] for p in parts)
    if size > 200:
        raise Refused
    return m.keep(m.op("Concat", parts, v.shape[:a] + [size] + v.shape[a + 1:], v.dtype, all(p.exact for p in parts),
                       low=min(p.low for p in parts), high=max(p.high for p in parts), axis=axis))


@step(1.5)
def pad(m):
    v = any_value(m)
    mode = m.r.choice(["constant", "constant", "edge", "reflect"])
    low, high = ([m.r.randint(0, 2) if m.r.random() < 0.5 and v.fixed(i) else 0 for i in range(len(v.shape))] for _ in range(2))
    if mode == "reflect":
        low, high = ([min(p, d - 1) if isinstance(d, int) else 0 for p, d in zip(side, v.shape)] for side in (low, high))
    shape = [d + a + b if isinstance(d, int) else d for d, a, b in zip(v.shape, low, high)]
    return m.keep(m.op("Pad", [v, m.ints(*low, *high)], shape, v.dtype, v.exact, low=min(v.low, 0), high=max(v.high, 0), mode=mode))


@step(2)
def gather(m):
    v = any_value(m)
    a, axis = m.axis(v)
    if not v.fixed(a):
        raise Refused
    shape = [m.r.randint(1, 5) for _ in range(m.r.randint(0, 2))]
    ids = m.const(m.np.integers(-v.shape[a], v.shape[a], shape).astype(np.int64))
    if len(v.shape) - 1 + len(shape) > 5:
        raise Refused
    return m.keep(m.op("Gather", [v, ids], v.shape[:a] + shape + v.shape[a + 1:], v.dtype, v.exact, of=v, axis=axis))


@step(1)
def expand(m):
    v = any_value(m)
    if 1 not in v.shape or any(isinstance(d, str) for d in v.shape):
        raise Refused
    shape = [m.r.choice([2, 3, 5]) if d == 1 and m.r.random() < 0.7 else d for d in v.shape]
    return m.keep(m.op("Expand", [v, m.ints(*shape)], shape, v.dtype, v.exact, of=v))


@step(0.7)
def tile(m):
    v = any_value(m)
    times = [m.r.choice([1, 1, 2, 3]) if v.fixed(i) and v.shape[i] < 20 else 1 for i in range(len(v.shape))]
    return m.keep(m.op("Tile", [v, m.ints(*times)], [d * t if isinstance(d, int) else d for d, t in zip(v.shape, times)], v.dtype, v.exact, of=v))


@step(1)
def order(m):
    v = m.some(least=1, exact=True)
    a, axis = m.axis(v)
    if not v.fixed(a):
        raise Refused
    if m.r.random() < 0.5:
        kind, keep = m.r.choice(["ArgMax", "ArgMin"]), m.r.randint(0, 1)
        shape = [1 if i == a else d for i, d in enumerate(v.shape) if keep or i != a]
        return m.keep(m.op(kind, [v], shape, INT64, True, low=0, high=v.shape[a], axis=axis, keepdims=keep))
    k = m.r.randint(1, v.shape[a])
    out, ids = m.name("v"), m.name("v")
    m.read.add(v.name)
    m.nodes.append(h.make_node("TopK", [v.name, m.ints(k)], [out, ids], axis=axis, largest=m.r.randint(0, 1)))
    m.keep(Value(out, v.shape[:a] + [k] + v.shape[a + 1:], v.dtype, True, v.low, v.high))


@step(0.8)
def scan(m):
    v = m.tame(m.some(least=1))
    a, axis = m.axis(v)
    return m.keep(m.op("CumSum", [v, m.const(np.asarray(axis, np.int64))], v.shape, low=-140.0, high=140.0, exclusive=m.r.randint(0, 1), reverse=m.r.randint(0, 1)))


@step(0.8)
def scatter(m):
    v = m.some(least=1)
    a, axis = m.axis(v)
    if not all(isinstance(d, int) for d in v.shape):
        raise Refused
    shape = [m.r.randint(1, d) for d in v.shape]
    add = m.r.random() < 0.5 and m.float != HALF
    if not add:  # one writer an element
        shape[a] = m.r.randint(1, v.shape[a])
        ids = np.stack([m.np.permutation(v.shape[a])[:shape[a]] for _ in range(int(np.prod(shape)) // shape[a])], -1)
        ids = np.moveaxis(ids.reshape([shape[a]] + shape[:a] + shape[a + 1:]), 0, a)
    else:
        ids = m.np.integers(0, v.shape[a], shape)
    ins = [v, m.const(ids.astype(np.int64)), m.reals(*shape)]
    more = {"reduction": "add"} if add else {}
    return m.keep(m.op("ScatterElements", ins, v.shape, low=v.low - 60, high=v.high + 60, axis=axis, **more))


@step(0.6)
def branch(m):
    v = m.tame(m.some())
    outs = []
    for k in range(2):
        o = m.name("b")
        kind = m.r.choice(["Relu", "Neg", "Tanh", "Sigmoid"])
        outs.append(h.make_graph([h.make_node(kind, [v.name], [o])], f"branch{m.count}", [], [h.make_tensor_value_info(o, m.float, v.shape)]))
    w = m.some(least=1, exact=True)
    total = m.op("ReduceMax", [w, m.ints(*range(len(w.shape)))], [], exact=True, keepdims=0)
    c = m.op("Greater", [total, m.scalar(m.r.choice([-3.0, 0.5, 1.0, 3.0]))], [], BOOL, True)
    m.read.add(v.name)
    return m.keep(m.op("If", [c], v.shape, then_branch=outs[0], else_branch=outs[1]))


@step(0.5)
def loop(m):
    v = m.tame(m.some(), 2.0)
    i, c, x, c2, y, z = (m.name("l") for _ in range(6))
    w = m.reals(*[d if isinstance(d, int) else 1 for d in v.shape[-1:]])
    body = h.make_graph([h.make_node("Identity", [c], [c2]), h.make_node("Add", [x, w], [z]), h.make_node("Tanh", [z], [y])], f"body{m.count}",
                        [h.make_tensor_value_info(i, INT64, []), h.make_tensor_value_info(c, BOOL, []), h.make_tensor_value_info(x, m.float, v.shape)],
                        [h.make_tensor_value_info(c2, BOOL, []), h.make_tensor_value_info(y, m.float, v.shape)])
    return m.keep(m.op("Loop", [m.const(np.asarray(m.r.randint(0, 4), np.int64)), "", v], v.shape, low=-4.0, high=4.0, body=body))


def make(seed, kind=None):
    """kind: of floats, instead of what the seed picks. The model, the inputs of each run, what chose them, and what is said of it: whether values of few bits lie between, and sizes that may be 0."""
    m = Maker(seed, kind)
    names, weights = list(STEPS), [w for _, w in STEPS.values()]
    want = m.r.choice([m.r.randint(2, 8), m.r.randint(6, 16), m.r.randint(15, 40)])
    for _ in range(160):
        if want == 0:
            break
        before = len(m.nodes), len(m.inits), len(m.values), set(m.read)
        m.fresh = []
        try:
            STEPS[m.r.choices(names, weights)[0]][0](m)
            if any(isinstance(d, int) and d > 2000 for v in m.values[before[2]:] for d in v.shape):
                raise Refused
            want -= 1
            m.shared.update(m.fresh)
        except Refused:
            del m.nodes[before[0]:], m.inits[before[1]:], m.values[before[2]:]
            m.read = before[3]
    made = m.values[len(m.inputs):]
    outs = [v for v in made if v.name not in m.read]
    outs += [v for v in made if v.name in m.read and m.r.random() < 0.15]
    info = lambda v: h.make_tensor_value_info(v.name, v.dtype, v.shape)
    g = h.make_graph(m.nodes, f"random{seed}", [info(v) for v in m.inputs], [info(v) for v in outs], m.inits)
    model = h.make_model(g, opset_imports=[h.make_opsetid("", OPSET)], ir_version=9)
    runs = []
    for k in range(2 if m.sizes else 1):
        feed = {}
        for v in m.inputs:
            shape = [m.sizes[d][k] if isinstance(d, str) else d for d in v.shape]
            x = m.np.uniform(-2, 2, shape) if v.dtype == m.float else m.np.integers(-3, 4, shape)
            feed[v.name] = np.asarray(x, NP[v.dtype])
        runs.append(feed)
    dims = [w for n, values in m.sizes.items() if 0 in values and any(n in v.shape for v in m.inputs) for w in ("--dim", f"{n}=0..64")]  # at least 1, where nothing is said
    return model, runs, m.r, dict(rough=m.rough, dims=dims)


# --- running ------------------------------------------------------------------------------------------------
# A case is a folder: model.onnx, NAME.K.npy of each input and want.NAME.K.npy of each output in run K, and how.json.


def session(model):
    """onnxruntime's, of what the nodes say and no more."""
    import onnxruntime as ort
    o = ort.SessionOptions()
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    o.intra_op_num_threads = o.inter_op_num_threads = 1
    o.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), o, providers=["CPUExecutionProvider"])


def reference(model, runs):
    s = session(model)
    names = [x.name for x in model.graph.output]
    return [dict(zip(names, s.run(names, feed))) for feed in runs]


def write(seed, folder, of):
    """Gives why there is no reference, or nothing."""
    if of == "table":
        import table
        model, runs, r, about = *table.make(seed), dict(rough=False, dims=[])
    else:
        model, runs, r, about = make(seed)
    try:
        want = reference(model, runs)
    except Exception as e:
        return f"onnxruntime: {str(e).splitlines()[0][:160]}"
    os.makedirs(folder)
    onnx.save(model, f"{folder}/model.onnx")
    for k, (feed, outs) in enumerate(zip(runs, want)):
        for n, x in feed.items():
            np.save(f"{folder}/{n}.{k}.npy", x)
        for n, x in outs.items():
            np.save(f"{folder}/want.{n}.{k}.npy", x)
    how = dict(inputs=list(runs[0]), outputs=list(want[0]), **about, compile=["--fuse-at-most", str(r.randint(0, 6))] if r.random() < 0.2 else [],
               run=[["--threads", r.choice(["1", "3"]), "--isa", r.choice(["3", "4"])] for _ in runs])
    json.dump(how, open(f"{folder}/how.json", "w"))


def differs(want, got, rough=False):
    if want.size == got.size == 0 and want.ndim == got.ndim and want.dtype == got.dtype:
        return None  # of nothing, onnxruntime's reductions keep the operand's shape
    if want.shape != got.shape or want.dtype != got.dtype:
        return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    if want.dtype.kind != "f":
        return None if np.array_equal(want, got) else f"{int((want != got).sum())} of {want.size} elements"
    finite = np.isfinite(want)
    if not np.array_equal(finite, np.isfinite(got)) or not np.array_equal(want[~finite], got[~finite], equal_nan=True):
        return "infinite or NaN elsewhere"
    if not finite.any():
        return None
    scale = max(float(np.abs(want[finite]).max()), 1e-2)  # less may be roundings of larger values alone
    worst = float(np.abs(want[finite].astype(np.float64) - got[finite]).max()) / scale
    return None if worst <= (2e-2 if rough else {2: 8e-3, 4: 2e-4, 8: 1e-9}[want.dtype.itemsize]) else f"{worst:.1e} of the largest element"


def run(cmd):
    try:
        return forks.run(cmd)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(cmd, 124, "", "took longer than 600 s")


UNSUPPORTED = 4  # exit status


def failed(p):
    said = [l for l in p.stderr.splitlines() if "error" in l] or p.stderr.splitlines()
    return f"exit {p.returncode}: {said[-1] if said else ''}"


EVERY = [([], [["--threads", "1", "--isa", "4"], ["--threads", "3", "--isa", "3"]]),
         (["--fuse-at-most", "0"], [["--threads", "3", "--isa", "4"], ["--threads", "1", "--isa", "3"]])]


def ways(a, how):
    """Options of a compile and of each run: [(compile, run, number of its inputs)]."""
    if a.every and a.device == "cpu":
        return [(c, o, k) for c, runs in EVERY for k in range(len(how["run"])) for o in runs]
    return [(how["compile"], o if a.device == "cpu" else ["--device", a.device], k) for k, o in enumerate(how["run"])]


def given(d, how, k):
    return [w for n in how["inputs"] for w in ("--input", f"{n}={d}/{n}.{k}.npy")]


def check(a, d):
    how = json.load(open(f"{d}/how.json"))
    path, plan, made, todo = f"{d}/model.onnx", f"{d}/model.plan", None, ways(a, how)
    # AVX2's code is made where it is run, which is what takes the time.
    target = "native" if a.target == "cpu" and all(o[-2:] == ["--isa", "4"] for _, o, _ in todo) else a.target
    for compile, options, k in todo:
        if compile != made:
            p, made = run([a.graphc, path, "-o", plan, "--target", target, *how["dims"], *compile]), compile
        if p.returncode == UNSUPPORTED and a.of == "table":
            return "unsupported", failed(p)
        if p.returncode:
            return "failed", f"compile {' '.join(compile)} {failed(p)}"
        out = f"{d}/out{k}"
        os.makedirs(out, exist_ok=True)
        q = run([a.graphc, "run", plan, *given(d, how, k), *options, "--output-dir", out])
        if q.returncode:
            return "failed", f"run {' '.join(options)} {failed(q)}"
        for n in how["outputs"]:
            why = differs(np.load(f"{d}/want.{n}.{k}.npy"), np.load(f"{out}/{n}.npy"), how["rough"])
            if why:
                v = run([a.graphc, "verify", path, *how["dims"], *given(d, how, k), "--device", a.device])
                eased = how["rough"] or re.search(rf"^ok +{re.escape(n)}: .*; (it is a sum of terms \S+ times as large|element by element)", v.stdout, re.M)
                result = "rounded" if eased and v.returncode == 0 else "wrong"
                return result, f"{n} {' '.join(compile + options)}: {why}; verify: exit {v.returncode}"
    if a.every:
        v = run([a.graphc, "verify", path, *how["dims"], *given(d, how, 0), "--device", a.device])
        if v.returncode:
            return "wrong", f"agrees with onnxruntime, but verify: exit {v.returncode}: {(v.stdout + v.stderr).strip()[-160:]}"
    return "agree", ""


def one(a, seed):
    if time.monotonic() > a.end:
        return seed, "left", ""
    d = f"{a.folder}/{seed}"
    why = write(seed, d, a.of) if a.action != "check" else None if os.path.isdir(d) else "it was not written"
    result, why = ("skipped", why) if why else ("written", "") if a.action == "write" else check(a, d)
    if a.action == "run" and result not in ("wrong", "failed"):
        shutil.rmtree(d, ignore_errors=True)
    return seed, result, why


def main():
    p = argparse.ArgumentParser()
    p.add_argument("action", choices=["run", "write", "check"]), p.add_argument("graphc"), p.add_argument("--folder")
    p.add_argument("--seed", type=int, default=0), p.add_argument("--count", type=int, default=100), p.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--every", action="store_true"), p.add_argument("--seconds", type=float, help="no graph is begun later")
    p.add_argument("--of", choices=["graphs", "table"], default="graphs"), p.add_argument("--target", default="cpu"), p.add_argument("--device", default="cpu")
    a = p.parse_args()
    a.folder = a.folder or tempfile.mkdtemp(prefix="graphs")
    lines = [l.split(None, 1) for l in open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "graphs_open.txt")) if l[0] != "#"]
    known, total = {int(l[0]) for l in lines} if a.device == "cpu" and a.of == "graphs" else set(), collections.Counter()
    theirs = {int(l[0]) for l in lines if l[1].startswith("onnxruntime's")}  # by processor they differ or not
    a.end = time.monotonic() + a.seconds if a.seconds else float("inf")
    with ThreadPoolExecutor(a.jobs) as pool:
        for seed, result, why in pool.map(lambda s: one(a, s), range(a.seed, a.seed + a.count)):
            if seed in known and result == "wrong":
                result, why = "agree", ""
            elif seed in known and seed not in theirs:
                result, why = "wrong", f"{result}, though graphs_open.txt lists it: {why}"
            total[result] += 1
            if why:
                print(f"{seed}: {result}: {why}", flush=True)
    bad = total["wrong"] + total["failed"]
    print(", ".join(f"{n} {k}" for k, n in sorted(total.items())) + (f"; kept in {a.folder}" if bad else ""))
    if total["skipped"] > 0.1 * (a.count - total["left"]):
        sys.exit("of more than a tenth of the graphs there is no reference")
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
