"""Weights are asked for ahead of their use where several tiles of rows share them, and so are rows and lines of results:
ahead.py GRAPHC

Looks for prefetches in the code by the names of their addresses (panel: what lies behind the panel; near: its next
rows; rows: the left operand's of the next tile; result: lines of the epilogue), for AVX2 and for AVX-512, of products by constant and by fed operands, of one tile of
rows, of more and of very many, known and open, by weights that stay in a cache and that do not, and of a convolution in
Winograd's form; and results are those of f64. AVX2 code of several tiles goes slice by slice, whose lines and rows are near by themselves: it asks for what lies behind
the slice alone."""
import glob, os, re, sys
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper as nh

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tool import Tool

tool = Tool(sys.argv[1])
run = tool.run
rng = np.random.default_rng(3)


def code_asks(name, slices, **asks):
    codes = {f: open(f).read() for f in glob.glob(f"{name}/tem_*.ll")}
    tool.check(any(f.endswith(".v3.ll") for f in codes), f"{name}: no code for AVX2")
    for f, code in codes.items():
        if f.endswith(".amx.ll"):
            tool.check("@llvm.prefetch" in code, f"{f}: nothing is asked for")
            continue
        nothing_else = {what: False for what in asks if what != "panel"} if slices and f.endswith(".v3.ll") else {}
        for what, wanted in {**asks, **nothing_else}.items():
            found = re.search(rf"%{what}\d* = getelementptr", code) is not None
            tool.check(found == wanted, f"{f}: {what} is {'not ' * wanted}asked for")


def convolution(name, batch):
    """Of a map of 7 x 7, 16 tiles, by weights that no cache holds; beside its sum of taps."""
    x = rng.standard_normal((2, 192, 7, 7)).astype(np.float32)
    w = rng.standard_normal((192, 192, 3, 3)).astype(np.float32)
    ins = [h.make_tensor_value_info("x", T.FLOAT, [batch, 192, 7, 7])]
    g = h.make_graph([h.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])], "g", ins,
                     [h.make_tensor_value_info("y", T.FLOAT, None)], [nh.from_array(w, "w")])
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 18)], ir_version=9), "m.onnx")
    run("m.onnx", "-o", "m.plan", "--dump-ir", name)
    tool.check(glob.glob(f"{name}/tem_*winograd*.ll"), f"{name}: no Winograd form")
    code_asks(name, True, panel=True, rows=False, result=False)
    np.save("x.npy", x)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    taps = [(w[:, :, i, j].astype(np.float64), padded[:, :, i:i + 7, j:j + 7]) for i in range(3) for j in range(3)]
    want = sum(np.einsum("oc,bchw->bohw", *tap) for tap in taps)
    for isa in "34":
        run("run", "m.plan", "--input", "x=x.npy", "--output-dir", "out", "--isa", isa)
        worst = np.abs(np.load("out/y.npy") - want).max()
        tool.check(worst < 1e-3, f"{name}, level {isa}: off by {worst:.1e}")


def product(name, m, is_open, constant, asks, *options, large=True, **more):
    """m: rows at run time, of which the compiler knows at most that they are up to 200 if `is_open`."""
    k, n = 300, 1200 if large else 200
    x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    ins = [h.make_tensor_value_info("x", T.FLOAT, ["rows" if is_open else m, k])]
    if not constant:
        ins.append(h.make_tensor_value_info("w", T.FLOAT, [k, n]))
    g = h.make_graph([h.make_node("MatMul", ["x", "w"], ["y"])], "g", ins, [h.make_tensor_value_info("y", T.FLOAT, None)],
                     [nh.from_array(w, "w")] if constant else [])
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 18)], ir_version=9), "m.onnx")
    run("m.onnx", "-o", "m.plan", "--dump-ir", name, *options)
    code_asks(name, m > 8 or is_open, **{"panel": asks, "rows": m > 8 or is_open, "result": True, **more})
    np.save("x.npy", x), np.save("w.npy", w)
    for isa in "34":
        fed = [] if constant else ["--input", "w=w.npy"]
        run("run", "m.plan", "--input", "x=x.npy", *fed, "--output-dir", "out", "--isa", isa)
        worst = np.abs(np.load("out/y.npy") - x.astype(np.float64) @ w).max()
        tool.check(worst < (0.5 if options else 1e-4), f"{name}, level {isa}: off by {worst:.1e}")


for rows in (17, 64, 150):
    product(f"tiles{rows}", rows, False, True, True, near=True)
    product(f"open{rows}", rows, True, True, True)
product("open5", 5, True, True, True)
product("long", 6000, False, True, True, near=False)
product("bf16", 64, False, True, True, "--precision", "bf16", rows=False)
product("one", 8, False, True, False)
product("many", 8192, False, True, False)
product("small", 64, False, True, False, large=False)
convolution("map", 2)
convolution("open_map", "batch")
product("fed", 64, False, False, False)
sys.exit(tool.bad != 0)
