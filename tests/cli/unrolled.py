"""How long the code of a GPU's folds over few taps becomes: such taps stand one behind the other, unless the kernel's
folds together are too much for an assembler. Read in the PTX of sums of columns. How long a CPU's code of such a sum becomes:
what LLVM takes to compile a block grows with its length. And how often the code of a CPU's pools
branches: what their windows read apart and under conditions, lane by lane, is mostly read without.

    unrolled.py GRAPHC
"""
import glob, os, re, subprocess, sys, tempfile
import onnx
from onnx import TensorProto as T, helper as h


def sums(n, rows, columns):
    """n sums over rows of products and functions of them, added up."""
    value = lambda name, shape: h.make_tensor_value_info(name, T.FLOAT, shape)
    inputs, nodes, last = [], [], None
    for i in range(n):
        inputs += [value(f"a{i}", [rows, columns]), value(f"b{i}", [rows, columns])]
        nodes += [h.make_node("Mul", [f"a{i}", f"b{i}"], [f"p{i}"]), h.make_node("Tanh", [f"p{i}"], [f"t{i}"]),
                  h.make_node("ReduceSum", [f"t{i}", "axis"], [f"s{i}"], keepdims=0)]
        if last:
            nodes.append(h.make_node("Add", [last, f"s{i}"], [f"y{i}"]))
        last = f"y{i}" if last else f"s{i}"
    axis = h.make_tensor("axis", T.INT64, [1], [0])
    g = h.make_graph(nodes, "g", inputs, [value(last, [columns])], [axis])
    return h.make_model(g, opset_imports=[h.make_opsetid("", 20)], ir_version=10)


def pool():
    x, y = (h.make_tensor_value_info(name, T.FLOAT16, shape) for name, shape in (("x", ["n", 8, "h", "w"]), ("y", None)))
    node = h.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    return h.make_model(h.make_graph([node], "g", [x], [y]), opset_imports=[h.make_opsetid("", 22)], ir_version=10)


def chains(rows, columns, length):
    """A sum over rows of values that take many operations each."""
    x, y = (h.make_tensor_value_info(name, T.FLOAT, shape) for name, shape in (("x", [8, rows, columns]), ("y", [8, columns])))
    consts = [h.make_tensor(f"c{i}", T.FLOAT, [], [1 + i / 64]) for i in range(length)]
    nodes = [h.make_node(("Mul", "Sub", "Max")[i % 3], [f"v{i - 1}" if i else "x", f"c{i}"], [f"v{i}"]) for i in range(length)]
    nodes.append(h.make_node("ReduceSum", [f"v{length - 1}", "axis"], ["y"], keepdims=0))
    consts.append(h.make_tensor("axis", T.INT64, [1], [1]))
    return h.make_model(h.make_graph(nodes, "g", [x], [y], consts), opset_imports=[h.make_opsetid("", 20)], ir_version=10)


def most(graphc, model, target, files, what, folder):
    """How often that is in the code of the kernel that has most."""
    path, ir = os.path.join(folder, "m.onnx"), os.path.join(folder, "ir")
    onnx.save(model, path)
    subprocess.run([graphc, path, "-o", os.path.join(folder, "m.plan"), "--target", target, "--dump-ir", ir],
                   check=True, capture_output=True)
    return max(len(re.findall(what, open(p).read())) for p in glob.glob(os.path.join(ir, files)))


def main():
    failed, loads, branches = 0, ("sm_90a", "*.ptx", r"ld\.global"), ("cpu", "*.s", r"\n\tj(?!mp)")
    instructions = ("cpu", "*.s", r"\n\t[a-z]")
    for name, model, what, wanted in [("one sum of 16 rows", sums(1, 16, 768), loads, lambda n: n == 32),
                                      ("twelve sums of 64 rows", sums(12, 64, 768), loads, lambda n: 24 <= n <= 256),
                                      ("sums of 32 rows of chains of 28", chains(32, 64, 28), instructions, lambda n: n <= 1500),
                                      ("sums of 32 rows of chains of 4", chains(32, 64, 4), instructions, lambda n: n >= 32 * 4 * 4),
                                      ("a pool of f16, strided and padded", pool(), branches, lambda n: 0 < n <= 1500)]:
        with tempfile.TemporaryDirectory() as folder:
            n = most(sys.argv[1], model, *what, folder)
        failed += not wanted(n)
        print(f"{name}: {n} {'loads' if what is loads else 'branches' if what is branches else 'instructions'}{'' if wanted(n) else ', FAILED'}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
