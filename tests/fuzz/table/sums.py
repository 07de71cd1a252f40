"""Rows of operators that fold: reductions, contractions, norms, samples of pictures."""
import numpy as np

from .node import FLOATS, NP, Refused, rows


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
