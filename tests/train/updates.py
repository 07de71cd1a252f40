"""Losses and optimizers of graphc train, each from the command line, against f64 in numpy; with PyTorch, where it is
installed, that against PyTorch's own values too.

    updates.py GRAPHC
"""
import json, os, subprocess, sys, tempfile
import numpy as np
import onnx
from onnx import helper, numpy_helper
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import beside_torch
import forks
from small import tensors
from tool import check, failed

if "--some" not in sys.argv:
    beside_torch.go_on(("torch", "onnx"), needed=False)
try:
    import torch
    torch.set_num_threads(1)
except ImportError:
    torch = None

graphc = os.path.abspath(sys.argv[1])
rng = np.random.default_rng(11)
ROWS, IN, OUT = 24, 16, 7


def close(a, b, tolerance, what):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    check(a.shape == b.shape and np.all(np.abs(a - b) <= tolerance * (1 + np.abs(b))), f"{what}: off by {np.abs(a - b).max():.2e}")


def model(path, weights, build=None):
    """y = x W + b, or what `build` makes of these names."""
    nodes = build or [helper.make_node("MatMul", ["x", "w.weight"], ["a"]), helper.make_node("Add", ["a", "w.bias"], ["y"])]
    io = [helper.make_tensor_value_info("x", 1, ["batch", weights["w.weight"].shape[0]]),
          helper.make_tensor_value_info("y", 1, ["batch", weights["w.weight"].shape[1]])]
    g = helper.make_graph(nodes, "g", io[:1], io[1:], [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def run(*args, status=0):
    p = forks.run([graphc, *args])
    check(p.returncode == status, f"{args}: {p.returncode}, not {status}: {p.stderr[-300:]}")
    return p.stderr if status else [json.loads(l) for l in p.stdout.splitlines()]


# --- Losses ---------------------------------------------------------------------------------------------------------

def log_softmax(y):
    y = y - y.max(1, keepdims=True)
    return y - np.log(np.exp(y).sum(1, keepdims=True))


def cross_entropy(y, t, ignore=-100, smoothing=0, z=0, weights=None):
    """Smoothing spreads to each class by its own weight, as PyTorch does."""
    lp, lse = log_softmax(y), y.max(1) + np.log(np.exp(y - y.max(1, keepdims=True)).sum(1))
    keep = t != ignore
    each = np.ones(y.shape[1]) if weights is None else weights
    w = keep * each[np.where(keep, t, 0)]
    row = -(1 - smoothing) * lp[np.arange(len(t)), np.where(keep, t, 0)] + z * lse * lse
    return ((w * row).sum() - smoothing * (keep[:, None] * each * lp).mean(1).sum()) / w.sum()


def huber(d, delta):
    return np.where(np.abs(d) <= delta, d * d / 2, delta * (np.abs(d) - delta / 2)).mean()


real = rng.standard_normal((ROWS, OUT)).astype(np.float32)
part = (1 / (1 + np.exp(-real))).astype(np.float32)
share = (part / part.sum(1, keepdims=True)).astype(np.float32)
label = rng.integers(0, OUT, ROWS)
label[[2, 9, 17]] = -100
other = np.where(label == -100, 3, label)
rates = (0.25 + rng.random(OUT)).astype(np.float32)
F = torch.nn.functional if torch else None
T = lambda a: torch.tensor(a.astype(np.float64) if a.dtype.kind == "f" else a)

# what is said on the command line, the target, numpy's f64, PyTorch's own
LOSSES = (
    ("y", None, lambda y, t: y.sum(), lambda y, t: y.sum()),
    ("mse(y, t)", real, lambda y, t: ((y - t) ** 2).mean(), lambda y, t: F.mse_loss(y, t)),
    ("l1(y, t)", real, lambda y, t: np.abs(y - t).mean(), lambda y, t: F.l1_loss(y, t)),
    ("huber(y, t)", real, lambda y, t: huber(y - t, 1), lambda y, t: F.huber_loss(y, t)),
    ("huber(y, t, delta=0.3)", real, lambda y, t: huber(y - t, .3), lambda y, t: F.huber_loss(y, t, delta=.3)),
    ("bce(y, t)", part, lambda y, t: (np.logaddexp(0, y) - y * t).mean(), lambda y, t: F.binary_cross_entropy_with_logits(y, t)),
    ("kl(y, t)", share, lambda y, t: (t * (np.log(t) - y)).sum() / len(t), lambda y, t: F.kl_div(y, t, reduction="batchmean")),
    ("cross_entropy(y, t)", label, cross_entropy, lambda y, t: F.cross_entropy(y, t)),
    ("cross_entropy(y, t, ignore=3)", other, lambda y, t: cross_entropy(y, t, 3), lambda y, t: F.cross_entropy(y, t, ignore_index=3)),
    ("cross_entropy(y, t, smoothing=0.1)", label, lambda y, t: cross_entropy(y, t, smoothing=.1),
     lambda y, t: F.cross_entropy(y, t, label_smoothing=.1)),
    ("cross_entropy(y, t, z=1e-2)", label, lambda y, t: cross_entropy(y, t, z=1e-2),
     lambda y, t: F.cross_entropy(y, t) + 1e-2 * (torch.logsumexp(y[t != -100], 1) ** 2).mean()),
    ("cross_entropy(y, t, weights=rates.npy)", label, lambda y, t: cross_entropy(y, t, weights=rates.astype(np.float64)),
     lambda y, t: F.cross_entropy(y, t, weight=T(rates))),
    ("cross_entropy(y, t, weights=rates.npy, smoothing=0.1)", label,
     lambda y, t: cross_entropy(y, t, smoothing=.1, weights=rates.astype(np.float64)),
     lambda y, t: F.cross_entropy(y, t, weight=T(rates), label_smoothing=.1)),
    ("cross_entropy(y, t, weights=rates.npy, smoothing=0.1, z=1e-2)", label,
     lambda y, t: cross_entropy(y, t, smoothing=.1, z=1e-2, weights=rates.astype(np.float64)),
     lambda y, t: F.cross_entropy(y, t, weight=T(rates), label_smoothing=.1) +
     1e-2 * (T(rates)[t.clamp(0)] * torch.logsumexp(y, 1) ** 2)[t != -100].sum() / T(rates)[t[t != -100]].sum()),
)


def slopes(f, w, h=1e-6):
    """Central differences of f by every element of w, in f64."""
    out = np.zeros(w.shape)
    for i in np.ndindex(w.shape):
        up, down = w.copy(), w.copy()
        up[i] += h
        down[i] -= h
        out[i] = (f(up) - f(down)) / (2 * h)
    return out


def losses():
    w = {"w.weight": (rng.standard_normal((IN, OUT)) / 3).astype(np.float32), "w.bias": np.zeros(OUT, np.float32)}
    x = rng.standard_normal((ROWS, IN)).astype(np.float32)
    model("m.onnx", w)
    np.save("x.npy", x), np.save("rates.npy", rates)
    for spec, t, plain, theirs in LOSSES:
        args = ["--data", "x=x.npy"]
        if t is not None:
            np.save("t.npy", t)
            args += ["--data", "t=t.npy"]
        w64, x64 = w["w.weight"].astype(np.float64), x.astype(np.float64)
        t64 = t if t is None or t.dtype.kind == "i" else t.astype(np.float64)
        grad = slopes(lambda v: plain(x64 @ v, t64), w64)
        line = run("train", "m.onnx", "--loss", spec, *args, "--batch", ROWS, "--no-shuffle", "--steps", 1, "--lr", 1, "--optimizer",
                   "sgd", "--train", "w.weight", "--json", "-o", f"loss{LOSSES.index((spec, t, plain, theirs))}")[0]
        got = tensors(f"loss{LOSSES.index((spec, t, plain, theirs))}/model.safetensors")["w.weight"]
        close(line["loss"], plain(x64 @ w64, t64), 1e-6, f"{spec}: loss")
        close(line["grad_norm"], np.sqrt((grad ** 2).sum()), 2e-6, f"{spec}: norm of the gradient")
        close(w64 - got, grad, 2e-6, f"{spec}: gradient")
        if torch:
            v = T(w64).requires_grad_()
            own = theirs(T(x64) @ v, None if t is None else T(t))
            own.backward()
            close(plain(x64 @ w64, t64), own.item(), 1e-12, f"{spec}: PyTorch's loss")
            close(grad, v.grad.numpy(), 1e-7, f"{spec}: PyTorch's gradient")


# --- Optimizers -----------------------------------------------------------------------------------------------------

def code(signs):
    """What bitsandbytes' create_dynamic_map gives."""
    v = [0., 1.]
    for i in range(7):
        n = 2 ** i if signs else 2 ** (i + 1)
        edge = np.linspace(.1, 1, n + 1)
        part = (edge[1:] + edge[:-1]) / 2 * 10. ** (i - 6)
        v += [*part, *(-part if signs else ())]
    return np.sort(np.array(v, np.float32)).astype(np.float64)


class Blocks:
    """A moment in 8 bits, 256 numbers a block; a number keeps its sign."""

    def __init__(self, n, signs):
        self.code, self.signs, self.n = code(signs), signs, n
        self.q, self.top = np.zeros((-(-n // 256), 256), int), np.zeros(-(-n // 256))

    def read(self):
        return (self.code[self.q] * self.top[:, None]).ravel()[:self.n]

    def write(self, x):
        x = np.pad(x, (0, self.q.size - self.n)).reshape(self.q.shape)
        self.top = np.abs(x).max(1)
        unit = x / np.maximum(self.top, 1e-38)[:, None]
        self.q = np.searchsorted((self.code[1:] + self.code[:-1]) / 2, unit)
        if self.signs:
            self.q -= (unit < 0) & (self.q == 127)


def step_of(kind, o):
    """One step of a parameter in f64: (p, gradient, state, number) -> p."""
    lr, b1, b2, eps, wd = o["lr"], o.get("b1", .9), o.get("b2", .999 if kind != "lion" else .99), 1e-8, o.get("wd", .01)

    def sgd(p, g, s, k):
        g = g + o.get("wd", 0) * p
        s["m"] = o.get("mu", 0) * s.get("m", 0) + g
        return p - lr * (g + o["mu"] * s["m"] if o.get("nesterov") else s["m"])

    def adamw(p, g, s, k):
        s["m"], s["v"] = b1 * s.get("m", 0) + (1 - b1) * g, b2 * s.get("v", 0) + (1 - b2) * g * g
        return p * (1 - lr * wd) - lr / (1 - b1 ** k) * s["m"] / (np.sqrt(s["v"] / (1 - b2 ** k)) + eps)

    def adamw8bit(p, g, s, k):
        if p.size < 4096:
            return adamw(p, g, s, k)
        if not s:
            s["m"], s["v"] = Blocks(p.size, True), Blocks(p.size, False)
        f = g.ravel()
        m, v = b1 * s["m"].read() + (1 - b1) * f, b2 * s["v"].read() + (1 - b2) * f * f
        s["m"].write(m), s["v"].write(v)
        move = lr / (1 - b1 ** k) * m / (np.sqrt(v / (1 - b2 ** k)) + eps)
        return (p - move.reshape(p.shape)) * (1 - lr * wd)

    def lion(p, g, s, k):
        way = np.sign(b1 * s.get("m", 0) + (1 - b1) * g)
        s["m"] = b2 * s.get("m", 0) + (1 - b2) * g
        return p * (1 - lr * o.get("wd", 0)) - lr * way

    return locals()[kind]


OPTIMIZERS = (
    ("sgd", [], {"lr": .05}, lambda p, o: torch.optim.SGD(p, lr=.05)),
    ("sgd", ["--momentum", .9, "--weight-decay", .1, "--clip", .05], {"lr": .02, "mu": .9, "wd": .1, "clip": .05},
     lambda p, o: torch.optim.SGD(p, lr=.02, momentum=.9, weight_decay=.1)),
    ("sgd", ["--momentum", .8, "--nesterov"], {"lr": .02, "mu": .8, "nesterov": True},
     lambda p, o: torch.optim.SGD(p, lr=.02, momentum=.8, nesterov=True)),
    ("adamw", [], {"lr": .01}, lambda p, o: torch.optim.AdamW(p, lr=.01)),
    ("adamw", ["--beta1", .8, "--beta2", .95, "--weight-decay", .2, "--no-decay", "vectors"],
     {"lr": .01, "b1": .8, "b2": .95, "wd": .2, "none": ["w.bias"]},
     lambda p, o: torch.optim.AdamW([{"params": p[:1]}, {"params": p[1:], "weight_decay": 0}], lr=.01, betas=(.8, .95), weight_decay=.2)),
    ("adamw", ["--weight-decay", .3, "--no-decay", "w.w.*", "--clip", .05], {"lr": .01, "wd": .3, "none": ["w.weight"], "clip": .05},
     lambda p, o: torch.optim.AdamW([{"params": p[:1], "weight_decay": 0}, {"params": p[1:]}], lr=.01, weight_decay=.3)),
    ("lion", ["--weight-decay", .1], {"lr": .003, "wd": .1}, None),
    ("adamw8bit", [], {"lr": .01}, None),
)
STEPS, BATCH, WIDE = 24, 8, (30, 150)  # 4500 elements: 17.6 blocks


def batches():
    x = rng.standard_normal((STEPS * BATCH, WIDE[0])).astype(np.float32)
    t = np.tanh(x @ rng.standard_normal(WIDE)).astype(np.float32)
    np.save("ox.npy", x), np.save("ot.npy", t)
    return x.astype(np.float64), t.astype(np.float64)


def gradients(w, x, t):
    d = x @ w["w.weight"] + w["w.bias"] - t
    return {"w.weight": 2 * x.T @ d / d.size, "w.bias": 2 * d.sum(0) / d.size}, (d * d).mean()


def plain_steps(kind, o, start, x, t):
    w, kept, losses = {k: v.astype(np.float64) for k, v in start.items()}, {k: {} for k in start}, []
    for k in range(STEPS):
        g, loss = gradients(w, x[k * BATCH:][:BATCH], t[k * BATCH:][:BATCH])
        losses.append(loss)
        scale = min(1, o["clip"] / (np.sqrt(sum((q * q).sum() for q in g.values())) + 1e-6)) if "clip" in o else 1
        for n in w:
            w[n] = step_of(kind, {**o, "wd": 0} if n in o.get("none", ()) else o)(w[n], g[n] * scale, kept[n], k + 1)
    return losses, w, kept


def torch_steps(make, o, start, x, t):
    p = [T(start[k]).requires_grad_() for k in ("w.weight", "w.bias")]
    opt, losses = make(p, o), []
    for k in range(STEPS):
        opt.zero_grad()
        loss = ((T(x[k * BATCH:][:BATCH]) @ p[0] + p[1] - T(t[k * BATCH:][:BATCH])) ** 2).mean()
        loss.backward()
        if "clip" in o:
            torch.nn.utils.clip_grad_norm_(p, o["clip"])
        opt.step()
        losses.append(loss.item())
    return losses, {"w.weight": p[0].detach().numpy(), "w.bias": p[1].detach().numpy()}


def optimizers():
    start = {"w.weight": (rng.standard_normal(WIDE) / 6).astype(np.float32), "w.bias": (rng.standard_normal(WIDE[1]) / 6).astype(np.float32)}
    model("o.onnx", start)
    x, t = batches()
    for i, (kind, args, o, make) in enumerate(OPTIMIZERS):
        what = f"{kind} {' '.join(map(str, args))}"
        losses, want, kept = plain_steps(kind, o, start, x, t)
        lines = run("train", "o.onnx", "--loss", "mse(y, t)", "--data", "x=ox.npy", "--data", "t=ot.npy", "--batch", BATCH, "--no-shuffle",
                    "--steps", STEPS, "--lr", o["lr"], "--optimizer", kind, *args, "--json", "-o", f"opt{i}")
        got = tensors(f"opt{i}/model.safetensors")
        # A sign or a code may turn on the last bit of a gradient.
        rough = 2e-3 if kind in ("lion", "adamw8bit") else 2e-5
        close([l["loss"] for l in lines], losses, rough, f"{what}: losses")
        for k in want:
            off = np.abs(got[k] - want[k])
            check(off.mean() <= (1e-5 if kind in ("lion", "adamw8bit") else 1e-6) and (rough > 1e-3 or off.max() <= rough),
                  f"{what}: {k} is off by {off.mean():.1e}, {off.max():.1e}")
        if torch and make:
            theirs, own = torch_steps(make, o, start, x, t)
            close(losses, theirs, 1e-9, f"{what}: PyTorch's losses")
            for k in want:
                close(want[k], own[k], 1e-9, f"{what}: PyTorch's {k}")
        if kind == "adamw8bit":
            eight_bits(tensors(f"opt{i}/checkpoints/step-{STEPS:08}/state.safetensors"), kept)


def eight_bits(state, kept):
    """The states in the checkpoint: codes and scales as bitsandbytes reads them; vectors stay f32."""
    check(state["w.bias.m"].dtype == np.float32 and state["w.bias.m"].shape == (WIDE[1],), "a short parameter's moments")
    for m, signs in (("m", True), ("v", False)):
        q, top, want = state[f"w.weight.{m}"], state[f"w.weight.{m}.absmax"], kept["w.weight"][m]
        check(q.dtype == np.uint8 and q.shape == (18, 256) and top.shape == (18,), f"8 bits: {m} is {q.dtype}{q.shape}")
        close(top, want.top, 1e-3, f"8 bits: scales of {m}")
        far = np.abs(q.astype(int) - want.q)
        check((far <= 1).mean() > 0.99 and (far == 0).mean() > 0.9, f"8 bits: codes of {m}, {(far > 0).sum()} differ, by {far.max()}")


# --- Numbers that are none ------------------------------------------------------------------------------------------

def not_finite():
    """A gradient that overflows: the step changes nothing, or ends the run and is told."""
    w = {"w.weight": rng.standard_normal((4, 3)).astype(np.float32), "w.bias": np.zeros(3, np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w.weight"], ["a"]), helper.make_node("Add", ["a", "w.bias"], ["b"], name="sums"),
             helper.make_node("Exp", ["b"], ["y"], name="grows")]
    model("n.onnx", w, nodes)
    x = rng.standard_normal((20, 4)).astype(np.float32)
    x[8:12] *= 1e4  # the third of five batches
    np.save("nx.npy", x), np.save("nt.npy", np.zeros((20, 3), np.float32))
    args = ["train", "n.onnx", "--loss", "mse(y, t)", "--data", "x=nx.npy", "--data", "t=nt.npy", "--batch", 4, "--no-shuffle",
            "--steps", 5, "--lr", "1e-3", "--save-every", 1]
    lines = run(*args, "--on-nan", "skip", "--json", "-o", "skip")
    check([l.get("skipped", False) for l in lines] == [False, False, True, False, False], f"skipped: {lines}")
    check(lines[2]["loss"] is None, "a loss that is no number is null")
    kept = [tensors(f"skip/checkpoints/step-{s:08}/state.safetensors") for s in (4, 5) if os.path.exists(f"skip/checkpoints/step-{s:08}")]
    check(all(k["skipped"] == 1 for k in kept) and np.isfinite(tensors("skip/model.safetensors")["w.weight"]).all(), "weights after a skipped step")
    rest = x[np.r_[0:8, 12:20]]
    np.save("rx.npy", rest), np.save("rt.npy", np.zeros((16, 3), np.float32))
    run("train", "n.onnx", "--loss", "mse(y, t)", "--data", "x=rx.npy", "--data", "t=rt.npy", "--batch", 4, "--no-shuffle", "--steps", 4,
        "--lr", "1e-3", "--on-nan", "skip", "--json", "-o", "rest")
    same = [tensors(f"{d}/model.safetensors") for d in ("skip", "rest")]
    check(all(np.array_equal(same[0][k], same[1][k]) for k in same[0]), "a skipped step leaves a trace")
    for more in ([], ["--clip", 1], ["--on-nan", "stop", "--accumulate", 1]):
        err = run(*args, *more, "-o", f"stop{len(more)}", status=5)
        check("step 3: the loss is inf" in err and "first in kernel" in err and '"grows" Exp' in err, f"what is told: {err}")
    # The loss is a number, its gradient is none: without a guard it is too late to look.
    roots = [helper.make_node("MatMul", ["x", "w.weight"], ["a"]), helper.make_node("Sqrt", ["a"], ["y"])]
    model("r.onnx", {"w.weight": np.ones((4, 3), np.float32)}, roots)
    np.save("zx.npy", np.vstack([np.ones((4, 4)), np.zeros((4, 4))]).astype(np.float32))
    args = ["train", "r.onnx", "--loss", "y", "--data", "x=zx.npy", "--batch", 4, "--no-shuffle", "--steps", 2, "--lr", "1e-3"]
    check("--on-nan skip" in run(*args, "-o", "roots", status=5), "gradients that are no numbers, without a guard")
    err = run(*args, "--clip", 1, "-o", "roots2", status=5)
    check("step 2: the loss is 0" in err and "first in kernel" in err, f"gradients that are no numbers: {err}")
    run(*args, "--on-nan", "skip", "--json", "-o", "roots3")
    check(np.isfinite(tensors("roots3/model.safetensors")["w.weight"]).all(), "weights after gradients that are no numbers")
    err = run(*args, "--resume", "-o", "roots3", status=2)
    check("--on-nan was skip, is stop" in err, err)
    check("--on-nan is stop or skip" in run(*args, "--on-nan", "go", "-o", "none", status=2), "--on-nan go")


def scaled():
    """f16: a scale that is too large is halved until gradients fit, a good one doubles; the course is that of f32."""
    args = ["train", "o.onnx", "--loss", "mse(y, t)", "--data", "x=ox.npy", "--data", "t=ot.npy", "--batch", BATCH, "--no-shuffle",
            "--steps", STEPS, "--lr", "1e-3", "--json"]
    f32 = run(*args, "-o", "f32")
    one = run(*args, "--precision", "f16", "-o", "f16")
    check(all(l["loss_scale"] == 65536 for l in one) and "loss_scale" not in f32[0], f"the first scale: {one[0]}")
    close([l["loss"] for l in one], [l["loss"] for l in f32], 2e-3, "f16: losses")
    close([l["grad_norm"] for l in one], [l["grad_norm"] for l in f32], 2e-3, "f16: norms")
    big = run(*args, "--precision", "f16", "--loss-scale", 2.0 ** 25, "--scale-every", 5, "-o", "big")
    scales, skipped = [l["loss_scale"] for l in big], [l.get("skipped", False) for l in big]
    good = 0
    for k in range(1, STEPS):
        good = 0 if skipped[k - 1] else good + 1
        want = scales[k - 1] / 2 if skipped[k - 1] else scales[k - 1] * (2 if good == 5 else 1)
        good %= 5
        check(scales[k] == want, f"step {k + 1}: a scale of {scales[k]}, not {want}")
    check(skipped[0] and not all(skipped) and max(i for i in range(STEPS) if skipped[i]) > min(i for i in range(STEPS) if not skipped[i]),
          f"overflow, room, and overflow again: {skipped}")
    none = run(*args, "--precision", "f16", "--loss-scale", 0, "-o", "none16")
    check("loss_scale" not in none[0], "--loss-scale 0")
    parts = run(*args[:-1], "--precision", "f16", "--accumulate", 2, "--batch", BATCH // 2, "-o", "acc16", "--json")
    close([l["loss"] for l in parts], [l["loss"] for l in f32], 2e-3, "f16, two batches a step: losses")
    close([l["grad_norm"] for l in parts], [l["grad_norm"] for l in f32], 2e-3, "f16, two batches a step: norms")


def heads():
    """The head's rows taken apart: the course of all at once; and logits of no part are larger than it."""
    w = {"up.weight": rng.standard_normal((IN, 20)) / 3, "w.weight": rng.standard_normal((20, OUT)) / 3, "w.bias": rng.standard_normal(OUT)}
    node = helper.make_node
    nodes = [node("MatMul", ["x", "up.weight"], ["a"]), node("Tanh", ["a"], ["h"]), node("MatMul", ["h", "w.weight"], ["b"]),
             node("Add", ["b", "w.bias"], ["c"]), node("Tanh", ["c"], ["d"]), node("Mul", ["d", "cap"], ["y"])]
    io = [helper.make_tensor_value_info(n, 1, ["batch", s]) for n, s in (("x", IN), ("y", OUT))]
    weights = [numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in (w | {"cap": np.float32(5)}).items()]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", io[:1], io[1:], weights), opset_imports=[helper.make_opsetid("", 17)],
                                ir_version=8), "h.onnx")
    np.save("hx.npy", rng.standard_normal((ROWS, IN)).astype(np.float32)), np.save("ht.npy", label)
    for i, (spec, more) in enumerate((("", []), (", smoothing=0.1, z=1e-2, weights=rates.npy", ["--clip", 1]), (", smoothing=0.2", ["--freeze", "w.*"]),
                                      ("", ["--freeze", "up.weight"]), ("", ["--accumulate", 2]), ("", ["--precision", "f16", "--loss-scale", 64]))):
        batch = ROWS // 2 if "--accumulate" in more else ROWS
        args = ["train", "h.onnx", "--loss", f"cross_entropy(y, t{spec})", "--data", "x=hx.npy", "--data", "t=ht.npy", "--batch", batch,
                "--no-shuffle", "--steps", 4, "--lr", "1e-2", "--eval-data", "x=hx.npy", "--eval-data", "t=ht.npy", "--json", *more]
        whole, parts = run(*args, "-o", f"whole{i}"), run(*args, "--head-rows", 5, "--dump-ir", f"parts{i}.ir", "-o", f"parts{i}")
        tolerance = 2e-3 if "f16" in more else 2e-6
        for key in ("loss", "grad_norm", "eval_loss"):
            close([l[key] for l in parts if key in l], [l[key] for l in whole if key in l], tolerance, f"parts of a head {more}: {key}")
        a, b = (tensors(f"{d}{i}/model.safetensors") for d in ("whole", "parts"))
        for k in a:
            close(b[k], a[k], 3e-2 if "f16" in more else 2e-4, f"parts of a head {more}: {k}")
        graph = open(f"parts{i}.ir/pre-fusion.gir").read()
        check(f"[5, {OUT}]" in graph and f"f32[{batch}, {OUT}]" not in graph, f"{more}: all logits are there")


def plans():
    """Plans of every optimizer and type, without and with sums over batches: they compile, and keep what they say."""
    for kind, names in (("sgd", ()), ("adamw", ("m", "v")), ("lion", ("m",)), ("adamw8bit", ("m", "m.absmax", "v", "v.absmax"))):
        for precision in ("f32", "tf32", "bf16", "f16"):
            for more in ([], ["--accumulate", 2, "--clip", 1]):
                run("train", "o.onnx", "--loss", "mse(y, t)", "--optimizer", kind, "--precision", precision, *more, "--plan-only", "-o", "p.plan")
                p = subprocess.run([graphc, "inspect", "p.plan", "--json"], capture_output=True, text=True)
                states = {s["name"]: s["dtype"] for s in json.loads(p.stdout)["states"]}
                want = {f"w.weight.{n}" for n in names} | {"w.weight", "w.bias"} | ({"loss_scale", "w.bias.grad"} if precision == "f16" and more else set())
                check(want <= set(states), f"{kind} {precision}: states {sorted(states)}")


with tempfile.TemporaryDirectory() as tmp:
    os.chdir(tmp)
    if "--some" in sys.argv:
        LOSSES, OPTIMIZERS = LOSSES[-3:], OPTIMIZERS[-1:]
    losses()
    optimizers()
    not_finite()
    if "--some" not in sys.argv:
        scaled()
        heads()
        plans()
sys.exit(failed() > 0)
