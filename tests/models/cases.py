"""Inputs for the example models: two sets of sizes each, one of them ragged, with padding masks.

An input is drawn by its name and type: masks are 1 with a padded tail, ids are rows of the vocabulary,
floats are N(0, 1). Nothing here knows a model beyond the sizes of its symbols.
"""
import numpy as np
import onnx

NUMPY = {1: np.float32, 7: np.int64, 6: np.int32, 9: np.bool_, 10: np.float16, 11: np.float64}
VOCABULARY = 1000  # below every model's own

SIZES = [
    {"batch": 1, "seq": 64, "dec": 16, "past": 32},
    {"batch": 3, "seq": 19, "dec": 7, "past": 5},
]


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


def inputs(path, sizes, seed=0):
    """name -> array for the model at path; sizes of its symbols, "total" following from the others"""
    sizes = dict(sizes, total=sizes["past"] + sizes["seq"])
    rng = np.random.default_rng(seed)
    graph = onnx.load(path, load_external_data=False).graph
    fixed = {t.name for t in graph.initializer}
    out = {}
    for v in graph.input:
        if v.name not in fixed:
            out[v.name] = draw(v.name, np.dtype(NUMPY[v.type.tensor_type.elem_type]), shape_of(v, sizes), sizes, rng)
    return out
