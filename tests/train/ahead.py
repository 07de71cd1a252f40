"""What kernels of a GPU ask for before they store anything, so that they wait for memory once and not once an element.
Read in the PTX of products and sums of columns.

    ahead.py GRAPHC
"""
import glob, os, re, subprocess, sys, tempfile
import onnx
from onnx import TensorProto as T, helper as h

N = h.make_node


def graph(nodes, t, inputs, outputs, numbers=()):
    value = lambda name, shape: h.make_tensor_value_info(name, t, shape)
    init = [h.make_tensor(name, t, [], [v]) for name, v in numbers]
    g = h.make_graph(nodes, "g", [value(*i) for i in inputs], [value(*o) for o in outputs], init)
    return h.make_model(g, opset_imports=[h.make_opsetid("", 20)], ir_version=10)


def step(m, k, n):
    """A product of f32 that two states move by."""
    nodes = [N("MatMul", ["x", "y"], ["g"]), N("Mul", ["v", "b"], ["vb"]), N("Add", ["vb", "g"], ["v1"]), N("Sub", ["w", "v1"], ["w1"])]
    return graph(nodes, T.FLOAT, [("x", [m, k]), ("y", [k, n]), ("v", [m, n]), ("w", [m, n])], [("v1", [m, n]), ("w1", [m, n])], [("b", 0.9)])


def slope(m, k, n):
    """A product times what tanh gives of another value, of more arithmetic than a sum has."""
    nodes = [N("MatMul", ["x", "y"], ["g"]), N("Mul", ["h", "h"], ["a"]), N("Mul", ["a", "c"], ["b"]), N("Tanh", ["b"], ["t"])]
    for i in range(20): nodes.append(N("Mul" if i % 2 else "Add", [f"t{i}" if i else "t", "h"], [f"t{i + 1}"]))
    nodes.append(N("Mul", ["g", "t20"], ["o"]))
    return graph(nodes, T.BFLOAT16, [("x", [m, k]), ("y", [k, n]), ("h", [m, n])], [("o", [m, n])], [("c", 0.5)])


def columns(rows, n):
    """Sums of columns of what is stored, too."""
    nodes = [N("Mul", ["x", "y"], ["p"]), N("ReduceSum", ["p", "axis"], ["s"], keepdims=0)]
    m = graph(nodes, T.FLOAT, [("x", [rows, n]), ("y", [rows, n])], [("p", [rows, n]), ("s", [n])])
    m.graph.initializer.append(h.make_tensor("axis", T.INT64, [1], [0]))
    return m


def points(n):
    return graph([N("Tanh", ["x"], ["y"])], T.BFLOAT16, [("x", [n])], [("y", [n])])


def text(graphc, model, kernel, folder):
    path, ir = os.path.join(folder, "m.onnx"), os.path.join(folder, "ir")
    onnx.save(model, path)
    subprocess.run([graphc, path, "-o", os.path.join(folder, "m.plan"), "--target", "sm_90a", "--precision", "bf16",
                    "--dump-ir", ir], check=True, capture_output=True)
    return open(sorted(glob.glob(os.path.join(ir, kernel)))[0]).read()


def in_front(s, load, store):
    """So many loads stand in front of the first store behind the first load."""
    at = re.search(load, s)
    return len(re.findall(load, re.split(store, s[at.start():])[0])) if at else 0


def main():
    cases = [("a product's step", step(768, 16384, 768), "tem_*.ptx", lambda s: in_front(s, r"ld\.global\.v2", r"st\.global\.v2"), 12),
             ("a slab of what is added to a product", slope(16384, 768, 3072), "tem_*.ptx", lambda s: in_front(s, "ldmatrix", "stmatrix"), 8),
             ("sums of columns and their points", columns(16384, 768), "*.ptx", lambda s: in_front(s, r"ld\.global\.v4", r"st\.global\.v4"), 8),
             ("tanh of bf16", points(1 << 20), "poi_*.ptx", lambda s: len(re.findall(r"tanh\.approx", s)), 1)]
    failed = 0
    for name, model, kernel, count, wanted in cases:
        with tempfile.TemporaryDirectory() as folder:
            n = count(text(sys.argv[1], model, kernel, folder))
        failed += n < wanted
        print(f"{name}: {n}{'' if n >= wanted else f' of {wanted}, FAILED'}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
