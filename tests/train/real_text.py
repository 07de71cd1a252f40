"""Learning a text that every Debian machine has, beside PyTorch: the same start, the same batches, held-out loss.

    real_text.py GRAPHC MODELS [--steps N] [--only NAME] [--keep DIR] [--svg FILE]

Beside PyTorch (torch_side.py). Bytes are tokens. Full training of a GPT-2 of two layers from nothing, and LoRA (rank 16,
all linear layers) beside llama_small, whose weights (MODELS/llama_small.onnx) are random too. Rows are cut from the
licences' text and drawn with a seed; the last tenth of each licence is held out. SVG: the curves.
"""
import argparse, json, os, subprocess, sys, tempfile
from torch_side import drawn, export
import numpy as np
import onnx, torch
from onnx import numpy_helper
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from small import tensors

LICENCES = [f"/usr/share/common-licenses/{n}" for n in ("GPL-3", "GPL-2", "LGPL-2.1", "Apache-2.0", "MPL-2.0")]
SEQ, HELD_ROWS, EVALS = 64, 32, 10
LORA = "r=16,alpha=32,targets=all-linear"


def rows_of(text, rng, n):
    at = rng.integers(0, len(text) - SEQ - 1, n)
    return np.stack([text[i:i + SEQ + 1] for i in at]).astype(np.int32)


def gpt2(path):
    """The model in PyTorch, and as ONNX at that path."""
    m = drawn(lambda: GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=256, n_positions=SEQ, resid_pdrop=0,
                                                 embd_pdrop=0, attn_pdrop=0, use_cache=False, bos_token_id=0, eos_token_id=0)), 0.02)
    export(m, path, torch.zeros(2, SEQ, dtype=torch.long), 64, SEQ)
    return m


def llama_small(path):
    """The file's model in PyTorch: its linear layers are its products with constants, in order."""
    m = LlamaForCausalLM(LlamaConfig(hidden_size=512, intermediate_size=1408, num_hidden_layers=4, num_attention_heads=8,
                                     num_key_value_heads=2, vocab_size=32000, max_position_embeddings=2048,
                                     rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
                                     tie_word_embeddings=False))
    g = onnx.load(path).graph
    w = {i.name: torch.tensor(numpy_helper.to_array(i)) for i in g.initializer}
    products = iter([w[n.input[1]] for n in g.node if n.op_type == "MatMul" and n.input[1] in w and w[n.input[1]].dim() == 2])
    state = {}
    for k, v in m.state_dict().items():
        name = f"m.{k}" if v.dim() > 1 else "m.model.layers.0.input_layernorm.weight"  # one for all: the exporter's
        state[k] = w[name] if name in w else next(products).T.contiguous()
        assert state[k].shape == v.shape, (k, state[k].shape, v.shape)
    m.load_state_dict(state)
    return m


def ours(graphc, name, model, out, batch, lr, steps, every, more):
    p = subprocess.run([graphc, "finetune" if "--lora" in more else "train", model, "--loss", "cross_entropy(logits, labels)",
                        "--data", f"{name}-rows.npy", "--eval-data", f"{name}-held.npy", "--no-packing", "--no-shuffle",
                        "--batch", str(batch), "--seq", str(SEQ), "--lr", str(lr), "--warmup", "0.05", "--schedule", "cosine", "--steps", str(steps),
                        "--eval-every", str(every), "-o", out, "--json", *more], capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stderr)
    lines = [json.loads(l) for l in p.stdout.splitlines()]
    return [(l["step"], l["loss"]) for l in lines if "loss" in l], [(l["step"], l["eval_loss"]) for l in lines if "eval_loss" in l]


def mean_loss(m, rows):
    b = torch.tensor(rows, dtype=torch.long)
    return torch.nn.functional.cross_entropy(m(input_ids=b[:, :-1]).logits.flatten(0, 1), b[:, 1:].flatten())


def theirs(m, rows, held, batch, lr, steps, every):
    opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=lr)
    warm = int(np.ceil(0.05 * steps))
    rate = lambda k: k / warm if k < warm else (1 + np.cos(np.pi * (k - warm) / (steps - warm))) / 2
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, rate)
    losses, evals = [], []

    def evaluate(step):
        with torch.no_grad():
            evals.append((step, float(np.mean([mean_loss(m, held[i:i + batch]).item() for i in range(0, len(held), batch)]))))

    evaluate(0)
    for i in range(steps):
        loss = mean_loss(m, rows[i * batch:(i + 1) * batch])
        opt.zero_grad()
        loss.backward()
        opt.step()
        schedule.step()
        losses.append((i + 1, loss.item()))
        if (i + 1) % every == 0 or i + 1 == steps:
            evaluate(i + 1)
    return losses, evals


def compare(graphc, name, model, m, lora, batch, lr, steps, text):
    rng = np.random.default_rng(7)
    learnt, last = (np.concatenate([t[s(len(t) * 9 // 10)] for t in text]) for s in (lambda n: slice(n), lambda n: slice(n, None)))
    rows, held = rows_of(learnt, rng, batch * steps), rows_of(last, rng, HELD_ROWS)
    np.save(f"{name}-rows.npy", rows), np.save(f"{name}-held.npy", held)
    more = ["--lora", LORA] if lora else []
    if lora:  # a step that changes nothing tells what the adapters start as
        ours(graphc, name, model, f"{name}-start", batch, 0, 1, 1, more)
        m = get_peft_model(m, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
        state = m.state_dict()
        for k, v in tensors(f"{name}-start/adapter_model.safetensors").items():
            state[k.replace(".weight", ".default.weight")].copy_(torch.tensor(v))
    every = max(1, steps // EVALS)
    a = ours(graphc, name, model, name, batch, lr, steps, every, more)
    b = theirs(m.train(), rows, held, batch, lr, steps, every)
    far = max(abs(x[1] - y[1]) for x, y in zip(a[1], b[1]))
    ok = far <= 0.02 and a[1][-1][1] < 0.75 * a[1][0][1] and abs(a[0][0][1] / b[0][0][1] - 1) < 1e-4
    print(f"{'ok    ' if ok else 'FAILED'} {name}: held-out loss {a[1][0][1]:.3f} -> {a[1][-1][1]:.3f} in {steps} steps, PyTorch "
          f"{b[1][0][1]:.3f} -> {b[1][-1][1]:.3f}; farthest apart {far:.1e}; first step {a[0][0][1]:.6f}, PyTorch {b[0][0][1]:.6f}",
          flush=True)
    json.dump([a, b], open(f"{name}.json", "w"))
    return ok


# --- the picture -----------------------------------------------------------------------------------------------------

W, H, LEFT, TOP = 380, 230, 44, 34


def panel(i, title, a, b):
    steps = a[0][-1][0]
    top = max(max(l for _, l in a[0]), max(l for _, l in b[0]))
    low = min(min(l for _, l in a[0]), min(l for _, l in a[1]), min(l for _, l in b[1]))
    x = lambda s: LEFT + i * (W + 30) + s / steps * (W - LEFT)
    y = lambda l: TOP + (top - l) / (top - low) * (H - TOP - 30)
    line = lambda pts, style: f'<polyline fill="none" {style} points="{" ".join(f"{x(s):.1f},{y(l):.1f}" for s, l in pts)}"/>'
    out = [f'<text x="{x(0):.0f}" y="18" class="t">{title}</text>']
    for l in range(int(np.ceil(low)), int(top) + 1):
        out.append(f'<path d="M{x(0):.0f} {y(l):.1f}H{x(steps):.0f}" class="g"/><text x="{x(0) - 6:.0f}" y="{y(l) + 4:.1f}" '
                   f'text-anchor="end">{l}</text>')
    for s in (0, steps // 2, steps):
        out.append(f'<text x="{x(s):.0f}" y="{H - 12}" text-anchor="middle">{s}</text>')
    thin = a[0][::max(1, steps // 200)]
    out += [line(thin, 'stroke="#9aa5b1" stroke-width="1"'), line(b[1], 'stroke="#d97706" stroke-width="5" opacity=".5"'),
            line(a[1], 'stroke="#1d4ed8" stroke-width="1.8"')]
    return "".join(out)


def svg(path, panels):
    names = {"gpt2": "GPT-2, 2 layers, all weights", "llama_small": "llama_small, LoRA r=16"}
    width = len(panels) * (W + 30) + 10
    key = (f'<path d="M{LEFT} {H + 12}h26" stroke="#1d4ed8" stroke-width="1.8"/><text x="{LEFT + 32}" y="{H + 16}">graphc, held out</text>'
           f'<path d="M{LEFT + 170} {H + 12}h26" stroke="#d97706" stroke-width="5" opacity=".5"/><text x="{LEFT + 202}" y="{H + 16}">'
           f'PyTorch, held out</text><path d="M{LEFT + 350} {H + 12}h26" stroke="#9aa5b1"/><text x="{LEFT + 382}" y="{H + 16}">graphc, each '
           f'step; loss a byte over steps</text>')
    open(path, "w").write(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {H + 28}" width="{width}" height="{H + 28}">'
        '<style>text{font:12px sans-serif;fill:#6b7280}.t{font-weight:600}.g{stroke:#9aa5b1;stroke-opacity:.3}</style>'
        + "".join(panel(i, names[n], a, b) for i, (n, a, b) in enumerate(panels)) + key + "</svg>\n")


p = argparse.ArgumentParser()
p.add_argument("graphc"), p.add_argument("models")
p.add_argument("--steps", type=int, default=40), p.add_argument("--svg"), p.add_argument("--keep"), p.add_argument("--only")
o = p.parse_args()
graphc, model = os.path.abspath(o.graphc), os.path.abspath(f"{o.models}/llama_small.onnx")
picture = o.svg and os.path.abspath(o.svg)
texts = [open(f, "rb").read() for f in LICENCES if os.path.exists(f)]
if not texts or not os.path.exists(model):
    print("skipped: no licences or no llama_small")
    sys.exit(77)
text = [np.frombuffer(t, np.uint8) for t in texts]
with tempfile.TemporaryDirectory() as tmp:
    keep = os.path.abspath(o.keep or tmp)
    os.makedirs(keep, exist_ok=True)
    os.chdir(keep)
    ok = True
    if o.only != "llama_small":
        ok &= compare(graphc, "gpt2", "gpt2.onnx", gpt2("gpt2.onnx"), False, 8, 1e-3, 8 * o.steps, text)
    if o.only != "gpt2":
        ok &= compare(graphc, "llama_small", model, llama_small(model), True, 2, 2e-3, o.steps, text)
    if picture:
        svg(picture, [(n, *json.load(open(f"{n}.json"))) for n in ("gpt2", "llama_small") if os.path.exists(f"{n}.json")])
sys.exit(not ok)
