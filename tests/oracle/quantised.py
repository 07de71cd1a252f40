#!/usr/bin/env python3
"""Quantised products and convolutions against the definition, exactly summed, and against onnxruntime.

    quantised.py GRAPHC [--only REGEX] [--some] [--units | --device cuda]

Every case is one contraction in one of the forms that quantisers write: between QuantizeLinear and DequantizeLinear, as
QLinearConv or QLinearMatMul, or of integers alone behind DynamicQuantizeLinear. The right operand is a weight or, as in attention, comes
from the run, too. Operands of u8 and i8, all zero points at the ends of their range and inside, a scale for each
column, sizes that fill no tile and group of four. Checked: within
one quantiser step of both (floats of 8 bits: within what sums of 14 bits may be off, where matrix units add them; not beside
onnxruntime, which lacks them); where the sums are integers, equal; the same bits for each instruction set and for 1 and 3
threads; that bytes are multiplied as such, unless Case.bytes says why not.

--units: compiled for sm_90a instead, and checked that matrix units multiply the bytes, unless Case.units says why not.
--device cuda: the same, and run there.
"""
import itertools, os, re, subprocess, sys, tempfile
import ml_dtypes, numpy as np
import onnx, onnxruntime
from onnx import TensorProto as T, helper as h, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import forks

graphc, only = os.path.abspath(sys.argv[1]), None
cuda = "--device" in sys.argv
units = cuda or "--units" in sys.argv
if "--only" in sys.argv:
    only = re.compile(sys.argv[sys.argv.index("--only") + 1])
RANGE = {np.uint8: (0, 255), np.int8: (-128, 127)}
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
ONNX = {np.uint8: T.UINT8, np.int8: T.INT8, E4M3: T.FLOAT8E4M3FN, E5M2: T.FLOAT8E5M2}
rng = np.random.default_rng(3)
onnxruntime.set_default_logger_severity(3)


class Case:
    """form: qdq, qlinear, dynamic, or narrow (qdq of floats of 8 bits). m: rows, or side and taps and stride of a convolution. full: the largest
    numbers, whose sum leaves 32 bits (in which onnxruntime adds). batch: matrices of each operand, of which the right one is an input, too, as
    attention's are; turned: that lies by columns."""

    def __init__(self, form, x, w, zx, zw, k, n, m, columns=False, groups=1, full=False, batch=0, turned=False):
        self.__dict__.update(form=form, x=x, w=w, zx=zx, zw=zw, k=k, n=n, m=m, columns=columns, groups=groups, full=full, batch=batch, turned=turned)
        size = "x".join(map(str, m)) if isinstance(m, tuple) else m
        self.name = f"{form}_{x.__name__}{zx:+d}_{w.__name__}{zw:+d}_{size}x{n}x{k}" + "_columns" * columns + f"_g{groups}" * (groups > 1)
        self.name += f"_of{batch}" * (batch > 0) + "_turned" * turned
        few = k * n <= 64  # folded when compiling
        self.bytes = not full and form != "narrow" and zw == (128 if w is np.uint8 else 0) and n >= 16 * groups and not few and (not self.conv() or k % 4 == 0 or (groups == 1 and k > 1))
        self.units = not full and not self.conv() and k % 16 == 0 and n >= 16 and not few and m > 1
        if batch:
            # Matrix units read a right operand of the run as it lies: columns side by side, signed (constants are made so beforehand).
            self.bytes, self.units = n >= 16 and m >= 16, self.units and turned and w is np.int8

    def conv(self):
        return isinstance(self.m, tuple)


def all_cases():
    cases = []
    zeros = {np.uint8: (0, 1, 128, 255), np.int8: (-128, -1, 0, 127)}
    for x, w in itertools.product(RANGE, RANGE):
        for i, zx in enumerate(zeros[x]):
            zw = 128 if w is np.uint8 else 0
            cases.append(Case("qdq", x, w, zx, zw, 37 + i, 50, 13, columns=True))
            cases.append(Case("qdq", x, w, zx, zw, 20, 33, (9, 3, 1 + i % 2), columns=i % 2 == 0))
            cases.append(Case("qlinear", x, w, zx, zw, 8 + 4 * i, 48 + i, (6 + i, 1 + 2 * (i % 2), 1)))
            cases.append(Case("qlinear", x, w, zx, zw, 64 - i, 17, 5))
    for zw in (0, 3, 255):  # weights that are not centred
        cases += [Case("qdq", np.uint8, np.uint8, 7, zw, 33, 20, 4), Case("dynamic", np.uint8, np.uint8, 0, zw, 40, 24, 7)]
    for x, w in itertools.product(RANGE, RANGE):  # rows that matrix units fetch; weights of any zero point
        for i, zw in enumerate((0, 5, 128 if w is np.uint8 else -128)):
            cases.append(Case("qdq", x, w, 9 * i, zw, 48 + 64 * i, 40 + 24 * i, 33 + 50 * i, columns=i == 1))
        cases.append(Case("qlinear", x, w, 3, 1, 528, 99, 130))
    cases.append(Case("dynamic", np.uint8, np.uint8, 0, 77, 1040, 65, 200))
    cases += [Case("narrow", t, t, 0, 0, k, n, m, columns=n == 72) for t, k, n, m in
              ((E4M3, 144, 72, 130), (E5M2, 512, 100, 33), (E4M3, 1040, 33, 7), (E4M3, 40, 32, 9))]
    for k, n, m in ((1, 16, 1), (3, 48, 9), (130, 100, 33), (256, 64, 1)):
        cases += [Case("dynamic", np.uint8, np.int8, 0, 0, k, n, m), Case("qdq", np.int8, np.int8, 5, 0, k, n, m, columns=True)]
    cases.append(Case("qdq", np.int8, np.int8, 4, 0, 16, 64, (8, 3, 1), columns=True, groups=2))
    cases.append(Case("qdq", np.uint8, np.int8, 9, 0, 3, 32, (11, 3, 2)))  # three channels: a fourth of zeros
    cases += [Case("qdq", np.uint8, np.int8, 0, 0, k, n, m) for k, n, m in  # a last panel of one vector, or less
              ((3, 64, (11, 3, 2)), (64, 98, (9, 3, 1)), (20, 160, 37), (64, 64, 70), (132, 149, 19))]
    cases += [Case("qdq", x, w, z, 128 if w is np.uint8 else 0, k, 40, (10, t, s), columns=z > 0) for x, w, z, k, t, s in
              ((np.int8, np.int8, -9, 3, 7, 2), (np.uint8, np.uint8, 77, 2, 5, 1), (np.int8, np.uint8, 127, 6, 3, 1), (np.uint8, np.int8, 255, 1, 3, 1))]
    cases += [Case("qdq", np.uint8, w, 0, 0, k, 16, 2, full=True) for w, k in ((np.int8, 70000), (np.uint8, 40000))]
    for i, (x, w) in enumerate(itertools.product(RANGE, RANGE)):  # of two activations
        for zx, zw in ((RANGE[x][0], 3 - 9 * i), (7, 128 if w is np.uint8 else 0), (11 * i, RANGE[w][1])):
            zw = max(zw, RANGE[w][0])
            cases.append(Case("qdq", x, w, zx, zw, 21 + i, 16 + 40 * i, 16 + 7 * i, batch=1 + i))
            cases.append(Case("qdq", x, w, zx, zw, 64, 50, 33, batch=3, turned=True))
    cases += [Case("qdq", np.uint8, np.int8, 0, 4, 40, n, m, batch=2) for n, m in ((24, 1), (8, 40))]  # nothing to be gained
    return cases


def model(c):
    shape = (c.n, c.k // c.groups, c.m[1], c.m[1]) if c.conv() else (c.k, c.n)
    if c.batch:
        shape = (c.batch, c.k, c.n)
    lo, hi = RANGE.get(c.w, (0, 0))
    w = rng.standard_normal(shape).astype(c.w) if c.form == "narrow" else rng.integers(lo, hi + 1, shape).astype(c.w)
    if c.full:
        w[:] = hi
    rows = c.columns and c.form in ("qdq", "narrow")
    sw = (rng.uniform(0.5, 2, c.n if rows else ()) * 0.01).astype(np.float32)
    c.weights, c.sw, c.sx = w, sw, np.float32(0.03)
    c.axis = 0 if c.conv() else 1
    c.sy = np.float32(2e-3 * 128 * np.sqrt(np.prod(shape[-2:] if c.batch else shape) / c.n))
    if c.full:
        c.sy = c.sx * sw * np.float32(c.k * 255 * hi / 200)
    k = {"w": w, "sw": sw, "zw": np.full(sw.shape, c.zw, c.w), "sx": c.sx, "zx": np.array(c.zx, c.x), "sy": c.sy, "zy": np.array(c.zx, c.x)}
    if c.conv():
        attrs = dict(pads=[c.m[1] // 2] * 4, strides=[c.m[2]] * 2, group=c.groups)
        ins = (2, c.k, c.m[0], c.m[0])
    else:
        attrs, ins = {}, (c.batch, c.m, c.k) if c.batch else (c.m, c.k)
    nodes, out = [], T.FLOAT
    add = lambda op, i, o, **a: nodes.append(h.make_node(op, i, o, **a))
    if c.form == "dynamic":
        add("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"])
        add("MatMulInteger", ["xq", "w", "xz", "zw"], ["y"])
        out = T.INT32
    else:
        add("QuantizeLinear", ["x", "sx", "zx"], ["xq"])
        if c.form in ("qdq", "narrow"):
            add("DequantizeLinear", ["xq", "sx", "zx"], ["xd"])
            add("DequantizeLinear", ["w", "sw", "zw"], ["wd"], **({"axis": c.axis} if rows else {}))
            if c.turned:
                add("Transpose", ["wd"], ["wt"], perm=[0, 2, 1])
            add("Conv" if c.conv() else "MatMul", ["xd", "wt" if c.turned else "wd"], ["yd"], **attrs)
            if c.form != "narrow":
                add("QuantizeLinear", ["yd", "sy", "zy"], ["yq"])
        else:
            add("QLinearConv" if c.conv() else "QLinearMatMul", ["xq", "sx", "zx", "w", "sw", "zw", "sy", "zy"], ["yq"], **attrs)
        add(*(("DequantizeLinear", ["yq", "sy", "zy"], ["y"]) if c.form != "narrow" else ("Identity", ["yd"], ["y"])))
    tensor = lambda v, n: (h.make_tensor(n, ONNX[type(v.flat[0])], v.shape, v.tobytes(), raw=True) if v.dtype in (E4M3, E5M2)
                           else numpy_helper.from_array(v, n))
    given = [h.make_tensor_value_info("x", T.FLOAT, ins)]
    c.given = {}
    if c.batch:
        c.given["w"] = np.ascontiguousarray(w.swapaxes(1, 2)) if c.turned else k["w"]
        given.append(h.make_tensor_value_info("w", ONNX[c.w], c.given["w"].shape))
        del k["w"]
    graph = h.make_graph(nodes, "g", given, [h.make_tensor_value_info("y", out, None)],
                         [tensor(v, n) for n, v in k.items()])
    opset, ir = (19, 9) if c.form == "narrow" else (17, 8)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=ir), rng.standard_normal(ins).astype(np.float32) * 2 + (1e3 if c.full else 0)


def quantise(x, s, z, t):
    return np.clip(np.rint(x / s) + z, *RANGE[t])


def integer_sum(c, xq, zx):
    a, w = xq.astype(np.int64) - zx, c.weights.astype(np.int64) - c.zw
    if not c.conv():
        return a @ w
    side, taps, stride = c.m
    p = taps // 2
    a = np.pad(a, ((0, 0), (0, 0), (p, p), (p, p)))
    win = np.lib.stride_tricks.sliding_window_view(a, (taps, taps), (2, 3))[:, :, ::stride, ::stride]
    g = c.groups
    win = win.reshape(win.shape[0], g, c.k // g, *win.shape[2:])
    y = np.einsum("bgchwij,gocij->bgohw", win, w.reshape(g, c.n // g, c.k // g, taps, taps))
    return y.reshape(y.shape[0], c.n, *y.shape[3:])


def expected(c, x):
    if c.form == "dynamic":
        hi, lo = max(x.max(), np.float32(0)), min(x.min(), np.float32(0))
        s = np.float32((hi - lo) / np.float32(255))
        z = int(np.rint(np.clip(-lo / s, 0, 255)))
        return integer_sum(c, quantise(x, s, z, np.uint8), z), 0
    if c.form == "narrow":
        y = ((x / c.sx).astype(c.x).astype(np.float64) * c.sx) @ (c.weights.astype(np.float64) * c.sw)
        return y, y.std() * (5e-3 if cuda else 1e-5)
    y = integer_sum(c, quantise(x, c.sx, c.zx, c.x), c.zx)
    sw = c.sw.astype(np.float64)
    if sw.ndim and c.conv():
        sw = sw[:, None, None]
    return (quantise(y * (float(c.sx) * sw), float(c.sy), c.zx, c.x) - c.zx) * float(c.sy), float(c.sy)


def run(plan, folder, *args):
    out = f"{folder}/out"
    p = forks.run([graphc, "run", plan, *(["--device", "cuda"] if cuda else []), *(a for f in os.listdir(folder) if f.endswith(".npy") for a in ("--input", f"{f[:-4]}={folder}/{f}")), "--output-dir", out, *args])
    if p.returncode:
        raise RuntimeError(p.stderr)
    return np.load(f"{out}/y.npy")


def peers(proto, inputs):
    options = onnxruntime.SessionOptions()  # where no instruction adds four products, its pairs saturate at 16 bits unless asked not to
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        s = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:  # QLinearConv of i8 by u8
        return []
    return [("onnxruntime", s.run(None, inputs)[0])]


def check(c, folder):
    proto, x = model(c)
    onnx.save(proto, f"{folder}/m.onnx")
    inputs = {"x": x, **c.given}
    for name, v in inputs.items():
        np.save(f"{folder}/{name}.npy", v)
    plan, target = f"{folder}/m.plan", "sm_90a" if units else "cpu"
    p = forks.run([graphc, f"{folder}/m.onnx", "-o", plan, "--target", target, "--dump-ir", f"{folder}/ir"])
    if p.returncode:
        return p.stderr
    if units:
        why = forks.run([graphc, "explain", plan]).stdout
        are, should = "tensor cores, tiles" in why, c.units
    else:
        are, should = " quads " in open(f"{folder}/ir/post-fusion.kir").read(), c.bytes
    if are != should:
        return "it is not multiplied as bytes" if should else "it is multiplied as bytes, and should not be"
    if units and not cuda:
        return None
    got = run(plan, folder, *([] if cuda else ["--threads", "1"]))
    for args in [] if cuda else (["--threads", "3"], ["--isa", "4"], ["--isa", "3"]):
        if not np.array_equal(got, run(plan, folder, *args)):
            return f"other bits with {args}"
    want, step = expected(c, x)
    for name, y in [("the definition", want)] + ([] if c.full or c.form == "narrow" else peers(proto, inputs)):
        if got.shape != y.shape:
            return f"shape {got.shape}, {y.shape} by {name}"
        apart = np.abs(got.astype(np.float64) - y).max()
        if apart > step * 1.001:
            return f"{apart / (step or 1):.3g} steps from {name}"
    if step and c.form != "narrow" and (np.abs(got - want) > step / 2).mean() > 0.01:
        return "more than 1 % of results are a step apart"
    return None


if cuda and "cuda: driver" not in subprocess.run([graphc, "doctor"], capture_output=True, text=True).stdout:
    print("skipped: no GPU")
    sys.exit(77)
cases = [c for c in all_cases() if not only or only.search(c.name)]
if "--some" in sys.argv:
    cases = cases[::6]
failures = 0
with tempfile.TemporaryDirectory() as folder:
    for i, c in enumerate(cases):
        os.mkdir(f"{folder}/{i}")
        why = check(c, f"{folder}/{i}")
        failures += why is not None
        print("ok" if why is None else "FAILED", c.name, why or "", flush=True)
print(f"{len(cases) - failures} of {len(cases)}")
sys.exit(failures != 0 or not cases)
