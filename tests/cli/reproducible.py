"""Same model: same plan bytes in another folder, with other thread counts, with another folder for temporary files, from a
cache; same plan and input: same output bits with other thread counts. That there was something to differ in is checked:
the profile says among how many threads each kernel was split, and with three threads all of a case's kernels must be.

    reproducible.py GRAPHC [--some]     --some: a case of each way to split work"""
import filecmp, json, os, shutil, subprocess, sys, tempfile
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import build
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tool import check, failed

graphc = sys.argv[1]
rng = np.random.default_rng(5)
# NVIDIA's library, where the compiler is linked with it, makes no promise: it goes by its process's addresses.
PTXAS = os.environ["GRAPHC_PTXAS"] = shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas"


def call(*args):
    p = subprocess.run([graphc, *args], capture_output=True, text=True, timeout=600)
    if p.returncode:
        check(False, f"{' '.join(args)}: exit {p.returncode} {p.stderr.strip()}")
    return p.stdout


def graph(path, nodes, inputs, **consts):
    """nodes: (op, inputs, attributes), chained by the names t0, t1 ...; the last is the output y."""
    made = [h.make_node(op, ins, ["y" if i + 1 == len(nodes) else f"t{i}"], **attrs) for i, (op, ins, attrs) in enumerate(nodes)]
    g = h.make_graph(made, "g", [h.make_tensor_value_info(n, T.FLOAT, s) for n, s in inputs.items()],
                     [h.make_tensor_value_info("y", T.FLOAT, None)],
                     [numpy_helper.from_array(np.asarray(v), n) for n, v in consts.items()])
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 23)], ir_version=10), path)


w = lambda *shape: rng.standard_normal(shape).astype(np.float32)
axes = lambda *v: np.array(v, np.int64)
CASES = {
    "dot": ([("MatMul", ["x", "w"], {}), ("Relu", ["t0"], {})], {"x": [203, 256]}, {"w": w(256, 304)}),
    "points": ([("Exp", ["x"], {}), ("Add", ["t0", "x"], {})], {"x": [77, 3001]}, {}),
    "rows": ([("Softmax", ["x"], {"axis": -1})], {"x": [401, 333]}, {}),
    "norm": ([("LayerNormalization", ["x", "g", "b"], {})], {"x": [401, 768]}, {"g": w(768), "b": w(768)}),
    "sum_rows": ([("ReduceSum", ["x", "a"], {})], {"x": [401, 1777]}, {"a": axes(1)}),
    "sum_columns": ([("ReduceSum", ["x", "a"], {})], {"x": [777, 1401]}, {"a": axes(0)}),
    "sum_both": ([("ReduceL2", ["x", "a"], {})], {"x": [31, 401, 77]}, {"a": axes(0, 2)}),
    "conv": ([("Conv", ["x", "w"], {"pads": [1] * 4}), ("Relu", ["t0"], {})], {"x": [3, 24, 33, 31]}, {"w": w(40, 24, 3, 3)}),
    "depthwise": ([("Conv", ["x", "w"], {"pads": [1] * 4, "group": 24})], {"x": [3, 24, 33, 31]}, {"w": w(24, 1, 3, 3)}),
    "attention": ([("Attention", ["q", "k", "v"], {"is_causal": 1})], {n: [2, 5, 203, 64] for n in "qkv"}, {}),
    "cumsum": ([("CumSum", ["x", "a"], {})], {"x": [401, 333]}, {"a": np.array(1, np.int32)}),
}

SOME = ["dot", "rows", "norm", "sum_columns", "conv", "attention"]


def same_bits(name, plan, folder):
    outputs = []
    for threads in ("1", "3", "5"):
        outputs.append(f"{folder}/{name}.{threads}")
        call("run", plan, "--threads", threads, "--output-dir", outputs[-1])
    for o in outputs[1:]:
        check(filecmp.cmp(f"{outputs[0]}/y.npy", f"{o}/y.npy", shallow=False), f"{name}: other bits in {o}")
    kernels = json.loads(call("bench", plan, "--threads", "3", "--runs", "1", "-v", "--json"))["kernels"]
    # The sum of a long sum's parts is too little work to be split.
    large = [k for k in kernels if 20 * k["bytes"] >= max(k["bytes"] for k in kernels)]
    check(large and all(k["threads"] == 3 for k in large),
          f"{name}: not split among 3 threads: {[(k['name'], k['threads']) for k in kernels]}")


def same_native(name, folder):
    """A plan for this machine alone is smaller than one for every CPU, and computes the same bits."""
    plan, out = f"{folder}/native.plan", f"{folder}/native"
    call(f"{folder}/{name}.onnx", "-o", plan, "--target", "native")
    size = lambda p: json.loads(call("inspect", p, "--json"))["plan_bytes"]
    check(size(plan) < size(f"{folder}/{name}.plan"), f"{name}: the plan for this machine alone is not smaller")
    call("run", plan, "--threads", "3", "--output-dir", out)
    check(filecmp.cmp(f"{out}/y.npy", f"{folder}/{name}.1/y.npy", shallow=False), f"{name}: other bits of a plan for this machine alone")


def same_cubins(folder):
    """Code for a GPU, assembled in temporary folders of other names: ptxas goes by addresses."""
    plans = []
    for i in range(4):
        tmp = f"{folder}/{'t' * (40 * i + 1)}"
        os.mkdir(tmp)
        os.environ["TMPDIR"] = tmp
        plans.append(f"{folder}/gpu.{i}")
        call(f"{folder}/dot.onnx", "-o", plans[-1], "--target", "sm_90a", "--precision", "bf16")
    del os.environ["TMPDIR"]
    check(all(filecmp.cmp(plans[0], p, shallow=False) for p in plans[1:]), "plans for a GPU differ")


def same_from_half_a_cache(folder):
    """PTX from the cache is assembled as PTX that was just made: a compile may end between the two."""
    cache, made = f"{folder}/halves", []
    os.environ["GRAPHC_PTXAS"] = "/no/ptxas"
    call(f"{folder}/dot.onnx", "-o", f"{folder}/half.plan", "--target", "sm_90a", "--precision", "bf16", "--cache", cache)
    os.environ["GRAPHC_PTXAS"] = PTXAS
    for more in ((), ("--cache", cache)):
        made.append(f"{folder}/half.{len(made)}")
        call(f"{folder}/dot.onnx", "-o", made[-1], "--target", "sm_90a", "--precision", "bf16", *more)
    check(filecmp.cmp(*made, shallow=False), "another plan where PTX came from the cache")


def same_from_cache(folder):
    """Plans made with a cache are those made without: new, again, beside another model's kernels, from damaged entries."""
    cache, names = f"{folder}/cache", ["norm", "rows", "norm"]
    os.mkdir(cache)
    entries = lambda: {os.path.join(cache, f): os.stat(os.path.join(cache, f)).st_mtime_ns for f in os.listdir(cache)}

    def compile_all(what):
        for name in names:
            call(f"{folder}/{name}.onnx", "-o", f"{folder}/cached.plan", "--cache", cache)
            check(filecmp.cmp(f"{folder}/{name}.plan", f"{folder}/cached.plan", shallow=False), f"{name}: another plan {what}")

    compile_all("with an empty cache")
    made = entries()
    check(len(made) > 2, f"the cache has {len(made)} entries")
    compile_all("from the cache")
    check(entries() == made, "entries were made again")
    for path in made:
        with open(path, "r+b") as f:
            f.seek(os.path.getsize(path) // 2)
            byte = f.read(1)[0]
            f.seek(-1, 1)
            f.write(bytes([byte ^ 1]))
    compile_all("from damaged entries")


with tempfile.TemporaryDirectory() as d:
    plans = []
    for i, threads in enumerate(("1", "2", "2")):
        os.makedirs(f"{d}/{i}/folder")
        build.mlp(f"{d}/{i}/folder/m.onnx")
        plans.append(f"{d}/{i}/m.plan")
        call(f"{d}/{i}/folder/m.onnx", "-o", plans[-1], "--threads", threads)
    check(all(filecmp.cmp(plans[0], p, shallow=False) for p in plans[1:]), "plans differ")
    for name, (nodes, inputs, consts) in CASES.items():
        if "--some" in sys.argv and name not in SOME:
            continue
        graph(f"{d}/{name}.onnx", nodes, inputs, **consts)
        call(f"{d}/{name}.onnx", "-o", f"{d}/{name}.plan")
        same_bits(name, f"{d}/{name}.plan", d)
    same_native("norm", d)
    same_cubins(d)
    same_from_half_a_cache(d)
    same_from_cache(d)
print(f"{len(CASES)} cases, {failed()} failures")
sys.exit(failed() != 0)
