"""Adapters beside a model, both ways: what PEFT saves gives its logits here, what is learnt here gives ours in PEFT, and
a merged model gives either's.

    adapters.py GRAPHC

Beside PyTorch (torch_side.py).
"""
import json, os, subprocess, sys, tempfile
from torch_side import Logits, drawn, export
import numpy as np
import onnx
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

graphc, failures = os.path.abspath(sys.argv[1]), 0
VOCAB = 97
ids = np.random.default_rng(3).integers(0, VOCAB, (3, 12))


def check(ok, text):
    global failures
    failures += not ok
    print("ok    " if ok else "FAILED", text, flush=True)


def gpt2():
    return GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=VOCAB, n_positions=16, use_cache=False,
                                      tie_word_embeddings=True, bos_token_id=0, eos_token_id=0))


def llama():
    return LlamaForCausalLM(LlamaConfig(hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
                                        num_key_value_heads=2, vocab_size=VOCAB, max_position_embeddings=16,
                                        attention_bias=True, tie_word_embeddings=False))


def base(make):
    return drawn(make, 0.1)


def run(*args, status=0):
    p = subprocess.run([graphc, *map(str, args)], capture_output=True, text=True)
    if p.returncode != status:
        raise RuntimeError(f"{args}: exit {p.returncode}: {p.stderr}")
    return p.stderr


def ours(model, *more):
    try:
        run("run", model, *more, "--input", "input_ids=ids.npy", "--output-dir", "o")
        return np.load("o/logits.npy")
    except RuntimeError as e:
        print(e)
        return np.full((3, 12, VOCAB), np.nan)


def theirs(m, rows=ids):
    with torch.no_grad():
        return m(torch.tensor(rows)).logits.numpy()


def close(a, b):
    return abs(a - b).max() <= 1e-4 * max(1, abs(b).max())


LLAMA = {
    "LoRA": dict(r=4, lora_alpha=6, target_modules=["q_proj", "down_proj"]),
    "rsLoRA": dict(r=4, target_modules="all-linear", use_rslora=True),
    "DoRA": dict(r=4, lora_alpha=9, target_modules=["q_proj", "o_proj", "up_proj"], use_dora=True),
    "embeddings": dict(r=4, target_modules=["embed_tokens", "v_proj"]),
    "DoRA of embeddings": dict(r=4, target_modules=["embed_tokens", "v_proj"], use_dora=True),
    "modules_to_save": dict(r=4, target_modules=["v_proj"], modules_to_save=["lm_head", "norm"]),
    "patterns": dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], rank_pattern={"layers.1.self_attn.q_proj": 2, "v_proj": 6},
                     alpha_pattern={r"layers\.0\..*": 3}),
    "all biases": dict(r=4, target_modules=["q_proj"], bias="all"),
    "bias of B": dict(r=2, target_modules=["v_proj"], lora_bias=True),
}
GPT2 = {"LoRA": dict(r=4, target_modules=["c_attn"], fan_in_fan_out=True),
        "DoRA": dict(r=4, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True, use_dora=True),
        "head of tied weights": dict(r=4, target_modules=["c_attn"], fan_in_fan_out=True, modules_to_save=["lm_head"])}


def peft_saved(make, options, folder):
    m = get_peft_model(base(make), LoraConfig(init_lora_weights=False, **options)).eval()
    torch.manual_seed(1)
    for n, p in m.named_parameters():
        if p.requires_grad and "lora_" not in n or "magnitude" in n:
            p.data += 0.1 * torch.randn_like(p)
    m.save_pretrained(folder)
    return m


def we_read(name, make, cases):
    plain = theirs(base(make))
    check(close(ours(f"{name}.onnx"), plain), f"{name} without adapter")
    for case, options in cases.items():
        want = theirs(peft_saved(make, options, case))
        got = ours(f"{name}.onnx", "--adapter", case)
        check(abs(want - plain).max() > 0.01 and close(got, want), f"{name}: we read PEFT's {case}: {abs(got - want).max():.1e}")


def merged(name, make, cases):
    """PEFT's adapters merged here: as ONNX, whose logits are the model's with the adapter, and for torch to load."""
    for case, options in cases.items():
        want = theirs(peft_saved(make, options, case))
        run("merge", f"{name}.onnx", "--adapter", case, "-o", "merged.onnx")
        run("merge", f"{name}.onnx", "--adapter", case, "-o", "merged.safetensors")
        got = ours("merged.onnx")
        m = base(make)
        if m.lm_head.weight is m.get_input_embeddings().weight:  # the file has both
            m.lm_head.weight = torch.nn.Parameter(m.lm_head.weight.detach().clone())
        missing = m.load_state_dict(load_file("merged.safetensors"), strict=False)
        as_torch = theirs(m)
        check(close(got, want) and close(as_torch, want) and not missing.unexpected_keys,
              f"{name}: {case} merged: {abs(got - want).max():.1e}, in torch {abs(as_torch - want).max():.1e}, {missing}")


def apart(a, b):
    """The part of all elements that differs, if by no more than a unit in the last place: PyTorch rounds f64 twice, over f32."""
    ulp = {torch.bfloat16: 2**-7, torch.float16: 2**-10}
    n = sum(int((a[k] != b[k]).sum()) for k in b)
    far = any(((a[k].double() - b[k].double()).abs() > ulp[b[k].dtype] * b[k].double().abs() + 6e-8).any() for k in b)
    return float("inf") if far else n / sum(v.numel() for v in b.values())


def merged_types(make):
    """16-bit weights in external files: merged, rounded once, into files of their own."""
    for dtype in (torch.bfloat16, torch.float16):
        torch.manual_seed(0)
        m = base(make).to(dtype)
        torch.onnx.export(Logits(m), (torch.tensor(ids),), dynamo=True, verbose=False, input_names=["input_ids"],
                          output_names=["logits"]).save("half.onnx", external_data=True)
        peft_saved(make, LLAMA["LoRA"], "half")
        exact = PeftModel.from_pretrained(base(make).to(dtype).double(), "half").merge_and_unload().to(dtype)
        os.makedirs("elsewhere", exist_ok=True)
        run("merge", "half.onnx", "--adapter", "half", "-o", "elsewhere/merged.onnx")
        run("merge", "half.onnx", "--adapter", "half", "-o", "merged.safetensors")
        state, had = load_file("merged.safetensors"), exact.state_dict()
        check(os.path.exists("elsewhere/merged.onnx.data") and os.path.getsize("elsewhere/merged.onnx.data") > 50000
              and set(state) == set(had) and apart(state, had) <= 1e-3, f"{dtype}: weights merged, {apart(state, had):.1e} of them apart")
        run("run", "elsewhere/merged.onnx", "--input", "input_ids=ids.npy", "--output-dir", "o", "--output-format", "pb")
        run("run", "half.onnx", "--adapter", "half", "--input", "input_ids=ids.npy", "--output-dir", "p", "--output-format", "pb")
        got, beside = (onnx.numpy_helper.to_array(onnx.load_tensor(f"{d}/logits.pb")).astype(np.float32) for d in "op")
        spread = abs(theirs_half(exact) - theirs(exact.float())).max()
        check(abs(got - beside).max() <= 3 * spread, f"{dtype}: merged and beside: {abs(got - beside).max():.1e}, rounding {spread:.1e}")


def theirs_half(m):
    with torch.no_grad():
        return m(torch.tensor(ids)).logits.float().numpy()


def refused(make):
    """What does not fit is said by name, and nothing is written."""
    def told(status, words, *args):
        p = subprocess.run([graphc, *map(str, args)], capture_output=True, text=True)
        check(p.returncode == status and words in p.stderr, f"{words}: exit {p.returncode}: {p.stderr.strip()}")

    def changed(folder, change=None, tensors=None):
        peft_saved(make, LLAMA["LoRA"], folder)
        if change:
            c = json.load(open(f"{folder}/adapter_config.json"))
            json.dump(dict(c, **change), open(f"{folder}/adapter_config.json", "w"))
        if tensors:
            t = load_file(f"{folder}/adapter_model.safetensors")
            tensors(t)
            save_file({k: v.contiguous() for k, v in t.items()}, f"{folder}/adapter_model.safetensors")
        return folder

    def wider(t):
        for k in list(t):
            if "q_proj.lora_A" in k:
                t[k] = torch.zeros(4, 64)

    def renamed(t):
        for k in list(t):
            t[k.replace("q_proj", "query")] = t.pop(k)

    run("llama.onnx", "-o", "two.plan", "--adapters", 2, "--lora", "r=2,targets=q_proj,down_proj")
    for verb in (["run", "llama.onnx", "--output-dir", "none"], ["merge", "llama.onnx", "-o", "none.onnx"]):
        told(3, "64", *verb, "--adapter", changed("wider", tensors=wider))
        told(3, "layers.0.self_attn.query", *verb, "--adapter", changed("renamed", {"target_modules": ["query", "down_proj"]}, renamed))
        told(3, "lacks B", *verb, "--adapter", changed("lacking", tensors=lambda t: t.pop(next(k for k in t if "lora_B" in k))))
        told(4, "use_qalora", *verb, "--adapter", changed("unknown kind", {"use_qalora": True}))
        told(7, "nowhere", *verb, "--adapter", "nowhere")
    told(0, "the field \"some_new_field\" is not known", "run", "llama.onnx", "--output-dir", "o", "--adapter",
         changed("new", {"some_new_field": 1}), "--input", "input_ids=ids.npy")
    told(3, "has rank 4, the plan has room for 2", "run", "two.plan", "--output-dir", "none", "--adapter", changed("larger"))
    peft_saved(make, dict(r=2, target_modules=["q_proj"]), "small")
    told(2, "places for 2 adapters", "run", "two.plan", "--output-dir", "none", *["--adapter", "small"] * 3)
    told(2, "--adapter-rows: is missing", "run", "llama.onnx", "--output-dir", "none", *["--adapter", "larger"] * 2)
    told(2, "\"x\" is no adapter's name", "run", "llama.onnx", "--output-dir", "none", "--adapter", "larger", "--adapter-rows", "x")
    peft_saved(make, LLAMA["DoRA"], "D")
    told(4, "magnitudes (DoRA)", "run", "llama.onnx", "--output-dir", "none", "--adapter", "D", "--adapter", "D")
    peft_saved(make, LLAMA["modules_to_save"], "S")
    told(4, "of its own: it goes alone", "run", "llama.onnx", "--output-dir", "none", "--adapter", "S", "--adapter", "S")
    tune = ["finetune", "llama.onnx", "--loss", "cross_entropy(logits, labels)", "--data", "rows.npy", "-o", "none", "--lora"]
    told(2, "model.layers.1.mlp.down_proj", *tune, "targets=sideways")
    told(2, "no module with weights \"sideways\"", *tune, "save=sideways,targets=q_proj")
    told(2, "\"bias=some\" has no such value", *tune, "bias=some")
    told(2, "a rank of 0.5", *tune, "rank:q_proj=0.5,targets=q_proj")
    told(2, "is no regular expression", *tune, "rank:q(=4,targets=q_proj")
    told(2, "ends neither", "merge", "llama.onnx", "--adapter", "larger", "-o", "out.bin")
    check(not os.path.exists("none") or not os.listdir("none"), "nothing is written")
    check(not os.path.exists("none.onnx"), "no model is written")


def they_read(name, make, cases):
    np.save("rows.npy", np.random.default_rng(5).integers(0, VOCAB, (24, 13)).astype(np.int32))
    plain = theirs(base(make))
    for case, lora in cases.items():
        run("finetune", f"{name}.onnx", "--loss", "cross_entropy(logits, labels)", "--data", "rows.npy", "--no-packing", "--batch",
            4, "--seq", 12, "--steps", 6, "--lr", "3e-2", "--lora", lora, "-o", f"our {case}", "--json")
        m = PeftModel.from_pretrained(base(make), f"our {case}").eval()
        want, got = theirs(m), ours(f"{name}.onnx", "--adapter", f"our {case}")
        check(abs(want - plain).max() > 1e-3 and close(got, want), f"{name}: PEFT reads our {case}: {abs(got - want).max():.1e}")


def several(make):
    """Adapters that share a batch: each row as if its adapter were alone; in a plan that was made before they were."""
    plain, want = theirs(base(make)), {}
    for case, options in SHARED.items():
        want[case] = theirs(peft_saved(make, options, case))
    rows = ["B", "-", "C"]
    alone = np.stack([plain[i] if k == "-" else want[k][i] for i, k in enumerate(rows)])
    given = [x for k in SHARED for x in ("--adapter", f"{k}={k}")]
    got = ours("llama.onnx", *given, "--adapter-rows", ",".join(rows))
    check(close(got, alone), f"rows through {rows}: {abs(got - alone).max():.1e}")
    run("llama.onnx", "-o", "places.plan", "--adapters", 3, "--lora", "r=8,targets=q_proj,v_proj,embed_tokens")
    got = ours("places.plan", *given, "--adapter-rows", ",".join(rows))
    check(close(got, alone), f"the same of a plan: {abs(got - alone).max():.1e}")
    for i, k in enumerate(SHARED):
        got = ours("places.plan", *given, "--adapter-rows", ",".join([k] * 3))
        check(close(got, want[k]), f"all rows through {k}: {abs(got - want[k]).max():.1e}")
    check(close(ours("places.plan", "--adapter", "C"), want["C"]), "one adapter in a plan of three")


SHARED = {"A": dict(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj"]),
          "B": dict(r=2, target_modules=["v_proj"], use_rslora=True),
          "C": dict(r=8, target_modules=["embed_tokens", "q_proj"])}

with tempfile.TemporaryDirectory() as tmp:
    os.chdir(tmp)
    np.save("ids.npy", ids)
    for name, make in (("llama", llama), ("gpt2", gpt2)):
        export(base(make), f"{name}.onnx", ids[:2], 8, 16)
    we_read("llama", llama, LLAMA)
    we_read("gpt2", gpt2, GPT2)
    several(llama), refused(llama), merged_types(llama)
    merged("llama", llama, LLAMA), merged("gpt2", gpt2, GPT2)
    they_read("llama", llama, {
        "LoRA": "r=4,alpha=8,targets=q_proj,v_proj", "rsLoRA": "r=4,rslora", "DoRA": "r=4,dora,targets=q_proj,down_proj",
        "DoRA with dropout": "r=4,dora,dropout=0.2,targets=q_proj", "embeddings": "r=4,targets=embed_tokens,q_proj",
        "modules_to_save": "r=4,save=lm_head,save=norm,targets=v_proj", "biases": "r=4,bias=all,targets=v_proj",
        "biases of LoRA": "r=4,bias=lora_only,targets=v_proj",
        "patterns": "r=4,rank:layers.1.self_attn.q_proj=2,alpha:v_proj=16,rank:layers\\.0\\..*=6,targets=q_proj,v_proj"})
    they_read("gpt2", gpt2, {"LoRA of Conv1D": "r=4,targets=c_attn,c_fc", "head of tied weights": "r=4,save=lm_head,targets=c_attn"})
sys.exit(failures > 0)
