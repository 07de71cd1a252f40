"""The reference evaluator, to which `graphc verify` and the unit tests compare, against the ONNX backend suite itself.

    eval.py SUITE_EVAL [--some]

No case may be worse than expected.txt lists it for the compiler, and each must be in one of the two places. --some: every fourth
case, unless GRAPHC_TEST_ALL is in the environment.
"""
import os, subprocess, sys
import onnx
import suite

here = os.path.dirname(os.path.abspath(__file__))
data = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")
want = {n: w for n, w in suite.read_expected(os.path.join(here, "expected.txt")).items() if not n.startswith("light/")}
folders = {folder: name for name, _, folder in suite.cases(data) if folder}
if "--some" in sys.argv and not os.environ.get("GRAPHC_TEST_ALL"):
    folders = dict(list(folders.items())[::4])
    want = {n: want[n] for n in folders.values() if n in want}
out = subprocess.run([sys.argv[1], *folders], capture_output=True, text=True).stdout
got = {}
for line in out.splitlines():
    status, folder, *reason = line.split(" ", 2)
    got[folders[folder]] = status, "".join(reason)
bad = [f"{n}: not evaluated" for n in want if n not in got] + [f"{n}: not listed" for n in got if n not in want]
bad += [f"{n}: {s} {why} (listed as {want[n][0]})" for n, (s, why) in got.items()
        if n in want and suite.RANK[s] > suite.RANK[want[n][0]]]
count = [s for s, _ in got.values()]
print(", ".join(f"{count.count(s)} {s}" for s in suite.RANK if s in count), f"of {len(got)}")
for b in bad[:50]:
    print("NOT AS LISTED", b)
sys.exit(1 if bad or not got else 0)
