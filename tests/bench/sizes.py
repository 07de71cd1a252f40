"""Time and memory of a compile against the size of the model: chains, fans, initializers, outputs, functions of 10^3, 10^4 and 10^5.

    sizes.py GRAPHC [--most N] [FAMILY ...]

Seconds are of processor time, all threads together; the last columns say by how much ten times the size takes longer.
"""
import argparse, os, resource, subprocess, tempfile
from onnx import TensorProto as T, helper as h

FAMILIES = {}


def family(fn):
    FAMILIES[fn.__name__] = fn
    return fn


def tensor(name, *shape):
    return h.make_tensor_value_info(name, T.FLOAT, shape)


def number(name, v):
    return h.make_tensor(name, T.FLOAT, [1], [float(v)])


def model(nodes, outputs, inits=(), functions=()):
    g = h.make_graph(nodes, "g", [tensor("x", "n", 8)], [tensor(o, "n", 8) for o in outputs], list(inits))
    sets = [h.make_opsetid("", 17)] + ([h.make_opsetid("l", 1)] if functions else [])
    return h.make_model(g, opset_imports=sets, functions=list(functions), ir_version=9)


def names(n):
    return ["x"] + [f"v{i}" for i in range(1, n)] + ["y"]


@family
def chain(n):
    """Elementwise nodes, each of the one before."""
    v = names(n)
    return model([h.make_node(("Sin", "Tanh", "Neg")[i % 3], [v[i]], [v[i + 1]]) for i in range(n)], ["y"])


@family
def fan(n):
    """One value that all others read, and a sum of those."""
    nodes = [h.make_node("Tanh", ["x"], ["t"])] + [h.make_node("Mul", ["t", f"c{i}"], [f"v{i}"]) for i in range(n)]
    return model(nodes + [h.make_node("Sum", [f"v{i}" for i in range(n)], ["y"])], ["y"], [number(f"c{i}", i) for i in range(n)])


@family
def initializers(n):
    """One for each node of a chain."""
    v = names(n)
    return model([h.make_node("Add", [v[i], f"c{i}"], [v[i + 1]]) for i in range(n)], ["y"], [number(f"c{i}", i) for i in range(n)])


@family
def outputs(n):
    """Each of a node of its own."""
    return model([h.make_node("Add", ["x", f"c{i}"], [f"y{i}"]) for i in range(n)], [f"y{i}" for i in range(n)], [number(f"c{i}", i) for i in range(n)])


@family
def concat(n):
    """Operands of one node, each of a node of its own."""
    nodes = [h.make_node("Neg" if i % 2 else "Abs", ["x"], [f"v{i}"]) for i in range(n)]
    m = model(nodes + [h.make_node("Concat", [f"v{i}" for i in range(n)], ["y"], axis=1)], ["y"])
    m.graph.output[0].CopyFrom(tensor("y", "n", 8 * n))
    return m


@family
def functions(n):
    """A chain of calls, each of a function of its own."""
    v, sets = names(n), [h.make_opsetid("", 17)]
    made = [h.make_function("l", f"f{i}", ["a"], ["b"], [h.make_node("Sin" if i % 2 else "Neg", ["a"], ["b"])], sets) for i in range(n)]
    return model([h.make_node(f"f{i}", [v[i]], [v[i + 1]], domain="l") for i in range(n)], ["y"], functions=made)


def measure(graphc, path, plan):
    """Seconds and MB of a compile, or why there is none."""
    p = subprocess.Popen([graphc, path, "-o", plan], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (600, 601)))
    said = p.stderr.read()
    _, status, use = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode:
        return None, (said.strip().splitlines() or [""])[-1][-120:] or f"exit {p.returncode}"
    return use.ru_utime + use.ru_stime, use.ru_maxrss / 1000


def main():
    p = argparse.ArgumentParser()
    p.add_argument("graphc"), p.add_argument("family", nargs="*"), p.add_argument("--most", type=int, default=10 ** 5)
    a = p.parse_args()
    sizes = [n for n in (10 ** 3, 10 ** 4, 10 ** 5) if n <= a.most]
    print("| model | " + " | ".join(f"{n:,}: s | MB" for n in sizes) + " | x10 |")
    print("|---|" + "---|" * (2 * len(sizes) + 1))
    with tempfile.TemporaryDirectory() as d:
        for name in a.family or FAMILIES:
            got = []
            for n in sizes:
                open(f"{d}/m.onnx", "wb").write(FAMILIES[name](n).SerializeToString())
                got.append(measure(a.graphc, f"{d}/m.onnx", f"{d}/m.plan"))
            cells = [f"{s:.2f} | {mb:.0f}" if s is not None else f"- | {mb}" for s, mb in got]
            growth = [f"{b[0] / b_[0]:.1f}" for b_, b in zip(got, got[1:]) if b_[0] and b[0]]
            print(f"| {name} | " + " | ".join(cells) + f" | {', '.join(growth)} |", flush=True)


if __name__ == "__main__":
    main()
