"""The package graphc, installed: run by package.py in a folder with model.onnx."""
import gc, os, threading
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h

import graphc
import overhead as calls

rng = np.random.default_rng(0)
x = rng.standard_normal((4, 32)).astype(np.float32)
plan = graphc.compile("model.onnx")


def raises(kind, text, f, *args, **named):
    try:
        f(*args, **named)
    except kind as e:
        assert text in str(e), f"{e!r} lacks {text!r}"
        return e
    raise AssertionError(f"no {kind.__name__}")


def reference(x):
    m = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load("model.onnx").graph.initializer}
    w, b = (next(v for v in m.values() if v.ndim == k) for k in (2, 1))
    return np.maximum(x @ w + b, 0)


def signature():
    assert plan.inputs == (graphc.Tensor("x", "f32", ("batch", 32)),)
    assert repr(plan).startswith("<graphc.Plan (x: f32[batch, 32]) -> (") and repr(plan).endswith(" for cpu>"), repr(plan)
    assert plan.outputs == (graphc.Tensor("y", "f32", ("batch", 50)),)
    assert plan.symbols == {"batch": (1, 2147483647)} and plan.targets == ("cpu",) and plan.entries == ("run",)


def arrays():
    want = reference(x)
    y = plan.run(x=x)["y"]
    assert y.dtype == np.float32 and np.allclose(y, want, atol=1e-5)
    first = y.copy()
    plan.run({"x": x + 1})
    assert np.array_equal(y, first), "an output that was given away was written again"
    odd = np.asfortranarray(x)
    assert np.array_equal(plan.run(x=odd)["y"], first) and np.array_equal(plan.run(x=x.tolist())["y"], first)
    odd[:] = 0
    assert np.array_equal(plan.run(x=odd)["y"], plan.run(x=x * 0)["y"]), "a copy of an array was used again"
    big = rng.standard_normal((9, 32)).astype(np.float32)
    assert np.allclose(plan.run(x=big[::2])["y"], reference(big[::2]), atol=1e-5)
    with plan.session(threads=2) as s:
        out = np.zeros((4, 50), np.float32)
        assert s.run(x=x, out={"y": out})["y"] is out and np.array_equal(out, first)
        assert s.threads == 2 and s.code.startswith("x86-64-v")
        raises(graphc.InvalidError, "dimension 0 will be 4", s.run, x=x, out={"y": np.zeros((5, 50), np.float32)})
        raises(graphc.UsageError, "not writable", s.run, x=x, out={"y": np.broadcast_to(out, out.shape)})
        raises(graphc.UsageError, "order", s.run, x=x, out={"y": np.asfortranarray(out)})
        assert np.array_equal(s.run()["y"], first), "the input of the run before"
        times = s.profile(x=x)
        assert any("matmul" in t.name and t.seconds > 0 and t.flops > 0 and t.nodes for t in times)
    raises(graphc.UsageError, "closed", s.run, x=x)
    with plan.session(lean=True) as s:
        assert all(np.array_equal(s.run(x=x)["y"], first) for _ in range(2)), "weights that come and go"
        raises(graphc.UsageError, "lean", s.save_prepared, "lean.plan")


def positions():
    """Ids beyond a table read its nearest row, and are an error where a session checks."""
    table = rng.standard_normal((10, 3)).astype(np.float32)
    g = h.make_graph([h.make_node("Gather", ["table", "ids"], ["y"])], "g", [h.make_tensor_value_info("ids", T.INT64, ["n"])],
                     [h.make_tensor_value_info("y", T.FLOAT, ["n", 3])], [onnx.numpy_helper.from_array(table, "table")])  # fmt: skip
    rows = graphc.compile(h.make_model(g, opset_imports=[h.make_opsetid("", 17)]))
    ids = np.array([0, -10, 9, -1])
    for check in (False, True):
        with rows.session(check=check) as s:
            assert np.array_equal(s.run(ids=ids)["y"], table[ids])
            if check:
                for wrong in (10, -11):
                    raises(graphc.InvalidError, f"element 1 is {wrong}; the model takes -10 to 9", s.run, ids=np.array([0, wrong]))
                assert np.array_equal(s.run(ids=ids)["y"], table[ids])
            else:
                assert np.array_equal(s.run(ids=np.array([10, -11]))["y"], table[[9, 0]])


def errors():
    raises(graphc.UsageError, 'it has "x"', plan.run, z=x)
    raises(graphc.InvalidError, "f32, the array is float64", plan.run, x=x.astype(np.float64))
    raises(graphc.InvalidError, "rank 2", plan.run, x=x[0])
    raises(graphc.InvalidError, "dimension 1 must be 32", plan.run, x=x[:, :5].copy())
    raises(graphc.UsageError, "not bound", plan.session().run)
    raises(graphc.UsageError, "neither", plan.session, "tpu")
    raises(graphc.UsageError, "Plan.load takes a path", graphc.Plan, "model.plan")
    raises(graphc.FileError, "none.plan", graphc.load, "none.plan")
    raises(graphc.InvalidError, "", graphc.Plan, b"no plan")
    e = raises(graphc.InvalidError, "protobuf", graphc.compile, b"no model")
    assert e.status == 3 and e.diagnostics[0].severity == "error" and e.diagnostics[0].code == "G0102"
    e = raises(graphc.UsageError, "rows", graphc.compile, "model.onnx", dims={"rows": 1})
    assert "batch" in e.diagnostics[0].hint
    y = plan.run(x=x)["y"]
    assert np.allclose(y, reference(x), atol=1e-5), "a session after errors"


def compiling():
    told = []
    again = graphc.compile("model.onnx", progress=lambda *a: told.append(a))
    assert [t[0] for t in told if t[1] == 0] == ["import", "passes", "kernels", "plan"], told
    again.save("again.plan"), plan.save("plan.plan")
    assert open("again.plan", "rb").read() == open("plan.plan", "rb").read()
    assert np.array_equal(graphc.load("again.plan").run(x=x)["y"], plan.run(x=x)["y"])
    raises(graphc.Cancelled, "before all kernels", graphc.compile, "model.onnx", progress=lambda stage, *_: stage != "kernels")
    raises(ZeroDivisionError, "", graphc.compile, "model.onnx", progress=lambda *_: 1 // 0)
    m = onnx.load("model.onnx")
    assert np.array_equal(graphc.compile(m).run(x=x)["y"], plan.run(x=x)["y"])
    onnx.save(m, "e.onnx", save_as_external_data=True, location="e.weights", size_threshold=0)
    model, weights = open("e.onnx", "rb").read(), open("e.weights", "rb").read()
    os.remove("e.weights")
    asked = []
    inside = graphc.compile(model, external=lambda name: asked.append(name) or weights)
    assert asked == ["e.weights"] and np.array_equal(inside.run(x=x)["y"], plan.run(x=x)["y"])
    assert np.array_equal(graphc.compile(model, external={"e.weights": weights}).run(x=x)["y"], plan.run(x=x)["y"])
    raises(KeyError, "e.weights", graphc.compile, model, external={})
    raises(graphc.InvalidError, "memory", graphc.compile, model)
    raises(graphc.InvalidError, "needed", graphc.compile, model, external={"e.weights": b"short"})
    fixed = graphc.compile("model.onnx", dims={"batch": 4})
    assert fixed.inputs[0].shape == (4, 32) and fixed.symbols == {}


def telling():
    e = plan.explain()
    names = [k.name for k in e.of("y")]
    assert len(names) == 1 and "matmul_add_relu" in names[0] and e.target == "cpu"
    assert any(k.entry == "" for k in e.kernels) and all(isinstance(k.nodes, tuple) for k in e.kernels)
    raises(graphc.UsageError, "cpu", plan.explain, "sm_90a")
    v = graphc.verify("model.onnx", {"x": x})
    assert v and v.report["ok"] is True and v.report["outputs"]
    assert not graphc.verify("model.onnx", {"x": x}, rtol=0, atol=0)  # sums of f32 are not those of f64
    loaded = onnx.load("model.onnx")
    assert graphc.verify(loaded, {"x": x}) and graphc.verify(loaded.SerializeToString(), {"x": x})
    raises(graphc.InvalidError, "invalid ONNX", graphc.verify, b"no model")
    raises(graphc.FileError, "none.onnx", graphc.verify, "none.onnx")


def run_time_sizes():
    """A size that only the run finds out, beside one that is known."""
    g = h.make_graph([h.make_node("NonZero", ["x"], ["at"]), h.make_node("Neg", ["x"], ["n"])], "g",
                     [h.make_tensor_value_info("x", T.FLOAT, ["m"])],
                     [h.make_tensor_value_info("at", T.INT64, [1, "k"]), h.make_tensor_value_info("n", T.FLOAT, ["m"])])
    p = graphc.compile(h.make_model(g, opset_imports=[h.make_opsetid("", 17)], ir_version=8))
    for v in ([0, 1, 2, 0, 3], [0, 0], [5.0]):
        v = np.array(v, np.float32)
        got = p.run(x=v)
        assert np.array_equal(got["at"], np.array(np.nonzero(v))) and np.array_equal(got["n"], -v)


def states():
    """A cache: what a run leaves to the next."""
    g = h.make_graph([h.make_node("Add", ["past", "x"], ["now"]), h.make_node("Neg", ["now"], ["y"])], "g",
                     [h.make_tensor_value_info("past", T.FLOAT, [3]), h.make_tensor_value_info("x", T.FLOAT, [3])],
                     [h.make_tensor_value_info("y", T.FLOAT, [3]), h.make_tensor_value_info("now", T.FLOAT, [3])])
    m = h.make_model(g, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    s = graphc.compile(m, states={"past": "now"}).session()
    one = np.ones(3, np.float32)
    for i in range(3):
        assert np.array_equal(s.run(x=one)["y"], -(i + 1) * one)
    assert np.array_equal(s.state("past"), 3 * one) and [n for n, _ in s.states()] == ["past"]
    s.save_states("s.safetensors"), s.set_state("past", one * 10)
    assert np.array_equal(s.run(x=one)["y"], -11 * one)
    s.load_states("s.safetensors")
    assert np.array_equal(s.run(x=one)["y"], -4 * one)
    s.save_prepared("s.plan")
    again = graphc.load("s.plan").session()
    assert np.array_equal(again.run(x=one)["y"], -one) and again.run(x=one)["y"][0] == -2


def threads():
    """Eight at once, each in a session of its own, and eight in one session."""
    want, bad = plan.run(x=x)["y"], []

    def work(run):
        for _ in range(300):
            if not np.array_equal(run(x=x)["y"], want):
                bad.append(run)

    shared = plan.session()
    for f in (plan.run, shared.run):
        all_ = [threading.Thread(target=work, args=(f,)) for _ in range(8)]
        [t.start() for t in all_], [t.join() for t in all_]
    assert not bad, f"{len(bad)} runs differed"


def lifetimes():
    """Nothing is used after its end, in whatever order things go."""
    for _ in range(20):
        p = graphc.load("plan.plan")
        s = p.session(threads=1)
        del p
        gc.collect()
        y = s.run(x=rng.standard_normal((4, 32)).astype(np.float32))["y"]
        del s
        gc.collect()
        y += 1
        p = graphc.load("plan.plan")
        p.run(x=x)
        t = threading.Thread(target=lambda: p.run(x=x))
        t.start(), t.join()
        del p, t
        gc.collect()
    for k in range(20):  # a cycle, whose parts the collector ends in an order of its own
        p = graphc.load("plan.plan")
        ring = [p, p.session(threads=1)] if k % 2 else [p.session(threads=1), p]
        ring.append(ring)
        del p, ring
        gc.collect()


class Elsewhere:
    """An array that says that it lies on that DLPack device."""

    def __init__(self, x, device):
        self.x, self.device, self.dtype = x, device, x.dtype

    def __dlpack__(self):
        capsule = self.x.__dlpack__()
        tensor = graphc._array._DLTensor.from_address(graphc._array._capsule_pointer(capsule, b"dltensor"))
        tensor.device = self.device
        return capsule


def devices():
    """Arrays of a GPU are refused by a session on the CPU, whatever their library is; no plan of the CPU's runs on one."""
    for device, why in ((2, "lies on another device than the session"), (13, "lies on another device than the session"),
                        (10, "DLPack device 10")):
        try:
            plan.session().run(x=Elsewhere(x, device))
            raise SystemExit(f"an array on device {device} was taken")
        except graphc.UsageError as e:
            assert why in str(e), e
    assert np.array_equal(plan.session().run(x=Elsewhere(x, 3))["y"], plan.run(x=x)["y"]), "memory that the host has"
    try:
        plan.session("cuda:0")
        raise SystemExit("a plan without GPU code has a session there")
    except graphc.UnsupportedError as e:
        assert "--target" in str(e), e


def overhead():
    with plan.session(threads=1) as s:
        calls.check(lambda: s.run(x=x), lambda: np.add(x, x))


for part in (signature, arrays, positions, errors, compiling, telling, run_time_sizes, states, threads, lifetimes, devices,
             overhead):
    part()
print("ok")
