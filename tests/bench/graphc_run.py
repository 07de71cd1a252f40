"""The run API through ctypes, as far as benchmarks need it: a session on torch's GPU, stream and tensors."""
import ctypes as C

CUDA, MAX_RANK = 2, 12


class DType(C.Structure):
    _fields_ = [("code", C.c_uint8), ("bits", C.c_uint8), ("lanes", C.c_uint16)]


class Tensor(C.Structure):
    _fields_ = [("data", C.c_void_p), ("device", C.c_int), ("device_id", C.c_int32), ("dtype", DType),
                ("rank", C.c_int32), ("shape", C.c_int64 * MAX_RANK)]


class IoInfo(C.Structure):
    _fields_ = [("name", C.c_char_p), ("dtype", DType), ("dtype_name", C.c_char_p), ("rank", C.c_int32),
                ("dims", C.POINTER(C.c_char_p))]


class Options(C.Structure):
    _fields_ = [("size", C.c_uint32), ("device", C.c_int), ("device_id", C.c_int32), ("threads", C.c_uint32),
                ("cuda_stream", C.c_void_p), ("isa_limit", C.c_uint32), ("weights_dir", C.c_char_p)]


class Step(C.Structure):
    _fields_ = [("kernel", C.c_char_p), ("kind", C.c_char_p), ("seconds", C.c_double), ("bytes", C.c_double),
                ("flops", C.c_double)]


def load(path):
    lib = C.CDLL(path)
    p, u, e, n = C.c_void_p, C.c_uint32, C.c_char_p, C.c_size_t
    types = {"graphc_plan_load": (C.c_int, [e, C.POINTER(p), e, n]), "graphc_plan_destroy": (None, [p]),
             "graphc_plan_inputs": (u, [p]), "graphc_plan_outputs": (u, [p]),
             "graphc_plan_input": (IoInfo, [p, u]), "graphc_plan_output": (IoInfo, [p, u]),
             "graphc_session_create": (C.c_int, [p, C.POINTER(Options), C.POINTER(p), e, n]),
             "graphc_session_destroy": (None, [p]), "graphc_session_error": (e, [p]),
             "graphc_session_code": (e, [p]), "graphc_bind_input": (C.c_int, [p, u, C.POINTER(Tensor)]),
             "graphc_bind_output": (C.c_int, [p, u, C.POINTER(Tensor)]), "graphc_run": (C.c_int, [p]),
             "graphc_sync": (C.c_int, [p]), "graphc_output": (C.c_int, [p, u, C.POINTER(Tensor)]),
             "graphc_session_profile": (None, [p, C.c_bool]), "graphc_profile_steps": (u, [p]),
             "graphc_profile_step": (Step, [p, u])}
    for name, (result, args) in types.items():
        f = getattr(lib, name)
        f.restype, f.argtypes = result, args
    return lib


class Session:
    """A plan with its inputs on the GPU. Integer inputs are small ids, masks ones, floats N(0, 1)."""

    def __init__(self, lib, plan, stream, dims, weights=None):
        self.lib, self.plan, self.session, self.kept = lib, C.c_void_p(), C.c_void_p(), []
        why = C.create_string_buffer(512)
        if lib.graphc_plan_load(plan.encode(), C.byref(self.plan), why, len(why)):
            raise RuntimeError(why.value.decode())
        o = Options(C.sizeof(Options), CUDA, 0, 0, stream, 0, weights.encode() if weights else None)
        if lib.graphc_session_create(self.plan, C.byref(o), C.byref(self.session), why, len(why)):
            raise RuntimeError(why.value.decode())
        for i in range(lib.graphc_plan_inputs(self.plan)):
            self.bind(i, lib.graphc_plan_input(self.plan, i), dims)

    def check(self, status):
        if status:
            raise RuntimeError(self.lib.graphc_session_error(self.session).decode())

    def bind(self, i, info, dims):
        import torch
        types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
                 "i32": torch.int32, "bool": torch.bool, "i8": torch.int8, "f8e4m3fn": torch.float8_e4m3fn}
        t, name = types[info.dtype_name.decode()], info.name.decode()
        text = [info.dims[k].decode() for k in range(info.rank)]
        shape = [int(d) if d.isdigit() else int(eval(d, {}, dict(dims))) for d in text]
        if t.is_floating_point:
            x = torch.randn(shape, device="cuda").to(t)
        elif t is torch.bool or "mask" in name:
            x = torch.ones(shape, device="cuda", dtype=t)
        else:
            x = torch.randint(0, 50, shape, device="cuda", dtype=t)
        self.kept.append(x)
        b = Tensor(x.data_ptr(), CUDA, 0, info.dtype, info.rank, (C.c_int64 * MAX_RANK)(*shape))
        self.check(self.lib.graphc_bind_input(self.session, i, C.byref(b)))

    def run(self):
        self.check(self.lib.graphc_run(self.session))

    def profile(self, runs=5):
        """Per kernel: name, median milliseconds, bytes, flops; (the median of a few runs, each timed kernel by kernel)."""
        lib, all_runs = self.lib, []
        lib.graphc_session_profile(self.session, True)
        for _ in range(runs):
            self.run()
            n = lib.graphc_profile_steps(self.session)
            all_runs.append([lib.graphc_profile_step(self.session, i) for i in range(n)])
        lib.graphc_session_profile(self.session, False)
        middle = lambda i: sorted(r[i].seconds for r in all_runs)[runs // 2] * 1e3
        return [dict(kernel=s.kernel.decode(), ms=middle(i), bytes=s.bytes, flops=s.flops)
                for i, s in enumerate(all_runs[-1])]

    def close(self):
        self.lib.graphc_session_destroy(self.session)
        self.lib.graphc_plan_destroy(self.plan)
        self.kept = []
