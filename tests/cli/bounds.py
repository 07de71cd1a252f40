"""Compile time and memory stay within reach of the file's size, whatever the file.

    bounds.py GRAPHC [CASE ...]      without cases: all; --list names them; --some: not those that take long by themselves
    bounds.py GRAPHC FILE|FOLDER ... models from elsewhere (.onnx, .onnx.gz; NAME.in/*.npy are NAME's inputs), plans: each is
                                     compiled and run, or refused, within 2 s of CPU time and 1,000 MB

Each case is a small file that asks for much: bombs (what a file expands to), formulas of sizes,
and chains, fans and lists of thousands. It has to compile, or to be refused with the message that
it names, within LIMIT_S seconds of CPU time and LIMIT_MB of memory, in a process whose stack ends at
STACK_KB: what is deep must not rest on the caller's stack. Two threads compile, however many the machine
has: each holds a kernel of its own in memory. The limits are several times of what the cases take, so
that a slow machine passes and growth by one more power does not.
"""
import glob, gzip, os, resource, subprocess, sys, tempfile
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h

LIMIT_S, LIMIT_MB = 6, 1000
if b"__asan_init" in open(sys.argv[1], "rb").read():  # the address sanitizer keeps what was freed, and takes its time
    LIMIT_S, LIMIT_MB = 3 * LIMIT_S, 3 * LIMIT_MB
STACK_KB = 256
os.environ["GRAPHC_THREADS"] = "2"
CASES = {}


def case(expect="", runs=False, long=False):
    """expect: text of the refusal, "" where the file compiles. runs: so does the plan, on what is drawn.
    long: about a second each."""
    def add(fn):
        CASES[fn.__name__] = (fn, expect, runs, long)
        return fn
    return add


def tensor(name, *shape, t=T.FLOAT):
    return h.make_tensor_value_info(name, t, list(shape))


def unknown(name, t=T.FLOAT):
    """A value whose rank is not given."""
    return h.make_tensor_value_info(name, t, None)


def ints(name, *v):
    return h.make_tensor(name, T.INT64, [len(v)], list(v))


def model(nodes, inputs=None, outputs=None, inits=(), functions=()):
    g = h.make_graph(nodes, "g", inputs or [tensor("x", 4)], outputs or [unknown("y")], list(inits))
    sets = [h.make_opsetid("", 17)] + ([h.make_opsetid("l", 1)] if functions else [])
    return h.make_model(g, opset_imports=sets, functions=list(functions), ir_version=9)


def chain(op, n, *more, **attrs):
    names = ["x"] + [f"v{i}" for i in range(n - 1)] + ["y"]
    return [h.make_node(op, [names[i], *more], [names[i + 1]], **attrs) for i in range(n)]


# ---- What a file expands to --------------------------------------------------------------------

def function_bomb(depth, second):
    sets = [h.make_opsetid("", 17), h.make_opsetid("l", 1)]
    fns = [h.make_function("l", "f0", ["a"], ["b"], [h.make_node("Add", ["a", "a"], ["b"])], sets)]
    for i in range(1, depth):
        body = [h.make_node(f"f{i - 1}", ["a"], ["t"], domain="l"),
                h.make_node(f"f{i - 1}", [second], ["b"], domain="l")]
        fns.append(h.make_function("l", f"f{i}", ["a"], ["b"], body, sets))
    return model([h.make_node(f"f{depth - 1}", ["x"], ["y"], domain="l")], functions=fns)


@case("expand to more than")
def functions_in_a_row():
    return function_bomb(20, "t")


@case("expand to more than")
def functions_of_the_same():
    return function_bomb(32, "a")


@case("expand to more than")
def functions_of_many_nodes():
    body = [h.make_node("Constant", [], [f"c{i}"], value_int=i) for i in range(2000)]
    body.append(h.make_node("Identity", ["a"], ["b"]))
    sets = [h.make_opsetid("", 17), h.make_opsetid("l", 1)]
    fn = h.make_function("l", "f", ["a"], ["b"], body, sets)
    calls = [h.make_node("f", [f"v{i}" if i else "x"], [f"v{i + 1}"], domain="l")
             for i in range(2000)]
    return model(calls, outputs=[unknown("v2000")], functions=[fn])


def loop_nest(depth, v="x"):
    if depth == 0:
        return [h.make_node("Add", [v, "x"], [v + "a"])], v + "a"
    inner = v + "l"
    nodes, out = loop_nest(depth - 1, inner)
    body = h.make_graph(
        [h.make_node("Identity", [v + "c"], [v + "d"]), *nodes], "b",
        [tensor(v + "i", t=T.INT64), tensor(v + "c", t=T.BOOL), tensor(inner, 2)],
        [tensor(v + "d", t=T.BOOL), tensor(out, 2)])
    return [h.make_node("Loop", ["t", "", v], [v + "o"], body=body)], v + "o"


@case()
def loops_in_loops():
    nodes, out = loop_nest(4)
    return model(nodes, [tensor("x", 2)], [unknown(out)], [h.make_tensor("t", T.INT64, [], [64])])


def if_nest(depth, name):
    if depth < 0:
        return [h.make_node("Relu", ["x"], [name])]
    if depth == 0:
        return [h.make_node("NonZero", ["x"], [name + "n"]),
                h.make_node("Cast", [name + "n"], [name + "q"], to=T.FLOAT),
                h.make_node("Squeeze", [name + "q"], [name])]
    def branch(side, d):
        return h.make_graph(if_nest(d, name + side), "b", [], [unknown(name + side, T.FLOAT)])
    return [h.make_node("If", ["c"], [name], then_branch=branch("t", depth - 1 or -1),
                        else_branch=branch("e", 0))]


@case(long=True)
def ifs_in_ifs():
    return model(if_nest(14, "y"), [tensor("x", 4), tensor("c", t=T.BOOL)])


# ---- Code that one kernel becomes ---------------------------------------------------------------

@case(long=True)
def average_pool_over_open_volumes():
    """64 taps under conditions of three open sizes, several rows at a time."""
    return model([h.make_node("AveragePool", ["x"], ["y"], kernel_shape=[4, 4, 4],
                              pads=[1] * 6, strides=[2, 1, 2])], [tensor("x", 1, 1, "a", "b", "c")])


# ---- Names and lists ---------------------------------------------------------------------------

@case()
def symbols_of_one_spelling():
    n = 3000
    ins = [tensor(f"x{i}", "a" + chr(0x4e00 + i)) for i in range(n)]
    return model([h.make_node("Relu", ["x0"], ["y"])], ins)


@case(runs=True, long=True)
def inputs_with_symbols():
    ins = [tensor(f"x{i}", f"s{i}") for i in range(30000)]
    return model([h.make_node("Relu", ["x0"], ["y"])], ins)


@case()
def sizes_that_must_agree():
    n = 20000
    ins = [tensor(f"x{i}", f"s{i}") for i in range(n)]
    return model([h.make_node("Add", [f"x{i - 1}", f"x{i}"], [f"z{i}"]) for i in range(1, n)], ins,
                 [unknown("z1")])


@case(long=True)
def loops_after_loops():
    body = h.make_graph([h.make_node("Identity", ["c"], ["co"]), h.make_node("Add", ["v", "v"], ["o"])],
                        "b", [tensor("i", t=T.INT64), tensor("c", t=T.BOOL), tensor("v", 2)],
                        [tensor("co", t=T.BOOL), tensor("o", 2)])
    n = 3000
    nodes = [h.make_node("Loop", ["t", "", f"v{i}" if i else "x"], [f"v{i + 1}"], body=body)
             for i in range(n)]
    return model(nodes, [tensor("x", 2), tensor("t", t=T.INT64)], [unknown(f"v{n}")])


@case("has no attribute")
def attributes():
    return model([h.make_node("Relu", ["x"], ["y"], **{f"a{i}": 1 for i in range(60000)})])


@case("No such file")
def external_files():
    inits = []
    for i in range(80000):
        t = T(name=f"w{i}", data_type=T.FLOAT, dims=[4], data_location=T.EXTERNAL)
        t.external_data.add(key="location", value=f"miss/{i}")
        inits.append(t)
    return model([h.make_node("Relu", ["x"], ["y"])], inits=inits)


@case()
def sequence_grows_behind():
    n = 40000
    nodes = [h.make_node("SequenceEmpty", [], ["s0"])]
    nodes += [h.make_node("SequenceInsert", [f"s{i}", "x"], [f"s{i + 1}"]) for i in range(n)]
    return model(nodes + [h.make_node("SequenceAt", [f"s{n}", "z"], ["y"])],
                 inits=[h.make_tensor("z", T.INT64, [], [0])])


@case("expand to more than")
def sequence_grows_in_front():
    n = 20000
    nodes = [h.make_node("SequenceEmpty", [], ["s0"])]
    nodes += [h.make_node("SequenceInsert", [f"s{i}", "x", "z"], [f"s{i + 1}"]) for i in range(n)]
    return model(nodes + [h.make_node("SequenceAt", [f"s{n}", "z"], ["y"])],
                 inits=[h.make_tensor("z", T.INT64, [], [0])])


@case(long=True)
def outputs_of_one_value():
    return model([h.make_node("Relu", ["x"], ["y"])], outputs=[tensor("y", 4)] * 60000)


# ---- Formulas of sizes ------------------------------------------------------------------------

def expand(nodes, size, *inits, ins=None):
    one = tensor("e", 1)
    return model([h.make_node("Shape", ["x"], ["c0"]), *nodes, h.make_node("Expand", ["e", size], ["y"])],
                 (ins or [tensor("x", "n")]) + [one], inits=inits)


@case("more than 4000 parts")
def size_squared():
    ops = ["Mul", "Add"]
    return expand([h.make_node(ops[i % 2], [f"c{i}"] * 2, [f"c{i + 1}"]) for i in range(60)], "c60")


@case("more than 4000 parts")
def size_divided():
    nodes = []
    for i in range(12):
        nodes += [h.make_node("Div", [f"c{i}", "three"], [f"d{i}"]),
                  h.make_node("Add", [f"d{i}", f"c{i}"], [f"e{i}"]),
                  h.make_node("Mul", [f"e{i}", f"d{i}"], [f"f{i}"]),
                  h.make_node("Mod", [f"f{i}", "prime"], [f"c{i + 1}"])]
    return expand(nodes, "c12", ints("three", 3), ints("prime", 1000003))


@case("more than 4000 parts")
def size_of_many():
    n = 64
    ins = [tensor("x", "n")] + [tensor(f"x{i}", f"s{i}") for i in range(1, n)]
    nodes = []
    for i in range(1, n):
        nodes += [h.make_node("Shape", [f"x{i}"], [f"s{i}"]),
                  h.make_node("Add", [f"c{i - 1}", f"s{i}"], [f"a{i}"]),
                  h.make_node("Mul", [f"a{i}", f"c{i - 1}"], [f"c{i}"])]
    return expand(nodes, f"c{n - 1}", ins=ins)


@case("more than 4000 parts")
def size_as_text():
    return model([h.make_node("Relu", ["x"], ["y"])],
                 [tensor("x", "*".join(["(a+b)"] * 80)), tensor("z", "a", "b")])


@case(runs=True)
def slices_of_an_open_axis():
    return model(chain("Slice", 300, "first", "end"), [tensor("x", "n")], inits=[ints("first", 1), ints("end", 1 << 62)])


# ---- Depth ---------------------------------------------------------------------------------------

@case(long=True)
def elementwise_in_a_row():
    return model(chain("Sin", 10000))


@case()
def reshapes_of_concats():
    """Each value is made of the one before, with another shape and order."""
    nodes = []
    for i in range(1000):
        last = f"v{i - 1}" if i else "x"
        nodes += [h.make_node("Split", [last], [f"a{i}", f"b{i}"], axis=0),
                  h.make_node("Concat", [f"b{i}", f"a{i}"], [f"c{i}"], axis=0),
                  h.make_node("Reshape", [f"c{i}", f"s{i % 2}"], [f"v{i}"])]
    return model(nodes, [tensor("x", 8, 8)], [unknown("v999")],
                 [ints("s0", 4, 16), ints("s1", 16, 4)])


@case()
def gathers_in_a_row():
    return model(chain("GatherElements", 3000, "i", axis=0), [tensor("x", 8, 4), tensor("i", 8, 4, t=T.INT64)])


@case(long=True)
def pools_over_open_sizes():
    """All read one number of elements per window, and store one value each."""
    return model(chain("AveragePool", 2000, kernel_shape=[3, 3], pads=[1] * 4), [tensor("x", 1, 4, "h", "w")])


@case(long=True)
def pads_in_pads():
    return model(chain("Pad", 1000, "p"), [tensor("x", 4, 4)], inits=[ints("p", 1, 1, 1, 1)])


@case()
def reshapes_in_reshapes():
    """Each order of elements is a quotient and a remainder of the one before."""
    nodes = []
    for i in range(500):
        last = f"v{i - 1}" if i else "x"
        nodes += [h.make_node("Reshape", [last, f"s{i % 2}"], [f"r{i}"]),
                  h.make_node("Transpose", [f"r{i}"], [f"v{i}"])]
    return model(nodes, [tensor("x", 6, 35)], [unknown("v499")], [ints("s0", -1, 14), ints("s1", -1, 10)])


@case(long=True)
def concatenation_of_thousands():
    return model([h.make_node("Concat", ["x", "z"] * 1500, ["y"], axis=0)], [tensor("x", 4), tensor("z", 4)])


@case()
def compressed_again_and_again():
    """As many kernels, which differ in their sizes alone: their code is made once."""
    return model(chain("Compress", 1000, "c", axis=0), [tensor("x", "n", 4), tensor("c", "k", t=T.BOOL)])


@case(long=True)
def convolutions_over_open_sizes():
    return model(chain("Conv", 150, "w", kernel_shape=[3, 3]), [tensor("x", "n", 4, "h", "v")],
                 inits=[h.make_tensor("w", T.FLOAT, [4, 4, 3, 3], [0.5] * 144)])


@case(long=True)
def reflecting_pads():
    return model(chain("Pad", 150, "p", mode="reflect"), [tensor("x", "h", "v")], inits=[ints("p", 1, 1, 1, 1)])


def concatenation_of_open_sizes(n):
    """Each operand begins at the sum of the sizes before it."""
    return model([h.make_node("Concat", [f"x{i}" for i in range(n)], ["y"], axis=0)], [tensor(f"x{i}", f"s{i}", 4) for i in range(n)])


@case(runs=True, long=True)
def concatenation_of_a_thousand_open_sizes():
    return concatenation_of_open_sizes(1000)


@case("begin at formulas of sizes with more than")
def concatenation_of_thousands_of_open_sizes():
    return concatenation_of_open_sizes(1900)


# ---- Running -----------------------------------------------------------------------------------

def limit():
    resource.setrlimit(resource.RLIMIT_CPU, (2 * LIMIT_S, 2 * LIMIT_S))
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_KB << 10, STACK_KB << 10))


def run(folder, *args):
    """(exit status, text, CPU seconds, peak MB) of a command."""
    with open(os.path.join(folder, "log"), "w+") as log:
        p = subprocess.Popen(args, stdout=log, stderr=log, preexec_fn=limit)
        _, status, use = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        text = log.read()
    return p.returncode, text, use.ru_utime + use.ru_stime, use.ru_maxrss / 1000


def faults(expect, rc, text, seconds, mb):
    if expect and (rc not in (3, 4, 7) or expect not in text):
        yield f"not refused with \"{expect}\""
    if not expect and rc != 0:
        yield "ends in an error"
    if seconds > LIMIT_S:
        yield f"more than {LIMIT_S} s"
    if mb > LIMIT_MB:
        yield f"more than {LIMIT_MB} MB"


def files_of(paths):
    for path in paths:
        found = sorted(os.path.join(path, f) for f in os.listdir(path)) if os.path.isdir(path) else [path]
        yield from (f for f in found if f.endswith((".onnx", ".onnx.gz", ".plan")))


def measure(graphc, path, folder):
    """What compiling and running it take: [(verb, exit status, text, seconds, MB)]."""
    name, plan = path.split(".onnx")[0], path
    if path.endswith(".gz"):
        with gzip.open(path) as f, open(os.path.join(folder, os.path.basename(path)[:-3]), "wb") as to:
            to.write(f.read())
            path = to.name
    got = []
    if not path.endswith(".plan"):
        plan = os.path.join(folder, "plan")
        got.append(("compile", *run(folder, graphc, path, "-o", plan)))
    if not got or got[0][1] == 0:
        given = [w for f in sorted(glob.glob(name + ".in/*.npy")) for w in ("--input", f"{os.path.basename(f)[:-4]}={f}")]
        got.append(("run", *run(folder, graphc, "run", plan, *given, "--output-dir", os.path.join(folder, "out"))))
    return got


def measured(graphc, paths):
    """A row per file; the number of those that take too much or end by a signal."""
    bad = n = 0
    for path in files_of(paths):
        with tempfile.TemporaryDirectory() as folder:
            got = measure(graphc, path, folder)
        fails = [g for g in got if g[1] < 0 or g[1] > 7 or g[3] > 2 or g[4] > 1000]
        bad, n = bad + bool(fails), n + 1
        print(f"{'FAIL' if fails else 'ok':5}{os.path.basename(path):34}"
              + "   ".join(f"{verb:8}exit {rc}  {s:5.2f} s {mb:5.0f} MB" for verb, rc, _, s, mb in got), flush=True)
    print(f"{n} files, {bad} fail")
    return bad or not n


def main():
    if "--list" in sys.argv:
        return print("\n".join(CASES)) or 0
    graphc, bad = os.path.abspath(sys.argv[1]), 0
    if any(os.path.exists(a) for a in sys.argv[2:]):
        return measured(graphc, sys.argv[2:]) != 0
    with tempfile.TemporaryDirectory() as folder:
        path, plan = os.path.join(folder, "model.onnx"), os.path.join(folder, "model.plan")
        some = "--some" in sys.argv
        for name in [a for a in sys.argv[2:] if a != "--some"] or CASES:
            build, expect, runs, long = CASES[name]
            if some and long:
                continue
            with open(path, "wb") as f:
                f.write(build().SerializeToString())
            got = run(folder, graphc, path, "-o", plan)
            why = list(faults(expect, *got))
            if runs and not why:
                got = run(folder, graphc, "run", plan, "--output-dir", os.path.join(folder, "out"))
                why = ["the run: " + w for w in faults("", *got)]
            bad += bool(why)
            print(f"{'FAIL' if why else 'ok':5}{name:28} exit {got[0]:3}  {got[2]:6.2f} s {got[3]:6.0f} MB  "
                  + "; ".join(why), flush=True)
            if why and got[0] not in (0, -9, -24):
                print("     ", got[1][:300].replace("\n", " | "))
    return bad > 0


sys.exit(main())
