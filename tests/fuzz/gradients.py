"""Gradients of random graphs (graphs.py) in f64 beside central differences of what onnxruntime computes.

    gradients.py GRAPHC [--seed N] [--count N] [--seconds S]     no graph is begun later than S

A graph is a function of its seed, and so are the output that is differentiated, its elements' weights, and three
directions in the space of all inputs. Of the steps along a direction the one that agrees best counts, and of the
directions the middle one: where a graph has kinks or jumps a step may cross some. A graph that differs is kept.
"""
import argparse, os, random, shutil, sys, tempfile, time
import numpy as np, onnx

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
import forks, graphs
from maker import DOUBLE

STEPS, DIRECTIONS = (1e-5, 1e-6, 1e-7), 3
NEAR = 1e-3  # of the difference along a direction, ...
LEAST = 1e-6  # ... where there is one: less is what differences round to, of values of 1 or less


class Case:
    """One of a graph's outputs as a function of its inputs: its elements' sum, each times a weight."""

    def __init__(self, seed):
        self.model, runs, _, about = graphs.make(seed, DOUBLE)
        self.session = graphs.session(self.model)
        self.feed, self.dims, self.np = runs[0], about["dims"], np.random.default_rng(seed)
        names = [x.name for x in self.model.graph.output]
        values = zip(names, self.session.run(names, self.feed))
        values = [(n, x) for n, x in values if x.dtype == np.float64 and x.size and np.isfinite(x).all()]
        self.wrt = [n for n, x in self.feed.items() if x.dtype == np.float64 and x.size]
        self.output, value = values[self.np.integers(len(values))] if values and self.wrt else (None, None)
        self.weights = None if value is None else self.np.standard_normal(value.shape)

    def value(self, feed):
        return float((self.session.run([self.output], feed)[0] * self.weights).sum())

    def along(self, direction, step):
        moved = [{n: x + s * direction[n] if n in direction else x for n, x in self.feed.items()} for s in (step, -step)]
        return (self.value(moved[0]) - self.value(moved[1])) / (2 * step)


def gradients(graphc, case, folder, seed):
    """By input, or why there are none."""
    onnx.save(case.model, f"{folder}/model.onnx")
    np.save(f"{folder}/weights.npy", case.weights)
    given = []
    for n, x in case.feed.items():
        np.save(f"{folder}/{n}.npy", x)
        given += ["--input", f"{n}={folder}/{n}.npy"]
    r = random.Random(seed)
    p = forks.run([graphc, "grad", f"{folder}/model.onnx", "--loss", case.output, "--wrt", ",".join(case.wrt), "--cotangent", f"{folder}/weights.npy",
                   "--output-dir", f"{folder}/got", *case.dims, *given, "--threads", r.choice("13"), "--isa", r.choice("34")])
    if p.returncode:
        return None, f"exit {p.returncode}: {p.stderr.strip()[-200:]}"
    return {n: np.load(f"{folder}/got/{n}.npy") for n in case.wrt}, ""


def differs(case, got):
    """Of each direction how far the gradient is from a difference, in parts of the larger."""
    off, least = [], LEAST * max(1, abs(case.value(case.feed)))
    for _ in range(DIRECTIONS):
        d = {n: case.np.standard_normal(case.feed[n].shape) for n in case.wrt}
        want = sum(float((got[n] * d[n]).sum()) for n in case.wrt)
        size = np.sqrt(sum(float((got[n] ** 2).sum()) for n in case.wrt))
        found = [case.along(d, step) for step in STEPS]
        off.append(min(abs(x - want) / max(abs(x), abs(want), NEAR * size, least) for x in found))
    return sorted(off)


def check(graphc, seed, folder):
    """skipped, agree, or what is wrong"""
    try:
        case = Case(seed)
    except Exception as e:  # onnxruntime's: it lacks kernels of f64
        return f"skipped: {str(e).splitlines()[0][:100]}"
    if case.output is None:
        return "skipped: no floats"
    os.makedirs(folder)
    got, why = gradients(graphc, case, folder, seed)
    if got is None:
        return why
    off = differs(case, got)
    return "agree" if off[len(off) // 2] <= NEAR else f"{case.output}: off by {' '.join(f'{x:.1e}' for x in off)}"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("graphc"), p.add_argument("--seed", type=int, default=0), p.add_argument("--count", type=int, default=100)
    p.add_argument("--seconds", type=float, default=float("inf"))
    a = p.parse_args()
    folder, end, said = tempfile.mkdtemp(prefix="gradients"), time.monotonic() + a.seconds, []
    for seed in range(a.seed, a.seed + a.count):
        if time.monotonic() > end:
            break
        said.append(check(a.graphc, seed, f"{folder}/{seed}"))
        if said[-1].startswith(("agree", "skipped")):
            shutil.rmtree(f"{folder}/{seed}", ignore_errors=True)
        else:
            print(f"{seed}: {said[-1]}", flush=True)
    agree, skipped = said.count("agree"), sum(x.startswith("skipped") for x in said)
    bad = len(said) - agree - skipped
    print(f"{agree} graphs agree, {skipped} skipped, {bad} differ" + (f"; kept in {folder}" if bad else ""))
    if not bad:
        shutil.rmtree(folder)
    sys.exit(bad != 0 or skipped > 0.2 * len(said))


if __name__ == "__main__":
    main()
