"""Training steps on the GPU beside the same steps on the CPU: losses and gradients' norms, of adapters and of all weights, with
rows that fill few tiles, fill none, and end in the middle of one, of one document and of many.

    steps.py GRAPHC [--models DIR]      DIR: where llama_small.onnx and its weights lie
"""
import argparse, array, json, os, subprocess, sys, tempfile

here = os.path.dirname(os.path.abspath(__file__))
LOSS = ["--loss", "cross_entropy(logits, labels)", "--steps", "3", "--lr", "1e-3", "--json"]
LORA = ["--lora", "r=8,alpha=16,targets=all-linear"]
NEAR = {"f32": 1e-3, "f16": 1e-2, "bf16": 2e-2}
NO_GPU = 77  # what a test leaves with that was skipped
LINES = ["--end-token", "10"]  # each is a document
# precision, batch, seq, what is trained
CASES = [("bf16", 2, 1024, LORA + LINES), ("bf16", 4, 300, LINES), ("bf16", 3, 77, LORA + LINES), ("f32", 2, 200, LORA + LINES),
         ("f16", 2, 500, LORA + LINES), ("bf16", 4, 96, LORA), ("bf16", 4, 64, LORA), ("bf16", 4, 100, LORA), ("bf16", 1, 77, LORA),
         ("bf16", 4, 96, LORA + ["--checkpoint", "layers"]), ("f32", 4, 96, LORA), ("f32", 2, 50, LORA), ("bf16", 2, 96, []), ("bf16", 3, 75, [])]


def steps(a, folder, model, device, precision, batch, seq, more):
    out = f"{folder}/{device}_{precision}_{batch}_{seq}_{len(os.listdir(folder))}"
    data = f"{folder}/tokens.bin" if LINES[0] in more else f"{here}/ragged.py"
    p = subprocess.run([a.graphc, "finetune" if "--lora" in more else "train", model, *LOSS, *more, "--data", data, "--device", device,
                        "--precision", precision, "--batch", str(batch), "--seq", str(seq), "-o", out],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = [json.loads(l) for l in p.stdout.splitlines() if l.startswith("{")]
    return p, [(s["loss"], s["grad_norm"]) for s in said if "grad_norm" in s]


def worst(got, want):
    """The largest difference of their numbers, of what it should be; None where a number is missing."""
    if len(got) != len(want) or any(x is None for s in got for x in s):
        return None
    return max(abs(x - y) / abs(y) for g, w in zip(got, want) for x, y in zip(g, w))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("graphc"), p.add_argument("--models")
    a = p.parse_args()
    if not a.models:
        sys.path.insert(0, os.path.join(here, "..", "models"))
        import cases
        a.models = cases.filled(["llama_small"])
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{here}/ragged.py", "rb") as text, open(f"{folder}/tokens.bin", "wb") as f:
            array.array("H", list(text.read())).tofile(f)
        for precision, batch, seq, more in CASES:
            ran, got = steps(a, folder, f"{a.models}/llama_small.onnx", "cuda", precision, batch, seq, more)
            if "no CUDA" in ran.stderr:
                print(ran.stderr.strip()[-200:])
                return NO_GPU
            ref, want = steps(a, folder, f"{a.models}/llama_small.onnx", "cpu", "f32", batch, seq, more)
            far = worst(got, want)
            ok = ran.returncode == 0 == ref.returncode and len(want) == 3 and far is not None and far < NEAR[precision]
            failed += not ok
            print(f"{'ok' if ok else 'FAILED'} {precision} {batch} x {seq} {' '.join(more) or 'all weights'}: off by {far}", flush=True)
            if not ok:
                print(f"    GPU {got}\n    CPU {want}\n    {(ran.stderr + ref.stderr).strip()[-300:]}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
