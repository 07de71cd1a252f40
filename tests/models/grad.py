"""Gradients of whole models by their weights, against PyTorch's autodiff of the same graph in f64.

    grad.py GRAPHC [MODEL ...] [--batch N] [--seq N] [-v]

The error of each gradient is its distance from f64's in units of f64's norm; graphc may commit at most 1.25 times what
PyTorch commits in f32, over all weights together (root of the mean of the squares), and 2.5 times in a single one. With
relus one unit that f32 rounds to the other side of its kink costs up to some 1e-3 in all layers before it, PyTorch too:
such models may err by KINK. Needs torch; without it the test is skipped.
"""
import argparse, re, subprocess, sys, tempfile
import numpy as np

try:
    import torch
except ImportError:
    print("skipped: torch is not installed")
    sys.exit(77)
import cases
import torch_onnx

MODELS = ("llama_small", "gpt2", "bert_base", "t5_small", "vit_b_16", "resnet50", "unet", "whisper_tiny_encoder",
          "mixtral_small")
WHOLE, SINGLE, KINK = 1.25, 2.5, 2e-3
# Of 1,500 keys with much in common, whose gradients nearly cancel in queries and keys: PyTorch's softmax takes
# sum(p dp) from the very dp that it subtracts it from, a kernel that never stores scores takes sum(o do).
MORE = {"whisper_tiny_encoder": 1.4}


def safe(name):
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)


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


def check(a, name, folder):
    path = f"{folder}/{name}.onnx"
    sizes = {"batch": a.batch, "seq": a.seq, "dec": max(a.seq // 2, 1), "past": 0}
    inputs = cases.inputs(path, sizes)
    graph = torch_onnx.Model(path, torch.float32)
    with torch.no_grad():
        y = graph(inputs)
    output = next(iter(y))
    cotangent = np.random.default_rng(1).standard_normal(y[output].shape).astype(np.float32)
    nodes = graph.graph.node
    del graph, y
    want = torch_gradients(path, torch.float64, inputs, output, cotangent)
    near = torch_gradients(path, torch.float32, inputs, output, cotangent)
    with tempfile.TemporaryDirectory() as tmp:
        got = graphc_gradients(a, path, inputs, output, cotangent, tmp)
        rows = [(n, distance(got(n), w), distance(near[n], w)) for n, w in want.items()]
    mine, theirs = (float(np.sqrt(np.mean([r[k] ** 2 for r in rows]))) for k in (1, 2))
    floor = 0.25 * theirs  # a tensor whose error is far below the others' counts no more than this
    worst = max(rows, key=lambda r: r[1] / max(r[2], floor, 1e-12))
    ratio = worst[1] / max(worst[2], floor, 1e-12)
    relu = any(n.op_type == "Relu" for n in nodes)
    ok = mine <= MORE.get(name, WHOLE) * theirs and ratio <= SINGLE or relu and mine <= KINK
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
    folder = cases.filled(names)
    bad = 0
    for name in names:
        try:
            bad += not check(a, name, folder)
        except RuntimeError as e:
            bad += 1
            print(f"BAD  {name:22} {e}", flush=True)
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
