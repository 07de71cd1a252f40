"""Gradients of norms over any lengths of rows beside a copy of as many bytes, on one GPU; plans of several builds in turns.

    norm_grads.py plans GRAPHC FOLDER LENGTH...     as 1280, or f32:1280; needs onnx, no GPU
    norm_grads.py run FOLDER... [--lib libgraphc.so] [--rounds 5]

Rows are as many as make TOTAL elements, a multiple of 32 where they start at any element, as a batch of sequences has. The copy is of just so many, for what it takes of an odd size is half as much
again, and its time is scaled. A line has the copy, then for each folder microseconds, percent of the copy, the least; last
the first folder's time in the second's.
"""
import argparse, glob, os, statistics, subprocess, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

TOTAL = 64 << 20  # elements of an operand


def rows_of(cols):
    return TOTAL // cols if cols % 8 == 0 else TOTAL // cols // 32 * 32


def plans(a):
    import onnx, gpu_rows
    gpu_rows.ROWS.clear()
    for length in a.lengths:
        t, cols = length.split(":") if ":" in length else ("bf16", length)
        for kind in ("layernorm", "rmsnorm"):
            gpu_rows.norm_grad(kind, f"_{t}_{rows_of(int(cols))}x{cols}", t, rows_of(int(cols)), int(cols))
    os.makedirs(a.folder, exist_ok=True)
    for row in gpu_rows.ROWS.values():
        path = f"{a.folder}/{row.name}"
        onnx.save(row.graph(), path + ".onnx")
        subprocess.run([a.graphc, path + ".onnx", "-o", path + ".plan", "--target", "sm_90a"], check=True)
        os.remove(path + ".onnx")


# --- On the GPU -----------------------------------------------------------------------------------


def part_of(name):
    """What its rows are of TOTAL elements, which they need not make in full."""
    rows, cols = map(int, name.split("_")[-1].split("x"))
    return rows * cols / TOTAL


def measure(lib, a, name, stream):
    """Microseconds of each folder's plan and of the copy, a list of rounds each."""
    import torch, gpu, graphc_run
    sessions = {d: graphc_run.Session(lib, f"{d}/{name}.plan", stream.cuda_stream, {}) for d in a.folders}
    x = torch.empty(3 * TOTAL // 2, device="cuda", dtype=torch.float32 if name.split("_")[2] == "f32" else torch.float16)
    y = torch.empty_like(x)
    sides = {"copy": gpu.Timed(lambda: y.copy_(x), stream)} | {d: gpu.Timed(s.run, stream) for d, s in sessions.items()}
    got, names = {n: [] for n in sides}, list(sides)
    for i in range(a.rounds):
        first = i % len(names)
        for n in names[first:] + names[:first]:
            got[n].append(1e3 * sides[n].ms() * (part_of(name) if n == "copy" else 1))
    sides.clear()
    for s in sessions.values():
        s.close()
    torch.cuda.empty_cache()
    return got


def run(a):
    import torch, graphc_run
    lib, stream = graphc_run.load(os.path.abspath(a.lib)), torch.cuda.Stream()
    names = [os.path.basename(p)[:-5] for p in glob.glob(a.folders[0] + "/*_grad_*.plan")]
    for name in sorted(names, key=lambda n: (n.split("_")[:3], int(n.split("x")[-1]))):
        with torch.no_grad():
            got = measure(lib, a, name, stream)
        mid = {n: statistics.median(v) for n, v in got.items()}
        cells = [f"{mid[d]:.1f} ({100 * mid['copy'] / mid[d]:.1f} %, {min(got[d]):.1f})" for d in a.folders]
        cells += [f"{mid[a.folders[0]] / mid[a.folders[1]]:.4f}"] if len(a.folders) > 1 else []
        print(f"{name:40s} copy {mid['copy']:.1f}  " + "  ".join(cells), flush=True)


def main():
    p = argparse.ArgumentParser()
    sub = p.add_subparsers(dest="verb", required=True)
    s = sub.add_parser("plans")
    s.add_argument("graphc"), s.add_argument("folder"), s.add_argument("lengths", nargs="+")
    s = sub.add_parser("run")
    s.add_argument("folders", nargs="+"), s.add_argument("--lib", default="build/lib/libgraphc.so"), s.add_argument("--rounds", type=int, default=5)
    a = p.parse_args()
    {"plans": plans, "run": run}[a.verb](a)


if __name__ == "__main__":
    main()
