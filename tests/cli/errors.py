"""Bad input gives the right exit status, a message with the place, and no partial output."""
import os, resource, subprocess, sys, tempfile, time
import numpy as np
import onnx
from onnx import TensorProto as T

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import build
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import forks

graphc, failures = os.path.abspath(sys.argv[1]), 0


def expect(status, text, *args, absent=None):
    global failures
    p = forks.run([graphc, *args], 60)
    ok = p.returncode == status and text in p.stderr and not (absent and os.path.exists(absent))
    if not ok:
        failures += 1
        print(f"FAILED graphc {' '.join(args)}\n  exit {p.returncode}, wanted {status} and \"{text}\":\n  {p.stderr.strip()[:400]}")


with tempfile.TemporaryDirectory() as d:
    os.chdir(d)
    build.mlp("mlp.onnx")
    good = open("mlp.onnx", "rb").read()
    open("short.onnx", "wb").write(good[:len(good) // 2])
    open("text.onnx", "w").write("this is no model\n" * 9)
    open("empty.onnx", "w").close()
    open("deep.onnx", "wb").write(b"\x3a\xff\xff\x03" * 4000)
    build.one("unknown.onnx", "Frobnicate", [("x", T.FLOAT, [2])], [("y", T.FLOAT, [2])])
    build.one("custom.onnx", "Foo", [("x", T.FLOAT, [2])], [("y", T.FLOAT, [2])], domain="my.domain")
    build.one("mismatch.onnx", "Add", [("x", T.FLOAT, [2]), ("y", T.FLOAT, [3])], [("z", T.FLOAT, [3])])
    build.one("dtype.onnx", "Add", [("x", T.FLOAT, [2]), ("y", T.INT64, [2])], [("z", T.FLOAT, [2])])
    build.one("future.onnx", "Relu", [("x", T.FLOAT, [2])], [("y", T.FLOAT, [2])], opset=99)

    build.one("clash.onnx", "Split", [("x", T.FLOAT, [2])], [("a/b", T.FLOAT, [1]), ("a_b", T.FLOAT, [1])],
              opset=18, num_outputs=2)

    expect(2, "usage", "mlp.onnx")
    expect(2, "one argument too many", "mlp.onnx", "short.onnx", "-o", "p.plan")
    expect(2, "one argument too many", "doctor", "now")
    expect(2, "would replace the model", "mlp.onnx", "-o", "./mlp.onnx")
    expect(2, "no option", "mlp.onnx", "-o", "p.plan", "--frob")
    expect(2, "needs a value", "mlp.onnx", "-o")
    compile = lambda status, text, *a: expect(status, text, "compile", "mlp.onnx", "-o", "p.plan", *a, absent="p.plan")
    for dim in ("batch=", "batch", "=3", "batch=x", "batch=5..2", "batch=-1", "batch= 3", "batch=1..",
                "batch=99999999999999999999"):
        compile(2, f'--dim: "{dim}" is not of the form', "--dim", dim)
    compile(2, "given twice", "--dim", "batch=1", "--dim", "batch=2")
    compile(2, 'no symbolic dimension "rows"', "--dim", "rows=2")
    compile(2, '--state: "x" is not of the form', "--state", "x")
    compile(2, "--state x=none: the model has no such output", "--state", "x=none")
    compile(2, "--state rows=y: the model has no such input", "--state", "rows=y")
    for targets in ("tpu", ",", "cpu,", "CPU", "cpu,tpu"):
        compile(2, "unknown target", "--target", targets)
    compile(2, "named twice", "--target", "cpu,cpu")
    compile(2, 'unknown precision "f99"; there are f32, tf32, bf16 and f16', "--precision", "f99")
    for threads in ("0", "-1", " 1", "257", "1e2", "99999999999999999999"):
        compile(2, "is not a number from 1 to 256", "--threads", threads)
    compile(7, "is not a folder", "--cache", "mlp.onnx")
    compile(7, "is not a folder", "--dump-ir", "mlp.onnx")
    os.environ["GRAPHC_THREADS"] = "many"
    compile(2, "GRAPHC_THREADS")
    del os.environ["GRAPHC_THREADS"]
    expect(7, "nowhere.onnx", "nowhere.onnx", "-o", "p.plan", absent="p.plan")
    for f in ("short", "text", "empty", "deep"):
        expect(3, f"{f}.onnx", f"{f}.onnx", "-o", "p.plan", absent="p.plan")
    expect(4, "Frobnicate", "unknown.onnx", "-o", "p.plan", absent="p.plan")
    expect(4, "Foo", "custom.onnx", "-o", "p.plan", absent="p.plan")
    expect(4, "opset", "future.onnx", "-o", "p.plan", absent="p.plan")
    expect(3, "Add", "mismatch.onnx", "-o", "p.plan", absent="p.plan")
    expect(3, "Add", "dtype.onnx", "-o", "p.plan", absent="p.plan")
    expect(7, "p.plan", "mlp.onnx", "-o", "no/such/folder/p.plan")
    expect(7, "full", "mlp.onnx", "-o", "/dev/full")

    grad = lambda status, text, *a: expect(status, text, "grad", *a, "--output-dir", "grads", absent="grads")
    build.one("bits.onnx", "BitCast", [("x", T.FLOAT16, [2])], [("y", T.BFLOAT16, [2])], opset=26, to=T.BFLOAT16)
    build.one("argmax.onnx", "ArgMax", [("x", T.FLOAT, [2])], [("y", T.INT64, [1])])
    grad(2, "--loss is missing", "mlp.onnx")
    grad(2, 'no output "nothing"', "mlp.onnx", "--loss", "nothing")
    grad(2, 'no input or initializer "v" of floats', "mlp.onnx", "--loss", "y", "--wrt", "x,v")
    grad(2, "empty name", "mlp.onnx", "--loss", "y", "--wrt", "x,")
    grad(2, "named twice", "mlp.onnx", "--loss", "y", "--wrt", "x,x")
    grad(2, "no initializers of floats", "bits.onnx", "--loss", "y")
    grad(4, 'node 0 "y" BitCast: bitcast lies between', "bits.onnx", "--loss", "y", "--wrt", "x")
    grad(4, "not a float", "argmax.onnx", "--loss", "y", "--wrt", "x")
    expect(2, "--output-dir is missing", "grad", "mlp.onnx", "--loss", "y")

    # Weights that are not there are one error, not one for each tensor.
    onnx.save(onnx.load("mlp.onnx"), "away.onnx", save_as_external_data=True, location="away.weights", size_threshold=0)
    os.remove("away.weights")
    p = subprocess.run([graphc, "away.onnx", "-o", "p.plan"], capture_output=True, text=True)
    if p.returncode != 7 or p.stderr.count("error") != 1 or "away.weights" not in p.stderr:
        failures += 1
        print(f"FAILED missing weights: exit {p.returncode}: {p.stderr}")

    # So are weights that were cut short.
    onnx.save(onnx.load("mlp.onnx"), "short_weights.onnx", save_as_external_data=True, location="short.weights", size_threshold=0)
    os.truncate("short.weights", 1)
    p = subprocess.run([graphc, "short_weights.onnx", "-o", "p.plan"], capture_output=True, text=True)
    if p.returncode != 3 or p.stderr.count("error") != 1 or "is the file whole" not in p.stderr:
        failures += 1
        print(f"FAILED weights cut short: exit {p.returncode}: {p.stderr}")

    # A plan knows the file of its weights by its size, too: two bytes more are another file.
    onnx.save(onnx.load("mlp.onnx"), "long_weights.onnx", save_as_external_data=True, location="long.weights", size_threshold=0)
    expect(0, "", "long_weights.onnx", "-o", "two_more.plan")
    size = os.path.getsize("long.weights")
    expect(0, "", "run", "two_more.plan", "--output-dir", "of_weights")
    with open("long.weights", "ab") as f:
        f.write(b"ab")
    expect(3, f'"long.weights" has {size + 2} bytes; when the plan was made it had {size}', "run", "two_more.plan", "--output-dir", "of_weights")

    expect(2, "--adapter is missing", "merge", "mlp.onnx", "-o", "m.onnx")
    expect(2, '"x" is not a number', "verify", "mlp.onnx", "--rtol", "x")
    expect(2, "this loss takes two", "train", "mlp.onnx", "--loss", "mse(y)", "--data", "x=none.npy", "-o", "t", absent="t")

    # Every level that the manual promises is written.
    expect(0, "", "mlp.onnx", "-o", "mlp.plan", "--dump-ir", "ir")
    for name, start in (("00-import.gir", "graph"), ("pre-fusion.gir", "graph"), ("post-fusion.kir", "buffer"),
                        ("plan.txt", "plan")):
        if not os.path.exists(f"ir/{name}") or not open(f"ir/{name}").read().startswith(start):
            failures += 1
            print(f"FAILED --dump-ir: {name}")

    # Ids beyond a table are errors, as ONNX has them; negative ones count from its end.
    table = onnx.numpy_helper.from_array(np.zeros((10, 4), np.float32), "table")
    g = onnx.helper.make_graph([onnx.helper.make_node("Gather", ["table", "ids"], ["y"])], "g",
                               [onnx.helper.make_tensor_value_info("ids", T.INT64, ["n"])],
                               [onnx.helper.make_tensor_value_info("y", T.FLOAT, ["n", 4])], [table])
    onnx.save(onnx.helper.make_model(g, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), "table.onnx")
    expect(0, "", "table.onnx", "-o", "table.plan")
    for ids, wrong in (([-10, 0, 9], None), ([0, 3, 10], "element 2 is 10"), ([-11, 0], "element 0 is -11")):
        np.save("ids.npy", np.array(ids))
        for verb in ("run", "table.plan", "--output-dir", "of_table"), ("verify", "table.onnx"):
            expect(3 if wrong else 0, f'"ids": {wrong}; the model takes -10 to 9' if wrong else "", *verb, "--input", "ids=ids.npy")

    # Inputs may come from standard input, models and plans not.
    for verb in ((), ("run",), ("inspect",), ("verify",)):
        more = ("-o", "x.plan") if not verb else ()
        expect(2, "never standard input", *verb, "-", *more, absent="x.plan")

    # Words that are no verbs, however they go on.
    expect(0, "", "version")
    expect(0, "", "help", "--help")
    expect(0, "", "version", "--help")
    expect(2, "doctor --json gives versions", "version", "--json")
    for more in ((), ("--help",)):
        expect(2, 'did you mean "graphc inspect"', "inspct", *more)
    open("in.npz", "w").close()
    expect(2, "--input NAME=in.npz", "run", "mlp.plan", "--input", "in.npz", "--output-dir", "o")

    # What is larger than memory is said before anything is drawn or computed: where the kernel grants such memory, using it
    # would end the process.
    have = sum(int(l.split()[1]) << 10 for l in open("/proc/meminfo") if l.startswith(("MemTotal", "SwapTotal")))
    build.one("wide.onnx", "Relu", [("x", T.FLOAT, ["rows", 1 << 20])], [("y", T.FLOAT, ["rows", 1 << 20])])
    build.one("outer.onnx", "Add", [("x", T.FLOAT, ["rows", 1]), ("z", T.FLOAT, ["columns"])], [("y", T.FLOAT, ["rows", "columns"])])
    expect(0, "", "wide.onnx", "-o", "wide.plan")
    expect(6, "the inputs that are to be drawn take", "run", "wide.plan", "--dim", f"rows={have >> 21}", "--output-dir", "big", absent="big")
    expect(0, "", "outer.onnx", "-o", "outer.plan")
    expect(6, "a run's outputs and values between kernels take", "run", "outer.plan", "--dim", f"rows={have >> 21}",
           "--dim", f"columns={1 << 20}", "--output-dir", "big", absent="big/y.npy")

    # .npy has no bf16: the output becomes y.pb, unless .npy is asked for.
    build.one("bf16.onnx", "Cast", [("x", T.FLOAT, [2])], [("y", T.BFLOAT16, [2])], to=T.BFLOAT16)
    expect(0, "", "bf16.onnx", "-o", "bf16.plan")
    expect(4, "use --output-format pb", "run", "bf16.plan", "--output-dir", "o16", "--output-format", "npy", absent="o16/y.pb")
    expect(0, "", "run", "bf16.plan", "--output-dir", "o16")
    if not os.path.exists("o16/y.pb"):
        failures += 1
        print("FAILED no output of bf16")

    # A compile that is killed at any moment leaves the new plan or none, and nothing else. (Where it replaces
    # one, it has two names for the moment between two system calls.)
    before, start = set(os.listdir()), time.monotonic()
    expect(0, "", "mlp.onnx", "-o", "mlp.plan")
    took, whole = time.monotonic() - start, open("mlp.plan", "rb").read()
    for i in range(20):
        p = subprocess.Popen([graphc, "mlp.onnx", "-o", "killed.plan"], stdout=subprocess.DEVNULL)
        time.sleep(took * (i + 1) / 18)
        p.kill()
        p.wait()
        bad = set(os.listdir()) - before - {"mlp.plan", "killed.plan"}
        if bad or os.path.exists("killed.plan") and open("killed.plan", "rb").read() != whole:
            failures += 1
            print("FAILED a killed compile left", bad or "part of a plan")
        if os.path.exists("killed.plan"):
            os.remove("killed.plan")

    plan = open("mlp.plan", "rb").read()
    open("cut.plan", "wb").write(plan[:-100])
    open("bent.plan", "wb").write(plan[:200] + bytes([plan[200] ^ 255]) + plan[201:])
    np.save("x.npy", np.zeros((4, 32), np.float32))
    np.save("wide.npy", np.zeros((4, 33), np.float32))
    np.save("double.npy", np.zeros((4, 32)))
    run = lambda status, text, *a: expect(status, text, "run", *a, "--output-dir", "out")
    run(3, "cut.plan", "cut.plan", "--input", "x=x.npy")
    run(3, "bent.plan", "bent.plan", "--input", "x=x.npy")
    run(7, "gone.plan", "gone.plan")
    run(3, '"x"', "mlp.plan", "--input", "x=wide.npy")
    run(3, '"x"', "mlp.plan", "--input", "x=double.npy")
    np.save("flat.npy", np.zeros(32, np.float32))
    run(3, '"x" has 2 axes, what the file holds has 1', "mlp.plan", "--input", "x=flat.npy")
    run(3, '"z"', "mlp.plan", "--input", "z=x.npy")
    run(7, "gone.npy", "mlp.plan", "--input", "x=gone.npy")
    run(2, "no symbol", "mlp.plan", "--dim", "sequence=3")
    run(2, "not a range", "mlp.plan", "--dim", "batch=1..3")
    run(2, "batch is 0", "mlp.plan", "--dim", "batch=0")
    expect(0, "what has this size is empty", "mlp.onnx", "-o", "none.plan", "--dim", "batch=0")
    run(2, "has batch = 4", "mlp.plan", "--input", "x=x.npy", "--dim", "batch=3")
    run(2, "--target: is for models", "mlp.plan", "--target", "cpu")
    expect(2, "--dump-ir: is for models", "inspect", "mlp.plan", "--dump-ir", "ir")
    run(3, "it is a NumPy array", "x.npy")
    open("words", "w").write("this is no plan either")
    run(3, "a model is compiled first if its name ends in .onnx", "words")
    run(4, "would both be the file a_b", "clash.onnx")
    expect(2, "no symbol", "inspect", "mlp.plan", "--dim", "sequence=3")
    expect(2, "is not a number from 3 to 4", "bench", "mlp.plan", "--isa", "5")
    expect(2, "is not a number from 1", "bench", "mlp.plan", "--runs", "0")
    expect(2, 'did you mean "graphc verify"?', "verfy", "mlp.onnx")
    expect(2, 'did you mean "graphc bench"?', "help", "banch")
    expect(2, "did you mean --percentiles?", "bench", "mlp.plan", "--percentile")
    expect(2, '"graphc bench --help" lists them', "bench", "mlp.plan", "--nothing-like-it")
    expect(7, "50,99: cannot be opened", "bench", "mlp.plan", "50,99", "--percentiles")
    expect(2, "mlp.plan and mlp.plan are compared", "bench", "mlp.plan", "mlp.plan", "--percentiles")
    for words in (["help"], ["help", "verify"], ["version"]):
        expect(0, "", *words)
    expect(3, 'its inputs are "x"', "run", "mlp.plan", "--output-dir", "out", "--input", "y=x.npy")
    for name, head, kind in (("lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "Git LFS pointer"),
                             ("page", b"<!DOCTYPE html>\n<html><body>404</body></html>", "HTML page"),
                             ("nothing", b"", "an empty one"), ("packed", b"\x1f\x8b\x08\0\0\0\0\0\0\x03", "gzip"),
                             ("weights", (40).to_bytes(8, "little") + b'{"a":{}}' + b" " * 60, "safetensors"),
                             ("plan", open("mlp.plan", "rb").read(), "graphc plan")):
        open(name + ".onnx", "wb").write(head)
        expect(3, kind, name + ".onnx", "-o", "q.plan", absent="q.plan")
        if name != "plan":
            open(name + ".plan", "wb").write(head)
            expect(3, kind, "inspect", name + ".plan")
    # Names are names as a whole: node_1 is not node_13.
    build.named("named.onnx", [f"node_{i}" for i in (13, 2)])
    expect(2, 'did you mean "node_13"?', "explain", "named.onnx", "node_1")
    expect(0, "", "explain", "named.onnx", "node_13")
    run(2, "neither", "mlp.plan", "--device", "tpu", "--input", "x=x.npy")
    for name, array, status, text in (("object", np.array([None]), 4, "'|O'"), ("text", np.array(["a"]), 4, "'<U1'"),
                                      ("order", np.zeros((4, 32), ">f4"), 4, "'>f4'")):
        np.save(f"{name}.npy", array, allow_pickle=True)
        run(status, f"{name}.npy: element type {text} is not supported", "mlp.plan", "--input", f"x={name}.npy")
    run(3, "text.onnx: neither .npy nor an ONNX tensor", "mlp.plan", "--input", "x=text.onnx")
    if os.path.exists("out"):
        failures += 1
        print("FAILED a run that never ran left a folder")
    run(0, "", "mlp.plan", "--input", "x=x.npy")

    # A size that values decide needs a bound: known, or claimed and then checked in every run.
    build.text("longest.onnx", """<ir_version: 10, opset_import: ["": 21]> g (int64[n] lengths) => (int64[m] at) {
        zero = Constant<value_int = 0>()
        one = Constant<value_int = 1>()
        most = ReduceMax<keepdims = 0>(lengths)
        at = Range(zero, most, one)
    }""")
    expect(4, "--dim most=LO..HI", "longest.onnx", "-o", "long.plan", absent="long.plan")
    expect(2, "no value of that name", "longest.onnx", "-o", "long.plan", "--dim", "lengths=1..9", "--dim", "x=2")
    expect(0, "", "longest.onnx", "-o", "long.plan", "--dim", "lengths=1..9")
    for status, *lengths in ((0, 3, 9, 4), (3, 3, 10, 4), (3, 3, -1, 4)):
        np.save("lengths.npy", np.array(lengths))
        run(status, "Range needs" if status else "", "long.plan", "--input", "lengths=lengths.npy")

    build.text("float.onnx", """<ir_version: 10, opset_import: ["": 21]> g (int64[n] lengths) => (float[m] at) {
        zero = Constant<value_float = 0.0>()
        one = Constant<value_float = 1.0>()
        most = ReduceMax<keepdims = 0>(lengths)
        end = Cast<to = 1>(most)
        at = Range(zero, end, one)
    }""")
    expect(4, "casts of integers that --dim bounds", "float.onnx", "-o", "float.plan", absent="float.plan")
    expect(0, "", "float.onnx", "-o", "float.plan", "--dim", "most=1..9")
    np.save("lengths.npy", np.array([3, 8, 4]))
    run(0, "", "float.plan", "--input", "lengths=lengths.npy")
    if not np.array_equal(np.load("out/at.npy"), np.arange(8, dtype=np.float32)):
        failures += 1
        print("FAILED a range of floats as long as values say")

    # A row whose largest length no integer holds is not one that fits into shared memory.
    build.text("square.onnx", """<ir_version: 8, opset_import: ["": 17]> g (float[s,2,s,t,16] x, float[2] w) => (float[s,2,s,t,16] y) {
        y = InstanceNormalization(x, w, w)
    }""")
    expect(0, "", "square.onnx", "-o", "square.plan", "--target", "sm_90a")

    # Sizes from shapes and data are exact: what no memory holds is refused, though its product is small modulo 2^64.
    build.text("full.onnx", """<ir_version: 8, opset_import: ["": 17]> g (int64[2] s) => (float[a, b] y) { y = ConstantOfShape(s) }""")
    build.text("outer.onnx", """<ir_version: 8, opset_import: ["": 17]> g (float[a,1,1] x, float[b,1] u, float[c] w) => (float[a,b,c] y) {
        p = Mul(x, u)
        y = Mul(p, w)
    }""")
    build.text("pad.onnx", """<ir_version: 8, opset_import: ["": 17]> g (float[a,b] x, int64[4] p) => (float[c,d] y) { y = Pad(x, p) }""")
    build.text("tile.onnx", """<ir_version: 8, opset_import: ["": 17]> g (float[a,b] x, int64[2] p) => (float[c,d] y) { y = Tile(x, p) }""")
    for name, feed in (("full", {"s": [2 ** 33, 2 ** 31]}), ("full", {"s": [2 ** 62, 2 ** 62]}), ("pad", {"p": [2 ** 62, 0, 0, 0]}),
                       ("tile", {"p": [2 ** 61, 2 ** 61]}), ("tile", {"p": [2 ** 33, 2 ** 31]})):
        expect(0, "", f"{name}.onnx", "-o", "size.plan")
        for k, v in feed.items():
            np.save(f"{k}.npy", np.array(v))
            run(3, "would have more than", "size.plan", "--input", f"{k}={k}.npy")
    # Two negative sizes make a number of elements that looks right.
    for name, feed in (("tile", {"p": [-1, -1]}), ("tile", {"p": [-1, 0]}), ("full", {"s": [-2, -3]}), ("pad", {"p": [-9, 0, 0, -9]})):
        expect(0, "", f"{name}.onnx", "-o", "size.plan")
        for k, v in feed.items():
            np.save(f"{k}.npy", np.array(v))
            run(3, "needs 0 < (", "size.plan", "--input", f"{k}={k}.npy", *(["--dim", "a=2", "--dim", "b=3"] if k == "p" else []))
    expect(0, "", "outer.onnx", "-o", "size.plan")
    run(3, "would have more than", "size.plan", "--dim", "a=2097152", "--dim", "b=2097152", "--dim", "c=1048576")

    # Which axes go may not depend on what is fed.
    build.text("squeeze.onnx", """<ir_version: 8, opset_import: ["": 17]> g (float[3,s,1] x) => (float[3,s] y) { y = Squeeze(x) }""")
    expect(0, "Squeeze: s >= 2", "squeeze.onnx", "-o", "squeeze.plan")
    run(0, "", "squeeze.plan", "--dim", "s=2")
    run(2, "s is 1, but the plan was made for 2 to", "squeeze.plan", "--dim", "s=1")

    # Windows have to fit, through all that lies between them and the input.
    build.text("windows.onnx", """<ir_version: 8, opset_import: ["": 17]> g (float[1,1,t] x) => (float[1,1,u] y)
        <float[1,1,10] w = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, float[1,1,3] v = {1, 1, 1}> {
        a = Conv <strides = [5]> (x, w)
        b = Relu(a)
        y = Conv <strides = [2]> (b, v)
    }""")
    expect(0, "Conv: t >= 20", "windows.onnx", "-o", "windows.plan")
    run(0, "", "windows.plan", "--dim", "t=20")
    run(2, "t is 19, but the plan was made for 20 to", "windows.plan", "--dim", "t=19")
    expect(3, "a window of 10 never fits into axis 2", "windows.onnx", "-o", "windows.plan", "--dim", "t=1..9")
    expect(0, "Conv: t >= 20", "windows.onnx", "-o", "windows.plan", "--dim", "t=0..99")
    run(2, "t is 9, but the plan was made for 20 to 99", "windows.plan", "--dim", "t=9")

    # A computed size that a run finds to be 1 is broadcast; any third size is refused.
    build.text("one.onnx", """<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[7] y)
        <float[7] w = {1, 2, 3, 4, 5, 6, 7}, int64[1] four = {4}, int64[1] end = {2147483647}> {
        rest = Slice(x, four, end)
        y = Add(rest, w)
    }""")
    expect(0, "", "one.onnx", "-o", "one.plan")
    for n, text in ((5, ""), (11, ""), (4, "n in 5.."), (6, "Add needs"), (12, "Add needs")):
        x = np.arange(n, dtype=np.float32)
        np.save("n.npy", x)
        expect(3 if text else 0, text, "run", "one.plan", "--input", "x=n.npy", "--output-dir", "one")
        if not text and not np.array_equal(np.load("one/y.npy"), x[4:] + np.arange(1, 8, dtype=np.float32)):
            failures += 1
            print(f"FAILED a computed size of {n - 4} is broadcast")

    # An axis that is empty, backwards.
    build.text("back.onnx", """<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[m] y)
        <int64[1] first = {-1}, int64[1] end = {-9223372036854775807}, int64[1] axis = {0}> {
        y = Slice(x, first, end, axis, first)
    }""")
    expect(0, "", "back.onnx", "-o", "back.plan", "--dim", "n=0..5")
    for n in (0, 3):
        np.save("n.npy", np.arange(n, dtype=np.float32))
        expect(0, "", "run", "back.plan", "--input", "x=n.npy", "--output-dir", "back")
        if not np.array_equal(np.load("back/y.npy"), np.arange(n)[::-1]):
            failures += 1
            print(f"FAILED an axis of {n} backwards")

    # Integers at the end of their range, in constants that sizes and positions are made of: nothing overflows (preset asan).
    build.text("far.onnx", """<ir_version: 10, opset_import: ["": 22]> g (float[1,1,3,2] x) => (float[1,1,1,2] y)
        <float[1,1,2,2] grid = {9.3e33, 0.4, -1.5e38, -3.3e6}> { y = GridSample <mode = "nearest"> (x, grid) }""")
    build.text("mod.onnx", """<ir_version: 7, opset_import: ["": 13]> g (int64[3] d) => (int64[3] y)
        <int64[3] x = {-1, 4611686018427387904, 3}> { m = Mod <fmod = 1> (x, d) y = Mod(m, x) }""")
    build.text("pieces.onnx", """<ir_version: 9, opset_import: ["": 17]> g (float[8] x) => (float[m] y)
        <int64 most = {9223372036854775807}> { q = SplitToSequence(x, most) y = ConcatFromSequence <axis = 0> (q) }""")
    np.save("eight.npy", np.arange(8, dtype=np.float32))
    np.save("by.npy", np.array([2, -3, -(1 << 63)]))
    for name, feed, want in (("far", [], np.zeros((1, 1, 1, 2))), ("pieces", ["--input", "x=eight.npy"], np.arange(8)),
                             ("mod", ["--input", "d=by.npy"], [0, 1, 0])):
        expect(0, "", f"{name}.onnx", "-o", "far.plan")
        expect(0, "", "run", "far.plan", *feed, "--output-dir", "far")
        if not np.array_equal(np.load("far/y.npy"), want):
            failures += 1
            print(f"FAILED {name}: {np.load('far/y.npy')}")

    # Nothing is gathered from an axis that is empty, and labels are as many as rows.
    build.text("gather.onnx", """<ir_version: 8, opset_import: ["": 17]> g (float[a] x, int64[k] i) => (float[k] y) { y = Gather(x, i) }""")
    build.text("grid.onnx", """<ir_version: 10, opset_import: ["": 20]> g (float[1,1,a,2] x, float[1,2,4,2] g) => (float[1,1,2,4] y) { y = GridSample(x, g) }""")
    for name, fed in (("gather", ["--dim", "k=3"]), ("grid", [])):
        expect(0, "", f"{name}.onnx", "-o", "empty.plan", "--dim", "a=0..5")
        run(2, "made for 1 to 5", "empty.plan", "--dim", "a=0", *fed)
        run(0, "", "empty.plan", "--dim", "a=1", *fed)
    build.text("loss.onnx", """<ir_version: 8, opset_import: ["": 17]> g (float[n,3] x, int64[m] t) => (float z) { z = SoftmaxCrossEntropyLoss(x, t) }""")
    expect(0, "m == n", "loss.onnx", "-o", "loss.plan")
    np.save("labels.npy", np.array([0, 1]))
    np.save("scores.npy", np.ones((3, 3), np.float32))
    run(3, "the shapes give 2 and 3", "loss.plan", "--input", "t=labels.npy", "--input", "x=scores.npy")
    np.save("x.npy", np.zeros((4, 32), np.float32))
    run(0, "", "mlp.plan", "--input", "x=x.npy")
    old = open("out/y.npy", "rb")
    first = old.read()
    np.save("x.npy", np.ones((5, 32), np.float32))
    run(0, "", "mlp.plan", "--input", "x=x.npy")
    old.seek(0)
    # Who has the old output open keeps it: files are replaced, not written over.
    if np.load("out/y.npy").shape != (5, 50) or old.read() != first or sorted(os.listdir("out")) != ["at.npy", "y.npy"]:
        failures += 1
        print("FAILED outputs are not replaced by rename")

    # A file is read as numpy reads it, column-major or not.
    rows = np.arange(128, dtype=np.float32).reshape(4, 32)
    for i, x in enumerate((rows, np.asfortranarray(rows))):
        np.save("x.npy", x)
        run(0, "", "mlp.plan", "--input", "x=x.npy")
        os.rename("out/y.npy", f"y{i}.npy")
    if not np.array_equal(np.load("y0.npy"), np.load("y1.npy")):
        failures += 1
        print("FAILED a column-major input")

    # No name, from a file or of one, reaches a terminal as a command to it.
    build.one("escape.onnx", "Neg", [("x\x1b[2J", T.FLOAT, ["n\x07"])], [("y\x1b", T.FLOAT, ["n\x07"])], name="\x1b]0;")
    expect(0, "", "escape.onnx", "-o", "escape.plan")
    for command in (["inspect", "escape.plan"], ["explain", "escape.plan"], ["bench", "escape.plan", "-v", "--runs", "1"],
                    ["run", "escape.plan", "-v", "--output-dir", "out\x1b"], ["escape.onnx", "-o", "\x1b.plan"]):
        p = subprocess.run([graphc, *command], capture_output=True)
        if p.returncode or b"\x1b" in p.stdout + p.stderr or b"\x07" in p.stdout + p.stderr:
            failures += 1
            print(f"FAILED {command}: exit {p.returncode}, control characters")

    # Whoever asks for memory when there is none, LLVM too, the compile ends with 6.
    build.text("heavy.onnx", """<ir_version: 8, opset_import: ["": 17]> g (float[n, 64] x) => (float[n, 64] y) {
        a = Softmax(x)
        b = Erf(a)
        c = Softmax<axis = 0>(b)
        y = Tanh(c)
    }""")
    # Not with the address sanitizer, which takes terabytes of addresses for itself.
    sanitized = b"__asan_init" in open(graphc, "rb").read()
    limits, starts, seen = iter(() if sanitized else range(100, 2000, 4)), False, set()
    for mb in limits:
        use = lambda: resource.setrlimit(resource.RLIMIT_AS, (mb << 20, mb << 20))
        if not starts:
            p = subprocess.run([graphc, "--version"], capture_output=True, preexec_fn=use)
            starts = p.returncode in (0, 6)
            continue
        p = subprocess.run([graphc, "heavy.onnx", "-o", "h.plan", "--threads", "1"], capture_output=True, text=True,
                           preexec_fn=use)
        seen.add(p.returncode)
        if p.returncode == 0:
            break
        if p.returncode != 6 or "out of memory" not in p.stderr:
            failures += 1
            print(f"FAILED {mb} MB of memory: exit {p.returncode}: {p.stderr[-300:]}")
    if seen != {0, 6} and not sanitized:
        failures += 1
        print(f"FAILED too little memory gives {seen}")

    # Never a signal, and results that did not arrive are said.
    for command in ("$0 inspect mlp.plan > /dev/full", "ulimit -f 1; $0 mlp.onnx -o p.plan"):
        p = subprocess.run(["bash", "-c", command, graphc], capture_output=True, text=True)
        if p.returncode != 7 or "cannot be written" not in p.stderr or os.path.exists("p.plan"):
            failures += 1
            print(f"FAILED {command}: exit {p.returncode}: {p.stderr}")
    p = subprocess.run(["bash", "-c", "$0 inspect --json mlp.plan | true; exit ${PIPESTATUS[0]}", graphc])
    if p.returncode not in (0, 7):
        failures += 1
        print(f"FAILED a closed pipe: exit {p.returncode}")

print(f"{failures} failed" if failures else "all as expected")
sys.exit(failures != 0)
