"""One training step on the CPU beside PyTorch: GPT-2 (batch 1, 128 tokens), ResNet-50 with norms in training form (batch 4) and
LoRA on llama_small (batch 2, 256 tokens).

    train_cpu.py GRAPHC FOLDER [ROW ...] [--threads N] [--rounds N] [--peers MODE ...]

FOLDER holds gpt2, resnet50 and llama_small with their weights (models/fill.py). PyTorch trains models of the same sizes, eager
and compiled, AdamW fused; graphc and the peers take turns, each in a process of its own, and the least time counts, as
does the highest peak of resident memory. Needs torch, torchvision, transformers and peft.
"""
import argparse, json, os, platform, resource, subprocess, sys, tempfile, time

ROWS = {"gpt2": (1, 128, []), "resnet50": (4, 224, []), "llama_small": (2, 256, ["--lora", "r=16,alpha=32,targets=all-linear"])}
STEPS = 8


def their_model(name):
    """The model, and its loss of a batch."""
    import torch
    if name == "resnet50":
        import torchvision
        m, batch = torchvision.models.resnet50(), ROWS[name][0]
        return m, m, (torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,)))
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
    batch, seq, lora = ROWS[name]
    if name == "gpt2":
        m = GPT2LMHeadModel(GPT2Config(use_cache=False, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    else:
        m = LlamaForCausalLM(LlamaConfig(hidden_size=512, intermediate_size=1408, num_hidden_layers=4, num_attention_heads=8,
                                         num_key_value_heads=2, vocab_size=32000, max_position_embeddings=2048))
    if lora:
        from peft import LoraConfig, get_peft_model
        m = get_peft_model(m, LoraConfig(r=16, lora_alpha=32, lora_dropout=0, target_modules="all-linear"))
    ids = torch.randint(0, 30000, (batch, seq + 1))
    return m, lambda x: m(input_ids=x).logits.flatten(0, 1), (ids[:, :-1], ids[:, 1:].flatten())


def peer(name, mode, threads):
    """Seconds of the fastest step and the peak, printed by a process of its own."""
    import torch
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    m, logits, (x, y) = their_model(name)
    m.train()
    opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=1e-4, fused=True)

    def loss_of(x, y):
        return torch.nn.functional.cross_entropy(logits(x), y)

    f = torch.compile(loss_of, dynamic=False) if mode == "compiled" else loss_of
    times = []
    for _ in range(STEPS + 2):
        start = time.perf_counter()
        f(x, y).backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - start)
    print(json.dumps([min(times[2:]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))


def with_norms(folder, name):
    """The graph whose norms are folded away gets them again; its weights stay where they are."""
    import onnx
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "models"))
    import grad
    model = onnx.load(f"{folder}/{name}.onnx", load_external_data=False)
    grad.with_norms(model)
    onnx.save(model, f"{folder}/{name}_norms.onnx")
    return f"{folder}/{name}_norms.onnx"


def graphc_step(graphc, folder, name, threads, tmp):
    batch, seq, lora = ROWS[name]
    out = tempfile.mkdtemp(dir=tmp)
    model, data = f"{folder}/{name}.onnx", ["--data", f"{tmp}/ids.npy", "--seq", str(seq)]
    if name == "resnet50":
        model, data = with_norms(folder, name), ["--data", f"image={tmp}/image.npy", "--data", f"labels={tmp}/labels.npy"]
    p = subprocess.run([graphc, "finetune" if lora else "train", model, "--loss", "cross_entropy(logits, labels)", *lora, *data,
                        "--batch", str(batch), "--steps", str(STEPS + 2), "--threads", str(threads), "-o", out, "--json"],
                       capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stderr)
    lines = [json.loads(l) for l in p.stdout.splitlines()]
    lines = [l for l in lines if "tokens_per_s" in l][2:]
    tokens = batch if name == "resnet50" else batch * seq
    return min(tokens / l["tokens_per_s"] for l in lines), lines[-1]["peak_bytes"]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("graphc"), a.add_argument("folder"), a.add_argument("rows", nargs="*", default=list(ROWS))
    a.add_argument("--peers", nargs="+", default=["eager", "compiled"])
    a.add_argument("--threads", type=int, default=2), a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--peer", nargs=2)
    o = a.parse_args()
    if o.peer:
        return peer(*o.peer, o.threads)
    import numpy as np
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    print(f"{cpu}, {o.threads} threads\n\n| step | graphc ms | eager ms | compiled ms | ratio to the better | graphc MB | eager MB | compiled MB |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as tmp:
        np.save(f"{tmp}/ids.npy", np.random.default_rng(0).integers(0, 30000, (64, 258)).astype(np.int32))
        rng = np.random.default_rng(0)
        np.save(f"{tmp}/image.npy", rng.standard_normal((64, 3, 224, 224)).astype(np.float32))
        np.save(f"{tmp}/labels.npy", rng.integers(0, 1000, 64))
        for name in o.rows:
            best = {}
            for _ in range(o.rounds):
                for who in ("graphc", *o.peers):
                    if who == "graphc":
                        t, m = graphc_step(os.path.abspath(o.graphc), o.folder, name, o.threads, tmp)
                    else:
                        p = subprocess.run([sys.executable, __file__, o.graphc, o.folder, "--threads", str(o.threads), "--peer",
                                            name, who], capture_output=True, text=True)
                        t, m = json.loads(p.stdout.splitlines()[-1]) if p.returncode == 0 else (float("nan"), float("nan"))
                    was = best.get(who, (float("inf"), 0))
                    best[who] = (min(was[0], t), max(was[1], m))
            ms, mb = ({k: v[i] * f for k, v in best.items()} for i, f in ((0, 1e3), (1, 1e-6)))
            better = min(ms[p] for p in o.peers if ms[p] == ms[p])
            cells = lambda of: " | ".join(f"{of.get(p, float('nan')):.0f}" for p in ("graphc", "eager", "compiled"))
            print(f"| {name} | {cells(ms)} | {better / ms['graphc']:.2f} | {cells(mb)} |", flush=True)


main()
