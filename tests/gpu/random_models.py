"""Models as they are drawn: a product, a convolution or an attention, operands in some form, what follows, how results leave.

A model is a function of its seed. Nothing in it jumps where a number is rounded otherwise.
"""
import random
import numpy as np
import gpu_rows as rows

MOST = 3e8  # multiplications of a model
MOST_OF_WEIGHT = 1 << 16  # numbers of a constant, which is in the plan
ROWS = [m * odd + more for m in (64, 128, 192) for odd in (1, 3, 5, 7, 11) for more in (0, 0, 0, 1, -1, 8, -8)] + [2, 7, 8, 17, 32, 33, 40, 100, 1000, 2000]
COLUMNS = [1, 8, 16, 24, 32, 40, 56, 64, 64, 72, 96, 128, 128, 136, 192, 200, 256, 264, 320, 384, 512, 520, 576, 1000, 1032, 33, 100, 130, 131, 250]
SUMS = [16, 40, 64, 72, 100, 128, 136, 192, 200, 256, 384, 520, 1000, 1032, 1088, 2000, 2056, 4096, 4104]
UNARY = {"gelu": ("Gelu", {}), "gelu_tanh": ("Gelu", {"approximate": "tanh"}), "relu": ("Relu", {}), "tanh": ("Tanh", {})}
FLOAT = {"f32": 1, "f16": 10, "bf16": 16}  # as ONNX numbers them


class Draw:
    """A graph as it is drawn: nodes, inputs, results; `said` is what its name says."""
    def __init__(self, seed):
        self.r, self.np = random.Random(seed), np.random.default_rng(seed)
        self.nodes, self.ins, self.outs, self.init, self.said, self.options, self.kind, self.weights = [], [], [], [], [], [], None, False

    def op(self, kind, *ins, **attrs):
        self.nodes.append((kind, list(ins), f"v{len(self.nodes)}", attrs))
        return self.nodes[-1][2]

    def given(self, t, shape):
        self.ins.append((f"x{len(self.ins)}", t, list(shape)))
        return self.ins[-1][0]

    def const(self, array):
        from onnx import numpy_helper
        self.init.append(numpy_helper.from_array(np.asarray(array), f"w{len(self.init)}"))
        return self.init[-1].name

    def ints(self, *values):
        return self.const(np.array(values, np.int64))

    def result(self, v, t, shape):
        self.outs.append((self.op("Identity", v), t, list(shape)))

    def maybe(self, p):
        return self.r.random() < p

    def number(self, t, v):
        return self.op("CastLike", self.const(np.float32(v)), t)


class Value:
    """A matrix of the graph: its name, type, axes in front of the last two."""
    def __init__(self, name, t, batch, m, n):
        self.name, self.t, self.batch, self.m, self.n = name, t, batch, m, n

    def shape(self):
        return [*self.batch, self.m, self.n]

    def of(self, name, t=None):
        return Value(name, t or self.t, self.batch, self.m, self.n)


# --- Operands -------------------------------------------------------------------------------------


def operand(d, t, batch, m, k):
    """[*batch, m, k] as a model may have it: by itself, turned, a slice of wider rows, of heads beside each other, of two parts."""
    form = d.r.choice(["", "", "", "turned", "turned", "slice", "slice_off", "heads", "parts"])
    turn = [*range(len(batch)), len(batch) + 1, len(batch)]
    if form == "turned" and (m if isinstance(m, int) else 1) % 8 == 0:
        return d.op("Transpose", d.given(t, [*batch, k, m]), perm=turn), "t"
    if form in ("slice", "slice_off"):
        first = {"slice": 8, "slice_off": d.r.choice([1, 4])}[form]
        wide = d.given(t, [*batch, m, k + first + d.r.choice([0, 8])])
        return d.op("Slice", wide, d.ints(first), d.ints(first + k), d.ints(len(batch) + 1)), "s"
    if form == "heads" and len(batch) == 1:
        return d.op("Transpose", d.given(t, [m, batch[0], k]), perm=[1, 0, 2]), "h"
    if form == "parts" and k >= 32 and d.maybe(0.5):
        parts = [d.given(t, [*batch, m, n]) for n in (k // 16 * 8, k - k // 16 * 8)]
        return d.op("Concat", *parts, axis=len(batch) + 1), "p"
    return d.given(t, [*batch, m, k]), "n"


def product(d, t, batch, m, k, n, a=None):
    """(the product, its left operand); a: the left operand of another one over the same batch."""
    left, how = (a, "") if a else operand(d, t, batch, m, k)
    d.shared = d.shared if a else bool(batch) and d.maybe(0.3)
    of = [] if d.shared else batch
    if d.weights and not of and isinstance(n, int) and n * k <= MOST_OF_WEIGHT:
        shape, turn, way = d.r.choice([([n, k], True, "w"), ([k, n], False, "wn")])
        right = d.op("CastLike", d.const(d.np.uniform(-1, 1, shape).astype(np.float16)), left)
    else:
        (right, way), turn = operand(d, t, of, n, k), True
    if turn:
        right = d.op("Transpose", right, perm=[*range(len(of)), len(of) + 1, len(of)])
    d.said.append(how + way + ("b" if d.shared else ""))
    return Value(d.op("MatMul", left, right), t, batch, m, n), left


# --- What follows ---------------------------------------------------------------------------------


def mask(d, v):
    """Values that are chosen by numbers that are the same on both sides."""
    shape = d.r.choice([v.shape(), v.shape(), [v.n], [v.m, 1]])
    where = d.op("Less", d.given("i64", shape), d.ints(50))
    other = d.given(v.t, v.shape()) if d.maybe(0.3) else d.number(v.name, 0.25)
    return v.of(d.op("Where", where, v.name, other))


def step(d, v, k, left):
    """One operation behind a product."""
    kind = d.r.choice(["columns", "columns", "rows", "residual", "residual", "up", "gelu", "gelu_tanh", "silu", "relu", "gathered", "gathered_batch", "tanh",
                       "scale", "mask", "mask", "times", "row_times", "gate", "gate", "term", "by_batch"])
    d.said.append(kind)
    if kind in UNARY:
        return v.of(d.op(UNARY[kind][0], v.name, **UNARY[kind][1]))
    if kind == "silu":
        return v.of(d.op("Mul", v.name, d.op("Sigmoid", v.name)))
    if kind == "up" and v.t != "f32":
        return v.of(d.op("Add", d.op("Cast", v.name, to=1), d.given("f32", v.shape())), "f32")
    if kind == "scale":
        return v.of(d.op("Mul", v.name, d.number(v.name, 0.125)))
    if kind == "mask":
        return mask(d, v)
    if kind == "gathered" or (kind == "gathered_batch" and v.batch):
        table, at = ([97, v.n], [v.m]) if kind == "gathered" else ([97, *v.batch[1:], v.m, v.n], v.batch[:1])
        return v.of(d.op("Add", v.name, d.op("Gather", d.given(v.t, table), d.given("i64", at))))
    if kind in ("times", "row_times"):
        return v.of(d.op("Mul", v.name, d.given(v.t, v.shape() if kind == "times" else [v.m, 1])))
    if kind in ("gate", "term") and left and 2 * float(np.prod([size_of(x) for x in (*v.batch, v.m, v.n, k)])) <= MOST:
        a, sums = (left, k) if kind == "gate" else (None, d.r.choice([16, 64, 72, 100, 200]))
        u = product(d, d.base, v.batch, v.m, sums, v.n, a)[0].name
        if v.t != d.base:
            u = d.op("Cast", u, to=FLOAT[v.t])
        return v.of(d.op("Mul", v.name, d.op("Sigmoid", u)) if kind == "gate" else d.op("Add", v.name, u))
    shape = {"columns": [v.n], "rows": [v.m, 1], "by_batch": [*v.batch[:1], *[1] * (len(v.batch) - 1), *d.r.choice([[1, v.n], [v.m, 1]])]}
    return v.of(d.op("Add", v.name, d.given(v.t, shape.get(kind, v.shape()))))


def results(d, v, left=None):
    """How it leaves: by itself, twice, with others, turned, in part."""
    kind = d.r.choice(["", "", "", "f32", "two", "two_f32", "three", "mixed", "chosen", "turned", "part", "heads", "joined", "beside"])
    if isinstance(v.n, str) and kind in ("part", "heads", "joined"):
        kind = ""
    d.said.append(kind)
    last = len(v.batch) + 1
    if kind == "turned":
        turned = d.op("Transpose", v.name, perm=[*range(last - 1), last, last - 1])
        return d.result(turned, v.t, [*v.batch, v.n, v.m])
    if kind == "part" and v.n > 16:
        return d.result(d.op("Slice", v.name, d.ints(8), d.ints(v.n), d.ints(last)), v.t, [*v.batch, v.m, v.n - 8])
    if kind == "heads" and v.n % 16 == 0 and not v.batch:
        apart = d.op("Reshape", v.name, d.ints(0, v.n // 8, 8))
        return d.result(d.op("Transpose", apart, perm=[1, 0, 2]), v.t, [v.n // 8, v.m, 8])
    if kind in ("f32", "two_f32", "mixed"):
        wide = d.op("Cast", v.name, to=1)
        d.result(wide, "f32", v.shape())
        if kind == "two_f32":
            d.result(d.op("Sub", wide, d.given("f32", v.shape())), "f32", v.shape())
        if kind == "mixed":
            d.result(d.op("Add", v.name, d.given(v.t, v.shape())), v.t, v.shape())
        return None
    if kind == "joined":
        more = d.r.choice([8, 64, 100])
        return d.result(d.op("Concat", d.given(v.t, [*v.batch, v.m, more]), v.name, axis=last), v.t, [*v.batch, v.m, more + v.n])
    d.result(v.name, v.t, v.shape())
    if kind == "beside" and left:
        d.result(product(d, d.base, v.batch, v.m, left[1], v.n, left[0])[0].name, d.base, v.shape())
    if kind in ("two", "three"):
        d.result(d.op("Sub", v.name, d.given(v.t, v.shape())), v.t, v.shape())
    if kind == "three":
        d.result(d.op("Mul", v.name, d.given(v.t, [v.n])), v.t, v.shape())
    if kind == "chosen":
        d.result(mask(d, v).name, v.t, v.shape())
    return None


# --- Models ---------------------------------------------------------------------------------------


def size_of(m):
    return int(m.split("_")[1]) if isinstance(m, str) else m


def sizes(d, most=MOST):
    """Rows, sum, columns, batch axes."""
    while True:
        batch = d.r.choice([[], [], [], [2], [3], [5], [2, 3]])
        m, k, n = d.r.choice(ROWS), d.r.choice(SUMS), d.r.choice(COLUMNS)
        if float(np.prod(batch)) * m * k * n <= most and m * n <= 1 << 20:
            return batch, m, k, n


def opened(d, size, likely=0.2):
    """The size is known when the plan runs: by the symbol's name."""
    if not d.maybe(likely):
        return size
    if d.maybe(0.5):
        d.options += ["--dim", f"rows_{size}=1..{max(size, d.r.choice([512, 8192]))}"]
    d.said.append(f"open{size}")
    return f"rows_{size}"


def floats(d):
    t = d.base = d.r.choice(["bf16", "bf16", "f16", "f32", "f32"])
    batch, m, k, n = sizes(d)
    d.kind, d.weights = t, d.maybe(0.3)
    if t == "f32" and d.maybe(0.6):
        d.kind = d.r.choice(["tf32", "bf16", "f16"])
        d.options += ["--precision", d.kind]
    d.said.append(f"{t}_" + (d.kind if d.kind != t else "") + "x".join(map(str, [*batch, m, k, n])))
    batch, m, n = [*(opened(d, b) for b in batch[:1]), *batch[1:]], opened(d, m), opened(d, n, 0.1)
    v, left = product(d, t, batch, m, k, n)
    v = v.of(d.op("Mul", v.name, d.number(v.name, 2.0 ** -round(np.log2(k) / 2))) if d.maybe(0.5) else v.name)
    for _ in range(d.r.choice([0, 1, 1, 2, 2, 3])):
        v = step(d, v, k, left)
    results(d, v, (left, k))


def low_ranks(d):
    """Products with weights, and others added to them in f32, as adapters are: they may be one kernel's terms."""
    d.base, d.kind, d.weights = "f32", d.r.choice(["bf16", "bf16", "f16"]), True
    _, m, k, n = sizes(d, 1 << 23)
    d.options += ["--precision", d.kind]
    d.said.append(f"{d.kind}_{m}x{k}x{n}")
    m = opened(d, m)
    v, left = product(d, "f32", [], m, k, n)
    for _ in range(d.r.choice([1, 1, 2, 3])):
        u = product(d, "f32", [], m, d.r.choice([8, 16, 64, 72, 200]), n)[0]
        v = v.of(d.op("Add", v.name, u.name))
    for _ in range(d.r.choice([0, 1, 1, 2])):
        v = step(d, v, k, left)
    results(d, v, (left, k))


def of_bytes(d):
    """Sums of integers are exact, and what is made of them; floats of 8 bits are widened."""
    batch, m, k, n = sizes(d)
    t = d.r.choice(["i8", "i8", "f8e4m3fn"])
    d.base, d.kind = "f32", "f32" if t == "i8" else t
    d.said.append(f"{t}_" + "x".join(map(str, [*batch, m, k, n])))
    m = opened(d, m)
    a, b = d.given(t, [*batch, m, k]), d.op("Transpose", d.given(t, [n, k]), perm=[1, 0])
    if t == "i8":
        points = [d.given("i8", [])] + ([d.given("i8", [n])] if d.maybe(0.5) else []) if d.maybe(0.4) else []
        sums = d.op("MatMulInteger", a, b, *points)
        if d.maybe(0.3):
            d.said.append("i32"), d.result(sums, "i32", [*batch, m, n])
        if d.maybe(0.3):
            d.said.append("bool"), d.result(d.op("Greater", sums, d.given("i32", [n])), "bool", [*batch, m, n])
        v = Value(d.op("Mul", d.op("Cast", sums, to=1), d.const(np.float32(2 ** -10))), "f32", batch, m, n)
        if d.maybe(0.4):
            d.said.append("i8")
            return d.result(d.op("QuantizeLinear", v.name, d.const(np.float32(1)), d.const(np.int8(3))), "i8", v.shape())
    else:
        v = Value(d.op("MatMul", d.op("Cast", a, to=1), d.op("Cast", b, to=1)), "f32", batch, m, n)
    for _ in range(d.r.choice([0, 1, 2])):
        v = step(d, v, k, None)
    if t != "i8" or d.maybe(0.3):
        v = v.of(d.op("Cast", v.name, to=16), "bf16")
        d.kind = "f8e4m3fn"
    results(d, v)


def convolution(d):
    t = d.base = d.r.choice(["f16", "f16", "bf16", "f32"])
    d.kind = d.r.choice(["tf32", "f32", "f16"]) if t == "f32" else t
    d.options += ["--precision", d.kind] if d.kind != t else []
    b, size, k = d.r.choice([1, 2, 3]), [d.r.choice([7, 9, 13, 14, 16, 23, 28, 37]) for _ in range(d.r.choice([1, 2, 2, 2, 2, 3]))], d.r.choice([1, 1, 2, 3, 3, 5])
    size = size if len(size) < 3 else [min(s, 9) for s in size]
    stride, dilation, group = d.r.choice([1, 1, 1, 2, 3]), d.r.choice([1, 1, 1, 2]), d.r.choice([1, 1, 1, 1, 2, 4])
    c, o = d.r.choice([3, 8, 16, 24, 40, 64, 72, 96, 128]) * group, d.r.choice([1, 8, 16, 24, 40, 64, 72, 128, 136, 192]) * group
    rank, pad = len(size), d.r.choice([0, k // 2])
    size = [max(s, (k - 1) * dilation + 1) for s in size]
    front, back = [0, rank + 1, *range(1, rank + 1)], [0, *range(2, rank + 2), 1]
    turned = d.maybe(0.15)
    of = opened(d, b)
    x = d.op("Transpose", d.given(t, [of, *size, c]), perm=front)
    shape = [c, o // group] if turned else [o, c // group]
    w = d.given(t, shape + [k] * rank) if d.maybe(0.3) else d.op("CastLike", d.const((d.np.standard_normal(shape + [k] * rank) / np.sqrt(c // group * k ** rank)).astype(np.float16)), x)
    attrs = dict(strides=[stride] * rank, dilations=[dilation] * rank, group=group, pads=[pad] * 2 * rank)
    out = [(s - 1) * stride + (k - 1) * dilation + 1 - 2 * pad if turned else (s + 2 * pad - (k - 1) * dilation - 1) // stride + 1 for s in size]
    d.said.append(f"{'turned_' if turned else ''}{t}_{d.kind}_{b}x{'x'.join(map(str, size))}x{c}_{o}_k{k}s{stride}d{dilation}g{group}p{pad}")
    y = d.op("ConvTranspose" if turned else "Conv", x, w, *([d.given(t, [o])] if d.maybe(0.6) else []), **attrs)
    v = Value(d.op("Transpose", y, perm=back), t, [of, *out[:-1]], out[-1], o)
    for _ in range(d.r.choice([0, 1, 1, 2])):
        v = step(d, v, 1, None)
    results(d, v)


def attention(d):
    t = d.base = d.kind = d.r.choice(["bf16", "bf16", "f16", "f32"])
    b, kv, group, size = d.r.choice([1, 2, 3]), d.r.choice([1, 2, 3]), d.r.choice([1, 1, 2, 4, 7]), d.r.choice([16, 20, 32, 40, 64, 64, 72, 96, 128, 128, 192, 256])
    queries = d.r.choice([1, 3, 33, 63, 64, 65, 100, 127, 128, 129, 191, 192, 193, 257, 320, 333])
    causal = d.maybe(0.4)
    keys = queries if d.maybe(0.7 if causal else 0.3) else d.r.choice([1, 7, 40, 63, 64, 65, 127, 128, 129, 200, 255, 256, 257, 511, 577, 1000])
    heads, mask_of = kv * group, d.r.choice(["", "", "k", "qk", "hqk"]) if not causal else ""
    d.said.append(f"{t}_{b}_{heads}_{kv}_{queries}x{keys}x{size}{'_causal' if causal else ''}_{mask_of}")
    b, queries, keys = opened(d, b), opened(d, queries), opened(d, keys)
    if d.maybe(0.5):
        q, k, v = (d.op("Transpose", d.given(t, [b, s, n, size]), perm=[0, 2, 1, 3]) for n, s in ((heads, queries), (kv, keys), (kv, keys)))
    else:
        q, k, v = (d.given(t, [b, n, s, size]) for n, s in ((heads, queries), (kv, keys), (kv, keys)))
    masks = {"k": [b, 1, 1, keys], "qk": [1, 1, queries, keys], "hqk": [b, heads, queries, keys]}
    o = d.op("Attention", q, k, v, *([d.given(t, masks[mask_of])] if mask_of else []), is_causal=int(causal))
    u = Value(o, t, [b, heads], queries, size)
    if d.maybe(0.4) and not causal:
        u = step(d, u, 1, None)
    if d.maybe(0.5):
        return d.result(d.op("Transpose", u.name, perm=[0, 2, 1, 3]), u.t, [b, queries, heads, size])
    return results(d, u)


def draw(seed):
    d = Draw(seed)
    make = d.r.choice([floats] * 9 + [low_ranks] + [of_bytes] * 2 + [convolution] * 4 + [attention] * 2)
    make(d)
    name = f"{seed:05d}_{make.__name__}_" + "_".join(s for s in d.said if s)
    rows.add(name, lambda: rows.model(d.ins, d.nodes, d.outs, d.init), ("rows", d.kind), options=tuple(d.options))


def drawn(seed, count):
    rows.ROWS.clear()
    for i in range(seed, seed + count):
        draw(i)
    return rows.ROWS
