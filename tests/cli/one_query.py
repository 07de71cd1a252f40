"""Attention of a single query, as decoding has it, is taken by the template: one_query.py GRAPHC

Over a cache of keys and values, of known and of open length, in f32 and in f16, with a mask, scaled keys and heads that share them:
the loops of the template stand in the kernel's code, no keys are copied, and results are those of the formula in f64."""
import glob, os, sys
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper as nh

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tool import Tool

tool = Tool(sys.argv[1])
check, run = tool.check, tool.run
rng = np.random.default_rng(2)


for name, batch, keys, length, kind in [("known", 1, 77, 77, np.float32), ("open", 1, 130, "keys", np.float32),
                                        ("batch", 3, 33, "keys", np.float32), ("half", 2, 300, "keys", np.float16)]:
    heads, size = 4, 32
    q, m = [rng.standard_normal(s).astype(np.float32) for s in ((batch, heads, 1, size), (batch, 1, 1, keys))]
    k, v = [rng.standard_normal((batch, heads, keys, size)).astype(kind) for _ in "kv"]
    nodes = [h.make_node("Cast", [x], [x + "w"], to=T.FLOAT) for x in "kv"]
    nodes += [h.make_node("Mul", ["q", "c"], ["qs"]), h.make_node("Mul", ["kw", "c"], ["ks"]),
             h.make_node("Transpose", ["ks"], ["kt"], perm=[0, 1, 3, 2]), h.make_node("MatMul", ["qs", "kt"], ["s"]),
             h.make_node("Add", ["s", "m"], ["t"]), h.make_node("Softmax", ["t"], ["p"], axis=-1),
             h.make_node("MatMul", ["p", "vw"], ["y"])]
    types = {"q": q.shape, "k": (batch, heads, length, size), "v": (batch, heads, length, size), "m": (batch, 1, 1, length)}
    g = h.make_graph(nodes, "g", [h.make_tensor_value_info(n, h.np_dtype_to_tensor_dtype(np.dtype(kind if n in "kv" else np.float32)), s)
                                 for n, s in types.items()],
                     [h.make_tensor_value_info("y", T.FLOAT, q.shape)], [nh.from_array(np.float32(size ** -0.25), "c")])
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 18)], ir_version=9), "m.onnx")
    run("m.onnx", "-o", "m.plan", "--dump-ir", name)
    code = "".join(open(f).read() for f in glob.glob(f"{name}/tem_*attention*.ll"))
    check("scores" in code and "query" in code, f"{name}: the template did not take it")
    check("copy" not in code, f"{name}: keys or values are copied")
    inputs = []
    for n, x in (("q", q), ("k", k), ("v", v), ("m", m)):
        np.save(f"{n}.npy", x)
        inputs += ["--input", f"{n}={n}.npy"]
    run("run", "m.plan", *inputs, "--output-dir", "out")
    k, v = k.astype(np.float64), v.astype(np.float64)
    s = q.astype(np.float64) @ k.transpose(0, 1, 3, 2) * size ** -0.5 + m
    p = np.exp(s - s.max(-1, keepdims=True))
    want = (p / p.sum(-1, keepdims=True)) @ v
    worst = np.abs(np.load("out/y.npy") - want).max()
    check(worst < 3e-6, f"{name}: off by {worst:.1e}")
sys.exit(tool.bad != 0)
