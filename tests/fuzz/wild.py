"""Nodes over the whole op table, fed what they do not expect: sizes that do not fit or are 0, indices outside, NaN, infinities, the
largest and smallest integers. Each run ends in results or in a message, never by a signal, within SECONDS of processor time and MB.

    wild.py GRAPHC [--seed N] [--count N] [--jobs N] [--seconds S] [--folder DIR]

A case is a function of its seed: the model of table, compiled once, and RUNS feeds. What fails is kept with its inputs.
"""
import argparse, collections, os, random, resource, shutil, subprocess, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import table

RUNS, SECONDS, MB = 6, 10, 2000


def limit():
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MB << 20, MB << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def odd_values(r, x):
    """x with some elements that nothing expects."""
    x = x.copy()
    if x.dtype.kind == "f":
        odd = [np.nan, np.inf, -np.inf, np.finfo(x.dtype).max, -1e30, 1e9, 2.0 ** 31, 2.0 ** 63, -0.0]
    elif x.dtype.kind in "iu":
        i = np.iinfo(x.dtype)
        odd = [i.min, i.max, i.max - 1, -1, 0, 1, 64, 1 << 20, 1 << 31, 1 << 32, 1 << 62, -(1 << 31), -(1 << 40)]
        odd = [v for v in odd if i.min <= v <= i.max]
    else:
        return x
    flat = x.reshape(-1)
    for _ in range(r.choice([1, 1, 3, max(1, flat.size)])):
        if flat.size:
            flat[r.randrange(flat.size)] = r.choice(odd)
    return x


def odd_sizes(r, feed, dims):
    """The open sizes are others: mostly all of one name, sometimes each for itself."""
    chosen = {}
    new = {}
    for n, x in feed.items():
        shape = list(x.shape)
        for i, d in enumerate(dims[n]):
            if d:
                d = d if r.random() < 0.9 else (n, i)
                shape[i] = chosen.setdefault(d, r.choice([0, 0, 1, 2, 3, 5, 9, 40]))
        new[n] = np.resize(x, shape) if x.size else np.zeros(shape, x.dtype)
    return new


def feeds(r, feed, dims, turns):
    """turns: inputs that say how often a loop's body runs, which as large numbers are not wrong."""
    for _ in range(RUNS):
        new = dict(feed)
        if r.random() < 0.5:
            new = odd_sizes(r, new, dims)
        for n in new:
            if r.random() < 0.5 and n not in turns:
                new[n] = odd_values(r, new[n])
        yield new


def run(cmd):
    p = subprocess.Popen(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", preexec_fn=limit)
    out, err = p.communicate()
    return p.returncode, out, err


def wrong(rc, err):
    """How a command failed to fail."""
    if rc < 0 or rc > 7:
        return f"ended by {rc}"
    if rc and not err.strip():
        return f"exit {rc} without a message"
    if rc == 5:
        return f"exit 5: {err.strip().splitlines()[-1][:200]}"
    return None


def one(a, seed):
    if time.monotonic() > a.end:
        return seed, "left", ""
    d = f"{a.folder}/{seed}"
    os.makedirs(d)
    model, (feed,), _ = table.make(seed)
    r = random.Random(seed)
    dims = {v.name: [k.dim_param for k in v.type.tensor_type.shape.dim] for v in model.graph.input}
    turns = {n.input[0] for n in model.graph.node if n.op_type == "Loop"}
    path, plan = f"{d}/model.onnx", f"{d}/model.plan"
    onnx.save(model, path)
    rc, _, err = run([a.graphc, path, "-o", plan, "--target", "native" if seed % 3 else "cpu"])  # what takes the time is to make code
    why = wrong(rc, err)
    result = "failed" if why else "refused" if rc else "held"
    for k, new in enumerate(feeds(r, feed, dims, turns) if rc == 0 else []):
        ins = []
        for n, x in new.items():
            np.save(f"{d}/{n}.{k}.npy", x)
            ins += ["--input", f"{n}={d}/{n}.{k}.npy"]
        rc, _, err = run([a.graphc, "run", plan, *ins, "--threads", r.choice(["1", "3"]), "--output-dir", f"{d}/out"])
        why = wrong(rc, err)
        if why:
            result, why = "failed", f"feed {k}: {why}"
            break
    if result != "failed":
        shutil.rmtree(d)
    return seed, result, why


def main():
    p = argparse.ArgumentParser()
    p.add_argument("graphc"), p.add_argument("--folder"), p.add_argument("--seed", type=int, default=0), p.add_argument("--count", type=int, default=100)
    p.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0))), p.add_argument("--seconds", type=float, help="no case is begun later")
    a = p.parse_args()
    a.folder = a.folder or tempfile.mkdtemp(prefix="wild")
    a.end = time.monotonic() + a.seconds if a.seconds else float("inf")
    total = collections.Counter()
    with ThreadPoolExecutor(a.jobs) as pool:
        for seed, result, why in pool.map(lambda s: one(a, s), range(a.seed, a.seed + a.count)):
            total[result] += 1
            if why:
                print(f"{seed}: {result}: {why}", flush=True)
    print(", ".join(f"{n} {k}" for k, n in sorted(total.items())) + (f"; kept in {a.folder}" if total["failed"] else ""))
    sys.exit(total["failed"] != 0 or total["held"] == 0)


if __name__ == "__main__":
    main()
