"""Gradients of what PyTorch exports, architectures beyond the example models, against PyTorch's own autodiff.

    exports.py GRAPHC [MODEL ...] [-v]

Each model is exported as it stands, differentiated by its parameters with `graphc grad`, and compared with f64 as
models/grad.py does it: over all parameters and DRAWS inputs together graphc may commit at most 1.25 times what PyTorch
commits in f32, or SMALL, the roundings of a short chain. Needs torch and onnxscript, here or in $GRAPHC_TORCH.
"""
import argparse, copy, importlib.util, logging, math, os, sys, tempfile, warnings
import numpy as np
import grad
import torch
import torch.nn.functional as F
from torch import nn

WHOLE, SINGLE, SMALL, DRAWS = 1.25, 2.5, 2e-7, 3


class Recurrent(nn.Module):
    """Two layers of LSTM in both directions, a GRU, and an Elman network."""
    inputs = [(2, 9, 5)]

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(12, 7, batch_first=True)
        self.rnn = nn.RNN(7, 4, batch_first=True)

    def forward(self, x):
        return self.rnn(self.gru(self.lstm(x)[0])[0])[0]


class SelectiveScan(nn.Module):
    """A Mamba block: gated, a causal convolution, a state space whose step and matrices hang on the token."""
    inputs = [(2, 11, 8)]
    inner, state, rank = 12, 4, 3

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(8)
        self.in_proj = nn.Linear(8, 2 * self.inner, bias=False)
        self.conv = nn.Conv1d(self.inner, self.inner, 4, groups=self.inner, padding=3)
        self.x_proj = nn.Linear(self.inner, self.rank + 2 * self.state, bias=False)
        self.dt_proj = nn.Linear(self.rank, self.inner)
        self.a_log = nn.Parameter(torch.log(torch.arange(1.0, self.state + 1).repeat(self.inner, 1)))
        self.d = nn.Parameter(torch.ones(self.inner))
        self.out_proj = nn.Linear(self.inner, 8, bias=False)

    def forward(self, x):
        u, gate = self.in_proj(self.norm(x)).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., :x.shape[1]].transpose(1, 2))
        dt, b, c = self.x_proj(u).split([self.rank, self.state, self.state], -1)
        dt = F.softplus(self.dt_proj(dt))
        decay = torch.exp(dt[..., None] * -torch.exp(self.a_log))
        drive = (dt * u)[..., None] * b[:, :, None]
        h, out = torch.zeros_like(drive[:, 0]), []
        for t in range(x.shape[1]):
            h = decay[:, t] * h + drive[:, t]
            out.append((h * c[:, t, None]).sum(-1))
        return x + self.out_proj((torch.stack(out, 1) + u * self.d) * F.silu(gate))


class ScannedState(nn.Module):
    """A gated linear recurrence as one Scan."""
    inputs = [(10, 3, 6)]

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x):
        from torch._higher_order_ops.scan import scan

        def step(h, ab):
            h = torch.sigmoid(ab[0]) * h + ab[1]
            return h, torch.tanh(h)
        a, b = self.a(x), self.b(x)
        return self.c(scan(step, torch.zeros_like(x[0]), (a, b))[1])


class Windows(nn.Module):
    """A Swin block: windows of 4, shifted by 2, with a table of relative positions and a mask."""
    inputs = [(2, 8, 8, 12)]
    size, shift, heads = 4, 2, 3

    def __init__(self):
        super().__init__()
        n = self.size
        self.norm1, self.norm2 = nn.LayerNorm(12), nn.LayerNorm(12)
        self.qkv, self.proj = nn.Linear(12, 36), nn.Linear(12, 12)
        self.table = nn.Parameter(torch.randn((2 * n - 1) ** 2, self.heads) * 0.3)
        self.up, self.down = nn.Linear(12, 48), nn.Linear(48, 12)
        at = torch.stack(torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")).flatten(1)
        off = at[:, :, None] - at[:, None] + n - 1
        self.register_buffer("places", off[0] * (2 * n - 1) + off[1])
        part = torch.zeros(8, 8)
        for i, rows in enumerate((slice(0, -n), slice(-n, -2), slice(-2, None))):
            for k, columns in enumerate((slice(0, -n), slice(-n, -2), slice(-2, None))):
                part[rows, columns] = 3 * i + k
        part = self.cut(part[None, :, :, None])[..., 0]
        self.register_buffer("mask", torch.where(part[:, None] == part[:, :, None], 0.0, -100.0))

    def cut(self, x):
        b, h, w, c = x.shape
        n = self.size
        return x.view(b, h // n, n, w // n, n, c).transpose(2, 3).reshape(-1, n * n, c)

    def forward(self, x):
        b, h, w, c = x.shape
        n = self.size
        y = self.cut(torch.roll(self.norm1(x), (-self.shift, -self.shift), (1, 2)))
        q, k, v = self.qkv(y).view(-1, n * n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        s = q @ k.transpose(-1, -2) / math.sqrt(c // self.heads)
        s = s + self.table[self.places.view(-1)].view(n * n, n * n, -1).permute(2, 0, 1)
        s = s.view(b, -1, self.heads, n * n, n * n) + self.mask[None, :, None].to(s.dtype)
        y = s.softmax(-1).view(-1, self.heads, n * n, n * n) @ v
        y = self.proj(y.transpose(1, 2).reshape(-1, n * n, c))
        y = y.view(b, h // n, w // n, n, n, c).transpose(2, 3).reshape(b, h, w, c)
        x = x + torch.roll(y, (self.shift, self.shift), (1, 2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Experts(nn.Module):
    """Four experts, of which each token takes the two best; the balance of their load is a loss, too."""
    inputs = [(2, 7, 8)]

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.up, self.gate = (nn.Parameter(torch.randn(4, 8, 16) / 3) for _ in range(2))
        self.down = nn.Parameter(torch.randn(4, 16, 8) / 4)

    def forward(self, x):
        t = x.reshape(-1, 8)
        share = self.router(t).softmax(-1)
        top, which = share.topk(2, -1)
        top = top / top.sum(-1, keepdim=True)
        gates = torch.zeros_like(share).scatter(1, which, top)
        h = F.silu(torch.einsum("td,edh->teh", t, self.gate)) * torch.einsum("td,edh->teh", t, self.up)
        y = torch.einsum("teh,ehd,te->td", h, self.down, gates)
        load = (gates > 0).to(share.dtype).mean(0)
        return torch.cat([(x + y.view_as(x)).flatten(), 4 * (share.mean(0) * load).sum()[None]])


class Chosen(nn.Module):
    """Experts whose weights are fetched for each token."""
    inputs = [(6, 8)]

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, 5)
        self.weight, self.bias = nn.Parameter(torch.randn(5, 8, 8) / 3), nn.Parameter(torch.randn(5, 8))

    def forward(self, x):
        top, which = self.router(x).topk(2, -1)
        y = torch.einsum("td,tkdo->tko", x, self.weight[which]) + self.bias[which]
        return (torch.tanh(y) * top.softmax(-1)[..., None]).sum(1)


class Detector(nn.Module):
    """Two levels of features, a head for classes and boxes, focal loss and generalised overlap of boxes for each cell."""
    inputs = [(2, 3, 16, 16), (2, 20, 4), (2, 20, 3)]

    def __init__(self):
        super().__init__()
        self.stem, self.down = nn.Conv2d(3, 6, 3, 4, 1), nn.Conv2d(6, 8, 3, 2, 1)
        self.norm = nn.GroupNorm(2, 6)
        self.side, self.top = nn.Conv2d(6, 8, 1), nn.Conv2d(8, 8, 1)
        self.classes, self.boxes = nn.Conv2d(8, 3, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)
        self.scale = nn.Parameter(torch.tensor([1.0, 1.5]))

    def forward(self, image, box, label):
        low = F.silu(self.norm(self.stem(image)))
        high = self.top(F.silu(self.down(low)))
        levels = [self.side(low) + F.interpolate(high, scale_factor=2.0, mode="nearest"), high]
        scores = torch.cat([self.classes(f).flatten(2).transpose(1, 2) for f in levels], 1)
        sides = torch.cat([F.softplus(self.boxes(f) * self.scale[i]).flatten(2).transpose(1, 2) for i, f in enumerate(levels)], 1)
        want = torch.sigmoid(label)
        p = torch.sigmoid(scores)
        focal = (F.softplus(scores) - want * scores) * (p - want).abs() ** 2
        true = F.softplus(box) + 0.1  # how far the sides are from the cell
        area = lambda s: (s[..., 0] + s[..., 2]) * (s[..., 1] + s[..., 3])
        both = area(torch.minimum(sides, true))
        union = area(sides) + area(true) - both
        hull = area(torch.maximum(sides, true))
        return torch.stack([focal.sum(), (1 - both / union + (hull - union) / hull).sum()])


class Convolutions(nn.Module):
    """Over wide channels: of a stride and dilation that leave a rest, in groups, transposed, over one and three axes, with weights
    of a norm of their own; and the norms of convolutions."""
    inputs = [(2, 3, 15, 17)]

    def __init__(self):
        super().__init__()
        self.stem, self.strided = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 24, (3, 4), (2, 3), (1, 2), (2, 1))
        self.groups, self.apart = nn.Conv2d(24, 32, 3, padding=1, groups=4), nn.Conv2d(32, 32, 5, padding=2, groups=32)
        self.back = nn.ConvTranspose2d(32, 16, 3, 2, 1, output_padding=1, bias=False)
        self.long = nn.utils.parametrizations.weight_norm(nn.Conv1d(16, 20, 5, dilation=3, padding=6))
        self.deep = nn.Conv3d(20, 16, (2, 3, 1), (1, 2, 1), (1, 0, 0))
        self.norm, self.of_each = nn.GroupNorm(4, 32), nn.InstanceNorm2d(16, affine=True)

    def forward(self, x):
        x = F.gelu(self.strided(F.relu(self.stem(x) + 3)))
        x = F.silu(self.norm(self.apart(self.groups(x))))
        x = F.silu(self.of_each(self.back(x)))
        x = torch.tanh(self.long(x.flatten(2)))
        return self.deep(x.view(*x.shape[:2], 4, -1, 2).flatten(3)[..., None])


class Neighbours(nn.Module):
    """A graph network: messages along edges, weighed by a softmax over each node's own, added where they go."""
    inputs = [(9, 6), (14, 3)]

    def __init__(self):
        super().__init__()
        self.out, self.into, self.edge = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(3, 8)
        self.weigh, self.last = nn.Linear(8, 1, bias=False), nn.Linear(8, 2)
        rng = np.random.default_rng(4)
        self.register_buffer("ends", torch.tensor(rng.integers(0, 9, (2, 14))))

    def forward(self, x, e):
        start, end = self.ends[0], self.ends[1]
        m = self.out(x)[start] + self.into(x)[end] + self.edge(e)
        w = self.weigh(F.leaky_relu(m, 0.2))[:, 0].exp()
        total = torch.zeros_like(x[:, 0]).index_add(0, end, w)
        m = m * (w / total[end])[:, None]
        return self.last(torch.tanh(torch.zeros(9, 8, dtype=x.dtype).index_add(0, end, m)))


class Decaying(nn.Module):
    """Linear attention: keys and values are summed along the sequence, in two spellings; a mix of each token with the one before."""
    inputs = [(2, 9, 8)]

    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.rand(3, 8))
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8, bias=False) for _ in range(4))
        self.decay = nn.Parameter(torch.randn(2) / 2)

    def forward(self, x):
        before = F.pad(x, (0, 0, 1, -1))
        q, k, v = (w(x * m + before * (1 - m)) for w, m in zip((self.q, self.k, self.v), self.mix))
        k = F.elu(k) + 1
        part = torch.cumsum(k[..., None] * v[:, :, None], 1)
        one = torch.einsum("btk,btkv->btv", q, part) / torch.cumsum(k, 1).sum(-1, keepdim=True)
        q, k, v = (t.view(2, 9, 2, 4).transpose(1, 2) for t in (q, k, v))
        far = (torch.arange(9)[:, None] - torch.arange(9)).to(x.dtype)
        gone = torch.where(far >= 0, torch.exp(-F.softplus(self.decay)[:, None, None] * far.clamp(min=0)), 0.0)
        two = ((q @ k.transpose(-1, -2)) * gone.to(x.dtype)) @ v
        return self.o(one + F.layer_norm(two, (4,)).transpose(1, 2).flatten(2))


class Sampled(nn.Module):
    """An image read where a network says, a sorted pool, and the nearest codes of a book."""
    inputs = [(8, 4, 7, 7)]

    def __init__(self):
        super().__init__()
        self.where, self.after = nn.Conv2d(4, 2, 3, padding=1), nn.Conv2d(4, 16, 1)
        self.book, self.last = nn.Parameter(torch.randn(11, 16)), nn.Linear(16, 3)

    def forward(self, x):
        y, z = torch.meshgrid(torch.linspace(-1, 1, 7), torch.linspace(-1, 1, 7), indexing="ij")
        grid = torch.stack([z, y], -1).to(x.dtype) + 0.3 * torch.tanh(self.where(x)).permute(0, 2, 3, 1)
        x = self.after(F.grid_sample(x, grid, align_corners=True, padding_mode="border")).flatten(2).transpose(1, 2)
        near = ((x[:, :, None] - self.book) ** 2).sum(-1).argmin(-1)
        code = self.book[near]
        x = x + 0.25 * (code - x) ** 2
        return self.last(torch.sort(x, 1).values[:, -5:].mean(1))


MODELS = {m.__name__: m for m in (Recurrent, SelectiveScan, ScannedState, Windows, Experts, Chosen, Detector, Convolutions, Neighbours,
                                  Decaying, Sampled)}


def draw(shapes, seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def torch_gradients(model, inputs, dtype, cotangent):
    m = copy.deepcopy(model).to(dtype)
    y = m(*(torch.from_numpy(x).to(dtype) for x in inputs))
    (y * torch.from_numpy(cotangent).to(dtype)).sum().backward()
    return {n: p.grad.numpy() for n, p in m.named_parameters()}


def export(model, inputs, path):
    program = torch.onnx.export(model, tuple(map(torch.from_numpy, inputs)), dynamo=True, optimize=False, verbose=False,
                                output_names=["y"])
    program.save(path)
    return [v.name for v in program.model_proto.graph.input]


def check(a, name):
    torch.manual_seed(7)
    model, rows = MODELS[name](), {}
    with tempfile.TemporaryDirectory() as tmp:
        names = export(model, draw(model.inputs, 0), f"{tmp}/{name}.onnx")
        for i in range(DRAWS):
            inputs = draw(model.inputs, i)
            with torch.no_grad():
                shape = model(*map(torch.from_numpy, inputs)).shape
            cotangent = np.random.default_rng(9 + i).standard_normal(shape).astype(np.float32)
            want, near = (torch_gradients(model, inputs, t, cotangent) for t in (torch.float64, torch.float32))
            got = grad.graphc_gradients(a, f"{tmp}/{name}.onnx", dict(zip(names, inputs)), "y", cotangent, tmp)
            for n, w in want.items():
                rows.setdefault(n, []).append((grad.distance(got(n), w), grad.distance(near[n], w)))
    rows = [(n, *(grad.mean_square([x[k] for x in v]) for k in (0, 1))) for n, v in rows.items()]
    mine, theirs = (grad.mean_square([r[k] for r in rows]) for k in (1, 2))
    worst = max(rows, key=lambda r: r[1] / max(r[2], SMALL))
    ok = mine <= max(WHOLE * theirs, SMALL) and worst[1] <= SINGLE * max(worst[2], SMALL)
    print(f"{'ok  ' if ok else 'BAD '} {name:16} {len(rows):3} parameters  error {mine:.2e}, torch f32 {theirs:.2e} = "
          f"{mine / theirs:.2f}; worst {worst[0]} {worst[1]:.1e} of {worst[2]:.1e}", flush=True)
    for r in rows if a.v else ():
        print(f"     {r[0]:30} {r[1]:.2e} {r[2]:.2e}")
    return ok


def main():
    p = argparse.ArgumentParser()
    p.add_argument("graphc"), p.add_argument("models", nargs="*"), p.add_argument("-v", action="store_true")
    a = p.parse_args()
    if not importlib.util.find_spec("onnxscript"):
        print("skipped: no onnxscript")
        return 77
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    bad = 0
    for name in a.models or MODELS:
        try:
            bad += not check(a, name)
        except RuntimeError as e:
            bad += 1
            print(f"BAD  {name:16} {e}", flush=True)
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
