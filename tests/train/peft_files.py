"""Adapters as PEFT itself writes and reads them, and rates as PyTorch and transformers have them: what PEFT saves goes
through graphc's reader and writer with the same bits, and PEFT computes with it what it did before.

    peft_files.py TRAIN_TOOL

Beside PyTorch (torch_side.py).
"""
import json, os, subprocess, sys, tempfile
import torch_side
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from torch import nn
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tool import check, failed

tool = sys.argv[1]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.v_proj, self.o_proj = nn.Linear(24, 32, bias=False), nn.Linear(24, 24), nn.Linear(24, 24)

    def forward(self, x):
        return x + self.o_proj(torch.tanh(self.v_proj(x)) * torch.sigmoid(self.q_proj(x)[..., :24]))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens, self.layers = nn.Embedding(50, 24), nn.ModuleList(Block() for _ in range(11))
        self.conv, self.lm_head = nn.Conv1d(24, 20, 3, padding=1), nn.Linear(20, 50, bias=False)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for b in self.layers:
            x = b(x)
        return self.lm_head(torch.relu(self.conv(x.transpose(1, 2))).transpose(1, 2))


def base():
    torch.manual_seed(0)
    return Model().eval()


cases = {
    "lora": dict(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj"]),
    "rslora": dict(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj"], use_rslora=True),
    "dora": dict(r=4, target_modules=["q_proj", "v_proj", "lm_head"], use_dora=True),
    "bias": dict(r=2, target_modules=["v_proj", "o_proj"], bias="all"),
    "bias of lora": dict(r=2, target_modules=["v_proj"], bias="lora_only"),
    "bias of B": dict(r=2, target_modules=["v_proj"], lora_bias=True),
    "embedding": dict(r=3, target_modules=["embed_tokens", "q_proj"]),
    "conv": dict(r=3, target_modules=["conv", "q_proj"]),
    "dora of conv": dict(r=3, target_modules=["conv"], use_dora=True),
    "saved": dict(r=3, target_modules=["q_proj"], modules_to_save=["lm_head", "conv"]),
    "patterns": dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "o_proj"],
                     rank_pattern={"layers.1.q_proj": 2, "v_proj": 6, r"layers\.(7|10)\.o_proj": 5},
                     alpha_pattern={r"layers.\d+.q_proj": 3, "layers.2.v_proj": 7, "0.o_proj": 9}),
    "regex": dict(r=2, target_modules=r"layers\.[0-4]\.(q|v)_proj|conv"),
    "all": dict(r=2, target_modules="all-linear", lora_dropout=0.1, init_lora_weights="gaussian"),
    "task": dict(r=2, target_modules=["q_proj"], revision="main", fan_in_fan_out=False, exclude_modules=["o_proj"]),
}


def one(name, options, dtype, ids, d):
    model = get_peft_model(base(), LoraConfig(**options)).eval()
    torch.manual_seed(1)
    for n, p in model.named_parameters():
        if p.requires_grad:
            p.data = (p.data + torch.randn_like(p) * 0.2)
            if dtype != torch.float32 and "lora_" in n:
                p.data = p.data.to(dtype).to(torch.float32)
    model.save_pretrained(f"{d}/in")
    p = subprocess.run([tool, "adapter", f"{d}/in", f"{d}/out"], capture_output=True, text=True)
    check(p.returncode == 0, f"{name}: {p.stderr}")
    if p.returncode:
        return
    tensors = [load_file(f"{d}/{k}/adapter_model.safetensors") for k in ("in", "out")]
    check(tensors[0].keys() == tensors[1].keys() and all(torch.equal(v, tensors[1][k]) for k, v in tensors[0].items()),
          f"{name}: tensors differ")
    scales = {}
    for l in p.stdout.splitlines():
        path, kind, rank, scale = l.split()
        scales[path] = (int(rank), float(scale))
    want = {n.removeprefix("base_model.model."): (m.r["default"], m.scaling["default"]) for n, m in model.named_modules()
            if hasattr(m, "scaling")}
    check(scales.keys() == want.keys() and all(scales[k][0] == want[k][0] and abs(scales[k][1] / want[k][1] - 1) < 1e-15
                                               for k in want), f"{name}: {scales} {want}")
    again = PeftModel.from_pretrained(base(), f"{d}/out").eval()
    with torch.no_grad():
        a, b, plain = model(ids), again(ids), base()(ids)
    check((a - b).abs().max() <= 1e-6 * a.abs().max(), f"{name}: differs by {(a - b).abs().max()}")
    check((a - plain).abs().max() > 0.01, f"{name}: the adapter does nothing")
    got, was = [json.load(open(f"{d}/{k}/adapter_config.json")) for k in ("out", "in")]
    for k, v in got.items():
        w = was[k]
        if isinstance(v, list) and k != "layers_pattern":
            v, w = sorted(v), sorted(w)
        check(v == w or k in ("exclude_modules", "init_lora_weights", "auto_mapping"), f"{name}: {k} was {was[k]}, is {v}")


def adapters():
    ids = torch.arange(40).reshape(2, 20)
    for name, options in cases.items():
        with tempfile.TemporaryDirectory() as d:
            one(name, options, torch.bfloat16 if name == "rslora" else torch.float32, ids, d)


def refused():
    """What other PEFT methods save, and what would compute something else."""
    def told(change, message):
        with tempfile.TemporaryDirectory() as d:
            get_peft_model(base(), LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(d)
            c = json.load(open(f"{d}/adapter_config.json"))
            c.update(change)
            json.dump(c, open(f"{d}/adapter_config.json", "w"))
            p = subprocess.run([tool, "adapter", d, f"{d}/out"], capture_output=True, text=True)
            check((p.returncode, message in p.stderr) == (0 if not message else 4, True), f"{change}: {p.returncode} {p.stderr}")

    told({"some_new_field": {"a": [1, None]}, "loftq_config": {"x": 1}, "kasa_config": None}, "")
    told({"peft_type": "IA3"}, "peft_type IA3 is not supported, LORA is")
    told({"use_qalora": True}, '"use_qalora" is not supported')
    told({"layer_replication": [[0, 4], [2, 5]]}, '"layer_replication" is not supported')
    told({"init_lora_weights": "pissa_niter_4"}, 'init_lora_weights "pissa_niter_4" changes the base weights')
    told({"rank_pattern": {"(?!x)q": 4}}, "the pattern (?!x)q is not supported")


def rates():
    from transformers import get_scheduler
    for name, args, warm in (("constant_with_warmup", ("constant", 0.1, 0, 5, 0, 40), 5), ("linear", ("linear", 0.1, 0, 5, 0, 40), 5),
                             ("cosine", ("cosine", 0.1, 0, 5, 0, 40), 5), ("cosine", ("cosine", 0.1, 0, 0, 0, 40), 0),
                             ("warmup_stable_decay", ("wsd", 0.1, 0, 5, 10, 40), 5)):
        o = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
        more = dict(scheduler_specific_kwargs=dict(num_decay_steps=10, decay_type="linear")) if name[0] == "w" else {}
        s = get_scheduler(name, o, num_warmup_steps=warm, num_training_steps=40, **more)
        want = []
        for _ in range(42):
            want.append(s.get_last_lr()[0])
            o.step()
            s.step()
        want = want[:40]
        p = subprocess.run([tool, "schedule", *map(str, args)], capture_output=True, text=True)
        got = [float(x) for x in p.stdout.split()][:40]
        check(len(got) == 40 and max(abs(a - b) for a, b in zip(got, want)) < 1e-15, f"{name}: {got} {want}")


adapters(), refused(), rates()
print(f"{failed()} failures")
sys.exit(failed() != 0)
