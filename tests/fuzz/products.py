"""Random products and convolutions beside the evaluator, in every form that code for CPUs has: f32, bf16 and bytes, AVX2 and
AVX-512, 1 and 3 threads; operands as they come or turned, sums of 1 to 2,500, what follows in the same kernel.

    products.py GRAPHC [--seed N] [--count N] [--seconds S]       no model is begun later than S; fenced for GRAPHC

A model is a function of its seed. One that differs is kept, and named with what `graphc verify` says.
"""
import argparse, os, random, sys, tempfile, time
import numpy as np, onnx
from onnx import TensorProto, helper as h, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import forks

SIDES = [1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 100, 127, 128, 129, 160, 200]
SUMS = [1, 3, 7, 16, 17, 63, 64, 65, 127, 128, 129, 130, 160, 255, 256, 257, 300, 384, 400, 513, 777, 1000, 1025, 1709, 2048, 2500]
CHANNELS = [1, 2, 3, 4, 8, 12, 16, 24, 32, 48, 64, 96, 130]
EINSUMS = ["bkm,bkn->bmn", "mbk,nbk->bmn", "kbm,kn->bnm", "mk,bnk->bmn"]
WAYS = [(p, isa) for p in ("f32", "bf16") for isa in "34"]


class Model:
    def __init__(self, seed):
        self.r, self.np = random.Random(seed), np.random.default_rng(seed)
        self.nodes, self.inputs, self.inits = [], [], []

    def op(self, kind, ins, **attrs):
        self.nodes.append(h.make_node(kind, ins, [f"v{len(self.nodes)}"], **attrs))
        return self.nodes[-1].output[0]

    def given(self, shape, kind=TensorProto.FLOAT):
        self.inputs.append(h.make_tensor_value_info(f"x{len(self.inputs)}", kind, shape))
        return self.inputs[-1].name

    def const(self, array):
        self.inits.append(numpy_helper.from_array(array, f"w{len(self.inits)}"))
        return self.inits[-1].name

    def weight(self, shape, terms):
        """A constant, so that sums of so many terms are about as large as their left operand; some are inputs."""
        if self.r.random() < 0.3:
            return self.given(shape)
        return self.const((self.np.standard_normal(shape) / np.sqrt(terms)).astype(np.float32))

    def turned(self, name, rank, turn):
        return self.op("Transpose", [name], perm=[*range(rank - 2), rank - 1, rank - 2]) if turn else name

    def made(self, out):
        value = h.make_tensor_value_info(out, TensorProto.FLOAT, None)
        graph = h.make_graph(self.nodes, "product", self.inputs, [value], self.inits)
        m = h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=9)
        return onnx.shape_inference.infer_shapes(m, strict_mode=True)


def matmul(m):
    rows, k, cols = m.r.choice(SIDES), m.r.choice(SUMS), m.r.choice(SIDES)
    batch, right = m.r.choice([[], [], [2], [3]]), m.r.random() < 0.6
    turn = [m.r.random() < 0.4 for _ in range(2)]
    a = m.given(batch + ([k, rows] if turn[0] else [rows, k]))
    shape = (batch if right else []) + ([cols, k] if turn[1] else [k, cols])
    w = m.weight(shape, k)
    if not batch and m.r.random() < 0.3:
        c = m.weight(m.r.choice([[cols], [1, cols], [rows, 1]]), 1)
        return m.op("Gemm", [a, w, c], transA=int(turn[0]), transB=int(turn[1]), alpha=m.r.choice([1.0, 0.5])), batch + [rows, cols]
    return m.op("MatMul", [m.turned(a, len(batch) + 2, turn[0]), m.turned(w, len(shape), turn[1])]), batch + [rows, cols]


def einsum(m):
    size = dict(b=m.r.choice([2, 5]), m=m.r.choice([3, 8, 17]), k=m.r.choice([64, 129, 200]), n=m.r.choice([5, 16, 33]))
    equation = m.r.choice(EINSUMS)
    left, right, out = ([size[c] for c in part] for part in equation.replace("->", ",").split(","))
    return m.op("Einsum", [m.given(left), m.weight(right, size["k"])], equation=equation), out


def convolution(m):
    n, k, s, d = m.r.choice([1, 1, 2, 3]), m.r.choice([1, 1, 2, 3, 3, 5, 7]), m.r.choice([1, 1, 2, 3]), m.r.choice([1, 1, 1, 2])
    size = [max(x, (k - 1) * d + 1) for x in (m.r.choice([5, 7, 8, 11, 14, 16, 23, 28]), m.r.choice([5, 8, 9, 14, 17, 28]))]
    c, o, g = m.r.choice(CHANNELS), m.r.choice([1, 3, 8, 16, 20, 32, 48, 64, 72]), m.r.choice([1, 1, 1, 1, 2, 4, 0])
    c, o, g = (c, c * m.r.choice([1, 2]), c) if g == 0 else (c * g, o * g, g)  # 0: of each channel
    if m.r.random() < 0.3:
        x = m.op("Transpose", [m.given([n, *size, c])], perm=[0, 3, 1, 2])
    else:
        x = m.given([n, c, *size])
    if m.r.random() < 0.15:
        return m.op("ConvTranspose", [x, m.weight([c, o // g, k, k], c * k * k / g)], strides=[s, s], group=g), None
    ins = [x, m.weight([o, c // g, k, k], c * k * k / g)] + ([m.weight([o], 1)] if m.r.random() < 0.5 else [])
    return m.op("Conv", ins, strides=[s, s], dilations=[d, d], group=g, pads=[m.r.choice([0, (k - 1) * d // 2])] * 4), None


def bytes_of(m, kind, shape, given=False):
    """All values of the type: an input, or a constant but for some."""
    if given:
        return m.given(shape, h.np_dtype_to_tensor_dtype(np.dtype(kind)))
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    return m.const(m.np.integers(least, most + 1, shape).astype(kind))


def zero_points(m, left, right, columns):
    """None, the left operand's, or both: the right one's for all of it or, of a matrix, for each column."""
    if m.r.random() < 0.3:
        return []
    points = [bytes_of(m, left, [])]
    if m.r.random() < 0.6:
        points.append(bytes_of(m, right, [columns] if columns and m.r.random() < 0.5 else []))
    return points


def of_bytes(m):
    """Products and convolutions of integers, whose sums are exact."""
    left, right = m.r.choice([np.uint8, np.int8]), m.r.choice([np.int8, np.int8, np.uint8])
    given = m.r.random() < 0.2
    if m.r.random() < 0.35:
        c, o, size, taps = m.r.choice(CHANNELS), m.r.choice([1, 8, 17, 32, 48]), m.r.choice([7, 9, 14]), m.r.choice([1, 3, 5])
        ins = [bytes_of(m, left, [m.r.choice([1, 2]), c, size, size], True), bytes_of(m, right, [o, c, taps, taps], given)]
        y = m.op("ConvInteger", ins + zero_points(m, left, right, 0), pads=[m.r.choice([0, taps // 2])] * 4, strides=[m.r.choice([1, 1, 2])] * 2)
    else:
        rows, k, cols, turn = m.r.choice(SIDES), m.r.choice(SUMS), m.r.choice(SIDES), m.r.random() < 0.4
        a = bytes_of(m, left, m.r.choice([[], [], [2]]) + [rows, k], True)
        w = m.turned(bytes_of(m, right, [cols, k] if turn else [k, cols], given), 2, turn)
        y = m.op("MatMulInteger", [a, w] + zero_points(m, left, right, cols))
    return m.op("Mul", [m.op("Cast", [y], to=TensorProto.FLOAT), m.const(np.float32(1 / 4096))]), None


def behind(m, v, shape):
    """What may be computed beside the product."""
    kind = m.r.choice(["", "Relu", "Gelu", "square", "add", "turn"])
    if kind in ("Relu", "Gelu"):
        return m.op(kind, [v])
    if kind == "square":
        return m.op("Sigmoid", [m.op("Mul", [v, v])])
    if kind == "add" and shape:
        return m.op("Add", [v, m.given(shape)])
    return m.turned(v, len(shape), kind == "turn") if shape else v


def make(seed):
    m = Model(seed)
    return m.made(behind(m, *m.r.choice([matmul, matmul, convolution, convolution, einsum, of_bytes])(m)))


def check(graphc, path, seed):
    """What differs, a line each."""
    found, threads = [], random.Random(seed).choice("13")
    for precision, isa in WAYS:
        command = [graphc, "verify", path, "--precision", precision, "--isa", isa, "--threads", threads]
        p = forks.run(command)
        if p.returncode:
            found.append(f"{' '.join(command[3:])}: exit {p.returncode}: {(p.stdout + p.stderr).strip()[-300:]}")
    return found


def main():
    p = argparse.ArgumentParser()
    p.add_argument("graphc"), p.add_argument("--seed", type=int, default=0), p.add_argument("--count", type=int, default=100)
    p.add_argument("--seconds", type=float, default=float("inf"))
    a = p.parse_args()
    folder, end, bad, done = tempfile.mkdtemp(prefix="products"), time.monotonic() + a.seconds, 0, 0
    for seed in range(a.seed, a.seed + a.count):
        if time.monotonic() > end:
            break
        path = f"{folder}/{seed}.onnx"
        onnx.save(make(seed), path)
        found = check(a.graphc, path, seed)
        bad, done = bad + bool(found), done + 1
        for line in found:
            print(f"{seed}: {line}", flush=True)
        if not found:
            os.remove(path)
    print(f"{done} models, {bad} differ" + (f"; kept in {folder}" if bad else ""))
    if not bad:
        os.rmdir(folder)
    sys.exit(bad != 0 or done == 0)


if __name__ == "__main__":
    main()
