"""Kernels over long rows: what is stored, and how often a row is read.

    rows.py GRAPHC

Cross entropy in the spellings of exporters gives the loss of numpy on the CPU, and for every target it stores numbers per
row only, nothing of the size of the logits. Compiled for sm_90a (nothing runs, no assembler is needed), a row that shared
memory holds is brought there once by the copy engine, whether it starts at multiples of 16 bytes or not.
"""
import os, re, subprocess, sys, tempfile
import numpy as np
from onnx import TensorProto as T, helper as h, numpy_helper as nh, save
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tool import check, failed

graphc = os.path.abspath(sys.argv[1])
ROWS, CLASSES, IGNORED = 6, 3001, -100


def model(path, nodes, outs, ins, init=()):
    g = h.make_graph([h.make_node(op, i, [o], **a) for op, i, o, a in nodes], "rows",
                     [h.make_tensor_value_info(*i) for i in ins], [h.make_tensor_value_info(*o) for o in outs], list(init))
    save(h.make_model(g, opset_imports=[h.make_opsetid("", 23)], ir_version=10), path)


def losses():
    """name -> nodes, shape of the labels, reduction"""
    log = [("LogSoftmax", ["x"], "p", {"axis": -1})]
    none = {"ignore_index": IGNORED, "reduction": "none"}
    mean = {"ignore_index": IGNORED}
    picked = [("GatherElements", ["p", "t"], "g", {"axis": 1}), ("Neg", ["g"], "n", {}), ("Squeeze", ["n", "one"], "o", {})]
    by_hand = [("ReduceMax", ["x", "one"], "m", {}), ("Sub", ["x", "m"], "d", {}), ("Exp", ["d"], "e", {}),
               ("ReduceSum", ["e", "one"], "s", {}), ("Log", ["s"], "l", {}), ("Sub", ["d", "l"], "p", {})]
    return {"loss": ([("SoftmaxCrossEntropyLoss", ["x", "t"], "o", mean)], [ROWS], "mean"),
            "loss_rows": ([("SoftmaxCrossEntropyLoss", ["x", "t"], "o", none)], [ROWS], "none"),
            "nll": (log + [("NegativeLogLikelihoodLoss", ["p", "t"], "o", mean)], [ROWS], "mean"),
            "gather": (log + picked, [ROWS, 1], "none"),
            "by_hand": (by_hand + picked, [ROWS, 1], "none")}


def wanted(x, t, reduction):
    x = x.astype(np.float64)
    rows = np.log(np.exp(x - x.max(1, keepdims=True)).sum(1)) + x.max(1)
    t = t.reshape(-1)
    kept = t != IGNORED
    rows = np.where(kept, rows - x[np.arange(ROWS), np.where(kept, t, 0)], 0)
    return rows.sum() / kept.sum() if reduction == "mean" else rows


def run(*args):
    p = subprocess.run([graphc, *args], capture_output=True, text=True)
    check(p.returncode == 0, f"{' '.join(args)}: {p.stderr.strip()[-300:]}")
    return p.returncode == 0


def cross_entropy(tmp):
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((ROWS, CLASSES)) * 3).astype(np.float32)
    for name, (nodes, shape, reduction) in losses().items():
        t = rng.integers(0, CLASSES, shape)
        if shape == [ROWS]:
            t[1], t[4] = IGNORED, CLASSES - 1
        model(f"{tmp}/{name}.onnx", nodes, [("o", T.FLOAT, [] if reduction == "mean" else [ROWS])],
              [("x", T.FLOAT, [ROWS, CLASSES]), ("t", T.INT64, shape)], [nh.from_array(np.array([1]), "one")])
        np.save(f"{tmp}/x.npy", x), np.save(f"{tmp}/t.npy", t)
        if not run(f"{tmp}/{name}.onnx", "-o", f"{tmp}/{name}.plan", "--target", "cpu,sm_90a", "--dump-ir", f"{tmp}/{name}"):
            continue
        if run("run", f"{tmp}/{name}.plan", "--input", f"x={tmp}/x.npy", "--input", f"t={tmp}/t.npy", "--output-dir", tmp):
            got, want = np.load(f"{tmp}/o.npy"), wanted(x, t, reduction)
            check(np.allclose(got, want, rtol=1e-5, atol=1e-6), f"{name}: {got}, wanted {want}")
        for target in ("cpu", "sm_90a"):
            kir = open(dump(f"{tmp}/{name}", target, "post-fusion.kir")).read()
            for size in re.findall(r"^buffer \d+  temp \w+\[(\d+)\]", kir, re.M):
                check(int(size) <= 4 * ROWS, f"{name} on {target}: a buffer of {size} elements between kernels")


def cross_entropy_gradient(tmp):
    """Loss and gradient, both divided by how many rows count: one kernel walks the logits, for every target."""
    rng = np.random.default_rng(2)
    rows, n = 160, 1003
    x, t = (rng.standard_normal((rows, n)) * 3).astype(np.float32), rng.integers(0, n, rows)
    t[::5] = IGNORED
    f32 = {"to": T.FLOAT}
    nodes = [("ReduceMax", ["x", "one"], "m", {}), ("Sub", ["x", "m"], "d", {}), ("Exp", ["d"], "e", {}),
             ("ReduceSum", ["e", "one"], "s", {}), ("Log", ["s"], "l", {}), ("Add", ["m", "l"], "lse", {}),
             ("Unsqueeze", ["t", "one"], "u", {}), ("Equal", ["u", "ignored"], "skip", {}),
             ("Where", ["skip", "zero", "u"], "at", {}), ("GatherElements", ["x", "at"], "g", {"axis": 1}),
             ("Sub", ["lse", "g"], "r", {}), ("Where", ["skip", "none", "r"], "row", {}), ("Not", ["skip"], "kept", {}),
             ("Cast", ["kept"], "w", f32), ("ReduceSum", ["row"], "sum", {"keepdims": 0}),
             ("ReduceSum", ["w"], "count", {"keepdims": 0}), ("Div", ["sum", "count"], "o", {}),
             ("Sub", ["x", "lse"], "lp", {}), ("Exp", ["lp"], "p", {}), ("Equal", ["u", "classes"], "hit", {}),
             ("Cast", ["hit"], "h", f32), ("Sub", ["p", "h"], "ph", {}), ("Mul", ["ph", "w"], "pw", {}),
             ("Div", ["pw", "count"], "dx", {})]
    init = [nh.from_array(np.array(v), k) for k, v in
            {"one": [1], "ignored": IGNORED, "zero": 0, "none": np.float32(0), "classes": np.arange(n)[None]}.items()]
    model(f"{tmp}/grad.onnx", nodes, [("o", T.FLOAT, []), ("dx", T.FLOAT, [rows, n])],
          [("x", T.FLOAT, [rows, n]), ("t", T.INT64, [rows])], init)
    np.save(f"{tmp}/x.npy", x), np.save(f"{tmp}/t.npy", t)
    if not run(f"{tmp}/grad.onnx", "-o", f"{tmp}/grad.plan", "--target", "cpu,sm_90a", "--dump-ir", f"{tmp}/grad"):
        return
    p = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    kept = t != IGNORED
    hit = np.arange(n)[None] == t[:, None]
    want = {"o": -np.log(p[kept, t[kept]]).mean(), "dx": (p - hit) * kept[:, None] / kept.sum()}
    if run("run", f"{tmp}/grad.plan", "--input", f"x={tmp}/x.npy", "--input", f"t={tmp}/t.npy", "--output-dir", tmp):
        for name, w in want.items():
            check(np.allclose(np.load(f"{tmp}/{name}.npy"), w, rtol=1e-5, atol=1e-7), f"gradient: {name} differs")
    for target in ("cpu", "sm_90a"):
        kir = open(dump(f"{tmp}/grad", target, "post-fusion.kir")).read()
        walks = [k for k in re.findall(r"^kernel .*$", kir, re.M) if re.search(rf"={n}\b|={n * rows}\b", k)]
        check(len(walks) == 1, f"gradient on {target}: {walks}")


def norm_gradient(tmp):
    """What folds columns stores no points on the way, which it would walk in strides: dx has rows of its own."""
    rows, n = 300, 512
    nodes = [("Mul", ["dy", "w"], "g", {}), ("Mul", ["x", "rstd"], "h", {}), ("Mul", ["g", "h"], "gh", {}),
             ("ReduceMean", ["gh", "one"], "c", {}), ("Mul", ["h", "c"], "hc", {}), ("Sub", ["g", "hc"], "k", {}),
             ("Mul", ["k", "rstd"], "dx", {}), ("Mul", ["dy", "h"], "dh", {}), ("ReduceSum", ["dh", "zero"], "dw", {})]
    init = [nh.from_array(np.array([v]), k) for k, v in {"one": 1, "zero": 0}.items()]
    model(f"{tmp}/norm.onnx", nodes, [("dx", T.FLOAT, [rows, n]), ("dw", T.FLOAT, [1, n])],
          [("x", T.FLOAT, [rows, n]), ("dy", T.FLOAT, [rows, n]), ("w", T.FLOAT, [n]), ("rstd", T.FLOAT, [rows, 1])], init)
    if not run(f"{tmp}/norm.onnx", "-o", f"{tmp}/norm.plan", "--target", "cpu,sm_90a", "--dump-ir", f"{tmp}/norm"):
        return
    for target in ("cpu", "sm_90a"):
        kir = open(dump(f"{tmp}/norm", target, "post-fusion.kir")).read()
        for k in re.findall(rf"^kernel \S+ (\w+)  x\d+={n} ~x\d+={rows}$", kir, re.M):
            check(k == "red", f"norm's gradient on {target}: columns are walked by a {k}")
        check(re.search(rf"^kernel \S+ per  x\d+={rows} ~x\d+={n}$", kir, re.M), f"norm's gradient on {target}: no rows")


def dump(folder, target, file):
    for path in (f"{folder}/{target}/{file}", f"{folder}/{target}.{file}", f"{folder}/{file}"):
        if os.path.exists(path):
            return path
    sys.exit(f"no {file} of {target} in {folder}: {os.listdir(folder)}")


def long_rows(tmp):
    for n, t in [(50257, T.BFLOAT16), (50257, T.FLOAT), (40000, T.FLOAT)]:
        name = f"softmax_{n}_{t}"
        model(f"{tmp}/{name}.onnx", [("Softmax", ["x"], "o", {"axis": -1})], [("o", t, [64, n])], [("x", t, [64, n])])
        if not run(f"{tmp}/{name}.onnx", "-o", f"{tmp}/{name}.plan", "--target", "sm_90a", "--dump-ir", f"{tmp}/{name}"):
            continue
        folder = f"{tmp}/{name}"
        ptx = "".join(open(f"{folder}/{f}").read() for f in os.listdir(folder) if f.endswith(".ptx"))
        vectors = re.findall(r"(ld\.global|ld\.shared|st\.global)\S*\.v4", ptx)
        count = {kind: vectors.count(kind) for kind in set(vectors)}
        check("cp.async.bulk.shared::cluster.global" in ptx, f"{name}: no copy engine brings the row")
        check(count.get("ld.global", 0) == 0, f"{name}: threads read the row, too: {count}")
        check(count.get("ld.shared", 0) >= count.get("st.global", 0) > 0, f"{name}: what is stored was kept: {count}")


def ptx_of(tmp, name):
    """What the model compiles to for sm_90a, and its plan's text; None where it does not."""
    if not run(f"{tmp}/{name}.onnx", "-o", f"{tmp}/{name}.plan", "--target", "sm_90a", "--dump-ir", f"{tmp}/{name}"):
        return None, None
    folder = f"{tmp}/{name}"
    ptx = "".join(open(f"{folder}/{f}").read() for f in os.listdir(folder) if f.endswith(".ptx"))
    return ptx, open(dump(folder, "sm_90a", "plan.txt")).read()


def longest_rows(tmp):
    """A row that no block holds is brought once all the same: blocks of a cluster share it and send each other their folds."""
    model(f"{tmp}/longest.onnx", [("Softmax", ["x"], "o", {"axis": -1})], [("o", T.BFLOAT16, [1000, 128256])],
          [("x", T.BFLOAT16, [1000, 128256])])
    ptx, plan = ptx_of(tmp, "longest")
    if ptx:
        check("cluster 2x1x1" in plan, "a row of 128256 is not shared by two blocks")
        check("st.async" in ptx, "blocks of a cluster do not send what they have folded")
        check(not re.search(r"ld\.global\S*\.v4", ptx), "threads read a row that the copy engine brings")


def across_rows(tmp):
    """Rows that start at any element read what all of them share in pieces of 16 bytes, too, not by elements."""
    n, t = 50257, T.BFLOAT16
    model(f"{tmp}/across.onnx", [("LayerNormalization", ["x", "w", "b"], "o", {"axis": -1})], [("o", t, [64, n])],
          [("x", t, [64, n]), ("w", t, [n]), ("b", t, [n])])
    ptx, plan = ptx_of(tmp, "across")
    if ptx:
        single = len(re.findall(r"ld\.global\S*\.[bu]16", ptx))
        check(single <= 12, f"a norm over {n}: {single} loads of single elements, more than its edges need")
        bulk = len(re.findall(r"cp\.async\.bulk\.shared", ptx))
        check(bulk == 3, f"a norm over {n}: the copy engine brings {bulk} operands, not the row and its weights")
        check("cluster 2x1x1" in plan, f"a norm over {n}: no two blocks keep its weights")
        check("setmaxnreg.inc" in ptx, f"a norm over {n}: no team of warps has the registers to hold rows in")
        check("cp.async.bulk.global.shared" not in ptx, f"a norm over {n}: rows wait in shared memory for their results")
        check("atom.global.inc" in ptx, f"a norm over {n}: blocks do not ask for their rows")
        order = re.search(r"st\.async.*\n(.*\n){0,8}.*mbarrier\.arrive\.release\.cta", ptx)
        check(order, f"a norm over {n}: results go over what no barrier says is read")


def lines(tmp):
    """Vectors of rows that start at any element begin with a line of memory: 64 elements of 16 bits, 32 of f32."""
    for t, n in ((T.BFLOAT16, 64), (T.FLOAT, 32)):
        model(f"{tmp}/lines.onnx", [("Softmax", ["x"], "o", {"axis": -1})], [("o", t, [1000, 20001])], [("x", t, [1000, 20001])])
        ptx, _ = ptx_of(tmp, "lines")
        if ptx:
            check(re.search(rf"and\.b(32|64)\s.*, {n - 1};", ptx), f"a row's vectors do not begin with {n} elements' line")


def whole_rows(tmp):
    """Rows of whole vectors that take more registers than a block has, as an assembler finds out, are not walked by elements."""
    for n in (50304, 65536):
        model(f"{tmp}/whole_{n}.onnx", [("Softmax", ["x"], "o", {"axis": -1})], [("o", T.BFLOAT16, [1000, n])],
              [("x", T.BFLOAT16, [1000, n])])
        ptx, _ = ptx_of(tmp, f"whole_{n}")
        if ptx:
            check(not re.search(r"ld\.global\S*\.[bu]16", ptx), f"a row of {n} is read by elements")


def quotients(tmp):
    """Rows of 16 bits divide by their length quickly, but not by what may be above 2^126, where the quick quotient is 0."""
    model(f"{tmp}/share.onnx", [("ReduceSum", ["x", "last"], "s", {}), ("Mul", ["y", "s"], "d", {}),
                                    ("Div", ["x", "d"], "o", {})], [("o", T.BFLOAT16, [500, 1024])],
          [("x", T.BFLOAT16, [500, 1024]), ("y", T.BFLOAT16, [500, 1024])], [nh.from_array(np.array([1]), "last")])
    ptx, _ = ptx_of(tmp, "share")
    if ptx:
        check("div.full" not in ptx and re.search(r"(div|rcp)\.rn", ptx), "a row over its sum is divided quickly")
    model(f"{tmp}/mean.onnx", [("LayerNormalization", ["x", "w"], "o", {"axis": -1})], [("o", T.BFLOAT16, [500, 1000])],
          [("x", T.BFLOAT16, [500, 1000]), ("w", T.BFLOAT16, [1000])])
    ptx, _ = ptx_of(tmp, "mean")
    if ptx:
        check("div.full" in ptx and "div.rn" not in ptx, "a row's mean is divided exactly")


def whole_norms(tmp):
    """Norms of rows of whole vectors keep their weights in shared memory like others where two rows have room beside them."""
    for n, pairs in ((73736, False), (50312, True)):
        model(f"{tmp}/norm_{n}.onnx", [("LayerNormalization", ["x", "w", "b"], "o", {"axis": -1})], [("o", T.BFLOAT16, [1000, n])],
              [("x", T.BFLOAT16, [1000, n]), ("w", T.BFLOAT16, [n]), ("b", T.BFLOAT16, [n])])
        ptx, plan = ptx_of(tmp, f"norm_{n}")
        if ptx and "cp.async.bulk" in ptx:
            check(("atom.global.inc" in ptx and "cluster 2x1x1" in plan) == pairs, f"a norm over {n}: {'no ' if pairs else ''}pairs of blocks")


def norms(tmp):
    """A block that can hold two rows beside what all of them read alike does so alone; else two blocks share each row."""
    for n, blocks in ((50257, 2), (33335, 2), (12001, 1)):
        model(f"{tmp}/norm_{n}.onnx", [("LayerNormalization", ["x", "w", "b"], "o", {"axis": -1})], [("o", T.BFLOAT16, [1000, n])],
              [("x", T.BFLOAT16, [1000, n]), ("w", T.BFLOAT16, [n]), ("b", T.BFLOAT16, [n])])
        ptx, plan = ptx_of(tmp, f"norm_{n}")
        if ptx:
            check("setmaxnreg.inc" in ptx, f"a norm over {n}: no team of warps holds rows")
            check((f"cluster {blocks}x1x1" in plan) == (blocks > 1), f"a norm over {n} is not by {blocks} blocks")


def readers(tmp):
    """Many rows of which nothing is kept are read by small blocks, few of them by large ones."""
    for rows, threads in ((4096, 128), (64, 512)):
        model(f"{tmp}/readers.onnx", [("Cast", ["x"], "f", {"to": T.FLOAT}),
                                      ("SoftmaxCrossEntropyLoss", ["f", "t"], "o", {"reduction": "none"})], [("o", T.FLOAT, [rows])],
              [("x", T.BFLOAT16, [rows, 12001]), ("t", T.INT64, [rows])])
        _, plan = ptx_of(tmp, "readers")
        if plan:
            check(f"block {threads}x1x1" in plan, f"{rows} rows of which nothing is kept are not read by {threads} threads each")


def few_rows(tmp):
    """Few long rows are cut: one kernel folds parts of them, all it needs in one walk, another computes their points; on the CPU
    one kernel does. Many rows, or short ones, have a kernel to themselves on every target."""
    norm = ("GroupNormalization", ["x", "w", "b"], "o", {"num_groups": 1, "epsilon": 1e-5})
    soft = ("Softmax", ["x"], "o", {"axis": -1})
    best = [("Abs", ["x"], "a", {}), ("ReduceMax", ["a"], "m", {}), ("Div", ["x", "m"], "o", {})]
    far = [("ReduceMean", ["x"], "m", {}), ("Sub", ["x", "m"], "d", {}), ("Mul", ["d", "d"], "q", {}), ("ReduceMean", ["q"], "v", {}),
           ("ReduceMax", ["x"], "a", {}), ("Add", ["v", "a"], "o", {})]  # a third fold takes a walk of its own
    for name, nodes, shape, cut in (("norm", [norm], [2, 8, 65537], ["red", "poi"]), ("soft", [soft], [3, 250007], ["red", "poi"]),
                                    ("best", best, [5, 300007], ["red", "poi"]), ("far", far, [5, 300007], ["red", "red"]),
                                    ("half", [soft], [3, 250007], ["red", "poi"]), ("many", [soft], [300, 250007], None), ("short", [soft], [3, 4099], None)):
        t = T.FLOAT16 if name == "half" else T.FLOAT
        sizes = [("x", t, shape)] + [(i, t, [8]) for i in "wb" if nodes == [norm]]
        model(f"{tmp}/few_{name}.onnx", nodes, [("o", t, [1, 1] if nodes == far else shape)], sizes)
        if not run(f"{tmp}/few_{name}.onnx", "-o", f"{tmp}/few.plan", "--target", "cpu,sm_90a", "--dump-ir", f"{tmp}/few_{name}"):
            continue
        kinds = {t: re.findall(r"^kernel \S+ (\w+)", open(dump(f"{tmp}/few_{name}", t, "post-fusion.kir")).read(), re.M)
                 for t in ("cpu", "sm_90a")}
        check(len(kinds["cpu"]) == 1 or name in ("best", "far"), f"few rows, {name}: on the CPU {kinds['cpu']}")
        check(kinds["sm_90a"] == (cut or ["per"]), f"few rows, {name}: {kinds['sm_90a']}")
        plan = open(dump(f"{tmp}/few_{name}", "sm_90a", "plan.txt")).read()
        parts = [int(x) * int(y) for x, y in re.findall(r"grid (\d+) +x (\d+)", plan[plan.index("sm_90a"):])]
        check(not cut or all(n >= 66 for n in parts), f"few rows, {name}: blocks {parts}")
        if name == "half":
            kir = open(dump(f"{tmp}/few_half", "sm_90a", "post-fusion.kir")).read()
            check(not re.search(r"temp f16", kir), "few rows: what other kernels go on with is rounded to 16 bits")
        if name == "best":  # an odd number of points that lie side by side
            folder = f"{tmp}/few_best"
            ptx = "".join(open(f"{at}/{f}").read() for at, _, files in os.walk(folder) for f in files if f.endswith(".ptx") and "poi" in f)
            check(re.search(r"st\.global\.v4", ptx), "few rows: points go one by one since they are odd in number")


with tempfile.TemporaryDirectory() as folder:
    few_rows(folder)
    readers(folder)
    whole_norms(folder)
    norms(folder)
    cross_entropy(folder)
    cross_entropy_gradient(folder)
    norm_gradient(folder)
    long_rows(folder)
    longest_rows(folder)
    across_rows(folder)
    lines(folder)
    whole_rows(folder)
    quotients(folder)
print(f"{failed()} failures")
sys.exit(failed() > 0)
