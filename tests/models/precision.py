"""--precision bf16 and f16 on the CPU: as near to f32 as a framework that runs the whole model in that type.

    precision.py GRAPHC [NAME ...]

The framework is emulated by onnxruntime: weights, inputs
and every node's result are rounded to the type, while sums inside of a node are f32. Errors are root mean squares
against the f32 model, whose own error is a thousandth of them. Output types stay f32.
"""
import os, shutil, subprocess, sys, tempfile
import numpy as np
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases, compare

MODELS = ["unet", "whisper_tiny_encoder"]
TYPES = {"bf16": TensorProto.BFLOAT16, "f16": TensorProto.FLOAT16}
BOUND = 1.25


def rounded(path, to, out):
    """The model with casts to the type and back behind every f32 initializer, input and result."""
    m = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False))
    g = m.graph
    types = {v.name: v.type.tensor_type.elem_type for v in [*g.value_info, *g.input, *g.output]}
    types |= {t.name: t.data_type for t in g.initializer}
    made = [*(v.name for v in g.input), *(t.name for t in g.initializer), *(o for n in g.node for o in n.output)]
    narrow = {x for x in made if types.get(x) == TensorProto.FLOAT}
    outputs, nodes, count = {v.name for v in g.output}, [], 0

    def cast(x):
        nodes.append(helper.make_node("Cast", [x], [x + "/narrow"], to=to))
        nodes.append(helper.make_node("Cast", [x + "/narrow"], [x + "/wide"], to=TensorProto.FLOAT))

    for x in made[:len(g.input) + len(g.initializer)]:
        if x in narrow:
            cast(x)
    for n in g.node:
        for i, x in enumerate(n.input):
            if x in narrow:
                n.input[i] = x + "/wide"
        nodes.append(n)
        for x in n.output:
            if x in narrow and x not in outputs:
                cast(x)
                count += 1
    del g.node[:]
    g.node.extend(nodes)
    onnx.save(m, out)
    return count


def plain(path, feeds):
    """Outputs of onnxruntime without rewriting, which takes casts there and back for nothing."""
    import onnxruntime as ort
    ort.set_default_logger_severity(3)
    o = ort.SessionOptions()
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    s = ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])
    return dict(zip([x.name for x in s.get_outputs()], s.run(None, feeds)))


def rms(x, want):
    return float(np.sqrt(np.mean((x.astype(np.float64) - want) ** 2)))


def ours(graphc, path, precision, feeds, names, tmp):
    args = [graphc, "run", path, "--precision", precision, "--output-dir", tmp]
    for k, v in feeds.items():
        np.save(f"{tmp}/in_{k}.npy", v)
        args += ["--input", f"{k}={tmp}/in_{k}.npy"]
    p = subprocess.run(args, capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(f"exit {p.returncode}: {p.stderr.strip()[-300:]}")
    return {k: np.load(f"{tmp}/{k.replace('/', '_')}.npy") for k in names}


def check(graphc, folder, name, precision):
    """Error of ours, of the emulation."""
    path = f"{folder}/{name}.onnx"
    feeds = cases.inputs(path, cases.SIZES[0])
    want = compare.oracle(path, feeds)
    with tempfile.TemporaryDirectory() as tmp:
        shutil.copy(f"{folder}/{name}.weights", tmp)  # onnxruntime follows no links
        if not rounded(path, TYPES[precision], f"{tmp}/rounded.onnx"):
            raise RuntimeError("nothing was rounded")
        emulated = plain(f"{tmp}/rounded.onnx", feeds)
        got = ours(graphc, path, precision, feeds, want, tmp)
    worst = (0, 0, 1)
    for k, w in want.items():
        if got[k].dtype != w.dtype:
            raise RuntimeError(f"output {k} is {got[k].dtype}")
        e, peer = rms(got[k], w), rms(emulated[k], w)
        if not e > 1e-6 * w.std():
            raise RuntimeError(f"output {k} is f32's: nothing was narrowed")
        if e / peer > worst[0]:
            worst = (e / peer, e / w.std(), peer / w.std())
    return worst


def main():
    graphc, names = os.path.abspath(sys.argv[1]), sys.argv[2:] or MODELS
    folder, bad = cases.filled(names), 0
    for name in names:
        for precision in TYPES:
            ratio, e, peer = check(graphc, folder, name, precision)
            ok = ratio <= BOUND
            bad += not ok
            print(f"{'ok' if ok else 'FAILED':6} {name:22} {precision:4} error/std {e:.2e}, emulated {peer:.2e}: {ratio:.2f}x",
                  flush=True)
    return 1 if bad else 0


sys.exit(main())
