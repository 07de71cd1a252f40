"""graphc tune on a driver without a GPU (tests/fake_cuda), whose kernels take a microsecond a block: what is chosen is known.

    tune.py GRAPHC DRIVER_FOLDER
"""
import json, os, subprocess, sys, tempfile
import jsonschema
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper

graphc, env = sys.argv[1], {**os.environ, "LD_LIBRARY_PATH": sys.argv[2]}
failed = 0
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
validator = jsonschema.Draft202012Validator(json.load(open(f"{ROOT}/frontend/driver/schema.json")))


def check(ok, what):
    global failed
    if not ok:
        failed += 1
        print("FAILED:", what)


def run(*args, status=0, said=""):
    p = subprocess.run([graphc, *args], capture_output=True, text=True, env=env, timeout=600)
    check(p.returncode == status and said in p.stderr, f"{args}: exit {p.returncode}, not {status}: {p.stdout}{p.stderr}")
    return p


def tune(*args):
    p = run("tune", *args, "--device", "cuda", "--json")
    if p.returncode:
        return {"kernels": [], "untried": 0, "before_ms": 0, "after_ms": 0}
    j = json.loads(p.stdout)
    for e in validator.iter_errors(j):
        check(False, f"schema: {list(e.absolute_path)}: {e.message[:300]}")
    return j


def model(path):
    rng = np.random.default_rng(0)
    w = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float16), n) for n, s in (("a", (512, 1024)), ("b", (1024, 256)))]
    g = h.make_graph([h.make_node("MatMul", ["x", "a"], ["t"]), h.make_node("MatMul", ["t", "b"], ["u"]), h.make_node("Softmax", ["u"], ["y"])],
                     "g", [h.make_tensor_value_info("x", T.FLOAT16, ["rows", 512])], [h.make_tensor_value_info("y", T.FLOAT16, ["rows", 256])], w)
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)


def lines():
    return open("db").read().splitlines()


def median(plan):
    return json.loads(run("bench", plan, "--device", "cuda", "--runs", "5", "--json").stdout)["median_ms"]


def chosen():
    """A model, and later compiles."""
    sizes = ("--dim", "rows=2048")
    r = tune("m.onnx", "-o", "tuned.plan", "--tune-db", "db", *sizes)
    kernels = r["kernels"]
    check(len(kernels) == 3 and r["untried"] == 0, f"two products and a row: {r}")
    check(r["after_ms"] < r["before_ms"] and any(k["before"] != k["after"] for k in kernels), f"a faster way: {r}")
    check(lines()[0] == "graphc-tuned 1" and lines()[1:] == sorted(f"sm_90a/132\t{k['signature']}\t{k['after']}" for k in kernels),
          f"the database: {lines()}")

    run("m.onnx", "-o", "plain.plan", "--target", "sm_90a", *sizes)
    run("m.onnx", "-o", "ways.plan", "--target", "sm_90a", "--variants", "4", "--dump-ir", "ir", *sizes)
    steps = [s for s in open("ir/plan.txt").read().split("\n  step ") if "matmul" in s.split("\n")[0]]
    ways = [s.count("\n      or ") for s in steps]
    check(len(ways) == 2 and min(ways) > 1 and all(s.count("map of parameter 1 ") == 1 + n for s, n in zip(steps, ways)),
          f"every way of a product is on tensor cores: {ways}")
    run("m.onnx", "-o", "db.plan", "--target", "sm_90a", "--tune-db", "db", *sizes)
    check(abs(median("db.plan") - median("tuned.plan")) < 1e-6 < median("plain.plan") - median("tuned.plan"), "the database is as good as the plan")
    check(median("ways.plan") == median("plain.plan"), "variants alone change nothing")
    before = open("db").read()
    same = tune("ways.plan", "-o", "again.plan", "--tune-db", "db")
    check(open("again.plan", "rb").read() != open("ways.plan", "rb").read() and open("db").read() == before, "a plan with variants comes to the same")
    check([k["after"] for k in same["kernels"]] == [k["after"] for k in kernels], f"as a model does: {same}")
    run("m.onnx", "-o", "ways.plan", "--target", "sm_90a", "--variants", "4", "--tune-db", "db", *sizes)
    first = tune("ways.plan", "-o", "again.plan")
    check([k["before"] for k in first["kernels"]] == [k["after"] for k in kernels], f"what was tuned goes first: {first}")


def one_row():
    """Products of one row, as decoding has them, differ in columns and warps of a team."""
    r = tune("m.onnx", "-o", "row.plan", "--dim", "rows=1", "--variants", "12")
    products = [k for k in r["kernels"] if k["signature"].startswith("one row, ")]
    check(len(products) == 2 and all(k["ways"] > 3 and not k["failed"] for k in products), f"two products: {r}")
    check([k["after"] for k in products] == ["8 columns of 1 warps", "4 columns of 1 warps"] and r["after_ms"] < r["before_ms"], f"the fewest blocks: {r}")


def refused():
    run("tune", "plain.plan", "--device", "cuda", status=4, said="[G0705]")
    run("tune", "m.onnx", "--device", "cuda", "--dim", "rows=2048", status=2, said="--tune-db")
    run("m.onnx", "-o", "x.plan", "--tune-db", "none", status=7, said="none")
    run("run", "ways.plan", "--tune-db", "db", "--output-dir", "o", status=2, said="--tune-db: is for models")
    for text in ("", "tuned", "graphc-tuned x", "graphc-tuned 1\nsm_90a/132 gemm", "graphc-tuned 1\na\t\tb", "graphc-tuned 1\na\tb\tc\td", "\0"):
        with open("bad", "w") as f:
            f.write(text)
        run("m.onnx", "-o", "x.plan", "--tune-db", "bad", status=3, said="[G0704]")


def ignored():
    sizes = ("--target", "sm_90a", "--dim", "rows=2048")
    good = lines()
    for text, said in (("graphc-tuned 2\nwhatever", "version 2"),
                       ("\n".join([good[0], good[1].replace("/132", "/114")]), "1 lines are for other machines"),
                       ("\n".join([good[0], "# a comment", "", good[1].rsplit("\t", 1)[0] + "\tno such way"]), "this graphc has not")):
        with open("other", "w") as f:
            f.write(text)
        run("m.onnx", "-o", "x.plan", "--tune-db", "other", *sizes, said=said)
        check(median("x.plan") == median("plain.plan"), f"it counts for nothing: {said}")


with tempfile.TemporaryDirectory() as folder:
    graphc = os.path.abspath(graphc)
    env["LD_LIBRARY_PATH"] = os.path.abspath(env["LD_LIBRARY_PATH"])
    os.chdir(folder)
    model("m.onnx")
    chosen()
    one_row()
    refused()
    ignored()
sys.exit(1 if failed else 0)
