"""What is joined of pieces on the CPU: joined.py GRAPHC

Pieces in memory beside computed ones, of known, open and no length, of rows that fill vectors and that do not: the values of
numpy, and code of their own for the pieces, so that what one costs is not paid by the elements of the others (for all of a
cache of keys the rotation of the newest was computed)."""
import glob, os, sys
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tool import Tool

tool = Tool(sys.argv[1])
rng = np.random.default_rng(4)


def model(heads, width, computed):
    """y = the parts side by side along the third axis, of which those that `computed` says are a * b + b."""
    values, nodes, parts = [], [], []
    for i, c in enumerate(computed):
        shape = ["batch", heads, f"n{i}", width]
        values += [h.make_tensor_value_info(n, T.FLOAT, shape) for n in ([f"a{i}", f"b{i}"] if c else [f"a{i}"])]
        if c:
            nodes += [h.make_node("Mul", [f"a{i}", f"b{i}"], [f"m{i}"]), h.make_node("Add", [f"m{i}", f"b{i}"], [f"p{i}"])]
        parts.append(f"p{i}" if c else f"a{i}")
    nodes.append(h.make_node("Concat", parts, ["y"], axis=2))
    out = h.make_tensor_value_info("y", T.FLOAT, ["batch", heads, "total", width])
    onnx.save(h.make_model(h.make_graph(nodes, "g", values, [out]), opset_imports=[h.make_opsetid("", 18)], ir_version=9), "m.onnx")


def case(heads, width, computed, batch, lengths):
    name = f"{heads}x{width} {computed} {batch} {lengths}"
    model(heads, width, computed)
    lengths_open = [x for i in range(len(computed)) for x in ("--dim", f"n{i}=0..99")]
    tool.run("m.onnx", "-o", "m.plan", "--dump-ir", "ir", *lengths_open)
    stores = [open(f).read().count("store <") for f in glob.glob("ir/poi_*concat*.ll") if ".v3." not in f]
    tool.check(stores and max(stores) >= len(computed), f"{name}: {stores} stores: the pieces have no code of their own")
    args, want = [], []
    for i, (c, n) in enumerate(zip(computed, lengths)):
        a, b = rng.standard_normal((2, batch, heads, n, width)).astype(np.float32)
        for k, x in ("a", a), ("b", b):
            np.save(f"{k}{i}.npy", x)
            args += ["--input", f"{k}{i}={k}{i}.npy"] if k == "a" or c else []
        want.append(a * b + b if c else a)
    for isa in "34":
        tool.run("run", "m.plan", *args, "--isa", isa, "--output-dir", "out")
        worst = np.abs(np.load("out/y.npy") - np.concatenate(want, 2)).max()
        tool.check(worst < 1e-6, f"{name}, --isa {isa}: off by {worst:.1e}")


for computed, lengths in [((0, 1), (9, 2)), ((0, 1), (0, 3)), ((1, 0), (5, 4)), ((0, 1, 0), (3, 1, 8)), ((1, 0, 1, 0), (2, 6, 0, 1))]:
    case(3, 64, computed, 2, lengths)
    case(1, 21, computed, 3, lengths)
sys.exit(tool.bad != 0)
