"""What verify says of right and wrong results, in every type: verify.py GRAPHC"""
import json, os, re, resource, subprocess, sys, tempfile
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import forks

graphc = os.path.abspath(sys.argv[1])
# Of a command whose parent is small: what a parent takes counts as its child's.
PEAK = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); " \
       "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
where = tempfile.TemporaryDirectory()
os.chdir(where.name)
rng = np.random.default_rng(3)
failures = []


def run(*args, status=0):
    p = forks.run([graphc, *args], 100)
    if p.returncode != status:
        failures.append(f"{args}: exit {p.returncode}, wanted {status}\n{p.stdout}{p.stderr}")
    return p.stdout


def expect(what, ok):
    if not ok:
        failures.append(what)


def save(name, nodes, inits, x, y):
    g = h.make_graph(nodes, name, [h.make_tensor_value_info("x", *x)], [h.make_tensor_value_info("y", *y)], inits)
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 21)], ir_version=10), name + ".onnx")


def layers(kind, n, size):
    """A perceptron; its weights keep the spread of values."""
    nodes, inits = [], []
    for i in range(n):
        w = (rng.standard_normal((size, size)) * (2 / size) ** 0.5).astype(np.float32)
        inits.append(h.make_tensor(f"w{i}", kind, w.shape, w.ravel()))
        nodes += [h.make_node("MatMul", [f"h{i}", f"w{i}"], [f"m{i}"], name=f"mix{i}"),
                  h.make_node("Relu", [f"m{i}"], [f"h{i + 1}"], name=f"act{i}")]
    nodes[0].input[0], nodes[-1].output[0] = "x", "y"
    return nodes, inits


# Halves round between nodes, and so does the reference.
for kind, name in ((T.FLOAT16, "f16"), (T.BFLOAT16, "bf16"), (T.FLOAT, "f32")):
    nodes, inits = layers(kind, 6, 96)
    save(name, nodes, inits, (kind, (16, 96)), (kind, (16, 96)))
    said = run("verify", name + ".onnx")
    expect(f"{name}: {said}", re.search(rf"ok +y: .*allowed: .*to {name} at worst", said))
    expect(f"{name}: {said}", re.search(r"ok +6 of 6 stored values agree", said))
for precision in ("bf16", "f16"):
    said = run("verify", "f32.onnx", "--precision", precision)
    expect(f"--precision {precision}: {said}", f"to {precision} at worst" in said)

# What a product multiplies is stored rounded, up to where it is computed or gathered, and another reader has it so. What
# is left of it for that reader is small: rounded once, and not allowed more than that.
rows, w = numpy_helper.from_array(np.arange(0, 60, 3), "rows"), numpy_helper.from_array(rng.standard_normal((48, 40)).astype(np.float32), "w")
for name, by in (("gathered", [h.make_node("Gather", ["x", "rows"], ["v"])]), ("computed", [h.make_node("Tanh", ["x"], ["t"]), h.make_node("Gather", ["t", "rows"], ["v"])])):
    nodes = by + [h.make_node("MatMul", ["v", "w"], ["p"]), h.make_node("Neg", ["v"], ["n"]), h.make_node("Relu", ["n"], ["y"])]
    g = h.make_graph(nodes, name, [h.make_tensor_value_info("x", T.FLOAT, [60, 48])],
                     [h.make_tensor_value_info("p", T.FLOAT, [20, 40]), h.make_tensor_value_info("y", T.FLOAT, [20, 48])], [rows, w])
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 21)], ir_version=10), name + ".onnx")
    for precision in ("bf16", "f16"):
        said = run("verify", name + ".onnx", "--precision", precision)
        expect(f"{name}, --precision {precision}: {said}", re.search(rf"^ok +y:.* to {precision} at worst", said, re.M))

# What a model makes of its own roundings is no error: near 60,000 halves are multiples of 32.
nodes = [h.make_node("Add", ["x", "big"], ["a"]), h.make_node("Sub", ["a", "big"], ["b"]), h.make_node("MatMul", ["b", "w"], ["y"])]
w = h.make_tensor("w", T.FLOAT16, (64, 64), (rng.standard_normal(4096) / 8).astype(np.float16))
save("near_largest", nodes, [h.make_tensor("big", T.FLOAT16, (), [60000.0]), w], (T.FLOAT16, (64, 64)), (T.FLOAT16, (64, 64)))
said = run("verify", "near_largest.onnx")
expect(f"near the largest half: {said}", "between the reference with and without these roundings" in said)

# Nor is what roundings of terms leave of a sum that is 0 but for them: x - log(sum(exp(x))) over one element, times another.
nodes = [h.make_node("Exp", ["x"], ["e"]), h.make_node("ReduceSum", ["e", "last"], ["s"], keepdims=1), h.make_node("Log", ["s"], ["l"]),
         h.make_node("Sub", ["x", "l"], ["d"]), h.make_node("Cos", ["x"], ["c"]), h.make_node("Clip", ["d", "lo", "hi"], ["k"]),
         h.make_node("ReduceMean", ["k", "ends"], ["m"], keepdims=0), h.make_node("Add", ["c", "d"], ["a"]), h.make_node("Mul", ["d", "a"], ["y"])]
inits = [h.make_tensor("last", T.INT64, [1], [-1]), h.make_tensor("ends", T.INT64, [2], [-3, 2]),
         h.make_tensor("lo", T.FLOAT16, [], [-8]), h.make_tensor("hi", T.FLOAT16, [], [8])]
g = h.make_graph(nodes, "cancels", [h.make_tensor_value_info("x", T.FLOAT16, (7, 1, "n"))],
                 [h.make_tensor_value_info("m", T.FLOAT16, None), h.make_tensor_value_info("y", T.FLOAT16, None)], inits)
onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 21)], ir_version=10), "cancels.onnx")
for seed in range(3):
    said = run("verify", "cancels.onnx", "--seed", str(seed))
    expect(f"a sum that cancels: {said}", re.search(r"ok +y: .* it is a sum of terms [\de+.]+ times as large", said))

# The same through a norm and a product.
nodes = [h.make_node("Exp", ["x"], ["e"]), h.make_node("Log", ["e"], ["l"]), h.make_node("Sub", ["x", "l"], ["d"]),
         h.make_node("Mul", ["d", "d"], ["s"]), h.make_node("ReduceMean", ["s", "last"], ["m"]), h.make_node("Add", ["m", "small"], ["a"]),
         h.make_node("Sqrt", ["a"], ["r"]), h.make_node("Div", ["d", "r"], ["n"]), h.make_node("MatMul", ["n", "w"], ["y"])]
w = h.make_tensor("w", T.FLOAT, (64, 64), rng.standard_normal(4096).astype(np.float32))
save("cancels_before", nodes, [h.make_tensor("last", T.INT64, [1], [-1]), h.make_tensor("small", T.FLOAT, [], [1e-2]), w],
     (T.FLOAT, (64, 64)), (T.FLOAT, (64, 64)))
said = run("verify", "cancels_before.onnx")
expect(f"a sum that cancels before a product: {said}", re.search(r"ok +y: .* it is a sum of terms [\de+.]+ times as large", said))

# Squares of halves need not fit a half where their root does.
save("root", [h.make_node("ReduceL2", ["x"], ["r"], keepdims=1), h.make_node("Mul", ["x", "r"], ["y"])], [], (T.FLOAT16, (300, 300)), (T.FLOAT16, (300, 300)))
run("verify", "root.onnx")

# Nor is a step of what is less than the least half with all its digits, or a sum of halves that is rounded only where its reader ends.
save("least", [h.make_node("Mul", ["x", "x"], ["s"]), h.make_node("Mul", ["s", "x"], ["y"])], [], (T.FLOAT16, (64, 64)), (T.FLOAT16, (64, 64)))
np.save("small.npy", rng.uniform(0.005, 0.02, (64, 64)).astype(np.float16))
run("verify", "least.onnx", "--input", "x=small.npy")
last, terms = h.make_tensor("last", T.INT64, [1], [-1]), rng.uniform(0.5, 1.5, (64, 50)).astype(np.float16)
near = numpy_helper.from_array(terms.astype(np.float64).sum(1, keepdims=True).astype(np.float16), "near")
np.save("terms.npy", terms)
for op in "ReduceSum", "ReduceL1":
    save(op, [h.make_node(op, ["x", "last"], ["s"], keepdims=1), h.make_node("Sub", ["s", "near"], ["d"]), h.make_node("Mul", ["d", "x"], ["y"])],
         [last, near], (T.FLOAT16, (64, 50)), (T.FLOAT16, (64, 50)))
    run("verify", op + ".onnx", "--input", "x=terms.npy")

# Of a sum of halves less about itself: reciprocals and powers of what may be 0, and remainders, which jump between the ends of an interval.
for op, made in {"Reciprocal": ["d"], "Pow": ["d", "minus"], "Mod": ["s", "hundredth"]}.items():
    save(op, [h.make_node("ReduceSum", ["x", "last"], ["s"], keepdims=1), h.make_node("Sub", ["s", "near"], ["d"]),
              h.make_node(op, made, ["p"], **({"fmod": 1} if op == "Mod" else {})), h.make_node("Mul", ["p", "x"], ["y"])],
         [last, near, h.make_tensor("minus", T.FLOAT16, [], [-3]), h.make_tensor("hundredth", T.FLOAT16, [], [0.01])], (T.FLOAT16, (64, 50)), (T.FLOAT16, (64, 50)))
    run("verify", op + ".onnx", "--input", "x=terms.npy")

# What is left of values less their rounded mean where all are one, by its root: the root's error is infinite, and so is the quotient's.
nodes = [h.make_node("Tanh", ["x"], ["t"]), h.make_node("Mul", ["t", "three"], ["v"]), h.make_node("Expand", ["v", "wide"], ["e"]),
         h.make_node("ReduceMean", ["e", "last"], ["m"]), h.make_node("Sub", ["e", "m"], ["d"]), h.make_node("Mul", ["d", "d"], ["s"]),
         h.make_node("Add", ["s", "little"], ["a"]), h.make_node("Sqrt", ["a"], ["r"]), h.make_node("Div", ["d", "r"], ["y"])]
save("pole", nodes, [last, h.make_tensor("three", T.FLOAT16, [], [3.1]), h.make_tensor("little", T.FLOAT16, [], [1e-6]), h.make_tensor("wide", T.INT64, [2], [64, 8])],
     (T.FLOAT16, (64, 1)), (T.FLOAT16, (64, 8)))
run("verify", "pole.onnx")

# Attention of halves is computed in f32, but what it stores is rounded as the reference rounds it: by a step, where a tie lies between.
nodes = [h.make_node("Softmax", ["x"], ["s"], axis=-1), *(h.make_node("MatMul", ["s", f"w{i}"], [i]) for i in "qkv"),
         h.make_node("Transpose", ["k"], ["t"], perm=[0, 2, 1]), h.make_node("MatMul", ["q", "t"], ["a"]), h.make_node("Mul", ["a", "c"], ["b"]),
         h.make_node("Softmax", ["b"], ["p"], axis=-1), h.make_node("MatMul", ["p", "v"], ["y"])]
inits = [numpy_helper.from_array((rng.standard_normal((8, 8)) * 0.35).astype(np.float16), f"w{i}") for i in "qkv"]
save("half_attention", nodes, inits + [h.make_tensor("c", T.FLOAT16, [], [0.3535])], (T.FLOAT16, (256, 8, 8)), (T.FLOAT16, (256, 8, 8)))
run("verify", "half_attention.onnx")

# What was masked by -inf before it was stored may be anything, and so may products with what is made of it.
masked = np.where(rng.random((8, 8)) < 0.4, -np.inf, 0).astype(np.float16)
nodes = [h.make_node("MatMul", ["x", "wq"], ["a"]), h.make_node("Add", ["a", "mask"], ["b"]), h.make_node("Softmax", ["b"], ["p"], axis=-1),
         h.make_node("Concat", ["p", "x"], ["c"], axis=-1), h.make_node("MatMul", ["p", "wk"], ["v"]), h.make_node("Clip", ["v", "lo", "hi"], ["k"]),
         h.make_node("MatMul", ["c", "wc"], ["m"]), h.make_node("Add", ["k", "m"], ["y"])]
save("masked", nodes, inits[:2] + [numpy_helper.from_array(masked, "mask"), h.make_tensor("lo", T.FLOAT16, [], [-8]), h.make_tensor("hi", T.FLOAT16, [], [8]),
     numpy_helper.from_array((rng.standard_normal((16, 8)) * 0.35).astype(np.float16), "wc")], (T.FLOAT16, (256, 8, 8)), (T.FLOAT16, (256, 8, 8)))
run("verify", "masked.onnx")

# A step of the quantiser is no error. Values of a sum fall on all sides of the boundaries between codes.
nodes, inits = [], [h.make_tensor("s", T.FLOAT, (), [0.02]), h.make_tensor("z", T.INT8, (), [3])]
for i in range(4):
    w = rng.standard_normal((64, 64)).astype(np.float32) * 0.15
    inits.append(numpy_helper.from_array(w, f"w{i}"))
    nodes += [h.make_node("MatMul", [f"h{i}", f"w{i}"], [f"m{i}"]),
              h.make_node("QuantizeLinear", [f"m{i}", "s", "z"], [f"q{i}"], name=f"quantise{i}"),
              h.make_node("DequantizeLinear", [f"q{i}", "s", "z"], [f"h{i + 1}"])]
nodes[0].input[0], nodes[-1].output[0] = "x", "y"
save("quantised", nodes, inits, (T.FLOAT, (64, 64)), (T.FLOAT, (64, 64)))
for seed in range(6):
    run("verify", "quantised.onnx", "--seed", str(seed))

# Nor is a step where a sum lies at a tie, which an order of its terms decides: each row but for roundings comes to a whole and a half.
rows = rng.standard_normal((256, 64)).astype(np.float32)
exact = lambda: rows.astype(np.float64).sum(1)
for _ in range(3):
    rows[:, -1] += (np.floor(exact()) + 0.5 - exact()).astype(np.float32)
np.save("rows.npy", rows)
save("tie", [h.make_node("ReduceSum", ["x", "last"], ["s"], keepdims=0), h.make_node("Round", ["s"], ["y"])], [last], (T.FLOAT, (256, 64)), (T.FLOAT, (256,)))
said = run("verify", "tie.onnx", "--input", "x=rows.npy")
expect(f"a tie: {said}", "element by element" in said)

# JSON and the table of stored values.
j = json.loads(run("verify", "f32.onnx", "--json"))
expect("--json: outputs", j["ok"] and j["outputs"][0]["name"] == "y" and 0 < j["outputs"][0]["max_std"] < j["outputs"][0]["bound_std"])
expect("--json: stored", len(j["stored"]) == 6 and all(r["bad"] == 0 and r["of_bound"] <= 1 and r["elements"] == 1536 for r in j["stored"]))
expect("--json: places", [re.search(r'"(\w+)"', r["node"])[1] for r in j["stored"]] == [f"act{i}" for i in range(6)])
expect("--json: no first bad", j["first_bad"] is None)
expect("-v: a line for each stored value", len(re.findall(r"(?m)^ok +1536 .* tem_\d", run("verify", "f32.onnx", "-v"))) == 6)

# Against another plan, and outputs in files.
x = rng.standard_normal((16, 96)).astype(np.float32)
np.save("x.npy", x)
run("run", "f32.onnx", "--input", "x=x.npy", "--output-dir", "out")
run("verify", "f32.onnx", "--input", "x=x.npy", "--against", "out")
run("f32.onnx", "-o", "f32.plan")
run("verify", "f32.onnx", "--against", "f32.plan")
y = np.load("out/y.npy")
np.save("out/y.npy", y + np.float32(0.5))
run("verify", "f32.onnx", "--input", "x=x.npy", "--against", "out", status=1)
run("verify", "f32.onnx", "--input", "x=x.npy", "--against", "out", "--atol", "0.6")
run("verify", "f32.onnx", "--input", "x=x.npy", "--against", "out", "--rtol", "0.6", "--atol", "1e-4", status=1)
run("verify", "f32.onnx", "--rtol", "much", status=2)
np.save("out/y.npy", np.where(np.arange(96) == 7, np.nan, y).astype(np.float32))  # a few that are no numbers
run("verify", "f32.onnx", "--input", "x=x.npy", "--against", "out", status=1)
other = [h.make_node("MatMul", ["x", "w0"], ["y"])]
save("other", other, inits=[numpy_helper.from_array(rng.standard_normal((96, 96)).astype(np.float32), "w0")],
     x=(T.FLOAT, (16, 96)), y=(T.FLOAT, (16, 96)))
run("other.onnx", "-o", "other.plan")
expect("another model's plan", "BAD" in run("verify", "f32.onnx", "--against", "other.plan", status=1))

# Values are dropped when nothing needs them any more: a long chain takes no more than a short one.
nodes = [h.make_node("Tanh", [f"h{i}"], [f"h{i + 1}"]) for i in range(60)]
nodes[0].input[0], nodes[-1].output[0] = "x", "y"
save("long", nodes, [], (T.FLOAT, (1 << 18,)), (T.FLOAT, (1 << 18,)))
p = subprocess.Popen([graphc, "verify", "long.onnx"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, code, used = os.wait4(p.pid, 0)
freed_is_kept = b"__asan_init" in open(graphc, "rb").read()  # by the address sanitizer
expect(f"60 values of 2 MB in f64, and bounds of their errors: {used.ru_maxrss} KiB, exit {code}",
       code == 0 and (freed_is_kept or used.ru_maxrss < 140 << 10))

# Weights that were read are not held: 12 matrices of 8 MB, multiplied one after the other as they lie in their file.
nodes, inits = [], []
values = rng.standard_normal((1448, 1448)).astype(np.float32) / 38
for i in range(12):
    inits.append(numpy_helper.from_array(values, f"w{i}"))
    nodes.append(h.make_node("MatMul", [f"h{i}", f"w{i}"], [f"h{i + 1}"]))
nodes[0].input[0], nodes[-1].output[0] = "x", "y"
save("held", nodes, inits, (T.FLOAT, (4, 1448)), (T.FLOAT, (4, 1448)))
onnx.save(onnx.load("held.onnx"), "held.onnx", save_as_external_data=True, location="held.weights", convert_attribute=True)
peak = {}
for verb in (["held.onnx", "-o", "held.plan"], ["verify", "held.onnx"]):
    peak[verb[0]] = int(subprocess.check_output([sys.executable, "-c", PEAK, graphc, *verb], stderr=subprocess.DEVNULL))
prepared = 12 * 1448 * 1448 * 4 >> 10
expect(f"peaks of 96 MB of weights: {peak} KiB", freed_is_kept or peak["verify"] < peak["held.onnx"] + prepared + (30 << 10))
print("\n".join("FAILED " + f for f in failures) or "verify says what is so")
sys.exit(bool(failures))
