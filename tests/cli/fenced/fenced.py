"""Kernels touch nothing beyond their operands: fenced.py FENCED

FENCED is graphc whose CPU kernels run between pages that no one may touch (fenced.c): what this finds needs no values to
compare. Products, convolutions, attention, cells and rows of sizes that are open, from nothing over all that divides no
vector or tile, in AVX2 and AVX-512 code, with 1 and 3 threads."""
import os, sys
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import forks
from tool import Tool

tool = Tool(sys.argv[1])
rng = np.random.default_rng(1)
SIZES = [0, 1, 3, 7, 8, 9, 17, 48, 49]


def case(name, nodes, inputs, sizes=SIZES, **constants):
    """Every symbol of the inputs' shapes takes every size, each beside another of the others."""
    values = [h.make_tensor_value_info(n, T.FLOAT, shape) for n, shape in inputs.items()]
    tensors = [numpy_helper.from_array(np.asarray(c), n) for n, c in constants.items()]
    graph = h.make_graph(nodes, "g", values, [h.make_tensor_value_info("y", T.FLOAT, None)], tensors)
    imports = [h.make_opsetid("", 18), h.make_opsetid("com.microsoft", 1)]
    onnx.save(h.make_model(graph, opset_imports=imports, ir_version=9), "m.onnx")
    symbols = sorted({d for shape in inputs.values() for d in shape if isinstance(d, str)})
    tool.run("m.onnx", "-o", "m.plan", *(x for s in symbols for x in ("--dim", f"{s}=0..99")))
    for i in range(len(sizes)):
        at = {s: sizes[(i * (k + 1) + k) % len(sizes)] for k, s in enumerate(symbols)}
        args = ["--isa", "34"[i % 2], "--threads", "13"[i // 2 % 2], *(x for s, n in at.items() for x in ("--dim", f"{s}={n}"))]
        p = forks.run([tool.graphc, "run", "m.plan", *args, "--output-dir", "out"], timeout=100, env=dict(os.environ, GRAPHC_GRAIN_NS="1"))
        tool.check(p.returncode == 0, f"{name} {' '.join(args)}: exit {p.returncode} {p.stderr}")


def node(op, ins, out="y", **attributes):
    return h.make_node(op, ins.split(), out.split(), **attributes)


def some(*shape):
    return rng.standard_normal(shape).astype(np.float32)


for k, m in (64, 96), (33, 50), (128, 17):
    w, b = some(k, m), some(m)
    case(f"product {k}x{m}", [node("MatMul", "x w", "p"), node("Add", "p r")], {"x": ["n", k], "r": ["n", m]}, w=w)
    case(f"product {k}x{m} of columns", [node("Transpose", "x", "t", perm=[1, 0]), node("MatMul", "t w", "p"), node("Add", "p r", "q"),
         node("Relu", "q")], {"x": [k, "n"], "r": ["n", 1]}, w=w)
    case(f"product {k}x{m} of bytes", [node("DynamicQuantizeLinear", "x", "q s z"), node("MatMulInteger", "q w z", "i"), node("Cast", "i", "f", to=1),
         node("Mul", "f s", "p"), node("Add", "p b")], {"x": ["n", k]}, w=(w * 30).astype(np.int8), b=b)
blocks = rng.integers(0, 256, (50, 3, 16)).astype(np.uint8)
for level in 0, 4:
    case(f"product of 4 bits, level {level}", [node("MatMulNBits", "x w s", "p", domain="com.microsoft", K=96, N=50, block_size=32, bits=4,
         accuracy_level=level), node("Add", "p r")], {"x": ["n", 96], "r": ["n", 50]}, w=blocks, s=some(150))
case("product of inputs", [node("MatMul", "x w", "p"), node("Add", "p r")], {"x": ["b", "n", "k"], "w": ["b", "k", "m"], "r": ["b", "n", "m"]})
case("product of a bias", [node("MatMul", "x w", "p"), node("Add", "p r")], {"x": ["n", "k"], "w": ["k", "m"], "r": ["m"]})
for size, step, groups in (3, 1, 1), (3, 2, 1), (1, 1, 1), (5, 1, 16):
    case(f"convolution {size} by {step}, {groups} groups", [node("Conv", "x w", "p", strides=[step] * 2, pads=[size // 2] * 4, group=groups), node("Sigmoid", "p", "s"),
         node("Mul", "p s")], {"x": ["b", 16, "h", "w"]}, sizes=[1, 3, 8, 9], w=some(16, 16 // groups, size, size))
for width in 64, 7:
    case(f"attention {width}", [node("Transpose", "k", "t", perm=[0, 2, 1]), node("MatMul", "q t", "p"), node("Add", "p mask", "s"), node("Softmax", "s", "e"), node("MatMul", "e v")],
         {"q": ["b", "n", width], "k": ["b", "m", width], "v": ["b", "m", width], "mask": ["n", "m"]})
case("first places", [node("TopK", "x k", "y i", largest=0)], {"x": ["b", "n"]}, sizes=[5, 7, 21, 22, 48, 99], k=np.array([5]))
case("cell", [node("GRU", "x w r", "y", hidden_size=12)], {"x": ["n", "b", 7]}, sizes=[0, 1, 2, 9], w=some(1, 36, 7), r=some(1, 36, 12))
case("rows", [node("Softmax", "x", "s"), node("Mul", "s r")], {"x": ["b", "n", "m"], "r": ["m"]})
case("columns", [node("ReduceMax", "x a", "s"), node("Sub", "x s")], {"x": ["b", "n", "m"]}, a=np.array([1]))
case("turned", [node("Transpose", "x", "t", perm=[2, 0, 1]), node("Relu", "t")], {"x": ["b", "n", "m"]})
case("backwards", [node("Slice", "x s e a d", "t"), node("Add", "t x")], {"x": ["b", "n"]}, s=[-1], e=[-1000], a=[1], d=[-1])
case("joined", [node("Sigmoid", "x", "s"), node("Concat", "s z", "t", axis=-1), node("Mul", "t t")], {"x": ["b", "n"], "z": ["b", "m"]})
case("rolled", [node("Mul", "x s", "m"), node("Reshape", "m flat", "f"), node("Slice", "f at end axis", "a"), node("Slice", "f start at axis", "b"), node("Concat", "a b", "c", axis=1),
     node("Reshape", "c back", "d"), node("Sigmoid", "d")], {"x": [3, 9, 3], "s": [3, 9, 1]}, sizes=[0, 1], flat=[3, 27], back=[3, 9, 3], start=[0], at=[12], end=[27], axis=[1])
sys.exit(tool.bad != 0)
