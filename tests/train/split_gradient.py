"""Gradients of queries, keys and values that one product made are stored where their concatenation is: by the kernel of
all gradients of the attention, and of queries by the one that rounds their sums. Read in the kernels for a GPU.

    split_gradient.py GRAPHC
"""
import os, re, subprocess, sys, tempfile
import numpy as np, onnx
from onnx import TensorProto as T, helper as h, numpy_helper

B, S, H, D = 2, 128, 2, 64
E = H * D


def model():
    init, nodes = [], []
    constant = lambda name, a: init.append(numpy_helper.from_array(a, name)) or name
    node = lambda op, ins, outs, **k: nodes.append(h.make_node(op, ins, outs, **k))
    node("MatMul", ["x", constant("W", np.full((E, 3 * E), 0.1, np.float32))], ["qkv"])
    node("Split", ["qkv", constant("size", np.array([E, E, E]))], ["q", "k", "v"], axis=2)
    shape = constant("heads", np.array([B, S, H, D]))
    for name in "qkv":
        node("Reshape", [name, shape], [name + "1"])
        node("Transpose", [name + "1"], [name + "2"], perm=[0, 2, 1, 3])
    node("Attention", ["q2", "k2", "v2"], ["a"], is_causal=1)
    node("Mul", ["a", "a"], ["square"])
    node("ReduceSum", ["square"], ["loss"], keepdims=0)
    x, loss = h.make_tensor_value_info("x", T.FLOAT, [B, S, E]), h.make_tensor_value_info("loss", T.FLOAT, [])
    g = h.make_graph(nodes, "g", [x], [loss], init)
    return h.make_model(g, opset_imports=[h.make_opsetid("", 23)], ir_version=11)


def main():
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "m.onnx")
        onnx.save(model(), path)
        subprocess.run([sys.argv[1], "train", path, "--loss", "loss", "--precision", "bf16", "--target", "sm_90a",
                        "--plan-only", "-o", os.path.join(tmp, "plan"), "--dump-ir", tmp], check=True, capture_output=True)
        kernels = open(os.path.join(tmp, "post-fusion.kir")).read().split("\nkernel ")[1:]
    stores = [k for k in kernels if re.search(rf"bf16\[{B * S * 3 * E}\] written", k)]
    gradients = [k for k in stores if "attention_gradients" in k.split("\n")[0]]
    rounds = [k for k in stores if re.search(rf"param 0 f32\[{B * S * E}\]", k)]
    print(f"{len(stores)} kernels store q, k and v or their gradients: {[k.split()[0] for k in stores]}")
    # Beside the product itself, in the two entries.
    products = [k for k in stores if " tem dot " in k.split("\n")[0]]
    sys.exit(not (len(gradients) == len(rounds) == 1 and len(stores) == len(products) + 2))


if __name__ == "__main__":
    main()
