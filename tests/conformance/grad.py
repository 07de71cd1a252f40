"""Gradients of every operator that graphc compiles, in f64, against central differences of the reference evaluator.

    grad.py SUITE_GRAD [--some] [-v]

The cases are those of the ONNX backend suite, of oracle/ort_cases.py and control_cases.py, and a few of its own. No case may differ
or be refused. An operator whose gradient no case shows to be that of differences must stand in grad_rows.txt with the
reason, and nothing else may. --some: every eighth case, no look at the rows. -v: the table of operators.
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
    import control_cases, ort_cases
    ort_cases.write_all(f"{folder}/contrib", [])
    for c in control_cases.cases:
        c.write(f"{folder}/control", [])
    for kind in ("contrib", "control"):
        for name in sorted(os.listdir(f"{folder}/{kind}")):
            yield f"{kind}/{name}", f"{folder}/{kind}/{name}"


def own_cases(folder):
    """Of operators whose cases elsewhere hold no floats."""
    for op, shapes, attrs in (("Trilu", [(3, 4)], {"upper": 0}), ("Trilu", [(2, 3, 3)], {}),
                              ("GlobalLpPool", [(2, 3, 4, 5)], {"p": 3}),
                              ("MaxRoiPool", [(1, 2, 6, 6), (2, 5)], {"pooled_shape": [2, 2]})):
        name = f"own/{op}_{len(shapes[0])}"
        rng = np.random.default_rng(0)
        x = [rng.standard_normal(s).astype(np.float32) for s in shapes]
        if op == "MaxRoiPool":
            x[1] = np.array([[0, 0, 0, 3, 4], [0, 1, 2, 5, 5]], np.float32)
        names = [f"x{i}" for i in range(len(x))]
        node = helper.make_node(op, names, ["y"], **attrs)
        ins = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, v.shape) for n, v in zip(names, x)]
        out = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
        model = helper.make_model(helper.make_graph([node], op, ins, [out]), ir_version=10,
                                  opset_imports=[helper.make_opsetid("", 21)])
        os.makedirs(f"{folder}/{name}/test_data_set_0")
        onnx.save(model, f"{folder}/{name}/model.onnx")
        for i, v in enumerate(x):
            with open(f"{folder}/{name}/test_data_set_0/input_{i}.pb", "wb") as f:
                f.write(numpy_helper.from_array(v, names[i]).SerializeToString())
        yield name, f"{folder}/{name}"


def run(tool, cases):
    """name -> (verdict, error, elements, kinks, message)"""
    names = {folder: name for name, folder in cases}
    out = {}
    with subprocess.Popen(["xargs", "-n", "100", "-P", str(os.cpu_count()), tool], text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as p:
        text = p.communicate("\n".join(names))[0]
    for line in text.splitlines():
        verdict, folder, worst, n, kinks, message = (line + " ").split(" ", 5)
        out[names[folder]] = verdict, float(worst), int(n), int(kinks), message.strip()
    return out


def show(row):
    return f"{row[0] or 'ai.onnx'}:{row[1]}"


def check_rows(cases, results, verbose):
    tally = collections.defaultdict(lambda: [0, 0, 0.0])
    for name, folder in cases:
        verdict, worst, n, kinks, _ = results.get(name, ("", 0, 0, 0, ""))
        for row in set(operators(onnx.load(f"{folder}/model.onnx", load_external_data=False).graph)):
            t = tally[row]
            if verdict == "same" and n:
                t[0], t[1], t[2] = t[0] + 1, t[1] + n, max(t[2], worst)
    reasons = {}
    for line in open(os.path.join(here, "grad_rows.txt")):
        if line.strip() and line[0] != "#":
            row, reason = line.strip().split(" ", 1)
            reasons[row] = reason
    bad, rows = [], sorted(supported())
    for row in rows:
        cases_, n, worst = tally[row]
        if verbose:
            what = f"{cases_:4} cases {n:5} elements  {worst:.1e}" if cases_ else reasons.get(show(row), "NOT CHECKED")
            print(f"{show(row):50} {what}")
        if not cases_ and show(row) not in reasons:
            bad.append(f"{show(row)}: no case shows its gradient")
        if cases_ and show(row) in reasons:
            bad.append(f"{show(row)}: listed in grad_rows.txt, but its gradient is checked")
    bad += [f"{r}: listed, but no operator" for r in reasons if r not in {show(x) for x in rows}]
    checked = sum(tally[r][0] > 0 for r in rows)
    print(f"{len(rows)} operators: {checked} agree with differences, {len(rows) - checked} have no gradient")
    return bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("tool"), p.add_argument("--some", action="store_true"), p.add_argument("-v", action="store_true")
    a = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="grad") as tmp:
        cases = [(name, folder) for name, _, folder in suite.cases(DATA) if folder]
        cases = cases[::8] if a.some else cases + list(oracle_cases(tmp)) + list(own_cases(tmp))
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
