"""Who moves a weight and its moments: of a large one a kernel of its own, behind the product that makes its gradient;
of a small one the product's kernel. Read in the kernels for a GPU.

    apart.py GRAPHC
"""
import os, re, subprocess, sys, tempfile
import numpy as np, onnx
from onnx import TensorProto as T, helper as h, numpy_helper

ROWS, SMALL, LARGE = 256, 64, 1024


def model(width):
    """y = x W, W of so many rows and columns."""
    w = numpy_helper.from_array(np.full((width, width), 0.1, np.float32), "W")
    nodes = [h.make_node("MatMul", ["x", "W"], ["y"]), h.make_node("Mul", ["y", "y"], ["s"]),
             h.make_node("ReduceSum", ["s"], ["loss"], keepdims=0)]
    x, loss = h.make_tensor_value_info("x", T.FLOAT, [ROWS, width]), h.make_tensor_value_info("loss", T.FLOAT, [])
    return h.make_model(h.make_graph(nodes, "g", [x], [loss], [w]), opset_imports=[h.make_opsetid("", 23)], ir_version=11)


def movers(graphc, width, optimizer):
    """First lines of the kernels that store the weight and its moments, and how many of them each stores."""
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "m.onnx")
        onnx.save(model(width), path)
        subprocess.run([graphc, "train", path, "--loss", "loss", "--precision", "bf16", "--target", "sm_90a",
                        "--optimizer", optimizer,
                        "--plan-only", "-o", os.path.join(tmp, "plan"), "--dump-ir", tmp], check=True, capture_output=True)
        text = open(os.path.join(tmp, "post-fusion.kir")).read()
    states = set(re.findall(rf"^buffer (\d+)  state f32\[{width * width}\]", text, re.M))
    lies_in = dict(re.findall(r"^buffer (\d+)  temp .* in buffer (\d+) at 0", text, re.M))
    found = []
    for step, kernel in re.findall(r"^# step \d+: buffers ([\d ]+);.*\nkernel (.*\n(?:.*\n)*?)end$", text, re.M):
        buffers = step.split()
        written = [buffers[int(i)] for i in re.findall(r"param (\d+) f32.* written", kernel)]
        stored = {lies_in.get(b, b) for b in written} & states
        if stored: found.append((kernel.split("\n")[0], len(stored)))
    return found


def main():
    ok = True
    for width, optimizer, product, states in ((SMALL, "adamw", True, 3), (LARGE, "adamw", False, 3), (LARGE, "lion", False, 2),
                                              (LARGE, "sgd", True, 1)):
        found = movers(sys.argv[1], width, optimizer)
        right = len(found) == 1 and (" tem dot " in found[0][0]) == product and found[0][1] == states
        print(f"{width} {optimizer}: {found}{'' if right else '  WRONG'}")
        ok = ok and right
    sys.exit(not ok)


if __name__ == "__main__":
    main()
