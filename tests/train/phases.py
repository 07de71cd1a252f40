"""What acts otherwise in training than in inference, batch normalisation and dropout: graphc train against numpy in f64; and what
cannot be learnt, with its reason.

    phases.py GRAPHC
"""
import json, os, subprocess, sys, tempfile
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import forks
from small import tensors
from tool import check, failed

graphc = os.path.abspath(sys.argv[1])
rng = np.random.default_rng(5)
EPS, MOMENTUM, LR, STEPS = 1e-3, 0.8, 0.1, 3


def close(a, b, tolerance, what):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    ok = a.shape == b.shape and np.all(np.abs(a - b) <= tolerance * (1 + np.abs(b)))
    check(ok, f"{what}: {a.ravel()[:6]} is not {b.ravel()[:6]}")


def run(*args, status=0):
    p = forks.run([graphc, *args])
    check(p.returncode == status, f"{args}: {p.returncode}, not {status}: {p.stderr[-300:]}")
    return p.stderr if status else [json.loads(l) for l in p.stdout.splitlines() if l.startswith("{")]


def save(path, nodes, ins, outs, weights, opset=17):
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(n, 1, s) for n, s in ins],
                          [helper.make_tensor_value_info(n, 1, s) for n, s in outs],
                          [numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in weights.items()])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)


# ---- Batch normalisation: a 1x1 convolution, the norm, the mean over pixels ----

def normed_model(path, marked, opset=17):
    """marked: as a file says that it trains."""
    w = {"conv.weight": rng.standard_normal((5, 3, 1, 1)), "bn.weight": rng.uniform(0.5, 2, 5), "bn.bias": rng.standard_normal(5),
         "bn.running_mean": rng.standard_normal(5) / 4, "bn.running_var": rng.uniform(0.5, 2, 5)}
    attrs = {"training_mode": int(marked)} if opset >= 14 else {}
    outs = ["n", "mean_after", "var_after"] if marked else ["n"]
    nodes = [helper.make_node("Conv", ["x", "conv.weight"], ["c"]),
             helper.make_node("BatchNormalization", ["c", *list(w)[1:]], outs, name="bn", epsilon=EPS, momentum=MOMENTUM, **attrs),
             helper.make_node("Sigmoid", ["n"], ["s"]), helper.make_node("GlobalAveragePool", ["s"], ["p"]),
             helper.make_node("Flatten", ["p"], ["y"])]
    save(path, nodes, [("x", ["batch", 3, 4, 4])], [("y", ["batch", 5])], w, opset)
    return {k: v.astype(np.float32).astype(np.float64) for k, v in w.items()}


def column(v):
    return v[None, :, None, None]


def forward(w, x, trains):
    """The result, and what backward and the running statistics need."""
    c = np.einsum("oc,nchw->nohw", w["conv.weight"][:, :, 0, 0], x)
    mean, var = (c.mean((0, 2, 3)), c.var((0, 2, 3))) if trains else (w["bn.running_mean"], w["bn.running_var"])
    hat = (c - column(mean)) / np.sqrt(column(var) + EPS)
    s = 1 / (1 + np.exp(-(hat * column(w["bn.weight"]) + column(w["bn.bias"]))))
    return s.mean((2, 3)), s, hat, mean, var


def step(w, x, t, trains):
    """One step of gradient descent; the loss before it."""
    y, s, hat, mean, var = forward(w, x, trains)
    dn = (2 * (y - t) / y.size)[:, :, None, None] / 16 * s * (1 - s)
    dhat = dn * column(w["bn.weight"]) / np.sqrt(column(var) + EPS)
    dc = dhat - column(dhat.mean((0, 2, 3))) - hat * column((dhat * hat).mean((0, 2, 3))) if trains else dhat
    w["conv.weight"] -= LR * np.einsum("nohw,nchw->oc", dc, x)[:, :, None, None]
    w["bn.weight"] -= LR * (dn * hat).sum((0, 2, 3))
    w["bn.bias"] -= LR * dn.sum((0, 2, 3))
    if trains:
        w["bn.running_mean"] = w["bn.running_mean"] * MOMENTUM + mean * (1 - MOMENTUM)
        w["bn.running_var"] = w["bn.running_var"] * MOMENTUM + var * (1 - MOMENTUM)
    return np.mean((y - t) ** 2)


def normed(tmp, marked, opset, option):
    name = f"bn marked {marked} opset {opset} {option}"
    out = f"{tmp}/bn_{marked}_{opset}_{option}"
    w = normed_model(f"{tmp}/bn.onnx", marked, opset)
    before = {k: v.copy() for k, v in w.items()}
    x, t = rng.standard_normal((6, 3, 4, 4)), rng.uniform(0, 1, (6, 5))
    x, t = x.astype(np.float32), t.astype(np.float32)
    np.save(f"{tmp}/x.npy", x), np.save(f"{tmp}/t.npy", t)
    files = ["x=" + f"{tmp}/x.npy", "target=" + f"{tmp}/t.npy"]
    more = ["--batch-norm", option] if option else []
    lines = run("train", f"{tmp}/bn.onnx", "--loss", "mse(y, target)", *sum((["--data", f] for f in files), []),
                *sum((["--eval-data", f] for f in files), []), "--batch", 6, "--steps", STEPS, "--lr", LR, "--optimizer", "sgd",
                "--eval-every", 1, "--json", "-o", out, *more)
    trains, losses = option != "frozen", []
    measure = lambda: np.mean((forward(w, x.astype(np.float64), False)[0] - t) ** 2)
    held = [measure()]
    for _ in range(STEPS):
        losses.append(step(w, x.astype(np.float64), t, trains))
        held.append(measure())
    close([l["loss"] for l in lines if "loss" in l], losses, 1e-5, f"{name}: losses")
    close([l["eval_loss"] for l in lines if "eval_loss" in l][:STEPS + 1], held, 1e-5, f"{name}: held-out losses")
    got = tensors(f"{out}/model.safetensors")
    kept = [k for k in w if trains or "running" not in k]
    check(sorted(got) == sorted(kept), f"{name}: the file holds {sorted(got)}")
    for k in kept:
        close(got.get(k, 0), w[k], 1e-5, f"{name}: {k}")
        check(np.abs(w[k] - before[k]).max() > 1e-4, f"{name}: {k} did not move")


def accumulated(tmp):
    """Every batch of a step moves the statistics, as each forward does in training."""
    w = normed_model(f"{tmp}/bn.onnx", False)
    x, t = rng.standard_normal((6, 3, 4, 4)).astype(np.float32), rng.uniform(0, 1, (6, 5)).astype(np.float32)
    np.save(f"{tmp}/x.npy", x), np.save(f"{tmp}/t.npy", t)
    run("train", f"{tmp}/bn.onnx", "--loss", "mse(y, target)", "--data", f"x={tmp}/x.npy", "--data", f"target={tmp}/t.npy",
        "--batch", 3, "--accumulate", 2, "--steps", 1, "--lr", LR, "--optimizer", "sgd", "--no-shuffle", "-o", f"{tmp}/acc")
    for half in (x[:3], x[3:]):
        _, _, _, mean, var = forward(w, half.astype(np.float64), True)
        w["bn.running_mean"] = w["bn.running_mean"] * MOMENTUM + mean * (1 - MOMENTUM)
        w["bn.running_var"] = w["bn.running_var"] * MOMENTUM + var * (1 - MOMENTUM)
    got = tensors(f"{tmp}/acc/model.safetensors")
    for k in ("bn.running_mean", "bn.running_var"):
        close(got[k], w[k], 1e-5, f"two batches a step: {k}")


def no_number(tmp):
    """A batch whose loss is no number moves nothing."""
    w = normed_model(f"{tmp}/bn.onnx", False)
    x, t = rng.standard_normal((6, 3, 4, 4)).astype(np.float32), rng.uniform(0, 1, (6, 5)).astype(np.float32)
    x[3:] = 3e38  # whose mean overflows
    np.save(f"{tmp}/x.npy", x), np.save(f"{tmp}/t.npy", t)
    run("train", f"{tmp}/bn.onnx", "--loss", "mse(y, target)", "--data", f"x={tmp}/x.npy", "--data", f"target={tmp}/t.npy",
        "--batch", 3, "--steps", 2, "--lr", LR, "--optimizer", "sgd", "--no-shuffle", "--on-nan", "skip", "-o", f"{tmp}/nan")
    step(w, x[:3].astype(np.float64), t[:3], True)
    got = tensors(f"{tmp}/nan/model.safetensors")
    for k in w:
        close(got[k], w[k], 1e-5, f"a batch that is no number: {k}")


def shared(tmp):
    """One norm used twice: its statistics move twice, one after the other."""
    w = {"bn.weight": np.ones(4), "bn.bias": np.zeros(4), "bn.running_mean": np.zeros(4), "bn.running_var": np.ones(4)}
    bn = lambda x, y: helper.make_node("BatchNormalization", [x, *w], [y], momentum=MOMENTUM)
    save(f"{tmp}/two.onnx", [bn("x", "a"), helper.make_node("Sigmoid", ["a"], ["b"]), bn("b", "y")], [("x", ["batch", 4])],
         [("y", ["batch", 4])], w)
    x = rng.standard_normal((32, 4)).astype(np.float32) + 3
    np.save(f"{tmp}/x.npy", x), np.save(f"{tmp}/t.npy", np.zeros_like(x))
    run("train", f"{tmp}/two.onnx", "--loss", "mse(y, target)", "--data", f"x={tmp}/x.npy", "--data", f"target={tmp}/t.npy",
        "--batch", 32, "--steps", 1, "--no-shuffle", "-o", f"{tmp}/two")
    x = x.astype(np.float64)
    b = 1 / (1 + np.exp(-(x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)))
    mean = (x.mean(0) * (1 - MOMENTUM)) * MOMENTUM + b.mean(0) * (1 - MOMENTUM)
    var = (MOMENTUM + x.var(0) * (1 - MOMENTUM)) * MOMENTUM + b.var(0) * (1 - MOMENTUM)
    got = tensors(f"{tmp}/two/model.safetensors")
    close(got["bn.running_mean"], mean, 1e-5, "shared statistics: mean")
    close(got["bn.running_var"], var, 1e-5, "shared statistics: variance")


# ---- Dropout: y = Dropout(x * w) of ones, whose gradient shows which elements were dropped ----

def dropout_model(path, form):
    w = {"layer.weight": np.ones((64, 64)), "ratio": np.float32(0.25)}
    ins = ["m", "ratio"] if form == "input" else ["m", "ratio", "yes"] if form == "marked" else ["m"]
    opset = 7 if form == "attribute" else 17
    attrs = {"ratio": 0.25} if opset == 7 else {}
    nodes = [helper.make_node("Mul", ["x", "layer.weight"], ["m"]), helper.make_node("Dropout", ins, ["d"], **attrs),
             helper.make_node("Add", ["d", "d"], ["y"])]
    save(path, nodes, [("x", [1, 64, 64])], [("y", [1, 64, 64])], w, opset)
    if form == "marked":
        model = onnx.load(path)
        model.graph.initializer.append(helper.make_tensor("yes", TensorProto.BOOL, [], [True]))
        onnx.save(model, path)


def dropped(tmp, form):
    dropout_model(f"{tmp}/drop.onnx", form)
    np.save(f"{tmp}/x.npy", np.ones((4, 64, 64), np.float32))

    def steps(name, *more):
        lines = run("train", f"{tmp}/drop.onnx", "--loss", "y", "--data", f"x={tmp}/x.npy", "--eval-data", f"x={tmp}/x.npy",
                    "--batch", 1, "--steps", 2, "--lr", 1e-3, "--optimizer", "sgd", "--eval-every", 2, "--json", "-o",
                    f"{tmp}/{form}_{name}", *more)
        lines = [l for l in lines if "loss" in l or "eval_loss" in l]
        return lines, tensors(f"{tmp}/{form}_{name}/model.safetensors")["layer.weight"].astype(np.float64)

    lines, w = steps("on")
    kept = (1 - w) * 0.75 / 2e-3  # in how many of two steps each element was kept
    close(kept, np.round(kept), 1e-3, f"dropout {form}: gradients are of kept elements")
    check(np.abs(np.bincount(np.round(kept).astype(int).ravel(), minlength=3) / 4096 - [1 / 16, 6 / 16, 9 / 16]).max() < 0.03,
          f"dropout {form}: elements kept in none, one or both of the steps: {np.bincount(np.round(kept).astype(int).ravel())}")
    losses = [l["loss"] for l in lines if "loss" in l]
    share = losses[0] / 2 / 4096 * 0.75
    check(abs(share - 0.75) < 0.03 and share != 0.75, f"dropout {form}: {share} of the elements are kept")
    second = 2 / 0.75 * (np.round(kept).sum() - share * 4096)  # the second step keeps the others of those counted
    check(abs(losses[1] - second) < 0.01 * second, f"dropout {form}: losses {losses}: gradients drop what forward dropped")
    held = [l["eval_loss"] for l in lines if "eval_loss" in l][-1]
    close(held, 2 * w.sum(), 1e-5, f"dropout {form}: evaluation drops nothing")
    check(np.array_equal(steps("again", "--threads", 3)[1], w), f"dropout {form}: the same run again")
    check(not np.array_equal(steps("other", "--seed", 3)[1], w), f"dropout {form}: another seed")
    lines, w = steps("off", "--dropout", "off")
    close(w, np.full((64, 64), 1 - 4e-3), 1e-6, f"dropout {form}: off")


def two_nodes(tmp):
    """Nodes of one shape draw numbers of their own."""
    nodes = [helper.make_node("Mul", ["x", "layer.weight"], ["m"])]
    nodes += [helper.make_node("Dropout", ["m", "ratio"], [f"d{i}"]) for i in range(2)]
    nodes += [helper.make_node("Add", ["d0", "d1"], ["y"])]
    save(f"{tmp}/both.onnx", nodes, [("x", [1, 64])], [("y", [1, 64])], {"layer.weight": np.ones(64), "ratio": np.float32(0.5)})
    np.save(f"{tmp}/x.npy", np.ones((1, 64), np.float32))
    run("train", f"{tmp}/both.onnx", "--loss", "y", "--data", f"x={tmp}/x.npy", "--batch", 1, "--steps", 1, "--lr", 1, "--optimizer",
        "sgd", "-o", f"{tmp}/both")
    w = tensors(f"{tmp}/both/model.safetensors")["layer.weight"]
    check(sorted(set(np.round((1 - w) / 2).astype(int).tolist())) == [0, 1, 2], f"two nodes drop alike: {w}")


# ---- What cannot be ----

def refused(tmp):
    w = {"bn.weight": np.ones(4), "bn.bias": np.zeros(4)}
    fixed = [helper.make_node("Constant", [], [n], value_floats=[v] * 4) for n, v in (("mean", 0.0), ("var", 1.0))]
    save(f"{tmp}/fixed.onnx", fixed + [helper.make_node("BatchNormalization", ["x", *w, "mean", "var"], ["y"], name="/bn")],
         [("x", ["batch", 4])], [("y", ["batch", 4])], w)
    np.save(f"{tmp}/x.npy", rng.standard_normal((4, 4)).astype(np.float32)), np.save(f"{tmp}/t.npy", np.zeros((4, 4), np.float32))
    data = ["--loss", "mse(y, target)", "--data", f"x={tmp}/x.npy", "--data", f"target={tmp}/t.npy", "--batch", 4, "--steps", 1]
    err = run("train", f"{tmp}/fixed.onnx", *data, "-o", f"{tmp}/none", status=4)
    check("BatchNormalization" in err and "no initializers" in err and "--batch-norm frozen" in err, err)
    run("train", f"{tmp}/fixed.onnx", *data, "-o", f"{tmp}/frozen", "--batch-norm", "frozen")
    n, info = helper.make_node, helper.make_tensor_value_info
    body = [n("Dropout", ["h"], ["d"], name="/drop"), n("Add", ["d", "d"], ["e"]), n("ReduceSum", ["e"], ["s"], keepdims=0),
            n("Less", ["s", "most"], ["again"])]
    body = helper.make_graph(body, "body", [info("i", 7, []), info("go", 9, []), info("h", 1, ["batch", 4])],
                             [info("again", 9, []), info("e", 1, ["batch", 4])])
    save(f"{tmp}/branch.onnx", [n("Mul", ["x", "w.weight"], ["h0"]), n("Loop", ["", "", "h0"], ["y"], body=body)],
         [("x", ["batch", 4])], [("y", ["batch", 4])], {"w.weight": np.ones(4), "most": np.float32(50)})
    np.save(f"{tmp}/x.npy", rng.uniform(0.5, 1, (4, 4)).astype(np.float32))
    err = run("train", f"{tmp}/branch.onnx", *data, "-o", f"{tmp}/none", status=4)
    check("Dropout" in err and "inside of a loop or a branch" in err and "--dropout off" in err, err)
    err = run("train", f"{tmp}/fixed.onnx", *data, "-o", f"{tmp}/none", "--batch-norm", "maybe", status=2)
    check("--batch-norm is train or frozen" in err, err)
    err = run("train", f"{tmp}/fixed.onnx", *data, "-o", f"{tmp}/none", "--dropout", "0.5", status=2)
    check("--dropout is on or off" in err, err)


def no_gradient(tmp):
    """What stands between a weight and the loss is named: as an error where it has no derivative, as a warning where it is zero."""
    n = helper.make_node
    w = {"a.weight": np.ones(4), "b.weight": np.ones(4), "c.weight": np.ones(4)}

    def model(name, *middle, opset=17):
        nodes = [n("Mul", ["x", "a.weight"], ["xa"]), *middle, n("Mul", ["m", "b.weight"], ["y"]), n("Neg", ["c.weight"], ["unused"])]
        save(f"{tmp}/{name}.onnx", nodes, [("x", ["batch", 4])], [("y", ["batch", 4])], w, opset)
        return ["train", f"{tmp}/{name}.onnx", "--loss", "mse(y, target)", "--data", f"x={tmp}/x.npy", "--data", f"target={tmp}/t.npy",
                "--batch", 4, "--steps", 1]

    np.save(f"{tmp}/x.npy", rng.standard_normal((4, 4)).astype(np.float32)), np.save(f"{tmp}/t.npy", np.zeros((4, 4), np.float32))
    bits = [n("BitCast", ["h"], ["g"], name="/bits", to=TensorProto.BFLOAT16), n("Cast", ["g"], ["m"], to=1)]
    half = n("Cast", ["xa"], ["h"], to=TensorProto.FLOAT16)
    err = run(*model("bits", half, *bits, opset=26), "-o", f"{tmp}/none", status=4)
    check('node 2 "/bits" BitCast: bitcast lies between' in err, err)
    p = subprocess.run([graphc, *map(str, model("round", n("Round", ["xa"], ["m"], name="/round"))), "-o", f"{tmp}/round"],
                       capture_output=True, text=True)
    check(p.returncode == 0 and "a.weight: " in p.stderr and 'ends at node 1 "/round" Round' in p.stderr, p.stderr)
    check("c.weight: the loss does not depend on it" in p.stderr and "b.weight" not in p.stderr, p.stderr)
    got = tensors(f"{tmp}/round/model.safetensors")
    check(sorted(got) == ["b.weight"], f"what has no gradient is no parameter: {sorted(got)}")
    err = run(*model("round", n("Round", ["xa"], ["m"])), "--train", "a.weight", "-o", f"{tmp}/none", status=4)
    check("nothing that is to be trained has a gradient" in err and "a.weight: " in err, err)


def learnt(tmp):
    """What stands where weights do is learnt whatever its name: queries, keys and values, a bias. What is not is named."""
    n = helper.make_node
    w = {"q": rng.standard_normal((4, 4)), "k": rng.standard_normal((6, 4)), "v": rng.standard_normal((6, 4)), "w": rng.standard_normal((4, 4)),
         "b": rng.standard_normal(4), "gain": np.ones(4), "half": np.float32(0.5), "inv_freq": rng.standard_normal((4, 1)), "mask": np.zeros((4, 4))}
    nodes = [n("Transpose", ["k"], ["kt"], perm=[1, 0]), n("MatMul", ["q", "kt"], ["s"]), n("Softmax", ["s"], ["p"], axis=-1),
             n("MatMul", ["p", "v"], ["o"]), n("MatMul", ["x", "w"], ["xw"]), n("Add", ["b", "xw"], ["xb"]), n("Add", ["xb", "o"], ["m"]),
             n("Mul", ["m", "gain"], ["mg"]), n("Mul", ["mg", "half"], ["mh"]), n("ReduceMean", ["x"], ["row"], axes=[0], keepdims=1),
             n("MatMul", ["inv_freq", "row"], ["angle"]), n("Add", ["angle", "mask"], ["am"]), n("Add", ["mh", "am"], ["y"])]
    save(f"{tmp}/learnt.onnx", nodes, [("x", [4, 4])], [("y", [4, 4])], w, 17)
    np.save(f"{tmp}/x.npy", rng.standard_normal((4, 4)).astype(np.float32)), np.save(f"{tmp}/t.npy", np.zeros((4, 4), np.float32))
    command = ["train", f"{tmp}/learnt.onnx", "--loss", "mse(y, target)", "--data", f"x={tmp}/x.npy", "--data", f"target={tmp}/t.npy",
               "--batch", 4, "--steps", 1]
    for more, names, said in (([], ["b", "k", "q", "v", "w"], "gain, inv_freq, mask: not multiplied"),
                              (["--freeze", "gain|mask|w"], ["b", "k", "q", "v"], "inv_freq: not multiplied"), (["--train", "k|gain"], ["gain", "k"], None)):
        folder = f"{tmp}/learnt{len(more)}{len(names)}"
        p = subprocess.run([graphc, *map(str, command), *more, "-o", folder], capture_output=True, text=True)
        got = sorted(tensors(f"{folder}/model.safetensors")) if p.returncode == 0 else p.stderr
        check(got == names, f"learnt by default, {more}: {got}")
        check(said in p.stderr if said else "G0307" not in p.stderr, f"{more}: {p.stderr}")


with tempfile.TemporaryDirectory() as tmp:
    for marked, opset, option in ((False, 17, None), (True, 17, None), (False, 17, "train"), (False, 9, None), (True, 9, None),
                                  (False, 17, "frozen"), (True, 17, "frozen")):
        normed(tmp, marked, opset, option)
    accumulated(tmp)
    no_number(tmp)
    shared(tmp)
    for form in ("input", "marked", "attribute"):
        dropped(tmp, form)
    two_nodes(tmp)
    refused(tmp)
    no_gradient(tmp)
    learnt(tmp)
sys.exit(failed() != 0)
