"""What --json promises: the fields of inspect and bench, their types, and that they agree with each
other and with the model."""
import json, os, subprocess, sys, tempfile
import onnx
from onnx import TensorProto as T, helper as h

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import build

graphc, failures = sys.argv[1], 0
NUMBER = (int, float)


def check(ok, what):
    global failures
    if not ok:
        failures += 1
        print("FAILED", what)


def ask(*args):
    """stdout is one JSON value and nothing else."""
    p = subprocess.run([graphc, *args, "--json"], capture_output=True, text=True, timeout=60)
    check(p.returncode == 0, f"graphc {' '.join(args)}: exit {p.returncode}: {p.stderr.strip()[:300]}")
    return json.loads(p.stdout)


def fields(j, types, what):
    for name, t in types.items():
        good = isinstance(j.get(name), t) and not (t is not bool and isinstance(j.get(name), bool))
        check(good, f"{what}: field {name} is {j.get(name)!r}")


def two_steps(path):
    """Two products with a softmax over a symbolic batch between them: kernels with a buffer between."""
    g = h.make_graph(
        [h.make_node("MatMul", ["x", "y"], ["t"]), h.make_node("Softmax", ["t"], ["u"], axis=0),
         h.make_node("MatMul", ["u", "y"], ["z"])], "steps",
        [h.make_tensor_value_info("x", T.FLOAT, ["batch", 32]), h.make_tensor_value_info("y", T.FLOAT, [32, 32])],
        [h.make_tensor_value_info("z", T.FLOAT, ["batch", 32])])
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)


def kernels(list_, what):
    for k in list_:
        fields(k, {"name": str, "kind": str, "nodes": list}, what)
        check(k["kind"] in ("poi", "red", "per", "tem") and k["name"].removeprefix("prepare_").startswith(k["kind"] + "_"),
              f"{what}: {k}")
        check(all(isinstance(n, str) and n for n in k["nodes"]), f"{what}: nodes {k['nodes']}")


def target(j, what):
    fields(j, {"kernels": list, "prepare": list, "memory": dict}, what)
    kernels(j["kernels"], what), kernels(j["prepare"], what)
    fields(j["memory"], {"arena": int, "largest_live_set": int, "constants": int, "states": int}, what)
    m = j["memory"]
    check(m["largest_live_set"] <= m["arena"] <= 1.1 * m["largest_live_set"] + 64, f"{what}: memory {m}")


with tempfile.TemporaryDirectory() as d:
    os.chdir(d)
    build.mlp("mlp.onnx")
    two_steps("steps.onnx")
    subprocess.run([graphc, "mlp.onnx", "-o", "mlp.plan"], check=True, capture_output=True)

    j = ask("inspect", "mlp.plan")
    fields(j, {"inputs": list, "outputs": list, "symbols": list, "kernels": list, "prepare": list,
               "memory": dict, "targets": dict, "plan_bytes": int}, "inspect")
    check(j["inputs"] == [{"name": "x", "dtype": "f32", "shape": ["batch", 32]}], f"inputs {j['inputs']}")
    check(j["outputs"] == [{"name": "y", "dtype": "f32", "shape": ["batch", 50]}], f"outputs {j['outputs']}")
    check([s["name"] for s in j["symbols"]] == ["batch"], f"symbols {j['symbols']}")
    fields(j["symbols"][0], {"name": str, "min": int, "max": int}, "symbol")
    check(j["plan_bytes"] == os.path.getsize("mlp.plan"), "plan_bytes is the file's size")
    target(j, "inspect mlp")
    check(len(j["kernels"]) == 1, f"MatMul, Add and Relu are one kernel: {[k['name'] for k in j['kernels']]}")
    nodes = " ".join(j["kernels"][0]["nodes"])
    check(all(op in nodes for op in ("MatMul", "Add", "Relu")), f"covered nodes: {nodes}")
    check(j["memory"]["constants"] >= 4 * (32 * 50 + 50), f"constants {j['memory']}")

    check(ask("inspect", "mlp.onnx") == j, "a model is inspected as its plan")
    check(ask("inspect", "mlp.onnx", "--dim", "batch=8")["inputs"][0]["shape"] == [8, 32], "fixed sizes are numbers")
    both = ask("inspect", "steps.onnx", "--target", "cpu,sm_90a", "--dim", "batch=2..64")
    check(list(both["targets"]) == ["cpu", "sm_90a"], f"targets {list(both['targets'])}")
    check((both["symbols"][0]["min"], both["symbols"][0]["max"]) == (2, 64), f"symbols {both['symbols']}")
    for name, t in both["targets"].items():
        target(t, f"inspect steps {name}")
        check(t["memory"]["arena"] > 0, f"{name}: a value between two kernels lies in the arena")
    check(both["kernels"] == both["targets"]["cpu"]["kernels"], "the first target stands at the top")

    small = {"--dim": "batch=4", "--runs": "7", "--threads": "1"}
    args = [x for kv in small.items() for x in kv]
    b = ask("bench", "mlp.plan", *args)
    fields(b, {"median_ms": NUMBER, "min_ms": NUMBER, "p99_ms": NUMBER, "runs": int, "threads": int, "device": str},
           "bench")
    check(0 < b["min_ms"] <= b["median_ms"] <= b["p99_ms"], f"bench: {b}")
    check((b["runs"], b["threads"], b["device"]) == (7, 1, "cpu"), f"bench: {b}")
    check("kernels" not in b, "kernels are timed with -v only")
    b = ask("bench", "mlp.plan", "-v", *args)
    check([k["name"] for k in b["kernels"]] == [k["name"] for k in j["kernels"]], "bench and inspect list the same kernels")
    for k in b["kernels"]:
        fields(k, {"name": str, "kind": str, "ms": NUMBER, "bytes": NUMBER, "flops": NUMBER, "threads": int}, "bench -v")
        check(k["ms"] >= 0 and k["bytes"] > 0 and k["flops"] >= 2 * 4 * 32 * 50, f"bench -v: {k}")
        check(0 < k["least_ms"] and "MatMul" in k["nodes"], f"bench -v: {k}")
    ask("bench", "steps.onnx", "--trace", "t.json", "--html", "t.html", *args)
    events, names = json.load(open("t.json"))["traceEvents"], [k["name"] for k in both["kernels"]]
    check([e["name"] for e in events] == names, f"the trace has the kernels in order: {events}")
    for e, after in zip(events, events[1:]):
        check(e["ph"] == "X" and e["dur"] > 0 and abs(e["ts"] + e["dur"] - after["ts"]) < 1e-2, f"trace: {e} {after}")
    page = open("t.html").read()
    check(all(page.count(n) >= 2 for n in names) and "http" not in page and "<script" not in page, "the page tells of every kernel and fetches nothing")

    e = ask("explain", "mlp.plan")["targets"][0]
    check((e["target"], e["in_no_kernel"], len(e["at_load"])) == ("cpu", [], 1), f"explain: {e}")
    (k,) = e["entries"][0]["kernels"]
    fields(k, {"name": str, "bytes": NUMBER, "flops": NUMBER, "least_seconds": NUMBER, "nodes": list, "views": list}, "explain")
    check(k["nodes"] == j["kernels"][0]["nodes"] and k["views"] == [], f"explain: {k}")

    c = ask("mlp.onnx", "-o", "again.plan")
    fields(c, {"targets": list, "plan_bytes": int, "seconds": NUMBER}, "compile")

print(f"{failures} failed" if failures else "all as promised")
sys.exit(failures != 0)
