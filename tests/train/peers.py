"""Training beside PyTorch, transformers and PEFT: the same start and the same batches.

    peers.py GRAPHC

Two small models are made and exported here. Full training and LoRA: losses of 50 AdamW steps against PyTorch in f64,
held against what PyTorch commits in f32 with two attentions, over three streams of batches: how far rounding carries one
stream is chance, for either side. Adapters: PEFT reads ours, we read PEFT's. Beside PyTorch (torch_side.py).
"""
import json, os, subprocess, sys, tempfile
from torch_side import drawn, export
import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from small import tensors

graphc, failures = os.path.abspath(sys.argv[1]), 0
STEPS, BATCH, SEQ, VOCAB = 50, 4, 32, 257
streams = [np.random.default_rng(seed).integers(0, VOCAB, (STEPS * BATCH, SEQ + 1)) for seed in (3, 4, 5)]
rows = streams[0]
LORA = "r=8,alpha=16,targets=all-linear"


def gpt2():
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=VOCAB, n_positions=64, resid_pdrop=0,
                                      embd_pdrop=0, attn_pdrop=0, use_cache=False, bos_token_id=0, eos_token_id=0))


def llama():
    return LlamaForCausalLM(LlamaConfig(hidden_size=128, intermediate_size=344, num_hidden_layers=2, num_attention_heads=4,
                                        num_key_value_heads=2, vocab_size=VOCAB, max_position_embeddings=64,
                                        tie_word_embeddings=False))


def check(ok, text):
    global failures
    failures += not ok
    print("ok    " if ok else "FAILED", text, flush=True)


def theirs(make, weights, rows, dtype, attention, adapter):
    m = make()
    m.load_state_dict(weights)
    m.set_attn_implementation(attention)
    m = m.to(dtype)
    if adapter:
        m = get_peft_model(m, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear")).to(dtype)
        state = m.state_dict()
        for k, v in adapter.items():
            state[k.replace(".weight", ".default.weight")].copy_(torch.tensor(v).to(dtype))
    opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=1e-3)
    losses = []
    for i in range(STEPS):
        b = torch.tensor(rows[i * BATCH:(i + 1) * BATCH])
        loss = torch.nn.functional.cross_entropy(m(input_ids=b[:, :-1]).logits.flatten(0, 1), b[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return np.array(losses)


def ours(model, out, *more, lr="1e-3", steps=STEPS):
    verb = "finetune" if "--lora" in more else "train"
    p = subprocess.run([graphc, verb, model, "--loss", "cross_entropy(logits, labels)", "--data", "rows.npy", "--no-packing",
                        "--no-shuffle", "--batch", str(BATCH), "--seq", str(SEQ), "--lr", lr, "--steps", str(steps), "-o", out,
                        "--json", *more], capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stderr)
    return np.array([json.loads(l)["loss"] for l in p.stdout.splitlines()])


def curves(name, make, weights, lora):
    more, adapter = (["--lora", LORA], None) if lora else ([], None)
    if lora:  # one step that changes nothing tells what the adapters start as
        ours(f"{name}.onnx", "start", *more, lr="0", steps=1)
        adapter = tensors("start/adapter_model.safetensors")
    first, far, spread = [], [], []
    for i, stream in enumerate(streams):
        np.save("rows.npy", stream.astype(np.int32))
        exact = theirs(make, weights, stream, torch.float64, "sdpa", adapter)
        got = ours(f"{name}.onnx", f"{name}{len(more)}_{i}", *more)
        first.append(abs(got[0] / exact[0] - 1)), far.append(abs(got - exact).max())
        spread += [abs(theirs(make, weights, stream, torch.float32, a, adapter) - exact).max() for a in ("sdpa", "eager")]
    first, far, spread = max(first), max(far), max(spread)
    check(first <= 1e-4 and far <= 1.25 * spread,
          f"{name}{' LoRA' if lora else ''}: first step {first:.1e}, {STEPS} steps {far:.1e}; PyTorch in f32 {spread:.1e}")


def logits(folder, ids):
    np.save("ids.npy", ids)
    p = subprocess.run([graphc, "run", "llama.onnx", "--adapter", folder, "--input", "input_ids=ids.npy", "--output-dir", "o"],
                       capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stderr)
    return np.load("o/logits.npy")


def adapters(weights):
    ids = rows[:2, :24]

    def base():
        m = llama()
        m.load_state_dict(weights)
        return m.eval()

    def run(m):
        with torch.no_grad():
            return m(torch.tensor(ids)).logits.numpy()

    plain, peft = run(base()), run(PeftModel.from_pretrained(base(), "adapter"))
    check(abs(peft - plain).max() > 0.1 and abs(logits("adapter", ids) - peft).max() <= 1e-4, "PEFT reads our adapter")
    for name, more in (("LoRA", {}), ("rsLoRA", {"use_rslora": True}), ("alpha_pattern", {"alpha_pattern": {"q_proj": 3}})):
        m = get_peft_model(base(), LoraConfig(r=6, lora_alpha=9, target_modules=["q_proj", "v_proj", "down_proj"],
                                              init_lora_weights=False, **more)).eval()
        m.save_pretrained("theirs")
        check(abs(logits("theirs", ids) - run(m)).max() <= 1e-4, f"we read PEFT's {name}")


with tempfile.TemporaryDirectory() as tmp:
    os.chdir(tmp)
    np.save("rows.npy", rows.astype(np.int32))
    for name, make in (("gpt2", gpt2), ("llama", llama)):
        m = drawn(make, 0.02)
        export(m, f"{name}.onnx", rows[:2, :-1], 64, 64)
        weights = m.state_dict()
        curves(name, make, weights, False)
    curves("llama", llama, weights, True)
    ours("llama.onnx", "adapter", "--lora", LORA, lr="1e-2")
    adapters(weights)
sys.exit(failures > 0)
