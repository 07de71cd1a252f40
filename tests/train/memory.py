"""What training plans keep for backward: the same weights whatever is computed again, in less memory.

    memory.py GRAPHC
"""
import json, os, subprocess, sys, tempfile
import numpy as np
import onnx
from onnx import helper, numpy_helper
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tool import check, failed

graphc = os.path.abspath(sys.argv[1])
LAYERS, WIDTH, HEADS = 4, 32, 2


def run(*args, status=0):
    p = subprocess.run([graphc, *map(str, args)], capture_output=True, text=True)
    check(p.returncode == status, f"{args}: {p.returncode}, not {status}: {p.stderr[-300:]}")
    return p.stderr if status else p.stdout


def transformer(path):
    """Bytes through layers of causal attention and a gated unit, with norms before both."""
    rng, nodes, weights, count = np.random.default_rng(3), [], {}, [0]

    def op(kind, *ins, **attrs):
        count[0] += 1
        nodes.append(helper.make_node(kind, ins, [f"v{count[0]}"], name=f"n{count[0]}", **attrs))
        return f"v{count[0]}"

    def weight(name, *shape):
        weights[name] = (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        return name

    def constant(name, value):
        weights[name] = np.asarray(value)
        return name

    def norm(x, name):
        weights[f"{name}.weight"], weights[f"{name}.bias"] = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
        return op("LayerNormalization", x, f"{name}.weight", f"{name}.bias", axis=-1)

    heads = constant("heads", np.array([0, 0, HEADS, WIDTH // HEADS]))
    whole, scale = constant("whole", np.array([0, 0, WIDTH])), constant("scale", np.float32((WIDTH // HEADS) ** -0.5))
    size = op("Gather", op("Shape", "input_ids"), constant("one", np.array(1)))
    at = op("Range", constant("zero", np.array(0)), size, "one")
    seen = op("LessOrEqual", op("Unsqueeze", at, constant("axis0", np.array([0]))), op("Unsqueeze", at, constant("axis1", np.array([1]))))
    x = op("Gather", weight("embed.weight", 256, WIDTH), "input_ids")
    for i in range(LAYERS):
        y = norm(x, f"{i}.ln1")
        q, k, v = (op("Transpose", op("Reshape", op("MatMul", y, weight(f"{i}.{n}.weight", WIDTH, WIDTH)), heads), perm=p)
                   for n, p in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])))
        s = op("Where", seen, op("Mul", op("MatMul", q, k), scale), constant("low", np.float32(-np.inf)))
        o = op("Reshape", op("Transpose", op("MatMul", op("Softmax", s, axis=-1), v), perm=[0, 2, 1, 3]), whole)
        x = op("Add", x, op("MatMul", o, weight(f"{i}.o.weight", WIDTH, WIDTH)))
        y = norm(x, f"{i}.ln2")
        g, u = (op("MatMul", y, weight(f"{i}.{n}.weight", WIDTH, 4 * WIDTH)) for n in ("gate", "up"))
        x = op("Add", x, op("MatMul", op("Mul", op("Mul", g, op("Sigmoid", g)), u), weight(f"{i}.down.weight", 4 * WIDTH, WIDTH)))
    nodes.append(helper.make_node("MatMul", [norm(x, "ln"), weight("head.weight", WIDTH, 256)], ["logits"]))
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("input_ids", 7, ["batch", "seq"])],
                          [helper.make_tensor_value_info("logits", 1, ["batch", "seq", 256])],
                          [numpy_helper.from_array(v, k) for k, v in weights.items()])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def arena(tmp, *more):
    """Planned bytes of temporaries."""
    run("train", f"{tmp}/m.onnx", "--loss", "cross_entropy(logits, labels)", "--batch", 4, "--seq", 64, "--plan-only", "-o",
        f"{tmp}/plan", "--cache", f"{tmp}/cache", *more)
    return json.loads(run("inspect", f"{tmp}/plan", "--json"))["memory"]["arena"]


def same_weights(tmp):
    """Nothing computed again gives other digits: losses and weights are the same bits."""
    for precision in ("f32", "bf16"):
        got = {}
        for way in ("none", "auto", "layers"):
            lines = run("train", f"{tmp}/m.onnx", "--loss", "cross_entropy(logits, labels)", "--data", f"{tmp}/ids.bin", "--batch", 4,
                        "--seq", 64, "--steps", 4, "--lr", "1e-2", "--precision", precision, "--checkpoint", way, "-o",
                        f"{tmp}/{precision}-{way}", "--cache", f"{tmp}/cache", "--json")
            losses = [json.loads(l).get("loss") for l in lines.splitlines()]
            got[way] = losses, open(f"{tmp}/{precision}-{way}/model.safetensors", "rb").read()
        check(got["none"] == got["auto"], f"{precision}: {got['none'][0]} and {got['auto'][0]}")
        check(got["none"] == got["layers"], f"{precision}, layers: {got['none'][0]} and {got['layers'][0]}")


def notes(tmp, *more):
    run("train", f"{tmp}/m.onnx", "--loss", "cross_entropy(logits, labels)", "--batch", 4, "--seq", 64, "--plan-only", "-o",
        f"{tmp}/plan", "--cache", f"{tmp}/cache", *more)
    return json.loads(run("explain", f"{tmp}/plan", "--json"))["targets"][0]["notes"]


def peak(lines):
    """Total and parts of the line that tells of the peak."""
    head = [l for l in lines if l.startswith("peak: ")]
    check(len(head) == 1, f"peaks: {head}")
    total, rest = head[0][6:].split(" MB at ", 1)
    return float(total), {k.rsplit(" ", 1)[0]: float(k.rsplit(" ", 1)[1]) for k in rest.split(": ", 1)[1].split(", ")}


def told(tmp):
    """The plan says what its peak is made of, what is kept and what is computed again."""
    lines = notes(tmp)
    total, parts = peak(lines)
    check(abs(total - sum(parts.values())) < 0.01, f"{total} is not the sum of {parts}")
    check(parts["kept for backward"] > 0 and parts["states"] > 0, f"parts: {parts}")
    check(sum(l.startswith("kept: ") for l in lines) >= LAYERS, "values kept")
    check(sum(l.startswith("computed again node") for l in lines) >= LAYERS, "nodes computed again")
    kernels = json.loads(run("explain", f"{tmp}/plan", "--json"))["targets"][0]["entries"][0]["kernels"]
    check(any(n.startswith("backward of node") for k in kernels for n in k["nodes"]), "kernels of backward")
    check(any(n.startswith('update of "0.gate.weight"') for k in kernels for n in k["nodes"]), "kernels of updates")
    return total


def budgets(tmp, total):
    """Met by computing more again, or refused with the least that there is."""
    err = run("train", f"{tmp}/m.onnx", "--loss", "cross_entropy(logits, labels)", "--batch", 4, "--seq", 64, "--plan-only", "-o",
              f"{tmp}/p", "--memory-budget", "1K", status=2)
    check("the least peak found is" in err, err)
    least = int(err.split("the least peak found is ")[1].split()[0].rstrip("."))
    check(least < 0.95e6 * total, f"least {least}, {total} MB without a budget")
    for budget in (least, int((least + 1e6 * total) / 2)):
        got, _ = peak(notes(tmp, "--memory-budget", budget))
        check(got * 1e6 <= budget + 1e3, f"peak {got} MB for a budget of {budget}")
    check(got * 1e6 > least + (budget - least) / 2, f"peak {got} MB for a budget of {budget}, {least} with all layers")
    for bad in ("lots", "-3", "1X", "0"):
        check("no size" in run("train", f"{tmp}/m.onnx", "--loss", "logits", "--plan-only", "-o", "p", "--memory-budget", bad, status=2), bad)


with tempfile.TemporaryDirectory() as tmp:
    transformer(f"{tmp}/m.onnx")
    np.random.default_rng(1).integers(0, 256, 20000).astype(np.uint16).tofile(f"{tmp}/ids.bin")
    kept, again = arena(tmp, "--checkpoint", "none"), arena(tmp)
    check(again < 0.8 * kept, f"arena {again} with what is cheap computed again, {kept} without")
    layers = arena(tmp, "--checkpoint", "layers")
    check(layers < 0.8 * again, f"arena {layers} with whole layers computed again, {again} without")
    budgets(tmp, told(tmp))
    check("none of auto" in run("train", f"{tmp}/m.onnx", "--loss", "logits", "--plan-only", "-o", f"{tmp}/p", "--checkpoint", "some",
                                status=2), "an unknown --checkpoint")
    same_weights(tmp)
sys.exit(failed() > 0)
