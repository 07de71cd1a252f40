"""Rows of what is a layer by itself: recurrence, attention, losses, and bodies."""
import numpy as np
from onnx import helper as h, numpy_helper

from .node import T, rows


# --- recurrence, attention, losses ---------------------------------------------------------------------------------------------------

@rows("LSTM", "GRU", "RNN")
def recurrent(n, kind):
    gates = dict(LSTM=4, GRU=3, RNN=1)[kind]
    s, b, i, hid = n.pick(1, 3, 6), n.pick(1, 2, 3), n.pick(1, 4), n.pick(1, 3, 5)
    d = n.pick("forward", "reverse", "bidirectional")
    k = 2 if d == "bidirectional" else 1
    w = lambda *shape: n.x(shape, "f32", -1, 1, whole=False, constant=n.chance(0.8))
    n.outs, n.many = (3 if kind == "LSTM" else 2), True
    ins = [n.x([s, b, i], "f32"), w(k, gates * hid, i), w(k, gates * hid, hid)]
    rest = [w(k, 2 * gates * hid), n.put(n.rng.integers(1, s + 1, [b]).astype("int32")), w(k, b, hid)] + ([w(k, b, hid), w(k, 3 * hid)] if kind == "LSTM" else [])
    rest = [x if n.chance(0.6) else "" for x in rest]
    more = {"direction": d, "hidden_size": hid}
    if kind == "GRU" and n.chance():
        more["linear_before_reset"] = 1
    if n.chance(0.2):
        more["clip"] = 0.5
    if kind == "RNN" and n.chance(0.3):
        more["activations"] = [n.pick("Relu", "Tanh", "Sigmoid")] * k
    while rest and not rest[-1]:
        rest.pop()
    used = {x for x in ins + rest if x}
    n.inputs = [v for v in n.inputs if v.name in used]
    n.feed = {a: v for a, v in n.feed.items() if a in used}
    n.inits = [v for v in n.inits if v.name in used]
    return ins + rest, more


@rows("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
def losses(n, kind):
    b, c, rest = n.pick(1, 2, 5), n.pick(2, 3, 7), n.shape(0, 2, False)
    t = n.pick("f32", "f32", "f64")
    labels = n.rng.integers(0, c, [b] + rest).astype(n.pick(np.int64, np.int32))
    ignore = n.pick(None, -1, 0)
    ins = [n.x([b, c] + rest, t), n.put(labels)] + ([n.x([c], t, 0.3, 2)] if n.chance(0.4) else [])
    return ins, {"reduction": n.pick("none", "sum", "mean"), **({"ignore_index": ignore} if ignore is not None else {})}


@rows("NonMaxSuppression")
def suppress(n, kind):
    b, c, k = n.pick(1, 2), n.pick(1, 3), n.pick(1, 5, 9)
    lo = n.rng.uniform(0, 4, [b, k, 2])
    boxes = np.concatenate([lo, lo + n.rng.uniform(0.5, 3, [b, k, 2])], 2).astype("float32")
    scores = n.rng.permutation(b * c * k).reshape(b, c, k).astype("float32") / (b * c * k)
    more = [n.const([n.pick(1, 2, 10)]), n.const([n.pick(0.3, 0.5)], "f32"), n.const([n.pick(0.1, 0.4)], "f32")][:n.r.randint(1, 3)]
    return [n.put(boxes), n.put(scores)] + more, {"center_point_box": n.r.randint(0, 1)}


@rows("Attention", "RotaryEmbedding")
def attention(n, kind):
    n.fixed = n.chance(0.7)
    n.opset = 23
    b, q, k, d = n.pick(1, 2), n.pick(1, 3, 8, 17), n.pick(1, 4, 9), n.pick(2, 4, 8)
    kv = n.pick(1, 2)
    heads, e = kv * n.pick(1, 2), n.pick(d, 6)
    t = n.pick("f32", "f32", "f16")
    if kind == "RotaryEmbedding":
        rot = n.pick(0, d // 2 * 2)
        half = (rot or d) // 2
        ins = [n.x([b, heads, q, d], t)]
        ins += [n.x([20, half], t, -1, 1), n.x([20, half], t, -1, 1), n.put(n.rng.integers(0, 20, [b, q]).astype("int64"))] if n.chance() else [n.x([b, q, half], t, -1, 1), n.x([b, q, half], t, -1, 1)]
        return ins, {"interleaved": n.r.randint(0, 1), **({"rotary_embedding_dim": rot, "num_heads": heads} if rot else {})}
    flat = n.chance(0.3)
    shape = (lambda hh, s, w: [b, s, hh * w]) if flat else (lambda hh, s, w: [b, hh, s, w])
    ins, past = [n.x(shape(heads, q, d), t), n.x(shape(kv, k, d), t), n.x(shape(kv, k, e), t)], n.pick(0, 0, 3)
    more = {"q_num_heads": heads, "kv_num_heads": kv} if flat else {}
    if n.chance(0.5):
        mask = n.values([q, k + past], n.pick("bool", t), whole=False)
        ins.append(n.put(mask if mask.dtype != bool else mask | np.eye(q, k + past, dtype=bool) | (np.arange(k + past) == 0)))
    elif past:
        ins.append("")
    if past:
        ins += [n.x([b, kv, past, d], t), n.x([b, kv, past, e], t)]
        n.outs, n.many = 3, True
    if n.chance(0.3):
        more["is_causal"] = 1
    if n.chance(0.3):
        more["scale"] = 0.3
    if n.chance(0.2):
        more["softcap"] = 5.0
    return ins, more


# --- bodies, sequences -----------------------------------------------------------------------------------------------------------------------

def info(name, t, shape):
    return h.make_tensor_value_info(name, T[t], shape)


@rows("Scan")
def scan(n, kind):
    s, w = n.size(False), n.shape(0, 2, False)
    x = lambda name: f"{name}{n.at}"
    body = h.make_graph([h.make_node(n.pick("Add", "Mul", "Max"), [x("a"), x("b")], [x("c")]), h.make_node("Tanh", [x("c")], [x("d")])], "body",
                        [info(x("a"), "f32", w), info(x("b"), "f32", w)], [info(x("d"), "f32", w), info(x("c"), "f32", w)])
    n.outs, n.many = 2, True
    return [n.x(w, "f32"), n.x([s] + w, "f32")], {"body": body, "num_scan_inputs": 1, **({"scan_input_directions": [1]} if n.chance(0.3) else {}), **({"scan_output_directions": [1]} if n.chance(0.3) else {})}


@rows("Loop")
def loop(n, kind):
    w, x = n.shape(0, 2, False), lambda name: f"{name}{n.at}"
    ends = n.chance(0.4)
    limit = h.make_node("Less", [x("i"), x("lim")], [x("c2")])
    nodes = [h.make_node("Cast", [x("i")], [x("f")], to=1), h.make_node("Add", [x("a"), x("f")], [x("s")]), h.make_node("Sin", [x("s")], [x("a2")])]
    nodes += [h.make_node("Constant", [], [x("lim")], value=numpy_helper.from_array(np.asarray(n.r.randint(0, 4), np.int64))), limit] if ends else [h.make_node("Identity", [x("c")], [x("c2")])]
    stacked = n.chance()
    body = h.make_graph(nodes, "body", [info(x("i"), "i64", []), info(x("c"), "bool", []), info(x("a"), "f32", w)],
                        [info(x("c2"), "bool", []), info(x("a2"), "f32", w)] + ([info(x("s"), "f32", w)] if stacked else []))
    n.outs, n.many = (2 if stacked else 1), True
    return [n.side(n.r.randint(0, 6)), n.const(not n.chance(0.1), "bool") if n.chance() else "", n.x(w, "f32")], {"body": body}


@rows("If")
def branch(n, kind):
    w, x = n.shape(0, 2), lambda name: f"{name}{n.at}"
    a = n.x(w, "f32")
    bodies = [h.make_graph([h.make_node(n.pick("Sin", "Neg", "Relu"), [a], [x(f"b{i}")])], "b", [], [info(x(f"b{i}"), "f32", w)]) for i in range(2)]
    return [n.side(n.chance(), "bool")], {"then_branch": bodies[0], "else_branch": bodies[1]}


@rows("SplitToSequence")
def sequence(n, kind):
    """Cut, then joined again, one of them, or their number."""
    n.fixed = True
    s = n.shape(1, 3, False)
    a, axis = n.axis(s)
    keep = n.r.randint(0, 1)
    parts = []
    left = s[a]
    while left:
        parts.append(n.r.randint(1, left))
        left -= parts[-1]
    split = n.pick("none", "one", "list")
    ins = [n.x(s, n.pick("f32", "i64"))] + ([n.const(n.r.randint(1, s[a]))] if split == "one" else [n.const(parts)] if split == "list" else [])
    x = lambda name: f"{name}{n.at}"
    way = n.pick("join", "at", "length")
    if way == "join":
        after = [h.make_node("ConcatFromSequence", [x("seq")], [x("out")], **({"axis": axis, "new_axis": 0} if keep or split != "none" else {"axis": 0, "new_axis": 1}))]
    elif way == "at":
        after = [h.make_node("Constant", [], [x("k")], value=numpy_helper.from_array(np.asarray(n.pick(0, -1), np.int64))), h.make_node("SequenceAt", [x("seq"), x("k")], [x("out")])]
    else:
        after = [h.make_node("SequenceLength", [x("seq")], [x("out")])]
    n.after = (x("seq"), after, x("out"))
    return ins, {"axis": axis, "keepdims": keep} if split == "none" else {"axis": axis}
