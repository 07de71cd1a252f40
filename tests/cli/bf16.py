"""--precision bf16 on CPUs: bf16.py GRAPHC

Products, convolutions and several products of one operand at sizes that are no multiple of anything, by AVX2 code, AVX-512 code
and what the processor adds to it: within f32's rounding of the same sums of rounded operands in f64. Where the processor has
AMX or AVX512-BF16, that code is what runs; a plan in f32 has none of either."""
import json, os, sys
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper as nh
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tool import Tool

tool = Tool(sys.argv[1])
check, run = tool.check, tool.run
rng = np.random.default_rng(5)


def bf16(x):
    """Rounded to nearest, ties to even."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7fff + (u >> 16 & 1)) & 0xffff0000).astype(np.uint32).view(np.float32)


def draw(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def save(path, nodes, x, weights, outputs, shape=None):
    g = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, shape or x.shape)],
                     [h.make_tensor_value_info(o, T.FLOAT, None) for o in outputs], [nh.from_array(w, n) for n, w in weights.items()])
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 20)], ir_version=9), path)


def reference(nodes, x, weights, outputs, kept):
    wide = {n: np.float64(w if n in kept else bf16(w)) for n, w in weights.items()}
    g = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.DOUBLE, x.shape)],
                     [h.make_tensor_value_info(o, T.DOUBLE, None) for o in outputs], [nh.from_array(w, n) for n, w in wide.items()])
    model = h.make_model(g, opset_imports=[h.make_opsetid("", 20)], ir_version=9)
    return ReferenceEvaluator(model).run(None, {"x": bf16(x).astype(np.float64)})


def code_of(plan, *more):
    return json.loads(run("bench", plan, "--json", "--threads", "1", "--runs", "5", *more))["code"]


def case(what, nodes, x, weights, outputs, shape=None, kept=()):
    save("m.onnx", nodes, x, weights, outputs, shape)
    run("m.onnx", "--precision", "bf16", "-o", "m.plan")
    np.save("x.npy", x)
    want = reference(nodes, x, weights, outputs, kept)
    for isa in ("3", "4", "0"):
        run("run", "m.plan", *(["--isa", isa] if isa != "0" else []), "--input", "x=x.npy", "--output-dir", "out")
        for o, w in zip(outputs, want):
            got = np.load(f"out/{o}.npy")
            # what is handed on may be rounded, which the results of the last contraction are not
            worst = np.abs(got - w).max() / np.abs(w).max()
            check(worst <= 4e-6, f"{what}, code {isa}: {o} is off by {worst:.1e} of its largest element")


for m, k, n in [(1, 64, 48), (1, 333, 97), (7, 129, 50), (64, 256, 96), (19, 1001, 33)]:
    case(f"{m} x {k} x {n}", [h.make_node("MatMul", ["x", "w"], ["y"])], draw(m, k), {"w": draw(k, n)}, ["y"])
case("rows left open", [h.make_node("MatMul", ["x", "w"], ["y"])], draw(11, 150), {"w": draw(150, 64)}, ["y"], ["rows", 150])
case("two products of one operand", [h.make_node("MatMul", ["x", "v"], ["y"]), h.make_node("MatMul", ["x", "w"], ["z"])],
     draw(13, 77), {"v": draw(77, 64), "w": draw(77, 64)}, ["y", "z"])
# rows of one and two tiles, of chunks that differ; rows of a left operand that are read where the product before stored them,
# which are small integers: bf16 has them
for m, k, n in [(16, 64, 16), (17, 96, 40), (33, 40, 48), (130, 64, 112), (197, 32, 64)]:
    case(f"{m} x {k} x {n} and on", [h.make_node("MatMul", ["x", "v"], ["y"]), h.make_node("MatMul", ["y", "w"], ["z"])],
         rng.integers(-2, 3, (m, k)).astype(np.float32),
         {"v": rng.integers(-1, 2, (k, n)).astype(np.float32), "w": draw(n, 50)}, ["z"])
for c, o, size, kernel, stride in [(9, 32, 19, 3, 2), (16, 48, 9, 3, 1), (33, 20, 8, 1, 1), (8, 17, 12, 5, 1),
                                   (20, 17, 12, 3, 1), (200, 17, 12, 3, 1)]:
    case(f"convolution {c} to {o}, {kernel} x {kernel}, stride {stride}",
         [h.make_node("Conv", ["x", "w"], ["y"], strides=[stride] * 2, pads=[kernel // 2] * 4)],
         draw(2, c, size, size), {"w": draw(o, c, kernel, kernel)}, ["y"])
# of few channels: nothing is rounded, here not in the reference either: the input has bf16's digits
for c, groups in [(3, 1), (7, 1), (8, 4), (6, 6)]:
    case(f"{c} channels, {groups} groups", [h.make_node("Conv", ["x", "w"], ["y"], group=groups, pads=[1] * 4)],
         bf16(draw(2, c, 12, 12)), {"w": draw(24, c // groups, 3, 3)}, ["y"], kept="" if c == groups else "w")

# the left operand of what a thousandth of all products is for keeps its digits, and so do weights that are few
for n in (8, 97):
    case(f"a head of {n}", [h.make_node("Conv", ["x", "v"], ["y"], pads=[1] * 4), h.make_node("GlobalAveragePool", ["y"], ["mean"]),
                            h.make_node("Flatten", ["mean"], ["rows"]), h.make_node("MatMul", ["rows", "w"], ["z"])],
         draw(2, 16, 32, 32), {"v": draw(64, 16, 3, 3), "w": draw(64, n)}, ["z"], kept="w" if n == 8 else "")
has = json.loads(run("doctor", "--json"))["cpu"]["code"]
save("m.onnx", [h.make_node("MatMul", ["x", "w"], ["y"])], draw(8, 64), {"w": draw(64, 64)}, ["y"])
run("m.onnx", "-o", "f32.plan")
run("m.onnx", "--precision", "bf16", "-o", "bf16.plan")
check(code_of("f32.plan") in ("x86-64-v3", "x86-64-v4"), "a plan in f32 has code for AMX or AVX512-BF16")
best = [name for name in ("AMX", "AVX512-BF16") if has[name]]
if best:
    form = {"AMX": "x86-64-v4+amx", "AVX512-BF16": "x86-64-v4+bf16"}[best[0]]
    check(code_of("bf16.plan") == form, f"{best[0]} is not used")
    check(code_of("bf16.plan", "--isa", "4") == "x86-64-v4", f"--isa 4 uses {best[0]}")
for name in ("AMX", "AVX512-BF16"):
    if not has[name]:
        print(f"skipped: this processor has no {name}")
sys.exit(tool.bad != 0)
