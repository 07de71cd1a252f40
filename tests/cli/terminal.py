"""Progress of what takes longer than a second: a line on a terminal, which is taken away; nothing in a pipe:

    terminal.py GRAPHC
"""
import os, pty, re, subprocess, sys, tempfile
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper

graphc, failures = os.path.abspath(sys.argv[1]), 0


def check(ok, what):
    global failures
    if not ok:
        failures += 1
        print("FAILED", what)


def on_terminal(*args):
    """What it writes to a terminal that is its standard error."""
    us, its = pty.openpty()
    p = subprocess.Popen([graphc, *args], stdout=subprocess.DEVNULL, stderr=its)
    os.close(its)
    said = b""
    while True:
        try:
            part = os.read(us, 4096)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        said += part
    os.close(us)
    check(p.wait(100) == 0, f"{args}: exit {p.returncode}")
    return said.decode()


def in_pipe(*args):
    p = subprocess.run([graphc, *args], capture_output=True, text=True, timeout=100)
    check(p.returncode == 0, f"{args}: exit {p.returncode} {p.stderr}")
    return p.stderr


def model(path, nodes, inits, shape):
    g = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, shape)], [h.make_tensor_value_info("y", T.FLOAT, shape)], inits)
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 21)], ir_version=10), path)


with tempfile.TemporaryDirectory() as d:
    os.chdir(d)
    w = numpy_helper.from_array(np.eye(1024, dtype=np.float32), "w")
    model("products.onnx", [h.make_node("MatMul", ["x", "w"], ["t"]), h.make_node("MatMul", ["t", "w"], ["y"])], [w], [512, 1024])
    nodes = [h.make_node("Tanh", [f"h{i}"], [f"h{i + 1}"]) for i in range(60)]
    nodes[0].input[0], nodes[-1].output[0] = "x", "y"
    model("long.onnx", nodes, [], [1 << 20])
    subprocess.run([graphc, "products.onnx", "-o", "products.plan"], check=True, capture_output=True)
    for args, line in ((("bench", "products.plan", "--runs", "300"), r"\[\d+/300\] runs"),
                       (("bench", "products.plan", "products.plan", "--runs", "150"), r"\[\d+/150\] pairs"),
                       (("verify", "long.onnx"), r"\[\d+/\d+\] (reference|kernels)")):
        said = on_terminal(*args)
        check(re.search(r"\r(\x1b\[K)?" + line, said) and said.rstrip("\r\n").endswith("\r\x1b[K"), f"{args} on a terminal: {said!r}")
        said = in_pipe(*args)
        check("\r" not in said and "\x1b" not in said, f"{args} in a pipe: {said!r}")
print(f"{failures} failures")
sys.exit(failures != 0)
