"""ONNX graphs in PyTorch, operator by operator, in f32 or f64: an outside autodiff to compare gradients with.

Only what the example models use. Integer tensors stay what they are; every float is of the given type.
"""
import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper

ROUND = {"floor": torch.floor, "ceil": torch.ceil}


def ints(x):
    return [int(v) for v in x.reshape(-1).tolist()]


def attributes(node):
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def axes_of(a, ins, i=1):
    v = a.get("axes")
    return ints(ins[i]) if v is None and len(ins) > i and ins[i] is not None else v


def padded(x, pads, value=0.0):
    """pads as ONNX has them, of the spatial axes: all starts, then all ends."""
    n = len(pads) // 2
    flat = [p for i in reversed(range(n)) for p in (pads[i], pads[n + i])]
    return F.pad(x, flat, value=value) if any(flat) else x


def conv(ins, a):
    n = ins[0].dim() - 2
    x = padded(ins[0], a.get("pads", [0] * 2 * n))
    f = (F.conv1d, F.conv2d, F.conv3d)[n - 1]
    return f(x, ins[1], ins[2] if len(ins) > 2 else None, a.get("strides", [1] * n), 0, a.get("dilations", [1] * n),
             a.get("group", 1))


def conv_transpose(ins, a):
    n = ins[0].dim() - 2
    pads = a.get("pads", [0] * 2 * n)
    assert pads[:n] == pads[n:] and "output_shape" not in a
    f = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[n - 1]
    return f(ins[0], ins[1], ins[2] if len(ins) > 2 else None, a.get("strides", [1] * n), pads[:n],
             a.get("output_padding", [0] * n), a.get("group", 1), a.get("dilations", [1] * n))


def pool(ins, a, op):
    x, n = ins[0], ins[0].dim() - 2
    assert not a.get("ceil_mode") and a.get("auto_pad", b"NOTSET") == b"NOTSET"
    kernel, strides = a["kernel_shape"], a.get("strides", [1] * n)
    pads = a.get("pads", [0] * 2 * n)
    if op == "MaxPool":
        return (F.max_pool1d, F.max_pool2d, F.max_pool3d)[n - 1](padded(x, pads, -np.inf), kernel, strides)
    assert not any(pads)
    return (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[n - 1](x, kernel, strides)


def resize(ins, a):
    x = ins[0]
    mode, how = a.get("mode", b"nearest").decode(), a.get("coordinate_transformation_mode", b"half_pixel").decode()
    sizes = ints(ins[3]) if len(ins) > 3 and ins[3] is not None else [int(s * f) for s, f in zip(x.shape, ins[2].tolist())]
    if mode == "nearest":
        for axis, (old, new) in enumerate(zip(x.shape, sizes)):
            if old != new:
                at = torch.arange(new) * old // new  # asymmetric and floor, or an integer factor
                assert new % old == 0 or how == "asymmetric"
                x = x.index_select(axis, at)
        return x
    return F.interpolate(x, sizes[2:], mode="bilinear", align_corners=how == "align_corners")


def gather_nd(data, idx):
    assert idx.shape[-1] <= data.dim()
    return data[tuple(idx.unbind(-1))]


def reduce(f, ins, a):
    axes, keep = axes_of(a, ins), bool(a.get("keepdims", 1))
    if axes is None or len(axes) == 0:
        axes = [] if a.get("noop_with_empty_axes") else list(range(ins[0].dim()))
    return f(ins[0], dim=tuple(axes), keepdim=keep)


def gemm(ins, a):
    x = ins[0].T if a.get("transA") else ins[0]
    w = ins[1].T if a.get("transB") else ins[1]
    y = a.get("alpha", 1.0) * (x @ w)
    return y + a.get("beta", 1.0) * ins[2] if len(ins) > 2 else y


def slices(ins):
    x, starts, ends = ins[0], ints(ins[1]), ints(ins[2])
    axes = ints(ins[3]) if len(ins) > 3 and ins[3] is not None else range(len(starts))
    steps = ints(ins[4]) if len(ins) > 4 else [1] * len(starts)
    for b, e, axis, step in zip(starts, ends, axes, steps):
        at = torch.arange(x.shape[axis])[slice(b, e, step)] if step > 0 else \
            torch.from_numpy(np.arange(x.shape[axis])[slice(b, e, step)].copy())
        x = x.index_select(axis, at)
    return x


def reshape(ins, a):
    dims = [x if d == 0 and not a.get("allowzero") else d for d, x in
            zip(ints(ins[1]), list(ins[0].shape) + [0] * ins[1].numel())]
    return ins[0].reshape(dims)


def instance_norm(ins, a):
    return F.instance_norm(ins[0], None, None, ins[1], ins[2], eps=a.get("epsilon", 1e-5))


def layer_norm(ins, a):
    axis = a.get("axis", -1) % ins[0].dim()
    return F.layer_norm(ins[0], ins[0].shape[axis:], ins[1], ins[2] if len(ins) > 2 else None, a.get("epsilon", 1e-5))


def batch_norm(ins, a):
    given = (None, None) if a.get("training_mode") else ins[3:5]
    return F.batch_norm(ins[0], *given, ins[1], ins[2], bool(a.get("training_mode")), eps=a.get("epsilon", 1e-5))


def split(ins, a):
    axis = a.get("axis", 0)
    if len(ins) > 1:
        return ins[0].split(ints(ins[1]), axis)
    return ins[0].tensor_split(a["num_outputs"], axis)


def clip(ins, a):
    y = ins[0]
    y = torch.maximum(y, ins[1]) if len(ins) > 1 and ins[1] is not None else y
    return torch.minimum(y, ins[2]) if len(ins) > 2 and ins[2] is not None else y


def fold(f, ins):
    y = ins[0]
    for x in ins[1:]:
        y = f(y, x)
    return y


def divide(x, y):
    return x / y if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


OPS = {
    "Add": lambda i, a: i[0] + i[1], "Sub": lambda i, a: i[0] - i[1], "Mul": lambda i, a: i[0] * i[1],
    "Div": lambda i, a: divide(*i), "Pow": lambda i, a: i[0] ** i[1].to(i[0].dtype), "Neg": lambda i, a: -i[0],
    "Abs": lambda i, a: i[0].abs(), "Sqrt": lambda i, a: i[0].sqrt(), "Reciprocal": lambda i, a: 1 / i[0],
    "Log": lambda i, a: i[0].log(), "Exp": lambda i, a: i[0].exp(), "Cos": lambda i, a: i[0].cos(),
    "Sin": lambda i, a: i[0].sin(), "Tanh": lambda i, a: i[0].tanh(), "Sigmoid": lambda i, a: i[0].sigmoid(),
    "Erf": lambda i, a: torch.erf(i[0]), "Relu": lambda i, a: i[0].relu(), "HardSwish": lambda i, a: F.hardswish(i[0]),
    "HardSigmoid": lambda i, a: (a.get("alpha", 0.2) * i[0] + a.get("beta", 0.5)).clamp(0, 1),
    "Gelu": lambda i, a: F.gelu(i[0], approximate=a.get("approximate", b"none").decode()),
    "IsNaN": lambda i, a: i[0].isnan(), "Not": lambda i, a: ~i[0], "And": lambda i, a: i[0] & i[1],
    "Equal": lambda i, a: i[0] == i[1], "Less": lambda i, a: i[0] < i[1], "Greater": lambda i, a: i[0] > i[1],
    "LessOrEqual": lambda i, a: i[0] <= i[1], "GreaterOrEqual": lambda i, a: i[0] >= i[1],
    "Max": lambda i, a: fold(torch.maximum, i), "Min": lambda i, a: fold(torch.minimum, i), "Clip": clip,
    "Where": lambda i, a: torch.where(*i), "CumSum": lambda i, a: i[0].cumsum(ints(i[1])[0]),
    "MatMul": lambda i, a: i[0] @ i[1], "Gemm": gemm, "Conv": conv, "ConvTranspose": conv_transpose,
    "MaxPool": lambda i, a: pool(i, a, "MaxPool"), "AveragePool": lambda i, a: pool(i, a, "AveragePool"),
    "Softmax": lambda i, a: i[0].softmax(a.get("axis", -1)), "LayerNormalization": layer_norm,
    "InstanceNormalization": instance_norm, "BatchNormalization": batch_norm, "Resize": lambda i, a: resize(i, a),
    "ReduceMean": lambda i, a: reduce(torch.mean, i, a), "ReduceSum": lambda i, a: reduce(torch.sum, i, a),
    "Shape": lambda i, a: torch.tensor(list(i[0].shape)[a.get("start", 0):a.get("end", None)], dtype=torch.int64),
    "Reshape": reshape, "Transpose": lambda i, a: i[0].permute(a.get("perm", list(range(i[0].dim()))[::-1])),
    "Concat": lambda i, a: torch.cat(i, a["axis"]), "Expand": lambda i, a: i[0] * torch.ones(ints(i[1]), dtype=i[0].dtype)
    if i[0].dtype != torch.bool else i[0] & torch.ones(ints(i[1]), dtype=torch.bool),
    "Slice": lambda i, a: slices(i), "Split": split, "Gather": lambda i, a: gather(i, a),
    "GatherElements": lambda i, a: i[0].gather(a.get("axis", 0), i[1]), "GatherND": lambda i, a: gather_nd(*i),
    "Range": lambda i, a: torch.arange(*[x.item() for x in i], dtype=i[0].dtype),
    "Identity": lambda i, a: i[0],
    "TopK": lambda i, a: tuple(i[0].topk(ints(i[1])[0], a.get("axis", -1), bool(a.get("largest", 1)), True)),
}


def gather(i, a):
    axis = a.get("axis", 0) % i[0].dim()
    idx = torch.where(i[1] < 0, i[1] + i[0].shape[axis], i[1])
    y = i[0].index_select(axis, idx.reshape(-1))
    return y.reshape(i[0].shape[:axis] + idx.shape + i[0].shape[axis + 1:])


def attentions(graph):
    """output of softmax(a b + m) v, where nothing else reads what lies between -> (a, b, v, m or None); and the names between."""
    readers, maker = {}, {n.output[0]: n for n in graph.node}
    for n in graph.node:
        for x in n.input:
            readers[x] = readers.get(x, 0) + 1
    found, inner = {}, set()
    for n in graph.node:
        if n.op_type != "MatMul" or n.input[0] not in maker:
            continue
        p, own = maker[n.input[0]], {n.input[0]}
        if p.op_type == "Where" and p.input[2] in maker and maker[p.input[0]].op_type == "IsNaN":  # rows that see nothing give 0
            own |= {p.input[0], p.input[2]}
            readers[p.input[2]] -= 1
            p = maker[p.input[2]]
        s = maker.get(p.input[0]) if p.op_type == "Softmax" and attributes(p).get("axis", -1) in (-1, 3) else None
        mask = None
        if s is not None and s.op_type == "Add" and s.input[0] in maker:
            own.add(s.output[0])
            mask, s = s.input[1], maker[s.input[0]]
        if s is None or s.op_type != "MatMul":
            continue
        own.add(s.output[0])
        if all(readers[x] == 1 for x in own):
            found[n.output[0]] = (*s.input, n.input[1], mask)
            inner |= own
    return found, inner


class Model:
    """weights: initializers of floats with axes, which have gradients. In f32 attention is PyTorch's own kernel, as in the
    models that the graphs were exported from."""

    def __init__(self, path, dtype):
        self.graph, self.dtype = onnx.load(path).graph, dtype
        self.fixed = {t.name: self.tensor(numpy_helper.to_array(t).copy()) for t in self.graph.initializer}
        self.attentions, self.inner = attentions(self.graph) if dtype == torch.float32 else ({}, set())
        self.weights = {n: t.requires_grad_() for n, t in self.fixed.items() if t.is_floating_point() and t.dim()}

    def tensor(self, x):
        t = torch.from_numpy(np.asarray(x))
        return t.to(self.dtype) if t.is_floating_point() else t

    def step(self, node, v):
        if node.output[0] in self.inner:
            return None
        if node.output[0] in self.attentions:
            q, k, x, mask = (n and v[n] for n in self.attentions[node.output[0]])
            return F.scaled_dot_product_attention(q, k.transpose(-1, -2), x, mask, scale=1.0)
        ins = [v[n] if n else None for n in node.input]
        while ins and ins[-1] is None:
            ins.pop()
        a = attributes(node)
        if node.op_type == "Cast":
            to = onnx.helper.tensor_dtype_to_np_dtype(a["to"])
            floats = np.issubdtype(to, np.floating) or to.name == "bfloat16"  # no kind of NumPy's
            return ins[0].to(self.dtype if floats else torch.from_numpy(np.zeros(0, to)).dtype)
        if node.op_type == "Constant":
            return self.tensor(numpy_helper.to_array(a["value"]).copy())
        if node.op_type == "ConstantOfShape":
            value = self.tensor(numpy_helper.to_array(a["value"]).copy())
            return value.expand(ints(ins[0]))
        if node.op_type in ("Squeeze", "Unsqueeze"):
            axes = axes_of(a, ins)
            if node.op_type == "Squeeze":
                return ins[0].squeeze() if axes is None else ins[0].squeeze(tuple(axes))
            y, rank = ins[0], ins[0].dim() + len(axes)
            for axis in sorted(x % rank for x in axes):
                y = y.unsqueeze(axis)
            return y
        return OPS[node.op_type](ins, a)

    def __call__(self, inputs):
        given = {o.name for o in self.graph.output}
        v = dict(self.fixed, **{n: self.tensor(x) for n, x in inputs.items()})
        last = {n: i for i, node in enumerate(self.graph.node) for n in
                (*node.input, *self.attentions.get(node.output[0], ()))}
        for i, node in enumerate(self.graph.node):
            y = self.step(node, v)
            y = y if isinstance(y, (tuple, list)) else [y]
            v.update({n: t for n, t in zip(node.output, y) if n})
            for n in node.input:
                if last.get(n) == i and n in v and n not in self.fixed and n not in given:
                    v.pop(n, None)
        return {o.name: v[o.name] for o in self.graph.output}
