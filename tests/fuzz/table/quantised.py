"""Rows of quantisation, and of onnxruntime's own domain."""
import numpy as np

from .node import NP, rows
from .sums import window


# --- quantisation -------------------------------------------------------------------------------------------------------------

@rows("QuantizeLinear", "DequantizeLinear")
def quantise(n, kind):
    q = n.pick("u8", "i8", *(["u16", "i16"] if n.opset >= 21 else []), *(["i32"] if kind[0] == "D" else []))
    s = n.shape(1, 4)
    a, axis = n.axis(s)
    per, blocked = n.chance(0.4), n.opset >= 21 and n.chance(0.2)
    shape, more = ([s[a]] if per else []), ({"axis": axis} if per else {})
    if blocked and s[a]:
        b = n.pick(1, 2, 3, s[a])
        shape, more = s[:a] + [-(-s[a] // b)] + s[a + 1:], {"axis": axis, "block_size": b}
    t = n.pick("f32", "f32", "f16") if n.opset >= 19 else "f32"
    scale = n.put(np.asarray(2.0 ** -n.rng.integers(0, 5, shape), NP[t]), n.chance(0.8))
    zero = [] if q == "i32" else [n.x(shape, q, 0, 9, constant=n.chance(0.8))]
    if kind[0] == "Q":
        return [n.put(np.asarray(n.values(s, t, -300, 300, whole=True) * np.asarray(0.25, NP[t]))), scale] + zero, more
    return [n.x(s, q, -100, 100), scale] + zero, more


@rows("DynamicQuantizeLinear")
def dynamic(n, kind):
    n.outs, n.many = 3, True
    x = n.values(n.shape(1, 3, False), "f32", -3, 4, whole=False)
    x.ravel()[:1] = n.pick(0, 255 / 16) if x.size > 1 else 255 / 16  # of zeros alone, onnxruntime gives the scale 1, ONNX 0
    return [n.put(x)], {}


@rows("QLinearMatMul", "QLinearConv")
def qlinear(n, kind):
    a = n.pick("u8", "i8")
    b, scale = (n.pick("u8", "i8") if a == "u8" else "i8"), lambda *s: n.put(np.asarray(2.0 ** -n.rng.integers(3, 7, s), "float32"), True)
    if kind == "QLinearMatMul":
        k, w = n.size(False), n.size(False)
        return [n.x(n.shape(1, 2, False) + [k], a, 0, 20), scale(), n.const(3, a), n.x([k, w], b, -9, 9), scale(), n.const(1, b), scale(), n.const(2, a)], {}
    size, kernel, c, o = [8, n.pick(5, 9)], [n.pick(1, 3), n.pick(2, 3)], n.pick(1, 3, 4), n.pick(2, 5, 8)
    per = n.chance()
    ins = [n.x([2, c] + size, a, 0, 20), scale(), n.const(3, a), n.x([o, c] + kernel, b, -9, 9, constant=True), scale(*([o] if per else [])),
           n.const(np.zeros([o] if per else []), b), scale(), n.const(2, a)]
    return ins + ([n.x([o], "i32", -50, 50, constant=True)] if n.chance() else []), window(n, 2, size, kernel)


# --- com.microsoft ------------------------------------------------------------------------------------------------------------------------

@rows("BiasGelu", "FastGelu", "QuickGelu", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "FusedMatMul", "MatMulNBits", "MultiHeadAttention",
      "GroupQueryAttention", "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "FusedConv")
def microsoft(n, kind):
    n.domain, n.fixed = "com.microsoft", n.chance(0.7)
    s, t = [n.pick(1, 2), n.pick(1, 3, 8), n.pick(4, 8, 16)], "f32"
    w = lambda *shape: n.x(shape, t, constant=True)
    if kind in ("BiasGelu", "FastGelu"):
        return [n.x(s, t), w(s[-1])], {}
    if kind == "QuickGelu":
        return [n.x(s, t)], {"alpha": n.pick(1.0, 1.702)}
    if kind[:4] == "Skip":
        ins = [n.x(s, t), n.x(s, t), w(s[-1])] + ([w(s[-1])] if kind == "SkipLayerNormalization" and n.chance() else [])
        return ins, {"epsilon": 1e-3}
    if kind == "FusedMatMul":
        ta, tb, k, m, o = n.r.randint(0, 1), n.r.randint(0, 1), n.size(False), n.size(False), n.size(False)
        return [n.x([2] + ([k, m] if ta else [m, k]), t), n.x([2] + ([o, k] if tb else [k, o]), t)], {"transA": ta, "transB": tb, "alpha": n.pick(1.0, 0.5)}
    if kind == "MatMulNBits":
        k, o, b = n.pick(16, 32, 40, 64), n.pick(1, 5, 16), n.pick(16, 32)
        nb = -(-k // b)
        ins = [n.x(s[:-1] + [k], t), n.put(n.rng.integers(0, 256, [o, nb, b // 2]).astype("uint8"), True), n.x([o * nb], t, 0.1, 1, constant=True)]
        if n.chance():
            ins.append(n.put(n.rng.integers(0, 256, [o * ((nb + 1) // 2)]).astype("uint8"), True))
        return ins, {"K": k, "N": o, "bits": 4, "block_size": b}
    if kind == "MultiHeadAttention":
        heads, b, q, k, d = n.pick(1, 2), s[0], s[1], n.pick(2, 5), 4
        ins = [n.x([b, q, heads * d], t), n.x([b, k, heads * d], t), n.x([b, k, heads * d], t)]
        if n.chance(0.4):
            ins.append(w(3 * heads * d))
        if n.chance(0.4):
            ins += [""] * (4 - len(ins)) + [n.put(np.maximum(n.rng.integers(0, 2, [b, k]), np.arange(k) == 0).astype("int32"))]
        elif n.chance(0.4):
            n.broadcasts = True  # over the batch
            ins += [""] * (5 - len(ins)) + [n.x([1, heads, q, k], t)]
        return ins, {"num_heads": heads, **({"unidirectional": 1} if n.chance(0.3) and q == k else {})}
    if kind == "GroupQueryAttention":
        kv, g, b, past, d = n.pick(1, 2), n.pick(1, 2), s[0], n.pick(0, 4), 8
        q = 1 if past else s[1]
        ins = [n.x([b, q, kv * g * d], t), n.x([b, q, kv * d], t), n.x([b, q, kv * d], t), n.x([b, kv, past, d], t), n.x([b, kv, past, d], t),
               n.put(np.full([b], past + q - 1, np.int32)), n.put(np.asarray(past + q, np.int32))]
        n.outs, n.many = 3, True
        rotary = n.chance(0.5)
        ins += [w(16, d // 2), w(16, d // 2)] if rotary else []
        return ins, {"num_heads": kv * g, "kv_num_heads": kv, **({"do_rotary": 1, "rotary_interleaved": n.r.randint(0, 1)} if rotary else {}), **({"local_window_size": 3} if n.chance(0.3) else {})}
    if kind == "FusedConv":
        return [n.x([1, 3, 8, 8], t), w(4, 3, 3, 3), w(4)], {"activation": n.pick("Relu", "Sigmoid", "Tanh"), "pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    q = n.pick("u8", "i8")
    scale = lambda *x: n.put(np.asarray(n.rng.uniform(0.03, 0.2, x), "float32"), True)
    if kind in ("QLinearAdd", "QLinearMul"):
        a, b = n.two(3)
        return [n.x(a, q, 0, 30), scale(), n.const(3, q), n.x(b, q, 0, 30), scale(), n.const(1, q), scale(), n.const(5, q)], {}
    if kind in ("QLinearSigmoid", "QLinearLeakyRelu"):
        return [n.x(s, q, 0, 30), scale(), n.const(3, q), scale(), n.const(5, q)], {"alpha": 0.25} if kind[-1] == "u" else {}
    k, o = s[-1], n.pick(1, 5, 16)
    if kind == "DynamicQuantizeMatMul":
        return [n.x(s, t), n.x([k, o], q, 0, 30, constant=True), w(1), n.const([3], q)], {}
    return [n.x(s, "u8", 0, 30), n.x([k, o], q, 0, 30, constant=True), w(1), w(1), n.const(3, "u8"), n.const(1, q)] + ([w(o)] if n.chance() else []), {}
