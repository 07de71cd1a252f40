"""Steps of training of random models on the GPU beside the CPU: weights' gradients with what an optimizer makes of them, of
layers of any width, attention's gradients with shared and causal heads, norms; products in any tile and way to share one.

    random_steps.py plans GRAPHC FOLDER [--seed N] [--count N]          compiles for both targets; needs onnx, no GPU
    random_steps.py run TRAIN_COMPARE FOLDER [--tool memcheck] [--jobs 8] [--budget S]
    random_steps.py test GRAPHC TRAIN_COMPARE [--seed N] [--count N]    both, with memcheck where there is one

A model is a function of its seed. Its matrices are zeros in the file, which take no room, and random when it is trained;
vectors are not, as what is multiplied by zeros would not be computed.
"""
import argparse, concurrent.futures, math, os, random, shutil, struct, subprocess, sys, tempfile, time
import ragged
import random_products

NEAR = {"bf16": 4e-2, "f16": 2e-2, "f32": 1e-3, "tf32": 1e-2}  # of the loss and of the gradients' norm
WIDTHS = [16, 64, 72, 96, 128, 192, 200, 256, 320]
INNER = [8, 24, 64, 72, 128, 136, 200, 256, 320, 384, 512]
LENGTHS = [17, 33, 64, 96, 100, 128, 192, 200, 250, 320, 448, 576]


class Layers:
    """A model of some layers over x[batch, length, width]; the loss is how far it is from t."""
    def __init__(self, seed):
        r = self.r = random.Random(seed)
        self.nodes, self.init = [], []
        self.precision = r.choice(["bf16", "bf16", "bf16", "f16", "f32", "tf32"])
        self.b, self.s, self.d = r.choice([1, 1, 2, 3, 4]), r.choice(LENGTHS), r.choice(WIDTHS)
        self.said = [f"{seed:05d}", self.precision, f"{self.b}x{self.s}x{self.d}"]
        x = "x"
        for _ in range(r.choice([1, 1, 2])):
            x = self.op("Add", x, r.choice([self.perceptron, self.perceptron, self.attention])(x))
            if r.random() < 0.5:
                x = self.op("RMSNormalization", x, self.weight(self.d), axis=-1)
        off = self.op("Sub", x, "t")
        self.loss = self.op("ReduceMean", self.op("Mul", off, off), keepdims=0)

    def op(self, kind, *ins, **attrs):
        self.nodes.append((kind, list(ins), f"v{len(self.nodes)}", attrs))
        return self.nodes[-1][2]

    def weight(self, *shape):
        from onnx import TensorProto, helper
        one = struct.pack("<f", 0.5 if len(shape) == 1 else 0)
        self.init.append(helper.make_tensor(f"w{len(self.init)}", TensorProto.FLOAT, shape, one * math.prod(shape), raw=True))
        return self.init[-1].name

    def shaped(self, v, *shape):
        self.init.append(ragged.ints(f"w{len(self.init)}", [len(shape)], *shape))
        return self.op("Reshape", v, self.init[-1].name)

    def linear(self, x, k, n):
        y = self.op("MatMul", x, self.weight(k, n) if self.r.random() < 0.5 else self.op("Transpose", self.weight(n, k), perm=[1, 0]))
        return self.op("Add", y, self.weight(n)) if self.r.random() < 0.6 else y

    def perceptron(self, x):
        n, gated = self.r.choice(INNER), self.r.random() < 0.4
        self.said.append(f"{'gated' if gated else 'mlp'}{n}")
        u = self.op(self.r.choice(["Gelu", "Relu", "Tanh", "Sigmoid"]), self.linear(x, self.d, n))
        return self.linear(self.op("Mul", u, self.linear(x, self.d, n)) if gated else u, n, self.d)

    def attention(self, x):
        size, kv, group, causal = self.r.choice([16, 32, 40, 64, 96, 128]), self.r.choice([1, 2, 3]), self.r.choice([1, 1, 2, 4]), self.r.random() < 0.5
        self.said.append(f"attention{kv * group}_{kv}x{size}{'_causal' if causal else ''}")
        heads = lambda n: self.op("Transpose", self.shaped(self.linear(x, self.d, n * size), self.b, self.s, n, size), perm=[0, 2, 1, 3])
        o = self.op("Attention", heads(kv * group), heads(kv), heads(kv), is_causal=int(causal))
        return self.linear(self.shaped(self.op("Transpose", o, perm=[0, 2, 1, 3]), self.b, self.s, kv * group * size), kv * group * size, self.d)

    def model(self):
        import gpu_rows
        shape = [self.b, self.s, self.d]
        return gpu_rows.model([("x", "f32", shape), ("t", "f32", shape)], self.nodes, [(self.loss, "f32", [])], self.init)


def compile_one(a, seed):
    import onnx
    drawn = Layers(seed)
    name = f"{a.folder}/" + "_".join(drawn.said)
    onnx.save(drawn.model(), f"{name}.onnx")

    def compiles(database):
        p = subprocess.run([a.graphc, "train", f"{name}.onnx", "--loss", drawn.loss, "--plan-only", "-o", f"{name}.plan", "--target", "cpu,sm_90a",
                            "--optimizer", "sgd", "--precision", drawn.precision, *database], capture_output=True, text=True)
        print(f"{name}: {p.stderr.strip()[-300:]}\n" if p.returncode else "", end="", flush=True)
        return p.returncode == 0

    return random_products.in_ways(a, name, compiles)


def plans(a):
    os.makedirs(a.folder, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        made = list(pool.map(lambda seed: compile_one(a, seed), range(a.seed, a.seed + a.count)))
    print(f"{sum(made)} of {len(made)} compiled")
    return 0 if all(made) else 1


def compare(a, tool, name):
    near = NEAR[name.split("_")[1]]
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(ragged.FOUND)] if tool else []
    command += [a.train_compare, f"{a.folder}/{name}", "--weights", a.folder, "--fill", "0.1", "--steps", "2", "--rate", "0.05", "--tolerance", str(near)]
    text, status = ragged.output_of(command, a.end - time.monotonic())
    if status:
        print(f"{tool or 'results'} {name}: exit {status}\n" + "".join(f"    {l[:160]}\n" for l in text.splitlines()[:12]), end="", flush=True)
    return "late" if status is None else {0: "ok", 77: "no GPU"}.get(status, "wrong")


def run(a):
    a.end, found = time.monotonic() + a.budget, set()
    names = sorted(n for n in os.listdir(a.folder) if n.endswith(".plan"))
    for tool in a.tool:
        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            came = list(pool.map(lambda n: compare(a, tool, n), names))
        print(f"{tool or 'results'}: {len(came)} plans, " + ", ".join(f"{came.count(s)} {s}" for s in sorted(set(came))))
        found |= set(came)
    return 77 if found == {"no GPU"} else 0 if "ok" in found and found <= {"ok", "late"} else 1


def test(a):
    if not ragged.has_gpu(a.graphc):
        return 77
    a.jobs, a.budget, a.tool = 8, 200, ["", "memcheck"] if shutil.which("compute-sanitizer") else [""]
    with tempfile.TemporaryDirectory() as a.folder:
        return plans(a) or run(a)


def main():
    p = argparse.ArgumentParser()
    sub = p.add_subparsers(dest="verb", required=True)
    for verb, first, second in (("plans", "graphc", "folder"), ("run", "train_compare", "folder"), ("test", "graphc", "train_compare")):
        s = sub.add_parser(verb)
        s.add_argument(first), s.add_argument(second)
        s.add_argument("--jobs", type=int, default=8 if verb == "run" else 2), s.add_argument("--budget", type=float, default=1e6)
        s.add_argument("--seed", type=int, default=0), s.add_argument("--count", type=int, default=40)
        s.add_argument("--tool", type=lambda text: text.split(","), default=[""])
    a = p.parse_args()
    return {"plans": plans, "run": run, "test": test}[a.verb](a)


if __name__ == "__main__":
    sys.exit(main())
