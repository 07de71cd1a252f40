"""What README.md and tests/bench/RESULTS.md say of plans, measured: kernels per run of each target, the arena against its
lower bound, sizes, memory while compiling. Nothing runs, so weights are sparse files of the right length.

    claims.py GRAPHC [MODEL ...]      without models: all of them, and the sentence on the ONNX suite

A figure that differs fails, also a better one: enter it where it is written.
"""
import json, os, re, subprocess, sys, tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tool import check, failed

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
graphc = os.path.abspath(sys.argv[1])
ARENA = 1.005                              # what is written as 1.00
LLAMA_PLAN_MB, LLAMA_PEAK_MB = 4, 300      # of a model with 2,470 MB of weights by reference


def table(file, title):
    """model -> the row's other cells, of the first table whose head starts with `title`"""
    lines = open(f"{root}/{file}").read().split("\n")
    start = next((i for i, l in enumerate(lines) if l.startswith(title)), None)
    if start is None:
        sys.exit(f"{file} has no table {title}")
    rows = {}
    for line in lines[start + 2:]:
        if not line.startswith("|"):
            break
        name, *cells = [c.strip() for c in line.strip("|").split("|")]
        rows[name] = cells
    return rows


def inspect(name, folder):
    """The facts of the model's plan, what the compiler said and its largest resident size in MB."""
    cases.sparse_weights(name, folder)
    # What an assembler makes of kernels is told of one model only, and takes most of the time.
    env = None if name.startswith("llama_1b") else {**os.environ, "GRAPHC_PTXAS": "/nowhere"}
    code = ("import resource, subprocess, sys; p = subprocess.run(sys.argv[1:]);"
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(p.returncode)")
    p = subprocess.run([sys.executable, "-c", code, graphc, f"{folder}/{name}.onnx", "-o", f"{folder}/{name}.plan",
                        "--target", "cpu,sm_90a", "--threads", "2"], capture_output=True, text=True, env=env)
    if p.returncode:
        return None, p.stderr[-300:], 0
    facts = subprocess.run([graphc, "inspect", f"{folder}/{name}.plan", "--json"], capture_output=True, text=True, check=True)
    return json.loads(facts.stdout), p.stderr + p.stdout, int(p.stdout.split()[-1]) / 1024


def plans(names, every):
    kernels = lambda j, t: len(next(x for x in j["targets"] if x["target"] == t)["kernels"])
    readme, results = table("README.md", "| model | kernels |"), table("tests/bench/RESULTS.md", "| model | cpu | sm_90a |")
    check(len(readme) >= 12 and len(results) >= 6, f"only {len(readme)} and {len(results)} models are listed")
    for name in sorted({*readme, *results}):
        check(name in every, f"{name} is listed, but not in models/")
    for name, (j, said, peak) in names.items():
        if not j:
            check(False, f"{name}: {said}")
            continue
        got = f"{name}: {kernels(j, 'cpu')} kernels for cpu, {kernels(j, 'sm_90a')} for sm_90a"
        print(f"{got}, plan {j['plan_bytes'] / 1e6:.2f} MB, {peak:.0f} MB to compile", flush=True)
        if name in readme:
            check(int(readme[name][0]) == kernels(j, "cpu"), f"{got}; README.md says {readme[name][0]}")
        if name in results:
            check([int(x) for x in results[name][:2]] == [kernels(j, "cpu"), kernels(j, "sm_90a")],
                  f"{got}; RESULTS.md says {results[name][:2]}")
            check(kernels(j, "cpu") <= int(results[name][2]), f"{got}; {results[name][2]} are asked for")
        for target, t in ((t["target"], t) for t in j["targets"]):
            m = t["memory"]
            check(m["largest_live_set"] > 0 and m["arena"] <= ARENA * m["largest_live_set"], f"{name} {target}: arena {m}")
        if name.startswith("llama_1b"):
            check(j["plan_bytes"] <= LLAMA_PLAN_MB * 1e6, f"{name}: a plan of {j['plan_bytes']} bytes")
            check(20 < peak <= LLAMA_PEAK_MB, f"{name}: {peak:.0f} MB while compiling")


def suite_counts():
    """README's sentence on the ONNX suite against the list that the suite is held to."""
    text = re.sub(r"\s+", " ", open(f"{root}/README.md").read())
    m = re.search(r"Of the ([\d,]+) cases of ONNX's [\d.]+ backend suite ([\d,]+) pass, (\d+) are reported as unsupported "
                  r".*? and (\d+) differ", text)
    status = [l.split()[1] for l in open(f"{root}/tests/conformance/expected.txt") if l.strip() and l[0] != "#"]
    want = [len(status), *(status.count(s) for s in ("pass", "unsupported", "wrong"))]
    check(m and [int(x.replace(",", "")) for x in m.groups()] == want, f"README.md on the ONNX suite: {m and m.groups()}; it is {want}")


names = sorted(f[:-5] for f in os.listdir(f"{root}/models") if f.endswith(".onnx"))
if not sys.argv[2:]:
    suite_counts()
with tempfile.TemporaryDirectory() as d:
    plans({n: inspect(n, d) for n in sys.argv[2:] or names}, names)
print(f"{failed()} failures")
sys.exit(failed() != 0)
