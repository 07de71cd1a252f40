"""Compiled models against onnxruntime on the same inputs.

    compare.py GRAPHC FOLDER [NAME...] [--device cpu|cuda] [--isa LIST] [--threads LIST] [--plans DIR]
               [--save DIR | --load DIR]

FOLDER holds NAME.onnx with its weights (models/fill.py). For every model and both sets of sizes of
cases.py the largest difference in units of the standard deviation of onnxruntime's output must stay
within the bound, for every output; one that is not finite fails. --isa 4,3: with each
instruction set at most. --threads 1,3: with each number of threads, which must give the same bits, and
the last of which must have split at least half of the kernels. --save writes onnxruntime's inputs and outputs; --load compares with them where
onnxruntime is not installed. --plans keeps plans (or uses those that are there).
"""
import argparse, json, os, subprocess, sys, tempfile
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
BOUND = 1e-4
WIDER = {"t5_small": 5e-3}  # unscaled attention scores reach hundreds: rounding alone gives this much


def oracle(path, feeds):
    import onnxruntime as ort
    ort.set_default_logger_severity(3)
    o = ort.SessionOptions()
    o.intra_op_num_threads = 2
    s = ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])
    return dict(zip([x.name for x in s.get_outputs()], s.run(None, feeds)))


def reference(a, path, name, case):
    """(inputs, outputs), drawn and run or loaded"""
    store = f"{a.load or a.save}/{name}.{case}.npz" if a.load or a.save else None
    if a.load:
        z = np.load(store)
        pick = lambda p: {k[len(p):]: z[k] for k in z.files if k.startswith(p)}
        return pick("in/"), pick("out/")
    import cases
    feeds = cases.inputs(path, cases.SIZES[case])
    want = oracle(path, feeds)
    if store:
        os.makedirs(a.save, exist_ok=True)
        np.savez(store, **{"in/" + k: v for k, v in feeds.items()}, **{"out/" + k: v for k, v in want.items()})
    return feeds, want


def call(a, verb, plan, feeds, tmp, *more):
    args = [a.graphc, verb, plan, "--device", a.device, *more]
    for k, v in feeds.items():
        np.save(f"{tmp}/in_{k}.npy", v)
        args += ["--input", f"{k}={tmp}/in_{k}.npy"]
    p = subprocess.run(args, capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(f"exit {p.returncode}: {p.stderr.strip()[-300:]}")
    return p.stdout


def error(got, want):
    if got.shape != want.shape:
        raise RuntimeError(f"shape {got.shape} instead of {want.shape}")
    if not np.isfinite(want).all():
        raise RuntimeError("onnxruntime's own output is not finite")
    if not np.isfinite(got).all():
        raise RuntimeError(f"{np.count_nonzero(~np.isfinite(got))} of {got.size} elements are not finite")
    return float(np.max(np.abs(got.astype(np.float64) - want), initial=0) / np.maximum(want.astype(np.float64).std(), 1e-30))


def run_all(a, plan, feeds, names, tmp, isa):
    """name -> output, which every number of threads must give"""
    first = None
    for threads in a.threads.split(","):
        out = f"{tmp}/{isa}_{threads}"
        more = [x for k, v in (("--isa", isa), ("--threads", threads)) if v for x in (k, v)]
        call(a, "run", plan, feeds, tmp, "--output-dir", out, *more)
        got = {k: np.load(f"{out}/{k.replace('/', '_')}.npy") for k in names}
        first = first or got
        for k in names:
            if got[k].tobytes() != first[k].tobytes():
                raise RuntimeError(f"output {k}: other bits with {threads} threads")
    return first


def check_split(a, plan, feeds, tmp):
    """Threads are proved by threads."""
    threads = a.threads.split(",")[-1]
    if not threads or threads == "1":
        return
    j = json.loads(call(a, "bench", plan, feeds, tmp, "--threads", threads, "--runs", "1", "-v", "--json"))
    split = sum(k["threads"] == int(threads) for k in j["kernels"])
    if 2 * split < len(j["kernels"]):
        raise RuntimeError(f"{split} of {len(j['kernels'])} kernels ran on {threads} threads")


def compare(a, name):
    path, plan = f"{a.folder}/{name}.onnx", f"{a.plans}/{name}.plan"
    if not os.path.exists(plan):
        p = subprocess.run([a.graphc, path, "-o", plan, "--target", "cpu" if a.device == "cpu" else "sm_90a"],
                           capture_output=True, text=True)
        if p.returncode:
            raise RuntimeError(f"compile: exit {p.returncode}: {p.stderr.strip()[-300:]}")
    worst = []
    for case in range(2):
        feeds, want = reference(a, path, name, case)
        with tempfile.TemporaryDirectory() as tmp:
            errors = []
            for isa in a.isa.split(","):
                got = run_all(a, plan, feeds, want, tmp, isa)
                errors += [error(got[k], v) for k, v in want.items()]
            worst.append(float(np.max(errors)))
            if case == 0:
                check_split(a, plan, feeds, tmp)
    return worst


def main():
    p = argparse.ArgumentParser()
    p.add_argument("graphc"), p.add_argument("folder"), p.add_argument("names", nargs="*")
    p.add_argument("--device", default="cpu"), p.add_argument("--plans")
    p.add_argument("--save"), p.add_argument("--load"), p.add_argument("--isa", default=""), p.add_argument("--threads", default="")
    a = p.parse_args()
    keep = tempfile.TemporaryDirectory()
    a.plans = a.plans or keep.name
    os.makedirs(a.plans, exist_ok=True)
    names = a.names or sorted(f[:-5] for f in os.listdir(a.folder) if f.endswith(".onnx"))
    if not names:
        sys.exit(f"no model in {a.folder}")
    bad = 0
    for name in names:
        try:
            e = compare(a, name)
        except Exception as ex:
            bad += 1
            print(f"FAILED {name:22} {ex}", flush=True)
            continue
        ok = all(x <= WIDER.get(name, BOUND) for x in e)  # which nothing that is not a number fulfils
        bad += not ok
        print(f"{'ok' if ok else 'FAILED':6} {name:22} error/std {e[0]:.2e} {e[1]:.2e}", flush=True)
    print(f"{len(names) - bad} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
