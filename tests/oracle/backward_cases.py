"""The forms that gradients take: contractions whose operands are fed and turned, sums over many rows, additions
scattered over a table, convolutions between zeros and with windows as large as images. Sizes are ragged; some
are long enough for every way of cutting sums. Each with fixed and, where free is given, with open sizes."""
import numpy as np

from cases import Cases

rng = np.random.default_rng(29)
cases = Cases()
f32 = lambda *shape: rng.standard_normal(shape).astype(np.float32)
swap = lambda x: np.ascontiguousarray(np.swapaxes(x, -1, -2))


def both(name, build, free=None, tolerance=(1e-4, 2e-5), **inputs):
    for open_ in (False, True) if free else (False,):
        c = cases.new(name + "_open" * open_, free=free if open_ else None, tolerance=tolerance, **inputs)
        keep = build(c)
        c.keep = [keep] if isinstance(keep, str) else list(keep)


def turned(c, name, on):
    rank = c.inputs[name].ndim
    return c.op("Transpose", name, perm=[*range(rank - 2), rank - 1, rank - 2]) if on else name


# ---- contractions of fed operands: dX = dY W^T, dW = X^T dY ------------------------------------------------
for batch, m, k, n in (((), 5, 13, 7), ((), 16, 40, 16), ((), 67, 700, 50), ((), 33, 1030, 130), ((), 130, 2100, 65),
                       ((), 48, 5000, 20), ((), 3, 9000, 5), ((2, 3), 21, 37, 19), ((3,), 40, 520, 64)):
    size = "x".join(map(str, (*batch, m, k, n)))
    near = (1e-4, 4e-6 * k ** .5 + 2e-5)
    a, b = f32(*batch, m, k), f32(*batch, k, n)
    r = len(batch)
    for ta in (False, True):
        for tb in (False, True):
            form = "nt"[ta] + "nt"[tb]
            free = {"a": {r + ta: "m", r + 1 - ta: "k"}, "b": {r + tb: "k", r + 1 - tb: "n"}}
            given = dict(a=swap(a) if ta else a, b=swap(b) if tb else b)
            both(f"dot_{form}_{size}", lambda c: c.op("MatMul", turned(c, "a", ta), turned(c, "b", tb)), free=free, tolerance=near, **given)
            both(f"dot_{form}_add_{size}", lambda c: c.op("Add", c.op("MatMul", turned(c, "a", ta),
                 turned(c, "b", tb)), "z"), free=free, tolerance=near, z=f32(m, n), **given)
    both(f"dot_tn_masked_{size}", lambda c: c.op("MatMul", c.op("Mul", c.op("Transpose", "a", perm=[*range(r), r + 1, r]), "mask"), "b"),
         tolerance=near, a=swap(a), b=b, mask=(rng.random((m, 1)) < .7).astype(np.float32))
    both(f"dot_tn_f64_{size}", lambda c: c.op("MatMul", turned(c, "a", True), "b"), tolerance=(1e-9, 1e-9),
         a=swap(a).astype(np.float64), b=b.astype(np.float64))
    both(f"dot_tn_f16_{size}", lambda c: c.op("MatMul", c.op("Cast", turned(c, "a", True), to=1), "b"), tolerance=near,
         a=swap(a).astype(np.float16), b=b)
    both(f"dot_tn_i32_{size}", lambda c: c.op("MatMul", turned(c, "a", True), "b"),
         a=swap((a * 9).astype(np.int32)), b=(b * 9).astype(np.int32))
    both(f"dot_tn_i8_{size}", lambda c: c.op("MatMulInteger", turned(c, "a", True), "b"),
         a=swap((a * 40).astype(np.int8)), b=(b * 40).astype(np.int8))
    if not batch:
        both(f"dot_tn_gathered_{size}", lambda c: c.op("MatMul", turned(c, "a", True), c.op("Gather", "b", "ids")), tolerance=near,
             a=swap(a), b=b, ids=rng.integers(-k, k, k).astype(np.int64))
        both(f"dot_gathered_tn_{size}", lambda c: c.op("MatMul", c.op("Transpose", c.op("Gather", "a", "ids"), perm=[1, 0]), "b"),
             tolerance=near, a=swap(a), b=b, ids=rng.integers(-k, k, k).astype(np.int64))
        both(f"dot_gathered_columns_tn_{size}", lambda c: c.op("MatMul", c.op("Transpose", c.op("Gather", "a", "ids", axis=1), perm=[1, 0]), "b"),
             tolerance=near, a=swap(a), b=b, ids=rng.integers(-m, m, m + 3).astype(np.int64))

# Heads that lie between positions: dK = dS^T Q, dV = P^T dO.
for s, heads, d in ((19, 3, 16), (130, 2, 40)):
    both(f"heads_tn_{s}x{heads}x{d}", lambda c: c.op("Transpose", c.op("MatMul", c.op("Transpose", "p", perm=[0, 1, 3, 2]),
         c.op("Transpose", "x", perm=[0, 2, 1, 3])), perm=[0, 2, 1, 3]), free={"p": {0: "b", 2: "q", 3: "k"}, "x": {0: "b", 1: "q"}},
         p=f32(2, heads, s, s + 5), x=f32(2, s, heads, d))

# ---- convolutions: dX between zeros, dW with a window as large as the image --------------------------------
for ci, co, size, k, s, p in ((3, 16, (9, 11), 3, 1, 1), (20, 24, (8, 8), 3, 1, 1), (17, 33, (11, 13), 3, 2, 1), (32, 18, (9, 9), 1, 2, 0),
                              (3, 20, (15, 14), 7, 2, 3), (16, 8, (10, 7), 2, 3, 0), (4, 5, (12, 13), 4, 3, 2), (6, 5, (9, 12), 5, 4, 1),
                              (9, 140, (5, 6), 4, 2, 1)):
    h, w = size
    oh, ow = (h + 2 * p - k) // s + 1, (w + 2 * p - k) // s + 1
    tag = f"{ci}_{co}_{h}x{w}_k{k}_s{s}_p{p}"
    x, dy, near = f32(2, ci, h, w), f32(2, co, oh, ow), (1e-4, 3e-4)
    over = [h - (oh - 1) * s + 2 * p - k, w - (ow - 1) * s + 2 * p - k]
    for dilation in (1, 2):
        if dilation == 1:
            both(f"conv_dx_{tag}", lambda c: c.op("ConvTranspose", "dy", "w", strides=[s, s], pads=[p] * 4, output_padding=over),
                 free={"dy": {0: "n"}}, tolerance=near, dy=dy, w=f32(co, ci, k, k))
            both(f"conv_dx_open_image_{tag}", lambda c: c.op("ConvTranspose", "dy", "w", strides=[s, s], pads=[p] * 4),
                 free={"dy": {0: "n", 2: "h", 3: "w"}}, tolerance=near, dy=dy, w=f32(co, ci, k, k))
        else:
            both(f"conv_dx_dilated_{tag}", lambda c: c.op("ConvTranspose", "dy", "w", "b", strides=[s, s], dilations=[2, 3]),
                 free={"dy": {0: "n"}}, tolerance=near, dy=dy, w=f32(co, ci, k, k), b=f32(ci))
    both(f"conv_dx_crop_{tag}", lambda c: c.op("Relu", c.op("ConvTranspose", "dy", "w", strides=[s, s + 1], pads=[p + k - 1, 0, 1, p])),
         tolerance=near, dy=f32(2, co, oh + 3, ow + 3), w=f32(co, ci, k, k))
    hi = [(k - 1) + s * (oh - 1) + 1 - h - p, (k - 1) + s * (ow - 1) + 1 - w - p]
    if min(hi) >= 0:
        both(f"conv_dw_{tag}", lambda c: c.op("Conv", c.op("Transpose", "x", perm=[1, 0, 2, 3]), c.op("Transpose", "dy", perm=[1, 0, 2, 3]),
             dilations=[s, s], pads=[p, p, *hi]), tolerance=near, x=x, dy=dy)
        both(f"conv_dw_last_{tag}", lambda c: c.op("Transpose", c.op("Conv", c.op("Transpose", "x", perm=[3, 0, 1, 2]),
             c.op("Transpose", "dy", perm=[3, 0, 1, 2]), dilations=[s, s], pads=[p, p, *hi]), perm=[2, 3, 0, 1]), tolerance=near,
             x=f32(2, h, w, ci), dy=f32(2, oh, ow, co))
    if ci == co or ci % 4 == 0:
        both(f"conv_dx_depthwise_{tag}", lambda c: c.op("ConvTranspose", "dy", "w", strides=[s, s], pads=[p] * 4, group=ci),
             tolerance=near, dy=f32(2, ci, oh, ow), w=f32(ci, 1, k, k))
        both(f"conv_dx_groups_{tag}", lambda c: c.op("ConvTranspose", "dy", "w", strides=[s, s], pads=[p] * 4, group=ci // 4),
             tolerance=near, dy=f32(2, ci, oh, ow), w=f32(ci, 3, k, k)) if ci % 4 == 0 else None
for n, s in ((33, 2), (20, 3)):
    both(f"conv1_dx_{n}_s{s}", lambda c: c.op("ConvTranspose", "dy", "w", strides=[s], pads=[1, 2]), free={"dy": {0: "n", 2: "l"}},
         dy=f32(2, 9, n), w=f32(9, 17, 5), tolerance=(1e-4, 1e-4))
both("conv3_dx", lambda c: c.op("ConvTranspose", "dy", "w", strides=[2, 1, 3], pads=[1] * 6), dy=f32(1, 5, 4, 5, 6), w=f32(5, 7, 3, 3, 4),
     tolerance=(1e-4, 1e-4))

# ---- sums over many rows, with and without sums over the columns of the same input -------------------------
for rows, columns in ((7, 5), (130, 33), (1000, 48), (4100, 17), (5000, 1), (2049, 300)):
    size, free, near = f"{rows}x{columns}", {"x": {0: "r"}, "dy": {0: "r"}}, (1e-4, 1e-3)
    both(f"column_sum_{size}", lambda c: c.op("ReduceSum", "x", c.add("axes", np.array([0]))), free={"x": {0: "r"}}, tolerance=near, x=f32(rows, columns))
    both(f"column_dot_{size}", lambda c: c.op("ReduceSum", c.op("Mul", "x", "dy"), c.add("axes", np.array([0])), keepdims=0), free=free,
         tolerance=near, x=f32(rows, columns), dy=f32(rows, columns))
    both(f"all_sum_{size}", lambda c: c.op("ReduceSum", c.op("Mul", "x", "dy"), keepdims=0), free=free, tolerance=(1e-4, 5e-3),
         x=f32(rows, columns), dy=f32(rows, columns))

    def norm_backward(c):
        axes0, axes1 = c.add("axes0", np.array([0])), c.add("axes1", np.array([1]))
        mean = c.op("ReduceMean", "x", axes1)
        centred = c.op("Sub", "x", mean)
        rstd = c.op("Reciprocal", c.op("Sqrt", c.op("Add", c.op("ReduceMean", c.op("Mul", centred, centred), axes1), c.add("eps", np.float32(1e-3)))))
        xn = c.op("Mul", centred, rstd)
        db, dw = c.op("ReduceSum", "dy", axes0, keepdims=0), c.op("ReduceSum", c.op("Mul", "dy", xn), axes0, keepdims=0)
        g = c.op("Mul", "dy", "w")
        t = c.op("Sub", c.op("Sub", g, c.op("ReduceMean", g, axes1)), c.op("Mul", xn, c.op("ReduceMean", c.op("Mul", g, xn), axes1)))
        return [c.op("Mul", t, rstd), dw, db]
    if columns > 1:
        both(f"norm_backward_{size}", norm_backward, free=free, tolerance=(1e-3, 2e-3), x=f32(rows, columns), dy=f32(rows, columns), w=f32(columns))

# ---- additions scattered over a table: the gradient of an embedding ----------------------------------------
for table, rows, columns in ((11, 40, 7), (300, 77, 48), (1000, 3000, 33), (5, 2000, 64)):
    size = f"{table}x{rows}x{columns}"
    ids, zeros = rng.integers(0, table, rows).astype(np.int64), np.zeros((table, columns), np.float32)
    free = {"ids": {0: "r"}, "u": {0: "r"}}
    for how in ("add", "mul", "max", "none"):
        i = rng.permutation(max(table, rows))[:rows].astype(np.int64) % table if how != "none" else rng.permutation(table)[:min(rows, table)].astype(np.int64)
        u = f32(len(i), columns) if how != "mul" else (1 + .01 * f32(len(i), columns))
        both(f"scatter_rows_{how}_{size}", lambda c: c.op("ScatterND", "t", c.op("Unsqueeze", "ids", c.add("ax", np.array([1]))), "u", reduction=how),
             free=free, tolerance=(1e-4, 1e-4), t=f32(table, columns), ids=i, u=u)
    both(f"scatter_rows_product_{size}", lambda c: c.op("ScatterND", c.add("zeros", zeros), c.op("Unsqueeze", "ids", c.add("ax", np.array([1]))),
         c.op("Mul", "u", "z"), reduction="add"), free={**free, "z": {0: "r"}}, tolerance=(1e-4, 1e-4), ids=ids, u=f32(rows, columns), z=f32(rows, 1))
    both(f"scatter_elements_{size}", lambda c: c.op("ScatterElements", "t", "ids", "u", axis=0, reduction="add"), tolerance=(1e-4, 1e-4),
         t=f32(table, columns), ids=rng.integers(0, table, (rows, columns)).astype(np.int64), u=f32(rows, columns))
    both(f"scatter_vector_{size}", lambda c: c.op("ScatterND", "t", c.op("Unsqueeze", "ids", c.add("ax", np.array([1]))), "u", reduction="add"),
         free=free, tolerance=(1e-4, 1e-4), t=f32(table), ids=ids, u=f32(rows))
