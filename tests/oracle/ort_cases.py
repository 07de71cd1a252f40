#!/usr/bin/env python3
"""Writes test cases for what ONNX's backend suite lacks, with onnxruntime's results as expected
outputs: com.microsoft operators, sizes that the model leaves open, loops too long to unroll.

    ort_cases.py FOLDER     FOLDER/<case>/{model.onnx,test_data_set_0/{input,output}_N.pb}

The layout is that of ONNX's backend test suite, so the same runners read both. A case that this
onnxruntime refuses is reported and skipped.
"""
import json
import os
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"
rng = np.random.default_rng(7)
cases = []


def f32(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def i32(*values):
    return np.array(values, dtype=np.int32)


def case(name, op, inputs, nout, domain=MS, fixed=(), outputs=None, free=None, **attrs):
    """inputs: arrays, or None for absent ones; fixed: numbers of inputs that become initializers;
    free: {input: {axis: name}}, dimensions that the model leaves open."""
    cases.append((name, op, inputs, nout, domain, set(fixed), outputs, free or {}, attrs))


def standard(name, op, inputs, nout=1, **kw):
    """An operator of ai.onnx."""
    case(name, op, inputs, nout, domain="", **kw)


def declared(x, free):
    return [free.get(axis, size) for axis, size in enumerate(x.shape)]


# Both sides compute in f32 and add up to a hundred products of a few units: each is wrong by some of f32's 6e-8 of
# the largest element.


def tolerance(outputs):
    floats = [np.abs(x).max(initial=0) for x in outputs if x.dtype.kind == "f"]
    return {"rtol": 4e-6, "atol": 2e-6 * float(np.max(floats, initial=0))}


def write(folder, name, op, inputs, nout, domain, fixed, outputs, free, attrs):
    names = ["" if x is None else f"in{i}" for i, x in enumerate(inputs)]
    outs = [f"out{i}" if outputs is None or i in outputs else "" for i in range(nout)]
    node = helper.make_node(op, names, outs, domain=domain, **attrs)
    elem = lambda x: helper.np_dtype_to_tensor_dtype(x.dtype)
    used = [i for i, n in enumerate(names) if n and i not in fixed]
    given = [(names[i], inputs[i]) for i in used]
    consts = [numpy_helper.from_array(inputs[i], names[i]) for i in sorted(fixed)]
    infos = [helper.make_tensor_value_info(names[i], elem(inputs[i]),
                                           declared(inputs[i], free.get(i, {}))) for i in used]
    # Output types are left to onnxruntime; they are filled in from its results.
    results = [helper.make_empty_tensor_value_info(o) for o in outs if o]
    graph = helper.make_graph([node], name, infos, results, consts)
    imports = [helper.make_opsetid("", 23), helper.make_opsetid(MS, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    got = session.run(None, dict(given))
    for info, value in zip(model.graph.output, got):
        shape = [None] * value.ndim if free else value.shape
        info.CopyFrom(helper.make_tensor_value_info(info.name, elem(value), shape))
    data = os.path.join(folder, name, "test_data_set_0")
    os.makedirs(data, exist_ok=True)
    with open(os.path.join(folder, name, "data.json"), "w") as f:
        json.dump(tolerance(got), f)
    onnx.save(model, os.path.join(folder, name, "model.onnx"))
    for kind, values in (("input", [x for _, x in given]), ("output", got)):
        for i, value in enumerate(values):
            with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as f:
                f.write(numpy_helper.from_array(value).SerializeToString())


# ---- activations, norms, products ---------------------------------------------------------------
case("gelu", "Gelu", [f32(3, 5)], 1)
case("bias_gelu", "BiasGelu", [f32(3, 8), f32(8)], 1)
case("fast_gelu", "FastGelu", [f32(3, 8)], 1)
case("fast_gelu_bias", "FastGelu", [f32(3, 8), f32(8)], 1)
case("quick_gelu", "QuickGelu", [f32(3, 8)], 1, alpha=1.5)
case("skip_layer_norm", "SkipLayerNormalization",
     [f32(2, 3, 8), f32(2, 3, 8), f32(8), f32(8), f32(8)], 4, outputs={0, 3}, epsilon=1e-5)
case("skip_layer_norm_broadcast", "SkipLayerNormalization",
     [f32(2, 3, 8), f32(1, 3, 8), f32(8)], 1)
case("skip_rms_norm", "SkipSimplifiedLayerNormalization",
     [f32(2, 3, 8), f32(2, 3, 8), f32(8)], 4, outputs={0, 3}, epsilon=1e-6)
case("rms_norm", "SimplifiedLayerNormalization", [f32(2, 3, 8), f32(8)], 1, domain="",
     epsilon=1e-6, axis=-1)
case("embed_layer_norm", "EmbedLayerNormalization",
     [rng.integers(0, 10, (2, 4)).astype(np.int32), rng.integers(0, 2, (2, 4)).astype(np.int32),
      f32(10, 8), f32(6, 8), f32(2, 8), f32(8), f32(8),
      i32(1, 1, 1, 0, 1, 1, 0, 0).reshape(2, 4)], 2, epsilon=1e-5)
for name, a, b, attrs in [
    ("plain", (2, 3, 4), (2, 4, 5), {}),
    ("alpha", (2, 3, 4), (4, 5), {"alpha": 0.5}),
    ("trans", (2, 4, 3), (2, 5, 4), {"transA": 1, "transB": 1}),
    ("batch_a", (3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
    ("batch_b", (2, 3, 4), (5, 2, 4), {"transBatchB": 1, "transB": 1}),
]:
    case(f"fused_matmul_{name}", "FusedMatMul", [f32(*a), f32(*b)], 1, **attrs)
case("fused_gemm_relu", "FusedGemm", [f32(3, 4), f32(5, 4), f32(5)], 1, transB=1, alpha=0.5,
     beta=2.0, activation="Relu")
case("fused_gemm_leaky", "FusedGemm", [f32(3, 4), f32(4, 5), f32(3, 1)], 1,
     activation="LeakyRelu", activation_alpha=0.1)
case("fused_conv", "FusedConv", [f32(1, 4, 6, 6), f32(8, 2, 3, 3), f32(8)], 1, group=2,
     pads=[1, 1, 1, 1], activation="Relu")
case("fused_conv_sum", "FusedConv", [f32(1, 3, 6, 6), f32(4, 3, 3, 3), f32(4), f32(1, 4, 6, 6)], 1,
     pads=[1, 1, 1, 1], activation="HardSigmoid", activation_params=[0.2, 0.4])


def nbits(name, bits, block, k, n, zero, bias=False, rows=3, free=None, groups=None):
    """groups: None where blocks lie in the order of columns, else how many entries g_idx has."""
    blocks = -(-k // block)
    b = rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    scales = f32(n * blocks, scale=0.1)
    row = (blocks * bits + 7) // 8
    zeros = {"none": None, "packed": rng.integers(0, 256, (n * row,)).astype(np.uint8),
             "float": f32(n * blocks, scale=4)}[zero]
    inputs = [f32(rows, k), b, scales, zeros]
    if bias or groups:
        inputs += [rng.permutation(groups).astype(np.int32) * blocks // groups if groups else None]
    if bias:
        inputs += [f32(n)]
    fixed = [i for i in (1, 2, 3, 4, 5) if i < len(inputs) and inputs[i] is not None]
    case(f"matmul_nbits_{name}", "MatMulNBits", inputs, 1, fixed=fixed, bits=bits,
         block_size=block, K=k, N=n, free=free)


nbits("4", 4, 32, 64, 8, "none")
nbits("4_zero", 4, 16, 48, 5, "packed")
nbits("4_float_zero", 4, 16, 48, 5, "float")
nbits("4_tail", 4, 32, 40, 6, "packed", bias=True)
nbits("8", 8, 32, 64, 8, "packed")
nbits("2", 2, 32, 64, 8, "none")
# From 16 columns on a CPU keeps the bits: one tile of rows, several, as many as the run says.
for block in (16, 32, 64, 128, 256):
    nbits(f"4_kept_{block}", 4, block, 256, 64, "none", rows=1)
    nbits(f"4_kept_{block}_zero", 4, block, 320, 53, "packed", rows=7)
    nbits(f"4_kept_{block}_many", 4, block, 272, 100, "packed", rows=19, bias=True)
for rows in (1, 4, 9):
    nbits(f"4_kept_open_{rows}", 4, 32, 200, 80, "packed", rows=rows, free={0: {0: "rows"}})
    nbits(f"4_kept_float_{rows}", 4, 64, 203, 49, "float", rows=rows, free={0: {0: "rows"}})
nbits("8_kept", 8, 32, 164, 50, "packed", rows=2)
nbits("2_kept", 2, 64, 208, 97, "packed", rows=2)

# Columns whose groups are not their blocks (g_idx). onnxruntime 1.31 then takes 8 for packed zero points, whatever they
# say; tests/cli/few_bits.py holds those to the formula.
nbits("4_groups", 4, 32, 128, 24, "none", groups=128)
nbits("4_groups_16", 4, 16, 96, 53, "none", groups=96)
nbits("4_groups_tail", 4, 32, 200, 49, "none", rows=9, bias=True, groups=224)
nbits("4_groups_float", 4, 32, 200, 49, "float", groups=200, free={0: {0: "rows"}})

for zero in (False, True):
    packed = rng.integers(0, 256, (6, 24)).astype(np.uint8)
    zeros = rng.integers(0, 256, (6, 2)).astype(np.uint8) if zero else None
    inputs = [packed, np.array([[0, 5], [3, 3]]), f32(6, 3), zeros]
    case(f"gather_block_quantized_{int(zero)}", "GatherBlockQuantized", inputs, 1, bits=4,
         block_size=16, gather_axis=0, quantize_axis=1, fixed=(0, 2, 3) if zero else (0, 2))

# ---- quantised tensors --------------------------------------------------------------------------
u8 = lambda *shape: rng.integers(0, 256, shape).astype(np.uint8)
one, at = lambda v: np.array(v, np.float32), lambda v: np.array(v, np.uint8)
a, b = [u8(2, 3, 4), one(0.03), at(120)], [u8(3, 4), one(0.05), at(90)]
case("qlinear_add", "QLinearAdd", [*a, *b, one(0.071), at(110)], 1)
case("qlinear_mul", "QLinearMul", [*a, *b, one(0.171), at(110)], 1)
case("qlinear_where", "QLinearWhere", [rng.random((2, 3, 4)) < 0.5, *a, *b, one(0.071), at(110)], 1)
case("qlinear_sigmoid", "QLinearSigmoid", [*a, one(0.0041), at(3)], 1)
case("qlinear_leaky_relu", "QLinearLeakyRelu", [*a, one(0.023), at(30)], 1, alpha=0.2)
case("qlinear_pool", "QLinearGlobalAveragePool",
     [u8(2, 3, 4, 5), one(0.03), at(120), one(0.011), at(100)], 1)
for last in (0, 1):
    pooled = u8(2, 7, 6, 3) if last else u8(2, 3, 7, 6)
    case(f"qlinear_average_pool_{last}", "QLinearAveragePool", [pooled, one(0.03), at(120), one(0.0217), at(100)], 1,
         channels_last=last, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], fixed=(1, 2, 3, 4))
case("qlinear_average_pool_padded", "QLinearAveragePool", [u8(1, 2, 9, 8), one(0.03), at(120), one(0.0217), at(100)], 1,
     count_include_pad=1, kernel_shape=[3, 3], strides=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1, fixed=(1, 2, 3, 4))
case("qlinear_concat", "QLinearConcat", [one(0.061), at(99), *a, u8(2, 1, 4), one(0.04), at(80)], 1,
     axis=1, fixed=(0, 1, 3, 4, 6, 7))
case("matmul_integer_to_float", "MatMulIntegerToFloat",
     [u8(3, 4), u8(4, 5), one(0.1), f32(5) ** 2, at(7), u8(5), f32(5)], 1)
case("dynamic_quantize_matmul", "DynamicQuantizeMatMul",
     [f32(3, 4), u8(4, 5), one(0.1), at(9), f32(5)], 1, fixed=(1, 2, 3))
case("qgemm", "QGemm", [u8(3, 4), one(0.1), at(7), u8(5, 4), f32(5) ** 2, u8(5),
                        rng.integers(-900, 900, 5).astype(np.int32), one(31.7), at(128)], 1,
     transB=1, alpha=0.7)
case("qgemm_float", "QGemm", [u8(3, 4), one(0.1), at(7), u8(4, 5), one(0.2), at(130)], 1)

# ---- mixtures of experts: 6 tokens, 4 experts, hidden 32, inner 64 --------------------------------
tokens, router = f32(6, 32), f32(6, 4)
for name, inner, extra in (
    ("relu", 64, {}),
    ("silu", 64, {"activation_type": "silu", "normalize_routing_weights": 1}),
    ("swiglu", 128, {"activation_type": "swiglu", "swiglu_fusion": 1, "swiglu_limit": 1.5,
                     "activation_alpha": 1.702, "activation_beta": 1.0,
                     "normalize_routing_weights": 1}),
):
    case(f"moe_{name}", "MoE", [tokens, router, f32(4, inner, 32, scale=0.2), f32(4, inner),
                                f32(4, 32, 64, scale=0.2), f32(4, 32)], 1, k=2, **extra)
    # onnxruntime rounds activations to 8 bits for 8-bit blocks, so that form has no exact reference.
    for bits, block in ((4, 0), (4, 32), (8, 0)):
        scale = lambda n, k: f32(4, n, k // 32, scale=0.02) if block else f32(4, n, scale=0.02)
        more = {"block_size": block, "accuracy_level": 1} if block else {}
        case(f"qmoe_{name}_{bits}_{block}", "QMoE",
             [tokens, router, u8(4, inner, 32 * bits // 8), scale(inner, 32), f32(4, inner),
              u8(4, 32, 64 * bits // 8), scale(32, 64), f32(4, 32)], 1, k=2,
             fixed=(2, 3, 4, 5, 6, 7), expert_weight_bits=bits, **more,
             **{**extra, "normalize_routing_weights": 1})

# ---- rotary embedding ---------------------------------------------------------------------------
angles = np.outer(np.arange(16), 1 / 100 ** (np.arange(4) / 4))
cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
first, rows = np.array([3], np.int64), np.array([[0, 1, 2], [4, 5, 9]], np.int64)
case("rotary_3d", "RotaryEmbedding", [f32(2, 3, 16), rows, cos, sin], 1)
case("rotary_3d_first", "RotaryEmbedding", [f32(2, 3, 16), first, cos, sin], 1)
case("rotary_4d_interleaved", "RotaryEmbedding", [f32(2, 2, 3, 8), rows, cos, sin], 1,
     interleaved=1)
case("rotary_partial", "RotaryEmbedding", [f32(2, 3, 20), rows, cos, sin], 1, num_heads=2,
     rotary_embedding_dim=8)

# ---- attention ----------------------------------------------------------------------------------
B, S, T, H, D = 2, 3, 5, 2, 4
q, k, v = f32(B, S, H * D), f32(B, T, H * D), f32(B, T, H * D)
padding = i32(1, 1, 1, 1, 0, 1, 1, 0, 0, 0).reshape(B, T)
case("mha", "MultiHeadAttention", [q, k, v], 1, num_heads=H)
case("mha_bias", "MultiHeadAttention", [q, k, v, f32(3 * H * D)], 1, num_heads=H)
case("mha_padding", "MultiHeadAttention", [q, k, v, None, padding], 1, num_heads=H)
case("mha_lengths", "MultiHeadAttention", [q, k, v, None, i32(4, 2)], 1, num_heads=H)
case("mha_bias_tensor", "MultiHeadAttention", [q, k, v, None, None, f32(B, H, S, T)], 1,
     num_heads=H, scale=0.3)
case("mha_bias_broadcast", "MultiHeadAttention", [q, k, v, None, None, f32(1, 1, S, T)], 1,
     num_heads=H)
case("mha_causal_past", "MultiHeadAttention",
     [q, f32(B, S, H * D), f32(B, S, H * D), None, None, None, f32(B, H, T, D), f32(B, H, T, D)],
     3, num_heads=H, unidirectional=1)
case("mha_cross", "MultiHeadAttention", [q, f32(B, H, T, D), f32(B, H, T, D)], 1, num_heads=H)

x, w, b = f32(B, S, 6), f32(6, 3 * H * D), f32(3 * H * D)
case("attention", "Attention", [x, w, b], 1, num_heads=H)
case("attention_mask", "Attention", [x, w, b, i32(1, 1, 0, 1, 1, 1).reshape(B, S)], 1, num_heads=H)
case("attention_mask_ends", "Attention", [x, w, b, i32(3, 2)], 1, num_heads=H)
case("attention_mask_spans", "Attention", [x, w, b, i32(3, 2, 0, 1)], 1, num_heads=H)
case("attention_mask_3d", "Attention",
     [x, w, b, rng.integers(0, 2, (B, S, S)).astype(np.int32) | np.eye(S, dtype=np.int32)], 1,
     num_heads=H)
case("attention_causal_past", "Attention", [x, w, b, None, f32(2, B, H, T, D)], 2, num_heads=H,
     unidirectional=1)
case("attention_bias", "Attention", [x, w, b, None, None, f32(B, H, S, S)], 1, num_heads=H)
case("attention_sizes", "Attention", [x, f32(6, 8 + 8 + 12), f32(28)], 1, num_heads=H,
     qkv_hidden_sizes=[8, 8, 12])

KV, H, D = 2, 4, 16
angles = np.outer(np.arange(16), 1 / 100 ** (np.arange(D // 2) / (D // 2)))
cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def gqa(name, s, past, total, lengths, extra=(), packed=False, nout=3, **attrs):
    """past: length of the cache given, lengths: tokens of each sequence in the end."""
    width = (H + 2 * KV) * D if packed else H * D
    cache = f32(2, B, KV, past, D)
    for b, n in enumerate(lengths):  # what lies behind a sequence is undefined; here it is 0
        cache[:, b, :, 0 if s == total else n - s:] = 0
    kv = [None, None] if packed else [f32(B, s, KV * D), f32(B, s, KV * D)]
    inputs = [f32(B, s, width), *kv, cache[0], cache[1],
              i32(*[n - 1 for n in lengths]), i32(total), *extra]
    case(f"gqa_{name}", "GroupQueryAttention", inputs, nout, fixed=(6,), num_heads=H,
         kv_num_heads=KV, **attrs)


gqa("prompt", 4, 0, 4, [4, 4])
gqa("prompt_shared", 4, 8, 4, [4, 4])
gqa("decode", 1, 5, 6, [6, 6])
gqa("decode_ragged", 1, 5, 6, [6, 4])
gqa("decode_shared", 1, 8, 6, [6, 4])
gqa("packed", 1, 5, 6, [6, 6], packed=True)
gqa("rotary", 1, 5, 6, [6, 4], extra=(cos, sin), do_rotary=1)
gqa("rotary_prompt", 4, 0, 4, [4, 4], extra=(cos, sin), do_rotary=1, rotary_interleaved=1)
gqa("window", 1, 5, 6, [6, 6], local_window_size=3)
gqa("window_prompt", 4, 0, 4, [4, 4], local_window_size=2)
gqa("softcap", 4, 0, 4, [4, 4], softcap=5.0, scale=0.7)
gqa("smooth", 4, 0, 4, [4, 4], smooth_softmax=1)
gqa("sink", 4, 0, 4, [4, 4], extra=(None, None, None, None, f32(H)))
gqa("bias", 4, 0, 4, [4, 4], extra=(None, None, None, f32(B, 1, 4, 4)))
gqa("rotary_positions", 2, 0, 2, [2, 2], do_rotary=1,
    extra=(cos, sin, np.array([[1, 2], [1, 2]], np.int64)))

for n in (1, 2, 3, 5, 8):
    standard(f"det_{n}", "Det", [f32(3, n, n)])
for name, equation, *shapes in (("trace", "ii", (3, 3)), ("diagonal_rows", "iij", (3, 3, 4)),
                                ("trace_of_two", "ii,ij", (3, 3), (3, 4))):
    standard(f"einsum_{name}", "Einsum", [f32(*shape) for shape in shapes], equation=equation)

# ---- open sizes ---------------------------------------------------------------------------------
image, hw = f32(2, 3, 7, 10), {0: {0: "n", 2: "h", 3: "w"}}
for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
    standard(f"open_conv_{mode.lower()}", "Conv", [image, f32(4, 3, 3, 3), f32(4)], fixed=(1, 2),
             free=hw, auto_pad=mode, strides=[2, 2])
    standard(f"open_max_pool_{mode.lower()}", "MaxPool", [image], free=hw, auto_pad=mode,
             kernel_shape=[3, 2], strides=[2, 3])
standard("open_conv_pads", "Conv", [image, f32(6, 1, 3, 3)], fixed=(1,), free=hw, group=3,
         pads=[1, 0, 2, 1], dilations=[2, 1])
standard("open_conv_transpose", "ConvTranspose", [image, f32(3, 4, 3, 3), f32(4)], fixed=(1, 2),
         free=hw, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
standard("open_conv_transpose_tiling", "ConvTranspose", [image, f32(3, 4, 2, 2)], fixed=(1,),
         free=hw, strides=[2, 2])
standard("conv_transpose_longer", "ConvTranspose", [f32(1, 2, 4, 5), f32(2, 3, 1, 2)], strides=[2, 3],
         output_shape=[8, 16])  # than the full result: by zeros behind it
for have, wanted in (((2, 8), [2, 1]), ((2, 8), [1, 1]), ((2, 8), [2, 8]), ((1, 8), [3, 1]), ((1, 1), [3, 4]), ((3, 1), [2, 3, 4]), ((1, 8), [0, 8])):
    standard("open_expand_" + "".join(map(str, (*have, *wanted))), "Expand", [f32(*have), np.array(wanted, np.int64)], free={0: {0: "n", 1: "m"}})
standard("open_max_pool_ceil", "MaxPool", [image], 2, free=hw, kernel_shape=[3, 3],
         strides=[2, 2], ceil_mode=1, pads=[1, 1, 1, 1])
for include in (0, 1):
    standard(f"open_average_pool_{include}", "AveragePool", [image], free=hw, kernel_shape=[3, 3],
             strides=[2, 2], ceil_mode=1, pads=[1, 1, 1, 1], count_include_pad=include)
standard("open_instance_norm", "InstanceNormalization", [image, f32(3), f32(3)], free=hw)
standard("open_layer_norm", "LayerNormalization", [f32(2, 5, 8), f32(8), f32(8)],
         free={0: {0: "b", 1: "s"}})
standard("open_group_norm", "GroupNormalization", [f32(2, 4, 3, 5), f32(4), f32(4)],
         free={0: {0: "n", 2: "h", 3: "w"}}, num_groups=2)
standard("open_lrn", "LRN", [image], free=hw, size=3)
standard("open_batch_norm", "BatchNormalization",
         [image, f32(3), f32(3), f32(3), np.abs(f32(3)) + 0.5], free=hw)
for mode in ("nearest", "linear", "cubic"):
    for scale in (2.0, 0.5, 1.5):
        standard(f"open_resize_{mode}_{scale}", "Resize",
                 [image, None, np.array([1, 1, scale, scale], np.float32)], fixed=(2,), free=hw,
                 mode=mode)
standard("open_resize_sizes", "Resize", [image, None, None, np.array([2, 3, 9, 4])], free=hw,
         mode="linear", coordinate_transformation_mode="align_corners")
standard("open_grid_sample", "GridSample", [image, f32(2, 4, 5, 2)],
         free={**hw, 1: {0: "n", 1: "gh", 2: "gw"}}, padding_mode="reflection")
bst = {0: {0: "b", 2: "s"}, 1: {0: "b", 2: "t"}, 2: {0: "b", 2: "t"}}
standard("open_attention", "Attention", [f32(2, 4, 3, 8), f32(2, 2, 5, 8), f32(2, 2, 5, 6)],
         free=bst)
standard("open_attention_mask", "Attention",
         [f32(2, 4, 3, 8), f32(2, 2, 5, 8), f32(2, 2, 5, 6), rng.random((3, 5)) < 0.7],
         free={**bst, 3: {0: "s", 1: "t"}}, softcap=2.0)
standard("open_attention_past", "Attention",
         [f32(2, 3, 16), f32(2, 3, 8), f32(2, 3, 8), None, f32(2, 1, 4, 8), f32(2, 1, 4, 8)], 3,
         free={0: {0: "b", 1: "s"}, 1: {0: "b", 1: "s"}, 2: {0: "b", 1: "s"},
               4: {0: "b", 2: "p"}, 5: {0: "b", 2: "p"}},
         q_num_heads=2, kv_num_heads=1, is_causal=1)
standard("open_rotary", "RotaryEmbedding", [f32(2, 3, 32), cos, sin, rows], num_heads=2,
         free={0: {0: "b", 1: "s"}, 3: {0: "b", 1: "s"}})
standard("open_cross_entropy", "SoftmaxCrossEntropyLoss",
         [f32(4, 5, 3), rng.integers(0, 5, (4, 3))], 2, free={0: {0: "n", 2: "d"}, 1: {0: "n", 1: "d"}},
         ignore_index=2)
standard("open_quantize", "QuantizeLinear", [f32(3, 8), f32(8) ** 2 + 0.1, np.arange(8, dtype=np.uint8)],
         free={0: {0: "n"}}, axis=1)
standard("saturated_quantize", "QuantizeLinear",
         [np.float32([np.inf, -np.inf, 3e38, 1e10, 1.1e9, -1e10, 127.25, 127.5, 127.75, -0.25] * 5),
          np.array(0.5, np.float32), np.array(0, np.uint8)])

# ---- recurrences longer than what is unrolled, and of open length -------------------------------
for op, gates, states in (("RNN", 1, 1), ("GRU", 3, 1), ("LSTM", 4, 2)):
    for direction, n in (("forward", 1), ("bidirectional", 2)):
        for name, steps, free in (("long", 70, None), ("open", 5, {0: {0: "t", 1: "b"}})):
            x = f32(steps, 2, 3)
            weights = [f32(n, gates * 4, 3, scale=0.5), f32(n, gates * 4, 4, scale=0.5),
                       f32(n, gates * 8, scale=0.5)]
            standard(f"{name}_{op.lower()}_{direction}", op, [x, *weights], states + 1, free=free,
                     hidden_size=4, direction=direction)
standard("long_lstm_lengths", "LSTM",
         [f32(70, 2, 3), f32(1, 16, 3), f32(1, 16, 4), f32(1, 32), i32(70, 33), f32(1, 2, 4),
          f32(1, 2, 4), f32(1, 12)], 3, hidden_size=4, direction="reverse")


def write_all(folder, skipped):
    for n, ci, co, size in ((2, 33, 50, 6), (5, 33, 50, 6), (9, 64, 64, 9), (30, 64, 64, 9)):  # tiles of Winograd's form, of which the last is not full
        standard(f"conv_open_{n}_{ci}x{co}x{size}", "Conv", [f32(n, ci, size, size), f32(co, ci, 3, 3)], fixed=(1,), free={0: {0: "n"}}, pads=[1, 1, 1, 1])
    for c in cases:
        try:
            write(folder, *c)
        except Exception as e:  # onnxruntime's own exceptions have no common base
            skipped.append(f"{c[0]}: {str(e).splitlines()[0][:200]}")


def main():
    skipped = []
    write_all(sys.argv[1], skipped)
    print(*skipped, f"{len(cases) - len(skipped)} cases in {sys.argv[1]}, {len(skipped)} skipped", sep="\n")


if __name__ == "__main__":
    main()
