"""Data that does not fit the model: said before the first step, by file, row and number, and nothing is learnt.

    mistaken.py GRAPHC
"""
import json, os, sys, tempfile
import numpy as np
import onnx
from onnx import helper, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from safetensors.numpy import save_file
from small import byte_model, perceptron, tensors
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import forks
from tool import check, failed

graphc = os.path.abspath(sys.argv[1])
rng = np.random.default_rng(5)
CROSS = "cross_entropy(logits, labels)"


def train(model, loss, *args, status=0, says=None):
    """Losses of three steps; or what is said."""
    p = forks.run([graphc, "train", model, "--loss", loss, *args, "--steps", 3, "--no-shuffle", "--json", "-o", f"o{rng.integers(1 << 40)}"])
    check(p.returncode == status and (says or "") in p.stderr, f"{model} {args}: {p.returncode}, {says!r} is not said: {p.stderr[-300:]}")
    return [l["loss"] for l in map(json.loads, p.stdout.splitlines()) if "loss" in l]


def two_tables(path, ids=256, places=64):
    """Logits of a token and its place."""
    n = helper.make_node
    w = {"embed": rng.standard_normal((ids, 8)), "place": rng.standard_normal((places, 8)), "head": rng.standard_normal((8, 256))}
    nodes = [n("Cast", ["input_ids"], ["i"], to=6), n("Gather", ["embed", "i"], ["e"]), n("Transpose", ["position_ids"], ["t"]),
             n("Gather", ["place", "t"], ["q"]), n("Transpose", ["q"], ["p"], perm=[1, 0, 2]), n("Add", ["e", "p"], ["h"]),
             n("MatMul", ["h", "head"], ["logits"])]
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(i, 7, ["batch", "seq"]) for i in ("input_ids", "position_ids")],
                          [helper.make_tensor_value_info("logits", 1, ["batch", "seq", 256])],
                          [numpy_helper.from_array(v.astype(np.float32), k) for k, v in w.items()])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def changed(name, x, at, v):
    x = x.copy()
    x[at] = v
    np.save(name, x)
    return name


def classes():
    """Labels of a classifier."""
    x, t = rng.standard_normal((40, 16)).astype(np.float32), rng.integers(0, 3, 40)
    np.save("x.npy", x)
    given = lambda t: ("--data", "x=x.npy", "--data", f"t={t}", "--batch", 8)
    loss = "cross_entropy(y, t)"
    train("m.onnx", loss, *given(changed("t.npy", t, 0, 2)))
    train("m.onnx", loss, *given(changed("t.npy", t, 7, 3)), status=3,
          says="t: row 7, element 0 is 3; the model takes 0 to 2, or -100 for what does not count")
    train("m.onnx", loss, *given(changed("t.npy", t, 39, -1)), status=3, says="row 39, element 0 is -1")
    train("m.onnx", loss, *given(changed("t.npy", t, 7, -100)))
    train("m.onnx", "cross_entropy(y, t, ignore=7)", *given(changed("t.npy", t, 7, 7)))
    train("m.onnx", "cross_entropy(y, t, ignore=7)", *given(changed("t.npy", t, 7, -100)), status=3, says="or 7 for what does not count")
    np.save("none.npy", np.full(40, -100))
    train("m.onnx", loss, *given("none.npy"), status=3, says="t: every label is -100, which does not count")
    np.save("t.npy", t)
    train("m.onnx", loss, *given("t.npy"), "--eval-data", "x=x.npy", "--eval-data", "t=none.npy", status=3, says="every label is -100")
    train("m.onnx", loss, *given("t.npy"), "--batch", 32, "--eval-data", "x=x.npy", "--eval-data", "t=t.npy",
          says="8 of the held-out rows are left out: they fill no batch of 32")
    np.save("last.npy", np.where(np.arange(40) < 32, -100, t))  # in rows that fill no batch
    train("m.onnx", loss, *given("t.npy"), "--batch", 32, "--eval-data", "x=x.npy", "--eval-data", "t=last.npy", status=3, says="no label of the rows to evaluate counts")
    train("m.onnx", loss, *given("t.npy"), "--eval-data", "x=x.npy", "--eval-data", "t=" + changed("e.npy", t, 3, 5), status=3,
          says="row 3, element 0 is 5")


def positions():
    """Ids of embeddings: of arrays, and of tokens, whose places are counted."""
    two_tables("p.onnx")
    two_tables("few.onnx", ids=100)
    ids, place = rng.integers(0, 100, (40, 12)), np.tile(np.arange(12), (40, 1))
    np.save("l.npy", ids), np.save("place.npy", place)
    given = lambda i, p="place.npy": ("--data", f"input_ids={i}", "--data", f"position_ids={p}", "--data", "labels=l.npy", "--batch", 8)
    train("few.onnx", CROSS, *given(changed("i.npy", ids, (2, 3), 99)))
    train("few.onnx", CROSS, *given(changed("i.npy", ids, (2, 3), 100)), status=3,
          says="input_ids: row 2, element 3 is 100; the model takes -100 to 99")
    a = train("few.onnx", CROSS, *given(changed("i.npy", ids, (2, 3), -1)))
    check(a == train("few.onnx", CROSS, *given(changed("i.npy", ids, (2, 3), 99))), "an id that counts from the end")
    train("few.onnx", CROSS, *given("l.npy", changed("q.npy", place, (39, 0), 64)), status=3, says="position_ids: row 39, element 0 is 64")
    np.save("tokens.npy", rng.integers(0, 100, (4, 80)))
    train("p.onnx", CROSS, "--data", "tokens.npy", "--batch", 2, "--seq", 64)
    train("p.onnx", CROSS, "--data", "tokens.npy", "--batch", 2, "--seq", 65, status=2, says='rows of 65 tokens; "position_ids" counts to 63')
    np.save("tokens.npy", np.full((4, 80), 100))
    train("few.onnx", CROSS, "--data", "tokens.npy", "--batch", 2, "--seq", 64, status=3, says="id 100; the vocabulary has 100")


def sizes():
    """What a model of fixed or equal sizes does not take, before a batch of it is made."""
    def fixed(path, of, **sizes):
        m = onnx.load(of)
        for v in (*m.graph.input, *m.graph.output):
            for d in v.type.tensor_type.shape.dim:
                if d.dim_param in sizes:
                    d.dim_value = sizes[d.dim_param]
        onnx.save(m, path)
        return path
    ids = rng.integers(0, 256, (40, 12))
    np.save("ids.npy", ids), np.save("short.npy", ids[:, :11])
    given = lambda l: ("--data", "input_ids=ids.npy", "--data", f"labels={l}.npy", "--batch", 8)
    train("b.onnx", CROSS, *given("ids"))
    train("b.onnx", CROSS, *given("short"), status=3, says='labels: rows of the file have 11 along axis 1, the model takes 12, as "input_ids" has along axis 1')
    rows, both = fixed("rows.onnx", "b.onnx", batch=4), fixed("both.onnx", "b.onnx", batch=4, seq=12)
    train(rows, CROSS, *given("ids"), status=2, says='batches of 8 rows; "input_ids" takes 4')
    train(rows, CROSS, *given("ids"), "--batch", 4)
    train(both, CROSS, *given("short")[2:4], "--data", "input_ids=short.npy", "--batch", 4, status=3, says="input_ids: rows of the file have 11 along axis 1, the model takes 12")
    train(both, CROSS, "--data", "ids.npy", "--batch", 4, "--seq", 11, status=2, says='rows of 11 tokens; "input_ids" takes 12')
    train(both, CROSS, "--data", "ids.npy", "--batch", 4, "--seq", 12)


def ignored():
    """Padding counts for nothing, whichever label the loss ignores."""
    with open("s.jsonl", "w") as f:
        for n in (3, 5, 9, 12):
            print(json.dumps({"input_ids": rng.integers(1, 200, n).tolist()}), file=f)
    given = ("--data", "s.jsonl", "--no-packing", "--batch", 4, "--seq", 16)
    want = train("b.onnx", CROSS, *given)
    for label in (0, -7, 255):
        check(train("b.onnx", f"cross_entropy(logits, labels, ignore={label})", *given) == want, f"padding is learnt where {label} is ignored")


def other_losses():
    """Targets that are no labels leave ids alone: the classes of mse are none."""
    n = helper.make_node
    w = {"embed": rng.standard_normal((50, 8)), "head": rng.standard_normal((8, 1))}
    g = helper.make_graph([n("Gather", ["embed", "input_ids"], ["e"]), n("MatMul", ["e", "head"], ["s"]), n("Squeeze", ["s", "last"], ["y"])], "g",
                          [helper.make_tensor_value_info("input_ids", 7, ["batch", 6])], [helper.make_tensor_value_info("y", 1, ["batch", 6])],
                          [*(numpy_helper.from_array(v.astype(np.float32), k) for k, v in w.items()), numpy_helper.from_array(np.array([-1]), "last")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "s.onnx")
    np.save("tokens.npy", rng.integers(0, 50, (8, 7)))
    train("s.onnx", "mse(y, labels)", "--data", "tokens.npy", "--batch", 4, "--seq", 6)
    np.save("tokens.npy", np.full((8, 7), 50))
    train("s.onnx", "mse(y, labels)", "--data", "tokens.npy", "--batch", 4, "--seq", 6, status=3, says="id 50; the vocabulary has 50")


def options():
    """What the optimizer would not look at."""
    given = ("--data", "x=x.npy", "--data", "t=t.npy", "--batch", 8)
    for more, says in ((("--momentum", 0.9), "--momentum: adamw has no such parameter"), (("--nesterov",), "--nesterov: adamw has no such"),
                       (("--optimizer", "sgd", "--beta2", 0.9), "--beta2: sgd has no such parameter"),
                       (("--optimizer", "lion", "--eps", 1e-6), "--eps: lion has no such parameter"),
                       (("--optimizer", "sgd", "--nesterov"), "--nesterov: there is no --momentum"),
                       (("--beta1", 1), "--beta1: 1 is not below 1"), (("--optimizer", "lion", "--beta2", 1.5), "--beta2: 1.5 is not below 1")):
        train("m.onnx", "cross_entropy(y, t)", *given, *more, status=2, says=says)


def renamed(path, of, **names):
    """The model with other names."""
    m = onnx.load(of)
    g, to = m.graph, lambda n: names.get(n, n)
    for n in g.node:
        n.input[:], n.output[:] = map(to, n.input), map(to, n.output)
    for v in (*g.input, *g.output, *g.initializer):
        v.name = to(v.name)
    onnx.save(m, path)
    return path


def names():
    """What training calls something itself; what no file of rows can give; what is given for nothing."""
    t, y = ("--data", "t=t.npy", "--batch", 8), "cross_entropy(y, t)"
    given = ("--data", "x=x.npy", *t)
    train(renamed("lr.onnx", "m.onnx", x="lr"), y, "--data", "lr=x.npy", *t, status=4, says="lr: the model and its training")
    model = renamed("sum.onnx", "m.onnx", **{"up.weight": "loss_sum"})
    train(model, y, *given)
    train(model, y, *given, "--accumulate", 2, status=4, says="loss_sum: the model and its training")
    m = onnx.load("m.onnx")
    m.graph.node[-1].output[0] = "z"
    m.graph.node.append(helper.make_node("Mul", ["z", "temperature"], ["y"]))
    m.graph.input.append(helper.make_tensor_value_info("temperature", 1, []))
    onnx.save(m, "scalar.onnx")
    train("scalar.onnx", y, *given, status=2, says='input "temperature" is a scalar')
    train("m.onnx", y, *given, "--data", "lr=t.npy", status=2, says='no input "lr" with rows')
    open("t.txt", "w").write("text" * 20)
    train("m.onnx", y, "--data", "t.txt", *given, status=2, says="either tokens or arrays")
    train("b.onnx", CROSS, "--data", "t.txt", "--seq", 4, "--hold-out", 0.001, status=3, says="what is held out: there is nothing")


def merged_statistics():
    """What exporters make of a norm that was never trained: its scale and variance are one initializer."""
    n, w = helper.make_node, {"c.weight": rng.standard_normal((16, 3)), "one": np.ones(3), "none": np.zeros(3)}
    g = helper.make_graph([n("MatMul", ["x", "c.weight"], ["a"]), n("BatchNormalization", ["a", "one", "none", "none", "one"], ["y"])], "g",
                          [helper.make_tensor_value_info("x", 1, ["batch", 16])], [helper.make_tensor_value_info("y", 1, ["batch", 3])],
                          [numpy_helper.from_array(v.astype(np.float32), k) for k, v in w.items()])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "bn.onnx")
    train("bn.onnx", "cross_entropy(y, t)", "--data", "x=x.npy", "--data", "t=t.npy", "--batch", 8, status=4,
          says="one initializer is both a weight, which is learnt, and a running statistic")


def branches():
    """Weights that a branch has for itself are not learnt, and named."""
    n, value = helper.make_node, helper.make_tensor_value_info
    weight = lambda name, *shape: numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
    branch = lambda k: helper.make_graph([n("MatMul", ["h", f"own.{k}"], [f"y.{k}"])], k, [], [value(f"y.{k}", 1, ["batch", 3])], [weight(f"own.{k}", 5, 3)])
    nodes = [n("MatMul", ["x", "w"], ["h"]), n("ReduceSum", ["x"], ["s"], keepdims=0), n("Less", ["s", "zero"], ["c"]),
             n("If", ["c"], ["y"], then_branch=branch("a"), else_branch=branch("b"))]
    g = helper.make_graph(nodes, "g", [value("x", 1, ["batch", 16])], [value("y", 1, ["batch", 3])],
                          [weight("w", 16, 5), numpy_helper.from_array(np.float32(0), "zero")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "if.onnx")
    train("if.onnx", "cross_entropy(y, t)", "--data", "x=x.npy", "--data", "t=t.npy", "--batch", 8,
          says="own.a, own.b: stored in the body of a branch or loop, where nothing is learnt")


def adapters():
    """A weight of an adapter with as many elements as the model's, but in another shape."""
    p = forks.run([graphc, "finetune", "m.onnx", "--loss", "cross_entropy(y, t)", "--data", "x=x.npy", "--data", "t=t.npy", "--batch", 8,
                   "--steps", 1, "--lora", "r=2,save=down,targets=up", "-o", "a"])
    check(p.returncode == 0, p.stderr)
    for given, says in ((("a=a", "a=a"), '"a" is the name of two'), (("1=a", "a"), '"1" is the name of two'),
                        (("-=a",), '"-" is no name'), (("a,b=a",), '"a,b" is no name')):
        p = forks.run([graphc, "run", "m.onnx", *(x for g in given for x in ("--adapter", g)), "--output-dir", "out"])
        check(p.returncode == 2 and says in p.stderr, f"{given}: {p.returncode} {p.stderr}")
    onnx.save(onnx.load("m.onnx"), "outside.onnx", save_as_external_data=True, location="out.onnx.data", size_threshold=0)
    onnx.save(onnx.load("m.onnx"), "beside.onnx", save_as_external_data=True, location="out.safetensors", size_threshold=0)
    read = lambda f: open(f, "rb").read()
    merge, loss = ["merge", "--adapter", "a"], ["train", "--loss", "cross_entropy(y, t)"]
    given = ["--data", "x=x.npy", "--data", "t=t.npy", "--steps", 1]
    os.mkdir("w"), onnx.save(onnx.load("m.onnx"), "w/m.onnx", save_as_external_data=True, location="model.safetensors", size_threshold=0)
    for verb, model, out, loses, says in (
            (merge, "outside", "out.onnx", "out.onnx.data", "the merged model would replace the model's weights"),
            (merge, "beside", "out.safetensors", "out.safetensors", "the merged model would replace the model's weights"),
            (merge, "m", "m.onnx", "m.onnx", "the merged model would replace the model"),
            (merge, "m", "a/adapter_model.safetensors", "a/adapter_model.safetensors", "the merged model would replace the adapter"),
            ([], "m", "m.onnx", "m.onnx", "the plan would replace the model"),
            ([], "outside", "out.onnx.data", "out.onnx.data", "the plan would replace the model's weights"),
            ([*loss, "--plan-only"], "m", "m.onnx", "m.onnx", "the plan would replace the model"),
            ([*loss, *given], "w/m", "w", "w/model.safetensors", "what is learnt would replace the model's weights")):
        was = read(loses)
        p = forks.run([graphc, *verb[:1], f"{model}.onnx", *verb[1:], "-o", out])
        check(p.returncode == 2 and f"{loses}: {says}" in p.stderr, f"{verb} {model} to {out}: {p.returncode} {p.stderr}")
        check(read(loses) == was, f"{verb} {model} to {out}: {loses} is another")
    name = "base_model.model.down.weight"
    learnt = tensors("a/adapter_model.safetensors")
    for how in ("run", "--output-dir", "out"), ("merge", "-o", "merged.onnx"):
        for shape, status, says in ((40, 3), 0, ""), ((3, 40), 3, "down.weight"), ((120,), 3, "down.weight"):
            save_file(learnt | {name: learnt[name].reshape(shape)}, "a/adapter_model.safetensors")
            p = forks.run([graphc, how[0], "m.onnx", "--adapter", "a", *how[1:]])
            check(p.returncode == status and says in p.stderr, f"{how} {shape}: {p.returncode} {p.stderr}")


def in_16_bits(path, of):
    m = onnx.load(of)
    for w in m.graph.initializer:
        w.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(w).astype(np.float16), w.name))
    for v in (*m.graph.input, *m.graph.output):
        v.type.tensor_type.elem_type = 10
    onnx.save(m, path)
    return path


def narrow_adapters():
    """What an adapter of f32 has is more than a model of f16 can hold; a weight of f16 that is called as adapters call theirs."""
    loss, model = ("--loss", "mse(y, t)"), in_16_bits("n.onnx", "m.onnx")
    np.save("t.npy", np.zeros((40, 3), np.float32))
    forks.run([graphc, "finetune", "m.onnx", *loss, "--data", "x=x.npy", "--data", "t=t.npy", "--steps", 1, "--lora", "r=2,save=down,targets=up", "-o", "w16"])
    name = "base_model.model.down.weight"
    learnt = tensors("w16/adapter_model.safetensors")
    for value, status in ((6e4, 0), (1e5, 3)):
        save_file(learnt | {name: np.full_like(learnt[name], value)}, "w16/adapter_model.safetensors")
        for how in ("run", "--output-dir", "out"), ("merge", "-o", "n2.onnx"), ("merge", "-o", "n2.safetensors"):
            p = forks.run([graphc, how[0], model, "--adapter", "w16", *how[1:]])
            check(p.returncode == status and ("too large for f16" in p.stderr) == bool(status), f"{how} of {value}: {p.returncode} {p.stderr}")
    in_16_bits("z.onnx", renamed("z32.onnx", "m.onnx", **{"down.weight": "down.lora_A.weight"}))
    m = onnx.load("z.onnx")
    m.graph.node[-1].name = "/down/lora_A/MatMul"
    onnx.save(m, "z.onnx")
    np.save("x16.npy", np.zeros((8, 16), np.float16)), np.save("t16.npy", np.zeros((8, 3), np.float16))
    forks.run([graphc, "finetune", "z.onnx", *loss, "--lora", "r=2,save=down.lora_A,targets=up", "--plan-only", "-o", "z.plan"])
    forks.run([graphc, "finetune", "z.onnx", *loss, "--data", "x=x16.npy", "--data", "t=t16.npy", "--steps", 1, "--lora", "r=2,targets=up", "-o", "z"])
    p = forks.run([graphc, "run", "z.plan", "--adapter", "z", "--output-dir", "out"])
    check(p.returncode == 3 and "down.lora_A.weight is of f16 in the plan, not of f32" in p.stderr, f"z.plan: {p.returncode} {p.stderr}")


with tempfile.TemporaryDirectory() as tmp:
    os.chdir(tmp)
    perceptron("m.onnx"), byte_model("b.onnx")
    classes()
    positions()
    sizes()
    ignored()
    other_losses()
    options()
    names()
    merged_statistics()
    branches()
    adapters()
    narrow_adapters()
sys.exit(failed() > 0)
