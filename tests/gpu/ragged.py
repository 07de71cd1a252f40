"""Each of the GPU's templates at ragged sizes: results beside the CPU's, and nothing that compute-sanitizer reports.

    ragged.py plans GRAPHC FOLDER [PATTERN...]      compiles for both targets; needs onnx, no GPU
    ragged.py run PLAN_COMPARE FOLDER [PATTERN...] [--tool memcheck,racecheck,synccheck] [--jobs 8] [--budget S] [--each S]
    ragged.py test GRAPHC PLAN_COMPARE              both, with every tool that there is

`plans` may run on another machine than `run`, which needs the folder, plan_compare and CUDA's compute-sanitizer alone.
Without --tool results are compared and nothing else. A process takes a few plans, --each seconds at most. What has not
ended by then, or within --budget seconds of all, is named and no failure, unless nothing has: racecheck takes a thousand
times of what a kernel takes.
"""
import argparse, collections, concurrent.futures, fnmatch, json, os, re, shutil, signal, subprocess, sys, tempfile, time

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(here, "..", "bench"))

NEAR = {"f32": 1e-4, "tf32": 2e-2, "f16": 1e-2, "bf16": 6e-2, "i8": 0, "f8e4m3fn": 6e-2}  # of the results' deviation
TOOLS = ["memcheck", "racecheck", "synccheck"]
STAY = set()  # of rows: whose blocks stay, which sum columns beside (fusion/schedule/columns.c)
BATCH = 8   # plans of a process
FOUND = 42  # what compute-sanitizer leaves with when it reports something


def products(rows):
    for t, layout, m, k, n, epilogue in [
            ("bf16", "nn", 300, 328, 1040, "bias_gelu"), ("bf16", "nn", 193, 520, 264, "residual"), ("bf16", "nn", 1500, 384, 1536, "bias_gelu"),
            ("f16", "nn", 193, 520, 256, "bias_gelu"), ("bf16", "nn", 1500, 1536, 384, "residual"), ("bf16", "nt", 65, 136, 160, ""),
            ("f16", "nt", 257, 200, 520, ""), ("f16", "nn", 130, 130, 131, ""), ("bf16", "nt", 1, 520, 1040, ""),
            ("bf16", "nt", 8, 1032, 520, ""), ("bf16", "nt", 33, 512, 776, ""), ("bf16", "nt", 4500, 64, 48, ""),
            ("bf16", "nn", 64, 4096, 136, ""), ("bf16", "nn", 3, 2048, 100, "bias_gelu"), ("f32", "nn", 200, 520, 264, ""),
            ("f32", "nt", 100, 2000, 72, ""), ("f32", "nn", 1, 700, 300, ""), ("f32", "nn", 33, 100, 70, "residual")]:
        rows.gemm(t, layout, m, k, n, epilogue)
    for layout, m, k, n in [("nn", 60, 1024, 1040), ("nn", 20, 2000, 516), ("tn", 64, 700, 300), ("tn", 20, 1000, 516), ("tt", 132, 300, 140)]:
        turned_f32(rows, layout, m, k, n)
    rows.gemm("tf32", "nn", 200, 520, 264, options=["--precision", "tf32"])
    rows.gemm("tf32", "nt", 1000, 136, 72, options=["--precision", "tf32"])
    for t in ("i8", "f8e4m3fn"):
        rows.bytes_gemm(t, 333, 336, 1040), rows.bytes_gemm(t, 65, 96, 160)


def turned_f32(rows, layout, m, k, n):
    """Products of f32 whose operands lie along the sum or across it."""
    left, right = layout[0] == "t", layout[1] == "t"
    ins = [("a", "f32", [k, m] if left else [m, k]), ("b", "f32", [n, k] if right else [k, n])]
    nodes = [("Transpose", [x], x + "t", {"perm": [1, 0]}) for x, turned in (("a", left), ("b", right)) if turned]
    nodes.append(("MatMul", ["at" if left else "a", "bt" if right else "b"], "c", {}))
    rows.add(f"gemm_f32_{layout}_{m}x{k}x{n}_turned", lambda: rows.model(ins, nodes, [("c", "f32", [m, n])]), ("rows", "f32"))


def two_results(rows):
    """Products with two results of f32, which threads store, beside values that threads read at their places: as a weight's
    gradient with a step of its optimizer. Rows are an odd number of tiles, where blocks may take two at a time."""
    for t, layout, m, k, n in [("bf16", "nt", 576, 1000, 512), ("f16", "nt", 1344, 1000, 192), ("bf16", "nt", 2944, 1000, 192), ("bf16", "nt", 2944, 1000, 512),
                               ("bf16", "tn", 1408, 384, 8), ("f16", "tn", 2944, 384, 8), ("bf16", "tn", 1400, 384, 24), ("bf16", "nt", 1408, 4104, 2048)]:
        left, right = layout[0] == "t", layout[1] == "t"
        ins = [("a", t, [k, m] if left else [m, k]), ("b", t, [n, k] if right else [k, n]), ("w", "f32", [m, n])]
        nodes = [("Transpose", [x], x + "t", {"perm": [1, 0]}) for x, turned in (("a", left), ("b", right)) if turned]
        nodes += [("MatMul", ["at" if left else "a", "bt" if right else "b"], "d", {}), ("Cast", ["d"], "c", {"to": 1}),
                  ("Add", ["c", "w"], "o", {}), ("Sub", ["c", "w"], "s", {})]
        rows.add(f"two_results_{t}_{layout}_{m}x{k}x{n}", lambda ins=ins, nodes=nodes, m=m, n=n: rows.model(
            ins, nodes, [("o", "f32", [m, n]), ("s", "f32", [m, n])]), ("rows", t))


def gathered(rows):
    """Products beside what is read at places that the kernel reads, too: by batch, by rows."""
    for t in ("f16", "bf16"):
        for name, table, at in [("batch", [97, 200, 136], [3]), ("rows", [97, 136], [200])]:
            ins = [("a", t, [3, 200, 72]), ("b", t, [3, 72, 136]), ("table", t, table), ("at", "i64", at)]
            nodes = [("MatMul", ["a", "b"], "c", {}), ("Gather", ["table", "at"], "g", {}), ("Add", ["c", "g"], "o", {})]
            rows.add(f"gathered_{name}_{t}", lambda ins=ins, nodes=nodes, t=t: rows.model(ins, nodes, [("o", t, [3, 200, 136])]), ("rows", t))


def told_apart(rows):
    """Products that the last dimension of their operands tells apart, and one whose left operand is padded."""
    for t in ("f16", "bf16"):
        for i, k, j, c in [(72, 80, 56, 48), (33, 70, 20, 24), (9, 7, 5, 3)]:
            ins = [("z", t, [i, k, 32]), ("w", t, [32, c]), ("b", t, [j, k, c])]
            nodes = [("MatMul", ["z", "w"], "a", {}), ("Sigmoid", ["b"], "s", {}), ("Einsum", ["a", "s"], "o", {"equation": "ikc,jkc->ijc"})]
            rows.add(f"told_apart_{t}_{i}x{k}x{j}x{c}", lambda ins=ins, nodes=nodes, t=t, i=i, j=j, c=c: rows.model(ins, nodes, [("o", t, [i, j, c])]), ("rows", t))
        ins = [("v", t, [3, 16, 200]), ("k", t, [3, 200, 24])]
        nodes = [("Constant", [], "pads", {"value_ints": [0, 0, 0, 0, 1, 0]}), ("Pad", ["v", "pads"], "p", {}), ("MatMul", ["p", "k"], "o", {})]
        rows.add(f"padded_{t}", lambda ins=ins, nodes=nodes, t=t: rows.model(ins, nodes, [("o", t, [3, 17, 24])]), ("rows", t))


def mixed_heads(rows):
    """Attention whose heads are mixed by small matrices in front of the softmax and behind it: one kernel takes both products and the softmax."""
    for t, b, heads, queries, keys, d in [("f16", 2, 8, 131, 197, 32), ("bf16", 3, 6, 90, 200, 64), ("f32", 2, 4, 100, 173, 48), ("f16", 1, 4, 40, 1500, 24)]:
        shape = [b, heads, queries, d]
        ins = [("q", t, shape), ("k", t, [b, heads, keys, d]), ("v", t, [b, heads, keys, d])]
        nodes = [("Transpose", ["k"], "kt", {"perm": [0, 1, 3, 2]}), ("MatMul", ["q", "kt"], "s", {}), ("Constant", [], "square", {"value_ints": [heads, heads]})]
        for i, to in ((1, "s"), (2, "p")):
            numbers = [((7 * n + i) % 11 - 5) / 8 for n in range(heads * heads)]
            nodes += [("Constant", [], f"n{i}", {"value_floats": numbers}), ("Reshape", [f"n{i}", "square"], f"r{i}", {}), ("CastLike", [f"r{i}", "q"], f"w{i}", {}),
                      ("Einsum", [to, f"w{i}"], f"m{i}", {"equation": "bhij,hg->bgij"})]
            nodes += [("Softmax", ["m1"], "p", {"axis": -1})] if i == 1 else [("MatMul", ["m2", "v"], "o", {})]
        rows.add(f"mixed_heads_{t}_{b}_{heads}_{queries}x{keys}x{d}", lambda ins=ins, nodes=nodes, t=t, shape=shape: rows.model(ins, nodes, [("o", t, shape)]), ("sdpa", t))


def attentions(rows):
    for d, s, causal, rest in [(64, 333, True, dict(group=4)), (64, 197, False, {}), (128, 200, True, {}), (64, 130, False, dict(mask=True)),
                               (128, 77, False, dict(group=8))]:
        rows.attention(d, s, causal, batch=1, **rest)
    for t, heads, kv, queries, keys, d in [("bf16", 8, 2, 1, 333, 64), ("f16", 4, 4, 3, 70, 128), ("f32", 2, 2, 70, 70, 64),
                                           ("f32", 2, 1, 1, 300, 128), ("bf16", 2, 2, 40, 40, 256), ("f32", 2, 2, 33, 90, 20)]:
        def graph(t=t, heads=heads, kv=kv, queries=queries, keys=keys, d=d):
            ins = [("q", t, [2, heads, queries, d]), ("k", t, [2, kv, keys, d]), ("v", t, [2, kv, keys, d])]
            return rows.model(ins, [("Attention", ["q", "k", "v"], "o", {})], [("o", t, [2, heads, queries, d])])
        rows.add(f"attention_{t}_{heads}_{kv}_{queries}x{keys}x{d}", graph, ("sdpa", t))
    for t, heads, kv, queries, keys, d, causal in [("f32", 2, 2, 70, 90, 64, 0), ("f32", 2, 1, 133, 133, 96, 1), ("f32", 1, 1, 65, 200, 300, 0),
                                                   ("bf16", 2, 2, 133, 133, 64, 1), ("f16", 2, 1, 70, 90, 192, 0)]:
        def gated(t=t, heads=heads, kv=kv, queries=queries, keys=keys, d=d, causal=causal):
            shape = [2, heads, queries, d]
            ins = [("q", t, shape), ("k", t, [2, kv, keys, d]), ("v", t, [2, kv, keys, d]), ("g", t, shape)]
            nodes = [("Attention", ["q", "k", "v"], "o", {"is_causal": causal}), ("Mul", ["o", "g"], "y", {})]
            return rows.model(ins, nodes, [("o", t, shape), ("y", t, shape)])
        rows.add(f"attention_gated_{t}_{heads}_{kv}_{queries}x{keys}x{d}", gated, ("sdpa", t))


def convolutions(rows):
    for t in ("f16", "f32", "tf32"):
        for tag, b, c, o, k, stride, size, rest in [
                ("dense", 2, 3, 64, 7, 2, 37, {}), ("dense", 3, 64, 64, 3, 1, 13, {}), ("dense", 2, 64, 72, 1, 2, 15, {}),
                ("dense", 1, 64, 136, 1, 1, 9, dict(residual=True)), ("dense", 1, 256, 64, 3, 1, 7, {}), ("dense", 2, 24, 40, 5, 1, 11, {}),
                ("dense", 2, 64, 1, 3, 1, 21, {})]:
            rows.conv(tag, b, c, o, k, stride, size, t=t, **rest)
    for c, k, stride, size in [(24, 7, 1, 15), (40, 3, 2, 29), (96, 3, 1, 7)]:
        rows.conv("depthwise", 2, c, c, k, stride, size, group=c)
    rows.conv("grouped", 2, 64, 64, 3, 1, 14, group=8), rows.conv("grouped", 1, 48, 48, 3, 1, 9, group=2)


def masked_softmax(rows, t, b, h, q, k):
    """Rows of several axes, what is added is the same for those of one."""
    ins = [("x", t, [b, h, q, k]), ("m", t, [b, 1, 1, k])]
    nodes = [("Add", ["x", "m"], "s", {}), ("Softmax", ["s"], "o", {"axis": -1})]
    rows.add(f"masked_softmax_{t}_{b}_{h}_{q}x{k}", lambda: rows.model(ins, nodes, [("o", t, [b, h, q, k])]), ("rows", t))


def long_rows(rows):
    for t in ("bf16", "f16", "f32"):
        for n, cols in [(133, 40), (37, 128), (70, 1000), (19, 4099), (5, 16392), (3, 50257), (140, 12001)]:
            rows.pointwise(f"_{t}_{n}x{cols}", t, n, cols)
        for n, cols in [(700, 4096), (2201, 1000), (1001, 3000), (901, 2500)] if t == "f32" else []:
            rows.pointwise(f"_{t}_{n}x{cols}", t, n, cols)
        for n, cols in [(8461, 333), (8464, 250), (8450, 513), (4307, 1004), (2203, 2047), (9001, 49), (2213, 1502)]:
            rows.pointwise(f"_{t}_{n}x{cols}", t, n, cols)
        masked_softmax(rows, t, 3, 5, 599, 197), masked_softmax(rows, t, 2, 8, 600, 334)
        for n, cols in [(70, 264), (133, 1000), (19, 4096), (9, 8200)]:
            rows.norm_grad("layernorm", f"_{t}_{n}x{cols}", t, n, cols), rows.norm_grad("rmsnorm", f"_{t}_{n}x{cols}", t, n, cols)
    for t, n, cols in [("bf16", 2119, 128), ("bf16", 2117, 1000), ("bf16", 2113, 2048), ("f32", 2115, 1024), ("bf16", 2114, 4096),
                       ("f16", 2116, 8192), ("bf16", 1061, 12288), ("bf16", 1063, 16384), ("bf16", 2119, 9216),
                       ("bf16", 2120, 320), ("f16", 2123, 1280), ("f32", 2117, 160), ("bf16", 2113, 1600), ("bf16", 2118, 832),
                       ("bf16", 2117, 72), ("f16", 2121, 80), ("bf16", 2123, 96), ("bf16", 2119, 104), ("f16", 2117, 144), ("bf16", 2119, 152), ("f32", 2121, 136), ("bf16", 2123, 200), ("f16", 2125, 392), ("bf16", 2119, 824), ("bf16", 2113, 1032), ("f16", 2121, 1544), ("bf16", 2117, 1784), ("bf16", 2115, 3080), ("bf16", 2121, 88), ("bf16", 2123, 6152), ("f16", 2121, 8200), ("bf16", 1059, 12304), ("f32", 2117, 5128), ("f32", 2125, 272), ("bf16", 2119, 520), ("f16", 2121, 1040), ("bf16", 2131, 1328), ("bf16", 2115, 2600),
                       ("bf16", 2117, 5120), ("f16", 2119, 6656), ("bf16", 2113, 7680), ("bf16", 2115, 10240), ("bf16", 1067, 11264),
                       ("bf16", 272, 50257), ("bf16", 264, 50257), ("bf16", 248, 50258), ("f16", 244, 50260), ("f16", 304, 33001),
                       ("f32", 256, 25003), ("bf16", 289, 40032), ("bf16", 1061, 18432), ("bf16", 1058, 20480), ("f16", 629, 24576),
                       ("f32", 1059, 10240), ("f32", 1061, 10248), ("bf16", 496, 18441), ("bf16", 4264, 333), ("f16", 4248, 411), ("bf16", 2120, 701), ("bf16", 2120, 1001),
                       ("bf16", 2124, 1002), ("f32", 2136, 333), ("bf16", 2114, 2500), ("bf16", 2144, 3001), ("f16", 2128, 4099), ("f16", 1072, 8191), ("bf16", 1064, 12001),
                       ("f32", 2128, 1501), ("f32", 1064, 6001), ("bf16", 2117, 333), ("bf16", 2123, 65), ("f16", 2119, 100), ("bf16", 2121, 129), ("f32", 2117, 67),
                       ("bf16", 2113, 300), ("bf16", 2119, 2047), ("f16", 2115, 4100), ("bf16", 2113, 1500), ("bf16", 2121, 515), ("bf16", 2126, 1501), ("f32", 2113, 1001),
                       ("f32", 2115, 4099), ("bf16", 2118, 1002), ("f16", 2115, 3001),
                       ("bf16", 2117, 5001), ("f16", 2115, 6001), ("bf16", 1061, 12296), ("f16", 1063, 16376), ("bf16", 1059, 18440), ("f16", 627, 22536), ("bf16", 629, 24568), ("bf16", 629, 25352),
                       ("bf16", 2121, 5128), ("f16", 2117, 5640), ("bf16", 2115, 6920), ("bf16", 2119, 7688), ("bf16", 1063, 11272), ("f16", 1059, 13320),
                       ("bf16", 1061, 14344), ("bf16", 1059, 16904), ("f16", 1061, 17672), ("bf16", 1063, 20488), ("f16", 629, 24584),
                       ("bf16", 2117, 7001), ("bf16", 2119, 8191), ("bf16", 2117, 90), ("f16", 2115, 101), ("bf16", 2119, 127), ("bf16", 2115, 161), ("bf16", 2121, 250), ("f16", 2119, 1602),
                       ("bf16", 2119, 68), ("bf16", 2115, 75), ("f16", 2121, 83), ("f16", 2119, 143), ("bf16", 2117, 151)]:
        for kind in ("layernorm", "rmsnorm"):
            rows.norm_grad(kind, f"_{t}_{n}x{cols}", t, n, cols)
            STAY.add(f"{kind}_grad_{t}_{n}x{cols}")
    for kind in ("layernorm", "rmsnorm"):
        rows.norm_grad(kind, "_no_weights_bf16_272x50257", "bf16", 272, 50257, weights=False)
        STAY.add(f"{kind}_grad_no_weights_bf16_272x50257")
    for n, cols in [(37, 5003), (3, 50257)]:
        rows.cross_entropy(n, cols), rows.cross_entropy_grad(n, cols)


def folds_behind_folds(rows):
    """Rows whose second fold is made of the first, and a sum of columns."""
    scale = lambda cols: [number("n", 1 / cols), ints("one", [1], 1), ints("zero", [1], 0)]
    up = {"to": 1}
    for t, n, cols in [("bf16", 2117, 768), ("bf16", 2113, 640), ("f32", 2115, 384), ("bf16", 2117, 1024)]:
        down = {"to": {"bf16": 16, "f32": 1}[t]}
        nodes = [("Cast", ["x"], "a", up), ("Cast", ["y"], "b", up), ("Mul", ["a", "b"], "ab", {}), ("ReduceSum", ["ab", "one"], "s", {}),
                 ("Mul", ["s", "n"], "c", {}), ("Mul", ["a", "c"], "d", {}), ("Sub", ["b", "d"], "g", {}), ("ReduceSum", ["g", "one"], "m", {}),
                 ("Mul", ["m", "n"], "k", {}), ("Sub", ["g", "k"], "h", {}), ("Cast", ["h"], "o", down), ("ReduceSum", ["ab", "zero"], "w", {"keepdims": 0})]
        rows.add(f"follow_grad_{t}_{n}x{cols}", lambda t=t, n=n, cols=cols, nodes=nodes: rows.model(
            [("x", t, [n, cols]), ("y", t, [n, cols])], nodes, [("o", t, [n, cols]), ("w", "f32", [cols])], scale(cols)), ("rows", t))


def few_rows(rows):
    """Rows so few and long that blocks take parts of them."""
    for t in ("f32", "f16", "bf16"):
        x, w, b, y = ("x", t, [2, 6, 81, 643]), ("w", t, [6]), ("b", t, [6]), ("x", t, [3, 250007])
        rows.add(f"few_groupnorm_{t}", lambda x=x, w=w, b=b, t=t: rows.model(
            [x, w, b], [("GroupNormalization", ["x", "w", "b"], "o", {"num_groups": 1})], [("o", t, x[2])]), ("rows", t))
        w, b = ("w", t, [250007]), ("b", t, [250007])
        rows.add(f"few_layernorm_{t}", lambda y=y, w=w, b=b, t=t: rows.model(
            [y, w, b], [("LayerNormalization", ["x", "w", "b"], "o", {"axis": -1})], [("o", t, y[2])]), ("rows", t))
        if t == "f32":  # its results are in steps larger than those of 16 bits may differ by
            rows.add(f"few_logsoftmax_{t}", lambda y=y, t=t: rows.model(
                [y], [("LogSoftmax", ["x"], "o", {"axis": -1})], [("o", t, y[2])]), ("rows", t))
        best = [("Abs", ["x"], "a", {}), ("ReduceMax", ["a"], "m", {}), ("Div", ["x", "m"], "o", {})]
        rows.add(f"few_divided_{t}", lambda y=y, t=t, best=best: rows.model([y], best, [("o", t, y[2])]), ("rows", t))


def bytes_in_rows(rows):
    """Sums of long rows of 8 bits that begin at any element; squares make what is left out seen."""
    for t, n, cols in [("u8", 560, 2051), ("u8", 530, 5003), ("i8", 601, 3333)]:
        nodes = [("Cast", ["x"], "f", {"to": 1}), ("ReduceSum", ["f", "axis"], "s", {"keepdims": 0}),
                 ("Mul", ["f", "f"], "q", {}), ("ReduceMax", ["q", "axis"], "m", {"keepdims": 0})]
        rows.add(f"bytes_rows_{t}_{n}x{cols}", lambda t=t, n=n, cols=cols, nodes=nodes: rows.model(
            [("x", t, [n, cols])], nodes, [("s", "f32", [n]), ("m", "f32", [n])], [ints("axis", [1], 1)]), ("rows", "f32"))


def folds_of_columns(rows):
    """Five folds of each column, of rows that begin at any element: together they need shared memory."""
    for n, cols in [(100, 1001), (333, 515)]:
        nodes = [("Mul", ["x", "x"], "q", {})]
        nodes += [(op, [v, "axis"], o, {"keepdims": 0}) for op, v, o in [("ReduceSum", "x", "a"), ("ReduceMax", "x", "b"), ("ReduceMin", "x", "c"),
                                                                        ("ReduceSum", "q", "d"), ("ReduceMax", "q", "e")]]
        nodes += [("Sum", list("abcde"), "o", {})]
        rows.add(f"columns_f32_{n}x{cols}_five", lambda n=n, cols=cols, nodes=nodes: rows.model(
            [("x", "f32", [n, cols])], nodes, [("o", "f32", [cols])], [ints("axis", [1], 0)]), ("rows", "f32"))


def claimed(rows):
    """Rows that clusters of blocks share and claim, in more turns than are dealt out."""
    for t, n, cols in [("bf16", 283, 120001), ("bf16", 283, 120008), ("f32", 301, 60000), ("bf16", 151, 200001)]:
        x, o = ("x", t, [n, cols]), ("o", t, [n, cols])
        rows.add(f"claimed_{t}_{n}x{cols}", lambda x=x, o=o: rows.model([x], [("Softmax", ["x"], "o", {"axis": -1})], [o]), ("rows", t))


def pieces(rows):
    """Groups of channels that lie beside each other: rows in short pieces."""
    for t in ("f32", "f16", "bf16"):
        for b, h, w, c, groups in [(1, 61, 67, 96, 32), (3, 33, 65, 320, 32), (2, 75, 73, 51, 17), (5, 40, 40, 64, 2)]:
            ins = [("x", t, [b, h, w, c]), ("w", t, [c]), ("b", t, [c])]
            nodes = [("Transpose", ["x"], "n", {"perm": [0, 3, 1, 2]}),
                     ("GroupNormalization", ["n", "w", "b"], "g", {"num_groups": groups}), ("Sigmoid", ["g"], "s", {}), ("Mul", ["g", "s"], "m", {}),
                     ("Transpose", ["m"], "o", {"perm": [0, 2, 3, 1]})]
            rows.add(f"pieces_{t}_{b}x{h}x{w}x{c}_{groups}", lambda ins=ins, nodes=nodes, t=t: rows.model(ins, nodes, [("o", t, ins[0][2])]), ("rows", t))


def turns(rows):
    """Loops that are one kernel: of points, and of rows that are summed in every iteration, along the last axis and across it."""
    from onnx import helper as h
    types = {"f32": 1, "f16": 10, "bf16": 16}
    for t, steps, state, axis in [("f16", 137, [3, 70], None), ("f32", 103, [5, 33], None), ("f16", 141, [2, 30, 100], 2), ("bf16", 129, [3, 50, 12], 2),
                                  ("f32", 120, [1, 9, 256], 2), ("f32", 129, [2, 40, 24], 1), ("f16", 200, [3, 64, 50], 1)]:
        def graph(t=t, steps=steps, state=state, axis=axis):
            value = lambda name, shape: h.make_tensor_value_info(name, types[t], shape)
            row = state[:axis] + state[axis + 1:] if axis else state
            end = h.make_node("ReduceSum", ["hc", "axis"], ["y"], keepdims=0) if axis else h.make_node("Tanh", ["hc"], ["y"])
            made = [h.make_node(op, i, [o]) for op, i, o in [("Sigmoid", ["a"], "s"), ("Mul", ["h", "s"], "hs"), ("Add", ["hs", "b"], "hn"), ("Mul", ["hn", "c"], "hc")]]
            body = h.make_graph(made + [end], "step", [value(n, state) for n in "habc"], [value("hn", state), value("y", row)], [ints("axis", [1], axis or 0)])
            scan = h.make_node("Scan", ["h0", "a", "b", "c"], ["last", "o"], body=body, num_scan_inputs=3)
            outer = h.make_graph([scan], "row", [value("h0", state), *(value(n, [steps] + state) for n in "abc")], [value("last", state), value("o", [steps] + row)])
            return h.make_model(outer, opset_imports=[h.make_opsetid("", 23)], ir_version=10)
        rows.add(f"turns_{t}_{steps}x" + "x".join(map(str, state)) + (f"_{axis}" if axis else ""), graph, ("rows", t))


def points(rows):
    for t in ("f32", "f16", "bf16"):
        n, m = 130, 77
        x, y, w = ("x", t, [n, m]), ("y", t, [n, m]), ("w", t, [m])
        out = ("o", t, [n, m])
        put = lambda name, ins, nodes, outs, init=lambda: (): rows.add(
            f"{name}_{t}", lambda: rows.model(ins, nodes, outs, init()), ("rows", t))
        put("add_relu", [x, y], [("Add", ["x", "y"], "t", {}), ("Relu", ["t"], "o", {})], [out])
        put("bias_gelu", [x, w], [("Add", ["x", "w"], "t", {}), ("Gelu", ["t"], "o", {})], [out])
        put("transpose_add", [x, ("z", t, [m, n])], [("Transpose", ["x"], "t", {"perm": [1, 0]}), ("Add", ["t", "z"], "o", {})],
            [("o", t, [m, n])])
        put("cumsum", [x], [("CumSum", ["x", "axis"], "o", {})], [out], lambda: [ints("axis", [], 1)])
        put("topk", [x], [("TopK", ["x", "k"], "o", {})], [("o", t, [n, 5])], lambda: [ints("k", [1], 5)])
        put("argmax", [("x", t, [3, 9001])], [("ArgMax", ["x"], "o", {"axis": 1, "keepdims": 0})], [("o", "i64", [3])])
        put("gather", [("x", t, [97, m]), ("at", "i64", [n])], [("Gather", ["x", "at"], "o", {})], [out])
        put("scatter", [("x", t, [97, m]), ("at", "i64", [n, 1]), y], [("ScatterND", ["x", "at", "y"], "o", {"reduction": "add"})],
            [("o", t, [97, m])])
        put("pool", [("x", t, [2, 13, 17, 19])], [("MaxPool", ["x"], "o", {"kernel_shape": [3, 3], "strides": [2, 2]})],
            [("o", t, [2, 13, 8, 9])])


def shuffled(rows):
    """Pixels, or channels, that are shuffled where channels come to stand in front or behind."""
    for t in ("f16", "f32"):
        for b, hh, w, k, c in [(2, 9, 21, 2, 40), (1, 7, 13, 3, 70), (3, 5, 16, 4, 36)]:
            nodes = [("Transpose", ["x"], "t", {"perm": [0, 5, 1, 3, 2, 4]}), ("Reshape", ["t", "to"], "r", {}), ("Cast", ["r"], "o", {"to": 1})]
            to = [b, c, hh * k, w * k]
            rows.add(f"shuffled_pixels_{t}_{b}x{hh}x{w}x{k}x{c}", lambda t=t, s=[b, hh, w, k, k, c], to=to, nodes=nodes: rows.model(
                [("x", t, s)], nodes, [("o", "f32", to)], [ints("to", [4], *to)]), ("rows", t))
        for b, groups, c, pixels in [(2, 2, 29, 196), (3, 3, 20, 77), (1, 4, 16, 1001)]:
            nodes = [("Reshape", ["x", "apart"], "a", {}), ("Transpose", ["a"], "t", {"perm": [0, 3, 2, 1]}), ("Reshape", ["t", "to"], "r", {}), ("Add", ["r", "y"], "o", {})]
            to = [b, pixels, groups * c]
            rows.add(f"shuffled_channels_{t}_{b}x{groups}x{c}x{pixels}", lambda t=t, s=[b, groups * c, pixels], to=to, nodes=nodes, apart=[b, groups, c, pixels]: rows.model(
                [("x", t, s), ("y", t, to)], nodes, [("o", t, to)], [ints("apart", [4], *apart), ints("to", [3], *to)]), ("rows", t))


def number(name, value):
    from onnx import TensorProto, helper
    return helper.make_tensor(name, TensorProto.FLOAT, [], [value])


def ints(name, dims, *values):
    from onnx import TensorProto, helper
    return helper.make_tensor(name, TensorProto.INT64, dims, values)


def all_rows():
    import gpu_rows as rows
    rows.ROWS.clear()
    for part in (products, two_results, gathered, told_apart, mixed_heads, attentions, convolutions, long_rows, folds_behind_folds, few_rows, bytes_in_rows, folds_of_columns, claimed, pieces, turns, shuffled, points):
        part(rows)
    return rows.ROWS


def kind_of(row):
    return next(t for t in (*row.peer, "bf16") if t in NEAR)


def compile_one(a, row):
    import onnx, gpu_rows
    path = f"{a.folder}/{row.name}.onnx"
    gpu_rows.write_weights(row, a.folder)
    onnx.save(row.graph(), path)
    p = subprocess.run([a.graphc, path, "-o", f"{a.folder}/{row.name}.plan", "--target", "cpu,sm_90a", "--embed", *row.options],
                       capture_output=True, text=True)
    for f in (path, f"{a.folder}/{row.name}.weights"):
        if os.path.exists(f):
            os.remove(f)
    if p.returncode:
        print(f"{row.name}: {p.stderr.strip()[-300:]}", flush=True)
        return False
    if row.name in STAY and not sums_beside(f"{a.folder}/{row.name}.plan"):
        print(f"{row.name}: columns are summed by a kernel of their own", flush=True)
        return False
    return True


def sums_beside(plan):
    """One of the plan's kernels is made by fusion/schedule/columns.c: rows are enough for its blocks."""
    with open(plan, "rb") as f:
        return b"_columns\0" in f.read()


def plans(a, rows=None, compiles=compile_one):
    """Of those rows, all of this file's if there are none."""
    os.makedirs(a.folder, exist_ok=True)
    todo = [r for k, r in (rows or all_rows()).items() if wanted(a, k)]
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        made = list(pool.map(lambda r: compiles(a, r), todo))
    with open(f"{a.folder}/near.json", "w") as f:
        json.dump({r.name: NEAR[kind_of(r)] for r, ok in zip(todo, made) if ok}, f)
    print(f"{sum(made)} of {len(todo)} compiled")
    return 0 if all(made) else 1


def wanted(a, name):
    return not a.patterns or any(fnmatch.fnmatch(name, p) for p in a.patterns)


def output_of(command, seconds):
    """(what it printed, its exit status or None where it was stopped)"""
    # the CPU's side takes one thread: many of these run at once
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                         env={**os.environ, "GRAPHC_THREADS": "1"})
    try:
        return p.communicate(timeout=max(seconds, 0))[0], p.returncode
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        return p.communicate()[0], None


def parts(folder, names, text):
    """name -> the lines about it"""
    found, at = {}, []
    for line in text.splitlines():
        name = line.removeprefix(f"{folder}/").removesuffix(".plan")
        if name in names and line == f"{folder}/{name}.plan":
            at = found[name] = []
        at.append(line)
    return found


def verdict(lines, status):
    """ok, late, no GPU, or what is wrong"""
    if any(re.match(r"=+ (?!(ERROR|RACECHECK) SUMMARY|COMPUTE|Target)\S", l) for l in lines):
        return "reported"
    said = [l.split()[1] for l in lines if l.startswith("  status ")]
    if said:
        return {"0": "ok", "77": "no GPU"}.get(said[0], f"exit {said[0]}")
    return "late" if status is None or not lines else f"exit {status}"


def batch(a, tool, some):
    """What came of these plans, in one process: name -> (verdict, lines)."""
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(FOUND)] if tool else []
    command += [a.plan_compare, "--runs", "0" if tool else "2"]
    for name, near in some.items():
        command += ["--tolerance", str(near), f"{a.folder}/{name}.plan"]
        command += [f"rows_{n}={n}" for n in re.findall(r"_open(\d+)", name)]  # sizes are said in the symbol (random_models.py)
    text, status = output_of(command, min(a.each, a.end - time.monotonic()))
    found = parts(a.folder, some, text)
    got = {n: (verdict(found.get(n, []), status), found.get(n, [])) for n in some}
    if status == FOUND and all(state != "reported" for state, _ in got.values()):
        got |= {n: ("reported", text.splitlines()[-12:]) for n in list(found)[-1:]}
    return got


def say(name, tool, state, lines):
    print(f"{tool or 'results'} {name}: {state}")
    print("".join(f"    {l[:160]}\n" for l in lines[1:12] if "TOO LARGE" in l or l[0] != " "), end="", flush=True)


def work(a, todo, states):
    """Takes batches until none is left. What a process that was stopped had not begun goes to another one."""
    while True:
        try:
            tool, some = todo.popleft()
        except IndexError:
            return
        got = batch(a, tool, some)
        late = [n for n, (state, lines) in got.items() if state == "late"]
        begun = [n for n in late if got[n][1]] or (late[:1] if len(late) == len(some) else [])
        again = {n: some[n] for n in late if n not in begun}
        if again and time.monotonic() < a.end:
            todo.appendleft((tool, again))
            got = {n: v for n, v in got.items() if n not in again}
        for name, (state, lines) in got.items():
            states[tool].append(state)
            if state not in ("ok", "no GPU"):
                say(name, tool, state, lines)


def run(a):
    a.end, states = time.monotonic() + a.budget, {tool: [] for tool in a.tool}
    with open(f"{a.folder}/near.json") as f:
        chosen = [(n, near) for n, near in json.load(f).items() if wanted(a, n)]
    step = max(1, (len(chosen) + BATCH - 1) // BATCH)
    todo = collections.deque((tool, dict(chosen[i::step])) for tool in a.tool for i in range(min(step, len(chosen))))
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for done in [pool.submit(work, a, todo, states) for _ in range(a.jobs)]:
            done.result()
    for tool, came in states.items():
        print(f"{tool or 'results'}: {len(came)} plans, " + ", ".join(f"{came.count(s)} {s}" for s in sorted(set(came))))
    found = {state for came in states.values() for state in came}
    if found == {"no GPU"}:
        return 77
    return 0 if "ok" in found and found <= {"ok", "late"} else 1


def has_gpu(graphc):
    has = "cuda: driver" in subprocess.run([graphc, "doctor"], capture_output=True, text=True).stdout
    print("" if has else "skipped: no GPU\n", end="")
    return has


def test(a):
    if not has_gpu(a.graphc):
        return 77
    with tempfile.TemporaryDirectory() as a.folder:
        a.patterns, a.jobs, a.budget = [], 8, 900
        a.each = a.budget
        a.tool = ["", *TOOLS] if shutil.which("compute-sanitizer") else [""]
        return plans(a) or run(a)


def main():
    p = argparse.ArgumentParser()
    sub = p.add_subparsers(dest="verb", required=True)
    for verb, first, second in (("plans", "graphc", "folder"), ("run", "plan_compare", "folder"), ("test", "graphc", "plan_compare")):
        s = sub.add_parser(verb)
        s.add_argument(first), s.add_argument(second)
        if verb != "test":
            s.add_argument("patterns", nargs="*"), s.add_argument("--jobs", type=int, default=2 if verb == "plans" else 8)
        if verb == "run":
            s.add_argument("--tool", type=lambda text: text.split(","), default=[""])
            s.add_argument("--budget", type=float, default=1e6), s.add_argument("--each", type=float, default=1e6)
    a = p.parse_args()
    return {"plans": plans, "run": run, "test": test}[a.verb](a)


if __name__ == "__main__":
    sys.exit(main())
