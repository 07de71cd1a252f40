"""verify names the node of each of many faults that are planted in what is compiled: planted.py PLANTED

PLANTED is graphc with a fault between fusion and code generation (planted.c)."""
import os, re, subprocess, sys, tempfile
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper

planted = os.path.abspath(sys.argv[1])
os.chdir(tempfile.mkdtemp())
rng = np.random.default_rng(4)
nodes, inits, inputs, outputs = [], [], [], []


def weight(name, value):
    inits.append(numpy_helper.from_array(np.asarray(value), name))
    return name


def given(name, kind, *shape):
    inputs.append(h.make_tensor_value_info(name, kind, shape))
    return name


def node(name, op, *ins, out=None, **attrs):
    nodes.append(h.make_node(op, ins, [name + "_y"], name=name, **attrs))
    if out is not None:
        outputs.append(h.make_tensor_value_info(name + "_y", out, None))
    return name + "_y"


f32 = lambda *s: rng.standard_normal(s).astype(np.float32)
# A residual with its norm; a linear layer with what follows it.
s = node("residual", "Add", given("x", T.FLOAT, 16, 96), given("r", T.FLOAT, 16, 96), out=T.FLOAT)
c = node("centre", "Sub", s, node("mean", "ReduceMean", s, weight("last", np.int64([-1]))))
v = node("variance", "ReduceSum", node("square", "Mul", c, c), "last")
n = node("norm", "Div", c, node("deviation", "Sqrt", v))
y = node("act", "Tanh", node("mix", "MatMul", n, weight("w", f32(96, 64))))
node("bias", "Add", node("scale", "Mul", y, weight("three_quarters", np.float32(0.75))), weight("b", f32(64)), out=T.FLOAT)
# Attention under a mask.
q, k = given("q", T.FLOAT, 2, 12, 16), given("k", T.FLOAT, 2, 16, 20)
a = node("mask", "Where", given("keep", T.BOOL, 2, 12, 20), node("scores", "MatMul", q, k), weight("low", np.float32(-30)))
node("attend", "MatMul", node("softmax", "Softmax", a, axis=-1), given("v", T.FLOAT, 2, 20, 16), out=T.FLOAT)
# Places: a slice, what is around it, rows of a table, two beside each other.
a = given("a", T.FLOAT, 8, 24)
cut = node("cut", "Slice", a, weight("from", np.int64([5])), weight("to", np.int64([15])), weight("axis", np.int64([1])))
node("around", "Abs", node("pad", "Pad", node("lift", "Exp", cut), weight("wide", np.int64([0, 2, 0, 2])), weight("fill", np.float32(2))), out=T.FLOAT)
node("apart", "Neg", node("edge", "Slice", a, weight("from2", np.int64([3])), weight("to2", np.int64([9])), "axis"), out=T.FLOAT)
rows = node("rows", "Mul", node("table", "Gather", weight("rows_of", f32(50, 24)), given("ids", T.INT64, 8)), a, out=T.FLOAT)
node("share", "Softmax", a, axis=-1, out=T.FLOAT)
# Types.
node("lost", "Sub", node("wide_again", "Cast", node("half", "Cast", a, to=T.FLOAT16), to=T.FLOAT), a, out=T.FLOAT)
node("whole", "Neg", node("back", "Cast", node("trunc", "Cast", a, to=T.INT32), to=T.FLOAT), out=T.FLOAT)
clamped = node("clamp", "Min", node("round", "Round", node("many", "Mul", a, weight("forty", np.float32(40)))), weight("most", np.float32(20)))
node("codes", "Cast", clamped, to=T.INT8, out=T.INT8)
# Along an axis; conditions.
node("running", "CumSum", a, weight("one", np.int64(1)), out=T.FLOAT)
node("least", "ReduceMin", a, "last", out=T.FLOAT)
node("less", "Less", a, rows, out=T.BOOL)
# A convolution, its activation and a pool.
image = given("image", T.FLOAT, 1, 3, 12, 12)
z = node("clip", "Relu", node("conv", "Conv", image, weight("filter", f32(8, 3, 3, 3)), pads=[1, 1, 1, 1]))
node("pool", "MaxPool", z, kernel_shape=[2, 2], strides=[2, 2], out=T.FLOAT)
graph = h.make_graph(nodes, "faults", inputs, outputs, inits)
onnx.save(onnx.shape_inference.infer_shapes(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)), "model.onnx")



def steps(kind, name):
    """300 steps that round what they carry: right, though the roundings' errors add up."""
    value = lambda n, *shape: h.make_tensor_value_info(n, kind, shape)
    consts = [h.make_tensor("w", kind, (16, 16), f32(256) / 4), h.make_tensor("keep", kind, (), [0.97])]
    body = [h.make_node("MatMul", ["s", "w"], ["m"], name="turn"), h.make_node("Add", ["m", "a"], ["p"], name="shift"),
            h.make_node("Tanh", ["p"], ["t"], name="squash"), h.make_node("Identity", ["t"], ["o"]),
            h.make_node("Mul", ["l", "keep"], ["k"], name="leak"), h.make_node("Add", ["k", "t"], ["n"], name="gather")]
    body = h.make_graph(body, "body", [value("s", 4, 16), value("l", 4, 16), value("a", 4, 16)],
                        [value("t", 4, 16), value("n", 4, 16), value("o", 4, 16)])
    scan = h.make_node("Scan", ["s0", "l0", "x"], ["last", "sum", "all"], num_scan_inputs=1, body=body, name="steps")
    g = h.make_graph([scan], "g", [value("s0", 4, 16), value("l0", 4, 16), value("x", 300, 4, 16)],
                     [value("last", 4, 16), value("sum", 4, 16), value("all", 300, 4, 16)], consts)
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 21)], ir_version=10), name)


steps(T.FLOAT16, "steps_f16.onnx"), steps(T.BFLOAT16, "steps_bf16.onnx")
# Halves that are rounded where their reader ends: a sum but for itself rounded, and products of some steps of the least half.
line = [h.make_node("Cast", ["x"], ["w"], to=T.FLOAT), h.make_node("ReduceSum", ["w", "last"], ["r"]), h.make_node("Cast", ["r"], ["near"], to=T.FLOAT16),
        h.make_node("ReduceSum", ["x", "last"], ["s"]), h.make_node("Sub", ["s", "near"], ["d"], name="rest"), h.make_node("Mul", ["d", "x"], ["y"], name="by_rest"),
        h.make_node("Mul", ["x", "small"], ["f"], name="smaller"), h.make_node("Mul", ["f", "small"], ["z"], name="least_of_x")]
g = h.make_graph(line, "g", [h.make_tensor_value_info("x", T.FLOAT16, (64, 50))], [h.make_tensor_value_info(n, T.FLOAT16, (64, 50)) for n in "yz"],
                 [h.make_tensor("last", T.INT64, [1], [-1]), h.make_tensor("small", T.FLOAT16, [], [2e-3])])
onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 21)], ir_version=10), "halves.onnx")
IN_HALVES = [
    ("what a sum is off added", "rest", "sub", "becomes", "add"),
    ("a sum's rest left out", "by_rest", "mul", "left_out", 0),
    ("a product of the least halves 5 % off", "smaller", "mul", "times", 1.05),
]
# what it is, node, op, how, by; in the steps: the first op of that kind
IN_STEPS = [
    ("a product left out of a state", "steps", "add", "left_out", 1),
    ("a product subtracted from a state", "steps", "add", "becomes", "sub"),
    ("a leak 1 % off", "steps", "mul", "times", 0.99),
    ("wrong activation of a state", "steps", "tanh", "becomes", "sigmoid"),
    ("activation of a state left out", "steps", "tanh", "left_out", 0),
]
# what it is, node, op, how, by
FAULTS = [
    ("residual left out", "residual", "add", "left_out", 0),
    ("residual subtracted", "residual", "add", "becomes", "sub"),
    ("norm by a forgotten centre", "centre", "sub", "left_out", 0),
    ("a sum of squares is their maximum", "variance", "reduce", "folds_by", "max"),
    ("norm by x for its root", "deviation", "sqrt", "becomes", "abs"),
    ("norm multiplies", "norm", "div", "becomes", "mul"),
    ("wrong activation", "act", "tanh", "becomes", "sigmoid"),
    ("activation left out", "act", "tanh", "left_out", 0),
    ("wrong epilogue", "scale", "mul", "becomes", "add"),
    ("a scale 1 % off", "scale", "mul", "times", 1.01),
    ("bias subtracted", "bias", "add", "becomes", "sub"),
    ("bias left out", "bias", "add", "left_out", 0),
    ("mask forgotten", "mask", "select", "left_out", 1),
    ("mask inverted", "mask", "select", "swapped", 1),
    ("softmax without its sum", "share", "div", "left_out", 0),
    ("softmax by the other sign", "share", "sub", "swapped", 0),
    ("slice one off", "edge", "load", "moved", 1),
    ("padding by what is beside", "pad", "select", "swapped", 1),
    ("wrong row of a table", "table", "bind", "moved", 1),
    ("product with itself", "rows", "mul", "doubled", 0),
    ("cast to f16 lost", "wide_again", "cast", "becomes", "none"),
    ("cast to i32 lost", "back", "cast", "becomes", "none"),
    ("rounding down", "round", "round", "becomes", "floor"),
    ("clamp lost", "clamp", "min", "left_out", 0),
    ("running product", "running", "scan", "folds_by", "prod"),
    ("largest for least", "least", "reduce", "folds_by", "max"),
    ("a bound that counts", "less", "lt", "becomes", "ne"),
    ("difference turned round", "lost", "sub", "swapped", 0),
    ("activation of a convolution", "clip", "max", "becomes", "min"),
    ("pool by the least", "pool", "reduce", "folds_by", "min"),
]


def verify(fault, model="model.onnx"):
    env = dict(os.environ, GRAPHC_FAULT=fault) if fault else os.environ
    p = subprocess.run([planted, "verify", model], capture_output=True, text=True, timeout=200, env=env)
    return p.returncode, p.stdout, p.stderr


failures = 0
for model in "model.onnx", "halves.onnx", "steps_f16.onnx", "steps_bf16.onnx":
    status, out, err = verify(None, model)
    if status:
        sys.exit(f"FAILED: exit {status} without a fault in {model}\n{out}{err}")
ALL = [(*f, "model.onnx") for f in FAULTS] + [(*f, "halves.onnx") for f in IN_HALVES] + [(*f, f"steps_{kind}.onnx") for kind in ("f16", "bf16") for f in IN_STEPS]
for name, at, op, how, by, model in ALL:
    if len(sys.argv) > 2 and sys.argv[2] not in name:
        continue
    status, out, err = verify(f"{at} {op} {how} {by}", model)
    said = re.search(r'first bad node: node \d+ "(\w+)"', out)
    ok = status == 1 and said and said[1] == at
    failures += not ok
    if not ok or "-v" in sys.argv:
        print(f"{'ok' if ok else 'FAILED'} {name} in {at}: exit {status}, named {said and said[0]}")
        print("" if ok else out[-1200:] + err[-600:])
print(f"{len(ALL) - failures} of {len(ALL)} planted faults are found, and their nodes named")
sys.exit(failures != 0)
