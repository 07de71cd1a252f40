"""Every family of core ops over all element types, with the values and sizes where mistakes live: NaN,
infinities, -0, denormals, the ends of integer ranges; empty tensors, rank 0, axes of one, ragged sizes
around vector widths, long axes. Each case twice: with fixed sizes and with the same sizes left open."""
import math

import numpy as np
import onnx

from cases import BITS16, DTYPES, FLOATS, INTS, RTOL, SIGNED, UNSIGNED, Cases

rng = np.random.default_rng(11)
cases = Cases()
i64 = lambda *v: np.array(v, np.int64)


def is_float(t):
    return t in FLOATS


def info(t):
    return np.iinfo(DTYPES[t])


def edges(t, n=45):
    """Special values first, then plain ones: n in all, no multiple of a vector width."""
    if t == "bool":
        return np.array([i % 3 == 0 for i in range(n)])
    if not is_float(t):
        lo, hi = info(t).min, info(t).max
        special = [0, 1, hi, lo, hi - 1, lo + 1, hi // 2, 2, 3, 7]
        return np.array(special + list(rng.integers(max(lo, -100), 100, n - len(special))), DTYPES[t])
    tiny, top = {"f16": (6e-8, 65504.), "bf16": (1e-40, 3.38e38), "f32": (1e-45, 3.4028234e38), "f64": (5e-324, 1.7976e308)}[t]
    special = [0., -0., 1., -1., np.inf, -np.inf, np.nan, tiny, -tiny, top, -top, .5, -.5, 1.5, 2.5, -2.5, 3e4, -3e4, 1e-3]
    return np.array(special + list(rng.standard_normal(n - len(special)) * 3), np.float64).astype(DTYPES[t])


def plain(t, *shape, scale=1.0):
    if t == "bool":
        return rng.random(shape) < 0.5
    if is_float(t):
        return (rng.standard_normal(shape) * scale).astype(DTYPES[t])
    return rng.integers(max(info(t).min, -6), 7, shape).astype(DTYPES[t])


def tol(t, atol=0.0, times=1.0):
    return (RTOL.get(t, 0.0) * times, atol or (1e-7 if t == "f32" else 1e-15 if t == "f64" else 0.0))


def opened(x):
    """A symbol per size, so that equal sizes are known to be equal. Axes of one stay, they broadcast; so
    do empty ones, which the default range of a symbol leaves out."""
    return {a: f"n{s}" for a, s in enumerate(x.shape) if s > 1}


def both(name, build, still=(), **kw):
    """The case with fixed and with open sizes, those of inputs in `still` excepted; build adds the nodes."""
    for open_ in (False, True):
        inputs = {k: v for k, v in kw.items() if isinstance(v, np.ndarray)}
        rest = {k: v for k, v in kw.items() if k not in inputs}
        consts = rest.get("const", ())
        free = {k: opened(v) for k, v in inputs.items() if k not in consts and k not in still} if open_ else None
        if open_ and not any(free.values()):
            continue
        build(cases.new(name + "_open" * open_, free=free, **rest, **inputs))


# ---- element by element ---------------------------------------------------------------------------
UNARY = """Abs Neg Sign Floor Ceil Round Sqrt Reciprocal Exp Log Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh
Asinh Acosh Atanh Erf Sigmoid Relu Softplus Softsign Elu Selu Celu HardSigmoid HardSwish LeakyRelu Mish
Gelu ThresholdedRelu""".split()
wide = lambda f: lambda x: f(x.astype(np.float64)).astype(x.dtype)
softplus = lambda x: np.logaddexp(0, x)
erf = np.vectorize(math.erf, otypes=[np.float64])
# Where onnxruntime computes f64 in f32, overflows on the way, or has rules of its own for NaN.
EXACT = {"Erf": erf, "Gelu": lambda x: np.where(x == -np.inf, np.nan, .5 * x * (1 + erf(x / 2 ** .5))), "Softplus": softplus,
         "Mish": lambda x: x * np.tanh(softplus(x)), "HardSwish": lambda x: x * np.clip(x * float(np.float32(1 / 6)) + .5, 0, 1), "Sign": np.sign,
         "Softsign": lambda x: x / (1 + np.abs(x))}
SHAPES = {"edges": None, "scalar": (), "empty": (3, 0, 2), "one": (1, 1), "cube": (3, 5, 7)}

for t in FLOATS:
    def unary(c):
        for op in UNARY:
            # Angles beyond about 1e5 have no exact reduction.
            c.op(op, "small" if op in ("Sin", "Cos", "Tan") else "x", ref=wide(EXACT[op]) if op in EXACT else None)
        c.op("IsNaN", "x"), c.op("IsInf", "x"), c.op("IsInf", "x", detect_negative=0), c.op("Identity", "x")
    for shape_name, shape in SHAPES.items():
        # Results of 1e-6 of the inputs' unit: erf, sin ... go through 0 where inputs do not.
        x = edges(t) if shape is None else plain(t, *shape)
        both(f"unary_{t}_{shape_name}", unary, x=x, small=np.where(np.abs(x.astype(np.float64)) < 1e5, x, x.dtype.type(.25)),
             tolerance=tol(t, {"f64": 1e-12, "f32": 1e-6}.get(t, 1e-3), 4))
for t in INTS:
    def unary_int(c):
        for op in ("Abs", "Sign", "BitwiseNot") + (("Neg",) if t in SIGNED else ()):
            c.op(op, "x")
    both(f"unary_{t}", unary_int, x=edges(t))

for t in FLOATS:
    a, b = edges(t, 19)[:, None], edges(t, 22)[None, :]

    def binary(c):
        for op in "Add Sub Mul Div Max Min Sum Equal Less LessOrEqual Greater GreaterOrEqual".split():
            c.op(op, "a", "b")
        c.op("Mean", "p", "q"), c.op("Mod", "p", "q", fmod=1), c.op("PRelu", "ab", "q")
        for v, op in (("inf", "Max"), ("-inf", "Min"), ("nan", "Max"), ("-0.0", "Add")):
            c.op(op, "a", c.add(f"c{v}", np.array(float(v), DTYPES[t])))
    both(f"binary_{t}", binary, a=a, b=b, ab=np.repeat(a, 22, axis=1), p=plain(t, 19, 1, scale=9), q=plain(t, 1, 22), tolerance=tol(t))
    x, y = np.abs(plain(t, 7, 1, 3)) + DTYPES[t](0.5), plain(t, 5, 1)
    both(f"pow_{t}", lambda c: [c.op("Pow", "x", "y")] + [c.op("Pow", "x", c.add(f"e{i}", np.array(e, DTYPES[t])))
                                for i, e in enumerate((2, 3, 0, 1, -1, .5, -.5, 1 / 3))], x=x, y=y, tolerance=tol(t, 0, 8))
    both(f"pow_edges_{t}", lambda c: c.op("Pow", "x", "y"), x=edges(t, 19)[:, None],
         y=np.array([0, -0., 1, -1, 2, 3, .5, np.inf, -np.inf, np.nan], DTYPES[t]), tolerance=tol(t, 0, 8))
for t in INTS:
    a, b = edges(t, 19)[:, None], edges(t, 22)[None, :]

    def binary_int(c):
        for op in ("Add Sub Mul Max Min Sum Equal Less LessOrEqual Greater GreaterOrEqual BitwiseAnd BitwiseOr "
                   "BitwiseXor").split():
            c.op(op, "a", "b")
        c.op("Div", "a", "d"), c.op("Mod", "a", "d")
        c.op("Mod", "a", "d", fmod=1, ref=np.fmod)
        for k in (1, 2, 3, 7, 8, 10):
            v = c.add(f"k{k}", np.array(k, DTYPES[t]))
            c.op("Div", "a", v), c.op("Mod", "a", v)
        if t in SIGNED:
            v = c.add("kneg", np.array(-3, DTYPES[t]))
            c.op("Div", "a", v), c.op("Mod", "a", v)
        if t in UNSIGNED:
            c.op("BitShift", "a", "s", direction="LEFT"), c.op("BitShift", "a", "s", direction="RIGHT")
    d = np.array([v for v in edges(t, 22) if v not in (0, -1)], DTYPES[t])[None, :]
    both(f"binary_{t}", binary_int, a=a, b=b, d=d, s=np.arange(DTYPES[t](0).itemsize * 8, dtype=DTYPES[t])[None, :])
both("pow_int", lambda c: c.op("Pow", "x", "y"), x=np.arange(-5, 6, dtype=np.int64)[:, None], y=i64(0, 1, 2, 3, 5, 7))
both("logic", lambda c: [c.op(op, "a", "b") for op in ("And", "Or", "Xor", "Equal")] + [c.op("Not", "a")],
     a=np.array([[False], [True]]), b=np.array([False, True, True]))
for t in DTYPES:
    both(f"where_{t}", lambda c: c.op("Where", "m", "a", "b"), m=edges("bool", 23)[:, None],
         a=edges(t, 23)[:, None], b=edges(t, 31)[None, :])
    if t != "bool":
        one, two = (np.array(k, DTYPES[t]) for k in ((-1, 2) if t not in UNSIGNED else (1, 2)))
        both(f"clip_{t}", lambda c: [c.op("Clip", "x", "lo", "hi"), c.op("Clip", "f", "lo"), c.op("Clip", "f", "", "hi")],
             x=edges(t), f=np.where(np.isinf(edges(t).astype(np.float64)), DTYPES[t](5), edges(t)) if is_float(t) else edges(t), lo=one, hi=two, const=("lo", "hi"))

# ---- types ------------------------------------------------------------------------------------------
for t in DTYPES:
    x = edges(t)
    if is_float(t):  # what does not fit an integer is undefined
        safe = np.array([0, -0., 1, 1.5, 2.5, 3.99, 100, 127, .1], np.float64).astype(DTYPES[t])
        signed = np.concatenate([safe, -safe])

    def casts(c):
        for to, d in DTYPES.items():
            source = "x" if not is_float(t) or is_float(to) or to == "bool" else "safe" if to in UNSIGNED else "signed"
            c.op("Cast", source, to=int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(d))))
    extra = dict(safe=safe, signed=signed) if is_float(t) else {}
    both(f"cast_{t}", casts, x=x[:33], **extra)  # one element behind whole vectors

# ---- views ------------------------------------------------------------------------------------------
def views(c, t, shape):
    r = len(shape)
    v = lambda name, *a: c.add(name, i64(*a))
    c.op("Transpose", "x"), c.op("Reshape", "x", v("flat", -1 if np.prod(shape) else 0))
    if r < 3:
        return
    c.op("Transpose", "x", perm=[1, 2, 0]), c.op("Transpose", "x", perm=[0, 2, 1])
    c.op("Flatten", "x", axis=2), c.op("Unsqueeze", "x", v("ax02", 0, 2)), c.op("Squeeze", c.op("Unsqueeze", "x", "ax02"))
    c.op("Slice", "x", v("s0", 1, -1), v("e0", 9, -999), v("a0", 0, 2), v("st0", 1, -2))
    c.op("Slice", "x", v("s1", -2), v("e1", 2 ** 63 - 1), v("a1", 1))
    c.op("Slice", "x", v("s2", 5), v("e2", 5), v("a2", 2))
    c.op("Expand", c.op("Unsqueeze", "x", "ax02"), v("shape", shape[0] and 2, 1, 3, 1, 1))
    c.op("Tile", "x", v("rep", 1, 2, 3)), c.op("Tile", "x", v("rep0", 1, 0, 1))
    c.op("Concat", "x", "x", axis=1), c.op("Concat", "x", c.op("Transpose", "x", perm=[0, 1, 2]), "x", axis=-1)
    c.op("Split", "x", nout=2, axis=1, num_outputs=2)
    c.op("Split", "x", v("parts", 0, shape[2]), nout=2, axis=2)
    fill = c.add("fill", np.array(1, DTYPES[t]))
    c.op("Pad", "x", v("pads", 1, 0, 2, 0, 3, 1), fill), c.op("Pad", "x", v("crop", 0, -1, 1, 0, 0, -1), fill)
    c.op("Pad", "x", v("pads_axes", 2, 1), fill, v("pad_axis", -1))
    c.op("ReverseSequence", "x", v("lens", *([min(2, shape[0])] * shape[1])), batch_axis=1, time_axis=0)
    if np.prod(shape):
        for mode in ("edge", "reflect", "wrap"):
            c.op("Pad", "x", v(f"pads_{mode}", 1, 0, 2, 0, 1, 1), mode=mode)
    c.op("Trilu", "x", upper=1), c.op("Trilu", "x", c.add("k", np.array(-1, np.int64)), upper=0)
    c.op("Shape", "x"), c.op("Size", "x")


for t in DTYPES:
    for shape in ((3, 5, 7), (4, 1, 33)):
        x = plain(t, *shape)
        x.flat[:19] = edges(t)[:19]
        both(f"view_{t}_{'x'.join(map(str, shape))}", lambda c: views(c, t, shape), x=x)
for t in ("f32", "i8", "bool"):
    for shape in ((), (0,), (1,), (3, 0, 5), (0, 4, 6)):
        both(f"view_{t}_{'x'.join(map(str, shape)) or 'scalar'}", lambda c: views(c, t, shape), x=plain(t, *shape))
for t in ("f32", "f16", "u8"):
    both(f"blocks_{t}", lambda c: [c.op("DepthToSpace", "x", blocksize=2), c.op("DepthToSpace", "x", blocksize=2, mode="CRD"),
                                   c.op("SpaceToDepth", "x", blocksize=3)], x=plain(t, 2, 8, 3, 6))

# ---- folds ------------------------------------------------------------------------------------------
AXES = {"all": None, "last": (-1,), "first": (0,), "middle": (1,), "outer": (0, 2), "none": ()}


def folds(c, t, r):
    ops = ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1"]
    ops += ["ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceLogSum"] if is_float(t) else []
    for op in ops:
        for name, axes in AXES.items():
            if axes and any(not -r <= a < r for a in axes):
                continue
            ax = "" if axes is None else c.add(f"axes_{name}", i64(*axes))
            kw = {"noop_with_empty_axes": 1} if name == "none" else {}
            c.op(op, "x", *([ax] if ax else []), keepdims=int(name in ("last", "outer")), **kw)


for t in FLOATS + INTS:
    for shape in ((3, 5, 7), (17, 1, 65), ()):
        if t in BITS16 + ("i16", "u16", "u32", "u64") and shape != (3, 5, 7):
            continue
        x = plain(t, *shape, scale=.5) if is_float(t) else rng.choice([0, 1, 2] + [1] * 97, shape).astype(DTYPES[t])
        both(f"fold_{t}_{'x'.join(map(str, shape)) or 'scalar'}", lambda c: folds(c, t, len(shape)), x=np.abs(x),
             tolerance=tol(t, 0, 8))
for t in ("f32", "i64"):
    for shape in ((3, 0, 5), (0, 2, 2)):
        def empty_folds(c):
            ax = c.add("axes", i64(shape.index(0)))
            for op in ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL1"):
                c.op(op, "x", ax), c.op(op, "x", keepdims=0)
        both(f"fold_empty_{t}_{'x'.join(map(str, shape))}", empty_folds, x=plain(t, *shape))
for t in FLOATS:
    x = np.stack([np.roll(edges(t, 33), i) for i in range(7)] + [np.full(33, v, DTYPES[t]) for v in (np.inf, -np.inf, -0., 1)])
    x[9:, 20] = -np.inf
    finite = np.where(np.isfinite(x.astype(np.float64)) & (np.abs(x.astype(np.float64)) < 1e3), x, DTYPES[t](2))

    def fold_edges(c):
        ax0, ax1 = c.add("ax0", i64(0)), c.add("ax1", i64(1))
        for op, ref in (("ReduceMax", np.max), ("ReduceMin", np.min)):
            for ax in (ax0, ax1):
                c.op(op, "x", ax, ref=lambda x, a, fold=ref: fold(x, axis=int(a[0]), keepdims=True))
        for op in ("ReduceSum", "ReduceL1"):
            c.op(op, "x", ax0), c.op(op, "x", ax1)
        for op in ("ReduceLogSumExp", "ReduceMean", "ReduceL2"):
            c.op(op, "f", ax0), c.op(op, "f", ax1)
        for op in ("Softmax", "LogSoftmax", "Hardmax"):
            c.op(op, "f", axis=0), c.op(op, "f", axis=-1)
    both(f"fold_edges_{t}", fold_edges, x=x, f=finite, tolerance=tol(t, {"f64": 1e-13, "f32": 1e-5}.get(t, .02), 16))
for t in ("f64", "f32", "f16", "i64", "i32", "i8", "u8"):
    x = plain(t, 5, 9, 17)
    x[:, :, 3] = x[:, :, 11] = x.max()  # ties

    def args(c):
        for op in ("ArgMax", "ArgMin"):
            for axis in (0, 1, -1):
                c.op(op, "x", axis=axis), c.op(op, "x", axis=axis, select_last_index=1, keepdims=0)
    both(f"arg_{t}", args, x=x)
both("arg_inf", lambda c: [c.op("ArgMax", "x", axis=1), c.op("ArgMin", "x", axis=1)],
     x=np.array([[-np.inf] * 9, [np.inf] * 9, [0.] * 4 + [-0.] * 5, [np.inf, -np.inf] * 4 + [0]], np.float32))

# ---- sums over runs: the inner one lies side by side, its length is left open ---------------------------
for batch, run in ((2, 5), (3, 70), (40, 7)):
    both(f"runs_{batch}_{run}", lambda c: c.op("Einsum", "x", "y", equation="bks,bsn->kn"),
         x=np.abs(plain("f32", batch, 37, run)), y=np.abs(plain("f32", batch, run, 53)))

# ---- long axes ----------------------------------------------------------------------------------------
for name, shape, axis in (("row", (1, 100003), 1), ("column", (100003, 1), 0), ("rows", (3, 40009), 1), ("columns", (40009, 3), 0)):
    x = np.abs(plain("f32", *shape, scale=.1)) + np.float32(.01)
    x.flat[7777], x.flat[-1] = 3, 3

    def long(c):
        ax = c.add("ax", i64(axis))
        for op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceL2", "ReduceLogSumExp"):
            c.op(op, "x", ax)
        c.op("ArgMax", "x", axis=axis), c.op("Softmax", "x", axis=axis), c.op("LogSoftmax", "x", axis=axis)
        c.op("CumSum", "i", c.add("cax", np.array(axis, np.int64)))
        c.op("TopK", "x", c.add("topk", i64(5)), nout=2, axis=axis)
        if shape[1] > 9:
            c.op("LayerNormalization", "x", c.add("scale", np.ones(shape[1], np.float32)), axis=-1)
    both(f"long_{name}", long, x=x, i=rng.integers(-9, 9, shape).astype(np.int64), tolerance=(2e-5, 1e-6))
both("long_gather", lambda c: [c.op("Gather", "x", "i"), c.op("Concat", "x", "x", axis=0), c.op("NonZero", "i"),
                               c.op("Slice", "x", c.add("s", i64(-1)), c.add("e", i64(-2 ** 62)), c.add("a", i64(0)), c.add("st", i64(-3)))],
     x=plain("f32", 70001), i=rng.integers(-70001, 70001, (3, 40001)).astype(np.int64))

# ---- contractions --------------------------------------------------------------------------------------
SIZES = [(1, 1, 1), (1, 17, 33), (5, 1, 7), (7, 9, 1), (13, 17, 19), (16, 48, 64), (33, 49, 65), (8, 96, 100), (65, 31, 130)]
for t in FLOATS + ("i32", "i64", "u32", "u64"):
    for m, n, k in SIZES if t in ("f32", "f64") else SIZES[1::3]:
        # A sum's rounding grows with its length; f16 and bf16 are compared after rounding the result.
        both(f"matmul_{t}_{m}x{n}x{k}", lambda c: c.op("MatMul", "a", "b"), a=plain(t, m, k), b=plain(t, k, n),
             tolerance=tol(t, {"f32": 1e-5, "f64": 1e-13, "f16": 1e-2, "bf16": 1e-1}.get(t, 0), 4))
for t in ("f32", "f64"):
    def shapes(c):
        for a, b in (((7,), (7, 5)), ((4, 7), (7,)), ((7,), (7,)), ((2, 1, 4, 7), (3, 7, 5)), ((1, 4, 7), (6, 7, 1)), ((5, 4, 7), (7,)),
                     ((0, 7), (7, 5)), ((4, 0), (0, 5)), ((4, 7), (7, 0)), ((0, 4, 7), (0, 7, 5)), ((2, 0, 7), (2, 7, 3))):
            n = len(c.inputs)
            c.inputs[f"a{n}"], c.inputs[f"b{n}"] = plain(t, *a), plain(t, *b)
            c.op("MatMul", f"a{n}", f"b{n}")
    shapes(cases.new(f"matmul_shapes_{t}", tolerance=(1e-5, 1e-5)))

    def gemms(c):
        for ta in (0, 1):
            for tb in (0, 1):
                a, b = (f"a{ta}", f"b{tb}")
                c.inputs[a], c.inputs[b] = plain(t, *((19, 13) if ta else (13, 19))), plain(t, *((17, 19) if tb else (19, 17)))
                for bias, shape in (("row", (17,)), ("column", (13, 1)), ("one", (1,)), ("full", (13, 17))):
                    c.inputs[bias] = plain(t, *shape)
                    c.op("Gemm", a, b, bias, transA=ta, transB=tb, alpha=.5, beta=2.)
                c.op("Gemm", a, b, transA=ta, transB=tb)
    gemms(cases.new(f"gemm_{t}", tolerance=(1e-5, 1e-5)))
special = plain("f32", 9, 20)
special[2, 3], special[4, 5], special[6, 7], special[8, :] = np.nan, np.inf, -np.inf, 0
both("matmul_special", lambda c: c.op("MatMul", "a", "b"), a=special, b=np.abs(plain("f32", 20, 18)) + np.float32(.1), tolerance=(1e-4, 1e-5))
def integer_product(a, b, za=0, zb=0):
    """onnxruntime's u8 by i8 saturates pairs at 16 bits where AVX2 is all there is."""
    return ((a.astype(np.int64) - za) @ (b.astype(np.int64) - zb)).astype(np.int32)


for ta in ("u8", "i8"):
    for tb in ("u8", "i8"):
        za, zb = np.array(3, DTYPES[ta]), np.array(5, DTYPES[tb])
        both(f"matmul_integer_{ta}_{tb}", lambda c: [c.op("MatMulInteger", "a", "b", ref=integer_product), c.op("MatMulInteger", "a", "b", "za", "zb", ref=integer_product)],
             a=rng.integers(info(ta).min, info(ta).max + 1, (11, 37)).astype(DTYPES[ta]),
             b=rng.integers(info(tb).min, info(tb).max + 1, (37, 21)).astype(DTYPES[tb]), za=za, zb=zb, const=("za", "zb"))

CONVS = {  # channels in, channels out, group, kernel, attributes
    "plain": (3, 5, 1, (3, 3), {}),
    "pads": (5, 7, 1, (3, 3), dict(pads=[1, 2, 0, 1])),
    "strides": (4, 17, 1, (3, 2), dict(strides=[2, 3], pads=[1, 1, 1, 1])),
    "dilated": (4, 6, 1, (3, 3), dict(dilations=[2, 3], pads=[2, 3, 2, 3])),
    "group": (6, 9, 3, (3, 3), dict(group=3, pads=[1, 1, 1, 1])),
    "depth": (7, 7, 7, (3, 3), dict(group=7, pads=[1, 1, 1, 1])),
    "depth_more": (5, 10, 5, (5, 5), dict(group=5, pads=[2, 2, 2, 2], strides=[2, 2])),
    "point": (19, 33, 1, (1, 1), {}),
    "point_strided": (8, 16, 1, (1, 1), dict(strides=[2, 2])),
    "wide_pads": (3, 4, 1, (2, 2), dict(pads=[4, 4, 4, 4])),
    "whole": (4, 6, 1, (9, 11), {}),
    "dead_taps": (8, 6, 1, (3, 3), dict(dilations=[9, 12], pads=[9, 12, 9, 12])),
    "dead_ends": (4, 6, 1, (5, 3), dict(dilations=[4, 6], pads=[8, 6, 8, 6], strides=[2, 1])),
    "dead_side": (3, 5, 1, (3, 3), dict(dilations=[10, 5], pads=[20, 0, 0, 10])),
    "depth_dead": (7, 7, 7, (3, 3), dict(group=7, dilations=[9, 11], pads=[9, 11, 9, 11])),
}
for t in FLOATS:
    for name, (ci, co, g, k, attrs) in CONVS.items():
        if t in BITS16 and name not in ("pads", "depth", "point"):
            continue
        both(f"conv_{t}_{name}", lambda c: c.op("Conv", "x", "w", "b", **attrs), x=plain(t, 2, ci, 9, 11),
             w=plain(t, co, ci // g, *k), b=plain(t, co), const=("w", "b"),
             tolerance=tol(t, {"f32": 2e-5, "f64": 1e-13, "f16": 2e-2, "bf16": 2e-1}[t], 8))
for rank, size in ((1, (23,)), (3, (5, 6, 7))):
    both(f"conv_{rank}d", lambda c: [c.op("Conv", "x", "w", pads=[1] * 2 * rank), c.op("ConvTranspose", "x", "v", strides=[2] * rank)],
         x=plain("f32", 2, 5, *size), w=plain("f32", 7, 5, *[3] * rank), v=plain("f32", 5, 3, *[3] * rank), const=("w", "v"), tolerance=(1e-5, 2e-5))

# ---- windows -------------------------------------------------------------------------------------------
for t in ("f32", "f64", "f16", "i8", "u8"):
    x = plain(t, 2, 3, 9, 11)
    if is_float(t):
        x.flat[5], x.flat[100], x.flat[101] = -np.inf, np.inf, -np.inf

    def pools(c):
        for kw in (dict(kernel_shape=[3, 3]), dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
                   dict(kernel_shape=[2, 5], dilations=[2, 2], ceil_mode=1, strides=[3, 2]), dict(kernel_shape=[9, 11])):
            c.op("MaxPool", "x", **kw)
            if is_float(t):
                c.op("AveragePool", "f", **kw), c.op("AveragePool", "f", count_include_pad=1, **kw)
                c.op("LpPool", "f", **kw)
        if is_float(t):
            c.op("GlobalAveragePool", "f"), c.op("GlobalMaxPool", "x")
    both(f"pool_{t}", pools, x=x, f=plain(t, 2, 3, 9, 11), tolerance=tol(t, 1e-2 if t in BITS16 else 1e-6, 4))

# ---- addresses from data ---------------------------------------------------------------------------------
for t in ("f32", "f64", "f16", "bf16", "i64", "i32", "i8", "u16", "bool"):
    x = plain(t, 7, 5, 9)
    x.flat[:19] = edges(t)[:19]
    ids = i64(0, -1, 6, -7, 3, 3)

    def gathers(c):
        c.op("Gather", "x", "ids"), c.op("Gather", "x", "one", axis=1), c.op("Gather", "x", "grid", axis=-1)
        if t != "bf16":
            c.op("Gather", "x", "none", axis=2)
        c.op("GatherElements", "x", "elements", axis=2), c.op("GatherND", "x", "nd"), c.op("GatherND", "x", "nd1", batch_dims=1)
        c.op("ScatterElements", "x", "elements", "u", axis=2), c.op("ScatterND", "x", "nd", "und")
        c.op("Compress", "x", "mask", axis=1), c.op("Compress", "x", "mask"), c.op("NonZero", "x")
        if t != "bool":
            c.op("ScatterElements", "x", "repeats", "u", axis=2, reduction="add"), c.op("ScatterND", "x", "nd", "und", reduction="max")
            c.op("TopK", "x", c.add("top", i64(4)), nout=2, axis=1), c.op("TopK", "x", c.add("top0", i64(0)), nout=2, axis=0)
    both(f"index_{t}", gathers, still=("nd", "nd1"), x=np.where(np.isnan(x.astype(np.float64)), DTYPES[t](1), x) if is_float(t) else x,
         ids=ids, one=np.array(-2, np.int64), none=np.zeros((0,), np.int64),
         grid=np.array([[0, 8], [-9, 4]], np.int32), elements=np.argsort(rng.random((7, 5, 4)), axis=2).astype(np.int64),
         repeats=rng.integers(-9, 9, (7, 5, 4)).astype(np.int64), u=plain(t, 7, 5, 4), nd=np.array([[0, -1], [6, 2]], np.int64),
         und=plain(t, 2, 9), nd1=rng.integers(0, 5, (7, 2, 1)).astype(np.int64), mask=np.array([1, 0, 1, 1], bool),
         tolerance=tol(t, .01 if t in BITS16 else 1e-6, 4))
for t in ("f32", "i64", "i32", "f64"):
    def scans(c):
        for axis in (0, 1, -1):
            ax = c.add(f"ax{axis}", np.array(axis, np.int64))
            c.op("CumSum", "x", ax), c.op("CumSum", "x", ax, exclusive=1, reverse=1)
        c.op("TopK", "x", c.add("k", i64(3)), nout=2, largest=0), c.op("Unique", "x", nout=4)
    both(f"scan_{t}", scans, x=np.round(plain(t, 4, 5, 33, scale=3)) if is_float(t) else plain(t, 4, 5, 33), tolerance=tol(t, 1e-5))
for t in ("f32", "i32", "u8", "i64"):  # of equal ones the first, whoever was dropped in between
    both(f"first_of_many_{t}", lambda c: [c.op("TopK", "x", c.add(f"k{k}{up}", i64(k)), nout=2, largest=up) for k in (1, 2, 20, 300, 999) for up in (0, 1)],
         opset=24, x=np.round(plain(t, 3, 1000, scale=30)) if is_float(t) else plain(t, 3, 1000))
both("unique_of_nothing", lambda c: [c.op("Unique", "x", nout=4), c.op("Unique", "x", nout=4, axis=0), c.op("Unique", "x", nout=4, sorted=0)], still=("x",),
     x=np.zeros((0, 3), np.float32))
both("band_far_off", lambda c: [c.op("Trilu", "x", c.add(f"k{upper}{k}", np.array(k, np.int64)), upper=upper) for upper in (0, 1) for k in (2 ** 63 - 1, -2 ** 63, 2, -1)],
     x=np.ones((3, 5), np.float32))
both("powers_of_two", lambda c: [c.op("Cast", c.op("Cast", "x", to=24, **mode), to=1) for mode in ({}, {"round_mode": "up"}, {"round_mode": "down"}, {"round_mode": "nearest"})],
     opset=24, x=np.array([1, 1.25, 1.5, 1.75, 2, 3.5, 460, 1e-9, 1e9], np.float32))
both("suppressed_nan", lambda c: [c.op("NonMaxSuppression", "boxes", "scores", c.add("most", i64(3)), c.add("limit", np.array([.5], np.float32)),
     ref=lambda *_: np.array([[0, 0, 2], [0, 0, 3], [0, 0, 0]]))],  # which onnxruntime puts anywhere
     still=("boxes", "scores"), boxes=np.array([[[0, 0, 1, 1], [0, 0, 1, 1.1], [2, 0, 3, 1], [5, 0, 6, 1]]], np.float32), scores=np.array([[[.5, np.nan, .9, .8]]], np.float32))
both("one_hot", lambda c: [c.op("OneHot", "i", "depth", "v"), c.op("OneHot", "i", "depth", "v", axis=0)],
     i=i64(0, 5, -1, -6, 3), depth=np.array(6, np.int64), v=np.array([.5, 2], np.float32), const=("depth",))
both("range", lambda c: [c.op("Range", "a", "b", "s"), c.op("Range", "fa", "fb", "fs")], a=np.array(3, np.int64), b=np.array(-20, np.int64),
     s=np.array(-4, np.int64), fa=np.array(.5, np.float32), fb=np.array(4.2, np.float32), fs=np.array(.25, np.float32), const=("a", "b", "s", "fa", "fb", "fs"))

# ---- normalisations ---------------------------------------------------------------------------------------
def per_channel(x, s, b):
    """Each channel of each item over its own mean and variance; onnxruntime's x - mean of one element is not 0."""
    w, axes = x.astype(np.float64), tuple(range(2, x.ndim))
    w = (w - w.mean(axes, keepdims=True)) / np.sqrt(w.var(axes, keepdims=True) + 1e-5)
    column = (-1,) + (1,) * len(axes)
    return (w * s.astype(np.float64).reshape(column) + b.astype(np.float64).reshape(column)).astype(x.dtype)


for t in FLOATS:
    for n in (1, 7, 33, 130):
        x = plain(t, 3, 5, n)

        def norms(c):
            c.op("LayerNormalization", "x", "s", "b"), c.op("LayerNormalization", "x", "s", axis=-1, epsilon=1e-3)
            c.op("RMSNormalization", "x", "s"), c.op("Softmax", "x"), c.op("Softmax", "x", axis=1), c.op("LogSoftmax", "x", axis=0)
            c.op("LpNormalization", "x", axis=-1, p=2)
            if t != "bf16":
                c.op("LpNormalization", "x", axis=1, p=1)
            c.op("MeanVarianceNormalization", "x", axes=[0, 2])
            c.op("InstanceNormalization", "x", "is", "ib", ref=per_channel)
            if t != "f64":  # onnxruntime's is f32 inside
                c.op("GroupNormalization", "x", "is", "ib", num_groups=5, ref=per_channel)
        both(f"norm_{t}_{n}", norms, x=x, s=plain(t, n), b=plain(t, n), **{"is": plain(t, 5), "ib": plain(t, 5)}, const=("s", "b", "is", "ib"),
             tolerance=tol(t, {"f64": 1e-11, "f32": 2e-5, "f16": 2e-2, "bf16": 2e-1}[t], 8))

# As many samples as a bin has elements: another number for each region.
for mode in ("avg", "max"):
    for where in ("half_pixel", "output_half_pixel"):
        x = np.random.default_rng(5).standard_normal((2, 3, 12, 14)).astype(np.float32)
        regions = np.array([[0, 0, 13, 9], [2.5, 3.25, 4.5, 10.75], [-3, -2, 5, 20], [6, 6, 6, 6]], np.float32)
        c = cases.new(f"roi_align_adaptive_{mode}_{where}", opset=21, x=x, regions=regions, batch=np.array([0, 1, 1, 0]),
                      free={"regions": {0: "n"}, "batch": {0: "n"}})
        c.op("RoiAlign", "x", "regions", "batch", mode=mode, output_height=2, output_width=3, spatial_scale=0.8,
             coordinate_transformation_mode=where)
