"""What a user would run instead, for a row of gpu_rows.py: name -> function of one run, on torch's current GPU.

A run that leaves something behind (a cache that counts) has `before`, which puts it back; it is called outside of the timing.
"""
import torch, torch.nn as nn, torch.nn.functional as F

TYPE = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "tf32": torch.float32}


def draw(*shape, t="bf16"):
    return torch.randn(*shape, device="cuda", dtype=TYPE[t])


def compiled(f):
    return torch.compile(f, dynamic=False)


def mm(t, layout, m, k, n, epilogue):
    torch.backends.cuda.matmul.allow_tf32 = t == "tf32"
    a, b = draw(m, k, t=t), draw(k, n, t=t) if layout == "nn" else draw(n, k, t=t).t()
    out = torch.empty(m, n, device="cuda", dtype=TYPE[t])
    if epilogue == "bias_gelu":
        w = draw(n, t=t)
        return {"cublaslt": lambda: torch._addmm_activation(w, a, b, use_gelu=True),
                "inductor": compiled(lambda: F.gelu(a @ b + w, approximate="tanh"))}
    if epilogue == "residual":
        r = draw(m, n, t=t)
        return {"cublas": lambda: torch.addmm(r, a, b, out=out), "inductor": compiled(lambda: a @ b + r)}
    return {"cublas": lambda: torch.mm(a, b, out=out)}


def mm8(t, m, k, n):
    if t == "i8":
        a, b = (torch.randint(-128, 128, s, device="cuda", dtype=torch.int8) for s in ((m, k), (n, k)))
        return {"cublaslt": lambda: torch._int_mm(a, b.t())}
    a, b = (draw(*s).to(torch.float8_e4m3fn) for s in ((m, k), (n, k)))
    one = torch.ones((), device="cuda")
    scaled = lambda fast: lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast)
    return {"cublaslt": scaled(False), "cublaslt_fast": scaled(True)}


def chain(m, k, n, count):
    sides = [(draw(m, k), draw(n, k).t(), torch.empty(m, n, device="cuda", dtype=TYPE["bf16"])) for _ in range(count)]

    def run():
        for a, b, out in sides:
            torch.mm(a, b, out=out)
    return {"cublas": run}


def sdpa(b, h, kv, s, d, causal, mask):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    q, k, v = draw(b, h, s, d), draw(b, kv, s, d), draw(b, kv, s, d)
    m = torch.rand(b, 1, 1, s, device="cuda") > 0.2 if mask else None

    def via(backend):
        def run():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, attn_mask=m, is_causal=causal, enable_gqa=kv != h)
        return run

    other = {"efficient": via(SDPBackend.EFFICIENT_ATTENTION)} if mask else {"fa2": via(SDPBackend.FLASH_ATTENTION)}
    return {"cudnn": via(SDPBackend.CUDNN_ATTENTION), **other}


def conv(b, c, o, k, stride, size, group, residual, t):
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, t == "tf32"
    p = (size + 2 * (k // 2) - k) // stride + 1
    last = lambda x: x.to(memory_format=torch.channels_last)
    x, bias = last(draw(b, c, size, size, t=t)), draw(o, t=t)
    w = last(draw(o, c // group, k, k, t=t) / (c // group * k * k) ** 0.5)
    a = ([stride] * 2, [k // 2] * 2, [1, 1], group)
    if residual:
        r = last(draw(b, o, p, p, t=t))
        return {"cudnn": lambda: torch.cudnn_convolution_add_relu(x, w, r, 1.0, bias, *a),
                "inductor": compiled(lambda: torch.relu(F.conv2d(x, w, bias, *a) + r))}
    return {"cudnn": lambda: torch.cudnn_convolution_relu(x, w, bias, *a),
            "inductor": compiled(lambda: torch.relu(F.conv2d(x, w, bias, *a)))}


def rows(name, t, n, m):
    x = draw(n, m, t=t)
    if name == "cross_entropy":
        target = torch.randint(0, m, (n,), device="cuda")
        f = lambda: F.cross_entropy(x.float(), target)
    elif name == "cross_entropy_grad":
        target = torch.randint(0, m, (n,), device="cuda")

        def f():
            loss = F.cross_entropy(x.float(), target, reduction="none")
            grad = (torch.softmax(x.float(), -1) - F.one_hot(target, m)) / n
            return loss, grad.to(x.dtype)
    elif name in ("layernorm_grad", "rmsnorm_grad"):
        dy, w, centre = draw(n, m, t=t), draw(m, t=t), name == "layernorm_grad"
        mean, rstd = torch.randn(n, 1, device="cuda"), torch.rand(n, 1, device="cuda") + 0.5

        def f():
            g, d = dy.float() * w.float(), dy.float()
            h = (x.float() - mean if centre else x.float()) * rstd
            k = g - h * (g * h).mean(-1, keepdim=True)
            if centre:
                return ((k - g.mean(-1, keepdim=True)) * rstd).to(x.dtype), (d * h).sum(0), d.sum(0)
            return (k * rstd).to(x.dtype), (d * h).sum(0)
    elif name == "transpose_add":
        y = draw(m, n, t=t)
        f = lambda: (x.t() + y).contiguous()
    else:
        y, w, b = draw(n, m, t=t), draw(m, t=t), draw(m, t=t)

        def norm():
            r = x + y
            return r, F.rms_norm(r, (m,), w)

        f = {"add_relu": lambda: torch.relu(x + y), "swiglu": lambda: F.silu(x) * y, "bias_gelu": lambda: F.gelu(x + w),
             "softmax": lambda: torch.softmax(x, -1), "layernorm": lambda: F.layer_norm(x, (m,), w, b),
             "rmsnorm_residual": norm, "sum_rows": lambda: x.float().sum(-1), "sum_cols": lambda: x.float().sum(0)}[name]
    return {"eager": f, "inductor": compiled(f)}


# --- Models ---------------------------------------------------------------------------------------


def rewind(cache):
    """A static cache counts its tokens by itself: a function that puts its counts back to what they are now."""
    counts = [v for layer in cache.layers for v in vars(layer).values() if torch.is_tensor(v) and v.dtype in (torch.int32, torch.int64)]
    kept = [v.clone() for v in counts]
    return lambda: [v.copy_(was) for v, was in zip(counts, kept)]


class Field(nn.Module):
    def __init__(self, m, name="logits"):
        super().__init__()
        self.m, self.name = m, name

    def forward(self, *args):
        return getattr(self.m(*args), self.name)


def ids(high, *shape):
    return torch.randint(0, high, shape, device="cuda")


def on_gpu(make, t):
    with torch.device("cuda"):  # drawing a billion weights on the host takes longer than all runs
        m = make()
    return m.eval().to("cuda", TYPE[t])


def vision(name, batch, last=False):
    import torchvision
    m, x = on_gpu(getattr(torchvision.models, name), "f16"), draw(batch, 3, 224, 224, t="f16")
    form = {"memory_format": torch.channels_last} if last else {}
    return m.to(**form), (x.to(**form),)


def bert(batch):
    from transformers import BertConfig, BertModel
    m = on_gpu(lambda: BertModel(BertConfig(attn_implementation="sdpa")), "f16")
    return Field(m, "last_hidden_state"), (ids(30000, batch, 128),)


def gpt2(batch):
    from transformers import GPT2Config, GPT2LMHeadModel
    m = on_gpu(lambda: GPT2LMHeadModel(GPT2Config(use_cache=False, attn_implementation="sdpa")), "bf16")
    return Field(m), (ids(50000, batch, 1024),)


def llama(cache):
    from transformers import LlamaConfig, LlamaForCausalLM
    c = LlamaConfig(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                    num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=8192, rope_theta=500000.0,
                    tie_word_embeddings=True, use_cache=cache, attn_implementation="sdpa")
    return c, on_gpu(lambda: LlamaForCausalLM(c), "bf16")


def prefill():
    return Field(llama(False)[1]), (ids(128000, 1, 2048),)


def decode():
    from transformers import StaticCache
    c, m = llama(True)
    cache = StaticCache(config=c, max_cache_len=2112)

    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = m

        def forward(self, tokens, at):
            return self.m(tokens, cache_position=at, position_ids=at[None], past_key_values=cache, use_cache=True).logits

    m(ids(128000, 1, 2048), past_key_values=cache, use_cache=True, cache_position=torch.arange(2048, device="cuda"))
    step = Step()
    step.before = rewind(cache)
    return step, (ids(128000, 1, 1), torch.tensor([2048], device="cuda"))


MODELS = {"resnet50_b1": lambda: vision("resnet50", 1, True), "resnet50_b32": lambda: vision("resnet50", 32, True),
          "vitb16_b32": lambda: vision("vit_b_16", 32), "convnext_t_b32": lambda: vision("convnext_tiny", 32),
          "bert_b1": lambda: bert(1), "bert_b32": lambda: bert(32), "gpt2_b8": lambda: gpt2(8),
          "llama1b_prefill2048": prefill, "llama1b_decode_b1": decode}


def model(name):
    m, args = MODELS[name]()
    c = compiled(m)
    sides = {"eager": lambda: m(*args), "inductor": lambda: c(*args)}
    for side in sides.values():
        side.before = getattr(m, "before", None)
    return sides


def peers(spec):
    kinds = {"mm": mm, "mm8": mm8, "chain": chain, "sdpa": sdpa, "conv": conv, "rows": rows, "model": model}
    return kinds[spec[0]](*spec[1:])
