"""The page of a training run in a real browser: no message on its console, nothing wider than the window, curves
where the numbers are, in light and in dark. Skipped without chromium (tests/setup browser).

    page.py TRAIN_TOOL [KEEP]    KEEP: a folder for the page and its pictures
"""
import json, math, os, re, subprocess, sys
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import browser
from tool import check

browser.need()
tool = sys.argv[1]

# What the page looks like from inside.
PROBE = """
const right = Math.max(...[...document.querySelectorAll('body *')].map(e => e.getBoundingClientRect().right));
const r = {wide: right - document.documentElement.getBoundingClientRect().right, plots: []};
for (const p of document.querySelectorAll('.plot')) {
  const box = p.getBoundingClientRect();
  p.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width / 2, clientY: box.top + 5}));
  const curve = p.querySelector('.curve').getBoundingClientRect();
  r.plots.push({said: p.parentNode.querySelector('output').textContent, inside: curve.left >= box.left - 2 &&
    curve.right <= box.right + 2 && curve.top >= box.top - 2 && curve.bottom <= box.bottom + 2, height: curve.height,
    labels: [...p.querySelectorAll('span')].every(s => s.getBoundingClientRect().left >= 0),
    font: Math.min(...[...p.querySelectorAll('span')].map(s => parseFloat(getComputedStyle(s).fontSize)))});
}
r.dark = matchMedia('(prefers-color-scheme: dark)').matches;
r.back = getComputedStyle(document.body).backgroundColor;
document.title = JSON.stringify(r);
"""


def lines(steps, noise=True):
    for k in range(1, steps + 1):
        lr = 3e-4 * min(k / 100, (1 + math.cos(math.pi * k / steps)) / 2)
        loss = 2 + 5 * math.exp(-k / 300) + (0.3 * math.sin(k * 12.9898) * math.cos(k * 78.233) if noise else 0)
        yield dict(step=k, loss=None if k == 77 else loss, lr=lr, grad_norm=1 + 3 / k, tokens=k * 8192,
                   tokens_per_s=52000 + 3000 * math.sin(k / 9), peak_bytes=11_400_000_000)
        if k % 100 == 0:
            yield dict(step=k, eval_loss=2.2 + 5 * math.exp(-k / 300))


def page(d, name, records, title):
    with open(f"{d}/{name}.jsonl", "w") as f:
        f.write("".join(json.dumps(r) + "\n" for r in records) + '{"step": 9')
    p = subprocess.run([tool, "page", f"{d}/{name}.jsonl", f"{d}/{name}.html", title], capture_output=True, text=True)
    check(p.returncode == 0, p.stderr)
    text = open(f"{d}/{name}.html").read()
    check(not re.findall(r"https?:|//[a-z]|@import|url\((?!data)", text), "something from elsewhere")
    return text


def look(d, name, text, width, *args):
    r, said = browser.probe(d, text, PROBE, width, *args)
    said += browser.picture(d, f"{d}/{name}.html", f"{d}/{name}-{width}{'-dark' if args else ''}.png", width, 1500, *args)
    check(not said, f"the console says {said}")
    check(r, "the page's script did not end")
    return r


def test(d):
    title = "gpt2 <b>fine-tuned</b> & \"more\""
    text = page(d, "long", lines(3000), title)
    check("<b>fine-tuned" not in text and len(text) < 300_000, f"a page of {len(text)} characters")
    for width, args in (1200, ()), (390, ()), (1200, ("--blink-settings=preferredColorScheme=0",)):
        r = look(d, "long", text, width, *args)
        check(r["wide"] <= 0, f"{r['wide']} pixels wider than {width}")
        check(len(r["plots"]) == 4 and all(p["inside"] and p["height"] > 5 and p["labels"] for p in r["plots"]), f"{r}")
        check(all(p["font"] >= 11 for p in r["plots"]), "text too small to read")
        check(all(p["said"].startswith("step 1") for p in r["plots"]), f"under the pointer: {r}")
        check(r["dark"] == bool(args) and (r["back"] == "rgb(255, 255, 255)") != bool(args), f"colours: {r}")
    r = look(d, "short", page(d, "short", list(lines(3, False)), "three steps"), 390)
    check(len(r["plots"]) == 4 and r["wide"] <= 0, f"{r}")
    page(d, "none", [], "no step yet")


browser.try_pages(test)
