"""No false alarm of verify: the graphs of models/ as they are and with --precision, and the forms that onnxruntime's tools
make of them: f16, dynamically quantised, and the statically quantised ones of a small model:

    verify.py GRAPHC [MODEL ...] [--forms]    --forms: what the tools make, and nothing else
"""
import json, os, re, shutil, subprocess, sys, tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases

QUANTISED = {"mobilenet_v3_large": ("QDQ", "QOperator")}
graphc, only = os.path.abspath(sys.argv[1]), [a for a in sys.argv[2:] if a[0] != "-"]
forms_only = "--forms" in sys.argv
failures = 0


def verify(what, *args):
    global failures
    p = subprocess.run([graphc, "verify", *args], capture_output=True, text=True)
    said = re.findall(r"stored values agree.*?at ([^ ]+) of", p.stdout)
    failures += p.returncode != 0
    print(f"{'ok' if p.returncode == 0 else 'FAILED'} {what}: {said[0] if said else '?'} of what rounding explains",
          "" if p.returncode == 0 else "\n" + p.stdout[-1500:] + p.stderr[-1500:], flush=True)


def quantised(model, forms, folder):
    import numpy as np
    import onnxruntime as ort
    from onnxruntime import quantization as q

    class Reader(q.CalibrationDataReader):
        def __init__(self):
            shapes = {i.name: [d if isinstance(d, int) else 1 for d in i.shape] for i in ort.InferenceSession(model).get_inputs()}
            rng = np.random.default_rng(0)
            self.data = [{n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()} for _ in range(2)]

        def get_next(self):
            return self.data.pop() if self.data else None

    for form in (q.QuantFormat[f] for f in forms):
        path = f"{folder}/{form.name}.onnx"
        q.quantize_static(model, path, Reader(), quant_format=form)
        verify(f"{os.path.basename(model)} {form.name}", path)


def forms(model, folder, dims):
    """f16 inside, f32 at inputs and outputs; weights of contractions in i8, what they are multiplied with when it runs."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16
    from onnxruntime import quantization as q
    name = os.path.basename(model)
    for part in (model, model[:-5] + ".weights"):  # onnx reads no weights that have a second name, as those of a test beside
        if os.path.exists(part):
            shutil.copy(part, folder)
    model = f"{folder}/{name}"
    half = convert_float_to_float16(onnx.load(model), keep_io_types=True)
    onnx.save(half, f"{folder}/half.onnx", save_as_external_data=True, location="half.weights")
    try:
        onnx.checker.check_model(f"{folder}/half.onnx")
        verify(f"{name} f16", f"{folder}/half.onnx", *dims)
    except onnx.checker.ValidationError as e:
        print(f"skipped {name} f16: onnxruntime's tool makes no model of it: {str(e)[:100]}")
    try:
        q.quantize_dynamic(model, f"{folder}/dynamic.onnx", use_external_data_format=True)
    except Exception as e:  # the tool's own limits
        print(f"skipped {name} dynamic: onnxruntime's tool refuses it: {str(e)[:100]}")
        return
    verify(f"{name} dynamic", f"{folder}/dynamic.onnx", *dims)


names = only or sorted(n[:-5] for n in os.listdir(cases.MODELS) if n.endswith(".onnx") and "llama_1b" not in n)
for name in names:
    path = f"{cases.filled([name])}/{name}.onnx"
    has = {s["name"] for s in json.loads(subprocess.check_output([graphc, "inspect", path, "--json"], stderr=subprocess.DEVNULL))["symbols"]}
    dims = [a for s, n in cases.SIZES[1].items() if s in has for a in ("--dim", f"{s}={n}")] if "seq" in has else []
    if not forms_only:
        verify(name, path, *dims)
        for precision in ("bf16", "f16"):
            verify(f"{name} --precision {precision}", path, "--precision", precision, *dims)
    with tempfile.TemporaryDirectory() as folder:
        forms(path, folder, dims)
        if name in QUANTISED and not forms_only:
            quantised(path, QUANTISED[name], folder)
sys.exit(bool(failures))
