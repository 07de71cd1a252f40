"""Operations in a row, as fusion sees them: what is folded into a contraction's or convolution's operand,
what follows them, and views between reductions. The shape of each was once a wrong result, or is a
neighbour of one. Sizes are ragged; each case with fixed and with open sizes."""
import numpy as np

from cases import Cases

rng = np.random.default_rng(13)
cases = Cases()
i64 = lambda *v: np.array(v, np.int64)
f32 = lambda *shape: rng.standard_normal(shape).astype(np.float32)
u8 = lambda *shape: rng.integers(0, 256, shape).astype(np.uint8)


def both(name, build, free=None, tolerance=(1e-4, 2e-5), const=(), **inputs):
    """build returns the outputs that are compared; free: {input: {axis: symbol}} of the open form."""
    for open_ in (False, True):
        if open_ and not free:
            continue
        c = cases.new(name + "_open" * open_, free=free if open_ else None, tolerance=tolerance, const=const, **inputs)
        keep = build(c)
        c.keep = [keep] if isinstance(keep, str) else list(keep)


# ---- a contraction whose left operand is picked, padded or stitched ----------------------------------------
for m, k, n in ((5, 13, 7), (9, 33, 17), (31, 64, 50), (3, 130, 65)):
    size = f"{m}x{k}x{n}"
    a, b = f32(m + 4, k), f32(k, n)
    rows, columns = rng.integers(-(m + 4), m + 4, m).astype(np.int64), rng.integers(-k, k, k).astype(np.int64)
    both(f"gather_rows_matmul_{size}", lambda c: c.op("MatMul", c.op("Gather", "a", "ids", axis=0), "b"),
         free={"a": {0: "m4"}, "ids": {0: "m"}}, a=a, ids=rows, b=b, const=("b",))
    both(f"gather_columns_matmul_{size}", lambda c: c.op("MatMul", c.op("Gather", "a", "ids", axis=1), "b"),
         free={"a": {0: "m4"}}, a=a, ids=columns, b=b, const=("b",))
    both(f"gather_columns_run_matmul_{size}", lambda c: c.op("MatMul", c.op("Gather", "a", "ids", axis=1), "b"),
         a=a, ids=np.sort(columns), b=b, const=("ids", "b"))
    both(f"gather_elements_matmul_{size}", lambda c: c.op("MatMul", c.op("GatherElements", "a", "ids", axis=1), "b"),
         free={"a": {0: "m"}, "ids": {0: "m"}}, a=a[:m], ids=rng.integers(-k, k, (m, k)).astype(np.int64), b=b, const=("b",))
    both(f"gather_right_matmul_{size}", lambda c: c.op("MatMul", "a", c.op("Gather", "b", "ids", axis=0)),
         free={"a": {0: "m4"}}, a=a, ids=columns, b=b)
    both(f"gather_right_columns_matmul_{size}", lambda c: c.op("MatMul", "a", c.op("Gather", "b", "ids", axis=1)),
         free={"a": {0: "m4"}}, a=a, ids=rng.integers(-n, n, n).astype(np.int64), b=b)
    for mode in ("edge", "reflect", "constant", "wrap"):
        both(f"pad_{mode}_matmul_{size}", lambda c: c.op("MatMul", c.op("Pad", "a", c.add("pads", i64(0, 2, 1, 3)), mode=mode), "b"),
             free={"a": {0: "m4"}}, a=a, b=f32(k + 5, n), const=("b",))
        both(f"pad_{mode}_right_matmul_{size}", lambda c: c.op("MatMul", "a", c.op("Pad", "b", c.add("pads", i64(2, 1, 3, 0)), mode=mode)),
             free={"a": {0: "m4"}}, a=f32(m, k + 5), b=b)
    both(f"slice_reverse_matmul_{size}", lambda c: c.op("MatMul", c.op("Slice", "a", c.add("s", i64(-1)), c.add("e", i64(-2 ** 62)),
         c.add("ax", i64(1)), c.add("st", i64(-1))), "b"), free={"a": {0: "m4"}}, a=a, b=b, const=("b",))
    both(f"concat_matmul_{size}", lambda c: c.op("MatMul", c.op("Concat", "a", "a2", axis=1), "b"), free={"a": {0: "m"}, "a2": {0: "m"}},
         a=a, a2=f32(m + 4, 5), b=f32(k + 5, n), const=("b",))
    both(f"expand_matmul_{size}", lambda c: c.op("MatMul", c.op("Expand", "a", c.add("shape", i64(m, k))), "b"), a=f32(1, k), b=b, const=("b",))
    both(f"trilu_matmul_{size}", lambda c: c.op("MatMul", c.op("Trilu", "a", upper=0), "b"), free={"a": {0: "m4"}}, a=a, b=b, const=("b",))
    both(f"scatter_matmul_{size}", lambda c: c.op("MatMul", c.op("ScatterElements", "a", "ids", "u", axis=1), "b"), a=a, b=b,
         ids=np.tile(np.arange(0, k, 3), (m + 4, 1)), u=f32(m + 4, len(range(0, k, 3))), const=("b",))
    both(f"embed_norm_matmul_{size}", lambda c: c.op("MatMul", c.op("LayerNormalization", c.op("Gather", "a", "ids"), "s", "z"), "b"),
         free={"ids": {0: "m"}}, a=a, ids=rows, b=b, s=f32(k), z=f32(k), const=("a", "b", "s", "z"))
    both(f"matmul_gather_{size}", lambda c: [c.op("Gather", c.op("MatMul", "a", "b"), "ids"), "o0_MatMul"], free={"a": {0: "m4"}, "ids": {0: "m"}},
         a=a, b=b, ids=rows, const=("b",))
    both(f"where_nan_matmul_{size}", lambda c: c.op("MatMul", c.op("Where", c.op("IsNaN", "a"), c.add("zero", np.float32(0)), "a"), "b"),
         free={"a": {0: "m4"}}, a=np.where(rng.random(a.shape) < .1, np.float32(np.nan), a), b=b, const=("b",))

# ---- zero padding is of what the convolution reads, whatever was computed before ---------------------------
MAPS = {
    "plus_one": lambda c: c.op("Add", "x", c.add("one", np.float32(1))),
    "exp": lambda c: c.op("Exp", "x"),
    "cos_scaled": lambda c: c.op("Mul", c.op("Cos", "x"), c.add("two", np.float32(2))),
    "bias": lambda c: c.op("Add", "x", c.add("bias", f32(c.inputs["x"].shape[1], 1, 1))),
    "norm": lambda c: c.op("InstanceNormalization", "x", c.add("is", f32(c.inputs["x"].shape[1])), c.add("ib", f32(c.inputs["x"].shape[1]))),
    "where": lambda c: c.op("Where", c.op("Less", "x", c.add("zero", np.float32(0))), c.add("five", np.float32(5)), "x"),
}
HW = {"x": {0: "n", 2: "h", 3: "w"}}
for size in ((7, 10), (15, 17)):
    for (ci, co, g, k, attrs) in ((3, 5, 1, 3, dict(pads=[1, 1, 1, 1])), (8, 16, 1, 3, dict(pads=[1, 0, 2, 1], strides=[2, 2])),
                                  (6, 6, 6, 3, dict(pads=[1, 1, 1, 1], group=6)), (16, 33, 1, 1, dict(pads=[1, 1, 0, 0])),
                                  (4, 8, 2, 3, dict(pads=[2, 2, 2, 2], dilations=[2, 2], group=2))):
        tag = f"{size[0]}x{size[1]}_{ci}_{co}_{k}" + f"_g{g}" * (g > 1)
        for name, before in MAPS.items():
            both(f"{name}_conv_{tag}", lambda c: c.op("Conv", before(c), "w", "b", **attrs), free=HW, x=f32(2, ci, *size),
                 w=f32(co, ci // g, k, k), b=f32(co), const=("w", "b"))
        for mode in ("edge", "reflect", "constant", "wrap"):
            both(f"pad_{mode}_conv_{tag}", lambda c: c.op("Conv", c.op("Pad", "x", c.add("pads", i64(0, 0, 1, 2, 0, 0, 2, 1)), mode=mode), "w", **attrs),
                 free=HW, x=f32(2, ci, *size), w=f32(co, ci // g, k, k), const=("w",))
        both(f"gather_conv_{tag}", lambda c: c.op("Conv", c.op("Gather", "x", "ids", axis=1), "w", **attrs), free=HW, x=f32(2, ci, *size),
             ids=rng.integers(-ci, ci, ci).astype(np.int64), w=f32(co, ci // g, k, k), const=("w",))
        both(f"gather_columns_conv_{tag}", lambda c: c.op("Conv", c.op("Gather", "x", "ids", axis=3), "w", **attrs), x=f32(2, ci, *size),
             ids=rng.integers(0, size[1], size[1]).astype(np.int64), w=f32(co, ci // g, k, k), const=("w",))
        both(f"concat_conv_{tag}", lambda c: c.op("Conv", c.op("Concat", "x", c.op("Exp", "x"), axis=1), "w2", pads=[1, 1, 1, 1]), free=HW,
             x=f32(2, ci, *size), w2=f32(co, 2 * ci, 3, 3), const=("w2",))
        both(f"conv_tail_{tag}", lambda c: [c.op("Relu", c.op("Add", c.op("Conv", "x", "w", "b", **attrs), "r")), "o0_Conv"], x=f32(2, ci, *size),
             w=f32(co, ci // g, k, k), b=f32(co), r=f32(1, co, 1, 1), const=("w", "b"))
        for op in ("MaxPool", "AveragePool"):
            both(f"{op.lower()}_after_map_{tag}", lambda c: c.op(op, MAPS["plus_one"](c), kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
                 free=HW, x=f32(2, ci, *size) - 4)
    for zero in (0, 7, 128, 255):
        for pads, strides in (([1, 1, 1, 1], [1, 1]), ([2, 0, 1, 1], [2, 2])):
            both(f"conv_integer_{size[0]}x{size[1]}_z{zero}_s{strides[0]}", lambda c: c.op("ConvInteger", "x", "w", "z", pads=pads, strides=strides),
                 free=HW, x=u8(2, 3, *size), w=u8(5, 3, 3, 3), z=np.array(zero, np.uint8), const=("w", "z"))
    both(f"qlinear_conv_{size[0]}x{size[1]}", lambda c: c.op("QLinearConv", "x", "xs", "xz", "w", "ws", "wz", "ys", "yz", pads=[1, 1, 1, 1]), free=HW,
         x=u8(2, 3, *size), xs=np.float32(.02), xz=np.array(117, np.uint8), w=u8(5, 3, 3, 3), ws=np.float32(.01), wz=np.array(131, np.uint8),
         ys=np.float32(.11), yz=np.array(99, np.uint8), const=("xs", "xz", "w", "ws", "wz", "ys", "yz"))
    both(f"dequantize_conv_{size[0]}x{size[1]}", lambda c: c.op("Conv", c.op("DequantizeLinear", "x", "xs", "xz"), "w", pads=[1, 1, 1, 1]), free=HW,
         x=u8(2, 3, *size), xs=np.float32(.02), xz=np.array(117, np.uint8), w=f32(5, 3, 3, 3), const=("xs", "xz", "w"))

# ---- reductions with views and maps between them -----------------------------------------------------------
for shape in ((3, 5, 33), (2, 17, 64), (1, 1, 130)):
    tag = "x".join(map(str, shape))
    free = {"x": {0: "b", 1: "s"}}
    both(f"softmax_chain_{tag}", lambda c: c.op("Softmax", c.op("Transpose", c.op("Softmax", c.op("Mul", "x", c.add("k", np.float32(.5)))), perm=[0, 2, 1])), free=free, x=f32(*shape))
    both(f"norm_norm_{tag}", lambda c: c.op("LayerNormalization", c.op("Add", "x", c.op("LayerNormalization", "x", "s")), "s"), free=free, x=f32(*shape),
         s=f32(shape[2]), const=("s",))
    both(f"mean_of_pad_{tag}", lambda c: c.op("ReduceMean", c.op("Pad", c.op("Exp", "x"), c.add("p", i64(0, 1, 2, 0, 0, 3))), c.add("ax", i64(1)), keepdims=0), free=free, x=f32(*shape))
    both(f"masked_softmax_{tag}", lambda c: c.op("Softmax", c.op("Where", c.op("Greater", "x", c.add("z", np.float32(.3))), c.add("low", np.float32(-3.4e38)), "x")), free=free, x=f32(*shape))
    both(f"sum_of_gather_{tag}", lambda c: [c.op("ReduceSum", c.op("Gather", c.op("Tanh", "x"), "ids", axis=2), c.add("ax", i64(2))), c.op("ReduceMax", "o0_Tanh", c.add("ax0", i64(0)))],
         free=free, x=f32(*shape), ids=rng.integers(-shape[2], shape[2], 19).astype(np.int64))
    both(f"cumsum_softmax_{tag}", lambda c: c.op("Softmax", c.op("CumSum", "x", c.add("ax", np.array(2, np.int64)))), free=free, x=f32(*shape) * np.float32(.2), tolerance=(1e-3, 1e-5))
    both(f"slices_{tag}", lambda c: [c.op("Mul", c.op("Slice", "x", c.add("s0", i64(0)), c.add("e0", i64(shape[2] // 2)), c.add("ax", i64(2))),
         c.op("Sigmoid", c.op("Slice", "x", c.add("s1", i64(shape[2] - shape[2] // 2)), c.add("e1", i64(2 ** 62)), "ax")))], free=free, x=f32(*shape))

# ---- attention as exports write it, with positions picked and masks -----------------------------------------
for s, t in ((1, 9), (7, 7), (17, 33), (130, 300)):
    free = {"q": {0: "b", 2: "s"}, "k": {0: "b", 2: "t"}, "v": {0: "b", 2: "t"}, "mask": {0: "b", 3: "t"}}
    def attention(c):
        scores = c.op("Mul", c.op("MatMul", "q", c.op("Transpose", "k", perm=[0, 1, 3, 2])), c.add("scale", np.float32(.25)))
        return c.op("MatMul", c.op("Softmax", c.op("Where", "mask", scores, c.add("low", np.float32(-1e9)))), "v")
    mask = rng.random((2, 1, 1, t)) < .7
    mask[..., 0] = True
    both(f"attention_{s}_{t}", attention, free=free, q=f32(2, 3, s, 16), k=f32(2, 3, t, 16), v=f32(2, 3, t, 20), mask=mask)
    both(f"attention_gathered_{s}_{t}", lambda c: (c.op("Gather", "table", "ids", out="k"), attention(c))[1],
         table=f32(5, 3, t, 16), ids=i64(3, -5), q=f32(2, 3, s, 16), v=f32(2, 3, t, 20), mask=mask)

# ---- a cast rounds, though nothing of that type is stored ----------------------------------------------------
for tag, to in (("f16", 10), ("bf16", 16)):
    both(f"cast_{tag}_rest_17x33", lambda c: c.op("Mul", c.op("Sub", "x", c.op("Cast", c.op("Cast", "x", to=to), to=1)), c.add("k", np.float32(512))),
         free={"x": {0: "m"}}, x=f32(17, 33))

# ---- pools whose kernels reach far beyond the input (ceil_mode makes one position of what is there) -----------
for op, kw in (("AveragePool", {}), ("AveragePool", {"count_include_pad": 1}), ("MaxPool", {})):
    for k, pads in ((40, [0, 0, 0, 0]), (9, [2, 1, 0, 3])):
        both(f"far_{op}_{k}_{len(kw)}", lambda c: c.op(op, "x", kernel_shape=[k, k], strides=[k, k], ceil_mode=1, pads=pads, **kw),
             free={"x": {0: "b"}}, x=f32(2, 3, 5, 7))

# ---- windows that reach beyond the padded input: one position while the next one would lie behind, else none --
for k, st, pads in ((4, 2, [0, 0, 0, 0]), (4, 1, [0, 0, 0, 0]), (6, 2, [0, 0, 0, 0]), (6, 4, [1, 0, 1, 1]), (7, 9, [0, 1, 0, 0])):
    for op, kw in (("AveragePool", {}), ("AveragePool", {"count_include_pad": 1}), ("MaxPool", {}), ("LpPool", {})):
        both(f"short_{op}_{k}_{st}_{len(kw)}", lambda c: c.op(op, "x", kernel_shape=[k, 2], strides=[st, 1], pads=pads, **kw),
             free={"x": {0: "b", 2: "h", 3: "w"}}, x=f32(2, 3, 3, 5))

# ---- long sums: panels of which two leave a cache little room are walked slice by slice -----------------------
small = lambda *shape: f32(*shape) * np.float32(.05)
for m in (9, 70):
    free = {"x": {0: "m"}}
    both(f"long_matmul_{m}", lambda c: c.op("Relu", c.op("Add", c.op("MatMul", "x", "w"), "b")), free=free, x=f32(m, 2050), w=small(2050, 100), b=f32(100),
         const=("w", "b"))
    both(f"long_matmul_gelu_{m}", lambda c: c.op("Gelu", c.op("Add", c.op("MatMul", "x", "w"), "b")), free=free, x=f32(m, 2050), w=small(2050, 50), b=f32(50),
         const=("w", "b"))
    both(f"long_matmul_fed_{m}", lambda c: c.op("MatMul", "x", "w"), free=free | {"w": {0: "k"}}, x=f32(m, 2050), w=small(2050, 96))
    both(f"long_matmul_pair_{m}", lambda c: c.op("Mul", c.op("Sigmoid", c.op("MatMul", "x", "w")), c.op("MatMul", "x", "v")), free=free,
         x=f32(m, 1800), w=small(1800, 60), v=small(1800, 60), const=("w", "v"))
for tag, channels, kw in (("runs", 200, {"strides": [2, 2]}), ("joined", 80, {"dilations": [2, 2], "kernel_shape": [5, 5]}), ("winograd", 330, {})):
    side = kw.get("kernel_shape", [3, 3])
    both(f"long_conv_{tag}", lambda c: c.op("Relu", c.op("Conv", "x", "w", "b", pads=[1, 1, 1, 1], **kw)), free={"x": {0: "n"}}, x=f32(2, channels, 11, 11),
         w=small(50, channels, *side), b=f32(50), const=("w", "b"))

# ---- contractions that share an operand, some of the others constant and some fed ----------------------------
for m, k, n in ((1, 16, 33), (17, 9, 50), (5, 40, 96)):
    for tag, const in (("wv", ("v",)), ("vw", ("w",))):
        w, v = f32(k, n), f32(k, n)
        both(f"shared_matmul_{tag}_{m}x{k}x{n}", lambda c: c.op("Mul", c.op("MatMul", "x", "w"), c.op("Tanh", c.op("MatMul", "x", "v"))),
             free={"x": {0: "m"}}, x=f32(m, k), w=w, v=v, const=const)
both("shared_conv_wv", lambda c: c.op("Mul", c.op("Conv", "x", "w"), c.op("Conv", "x", "v")), free={"x": {0: "b"}},
     x=f32(2, 5, 4, 7), w=f32(33, 5, 1, 1), v=f32(33, 5, 1, 1), const=("v",))


# ---- more reductions in a row than one kernel holds ----------------------------------------------------------
def chain(c, n, link):
    y = "x"
    for i in range(n):
        y = link(c, y, i)
    return y


def softmax_scaled(c, y, axis, by=7):
    return c.op("Mul", c.op("Softmax", y, axis=axis), c.add("by", np.float32(by)))


for n in (12, 40):
    for tag, link in (("softmax", lambda c, y, i: softmax_scaled(c, y, 2)), ("softmax_axes", lambda c, y, i: softmax_scaled(c, y, i % 3, 3)),
                      ("norm", lambda c, y, i: c.op("LayerNormalization", y, "s")),
                      ("logsumexp", lambda c, y, i: c.op("Abs", c.op("Sub", y, c.op("ReduceLogSumExp", y, c.add("ax", i64(2))))))):
        both(f"chain_{tag}_{n}", lambda c: chain(c, n, link), free={"x": {0: "a", 1: "b"}}, x=f32(3, 5, 33), s=f32(33), const=("s",))

# ---- extents of 8, half of what the wider instruction set takes ----------------------------------------------
both("conv8_matmul1", lambda c: c.op("MatMul", c.op("Conv", "x", "w"), "v"), x=f32(1, 8, 5, 16), w=f32(8, 8, 1, 1), v=f32(16, 1), const=("w", "v"))
def dynamic_quant(c):
    q, _, z = c.op("DynamicQuantizeLinear", "x", nout=3)
    return c.op("MatMulInteger", q, "w", z, "k")


for n in (8, 24):
    both(f"dynamic_quant_{n}", dynamic_quant, free={"x": {0: "m"}},
         x=f32(5, 19), w=u8(19, n), k=np.array(117, np.uint8), const=("w", "k"))
    both(f"qlinear_fed_zero_{n}", lambda c: c.op("QLinearMatMul", "x", "s", "z", "w", "s", "k", "big", "k"), free={"x": {0: "m"}}, x=u8(6, 19),
         z=np.array(3, np.uint8), s=np.float32(.1), big=np.float32(4), w=u8(19, n), k=np.array(117, np.uint8), const=("s", "w", "k", "big"))

# ---- single operators whose edges were wrong or refused ------------------------------------------------------
for op in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp"):
    for dtype in (np.int32, np.int64):
        both(f"{op}_{np.dtype(dtype).name}", lambda c: c.op(op, "x", c.add("ax", i64(1))), free={"x": {0: "m"}},
             x=np.array([[1, 2, 3, 2], [7, 1, 5, 6], [4, 9, 2, 8]], dtype))
for align in (0, 1):
    both(f"gridsample_cubic_border_{align}", lambda c: c.op("GridSample", "x", "g", mode="cubic", padding_mode="border", align_corners=align),
         free={"x": {2: "h", 3: "w"}}, x=f32(2, 3, 4, 5), g=rng.uniform(-1.6, 1.6, (2, 5, 6, 2)).astype(np.float32))
for mode in ("floor", "ceil"):
    both(f"resize_symmetric_tie_{mode}", lambda c: c.op("Resize", "x", "", "s", mode="nearest", nearest_mode=mode,
         coordinate_transformation_mode="half_pixel_symmetric"), x=f32(3), s=np.array([1.5], np.float32), const=("s",))
for tag, first, last, by in (("front", 1, 2 ** 62, 1), ("ends", 1, -1, 1), ("steps", 1, 2 ** 62, 2), ("back", -2, -2 ** 62, -1)):
    for n in (1, 3, 9, 40):
        def slices(c):
            y = "x"
            for _ in range(12):
                y = c.op("Slice", y, c.add("first", i64(first)), c.add("last", i64(last)), c.add("axis", i64(0)), c.add("by", i64(by)))
            return c.op("Relu", y), c.op("Shape", y)
        both(f"slices_{tag}_of_{n}", slices, free={"x": {0: "n"}}, x=f32(n, 2))
both("slices_joined", lambda c: c.op("Add", "x", c.op("Concat", c.op("Slice", "x", c.add("k", i64(3)), c.add("end", i64(2 ** 62))),
     c.op("Slice", "x", c.add("zero", i64(0)), "k"), axis=0)), free={"x": {0: "n"}}, x=f32(9, 2))
both("compress_longer", lambda c: c.op("Compress", "x", "k"), free={"x": {0: "n"}, "k": {0: "m"}}, x=f32(4),
     k=np.array([1, 0, 1, 1, 1, 0, 0, 1], bool))

for dtype in (np.uint8, np.int8, np.int32, np.uint64):
    for tag, attrs in (("default", {}), ("two", {"lambd": 2.0}), ("half", {"lambd": 1.5, "bias": 0.5})):
        both(f"shrink_{np.dtype(dtype).name}_{tag}", lambda c: c.op("Shrink", "x", **attrs), free={"x": {0: "n"}}, x=np.array([0, 1, 2, 3, 100], dtype))

# ---- weights that repeat one value, or one row, or one column ------------------------------------------------
for tag, shape in (("value", (1, 1)), ("row", (1, 50)), ("column", (19, 1))):
    both(f"weights_of_one_{tag}", lambda c: c.op("Relu", c.op("MatMul", "x", c.op("Expand", "w", c.add("s", i64(19, 50))))),
         free={"x": {0: "m"}}, x=f32(7, 19), w=f32(*shape), const=("w",))
both("conv_of_one_value", lambda c: c.op("Conv", "x", c.op("Expand", "w", c.add("s", i64(64, 16, 3, 3)))), free={"x": {2: "h"}},
     x=f32(1, 16, 9, 7), w=f32(1, 1, 1, 1), const=("w",))

# ---- a row's norm, read at another of its places: the row is reduced whole for each element -----------------
for rows, n in ((5, 4), (7, 48), (3, 200)):
    def turned(c, n=n):
        x = c.op("LayerNormalization", "a", "s", "z")
        part = lambda a, b: c.op("Slice", x, c.add(f"from{a}", i64(a)), c.add(f"to{b}", i64(b)), c.add("last", i64(-1)))
        other = c.op("Concat", c.op("Neg", part(n // 2, n)), part(0, n // 2), axis=-1)
        return c.op("Add", c.op("Mul", x, "cos"), c.op("Mul", other, "sin"))

    both(f"norm_turned_{rows}x{n}", turned, free={"a": {0: "m"}}, a=f32(rows, n), s=f32(n), z=f32(n), cos=f32(n), sin=f32(n), const=("s", "z"))
