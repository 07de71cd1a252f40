"""No false alarm of verify: the graphs of models/ in the forms that people use and that onnxruntime's and onnxconverter's
tools make of them, each within four times the memory of the f32 model, whatever the form's own size is (the reference is f64),
beside what the tool itself takes, which is what it takes for a model of one node. That is the peak of all that is in memory, as
getrusage has it: nine tenths of the tool's own are pages of LLVM, which are the file's, shared with whoever uses it and dropped
when memory is short. --table says what of a peak is the process's own, too (RssAnon):

    verify.py GRAPHC [MODEL ...] [--form FORM ...] [--table]    --table: lines of Markdown

Forms: f32 (as it is), bf16 and f16 as --precision makes them, `half` (onnxruntime's converter), `converted` (onnxconverter's),
`bfloat` (every f32 tensor in bf16), `dynamic`, `qdq`, `qoperator` and `4bit` (onnxruntime's quantisers).
What a tool does not make of a model, or makes so that onnx or onnxruntime refuse it, is skipped by name.
"""
import argparse, json, logging, os, shutil, subprocess, sys, tempfile, time, warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases

SIZES = {"batch": 2, "seq": 7, "dec": 5, "past": 4}
failures = 0


class Skipped(Exception):
    pass


def half(model, out):
    from onnxruntime.transformers.float16 import convert_float_to_float16
    save_sorted(convert_float_to_float16(model, keep_io_types=True), out)


def converted(model, out):
    try:
        from onnxconverter_common.float16 import convert_float_to_float16
    except ImportError:
        raise Skipped("no onnxconverter_common")
    warnings.simplefilter("ignore")  # of numbers below the least half
    save_sorted(convert_float_to_float16(model, keep_io_types=True), out)


def bfloat(model, out):
    """Inputs and outputs too."""
    import ml_dtypes
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    def tensor(t):
        if t.data_type == TensorProto.FLOAT:
            a = numpy_helper.to_array(t).astype(ml_dtypes.bfloat16)
            t.CopyFrom(helper.make_tensor(t.name, TensorProto.BFLOAT16, a.shape, a.tobytes(), raw=True))

    def graph(g):
        for t in g.initializer:
            tensor(t)
        for v in [*g.input, *g.output, *g.value_info]:
            if v.type.tensor_type.elem_type == TensorProto.FLOAT:
                v.type.tensor_type.elem_type = TensorProto.BFLOAT16
        for n in g.node:
            for a in n.attribute:
                if a.name in ("to", "dtype", "stash_type") and a.i == TensorProto.FLOAT and n.op_type not in ("LayerNormalization",):
                    a.i = TensorProto.BFLOAT16
                if a.HasField("t"):
                    tensor(a.t)
                if a.HasField("g"):
                    graph(a.g)

    graph(model.graph)
    for f in model.functions:
        for n in f.node:
            for a in n.attribute:
                if a.name == "to" and a.i == TensorProto.FLOAT:
                    a.i = TensorProto.BFLOAT16
                if a.HasField("t"):
                    tensor(a.t)
    save(model, out)


def dynamic(model, out):
    import onnx
    from onnxruntime import quantization as q
    plain = onnx.load(model)
    del plain.graph.value_info[:]  # which the tool leaves as they were where it folds a Gemm
    save(plain, model)
    q.quantize_dynamic(model, out, use_external_data_format=True)


def static(form):
    def make(path, out):
        from onnxruntime import quantization as q

        class Reader(q.CalibrationDataReader):
            def __init__(self):
                self.data = [cases.inputs(path, SIZES, seed) for seed in range(2)]

            def get_next(self):
                return self.data.pop() if self.data else None

        q.quantize_static(path, out, Reader(), quant_format=getattr(q.QuantFormat, form), use_external_data_format=True)
    return make


def four_bits(model, out):
    try:
        from onnxruntime.quantization import matmul_nbits_quantizer as q
    except ImportError as e:
        raise Skipped(str(e))
    quantizer = q.MatMulNBitsQuantizer(model, block_size=32, is_symmetric=False)
    quantizer.process()
    if not any(n.op_type == "MatMulNBits" for n in quantizer.model.model.graph.node):
        raise Skipped("no product that the tool takes")
    save(quantizer.model.model, out)


def save_sorted(model, out):
    """With casts where they are needed first, where the tool put them last."""
    from onnxruntime.transformers.onnx_model import OnnxModel
    sorted_model = OnnxModel(model)
    sorted_model.topological_sort()
    save(sorted_model.model, out)


def save(model, out):
    import onnx
    onnx.save(model, out, save_as_external_data=True, location=os.path.basename(out)[:-5] + ".weights")


# form -> options of graphc, what makes the model, whether that takes a path
FORMS = {
    "f32": ([], None, False), "bf16": (["--precision", "bf16"], None, False), "f16": (["--precision", "f16"], None, False),
    "half": ([], half, False), "converted": ([], converted, False), "bfloat": ([], bfloat, False),
    "dynamic": ([], dynamic, True), "qdq": ([], static("QDQ"), True), "qoperator": ([], static("QOperator"), True),
    "4bit": ([], four_bits, False),
}


def make(form, path, folder):
    """The model in this form, in a folder of its own."""
    import onnx, onnxruntime
    tool, of_path = FORMS[form][1:]
    out = f"{folder}/{form}.onnx"
    try:
        if of_path:
            for part in (path, path[:-5] + ".weights"):  # onnx reads no weights that have a second name
                if os.path.exists(part):
                    shutil.copy(part, folder)
            tool(f"{folder}/{os.path.basename(path)}", out)
        else:
            tool(onnx.load(path), out)
        if form != "bfloat":
            onnx.checker.check_model(out)
            onnxruntime.InferenceSession(out)  # which refuses some that its own tools make
    except Skipped as e:
        return str(e)
    except Exception as e:  # the tool's own limits
        return "the tool makes no model of it: " + " ".join(str(e).split())[:100]


def made(form, path, folder):
    """In a process of its own: what this one takes would count as graphc's."""
    if not FORMS[form][1]:
        return path
    p = subprocess.run([sys.executable, __file__, "--make", form, path, folder], stdout=subprocess.PIPE, text=True)
    if p.returncode < 0:
        raise Skipped(f"the tool, or onnxruntime at loading what it made, ends by signal {-p.returncode}")
    p.check_returncode()
    if p.stdout.strip():
        raise Skipped(p.stdout.strip().splitlines()[-1])
    return f"{folder}/{form}.onnx"


def size_of(path):
    graph = cases.onnx.load(path, load_external_data=False).graph
    files = {e.value for t in graph.initializer for e in t.external_data if e.key == "location"}
    return os.path.getsize(path) + sum(os.path.getsize(f"{os.path.dirname(path)}/{f}") for f in files)


# By a process that is small itself: what a parent takes counts as its child's. The kernel keeps no peak of RssAnon.
RUNNER = """import json, re, resource, subprocess, sys, time
p, own = subprocess.Popen(sys.argv[2:]), 0
while p.poll() is None:
    now = re.search(r"RssAnon:\\s+(\\d+)", open(f"/proc/{p.pid}/status").read())
    own = max(own, int(now[1]) if now else 0)
    time.sleep(0.01)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
json.dump([p.returncode, used.ru_utime + used.ru_stime, own << 10, used.ru_maxrss << 10], open(sys.argv[1], "w"))"""


def measured(command):
    """exit status, output, messages, seconds, of processors, peaks in bytes: the process's own, with pages of files"""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        p = subprocess.run([sys.executable, "-c", RUNNER, f"{folder}/used", *command], capture_output=True, text=True, check=True)
        seconds = time.monotonic() - begin
        with open(f"{folder}/used") as f:
            status, cpu, *peaks = json.load(f)
    return status, p.stdout, p.stderr, seconds, cpu, peaks


def own_memory(graphc):
    """What a compiler and the reference take without a model, as `measured` says it."""
    from onnx import TensorProto, helper as h
    x, y = (h.make_tensor_value_info(n, TensorProto.FLOAT, [16]) for n in "xy")
    with tempfile.TemporaryDirectory() as folder:
        cases.onnx.save(h.make_model(h.make_graph([h.make_node("Relu", ["x"], ["y"])], "one", [x], [y])), f"{folder}/one.onnx")
        status, _, err, _, _, peaks = measured([graphc, "verify", f"{folder}/one.onnx"])
    if status:
        sys.exit("a model of one node: " + err)
    return peaks


def verify(a, name, form, path, dims, size):
    global failures
    status, out, err, seconds, cpu, peaks = measured([a.graphc, "verify", path, "--json", *FORMS[form][0], *dims])
    if status == 4:  # an operator of the tool's own that graphc has not
        raise Skipped(err.strip().splitlines()[0][:200])
    try:
        j = json.loads(out)
        stored = max((r["of_bound"] or 0 for r in j["stored"]), default=0)
        outputs = max((o["max_std"] / o["bound_std"] for o in j["outputs"] if o.get("bound_std") and not o["between_references"]), default=0)
    except ValueError:
        j, stored, outputs = {"ok": False}, float("nan"), float("nan")
    ok, small = status == 0 and j["ok"], all(peak <= 4 * size + own for peak, own in zip(peaks, a.own))
    failures += not ok or not small
    verdict = "ok" if ok and small else "too much memory" if ok else "FAILED"
    if a.table:
        print(f"| {name} | {form} | {verdict} | {stored:.2f} | {outputs:.2f} | {cpu:.1f} | {peaks[1] / 1e6:.0f} | {peaks[1] / size:.1f} | {peaks[0] / 1e6:.0f} | {peaks[0] / size:.1f} |", flush=True)
    else:
        print(f"{verdict:6} {name} {form}: stored values at {stored:.2f} of what rounding explains, outputs at {outputs:.2f}; {seconds:.1f} s "
              f"({cpu:.1f} of processors), {peaks[1] / 1e6:.0f} MB = {peaks[1] / size:.1f} times the model, {peaks[0] / 1e6:.0f} of it the process's own", flush=True)
    if not ok:
        print(f"  exit {status}, first bad: {j.get('first_bad')}\n  " + err[-1500:], flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("graphc"), p.add_argument("models", nargs="*"), p.add_argument("--table", action="store_true")
    p.add_argument("--form", nargs="+", choices=FORMS, default=list(FORMS))
    a = p.parse_args()
    a.graphc = os.path.abspath(a.graphc)
    a.own = own_memory(a.graphc)
    print(f"a model of one node takes {a.own[1] / 1e6:.0f} MB, of which {a.own[0] / 1e6:.0f} are the process's own", flush=True)
    for name in a.models or sorted(n[:-5] for n in os.listdir(cases.MODELS) if n.endswith(".onnx") and "llama_1b" not in n):
        path = f"{cases.filled([name])}/{name}.onnx"
        symbols = json.loads(subprocess.check_output([a.graphc, "inspect", path, "--json"], stderr=subprocess.DEVNULL))["symbols"]
        has = {s["name"] for s in symbols}
        dims = [x for s, n in SIZES.items() if s in has for x in ("--dim", f"{s}={n}")] if "seq" in has else []
        for form in a.form:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    verify(a, name, form, made(form, path, folder), dims, size_of(path))
                except Skipped as e:
                    print(f"skipped {name} {form}: {e}", flush=True)
    return failures != 0


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    if sys.argv[1] == "--make":
        print(make(*sys.argv[2:]) or "")
    else:
        sys.exit(main())
