"""Random products, convolutions and attentions on the GPU beside the CPU: what a fixed list (ragged.py) cannot have, each
tile and each way to share one, with any epilogue, at sizes around multiples of tiles (random_models.py).

    random_products.py plans GRAPHC FOLDER [PATTERN...] [--seed N] [--count N]   compiles for both targets; needs onnx, no GPU
    random_products.py run PLAN_COMPARE FOLDER [PATTERN...] [--tool memcheck] [--jobs 8] [--budget S] [--each S]
    random_products.py test GRAPHC PLAN_COMPARE [--seed N] [--count N]           both, with memcheck where there is one
    random_products.py ways FOLDER GRAPHC                                        how many plans have which tile

Products are computed as the cost model says, or in any way that is possible, by a database as `graphc tune` writes it.
"""
import argparse, collections, concurrent.futures, os, random, re, shutil, subprocess, sys, tempfile
import ragged

TILES = ["128x256", "128x192 in turns", "192x192", "128x128 in turns", "128x128", "64x128", "128x64", "64x64", "128x64 in turns",
         "192x128", "192x64", "64x128 in turns", "64x64 in turns", "64x256", "64x32"]
SMALL = ["64x128", "64x64", "128x128", "128x64", "64x128 in turns", "64x64 in turns"]  # of f32
SHARED = ["", "", ", twins", ", twins", ", split 2", ", split 3", ", split 4", ", split 8"]
MACHINE = "sm_90a/132"
TRIES = 4  # to find a way that a product has


def ways_of(plan):
    """Signature -> way, of the plan's products."""
    with open(plan, "rb") as f:
        notes = re.findall(rb"\0(gemm [^\0|]* body=[0-9a-f]*) \| ([^\0|]*)\0", f.read())
    return {s.decode(): way.decode() for s, way in notes}


def in_ways(a, name, compiles):
    """The plan `name`.plan as the cost model has it, or each product in a way of its own, of some that are tried for it."""
    r = random.Random(os.path.basename(name))
    if r.random() < 0.3:
        return compiles([])
    path, wanted = f"{name}.ways", {}
    for turn in range(1 + TRIES):
        with open(path, "w") as f:
            f.write("graphc-tuned 1\n" + "".join(f"{MACHINE}\t{s}\t{way}\n" for s, way in wanted.items()))
        if not compiles(["--tune-db", path]):
            return False
        got = ways_of(f"{name}.plan")
        if turn and all(wanted.get(s) == way for s, way in got.items()):
            break
        wanted |= {s: r.choice(SMALL if " f32 " in s else TILES) + r.choice(SHARED) for s, way in got.items() if wanted.get(s) != way}
    os.remove(path)
    return True


def compile_drawn(a, row):
    options = row.options

    def compiles(database):
        row.options = (*options, *database)
        return ragged.compile_one(a, row)

    return in_ways(a, f"{a.folder}/{row.name}", compiles)


def kernels_of(graphc, plan):
    text = subprocess.run([graphc, "explain", plan], capture_output=True, text=True).stdout
    return re.findall(r": ((?:not on )?tensor cores[^\n]*)", text)


def table(a):
    """How many plans have a kernel of that kind."""
    names = [n for n in sorted(os.listdir(a.folder)) if n.endswith(".plan")]
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        said = list(pool.map(lambda n: set(kernels_of(a.graphc, f"{a.folder}/{n}")), names))
    for what, n in sorted(collections.Counter(k for s in said for k in s).items(), key=lambda x: -x[1]):
        print(f"{n:5} {what}")
    return 0


# --- Use ------------------------------------------------------------------------------------------


def plans(a):
    import random_models
    return ragged.plans(a, random_models.drawn(a.seed, a.count), compile_drawn)


def test(a):
    if not ragged.has_gpu(a.graphc):
        return 77
    a.patterns, a.jobs, a.budget, a.each = [], 8, 200, 200
    a.tool = ["", "memcheck"] if shutil.which("compute-sanitizer") else [""]
    with tempfile.TemporaryDirectory() as a.folder:
        return plans(a) or ragged.run(a)


def main():
    p = argparse.ArgumentParser()
    sub = p.add_subparsers(dest="verb", required=True)
    for verb, *given in (("plans", "graphc", "folder"), ("run", "plan_compare", "folder"), ("test", "graphc", "plan_compare"), ("ways", "folder", "graphc")):
        s = sub.add_parser(verb)
        for name in given:
            s.add_argument(name)
        s.add_argument("patterns", nargs="*"), s.add_argument("--jobs", type=int, default=8 if verb == "run" else 2)
        s.add_argument("--seed", type=int, default=0), s.add_argument("--count", type=int, default=200)
        s.add_argument("--tool", type=lambda text: text.split(","), default=[""])
        s.add_argument("--budget", type=float, default=1e6), s.add_argument("--each", type=float, default=1e6)
    a = p.parse_args()
    return {"plans": plans, "run": ragged.run, "test": test, "ways": table}[a.verb](a)


if __name__ == "__main__":
    sys.exit(main())
