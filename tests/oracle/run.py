"""Generated cases against onnxruntime, through the command line, every output compared.

    run.py GRAPHC [SET ...] [--only REGEX] [--keep FOLDER] [--target T --device D]

SET: `core` (core ops, types, edge values), `fused` (operations in a row), `contrib` (com.microsoft and
open sizes), `control` (branches and loops that find out sizes), `backward` (what gradients are made of), `ml` (ai.onnx.ml). expected.txt lists the
cases that do not pass, with the reason; everything else must. skipped.txt lists the results for which there is no reference.
"""
import argparse, fnmatch, os, re, shutil, sys, tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(here), "conformance"))
import suite


def generate(name, folder, only):
    skipped = []
    if name == "contrib":
        import ort_cases
        ort_cases.write_all(folder, skipped)
    else:
        cases = __import__(f"{name}_cases").cases
        for c in cases:
            if not only or re.search(only, f"{name}/{c.name}"):
                c.write(folder, skipped)
    return skipped


def skipped_wrongly(name, skipped):
    """What skipped.txt does not list, or lists and is not skipped."""
    rows = [l.split(None, 3) for l in open(os.path.join(here, "skipped.txt")) if l.strip() and l[0] != "#"]
    rows = [(int(count), pattern) for s, count, pattern, _ in rows if s == name]
    left, bad = list(skipped), []
    for count, pattern in sorted(rows, key=lambda r: -len(r[1])):
        got = [s for s in left if fnmatch.fnmatchcase(s.split(": ")[0], pattern)]
        left = [s for s in left if s not in got]
        if len(got) != count:
            bad.append(f"{len(got)} results {pattern} without a reference instead of {count}")
    return bad + [f"no reference: {s}" for s in left]


def run_set(a, name):
    only, keep = a.only, a.keep
    folder = os.path.join(keep or tempfile.mkdtemp(prefix="oracle"), name)
    os.makedirs(folder, exist_ok=True)
    skipped = generate(name, folder, only)
    todo = [(f"{name}/{c}", f"{folder}/{c}/model.onnx", f"{folder}/{c}") for c in sorted(os.listdir(folder))]
    todo = [c for c in todo if not only or re.search(only, c[0])]
    results = suite.run_all(a, todo, suite.forks.cores())
    if not keep:
        shutil.rmtree(os.path.dirname(folder))
    return results, skipped


def main():
    p = argparse.ArgumentParser()
    p.add_argument("graphc"), p.add_argument("sets", nargs="*"), p.add_argument("--only"), p.add_argument("--keep")
    p.add_argument("--target", default="cpu"), p.add_argument("--device", default="cpu"), p.add_argument("-v", action="store_true")
    p.add_argument("--compile-only", action="store_true"), p.add_argument("--isa")
    a = p.parse_args()
    want = suite.read_expected(os.path.join(here, "expected.txt"))
    failures = 0
    for name in a.sets or ("core", "fused", "contrib", "control", "backward", "ml"):
        results, skipped = run_set(a, name)
        bad = [f"{n}: {why}" for n, r in results.items() if (why := suite.complaint(r, want.get(n, ("pass", ""))))]
        if not a.only:
            bad += skipped_wrongly(name, skipped)
        if not results:
            bad.append("no case")
        print(f"{name}: {len(results)} cases, {len(bad)} complaints; {len(skipped)} results without a reference")
        for line in bad + (skipped if a.v else []):
            print("  ", line)
        failures += len(bad)
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
