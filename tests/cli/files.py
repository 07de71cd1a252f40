"""Files as they lie on real disks: weights behind links, arrays in archives and on standard input.

    files.py GRAPHC
"""
import io, os, subprocess, sys, tempfile
import numpy as np
import onnx
from safetensors.numpy import save_file

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import build

graphc, failures = sys.argv[1], 0


def run(*args, status=0, text="", stdin=None):
    global failures
    p = subprocess.run([graphc, *args], input=stdin, capture_output=True, timeout=600)
    said = p.stderr.decode()
    if p.returncode != status or text not in said:
        failures += 1
        print(f"FAILED graphc {' '.join(args)}: exit {p.returncode}, wanted {status} and \"{text}\":\n  {said.strip()[:400]}")


def same(a, b, what):
    global failures
    if not (os.path.exists(a) and os.path.exists(b) and open(a, "rb").read() == open(b, "rb").read()):
        failures += 1
        print("FAILED", what)


def external(folder, name="model"):
    os.makedirs(folder, exist_ok=True)
    onnx.save(onnx.load("mlp.onnx"), f"{folder}/{name}.onnx", save_as_external_data=True, location=f"{name}.weights", size_threshold=0)


def outputs(plan, where, *args):
    run("run", plan, "--dim", "batch=3", "--output-dir", where, *args)
    return f"{where}/y.npy"


def links():
    """The layout of a cache of downloads: all names are links into a folder of contents, also the model's."""
    external("plain")
    run("plain/model.onnx", "-o", "plain.plan")
    want = outputs("plain.plan", "want")
    os.makedirs("cache/blobs"), os.makedirs("cache/snapshots/main/onnx")
    for i, name in enumerate(("model.onnx", "model.weights")):
        os.rename(f"plain/{name}", f"cache/blobs/{i}")
        os.symlink(f"../../../blobs/{i}", f"cache/snapshots/main/onnx/{name}")
    run("cache/snapshots/main/onnx/model.onnx", "-o", "cached.plan")
    same(outputs("cached.plan", "cached"), want, "a plan of a cache")
    same(outputs("cache/snapshots/main/onnx/model.onnx", "straight"), want, "a model of a cache")
    # Names of the model's own choice do not leave its folder, whatever links do.
    external("out"), os.makedirs("elsewhere")
    os.rename("out/model.weights", "elsewhere/w")
    os.symlink(os.path.abspath("elsewhere/w"), "out/model.weights")
    refused = lambda *a: run("out/model.onnx", "-o", "q.plan", *a, status=3, text="leads out of the folder through a symbolic link")
    refused(), refused("--weights-root", "cache"), refused("--weights-root", "nowhere")
    run("out/model.onnx", "-o", "q.plan", status=3, text="--weights-root DIR")
    for how in (["--weights-root", "elsewhere"], ["--weights-root", "."], ["--allow-links"]):
        run("out/model.onnx", "-o", "linked.plan", *how)
        same(outputs("linked.plan", "linked"), want, f"a plan made with {how}")
    run("run", "linked.plan", "--output-dir", "o", "--allow-links", status=2, text="is for models")
    for name in ("/etc/passwd", "../elsewhere/w", "a\\b"):
        m = onnx.load("out/model.onnx", load_external_data=False)
        for t in m.graph.initializer:
            t.external_data[0].value = name
        open("out/bad.onnx", "wb").write(m.SerializeToString())
        run("out/bad.onnx", "-o", "q.plan", "--allow-links", status=3, text="external data")


def hard_links():
    external("hard")
    run("hard/model.onnx", "-o", "hard.plan")
    want = outputs("hard.plan", "before")
    os.link("hard/model.weights", "hard/backup")
    same(outputs("hard.plan", "after"), want, "a plan whose weights got a hard link")
    run("hard/model.onnx", "-o", "again.plan")
    same("again.plan", "hard.plan", "a model whose weights have a hard link")
    os.rename("hard/model.weights", "hard/first"), os.link("hard/backup", "hard/model.weights")
    same(outputs("hard.plan", "other"), want, "a plan whose weights are another link")


def arrays():
    """One array in every form gives the same output."""
    x = np.random.default_rng(0).standard_normal((3, 32)).astype(np.float32)
    run("mlp.onnx", "-o", "mlp.plan")
    np.save("x.npy", x)
    run("run", "mlp.plan", "--input", "x=x.npy", "--output-dir", "npy")
    np.savez("one.npz", anything=x), np.savez("two.npz", x=x, y=x * 2), np.savez_compressed("packed.npz", x=x, z=x + 1)
    save_file({"x": x, "other": x * 3}, "x.safetensors"), save_file({"only": x}, "only.safetensors")
    open("x.pb", "wb").write(onnx.numpy_helper.from_array(x).SerializeToString())
    for name in ("one.npz", "two.npz", "packed.npz", "x.safetensors", "only.safetensors", "x.pb"):
        run("run", "mlp.plan", "--input", f"x={name}", "--output-dir", "form")
        same("form/y.npy", "npy/y.npy", f"x from {name}")
        run("run", "mlp.plan", "--input", "x=-", "--output-dir", "piped", stdin=open(name, "rb").read())
        same("piped/y.npy", "npy/y.npy", f"x from standard input, as {name}")
    run("run", "mlp.plan", "--input", "x=-", "--output-dir", "piped", stdin=open("x.npy", "rb").read())
    same("piped/y.npy", "npy/y.npy", "x from standard input")
    big = np.zeros((40000, 32), np.float32)  # packs by more than a thousand to one, in many blocks
    np.save("big.npy", big), np.savez_compressed("big.npz", x=big)
    run("run", "mlp.plan", "--input", "x=big.npy", "--output-dir", "big")
    run("run", "mlp.plan", "--input", "x=big.npz", "--output-dir", "unpacked")
    same("big/y.npy", "unpacked/y.npy", "a large packed array")
    bad = lambda status, text, file, stdin=None: run("run", "mlp.plan", "--input", f"x={file}", "--output-dir", "none",
                                                     status=status, text=text, stdin=stdin)
    bad(7, "standard input holds nothing", "-", b"")
    np.savez("lacks.npz", a=x, b=x), save_file({"a": x, "b": x}, "lacks.safetensors"), np.savez("none.npz")
    bad(3, 'it has "a", "b"', "lacks.npz"), bad(3, 'it has "a", "b"', "lacks.safetensors")
    bad(3, "holds 0 tensors", "none.npz")
    packed = open("packed.npz", "rb").read()
    open("cut.npz", "wb").write(packed[:len(packed) // 2]), bad(3, "no list of its entries", "cut.npz")
    body = bytearray(packed)
    body[200] ^= 1
    open("body.npz", "wb").write(body), bad(3, "is damaged", "body.npz")
    stored = bytearray(open("one.npz", "rb").read())
    stored[stored.index(x.tobytes())] ^= 1  # a number becomes another: only the checksum tells
    open("stored.npz", "wb").write(stored), bad(3, "is damaged", "stored.npz")
    at = packed.index(b"PK\1\2")
    for offset, text in ((10, "is packed by method"), (24, "is damaged"), (42, "is damaged"), (8, "is damaged")):
        bent = bytearray(packed)
        bent[at + offset] ^= 1
        open("bent.npz", "wb").write(bent), bad(4 if offset == 10 else 3, text, "bent.npz")


def unknown_names():
    run("run", "mlp.plan", "--input", "z=x.npy", "--output-dir", "none", status=3, text='its inputs are "x"')
    run("run", "mlp.plan", "--dim", "rows=3", "--output-dir", "none", status=2, text='"batch"')
    run("mlp.onnx", "-o", "q.plan", "--dim", "rows=3", status=2, text='"batch"')


with tempfile.TemporaryDirectory() as d:
    os.chdir(d)
    build.mlp("mlp.onnx")
    links(), hard_links(), arrays(), unknown_names()
print(f"{failures} failures")
sys.exit(failures != 0)
