"""One node to be, and the rows that make one of each kind: TABLE."""
import numpy as np
from onnx import helper as h, numpy_helper

T = dict(f32=1, u8=2, i8=3, u16=4, i16=5, i32=6, i64=7, bool=9, f16=10, f64=11, u32=12, u64=13)
NP = {"f32": "float32", "u8": "uint8", "i8": "int8", "u16": "uint16", "i16": "int16", "i32": "int32", "i64": "int64",
      "bool": "bool", "f16": "float16", "f64": "float64", "u32": "uint32", "u64": "uint64"}
FLOATS, INTS = ["f32", "f32", "f32", "f64", "f16"], ["i64", "i32", "i32", "i8", "u8", "i16", "u16", "u32", "u64"]
ANY = FLOATS + INTS + ["bool"]


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


def rows(*names):
    def add(fn):
        for n in names:
            TABLE[n] = fn
        return fn
    return add
