"""verify --bisect names the decision of fusion that changes a result: decisions.py GRAPHC

Two attentions; what the second leaves of a constant is rounding alone, so that its kernel gives another result than the
contractions and the softmax do one by one. Those are what is expected here, which makes that decision the wrong one."""
import os, re, subprocess, sys, tempfile
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper

graphc = os.path.abspath(sys.argv[1])
where = tempfile.TemporaryDirectory()
os.chdir(where.name)


def attention(n):
    return [h.make_node("MatMul", [f"q{n}", f"k{n}"], [f"s{n}"]), h.make_node("Softmax", [f"s{n}"], [f"p{n}"], axis=-1),
            h.make_node("MatMul", [f"p{n}", f"v{n}"], [f"o{n}"], name=f"mix{n}")]


shapes = {"q1": (2, 24, 16), "k1": (2, 16, 40), "v1": (2, 40, 16), "q2": (2, 24, 16), "k2": (2, 16, 40), "v2": (2, 40, 16)}
nodes = attention(1) + attention(2) + [h.make_node("Sub", ["o2", "three"], ["rest"]), h.make_node("Neg", ["o1"], ["y"])]
graph = h.make_graph(nodes, "attentions", [h.make_tensor_value_info(n, T.FLOAT, s) for n, s in shapes.items()],
                     [h.make_tensor_value_info(n, T.FLOAT, (2, 24, 16)) for n in ("y", "rest")],
                     [numpy_helper.from_array(np.float32(3), "three")])
onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9), "model.onnx")
rng = np.random.default_rng(1)
os.mkdir("data")
inputs = []
for i, (name, shape) in enumerate(shapes.items()):
    x = np.full(shape, 3, np.float32) if name == "v2" else rng.standard_normal(shape).astype(np.float32)
    np.save(name + ".npy", x)
    inputs += ["--input", f"{name}={name}.npy"]
    open(f"data/input_{i}.pb", "wb").write(numpy_helper.from_array(x, name).SerializeToString())


def run(*args, status=0):
    p = subprocess.run([graphc, *args], capture_output=True, text=True, timeout=600)
    if p.returncode != status:
        sys.exit(f"FAILED {args}: exit {p.returncode}, wanted {status}\n{p.stdout}{p.stderr}")
    return p.stdout


def outputs(*limit):
    run("run", "model.onnx", *limit, *inputs, "--output-dir", "out")
    return [np.load(f"out/{n}.npy") for n in ("y", "rest")]


def expect(values):
    for i, x in enumerate(values):
        open(f"data/output_{i}.pb", "wb").write(numpy_helper.from_array(x).SerializeToString())


def same(a, b):
    return all((x == y).all() for x, y in zip(a, b))


unfused = outputs("--fuse-at-most", "0")
expect(unfused)
said = run("verify", "model.onnx", "--data", "data", "--bisect", status=1)
m = re.search(r"first bad decision: (\d+) of (\d+): (.*)", said) or sys.exit(f"FAILED: names no decision:\n{said}")
first, total = int(m[1]), int(m[2])
failures = []
if "mix2" not in m[3] or "attention" not in m[3] or not 1 < first < total:
    failures.append(m[0])
if not same(outputs("--fuse-at-most", str(first - 1))[1:], unfused[1:]) or same(outputs("--fuse-at-most", str(first)), unfused):
    failures.append(f"decision {first} is not where the result changes")
if "bad decision" in run("verify", "model.onnx", "--bisect"):
    failures.append("a right model has a bad decision")
expect([x + 1 for x in unfused])
said = run("verify", "model.onnx", "--data", "data", "--bisect", status=1)
if "first bad decision: none; outputs differ without any fusion" not in said:
    failures.append("data that no plan gives: " + said)
print("\n".join("FAILED " + f for f in failures) or f"decision {first} of {total} found")
sys.exit(bool(failures))
