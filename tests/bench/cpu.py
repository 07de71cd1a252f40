"""graphc beside onnxruntime and OpenVINO on the CPU: the same models and sizes, alternating in one run.

    cpu.py GRAPHC FOLDER [NAME...] [--threads 2] [--rounds 3] [--write RESULTS.md]

Batch 1, sequences of 64. Each round times graphc (its own bench command) and the peers one after the
other, with a pause between, since a peer's worker threads spin for a while; medians over rounds of the
medians within. The last line is the geometric mean of the ratios, peer time / graphc time: above 1
means graphc is faster.
"""
import argparse, json, math, os, statistics, subprocess, sys, tempfile, time
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import cases

SIZES = {"batch": 1, "seq": 64, "dec": 64, "past": 64}
PAUSE_S, BUDGET_S = 0.1, 1.0


def times(fn):
    fn(), fn()
    out, end = [], time.perf_counter() + BUDGET_S
    while time.perf_counter() < end or len(out) < 5:
        t = time.perf_counter()
        fn()
        out.append(time.perf_counter() - t)
    return statistics.median(out) * 1e3


def onnxruntime_peer(path, feeds, threads):
    import onnxruntime as ort
    ort.set_default_logger_severity(3)
    o = ort.SessionOptions()
    o.intra_op_num_threads = threads
    s = ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])
    return lambda: s.run(None, feeds)


def openvino_peer(path, feeds, threads):
    try:
        import openvino as ov
    except ImportError:
        return None
    core = ov.Core()
    m = core.compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"})
    r = m.create_infer_request()
    return lambda: r.infer(feeds)


def graphc_ms(graphc, plan, files, threads):
    args = [graphc, "bench", plan, "--json", "--threads", str(threads)]
    for k, f in files.items():
        args += ["--input", f"{k}={f}"]
    p = subprocess.run(args, capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stderr.strip()[-300:])
    return json.loads(p.stdout)["median_ms"]


def bench(a, name, tmp):
    path, plan = f"{a.folder}/{name}.onnx", f"{tmp}/{name}.plan"
    subprocess.run([a.graphc, path, "-o", plan], check=True, capture_output=True)
    feeds = cases.inputs(path, SIZES)
    files = {}
    for k, v in feeds.items():
        files[k] = f"{tmp}/{name}.{k}.npy"
        np.save(files[k], v)
    peers = {"onnxruntime": onnxruntime_peer(path, feeds, a.threads)}
    if not a.no_openvino:
        peers["openvino"] = openvino_peer(path, feeds, a.threads)
    got = {"graphc": []}
    for _ in range(a.rounds):
        got["graphc"].append(graphc_ms(a.graphc, plan, files, a.threads))
        for k, fn in peers.items():
            if fn:
                got.setdefault(k, []).append(times(fn))
                time.sleep(PAUSE_S)
    os.remove(plan)
    return {k: statistics.median(v) for k, v in got.items()}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("graphc"), p.add_argument("folder"), p.add_argument("names", nargs="*")
    p.add_argument("--threads", type=int, default=2), p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--no-openvino", action="store_true"), p.add_argument("--write")
    a = p.parse_args()
    names = a.names or sorted(f[:-5] for f in os.listdir(a.folder) if f.endswith(".onnx") and "llama_1b" not in f)
    lines = ["| model | graphc ms | onnxruntime ms | ratio | openvino ms | ratio |", "|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    ratios = {"onnxruntime": [], "openvino": []}
    with tempfile.TemporaryDirectory() as tmp:
        for name in names:
            try:
                t = bench(a, name, tmp)
            except Exception as e:
                lines.append(f"| {name} | failed: {str(e)[:120]} | | | | |")
                print(lines[-1], flush=True)
                continue
            row = f"| {name} | {t['graphc']:.2f} "
            for k in ratios:
                if k in t:
                    ratios[k].append(t[k] / t["graphc"])
                    row += f"| {t[k]:.2f} | {ratios[k][-1]:.2f} "
                else:
                    row += "| | "
            lines.append(row + "|")
            print(lines[-1], flush=True)
    for k, r in ratios.items():
        if r:
            lines.append(f"\ngeometric mean of {k} / graphc over {len(r)} models: {math.exp(sum(map(math.log, r)) / len(r)):.2f}")
            print(lines[-1])
    if a.write:
        sha = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
        with open(a.write, "a") as f:
            f.write(f"\n## CPU, {a.threads} threads, f32, batch 1, seq 64: {time.strftime('%Y-%m-%d')}, commit {sha}\n\n")
            f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
