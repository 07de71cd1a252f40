"""What kernels of a GPU ask for before the kernel in front of them has ended: memory that no kernel of the run writes,
and nothing else; a run's first kernel asks for nothing, but may make its barriers. Read in the PTX of small graphs.

    early.py GRAPHC
"""
import glob, os, re, subprocess, sys, tempfile
import numpy as np, onnx
from onnx import TensorProto as T, helper as h

LOAD = re.compile(r"ld\.global|cp\.async\.bulk\.tensor")


def product(rows, k, n):
    """Of rows, which another product makes, and a constant matrix."""
    def matrix(name, *shape):
        w = np.random.default_rng(0).standard_normal(shape).astype(np.float16)
        return h.make_tensor(name, T.FLOAT16, shape, w.tobytes(), raw=True)
    nodes = [h.make_node("MatMul", ["x", "v"], ["y"]), h.make_node("MatMul", ["y", "w"], ["z"])]
    value = lambda name, m, c: h.make_tensor_value_info(name, T.FLOAT16, [m, c])
    g = h.make_graph(nodes, "g", [value("x", rows, 64)], [value("z", rows, n)], [matrix("v", 64, k), matrix("w", k, n)])
    return h.make_model(g, opset_imports=[h.make_opsetid("", 20)], ir_version=10)


def cache(heads, d):
    """What was computed behind what was there: its size is not known."""
    value = lambda name, m: h.make_tensor_value_info(name, T.FLOAT16, [heads, m, d])
    nodes = [h.make_node("Softmax", ["x"], ["s"]), h.make_node("Concat", ["past", "s"], ["all"], axis=1),
             h.make_node("Identity", ["s"], ["t"])]
    g = h.make_graph(nodes, "g", [value("x", 1), value("past", "past")], [value("all", "total"), value("t", 1)])
    return h.make_model(g, opset_imports=[h.make_opsetid("", 20)], ir_version=10)


def decoding(heads, group, d):
    """One query over keys and values of a cache, which a run appends to."""
    value = lambda name, h_, m: h.make_tensor_value_info(name, T.FLOAT16, [1, h_, m, d])
    ins = [value("q", heads * group, 1), value("k", heads, 1), value("v", heads, 1), value("pk", heads, "past"), value("pv", heads, "past")]
    nodes = [h.make_node("Softmax", ["q"], ["qs"]), h.make_node("Softmax", ["k"], ["ks"]), h.make_node("Softmax", ["v"], ["vs"]),
             h.make_node("Concat", ["pk", "ks"], ["ak"], axis=2), h.make_node("Concat", ["pv", "vs"], ["av"], axis=2),
             h.make_node("Attention", ["qs", "ak", "av"], ["o"])]
    outs = [value("o", heads * group, 1), value("ak", heads, "all"), value("av", heads, "all")]
    return h.make_model(h.make_graph(nodes, "g", ins, outs), opset_imports=[h.make_opsetid("", 23)], ir_version=10)


def long_rows(rows, n):
    """Layer norm of rows that start at any element, which blocks take in turns."""
    value = lambda name, *shape: h.make_tensor_value_info(name, T.FLOAT16, shape)
    nodes = [h.make_node("LayerNormalization", ["x", "w", "b"], ["y"])]
    g = h.make_graph(nodes, "g", [value("x", rows, n), value("w", n), value("b", n)], [value("y", rows, n)])
    return h.make_model(g, opset_imports=[h.make_opsetid("", 20)], ir_version=10)


def convolutions(size):
    """Two of 3 x 3 windows."""
    w = np.random.default_rng(0).standard_normal((64, 64, 3, 3)).astype(np.float16)
    value = lambda name: h.make_tensor_value_info(name, T.FLOAT16, [8, 64, size, size])
    nodes = [h.make_node("Conv", [x, "w"], [y], pads=[1] * 4) for x, y in (("x", "y"), ("y", "z"))]
    g = h.make_graph(nodes, "g", [value("x")], [value("z")], [h.make_tensor("w", T.FLOAT16, w.shape, w.tobytes(), raw=True)])
    return h.make_model(g, opset_imports=[h.make_opsetid("", 20)], ir_version=10)


GROWS = ["--state", "pk=ak", "--state", "pv=av", "--dim", "past=0..4095"]


def halves(graphc, model, kernel, folder, *options):
    """What the kernel does before the wait, and behind it."""
    path, ir = os.path.join(folder, "m.onnx"), os.path.join(folder, "ir")
    onnx.save(model, path)
    subprocess.run([graphc, path, "-o", os.path.join(folder, "m.plan"), "--target", "sm_90a", "--precision", "f16",
                    "--dump-ir", ir, *options], check=True, capture_output=True)
    found = sorted(glob.glob(os.path.join(ir, kernel)))
    return open(found[0]).read().split("griddepcontrol.wait")[:2]


def prepared(graphc, folder):
    """Rows that blocks take in turns find their barriers made, and read nothing before the wait."""
    before, behind = halves(graphc, long_rows(1024, 50257), "per_0_*.ptx", folder)
    reads = LOAD.search(before) or "cp.async" in before or "atom" in before
    return not reads and "mbarrier.init" in before and "mbarrier.init" not in behind


def main():
    # The producer of a tile has its loads once in a loop; those that are early stand apart, one for each stage.
    apart = lambda before, behind: before + behind > 2
    first = lambda before, behind: before > 0
    none = lambda before, behind: before == 0
    both = lambda before, behind: before >= 16 and behind > before  # the last key is read behind the wait
    cases = [("a first kernel's weights", product(16, 2048, 2048), "tem_0_*.ptx", none),
             ("weights of few tiles", product(16, 2048, 2048), "tem_1_*.ptx", apart),
             ("tiles shared by the blocks of a cluster", product(16, 8192, 2048), "tem_1_*.ptx", apart),
             ("columns of one row", product(1, 2048, 2048), "tem_1_*.ptx", first),
             ("windows of several waves", convolutions(128), "tem_*conv*.ptx", none),
             ("a cache", cache(8, 64), "poi_*concat*.ptx", first),
             ("keys that were there before the run", decoding(8, 4, 64), "tem_*attention*.ptx", both, *GROWS),
             ("keys that the run stores again", decoding(8, 4, 64), "tem_*attention*.ptx", none)]
    failed = 0
    for name, model, kernel, wanted, *options in cases:
        with tempfile.TemporaryDirectory() as folder:
            before, behind = (len(LOAD.findall(t)) for t in halves(sys.argv[1], model, kernel, folder, *options))
        good = wanted(before, behind)
        failed += not good
        print(f"{name}: {before} before, {behind} behind{'' if good else ', FAILED'}")
    with tempfile.TemporaryDirectory() as folder:
        good = prepared(sys.argv[1], folder)
    failed += not good
    print(f"barriers of long rows: {'before' if good else 'FAILED'}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
