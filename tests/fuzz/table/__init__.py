"""Random nodes over the op table, each with operands, types and attributes of its own: `graphs.py run --of table`.

make(seed) gives a model of several nodes that do not meet, so that one file tries many. A node gets its operands from
inputs, open in some of their sizes, or from constants; a pointwise operator may stand behind it, for fusion. What onnxruntime
refuses is left out. Operators that jump see whole numbers. Comments say where onnxruntime's own answer is not ONNX's.
"""
import random

import numpy as np
from onnx import helper as h

from . import layers, moves, pointwise, quantised, sums  # each enters its rows
from .node import TABLE, Node, Refused

OPSETS = [17, 18, 20, 21, 22]


def build(seed, at, opset):
    """The node's parts, or nothing."""
    r = random.Random(seed * 1000 + at)
    n = Node(r, np.random.default_rng(seed * 1000 + at), opset, at)
    n.after = None
    kind = r.choice(sorted(TABLE))
    ins, attrs = TABLE[kind](n, kind)
    outs = [f"o{at}_{i}" for i in range(n.outs)]
    if n.after:
        seq, after, out = n.after
        return n, kind, [h.make_node(kind, ins, [seq], **attrs), *after], [out]
    nodes = [h.make_node(kind, ins, outs, domain=n.domain, **attrs)]
    return n, kind, nodes, outs if n.many else outs[:1]


def model_of(parts, opset):
    nodes, inputs, inits, outs = [], [], [], []
    for n, _, ns, os in parts:
        nodes, inputs, inits = nodes + ns, inputs + n.inputs, inits + n.inits
        outs += [h.make_empty_tensor_value_info(o) for o in os]
    g = h.make_graph(nodes, "table", inputs, outs, inits)
    return h.make_model(g, opset_imports=[h.make_opsetid("", opset), h.make_opsetid("com.microsoft", 1)], ir_version=10)


def taken(model, feed):
    """Whether onnxruntime takes the node and has finite results, and of which types."""
    import onnxruntime as ort
    o = ort.SessionOptions()
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    o.intra_op_num_threads = o.inter_op_num_threads = 1
    o.log_severity_level = 4
    try:
        s = ort.InferenceSession(model.SerializeToString(), o, providers=["CPUExecutionProvider"])
        return s.run(None, feed)
    except Exception:
        return None


WRAP = ["Relu", "Neg", "Tanh", "Sigmoid"]


def make(seed, of=6):
    """The model, the inputs of its one run, and what chose them."""
    r, parts = random.Random(seed), []
    opset = r.choice(OPSETS)
    for at in range(of):
        try:
            part = n, kind, nodes, outs = build(seed, at, opset)
        except Refused:
            continue
        if n.opset > opset:  # an operator of a later opset is alone, or with what was made for that one
            parts, opset = [p for p in parts if p[0].opset == n.opset], n.opset
        got = taken(model_of([part], opset), n.feed)
        if got is None:
            continue
        for i, (o, x) in enumerate(zip(outs, got)):  # what fusion puts behind
            if isinstance(x, np.ndarray) and x.dtype == np.float32 and r.random() < 0.4:
                nodes.append(h.make_node(r.choice(WRAP), [o], [o + "w"]))
                outs[i] = o + "w"
        parts.append(part)
    return model_of(parts, opset), [{k: v for p in parts for k, v in p[0].feed.items()}], r
