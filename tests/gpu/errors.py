"""Errors of models on a GPU, in units of those that PyTorch commits in the same precision, against PyTorch in f64.

    errors.py libgraphc.so PLANS WEIGHTS NAME...      PLANS/NAME.f32*.plan and NAME.bf16*.plan; WEIGHTS/NAME.onnx with weights

Errors are root mean squares of the first output. In f32 PyTorch's are measured on the CPU and on the GPU, which differ by
twice and more in either direction; the larger one counts, and both are printed. At most 1.25 of it, and two runs give the same.
"""
import ctypes as C, glob, os, sys
import numpy as np, torch

here = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [os.path.join(here, "..", d) for d in ("models", "bench")]
import cases, graphc_run as gr, torch_onnx

MOST = 1.25
TYPES = {(2, 32): torch.float32, (2, 16): torch.float16, (4, 16): torch.bfloat16}
GIVEN = {"f16": torch.float16, "bf16": torch.bfloat16}


class Model(torch_onnx.Model):
    """Tensors are made on the device."""

    def __init__(self, path, dtype, device):
        self.device = device
        torch.set_default_device(device)
        super().__init__(path, dtype)

    def tensor(self, x):
        x = np.asarray(x)
        bits = x.dtype.name == "bfloat16"  # which PyTorch does not take from NumPy
        t = torch.from_numpy(np.array(x.view(np.int16) if bits else x)).to(self.device)
        t = t.view(torch.bfloat16) if bits else t
        return t.to(self.dtype) if t.is_floating_point() else t


def first_output(path, feeds, dtype, device):
    with torch.no_grad():
        y = next(iter(Model(path, dtype, device)(feeds).values())).double().cpu()
    torch.set_default_device("cpu")
    return y


def error(got, want):
    return float((got.double() - want).pow(2).mean().sqrt() / want.std())


def open_session(lib, plan, weights):
    s = gr.Session.__new__(gr.Session)
    s.lib, s.plan, s.session, s.kept = lib, C.c_void_p(), C.c_void_p(), []
    why = C.create_string_buffer(512)
    o = gr.Options(C.sizeof(gr.Options), gr.CUDA, 0, 0, None, 0, weights.encode())
    if lib.graphc_plan_load(plan.encode(), C.byref(s.plan), why, len(why)) or \
            lib.graphc_session_create(s.plan, C.byref(o), C.byref(s.session), why, len(why)):
        raise RuntimeError(why.value.decode())
    return s


def bind(s, feeds):
    for i in range(s.lib.graphc_plan_inputs(s.plan)):
        info = s.lib.graphc_plan_input(s.plan, i)
        x = torch.from_numpy(feeds[info.name.decode()]).cuda()
        x = x.to(GIVEN.get(info.dtype_name.decode(), x.dtype))
        s.kept.append(x)
        b = gr.Tensor(x.data_ptr(), gr.CUDA, 0, info.dtype, info.rank, (C.c_int64 * gr.MAX_RANK)(*x.shape))
        s.check(s.lib.graphc_bind_input(s.session, i, C.byref(b)))
    torch.cuda.synchronize()


def run(s):
    t = gr.Tensor()
    s.run()
    s.check(s.lib.graphc_output_host(s.session, 0, C.byref(t)))
    shape = [t.shape[k] for k in range(t.rank)]
    size = int(np.prod(shape)) * t.dtype.bits // 8
    return torch.frombuffer(bytearray(C.string_at(t.data, size)), dtype=TYPES[t.dtype.code, t.dtype.bits]).reshape(shape)


def compare(lib, plan, weights, feeds, want, theirs):
    s = open_session(lib, plan, weights)
    bind(s, feeds)
    got, again = run(s), run(s)
    s.close()
    e, same = error(got, want), torch.equal(got, again)
    ok = same and e <= MOST * max(theirs.values())
    beside = ", ".join(f"{e / x:.2f} of {name}'s {x:.2e}" for name, x in theirs.items())
    print(f"{'ok' if ok else 'FAILED':6} {os.path.basename(plan):34} {e:.2e}: {beside}{'' if same else '; runs differ'}", flush=True)
    return ok


def check_model(lib, plans, weights, name, sizes):
    path = f"{weights}/{name}.onnx"
    feeds = cases.inputs(path, sizes)
    want = first_output(path, feeds, torch.float64, "cuda")
    ok = True
    for precision, ways in (("f32", (("CPU", torch.float32, "cpu"), ("GPU", torch.float32, "cuda"))),
                            ("bf16", (("GPU", torch.bfloat16, "cuda"),))):
        found = sorted(glob.glob(f"{plans}/{name}.{precision}*.plan"))
        theirs = {who: error(first_output(path, feeds, t, d), want) for who, t, d in ways} if found else {}
        for plan in found:
            ok &= compare(lib, plan, weights, feeds, want, theirs)
    return ok


def main():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    lib = gr.load(os.path.abspath(sys.argv[1]))
    lib.graphc_output_host.restype = C.c_int
    lib.graphc_output_host.argtypes = [C.c_void_p, C.c_uint32, C.POINTER(gr.Tensor)]
    results = [check_model(lib, *sys.argv[2:4], name, sizes) for name in sys.argv[4:] for sizes in cases.SIZES]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
