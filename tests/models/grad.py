"""Gradients of whole models by their weights, against PyTorch's autodiff of the same graph in f64.

    grad.py GRAPHC [MODEL ...] [--batch N] [--seq N] [-v]

The error of each gradient is its distance from f64's in units of f64's norm; graphc may commit at most 1.25 times what
PyTorch commits in f32, over all weights together (root of the mean of the squares), and 2.5 times in a single one.
A unit that f32 rounds to the other side of a relu's kink would cost up to some 1e-3 in all layers before it, PyTorch too.
So what a relu sees is moved off the kink where it lies close to it: by a tensor that is added there, another input of the
model. Attention in PyTorch is its own kernel, which like graphc's never stores scores. resnet50_bn is resnet50 with a norm
in training form behind each convolution. Needs torch, here or in $GRAPHC_TORCH; without it the test is skipped.
"""
import argparse, os, re, subprocess, sys, tempfile
import numpy as np
import onnx
from onnx import helper, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import beside_torch

beside_torch.go_on(("torch",))
import torch
import cases
import torch_onnx

MODELS = ("llama_small", "gpt2", "bert_base", "t5_small", "vit_b_16", "resnet50", "resnet50_bn", "unet",
          "whisper_tiny_encoder", "mixtral_small")
WHOLE, SINGLE = 1.25, 2.5
KINK = 1e-3  # how near, in units of what the relu sees, is close: far more than f32 is wrong by
OFF = "off_kink."
# Scores of hundreds make of one rounding more than of all others: the error is that of several inputs together.
DRAWS = {"t5_small": 4}


def safe(name):
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)


def with_norms(model):
    """A norm behind each convolution, as training has it."""
    g, nodes = model.graph, []
    rng = np.random.default_rng(3)
    width = {t.name: t.dims[0] for t in g.initializer}
    for n in g.node:
        nodes.append(n)
        if n.op_type != "Conv":
            continue
        y, name, c = n.output[0], n.input[1].removesuffix(".weight") + ".bn", width[n.input[1]]
        n.output[0] = y + ".conv"
        values = {"weight": rng.uniform(0.5, 1.5, c), "bias": rng.normal(0, 0.2, c), "running_mean": np.zeros(c), "running_var": np.ones(c)}
        for k, v in values.items():
            g.initializer.append(numpy_helper.from_array(v.astype(np.float32), f"{name}.{k}"))
        nodes.append(helper.make_node("BatchNormalization", [n.output[0], *(f"{name}.{k}" for k in values)],
                                      [y, f"{name}.mean_after", f"{name}.var_after"], name, training_mode=1))
    del g.node[:]
    g.node.extend(nodes)


def off_kinks(model):
    """What each relu sees gets an input added, whose shape is not known yet."""
    g, nodes = model.graph, []
    for n in g.node:
        if n.op_type == "Relu":
            off, x = OFF + n.output[0], n.input[0]
            g.input.append(helper.make_tensor_value_info(off, 1, None))
            nodes.append(helper.make_node("Add", [x, off], [off + ".x"]))
            n.input[0] = off + ".x"
        nodes.append(n)
    del g.node[:]
    g.node.extend(nodes)


def make_model(name, folder, path):
    """Writes the model to differentiate beside the weights, which may be no link."""
    base = name.removesuffix("_bn")
    model = onnx.load(f"{folder}/{base}.onnx", load_external_data=False)
    if name != base:
        with_norms(model)
    off_kinks(model)
    onnx.save(model, path)


def declare(path, arrays):
    """The inputs' shapes."""
    model = onnx.load(path, load_external_data=False)
    for v in model.graph.input:
        if v.name in arrays:
            v.CopyFrom(helper.make_tensor_value_info(v.name, 1, arrays[v.name].shape))
    onnx.save(model, path)


class Moving(torch_onnx.Model):
    """Finds out what moves each relu's operand off its kink, one after another."""

    def step(self, node, v):
        if node.op_type != "Add" or not node.input[1].startswith(OFF):
            return super().step(node, v)
        x = v[node.input[0]]
        near = KINK * x.square().mean().sqrt()
        off = torch.where(x.abs() < near, torch.copysign(near, x) - x, torch.zeros_like(x)).float()
        self.off[node.input[1]] = off.numpy()
        return x + off

    def __call__(self, inputs):
        self.off = {}
        with torch.no_grad():
            return super().__call__(inputs)


def torch_gradients(path, dtype, inputs, output, cotangent):
    model = torch_onnx.Model(path, dtype)
    y = model(inputs)[output]
    (y * torch.from_numpy(cotangent).to(dtype)).sum().backward()
    return {n: (torch.zeros_like(t) if t.grad is None else t.grad).numpy() for n, t in model.weights.items()}


def graphc_gradients(a, path, inputs, output, cotangent, tmp):
    args = [a.graphc, "grad", path, "--loss", output, "--output-dir", f"{tmp}/out"]
    for name, x in dict(inputs, **{"": cotangent}).items():
        file = f"{tmp}/{safe(name) or 'cotangent'}.npy"
        np.save(file, x)
        args += ["--input", f"{name}={file}"] if name else ["--cotangent", file]
    p = subprocess.run(args, capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(f"graphc grad: exit {p.returncode}: {p.stderr.strip()[-400:]}")
    return lambda name: np.load(f"{tmp}/out/{safe(name)}.npy")


def distance(x, want):
    norm = np.linalg.norm(want.astype(np.float64).ravel())
    return np.linalg.norm((x.astype(np.float64) - want).ravel()) / norm if norm else float(np.abs(x).max() > 0)


def errors(a, name, path, tmp, draw):
    """[weight, error of graphc, error of PyTorch in f32]"""
    sizes = {"batch": max(a.batch, 2) if name.endswith("_bn") else a.batch, "seq": a.seq, "dec": max(a.seq // 2, 1), "past": 0}
    inputs = {n: x for n, x in cases.inputs(path, sizes, draw).items() if not n.startswith(OFF)}
    graph = Moving(path, torch.float64)
    y = graph(inputs)
    declare(path, graph.off)
    inputs |= graph.off
    output = next(iter(y))
    cotangent = np.random.default_rng(1 + draw).standard_normal(y[output].shape).astype(np.float32)
    del graph, y
    want = torch_gradients(path, torch.float64, inputs, output, cotangent)
    near = torch_gradients(path, torch.float32, inputs, output, cotangent)
    got = graphc_gradients(a, path, inputs, output, cotangent, tmp)
    return [(n, distance(got(n), w), distance(near[n], w)) for n, w in want.items()]


def mean_square(v):
    return float(np.sqrt(np.mean(np.square(v))))


def check(a, name, path, tmp):
    draws = [errors(a, name, path, tmp, i) for i in range(DRAWS.get(name, 1))]
    rows = [(r[0][0], mean_square([x[1] for x in r]), mean_square([x[2] for x in r])) for r in zip(*draws)]
    mine, theirs = (mean_square([r[k] for r in rows]) for k in (1, 2))
    floor = 0.25 * theirs  # a tensor whose error is far below the others' counts no more than this
    worst = max(rows, key=lambda r: r[1] / max(r[2], floor, 1e-12))
    ratio = worst[1] / max(worst[2], floor, 1e-12)
    ok = mine <= WHOLE * theirs and ratio <= SINGLE
    print(f"{'ok  ' if ok else 'BAD '} {name:22} {len(rows):4} weights  error {mine:.2e}, torch f32 {theirs:.2e} = "
          f"{mine / theirs:.2f}; worst {worst[0]} {worst[1]:.1e} of {worst[2]:.1e}", flush=True)
    for r in sorted(rows, key=lambda r: -r[1] / max(r[2], floor))[:12] if a.v else ():
        print(f"     {r[0]:50} {r[1]:.2e} {r[2]:.2e}")
    return ok


def main():
    p = argparse.ArgumentParser()
    p.add_argument("graphc"), p.add_argument("models", nargs="*"), p.add_argument("-v", action="store_true")
    p.add_argument("--batch", type=int, default=2), p.add_argument("--seq", type=int, default=8)
    a = p.parse_args()
    torch.set_num_threads(1)
    names = a.models or MODELS
    folder = cases.filled({n.removesuffix("_bn") for n in names})
    bad = 0
    for name in names:
        try:
            with tempfile.TemporaryDirectory() as tmp, tempfile.NamedTemporaryFile(dir=folder, suffix=".onnx") as f:
                make_model(name, folder, f.name)
                bad += not check(a, name, f.name, tmp)
        except RuntimeError as e:
            bad += 1
            print(f"BAD  {name:22} {e}", flush=True)
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
