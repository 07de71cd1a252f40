"""The pages of explain, verify and bench in a real browser: no message on the console, nothing wider than the window at
1280 pixels and on a phone. Of explain both graphs as a whole, what a click and the search bring, the memory plan's peak.
Skipped without chromium.

    pages.py GRAPHC [KEEP]    KEEP: a folder for the pages and their pictures
"""
import json, os, re, subprocess, sys
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import browser
from tool import check

browser.need()
graphc = os.path.abspath(sys.argv[1])
rng = np.random.default_rng(5)

# Clicks a kernel, then searches for a node, and says what is there.
PROBE = """
const shown = e => { const b = e.getBoundingClientRect(); return [b.left, b.right, b.top, b.bottom]; };
const r = {nodes: document.querySelectorAll('#before .box').length, kernels: document.querySelectorAll('#after .box').length,
  edges: document.querySelectorAll('#before .edge').length, rooms: document.querySelectorAll('.room').length, memory: document.querySelector('#memory p').textContent,
  rows: document.querySelectorAll('#time tr').length - 1, first: document.querySelector('#time td').textContent, dots: document.querySelectorAll('.dot').length};
const kernels = [...document.querySelectorAll('#after .box')], last = kernels[kernels.length - 1];
last.dispatchEvent(new MouseEvent('click', {bubbles: true}));
r.detail = document.querySelector('#detail').textContent;
r.marked = [...document.querySelectorAll('#before .box.on')].map(b => b.querySelector('title').textContent);
const frame = shown(document.querySelector('#before svg')), on = document.querySelector('#before .box.on');
r.inside = on ? (b => b[0] >= frame[0] && b[1] <= frame[1] && b[2] >= frame[2] && b[3] <= frame[3])(shown(on)) : null;
const find = document.querySelector('#find');
find.value = 'second'; find.dispatchEvent(new Event('input'));
r.found = document.querySelector('#detail h2').textContent; r.hits = document.querySelector('#hits').textContent;
document.querySelectorAll('#before button')[2].click();
const whole = shown(document.querySelector('#before svg g')), now = shown(document.querySelector('#before svg'));
r.whole = whole[0] >= now[0] - 1 && whole[1] <= now[1] + 1 && whole[2] >= now[2] - 1 && whole[3] <= now[3] + 1;
const boxes = [...document.querySelectorAll('#before .box')].map(b => shown(b.querySelector('rect')));
r.overlap = boxes.some((a, i) => boxes.some((b, k) => k > i && a[0] < b[1] - 1 && b[0] < a[1] - 1 && a[2] < b[3] - 1 && b[2] < a[3] - 1));
r.spill = [...document.querySelectorAll('.box')].filter(b => { const t = shown(b.querySelector('text')), q = shown(b.querySelector('rect')); return t[0] < q[0] || t[1] > q[1]; }).length;
r.wide = Math.max(...[...document.querySelectorAll('body > *, section > *, figure > *')].map(e => e.getBoundingClientRect().right)) -
  document.documentElement.getBoundingClientRect().right;
r.bodyWide = document.body.scrollWidth - document.documentElement.clientWidth;
document.title = JSON.stringify(r);
"""

# What the plots of the other pages say: words that are cut or lie over others, and how small they are.
PLOTS = """
const hidden = [], box = e => e.getBoundingClientRect();
let least = 1e9;
for (const plot of document.querySelectorAll('svg:not(.time)')) {
  const words = [...plot.querySelectorAll('text')], whole = box(plot);
  words.forEach((w, i) => {
    const a = box(w), over = words.some((v, k) => k > i && (b => a.left < b.right && b.left < a.right && a.top < b.bottom - 3 && b.top < a.bottom - 3)(box(v)));
    if (over || a.left < whole.left || a.right > whole.right || a.bottom > whole.bottom || a.top < whole.top) hidden.push(w.textContent);
    least = Math.min(least, a.height);
  });
}
document.title = JSON.stringify({wide: document.body.scrollWidth - document.documentElement.clientWidth, hidden, least,
  cut: [...document.querySelectorAll('td:last-child')].filter(c => box(c).right > box(c.closest('section')).right + 1).length,
  marks: document.querySelectorAll('circle').length});
"""


def run(*args, status=0):
    p = subprocess.run([graphc, *args], capture_output=True, text=True, timeout=600)
    check(p.returncode == status, f"graphc {' '.join(args)}: exit {p.returncode}\n{p.stdout}{p.stderr}")
    return p.stdout + p.stderr


WIDE = "W" * 16  # an input's name, wider than its box


def model(path):
    """Two products with a softmax between, a residual, and a node that no kernel has."""
    w = lambda n: numpy_helper.from_array(rng.standard_normal((64, 64)).astype(np.float32), n)
    nodes = [h.make_node("MatMul", [WIDE, "w0"], ["a"], name="first"), h.make_node("Softmax", ["a"], ["b"], name="soft </script> & <b>", axis=0),
             h.make_node("MatMul", ["b", "w1"], ["c"], name="second"), h.make_node("Add", ["c", WIDE], ["d"], name="residual"),
             h.make_node("Reshape", ["d", "flat"], ["y"], name="flatten"), h.make_node("Neg", ["w0"], ["unused"], name="unused")]
    g = h.make_graph(nodes, "g", [h.make_tensor_value_info(WIDE, T.FLOAT, ["rows", 64])], [h.make_tensor_value_info("y", T.FLOAT, [None])],
                     [w("w0"), w("w1"), numpy_helper.from_array(np.array([-1]), "flat")])
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 21)], ir_version=10), path)


def test(d):
    os.chdir(d)
    model("m.onnx")
    size = ["--dim", "rows=32"]
    j = json.loads(run("explain", "m.onnx", "--json", *size))["targets"][0]
    names = [k["name"] for k in j["entries"][0]["kernels"]]
    open("p.json", "w").write(subprocess.run([graphc, "bench", "m.onnx", "-v", "--json", "--runs", "3", *size], capture_output=True, text=True).stdout)
    both = run("explain", "m.onnx", "--html", "m.html", "--dot", "m.dot", "--json", *size)
    check(both == run("explain", "m.onnx", "--json", *size), "--json says beside --html what it says alone")
    run("explain", "m.onnx", "--html", "p.html", "--profile", "p.json", *size)
    for name in "m.html", "p.html":
        text = open(name).read()
        check(not re.findall(r"https?://(?!www.w3.org/2000/svg)|@import|url\((?!data)", text), f"{name}: something from elsewhere")
        check("soft </script>" not in text and len(text) < 200_000, f"{name}: {len(text)} characters")
        for width in 1280, 390:
            r, said = browser.probe(d, text, PROBE, width)
            check(not said, f"{name}: the console says {said}")
            check(r, f"{name}: the page's script did not end")
            if not r:
                continue
            check(r["nodes"] == 6 + 2 and r["edges"] == 7 and r["kernels"] == len(names) + len(j["at_load"]), f"{name}: the graphs {r}")
            check(r["rooms"] > 0 and "most alive at once" in r["memory"], f"{name}: memory {r['rooms']} {r['memory']}")
            check(r["rows"] == len(names) and (r["dots"] > 0) == (name == "p.html"), f"{name}: times {r['rows']} {r['dots']}")
            check(names[-1] in r["detail"] and "kernel " + names[-1] in r["detail"] and "Code" in r["detail"], f"{name}: a kernel's detail: {r['detail'][:300]}")
            check("residual" in "".join(r["marked"]) and r["inside"], f"{name}: nodes of a kernel {r['marked']} {r['inside']}")
            check("MatMul second" in r["found"] and r["hits"].startswith("1 of"), f"{name}: the search finds {r['found']} {r['hits']}")
            check(r["whole"] and not r["overlap"], f"{name}: the graph as a whole {r['whole']}, boxes over each other {r['overlap']}")
            check(not r["spill"], f"{name}: {r['spill']} boxes are narrower than their names")
            check(r["wide"] <= 0 and r["bodyWide"] <= 0, f"{name}: {r['wide']} {r['bodyWide']} pixels wider than {width}")
            check(not browser.picture(d, f"{d}/{name}#k{r['kernels'] - 1}", f"{d}/{name}-{width}.png", width, 2200), "a message")
            check(os.path.getsize(f"{d}/{name}-{width}.png") > 10_000, "no picture")
    # The other pages: nothing but text and plots.
    run("verify", "m.onnx", "--html", "verify.html", *size)
    run("bench", "m.onnx", "--runs", "3", "--html", "bench.html", *size)
    run("run", "m.onnx", "--output-dir", "out", *size)
    np.save("out/y.npy", np.load("out/y.npy") + np.float32(1))
    run("verify", "m.onnx", "--against", "out", "--html", "bad.html", *size, status=1)
    check("Everything agrees" in open("verify.html").read() and "It differs" in open("bad.html").read(), "what verify's page says")
    for name in "verify", "bench", "bad":
        text = open(f"{name}.html").read()
        check(text.count("<tr>") >= len(names) and "http" not in text and "<script" not in text, f"{name}: rows, and nothing fetched")
        for width in 1280, 390:
            r, said = browser.probe(d, text, PLOTS, width)
            check(r and r["wide"] <= 0 and r["marks"] > 0 and not said, f"{name} at {width}: {r} {said}")
            check(r and not r["cut"], f"{name} at {width}: {r and r['cut']} names of rows lie outside of their table")
            check(r and not r["hidden"] and r["least"] >= 8, f"{name} at {width}: what plots say is {r['least']} pixels high, cut or covered: {r['hidden']}")

    dot = open("m.dot").read()
    check(dot.count(" -> ") == 7 and all(f'label="{n}"' in dot for n in names if not n.startswith("prepare")), "dot: " + dot[:400])

    said = run("explain", "m.onnx", "first", "second", *size)
    check(names[0] in said and "stores what" in said and "what would change it" in said, said)
    said = run("explain", "m.onnx", "second", "residual", *size)
    check("one kernel has both" in said, said)
    check("is in no kernel: no output needs it" in run("explain", "m.onnx", "unused", "first", *size), "a node that nothing needs")
    check("there is no node" in run("explain", "m.onnx", "first", "sekond", status=2) and "first" in run("explain", "m.onnx", "firts", status=2), "unknown")
    run("m.onnx", "-o", "m.plan")
    check("need the model" in run("explain", "m.plan", "--html", "x.html", status=2), "a plan has no picture")
    open("other.json", "w").write('{"device": "cpu", "kernels": [{"name": "tem_9_other", "ms": 1}]}')
    check("another plan" in run("explain", "m.onnx", "--html", "x.html", "--profile", "other.json", status=2), "another plan's profile")
    check(not os.path.exists("x.html"), "a page was left behind")


browser.try_pages(test)
