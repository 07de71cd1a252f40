"""Inputs for the example models: two sets of sizes each, one of them ragged, with padding masks.

An input is drawn by its name and type: masks are 1 with a padded tail, ids are rows of the vocabulary,
floats are N(0, 1). Nothing here knows a model beyond the sizes of its symbols.
"""
import os, subprocess, sys, tempfile
import numpy as np
import onnx

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models")
NUMPY = {1: np.float32, 7: np.int64, 6: np.int32, 9: np.bool_, 10: np.float16, 11: np.float64}
BFLOAT16 = 16  # drawn as f32 whose lower half is zero
VOCABULARY = 1000  # below every model's own

SIZES = [
    {"batch": 1, "seq": 64, "dec": 16, "past": 32},
    {"batch": 3, "seq": 19, "dec": 7, "past": 5},
]


def filled(names):
    """The folder that holds these models with their weights, which are written once."""
    out = os.path.join(MODELS, "..", ".cache", "models")
    os.makedirs(out, exist_ok=True)
    for n in names:
        if os.path.exists(f"{out}/{n}.onnx"):
            continue
        with tempfile.TemporaryDirectory(dir=out) as tmp:
            subprocess.run([sys.executable, f"{MODELS}/fill.py", tmp, n], check=True)
            for end in ("weights", "onnx"):
                os.replace(f"{tmp}/{n}.{end}", f"{out}/{n}.{end}")
    return os.path.realpath(out)


def shape_of(value, sizes):
    dims = []
    for d in value.type.tensor_type.shape.dim:
        dims.append(d.dim_value if d.HasField("dim_value") else eval(d.dim_param, {}, sizes))
    return dims


def draw(name, dtype, shape, sizes, rng):
    if name.endswith("attention_mask"):
        mask = np.ones(shape, dtype)
        for row in range(1, shape[0]):  # one row whole, the others padded at the end
            mask[row, shape[1] - row * shape[1] // (2 * shape[0]):] = 0
        return mask
    if name == "position_ids":
        return np.broadcast_to(np.arange(sizes["past"], sizes["past"] + shape[1], dtype=dtype), shape).copy()
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, VOCABULARY, shape, dtype)
    return rng.standard_normal(shape).astype(dtype)


def narrowed(x):
    bits = x.view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def inputs(path, sizes, seed=0):
    """name -> array for the model at path; sizes of its symbols, "total" following from the others"""
    sizes = dict(sizes, total=sizes["past"] + sizes["seq"])
    rng = np.random.default_rng(seed)
    graph = onnx.load(path, load_external_data=False).graph
    fixed = {t.name for t in graph.initializer}
    out = {}
    for v in graph.input:
        if v.name not in fixed:
            t = v.type.tensor_type.elem_type
            x = draw(v.name, np.dtype(NUMPY.get(t, np.float32)), shape_of(v, sizes), sizes, rng)
            out[v.name] = narrowed(x) if t == BFLOAT16 else x
    return out


def sparse_weights(name, folder, marked=False):
    """The model in the folder, its weight file all holes, or holes behind some numbers, so that no tensor folds to zero:
    its symbols."""
    model = onnx.load(f"{MODELS}/{name}.onnx", load_external_data=False)
    ends, marks = {}, []
    for t in model.graph.initializer:
        place = {e.key: e.value for e in t.external_data}
        if place:
            end = int(place["offset"]) + int(place["length"])
            ends[place["location"]] = max(end, ends.get(place["location"], 0))
            marks.append((place["location"], int(place["offset"]), min(64, int(place["length"]))))
    for file, size in ends.items():
        with open(f"{folder}/{file}", "wb") as f:
            f.truncate(size)
            for i, (_, offset, n) in enumerate(m for m in marks if marked and m[0] == file):
                f.seek(offset)
                f.write(np.random.default_rng(i).integers(1, 60, n, np.uint8).tobytes())
    os.symlink(os.path.abspath(f"{MODELS}/{name}.onnx"), f"{folder}/{name}.onnx")
    return {d.dim_param for v in model.graph.input for d in v.type.tensor_type.shape.dim} - {""}
