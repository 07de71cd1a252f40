#!/usr/bin/env python3
"""Slopes at single points by `graphc grad`: far out, at 0, at ties, where a formula's parts are infinite or equal.

    point_gradients.py GRAPHC

Each case has its slopes written out, as formulas in f64: PyTorch's, also where there is no derivative. A Python that
has torch checks them beside its autograd, too.
"""
import importlib.util, os, sys
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import beside_torch
beside_torch.go_on(("numpy", "onnx", "torch"), needed=False)
import forks
from tool import try_cases

torch = importlib.util.find_spec("torch") and __import__("torch")
RELATIVE, ABSOLUTE = 1e-5, 1.2e-7  # of each slope; a rounding of 1, as in y (1 - y)
FAR = np.array([-1e30, -100, -20, -1, -1e-20, -0.0, 0, 1e-20, 1, 20, 100, 1e30])
cases = []


def case(name, x, want, autograd, kind, *constants, opset=22, **attrs):
    """The operator `kind` of x and constants; want: of x in f64; autograd: what torch differentiates."""
    cases.append((name, np.asarray(x), want, autograd, kind, constants, opset, attrs))


def low(f, slope=1.0):
    """`slope` above 0; f of what is not."""
    return lambda x: np.where(x <= 0, f(np.minimum(x, 0)), slope)


def sigmoid(x):
    return np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x)))


def between(a, b):
    return lambda x: np.where((x > a) & (x < b), 1.0, 0.0)


def functional(name, *args, **kwargs):
    return lambda x: getattr(torch.nn.functional, name)(x, *args, **kwargs)


def torch_of(name, *args, **kwargs):
    return lambda x: getattr(torch, name)(x, *args, **kwargs)


def vector_norm(p):
    return lambda x: torch.linalg.vector_norm(x, p, 1)


ALPHA, SCALE = 1.67326319217681884765625, 1.05070102214813232421875
case("relu", FAR, between(0, np.inf), functional("relu"), "Relu")
case("leaky_relu", FAR, low(lambda x: 0.1), functional("leaky_relu", 0.1), "LeakyRelu", alpha=0.1)
case("prelu", FAR, low(lambda x: 0.25), lambda x: torch.prelu(x, torch.tensor([0.25], dtype=x.dtype)), "PRelu", [0.25])
case("elu", FAR, low(lambda x: 1.5 * np.exp(x)), functional("elu", 1.5), "Elu", alpha=1.5)
case("selu", FAR, low(lambda x: ALPHA * SCALE * np.exp(x), SCALE), functional("selu"), "Selu")
case("celu", FAR, low(lambda x: np.exp(x / 1.5)), functional("celu", 1.5), "Celu", alpha=1.5)
case("celu_steep", FAR, low(lambda x: np.exp(x / 0.5)), functional("celu", 0.5), "Celu", alpha=0.5)
case("softplus", FAR, sigmoid, functional("softplus"), "Softplus")
case("softsign", FAR, lambda x: 1 / (1 + np.abs(x)) ** 2, functional("softsign"), "Softsign")
case("sigmoid", FAR, lambda x: sigmoid(x) * sigmoid(-x), torch_of("sigmoid"), "Sigmoid")
case("tanh", [-100, -1, 0, 1, 100], lambda x: 1 - np.tanh(x) ** 2, torch_of("tanh"), "Tanh")
case("mish", [-100, -1e-20, 0, 1e-20, 100], lambda x: np.select([x < -9, x > 9], [0 * x, 0 * x + 1], 0.6), functional("mish"),
     "Mish")
case("hard_sigmoid", [-1e30, -3, 0, 3, 1e30], lambda x: between(-3, 3)(x) / 6, functional("hardsigmoid"), "HardSigmoid",
     alpha=1 / 6, beta=0.5)
case("hard_swish", [-1e30, -3, 0, 3, 1e30], lambda x: np.select([x <= -3, x < 3], [0 * x, x / 3 + 0.5], 1),
     functional("hardswish"), "HardSwish")
case("thresholded", [-1e30, 0, 1, 2, 1e30], between(1, np.inf), functional("threshold", 1.0, 0.0), "ThresholdedRelu", alpha=1.0)
case("softshrink", [-1e30, -0.5, 0, 0.5, 1e30], lambda x: 1 - (np.abs(x) <= 0.5), functional("softshrink", 0.5), "Shrink",
     lambd=0.5, bias=0.5)
case("clip", FAR, between(-1, 1), lambda x: torch.clamp(x, -1, 1), "Clip", -1, 1)
case("abs", FAR, np.sign, torch_of("abs"), "Abs")
case("sign", FAR, lambda x: 0 * np.sign(x), torch_of("sign"), "Sign")
case("sqrt", [0, 1e-20, 1, 1e30], lambda x: 0.5 / np.sqrt(x), torch_of("sqrt"), "Sqrt")
case("pow_0", [-1, 0, 1], lambda x: 0 * x, lambda x: x ** 0.0, "Pow", 0)
case("pow_half", [0, 1, 4], lambda x: 0.5 / np.sqrt(x), lambda x: x ** 0.5, "Pow", 0.5)
case("norm_of_one", [[-2], [0], [3]], np.sign, vector_norm(2), "ReduceL2", [1], keepdims=0)
case("norm_of_all", [[0]], np.sign, lambda x: torch.linalg.vector_norm(x, 2, (0, 1)), "ReduceL2", keepdims=0)
case("norm", [[0, 0], [3, 4]], lambda x: x / 5, vector_norm(2), "ReduceL2", [1], keepdims=0)
case("deviation", [[2, 2], [3, 5]], lambda x: np.array([[0, 0], [-0.5, 0.5]]), torch_of("std", 1, unbiased=False), "Deviation")
case("norm_pool", [[[0, 0, 3, 4]]], lambda x: x / 5, functional("lp_pool1d", 2, 2), "LpPool", kernel_shape=[2], strides=[2])
case("sizes", [[0, -1], [2, 0]], np.sign, vector_norm(1), "ReduceL1", [1], keepdims=0)
case("max_of_ties", [[1, 1, 0], [2, 3, 3]], lambda x: (x == x.max(1, keepdims=True)) / 2, lambda x: torch.amax(x, 1),
     "ReduceMax", [1], keepdims=0)
case("max_pool_of_ties", [[[[0, 0, 0], [0, 0, 0], [1, 1, 0]]]], lambda x: np.array([[1, 1, 0], [0, 0, 0], [1, 1, 0]]),
     functional("max_pool2d", 2, 1), "MaxPool", kernel_shape=[2, 2])
case("max_pool_padded", np.zeros((1, 1, 2, 5)), lambda x: np.array([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0]]),
     functional("max_pool2d", (2, 3), (2, 2), (0, 1)), "MaxPool", kernel_shape=[2, 3], strides=[2, 2], pads=[0, 1, 0, 1])


def deviation():
    """The spelling of exporters, over axis 1."""
    axes = h.make_node("Constant", [], ["axes"], value_ints=[1])
    steps = [("ReduceMean", ["x", "axes"], "mean"), ("Sub", ["x", "mean"], "d"), ("Mul", ["d", "d"], "s"),
             ("ReduceMean", ["s", "axes"], "v"), ("Sqrt", ["v"], "y")]
    return [axes, *(h.make_node(kind, ins, [out]) for kind, ins, out in steps)]


def model(x, kind, constants, opset, attrs):
    whole = kind.startswith("Reduce")
    consts = [numpy_helper.from_array(np.array(c, np.int64 if whole else np.float32), f"c{i}") for i, c in enumerate(constants)]
    node = h.make_node(kind, ["x", *(c.name for c in consts)], ["y"], **attrs)
    nodes = deviation() if kind == "Deviation" else [node]
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, x.shape)],
                         [h.make_tensor_value_info("y", T.FLOAT, None)], consts)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=10), "m.onnx")


def differ(got, want):
    with np.errstate(invalid="ignore"):
        near = (got == want) | (np.abs(got - want) <= RELATIVE * np.abs(want) + ABSOLUTE)
    return [f"{g:.6g}, not {w:.6g}" for g, w in zip(got[~near].ravel(), want[~near].ravel())]


def by_autograd(f, x):
    at = torch.tensor(x, requires_grad=True)
    return torch.autograd.grad(f(at).sum(), at)[0].double().numpy()


def check(graphc, x, want, autograd, kind, constants, opset, attrs):
    x = x.astype(np.float32)
    model(x, kind, constants, opset, attrs)
    np.save("x.npy", x)
    p = forks.run([graphc, "grad", "m.onnx", "--loss", "y", "--wrt", "x", "--input", "x=x.npy", "--output-dir", "out"])
    if p.returncode:
        return [p.stderr.strip()]
    with np.errstate(all="ignore"):
        want = np.broadcast_to(want(x.astype(np.float64)), x.shape)
    bad = differ(np.load("out/x.npy").astype(np.float64), want)
    return bad + ([f"torch: {b}" for b in differ(by_autograd(autograd, x), want)] if torch else [])


graphc = os.path.abspath(sys.argv[1])
try_cases(cases, lambda *rest: check(graphc, *rest), "have the right slopes" + ("" if torch else ", not checked beside torch"))
