"""Two builds of graphc make the same plans: for moves and renames, which must not change a byte.

    same_plans.py OLD_GRAPHC NEW_GRAPHC MODEL.onnx|FOLDER ... [--target LIST] [--jobs N]

Every model (of a folder: all below it) is compiled by both; plan bytes and exit statuses are compared.
Prints each difference and a last line of counts; fails if there is one, or if no model was found.
"""
import argparse, os, subprocess, sys, tempfile
from concurrent.futures import ThreadPoolExecutor


def models(paths):
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for folder, _, files in sorted(os.walk(path)):
            yield from (os.path.join(folder, f) for f in sorted(files) if f.endswith(".onnx"))


def compile_with(graphc, model, target):
    with tempfile.TemporaryDirectory() as tmp:
        plan = os.path.join(tmp, "plan")
        status = subprocess.run([graphc, model, "-o", plan, "--target", target, "--threads", "1"],
                                stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL).returncode
        return status, open(plan, "rb").read() if status == 0 else b""


def main():
    p = argparse.ArgumentParser()
    p.add_argument("old")
    p.add_argument("new")
    p.add_argument("models", nargs="+")
    p.add_argument("--target", default="cpu")
    p.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    o = p.parse_args()
    found = list(models(o.models))
    with ThreadPoolExecutor(o.jobs) as pool:
        pairs = pool.map(lambda m: (compile_with(o.old, m, o.target), compile_with(o.new, m, o.target)), found)
        differ = [(m, a, b) for m, (a, b) in zip(found, pairs) if a != b]
    for model, (old, a), (new, b) in differ:
        print(f"{model}: status {old}, {len(a)} bytes before; {new}, {len(b)} bytes now")
    print(f"{len(found)} models, {len(differ)} differ")
    return 1 if differ or not found else 0


sys.exit(main())
