"""graphc train and finetune from the command line, against the same steps in numpy (f64), and against themselves.

    loop.py GRAPHC [--some | --kills]
"""
import fcntl, json, os, random, resource, signal, subprocess, sys, tempfile, time
import numpy as np
import onnx

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from small import attention_model, byte_model, perceptron, recurrent, tensors
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import forks
from tool import check, failed

graphc = os.path.abspath(sys.argv[1])
rng = np.random.default_rng(5)


def run(*args, status=0):
    p = forks.run([graphc, *args])
    check(p.returncode == status, f"{args}: {p.returncode}, not {status}: {p.stderr[-300:]}")
    return p.stderr if status else [json.loads(l) for l in p.stdout.splitlines()]


class Paced:
    """graphc on its way: its lines come through a pipe that holds one, so that it is never more than two steps ahead of
    who reads them, however fast it is and however long the reader had to wait for a processor."""

    def __init__(self, *args):
        self.out, end = os.pipe2(os.O_DIRECT)  # a write takes a page of its own
        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 1)  # a page is the least
        self.process = subprocess.Popen([graphc, *map(str, args), "--json"], stdout=end, stderr=subprocess.PIPE, text=True)
        os.close(end)

    def line(self):
        """The next; None at the end."""
        text = os.read(self.out, 1 << 16)
        return json.loads(text) if text else None

    def reach(self, what):
        """Reads until a line for which what() holds: is there one?"""
        while (line := self.line()) is not None:
            if what(line):
                return True
        return False

    def end(self, kill=False):
        """What it said to its end; the status is in process.returncode."""
        if kill:
            self.process.kill()
        else:
            self.reach(lambda line: False)
        os.close(self.out)
        return self.process.communicate()[1]


def adamw(w, x, t, steps, lr, clip):
    """Losses, gradient norms and the weights afterwards; as torch.optim.AdamW and clip_grad_norm_ have it."""
    w = {k: v.astype(np.float64) for k, v in w.items()}
    m, v = ({k: np.zeros_like(p) for k, p in w.items()} for _ in range(2))
    losses, norms = [], []
    for step in range(1, steps + 1):
        c = np.tanh(x @ w["up.weight"] + w["up.bias"])
        d = c @ w["down.weight"] - t
        losses.append(np.mean(d * d))
        dy = 2 * d / d.size
        da = dy @ w["down.weight"].T * (1 - c * c)
        g = {"up.weight": x.T @ da, "up.bias": da.sum(0), "down.weight": c.T @ dy}
        norms.append(np.sqrt(sum((q * q).sum() for q in g.values())))
        scale = min(1, clip / (norms[-1] + 1e-6))
        for k in w:
            q = g[k] * scale
            m[k], v[k] = .9 * m[k] + .1 * q, .999 * v[k] + .001 * q * q
            w[k] *= 1 - lr * .01
            w[k] -= lr / (1 - .9 ** step) * m[k] / (np.sqrt(v[k]) / np.sqrt(1 - .999 ** step) + 1e-8)
    return losses, norms, w


def close(a, b, tolerance, what):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    check(a.shape == b.shape and np.all(np.abs(a - b) <= tolerance * (1 + np.abs(b))), f"{what}: {np.abs(a - b).max()}")


def against_numpy(tmp):
    w = perceptron(f"{tmp}/m.onnx")
    x, t = rng.standard_normal((96, 16)).astype(np.float32), rng.standard_normal((96, 3)).astype(np.float32)
    np.save(f"{tmp}/x.npy", x), np.save(f"{tmp}/t.npy", t)
    data = ["--loss", "mse(y, target)", "--data", f"x={tmp}/x.npy", "--data", f"target={tmp}/t.npy", "--json"]
    eval_data = ["--eval-data", f"x={tmp}/x.npy", "--eval-data", f"target={tmp}/t.npy"]
    ballast = np.ones(1 << 26)  # this program's memory is not graphc's
    lines = run("train", f"{tmp}/m.onnx", *data, *eval_data, "--batch", 96, "--steps", 12, "--lr", "1e-2", "--clip", "0.1",
                "-o", f"{tmp}/full")
    losses, norms, want = adamw(w, x.astype(np.float64), t.astype(np.float64), 12, 1e-2, 0.1)
    steps = [l for l in lines if "loss" in l]
    check(0 < steps[-1]["peak_bytes"] < ballast.nbytes, f"a peak of {steps[-1]['peak_bytes']} bytes")
    close([l["loss"] for l in steps], losses, 1e-5, "losses")
    close([l["grad_norm"] for l in steps], norms, 1e-5, "norms of gradients")
    got = tensors(f"{tmp}/full/model.safetensors")
    check(sorted(got) == sorted(want), f"weights: {sorted(got)}")
    for k in want:
        close(got[k], want[k], 1e-4, k)
    y = np.tanh(x.astype(np.float64) @ want["up.weight"] + want["up.bias"]) @ want["down.weight"]
    close(lines[-1]["eval_loss"], np.mean((y - t) ** 2), 1e-5, "held-out loss")
    return data


def narrow(tmp, data):
    """Multiplied in 16 bits: the same course, weights and their updates of all digits."""
    lines = {t: [l for l in run("train", f"{tmp}/m.onnx", *data, "--batch", 96, "--steps", 12, "--lr", "1e-4", "--precision",
                                t, "-o", f"{tmp}/{t}") if "loss" in l] for t in ("f32", "bf16", "f16")}
    for t, bits in (("bf16", 8), ("f16", 11)):
        for key in ("loss", "grad_norm"):
            a, b = (np.array([l[key] for l in lines[x]]) for x in ("f32", t))
            close(b, a, 2.0 ** (2 - bits), f"{t}: {key}")
            check(not np.array_equal(a, b), f"{t}: {key} is that of f32")
        a, b = tensors(f"{tmp}/f32/model.safetensors"), tensors(f"{tmp}/{t}/model.safetensors")
        for k in a:
            off = np.abs(a[k] - b[k])
            check(off.max() < 24 * 1e-4 and off.mean() < 1e-4, f"{t}: {k} is not what steps of f32 give")
            grid = np.ldexp(1.0, (np.frexp(b[k])[1] - bits).astype(int))
            check(np.mean(b[k] / grid == np.round(b[k] / grid)) < 0.1, f"{t}: {k} was rounded")


def same_bits(tmp, data):
    """Another number of threads, or the same run again, gives the same weights; another seed does not."""
    files = []
    for i, more in enumerate((["--threads", 1], ["--threads", 3], ["--seed", 1])):
        run("finetune", f"{tmp}/m.onnx", *data, "--lora", "r=4,targets=up,down", "--batch", 32, "--steps", 9, "--lr", "1e-2",
            "-o", f"{tmp}/a{i}", *more)
        files.append(open(f"{tmp}/a{i}/adapter_model.safetensors", "rb").read())
    check(files[0] == files[1], "one and three threads")
    check(files[0] != files[2], "another seed")
    names = sorted(tensors(f"{tmp}/a0/adapter_model.safetensors"))
    check(names == sorted(f"base_model.model.{m}.lora_{k}.weight" for m in ("up", "down") for k in "AB"), f"names: {names}")


def accumulated(tmp):
    """Batches of a step count as one batch: by supervised tokens, of which each of these rows has another number."""
    byte_model(f"{tmp}/b.onnx")
    with open(f"{tmp}/rows.jsonl", "w") as f:
        for n in (3, 50, 9, 31, 64, 5, 17, 40):
            ids = rng.integers(0, 256, n).tolist()
            print(json.dumps({"input_ids": ids, "labels": [-100 if i % 3 == 1 else x for i, x in enumerate(ids)]}), file=f)
    args = ["train", f"{tmp}/b.onnx", "--loss", "cross_entropy(logits, labels)", "--data", f"{tmp}/rows.jsonl", "--no-packing",
            "--no-shuffle", "--seq", 64, "--steps", 6, "--lr", "1e-2", "--clip", "0.5", "--json"]
    whole = run(*args, "--batch", 8, "-o", f"{tmp}/acc1")
    parts = run(*args, "--batch", 2, "--accumulate", 4, "-o", f"{tmp}/acc4", "--threads", 1)
    run(*args, "--batch", 2, "--accumulate", 4, "-o", f"{tmp}/acc4b", "--threads", 3)
    for key in ("loss", "grad_norm"):
        close([l[key] for l in parts], [l[key] for l in whole], 1e-5, f"{key} of four batches a step")
    check([l["tokens"] for l in parts] == [l["tokens"] for l in whole], "tokens of four batches a step")
    a, b = (tensors(f"{tmp}/{d}/model.safetensors") for d in ("acc4", "acc1"))
    for k in b:
        close(a[k], b[k], 1e-4, f"{k} of four batches a step")
    read = lambda d: open(f"{tmp}/{d}/model.safetensors", "rb").read()
    check(read("acc4") == read("acc4b"), "four batches a step, one and three threads")


def dropped(tmp, data):
    """Dropout in adapters: repeatable, other numbers every step, and none where nothing is learnt."""
    def tuned(name, *more, dropout=0.5):
        return run("finetune", f"{tmp}/m.onnx", *data, "--eval-data", f"x={tmp}/x.npy", "--eval-data", f"target={tmp}/t.npy",
                   "--lora", f"r=4,alpha=8,dropout={dropout},targets=up,down", "--batch", 32, "--steps", 8, "--lr", "5e-2",
                   "--eval-every", 4, "-o", f"{tmp}/{name}", *more)
    adapter = lambda d: open(f"{tmp}/{d}/adapter_model.safetensors", "rb").read()
    without, one = tuned("drop0", dropout=0), tuned("drop1", "--threads", 1)
    tuned("drop2", "--threads", 3)
    check(adapter("drop1") == adapter("drop2"), "dropout: one and three threads")
    check(adapter("drop1") != adapter("drop0"), "dropout changes nothing")
    held = [[l["eval_loss"] for l in lines if "eval_loss" in l] for lines in (without, one)]
    check(held[0][0] == held[1][0] and held[0][-1] != held[1][-1], f"held-out losses with dropout: {held}")
    check(json.load(open(f"{tmp}/drop1/adapter_config.json"))["lora_dropout"] == 0.5, "lora_dropout")
    err = run("finetune", f"{tmp}/m.onnx", *data, "--lora", "dropout=1", "-o", f"{tmp}/none", status=2)
    check("has no such value" in err, err)


def packed(tmp):
    """Documents that share a row see nothing of each other: losses and gradients are those of a row each."""
    attention_model(f"{tmp}/att.onnx")
    with open(f"{tmp}/three.jsonl", "w") as f:
        for n in (21, 30, 11):
            print(json.dumps({"input_ids": rng.integers(0, 256, n).tolist()}), file=f)
    args = ["train", f"{tmp}/att.onnx", "--loss", "cross_entropy(logits, labels)", "--data", f"{tmp}/three.jsonl", "--seq", 70,
            "--steps", 5, "--lr", "1e-2", "--json"]
    one = run(*args, "--batch", 1, "-o", f"{tmp}/packed", "--dump-ir", f"{tmp}/packed-ir")
    kernels = [l for l in open(f"{tmp}/packed-ir/post-fusion.kir") if l.startswith("  attention batch")]
    check(kernels and all("causal" in l for l in kernels), f"keys behind the query are looked at: {kernels}")
    each = run(*args, "--batch", 3, "--no-packing", "-o", f"{tmp}/each")
    check([l["tokens"] for l in one] == [l["tokens"] for l in each], "tokens of packed rows")
    for key in ("loss", "grad_norm"):
        close([l[key] for l in one], [l[key] for l in each], 1e-5, f"{key} of packed rows")


def looped(tmp):
    """All of a recurrent model is learnt, and what a loop of backward reads is the same, whatever of it is computed again."""
    start = recurrent(f"{tmp}/r.onnx")
    np.save(f"{tmp}/r.npy", rng.standard_normal((16, 6, 4)).astype(np.float32))
    np.save(f"{tmp}/rt.npy", rng.integers(0, 3, 16))
    kept, again = [[l["grad_norm"] for l in run(
        "train", f"{tmp}/r.onnx", "--loss", "cross_entropy(y, t)", "--data", f"x={tmp}/r.npy", "--data", f"t={tmp}/rt.npy", "--batch", 4,
        "--steps", 4, "--lr", "1e-2", "--checkpoint", how, "--target", "native", "-o", f"{tmp}/r {how}", "--json")]
                   for how in ("none", "auto")]
    close(again, kept, 1e-6, "gradients of a recurrent model")
    learnt = tensors(f"{tmp}/r auto/model.safetensors")
    for name in start:
        check(name in learnt and (learnt[name] != start[name]).all(), f"{name} of a recurrent model is not learnt")


def text(tmp):
    """Bytes of a text that repeats itself: the loss goes towards what is left to guess."""
    byte_model(f"{tmp}/b.onnx")
    open(f"{tmp}/t.txt", "w").write("the quick brown fox jumps over the lazy dog. " * 200)
    lines = run("train", f"{tmp}/b.onnx", "--loss", "cross_entropy(logits, labels)", "--data", f"{tmp}/t.txt", "--batch", 4,
                "--seq", 64, "--steps", 60, "--lr", "3e-2", "--schedule", "cosine", "--warmup", "0.1", "--hold-out", "0.1",
                "--eval-every", 30, "-o", f"{tmp}/bytes", "--json")
    held = [l["eval_loss"] for l in lines if "eval_loss" in l]
    check(len(held) == 3 and held[0] > 4 and held[-1] < 1.6, f"held-out losses {held}")
    page = open(f"{tmp}/bytes/log.html").read()
    check("<svg" in page and "http" not in page.replace("http://www.w3.org", ""), "the page")


def other_data(tmp):
    """A run goes on with the rows, model and weights that it began with, and with no others, wherever the files lie."""
    np.save(f"{tmp}/ids.npy", rng.integers(0, 256, (20, 9)))
    args = lambda model, data, steps, *more: ["train", model, "--loss", "cross_entropy(logits, labels)", "--data", data, "--batch", 2,
                                              "--seq", 8, "--steps", steps, *more, "-o", f"{tmp}/kept"]
    run(*args(f"{tmp}/b.onnx", f"{tmp}/ids.npy", 3), "--json")
    os.rename(f"{tmp}/ids.npy", f"{tmp}/moved.npy")
    run(*args(f"{tmp}/b.onnx", f"{tmp}/moved.npy", 3, "--resume"), "--json")
    ids = np.load(f"{tmp}/moved.npy")
    ids[3, 3] ^= 1
    np.save(f"{tmp}/other.npy", ids)
    for model, data, word in ((f"{tmp}/b.onnx", f"{tmp}/other.npy", "data was 20 rows, hash "),
                              (f"{tmp}/b.onnx", f"{tmp}/t.txt", "data was 20 rows, hash "),
                              (f"{tmp}/c.onnx", f"{tmp}/moved.npy", "the model's hash was ")):
        if model.endswith("c.onnx"):
            byte_model(model)
        err = run(*args(model, data, 3, "--resume"), status=2)
        check(word in err, f"{word!r} is not said of {model}, {data}: {err}")
    for name in ("one", "two"):  # weights beside one model
        byte_model(f"{tmp}/d.onnx")
        m = onnx.load(f"{tmp}/d.onnx")
        onnx.save(m, f"{tmp}/d.onnx", save_as_external_data=True, location="d.weights", size_threshold=0)
        err = run(*args(f"{tmp}/d.onnx", f"{tmp}/moved.npy", 3, "--resume", "--json")[:-1], f"{tmp}/beside", status=2 if name == "two" else 0)
    check("the weights' hash was " in err, f"other weights: {err}")


def killed(tmp):
    """A run that is killed again and again goes on with the same losses, and ends with the same weights."""
    args = ["train", f"{tmp}/b.onnx", "--loss", "cross_entropy(logits, labels)", "--data", f"{tmp}/t.txt", "--batch", 4, "--seq", 64,
            "--steps", 80, "--lr", "1e-2", "--schedule", "cosine", "--hold-out", "0.1", "--eval-every", 20, "--save-every", 7]
    run(*args, "-o", f"{tmp}/whole", "--json")
    lines = lambda d: [{k: v for k, v in json.loads(l).items() if k not in ("tokens_per_s", "peak_bytes")} for l in open(f"{d}/log.jsonl")]
    for target in (3, 17, 30, 31, 58, 77):
        p = Paced(*args, "-o", f"{tmp}/parts", "--resume")
        check(p.reach(lambda l: l["step"] >= target), f"step {target} of a run that is to be killed")
        p.end(kill=True)
    run(*args, "-o", f"{tmp}/parts", "--resume", "--json")
    check(lines(f"{tmp}/parts") == lines(f"{tmp}/whole"), "losses after kills")
    same = lambda f: open(f"{tmp}/parts/{f}", "rb").read() == open(f"{tmp}/whole/{f}", "rb").read()
    check(same("model.safetensors") and same("checkpoints/step-00000080/state.safetensors"), "weights after kills")
    check("has a run already" in run(*args, "-o", f"{tmp}/whole", status=2), "a second run in one folder")
    check("has a run already" in run("train", f"{tmp}/none.onnx", *args[2:], "-o", f"{tmp}/whole", status=2), "it is known before there is a model")
    err = run(*args, "--lr", "2e-2", "-o", f"{tmp}/whole", "--resume", status=2)
    check("--lr was 0.01, is 0.02" in err, err)


def killed_anywhere(tmp):
    """50 kills at random moments, each run going on with another number of threads: adapters with dropout, two batches a step."""
    args = ["finetune", f"{tmp}/att.onnx", "--loss", "cross_entropy(logits, labels)", "--data", f"{tmp}/t.txt", "--batch", 2, "--seq",
            32, "--accumulate", 2, "--lora", "r=4,dropout=0.2,targets=all-linear", "--steps", 400, "--lr", "1e-2", "--schedule",
            "linear", "--hold-out", "0.1", "--eval-every", 50, "--save-every", 5, "--cache", f"{tmp}/kernels"]
    run(*args, "-o", f"{tmp}/straight", "--json")
    at, threads = random.Random(11), {0: [], 1: ["--threads", "1"], 2: ["--threads", "3"]}
    for _ in range(50):
        p = Paced(*args, *threads[at.randrange(3)], "-o", f"{tmp}/torn", "--resume")
        for _ in range(at.choice((0, 1, 2, 3, 4, 5, 6, 7, 8))):
            check(p.line(), "a run that is to be killed has ended")
        time.sleep(at.random() ** 3 * 0.03)  # within the next two steps, or before the first
        p.end(kill=True)
    run(*args, "-o", f"{tmp}/torn", "--resume", "--json")
    lines = lambda d: [{k: v for k, v in json.loads(l).items() if k not in ("tokens_per_s", "peak_bytes")} for l in open(f"{d}/log.jsonl")]
    check(lines(f"{tmp}/torn") == lines(f"{tmp}/straight"), "losses after 50 kills")
    for f in ("adapter_model.safetensors", "checkpoints/step-00000400/state.safetensors"):
        check(open(f"{tmp}/torn/{f}", "rb").read() == open(f"{tmp}/straight/{f}", "rb").read(), f"{f} after 50 kills")
    check(not [f for f in os.listdir(f"{tmp}/torn/checkpoints") if f.startswith(".")], "parts of checkpoints are left")


def disk_full(tmp):
    """No room for a checkpoint: an error that names it, the one before stays, and the run goes on once there is room."""
    args = ["train", f"{tmp}/b.onnx", "--loss", "cross_entropy(logits, labels)", "--data", f"{tmp}/t.txt", "--batch", 4, "--seq", 64,
            "--steps", 100, "--lr", "1e-2", "--save-every", 20]
    run(*args, "-o", f"{tmp}/room", "--json")
    p = Paced(*args, "-o", f"{tmp}/crammed")
    check(p.reach(lambda line: os.path.exists(f"{tmp}/crammed/checkpoints/latest")), "no checkpoint was written")
    resource.prlimit(p.process.pid, resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))  # smaller than the state
    err, status = p.end(), p.process.returncode
    check(status == 7 and "state.safetensors" in err and "too large" in err, f"a full disk: {status} {err[-300:]}")
    kept = open(f"{tmp}/crammed/checkpoints/latest").read().strip()
    check(sorted(os.listdir(f"{tmp}/crammed/checkpoints")) == ["latest", kept], f"{os.listdir(f'{tmp}/crammed/checkpoints')}")
    run(*args, "-o", f"{tmp}/crammed", "--resume", "--json")
    check(open(f"{tmp}/crammed/model.safetensors", "rb").read() == open(f"{tmp}/room/model.safetensors", "rb").read(),
          "weights after a full disk")


def configured(tmp):
    """A run leaves its options; with that file the same run, and the command line goes before it."""
    args = ["train", f"{tmp}/b.onnx", "--loss", "cross_entropy(logits, labels)", "--batch", 4, "--seq", 64, "--lr", "1e-2", "--json"]
    one = run(*args, "--data", f"{tmp}/t.txt", "--steps", 5, "--no-shuffle", "-o", f"{tmp}/said")
    kept = json.load(open(f"{tmp}/said/config.json"))
    check(kept["batch"] == 4 and kept["lr"] == 0.01 and kept["no-shuffle"] is True and kept["data"] == f"{tmp}/t.txt", f"{kept}")
    again = run("train", f"{tmp}/b.onnx", "--config", f"{tmp}/said/config.json", "-o", f"{tmp}/again")
    check([l["loss"] for l in again] == [l["loss"] for l in one], "losses from a file of options")
    more = run("train", f"{tmp}/b.onnx", "--config", f"{tmp}/said/config.json", "-o", f"{tmp}/more", "--steps", 7)
    check(len(more) == 7, f"{len(more)} steps, not the 7 of the command line")
    open(f"{tmp}/o.yaml", "w").write(f"""--- # as people write it
loss: 'cross_entropy(logits, labels)'
data: [{tmp}/t.txt]   # a list of one
batch: 4
"seq": 64
lr: 1e-2 # the highest
steps: 5
no-shuffle: true
resume: false
json: true
""")
    said = run("train", f"{tmp}/b.onnx", "--config", f"{tmp}/o.yaml", "-o", f"{tmp}/yaml")
    check([l["loss"] for l in said] == [l["loss"] for l in one], "losses from YAML")
    run(*args, "--data", f"{tmp}/t.txt", "--steps", 2, "--schedule", "linear", "--min-lr", "0.00012345678901234567", "--beta1", "0.1", "-o", f"{tmp}/digits")
    kept = open(f"{tmp}/digits/config.json").read()
    check('"min-lr": "0.00012345678901234567"' in kept and '"beta1": 0.1,' in kept, f"digits of {kept}")
    open(f"{tmp}/two.yml", "w").write(f"data:\n  - {tmp}/t.txt\n- '{tmp}/t.txt'\n\nsteps: 2\n")
    run(*args, "--config", f"{tmp}/two.yml", "-o", f"{tmp}/two")
    check(json.load(open(f"{tmp}/two/config.json"))["data"] == [f"{tmp}/t.txt"] * 2, "a list in YAML")
    for text, status, word in (("no-shuffle: yes\n", 2, "takes no value"), ("a:\n  b: 1\n", 3, "line 2: a mapping in a mapping"),
                               ("batch: 4\nbatch: 5\n", 3, "line 2: a name that is there twice"), ("batch: *x\n", 3, "beyond"),
                               ("batch: [1\n", 3, "not closed"), ("batch: [1 # 2\n", 3, "not closed"), ("batch: 'x\n", 3, "not closed"), ("\tbatch: 1\n", 3, "a tab"),
                               ("- 1\n", 3, "an item"), ("just text\n", 3, "no \"name: value\""), ("steps:\n", 2, "no text"),
                               ("batch: \"a\\q\"\n", 3, "JSON would not"), ("bach: 4\n", 2, "no option --bach")):
        open(f"{tmp}/bad.yaml", "w").write(text)
        err = run(*args, "--config", f"{tmp}/bad.yaml", "-o", f"{tmp}/none", status=status)
        check(word in err, f"{word!r} is not said of {text!r}: {err!r}")
    for text, status, word in (("[1]", 3, "an object"), ('{"batch": 4,}', 3, "line 1"), ('{"bach": 4}', 2, "no option --bach"),
                               ('{"steps": "four"}', 2, "four"), ('{"steps": null}', 2, "no text"), ('{"no-shuffle": 1}', 2, "no value"),
                               ('{"seed": [1, 2]}', 2, "--seed takes one value, not 2"), ('{"config": "a"}', 2, "for the command line")):
        open(f"{tmp}/bad.json", "w").write(text)
        err = run(*args, "--config", f"{tmp}/bad.json", "-o", f"{tmp}/none", status=status)
        check(word in err, f"{word!r} is not said of {text}: {err!r}")


def interrupted(tmp):
    """Ctrl-C ends a run with a checkpoint, from which it goes on with the same losses."""
    args = ["train", f"{tmp}/b.onnx", "--loss", "cross_entropy(logits, labels)", "--data", f"{tmp}/t.txt", "--batch", 4, "--seq", 64,
            "--steps", 60, "--lr", "1e-2", "--eval-every", 1, "--hold-out", "0.1"]
    losses = lambda d: [(l["step"], l["loss"] if "loss" in l else l["eval_loss"]) for l in map(json.loads, open(f"{d}/log.jsonl"))]
    p = Paced(*args, "-o", f"{tmp}/stopped")
    p.reach(lambda line: line["step"] == 5)
    err = run(*args, "-o", f"{tmp}/stopped", "--resume", status=2)
    check(f"{tmp}/stopped: another process trains there" in err, f"two runs in a folder: {err}")
    p.process.send_signal(signal.SIGINT)
    said, status = p.end(), p.process.returncode
    check(status == 0 and "--resume goes on" in said, f"Ctrl-C: exit {status}: {said}")
    n = losses(f"{tmp}/stopped")[-1][0]
    check(5 <= n < 9 and os.path.exists(f"{tmp}/stopped/checkpoints/step-{n:08}/state.safetensors"), f"Ctrl-C after {n} steps")
    run(*args, "-o", f"{tmp}/stopped", "--resume", "--json")
    run(*args, "-o", f"{tmp}/through", "--json")
    check(losses(f"{tmp}/stopped") == losses(f"{tmp}/through"), "losses after Ctrl-C")


def prolonged(tmp):
    """A run may get more steps than it was to have, where no rate follows from how many there are; bit for bit."""
    args = lambda steps, name, *more: ["train", f"{tmp}/b.onnx", "--loss", "cross_entropy(logits, labels)", "--data", f"{tmp}/t.txt",
                                       "--batch", 4, "--seq", 64, "--lr", "1e-2", "--warmup", 2, *more, *steps, "-o", f"{tmp}/{name}"]
    steps, weights = lambda n: ["--steps", n], lambda d: open(f"{tmp}/{d}/model.safetensors", "rb").read()
    run(*args(steps(9), "at_once"), "--json")
    run(*args(steps(3), "longer"), "--json")
    check(weights("longer") != weights("at_once"), "3 steps are 9")
    run(*args(steps(5), "longer"), "--resume", "--json")
    lines = run(*args(steps(9), "longer"), "--resume", "--json")
    check([l["step"] for l in lines] == [6, 7, 8, 9] and weights("longer") == weights("at_once"), f"a run of 3, 5, then 9 steps: {lines}")
    check(json.load(open(f"{tmp}/longer/config.json"))["steps"] == 9, "config.json of a run that got more steps")
    err = run(*args(steps(8), "longer"), "--resume", status=2)
    check("9 steps are done already, 8 are asked for" in err, f"fewer steps than are done: {err}")
    run(*args(["--epochs", "0.05"], "epochs"), "--json")
    check(len(run(*args(["--epochs", "0.2"], "epochs"), "--resume", "--json")) > 1, "more epochs")
    kept = open(f"{tmp}/longer/config.json").read()
    for more, word in ((["--resume", "--lr", 5], "--lr was 0.01, is 5"), (["--lr", 5], "has a run already"),
                       (["--resume", "--hold-out", "0.5"], "--hold-out was not given, is 0.5"),
                       (["--resume", "--weight-decay", "0.5"], "--weight-decay was not given, is 0.5")):
        err = run(*args(steps(9), "longer", *more), status=2)
        check(word in err, f"{word!r} is not said in {err!r}")
        check(open(f"{tmp}/longer/config.json").read() == kept, f"config.json of a run that is refused: {more}")
    open(f"{tmp}/noise.txt", "wb").write(bytes(rng.integers(1, 256, 4000).astype(np.uint8)))
    held = lambda f: ["--eval-data", f"{tmp}/{f}.txt", "--eval-every", 2, "--patience", 2]
    run(*args(steps(4), "held", *held("t")), "--json")
    lines = run(*args(steps(12), "held", "--resume", *held("noise")), "--json")
    best = int(open(f"{tmp}/held/checkpoints/best").read()[5:])
    check(lines[-1]["step"] > 6 and best > 4, f"other held-out data are compared with those before: {lines[-1]}, {best}")
    for name, more in ("falls", ["--schedule", "linear"]), ("rises", ["--warmup", "0.5"]):
        run(*args(steps(3), name, *more), "--json")
        err = run(*args(steps(9), name, *more), "--resume", status=2)
        check("--steps was 3, is 9" in err and "with --schedule constant" in err, f"more steps, {more}: {err}")


def last_line(tmp, data):
    """Where nothing is a terminal a run says once what lies where."""
    ran = lambda *args: forks.run([graphc, *args])
    plain = [a for a in data if a != "--json"]
    for verb, what in ("train", "weights"), ("finetune", "adapter"):
        for held in [], ["--eval-data", f"x={tmp}/x.npy", "--eval-data", f"target={tmp}/t.npy"]:
            folder = f"{tmp}/quiet_{what}{len(held)}"
            p = ran(verb, f"{tmp}/m.onnx", *plain, "--batch", 16, "--steps", 2, *held, "-o", folder)
            loss = [l for l in map(json.loads, open(f"{folder}/log.jsonl"))][-1]["eval_loss" if held else "loss"]
            want = f"{folder}: {what} learnt in 2 steps, {'held-out ' if held else ''}loss {loss:.4f}\n"
            check((p.returncode, p.stdout, p.stderr) == (0, want, ""), f"{verb} {held}: {p.returncode} {p.stdout!r} {p.stderr!r}, not {want!r}")
    check("[--lora SPEC]" in ran("help", "finetune").stdout, "finetune's usage: adapters have a default")


def without_end(tmp, data):
    """A rate that leads nowhere: what is no number has no sign, whichever the machine gives it."""
    err = run("train", f"{tmp}/b.onnx", "--loss", "cross_entropy(logits, labels)", "--data", f"{tmp}/t.txt", "--batch", 4, "--seq", 16,
              "--steps", 3, "--lr", "1e38", "-o", f"{tmp}/nowhere", status=5)
    check("step 2: the loss is nan and the gradient's norm nan, at a rate of 1e+38; first in kernel" in err, f"a loss that is no number: {err}")


def closed(tmp, data):
    """Lines that have nowhere to go: the error is said once, with its reason."""
    p = subprocess.run([graphc, "train", f"{tmp}/m.onnx", *data, "--steps", "3", "-o", f"{tmp}/closed"], stdout=open("/dev/full", "w"),
                       stderr=subprocess.PIPE, text=True)
    check(p.returncode == 7 and p.stderr == "graphc: error[G0101]: standard output cannot be written: No space left on device\n",
          f"a full disk: {p.returncode} {p.stderr!r}")


def refused(tmp, data):
    model, bytes_ = f"{tmp}/m.onnx", ["--loss", "cross_entropy(logits, labels)", "--batch", 2, "--seq", 8, "--steps", 1]
    np.arange(1, 60, dtype=np.uint32).tofile(f"{tmp}/w.bin")
    wide = run("train", f"{tmp}/b.onnx", *bytes_, "--data", f"{tmp}/w.bin", "--token-type", "u32", "--json", "-o", f"{tmp}/wide")
    check(len(wide) == 1, "ids of 32 bits")
    for args, status, word in (
            (["train", model, "-o", "o"], 2, "--loss is missing"),
            (["train", model, *data], 2, "-o is missing"),
            (["train", model, *data, "--loss", "hinge(y, t)", "-o", "o"], 2, "there are cross_entropy, mse"),
            (["train", model, *data, "--loss", "mse(z, target)", "-o", "o"], 2, "its outputs are \""),
            (["train", model, *data, "--optimizer", "adam", "-o", "o"], 2, "there are sgd, adamw"),
            (["train", model, *data, "--train", "nothing", "-o", "o"], 2, "no weight"),
            (["train", model, *data, "--freeze", "down", "-o", "o"], 2, '--freeze: "down" is no weight\'s whole name'),
            (["train", model, *data, "--train", "(", "-o", "o"], 2, '--train: "(" is no regular expression'),
            (["train", model, *data, "--no-decay", "bias", "-o", "o"], 2, '--no-decay: "bias" is no trained parameter\'s whole name'),
            (["train", model, "--data", f"x={tmp}/x.npy", "--loss", "cross_entropy(x, t)", "-o", "o"], 4, "nothing that is to be trained"),
            (["finetune", model, *data, "--lora", "targets=sideways", "-o", "o"], 2, "there are: up, down"),
            (["finetune", model, *data, "--lora", "targets=up,sideways", "-o", "o"], 2, 'no layer matches "sideways"; there are: up, down'),
            (["finetune", model, *data, "--lora", "rank:sideways=2", "-o", "o"], 2, 'no layer with an adapter matches "sideways"; there are: up'),
            (["finetune", model, *data, "--lora", "alpha:down=2,targets=up", "-o", "o"], 2, 'matches "down"; there are: up'),
            (["finetune", model, *data, "--lora", "alpha=nan", "-o", "o"], 2, '"alpha=nan" has no such value'),
            (["finetune", model, *data, "--lora", "alpha:up=1e39", "-o", "o"], 2, '"alpha:up=1e39" has no such value'),
            (["train", model, *data[:4], "-o", f"{tmp}/o"], 2, 'nothing is given for input "target"'),
            (["train", model, *data, "--data", f"z={tmp}/none.npy", "-o", f"{tmp}/o"], 7, "none.npy"),
            (["train", model, *data, "--data", f"z={tmp}/t.npy", "-o", f"{tmp}/o"], 2, 'no input "z"'),
            (["train", model, *data[:2], "--data", f"x={tmp}/t.npy", *data[4:], "-o", f"{tmp}/o"], 3, "have 3 along axis 1"),
            (["train", model, *data, "--batch", 128, "--eval-data", f"x={tmp}/x.npy", "--eval-data", f"target={tmp}/t.npy", "-o",
              f"{tmp}/o"], 3, "96 held-out rows do not fill a batch of 128"),
            (["train", model, *data, "--hold-out", 0, "-o", f"{tmp}/o"], 2, "holds nothing out"),
            (["train", model, *data, "--patience", 2, "-o", f"{tmp}/o"], 2, "need --eval-data"),
            (["train", model, *data, "--patience", 2, "--eval-data", f"x={tmp}/x.npy", "-o", f"{tmp}/o"], 2, "--eval-every is missing"),
            (["train", f"{tmp}/none.onnx", *data, "--schedule", "step", "-o", f"{tmp}/o"], 2, "there is no schedule \"step\""),
            (["train", model, *data, "--epochs", 0, "-o", f"{tmp}/o"], 2, "--epochs 0 learns nothing"),
            (["train", model, *data, "--decay", 2, "-o", f"{tmp}/o"], 2, "for --schedule wsd"),
            (["train", model, *data, "--min-lr", "1e-6", "-o", f"{tmp}/o"], 2, "for --schedule linear"),
            (["train", model, *data, "--min-lr", 0, "--schedule", "constant", "-o", f"{tmp}/o"], 2, "for --schedule linear"),
            (["train", model, *data, "--steps", 0, "-o", f"{tmp}/o"], 2, "not a number from 1"),
            (["train", model, *data, "--warmup", 9, "--steps", 3, "-o", f"{tmp}/o"], 2, "9 steps of warm-up"),
            (["train", f"{tmp}/b.onnx", *bytes_, "--data", f"{tmp}/w.bin", "-o", f"{tmp}/o"], 3, "every second id"),
            (["train", f"{tmp}/b.onnx", *bytes_, "--data", f"{tmp}/w.bin", "--token-type", "u8", "-o", f"{tmp}/o"], 2, "neither u16"),
            (["train", f"{tmp}/b.onnx", *bytes_, "--data", f"{tmp}/t.txt", "--end-token", 256, "-o", f"{tmp}/o"], 2, "id 256"),
            (["train", f"{tmp}/b.onnx", *bytes_, "--data", f"{tmp}/t.txt", "--eval-data", f"{tmp}/x.npy", "-o", f"{tmp}/o"], 3, "x.npy"),
            (["train", f"{tmp}/b.onnx", "--loss", "logits", "--data", f"{tmp}/x.npy", "-o", f"{tmp}/o"], 3, "x.npy")):
        err = run(*args, status=status)
        check(word in err, f"{word!r} is not said in {err!r}")


with tempfile.TemporaryDirectory() as tmp:
    if "--kills" in sys.argv:
        attention_model(f"{tmp}/att.onnx")
        open(f"{tmp}/t.txt", "w").write("the quick brown fox jumps over the lazy dog. " * 200)
        killed_anywhere(tmp)
        sys.exit(failed() > 0)
    data = against_numpy(tmp)
    text(tmp)
    refused(tmp, data)
    without_end(tmp, data)
    closed(tmp, data)
    last_line(tmp, data)
    looped(tmp)
    prolonged(tmp)
    if "--some" not in sys.argv:
        narrow(tmp, data)
        same_bits(tmp, data)
        accumulated(tmp)
        dropped(tmp, data)
        packed(tmp)
        other_data(tmp)
        killed(tmp)
        disk_full(tmp)
        interrupted(tmp)
        configured(tmp)
sys.exit(failed() > 0)
