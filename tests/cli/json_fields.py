"""What --json promises: every verb's output is as frontend/driver/schema.json says, and fields agree with each other and
with the model."""
import csv, json, os, re, subprocess, sys, tempfile
import jsonschema
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import build
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import forks
from tool import check, failed

graphc = os.path.abspath(sys.argv[1])
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCHEMA = json.load(open(f"{ROOT}/frontend/driver/schema.json"))
jsonschema.Draft202012Validator.check_schema(SCHEMA)
validator = jsonschema.Draft202012Validator(SCHEMA)
seen = set()  # verbs whose output was looked at
NUMBER = (int, float)


def ask(*args):
    """stdout is one JSON value and nothing else."""
    p = forks.run([graphc, *args, "--json"], 60)
    check(p.returncode == 0, f"graphc {' '.join(args)}: exit {p.returncode}: {p.stderr.strip()[:300]}")
    j = json.loads(p.stdout)
    for e in validator.iter_errors(j):
        check(False, f"graphc {' '.join(args)}: {list(e.absolute_path)}: {e.message[:300]}")
    check(j["verb"] == (args[0] if not args[0].endswith(".onnx") else "compile"), f"verb {j['verb']}")
    seen.add(j["verb"])
    return j


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
               "memory": dict, "targets": list, "plan_bytes": int}, "inspect")
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
    check([t["target"] for t in both["targets"]] == ["cpu", "sm_90a"], f"targets {both['targets']}")
    check((both["symbols"][0]["min"], both["symbols"][0]["max"]) == (2, 64), f"symbols {both['symbols']}")
    for t in both["targets"]:
        target(t, f"inspect steps {t['target']}")
        check(t["memory"]["arena"] > 0, f"{t['target']}: a value between two kernels lies in the arena")
    check(both["kernels"] == both["targets"][0]["kernels"], "the first target stands at the top")

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
        check(0 < k["least_ms"] and any("MatMul" in n for n in k["nodes"]), f"bench -v: {k}")
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

    # A residual is read once, by what follows the second product: that is no operand's reason.
    g = h.make_graph(
        [h.make_node("MatMul", ["x", "w"], ["t"]), h.make_node("LayerNormalization", ["t", "s"], ["n"]), h.make_node("MatMul", ["n", "w"], ["u"]),
         h.make_node("Add", ["u", "t"], ["z"])], "residual", [h.make_tensor_value_info("x", T.FLOAT, [64, 96])],
        [h.make_tensor_value_info("z", T.FLOAT, [64, 96])],
        [numpy_helper.from_array(np.ones((96, 96), np.float32) / 50, "w"), numpy_helper.from_array(np.ones(96, np.float32), "s")])
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 17)], ir_version=8), "residual.onnx")
    notes = [n for n in ask("explain", "residual.onnx")["targets"][0]["notes"] if n.startswith("not fused: tem_0_matmul into tem_")]
    check(len(notes) == 1 and "a contraction or attention of its own" in notes[0], f"a residual: {notes}")

    c = ask("mlp.onnx", "-o", "again.plan")
    fields(c, {"targets": list, "plan_bytes": int, "seconds": NUMBER}, "compile")

    # What the times are of.
    b = ask("bench", "mlp.plan", "--runs", "3", "--percentiles")
    check(b["sizes"] == [{"name": "batch", "value": 1, "assumed": True}], f"sizes {b['sizes']}")
    check(b["plan_hash"] == j["plan_hash"] and b["model_hash"] == j["model_hash"] != "unknown", f"which plan: {b}")
    p = list(b["percentiles_ms"].values())
    check(p[:-2] == sorted(p[:-2]) and p[-2] >= p[-3], f"percentiles {b['percentiles_ms']}")
    check(ask("bench", "mlp.plan", *args)["sizes"] == [{"name": "batch", "value": 4, "assumed": False}], "a size that was given")
    check(ask("bench", "mlp.onnx", "--dim", "batch=4", "--runs", "1")["sizes"] == [{"name": "batch", "value": 4, "assumed": False}], "a size that was fixed")
    pair = ask("bench", "mlp.plan", "again.plan", "--runs", "30")
    r = pair["ratio"]
    check(r["low"] <= r["b_over_a"] <= r["high"] and r["pairs"] == 30, f"a ratio: {r}")
    check(pair["a"]["plan_hash"] == pair["b"]["plan_hash"], "one plan twice")
    said = subprocess.run([graphc, "bench", "steps.onnx", "-v", *args], capture_output=True, text=True).stdout
    shares = [float(s) for s in re.findall(r"(?m)^ +[0-9.]+ [mun]?s +([0-9.]+) ", said)]
    check(len(shares) == len(names) and shares == sorted(shares, reverse=True) and
          all(op in said for op in ("Softmax", "MatMul")), f"bench -v: {said}")
    rows = list(csv.reader(subprocess.run([graphc, "bench", "mlp.plan", "--csv", *args], capture_output=True, text=True).stdout.splitlines()))
    check(len(rows) == 2 and len(rows[0]) == len(rows[1]) and dict(zip(*rows))["sizes"] == "batch = 4", f"csv: {rows}")
    rows = list(csv.reader(subprocess.run([graphc, "bench", "mlp.plan", "--csv", "-v", *args], capture_output=True, text=True).stdout.splitlines()))
    check(len(rows) == 2 and len(rows[0]) == len(rows[1]) and "MatMul" in rows[1][-1], f"csv: {rows}")

    r = ask("run", "mlp.plan", "--dim", "batch=2", "--output-dir", "out")
    check(r["outputs"] == [{"shape": [2, 50], "name": "y", "dtype": "f32", "file": "out/y.npy"}] and os.path.exists("out/y.npy"), f"run: {r}")
    check(r["inputs"][0]["from"] == "seed", f"run: {r}")
    ask("grad", "mlp.onnx", "--loss", "y", "--output-dir", "out")
    ask("verify", "mlp.onnx")
    ask("doctor")
    seen.add("tune")  # tests/cli/tune.py
    check(seen == set(SCHEMA["properties"]["verb"]["enum"]), f"verbs {seen}")
    line = jsonschema.Draft202012Validator({**SCHEMA, "$ref": "#/$defs/train_line", **{k: {} for k in ("properties",)}, "required": [], "allOf": []})
    build.mlp("t.onnx")
    np.save("x.npy", np.zeros((16, 32), np.float32)), np.save("t.npy", np.zeros((16, 50), np.float32))
    p = subprocess.run([graphc, "train", "t.onnx", "--loss", "mse(y, target)", "--data", "x=x.npy", "--data", "target=t.npy", "--eval-data", "x=x.npy", "--eval-data", "target=t.npy",
                        "--steps", "2", "-o", "learnt", "--json"], capture_output=True, text=True, timeout=600)
    lines = [json.loads(l) for l in p.stdout.splitlines()]
    check(p.returncode == 0 and len(lines) == 3, f"train: exit {p.returncode} {p.stdout} {p.stderr}")
    for l in lines:
        for e in line.iter_errors(l):
            check(False, f"train: {l}: {e.message}")

print(f"{failed()} failed" if failed() else "all as promised")
sys.exit(failed() != 0)
