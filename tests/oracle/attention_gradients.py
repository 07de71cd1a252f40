#!/usr/bin/env python3
"""Gradients of attention in the spellings of exporters, by `graphc grad`, against numpy in f64.

    attention_gradients.py GRAPHC [--only REGEX]

Every case is an attention made of single operators, or ONNX's own, with masks, biases, shared heads, sizes that fill
no tile and sizes that the model leaves open. Checked: gradients of queries, keys, values and biases; that kernels
compute scores again where a case says so, so that nothing of their size is stored; the same bits for 1 and 3 threads.
"""
import os, re, subprocess, sys
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import forks
from tool import try_cases

TOLERANCE = 2e-5  # of the largest gradient
rng = np.random.default_rng(7)
cases = []


def case(name, b, heads, sq, sk, d, dv=None, kv_heads=None, mask=None, bias=None, op=False, open_sizes=False, kernels=3):
    """mask: causal, low (causal, by adding a large negative number), keys (some are left out), all (one query sees
    none). bias: full or by key. op: ONNX's Attention. kernels: gradients that compute scores again."""
    cases.append(dict(name=name, b=b, heads=heads, sq=sq, sk=sk, d=d, dv=dv or d, kv=kv_heads or heads, mask=mask,
                      bias=bias, op=op, open=open_sizes, kernels=kernels))


for size in (16, 24, 64, 80, 128, 256):
    case(f"head_{size}", 1, 2, 40, 40, size, mask="causal")
case("plain", 2, 3, 64, 64, 64)
case("ragged", 2, 3, 37, 53, 20, dv=28)
case("one_query", 2, 2, 1, 70, 32)
case("long", 1, 2, 300, 700, 16)
case("causal_long", 1, 2, 330, 330, 32, mask="causal")
case("cross", 2, 2, 19, 90, 32, mask="keys")
case("low", 2, 2, 50, 50, 32, mask="low")
case("grouped", 2, 8, 33, 33, 32, kv_heads=2, mask="causal")
case("bias", 2, 4, 30, 41, 32, bias="full")
case("key_bias", 2, 4, 30, 41, 32, bias="key")
case("sees_nothing", 1, 2, 20, 20, 32, mask="all", op=True)
case("operator", 2, 4, 35, 35, 48, mask="causal", op=True)
case("operator_grouped", 2, 4, 35, 35, 48, kv_heads=2, op=True)
case("open", 2, 2, 45, 45, 32, mask="causal", open_sizes=True)
case("open_cross", 1, 2, 5, 77, 32, open_sizes=True)


def masks(c):
    """What each query sees, and a constant that says so in the model."""
    i, j = np.ogrid[:c["sq"], :c["sk"]]
    see = np.broadcast_to(j <= i, (c["sq"], c["sk"])) if c["mask"] in ("causal", "low") else np.ones((c["sq"], c["sk"]), bool)
    if c["mask"] == "keys":
        see = np.broadcast_to(j % 7 != 3, see.shape)
    if c["mask"] == "all":
        see = np.broadcast_to((j <= i) & (i != 4), see.shape)
    return see


class Model:
    def __init__(self, c):
        self.c, self.nodes, self.constants, self.count = c, [], [], 0

    def op(self, kind, *inputs, **attrs):
        self.count += 1
        self.nodes.append(h.make_node(kind, list(inputs), [f"v{self.count}"], **attrs))
        return f"v{self.count}"

    def const(self, value, t=np.float32):
        self.count += 1
        self.constants.append(numpy_helper.from_array(np.array(value, t), f"c{self.count}"))
        return f"c{self.count}"

    def ints(self, *v):
        return self.const(v, np.int64)

    def repeat(self, x, d):
        c = self.c
        if c["kv"] == c["heads"]:
            return x
        group = c["heads"] // c["kv"]
        x = self.op("Unsqueeze", x, self.ints(2))
        x = self.op("Expand", x, self.ints(c["b"], c["kv"], group, c["sk"], d))
        return self.op("Reshape", x, self.ints(c["b"], c["heads"], c["sk"], d))

    def see(self):
        """Causal masks from positions, so that sizes may be open; others as constants."""
        c = self.c
        if c["mask"] not in ("causal", "low"):
            return self.const(masks(c), bool)
        zero, one = self.const(0, np.int64), self.const(1, np.int64)
        size = self.op("Gather", self.op("Shape", "q"), self.const(2, np.int64))
        at = self.op("Range", zero, size, one)
        return self.op("LessOrEqual", self.op("Unsqueeze", at, self.ints(0)), self.op("Unsqueeze", at, self.ints(1)))

    def spelled(self):
        c = self.c
        k, v = self.repeat("k", c["d"]), self.repeat("v", c["dv"])
        root = self.const(c["d"] ** -0.25)
        kt = self.op("Transpose", self.op("Mul", k, root), perm=[0, 1, 3, 2])
        s = self.op("MatMul", self.op("Mul", "q", root), kt)
        if c["bias"]:
            s = self.op("Add", s, "bias")
        if c["mask"] == "low":
            low, zero = self.const(np.finfo(np.float32).min), self.const(0)
            s = self.op("Add", s, self.op("Where", self.see(), zero, low))
        elif c["mask"]:
            s = self.op("Where", self.see(), s, self.const(-np.inf))
        return self.op("MatMul", self.op("Softmax", s, axis=-1), v)

    def operator(self):
        c = self.c
        ins = ["q", "k", "v"] + ([self.const(masks(c), bool)] if c["mask"] == "all" else [])
        return self.op("Attention", *ins, is_causal=int(c["mask"] == "causal"))

    def proto(self):
        c = self.c
        y = self.operator() if c["op"] else self.spelled()
        self.nodes.append(h.make_node("Identity", [y], ["y"]))
        sq, sk = ("sq", "sq" if c["sq"] == c["sk"] and c["mask"] else "sk") if c["open"] else (c["sq"], c["sk"])
        io = lambda name, *dims: h.make_tensor_value_info(name, T.FLOAT, dims)
        ins = [io("q", c["b"], c["heads"], sq, c["d"]), io("k", c["b"], c["kv"], sk, c["d"]),
               io("v", c["b"], c["kv"], sk, c["dv"])]
        if c["bias"]:
            ins.append(io("bias", *bias_shape(c)))
        graph = h.make_graph(self.nodes, "g", ins, [io("y", c["b"], c["heads"], sq, c["dv"])], self.constants)
        return h.make_model(graph, opset_imports=[h.make_opsetid("", 23)], ir_version=10)


def bias_shape(c):
    return (1, c["heads"], c["sq"], c["sk"]) if c["bias"] == "full" else (c["b"], 1, 1, c["sk"])


def summed_to(x, shape):
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and x.shape[i] != 1)
    return x.sum(axes, keepdims=True)


def expected(c, x, dy):
    q, k, v = (x[n].astype(np.float64) for n in "qkv")
    group = c["heads"] // c["kv"]
    k, v = k.repeat(group, 1), v.repeat(group, 1)
    scale = c["d"] ** -0.5
    s = scale * q @ k.swapaxes(2, 3)
    if c["bias"]:
        s = s + x["bias"]
    s = np.where(masks(c), s, -np.inf)
    top = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isinf(top), 0, top))
    total = e.sum(-1, keepdims=True)
    p = e / np.where(total == 0, 1, total)
    dp = dy @ v.swapaxes(2, 3)
    ds = p * (dp - (dy * (p @ v)).sum(-1, keepdims=True))
    shared = lambda g: g.reshape(c["b"], c["kv"], group, *g.shape[2:]).sum(2)
    want = {"q": scale * ds @ k, "k": shared(scale * ds.swapaxes(2, 3) @ q), "v": shared(p.swapaxes(2, 3) @ dy)}
    if c["bias"]:
        want["bias"] = summed_to(ds, bias_shape(c))
    return want


def gradients(graphc, files, names, threads, out):
    args = [graphc, "grad", "m.onnx", "--loss", "y", "--wrt", ",".join(names), "--cotangent", "dy.npy", "--output-dir", out,
            "--threads", str(threads), *(["--dump-ir", "ir"] if threads == 1 else [])]
    for n in names:
        args += ["--input", f"{n}={n}.npy"]
    p = forks.run(args)
    if p.returncode:
        return p.stderr.strip()[:600]
    return {n: np.load(os.path.join(out, f"{n}.npy")) for n in names}


def check(graphc, c):
    names = ["q", "k", "v"] + (["bias"] if c["bias"] else [])
    shape = {"q": (c["b"], c["heads"], c["sq"], c["d"]), "k": (c["b"], c["kv"], c["sk"], c["d"]),
             "v": (c["b"], c["kv"], c["sk"], c["dv"]), "bias": bias_shape(c)}
    x = {n: rng.standard_normal(shape[n]).astype(np.float32) for n in names}
    dy = rng.standard_normal((c["b"], c["heads"], c["sq"], c["dv"])).astype(np.float32)
    onnx.save(Model(c).proto(), "m.onnx")
    np.save("dy.npy", dy)
    for n in names:
        np.save(f"{n}.npy", x[n])
    got = [gradients(graphc, x, names, threads, f"out{threads}") for threads in (1, 3)]
    for g in got:
        if isinstance(g, str):
            return g
    want, bad = expected(c, x, dy), []
    for n in names:
        error = np.abs(got[0][n] - want[n]).max() / np.abs(want[n]).max()
        if not error <= TOLERANCE:
            bad.append(f"{n}: error {error:.2g}")
        if got[0][n].tobytes() != got[1][n].tobytes():
            bad.append(f"{n}: other bits with 3 threads")
    kernels = len(re.findall(r"^kernel .*tem attention_gradient", open("ir/post-fusion.kir").read(), re.M))
    if kernels != c["kernels"]:
        bad.append(f"{kernels} kernels compute scores again, not {c['kernels']}")
    return "; ".join(bad)


graphc = os.path.abspath(sys.argv[1])
only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
try_cases([(c["name"], c) for c in cases if re.search(only, c["name"])], lambda c: check(graphc, c), "attentions have right gradients")
