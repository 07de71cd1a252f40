"""graphc beside onnxruntime and OpenVINO on the CPU: the same models and sizes, taking turns in one run.

    cpu.py GRAPHC FOLDER [NAME...] [--threads 2] [--rounds 3] [--dim SYMBOL=N ...] [--isa 3|4] [--precision bf16]
           [--write results/cpu.md]

Batch 1, sequences of 64, or what --dim says. --isa 3 holds graphc to AVX2, and of OpenVINO what oneDNN computes;
without_avx512.py holds all of both peers. --precision bf16: graphc's option of that name, beside
OpenVINO as it comes, which on machines with AMX computes in bf16 too; and the errors of both, as |got - want| /
|want|, in which want is what onnxruntime computes in f32. Each round times graphc (its own bench command) and the
peers one after the other, each round beginning with another one, with a pause between, since a peer's worker threads
spin for a while; medians over rounds of the medians within. All sides warm up and are timed for as long
(WARMUP_SECONDS and TIMED_SECONDS of bench/times.c), and read their inputs where they lie. The last lines are
geometric means of the ratios, peer time / graphc time: above 1 means graphc is faster; once over all models and once
without the mixture of experts, whose peers compute every expert. A model that fails fails the run.
"""
import argparse, json, math, os, platform, statistics, subprocess, sys, tempfile, time
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import cases, sections

SIZES = {"batch": 1, "seq": 64, "dec": 64, "past": 64}
PAUSE_S, WARMUP_S, BUDGET_S, MIN_RUNS = 0.1, 0.2, 1.0, 5
EXPERTS = "mixtral"  # names of mixtures of experts begin so


def times(fn):
    def one():
        t = time.perf_counter()
        fn()
        return time.perf_counter() - t

    one()
    spent = 0
    while spent < WARMUP_S:
        spent += one()
    out = []
    while len(out) < MIN_RUNS or sum(out) < BUDGET_S:
        out.append(one())
    return statistics.median(out) * 1e3


def onnxruntime_peer(path, feeds, threads):
    import onnxruntime as ort
    ort.set_default_logger_severity(3)
    o = ort.SessionOptions()
    o.intra_op_num_threads = threads
    s = ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])
    return lambda: s.run(None, feeds)


def openvino_peer(path, feeds, threads, precision="f32"):
    import openvino as ov
    core = ov.Core()
    options = {"INFERENCE_PRECISION_HINT": "f32"} if precision == "f32" else {}
    m = core.compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": threads} | options)
    r = m.create_infer_request()
    for i in m.inputs:
        r.set_tensor(i, ov.Tensor(feeds[i.any_name], shared_memory=True))
    return lambda: list(r.infer().values())


def graphc_ms(a, plan, files):
    args = [a.graphc, "bench", plan, "--json", "--threads", str(a.threads)]
    args += ["--isa", str(a.isa)] if a.isa else []
    for k, f in files.items():
        args += ["--input", f"{k}={f}"]
    p = subprocess.run(args, capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stderr.strip()[-300:])
    return json.loads(p.stdout)["median_ms"]


def sizes_of(a):
    return SIZES | {k: int(v) for k, _, v in (d.partition("=") for d in a.dim)}


def error(got, want):
    """Of the worst output: the error's norm beside its own."""
    return max(float(np.linalg.norm(np.float64(g) - w) / np.linalg.norm(w)) for g, w in zip(got, want, strict=True))


def errors(a, plan, files, outputs, peers):
    """Of graphc and of OpenVINO."""
    with tempfile.TemporaryDirectory() as out:
        args = [a.graphc, "run", plan, "--threads", str(a.threads), "--output-dir", out]
        for k, f in files.items():
            args += ["--input", f"{k}={f}"]
        subprocess.run(args, check=True, capture_output=True)
        got = [np.load(f"{out}/{o}.npy") for o in outputs]
    want = peers["onnxruntime"]()
    return {"graphc": error(got, want)} | ({"openvino": error(peers["openvino"](), want)} if "openvino" in peers else {})


def what(a):
    sizes = sizes_of(a)
    isa = {3: ", AVX2", 4: ", AVX-512"}.get(a.isa, "")
    return f"{a.threads} threads, {a.precision}{isa}, batch {sizes['batch']}, seq {sizes['seq']}"


def peers_of(a):
    return ["onnxruntime"] + ([] if a.no_openvino else ["openvino"])


def machine(a):
    """What the figures depend on besides the code."""
    import onnxruntime
    said = subprocess.run([a.graphc, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    versions = [said, f"onnxruntime {onnxruntime.__version__}"]
    if not a.no_openvino:
        import openvino
        versions.append(f"OpenVINO {openvino.__version__}")
    return f"{cpu}, {len(os.sched_getaffinity(0))} cores, {what(a)}, Linux {platform.release()}; {', '.join(versions)}"


def geomean(r):
    return math.exp(sum(map(math.log, r)) / len(r))


def summary(peer, ratios):
    """ratios: model -> peer / graphc"""
    others = [r for n, r in ratios.items() if not n.startswith(EXPERTS)]
    line = f"\ngeometric mean of {peer} / graphc over {len(ratios)} models: {geomean(ratios.values()):.2f}"
    if others and len(others) < len(ratios):
        line += f"; over the {len(others)} that are no mixture of experts: {geomean(others):.2f}"
    return line


def turn(order, i):
    """Each comes first once, and behind each other: what one leaves in caches and in the clock is not always the same one's."""
    return order[i % len(order):] + order[:i % len(order)]


def outputs_of(path):
    import onnx
    return [o.name for o in onnx.load(path, load_external_data=False).graph.output]


def bench(a, name, tmp):
    path, plan = f"{a.folder}/{name}.onnx", f"{tmp}/{name}.plan"
    subprocess.run([a.graphc, path, "--precision", a.precision, "-o", plan], check=True, capture_output=True)
    feeds = cases.inputs(path, sizes_of(a))
    files = {}
    for k, v in feeds.items():
        files[k] = f"{tmp}/{name}.{k}.npy"
        np.save(files[k], v)
    sides = {"graphc": lambda: graphc_ms(a, plan, files)}
    makers = {"onnxruntime": onnxruntime_peer, "openvino": lambda *x: openvino_peer(*x, a.precision)}
    peers = {k: makers[k](path, feeds, a.threads) for k in peers_of(a)}
    for k, fn in peers.items():
        sides[k] = lambda fn=fn: times(fn)
    order, got = list(sides), {k: [] for k in sides}
    for i in range(a.rounds):
        for k in turn(order, i):
            got[k].append(sides[k]())
            time.sleep(PAUSE_S)
    said = errors(a, plan, files, outputs_of(path), peers) if a.precision != "f32" else {}
    os.remove(plan)
    return {k: statistics.median(v) for k, v in got.items()}, said


def main():
    p = argparse.ArgumentParser()
    p.add_argument("graphc"), p.add_argument("folder"), p.add_argument("names", nargs="*")
    p.add_argument("--threads", type=int, default=2), p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--dim", action="append", default=[], help="a symbol's size: batch=8")
    p.add_argument("--isa", type=int, choices=[3, 4]), p.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    p.add_argument("--no-openvino", action="store_true"), p.add_argument("--write")
    a = p.parse_intermixed_args()
    if a.isa == 3:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"
    names = a.names or sorted(f[:-5] for f in os.listdir(a.folder) if f.endswith(".onnx") and "llama_1b" not in f)
    if not names:
        sys.exit(f"no model in {a.folder}")
    lines = [machine(a), "", "| model | graphc ms | onnxruntime ms | ratio | openvino ms | ratio |", "|---|---|---|---|---|---|"]
    if a.precision != "f32":
        lines[2], lines[3] = lines[2] + " error |", lines[3] + "---|"
    print("\n".join(lines), flush=True)
    ratios, failed = {"onnxruntime": {}, "openvino": {}}, 0
    with tempfile.TemporaryDirectory() as tmp:
        for name in names:
            try:
                t, said = bench(a, name, tmp)
            except Exception as e:
                failed += 1
                lines.append(f"| {name} | failed: {str(e)[:120]} | | | | |")
                print(lines[-1], flush=True)
                continue
            row = f"| {name} | {t['graphc']:.2f} "
            for k in ratios:
                if k in t:
                    ratios[k][name] = t[k] / t["graphc"]
                    row += f"| {t[k]:.2f} | {ratios[k][name]:.2f} "
                else:
                    row += "| | "
            lines.append(row + "|")
            if said:
                lines[-1] += f" {', '.join(f'{k} {v:.1e}' for k, v in said.items())} |"
            print(lines[-1], flush=True)
    for k, r in ratios.items():
        if r:
            lines.append(summary(k, r))
            print(lines[-1])
    if a.write:
        sha = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
        sections.add(a.write, f"CPU, {what(a)}: {time.strftime('%Y-%m-%d')}, commit {sha}", lines)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
