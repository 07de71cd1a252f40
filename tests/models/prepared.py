"""Plans with nothing left to prepare: prepared.py GRAPHC

Models whose weights are packed, turned, cast or brought into Winograd's form at load, with control flow, states and several
targets: a plan made with --prepared gives the same bits, in every form of code, has nothing to prepare and needs the model's
weights no more; its own are recognised, and are the same bytes whenever they are made."""
import json, os, shutil, sys
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper as nh

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tool import Tool
import forks

tool = Tool(sys.argv[1])
check, run = tool.check, tool.run
rng = np.random.default_rng(5)
VIEW = h.make_tensor_value_info


def fails(status, said, *args):
    p = forks.run([tool.graphc, *args], timeout=100)
    check(p.returncode == status and said in p.stderr, f"{args}: exit {p.returncode}, not {status} with \"{said}\": {p.stderr}")


def f32(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def save(name, nodes, inputs, outputs, weights):
    """With all weights in an external file."""
    g = h.make_graph(nodes, "g", inputs, outputs, [nh.from_array(w, n) for n, w in weights.items()])
    m = h.make_model(g, opset_imports=[h.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(m)
    onnx.save(m, name, save_as_external_data=True, location=name + ".data", size_threshold=0)


def vision():
    nodes = [h.make_node("Conv", ["x", "w3", "b3"], ["c"], pads=[1, 1, 1, 1]), h.make_node("Relu", ["c"], ["r"]),
             h.make_node("Conv", ["r", "w1"], ["d"]), h.make_node("GlobalAveragePool", ["d"], ["p"]),
             h.make_node("Flatten", ["p"], ["f"]), h.make_node("MatMul", ["f", "w"], ["y"])]
    save("vision.onnx", nodes, [VIEW("x", T.FLOAT, ["batch", 16, 12, 10])], [VIEW("y", T.FLOAT, ["batch", 70])],
         {"w3": f32(50, 16, 3, 3), "b3": f32(50), "w1": f32(33, 50, 1, 1), "w": f32(33, 70)})


def language():
    """Rows of a table of 16 bits, also the last product's operand; a loop and a branch with products inside."""
    body = h.make_graph([h.make_node("MatMul", ["in", "wl"], ["m"]), h.make_node("Tanh", ["m"], ["out"]), h.make_node("Identity", ["c"], ["go"])],
                        "body", [VIEW("i", T.INT64, []), VIEW("c", T.BOOL, []), VIEW("in", T.FLOAT, None)],
                        [VIEW("go", T.BOOL, []), VIEW("out", T.FLOAT, None)])
    side = lambda w: h.make_graph([h.make_node("MatMul", ["l", w], ["t" + w])], w, [], [VIEW("t" + w, T.FLOAT, None)])
    nodes = [h.make_node("Gather", ["table", "ids"], ["e"]), h.make_node("Cast", ["e"], ["ef"], to=T.FLOAT),
             h.make_node("Loop", ["steps", "", "ef"], ["l"], body=body),
             h.make_node("If", ["left"], ["s"], then_branch=side("wa"), else_branch=side("wb")),
             h.make_node("Cast", ["table"], ["tf"], to=T.FLOAT), h.make_node("Transpose", ["tf"], ["tt"], perm=[1, 0]),
             h.make_node("MatMul", ["s", "tt"], ["y"])]
    save("language.onnx", nodes, [VIEW("ids", T.INT64, ["batch", "seq"]), VIEW("steps", T.INT64, []), VIEW("left", T.BOOL, [])],
         [VIEW("y", T.FLOAT, ["batch", "seq", 90])],
         {"table": f32(90, 48).astype(np.float16), "wl": f32(48, 48) / 7, "wa": f32(48, 48), "wb": f32(48, 48)})


def cache():
    nodes = [h.make_node("MatMul", ["x", "wk"], ["k"]), h.make_node("Concat", ["past", "k"], ["present"], axis=1),
             h.make_node("Transpose", ["present"], ["kt"], perm=[0, 2, 1]), h.make_node("MatMul", ["x", "kt"], ["y"])]
    save("cache.onnx", nodes, [VIEW("x", T.FLOAT, [2, "seq", 40]), VIEW("past", T.FLOAT, [2, "past", 40])],
         [VIEW("y", T.FLOAT, [2, "seq", "all"]), VIEW("present", T.FLOAT, [2, "all", 40])], {"wk": f32(40, 40)})


def bytes_of(*names):
    return [open(n, "rb").read() for n in names]


def results(plan, *args):
    run("run", plan, "--output-dir", "out", *args)
    return {n: open(f"out/{n}", "rb").read() for n in sorted(os.listdir("out"))}


def same_results(name, *options, sizes):
    run(f"{name}.onnx", "-o", "plain.plan", *options)
    check(json.loads(run("inspect", "plain.plan", "--json"))["targets"][0]["prepare"], f"{name}: nothing is prepared at load")
    made = json.loads(run(f"{name}.onnx", "-o", f"{name}.plan", "--prepared", "--json", *options))
    check(made["targets"][0]["prepare"] == 0 and made["plan_bytes"] == os.path.getsize(f"{name}.plan"), f"{name}: {made}")
    want = {}
    for isa in "3", "4":
        for threads in "1", "3":
            want[isa, threads] = results("plain.plan", *sizes, "--isa", isa, "--threads", threads)
    first = bytes_of(f"{name}.plan", f"{name}.plan.prepared")
    run(f"{name}.onnx", "-o", f"{name}.plan", "--prepared", "--threads", "1", *options)
    check(bytes_of(f"{name}.plan", f"{name}.plan.prepared") == first, f"{name}: other bytes when made again")
    os.rename(f"{name}.onnx.data", "gone")
    for (isa, threads), y in want.items():
        got = results(f"{name}.plan", *sizes, "--isa", isa, "--threads", threads)
        check(got == y, f"{name}: other results, code {isa}, {threads} threads")
    os.rename("gone", f"{name}.onnx.data")
    return json.loads(run("inspect", f"{name}.plan", "--json"))["targets"]


def damage():
    """Weights that are another's, cut short or not there."""
    os.makedirs("moved")
    for n in "vision.plan", "vision.plan.prepared":
        shutil.copy(n, "moved")
    results("moved/vision.plan", "--dim", "batch=2")
    good = open("moved/vision.plan.prepared", "rb").read()
    for what, bad in ("a bit", good[:100] + bytes([good[100] ^ 1]) + good[101:]), ("cut", good[:-1000]), ("empty", b""):
        open("moved/vision.plan.prepared", "wb").write(bad)
        fails(3, "vision.plan.prepared", "run", "moved/vision.plan", "--output-dir", "out")
    os.remove("moved/vision.plan.prepared")
    fails(7, "vision.plan.prepared", "run", "moved/vision.plan", "--output-dir", "out")


def refused():
    fails(2, "--prepared", "vision.onnx", "-o", "-", "--prepared")
    fails(4, "no code for the CPU", "vision.onnx", "-o", "gpu.plan", "--prepared", "--target", "sm_80")
    check(not os.path.exists("gpu.plan.prepared"), "weights without a plan")
    fails(7, "nowhere", "vision.onnx", "-o", "nowhere/p.plan", "--prepared")
    g = h.make_graph([h.make_node("Relu", ["x"], ["y"])], "g", [VIEW("x", T.FLOAT, [3])], [VIEW("y", T.FLOAT, [3])])
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 20)], ir_version=9), "relu.onnx")
    run("relu.onnx", "-o", "relu.plan", "--prepared")
    check(not os.path.exists("relu.plan.prepared"), "a file of no weights")
    results("relu.plan")


vision(), language(), cache()
for t in same_results("vision", sizes=("--dim", "batch=2")):
    check(not t["prepare"] and t["memory"]["prepared"] == 0, f"left to prepare: {t}")
for left in "true", "false":
    np.save("left.npy", np.array(left == "true"))
    np.save("steps.npy", np.array(3, np.int64))
    same_results("language", sizes=("--dim", "batch=2", "--dim", "seq=5", "--input", "left=left.npy", "--input", "steps=steps.npy"))
same_results("cache", sizes=("--dim", "seq=3", "--dim", "past=4"))
same_results("cache", "--state", "past=present", "--dim", "past=0..64", sizes=("--dim", "seq=3"))
both = same_results("vision", "--target", "cpu,sm_90a", sizes=("--dim", "batch=2"))
check([bool(t["prepare"]) for t in both] == [False, True], "a GPU's weights are prepared at load")
same_results("vision", "--embed", sizes=("--dim", "batch=2"))
damage()
refused()
sys.exit(tool.bad != 0)
