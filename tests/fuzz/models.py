"""The models whose mutants are tried: small, because every byte is."""
import json
import numpy as np
from onnx import TensorProto as T, helper as h, numpy_helper, save
from safetensors.numpy import save_file


def model(path, name, nodes, inputs, outputs, weights, opset=17):
    v = lambda t: h.make_tensor_value_info(t[0], T.FLOAT, t[1])
    init = [numpy_helper.from_array(a, n) for n, a in weights.items()]
    g = h.make_graph(nodes, name, [v(i) for i in inputs], [v(o) for o in outputs], init)
    save(h.make_model(g, opset_imports=[h.make_opsetid("", opset)], ir_version=8, producer_name=""), path)


def write(folder):
    """mlp.onnx, conv.onnx, attention.onnx; gives their paths."""
    rng = np.random.default_rng(0)
    w = lambda *s: (rng.standard_normal(s) / 2).astype(np.float32)
    n = h.make_node
    mlp = [n("MatMul", ["x", "w1"], ["a"]), n("Add", ["a", "b1"], ["b"]), n("Relu", ["b"], ["c"]),
           n("Gemm", ["c", "w2", "b2"], ["d"], transB=1), n("Softmax", ["d"], ["y"], axis=-1)]
    model(f"{folder}/mlp.onnx", "mlp", mlp, [("x", ["batch", 5])], [("y", ["batch", 3])],
          dict(w1=w(5, 7), b1=w(7), w2=w(3, 7), b2=w(3)))
    conv = [n("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
            n("BatchNormalization", ["a", "s", "t", "m", "v"], ["b"], epsilon=1e-3), n("Relu", ["b"], ["c"]),
            n("MaxPool", ["c"], ["d"], kernel_shape=[2, 2], strides=[1, 1]),
            n("GlobalAveragePool", ["d"], ["e"]), n("Flatten", ["e"], ["y"])]
    model(f"{folder}/conv.onnx", "conv", conv, [("x", ["batch", 2, 8, "width"])], [("y", ["batch", 4])],
          dict(w=w(4, 2, 3, 3), s=w(4), t=w(4), m=w(4), v=w(4) ** 2))
    split = lambda x, y: [n("Reshape", [x, "heads"], [x + "r"]), n("Transpose", [x + "r"], [y], perm=[0, 2, 1, 3])]
    attention = [n("LayerNormalization", ["x", "g", "h"], ["n"], axis=-1),
                 *(n("MatMul", ["n", "w" + i], [i]) for i in "qkv"),
                 *split("q", "qh"), *split("k", "kh"), *split("v", "vh"),
                 n("Transpose", ["kh"], ["kt"], perm=[0, 1, 3, 2]), n("MatMul", ["qh", "kt"], ["s"]),
                 n("Mul", ["s", "scale"], ["t"]), n("Softmax", ["t"], ["p"], axis=-1),
                 n("MatMul", ["p", "vh"], ["o"]), n("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
                 n("Reshape", ["ot", "flat"], ["of"]), n("Add", ["of", "x"], ["y"])]
    model(f"{folder}/attention.onnx", "attention", attention, [("x", [1, "seq", 4])], [("y", [1, "seq", 4])],
          dict(g=w(4), h=w(4), wq=w(4, 4), wk=w(4, 4), wv=w(4, 4), scale=np.float32(0.7),
               heads=np.array([0, 0, 2, 2]), flat=np.array([0, 0, 4])))
    return [f"{folder}/{m}.onnx" for m in ("mlp", "conv", "attention")]


def write_tensors(folder):
    """x.npy, x.pb, x.npz and x.safetensors in several types, tokens and an adapter's configuration; gives their paths."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(f"{folder}/x.npy", x)
    np.save(f"{folder}/b.npy", x > 3)
    paths = [f"{folder}/x.npy", f"{folder}/b.npy"]
    for i, t in enumerate((h.make_tensor("x", T.FLOAT, [3, 4], x.ravel()), numpy_helper.from_array(x, "x"),
                           h.make_tensor("x", T.INT4, [7], range(-3, 4)),
                           h.make_tensor("x", T.BFLOAT16, [2, 2], [1, 2, 3, 4]))):
        paths.append(f"{folder}/{i}.pb")
        open(paths[-1], "wb").write(t.SerializeToString())
    texts = {"t.jsonl": '{"input_ids": [1, 22, 3], "labels": [-100, 2, 3], "attention_mask": [0, 1, 1]}\n\n'
                        '{"text": "\\u00e9\\n", "input_ids": [99]}\n',
             "a.json": '{"peft_type": "LORA", "r": 4, "lora_alpha": 1.5e1, "target_modules": ["q_proj"], "bias": "all", "x": [{}],'
                       ' "alpha_pattern": {"layers\\\\.\\\\d+\\\\.(q|v)_proj": 2}, "use_dora": true, "task_type": null}'}
    for name, text in texts.items():
        paths.append(f"{folder}/{name}")
        open(paths[-1], "w").write(text)
    np.savez(f"{folder}/x.npz", x=x, y=x[0]), np.savez_compressed(f"{folder}/p.npz", x=np.zeros((40, 40), np.float32))
    paths += [f"{folder}/x.npz", f"{folder}/p.npz"]
    paths.append(f"{folder}/x.safetensors")
    save_file({"a.weight": x, "b": x > 3, "empty": x[:0], "step": np.array(7)}, paths[-1], {"format": "np"})
    return paths


ADAPTER = """{"peft_type": "LORA", "r": 2, "lora_alpha": 8, "lora_dropout": 0.1, "bias": "none", "use_rslora": false,
 "target_modules": ["q_proj", "up"], "modules_to_save": null, "rank_pattern": {"up": 1}, "alpha_pattern": {"layers\\\\.\\\\d+\\\\.up": 3},
 "base_model_name_or_path": "b\\u00e9", "task_type": "CAUSAL_LM", "layer_replication": null, "use_dora": %s}"""
CHECKPOINT = """step-00000007
 "version": 1, "step": 7, "tokens": 900, "epoch": 1, "position": 3, "waiting": 0, "loss": 2.5e-1, "best_loss": null,
 "options": {"lr": "0.1", "batch": "8"}, "files": {}}
"""
LOG = [dict(step=k, loss=3.0 / k, lr=1e-3, grad_norm=k, tokens=64 * k, tokens_per_s=1e4, peak_bytes=1 << 20) for k in (1, 2, 3)]
YAML = """---
lr: 1e-3   # comment
data: [a.jsonl, 'b''c.npy', "d\\n"]
betas:
  - 0.9
  - "0.95"
resume: true
seed: null
"""
TUNED = "graphc-tuned 1\n# comment\nsm_90a/132\tgemm f16 128\t64x128x3\nsm_80/108\tgemm\t32\n"


def write_training(folder):
    """What training reads, by fuzzers' formats: bytes, some."""
    def adapter(dora, **tensors):
        save_file(tensors, f"{folder}/a.safetensors", {"format": "pt"})
        return (ADAPTER % dora).encode() + b"\0" + open(f"{folder}/a.safetensors", "rb").read()
    z = lambda *shape: np.full(shape, 0.5, np.float32)
    q, up = "base_model.model.layers.0.q_proj.", "base_model.model.layers.0.up."
    pairs = {q + "lora_A.weight": z(2, 4), q + "lora_B.weight": z(4, 2), up + "lora_A.weight": z(1, 4), up + "lora_B.weight": z(6, 1)}
    norms = {q + "lora_magnitude_vector": z(4), up + "lora_magnitude_vector": z(6)}
    np.save(f"{folder}/i.npy", np.arange(40, dtype=np.uint16).reshape(5, 8))
    np.save(f"{folder}/f.npy", np.arange(12, dtype=np.float32).reshape(3, 4))
    npy = [open(f"{folder}/{n}.npy", "rb").read() for n in "if"]
    lines = b'{"input_ids": [1, 22, 3], "labels": [-100, 2, 3], "attention_mask": [0, 1, 1]}\n\n{"text": "\\u00e9", "input_ids": [99, 7]}\n'
    log = "".join(json.dumps(l) + "\n" for l in LOG) + '{"step": 3, "eval_loss": 0.5}\n'
    return {"adapter": [adapter("false", **pairs), adapter("true", **pairs, **norms)],
            "data": [b"\x01" + np.arange(50, dtype=np.uint16).tobytes(), b"\x0a" + np.arange(50, dtype=np.uint32).tobytes(),
                     b"\x03" + npy[0], b"\x13" + npy[1], b"\x04" + lines, b"\x14" + lines, b"\x05some text\n" * 9],
            "checkpoint": [CHECKPOINT.encode()], "log": [log.encode()], "options": [YAML.encode(), TUNED.encode()]}
