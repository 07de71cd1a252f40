"""Forests of scikit-learn and LightGBM beside onnxruntime on the CPU, taking turns in one run.

    forest.py GRAPHC [NAME...] [--trees 500] [--rows 1000] [--features 20] [--threads 2] [--rounds 3] [--realtime]
              [--write results/cpu.md]

Needs scikit-learn, skl2onnx, lightgbm and onnxmltools beside tests/requirements.txt. Each model is trained on
drawn data, exported, compiled for any number of rows, compared (both sides' outputs on the same rows), and timed:
in each round graphc (its own bench command) and onnxruntime one after the other, the first in turns. Least times and
medians over rounds; the ratio is that of the least, onnxruntime / graphc: above 1 means graphc is faster. --realtime times under SCHED_FIFO, for a machine that others load (as root).
"""
import argparse, contextlib, json, os, subprocess, sys, tempfile, time, warnings
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cpu, sections

TOLERANCE = 1e-4  # sums of so many leaves in f32, in any order, of outputs around 1


def data(a):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((4000, a.features)).astype(np.float32)
    y = (np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(len(x))).astype(np.float32)
    return x, y / y.std()


def of_sklearn(kind, **more):
    def make(a, x, y):
        import sklearn.ensemble as e
        from skl2onnx import to_onnx
        if kind == "classes":
            m = e.RandomForestClassifier(a.trees, n_jobs=a.threads, random_state=0, **more).fit(x, np.digitize(y, [-0.7, 0, 0.7]))
            return to_onnx(m, x[:1], options={"zipmap": False}, target_opset={"": 17, "ai.onnx.ml": 3})
        m = e.RandomForestRegressor(a.trees, n_jobs=a.threads, random_state=0, **more).fit(x, y)
        return to_onnx(m, x[:1], target_opset={"": 17, "ai.onnx.ml": 3})
    return make


def of_lightgbm(leaves):
    def make(a, x, y):
        import lightgbm, onnxmltools
        from onnxmltools.convert.common.data_types import FloatTensorType
        m = lightgbm.LGBMRegressor(n_estimators=a.trees, num_leaves=leaves, verbose=-1, n_jobs=a.threads).fit(x, y)
        return onnxmltools.convert_lightgbm(m, initial_types=[("X", FloatTensorType([None, a.features]))])
    return make


MODELS = {
    "forest_10": ("random forest, depth 10, regression", of_sklearn("values", max_depth=10)),
    "forest": ("random forest, unbounded depth, regression", of_sklearn("values")),
    "classes_10": ("random forest, depth 10, 4 classes", of_sklearn("classes", max_depth=10)),
    "boosted_15": ("LightGBM, 15 leaves", of_lightgbm(15)),
    "boosted_31": ("LightGBM, 31 leaves", of_lightgbm(31)),
    "boosted_63": ("LightGBM, 63 leaves", of_lightgbm(63)),
}


def ort_times(fn):
    """least and median, ms"""
    out, end = [], time.perf_counter() + cpu.WARMUP_S
    while time.perf_counter() < end:
        fn()
    end = time.perf_counter() + cpu.BUDGET_S
    while len(out) < cpu.MIN_RUNS or time.perf_counter() < end:
        t = time.perf_counter()
        fn()
        out.append(1e3 * (time.perf_counter() - t))
    return min(out), float(np.median(out))


def graphc_times(a, plan, rows):
    p = subprocess.run([a.graphc, "bench", plan, "--json", "--threads", str(a.threads), "--input", f"X={rows}"],
                       capture_output=True, text=True, check=True)
    j = json.loads(p.stdout)
    return j["min_ms"], j["median_ms"]


def agree(a, plan, rows, session, x, folder):
    subprocess.run([a.graphc, "run", plan, "--input", f"X={rows}", "--output-dir", folder], check=True, capture_output=True)
    worst = 0
    for o, want in zip(session.get_outputs(), session.run(None, {"X": x})):
        got = np.load(f"{folder}/{''.join(c if c.isalnum() or c in '._-' else '_' for c in o.name)}.npy")
        if want.dtype.kind == "f":
            worst = max(worst, float(np.abs(got.reshape(want.shape) - want).max()))
    if worst > TOLERANCE:
        raise RuntimeError(f"outputs differ by {worst}")
    return worst


@contextlib.contextmanager
def undisturbed(a):
    if a.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    try:
        yield
    finally:
        if a.realtime:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def bench(a, name, folder):
    import onnxruntime as ort
    x, y = data(a)
    rows = f"{folder}/rows.npy"
    given = np.random.default_rng(4).standard_normal((a.rows, a.features)).astype(np.float32)
    np.save(rows, given)
    path, plan = f"{folder}/{name}.onnx", f"{folder}/{name}.plan"
    with open(path, "wb") as f:
        f.write(MODELS[name][1](a, x, y).SerializeToString())
    begin = time.perf_counter()
    subprocess.run([a.graphc, path, "-o", plan], check=True, capture_output=True)
    compile_s = time.perf_counter() - begin
    o = ort.SessionOptions()
    o.intra_op_num_threads = a.threads
    got = {"ours": [], "peer": []}
    with undisturbed(a):  # onnxruntime's threads begin here
        session = ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])
        worst = agree(a, plan, rows, session, given, folder)
        sides = {"ours": lambda: graphc_times(a, plan, rows), "peer": lambda: ort_times(lambda: session.run(None, {"X": given}))}
        for i in range(a.rounds):
            for k in list(sides)[:: -1 if i % 2 else 1]:
                got[k].append(sides[k]())
                time.sleep(cpu.PAUSE_S)
    least = {k: min(t[0] for t in v) for k, v in got.items()}
    middle = {k: float(np.median([t[1] for t in v])) for k, v in got.items()}
    return (f"| {MODELS[name][0]} | {least['peer']:.2f} / {middle['peer']:.2f} | {least['ours']:.2f} / {middle['ours']:.2f} | "
            f"{least['peer'] / least['ours']:.2f} | {worst:.1e} | {compile_s:.1f} s |")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("graphc"), p.add_argument("names", nargs="*", choices=[[], *MODELS]), p.add_argument("--write"), p.add_argument("--realtime", action="store_true")
    for name, value in (("trees", 500), ("rows", 1000), ("features", 20), ("threads", 2), ("rounds", 3)):
        p.add_argument(f"--{name}", type=int, default=value)
    a = p.parse_intermixed_args()
    a.graphc, a.isa, a.dim, a.no_openvino, a.precision = os.path.abspath(a.graphc), None, [], True, "f32"
    warnings.simplefilter("ignore")
    import lightgbm, sklearn
    lines = [f"{a.trees} trees, {a.rows} rows of {a.features} features. {cpu.machine(a).split(', Linux')[0].split(', f32')[0]}, "
             f"scikit-learn {sklearn.__version__}, LightGBM {lightgbm.__version__}; least / median of {a.rounds} rounds, ms:", "",
             "| model | onnxruntime | graphc | ratio of the least | largest difference | compile |", "|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in a.names or MODELS:
            lines.append(bench(a, name, folder))
            print(lines[-1], flush=True)
    if a.write:
        sections.add(a.write, f"Forests: {time.strftime('%Y-%m-%d')}", lines)


if __name__ == "__main__":
    main()
