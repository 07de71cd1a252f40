"""Small models for the tests of training, the same bits every time; what a file of weights holds."""
import json
import numpy as np
import onnx
from onnx import helper, numpy_helper

rng = np.random.default_rng(5)


def tensors(path):
    """name -> array of a safetensors file"""
    types = {"F32": "<f4", "I64": "<i8", "U8": "u1"}
    with open(path, "rb") as f:
        raw = f.read()
    n = int.from_bytes(raw[:8], "little")
    head, data = json.loads(raw[8:8 + n]), raw[8 + n:]
    return {k: np.frombuffer(data[slice(*v["data_offsets"])], types[v["dtype"]]).reshape(v["shape"])
            for k, v in head.items() if k != "__metadata__"}


def perceptron(path):
    w = {"up.weight": rng.standard_normal((16, 40)) / 4, "up.bias": rng.standard_normal(40) / 10,
         "down.weight": rng.standard_normal((40, 3)) / 6}
    w = {k: v.astype(np.float32) for k, v in w.items()}
    nodes = [helper.make_node("MatMul", ["x", "up.weight"], ["a"], name="/up/MatMul"),
             helper.make_node("Add", ["a", "up.bias"], ["b"]), helper.make_node("Tanh", ["b"], ["c"]),
             helper.make_node("MatMul", ["c", "down.weight"], ["y"], name="/down/MatMul")]
    io = [helper.make_tensor_value_info(n, 1, ["batch", s]) for n, s in (("x", 16), ("y", 3))]
    g = helper.make_graph(nodes, "g", io[:1], io[1:], [numpy_helper.from_array(v, k) for k, v in w.items()])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return w


def recurrent(path):
    """An LSTM over any length, and a layer behind its last state."""
    shape = {"W": (1, 20, 4), "R": (1, 20, 5), "B": (1, 40), "head.weight": (5, 3)}
    w = {k: (rng.standard_normal(s) / 2).astype(np.float32) for k, s in shape.items()}
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
             helper.make_node("LSTM", ["t", "W", "R", "B"], ["", "last"], hidden_size=5, name="lstm"),
             helper.make_node("Squeeze", ["last", "axes0"], ["h"]), helper.make_node("MatMul", ["h", "head.weight"], ["y"], name="/head/MatMul")]
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, ["batch", "length", 4])],
                          [helper.make_tensor_value_info("y", 1, ["batch", 3])],
                          [numpy_helper.from_array(v, k) for k, v in (w | {"axes0": np.array([0])}).items()])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return w


def byte_model(path):
    """Logits of the next byte from this one alone."""
    w = {"embed.weight": rng.standard_normal((256, 24)) / 5, "head.weight": rng.standard_normal((24, 256)) / 5}
    nodes = [helper.make_node("Gather", ["embed.weight", "input_ids"], ["e"]),
             helper.make_node("MatMul", ["e", "head.weight"], ["logits"])]
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("input_ids", 7, ["batch", "seq"])],
                          [helper.make_tensor_value_info("logits", 1, ["batch", "seq", 256])],
                          [numpy_helper.from_array(v.astype(np.float32), k) for k, v in w.items()])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def attention_model(path):
    """Byte embeddings, one causal attention beside them, logits."""
    shape = {"embed.weight": (256, 16), "q.weight": (16, 16), "k.weight": (16, 16), "v.weight": (16, 16), "head.weight": (16, 256)}
    w = {k: (rng.standard_normal(s) / (1 if k == "embed.weight" else 2)).astype(np.float32) for k, s in shape.items()}
    one = {"i0": np.array(0), "i1": np.array(1), "ax0": np.array([0]), "axes1": np.array([1]),
           "low": np.array(-np.inf, np.float32)}
    n = helper.make_node
    nodes = [n("Gather", ["embed.weight", "input_ids"], ["e"]), n("MatMul", ["e", "q.weight"], ["q"]),
             n("MatMul", ["e", "k.weight"], ["k"]), n("MatMul", ["e", "v.weight"], ["v"]), n("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
             n("MatMul", ["q", "kt"], ["s"]), n("Shape", ["input_ids"], ["shape"]), n("Gather", ["shape", "i1"], ["len"]),
             n("Range", ["i0", "len", "i1"], ["at"]), n("Unsqueeze", ["at", "ax0"], ["row"]), n("Unsqueeze", ["at", "axes1"], ["column"]),
             n("LessOrEqual", ["row", "column"], ["seen"]), n("Where", ["seen", "s", "low"], ["m"]), n("Softmax", ["m"], ["p"], axis=-1),
             n("MatMul", ["p", "v"], ["o"]), n("Add", ["e", "o"], ["h"]), n("MatMul", ["h", "head.weight"], ["logits"])]
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("input_ids", 7, ["batch", "seq"])],
                          [helper.make_tensor_value_info("logits", 1, ["batch", "seq", 256])],
                          [numpy_helper.from_array(v, k) for k, v in (w | one).items()])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
