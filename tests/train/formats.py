"""Files of training as other tools write and read them.

    formats.py TRAIN_TOOL
"""
import json, os, struct, subprocess, sys, tempfile
import ml_dtypes, numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tool import check, failed

tool = sys.argv[1]


def run(*args):
    return subprocess.run([tool, *args], capture_output=True, text=True)


def safetensors(d):
    """What the safetensors package writes is read, and what we write is read by it: same bytes, names, metadata."""
    rng = np.random.default_rng(0)
    types = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.int32, np.int16, np.int8,
             np.uint64, np.uint32, np.uint16, np.uint8, np.bool_]
    shapes = [(), (0,), (1,), (3, 5), (2, 0, 4), (2, 3, 1, 5)]
    tensors = {f"layer.{np.dtype(t).name}.{i}": rng.integers(0, 2 if t == np.bool_ else 100, s).astype(t)
               for t in types for i, s in enumerate(shapes)}
    tensors['a "quoted" \\ name\n\u00e9\U0001f600'] = np.arange(4, dtype=np.float32)
    meta = {"format": "np", "note": 'line\n"two" \u00e9'}
    save_file(tensors, f"{d}/in", meta)
    p = run("safetensors", f"{d}/in", f"{d}/out")
    check(p.returncode == 0, p.stderr)
    got = load_file(f"{d}/out")
    check(got.keys() == tensors.keys(), "names differ")
    for n, t in tensors.items():
        check(got[n].dtype == t.dtype and got[n].shape == t.shape and got[n].tobytes() == t.tobytes(), n)
    with safe_open(f"{d}/out", "np") as f:
        m = f.metadata()
    check(len(m.pop("graphc.xxh3")) == 16 and m == meta, f"metadata {m}")
    p = run("safetensors", f"{d}/out", f"{d}/again")
    check(p.returncode == 7 or p.returncode == 0, p.stderr)
    check(not [f for f in os.listdir(d) if f not in ("in", "out", "again")], "files are left over")


def agree(d):
    """Damaged files: what the package refuses, we refuse too."""
    save_file({"a": np.arange(3, dtype=np.float32), "b": np.zeros((2, 2), np.int64)}, f"{d}/x")
    raw = open(f"{d}/x", "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8:8 + n]), raw[8 + n:]
    refused = total = 0
    for path in (("a", "shape", 0), ("a", "data_offsets", 0), ("a", "data_offsets", 1), ("b", "shape", 1),
                 ("b", "data_offsets", 0), ("b", "data_offsets", 1), ("a", "dtype"), ("b", "dtype")):
        for value in (0, 1, 2, 3, 11, 12, 13, 32, 44, 45, -1, 2**40, 2**64, "F32", "I64", "U8", "X", None, []):
            h = json.loads(json.dumps(header))
            at = h
            for k in path[:-1]:
                at = at[k]
            at[path[-1]] = value
            text = json.dumps(h).encode()
            open(f"{d}/y", "wb").write(struct.pack("<Q", len(text)) + text + data)
            p = run("safetensors", f"{d}/y", f"{d}/z")
            try:
                want = load_file(f"{d}/y")
            except Exception:
                want = None
            total += 1
            refused += want is None
            check((p.returncode == 0) == (want is not None), f"{path} = {value!r}: {p.returncode} {p.stderr}")
            if want is None:
                check(p.returncode in (3, 4) and p.stderr, f"{path} = {value!r}: {p.returncode}")
    check(0 < refused < total, f"{refused} of {total} are refused")


for test in (safetensors, agree):
    with tempfile.TemporaryDirectory() as d:
        test(d)
print(f"{failed()} failures")
sys.exit(failed() != 0)
