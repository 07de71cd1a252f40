"""One training step on the CPU beside PyTorch: GPT-2 (batch 1, 128 tokens) and LoRA on llama_small (batch 2, 256 tokens).

    train_cpu.py GRAPHC FOLDER [--threads N] [--rounds N]

FOLDER holds gpt2 and llama_small with their weights (models/fill.py). PyTorch trains models of the same sizes, eager and
compiled, AdamW fused; graphc and the peers take turns, each in a process of its own, and the least time counts, as does
the highest peak of resident memory. Needs torch, transformers and peft.
"""
import argparse, json, os, platform, resource, subprocess, sys, tempfile, time

ROWS = {"gpt2": (1, 128, []), "llama_small": (2, 256, ["--lora", "r=16,alpha=32,targets=all-linear"])}
STEPS = 8


def peer(name, mode, threads):
    """Seconds of the fastest step and the peak, printed by a process of its own."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    batch, seq, lora = ROWS[name]
    if name == "gpt2":
        m = GPT2LMHeadModel(GPT2Config(use_cache=False, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    else:
        m = LlamaForCausalLM(LlamaConfig(hidden_size=512, intermediate_size=1408, num_hidden_layers=4, num_attention_heads=8,
                                         num_key_value_heads=2, vocab_size=32000, max_position_embeddings=2048))
    if lora:
        from peft import LoraConfig, get_peft_model
        m = get_peft_model(m, LoraConfig(r=16, lora_alpha=32, lora_dropout=0, target_modules="all-linear"))
    m.train()
    opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=1e-4, fused=True)
    ids = torch.randint(0, 30000, (batch, seq + 1))

    def loss_of(x, y):
        return torch.nn.functional.cross_entropy(m(input_ids=x).logits.flatten(0, 1), y.flatten())

    f = torch.compile(loss_of, dynamic=False) if mode == "compiled" else loss_of
    times = []
    for _ in range(STEPS + 2):
        start = time.perf_counter()
        f(ids[:, :-1], ids[:, 1:]).backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - start)
    print(json.dumps([min(times[2:]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))


def graphc_step(graphc, folder, name, threads, tmp):
    batch, seq, lora = ROWS[name]
    out = tempfile.mkdtemp(dir=tmp)
    p = subprocess.run([graphc, "finetune" if lora else "train", f"{folder}/{name}.onnx", "--loss", "cross_entropy(logits, labels)",
                        *lora, "--data", f"{tmp}/ids.npy", "--batch", str(batch), "--seq", str(seq), "--steps", str(STEPS + 2),
                        "--threads", str(threads), "-o", out, "--json"], capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stderr)
    lines = [json.loads(l) for l in p.stdout.splitlines()]
    lines = [l for l in lines if "tokens_per_s" in l][2:]
    return min(batch * seq / l["tokens_per_s"] for l in lines), lines[-1]["peak_bytes"]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("graphc"), a.add_argument("folder")
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
        for name in ROWS:
            best = {}
            for _ in range(o.rounds):
                for who in ("graphc", "eager", "compiled"):
                    if who == "graphc":
                        t, m = graphc_step(os.path.abspath(o.graphc), o.folder, name, o.threads, tmp)
                    else:
                        p = subprocess.run([sys.executable, __file__, o.graphc, o.folder, "--threads", str(o.threads), "--peer",
                                            name, who], capture_output=True, text=True)
                        t, m = json.loads(p.stdout.splitlines()[-1]) if p.returncode == 0 else (float("nan"), float("nan"))
                    was = best.get(who, (float("inf"), 0))
                    best[who] = (min(was[0], t), max(was[1], m))
            ms, mb = ({k: v[i] * f for k, v in best.items()} for i, f in ((0, 1e3), (1, 1e-6)))
            better = min(x for x in (ms["eager"], ms["compiled"]) if x == x)
            print(f"| {name} | {ms['graphc']:.0f} | {ms['eager']:.0f} | {ms['compiled']:.0f} | {better / ms['graphc']:.2f} | "
                  f"{mb['graphc']:.0f} | {mb['eager']:.0f} | {mb['compiled']:.0f} |", flush=True)


main()
