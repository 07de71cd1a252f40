"""What random graphs are made with: values that know their sizes, types and bounds, and a maker that adds nodes.

A step is a function that takes the maker and adds one value or more; graphs.py has those of one operator, motifs.py those of several, places.py reductions that are read elsewhere.
"""
import random

import numpy as np

try:
    from onnx import helper as h, numpy_helper
except ImportError:  # a machine that only checks what another one wrote
    pass

OPSET = 20
FLOAT, DOUBLE, HALF, BF16, INT64, INT32, INT8, UINT8, BOOL = 1, 11, 10, 16, 7, 6, 3, 2, 9  # TensorProto.DataType
NP = {FLOAT: np.float32, DOUBLE: np.float64, HALF: np.float16, INT64: np.int64, INT32: np.int32, INT8: np.int8, UINT8: np.uint8, BOOL: np.bool_}
STEPS = {}


class Refused(Exception):
    """This step does not fit what is there: another is tried."""


class Value:
    """shape: numbers, or names of open sizes. exact: no rounding in it, so that it may be compared or rounded.
    low, high: what its elements lie between."""

    def __init__(self, name, shape, dtype=FLOAT, exact=False, low=-4.0, high=4.0):
        self.name, self.shape, self.dtype, self.exact = name, list(shape), dtype, exact
        self.low, self.high = low, high

    def fixed(self, axis):
        return isinstance(self.shape[axis], int)


class Maker:
    def __init__(self, seed, kind=None):
        """kind: of floats, instead of what the seed picks."""
        self.r = random.Random(seed)
        self.np = np.random.default_rng(seed)
        self.nodes, self.inits, self.inputs, self.values, self.read = [], [], [], [], set()
        self.sizes = {}  # of open sizes, one list a run
        self.count = 0
        picked = self.r.choice([FLOAT] * 12 + [DOUBLE] * 2 + [HALF])
        self.float = kind or picked
        self.rough = self.float == HALF  # whether other roundings are allowed than the reference's
        self.shared, self.fresh = {}, []  # constants that later nodes read, too, by type and shape; those of this step
        self.begin()

    # --- naming, constants, nodes ----------------------------------------------------------------------

    def name(self, stem):
        self.count += 1
        return f"{stem}{self.count}"

    def const(self, array, dtype=None):
        n = self.name("c")
        if dtype:
            array = np.asarray(array, NP[dtype])
        if array.ndim == 0 or self.r.random() < 0.3:
            self.nodes.append(h.make_node("Constant", [], [n], value=numpy_helper.from_array(np.asarray(array))))
        else:
            self.inits.append(numpy_helper.from_array(array, n))
        return n

    def ints(self, *v):
        return self.const(np.array(v, np.int64))

    def reals(self, *shape, scale=1.0):
        if (self.float, shape) in self.shared and self.r.random() < 0.25:
            return self.shared[self.float, shape]
        c = self.const((self.np.standard_normal(shape) * scale).astype(NP[self.float]))
        if self.inits and self.inits[-1].name == c:  # one that stays where it is when this step is refused
            self.fresh.append(((self.float, shape), c))
        return c

    def scalar(self, v):
        return self.const(np.asarray(v, NP[self.float]))

    def op(self, kind, ins, shape, dtype=None, exact=False, low=None, high=None, of=None, **attrs):
        """of: the value whose bounds hold still."""
        out = self.name("v")
        names = [v.name if isinstance(v, Value) else v for v in ins]
        self.read.update(names)
        self.nodes.append(h.make_node(kind, names, [out], **attrs))
        lo, hi = (of.low, of.high) if of else (-4.0, 4.0)
        v = Value(out, shape, self.float if dtype is None else dtype, exact, lo if low is None else low, hi if high is None else high)
        return v

    def two(self, kind, a, b, dtype=None, **more):
        """A node of two operands, values or names of scalars."""
        shape = self.broadcast(a.shape, b.shape) if isinstance(a, Value) and isinstance(b, Value) else (a if isinstance(a, Value) else b).shape
        return self.op(kind, [a, b], shape, dtype, **more)

    def weight(self, *shape, scale=1.0):
        return Value(self.reals(*shape, scale=scale), shape, self.float, True, -5.0, 5.0)

    def keep(self, v):
        self.values.append(v)
        return v

    # --- what there is at first -------------------------------------------------------------------------

    def size(self):
        return self.r.choice([1, 1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 33] * 4 + [65, 130, 300])

    def begin(self):
        r = self.r
        for s in range(r.choice([0, 0, 1, 1, 2])):
            self.sizes[f"s{s}"] = [r.choice([1, 2, 3, 5, 8, 13]), r.choice([1, 4, 6, 7, 17] * 4 + [0])]
        base = [self.size() for _ in range(r.randint(1, 4))]
        for i in range(len(base)):
            if self.sizes and r.random() < 0.35:
                base[i] = r.choice(list(self.sizes))
        for _ in range(r.randint(1, 3)):
            shape = list(base)
            if r.random() < 0.4:
                shape = shape[r.randint(0, len(shape) - 1):]
            shape = [1 if r.random() < 0.12 else d for d in shape]
            self.input(shape)
        if r.random() < 0.35:
            self.input([r.choice([1, 2, 3]), r.choice([1, 3, 4, 8]), r.randint(3, 12), r.randint(3, 12)])
        if r.random() < 0.2:
            self.input([d for d in base if d], INT64)

    def input(self, shape, dtype=None):
        v = Value(self.name("x"), shape, self.float if dtype is None else dtype, True, -2.0 if dtype is None else -3, 2.0 if dtype is None else 3)
        self.inputs.append(v)
        return self.keep(v)

    # --- picking ----------------------------------------------------------------------------------------

    def some(self, dtype=None, rank=None, least=0, exact=None):
        want = self.float if dtype is None else dtype
        fit = [v for v in self.values if v.dtype == want and len(v.shape) >= least and (rank is None or len(v.shape) == rank)
               and (exact is None or v.exact == exact)]
        if not fit:
            raise Refused
        near = fit[-3:] if self.r.random() < 0.6 else fit
        return self.r.choice(near)

    def tame(self, v, limit=4.0):
        """v within a bound, where it could lie outside."""
        if -limit <= v.low and v.high <= limit:
            return v
        if self.r.random() < 0.5:
            return self.op("Tanh", [v], v.shape, low=-1.0, high=1.0)
        return self.op("Clip", [v, self.scalar(-limit), self.scalar(limit)], v.shape, exact=v.exact, low=-limit, high=limit)

    def axis(self, v):
        if not v.shape:
            raise Refused
        a = self.r.randrange(len(v.shape))
        return a, (a if self.r.random() < 0.6 else a - len(v.shape))

    def broadcast(self, a, b):
        n = max(len(a), len(b))
        a, b, out = [1] * (n - len(a)) + a, [1] * (n - len(b)) + b, []
        for x, y in zip(a, b):
            if x == y or y == 1:
                out.append(x)
            elif x == 1:
                out.append(y)
            else:
                raise Refused
        return out

    def partner(self, v):
        """A value of v's type that broadcasts with it: another one, or a constant."""
        for w in self.r.sample(self.values, len(self.values)):
            if w.dtype == v.dtype and w is not v and self.r.random() < 0.5:
                try:
                    return w, self.broadcast(v.shape, w.shape)
                except Refused:
                    pass
        shape = [d if isinstance(d, int) and self.r.random() < 0.6 else 1 for d in v.shape]
        shape = shape[self.r.randint(0, len(shape)):] if shape else []
        if v.dtype == self.float:
            c = Value(self.reals(*shape), shape, v.dtype, True, -5.0, 5.0)
        else:
            c = Value(self.const(self.np.integers(-3, 4, shape), v.dtype), shape, v.dtype, True, -3, 3)
        return c, self.broadcast(v.shape, shape)


def step(weight=1.0):
    def add(fn):
        STEPS[fn.__name__] = (fn, weight)
        return fn
    return add
