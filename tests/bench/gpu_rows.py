"""Rows of the GPU table: a graph, what it has to compute and move at least, and what peers run for it.

A row is one ONNX graph. Inputs are graph inputs, drawn by the harness; weights of convolutions are external data
drawn from the row's name, the same bytes wherever they are written, so that plans stay small. Images are NHWC in
memory: the graph transposes to ONNX's order and back, which costs nothing once views are absorbed.
"""
import dataclasses, fnmatch, os, zlib
import numpy as np

SIZE = {"bf16": 2, "f16": 2, "f32": 4, "tf32": 4}
BIG = (4096, 16384, 4096)
RESNET = [(3, 64, 7, 2, 224), (64, 64, 1, 1, 56), (64, 64, 3, 1, 56), (64, 256, 1, 1, 56), (256, 64, 1, 1, 56),
          (256, 128, 1, 1, 56), (128, 128, 3, 2, 56), (128, 512, 1, 1, 28), (256, 512, 1, 2, 56), (512, 128, 1, 1, 28),
          (128, 128, 3, 1, 28), (512, 256, 1, 1, 28), (256, 256, 3, 2, 28), (256, 1024, 1, 1, 14), (512, 1024, 1, 2, 28),
          (1024, 256, 1, 1, 14), (256, 256, 3, 1, 14), (1024, 512, 1, 1, 14), (512, 512, 3, 2, 14), (512, 2048, 1, 1, 7),
          (1024, 2048, 1, 2, 14), (2048, 512, 1, 1, 7), (512, 512, 3, 1, 7)]


@dataclasses.dataclass
class Row:
    name: str
    graph: object        # () -> onnx.ModelProto
    peer: tuple          # for gpu_peers.py: a kind and its sizes
    flops: int = 0
    bytes: int = 0       # least traffic
    options: tuple = ()  # of graphc
    weights: tuple = ()  # (name, shape) of float16 external data, in file order
    model: str = ""      # a model's graph instead of `graph`
    dims: dict = dataclasses.field(default_factory=dict)


ROWS = {}


def add(name, graph, peer, **kw):
    ROWS[name] = Row(name, graph, peer, **kw)


def model(ins, nodes, outs, init=()):
    from onnx import TensorProto as T, helper as h
    types = {"bf16": T.BFLOAT16, "f16": T.FLOAT16, "f32": T.FLOAT, "i64": T.INT64, "bool": T.BOOL,
             "i8": T.INT8, "u8": T.UINT8, "i32": T.INT32, "f8e4m3fn": T.FLOAT8E4M3FN}
    value = lambda name, t, shape: h.make_tensor_value_info(name, types[t], shape)
    made = [h.make_node(op, i, [o], **attr) for op, i, o, attr in nodes]
    g = h.make_graph(made, "row", [value(*i) for i in ins], [value(*o) for o in outs], list(init))
    return h.make_model(g, opset_imports=[h.make_opsetid("", 23)], ir_version=10)


def cast_to_f32():
    from onnx import TensorProto
    return {"to": TensorProto.FLOAT}


# --- Contractions ---------------------------------------------------------------------------------


def gemm(t, layout, m, k, n, epilogue="", options=()):
    s = "f32" if t == "tf32" else t
    z = SIZE[t]

    def graph():
        ins = [("a", s, [m, k]), ("b", s, [k, n] if layout == "nn" else [n, k])]
        nodes, b = [], "b"
        if layout == "nt":
            nodes, b = [("Transpose", ["b"], "bt", {"perm": [1, 0]})], "bt"
        nodes.append(("MatMul", ["a", b], "t" if epilogue else "c", {}))
        if epilogue == "bias_gelu":
            ins.append(("w", s, [n]))
            nodes += [("Add", ["t", "w"], "u", {}), ("Gelu", ["u"], "c", {"approximate": "tanh"})]
        if epilogue == "residual":
            ins.append(("r", s, [m, n]))
            nodes.append(("Add", ["t", "r"], "c", {}))
        return model(ins, nodes, [("c", s, [m, n])])

    name = f"gemm_{t}_{layout}_{m}x{k}x{n}" + (f"_{epilogue}" if epilogue else "")
    extra = m * n if epilogue == "residual" else 0
    add(name, graph, ("mm", t, layout, m, k, n, epilogue), flops=2 * m * n * k,
        bytes=z * (m * k + k * n + m * n + extra), options=tuple(options))


def bytes_gemm(t, m, k, n):
    """Operands of 8 bits, the right one by columns: integers into i32, floats into bf16."""
    def graph():
        from onnx import TensorProto
        ins, nodes = [("a", t, [m, k]), ("b", t, [n, k])], [("Transpose", ["b"], "t", {"perm": [1, 0]})]
        if t == "i8":
            return model(ins, nodes + [("MatMulInteger", ["a", "t"], "c", {})], [("c", "i32", [m, n])])
        nodes += [("Cast", ["a"], "x", cast_to_f32()), ("Cast", ["t"], "y", cast_to_f32()), ("MatMul", ["x", "y"], "z", {}),
                  ("Cast", ["z"], "c", {"to": TensorProto.BFLOAT16})]
        return model(ins, nodes, [("c", "bf16", [m, n])])

    add(f"gemm_{t}_nt_{m}x{k}x{n}", graph, ("mm8", t, m, k, n), flops=2 * m * n * k,
        bytes=m * k + k * n + (4 if t == "i8" else 2) * m * n)


def gemms():
    square = [(s,) * 3 for s in (1024, 2048, 4096, 8192, 16384)]
    for t in ("bf16", "f16"):
        for s in [(512, 1024, 512)] + square + [(2048, 4096, 14336), BIG]:
            gemm(t, "nn", *s), gemm(t, "nt", *s)
    for s in [(1, 4096, 4096), (1, 2048, 8192), (8, 4096, 14336), (16, 4096, 14336), (64, 4096, 14336)]:
        gemm("bf16", "nt", *s)
    for m in (1, 8):
        for s in [(2048, 3072), (2048, 2048), (2048, 16384), (8192, 2048), (2048, 128256)]:
            chain(m, *s)
    for s in [(4096, 4096, 4104), (4096, 4104, 4096), (3000,) * 3, (2049, 2056, 4096), (2304, 2304, 4096), (1000,) * 3]:
        gemm("bf16", "nn", *s)
    for t in ("i8", "f8e4m3fn"):
        for s in square[:4] + [(2048, 4096, 14336), (4096, 768, 3072), (4096, 3072, 768), (512, 768, 768)]:
            bytes_gemm(t, *s)
    for s in [(2048,) * 3, (4096,) * 3]:
        gemm("f32", "nn", *s), gemm("tf32", "nn", *s, options=["--precision", "tf32"])
    for s in [(4096,) * 3, BIG, (8192, 4096, 1024)]:
        gemm("bf16", "nn", *s, "bias_gelu"), gemm("bf16", "nn", *s, "residual")


def chain(m, k, n):
    """So many products over weights of their own that none of these is in L2 when it is read."""
    count = max(2, (256 << 20) // (2 * k * n))

    def graph():
        ins, nodes, outs = [], [], []
        for i in range(count):
            ins += [(f"a{i}", "bf16", [m, k]), (f"b{i}", "bf16", [n, k])]
            nodes += [("Transpose", [f"b{i}"], f"t{i}", {"perm": [1, 0]}), ("MatMul", [f"a{i}", f"t{i}"], f"c{i}", {})]
            outs.append((f"c{i}", "bf16", [m, n]))
        return model(ins, nodes, outs)

    add(f"chain_bf16_{m}x{k}x{n}", graph, ("chain", m, k, n, count), flops=2 * m * n * k * count,
        bytes=2 * (m * k + k * n + m * n) * count)


def attention(d, s, causal, group=1, mask=False, batch=None):
    h = 2048 // d
    b, kv = batch or max(1, 16384 // s), h // group

    def graph():
        ins = [("q", "bf16", [b, h, s, d]), ("k", "bf16", [b, kv, s, d]), ("v", "bf16", [b, kv, s, d])]
        if mask:
            ins.append(("m", "bool", [b, 1, 1, s]))
        names = [i[0] for i in ins]
        return model(ins, [("Attention", names, "o", {"is_causal": int(causal)})], [("o", "bf16", [b, h, s, d])])

    name = f"attention_d{d}_s{s}_{'causal' if causal else 'full'}"
    name += (f"_gqa{group}" if group > 1 else "") + ("_mask" if mask else "")
    add(name, graph, ("sdpa", b, h, kv, s, d, causal, mask), flops=(2 if causal else 4) * b * h * s * s * d,
        bytes=4 * b * (h + kv) * s * d)


def attentions():
    for d in (64, 128):
        for s in (1024, 4096, 16384):
            attention(d, s, False), attention(d, s, True)
    for causal in (False, True):
        attention(128, 4096, causal, group=4), attention(64, 1000, causal, batch=16)
    attention(64, 1024, False, mask=True)


# --- Memory-bound ---------------------------------------------------------------------------------


def pointwise(tag, t, rows, cols):
    x, y, w, b = ("x", t, [rows, cols]), ("y", t, [rows, cols]), ("w", t, [cols]), ("b", t, [cols])
    out = ("o", t, [rows, cols])

    def put(name, ins, nodes, outs, times, init=lambda: ()):
        add(name + tag, lambda: model(ins, nodes, outs, init()), ("rows", name, t, rows, cols),
            bytes=times * SIZE[t] * rows * cols)

    def total(name, axis, size):
        from_f32 = lambda: [("Cast", ["x"], "t", cast_to_f32()), ("ReduceSum", ["t", "axes"], "o", {"keepdims": 0})]
        add(name + tag, lambda: model([x], from_f32(), [("o", "f32", [size])], [axes(axis)]),
            ("rows", name, t, rows, cols), bytes=SIZE[t] * rows * cols)

    if tag in ("", "_f32", "_f16"):
        put("add_relu", [x, y], [("Add", ["x", "y"], "t", {}), ("Relu", ["t"], "o", {})], [out], 3)
        put("swiglu", [x, y], [("Sigmoid", ["x"], "s", {}), ("Mul", ["x", "s"], "t", {}), ("Mul", ["t", "y"], "o", {})],
            [out], 3)
        put("bias_gelu", [x, w], [("Add", ["x", "w"], "t", {}), ("Gelu", ["t"], "o", {})], [out], 2)
        put("transpose_add", [x, ("yt", t, [cols, rows])],
            [("Transpose", ["x"], "t", {"perm": [1, 0]}), ("Add", ["t", "yt"], "o", {})], [("o", t, [cols, rows])], 3)
    put("softmax", [x], [("Softmax", ["x"], "o", {"axis": -1})], [out], 2)
    put("layernorm", [x, w, b], [("LayerNormalization", ["x", "w", "b"], "o", {"axis": -1})], [out], 2)
    put("rmsnorm_residual", [x, y, w],
        [("Add", ["x", "y"], "r", {}), ("RMSNormalization", ["r", "w"], "o", {"axis": -1})],
        [("r", t, [rows, cols]), out], 4)
    total("sum_rows", 1, rows), total("sum_cols", 0, cols)


def axes(axis):
    from onnx import TensorProto, helper
    return helper.make_tensor("axes", TensorProto.INT64, [1], [axis])


def cross_entropy(rows, cols):
    nodes = lambda: [("Cast", ["l"], "f", cast_to_f32()), ("SoftmaxCrossEntropyLoss", ["f", "t"], "o", {})]
    add(f"cross_entropy_{cols}", lambda: model([("l", "bf16", [rows, cols]), ("t", "i64", [rows])], nodes(),
                                               [("o", "f32", [])]),
        ("rows", "cross_entropy", "bf16", rows, cols), bytes=2 * rows * cols)


def cross_entropy_grad(rows, cols):
    """The loss of each row, and the gradient of their mean by the logits."""
    def graph():
        from onnx import TensorProto, helper as h
        ints = lambda name, *v: h.make_tensor(name, TensorProto.INT64, [len(v)], v)
        number = lambda name, v: h.make_tensor(name, TensorProto.INT64, [], [v])
        init = [ints("one", 1), number("first", 0), number("last", cols), number("step", 1),
                h.make_tensor("scale", TensorProto.FLOAT, [], [1 / rows])]
        nodes = [("Range", ["first", "last", "step"], "classes", {}), ("Cast", ["l"], "x", cast_to_f32()),
                 ("ReduceMax", ["x", "one"], "m", {}), ("Sub", ["x", "m"], "d", {}),
                 ("Exp", ["d"], "e", {}), ("ReduceSum", ["e", "one"], "s", {}), ("Log", ["s"], "ls", {}),
                 ("Add", ["m", "ls"], "lse", {}), ("Unsqueeze", ["t", "one"], "u", {}),
                 ("GatherElements", ["x", "u"], "g", {"axis": 1}), ("Sub", ["lse", "g"], "o2", {}),
                 ("Squeeze", ["o2", "one"], "o", {}), ("Sub", ["x", "lse"], "lp", {}), ("Exp", ["lp"], "p", {}),
                 ("Equal", ["u", "classes"], "hit", {}), ("Cast", ["hit"], "h", cast_to_f32()), ("Sub", ["p", "h"], "ph", {}),
                 ("Mul", ["ph", "scale"], "dx", {}), ("Cast", ["dx"], "dl", {"to": TensorProto.BFLOAT16})]
        return model([("l", "bf16", [rows, cols]), ("t", "i64", [rows])], nodes,
                     [("o", "f32", [rows]), ("dl", "bf16", [rows, cols])], init)

    add(f"cross_entropy_grad_{cols}", graph, ("rows", "cross_entropy_grad", "bf16", rows, cols), bytes=4 * rows * cols)


def norm_grad(kind, tag, t, rows, cols, weights=True):
    """dx, dw (and db) of a norm whose statistics are there; `weights`: it multiplies by some."""
    def graph():
        from onnx import TensorProto, helper as h
        down = {"to": {"bf16": TensorProto.BFLOAT16, "f16": TensorProto.FLOAT16, "f32": TensorProto.FLOAT}[t]}
        init = [h.make_tensor("one", TensorProto.INT64, [1], [1]), h.make_tensor("zero", TensorProto.INT64, [1], [0])]
        up = lambda a: ("Cast", [a], a + "f", cast_to_f32())
        g = "g" if weights else "dyf"
        nodes = [up("x"), up("dy")] + ([up("w"), ("Mul", ["dyf", "wf"], "g", {})] if weights else [])
        center = "xf"
        if kind == "layernorm":
            nodes, center = nodes + [("Sub", ["xf", "mean"], "c", {})], "c"
        nodes += [("Mul", [center, "rstd"], "h", {}), ("Mul", [g, "h"], "gh", {}), ("ReduceMean", ["gh", "one"], "c2", {}),
                  ("Mul", ["h", "c2"], "hc", {}), ("Sub", [g, "hc"], "k", {})]
        last = "k"
        if kind == "layernorm":
            nodes += [("ReduceMean", [g, "one"], "c1", {}), ("Sub", ["k", "c1"], "k1", {})]
            last = "k1"
        nodes += [("Mul", [last, "rstd"], "r", {}), ("Cast", ["r"], "dx", down), ("Mul", ["dyf", "h"], "wh", {}),
                  ("ReduceSum", ["wh", "zero"], "dw", {"keepdims": 0})]
        outs = [("dx", t, [rows, cols]), ("dw", "f32", [cols])]
        ins = [("x", t, [rows, cols]), ("dy", t, [rows, cols]), ("rstd", "f32", [rows, 1])] + ([("w", t, [cols])] if weights else [])
        if kind == "layernorm":
            nodes.append(("ReduceSum", ["dyf", "zero"], "db", {"keepdims": 0}))
            outs, ins = outs + [("db", "f32", [cols])], ins + [("mean", "f32", [rows, 1])]
        return model(ins, nodes, outs, init)

    add(f"{kind}_grad{tag}", graph, ("rows", f"{kind}_grad", t, rows, cols), bytes=3 * SIZE[t] * rows * cols)


def memory_bound():
    for tag, t, rows, cols in [("", "bf16", 16384, 4096), ("_768", "bf16", 65536, 768), ("_1000", "bf16", 65536, 1000),
                               ("_128", "bf16", 524288, 128), ("_50257", "bf16", 1024, 50257),
                               ("_f32", "f32", 8192, 4096), ("_f16", "f16", 16384, 4096)]:
        pointwise(tag, t, rows, cols)
        norm_grad("layernorm", tag, t, rows, cols), norm_grad("rmsnorm", tag, t, rows, cols)
    cross_entropy(4096, 128256), cross_entropy(8192, 50257)
    cross_entropy_grad(4096, 128256), cross_entropy_grad(8192, 50257)


# --- Convolutions ---------------------------------------------------------------------------------


def external(row, t, name, shape, offset):
    from onnx import TensorProto, StringStringEntryProto
    place = {"location": f"{row}.weights", "offset": str(offset), "length": str(SIZE[t] * int(np.prod(shape)))}
    t = TensorProto(name=name, data_type=TensorProto.FLOAT16 if t == "f16" else TensorProto.FLOAT, dims=shape,
                    data_location=TensorProto.EXTERNAL)
    t.external_data.extend(StringStringEntryProto(key=k, value=v) for k, v in place.items())
    return t


def conv(tag, b, c, o, k, stride, size, group=1, residual=False, t="f16"):
    s, z, kind = "f16" if t == "f16" else "f32", SIZE[t], tag if t == "f16" else t
    p = (size + 2 * (k // 2) - k) // stride + 1
    name = f"conv_{kind}_b{b}_{c}_{o}_k{k}s{stride}_{size}" + ("_residual" if residual else "")
    weights = (("w", (o, c // group, k, k)), ("b", (o,)))

    def graph():
        ins = [("x", s, [b, size, size, c])]
        nodes = [("Transpose", ["x"], "xc", {"perm": [0, 3, 1, 2]}),
                 ("Conv", ["xc", "w", "b"], "c", {"kernel_shape": [k, k], "strides": [stride] * 2, "group": group,
                                                  "pads": [k // 2] * 4})]
        last = "c"
        if residual:
            ins.append(("r", s, [b, p, p, o]))
            nodes += [("Transpose", ["r"], "rc", {"perm": [0, 3, 1, 2]}), ("Add", ["c", "rc"], "sum", {})]
            last = "sum"
        nodes += [("Relu", [last], "u", {}), ("Transpose", ["u"], "o", {"perm": [0, 2, 3, 1]})]
        init = [external(name, s, "w", weights[0][1], 0), external(name, s, "b", weights[1][1], align(weights[0][1], z))]
        return model(ins, nodes, [("o", s, [b, p, p, o])], init)

    per = c // group * k * k
    add(name, graph, ("conv", b, c, o, k, stride, size, group, residual, t), flops=2 * b * p * p * o * per,
        bytes=z * (b * size * size * c + b * p * p * o * (2 if residual else 1) + o * per), weights=weights,
        options=["--precision", t] if t == "tf32" else ())


def align(shape, size):
    return (size * int(np.prod(shape)) + 63) // 64 * 64


def convolutions():
    for b in (1, 32):
        for s in RESNET:
            conv("dense", b, *s)
        for s in [(64, 256, 1, 1, 56), (256, 1024, 1, 1, 14)]:
            conv("dense", b, *s, residual=True)
        for c, size in [(96, 56), (192, 28), (384, 14), (768, 7)]:
            conv("depthwise", b, c, c, 7, 1, size, group=c)
        for c, size in [(16, 112), (240, 28), (960, 7)]:
            conv("depthwise", b, c, c, 3, 1, size, group=c)
        conv("grouped", b, 128, 128, 3, 1, 56, group=32)
        for t in ("f32", "tf32"):
            for s in RESNET[:5] + RESNET[9:11] + RESNET[13:14] + RESNET[16:17] + RESNET[21:]:
                conv("dense", b, *s, t=t)


# --- Models ---------------------------------------------------------------------------------------


def models():
    def put(name, graph, precision, fixed=(), **dims):
        options = [x for d in fixed for x in ("--dim", f"{d}={dims[d]}")]
        add(name, None, ("model", name), model=graph, dims=dims, options=("--precision", precision, *options))

    for b in (1, 32):
        put(f"resnet50_b{b}", "resnet50", "f16", batch=b)
        put(f"bert_b{b}", "bert_base", "f16", batch=b, seq=128)
    put("vitb16_b32", "vit_b_16", "f16", batch=32)
    put("convnext_t_b32", "convnext_tiny", "f16", batch=32)
    put("gpt2_b8", "gpt2", "bf16", batch=8, seq=1024)
    put("llama1b_prefill2048", "llama_1b_bf16", "bf16", batch=1, seq=2048)
    put("llama1b_decode_b1", "llama_1b_bf16_kv", "bf16", ("batch", "seq"), batch=1, seq=1, past=2047, total=2048)


# --- Use ------------------------------------------------------------------------------------------


def write_weights(row, folder):
    """The row's external data; the same bytes every time."""
    if not row.weights:
        return
    with open(os.path.join(folder, row.name + ".weights"), "wb") as f:
        for name, shape in row.weights:
            rng = np.random.Generator(np.random.PCG64(zlib.crc32(f"{row.name}.{name}".encode())))
            fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
            kept = np.float16 if row.peer[-1] == "f16" else np.float32
            f.write((rng.standard_normal(shape, dtype=np.float32) / np.sqrt(fan)).astype(kept).tobytes())
            f.write(b"\0" * (-f.tell() % 64))


def pick(patterns):
    return [r for k, r in ROWS.items() if not patterns or any(fnmatch.fnmatch(k, p) for p in patterns)]


gemms(), attentions(), memory_bound(), convolutions(), models()
