"""Test cases in the layout of ONNX's backend suite, so that one runner reads all.

A case is a graph of nodes on shared inputs; every node's result is an output. References are computed
node by node with onnxruntime without graph optimisations, by ONNX's reference evaluator for types that
onnxruntime lacks. What both refuse is left out and counted.
"""
import json, os, warnings

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

DTYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
          "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8,
          "u64": np.uint64, "u32": np.uint32, "u16": np.uint16, "u8": np.uint8, "bool": np.bool_}
FLOATS, BITS16 = ("f64", "f32", "f16", "bf16"), ("f16", "bf16")
SIGNED, UNSIGNED = ("i64", "i32", "i16", "i8"), ("u64", "u32", "u16", "u8")
INTS = SIGNED + UNSIGNED
# What rounding of the last operation may cost; sums get their own allowance where they are written.
RTOL = {"f64": 1e-9, "f32": 2e-6, "f16": 2e-3, "bf16": 1.6e-2}
OPSET = 23


def elem(x):
    return helper.np_dtype_to_tensor_dtype(x.dtype)


def name_of(dtype):
    return next((n for n, d in DTYPES.items() if np.dtype(d) == dtype), str(dtype))


def run_ort(model, feeds):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if any(x.dtype == ml_dtypes.bfloat16 for x in feeds.values()):
        raise RuntimeError("onnxruntime's Python interface has no bf16")
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def run_reference(model, feeds):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return ReferenceEvaluator(model).run(None, feeds)


class Node:
    """One operation: inputs are names of the case's inputs, constants or earlier results."""

    def __init__(self, op, inputs, outputs, attrs, domain="", ref=None):
        self.op, self.inputs, self.outputs, self.attrs, self.domain, self.ref = op, inputs, outputs, attrs, domain, ref

    def proto(self):
        return helper.make_node(self.op, self.inputs, self.outputs, domain=self.domain, **self.attrs)


class Case:
    """case = Case("name", x=array); y = case.op("Relu", "x"); ... the results of all nodes are compared
    unless `keep` names some. free: {input: {axis: symbol}}; const: names of inputs that are initializers;
    ml: the version of ai.onnx.ml."""

    def __init__(self, name, free=None, const=(), tolerance=None, keep=None, opset=OPSET, ml=3, **inputs):
        self.name, self.free, self.const, self.tolerance = name, free or {}, set(const), tolerance
        self.inputs, self.nodes, self.keep, self.opset, self.ml = inputs, [], keep, opset, ml

    def op(self, op, *inputs, nout=1, out=None, domain="", ref=None, **attrs):
        """ref: a function of the input arrays where onnxruntime is less exact than asked for."""
        outs = [out or f"o{len(self.nodes)}_{op}"] if nout == 1 else \
            [f"o{len(self.nodes)}_{op}_{i}" for i in range(nout)]
        self.nodes.append(Node(op, list(inputs), outs, attrs, domain, ref))
        return outs[0] if nout == 1 else outs

    def add(self, name, x):
        """A constant."""
        self.inputs[name] = np.asarray(x)
        self.const.add(name)
        return name

    def model(self, nodes, inputs, consts, outputs, free):
        infos = [helper.make_tensor_value_info(n, elem(x), [free.get(n, {}).get(a, s) for a, s in enumerate(x.shape)])
                 for n, x in inputs.items()]
        graph = helper.make_graph([n.proto() for n in nodes], self.name, infos, outputs,
                                  [numpy_helper.from_array(x, n) for n, x in consts.items()])
        domains = sorted({n.domain for n in nodes if n.domain})
        imports = [helper.make_opsetid("", self.opset)] + [helper.make_opsetid(d, self.ml if d == "ai.onnx.ml" else 1) for d in domains]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    def reference(self, node, values):
        feeds = {n: values[n] for n in node.inputs if n}
        if node.ref:
            with np.errstate(all="ignore"):
                got = node.ref(*(values[n] for n in node.inputs))
            return {node.outputs[0]: np.asarray(got)}
        outs = [helper.make_empty_tensor_value_info(o) for o in node.outputs if o]
        consts = {n: x for n, x in feeds.items() if n in self.const}
        given = {n: x for n, x in feeds.items() if n not in consts}
        model = self.model([node], given, consts, outs, {})
        try:
            got = run_ort(model, given)
        except Exception:  # onnxruntime's own exceptions have no common base
            got = run_reference(model, given)
            if node.op.startswith("Reduce"):  # the evaluator widens small integers
                got = [g.astype(values[node.inputs[0]].dtype) for g in got]
        return dict(zip([o for o in node.outputs if o], (np.asarray(g) for g in got)))

    def evaluate(self, skipped):
        """(nodes that a reference knows, all values)"""
        values, nodes = dict(self.inputs), []
        for node in self.nodes:
            try:
                if any(n and n not in values for n in node.inputs):
                    raise RuntimeError("needs what was skipped")
                values.update(self.reference(node, values))
                nodes.append(node)
            except Exception as e:
                skipped.append(f"{self.name}/{node.outputs[0]}: {str(e).splitlines()[0][:120] if str(e) else type(e)}")
        return nodes, values

    def write(self, folder, skipped):
        nodes, values = self.evaluate(skipped)
        outputs = [o for n in nodes for o in n.outputs if o and (not self.keep or o in self.keep)]
        if not outputs:
            return False
        used = {n for node in nodes for n in node.inputs}
        given = {n: x for n, x in self.inputs.items() if n not in self.const and n in used}
        consts = {n: x for n, x in self.inputs.items() if n in self.const and n in used}
        infos = [helper.make_tensor_value_info(o, elem(values[o]), [None] * values[o].ndim if self.free else values[o].shape)
                 for o in outputs]
        data = os.path.join(folder, self.name, "test_data_set_0")
        os.makedirs(data)
        onnx.save(self.model(nodes, given, consts, infos, self.free), os.path.join(folder, self.name, "model.onnx"))
        for kind, names in (("input", given), ("output", outputs)):
            for i, n in enumerate(names):
                with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as f:
                    f.write(numpy_helper.from_array(np.ascontiguousarray(values[n]).reshape(values[n].shape), n).SerializeToString())
        if self.tolerance:
            with open(os.path.join(folder, self.name, "data.json"), "w") as f:
                json.dump({"rtol": self.tolerance[0], "atol": self.tolerance[1]}, f)
        return True


class Cases(list):
    def new(self, *args, **kw):
        self.append(Case(*args, **kw))
        return self[-1]
