#!/usr/bin/env python3
"""Gradients of single operators by `graphc grad` beside PyTorch's autograd: masks, rows that are constant or hold -inf,
ignored labels, indices twice and from the back, borders, sampling.

    operator_gradients.py GRAPHC [--only REGEX]

Needs torch, here or in $GRAPHC_TORCH. The slopes of functions of one number are point_gradients.py's.
"""
import os, re, sys
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import beside_torch
beside_torch.go_on(("numpy", "onnx", "torch"))
import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import helper as h, numpy_helper
import forks
from tool import try_cases

TOLERANCE = 5e-5  # of an operand's largest gradient
INF = float("inf")
rng = np.random.default_rng(7)
cases = []


class Model:
    def __init__(self):
        self.nodes, self.constants = [], []

    def op(self, kind, *inputs, n=1, **attrs):
        outs = [f"v{len(self.nodes)}_{i}" for i in range(n)]
        self.nodes.append(h.make_node(kind, list(inputs), outs, **attrs))
        return outs[0] if n == 1 else outs

    def const(self, value, t=np.float32):
        self.constants.append(numpy_helper.from_array(np.array(value, t), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def ints(self, *v):
        return self.const(v, np.int64)


def case(name, build, autograd, **x):
    """build: of a Model, whose inputs have x's names; autograd: the same of tensors by name."""
    cases.append((name, build, autograd, {k: np.asarray(v) for k, v in x.items()}))


def real(*shape):
    return rng.standard_normal(shape).astype(np.float32)


# ---- Rows: -inf, constant, zeros ----
holes = real(3, 6)
holes[1] = -INF
holes[2, :3] = -INF
flat = real(3, 8)
flat[1], flat[2] = 2, 0
case("softmax_row_of_inf", lambda m: m.op("Softmax", "x"), lambda x: torch.softmax(x, -1), x=holes)
case("log_softmax", lambda m: m.op("LogSoftmax", "x"), lambda x: torch.log_softmax(x, -1), x=holes[[0, 2]])
case("logsumexp", lambda m: m.op("ReduceLogSumExp", "x", m.ints(1), keepdims=0), lambda x: torch.logsumexp(x, 1), x=holes)
case("layer_norm", lambda m: m.op("LayerNormalization", "x", "s", "b", epsilon=1e-12),
     lambda x, s, b: F.layer_norm(x, (8,), s, b, 1e-12), x=flat, s=real(8), b=real(8))
case("rms_norm", lambda m: m.op("RMSNormalization", "x", "s", epsilon=1e-12), lambda x, s: F.rms_norm(x, (8,), s, 1e-12),
     x=flat, s=real(8))
planes = real(2, 4, 3, 5)
planes[0, 1], planes[1, 2] = 2, 0
per_channel = dict(x=planes, s=real(4), b=real(4))
case("group_norm", lambda m: m.op("GroupNormalization", "x", "s", "b", num_groups=2),
     lambda x, s, b: F.group_norm(x, 2, s, b), **per_channel)
case("instance_norm", lambda m: m.op("InstanceNormalization", "x", "s", "b"),
     lambda x, s, b: F.instance_norm(x, weight=s, bias=b), **per_channel)
case("batch_norm", lambda m: m.op("BatchNormalization", "x", "s", "b", m.const(np.zeros(4)), m.const(np.ones(4)), n=3,
                                  training_mode=1)[0], lambda x, s, b: F.batch_norm(x, None, None, s, b, True), **per_channel)
zeros = real(4, 5)
zeros[0, 1] = zeros[1, 1] = zeros[1, 2] = 0
case("product_with_zeros", lambda m: m.op("ReduceProd", "x", m.ints(1), keepdims=0), lambda x: x.prod(1), x=zeros)

# ---- Losses ----
some, ignored = np.array([0, 3, -100, 2, -100]), np.full(5, -100)
for reduction in ("mean", "sum", "none"):
    for labels in (some, ignored):
        case(f"cross_entropy_{reduction}_{(labels >= 0).sum()}",
             lambda m, r=reduction: m.op("SoftmaxCrossEntropyLoss", "x", "t", m.const([.5, 1, 2, 0]), reduction=r, ignore_index=-100),
             lambda x, t, r=reduction: F.cross_entropy(x, t, torch.tensor([.5, 1, 2, 0]), reduction=r), x=real(5, 4), t=labels)

# ---- Indices ----
twice = np.array([0, -1, 3, 3, -4, 2])
case("gather", lambda m: m.op("Gather", "x", "i"), lambda x, i: x[i], x=real(4, 3), i=twice)
places = np.array([[0, 0], [1, 2], [0, 0], [3, -1], [-4, 0]])
case("scatter_nd_add", lambda m: m.op("ScatterND", "x", "i", "u", reduction="add"),
     lambda x, i, u: x.index_put((i[:, 0], i[:, 1]), u, accumulate=True), x=real(4, 3, 2), i=places, u=real(5, 2))
for onnx_name, torch_name in (("add", "sum"), ("mul", "prod"), ("max", "amax"), ("min", "amin")):
    case(f"scatter_elements_{onnx_name}", lambda m, r=onnx_name: m.op("ScatterElements", "x", "i", "u", reduction=r),
         lambda x, i, u, r=torch_name: x.scatter_reduce(0, i, u, r), x=np.round(real(4, 3)),
         i=np.array([[0, 1, 2], [0, 1, 1], [3, 3, 2]]), u=np.round(real(3, 3)))

# ---- Borders and sampling ----
for onnx_name, torch_name in (("reflect", "reflect"), ("edge", "replicate"), ("wrap", "circular")):
    case(f"pad_{onnx_name}", lambda m, mode=onnx_name: m.op("Pad", "x", m.ints(0, 0, 2, 1, 0, 0, 1, 2), mode=mode),
         lambda x, mode=torch_name: F.pad(x, (1, 2, 2, 1), mode), x=real(1, 2, 5, 4))
for onnx_name, torch_name, more in (("linear", "bilinear", {}), ("cubic", "bicubic", {"cubic_coeff_a": -0.75})):
    for size in ((9, 7), (3, 2)):
        case(f"resize_{onnx_name}_{size[0]}", lambda m, mode=onnx_name, size=size, more=more: m.op(
            "Resize", "x", "", "", m.ints(1, 2, *size), mode=mode, coordinate_transformation_mode="pytorch_half_pixel", **more),
             lambda x, mode=torch_name, size=size: F.interpolate(x, size, mode=mode), x=real(1, 2, 5, 4))
    for border in ("zeros", "border", "reflection"):
        case(f"grid_sample_{onnx_name}_{border}",
             lambda m, mode=onnx_name, b=border: m.op("GridSample", "x", "g", mode=mode, padding_mode=b),
             lambda x, g, mode=torch_name, b=border: F.grid_sample(x, g, mode, b, False), x=real(2, 3, 5, 4), g=real(2, 3, 6, 2))

# ---- Contractions ----
for equation, *shapes in (("ii->i", (4, 4)), ("ii", (4, 4)), ("ij,ij->i", (3, 4), (3, 4)), ("ii,ij", (3, 3), (3, 4)),
                          ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)), ("ijk,jl,km->ilm", (2, 3, 4), (3, 2), (4, 3))):
    x = {n: real(*shape) for n, shape in zip("abc", shapes)}
    case(f"einsum_{equation}", lambda m, e=equation, n=len(x): m.op("Einsum", *"abc"[:n], equation=e),
         lambda e=equation, **x: torch.einsum(e, *x.values()), **x)
heads = {n: real(2, 2, 7, 8) for n in "qkv"}
seen = rng.random((7, 7)) < 0.6
seen[:, 0] = True
nothing = seen.copy()
nothing[3] = False
for name, mask in (("some", seen), ("nothing", nothing)):
    case(f"attention_sees_{name}", lambda m: m.op("Attention", "q", "k", "v", "mask"),
         lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask), **heads, mask=mask)


def gradients(graphc, build, x, dy, wrt):
    m = Model()
    m.nodes.append(h.make_node("Identity", [build(m)], ["y"]))
    value = lambda name, a: h.make_tensor_value_info(name, h.np_dtype_to_tensor_dtype(a.dtype), a.shape)
    graph = h.make_graph(m.nodes, "g", [value(k, v) for k, v in x.items()], [value("y", dy)], m.constants)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 23)], ir_version=10), "m.onnx")
    np.save("dy.npy", dy)
    args = [graphc, "grad", "m.onnx", "--loss", "y", "--wrt", ",".join(wrt), "--cotangent", "dy.npy", "--output-dir", "out"]
    for k, v in x.items():
        np.save(f"{k}.npy", v)
        args += ["--input", f"{k}={k}.npy"]
    p = forks.run(args)
    return p.stderr.strip()[:300] if p.returncode else {k: np.load(f"out/{k}.npy") for k in wrt}


def check(graphc, build, autograd, x):
    wrt = [k for k, v in x.items() if v.dtype.kind == "f"]
    at = {k: torch.tensor(v, requires_grad=k in wrt) for k, v in x.items()}
    y = autograd(**at)
    dy = np.asarray(rng.standard_normal(tuple(y.shape)), np.float32)
    want = torch.autograd.grad(y, [at[k] for k in wrt], torch.tensor(dy))
    got = gradients(graphc, build, x, dy, wrt)
    if isinstance(got, str):
        return [got]
    bad = []
    for k, w in zip(wrt, (w.numpy() for w in want)):
        largest = np.nanmax(np.abs(w), initial=0)
        near = (np.abs(got[k] - w) <= TOLERANCE * largest) | (np.isnan(got[k]) & np.isnan(w))
        if not near.all():
            bad.append(f"{k}: {(~near).sum()} of {near.size}, as {got[k][~near][0]:.6g} instead of {w[~near][0]:.6g}")
    return bad


only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
graphc = os.path.abspath(sys.argv[1])
try_cases([c for c in cases if re.search(only, c[0])], lambda *rest: check(graphc, *rest), "operators have PyTorch's gradients")
