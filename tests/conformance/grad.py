"""Gradients of every operator that graphc compiles, in f64, against central differences of the reference evaluator.

    grad.py SUITE_GRAD [--some] [-v]

The cases are those of the ONNX backend suite, of oracle/ort_cases.py and control_cases.py, and a few of its own. No case may differ
by more than 1e-6 or be refused. An operator of which no case shows that its gradient is what differences give, or that it
is zero as they are, must stand in grad_rows.txt with the reason, and nothing else may. --some: every eighth case, no look at
the rows. -v: the table of operators.
"""
import argparse, collections, os, re, subprocess, sys, tempfile
import numpy as np
import onnx
from onnx import helper, numpy_helper
import suite

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(here), "oracle"))
README = os.path.join(here, "..", "..", "README.md")
DATA = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")


def supported():
    """(domain, operator) of everything that README says is compiled."""
    text = re.sub(r"\s+", " ", open(README).read())
    lacking = re.search(r"Of ai\.onnx all but (.*?) \(some", text)[1]
    lacking = set(re.split(r", | and ", lacking))
    rows = {("", s.name) for s in onnx.defs.get_all_schemas_with_history()
            if s.domain == "" and s.name not in lacking and not s.deprecated}
    listed = re.search(r"Of com\.microsoft: .*?Momentum\.", text)[0]
    for domain, names in re.findall(r"(?:[Oo]f )((?:com|ai)\.[a-z.]+): (.*?)[.;] ?(?=[Oo]f |$)", listed):
        rows |= {(domain, n) for n in names.split(", ")}
    return rows


def operators(graph):
    for n in graph.node:
        yield "" if n.domain == "ai.onnx" else n.domain, n.op_type
        for a in n.attribute:
            if a.HasField("g"):
                yield from operators(a.g)


def oracle_cases(folder):
    import control_cases, ml_cases, ort_cases
    ort_cases.write_all(f"{folder}/contrib", [])
    for c in control_cases.cases:
        c.write(f"{folder}/control", [])
    for c in ml_cases.cases:
        if not c.name.startswith("export"):  # models of several operators
            c.write(f"{folder}/ml", [])
    for kind in ("contrib", "control", "ml"):
        for name in sorted(os.listdir(f"{folder}/{kind}")):
            yield f"{kind}/{name}", f"{folder}/{kind}/{name}"


def write_case(folder, nodes, arrays, opset=21):
    """Inputs x0, x1, ... and one output, y, of floats."""
    names = [f"x{i}" for i in range(len(arrays))]
    info = lambda n, x: helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    out = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph(nodes, "g", [info(n, x) for n, x in zip(names, arrays)], [out]), ir_version=10,
                              opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)])
    os.makedirs(f"{folder}/test_data_set_0")
    onnx.save(model, f"{folder}/model.onnx")
    for i, x in enumerate(arrays):
        with open(f"{folder}/test_data_set_0/input_{i}.pb", "wb") as f:
            f.write(numpy_helper.from_array(x, names[i]).SerializeToString())


def sequence_nodes():
    body = helper.make_graph([helper.make_node("Tanh", ["e"], ["t"])], "body", [helper.make_tensor_value_info("e", 1, None)],
                             [helper.make_tensor_value_info("t", 1, None)])
    return [helper.make_node("SequenceConstruct", ["x0", "x1"], ["s"]), helper.make_node("SequenceMap", ["s"], ["m"], body=body),
            helper.make_node("ConcatFromSequence", ["m"], ["y"], axis=0)]


def own_cases(folder):
    """Of operators whose cases elsewhere hold no floats, or cannot be given: sequences and optionals."""
    rng = np.random.default_rng(0)
    reals = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    node = lambda op, n, **attrs: [helper.make_node(op, [f"x{i}" for i in range(n)], ["y"], **attrs)]
    regions = np.array([[0, 0, 0, 3, 4], [0, 1, 2, 5, 5]], np.float32)
    optional = [helper.make_node("Sin", ["x0"], ["s"]), helper.make_node("Optional", ["s"], ["o"]),
                helper.make_node("OptionalGetElement", ["o"], ["g"]), helper.make_node("Mul", ["g", "x0"], ["y"])]
    table = [rng.integers(0, 256, (5, 16), np.uint8), np.array([[3, 0], [4, 3]]), reals(5, 2)]
    for name, nodes, arrays in (
            ("Trilu_1", node("Trilu", 1, upper=0), [reals(3, 4)]), ("Trilu_2", node("Trilu", 1), [reals(2, 3, 3)]),
            ("GlobalLpPool", node("GlobalLpPool", 1, p=3), [reals(2, 3, 4, 5)]),
            ("MaxRoiPool", node("MaxRoiPool", 2, pooled_shape=[2, 2]), [reals(1, 2, 6, 6), regions]),
            ("RandomNormalLike", node("RandomNormalLike", 1), [reals(2, 3)]),
            ("Optional", optional, [reals(2, 3)]), ("SequenceMap", sequence_nodes(), [reals(2, 3), reals(1, 3)]),
            ("GatherBlockQuantized", node("GatherBlockQuantized", 3, domain="com.microsoft", bits=4, block_size=16, quantize_axis=1),
             table)):
        write_case(f"{folder}/own/{name}", nodes, arrays)
        yield f"own/{name}", f"{folder}/own/{name}"


# Of com.microsoft, which has the operators of ai.onnx under other names.
TWINS = {"CausalConvWithState": "CausalConvWithState", "DequantizeLinear": "DequantizeLinear", "LinearAttention": "LinearAttention",
         "LayerNormalization": "LayerNormalization", "RMSNormalization": "RMSNormalization",
         "RMSNormalization ": "SimplifiedLayerNormalization", "QuantizeLinear": "QuantizeLinear"}


def twin_cases(folder, cases):
    """The suite's cases of one node, told again in the other domain."""
    for name, source in cases:
        model = onnx.load(f"{source}/model.onnx")
        nodes = model.graph.node
        if len(nodes) != 1 or nodes[0].domain:
            continue
        for op, twin in TWINS.items():
            if nodes[0].op_type != op.strip():
                continue
            case = f"twin/{twin}_{name.replace('/', '_')}"
            told = onnx.ModelProto.FromString(model.SerializeToString())
            told.graph.node[0].op_type, told.graph.node[0].domain = twin, "com.microsoft"
            told.opset_import.append(helper.make_opsetid("com.microsoft", 1))
            os.makedirs(f"{folder}/{case}")
            onnx.save(told, f"{folder}/{case}/model.onnx")
            os.symlink(f"{source}/test_data_set_0", f"{folder}/{case}/test_data_set_0")
            yield case, f"{folder}/{case}"


def run(tool, cases):
    """name -> (verdict, error, elements, kinks, message)"""
    names = {folder: name for name, folder in cases}
    out = {}
    with subprocess.Popen(["xargs", "-n", "100", "-P", str(suite.forks.cores()), tool], text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as p:
        text = p.communicate("\n".join(names))[0]
    for line in text.splitlines():
        verdict, folder, worst, n, kinks, message = (line + " ").split(" ", 5)
        out[names[folder]] = verdict, float(worst), int(n), int(kinks), message.strip()
    return out


def show(row):
    return f"{row[0] or 'ai.onnx'}:{row[1]}"


def count_rows(cases, results):
    """(domain, operator) -> verdict -> [cases, elements, largest error]"""
    tally = collections.defaultdict(lambda: collections.defaultdict(lambda: [0, 0, 0.0]))
    for name, folder in cases:
        verdict, worst, n, kinks, _ = results.get(name, ("", 0, 0, 0, ""))
        for row in set(operators(onnx.load(f"{folder}/model.onnx", load_external_data=False).graph)) if n else ():
            t = tally[row][verdict]
            t[0], t[1], t[2] = t[0] + 1, t[1] + n, max(t[2], worst)
    return tally


def check_rows(cases, results, verbose):
    tally, reasons = count_rows(cases, results), {}
    for line in open(os.path.join(here, "grad_rows.txt")):
        if line.strip() and line[0] != "#":
            row, reason = line.strip().split(" ", 1)
            reasons[row] = reason
    bad, rows, count = [], sorted(supported()), collections.Counter()
    for row in rows:
        verdict = next((v for v in ("same", "zero") if v in tally[row]), None)
        count[verdict] += 1
        if verbose:
            n, elements, worst = tally[row][verdict] if verdict else (0, 0, 0)
            found = f"{n:4} cases {elements:5} elements  " + ("zero, as differences are" if verdict == "zero" else f"{worst:.1e}")
            print(f"{show(row):50} {found if verdict else reasons.get(show(row), 'NOT CHECKED')}")
        if not verdict and show(row) not in reasons:
            bad.append(f"{show(row)}: no case shows its gradient")
        if verdict and show(row) in reasons:
            bad.append(f"{show(row)}: listed in grad_rows.txt, but its gradient is checked")
    bad += [f"{r}: listed, but no operator" for r in reasons if r not in {show(x) for x in rows}]
    print(f"{len(rows)} operators: {count['same']} agree with differences, {count['zero']} are zero as they are, "
          f"{count[None]} take or give no floats")
    return bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("tool"), p.add_argument("--some", action="store_true"), p.add_argument("-v", action="store_true")
    a = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="grad") as tmp:
        cases = [(name, folder) for name, _, folder in suite.cases(DATA) if folder]
        cases = cases[::8] if a.some else [*cases, *oracle_cases(tmp), *own_cases(tmp), *twin_cases(tmp, cases)]
        results = run(a.tool, cases)
        bad = [f"{n}: {results[n][0]} {results[n][1]:.1e} {results[n][4]}" if n in results else f"{n}: no verdict"
               for n, _ in cases if results.get(n, ("differs",))[0] in ("differs", "refused")]
        if not a.some:
            bad += check_rows(cases, results, a.v)
    count = collections.Counter(r[0] for r in results.values())
    print(", ".join(f"{n} {v}" for v, n in count.most_common()), f"of {len(cases)}")
    for b in bad[:80]:
        print("  ", b)
    return 1 if bad or count["same"] < len(cases) // 3 else 0


if __name__ == "__main__":
    sys.exit(main())
