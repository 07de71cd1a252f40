"""The first five minutes as README.md tells them: every command is run, in order, and what the page shows of its output
is what it says (but for numbers that differ from machine to machine): readme.py GRAPHC
"""
import os, re, subprocess, sys, tempfile

here = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(here))
sys.path[:0] = [here, f"{ROOT}/tests/cli"]
import build, cases
from onnx import TensorProto as T

graphc, failures = os.path.abspath(sys.argv[1]), 0
MEASURED = r"\d+(\.\d+)?(e[+-]?\d+)?( ?(s|ms|us|kB|MB))?\b"  # in lines that hold a time or an error


def plain(text):
    """Without what differs: times, errors of rounding; white space as one."""
    lines = [re.sub(MEASURED, "#", l) if re.search(r" in \d|max difference", l) else l for l in text.splitlines()]
    return re.sub(r"\s+", " ", " ".join(lines))


def examples(page):
    """(command, the lines that are shown of what it says)"""
    found, lines = [], [l[4:] if l.startswith("    ") else None for l in page.splitlines()]
    for i, l in enumerate(lines):
        if not l or not l.startswith("$ "):
            continue
        command, k = l[2:], i + 1
        while command.endswith("\\"):
            command, k = command[:-1] + lines[k], k + 1
        shown = []
        while k < len(lines) and lines[k] is not None and not lines[k].startswith("$ "):
            shown, k = shown + [lines[k]], k + 1
        found.append((command, shown))
    return found


page = open(f"{ROOT}/README.md").read()
todo = examples(page)
assert len(todo) > 8, "README.md shows few commands: are they read?"
with tempfile.TemporaryDirectory() as d:
    os.makedirs(f"{d}/.cache/quickstart"), os.makedirs(f"{d}/build/bin")
    os.symlink(graphc, f"{d}/build/bin/graphc"), os.symlink(f"{ROOT}/LICENSE", f"{d}/LICENSE")
    models = cases.filled(["llama_small"])
    for end in "onnx", "weights":
        os.link(f"{models}/llama_small.{end}", f"{d}/.cache/quickstart/llama_small.{end}") if os.stat(models).st_dev == os.stat(d).st_dev \
            else subprocess.run(["cp", f"{models}/llama_small.{end}", f"{d}/.cache/quickstart/"], check=True)
    build.one(f"{d}/unknown.onnx", "Frobnicate", [("x", T.FLOAT, [2])], [("y", T.FLOAT, [2])])
    for command, shown in todo:
        p = subprocess.run(["bash", "-c", command], cwd=d, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1500)
        missing = [l for l in shown if plain(l).strip() not in plain(p.stdout)]
        ok = p.returncode == 0 and not missing
        failures += not ok
        print(f"{'ok' if ok else 'FAILED'} {command}", flush=True)
        if not ok:
            print(f"  exit {p.returncode}, it does not say {missing}\n{p.stdout[-1500:]}")
sys.exit(bool(failures))
