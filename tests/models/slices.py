"""Weights that lie beside the plan are packed by several threads, slice after slice where they are read so: slices.py GRAPHC

Products, a convolution in Winograd's form and one with a stride, a table that is looked up and multiplied, a weight of two
products, weights that are packed as one, with sizes that no panel divides: results have the bits of a plan that holds its
weights, with 1 to 5 threads, from one file and from a file each, and are those of the formula; a weight of which the
first or the last byte is another one is refused."""
import os, sys
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper as nh

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import forks
from tool import Tool

tool = Tool(sys.argv[1])
check, run = tool.check, tool.run
rng = np.random.default_rng(5)
K, N, C, D, V = 610, 701, 200, 250, 1003
shapes = {"w": (N, K), "m": (N, K), "t": (V, K), "c": (D, C, 3, 3), "s": (C, D, 3, 3), "p": (K, 332), "q": (K, 332)}
w = {n: (rng.standard_normal(s) / np.prod(s[1:]) ** 0.5).astype(np.float32) for n, s in shapes.items()}
x, ids = rng.standard_normal((5, K)).astype(np.float32), np.array([0, 7, V - 1, 512, 3], np.int64)
image = rng.standard_normal((1, C, 9, 9)).astype(np.float32)
nodes = [h.make_node("Gather", ["t", "ids"], ["rows"]), h.make_node("Add", ["x", "rows"], ["a"]),
         h.make_node("Gemm", ["a", "w"], ["b"], transB=1), h.make_node("MatMul", ["b", "m"], ["d"]),
         h.make_node("Add", ["d", "x"], ["e"]), h.make_node("Gemm", ["e", "w"], ["again"], transB=1),
         h.make_node("Gemm", ["e", "t"], ["logits"], transB=1), h.make_node("MatMul", ["e", "p"], ["ep"]),
         h.make_node("MatMul", ["e", "q"], ["eq"]), h.make_node("Mul", ["ep", "eq"], ["both"]),
         h.make_node("Conv", ["image", "c"], ["f"], pads=[1, 1, 1, 1]),
         h.make_node("Conv", ["f", "s"], ["pixels"], strides=[2, 2])]
value = h.make_tensor_value_info
inputs = {"x": x, "ids": ids, "image": image}
outputs = {"again": (5, N), "both": (5, 332), "logits": (5, V), "pixels": (1, C, 4, 4)}
g = h.make_graph(nodes, "g", [value(n, h.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in inputs.items()],
                 [value(n, T.FLOAT, s) for n, s in outputs.items()], [nh.from_array(v, n) for n, v in w.items()])
model = h.make_model(g, opset_imports=[h.make_opsetid("", 18)], ir_version=9)
onnx.save(model, "plain.onnx")
os.mkdir("parts")
for path, one in ("m.onnx", True), ("parts/m.onnx", False):
    onnx.save(onnx.load("plain.onnx"), path, save_as_external_data=True, all_tensors_to_one_file=one, size_threshold=0,
              location="m.weights" if one else None)
given = []
for n, v in inputs.items():
    np.save(f"{n}.npy", v)
    given += ["--input", f"{n}={n}.npy"]
run("m.onnx", "-o", "m.plan", "--dump-ir", "dump")
run("m.onnx", "-o", "whole.plan", "--embed")
run("parts/m.onnx", "-o", "parts/m.plan")
check(open("dump/plan.txt").read().count("  slices ") >= 4, "few weights are read in slices")


def results(plan, folder, threads):
    run("run", plan, *given, "--output-dir", folder, "--threads", str(threads))
    return {n: np.load(f"{folder}/{n}.npy") for n in outputs}


def convolved(image, kernel, step):
    size = (image.shape[2] - 3) // step + 1
    sums = np.zeros((kernel.shape[0], size, size))
    for i in range(3):
        for j in range(3):
            part = image[0, :, i:i + step * size:step, j:j + step * size:step]
            sums += np.einsum("oc,chw->ohw", kernel[:, :, i, j].astype(np.float64), part)
    return sums[None]


e = ((x + w["t"][ids]).astype(np.float64) @ w["w"].T) @ w["m"] + x
padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
want = {"both": (e @ w["p"]) * (e @ w["q"]), "again": e @ w["w"].T, "logits": e @ w["t"].T, "pixels": convolved(convolved(padded, w["c"], 1), w["s"], 2)}
held = results("whole.plan", "held", 2)
for n, v in held.items():
    worst = np.abs(v - want[n]).max() / np.abs(want[n]).max()
    check(worst < 3e-6, f"{n}: off by {worst:.1e}")
for plan in "m.plan", "parts/m.plan":
    for threads in 1, 2, 3, 5:
        for n, v in results(plan, "out", threads).items():
            check(np.array_equal(v, held[n]), f"{n} of {plan} differs with {threads} threads")

data = open("m.weights", "rb").read()
places = {t.name: {p.key: p.value for p in t.external_data} for t in onnx.load("m.onnx", load_external_data=False).graph.initializer}
for n, place in places.items():
    for at in int(place["offset"]), int(place["offset"]) + int(place["length"]) - 1:
        with open("m.weights", "wb") as f: f.write(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
        p = forks.run([tool.graphc, "run", "m.plan", *given, "--output-dir", "bad", "--threads", "3"], timeout=100)
        check(p.returncode == 3 and f'"{n}"' in p.stderr, f"{n} with another byte at {at}: exit {p.returncode}\n{p.stderr}")
sys.exit(tool.bad != 0)
