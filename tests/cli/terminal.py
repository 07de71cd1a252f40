"""Progress of what takes longer than a second: a line on a terminal, which is taken away; nothing in a pipe:

    terminal.py GRAPHC
"""
import os, pty, re, subprocess, sys, tempfile
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tool import check, failed

graphc = os.path.abspath(sys.argv[1])


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
    p = subprocess.run([graphc, *args], capture_output=True, text=True, timeout=600)
    check(p.returncode == 0, f"{args}: exit {p.returncode} {p.stderr}")
    return p.stderr


def shows(line, args, sizes):
    """On a terminal there is such a line, if it takes long enough: of growing sizes the first for which it does."""
    for n in sizes:
        command = (*args(n), "--threads", "1")
        said = on_terminal(*command)
        if seen := re.search(r"\r(\x1b\[K)?" + line, said):
            break
    check(seen and said.rstrip("\r\n").endswith("\r\x1b[K"), f"{command} on a terminal: {said!r}")
    said = in_pipe(*command)
    check("\r" not in said and "\x1b" not in said, f"{command} in a pipe: {said!r}")


def model(path, nodes, inits, shape):
    g = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, shape)], [h.make_tensor_value_info("y", T.FLOAT, shape)], inits)
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 21)], ir_version=10), path)


with tempfile.TemporaryDirectory() as d:
    os.chdir(d)
    w = numpy_helper.from_array(np.eye(1024, dtype=np.float32), "w")
    model("products.onnx", [h.make_node("MatMul", ["x", "w"], ["t"]), h.make_node("MatMul", ["t", "w"], ["y"])], [w], [512, 1024])
    for n in (30, 120, 480, 1920):
        nodes = [h.make_node("Tanh", [f"h{i}"], [f"h{i + 1}"]) for i in range(n)]
        nodes[0].input[0], nodes[-1].output[0] = "x", "y"
        model(f"long{n}.onnx", nodes, [], [1 << 20])
    subprocess.run([graphc, "products.onnx", "-o", "products.plan"], check=True, capture_output=True)
    runs = [40, 160, 640, 2560, 10240]
    shows(r"\[\d+/\d+\] runs", lambda n: ("bench", "products.plan", "--runs", str(n)), runs)
    shows(r"\[\d+/\d+\] pairs", lambda n: ("bench", "products.plan", "products.plan", "--runs", str(n)), runs)
    shows(r"\[\d+/\d+\] (reference|kernels)", lambda n: ("verify", f"long{n}.onnx"), (30, 120, 480, 1920))
print(f"{failed()} failures")
sys.exit(failed() != 0)
