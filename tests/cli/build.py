"""Small models for command-line tests."""
import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto as T, helper as h, numpy_helper


def mlp(path, seed=0):
    """relu(x @ w + b) with a symbolic batch."""
    rng = np.random.default_rng(seed)
    w = numpy_helper.from_array(rng.standard_normal((32, 50)).astype(np.float32), "w")
    b = numpy_helper.from_array(rng.standard_normal(50).astype(np.float32), "b")
    g = h.make_graph([h.make_node("MatMul", ["x", "w"], ["t"]), h.make_node("Add", ["t", "b"], ["u"]),
                      h.make_node("Relu", ["u"], ["y"])], "mlp",
                     [h.make_tensor_value_info("x", T.FLOAT, ["batch", 32])],
                     [h.make_tensor_value_info("y", T.FLOAT, ["batch", 50])], [w, b])
    m = h.make_model(g, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    onnx.save(m, path)
    return m


def one(path, op, ins, outs, opset=17, domain="", **attrs):
    """A model of one node; ins and outs: (name, type, shape)."""
    v = lambda t: h.make_tensor_value_info(*t)
    g = h.make_graph([h.make_node(op, [i[0] for i in ins], [o[0] for o in outs], domain=domain, **attrs)], "one",
                     [v(i) for i in ins], [v(o) for o in outs])
    ops = [h.make_opsetid("", opset)] + ([h.make_opsetid(domain, 1)] if domain else [])
    onnx.save(h.make_model(g, opset_imports=ops, ir_version=8), path)


def text(path, model):
    """A model in ONNX's textual form."""
    onnx.save(onnx.parser.parse_model(model), path)


def named(path, names):
    """A chain of operations with these names."""
    nodes = [h.make_node("Tanh", [f"v{i}"], [f"v{i + 1}"], name=name) for i, name in enumerate(names)]
    g = h.make_graph(nodes, "named", [h.make_tensor_value_info("v0", T.FLOAT, [4])],
                     [h.make_tensor_value_info(f"v{len(names)}", T.FLOAT, [4])])
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 18)], ir_version=9), path)
