"""Weights of few bits keep their bits in memory: few_bits.py GRAPHC

MatMulNBits of 2, 4 and 8 bits, blocks of 16 to 256, with zero points and without: what a plan prepares at load is no larger than
its words, scales and zero points in panels; results are those of the formula in f64; a row's bits do not depend on how many
rows stand beside it, though one tile of rows expands weights in registers and more rows a panel in scratch."""
import json, os, sys
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper as nh

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tool import Tool

tool = Tool(sys.argv[1])
check, run = tool.check, tool.run
rng = np.random.default_rng(3)


def unpack(x, bits, count):
    """The last axis' bytes as values, lowest bits first."""
    parts = np.stack([x >> (bits * i) & ((1 << bits) - 1) for i in range(8 // bits)], -1)
    return parts.reshape(*x.shape[:-1], -1)[..., :count].astype(np.float64)


def one(bits, block, k, n, zeros):
    what = f"{bits} bits, blocks of {block}, {k} x {n}, {'with' if zeros else 'without'} zero points"
    blocks = -(-k // block)
    q = rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    scale = rng.random((n, blocks)).astype(np.float32)
    z = rng.integers(0, 256, (n, (blocks * bits + 7) // 8)).astype(np.uint8)
    names = ["x", "q", "scale", *["z"] * zeros]
    node = h.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", bits=bits, block_size=block, K=k, N=n)
    consts = [nh.from_array(q, "q"), nh.from_array(scale.ravel(), "scale"), *[nh.from_array(z.ravel(), "z")] * zeros]
    g = h.make_graph([node], "g", [h.make_tensor_value_info("x", T.FLOAT, ["rows", k])],
                     [h.make_tensor_value_info("y", T.FLOAT, ["rows", n])], consts)
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 21), h.make_opsetid("com.microsoft", 1)], ir_version=10), "m.onnx")
    run("m.onnx", "-o", "m.plan")
    panels = -(-n // 48) * 48
    most = panels * blocks * (block * bits // 8 + 4 + zeros * (4 if bits == 8 else 1))  # bytes may be cast while they are constants
    held = json.loads(run("inspect", "m.plan", "--json"))["targets"][0]["memory"]["prepared"]
    check(held <= most + 64, f"{what}: {held} bytes prepared, at most {most} wanted")
    w = unpack(q, bits, block).reshape(n, blocks, block)
    w = (w - (unpack(z, bits, blocks)[..., None] if zeros else 1 << (bits - 1))) * scale[..., None].astype(np.float64)
    w = w.reshape(n, -1)[:, :k].T
    x = rng.standard_normal((21, k)).astype(np.float32)
    got = {}
    for rows in (1, 8, 21):
        np.save("x.npy", x[:rows])
        for isa in ("3", "4") if bits == 4 and block < 64 else ("4",):
            run("run", "m.plan", "--isa", isa, "--input", "x=x.npy", "--output-dir", "out")
            y = got[rows, isa] = np.load("out/y.npy")
            want = x[:rows].astype(np.float64) @ w
            size = np.abs(x[:rows].astype(np.float64)) @ np.abs(w)
            check((np.abs(y - want) <= 2e-6 * size).all(), f"{what}: {rows} rows are off by {np.abs((y - want) / size).max():.1e}")
            check((y[0] == got[1, isa][0]).all(), f"{what}: the first of {rows} rows has other bits than alone")


for block in (16, 32, 64, 128, 256):
    one(4, block, 2 * block + 8, 97, block > 32)
one(4, 32, 333, 20, 1)
one(8, 32, 96, 48, 1)
one(2, 64, 192, 64, 0)
sys.exit(tool.bad != 0)
