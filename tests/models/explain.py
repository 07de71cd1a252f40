"""Every node of a model has one true account in `explain --json`: explain.py GRAPHC [MODEL.onnx or name in models/ ...]

A node is computed by kernels, or it is a view where kernels read it, or it is in no kernel for a reason: one of the three.
That a kernel computes a node is checked against the Kernel IR: an operation made of one of the node's values.
"""
import collections, json, os, re, subprocess, sys, tempfile
import onnx

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tool import check, failed

graphc, only = os.path.abspath(sys.argv[1]), sys.argv[2:]


def number(text):
    """Of the model's own node: that of the call, where a node of a function or of a body is named."""
    return int(re.findall(r"node (\d+) ", text)[-1])


def outermost(lines):
    """Of kernels outside of loops and branches: bodies number their values by themselves."""
    depth = 0
    for line in lines:
        step = re.match(r"# step \d+: (loop|if|end)\b", line)
        if step:
            depth += -1 if step[1] == "end" else 1
        if not depth:
            yield line


def kernels_by_node(ir):
    """{node: kernels with an operation made of one of its values}, from the dumps. Not of a scan that is one kernel: beside
    values of the graph it has those of the body, which numbers its own."""
    place = {v: number(where) for v, where in re.findall(r"^  %(\d+) .*# (.*node \d+ .*)", open(f"{ir}/pre-fusion.gir").read(), re.M)}
    found, kernel, loads, turns = collections.defaultdict(set), None, set(), False
    for line in outermost(open(f"{ir}/post-fusion.kir")):
        head, op = re.match(r"kernel (\S+)", line), re.match(r"  (%\d+) \S+ (\w+)(?: (%\d+))?(?:.* @(\d+))?", line)
        if head:
            kernel, loads, turns = head[1], set(), " turns " in line
        if not op:
            continue
        if op[2] == "load":
            loads.add(op[1])
        fetched = op[2] in ("load", "const") or op[2] == "cast" and op[3] in loads  # what is 16 bits wide is widened
        if op[4] in place and not fetched and not turns:
            found[place[op[4]]].add(kernel)
    return found


def accounts(name, path, *more):
    nodes = onnx.load(path, load_external_data=False).graph.node
    with tempfile.TemporaryDirectory() as ir:
        p = subprocess.run([graphc, "explain", path, "--json", "--dump-ir", ir, *more], capture_output=True, text=True)
        check(p.returncode == 0, f"{name}: exit {p.returncode}: {p.stderr[-300:]}")
        target = json.loads(p.stdout)["targets"][0]
        in_kir = kernels_by_node(ir)
    computed, views, inner = collections.defaultdict(set), collections.defaultdict(set), collections.defaultdict(set)
    for k in target["at_load"] + [k for e in target["entries"] for k in e["kernels"]]:
        for to, key in ((computed, "nodes"), (views, "views")):
            check(len(set(k[key])) == len(k[key]), f"{name}: {k['name']} names a node twice: {k[key]}")
            for text in k[key]:
                within = " in node " in text
                if within:
                    inner[text].add(key)
                if not within or key == "nodes":
                    to[number(text)].add(k["name"])
    for text, keys in inner.items():
        check(len(keys) == 1, f"{name}: {text} is both computed and a view")
    apart = {number(n["node"]): n["why"] for n in target["in_no_kernel"]}
    for i, node in enumerate(nodes):
        has = [kind for kind, of in (("computed", computed), ("view", views), ("in no kernel", apart)) if i in of]
        check(len(has) == 1, f"{name}: node {i} {node.name} {node.op_type} is {' and '.join(has) or 'not accounted for'}")
        missing = in_kir.get(i, set()) - computed.get(i, set())
        check(not missing, f"{name}: node {i} {node.name}: the Kernel IR computes it in {sorted(missing)}, too")
    dead = {i for i, why in apart.items() if why == "no output needs it"}
    check(dead == unneeded(onnx.load(path, load_external_data=False).graph), f"{name}: nodes that no output needs: {sorted(dead)}")
    print(f"{name}: {len(nodes)} nodes: {len(computed)} computed, {len(views)} views, {len(apart)} in no kernel")


def unneeded(graph):
    def names(g):
        for n in g.node:
            yield from n.input
            for a in n.attribute:
                for s in ([a.g] if a.HasField("g") else []) + list(a.graphs):
                    yield from names(s)
                    yield from (o.name for o in s.output)
    need, left = {o.name for o in graph.output}, set()
    for i, n in reversed(list(enumerate(graph.node))):
        if need & set(n.output):
            need |= set(n.input) | {x for a in n.attribute for s in ([a.g] if a.HasField("g") else []) + list(a.graphs)
                                    for x in [*names(s), *(o.name for o in s.output)]}
        else:
            left.add(i)
    return left


def bodies():
    """A scan, unrolled and as a loop, beside a function that is called twice."""
    from onnx import TensorProto as T, helper as h, parser
    model = parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "own" : 1]>
        bodies (float[n, 3, 4] x, float[3, 4] state, float[4, 5] w) => (float[n, 3, 5] y, float[3, 4] last) {
            e = Exp (x)
            last, all = Scan <num_scan_inputs = 1, body = body (float[3, 4] s, float[3, 4] a) => (float[3, 4] s2, float[3, 4] out) {
                half = Constant <value_float = 0.5> ()
                s1 = Mul (s, half)
                s2 = Add (s1, a)
                r = Relu (s2)
                t = Transpose <perm = [1, 0]> (r)
                out = Transpose <perm = [1, 0]> (t)
            }> (state, e)
            g = own.gate (all)
            h = own.gate (g)
            y = MatMul (h, w)
        }
        <opset_import: ["" : 21], domain: "own">
        gate (a) => (b) { s = Sigmoid (a)  m = Mul (a, s)  b = Identity (m) }""")
    with tempfile.TemporaryDirectory() as d:
        onnx.save(model, f"{d}/bodies.onnx")
        accounts("bodies, unrolled", f"{d}/bodies.onnx", "--dim", "n=5")
        accounts("bodies, in a loop", f"{d}/bodies.onnx")


if not only:
    bodies()
for name in only or sorted(n[:-5] for n in os.listdir(cases.MODELS) if n.endswith(".onnx")):
    if os.path.exists(name):
        accounts(os.path.basename(name), name)
    else:
        with tempfile.TemporaryDirectory() as folder:  # nothing runs: weights are sparse files
            cases.sparse_weights(name, folder, marked=True)
            accounts(name, f"{folder}/{name}.onnx")
sys.exit(failed() > 0)
