"""graphc beside cuBLAS, cuDNN and torch.compile on one GPU: the rows of gpu_rows.py, alternating in one process.

    gpu.py list [PATTERN...]
    gpu.py plans GRAPHC FOLDER [PATTERN...] [--models DIR]     compiles the rows; needs onnx, no GPU
    gpu.py run FOLDER [PATTERN...] [--lib libgraphc.so] [--models DIR] [--rounds 3] [--places N] [--budget S] [--write results/gpu_rows.md]

`plans` may run on another machine than `run`: a plan's folder and libgraphc.so are all that the GPU's machine needs,
beside torch. DIR holds NAME.onnx and NAME.weights of the models. Both sides are timed the same way: a CUDA graph of a
few calls, replayed between two events, inputs and outputs on the device; sides alternate over the rounds, each round
beginning with another one, until no side's last --rounds medians differ by more than SETTLED (a large product slows
down for its first seconds, as the card meets its power limit) or MOST_ROUNDS are over; medians of those last ones, or
of the last half. A ratio is peer time / graphc time: above 1 means graphc is faster.
"""
import argparse, json, math, os, random, statistics, subprocess, sys, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gpu_rows, sections

REPLAYS, BURST_MS = 7, 4.0
SETTLED, MOST_ROUNDS = 0.01, 15


def plans(a):
    os.makedirs(a.folder, exist_ok=True)
    for row in gpu_rows.pick(a.patterns):
        path, plan = f"{a.folder}/{row.name}.onnx", f"{a.folder}/{row.name}.plan"
        if row.model:
            path = f"{a.models}/{row.model}.onnx"
        else:
            import onnx
            onnx.save(row.graph(), path)
            gpu_rows.write_weights(row, a.folder)
        p = subprocess.run([a.graphc, path, "-o", plan, "--target", "sm_90a", *row.options], capture_output=True, text=True)
        print(f"{row.name}: {'made' if p.returncode == 0 else p.stderr.strip()[-200:]}", flush=True)
        for f in [] if row.model else [path, f"{a.folder}/{row.name}.weights"]:
            if os.path.exists(f):
                os.remove(f)


# --- On the GPU -----------------------------------------------------------------------------------


class Timed:
    """One side's run as a CUDA graph of `inner` calls."""

    def __init__(self, fn, stream):
        import torch
        self.stream, self.before = stream, getattr(fn, "before", None)
        with torch.cuda.stream(stream):
            fn(), fn()
            stream.synchronize()
            once = self.events(fn)
            self.inner = max(1, min(20, int(BURST_MS / max(once, 1e-3))))
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=stream):
                for _ in range(self.inner):
                    fn()
            self.events(self.graph.replay)

    def events(self, fn):
        import torch
        a, b = torch.cuda.Event(True), torch.cuda.Event(True)
        with torch.cuda.stream(self.stream):
            if self.before:
                self.before()
            a.record(), fn(), b.record()
        b.synchronize()
        return a.elapsed_time(b)

    def ms(self):
        return statistics.median(self.events(self.graph.replay) for _ in range(REPLAYS)) / self.inner


def graphc_side(lib, a, row, stream):
    import graphc_run
    plan = f"{a.folder}/{row.name}.plan"
    if not os.path.exists(plan):
        return None
    if row.weights and not os.path.exists(f"{a.folder}/{row.name}.weights"):
        gpu_rows.write_weights(row, a.folder)
    return graphc_run.Session(lib, plan, stream.cuda_stream, row.dims, a.models if row.model else a.folder)


def in_turns(sides, rounds):
    """The medians of each side's last rounds, in milliseconds."""
    got, names = {name: [] for name in sides}, list(sides)
    for i in range(max(rounds, MOST_ROUNDS)):
        first = i % max(1, len(names))
        for name in names[first:] + names[:first]:
            got[name].append(sides[name].ms())
        last = [v[-rounds:] for v in got.values()]
        if i + 1 >= rounds and all(max(v) <= (1 + SETTLED) * min(v) for v in last):
            break
    else:
        rounds = max(rounds, MOST_ROUNDS // 2)
    return {name: statistics.median(v[-rounds:]) for name, v in got.items()}


def measure(lib, a, row, stream):
    """measure_once in a.places places of memory; medians of them."""
    import torch
    all_got, draw = [], random.Random(1)
    for _ in range(a.places):
        between = torch.empty(draw.randrange(1, 64) << 21 if a.places > 1 else 1, dtype=torch.uint8, device="cuda")
        all_got.append(measure_once(lib, a, row, stream))
        del between
        torch.cuda.empty_cache()
    got = all_got[-1]
    if a.places > 1:
        got["places"] = [g["ms"] for g in all_got]
        got["ms"] = {k: round(statistics.median(g["ms"][k] for g in all_got if k in g["ms"]), 5) for k in got["ms"]}
    return got


def measure_once(lib, a, row, stream):
    """Milliseconds per side; what failed is in `errors`."""
    import torch, gpu_peers
    sides, errors = {}, {}
    torch._dynamo.reset()
    with torch.no_grad(), torch.cuda.stream(stream):
        functions = gpu_peers.peers(row.peer) if not a.alone else {}
    start = time.perf_counter()
    session = None
    try:
        session = graphc_side(lib, a, row, stream)
    except RuntimeError as e:
        errors["graphc"] = str(e)
    if session:
        functions["graphc"] = session.run
    load_s = time.perf_counter() - start
    for name, fn in functions.items():
        try:
            with torch.no_grad():
                sides[name] = Timed(fn, stream)
        except Exception as e:
            errors[name] = str(e).strip()[:160]
    got = in_turns(sides, a.rounds)
    out = dict(row=row.name, ms={k: round(v, 5) for k, v in got.items()}, errors=errors)
    if session:
        out.update(load_s=round(load_s, 3), kernels=lib.graphc_profile_steps(session.session))
        if a.kernels:
            out["profile"] = session.profile()
    sides.clear()
    if session:
        session.close()
    torch.cuda.empty_cache()
    return out


def rate(row, ms):
    if row.flops > 100 * row.bytes:
        return f"{row.flops / ms / 1e9:.0f} TFLOP/s"
    return f"{row.bytes / ms / 1e6:.0f} GB/s" if row.bytes else ""


def line(row, got):
    peers = {k: v for k, v in got["ms"].items() if k != "graphc"}
    best = min(peers, key=peers.get) if peers else None
    ours = got["ms"].get("graphc")
    ratio = peers[best] / ours if best and ours else None
    cell = lambda ms: f"{ms:.4f} | {rate(row, ms)}" if ms else " | "
    text = f"| {row.name} | {cell(ours)} | {best or ''} | {cell(peers.get(best))} | {f'{ratio:.3f}' if ratio else ''} |"
    return text + "".join(f" {k} failed: {v[:80]}" for k, v in got["errors"].items()), ratio


def run(a):
    import torch, graphc_run
    lib, stream = graphc_run.load(os.path.abspath(a.lib)), torch.cuda.Stream()
    lines = ["| row | graphc ms | | peer | ms | | ratio |", "|---|---|---|---|---|---|---|"]
    ratios, start, log = [], time.perf_counter(), open(a.json, "a") if a.json else None
    print("\n".join(lines), flush=True)
    for row in gpu_rows.pick(a.patterns):
        if a.budget and time.perf_counter() - start > a.budget:
            print(f"stopped before {row.name}: the time is used up")
            break
        got = measure(lib, a, row, stream)
        text, ratio = line(row, got)
        ratios += [ratio] if ratio else []
        lines.append(text)
        print(text, flush=True)
        if log:
            log.write(json.dumps(got) + "\n"), log.flush()
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        lines.append(f"\ngeometric mean of peer / graphc over {len(ratios)} rows: {mean:.3f}")
        print(lines[-1])
    if a.write:
        sections.add(a.write, f"GPU, {torch.cuda.get_device_name()}: {time.strftime('%Y-%m-%d')}", lines)


def main():
    p = argparse.ArgumentParser()
    sub = p.add_subparsers(dest="verb", required=True)
    for verb in ("list", "plans", "run"):
        s = sub.add_parser(verb)
        if verb == "plans":
            s.add_argument("graphc")
        if verb != "list":
            s.add_argument("folder"), s.add_argument("--models", default=".cache/models")
        if verb == "run":
            s.add_argument("--lib", default="build/lib/libgraphc.so"), s.add_argument("--rounds", type=int, default=3)
            s.add_argument("--places", type=int, default=1), s.add_argument("--budget", type=float)
            s.add_argument("--write"), s.add_argument("--json")
            s.add_argument("--alone", action="store_true", help="no peers")
            s.add_argument("--kernels", action="store_true", help="time each kernel, into --json")
        s.add_argument("patterns", nargs="*")
    a = p.parse_args()
    if a.verb == "list":
        print("\n".join(r.name for r in gpu_rows.pick(a.patterns)))
    else:
        {"plans": plans, "run": run}[a.verb](a)


if __name__ == "__main__":
    main()
