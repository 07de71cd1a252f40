"""Every contraction above 64 M multiply-adds of some example models, compiled for sm_90a, runs on tensor cores by
warpgroups (wgmma) or is named in off_tensor_cores.txt with its reason; that list may only shrink. Nothing runs, so
weights are sparse files and no GPU or assembler is needed.

    tensor_cores.py GRAPHC [NAME...]

Kernels that differ in buffers alone have one code, whose name is listed.
"""
import collections, os, re, subprocess, sys, tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
import cases

LEAST = 64e6
DIMS = {"batch": 8, "seq": 512, "dec": 128}
MODELS = {  # name, and what tells it from another of that name -> options
    "bert_base": ["--precision", "bf16"],
    "bert_base.f32": [],
    "convnext_tiny.f32": [],
    "resnet50.f32": [],
    "unet.f32": [],
    "whisper_tiny_encoder.f32": [],
    "gpt2": ["--precision", "bf16"],
    "llama_small": ["--precision", "f16"],
    "vit_b_16": ["--precision", "bf16"],
    "resnet50": ["--precision", "f16"],
    "llama_1b_bf16": [],
    "convnext_tiny": ["--precision", "f16"],
    "mixtral_small": ["--precision", "bf16"],
    "mobilenet_v3_large": ["--precision", "f16"],
    "t5_small": ["--precision", "bf16"],
    "unet": ["--precision", "f16"],
    "whisper_tiny_encoder": ["--precision", "bf16"],
}
OPEN = 512


def kernels(text):
    """Name and multiply-adds of each contraction and attention of a run, of all its products; an open size counts as
    OPEN."""
    for part in re.split(r"\n(?=kernel )", text)[1:]:
        head = part.split("\n", 1)[0].split()
        axes = dict(re.findall(r"~?(x\d+)=(\S+)", " ".join(head)))
        dot = re.search(r"^  dot batch (\S+) m (\S+) n (\S+) k (\S+)", part, re.M)
        attention = re.search(r"^  attention batch (\S+) i (\S+) j (\S+) d (\S+)", part, re.M)
        m = dot or attention
        if not m or head[1].startswith("prepare_"):
            continue
        names = [a for group in m.groups() for a in group.split(",") if a != "-"]
        products = len(re.findall(r" acc ", part)) if dot else 2
        for a in names:
            products *= int(axes[a]) if axes[a].isdigit() else OPEN
        yield head[1], products


def compiled(graphc, name, options, tmp):
    symbols = cases.sparse_weights(name, tmp, marked=True)
    dims = [x for k, v in DIMS.items() if k in symbols for x in ("--dim", f"{k}={v}")]
    p = subprocess.run([graphc, f"{tmp}/{name}.onnx", "-o", f"{tmp}/{name}.plan", "--target", "sm_90a", "--threads", "2",
                        "--dump-ir", f"{tmp}/dump", *dims, *options], capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"{name}: exit {p.returncode}: {p.stderr.strip()[-300:]}")


def off(graphc, name, options):
    """How many large contractions were seen; the lines of those without wgmma."""
    seen, lines = 0, []
    with tempfile.TemporaryDirectory() as tmp:
        compiled(graphc, name.split(".")[0], options, tmp)
        notes = dict(re.findall(r"^(\S+): not on tensor cores: (.*)$", open(f"{tmp}/dump/plan.txt").read(), re.M))
        for kernel, products in kernels(open(f"{tmp}/dump/post-fusion.kir").read()):
            code = f"{tmp}/dump/{kernel}.ptx"
            if products < LEAST or not os.path.exists(code):
                continue
            seen += 1
            text = open(code).read()
            if "wgmma.mma_async" not in text:
                what = re.sub(r"_\d+_", " ", kernel, count=1)
                lines.append(f"{name} {what}: {notes.get(kernel, 'by a warp, mma.sync' if 'mma.sync' in text else 'no reason')}")
    return seen, lines


def main():
    graphc, listed, bad = os.path.abspath(sys.argv[1]), f"{here}/off_tensor_cores.txt", 0
    rows = [l.strip().split(" ", 1) for l in open(listed) if l.strip() and l[0] != "#"]
    want = {what: int(count) for count, what in rows}
    for name in sys.argv[2:] or MODELS:
        options = MODELS[name]
        seen, lines = off(graphc, name, options)
        print(f"{name}: {seen} large contractions, {len(lines)} without wgmma", flush=True)
        bad += not seen
        got = collections.Counter(lines)
        for l in sorted({*got, *(w for w in want if w.startswith(name + " "))}):
            if got[l] != want.get(l, 0):
                bad += got[l] > want.get(l, 0)
                print("FAILED more" if got[l] > want.get(l, 0) else "fewer", f"than the {want.get(l, 0)} listed:", got[l], l)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
