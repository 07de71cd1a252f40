"""Weights of few bits keep their bits in memory: few_bits.py GRAPHC

MatMulNBits of 2, 4 and 8 bits, blocks of 16 to 256, with zero points and without, and DequantizeLinear of 4 and 8 bits in front of a
product: what a plan prepares at load is no larger than
its words, scales and zero points in panels, also where projections of one input become one product; results are those of the formula in f64; a row's bits do not depend on how many
rows stand beside it, though one tile of rows expands weights in registers and more rows a panel in scratch, and a pair of them all columns at a time. With g_idx, results alone."""
import json, os, sys
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper as nh

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tool import Tool

tool = Tool(sys.argv[1])
check, run = tool.check, tool.run
rng = np.random.default_rng(3)


def unpack(x, bits, count):
    """The last axis' bytes as values, lowest bits first."""
    parts = np.stack([x >> (bits * i) & ((1 << bits) - 1) for i in range(8 // bits)], -1)
    return parts.reshape(*x.shape[:-1], -1)[..., :count].astype(np.float64)


def weights(bits, block, k, n, zeros):
    """Of a node MatMulNBits: their parts and the number of blocks; its inputs' names, and those that are constant."""
    blocks = -(-k // block)
    q = rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    scale = rng.random((n, blocks)).astype(np.float32)
    z = rng.integers(0, 256, (n, (blocks * bits + 7) // 8)).astype(np.uint8)
    consts = [nh.from_array(q, "q"), nh.from_array(scale.ravel(), "scale"), *[nh.from_array(z.ravel(), "z")] * zeros]
    return q, scale, z, blocks, ["x", "q", "scale", *["z"] * zeros], consts


def one(bits, block, k, n, zeros):
    what = f"{bits} bits, blocks of {block}, {k} x {n}, {'with' if zeros else 'without'} zero points"
    q, scale, z, blocks, names, consts = weights(bits, block, k, n, zeros)
    node = h.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", bits=bits, block_size=block, K=k, N=n)
    g = h.make_graph([node], "g", [h.make_tensor_value_info("x", T.FLOAT, ["rows", k])],
                     [h.make_tensor_value_info("y", T.FLOAT, ["rows", n])], consts)
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 21), h.make_opsetid("com.microsoft", 1)], ir_version=10), "m.onnx")
    run("m.onnx", "-o", "m.plan")
    panels = -(-n // 48) * 48
    most = panels * blocks * (block * bits // 8 + 4 + zeros * (4 if bits == 8 else 1))  # bytes may be cast while they are constants
    held = json.loads(run("inspect", "m.plan", "--json"))["targets"][0]["memory"]["prepared"]
    check(held <= most + 64, f"{what}: {held} bytes prepared, at most {most} wanted")
    w = unpack(q, bits, block).reshape(n, blocks, block)
    w = (w - (unpack(z, bits, blocks)[..., None] if zeros else 1 << (bits - 1))) * scale[..., None].astype(np.float64)
    w = w.reshape(n, -1)[:, :k].T
    x = rng.standard_normal((21, k)).astype(np.float32)
    got = {}
    for rows in (1, 2, 3, 8, 21):
        np.save("x.npy", x[:rows])
        for isa in ((), ("--isa", "4"), ("--isa", "3"))[:3 if bits == 4 and block < 64 else 2]:
            run("run", "m.plan", *isa, "--input", "x=x.npy", "--output-dir", "out")
            y = got[rows, isa] = np.load("out/y.npy")
            want = x[:rows].astype(np.float64) @ w
            size = np.abs(x[:rows].astype(np.float64)) @ np.abs(w)
            check((np.abs(y - want) <= 2e-6 * size).all(), f"{what}: {rows} rows are off by {np.abs((y - want) / size).max():.1e}")
            check((y[0] == got[1, isa][0]).all(), f"{what}: the first of {rows} rows has other bits than alone")


def sizes_apart():
    """Of parts of k, of zeros, of numbers far apart, of the largest and of small ones, infinite ones and none, each row by itself;
    a part beside a large number is as exact as that one is."""
    k, n, block, most = 256, 50, 32, np.finfo(np.float32).max
    q, scale, z, blocks, names, consts = weights(4, block, k, n, 1)
    node = h.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", bits=4, block_size=block, K=k, N=n)
    g = h.make_graph([node], "g", [h.make_tensor_value_info("x", T.FLOAT, ["rows", k])],
                     [h.make_tensor_value_info("y", T.FLOAT, ["rows", n])], consts)
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 21), h.make_opsetid("com.microsoft", 1)], ir_version=10), "m.onnx")
    run("m.onnx", "-o", "m.plan")
    w = unpack(q, 4, block).reshape(n, blocks, block) - unpack(z, 4, blocks)[..., None]
    w = (w * scale[..., None].astype(np.float64)).reshape(n, k).T
    x = rng.standard_normal((12, k)).astype(np.float32)
    x[1] = 0
    x[2, 40:200] = 0
    x[3, ::37] *= 1e4
    x[4] *= np.exp(4 * rng.standard_normal(k)).astype(np.float32)
    x[5], x[5, 3], x[5, 100] = 0, most / 1e3, -most / 1e3
    x[6] *= 1e-30
    x[7], x[7, 64:] = np.where(x[7] < 0, -1, 1) * np.float32(2 - 2.0**-23), 0  # all of 24 bits, next to a power of two
    x[8, 7], x[9, 9], x[10, 70] = np.inf, -np.inf, np.nan
    x[11, 32:64] = 0
    exact = x.astype(np.float64)
    finite = np.isfinite(exact)
    peak = np.repeat(np.abs(np.where(finite, exact, 0)).reshape(12, blocks, block).max(-1), block, 1)
    for rows in (1, 12):
        for isa in ((), ("--isa", "4"), ("--isa", "3")):
            for at in range(0, 12, rows):
                np.save("x.npy", x[at:at + rows])
                run("run", "m.plan", *isa, "--input", "x=x.npy", "--output-dir", "out")
                for i, y in enumerate(np.load("out/y.npy"), at):
                    with np.errstate(invalid="ignore"):
                        want = exact[i] @ w
                    if finite[i].all():
                        ok = np.abs(y - want) <= 2e-7 * peak[i] @ np.abs(w) + 1e-6 * np.abs(exact[i]) @ np.abs(w)
                    else:
                        ok = np.where(np.isnan(want), np.isnan(y) | np.isinf(y), y == want)
                    check(ok.all(), f"row {i} of {rows}, {isa}: {y[~ok][:3]} instead of {want[~ok][:3]}")


def groups(bits, block, k, n, zeros, level, pad):
    """g_idx: each column names its group; padded to whole blocks, or not."""
    what = f"g_idx, {bits} bits, blocks of {block}, {k} x {n}, zero points {zeros}, level {level}, padded {pad}"
    q, scale, z, blocks, names, consts = weights(bits, block, k, n, zeros)
    size = blocks * block if pad else k
    idx = (rng.permutation(size) * blocks // size).astype(np.int32)
    names = names + [""] * (not zeros) + ["idx"]
    node = h.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", bits=bits, block_size=block, K=k, N=n, accuracy_level=level)
    g = h.make_graph([node], "g", [h.make_tensor_value_info("x", T.FLOAT, ["rows", k])],
                     [h.make_tensor_value_info("y", T.FLOAT, ["rows", n])], [*consts, nh.from_array(idx, "idx")])
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 21), h.make_opsetid("com.microsoft", 1)], ir_version=10), "m.onnx")
    run("m.onnx", "-o", "m.plan")
    zero = unpack(z, bits, blocks)[:, idx[:k]] if zeros else 1 << (bits - 1)
    w = ((unpack(q, bits, block).reshape(n, -1)[:, :k] - zero) * scale[:, idx[:k]].astype(np.float64)).T
    for rows in (1, 19):
        x = rng.standard_normal((rows, k)).astype(np.float32)
        np.save("x.npy", x)
        run("run", "m.plan", "--input", "x=x.npy", "--output-dir", "out")
        off = np.abs(np.load("out/y.npy") - x.astype(np.float64) @ w) / (np.abs(x.astype(np.float64)) @ np.abs(w))
        check(off.max() <= 2e-6, f"{what}: {rows} rows are off by {off.max():.1e}")


def projections(zeros):
    """Of one input, as queries, keys and values are: one product of weights side by side."""
    k, block, widths = 96, 32, (60, 30, 30)
    blocks, nodes, consts, parts = k // block, [], [], []
    for i, n in enumerate(widths):
        q = rng.integers(0, 256, (n, blocks, block // 2)).astype(np.uint8)
        scale = rng.random((n, blocks)).astype(np.float32)
        z = rng.integers(0, 256, (n, (blocks + 1) // 2)).astype(np.uint8)
        names = ["x", f"q{i}", f"scale{i}", *[f"z{i}"] * zeros]
        nodes.append(h.make_node("MatMulNBits", names, [f"y{i}"], domain="com.microsoft", bits=4, block_size=block, K=k, N=n))
        consts += [nh.from_array(q, f"q{i}"), nh.from_array(scale.ravel(), f"scale{i}"), *[nh.from_array(z.ravel(), f"z{i}")] * zeros]
        w = unpack(q, 4, block).reshape(n, blocks, block) - (unpack(z, 4, blocks)[..., None] if zeros else 8)
        parts.append((w * scale[..., None].astype(np.float64)).reshape(n, k).T)
    g = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, ["rows", k])],
                     [h.make_tensor_value_info(f"y{i}", T.FLOAT, ["rows", n]) for i, n in enumerate(widths)], consts)
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 21), h.make_opsetid("com.microsoft", 1)], ir_version=10), "m.onnx")
    run("m.onnx", "-o", "m.plan")
    info = json.loads(run("inspect", "m.plan", "--json"))["targets"][0]
    products = sum(kernel["name"].startswith("tem_") for kernel in info["kernels"])
    check(products == 1, f"projections: {products} products")
    most = -(-sum(widths) // 48) * 48 * blocks * (block // 2 + 4 + zeros)
    held = info["memory"]["prepared"]
    check(held <= most + 64, f"projections, {zeros} zero points: {held} bytes prepared, at most {most} wanted")
    x = rng.standard_normal((3, k)).astype(np.float32)
    np.save("x.npy", x)
    run("run", "m.plan", "--input", "x=x.npy", "--output-dir", "out")
    for i, w in enumerate(parts):
        size = np.abs(x.astype(np.float64)) @ np.abs(w)
        off = np.abs(np.load(f"out/y{i}.npy") - x.astype(np.float64) @ w) / size
        check(off.max() <= 2e-6, f"projections, {zeros} zero points: {off.max():.1e} off")


def bytes_in_blocks(bits, block, k, n, zeros):
    """accuracy_level 4: sums of integers, block by block; where blocks do not fill k, and for gradients, f32 as at other levels."""
    what = f"level 4, {bits} bits, blocks of {block}, {k} x {n}, {'with' if zeros else 'without'} zero points"
    q, scale, z, blocks, names, consts = weights(bits, block, k, n, zeros)
    node = h.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", bits=bits, block_size=block, K=k, N=n, accuracy_level=4)
    g = h.make_graph([node], "g", [h.make_tensor_value_info("x", T.FLOAT, ["batch", "rows", k])],
                     [h.make_tensor_value_info("y", T.FLOAT, ["batch", "rows", n])], consts)
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 21), h.make_opsetid("com.microsoft", 1)], ir_version=10), "m.onnx")
    run("m.onnx", "-o", "m.plan", "--dump-ir", "ir")
    whole = k % block == 0
    check((f" block {block} " in open("ir/post-fusion.kir").read()) == whole, f"{what}: {'no' if whole else 'a'} contraction in blocks")
    w = unpack(q, bits, block).reshape(n, blocks, block)
    w = (w - (unpack(z, bits, blocks)[..., None] if zeros else 1 << (bits - 1))) * scale[..., None].astype(np.float64)
    w = w.reshape(n, -1)[:, :k].T
    x = rng.standard_normal((1, 21, k)).astype(np.float32)
    x[0, 0, :block] = 0
    exact = rounded(x, block) if whole else x.astype(np.float64)
    first = {}
    for rows in (1, 3, 8, 21):
        np.save("x.npy", x[:, :rows])
        for isa in ((), ("--isa", "4"), ("--isa", "3")):
            run("run", "m.plan", *isa, "--input", "x=x.npy", "--output-dir", "out")
            y = np.load("out/y.npy")
            off = np.abs(y - exact[:, :rows] @ w) / (np.abs(x[:, :rows].astype(np.float64)) @ np.abs(w))
            # A number in the middle of two steps may go to either, which moves its row.
            check(off.max() < 0.01 and (off <= 2e-6).mean() > 0.9, f"{what}: {rows} rows {isa} are off by {off.max():.1e}")
            alone = first.setdefault(isa if not whole else "", y[0, 0])
            check((y[0, 0] == alone).all(), f"{what}: the first of {rows} rows has other bits than alone")
    if whole and rows > 1:
        np.save("x.npy", x)
        run("grad", "m.onnx", "--loss", "y", "--wrt", "inputs", "--input", "x=x.npy", "--output-dir", "out")
        want = np.broadcast_to(w.sum(1), x.shape)
        check(np.allclose(np.load("out/x.npy"), want, rtol=1e-4, atol=1e-3), f"{what}: the gradient is another")


def rounded(x, block):
    """As accuracy_level 4 allows: integers of 8 bits, of which the largest of each block is 127."""
    cut = x.reshape(*x.shape[:-1], -1, block)
    most = np.abs(cut).max(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        q = np.rint(cut * np.where(most == 0, np.float32(0), np.float32(127) / most))
    return (q * (most * np.float32(1 / 127))).reshape(x.shape).astype(np.float64)


KINDS = {T.INT4: (4, -8), T.UINT4: (4, 0), T.INT8: (8, -128), T.UINT8: (8, 0)}


def integers(name, kind, shape):
    """A tensor of random ones, and they in f64."""
    bits, least = KINDS[kind]
    x = rng.integers(least, least + (1 << bits), shape)
    low = (x & (1 << bits) - 1).astype(np.uint8).ravel()
    if bits == 4:
        low = np.append(low, [0] * (low.size % 2)).astype(np.uint8)
        low = low[::2] | low[1::2] << 4
    return h.make_tensor(name, kind, shape, low.tobytes(), raw=True), x.astype(np.float64)


def dequantised(kind, k, ns, turned, block=0, zeros=False, scalar=False, half=False):
    """DequantizeLinear in front of MatMul, or, turned, of Gemm with transB: the same as MatMulNBits. block: along k; 0: a scale for
    each column, or one. Of several ns: products of one input."""
    what = f"DequantizeLinear, {KINDS[kind][0]} bits from {KINDS[kind][1]}, {k} x {ns}, turned {turned}, block {block}, zero points {zeros}, scalar {scalar}, half {half}"
    nodes, consts, ws = [], [], []
    real = np.float16 if half else np.float32
    along = 1 if turned else 0  # k
    for i, n in enumerate(ns):
        shape = (n, k) if turned else (k, n)
        of = () if scalar else tuple(-(-d // block) if j == along else d for j, d in enumerate(shape)) if block else (n,)
        q, x = integers(f"q{i}", kind, shape)
        scale = np.asarray(rng.random(of) + 0.01).astype(real)
        consts += [q, nh.from_array(scale, f"s{i}")]
        spread = lambda p: p if not block and (scalar or not turned) else p[:, None] if not block else np.repeat(p, block, along)[:shape[0], :shape[1]]
        if zeros:
            z, zero = integers(f"z{i}", kind, of)
            consts.append(z)
            x = x - spread(zero)
        w = (np.float32(x) * np.float32(spread(scale))).astype(real).astype(np.float64)
        ws.append(w.T if turned else w)
        attrs = {"axis": along if block else 1 - along} | ({"block_size": block} if block else {})
        nodes += [h.make_node("DequantizeLinear", [f"q{i}", f"s{i}", *[f"z{i}"] * zeros], [f"w{i}"], **attrs),
                  h.make_node("Gemm", ["x", f"w{i}"], [f"y{i}"], transB=1) if turned else h.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"])]
    t = T.FLOAT16 if half else T.FLOAT
    g = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", t, ["rows", k])],
                     [h.make_tensor_value_info(f"y{i}", t, ["rows", n]) for i, n in enumerate(ns)], consts)
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 21)], ir_version=10), "m.onnx")
    run("m.onnx", "-o", "m.plan")
    info = json.loads(run("inspect", "m.plan", "--json"))["targets"][0]
    products = sum(kernel["name"].startswith("tem_") for kernel in info["kernels"])
    check(products == 1, f"{what}: {products} products")
    bits, size = KINDS[kind][0], block or -(-k * KINDS[kind][0] // 32) * 32 // KINDS[kind][0]
    most = -(-sum(ns) // 48) * 48 * -(-k // size) * (size * bits // 8 + 4 + zeros * 4)  # zero points may be cast while they are constants
    held = info["memory"]["prepared"]
    check(held <= most + 64, f"{what}: {held} bytes prepared, at most {most} wanted")
    x = rng.standard_normal((21, k)).astype(real)
    first = {}
    for rows in (1, 8, 21):
        np.save("x.npy", x[:rows])
        for isa in ((), ("--isa", "4"), ("--isa", "3")):
            run("run", "m.plan", *isa, "--input", "x=x.npy", "--output-dir", "out")
            for i, w in enumerate(ws):
                y = np.load(f"out/y{i}.npy")
                off = np.abs(y - x[:rows].astype(np.float64) @ w) / (np.abs(x[:rows].astype(np.float64)) @ np.abs(w))
                check(off.max() <= (1e-3 if half else 2e-6), f"{what}: {rows} rows are off by {off.max():.1e}")
                check((y[0] == first.setdefault((i, isa), y[0])).all(), f"{what}: the first of {rows} rows has other bits than alone")
    cut = block if block and k % block == 0 and block & block - 1 == 0 else 0 if block else next((b for b in (128, 64, 32, 16) if k % b == 0), 0)
    run("m.onnx", "-o", "m.plan", "--accuracy-level", "4", "--dump-ir", "ir")
    said = open("ir/post-fusion.kir").read()
    check((f" block {cut} " in said) == (cut > 0) and said.count(" block ") == (cut > 0), f"{what}: at level 4 no blocks of {cut}")
    run("run", "m.plan", "--input", "x=x.npy", "--output-dir", "out")
    exact = rounded(x.astype(np.float32), cut) if cut else x.astype(np.float64)
    for i, w in enumerate(ws):
        off = np.abs(np.load(f"out/y{i}.npy") - exact @ w) / (np.abs(x.astype(np.float64)) @ np.abs(w))
        # A number in the middle of two steps may go to either, which moves its row.
        check(off.max() < 0.01 and (off <= (1e-3 if half else 2e-6)).mean() > 0.9, f"{what}: at level 4 off by {off.max():.1e}")


def one_scale():
    """Weights of different widths with one scale, the same constant: each has it for all of its columns."""
    k, widths = 128, (300, 40)
    x = rng.standard_normal((3, k)).astype(np.float32)
    np.save("x.npy", x)
    nodes, consts, want, h_in = [], [nh.from_array(np.float32(0.25), "s")], [], "x"
    for i, n in enumerate(widths):
        q, w = integers(f"q{i}", T.INT8, (k, n))
        consts.append(q)
        nodes += [h.make_node(op, [h_in], [f"x{i}"]) for op in (["Neg"] if i else ["Identity"])]
        nodes += [h.make_node("DequantizeLinear", [f"q{i}", "s"], [f"w{i}"]), h.make_node("MatMul", [f"x{i}", f"w{i}"], [f"y{i}"])]
        want.append((-x if i else x).astype(np.float64) @ w * 0.25)
    g = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, ["rows", k])],
                     [h.make_tensor_value_info(f"y{i}", T.FLOAT, ["rows", n]) for i, n in enumerate(widths)], consts)
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 21)], ir_version=10), "m.onnx")
    run("m.onnx", "-o", "m.plan")
    run("run", "m.plan", "--input", "x=x.npy", "--output-dir", "out")
    for i, y in enumerate(want):
        check(np.allclose(np.load(f"out/y{i}.npy"), y, rtol=1e-4, atol=1e-2), f"one scale: product {i} is another")


def level_of_the_user():
    """--accuracy-level goes before what the model says, either way: a model of that level's code and bits; the plan says so."""
    q, scale, z, blocks, names, consts = weights(4, 32, 96, 97, 0)
    x = rng.standard_normal((5, 96)).astype(np.float32)
    np.save("x.npy", x)
    y = {}
    for level in (0, 1, 4):
        node = h.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", bits=4, block_size=32, K=96, N=97, accuracy_level=level)
        g = h.make_graph([node], "g", [h.make_tensor_value_info("x", T.FLOAT, ["rows", 96])],
                         [h.make_tensor_value_info("y", T.FLOAT, ["rows", 97])], consts)
        onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 21), h.make_opsetid("com.microsoft", 1)], ir_version=10), "m.onnx")
        for given in (0, 1, 4):
            run("m.onnx", "-o", "m.plan", *["--accuracy-level", str(given)] * (given > 0))
            run("run", "m.plan", "--input", "x=x.npy", "--output-dir", "out")
            y.setdefault(given or level, []).append(np.load("out/y.npy"))
            said = json.loads(run("inspect", "m.plan", "--json")).get("accuracy_level")
            check(said == (given or None), f"level {given} given: the plan says {said}")
            why = run("explain", "m.plan", "y")
            check(("sums of 32 scaled" in why) == ((given or level) == 4), f"level {level}, {given} given: explain says {why}")
    exact = (y[0] + y[1])[0]
    check(all((v == exact).all() for v in y[0] + y[1]), "levels 0 and 1 differ")
    check(all((v == y[4][0]).all() for v in y[4]) and (y[4][0] != exact).any(), "level 4 is not that of the model")


projections(0)
projections(1)
for bits, block, k, n, zeros, level, pad in ((4, 32, 128, 24, 0, 0, 0), (4, 16, 96, 53, 1, 0, 0), (4, 32, 200, 49, 1, 0, 1),
                                             (8, 32, 96, 48, 1, 0, 0), (2, 64, 192, 20, 1, 0, 0), (4, 32, 128, 64, 1, 4, 0)):
    groups(bits, block, k, n, zeros, level, pad)
level_of_the_user()
one_scale()
for kind in KINDS:  # of more elements than are computed when compiling
    dequantised(kind, 96, (97,), turned=False, block=32, zeros=True)
    dequantised(kind, 128, (60, 34, 34), turned=True, block=64)
    dequantised(kind, 104, (50,), turned=kind == T.INT4, zeros=kind in (T.UINT4, T.INT8))
dequantised(T.INT4, 100, (97,), turned=False, block=32, zeros=True)
dequantised(T.UINT4, 100, (97,), turned=True, block=16)
dequantised(T.INT8, 333, (40,), turned=False)
dequantised(T.INT8, 128, (40, 34), turned=True, scalar=True)
dequantised(T.UINT8, 384, (40,), turned=False, zeros=True)
dequantised(T.INT4, 96, (50,), turned=True, scalar=True)
dequantised(T.INT4, 128, (60, 40), turned=False, block=32, zeros=True)
dequantised(T.INT8, 128, (60, 40), turned=False)
dequantised(T.INT4, 128, (40,), turned=False, block=32, half=True)
dequantised(T.INT4, 288, (97,), turned=False, block=72, zeros=True)  # no scale for each 32 rows, though for the first and the last
dequantised(T.UINT8, 288, (50,), turned=False, block=96, zeros=True)
sizes_apart()
for bits, block, k, zeros in ((4, 32, 96, 0), (4, 16, 48, 1), (4, 128, 256, 1), (8, 32, 64, 0), (2, 64, 128, 1), (4, 32, 80, 0)):
    bytes_in_blocks(bits, block, k, 97, zeros)
for block in (16, 32, 64, 128, 256):
    one(4, block, 2 * block + 8, 97, block > 32)
    one(4, block, 3 * block, 97, block <= 32)
one(4, 32, 333, 20, 1)
one(8, 32, 96, 48, 1)
one(2, 64, 192, 64, 0)
sys.exit(tool.bad != 0)
