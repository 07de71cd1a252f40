#!/usr/bin/env python3
"""Every element type through every structure of kernel, against numpy in f64.

    dtypes.py GRAPHC [suite.py's options]      writes the cases, runs them
    dtypes.py --write FOLDER                   writes them in the layout of ONNX's backend suite

Sizes are those at which a GPU's contractions, rows and folds change their structure. All must pass.
"""
import json, os, sys, tempfile

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = {"f64": np.dtype("f8"), "f32": np.dtype("f4"), "f16": np.dtype("f2"), "bf16": BF16}
INTS = {f"{s}{b}": np.dtype(f"{'int' if s == 'i' else 'uint'}{b}") for s in "iu" for b in (8, 16, 32, 64)}
NUMBERS = {**FLOATS, **INTS}
# Half a unit in the last place of 1: what rounding a result costs. Sums of 16-bit types are f32's.
UNIT = {"f64": 2.0 ** -53, "f32": 2.0 ** -24, "f16": 2.0 ** -11, "bf16": 2.0 ** -8}
SUM = {"f64": UNIT["f64"], "f32": UNIT["f32"], "f16": UNIT["f32"], "bf16": UNIT["f32"]}
rng = np.random.default_rng(11)
cases = []


def draw(t, *shape, low=-4, high=5):
    """Small numbers: integers that any type holds exactly, or normal ones where rounding shows."""
    if t.kind in "iu":
        return rng.integers(0 if t.kind == "u" else low, high, shape).astype(t)
    return rng.standard_normal(shape).astype(t)


def wide(x):
    return x.astype(np.int64 if x.dtype.kind in "iub" else np.float64)


def narrow(x, t):
    return np.asarray(x).astype(t)


def case(name, op, inputs, outputs, tag=None, atol=0, ulps=1, domain="", opset=23, **attrs):
    """inputs: arrays or None for absent ones; tag: name of a float type whose result may lie `ulps` units in the
    last place from the right one, one of which is the neighbour that a slightly different sum is rounded to. Without
    one the result is exact."""
    rtol = 2.01 * ulps * UNIT[tag] if tag in UNIT else 0
    cases.append((name, op, inputs, outputs, {"rtol": rtol, "atol": atol}, domain, opset, attrs))


def tolerance(tag, terms, size=1.0):
    """Absolute: what a sum of `terms` summands of about `size` loses. They are random, so that partial sums grow
    like the square root; each of at least sqrt(terms) chains that are added side by side rounds as often."""
    return 6 * SUM.get(tag, 0) * size * terms ** 0.75


# --- Contractions: few rows, small and large tiles, batches, k that fills no tile ------------------


def contractions():
    sizes = [(1, 70, 33), (8, 40, 200), (17, 33, 19), (60, 60, 64), (700, 900, 40), (2100, 1700, 24)]
    kinds = {k: t for k, t in NUMBERS.items() if k not in ("i8", "u8", "i16", "u16")}
    for tag, t in kinds.items():
        for m, n, k in sizes:
            a, b = draw(t, m, k), draw(t, k, n)
            case(f"matmul_{tag}_{m}x{n}x{k}", "MatMul", [a, b], [narrow(wide(a) @ wide(b), t)], tag,
                 atol=tolerance(tag, k, 2))
        a, b = draw(t, 3, 5, 20, 48), draw(t, 5, 48, 36)
        case(f"matmul_batch_{tag}", "MatMul", [a, b], [narrow(wide(a) @ wide(b), t)], tag, atol=tolerance(tag, 48, 2))
        a, b, c = draw(t, 90, 66), draw(t, 70, 66), draw(t, 70)
        case(f"gemm_{tag}", "Gemm", [a, b, c], [narrow(wide(a) @ wide(b).T + wide(c), t)], tag,
             atol=tolerance(tag, 66, 2) + (4 * 66 ** 0.5 * UNIT[tag] if t.itemsize == 2 else 0), transB=1)  # the product is rounded
    a, b = draw(FLOATS["f32"], 70000, 2, 3), draw(FLOATS["f32"], 70000, 3, 4)  # batches: more than fit along an axis of a grid
    case("matmul_many", "MatMul", [a, b], [narrow(wide(a) @ wide(b), "f4")], "f32", atol=tolerance("f32", 3, 4))
    for ta in ("i8", "u8"):
        for tb in ("i8", "u8"):
            a, b = draw(INTS[ta], 70, 45), draw(INTS[tb], 45, 130)
            za, zb = np.array(3, INTS[ta]), np.array(2, INTS[tb])
            want = (wide(a) - 3) @ (wide(b) - 2)
            case(f"matmulinteger_{ta}_{tb}", "MatMulInteger", [a, b, za, zb], [narrow(want, "i4")])


def convolve(x, w, stride, pad, group):
    x = np.pad(wide(x), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    w = wide(w)
    n, c, h, ww = x.shape
    o, ci, kh, kw = w.shape
    view = np.lib.stride_tricks.sliding_window_view(x, (kh, kw), (2, 3))[:, :, ::stride, ::stride]
    view = view.reshape(n, group, ci, *view.shape[2:])
    y = np.einsum("ngchwij,gocij->ngohw", view, w.reshape(group, o // group, ci, kh, kw))
    return y.reshape(n, o, *y.shape[3:])


def convolutions():
    shapes = {"small": (1, 3, 9, 8, 3, 1, 1, 1), "strided": (2, 8, 30, 20, 3, 2, 1, 1), "point": (1, 40, 16, 64, 1, 1, 0, 1),
              "depthwise": (1, 24, 20, 24, 3, 1, 1, 24), "grouped": (2, 12, 14, 18, 3, 1, 1, 3),
              "large": (4, 16, 64, 150, 3, 1, 1, 1)}
    for tag, t in FLOATS.items():
        for name, (n, c, s, o, k, stride, pad, group) in shapes.items():
            x, w = draw(t, n, c, s, s), draw(t, o, c // group, k, k)
            want = narrow(convolve(x, w, stride, pad, group), t)
            case(f"conv_{name}_{tag}", "Conv", [x, w], [want], tag, atol=4 * tolerance(tag, c // group * k * k, 2),  # Winograd's
                 kernel_shape=[k, k], strides=[stride] * 2, pads=[pad] * 4, group=group)


def attention():
    for tag, t in FLOATS.items():
        for b, s, d, causal in ((2, 5, 8, 0), (2, 70, 64, 1), (2, 130, 48, 0), (25000, 2, 4, 0)):
            q, k, v = (draw(t, b, 3, s, d) for _ in range(3))
            score = wide(q) @ wide(k).swapaxes(2, 3) / d ** 0.5
            if causal:
                score = np.where(np.tri(s), score, -np.inf)
            p = np.exp(score - score.max(-1, keepdims=True))
            want = narrow(p / p.sum(-1, keepdims=True) @ wide(v), t)
            case(f"attention_{tag}_{s}x{d}", "Attention", [q, k, v], [want], tag, atol=64 * SUM[tag] + (UNIT[tag] if t.itemsize == 2 else 0),
                 is_causal=causal)  # 16-bit types may round the probabilities


# --- Rows and folds: a thread, a warp, a block per row; outer axes ---------------------------------


def folds():
    shapes = {"short": ((7, 300, 5), 2), "warp": ((40, 200), 1), "block": ((6, 3000), 1), "long": ((2, 20000), 1),
              "outer": ((300, 70), 0)}
    for tag, t in NUMBERS.items():
        for where, (shape, axis) in shapes.items():
            x = draw(t, *shape)
            axes = np.array([axis], np.int64)
            for op, fn in (("ReduceMax", np.max), ("ReduceMin", np.min), ("ReduceSum", np.sum), ("ReduceMean", np.mean)):
                exact = op in ("ReduceMax", "ReduceMin")
                if tag in ("i16", "u16") or (not exact and tag in ("i8", "u8")) or (op == "ReduceMean" and tag in INTS):
                    continue
                want = narrow(fn(wide(x), axis=axis), t)
                case(f"{op.lower()}_{tag}_{where}", op, [x, axes], [want], tag,
                     atol=0 if exact else tolerance(tag, shape[axis]) / (shape[axis] if op == "ReduceMean" else 1), keepdims=0)
            if where in ("warp", "block", "outer"):
                case(f"argmax_{tag}_{where}", "ArgMax", [x], [np.argmax(wide(x), axis=axis)], axis=axis, keepdims=0)
    for shape in ((40, 200), (6, 3000)):
        x = rng.random(shape) < 0.01
        axes = np.array([1], np.int64)
        case(f"reducemax_bool_{shape[1]}", "ReduceMax", [x, axes], [x.any(1)], keepdims=0)
        case(f"reducemin_bool_{shape[1]}", "ReduceMin", [~x, axes], [(~x).all(1)], keepdims=0)


def norms():
    for tag, t in FLOATS.items():
        for n in (10, 500, 1500, 9000):
            x, g, b = draw(t, 5, n), draw(t, n), draw(t, n)
            w = wide(x)
            e = np.exp(w - w.max(-1, keepdims=True))
            case(f"softmax_{tag}_{n}", "Softmax", [x], [narrow(e / e.sum(-1, keepdims=True), t)], tag, ulps=1 if t.itemsize == 2 else 8,
                 atol=2.0 ** -24 if tag == "f16" else 0)  # subnormal
            mean, var = w.mean(-1, keepdims=True), w.var(-1, keepdims=True)
            want = narrow((w - mean) / np.sqrt(var + float(np.float32(1e-5))) * wide(g) + wide(b), t)
            case(f"layernorm_{tag}_{n}", "LayerNormalization", [x, g, b], [want], tag, atol=64 * SUM[tag], axis=-1)


# --- Order: scans, sorts, scatters with equal targets ----------------------------------------------


def ordered():
    for tag, t in NUMBERS.items():
        x = draw(t, 6, 90)
        if tag not in ("i8", "u8", "i16", "u16"):
            case(f"cumsum_{tag}", "CumSum", [x, np.array(1, np.int32)], [narrow(np.cumsum(wide(x), 1), t)], tag,
                 atol=tolerance(tag, 90, 2))
        at = np.argsort(-wide(x), axis=1, kind="stable")[:, :9]
        if tag != "bf16":
            case(f"topk_{tag}", "TopK", [x, np.array([9], np.int64)], [np.take_along_axis(x, at, 1), at])
        i = rng.integers(0, 40, (50, 3))
        d, u = draw(t, 40, 3, low=1, high=3), draw(t, 50, 3, low=1, high=3)
        for how, fn in (("add", np.add), ("mul", np.multiply), ("max", np.maximum), ("min", np.minimum)):
            want = wide(d)
            fn.at(want, (i, np.arange(3)[None]), wide(u))
            case(f"scatter_{how}_{tag}", "ScatterElements", [d, i, u], [narrow(want, t)], tag,
                 ulps=8, atol=0 if how in ("max", "min") else 8 * UNIT.get(tag, 0), axis=0, reduction=how)


# --- Points ------------------------------------------------------------------------------------------


def points():
    for tag, t in NUMBERS.items():
        x, y = draw(t, 50, 33), draw(t, 33, low=1)
        y = np.where(wide(y) == 0, 1, wide(y)).astype(t)
        for op, fn in (("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Max", np.maximum), ("Min", np.minimum)):
            case(f"{op.lower()}_{tag}", op, [x, y], [narrow(fn(wide(x), wide(y)), t)])
        divide = np.divide if tag in FLOATS else lambda a, b: np.trunc(a / b)
        case(f"div_{tag}", "Div", [x, y], [narrow(divide(wide(x), wide(y)), t)], tag)
        case(f"mod_{tag}", "Mod", [x, y], [narrow(np.fmod(wide(x), wide(y)) if tag in FLOATS else wide(x) % wide(y), t)],
             fmod=int(tag in FLOATS))
        case(f"less_{tag}", "Less", [x, y], [wide(x) < wide(y)])
        case(f"where_{tag}", "Where", [wide(x) > 0, x, y], [np.where(wide(x) > 0, x, y)])
        case(f"transpose_{tag}", "Transpose", [x], [x.T.copy()], perm=[1, 0])
        case(f"gather_{tag}", "Gather", [x, np.array([3, -1, 0], np.int64)], [x[[3, -1, 0]]])
        for to, u in {**NUMBERS, "bool": np.dtype(bool)}.items():
            v = np.abs(wide(x)).astype(t) if to in INTS or tag in INTS else x
            want = wide(v) != 0 if to == "bool" else np.trunc(wide(v)).astype(u) if to in INTS else wide(v).astype(u)
            case(f"cast_{tag}_{to}", "Cast", [v], [want], to=helper.np_dtype_to_tensor_dtype(u))
    for tag, t in FLOATS.items():
        x = draw(t, 700)
        for op, fn in (("Exp", np.exp), ("Tanh", np.tanh), ("Sin", np.sin), ("Cos", np.cos), ("Sqrt", np.sqrt), ("Log", np.log),
                       ("Floor", np.floor), ("Abs", np.abs), ("Sigmoid", lambda z: 1 / (1 + np.exp(-z)))):
            v = np.abs(wide(x)).astype(t) if op in ("Sqrt", "Log") else x
            case(f"{op.lower()}_{tag}", op, [v], [narrow(fn(wide(v)), t)], tag, ulps=1 if t.itemsize == 2 else 8)


# --- Files -------------------------------------------------------------------------------------------


def tensor_file(path, array, name):
    with open(path, "wb") as f:
        f.write(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name).SerializeToString())


def write(folder):
    for make in (contractions, convolutions, attention, folds, norms, ordered, points):
        make()
    elem = lambda x: helper.np_dtype_to_tensor_dtype(x.dtype)
    for name, op, inputs, outputs, tolerances, domain, opset, attrs in cases:
        inputs, outputs = [np.asarray(x) for x in inputs], [np.asarray(x) for x in outputs]
        ins, outs = [f"in{i}" for i in range(len(inputs))], [f"out{i}" for i in range(len(outputs))]
        graph = helper.make_graph(
            [helper.make_node(op, ins, outs, domain=domain, **attrs)], name,
            [helper.make_tensor_value_info(n, elem(x), x.shape) for n, x in zip(ins, inputs)],
            [helper.make_tensor_value_info(n, elem(x), x.shape) for n, x in zip(outs, outputs)])
        place = f"{folder}/node/{name}"
        os.makedirs(f"{place}/test_data_set_0", exist_ok=True)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), f"{place}/model.onnx")
        with open(f"{place}/data.json", "w") as f:
            json.dump(tolerances, f)
        for kind, names, arrays in (("input", ins, inputs), ("output", outs, outputs)):
            for i, (n, x) in enumerate(zip(names, arrays)):
                tensor_file(f"{place}/test_data_set_0/{kind}_{i}.pb", x, n)


def main():
    if sys.argv[1] == "--write":
        return write(sys.argv[2])
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "conformance"))
    import suite
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        with open(f"{folder}/expected.txt", "w") as f:
            f.writelines(f"node/{c[0]} pass\n" for c in cases)
        sys.argv[2:2] = [folder, f"{folder}/expected.txt"]
        return suite.main()


if __name__ == "__main__":
    sys.exit(main())
