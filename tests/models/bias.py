"""A bias by the distance of query and key lies as attention reads it, with queries side by side: bias.py GRAPHC

T5's spelling: rows of a small table by position, heads last, then permuted. In the kernels' text the load of the bias
moves by one along the queries; results are those of f64, at sizes that fill no vector and that fill several blocks."""
import os, re, sys
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper as nh

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tool import Tool

tool = Tool(sys.argv[1])
HEADS, DEPTH, ROWS = 3, 16, 40
rng = np.random.default_rng(5)
table = rng.standard_normal((ROWS, HEADS)).astype(np.float32)

n = h.make_node
nodes = [n("Gather", ["table", "at"], ["rows"]), n("Transpose", ["rows"], ["heads"], perm=[2, 0, 1]),
         n("Unsqueeze", ["heads", "first"], ["bias"]), n("MatMul", ["q", "k"], ["s"]), n("Add", ["s", "bias"], ["biased"]),
         n("Softmax", ["biased"], ["p"], axis=-1), n("MatMul", ["p", "v"], ["o"]),
         n("MatMul", ["q2", "k"], ["s2"]), n("Add", ["s2", "bias"], ["biased2"]),
         n("Softmax", ["biased2"], ["p2"], axis=-1), n("MatMul", ["p2", "v"], ["o2"])]
ins = [h.make_tensor_value_info(k, T.FLOAT, ["batch", HEADS, *d]) for k, d in
       (("q", ["seq", DEPTH]), ("q2", ["seq", DEPTH]), ("k", [DEPTH, "seq"]), ("v", ["seq", DEPTH]))]
ins.append(h.make_tensor_value_info("at", T.INT64, ["seq", "seq"]))
outs = [h.make_tensor_value_info(k, T.FLOAT, None) for k in ("o", "o2")]
g = h.make_graph(nodes, "g", ins, outs, [nh.from_array(table, "table"), nh.from_array(np.array([0]), "first")])
onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 18)], ir_version=9), "m.onnx")
tool.run("m.onnx", "-o", "m.plan", "--dump-ir", "ir")

kernels = re.findall(r"^kernel tem_\S*attention.*?^end", open("ir/post-fusion.kir").read(), re.S | re.M)
tool.check(len(kernels) == 2, f"{len(kernels)} kernels of attention, not 2")
for k in kernels:
    i, j = re.search(r"\bi (x\d+) j (x\d+)", k).groups()
    loads = [x for x in re.findall(r"load p\d+\[(.*?)\]", k) if i in x and j in x]
    tool.check(len(loads) == 1, f"the bias is not read from memory: {loads}")
    for x in loads:
        tool.check(i in x.split(" + "), f"queries of the bias do not lie side by side: {x}")

for batch, seq in ((1, 5), (2, 17), (1, 130)):
    feeds = {k: rng.standard_normal((batch, HEADS, *d)).astype(np.float32) for k, d in
             (("q", (seq, DEPTH)), ("q2", (seq, DEPTH)), ("k", (DEPTH, seq)), ("v", (seq, DEPTH)))}
    feeds["at"] = rng.integers(0, ROWS, (seq, seq))
    for k, v in feeds.items():
        np.save(f"{k}.npy", v)
    wide = {k: v.astype(np.float64) for k, v in feeds.items()}
    for isa in "34":
        fed = [a for k in feeds for a in ("--input", f"{k}={k}.npy")]
        tool.run("run", "m.plan", *fed, "--output-dir", "out", "--isa", isa)
        for q, o in (("q", "o"), ("q2", "o2")):
            s = np.exp(wide[q] @ wide["k"] + table[feeds["at"]].transpose(2, 0, 1))
            want = s / s.sum(-1, keepdims=True) @ wide["v"]
            worst = np.abs(np.load(f"out/{o}.npy") - want).max()
            tool.check(worst < 2e-5, f"{o} of {batch} x {seq}, level {isa}: off by {worst:.1e}")
sys.exit(tool.bad != 0)
