"""The checks themselves: each must fail on what it is there for.

    checks.py GRAPHC
"""
import contextlib, json, os, re, shutil, subprocess, sys, tempfile, types
import numpy as np

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [f"{root}/tests/{d}" for d in ("oracle", "conformance", "models", "bench")]
import run as oracle  # each folder has a run.py, the first is meant
import compare, cpu, forks, gpu, sections, suite
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tool import check, failed

graphc = sys.argv[1]


def raises(fn, *args):
    try:
        fn(*args)
    except RuntimeError:
        return True
    return False


def listed_cases():
    """(got, listed, is there a complaint)"""
    wrong = lambda n: ("wrong", f"output y: {n} of 60 elements differ")
    ok, no = ("pass", ""), ("unsupported", "G0301")
    return [(ok, ok, False), (no, ok, True), (ok, no, True), (wrong(3), wrong(3), False), (wrong(2), wrong(3), False),
            (wrong(4), wrong(3), True), (("wrong", "output y: shape (2,) instead of (3,)"), wrong(3), True),
            (("crash", ""), ("crash", ""), True), (("timeout", ""), ("timeout", ""), True), (("error", ""), wrong(3), True)]


def run_suite(data, lines, *more):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write("".join(l + "\n" for l in lines))
        f.flush()
        return subprocess.run([sys.executable, f"{root}/tests/conformance/suite.py", graphc, data, f.name, *more],
                              capture_output=True).returncode


def suites():
    import onnx
    data = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")
    with tempfile.TemporaryDirectory() as part:
        check(run_suite(part, []) != 0, "an empty data folder passes")
        os.makedirs(f"{part}/node")
        os.symlink(f"{data}/node/test_add", f"{part}/node/test_add")
        check(run_suite(part, ["node/test_add pass"]) == 0, "a case that passes as listed fails")
        check(run_suite(part, ["node/test_add pass", "node/test_abs pass"]) != 0, "a case without its data passes")
        check(run_suite(part, []) != 0, "a case that is not listed passes")
        check(run_suite(part, ["node/test_add unsupported"]) != 0, "a case better than listed passes")
        check(run_suite(part, ["node/test_add pass"], "--only", "no_such") != 0, "no case at all passes")
    for got, listed, bad in listed_cases():
        check(bool(suite.complaint(got, listed)) == bad, f"{got} where {listed} is listed")


def numbers():
    one, nan, inf = np.ones(3, np.float32), np.array([1, np.nan, 1], np.float32), np.array([1, np.inf, 1], np.float32)
    check(not suite.close(one, one, 0, 0) and suite.close(nan, one, 1, 1) and suite.close(inf, one, 1, 1),
          "the suite takes NaN or infinity for a number")
    check(suite.close(np.int32([2**24 + 1]), np.int32([2**24]), 1e-3, 1e-7), "the suite compares integers as floating point")
    check(raises(compare.error, nan, one) and raises(compare.error, inf, one) and raises(compare.error, one, nan),
          "the models' comparison takes NaN or infinity for a number")
    check(raises(compare.error, one[:2], one) and compare.error(one + np.float32(1), np.arange(3)) > 1, "the models' comparison")


def skips():
    with open(f"{root}/tests/oracle/skipped.txt") as f:
        row = next(l.split(None, 3) for l in f if l[0] != "#")
    got = [f"{row[2].replace('*', str(i))}: why" for i in range(int(row[1]))]
    told = lambda skipped: " ".join(oracle.skipped_wrongly(row[0], skipped))
    check(row[2] not in told(got) and row[2] in told(got[1:]) and "new/o1" in told([*got, "new/o1: why"]),
          "results without a reference are not counted")


def runner():
    p = subprocess.run([f"{root}/tests/run", "TYPO"], capture_output=True, timeout=300)
    check(p.returncode == 2, f"tests/run TYPO gives {p.returncode}")


def trees():
    """The lint of what stands where, on a tree with a stray file and a crowded folder."""
    with tempfile.TemporaryDirectory() as top:
        os.makedirs(f"{top}/tests/lint")
        shutil.copy(f"{root}/tests/lint/tree", f"{top}/tests/lint/tree")
        os.makedirs(f"{top}/graph")
        for name in ["k.npy"] + [f"graph/{i}.c" for i in range(26)]:
            open(f"{top}/{name}", "w").close()
        subprocess.run(["git", "init", "-q", top], check=True)
        subprocess.run(["git", "-C", top, "add", "-A"], check=True)
        p = subprocess.run([f"{top}/tests/lint/tree"], capture_output=True, text=True)
        check(p.returncode and "at the top: k.npy" in p.stdout, "a stray file at the top is overlooked")
        check("graph has 26 files" in p.stdout, "a folder of 26 files is overlooked")


def nothing_to_read():
    """Lints fail where what they read is missing."""
    with tempfile.TemporaryDirectory() as top:
        shutil.copytree(f"{root}/tests/lint", f"{top}/tests/lint")
        subprocess.run(["git", "init", "-q", top], check=True)
        for name in ("circles", "dead", "layers", "size", "tree"):
            p = subprocess.run([f"{top}/tests/lint/{name}"], capture_output=True, cwd=top)
            check(p.returncode, f"lint/{name} passes where there is nothing")


def objects_of_gone_sources():
    """A use counts where the build lists the object that has it, not where one just lies there."""
    build = os.path.dirname(os.path.dirname(os.path.realpath(graphc)))
    with tempfile.TemporaryDirectory() as other:
        for name in ("CMakeFiles", "lib"):
            os.symlink(f"{build}/{name}", f"{other}/{name}")
        with open(f"{build}/build.ninja") as f:
            lines = [l for l in f if not re.match(r"build \S*/graph/grad/train\.c\.o:", l)]
        with open(f"{other}/build.ninja", "w") as f:
            f.writelines(lines)
        p = subprocess.run([f"{root}/tests/lint/exports", other], capture_output=True, text=True)
        check(p.returncode and "is used there alone" in p.stdout, f"objects that no build lists are read: {p.stdout}")


def benchmarks():
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/broken.onnx", "wb") as f:
            f.write(b"no model")
        p = subprocess.run([sys.executable, f"{root}/tests/bench/cpu.py", graphc, folder, "--no-openvino", "--rounds", "1"],
                           capture_output=True, text=True)
        check(p.returncode == 1 and "broken | failed" in p.stdout, "a benchmark whose model fails passes")
        decode = subprocess.run([sys.executable, f"{root}/tests/bench/decode.py", graphc, folder, "broken"], capture_output=True, text=True)
        check(decode.returncode and "past 512" in decode.stdout, "decode.py passes where its model fails")
    check(re.match(r".+, \d+ cores, .*graphc .*onnxruntime \d", p.stdout), f"machine and versions: {p.stdout[:200]}")
    rounds = [cpu.turn(["a", "b", "c"], i) for i in range(3)]
    check([sorted(r) for r in rounds] == [["a", "b", "c"]] * 3 and sorted(r[0] for r in rounds) == ["a", "b", "c"], f"turns: {rounds}")
    said = cpu.summary("a peer", {"bert": 2.0, "mixtral_small": 8.0})
    with tempfile.NamedTemporaryFile("w+") as f:
        f.write("# Measured\n\nWhere.\n\n## older\n\na\n\n## oldest\n"), f.flush()
        sections.add(f.name, "new", ["| b |"])
        check(f.seek(0) or f.read() == "# Measured\n\nWhere.\n\n## new\n\n| b |\n\n## older\n\na\n\n## oldest\n", "where new figures stand")
    check("2 models: 4.00" in said and "no mixture of experts: 2.00" in said, f"the mean of a benchmark: {said}")


def warm_up():
    """Peers are timed once they are warm, and as long as graphc is. Cold, this one is faster; the clock is its own."""
    with open(f"{root}/frontend/driver/cli/bench/times.c") as f:
        text = f.read()
    ours = [float(re.search(rf"#define {n}_SECONDS +([0-9.]+)", text)[1]) for n in ("WARMUP", "TIMED")]
    check(ours == [cpu.WARMUP_S, cpu.BUDGET_S], f"graphc warms up and is timed for {ours} s, its peers for {[cpu.WARMUP_S, cpu.BUDGET_S]}")
    now, real = [0.0], cpu.time

    def call():
        now[0] += 0.05 if now[0] < cpu.WARMUP_S else 0.3

    cpu.time = types.SimpleNamespace(perf_counter=lambda: now[0])
    took = cpu.times(call)
    cpu.time = real
    check(abs(took - 300) < 1e-6, f"a peer that has not warmed up is timed: {took} ms")


def forked():
    """How a command line ends, and what it is given and says, comes through the server that forks it."""
    preload = forks.preload_of(graphc)
    if not preload:
        return
    server = forks.Server("/bin/sh", preload)
    sh = lambda text, limit=300, **env: server.run(["sh", "-c", text], limit, {**os.environ, **env})
    p = sh("echo $WHO; pwd; echo no >&2; exit 3", WHO="me")
    check((p.returncode, p.stdout, p.stderr) == (3, f"me\n{os.getcwd()}\n", "no\n"), f"a forked command line: {p}")
    check(sh("kill -SEGV $$").returncode == -11, "a forked command line's crash is not seen")
    check(sh("echo $WHO").stdout == "\n", "what a forked command line is given stays")
    check(out_of_time(sh), "a forked command line may take as long as it likes")
    server.close()


def out_of_time(sh):
    try:
        sh("sleep 9", 1)
    except subprocess.TimeoutExpired:
        return True
    return False


def put_back():
    """A peer that leaves something behind is put back before each timing, outside of it. (PyTorch is not there.)"""
    seen, alone = [], lambda *a, **k: contextlib.nullcontext()
    event = types.SimpleNamespace(record=lambda: seen.append("event"), synchronize=lambda: None, elapsed_time=lambda end: 1.0)
    graph = types.SimpleNamespace(replay=lambda: seen.append("run"))
    cuda = types.SimpleNamespace(stream=alone, graph=alone, Event=lambda timed: event, CUDAGraph=lambda: graph)
    peer = lambda: None
    peer.before = lambda: seen.append("before")
    sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
    side = gpu.Timed(peer, types.SimpleNamespace(synchronize=lambda: None))
    seen.clear()
    side.ms()
    del sys.modules["torch"]
    check(seen == ["before", "event", "run", "event"] * gpu.REPLAYS, f"a peer that counts is timed as {seen[:6]}")


RAGGED = {"compare": """for p; do
  case $p in *.plan) echo $p ;; *) continue ;; esac
  case $p in *good*) echo "  status 0" ;; *bad*) echo "  status 1" ;; *slow*) exec sleep 9 ;; *crash*) kill -SEGV $$ ;;
  *hazard*) [ "$TOOL" ] && echo "========= Error: Race"; echo "  status 0" ;; *) echo "  status 77" ;; esac
done""", "compute-sanitizer": 'export TOOL=$2; shift 4; exec "$@"'}


def ragged():
    """What runs on a GPU came to: results that differ and what a sanitizer reports fail, no GPU is no success."""
    with tempfile.TemporaryDirectory() as d:
        for name, text in RAGGED.items():
            with open(f"{d}/{name}", "w") as f:
                f.write(f"#!/bin/sh\n{text}\n")
            os.chmod(f"{d}/{name}", 0o755)

        def run(names, *more):
            with open(f"{d}/near.json", "w") as f:
                json.dump(dict.fromkeys(names, 0.1), f)
            return subprocess.run([sys.executable, f"{root}/tests/gpu/ragged.py", "run", f"{d}/compare", d, "--budget", "1", *more],
                                  capture_output=True, env={**os.environ, "PATH": f"{d}:{os.environ['PATH']}"}).returncode
        check(run(["good", "slow"]) == 0 and run(["good"], "--tool", "memcheck") == 0, "plans that agree fail")
        check(run(["good", "bad"]) == 1, "a plan whose results differ passes")
        check(run(["good", "crash"]) == 1, "a plan that crashes passes")
        check(run(["good", "hazard"], "--tool", "racecheck") == 1, "what a sanitizer reports passes")
        check(run(["none"]) == 77 and run(["good", "none"]) == 1, "no GPU is a success")
        check(run([]) == 1 and run(["slow"]) == 1, "nothing that came to an end passes")


suites(), numbers(), skips(), runner(), trees(), nothing_to_read(), objects_of_gone_sources(), benchmarks(), warm_up(), put_back(), ragged(), forked()
print(f"{failed()} failures")
sys.exit(failed() != 0)
