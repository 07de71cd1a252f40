"""The ONNX backend test suite through graphc's command line.

    suite.py GRAPHC DATA EXPECTED [--device cpu|cuda] [--target LIST] [--isa 3|4] [--compile-only] [--update]
             [--jobs N] [--only REGEX] [-v]

Every case folder below DATA (node, simple, pytorch-operator, pytorch-converted, light) is compiled, run
and compared as the suite prescribes (rtol 1e-3, atol 1e-7, exact types and shapes, data.json overrides).
A case is one of

    pass           all outputs agree
    unsupported    graphc said so (exit status 4), with its reason
    wrong          outputs differ
    error          any other message (a valid model was refused, or running failed)
    crash, timeout never acceptable

EXPECTED lists every case with its status, and DATA must hold exactly those. The test fails if a case is worse
than listed (also a wrong one with more wrong elements), if it is better, so that the list stays true, and if
anything crashes or times out; --update rewrites the list. Cases that cannot pass as written (random outputs,
disputed references) are listed as such in the file and explained there. The list holds for every device:
--device cuda compiles for the GPU alone, so that nothing can run elsewhere. --compile-only makes the code and
runs nothing; a case then passes if it compiled without a warning of the assembler (spilled registers).

On the CPU every case runs with one thread, compared with the reference, and with three among which every
kernel is split that can be, whose outputs must be the same bytes. What takes the time is to make code, so most cases are
compiled for this machine alone; one of three, by its name, for every CPU, and is compared with AVX2's code, too.
"""
import argparse, filecmp, json, math, os, re, shutil, subprocess, sys, tempfile, zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import forks

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted", "light")
RANK = {"pass": 0, "unsupported": 1, "wrong": 2, "error": 3, "timeout": 4, "crash": 5}
LIMIT_S = 600  # what hangs: many times what any takes, beside other work too
TARGET = {"cpu": "cpu", "cuda": "sm_90a"}
ASSEMBLER = "[G0702]"


def cases(data):
    for kind in KINDS:
        root = os.path.join(data, kind)
        for name in sorted(os.listdir(root)) if os.path.isdir(root) else ():
            if kind == "light":
                if name.endswith(".onnx"):
                    yield f"light/{name[:-5]}", os.path.join(root, name), None
            else:
                yield f"{kind}/{name}", os.path.join(root, name, "model.onnx"), os.path.join(root, name)


def call(args, **env):
    """(exit status or None on time-out, stderr)"""
    try:
        p = forks.run(args, LIMIT_S, env)
        return p.returncode, p.stderr
    except subprocess.TimeoutExpired:
        return None, ""


def run_all(a, todo, jobs):
    """name -> (status, reason)"""
    with ThreadPoolExecutor(jobs) as pool:
        return dict(pool.map(one, ((a, c) for c in todo)))


def verdict(code, err):
    lines = [l for l in err.splitlines() if "error[" in l]
    line = re.sub(r"^graphc: ", "", lines[0] if lines else err.strip().split("\n")[0])
    line = re.sub(r"error\[(G\d+)\]: \S*?\.(onnx|plan|pb): ", r"\1 ", line)[:160]
    if code is None:
        return "timeout", ""
    if code < 0 or code > 7:
        return "crash", f"exit {code} {line}"
    return ("unsupported" if code == 4 else "error"), line


def safe(name):
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)


def load(path, type_proto):
    kind = type_proto.WhichOneof("value") if type_proto else "tensor_type"
    with open(path, "rb") as f:
        raw = f.read()
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(raw))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(raw))
    t = onnx.TensorProto.FromString(raw)
    return numpy_helper.to_array(t)


def close(got, want, rtol, atol):
    """None if equal within tolerance, else a reason."""
    if want is None or got is None:
        return None if want is got else "one side is absent"
    if isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            return "sequence length differs"
        return next((r for r in (close(g, w, rtol, atol) for g, w in zip(got, want)) if r), None)
    if got.dtype != want.dtype:
        return f"type {got.dtype} instead of {want.dtype}"
    if got.shape != want.shape:
        return f"shape {got.shape} instead of {want.shape}"
    if want.dtype == object or want.dtype.kind in "US":
        return None if (got == want).all() else "strings differ"
    if want.dtype.kind in "biu" or want.dtype.kind == "V" and "int" in want.dtype.name:
        bad = got.astype(np.int64) != want.astype(np.int64)
    else:
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        bad = ~np.isclose(got.astype(wide), want.astype(wide), rtol=rtol, atol=atol, equal_nan=True)
    return None if not bad.any() else f"{int(bad.sum())} of {bad.size} elements differ"


def inputs_of(model, folder):
    fixed = {i.name for i in model.graph.initializer}
    names = [i for i in model.graph.input]
    if folder is None:
        return [(i, None) for i in names if i.name not in fixed]
    files = sorted((f for f in os.listdir(f"{folder}/test_data_set_0") if f.startswith("input_")),
                   key=lambda f: int(re.sub(r"\D", "", f)))
    if len(files) < len(names):
        names = [i for i in names if i.name not in fixed]
    return [(i, f"{folder}/test_data_set_0/{f}") for i, f in zip(names, files) if i.name not in fixed]


def light_input(value, path):
    dims = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
    n = int(np.prod(dims))
    x = (np.arange(n).astype(np.float32) / n).reshape(dims)
    with open(path, "wb") as f:
        f.write(numpy_helper.from_array(x, value.name).SerializeToString())


def for_every_cpu(name):
    return zlib.crc32(name.encode()) % 3 == 0


def run_case(a, name, model_path, folder, tmp):
    model = onnx.load(model_path, load_external_data=False)
    plan = f"{tmp}/plan.bin"
    here = a.target == "cpu" and not a.isa and not a.compile_only and not for_every_cpu(name)
    code, err = call([a.graphc, model_path, "-o", plan, "--target", "native" if here else a.target, "--threads", "1"])
    if code != 0:
        return verdict(code, err)
    if a.compile_only:
        said = [l for l in err.splitlines() if ASSEMBLER in l]
        return ("error", said[0][:160]) if said else ("pass", "")
    args = [a.graphc, "run", plan, "--device", a.device, "--output-format", "pb"]
    for value, path in inputs_of(model, folder):
        if path is None:
            path = f"{tmp}/{safe(value.name)}.pb"
            light_input(value, path)
        args += ["--input", f"{value.name}={path}"]
    isas = [["--isa", a.isa]] if a.isa else [[]] if a.device != "cpu" or here else [["--isa", "3"], []]
    for isa in isas:
        out = f"{tmp}/out{''.join(isa)}"
        result = compared(model, folder, model_path, [*args, *isa], out)
        if result[0] != "pass":
            return result
    return split([*args, *isa], out, f"{tmp}/split") if a.device == "cpu" else ("pass", "")


def compared(model, folder, model_path, args, out):
    """What one thread computes against the reference."""
    code, err = call([*args, "--output-dir", out, "--threads", "1"])
    if code != 0:
        return verdict(code, err)
    rtol, atol = 1e-3, 1e-7
    if folder and os.path.exists(f"{folder}/data.json"):
        d = json.load(open(f"{folder}/data.json"))
        rtol, atol = d.get("rtol", rtol), d.get("atol", atol)
    for i, value in enumerate(model.graph.output):
        want_path = f"{folder}/test_data_set_0/output_{i}.pb" if folder else \
            model_path[:-5] + f"_output_{i}.pb"
        reason = close(load(f"{out}/{safe(value.name)}.pb", value.type), load(want_path, value.type), rtol, atol)
        if reason:
            return "wrong", f"output {value.name}: {reason}"
    return "pass", ""


def split(args, out, other):
    """The same run by three threads: the same bytes."""
    code, err = call([*args, "--output-dir", other, "--threads", "3"], GRAPHC_GRAIN_NS="1")
    if code != 0:
        return verdict(code, "with 3 threads: " + err)
    for name in sorted(os.listdir(out)):
        if not filecmp.cmp(f"{out}/{name}", f"{other}/{name}", shallow=False):
            return "wrong", f"output file {name}: other bits with 3 threads"
    return "pass", ""


def one(args):
    a, (name, model, folder) = args
    tmp = tempfile.mkdtemp(prefix="suite")
    try:
        return name, run_case(a, name, model, folder, tmp)
    except Exception as e:  # an unreadable output is graphc's fault, not the runner's
        return name, ("error", f"{type(e).__name__}: {str(e)[:120]}")
    finally:
        shutil.rmtree(tmp, ignore_errors=True)


def read_expected(path):
    """name -> (status, reason)"""
    want = {}
    for line in open(path):
        if line.strip() and not line.startswith("#"):
            name, status, *reason = line.rstrip("\n").split(" ", 2)
            want[name] = status, "".join(reason)
    return want


def wrong_elements(reason):
    """How many; more than any number if it is not the elements that are wrong."""
    m = re.search(r": (\d+) of \d+ elements differ$", reason)
    return int(m[1]) if m else math.inf


def complaint(got, listed):
    """What is not as listed, or None; both (status, reason)."""
    (status, reason), (old, why) = got, listed
    if status in ("crash", "timeout") or RANK[status] > RANK[old]:
        return f"{status} (listed as {old}) {reason}"
    if RANK[status] < RANK[old]:
        return f"{status} (listed as {old}): enter it with --update"
    if status == "wrong" and wrong_elements(reason) > wrong_elements(why):
        return f"more is wrong than listed: {reason} (listed: {why})"
    return None


def write_expected(path, results):
    head = [l for l in open(path) if l.startswith("#")]
    with open(path, "w") as f:
        f.writelines(head)
        for name, (status, reason) in sorted(results.items()):
            f.write(f"{name} {status} {reason}".rstrip() + "\n")


def lacks(a):
    """What this machine has not got for the device or the target, as graphc doctor says; or None."""
    said = subprocess.run([a.graphc, "doctor"], capture_output=True, text=True).stdout
    if a.compile_only:
        return "no PTX assembler" if "sm_" in a.target and "PTX assembler: none" in said else None
    return "no GPU" if a.device == "cuda" and "cuda: driver" not in said else None


def compiled_only(a, status, listed):
    """Where nothing runs, what would be wrong passes."""
    return a.compile_only and status == "pass" and listed in ("wrong", "error")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("graphc"), p.add_argument("data"), p.add_argument("expected")
    p.add_argument("--update", action="store_true"), p.add_argument("-v", action="store_true")
    p.add_argument("--jobs", type=int, default=forks.cores()), p.add_argument("--only")
    p.add_argument("--device", choices=TARGET, default="cpu"), p.add_argument("--target")
    p.add_argument("--compile-only", action="store_true"), p.add_argument("--isa")
    a = p.parse_args()
    a.target = a.target or TARGET[a.device]
    if a.update and (a.only or a.compile_only):
        p.error("--update rewrites the whole list")
    missing = lacks(a)
    if missing:
        print(f"skipped: {missing}")
        return 77
    chosen = lambda name: not a.only or re.search(a.only, name)
    todo = [c for c in cases(a.data) if chosen(c[0])]
    results = run_all(a, todo, a.jobs)
    want = read_expected(a.expected)
    count, failures = {}, [f"{n}: not in {a.data}" for n in want if chosen(n) and n not in results]
    for name, (status, reason) in results.items():
        count[status] = count.get(status, 0) + 1
        if a.v and status != "pass":
            print(f"{status:12} {name}: {reason}")
        if name not in want:
            failures.append(f"{name}: {status}, not listed: enter it with --update")
        elif compiled_only(a, status, want[name][0]):
            continue
        elif complaint((status, reason), want[name]):
            failures.append(f"{name}: {complaint((status, reason), want[name])}")
    print(", ".join(f"{count[s]} {s}" for s in RANK if s in count), f"of {len(results)}")
    if a.update:
        write_expected(a.expected, results)
        return 0
    for f in failures[:50]:
        print("NOT AS LISTED", f)
    return 1 if failures or not results else 0


if __name__ == "__main__":
    sys.exit(main())
