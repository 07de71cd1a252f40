"""Token files, packing, orders and schedules, against what numpy and a few lines of Python say.

    data.py TRAIN_TOOL
"""
import collections, json, math, os, subprocess, sys, tempfile
import numpy as np
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tool import check, failed

tool = sys.argv[1]


def run(*args):
    return subprocess.run([tool, *map(str, args)], capture_output=True, text=True)


def sequences(path, vocab, length, mode="filled", held=0.0, seed=0, end=-1):
    """(documents, sequences to learn from, held-out ones)"""
    p = run("tokens", vocab, end, length, mode, held, seed, path)
    if p.returncode:
        raise RuntimeError(p.stderr)
    lines = [json.loads(l) for l in p.stdout.splitlines()]
    at = lines.index({"held": True})
    return lines[0]["documents"], lines[1:at], lines[at + 1:]


def parts(s):
    """The pieces of a sequence: their ids and labels."""
    out = collections.OrderedDict()
    for i, d in enumerate(s["documents"]):
        if d:
            out.setdefault(d, ([], []))
            check(s["positions"][i] == len(out[d][0]), "a position")
            out[d][0].append(s["ids"][i]), out[d][1].append(s["labels"][i])
        else:
            check(s["labels"][i] == -100 and s["ids"][i] == 0, "padding")
    check(list(out) == list(range(1, len(out) + 1)), "document numbers")
    check(s["supervised"] == sum(l != -100 for l in s["labels"]), "supervised places")
    check(s["places"] == sum(s["mask"]) == sum(d > 0 for d in s["documents"]), "places")
    return [(tuple(i), tuple(l)) for i, l in out.values()]


def expected(docs, length, labels=None):
    """The pieces that documents are cut into."""
    out = []
    for k, d in enumerate(docs):
        lab = labels[k] if labels else d
        for at in range(0, len(d) - 1, length):
            n = min(length, len(d) - 1 - at)
            piece = (tuple(d[at:at + n]), tuple(lab[at + 1:at + 1 + n]))
            if any(l != -100 for l in piece[1]):
                out.append(piece)
    return sorted(out)


def check_packing(path, docs, vocab, labels=None, end=-1):
    for length in (1, 7, 64, 100):
        want = expected(docs, length, labels)
        for mode in "single", "filled":
            n, got, held = sequences(path, vocab, length, mode, end=end)
            check(n == len([d for d in docs if d]) and not held, f"{path}: {n} documents")
            check(all(len(s["ids"]) == length for s in got), "length")
            check(sorted(p for s in got for p in parts(s)) == want, f"{path}, {mode}, length {length}: pieces")
            if mode == "single":
                check(all(len(parts(s)) == 1 for s in got), "one piece a sequence")
            else:
                rooms = sorted(length - s["places"] for s in got)
                check(len(rooms) < 2 or 2 * length - sum(rooms[-2:]) > length, "two sequences that would fit one")


def files(d):
    rng = np.random.default_rng(1)
    docs = [rng.integers(1, 500, n).tolist() for n in [1, 2, 3, 100, 65, 64, 201, 7, 7, 7, 50, 33, 1, 12]]
    ended = [x + [0] for x in docs]
    for t, end in (np.uint16, "bin"), (np.int64, "npy"), (np.int32, "npy"), (np.uint8, "npy"):
        at = [[v % 200 + 1 for v in x[:-1]] + [0] for x in ended] if t == np.uint8 else ended
        flat = np.array(sum(at, []), t)
        path = f"{d}/{np.dtype(t).name}.{end}"
        flat.tofile(path) if end == "bin" else np.save(path, flat)
        check_packing(path, at, 500, end=0)
        check_packing(path, [sum(at, [])], 500)
    np.array(sum(ended, []), np.uint32).tofile(f"{d}/w.bin")
    check_packing(f"{d}/w.bin", ended, 100000, end=0)
    rows = rng.integers(0, 500, (5, 30))
    np.save(f"{d}/rows.npy", rows)
    check_packing(f"{d}/rows.npy", rows.tolist(), 500)
    text = "caf\u00e9\nthe quick brown fox" * 9
    open(f"{d}/t.txt", "w", encoding="utf-8").write(text)
    check_packing(f"{d}/t.txt", [list(text.encode())], 256)
    with open(f"{d}/plain.jsonl", "w") as f:
        f.write("\n".join(json.dumps({"text": "x", "input_ids": x}) for x in docs) + "\n\n")
    check_packing(f"{d}/plain.jsonl", docs, 500)
    marked = b"\xef\xbb\xbf" + open(f"{d}/plain.jsonl", "rb").read()
    open(f"{d}/marked.jsonl", "wb").write(marked.replace(b"\n", b"\r\n"))
    check_packing(f"{d}/marked.jsonl", docs, 500)
    labels = [[-100] * (len(x) // 2) + x[len(x) // 2:] for x in docs]
    labels[3] = [-100] * len(docs[3])
    with open(f"{d}/l.jsonl", "w") as f:
        for k, x in enumerate(docs):
            pad = [9] * (k % 3)
            j = {"input_ids": pad + x + pad, "labels": pad + labels[k] + pad,
                 "attention_mask": [0] * len(pad) + [1] * len(x) + [0] * len(pad)}
            f.write(json.dumps(j) + "\n")
    check_packing(f"{d}/l.jsonl", docs, 500, labels)
    with open(f"{d}/mixed.jsonl", "w") as f:
        for k, x in enumerate(docs):
            f.write(json.dumps({"input_ids": x, **({"labels": labels[k]} if k >= 6 else {})}) + "\n")
    check_packing(f"{d}/mixed.jsonl", docs, 500, docs[:6] + labels[6:])


def splits(d):
    rng = np.random.default_rng(2)
    docs = [rng.integers(0, 500, n).tolist() for n in rng.integers(2, 90, 60)]
    open(f"{d}/s.jsonl", "w").write("\n".join(json.dumps({"input_ids": x}) for x in docs))
    total, seen = sum(map(len, docs)), set()
    for seed in range(4):
        _, train, held = sequences(f"{d}/s.jsonl", 500, 1000, "single", 0.1, seed)
        t, h = [[p[0] for s in x for p in parts(s)] for x in (train, held)]
        check(abs(sum(len(x) + 1 for x in h) - total * 0.1) <= 2, "how much is held out")
        whole = {tuple(x[:-1]) for x in docs}
        check(sum(x in whole for x in t) >= len(t) - 1 and sum(x in whole for x in h) >= len(h) - 1, "documents are torn")
        check(not set(t) & set(h), "learnt and held out")
        seen.add(tuple(sorted(h)))
    check(len(seen) == 4, "the seed parts")
    open(f"{d}/one.txt", "w").write("0123456789" * 10)
    _, train, held = sequences(f"{d}/one.txt", 256, 200, "filled", 0.25)
    check([len(parts(x[0])[0][0]) for x in (train, held)] == [74, 24], "one document")


def bad(d):
    def told(name, content, message, vocab=500, **more):
        if isinstance(content, np.ndarray):
            np.save(f"{d}/{name}", content)
        else:
            open(f"{d}/{name}", "wb").write(content)
        p = run("tokens", vocab, -1, more.get("length", 8), "filled", 0, 0, f"{d}/{name}")
        check(p.returncode == more.get("status", 3) and message in p.stderr, f"{name}: {p.returncode} {p.stderr}")

    ids = np.arange(10, dtype=np.uint16)
    told("a.bin", ids.tobytes(), "token 7 has id 7; the vocabulary has 7", 7)
    told("a.bin", ids.tobytes()[:-1], "19 bytes are no whole number of ids of 16 bits")
    told("a.bin", b"", "holds no token")
    told("a.bin", np.arange(1, 20, dtype=np.uint32).tobytes(), "every second id of 16 bits is 0")
    told("a.npy", np.array([3, -1]), "token 1 has id -1")
    told("a.npy", np.array([3.0]), "holds f64; tokens are integers")
    told("a.npy", np.zeros((2, 2, 2), int), "one axis, or two in C order; this has 3")
    told("a.npy", np.asfortranarray(np.arange(6).reshape(2, 3)), "in Fortran order")
    told("a.npy", b"\x93NUMPY", "is no .npy file")
    told("a.txt", b"ab\0c", "is no text: byte 2 is zero")
    told("a.txt", b"abc", "token 0 has id 97; the vocabulary has 50", 50)
    told("a.txt", b"a", "there is nothing to learn from")
    told("a.jsonl", b'{"input_ids": [1, 2]}\n{"input_ids": [1, 500]}\n', "line 2, input_ids item 1 is 500")
    told("a.jsonl", b'{"input_ids": [1, 2]}\n\n{"input_ids": [1, 2}\n', "line 3, character 20: no comma between values")
    told("a.jsonl", b'{"text": "x"}', 'line 1 has no "input_ids"; text has to be tokenised before')
    told("a.jsonl", b'{"input_ids": [1, 2.5]}', "no whole number")
    told("a.jsonl", b'{"input_ids": [NaN]}', "no number")
    told("a.jsonl", b'{"input_ids": [1, 2], "labels": [1]}', "line 1 has 1 labels for 2 input_ids")
    told("a.jsonl", b'{"input_ids": [1, 2], "labels": [1, -1]}', "labels item 1 is -1; labels are ids, or -100")
    told("a.jsonl", b'{"input_ids": [1, 2, 3], "attention_mask": [1, 0, 1]}', "item 1 is 0; only the ends may be masked")
    told("a.jsonl", b'{"input_ids": [1, 2], "attention_mask": [1, 2]}', "a mask is 0 or 1")
    told("a.jsonl", b'{"input_ids": [1, 2], "input_ids": [1]}', "a member that is there twice")
    told("a.jsonl", b'{"input_ids": [1, 2], "labels": [-100, -100]}', "there is nothing to learn from")
    told("a.txt", b"abc", "a sequence length of 0", length=0, status=2)
    told("a.txt", b"abc", "a vocabulary of 0", 0, status=2)
    check(run("tokens", 9, -1, 8, "filled", 0, 0, f"{d}/missing").returncode == 7, "a missing file")


def orders(d):
    for n in (1, 2, 10, 1000):
        rows = lambda seed, count: [int(x) for x in run("order", n, seed, count).stdout.split()]
        got = rows(5, 3 * n)
        check(all(sorted(got[i * n:(i + 1) * n]) == list(range(n)) for i in range(3)), "every row once an epoch")
        check(n < 10 or len({tuple(got[i * n:(i + 1) * n]) for i in range(3)} | {tuple(rows(6, n))}) == 4, "orders differ")
    first = collections.Counter(int(run("order", 4, s, 1).stdout) for s in range(200))
    check(min(first.values()) > 25, f"first rows {first}")


def schedules(d):
    def rates(*a):
        p = run("schedule", *a)
        return [float(x) for x in p.stdout.split()] if p.returncode == 0 else p.stderr

    near = lambda a, b: len(a) == len(b) and all(abs(x - y) <= 1e-15 for x, y in zip(a, b))
    steps, warm = 20, 4
    up = [0.1 * k / warm for k in range(warm)]
    clip = lambda k: min(1, (k - warm) / (steps - warm))
    after = range(warm, steps + 2)
    check(near(rates("constant", 0.1, 0, warm, 0, steps), up + [0.1 for k in after]), "constant")
    check(near(rates("linear", 0.1, 0.02, warm, 0, steps), up + [0.02 + 0.08 * (1 - clip(k)) for k in after]), "linear")
    check(near(rates("cosine", 0.1, 0.02, warm, 0, steps),
               up + [0.02 + 0.08 * (1 + math.cos(math.pi * clip(k))) / 2 for k in after]), "cosine")
    check(near(rates("wsd", 0.1, 0, warm, 5, steps), up + [0.1 * min(1, max(0, (steps - k) / 5)) for k in after]), "wsd")
    check(near(rates("linear", 0.1, 0, 0, 0, 1), [0.1, 0, 0]), "one step")
    check("16 steps of warm-up and 5 of decay in 20 steps" in rates("wsd", 0.1, 0, 16, 5, 20), "too many steps")
    check("0 <= min <= lr" in rates("linear", 0.1, 0.2, 0, 0, 20), "min above lr")


for test in (files, splits, bad, orders, schedules):
    with tempfile.TemporaryDirectory() as d:
        test(d)
print(f"{failed()} failures")
sys.exit(failed() != 0)
